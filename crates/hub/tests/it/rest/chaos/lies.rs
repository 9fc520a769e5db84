//! An agent whose answers contradict each other.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use axum::response::IntoResponse as _;
use serde_json::json;

use super::nothing_is_open;
use crate::receiver::Receiver;
use crate::remote_agents::until;
use crate::rest::endpoints::behind;
use crate::rest::world::{ALICE, RestWorld};

const TASKS: &str = "/agents/writer/tasks";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn progress_does_not_go_back_and_the_first_end_counts() {
    let looks = AtomicUsize::new(0);
    let agent = Receiver::start(move |_, call| {
        if !call.path.contains("/t1.") || call.path.ends_with("/cancel") {
            return json!({"status": "processing"}).to_string().into_response();
        }
        let answer = match looks.fetch_add(1, SeqCst) {
            0 => json!({"status": "processing", "progress": 60}),
            1 => json!({"status": "pending", "progress": 30}),
            2 => json!({"status": "processing", "progress": 400}),
            3 => json!({"status": "completed", "progress": 10, "result": "one"}),
            _ => json!({"status": "failed", "error": {"code": "two", "message": "m"}}),
        };
        answer.to_string().into_response()
    })
    .await;
    let world = RestWorld::start(&behind(agent.address, "")).await;
    let task = json!({"taskId": "t1", "task": {"type": "write", "parameters": {}}});
    world.post(ALICE, TASKS, &task).await.expect(202);
    let path = format!("{TASKS}/t1");
    let seen = std::cell::Cell::new(0);
    let ended = until(async || {
        let found = world.get(ALICE, &path).await.expect(200);
        let progress = found["progress"].as_u64().unwrap_or_default();
        assert!(seen.replace(progress) <= progress && [0, 60, 100].contains(&progress), "{found}");
        found["completedAt"].is_number().then_some(found)
    })
    .await;
    assert_eq!((&ended["status"], &ended["result"]), (&json!("completed"), &json!("one")), "{ended}");
    // The hub does not look again, and neither does a later life.
    let world = world.kill_and_start().await;
    nothing_is_open(&world, "a lie").await;
    assert_eq!(world.get(ALICE, &path).await.expect(200)["result"], "one");
    world.stop().await;
}
