//! The workers of the agents that the gateway starts: they take messages and tasks from the store.

use std::collections::HashSet;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use duologue_store::{
    Claim, Claimed, Error as StoreError, JsonText, LeaseToken, Leased, NewDelivery, OutboxKind,
    RegistrySource, Store, StoreBatch, StoreChange, StoreTime, StoreTopic, StoredMessage, StoredTask,
    StoredTaskKey, SweepTimes, TaskQuery, TaskUpdate,
};
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::gateway::config::AgentConfig;
use crate::gateway::work::WorkPlace;
use crate::gateway::work_seats::WorkSeats;
use crate::gateway::{GatewayShared, Refusal, RefusalCode, events, messages, remote, states, task_run};

/// The time after which the work of a worker that does not renew its lease counts as lost.
pub(crate) const LEASE: Duration = Duration::from_secs(60);
/// The time between two renewals.
pub(crate) const RENEWAL: Duration = Duration::from_secs(15);
/// The pause after a failure of the store.
const AFTER_FAILURE: Duration = Duration::from_secs(1);
/// The time for which a change waits for a place in a full outbox.
const FULL_OUTBOX: Duration = Duration::from_secs(5);
/// The least time between two sweeps of the store.
const SWEEP: Duration = Duration::from_secs(1);
/// The longest time between two sweeps. The time of day can be set, which wakes nobody.
const LONGEST_PAUSE: Duration = Duration::from_secs(600);
/// The time after which an agent without a heartbeat is offline.
const STALE: Duration = Duration::from_secs(60);

/// Starts the workers of an agent.
pub(crate) fn spawn(workers: &mut JoinSet<()>, gateway: &Arc<GatewayShared>, agent: &str) {
    let Some(entry) = gateway.hosted(agent) else { return };
    workers.spawn(remote::keep_connected(gateway.clone(), entry));
    let (shared, name) = (gateway.clone(), agent.to_owned());
    workers.spawn(async move {
        let topic = StoreTopic::AgentTasks(name.clone());
        let claim = |store: &dyn Store, agent: &str, claim: &Claim| store.claim_tasks(agent, claim);
        let places = |agent: &AgentConfig| (agent.max_tasks, agent.max_asking_tasks);
        let owner = |task: &StoredTask| task.key.owner.clone();
        serve_queue(&shared, &name, places, &topic, claim, owner, task_run::run).await;
    });
    let (shared, name) = (gateway.clone(), agent.to_owned());
    workers.spawn(async move {
        let topic = StoreTopic::Inbox(name.clone());
        let claim = |store: &dyn Store, agent: &str, claim: &Claim| store.claim_messages(agent, claim);
        let places = |agent: &AgentConfig| (agent.max_messages, 0);
        let owner = |message: &StoredMessage| message.from.principal.clone();
        serve_queue(&shared, &name, places, &topic, claim, owner, messages::run).await;
    });
}

