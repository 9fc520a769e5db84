//! What an agent tells about a session while it works.
//!
//! See [Prompt turn](https://agentclientprotocol.com/protocol/v1/prompt-turn).

use std::fmt;

use duologue_schema_derive::wire;

use crate::{
    AvailableCommandsUpdate, CompactionSummaryChunk, CompactionUpdate, ConfigOptionUpdate, ContentBlock,
    CurrentModeUpdate, MessageId, Meta, Patch, Plan, SessionId, ToolCall, ToolCallUpdate,
};

/// `session/update`: one thing that happened in a session.
#[wire]
pub struct SessionNotification {
    /// The session.
    pub session_id: SessionId,
    /// What happened.
    pub update: SessionUpdate,
}

/// One thing that happened in a session.
///
/// It shows as the words of the agent, and a cleared draft as a line break, so that printing every
/// update prints what the agent says:
///
/// ```
/// use duologue_schema::SessionUpdate;
///
/// assert_eq!(SessionUpdate::agent_message("hello").to_string(), "hello");
/// assert_eq!(SessionUpdate::agent_thought("hm").to_string(), "");
/// ```
#[wire(tag = "sessionUpdate")]
pub enum SessionUpdate {
    /// More of what the person said, mostly while a session loads.
    UserMessageChunk(ContentChunk),
    /// More of what the agent says.
    AgentMessageChunk(ContentChunk),
    /// More of what the agent thinks.
    AgentThoughtChunk(ContentChunk),
    /// Empties a message of the agent, which is to be said anew. Not part of ACP.
    AgentMessageClear(MessageClear),
    /// Empties a thought of the agent. Not part of ACP.
    AgentThoughtClear(MessageClear),
    /// A tool call begins.
    ToolCall(Box<ToolCall>),
    /// A tool call goes on.
    ToolCallUpdate(Box<ToolCallUpdate>),
    /// The plan, whole.
    Plan(Plan),
    /// The commands, all.
    AvailableCommandsUpdate(AvailableCommandsUpdate),
    /// Another mode.
    CurrentModeUpdate(CurrentModeUpdate),
    /// The config options, all.
    ConfigOptionUpdate(ConfigOptionUpdate),
    /// Another title or date.
    SessionInfoUpdate(SessionInfoUpdate),
    /// Tokens and money used so far.
    UsageUpdate(UsageUpdate),
    /// Something to show once.
    Notice(Notice),
    /// A compaction of the context.
    CompactionUpdate(Box<CompactionUpdate>),
    /// More of the summary of a compaction.
    CompactionSummaryChunk(CompactionSummaryChunk),
}

impl SessionUpdate {
    /// More of what the agent says.
    pub fn agent_message(content: impl Into<ContentBlock>) -> Self {
        Self::AgentMessageChunk(ContentChunk::new(content))
    }

    /// More of what the agent thinks.
    pub fn agent_thought(content: impl Into<ContentBlock>) -> Self {
        Self::AgentThoughtChunk(ContentChunk::new(content))
    }

    /// More of what the person said.
    pub fn user_message(content: impl Into<ContentBlock>) -> Self {
        Self::UserMessageChunk(ContentChunk::new(content))
    }

    /// Empties a message of the agent: the current one, or the one with an id.
    pub fn agent_message_clear(message_id: impl Into<Option<MessageId>>) -> Self {
        Self::AgentMessageClear(MessageClear { message_id: message_id.into(), meta: None })
    }

    /// The same update with a message id, if it is of a kind that can have one.
    #[must_use]
    pub fn with_message_id(mut self, message_id: impl Into<MessageId>) -> Self {
        match &mut self {
            Self::UserMessageChunk(chunk)
            | Self::AgentMessageChunk(chunk)
            | Self::AgentThoughtChunk(chunk) => {
                chunk.message_id = Some(message_id.into());
            }
            Self::AgentMessageClear(clear) | Self::AgentThoughtClear(clear) => {
                clear.message_id = Some(message_id.into());
            }
            _ => {}
        }
        self
    }
}

/// What the agent says, as it says it, and a line break where it takes that back. A terminal gets it through
/// [`printable`](crate::printable()).
impl fmt::Display for SessionUpdate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AgentMessageChunk(chunk) => chunk.content.fmt(f),
            Self::AgentMessageClear(_) => f.write_str("\n"),
            _ => Ok(()),
        }
    }
}

/// More of a message or thought.
#[wire]
pub struct ContentChunk {
    /// What comes next.
    pub content: ContentBlock,
    /// Which message it belongs to; another id begins another message.
    #[wire(lenient)]
    pub message_id: Option<MessageId>,
}

/// Empties a message or thought, which keeps its place and id; later chunks fill it again.
///
/// Not part of ACP: send it only to a client that asked for it, by
/// `clientCapabilities._meta.duologue.messageClear`.
#[wire]
pub struct MessageClear {
    /// Which message; the current one if absent.
    #[wire(lenient)]
    pub message_id: Option<MessageId>,
}

/// Another title or date for the session.
#[wire]
pub struct SessionInfoUpdate {
    /// The title.
    #[wire(lenient)]
    pub title: Patch<String>,
    /// When something last happened in the session, as an ISO 8601 timestamp.
    #[wire(lenient)]
    pub updated_at: Patch<String>,
    /// Extension data about the session, `_meta` on the wire.
    #[wire(lenient)]
    pub meta: Patch<Meta>,
}

/// Tokens and money used so far; it replaces the one before.
#[wire]
pub struct UsageUpdate {
    /// The tokens in the context now.
    pub used: u64,
    /// The tokens the context can hold.
    pub size: u64,
    /// What the session has cost.
    #[wire(lenient)]
    pub cost: Option<Cost>,
}

/// An amount of money.
#[wire]
pub struct Cost {
    /// How much.
    pub amount: f64,
    /// Of what, as an ISO 4217 code.
    pub currency: String,
}

/// Something to show once; it is no part of the conversation and never replayed. Only for clients
/// with `session.notices`.
#[wire]
pub struct Notice {
    /// How bad it is.
    pub severity: NoticeSeverity,
    /// What it is, in one line, never empty.
    pub title: String,
    /// More about it.
    #[wire(lenient)]
    pub description: Option<String>,
}

/// How bad a notice is.
#[wire(open)]
pub enum NoticeSeverity {
    /// Good to know.
    Info,
    /// May need care.
    Warning,
    /// Something failed.
    Error,
}
