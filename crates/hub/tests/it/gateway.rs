//! Tasks and messages of a gateway: a real agent in a process, and changes of the store in the place of requests.

use std::path::Path;
use std::time::Duration;

use duologue_client::{Client, Connection};
use duologue_hub::gateway::{Gateway, GatewayConfig, GatewaySettings};
use duologue_hub::{AccessToken, ServerOptions};
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
        let config = format!(
            r#"
            data = "data"

            [[agents]]
            id = "writer"
            command = [{program:?}, "--exact", "hub::agent_process", "--nocapture"]
            env = {{ {AGENT} = "0", {MARK} = {mark:?} }}
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
        options.token = Some(AccessToken::new("token"));
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

    async fn apply(&self, change: StoreChange) {
        let batch = StoreBatch::new(self.gateway.store_time()).with(change);
        self.in_store(move |store| store.apply(batch)).await.unwrap();
    }

    async fn create_task(&self, task: NewTask) -> StoredTaskKey {
        let key = task.key.clone();
        self.apply(StoreChange::CreateTask(task)).await;
        key
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

    async fn ended(&self, key: &StoredTaskKey) -> StoredTask {
        self.task_until(key, |task| task.state.is_final()).await
    }
}

fn task(id: &str, prompt: &str) -> NewTask {
    let parameters = JsonText::of(&json!({ "prompt": prompt })).unwrap();
    NewTask::new(StoredTaskKey::new("alice", "writer", id), "alice", "write", parameters)
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
    assert_eq!((&ended.state, ended.progress), (&TaskState::Completed, 100), "{ended:?}");
    assert_eq!(result(&ended)["stopReason"], "end_turn");
    let text = result(&ended)["text"].as_str().unwrap().to_owned();
    assert!(!text.is_empty() && ended.session.is_some() && ended.callback_queued);

    let posts = served.in_store(|store| store.deliveries(&OutboxQuery::default())).await.unwrap().items;
    let bodies = |url: &str| -> Vec<Value> {
        posts.iter().filter(|post| post.url == url).map(|post| post.body.parse().unwrap()).collect()
    };
    let done = bodies("https://example.com/done");
    assert_eq!(done, [json!({"taskId": "t1", "status": "completed", "result": result(&ended)})]);
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
    let content = json!({"type": "query", "content": "hello", "mimeType": "text/plain"});
    let content = JsonText::of(&content).unwrap();
    let sender = MessageSender::new("alice", "alice");
    served.apply(StoreChange::Enqueue(NewInboxMessage::new("writer", "m1", sender, content))).await;
    let answered = |message: &StoredMessage| matches!(message.state, MessageState::Done | MessageState::Dead);
    let mut changes = served.gateway.store().watch(&StoreTopic::Inbox("writer".into()));
    let message = loop {
        let key = InboxKey::new("writer", "alice", "m1");
        let message = served.in_store(move |store| store.message(&key)).await.unwrap().unwrap();
        if answered(&message) {
            break message;
        }
        changes.changed().await;
    };
    let response: Value = message.response.expect("a response").parse().unwrap();
    assert_eq!((&response["type"], &response["mimeType"]), (&json!("response"), &json!("text/plain")));
    assert!(response["content"].as_str().is_some_and(|text| !text.is_empty()));
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_ran_is_not_started_again_after_a_restart() {
    let data = tempfile::tempdir().unwrap();
    let served = Served::start(&data).await;
    let key = served.create_task(task("t1", "cancel")).await;
    served.task_until(&key, |task| task.session.is_some()).await;
    // The workers of a killed process write nothing: the store is closed with a lease that is out.
    served.serving.abort();
    _ = served.serving.await;
    drop(served.gateway);
    let served = Served::start(&data).await;
    let ended = served.ended(&key).await;
    let code = ended.error.as_ref().map(|error| (error.code.as_str(), error.retryable));
    assert_eq!((&ended.state, code), (&TaskState::Failed, Some(("worker_lost", true))), "{ended:?}");
    assert!(ended.dead);
    served.stop().await;
}

/// A drain waits for a task that was taken from the queue, and for a message, also before their turns have begun.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_waits_for_work_whose_turn_has_not_begun() {
    let data = tempfile::tempdir().unwrap();
    let mark = data.path().join("mark");
    let served = Served::start_waiting(&data, &mark).await;
    let key = served.create_task(task("t1", "plan")).await;
    let content = JsonText::of(&json!({"type": "query", "content": "hello"})).unwrap();
    let sender = MessageSender::new("alice", "alice");
    served.apply(StoreChange::Enqueue(NewInboxMessage::new("writer", "m1", sender, content))).await;
    let taken = served.task_until(&key, |task| task.state == TaskState::Working).await;
    assert_eq!(taken.session, None, "the turn has begun");
    let inbox = InboxKey::new("writer", "alice", "m1");
    let message = |served: &Served| {
        let (store, inbox) = (served.gateway.store().clone(), inbox.clone());
        tokio::task::spawn_blocking(move || store.message(&inbox).unwrap().unwrap())
    };
    while message(&served).await.unwrap().attempts == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }

    // Work that has not begun counts as running.
    assert_eq!(served.gateway.drain(Duration::ZERO).await, 2);
    std::fs::write(&mark, "").unwrap();
    assert_eq!(served.gateway.drain(Duration::from_secs(60)).await, 0);
    let ended = served.task(&key).await;
    assert_eq!(ended.state, TaskState::Completed, "{ended:?}");
    assert_eq!(message(&served).await.unwrap().state, MessageState::Done);
    // New work waits.
    let key = served.create_task(task("t2", "plan")).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(served.task(&key).await.state, TaskState::Submitted);
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
