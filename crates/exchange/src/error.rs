//! Errors of calls to the other agent.

use std::ops::Deref;
use std::time::Duration;

use duologue_rpc::Error as RpcError;
use duologue_schema::envelope::{
    AgentId, Envelope, EnvelopeError, EnvelopeErrorCode, EnvelopeId, EnvelopeKind, EnvelopeResult, VERSION,
};
use duologue_schema::params_fault;
use duologue_schema::{DuologueCapabilities, Error as WireError};
use duologue_schema::{Json, Meta};
use serde::Deserialize;

/// An error of a query, a delegation or a notification.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The other side did not advertise this scheme in `initialize`, for example
    /// `"_meta": {"duologue": {"envelope": {"v": [1]}}}` in its capabilities. Nothing was sent.
    #[error("the other side {}", not_supported(scheme, versions))]
    NotSupported {
        /// The scheme that it would have to advertise: `envelope` or `work`.
        scheme: &'static str,
        /// The versions of the scheme that it supports.
        versions: Vec<u32>,
    },
    /// Only `ping` and `discover` can be sent outside a session. Nothing was sent.
    #[error("{kind} needs a session: use the peer_agent() of a session, or in_session(id); nothing was sent")]
    NoSession {
        /// The kind of the message.
        kind: EnvelopeKind,
    },
    /// The other agent answered with an error, or ended an accepted task with one.
    #[error("the other agent returned an error: {0}")]
    Response(AnswerError),
    /// The other agent did not accept the task.
    #[error("the other agent rejected the task: {0}")]
    Declined(AnswerError),
    /// No response arrived in time, or a broadcast found no room in the output. A response that
    /// comes later is dropped and counted.
    #[error("{} within {after:?}", awaited(kind))]
    Timeout {
        /// The kind of the message.
        kind: EnvelopeKind,
        /// The timeout.
        after: Duration,
    },
    /// The response is not valid. The connection is unaffected.
    #[error("the response to {kind} is invalid: {fault}")]
    Answer {
        /// The kind of the request.
        kind: EnvelopeKind,
        /// The reason why the response is invalid.
        fault: EnvelopeError,
    },
    /// The task was delegated with `report_back(false)`, so no result is sent.
    #[error("no report was requested; delegate with report_back(true) to wait for the result")]
    NoReport,
    /// The notifications of a session that is still being created exceed their buffer. This one was
    /// not sent.
    #[error("too many notifications before the session was created; send them after new_session")]
    TooEarly,
    /// The handler that makes this call serves a call that has already reached the hop limit.
    /// Agents may be calling each other in a circle. Nothing was sent.
    #[error(
        "this call would have {hops} hops, more than Exchange::max_hops = {limit}: agents may be asking each other in \
         a circle; nothing was sent"
    )]
    TooManyHops {
        /// The hops that the call would have; see [`Hops`](crate::Hops).
        hops: u32,
        /// The limit.
        limit: u32,
    },
    /// The attachments of the message are too large together. Nothing was sent.
    #[error(
        "the attachments have {bytes} bytes, more than Exchange::max_attachment_bytes = {limit}; nothing was sent"
    )]
    AttachmentsTooLarge {
        /// The bytes of the attachments in the message.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// A message with this id still waits on this connection, or the [`Delegation`] with this id has
    /// not been dropped. Nothing was sent.
    ///
    /// [`Delegation`]: crate::envelope::Delegation
    #[error(
        "a message with the id {id} still waits for its answer or its result, or its Delegation was not dropped; \
         nothing was sent"
    )]
    IdInUse {
        /// The id.
        id: EnvelopeId,
    },
    /// No response can arrive any more, because the end of the task or of the connection came first.
    #[error("cancelled")]
    Cancelled,
    /// An error of the connection, or of one message on it.
    #[error(transparent)]
    Connection(RpcError),
}

/// The error of the other agent in its answer, with the `_meta` beside it. It derefs to the
/// [`EnvelopeError`].
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{fault}")]
#[non_exhaustive]
pub struct AnswerError {
    /// The error.
    pub fault: EnvelopeError,
    /// The `_meta` beside the answer: that which [`set_answer_meta`] of the other side's handler set.
    ///
    /// [`set_answer_meta`]: crate::envelope::Received::set_answer_meta
    pub meta: Option<Meta>,
}

impl AnswerError {
    pub(crate) fn new(fault: EnvelopeError, meta: Option<Meta>) -> Self {
        AnswerError { fault, meta }
    }
}

impl Deref for AnswerError {
    type Target = EnvelopeError;

    fn deref(&self) -> &EnvelopeError {
        &self.fault
    }
}

