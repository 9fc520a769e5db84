//! Session updates, the notifications of an agent about a session.
//!
//! See [Prompt turn](https://agentclientprotocol.com/protocol/v1/prompt-turn).

use std::fmt;

use duologue_schema_derive::wire;

use crate::{
    AvailableCommandsUpdate, CompactionSummaryChunk, CompactionUpdate, ConfigOptionUpdate, ContentBlock,
    CurrentModeUpdate, MessageId, Meta, Patch, Plan, SessionId, ToolCall, ToolCallUpdate,
};

/// The params of `session/update`.
#[wire]
pub struct SessionNotification {
    /// The session.
    pub session_id: SessionId,
    /// The update.
    pub update: SessionUpdate,
}

/// An update of a session.
///
/// `Display` writes the text of agent messages, and a line break for a cleared message. Printing
/// every update therefore prints the messages of the agent:
///
/// ```
/// use duologue_schema::SessionUpdate;
///
/// assert_eq!(SessionUpdate::agent_message("hello").to_string(), "hello");
/// assert_eq!(SessionUpdate::agent_thought("hm").to_string(), "");
/// ```
#[wire(tag = "sessionUpdate")]
pub enum SessionUpdate {
    /// A piece of a user message, mostly while a session loads.
    UserMessageChunk(ContentChunk),
    /// A piece of an agent message.
    AgentMessageChunk(ContentChunk),
    /// A piece of an agent thought.
    AgentThoughtChunk(ContentChunk),
    /// A whole message of the user, or a change to it. Version 2 has it.
    #[wire(unexported)]
    UserMessage(MessageUpdate),
    /// A whole message of the agent, or a change to it. Version 2 has it.
    #[wire(unexported)]
    AgentMessage(MessageUpdate),
    /// A whole thought of the agent, or a change to it. Version 2 has it.
    #[wire(unexported)]
    AgentThought(MessageUpdate),
    /// Clears an agent message, which the agent then writes anew. Not part of ACP.
    AgentMessageClear(MessageClear),
    /// Clears an agent thought. Not part of ACP.
    AgentThoughtClear(MessageClear),
    /// A new tool call.
    ToolCall(Box<ToolCall>),
    /// A change to a tool call.
    ToolCallUpdate(Box<ToolCallUpdate>),
    /// The whole plan.
    Plan(Plan),
    /// All slash commands.
    AvailableCommandsUpdate(AvailableCommandsUpdate),
    /// A change of the mode.
    CurrentModeUpdate(CurrentModeUpdate),
    /// All config options.
    ConfigOptionUpdate(ConfigOptionUpdate),
    /// A change of the title or date.
    SessionInfoUpdate(SessionInfoUpdate),
    /// Tokens and money used so far.
    UsageUpdate(UsageUpdate),
    /// A notice to show once.
    Notice(Notice),
    /// The state of a compaction of the context.
    CompactionUpdate(Box<CompactionUpdate>),
    /// A piece of the summary of a compaction.
    CompactionSummaryChunk(CompactionSummaryChunk),
    /// The state of the foreground work.
    #[cfg(feature = "protocol-v2")]
    StateUpdate(crate::StateUpdate),
    /// A further piece of the content of a tool call.
    #[cfg(feature = "protocol-v2")]
    ToolCallContentChunk(Box<crate::ToolCallContentChunk>),
    /// The state of a terminal that the agent runs.
    #[cfg(feature = "protocol-v2")]
    TerminalUpdate(Box<crate::v2::TerminalUpdate>),
    /// Further output of a terminal that the agent runs.
    #[cfg(feature = "protocol-v2")]
    TerminalOutputChunk(crate::v2::TerminalOutputChunk),
    /// One of several plans.
    PlanUpdate(crate::PlanUpdate),
    /// The removal of a plan.
    PlanRemoved(crate::PlanRemoved),
    /// The state of a child session.
    SubagentUpdate(Box<crate::SubagentUpdate>),
    /// A message between sessions, or a change to it.
    SessionMessage(Box<crate::SessionMessage>),
    /// A piece of a message between sessions.
    SessionMessageChunk(crate::SessionMessageChunk),
    /// All prompts that the agent expects.
    #[cfg(feature = "unstable")]
    PromptSuggestionsUpdate(crate::PromptSuggestionsUpdate),
    /// A position in the session at which methods can act.
    #[cfg(feature = "unstable")]
    CursorUpdate(Box<crate::CursorUpdate>),
    /// The end of a replayed history.
    #[cfg(feature = "protocol-v2")]
    ReplayComplete(crate::v2::ReplayComplete),
}

impl SessionUpdate {
    /// A piece of an agent message.
    pub fn agent_message(content: impl Into<ContentBlock>) -> Self {
        Self::AgentMessageChunk(ContentChunk::new(content))
    }

    /// A piece of an agent thought.
    pub fn agent_thought(content: impl Into<ContentBlock>) -> Self {
        Self::AgentThoughtChunk(ContentChunk::new(content))
    }

    /// A piece of a user message.
    pub fn user_message(content: impl Into<ContentBlock>) -> Self {
        Self::UserMessageChunk(ContentChunk::new(content))
    }

