//! Reasons for rejecting a message.

use duologue_schema::dialogue::{DialogueErrorCode, ErrorContent, InvalidField};
use duologue_schema::{Json, Members};
use serde_json::Value;

use super::canonical::CanonicalError;

/// The reason for rejecting a message. Its text is for our log: [`content`](Self::content) is the
/// text for the sender.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum VerifyError {
    /// The message exceeds the maximum size.
    #[error("message too large ({bytes} bytes, at most {limit} are allowed)")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The message is not strict JSON.
    #[error(transparent)]
    Malformed(#[from] CanonicalError),
    /// The text is not a dialogue message: a field is missing or has another type.
    #[error("not a dialogue message: {0}")]
    Unreadable(String),
    /// A field is invalid.
    #[error(transparent)]
    Field(#[from] InvalidField),
    /// A required signature is missing.
    #[error("the message is not signed")]
    Unsigned,
    /// The message is signed, but there are no keys to verify it.
    #[error("the message is signed, but there are no keys to verify it")]
    NoKeys,
    /// The signature has another form or unknown members.
    #[error("the signature does not have the form described in RFD 0005")]
    SignatureForm,
    /// The signature names a key that is unknown or was revoked.
    #[error("the key {0:?} is unknown or was revoked")]
    UnknownKey(String),
    /// The key belongs to another agent.
    #[error("the key {0:?} does not belong to the sender")]
    Owner(String),
    /// The key is bound to another recipient.
    #[error("the key {0:?} is bound to another recipient")]
    Peer(String),
    /// The signature names another algorithm than that of its key.
    #[error("the signature names another algorithm than that of the key {0:?}")]
    Algorithm(String),
    /// The key is not valid yet, or no longer.
    #[error("the key {0:?} is not valid now")]
    KeyTime(String),
    /// The signature does not match the message.
    #[error("the signature does not match the key {0:?}")]
    Forged(String),
    /// The recipient is another agent.
    #[error("the message is for another agent")]
    Recipient,
    /// The sender has our own name.
    #[error("the sender has the name of the recipient")]
    Ourselves,
    /// The `timestamp` is invalid.
    #[error("timestamp must be ISO 8601 with an offset from UTC, such as 2026-03-01T12:00:00Z")]
    Timestamp,
    /// The message was sent in the future.
    #[error("the timestamp is in the future by more than clocks may differ")]
    Future,
    /// The `ttl` has passed.
    #[error("the ttl has passed")]
    Expired,
    /// The message is older than the replay cache.
    #[error("the message is older than the replay cache")]
    TooOld,
    /// No rule of the allow-list allows the message.
    #[error("the allow-list does not allow the message")]
    NotAllowed,
    /// Another message with that id was accepted before.
    #[error("another message with that message_id was accepted")]
    Conflict,
    /// The message was accepted before, on another connection.
    #[error("the message was accepted before, on another connection")]
    Elsewhere,
}

impl VerifyError {
    /// Returns the standard error code.
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

    /// Returns the content of the response about `message`. It reveals neither which keys exist nor
    /// why a signature failed.
    pub(crate) fn content(&self, message: &Json) -> ErrorContent {
        let code = self.code();
        let text = match self {
            Self::Unsigned => "the message must be signed".to_owned(),
            Self::NotAllowed => "this sender is not authorized for this message".to_owned(),
            Self::Ourselves => self.to_string(),
            // All other errors with this code are about the signature.
            _ if code == DialogueErrorCode::Unauthorized => "the signature could not be verified".to_owned(),
            shown => shown.to_string(),
        };
        let field = match self {
            Self::Field(fault) => Some(fault.field),
            Self::Timestamp | Self::Future => Some("timestamp"),
            Self::Recipient => Some("recipient_id"),
            _ => None,
        };
        let details: Members = field.map(|field| ("field", Value::from(field))).into_iter().collect();
        ErrorContent::of(code, text).details(details).about(message)
    }
}
