//! The content of an `error` message of a dialogue.

use duologue_schema_derive::wire;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::ids::is_id;
use super::{AgentUri, DialogueId, DialogueMessageId};
use crate::{Json, Members};

/// The content of a message of the type `error`: the error, and the message that caused it.
///
/// ```
/// use duologue_schema::Json;
/// use duologue_schema::dialogue::{DialogueContent, DialogueErrorCode, ErrorContent};
///
/// let refused = Json::new(&serde_json::json!({ "message_id": "m1", "session_id": 7 }))?;
/// let error = ErrorContent::of(DialogueErrorCode::InvalidParameter, "session_id must be a string").about(&refused);
/// let content = DialogueContent::from(error);
/// assert_eq!(content.error().unwrap().failed_message_id.unwrap(), "m1");
/// # Ok::<(), serde_json::Error>(())
/// ```
#[wire(snake)]
pub struct ErrorContent {
    /// The code. Only the code is required, so malformed other fields read as absent.
    pub error_code: DialogueErrorCode,
    /// A message to show to the user.
    #[wire(default, always, lenient)]
    pub error_message: String,
    /// Further details, depending on the code.
    #[wire(default, always, lenient)]
    pub details: Members,
    /// True if the same message may succeed later; see [`is_retryable`](Self::is_retryable).
    #[wire(lenient)]
    pub retryable: Option<bool>,
    /// The id of the failed message. This and the next fields are absent if they were unreadable.
    #[wire(lenient)]
    pub failed_message_id: Option<DialogueMessageId>,
    /// The dialogue of the failed message.
    #[wire(lenient)]
    pub failed_session_id: Option<DialogueId>,
    /// The sender that the failed message names.
    #[wire(lenient)]
    pub failed_sender_id: Option<AgentUri>,
    /// The recipient that the failed message names.
    #[wire(lenient)]
    pub failed_recipient_id: Option<AgentUri>,
}

impl ErrorContent {
    /// Creates an error with a code and a message.
    #[must_use]
    pub fn of(code: DialogueErrorCode, message: impl Into<String>) -> Self {
        ErrorContent::new(code).error_message(message)
    }

    /// Sets the fields about the failed message. `message` may be any JSON: malformed fields are left out.
    #[must_use]
    pub fn about(mut self, message: &Json) -> Self {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Named {
            message_id: Option<Json>,
            session_id: Option<Json>,
            sender_id: Option<Json>,
            recipient_id: Option<Json>,
        }
        fn read<T: DeserializeOwned>(json: Option<Json>, fits: impl Fn(&T) -> bool) -> Option<T> {
            json?.parse().ok().filter(fits)
        }
        let named: Named = message.parse().unwrap_or_default();
        self.failed_message_id = read(named.message_id, |id: &DialogueMessageId| is_id(id.as_str()));
        self.failed_session_id = read(named.session_id, |id: &DialogueId| is_id(id.as_str()));
        self.failed_sender_id = read(named.sender_id, |uri: &AgentUri| uri.check().is_ok());
        self.failed_recipient_id = read(named.recipient_id, |uri: &AgentUri| uri.check().is_ok());
        self
    }

    /// Returns true if the same message may succeed later. The field decides, or else the code.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        self.retryable.unwrap_or_else(|| self.error_code.is_retryable())
    }
}

/// The error codes of a dialogue. Peers may use others.
#[wire(open)]
pub enum DialogueErrorCode {
    /// A field, the step or the type of the message is invalid.
    #[wire(rename = "INVALID_PARAMETER")]
    InvalidParameter,
    /// The sender is unknown or not allowed to send the message.
    #[wire(rename = "UNAUTHORIZED")]
    Unauthorized,
    /// The `ttl` has passed, or the message is too old to rule out a replay.
    #[wire(rename = "EXPIRED")]
    Expired,
    /// Another message has the same id or step.
    #[wire(rename = "CONFLICT")]
    Conflict,
    /// The message refers to something that does not exist.
    #[wire(rename = "NOT_FOUND")]
    NotFound,
    /// The receiver is at its limit.
    #[wire(rename = "OVERLOADED")]
    Overloaded,
    /// The deadline has passed.
    #[wire(rename = "TIMEOUT")]
    Timeout,
    /// The receiver failed.
    #[wire(rename = "SERVER_ERROR")]
    ServerError,
}

impl DialogueErrorCode {
    /// Returns true if a retry may succeed after this error. Unknown codes are never retryable.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Overloaded | Self::Timeout | Self::ServerError)
    }
}
