//! The errors of an agent.

use std::borrow::Cow;
use std::path::PathBuf;

#[cfg(feature = "exchange")]
use duologue_schema::envelope::{EnvelopeError, EnvelopeErrorCode};
use duologue_schema::{
    CreateElicitationRequest, CreateTerminalRequest, Error as WireError, NotOffered, ReadTextFileRequest,
    RelativePath, Request, RequestPermissionRequest, WriteTextFileRequest, serialized_len,
};
use serde_json::json;

/// An error of a handler or of a request to the client.
///
/// If a handler returns it, the client receives the result of [`into_wire`](Error::into_wire), and the
/// connection continues.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A JSON-RPC error to send to the client.
    #[error("{0}")]
    Response(WireError),
    /// The client responded with an error to a request of the agent.
    #[error("the client responded to {} with an error: {error}", method.unwrap_or("a request"))]
    Refused {
        /// The method of the request. `None` for a request through [`Peer`](duologue_rpc::Peer).
        method: Option<&'static str>,
        /// The error of the client.
        error: WireError,
    },
    /// An error of the connection or of a message.
    #[error(transparent)]
    Connection(duologue_rpc::Error),
    /// The client did not advertise the required capability. Nothing was sent.
    #[error("the client did not advertise {capability}; check client().capabilities() first")]
    NotSupported {
        /// The path of the capability in `initialize`.
        capability: &'static str,
    },
    /// A path in a request or a tool call is relative, but the protocol requires absolute paths. Nothing was sent.
    #[error("{field} {path:?} must be absolute; join it with Session::cwd()")]
    RelativePath {
        /// The field of the path.
        field: &'static str,
        /// The path.
        path: PathBuf,
    },
    /// The turn was cancelled.
    #[error("the turn was cancelled")]
    Cancelled,
    /// The turn has ended. Between turns, use the session to send updates.
    #[error("the turn has ended; send updates between turns through its session")]
    TurnEnded,
    /// The client closed the session in version 2, which forbids further messages of it. Nothing was sent.
    #[error("the client closed the session; stop its work in Agent::close_session")]
    SessionClosed,
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
    /// The limit on the `data` of a client's error that is sent back to it.
    const DATA_BYTES: usize = 4 << 10;

    /// Wraps any error, for use with `map_err(Error::other)?`.
    pub fn other(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Error::Other(error.into())
    }

    /// Creates the error `-32000`: the client has to call `authenticate` first. It shows the message at the login.
    pub fn auth_required(message: impl Into<Cow<'static, str>>) -> Self {
        Error::Response(WireError::auth_required(message))
    }

    /// Creates the error `-32602`: the params are invalid.
    pub fn invalid_params(message: impl Into<Cow<'static, str>>) -> Self {
        Error::Response(WireError::invalid_params(message))
    }

    /// Creates the error `-32002`: there is no such session, file or terminal.
    pub fn not_found(message: impl Into<Cow<'static, str>>) -> Self {
        Error::Response(WireError::resource_not_found(message))
    }

    /// Creates the error of a request to the client.
    pub(crate) fn of_request<R: Request>(error: duologue_rpc::Error) -> Self {
        match error {
            duologue_rpc::Error::Response(error) => Error::Refused { method: Some(R::METHOD), error },
            other => Error::Connection(other),
        }
    }

    /// Returns a message for the user. Unlike `Display` it has no advice for the developer of the agent.
    ///
    /// ```
    /// use duologue_agent::Error;
    ///
    /// let error = Error::NotSupported { capability: "terminal" };
    /// assert_eq!(error.user_message(), "This needs an editor that runs programs in a terminal.");
    /// ```
    #[must_use]
    pub fn user_message(&self) -> String {
        match self {
            Error::Response(error) => error.message.to_string(),
            Error::Refused { method, error } => {
                let action = method.map_or("answer a request of the agent", action);
                // The code of the response is `-32603`. A second one would be confusing.
                format!("The editor could not {action}: {}", error.message)
            }
            Error::NotSupported { capability } => match feature(capability) {
                Some(feature) => format!("This needs an editor that {feature}."),
                None => format!("This needs an editor with {capability}."),
            },
            Error::RelativePath { path, .. } => format!("The agent used a relative path: {}", path.display()),
            Error::Cancelled => "The turn was cancelled.".into(),
            Error::TurnEnded => "The agent continued after the end of its turn.".into(),
            Error::SessionClosed => "The session is closed.".into(),
            Error::Connection(duologue_rpc::Error::Timeout { .. }) => {
                "The editor did not answer in time.".into()
            }
            Error::Connection(_) | Error::Stdio(_) => "The connection to the editor failed.".into(),
            #[cfg(feature = "exchange")]
            Error::Exchange(error) => error.to_string(),
            Error::Other(error) => error.to_string(),
        }
    }

    /// Returns the error that the client receives.
    ///
    /// An error with which the client responded to a request of the agent becomes `-32603`, so that it does not look
    /// like an answer to the request of the client. Its `data` has the method, the code, the message, and the client's
    /// `data` of up to 4 KiB. Of a longer message it has the first 4 KiB. The other errors of this crate have the [`user_message`](Self::user_message), and `Display` as the `detail` in `data`.
    #[must_use]
    pub fn into_wire(mut self) -> WireError {
        if let Error::Refused { error, .. } = &mut self {
            error.message = start_of(&error.message).to_owned().into();
        }
        let message = self.user_message();
        match self {
            Error::Response(error) => error,
            Error::Cancelled => WireError::request_cancelled(),
            Error::Refused { method, error } => {
                let mut data = json!({ "method": method, "code": error.code, "message": error.message });
                // A number beyond a float has no value.
                let of_client = error.data.filter(|data| serialized_len(data, Error::DATA_BYTES).is_some());
                if let Some(of_client) = of_client.and_then(|data| serde_json::from_str(data.get()).ok()) {
                    data["data"] = of_client;
                }
                WireError::internal(message).data(data)
            }
            Error::Other(_) => WireError::internal(message),
            #[cfg(feature = "exchange")]
            Error::Exchange(_) => WireError::internal(message),
            other => WireError::internal(message).data(json!({ "detail": other.to_string() })),
        }
    }
}

