//! The modes, models, options and commands of a session, as its clients see them.

use std::collections::BTreeMap;

use duologue_rpc::raw_message::{member, member_text};
use duologue_rpc::{ResponseOutcome, RpcMessage};
use duologue_schema::{
    AvailableCommand, AvailableCommandsUpdate, ConfigOptionUpdate, CurrentModeUpdate, LoadSessionResponse,
    Notification as _, Request as _, SessionConfigId, SessionConfigKind, SessionConfigOption,
    SessionConfigOptionCategory, SessionConfigOptionValue, SessionId, SessionModeId, SessionModeState,
    SessionNotification, SessionUpdate, SetSessionConfigOptionRequest, SetSessionModeRequest,
};
use duologue_transcript::Side;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::record::{HubEvent, LogEntry};
use crate::state::parse;

/// The method by which a client chooses a model. It is of earlier drafts of the protocol.
pub(crate) const SET_MODEL: &str = "session/set_model";
/// The names of the members of models, and those of the members of modes.
const MODELS: [&str; 3] = ["currentModelId", "availableModels", "modelId"];
const MODES: [&str; 3] = ["currentModeId", "availableModes", "id"];

/// A list of values beside the options, of which one is the current one. An option whose category has its name stands for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ValueList {
    Mode,
    Model,
}

impl ValueList {
    pub(crate) const ALL: [ValueList; 2] = [ValueList::Mode, ValueList::Model];

    /// Returns the list that an option stands for.
    pub(crate) fn of(option: &SessionConfigOption) -> Option<Self> {
        let category = option.category.as_ref()?.as_str();
        Self::ALL.into_iter().find(|list| list.name() == category)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            ValueList::Mode => "mode",
            ValueList::Model => "model",
        }
    }

    /// Returns the method that chooses a value, and the member of its params that names the value.
    fn request(self) -> (&'static str, &'static str) {
        match self {
            ValueList::Mode => (SetSessionModeRequest::METHOD, "modeId"),
            ValueList::Model => (SET_MODEL, "modelId"),
        }
    }
}

/// The values in the result of a request that opens a session.
#[derive(Default)]
pub(crate) struct OpenedValues {
    modes: Option<SessionModeState>,
    models: Option<SessionModeState>,
    /// `None` if the agent has named no options.
    pub(crate) options: Option<Vec<SessionConfigOption>>,
}

impl OpenedValues {
    pub(crate) fn of(result: &[u8]) -> Self {
        let opened: LoadSessionResponse = serde_json::from_slice(result).unwrap_or_default();
        let models =
            member(result, "models").and_then(|models| serde_json::from_slice(result.get(models)?).ok());
        let models = models.and_then(|models| serde_json::from_value(renamed(models, MODELS, MODES)).ok());
        OpenedValues { modes: opened.modes, models, options: opened.config_options }
    }
}

/// The values that clients chose or the agent reported. The log determines them.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Picture {
    pub(crate) modes: Option<SessionModeState>,
    /// The models, in the form of modes.
    models: Option<SessionModeState>,
    pub(crate) options: Vec<SessionConfigOption>,
    pub(crate) commands: Option<Vec<AvailableCommand>>,
    /// The choices of clients that wait for their responses, by the number of the call.
    choices: BTreeMap<u64, Choice>,
}

/// A value that a client chooses.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Choice {
    Listed(ValueList, SessionModeId),
    Option { id: SessionConfigId, value: SessionConfigOptionValue },
}

impl Choice {
    /// Returns the choice in a request of a client, if it is one.
    fn of(request: &RawValue) -> Option<Self> {
        let RpcMessage::Request { method, params: Some(params), .. } = parse(request.get().as_bytes())?
        else {
            return None;
        };
        if method == SetSessionConfigOptionRequest::METHOD {
            let request: SetSessionConfigOptionRequest = serde_json::from_str(params.get()).ok()?;
            return Some(Choice::Option { id: request.config_id, value: request.value });
        }
        let list = ValueList::ALL.into_iter().find(|list| list.request().0 == method)?;
        let value = member_text(params.get().as_bytes(), list.request().1)?;
        Some(Choice::Listed(list, value.as_ref().into()))
    }

