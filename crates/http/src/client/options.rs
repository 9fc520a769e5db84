//! The settings of a client.

use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use duologue_rpc::SecretText;

use crate::socket::WAITING_PINGS;

const MIB: usize = 1024 * 1024;

/// The transport between a client and a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum RemoteTransport {
    /// A WebSocket, and HTTP with SSE if the server has none.
    #[default]
    Auto,
    /// A WebSocket.
    WebSocket,
    /// HTTP with SSE: a POST for each message of the client, and a stream of server-sent events for each session.
    Events,
}

/// A check of the server at the other end of a connection. It may return the token for it. It may block.
pub type ServerCheck = Arc<dyn Fn() -> io::Result<Option<SecretText>> + Send + Sync>;

/// Receives the error of an attempt that is followed by another one.
pub type RetryNotice = Arc<dyn Fn(&crate::Error) + Send + Sync>;

/// The settings of [`connect`](crate::connect).
#[derive(Clone)]
#[non_exhaustive]
pub struct ConnectOptions {
    /// The token for the header `Authorization`. It is never part of the address.
    pub bearer_token: Option<SecretText>,
    /// More headers of the request.
    pub headers: Vec<(String, String)>,
    /// The transport.
    pub transport: RemoteTransport,
    /// The path of a Unix socket of a server of this user, in the place of the host and the port of the address. The
    /// system tells who listens; a server of another user is an error.
    #[cfg(unix)]
    pub socket: Option<std::path::PathBuf>,
    /// Runs after each connection over TCP is open, and before anything is sent over it. An error closes the connection as
    /// that of a server that cannot be reached; another attempt may follow.
    ///
    /// With it a token goes only to the program that has it, although another one listens there after a restart. The token
    /// that the first of these calls returns replaces [`bearer_token`](Self::bearer_token).
    pub check_server: Option<ServerCheck>,
    /// The longest message in either direction, in bytes.
    pub frame_bytes: usize,
    /// The bytes of sent messages that the server has not accepted. The client waits at this value.
    pub unacknowledged_bytes: usize,
    /// The bytes of received messages that the client has not read. Nothing is read from the socket at this value.
    pub inbox_bytes: usize,
    /// The time for one attempt to connect, and for the answer to a resume. An attempt to reach the server
    /// ends with `open_time` or `resume_time` too, but has at least a second.
    pub connect_timeout: Duration,
    /// The time for the response to `initialize`, in which the server may start an agent.
    pub initialize_timeout: Duration,
    /// The time between two pings, and between two comments of a server over HTTP with SSE.
    pub keepalive: Duration,
    /// The number of missed pings or comments after which a socket or a response is dead.
    pub missed_keepalives: u32,
    /// The most pings of the server that wait because it does not read their pongs. The connection fails beyond it.
    pub waiting_pings: usize,
    /// The longest time for attempts to begin a connection, the wait for the response to `initialize` not counted: to reach the server, and to begin again if the connection is lost
    /// before `initialize` is answered. They have the pauses of resuming. Zero makes a single attempt.
    pub open_time: Duration,
    /// Is called for each attempt to reach the server that fails, and is followed by another one.
    pub on_retry: Option<RetryNotice>,
    /// The longest time for attempts to resume after a socket was lost. The time that the server keeps the connection limits
    /// it too. Zero never resumes.
    pub resume_time: Duration,
    /// The longest pause before the first of these attempts. It doubles with each one, and the pause is random.
    pub resume_delay: Duration,
    /// The longest pause before any of these attempts.
    pub resume_delay_max: Duration,
    /// The time in which the server accepts the last messages and answers the end of the connection.
    pub close_timeout: Duration,
    /// The buffer for reading from the socket, in bytes.
    pub read_buffer: usize,
    /// The configuration of TLS. The certificates of the system are used without it.
    #[cfg(feature = "tls")]
    pub tls: Option<Arc<tokio_rustls::rustls::ClientConfig>>,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        ConnectOptions {
            bearer_token: None,
            headers: Vec::new(),
            transport: RemoteTransport::Auto,
            #[cfg(unix)]
            socket: None,
            check_server: None,
            frame_bytes: 16 * MIB,
            unacknowledged_bytes: 32 * MIB,
            inbox_bytes: MIB,
            connect_timeout: Duration::from_secs(20),
            initialize_timeout: Duration::from_secs(150),
            keepalive: Duration::from_secs(15),
            missed_keepalives: 3,
            waiting_pings: WAITING_PINGS,
            open_time: Duration::from_secs(30),
            on_retry: None,
            resume_time: Duration::from_secs(600),
            resume_delay: Duration::from_millis(250),
            resume_delay_max: Duration::from_secs(15),
            close_timeout: Duration::from_secs(5),
            read_buffer: 16 * 1024,
            #[cfg(feature = "tls")]
            tls: None,
        }
    }
}

impl ConnectOptions {
    /// Trusts the servers whose certificates are in a file, or are signed by one of them, and no others.
    ///
    /// # Errors
    ///
    /// [`Error::Tls`](crate::Error::Tls) if the file cannot be read or has no certificate.
    #[cfg(feature = "tls")]
    pub fn trust_pem_file(&mut self, path: impl AsRef<std::path::Path>) -> Result<(), crate::Error> {
        self.tls = Some(crate::client::tls::trusting(path.as_ref())?);
        Ok(())
    }

    /// Shows a certificate to servers that ask for one. `certificates` has it in front, followed by those of its issuers.
    ///
    /// Call it after [`trust_pem_file`](Self::trust_pem_file), which begins a new configuration.
    ///
    /// # Errors
    ///
    /// [`Error::Tls`](crate::Error::Tls) if a file cannot be read, the key is not that of the certificate, or no certificates
    /// of this system can be used.
    #[cfg(feature = "tls")]
    pub fn identify_pem_files(
        &mut self,
        certificates: impl AsRef<std::path::Path>,
        key: impl AsRef<std::path::Path>,
    ) -> Result<(), crate::Error> {
        let config = self.tls.take().map_or_else(crate::client::tls::system_tls, Ok)?;
        self.tls = Some(crate::client::tls::identified(config, certificates.as_ref(), key.as_ref())?);
        Ok(())
    }

    /// Returns the time without a sign of life after which it is reported: one ping or comment is missing then.
    pub(crate) fn silent_after(&self) -> Duration {
        self.keepalive.saturating_mul(2).min(self.dead_after())
    }

    /// Returns the time without a sign of life after which a socket or a response is dead.
    pub(crate) fn dead_after(&self) -> Duration {
        self.keepalive.saturating_mul(self.missed_keepalives.max(1))
    }

    /// Returns a random pause between nothing and a limit that doubles with each attempt.
    pub(crate) fn pause(&self, attempts: u32) -> Duration {
        let limit = self.resume_delay.saturating_mul(2u32.saturating_pow(attempts));
        limit.min(self.resume_delay_max).mul_f64(fastrand::f64())
    }
}

/// Leaves out credentials.
impl fmt::Debug for ConnectOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectOptions")
            .field("bearer_token", &self.bearer_token)
            .field("transport", &self.transport)
            .field("frame_bytes", &self.frame_bytes)
            .field("resume_time", &self.resume_time)
            .finish_non_exhaustive()
    }
}
