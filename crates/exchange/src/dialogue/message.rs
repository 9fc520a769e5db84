//! A message of the other side, as it came.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use duologue_schema::Json;
use duologue_schema::dialogue::{DialogueErrorCode as Code, DialogueMessage, ErrorContent};
use serde::de::{DeserializeOwned, Error as _};

use super::state::refused;

/// A message of the other side: verified, in its place, and a legal move. It reads like the [`DialogueMessage`] it is.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct VerifiedMessage {
    /// The message.
    pub message: DialogueMessage,
    /// The message as it was written, which is what its signature covers.
    pub raw: Json,
    /// The id of the key it is signed with, if it is.
    pub key_id: Option<Arc<str>>,
    /// Whether messages before it are missing. They did not come in time, and if they still come they are
    /// refused.
    pub gap: bool,
    /// When it is over, as the state of dialogues counts time.
    pub(crate) ends: Option<Duration>,
}

impl VerifiedMessage {
    pub(crate) fn new(message: DialogueMessage, raw: Json) -> Self {
        VerifiedMessage { message, raw, key_id: None, gap: false, ends: None }
    }

    /// Refuses what is over.
    pub(crate) fn in_time(&self, now: Duration) -> Result<(), Box<ErrorContent>> {
        match self.ends {
            Some(ends) if ends < now => Err(refused(Code::Expired, "its ttl has passed while it waited")),
            _ => Ok(()),
        }
    }

    /// What the message is about, an empty text if it does not say.
    #[must_use]
    pub fn task(&self) -> &str {
        self.message.content.task.as_deref().unwrap_or_default()
    }

    /// The `parameters` as a `T`.
    ///
    /// # Errors
    ///
    /// When they do not fit.
    pub fn parameters<T: DeserializeOwned>(&self) -> serde_json::Result<T> {
        super::parameters::read(&self.message.content.parameters)
    }

    /// One of the `parameters` as a `T`.
    ///
    /// # Errors
    ///
    /// When it is missing or does not fit.
    pub fn parameter<T: DeserializeOwned>(&self, name: &str) -> serde_json::Result<T> {
        let value = self.message.content.parameters.get::<T>(name);
        value.ok_or_else(|| {
            serde_json::Error::custom(format!("the parameter {name} is missing or does not fit"))
        })
    }
}

/// A message that waits, as text: once it is read it may take up many times the room.
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

    /// The message. It has been read before, so that does not fail.
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
