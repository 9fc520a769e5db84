//! What can go wrong in a dialogue, seen from one of its speakers.

use std::sync::Arc;
use std::time::Duration;

use duologue_rpc::Error as RpcError;
use duologue_schema::dialogue::{AgentUriError, DialogueErrorCode as Code, ErrorContent};
use duologue_schema::envelope::EnvelopeErrorCode;

use super::beliefs::InvalidConfidence;
use super::moves::IllegalMove;
use super::parameters::InvalidParameters;
use super::signature::SignError;

/// Why a message could not be sent or answered, or why a handler failed.
///
/// A handler returns it, often with `?`. The other side is told in a message of the type `error`; what a third
/// agent failed with is not repeated.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The other side did not say in `initialize` that it takes dialogue messages. Nothing was sent.
    #[error(
        "the other side takes no dialogue messages (it advertises no _meta.duologue.dialogue); nothing was sent"
    )]
    NotSupported,
    /// Dialogue messages are sent in a session of ACP. Nothing was sent.
    #[error(
        "a dialogue needs a session: use the peer_agent() of a session, or in_session(id); nothing was sent"
    )]
    NoSession,
    /// This side has no name and no handler for dialogues.
    #[error("this side is not set up for dialogues: give its Exchange a Dialogues")]
    NotSetUp,
    /// A name that is no URI.
    #[error("an agent's name {0}")]
    Uri(#[from] AgentUriError),
    /// The rules do not allow what was to be said. Nothing was sent.
    #[error("{0}; nothing was sent")]
    Illegal(#[from] IllegalMove),
    /// The parameters do not fit their task. Nothing was sent.
    #[error("{0}; nothing was sent")]
    Parameters(#[from] InvalidParameters),
    /// A belief cannot be held like that. Nothing was sent.
    #[error("{0}; nothing was sent")]
    Belief(#[from] InvalidConfidence),
    /// The message could not be signed. Nothing was sent.
    #[error("{0}; nothing was sent")]
    Sign(#[from] SignError),
    /// The other side did not take the message.
    #[error("the other side refused the message: {} ({})", .0.error_message, .0.error_code)]
    Response(Box<ErrorContent>),
    /// The other side took the message and then failed: what its `error` message says.
    #[error("{} ({})", .0.error_message, .0.error_code)]
    Failed(Box<ErrorContent>),
    /// What a handler wants the other side to be told; see [`failed`](Self::failed).
    #[error("{} ({})", .0.error_message, .0.error_code)]
    Own(Box<ErrorContent>),
    /// Nobody answered in time. An answer that comes later is a message like any other.
    #[error("no answer within {after:?}")]
    NoAnswer {
        /// The time that was allowed.
        after: Duration,
    },
    /// The dialogue has ended, or its connection has.
    #[error("the dialogue has ended")]
    Ended,
    /// There are as many dialogues over the connection as there may be; see `DialogueLimits::dialogues`.
    #[error(
        "there are {0} dialogues over this connection, as many as there may be (DialogueLimits::dialogues)"
    )]
    TooMany(usize),
    /// A dialogue was used to send or receive from within a callback that a message waits for: a method of
    /// [`KeyStore`](super::KeyStore), a form of [`Parameters`](super::Parameters), or a [`Tap`](duologue_rpc::Tap)
    /// that is shown a receipt. Nothing was sent.
    #[error(
        "a dialogue cannot send or receive from within {callback}, which must not wait: spawn a task for it"
    )]
    InCallback {
        /// The callback.
        callback: &'static str,
    },
    /// The connection, or a message on it.
    #[error(transparent)]
    Connection(#[from] RpcError),
    /// Anything else. The other side is told its message.
    #[error("{0}")]
    Other(Arc<dyn std::error::Error + Send + Sync>),
}

impl Error {
    /// Wraps any error, so that `map_err(Error::other)?` works on all of them.
    pub fn other(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Error::Other(Arc::from(error.into()))
    }

    /// A failure of a handler with the code that the other side is told.
    pub fn failed(code: Code, message: impl Into<String>) -> Self {
        Error::Own(Box::new(ErrorContent::of(code, message)))
    }

    /// The message asks for something that does not fit.
    pub fn invalid(message: impl Into<String>) -> Self {
        Error::failed(Code::InvalidParameter, message)
    }

    /// Whether the same message may get through later.
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

    /// What the other side is told when a handler fails with this. What a third agent failed with is not for it.
    pub(crate) fn into_content(self) -> ErrorContent {
        let mut content = match self {
            Error::Own(content) => *content,
            Error::Failed(_) | Error::Connection(RpcError::Response(_)) => {
                ErrorContent::of(Code::ServerError, "the agent that was asked failed")
            }
            Error::Response(why) => {
                let text = format!("a message of mine was refused ({})", why.error_code);
                ErrorContent::of(Code::ServerError, text)
            }
            Error::NoAnswer { .. } | Error::Connection(RpcError::Timeout { .. }) => {
                ErrorContent::of(Code::Timeout, self.to_string())
            }
            error => ErrorContent::of(Code::ServerError, error.to_string()),
        };
        // The message has been taken: the same one again would be a duplicate.
        content.retryable.get_or_insert(false);
        content
    }
}

impl From<crate::Error> for Error {
    /// Of another agent's fault the code is passed on, its words are not.
    fn from(error: crate::Error) -> Self {
        match error {
            crate::Error::Response(fault)
            | crate::Error::Declined(fault)
            | crate::Error::Answer { fault, .. } => {
                Error::other(format!("the agent that was asked failed ({})", fault.code))
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
