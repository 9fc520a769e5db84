//! The settings of a session: its modes, and options of every kind. The SDK offers the modes as an option too.

use std::sync::{Arc, Mutex};

use duologue_agent::rpc::Lock;
use duologue_agent::schema::{
    SessionConfigOption, SessionConfigOptionCategory, SessionConfigOptionValue, SessionConfigSelectGroup,
    SessionConfigSelectOption, SessionMode, SessionModeState,
};
use duologue_agent::{Error, Result, Session};

/// The settings of a session.
pub(super) struct MockSettings(Mutex<SettingsValues>);

pub(super) struct SettingsValues {
    pub(super) model: String,
    pub(super) effort: String,
    pub(super) verbose: bool,
}

impl Default for MockSettings {
    fn default() -> Self {
        let (model, effort) = ("small".into(), "low".into());
        MockSettings(Mutex::new(SettingsValues { model, effort, verbose: false }))
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
    /// Returns all options but that of the modes: a list in groups, a plain list and a switch.
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
            _ => return Err(Error::invalid_params("there is no such option, or it has no such value")),
        }
        Ok(())
    }
}

/// The modes with their names and descriptions.
const MODES: [(&str, &str, &str); 3] =
    [("ask", "Ask", "Asks first"), ("plan", "Plan", "Only plans"), ("code", "Code", "Just does it")];

/// Returns the modes of a new session.
pub(super) fn modes() -> SessionModeState {
    let modes = MODES.map(|(id, name, about)| SessionMode::new(id, name).description(about));
    SessionModeState::new("ask", Vec::from(modes))
}
