//! Rule 6: what all queues of a connection may hold together, and who pays when it is too much.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::Instant;

use crate::error::Closed;
use crate::limits::Limits;
use crate::queue::StreamId;
use crate::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use crate::sync::{Lock, Mutex, Notify};
use crate::wake_batch::WakeBatch;

/// What can be read of a queue without touching it.
pub(crate) struct QueueGauge {
    /// Its name.
    pub(crate) id: StreamId,
    /// Wire bytes in it.
    pub(crate) bytes: AtomicUsize,
    /// Whether nothing goes through it any more.
    pub(crate) ended: AtomicBool,
}

impl QueueGauge {
    pub(crate) fn new(id: StreamId) -> Self {
        QueueGauge { id, bytes: AtomicUsize::new(0), ended: AtomicBool::new(false) }
    }
}

/// A queue as the budget ends it.
pub(crate) trait BudgetedQueue: Send + Sync {
    /// Ends it loudly and discards what it holds: `after` so long, or at the hard limit.
    fn stall(&self, after: Option<Duration>);
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
    /// How the takers of all queues are woken.
    pub(crate) wakes: WakeBatch,
    soft: usize,
    hard: usize,
    patience: Duration,
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
    all: BTreeMap<u64, Entry>,
    /// Why the connection has ended: a queue that is made later ends at once.
    closed: Option<Closed>,
}

struct Entry {
    gauge: Arc<QueueGauge>,
    queue: Weak<dyn BudgetedQueue>,
}

/// What the reader does next.
pub(crate) enum ReadDecision {
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
            wakes: WakeBatch::default(),
            soft: limits.queue_bytes,
            hard: limits.queue_bytes_hard,
            patience: limits.stall_timeout,
        }
    }

    /// A name for another queue. Never used twice, since a request may outlive its stream.
    pub(crate) fn new_id(&self) -> StreamId {
        StreamId(self.last_id.fetch_add(1, Relaxed))
    }

    pub(crate) fn register(&self, gauge: &Arc<QueueGauge>, queue: Arc<dyn BudgetedQueue>) {
        let mut queues = self.queues.lock_unpoisoned();
        if let Some(reason) = queues.closed.clone() {
            drop(queues);
            return queue.close(&reason);
        }
        let entry = Entry { gauge: gauge.clone(), queue: Arc::downgrade(&queue) };
        queues.all.insert(gauge.id.0, entry);
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
        let mut queues = self.queues.lock_unpoisoned();
        queues.closed.get_or_insert_with(|| reason.clone());
        let open: Vec<_> = queues.all.values().filter_map(|entry| entry.queue.upgrade()).collect();
        drop(queues);
        for queue in open {
            queue.close(reason);
        }
    }

    /// Whether the reader has to ask for a [`decide`](Self::decide) before its next line: it is or was exceeded.
    pub(crate) fn decides(&self, overrun: Option<Overrun>) -> bool {
        overrun.is_some() || self.used.load(Relaxed) > self.soft
    }

    /// Asked after each line while it [`decides`](Self::decides). `feeds_another` says whether a request awaits its answer that is not
    /// the own prompt of the given (fullest) stream: then the reader must go on, or a consumer
    /// that calls back would wait for ever.
    pub(crate) fn decide(
        &self,
        overrun: &mut Option<Overrun>,
        feeds_another: impl Fn(StreamId, &dyn Fn(StreamId) -> bool) -> bool,
    ) -> ReadDecision {
        loop {
            let used = self.used.load(Relaxed);
            if used <= self.soft {
                *overrun = None;
                return ReadDecision::Read;
            }
            let taken = self.taken.load(Relaxed);
            let now = Instant::now();
            let since = match overrun {
                Some(since) if since.taken == taken => *since,
                _ => *overrun.insert(Overrun { deadline: now + self.patience, taken }),
            };
            let Some((fullest, bytes)) = self.fullest() else { return ReadDecision::Read };
            if used >= self.hard || now >= since.deadline {
                if bytes > 0
                    && let Some(queue) = self.queue(fullest)
                {
                    tracing::warn!(bytes, "a stream of updates is not being taken and was ended");
                    queue.stall((used < self.hard).then_some(self.patience));
                    *overrun = None;
                    continue;
                }
                // Its bytes have been taken this moment, and the taker is about to say so: to wait for a
                // time that is over would be to ask again and again until it does.
                *overrun = Some(Overrun { deadline: now + self.patience, taken });
            }
            let feeds = feeds_another(fullest, &|stream| self.is_alive(stream));
            return if feeds { ReadDecision::Read } else { ReadDecision::Pause };
        }
    }

    /// The queue that holds most, and how much. Asked after each line while there is too much: it makes no list,
    /// and counts no references.
    fn fullest(&self) -> Option<(StreamId, usize)> {
        let queues = self.queues.lock_unpoisoned();
        let held = queues.all.values().map(|entry| (entry.gauge.id, entry.gauge.bytes.load(Relaxed)));
        held.max_by_key(|(_, bytes)| *bytes)
    }

    fn queue(&self, stream: StreamId) -> Option<Arc<dyn BudgetedQueue>> {
        self.queues.lock_unpoisoned().all.get(&stream.0)?.queue.upgrade()
    }

    fn is_alive(&self, stream: StreamId) -> bool {
        let queues = self.queues.lock_unpoisoned();
        queues.all.get(&stream.0).is_some_and(|entry| !entry.gauge.ended.load(Relaxed))
    }
}

