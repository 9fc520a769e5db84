//! The envelopes and dialogues that the agent addresses to other agents of the server.

use duologue_rpc::RpcMessage;
use duologue_rpc::raw_message::call_frame;
use duologue_schema::{CancelRequestNotification, Error as RpcError, Notification as _, RequestId};
use duologue_transcript::Side;
use serde_json::value::RawValue;

use super::{AgentProcess, SessionOwner, Waiting, raw};
use crate::exchange_state::{ExchangeScheme, is_for_agents};
use crate::input::OwnerAction;
use crate::state::parse;

impl SessionOwner {
    /// Returns true for a request of the agent that the server answers in the place of a client. A dialogue of an attached client
    /// stays with that client.
    pub(super) fn is_call(&self, method: &str, params: &str) -> bool {
        let params = params.as_bytes();
        self.settings.routes_calls && is_for_agents(method, params) && !self.has_dialogue(method, params)
    }

    /// Returns true if an attached client has the dialogue of a message.
    fn has_dialogue(&self, method: &str, params: &[u8]) -> bool {
        ExchangeScheme::of(method) == Some(ExchangeScheme::Dialogues)
            && self
                .state
                .exchange
                .client_of_reference(method, params)
                .is_some_and(|it| self.clients.contains_key(it))
    }

    /// Records a request to another agent. It is routed when its record is written. One with the id of a request that waits
    /// is refused, because its response would be that of both.
    pub(super) fn route_call(&mut self, frame: &RawValue, id: &RequestId) {
        if !self.calls_of_agent.insert(id.token().to_owned()) {
            let why = format!("a request with the id {} waits for its response; use another id", id.token());
            return self.refuse_agent(frame, id, &RpcError::invalid_params(why));
        }
        let position = self.record(Some((Side::Agent, frame)), None);
        let output = OwnerAction::Route(frame.get().into());
        self.acknowledged_written.push_back(Waiting::new(position, output));
    }

    /// Routes the withdrawal of a call, behind the call itself. The call can have been answered, while its task runs.
    pub(super) fn route_cancel(&mut self, id: RequestId) {
        let cancel = CancelRequestNotification::new(id);
        if let Ok(line) = call_frame(None, CancelRequestNotification::METHOD, &cancel) {
            let output = OwnerAction::Route(line);
            self.acknowledged_written.push_back(Waiting::new(self.state.end, output));
        }
    }

    /// Records a message about a call of the agent, and sends it to the agent.
    pub(super) fn receive_routed(&mut self, line: &[u8]) {
        let frame = std::str::from_utf8(line).ok().and_then(|line| raw(line.trim()));
        let Some(frame) = frame.filter(|_| self.process == AgentProcess::Running || self.restoring.is_some())
        else {
            return;
        };
        match parse(line) {
            Some(RpcMessage::Response { id, .. }) if !self.calls_of_agent.remove(id.get()) => {}
            Some(RpcMessage::Response { .. } | RpcMessage::Notification { .. }) => {
                let position = self.record(Some((Side::Client, &frame)), None);
                self.send_answer(position, &frame);
            }
            _ => {
                tracing::error!(session = %self.session, "dropped a routed line that is no response and no notification")
            }
        }
    }

    /// Forgets the calls of a process that has ended.
    pub(super) fn forget_calls(&mut self) {
        self.calls_of_agent.clear();
        self.acknowledged_written.retain(|waiting| !matches!(waiting.output, OwnerAction::Route(_)));
    }
}
