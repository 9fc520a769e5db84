//! Permission requests: the user decides before a tool runs.
//!
//! See [Requesting permission](https://agentclientprotocol.com/protocol/v1/tool-calls#requesting-permission).

use duologue_schema_derive::wire;

use crate::{PermissionOptionId, SessionId, ToolCallUpdate};

/// The params of `session/request_permission`, which asks the user to allow a tool call.
#[wire]
pub struct RequestPermissionRequest {
    /// The session.
    pub session_id: SessionId,
    /// The tool call, possibly not announced before. Apply it as an update as well.
    pub tool_call: ToolCallUpdate,
    /// The options to choose from.
    pub options: Vec<PermissionOption>,
    /// The text and the subject of the question, from an agent of version 2.
    #[cfg(feature = "protocol-v2")]
    #[wire(local)]
    pub question: Option<Box<crate::v2::PermissionQuestion>>,
}

impl RequestPermissionRequest {
    /// Returns the option with this id. Returns `None` if several options share the id, since the
    /// meaning of a choice would be ambiguous.
    #[must_use]
    pub fn option(&self, id: &PermissionOptionId) -> Option<&PermissionOption> {
        let mut options = self.options.iter().filter(|option| option.option_id == *id);
        options.next().filter(|_| options.next().is_none())
    }

    /// Returns the outcome that allows or rejects the tool call. Prefers the option for this time
    /// over the option for always. Returns `Cancelled` if there is neither, or if
    /// [several](Self::has_several) options have the same meaning: no rule can choose between them.
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
        match self.options_for(allow)[..] {
            [option] => RequestPermissionOutcome::selected(option.option_id.clone()),
            _ => RequestPermissionOutcome::Cancelled,
        }
    }

    /// Returns true if several options with the same meaning allow or reject the tool call, such as the answers to a
    /// question. Only the user can choose one.
    #[must_use]
    pub fn has_several(&self, allow: bool) -> bool {
        self.options_for(allow).len() > 1
    }

    /// Returns the options for this time that allow or reject the tool call, or those for always if there are none. A
    /// single option whose id another one shares counts as none.
    fn options_for(&self, allow: bool) -> Vec<&PermissionOption> {
        use PermissionOptionKind::{AllowAlways, AllowOnce, RejectAlways, RejectOnce};

        let kinds = if allow { [AllowOnce, AllowAlways] } else { [RejectOnce, RejectAlways] };
        let of_kind = |kind| self.options.iter().filter(|option| option.kind == kind).collect::<Vec<_>>();
        let can_be_chosen = |options: &Vec<&PermissionOption>| match options[..] {
            [option] => self.option(&option.option_id).is_some(),
            _ => !options.is_empty(),
        };
        kinds.into_iter().map(of_kind).find(can_be_chosen).unwrap_or_default()
    }
}

/// One of the options to choose from.
#[wire]
pub struct PermissionOption {
    /// The id of the option.
    pub option_id: PermissionOptionId,
    /// The label of the option.
    pub name: String,
    /// The meaning of the option, for icons and policies.
    pub kind: PermissionOptionKind,
}

/// The meaning of a permission option.
#[wire]
pub enum PermissionOptionKind {
    /// Allows this call.
    AllowOnce,
    /// Allows this call and later ones.
    AllowAlways,
    /// Rejects this call.
    RejectOnce,
    /// Rejects this call and later ones.
    RejectAlways,
}

/// The answer to `session/request_permission`.
#[wire]
pub struct RequestPermissionResponse {
    /// The outcome.
    pub outcome: RequestPermissionOutcome,
}

impl From<RequestPermissionOutcome> for RequestPermissionResponse {
    fn from(outcome: RequestPermissionOutcome) -> Self {
        Self::new(outcome)
    }
}

/// The outcome of a permission request. Only a selected option can grant permission.
#[wire(tag = "outcome")]
pub enum RequestPermissionOutcome {
    /// The turn was cancelled before the user chose. A client must respond with it after
    /// `session/cancel`; see [Cancellation](https://agentclientprotocol.com/protocol/v1/prompt-turn#cancellation).
    Cancelled,
    /// The user chose an option.
    Selected(SelectedPermissionOutcome),
}

impl RequestPermissionOutcome {
    /// Creates the outcome for a chosen option.
    pub fn selected(option_id: impl Into<PermissionOptionId>) -> Self {
        Self::Selected(SelectedPermissionOutcome::new(option_id))
    }
}

/// The option that the user chose.
#[wire]
pub struct SelectedPermissionOutcome {
    /// The id of the option.
    pub option_id: PermissionOptionId,
}
