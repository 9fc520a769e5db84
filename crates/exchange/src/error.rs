//! What can go wrong in an exchange, seen from the side that sends.

use std::time::Duration;

use duologue_rpc::Error as RpcError;
use duologue_schema::envelope::{
    AgentId, Envelope, EnvelopeError, EnvelopeErrorCode, EnvelopeKind, VERSION, fault_in,
};
use duologue_schema::{DuologueCapabilities, Error as WireError};
use serde::Deserialize;

/// Why something could not be asked, delegated or told.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The other side did not say in `initialize` that it speaks this. Nothing was sent.
    #[error("the other side {}", not_supported(scheme, versions))]
    NotSupported {
        /// What it would have to advertise: `envelope` or `work`.
        scheme: &'static str,
        /// The versions of it that it does speak.
        versions: Vec<u32>,
    },
    /// Only `ping` and `discover` can be sent outside a session. Nothing was sent.
    #[error("{kind} needs a session: use the peer_agent() of a session, or in_session(id); nothing was sent")]
    NoSession {
        /// What was to be sent.
        kind: EnvelopeKind,
    },
    /// The other agent answered with an error, or ended with one what it had taken on.
    #[error("the other agent says: {0}")]
    Response(EnvelopeError),
    /// The other agent does not take the task on.
    #[error("the other agent refused: {0}")]
    Declined(EnvelopeError),
    /// No answer in time, or for news to several no room. An answer that comes later is dropped and counted.
    #[error("{} within {after:?}", awaited(kind))]
    Timeout {
        /// What was asked or told.
        kind: EnvelopeKind,
        /// The time that was allowed.
        after: Duration,
    },
    /// What came as the answer is none. The connection is fine.
    #[error("the answer to {kind} does not fit: {fault}")]
    Answer {
        /// What was asked.
        kind: EnvelopeKind,
        /// What is wrong with the answer.
        fault: EnvelopeError,
    },
    /// The task was delegated with `report_back(false)`, so that nobody is told how it ends.
    #[error("no report was asked for: delegate with report_back(true) to wait for the result")]
    NoReport,
    /// More news than fit into the output, in a session that has not been answered for. They were not
    /// sent.
    #[error(
        "more news than fit into the output before the session was answered: tell them after new_session"
    )]
    TooEarly,
    /// The call is made within the handler of a call that has come through as many handlers as a call may: agents may
    /// be asking each other in a circle. Nothing was sent.
    #[error(
        "this call would have {hops} hops, more than Exchange::max_hops = {limit}: agents may be asking each other in \
         a circle; nothing was sent"
    )]
    TooManyHops {
        /// The handlers that the call has come through, see [`Hops`](crate::Hops).
        hops: u32,
        /// The limit in force.
        limit: u32,
    },
    /// The connection, or a message on it.
    #[error(transparent)]
    Connection(RpcError),
}

/// What calls to the other agent return.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// The fault as an envelope would carry it: what happened here has a code too, `timeout` or
    /// `unreachable` say.
    #[must_use]
    pub fn fault(&self) -> EnvelopeError {
        let code = match self {
            Error::Response(fault) | Error::Declined(fault) => return fault.clone(),
            Error::NotSupported { .. } => EnvelopeErrorCode::UnknownKind,
            Error::NoSession { .. } => EnvelopeErrorCode::InvalidParameter,
            Error::Timeout { .. } => EnvelopeErrorCode::Timeout,
            Error::Answer { fault, .. } => fault.code.clone(),
            Error::NoReport => EnvelopeErrorCode::InvalidParameter,
            Error::TooEarly => EnvelopeErrorCode::Overloaded,
            Error::TooManyHops { .. } => EnvelopeErrorCode::TooManyHops,
            Error::Connection(RpcError::Closed(_)) => EnvelopeErrorCode::Unreachable,
            Error::Connection(RpcError::Cancelled) => EnvelopeErrorCode::Cancelled,
            Error::Connection(_) => EnvelopeErrorCode::Internal,
        };
        EnvelopeError::of(code, self.to_string())
    }

    /// What kind of fault it is.
    #[must_use]
    pub fn code(&self) -> EnvelopeErrorCode {
        self.fault().code
    }

    /// Whether the same message may succeed later.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        self.fault().retryable
    }

    pub(crate) fn of_call(kind: EnvelopeKind, error: RpcError) -> Self {
        match error {
            RpcError::Response(error) => Error::Response(fault_of(&error)),
            RpcError::Decode { error, .. } => {
                let fault =
                    EnvelopeError::of(EnvelopeErrorCode::InvalidParameter, fault_in("result", &error));
                Error::Answer { kind, fault }
            }
            other => Error::Connection(other),
        }
    }
}

/// So that a handler which turns to others may use `?`: who asked it learns that the answer failed, and on what.
/// [`EnvelopeErrorCode::TooManyHops`] is passed on as it is. To pass on another fault of the other agent, answer with
/// [`Error::fault`].
impl From<Error> for EnvelopeError {
    fn from(error: Error) -> Self {
        // The fault that stops a circle of agents has to reach the one that began it.
        if error.code() == EnvelopeErrorCode::TooManyHops {
            return error.fault();
        }
        let retryable = error.is_retryable();
        EnvelopeError::internal(format!("what this depends on failed: {error}")).retryable(retryable)
    }
}

impl From<RpcError> for Error {
    fn from(error: RpcError) -> Self {
        Error::Connection(error)
    }
}

fn not_supported(scheme: &str, versions: &[u32]) -> String {
    match (scheme, versions) {
        (DuologueCapabilities::ENVELOPE, []) => format!(
            "does not speak envelopes: it would have to advertise \
             \"_meta\":{{\"duologue\":{{\"envelope\":{{\"v\":[{VERSION}]}}}}}} in its capabilities"
        ),
        (scheme, []) => format!("does not speak {scheme}: it advertises no _meta.duologue.{scheme}"),
        // Nothing else has versions.
        (_, versions) => {
            let versions: Vec<_> = versions.iter().map(u32::to_string).collect();
            let versions = versions.join(", ");
            format!("speaks envelopes of version {versions} and not of version {VERSION}, as this side does")
        }
    }
}

fn awaited(kind: &EnvelopeKind) -> String {
    match kind {
        EnvelopeKind::Notify => "no room for news: the other side did not read".to_owned(),
        kind => format!("no answer to {kind}"),
    }
}

/// The fault in a JSON-RPC error: its envelope's, or for a peer that sends none the nearest.
pub(crate) fn fault_of(error: &WireError) -> EnvelopeError {
    /// Read for the fault alone: what a peer got wrong around it does not matter.
    #[derive(Deserialize)]
    struct Data {
        envelope: Around,
    }
    #[derive(Deserialize)]
    struct Around {
        payload: EnvelopeError,
    }
    match error.data.as_ref().and_then(|data| data.parse::<Data>().ok()) {
        Some(data) => data.envelope.payload,
        None => EnvelopeError::of(EnvelopeErrorCode::from_rpc(error.code), error.message.clone()),
    }
}

/// The JSON-RPC error that carries a fault.
pub(crate) fn to_wire(envelope: Envelope<EnvelopeError>) -> WireError {
    let error = WireError::new(envelope.payload.code.rpc_code(), envelope.payload.message.clone());
    match serde_json::to_value(serde_json::json!({ "envelope": envelope })) {
        Ok(data) => error.data(data),
        Err(_) => error,
    }
}

/// A random id of an agent: 32 hexadecimal digits.
pub(crate) fn random_agent_id() -> AgentId {
    AgentId::from(uuid::Uuid::new_v4().simple().to_string())
}
