//! The modes and options of a session: listed, and checked before one is set.

use duologue_client::Session;
use duologue_schema::{
    SessionConfigKind, SessionConfigOption, SessionConfigOptionValue, SessionConfigSelect,
    SessionConfigSelectOption, SessionConfigSelectOptions, SessionState,
};

use crate::error::{Error, Result};

/// A change of the session's settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Setting {
    Mode(String),
    /// The option and its value.
    Option(String, String),
}

impl Setting {
    /// Sends the change, if the session offers it.
    pub(super) async fn set(&self, session: &Session) -> Result<()> {
        let state = session.state();
        match self {
            Setting::Mode(mode) => {
                check_mode(&state, mode)?;
                session.set_mode(mode.as_str()).await?;
            }
            Setting::Option(id, value) => {
                let value = option_value(&state.config_options, id, value)?;
                session.set_config_option(id.as_str(), value).await?;
            }
        }
        Ok(())
    }
}

/// Returns a line for each mode and for each option.
pub(super) fn lines(state: &SessionState) -> Vec<String> {
    let mut lines = Vec::new();
    for mode in state.modes.iter().flat_map(|modes| &modes.available_modes) {
        let is_current = state.modes.as_ref().is_some_and(|modes| modes.current_mode_id == mode.id);
        let mark = if is_current { "*" } else { "" };
        let description = mode.description.as_deref().unwrap_or_default();
        lines.push(format!("mode\t{}{mark}\t{}\t{description}", mode.id, mode.name));
    }
    for option in &state.config_options {
        let description = option.description.as_deref().unwrap_or_default();
        lines.push(format!("option\t{}={}\t{}\t{description}", option.id, values(option), option.name));
    }
    lines.into_iter().map(|line| line.trim_end().to_owned()).collect()
}

fn check_mode(state: &SessionState, wanted: &str) -> Result<()> {
    let Some(modes) = &state.modes else { return Ok(()) };
    if modes.available_modes.iter().any(|mode| mode.id.as_str() == wanted) {
        return Ok(());
    }
    let offered: Vec<_> = modes.available_modes.iter().map(|mode| mode.id.to_string()).collect();
    Err(Error::NotOffered(format!("the agent has no mode {wanted}; it offers: {}", offered.join(", "))))
}

fn option_value(options: &[SessionConfigOption], id: &str, value: &str) -> Result<SessionConfigOptionValue> {
    let Some(option) = options.iter().find(|known| known.id.as_str() == id) else {
        // The client reports an agent without options.
        if options.is_empty() {
            return Ok(value.into());
        }
        let offered: Vec<_> = options.iter().map(|known| known.id.to_string()).collect();
        let text = format!("the agent has no option {id}; it offers: {}", offered.join(", "));
        return Err(Error::NotOffered(text));
    };
    match &option.kind {
        SessionConfigKind::Boolean(_) => match value {
            "on" | "true" | "yes" | "1" => Ok(true.into()),
            "off" | "false" | "no" | "0" => Ok(false.into()),
            _ => Err(Error::Usage(format!("the option {id} is on or off, not {value}"))),
        },
        SessionConfigKind::Select(select)
            if !choices(select).any(|choice| choice.value.as_str() == value) =>
        {
            let values = values(option);
            Err(Error::NotOffered(format!("the option {id} has no value {value}; it offers: {values}")))
        }
        _ => Ok(value.into()),
    }
}

/// Returns the values of an option. The current one has a star.
fn values(option: &SessionConfigOption) -> String {
    let mark = |value: &str, is_current| format!("{value}{}", if is_current { "*" } else { "" });
    let values: Vec<_> = match &option.kind {
        SessionConfigKind::Select(select) => choices(select)
            .map(|choice| mark(choice.value.as_str(), choice.value == select.current_value))
            .collect(),
        SessionConfigKind::Boolean(boolean) => {
            vec![mark("on", boolean.current_value), mark("off", !boolean.current_value)]
        }
        _ => Vec::new(),
    };
    values.join(", ")
}

fn choices(select: &SessionConfigSelect) -> Box<dyn Iterator<Item = &SessionConfigSelectOption> + '_> {
    match &select.options {
        SessionConfigSelectOptions::Ungrouped(options) => Box::new(options.iter()),
        SessionConfigSelectOptions::Grouped(groups) => {
            Box::new(groups.iter().flat_map(|group| &group.options))
        }
        _ => Box::new(std::iter::empty()),
    }
}
