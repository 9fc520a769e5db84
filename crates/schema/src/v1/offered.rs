//! Checks of modes, config options and login methods against those that were offered.

use std::fmt;

use crate::{
    AuthMethod, AuthMethodId, ProtocolVersion, SessionConfigId, SessionConfigKind, SessionConfigOption,
    SessionConfigOptionValue, SessionModeId, SessionModeState, printable,
};

/// A mode, config option or value that a session does not have, or a login method that an agent does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NotOffered {
    /// The setting that lacks it.
    pub setting: OfferedSetting,
    /// The id or value of the request.
    pub id: String,
    /// The ids or values that the session or the agent has.
    pub offered: Vec<String>,
}

/// The setting that a request wants to change, or the login.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OfferedSetting {
    /// The mode.
    Mode,
    /// The config options.
    Option,
    /// The value of the config option with this id.
    Value(SessionConfigId),
    /// The login methods for `authenticate`.
    Login,
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
            OfferedSetting::Login => {
                write!(f, "the agent has no login method {id} for requests; it has {offered}{rest}")
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

impl AuthMethod {
    /// Checks that `authenticate` (`auth/login` in version 2) accepts the method with this id.
    ///
    /// Logins in a terminal need no request. Methods of an unknown kind count in version 1 only, see
    /// [`as_agent`](Self::as_agent).
    ///
    /// ```
    /// use duologue_schema::{AuthMethod, AuthMethodAgent, ProtocolVersion};
    ///
    /// let methods = [AuthMethod::from(AuthMethodAgent::new("key", "API key"))];
    /// assert!(AuthMethod::check(&methods, &"key".into(), ProtocolVersion::V1).is_ok());
    /// let error = AuthMethod::check(&methods, &"web".into(), ProtocolVersion::V1).unwrap_err();
    /// assert_eq!(error.to_string(), "the agent has no login method web for requests; it has key");
    /// ```
    ///
    /// # Errors
    ///
    /// [`NotOffered`] with the ids of the methods for requests.
    pub fn check(
        methods: &[AuthMethod],
        id: &AuthMethodId,
        version: ProtocolVersion,
    ) -> Result<(), NotOffered> {
        let offered = methods.iter().filter_map(|method| match method {
            AuthMethod::Agent(method) => Some(method.id.clone()),
            other if version == ProtocolVersion::V1 => other.as_agent().map(|method| method.id),
            _ => None,
        });
        let offered: Vec<_> = offered.collect();
        NotOffered::check(OfferedSetting::Login, id.as_str(), offered.iter().map(AuthMethodId::as_str))
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

    #[test]
    fn a_login_is_a_request_for_a_method_that_is_not_in_a_terminal() {
        let methods: Vec<AuthMethod> = serde_json::from_str(
            r#"[{"id":"key","name":"K"},{"type":"terminal","id":"tty","name":"T"},{"type":"old","id":"env","name":"E"}]"#,
        )
        .expect("methods");
        let check = |id: &str, version| AuthMethod::check(&methods, &id.into(), version);
        let (v1, v2) = (ProtocolVersion::V1, ProtocolVersion::V2);
        for (id, version) in [("key", v1), ("env", v1), ("key", v2)] {
            assert_eq!(check(id, version), Ok(()), "{id} {version}");
        }
        for (id, version, offered) in
            [("nope", v1, "key, env"), ("tty", v1, "key, env"), ("tty", v2, "key"), ("env", v2, "key")]
        {
            let expected = format!("the agent has no login method {id} for requests; it has {offered}");
            assert_eq!(error(check(id, version)), expected);
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
