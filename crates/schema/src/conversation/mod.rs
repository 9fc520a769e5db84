//! The fold from session updates to a conversation.

mod entry;
mod fold;

use std::collections::HashMap;

pub use self::entry::{Compaction, ConversationEntry, ConversationMessage, MessageKind};
use crate::{
    AvailableCommand, CompactionId, MessageId, Meta, Plan, SessionConfigOption, SessionModeId, ToolCall,
    ToolCallId, UsageUpdate,
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
    entries: Vec<ConversationEntry>,
    places: HashMap<EntryKey, usize>,
    open: OpenMessages,
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
enum EntryKey {
    Message(MessageKind, MessageId),
    ToolCall(ToolCallId),
    Compaction(CompactionId),
}

/// What updates without an id are about.
#[derive(Clone, Debug, Default, PartialEq)]
struct OpenMessages {
    /// Entries before this one are final.
    from: usize,
    /// The message the last chunk went to, unless something has begun since.
    tail: Option<usize>,
    /// For each kind, the message that last received a chunk.
    current: [Option<Current>; MessageKind::COUNT],
}

/// What a clear without an id empties.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Current {
    place: usize,
    /// It was emptied that way, and waits for what it shall say instead.
    cleared: bool,
}

impl Conversation {
    /// Everything said, thought and done, in the order in which it began.
    #[must_use]
    pub fn entries(&self) -> &[ConversationEntry] {
        &self.entries
    }

    /// The messages and thoughts among the entries.
    pub fn messages(&self) -> impl DoubleEndedIterator<Item = &ConversationMessage> {
        self.entries.iter().filter_map(ConversationEntry::as_message)
    }

    /// The message of a kind with an id.
    #[must_use]
    pub fn message(&self, kind: MessageKind, id: impl Into<MessageId>) -> Option<&ConversationMessage> {
        self.entry(&EntryKey::Message(kind, id.into()))?.as_message()
    }

    /// The tool call with an id.
    #[must_use]
    pub fn tool_call(&self, id: impl Into<ToolCallId>) -> Option<&ToolCall> {
        self.entry(&EntryKey::ToolCall(id.into()))?.as_tool_call()
    }

    /// The newest message of the agent, in the order in which they began.
    #[must_use]
    pub fn last_agent_message(&self) -> Option<&ConversationMessage> {
        self.messages().rfind(|message| message.kind == MessageKind::Agent)
    }

    /// The newest thought of the agent, in the order in which they began.
    #[must_use]
    pub fn last_agent_thought(&self) -> Option<&ConversationMessage> {
        self.messages().rfind(|message| message.kind == MessageKind::Thought)
    }

    /// What the agent has said since the person last spoke: the text of its messages, with a blank
    /// line between two.
    #[must_use]
    pub fn agent_text(&self) -> String {
        let mut texts: Vec<_> = self
            .messages()
            .rev()
            .take_while(|message| message.kind != MessageKind::User)
            .filter(|message| message.kind == MessageKind::Agent)
            .map(ConversationMessage::text)
            .filter(|text| !text.is_empty())
            .collect();
        texts.reverse();
        texts.join("\n\n")
    }

    /// The plan, if there is one.
    #[must_use]
    pub fn plan(&self) -> Option<&Plan> {
        self.plan.as_ref()
    }

    /// The slash commands.
    #[must_use]
    pub fn commands(&self) -> &[AvailableCommand] {
        &self.commands
    }

    /// The mode, if an update has told it.
    #[must_use]
    pub fn current_mode(&self) -> Option<&SessionModeId> {
        self.current_mode.as_ref()
    }

    /// The config options, if an update has told them.
    #[must_use]
    pub fn config_options(&self) -> &[SessionConfigOption] {
        &self.config_options
    }

    /// Tokens and money used so far.
    #[must_use]
    pub fn usage(&self) -> Option<&UsageUpdate> {
        self.usage.as_ref()
    }

    /// The title.
    #[must_use]
    pub fn title(&self) -> Option<&str> {
        self.title.as_deref()
    }

    /// When something last happened in the session, as the agent wrote it.
    #[must_use]
    pub fn updated_at(&self) -> Option<&str> {
        self.updated_at.as_deref()
    }

    /// Extension data about the session.
    #[must_use]
    pub fn meta(&self) -> Option<&Meta> {
        self.meta.as_ref()
    }

    /// What was ignored.
    #[must_use]
    pub fn stats(&self) -> ConversationStats {
        self.stats
    }

    fn entry(&self, key: &EntryKey) -> Option<&ConversationEntry> {
        self.entries.get(*self.places.get(key)?)
    }
}
