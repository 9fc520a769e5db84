//! The restoring of a session in a new process of its agent: resume or load, then set what differs, then go on.
//!
//! The picture of the clients counts ([`Picture`]). What the agent reports meanwhile is compared with it, and each value that
//! the agent does not confirm is set again. So a session never comes back in a mode in which it may do more than its clients
//! see.

use std::collections::BTreeSet;
use std::time::Duration;

use duologue_rpc::raw_message::{call_line, response_line};
use duologue_rpc::{ResponseOutcome, RpcMessage};
use duologue_schema::{
    CancelRequestNotification, ConfigOptionUpdate, Error as RpcError, ErrorCode, InitializeResponse, Json,
    LoadSessionRequest, LoadSessionResponse, NewSessionRequest, Notification as _, Request as _,
    ResumeSessionRequest, SessionConfigId, SessionConfigOptionCategory, SessionConfigOptionValue,
    SessionModeId, SessionNotification, SessionUpdate, SetSessionConfigOptionRequest, SetSessionModeRequest,
};
use duologue_transcript::Side;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::replay::LateReplay;
use super::{AgentProcess, SessionOwner, raw, raw_line};
use crate::input::OwnerAction;
use crate::picture::{Choice, Picture, is_guard, options_of, update_of_picture, value_of};
use crate::record::HubEvent;
use crate::routing::{check_routing, is_of_transport};
use crate::state::parse;

/// The most values that are set again in a new process.
const SETS: usize = 32;

/// A process that restores the session.
#[derive(Debug)]
pub(super) struct Restoring {
    /// The params with which the session is opened.
    params: Value,
    can_load: bool,
    /// The request of the owner that waits for its response.
    step: Step,
    /// The time since which it waits.
    pub(super) since: Duration,
    /// The values that the agent has reported so far.
    agent: Picture,
    /// True if a response has named the options.
    names_options: bool,
    /// True if the mode was set again, with or without success.
    has_set_mode: bool,
    set_options: BTreeSet<SessionConfigId>,
    sets: usize,
    /// The values that the agent refused and that decide what it may do.
    lost: Vec<LostValue>,
    replay: LateReplay,
}

/// A request of the owner to the agent.
#[derive(Clone, Debug, PartialEq)]
enum Step {
    Resume,
    Load,
    New,
    Mode(SessionModeId),
    Option(SessionConfigId),
}

impl Step {
    fn method(&self) -> &'static str {
        match self {
            Step::Resume => ResumeSessionRequest::METHOD,
            Step::Load => LoadSessionRequest::METHOD,
            Step::New => NewSessionRequest::METHOD,
            Step::Mode(_) => SetSessionModeRequest::METHOD,
            Step::Option(_) => SetSessionConfigOptionRequest::METHOD,
        }
    }

    /// Returns the id of the request, as JSON. The requests of clients have numbers.
    fn id(&self) -> String {
        format!("\"hub:{}\"", self.method())
    }
}

/// A mode or option that the agent did not take back.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LostValue {
    name: String,
    wanted: String,
    actual: String,
    is_mode: bool,
}

impl LostValue {
    /// Returns true if a choice of a client decides the value.
    pub(super) fn is_chosen(&self, choice: &Choice, picture: &Picture) -> bool {
        let is_own = matches!(choice, Choice::Option { id, .. } if id.as_str() == self.name);
        is_own || (self.is_mode && picture.is_of_mode(choice))
    }
}

impl SessionOwner {
    /// Restores the session in a process that has been started and knows the hub.
    pub(super) fn agent_ready(
        &mut self,
        introduction: &InitializeResponse,
        params: Value,
        conversation: Vec<SessionUpdate>,
    ) {
        let AgentProcess::Starting { fresh } = self.process else { return };
        let capabilities = &introduction.agent_capabilities;
        let can_load = capabilities.load_session;
        let step = if capabilities.session_capabilities.resume.is_some() {
            Step::Resume
        } else if can_load {
            Step::Load
        } else if fresh {
            Step::New
        } else {
            return self.lose_context();
        };
        self.restoring = Some(Box::new(Restoring {
            params,
            can_load,
            step: step.clone(),
            since: self.now,
            agent: Picture::default(),
            names_options: false,
            has_set_mode: false,
            set_options: BTreeSet::new(),
            sets: 0,
            lost: Vec::new(),
            replay: LateReplay::new(conversation),
        }));
        self.open_again(step);
    }

