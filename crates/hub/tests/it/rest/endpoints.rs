//! Agents that serve the REST interface themselves: another gateway behind the first one, and servers that a test plays.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::http::StatusCode;
use axum::http::header::{LOCATION, RETRY_AFTER};
use axum::response::{IntoResponse as _, Response};
use duologue_hub::gateway::{ConfigError, GatewayConfig};
use duologue_rpc::Lock as _;
use duologue_store::{
    Claim, InboxKey, JsonText, MessageSender, MessageState, NewInboxMessage, NewTask, StoreChange, StoreTime,
    StoredMessage, StoredTaskKey,
};
use duologue_test_support::in_time;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::receiver::{Received, Receiver};
use crate::remote_agents::{ended_task, until, until_status};
use crate::rest::hosted::writer;
use crate::rest::recorder::{ELSEWHERE, recorded};
use crate::rest::world::{ADMIN, ALICE, BOB, RestWorld, write_secret};

const TASKS: &str = "/agents/writer/tasks";

/// Returns the configuration of a gateway whose agent has this address.
pub(crate) fn behind(address: impl std::fmt::Display, more: &str) -> String {
    format!(
        r#"
        loopback_callbacks = true
        [[agents]]
        id = "writer"
        rest = "http://{address}"
        trust = "shared"
        {more}
        "#
    )
}

/// Starts a gateway with a process for its agent, and another one whose agent that is.
async fn pair(data: &TempDir) -> (RestWorld, RestWorld) {
    let far = RestWorld::start(&writer()).await;
    let token = data.path().join("token");
    // The principal of the near gateway at the far one.
    write_secret(&token, &format!("{ALICE}\n"));
    let near = RestWorld::start(&behind(far.address, &format!("auth = {{ file = {token:?} }}"))).await;
    until_status(&near, "writer", "online").await;
    (near, far)
}

async fn create(world: &RestWorld, id: &str, prompt: &str) {
    let task = json!({"taskId": id, "task": {"type": "write", "parameters": {"prompt": prompt}}});
    world.post(ALICE, TASKS, &task).await.expect(202);
}

async fn ended(world: &RestWorld, id: &str) -> Value {
    ended_task(world, ALICE, &format!("{TASKS}/{id}")).await
}