/// Takes entries from a queue while there are free places, and works on them. `places` returns those of work, and those
/// of work that needs answers of its owner.
async fn serve_queue<T, C, F>(
    gateway: &Arc<GatewayShared>,
    agent: &str,
    places: impl Fn(&AgentConfig) -> (usize, usize),
    topic: &StoreTopic,
    claim_entries: C,
    owner: impl Fn(&T) -> String,
    run: impl Fn(Arc<GatewayShared>, Leased<T>, WorkPlace) -> F,
) where
    T: Send + 'static,
    C: Fn(&dyn Store, &str, &Claim) -> duologue_store::Result<Claimed<T>> + Copy + Send + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    let Some(entry) = gateway.hosted(agent) else { return };
    let mut online = entry.online.subscribe();
    let mut closing = gateway.closing.subscribe();
    let mut running = JoinSet::new();
    let mut changes = gateway.store.watch(topic);
    let seats = WorkSeats::new(gateway.config.has_principals());
    let is_configured = gateway.agents.contains_key(agent);
    while !*closing.borrow_and_update() {
        // An agent that attaches again can have another number.
        let (places, asking) = gateway.hosted(agent).map_or((0, 0), |entry| places(&entry.config));
        let full = seats.full_owners(places);
        let mut pause = None;
        // A drain that begins from here on waits for what is claimed.
        let claiming = WorkPlace::claiming(gateway);
        // The work of an agent that is away waits.
        if let Some(full) = full
            && *online.borrow_and_update()
            && !gateway.is_draining()
        {
            // One at a time: with its place, its owner can be at its limit.
            let claim = Claim::new(gateway.time(), LEASE, "hub").except(full);
            let name = agent.to_owned();
            let take = move |store: &dyn Store| {
                // The program of an entry that was made over REST since claims its messages itself.
                let is_ours = is_configured
                    || store.agent(&name)?.is_some_and(|entry| entry.source == RegistrySource::Attached);
                is_ours.then(|| claim_entries(store, &name, &claim)).transpose()
            };
            match gateway.in_store(take).await {
                // Its program attaches again, or claims them itself.
                Ok(None) => pause = Some(AFTER_FAILURE),
                Ok(Some(claimed)) => {
                    if let Some(leased) = claimed.entries.into_iter().next() {
                        let seat = seats.take(&owner(&leased.entry), asking);
                        let work = run(gateway.clone(), leased, WorkPlace::new(gateway, seat.clone()));
                        running.spawn(async move {
                            let _seat = seat;
                            work.await;
                        });
                        continue;
                    }
                    let now = gateway.time().now;
                    pause = claimed.next_due.map(|due| due.saturating_sub(now));
                }
                // The log of the server has the reason.
                Err(_) => pause = Some(AFTER_FAILURE),
            }
        }
        drop(claiming);
        let waits = pause.is_some();
        let due = pin!(sleep(pause.unwrap_or_default()));
        tokio::select! {
            Some(_) = running.join_next(), if !running.is_empty() => {}
            () = seats.left() => {}
            () = changes.changed() => {}
            Ok(()) = online.changed() => {}
            () = due, if waits => {}
            changed = closing.changed() => if changed.is_err() { break },
        }
    }
    // The work ends with the sessions of the agents.
    while running.join_next().await.is_some() {}
    entry.conversations.close_idle(None).await;
}

/// Renews a lease until some work has ended.
pub(crate) async fn renewing<T>(
    gateway: &GatewayShared,
    lease: LeaseToken,
    work: impl Future<Output = T>,
) -> T {
    let mut work = pin!(work);
    loop {
        tokio::select! {
            ended = &mut work => return ended,
            () = sleep(RENEWAL) => extend_lease(gateway, lease, LEASE).await,
        }
    }
}

/// Repeats a change of the store until that succeeds, is refused, or has failed for too long.
pub(crate) async fn insist<T, F>(mut change: impl FnMut() -> F) -> Result<T, Refusal>
where
    F: Future<Output = Result<T, Refusal>>,
{
    let began = Instant::now();
    loop {
        match change().await {
            Err(refusal) if Instant::now() < began + patience(refusal.code) => sleep(AFTER_FAILURE).await,
            ended => return ended,
        }
    }
}

/// Returns the time for which a change of the store is repeated that fails with a code.
fn patience(code: RefusalCode) -> Duration {
    match code {
        RefusalCode::Overloaded => FULL_OUTBOX,
        code if code.is_retryable() => LEASE,
        _ => Duration::ZERO,
    }
}

/// Lets a lease last so long from now on.
pub(crate) async fn extend_lease(gateway: &GatewayShared, lease: LeaseToken, lasts: Duration) {
    // A lease that is lost shows at the next change.
    record(gateway, StoreChange::RenewLease { lease, lasts }).await;
}

/// Records that an attempt has found its work at an agent elsewhere, so that restarts do not use up the attempts.
pub(crate) async fn continue_work(gateway: &GatewayShared, lease: LeaseToken) {
    // Without it this attempt counts.
    record(gateway, StoreChange::ContinueWork { lease }).await;
}

/// Records that an agent elsewhere gets some work now.
pub(crate) async fn hand_over(gateway: &GatewayShared, lease: LeaseToken) {
    // Without it a later attempt knows less.
    record(gateway, StoreChange::HandOver { lease }).await;
}

/// Ends leases, expires what is too old, and queues the posts of tasks that have ended without a worker: when
/// something is due. Between two due times it asks the store nothing unless there was a change.
pub(crate) async fn sweep(gateway: Arc<GatewayShared>) {
    let mut closing = gateway.closing.subscribe();
    let mut changes = gateway.store.watch(&StoreTopic::Sweep);
    let mut left = SweepRest::default();
    loop {
        // A change after this is seen below.
        changes.take_changed();
        // A failure is in the log of the server, and the next sweep tries again.
        let rest = sweep_once(&gateway, &mut left).await.unwrap_or_default();
        let rest = rest.saturating_sub(SWEEP);
        let next = async {
            sleep(SWEEP).await;
            tokio::select! {
                () = sleep(rest) => {}
                () = changes.changed() => {}
            }
        };
        tokio::select! {
            () = next => {}
            _ = closing.wait_for(|closing| *closing) => return,
        }
    }
}

