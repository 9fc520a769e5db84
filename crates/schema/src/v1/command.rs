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

impl AvailableCommand {
    /// Accepts any text after the name, and shows this hint until the user types.
    ///
    /// ```
    /// use duologue_schema::AvailableCommand;
    ///
    /// let plan = AvailableCommand::new("plan", "Plans the work").hint("the work to plan");
    /// let json = r#"{"name":"plan","description":"Plans the work","input":{"hint":"the work to plan"}}"#;
    /// assert_eq!(serde_json::to_string(&plan)?, json);
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    #[must_use]
    pub fn hint(self, hint: impl Into<String>) -> Self {
        self.input(UnstructuredCommandInput::new(hint))
    }
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
