//! Errors of dialogues, as one participant sees them.

use std::sync::Arc;
use std::time::Duration;

use duologue_rpc::Error as RpcError;
use duologue_schema::dialogue::{AgentUriError, DialogueErrorCode as Code, ErrorContent, InvalidField};
use duologue_schema::envelope::EnvelopeErrorCode;

use super::beliefs::InvalidConfidence;
use super::moves::IllegalMove;
use super::parameters::InvalidParameters;
use super::signature::SignError;

/// An error of a message that was sent, of the wait for an answer, or of a handler.
///
/// A handler returns it, often with `?`. The other side receives an `error` message. Details about
/// a third agent's failure are left out.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The other side did not advertise dialogues in `initialize`. Nothing was sent.
    #[error(
        "the other side does not support dialogues (it does not advertise _meta.duologue.dialogue); nothing was sent"
    )]
    NotSupported,
    /// The handle has no session, and dialogue messages need one. Nothing was sent.
    #[error(
        "a dialogue needs a session: use the peer_agent() of a session, or in_session(id); nothing was sent"
    )]
    NoSession,
    /// This side has no [`Dialogues`](super::Dialogues).
    #[error("this side is not configured for dialogues; call Exchange::dialogue")]
    NotSetUp,
    /// A name is not a valid URI.
    #[error("an agent's name {0}")]
    Uri(#[from] AgentUriError),
    /// The rules do not allow the message. Nothing was sent.
    #[error("{0}; nothing was sent")]
    Illegal(#[from] IllegalMove),
    /// The parameters do not match the type registered for the task. Nothing was sent.
    #[error("{0}; nothing was sent")]
    Parameters(#[from] InvalidParameters),
    /// A field of the message is invalid. Nothing was sent.
    #[error("{0}; nothing was sent")]
    Field(#[from] InvalidField),
    /// The chosen id belongs to another message of this dialogue, or to another dialogue. Nothing was
    /// sent.
    #[error("the id {0:?} is taken by another message or dialogue; nothing was sent")]
    IdTaken(String),
    /// A belief has an invalid confidence. Nothing was sent.
    #[error("{0}; nothing was sent")]
    Belief(#[from] InvalidConfidence),
    /// The message could not be signed. Nothing was sent.
    #[error("{0}; nothing was sent")]
    Sign(#[from] SignError),
    /// The other side rejected the message.
    #[error("the other side rejected the message: {} ({})", .0.error_message, .0.error_code)]
    Response(Box<ErrorContent>),
    /// The other side accepted the message and then sent this `error` message.
    #[error("{} ({})", .0.error_message, .0.error_code)]
    Failed(Box<ErrorContent>),
    /// An error of a handler with the content for the other side; see [`failed`](Self::failed).
    #[error("{} ({})", .0.error_message, .0.error_code)]
    Own(Box<ErrorContent>),
    /// No answer arrived in time. A later answer is delivered like any other message.
    #[error("no answer within {after:?}")]
    NoAnswer {
        /// The timeout.
        after: Duration,
    },
    /// The dialogue has ended, or its connection has.
    #[error("the dialogue has ended")]
    Ended,
    /// The connection has the maximum number of dialogues; see `DialogueLimits::dialogues`.
    #[error(
        "dialogue limit reached ({0} on this connection); retry later or raise `DialogueLimits::dialogues`"
    )]
    TooMany(usize),
    /// A callback tried to send or receive: a method of [`KeyStore`](super::KeyStore), or a type in
    /// [`Parameters`](super::Parameters). A message waits for the callback, so nothing was sent.
    #[error("a dialogue cannot send or receive in {callback}, which must not block; spawn a task")]
    InCallback {
        /// The callback.
        callback: &'static str,
    },
    /// An error of the connection, or of one message on it.
    #[error(transparent)]
    Connection(#[from] RpcError),
    /// Any other error. Its message is sent to the other side.
    #[error("{0}")]
    Other(Arc<dyn std::error::Error + Send + Sync>),
}

impl Error {
    /// Wraps any error, for `map_err(Error::other)?`.
    pub fn other(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Error::Other(Arc::from(error.into()))
    }

    /// Creates a handler's error with the code that is sent to the other side.
    pub fn failed(code: Code, message: impl Into<String>) -> Self {
        Error::Own(Box::new(ErrorContent::of(code, message)))
    }

    /// Creates an error for a message whose request is invalid.
    pub fn invalid(message: impl Into<String>) -> Self {
        Error::failed(Code::InvalidParameter, message)
    }

    /// Returns true if the same message may succeed later.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Error::Response(error) => error.is_retryable(),
            Error::Connection(RpcError::Timeout { .. }) => true,
            Error::Connection(RpcError::Response(error)) => {
                EnvelopeErrorCode::from_rpc(error.code).is_retryable()
            }
            _ => false,
        }
    }

    /// Returns the content of the `error` message for the other side. Details about a third agent's
    /// failure are left out.
    pub(crate) fn into_content(self) -> ErrorContent {
        let mut content = match self {
            Error::Own(content) => *content,
            Error::Failed(_) | Error::Connection(RpcError::Response(_)) => {
                ErrorContent::of(Code::ServerError, "another agent failed")
            }
            Error::Response(why) => {
                let text = format!("a message of this agent was rejected ({})", why.error_code);
                ErrorContent::of(Code::ServerError, text)
            }
            Error::NoAnswer { .. } | Error::Connection(RpcError::Timeout { .. }) => {
                ErrorContent::of(Code::Timeout, self.to_string())
            }
            error => ErrorContent::of(Code::ServerError, error.to_string()),
        };
        // The message was accepted, so the same one again would be a duplicate.
        content.retryable.get_or_insert(false);
        content
    }
}

impl From<crate::Error> for Error {
    /// Passes on the code of another agent's error, but not its text.
    fn from(error: crate::Error) -> Self {
        match error {
            crate::Error::Response(_) | crate::Error::Declined(_) | crate::Error::Answer { .. } => {
                Error::other(format!("another agent failed ({})", error.code()))
            }
            other => Error::other(other),
        }
    }
}

impl From<serde_json::Error> for Error {
    fn from(error: serde_json::Error) -> Self {
        Error::invalid(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use duologue_schema::Error as WireError;

    use super::*;

    fn timeout() -> RpcError {
        RpcError::Timeout { method: "_session/dialogue".into(), after: Duration::from_secs(1) }
    }

    fn response(code: EnvelopeErrorCode) -> RpcError {
        RpcError::Response(WireError::new(code.rpc_code(), "no"))
    }

    /// A message may succeed later if its receipt is missing, or if the other side has a passing difficulty.
    #[test]
    fn passing_difficulties_are_retried() {
        let rejected = |code| Error::Response(Box::new(ErrorContent::of(code, "no")));
        for (error, is_retryable) in [
            (rejected(Code::Overloaded), true),
            (rejected(Code::Conflict), false),
            (Error::Connection(timeout()), true),
            (Error::Connection(response(EnvelopeErrorCode::Overloaded)), true),
            (Error::Connection(response(EnvelopeErrorCode::InvalidParameter)), false),
            (Error::Ended, false),
            (Error::NoAnswer { after: Duration::ZERO }, false),
            (Error::failed(Code::Overloaded, "no"), false),
        ] {
            assert_eq!(error.is_retryable(), is_retryable, "{error}");
        }
    }

    /// A message that a handler has accepted is never sent again, unless the handler allows it.
    #[test]
    fn the_error_of_a_handler_has_a_code() {
        for (error, code) in [
            (Error::NoAnswer { after: Duration::ZERO }, Code::Timeout),
            (Error::Connection(timeout()), Code::Timeout),
            (Error::Connection(response(EnvelopeErrorCode::Overloaded)), Code::ServerError),
            (Error::failed(Code::Conflict, "no"), Code::Conflict),
            (Error::Ended, Code::ServerError),
        ] {
            let content = error.into_content();
            assert_eq!((content.error_code, content.retryable), (code, Some(false)));
        }
        let own = ErrorContent::of(Code::Overloaded, "later").retryable(true);
        assert_eq!(Error::Own(Box::new(own)).into_content().retryable, Some(true));
    }
}
