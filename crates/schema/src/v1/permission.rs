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

impl RequestPermissionRequest {
    /// The option with this id, unless there is none, or several: nobody knows which of those the agent
    /// will take it for.
    #[must_use]
    pub fn option(&self, id: &PermissionOptionId) -> Option<&PermissionOption> {
        let mut options = self.options.iter().filter(|option| option.option_id == *id);
        options.next().filter(|_| options.next().is_none())
    }

    /// Yes or no: the option that says it for this time, else the one that says it from now on, else
    /// `cancelled`.
    ///
    /// ```
    /// use duologue_schema::{
    ///     PermissionOption, PermissionOptionKind, RequestPermissionOutcome, RequestPermissionRequest, ToolCallUpdate,
    /// };
    ///
    /// let yes = PermissionOption::new("y", "Yes", PermissionOptionKind::AllowOnce);
    /// let request = RequestPermissionRequest::new("session", ToolCallUpdate::new("call"), vec![yes]);
    /// assert_eq!(request.outcome(true), RequestPermissionOutcome::selected("y"));
    /// assert_eq!(request.outcome(false), RequestPermissionOutcome::Cancelled);
    /// ```
    #[must_use]
    pub fn outcome(&self, allow: bool) -> RequestPermissionOutcome {
        use PermissionOptionKind::{AllowAlways, AllowOnce, RejectAlways, RejectOnce};

        let kinds = if allow { [AllowOnce, AllowAlways] } else { [RejectOnce, RejectAlways] };
        let fits = |option: &&PermissionOption, kind| {
            option.kind == kind && self.option(&option.option_id).is_some()
        };
        let fitting =
            kinds.into_iter().find_map(|kind| self.options.iter().find(|option| fits(option, kind.clone())));
        fitting.map_or(RequestPermissionOutcome::Cancelled, |option| {
            RequestPermissionOutcome::selected(option.option_id.clone())
        })
    }
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
