//! Sessions: making, loading, listing and closing them.
//!
//! See [Session setup](https://agentclientprotocol.com/protocol/v1/session-setup).

use std::path::PathBuf;

use duologue_schema_derive::wire;

use crate::{McpServer, SessionConfigOption, SessionId, SessionModeState};

/// `session/new`: makes a session.
#[wire]
pub struct NewSessionRequest {
    /// The directory to work in, as an absolute path.
    pub cwd: PathBuf,
    /// The MCP servers to use.
    #[wire(default, always, null_default)]
    pub mcp_servers: Vec<McpServer>,
    /// More directories to work in, as absolute paths.
    #[wire(default, null_default)]
    pub additional_directories: Vec<PathBuf>,
}

/// The answer to `session/new`.
#[wire]
pub struct NewSessionResponse {
    /// The session.
    pub session_id: SessionId,
    /// Its modes, if it has any. Config options, where there are some, take their place.
    #[wire(lenient)]
    pub modes: Option<SessionModeState>,
    /// Its config options.
    #[wire(skip_invalid)]
    pub config_options: Option<Vec<SessionConfigOption>>,
}

/// `session/load`: opens an old session and tells its whole story again, as updates.
#[wire]
pub struct LoadSessionRequest {
    /// The session.
    pub session_id: SessionId,
    /// The directory to work in, as an absolute path.
    pub cwd: PathBuf,
    /// The MCP servers to use.
    #[wire(default, always, null_default)]
    pub mcp_servers: Vec<McpServer>,
    /// More directories to work in, as absolute paths.
    #[wire(default, null_default)]
    pub additional_directories: Vec<PathBuf>,
}

/// The answer to `session/load`, after the last update of the story.
#[wire]
pub struct LoadSessionResponse {
    /// Its modes, if it has any.
    #[wire(lenient)]
    pub modes: Option<SessionModeState>,
    /// Its config options.
    #[wire(skip_invalid)]
    pub config_options: Option<Vec<SessionConfigOption>>,
}

/// `session/resume`: opens an old session without telling its story.
#[wire]
pub struct ResumeSessionRequest {
    /// The session.
    pub session_id: SessionId,
    /// The directory to work in, as an absolute path.
    pub cwd: PathBuf,
    /// The MCP servers to use.
    #[wire(default, null_default)]
    pub mcp_servers: Vec<McpServer>,
    /// More directories to work in, as absolute paths.
    #[wire(default, null_default)]
    pub additional_directories: Vec<PathBuf>,
}

/// The answer to `session/resume`.
#[wire]
pub struct ResumeSessionResponse {
    /// Its modes, if it has any.
    #[wire(lenient)]
    pub modes: Option<SessionModeState>,
    /// Its config options.
    #[wire(skip_invalid)]
    pub config_options: Option<Vec<SessionConfigOption>>,
}

/// `session/close`: ends what runs in a session and frees it.
#[wire]
pub struct CloseSessionRequest {
    /// The session.
    pub session_id: SessionId,
}

/// The answer to `session/close`.
#[wire]
pub struct CloseSessionResponse {}

/// `session/delete`: takes a session off the list.
#[wire]
pub struct DeleteSessionRequest {
    /// The session.
    pub session_id: SessionId,
}

/// The answer to `session/delete`.
#[wire]
pub struct DeleteSessionResponse {}

/// `session/list`: the sessions an agent knows, page by page.
///
/// See [Session list](https://agentclientprotocol.com/protocol/v1/session-list).
#[wire]
pub struct ListSessionsRequest {
    /// Only those of this directory.
    pub cwd: Option<PathBuf>,
    /// Where the last page ended, as its answer said.
    pub cursor: Option<String>,
}

/// The answer to `session/list`.
#[wire]
pub struct ListSessionsResponse {
    /// The sessions.
    #[wire(skip_invalid)]
    pub sessions: Vec<SessionInfo>,
    /// Where the page ended, if there are more.
    #[wire(lenient)]
    pub next_cursor: Option<String>,
}

/// A session on the list.
#[wire]
pub struct SessionInfo {
    /// Which session.
    pub session_id: SessionId,
    /// The directory it works in.
    pub cwd: PathBuf,
    /// More directories it works in.
    #[wire(default, skip_invalid)]
    pub additional_directories: Vec<PathBuf>,
    /// Its title.
    #[wire(lenient)]
    pub title: Option<String>,
    /// When something last happened in it, as an ISO 8601 timestamp.
    #[wire(lenient)]
    pub updated_at: Option<String>,
}
