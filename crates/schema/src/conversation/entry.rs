//! What a conversation is made of.

use crate::{CompactionId, CompactionStatus, ContentBlock, MessageId, Meta, Patch, ToolCall};

/// One thing in a conversation, at the place where it began.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ConversationEntry {
    /// Something said or thought.
    Message(ConversationMessage),
    /// Something done.
    ToolCall(Box<ToolCall>),
    /// The context was made shorter.
    Compaction(Compaction),
}

impl ConversationEntry {
    /// The message, if the entry is one.
    #[must_use]
    pub fn as_message(&self) -> Option<&ConversationMessage> {
        match self {
            ConversationEntry::Message(message) => Some(message),
            _ => None,
        }
    }

    /// The tool call, if the entry is one.
    #[must_use]
    pub fn as_tool_call(&self) -> Option<&ToolCall> {
        match self {
            ConversationEntry::ToolCall(call) => Some(call),
            _ => None,
        }
    }

    /// The compaction, if the entry is one.
    #[must_use]
    pub fn as_compaction(&self) -> Option<&Compaction> {
        match self {
            ConversationEntry::Compaction(compaction) => Some(compaction),
            _ => None,
        }
    }
}

/// Who speaks in a message, and to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MessageKind {
    /// The person, to the agent.
    User,
    /// The agent, to the person.
    Agent,
    /// The agent, to itself.
    Thought,
}

impl MessageKind {
    pub(super) const COUNT: usize = MessageKind::Thought as usize + 1;
}

/// Something said or thought, as far as it has been heard.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ConversationMessage {
    /// Who speaks.
    pub kind: MessageKind,
    /// What the agent calls the message.
    pub id: Option<MessageId>,
    /// What it says. Text that came in pieces is one block; a cleared message is empty.
    pub content: Vec<ContentBlock>,
    /// The last `_meta` that came with it.
    pub meta: Option<Meta>,
}

impl ConversationMessage {
    pub(super) fn new(kind: MessageKind, id: Option<MessageId>) -> Self {
        ConversationMessage { kind, id, content: Vec::new(), meta: None }
    }

    /// The text of the message; what is not text is left out.
    #[must_use]
    pub fn text(&self) -> String {
        self.content.iter().filter_map(ContentBlock::as_text).collect()
    }

    /// Whether it says nothing: nothing yet, or nothing since it was cleared.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.content.is_empty()
    }
}

/// A compaction of the context, as far as it is.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Compaction {
    /// Which compaction.
    pub id: CompactionId,
    /// How far it is.
    pub status: CompactionStatus,
    /// What is left of what it replaces.
    pub summary: Vec<ContentBlock>,
    /// Why it failed.
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

/// Appends `block`. Where text was cut into blocks must not be seen, so text joins the text before
/// it unless their hints differ, and empty text adds nothing.
pub(super) fn append(content: &mut Vec<ContentBlock>, block: &ContentBlock) {
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

/// The same content, its text in one piece.
pub(super) fn joined(blocks: &[ContentBlock]) -> Vec<ContentBlock> {
    let mut content = Vec::with_capacity(blocks.len());
    blocks.iter().for_each(|block| append(&mut content, block));
    content
}

/// Does to `content` what an update asks for.
pub(super) fn patch(content: &mut Vec<ContentBlock>, update: &Patch<Vec<ContentBlock>>) {
    match update {
        Patch::Keep => {}
        Patch::Clear => content.clear(),
        Patch::Set(blocks) => *content = joined(blocks),
    }
}