#[cfg(all(test, not(any(duologue_loom, duologue_shuttle))))]
mod tests {
    use super::*;
    use crate::queue::queue;

    fn budget(patience: Duration) -> Arc<Budget> {
        Arc::new(Budget::new(&Limits {
            queue_bytes: 1,
            queue_bytes_hard: 100,
            stall_timeout: patience,
            ..Limits::default()
        }))
    }

    /// A taker that is between its two subtractions: its stream is empty, the budget does not know yet.
    #[test]
    fn a_reader_never_waits_for_a_time_that_is_over() {
        let budget = budget(Duration::from_secs(1));
        let (_sender, _queue) = queue::<u32>(&budget);
        budget.charge(2);
        let past = Instant::now() - Duration::from_secs(1);
        let mut overrun = Some(Overrun { deadline: past, taken: 0 });
        assert!(matches!(budget.decide(&mut overrun, |_, _| false), ReadDecision::Pause));
        assert!(overrun.is_some_and(|overrun| overrun.deadline > Instant::now()));
    }

    #[test]
    fn a_stream_is_alive_until_it_has_ended_or_is_gone() {
        let budget = budget(Duration::from_secs(1));
        let (ended, (sender, taken)) = (queue::<u32>(&budget), queue::<u32>(&budget));
        let ids = [ended.0.id(), sender.id()];
        assert_eq!(ids.map(|id| budget.is_alive(id)), [true, true]);
        ended.0.finish();
        assert_eq!(ids.map(|id| budget.is_alive(id)), [false, true]);
        drop((sender, taken));
        assert_eq!(ids.map(|id| budget.is_alive(id)), [false, false]);
        drop(ended);
        assert!(budget.queues.lock_unpoisoned().all.is_empty());
    }

    #[test]
    fn the_fullest_stream_is_the_one_that_ends() {
        let budget = budget(Duration::ZERO);
        let (small, large) = (queue(&budget), queue(&budget));
        assert_eq!((small.0.push(1, 1), large.0.push(2, 2)), (Ok(()), Ok(())));
        assert_eq!(budget.fullest(), Some((large.0.id(), 2)));
        assert!(matches!(budget.decide(&mut None, |_, _| false), ReadDecision::Read));
        assert_eq!([small.0.id(), large.0.id()].map(|id| budget.is_alive(id)), [true, false]);
        assert_eq!(budget.used.load(Relaxed), 1);
    }
}
