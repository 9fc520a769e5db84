//! Finds relative paths in messages. The protocol requires absolute ones.

use std::fmt;
use std::path::Path;

use crate::{
    AgentNotification, AgentRequest, AgentResponse, ClientRequest, CreateTerminalRequest, PlanUpdate,
    PlanUpdateContent, ReadTextFileRequest, SessionUpdate, ToolCall, ToolCallContent, ToolCallLocation,
    ToolCallUpdate, WriteTextFileRequest,
};

/// A relative path in a message where the protocol requires an absolute one.
///
/// A path counts as absolute if it is absolute on any operating system, because the other side may run on another one.
/// To use a path on this system, check it with [`path_fault`](crate::path_fault).
///
/// ```
/// use duologue_schema::{SessionUpdate, ToolCall, ToolCallLocation};
///
/// let mut call = ToolCall::new("call-1", "Read");
/// call.locations = vec![ToolCallLocation::new("/src/main.rs"), ToolCallLocation::new("main.rs")];
/// let update = SessionUpdate::from(call);
/// let relative = update.relative_path().unwrap();
/// assert_eq!(relative.to_string(), r#"locations[].path "main.rs" must be absolute"#);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RelativePath<'a> {
    field: &'static str,
    path: &'a Path,
}

impl<'a> RelativePath<'a> {
    /// Returns the path of the field in its request, response or update.
    #[must_use]
    pub fn field(&self) -> &'static str {
        self.field
    }

    /// Returns the relative path.
    #[must_use]
    pub fn path(&self) -> &'a Path {
        self.path
    }

    fn find(field: &'static str, path: &'a Path) -> Option<Self> {
        (!is_absolute(path)).then_some(RelativePath { field, path })
    }

    fn find_in(field: &'static str, paths: impl IntoIterator<Item = &'a std::path::PathBuf>) -> Option<Self> {
        paths.into_iter().find_map(|path| Self::find(field, path))
    }

    fn in_call(content: &'a [ToolCallContent], locations: &'a [ToolCallLocation]) -> Option<Self> {
        let diffs = content.iter().flat_map(|content| match content {
            ToolCallContent::Diff(diff) => vec![&diff.path],
            #[cfg(feature = "protocol-v2")]
            ToolCallContent::Changes(diff) => diff.paths().collect(),
            _ => Vec::new(),
        });
        Self::find_in("locations[].path", locations.iter().map(|location| &location.path))
            .or_else(|| Self::find_in("content[].path", diffs))
    }
}

impl fmt::Display for RelativePath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?} must be absolute", self.field, self.path)
    }
}

/// Returns true for an absolute path of Unix or of Windows.
#[doc(hidden)]
#[must_use]
pub fn is_absolute(path: &Path) -> bool {
    let text = path.as_os_str().as_encoded_bytes();
    text.starts_with(b"/")
        || text.starts_with(br"\\")
        || matches!(text, [drive, b':', b'/' | b'\\', ..] if drive.is_ascii_alphabetic())
}

impl ToolCall {
    /// Returns a relative path in the locations or the diffs, if there is one.
    #[must_use]
    pub fn relative_path(&self) -> Option<RelativePath<'_>> {
        RelativePath::in_call(&self.content, &self.locations)
    }
}

impl ToolCallUpdate {
    /// Returns a relative path in the locations or the diffs, if there is one.
    #[must_use]
    pub fn relative_path(&self) -> Option<RelativePath<'_>> {
        RelativePath::in_call(
            self.content.as_deref().unwrap_or_default(),
            self.locations.as_deref().unwrap_or_default(),
        )
    }
}

impl SessionUpdate {
    /// Returns a relative path of a tool call, a terminal, a plan or a child session, if there is one.
    #[must_use]
    pub fn relative_path(&self) -> Option<RelativePath<'_>> {
        match self {
            Self::ToolCall(call) => call.relative_path(),
            Self::ToolCallUpdate(update) => update.relative_path(),
            #[cfg(feature = "protocol-v2")]
            Self::ToolCallContentChunk(chunk) => {
                RelativePath::in_call(std::slice::from_ref(&chunk.content), &[])
            }
            #[cfg(feature = "protocol-v2")]
            Self::TerminalUpdate(update) => RelativePath::find_in("cwd", update.cwd.value()),
            Self::PlanUpdate(PlanUpdate { plan: PlanUpdateContent::Markdown(plan), .. }) => {
                RelativePath::find_in("path", &plan.path)
            }
            Self::SubagentUpdate(update) => RelativePath::find_in("cwd", update.cwd.value()).or_else(|| {
                let directories = update.additional_directories.value();
                RelativePath::find_in("additionalDirectories[]", directories.into_iter().flatten())
            }),
            _ => None,
        }
    }
}

impl AgentNotification {
    /// Returns a relative path of a tool call, if there is one.
    #[must_use]
    pub fn relative_path(&self) -> Option<RelativePath<'_>> {
        match self {
            Self::SessionUpdate(notification) => notification.update.relative_path(),
            Self::CompleteElicitation(_) => None,
        }
    }
}

impl ReadTextFileRequest {
    /// Returns the path if it is relative.
    #[must_use]
    pub fn relative_path(&self) -> Option<RelativePath<'_>> {
        RelativePath::find("path", &self.path)
    }
}

