//! The clients of a session: their requests, their answers, and their presence.

use std::time::Duration;

use duologue_rpc::raw_message::call_frame;
use duologue_rpc::{Limits, Malformed, ResponseOutcome, RpcMessage};
use duologue_schema::{
    CancelNotification, CancelRequestNotification, Error as RpcError, Members, Notification as _,
    PromptRequest, Request as _, RequestId, SessionId,
};
use duologue_transcript::Side;
use serde_json::value::RawValue;

use super::{AgentProcess, AttachedClient, CancelledTurn, SessionOwner, Waiting, client_lost, raw, raw_line};
use crate::abilities::Abilities;
use crate::child_sessions::child_position;
use crate::input::OwnerAction;
use crate::log_reader::session_id;
use crate::projection::{error_response, position_of, response};
use crate::question::{SharedQuestion, SharedQuestionKind};
use crate::record::{Asker, ClientKey, HubEvent};
use crate::state::{Operation, parse};

impl SessionOwner {
    pub(super) fn attach(&mut self, client: &ClientKey, abilities: Abilities) {
        self.client_count += 1;
        let number = self.clients.get(client).map_or(self.client_count, |client| client.number);
        self.clients.insert(client.clone(), AttachedClient { abilities, is_present: true, number });
        let questions = self.state.questions.iter().filter(|(_, it)| abilities.show(&it.kind));
        let questions: Vec<u64> = questions.map(|(at, _)| *at).collect();
        for question in questions {
            self.record(None, Some(HubEvent::AskedAgain { question, client: client.clone() }));
        }
        // Requests to a client that no longer handles them are not sent again.
        let requests = self.state.host_requests.iter().filter(|(_, it)| it.client == *client);
        let unhandled = requests.filter(|(_, it)| !abilities.handle(&it.method));
        let unhandled: Vec<_> =
            unhandled.map(|(at, it)| (*at, it.id.clone(), RpcError::method_not_found(&it.method))).collect();
        for (request, id, error) in unhandled {
            self.answer_agent(&id, Err(&error), HubEvent::HostAnswer { request, client: None });
        }
        self.watch();
    }

    pub(super) fn set_present(&mut self, client: &ClientKey, is_present: bool) {
        if let Some(attached) = self.clients.get_mut(client) {
            attached.is_present = is_present;
        }
        self.watch();
    }

    pub(super) fn leave(&mut self, client: &ClientKey) {
        self.clients.remove(client);
        let requests: Vec<_> =
            self.state.host_requests.iter().filter(|(_, it)| it.client == *client).collect();
        let requests: Vec<_> = requests.into_iter().map(|(at, it)| (*at, it.id.clone())).collect();
        for (request, id) in requests {
            let error = client_lost();
            self.answer_agent(&id, Err(&error), HubEvent::HostAnswer { request, client: None });
        }
        self.refuse_unshown();
        self.watch();
    }

    /// Starts and stops the clocks of what waits for a client.
    pub(super) fn watch(&mut self) {
        let clients = &self.clients;
        self.state.watch_questions(self.now, |question| {
            clients.values().any(|client| client.is_present && client.abilities.show(&question.kind))
        });
        let is_attended = clients.values().any(|client| client.is_present);
        self.unattended = if is_attended { None } else { self.unattended.or(Some(self.now)) };
    }

    pub(super) fn check_deadlines(&mut self) {
        let now = self.now;
        let is_due =
            |since: Option<Duration>, limit: Duration| since.is_some_and(|since| since + limit <= now);
        let limit = self.settings.question;
        let due: Vec<u64> = self
            .state
            .questions
            .iter()
            .filter(|(_, it)| is_due(it.unattended, limit))
            .map(|(at, _)| *at)
            .collect();
        for question in due {
            self.cancel_question(question);
        }
        if let Some(limit) = self.settings.unattended_turn
            && is_due(self.unattended, limit)
            && self.has_turn()
        {
            // Once: the next limit begins now.
            self.unattended = Some(now);
            self.cancel_turn();
        }
        let restore = self.settings.restore;
        if let Some(restoring) = &self.restoring
            && self.state.questions.is_empty()
            && restoring.since + restore <= now
        {
            let reason = format!(
                "the agent was started again and did not restore the session within {restore:?} (`OwnerSettings::restore`), and its process was ended; send the prompt again"
            );
            self.end_restoring(&reason);
        }
        let grace = self.settings.cancel_grace;
        if self.cancelled.is_some_and(|cancelled| cancelled.at + grace <= now) {
            self.end_cancelled_turn();
        }
    }

