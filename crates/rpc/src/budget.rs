//! Rule 6: what all queues of a connection may hold together, and who pays when it is too much.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use tokio::time::Instant;

use crate::error::Closed;
use crate::limits::Limits;
use crate::queue::StreamId;
use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use crate::sync::{Lock, Mutex, Notify};

/// A queue as the budget sees it.
pub(crate) trait Held: Send + Sync {
    /// Its name.
    fn id(&self) -> StreamId;
    /// Whether nothing goes through it any more.
    fn has_ended(&self) -> bool;
    /// Wire bytes in it.
    fn bytes(&self) -> usize;
    /// Ends it loudly and discards what it holds.
    fn stall(&self);
    /// Ends it after what it holds.
    fn close(&self, reason: &Closed);
}

pub(crate) struct Budget {
    pub(crate) used: AtomicUsize,
    taken: AtomicU64,
    last_id: AtomicU64,
    queues: Mutex<Queues>,
    /// Wakes a paused reader: something was taken, a request was made, or the connection closes.
    pub(crate) relief: Notify,
    soft: usize,
    hard: usize,
    patience: std::time::Duration,
}

/// Since when the budget has been exceeded, and how much had been taken then.
#[derive(Clone, Copy)]
pub(crate) struct Overrun {
    pub(crate) deadline: Instant,
    taken: u64,
}

#[derive(Default)]
struct Queues {
    /// By their names, the oldest first. None may be let go of under the lock, which its end takes.
    all: BTreeMap<u64, Weak<dyn Held>>,
    /// Why the connection has ended: a queue that is made later ends at once.
    closed: Option<Closed>,
}

/// What the reader does next.
pub(crate) enum Verdict {
    Read,
    Pause,
}

impl Budget {
    pub(crate) fn new(limits: &Limits) -> Self {
        Budget {
            used: AtomicUsize::new(0),
            taken: AtomicU64::new(0),
            last_id: AtomicU64::new(0),
            queues: Mutex::default(),
            relief: Notify::new(),
            soft: limits.queue_bytes,
            hard: limits.queue_bytes_hard,
            patience: limits.stall_timeout,
        }
    }

    /// A name for another queue. Never used twice, since a request may outlive its stream.
    pub(crate) fn new_id(&self) -> StreamId {
        StreamId(self.last_id.fetch_add(1, Relaxed))
    }

    pub(crate) fn register(&self, queue: Arc<dyn Held>) {
        let mut queues = self.queues.lock_unpoisoned();
        if let Some(reason) = queues.closed.clone() {
            drop(queues);
            return queue.close(&reason);
        }
        queues.all.insert(queue.id().0, Arc::downgrade(&queue));
    }

    /// A queue is gone: what it was is not freed while there is an entry for it.
    pub(crate) fn forget(&self, queue: StreamId) {
        self.queues.lock_unpoisoned().all.remove(&queue.0);
    }

    pub(crate) fn charge(&self, bytes: usize) {
        self.used.fetch_add(bytes, Relaxed);
    }

    pub(crate) fn credit(&self, bytes: usize) {
        let before = self.used.fetch_sub(bytes, Relaxed);
        self.taken.fetch_add(1, Relaxed);
        if before > self.soft {
            self.relief.notify_one();
        }
    }

    pub(crate) fn close_all(&self, reason: &Closed) {
        self.queues.lock_unpoisoned().closed.get_or_insert_with(|| reason.clone());
        for queue in self.alive() {
            queue.close(reason);
        }
    }

    /// Asked after each line. `feeds_another` says whether a request awaits its answer that is not
    /// the own prompt of the given (fullest) stream: then the reader must go on, or a consumer
    /// that calls back would wait for ever.
    pub(crate) fn verdict(
        &self,
        overrun: &mut Option<Overrun>,
        feeds_another: impl Fn(StreamId, &dyn Fn(StreamId) -> bool) -> bool,
    ) -> Verdict {
        loop {
            let used = self.used.load(Relaxed);
            if used <= self.soft {
                *overrun = None;
                return Verdict::Read;
            }
            let taken = self.taken.load(Relaxed);
            let now = Instant::now();
            let since = match overrun {
                Some(since) if since.taken == taken => *since,
                _ => *overrun.insert(Overrun { deadline: now + self.patience, taken }),
            };
            let queues = self.alive();
            let Some(fullest) = queues.iter().max_by_key(|queue| queue.bytes()) else {
                return Verdict::Read;
            };
            // A stream without bytes has been taken this moment, and its taker is about to say so.
            if (used >= self.hard || now >= since.deadline) && fullest.bytes() > 0 {
                tracing::warn!(
                    bytes = fullest.bytes(),
                    "a stream of updates is not being taken and was ended"
                );
                fullest.stall();
                *overrun = None;
                continue;
            }
            let alive = |stream| queues.iter().any(|queue| queue.id() == stream && !queue.has_ended());
            return if feeds_another(fullest.id(), &alive) { Verdict::Read } else { Verdict::Pause };
        }
    }

    fn alive(&self) -> Vec<Arc<dyn Held>> {
        self.queues.lock_unpoisoned().all.values().filter_map(Weak::upgrade).collect()
    }
}