impl WriteTextFileRequest {
    /// Returns the path if it is relative.
    #[must_use]
    pub fn relative_path(&self) -> Option<RelativePath<'_>> {
        RelativePath::find("path", &self.path)
    }
}

impl CreateTerminalRequest {
    /// Returns the folder of the program if it is relative.
    #[must_use]
    pub fn relative_path(&self) -> Option<RelativePath<'_>> {
        RelativePath::find_in("cwd", &self.cwd)
    }
}

impl AgentRequest {
    /// Returns a relative path in the params, if there is one.
    #[must_use]
    pub fn relative_path(&self) -> Option<RelativePath<'_>> {
        match self {
            Self::WriteTextFile(request) => request.relative_path(),
            Self::ReadTextFile(request) => request.relative_path(),
            Self::RequestPermission(request) => request.tool_call.relative_path(),
            Self::CreateTerminal(request) => request.relative_path(),
            _ => None,
        }
    }
}

impl AgentResponse {
    /// Returns a relative path in the result, if there is one.
    #[must_use]
    pub fn relative_path(&self) -> Option<RelativePath<'_>> {
        let Self::ListSessions(response) = self else { return None };
        response.sessions.iter().find_map(|session| {
            RelativePath::find("sessions[].cwd", &session.cwd).or_else(|| {
                RelativePath::find_in("sessions[].additionalDirectories[]", &session.additional_directories)
            })
        })
    }
}

impl ClientRequest {
    /// Returns a relative path in the params, if there is one. The `command` of an MCP server is not checked, because
    /// clients also send names that the agent looks up.
    #[must_use]
    pub fn relative_path(&self) -> Option<RelativePath<'_>> {
        let (cwd, additional_directories) = match self {
            Self::NewSession(request) => (&request.cwd, &request.additional_directories),
            Self::LoadSession(request) => (&request.cwd, &request.additional_directories),
            Self::ResumeSession(request) => (&request.cwd, &request.additional_directories),
            Self::ListSessions(request) => return RelativePath::find_in("cwd", &request.cwd),
            _ => return None,
        };
        RelativePath::find("cwd", cwd)
            .or_else(|| RelativePath::find_in("additionalDirectories[]", additional_directories))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        ListSessionsRequest, ListSessionsResponse, LoadSessionRequest, NewSessionRequest,
        RequestPermissionRequest, ResumeSessionRequest, SessionInfo, SessionNotification,
    };

    #[test]
    fn paths_of_all_systems_are_absolute() {
        for absolute in ["/", "/a", r"C:\a", "c:/a", r"\\server\share"] {
            assert!(is_absolute(Path::new(absolute)), "{absolute}");
        }
        for relative in ["", "a", "./a", "~/a", r"C:a", "C:", "1:/a", r"\a", "file:///a"] {
            assert!(!is_absolute(Path::new(relative)), "{relative}");
        }
    }

    #[test]
    fn relative_paths_are_found_in_every_message() {
        let found = |found: Option<RelativePath<'_>>| found.map(|found| found.field());
        let expected = |path: &str, field| (path == "a").then_some(field);
        for path in ["/a", "a"] {
            let diff = vec![ToolCallContent::from("text"), ToolCallContent::diff(path, None, "new")];
            let update = SessionUpdate::from(ToolCallUpdate::new("1").content(diff));
            assert_eq!(found(update.relative_path()), expected(path, "content[].path"));
            let update = ToolCallUpdate::new("1").locations([ToolCallLocation::new(path)]);
            let notification = AgentNotification::from(SessionNotification::new("s", update.clone()));
            assert_eq!(found(notification.relative_path()), expected(path, "locations[].path"));
            let call = SessionUpdate::from(ToolCall::from(update.clone()));
            assert_eq!(found(call.relative_path()), expected(path, "locations[].path"));

            for (request, field) in [
                (AgentRequest::from(RequestPermissionRequest::new("s", update, [])), "locations[].path"),
                (ReadTextFileRequest::new("s", path).into(), "path"),
                (WriteTextFileRequest::new("s", path, "").into(), "path"),
                (CreateTerminalRequest::new("s", "make").cwd(path).into(), "cwd"),
            ] {
                assert_eq!(found(request.relative_path()), expected(path, field), "{}", request.method());
            }
            assert_eq!(AgentRequest::from(CreateTerminalRequest::new("s", "make")).relative_path(), None);

            for (request, field) in [
                (ClientRequest::from(NewSessionRequest::new(path)), "cwd"),
                (LoadSessionRequest::new("s", path).into(), "cwd"),
                (ResumeSessionRequest::new("s", path).into(), "cwd"),
                (ListSessionsRequest::new().cwd(path).into(), "cwd"),
                (
                    NewSessionRequest::new("/").additional_directories([path.into()]).into(),
                    "additionalDirectories[]",
                ),
            ] {
                assert_eq!(found(request.relative_path()), expected(path, field), "{}", request.method());
            }

            let session = |cwd: &str| SessionInfo::new("s", cwd);
            for (session, field) in [
                (session(path), "sessions[].cwd"),
                (session("/").additional_directories([path.into()]), "sessions[].additionalDirectories[]"),
            ] {
                let response = AgentResponse::from(ListSessionsResponse::new([session]));
                assert_eq!(found(response.relative_path()), expected(path, field));
            }
        }
    }
}
