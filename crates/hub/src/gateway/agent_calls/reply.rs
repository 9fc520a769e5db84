//! The messages for the agent that has made a call.

use duologue_rpc::raw_message::{call_frame, response_frame};
use duologue_schema::envelope::{
    AgentId, Envelope, EnvelopeError, EnvelopeErrorCode, EnvelopeParams, EnvelopeResult, NotificationPayload,
    Payload,
};
use duologue_schema::{Error as RpcError, Json, RequestId, SessionId};
use duologue_store::TaskFailure;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::value::to_raw_value;
use tokio::sync::mpsc;

use crate::projection::error_response;

/// The sender of answers that no single agent gives.
const SERVER: &str = "duologue-hub";

/// The way to the agent that has made a call.
#[derive(Clone)]
pub(super) struct CallReplies {
    session: SessionId,
    lines: mpsc::UnboundedSender<Vec<u8>>,
}

impl CallReplies {
    pub(super) fn new(session: SessionId, lines: mpsc::UnboundedSender<Vec<u8>>) -> Self {
        CallReplies { session, lines }
    }

    /// Waits until the process of the agent has ended.
    pub(super) async fn closed(&self) {
        self.lines.closed().await;
    }

    /// Answers a request.
    pub(super) fn respond<P: Payload>(&self, id: &RequestId, request: &Envelope, payload: P) {
        let result = to_raw_value(&EnvelopeResult::new(answer(request, payload)));
        match result.and_then(|result| response_frame(id.token(), Ok(&result))) {
            Ok(line) => self.send(line),
            Err(error) => self.refuse(id, Some(request), EnvelopeError::internal(error.to_string())),
        }
    }

    /// Answers a request that carries no envelope.
    pub(super) fn answer<T: Serialize>(&self, id: &RequestId, outcome: Result<T, RpcError>) {
        let result = outcome
            .and_then(|result| to_raw_value(&result).map_err(|error| RpcError::internal(error.to_string())));
        let line = match &result {
            Ok(result) => response_frame(id.token(), Ok(result)),
            Err(error) => response_frame(id.token(), Err(error)),
        };
        match line {
            Ok(line) => self.send(line),
            Err(error) => tracing::error!(%error, "the response to an agent could not be written"),
        }
    }

    /// Answers a request with an error. A request that could not be read has no envelope.
    pub(super) fn refuse(&self, id: &RequestId, request: Option<&Envelope>, fault: EnvelopeError) {
        let mut error = RpcError::new(fault.code.rpc_code(), fault.message.clone());
        let envelope = match request {
            Some(request) => answer(request, fault),
            None => Envelope::new(crate::unique_id::new_id().to_string(), SERVER, "", now_ms(), fault),
        };
        if let Ok(data) = Json::new(&EnvelopeResult::new(envelope)) {
            error = error.data(data);
        }
        self.send(error_response(id.token(), &error));
    }

    /// Sends a notification about a request.
    pub(super) fn notify<P: NotificationPayload>(&self, request: &Envelope, payload: P) {
        let params = EnvelopeParams::new(Some(self.session.clone()), answer(request, payload));
        match call_frame(None, P::METHOD, &params) {
            Ok(line) => self.send(line),
            Err(error) => tracing::error!(%error, "a message about a call could not be written"),
        }
    }

    fn send(&self, line: Vec<u8>) {
        // The process of an agent that has ended needs no answer.
        let _ = self.lines.send(line);
    }
}

/// Returns an envelope that refers to a request and is addressed to its sender.
fn answer<P: Payload>(request: &Envelope, payload: P) -> Envelope<P> {
    let from = match request.to.as_str() {
        "" => AgentId::from(SERVER),
        _ => request.to.clone(),
    };
    let id = crate::unique_id::new_id().to_string();
    Envelope::new(id, from, request.from.clone(), now_ms(), payload).reference(request.id.clone())
}

/// Returns the error of a task as that of an envelope.
pub(super) fn fault(failure: &TaskFailure) -> EnvelopeError {
    let code = EnvelopeErrorCode::from(failure.code.as_str());
    EnvelopeError::new(code).message(failure.message.as_str()).retryable(failure.retryable)
}

fn now_ms() -> u64 {
    u64::try_from(Timestamp::now().as_millisecond()).unwrap_or_default()
}
