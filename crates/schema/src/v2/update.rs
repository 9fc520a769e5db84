//! Session updates.

use duologue_schema_derive::wire;

use super::{
    AvailableCommandsUpdate, CompactionId, CompactionStatus, ConfigOptionUpdate, TerminalOutputChunk,
    TerminalUpdate, ToolCallContentChunk, ToolCallUpdate,
};
use crate::{
    CompactionSummaryChunk, ContentBlock, MessageId, MessageUpdate, Meta, Notice, Patch, PlanUpdate,
    SessionId, SessionInfoUpdate, StateUpdate, UsageUpdate,
};

/// The params of `session/update`.
#[wire]
pub struct UpdateSessionNotification {
    /// The session.
    pub session_id: SessionId,
    /// The update.
    pub update: SessionUpdate,
}

/// An update of a session.
#[wire(tag = "sessionUpdate", open)]
pub enum SessionUpdate {
    /// A piece of a user message.
    UserMessageChunk(ContentChunk),
    /// A whole user message, or a change to it.
    UserMessage(MessageUpdate),
    /// A piece of an agent message.
    AgentMessageChunk(ContentChunk),
    /// A whole agent message, or a change to it.
    AgentMessage(MessageUpdate),
    /// A piece of an agent thought.
    AgentThoughtChunk(ContentChunk),
    /// A whole agent thought, or a change to it.
    AgentThought(MessageUpdate),
    /// The state of the foreground work.
    StateUpdate(StateUpdate),
    /// A further piece of the content of a tool call.
    ToolCallContentChunk(Box<ToolCallContentChunk>),
    /// A new tool call, or a change to a known one.
    ToolCallUpdate(Box<ToolCallUpdate>),
    /// A new terminal, or a change to a known one.
    TerminalUpdate(Box<TerminalUpdate>),
    /// Further output of a terminal.
    TerminalOutputChunk(TerminalOutputChunk),
    /// A plan.
    PlanUpdate(PlanUpdate),
    /// The removal of a plan.
    PlanRemoved(crate::PlanRemoved),
    /// All slash commands.
    AvailableCommandsUpdate(AvailableCommandsUpdate),
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
    /// A child session.
    SubagentUpdate(Box<crate::SubagentUpdate>),
    /// A message between sessions, or a change to it.
    SessionMessage(Box<crate::SessionMessage>),
    /// A piece of a message between sessions.
    SessionMessageChunk(crate::SessionMessageChunk),
    /// The end of a replayed history.
    ReplayComplete(ReplayComplete),
    /// All prompts that the agent expects.
    #[cfg(feature = "unstable")]
    PromptSuggestionsUpdate(crate::PromptSuggestionsUpdate),
    /// A position in the session at which methods can act.
    #[cfg(feature = "unstable")]
    CursorUpdate(Box<crate::CursorUpdate>),
}

/// The end of the history that a `session/resume` with `replayFrom` demands. An agent sends it once, after the last
/// update of the history and before the response, also for an empty history.
#[wire]
pub struct ReplayComplete {}

/// A piece of a message or thought.
#[wire]
pub struct ContentChunk {
    /// The id of the message.
    pub message_id: MessageId,
    /// The content to append.
    pub content: ContentBlock,
}

/// A new compaction of the context, or a change to a known one.
#[wire]
pub struct CompactionUpdate {
    /// The id of the compaction.
    pub compaction_id: CompactionId,
    /// The status. A new compaction is in progress, and so is one whose status is cleared.
    #[wire(lenient)]
    pub status: Patch<CompactionStatus>,
    /// The whole summary. It replaces the previous one.
    #[wire(skip_invalid)]
    pub summary: Patch<Vec<ContentBlock>>,
    /// The reason of a failure.
    #[wire(lenient)]
    pub error: Patch<String>,
    /// Extension data about the compaction, `_meta` on the wire.
    #[wire(lenient)]
    pub meta: Patch<Meta>,
}
