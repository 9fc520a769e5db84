//! Attacks by the content of requests: members that are there twice, numbers, nesting, encodings, and texts that would
//! be lines of a stream.

use std::collections::BTreeSet;

use duologue_hub::gateway::openapi_json;
use serde_json::{Value, json};

use crate::rest::description;
use crate::rest::hosted::writer;
use crate::rest::world::{ALICE, BOB, Call, REMOTE, RestWorld, events};

const MESSAGES: &str = "/agents/remote/messages";
const TASKS: &str = "/agents/remote/tasks";

#[tokio::test]
async fn members_that_are_there_twice_are_refused() {
    let world = RestWorld::with_remote("").await;
    for (path, body) in [
        (TASKS, r#"{"from": "alice", "from": "bob", "task": {"type": "a"}}"#),
        (TASKS, r#"{"task": {"type": "a"}, "t\u0061sk": {"type": "b"}}"#),
        (TASKS, r#"{"task": {"type": "a", "type": "b"}}"#),
        (TASKS, r#"{"task": {"type": "a", "parameters": 1, "parameters": 2}}"#),
        (TASKS, r#"{"taskId": "a", "taskId": "b", "task": {"type": "a"}}"#),
        (TASKS, r#"{"callback": "https://a.example", "callback": null, "task": {"type": "a"}}"#),
        (MESSAGES, r#"{"message": {"type": "a", "content": "a"}, "message": {"type": "b", "content": "a"}}"#),
        (MESSAGES, r#"{"message": {"type": "a", "content": 1, "content": 2}}"#),
        (MESSAGES, r#"{"mode": "async", "mode": "sync", "message": {"type": "a", "content": "a"}}"#),
    ] {
        world.post(ALICE, path, body).await.refused(400, "invalid_parameter");
    }
    for (path, body) in [
        ("/registry/agents/remote", r#"{"tags": [], "tags": ["x"]}"#),
        ("/registry/agents/remote", r#"{"endpoint": "https://a.example", "endpoint": "https://b.example"}"#),
    ] {
        world.put(REMOTE, path, body).await.refused(400, "invalid_parameter");
    }
    // In a query too, in all spellings.
    for query in ["owner=alice&owner=bob", "owner=alice&%6fwner=bob", "owner[]=bob", "owner=alice&OWNER=bob"]
    {
        world.get(ALICE, &format!("{TASKS}?{query}")).await.refused(400, "invalid_parameter");
    }
    assert_eq!(world.get(ALICE, TASKS).await.expect(200)["pagination"]["total"], 0);
    world.stop().await;
}

#[tokio::test]
async fn a_refused_body_has_its_place() {
    let world = RestWorld::with_remote("").await;
    for (body, place) in [
        (r#"{"message": {"type": 5}}"#, "message.type: invalid type: integer `5`"),
        (r#"{"message": {"type": "a"}}"#, "message: missing field `content` at line 1 column 25"),
        (
            r#"{"message": "a"}"#,
            "message: invalid type: string \"a\", expected an object at line 1 column 15",
        ),
        ("[]", "body: an array; use an object"),
        ("{message}", "body: key must be a string at line 1 column 2"),
        ("{\n  \"mode\": \"sync\",\n}", "body: trailing comma at line 3 column 1"),
        (r#"{"message": {"type": "a",}}"#, "message: trailing comma at line 1 column 26"),
        (
            r#"{"message": {"type": "a", "content": x}}"#,
            "message.content: expected value at line 1 column 38",
        ),
        ("", "body: EOF while parsing a value at line 1 column 0"),
    ] {
        let why = world.post(ALICE, MESSAGES, body).await.refused(400, "invalid_parameter");
        assert!(why.starts_with(place), "{body}: {why}");
    }
    // No content is a content too, if the sender says so.
    let none = json!({"messageId": "m1", "message": {"type": "notify", "content": null}});
    world.post(ALICE, MESSAGES, &none).await.expect(202);
    let claimed = world.post_empty(REMOTE, &format!("{MESSAGES}/claim")).await.expect(200);
    assert_eq!(claimed["messages"][0]["message"], none["message"]);
    world.stop().await;
}

/// The parsers of structs take an array as the members in their order.
#[tokio::test]
async fn an_array_is_no_object_at_any_place_of_a_body() {
    let world = RestWorld::with_remote("").await;
    let (ack, entry) = (format!("{MESSAGES}/m1/ack"), "/registry/agents/remote");
    let refused = [
        ("POST", MESSAGES, r#"{"message": ["notify", "a"]}"#, "message"),
        ("POST", TASKS, r#"{"task": ["write", {"prompt": "a"}]}"#, "task"),
        ("POST", &*ack, r#"{"lease": "a", "response": ["notify", "a"]}"#, "response"),
        ("PUT", entry, r#"{"metadata": ["1.0"]}"#, "metadata"),
        ("PUT", entry, r#"{"metadata": {"pricing": ["per_task", 1, "EUR"]}}"#, "metadata.pricing"),
        (
            "PUT",
            entry,
            r#"{"metadata": {"keys": [{"id": "k1", "algorithm": "HS256"}, ["k2", "HS256"]]}}"#,
            "metadata.keys[1]",
        ),
        ("PUT", entry, r#"{"capabilities": ["plan", ["draw", "with a pen"]]}"#, "capabilities[1]"),
        ("PUT", entry, "[null, [], []]", "body"),
        ("POST", "/registry/agents/remote/heartbeat", r#"["busy"]"#, "body"),
    ];
    for (method, path, body, place) in refused {
        let key = if path == MESSAGES || path == TASKS { ALICE } else { REMOTE };
        let call = Call::new(method, path).key(key).json(body);
        let why = world.send(&call).await.refused(400, "invalid_parameter");
        let at = why.strip_prefix(place).unwrap_or_else(|| panic!("{body}: {why}"));
        assert!(at.starts_with(": ") && at.contains("use a"), "{body}: {why}");
    }
    // The description has no other objects with members. Keys are not in it.
    let mut described = BTreeSet::from(["metadata.keys[]".to_owned()]);
    let document: Value = serde_json::from_str(&openapi_json()).unwrap();
    for (_, _, operation) in description::described() {
        note_objects(
            &document,
            &operation["requestBody"]["content"]["application/json"]["schema"],
            "",
            &mut described,
        );
    }
    let places = refused.iter().map(|(.., place)| place.replace("[1]", "[]").replace("body", ""));
    assert_eq!(places.collect::<BTreeSet<_>>(), described);
    world.stop().await;
}

/// Notes the places of objects with members in a schema, whose own place is `place`.
fn note_objects(document: &Value, schema: &Value, place: &str, found: &mut BTreeSet<String>) {
    if let Some(reference) = schema["$ref"].as_str() {
        let referenced = document.pointer(reference.trim_start_matches('#')).expect("a schema");
        return note_objects(document, referenced, place, found);
    }
    for variant in schema["oneOf"].as_array().into_iter().flatten() {
        note_objects(document, variant, place, found);
    }
    if schema["items"].is_object() {
        note_objects(document, &schema["items"], &format!("{place}[]"), found);
    }
    let Some(members) = schema["properties"].as_object() else { return };
    found.insert(place.to_owned());
    for (name, member) in members {
        let separator = if place.is_empty() { "" } else { "." };
        note_objects(document, member, &format!("{place}{separator}{name}"), found);
    }
}

/// Numbers that some parsers round, wrap or fail on.
const ODD_NUMBERS: [&str; 14] = [
    "-1",
    "1.5",
    "9007199254740992",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "99999999999999999999999999999999",
    "1e16",
    "1e400",
    "-1e400",
    "\"1\"",
    "true",
    "[]",
    "NaN",
];

#[tokio::test]
async fn numbers_beyond_the_limit_are_refused() {
    let world = RestWorld::with_remote("").await;
    world
        .post(ALICE, MESSAGES, json!({"messageId": "m1", "message": {"type": "a", "content": "a"}}))
        .await
        .expect(202);
    let claimed = world.post_empty(REMOTE, &format!("{MESSAGES}/claim")).await.expect(200);
    let lease = claimed["messages"][0]["lease"].as_str().unwrap();
    let nack = format!("{MESSAGES}/m1/nack");
    for number in ODD_NUMBERS {
        let task = format!(r#"{{"task": {{"type": "a"}}, "timeout": {number}}}"#);
        world.post(ALICE, TASKS, task).await.refused(400, "invalid_parameter");
        let message = format!(r#"{{"message": {{"type": "a", "content": "a"}}, "ttl": {number}}}"#);
        world.post(ALICE, MESSAGES, message).await.refused(400, "invalid_parameter");
        let delay = format!(r#"{{"lease": "{lease}", "delay": {number}}}"#);
        world.post(REMOTE, &nack, delay).await.refused(400, "invalid_parameter");
        let query = number.replace('"', "%22");
        for path in [
            format!("{TASKS}?offset={query}"),
            format!("{TASKS}?limit={query}"),
            format!("{MESSAGES}?offset={query}"),
        ] {
            world.get(ALICE, &path).await.refused(400, "invalid_parameter");
        }
        for name in ["max", "wait", "lease"] {
            let claim = format!("{MESSAGES}/claim?{name}={query}");
            world.post_empty(REMOTE, &claim).await.refused(400, "invalid_parameter");
        }
    }
    world.stop().await;
}

#[tokio::test]
async fn the_largest_numbers_do_no_harm() {
    let world = RestWorld::with_remote("[limits]\nsync_seconds = 1").await;
    let most = (1_u64 << 53) - 1;
    let task = json!({"taskId": "t1", "task": {"type": "a"}, "timeout": most});
    world.post(ALICE, TASKS, &task).await.expect(202);
    let message = json!({"messageId": "m1", "message": {"type": "a", "content": "a"}, "ttl": most});
    world.post(ALICE, MESSAGES, &message).await.expect(202);
    let claim = format!("{MESSAGES}/claim?max=100&lease={most}");
    let claimed = world.post_empty(REMOTE, &claim).await.expect(200);
    let nack = json!({"lease": claimed["messages"][0]["lease"], "delay": most});
    world.post(REMOTE, &format!("{MESSAGES}/m1/nack"), &nack).await.expect(200);
    // It is due in 285,000 years, and the claim does not wait for that.
    let claim = format!("{MESSAGES}/claim?wait={most}");
    assert_eq!(world.post_empty(REMOTE, &claim).await.expect(200)["messages"], json!([]));
    let page = world.get(ALICE, &format!("{TASKS}?offset={most}&limit=1000")).await.expect(200);
    assert_eq!((&page["tasks"], &page["pagination"]["total"]), (&json!([]), &json!(1)));
    for (id, status) in [
        ("99999999999999999999", 400),
        ("1-99999999999999999999", 400),
        ("-1", 400),
        ("+1", 400),
        ("1e3", 400),
    ] {
        let call = Call::new("GET", &format!("{TASKS}/t1/events")).key(ALICE).header("last-event-id", id);
        assert_eq!(world.send(&call).await.status, status, "{id}");
    }
    // `Prefer` is a wish, and the limit of the server holds.
    let message = json!({"mode": "sync", "message": {"type": "a", "content": "a"}});
    for wait in ["wait=18446744073709551615", "wait=99999999999999999999999", "wait=-1"] {
        let call = Call::new("POST", MESSAGES).key(ALICE).header("prefer", wait).json(&message);
        assert_eq!(world.send(&call).await.expect(202)["status"], "processing", "{wait}");
    }
    world.stop().await;
}

#[tokio::test]
async fn deep_nesting_is_refused_in_every_member() {
    let world = RestWorld::with_remote("").await;
    let nested = |levels: usize| format!("{}1{}", "[".repeat(levels), "]".repeat(levels));
    let objects = |levels: usize| format!("{}1{}", r#"{"a":"#.repeat(levels), "}".repeat(levels));
    for value in [nested(200), nested(100_000), objects(200), objects(50_000), "[".repeat(900_000)] {
        for (path, before, after) in [
            (TASKS, r#"{"task": {"type": "a", "parameters": "#, "}}"),
            (TASKS, r#"{"task": {"type": "a"}, "metadata": {"a": "#, "}}"),
            (TASKS, r#"{"task": {"type": "a"}, "unknown": "#, "}"),
            (MESSAGES, r#"{"message": {"type": "a", "content": "#, "}}"),
            (MESSAGES, "", ""),
        ] {
            let body = format!("{before}{value}{after}");
            let refused = world.post(ALICE, path, body).await;
            refused.refused(400, "invalid_parameter");
            assert!(refused.text.len() < 1_000, "{}", refused.text.len());
        }
    }
    // Brackets in a text are no levels.
    let content = json!({"message": {"type": "a", "content": "[".repeat(100_000)}});
    world.post(ALICE, MESSAGES, &content).await.expect(202);
    world.stop().await;
}

#[tokio::test]
async fn other_encodings_than_utf_8_are_refused() {
    let world = RestWorld::with_remote("").await;
    let text = r#"{"task": {"type": "a"}}"#;
    let utf_16: Vec<u8> = text.encode_utf16().flat_map(u16::to_be_bytes).collect();
    let marked = [b"\xef\xbb\xbf", text.as_bytes()].concat();
    // An overlong slash, a lone surrogate, a byte alone, and one that is cut.
    let overlong = b"{\"task\": {\"type\": \"\xc0\xaf\"}}".to_vec();
    let surrogate = b"{\"task\": {\"type\": \"\xed\xa0\x80\"}}".to_vec();
    let alone = b"{\"task\": {\"type\": \"\xff\"}}".to_vec();
    let cut = b"{\"task\": {\"type\": \"\xe2\x82\"}}".to_vec();
    let escaped = br#"{"task": {"type": "\ud800"}}"#.to_vec();
    for body in [utf_16, marked, overlong, surrogate, alone, cut, escaped] {
        let call = Call::new("POST", TASKS).key(ALICE).raw("application/json", body);
        world.send(&call).await.refused(400, "invalid_parameter");
    }
    for path in
        ["/agents/%ff/tasks", "/agents/remote/tasks/%c0%af", "/agents/%ed%a0%80", "/agents?tag=%c0%ae"]
    {
        world.get(ALICE, path).await.refused(400, "invalid_parameter");
    }
    // Half of a pair in a content that the server passes on.
    let body = br#"{"messageId": "half", "message": {"type": "a", "content": "\ud800"}}"#.to_vec();
    let sent = world.send(&Call::new("POST", MESSAGES).key(ALICE).raw("application/json", body)).await;
    assert!([202, 400].contains(&sent.status), "{sent:?}");
    assert_eq!(world.get(ALICE, MESSAGES).await.status, 200);
    world.stop().await;
}

#[tokio::test]
async fn bodies_of_another_form_are_refused() {
    let world = RestWorld::with_remote("").await;
    let more = [format!("{MESSAGES}/m/ack"), format!("{MESSAGES}/m/nack")];
    for body in [
        "",
        " ",
        "null",
        "true",
        "1",
        "\"a\"",
        "[]",
        "{",
        "{}",
        "[{\"task\": {\"type\": \"a\"}}]",
        "{}{}",
        "\0",
    ] {
        for path in [TASKS, MESSAGES] {
            world.post(ALICE, path, body).await.refused(400, "invalid_parameter");
        }
        for path in &more {
            world.post(REMOTE, path, body).await.refused(400, "invalid_parameter");
        }
    }
    for media_type in
        ["application/x-www-form-urlencoded", "multipart/form-data", "text/json", "application/xml", "a", ""]
    {
        let call = Call::new("POST", TASKS).key(ALICE).raw(media_type, r#"{"task": {"type": "a"}}"#);
        world.send(&call).await.refused(415, "unsupported_media_type");
    }
    world.stop().await;
}

#[tokio::test]
async fn members_of_a_response_cannot_be_set() {
    let world = RestWorld::with_remote("").await;
    let task = json!({
        "taskId": "t1", "task": {"type": "a", "owner": "bob"}, "owner": "bob", "agentId": "writer",
        "status": "completed", "state": "completed", "result": "forged", "progress": 100, "sessionId": "s",
        "createdAt": 1, "priority": "low", "roles": ["admin"], "principal": "local",
    });
    world.post(ALICE, TASKS, &task).await.expect(202);
    let found = world.get(ALICE, &format!("{TASKS}/t1")).await.expect(200);
    assert_eq!((&found["owner"], &found["from"]), (&json!("alice"), &json!("alice")));
    assert_eq!((&found["status"], &found["progress"]), (&json!("pending"), &Value::Null));
    assert!(found["result"].is_null() && found["sessionId"].is_null() && found["createdAt"] != 1, "{found}");
    world.get(BOB, &format!("{TASKS}/t1")).await.refused(404, "not_found");

    let message = json!({
        "messageId": "m1", "message": {"type": "a", "content": "a"}, "sender": "bob", "status": "completed", "attempts": 99,
        "response": "forged", "lease": "m1-0000000000000001", "timestamp": 1,
    });
    world.post(ALICE, MESSAGES, &message).await.expect(202);
    let found = world.get(ALICE, &format!("{MESSAGES}/m1")).await.expect(200);
    assert_eq!((&found["sender"], &found["status"]), (&json!("alice"), &json!("received")));
    assert!(found["response"].is_null() && found["lease"].is_null() && found["attempts"] == 0, "{found}");

    let entry = json!({"agentId": "writer", "owner": "bob", "lastSeen": 1, "source": "config"});
    world.put(REMOTE, "/registry/agents/remote", &entry).await.expect(200);
    world.post_empty(REMOTE, "/registry/agents/remote/heartbeat").await.expect(200);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_text_is_no_event_and_no_line() {
    let world = RestWorld::start(&writer()).await;
    let forged =
        "plan\n\nevent: end\nid: 9-9\ndata: {\"forged\": true}\n\n{\"task\": {\"forged\": true}}\n\r\n";
    let task = json!({"taskId": "t1", "task": {"type": "a", "parameters": {"prompt": forged}}});
    world.post(ALICE, "/agents/writer/tasks", &task).await.expect(202);
    let call = Call::new("GET", "/agents/writer/tasks/t1/events").key(ALICE);
    let received = events(&world.open(&call).await.end().await);
    let ends: Vec<&Value> =
        received.iter().filter(|(name, _, _)| name == "end").map(|(_, _, data)| data).collect();
    assert!(ends.len() == 1 && ends[0]["taskId"] == "t1", "{received:?}");
    assert!(received.iter().all(|(_, id, data)| id.as_deref() != Some("9-9") && data["forged"].is_null()));
    // An export has one object in each line.
    let export = world.get(ALICE, "/principals/alice/data").await;
    assert!(export.text.contains("event: end"));
    for line in export.text.lines() {
        let record: Value = serde_json::from_str(line).unwrap();
        assert!(record["task"]["forged"].is_null(), "{line}");
    }
    world.stop().await;
}
