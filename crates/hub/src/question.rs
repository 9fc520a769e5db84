//! Questions of the agent to the user, and requests for actions on the machine of a client.

use std::collections::BTreeSet;
use std::time::Duration;

use duologue_schema::{
    CreateElicitationRequest, CreateElicitationResponse, ElicitationMode, Error as RpcError, Request as _,
    RequestId, RequestPermissionOutcome, RequestPermissionRequest, RequestPermissionResponse,
};
use serde_json::value::{RawValue, to_raw_value};

use crate::record::ClientKey;

/// The kind of a question.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum SharedQuestionKind {
    /// A permission request, with the options that occur once.
    Permission { options: BTreeSet<String> },
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
                    let options = request.options.iter().map(|option| &option.option_id);
                    let unique = options.filter(|id| request.option(id).is_some());
                    SharedQuestionKind::Permission {
                        options: unique.map(|id| id.as_str().to_owned()).collect(),
                    }
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
                            options.contains(selected.option_id.as_str())
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
    pub(crate) client: ClientKey,
}
