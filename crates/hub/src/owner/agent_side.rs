//! The agent of a session: its messages, its process, and the responses that it waits for.

use duologue_rpc::raw_message::{member_text, response_frame};
use duologue_rpc::{ResponseOutcome, RpcMessage};
use duologue_schema::{
    CancelRequestNotification, Error as RpcError, Notification as _, OtherTurnNotification, PromptResponse,
    RequestId, StopReason,
};
use duologue_transcript::Side;
use serde_json::value::{RawValue, to_raw_value};

use super::replay::LateReplay;
use super::{AgentProcess, SessionOwner, client_lost, raw_line};
use crate::child_sessions::{ChildSessions, child_id, child_position, with_session_ids};
use crate::chunk_line;
use crate::cleared_messages::StreamUpdate;
use crate::projection::interruption;
use crate::question::SharedQuestionKind;
use crate::record::{Asker, HubEvent};
use crate::routing::{check_routing, is_of_client_files, is_of_transport};
use crate::state::parse;

impl SessionOwner {
    /// Handles a message of the agent.
    pub(super) fn receive_from_agent(&mut self, line: &[u8]) {
        let is_plain = self.process == AgentProcess::Running && self.replay.is_none();
        let chunk = if is_plain { chunk_line::read(line, &self.session) } else { None };
        match chunk.filter(|chunk| self.state.cleared.event(&self.session, chunk).is_none()) {
            Some(chunk) => self.record_chunk(line, &chunk),
            None => self.receive_other_from_agent(line),
        }
    }

    /// Handles a message as one that is no chunk.
    #[cfg(test)]
    pub(crate) fn handle_in_the_general_way(&mut self, line: &[u8]) -> Vec<crate::OwnerAction> {
        self.receive_other_from_agent(line);
        self.handle(self.now, crate::OwnerInput::Time)
    }

    fn receive_other_from_agent(&mut self, line: &[u8]) {
        let repaired = RpcMessage::repair(line);
        let line = repaired.as_deref().unwrap_or(line);
        if self.process != AgentProcess::Running {
            return self.receive_while_restoring(line);
        }
        let Ok(frame) = serde_json::from_slice::<&RawValue>(line.trim_ascii()) else {
            return tracing::debug!(session = %self.session, "dropped a line of the agent that is not JSON");
        };
        match parse(line) {
            Some(RpcMessage::Notification { method, params }) => {
                match check_routing(params).and_then(|()| self.with_children(line)) {
                    Ok(None) => {}
                    Ok(Some(line)) => return self.receive_from_agent(&line),
                    Err(error) => {
                        return tracing::warn!(session = %self.session, %error, "dropped a notification of the agent");
                    }
                }
                if method == CancelRequestNotification::METHOD {
                    self.agent_cancels(params);
                } else if is_not_of_agents(&method) {
                    tracing::warn!(session = %self.session, method = &*method, "dropped a notification of the agent with a method of the transport, of the hub, or of files and terminals");
                } else {
                    let params = params.map_or("{}", RawValue::get);
                    if self.is_call(&method, params) {
                        return tracing::debug!(session = %self.session, method = &*method, "dropped a notification to another agent; only requests are routed");
                    }
                    match self.replay.as_mut().and_then(|replay| replay.repeats(&self.session, line)) {
                        Some(true) => return,
                        Some(false) => self.end_replay(),
                        None => {}
                    }
                    let update = StreamUpdate::of(&method, params.as_bytes());
                    let event = match &update {
                        Some(update) => self.state.cleared.event(&self.session, update),
                        None => self.notification_event(&method, params),
                    };
                    self.record_update(Some((Side::Agent, frame)), event, update.as_ref());
                }
            }
            Some(RpcMessage::Request { id, method, params }) => {
                match check_routing(params).and_then(|()| self.with_children(line)) {
                    Ok(Some(line)) => self.receive_from_agent(&line),
                    Ok(None) => {
                        self.end_replay();
                        self.agent_request(frame, &id, &method, params.map_or("{}", RawValue::get));
                    }
                    Err(error) => self.refuse_agent(frame, &id, &error),
                }
            }
            Some(RpcMessage::Response { id, outcome }) => {
                let turn = self.state.turn().map(|call| call.to_string());
                if turn.is_some_and(|turn| turn == id.get()) {
                    self.end_replay();
                    if self.loses_session(&outcome) {
                        return self.lose_session();
                    }
                    self.has_lost_session = false;
                }
                self.agent_response(frame, id.get());
            }
            _ => tracing::debug!(session = %self.session, "dropped a line of the agent that is no message"),
        }
    }

    /// Handles the lines that could have been a part of a late replay. They are new.
    fn end_replay(&mut self) {
        let held = self.replay.take().map(LateReplay::end).unwrap_or_default();
        for line in held {
            self.receive_from_agent(&line);
        }
    }

