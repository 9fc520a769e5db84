//! Questions of the agent to the user, and requests for actions on the machine of a client.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use duologue_schema::{
    CreateElicitationRequest, CreateElicitationResponse, ElicitationAction, ElicitationMode,
    Error as RpcError, PermissionOptionKind, Request as _, RequestId, RequestPermissionOutcome,
    RequestPermissionRequest, RequestPermissionResponse,
};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use crate::input::QuestionDecision;
use crate::record::ClientKey;

/// The kind of a question.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum SharedQuestionKind {
    /// A permission request, with the kinds of the options that occur once.
    Permission { options: BTreeMap<String, PermissionOptionKind> },
    /// A form.
    Form,
    /// A link.
    Link,
}

impl SharedQuestionKind {
    /// Reads a request of the agent. Returns `None` if it is not a question to the user, and an error if it cannot be
    /// understood.
    pub(crate) fn read(method: &str, params: &str) -> Option<Result<Self, RpcError>> {
        let invalid = |error: serde_json::Error| RpcError::invalid_params(error.to_string());
        match method {
            RequestPermissionRequest::METHOD => {
                let request = serde_json::from_str::<RequestPermissionRequest>(params).map_err(invalid);
                Some(request.map(|request| {
                    let options = request.options.iter();
                    let unique = options.filter(|option| request.option(&option.option_id).is_some());
                    let kinds =
                        unique.map(|option| (option.option_id.as_str().to_owned(), option.kind.clone()));
                    SharedQuestionKind::Permission { options: kinds.collect() }
                }))
            }
            CreateElicitationRequest::METHOD => {
                let request = serde_json::from_str::<CreateElicitationRequest>(params).map_err(invalid);
                Some(request.and_then(|request| match request.mode {
                    ElicitationMode::Form(_) => Ok(SharedQuestionKind::Form),
                    ElicitationMode::Url(_) => Ok(SharedQuestionKind::Link),
                    _ => Err(RpcError::invalid_params("the mode of the elicitation is unknown")),
                }))
            }
            _ => None,
        }
    }

    /// Returns true if a result is an answer to the question.
    pub(crate) fn accepts(&self, result: &RawValue) -> bool {
        match self {
            SharedQuestionKind::Permission { options } => {
                match serde_json::from_str::<RequestPermissionResponse>(result.get()) {
                    Ok(response) => match response.outcome {
                        RequestPermissionOutcome::Cancelled => true,
                        RequestPermissionOutcome::Selected(selected) => {
                            options.contains_key(selected.option_id.as_str())
                        }
                        _ => false,
                    },
                    Err(_) => false,
                }
            }
            SharedQuestionKind::Form | SharedQuestionKind::Link => {
                serde_json::from_str::<CreateElicitationResponse>(result.get()).is_ok()
            }
        }
    }

    /// Returns the result for an answer over the REST interface, if it fits the question: `{"optionId": "…"}` for a permission,
    /// or `null` for none, and the result itself for an elicitation.
    pub(crate) fn result_of(&self, answer: &Value) -> Option<Box<RawValue>> {
        let result = match self {
            SharedQuestionKind::Permission { .. } if answer.is_null() => self.cancelled(),
            SharedQuestionKind::Permission { .. } => {
                let outcome = RequestPermissionOutcome::selected(answered_option(answer)?);
                to_raw_value(&RequestPermissionResponse::new(outcome))
            }
            SharedQuestionKind::Form | SharedQuestionKind::Link => {
                match ["accept", "decline", "cancel"].iter().any(|action| answer["action"] == *action) {
                    true => to_raw_value(answer),
                    false => return None,
                }
            }
        };
        result.ok().filter(|result| self.accepts(result))
    }

    /// Returns the meaning of a result that is an answer to the question.
    pub(crate) fn decision(&self, result: &RawValue) -> QuestionDecision {
        match self {
            SharedQuestionKind::Permission { options } => {
                let response = serde_json::from_str::<RequestPermissionResponse>(result.get());
                let chosen = match response.map(|response| response.outcome) {
                    Ok(RequestPermissionOutcome::Selected(selected)) => {
                        options.get(selected.option_id.as_str())
                    }
                    _ => None,
                };
                permission_decision(chosen)
            }
            SharedQuestionKind::Form | SharedQuestionKind::Link => {
                let response = serde_json::from_str::<CreateElicitationResponse>(result.get());
                let option = match response.map(|response| response.action) {
                    Ok(ElicitationAction::Accept(_)) => "accept",
                    Ok(ElicitationAction::Decline) => "decline",
                    _ => "cancelled",
                };
                QuestionDecision { option: option.to_owned(), is_allowed: option == "accept" }
            }
        }
    }

    /// Returns the result for a question that no client can show.
    pub(crate) fn declined(&self) -> serde_json::Result<Box<RawValue>> {
        match self {
            SharedQuestionKind::Permission { .. } => self.cancelled(),
            SharedQuestionKind::Form | SharedQuestionKind::Link => {
                to_raw_value(&CreateElicitationResponse::decline())
            }
        }
    }

    /// Returns the result for a question whose turn is cancelled, or that nobody answers.
    pub(crate) fn cancelled(&self) -> serde_json::Result<Box<RawValue>> {
        match self {
            SharedQuestionKind::Permission { .. } => {
                to_raw_value(&RequestPermissionResponse::new(RequestPermissionOutcome::Cancelled))
            }
            SharedQuestionKind::Form | SharedQuestionKind::Link => {
                to_raw_value(&CreateElicitationResponse::cancel())
            }
        }
    }
}

/// Returns the option that an answer over the REST interface names.
pub(crate) fn answered_option(answer: &Value) -> Option<&str> {
    answer["optionId"].as_str()
}

/// Returns the meaning of a chosen option. Without one the question was cancelled.
pub(crate) fn permission_decision(chosen: Option<&PermissionOptionKind>) -> QuestionDecision {
    let is_allowed =
        matches!(chosen, Some(PermissionOptionKind::AllowOnce | PermissionOptionKind::AllowAlways));
    let option = chosen.map_or("cancelled", PermissionOptionKind::as_str).to_owned();
    QuestionDecision { option, is_allowed }
}

/// A question without an answer.
#[derive(Clone, Debug)]
pub(crate) struct SharedQuestion {
    /// The id of the agent's request.
    pub(crate) id: RequestId,
    pub(crate) kind: SharedQuestionKind,
    /// The clients that answered with an error.
    pub(crate) refused: BTreeSet<ClientKey>,
    /// The time since which no client that could answer has been connected.
    pub(crate) unattended: Option<Duration>,
}

/// A request for an action on the machine of a client.
#[derive(Clone, Debug)]
pub(crate) struct OpenHostRequest {
    /// The id of the agent's request.
    pub(crate) id: RequestId,
    pub(crate) method: String,
    pub(crate) client: ClientKey,
}
