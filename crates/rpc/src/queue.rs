//! Streams of updates, and the one budget that all streams of a connection share.
//!
//! The reader pushes and never waits; whoever owns the other end takes. What is not taken counts
//! against the budget by its size on the wire, and the reader pauses over it (see `budget.rs`).

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures::Stream;

use crate::budget::{Budget, BudgetedQueue, QueueGauge};
use crate::byte_queue::ByteQueue;
use crate::error::{Closed, Error};
use crate::sync::atomic::Ordering::Relaxed;
use crate::sync::{Lock, Mutex};
use crate::wake_batch;

/// Makes a stream whose items count against `budget`.
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
        let items = if discard { std::mem::take(&mut state.items) } else { ByteQueue::new() };
        let waker = state.waker.take();
        drop(state);
        self.credit(items.bytes());
        if let Some(waker) = waker {
            wake_batch::wake(waker);
        }
    }

    /// Gives bytes back to the budget, but never more than the stream still counts: what was in the
    /// taker's hands when the stream was stalled has been given back then.
    fn credit(&self, bytes: usize) {
        let held = self.gauge.bytes.fetch_update(Relaxed, Relaxed, |held| Some(held.saturating_sub(bytes)));
        let credited = held.map_or(0, |held| held.min(bytes));
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
        // A taker that stopped halfway may never come back for the batch it holds, and the others
        // must not wait for it. Nothing can be added any more, so this is all there is.
        self.credit(self.gauge.bytes.load(Relaxed));
    }

    fn close(&self, reason: &Closed) {
        self.finish(End::Closed(reason.clone()), false);
    }
}

/// The reader's end of a stream. Cloning it gives another name for the same stream.
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
    /// Gives the item back when the stream has ended or nobody holds its other end.
    ///
    /// # Errors
    ///
    /// The item itself.
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

    /// Ends the stream after what it holds.
    pub fn finish(&self) {
        self.shared.finish(End::Finished, false);
    }

    /// Names the stream to [`Peer::request_into`](crate::Peer::request_into).
    #[must_use]
    pub fn id(&self) -> StreamId {
        self.shared.gauge.id
    }
}

/// Which stream a request feeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamId(pub(crate) u64);

/// How many wire bytes a taker moves out of the lock at once, unless a single item has more. What it
/// holds cannot be discarded when the stream stalls, so it must not be much.
const BATCH: usize = 32 * 1024;

/// The taker's end of a stream: items in wire order, then its end.
///
/// An error item (`Stalled`, `Closed`) is the last one. Dropping it discards what it holds.
pub struct Queue<T> {
    shared: Arc<Shared<T>>,
    /// Items that were moved out of the lock together. They still count until they are taken.
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
                        // The error is said once; after it the stream is simply over.
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
