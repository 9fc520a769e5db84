//! The client: a transport to a server, which resumes when its socket is lost.

pub(crate) mod client_core;
mod dial;
pub(crate) mod driver;
mod error;
mod options;
pub(crate) mod tungstenite_socket;

use std::sync::Arc;

use duologue_rpc::Transport;
use tokio::time::Instant;

pub use driver::{LinkState, RemoteLink};
pub use error::Error;
pub use options::ConnectOptions;

use dial::TcpDialer;
use driver::Dialer as _;

/// Connects to a server and returns the transport for a client, with a handle to observe the connection.
///
/// `ws`, `wss`, `http` and `https` addresses are WebSockets. An address without a path gets `/acp`. `wss` and `https` need
/// the feature `tls`.
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
    let mut dialer = TcpDialer::new(url, &options)?;
    let first = dialer.dial().await?;
    Ok(driver::start(dialer, first, Arc::new(options)))
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
    let mut dialer = TcpDialer::new(url, &options)?;
    let start = Instant::now();
    let mut attempts = 0;
    loop {
        match dialer.dial().await {
            Ok(first) => return Ok(driver::start(dialer, first, Arc::new(options))),
            Err(error) => {
                let is_last = attempts >= options.resume_attempts || start.elapsed() >= options.resume_time;
                if is_last || !error.is_temporary() {
                    return Err(error);
                }
            }
        }
        tokio::time::sleep(options.pause(attempts)).await;
        attempts += 1;
    }
}
