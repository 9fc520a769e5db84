//! Session config options: model, mode and other settings that an agent lets the user choose.
//!
//! See [Session config options](https://agentclientprotocol.com/protocol/v1/session-config-options).

use duologue_schema_derive::wire;
use serde::de::{DeserializeOwned, Error as _};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use crate::wire::{WriteFields, schema_of};
use crate::{
    SessionConfigGroupId, SessionConfigId, SessionConfigValueId, SessionId, SessionMode, SessionModeState,
};

/// A setting of a session, with its current value.
#[wire]
pub struct SessionConfigOption {
    /// The id of the option.
    pub id: SessionConfigId,
    /// The name to show to the user.
    pub name: String,
    /// A description of the option.
    #[wire(lenient)]
    pub description: Option<String>,
    /// The category of the option.
    #[wire(lenient)]
    pub category: Option<SessionConfigOptionCategory>,
    /// The kind of choice, with the current value.
    #[wire(flatten)]
    pub kind: SessionConfigKind,
}

impl SessionConfigOption {
    /// Creates an option with a list of values.
    pub fn select(
        id: impl Into<SessionConfigId>,
        name: impl Into<String>,
        current_value: impl Into<SessionConfigValueId>,
        options: impl Into<SessionConfigSelectOptions>,
    ) -> Self {
        Self::new(id, name, SessionConfigSelect::new(current_value, options))
    }

    /// Creates a boolean option. Only for clients with `session.configOptions.boolean`.
    pub fn boolean(id: impl Into<SessionConfigId>, name: impl Into<String>, current_value: bool) -> Self {
        Self::new(id, name, SessionConfigBoolean::new(current_value))
    }

    /// Sets the current value. A value of another kind than the option changes nothing.
    pub fn set_value(&mut self, value: &SessionConfigOptionValue) {
        match (&mut self.kind, value) {
            (SessionConfigKind::Select(select), SessionConfigOptionValue::ValueId(value)) => {
                select.current_value.clone_from(value);
            }
            (SessionConfigKind::Boolean(boolean), SessionConfigOptionValue::Boolean(value)) => {
                boolean.current_value = *value;
            }
            _ => {}
        }
    }

    /// Returns the values as modes. `None` for an option without a list of values.
    #[must_use]
    pub fn to_modes(&self) -> Option<SessionModeState> {
        let SessionConfigKind::Select(select) = &self.kind else { return None };
        let modes = select.options.values().map(|value| {
            let mut mode = SessionMode::new(value.value.as_str(), value.name.as_str());
            mode.description.clone_from(&value.description);
            mode
        });
        Some(SessionModeState::new(select.current_value.as_str(), modes.collect::<Vec<_>>()))
    }
}

/// The kind of choice that an option offers.
#[wire(tag = "type")]
pub enum SessionConfigKind {
    /// A value from a list.
    Select(SessionConfigSelect),
    /// A boolean.
    Boolean(SessionConfigBoolean),
}

/// The category of an option. Names that start with `_` are private to an implementation.
#[wire(open)]
pub enum SessionConfigOptionCategory {
    /// The session's mode.
    Mode,
    /// The model.
    Model,
    /// A setting of the model.
    ModelConfig,
    /// The amount of reasoning of the model.
    ThoughtLevel,
    /// The speed of the model.
    #[cfg(feature = "unstable")]
    Speed,
}

/// A choice from a list.
#[wire(no_meta)]
pub struct SessionConfigSelect {
    /// The current value.
    pub current_value: SessionConfigValueId,
    /// The values to choose from.
    pub options: SessionConfigSelectOptions,
}

/// A boolean choice.
#[wire(no_meta)]
pub struct SessionConfigBoolean {
    /// The current value.
    pub current_value: bool,
}

/// The values to choose from, as a plain list or in groups.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum SessionConfigSelectOptions {
    /// A plain list.
    Ungrouped(Vec<SessionConfigSelectOption>),
    /// A list of groups.
    Grouped(Vec<SessionConfigSelectGroup>),
}

impl<'de> Deserialize<'de> for SessionConfigSelectOptions {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        fn parse<T: DeserializeOwned>(raw: &RawValue) -> serde_json::Result<Vec<T>> {
            serde_json::from_str(raw.get())
        }
        let raw = Box::<RawValue>::deserialize(d)?;
        match parse(&raw) {
            Ok(options) => Ok(Self::Ungrouped(options)),
            Err(_) => parse(&raw).map(Self::Grouped).map_err(D::Error::custom),
        }
    }
}

