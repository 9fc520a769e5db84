//! The kind `error`: what went wrong, with a code to act on.

use std::fmt;

use duologue_schema_derive::wire;

use crate::ErrorCode;

/// The kind `error`. Act on the code; the message is for a person.
#[wire(snake, definition = "Fault")]
pub struct EnvelopeError {
    /// What kind of fault it is.
    pub code: EnvelopeErrorCode,
    /// One sentence for a person.
    #[wire(default, always)]
    pub message: String,
    /// Whether the same message may succeed later.
    #[wire(default, always)]
    pub retryable: bool,
}

/// The kinds of faults. There may be more than these.
#[wire(open, definition = "FaultCode")]
pub enum EnvelopeErrorCode {
    /// The sender may not do that.
    NotAuthorized,
    /// Nobody here knows about that domain.
    UnknownDomain,
    /// There is no room for another task; try again later.
    Overloaded,
    /// The handler failed.
    Internal,
    /// It took too long.
    Timeout,
    /// It was cancelled.
    Cancelled,
    /// There is no such kind of envelope.
    UnknownKind,
    /// The envelope's `v` is not spoken here.
    UnsupportedVersion,
    /// The envelope's `kind` is not its method's.
    KindMismatch,
    /// It was refused without a code.
    Refused,
    /// The other side is gone.
    Unreachable,
    /// The envelope or its payload does not fit.
    InvalidParameter,
    /// What the envelope names does not exist: a session, a delegation, an addressee.
    NotFound,
    /// The call has come through more handlers than a call may: agents may be asking each other in a circle.
    TooManyHops,
}

impl EnvelopeErrorCode {
    /// The JSON-RPC code an error of this kind is answered with. Peers act on the kind, never on this.
    #[must_use]
    pub fn rpc_code(&self) -> ErrorCode {
        match self {
            Self::UnknownKind => ErrorCode::METHOD_NOT_FOUND,
            Self::UnsupportedVersion => ErrorCode(-31002),
            Self::NotAuthorized => ErrorCode(-31003),
            Self::UnknownDomain => ErrorCode(-31004),
            Self::Overloaded => ErrorCode(-31005),
            Self::Timeout => ErrorCode(-31006),
            Self::Unreachable => ErrorCode(-31007),
            Self::TooManyHops => ErrorCode(-31008),
            Self::KindMismatch | Self::InvalidParameter => ErrorCode::INVALID_PARAMS,
            Self::NotFound => ErrorCode::RESOURCE_NOT_FOUND,
            Self::Cancelled => ErrorCode::REQUEST_CANCELLED,
            Self::Internal | Self::Refused | Self::Unknown(_) => ErrorCode::INTERNAL_ERROR,
        }
    }

    /// The kind that a JSON-RPC error of a peer without envelopes comes nearest to.
    #[must_use]
    pub fn from_rpc(code: ErrorCode) -> Self {
        match code {
            ErrorCode::METHOD_NOT_FOUND => Self::UnknownKind,
            ErrorCode::INVALID_PARAMS | ErrorCode::INVALID_REQUEST => Self::InvalidParameter,
            ErrorCode::RESOURCE_NOT_FOUND => Self::NotFound,
            ErrorCode::REQUEST_CANCELLED => Self::Cancelled,
            ErrorCode::AUTH_REQUIRED | ErrorCode(-31003) => Self::NotAuthorized,
            ErrorCode(-31002) => Self::UnsupportedVersion,
            ErrorCode(-31004) => Self::UnknownDomain,
            ErrorCode(-31005) => Self::Overloaded,
            ErrorCode(-31006) => Self::Timeout,
            ErrorCode(-31007) => Self::Unreachable,
            ErrorCode(-31008) => Self::TooManyHops,
            _ => Self::Internal,
        }
    }

    /// Whether trying again later makes sense for a fault of this kind.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Overloaded | Self::Timeout | Self::Unreachable | Self::Internal)
    }
}

impl EnvelopeError {
    /// A fault of this kind, retryable if its kind is.
    #[must_use]
    pub fn of(code: EnvelopeErrorCode, message: impl Into<String>) -> Self {
        let retryable = code.is_retryable();
        EnvelopeError::new(code).message(message).retryable(retryable)
    }

    /// The handler failed.
    #[must_use]
    pub fn internal(message: impl Into<String>) -> Self {
        EnvelopeError::of(EnvelopeErrorCode::Internal, message)
    }

    /// There is no room for another task.
    #[must_use]
    pub fn overloaded(message: impl Into<String>) -> Self {
        EnvelopeError::of(EnvelopeErrorCode::Overloaded, message)
    }

    /// The sender may not do that.
    #[must_use]
    pub fn not_authorized(message: impl Into<String>) -> Self {
        EnvelopeError::of(EnvelopeErrorCode::NotAuthorized, message)
    }

    /// Nobody here knows about `domain`.
    #[must_use]
    pub fn unknown_domain(domain: &str) -> Self {
        EnvelopeError::of(EnvelopeErrorCode::UnknownDomain, format!("nobody here knows about {domain}"))
    }
}

impl fmt::Display for EnvelopeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.message, self.code)
    }
}

impl std::error::Error for EnvelopeError {}
