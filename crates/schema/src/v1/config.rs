//! Session config options: model, mode and whatever else an agent lets one choose.
//!
//! See [Session config options](https://agentclientprotocol.com/protocol/v1/session-config-options).

use duologue_schema_derive::wire;
use serde::de::{DeserializeOwned, Error as _};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use crate::wire::WriteFields;
use crate::{SessionConfigGroupId, SessionConfigId, SessionConfigValueId, SessionId};

/// One thing that can be chosen, and what is chosen now.
#[wire]
pub struct SessionConfigOption {
    /// Which option.
    pub id: SessionConfigId,
    /// Its name, for a person.
    pub name: String,
    /// What it does.
    #[wire(lenient)]
    pub description: Option<String>,
    /// What sort of choice it is.
    #[wire(lenient)]
    pub category: Option<SessionConfigOptionCategory>,
    /// How it is chosen, with the current value.
    #[wire(flatten)]
    pub kind: SessionConfigKind,
}

impl SessionConfigOption {
    /// An option with a list to choose from.
    pub fn select(
        id: impl Into<SessionConfigId>,
        name: impl Into<String>,
        current_value: impl Into<SessionConfigValueId>,
        options: impl Into<SessionConfigSelectOptions>,
    ) -> Self {
        Self::new(id, name, SessionConfigSelect::new(current_value, options))
    }

    /// An option that is on or off. Only for clients with `session.configOptions.boolean`.
    pub fn boolean(id: impl Into<SessionConfigId>, name: impl Into<String>, current_value: bool) -> Self {
        Self::new(id, name, SessionConfigBoolean::new(current_value))
    }
}

/// How an option is chosen.
#[wire(tag = "type")]
pub enum SessionConfigKind {
    /// From a list.
    Select(SessionConfigSelect),
    /// On or off.
    Boolean(SessionConfigBoolean),
}

/// What sort of choice an option is. Names that start with `_` are private to an implementation.
#[wire(open)]
pub enum SessionConfigOptionCategory {
    /// The session's mode.
    Mode,
    /// The model.
    Model,
    /// A setting of the model.
    ModelConfig,
    /// How much the model thinks.
    ThoughtLevel,
}

/// A choice from a list.
#[wire(no_meta)]
pub struct SessionConfigSelect {
    /// What is chosen.
    pub current_value: SessionConfigValueId,
    /// What can be.
    pub options: SessionConfigSelectOptions,
}

/// A choice between on and off.
#[wire(no_meta)]
pub struct SessionConfigBoolean {
    /// Whether it is on.
    pub current_value: bool,
}

/// The values to choose from: a plain list, or one in groups.
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

#[cfg(feature = "schemars")]
impl schemars::JsonSchema for SessionConfigSelectOptions {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "SessionConfigSelectOptions".into()
    }
    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let variants = [
            generator.subschema_for::<Vec<SessionConfigSelectOption>>(),
            generator.subschema_for::<Vec<SessionConfigSelectGroup>>(),
        ];
        crate::export::any_of("The values to choose from: a plain list, or one in groups.", variants)
    }
}

/// A value to choose.
#[wire]
pub struct SessionConfigSelectOption {
    /// Which value.
    pub value: SessionConfigValueId,
    /// Its name, for a person.
    pub name: String,
    /// What it means.
    #[wire(lenient)]
    pub description: Option<String>,
}

/// Values that belong together.
#[wire]
pub struct SessionConfigSelectGroup {
    /// Which group.
    pub group: SessionConfigGroupId,
    /// Its name, for a person.
    pub name: String,
    /// Its values.
    #[wire(skip_invalid)]
    pub options: Vec<SessionConfigSelectOption>,
}

/// All options of a session; they replace the ones before.
#[wire]
pub struct ConfigOptionUpdate {
    /// The options, the most important first.
    #[wire(skip_invalid)]
    pub config_options: Vec<SessionConfigOption>,
}

/// `session/set_config_option`: chooses a value.
#[wire]
pub struct SetSessionConfigOptionRequest {
    /// The session.
    pub session_id: SessionId,
    /// Which option.
    pub config_id: SessionConfigId,
    /// The value.
    #[wire(flatten)]
    pub value: SessionConfigOptionValue,
}

/// A value for a config option.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum SessionConfigOptionValue {
    /// For an option that is on or off.
    Boolean(bool),
    /// For an option with a list.
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

/// A string is a value id whatever `type` says; a boolean needs the `type` of one.
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
            _ => Err(D::Error::custom("value is a string, or a boolean with type boolean")),
        }
    }
}

#[cfg(feature = "schemars")]
impl schemars::JsonSchema for SessionConfigOptionValue {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "SessionConfigOptionValue".into()
    }
    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "anyOf": [
            {
                "description": "For an option that is on or off.",
                "type": "object",
                "properties": { "type": { "type": "string", "const": "boolean" }, "value": { "type": "boolean" } },
                "required": ["type", "value"],
            },
            {
                "description": "For an option with a list.",
                "type": "object",
                "properties": { "value": generator.subschema_for::<SessionConfigValueId>() },
                "required": ["value"],
            },
        ]})
    }
}

/// The answer to `session/set_config_option`.
#[wire]
pub struct SetSessionConfigOptionResponse {
    /// All options as they are now, since one choice can change others.
    #[wire(skip_invalid)]
    pub config_options: Vec<SessionConfigOption>,
}
