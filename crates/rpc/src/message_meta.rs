//! The `_meta` of a received message and of its answer.

use std::sync::{Arc, Mutex, PoisonError};

use duologue_schema::{Meta, TraceContext};

/// The `_meta` of a received message, and the `_meta` that its handler sets for the answer.
///
/// The contexts that handlers get hold it: [`RequestContext`](crate::RequestContext) and those of the SDKs.
/// Clones share the `_meta` of the answer.
#[derive(Clone, Debug, Default)]
pub struct MessageMeta {
    received: Option<Meta>,
    answer: Arc<Mutex<Option<Meta>>>,
}

impl MessageMeta {
    /// Creates the value for a message with this `_meta`.
    #[must_use]
    pub fn new(received: Option<Meta>) -> Self {
        MessageMeta { received, answer: Arc::default() }
    }

    /// Returns the `_meta` of the message.
    #[must_use]
    pub fn received(&self) -> Option<&Meta> {
        self.received.as_ref()
    }

    /// Returns the trace context in the `_meta` of the message.
    #[must_use]
    pub fn trace_context(&self) -> Option<TraceContext> {
        self.received.as_ref()?.trace_context()
    }

    /// Sets the `_meta` of the next answer.
    pub fn set_answer(&self, meta: impl Into<Meta>) {
        *self.answer.lock().unwrap_or_else(PoisonError::into_inner) = Some(meta.into());
    }

    /// Takes the `_meta` of the next answer.
    #[must_use]
    pub fn take_answer(&self) -> Option<Meta> {
        self.answer.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Returns the place for the `_meta` of the answer, without the `_meta` of the message.
    #[must_use]
    pub fn without_received(&self) -> Self {
        MessageMeta { received: None, answer: self.answer.clone() }
    }
}

/// Creates the value for a message with this `_meta`.
impl From<Option<Meta>> for MessageMeta {
    fn from(received: Option<Meta>) -> Self {
        MessageMeta::new(received)
    }
}
