//! The slash commands that an agent offers.

use duologue_schema_derive::wire;

/// All commands of a session. They replace the previous ones.
#[wire]
pub struct AvailableCommandsUpdate {
    /// The commands.
    #[wire(skip_items)]
    pub available_commands: Vec<AvailableCommand>,
}

/// A command in one of its forms.
#[wire(tag = "type", open)]
pub enum AvailableCommand {
    /// A command that a prompt calls with `/name`.
    Command(Box<Command>),
    /// A skill that a prompt calls with a content block.
    #[cfg(feature = "unstable")]
    Skill(Box<super::Skill>),
}

/// A command that a prompt calls with `/name`.
#[wire]
pub struct Command {
    /// The name without the slash.
    pub name: String,
    /// A description of the command.
    pub description: String,
    /// The input that may follow the name.
    #[wire(lenient)]
    pub input: Option<AvailableCommandInput>,
}

/// The input that may follow the name of a command.
#[wire(tag = "type", open)]
pub enum AvailableCommandInput {
    /// Any text.
    Text(TextCommandInput),
}

/// Any text after the name of a command.
#[wire]
pub struct TextCommandInput {
    /// A hint to show until the user types.
    pub hint: String,
}
