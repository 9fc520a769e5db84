//! The queue of a store: enqueue, claim, wake-up, start-up, and the ratio to bare SQLite.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use duologue_schema::envelope::TaskState;
use duologue_store::{
    Claim, JsonText, MessageSender, NewInboxMessage, NewTask, SqliteStore, Store, StoreBatch, StoreChange,
    StoreSettings, StoreTime, StoreTopic, StoredTaskKey, TaskUpdate,
};

use super::{HubFailure, LoadFigures, bare};
use crate::play::Latency;

/// The bytes of each message.
const BYTES: usize = 512;
/// The threads that enqueue at a time.
const CALLERS: usize = 16;
/// The entries of each batch.
const BATCH: usize = 16;
/// The messages of each figure.
const MESSAGES: usize = 1_920;
const WAKE_UPS: usize = 500;
const FINISHED_TASKS: usize = 100_000;
const RECORDS: usize = 1_000_000;
/// The inboxes with the records.
const INBOXES: usize = 100;
/// The changes of a batch that fills a store.
const FILLING: usize = 5_000;

/// The rates of a queue with one worker.
#[derive(Clone, Copy, Debug)]
pub struct QueueRates {
    /// The messages that were added a second.
    pub enqueued: f64,
    /// The messages that were claimed and acknowledged a second.
    pub taken: f64,
}

impl QueueRates {
    /// Fills a queue with batches, from their first numbers, and empties it. `take` returns the number of entries it took.
    pub(super) fn of<Q>(
        mut queue: Q,
        (batch, count): (usize, usize),
        fill: impl Fn(&mut Q, usize) -> Result<(), HubFailure>,
        take: impl Fn(&mut Q) -> Result<usize, HubFailure>,
    ) -> Result<Self, HubFailure> {
        let started = Instant::now();
        (0..count).step_by(batch).try_for_each(|first| fill(&mut queue, first))?;
        let enqueued = rate(count, started.elapsed());
        let started = Instant::now();
        for _ in (0..count).step_by(batch) {
            let taken = take(&mut queue)?;
            if taken != batch {
                return Err(format!("{taken} entries of {batch} were taken").into());
            }
        }
        Ok(QueueRates { enqueued, taken: rate(count, started.elapsed()) })
    }
}

/// Measures stores in a folder. Sizes are divided by `part`.
///
/// # Errors
///
/// If a store fails or a message is lost.
pub fn measure(
    folder: &Path,
    rounds: usize,
    part: usize,
    figures: &mut LoadFigures,
) -> Result<(), HubFailure> {
    for round in 0..rounds {
        let bench = StoreBench::open(&folder.join(format!("store-{round}")))?;
        bench.queue("", part, figures)?;
        for synced in [false, true] {
            bench.wake_ups(synced, WAKE_UPS / part, figures)?;
        }
    }
    let path = folder.join("filled");
    let tasks = FINISHED_TASKS / part;
    let bench = StoreBench::open(&path)?;
    bench.fill_tasks(tasks)?;
    for _ in 0..rounds {
        bench.queue(&format!(", {tasks} finished tasks"), part, figures)?;
    }
    let records = RECORDS / part;
    bench.fill_messages(records - tasks)?;
    drop(bench);
    for _ in 0..rounds {
        let started = Instant::now();
        let bench = StoreBench::open(&path)?;
        figures.add(
            format!("start-up of the store, {records} records"),
            "ms",
            started.elapsed().as_secs_f64() * 1e3,
        );
        drop(bench);
    }
    for round in 0..rounds {
        compare(folder, round, part, figures)?;
    }
    Ok(())
}

/// Measures the queue with one worker, in batches of a size.
///
/// # Errors
///
/// If the store fails or a message is lost.
pub fn queue_rates(
    path: &Path,
    synced: bool,
    batch: usize,
    count: usize,
    content: &str,
) -> Result<QueueRates, HubFailure> {
    let bench = StoreBench::open(path)?;
    let fill = |bench: &mut StoreBench, first| {
        bench.apply(synced, (first..first + batch).map(|number| message("agent", number, content)))
    };
    QueueRates::of(bench, (batch, count), fill, |bench| bench.take("agent", synced, batch))
}

