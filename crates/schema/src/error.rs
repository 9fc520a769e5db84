//! The error object of JSON-RPC, with the codes of JSON-RPC and ACP.

use std::borrow::Cow;
use std::fmt;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::wire::schema_of;
use crate::{Json, Members};

/// The `error` member of a JSON-RPC response: the reason why a request failed.
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
    /// The code of the error.
    pub code: ErrorCode,
    /// A message to show to the user.
    pub message: Cow<'static, str>,
    /// Further details, in a form that the peers agreed on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Json>,
}

impl Error {
    /// Creates an error with a code and a message.
    pub fn new(code: ErrorCode, message: impl Into<Cow<'static, str>>) -> Self {
        Error { code, message: message.into(), data: None }
    }

    /// Adds structured details.
    #[must_use]
    pub fn data(mut self, data: impl Into<Json>) -> Self {
        self.data = Some(data.into());
        self
    }

    /// Adds the members of the errors of this project to `data`: the `code` on which programs switch, and `retryable`,
    /// which is true if the same request may succeed later. Other members of `data` are kept, and a
    /// `data` that is no object is replaced.
    ///
    /// ```
    /// use duologue_schema::Error;
    /// use serde_json::{Value, json};
    ///
    /// let error = Error::internal("no such mode").data(json!({"name": "mode"})).coded("state_lost", false);
    /// let data: Value = error.data.unwrap().parse().unwrap();
    /// assert_eq!(data, json!({"code": "state_lost", "retryable": false, "name": "mode"}));
    /// ```
    #[must_use]
    pub fn coded(mut self, code: &str, is_retryable: bool) -> Self {
        let data = self.data.as_ref().and_then(|data| data.parse::<Members>().ok());
        let mut members = data.unwrap_or_default();
        members.insert("code", Value::from(code)).insert("retryable", Value::from(is_retryable));
        self.data = Json::new(&members).ok();
        self
    }

    /// Returns a member of `data`, such as the `code` or the `detail` of the errors of this project.
    ///
    /// ```
    /// use duologue_schema::Error;
    ///
    /// let error = Error::internal("the agent ended").coded("interrupted", true);
    /// assert_eq!(error.data_member::<String>("code").as_deref(), Some("interrupted"));
    /// assert_eq!(error.data_member::<String>("retryable"), None);
    /// ```
    #[must_use]
    pub fn data_member<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        self.data.as_ref()?.parse::<Members>().ok()?.get(name)
    }

    /// Creates an error with code `-32700`: the line was not JSON.
    pub fn parse_error(message: impl Into<Cow<'static, str>>) -> Self {
        Error::new(ErrorCode::PARSE_ERROR, message)
    }

    /// Creates an error with code `-32600`: the JSON was not a valid request.
    pub fn invalid_request(message: impl Into<Cow<'static, str>>) -> Self {
        Error::new(ErrorCode::INVALID_REQUEST, message)
    }

    /// Creates an error with code `-32601`: the peer does not handle `method`.
    #[must_use]
    pub fn method_not_found(method: &str) -> Self {
        // A method name may be as long as a line. The response quotes only its start.
        let shown: String = method.chars().take(120).collect();
        Error::new(ErrorCode::METHOD_NOT_FOUND, format!("method not found: {shown}"))
    }

    /// Creates an error with code `-32602`: the params do not fit the method.
    pub fn invalid_params(message: impl Into<Cow<'static, str>>) -> Self {
        Error::new(ErrorCode::INVALID_PARAMS, message)
    }

    /// Creates an error with code `-32603`: the handler failed.
    pub fn internal(message: impl Into<Cow<'static, str>>) -> Self {
        Error::new(ErrorCode::INTERNAL_ERROR, message)
    }

    /// Creates an error with code `-32000`: the client must call `authenticate` first. The login shows the message.
    pub fn auth_required(message: impl Into<Cow<'static, str>>) -> Self {
        Error::new(ErrorCode::AUTH_REQUIRED, message)
    }

    /// Creates an error with code `-32002`: the file, session or terminal does not exist.
    pub fn resource_not_found(message: impl Into<Cow<'static, str>>) -> Self {
        Error::new(ErrorCode::RESOURCE_NOT_FOUND, message)
    }

    /// Creates an error with code `-32800`: the request was cancelled.
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

/// A JSON-RPC error code. Codes without a constant are valid too.
///
/// The names are those of JSON-RPC 2.0 §5.1 and of ACP's
/// [error page](https://agentclientprotocol.com/protocol/v1/overview#error-handling).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ErrorCode(pub i32);

impl ErrorCode {
    /// The line was not JSON.
    pub const PARSE_ERROR: Self = ErrorCode(-32700);
    /// The JSON was not a valid request.
    pub const INVALID_REQUEST: Self = ErrorCode(-32600);
    /// The peer does not handle the method.
    pub const METHOD_NOT_FOUND: Self = ErrorCode(-32601);
    /// The params do not fit.
    pub const INVALID_PARAMS: Self = ErrorCode(-32602);
    /// The handler failed.
    pub const INTERNAL_ERROR: Self = ErrorCode(-32603);
    /// The request was cancelled, by its sender or by a shutdown.
    pub const REQUEST_CANCELLED: Self = ErrorCode(-32800);
    /// The client must call `authenticate` first.
    pub const AUTH_REQUIRED: Self = ErrorCode(-32000);
    /// The resource does not exist.
    pub const RESOURCE_NOT_FOUND: Self = ErrorCode(-32002);
    /// The agent does not support the version of the client. Only version 2 has it.
    #[cfg(feature = "protocol-v2")]
    pub const UNSUPPORTED_PROTOCOL_VERSION: Self = ErrorCode(-32022);
}

schema_of!(ErrorCode, "ErrorCode", |_| {
    let names = [
        ("Parse error", ErrorCode::PARSE_ERROR),
        ("Invalid request", ErrorCode::INVALID_REQUEST),
        ("Method not found", ErrorCode::METHOD_NOT_FOUND),
        ("Invalid params", ErrorCode::INVALID_PARAMS),
        ("Internal error", ErrorCode::INTERNAL_ERROR),
        ("Request cancelled", ErrorCode::REQUEST_CANCELLED),
        ("Authentication required", ErrorCode::AUTH_REQUIRED),
        ("Resource not found", ErrorCode::RESOURCE_NOT_FOUND),
    ];
    let integer = serde_json::json!({ "type": "integer", "format": "int32" });
    let mut variants: Vec<serde_json::Value> = names
        .into_iter()
        .map(|(title, code)| {
            let mut variant = integer.clone();
            variant["title"] = title.into();
            variant["const"] = code.0.into();
            variant
        })
        .collect();
    #[cfg(feature = "protocol-v2")]
    if crate::export::has_feature("protocol-v2") {
        let mut variant = integer.clone();
        variant["title"] = "Unsupported protocol version".into();
        variant["const"] = ErrorCode::UNSUPPORTED_PROTOCOL_VERSION.0.into();
        variants.push(variant);
    }
    variants.push(integer);
    schemars::json_schema!({
        "description": "A JSON-RPC error code.",
        "anyOf": variants,
    })
});

schema_of!(Error, "Error", |generator| schemars::json_schema!({
    "description": "The reason why a request failed.",
    "type": "object",
    "properties": {
        "code": generator.subschema_for::<ErrorCode>(),
        "message": { "description": "A message to show to the user.", "type": "string" },
        "data": {
            "description": "Further details, in a form that the peers agreed on.",
            "x-deserialize-default-on-error": true,
        },
    },
    "required": ["code", "message"],
}));
