//! The fold from session updates to a conversation.

mod entry;
#[cfg(test)]
mod tests;

use std::collections::HashMap;

use duologue_schema_derive::wire;

pub use self::entry::{Compaction, Entry, Message, MessageKind};
use self::entry::{append, joined};
use crate::{
    AvailableCommand, CompactionId, CompactionUpdate, ContentBlock, ContentChunk, MessageClear, MessageId,
    Meta, Patch, Plan, SessionConfigOption, SessionInfoUpdate, SessionModeId, SessionUpdate, ToolCall,
    ToolCallId, ToolCallUpdate, Unknown, UsageUpdate,
};

/// A session as its updates tell it: what was said, thought and done, and how things stand.
///
/// It is a pure fold. Feed it every update in order, and tell it where turns begin and end; the
/// same updates always make the same conversation. A session that is loaded tells its story with
/// updates alone, so there `prompt` has nothing to add.
///
/// ```
/// use duologue_schema::{Conversation, SessionUpdate};
///
/// let mut conversation = Conversation::default();
/// conversation.prompt(&["How far is the moon?".into()]);
/// conversation.apply(&SessionUpdate::agent_message("About "));
/// conversation.apply(&SessionUpdate::agent_message("300,000 miles."));
/// conversation.apply(&SessionUpdate::agent_message_clear(None));
/// conversation.apply(&SessionUpdate::agent_message("384,400 km."));
/// conversation.end_turn();
///
/// assert_eq!(conversation.agent_text(), "384,400 km.");
/// assert_eq!(conversation.entries().len(), 2);
/// ```
///
/// # Which message
///
/// A chunk with an id belongs to the message of that kind and id. A chunk without one goes on with
/// the message the chunk before it went to, if that is of its kind and no tool call has begun since.
///
/// A clear empties one message and leaves it its place, id and metadata. With an id it is the
/// message of that kind and id. Without one it is the *current* message of that kind: the one that
/// last received a chunk, until its turn ends or the person speaks; the next chunk without an id
/// then fills it again, wherever it comes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Conversation {
    entries: Vec<Entry>,
    places: HashMap<Key, usize>,
    /// The message the last chunk went to, unless something has come between.
    tail: Option<usize>,
    message: Current,
    thought: Current,
    /// Entries before this one belong to turns that are over.
    turn: usize,
    plan: Option<Plan>,
    commands: Vec<AvailableCommand>,
    current_mode: Option<SessionModeId>,
    config_options: Vec<SessionConfigOption>,
    usage: Option<UsageUpdate>,
    title: Option<String>,
    updated_at: Option<String>,
    meta: Option<Meta>,
    stats: ConversationStats,
}

/// What a conversation has ignored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConversationStats {
    /// Clears of a message that is not there, or is of another kind.
    pub unknown_clears: u64,
    /// Updates of a kind this crate does not know.
    pub unknown_updates: u64,
}

/// What an entry is found by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Key {
    Message(MessageKind, MessageId),
    ToolCall(ToolCallId),
    Compaction(CompactionId),
}

/// What a clear without an id is about.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Current {
    place: Option<usize>,
    /// It was cleared and waits for what it shall say instead.
    cleared: bool,
}

/// A message, whole: how draft version 2 of the protocol clears and replaces.
#[wire]
struct WholeMessage {
    message_id: MessageId,
    #[wire(skip_invalid)]
    content: Patch<Vec<ContentBlock>>,
    #[wire(lenient)]
    meta: Patch<Meta>,
}

impl Conversation {
    /// Takes in one update.
    ///
    /// Notices leave no trace: they are shown once, and a session that is loaded does not repeat
    /// them.
    pub fn apply(&mut self, update: &SessionUpdate) {
        match update {
            SessionUpdate::UserMessageChunk(chunk) => self.chunk(MessageKind::User, chunk),
            SessionUpdate::AgentMessageChunk(chunk) => self.chunk(MessageKind::Agent, chunk),
            SessionUpdate::AgentThoughtChunk(chunk) => self.chunk(MessageKind::Thought, chunk),
            SessionUpdate::AgentMessageClear(clear) => self.clear(MessageKind::Agent, clear),
            SessionUpdate::AgentThoughtClear(clear) => self.clear(MessageKind::Thought, clear),
            SessionUpdate::ToolCall(call) => self.tool_call(call),
            SessionUpdate::ToolCallUpdate(update) => self.tool_call_update(update),
            SessionUpdate::Plan(plan) => self.plan = Some(plan.clone()),
            SessionUpdate::AvailableCommandsUpdate(update) => {
                self.commands.clone_from(&update.available_commands);
            }
            SessionUpdate::CurrentModeUpdate(update) => {
                self.current_mode = Some(update.current_mode_id.clone());
            }
            SessionUpdate::ConfigOptionUpdate(update) => {
                self.config_options.clone_from(&update.config_options);
            }
            SessionUpdate::SessionInfoUpdate(update) => self.session_info(update.clone()),
            SessionUpdate::UsageUpdate(usage) => self.usage = Some(usage.clone()),
            SessionUpdate::Notice(_) => {}
            SessionUpdate::CompactionUpdate(update) => self.compaction_update(update),
            SessionUpdate::CompactionSummaryChunk(chunk) => {
                append(&mut self.compaction(&chunk.compaction_id).summary, &chunk.content);
            }
            SessionUpdate::Unknown(unknown) => self.unknown(unknown),
        }
    }

    /// Takes in what the person asked: a turn begins.
    pub fn prompt(&mut self, prompt: &[ContentBlock]) {
        self.end_turn();
        let mut message = Message::new(MessageKind::User, None);
        message.content = joined(prompt);
        self.entries.push(Entry::Message(message));
    }

    /// The turn is over: its messages are final, and only clears that name one reach it.
    pub fn end_turn(&mut self) {
        self.turn = self.entries.len();
        self.tail = None;
        self.message = Current::default();
        self.thought = Current::default();
    }

    fn chunk(&mut self, kind: MessageKind, chunk: &ContentChunk) {
        let message = self.receive(kind, chunk.message_id.as_ref());
        append(&mut message.content, &chunk.content);
        if chunk.meta.is_some() {
            message.meta.clone_from(&chunk.meta);
        }
    }

    /// The message that gets what has come, which makes it the current one.
    fn receive(&mut self, kind: MessageKind, id: Option<&MessageId>) -> &mut Message {
        if kind == MessageKind::User {
            self.end_turn_but_tail();
        }
        let known = match id {
            Some(id) => self.places.get(&Key::Message(kind, id.clone())).copied(),
            None => self.anonymous(kind),
        };
        let place = known.unwrap_or_else(|| {
            let key = id.map(|id| Key::Message(kind, id.clone()));
            self.add(key, Entry::Message(Message::new(kind, id.cloned())))
        });
        // What a finished turn has said may grow, but it does not come back.
        let finished = place < self.turn && kind != MessageKind::User;
        self.tail = (!finished).then_some(place);
        if !finished && let Some(current) = self.current(kind) {
            *current = Current { place: Some(place), cleared: false };
        }
        self.message_at(place)
    }
}