/// Describes a request to the client, as the continuation of "could not".
fn action(method: &'static str) -> &'static str {
    match method {
        ReadTextFileRequest::METHOD => "read a file",
        WriteTextFileRequest::METHOD => "write a file",
        RequestPermissionRequest::METHOD => "ask for permission",
        CreateTerminalRequest::METHOD => "run a program",
        CreateElicitationRequest::METHOD => "show a question",
        other if other.starts_with("terminal/") => "control a program",
        other => other,
    }
}

/// Returns the first [`Error::DATA_BYTES`] of a text, up to the end of a character.
fn start_of(text: &str) -> &str {
    (0..=text.len().min(Error::DATA_BYTES)).rev().find_map(|end| text.get(..end)).unwrap_or_default()
}

/// Describes a capability of the client, as the continuation of "an editor that".
fn feature(capability: &str) -> Option<&'static str> {
    Some(match capability {
        "fs.readTextFile" => "reads files for the agent",
        "fs.writeTextFile" => "writes files for the agent",
        "terminal" => "runs programs in a terminal",
        "elicitation.form" => "shows forms",
        "elicitation.url" => "opens links",
        _ => return None,
    })
}

impl From<WireError> for Error {
    fn from(error: WireError) -> Self {
        Error::Response(error)
    }
}

/// The client receives `-32602`.
impl From<NotOffered> for Error {
    fn from(error: NotOffered) -> Self {
        Error::invalid_params(error.to_string())
    }
}

impl From<duologue_rpc::Error> for Error {
    fn from(error: duologue_rpc::Error) -> Self {
        match error {
            duologue_rpc::Error::Response(error) => Error::Refused { method: None, error },
            other => Error::Connection(other),
        }
    }
}

impl From<RelativePath<'_>> for Error {
    fn from(relative: RelativePath<'_>) -> Self {
        Error::RelativePath { field: relative.field(), path: relative.path().to_owned() }
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

/// Lets a handler of messages between agents use `?` on the calls of its session. The other agent receives
/// [`Error::user_message`].
///
/// ```
/// use duologue_agent::Error;
/// use duologue_agent::exchange::envelope::{EnvelopeError, EnvelopeErrorCode};
///
/// let error = EnvelopeError::from(Error::NotSupported { capability: "terminal" });
/// assert_eq!(error.code, EnvelopeErrorCode::Internal);
/// assert_eq!(error.message, "This needs an editor that runs programs in a terminal.");
/// ```
#[cfg(feature = "exchange")]
impl From<Error> for EnvelopeError {
    fn from(error: Error) -> Self {
        match error {
            Error::Exchange(error) => error.into(),
            Error::Cancelled => EnvelopeError::of(EnvelopeErrorCode::Cancelled, error.user_message()),
            error => EnvelopeError::internal(error.user_message()),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_error_of_the_client_is_shortened() {
        let long = "é".repeat(5 << 20);
        let error =
            Error::Refused { method: None, error: WireError::internal(long.clone()).data(json!(long)) };
        let error = error.into_wire();
        let quoted = "é".repeat(2 << 10);
        assert!(error.message.ends_with(&format!(": {quoted}")), "{:.200}", error.message);
        assert_eq!(json!(error.data), json!({ "method": null, "code": -32603, "message": quoted }));
    }
}
