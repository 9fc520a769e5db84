//! Refusals of the framework, versions and limits.

use std::sync::Arc;

use duologue_rpc::Lock as _;
use duologue_store::{
    JsonText, MessageSender, NewInboxMessage, RegisteredAgent, RegistrySource, StoreChange, StoreSettings,
};
use futures_util::future::join_all;
use serde_json::json;

use crate::faulty_store::{Faults, FaultyStore};
use crate::remote_agents::until;
use crate::rest::hosted::writer;
use crate::rest::world::{ADMIN, ALICE, BOB, Call, OpenResponse, REMOTE, RestWorld};

#[tokio::test]
async fn every_refusal_has_one_form() {
    let world = RestWorld::with_remote("[limits]\nbody_bytes = 1000").await;
    world.get(ADMIN, "/nothing").await.refused(404, "not_found");
    world.get(ADMIN, "/agents/").await.refused(404, "not_found");
    let wrong = world.delete(ADMIN, "/agents").await;
    wrong.refused(405, "method_not_allowed");
    assert!(wrong.header("allow").unwrap().contains("get"), "{wrong:?}");
    world.delete(ADMIN, "/health").await.refused(405, "method_not_allowed");
    world.get(ADMIN, "/agents/%ff").await.refused(400, "invalid_parameter");
    for query in ["limit=0", "limit=1001", "limit=x", "limit=1&limit=1", "odd=1", "status=odd", "offset=-1"] {
        world.get(ADMIN, &format!("/agents?{query}")).await.refused(400, "invalid_parameter");
    }
    let tasks = "/agents/remote/tasks";
    world.post(ADMIN, tasks, "{").await.refused(400, "invalid_parameter");
    world.post(ADMIN, tasks, r#"{"task": {"type": "a"}} x"#).await.refused(400, "invalid_parameter");
    let twice = r#"{"task": {"type": "a"}, "task": {"type": "b"}}"#;
    world.post(ADMIN, tasks, twice).await.refused(400, "invalid_parameter");
    let deep =
        format!(r#"{{"task": {{"type": "a", "parameters": {}1{}}}}}"#, "[".repeat(400), "]".repeat(400));
    world.post(ADMIN, tasks, deep).await.refused(400, "invalid_parameter");
    let text = Call::new("POST", tasks).key(ADMIN).raw("text/plain", "{}");
    world.send(&text).await.refused(415, "unsupported_media_type");
    let long = json!({"task": {"type": "a", "parameters": "b".repeat(1000)}});
    world.post(ADMIN, tasks, &long).await.refused(413, "too_large");
    let chunked = Call::new("POST", tasks).key(ADMIN).header("origin", "https://evil.example");
    world.send(&chunked.json("{}")).await.refused(403, "not_authorized");
    world.stop().await;
}

#[tokio::test]
async fn the_version_of_the_interface_is_checked() {
    let world = RestWorld::start("").await;
    let call = |version: &str| Call::new("GET", "/agents").key(ALICE).header("x-acp-version", version);
    for version in ["1", "1.0", "1.17"] {
        world.send(&call(version)).await.expect(200);
    }
    for version in ["2.0", "1.", "1.x", "0.9", "11"] {
        let why = world.send(&call(version)).await.refused(400, "unsupported_version");
        assert!(why.contains("1.x"), "{why}");
    }
    world.stop().await;
}

#[tokio::test]
async fn limits_are_those_of_the_configuration() {
    let world = RestWorld::with_remote("[limits]\nrequests_per_minute = 20\nopen_requests = 1").await;
    let tasks = "/agents/remote/tasks";
    world.post(ALICE, tasks, json!({"taskId": "t1", "task": {"type": "write"}})).await.expect(202);
    let call = Call::new("GET", &format!("{tasks}/t1/events")).key(ALICE);
    let mut stream = world.open(&call).await;
    stream.until("pending").await;
    let refused = world.send(&call).await.refused(429, "overloaded");
    assert!(refused.contains("limits.open_requests"), "{refused}");
    drop(stream);

    let mut last = None;
    for _ in 0..40 {
        // The place of the stream may be taken still.
        let response = world.get(ALICE, "/agents/remote").await;
        if response.status == 429 {
            last = Some(response);
            break;
        }
    }
    let last = last.expect("a refusal within 40 requests");
    assert!(last.refused(429, "overloaded").contains("limits.requests_per_minute"));
    assert!(last.header("retry-after").unwrap().parse::<u64>().unwrap() >= 1);
    world.get(BOB, "/agents/remote").await.expect(200);
    world.stop().await;
}

/// Each principal has its own streams.
#[tokio::test]
async fn the_streams_of_a_principal_are_limited() {
    let world = RestWorld::with_remote("limits.principal_requests = 1").await;
    let tasks = "/agents/remote/tasks";
    for key in [ALICE, BOB] {
        world.post(key, tasks, json!({"taskId": "t1", "task": {"type": "write"}})).await.expect(202);
    }
    let call = |key| Call::new("GET", &format!("{tasks}/t1/events")).key(key);
    let mut streams = [world.open(&call(ALICE)).await, world.open(&call(BOB)).await];
    for stream in &mut streams {
        stream.until("pending").await;
    }
    let refused = world.send(&call(ALICE)).await.refused(429, "overloaded");
    assert!(refused.contains("limits.principal_requests"), "{refused}");
    drop(streams);
    world.stop().await;
}

/// A principal makes room by itself, and the disk has room for that.
#[tokio::test]
async fn the_bytes_of_a_principal_are_limited() {
    let world = RestWorld::with_remote("limits.principal_stored_bytes = 1000").await;
    let message = |id: &str, text: usize| json!({"messageId": id, "message": {"type": "notify", "content": "x".repeat(text)}});
    let messages = "/agents/remote/messages";
    world.post(ALICE, messages, message("m1", 10)).await.expect(202);
    let refused = world.post(ALICE, messages, message("m2", 1000)).await.refused(429, "overloaded");
    assert!(refused.contains("limits.principal_stored_bytes"), "{refused}");
    world.post(BOB, messages, message("m1", 10)).await.expect(202);
    let tasks = "/agents/remote/tasks";
    let task = |id: &str| json!({"taskId": id, "task": {"type": "a", "parameters": "x".repeat(200)}});
    world.post(ALICE, tasks, task("t1")).await.expect(202);
    world.post(ALICE, tasks, task("t2")).await.refused(429, "overloaded");
    world.post(ALICE, &format!("{tasks}/t1/cancel"), json!({})).await.expect(200);
    let data = "/principals/alice/data?endedSecondsAgo";
    let removed = async |seconds| world.delete(ALICE, &format!("{data}={seconds}")).await.expect(200);
    assert_eq!(removed(3600).await["removed"], 0);
    assert_eq!(removed(0).await["removed"], 1);
    world.delete(BOB, &format!("{data}=0")).await.refused(404, "not_found");
    world.post(ALICE, tasks, task("t2")).await.expect(202);
    world.get(ALICE, "/agents/remote/messages/m1").await.expect(200);
    world.stop().await;
}

#[tokio::test]
async fn a_disk_with_little_room_takes_no_new_work() {
    let more = format!("limits.reserved_disk_bytes = 9_000_000_000_000_000_000\n{}", writer());
    let world = RestWorld::start(&more).await;
    let task = json!({"taskId": "t1", "task": {"type": "a"}});
    let refused = world.post(ALICE, "/agents/writer/tasks", task).await.refused(429, "overloaded");
    assert!(refused.contains("limits.reserved_disk_bytes"), "{refused}");
    world.delete(ALICE, "/principals/alice/data").await.expect(200);
    world.stop().await;
}

/// The text of a content of so many bytes.
fn long_text(bytes: usize) -> JsonText {
    JsonText::of(&"x".repeat(bytes)).unwrap()
}

/// Sends messages of 1 MB to the agent `remote`.
async fn send_long(world: &RestWorld, count: usize) {
    for number in 0..count {
        let content = json!({"type": "notify", "content": "x".repeat(1_000_000)});
        let message = json!({"messageId": format!("m{number}"), "message": content});
        world.post(ALICE, "/agents/remote/messages", message).await.expect(202);
    }
}

#[tokio::test]
async fn a_page_ends_before_its_bytes() {
    let world = RestWorld::with_remote("limits.body_bytes = 2000000").await;
    send_long(&world, 6).await;
    let messages = "/agents/remote/messages";
    for (offset, count) in [(0, 4), (4, 2), (6, 0)] {
        let page = world.get(ALICE, &format!("{messages}?offset={offset}&limit=100")).await.expect(200);
        let pagination = json!({"offset": offset, "limit": 100, "total": 6});
        assert_eq!((page["messages"].as_array().unwrap().len(), &page["pagination"]), (count, &pagination));
    }
    for number in 0..3 {
        let id = format!("large-{number}");
        let mut agent = RegisteredAgent::new(id, "alice", RegistrySource::Rest, "https://example.com");
        agent.card =
            JsonText::of(&json!({"description": "x".repeat(StoreSettings::default().page_bytes / 2)}))
                .unwrap();
        world.apply(StoreChange::PutAgent(agent)).await;
    }
    let page = world.get(ADMIN, "/registry/agents?limit=100").await.expect(200);
    assert_eq!((page["agents"].as_array().unwrap().len(), &page["pagination"]["total"]), (1, &json!(4)));
    world.stop().await;
}

#[tokio::test]
async fn a_page_counts_until_its_response_ends() {
    let world = RestWorld::with_remote("[limits]\nprincipal_requests = 1\nbody_bytes = 2000000").await;
    send_long(&world, 4).await;
    let call = || Call::new("GET", "/agents/remote/messages").key(ALICE);
    let mut unread = world.open_narrow(&call()).await;
    unread.until("HTTP/1.1 200").await;
    let refused = world.send(&call()).await.refused(429, "overloaded");
    assert!(refused.contains("limits.principal_requests"), "{refused}");
    drop(unread);
    until(async || (world.send(&call()).await.status == 200).then_some(())).await;
    world.stop().await;
}

/// A page that nobody reads keeps the room of its principal, and the next page waits for it.
#[tokio::test]
async fn the_pages_of_a_principal_have_bounded_bytes() {
    let world = RestWorld::with_remote("[limits]\nprincipal_response_bytes = 1\nbody_bytes = 2000000").await;
    send_long(&world, 4).await;
    let (messages, tasks) = ("/agents/remote/messages", "/agents/remote/tasks");
    let mut unread = world.open_narrow(&Call::new("GET", messages).key(ALICE)).await;
    unread.until("HTTP/1.1 200").await;
    let waiting = world.open(&Call::new("GET", tasks).key(ALICE)).await;
    for _ in 0..20 {
        world.get(BOB, tasks).await.expect(200);
    }
    assert!(waiting.is_silent(), "the page has not waited");
    drop(unread);
    assert!(waiting.end().await.starts_with("HTTP/1.1 200"));
    world.get(ALICE, &format!("{messages}/m0")).await.expect(200);
    world.stop().await;
}

/// A response that nobody reads takes the room, and the requests that wait for it end.
#[tokio::test]
async fn a_request_waits_for_room_for_a_limited_time() {
    let limits = "[limits]\nprincipal_response_bytes = 1\nsync_seconds = 1\nbody_bytes = 2000000";
    let world = RestWorld::with_remote(limits).await;
    send_long(&world, 4).await;
    let messages = "/agents/remote/messages";
    let mut unread = world.open_narrow(&Call::new("GET", messages).key(REMOTE)).await;
    unread.until("HTTP/1.1 200").await;
    let calls = [
        ("GET", messages.to_owned()),
        ("GET", format!("{messages}/m0?sender=alice")),
        ("GET", "/principals/remote-owner/data".to_owned()),
        ("POST", format!("{messages}/claim")),
        ("POST", format!("{messages}/claim?wait=1&max=2")),
    ];
    let calls = calls.map(|(method, path)| Call::new(method, &path).key(REMOTE));
    for answer in join_all(calls.iter().map(|call| world.send(call))).await {
        let why = answer.refused(429, "overloaded");
        assert!(why.contains("limits.principal_response_bytes"), "{why}");
    }
    drop(unread);
    let claimed = world.post_empty(REMOTE, &format!("{messages}/claim?wait=1")).await.expect(200);
    assert_eq!(claimed["messages"][0]["messageId"], "m0", "a refused claim takes nothing");
    world.stop().await;
}

/// A stop answers a request that waits for room.
#[tokio::test]
async fn a_request_that_waits_for_room_ends_with_the_server() {
    let limits = "[limits]\nprincipal_response_bytes = 1\nprincipal_requests = 2\nbody_bytes = 2000000";
    let messages = "/agents/remote/messages";
    for (method, path) in [("GET", messages.to_owned()), ("POST", format!("{messages}/claim?wait=30"))] {
        let world = RestWorld::with_remote(limits).await;
        send_long(&world, 4).await;
        let mut unread = world.open_narrow(&Call::new("GET", messages).key(REMOTE)).await;
        unread.until("HTTP/1.1 200").await;
        // One place is left: after a refusal, a request waits.
        let call = Call::new(method, &path).key(REMOTE);
        let (mut first, mut second) = (world.open(&call).await, world.open(&call).await);
        let refused = "HTTP/1.1 429";
        let is_first = tokio::select! {
            _ = first.until(refused) => true,
            _ = second.until(refused) => false,
        };
        world.stop().await;
        let answer = if is_first { second } else { first }.end().await;
        assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("unreachable"), "{path}: {answer}");
    }
}

/// Begins an export of 30 MB that nobody reads. Other requests of its principal are answered.
async fn unread_export(world: &RestWorld) -> OpenResponse {
    for number in 0..100 {
        let sender = MessageSender::new("alice", "alice");
        let message = NewInboxMessage::new("remote", format!("m{number}"), sender, long_text(300_000));
        world.apply(StoreChange::Enqueue(message)).await;
    }
    let mut unread = world.open_narrow(&Call::new("GET", "/principals/alice/data").key(ALICE)).await;
    unread.until("\"message\"").await;
    world.get(ALICE, "/agents").await.expect(200);
    unread
}

/// An export that nobody reads leaves room for other responses of its principal.
#[tokio::test]
async fn an_export_has_the_room_of_its_parts() {
    let world =
        RestWorld::with_remote("[limits]\nprincipal_response_bytes = 10000000\nsync_seconds = 1").await;
    let unread = unread_export(&world).await;
    let whole = unread.end().await;
    assert_eq!(whole.matches("{\"message\":").count(), 100);
    world.stop().await;
}

/// Each principal has one list in the store at once, also if its client has left. The lists of others pass.
#[tokio::test]
async fn a_principal_has_one_list_in_the_store() {
    let faults = Arc::new(Faults::default());
    let store = Arc::new(FaultyStore::new(faults.clone()));
    let world = RestWorld::start_with("", |settings| settings.backend = Some(store)).await;
    world.put(REMOTE, "/registry/agents/remote", "{}").await.expect(201);
    let messages = "/agents/remote/messages";
    let begun = async |expected: &[&str]| {
        let found = || faults.begun.lock_unpoisoned().iter().flatten().cloned().collect::<Vec<_>>();
        until(async || (found().len() >= expected.len()).then_some(())).await;
        assert_eq!(found(), expected);
    };
    let held = faults.lists.lock().await;
    let left = world.open(&Call::new("GET", messages).key(BOB)).await;
    begun(&["bob"]).await;
    drop(left);
    let waiting = world.open(&Call::new("GET", messages).key(BOB)).await;
    // Single records and changes do not wait, neither those of the principal nor those of others.
    for key in [BOB, ALICE] {
        let message = json!({"messageId": "m1", "message": {"type": "notify", "content": "a"}});
        world.post(key, messages, message).await.expect(202);
        world.get(key, &format!("{messages}/m1")).await.expect(200);
    }
    let other = world.open(&Call::new("GET", messages).key(ALICE)).await;
    begun(&["bob", "alice"]).await;
    assert!(waiting.is_silent() && other.is_silent());
    drop(held);
    for list in [waiting, other] {
        assert!(list.end().await.starts_with("HTTP/1.1 200"));
    }
    begun(&["bob", "alice", "bob"]).await;
    world.stop().await;
}

/// The sessions of a principal, and the choice of an agent by its abilities, are lists too.
#[tokio::test]
async fn all_that_reads_lists_waits_for_the_turn_of_its_principal() {
    let faults = Arc::new(Faults::default());
    let store = Arc::new(FaultyStore::new(faults.clone()));
    let world = RestWorld::start_with("", |settings| settings.backend = Some(store)).await;
    world.put(REMOTE, "/registry/agents/remote", r#"{"capabilities": ["translate"]}"#).await.expect(201);
    let held = faults.lists.lock().await;
    let list = world.open(&Call::new("GET", "/agents/remote/messages").key(BOB)).await;
    until(async || (!faults.begun.lock_unpoisoned().is_empty()).then_some(())).await;
    let calls = |key| {
        let chosen = "/agents/agent%3A%2F%2F*%3Fcapability=translate/messages";
        let message = json!({"message": {"type": "notify", "content": "a"}});
        [Call::new("GET", "/sessions").key(key), Call::new("POST", chosen).key(key).json(message)]
    };
    let [sessions, chosen] = calls(BOB);
    let waiting = [world.open(&sessions).await, world.open(&chosen).await];
    for call in calls(ALICE) {
        let response = world.send(&call).await;
        assert!([200, 202].contains(&response.status), "{response:?}");
    }
    assert!(list.is_silent() && waiting.iter().all(OpenResponse::is_silent));
    drop(held);
    for answer in waiting.into_iter().chain([list]) {
        assert!(answer.end().await.starts_with("HTTP/1.1 20"));
    }
    world.stop().await;
}

/// A WebSocket is a connection of its principal until it ends, and so is a stream.
#[tokio::test]
async fn the_connections_of_a_principal_are_limited() {
    let world = RestWorld::with_remote("limits.principal_connections = 1").await;
    let tasks = "/agents/remote/tasks";
    until(async || {
        let task = json!({"taskId": "t1", "task": {"type": "write"}});
        (world.post(ALICE, tasks, task).await.status < 300).then_some(())
    })
    .await;
    let stream = Call::new("GET", &format!("{tasks}/t1/events")).key(ALICE);
    let socket = Call::new("GET", "/attach")
        .key(REMOTE)
        .header("connection", "upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-version", "13")
        .header("sec-websocket-key", "AAAAAAAAAAAAAAAAAAAAAA==");
    for (key, call, status) in [(ALICE, stream, "200"), (REMOTE, socket, "101")] {
        // The connection of the last response may be there still.
        let open = until(async || {
            let mut open = world.open(&call).await;
            let answer = open.until("\r\n").await;
            answer.starts_with(&format!("HTTP/1.1 {status}")).then_some(open)
        })
        .await;
        let refused = world.get(key, "/agents/remote").await.refused(429, "overloaded");
        assert!(refused.contains("limits.principal_connections"), "{refused}");
        until(async || (world.get(BOB, "/agents/remote").await.status == 200).then_some(())).await;
        assert_eq!(world.get("", "/ready").await.text, "ready");
        drop(open);
        until(async || (world.get(key, "/agents/remote").await.status != 429).then_some(())).await;
    }
    world.stop().await;
}

/// One thread reads the store, so an export that keeps it would stop everything.
#[test]
fn an_export_that_nobody_reads_stops_nothing_else() {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().max_blocking_threads(1).build().unwrap();
    runtime.block_on(async {
        let world = RestWorld::with_remote("").await;
        let unread = unread_export(&world).await;
        assert_eq!(world.get("", "/ready").await.text, "ready");
        assert_eq!(world.gateway.drain(std::time::Duration::from_secs(1)).await, 0);
        world.stop().await;
        drop(unread);
    });
}