    /// Returns the method of the request that makes the choice.
    pub(crate) fn method(&self) -> &'static str {
        match self {
            Choice::Listed(list, _) => list.request().0,
            Choice::Option { .. } => SetSessionConfigOptionRequest::METHOD,
        }
    }

    /// Returns the params of the request that makes the choice.
    pub(crate) fn params(&self, session: &SessionId) -> Value {
        match self {
            Choice::Listed(list, value) => json!({ "sessionId": session, list.request().1: value }),
            Choice::Option { id, value } => {
                json!(SetSessionConfigOptionRequest::new(session.clone(), id.clone(), value.clone()))
            }
        }
    }
}

impl Picture {
    /// Creates the picture of an agent from its response to a request that opens a session.
    pub(crate) fn new(opened: OpenedValues) -> Self {
        let mut picture = Picture::default();
        picture.open(opened);
        picture
    }

    /// Applies the next record of the log.
    pub(crate) fn apply(&mut self, session: &SessionId, entry: &LogEntry<'_>) {
        match (&entry.event, entry.frame) {
            (Some(HubEvent::Call { call, .. }), Some((_, frame))) => {
                if let Some(choice) = Choice::of(frame) {
                    self.choices.insert(*call, choice);
                }
            }
            (Some(HubEvent::Answer { call, .. }), Some((_, frame))) => {
                if let Some(choice) = self.choices.remove(call) {
                    self.answered(choice, frame);
                }
            }
            (Some(HubEvent::Interrupted { call, .. }), _) => _ = self.choices.remove(call),
            (None, Some((Side::Agent, frame))) => {
                if let Some(update) = update_of_picture(session, frame.get().as_bytes()) {
                    self.report(&update);
                } else if let Some(opened) = opening(frame) {
                    *self = Picture::new(opened);
                }
            }
            _ => {}
        }
    }

    /// Returns the choice of a call that has no response yet.
    pub(crate) fn choice(&self, call: u64) -> Option<&Choice> {
        self.choices.get(&call)
    }

    /// Applies the values of a response that opens the session.
    pub(crate) fn open(&mut self, opened: OpenedValues) {
        let OpenedValues { modes, models, options } = opened;
        if let Some(options) = options {
            self.set_options(options);
        }
        self.modes = modes.or(self.modes.take());
        self.models = models.or(self.models.take());
    }

    /// Applies an update of the agent. Others than those of modes, options and commands have no effect.
    pub(crate) fn report(&mut self, update: &SessionUpdate) {
        match update {
            SessionUpdate::CurrentModeUpdate(update) => {
                self.set_listed(ValueList::Mode, &update.current_mode_id);
            }
            SessionUpdate::ConfigOptionUpdate(update) => {
                self.set_options(update.config_options.clone());
            }
            SessionUpdate::AvailableCommandsUpdate(update) => {
                self.commands = Some(update.available_commands.clone());
            }
            _ => {}
        }
    }

    /// Applies the response to the choice of a client.
    fn answered(&mut self, choice: Choice, response: &RawValue) {
        let Some(RpcMessage::Response { outcome: ResponseOutcome::Result(result), .. }) =
            parse(response.get().as_bytes())
        else {
            return;
        };
        self.choose(choice, result);
    }

    /// Applies a choice that the agent has accepted with a result.
    pub(crate) fn choose(&mut self, choice: Choice, result: &RawValue) {
        match choice {
            Choice::Listed(list, value) => self.set_listed(list, &value),
            Choice::Option { id, value } => match options_of(result) {
                Some(options) => self.set_options(options),
                // Some agents answer without the list.
                None => {
                    let mut options = self.options.clone();
                    if let Some(option) = options.iter_mut().find(|option| option.id == id) {
                        option.set_value(&value);
                    }
                    self.set_options(options);
                }
            },
        }
    }