/// Waits until the only task of an agent has a state.
async fn only_task(world: &RestWorld, state: &str) -> Value {
    until(async || {
        let list = world.get(ALICE, TASKS).await.expect(200);
        assert!(list["pagination"]["total"].as_u64().unwrap() <= 1, "{list}");
        Some(list["tasks"][0].clone()).filter(|task| task["state"] == state)
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_gateway_answers_messages() {
    let data = tempfile::tempdir().unwrap();
    let (near, far) = pair(&data).await;
    let card = near.get(ALICE, "/agents/writer").await.expect(200);
    assert_eq!(card["endpoint"], "/agents/writer");
    for key in [ALICE, BOB] {
        let message =
            json!({"messageId": "m1", "mode": "sync", "message": {"type": "query", "content": "plan"}});
        let answered = near.post(key, "/agents/writer/messages", &message).await.expect(200);
        assert_eq!(
            (&answered["status"], &answered["response"]["type"]),
            (&json!("completed"), &json!("response"))
        );
    }
    let message = json!({"messageId": "m2", "message": {"type": "query", "content": "plan"}});
    near.post(ALICE, "/agents/writer/messages", &message).await.expect(202);
    let answered = until(async || {
        let found = near.get(ALICE, "/agents/writer/messages/m2").await.expect(200);
        Some(found).filter(|found| found["status"] == "completed")
    })
    .await;
    assert_eq!(answered["response"]["mimeType"], "text/plain");
    // Two principals have used one id, and their messages are two there.
    let list = far.get(ADMIN, "/agents/writer/messages").await.expect(200);
    assert_eq!(list["pagination"]["total"], 3, "{list}");
    // It has no sessions here.
    let refused = near.post(ALICE, "/acp/writer", "{}").await;
    assert!(refused.refused(409, "conflict").contains("over REST"));
    near.stop().await;
    far.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_gateway_runs_a_task_and_cancels_one() {
    let data = tempfile::tempdir().unwrap();
    let (near, far) = pair(&data).await;
    create(&near, "t1", "plan").await;
    let done = ended(&near, "t1").await;
    assert_eq!((&done["status"], &done["progress"]), (&json!("completed"), &json!(100)), "{done}");
    let list = far.get(ALICE, TASKS).await.expect(200);
    let there = &list["tasks"][0];
    assert_eq!((&there["result"], &there["status"]), (&done["result"], &done["status"]));
    assert!(there["taskId"].as_str().unwrap().starts_with("t1."), "{there}");

    create(&near, "t2", "cancel").await;
    until(async || {
        let list = far.get(ALICE, TASKS).await.expect(200);
        Some(()).filter(|()| list["tasks"][0]["sessionId"].is_string() && list["pagination"]["total"] == 2)
    })
    .await;
    near.post_empty(ALICE, &format!("{TASKS}/t2/cancel")).await.expect(202);
    assert_eq!(ended(&near, "t2").await["status"], "cancelled");
    let list = far.get(ALICE, TASKS).await.expect(200);
    assert_eq!(list["tasks"][0]["status"], "cancelled", "{list}");
    near.stop().await;
    far.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_gateway_finds_its_task_and_starts_no_other() {
    let data = tempfile::tempdir().unwrap();
    let (near, far) = pair(&data).await;
    create(&near, "t1", "permission").await;
    let there = only_task(&far, "input_required").await;
    // More restarts than attempts: each finds the task there.
    let mut near = near;
    for _ in 0..NewTask::MAX_ATTEMPTS {
        near = near.kill_and_start().await;
        until(async || {
            let store = near.gateway.store().clone();
            let found = tokio::task::spawn_blocking(move || {
                store.task(&StoredTaskKey::new("alice", "writer", "t1")).unwrap().unwrap()
            });
            let found = found.await.unwrap();
            assert!(!found.state.is_final(), "{found:?}");
            Some(()).filter(|()| found.worker.is_some() && found.attempts == 1)
        })
        .await;
    }
    // Once as a killed process, once as one that is stopped. A drain does not wait for the task.
    let near = near.kill_and_start().await;
    only_task(&near, "working").await;
    assert_eq!(in_time(near.gateway.drain(Duration::MAX)).await, 0);
    let near = near.restart().await;
    let path = format!("{TASKS}/{}/input", there["taskId"].as_str().unwrap());
    let question = far.get(ALICE, &path).await.expect(200)["questions"][0].clone();
    let option = &question["question"]["options"][0]["optionId"];
    let answer = json!({"questionId": question["questionId"], "answer": {"optionId": option}});
    far.post(ALICE, &path, &answer).await.expect(200);
    let done = ended(&near, "t1").await;
    assert_eq!(done["status"], "completed", "{done}");
    assert_eq!(only_task(&far, "completed").await["result"], done["result"]);
    near.stop().await;
    far.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_gateway_finds_the_answer_to_its_message() {
    let status = Arc::new(Mutex::new("processing"));
    let shown = status.clone();
    let server = Receiver::start(move |_, _| {
        json!({"status": *shown.lock_unpoisoned(), "response": {"content": "c"}}).to_string().into_response()
    })
    .await;
    let near = RestWorld::start(&behind(server.address, "")).await;
    until_status(&near, "writer", "online").await;
    let message = json!({"messageId": "m1", "message": {"type": "query", "content": "plan"}});
    near.post(ALICE, "/agents/writer/messages", &message).await.expect(202);
    let posts = || server.received().iter().filter(|call| call.path == "/agents/writer/messages").count();
    until(async || Some(()).filter(|()| posts() == 1)).await;
    // More restarts than attempts: each finds the message there.
    let mut near = near;
    for _ in 0..NewInboxMessage::MAX_ATTEMPTS {
        near = near.kill_and_start().await;
        until(async || {
            let found = stored_message(&near, "m1").await;
            Some(()).filter(|()| found.worker.is_some() && found.attempts == 1)
        })
        .await;
    }
    *status.lock_unpoisoned() = "completed";
    let answered = until(async || {
        let found = near.get(ALICE, "/agents/writer/messages/m1").await.expect(200);
        Some(found).filter(|found| found["status"] == "completed")
    })
    .await;
    assert_eq!((&answered["response"], posts()), (&json!({"content": "c"}), 1));
    near.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attachments_that_nobody_can_read_are_left_out_of_a_result() {
    let picture = json!({"mime_type": "image/png", "data": "iVBORw=="});
    // One that is no attachment at all does not take the others with it.
    let attachments =
        json!([{"mime_type": "image/png", "data": "no base64!"}, {"data": "iVBORw=="}, picture]);
    let server = Receiver::start(move |_, _| {
        let (result, response) = (
            json!({"text": "t", "attachments": attachments}),
            json!({"content": "c", "attachments": attachments}),
        );
        json!({"status": "completed", "result": result, "response": response}).to_string().into_response()
    })
    .await;
    let near = RestWorld::start(&behind(server.address, "")).await;
    create(&near, "t1", "plan").await;
    let done = ended(&near, "t1").await;
    assert_eq!(done["result"], json!({"text": "t", "attachments": [picture], "truncated": true}));
    let message = json!({"mode": "sync", "message": {"type": "query", "content": "plan"}});
    let answered = near.post(ALICE, "/agents/writer/messages", &message).await.expect(200);
    let response = json!({"content": "c", "attachments": [picture], "metadata": {"truncated": true}});
    assert_eq!(answered["response"], response);
    near.stop().await;
}

async fn stored_message(world: &RestWorld, id: &str) -> StoredMessage {
    let (store, key) = (world.gateway.store().clone(), InboxKey::new("writer", "alice", id));
    tokio::task::spawn_blocking(move || store.message(&key)).await.unwrap().unwrap().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_letter_that_is_sent_again_finds_its_former_work() {
    let (status, posts) = (Arc::new(Mutex::new("processing")), Arc::new(Mutex::new(Vec::new())));
    let (shown, sent) = (status.clone(), posts.clone());
    let server = Receiver::start(move |_, call| {
        let body: Value = serde_json::from_slice(&call.body).unwrap_or_default();
        if let Some(id) = body["messageId"].as_str() {
            sent.lock_unpoisoned().push(id.to_owned());
        }
        json!({"status": *shown.lock_unpoisoned(), "response": {"content": "c"}}).to_string().into_response()
    })
    .await;
    let near = RestWorld::start(&behind(server.address, "[limits]\ntask_seconds = 1")).await;
    until_status(&near, "writer", "online").await;
    for id in ["m1", "m2"] {
        *status.lock_unpoisoned() = "processing";
        let message = json!({"messageId": id, "message": {"type": "query", "content": "plan"}});
        near.post(ALICE, "/agents/writer/messages", &message).await.expect(202);
        let until_state = async |state: MessageState| {
            until(async || Some(stored_message(&near, id).await).filter(|found| found.state == state)).await
        };
        until_state(MessageState::Dead).await;
        let resend = format!("/agents/writer/dead-letters/{id}/resend?sender=alice");
        if id == "m2" {
            // Work that has failed there begins again, and under another id.
            *status.lock_unpoisoned() = "error";
            near.post_empty(ADMIN, &resend).await.expect(204);
            until(async || Some(()).filter(|()| posts.lock_unpoisoned().len() == 3)).await;
            until_state(MessageState::Dead).await;
        }
        *status.lock_unpoisoned() = "completed";
        near.post_empty(ADMIN, &resend).await.expect(204);
        until_state(MessageState::Done).await;
    }
    let posts = posts.lock_unpoisoned().clone();
    assert!(posts.len() == 3 && posts[1] != posts[2], "{posts:?}");
    near.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_waits_as_long_as_its_agent_asks() {
    let server = Receiver::start(|_, call| match call.body.is_empty() {
        true => "{}".into_response(),
        false => (StatusCode::SERVICE_UNAVAILABLE, [(RETRY_AFTER, "3600")]).into_response(),
    })
    .await;
    let near = RestWorld::start(&behind(server.address, "")).await;
    until_status(&near, "writer", "online").await;
    create(&near, "t1", "p").await;
    let message = json!({"messageId": "m1", "message": {"type": "query", "content": "plan"}});
    near.post(ALICE, "/agents/writer/messages", &message).await.expect(202);
    // A leased entry is not claimed either.
    until(async || {
        Some(()).filter(|()| server.received().iter().filter(|call| !call.body.is_empty()).count() == 2)
    })
    .await;
    until(async || {
        let store = near.gateway.store().clone();
        let task =
            tokio::task::spawn_blocking(move || store.task(&StoredTaskKey::new("alice", "writer", "t1")));
        let task = task.await.unwrap().unwrap().unwrap();
        let message = stored_message(&near, "m1").await;
        Some(()).filter(|()| task.worker.is_none() && message.worker.is_none())
    })
    .await;
    for (seconds, count) in [(1800, 0), (3700, 1)] {
        let (store, time) = (near.gateway.store().clone(), near.gateway.store_time());
        let time = StoreTime::new(time.now + Duration::from_secs(seconds), time.wall);
        let claimed = tokio::task::spawn_blocking(move || {
            let claim = Claim::new(time, Duration::from_secs(60), "test");
            let tasks = store.claim_tasks("writer", &claim).unwrap().entries.len();
            (tasks, store.claim_messages("writer", &claim).unwrap().entries.len())
        });
        assert_eq!(claimed.await.unwrap(), (count, count), "{seconds}");
    }
    near.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hand_over_whose_answer_was_lost_is_found() {
    let server = Receiver::start(|_, call| match call.body.is_empty() {
        true => json!({"status": "completed", "response": {"content": "c"}}).to_string().into_response(),
        false => StatusCode::BAD_GATEWAY.into_response(),
    })
    .await;
    let near = RestWorld::start(&behind(server.address, "")).await;
    until_status(&near, "writer", "online").await;
    create(&near, "t1", "p").await;
    assert_eq!(ended(&near, "t1").await["status"], "completed");
    let message = json!({"messageId": "m1", "message": {"type": "query", "content": "plan"}});
    near.post(ALICE, "/agents/writer/messages", &message).await.expect(202);
    until(async || Some(stored_message(&near, "m1").await).filter(|found| found.state == MessageState::Done))
        .await;
    assert_eq!(server.received().iter().filter(|call| !call.body.is_empty()).count(), 2);
    near.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancel_between_two_attempts_reaches_the_agent() {
    let (is_up, is_cancelled) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (up, cancelled) = (is_up.clone(), is_cancelled.clone());
    let server = Receiver::start(move |_, call| {
        if !up.load(Ordering::SeqCst) {
            return StatusCode::SERVICE_UNAVAILABLE.into_response();
        }
        let has_cancelled = cancelled.fetch_or(call.path.ends_with("/cancel"), Ordering::SeqCst);
        json!({"status": if has_cancelled { "cancelled" } else { "processing" }}).to_string().into_response()
    })
    .await;
    let near = RestWorld::start(&behind(server.address, "")).await;
    create(&near, "t1", "p").await;
    lose_worker(&near, Fate::Returned).await;
    near.post_empty(ALICE, &format!("{TASKS}/t1/cancel")).await.expect(202);
    is_up.store(true, Ordering::SeqCst);
    let near = near.restart().await;
    assert_eq!(ended(&near, "t1").await["state"], "cancelled");
    assert!(is_cancelled.load(Ordering::SeqCst));
    assert!(server.received().iter().all(|call| call.path != TASKS));
    near.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_gateway_cancels_its_task_at_the_agent() {
    let (may_cancel, cancels) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let (allowed, counted) = (may_cancel.clone(), cancels.clone());
    let server = Receiver::start(move |_, call| {
        if call.path.ends_with("/cancel") {
            if !allowed.load(Ordering::SeqCst) {
                return StatusCode::SERVICE_UNAVAILABLE.into_response();
            }
            counted.fetch_add(1, Ordering::SeqCst);
        }
        let status = if counted.load(Ordering::SeqCst) > 0 { "cancelled" } else { "processing" };
        json!({ "status": status }).to_string().into_response()
    })
    .await;
    let near = RestWorld::start(&behind(server.address, "")).await;
    until_status(&near, "writer", "online").await;
    create(&near, "t1", "p").await;
    until(async || server.received().into_iter().find(|call| call.path.contains("/t1."))).await;
    near.post_empty(ALICE, &format!("{TASKS}/t1/cancel")).await.expect(202);
    until(async || server.received().into_iter().find(|call| call.path.ends_with("/cancel"))).await;
    let near = near.kill_and_start().await;
    may_cancel.store(true, Ordering::SeqCst);
    assert_eq!(ended(&near, "t1").await["state"], "cancelled");
    assert_eq!(cancels.load(Ordering::SeqCst), 1);
    near.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chain_of_calls_that_is_too_long_is_refused_at_once() {
    let near = RestWorld::start(&behind("127.0.0.1:1024", "")).await;
    let callers = json!({"duologue": {"callers": ["a", "b", "c", "d"]}});
    let task = json!({"taskId": "t1", "task": {"type": "write"}, "metadata": callers});
    let content = json!({"type": "query", "content": "plan"});
    let message = json!({"messageId": "m1", "message": content, "metadata": callers});
    for (path, work) in [(TASKS, &task), ("/agents/writer/messages", &message)] {
        let refused = near.post(ALICE, path, work).await;
        assert!(refused.refused(400, "invalid_parameter").contains("limits.call_depth"));
    }
    near.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_that_ends_without_its_agent_is_cancelled_there() {
    let hidden = AtomicBool::new(true);
    let server = Receiver::start(move |_, call| {
        let is_hidden = call.path.contains("/hidden.") && hidden.swap(false, Ordering::SeqCst);
        if is_hidden {
            return StatusCode::NOT_FOUND.into_response();
        }
        if call.path.contains("/other.") {
            return json!({"taskId": "t9", "status": "completed"}).to_string().into_response();
        }
        let body: Value = serde_json::from_slice(&call.body).unwrap_or_default();
        if body["taskId"].as_str().is_some_and(|id| id.starts_with("page.")) {
            return "<html>".into_response();
        }
        json!({"status": "completed"}).to_string().into_response()
    })
    .await;
    let near = RestWorld::start(&behind(server.address, "")).await;
    until_status(&near, "writer", "online").await;
    for (id, state) in [("page", "rejected"), ("other", "failed"), ("hidden", "completed")] {
        create(&near, id, "p").await;
        assert_eq!(ended(&near, id).await["state"], state, "{id}");
    }
    for id in ["page", "other"] {
        let part = format!("/{id}.");
        let is_cancel = |call: &Received| call.path.contains(&part) && call.path.ends_with("/cancel");
        until(async || server.received().into_iter().find(is_cancel)).await;
    }
    assert!(
        server
            .received()
            .iter()
            .all(|call| !(call.path.contains("/hidden.") && call.path.ends_with("/cancel")))
    );
    near.stop().await;
}

/// The fate of a task at its worker.
#[derive(Clone, Copy, PartialEq)]
enum Fate {
    /// It is lost at once.
    Lost,
    /// It returns the task for an hour.
    Returned,
    /// It is gone, and its lease goes on.
    Held,
}

/// Claims the only task of the agent.
async fn lose_worker(world: &RestWorld, fate: Fate) {
    let (store, time) = (world.gateway.store().clone(), world.gateway.store_time());
    let lasts = if fate == Fate::Lost { Duration::ZERO } else { Duration::from_secs(60) };
    let claim = Claim::new(time, lasts, "test");
    let claimed = tokio::task::spawn_blocking(move || store.claim_tasks("writer", &claim)).await.unwrap();
    let lease = claimed.unwrap().entries[0].lease;
    if fate == Fate::Returned {
        world.apply(StoreChange::ReturnTask { lease, delay: Duration::from_secs(3600) }).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_ends_without_a_worker_is_cancelled_at_its_agent() {
    // The agent is offline, so the workers are those of the test.
    let server = Receiver::start(|_, call| match call.path.ends_with("/cancel") {
        true => "{}".into_response(),
        false => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    })
    .await;
    let near = RestWorld::start(&behind(server.address, "")).await;
    let cancels = |id: &str| {
        let part = format!("/{id}.");
        let calls = server.received();
        calls.iter().filter(|call| call.path.contains(&part) && call.path.ends_with("/cancel")).count()
    };
    for (id, fate) in [("lost", Fate::Lost), ("erased", Fate::Returned), ("held", Fate::Held)] {
        let mut task =
            NewTask::new(StoredTaskKey::new("alice", "writer", id), "a", "write", JsonText::default());
        (task.retry_safe, task.max_attempts) = (true, if fate == Fate::Lost { 1 } else { 2 });
        near.apply(StoreChange::CreateTask(task)).await;
        lose_worker(&near, fate).await;
        if fate != Fate::Lost {
            create(&near, "waiting", "p").await;
            near.delete(ALICE, "/principals/alice/data").await.expect(200);
        }
        until(async || Some(()).filter(|()| cancels(id) == 1)).await;
    }
    assert_eq!((cancels("lost"), cancels("waiting")), (1, 0));
    near.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_running_task_that_is_erased_is_cancelled_at_its_agent() {
    let server = Receiver::start(|_, _| json!({"status": "processing"}).to_string().into_response()).await;
    let near = RestWorld::start(&behind(server.address, "")).await;
    until_status(&near, "writer", "online").await;
    create(&near, "t1", "p").await;
    until(async || server.received().into_iter().find(|call| call.path.contains("/t1."))).await;
    near.delete(ALICE, "/principals/alice/data").await.expect(200);
    until(async || server.received().into_iter().find(|call| call.path.ends_with("/cancel"))).await;
    near.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_erased_message_leaves_its_place_at_its_agent() {
    let server = Receiver::start(|_, _| json!({"status": "processing"}).to_string().into_response()).await;
    let near = RestWorld::start(&behind(server.address, "max_messages = 1")).await;
    until_status(&near, "writer", "online").await;
    let send = async |key: &str, from: &str, id: &str| {
        let message = json!({"from": from, "messageId": id, "message": {"type": "query", "content": "c"}});
        near.post(key, "/agents/writer/messages", &message).await.expect(202);
    };
    let asked = |id: &str| {
        let (path, calls) = (format!("/messages/{id}."), server.received());
        calls.iter().filter(|call| call.path.contains(&path)).count()
    };
    send(ALICE, "alice", "m1").await;
    until(async || Some(()).filter(|()| asked("m1") > 0)).await;
    send(BOB, "bob", "m2").await;
    near.delete(ALICE, "/principals/alice/data").await.expect(200);
    // A message with the same id is another one.
    send(ALICE, "alice", "m1").await;
    until(async || Some(()).filter(|()| asked("m2") > 1)).await;
    let of_erased = asked("m1");
    let of_other = asked("m2");
    until(async || Some(()).filter(|()| asked("m2") > of_other)).await;
    assert_eq!(asked("m1"), of_erased);
    near.stop().await;
}

/// Answers as an agent whose tasks and messages begin with the name of what happens to them.
fn play(posts: &Mutex<Vec<String>>, call: &Received) -> Response {
    let refusal = |code: &str| json!({"code": code, "message": "m", "retryable": false}).to_string();
    let reply = |status: u16, body: String| (StatusCode::from_u16(status).unwrap(), body).into_response();
    let path = call.path.strip_prefix("/agents/writer").unwrap();
    let body: Value = serde_json::from_slice(&call.body).unwrap_or_default();
    let id = body["taskId"].as_str().or_else(|| body["messageId"].as_str());
    let name = |id: &str| id.split('.').next().unwrap().to_owned();
    if let Some(id) = id {
        let count = {
            let mut posts = posts.lock_unpoisoned();
            posts.push(name(id));
            posts.iter().filter(|other| **other == name(id)).count()
        };
        return match &*name(id) {
            "refused" => reply(400, refusal("invalid_parameter")),
            "rejected" => reply(200, format!(r#"{{"status": "rejected", "error": {}}}"#, refusal("busy"))),
            "moved" => (StatusCode::FOUND, [(LOCATION, "/elsewhere")]).into_response(),
            "page" => reply(200, "<html>".to_owned()),
            "dead" => reply(500, String::new()),
            "broken" if count == 1 => reply(500, String::new()),
            _ => reply(202, r#"{"status": "processing"}"#.to_owned()),
        };
    }
    let Some((_, id)) = path.rsplit_once('/').filter(|(front, _)| !front.is_empty()) else {
        return reply(200, "{}".to_owned());
    };
    let known = posts.lock_unpoisoned().contains(&name(id));
    match &*name(id) {
        _ if !known => reply(404, refusal("not_found")),
        // No attempt has reached it.
        "dead" => reply(404, refusal("not_found")),
        "broken" if posts.lock_unpoisoned().iter().filter(|post| *post == "broken").count() == 1 => {
            reply(404, refusal("not_found"))
        }
        "large" => reply(200, json!({"status": "completed", "result": "x".repeat(200_000)}).to_string()),
        "medium" => reply(200, json!({"status": "completed", "result": "x".repeat(20_000)}).to_string()),
        "strange" => reply(200, r#"{"status": "lost"}"#.to_owned()),
        "failed" => reply(200, format!(r#"{{"status": "failed", "error": {}}}"#, refusal("agent_failed"))),
        _ => reply(
            200,
            r#"{"status": "completed", "result": {"text": "done"}, "response": "done"}"#.to_owned(),
        ),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_answer_of_a_server_has_its_end() {
    let posts = Arc::new(Mutex::new(Vec::new()));
    let seen = posts.clone();
    let server = Receiver::start(move |_, call| play(&seen, call)).await;
    let more = "[limits]\nresult_bytes = 10000";
    let near = RestWorld::start(&behind(server.address, more)).await;
    until_status(&near, "writer", "online").await;
    let cases = [
        ("refused", "rejected", "invalid_parameter"),
        ("rejected", "rejected", "busy"),
        ("moved", "rejected", "agent_failed"),
        ("page", "rejected", "agent_failed"),
        ("broken", "completed", ""),
        ("large", "failed", "too_large"),
        ("medium", "failed", "too_large"),
        ("strange", "failed", "agent_failed"),
        ("failed", "failed", "agent_failed"),
    ];
    for (id, ..) in cases {
        create(&near, id, "p").await;
    }
    for (id, state, code) in cases {
        let ended = ended(&near, id).await;
        let found = (ended["state"].as_str().unwrap(), ended["error"]["code"].as_str().unwrap_or_default());
        assert_eq!(found, (state, code), "{id}: {ended}");
    }
    assert!(server.received().iter().all(|call| call.path != "/elsewhere"));
    // Each post but the broken one was sent once.
    let mut all = posts.lock_unpoisoned().clone();
    all.sort();
    let mut expected: Vec<_> = cases.iter().map(|(id, ..)| (*id).to_owned()).collect();
    expected.push("broken".to_owned());
    expected.sort();
    assert_eq!(all, expected);

    for (id, status, code) in [("refused", "error", "invalid_parameter"), ("done", "completed", "")] {
        let message = json!({"messageId": id, "mode": "sync", "message": {"type": "query", "content": "c"}});
        let answered = near.post(ALICE, "/agents/writer/messages", &message).await.expect(200);
        let found = (&answered["status"], answered["error"]["code"].as_str().unwrap_or_default());
        assert_eq!(found, (&json!(status), code), "{answered}");
    }
    near.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_endpoint_is_unreachable_after_the_last_attempt() {
    let posts = Mutex::new(Vec::new());
    let server = Receiver::start(move |_, call| play(&posts, call)).await;
    let near = RestWorld::start(&behind(server.address, "")).await;
    until_status(&near, "writer", "online").await;
    let key = StoredTaskKey::new("alice", "writer", "dead");
    let mut task = NewTask::new(key, "alice", "write", JsonText::default());
    (task.retry_safe, task.max_attempts) = (true, 2);
    near.apply(StoreChange::CreateTask(task)).await;
    let failed = ended(&near, "dead").await;
    assert_eq!(
        (&failed["state"], &failed["error"]["code"], &failed["error"]["retryable"]),
        (&json!("failed"), &json!("unreachable"), &json!(true)),
        "{failed}"
    );
    let content = JsonText::of(&json!({"type": "query", "content": "c"})).unwrap();
    let mut message = NewInboxMessage::new("writer", "dead", MessageSender::new("alice", "alice"), content);
    message.max_attempts = 2;
    near.apply(StoreChange::Enqueue(message)).await;
    let letter = until(async || {
        let letters = near.get(ADMIN, "/agents/writer/dead-letters").await.expect(200);
        letters["messages"].get(0).cloned()
    })
    .await;
    assert_eq!(letter["error"]["code"], "unreachable", "{letter}");
    let sent = server.received().iter().filter(|call| call.path == TASKS).count();
    assert_eq!(sent, 2);
    near.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn progress_passes_and_a_time_limit_cancels() {
    let (percent, cancels) = (Arc::new(AtomicUsize::new(40)), Arc::new(AtomicUsize::new(0)));
    let (shown, counted) = (percent.clone(), cancels.clone());
    let server = Receiver::start(move |_, call| {
        if call.path.ends_with("/cancel") {
            counted.fetch_add(1, Ordering::SeqCst);
        }
        let status = if counted.load(Ordering::SeqCst) > 0 { "cancelled" } else { "processing" };
        json!({"status": status, "progress": shown.load(Ordering::SeqCst)}).to_string().into_response()
    })
    .await;
    let near = RestWorld::start(&behind(server.address, "")).await;
    until_status(&near, "writer", "online").await;
    create(&near, "t1", "p").await;
    for expected in [40, 60] {
        percent.store(expected, Ordering::SeqCst);
        until(async || {
            let task = near.get(ALICE, &format!("{TASKS}/t1")).await.expect(200);
            Some(()).filter(|()| task["progress"] == expected && task["state"] == "working")
        })
        .await;
    }
    near.post_empty(ALICE, &format!("{TASKS}/t1/cancel")).await.expect(202);
    assert_eq!(ended(&near, "t1").await["state"], "cancelled");
    let task = json!({"taskId": "t2", "task": {"type": "write"}, "timeout": 300});
    cancels.store(0, Ordering::SeqCst);
    near.post(ALICE, TASKS, &task).await.expect(202);
    let ended = ended(&near, "t2").await;
    assert_eq!((&ended["state"], &ended["error"]["code"]), (&json!("failed"), &json!("timeout")), "{ended}");
    assert_eq!(cancels.load(Ordering::SeqCst), 1);
    near.stop().await;
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_token_is_read_again_and_shown_nowhere() {
    use axum::http::header::AUTHORIZATION;

    const FRESH: &str = "fresh-swordfish-token";
    let data = tempfile::tempdir().unwrap();
    let token = data.path().join("token");
    std::fs::write(&token, "stale-swordfish-token").unwrap();
    let server = Receiver::start(move |_, call| {
        let given = call.headers[AUTHORIZATION].to_str().unwrap().to_owned();
        match given.strip_prefix("Bearer ") {
            Some(FRESH) if call.path == TASKS => {
                // A server that shows everything.
                let refusal = json!({"code": "broken", "message": given, "retryable": false});
                (StatusCode::BAD_REQUEST, refusal.to_string()).into_response()
            }
            Some(FRESH) => "{}".into_response(),
            _ => StatusCode::UNAUTHORIZED.into_response(),
        }
    })
    .await;
    let script = format!("cat {0}; printf {FRESH} > {0}", token.display());
    let auth = format!("auth = {{ command = [\"sh\", \"-c\", {script:?}] }}");
    let near = RestWorld::start(&behind(server.address, &auth)).await;
    until_status(&near, "writer", "online").await;
    create(&near, "t1", "p").await;
    let failed = ended(&near, "t1").await;
    assert_eq!(failed["error"]["code"], "agent_failed", "{failed}");
    let calls = server.received();
    let stale = calls.iter().filter(|call| call.headers[AUTHORIZATION] != format!("Bearer {FRESH}"));
    assert_eq!(stale.count(), 1);
    for path in
        ["/agents", "/registry/agents", TASKS, "/agents/writer/capabilities", "/principals/alice/data"]
    {
        let shown = near.get(ADMIN, path).await;
        assert!(shown.status == 200 && !shown.text.contains("swordfish"), "{shown:?}");
    }
    let logged: String = ELSEWHERE.into_iter().flat_map(recorded).collect();
    assert!(!logged.contains("swordfish"), "{logged}");
    near.stop().await;
}

fn refused(entry: &str) -> String {
    let data = tempfile::tempdir().unwrap();
    let file = data.path().join("hub.toml");
    std::fs::write(&file, entry).unwrap();
    match GatewayConfig::read(&file) {
        Err(ConfigError::Value { reason, .. }) => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_entry_has_one_address_and_it_is_checked() {
    let entry = |more: &str| format!("[[agents]]\nid = \"writer\"\n{more}\n");
    let local = |more: &str| format!("loopback_callbacks = true\n{}", entry(more));
    for (entry, part) in [
        (entry("rest = \"http://10.0.0.1\""), "private"),
        (entry("rest = \"http://169.254.169.254\""), "link-local"),
        (entry("rest = \"http://127.0.0.1:8931\""), "loopback"),
        (entry("rest = \"ftp://far.example\""), "rest of the agent"),
        (entry("rest = \"http://far.example/?a=b\""), "has a query"),
        (entry("rest = \"http://far.example\"\ncommand = [\"a\"]"), "use one of them"),
        (entry("rest = \"http://far.example\"\nurl = \"ws://far.example\""), "use one of them"),
        (entry("rest = \"http://far.example\"\ncwd = \"/\""), "are for agents of ACP"),
        (entry("rest = \"http://far.example\"\nroots = [\"/\"]"), "are for commands"),
        (entry("rest = \"http://far.example\"\nauth = { env = \"A\" }"), "without encryption"),
        (entry("url = \"ws://far.example\"\ncwd = \"/\"\nauth = { env = \"A\" }"), "without encryption"),
        (local("rest = \"http://127.0.0.1:8931\"\nauth = { command = [] }"), "is empty"),
        (entry("command = [\"a\"]\nauth = { env = \"A\" }"), "is for `url` and `rest`"),
    ] {
        let reason = refused(&entry);
        assert!(reason.contains(part), "{entry}: {reason}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_with_an_internal_address_is_not_connected_to() {
    let server = Receiver::start(|_, _| "{}".into_response()).await;
    let port = server.address.port();
    let config = behind(format!("localhost:{port}"), "").replace("loopback_callbacks = true", "");
    let near = RestWorld::start(&config).await;
    let part = format!("localhost:{port} is refused");
    until(async || ELSEWHERE.into_iter().flat_map(recorded).find(|line| line.contains(&part))).await;
    assert_eq!(near.get(ADMIN, "/registry/agents/").await.status, 404);
    assert!(server.received().is_empty());
    near.stop().await;
}

/// The examples of the guide are read as they are.
#[cfg(feature = "tls")]
#[test]
fn the_examples_of_the_guide_are_read() {
    let guide =
        std::fs::read_to_string(format!("{}/../../docs/src/hub.md", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let data = tempfile::tempdir().unwrap();
    let file = data.path().join("hub.toml");
    let read = |example| {
        std::fs::write(&file, example).unwrap();
        GatewayConfig::read(&file).unwrap()
    };
    let examples = guide.split("```toml\n").skip(1).filter_map(|rest| Some(read(rest.split("```").next()?)));
    let examples: Vec<_> = examples.collect();
    let of_elsewhere = examples.iter().find(|config| config.agents.iter().any(|agent| agent.rest.is_some()));
    let config = of_elsewhere.expect("an example");
    let auth: Vec<_> = config.agents.iter().map(|agent| format!("{:?}", agent.auth)).collect();
    assert!(config.agents.iter().any(|agent| agent.url.is_some()), "{config:?}");
    assert!(auth.iter().all(|auth| auth.starts_with("Some")), "{auth:?}");
}
