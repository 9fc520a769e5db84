//! The modes and options of a session: checks of the client's choices, and modes that are an option too.

use std::collections::BTreeSet;

use duologue_schema::{
    ConfigOptionUpdate, CurrentModeUpdate, SessionConfigId, SessionConfigKind, SessionConfigOption,
    SessionConfigOptionCategory, SessionConfigSelectOption, SessionModeId, SessionModeState, SessionUpdate,
    SetSessionConfigOptionRequest, serialized_len,
};

use crate::agent::{Prompt, SessionSetup};
use crate::error::{Error, Result};
use crate::session::Session;

/// The id of the option that the SDK adds for the modes.
const MODE_OPTION: &str = "mode";

/// The modes and options that the client has been offered.
#[derive(Clone, Default)]
pub(crate) struct OfferedSettings {
    modes: Option<SessionModeState>,
    options: Option<Vec<SessionConfigOption>>,
    mirror: Option<ModeMirror>,
    /// The names of the slash commands.
    commands: Vec<String>,
    /// The number of mode changes that the agent has sent.
    changes_sent: u64,
}

/// The option of the category `mode` that has the same values as the modes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ModeMirror {
    pub(crate) option: SessionConfigId,
    pub(crate) source: ModeSource,
}

/// The method of the agent that changes the mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ModeSource {
    /// `set_mode`.
    Modes,
    /// `set_config_option`.
    Option,
}

/// A slash command of a prompt, see [`Prompt::command`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SlashCommand {
    /// The name without the slash.
    pub name: String,
    /// The text behind the name and the white space that follows it; empty without one.
    pub input: String,
}

impl Session {
    /// Returns the modes that the session offers now, with the current one.
    #[must_use]
    pub fn modes(&self) -> Option<SessionModeState> {
        self.settings().modes.clone()
    }

    /// Returns the configuration options that the session offers now, with their current values. If modes are
    /// [mirrored](SessionSetup::mirror_modes), the option for them is one of these.
    #[must_use]
    pub fn config_options(&self) -> Vec<SessionConfigOption> {
        self.settings().options()
    }
}

impl Prompt {
    /// Returns the slash command that the text of the prompt begins with, if the session has offered it with
    /// [`set_commands`](Session::set_commands). A [`Turn`](crate::Turn) can be passed as the session. Other blocks of the
    /// prompt, such as a linked file, belong to the command too.
    ///
    /// ```
    /// use duologue_agent::schema::StopReason;
    /// use duologue_agent::{Prompt, Result, Turn};
    ///
    /// async fn prompt(turn: &Turn, prompt: Prompt) -> Result<StopReason> {
    ///     let answer = match prompt.command(turn) {
    ///         Some(command) if command.name == "plan" => format!("A plan for {}", command.input),
    ///         _ => format!("You wrote: {}", prompt.text()),
    ///     };
    ///     turn.message().push(answer).await?;
    ///     Ok(StopReason::EndTurn)
    /// }
    /// ```
    #[must_use]
    pub fn command(&self, session: &Session) -> Option<SlashCommand> {
        session.settings().command(&self.text())
    }
}

impl OfferedSettings {
    /// Stores a setup, and completes it if the modes are mirrored.
    pub(crate) fn offer(&mut self, setup: &mut SessionSetup) {
        self.mirror = if setup.mirror_modes { ModeMirror::of(setup) } else { None };
        (self.modes, self.options) = (setup.modes.clone(), setup.config_options.take());
        match &self.mirror {
            Some(ModeMirror { source: ModeSource::Option, option }) => {
                self.modes = self.modes_of(option);
                setup.modes.clone_from(&self.modes);
            }
            Some(_) => {
                self.options.get_or_insert_default();
                self.complete_options();
            }
            None => {}
        }
        setup.config_options.clone_from(&self.options);
    }

    /// Returns the size of the settings as JSON.
    pub(crate) fn bytes(&self) -> usize {
        if self.modes.is_none() && self.options.is_none() && self.commands.is_empty() {
            return 0;
        }
        serialized_len(&(&self.modes, &self.options, &self.commands), usize::MAX).unwrap_or(0)
    }

