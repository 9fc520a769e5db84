//! What an `error` message of a dialogue says.

use duologue_schema_derive::wire;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::ids::is_id;
use super::{AgentUri, DialogueId, DialogueMessageId};
use crate::{Json, Members};

/// What went wrong with which message: the content of a message of the type `error`.
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
    /// What kind of error it is. Whatever else is there and does not fit is left out: the code counts.
    pub error_code: DialogueErrorCode,
    /// One sentence for a person.
    #[wire(default, always, lenient)]
    pub error_message: String,
    /// More about it, depending on the code.
    #[wire(default, always, lenient)]
    pub details: Members,
    /// Whether the same message may succeed later; see [`is_retryable`](Self::is_retryable).
    #[wire(lenient)]
    pub retryable: Option<bool>,
    /// The message it is about. It and the others are absent if they could not be read.
    #[wire(lenient)]
    pub failed_message_id: Option<DialogueMessageId>,
    /// The dialogue that message names.
    #[wire(lenient)]
    pub failed_session_id: Option<DialogueId>,
    /// Who sent it, as it says.
    #[wire(lenient)]
    pub failed_sender_id: Option<AgentUri>,
    /// Whom it was for.
    #[wire(lenient)]
    pub failed_recipient_id: Option<AgentUri>,
}

impl ErrorContent {
    /// An error of this kind.
    #[must_use]
    pub fn of(code: DialogueErrorCode, message: impl Into<String>) -> Self {
        ErrorContent::new(code).error_message(message)
    }

    /// Names the message it is about. That one may be anything at all: what does not fit is left out.
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

    /// Whether it makes sense to send the same message again: what it says, or else what its code says.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        self.retryable.unwrap_or_else(|| self.error_code.is_retryable())
    }
}

/// The kinds of errors in a dialogue. There may be more than these.
#[wire(open)]
pub enum DialogueErrorCode {
    /// The message does not fit: a field, the step, the move.
    #[wire(rename = "INVALID_PARAMETER")]
    InvalidParameter,
    /// It is not known who sent it, or that agent may not.
    #[wire(rename = "UNAUTHORIZED")]
    Unauthorized,
    /// It came too late: its `ttl` had passed, or nobody remembers whether it came before.
    #[wire(rename = "EXPIRED")]
    Expired,
    /// Another message had that id or that step.
    #[wire(rename = "CONFLICT")]
    Conflict,
    /// What it names does not exist.
    #[wire(rename = "NOT_FOUND")]
    NotFound,
    /// There is no room for it now.
    #[wire(rename = "OVERLOADED")]
    Overloaded,
    /// It took too long.
    #[wire(rename = "TIMEOUT")]
    Timeout,
    /// The receiver failed.
    #[wire(rename = "SERVER_ERROR")]
    ServerError,
}

impl DialogueErrorCode {
    /// Whether trying again makes sense after an error of this kind. It never does for one that is unknown.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Overloaded | Self::Timeout | Self::ServerError)
    }
}
