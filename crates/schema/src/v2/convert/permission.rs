//! Permission requests.

use serde_json::json;

use crate::v2::{PermissionQuestion, RequestPermissionSubject, ToolCallPermissionSubject};
use crate::{
    RequestPermissionOutcome, RequestPermissionRequest, RequestPermissionResponse, ToolCallUpdate, ToolKind,
    v2,
};

/// The id of a tool call that only describes an operation.
const STAND_IN: &str = "permission";

/// A request about anything but a tool call gets one that describes the operation and
/// [is no update](PermissionQuestion::is_stand_in).
impl From<v2::RequestPermissionRequest> for RequestPermissionRequest {
    fn from(request: v2::RequestPermissionRequest) -> Self {
        let v2::RequestPermissionRequest { session_id, title, description, subject, options, meta } = request;
        let (tool_call, subject, is_stand_in) = match subject {
            Some(RequestPermissionSubject::ToolCall(subject)) => (subject.tool_call.into(), None, false),
            Some(RequestPermissionSubject::Command(command)) => {
                let id = command.tool_call_id.as_ref().map_or(STAND_IN, |id| id.as_str());
                let input = json!({ "command": command.command, "cwd": command.cwd });
                // The user allows the command, not the words of the agent about it.
                let shown = command.command.clone();
                let call = ToolCallUpdate::new(id).title(shown).kind(ToolKind::Execute).raw_input(input);
                (call, Some(RequestPermissionSubject::Command(command)), true)
            }
            Some(RequestPermissionSubject::Unknown(unknown)) => {
                // The title says what the agent chooses, so the user also sees the operation.
                let call =
                    ToolCallUpdate::new(STAND_IN).title(title.clone()).raw_input(unknown.json().clone());
                (call, Some(RequestPermissionSubject::Unknown(unknown)), true)
            }
            None => (ToolCallUpdate::new(STAND_IN).title(title.clone()), None, true),
        };
        let question = PermissionQuestion { title, description, subject, is_stand_in };
        RequestPermissionRequest { session_id, tool_call, options, question: Some(Box::new(question)), meta }
    }
}

impl From<RequestPermissionRequest> for v2::RequestPermissionRequest {
    fn from(request: RequestPermissionRequest) -> Self {
        let RequestPermissionRequest { session_id, tool_call, options, question, meta } = request;
        let of_call =
            |call: ToolCallUpdate| Some(RequestPermissionSubject::from(ToolCallPermissionSubject::new(call)));
        let (title, description, subject) = match question.map(|question| *question) {
            Some(question) if question.is_stand_in || question.subject.is_some() => {
                (question.title, question.description, question.subject)
            }
            Some(question) => (question.title, question.description, of_call(tool_call)),
            None => {
                let title =
                    tool_call.title.clone().unwrap_or_else(|| tool_call.tool_call_id.as_str().to_owned());
                (title, None, of_call(tool_call))
            }
        };
        v2::RequestPermissionRequest { session_id, title, description, subject, options, meta }
    }
}

impl From<v2::RequestPermissionResponse> for RequestPermissionResponse {
    fn from(response: v2::RequestPermissionResponse) -> Self {
        let outcome = match response.outcome {
            v2::RequestPermissionOutcome::Cancelled(_) => RequestPermissionOutcome::Cancelled,
            v2::RequestPermissionOutcome::Selected(selected) => selected.into(),
            v2::RequestPermissionOutcome::Unknown(unknown) => RequestPermissionOutcome::Unknown(unknown),
        };
        RequestPermissionResponse { outcome, meta: response.meta }
    }
}

impl From<RequestPermissionResponse> for v2::RequestPermissionResponse {
    fn from(response: RequestPermissionResponse) -> Self {
        let outcome = match response.outcome {
            RequestPermissionOutcome::Cancelled => v2::CancelledPermissionOutcome::new().into(),
            RequestPermissionOutcome::Selected(selected) => selected.into(),
            RequestPermissionOutcome::Unknown(unknown) => v2::RequestPermissionOutcome::Unknown(unknown),
        };
        v2::RequestPermissionResponse { outcome, meta: response.meta }
    }
}

impl PermissionQuestion {
    /// Creates the question of an agent that asks about the tool call of the request.
    pub fn new(title: impl Into<String>) -> Self {
        PermissionQuestion { title: title.into(), description: None, subject: None, is_stand_in: false }
    }
}
