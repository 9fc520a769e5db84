//! A cache of the other agent's capabilities.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use duologue_schema::envelope::{Capabilities, Discover};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::outgoing::MessageOptions;
use super::request::SHORT;
use crate::error::Result;
use crate::peer_agent::PeerAgent;

/// Lifetime of a response to [`discover`](PeerAgent::discover) in the cache.
pub const DISCOVER_LIFETIME: Duration = Duration::from_secs(60);

/// The result of the last `discover`.
#[derive(Debug, Default)]
pub(crate) struct DiscoveryCache {
    last: Mutex<Option<Result<(Instant, Capabilities)>>>,
    /// The number of failed requests.
    failures: AtomicU64,
}

impl PeerAgent {
    /// Returns the other agent's capabilities. All handles on the connection share one cache: a
    /// response is kept for a minute ([`DISCOVER_LIFETIME`]) or until the connection ends.
    /// Concurrent calls share one request and its error. A handle of [`addressed_to`](Self::addressed_to) sends a request
    /// each time.
    ///
    /// # Errors
    ///
    /// The errors of [`ping`](Self::ping).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future withdraws the request if this call sent it; the next call sends a new
    /// one.
    pub async fn discover(&self) -> Result<Capabilities> {
        if self.address().is_some() {
            let message = self.prepare(Discover::new(), MessageOptions::here())?;
            return self.ask(message, SHORT).await.map(|answer| answer.envelope.payload);
        }
        let DiscoveryCache { last, failures } = &self.link.discovered;
        let before = failures.load(Relaxed);
        let mut last = last.lock().await;
        match &*last {
            Some(Ok((at, capabilities))) if at.elapsed() < DISCOVER_LIFETIME && !self.rpc().is_closing() => {
                Ok(capabilities.clone())
            }
            // The request failed while this call waited for it.
            Some(Err(error)) if failures.load(Relaxed) != before => Err(error.clone()),
            _ => {
                *last = None;
                let message = self.prepare(Discover::new(), MessageOptions::here())?;
                match self.ask(message, SHORT).await {
                    Ok(answer) => {
                        let capabilities = answer.envelope.payload;
                        *last = Some(Ok((Instant::now(), capabilities.clone())));
                        Ok(capabilities)
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

    /// Clears the cache of [`discover`](Self::discover), so that the next call sends a request. It
    /// waits for a request in flight.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the cache unchanged.
    pub async fn forget_discovered(&self) {
        *self.link.discovered.last.lock().await = None;
    }
}