    /// Requests the session from the agent.
    fn open_again(&mut self, step: Step) {
        let Some(restoring) = &self.restoring else { return };
        let mut params = restoring.params.clone();
        if let Some(params) = params.as_object_mut() {
            params.entry("mcpServers").or_insert_with(|| json!([]));
            match step {
                Step::New => _ = params.remove("sessionId"),
                _ => _ = params.insert("sessionId".to_owned(), json!(self.session)),
            }
        }
        self.ask_agent(step, &params);
    }

    fn ask_agent<P: Serialize>(&mut self, step: Step, params: &P) {
        let Some(restoring) = &mut self.restoring else { return };
        (restoring.step, restoring.since) = (step.clone(), self.now);
        let line = call_line(raw(&step.id()).as_deref(), step.method(), params);
        if let Some(line) = raw_line(line) {
            self.actions.push(OwnerAction::ToAgent(line.get().into()));
        }
    }

    /// Returns true while the agent begins a session whose id is not known yet. Its messages wait for it.
    #[must_use]
    pub(crate) fn begins_anew(&self) -> bool {
        self.restoring.as_ref().is_some_and(|restoring| restoring.step == Step::New)
    }

    /// Handles a message of an agent that restores the session.
    pub(super) fn receive_while_restoring(&mut self, line: &[u8]) {
        let Some(restoring) = &mut self.restoring else { return };
        let Ok(frame) = serde_json::from_slice::<&RawValue>(line.trim_ascii()) else { return };
        match parse(line) {
            Some(RpcMessage::Response { id, outcome }) if id.get() == restoring.step.id() => match outcome {
                ResponseOutcome::Result(result) => self.restored(result),
                ResponseOutcome::Error(error) | ResponseOutcome::Missing(error) => {
                    self.refused_to_restore(&error);
                }
                _ => self.refused_to_restore(&RpcError::internal("the response is unreadable")),
            },
            Some(RpcMessage::Notification { method, params }) => {
                if method == CancelRequestNotification::METHOD {
                    return self.agent_cancels(params);
                }
                if is_of_transport(&method) {
                    return;
                }
                match update_of_picture(&self.session, line) {
                    Some(update) => {
                        restoring.names_options |= matches!(update, SessionUpdate::ConfigOptionUpdate(_));
                        restoring.agent.report(&update);
                    }
                    // The conversation is in the log. What the agent knows of it may end anywhere.
                    None if restoring.replay.repeats(&self.session, line) == Some(false) => {
                        restoring.replay = LateReplay::default();
                    }
                    None => {}
                }
            }
            // The clients answer as at any other time, and the agent does not wait for nothing.
            Some(RpcMessage::Request { id, method, params }) => {
                match check_routing(params).and_then(|()| self.with_children(line)) {
                    Ok(Some(line)) => self.receive_while_restoring(&line),
                    Ok(None) => self.agent_request(frame, &id, &method, params.map_or("{}", RawValue::get)),
                    Err(error) => self.refuse_agent(frame, &id, &error),
                }
            }
            _ => {}
        }
    }

