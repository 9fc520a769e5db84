//! A received message.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use duologue_schema::dialogue::{DialogueErrorCode as Code, DialogueMessage, ErrorContent};
use duologue_schema::{Json, Meta, TraceContext};
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
    /// The `_meta` beside the message. The signature does not cover it: any intermediary may have
    /// written it.
    pub meta: Option<Meta>,
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
        VerifiedMessage { message, raw, meta: None, key_id: None, gap: false, ends: None }
    }

    /// Returns the size of the texts that are kept.
    pub(crate) fn bytes(&self) -> usize {
        bytes(&self.raw, self.meta.as_ref())
    }

    /// Returns the trace context in the `_meta`. Messages sent with the handle that a handler receives
    /// pass it on. For other messages: `.trace_context(message.trace_context())`.
    #[must_use]
    pub fn trace_context(&self) -> Option<TraceContext> {
        self.meta.as_ref()?.trace_context()
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
    meta: Option<Meta>,
    key_id: Option<Arc<str>>,
    gap: bool,
    ends: Option<Duration>,
}

fn bytes(raw: &Json, meta: Option<&Meta>) -> usize {
    raw.get().len() + meta.map_or(0, |meta| meta.as_json().get().len())
}

impl QueuedMessage {
    /// Returns the size of the texts that are kept.
    pub(crate) fn bytes(&self) -> usize {
        bytes(&self.raw, self.meta.as_ref())
    }

    pub(crate) fn raw(&self) -> &str {
        self.raw.get()
    }

    /// Parses the message and leaves it in the queue.
    pub(crate) fn peek(&self) -> Option<DialogueMessage> {
        self.raw.parse().ok()
    }

    /// Parses the message. It has been parsed before, so this does not fail.
    pub(crate) fn read(self) -> Option<VerifiedMessage> {
        let QueuedMessage { raw, meta, key_id, gap, ends, .. } = self;
        let message = raw.parse().ok()?;
        Some(VerifiedMessage { message, raw, meta, key_id, gap, ends })
    }
}

impl From<VerifiedMessage> for QueuedMessage {
    fn from(received: VerifiedMessage) -> Self {
        let VerifiedMessage { message, raw, meta, key_id, gap, ends } = received;
        QueuedMessage { step: message.interaction_step, raw, meta, key_id, gap, ends }
    }
}

impl Deref for VerifiedMessage {
    type Target = DialogueMessage;

    fn deref(&self) -> &DialogueMessage {
        &self.message
    }
}
