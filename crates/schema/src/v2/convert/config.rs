//! Config options, and the modes that become one of them.

use crate::{
    ConfigOptionUpdate, InitialSessionConfigOption, SessionConfigId, SessionConfigKind, SessionConfigOption,
    SessionConfigOptionCategory, SessionConfigOptionValue, SessionConfigSelect, SessionConfigSelectGroup,
    SessionConfigSelectOption, SessionConfigSelectOptions, SessionModeState, SetSessionConfigOptionRequest,
    SetSessionConfigOptionResponse, SetSessionModeRequest, v2,
};

use super::{ConversionError, all};

impl From<v2::SessionConfigOption> for SessionConfigOption {
    fn from(option: v2::SessionConfigOption) -> Self {
        let kind = match option.kind {
            v2::SessionConfigKind::Select(select) => SessionConfigKind::Select(SessionConfigSelect {
                current_value: select.current_value,
                options: match select.options {
                    v2::SessionConfigSelectOptions::Ungrouped(options) => options.into(),
                    v2::SessionConfigSelectOptions::Grouped(groups) => {
                        SessionConfigSelectOptions::Grouped(all(groups))
                    }
                },
            }),
            v2::SessionConfigKind::Boolean(boolean) => boolean.into(),
            v2::SessionConfigKind::Unknown(unknown) => SessionConfigKind::Unknown(unknown),
        };
        SessionConfigOption {
            id: option.config_id,
            name: option.name,
            description: option.description,
            category: option.category,
            kind,
            meta: option.meta,
        }
    }
}

impl From<SessionConfigOption> for v2::SessionConfigOption {
    fn from(option: SessionConfigOption) -> Self {
        let kind = match option.kind {
            SessionConfigKind::Select(select) => v2::SessionConfigKind::Select(v2::SessionConfigSelect {
                current_value: select.current_value,
                options: match select.options {
                    SessionConfigSelectOptions::Ungrouped(options) => options.into(),
                    SessionConfigSelectOptions::Grouped(groups) => {
                        v2::SessionConfigSelectOptions::Grouped(all(groups))
                    }
                },
            }),
            SessionConfigKind::Boolean(boolean) => boolean.into(),
            SessionConfigKind::Unknown(unknown) => v2::SessionConfigKind::Unknown(unknown),
        };
        v2::SessionConfigOption {
            config_id: option.id,
            name: option.name,
            description: option.description,
            category: option.category,
            kind,
            meta: option.meta,
        }
    }
}

impl From<v2::SessionConfigSelectGroup> for SessionConfigSelectGroup {
    fn from(group: v2::SessionConfigSelectGroup) -> Self {
        let v2::SessionConfigSelectGroup { group_id, name, options, meta } = group;
        SessionConfigSelectGroup { group: group_id, name, options, meta }
    }
}

impl From<SessionConfigSelectGroup> for v2::SessionConfigSelectGroup {
    fn from(it: SessionConfigSelectGroup) -> Self {
        let SessionConfigSelectGroup { group, name, options, meta } = it;
        v2::SessionConfigSelectGroup { group_id: group, name, options, meta }
    }
}

/// Fails for a value of an unknown type.
impl TryFrom<v2::SetSessionConfigOptionRequest> for SetSessionConfigOptionRequest {
    type Error = ConversionError;

    fn try_from(request: v2::SetSessionConfigOptionRequest) -> Result<Self, ConversionError> {
        let v2::SetSessionConfigOptionRequest { session_id, config_id, value, meta } = request;
        let value = match value {
            v2::SessionConfigOptionValue::Id(chosen) => SessionConfigOptionValue::ValueId(chosen.value),
            v2::SessionConfigOptionValue::Boolean(chosen) => SessionConfigOptionValue::Boolean(chosen.value),
            v2::SessionConfigOptionValue::Unknown(_) => {
                return Err(ConversionError::new("the type of the value must be `id` or `boolean`"));
            }
        };
        Ok(SetSessionConfigOptionRequest { session_id, config_id, value, meta })
    }
}

impl From<SetSessionConfigOptionRequest> for v2::SetSessionConfigOptionRequest {
    fn from(request: SetSessionConfigOptionRequest) -> Self {
        let SetSessionConfigOptionRequest { session_id, config_id, value, meta } = request;
        v2::SetSessionConfigOptionRequest { session_id, config_id, value: value.into(), meta }
    }
}

