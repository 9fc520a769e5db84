//! The ends of tasks, and the gateway in which other tests of this crate write to the store.

use std::sync::Mutex;

use duologue_rpc::Lock as _;
use duologue_schema::ToolCallUpdate;
use duologue_store::{Claim, NewTask, OutboxQuery, OutboxState, SqliteStore};
use tempfile::TempDir;
use tokio::time::advance;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::set_default;
use tracing::{Event, Metadata, Subscriber};

use super::*;
use crate::clock::HubClock;
use crate::gateway::runner::queue_ends;
use crate::gateway::{Gateway, GatewayConfig, GatewaySettings};

/// Opens a gateway with the agent `writer`, which is not started, and with a store in memory.
pub(crate) fn gateway(more: &str, change: impl FnOnce(&mut StoreSettings)) -> (Arc<GatewayShared>, TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut store = StoreSettings::default();
    change(&mut store);
    let mut settings = GatewaySettings::new(folder.path());
    settings.backend = Some(Arc::new(SqliteStore::in_memory(store).expect("a store")));
    settings.clock = HubClock::following_tokio(1_800_000_000_000);
    let agent = if more.is_empty() { "command = [\"false\"]" } else { more };
    let config = format!("loopback_callbacks = true\n[[agents]]\nid = \"writer\"\n{agent}\n");
    let config: GatewayConfig = toml::from_str(&config).expect("a configuration");
    (Gateway::open(config, settings).expect("a gateway").shared, folder)
}

/// Creates a task with a callback, which an agent has started.
pub(crate) async fn started(gateway: &Arc<GatewayShared>, owner: &str, id: &str) -> (StoredTask, LeaseToken) {
    started_as(gateway, owner, id, |new| new.callback = Some("https://example.com/done".to_owned())).await
}

async fn started_as(
    gateway: &Arc<GatewayShared>,
    owner: &str,
    id: &str,
    change: impl FnOnce(&mut NewTask),
) -> (StoredTask, LeaseToken) {
    let key = StoredTaskKey::new(owner, "writer", id);
    let mut new = NewTask::new(key.clone(), owner, "write", JsonText::default());
    change(&mut new);
    let batch = StoreBatch::new(gateway.time()).with(StoreChange::CreateTask(new));
    gateway.store.apply(batch).expect("a task");
    let claim = Claim::new(gateway.time(), LEASE, "hub");
    let mut claimed = gateway.store.claim_tasks("writer", &claim).expect("a claim");
    let Leased { entry, lease } = claimed.entries.remove(0);
    let run = TaskRun { gateway: gateway.clone(), key, created: entry.created, lease };
    run.change(|_, update| Some(update.state(TaskState::Working))).await.expect("a start");
    (entry, lease)
}

async fn finish(gateway: &Arc<GatewayShared>, owner: &str, id: &str, end: TaskEnd) -> StoredTask {
    let (task, lease) = started(gateway, owner, id).await;
    let run = TaskRun { gateway: gateway.clone(), key: task.key.clone(), created: task.created, lease };
    run.finish(&task, end).await;
    gateway.store.task(&task.key).expect("the store").expect("the task")
}

/// Returns an end whose result has so many bytes.
fn completed(bytes: usize) -> TaskEnd {
    let result = JsonText::of(&"x".repeat(bytes)).ok();
    let chunks = ChunkPosts::default();
    TaskEnd { state: TaskState::Completed, result, error: None, chunks, is_lost: false }
}

/// Returns the bodies of the posts that wait.
fn waiting_posts(gateway: &GatewayShared) -> Vec<Value> {
    let mut query = OutboxQuery::default();
    query.state = Some(OutboxState::Pending);
    let posts = gateway.store.deliveries(&query).expect("the outbox").items;
    posts.iter().map(|post| post.body.parse().expect("JSON")).collect()
}

