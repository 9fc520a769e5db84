//! The modes and options of a session: listed and set. The client checks them before it sends them.

use duologue_client::Session;
use duologue_schema::{
    Request as _, SessionConfigKind, SessionConfigOption, SessionConfigOptionValue, SessionState,
    SetSessionConfigOptionRequest, SetSessionModeRequest,
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
    /// Returns the name of the method that sends the change.
    pub(super) fn method(&self) -> &'static str {
        match self {
            Setting::Mode(_) => SetSessionModeRequest::METHOD,
            Setting::Option(..) => SetSessionConfigOptionRequest::METHOD,
        }
    }

    /// Sends the change, if the session offers it.
    pub(super) async fn set(&self, session: &Session) -> Result<()> {
        match self {
            Setting::Mode(mode) => {
                session.set_mode(mode.as_str()).await?;
            }
            Setting::Option(id, value) => {
                let value = option_value(&session.config_options(), id, value)?;
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

/// Returns the value of an option as it is sent. A boolean option is on or off.
fn option_value(options: &[SessionConfigOption], id: &str, value: &str) -> Result<SessionConfigOptionValue> {
    match options.iter().find(|known| known.id.as_str() == id).map(|option| &option.kind) {
        Some(SessionConfigKind::Boolean(_)) => match value {
            "on" | "true" | "yes" | "1" => Ok(true.into()),
            "off" | "false" | "no" | "0" => Ok(false.into()),
            _ => Err(Error::Usage(format!("the option {id} is on or off, not {value}"))),
        },
        _ => Ok(value.into()),
    }
}

/// Returns the values of an option. The current one has a star.
fn values(option: &SessionConfigOption) -> String {
    let mark = |value: &str, is_current| format!("{value}{}", if is_current { "*" } else { "" });
    let values: Vec<_> = match &option.kind {
        SessionConfigKind::Select(select) => select
            .options
            .values()
            .map(|choice| mark(choice.value.as_str(), choice.value == select.current_value))
            .collect(),
        SessionConfigKind::Boolean(boolean) => {
            vec![mark("on", boolean.current_value), mark("off", !boolean.current_value)]
        }
        _ => Vec::new(),
    };
    values.join(", ")
}
