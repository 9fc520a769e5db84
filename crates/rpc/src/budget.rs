//! The memory budget that all queues of a connection share (rule 6).

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::Instant;

use crate::error::Closed;
use crate::limits::Limits;
use crate::queue::QueueId;
use crate::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use crate::sync::{Lock, Mutex, Notify};
use crate::wake_batch::WakeBatch;

/// The state of a queue that can be read without its lock.
pub(crate) struct QueueGauge {
    pub(crate) id: QueueId,
    /// The wire bytes of its items.
    pub(crate) bytes: AtomicUsize,
    /// True if the queue accepts no more items.
    pub(crate) ended: AtomicBool,
}

impl QueueGauge {
    pub(crate) fn new(id: QueueId) -> Self {
        QueueGauge { id, bytes: AtomicUsize::new(0), ended: AtomicBool::new(false) }
    }
}

/// A queue that the budget can end.
pub(crate) trait BudgetedQueue: Send + Sync {
    /// Discards all items and ends the queue with `Stalled`. `after` is the time in which nothing was taken, or `None`
    /// at the hard limit.
    fn stall(&self, after: Option<Duration>);
    /// Ends the queue behind its items.
    fn close(&self, reason: &Closed);
}

pub(crate) struct Budget {
    pub(crate) used: AtomicUsize,
    taken: AtomicU64,
    last_id: AtomicU64,
    queues: Mutex<Queues>,
    /// Wakes a paused reader: an item was taken, a request was sent, or the connection closes.
    pub(crate) relief: Notify,
    /// Batches the wake-ups of all queues.
    pub(crate) wakes: WakeBatch,
    soft: usize,
    hard: usize,
    patience: Duration,
}

/// A period in which the budget is exceeded.
#[derive(Clone, Copy)]
pub(crate) struct Overrun {
    pub(crate) deadline: Instant,
    /// The value of [`Budget::taken`] at its start. An item that is taken starts a new period.
    taken: u64,
}

#[derive(Default)]
struct Queues {
    /// All queues, the oldest first. No queue may be dropped under this lock, because the drop takes it.
    all: BTreeMap<u64, Entry>,
    /// The reason of the end of the connection. A queue that is created later ends at once.
    closed: Option<Closed>,
}

struct Entry {
    gauge: Arc<QueueGauge>,
    queue: Weak<dyn BudgetedQueue>,
}

/// The decision of the budget about the next line.
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

    /// Returns the id of a new queue. Ids are never reused, because a request may outlive its queue.
    pub(crate) fn new_id(&self) -> QueueId {
        QueueId(self.last_id.fetch_add(1, Relaxed))
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

    /// Removes a queue that was dropped. Its memory is not freed while there is an entry for it.
    pub(crate) fn forget(&self, queue: QueueId) {
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

    /// Returns true if the reader has to call [`decide`](Self::decide) before the next line: the budget is or was
    /// exceeded.
    pub(crate) fn decides(&self, overrun: Option<Overrun>) -> bool {
        overrun.is_some() || self.used.load(Relaxed) > self.soft
    }

    /// Decides if the reader may read the next line, and ends the fullest queue if the budget is exceeded for too long.
    ///
    /// `feeds_another` returns true if a request waits for a response, other than the one that ends the fullest queue.
    /// The reader must not pause then, because a consumer that awaits a request to the same peer would wait forever.
    pub(crate) fn decide(
        &self,
        overrun: &mut Option<Overrun>,
        feeds_another: impl Fn(QueueId, &dyn Fn(QueueId) -> bool) -> bool,
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
                    tracing::warn!(bytes, "ended a stream of updates because nothing takes from it");
                    queue.stall((used < self.hard).then_some(self.patience));
                    *overrun = None;
                    continue;
                }
                // The bytes were taken this moment and will be credited soon. A deadline in the past would make the
                // reader spin until then.
                *overrun = Some(Overrun { deadline: now + self.patience, taken });
            }
            let feeds = feeds_another(fullest, &|stream| self.is_alive(stream));
            return if feeds { ReadDecision::Read } else { ReadDecision::Pause };
        }
    }

    /// Returns the queue with the most bytes, and its bytes. It is called after each line while the budget is exceeded,
    /// so it neither allocates nor counts references.
    fn fullest(&self) -> Option<(QueueId, usize)> {
        let queues = self.queues.lock_unpoisoned();
        let sizes = queues.all.values().map(|entry| (entry.gauge.id, entry.gauge.bytes.load(Relaxed)));
        sizes.max_by_key(|(_, bytes)| *bytes)
    }

    fn queue(&self, stream: QueueId) -> Option<Arc<dyn BudgetedQueue>> {
        self.queues.lock_unpoisoned().all.get(&stream.0)?.queue.upgrade()
    }

    fn is_alive(&self, stream: QueueId) -> bool {
        let queues = self.queues.lock_unpoisoned();
        queues.all.get(&stream.0).is_some_and(|entry| !entry.gauge.ended.load(Relaxed))
    }
}