/// Converts the first values of config options. A value of an unknown type fits no option, and is ignored.
pub(super) fn first_values(values: Vec<v2::InitialSessionConfigOption>) -> Vec<InitialSessionConfigOption> {
    let known = values.into_iter().filter_map(|first| {
        let v2::InitialSessionConfigOption { config_id, value, meta } = first;
        let value = match value {
            v2::SessionConfigOptionValue::Id(chosen) => SessionConfigOptionValue::ValueId(chosen.value),
            v2::SessionConfigOptionValue::Boolean(chosen) => SessionConfigOptionValue::Boolean(chosen.value),
            v2::SessionConfigOptionValue::Unknown(_) => return None,
        };
        Some(InitialSessionConfigOption { config_id, value, meta })
    });
    known.collect()
}

impl From<InitialSessionConfigOption> for v2::InitialSessionConfigOption {
    fn from(first: InitialSessionConfigOption) -> Self {
        let InitialSessionConfigOption { config_id, value, meta } = first;
        v2::InitialSessionConfigOption { config_id, value: value.into(), meta }
    }
}

impl From<SessionConfigOptionValue> for v2::SessionConfigOptionValue {
    fn from(value: SessionConfigOptionValue) -> Self {
        match value {
            SessionConfigOptionValue::ValueId(value) => v2::ChosenValueId { value }.into(),
            SessionConfigOptionValue::Boolean(value) => v2::ChosenBoolean { value }.into(),
        }
    }
}

/// Implements the conversions of a type that has all options of a session.
macro_rules! lists {
    ($($name:ident)*) => {$(
        impl From<v2::$name> for $name {
            fn from(it: v2::$name) -> Self {
                $name { config_options: all(it.config_options), meta: it.meta }
            }
        }

        impl From<$name> for v2::$name {
            fn from(it: $name) -> Self {
                v2::$name { config_options: all(it.config_options), meta: it.meta }
            }
        }
    )*};
}

lists! { ConfigOptionUpdate SetSessionConfigOptionResponse }

/// Returns the option whose category is `mode`.
///
/// A client of version 2 that sets a mode sends `session/set_config_option` with its id.
#[must_use]
pub fn mode_option(options: &[SessionConfigOption]) -> Option<&SessionConfigOption> {
    options.iter().find(|option| option.category == Some(SessionConfigOptionCategory::Mode))
}

/// Returns the options of a session in version 2. The modes become the first option, unless an option has the
/// category `mode` already.
///
/// ```
/// use duologue_schema::{SessionMode, SessionModeState};
/// use duologue_schema::v2::convert::options_with_modes;
///
/// let modes = SessionModeState::new("ask", [SessionMode::new("ask", "Ask"), SessionMode::new("code", "Code")]);
/// let options = options_with_modes(Some(&modes), Vec::new());
/// assert_eq!((options.len(), options[0].config_id.as_str()), (1, "mode"));
/// ```
#[must_use]
pub fn options_with_modes(
    modes: Option<&SessionModeState>,
    options: Vec<SessionConfigOption>,
) -> Vec<v2::SessionConfigOption> {
    let modes = modes.filter(|_| mode_option(&options).is_none()).map(|state| {
        let values = state.available_modes.iter().map(|mode| SessionConfigSelectOption {
            value: mode.id.as_str().into(),
            name: mode.name.clone(),
            description: mode.description.clone(),
            meta: mode.meta.clone(),
        });
        let values: Vec<_> = values.collect();
        let current = state.current_mode_id.as_str();
        let mut option = SessionConfigOption::select(mode_option_id(&options), "Mode", current, values);
        option.category = Some(SessionConfigOptionCategory::Mode);
        option.meta.clone_from(&state.meta);
        option
    });
    all(modes.into_iter().chain(options))
}

/// Returns the id of the option that stands for the modes. It is the id of no other option.
fn mode_option_id(options: &[SessionConfigOption]) -> SessionConfigId {
    let mut id = "mode".to_owned();
    while options.iter().any(|option| option.id.as_str() == id) {
        id.push('_');
    }
    id.into()
}

/// Returns the request for a mode that a client of version 2 means, if it chose a value of the option that
/// [`options_with_modes`] made.
#[must_use]
pub fn mode_request(
    request: &SetSessionConfigOptionRequest,
    modes: Option<&SessionModeState>,
    options: &[SessionConfigOption],
) -> Option<SetSessionModeRequest> {
    let is_made = modes.is_some() && mode_option(options).is_none();
    match &request.value {
        SessionConfigOptionValue::ValueId(mode)
            if is_made && request.config_id == mode_option_id(options) =>
        {
            let mut request_of_mode = SetSessionModeRequest::new(request.session_id.clone(), mode.as_str());
            request_of_mode.meta.clone_from(&request.meta);
            Some(request_of_mode)
        }
        _ => None,
    }
}
