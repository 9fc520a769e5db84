//! Methods that create and resume sessions, and prompts.

use duologue_schema_derive::wire;

use super::{AbsolutePath, AvailableCommand, IdempotencyKey, McpServer, SessionConfigOption};
use crate::{ContentBlock, MessageId, SessionId, SystemPrompt};

/// The params of `session/new`, which creates a session.
#[wire]
pub struct NewSessionRequest {
    /// The working directory.
    pub cwd: AbsolutePath,
    /// Further working directories.
    #[wire(default, null_default)]
    pub additional_directories: Vec<AbsolutePath>,
    /// The MCP servers to use.
    #[wire(default, null_default)]
    pub mcp_servers: Vec<McpServer>,
    /// Instructions of the client to the model. Only for agents with `session.systemPrompt`.
    pub system_prompt: Option<SystemPrompt>,
    /// The first values of config options. Only for agents with `session.options`.
    #[cfg(feature = "unstable")]
    #[wire(default, null_default)]
    pub config_options: Vec<super::InitialSessionConfigOption>,
}

/// The answer to `session/new`.
#[wire]
pub struct NewSessionResponse {
    /// The session.
    pub session_id: SessionId,
    /// The config options of the session.
    #[wire(default, skip_invalid)]
    pub config_options: Vec<SessionConfigOption>,
    /// The slash commands of the session.
    #[wire(default, skip_invalid)]
    pub available_commands: Vec<AvailableCommand>,
}

/// The params of `session/resume`, which opens an earlier session.
#[wire]
pub struct ResumeSessionRequest {
    /// The session.
    pub session_id: SessionId,
    /// The working directory.
    pub cwd: AbsolutePath,
    /// Further working directories.
    #[wire(default, null_default)]
    pub additional_directories: Vec<AbsolutePath>,
    /// The MCP servers to use.
    #[wire(default, null_default)]
    pub mcp_servers: Vec<McpServer>,
    /// The start of the history to send as updates. Without one, no history is sent.
    pub replay_from: Option<ReplayFrom>,
    /// Instructions of the client to the model. Only for agents with `session.systemPrompt`.
    pub system_prompt: Option<SystemPrompt>,
    /// The first values of config options. Only for agents with `session.options`.
    #[cfg(feature = "unstable")]
    #[wire(default, null_default)]
    pub config_options: Vec<super::InitialSessionConfigOption>,
}

/// A place in the history of a session. An agent rejects a request with an unknown one.
#[wire(tag = "type", open)]
pub enum ReplayFrom {
    /// The start of the session.
    Start(ReplayFromStart),
}

/// The start of a session.
#[wire]
pub struct ReplayFromStart {}

/// The answer to `session/resume`. It follows the last update of the history.
#[wire]
pub struct ResumeSessionResponse {
    /// The config options of the session.
    #[wire(default, skip_invalid)]
    pub config_options: Vec<SessionConfigOption>,
    /// The slash commands of the session.
    #[wire(default, skip_invalid)]
    pub available_commands: Vec<AvailableCommand>,
}

/// The params of `session/fork`, which creates a session with the context of another one.
#[wire]
pub struct ForkSessionRequest {
    /// The session to fork.
    pub session_id: SessionId,
    /// The working directory.
    pub cwd: AbsolutePath,
    /// Further working directories.
    #[wire(default, null_default)]
    pub additional_directories: Vec<AbsolutePath>,
    /// The MCP servers to use.
    #[wire(default, null_default)]
    pub mcp_servers: Vec<McpServer>,
    /// Instructions of the client to the model. Only for agents with `session.systemPrompt`.
    pub system_prompt: Option<SystemPrompt>,
    /// The first values of config options. Only for agents with `session.options`.
    #[cfg(feature = "unstable")]
    #[wire(default, null_default)]
    pub config_options: Vec<super::InitialSessionConfigOption>,
    /// The cursor at which to fork. An agent rejects an unknown one.
    pub cursor_id: Option<crate::CursorId>,
}

/// The answer to `session/fork`.
#[wire]
pub struct ForkSessionResponse {
    /// The new session.
    pub session_id: SessionId,
    /// The config options of the session.
    #[wire(default, skip_invalid)]
    pub config_options: Vec<SessionConfigOption>,
    /// The slash commands of the session.
    #[wire(default, skip_invalid)]
    pub available_commands: Vec<AvailableCommand>,
}

/// The params of `session/prompt`, which adds a message of the user to a session.
#[wire]
pub struct PromptRequest {
    /// The session.
    pub session_id: SessionId,
    /// The prompt of the user, at least one block.
    pub prompt: Vec<ContentBlock>,
    /// The key that makes a repeated request the same one.
    pub idempotency_key: Option<IdempotencyKey>,
}

/// The answer to `session/prompt`: the agent has added the message. Its work goes on, and `state_update` ends it.
#[wire]
pub struct PromptResponse {
    /// The id of the message. The agent also sends the message as an update with it.
    pub message_id: MessageId,
}

/// The params of `session/cancel`, which asks the agent to end its work in a session.
#[wire]
pub struct CancelSessionNotification {
    /// The session.
    pub session_id: SessionId,
}

/// The answer to `session/options`. The response that opens a session has the options that count.
#[wire]
pub struct SessionOptionsResponse {
    /// The config options.
    #[wire(default, skip_invalid)]
    pub config_options: Vec<SessionConfigOption>,
    /// The slash commands.
    #[wire(default, skip_invalid)]
    pub available_commands: Vec<AvailableCommand>,
}