/// The result of calls to the other agent.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Returns the error in the form that an envelope carries. Local errors have a code too, such
    /// as `timeout` or `unreachable`.
    #[must_use]
    pub fn fault(&self) -> EnvelopeError {
        let code = match self {
            Error::Response(answer) | Error::Declined(answer) => return answer.fault.clone(),
            Error::NotSupported { .. } => EnvelopeErrorCode::UnknownKind,
            Error::NoSession { .. } => EnvelopeErrorCode::InvalidParameter,
            Error::Timeout { .. } => EnvelopeErrorCode::Timeout,
            Error::Answer { fault, .. } => fault.code.clone(),
            Error::NoReport | Error::AttachmentsTooLarge { .. } => EnvelopeErrorCode::InvalidParameter,
            Error::IdInUse { .. } => EnvelopeErrorCode::Conflict,
            Error::TooEarly => EnvelopeErrorCode::Overloaded,
            Error::TooManyHops { .. } => EnvelopeErrorCode::TooManyHops,
            Error::Connection(RpcError::Closed(_)) => EnvelopeErrorCode::Unreachable,
            Error::Cancelled => EnvelopeErrorCode::Cancelled,
            Error::Connection(_) => EnvelopeErrorCode::Internal,
        };
        EnvelopeError::of(code, self.to_string())
    }

    /// Returns the code of the error.
    #[must_use]
    pub fn code(&self) -> EnvelopeErrorCode {
        self.fault().code
    }

    /// Returns the `_meta` beside the other agent's error. A local error has none.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/doc/pair.in"));
    /// # use duologue_exchange::envelope::*;
    /// use duologue_schema::Meta;
    ///
    /// struct Metered;
    ///
    /// impl EnvelopeHandler for Metered {
    ///     async fn query(&self, query: Received<Query>) -> Result<QueryResponse, EnvelopeError> {
    ///         query.set_answer_meta(Meta::from_iter([("example.com/quota", 0)]));
    ///         Err(EnvelopeError::overloaded("the quota of today is used up"))
    ///     }
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let peer = agent_that_answers_with(Metered);
    /// let error = peer.query("Who is free?").await.unwrap_err();
    /// assert_eq!(error.meta().and_then(|meta| meta.get("example.com/quota")), Some(0));
    /// # }
    /// ```
    #[must_use]
    pub fn meta(&self) -> Option<&Meta> {
        match self {
            Error::Response(answer) | Error::Declined(answer) => answer.meta.as_ref(),
            _ => None,
        }
    }

    /// Returns true if the same message may succeed later.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        self.fault().retryable
    }

    pub(crate) fn of_call(kind: EnvelopeKind, error: RpcError) -> Self {
        match error {
            RpcError::Response(error) => Error::Response(answer_of(&error)),
            RpcError::Decode { error, .. } => {
                let fault =
                    EnvelopeError::of(EnvelopeErrorCode::InvalidParameter, params_fault("result", &error));
                Error::Answer { kind, fault }
            }
            other => Error::Connection(other),
        }
    }
}

/// Lets a handler that calls other agents use `?`. The caller receives an `internal` error that
/// names the cause. [`EnvelopeErrorCode::TooManyHops`] is passed on unchanged. Return
/// [`Error::fault`] to pass on another error of the other agent.
impl From<Error> for EnvelopeError {
    fn from(error: Error) -> Self {
        // The error that stops a circle of agents has to reach the agent that started it.
        if error.code() == EnvelopeErrorCode::TooManyHops {
            return error.fault();
        }
        let retryable = error.is_retryable();
        EnvelopeError::internal(format!("a call to another agent failed: {error}")).retryable(retryable)
    }
}

impl From<RpcError> for Error {
    fn from(error: RpcError) -> Self {
        Error::Connection(error)
    }
}

/// Returns the text for a user. The documentation of the variant has the details for developers.
fn not_supported(scheme: &str, versions: &[u32]) -> String {
    let what = match scheme {
        DuologueCapabilities::WORK => "work orders",
        _ => "messages between agents",
    };
    match versions {
        [] => format!("does not support {what}; nothing was sent"),
        // Only envelopes have versions.
        versions => {
            let versions: Vec<_> = versions.iter().map(u32::to_string).collect();
            let versions = versions.join(", ");
            format!("does not support {what} of version {VERSION}, but {versions}; nothing was sent")
        }
    }
}

fn awaited(kind: &EnvelopeKind) -> String {
    match kind {
        EnvelopeKind::Notify => "notification not sent: the other side did not read".to_owned(),
        kind => format!("no response to {kind}"),
    }
}

