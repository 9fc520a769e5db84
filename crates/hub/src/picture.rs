//! The modes, options and commands of a session, as its clients see them.

use std::collections::BTreeMap;

use duologue_rpc::raw_message::{member, member_text};
use duologue_rpc::{ResponseOutcome, RpcMessage};
use duologue_schema::{
    AvailableCommand, AvailableCommandsUpdate, ConfigOptionUpdate, CurrentModeUpdate, NewSessionResponse,
    Notification as _, Request as _, SessionConfigId, SessionConfigKind, SessionConfigOption,
    SessionConfigOptionCategory, SessionConfigOptionValue, SessionId, SessionModeId, SessionModeState,
    SessionNotification, SessionUpdate, SetSessionConfigOptionRequest, SetSessionModeRequest,
};
use duologue_transcript::Side;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::record::{HubEvent, LogEntry};
use crate::state::parse;

/// The values that clients chose or the agent reported. The log determines them.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Picture {
    pub(crate) modes: Option<SessionModeState>,
    pub(crate) options: Vec<SessionConfigOption>,
    pub(crate) commands: Option<Vec<AvailableCommand>>,
    /// The choices of clients that wait for their responses, by the number of the call.
    choices: BTreeMap<u64, Choice>,
}

/// A value that a client chooses.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Choice {
    Mode(SessionModeId),
    Option { id: SessionConfigId, value: SessionConfigOptionValue },
}

impl Picture {
    /// Creates the picture of an agent from its response to a request that opens a session.
    pub(crate) fn new(modes: Option<SessionModeState>, options: Vec<SessionConfigOption>) -> Self {
        Picture { modes, options, ..Picture::default() }
    }

    /// Applies the next record of the log.
    pub(crate) fn apply(&mut self, session: &SessionId, entry: &LogEntry<'_>) {
        match (&entry.event, entry.frame) {
            (Some(HubEvent::Call { call, .. }), Some((_, frame))) => {
                if let Some(choice) = choice(frame) {
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
                    *self = Picture::new(opened.modes, opened.config_options.unwrap_or_default());
                }
            }
            _ => {}
        }
    }

    /// Returns the choice of a call that has no response yet.
    pub(crate) fn choice(&self, call: u64) -> Option<&Choice> {
        self.choices.get(&call)
    }

    /// Applies an update of the agent. Others than those of modes, options and commands have no effect.
    pub(crate) fn report(&mut self, update: &SessionUpdate) {
        match update {
            SessionUpdate::CurrentModeUpdate(update) => self.set_mode(&update.current_mode_id),
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
            Choice::Mode(mode) => self.set_mode(&mode),
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

    /// Sets the mode, and the value of an option that stands for the mode.
    fn set_mode(&mut self, mode: &SessionModeId) {
        match &mut self.modes {
            Some(modes) => modes.current_mode_id.clone_from(mode),
            // It is not listed, and is set again like one that is.
            None => self.modes = Some(SessionModeState::new(mode.clone(), Vec::new())),
        }
        let value = SessionConfigOptionValue::from(mode.as_str());
        for option in self.options.iter_mut().filter(|option| is_mode(option)) {
            let has_value = option
                .to_modes()
                .is_some_and(|modes| modes.available_modes.iter().any(|listed| listed.id == *mode));
            if has_value {
                option.set_value(&value);
            }
        }
    }

    /// Sets the options, and the mode that one of them stands for.
    fn set_options(&mut self, options: Vec<SessionConfigOption>) {
        self.options = options;
        let chosen = self.options.iter().find(|option| is_mode(option)).and_then(value_of);
        if let (Some(modes), Some(SessionConfigOptionValue::ValueId(chosen))) = (&mut self.modes, chosen)
            && modes.available_modes.iter().any(|mode| mode.id.as_str() == chosen.as_str())
        {
            modes.current_mode_id = chosen.as_str().into();
        }
    }

    /// Returns the current mode.
    pub(crate) fn mode(&self) -> Option<&SessionModeId> {
        self.modes.as_ref().map(|modes| &modes.current_mode_id)
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

    /// Returns true for a choice of the mode, also by the option that stands for it.
    pub(crate) fn is_of_mode(&self, choice: &Choice) -> bool {
        match choice {
            Choice::Mode(_) => true,
            Choice::Option { id, .. } => {
                self.options.iter().any(|option| option.id == *id && is_mode(option))
            }
        }
    }

    /// Returns the updates of a client that has not made a choice.
    pub(crate) fn updates_of(&self, choice: &Choice) -> Vec<SessionUpdate> {
        let is_of_mode = self.is_of_mode(choice);
        let mode = self.mode().filter(|_| is_of_mode);
        let mode = mode.map(|mode| SessionUpdate::CurrentModeUpdate(CurrentModeUpdate::new(mode.clone())));
        let is_of_option = matches!(choice, Choice::Option { .. }) || self.options.iter().any(is_mode);
        let options = is_of_option
            .then(|| SessionUpdate::ConfigOptionUpdate(ConfigOptionUpdate::new(self.options.clone())));
        mode.into_iter().chain(options).collect()
    }

    /// Returns the updates that lead from this picture to another one.
    pub(crate) fn changes(&self, other: &Picture) -> Vec<SessionUpdate> {
        let mut changes = Vec::new();
        if let Some(mode) = other.mode().filter(|mode| self.mode() != Some(mode)) {
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

/// Returns true for an option whose value is the mode.
fn is_mode(option: &SessionConfigOption) -> bool {
    matches!(option.category, Some(SessionConfigOptionCategory::Mode))
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

/// Returns the choice in a request of a client, if it is one.
fn choice(request: &RawValue) -> Option<Choice> {
    let RpcMessage::Request { method, params: Some(params), .. } = parse(request.get().as_bytes())? else {
        return None;
    };
    match &*method {
        SetSessionModeRequest::METHOD => {
            let request: SetSessionModeRequest = serde_json::from_str(params.get()).ok()?;
            Some(Choice::Mode(request.mode_id))
        }
        SetSessionConfigOptionRequest::METHOD => {
            let request: SetSessionConfigOptionRequest = serde_json::from_str(params.get()).ok()?;
            Some(Choice::Option { id: request.config_id, value: request.value })
        }
        _ => None,
    }
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

/// Returns the result of the request that began the session, if the frame is it.
pub(crate) fn opening(frame: &RawValue) -> Option<NewSessionResponse> {
    let bytes = frame.get().as_bytes();
    let id = member_text(bytes, "id")?;
    let result = bytes.get(member(bytes, "result")?)?;
    (id == "hub:session/new").then(|| serde_json::from_slice(result).ok())?
}
