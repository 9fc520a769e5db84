//! Checks of modes and config options against those that a session has.

use std::fmt;

use crate::{
    SessionConfigId, SessionConfigKind, SessionConfigOption, SessionConfigOptionValue, SessionModeId,
    SessionModeState, printable,
};

/// A mode, config option or value that a session does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NotOffered {
    /// The setting that lacks it.
    pub setting: OfferedSetting,
    /// The id or value of the request.
    pub id: String,
    /// The ids or values that the session has.
    pub offered: Vec<String>,
}

/// The setting that a request wants to change.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OfferedSetting {
    /// The mode.
    Mode,
    /// The config options.
    Option,
    /// The value of the config option with this id.
    Value(SessionConfigId),
}

impl fmt::Display for NotOffered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // An id may be as long as a line. The message quotes only its start.
        let short = |id: &str| printable(&id.chars().take(120).collect::<String>()).into_owned();
        let offered: Vec<_> = self.offered.iter().take(20).map(|id| short(id)).collect();
        let rest = if self.offered.len() > offered.len() { ", …" } else { "" };
        let offered = if offered.is_empty() { "none".to_owned() } else { offered.join(", ") };
        let id = short(&self.id);
        match &self.setting {
            OfferedSetting::Mode => write!(f, "the session has no mode {id}; it has {offered}{rest}"),
            OfferedSetting::Option => {
                write!(f, "the session has no config option {id}; it has {offered}{rest}")
            }
            OfferedSetting::Value(option) => {
                let option = short(option.as_str());
                write!(f, "the config option {option} has no value {id}; it has {offered}{rest}")
            }
        }
    }
}

impl std::error::Error for NotOffered {}

impl NotOffered {
    fn check<'a>(
        setting: OfferedSetting,
        id: &str,
        offered: impl Iterator<Item = &'a str> + Clone,
    ) -> Result<(), Self> {
        if offered.clone().any(|offered| offered == id) {
            return Ok(());
        }
        Err(NotOffered { setting, id: id.to_owned(), offered: offered.map(str::to_owned).collect() })
    }
}

impl SessionModeState {
    /// Checks that this is one of the modes.
    ///
    /// ```
    /// use duologue_schema::{SessionMode, SessionModeState};
    ///
    /// let modes = SessionModeState::new("ask", vec![SessionMode::new("ask", "Ask"), SessionMode::new("code", "Code")]);
    /// assert!(modes.check(&"code".into()).is_ok());
    /// let error = modes.check(&"chaos".into()).unwrap_err();
    /// assert_eq!(error.to_string(), "the session has no mode chaos; it has ask, code");
    /// ```
    ///
    /// # Errors
    ///
    /// [`NotOffered`] with the ids of the modes.
    pub fn check(&self, mode: &SessionModeId) -> Result<(), NotOffered> {
        let offered = self.available_modes.iter().map(|mode| mode.id.as_str());
        NotOffered::check(OfferedSetting::Mode, mode.as_str(), offered)
    }
}

impl SessionConfigOption {
    /// Checks that one of the options has this id and this value. Options of an unknown kind may have every value.
    ///
    /// # Errors
    ///
    /// [`NotOffered`] with the ids of the options, or with the values of the option.
    pub fn check(
        options: &[SessionConfigOption],
        id: &SessionConfigId,
        value: &SessionConfigOptionValue,
    ) -> Result<(), NotOffered> {
        let Some(option) = options.iter().find(|option| option.id == *id) else {
            let offered = options.iter().map(|option| option.id.as_str());
            return NotOffered::check(OfferedSetting::Option, id.as_str(), offered);
        };
        let setting = OfferedSetting::Value(id.clone());
        match (&option.kind, value) {
            (SessionConfigKind::Boolean(_), SessionConfigOptionValue::ValueId(value)) => {
                let offered = ["true", "false"].map(str::to_owned).to_vec();
                Err(NotOffered { setting, id: value.as_str().to_owned(), offered })
            }
            (SessionConfigKind::Select(select), SessionConfigOptionValue::ValueId(value)) => {
                let offered: Vec<_> = select.options.values().map(|value| value.value.as_str()).collect();
                NotOffered::check(setting, value.as_str(), offered.into_iter())
            }
            (SessionConfigKind::Select(select), SessionConfigOptionValue::Boolean(value)) => {
                let offered = select.options.values().map(|value| value.value.to_string()).collect();
                Err(NotOffered { setting, id: value.to_string(), offered })
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SessionConfigSelectGroup, SessionConfigSelectOption};

    fn error(result: Result<(), NotOffered>) -> String {
        result.expect_err("not offered").to_string()
    }

    #[test]
    fn an_option_has_its_values_alone() {
        let values = |ids: &[&str]| -> Vec<_> {
            ids.iter().map(|id| SessionConfigSelectOption::new(*id, *id)).collect()
        };
        let groups = vec![SessionConfigSelectGroup::new("g", "G", values(&["x", "y"]))];
        let options = [
            SessionConfigOption::boolean("fast", "Fast", true),
            SessionConfigOption::select("model", "Model", "small", values(&["small", "large"])),
            SessionConfigOption::select("theme", "Theme", "x", groups),
        ];
        let check = |id: &str, value: SessionConfigOptionValue| {
            SessionConfigOption::check(&options, &SessionConfigId::from(id), &value)
        };
        let text = |value: &str| SessionConfigOptionValue::ValueId(value.into());
        for (id, value) in [
            ("fast", SessionConfigOptionValue::Boolean(false)),
            ("model", text("large")),
            ("theme", text("y")),
        ] {
            assert_eq!(check(id, value), Ok(()), "{id}");
        }
        for (id, value, expected) in [
            ("fas", text("x"), "the session has no config option fas; it has fast, model, theme"),
            ("fast", text("yes"), "the config option fast has no value yes; it has true, false"),
            ("model", text("larg"), "the config option model has no value larg; it has small, large"),
            ("model", text("x"), "the config option model has no value x; it has small, large"),
            (
                "theme",
                SessionConfigOptionValue::Boolean(true),
                "the config option theme has no value true; it has x, y",
            ),
        ] {
            assert_eq!(error(check(id, value)), expected);
        }
    }

    /// Ids come from a peer. The message quotes the beginnings of the first ones, escaped.
    #[test]
    fn a_message_is_short_and_printable() {
        let modes = |ids: Vec<String>| {
            let modes = ids.into_iter().map(|id| crate::SessionMode::new(id, "Mode")).collect::<Vec<_>>();
            SessionModeState::new("m0", modes)
        };
        let names = |count: usize| (0..count).map(|number| format!("m{number}")).collect::<Vec<_>>();
        let none = error(modes(Vec::new()).check(&"a".into()));
        assert_eq!(none, "the session has no mode a; it has none");
        let twenty = names(20);
        let expected = |rest| format!("the session has no mode a; it has {}{rest}", twenty.join(", "));
        assert_eq!(error(modes(names(20)).check(&"a".into())), expected(""));
        assert_eq!(error(modes(names(21)).check(&"a".into())), expected(", …"));
        let long = error(modes(vec!["x".repeat(200)]).check(&"\u{1b}é".repeat(100).as_str().into()));
        assert_eq!(
            long,
            format!("the session has no mode {}; it has {}", "\\u{1b}é".repeat(60), "x".repeat(120))
        );
    }
}
