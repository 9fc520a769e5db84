//! What can go wrong in an agent.

use std::borrow::Cow;

use duologue_schema::Error as WireError;

/// Why a handler or a call to the client failed.
///
/// A handler returns it, often with `?`; the client is answered with what
/// [`into_wire`](Error::into_wire) makes of it, and the connection goes on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An answer for the client, with its code. Also what the client answered to a call of ours.
    #[error("{0}")]
    Response(WireError),
    /// The connection, or a message on it.
    #[error(transparent)]
    Connection(duologue_rpc::Error),
    /// The client did not advertise what the call needs. Nothing was sent.
    #[error("the client did not advertise {capability}; check it with client().capabilities()")]
    NotSupported {
        /// The capability, as its path in `initialize`.
        capability: &'static str,
    },
    /// The turn was cancelled while the agent waited to send.
    #[error("the turn was cancelled")]
    Cancelled,
    /// The turn has been answered; nothing can be added to it. Use the session for what happens
    /// between turns.
    #[error("the turn has ended; send what happens between turns through its session")]
    TurnEnded,
    /// The client as an agent: what became of a question to it, or of a task for it.
    #[cfg(feature = "exchange")]
    #[error(transparent)]
    Exchange(duologue_exchange::Error),
    /// stdin and stdout could not be taken.
    #[error("stdin and stdout cannot be used for the conversation: {0}")]
    Stdio(std::io::Error),
    /// Anything else. The client is told its message.
    #[error(transparent)]
    Other(Box<dyn std::error::Error + Send + Sync>),
}

/// What handlers and calls return.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Wraps any error, so that `map_err(Error::other)?` works on all of them.
    pub fn other(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Error::Other(error.into())
    }

    /// `-32000`: the client has to call `authenticate` first.
    #[must_use]
    pub fn auth_required() -> Self {
        Error::Response(WireError::auth_required())
    }

    /// `-32602`: the params do not fit.
    pub fn invalid_params(message: impl Into<Cow<'static, str>>) -> Self {
        Error::Response(WireError::invalid_params(message))
    }

    /// `-32002`: no such session, file or terminal.
    pub fn not_found(message: impl Into<Cow<'static, str>>) -> Self {
        Error::Response(WireError::resource_not_found(message))
    }

    /// The answer the client gets.
    #[must_use]
    pub fn into_wire(self) -> WireError {
        match self {
            Error::Response(error) | Error::Connection(duologue_rpc::Error::Response(error)) => error,
            Error::Cancelled => WireError::request_cancelled(),
            other => WireError::internal(other.to_string()),
        }
    }
}

impl From<WireError> for Error {
    fn from(error: WireError) -> Self {
        Error::Response(error)
    }
}

impl From<duologue_rpc::Error> for Error {
    fn from(error: duologue_rpc::Error) -> Self {
        match error {
            duologue_rpc::Error::Response(error) => Error::Response(error),
            duologue_rpc::Error::Cancelled => Error::Cancelled,
            other => Error::Connection(other),
        }
    }
}

#[cfg(feature = "exchange")]
impl From<duologue_exchange::Error> for Error {
    fn from(error: duologue_exchange::Error) -> Self {
        match error {
            duologue_exchange::Error::Connection(error @ duologue_rpc::Error::Cancelled) => error.into(),
            other => Error::Exchange(other),
        }
    }
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        Error::Other(Box::new(error))
    }
}

impl From<serde_json::Error> for Error {
    fn from(error: serde_json::Error) -> Self {
        Error::Other(Box::new(error))
    }
}