    /// Handles a message of a client, and acknowledges it when its records are written or synced.
    pub(super) fn receive_from_client(&mut self, client: &ClientKey, number: u64, line: &[u8]) {
        let before = self.state.end;
        let needs_sync = match RpcMessage::read_strict(line, &Limits::default()) {
            None => false,
            Some(Ok(RpcMessage::Request { id, .. })) if !self.clients.contains_key(client) => {
                let error = RpcError::resource_not_found("unknown session: create, load or resume it first");
                self.reply(client, error_response(id.token(), &error));
                false
            }
            Some(Ok(_)) if !self.clients.contains_key(client) => false,
            Some(Ok(RpcMessage::Request { id, .. })) if id.token().len() > self.settings.request_id_bytes => {
                let (bytes, limit) = (id.token().len(), self.settings.request_id_bytes);
                let error = RpcError::invalid_request(format!(
                    "the id of the request has {bytes} bytes, and the limit is {limit}; use a shorter id or raise `OwnerSettings::request_id_bytes`"
                ));
                self.reply(client, error_response(id.token(), &error));
                false
            }
            Some(Ok(RpcMessage::Request { id, method, params })) => {
                self.client_request(Asker { client: client.clone(), id }, &method, params)
            }
            Some(Ok(RpcMessage::Notification { method, params })) => {
                self.client_notification(client, &method, params);
                false
            }
            Some(Ok(RpcMessage::Response { id, outcome })) => self.client_response(client, id, outcome),
            Some(Err(Malformed::Request(id, error))) => {
                self.reply(client, error_response(id.token(), &error));
                false
            }
            Some(Err(error)) => {
                tracing::debug!(session = %self.session, %error, "dropped a line of a client");
                false
            }
            Some(Ok(_)) => false,
        };
        let output = OwnerAction::Acknowledge { client: client.clone(), number };
        if self.state.end == before {
            self.actions.push(output);
        } else if needs_sync {
            self.actions.push(OwnerAction::Sync);
            self.acknowledged_synced.push_back(Waiting::new(self.state.end, output));
        } else {
            self.acknowledged_written.push_back(Waiting::new(self.state.end, output));
        }
    }

    /// Returns true if the records of the request have to survive a power cut.
    pub(super) fn client_request(&mut self, asker: Asker, method: &str, params: Option<&RawValue>) -> bool {
        let is_prompt = method == PromptRequest::METHOD;
        let meta = params.filter(|_| is_prompt).map(prompt_meta).unwrap_or_default();
        let operation = meta.operation.filter(|name| name.len() <= OPERATION_BYTES);
        if let Some(known) = operation.as_deref().and_then(|name| self.state.operations.get(name)) {
            match known.clone() {
                Operation::Running { call } => return self.join_call(call, asker),
                Operation::Ended { outcome, position } => {
                    let line = response(asker.id.token(), &outcome);
                    let output = OwnerAction::Reply { client: asker.client, line };
                    if position <= self.synced {
                        self.actions.push(output);
                    } else {
                        // A power cut could still replace the outcome by an interruption.
                        self.actions.push(OwnerAction::Sync);
                        self.acknowledged_synced.push_back(Waiting::new(self.state.end, output));
                    }
                }
            }
            return true;
        }
        let refusal = if is_prompt && self.has_turn() {
            let error = RpcError::invalid_request("a prompt is already running in this session");
            Some(error.coded("busy", true))
        } else if let Some(error) = self.lost_error().filter(|_| is_prompt) {
            Some(error)
        } else if let Err(error) = self.check_requests() {
            Some(error)
        } else if self.process == AgentProcess::Ended {
            self.check_restart().err()
        } else {
            None
        };
        if let Some(error) = refusal {
            self.reply(&asker.client, error_response(asker.id.token(), &error));
            return false;
        }
        let call = self.state.last_call + 1;
        let Some(frame) = raw_line(call_frame(raw(&call.to_string()).as_deref(), method, &params)) else {
            return false;
        };
        let client = asker.client.clone();
        let event = match is_prompt {
            true => HubEvent::Prompt { call, asker, operation },
            false => HubEvent::Call { call, asker },
        };
        let position = self.record(Some((Side::Client, &frame)), Some(event));
        self.send_to_agent(position, &frame);
        match self.process {
            AgentProcess::Ended => {
                self.process = AgentProcess::Starting { fresh: meta.fresh };
                // A viewer that prompts nothing decides no folders and servers.
                let client = Some(client).filter(|_| is_prompt);
                self.actions.push(OwnerAction::StartAgent { fresh: meta.fresh, client });
            }
            AgentProcess::Starting { fresh: false } if meta.fresh => {
                self.process = AgentProcess::Starting { fresh: true };
            }
            _ => {}
        }
        is_prompt
    }