    /// Clears an agent message: the one with the id, or else the current one.
    pub fn agent_message_clear(message_id: impl Into<Option<MessageId>>) -> Self {
        Self::AgentMessageClear(MessageClear { message_id: message_id.into(), meta: None })
    }

    /// Returns the tag of an update that the stable version 1 does not have: one of another version, or of an
    /// unknown kind. The clears of Duologue count as known.
    #[must_use]
    pub fn tag_outside_v1(&self) -> Option<&str> {
        match self {
            Self::UserMessageChunk(_)
            | Self::AgentMessageChunk(_)
            | Self::AgentThoughtChunk(_)
            | Self::AgentMessageClear(_)
            | Self::AgentThoughtClear(_)
            | Self::ToolCall(_)
            | Self::ToolCallUpdate(_)
            | Self::Plan(_)
            | Self::AvailableCommandsUpdate(_)
            | Self::CurrentModeUpdate(_)
            | Self::ConfigOptionUpdate(_)
            | Self::SessionInfoUpdate(_)
            | Self::UsageUpdate(_)
            | Self::Notice(_)
            | Self::CompactionUpdate(_)
            | Self::CompactionSummaryChunk(_)
            | Self::PlanUpdate(_)
            | Self::PlanRemoved(_)
            | Self::SubagentUpdate(_)
            | Self::SessionMessage(_)
            | Self::SessionMessageChunk(_) => None,
            other => Some(other.tag()),
        }
    }

    /// Sets the message id of an update whose kind has one.
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
            Self::UserMessage(message) | Self::AgentMessage(message) | Self::AgentThought(message) => {
                message.message_id = message_id.into();
            }
            _ => {}
        }
        self
    }
}

/// Writes the text of an agent message, and a line break for a cleared or replaced one. Escape it with
/// [`printable`](crate::printable()) for a terminal.
impl fmt::Display for SessionUpdate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AgentMessageChunk(chunk) => chunk.content.fmt(f),
            Self::AgentMessageClear(_) => f.write_str("\n"),
            // It replaces the text before it.
            Self::AgentMessage(MessageUpdate { content: Patch::Set(content), .. }) => {
                f.write_str("\n")?;
                content.iter().try_for_each(|block| block.fmt(f))
            }
            Self::AgentMessage(MessageUpdate { content: Patch::Clear, .. }) => f.write_str("\n"),
            _ => Ok(()),
        }
    }
}

/// A piece of a message or thought.
#[wire]
pub struct ContentChunk {
    /// The content to append.
    pub content: ContentBlock,
    /// The id of the message. A new id starts a new message.
    #[wire(lenient)]
    pub message_id: Option<MessageId>,
}

/// A whole message or thought, or a change to it. Of a new id it begins a message.
#[wire]
pub struct MessageUpdate {
    /// The id of the message.
    pub message_id: MessageId,
    /// The whole content. It replaces all content so far, and a clear empties the message.
    #[wire(skip_invalid)]
    pub content: Patch<Vec<ContentBlock>>,
    /// A change of the extension data of the message by key, `_meta` on the wire.
    #[wire(lenient)]
    pub meta: Patch<Meta>,
}

/// Clears a message or thought. It keeps its position and id, and later chunks fill it again.
///
/// Not part of ACP: send it only to a client that advertises
/// `clientCapabilities._meta.duologue.messageClear`.
#[wire]
pub struct MessageClear {
    /// The id of the message. Absent means the current one.
    #[wire(lenient)]
    pub message_id: Option<MessageId>,
}

impl MessageClear {
    /// The text between a cleared draft and its successor for a client that cannot clear.
    pub const SEPARATOR: &'static str = "\n\n---\n\n";
}

/// A change of the title or date of a session.
#[wire]
pub struct SessionInfoUpdate {
    /// The title.
    #[wire(lenient)]
    pub title: Patch<String>,
    /// The time of the last activity, as an ISO 8601 timestamp.
    #[wire(lenient)]
    pub updated_at: Patch<String>,
    /// Extension data about the session, `_meta` on the wire.
    #[wire(lenient)]
    pub meta: Patch<Meta>,
}

/// The tokens and money used so far. The numbers of tokens replace the previous ones.
#[wire]
pub struct UsageUpdate {
    /// The number of tokens in the context.
    pub used: u64,
    /// The size of the context in tokens.
    pub size: u64,
    /// A change of the cost of the session so far. Absent leaves the last cost, and `null` removes it.
    #[wire(lenient)]
    pub cost: Patch<Cost>,
}

/// An amount of money.
#[wire]
pub struct Cost {
    /// The amount.
    pub amount: f64,
    /// The currency, as an ISO 4217 code.
    pub currency: String,
}

/// A notice to show once. It is not part of the conversation and is never replayed. Only for
/// clients with `session.notices`.
#[wire]
pub struct Notice {
    /// The severity.
    pub severity: NoticeSeverity,
    /// The notice in one line, never empty.
    pub title: String,
    /// Further details.
    #[wire(lenient)]
    pub description: Option<String>,
}

/// The severity of a notice.
#[wire(open)]
pub enum NoticeSeverity {
    /// Information.
    Info,
    /// Something may need attention.
    Warning,
    /// Something failed.
    Error,
}
