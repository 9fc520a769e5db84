//! The hub on a socket: the router of `duologue-http`, behind a token.

use std::future::{Future, IntoFuture as _};
use std::io;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, WWW_AUTHENTICATE};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use axum::serve::ListenerExt as _;
use duologue_http::{AgentEndpoint, ServerOptions, router};
use tokio::net::TcpListener;

use crate::hub::Hub;

/// The token that clients have to send, `Authorization: Bearer TOKEN`.
#[derive(Clone)]
pub struct AccessToken(Arc<str>);

impl AccessToken {
    /// Creates it from its text.
    pub fn new(token: impl Into<Arc<str>>) -> Self {
        AccessToken(token.into())
    }

    /// Compares without a shortcut, so that the time does not depend on the place of a difference.
    fn is(&self, other: &[u8]) -> bool {
        let own = self.0.as_bytes();
        let differences = own.iter().zip(other).fold(0, |all, (own, other)| all | (own ^ other));
        own.len() == other.len() && differences == 0
    }
}

impl std::fmt::Debug for AccessToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AccessToken")
    }
}

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
        let app = router(endpoint, ServerOptions::default()).layer(from_fn_with_state(token, check));
        // Small messages must not wait for the acknowledgement of earlier ones.
        let listener = listener.tap_io(|socket| _ = socket.set_nodelay(true));
        let served = tokio::select! {
            served = axum::serve(listener, app).into_future() => served,
            () = stop => Ok(()),
        };
        self.shut_down().await;
        served
    }
}

async fn check(State(token): State<AccessToken>, request: Request, next: Next) -> Response {
    let given = request.headers().get(AUTHORIZATION).map(|value| value.as_bytes());
    let given = given.and_then(|value| value.strip_prefix(b"Bearer "));
    if request.uri().path() == "/health" || given.is_some_and(|given| token.is(given)) {
        return next.run(request).await;
    }
    let body = r#"{"code":"unauthorized","message":"send the token of the server: Authorization: Bearer TOKEN","retryable":false}"#;
    let headers = [(CONTENT_TYPE, "application/json"), (WWW_AUTHENTICATE, "Bearer")];
    (StatusCode::UNAUTHORIZED, headers, body).into_response()
}
