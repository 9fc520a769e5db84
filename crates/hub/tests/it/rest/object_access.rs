//! Attacks on what belongs to another principal: keys of requests, cursors, leases, folders, and addresses that the server
//! would reach.

use std::time::Duration;

use axum::http::StatusCode;
use axum::response::IntoResponse as _;
use duologue_client::{Client, SessionBuilder};
use duologue_http::{ConnectOptions, connect};
use duologue_schema::McpServerStdio;
use duologue_store::{OutboxEntry, OutboxQuery, OutboxState};
use duologue_test_support::in_time;
use serde_json::{Value, json};

use crate::receiver::{Receiver, accept};
use crate::remote_agents::{Program, ended_task};
use crate::rest::hosted::writer;
use crate::rest::world::{ADMIN, ALICE, BOB, Call, REMOTE, RestWorld, STRANGER, events};

const MESSAGES: &str = "/agents/remote/messages";
const TASKS: &str = "/agents/remote/tasks";

fn task(id: &str) -> Value {
    json!({"taskId": id, "task": {"type": "a", "parameters": {"prompt": "plan"}}})
}

#[tokio::test]
async fn the_key_of_a_request_is_of_one_principal_and_one_request() {
    let world = RestWorld::with_remote("").await;
    let send = async |key: &str, path: &str, body: &Value| {
        let call = Call::new("POST", path).key(key).json(body).header("idempotency-key", "shared");
        world.send(&call).await
    };
    let secret = json!({"message": {"type": "notify", "content": "a"}});
    let first = send(ALICE, MESSAGES, &secret).await;
    let id = first.expect(202)["messageId"].clone();
    // The same bytes of another principal are another request, which has a response of its own.
    let other = send(BOB, MESSAGES, &secret).await.expect(202);
    assert_ne!(other["messageId"], id);
    world.get(BOB, &format!("{MESSAGES}/{}", id.as_str().unwrap())).await.refused(404, "not_found");
    assert_eq!(send(ALICE, MESSAGES, &secret).await.text, first.text);
    // Another target, and another content, are not the same request.
    send(ALICE, "/agents/absent/messages", &secret).await.refused(404, "not_found");
    let query = format!("{MESSAGES}?priority=high");
    send(ALICE, &query, &secret).await.refused(422, "key_reused");
    send(ALICE, MESSAGES, &json!({"message": {"type": "notify", "content": "b"}}))
        .await
        .refused(422, "key_reused");
    // Another operation has keys of its own.
    send(ALICE, TASKS, &task("t1")).await.expect(202);
    // Two keys could be read in two ways.
    let twice = Call::new("POST", MESSAGES).key(ALICE).json(&secret).header("idempotency-key", "shared");
    world.send(&twice.header("Idempotency-Key", "other")).await.refused(400, "invalid_parameter");
    // A principal that has no right to the agent does not get the response of one who has.
    send(STRANGER, MESSAGES, &secret).await.refused(404, "not_found");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_cursor_of_another_principal_shows_nothing() {
    let world = RestWorld::start(&writer()).await;
    let tasks = "/agents/writer/tasks";
    let stream = |key: &str, id: &str, last: &str| {
        let call = Call::new("GET", &format!("{tasks}/{id}/events")).key(key);
        if last.is_empty() { call } else { call.header("last-event-id", last) }
    };
    // Both use the same id for their tasks.
    let mut cursors = Vec::new();
    for (key, text) in [(ALICE, "alice-words plan"), (BOB, "bob-words plan")] {
        let task = json!({"taskId": "t1", "task": {"type": text, "parameters": {"prompt": text}}});
        world.post(key, tasks, &task).await.expect(202);
        let received = events(&world.open(&stream(key, "t1", "")).await.end().await);
        cursors.push(received.iter().find_map(|(_, id, _)| id.clone()).expect("an id"));
    }
    let received = world.open(&stream(BOB, "t1", &cursors[0])).await.end().await;
    assert!(received.contains("bob-words") && !received.contains("alice"), "{received}");
    let session = world.get(ALICE, &format!("{tasks}/t1")).await.expect(200)["sessionId"].clone();
    let log = format!("/sessions/{}/log", session.as_str().unwrap());
    for last in ["0", "1", "9"] {
        let call = Call::new("GET", &log).key(BOB).header("accept", "text/event-stream");
        world.send(&call.header("last-event-id", last)).await.refused(404, "not_found");
        world.get(BOB, &format!("{log}?after={last}")).await.refused(404, "not_found");
    }
    for last in ["", "0-0-0", "1-1-1"] {
        world.send(&stream(STRANGER, "t1", last)).await.refused(404, "not_found");
    }
    // Filters by the values of another principal find nothing of it.
    let message =
        json!({"messageId": "m1", "correlationId": "c-1", "message": {"type": "notify", "content": "a"}});
    world.post(ALICE, "/agents/writer/messages", &message).await.expect(202);
    for query in ["correlationId=c-1", "sender=alice", "sender=alice&correlationId=c-1"] {
        let found = world.get(BOB, &format!("/agents/writer/messages?{query}")).await.expect(200);
        assert_eq!(found["pagination"]["total"], 0, "{query}");
    }
    world.stop().await;
}

#[tokio::test]
async fn a_lease_of_another_agent_ends_nothing() {
    let world = RestWorld::with_remote("").await;
    world.put(ADMIN, "/registry/agents/absent", "{}").await.expect(201);
    let message = json!({"messageId": "m1", "message": {"type": "a", "content": "a"}});
    for agent in ["remote", "absent"] {
        world.post(ALICE, &format!("/agents/{agent}/messages"), &message).await.expect(202);
    }
    let claimed = world.post_empty(ADMIN, "/agents/absent/messages/claim").await.expect(200);
    let lease = claimed["messages"][0]["lease"].as_str().unwrap();
    world.post_empty(REMOTE, &format!("{MESSAGES}/claim")).await.expect(200);
    let body = json!({"lease": lease, "response": {"type": "forged", "content": "a"}, "error": "forged"});
    for verb in ["ack", "nack"] {
        world.post(REMOTE, &format!("{MESSAGES}/m1/{verb}"), &body).await.refused(409, "conflict");
        world
            .post(REMOTE, &format!("/agents/absent/messages/m1/{verb}"), &body)
            .await
            .refused(404, "not_found");
        world
            .post(ALICE, &format!("/agents/absent/messages/m1/{verb}"), &body)
            .await
            .refused(404, "not_found");
    }
    // A lease with another number.
    let (name, _) = lease.rsplit_once('-').expect("a number");
    for forged in
        [format!("{name}-0000000000000000"), format!("{name}-ffffffffffffffff"), name.to_owned(), "*".into()]
    {
        let body = json!({"lease": forged});
        world.post(ADMIN, "/agents/absent/messages/m1/ack", &body).await.refused(409, "conflict");
    }
    world.post(ADMIN, "/agents/absent/messages/m1/ack", json!({"lease": lease})).await.expect(200);
    world.stop().await;
}

#[tokio::test]
async fn an_agent_does_not_decide_for_the_owner_of_a_task() {
    let world = RestWorld::with_remote("").await;
    world.post(ALICE, TASKS, task("t1")).await.expect(202);
    world.get(REMOTE, &format!("{TASKS}/t1?owner=alice")).await.expect(200);
    let path = format!("{TASKS}/t1");
    world.post_empty(REMOTE, &format!("{path}/cancel?owner=alice")).await.refused(403, "not_authorized");
    let answer = json!({"answer": {"optionId": "allow-once"}});
    world.post(REMOTE, &format!("{path}/input?owner=alice"), &answer).await.refused(403, "not_authorized");
    world.post(REMOTE, TASKS, task("t2")).await.refused(404, "not_found");
    for owner in ["bob", "", "%2a", "alice%00", "ALICE", "alice%20"] {
        world.get(REMOTE, &format!("{path}?owner={owner}")).await.refused(404, "not_found");
    }
    assert_eq!(world.get(ALICE, &path).await.expect(200)["status"], "pending");
    world.stop().await;
}

/// Opens a session over ACP, and returns the error.
async fn refused_session(
    world: &RestWorld,
    cwd: &str,
    change: impl FnOnce(SessionBuilder) -> SessionBuilder,
) -> String {
    let mut options = ConnectOptions::default();
    options.bearer_token = Some(ALICE.into());
    let (transport, _link) = connect(&format!("ws://{}/acp/writer", world.address), options).await.unwrap();
    let connection = Client::new(()).connect(transport).await.unwrap();
    change(connection.session_in(cwd)).create().await.expect_err(cwd).to_string()
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_has_no_folder_and_no_program_outside() {
    let [allowed, outside] = std::array::from_fn(|_| tempfile::tempdir().unwrap());
    std::os::unix::fs::symlink(outside.path(), allowed.path().join("link")).unwrap();
    let root = allowed.path().to_str().unwrap();
    let world = RestWorld::start(&format!("{}roots = [{root:?}]", writer())).await;
    let in_root = |path: &str| format!("{root}/{path}");
    for cwd in
        ["/", "/etc", outside.path().to_str().unwrap(), &in_root(".."), &in_root("link"), &in_root("none")]
    {
        let why = in_time(refused_session(&world, cwd, |session| session)).await;
        assert!(why.contains("outside the folders"), "{cwd}: {why}");
        let why = in_time(refused_session(&world, root, |session| session.additional_directory(cwd))).await;
        assert!(why.contains("outside the folders") || why.contains("additionalDirectories"), "{cwd}: {why}");
    }
    let server = || McpServerStdio::new("x", "/bin/sh");
    let why = in_time(refused_session(&world, root, |session| session.mcp_server(server()))).await;
    assert!(why.contains("is a program"), "{why}");

    // A task has neither, whatever its parameters are.
    let parameters = json!({
        "prompt": "plan", "cwd": "/etc", "additionalDirectories": ["/"],
        "mcpServers": [{"name": "x", "command": "/bin/sh", "args": ["-c", "true"], "env": []}],
    });
    let body = json!({"taskId": "t1", "task": {"type": "a", "parameters": parameters}});
    world.post(ALICE, "/agents/writer/tasks", &body).await.expect(202);
    let ended = ended_task(&world, ALICE, "/agents/writer/tasks/t1").await;
    let session = ended["sessionId"].as_str().expect("a session");
    let opened = world.get(ALICE, &format!("/sessions/{session}")).await.expect(200);
    let cwd = opened["cwd"].as_str().unwrap();
    assert!(!cwd.starts_with("/etc") && cwd.ends_with("/work"), "{cwd}");
    world.stop().await;
}

/// Waits until all posts of the gateway are as they should be, and returns them.
async fn posts(
    world: &RestWorld,
    count: usize,
    is_wanted: impl Fn(&OutboxEntry) -> bool,
) -> Vec<OutboxEntry> {
    in_time(async {
        loop {
            let store = world.gateway.store().clone();
            let read = move || store.deliveries(&OutboxQuery::default()).unwrap().items;
            let found = tokio::task::spawn_blocking(read).await.unwrap();
            if found.len() >= count && found.iter().all(&is_wanted) {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_callback_reaches_no_internal_address() {
    let internal = Receiver::start(accept).await;
    let port = internal.address.port();
    let world = RestWorld::start(&writer()).await;
    let addresses = [
        format!("http://127.0.0.1:{port}/"),
        format!("http://[::ffff:127.0.0.1]:{port}/"),
        format!("http://[::ffff:7f00:1]:{port}/"),
        format!("http://[::127.0.0.1]:{port}/"),
        format!("http://[64:ff9b::7f00:1]:{port}/"),
        format!("http://[::1]:{port}/"),
        format!("http://0.0.0.0:{port}/"),
        format!("http://127.1:{port}/"),
        format!("http://2130706433:{port}/"),
        format!("http://0x7f000001:{port}/"),
        format!("http://0177.0.0.1:{port}/"),
        format!("http://127.0.0.1.:{port}/"),
        "http://169.254.169.254/latest/meta-data/".to_owned(),
        "http://10.0.0.1:22/".to_owned(),
    ];
    for address in &addresses {
        for member in ["callback", "streamEndpoint"] {
            let mut task = task("t1");
            task[member] = json!(address);
            let refused = world.post(ALICE, "/agents/writer/tasks", &task).await;
            assert!(refused.refused(400, "invalid_parameter").starts_with(member), "{address}");
        }
    }
    // The address of a name is known when the post is sent.
    let mut task = task("t1");
    let address = format!("http://localhost:{port}/");
    (task["callback"], task["streamEndpoint"]) = (json!(address), json!(address));
    world.post(ALICE, "/agents/writer/tasks", &task).await.expect(202);
    ended_task(&world, ALICE, "/agents/writer/tasks/t1").await;
    posts(&world, 1, |post| post.state == OutboxState::GivenUp).await;
    assert!(internal.received().is_empty(), "{:?}", internal.received());
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_callback_does_not_follow_and_comes_once() {
    let internal = Receiver::start(accept).await;
    let location = internal.url("/internal");
    let receiver = Receiver::start(move |_, received| match received.path.as_str() {
        "/redirect" => (StatusCode::PERMANENT_REDIRECT, [("location", location.clone())]).into_response(),
        _ => StatusCode::NO_CONTENT.into_response(),
    })
    .await;
    let world = RestWorld::start(&format!("loopback_callbacks = true\n{}", writer())).await;
    for (id, path) in [("t1", "/redirect"), ("t2", "/done")] {
        let mut task = task(id);
        task["callback"] = json!(receiver.url(path));
        // The same task again has the same end, and another callback is another task.
        for status in [202, 200, 200] {
            world.post(ALICE, "/agents/writer/tasks", &task).await.expect(status);
        }
        let mut other = task.clone();
        other["callback"] = json!(internal.url("/other"));
        world.post(ALICE, "/agents/writer/tasks", &other).await.refused(409, "conflict");
        ended_task(&world, ALICE, &format!("/agents/writer/tasks/{id}")).await;
        world.post(ALICE, "/agents/writer/tasks", &task).await.expect(200);
    }
    // The receiver may answer in another way later, so the post is sent to the same address again.
    let is_sent = |post: &OutboxEntry| post.state == OutboxState::Delivered || post.attempts >= 3;
    let sent = posts(&world, 2, is_sent).await;
    assert_eq!(sent.iter().filter(|post| post.state == OutboxState::Delivered).count(), 1, "{sent:?}");
    let done = receiver.received().into_iter().filter(|post| post.path == "/done").count();
    assert_eq!((done, internal.received().len()), (1, 0));
    world.stop().await;
}

#[tokio::test]
async fn a_registered_address_is_never_dialled() {
    let receiver = Receiver::start(accept).await;
    let world = RestWorld::start("loopback_callbacks = true\n[limits]\nsync_seconds = 1").await;
    let entry =
        json!({"endpoint": receiver.url("/agent"), "metadata": {"contact": receiver.url("/contact")}});
    world.put(REMOTE, "/registry/agents/remote", &entry).await.expect(201);
    world.post(ALICE, TASKS, task("t1")).await.expect(202);
    let message = json!({"mode": "sync", "message": {"type": "query", "content": "hello"}});
    world.post(ALICE, MESSAGES, &message).await.expect(202);
    world.post_empty(REMOTE, "/registry/agents/remote/heartbeat").await.expect(200);
    world.get(ALICE, "/agents/remote/capabilities").await.expect(200);
    assert!(receiver.received().is_empty());
    for endpoint in ["file:///etc/passwd", "javascript:alert(1)", "http://u:p@a/", "/acp/writer", "ws://a/"] {
        let entry = json!({"endpoint": endpoint});
        world.put(REMOTE, "/registry/agents/remote", &entry).await.refused(400, "invalid_parameter");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_of_the_configuration_cannot_be_taken_over() {
    let world = RestWorld::start(&writer()).await;
    // Not even by an administrator, who would act in the name of the agent.
    for (key, status) in [(ADMIN, 409), (ALICE, 404), (REMOTE, 404)] {
        for method in ["PUT", "DELETE"] {
            let call = Call::new(method, "/registry/agents/writer").key(key);
            let call = if method == "PUT" { call.json("{}") } else { call };
            assert_eq!(world.send(&call).await.status, status, "{method} of {key}");
        }
        let data = tempfile::tempdir().unwrap();
        let reason = Program::start(&world, key, Some("writer"), data.path(), 0).refused().await;
        assert!(reason.contains(&status.to_string()), "{key}: {reason}");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_sessions_of_a_principal_are_limited() {
    let world =
        RestWorld::start(&format!("limits.principal_sessions = 1\n{}roots = [\"/tmp\"]", writer())).await;
    let connection = async |key: &str| {
        let mut options = ConnectOptions::default();
        options.bearer_token = Some(key.into());
        let (transport, link) =
            connect(&format!("ws://{}/acp/writer", world.address), options).await.unwrap();
        (Client::new(()).connect(transport).await.unwrap(), link)
    };
    let (alice, _alice_link) = connection(ALICE).await;
    let (bob, _bob_link) = connection(BOB).await;
    let session = in_time(alice.session_in("/tmp").create()).await.unwrap();
    let why = in_time(alice.session_in("/tmp").create()).await.expect_err("a limit").to_string();
    assert!(why.contains("1 sessions of yours") && why.contains("limits.principal_sessions"), "{why}");
    world
        .post(ALICE, "/agents/writer/tasks", json!({"taskId": "t1", "task": {"type": "a"}}))
        .await
        .expect(202);
    let error = ended_task(&world, ALICE, "/agents/writer/tasks/t1").await["error"].clone();
    assert_eq!((&error["code"], &error["retryable"]), (&json!("overloaded"), &json!(true)), "{error}");
    in_time(bob.session_in("/tmp").create()).await.unwrap();
    in_time(async { session.close().await }).await.unwrap();
    in_time(alice.session_in("/tmp").create()).await.unwrap();
    world.stop().await;
}
