//! The parts of a session of which only the latest value counts.

use crate::{
    AvailableCommand, Meta, Plan, SessionConfigOption, SessionInfoUpdate, SessionModeId, SessionModeState,
    SessionUpdate, UsageUpdate,
};

/// The latest modes, options, commands, plan, usage and title of a session.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct SessionState {
    /// The modes and the current one, if the agent has modes. The response that opens a session lists
    /// them, see [`Conversation::begin`](super::Conversation::begin).
    pub modes: Option<SessionModeState>,
    /// The current mode of a session without `modes`.
    unlisted_mode: Option<SessionModeId>,
    /// All configuration options.
    pub config_options: Vec<SessionConfigOption>,
    /// The slash commands.
    pub commands: Vec<AvailableCommand>,
    /// The plan.
    pub plan: Option<Plan>,
    /// The used part of the context, and the cost so far.
    pub usage: Option<UsageUpdate>,
    /// The title.
    pub title: Option<String>,
    /// The time of the last activity, as the agent wrote it (RFC 3339).
    pub updated_at: Option<String>,
    /// Extension data about the session.
    pub meta: Option<Meta>,
}

impl SessionState {
    /// Returns true if `update` changes the state of a session.
    #[must_use]
    pub fn is_changed_by(update: &SessionUpdate) -> bool {
        matches!(
            update,
            SessionUpdate::Plan(_)
                | SessionUpdate::AvailableCommandsUpdate(_)
                | SessionUpdate::CurrentModeUpdate(_)
                | SessionUpdate::ConfigOptionUpdate(_)
                | SessionUpdate::SessionInfoUpdate(_)
                | SessionUpdate::UsageUpdate(_)
        )
    }

    pub(super) fn apply(&mut self, update: &SessionUpdate) {
        match update {
            SessionUpdate::Plan(plan) => self.plan = Some(plan.clone()),
            SessionUpdate::AvailableCommandsUpdate(update) => {
                self.commands.clone_from(&update.available_commands);
            }
            SessionUpdate::CurrentModeUpdate(update) => self.switch(&update.current_mode_id),
            SessionUpdate::ConfigOptionUpdate(update) => {
                self.config_options.clone_from(&update.config_options);
            }
            SessionUpdate::SessionInfoUpdate(update) => self.set_info(update.clone()),
            SessionUpdate::UsageUpdate(usage) => self.usage = Some(usage.clone()),
            _ => {}
        }
    }

    /// Returns the current mode, if the agent has named it.
    #[must_use]
    pub fn current_mode(&self) -> Option<&SessionModeId> {
        self.modes.as_ref().map(|modes| &modes.current_mode_id).or(self.unlisted_mode.as_ref())
    }

    pub(super) fn begin(
        &mut self,
        modes: Option<SessionModeState>,
        config_options: Vec<SessionConfigOption>,
    ) {
        if modes.is_some() {
            self.unlisted_mode = None;
        }
        self.modes = modes;
        self.config_options = config_options;
    }

    fn switch(&mut self, mode: &SessionModeId) {
        match &mut self.modes {
            Some(modes) => modes.current_mode_id.clone_from(mode),
            None => self.unlisted_mode = Some(mode.clone()),
        }
    }

    fn set_info(&mut self, info: SessionInfoUpdate) {
        info.title.apply(&mut self.title);
        info.updated_at.apply(&mut self.updated_at);
        info.meta.apply(&mut self.meta);
    }
}
