//! Methods that create, load, list and close sessions.
//!
//! See [Session setup](https://agentclientprotocol.com/protocol/v1/session-setup).

use std::path::PathBuf;

use duologue_schema_derive::wire;

use crate::{Error, McpServer, SessionConfigOption, SessionId, SessionModeState};

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
    /// Instructions of the client to the model. Only for agents with `session_capabilities.system_prompt`.
    pub system_prompt: Option<crate::SystemPrompt>,
    /// The first values of config options. Only for agents with `session_capabilities.options`.
    #[cfg(feature = "unstable")]
    #[wire(default, null_default)]
    pub config_options: Vec<crate::InitialSessionConfigOption>,
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
    /// The slash commands, from an agent of version 2. Version 1 sends them as an update.
    #[cfg(feature = "protocol-v2")]
    #[wire(local)]
    pub available_commands: Vec<crate::AvailableCommand>,
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
    /// Instructions of the client to the model. Only for agents with `session_capabilities.system_prompt`.
    pub system_prompt: Option<crate::SystemPrompt>,
    /// The first values of config options. Only for agents with `session_capabilities.options`.
    #[cfg(feature = "unstable")]
    #[wire(default, null_default)]
    pub config_options: Vec<crate::InitialSessionConfigOption>,
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
    /// The slash commands, from an agent of version 2. Version 1 sends them as an update.
    #[cfg(feature = "protocol-v2")]
    #[wire(local)]
    pub available_commands: Vec<crate::AvailableCommand>,
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
    /// Instructions of the client to the model. Only for agents with `session_capabilities.system_prompt`.
    pub system_prompt: Option<crate::SystemPrompt>,
    /// The first values of config options. Only for agents with `session_capabilities.options`.
    #[cfg(feature = "unstable")]
    #[wire(default, null_default)]
    pub config_options: Vec<crate::InitialSessionConfigOption>,
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
    /// The slash commands, from an agent of version 2. Version 1 sends them as an update.
    #[cfg(feature = "protocol-v2")]
    #[wire(local)]
    pub available_commands: Vec<crate::AvailableCommand>,
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
    /// Includes or excludes archived sessions. Only for agents with `session_capabilities.archive`.
    #[cfg(feature = "unstable")]
    pub archived: Option<crate::SessionArchiveFilter>,
}

impl ListSessionsRequest {
    /// Returns the page that was requested: at most `most` of these sessions of an agent (at least one), without those of other
    /// directories. The cursor of a page is the id of its last session, so sessions that begin or end meanwhile do
    /// not shift the next page. The order must not change from one request to the next.
    ///
    /// ```
    /// use duologue_schema::{ListSessionsRequest, SessionInfo};
    ///
    /// let known = || ["c", "b", "a"].map(|id| SessionInfo::new(id, "/project"));
    /// let first = ListSessionsRequest::new().page(known(), 2)?;
    /// assert_eq!(first.sessions.len(), 2);
    /// let second = ListSessionsRequest::new().cursor(first.next_cursor.unwrap()).page(known(), 2)?;
    /// assert_eq!((second.sessions.len(), second.next_cursor), (1, None));
    /// assert!(ListSessionsRequest::new().cursor("unknown").page(known(), 2).is_err());
    /// # Ok::<(), duologue_schema::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `-32602` (invalid params) for a cursor that is no session of the list, for example because it was deleted. The
    /// client has to begin again.
    pub fn page(
        &self,
        sessions: impl IntoIterator<Item = SessionInfo>,
        most: usize,
    ) -> Result<ListSessionsResponse, Error> {
        let of_cwd = |session: &SessionInfo| self.cwd.as_ref().is_none_or(|cwd| session.cwd == *cwd);
        let mut sessions = sessions.into_iter().filter(of_cwd);
        if let Some(cursor) = &self.cursor
            && !sessions.any(|session| session.session_id.as_str() == cursor)
        {
            let message = "the cursor is not that of a page of this list; begin without a cursor";
            return Err(Error::invalid_params(message));
        }
        let page: Vec<SessionInfo> = sessions.by_ref().take(most.max(1)).collect();
        let last = page.last().map(|session| session.session_id.to_string());
        let mut response = ListSessionsResponse::new(page);
        response.next_cursor = last.filter(|_| sessions.next().is_some());
        Ok(response)
    }
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
    /// True if the session is archived.
    #[cfg(feature = "unstable")]
    #[wire(lenient)]
    pub archived: Option<bool>,
}
