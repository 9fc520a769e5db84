//! What the other agent can do, asked once in a while.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use duologue_schema::envelope::{Capabilities, Discover};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::request::SHORT;
use crate::error::Result;
use crate::peer_agent::PeerAgent;

/// How long an answer to [`discover`](PeerAgent::discover) is taken for true.
pub const DISCOVER_LIFETIME: Duration = Duration::from_secs(60);

/// What the last `discover` came to.
#[derive(Debug, Default)]
pub(crate) struct DiscoveryCache {
    last: Mutex<Option<Result<(Instant, Capabilities)>>>,
    /// How often it has failed.
    failures: AtomicU64,
}

impl PeerAgent {
    /// What the other agent says it can do. An answer is kept for a minute ([`DISCOVER_LIFETIME`]) or until the
    /// connection ends, for all handles on it; several calls at once ask once and fail together.
    ///
    /// # Errors
    ///
    /// As [`ping`](Self::ping).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future withdraws the question, if this call asked it; the next one asks again.
    pub async fn discover(&self) -> Result<Capabilities> {
        let DiscoveryCache { last, failures } = &self.link.discovered;
        let before = failures.load(Relaxed);
        let mut last = last.lock().await;
        match &*last {
            Some(Ok((at, capabilities))) if at.elapsed() < DISCOVER_LIFETIME && !self.rpc().is_closed() => {
                Ok(capabilities.clone())
            }
            // It failed while this call waited for it.
            Some(Err(error)) if failures.load(Relaxed) != before => Err(error.clone()),
            _ => {
                *last = None;
                match self.ask(self.envelope(Discover::new()), SHORT).await {
                    Ok(answer) => {
                        *last = Some(Ok((Instant::now(), answer.payload.clone())));
                        Ok(answer.payload)
                    }
                    Err(error) => {
                        failures.fetch_add(1, Relaxed);
                        *last = Some(Err(error.clone()));
                        Err(error)
                    }
                }
            }
        }
    }

    /// Forgets what [`discover`](Self::discover) has kept, so that the next call asks. It waits for a
    /// question that is on its way.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future forgets nothing.
    pub async fn forget_discovered(&self) {
        *self.link.discovered.last.lock().await = None;
    }
}