    /// Adds a repetition of a running prompt to its call. Returns true if its record has to survive a power cut.
    fn join_call(&mut self, call: u64, asker: Asker) -> bool {
        if self.state.calls.get(&call).is_some_and(|open| open.askers.contains(&asker)) {
            return false;
        }
        if let Err(error) = self.check_requests() {
            self.reply(&asker.client, error_response(asker.id.token(), &error));
            return false;
        }
        self.record(None, Some(HubEvent::Joined { call, asker }));
        true
    }

    fn check_requests(&self) -> Result<(), RpcError> {
        let limit = self.settings.client_requests;
        let waiting: usize = self.state.calls.values().map(|call| call.askers.len()).sum();
        if waiting < limit {
            return Ok(());
        }
        Err(RpcError::internal(format!(
            "request limit reached ({limit} requests wait for the agent); retry later or raise `client_requests`"
        )))
    }

    pub(super) fn client_notification(
        &mut self,
        client: &ClientKey,
        method: &str,
        params: Option<&RawValue>,
    ) {
        match method {
            CancelNotification::METHOD => match params.and_then(session_id::<SessionId>) {
                Some(id) if child_position(&self.session, id.as_str()).is_some() => self.cancel_child(&id),
                // Some agents keep a cancellation, and end the next turn with it.
                _ if !self.has_turn() => {
                    tracing::debug!(session = %self.session, "dropped a cancellation without a turn");
                }
                _ => self.cancel_turn(),
            },
            CancelRequestNotification::METHOD => {
                let cancelled = params.and_then(|params| serde_json::from_str(params.get()).ok());
                let Some(CancelRequestNotification { request_id, .. }) = cancelled else { return };
                let asker = Asker { client: client.clone(), id: request_id };
                let call = self.state.calls.iter().find(|(_, call)| call.askers.contains(&asker));
                if let Some((&call, _)) = call {
                    self.notify_agent(method, &CancelRequestNotification::new(RequestId::from(call)));
                }
            }
            _ => self.notify_agent(method, &params),
        }
    }

    pub(super) fn notify_agent<P: serde::Serialize + ?Sized>(&mut self, method: &str, params: &P) {
        if self.process == AgentProcess::Ended {
            return;
        }
        let Some(frame) = raw_line(call_frame(None, method, params)) else { return };
        let limit = self.settings.client_requests;
        if self.process != AgentProcess::Running && self.to_agent.len() >= limit {
            tracing::warn!(session = %self.session, method, limit, "a notification was dropped: the agent is being started, and `client_requests` messages wait for it");
            return;
        }
        let position = self.record(Some((Side::Client, &frame)), None);
        self.send_to_agent(position, &frame);
    }

    /// Cancels the work of a child session that the running agent has named.
    fn cancel_child(&mut self, id: &SessionId) {
        let position = child_position(&self.session, id.as_str());
        let is_known = position.is_some_and(|position| self.state.children.agent_id(position).is_some());
        if is_known && self.process == AgentProcess::Running {
            self.notify_agent(CancelNotification::METHOD, &CancelNotification::new(id.clone()));
        }
    }

    /// Cancels the turn. A prompt that waits for the process is answered at once. An agent that does not end a cancelled turn
    /// is ended with a second cancellation, or when its time is over.
    pub(super) fn cancel_turn(&mut self) {
        let Some(call) = self.state.turn() else { return };
        if self.process != AgentProcess::Running {
            self.withdraw_call(call);
            return self.end_as_cancelled();
        }
        match self.cancelled {
            Some(cancelled) if cancelled.call == call => {
                if cancelled.at + self.settings.second_cancel <= self.now {
                    return self.end_cancelled_turn();
                }
            }
            _ => self.cancelled = Some(CancelledTurn { call, at: self.now }),
        }
        self.notify_agent(CancelNotification::METHOD, &CancelNotification::new(self.session.clone()));
        let questions: Vec<u64> = self.state.questions.keys().copied().collect();
        for question in questions {
            self.cancel_question(question);
        }
    }

    /// Ends the process of an agent that does not end a cancelled turn. The prompt is answered as cancelled.
    fn end_cancelled_turn(&mut self) {
        self.end_as_cancelled();
        self.count_process_end();
        let reason = "the agent did not end a turn that was cancelled, and its process was ended";
        self.end_restoring(reason);
    }

    /// Removes a request that waits for the process. The agent never receives it.
    pub(super) fn withdraw_call(&mut self, call: u64) {
        self.to_agent.retain(|waiting| {
            let OwnerAction::ToAgent(line) = &waiting.output else { return true };
            !matches!(parse(line), Some(RpcMessage::Request { id, .. }) if id == RequestId::from(call))
        });
    }

