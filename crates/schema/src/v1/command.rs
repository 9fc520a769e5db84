//! Slash commands an agent offers.
//!
//! See [Slash commands](https://agentclientprotocol.com/protocol/v1/slash-commands).

use duologue_schema_derive::wire;
use serde::{Deserialize, Deserializer, Serialize};

use crate::wire::Lenient;

/// All commands of a session; they replace the ones before.
#[wire]
pub struct AvailableCommandsUpdate {
    /// The commands.
    #[wire(skip_invalid)]
    pub available_commands: Vec<AvailableCommand>,
}

/// A command; a prompt calls it by starting with `/name`.
#[wire]
pub struct AvailableCommand {
    /// Its name, without the slash.
    pub name: String,
    /// What it does.
    pub description: String,
    /// What may follow the name.
    #[wire(lenient)]
    pub input: Option<AvailableCommandInput>,
}

/// What may follow the name of a command.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum AvailableCommandInput {
    /// Any text.
    Unstructured(UnstructuredCommandInput),
}

impl<'de> Deserialize<'de> for AvailableCommandInput {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        UnstructuredCommandInput::deserialize(d).map(Self::Unstructured)
    }
}

impl Lenient for AvailableCommandInput {}

impl From<UnstructuredCommandInput> for AvailableCommandInput {
    fn from(input: UnstructuredCommandInput) -> Self {
        Self::Unstructured(input)
    }
}

#[cfg(feature = "schemars")]
impl schemars::JsonSchema for AvailableCommandInput {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "AvailableCommandInput".into()
    }
    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let variants = [generator.subschema_for::<UnstructuredCommandInput>()];
        crate::export::any_of("What may follow the name of a command.", variants)
    }
}

/// Any text after the name of a command.
#[wire]
pub struct UnstructuredCommandInput {
    /// Shown while nothing is typed yet.
    pub hint: String,
}