    /// Sets the current value of a list, and that of an option that stands for it.
    fn set_listed(&mut self, list: ValueList, value: &SessionModeId) {
        match self.list_mut(list) {
            Some(values) => values.current_mode_id.clone_from(value),
            // It is not listed, and is set again like one that is.
            values => *values = Some(SessionModeState::new(value.clone(), Vec::new())),
        }
        let of_option = SessionConfigOptionValue::from(value.as_str());
        for option in self.options.iter_mut().filter(|option| ValueList::of(option) == Some(list)) {
            if option.to_modes().is_some_and(|values| has(&values, value.as_str())) {
                option.set_value(&of_option);
            }
        }
    }

    /// Sets the options, and the values of the lists that they stand for.
    fn set_options(&mut self, options: Vec<SessionConfigOption>) {
        self.options = options;
        for list in ValueList::ALL {
            let option = self.options.iter().find(|option| ValueList::of(option) == Some(list));
            if let (Some(SessionConfigOptionValue::ValueId(chosen)), Some(values)) =
                (option.and_then(value_of), self.list_mut(list))
                && has(values, chosen.as_str())
            {
                values.current_mode_id = chosen.as_str().into();
            }
        }
    }

    /// Returns a list with its current value.
    pub(crate) fn list(&self, list: ValueList) -> Option<&SessionModeState> {
        match list {
            ValueList::Mode => self.modes.as_ref(),
            ValueList::Model => self.models.as_ref(),
        }
    }

    pub(crate) fn list_mut(&mut self, list: ValueList) -> &mut Option<SessionModeState> {
        match list {
            ValueList::Mode => &mut self.modes,
            ValueList::Model => &mut self.models,
        }
    }

    /// Returns the current value of a list.
    pub(crate) fn current(&self, list: ValueList) -> Option<&SessionModeId> {
        self.list(list).map(|values| &values.current_mode_id)
    }

    /// Returns the modes, models and options as members of a response that opens the session. Without a list there is nothing to
    /// choose from.
    pub(crate) fn members(self) -> serde_json::Result<Value> {
        let is_listed = |values: &SessionModeState| !values.available_modes.is_empty();
        let mut response = LoadSessionResponse::new();
        response.modes = self.modes.filter(is_listed);
        response.config_options = Some(self.options).filter(|options| !options.is_empty());
        let mut members = serde_json::to_value(response)?;
        if let Some(models) = self.models.filter(is_listed) {
            members["models"] = renamed(serde_json::to_value(models)?, MODES, MODELS);
        }
        Ok(members)
    }

    /// Returns the value of an option.
    pub(crate) fn value(&self, id: &SessionConfigId) -> Option<SessionConfigOptionValue> {
        self.options.iter().find(|option| option.id == *id).and_then(value_of)
    }

    /// Sets the value of an option as it was seen before.
    pub(crate) fn restore_option(&mut self, seen: &SessionConfigOption) {
        if let Some(option) = self.options.iter_mut().find(|option| option.id == seen.id) {
            *option = seen.clone();
        }
    }

    /// Returns the list that a choice is of, also by the option that stands for it.
    pub(crate) fn list_of(&self, choice: &Choice) -> Option<ValueList> {
        match choice {
            Choice::Listed(list, _) => Some(*list),
            Choice::Option { id, .. } => {
                self.options.iter().filter(|option| option.id == *id).find_map(ValueList::of)
            }
        }
    }

    /// Returns the updates of a client that has not made a choice.
    pub(crate) fn updates_of(&self, choice: &Choice) -> Vec<SessionUpdate> {
        let list = self.list_of(choice);
        let mode = self.current(ValueList::Mode).filter(|_| list == Some(ValueList::Mode));
        let mode = mode.map(|mode| SessionUpdate::CurrentModeUpdate(CurrentModeUpdate::new(mode.clone())));
        let is_of_option = matches!(choice, Choice::Option { .. })
            || self.options.iter().any(|option| ValueList::of(option) == list && list.is_some());
        let options = is_of_option
            .then(|| SessionUpdate::ConfigOptionUpdate(ConfigOptionUpdate::new(self.options.clone())));
        mode.into_iter().chain(options).collect()
    }

