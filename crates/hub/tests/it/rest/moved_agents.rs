//! An agent elsewhere whose entry names a program after a restart: the program has none of the work that began there.

use axum::response::IntoResponse as _;
use serde_json::json;

use crate::receiver::Receiver;
use crate::remote_agents::{ended_task, until, until_status};
use crate::rest::endpoints::behind;
use crate::rest::hosted::writer;
use crate::rest::world::{ALICE, RestWorld};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_that_an_agent_elsewhere_has_does_not_begin_again_at_a_program() {
    let server = Receiver::start(|_, _| json!({"status": "processing"}).to_string().into_response()).await;
    let elsewhere = behind(server.address, "");
    let world = RestWorld::start(&elsewhere).await;
    until_status(&world, "writer", "online").await;
    let (tasks, messages) = ("/agents/writer/tasks", "/agents/writer/messages");
    for (id, metadata) in [("once", json!({})), ("safe", json!({"retry": "safe"}))] {
        let task = json!({
            "taskId": id, "task": {"type": "write", "parameters": {"prompt": "plan"}}, "metadata": metadata,
        });
        world.post(ALICE, tasks, &task).await.expect(202);
        let message = json!({
            "messageId": id, "message": {"type": "query", "content": "plan", "metadata": metadata},
        });
        world.post(ALICE, messages, &message).await.expect(202);
        let handed = |end: &str| server.received().iter().filter(|call| call.path.ends_with(end)).count();
        let count = if id == "once" { 1 } else { 2 };
        until(async || (handed("/tasks") == count && handed("/messages") == count).then_some(())).await;
    }
    let world = world.restart_with(|config| config.replace(&elsewhere, &writer())).await;
    for (id, status, code) in [("once", "failed", json!("restarted")), ("safe", "completed", json!(null))] {
        let ended = ended_task(&world, ALICE, &format!("{tasks}/{id}")).await;
        assert_eq!((&ended["status"], &ended["error"]["code"]), (&json!(status), &code), "{ended}");
        let answered = until(async || {
            let found = world.get(ALICE, &format!("{messages}/{id}")).await.expect(200);
            Some(found).filter(|found| found["status"] != "processing" && found["status"] != "received")
        })
        .await;
        assert_eq!(answered["error"]["code"], code, "{answered}");
    }
    // Its sender can send it again.
    let resend = "/agents/writer/dead-letters/once/resend";
    assert!(world.post_empty(ALICE, resend).await.status < 300);
    until(async || {
        let found = world.get(ALICE, &format!("{messages}/once")).await.expect(200);
        Some(()).filter(|()| found["status"] == "completed")
    })
    .await;
    world.stop().await;
}