    /// Handles the response of a client. Returns true if its record has to survive a power cut.
    pub(super) fn client_response(
        &mut self,
        client: &ClientKey,
        id: &RawValue,
        outcome: ResponseOutcome<'_>,
    ) -> bool {
        let Some(position) = position_of(&self.session, id.get()) else { return false };
        if let Some(request) = self.state.host_requests.get(&position).filter(|it| it.client == *client) {
            let (agent_id, method) = (request.id.clone(), request.method.clone());
            let event = HubEvent::HostAnswer { request: position, client: None };
            let answer = readable(outcome);
            if let Ok(result) = &answer {
                self.note_terminal(client, &method, result);
            }
            self.answer_agent(&agent_id, answer.as_ref().map(|result| &**result), event);
            return false;
        }
        let Some(question) = self.state.questions.get_mut(&position) else { return false };
        match readable(outcome) {
            Ok(result) if question.kind.accepts(&result) => {
                self.answer_question(client, position, &result);
                true
            }
            Ok(_) => {
                tracing::debug!(session = %self.session, client = client.as_str(), "an answer does not fit its question");
                question.refused.insert(client.clone());
                self.refuse_unshown();
                false
            }
            Err(error) => {
                question.refused.insert(client.clone());
                let (id, kind) = (question.id.clone(), question.kind.clone());
                let refused = question.refused.clone();
                let mut able = self.clients.iter().filter(|(_, client)| client.abilities.show(&kind));
                if able.all(|(client, _)| refused.contains(client)) {
                    let event = HubEvent::Answered { question: position, by: None };
                    self.answer_agent(&id, Err(&error), event);
                }
                false
            }
        }
    }

    /// Answers an open question. The result is an answer to it.
    pub(super) fn answer_question(&mut self, client: &ClientKey, question: u64, result: &RawValue) {
        let Some(open) = self.state.questions.get(&question) else { return };
        let (id, decision) = (open.id.clone(), open.kind.decision(result));
        let client = client.clone();
        let event = HubEvent::Answered { question, by: Some(client.clone()) };
        if let Some(position) = self.answer_agent(&id, Ok(result), event) {
            self.sync_first(position);
        }
        self.actions.push(OwnerAction::Decided { client, question, decision });
    }

    /// Ends a question without an answer.
    pub(super) fn cancel_question(&mut self, position: u64) {
        let Some(question) = self.state.questions.get(&position) else { return };
        let (id, result) = (question.id.clone(), question.kind.cancelled());
        if let Ok(result) = result {
            self.answer_agent(&id, Ok(&result), HubEvent::Answered { question: position, by: None });
        }
    }

    /// Cancels the elicitations that no client can show, and the questions that all clients answered wrongly.
    pub(super) fn refuse_unshown(&mut self) {
        let clients = &self.clients;
        let is_hopeless = |question: &SharedQuestion| {
            let mut able =
                clients.iter().filter(|(_, client)| client.abilities.show(&question.kind)).peekable();
            let is_elicitation = !matches!(question.kind, SharedQuestionKind::Permission { .. });
            let is_shown = able.peek().is_some();
            (is_elicitation && !is_shown)
                || (is_shown && able.all(|(client, _)| question.refused.contains(client)))
        };
        let hopeless: Vec<u64> =
            self.state.questions.iter().filter(|(_, it)| is_hopeless(it)).map(|(at, _)| *at).collect();
        for position in hopeless {
            let question = self.state.questions.get(&position);
            let Some((id, result)) = question.map(|it| (it.id.clone(), it.kind.declined())) else { continue };
            if let Ok(result) = result {
                self.answer_agent(&id, Ok(&result), HubEvent::Answered { question: position, by: None });
            }
        }
    }
}

/// Returns the outcome of a client's response.
fn readable(outcome: ResponseOutcome<'_>) -> Result<Box<RawValue>, RpcError> {
    match outcome {
        ResponseOutcome::Result(result) => Ok(result.to_owned()),
        ResponseOutcome::Error(error) | ResponseOutcome::Missing(error) => Err(error),
        _ => Err(RpcError::internal("the response of the client has neither a result nor a valid error")),
    }
}

/// Limit on the name of an operation in bytes. A longer one is ignored.
const OPERATION_BYTES: usize = 128;

/// The member `duologue` in the `_meta` of a prompt.
#[derive(Default, serde::Deserialize)]
#[serde(default)]
struct PromptMeta {
    /// The name by which a repetition of the prompt is recognized.
    operation: Option<String>,
    /// True if the agent may begin without the conversation so far.
    fresh: bool,
}

fn prompt_meta(params: &RawValue) -> PromptMeta {
    #[derive(Default, serde::Deserialize)]
    #[serde(default)]
    struct Params {
        #[serde(rename = "_meta")]
        meta: Members,
    }
    let params: Params = serde_json::from_str(params.get()).unwrap_or_default();
    params.meta.get("duologue").unwrap_or_default()
}
