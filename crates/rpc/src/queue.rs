//! Queues of updates between the reader and its consumers.
//!
//! The reader pushes and never waits. Items that are not taken count against the budget of the
//! connection by their size on the wire. The reader pauses if the budget is exceeded (see `budget.rs`).

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_util::Stream;

use crate::budget::{Budget, BudgetedQueue, QueueGauge};
use crate::byte_queue::ByteQueue;
use crate::error::{Closed, Error};
use crate::sync::atomic::Ordering::Relaxed;
use crate::sync::{Lock, Mutex};
use crate::wake_batch;

/// Creates a queue whose items count against `budget`.
pub(crate) fn queue<T: Send + 'static>(budget: &Arc<Budget>) -> (QueueSender<T>, Queue<T>) {
    let gauge = Arc::new(QueueGauge::new(budget.new_id()));
    let shared = Arc::new(Shared {
        gauge: gauge.clone(),
        budget: budget.clone(),
        state: Mutex::new(State { items: ByteQueue::new(), end: None, waker: None, receiver: true }),
    });
    budget.register(&gauge, shared.clone());
    (QueueSender { shared: shared.clone() }, Queue { shared, local: ByteQueue::new() })
}

struct Shared<T> {
    gauge: Arc<QueueGauge>,
    budget: Arc<Budget>,
    state: Mutex<State<T>>,
}

struct State<T> {
    items: ByteQueue<T>,
    end: Option<End>,
    waker: Option<Waker>,
    receiver: bool,
}

#[derive(Clone)]
enum End {
    Finished,
    Stalled { bytes: usize, after: Option<Duration> },
    Closed(Closed),
}

impl<T> Shared<T> {
    fn finish(&self, end: End, discard: bool) {
        let mut state = self.state.lock_unpoisoned();
        if state.end.is_some() && !discard {
            return;
        }
        state.end = Some(end);
        self.gauge.ended.store(true, Relaxed);
        // Dropped outside the lock, because it may drop anything.
        let discarded = discard.then(|| std::mem::take(&mut state.items));
        let waker = state.waker.take();
        drop(state);
        drop(discarded);
        if let Some(waker) = waker {
            wake_batch::wake(waker);
        }
    }

    /// Returns bytes to the budget, but never more than the queue still counts. A stalled queue has
    /// returned the bytes of the consumer's batch already.
    fn credit(&self, bytes: usize) {
        let counted = self.gauge.bytes.fetch_update(Relaxed, Relaxed, |old| Some(old.saturating_sub(bytes)));
        let credited = counted.map_or(0, |old| old.min(bytes));
        if credited > 0 {
            self.budget.credit(credited);
        }
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        self.budget.forget(self.gauge.id);
    }
}

impl<T: Send + 'static> BudgetedQueue for Shared<T> {
    fn stall(&self, after: Option<Duration>) {
        self.finish(End::Stalled { bytes: self.gauge.bytes.load(Relaxed), after }, true);
        // The batch of the consumer is returned with the discarded items, because a consumer that stopped may never
        // take it, and other queues must not wait for it. No items can be added any more.
        self.credit(self.gauge.bytes.load(Relaxed));
    }

    fn close(&self, reason: &Closed) {
        self.finish(End::Closed(reason.clone()), false);
    }
}

/// The sending half of a [`Queue`]. Clones send to the same queue. Dropping the last one does not end the queue, because
/// the response that ends it may still arrive: call [`finish`](Self::finish).
pub struct QueueSender<T> {
    shared: Arc<Shared<T>>,
}

impl<T> Clone for QueueSender<T> {
    fn clone(&self) -> Self {
        QueueSender { shared: self.shared.clone() }
    }
}

impl<T: Send + 'static> QueueSender<T> {
    /// Appends an item that took `bytes` on the wire. Never waits.
    ///
    /// # Errors
    ///
    /// Returns the item if the queue has ended or its receiving half was dropped.
    pub fn push(&self, item: T, bytes: usize) -> Result<(), T> {
        let mut state = self.shared.state.lock_unpoisoned();
        if state.end.is_some() || !state.receiver {
            return Err(item);
        }
        self.shared.gauge.bytes.fetch_add(bytes, Relaxed);
        self.shared.budget.charge(bytes);
        state.items.push(item, bytes);
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            self.shared.budget.wakes.wake(waker);
        }
        Ok(())
    }

    /// Ends the queue behind its items.
    pub fn finish(&self) {
        self.shared.finish(End::Finished, false);
    }

    /// Returns the id of the queue, for [`Peer::request_into`](crate::Peer::request_into).
    #[must_use]
    pub fn id(&self) -> QueueId {
        self.shared.gauge.id
    }
}

