//! Session config options. In version 2 the modes of a session are an option of the category `mode`.

use duologue_schema_derive::wire;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use crate::wire::schema_of;
use crate::{
    SessionConfigBoolean, SessionConfigGroupId, SessionConfigId, SessionConfigOptionCategory,
    SessionConfigSelectOption, SessionConfigValueId, SessionId,
};

/// A setting of a session, with its current value.
#[wire]
pub struct SessionConfigOption {
    /// The id of the option.
    pub config_id: SessionConfigId,
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

/// The kind of choice that an option offers.
#[wire(tag = "type", open)]
pub enum SessionConfigKind {
    /// A value from a list.
    Select(SessionConfigSelect),
    /// A boolean.
    Boolean(SessionConfigBoolean),
}

/// A choice from a list.
#[wire(no_meta)]
pub struct SessionConfigSelect {
    /// The current value.
    pub current_value: SessionConfigValueId,
    /// The values to choose from.
    pub options: SessionConfigSelectOptions,
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

/// A group of values.
#[wire]
pub struct SessionConfigSelectGroup {
    /// The id of the group.
    pub group_id: SessionConfigGroupId,
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
    #[wire(skip_items)]
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

/// A value for a config option, with its type.
#[wire(tag = "type", open)]
pub enum SessionConfigOptionValue {
    /// The value of an option with a list.
    Id(ChosenValueId),
    /// The value of a boolean option.
    Boolean(ChosenBoolean),
}

/// The value of an option with a list.
#[wire(no_meta)]
pub struct ChosenValueId {
    /// The id of the value.
    pub value: SessionConfigValueId,
}

/// The value of a boolean option.
#[wire(no_meta)]
pub struct ChosenBoolean {
    /// The value.
    pub value: bool,
}

/// The first value of a config option of a session. An agent ignores an unknown option or a value that does not fit.
#[wire]
pub struct InitialSessionConfigOption {
    /// The id of the option.
    pub config_id: SessionConfigId,
    /// The value.
    #[wire(flatten)]
    pub value: SessionConfigOptionValue,
}

/// The answer to `session/set_config_option`.
#[wire]
pub struct SetSessionConfigOptionResponse {
    /// All options with their current values, since one choice can change others.
    #[wire(skip_items)]
    pub config_options: Vec<SessionConfigOption>,
}
