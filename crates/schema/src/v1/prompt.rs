//! Prompt turns: start, end and cancellation.
//!
//! See [Prompt turn](https://agentclientprotocol.com/protocol/v1/prompt-turn).

use duologue_schema_derive::wire;

use crate::{ContentBlock, RequestId, SessionId};

/// The params of `session/prompt`, which starts a turn. The response ends the turn.
#[wire]
pub struct PromptRequest {
    /// The session.
    pub session_id: SessionId,
    /// The prompt of the user.
    pub prompt: Vec<ContentBlock>,
    /// The key that makes a repeated request the same one. Version 1 has none.
    #[cfg(feature = "protocol-v2")]
    #[wire(local)]
    pub idempotency_key: Option<crate::v2::IdempotencyKey>,
}

/// The answer to `session/prompt`.
#[wire]
pub struct PromptResponse {
    /// The reason why the turn ended.
    pub stop_reason: StopReason,
    /// The tokens used by the turn.
    #[cfg(feature = "unstable")]
    #[wire(lenient)]
    pub usage: Option<crate::Usage>,
}

/// The reason why a turn ended.
#[wire]
pub enum StopReason {
    /// The model finished.
    EndTurn,
    /// The model reached its token limit.
    MaxTokens,
    /// The agent reached its limit of model requests in one turn.
    MaxTurnRequests,
    /// The agent refused. This prompt is not part of the context of the next one.
    Refusal,
    /// The client cancelled the turn.
    Cancelled,
    /// The turn failed. Only version 2 has it: in version 1 the request fails.
    #[cfg(feature = "protocol-v2")]
    Error,
}

impl From<StopReason> for PromptResponse {
    fn from(stop_reason: StopReason) -> Self {
        Self::new(stop_reason)
    }
}

/// The params of `session/cancel`, which asks the agent to end the turn. The agent still responds
/// to the prompt, with [`StopReason::Cancelled`].
#[wire]
pub struct CancelNotification {
    /// The session.
    pub session_id: SessionId,
}

/// The params of `$/cancel_request`: the sender of a request no longer needs the response.
///
/// See [Cancellation](https://agentclientprotocol.com/protocol/v1/cancellation).
#[wire]
pub struct CancelRequestNotification {
    /// The id of the request.
    pub request_id: RequestId,
}
