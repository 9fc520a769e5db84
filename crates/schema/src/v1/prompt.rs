//! A turn: the prompt, how it ends, and how it is cancelled.
//!
//! See [Prompt turn](https://agentclientprotocol.com/protocol/v1/prompt-turn).

use duologue_schema_derive::wire;

use crate::{ContentBlock, RequestId, SessionId};

/// `session/prompt`: begins a turn. The answer ends it.
#[wire]
pub struct PromptRequest {
    /// The session.
    pub session_id: SessionId,
    /// What the person said.
    pub prompt: Vec<ContentBlock>,
}

/// The answer to `session/prompt`.
#[wire]
pub struct PromptResponse {
    /// Why the turn ended.
    pub stop_reason: StopReason,
}

/// Why a turn ended.
#[wire]
pub enum StopReason {
    /// The model was done.
    EndTurn,
    /// The model ran out of tokens.
    MaxTokens,
    /// The agent asked the model as often as it may in one turn.
    MaxTurnRequests,
    /// The agent refused. The next prompt will not know of this one.
    Refusal,
    /// The client cancelled.
    Cancelled,
}

impl From<StopReason> for PromptResponse {
    fn from(stop_reason: StopReason) -> Self {
        Self::new(stop_reason)
    }
}

/// `session/cancel`: asks the agent to end the turn. It still answers the prompt, with
/// [`StopReason::Cancelled`].
#[wire]
pub struct CancelNotification {
    /// The session.
    pub session_id: SessionId,
}

/// `$/cancel_request`: the sender of a request no longer wants its answer.
///
/// See [Cancellation](https://agentclientprotocol.com/protocol/v1/cancellation).
#[wire]
pub struct CancelRequestNotification {
    /// The request.
    pub request_id: RequestId,
}