    /// Handles the result of the request that waits.
    fn restored(&mut self, result: &RawValue) {
        let Some(restoring) = &mut self.restoring else { return };
        match restoring.step.clone() {
            Step::Resume | Step::Load | Step::New => {
                let opened: LoadSessionResponse = serde_json::from_str(result.get()).unwrap_or_default();
                let begins_anew = restoring.step == Step::New;
                restoring.replay.restored();
                if let Some(options) = opened.config_options {
                    restoring.names_options = true;
                    restoring.agent.report(&ConfigOptionUpdate::new(options).into());
                }
                if opened.modes.is_some() {
                    restoring.agent.modes = opened.modes;
                }
                if begins_anew {
                    let id = duologue_rpc::raw_message::member_text(result.get().as_bytes(), "sessionId");
                    let Some(id) = id.map(std::borrow::Cow::into_owned) else {
                        return self.end_restoring("the agent answered `session/new` without a `sessionId`");
                    };
                    self.record(None, Some(HubEvent::AgentSession { id: id.clone() }));
                    self.actions.push(OwnerAction::AgentSession(id));
                }
            }
            Step::Mode(mode) => restoring.agent.choose(Choice::Mode(mode), result),
            Step::Option(id) => {
                restoring.names_options |= options_of(result).is_some();
                if let Some(value) = self.state.picture.value(&id).filter(|_| restoring.names_options) {
                    restoring.agent.choose(Choice::Option { id, value }, result);
                }
            }
        }
        self.set_next();
    }

    /// Handles the error of the request that waits.
    fn refused_to_restore(&mut self, error: &RpcError) {
        let Some(restoring) = &mut self.restoring else { return };
        let AgentProcess::Starting { fresh } = self.process else { return };
        let picture = &self.state.picture;
        match restoring.step.clone() {
            Step::Resume if error.code == ErrorCode::METHOD_NOT_FOUND && restoring.can_load => {
                return self.open_again(Step::Load);
            }
            Step::Resume | Step::Load if error.code == ErrorCode::RESOURCE_NOT_FOUND && !fresh => {
                tracing::info!(session = %self.session, %error, "the agent has lost the conversation");
                return self.lose_context();
            }
            // The user gave up the conversation. A login is still needed.
            Step::Resume | Step::Load if fresh && error.code != ErrorCode::AUTH_REQUIRED => {
                tracing::info!(session = %self.session, %error, "the agent begins without the conversation");
                return self.open_again(Step::New);
            }
            Step::Resume | Step::Load | Step::New => return self.fail_restoring(error),
            Step::Mode(wanted) => {
                let actual = restoring.agent.mode();
                // An agent that names no mode and sets none is in its only one.
                if actual.is_some() || error.code != ErrorCode::METHOD_NOT_FOUND {
                    let actual = actual.map_or("unknown", SessionModeId::as_str).to_owned();
                    let wanted = wanted.as_str().to_owned();
                    restoring.lost.push(LostValue { name: "mode".to_owned(), wanted, actual, is_mode: true });
                }
            }
            Step::Option(id) => {
                let guard = picture.options.iter().find(|option| option.id == id && is_guard(option));
                if let Some((guard, wanted)) = guard.and_then(|guard| Some((guard, value_of(guard)?))) {
                    let is_mode = matches!(guard.category, Some(SessionConfigOptionCategory::Mode));
                    let actual = restoring.agent.value(&id);
                    let actual = actual.as_ref().map_or("unknown".to_owned(), shown);
                    let name = id.as_str().to_owned();
                    restoring.lost.push(LostValue { name, wanted: shown(&wanted), actual, is_mode });
                }
                tracing::warn!(session = %self.session, option = id.as_str(), %error, "the agent did not take an option back");
            }
        }
        self.set_next();
    }

    /// Sets the next value that the agent has not confirmed, or goes on if there is none.
    fn set_next(&mut self) {
        let Some(restoring) = &mut self.restoring else { return };
        let picture = &self.state.picture;
        if restoring.sets >= SETS {
            tracing::warn!(session = %self.session, limit = SETS, "the agent has more values that differ than are set again");
            return self.go_on();
        }
        if let Some(mode) = picture.mode().filter(|_| !std::mem::replace(&mut restoring.has_set_mode, true))
            && restoring.agent.mode() != Some(mode)
        {
            restoring.sets += 1;
            let request = SetSessionModeRequest::new(self.session.clone(), mode.clone());
            return self.ask_agent(Step::Mode(mode.clone()), &request);
        }
        // The agent's order counts, because one choice can change the others.
        let listed = if restoring.names_options { &restoring.agent.options } else { &picture.options };
        let next = listed.iter().find_map(|option| {
            let wanted = picture.value(&option.id)?;
            let is_new = !restoring.set_options.contains(&option.id);
            let is_confirmed = restoring.names_options && value_of(option).as_ref() == Some(&wanted);
            (is_new && !is_confirmed).then(|| (option.id.clone(), wanted))
        });
        let Some((id, value)) = next else { return self.go_on() };
        restoring.sets += 1;
        restoring.set_options.insert(id.clone());
        let request = SetSessionConfigOptionRequest::new(self.session.clone(), id.clone(), value);
        self.ask_agent(Step::Option(id), &request);
    }

