//! Sessions, and the data of principals.

use std::time::Duration;

use axum::http::StatusCode;
use axum::response::IntoResponse as _;
use serde_json::{Value, json};

use crate::receiver::Receiver;
use crate::remote_agents::{until, until_status};
use crate::rest::endpoints::behind;
use crate::rest::hosted::writer;
use crate::rest::world::{ADMIN, ALICE, BOB, Call, RestWorld};

#[tokio::test]
async fn a_principal_exports_and_erases_its_data() {
    let world = RestWorld::with_remote("").await;
    world
        .post(ALICE, "/agents/remote/tasks", json!({"taskId": "t1", "task": {"type": "a"}}))
        .await
        .expect(202);
    let message = json!({"messageId": "m1", "message": {"type": "notify", "content": "a"}});
    world.post(ALICE, "/agents/remote/messages", &message).await.expect(202);
    let export = world.get(ALICE, "/principals/alice/data").await;
    assert_eq!(export.header("content-type"), Some("application/x-ndjson"));
    assert_eq!(export.header("cache-control"), Some("no-store"));
    let records: Vec<Value> = export.text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let kinds: Vec<_> =
        records.iter().flat_map(|record| record.as_object().unwrap().keys().cloned()).collect();
    assert!(kinds.iter().any(|kind| kind.contains("task")), "{kinds:?}");
    assert!(kinds.iter().any(|kind| kind.contains("message")), "{kinds:?}");

    let foreign = world.get(BOB, "/principals/alice/data").await;
    foreign.refused(404, "not_found");
    assert_eq!(foreign.text, world.get(BOB, "/principals/absent/data").await.text);
    world.delete(BOB, "/principals/alice/data").await.refused(404, "not_found");
    world.get(ADMIN, "/principals/absent/data").await.refused(404, "not_found");
    let erased = world.delete(ADMIN, "/principals/alice/data").await.expect(200);
    assert!(erased["removed"].as_u64() >= Some(2), "{erased}");
    world.get(ALICE, "/agents/remote/tasks/t1").await.refused(404, "not_found");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_agents_of_the_configuration_are_nobody_s_data() {
    let world = RestWorld::start(&writer()).await;
    for (key, id) in [(ALICE, "alice-words"), (ADMIN, "local-words")] {
        let message = json!({"messageId": id, "mode": "sync", "message": {"type": "query", "content": id}});
        world.post(key, "/agents/writer/messages", &message).await.expect(200);
    }
    let export = world.get(ADMIN, "/principals/local/data").await.text;
    assert!(export.contains("local-words") && !export.contains("alice-words"), "{export}");
    world.delete(ADMIN, "/principals/local/data").await.expect(200);
    world.get(ADMIN, "/agents/writer/messages/local-words").await.refused(404, "not_found");
    world.get(ALICE, "/agents/writer/messages/alice-words").await.expect(200);
    assert_eq!(world.get(ALICE, "/agents/writer").await.expect(200)["status"], "online");
    world.put(ADMIN, "/registry/agents/writer", "{}").await.refused(409, "conflict");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_sessions_of_an_agent_that_is_gone_are_exported_and_erased() {
    let world = RestWorld::start(&writer()).await;
    let message = json!({"mode": "sync", "message": {"type": "query", "content": "my words"}});
    world.post(ALICE, "/agents/writer/messages", &message).await.expect(200);
    let world = world.restart_with(|config| config.replace("\"writer\"", "\"other\"")).await;
    let export = world.get(ALICE, "/principals/alice/data").await.text;
    let records = export.lines().filter(|line| line.starts_with("{\"sessionRecord\""));
    assert!(records.into_iter().any(|record| record.contains("my words")), "{export}");
    world.delete(ALICE, "/principals/alice/data").await.expect(200);
    let world = world.restart_with(|config| config.replace("\"other\"", "\"writer\"")).await;
    assert_eq!(world.get(ALICE, "/sessions").await.expect(200)["pagination"]["total"], 0);
    world.stop().await;
}

#[tokio::test]
async fn a_drained_gateway_accepts_no_work() {
    let world = RestWorld::with_remote("").await;
    assert_eq!(world.gateway.drain(Duration::from_secs(1)).await, 0);
    world.get("", "/ready").await.refused(503, "unreachable");
    assert_eq!(world.get("", "/health").await.text, "ok");
    let tasks = "/agents/remote/tasks";
    world.post(ALICE, tasks, json!({"task": {"type": "a"}})).await.refused(503, "unreachable");
    let message = json!({"message": {"type": "a", "content": "a"}});
    world.post(ALICE, "/agents/remote/messages", message).await.refused(503, "unreachable");
    world.get(ALICE, tasks).await.expect(200);
    world.stop().await;
}

/// The agent lets the test erase the work while it opens the session of it, and writes what it reads after that.
#[cfg(unix)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_that_is_erased_while_its_session_opens_reaches_no_agent() {
    const AGENT: &str = r#"
        read -r line; echo '{"jsonrpc":"2.0","id":"hub:initialize","result":{"protocolVersion":1}}'
        read -r line; echo opening >"$1/said"; read -r go <"$1/go"
        echo '{"jsonrpc":"2.0","id":"hub:session/new","result":{"sessionId":"s"}}'
        while read -r line; do read="$read $line"; done
        echo "read:$read" >"$1/said"
    "#;
    let folder = tempfile::tempdir().unwrap();
    let pipe = |name: &str| folder.path().join(name);
    for name in ["said", "go"] {
        assert!(std::process::Command::new("mkfifo").arg(pipe(name)).status().unwrap().success());
    }
    let said = || {
        let path = pipe("said");
        async move { tokio::task::spawn_blocking(|| std::fs::read_to_string(path)).await.unwrap().unwrap() }
    };
    let command = json!(["sh", "-c", AGENT, "sh", folder.path()]);
    let world = RestWorld::start(&format!(
        "[[agents]]\nid = \"writer\"\ntrust = \"shared\"\ncwd = \"work\"\ncommand = {command}\n"
    ))
    .await;
    let message = json!({"message": {"type": "a", "content": "secret"}, "metadata": {"retry": "safe"}});
    let task = json!({"task": {"type": "a", "parameters": {"prompt": "secret"}}});
    for (path, work) in [("messages", message), ("tasks", task)] {
        world.post(ALICE, &format!("/agents/writer/{path}"), &work).await.expect(202);
        assert_eq!(said().await, "opening\n");
        world.delete(ALICE, "/principals/alice/data").await.expect(200);
        std::fs::write(pipe("go"), "\n").unwrap();
        let read = said().await;
        assert!(read.starts_with("read:") && !read.contains("secret"), "{path}: {read}");
        while world.get(ALICE, "/sessions").await.expect(200)["pagination"]["total"] != 0 {
            tokio::task::yield_now().await;
        }
    }
    world.stop().await;
}

/// The agent has a prompt and ends when the test lets it, so its session is being removed when the client leaves.
#[cfg(unix)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_erasure_goes_on_without_its_client() {
    const AGENT: &str = r#"
        read -r line; echo '{"jsonrpc":"2.0","id":"hub:initialize","result":{"protocolVersion":1}}'
        read -r line; echo '{"jsonrpc":"2.0","id":"hub:session/new","result":{"sessionId":"s"}}'
        read -r line; read -r go <"$1"
    "#;
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("go");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let command = json!(["sh", "-c", AGENT, "sh", pipe]);
    let world = RestWorld::start(&format!(
        "[[agents]]\nid = \"writer\"\ntrust = \"shared\"\ncwd = \"work\"\ncommand = {command}\n"
    ))
    .await;
    const TASK: &str = "/agents/writer/tasks/t1";
    let task = json!({"taskId": "t1", "task": {"type": "a", "parameters": {"prompt": "p"}}});
    world.post(ALICE, "/agents/writer/tasks", task).await.expect(202);
    until(async || {
        let found = world.get(ALICE, TASK).await.expect(200);
        Some(()).filter(|()| found["sessionId"].is_string())
    })
    .await;
    let erasing = world.open(&Call::new("DELETE", "/principals/alice/data").key(ALICE)).await;
    until(async || Some(()).filter(|()| !world.gateway.store().erasures().unwrap().is_empty())).await;
    // Another one would end when this one has not.
    let again = world.delete(ALICE, "/principals/alice/data").await.refused(409, "conflict");
    assert!(again.contains("is being erased"), "{again}");
    drop(erasing);
    world.get(ALICE, TASK).await.refused(404, "not_found");
    // A pipe that is open in both directions waits for no reader.
    let mut go = std::fs::File::options().read(true).write(true).open(&pipe).unwrap();
    std::io::Write::write_all(&mut go, b"\n").unwrap();
    until(async || Some(()).filter(|()| world.gateway.store().erasures().unwrap().is_empty())).await;
    assert_eq!(world.get(ALICE, "/sessions").await.expect(200)["pagination"]["total"], 0);
    world.stop().await;
}

