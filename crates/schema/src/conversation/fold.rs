//! The application of updates to a conversation.

use super::entry::{append_content, joined, patch};
use super::open_calls::OpenCalls;
use super::{
    Compaction, Conversation, ConversationEntry, ConversationMessage, Current, EntryKey, MessageKind,
    OpenMessages, SessionState,
};
use crate::{
    CompactionId, CompactionUpdate, ContentBlock, ContentChunk, MessageClear, MessageId, MessageUpdate, Meta,
    Patch, SessionUpdate, ToolCall, ToolCallId, ToolCallUpdate,
};

impl Conversation {
    /// Applies one update. Returns the index of the [entry](Self::entries) that it began or changed,
    /// if any.
    ///
    /// Notices are not kept: they are shown once, and the replay of a loaded session does not repeat
    /// them.
    pub fn apply(&mut self, update: &SessionUpdate) -> Option<usize> {
        if self.keeps_open_calls() {
            self.open_calls.apply(update);
        }
        if SessionState::is_changed_by(update) {
            self.state.apply(update);
            return None;
        }
        if let SessionUpdate::SubagentUpdate(update) = update {
            self.stats.unknown_updates += u64::from(!self.children.apply(None, update));
            return None;
        }
        if !self.keeps_entries() {
            return None;
        }
        match update {
            SessionUpdate::UserMessageChunk(chunk) => Some(self.chunk(MessageKind::User, chunk)),
            SessionUpdate::AgentMessageChunk(chunk) => Some(self.chunk(MessageKind::Agent, chunk)),
            SessionUpdate::AgentThoughtChunk(chunk) => Some(self.chunk(MessageKind::Thought, chunk)),
            SessionUpdate::UserMessage(whole) => self.whole_message(MessageKind::User, whole),
            SessionUpdate::AgentMessage(whole) => self.whole_message(MessageKind::Agent, whole),
            SessionUpdate::AgentThought(whole) => self.whole_message(MessageKind::Thought, whole),
            SessionUpdate::AgentMessageClear(clear) => self.clear(MessageKind::Agent, clear),
            SessionUpdate::AgentThoughtClear(clear) => self.clear(MessageKind::Thought, clear),
            SessionUpdate::ToolCall(call) => Some(self.begin_tool_call(call)),
            SessionUpdate::ToolCallUpdate(update) => Some(self.update_tool_call(update)),
            SessionUpdate::CompactionUpdate(update) => Some(self.update_compaction(update)),
            SessionUpdate::CompactionSummaryChunk(chunk) => {
                Some(self.change_compaction(&chunk.compaction_id, |compaction| {
                    append_content(&mut compaction.summary, &chunk.content);
                }))
            }
            #[cfg(feature = "protocol-v2")]
            SessionUpdate::ToolCallContentChunk(chunk) => Some(self.append_to_tool_call(chunk)),
            #[cfg(feature = "protocol-v2")]
            SessionUpdate::TerminalUpdate(update) => {
                self.stats.unknown_updates += u64::from(!self.terminals.update(update));
                None
            }
            #[cfg(feature = "protocol-v2")]
            SessionUpdate::TerminalOutputChunk(chunk) => {
                self.stats.unknown_updates += u64::from(!self.terminals.append(chunk));
                None
            }
            SessionUpdate::SessionMessage(update) => {
                Some(self.change_session_message(&update.message_id, |message| message.apply(update)))
            }
            SessionUpdate::SessionMessageChunk(chunk) => {
                Some(self.change_session_message(&chunk.message_id, |message| {
                    append_content(&mut message.content, &chunk.content);
                }))
            }
            SessionUpdate::Unknown(_) => {
                self.stats.unknown_updates += 1;
                None
            }
            _ => None,
        }
    }

    /// Adds the user's prompt, with which a turn begins.
    pub fn prompt(&mut self, prompt: &[ContentBlock]) {
        self.close_messages();
        if self.keeps_entries() {
            let mut message = ConversationMessage::new(MessageKind::User, None);
            message.content = joined(prompt);
            self.add(None, ConversationEntry::Message(message));
        }
    }

    /// Ends the turn. Its messages are final: only a clear that names a message changes them. Its
    /// open tool calls are dropped.
    pub fn end_turn(&mut self) {
        self.close_messages();
        self.open_calls = OpenCalls::default();
    }

    fn close_messages(&mut self) {
        self.open = OpenMessages { from: self.entries.len(), ..OpenMessages::default() };
    }

    fn chunk(&mut self, kind: MessageKind, chunk: &ContentChunk) -> usize {
        self.receive(kind, chunk.message_id.as_ref(), |message| {
            append_content(&mut message.content, &chunk.content);
            if chunk.meta.is_some() {
                message.chunk_meta.clone_from(&chunk.meta);
            }
        })
    }

    /// Changes the message that an update is for. It becomes the current one of its kind.
    fn receive(
        &mut self,
        kind: MessageKind,
        id: Option<&MessageId>,
        change: impl FnOnce(&mut ConversationMessage),
    ) -> usize {
        let key = id.map(|id| EntryKey::Message(kind, id.clone()));
        let known = match &key {
            Some(key) => self.indexes.get(key).copied(),
            None => self.continued(kind),
        };
        let index = known.unwrap_or_else(|| {
            self.add(key, ConversationEntry::Message(ConversationMessage::new(kind, id.cloned())))
        });
        if kind == MessageKind::User {
            self.close_messages();
        }
        // A late chunk for a finished turn is added there, and does not open it again.
        let is_final = index < self.open.from && kind != MessageKind::User;
        self.open.tail = (!is_final).then_some(index);
        if !is_final {
            self.open.current[kind as usize] = Some(Current { index, cleared: false });
        }
        self.change_message(index, change);
        index
    }

