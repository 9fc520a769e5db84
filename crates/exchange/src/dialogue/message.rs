//! A received message.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use duologue_schema::Json;
use duologue_schema::dialogue::{DialogueErrorCode as Code, DialogueMessage, ErrorContent};
use serde::de::{DeserializeOwned, Error as _};

use super::state::refused;

/// A message from the other side: verified, in order, and a legal move. It derefs to its
/// [`DialogueMessage`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct VerifiedMessage {
    /// The message.
    pub message: DialogueMessage,
    /// The text of the message, which the signature covers.
    pub raw: Json,
    /// The id of the key that signed the message, if any.
    pub key_id: Option<Arc<str>>,
    /// True if messages before this one are missing. They did not arrive in time and are rejected
    /// if they still arrive.
    pub gap: bool,
    /// The expiry time, on the clock of the dialogue state.
    pub(crate) ends: Option<Duration>,
}

impl VerifiedMessage {
    pub(crate) fn new(message: DialogueMessage, raw: Json) -> Self {
        VerifiedMessage { message, raw, key_id: None, gap: false, ends: None }
    }

    /// Rejects an expired message.
    pub(crate) fn in_time(&self, now: Duration) -> Result<(), Box<ErrorContent>> {
        match self.ends {
            Some(ends) if ends < now => {
                Err(refused(Code::Expired, "the ttl passed while the message was buffered"))
            }
            _ => Ok(()),
        }
    }

    /// Returns the task of the message, or an empty string.
    #[must_use]
    pub fn task(&self) -> &str {
        self.message.content.task.as_deref().unwrap_or_default()
    }

    /// Parses the `parameters` as a `T`.
    ///
    /// # Errors
    ///
    /// Returns an error if they do not match `T`.
    pub fn parameters<T: DeserializeOwned>(&self) -> serde_json::Result<T> {
        super::parameters::read(&self.message.content.parameters)
    }

    /// Parses one of the `parameters` as a `T`.
    ///
    /// # Errors
    ///
    /// Returns an error if it is missing or does not match `T`.
    pub fn parameter<T: DeserializeOwned>(&self, name: &str) -> serde_json::Result<T> {
        let value = self.message.content.parameters.get::<T>(name);
        value.ok_or_else(|| serde_json::Error::custom(format!("the parameter {name} is missing or invalid")))
    }
}

/// A queued message, stored as text because the parsed form may take many times the memory.
pub(crate) struct QueuedMessage {
    pub(crate) step: u64,
    raw: Json,
    key_id: Option<Arc<str>>,
    gap: bool,
    ends: Option<Duration>,
}

impl QueuedMessage {
    pub(crate) fn raw(&self) -> &str {
        self.raw.get()
    }

    /// Parses the message. It has been parsed before, so this does not fail.
    pub(crate) fn read(self) -> Option<VerifiedMessage> {
        let message = self.raw.parse().ok()?;
        Some(VerifiedMessage { message, raw: self.raw, key_id: self.key_id, gap: self.gap, ends: self.ends })
    }
}

impl From<VerifiedMessage> for QueuedMessage {
    fn from(received: VerifiedMessage) -> Self {
        let VerifiedMessage { message, raw, key_id, gap, ends } = received;
        QueuedMessage { step: message.interaction_step, raw, key_id, gap, ends }
    }
}

impl Deref for VerifiedMessage {
    type Target = DialogueMessage;

    fn deref(&self) -> &DialogueMessage {
        &self.message
    }
}