/// Returns the error in the envelope of a JSON-RPC error, and the `_meta` beside it. Without an envelope it is the `code` in
/// the data, such as `context_lost` of a server, or else the one nearest to the JSON-RPC code.
pub(crate) fn answer_of(error: &WireError) -> AnswerError {
    /// Contains only the error: mistakes in the rest of the envelope do not matter.
    #[derive(Deserialize)]
    struct Data {
        envelope: Around,
    }
    #[derive(Deserialize)]
    struct Around {
        payload: EnvelopeError,
    }
    #[derive(Deserialize)]
    struct Plain {
        code: EnvelopeErrorCode,
        retryable: bool,
    }
    let data = error.data.as_ref();
    let in_envelope = data.and_then(|data| Some(data.parse::<Data>().ok()?.envelope.payload));
    let fault = in_envelope.unwrap_or_else(|| match data.and_then(|data| data.parse::<Plain>().ok()) {
        Some(Plain { code, retryable }) => {
            EnvelopeError::of(code, error.message.clone()).retryable(retryable)
        }
        None => EnvelopeError::of(EnvelopeErrorCode::from_rpc(error.code), error.message.clone()),
    });
    AnswerError::new(fault, meta_of(error))
}

/// Returns the `_meta` in the data of a JSON-RPC error. A value of another form counts as none.
pub(crate) fn meta_of(error: &WireError) -> Option<Meta> {
    #[derive(Deserialize)]
    struct Beside {
        #[serde(rename = "_meta")]
        meta: Meta,
    }
    error.data.as_ref()?.parse::<Beside>().ok().map(|beside| beside.meta)
}

/// Returns the JSON-RPC error that carries an error envelope.
pub(crate) fn to_wire(envelope: Envelope<EnvelopeError>, meta: Option<Meta>) -> WireError {
    let error = WireError::new(envelope.payload.code.rpc_code(), envelope.payload.message.clone());
    let mut data = EnvelopeResult::new(envelope);
    data.meta = meta;
    match Json::new(&data) {
        Ok(data) => error.data(data),
        Err(_) => error,
    }
}

/// Returns a random agent id of 32 hexadecimal digits.
pub(crate) fn random_agent_id() -> AgentId {
    AgentId::from(uuid::Uuid::new_v4().simple().to_string())
}

#[cfg(test)]
mod tests {
    use duologue_rpc::Closed;

    use super::*;

    /// A server answers in the place of an agent that it cannot reach, and knows if a retry can succeed.
    #[test]
    fn an_error_without_an_envelope_has_the_code_of_its_data() {
        for (data, code, is_retryable) in [
            (r#"{"code":"context_lost","retryable":false}"#, "context_lost", false),
            (r#"{"code":"interrupted","retryable":true}"#, "interrupted", true),
            (r#"{"code":"interrupted"}"#, "internal", true),
            (r#"{"code":7,"retryable":false}"#, "internal", true),
            ("null", "internal", true),
        ] {
            let error =
                WireError::internal("no".to_owned()).data(serde_json::from_str::<Json>(data).unwrap());
            let fault = answer_of(&error).fault;
            let found = (fault.code.as_str(), fault.retryable, fault.message.as_str());
            assert_eq!(found, (code, is_retryable, "no"), "{data}");
        }
    }

    /// Each error has a code that an envelope can carry. A handler that passes it on keeps only the chance of a retry.
    #[test]
    fn local_errors_have_codes() {
        let timeout = Error::Timeout { kind: EnvelopeKind::Query, after: Duration::from_secs(1) };
        let invalid = EnvelopeError::of(EnvelopeErrorCode::KindMismatch, "no");
        for (error, code, is_retryable) in [
            (
                Error::NotSupported { scheme: "work", versions: Vec::new() },
                EnvelopeErrorCode::UnknownKind,
                false,
            ),
            (Error::NoSession { kind: EnvelopeKind::Query }, EnvelopeErrorCode::InvalidParameter, false),
            (timeout, EnvelopeErrorCode::Timeout, true),
            (
                Error::Answer { kind: EnvelopeKind::Query, fault: invalid },
                EnvelopeErrorCode::KindMismatch,
                false,
            ),
            (Error::NoReport, EnvelopeErrorCode::InvalidParameter, false),
            (Error::AttachmentsTooLarge { bytes: 2, limit: 1 }, EnvelopeErrorCode::InvalidParameter, false),
            (Error::IdInUse { id: EnvelopeId::from("a") }, EnvelopeErrorCode::Conflict, false),
            (Error::TooEarly, EnvelopeErrorCode::Overloaded, true),
            (Error::Cancelled, EnvelopeErrorCode::Cancelled, false),
            (Error::Connection(RpcError::Closed(Closed::EndOfInput)), EnvelopeErrorCode::Unreachable, true),
            (
                Error::Connection(RpcError::FrameTooLarge { bytes: 2, limit: 1 }),
                EnvelopeErrorCode::Internal,
                true,
            ),
        ] {
            assert_eq!((error.code(), error.is_retryable()), (code, is_retryable), "{error}");
            let passed_on = EnvelopeError::from(error);
            assert_eq!((passed_on.code, passed_on.retryable), (EnvelopeErrorCode::Internal, is_retryable));
        }
        // The error that stops a circle of agents is passed on as it is.
        let circle = EnvelopeError::from(Error::TooManyHops { hops: 2, limit: 1 });
        assert_eq!((circle.code, circle.retryable), (EnvelopeErrorCode::TooManyHops, false));
    }
}
