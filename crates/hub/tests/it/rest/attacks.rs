//! Attacks on the interface: slow and compressed requests, ids of all kinds, and the work of another principal.

use std::time::Duration;

use duologue_test_support::in_time;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::remote_agents::until_true;
use crate::rest::hosted::writer;
use crate::rest::world::{ADMIN, ALICE, BOB, Call, REMOTE, RestResponse, RestWorld};

const MESSAGES: &str = "/agents/remote/messages";
const TASKS: &str = "/agents/remote/tasks";

/// Sends bytes, and reads until the server ends the connection.
pub(crate) async fn raw(world: &RestWorld, sent: &str) -> String {
    let mut socket = TcpStream::connect(world.address).await.unwrap();
    socket.write_all(sent.as_bytes()).await.unwrap();
    let mut received = Vec::new();
    // The end can be a reset.
    let _ = in_time(socket.read_to_end(&mut received)).await;
    String::from_utf8_lossy(&received).into_owned()
}

#[tokio::test]
async fn a_slow_body_ends_at_its_limit() {
    let world = RestWorld::with_remote("[limits]\nbody_seconds = 1").await;
    let head = format!(
        "POST {TASKS} HTTP/1.1\r\nhost: {}\r\nx-api-key: {ALICE}\r\ncontent-type: application/json\r\n\
         content-length: 100\r\nconnection: close\r\n\r\n{{",
        world.address
    );
    let response = raw(&world, &head).await;
    assert!(response.starts_with("HTTP/1.1 504 ") && response.contains("limits.body_seconds"), "{response}");
    world.stop().await;
}

#[tokio::test]
async fn a_slow_head_ends_at_its_limit() {
    let world =
        RestWorld::start_serving("", |_| {}, |options| options.handshake_timeout = Duration::from_secs(1))
            .await;
    assert!(!raw(&world, "GET /health HTTP/1.1\r\nhost: 127").await.contains(" 200 "));
    world.stop().await;
}

#[tokio::test]
async fn compressed_bodies_are_refused() {
    let world = RestWorld::with_remote("").await;
    // An object of JSON in gzip; a bomb would be as short.
    for encoding in ["gzip", "br", "zstd", "gzip, gzip"] {
        for (path, media_type) in [(TASKS, "application/json"), (MESSAGES, "image/png")] {
            let call = Call::new("POST", path).key(ALICE).header("content-encoding", encoding);
            let refused = world.send(&call.raw(media_type, [0x1f, 0x8b, 8, 0])).await;
            assert!(refused.refused(415, "unsupported_media_type").contains("Content-Encoding"));
        }
    }
    let twice = Call::new("POST", MESSAGES).key(ALICE).header("content-encoding", "identity");
    let twice = twice.header("Content-Encoding", "gzip").raw("text/plain", "hello");
    world.send(&twice).await.refused(415, "unsupported_media_type");
    let call = Call::new("POST", MESSAGES).key(ALICE).header("content-encoding", "identity");
    world.send(&call.raw("text/plain", "hello")).await.expect(202);
    world.stop().await;
}

#[tokio::test]
async fn another_name_has_no_other_rate() {
    let world = RestWorld::with_remote("[limits]\nrequests_per_minute = 20").await;
    let mut last = 0;
    for number in 0..40 {
        let message =
            json!({"from": format!("name-{number}"), "message": {"type": "notify", "content": "a"}});
        let address = format!("10.0.0.{number}");
        let call = Call::new("POST", MESSAGES).key(ALICE).json(&message).header("x-forwarded-for", &address);
        last = world.send(&call).await.status;
        if last == 429 {
            break;
        }
        assert_eq!(last, 403, "the name is not its own");
    }
    assert_eq!(last, 429);
    world.stop().await;
}

#[tokio::test]
async fn a_sender_cannot_be_forged_by_other_ways() {
    let world = RestWorld::with_remote("").await;
    for from in ["bob", "remote", "local", "ALICE"] {
        let call =
            Call::new("POST", &format!("{MESSAGES}?from={from}")).key(ALICE).raw("text/plain", "hello");
        world.send(&call).await.refused(403, "not_authorized");
        let task = json!({"from": from, "task": {"type": "a"}});
        world.post(ALICE, TASKS, &task).await.refused(403, "not_authorized");
    }
    world.stop().await;
}