/// The id of a queue that a request feeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueId(pub(crate) u64);

/// The wire bytes that a consumer takes under one lock, unless a single item is larger. A stall cannot
/// discard them, so the batch must be small.
pub(crate) const BATCH: usize = 32 * 1024;

/// The receiving half of a queue. It returns the items in wire order, then the end.
///
/// It ends at [`QueueSender::finish`] and at the end of the connection, but not when its senders are dropped. An error
/// (`Stalled`, `Closed`) is the last item. Dropping the queue discards its items.
pub struct Queue<T> {
    shared: Arc<Shared<T>>,
    /// The batch that was taken under the lock. Its items count until they are returned.
    local: ByteQueue<T>,
}

impl<T: Send + 'static> Queue<T> {
    /// Waits for the next item.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<Result<T, Error>> {
        std::future::poll_fn(|cx| self.poll_take(cx)).await
    }

    fn poll_take(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<T, Error>>> {
        if self.local.is_empty() {
            let mut state = self.shared.state.lock_unpoisoned();
            if state.items.is_empty() {
                match &state.end {
                    None => {
                        match &mut state.waker {
                            Some(waker) => waker.clone_from(cx.waker()),
                            none => *none = Some(cx.waker().clone()),
                        }
                        return Poll::Pending;
                    }
                    Some(end) => {
                        // The error is returned once, then `None`.
                        let item = match end.clone() {
                            End::Finished => None,
                            End::Stalled { bytes, after } => Some(Err(Error::Stalled { bytes, after })),
                            End::Closed(reason) => Some(Err(Error::Closed(reason))),
                        };
                        state.end = Some(End::Finished);
                        return Poll::Ready(item);
                    }
                }
            }
            while self.local.bytes() < BATCH
                && let Some((item, bytes)) = state.items.pop()
            {
                self.local.push(item, bytes);
            }
        }
        Poll::Ready(self.local.pop().map(|(item, bytes)| {
            self.shared.credit(bytes);
            Ok(item)
        }))
    }
}

impl<T: Send + 'static> Stream for Queue<T> {
    type Item = Result<T, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_take(cx)
    }
}

impl<T> Unpin for Queue<T> {}

impl<T> std::fmt::Debug for Queue<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue").field("bytes", &self.shared.gauge.bytes.load(Relaxed)).finish_non_exhaustive()
    }
}

impl<T> Drop for Queue<T> {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock_unpoisoned();
        state.receiver = false;
        let items = std::mem::take(&mut state.items);
        drop(state);
        self.shared.credit(items.bytes() + self.local.bytes());
    }
}

#[cfg(all(test, not(duologue_loom)))]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    use futures_util::FutureExt as _;

    use super::*;
    use crate::limits::Limits;

    fn budget() -> Arc<Budget> {
        Arc::new(Budget::new(&Limits::default()))
    }

    /// Items before the end are kept, and a later end of another kind changes nothing.
    #[test]
    fn the_first_end_of_a_queue_counts() {
        for is_closed in [false, true] {
            let budget = budget();
            let (sender, mut queue) = queue(&budget);
            sender.push(1, 1).unwrap();
            if is_closed {
                budget.close_all(&Closed::EndOfInput);
                sender.finish();
            } else {
                sender.finish();
                budget.close_all(&Closed::EndOfInput);
            }
            assert_eq!(sender.push(2, 1), Err(2));
            let mut next = || queue.next().now_or_never().expect("it has ended");
            assert!(matches!(next(), Some(Ok(1))));
            let end = next();
            assert_eq!(matches!(end, Some(Err(Error::Closed(Closed::EndOfInput)))), is_closed, "{end:?}");
            assert!(next().is_none());
        }
    }

    #[derive(Default)]
    struct Bell(AtomicUsize);

    impl Wake for Bell {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    /// A queue may move to another task between two polls.
    #[test]
    fn the_task_that_polled_last_is_woken() {
        let (sender, mut queue) = queue(&budget());
        let bells = [Arc::<Bell>::default(), Arc::default()];
        for bell in &bells {
            let waker = bell.clone().into();
            assert!(queue.poll_take(&mut Context::from_waker(&waker)).is_pending());
        }
        sender.push((), 1).unwrap();
        assert_eq!(bells.map(|bell| bell.0.load(Relaxed)), [0, 1]);
    }
}