/// Returns how many a second.
#[must_use]
pub fn rate(count: usize, time: Duration) -> f64 {
    count as f64 / time.as_secs_f64()
}

/// Adds the ratios to bare SQLite.
fn compare(folder: &Path, round: usize, part: usize, figures: &mut LoadFigures) -> Result<(), HubFailure> {
    let content = content();
    for (mode, synced) in [("synced", true), ("accepted", false)] {
        for batch in [1, BATCH, 128] {
            let count = if synced { 64 * batch.max(BATCH) } else { 128 * 128 };
            let count = (count / part).next_multiple_of(batch);
            let path = |name: &str| folder.join(format!("{name}-{mode}-{batch}-{round}"));
            let bare = bare::queue_rates(&path("bare"), synced, batch, count, &content)?;
            let ours = queue_rates(&path("ours"), synced, batch, count, &content)?;
            let name = |work: &str| format!("of bare SQLite: {work}, {mode}, {batch} a batch");
            figures.add(name("enqueue"), "%", 100.0 * ours.enqueued / bare.enqueued);
            figures.add(name("claim and ack"), "%", 100.0 * ours.taken / bare.taken);
        }
    }
    Ok(())
}

fn content() -> String {
    format!("{:?}", "x".repeat(BYTES - 2))
}

fn message(agent: &str, number: impl ToString, content: &str) -> StoreChange {
    let content = JsonText::new(content).unwrap_or_default();
    let sender = MessageSender::new("alice", "alice");
    StoreChange::Enqueue(NewInboxMessage::new(agent, number.to_string(), sender, content))
}

struct StoreBench {
    store: SqliteStore,
    time: StoreTime,
    content: String,
    /// The number of the next message.
    next: AtomicUsize,
}

impl StoreBench {
    fn open(path: &Path) -> Result<Self, HubFailure> {
        let mut settings = StoreSettings::default();
        settings.inbox_entries = u64::MAX;
        settings.tasks_per_owner = u64::MAX;
        let time = StoreTime::new(Duration::from_secs(1), 1);
        let store = SqliteStore::open(path, settings, time.wall)?;
        Ok(StoreBench { store, time, content: content(), next: AtomicUsize::new(0) })
    }

    fn apply(&self, synced: bool, changes: impl Iterator<Item = StoreChange>) -> Result<(), HubFailure> {
        let mut batch = StoreBatch::new(self.time);
        batch.changes.extend(changes);
        self.store.apply(if synced { batch } else { batch.accepted() })?;
        Ok(())
    }

    /// Claims and acknowledges messages, and returns their number.
    fn take(&self, agent: &str, synced: bool, most: usize) -> Result<usize, HubFailure> {
        let claim = Claim::new(self.time, Duration::from_secs(60), "worker").max(most);
        let entries = self.store.claim_messages(agent, &claim)?.entries;
        let count = entries.len();
        if count > 0 {
            let ack = |lease| StoreChange::AckMessage { lease, response: None };
            self.apply(synced, entries.into_iter().map(|entry| ack(entry.lease)))?;
        }
        Ok(count)
    }

    fn new_messages(&self, agent: &str, count: usize) -> Vec<StoreChange> {
        let first = self.next.fetch_add(count, Ordering::Relaxed);
        (first..first + count).map(|number| message(agent, number, &self.content)).collect()
    }

    /// Measures durable enqueues, and claims with acknowledgements. All of them are synced.
    fn queue(&self, condition: &str, part: usize, figures: &mut LoadFigures) -> Result<(), HubFailure> {
        let count = (MESSAGES / part).next_multiple_of(CALLERS);
        let mut add = |name: &str, value| figures.add(format!("{name}, synced{condition}"), "/s", value);
        let one = || self.apply(true, self.new_messages("agent", 1).into_iter());
        add("enqueue, one caller", concurrent(1, count / 4, one)?);
        add(&format!("enqueue, {CALLERS} concurrent callers"), concurrent(CALLERS, count, one)?);
        let batch = || self.apply(true, self.new_messages("agent", BATCH).into_iter());
        let batches = concurrent(1, count / BATCH, batch)?;
        add(&format!("enqueue, batches of {BATCH}"), batches * BATCH as f64);
        while self.take("agent", false, 1_000)? > 0 {}
        for workers in [1, 8, 24] {
            self.apply(false, self.new_messages("agent", count).into_iter())?;
            let take = || match self.take("agent", true, 1)? {
                1 => Ok(()),
                _ => Err("a message is missing".into()),
            };
            add(&format!("claim and ack, workers: {workers}"), concurrent(workers, count, take)?);
        }
        Ok(())
    }

