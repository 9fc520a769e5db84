//! The errors of a connection.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// An error of a request, a notification or a stream of updates.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The peer responded with an error. The connection continues.
    #[error("{0}")]
    Response(#[from] duologue_schema::Error),
    /// The connection has ended. Every later call fails the same way.
    #[error("the connection has ended: {0}")]
    Closed(Closed),
    /// No response arrived in time. The request was cancelled, the connection continues.
    #[error(
        "no response to {method} within {after:?}; the request was cancelled, raise the timeout if the peer is slow"
    )]
    Timeout {
        /// The method of the request.
        method: Arc<str>,
        /// The timeout.
        after: Duration,
    },
    /// The message exceeds the length limit of a line and was not sent.
    #[error("message too long ({bytes} bytes, Limits::frame_bytes is {limit}); it was not sent")]
    FrameTooLarge {
        /// The length of the message.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The params have no JSON form. Nothing was sent.
    #[error("cannot encode the params of {method} as JSON: {error}")]
    Encode {
        /// The method of the message.
        method: Arc<str>,
        /// The error of the encoder.
        error: Arc<serde_json::Error>,
    },
    /// The response does not match the type of the method. The connection continues.
    #[error("invalid response to {method}: {error}")]
    Decode {
        /// The method of the request.
        method: Arc<str>,
        /// The error of the decoder.
        error: Arc<serde_json::Error>,
    },
    /// The stream was ended because its updates were not taken. They are discarded. The connection and its other
    /// streams continue.
    #[error(
        "the stream was ended because its updates were not taken ({bytes} bytes were waiting); {}",
        stalled_by(*after)
    )]
    Stalled {
        /// The bytes in the stream when it was ended.
        bytes: usize,
        /// The time in which nothing was taken from any stream, see `Limits::stall_timeout`. `None` if
        /// `Limits::queue_bytes_hard` was reached first.
        after: Option<Duration>,
    },
    /// Two handlers for one extension method. Rename one of them.
    #[error("an extension method cannot be added: {reason}")]
    MethodTaken {
        /// The name of the method, or the message of jsonrpsee.
        reason: String,
    },
    /// A [`Tap`](crate::Tap) used its own connection inside the call for an outgoing frame. Nothing was sent.
    #[error(
        "a Tap cannot send on its own connection inside the call for an outgoing frame; spawn a task for it"
    )]
    InsideTap,
}

/// Describes the limit that ended a stream.
fn stalled_by(after: Option<Duration>) -> String {
    match after {
        Some(after) => format!(
            "nothing was taken for {after:?} (Limits::stall_timeout) while all streams exceeded Limits::queue_bytes"
        ),
        None => "all streams together reached Limits::queue_bytes_hard".into(),
    }
}

impl Error {
    /// Returns the error with which the peer responded, if this is one.
    #[must_use]
    pub fn as_response(&self) -> Option<&duologue_schema::Error> {
        match self {
            Error::Response(error) => Some(error),
            _ => None,
        }
    }
}

/// The reason of the end of a connection.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Closed {
    /// The peer closed its end.
    EndOfInput,
    /// This side closed the connection.
    Local,
    /// The peer sent a line longer than `Limits::frame_bytes`.
    FrameTooLarge {
        /// The limit.
        limit: usize,
    },
    /// The peer sends requests but does not read the responses, see `Limits::output_bytes_hard`.
    OutputStalled {
        /// The limit.
        limit: usize,
    },
    /// Reading or writing failed.
    Io(Arc<io::Error>),
    /// A reason that the owner of the transport knows, such as the exit of the agent's process.
    Cause(Arc<dyn std::error::Error + Send + Sync>),
}

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Closed::EndOfInput => f.write_str("the peer closed it"),
            Closed::Local => f.write_str("this side closed it"),
            Closed::FrameTooLarge { limit } => {
                write!(f, "the peer sent a line over the limit ({limit} bytes, Limits::frame_bytes)")
            }
            Closed::OutputStalled { limit } => {
                write!(
                    f,
                    "the peer does not read its responses (over {limit} bytes wait, Limits::output_bytes_hard)"
                )
            }
            Closed::Io(error) => write!(f, "{error}"),
            Closed::Cause(cause) => write!(f, "{cause}"),
        }
    }
}

impl std::error::Error for Closed {}
