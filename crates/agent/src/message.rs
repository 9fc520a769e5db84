//! Messages and thoughts: append, clear and replace.

use std::hash::{BuildHasher, DefaultHasher, Hasher, RandomState};

use duologue_schema::{
    ContentBlock, ContentChunk, MessageClear, MessageId, Meta, SessionUpdate, append_content,
};

use crate::client::ClearMode;
use crate::error::{Error, Result};
use crate::turn::Turn;

/// The behaviour of [`MessageWriter::clear`] for a client that has not advertised
/// `_meta.duologue.messageClear` in its capabilities. RFD 0001 has the reasons.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClearPolicy {
    /// Ends the message with a visible rule and continues with a new message id.
    #[default]
    Separator,
    /// Buffers every message until [`MessageWriter::finish`] or the end of the turn. Nothing is streamed,
    /// so nothing has to be cleared.
    Hold,
    /// Sends the clear to every client.
    Always,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChunkKind {
    Message,
    Thought,
}

impl ChunkKind {
    fn chunk(self, id: &MessageId, content: ContentBlock) -> SessionUpdate {
        self.update(ContentChunk::new(content).message_id(id.clone()))
    }

    fn update(self, chunk: ContentChunk) -> SessionUpdate {
        match self {
            ChunkKind::Message => SessionUpdate::AgentMessageChunk(chunk),
            ChunkKind::Thought => SessionUpdate::AgentThoughtChunk(chunk),
        }
    }

    fn clear(self, id: &MessageId) -> SessionUpdate {
        let clear = MessageClear::new().message_id(id.clone());
        match self {
            ChunkKind::Message => SessionUpdate::AgentMessageClear(clear),
            ChunkKind::Thought => SessionUpdate::AgentThoughtClear(clear),
        }
    }
}

/// Returns a visible rule in place of a clear, for a client that cannot clear. Returns other updates unchanged.
pub(crate) fn without_clear(update: SessionUpdate) -> SessionUpdate {
    let (kind, clear) = match update {
        SessionUpdate::AgentMessageClear(clear) => (ChunkKind::Message, clear),
        SessionUpdate::AgentThoughtClear(clear) => (ChunkKind::Thought, clear),
        other => return other,
    };
    let mut chunk = ContentChunk::new(MessageClear::SEPARATOR);
    (chunk.message_id, chunk.meta) = (clear.message_id, clear.meta);
    kind.update(chunk)
}

/// Returns the message id of a chunk or a clear of the agent, and true for a clear.
pub(crate) fn message_id(update: &mut SessionUpdate) -> Option<(&mut MessageId, bool)> {
    match update {
        SessionUpdate::AgentMessageChunk(chunk) | SessionUpdate::AgentThoughtChunk(chunk) => {
            Some((chunk.message_id.as_mut()?, false))
        }
        SessionUpdate::AgentMessageClear(clear) | SessionUpdate::AgentThoughtClear(clear) => {
            Some((clear.message_id.as_mut()?, true))
        }
        _ => None,
    }
}

/// The messages of a turn that are buffered until they are final.
#[derive(Default)]
pub(crate) struct MessageBuffer {
    messages: Vec<BufferedMessage>,
    /// The message that an update without an id continues.
    current: Option<(ChunkKind, MessageId)>,
}

/// A message, or the rest of one that begins with a chunk with a `_meta`.
struct BufferedMessage {
    kind: ChunkKind,
    id: MessageId,
    content: Vec<ContentBlock>,
    /// The `_meta` of the first chunk.
    meta: Option<Meta>,
}

impl BufferedMessage {
    fn into_updates(self) -> impl Iterator<Item = SessionUpdate> {
        let BufferedMessage { kind, id, content, mut meta } = self;
        content.into_iter().map(move |block| {
            let mut chunk = ContentChunk::new(block).message_id(id.clone());
            chunk.meta = meta.take();
            kind.update(chunk)
        })
    }
}

