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
mod whole_head;

use std::sync::Arc;

use duologue_rpc::Transport;
use tokio::time::sleep;

pub use error::Error;
pub use link::{LinkState, RemoteLink};
pub use options::{ConnectOptions, RemoteTransport, RetryNotice, ServerCheck};
#[cfg(feature = "tls")]
pub use tls::system_tls;

use dial::StreamDialer;
use driver::Dialer as _;
use link::Outage;

/// Connects to a server and returns the transport for a client, with a handle to observe the connection.
///
/// An address begins with `ws`, `wss`, `http` or `https`, whatever [`ConnectOptions::transport`] is. An address without a path
/// gets `/acp`. `wss` and `https` need the feature `tls`. The first message of the client has to be `initialize`.
///
/// If the server allows it, a lost socket is replaced in the background: what was not delivered is sent again in both
/// directions, and the transport only pauses. A connection that is lost before `initialize` is answered begins again, because
/// nothing can be done twice by then; a request behind `initialize` waits for the answer. Otherwise, and when this fails, the reading half of the transport fails
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
/// [`Error::Address`] and [`Error::Header`] for invalid arguments, and the error of the last attempt to connect. Attempts that
/// fail for a temporary reason are repeated for [`ConnectOptions::open_time`].
///
/// # Panics
///
/// Outside a tokio runtime.
pub async fn connect(url: &str, options: ConnectOptions) -> Result<(Transport, RemoteLink), Error> {
    let dialer = StreamDialer::new(url, &options)?;
    begin(dialer, Arc::new(options)).await
}

/// Opens the first connection, and repeats attempts that fail for a temporary reason.
pub(crate) async fn begin(
    mut dialer: StreamDialer,
    options: Arc<ConnectOptions>,
) -> Result<(Transport, RemoteLink), Error> {
    let mut outage = Outage::begin();
    loop {
        let (error, returned) = match open(dialer, options.clone(), &outage).await {
            Ok(connected) => return Ok(connected),
            Err(failed) => failed,
        };
        let next = if error.is_temporary() { outage.next(&options, options.open_time) } else { None };
        let Some((_, pause)) = next else { return Err(error) };
        tracing::debug!(%error, "a server was not reached; another attempt follows");
        if let Some(notice) = &options.on_retry {
            notice(&error);
        }
        dialer = returned;
        sleep(pause).await;
    }
}

/// Opens the first connection. An error gives the dialer back.
async fn open(
    mut dialer: StreamDialer,
    options: Arc<ConnectOptions>,
    outage: &Outage,
) -> Result<(Transport, RemoteLink), (Error, StreamDialer)> {
    let time = || outage.attempt_time(options.connect_timeout, options.open_time);
    if options.transport != RemoteTransport::Events {
        match dialer.dial(time()).await {
            Ok(first) => return Ok(driver::start(dialer, first, options)),
            Err(error) if options.transport == RemoteTransport::Auto && has_no_websocket(&error) => {
                tracing::debug!(%error, "the server has no WebSocket; HTTP with SSE is used");
            }
            Err(error) => return Err((error, dialer)),
        }
    }
    match dialer.http(time()).await {
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
