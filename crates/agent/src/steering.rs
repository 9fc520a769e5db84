//! Steering: messages of the user for a running turn, an extension of the protocol.

use duologue_rpc::{Incoming, Responder};
use duologue_schema::{Error as WireError, Request, SteerOutcome, SteerRequest, SteerResponse, params_fault};

use crate::agent::{Agent, Prompt};
use crate::context::Context;
use crate::service::{AgentService, answer, refuse};
use crate::session::Session;
use crate::unhandled::is_unhandled;

/// Returns true if the agent implements [`Agent::steer`].
pub(crate) fn has_steering<A: Agent>() -> bool {
    !is_unhandled(|agent: &A, context, (session, message): (&Session, Prompt)| {
        agent.steer(context, session, message)
    })
}

impl<A: Agent> AgentService<A> {
    /// Handles `_session/steering`.
    ///
    /// # Errors
    ///
    /// Returns the responder for another method, or if the agent does not implement this one.
    pub(crate) fn steer(&self, request: Incoming<'_>, responder: Responder) -> Result<(), Responder> {
        let shared = self.shared.clone();
        if request.method != SteerRequest::METHOD || !has_steering::<A>() || !shared.client.is_initialized() {
            return Err(responder);
        }
        let params = request.params.map_or("{}", |params| params.get());
        let steering: SteerRequest = match serde_json::from_str(params) {
            Ok(steering) => steering,
            Err(error) => {
                refuse(responder, WireError::invalid_params(params_fault(SteerRequest::METHOD, &error)));
                return Ok(());
            }
        };
        let Some(session) = shared.session(&steering.session_id) else {
            refuse(responder, shared.unknown_session(&steering.session_id));
            return Ok(());
        };
        if let Err(error) = shared.check_blocks(&steering.prompt) {
            refuse(responder, error);
            return Ok(());
        }
        let context = responder.context(SteerRequest::METHOD, steering.meta.clone());
        let context = Context::new(shared.client.clone(), context);
        let had_turn = session.has_turn();
        answer(shared.client.protocol_version(), responder, async move {
            // A turn that has ended or begun since is not the one for which the user wrote.
            let has_turn = had_turn && session.has_turn();
            let outcome = match !has_turn && steering.requires_turn() {
                true => SteerOutcome::PromptRequired,
                false => shared.agent.steer(&context, &session, Prompt::new(steering.prompt)).await?,
            };
            let mut response = SteerResponse::new(outcome);
            response.meta = context.answer_meta();
            Ok(response)
        });
        Ok(())
    }
}