    /// Returns a message with the ids of child sessions for clients, or `None` if it has no others. New children are recorded.
    ///
    /// # Errors
    ///
    /// If an id is longer than [`ChildSessions::ID_BYTES`].
    pub(super) fn with_children(&mut self, line: &[u8]) -> Result<Option<Vec<u8>>, RpcError> {
        let session = self.session.clone();
        let mut too_long = None;
        let line = with_session_ids(line, |id| {
            let known =
                child_position(&session, id).and_then(|position| self.state.children.agent_id(position));
            if id == session.as_str() || known.is_some() {
                return None;
            }
            if id.len() > ChildSessions::ID_BYTES {
                too_long = Some(id.len());
                return None;
            }
            let position = match self.state.children.position(id) {
                Some(position) => position,
                None => self.record(None, Some(HubEvent::ChildSession { id: id.to_owned() })),
            };
            Some(child_id(&session, position))
        });
        match too_long {
            None => Ok(line),
            Some(bytes) => {
                let limit = ChildSessions::ID_BYTES;
                Err(RpcError::invalid_params(format!(
                    "the id of a session has {bytes} bytes, and the limit is {limit}; use a shorter one"
                )))
            }
        }
    }

    pub(super) fn agent_response(&mut self, frame: &RawValue, id: &str) {
        let call = id.parse::<u64>().ok().filter(|call| self.state.calls.contains_key(call));
        let Some(call) = call else {
            return tracing::debug!(session = %self.session, id, "dropped a response without a request");
        };
        let open = self.state.calls.get(&call);
        let choice = self.state.picture.choice(call).cloned();
        let (to, is_prompt) = open.map(|open| (open.askers.clone(), open.is_prompt)).unwrap_or_default();
        let askers = to.clone();
        let position = self.record(Some((Side::Agent, frame)), Some(HubEvent::Answer { call, to }));
        if is_prompt {
            self.sync_first(position);
            self.cancelled = None;
            self.turn_ended(&askers);
        }
        if let (Some(choice), Some(RpcMessage::Response { outcome: ResponseOutcome::Result(_), .. })) =
            (choice, parse(frame.get().as_bytes()))
        {
            let picture = &self.state.picture;
            self.lost.retain(|lost| !lost.is_chosen(&choice, picture));
            self.tell_others(&choice, &askers);
        }
    }

    pub(super) fn agent_request(&mut self, frame: &RawValue, id: &RequestId, method: &str, params: &str) {
        // A client counts the requests of its session, so that it receives each of them once.
        if is_of_client_files(method) && member_text(params.as_bytes(), "sessionId").is_none() {
            let error = RpcError::invalid_params(format!("`{method}` needs a `sessionId`"));
            return self.refuse_agent(frame, id, &error);
        }
        if self.state.agent_requests() + self.calls_of_agent.len() >= self.settings.agent_requests {
            let limit = self.settings.agent_requests;
            let error = RpcError::internal(format!(
                "request limit reached ({limit} requests wait for clients); retry later or raise `agent_requests`"
            ));
            return self.refuse_agent(frame, id, &error);
        }
        if self.is_call(method, params) {
            return self.route_call(frame, id);
        }
        match SharedQuestionKind::read(method, params) {
            Some(Err(error)) => self.refuse_agent(frame, id, &error),
            Some(Ok(_)) => {
                self.record(Some((Side::Agent, frame)), Some(HubEvent::Question));
                self.refuse_unshown();
                self.watch();
            }
            None => {
                let client = self.recipient(method, params);
                match client.and_then(|key| self.clients.get(&key).copied().map(|client| (key, client))) {
                    None => self.refuse_agent(frame, id, &client_lost()),
                    Some((_, client)) if !client.abilities.handle(method) => {
                        self.refuse_agent(frame, id, &RpcError::method_not_found(method));
                    }
                    Some((client, _)) => {
                        let event = HubEvent::HostRequest { client };
                        self.record(Some((Side::Agent, frame)), Some(event));
                    }
                }
            }
        }
    }

    /// Records a request of the agent that no client receives, and answers it with an error.
    pub(super) fn refuse_agent(&mut self, frame: &RawValue, id: &RequestId, error: &RpcError) {
        self.record(Some((Side::Agent, frame)), None);
        let Some(answer) = raw_line(response_frame(id.token(), Err(error))) else { return };
        let position = self.record(Some((Side::Client, &answer)), None);
        self.send_answer(position, &answer);
    }

    /// Handles a request of the agent that it withdraws.
    pub(super) fn agent_cancels(&mut self, params: Option<&RawValue>) {
        let cancelled = params.and_then(|params| serde_json::from_str(params.get()).ok());
        let Some(CancelRequestNotification { request_id, .. }) = cancelled else { return };
        let error = RpcError::request_cancelled();
        let question = self.state.questions.iter().find(|(_, it)| it.id == request_id).map(|(at, _)| *at);
        if let Some(question) = question {
            self.answer_agent(&request_id, Err(&error), HubEvent::Answered { question, by: None });
        }
        let request = self.state.host_requests.iter().find(|(_, it)| it.id == request_id);
        if let Some((request, client)) = request.map(|(at, it)| (*at, it.client.clone())) {
            let event = HubEvent::HostAnswer { request, client: Some(client) };
            self.answer_agent(&request_id, Err(&error), event);
        } else if question.is_none() && self.settings.routes_calls {
            self.route_cancel(request_id);
        }
    }

