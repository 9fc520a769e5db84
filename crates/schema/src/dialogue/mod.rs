//! The dialogue message: what two agents negotiate with, signed; carried by `_session/dialogue`.
//!
//! A signature covers the message as it was written, so a message travels as [`Json`] and is read into a
//! [`DialogueMessage`] beside it. Who writes a `DialogueMessage` anew may have lost what its sender signed.
//!
//! None of this is ACP's; a peer says in `initialize` whether it takes dialogue messages
//! ([`DuologueCapabilities`](crate::DuologueCapabilities)).

mod content;
mod error;
mod ids;
mod message;

use duologue_schema_derive::wire;

use crate::{Json, MethodRow, MethodSide, Request, SessionId};

pub use content::{Belief, BeliefUpdate, DialogueContent};
pub use error::{DialogueErrorCode, ErrorContent};
pub use ids::{AgentUri, AgentUriError, DialogueId, DialogueMessageId, ID_CHARS, URI_BYTES};
pub use message::{DialogueAct, DialogueMessage, DialogueMetadata, InvalidField, LIST_ITEMS, MessageType};

/// The params of `_session/dialogue`.
#[wire]
pub struct DialogueRequest {
    /// The ACP session it is sent in. The dialogue's own session is in the message.
    pub session_id: SessionId,
    /// The [`DialogueMessage`](DialogueMessage), as its sender wrote it: that text is what the signature covers.
    pub message: Json,
}

/// The result of `_session/dialogue`: a receipt, or why there is none.
///
/// What the receiver has to *say* to the message is a message of its own, sent the same way.
#[wire]
pub struct DialogueResponse {
    /// The message was taken.
    pub receipt: Option<Receipt>,
    /// It was not: a [`DialogueMessage`](DialogueMessage) of the type `error`, whose content holds an [`ErrorContent`].
    pub error: Option<Json>,
}

impl DialogueResponse {
    /// The message was taken.
    #[must_use]
    pub fn taken(receipt: Receipt) -> Self {
        DialogueResponse::new().receipt(receipt)
    }

    /// The message was not taken; `error` says why.
    #[must_use]
    pub fn refused(error: Json) -> Self {
        DialogueResponse::new().error(error)
    }
}

/// That a message was taken. It says nothing about what will become of it.
#[wire(snake)]
pub struct Receipt {
    /// The message.
    pub message_id: DialogueMessageId,
    /// The dialogue it belongs to.
    pub session_id: DialogueId,
    /// Whether the same message had been taken before; then nothing was done this time.
    #[wire(default, always)]
    pub duplicate: bool,
    /// What was done with it.
    #[wire(default, always)]
    pub status: ReceiptStatus,
}

/// What was done with a message that was taken.
#[wire(open)]
#[derive(Default)]
pub enum ReceiptStatus {
    /// Its handler has it.
    #[default]
    Delivered,
    /// It came early and waits for those before it.
    Held,
}

impl Request for DialogueRequest {
    const METHOD: &'static str = "_session/dialogue";
    type Result = DialogueResponse;
}

/// The methods of dialogues, for both sides.
pub const METHODS: &[MethodRow] = &[MethodRow {
    method: DialogueRequest::METHOD,
    name: "Dialogue",
    params: "DialogueRequest",
    result: Some("DialogueResponse"),
    side: MethodSide::Protocol,
}];