    /// Returns the message that a chunk without an id continues. A message cleared without an id
    /// comes first, even if other entries have begun since.
    fn continued(&self, kind: MessageKind) -> Option<usize> {
        if let Some(Current { index, cleared: true }) = self.open.current[kind as usize] {
            return Some(index);
        }
        let index = self.open.tail?;
        let message = self.entries.get(index)?.as_message()?;
        (message.kind == kind).then_some(index)
    }

    fn clear(&mut self, kind: MessageKind, clear: &MessageClear) -> Option<usize> {
        let index = match &clear.message_id {
            Some(id) => {
                let index = self.indexes.get(&EntryKey::Message(kind, id.clone())).copied();
                self.stats.unknown_clears += u64::from(index.is_none());
                index
            }
            None => self.open.current[kind as usize].as_mut().map(|current| {
                current.cleared = true;
                current.index
            }),
        };
        if let Some(index) = index {
            self.change_message(index, |message| message.content.clear());
        }
        index
    }

    fn change_message(&mut self, index: usize, change: impl FnOnce(&mut ConversationMessage)) {
        if let Some(ConversationEntry::Message(message)) = self.entries.get_mut(index) {
            change(message);
        }
    }

    /// Replaces the content of a message. Empty content clears it, absent content leaves it. A message without content
    /// does not become the current one.
    fn whole_message(&mut self, kind: MessageKind, whole: &MessageUpdate) -> Option<usize> {
        let MessageUpdate { message_id: id, content, meta } = whole;
        let key = EntryKey::Message(kind, id.clone());
        let known = self.indexes.get(&key).copied();
        let says = content.value().is_some_and(|content| !content.is_empty());
        if known.is_none() && !says && *content != Patch::Keep {
            self.stats.unknown_clears += 1;
            return None;
        }
        let change = |message: &mut ConversationMessage| {
            patch(&mut message.content, content);
            Meta::patch(&mut message.meta, meta.clone());
        };
        if says {
            return Some(self.receive(kind, Some(id), change));
        }
        let index = known.unwrap_or_else(|| {
            let message = ConversationMessage::new(kind, Some(id.clone()));
            self.add(Some(key), ConversationEntry::Message(message))
        });
        self.change_message(index, change);
        Some(index)
    }

    fn begin_tool_call(&mut self, call: &ToolCall) -> usize {
        self.change_tool_call(&call.tool_call_id, |known| known.clone_from(call), || call.clone())
    }

    /// Updates a tool call. The first update may begin it, since many agents never announce their
    /// calls.
    fn update_tool_call(&mut self, update: &ToolCallUpdate) -> usize {
        let change = |known: &mut ToolCall| update.clone().apply_to(known);
        self.change_tool_call(&update.tool_call_id, change, || update.clone().into())
    }

    #[cfg(feature = "protocol-v2")]
    fn append_to_tool_call(&mut self, chunk: &crate::ToolCallContentChunk) -> usize {
        let id = &chunk.tool_call_id;
        let begin = || ToolCall::new(id.clone(), id.as_str()).content([chunk.content.clone()]);
        self.change_tool_call(id, |known| known.content.push(chunk.content.clone()), begin)
    }

    fn change_session_message(
        &mut self,
        id: &MessageId,
        change: impl FnOnce(&mut super::InterSessionMessage),
    ) -> usize {
        let key = EntryKey::SessionMessage(id.clone());
        let index = match self.indexes.get(&key) {
            Some(index) => *index,
            None => {
                let message = super::InterSessionMessage::new(id.clone());
                self.add(Some(key), ConversationEntry::SessionMessage(Box::new(message)))
            }
        };
        if let Some(ConversationEntry::SessionMessage(message)) = self.entries.get_mut(index) {
            change(message);
        }
        index
    }

    fn change_tool_call(
        &mut self,
        id: &ToolCallId,
        change: impl FnOnce(&mut ToolCall),
        begin: impl FnOnce() -> ToolCall,
    ) -> usize {
        let key = EntryKey::ToolCall(id.clone());
        let Some(index) = self.indexes.get(&key).copied() else {
            return self.add(Some(key), ConversationEntry::ToolCall(Box::new(begin())));
        };
        if let Some(ConversationEntry::ToolCall(call)) = self.entries.get_mut(index) {
            change(call);
        }
        index
    }

    fn update_compaction(&mut self, update: &CompactionUpdate) -> usize {
        self.change_compaction(&update.compaction_id, |compaction| {
            if let Some(status) = update.new_status() {
                compaction.status = status.clone();
            }
            patch(&mut compaction.summary, &update.summary);
            update.error.clone().apply(&mut compaction.error);
            Meta::patch(&mut compaction.meta, update.meta.clone());
        })
    }

    fn change_compaction(&mut self, id: &CompactionId, change: impl FnOnce(&mut Compaction)) -> usize {
        let key = EntryKey::Compaction(id.clone());
        let index = match self.indexes.get(&key) {
            Some(index) => *index,
            None => self.add(Some(key), ConversationEntry::Compaction(Compaction::new(id.clone()))),
        };
        if let Some(ConversationEntry::Compaction(compaction)) = self.entries.get_mut(index) {
            change(compaction);
        }
        index
    }

    /// Adds an entry and returns its index. A later chunk without an id does not continue a message
    /// before it.
    fn add(&mut self, key: Option<EntryKey>, entry: ConversationEntry) -> usize {
        let index = self.entries.len();
        self.entries.push(entry);
        if let Some(key) = key {
            self.indexes.insert(key, index);
        }
        self.open.tail = None;
        index
    }
}