impl MessageBuffer {
    /// Buffers a chunk, or applies a clear. Returns other updates.
    pub(crate) fn hold(&mut self, update: SessionUpdate) -> Option<SessionUpdate> {
        let (kind, chunk) = match update {
            SessionUpdate::AgentMessageChunk(chunk) => (ChunkKind::Message, Ok(chunk)),
            SessionUpdate::AgentThoughtChunk(chunk) => (ChunkKind::Thought, Ok(chunk)),
            SessionUpdate::AgentMessageClear(clear) => (ChunkKind::Message, Err(clear)),
            SessionUpdate::AgentThoughtClear(clear) => (ChunkKind::Thought, Err(clear)),
            other => {
                self.current = None;
                return Some(other);
            }
        };
        let current = self.current.take().filter(|(of, _)| *of == kind).map(|(_, id)| id);
        match chunk {
            Ok(chunk) => {
                let id = chunk.message_id.or(current).unwrap_or_else(Turn::new_message_id);
                self.push(kind, &id, chunk.content, chunk.meta);
                self.current = Some((kind, id));
            }
            Err(clear) => {
                let id = clear.message_id.or(current);
                if let Some(id) = &id {
                    self.clear(id);
                }
                self.current = id.map(|id| (kind, id));
            }
        }
        None
    }

    fn push(&mut self, kind: ChunkKind, id: &MessageId, content: ContentBlock, meta: Option<Meta>) {
        match self.messages.iter_mut().rfind(|message| message.id == *id) {
            // Adjacent text becomes one chunk.
            Some(message) if meta.is_none() => append_content(&mut message.content, &content),
            _ => {
                self.messages.push(BufferedMessage { kind, id: id.clone(), content: vec![content], meta });
            }
        }
    }

    fn clear(&mut self, id: &MessageId) {
        self.messages.retain(|message| message.id != *id);
    }

    /// Removes a message and returns its updates.
    fn finish(&mut self, id: &MessageId) -> Vec<SessionUpdate> {
        let finished = self.messages.extract_if(.., |message| message.id == *id);
        finished.flat_map(BufferedMessage::into_updates).collect()
    }

    /// Returns the updates of all messages.
    pub(crate) fn into_updates(self) -> impl Iterator<Item = SessionUpdate> {
        self.messages.into_iter().flat_map(BufferedMessage::into_updates)
    }
}

/// The length and hash of a text that was pushed. It finds the text at the beginning of a longer one without storing
/// it, because messages can be long.
#[derive(Clone, Debug)]
struct PushedText {
    length: usize,
    hash: DefaultHasher,
    key: RandomState,
}

impl Default for PushedText {
    fn default() -> Self {
        let key = RandomState::new();
        PushedText { length: 0, hash: key.build_hasher(), key }
    }
}

impl PushedText {
    /// Returns the text with `more` appended.
    fn extended(&self, more: &str) -> Self {
        let mut extended = self.clone();
        extended.length += more.len();
        extended.hash.write(more.as_bytes());
        extended
    }

    /// Returns the part of `full` behind the text, if `full` begins with the text.
    fn rest_of<'a>(&self, full: &'a str) -> Option<&'a str> {
        let (begin, missing) = full.split_at_checked(self.length)?;
        let mut hash = self.key.build_hasher();
        hash.write(begin.as_bytes());
        (hash.finish() == self.hash.finish()).then_some(missing)
    }
}

/// Writes a message or a thought of the agent.
///
/// Some clients ignore message ids. They show the messages of a turn without a break between them, unless a tool call or
/// a thought is in between. End a message with a line break if that matters.
///
/// ```
/// # async fn turn(turn: &duologue_agent::Turn) -> duologue_agent::Result<()> {
/// let mut message = turn.message();
/// message.push("Drafting…").await?;
/// message.clear().await?;
/// message.push("The answer is 42.").await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct MessageWriter {
    turn: Turn,
    kind: ChunkKind,
    id: MessageId,
    /// The text that was pushed since the last clear.
    pushed: PushedText,
    /// True if other content was pushed since the last clear.
    has_other_content: bool,
    empty: bool,
}

impl MessageWriter {
    pub(crate) fn new(turn: Turn, kind: ChunkKind) -> Self {
        MessageWriter {
            turn,
            kind,
            id: Turn::new_message_id(),
            pushed: PushedText::default(),
            has_other_content: false,
            empty: true,
        }
    }

    /// Returns the id of the message. A clear that falls back to a separator changes it.
    #[must_use]
    pub fn id(&self) -> &MessageId {
        &self.id
    }

    /// Sets the id, for an agent that stores its messages. Each message needs its own id: set it before
    /// the first push. After a clear, set a new one if [`id`](Self::id) has changed.
    #[must_use]
    pub fn with_id(mut self, id: impl Into<MessageId>) -> Self {
        self.id = id.into();
        self
    }