    /// Returns the number of mode changes that the agent has sent itself. If it grows while a method of the agent runs, the
    /// method has chosen the mode.
    pub(crate) fn changes_sent(&self) -> u64 {
        self.changes_sent
    }

    pub(crate) fn mirror(&self) -> Option<&ModeMirror> {
        self.mirror.as_ref()
    }

    /// Splits a text into a slash command and its input, if it begins with a command that was offered.
    pub(crate) fn command(&self, text: &str) -> Option<SlashCommand> {
        let text = text.strip_prefix('/')?;
        let inputs = self.commands.iter().filter_map(|name| {
            let input = text.strip_prefix(name.as_str())?;
            (input.is_empty() || input.starts_with(char::is_whitespace)).then_some((name, input))
        });
        // Names with a space may begin with each other.
        let (name, input) = inputs.max_by_key(|(name, _)| name.len())?;
        Some(SlashCommand { name: name.clone(), input: input.trim_start().to_owned() })
    }

    /// Returns all options.
    pub(crate) fn options(&self) -> Vec<SessionConfigOption> {
        self.options.clone().unwrap_or_default()
    }

    /// Fails for a mode that was not offered, if any was.
    pub(crate) fn check_mode(&self, mode: &SessionModeId) -> Result<()> {
        let modes = self.modes.iter().find(|modes| !modes.available_modes.is_empty());
        modes.map_or(Ok(()), |modes| Ok(modes.check(mode)?))
    }

    /// Fails if the agent kept or chose another mode.
    pub(crate) fn check_current_mode(&self, mode: &SessionModeId) -> Result<()> {
        match &self.modes {
            Some(modes) if modes.current_mode_id != *mode => {
                Err(Error::other(format!("the agent kept the mode {:?}", modes.current_mode_id.as_str())))
            }
            _ => Ok(()),
        }
    }

    /// Fails for an option or a value that was not offered, if any was.
    pub(crate) fn check_option(&self, request: &SetSessionConfigOptionRequest) -> Result<()> {
        match self.options.as_deref() {
            None | Some([]) => Ok(()),
            Some(options) => Ok(SessionConfigOption::check(options, &request.config_id, &request.value)?),
        }
    }

    /// Stores the current mode. Returns false if it is the old one.
    pub(crate) fn set_mode(&mut self, mode: &SessionModeId) -> bool {
        let changed = match &mut self.modes {
            Some(modes) if modes.current_mode_id == *mode => false,
            Some(modes) => {
                modes.current_mode_id = mode.clone();
                true
            }
            None => true,
        };
        self.complete_options();
        changed
    }

    /// Stores the options that the agent has returned. Returns the new mode if they changed it.
    pub(crate) fn set_options(&mut self, options: Vec<SessionConfigOption>) -> Option<SessionModeId> {
        self.options = Some(options);
        match &self.mirror {
            Some(ModeMirror { source: ModeSource::Option, option }) => {
                let modes = self.modes_of(option)?;
                let before = self.modes.replace(modes.clone());
                let changed = before.is_none_or(|before| before.current_mode_id != modes.current_mode_id);
                changed.then_some(modes.current_mode_id)
            }
            _ => {
                self.complete_options();
                None
            }
        }
    }

    /// Stores the content of an update, and completes it. Returns the update that follows it if the modes are
    /// mirrored.
    pub(crate) fn apply(&mut self, update: &mut SessionUpdate) -> Option<SessionUpdate> {
        match update {
            SessionUpdate::CurrentModeUpdate(update) => {
                self.changes_sent += 1;
                self.set_mode(&update.current_mode_id);
                self.mirror.as_ref()?;
                Some(SessionUpdate::ConfigOptionUpdate(ConfigOptionUpdate::new(self.options())))
            }
            SessionUpdate::ConfigOptionUpdate(update) => {
                let changed = self.set_options(std::mem::take(&mut update.config_options));
                update.config_options = self.options();
                changed.map(|mode| SessionUpdate::CurrentModeUpdate(CurrentModeUpdate::new(mode)))
            }
            SessionUpdate::AvailableCommandsUpdate(update) => {
                self.commands =
                    update.available_commands.iter().map(|command| command.name.clone()).collect();
                for name in self.commands.iter().filter(|name| !is_common_name(name)) {
                    tracing::warn!(
                        command = name.as_str(),
                        "the name of a slash command is empty or has white space or a slash; clients may not offer it"
                    );
                }
                None
            }
            _ => None,
        }
    }