#[cfg(all(test, not(duologue_loom)))]
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

    /// A consumer is between its two subtractions: its queue is empty, but the budget is not credited yet.
    #[test]
    fn a_paused_reader_gets_a_deadline_in_the_future() {
        let budget = budget(Duration::from_secs(1));
        let (sender, _queue) = queue::<u32>(&budget);
        budget.charge(2);
        let past = Instant::now() - Duration::from_secs(1);
        let mut overrun = Some(Overrun { deadline: past, taken: 0 });
        assert!(matches!(budget.decide(&mut overrun, |_, _| false), ReadDecision::Pause));
        assert!(overrun.is_some_and(|overrun| overrun.deadline > Instant::now()));
        assert!(budget.is_alive(sender.id()), "an empty queue does not end");
    }

    #[test]
    fn the_soft_limit_itself_is_not_exceeded() {
        let budget = budget(Duration::from_secs(1));
        let (_sender, _queue) = queue::<u32>(&budget);
        let is_relieved = || futures_util::FutureExt::now_or_never(budget.relief.notified()).is_some();
        let mut overrun = None;
        budget.charge(1);
        assert!(!budget.decides(None) && !is_paused(&budget, &mut overrun) && overrun.is_none());
        budget.charge(1);
        assert!(budget.decides(None) && is_paused(&budget, &mut overrun));
        budget.credit(1);
        assert!(is_relieved(), "the paused reader is woken");
        budget.credit(1);
        assert!(!is_relieved(), "no reader was paused");
        assert!(budget.decides(overrun), "the period ends at the next line");
        assert!(!is_paused(&budget, &mut overrun) && !budget.decides(overrun));
    }

    #[test]
    fn a_stream_is_alive_until_it_ends_or_is_dropped() {
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
    fn the_fullest_stream_ends() {
        let budget = budget(Duration::ZERO);
        let (small, large) = (queue(&budget), queue(&budget));
        assert_eq!((small.0.push(1, 1), large.0.push(2, 2)), (Ok(()), Ok(())));
        assert_eq!(budget.fullest(), Some((large.0.id(), 2)));
        assert!(matches!(budget.decide(&mut None, |_, _| false), ReadDecision::Read));
        assert_eq!([small.0.id(), large.0.id()].map(|id| budget.is_alive(id)), [true, false]);
        assert_eq!(budget.used.load(Relaxed), 1);
    }

    fn is_paused(budget: &Budget, overrun: &mut Option<Overrun>) -> bool {
        matches!(budget.decide(overrun, |_, _| false), ReadDecision::Pause)
    }

    #[tokio::test(start_paused = true)]
    async fn an_item_that_is_taken_begins_the_patience_again() {
        let budget = budget(Duration::from_secs(10));
        let (sender, mut queue) = queue(&budget);
        (0..4).for_each(|item| sender.push(item, 20).unwrap());
        let mut overrun = None;
        assert!(is_paused(&budget, &mut overrun));
        for item in 0..3 {
            tokio::time::advance(Duration::from_secs(9)).await;
            assert!(matches!(queue.next().await, Some(Ok(taken)) if taken == item));
            assert!(is_paused(&budget, &mut overrun));
        }
        tokio::time::advance(Duration::from_secs(9)).await;
        assert!(is_paused(&budget, &mut overrun));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(!is_paused(&budget, &mut overrun), "the queue has ended");
        assert!(matches!(queue.next().await, Some(Ok(3))), "it was taken with the others");
        let end = queue.next().await;
        let is_end = matches!(end, Some(Err(crate::Error::Stalled { bytes: 20, after: Some(after) }))
            if after == Duration::from_secs(10));
        assert!(is_end, "{end:?}");
        assert!(queue.next().await.is_none());
        assert_eq!(budget.used.load(Relaxed), 0);
        assert!(!budget.decides(overrun), "the period is over");
    }

    /// At the hard limit the fullest queue ends at once. The others continue.
    #[tokio::test(start_paused = true)]
    async fn the_hard_limit_ends_a_queue_at_once() {
        let budget = budget(Duration::from_secs(10));
        let ((large, mut ended), (small, mut other)) = (queue(&budget), queue(&budget));
        small.push(0, 9).unwrap();
        large.push(0, 90).unwrap();
        let mut overrun = None;
        assert!(is_paused(&budget, &mut overrun), "99 bytes are less than the limit");
        small.push(1, 1).unwrap();
        assert!(is_paused(&budget, &mut overrun), "the other one still exceeds the soft limit");
        assert_eq!(large.push(1, 1), Err(1));
        let end = ended.next().await;
        assert!(matches!(end, Some(Err(crate::Error::Stalled { bytes: 90, after: None }))), "{end:?}");
        for item in 0..2 {
            assert!(matches!(other.next().await, Some(Ok(taken)) if taken == item));
        }
        assert!(!is_paused(&budget, &mut overrun) && overrun.is_none());
    }

    #[test]
    fn the_reader_continues_for_a_request_that_is_awaited() {
        let budget = budget(Duration::from_secs(10));
        let (sender, _queue) = queue(&budget);
        sender.push((), 2).unwrap();
        let mut overrun = None;
        let feeds_another =
            |fullest, alive: &dyn Fn(QueueId) -> bool| fullest == sender.id() && alive(fullest);
        assert!(matches!(budget.decide(&mut overrun, feeds_another), ReadDecision::Read));
        assert!(overrun.is_some() && budget.decides(overrun), "the period continues");
    }

    #[test]
    fn a_queue_without_its_receiver_takes_nothing_and_counts_nothing() {
        let budget = budget(Duration::from_secs(10));
        let (sender, mut queue) = queue(&budget);
        (0..4).for_each(|item| sender.push(item, 10).unwrap());
        let taken = futures_util::FutureExt::now_or_never(queue.next());
        assert!(matches!(taken, Some(Some(Ok(0)))));
        assert_eq!(budget.used.load(Relaxed), 30);
        sender.push(4, 10).unwrap();
        drop(queue);
        assert_eq!(budget.used.load(Relaxed), 0);
        assert_eq!(sender.push(5, 10), Err(5));
    }

    /// A consumer takes small batches, because a stall cannot discard them. What it has taken is returned to the budget
    /// once.
    #[test]
    fn a_stall_discards_all_but_one_batch() {
        let limits =
            Limits { queue_bytes: 1, queue_bytes_hard: 2 * crate::queue::BATCH, ..Limits::default() };
        let budget = Arc::new(Budget::new(&limits));
        let (sender, mut queue) = queue(&budget);
        (0..4).for_each(|item| sender.push(item, crate::queue::BATCH / 2).unwrap());
        let mut next = || futures_util::FutureExt::now_or_never(queue.next()).flatten();
        assert!(matches!(next(), Some(Ok(0))));
        sender.push(4, crate::queue::BATCH / 2).unwrap();
        // Its sender has finished, but the items still take memory.
        sender.finish();
        assert!(matches!(budget.decide(&mut None, |_, _| false), ReadDecision::Read));
        assert_eq!(budget.used.load(Relaxed), 0);
        assert!(matches!(next(), Some(Ok(1))), "it was taken with the first");
        let end = next();
        let is_whole =
            matches!(end, Some(Err(crate::Error::Stalled { bytes, .. })) if bytes == 2 * crate::queue::BATCH);
        assert!(is_whole, "{end:?}");
        assert_eq!(budget.used.load(Relaxed), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_a_queue_wakes_its_consumer() {
        for is_closed in [false, true] {
            let budget = budget(Duration::from_secs(10));
            let (sender, mut queue) = queue::<u8>(&budget);
            let consumer = tokio::spawn(async move { queue.next().await.is_some() });
            tokio::task::yield_now().await;
            if is_closed {
                budget.close_all(&Closed::EndOfInput)
            } else {
                sender.finish()
            }
            let ended = tokio::time::timeout(Duration::from_secs(10), consumer).await;
            assert_eq!(ended.expect("it still waits").unwrap(), is_closed, "only a close is an error");
        }
    }
}
