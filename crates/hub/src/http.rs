//! The hub on a socket, behind a token.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use duologue_http::{AgentEndpoint, AgentEndpointOptions, ClientPresence, serve};
use tokio::sync::watch;

#[cfg(unix)]
pub use duologue_http::LocalListener;
#[cfg(feature = "tls")]
pub use duologue_http::ServerTls;
pub use duologue_http::{AllowedHosts, Listeners, SecretText, ServerOptions};

use crate::hub::{Hub, LOCAL};

/// The bytes of frames that a client has not confirmed, at which the hub waits. A client confirms each 256 KiB.
const RING_BYTES: usize = 2 << 20;

/// The time in which clients are sent what the sessions have ended with.
pub(crate) const FLUSH: Duration = Duration::from_secs(2);

/// Checks that a server has a token.
pub(crate) fn require_token(options: &ServerOptions) -> io::Result<()> {
    let missing =
        || io::Error::new(io::ErrorKind::InvalidInput, "a server of sessions needs `ServerOptions::token`");
    options.token.as_ref().map(drop).ok_or_else(missing)
}

impl Hub {
    /// Serves clients on a TCP listener and a Unix socket until `stop` resolves, then ends all sessions.
    ///
    /// # Errors
    ///
    /// If a listener fails. [`io::ErrorKind::InvalidInput`] without [`ServerOptions::token`], because every client can use
    /// every session. A program without a TCP listener sets one that nobody knows.
    pub async fn serve_http(
        &self,
        listeners: impl Into<Listeners>,
        options: ServerOptions,
        stop: impl Future<Output = ()> + Send,
    ) -> io::Result<()> {
        require_token(&options)?;
        let endpoint = self.endpoint(LOCAL);
        let served = tokio::select! {
            served = serve(listeners, endpoint.clone(), options) => served,
            () = stop => Ok(()),
        };
        self.shut_down().await;
        // The program may end now, and the clients need the responses of the last turns.
        endpoint.flush(FLUSH).await;
        served
    }

    /// Creates an endpoint for the clients of a principal.
    pub(crate) fn endpoint(&self, principal: &str) -> AgentEndpoint {
        let (hub, principal) = (self.clone(), Arc::<str>::from(principal));
        let serve_client = move |transport, mut presence: ClientPresence| {
            let (hub, principal) = (hub.clone(), principal.clone());
            async move {
                let (sender, receiver) = watch::channel(true);
                let report = async {
                    loop {
                        sender.send_replace(presence.changed().await);
                    }
                };
                tokio::select! {
                    () = hub.serve_watched(principal, transport, receiver) => {}
                    () = report => {}
                }
            }
        };
        let mut options = AgentEndpointOptions::default();
        // The log has what the endpoint does not keep.
        options.ring_bytes = RING_BYTES;
        AgentEndpoint::with_presence(serve_client, options)
    }
}