    /// Counts an end of the process, which is possibly followed by a restart.
    pub(super) fn count_process_end(&mut self) {
        if self.process == AgentProcess::Ended {
            return;
        }
        self.process_ends.push_back(self.now);
        if self.process_ends.len() > self.settings.restarts.saturating_add(1) {
            self.process_ends.pop_front();
        }
    }

    /// Returns an error if the process has ended too often to be started again now.
    pub(super) fn check_restart(&self) -> Result<(), RpcError> {
        let (limit, period) = (self.settings.restarts, self.settings.restart_period);
        let ends = self.process_ends.iter().filter(|at| self.now.saturating_sub(**at) < period).count();
        if ends <= limit {
            return Ok(());
        }
        let reason = format!(
            "restart limit reached (the agent's process was started again {limit} times within {period:?}, and ended); retry later or raise `restarts`"
        );
        Err(interruption("restart_limit", &reason))
    }

    pub(super) fn agent_ended(&mut self, code: &str, reason: &str) {
        let reason = &shortened(reason);
        self.end_replay();
        self.process = AgentProcess::Ended;
        (self.restoring, self.cancelled) = (None, None);
        self.keep_lost();
        self.lost.clear();
        self.terminals.clear();
        self.to_agent.clear();
        self.forget_calls();
        self.interrupt_all(code, reason);
    }

    /// Records the end of a turn for all clients, unless the one that began it is alone. Behind a start of the server no client
    /// is attached yet, and one that has repeated the prompt of another knows of that one's turn.
    fn turn_ended(&mut self, to: &[Asker]) {
        let first = to.first().map(|asker| &asker.client);
        let is_alone = self.clients.len() == 1 && self.clients.keys().next() == first;
        if !is_alone {
            self.record(None, Some(HubEvent::TurnEnded));
        }
    }

    /// Ends the turn of a session that is closed, for an agent that has not ended it.
    pub(super) fn end_as_cancelled(&mut self) {
        let Some(call) = self.state.turn().map(|call| call.to_string()) else { return };
        let Ok(result) = to_raw_value(&PromptResponse::new(StopReason::Cancelled)) else { return };
        if let Some(frame) = raw_line(response_frame(&call, Ok(&result))) {
            self.agent_response(&frame, &call);
        }
    }

    /// Ends everything that waits for the agent, or for which it waits.
    pub(super) fn interrupt_all(&mut self, code: &str, reason: &str) {
        let calls = self.state.calls.iter();
        let calls: Vec<_> = calls.map(|(call, it)| (*call, it.askers.clone(), it.is_prompt)).collect();
        for (call, to, is_prompt) in calls {
            let (code, reason, askers) = (code.to_owned(), reason.to_owned(), to.clone());
            let position = self.record(None, Some(HubEvent::Interrupted { call, to, code, reason }));
            self.sync_first(position);
            if is_prompt {
                self.turn_ended(&askers);
            }
        }
        let questions: Vec<u64> = self.state.questions.keys().copied().collect();
        for question in questions {
            self.record(None, Some(HubEvent::Answered { question, by: None }));
        }
        let requests: Vec<_> =
            self.state.host_requests.iter().map(|(at, it)| (*at, it.client.clone())).collect();
        for (request, client) in requests {
            self.record(None, Some(HubEvent::HostAnswer { request, client: Some(client) }));
        }
        self.fail_delegations(reason);
    }

    /// Records and sends a response to the agent. Returns the position of its record.
    pub(super) fn answer_agent(
        &mut self,
        id: &RequestId,
        outcome: Result<&RawValue, &RpcError>,
        event: HubEvent,
    ) -> Option<u64> {
        let frame = raw_line(response_frame(id.token(), outcome))?;
        let position = self.record(Some((Side::Client, &frame)), Some(event));
        self.send_answer(position, &frame);
        if let Some(restoring) = &mut self.restoring {
            // The agent may have waited for a user.
            restoring.since = self.now;
        }
        Some(position)
    }
}

/// Returns the beginning of a reason. Each record of an end repeats it, and all of them have to fit into the reserve of a
/// full log.
fn shortened(reason: &str) -> String {
    /// Limit on the bytes of the reason as JSON.
    const REASON_BYTES: usize = 1024;
    let mut bytes = 0;
    let is_kept = |char: &char| {
        bytes += match char {
            '"' | '\\' => 2,
            char if char.is_control() => 6,
            char => char.len_utf8(),
        };
        bytes <= REASON_BYTES
    };
    reason.chars().take_while(is_kept).collect()
}

/// Returns true for a notification that no agent sends: those of the transport and of the hub, and requests for files and terminals.
fn is_not_of_agents(method: &str) -> bool {
    is_of_transport(method) || is_of_client_files(method) || method == OtherTurnNotification::METHOD
}