    /// Returns the updates that lead from this picture to another one.
    pub(crate) fn changes(&self, other: &Picture) -> Vec<SessionUpdate> {
        let mut changes = Vec::new();
        let mode = other.current(ValueList::Mode);
        if let Some(mode) = mode.filter(|_| self.current(ValueList::Mode) != mode) {
            changes.push(SessionUpdate::CurrentModeUpdate(CurrentModeUpdate::new(mode.clone())));
        }
        if self.options != other.options {
            let update = ConfigOptionUpdate::new(other.options.clone());
            changes.push(SessionUpdate::ConfigOptionUpdate(update));
        }
        if let Some(commands) = other.commands.as_ref().filter(|_| self.commands != other.commands) {
            let update = AvailableCommandsUpdate::new(commands.clone());
            changes.push(SessionUpdate::AvailableCommandsUpdate(update));
        }
        changes
    }
}

fn has(list: &SessionModeState, value: &str) -> bool {
    list.available_modes.iter().any(|listed| listed.id.as_str() == value)
}

/// Renames the members of modes or models.
fn renamed(value: Value, from: [&str; 3], to: [&str; 3]) -> Value {
    match value {
        Value::Array(items) => items.into_iter().map(|item| renamed(item, from, to)).collect(),
        Value::Object(members) => {
            let member = |(name, value): (String, Value)| {
                if name == "_meta" {
                    return (name, value);
                }
                let new = from.into_iter().zip(to).find(|(from, _)| *from == name);
                (new.map_or(name, |(_, to)| to.to_owned()), renamed(value, from, to))
            };
            members.into_iter().map(member).collect()
        }
        value => value,
    }
}

/// Returns true for an option that decides what the agent may do without a question.
pub(crate) fn is_guard(option: &SessionConfigOption) -> bool {
    let category = option.category.as_ref().map(SessionConfigOptionCategory::as_str);
    category.is_some_and(|category| matches!(category, "mode" | "permission" | "_permission"))
}

/// Returns the value of an option.
pub(crate) fn value_of(option: &SessionConfigOption) -> Option<SessionConfigOptionValue> {
    match &option.kind {
        SessionConfigKind::Select(select) => {
            Some(SessionConfigOptionValue::ValueId(select.current_value.clone()))
        }
        SessionConfigKind::Boolean(boolean) => Some(SessionConfigOptionValue::Boolean(boolean.current_value)),
        _ => None,
    }
}

/// Returns the options in the result of a choice, if it has them.
pub(crate) fn options_of(result: &RawValue) -> Option<Vec<SessionConfigOption>> {
    #[derive(Deserialize)]
    struct Options {
        #[serde(rename = "configOptions")]
        options: Option<Vec<serde_json::Value>>,
    }
    let Options { options } = serde_json::from_str(result.get()).ok()?;
    Some(options?.into_iter().filter_map(|option| serde_json::from_value(option).ok()).collect())
}

/// Returns the update of modes, options or commands in a line of the agent, if it has one for the session.
pub(crate) fn update_of_picture(session: &SessionId, line: &[u8]) -> Option<SessionUpdate> {
    // Most lines are chunks of messages.
    memchr::memmem::find(line, b"_update\"")?;
    let params = line.get(member(line, "params")?)?;
    let update = params.get(member(params, "update")?)?;
    let kind = member_text(update, "sessionUpdate")?;
    if !matches!(&*kind, "current_mode_update" | "config_option_update" | "available_commands_update") {
        return None;
    }
    let Some(RpcMessage::Notification { method, .. }) = parse(line) else { return None };
    let update: SessionNotification = serde_json::from_slice(params).ok()?;
    (method == SessionNotification::METHOD && update.session_id == *session).then_some(update.update)
}

/// Returns the values in the response to the request that began the session, if the frame is it.
fn opening(frame: &RawValue) -> Option<OpenedValues> {
    let bytes = frame.get().as_bytes();
    let id = member_text(bytes, "id")?;
    let result = bytes.get(member(bytes, "result")?)?;
    (id == "hub:session/new").then(|| OpenedValues::of(result))
}
