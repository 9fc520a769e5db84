//! Subscriptions to notifications by topic, and to the progress of a task.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll, Waker};

use duologue_schema::SessionId;
use duologue_schema::envelope::Notify;
use futures::Stream;

use super::{Pattern, Received};
use crate::limits::{OUTPUT_BYTES, OUTPUT_CHUNK_BYTES, SUBSCRIPTION_BYTES, SUBSCRIPTION_MESSAGES};
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
        let pattern = pattern.into();
        if self.link.envelope_handler.is_none() {
            tracing::warn!(%pattern, "this side receives no notifications without an Exchange");
        }
        let queue = SubscriptionQueue::new();
        let subscriber = Subscriber::new(pattern, self.session().cloned(), &queue);
        if !self.link.envelopes.with(|machine| machine.subscribe(subscriber)) {
            queue.close();
        }
        Subscription::new(queue, Some(self.clone()))
    }
}

/// A subscription counts its own bytes only.
const LIMITS: EvictionLimits =
    EvictionLimits { items: SUBSCRIPTION_MESSAGES, bytes: SUBSCRIPTION_BYTES, shared_bytes: usize::MAX };

/// A subscription by topic, as the connection knows it.
pub(crate) struct Subscriber {
    pattern: Pattern,
    /// The session to filter by, if any.
    session: Option<SessionId>,
    queue: Weak<SubscriptionQueue>,
}

impl Subscriber {
    pub(crate) fn new(pattern: Pattern, session: Option<SessionId>, queue: &Arc<SubscriptionQueue>) -> Self {
        Subscriber { pattern, session, queue: Arc::downgrade(queue) }
    }

    /// Returns true if the notification matches the filter.
    pub(crate) fn wants(&self, notification: &Received<Notify>) -> bool {
        let session = self.session.as_ref();
        self.pattern.matches(&notification.topic)
            && session.is_none_or(|session| notification.peer.session() == Some(session))
    }

    /// Returns true if the [`Subscription`] exists.
    pub(crate) fn exists(&self) -> bool {
        self.queue.strong_count() > 0
    }

    pub(crate) fn queue(&self) -> Option<Arc<SubscriptionQueue>> {
        self.queue.upgrade()
    }
}

/// The queue of a subscription, or of the progress of a task.
///
/// It has a lock of its own, because its reader polls it from another task than the connection's.
pub(crate) struct SubscriptionQueue {
    state: Mutex<State>,
    /// The bytes that each message counts besides its own.
    overhead: usize,
}

/// A notification, and the bytes that it takes in its queue.
type SizedNotification = (Arc<Received<Notify>>, usize);

struct State {
    waiting: EvictingQueue<Arc<Received<Notify>>>,
    missed: u64,
    closed: bool,
    handles: u64,
    /// One for each handle: the progress of a task may have several.
    wakers: Vec<(u64, Waker)>,
}

impl SubscriptionQueue {
    pub(crate) fn new() -> Arc<Self> {
        SubscriptionQueue::with_limits(LIMITS, 0)
    }

    /// Creates a queue for the output of a task. Its bytes limit the number of its chunks too.
    pub(crate) fn for_output() -> Arc<Self> {
        let limits = EvictionLimits { items: usize::MAX, bytes: OUTPUT_BYTES, ..LIMITS };
        SubscriptionQueue::with_limits(limits, OUTPUT_CHUNK_BYTES)
    }

    fn with_limits(limits: EvictionLimits, overhead: usize) -> Arc<Self> {
        let state = State {
            waiting: EvictingQueue::new(limits, &Arc::default()),
            missed: 0,
            closed: false,
            handles: 0,
            wakers: Vec::new(),
        };
        Arc::new(SubscriptionQueue { state: Mutex::new(state), overhead })
    }

    /// Adds a message of `bytes` on the wire and never waits. If the queue is full, the oldest are
    /// dropped. A message larger than the queue is dropped itself.
    pub(crate) fn push(&self, notification: Arc<Received<Notify>>, bytes: usize) {
        let bytes = bytes.saturating_add(self.overhead);
        self.change(|state| state.missed += state.waiting.push(notification, bytes));
    }

    /// Closes the queue.
    pub(crate) fn close(&self) {
        self.change(|state| state.closed = true);
    }

    /// Changes an open queue, and wakes its readers without the lock.
    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state.lock_unpoisoned();
        if state.closed {
            return;
        }
        change(&mut state);
        let wakers = std::mem::take(&mut state.wakers);
        drop(state);
        wakers.into_iter().for_each(|(_, waker)| waker.wake());
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
    queue: Arc<SubscriptionQueue>,
    handle: u64,
    /// Keeps the session registered on our side.
    _peer: Option<PeerAgent>,
}

impl Subscription {
    pub(crate) fn new(queue: Arc<SubscriptionQueue>, peer: Option<PeerAgent>) -> Self {
        let handle = {
            let mut state = queue.state.lock_unpoisoned();
            state.handles += 1;
            state.handles
        };
        Subscription { queue, handle, _peer: peer }
    }

    /// Returns a closed subscription.
    pub(crate) fn ended() -> Self {
        let queue = SubscriptionQueue::new();
        queue.close();
        Subscription::new(queue, None)
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
        std::future::poll_fn(|cx| self.poll(cx)).await.map(|item| item.map(|(notification, _)| notification))
    }

    /// Wakes all readers of the queue.
    pub(super) fn wake_all(&self) {
        self.queue.change(|_| {});
    }

    /// Polls for the next message and its bytes.
    pub(super) fn poll(&self, cx: &Context<'_>) -> Poll<Option<Result<SizedNotification, Lagged>>> {
        let mut state = self.queue.state.lock_unpoisoned();
        if state.missed > 0 {
            let missed = std::mem::take(&mut state.missed);
            return Poll::Ready(Some(Err(Lagged { missed })));
        }
        if let Some(sized) = state.waiting.pop() {
            return Poll::Ready(Some(Ok(sized)));
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

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll(cx).map_ok(|(notification, _)| notification)
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.queue.state.lock_unpoisoned().wakers.retain(|(handle, _)| *handle != self.handle);
    }
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waiting = self.queue.state.lock_unpoisoned().waiting.len();
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
