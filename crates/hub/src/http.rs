//! The hub on a socket, behind a token.

use std::future::Future;
use std::io;
use std::time::Duration;

use duologue_http::{AgentEndpoint, serve};
use tokio::net::TcpListener;

#[cfg(feature = "tls")]
pub use duologue_http::ServerTls;
pub use duologue_http::{AccessToken, AllowedHosts, ServerOptions};

use crate::hub::Hub;

/// The time in which clients are sent what the sessions have ended with.
const FLUSH: Duration = Duration::from_secs(2);

impl Hub {
    /// Serves clients on a listener until `stop` resolves, then ends all sessions.
    ///
    /// # Errors
    ///
    /// If the listener fails. [`io::ErrorKind::InvalidInput`] without [`ServerOptions::token`], because every client can use
    /// every session.
    pub async fn serve_http(
        &self,
        listener: TcpListener,
        options: ServerOptions,
        stop: impl Future<Output = ()> + Send,
    ) -> io::Result<()> {
        if options.token.is_none() {
            let why = "a server of sessions needs `ServerOptions::token`";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let hub = self.clone();
        let endpoint = AgentEndpoint::new(move |transport| {
            let hub = hub.clone();
            async move { hub.serve(transport).await }
        });
        let served = tokio::select! {
            served = serve(listener, endpoint.clone(), options) => served,
            () = stop => Ok(()),
        };
        self.shut_down().await;
        // The program may end now, and the clients need the responses of the last turns.
        endpoint.flush(FLUSH).await;
        served
    }
}
