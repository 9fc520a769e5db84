//! The requests of the agent to the user that are open.

use std::collections::BTreeMap;

use duologue_rpc::Responder;
use duologue_schema::{
    AgentRequest, CreateElicitationResponse, ProtocolVersion, RequestPermissionOutcome,
    RequestPermissionResponse,
};
#[cfg(feature = "protocol-v2")]
use duologue_schema::{StateUpdate, ToolCallId, v2::BackgroundWork, v2::RequestPermissionSubject};

use super::{EntryState, SessionEntry};

/// Responds to a request to the user whose work was cancelled.
type AnswerCancelled = fn(Responder);

/// The kind of a request to the user.
#[derive(Clone)]
pub(crate) struct QuestionKind {
    cancel: AnswerCancelled,
    /// The tool call that it belongs to, if it names one.
    #[cfg(feature = "protocol-v2")]
    call: Option<ToolCallId>,
}

impl QuestionKind {
    /// Returns the kind of a request, if it is one to the user.
    pub(crate) fn of(request: &AgentRequest) -> Option<Self> {
        let cancel: AnswerCancelled = match request {
            AgentRequest::RequestPermission(_) => |responder| {
                responder.respond(Ok(RequestPermissionResponse::new(RequestPermissionOutcome::Cancelled)));
            },
            AgentRequest::CreateElicitation(_) => {
                |responder| responder.respond(Ok(CreateElicitationResponse::cancel()))
            }
            _ => return None,
        };
        Some(QuestionKind {
            cancel,
            #[cfg(feature = "protocol-v2")]
            call: call_of(request).cloned(),
        })
    }

    /// Responds to a request whose work was cancelled.
    pub(crate) fn cancel(&self, responder: Responder) {
        (self.cancel)(responder);
    }
}

/// An open request to the user.
pub(super) struct UserQuestion {
    responder: Responder,
    kind: QuestionKind,
    /// True if no foreground work ran when the request arrived.
    #[cfg(feature = "protocol-v2")]
    was_idle: bool,
}

/// The open requests to the user of cancelled work.
pub(crate) struct OpenQuestions(BTreeMap<u64, UserQuestion>);

impl OpenQuestions {
    /// Responds to all of them with `cancelled`, as the protocol requires, and cancels their handlers.
    pub(crate) fn cancel(self) {
        for UserQuestion { responder, kind, .. } in self.0.into_values() {
            responder.cancellation().cancel();
            kind.cancel(responder);
        }
    }
}

impl SessionEntry {
    /// Adds a request to the user until it has its response or its work is cancelled. Returns its number.
    ///
    /// # Errors
    ///
    /// The responder, if the work was cancelled already.
    pub(crate) fn add_question(&self, responder: Responder, kind: QuestionKind) -> Result<u64, Responder> {
        let mut inner = self.lock();
        let question = UserQuestion {
            responder,
            kind,
            #[cfg(feature = "protocol-v2")]
            was_idle: inner.is_idle(),
        };
        if inner.turn.as_ref().is_some_and(|turn| turn.cancelled) && inner.is_cancelled_with_turn(&question) {
            return Err(question.responder);
        }
        inner.last_number += 1;
        let number = inner.last_number;
        inner.questions.insert(number, question);
        Ok(number)
    }

    /// Responds to a request to the user, unless a cancellation did. Runs under the lock, so that the choice
    /// of the user cannot follow a `session/cancel`.
    pub(crate) fn answer(&self, question: u64, answer: impl FnOnce(Responder)) {
        let mut inner = self.lock();
        if let Some(question) = inner.questions.remove(&question) {
            answer(question.responder);
        }
    }

    /// Returns the open requests to the user of a child session that is cancelled alone. In version 2 the agent cancels those
    /// that may belong to other work.
    pub(crate) fn cancel_child(&self, version: ProtocolVersion) -> OpenQuestions {
        let mut inner = self.lock();
        match version {
            ProtocolVersion::V1 => OpenQuestions(std::mem::take(&mut inner.questions)),
            _ => inner.take_questions(),
        }
    }

    /// Returns the open requests to the user, if no turn of this client runs. They belong to work that the agent or another
    /// client began.
    pub(crate) fn cancel_between_turns(&self) -> Option<OpenQuestions> {
        let mut inner = self.lock();
        inner.turn.is_none().then(|| inner.take_questions())
    }
}

/// Returns the tool call that a request to the user belongs to, if it names one.
#[cfg(feature = "protocol-v2")]
fn call_of(request: &AgentRequest) -> Option<&ToolCallId> {
    match request {
        AgentRequest::RequestPermission(request) => match request.question.as_deref() {
            Some(question) if question.is_stand_in => match &question.subject {
                Some(RequestPermissionSubject::Command(command)) => command.tool_call_id.as_ref(),
                _ => None,
            },
            _ => Some(&request.tool_call.tool_call_id),
        },
        AgentRequest::CreateElicitation(request) => request.mode.tool_call_id(),
        _ => None,
    }
}

impl EntryState {
    /// Removes the requests to the user that a cancellation answers.
    pub(super) fn take_questions(&mut self) -> OpenQuestions {
        let open = std::mem::take(&mut self.questions);
        let (cancelled, kept) =
            open.into_iter().partition(|(_, question)| self.is_cancelled_with_turn(question));
        self.questions = kept;
        OpenQuestions(cancelled)
    }

    /// Returns true if `session/cancel` cancels a request to the user. In version 1 it cancels all of them.
    #[cfg(not(feature = "protocol-v2"))]
    fn is_cancelled_with_turn(&self, _: &UserQuestion) -> bool {
        true
    }

    /// Returns true if `session/cancel` cancels a request to the user. In version 1 it cancels all of them, in version 2
    /// those that are known to belong to foreground work. The agent itself cancels others.
    #[cfg(feature = "protocol-v2")]
    fn is_cancelled_with_turn(&self, question: &UserQuestion) -> bool {
        if self.turn.as_ref().is_some_and(|turn| turn.progress.is_none()) {
            return true;
        }
        let foreground = self.conversation.state().foreground.as_ref();
        let background = foreground.and_then(StateUpdate::background).unwrap_or_default();
        let is_listed = |call: &ToolCallId| {
            background
                .iter()
                .any(|work| matches!(work, BackgroundWork::ToolCall(work) if work.tool_call_id == *call))
        };
        // A request without a tool call may belong to any of the work in the background.
        let may_be_background = question.kind.call.as_ref().map_or(!background.is_empty(), is_listed);
        !question.was_idle && !may_be_background
    }

    /// Returns true if no foreground work runs. A session is idle until the agent reports another state.
    #[cfg(feature = "protocol-v2")]
    fn is_idle(&self) -> bool {
        let state = self.conversation.state().foreground.as_ref();
        self.turn.is_none() && state.is_none_or(|state| matches!(state, StateUpdate::Idle(_)))
    }
}
