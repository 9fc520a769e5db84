//! The restoring of a session in a new process of its agent: resume or load, then set what differs, then go on.
//!
//! The picture of the clients counts ([`Picture`]). What the agent reports meanwhile is compared with it, and each value that
//! the agent does not confirm is set again. So a session never comes back in a mode in which it may do more than its clients
//! see.

use std::collections::BTreeSet;
use std::time::Duration;

use duologue_rpc::raw_message::{call_frame, response_frame};
use duologue_rpc::{ResponseOutcome, RpcMessage};
use duologue_schema::{
    CancelRequestNotification, Error as RpcError, ErrorCode, InitializeResponse, LoadSessionRequest,
    NewSessionRequest, Notification as _, Request as _, ResumeSessionRequest, SessionConfigId,
    SessionConfigKind, SessionConfigOption, SessionConfigOptionValue, SessionId, SessionModeId,
    SessionNotification, SessionUpdate,
};
use duologue_transcript::Side;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::replay::LateReplay;
use super::{AgentProcess, SessionOwner, raw, raw_line};
use crate::input::OwnerAction;
use crate::log_reader::session_id;
use crate::picture::{
    Choice, OpenedValues, Picture, ValueList, is_guard, options_of, update_of_picture, value_of,
};
use crate::record::HubEvent;
use crate::routing::{check_routing, is_of_transport};
use crate::state::{CONTEXT_LOST, RESTORE_FAILED, parse};

/// The most values that are set again in a new process.
const SETS: usize = 32;
/// The way out for a user whose agent has lost the conversation.
const FRESH: &str =
    "set `_meta.duologue.fresh` in the prompt (`duologue run --fresh`) to continue without the conversation";

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
    /// The lists whose values were set again, with or without success.
    set_lists: Vec<ValueList>,
    set_options: BTreeSet<SessionConfigId>,
    /// The values that the agent refused: those of lists, and of options that decide what it may do.
    lost: Vec<LostValue>,
    replay: LateReplay,
}

/// A request of the owner to the agent.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    Resume,
    Load,
    New,
    Set(Choice),
}

impl Step {
    fn method(&self) -> &'static str {
        match self {
            Step::Resume => ResumeSessionRequest::METHOD,
            Step::Load => LoadSessionRequest::METHOD,
            Step::New => NewSessionRequest::METHOD,
            Step::Set(choice) => choice.method(),
        }
    }

    /// Returns the id of the request, as JSON. The requests of clients have numbers.
    fn id(&self) -> String {
        format!("\"hub:{}\"", self.method())
    }
}

/// A mode, model or option that the agent did not take back.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LostValue {
    name: String,
    wanted: String,
    actual: String,
    /// The values that the agent has.
    available: Vec<String>,
    /// The option as clients see it. `None` for the value of a list.
    option: Option<SessionConfigOption>,
    /// The list of the value, or the one that the option stands for.
    list: Option<ValueList>,
}

impl LostValue {
    fn of_list(list: ValueList, wanted: &SessionModeId, agent: &Picture) -> Self {
        let values = agent.list(list).into_iter().flat_map(|values| &values.available_modes);
        LostValue {
            name: list.name().to_owned(),
            wanted: wanted.as_str().to_owned(),
            actual: agent.current(list).map_or("unknown", SessionModeId::as_str).to_owned(),
            available: values.map(|value| value.id.as_str().to_owned()).collect(),
            option: None,
            list: Some(list),
        }
    }

    fn of_option(wanted: &SessionConfigOption, agent: &Picture) -> Option<Self> {
        let actual = agent.options.iter().find(|option| option.id == wanted.id);
        let select = actual.and_then(|option| match &option.kind {
            SessionConfigKind::Select(select) => Some(select),
            _ => None,
        });
        let values = select.into_iter().flat_map(|select| select.options.values());
        Some(LostValue {
            name: wanted.id.as_str().to_owned(),
            wanted: shown(&value_of(wanted)?),
            actual: actual.and_then(value_of).as_ref().map_or("unknown".to_owned(), shown),
            available: values.map(|value| value.value.as_str().to_owned()).collect(),
            option: Some(wanted.clone()),
            list: ValueList::of(wanted),
        })
    }