    /// Appends text or other content.
    ///
    /// # Errors
    ///
    /// [`Error::Cancelled`] after the turn was cancelled, so that a streaming agent stops by itself, and as
    /// [`Turn::update`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future while it waits pushes nothing.
    pub async fn push(&mut self, content: impl Into<ContentBlock>) -> Result<()> {
        let content = content.into();
        if content.as_text() == Some("") {
            return Ok(());
        }
        let pushed = content.as_text().map(|text| self.pushed.extended(text));
        if self.turn.is_cancelled() {
            return Err(Error::Cancelled);
        }
        if self.clearing() == ClearMode::Hold {
            self.turn.with_buffer(|buffer| buffer.push(self.kind, &self.id, content, None))?;
        } else {
            self.turn.send(self.kind.chunk(&self.id, content)).await?;
        }
        // `set` compares with the text that the client has, so this follows the send.
        self.empty = false;
        match pushed {
            Some(pushed) => self.pushed = pushed,
            None => self.has_other_content = true,
        }
        Ok(())
    }

    /// Removes the content of the message. The next push begins it again.
    ///
    /// Sends `agent_message_clear` or `agent_thought_clear` to clients that support it, and follows the
    /// [`ClearPolicy`] for other clients. An empty message needs no clear.
    ///
    /// # Errors
    ///
    /// As [`Turn::update`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future while it waits clears nothing.
    pub async fn clear(&mut self) -> Result<()> {
        if self.empty {
            return Ok(());
        }
        match self.clearing() {
            ClearMode::Send => self.turn.send(self.kind.clear(&self.id)).await?,
            ClearMode::Hold => self.turn.with_buffer(|buffer| buffer.clear(&self.id))?,
            ClearMode::Separate => {
                self.turn.send(self.kind.chunk(&self.id, MessageClear::SEPARATOR.into())).await?;
                self.id = Turn::new_message_id();
            }
        }
        self.pushed = PushedText::default();
        (self.has_other_content, self.empty) = (false, true);
        Ok(())
    }

    /// Makes `full` the whole text. Sends the missing suffix, or clears and pushes. This suits frameworks
    /// that provide complete states.
    ///
    /// # Errors
    ///
    /// As [`Turn::update`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future can leave the message cleared or unchanged. The next `set` sends what is missing then.
    pub async fn set(&mut self, full: impl AsRef<str>) -> Result<()> {
        let full = full.as_ref();
        if let (Some(missing), false) = (self.pushed.rest_of(full), self.has_other_content) {
            return self.push(missing).await;
        }
        self.clear().await?;
        self.push(full).await
    }

    /// Ends the message. Only a buffered message needs it (see [`ClearPolicy::Hold`]), and the end of the
    /// turn does the same.
    ///
    /// # Errors
    ///
    /// As [`Turn::update`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future while it waits sends nothing. The end of the turn sends the message then.
    pub async fn finish(self) -> Result<()> {
        self.turn.room().await?;
        // Nothing awaits from here on, so a removed message cannot be lost by dropping this future.
        let message = self.turn.with_buffer(|buffer| buffer.finish(&self.id))?;
        // An update that cannot be sent does not stop the others.
        let sent = message.into_iter().map(|update| self.turn.update_now(update));
        sent.fold(Ok(()), Result::and)
    }

    fn clearing(&self) -> ClearMode {
        self.turn.client().clearing()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The hash must not depend on the pieces in which the text was pushed, which the standard library does not
    /// guarantee.
    #[test]
    fn a_pushed_text_is_found_at_the_beginning_of_a_longer_one() {
        let full = "Grüße, und noch ein paar Worte mehr als in einen Block passen 🦀.".repeat(3);
        let ends: Vec<usize> = full.char_indices().map(|(end, _)| end).collect();
        for pieces in 1..20 {
            let mut pushed = PushedText::default();
            for end in ends.iter().step_by(pieces) {
                let (begin, rest) = full.split_at(*end);
                pushed = pushed.extended(begin.split_at(pushed.length).1);
                assert_eq!(pushed.rest_of(&full), Some(rest));
                assert_eq!(pushed.rest_of(&full.replace('e', "i")).is_some(), !begin.contains('e'));
            }
            assert_eq!(pushed.rest_of("Gr"), None, "shorter than what was pushed");
            assert_eq!(pushed.rest_of(&full.replace('ü', "ue")), None);
        }
    }
}