#[tokio::test]
async fn several_keys_are_refused() {
    let world = RestWorld::with_remote("").await;
    // A program in front of the server could have checked another one of several keys.
    let data = || Call::new("GET", "/principals/alice/data").key(ALICE);
    let twice =
        [data().key(BOB), data().key(ALICE), data().header("authorization", &format!("Bearer {BOB}"))];
    for call in twice {
        let why = world.send(&call).await.refused(401, "unauthenticated");
        assert!(why.contains("several keys"), "{why}");
    }
    assert_eq!(world.send(&data().header("authorization", "Basic YTpi")).await.status, 200);
    world.stop().await;
}

/// Ids that mean something to a database, a file system, a header, a terminal or a template.
const ODD_IDS: [&str; 9] = [
    "'; DROP TABLE tasks; --",
    "x' OR '1'='1",
    "../../../etc/passwd",
    "%2e%2e%2f",
    "a/b?c=d#e",
    "*",
    "${jndi:ldap://a}",
    "<script>alert(1)</script>",
    "\u{202e}txt",
];

pub(crate) fn encoded(id: &str) -> String {
    id.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

#[tokio::test]
async fn odd_ids_are_ids_and_nothing_else() {
    let world = RestWorld::with_remote("").await;
    for id in ODD_IDS {
        let task = json!({"taskId": id, "task": {"type": "a"}});
        let created = world.post(ALICE, TASKS, &task).await;
        let location = created.header("location").expect("a place").to_owned();
        created.expect(202);
        assert!(
            location.starts_with("/agents/remote/tasks/") && location.matches('/').count() == 4,
            "{location}"
        );
        let message = json!({"messageId": id, "message": {"type": "notify", "content": "a"}});
        world.post(ALICE, MESSAGES, &message).await.expect(202);
    }
    // Clients remove these from a path, so nobody would find what has them.
    for id in [".", ".."] {
        let task = world.post(ALICE, TASKS, json!({"taskId": id, "task": {"type": "a"}})).await;
        let message = json!({"messageId": id, "message": {"type": "notify", "content": "a"}});
        for refused in [task, world.post(ALICE, MESSAGES, &message).await] {
            let why = refused.refused(400, "invalid_parameter");
            assert!(why.contains("`.` and `..` are no ids"), "{why}");
        }
    }
    let count = ODD_IDS.len();
    for list in [TASKS, MESSAGES] {
        assert_eq!(world.get(ALICE, list).await.expect(200)["pagination"]["total"], count);
        assert_eq!(world.get(BOB, list).await.expect(200)["pagination"]["total"], 0);
    }
    for id in ODD_IDS {
        let found = world.get(ALICE, &format!("{TASKS}/{}", encoded(id))).await.expect(200);
        assert_eq!(found["taskId"], id);
        let found = world.get(ALICE, &format!("{MESSAGES}/{}", encoded(id))).await.expect(200);
        assert_eq!(found["messageId"], id);
        world.get(BOB, &format!("{TASKS}/{}", encoded(id))).await.refused(404, "not_found");
        // As an agent and as a filter it finds nothing.
        world.get(ALICE, &format!("/agents/{}/tasks", encoded(id))).await.refused(404, "not_found");
        world.put(REMOTE, &format!("/registry/agents/{}", encoded(id)), "{}").await.refused(404, "not_found");
        let filtered = world.get(ALICE, &format!("/agents?tag={0}&capability={0}", encoded(id))).await;
        assert_eq!(filtered.expect(200)["pagination"]["total"], 0);
    }
    world.put(ADMIN, "/registry/agents/%2e%2e", "{}").await.refused(400, "invalid_parameter");
    world.stop().await;
}

#[tokio::test]
async fn control_characters_reach_no_header_and_no_id() {
    let world = RestWorld::with_remote("").await;
    let odd = ["a\r\nX-Evil: 1", "a\nb", "a\0b", "\u{1b}[31m", "a\u{7f}", "a\u{85}b"];
    for text in odd {
        for (path, body) in [
            (TASKS, json!({"taskId": text, "task": {"type": "a"}})),
            (TASKS, json!({"task": {"type": text}})),
            (TASKS, json!({"task": {"type": "a"}, "callback": format!("https://example.com/{text}")})),
            (TASKS, json!({"task": {"type": "a"}, "streamEndpoint": format!("https://{text}/")})),
            (MESSAGES, json!({"correlationId": text, "message": {"type": "a", "content": "a"}})),
            (MESSAGES, json!({"group": text, "message": {"type": "a", "content": "a"}})),
        ] {
            world.post(ALICE, path, &body).await.refused(400, "invalid_parameter");
        }
        let found = world.get(ALICE, &format!("{TASKS}/{}", encoded(text))).await;
        found.refused(404, "not_found");
        assert!(found.header("x-evil").is_none());
    }
    world.stop().await;
}

/// Opens a connection of ACP over HTTP, and returns its id.
async fn connect(world: &RestWorld, key: &str) -> String {
    let initialize = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": 1, "clientCapabilities": {}}});
    let opened = world.post(key, "/acp/writer", &initialize).await;
    opened.expect(200);
    opened.header("acp-connection-id").expect("an id").to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_and_sessions_of_another_are_out_of_reach() {
    let world = RestWorld::start(&writer()).await;
    let connection = connect(&world, ALICE).await;
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "session/list", "params": {}});
    let with = |key: &str, method: &str| {
        Call::new(method, "/acp/writer").key(key).header("acp-connection-id", &connection).json(&list)
    };
    let expect_refused = |response: &RestResponse| {
        assert!([403, 404].contains(&response.status), "{response:?}");
    };
    expect_refused(&world.send(&with(BOB, "POST")).await);
    expect_refused(&world.send(&with(BOB, "DELETE")).await);
    let stream = Call::new("GET", "/acp/writer").key(BOB).header("acp-connection-id", &connection);
    expect_refused(&world.send(&stream.header("accept", "text/event-stream")).await);
    // It is still there for its owner.
    let accepted = world.send(&with(ALICE, "POST")).await;
    assert_eq!(accepted.status, 202, "{accepted:?}");

    let task = json!({"taskId": "t1", "task": {"type": "a", "parameters": {"prompt": "plan"}}});
    world.post(ALICE, "/agents/writer/tasks", &task).await.expect(202);
    until_true(async || {
        world.get(ALICE, "/agents/writer/tasks/t1").await.expect(200)["status"] == "completed"
    })
    .await;
    for path in ["t1", "t1/events", "t1/input"] {
        world.get(BOB, &format!("/agents/writer/tasks/{path}")).await.refused(404, "not_found");
        world.get(BOB, &format!("/agents/writer/tasks/{path}?owner=alice")).await.refused(404, "not_found");
    }
    world.post_empty(BOB, "/agents/writer/tasks/t1/cancel?owner=alice").await.refused(404, "not_found");
    let answer: Value = json!({"answer": 1});
    world.post(BOB, "/agents/writer/tasks/t1/input?owner=alice", &answer).await.refused(404, "not_found");
    world.get(BOB, "/agents/writer/messages/m1?sender=alice").await.refused(404, "not_found");
    let filtered = world.get(BOB, "/agents/writer/tasks?owner=alice").await.expect(200);
    assert_eq!(filtered["pagination"]["total"], 0);
    world.stop().await;
}

/// The table of `SECURITY.md`, whose rows name the tests of this program.
#[test]
fn the_listed_attacks_have_tests() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(folder.join("../../SECURITY.md")).unwrap();
    let (_, table) = page.split_once("| attack | test |\n| --- | --- |\n").expect("a table of attacks");
    let mut listed = Vec::new();
    for row in table.lines().take_while(|line| line.starts_with('|')) {
        let name = row.rsplit('`').nth(1).unwrap_or_else(|| panic!("{row} names no test"));
        let (module, function) = name.rsplit_once("::").unwrap();
        let file = folder.join("tests/it").join(module.replace("::", "/")).with_extension("rs");
        let source = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(source.contains(&format!("fn {function}()")), "{name} is not there");
        listed.push(row);
    }
    listed.sort_unstable();
    listed.dedup();
    assert!(listed.len() >= 30, "{} attacks", listed.len());
}
