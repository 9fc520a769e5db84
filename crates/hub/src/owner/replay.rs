//! The late replay of an agent that restored its session.
//!
//! Some agents send a part of the conversation again behind their response to `session/load`. The clients have it, so it is
//! dropped as long as it equals the conversation in the log.

use std::collections::{HashSet, VecDeque};

use duologue_rpc::raw_message::member;
use duologue_schema::{ContentBlock, ContentChunk, SessionNotification, SessionUpdate, ToolCallId};

/// The conversation that an agent may send again.
#[derive(Debug, Default)]
pub(super) struct LateReplay {
    expected: VecDeque<SessionUpdate>,
    /// The bytes of the first text that the agent has sent again.
    taken: usize,
    /// The tool calls that the agent has sent again.
    calls: HashSet<ToolCallId>,
}

impl LateReplay {
    /// Creates the replay of a conversation, as a client receives it that loads the session.
    pub(super) fn new(conversation: Vec<SessionUpdate>) -> Self {
        LateReplay { expected: conversation.into(), ..LateReplay::default() }
    }

    /// Returns true if a line of the agent repeats the next part of the conversation. A piece of a text is a part.
    pub(super) fn repeats(&mut self, line: &[u8]) -> bool {
        if self.expected.is_empty() && self.calls.is_empty() {
            return false;
        }
        let params = member(line, "params").and_then(|params| line.get(params));
        let update = params.and_then(|params| serde_json::from_slice::<SessionNotification>(params).ok());
        update.is_some_and(|update| self.takes(&update.update))
    }

    fn takes(&mut self, update: &SessionUpdate) -> bool {
        if let SessionUpdate::ToolCallUpdate(update) = update {
            return self.calls.contains(&update.tool_call_id);
        }
        let Some(expected) = self.expected.front() else { return false };
        let is_complete = match (expected, update) {
            (SessionUpdate::UserMessageChunk(expected), SessionUpdate::UserMessageChunk(chunk))
            | (SessionUpdate::AgentMessageChunk(expected), SessionUpdate::AgentMessageChunk(chunk))
            | (SessionUpdate::AgentThoughtChunk(expected), SessionUpdate::AgentThoughtChunk(chunk)) => {
                match continued(expected, self.taken, chunk) {
                    Some(taken) => {
                        self.taken = taken.unwrap_or_default();
                        taken.is_none()
                    }
                    None => return false,
                }
            }
            (SessionUpdate::ToolCall(expected), SessionUpdate::ToolCall(call))
                if expected.tool_call_id == call.tool_call_id =>
            {
                self.calls.insert(call.tool_call_id.clone());
                true
            }
            // The last state of plans, usage and title stands behind the messages, in any order.
            (_, update) => {
                let place = self.expected.iter().position(|expected| expected == update);
                return place.and_then(|place| self.expected.remove(place)).is_some();
            }
        };
        if is_complete {
            self.expected.pop_front();
        }
        true
    }
}

/// Compares a piece with the rest of a message behind `taken` bytes. Returns the bytes that are taken then, `Some(None)` at
/// the end of the message, and `None` if it is another message.
fn continued(expected: &ContentChunk, taken: usize, chunk: &ContentChunk) -> Option<Option<usize>> {
    // Some agents send the messages again without their ids.
    if let (Some(expected), Some(id)) = (&expected.message_id, &chunk.message_id)
        && expected != id
    {
        return None;
    }
    match (&expected.content, &chunk.content) {
        (ContentBlock::Text(expected), ContentBlock::Text(piece)) => {
            let rest = expected.text.get(taken..)?.strip_prefix(&*piece.text)?;
            Some((!rest.is_empty()).then(|| expected.text.len() - rest.len()))
        }
        (expected, content) => (expected == content).then_some(None),
    }
}
