//! The answer to a prompt: a response in version 1, a response and updates of the state in version 2.

use duologue_rpc::{CancellationToken, Responder};
use duologue_schema::{Error as WireError, PromptResponse, StopReason};

use crate::agent::Prompt;
use crate::client::ClientHandle;
use crate::error::Result;
use crate::session_memory::{Reservation, SessionMemory};
use crate::turn::Turn;

/// The answer to a prompt that has not begun.
pub(crate) struct PromptAnswer {
    /// The memory of a prompt of version 2. Its response is sent before the turn, so the connection no longer counts it
    /// during the turn.
    memory: Option<Reservation>,
    is_v2: bool,
}

impl PromptAnswer {
    /// Reserves memory for a prompt of version 2.
    pub(crate) fn new(
        client: &ClientHandle,
        memory: &SessionMemory,
        wire_bytes: usize,
    ) -> Result<Self, WireError> {
        let is_v2 = client.is_v2();
        let memory = if is_v2 { Some(memory.reserve(wire_bytes)?) } else { None };
        Ok(PromptAnswer { memory, is_v2 })
    }

    /// Returns the token that cancels the turn. In version 2 the request ends before the turn, so only `session/cancel`
    /// and the end of the connection cancel it.
    pub(crate) fn cancellation(&self, responder: &Responder) -> CancellationToken {
        if self.is_v2 { responder.peer().closing() } else { responder.cancellation().clone() }
    }

    pub(crate) fn to(self, responder: Responder) -> OpenAnswer {
        OpenAnswer {
            responder: Some(responder),
            is_v2: self.is_v2,
            #[cfg(feature = "protocol-v2")]
            accepted: None,
            _memory: self.memory,
        }
    }
}

/// The answer to a prompt whose turn is running.
pub(crate) struct OpenAnswer {
    /// `None` after the response.
    responder: Option<Responder>,
    is_v2: bool,
    /// The turn of a prompt of version 2 that was accepted, until its end is reported.
    #[cfg(feature = "protocol-v2")]
    accepted: Option<crate::session::Session>,
    _memory: Option<Reservation>,
}

impl OpenAnswer {
    /// Reports that the turn begins. Has no effect in version 1.
    ///
    /// # Errors
    ///
    /// The turn is cancelled, or the connection ends, while this waits for space.
    pub(crate) async fn accept(&mut self, turn: &Turn, prompt: &Prompt) -> Result<()> {
        #[cfg(feature = "protocol-v2")]
        if self.is_v2 && self.responder.is_some() {
            // The message of the user may be long.
            turn.room().await?;
            if let Some(responder) = self.responder.take() {
                turn.session().report_accepted(responder, prompt);
                self.accepted = Some(turn.session().clone());
            }
        }
        #[cfg(not(feature = "protocol-v2"))]
        let _ = (turn, prompt);
        Ok(())
    }

    /// Reports the end of the turn. Nothing of the turn follows.
    pub(crate) fn end(&mut self, outcome: Result<PromptResponse, WireError>) {
        match self.responder.take() {
            // Version 2 has no stop reason in a response. The prompt was cancelled before it was accepted.
            Some(responder) if self.is_v2 => {
                responder.respond(outcome.and_then(|_| Err::<(), _>(WireError::request_cancelled())));
            }
            Some(responder) => responder.respond(outcome),
            None =>
            {
                #[cfg(feature = "protocol-v2")]
                if let Some(session) = self.accepted.take() {
                    session.report_end(outcome);
                }
            }
        }
    }

    /// Reports the end of a turn whose handler panicked. Dropping the responder answers a prompt of version 1.
    pub(crate) fn abandon(mut self, is_cancelled: bool) {
        if self.responder.is_none() {
            self.end(match is_cancelled {
                true => Ok(PromptResponse::new(StopReason::Cancelled)),
                false => Err(WireError::internal("the handler panicked")),
            });
        }
    }
}
