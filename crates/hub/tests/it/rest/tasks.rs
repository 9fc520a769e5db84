//! Tasks: creation, states, events, questions and cancellation. The tests work in the place of the agent.

use duologue_schema::envelope::TaskState;
use duologue_store::{LeaseToken, NewQuestion, NewTask, StoreChange, StoredTask, StoredTaskKey, TaskUpdate};
use serde_json::{Value, json};

use crate::rest::world::{ADMIN, ALICE, BOB, Call, REMOTE, RestWorld, claim_task, events, json_text};

const TASKS: &str = "/agents/remote/tasks";

fn task(id: &str) -> Value {
    json!({"from": "alice", "taskId": id, "task": {"type": "write", "parameters": {"prompt": "a poem"}}})
}

/// The changes of a worker.
struct Worker<'a> {
    world: &'a RestWorld,
    task: StoredTask,
    lease: LeaseToken,
}

impl<'a> Worker<'a> {
    async fn claim(world: &'a RestWorld) -> Self {
        let (task, lease) = claim_task(world, "remote").await;
        Worker { world, task, lease }
    }

    async fn update(&mut self, change: impl FnOnce(&mut TaskUpdate)) {
        let key = self.task.key.clone();
        let store = self.world.gateway.store().clone();
        let version =
            tokio::task::spawn_blocking(move || store.task(&key)).await.unwrap().unwrap().unwrap().version;
        let mut update = TaskUpdate::new(self.task.key.clone(), version).lease(self.lease);
        change(&mut update);
        self.world.apply(StoreChange::UpdateTask(update)).await;
    }

    async fn state(&mut self, state: TaskState) {
        self.update(|update| update.state = Some(state)).await;
    }

    async fn complete(&mut self) {
        self.update(|update| {
            update.state = Some(TaskState::Completed);
            (update.progress, update.result) = (Some(100), Some(json_text(&json!({"text": "done"}))));
        })
        .await;
    }
}

#[tokio::test]
async fn a_task_is_created_once_and_ends_with_its_result() {
    let world = RestWorld::with_remote("").await;
    let created = world.post(ALICE, TASKS, task("t/1")).await;
    assert_eq!(created.header("location"), Some("/agents/remote/tasks/t%2f1"));
    let accepted = json!({"taskId": "t/1", "agentId": "remote", "status": "accepted"});
    assert_eq!(created.expect(202), accepted);
    world.post(ALICE, TASKS, task("t/1")).await.expect(200);
    let mut other = task("t/1");
    other["priority"] = json!("critical");
    world.post(ALICE, TASKS, &other).await.refused(409, "conflict");

    let path = format!("{TASKS}/t%2F1");
    let pending = world.get(ALICE, &path).await.expect(200);
    assert_eq!((&pending["status"], &pending["state"]), (&json!("pending"), &json!("submitted")));
    let mut worker = Worker::claim(&world).await;
    worker.state(TaskState::Working).await;
    assert_eq!(world.get(ALICE, &path).await.expect(200)["status"], "processing");
    worker.complete().await;
    let ended = world.get(ALICE, &path).await.expect(200);
    assert_eq!((&ended["status"], &ended["progress"]), (&json!("completed"), &json!(100)));
    assert_eq!(ended["result"], json!({"text": "done"}));
    assert!(ended["completedAt"].as_u64() >= ended["createdAt"].as_u64());

    // The agent sees what it was given, another user does not.
    assert_eq!(world.get(REMOTE, &path).await.expect(200), ended);
    let foreign = world.get(BOB, &path).await;
    foreign.refused(404, "not_found");
    assert_eq!(foreign.text, world.get(BOB, &format!("{TASKS}/absent")).await.text);
    assert_eq!(world.get(BOB, TASKS).await.expect(200)["pagination"]["total"], 0);
    assert_eq!(
        world.get(ALICE, &format!("{TASKS}?state=completed")).await.expect(200)["pagination"]["total"],
        1
    );
    assert_eq!(
        world.get(ALICE, &format!("{TASKS}?state=failed")).await.expect(200)["pagination"]["total"],
        0
    );
    world.get(ALICE, &format!("{TASKS}?state=odd")).await.refused(400, "invalid_parameter");

    // A later task of the type has an estimate.
    let created = world.post(ALICE, TASKS, task("t2")).await.expect(202);
    assert!(created["estimatedCompletion"].as_u64() >= ended["createdAt"].as_u64(), "{created}");
    world.stop().await;
}

