//! The updates of a session between its turns: sent to a listener, or kept for the next one.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::task::{Context, Poll, ready};

use duologue_rpc::{EvictingQueue, EvictionLimits, Queue, QueueSender};
use duologue_schema::SessionUpdate;
use futures::{FutureExt as _, Stream};

use crate::connection::ConnectionInner;
use crate::error::{Error, Result};
use crate::limits::{KEPT_BYTES, KEPT_BYTES_TOGETHER, KEPT_UPDATES};
use crate::router::SessionEntry;
use crate::turn::Turn;

/// The limits of updates that wait for a listener.
const KEPT: EvictionLimits =
    EvictionLimits { items: KEPT_UPDATES, bytes: KEPT_BYTES, shared_bytes: KEPT_BYTES_TOGETHER };

/// Updates between turns.
pub(crate) enum IdleUpdates {
    Kept(EvictingQueue<SessionUpdate>),
    Sent(QueueSender<SessionUpdate>),
}

impl IdleUpdates {
    /// Creates a queue that waits for a listener. `together` counts the bytes of all sessions.
    pub(crate) fn kept(together: &Arc<AtomicUsize>) -> Self {
        IdleUpdates::Kept(EvictingQueue::new(KEPT, together))
    }

    /// Sends the kept updates and later ones to `sink`. Returns the number of the kept ones.
    pub(crate) fn listen(&mut self, sink: QueueSender<SessionUpdate>) -> u64 {
        let mut count = 0;
        match std::mem::replace(self, IdleUpdates::Sent(sink.clone())) {
            IdleUpdates::Kept(mut kept) => {
                while let Some((update, bytes)) = kept.pop() {
                    let _ = sink.push(update, bytes);
                    count += 1;
                }
            }
            IdleUpdates::Sent(previous) => previous.finish(),
        }
        count
    }

    /// Sends or keeps an update. Returns the number of evicted updates.
    pub(crate) fn push(&mut self, update: SessionUpdate, bytes: usize, together: &Arc<AtomicUsize>) -> u64 {
        let update = match self {
            IdleUpdates::Sent(sink) => match sink.push(update, bytes) {
                Ok(()) => return 0,
                // The listener was dropped. Keep updates for the next one.
                Err(update) => {
                    *self = IdleUpdates::kept(together);
                    update
                }
            },
            IdleUpdates::Kept(_) => update,
        };
        match self {
            IdleUpdates::Kept(kept) => kept.push(update, bytes),
            IdleUpdates::Sent(_) => 0,
        }
    }
}

/// A stream of updates of a session between its turns. It ends with the connection.
pub struct Updates {
    queue: Queue<SessionUpdate>,
    /// The number of updates between turns before the next one.
    taken: u64,
    /// Keeps the session registered.
    session: Arc<SessionEntry>,
}

impl Updates {
    /// Listens to the updates of a session between its turns.
    pub(crate) fn of(connection: &ConnectionInner, session: &Arc<SessionEntry>) -> Self {
        let (sink, queue) = connection.peer().queue();
        let taken = session.listen(sink);
        Updates { queue, taken, session: session.clone() }
    }
}

impl std::fmt::Debug for Updates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Updates").field("session", &self.session.id).finish_non_exhaustive()
    }
}

impl Updates {
    /// Waits for the next update. At the end of the connection it returns one error with the reason, then
    /// `None`.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no update.
    pub async fn next(&mut self) -> Option<Result<SessionUpdate>> {
        std::future::poll_fn(|cx| self.poll_update(cx)).await
    }

    /// Returns the next update that arrived before a turn of the session began, without waiting. `None` means that
    /// every such update was returned. Later ones arrive after the turn.
    ///
    /// With this, a user interface shows the updates of a session in the order of the wire: those before the turn, then
    /// those of the turn.
    pub fn next_before(&mut self, turn: &Turn) -> Option<Result<SessionUpdate>> {
        if !turn.is_behind(&self.session, self.taken) {
            return None;
        }
        self.next().now_or_never().flatten()
    }

    fn poll_update(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<SessionUpdate>>> {
        let next = ready!(Pin::new(&mut self.queue).poll_next(cx));
        self.taken += u64::from(matches!(next, Some(Ok(_))));
        Poll::Ready(next.map(|update| update.map_err(Error::from)))
    }
}

impl Stream for Updates {
    type Item = Result<SessionUpdate>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_update(cx)
    }
}