#[tokio::test]
async fn an_end_that_the_store_refuses_is_a_smaller_one() {
    let (gateway, _folder) = gateway("", |_| {});
    // The second one fits alone, and not in its callback.
    for (id, bytes) in [("t1", 5 << 20), ("t2", (4 << 20) - 2)] {
        let task = finish(&gateway, "alice", id, completed(bytes)).await;
        let error = task.error.expect("an error");
        assert_eq!((task.state, task.callback_queued), (TaskState::Failed, true));
        assert_eq!((error.code.as_str(), error.retryable), ("too_large", false));
        assert!(error.message.contains("`StoreSettings::content_bytes`"), "{}", error.message);
    }
    let posts = waiting_posts(&gateway);
    assert!(posts.len() == 2 && posts.iter().all(|post| post["error"]["code"] == "too_large"), "{posts:?}");
}

#[tokio::test]
async fn the_error_of_an_agent_is_cut() {
    let (gateway, _folder) = gateway("", |_| {});
    let end = TaskEnd::failed(&"c".repeat(200), "x".repeat(5_000), true);
    let task = finish(&gateway, "alice", "t1", end).await;
    let error = task.error.expect("an error");
    assert_eq!((error.code.as_str(), error.message.len(), error.retryable), ("agent_failed", 4_096, true));
}

