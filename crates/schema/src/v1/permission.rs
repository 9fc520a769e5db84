//! Asking the person before a tool runs.
//!
//! See [Requesting permission](https://agentclientprotocol.com/protocol/v1/tool-calls#requesting-permission).

use duologue_schema_derive::wire;

use crate::{PermissionOptionId, SessionId, ToolCallUpdate};

/// `session/request_permission`: asks whether a tool call may run.
#[wire]
pub struct RequestPermissionRequest {
    /// The session.
    pub session_id: SessionId,
    /// The call, perhaps not announced before; take it as an update too.
    pub tool_call: ToolCallUpdate,
    /// The answers to choose from.
    pub options: Vec<PermissionOption>,
}

/// One of the answers to choose from.
#[wire]
pub struct PermissionOption {
    /// Which answer.
    pub option_id: PermissionOptionId,
    /// What the button says.
    pub name: String,
    /// What it means, for icons and policies.
    pub kind: PermissionOptionKind,
}

/// What an answer means.
#[wire]
pub enum PermissionOptionKind {
    /// Yes, this time.
    AllowOnce,
    /// Yes, from now on.
    AllowAlways,
    /// No, this time.
    RejectOnce,
    /// No, from now on.
    RejectAlways,
}

/// The answer to `session/request_permission`.
#[wire]
pub struct RequestPermissionResponse {
    /// What came of it.
    pub outcome: RequestPermissionOutcome,
}

/// What came of a permission request. Anything but a selected option is no permission.
#[wire(tag = "outcome")]
pub enum RequestPermissionOutcome {
    /// The turn was cancelled before the person chose. After `session/cancel` a client must answer
    /// so; see [Cancellation](https://agentclientprotocol.com/protocol/v1/prompt-turn#cancellation).
    Cancelled,
    /// The person chose.
    Selected(SelectedPermissionOutcome),
}

impl RequestPermissionOutcome {
    /// The person chose an option.
    pub fn selected(option_id: impl Into<PermissionOptionId>) -> Self {
        Self::Selected(SelectedPermissionOutcome::new(option_id))
    }
}

/// What the person chose.
#[wire]
pub struct SelectedPermissionOutcome {
    /// Which of the options.
    pub option_id: PermissionOptionId,
}
