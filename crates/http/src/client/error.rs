//! The errors of a client.

use std::io;
use std::time::Duration;

/// The reason for which a client could not connect, or for which its transport has ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The address is not valid.
    #[error("invalid address {address}: {reason}")]
    Address {
        /// The address, without a user and a password.
        address: String,
        /// The fault.
        reason: String,
    },
    /// A header of the options is not valid.
    #[error("invalid header {name}: it contains characters that a header cannot have")]
    Header {
        /// The name of the header.
        name: String,
    },
    /// The server cannot be reached.
    #[error("cannot reach {address}: {error}")]
    Unreachable {
        /// The host and the port.
        address: String,
        /// The error of the system.
        error: io::Error,
    },
    /// The server did not accept a socket in time.
    #[error(
        "no connection to {address} within {after:?} (`ConnectOptions::connect_timeout`, or the rest of `open_time` or `resume_time`)"
    )]
    Timeout {
        /// The host and the port.
        address: String,
        /// The limit.
        after: Duration,
    },
    /// The server answered with an HTTP error.
    #[error("the server refused the connection with status {status}: {message}")]
    Refused {
        /// The HTTP status.
        status: u16,
        /// The beginning of the response.
        message: String,
    },
    /// The server does not speak WebSocket here, or breaks its rules.
    #[error("the server breaks the protocol: {0}")]
    Protocol(String),
    /// The certificates of this system cannot be used, or those of the server are not valid.
    #[error("TLS failed: {0}")]
    Tls(String),
    /// The socket was lost, and the connection cannot be resumed: the server does not offer it, or `resume_time` is zero.
    #[error("the socket was lost ({reason}), and the connection cannot be resumed")]
    Lost {
        /// The reason for which the socket was lost.
        reason: String,
    },
    /// The server refused to resume the connection. Connect again and load the sessions.
    #[error("the server refused to resume the connection: {reason}; connect again and load the sessions")]
    ResumeRefused {
        /// The reason of the server, such as `cursor_gone`.
        reason: String,
    },
    /// The connection could not be resumed in time.
    #[error(
        "the connection was not resumed in {elapsed:?} and {attempts} attempts \
         (`ConnectOptions::resume_time`, and the time that the server keeps it): {last}"
    )]
    GaveUp {
        /// The number of attempts.
        attempts: u32,
        /// The time since the socket was lost.
        elapsed: Duration,
        /// The error of the last attempt.
        last: String,
    },
    /// The server has not accepted frames that are not kept any more.
    #[error("{frames} frames are lost: more were unacknowledged than `ConnectOptions::unacknowledged_bytes`")]
    FramesLost {
        /// The number of these frames.
        frames: u64,
    },
    /// A message is longer than the limit.
    #[error("message too long ({bytes} bytes, ConnectOptions::frame_bytes is {limit})")]
    FrameTooLarge {
        /// The length of the message. For an outgoing message at least this many.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The server closed the connection.
    #[error("the server closed the connection with code {code}: {reason}")]
    Closed {
        /// The code of the WebSocket.
        code: u16,
        /// The reason that the server gave.
        reason: String,
    },
}

impl Error {
    /// Returns true if another attempt to connect can succeed: the server is not there, is slow, or is overloaded.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        match self {
            // A socket of another user stays one.
            Error::Unreachable { error, .. } => error.kind() != io::ErrorKind::PermissionDenied,
            Error::Timeout { .. } => true,
            Error::Refused { status, .. } => *status >= 500 || matches!(status, 408 | 425 | 429),
            _ => false,
        }
    }
}