#[tokio::test(start_paused = true)]
async fn work_that_ends_in_front_of_a_full_outbox_is_not_lost() {
    let (gateway, _folder) = gateway("", |settings| settings.outbox_entries = 1);
    let first = finish(&gateway, "alice", "t1", completed(1)).await;
    let second = finish(&gateway, "alice", "t2", completed(2)).await;
    assert_eq!((first.state, first.callback_queued), (TaskState::Completed, true));
    assert_eq!((&second.state, second.callback_queued), (&TaskState::Completed, false));
    assert_eq!(second.result.map(|result| result.as_str().len()), Some(4));
    // Another owner ends a task, and the sweep queues the callback that is due for it alone.
    let (task, _) = started(&gateway, "bob", "t3").await;
    let version = gateway.store.task(&task.key).expect("the store").expect("the task").version;
    let update = TaskUpdate::new(task.key.clone(), version).state(TaskState::Cancelled);
    let batch = StoreBatch::new(gateway.time()).with(StoreChange::UpdateTask(update));
    gateway.store.apply(batch).expect("an end");
    queue_ends(&*gateway.store, gateway.time(), 0).expect("a sweep");
    let ids = |gateway: &GatewayShared| {
        waiting_posts(gateway).iter().map(|post| post["taskId"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(ids(&gateway), ["t1", "t3"]);
    // The callback follows when there is room.
    deliver_first(&gateway);
    queue_ends(&*gateway.store, gateway.time(), 0).expect("a sweep");
    assert_eq!(ids(&gateway), ["t3", "t2"]);
}

/// Makes room in the outbox.
fn deliver_first(gateway: &GatewayShared) {
    let claim = Claim::new(gateway.time(), LEASE, "hub");
    let lease = gateway.store.claim_deliveries(&claim).expect("a claim").entries[0].lease;
    let batch = StoreBatch::new(gateway.time()).with(StoreChange::Delivered { lease });
    gateway.store.apply(batch).expect("a delivery");
}

#[tokio::test(start_paused = true)]
async fn a_task_with_the_id_of_an_erased_one_is_another_task() {
    let (gateway, _folder) = gateway("", |_| {});
    let (task, lease) = started(&gateway, "alice", "t1").await;
    let run = TaskRun { gateway: gateway.clone(), key: task.key.clone(), created: task.created, lease };
    assert!(found_again(&task)(&*gateway.store).expect("the store"));
    let erase = StoreChange::ErasePrincipal { principal: "alice".to_owned() };
    gateway.store.apply(StoreBatch::new(gateway.time()).with(erase)).expect("an erasure");
    advance(Duration::from_millis(1)).await;
    let (other, _) = started(&gateway, "alice", "t1").await;
    assert!(other.seq > task.seq, "a number is never used again");
    assert!(!found_again(&task)(&*gateway.store).expect("the store"));
    assert!(matches!(run.look(&mut OpenQuestions::default()).await, Ok(Looked::Ended)));
}

/// Lets the output of a task be posted.
fn stream(new: &mut NewTask) {
    new.stream_endpoint = Some("https://example.com/chunks".to_owned());
}

#[tokio::test]
async fn the_last_chunk_follows_posts_that_are_older_than_the_retention() {
    let (gateway, _folder) = gateway("", |_| {});
    let (task, lease) = started_as(&gateway, "alice", "t1", stream).await;
    let run = TaskRun { gateway: gateway.clone(), key: task.key.clone(), created: task.created, lease };
    let mut chunks = ChunkPosts::of(&task);
    chunks.add("one");
    run.write_output(&mut chunks, None).await;
    deliver_first(&gateway);
    let purge = StoreChange::Purge { ended_before: u64::MAX >> 1, principal: None };
    gateway.store.apply(StoreBatch::new(gateway.time()).with(purge)).expect("a purge");
    extend_lease(&gateway, lease, Duration::ZERO).await;
    gateway.store.sweep(gateway.time()).expect("a sweep");
    queue_ends(&*gateway.store, gateway.time(), 0).expect("the last posts");
    let last = json!({"chunk": "", "position": 1, "complete": true, "truncated": true});
    assert_eq!(waiting_posts(&gateway), [last]);
}

/// The numbers of bytes that events say are left out.
#[derive(Clone, Default)]
struct LeftOut(Arc<Mutex<Vec<u64>>>);

impl Visit for LeftOut {
    fn record_u64(&mut self, field: &Field, value: u64) {
        if field.name() == "left_out" {
            self.0.lock_unpoisoned().push(value);
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn std::fmt::Debug) {}
}

impl Subscriber for LeftOut {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut self.clone());
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[tokio::test]
async fn an_end_says_how_much_output_is_left_out() {
    let left_out = LeftOut::default();
    let _guard = set_default(left_out.clone());
    let (gateway, _folder) = gateway("", |_| {});
    let (task, lease) = started_as(&gateway, "alice", "t1", stream).await;
    let run = TaskRun { gateway: gateway.clone(), key: task.key.clone(), created: task.created, lease };
    let mut chunks = ChunkPosts::of(&task);
    for part in ["a".repeat(WAITING_BYTES).as_str(), "lost"] {
        chunks.add(part);
    }
    run.finish(&task, TaskEnd { chunks, ..completed(1) }).await;
    assert_eq!(*left_out.0.lock_unpoisoned(), [4]);
}

#[tokio::test(start_paused = true)]
async fn the_last_chunk_waits_for_a_place_in_the_outbox() {
    let (gateway, _folder) = gateway("", |settings| settings.outbox_entries = 1);
    let (task, lease) = started_as(&gateway, "alice", "t1", stream).await;
    let run = TaskRun { gateway: gateway.clone(), key: task.key.clone(), created: task.created, lease };
    let mut chunks = ChunkPosts::of(&task);
    chunks.add("one");
    run.write_output(&mut chunks, None).await;
    chunks.add("two");
    // The first chunk has the only place.
    run.write_output(&mut chunks, None).await;
    run.finish(&task, TaskEnd { chunks, ..completed(1) }).await;
    let first = json!({"chunk": "one", "position": 0, "complete": false});
    queue_ends(&*gateway.store, gateway.time(), 0).expect("a sweep");
    assert_eq!(waiting_posts(&gateway), [first]);
    deliver_first(&gateway);
    queue_ends(&*gateway.store, gateway.time(), 0).expect("a sweep");
    let last = json!({"chunk": "", "position": 1, "complete": true, "truncated": true});
    assert_eq!(waiting_posts(&gateway), std::slice::from_ref(&last));
    queue_ends(&*gateway.store, gateway.time(), 0).expect("another sweep");
    assert_eq!(waiting_posts(&gateway), [last]);
}

#[test]
fn output_that_waits_is_bounded_and_the_rest_is_marked() {
    let mut chunks = ChunkPosts { url: Some(String::new()), ..ChunkPosts::default() };
    let text = "é".repeat(WAITING_BYTES / 2 - 1);
    chunks.add(&text);
    for part in ["a", "é", "lost"] {
        chunks.add(part);
    }
    assert_eq!((chunks.waiting.len(), chunks.left_out), (WAITING_BYTES - 1, 6));
    let body = |post: &StoreChange| match post {
        StoreChange::PushDelivery(post) => post.body.parse::<Value>().expect("JSON"),
        other => panic!("{other:?}"),
    };
    let (posts, bytes) = chunks.posts(false);
    let bodies: Vec<Value> = posts.iter().map(body).collect();
    let marks = |bodies: &[Value]| bodies.iter().map(|body| body["truncated"] == true).collect::<Vec<_>>();
    assert_eq!(marks(&bodies), [false, false, false, true]);
    assert_eq!(chunks.posted(posts.len() as u64, bytes), 6);
    chunks.add("next");
    let (posts, _) = chunks.posts(true);
    let next = json!({"chunk": "next", "position": 4, "complete": true});
    assert_eq!(posts.iter().map(body).collect::<Vec<_>>(), [next]);
}

#[tokio::test(start_paused = true)]
async fn a_question_ends_after_the_seconds_of_its_setting() {
    let (gateway, _folder) = gateway("command = [\"false\"]\n[limits]\nquestion_seconds = 30", |_| {});
    let (task, lease) = started(&gateway, "alice", "t1").await;
    let run = TaskRun { gateway: gateway.clone(), key: task.key.clone(), created: task.created, lease };
    let request = RequestPermissionRequest::new("s", ToolCallUpdate::new("call"), Vec::new());
    let (answer, answered) = oneshot::channel();
    let mut open = OpenQuestions::default();
    let question = WorkQuestion { id: None, request, answer };
    run.ask(&mut open, question, &SessionId::from("s")).await.expect("a question");
    let found = || {
        let mut query = QuestionQuery::default();
        query.task = Some(task.key.clone());
        let question = gateway.store.questions(&query).expect("the store").items.remove(0).state;
        (gateway.store.task(&task.key).expect("the store").expect("the task").state, question)
    };
    advance(Duration::from_secs(29)).await;
    run.withdraw_expired(&mut open).await;
    assert_eq!(found(), (TaskState::InputRequired, QuestionState::Open));
    advance(Duration::from_secs(1)).await;
    run.withdraw_expired(&mut open).await;
    assert_eq!(found(), (TaskState::Working, QuestionState::Withdrawn));
    assert!(answered.await.is_err(), "the agent is to get a cancellation");
}

#[test]
fn output_is_posted_in_order_in_parts_that_the_store_takes() {
    let text = "a\u{1}é\n".repeat(700_000);
    let mut chunks = ChunkPosts { url: Some(String::new()), waiting: text.clone(), ..ChunkPosts::default() };
    let read = |posts: Vec<StoreChange>| {
        let bodies = posts.into_iter().filter_map(|post| match post {
            StoreChange::PushDelivery(post) => Some(post.body),
            _ => None,
        });
        bodies.inspect(|body| assert!(body.as_str().len() < POST_BYTES + 100)).collect::<Vec<_>>()
    };
    let (posts, bytes) = chunks.posts(false);
    let mut bodies = read(posts);
    assert_eq!(bodies.len(), POSTS);
    (chunks.position, chunks.waiting) = (POSTS as u64, text.get(bytes..).expect("a boundary").to_owned());
    bodies.extend(read(chunks.posts(true).0));
    let mut joined = String::new();
    for (position, body) in bodies.iter().enumerate() {
        let body: Value = body.parse().expect("JSON");
        assert_eq!(
            (&body["position"], &body["complete"]),
            (&json!(position), &json!(position + 1 == bodies.len()))
        );
        joined.push_str(body["chunk"].as_str().expect("a text"));
    }
    assert!(joined == text && bodies.len() > POSTS + 1);
}
