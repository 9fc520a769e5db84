//! Methods that fork, archive, rename and look up sessions.

use std::path::PathBuf;

use duologue_schema_derive::wire;

use crate::{McpServer, SessionConfigOption, SessionId, SessionModeState, SystemPrompt};

/// The capability to handle `session/fork`.
#[wire]
pub struct SessionForkCapabilities {}

/// The capability to handle `session/archive`, `session/unarchive` and `archived` of `session/list`.
#[wire]
pub struct SessionArchiveCapabilities {}

/// The capability to handle `session/status`.
#[wire]
pub struct SessionStatusCapabilities {}

/// The capability to handle `session/set_title`.
#[wire]
pub struct SessionTitleCapabilities {}

/// The params of `session/fork`, which creates a session with the context of another one.
#[wire]
pub struct ForkSessionRequest {
    /// The session to fork.
    pub session_id: SessionId,
    /// The working directory, as an absolute path.
    pub cwd: PathBuf,
    /// The MCP servers to use.
    #[wire(default, null_default)]
    pub mcp_servers: Vec<McpServer>,
    /// Further working directories, as absolute paths.
    #[wire(default, null_default)]
    pub additional_directories: Vec<PathBuf>,
    /// Instructions of the client to the model. Only for agents with `session_capabilities.system_prompt`.
    pub system_prompt: Option<SystemPrompt>,
    /// The first values of config options. Only for agents with `session_capabilities.options`.
    #[wire(default, null_default)]
    pub config_options: Vec<crate::InitialSessionConfigOption>,
    /// The cursor at which to fork, which accepts `session/fork`. An agent rejects an unknown one.
    pub cursor_id: Option<crate::CursorId>,
}

/// The answer to `session/fork`.
#[wire]
pub struct ForkSessionResponse {
    /// The new session.
    pub session_id: SessionId,
    /// The modes of the session, if any.
    #[wire(lenient)]
    pub modes: Option<SessionModeState>,
    /// The config options of the session.
    #[wire(skip_invalid)]
    pub config_options: Option<Vec<SessionConfigOption>>,
    /// The slash commands, from an agent of version 2. Version 1 sends them as an update.
    #[cfg(feature = "protocol-v2")]
    #[wire(local)]
    pub available_commands: Vec<crate::AvailableCommand>,
}

/// The params of `session/archive`, which hides a session from the usual list.
#[wire]
pub struct ArchiveSessionRequest {
    /// The session.
    pub session_id: SessionId,
}

/// The answer to `session/archive`.
#[wire]
pub struct ArchiveSessionResponse {}

/// The params of `session/unarchive`, which returns a session to the usual list.
#[wire]
pub struct UnarchiveSessionRequest {
    /// The session.
    pub session_id: SessionId,
}

/// The answer to `session/unarchive`.
#[wire]
pub struct UnarchiveSessionResponse {}

/// A filter of `session/list` by the archive.
#[wire(open)]
pub enum SessionArchiveFilter {
    /// Without archived sessions, as if the filter were absent.
    Exclude,
    /// All sessions.
    Include,
    /// Archived sessions alone.
    Only,
}

/// The params of `session/set_title`, which renames a session.
#[wire]
pub struct SetSessionTitleRequest {
    /// The session.
    pub session_id: SessionId,
    /// The title.
    pub title: String,
}

/// The answer to `session/set_title`.
#[wire]
pub struct SetSessionTitleResponse {
    /// The title, possibly changed by the agent.
    pub title: String,
}

/// The params of `session/status`, which tells if the agent has a session in memory.
#[wire]
pub struct SessionStatusRequest {
    /// The session.
    pub session_id: SessionId,
}

/// The answer to `session/status`.
#[wire]
pub struct SessionStatusResponse {
    /// The status.
    pub status: SessionStatus,
    /// The state of the foreground work, from an agent of version 2.
    #[cfg(feature = "protocol-v2")]
    #[wire(lenient)]
    pub state: Option<crate::StateUpdate>,
}

/// The place of a session. Read an unknown one as `Saved`.
#[wire(open)]
pub enum SessionStatus {
    /// The agent has the session in memory.
    Open,
    /// The agent can load the session.
    Saved,
}
