//! The slash commands that an agent offers.
//!
//! See [Slash commands](https://agentclientprotocol.com/protocol/v1/slash-commands).

use duologue_schema_derive::wire;
use serde::{Deserialize, Deserializer, Serialize};

use crate::wire::{Lenient, schema_of};

/// All commands of a session. They replace the previous ones.
#[wire]
pub struct AvailableCommandsUpdate {
    /// The commands.
    #[wire(skip_invalid)]
    pub available_commands: Vec<AvailableCommand>,
}

/// A command. A prompt that starts with `/name` calls it.
#[wire]
pub struct AvailableCommand {
    /// The name without the slash.
    pub name: String,
    /// A description of the command.
    pub description: String,
    /// The input that may follow the name.
    #[wire(lenient)]
    pub input: Option<AvailableCommandInput>,
}

/// The input that may follow the name of a command.
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

schema_of!(AvailableCommandInput, "AvailableCommandInput", |generator| {
    let variants = [generator.subschema_for::<UnstructuredCommandInput>()];
    crate::export::any_of("The input that may follow the name of a command.", variants)
});

/// Any text after the name of a command.
#[wire]
pub struct UnstructuredCommandInput {
    /// A hint to show until the user types.
    pub hint: String,
}
