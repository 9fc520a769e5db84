//! The queue of requests that change a session.

use std::sync::Mutex;

use duologue_rpc::Lock;
use tokio::sync::oneshot;

/// The queue of a session, in the order of the wire.
#[derive(Default)]
pub(crate) struct SessionQueue {
    last: Mutex<Option<oneshot::Receiver<()>>>,
}

impl SessionQueue {
    /// Returns a ticket for the end of the queue.
    pub(crate) fn ticket(&self) -> QueueTicket {
        let (done, next) = oneshot::channel();
        QueueTicket { before: self.last.lock_unpoisoned().replace(next), _done: done }
    }
}

/// A ticket in the queue of requests that change a session. Dropping it lets the next request run.
pub(crate) struct QueueTicket {
    before: Option<oneshot::Receiver<()>>,
    _done: oneshot::Sender<()>,
}

impl QueueTicket {
    /// Returns true if an earlier request has not finished.
    pub(crate) fn must_wait(&mut self) -> bool {
        let empty = Err(oneshot::error::TryRecvError::Empty);
        // A receiver that is ready must not be awaited again.
        self.before.take_if(|before| before.try_recv() != empty);
        self.before.is_some()
    }

    pub(crate) async fn wait_turn(&mut self) {
        if let Some(before) = self.before.take() {
            let _ = before.await;
        }
    }
}