/// The work that a sweep leaves to the next one.
#[derive(Default)]
struct SweepRest {
    /// The tasks that have ended without a worker, until their agents elsewhere know.
    ended: Vec<StoredTaskKey>,
    /// The tasks in front of the next page of those whose last posts are due.
    due: u64,
}

/// Sweeps the store. Returns the time until something is due.
async fn sweep_once(gateway: &GatewayShared, left: &mut SweepRest) -> Result<Duration, Refusal> {
    let time = gateway.time();
    let swept = gateway.in_store(move |store| store.sweep(time)).await?;
    left.ended.extend(swept.tasks_ended);
    if !left.ended.is_empty() {
        let keys = left.ended.clone();
        let read = move |store: &dyn Store| {
            keys.iter().map(|key| store.task(key)).collect::<duologue_store::Result<Vec<_>>>()
        };
        let tasks = gateway.in_store(read).await?;
        for (key, task) in left.ended.drain(..).zip(&tasks) {
            events::task_completed(&key, task.as_ref().map_or("removed", |task| task.state.as_str()));
        }
        task_run::stop_lost(gateway, tasks.into_iter().flatten());
    }
    let retention = gateway.config.limits.retention_seconds.saturating_mul(1_000);
    let offset = left.due;
    let (rest, offset) = gateway
        .in_store(move |store| {
            let seen_before = time.wall.saturating_sub(millis(STALE));
            let ended_before = time.wall.saturating_sub(retention);
            let batch = StoreBatch::new(time).accepted();
            let batch = batch.with(StoreChange::MarkStale { seen_before });
            store.apply(batch.with(StoreChange::Purge { ended_before, principal: None }))?;
            let offset = queue_ends(store, time, offset)?;
            Ok((pause(time, store.next_sweep()?, retention), offset))
        })
        .await?;
    left.due = offset;
    Ok(if offset > 0 { Duration::ZERO } else { rest })
}

/// Changes the store, or not: work goes on without the change.
async fn record(gateway: &GatewayShared, change: StoreChange) {
    let batch = StoreBatch::new(gateway.time()).accepted().with(change);
    let _ = gateway.in_store(move |store| store.apply(batch)).await;
}

