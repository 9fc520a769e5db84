//! The last word on what a session has one of.

use duologue_schema::{
    AvailableCommand, Plan, SessionConfigOption, SessionModeId, SessionModeState, SessionUpdate, UsageUpdate,
};
use serde::Serialize;

use crate::limits::STATE_BYTES;
use crate::serialized_len::serialized_len;

/// The last word on everything a session has exactly one of.
///
/// An update or a list of more than [`STATE_BYTES`] leaves it as it was, since it is kept for as long as the session
/// is known. The update is delivered all the same.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct SessionState {
    /// The modes to choose from and the current one, if the agent has modes.
    pub modes: Option<SessionModeState>,
    /// All configuration options.
    pub config_options: Vec<SessionConfigOption>,
    /// The slash commands.
    pub commands: Vec<AvailableCommand>,
    /// The plan.
    pub plan: Option<Plan>,
    /// How much of the context is used, and the cost so far.
    pub usage: Option<UsageUpdate>,
    /// The title.
    pub title: Option<String>,
    /// When the session last changed, as the agent wrote it (RFC 3339).
    pub updated_at: Option<String>,
}

impl SessionState {
    /// Takes an update that took `bytes` on the wire.
    pub(crate) fn apply(&mut self, update: &SessionUpdate, bytes: usize) {
        if bytes > STATE_BYTES {
            if has_place(update) {
                tracing::warn!(bytes, "an update is too long for the state of its session");
            }
            return;
        }
        match update {
            SessionUpdate::AvailableCommandsUpdate(update) => {
                self.commands.clone_from(&update.available_commands);
            }
            SessionUpdate::ConfigOptionUpdate(update) => {
                self.config_options.clone_from(&update.config_options)
            }
            SessionUpdate::CurrentModeUpdate(update) => self.switch(update.current_mode_id.clone()),
            SessionUpdate::Plan(plan) => self.plan = Some(plan.clone()),
            SessionUpdate::UsageUpdate(usage) => self.usage = Some(usage.clone()),
            SessionUpdate::SessionInfoUpdate(info) => {
                info.title.clone().apply(&mut self.title);
                info.updated_at.clone().apply(&mut self.updated_at);
            }
            _ => {}
        }
    }

    pub(crate) fn switch(&mut self, mode: SessionModeId) {
        if let Some(modes) = &mut self.modes {
            modes.current_mode_id = mode;
        }
    }

    /// What the session has from its start, as the agent has answered.
    pub(crate) fn begin(
        &mut self,
        modes: &Option<SessionModeState>,
        config_options: &Option<Vec<SessionConfigOption>>,
    ) {
        self.modes = modes.as_ref().filter(|modes| fits(*modes)).cloned();
        self.config_options =
            config_options.as_ref().filter(|options| fits(*options)).cloned().unwrap_or_default();
    }

    pub(crate) fn set_options(&mut self, options: &[SessionConfigOption]) {
        if fits(&options) {
            self.config_options = options.to_vec();
        }
    }
}

/// Whether the state has a place for what an update says.
fn has_place(update: &SessionUpdate) -> bool {
    matches!(
        update,
        SessionUpdate::AvailableCommandsUpdate(_)
            | SessionUpdate::ConfigOptionUpdate(_)
            | SessionUpdate::CurrentModeUpdate(_)
            | SessionUpdate::Plan(_)
            | SessionUpdate::UsageUpdate(_)
            | SessionUpdate::SessionInfoUpdate(_)
    )
}

/// Whether a part of an answer may be kept.
fn fits(part: &impl Serialize) -> bool {
    let fits = serialized_len(part, STATE_BYTES).is_some();
    if !fits {
        tracing::warn!("an answer is too long for the state of its session");
    }
    fits
}

#[cfg(test)]
mod tests {
    use duologue_schema::{SessionInfoUpdate, SessionMode};

    use super::*;

    #[test]
    fn what_is_too_long_leaves_it_as_it_was() {
        let mut state = SessionState::default();
        let titled = |title: &str| SessionUpdate::from(SessionInfoUpdate::new().title(title));
        state.apply(&titled("first"), STATE_BYTES);
        state.apply(&titled("second"), STATE_BYTES + 1);
        assert_eq!(state.title.as_deref(), Some("first"));
    }

    #[test]
    fn an_answer_that_is_too_long_is_not_kept() {
        let modes =
            |length: usize| Some(SessionModeState::new("a", vec![SessionMode::new("a", "x".repeat(length))]));
        let mut state = SessionState::default();
        state.begin(&modes(9), &None);
        assert_eq!(state.modes, modes(9));
        state.begin(&modes(STATE_BYTES), &None);
        assert_eq!(state.modes, None);
    }
}
