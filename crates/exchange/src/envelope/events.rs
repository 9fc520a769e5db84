//! One `tracing` event for each message, behind the feature `events`. Without the feature these
//! functions are empty.
//!
//! The events have the target `duologue::events`, the level INFO and the name in the field `event`.
//! They carry no content of a message.

#[cfg(feature = "events")]
use duologue_schema::envelope::OutcomeStatus;
use duologue_schema::envelope::{DelegationOutcome, Envelope, EnvelopeError, EnvelopeId, Payload};

use crate::error::Result;

/// The time at which a request was sent or a task was accepted.
#[derive(Clone, Copy)]
pub(crate) struct EventClock {
    #[cfg(feature = "events")]
    start: tokio::time::Instant,
}

impl EventClock {
    pub(crate) fn start() -> Self {
        EventClock {
            #[cfg(feature = "events")]
            start: tokio::time::Instant::now(),
        }
    }

    #[cfg(feature = "events")]
    fn elapsed_ms(self) -> u64 {
        super::request::millis(self.start.elapsed())
    }
}

/// Reports a message that was sent.
#[cfg_attr(not(feature = "events"), allow(unused_variables))]
pub(crate) fn sent<P: Payload>(message: &Envelope<P>) {
    #[cfg(feature = "events")]
    {
        let Envelope { id, to, .. } = message;
        tracing::info!(target: TARGET, event = "acp_message_sent", kind = %P::KIND, %id, %to);
    }
}

/// Reports a valid message that was received.
#[cfg_attr(not(feature = "events"), allow(unused_variables))]
pub(crate) fn received<P: Payload>(message: &Envelope<P>) {
    #[cfg(feature = "events")]
    {
        let Envelope { id, from, .. } = message;
        tracing::info!(target: TARGET, event = "acp_message_received", kind = %P::KIND, %id, %from);
    }
}

/// Reports the end of a request of ours.
#[cfg_attr(not(feature = "events"), allow(unused_variables))]
pub(crate) fn answered<P: Payload, T>(id: &EnvelopeId, clock: EventClock, answer: &Result<T>) {
    #[cfg(feature = "events")]
    {
        let code = answer.as_ref().err().map(crate::Error::code);
        let (code, success) = (code.as_ref().map_or("", |code| code.as_str()), answer.is_ok());
        let (kind, latency_ms) = (P::KIND, clock.elapsed_ms());
        tracing::info!(target: TARGET, event = "acp_request_completed", %kind, %id, latency_ms, success, code);
    }
}

/// Reports a task that was accepted here.
#[cfg_attr(not(feature = "events"), allow(unused_variables))]
pub(crate) fn task_created(id: &EnvelopeId) {
    #[cfg(feature = "events")]
    tracing::info!(target: TARGET, event = "acp_task_created", %id);
}

/// Reports the end of a task that ran here. A task that ends as `failed` is no success.
#[cfg_attr(not(feature = "events"), allow(unused_variables))]
pub(crate) fn task_completed(
    id: &EnvelopeId,
    clock: EventClock,
    end: &Result<DelegationOutcome, EnvelopeError>,
) {
    #[cfg(feature = "events")]
    {
        let failed = end.as_ref().map_or(true, |outcome| outcome.status == OutcomeStatus::Failed);
        let fault = end.as_ref().map_or_else(|fault| Some(fault.clone()), DelegationOutcome::fault);
        let code = fault.as_ref().filter(|_| failed).map_or("", |fault| fault.code.as_str());
        let success = !failed;
        let latency_ms = clock.elapsed_ms();
        tracing::info!(target: TARGET, event = "acp_task_completed", %id, latency_ms, success, code);
    }
}

/// Reports a chunk of output that was sent.
#[cfg_attr(not(feature = "events"), allow(unused_variables))]
pub(crate) fn stream_chunk(task: &EnvelopeId, position: u64, complete: bool) {
    #[cfg(feature = "events")]
    tracing::info!(target: TARGET, event = "acp_stream_chunk", %task, position, complete);
}

#[cfg(feature = "events")]
const TARGET: &str = "duologue::events";
