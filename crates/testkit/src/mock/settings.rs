//! The settings of a session: a mode, and options of every kind.

use std::sync::{Arc, Mutex};

use duologue_agent::rpc::Lock;
use duologue_agent::schema::{
    SessionConfigOption, SessionConfigOptionCategory, SessionConfigOptionValue, SessionConfigSelectGroup,
    SessionConfigSelectOption, SessionMode, SessionModeId, SessionModeState,
};
use duologue_agent::{Error, Result, Session};

/// The settings of a session.
pub(super) struct MockSettings(Mutex<SettingsValues>);

pub(super) struct SettingsValues {
    pub(super) mode: SessionModeId,
    pub(super) model: String,
    pub(super) effort: String,
    pub(super) verbose: bool,
}

impl Default for MockSettings {
    fn default() -> Self {
        let (model, effort) = ("small".into(), "low".into());
        MockSettings(Mutex::new(SettingsValues { mode: "ask".into(), model, effort, verbose: false }))
    }
}

impl MockSettings {
    pub(super) fn of(session: &Session) -> Arc<Self> {
        session.state()
    }

    pub(super) fn change<T>(&self, change: impl FnOnce(&mut SettingsValues) -> T) -> T {
        change(&mut self.0.lock_unpoisoned())
    }
}

const MODELS: [(&str, &str); 3] = [("small", "Small"), ("large", "Large"), ("huge", "Huge")];
const EFFORTS: [(&str, &str); 2] = [("low", "Low"), ("high", "High")];

impl SettingsValues {
    /// Returns the modes, for clients that do not read the option of the category `mode`.
    pub(super) fn mode_state(&self) -> SessionModeState {
        SessionModeState::new(self.mode.clone(), modes())
    }

    /// Returns all options: a list in groups, a plain list, a switch and the modes.
    pub(super) fn options(&self) -> Vec<SessionConfigOption> {
        let value = |(id, name): (&str, &str)| SessionConfigSelectOption::new(id, name);
        let [small, large, huge] = MODELS.map(value);
        let models = vec![
            SessionConfigSelectGroup::new("fast", "Fast", vec![small]),
            SessionConfigSelectGroup::new("clever", "Clever", vec![large, huge]),
        ];
        vec![
            SessionConfigOption::select("model", "Model", self.model.as_str(), models)
                .description("Which model pretends to think")
                .category(SessionConfigOptionCategory::Model),
            SessionConfigOption::select(
                "effort",
                "Effort",
                self.effort.as_str(),
                EFFORTS.map(value).to_vec(),
            )
            .category(SessionConfigOptionCategory::ThoughtLevel),
            SessionConfigOption::boolean("verbose", "Verbose", self.verbose),
            SessionConfigOption::select("mode", "Mode", self.mode.as_str(), mode_values())
                .category(SessionConfigOptionCategory::Mode),
        ]
    }

    pub(super) fn set(&mut self, option: &str, value: &SessionConfigOptionValue) -> Result<()> {
        let known = |values: &[(&str, &str)], id: &str| values.iter().any(|(value, _)| *value == id);
        match (option, value) {
            ("model", SessionConfigOptionValue::ValueId(id)) if known(&MODELS, id.as_str()) => {
                self.model = id.as_str().into();
            }
            ("effort", SessionConfigOptionValue::ValueId(id)) if known(&EFFORTS, id.as_str()) => {
                self.effort = id.as_str().into();
            }
            ("verbose", SessionConfigOptionValue::Boolean(verbose)) => self.verbose = *verbose,
            ("mode", SessionConfigOptionValue::ValueId(id)) => self.set_mode(id.as_str())?,
            _ => return Err(Error::invalid_params("there is no such option, or it has no such value")),
        }
        Ok(())
    }

    pub(super) fn set_mode(&mut self, mode: &str) -> Result<()> {
        let Some((id, ..)) = MODES.iter().find(|(id, ..)| *id == mode) else {
            return Err(Error::invalid_params("there is no such mode"));
        };
        self.mode = (*id).into();
        Ok(())
    }
}

/// The modes with their names and descriptions.
const MODES: [(&str, &str, &str); 3] =
    [("ask", "Ask", "Asks first"), ("plan", "Plan", "Only plans"), ("code", "Code", "Just does it")];

fn modes() -> Vec<SessionMode> {
    MODES.map(|(id, name, about)| SessionMode::new(id, name).description(about)).into()
}

fn mode_values() -> Vec<SessionConfigSelectOption> {
    MODES.map(|(id, name, about)| SessionConfigSelectOption::new(id, name).description(about)).into()
}
