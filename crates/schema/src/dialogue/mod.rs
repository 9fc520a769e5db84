//! Dialogue messages: signed messages for negotiations between two agents, sent as `_session/dialogue`.
//!
//! A signature covers the text that the sender wrote. Therefore a message travels as [`Json`] and is
//! decoded into a [`DialogueMessage`] beside it. A `DialogueMessage` that is encoded again may no
//! longer match the signature.
//!
//! Dialogue messages are not part of ACP. A peer advertises them in `initialize`, with
//! [`DuologueCapabilities`](crate::DuologueCapabilities).

mod content;
mod error;
mod ids;
mod message;

use duologue_schema_derive::wire;

pub use crate::{Attachment, AttachmentError};
use crate::{Json, MethodRow, MethodSide, Request, SessionId};

pub use content::{Belief, BeliefUpdate, DialogueContent};
pub use error::{DialogueErrorCode, ErrorContent};
pub use ids::{AgentUri, AgentUriError, DialogueId, DialogueMessageId, ID_CHARS, URI_BYTES};
pub use message::{
    DialogueAct, DialogueMessage, DialogueMetadata, InvalidField, LIST_ITEMS, MessageType, PriorityBand,
};

/// The params of `_session/dialogue`.
#[wire]
pub struct DialogueRequest {
    /// The ACP session. The id of the dialogue is in the message.
    pub session_id: SessionId,
    /// The [`Message`](DialogueMessage) in the text that its sender signed.
    pub message: Json,
}

/// The result of `_session/dialogue`: a receipt or an error.
///
/// A reply to the message is a message of its own, sent as another request.
#[wire]
pub struct DialogueResponse {
    /// The receipt of an accepted message.
    pub receipt: Option<Receipt>,
    /// The reason of a rejection: a [`Message`](DialogueMessage) of the type `error` with an
    /// [`ErrorContent`].
    pub error: Option<Json>,
}

impl DialogueResponse {
    /// Creates the response to an accepted message.
    #[must_use]
    pub fn accepted(receipt: Receipt) -> Self {
        DialogueResponse::new().receipt(receipt)
    }

    /// Creates the response to a rejected message.
    #[must_use]
    pub fn rejected(error: Json) -> Self {
        DialogueResponse::new().error(error)
    }
}

/// Confirms that a message was accepted. It does not tell if the handler will succeed.
#[wire(snake)]
pub struct Receipt {
    /// The id of the message.
    pub message_id: DialogueMessageId,
    /// The id of the dialogue.
    pub session_id: DialogueId,
    /// True if the same message was accepted before. The receiver then ignores it.
    #[wire(default, always)]
    pub duplicate: bool,
    /// The status of the message.
    #[wire(default, always)]
    pub status: ReceiptStatus,
}

/// The status of an accepted message.
#[wire(open)]
#[derive(Default)]
pub enum ReceiptStatus {
    /// The handler has received the message.
    #[default]
    Delivered,
    /// The message arrived early and waits for the messages before it.
    Held,
}

impl Request for DialogueRequest {
    const METHOD: &'static str = "_session/dialogue";
    type Result = DialogueResponse;
}

/// The methods of dialogues. Both sides handle them.
pub const METHODS: &[MethodRow] = &[MethodRow {
    method: DialogueRequest::METHOD,
    name: "Dialogue",
    params: "DialogueRequest",
    result: Some("DialogueResponse"),
    side: MethodSide::Protocol,
}];
