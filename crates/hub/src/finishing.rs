//! The work for clients that have left.

use std::sync::Mutex;
use std::time::Duration;

use duologue_rpc::Lock as _;
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// The time in which the requests of a client that has left are finished. Others of a principal do not wait for a user who
/// may not come back.
const FINISHING: Duration = Duration::from_secs(60);

/// The requests of clients that have left: a server finishes what it has received, such as the deletion of a session.
#[derive(Debug)]
pub(crate) struct FinishingRequests(Mutex<Option<JoinSet<()>>>);

impl Default for FinishingRequests {
    fn default() -> Self {
        FinishingRequests(Mutex::new(Some(JoinSet::new())))
    }
}

impl FinishingRequests {
    /// Finishes the requests of a client. After the shutdown they are dropped.
    pub(crate) fn spawn(&self, requests: impl Future<Output = ()> + Send + 'static) {
        let Ok(runtime) = Handle::try_current() else { return };
        if let Some(tasks) = &mut *self.0.lock_unpoisoned() {
            while tasks.try_join_next().is_some() {}
            let within = async {
                if timeout(FINISHING, requests).await.is_err() {
                    tracing::warn!(limit = ?FINISHING, "the requests of a client that has left are not finished in time");
                }
            };
            tasks.spawn_on(within, &runtime);
        }
    }

    /// Waits until all requests are finished. Those of clients that leave later are dropped.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the requests.
    pub(crate) async fn end(&self) {
        let tasks = self.0.lock_unpoisoned().take();
        let Some(mut tasks) = tasks else { return };
        while tasks.join_next().await.is_some() {}
    }
}
