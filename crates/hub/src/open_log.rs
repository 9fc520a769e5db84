//! The log of a session that is open, and the signal that the session is deleted.

use std::ops::Deref;

use duologue_store::FileLog;
use tokio::sync::watch;

/// The log of a session, for its task and for its readers. It is open until all of them have released it.
#[derive(Debug)]
pub(crate) struct OpenLog {
    log: FileLog,
    /// True from the deletion of the session on.
    is_deleted: watch::Sender<bool>,
}

impl OpenLog {
    pub(crate) fn new(log: FileLog) -> Self {
        OpenLog { log, is_deleted: watch::Sender::new(false) }
    }

    /// Asks the readers to release the log, because the session is deleted.
    pub(crate) fn delete(&self) {
        self.is_deleted.send_replace(true);
    }

    pub(crate) fn is_deleted(&self) -> bool {
        *self.is_deleted.borrow()
    }

    /// Waits until the session is deleted.
    pub(crate) async fn deleted(&self) {
        // The sender lives as long as this future.
        let _ = self.is_deleted.subscribe().wait_for(|is_deleted| *is_deleted).await;
    }
}

impl Deref for OpenLog {
    type Target = FileLog;

    fn deref(&self) -> &FileLog {
        &self.log
    }
}
