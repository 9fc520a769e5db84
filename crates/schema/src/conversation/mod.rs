//! The fold of session updates into a conversation.

mod children;
mod entry;
mod fold;
mod open_calls;
mod state;
#[cfg(feature = "protocol-v2")]
mod terminals;

use std::collections::HashMap;

pub use self::children::{CHILD_SESSION_BYTES, CHILD_SESSIONS, ChildSession, SessionTree};
pub use self::entry::InterSessionMessage;
pub use self::entry::{Compaction, ConversationEntry, ConversationMessage, MessageKind, append_content};
use self::open_calls::OpenCalls;
pub use self::open_calls::{OPEN_CALL_BYTES, OPEN_CALLS};
pub use self::state::SessionState;
pub use self::state::{PLAN_BYTES, PLANS};
#[cfg(feature = "protocol-v2")]
use self::terminals::DisplayTerminals;
#[cfg(feature = "protocol-v2")]
pub use self::terminals::{DISPLAY_TERMINAL_BYTES, DISPLAY_TERMINALS, DisplayTerminal};
use crate::{
    AvailableCommand, CompactionId, MessageId, Meta, Plan, SessionConfigOption, SessionModeId,
    SessionModeState, ToolCall, ToolCallId, ToolCallUpdate, UsageUpdate,
};

/// A session folded from its updates: messages, thoughts, tool calls, and the latest state.
///
/// The fold is pure: the same updates always make the same conversation. Apply every update in order,
/// and mark the beginning and the end of each turn. The replay of a loaded session contains the
/// prompts as updates, so it needs no [`prompt`](Self::prompt).
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
/// # Chunks and clears
///
/// A chunk with an id belongs to the message of that kind and id. A chunk without an id continues the
/// message of the previous chunk, if that has the same kind and no tool call has begun since.
///
/// A clear empties one message. The message keeps its place, id and metadata. A clear with an id
/// empties the message of that kind and id. A clear without an id empties the *current* message of
/// its kind: the one that last received a chunk, until its turn ends or the user sends a message. The
/// next chunk without an id then fills that message again, even if other entries have begun since.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Conversation {
    retention: Retention,
    entries: Vec<ConversationEntry>,
    indexes: HashMap<EntryKey, usize>,
    open: OpenMessages,
    open_calls: OpenCalls,
    state: SessionState,
    stats: ConversationStats,
    children: SessionTree,
    #[cfg(feature = "protocol-v2")]
    terminals: DisplayTerminals,
}

/// The parts of a session that a [`Conversation`] keeps besides its [state](Conversation::state).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Retention {
    /// The entries.
    #[default]
    Entries,
    /// The [open tool calls](Conversation::open_call), for a session whose messages are shown and
    /// forgotten.
    OpenCalls,
    /// Both.
    All,
}

/// Counters of ignored updates. If the entries are not kept, only child sessions are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConversationStats {
    /// Clears of a message that does not exist or has another kind.
    pub unknown_clears: u64,
    /// Updates of a kind that this crate does not know, and updates that cannot be applied: output of a terminal that is not
    /// base64, a child session that is its own ancestor, and a terminal or child session with a description that is too long.
    pub unknown_updates: u64,
}

/// The identity of an entry.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum EntryKey {
    Message(MessageKind, MessageId),
    ToolCall(ToolCallId),
    Compaction(CompactionId),
    SessionMessage(MessageId),
}

/// The targets of updates without an id.
#[derive(Clone, Debug, Default, PartialEq)]
struct OpenMessages {
    /// Entries before this one are final.
    from: usize,
    /// The message of the last chunk, unless another entry has begun since.
    tail: Option<usize>,
    /// The message of each kind that last received a chunk.
    current: [Option<Current>; MessageKind::COUNT],
}

/// The target of a clear without an id.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Current {
    index: usize,
    /// True after such a clear: the next chunk without an id fills the message again.
    cleared: bool,
}

impl Conversation {
    /// Creates an empty conversation that keeps only some parts. The default keeps the entries and
    /// the state.
    #[must_use]
    pub fn retaining(retention: Retention) -> Self {
        Conversation { retention, ..Conversation::default() }
    }

    /// Sets the modes and options from the response that opened the session.
    pub fn begin(&mut self, modes: Option<SessionModeState>, config_options: Vec<SessionConfigOption>) {
        self.state.begin(modes, config_options);
    }

    /// Returns the parts that are kept.
    #[must_use]
    pub fn retention(&self) -> Retention {
        self.retention
    }

    fn keeps_entries(&self) -> bool {
        self.retention != Retention::OpenCalls
    }

    fn keeps_open_calls(&self) -> bool {
        self.retention != Retention::Entries
    }

    /// Returns the messages, tool calls and compactions, in the order in which they began.
    #[must_use]
    pub fn entries(&self) -> &[ConversationEntry] {
        &self.entries
    }

    /// Returns the messages and thoughts among the entries.
    pub fn messages(&self) -> impl DoubleEndedIterator<Item = &ConversationMessage> {
        self.entries.iter().filter_map(ConversationEntry::as_message)
    }

    /// Returns the message with this kind and id.
    #[must_use]
    pub fn message(&self, kind: MessageKind, id: impl Into<MessageId>) -> Option<&ConversationMessage> {
        self.entry(&EntryKey::Message(kind, id.into()))?.as_message()
    }

    /// Returns the tool call with this id, if the entries are kept.
    #[must_use]
    pub fn tool_call(&self, id: impl Into<ToolCallId>) -> Option<&ToolCall> {
        self.entry(&EntryKey::ToolCall(id.into()))?.as_tool_call()
    }