/// The agent answers the attempt of a task after the task was erased.
#[tokio::test]
async fn a_task_that_is_given_back_during_its_erasure_is_cancelled() {
    let (go, gate) = std::sync::mpsc::channel::<()>();
    let gate = std::sync::Mutex::new(gate);
    let server = Receiver::start(move |_, call| {
        if call.path.ends_with("/tasks") {
            gate.lock().unwrap().recv().unwrap();
            return StatusCode::SERVICE_UNAVAILABLE.into_response();
        }
        "{}".into_response()
    })
    .await;
    let count = |end: &str| server.received().iter().filter(|call| call.path.ends_with(end)).count();
    let world = RestWorld::start(&behind(server.address, "")).await;
    until_status(&world, "writer", "online").await;
    let task = json!({"taskId": "t1", "task": {"type": "a"}, "metadata": {"retry": "safe"}});
    world.post(ALICE, "/agents/writer/tasks", task).await.expect(202);
    until(async || (count("/tasks") == 1).then_some(())).await;
    world.delete(ALICE, "/principals/alice/data").await.expect(200);
    until(async || (count("/cancel") == 1).then_some(())).await;
    go.send(()).unwrap();
    // The agent could not know of the first one.
    until(async || (count("/cancel") == 2).then_some(())).await;
    world.stop().await;
}
