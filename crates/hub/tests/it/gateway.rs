//! Tasks and messages of a gateway: a real agent in a process, and changes of the store in the place of requests.

mod idle;

use std::path::Path;
use std::time::Duration;

use duologue_client::{Client, Connection};
use duologue_hub::ServerOptions;
use duologue_hub::gateway::{Gateway, GatewayConfig, GatewaySettings};
use duologue_rpc::Transport;
use duologue_schema::envelope::TaskState;
use duologue_store::{
    InboxKey, JsonText, MessageSender, MessageState, NewInboxMessage, NewTask, OutboxQuery, QuestionQuery,
    QuestionState, Store, StoreBatch, StoreChange, StoreTopic, StoredMessage, StoredTask, StoredTaskKey,
    TaskUpdate,
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::hub::{AGENT, MARK};
use crate::remote_agents::until_true;
use crate::rest::world::write_secret;

/// A gateway that serves on a port of its own.
struct Served {
    gateway: Gateway,
    stop: Option<oneshot::Sender<()>>,
    serving: JoinHandle<()>,
}

impl Served {
    async fn start(data: &TempDir) -> Self {
        Served::start_waiting(data, data.path()).await
    }

    /// As [`start`](Self::start), with an agent that reads nothing until there is a file.
    async fn start_waiting(data: &TempDir, mark: &Path) -> Self {
        let program = std::env::current_exe().unwrap();
        write_secret(&data.path().join("path-of-mark"), mark.to_str().unwrap());
        let config = format!(
            r#"
            data = "data"

            [[agents]]
            id = "writer"
            trust = "shared"
            cwd = "work"
            command = [{program:?}, "--exact", "hub::agent_process", "--nocapture"]
            env = {{ {AGENT} = "0", {MARK} = {{ file = "path-of-mark" }} }}

            [[principals]]
            id = "alice"
            certificate = "alice.example.org"
            "#
        );
        let file = data.path().join("hub.toml");
        std::fs::write(&file, config).unwrap();
        let config = GatewayConfig::read(&file).unwrap();
        let mut attempts = 0;
        let gateway = loop {
            let settings = GatewaySettings::new(config.data.clone().unwrap());
            match Gateway::open(config.clone(), settings) {
                Ok(gateway) => break gateway,
                // The tasks of an earlier gateway have not ended yet.
                Err(error) if attempts == 200 => panic!("{error}"),
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
            attempts += 1;
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut options = ServerOptions::default();
        options.token = Some("token".into());
        let (stop, stopped) = oneshot::channel::<()>();
        let serving = tokio::spawn({
            let gateway = gateway.clone();
            async move {
                let stop = async { _ = stopped.await };
                gateway.serve_http(listener, options, stop).await.unwrap();
            }
        });
        Served { gateway, stop: Some(stop), serving }
    }

    /// Ends the gateway as a stopped program does.
    async fn stop(mut self) {
        _ = self.stop.take().unwrap().send(());
        self.serving.await.unwrap();
    }

    async fn in_store<T: Send + 'static>(&self, work: impl FnOnce(&dyn Store) -> T + Send + 'static) -> T {
        let store = self.gateway.store().clone();
        tokio::task::spawn_blocking(move || work(&*store)).await.unwrap()
    }

    /// Ends the gateway as a killed process does: nothing is written, and leases are out.
    async fn kill(self) {
        self.serving.abort();
        _ = self.serving.await;
    }

    async fn apply(&self, change: StoreChange) {
        let batch = StoreBatch::new(self.gateway.store_time()).with(change);
        self.in_store(move |store| store.apply(batch)).await.unwrap();
    }

    async fn create_task(&self, task: NewTask) -> StoredTaskKey {
        let key = task.key.clone();
        self.apply(StoreChange::CreateTask(task)).await;
        key
    }

    async fn send(&self, id: &str, prompt: &str, metadata: Value) {
        let content = json!({"type": "query", "content": prompt, "metadata": metadata});
        let content = JsonText::of(&content).unwrap();
        let sender = MessageSender::new("alice", "alice");
        self.apply(StoreChange::Enqueue(NewInboxMessage::new("writer", id, sender, content))).await;
    }

    /// Waits for a state of a message.
    async fn message_until(&self, id: &str, reached: impl Fn(&StoredMessage) -> bool) -> StoredMessage {
        let mut changes = self.gateway.store().watch(&StoreTopic::Inbox("writer".into()));
        let waiting = async {
            loop {
                let key = InboxKey::new("writer", "alice", id);
                let message = self.in_store(move |store| store.message(&key)).await.unwrap().unwrap();
                if reached(&message) {
                    break message;
                }
                changes.changed().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), waiting).await.expect("the state in time")
    }

    async fn task(&self, key: &StoredTaskKey) -> StoredTask {
        let key = key.clone();
        self.in_store(move |store| store.task(&key)).await.unwrap().unwrap()
    }

    /// Waits for a state of a task.
    async fn task_until(&self, key: &StoredTaskKey, reached: impl Fn(&StoredTask) -> bool) -> StoredTask {
        let mut changes = self.gateway.store().watch(&StoreTopic::Task(key.clone()));
        let waiting = async {
            loop {
                let task = self.task(key).await;
                if reached(&task) {
                    break task;
                }
                changes.changed().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), waiting).await.expect("the state in time")
    }

    /// Creates the task `t1` and the message `m1`, and waits until both are taken from the store.
    async fn claimed_work(&self) -> StoredTaskKey {
        let task = self.create_task(task("t1", "plan")).await;
        self.send("m1", "hello", Value::Null).await;
        // A claim wakes nobody.
        until_true(async || {
            let key = InboxKey::new("writer", "alice", "m1");
            let message = self.in_store(move |store| store.message(&key)).await.unwrap().unwrap();
            self.task(&task).await.attempts > 0 && message.attempts > 0
        })
        .await;
        task
    }

    /// Waits for the end of [`claimed_work`](Self::claimed_work) in its second attempt, and stops.
    async fn ends_second_attempt(self, key: &StoredTaskKey) {
        let ended = self.ended(key).await;
        assert_eq!((&ended.state, ended.attempts), (&TaskState::Completed, 2), "{ended:?}");
        let message = self.message_until("m1", is_answered).await;
        assert_eq!((message.state, message.attempts), (MessageState::Done, 2), "{message:?}");
        self.stop().await;
    }

    async fn ended(&self, key: &StoredTaskKey) -> StoredTask {
        self.task_until(key, |task| task.state.is_final()).await
    }
}

fn task(id: &str, prompt: &str) -> NewTask {
    let parameters = JsonText::of(&json!({ "prompt": prompt })).unwrap();
    NewTask::new(StoredTaskKey::new("alice", "writer", id), "alice", "write", parameters)
}

fn is_answered(message: &StoredMessage) -> bool {
    matches!(message.state, MessageState::Done | MessageState::Dead)
}

/// Waits until the logs of the sessions have so many prompts.
async fn prompted(data: &TempDir, count: usize) {
    let sessions = data.path().join("data/agents/writer/sessions");
    let files = |folder: std::path::PathBuf| {
        std::fs::read_dir(folder).into_iter().flatten().map(|file| file.unwrap().path())
    };
    let prompts = || -> usize {
        let logs = files(sessions.clone()).flat_map(files);
        let texts = logs.map(|log| std::fs::read_to_string(log).unwrap_or_default());
        texts.map(|text| text.matches(r#""method":"session/prompt""#).count()).sum()
    };
    until_true(async || prompts() >= count).await;
}

fn result(task: &StoredTask) -> Value {
    task.result.as_ref().expect("a result").parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_runs_as_a_turn_and_queues_its_posts() {
    let data = tempfile::tempdir().unwrap();
    let served = Served::start(&data).await;
    let mut new = task("t1", "plan");
    new.callback = Some("https://example.com/done".into());
    new.stream_endpoint = Some("https://example.com/chunks".into());
    let key = served.create_task(new).await;
    let ended = served.ended(&key).await;
    assert_eq!((&ended.state, ended.progress), (&TaskState::Completed, Some(100)), "{ended:?}");
    assert_eq!(result(&ended)["stopReason"], "end_turn");
    let text = result(&ended)["text"].as_str().unwrap().to_owned();
    assert!(!text.is_empty() && ended.session.is_some() && ended.callback_queued);

    let posts = served.in_store(|store| store.deliveries(&OutboxQuery::default())).await.unwrap().items;
    let bodies = |url: &str| -> Vec<Value> {
        posts.iter().filter(|post| post.url == url).map(|post| post.body.parse().unwrap()).collect()
    };
    let done = bodies("https://example.com/done");
    let agent = &ended.key.agent;
    let expected = json!({"taskId": "t1", "agentId": agent, "status": "completed", "result": result(&ended)});
    assert_eq!(done, [expected]);
    let chunks = bodies("https://example.com/chunks");
    let last = chunks.len() - 1;
    for (position, chunk) in chunks.iter().enumerate() {
        assert_eq!((&chunk["position"], &chunk["complete"]), (&json!(position), &json!(position == last)));
    }
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_of_a_task_is_answered_by_another_call() {
    let data = tempfile::tempdir().unwrap();
    let served = Served::start(&data).await;
    let key = served.create_task(task("t1", "permission")).await;
    let waiting = served.task_until(&key, |task| task.state == TaskState::InputRequired).await;
    assert!(waiting.started);
    let mut query = QuestionQuery::default();
    query.state = Some(QuestionState::Open);
    let question = served.in_store(move |store| store.questions(&query)).await.unwrap().items.remove(0);
    let body: Value = question.body.parse().unwrap();
    let option = &body["options"][0]["optionId"];
    assert_eq!(body["type"], "permission");
    let answer = JsonText::of(&json!({ "optionId": option })).unwrap();
    let answered = StoreChange::AnswerQuestion {
        task: key.clone(),
        question: question.id,
        answer,
        answered_by: "alice".into(),
    };
    served.apply(answered).await;
    // The scenario can ask again; every question gets its first option.
    let ended = loop {
        let reached = served
            .task_until(&key, |task| task.state.is_final() || task.state == TaskState::InputRequired)
            .await;
        if reached.state.is_final() {
            break reached;
        }
        let mut query = QuestionQuery::default();
        query.state = Some(QuestionState::Open);
        for question in served.in_store(move |store| store.questions(&query)).await.unwrap().items {
            let body: Value = question.body.parse().unwrap();
            let answer = JsonText::of(&json!({ "optionId": body["options"][0]["optionId"] })).unwrap();
            let (task, question, answered_by) = (key.clone(), question.id, "alice".to_owned());
            served.apply(StoreChange::AnswerQuestion { task, question, answer, answered_by }).await;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    assert_eq!(ended.state, TaskState::Completed, "{ended:?}");
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_is_cancelled_and_times_out() {
    let data = tempfile::tempdir().unwrap();
    let served = Served::start(&data).await;
    let key = served.create_task(task("t1", "cancel")).await;
    let running = served.task_until(&key, |task| task.session.is_some()).await;
    let cancelling = TaskUpdate::new(key.clone(), running.version).state(TaskState::Cancelling);
    served.apply(StoreChange::UpdateTask(cancelling)).await;
    let ended = served.ended(&key).await;
    assert_eq!((&ended.state, &ended.error), (&TaskState::Cancelled, &None));

    let mut slow = task("t2", "cancel");
    slow.timeout_ms = Some(300);
    let key = served.create_task(slow).await;
    let ended = served.ended(&key).await;
    assert_eq!(ended.error.as_ref().map(|error| error.code.as_str()), Some("timeout"), "{ended:?}");

    let key = served.create_task(task("t3", "error")).await;
    let ended = served.ended(&key).await;
    assert_eq!(ended.error.as_ref().map(|error| error.code.as_str()), Some("agent_failed"), "{ended:?}");
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_gets_the_text_of_a_turn() {
    let data = tempfile::tempdir().unwrap();
    let served = Served::start(&data).await;
    served.send("m1", "hello", Value::Null).await;
    let message = served.message_until("m1", is_answered).await;
    let response: Value = message.response.expect("a response").parse().unwrap();
    assert_eq!((&response["type"], &response["mimeType"]), (&json!("response"), &json!("text/plain")));
    assert!(response["content"].as_str().is_some_and(|text| !text.is_empty()));
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_that_ran_is_not_started_again_after_a_restart() {
    let data = tempfile::tempdir().unwrap();
    let served = Served::start(&data).await;
    let key = served.create_task(task("t1", "cancel")).await;
    served.task_until(&key, |task| task.session.is_some()).await;
    served.send("m1", "cancel", Value::Null).await;
    prompted(&data, 2).await;
    served.kill().await;
    let served = Served::start(&data).await;
    let ended = served.ended(&key).await;
    let code = ended.error.as_ref().map(|error| (error.code.as_str(), error.retryable));
    assert_eq!((&ended.state, code), (&TaskState::Failed, Some(("restarted", true))), "{ended:?}");
    assert!(ended.dead);
    let message = served.message_until("m1", is_answered).await;
    assert_eq!((message.state, message.attempts), (MessageState::Dead, 1));
    assert!(message.error.as_deref().is_some_and(|error| error.starts_with("restarted: ")), "{message:?}");
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_that_is_safe_to_repeat_runs_again_after_a_restart() {
    let data = tempfile::tempdir().unwrap();
    let served = Served::start(&data).await;
    let mut safe = task("t1", "cancel");
    safe.retry_safe = true;
    let key = served.create_task(safe).await;
    served.send("m1", "cancel", json!({"retry": "safe"})).await;
    prompted(&data, 2).await;
    served.kill().await;
    let served = Served::start(&data).await;
    let runs = served.task_until(&key, |task| task.state == TaskState::Working).await;
    assert_eq!(runs.attempts, 2);
    served.message_until("m1", |message| message.attempts == 2).await;
    prompted(&data, 4).await;
    served.stop().await;
}

/// A session takes time to open. Work whose session is not open when the server ends has no effect yet.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_that_no_agent_has_begun_runs_after_a_restart() {
    let data = tempfile::tempdir().unwrap();
    let mark = data.path().join("mark");
    let served = Served::start_waiting(&data, &mark).await;
    let key = served.claimed_work().await;
    served.kill().await;
    let served = Served::start(&data).await;
    served.ends_second_attempt(&key).await;
}

/// A drain waits for a task that was taken from the queue, and for a message, also before their turns have begun.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_waits_for_work_whose_turn_has_not_begun() {
    let data = tempfile::tempdir().unwrap();
    let mark = data.path().join("mark");
    let served = Served::start_waiting(&data, &mark).await;
    let key = served.claimed_work().await;
    assert_eq!(served.task(&key).await.state, TaskState::Submitted, "the turn has begun");

    // Work that has not begun counts as running.
    assert_eq!(served.gateway.drain(Duration::ZERO).await, 2);
    std::fs::write(&mark, "").unwrap();
    assert_eq!(served.gateway.drain(Duration::from_secs(60)).await, 0);
    let ended = served.task(&key).await;
    assert_eq!(ended.state, TaskState::Completed, "{ended:?}");
    assert_eq!(served.message_until("m1", is_answered).await.state, MessageState::Done);
    // New work waits.
    let key = served.create_task(task("t2", "plan")).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(served.task(&key).await.state, TaskState::Submitted);
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_that_no_agent_has_begun_waits_for_the_start_after_a_drain() {
    let data = tempfile::tempdir().unwrap();
    let served = Served::start_waiting(&data, &data.path().join("mark")).await;
    let key = served.claimed_work().await;
    assert_eq!(served.gateway.drain(Duration::ZERO).await, 2);
    served.stop().await;
    let served = Served::start(&data).await;
    served.ends_second_attempt(&key).await;
}

/// A stopped server ends the turns of its agents. What they had begun has the same end as after a crash.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_that_a_stop_ends_has_the_end_of_a_restart() {
    let data = tempfile::tempdir().unwrap();
    let served = Served::start(&data).await;
    let key = served.create_task(task("t1", "cancel")).await;
    served.send("m1", "cancel", Value::Null).await;
    let mut safe = task("t2", "cancel");
    safe.retry_safe = true;
    let safe = served.create_task(safe).await;
    prompted(&data, 3).await;
    served.stop().await;
    let served = Served::start(&data).await;
    let ended = served.ended(&key).await;
    assert_eq!(ended.error.as_ref().map(|error| error.code.as_str()), Some("restarted"), "{ended:?}");
    let message = served.message_until("m1", is_answered).await;
    assert!(message.error.as_deref().is_some_and(|error| error.starts_with("restarted: ")), "{message:?}");
    let again = served.task_until(&safe, |task| task.state == TaskState::Working).await;
    assert_eq!(again.attempts, 2, "{again:?}");
    served.stop().await;
}

async fn client(hub: &duologue_hub::Hub, principal: &str) -> Connection {
    let (ours, theirs) = Transport::memory();
    let (hub, principal) = (hub.clone(), principal.to_owned());
    tokio::spawn(async move { hub.serve_as(principal, theirs).await });
    Client::new(()).connect(ours).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_sessions_of_another_principal_do_not_exist() {
    let data = tempfile::tempdir().unwrap();
    let hub = crate::hub::hub_in(data.path());
    let (alice, bob) = (client(&hub, "alice").await, client(&hub, "bob").await);
    let session = alice.new_session("/tmp").await.unwrap();
    let id = session.id().clone();
    for error in [
        bob.load_session(id.clone(), "/tmp").unwrap().outcome().await.unwrap_err(),
        bob.resume_session(id.clone(), "/tmp").await.unwrap_err(),
        bob.resume_session("019a0000-0000-7000-8000-000000000000", "/tmp").await.unwrap_err(),
    ] {
        assert!(error.to_string().contains("unknown session"), "{error}");
    }
    // A deletion of something that does not exist succeeds, and changes nothing.
    bob.delete_session(id.clone()).await.unwrap();
    assert!(bob.list_sessions(None).unwrap().all().await.unwrap().is_empty());
    let listed = alice.list_sessions(None).unwrap().all().await.unwrap();
    assert_eq!(listed.iter().map(|session| &session.session_id).collect::<Vec<_>>(), [&id]);
    hub.shut_down().await;
}
