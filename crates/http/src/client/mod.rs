//! The client: a transport to a server, over a WebSocket or HTTP with SSE, which resumes when its connection is lost.

pub(crate) mod client_core;
pub(crate) mod dial;
pub(crate) mod driver;
mod error;
pub(crate) mod event_parser;
pub(crate) mod events;
mod events_core;
pub(crate) mod link;
mod options;
pub mod raw;
#[cfg(feature = "tls")]
mod tls;
pub(crate) mod tungstenite_socket;

use std::sync::Arc;

use duologue_rpc::Transport;
use tokio::time::Instant;

pub use error::Error;
pub use link::{LinkState, RemoteLink};
pub use options::{ConnectOptions, RemoteTransport, ServerCheck};
#[cfg(feature = "tls")]
pub use tls::system_tls;

use dial::StreamDialer;
use driver::Dialer as _;

/// Connects to a server and returns the transport for a client, with a handle to observe the connection.
///
/// An address begins with `ws`, `wss`, `http` or `https`, whatever [`ConnectOptions::transport`] is. An address without a path
/// gets `/acp`. `wss` and `https` need the feature `tls`. The first message of the client has to be `initialize`.
///
/// If the server allows it, a lost socket is replaced in the background: what was not delivered is sent again in both
/// directions, and the transport only pauses. Otherwise, and when this fails, the reading half of the transport fails
/// with an [`std::io::Error`] that contains an [`Error`].
///
/// ```no_run
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// use duologue_client::Client;
/// use duologue_http::{ConnectOptions, connect};
///
/// let mut options = ConnectOptions::default();
/// options.bearer_token = Some("a token".into());
/// let (transport, _link) = connect("ws://localhost:8931/acp", options).await?;
/// let client = Client::new(()).connect(transport).await?;
/// # drop(client);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// [`Error::Address`] and [`Error::Header`] for invalid arguments, and the errors of the first attempt to connect. It is
/// not repeated.
///
/// # Panics
///
/// Outside a tokio runtime.
pub async fn connect(url: &str, options: ConnectOptions) -> Result<(Transport, RemoteLink), Error> {
    let dialer = StreamDialer::new(url, &options)?;
    open(dialer, Arc::new(options)).await.map_err(|(error, _)| error)
}

/// Opens the first connection. An error gives the dialer back.
async fn open(
    mut dialer: StreamDialer,
    options: Arc<ConnectOptions>,
) -> Result<(Transport, RemoteLink), (Error, StreamDialer)> {
    if options.transport != RemoteTransport::Events {
        match dialer.dial().await {
            Ok(first) => return Ok(driver::start(dialer, first, options)),
            Err(error) if options.transport == RemoteTransport::Auto && has_no_websocket(&error) => {
                tracing::debug!(%error, "the server has no WebSocket; HTTP with SSE is used");
            }
            Err(error) => return Err((error, dialer)),
        }
    }
    match dialer.http().await {
        Ok(first) => Ok(events::start(dialer, first, options)),
        Err(error) => Err((error, dialer)),
    }
}

/// Returns true for the answers of servers without WebSocket.
fn has_no_websocket(error: &Error) -> bool {
    match error {
        Error::Refused { status, .. } => matches!(status, 200..=299 | 400 | 404..=406 | 415 | 426 | 501),
        Error::Protocol(_) => true,
        _ => false,
    }
}

/// Connects like [`connect`], and repeats attempts that fail for a temporary reason, with the pauses and limits of resuming.
///
/// Use it for a new connection to a server that is being started again.
///
/// # Errors
///
/// As [`connect`], with the error of the last attempt.
///
/// # Panics
///
/// Outside a tokio runtime.
pub async fn reconnect(url: &str, options: ConnectOptions) -> Result<(Transport, RemoteLink), Error> {
    let options = Arc::new(options);
    let mut dialer = StreamDialer::new(url, &options)?;
    let start = Instant::now();
    let mut attempts = 0;
    loop {
        match open(dialer, options.clone()).await {
            Ok(connected) => return Ok(connected),
            Err((error, returned)) => {
                let is_last = attempts >= options.resume_attempts || start.elapsed() >= options.resume_time;
                if is_last || !error.is_temporary() {
                    return Err(error);
                }
                dialer = returned;
            }
        }
        tokio::time::sleep(options.pause(attempts)).await;
        attempts += 1;
    }
}
