//! The entries of a conversation.

use crate::{CompactionId, CompactionStatus, ContentBlock, MessageId, Meta, Patch, ToolCall};

/// A message, tool call or compaction. Entries are ordered by when they began.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ConversationEntry {
    /// A message or a thought.
    Message(ConversationMessage),
    /// A tool call.
    ToolCall(Box<ToolCall>),
    /// A compaction of the context.
    Compaction(Compaction),
    /// A message between sessions.
    SessionMessage(Box<InterSessionMessage>),
}

impl ConversationEntry {
    /// Returns the message, if the entry is one.
    #[must_use]
    pub fn as_message(&self) -> Option<&ConversationMessage> {
        match self {
            ConversationEntry::Message(message) => Some(message),
            _ => None,
        }
    }

    /// Returns the tool call, if the entry is one.
    #[must_use]
    pub fn as_tool_call(&self) -> Option<&ToolCall> {
        match self {
            ConversationEntry::ToolCall(call) => Some(call),
            _ => None,
        }
    }

    /// Returns the compaction, if the entry is one.
    #[must_use]
    pub fn as_compaction(&self) -> Option<&Compaction> {
        match self {
            ConversationEntry::Compaction(compaction) => Some(compaction),
            _ => None,
        }
    }

    /// Returns the message between sessions, if the entry is one.
    #[must_use]
    pub fn as_session_message(&self) -> Option<&InterSessionMessage> {
        match self {
            ConversationEntry::SessionMessage(message) => Some(message),
            _ => None,
        }
    }
}

/// A message between sessions, as far as it has arrived.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct InterSessionMessage {
    /// The id.
    pub id: MessageId,
    /// The sender.
    pub sender: Option<crate::SessionId>,
    /// The recipient.
    pub recipient: Option<crate::SessionId>,
    /// The id of the same message within the session of the sender.
    pub sender_message: Option<MessageId>,
    /// The id of the same message within the session of the recipient.
    pub recipient_message: Option<MessageId>,
    /// The content. Adjacent chunks of text are one block.
    pub content: Vec<ContentBlock>,
    /// Extension data about the message.
    pub meta: Option<Meta>,
}

impl InterSessionMessage {
    pub(super) fn new(id: MessageId) -> Self {
        InterSessionMessage {
            id,
            sender: None,
            recipient: None,
            sender_message: None,
            recipient_message: None,
            content: Vec::new(),
            meta: None,
        }
    }

    pub(super) fn apply(&mut self, update: &crate::SessionMessage) {
        update.sender_session_id.clone().apply(&mut self.sender);
        update.recipient_session_id.clone().apply(&mut self.recipient);
        update.sender_message_id.clone().apply(&mut self.sender_message);
        update.recipient_message_id.clone().apply(&mut self.recipient_message);
        patch(&mut self.content, &update.content);
        Meta::patch(&mut self.meta, update.meta.clone());
    }
}

/// The author and the audience of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MessageKind {
    /// From the user to the agent.
    User,
    /// From the agent to the user.
    Agent,
    /// A thought of the agent.
    Thought,
}

impl MessageKind {
    pub(super) const COUNT: usize = MessageKind::Thought as usize + 1;
}

/// A message or a thought, as far as it has arrived.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ConversationMessage {
    /// The author and the audience.
    pub kind: MessageKind,
    /// The id, if the agent gave one.
    pub id: Option<MessageId>,
    /// The content. Adjacent chunks of text are one block. A cleared message is empty.
    pub content: Vec<ContentBlock>,
    /// Extension data about the message, from updates of the whole message.
    pub meta: Option<Meta>,
    /// The `_meta` of the last chunk that had one. It describes that chunk, not the message.
    pub chunk_meta: Option<Meta>,
}

impl ConversationMessage {
    pub(super) fn new(kind: MessageKind, id: Option<MessageId>) -> Self {
        ConversationMessage { kind, id, content: Vec::new(), meta: None, chunk_meta: None }
    }

    /// Returns the text of the message, without other content.
    #[must_use]
    pub fn text(&self) -> String {
        self.content.iter().filter_map(ContentBlock::as_text).collect()
    }

    /// Returns true if the message has no content, or none since it was cleared.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.content.is_empty()
    }
}

/// A compaction of the context.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Compaction {
    /// The id.
    pub id: CompactionId,
    /// The status.
    pub status: CompactionStatus,
    /// The summary that replaces the compacted messages.
    pub summary: Vec<ContentBlock>,
    /// The reason for a failure.
    pub error: Option<String>,
    /// Extension data about it.
    pub meta: Option<Meta>,
}

impl Compaction {
    pub(super) fn new(id: CompactionId) -> Self {
        let status = CompactionStatus::InProgress;
        Compaction { id, status, summary: Vec::new(), error: None, meta: None }
    }
}

/// Appends `block`. Text joins the text before it unless their annotations differ, so that the
/// boundaries of chunks leave no trace. Empty text adds nothing.
#[doc(hidden)]
pub fn append_content(content: &mut Vec<ContentBlock>, block: &ContentBlock) {
    if let ContentBlock::Text(new) = block {
        if new.text.is_empty() {
            return;
        }
        if let Some(ContentBlock::Text(last)) = content.last_mut()
            && last.annotations == new.annotations
            && last.meta == new.meta
        {
            last.text.push_str(&new.text);
            return;
        }
    }
    content.push(block.clone());
}

/// Returns the same content with adjacent texts joined.
pub(super) fn joined(blocks: &[ContentBlock]) -> Vec<ContentBlock> {
    let mut content = Vec::with_capacity(blocks.len());
    blocks.iter().for_each(|block| append_content(&mut content, block));
    content
}

/// Applies the change of an update to `content`.
pub(super) fn patch(content: &mut Vec<ContentBlock>, update: &Patch<Vec<ContentBlock>>) {
    match update {
        Patch::Keep => {}
        Patch::Clear => content.clear(),
        Patch::Set(blocks) => *content = joined(blocks),
    }
}
