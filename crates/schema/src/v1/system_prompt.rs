//! Instructions of a client to the model of a session.

use duologue_schema_derive::wire;

use crate::ContentBlock;

/// The capability to read the field `systemPrompt`. Every agent with it appends.
#[wire]
pub struct SessionSystemPromptCapabilities {
    /// The further modes that the agent supports.
    #[wire(lenient)]
    pub mode: Option<SessionSystemPromptModeCapabilities>,
}

/// The modes of a system prompt that an agent supports besides appending.
#[wire]
pub struct SessionSystemPromptModeCapabilities {
    /// Present if the agent supports [`SystemPromptMode::Override`].
    #[wire(lenient)]
    pub r#override: Option<SessionSystemPromptOverrideCapabilities>,
}

/// The capability to replace the instructions of the agent.
#[wire]
pub struct SessionSystemPromptOverrideCapabilities {}

/// Instructions of the client to the model. An agent that cannot apply them fails the request.
#[wire]
pub struct SystemPrompt {
    /// The relation to the instructions of the agent.
    pub mode: SystemPromptMode,
    /// The instructions. Every agent with the capability accepts text.
    pub content: Vec<ContentBlock>,
}

/// The relation of a system prompt to the instructions of the agent.
#[wire(open)]
pub enum SystemPromptMode {
    /// After the instructions of the agent.
    Append,
    /// In place of the instructions of the agent.
    Override,
}