    /// Ends the restoring. The clients learn what is different now, and the agent receives what waits.
    fn go_on(&mut self) {
        let Some(restoring) = self.restoring.take() else { return };
        let Restoring { mut agent, lost, replay, names_options, .. } = *restoring;
        let picture = &self.state.picture;
        if !names_options {
            agent.options.clone_from(&picture.options);
        }
        if agent.modes.is_none() || lost.iter().any(|lost| lost.name == "mode") {
            agent.modes.clone_from(&picture.modes);
        }
        // A guard that is lost stays in the picture until a client chooses.
        for option in &mut agent.options {
            if lost.iter().any(|lost| lost.name == option.id.as_str())
                && let Some(seen) = picture.options.iter().find(|seen| seen.id == option.id)
            {
                *option = seen.clone();
            }
        }
        for update in picture.changes(&agent) {
            let notification = SessionNotification::new(self.session.clone(), update);
            if let Some(frame) = raw_line(call_line(None, SessionNotification::METHOD, &notification)) {
                self.record(Some((Side::Agent, &frame)), None);
            }
        }
        self.process = AgentProcess::Running;
        self.replay = Some(replay);
        self.lost = lost;
        if let Some(error) = self.lost_error() {
            self.refuse_prompts(&error);
        }
    }

    /// Returns the error for prompts, while the agent may be in another mode than the clients see.
    pub(super) fn lost_error(&self) -> Option<RpcError> {
        let LostValue { name, wanted, actual, .. } = self.lost.first()?;
        let text = format!(
            "the agent was started again and did not take back {name} `{wanted}` (it is in `{actual}`); choose a value of {name} before the next prompt"
        );
        let data = json!({"code": "state_lost", "retryable": false, "name": name, "wanted": wanted, "actual": actual});
        Some(RpcError::internal(text).data(Json::from(data)))
    }

    /// Answers the prompts that wait for the process. The agent never receives them.
    fn refuse_prompts(&mut self, error: &RpcError) {
        let prompts: Vec<u64> =
            self.state.calls.iter().filter(|(_, call)| call.is_prompt).map(|(call, _)| *call).collect();
        for call in prompts {
            self.withdraw_call(call);
            if let Some(frame) = raw_line(response_line(&call.to_string(), Err(error))) {
                self.agent_response(&frame, &call.to_string());
            }
        }
    }

    /// Passes the error of an agent that does not restore the session on to those who wait, and ends its process.
    fn fail_restoring(&mut self, error: &RpcError) {
        let calls: Vec<String> = self.state.calls.keys().map(u64::to_string).collect();
        for call in calls {
            if let Some(frame) = raw_line(response_line(&call, Err(error))) {
                self.agent_response(&frame, &call);
            }
        }
        self.end_restoring(&error.message.clone());
    }

    /// Ends the process of an agent that cannot restore the session.
    pub(super) fn end_restoring(&mut self, reason: &str) {
        self.actions.push(OwnerAction::EndAgent);
        self.agent_ended("interrupted", reason);
    }

    fn lose_context(&mut self) {
        self.actions.push(OwnerAction::EndAgent);
        self.context_lost();
    }
}

/// Returns a value for the user.
fn shown(value: &SessionConfigOptionValue) -> String {
    match value {
        SessionConfigOptionValue::Boolean(value) => value.to_string(),
        SessionConfigOptionValue::ValueId(value) => value.as_str().to_owned(),
        _ => "unknown".to_owned(),
    }
}
