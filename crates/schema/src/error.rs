//! The error object of JSON-RPC, with the codes the protocol gives a meaning.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Json;

/// The `error` member of a JSON-RPC response: what a peer says went wrong with one request.
///
/// ```
/// use duologue_schema::{Error, ErrorCode};
///
/// let error = Error::invalid_params("cwd must be absolute");
/// assert_eq!(error.code, ErrorCode::INVALID_PARAMS);
/// assert_eq!(error.to_string(), "cwd must be absolute (-32602)");
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Error {
    /// What kind of error it is.
    pub code: ErrorCode,
    /// One sentence for a person.
    pub message: Cow<'static, str>,
    /// More about it, in a form the peers agreed on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Json>,
}

impl Error {
    /// An error with a code and a sentence.
    pub fn new(code: ErrorCode, message: impl Into<Cow<'static, str>>) -> Self {
        Error { code, message: message.into(), data: None }
    }

    /// Adds structured details.
    #[must_use]
    pub fn data(mut self, data: impl Into<Json>) -> Self {
        self.data = Some(data.into());
        self
    }

    /// `-32700`: the line was not JSON.
    pub fn parse_error(message: impl Into<Cow<'static, str>>) -> Self {
        Error::new(ErrorCode::PARSE_ERROR, message)
    }

    /// `-32600`: JSON, but not a request this peer can take.
    pub fn invalid_request(message: impl Into<Cow<'static, str>>) -> Self {
        Error::new(ErrorCode::INVALID_REQUEST, message)
    }

    /// `-32601`: nobody here handles `method`.
    #[must_use]
    pub fn method_not_found(method: &str) -> Self {
        // A method name may be as long as a line; the answer need not be.
        let shown: String = method.chars().take(120).collect();
        Error::new(ErrorCode::METHOD_NOT_FOUND, format!("method not found: {shown}"))
    }

    /// `-32602`: the params do not fit the method.
    pub fn invalid_params(message: impl Into<Cow<'static, str>>) -> Self {
        Error::new(ErrorCode::INVALID_PARAMS, message)
    }

    /// `-32603`: the handler failed.
    pub fn internal(message: impl Into<Cow<'static, str>>) -> Self {
        Error::new(ErrorCode::INTERNAL_ERROR, message)
    }

    /// `-32000`: call `authenticate` first.
    #[must_use]
    pub fn auth_required() -> Self {
        Error::new(ErrorCode::AUTH_REQUIRED, "authentication required")
    }

    /// `-32002`: no such file, session or terminal.
    pub fn resource_not_found(message: impl Into<Cow<'static, str>>) -> Self {
        Error::new(ErrorCode::RESOURCE_NOT_FOUND, message)
    }

    /// `-32800`: the request was cancelled.
    #[must_use]
    pub fn request_cancelled() -> Self {
        Error::new(ErrorCode::REQUEST_CANCELLED, "request cancelled")
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.message, self.code.0)
    }
}

impl std::error::Error for Error {}

/// A JSON-RPC error code. Codes without a name here are as good as those with one.
///
/// The names are those of JSON-RPC 2.0 §5.1 and of ACP's
/// [error page](https://agentclientprotocol.com/protocol/v1/overview#error-handling).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ErrorCode(pub i32);

impl ErrorCode {
    /// The line was not JSON.
    pub const PARSE_ERROR: Self = ErrorCode(-32700);
    /// JSON, but not a request.
    pub const INVALID_REQUEST: Self = ErrorCode(-32600);
    /// Nobody handles the method.
    pub const METHOD_NOT_FOUND: Self = ErrorCode(-32601);
    /// The params do not fit.
    pub const INVALID_PARAMS: Self = ErrorCode(-32602);
    /// The handler failed.
    pub const INTERNAL_ERROR: Self = ErrorCode(-32603);
    /// The request was cancelled, by its sender or by a shutdown.
    pub const REQUEST_CANCELLED: Self = ErrorCode(-32800);
    /// Call `authenticate` first.
    pub const AUTH_REQUIRED: Self = ErrorCode(-32000);
    /// No such resource.
    pub const RESOURCE_NOT_FOUND: Self = ErrorCode(-32002);
}
