//! The client whose request the hub passes to an agent, while it has no session: a login, or the beginning of a session.
//!
//! The agent may ask its user something before it answers, such as "trust this folder?". The client of the request answers it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use duologue_rpc::raw_message::{call_frame, member, splice};
use duologue_rpc::{Lock as _, ResponseOutcome, RpcMessage};
use duologue_schema::{
    CancelRequestNotification, CreateElicitationRequest, Error as RpcError, Notification as _, RequestId,
};
use serde_json::value::{RawValue, to_raw_value};
use tokio::sync::oneshot;

use crate::abilities::Abilities;
use crate::question::SharedQuestionKind;
use crate::session_task::Replies;
use crate::state::parse;

/// The questions that a client has not answered, by the ids that the hub gave them.
#[derive(Clone, Debug, Default)]
pub(crate) struct QuestionsOfRequests(Arc<Mutex<HashMap<String, oneshot::Sender<Vec<u8>>>>>);

impl QuestionsOfRequests {
    /// Takes the response of a client to one of the questions. Returns false for another response.
    pub(crate) fn answer(&self, id: &str, line: &[u8]) -> bool {
        let asked = self.0.lock_unpoisoned().remove(id);
        asked.is_some_and(|asked| asked.send(line.to_vec()).is_ok())
    }
}

/// A client that waits for the response to its request.
#[derive(Clone, Debug)]
pub(crate) struct AskingClient {
    /// The id of its request.
    pub(crate) request: RequestId,
    pub(crate) abilities: Abilities,
    pub(crate) output: Replies,
    pub(crate) questions: QuestionsOfRequests,
}

/// The outcome of a request of the agent.
type Outcome = Result<Box<RawValue>, RpcError>;

impl AskingClient {
    /// Asks the client, and returns its answer. A client that cannot show the question declines it.
    ///
    /// # Cancel safety
    ///
    /// The question is withdrawn if the future is dropped.
    pub(crate) async fn ask(&self, method: &str, params: &RawValue) -> Outcome {
        let Some(kind) = shown(method, params)? else { return Err(RpcError::method_not_found(method)) };
        let Some(params) = self.addressed(params).filter(|_| self.abilities.show(&kind)) else {
            return kind.declined().map_err(|error| RpcError::internal(error.to_string()));
        };
        let id = format!("hub:question:{}", crate::unique_id::new_id());
        let (answer, answered) = oneshot::channel();
        let _asked = AskedQuestion { client: self, id: &id };
        self.questions.0.lock_unpoisoned().insert(id.clone(), answer);
        self.send(Some(&id), method, &params);
        let answer = tokio::select! {
            // A client may answer and leave.
            biased;
            answer = answered => answer.map_err(|_| RpcError::request_cancelled())?,
            // The client has left.
            () = self.output.closed() => {
                return kind.declined().map_err(|error| RpcError::internal(error.to_string()));
            }
        };
        match parse(&answer) {
            Some(RpcMessage::Response { outcome: ResponseOutcome::Result(result), .. })
                if kind.accepts(result) =>
            {
                Ok(result.to_owned())
            }
            Some(RpcMessage::Response { outcome: ResponseOutcome::Error(error), .. }) => Err(error),
            _ => Err(RpcError::internal("the answer of the client does not fit the question")),
        }
    }

    /// Returns the params with the id of the client's request, which the question belongs to. Questions of a session that the
    /// client does not know yet have none.
    fn addressed(&self, params: &RawValue) -> Option<Box<RawValue>> {
        let asked: CreateElicitationRequest = serde_json::from_str(params.get()).ok()?;
        if asked.mode.session_id().is_some() {
            return None;
        }
        let bytes = params.get().as_bytes();
        let addressed = splice(bytes, member(bytes, "requestId")?, self.request.token().as_bytes())?;
        RawValue::from_string(String::from_utf8(addressed).ok()?).ok()
    }

    fn send<P: serde::Serialize + ?Sized>(&self, id: Option<&str>, method: &str, params: &P) {
        let id = id.and_then(|id| to_raw_value(id).ok());
        if let Ok(line) = call_frame(id.as_deref(), method, params) {
            // A client that has left needs nothing more.
            let _ = self.output.send(line);
        }
    }
}

/// Returns the kind of a question to a user.
fn shown(method: &str, params: &RawValue) -> Result<Option<SharedQuestionKind>, RpcError> {
    SharedQuestionKind::read(method, params.get()).transpose()
}

/// Returns the outcome of a request of an agent that no client waits for.
pub(crate) fn declined(method: &str, params: &RawValue) -> Outcome {
    let kind = shown(method, params)?;
    let kind = kind.ok_or_else(|| RpcError::method_not_found(method))?;
    kind.declined().map_err(|error| RpcError::internal(error.to_string()))
}

/// A question that is open until it is dropped.
struct AskedQuestion<'a> {
    client: &'a AskingClient,
    id: &'a str,
}

impl Drop for AskedQuestion<'_> {
    fn drop(&mut self) {
        if self.client.questions.0.lock_unpoisoned().remove(self.id).is_some() {
            let withdrawn = serde_json::json!({ "requestId": self.id });
            self.client.send(None, CancelRequestNotification::METHOD, &withdrawn);
        }
    }
}