    /// Returns the parts of an open tool call that the agent has sent, if [open calls are
    /// kept](Retention).
    ///
    /// A call is open until it completes or fails, or until its turn ends. A later update with a title,
    /// name, kind, content, locations or input opens it again. At most [`OPEN_CALLS`] calls with
    /// [`OPEN_CALL_BYTES`] together are kept; the call that was updated longest ago is evicted first.
    #[must_use]
    pub fn open_call(&self, id: &ToolCallId) -> Option<&ToolCallUpdate> {
        self.open_calls.get(id)
    }

    /// Returns the bytes of the open tool calls as JSON.
    #[must_use]
    pub fn open_call_bytes(&self) -> usize {
        self.open_calls.bytes()
    }

    /// Evicts the open tool call that was updated longest ago. Returns false if there is none.
    pub fn evict_open_call(&mut self) -> bool {
        self.open_calls.remove_oldest()
    }

    /// Returns the message of the agent that began last.
    #[must_use]
    pub fn last_agent_message(&self) -> Option<&ConversationMessage> {
        self.messages().rfind(|message| message.kind == MessageKind::Agent)
    }

    /// Returns the thought of the agent that began last.
    #[must_use]
    pub fn last_agent_thought(&self) -> Option<&ConversationMessage> {
        self.messages().rfind(|message| message.kind == MessageKind::Thought)
    }

    /// Returns the text of the agent's messages since the last message of the user, separated by
    /// blank lines.
    #[must_use]
    pub fn agent_text(&self) -> String {
        let own = |message: &&ConversationMessage| message.kind != MessageKind::User;
        joined_texts(self.messages().rev().take_while(own))
    }

    /// Returns the text of all messages of the agent, separated by blank lines. Messages that the user sends during a turn
    /// do not hide those before them.
    #[must_use]
    pub fn all_agent_text(&self) -> String {
        joined_texts(self.messages().rev())
    }

    /// Returns the latest modes, options, commands, plan, usage and title.
    #[must_use]
    pub fn state(&self) -> &SessionState {
        &self.state
    }

    /// Returns the plan, if there is one.
    #[must_use]
    pub fn plan(&self) -> Option<&Plan> {
        self.state.plan.as_ref()
    }

    /// Returns the slash commands.
    #[must_use]
    pub fn commands(&self) -> &[AvailableCommand] {
        &self.state.commands
    }

    /// Returns the current mode, if the agent has named it.
    #[must_use]
    pub fn current_mode(&self) -> Option<&SessionModeId> {
        self.state.current_mode()
    }

    /// Returns the configuration options.
    #[must_use]
    pub fn config_options(&self) -> &[SessionConfigOption] {
        &self.state.config_options
    }

    /// Returns the used part of the context and the cost so far.
    #[must_use]
    pub fn usage(&self) -> Option<&UsageUpdate> {
        self.state.usage.as_ref()
    }

    /// Returns the title.
    #[must_use]
    pub fn title(&self) -> Option<&str> {
        self.state.title.as_deref()
    }

    /// Returns the time of the last activity, as the agent wrote it.
    #[must_use]
    pub fn updated_at(&self) -> Option<&str> {
        self.state.updated_at.as_deref()
    }

    /// Returns extension data about the session.
    #[must_use]
    pub fn meta(&self) -> Option<&Meta> {
        self.state.meta.as_ref()
    }

    /// Returns the child sessions and their children. They are kept with every [`Retention`].
    #[must_use]
    pub fn children(&self) -> &SessionTree {
        &self.children
    }

    /// Applies an update of the child session `child` to the [tree](Self::children). Only a `subagent_update`
    /// changes it. The messages of a child belong into a conversation of their own.
    pub fn apply_of_child(&mut self, child: &crate::SessionId, update: &crate::SessionUpdate) {
        if let crate::SessionUpdate::SubagentUpdate(update) = update
            && !self.children.apply(Some(child), update)
        {
            self.stats.unknown_updates += 1;
        }
    }

    /// Returns the message between sessions with this id.
    #[must_use]
    pub fn session_message(&self, id: impl Into<MessageId>) -> Option<&InterSessionMessage> {
        self.entry(&EntryKey::SessionMessage(id.into()))?.as_session_message()
    }

    /// Returns the terminal of the agent with this id, if the entries are kept. At most [`DISPLAY_TERMINALS`] are
    /// kept, and the last [`DISPLAY_TERMINAL_BYTES`] of the output of each.
    #[cfg(feature = "protocol-v2")]
    #[must_use]
    pub fn terminal(&self, id: impl Into<crate::TerminalId>) -> Option<&DisplayTerminal> {
        self.terminals.get(&id.into())
    }

    /// Returns the terminals of the agent, the one updated last at the end.
    #[cfg(feature = "protocol-v2")]
    pub fn terminals(&self) -> impl Iterator<Item = &DisplayTerminal> {
        self.terminals.iter()
    }

    /// Returns the counters of ignored updates.
    #[must_use]
    pub fn stats(&self) -> ConversationStats {
        self.stats
    }

    fn entry(&self, key: &EntryKey) -> Option<&ConversationEntry> {
        self.entries.get(*self.indexes.get(key)?)
    }
}

/// Returns the text of the agent's messages among these, the last of which comes first.
fn joined_texts<'a>(last_first: impl Iterator<Item = &'a ConversationMessage>) -> String {
    let of_agent = last_first.filter(|message| message.kind == MessageKind::Agent);
    let mut texts: Vec<_> = of_agent.map(ConversationMessage::text).filter(|text| !text.is_empty()).collect();
    texts.reverse();
    texts.join("\n\n")
}