    /// Measures the time from a call that enqueues to the claim of a worker that waits.
    fn wake_ups(&self, synced: bool, count: usize, figures: &mut LoadFigures) -> Result<(), HubFailure> {
        let (ready, when_ready) = mpsc::channel();
        let (sent, when_sent) = mpsc::channel();
        let took = thread::scope(|scope| {
            let worker = scope.spawn(move || -> Result<Vec<Duration>, HubFailure> {
                let runtime = tokio::runtime::Builder::new_current_thread().build()?;
                let mut took = Vec::with_capacity(count);
                for _ in 0..count {
                    let mut watch = self.store.watch(&StoreTopic::Inbox("waiting".into()));
                    ready.send(())?;
                    let claim = Claim::new(self.time, Duration::from_secs(60), "worker");
                    let claimed = loop {
                        runtime.block_on(watch.changed());
                        let claimed = self.store.claim_messages("waiting", &claim)?.entries;
                        if !claimed.is_empty() {
                            break claimed;
                        }
                    };
                    let end = Instant::now();
                    let started: Instant = when_sent.recv()?;
                    took.push(end - started);
                    let ack = |lease| StoreChange::AckMessage { lease, response: None };
                    self.apply(false, claimed.into_iter().map(|entry| ack(entry.lease)))?;
                }
                Ok(took)
            });
            for _ in 0..count {
                when_ready.recv()?;
                // The worker falls asleep meanwhile.
                thread::sleep(Duration::from_millis(1));
                let changes = self.new_messages("waiting", 1);
                sent.send(Instant::now())?;
                self.apply(synced, changes.into_iter())?;
            }
            worker.join().map_err(|_| "the worker has panicked")?
        })?;
        let took = Latency::of(took);
        let mode = if synced { "synced" } else { "accepted" };
        let name = |part: &str| format!("enqueue to claim by a waiting worker, {mode}, {part}");
        figures.add(name("p50"), "µs", took.p50 / 1e3);
        figures.add(name("p99"), "µs", took.p99 / 1e3);
        Ok(())
    }

    fn fill_tasks(&self, count: usize) -> Result<(), HubFailure> {
        for first in (0..count).step_by(FILLING / 2) {
            let tasks = (first..count.min(first + FILLING / 2)).flat_map(|number| {
                let key = StoredTaskKey::new("alice", "agent", format!("task-{number}"));
                let text = JsonText::new(&*self.content).unwrap_or_default();
                let new = NewTask::new(key.clone(), "alice", "write", text);
                let end = TaskUpdate::new(key, 1).state(TaskState::Cancelled);
                [StoreChange::CreateTask(new), StoreChange::UpdateTask(end)]
            });
            self.apply(false, tasks)?;
        }
        Ok(())
    }

    fn fill_messages(&self, count: usize) -> Result<(), HubFailure> {
        for first in (0..count).step_by(FILLING) {
            let numbers = first..count.min(first + FILLING);
            let messages = numbers.map(|number| {
                message(&format!("agent-{}", number % INBOXES), format!("filled-{number}"), "\"hello\"")
            });
            self.apply(false, messages)?;
        }
        Ok(())
    }
}

/// Does `work` so many times on several threads. Returns how many times a second.
fn concurrent(
    threads: usize,
    count: usize,
    work: impl Fn() -> Result<(), HubFailure> + Sync,
) -> Result<f64, HubFailure> {
    let each = count.div_ceil(threads);
    let started = Instant::now();
    thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> =
            (0..threads).map(|_| scope.spawn(move || (0..each).try_for_each(|_| work()))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a thread has panicked")?)
    })?;
    Ok(rate(each * threads, started.elapsed()))
}
