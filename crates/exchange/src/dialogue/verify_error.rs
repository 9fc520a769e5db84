//! Why a message was not let in.

use duologue_schema::dialogue::{DialogueErrorCode, ErrorContent, InvalidField};
use duologue_schema::{Json, Members};
use serde_json::Value;

use super::canonical::CanonicalError;

/// Why a message was not let in. Its text is for our own log: see [`content`](Self::content) for what the
/// sender is told.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum VerifyError {
    /// It is larger than the verifier takes.
    #[error("{bytes} bytes are more than the {limit} that are taken")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// It is no strict JSON.
    #[error(transparent)]
    Malformed(#[from] CanonicalError),
    /// It is no dialogue message: a field is missing or of another type.
    #[error("not a dialogue message: {0}")]
    Unreadable(String),
    /// A field does not fit.
    #[error(transparent)]
    Field(#[from] InvalidField),
    /// It has no signature where one is required.
    #[error("it is not signed")]
    Unsigned,
    /// It has a signature where there are no keys to check it with.
    #[error("it is signed, and there are no keys to check that with")]
    NoKeys,
    /// Its signature has another form, or says more than we know.
    #[error("its signature is not of the form that RFD 0005 describes")]
    SignatureForm,
    /// Its signature names a key nobody has, or that was revoked.
    #[error("nobody has the key {0:?}, or it was revoked")]
    UnknownKey(String),
    /// The key is another agent's.
    #[error("the key {0:?} is not the sender's")]
    Owner(String),
    /// The key is for messages to another agent.
    #[error("the key {0:?} is for messages to another agent")]
    Peer(String),
    /// Its signature names another algorithm than its key has.
    #[error("its signature is not of the kind the key {0:?} makes")]
    Algorithm(String),
    /// The key is not valid yet, or no longer.
    #[error("the key {0:?} is not valid now")]
    KeyTime(String),
    /// The signature is not that of this message.
    #[error("the key {0:?} did not sign this")]
    Forged(String),
    /// It is for another agent.
    #[error("it is for another agent")]
    Recipient,
    /// Its sender has our own name.
    #[error("it is in our own name")]
    Ourselves,
    /// Its `timestamp` is none.
    #[error("timestamp must be ISO 8601 with an offset from UTC, such as 2026-03-01T12:00:00Z")]
    Timestamp,
    /// It was sent later than now.
    #[error("its timestamp is in the future by more than clocks may differ")]
    Future,
    /// Its `ttl` has passed.
    #[error("its ttl has passed")]
    Expired,
    /// It is so old that nobody knows whether it came before.
    #[error("it is older than the memory of what came before")]
    TooOld,
    /// No rule of the allow-list allows it.
    #[error("the allow-list does not allow it")]
    NotAllowed,
    /// Another message came before under that id.
    #[error("another message had that message_id")]
    Conflict,
    /// It came before, over another connection.
    #[error("this message was taken before, elsewhere")]
    Elsewhere,
}

impl VerifyError {
    /// The standard code for it.
    pub(crate) fn code(&self) -> DialogueErrorCode {
        match self {
            Self::TooLarge { .. }
            | Self::Malformed(_)
            | Self::Unreadable(_)
            | Self::Field(_)
            | Self::Timestamp
            | Self::Future => DialogueErrorCode::InvalidParameter,
            Self::Unsigned
            | Self::NoKeys
            | Self::SignatureForm
            | Self::UnknownKey(_)
            | Self::Owner(_)
            | Self::Peer(_)
            | Self::Algorithm(_)
            | Self::KeyTime(_)
            | Self::Forged(_)
            | Self::Ourselves
            | Self::NotAllowed => DialogueErrorCode::Unauthorized,
            Self::Recipient => DialogueErrorCode::NotFound,
            Self::Expired | Self::TooOld => DialogueErrorCode::Expired,
            Self::Conflict | Self::Elsewhere => DialogueErrorCode::Conflict,
        }
    }

    /// What the sender is told about `message`. Which keys there are and what is wrong with a signature is
    /// not among it: a stranger would learn from that.
    pub(crate) fn content(&self, message: &Json) -> ErrorContent {
        let text = match self {
            Self::UnknownKey(_)
            | Self::Owner(_)
            | Self::Peer(_)
            | Self::Algorithm(_)
            | Self::KeyTime(_)
            | Self::Forged(_)
            | Self::SignatureForm
            | Self::NoKeys => "the signature could not be verified".to_owned(),
            Self::Unsigned => "sign the message".to_owned(),
            Self::NotAllowed => "this sender may not ask that".to_owned(),
            shown => shown.to_string(),
        };
        let field = match self {
            Self::Field(fault) => Some(fault.field),
            Self::Timestamp | Self::Future => Some("timestamp"),
            Self::Recipient => Some("recipient_id"),
            _ => None,
        };
        let details: Members = field.map(|field| ("field", Value::from(field))).into_iter().collect();
        ErrorContent::of(self.code(), text).details(details).about(message)
    }
}
