//! Subscriptions to notifications by topic, and to the progress of a task.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use duologue_schema::envelope::Notify;
use futures::Stream;

use super::{Pattern, Received};
use crate::limits::{SUBSCRIPTION_BYTES, SUBSCRIPTION_MESSAGES};
use crate::peer_agent::PeerAgent;
use duologue_rpc::{EvictingQueue, EvictionLimits, Lock as _};

impl PeerAgent {
    /// Subscribes to the notifications of the other agent whose topic matches `pattern`. A handle
    /// with a session receives only those of its session.
    /// [`EnvelopeHandler::notify`](super::EnvelopeHandler::notify) receives them too.
    ///
    /// A side without an [`Exchange`](crate::Exchange) advertises nothing, so it receives no
    /// notifications. Subscribe on the handle of the connection to receive those sent while a
    /// session is created.
    ///
    /// ```no_run
    /// # async fn run(peer: duologue_exchange::PeerAgent) {
    /// let mut family = peer.subscribe("family.*");
    /// while let Some(Ok(notification)) = family.next().await {
    ///     println!("{}: {:?}", notification.topic, notification.data);
    /// }
    /// # }
    /// ```
    pub fn subscribe(&self, pattern: impl Into<Pattern>) -> Subscription {
        let filter = Filter { pattern: pattern.into(), peer: self.clone() };
        if self.link.envelope_handler.is_none() {
            tracing::warn!(pattern = %filter.pattern, "this side receives no notifications without an Exchange");
        }
        let listener = SubscriptionQueue::new(Some(filter));
        // Checked under the lock: the end of the connection closes the queues that are in the list
        // by then.
        let mut listeners = self.link.envelopes.listeners.lock_unpoisoned();
        if self.link.envelopes.ended.is_cancelled() {
            listener.close();
        } else {
            listeners.retain(|other| other.strong_count() > 0);
            listeners.push(Arc::downgrade(&listener));
        }
        drop(listeners);
        Subscription::new(listener)
    }
}

/// A subscription counts its own bytes only.
static LIMITS: EvictionLimits =
    EvictionLimits { items: SUBSCRIPTION_MESSAGES, bytes: SUBSCRIPTION_BYTES, shared_bytes: usize::MAX };

/// The filter of a subscription.
struct Filter {
    pattern: Pattern,
    /// The session to filter by, if any. The handle keeps it registered.
    peer: PeerAgent,
}

/// The queue of a subscription.
pub(crate) struct SubscriptionQueue {
    /// `None` for the progress of a task, whose messages are routed by `ref`.
    filter: Option<Filter>,
    state: Mutex<State>,
}

struct State {
    waiting: EvictingQueue<Arc<Received<Notify>>>,
    missed: u64,
    closed: bool,
    handles: u64,
    /// One for each handle: the progress of a task may have several.
    wakers: Vec<(u64, Waker)>,
}

impl SubscriptionQueue {
    fn new(filter: Option<Filter>) -> Arc<Self> {
        let state = State {
            waiting: EvictingQueue::new(&LIMITS, &Arc::default()),
            missed: 0,
            closed: false,
            handles: 0,
            wakers: Vec::new(),
        };
        Arc::new(SubscriptionQueue { filter, state: Mutex::new(state) })
    }

    pub(crate) fn of_a_task() -> Arc<Self> {
        SubscriptionQueue::new(None)
    }

    /// Returns true if the notification matches the filter.
    pub(crate) fn wants(&self, notification: &Received<Notify>) -> bool {
        self.filter.as_ref().is_some_and(|filter| {
            let session = filter.peer.session();
            filter.pattern.matches(&notification.topic)
                && session.is_none_or(|session| notification.peer.session() == Some(session))
        })
    }

    /// Adds a message of `bytes` on the wire and never waits. If the queue is full, the oldest are
    /// dropped. A message larger than the queue is dropped itself.
    pub(crate) fn push(&self, notification: Arc<Received<Notify>>, bytes: usize) {
        let mut state = self.state.lock_unpoisoned();
        if state.closed {
            return;
        }
        // A message that does not fit must not evict the others.
        let fits = bytes <= SUBSCRIPTION_BYTES;
        state.missed += if fits { state.waiting.push(notification, bytes) } else { 1 };
        state.wake();
    }

    /// Closes the queue.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock_unpoisoned();
        state.closed = true;
        state.wake();
    }
}

impl State {
    fn wake(&mut self) {
        self.wakers.drain(..).for_each(|(_, waker)| waker.wake());
    }
}

/// A stream of notifications; see [`PeerAgent::subscribe`] and
/// [`Delegation::progress`](super::Delegation::progress).
///
/// It buffers 256 messages or 1 MiB. If they are not read in time, the oldest are dropped, as is a
/// message that is larger than the buffer. The next item then reports how many. The stream ends
/// with the connection, and the progress of a task ends with the task.
#[must_use = "notifications are dropped if they are not read"]
pub struct Subscription {
    listener: Arc<SubscriptionQueue>,
    handle: u64,
}

impl Subscription {
    pub(crate) fn new(listener: Arc<SubscriptionQueue>) -> Self {
        let handle = {
            let mut state = listener.state.lock_unpoisoned();
            state.handles += 1;
            state.handles
        };
        Subscription { listener, handle }
    }

    /// Returns a closed subscription.
    pub(crate) fn ended() -> Self {
        let listener = SubscriptionQueue::of_a_task();
        listener.close();
        Subscription::new(listener)
    }

    /// Waits for the next message; returns `None` at the end.
    ///
    /// # Errors
    ///
    /// [`Lagged`] if messages were dropped. The stream continues.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<Result<Arc<Received<Notify>>, Lagged>> {
        std::future::poll_fn(|cx| self.poll(cx)).await
    }

    fn poll(&mut self, cx: &Context<'_>) -> Poll<Option<Result<Arc<Received<Notify>>, Lagged>>> {
        let mut state = self.listener.state.lock_unpoisoned();
        if state.missed > 0 {
            let missed = std::mem::take(&mut state.missed);
            return Poll::Ready(Some(Err(Lagged { missed })));
        }
        if let Some((notification, _)) = state.waiting.pop() {
            return Poll::Ready(Some(Ok(notification)));
        }
        if state.closed {
            return Poll::Ready(None);
        }
        match state.wakers.iter_mut().find(|(handle, _)| *handle == self.handle) {
            Some((_, waker)) => waker.clone_from(cx.waker()),
            None => state.wakers.push((self.handle, cx.waker().clone())),
        }
        Poll::Pending
    }
}

impl Stream for Subscription {
    type Item = Result<Arc<Received<Notify>>, Lagged>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll(cx)
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.listener.state.lock_unpoisoned().wakers.retain(|(handle, _)| *handle != self.handle);
    }
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waiting = self.listener.state.lock_unpoisoned().waiting.len();
        f.debug_struct("Subscription").field("waiting", &waiting).finish_non_exhaustive()
    }
}

/// Messages were dropped because they were not read in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{missed} messages were dropped because they were not read in time")]
#[non_exhaustive]
pub struct Lagged {
    /// The number of dropped messages.
    pub missed: u64,
}