impl SessionConfigSelectOptions {
    /// Returns all values, also those in groups.
    pub fn values(&self) -> impl Iterator<Item = &SessionConfigSelectOption> {
        let (plain, groups): (&[_], &[SessionConfigSelectGroup]) = match self {
            Self::Ungrouped(values) => (values, &[]),
            Self::Grouped(groups) => (&[], groups),
        };
        plain.iter().chain(groups.iter().flat_map(|group| &group.options))
    }
}

impl From<Vec<SessionConfigSelectOption>> for SessionConfigSelectOptions {
    fn from(options: Vec<SessionConfigSelectOption>) -> Self {
        Self::Ungrouped(options)
    }
}

impl From<Vec<SessionConfigSelectGroup>> for SessionConfigSelectOptions {
    fn from(groups: Vec<SessionConfigSelectGroup>) -> Self {
        Self::Grouped(groups)
    }
}

schema_of!(SessionConfigSelectOptions, "SessionConfigSelectOptions", |generator| {
    let variants = [
        generator.subschema_for::<Vec<SessionConfigSelectOption>>(),
        generator.subschema_for::<Vec<SessionConfigSelectGroup>>(),
    ];
    crate::export::any_of("The values to choose from, as a plain list or in groups.", variants)
});

/// A value to choose.
#[wire]
pub struct SessionConfigSelectOption {
    /// The id of the value.
    pub value: SessionConfigValueId,
    /// The name to show to the user.
    pub name: String,
    /// A description of the value.
    #[wire(lenient)]
    pub description: Option<String>,
}

/// A group of values.
#[wire]
pub struct SessionConfigSelectGroup {
    /// The id of the group.
    pub group: SessionConfigGroupId,
    /// The name to show to the user.
    pub name: String,
    /// The values of the group.
    #[wire(skip_invalid)]
    pub options: Vec<SessionConfigSelectOption>,
}

/// All options of a session. They replace the previous ones.
#[wire]
pub struct ConfigOptionUpdate {
    /// The options, the most important first.
    #[wire(skip_invalid)]
    pub config_options: Vec<SessionConfigOption>,
}

/// The params of `session/set_config_option`, which chooses a value.
#[wire]
pub struct SetSessionConfigOptionRequest {
    /// The session.
    pub session_id: SessionId,
    /// The id of the option.
    pub config_id: SessionConfigId,
    /// The value.
    #[wire(flatten)]
    pub value: SessionConfigOptionValue,
}

/// A value for a config option.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum SessionConfigOptionValue {
    /// The value of a boolean option.
    Boolean(bool),
    /// The value of an option with a list.
    ValueId(SessionConfigValueId),
}

impl From<bool> for SessionConfigOptionValue {
    fn from(value: bool) -> Self {
        Self::Boolean(value)
    }
}

impl<T: Into<SessionConfigValueId>> From<T> for SessionConfigOptionValue {
    fn from(value: T) -> Self {
        Self::ValueId(value.into())
    }
}

impl WriteFields for SessionConfigOptionValue {
    fn write<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        match self {
            Self::Boolean(value) => {
                map.serialize_entry("type", "boolean")?;
                map.serialize_entry("value", value)
            }
            Self::ValueId(value) => map.serialize_entry("value", value),
        }
    }
}

/// Reads a string as a value id whatever `type` is. A boolean requires the type `boolean`.
impl<'de> Deserialize<'de> for SessionConfigOptionValue {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Fields {
            #[serde(default, rename = "type")]
            kind: serde_json::Value,
            value: serde_json::Value,
        }
        let Fields { kind, value } = Fields::deserialize(d)?;
        match value {
            serde_json::Value::String(text) => Ok(Self::ValueId(text.into())),
            serde_json::Value::Bool(value) if kind == "boolean" => Ok(Self::Boolean(value)),
            _ => Err(D::Error::custom("`value` must be a string, or a boolean with type `boolean`")),
        }
    }
}

schema_of!(
    SessionConfigOptionValue,
    "SessionConfigOptionValue",
    |generator| schemars::json_schema!({ "anyOf": [
        {
            "description": "The value of a boolean option.",
            "type": "object",
            "properties": { "type": { "type": "string", "const": "boolean" }, "value": { "type": "boolean" } },
            "required": ["type", "value"],
        },
        {
            "description": "The value of an option with a list.",
            "type": "object",
            "properties": { "value": generator.subschema_for::<SessionConfigValueId>() },
            "required": ["value"],
        },
    ]})
);

/// The answer to `session/set_config_option`.
#[wire]
pub struct SetSessionConfigOptionResponse {
    /// All options with their current values, since one choice can change others.
    #[wire(skip_invalid)]
    pub config_options: Vec<SessionConfigOption>,
}
