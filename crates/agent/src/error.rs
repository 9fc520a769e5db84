//! The errors of an agent.

use std::borrow::Cow;
use std::path::PathBuf;

use duologue_schema::Error as WireError;

/// An error of a handler or of a request to the client.
///
/// If a handler returns it, the client receives the result of [`into_wire`](Error::into_wire), and the
/// connection continues.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A JSON-RPC error: one to send to the client, or one with which the client responded.
    #[error("{0}")]
    Response(WireError),
    /// An error of the connection or of a message.
    #[error(transparent)]
    Connection(duologue_rpc::Error),
    /// The client did not advertise the required capability. Nothing was sent.
    #[error("the client did not advertise {capability}; check client().capabilities() first")]
    NotSupported {
        /// The path of the capability in `initialize`.
        capability: &'static str,
    },
    /// The path of a request to the client is relative, but the protocol requires absolute paths. Nothing was sent.
    #[error("{} is not an absolute path", path.display())]
    RelativePath {
        /// The path.
        path: PathBuf,
    },
    /// The turn was cancelled.
    #[error("the turn was cancelled")]
    Cancelled,
    /// The turn has ended. Between turns, use the session to send updates.
    #[error("the turn has ended; send updates between turns through its session")]
    TurnEnded,
    /// An error of a query or a delegation to the agent on the client's side.
    #[cfg(feature = "exchange")]
    #[error(transparent)]
    Exchange(duologue_exchange::Error),
    /// The process's stdin and stdout could not be taken.
    #[error("cannot use stdin and stdout for the connection: {0}")]
    Stdio(std::io::Error),
    /// Any other error. The client receives its message.
    #[error(transparent)]
    Other(Box<dyn std::error::Error + Send + Sync>),
}

/// The result of handlers and of requests to the client.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Wraps any error, for use with `map_err(Error::other)?`.
    pub fn other(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Error::Other(error.into())
    }

    /// Creates the error `-32000`: the client has to call `authenticate` first.
    #[must_use]
    pub fn auth_required() -> Self {
        Error::Response(WireError::auth_required())
    }

    /// Creates the error `-32602`: the params are invalid.
    pub fn invalid_params(message: impl Into<Cow<'static, str>>) -> Self {
        Error::Response(WireError::invalid_params(message))
    }

    /// Creates the error `-32002`: there is no such session, file or terminal.
    pub fn not_found(message: impl Into<Cow<'static, str>>) -> Self {
        Error::Response(WireError::resource_not_found(message))
    }

    /// Returns the error that the client receives.
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
            other => Error::Connection(other),
        }
    }
}

#[cfg(feature = "exchange")]
impl From<duologue_exchange::Error> for Error {
    fn from(error: duologue_exchange::Error) -> Self {
        match error {
            duologue_exchange::Error::Cancelled => Error::Cancelled,
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
