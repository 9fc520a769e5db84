//! The updates of a session between its turns: sent to a listener, or kept for the next one.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use duologue_rpc::{EvictingQueue, EvictionLimits, QueueSender};
use duologue_schema::SessionUpdate;

use crate::limits::{KEPT_BYTES, KEPT_BYTES_TOGETHER, KEPT_UPDATES};

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

    /// Sends the kept updates and later ones to `sink`.
    pub(crate) fn listen(&mut self, sink: QueueSender<SessionUpdate>) {
        match std::mem::replace(self, IdleUpdates::Sent(sink.clone())) {
            IdleUpdates::Kept(mut kept) => {
                while let Some((update, bytes)) = kept.pop() {
                    let _ = sink.push(update, bytes);
                }
            }
            IdleUpdates::Sent(previous) => previous.finish(),
        }
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
