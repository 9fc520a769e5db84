//! Skills of an agent, which the user calls with a content block.

use duologue_schema_derive::wire;

use super::AbsolutePath;

/// A skill that the user can call. Only for clients with `session.commands.skill`.
#[wire]
pub struct Skill {
    /// The name, which no other command or skill of the session has.
    pub name: String,
    /// A description of the skill.
    pub description: String,
    /// The file that defines the skill, on the machine of the agent.
    #[wire(lenient)]
    pub path: Option<AbsolutePath>,
}

/// A skill that the user calls with a prompt. The skill applies to the whole prompt.
#[wire]
pub struct SkillReference {
    /// The name of the skill.
    pub name: String,
}

/// The kinds of commands that a client shows besides `command`.
#[wire]
pub struct CommandsCapabilities {
    /// Present if the client shows skills.
    #[wire(lenient)]
    pub skill: Option<CommandsSkillCapabilities>,
}

/// The capability to show skills.
#[wire]
pub struct CommandsSkillCapabilities {}

/// The capability to read one skill in a prompt, as the first block.
#[wire]
pub struct PromptSkillCapabilities {
    /// Present if a prompt may contain any number of skills at any position.
    #[wire(lenient)]
    pub inline: Option<PromptSkillInlineCapabilities>,
}

/// The capability to read skills at any position of a prompt.
#[wire]
pub struct PromptSkillInlineCapabilities {}
