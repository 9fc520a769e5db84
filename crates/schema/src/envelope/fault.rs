//! The payload of the kind `error`.

use std::fmt;

use duologue_schema_derive::wire;

use crate::ErrorCode;

/// The payload of the kind `error`. The code is for programs, the message for the user.
#[wire(snake, definition = "Fault")]
pub struct EnvelopeError {
    /// The code of the error.
    pub code: EnvelopeErrorCode,
    /// A message to show to the user.
    #[wire(default, always)]
    pub message: String,
    /// True if the same message may succeed later.
    #[wire(default, always)]
    pub retryable: bool,
}

/// The error codes of envelopes. Peers may use others.
#[wire(open, definition = "FaultCode")]
pub enum EnvelopeErrorCode {
    /// The sender is not allowed to do that.
    NotAuthorized,
    /// The agent does not handle the domain.
    UnknownDomain,
    /// The task limit is reached. Retry later.
    Overloaded,
    /// The handler failed.
    Internal,
    /// The deadline has passed.
    Timeout,
    /// The work was cancelled.
    Cancelled,
    /// The kind of the envelope is unknown.
    UnknownKind,
    /// The version in `v` is not supported.
    UnsupportedVersion,
    /// The `kind` of the envelope does not match the method.
    KindMismatch,
    /// The agent rejected the message without a code.
    Refused,
    /// The other side has disconnected.
    Unreachable,
    /// The envelope or its payload is invalid.
    InvalidParameter,
    /// The session, the delegation or the recipient does not exist.
    NotFound,
    /// The call passed through too many handlers. Agents may be calling each other in a cycle.
    TooManyHops,
    /// The id of the message is that of another message with a different content.
    Conflict,
}

impl EnvelopeErrorCode {
    /// Returns the JSON-RPC code of the response. Peers act on the envelope code, never on this one.
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
            Self::Conflict => ErrorCode(-31013),
            Self::KindMismatch | Self::InvalidParameter => ErrorCode::INVALID_PARAMS,
            Self::NotFound => ErrorCode::RESOURCE_NOT_FOUND,
            Self::Cancelled => ErrorCode::REQUEST_CANCELLED,
            Self::Internal | Self::Refused | Self::Unknown(_) => ErrorCode::INTERNAL_ERROR,
        }
    }

    /// Returns the closest code for a JSON-RPC error of a peer without envelopes.
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
            ErrorCode(-31013) => Self::Conflict,
            _ => Self::Internal,
        }
    }

    /// Returns true if a retry may succeed after this error.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Overloaded | Self::Timeout | Self::Unreachable | Self::Internal)
    }
}

impl EnvelopeError {
    /// Creates an error that is retryable if its code is.
    #[must_use]
    pub fn of(code: EnvelopeErrorCode, message: impl Into<String>) -> Self {
        let retryable = code.is_retryable();
        EnvelopeError::new(code).message(message).retryable(retryable)
    }

    /// Creates an error for a handler that failed.
    #[must_use]
    pub fn internal(message: impl Into<String>) -> Self {
        EnvelopeError::of(EnvelopeErrorCode::Internal, message)
    }

    /// Creates an error for a task limit that is reached.
    #[must_use]
    pub fn overloaded(message: impl Into<String>) -> Self {
        EnvelopeError::of(EnvelopeErrorCode::Overloaded, message)
    }

    /// Creates an error for a sender that is not allowed to do that.
    #[must_use]
    pub fn not_authorized(message: impl Into<String>) -> Self {
        EnvelopeError::of(EnvelopeErrorCode::NotAuthorized, message)
    }

    /// Creates an error for a `domain` that the agent does not handle.
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
