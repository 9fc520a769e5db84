//! Checks modes and config options against those that a session has.

use duologue_schema::{
    SessionConfigId, SessionConfigKind, SessionConfigOptionValue, SessionConfigSelectOptions, SessionModeId,
    SessionState,
};

use crate::error::{Error, Result};

/// Checks that the session has a mode.
pub(crate) fn check_mode(state: &SessionState, mode: &SessionModeId) -> Result<()> {
    let Some(modes) = &state.modes else { return Err(Error::NotSupported { capability: "modes" }) };
    let offered = modes.available_modes.iter().map(|mode| mode.id.as_str());
    check("mode", mode.as_str(), offered)
}

/// Checks that the session has a config option with this value.
pub(crate) fn check_option(
    state: &SessionState,
    id: &SessionConfigId,
    value: &SessionConfigOptionValue,
) -> Result<()> {
    let options = &state.config_options;
    if options.is_empty() {
        return Err(Error::NotSupported { capability: "configOptions" });
    }
    check("config option", id.as_str(), options.iter().map(|option| option.id.as_str()))?;
    let Some(option) = options.iter().find(|option| option.id == *id) else { return Ok(()) };
    let what = "value of this config option";
    match (&option.kind, value) {
        (SessionConfigKind::Boolean(_), SessionConfigOptionValue::ValueId(value)) => {
            Err(not_offered(what, value.as_str(), ["true", "false"].into_iter()))
        }
        (SessionConfigKind::Select(select), value) => {
            let offered: Vec<&str> = match &select.options {
                SessionConfigSelectOptions::Ungrouped(options) => {
                    options.iter().map(|option| option.value.as_str()).collect()
                }
                SessionConfigSelectOptions::Grouped(groups) => {
                    let options = groups.iter().flat_map(|group| &group.options);
                    options.map(|option| option.value.as_str()).collect()
                }
                _ => return Ok(()),
            };
            match value {
                SessionConfigOptionValue::ValueId(value) => check(what, value.as_str(), offered.into_iter()),
                SessionConfigOptionValue::Boolean(value) => {
                    Err(not_offered(what, &value.to_string(), offered.into_iter()))
                }
                _ => Ok(()),
            }
        }
        _ => Ok(()),
    }
}

fn check<'a>(what: &'static str, id: &str, offered: impl Iterator<Item = &'a str> + Clone) -> Result<()> {
    if offered.clone().any(|offered| offered == id) { Ok(()) } else { Err(not_offered(what, id, offered)) }
}

fn not_offered<'a>(what: &'static str, id: &str, offered: impl Iterator<Item = &'a str>) -> Error {
    Error::NotOffered { what, id: id.to_owned(), offered: offered.map(str::to_owned).collect() }
}