    /// Returns true for the value of the list itself, which is no option.
    fn is_of(&self, list: ValueList) -> bool {
        self.option.is_none() && self.list == Some(list)
    }

    /// Returns true if clients go on seeing the option as before.
    fn keeps(&self, option: &SessionConfigOption) -> bool {
        let stands_for_it = self.option.is_none() && ValueList::of(option) == self.list;
        stands_for_it || self.name == option.id.as_str()
    }

    /// Returns true if a choice of a client decides the value.
    pub(super) fn is_chosen(&self, choice: &Choice, picture: &Picture) -> bool {
        let is_own = matches!(choice, Choice::Option { id, .. } if id.as_str() == self.name);
        is_own || (self.list.is_some() && picture.list_of(choice) == self.list)
    }
}

impl Restoring {
    /// Returns true if the value of a list can be set. An option that is set later can change it, so it is set twice.
    fn may_set(&self, list: ValueList) -> bool {
        let sets = self.set_lists.iter().filter(|set| **set == list).count();
        sets < 2 && !self.lost.iter().any(|lost| lost.is_of(list))
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
        let can_load = introduction.agent_capabilities.load_session;
        let first = first_step(introduction);
        self.can_restore = first.is_some();
        let Some(step) = first.or_else(|| fresh.then_some(Step::New)) else {
            return self.lose_context("the agent cannot load or resume sessions");
        };
        self.restoring = Some(Box::new(Restoring {
            params,
            can_load,
            step: step.clone(),
            since: self.now,
            agent: Picture::default(),
            names_options: false,
            set_lists: Vec::new(),
            set_options: BTreeSet::new(),
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
        let line = call_frame(raw(&step.id()).as_deref(), step.method(), params);
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
                let opened = OpenedValues::of(result.get().as_bytes());
                let begins_anew = restoring.step == Step::New;
                restoring.replay.restored();
                restoring.names_options |= opened.options.is_some();
                restoring.agent.open(opened);
                if begins_anew {
                    let Some(id) = session_id::<String>(result) else {
                        return self.end_restoring("the agent answered `session/new` without a `sessionId`");
                    };
                    self.record(None, Some(HubEvent::AgentSession { id: id.clone() }));
                    self.actions.push(OwnerAction::AgentSession(id));
                }
            }
            Step::Set(choice) => {
                let is_option = matches!(choice, Choice::Option { .. });
                restoring.names_options |= is_option && options_of(result).is_some();
                if !is_option || restoring.names_options {
                    restoring.agent.choose(choice, result);
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
                return self.lose_context(&text_of(error));
            }
            // The user gave up the conversation. A login is still needed.
            Step::Resume | Step::Load if fresh && error.code != ErrorCode::AUTH_REQUIRED => {
                tracing::info!(session = %self.session, %error, "the agent begins without the conversation");
                return self.open_again(Step::New);
            }
            Step::Resume | Step::Load => return self.fail_restoring(&not_restored(error)),
            Step::New => return self.fail_restoring(error),
            Step::Set(Choice::Listed(list, wanted)) => {
                let actual = restoring.agent.current(list);
                // An agent that names no mode and sets none is in its only one.
                if actual.is_some() || error.code != ErrorCode::METHOD_NOT_FOUND {
                    let lost = LostValue::of_list(list, &wanted, &restoring.agent);
                    restoring.lost.retain(|lost| !lost.is_of(list));
                    restoring.lost.push(lost);
                }
            }
            Step::Set(Choice::Option { id, .. }) => {
                let guard = picture.options.iter().find(|option| option.id == id && is_guard(option));
                restoring.lost.extend(guard.and_then(|guard| LostValue::of_option(guard, &restoring.agent)));
                tracing::warn!(session = %self.session, option = id.as_str(), %error, "the agent did not take an option back");
            }
        }
        self.set_next();
    }

    /// Sets the next value that the agent has not confirmed, or goes on if there is none.
    fn set_next(&mut self) {
        let Some(restoring) = &mut self.restoring else { return };
        let picture = &self.state.picture;
        let is_at_limit = restoring.set_options.len() >= SETS;
        for list in ValueList::ALL {
            let wanted = picture.current(list).filter(|_| restoring.may_set(list));
            if let Some(wanted) = wanted.filter(|_| restoring.agent.current(list) != wanted) {
                restoring.set_lists.push(list);
                let choice = Choice::Listed(list, wanted.clone());
                return self.set(choice);
            }
        }
        // The agent's order counts, because one choice can change the others.
        let listed = if restoring.names_options { &restoring.agent.options } else { &picture.options };
        let (guards, others): (Vec<_>, Vec<_>) = listed.iter().partition(|option| is_guard(option));
        let next = guards.into_iter().chain(others.into_iter().filter(|_| !is_at_limit)).find_map(|option| {
            let wanted = picture.value(&option.id)?;
            let is_new = !restoring.set_options.contains(&option.id);
            let is_confirmed = restoring.names_options && value_of(option).as_ref() == Some(&wanted);
            (is_new && !is_confirmed).then(|| (option.id.clone(), wanted))
        });
        let Some((id, value)) = next else {
            if is_at_limit {
                tracing::warn!(session = %self.session, limit = SETS, "the agent may have more values that differ than are set again");
            }
            return self.go_on();
        };
        restoring.set_options.insert(id.clone());
        self.set(Choice::Option { id, value });
    }

    fn set(&mut self, choice: Choice) {
        let params = choice.params(&self.session);
        self.ask_agent(Step::Set(choice), &params);
    }

    /// Ends the restoring. The clients learn what is different now, and the agent receives what waits.
    fn go_on(&mut self) {
        let Some(restoring) = self.restoring.take() else { return };
        let picture = &self.state.picture;
        let Restoring { mut agent, mut lost, replay, names_options, .. } = *restoring;
        lose_unconfirmed(picture, &agent, names_options, &mut lost);
        if !names_options {
            agent.options.clone_from(&picture.options);
        }
        for list in ValueList::ALL {
            if agent.list(list).is_none() || lost.iter().any(|lost| lost.is_of(list)) {
                *agent.list_mut(list) = picture.list(list).cloned();
            }
        }
        // A value that is lost stays in the picture until a client chooses.
        for option in &mut agent.options {
            if lost.iter().any(|lost| lost.keeps(option))
                && let Some(seen) = picture.options.iter().find(|seen| seen.id == option.id)
            {
                *option = seen.clone();
            }
        }
        self.record_changes(&agent);
        self.process = AgentProcess::Running;
        self.replay = Some(replay);
        self.lost = lost;
        if let Some(error) = self.lost_error() {
            self.refuse_prompts(&error);
        }
    }

    /// Returns the error for prompts, while the agent may be in another mode than the clients see.
    pub(super) fn lost_error(&self) -> Option<RpcError> {
        let LostValue { name, wanted, actual, available, .. } = self.lost.first()?;
        let text = format!(
            "the agent was started again and did not take back {name} `{wanted}` (it is in `{actual}`); choose a value of {name} before the next prompt"
        );
        let data = json!({"name": name, "wanted": wanted, "actual": actual, "available": available});
        Some(RpcError::internal(text).data(data).coded("state_lost", false))
    }

    /// Records the guards that no client has chosen, if the agent has listed others since. So the next process is compared with
    /// what the clients wanted.
    pub(super) fn keep_lost(&mut self) {
        let mut kept = self.state.picture.clone();
        for option in self.lost.iter().filter_map(|lost| lost.option.as_ref()) {
            kept.restore_option(option);
        }
        self.record_changes(&kept);
    }

    /// Records the updates that lead from the picture to another one.
    fn record_changes(&mut self, other: &Picture) {
        for update in self.state.picture.changes(other) {
            let notification = SessionNotification::new(self.session.clone(), update);
            if let Some(frame) = raw_line(call_frame(None, SessionNotification::METHOD, &notification)) {
                self.record(Some((Side::Agent, &frame)), None);
            }
        }
    }

    /// Answers the prompts that wait for the process. The agent never receives them.
    fn refuse_prompts(&mut self, error: &RpcError) {
        let prompts: Vec<u64> =
            self.state.calls.iter().filter(|(_, call)| call.is_prompt).map(|(call, _)| *call).collect();
        for call in prompts {
            self.withdraw_call(call);
            if let Some(frame) = raw_line(response_frame(&call.to_string(), Err(error))) {
                self.agent_response(&frame, &call.to_string());
            }
        }
    }

    /// Passes the error of an agent that does not restore the session on to those who wait, and ends its process.
    fn fail_restoring(&mut self, error: &RpcError) {
        let calls: Vec<String> = self.state.calls.keys().map(u64::to_string).collect();
        for call in calls {
            if let Some(frame) = raw_line(response_frame(&call, Err(error))) {
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

    /// Returns true for a response to a prompt by which the agent has lost the session, while a new process may restore it.
    /// The error of a file is none.
    pub(super) fn loses_session(&self, outcome: &ResponseOutcome<'_>) -> bool {
        let ResponseOutcome::Error(error) = outcome else { return false };
        let is_of_session = match error.data_member::<SessionId>("sessionId") {
            Some(named) => named == self.session,
            None => error.data.is_none(),
        };
        let may_restart = self.can_restore && !self.has_lost_session && !self.settings.is_process_shared;
        error.code == ErrorCode::RESOURCE_NOT_FOUND && is_of_session && may_restart
    }

    /// Ends the process of an agent that has lost the session. The next prompt restores it in another one.
    pub(super) fn lose_session(&mut self) {
        self.has_lost_session = true;
        self.count_process_end();
        self.end_restoring(
            "the agent no longer knew the session, and its process was ended; send the prompt again, which restores the session in a new process",
        );
    }

    fn lose_context(&mut self, cause: &str) {
        let reason =
            format!("the agent no longer knows the conversation ({cause}); begin a new session, or {FRESH}");
        self.actions.push(OwnerAction::EndAgent);
        self.agent_ended(CONTEXT_LOST, &reason);
    }
}

/// Returns the request with which an agent restores a session, if it can.
pub(super) fn first_step(introduction: &InitializeResponse) -> Option<Step> {
    let capabilities = &introduction.agent_capabilities;
    let resumes = capabilities.session_capabilities.resume.is_some();
    resumes.then_some(Step::Resume).or_else(|| capabilities.load_session.then_some(Step::Load))
}

/// Returns the error for those who wait for an agent that has not restored the session. Its code does not say if another attempt
/// helps, unless a login is missing.
fn not_restored(error: &RpcError) -> RpcError {
    let text = text_of(error);
    let mut named = error.clone();
    if error.code == ErrorCode::AUTH_REQUIRED {
        named.message =
            format!("the agent did not restore the session: {text}; log in, and send the prompt again")
                .into();
        return named;
    }
    let reason = format!(
        "the agent did not restore the session: {text}; send the prompt again, or, if the agent has lost the conversation, {FRESH}"
    );
    named.message = reason.into();
    named.data(json!({ "agent": error.data })).coded(RESTORE_FAILED, true)
}

/// Returns the message of an agent's error, with the text in its data.
fn text_of(error: &RpcError) -> String {
    /// Limit on the text in characters. The way out stands behind it.
    const CHARS: usize = 300;
    let text = error.data.as_ref().and_then(|data| data.parse::<String>().ok());
    let text = text.or_else(|| error.data_member("details")).filter(|text| *text != error.message);
    let text = text.map_or(error.message.to_string(), |text| format!("{}: {text}", error.message));
    text.chars().take(CHARS).collect()
}

/// Adds the values of lists and the guards that the agent has otherwise, although it has refused none of them.
fn lose_unconfirmed(picture: &Picture, agent: &Picture, names_options: bool, lost: &mut Vec<LostValue>) {
    for list in ValueList::ALL {
        let (wanted, actual) = (picture.current(list), agent.current(list));
        // An option that stands for the list may have been set behind it.
        lost.retain(|lost| !lost.is_of(list) || actual != wanted);
        if let Some(wanted) = wanted.filter(|_| actual.is_some() && actual != wanted)
            && !lost.iter().any(|lost| lost.is_of(list))
        {
            lost.push(LostValue::of_list(list, wanted, agent));
        }
    }
    for guard in picture.options.iter().filter(|option| names_options && is_guard(option)) {
        let is_other = agent.value(&guard.id).is_some_and(|actual| value_of(guard) != Some(actual));
        if is_other && !lost.iter().any(|lost| lost.name == guard.id.as_str()) {
            lost.extend(LostValue::of_option(guard, agent));
        }
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