/// Returns the time until something is due.
fn pause(time: StoreTime, next: SweepTimes, retention: u64) -> Duration {
    // A record that is as old as a limit is not over it yet.
    let after = |time: Option<u64>, limit: u64| time.map(|time| time.saturating_add(limit).saturating_add(1));
    let by_wall = [next.expiry, after(next.ended, retention), after(next.seen, millis(STALE))];
    let by_wall =
        by_wall.into_iter().flatten().map(|due| Duration::from_millis(due.saturating_sub(time.wall)));
    let by_lease = next.lease_end.map(|end| end.saturating_sub(time.now));
    by_wall.chain(by_lease).min().unwrap_or(LONGEST_PAUSE).min(LONGEST_PAUSE)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Queues the last chunks and callbacks of tasks that have ended without them: lost, expired or cancelled before their start,
/// or while the outbox of their owner was full. A full outbox delays no posts of other owners. This looks at one page of the
/// tasks behind an offset, and returns that of the next page. It is zero at the end, and after a page whose posts are all
/// queued, since those changes wake the next sweep.
pub(crate) fn queue_ends(store: &dyn Store, time: StoreTime, mut offset: u64) -> duologue_store::Result<u64> {
    let mut query = TaskQuery::default();
    (query.callback_due, query.offset) = (true, offset);
    let page = store.tasks(&query)?;
    let mut left = page.total;
    let mut full = HashSet::new();
    for task in page.items {
        if full.contains(&task.key.owner) {
            offset += 1;
            continue;
        }
        match queue_end(store, time, &task) {
            Ok(()) => left = left.saturating_sub(1),
            Err(StoreError::LimitReached { .. }) => {
                full.insert(task.key.owner);
                offset += 1;
            }
            // Another change of the task was first, and a later sweep finds it.
            Err(StoreError::VersionLost { .. }) => offset += 1,
            Err(error) => {
                let task = task.key.task.as_str();
                tracing::error!(task, %error, "the last posts of a task could not be queued; a later sweep tries again");
                offset += 1;
            }
        }
    }
    Ok(if offset < left { offset } else { 0 })
}

/// Queues the last chunk and the callback of a task. A callback that the store could never hold is dropped.
fn queue_end(store: &dyn Store, time: StoreTime, task: &StoredTask) -> duologue_store::Result<()> {
    let mut update = TaskUpdate::new(task.key.clone(), task.version);
    update.callback_queued = true;
    let mut batch = StoreBatch::new(time).with(StoreChange::UpdateTask(update));
    batch.changes.extend(task_run::last_chunk(store, task)?);
    let queued = callback(task).and_then(|post| {
        let mut batch = batch.clone();
        batch.changes.extend(post);
        store.apply(batch)
    });
    let queued = match queued {
        Err(error @ (StoreError::TooLong { .. } | StoreError::InvalidJson { .. })) => {
            tracing::warn!(task = task.key.task.as_str(), %error, "the callback of a task is dropped");
            store.apply(batch)
        }
        queued => queued,
    };
    queued.map(drop)
}

/// Returns the post for the callback of a task that has ended.
pub(crate) fn callback(task: &StoredTask) -> duologue_store::Result<Option<StoreChange>> {
    let Some(url) = &task.callback else { return Ok(None) };
    let (id, agent) = (&task.key.task, &task.key.agent);
    let mut body = json!({"taskId": id, "agentId": agent, "status": states::task_status(&task.state)});
    match (&task.result, &task.error) {
        (_, Some(error)) => body["error"] = serde_json::to_value(error).unwrap_or_default(),
        (Some(result), None) => body["result"] = result.parse()?,
        (None, None) => {}
    }
    let stream = stream_key("callback", task);
    let body = JsonText::of(&body)?;
    let mut post = NewDelivery::new(OutboxKind::Callback, &task.key.owner, stream, 0, url, body);
    post.trace.clone_from(&task.trace);
    Ok(Some(StoreChange::PushDelivery(post)))
}

/// Returns the name of a stream of posts of a task. A task that is sent or started again begins a new one.
pub(crate) fn stream_key(kind: &str, task: &StoredTask) -> String {
    // The number of the task is unique. The ids of its key are too long for a name.
    format!("{kind}:{}.{}", task.seq, task.attempts)
}

#[cfg(test)]
mod tests {
    use duologue_rpc::Lock as _;
    use duologue_schema::envelope::TaskState;
    use duologue_store::{NewTask, SqliteStore, StoreSettings};
    use tokio::time::advance;

    use super::*;
    use crate::gateway::task_run::tests::{gateway, started};

    #[tokio::test]
    async fn a_sweep_that_fails_stops_the_lost_tasks() {
        // The batch of the sweep has more changes than the store takes.
        let (gateway, _folder) =
            gateway("rest = \"http://127.0.0.1:9\"", |settings| settings.batch_changes = 1);
        let (_, lease) = started(&gateway, "alice", "t1").await;
        extend_lease(&gateway, lease, Duration::ZERO).await;
        let mut left = SweepRest::default();
        assert!(sweep_once(&gateway, &mut left).await.is_err());
        assert_eq!((left.ended.len(), gateway.stops.lock_unpoisoned().len()), (0, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn ended_work_is_removed_after_the_seconds_of_its_setting() {
        let (gateway, _folder) = gateway("command = [\"false\"]\n[limits]\nretention_seconds = 60", |_| {});
        let (task, _) = started(&gateway, "alice", "ended").await;
        let (open, _) = started(&gateway, "alice", "open").await;
        let mut left = SweepRest::default();
        let version = gateway.store.task(&task.key).expect("the store").expect("the task").version;
        let update = TaskUpdate::new(task.key.clone(), version).state(TaskState::Completed);
        let batch = StoreBatch::new(gateway.time()).with(StoreChange::UpdateTask(update));
        gateway.store.apply(batch).expect("an end");
        let is_there = |task: &StoredTask| gateway.store.task(&task.key).expect("the store").is_some();
        // A record that is as old as the limit is not over it yet.
        for (millis, is_kept) in [(60_000, true), (1, false)] {
            advance(Duration::from_millis(millis)).await;
            sweep_once(&gateway, &mut left).await.expect("a sweep");
            assert_eq!((is_there(&task), is_there(&open)), (is_kept, true));
        }
    }

    #[tokio::test]
    async fn a_principal_whose_tasks_wait_for_answers_leaves_places_for_others() {
        let principal = |id| format!("[[principals]]\nid = \"{id}\"\nkey_sha256 = \"{id:0>64}\"\n");
        let principals = principal("a1") + &principal("b1");
        let agent = format!("command = [\"false\"]\ntrust = \"shared\"\nmax_tasks = 4\n{principals}");
        let (gateway, _folder) = gateway(&agent, |_| {});
        let create = |owner: &str, id: &str, priority: u8| {
            let key = StoredTaskKey::new(owner, "writer", id);
            let mut new = NewTask::new(key, owner, "write", JsonText::default());
            new.priority = priority;
            let batch = StoreBatch::new(gateway.time()).with(StoreChange::CreateTask(new));
            gateway.store.apply(batch).expect("a task");
        };
        (1..=9).for_each(|number| create("bob", &format!("b{number}"), 5));
        let (begun, mut seen) = tokio::sync::mpsc::unbounded_channel();
        let shared = gateway.clone();
        let queue = tokio::spawn(async move {
            let topic = StoreTopic::AgentTasks("writer".to_owned());
            let claim = |store: &dyn Store, agent: &str, claim: &Claim| store.claim_tasks(agent, claim);
            let owner = |task: &StoredTask| task.key.owner.clone();
            let run = move |_, leased: Leased<StoredTask>, place: WorkPlace| {
                // Its place is kept until the test ends.
                let _ = begun.send((leased.entry.key.task, place));
                std::future::pending::<()>()
            };
            serve_queue(&shared, "writer", |_| (4, 4), &topic, claim, owner, run).await;
        });
        let mut next = async || seen.recv().await.expect("a task");
        // Two of the places of work, then two of those for tasks that ask. The next ones keep their places.
        let mut held = Vec::new();
        for number in 1..=4 {
            let (id, place) = next().await;
            assert_eq!(id, format!("b{number}"));
            held.push(place);
            if number % 2 == 0 {
                held.iter().for_each(WorkPlace::ask);
            }
        }
        create("alice", "a1", 9);
        let (id, _place) = next().await;
        assert_eq!(id, "a1");
        // Bob's next task is the older one.
        create("carol", "c1", 5);
        let (id, _place) = next().await;
        assert_eq!(id, "c1");
        queue.abort();
    }

    #[test]
    fn a_full_outbox_delays_no_callbacks_of_others() {
        let mut settings = StoreSettings::default();
        (settings.outbox_entries, settings.page_entries) = (2, 3);
        let store = SqliteStore::in_memory(settings).expect("a store");
        let time = StoreTime::default();
        let owners = ["alice", "alice", "alice", "alice", "alice", "bob", "bob"];
        for (number, owner) in owners.iter().enumerate() {
            let key = StoredTaskKey::new(*owner, "writer", number.to_string());
            let mut new = NewTask::new(key.clone(), *owner, "write", JsonText::default());
            new.callback = Some("https://example.com/done".to_owned());
            let mut update = TaskUpdate::new(key, 1).state(TaskState::Completed);
            if number == 0 {
                // The result fits the store, and its callback does not.
                update.result = JsonText::of(&"x".repeat((4 << 20) - 2)).ok();
            }
            let batch = StoreBatch::new(time).with(StoreChange::CreateTask(new));
            store.apply(batch.with(StoreChange::UpdateTask(update))).expect("a task");
        }
        let due = |store: &SqliteStore| {
            let mut query = TaskQuery::default();
            query.callback_due = true;
            let page = store.tasks(&query).expect("tasks");
            page.items.into_iter().map(|task| task.key.task).collect::<Vec<_>>()
        };
        // A page ends behind the bytes of the first result, whose callback is dropped.
        let mut offset = queue_ends(&store, time, 0).expect("a page");
        assert_eq!((offset, due(&store)), (0, vec!["1".to_owned(), "2".into(), "3".into()]));
        // A page has three tasks. Two fill the outbox of their owner.
        offset = queue_ends(&store, time, offset).expect("a page");
        assert_eq!((offset, due(&store)), (1, vec!["3".to_owned(), "4".into(), "5".into()]));
        assert_eq!(queue_ends(&store, time, offset).expect("a page"), 0);
        assert_eq!(due(&store), ["3", "4"]);
    }
}