#[tokio::test]
async fn a_task_needs_a_sender_and_addresses() {
    let world = RestWorld::with_remote("").await;
    let with = |name: &str, value: Value| {
        let mut task = task("t1");
        task[name] = value;
        task
    };
    world.post(ALICE, TASKS, with("from", json!("bob"))).await.refused(403, "not_authorized");
    for (name, value) in [
        ("callback", json!("ftp://example.com")),
        ("callback", json!("http://user:secret@example.com/")),
        ("streamEndpoint", json!("/etc/passwd")),
        ("priority", json!(9)),
        ("timeout", json!("soon")),
        ("task", json!({})),
    ] {
        let why = world.post(ALICE, TASKS, with(name, value)).await.refused(400, "invalid_parameter");
        assert!(why.starts_with(name), "{why}");
    }
    world.post(ALICE, TASKS, with("callback", json!("https://example.com/done"))).await.expect(202);
    world.post(ALICE, "/agents/absent/tasks", task("t1")).await.refused(404, "not_found");
    world.stop().await;
}

#[tokio::test]
async fn the_events_of_a_task_end_with_it() {
    let world = RestWorld::with_remote("").await;
    world.post(ALICE, TASKS, task("t1")).await.expect(202);
    let call = || Call::new("GET", &format!("{TASKS}/t1/events")).key(ALICE);
    let mut stream = world.open(&call()).await;
    stream.until("pending").await;
    let mut worker = Worker::claim(&world).await;
    worker.state(TaskState::Working).await;
    stream.until("processing").await;
    worker.update(|update| update.progress = Some(40)).await;
    stream.until(r#""progress":40"#).await;
    let question = NewQuestion::new(worker.task.key.clone(), "q1", json_text(&json!({"text": "really?"})));
    world.apply(StoreChange::AddQuestion(question)).await;
    worker.state(TaskState::InputRequired).await;
    stream.until("input_required").await;
    world.post(ALICE, &format!("{TASKS}/t1/input"), json!({"answer": "yes"})).await.expect(200);
    stream.until("answered").await;
    worker.complete().await;
    let all = events(&stream.end().await);

    let names: Vec<_> = all.iter().map(|(name, ..)| name.as_str()).collect();
    assert_eq!(names, ["state", "state", "progress", "question", "state", "question", "end"], "{all:?}");
    let ids: Vec<&str> = all.iter().filter_map(|(_, id, _)| id.as_deref()).collect();
    let version = |id: &str| -> u64 { id.split('-').nth(1).unwrap().parse().unwrap() };
    assert!(ids.is_sorted_by(|one, next| version(one) < version(next)), "{ids:?}");
    assert!(ids.iter().all(|id| id.ends_with("-0")), "{ids:?}");
    assert_eq!(all[6].2["result"], json!({"text": "done"}));
    assert_eq!(all[3].2["question"], json!({"text": "really?"}));

    // A client that has lost the connection receives what followed, and at the end nothing.
    let resumed = world.open(&call().header("last-event-id", ids[1])).await.end().await;
    let resumed = events(&resumed);
    assert_eq!(resumed.last(), all.last());
    let last = *ids.last().unwrap();
    assert_eq!(world.send(&call().header("last-event-id", last)).await.status, 204);
    // It is the last event of another task with the id, which was erased.
    let of_other = format!("1-{}", last.split_once('-').unwrap().1);
    let whole = world.open(&call().header("last-event-id", &of_other)).await.end().await;
    assert_eq!(events(&whole).last(), all.last());
    world.send(&call().header("last-event-id", "x")).await.refused(400, "invalid_parameter");
    world.get(BOB, &format!("{TASKS}/t1/events")).await.refused(404, "not_found");
    world.stop().await;
}

#[tokio::test]
async fn a_stopped_gateway_ends_the_streams() {
    let world = RestWorld::with_remote("").await;
    world.post(ALICE, TASKS, task("t1")).await.expect(202);
    let mut stream = world.open(&Call::new("GET", &format!("{TASKS}/t1/events")).key(ALICE)).await;
    stream.until("pending").await;
    world.stop().await;
    stream.end().await;
}

#[tokio::test]
async fn the_first_answer_to_a_question_counts() {
    let world = RestWorld::with_remote("").await;
    world.post(ALICE, TASKS, task("t1")).await.expect(202);
    let mut worker = Worker::claim(&world).await;
    let input = format!("{TASKS}/t1/input");
    let none = json!({"taskId": "t1", "questions": [], "total": 0});
    assert_eq!(world.get(ALICE, &input).await.expect(200), none);
    world.post(ALICE, &input, json!({"answer": 1})).await.refused(409, "conflict");
    for id in ["q1", "q2"] {
        let question = NewQuestion::new(worker.task.key.clone(), id, json_text(&json!({"text": id})));
        world.apply(StoreChange::AddQuestion(question)).await;
    }
    worker.state(TaskState::InputRequired).await;
    assert_eq!(world.get(ALICE, &format!("{TASKS}/t1")).await.expect(200)["awaiting"], true);
    let open = world.get(ALICE, &input).await.expect(200);
    assert_eq!(open["questions"][1]["question"], json!({"text": "q2"}));
    // Its number decides which of several is answered.
    world.post(ALICE, &input, json!({"answer": 1})).await.refused(409, "conflict");
    world.post(BOB, &input, json!({"questionId": "q1", "answer": 1})).await.refused(404, "not_found");
    world.post(REMOTE, &input, json!({"questionId": "q1", "answer": 1})).await.refused(403, "not_authorized");
    let answer = json!({"questionId": "q1", "answer": {"optionId": "yes"}});
    let answered = world.post(ALICE, &input, &answer).await.expect(200);
    assert_eq!(answered, json!({"taskId": "t1", "questionId": "q1", "status": "answered"}));
    world.post(ALICE, &input, &answer).await.refused(409, "conflict");
    let late = json!({"questionId": "q9", "answer": 1});
    let why = world.post(ALICE, &input, late).await.refused(409, "conflict");
    assert!(why.contains("`limits.question_seconds`"), "{why}");
    let call = Call::new("POST", &input).key(ALICE).json(json!({"answer": 2})).header("idempotency-key", "k");
    assert_eq!(world.send(&call).await.expect(200), world.send(&call).await.expect(200));
    world.stop().await;
}

#[tokio::test]
async fn a_task_is_cancelled_by_its_owner() {
    let world = RestWorld::with_remote("").await;
    let cancel = |id: &str| format!("{TASKS}/{id}/cancel");
    world.post(ALICE, TASKS, task("t1")).await.expect(202);
    world.post_empty(BOB, &cancel("t1")).await.refused(404, "not_found");
    world.post_empty(REMOTE, &cancel("t1")).await.refused(403, "not_authorized");
    for _ in 0..2 {
        assert_eq!(world.post_empty(ALICE, &cancel("t1")).await.expect(200)["status"], "cancelled");
    }
    // One that runs ends when its agent has ended the work.
    world.post(ALICE, TASKS, task("t2")).await.expect(202);
    let mut worker = Worker::claim(&world).await;
    worker.state(TaskState::Working).await;
    for key in [ALICE, ADMIN] {
        let cancelling = world.post_empty(key, &cancel("t2")).await.expect(202);
        assert_eq!((&cancelling["status"], &cancelling["cancelling"]), (&json!("processing"), &json!(true)));
    }
    worker.complete().await;
    world.post_empty(ALICE, &cancel("t2")).await.refused(409, "already_finished");
    world.stop().await;
}

#[tokio::test]
async fn a_lost_task_is_a_dead_letter_of_its_owner() {
    let world = RestWorld::with_remote("").await;
    let letters = "/agents/remote/dead-letters";
    let path = format!("{TASKS}/t1");
    world.post(ALICE, TASKS, task("t1")).await.expect(202);
    world.post_empty(ALICE, &format!("{letters}/t1/resend?kind=task")).await.refused(409, "conflict");
    Worker::claim(&world).await.state(TaskState::Working).await;
    let world = world.restart().await;
    let lost = world.get(ALICE, &path).await.expect(200);
    assert_eq!((&lost["status"], &lost["state"]), (&json!("failed"), &json!("failed")), "{lost}");
    let error = (&lost["error"]["code"], &lost["error"]["retryable"]);
    assert_eq!(error, (&json!("restarted"), &json!(true)), "{lost}");

    assert_eq!(world.get(BOB, &format!("{letters}?kind=task")).await.expect(200)["pagination"]["total"], 0);
    assert_eq!(world.get(ALICE, &format!("{letters}?kind=task")).await.expect(200)["pagination"]["total"], 1);
    world.get(ALICE, "/agents/absent/dead-letters").await.refused(404, "not_found");
    world.get(ALICE, &format!("{letters}?kind=odd")).await.refused(400, "invalid_parameter");
    world.post_empty(REMOTE, &format!("{letters}/t1/resend?kind=task")).await.refused(403, "not_authorized");
    world.delete(BOB, &format!("{letters}/t1?kind=task")).await.refused(404, "not_found");
    world.post_empty(ALICE, &format!("{letters}/t1/resend?kind=task")).await.expect(204);
    let again = world.get(ALICE, &path).await.expect(200);
    assert_eq!((&again["status"], &again["error"]), (&json!("pending"), &Value::Null), "{again}");
    world.stop().await;
}

/// A task that waits for another one is its only reader.
#[tokio::test]
async fn a_restart_cancels_what_a_lost_task_waited_for() {
    let world = RestWorld::with_remote("").await;
    let mut safe = task("safe");
    safe["metadata"] = json!({"retry": "safe"});
    for parent in [task("lost"), safe] {
        world.post(ALICE, TASKS, &parent).await.expect(202);
        Worker::claim(&world).await.state(TaskState::Working).await;
    }
    for (id, parent) in [("of-lost", Some("lost")), ("of-safe", Some("safe")), ("of-none", None)] {
        let key = StoredTaskKey::new("alice", "remote", id);
        let mut child = NewTask::new(key, "remote", "delegate", json_text(&json!({"prompt": "p"})));
        let mut members = json!({"callers": ["remote"]});
        if let Some(parent) = parent {
            members["parent"] = json!({"agent": "remote", "task": parent});
        }
        child.metadata = json_text(&json!({"duologue": members}));
        world.apply(StoreChange::CreateTask(child)).await;
    }
    let world = world.restart().await;
    for (id, state, code) in [
        ("lost", "failed", json!("restarted")),
        ("of-lost", "cancelled", json!("parent_lost")),
        ("safe", "submitted", Value::Null),
        ("of-safe", "submitted", Value::Null),
        ("of-none", "submitted", Value::Null),
    ] {
        let found = world.get(ALICE, &format!("{TASKS}/{id}")).await.expect(200);
        assert_eq!((&found["state"], &found["error"]["code"]), (&json!(state), &code), "{found}");
    }
    world.stop().await;
}

#[tokio::test]
async fn a_restart_keeps_what_was_not_begun_and_what_is_safe_to_repeat() {
    let world = RestWorld::with_remote("").await;
    let mut safe = task("safe");
    safe["metadata"] = json!({"retry": "safe"});
    world.post(ALICE, TASKS, &safe).await.expect(202);
    Worker::claim(&world).await.state(TaskState::Working).await;
    world.post(ALICE, TASKS, task("claimed")).await.expect(202);
    Worker::claim(&world).await;
    let world = world.restart().await;
    for _ in 0..2 {
        let mut worker = Worker::claim(&world).await;
        let path = format!("{TASKS}/{}", worker.task.key.task);
        assert_eq!(worker.task.attempts, 2);
        assert_eq!(world.get(ALICE, &path).await.expect(200)["status"], "pending");
        worker.state(TaskState::Working).await;
        worker.complete().await;
        assert_eq!(world.get(ALICE, &path).await.expect(200)["status"], "completed");
    }
    world.stop().await;
}

#[tokio::test]
async fn a_task_that_nobody_would_run_is_refused() {
    let world = RestWorld::start_with("", |settings| settings.has_task_workers = false).await;
    for agent in ["remote", "operator"] {
        world
            .put(ADMIN, &format!("/registry/agents/{agent}"), r#"{"domains": ["travel"]}"#)
            .await
            .expect(201);
        let refused = world.post(ADMIN, &format!("/agents/{agent}/tasks"), task("t1")).await;
        assert!(refused.refused(409, "conflict").contains("takes messages alone"));
    }
    world.post(ALICE, TASKS, task("t1")).await.refused(409, "conflict");
    world.post(ALICE, "/agents/absent/tasks", task("t1")).await.refused(404, "not_found");
    // An address by ability finds no such agent, and no person does tasks.
    let travel = "/agents/agent%3A%2F%2F*%3Fdomain%3Dtravel/tasks";
    world.post(ALICE, travel, task("t1")).await.refused(503, "unreachable");
    let mut with_fallback = task("t1");
    with_fallback["fallback"] = json!("operator");
    world.post(ALICE, travel, &with_fallback).await.refused(409, "conflict");
    assert_eq!(world.get(ADMIN, TASKS).await.expect(200)["pagination"]["total"], 0);
    world.stop().await;
}

#[tokio::test]
async fn agents_alone_begin_dialogues() {
    let world = RestWorld::with_remote("").await;
    let mut dialogue = task("t1");
    dialogue["task"]["type"] = json!("dialogue");
    dialogue["metadata"] = json!({"duologue": {"session": "s1"}});
    let refused = world.post(ALICE, TASKS, &dialogue).await;
    assert!(refused.refused(400, "invalid_parameter").starts_with("metadata.duologue"));
    dialogue["metadata"] = json!({});
    world.post(ALICE, TASKS, &dialogue).await.expect(202);
    world.stop().await;
}

#[tokio::test]
async fn the_tasks_of_a_removed_agent_fail() {
    let world = RestWorld::with_remote("").await;
    world.post(ALICE, TASKS, task("t1")).await.expect(202);
    world.delete(REMOTE, "/registry/agents/remote").await.expect(204);
    let ended = world.get(ALICE, &format!("{TASKS}/t1")).await.expect(200);
    let found = (&ended["status"], &ended["error"]["code"]);
    assert_eq!(found, (&json!("failed"), &json!("agent_removed")), "{ended}");
    world.stop().await;
}