    /// Returns the values of an option as modes.
    fn modes_of(&self, option: &SessionConfigId) -> Option<SessionModeState> {
        let option = self.options.iter().flatten().find(|known| known.id == *option);
        option.and_then(SessionConfigOption::to_modes)
    }

    /// Returns true if the method of this source sets some of the modes or options.
    pub(crate) fn are_set_by(&self, source: ModeSource) -> bool {
        let mirror = self.mirror.as_ref().map(|mirror| (mirror.source, &mirror.option));
        match (source, mirror) {
            (ModeSource::Modes, Some((ModeSource::Option, _))) => false,
            (ModeSource::Modes, _) => self.modes.iter().any(|modes| !modes.available_modes.is_empty()),
            (ModeSource::Option, Some((ModeSource::Modes, mirror))) => {
                self.options.iter().flatten().any(|option| option.id != *mirror)
            }
            (ModeSource::Option, _) => self.options.iter().any(|options| !options.is_empty()),
        }
    }

    /// Gives the mirrored option the current mode. Adds the option if the agent does not have it.
    fn complete_options(&mut self) {
        let (Some(mirror), Some(modes), Some(options)) = (&self.mirror, &self.modes, &mut self.options)
        else {
            return;
        };
        let current = modes.current_mode_id.as_str();
        match options.iter_mut().find(|option| option.id == mirror.option).map(|option| &mut option.kind) {
            Some(SessionConfigKind::Select(select)) => select.current_value = current.into(),
            Some(_) => {}
            None => {
                let values = modes.available_modes.iter().map(|mode| {
                    let mut value = SessionConfigSelectOption::new(mode.id.as_str(), mode.name.as_str());
                    value.description.clone_from(&mode.description);
                    value
                });
                let values: Vec<_> = values.collect();
                let option = SessionConfigOption::select(mirror.option.clone(), "Mode", current, values);
                options.insert(0, option.category(SessionConfigOptionCategory::Mode));
            }
        }
    }
}

impl ModeMirror {
    fn of(setup: &SessionSetup) -> Option<Self> {
        let options = setup.config_options.as_deref().unwrap_or_default();
        let of_mode = options.iter().find(|option| {
            option.category == Some(SessionConfigOptionCategory::Mode)
                && matches!(option.kind, SessionConfigKind::Select(_))
        });
        let option = of_mode.map(|option| option.id.clone());
        let Some(modes) = &setup.modes else {
            return option.map(|option| ModeMirror { option, source: ModeSource::Option });
        };
        if let Some(of_option) = of_mode.and_then(SessionConfigOption::to_modes)
            && ids(&of_option) != ids(modes)
        {
            tracing::warn!("the modes are not mirrored: the option of the category mode has other values");
            return None;
        }
        let option = option.unwrap_or_else(|| MODE_OPTION.into());
        if of_mode.is_none() && options.iter().any(|known| known.id == option) {
            tracing::warn!("the modes are not mirrored: the option {option} is not of the category mode");
            return None;
        }
        Some(ModeMirror { option, source: ModeSource::Modes })
    }
}

/// Returns true for a name that every client can show behind a slash, and find in a prompt.
fn is_common_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(|char: char| char.is_whitespace() || char == '/')
}

fn ids(modes: &SessionModeState) -> BTreeSet<&str> {
    modes.available_modes.iter().map(|mode| mode.id.as_str()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The others are logged.
    #[test]
    fn a_name_that_clients_may_not_offer_is_recognised() {
        for (name, is_common) in [
            ("plan", true),
            ("git:log", true),
            ("/slash", false),
            ("two words", false),
            ("tab\tbed", false),
            ("", false),
        ] {
            assert_eq!(is_common_name(name), is_common, "{name:?}");
        }
    }
}
