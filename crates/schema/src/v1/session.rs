//! Methods that create, load, list and close sessions.
//!
//! See [Session setup](https://agentclientprotocol.com/protocol/v1/session-setup).

use std::path::PathBuf;

use duologue_schema_derive::wire;

use crate::{McpServer, SessionConfigOption, SessionId, SessionModeState};

/// The params of `session/new`, which creates a session.
#[wire]
pub struct NewSessionRequest {
    /// The working directory, as an absolute path.
    pub cwd: PathBuf,
    /// The MCP servers to use.
    #[wire(default, always, null_default)]
    pub mcp_servers: Vec<McpServer>,
    /// Further working directories, as absolute paths.
    #[wire(default, null_default)]
    pub additional_directories: Vec<PathBuf>,
}

/// The answer to `session/new`.
#[wire]
pub struct NewSessionResponse {
    /// The session.
    pub session_id: SessionId,
    /// The modes of the session, if any. Config options take precedence over modes.
    #[wire(lenient)]
    pub modes: Option<SessionModeState>,
    /// The config options of the session.
    #[wire(skip_invalid)]
    pub config_options: Option<Vec<SessionConfigOption>>,
}

/// The params of `session/load`, which opens an earlier session and replays its history as updates.
#[wire]
pub struct LoadSessionRequest {
    /// The session.
    pub session_id: SessionId,
    /// The working directory, as an absolute path.
    pub cwd: PathBuf,
    /// The MCP servers to use.
    #[wire(default, always, null_default)]
    pub mcp_servers: Vec<McpServer>,
    /// Further working directories, as absolute paths.
    #[wire(default, null_default)]
    pub additional_directories: Vec<PathBuf>,
}

/// The answer to `session/load`. It follows the last update of the history.
#[wire]
pub struct LoadSessionResponse {
    /// The modes of the session, if any.
    #[wire(lenient)]
    pub modes: Option<SessionModeState>,
    /// The config options of the session.
    #[wire(skip_invalid)]
    pub config_options: Option<Vec<SessionConfigOption>>,
}

/// The params of `session/resume`, which opens an earlier session without its history.
#[wire]
pub struct ResumeSessionRequest {
    /// The session.
    pub session_id: SessionId,
    /// The working directory, as an absolute path.
    pub cwd: PathBuf,
    /// The MCP servers to use.
    #[wire(default, null_default)]
    pub mcp_servers: Vec<McpServer>,
    /// Further working directories, as absolute paths.
    #[wire(default, null_default)]
    pub additional_directories: Vec<PathBuf>,
}

/// The answer to `session/resume`.
#[wire]
pub struct ResumeSessionResponse {
    /// The modes of the session, if any.
    #[wire(lenient)]
    pub modes: Option<SessionModeState>,
    /// The config options of the session.
    #[wire(skip_invalid)]
    pub config_options: Option<Vec<SessionConfigOption>>,
}

/// The params of `session/close`, which cancels the work of a session and frees it.
#[wire]
pub struct CloseSessionRequest {
    /// The session.
    pub session_id: SessionId,
}

/// The answer to `session/close`.
#[wire]
pub struct CloseSessionResponse {}

/// The params of `session/delete`, which removes a session from the list.
#[wire]
pub struct DeleteSessionRequest {
    /// The session.
    pub session_id: SessionId,
}

/// The answer to `session/delete`.
#[wire]
pub struct DeleteSessionResponse {}

/// The params of `session/list`, which returns the sessions of an agent page by page.
///
/// See [Session list](https://agentclientprotocol.com/protocol/v1/session-list).
#[wire]
pub struct ListSessionsRequest {
    /// Restricts the list to sessions of this directory.
    pub cwd: Option<PathBuf>,
    /// The `next_cursor` of the previous page.
    pub cursor: Option<String>,
}

/// The answer to `session/list`.
#[wire]
pub struct ListSessionsResponse {
    /// The sessions.
    #[wire(skip_invalid)]
    pub sessions: Vec<SessionInfo>,
    /// The cursor of the next page, if there is one.
    #[wire(lenient)]
    pub next_cursor: Option<String>,
}

/// A session in the list.
#[wire]
pub struct SessionInfo {
    /// The id of the session.
    pub session_id: SessionId,
    /// The working directory.
    pub cwd: PathBuf,
    /// Further working directories.
    #[wire(default, skip_invalid)]
    pub additional_directories: Vec<PathBuf>,
    /// The title of the session.
    #[wire(lenient)]
    pub title: Option<String>,
    /// The time of the last activity, as an ISO 8601 timestamp.
    #[wire(lenient)]
    pub updated_at: Option<String>,
}
