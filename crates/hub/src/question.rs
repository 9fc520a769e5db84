//! Questions of the agent to the user, and requests for actions on the machine of a client.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use duologue_schema::{
    CreateElicitationRequest, CreateElicitationResponse, ElicitationAction, ElicitationContentValue,
    ElicitationMode, ElicitationSchema, Error as RpcError, PermissionOptionKind, Request as _, RequestId,
    RequestPermissionOutcome, RequestPermissionRequest, RequestPermissionResponse,
};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use crate::input::QuestionDecision;
use crate::record::ClientKey;

/// The answers over the REST interface.
const USE: &str = "a permission takes an object with the `optionId` of one of its options, or `null` to cancel it; an elicitation \
    takes an object with an `action`, which is `accept`, `decline` or `cancel`, and the `content` of a form";

/// The kind of a question.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum SharedQuestionKind {
    /// A permission request, with the kinds of the options that occur once.
    Permission { options: BTreeMap<String, PermissionOptionKind> },
    /// A form, with its fields.
    Form(Arc<ElicitationSchema>),
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
                    ElicitationMode::Form(form) => {
                        Ok(SharedQuestionKind::Form(Arc::new(form.requested_schema)))
                    }
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
            SharedQuestionKind::Form(_) | SharedQuestionKind::Link => {
                serde_json::from_str::<CreateElicitationResponse>(result.get()).is_ok()
            }
        }
    }

    /// Returns the result for an answer over the REST interface: `{"optionId": "…"}` for a permission, or `null` for none, and the
    /// result itself for an elicitation. An error says why the answer does not fit the question.
    pub(crate) fn result_of(&self, answer: &Value) -> Result<Box<RawValue>, String> {
        let result = match self {
            SharedQuestionKind::Permission { .. } if answer.is_null() => self.cancelled().ok(),
            SharedQuestionKind::Permission { .. } => answered_option(answer).and_then(|option| {
                let outcome = RequestPermissionOutcome::selected(option);
                to_raw_value(&RequestPermissionResponse::new(outcome)).ok()
            }),
            SharedQuestionKind::Form(_) | SharedQuestionKind::Link => {
                match serde_json::from_value::<CreateElicitationResponse>(answer.clone()) {
                    Ok(CreateElicitationResponse { action: ElicitationAction::Accept(accepted), .. }) => {
                        self.check_content(accepted.content)?;
                        to_raw_value(answer).ok()
                    }
                    Ok(CreateElicitationResponse {
                        action: ElicitationAction::Decline | ElicitationAction::Cancel,
                        ..
                    }) => to_raw_value(answer).ok(),
                    _ => None,
                }
            }
        };
        result.filter(|result| self.accepts(result)).ok_or_else(|| USE.to_owned())
    }

    /// Checks the values of an elicitation that its user accepts.
    fn check_content(
        &self,
        content: Option<BTreeMap<String, ElicitationContentValue>>,
    ) -> Result<(), String> {
        match (self, content) {
            (SharedQuestionKind::Form(form), content) => {
                form.check(&content.unwrap_or_default()).map_err(|fault| format!("content.{fault}"))
            }
            (_, Some(_)) => Err("content: a link takes none; leave it out".to_owned()),
            (_, None) => Ok(()),
        }
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
            SharedQuestionKind::Form(_) | SharedQuestionKind::Link => {
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
            SharedQuestionKind::Form(_) | SharedQuestionKind::Link => {
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
            SharedQuestionKind::Form(_) | SharedQuestionKind::Link => {
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
