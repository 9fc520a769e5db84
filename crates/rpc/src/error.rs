//! What can go wrong between two peers, seen from the caller.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Why a request, a notification or a stream of updates failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The peer answered with an error. The connection is fine.
    #[error("{0}")]
    Response(#[from] duologue_schema::Error),
    /// The connection has ended; every later call fails the same way.
    #[error("the connection has ended: {0}")]
    Closed(Closed),
    /// No answer in time. The peer was told to cancel; the connection is fine.
    #[error(
        "no answer to {method} within {after:?}; the request was cancelled, raise the timeout if the peer is slow"
    )]
    Timeout {
        /// The method that was called.
        method: Arc<str>,
        /// The time that was allowed.
        after: Duration,
    },
    /// The message is longer than a line may be and was not sent.
    #[error("the message has {bytes} bytes, more than Limits::frame_bytes = {limit}; it was not sent")]
    FrameTooLarge {
        /// The length of the message.
        bytes: usize,
        /// The limit in force.
        limit: usize,
    },
    /// A value of ours has no JSON form. Nothing was sent.
    #[error("a message to {method} cannot be written as JSON: {error}")]
    Encode {
        /// The method that was called.
        method: Arc<str>,
        /// What serde says.
        error: Arc<serde_json::Error>,
    },
    /// The peer's answer does not fit the method. The connection is fine.
    #[error("the answer to {method} does not fit the protocol: {error}")]
    Decode {
        /// The method that was called.
        method: Arc<str>,
        /// What serde says.
        error: Arc<serde_json::Error>,
    },
    /// The stream was ended because nobody took its updates, which are discarded. The connection and its other
    /// streams go on.
    #[error(
        "the stream was ended: its updates were not taken and had grown to {bytes} bytes; {}",
        stalled_by(*after)
    )]
    Stalled {
        /// What the stream held when it was ended.
        bytes: usize,
        /// How long nothing was taken of any stream, see `Limits::stall_timeout`. `None` if `Limits::queue_bytes_hard`
        /// was reached before that.
        after: Option<Duration>,
    },
    /// Two handlers for one extension method. Rename one of them.
    #[error("an extension method cannot be added: {reason}")]
    MethodTaken {
        /// The name of the method, or the message of jsonrpsee.
        reason: String,
    },
    /// A [`Tap`](crate::Tap) has used its own connection while it was shown an outgoing frame. Nothing was sent.
    #[error(
        "a Tap cannot send on its own connection while it is shown an outgoing frame; spawn a task for it"
    )]
    InsideTap,
    /// The work that wanted to send was cancelled while it waited for room.
    #[error("cancelled")]
    Cancelled,
}

/// Which limit ended a stream.
fn stalled_by(after: Option<Duration>) -> String {
    match after {
        Some(after) => format!(
            "nothing was taken for {after:?} (Limits::stall_timeout) while there was more than Limits::queue_bytes"
        ),
        None => "all streams together had reached Limits::queue_bytes_hard".into(),
    }
}

impl Error {
    /// The error the peer answered with, if that is what happened.
    #[must_use]
    pub fn as_response(&self) -> Option<&duologue_schema::Error> {
        match self {
            Error::Response(error) => Some(error),
            _ => None,
        }
    }
}

/// Why a connection ended.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Closed {
    /// The peer closed its end.
    EndOfInput,
    /// This side closed it.
    Local,
    /// The peer sent a line longer than `Limits::frame_bytes`.
    FrameTooLarge {
        /// The limit in force.
        limit: usize,
    },
    /// The peer sends requests but does not read the answers; see `Limits::output_bytes_hard`.
    OutputStalled {
        /// The limit in force.
        limit: usize,
    },
    /// Reading or writing failed.
    Io(Arc<io::Error>),
    /// Something the owner of the transport knows, such as the exit of the process behind it.
    Cause(Arc<dyn std::error::Error + Send + Sync>),
}

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Closed::EndOfInput => f.write_str("the peer closed it"),
            Closed::Local => f.write_str("it was closed on this side"),
            Closed::FrameTooLarge { limit } => {
                write!(f, "the peer sent a line longer than Limits::frame_bytes = {limit}")
            }
            Closed::OutputStalled { limit } => {
                write!(f, "the peer does not read what it asked for (Limits::output_bytes_hard = {limit})")
            }
            Closed::Io(error) => write!(f, "{error}"),
            Closed::Cause(cause) => write!(f, "{cause}"),
        }
    }
}

impl std::error::Error for Closed {}
