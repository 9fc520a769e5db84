//! What the other agent can do, asked once in a while.

use std::time::Duration;

use duologue_schema::envelope::{Capabilities, Discover};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::asking::SHORT;
use crate::error::Result;
use crate::peer_agent::PeerAgent;

/// How long an answer to `discover` is taken for true.
pub(crate) const LIFETIME: Duration = Duration::from_secs(60);

/// The last answer to `discover`, and when it came.
#[derive(Debug, Default)]
pub(crate) struct Discovered(Mutex<Option<(Instant, Capabilities)>>);

impl PeerAgent {
    /// What the other agent says it can do. An answer is kept for a minute, for all handles on the
    /// connection; several calls at once ask once.
    ///
    /// # Errors
    ///
    /// As [`ping`](Self::ping).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future withdraws the question, if this call asked it; the next one asks again.
    pub async fn discover(&self) -> Result<Capabilities> {
        let mut last = self.link.discovered.0.lock().await;
        match &*last {
            Some((at, capabilities)) if at.elapsed() < LIFETIME => Ok(capabilities.clone()),
            _ => {
                *last = None;
                let capabilities = self.ask(self.envelope(Discover::new()), SHORT).await?.payload;
                Ok(last.insert((Instant::now(), capabilities)).1.clone())
            }
        }
    }

    /// Forgets what [`discover`](Self::discover) has kept, so that the next call asks.
    pub async fn forget_discovered(&self) {
        *self.link.discovered.0.lock().await = None;
    }
}
