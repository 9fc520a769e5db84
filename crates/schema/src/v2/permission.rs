//! Permission requests.

use duologue_schema_derive::wire;

use super::{AbsolutePath, ToolCallUpdate};
use crate::{PermissionOption, SelectedPermissionOutcome, SessionId, TerminalId, ToolCallId};

/// The params of `session/request_permission`, which asks the user to allow an operation.
#[wire]
pub struct RequestPermissionRequest {
    /// The session.
    pub session_id: SessionId,
    /// The question to show to the user. It changes no tool call.
    pub title: String,
    /// The reason of the question.
    #[wire(lenient)]
    pub description: Option<String>,
    /// The operation.
    pub subject: Option<RequestPermissionSubject>,
    /// The options to choose from, at least one.
    pub options: Vec<PermissionOption>,
}

/// The operation that a permission request is about.
#[wire(tag = "type", open)]
pub enum RequestPermissionSubject {
    /// A tool call. Apply it as an update as well.
    ToolCall(Box<ToolCallPermissionSubject>),
    /// A command that the agent runs.
    Command(Box<CommandPermissionSubject>),
}

/// A tool call that needs permission.
#[wire]
pub struct ToolCallPermissionSubject {
    /// The tool call.
    pub tool_call: ToolCallUpdate,
}

/// A command that needs permission.
#[wire]
pub struct CommandPermissionSubject {
    /// The command.
    pub command: String,
    /// The working directory.
    pub cwd: AbsolutePath,
    /// The tool call that the command belongs to.
    #[wire(lenient)]
    pub tool_call_id: Option<ToolCallId>,
    /// The terminal of the command.
    #[wire(lenient)]
    pub terminal_id: Option<TerminalId>,
}

/// The parts of a permission request that version 1 lacks.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct PermissionQuestion {
    /// The question to show to the user.
    pub title: String,
    /// The reason of the question.
    pub description: Option<String>,
    /// The operation, unless it is a tool call, which is in the request itself. If there is neither, the tool call
    /// of the request stands in for it and is no update.
    pub subject: Option<RequestPermissionSubject>,
    /// True if the tool call of the request is only a description of the operation, and no update.
    pub is_stand_in: bool,
}

/// The answer to `session/request_permission`.
#[wire]
pub struct RequestPermissionResponse {
    /// The outcome.
    pub outcome: RequestPermissionOutcome,
}

/// The outcome of a permission request. Only a selected option can grant permission.
#[wire(tag = "outcome", open)]
pub enum RequestPermissionOutcome {
    /// The work was cancelled before the user chose.
    Cancelled(CancelledPermissionOutcome),
    /// The user chose an option.
    Selected(SelectedPermissionOutcome),
}

/// The outcome of a request whose work was cancelled.
#[wire]
pub struct CancelledPermissionOutcome {}
