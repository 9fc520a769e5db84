//! The ids of messages: every message of version 2 has one.

use duologue_schema::{MessageId, SessionUpdate};

use crate::turn::Turn;

/// The ids of the messages that updates without an id continue. Every message of version 2 has an id.
///
/// The rules are those of [`Conversation`](duologue_schema::Conversation): consecutive pieces of one kind are one
/// message, which another kind or a tool call ends, unless the message was cleared.
#[derive(Clone, Debug, Default)]
pub(crate) struct MessageIds {
    current: [Option<CurrentMessage>; 3],
    /// The kind of the message that the next piece continues.
    tail: Option<usize>,
}

#[derive(Clone, Debug)]
struct CurrentMessage {
    id: MessageId,
    is_cleared: bool,
}

impl MessageIds {
    /// Gives an update without an id the id of its message.
    pub(super) fn complete(&mut self, update: &mut SessionUpdate) {
        let (kind, id) = match update {
            SessionUpdate::UserMessageChunk(chunk) => (0, &mut chunk.message_id),
            SessionUpdate::AgentMessageChunk(chunk) => (1, &mut chunk.message_id),
            SessionUpdate::AgentThoughtChunk(chunk) => (2, &mut chunk.message_id),
            SessionUpdate::AgentMessageClear(clear) => return self.clear(1, &mut clear.message_id),
            SessionUpdate::AgentThoughtClear(clear) => return self.clear(2, &mut clear.message_id),
            // A change to a known call is no new entry.
            SessionUpdate::ToolCall(_) => {
                self.tail = None;
                return;
            }
            SessionUpdate::UserMessage(_) => {
                *self = MessageIds::default();
                return;
            }
            _ => return,
        };
        let continued = self.current[kind]
            .take()
            .filter(|current| current.is_cleared || self.tail == Some(kind))
            .map(|current| current.id);
        if kind == 0 {
            // A message of the user ends those of the agent.
            self.current = [None, None, None];
        }
        let id = id.get_or_insert_with(|| continued.unwrap_or_else(Turn::new_message_id));
        self.current[kind] = Some(CurrentMessage { id: id.clone(), is_cleared: false });
        self.tail = Some(kind);
    }

    fn clear(&mut self, kind: usize, id: &mut Option<MessageId>) {
        if let (None, Some(current)) = (&id, &mut self.current[kind]) {
            current.is_cleared = true;
            *id = Some(current.id.clone());
        }
    }
}
