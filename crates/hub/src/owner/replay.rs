//! The late replay of an agent that restored its session.
//!
//! Some agents send a part of the conversation again behind their response to `session/load`. The clients have it, so it is
//! dropped as long as it equals the conversation in the log. A new turn can begin like an old message, and a process
//! can count its ids from one again. So text and tool calls wait, and are dropped only behind a message of the user that the
//! agent sent again: no turn begins with one.

use std::collections::{HashSet, VecDeque};

use duologue_rpc::raw_message::member;
use duologue_schema::{
    ContentBlock, ContentChunk, SessionId, SessionNotification, SessionUpdate, ToolCallId,
};

/// The most lines that wait.
const HELD: usize = 256;
/// Limit on the text of the conversation that is kept, in bytes. What is behind it counts as new.
const TEXT_BYTES: usize = 4 << 20;

/// The conversation that an agent may send again.
#[derive(Debug, Default)]
pub(super) struct LateReplay {
    expected: VecDeque<SessionUpdate>,
    /// The bytes of the first text that the agent has sent again.
    taken: usize,
    /// The tool calls that the agent has sent again.
    calls: HashSet<ToolCallId>,
    /// True if the agent has sent something that no new turn begins with.
    is_evident: bool,
    /// The lines that may be of a replay or of a new turn.
    held: Vec<Vec<u8>>,
}

impl LateReplay {
    /// Creates the replay of a conversation, as a client receives it that loads the session.
    pub(super) fn new(conversation: Vec<SessionUpdate>) -> Self {
        let mut bytes = 0;
        let kept = conversation.into_iter().take_while(|update| {
            bytes += text_bytes(update);
            bytes <= TEXT_BYTES
        });
        LateReplay { expected: kept.collect(), ..LateReplay::default() }
    }

    /// Notes that the agent has answered the request that restores the session. What it sends from now on may be new.
    pub(super) fn restored(&mut self) {
        (self.is_evident, self.held) = (false, Vec::new());
    }

    /// Returns the lines that waited. They are new.
    pub(super) fn end(self) -> Vec<Vec<u8>> {
        self.held
    }

    /// Compares a line of the agent with the next part of the conversation. A piece of a text is a part. Returns true if the
    /// line repeats it, false if it is something new, and `None` if it is no part of a conversation.
    pub(super) fn repeats(&mut self, session: &SessionId, line: &[u8]) -> Option<bool> {
        let update = line.get(member(line, "params")?)?;
        let update: SessionNotification = serde_json::from_slice(update).ok()?;
        // A child session has a conversation of its own.
        if update.session_id != *session {
            return None;
        }
        let is_repeated = self.takes(&update.update)?;
        if is_repeated && self.is_evident {
            self.held.clear();
        } else if is_repeated && self.held.len() < HELD {
            self.held.push(line.to_vec());
        } else {
            return Some(false);
        }
        Some(true)
    }

    fn takes(&mut self, update: &SessionUpdate) -> Option<bool> {
        let expected = self.expected.front();
        match update {
            SessionUpdate::UserMessageChunk(chunk)
            | SessionUpdate::AgentMessageChunk(chunk)
            | SessionUpdate::AgentThoughtChunk(chunk) => {
                let expected = match (expected, update) {
                    (Some(SessionUpdate::UserMessageChunk(expected)), SessionUpdate::UserMessageChunk(_))
                    | (
                        Some(SessionUpdate::AgentMessageChunk(expected)),
                        SessionUpdate::AgentMessageChunk(_),
                    )
                    | (
                        Some(SessionUpdate::AgentThoughtChunk(expected)),
                        SessionUpdate::AgentThoughtChunk(_),
                    ) => expected,
                    _ => return Some(false),
                };
                let Some(taken) = continued(expected, self.taken, chunk) else { return Some(false) };
                self.is_evident |= matches!(update, SessionUpdate::UserMessageChunk(_));
                self.taken = taken.unwrap_or_default();
                if taken.is_none() {
                    self.expected.pop_front();
                }
                Some(true)
            }
            SessionUpdate::ToolCall(call) => {
                let is_expected = matches!(
                    expected,
                    Some(SessionUpdate::ToolCall(expected))
                        if expected.tool_call_id == call.tool_call_id && expected.title == call.title
                );
                if is_expected {
                    self.calls.insert(call.tool_call_id.clone());
                    self.expected.pop_front();
                }
                Some(is_expected)
            }
            SessionUpdate::ToolCallUpdate(update) => Some(self.calls.contains(&update.tool_call_id)),
            // The last state stands behind the messages, and is equal in any order.
            SessionUpdate::Plan(_)
            | SessionUpdate::PlanUpdate(_)
            | SessionUpdate::UsageUpdate(_)
            | SessionUpdate::SessionInfoUpdate(_) => {
                let place = self.expected.iter().position(|expected| expected == update)?;
                self.expected.remove(place).map(|_| true)
            }
            _ => None,
        }
    }
}

/// Returns the bytes that an update takes at least.
fn text_bytes(update: &SessionUpdate) -> usize {
    /// The bytes of the other members, and of an update that is no text.
    const OTHER: usize = 512;
    match update {
        SessionUpdate::UserMessageChunk(chunk)
        | SessionUpdate::AgentMessageChunk(chunk)
        | SessionUpdate::AgentThoughtChunk(chunk) => match &chunk.content {
            ContentBlock::Text(text) => text.text.len() + OTHER,
            content => serde_json::to_vec(content).map_or(0, |json| json.len()) + OTHER,
        },
        update => serde_json::to_vec(update).map_or(0, |json| json.len()) + OTHER,
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
