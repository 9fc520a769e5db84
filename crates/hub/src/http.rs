//! The hub on a socket, behind a token.

use std::future::Future;
use std::io;

use duologue_http::{AgentEndpoint, ServerOptions, serve};
use tokio::net::TcpListener;

pub use duologue_http::AccessToken;

use crate::hub::Hub;

impl Hub {
    /// Serves clients on a listener until `stop` resolves, then ends all sessions. Every request except `/health` needs
    /// the token.
    ///
    /// # Errors
    ///
    /// If the listener fails.
    pub async fn serve_http(
        &self,
        listener: TcpListener,
        token: AccessToken,
        stop: impl Future<Output = ()> + Send,
    ) -> io::Result<()> {
        let hub = self.clone();
        let endpoint = AgentEndpoint::new(move |transport| {
            let hub = hub.clone();
            async move { hub.serve(transport).await }
        });
        let mut options = ServerOptions::default();
        options.token = Some(token);
        let served = tokio::select! {
            served = serve(listener, endpoint, options) => served,
            () = stop => Ok(()),
        };
        self.shut_down().await;
        served
    }
}
