//! Messages and thoughts: append, clear and replace.

use std::hash::{BuildHasher, DefaultHasher, Hasher, RandomState};

use duologue_schema::{ContentBlock, ContentChunk, MessageClear, MessageId, SessionUpdate, append_content};

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

/// The text between a cleared draft and its successor for a client that cannot clear.
const SEPARATOR: &str = "\n\n---\n\n";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChunkKind {
    Message,
    Thought,
}

impl ChunkKind {
    fn chunk(self, id: &MessageId, content: ContentBlock) -> SessionUpdate {
        let chunk = ContentChunk::new(content).message_id(id.clone());
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

/// A message that is buffered until it is final.
pub(crate) struct BufferedMessage {
    kind: ChunkKind,
    id: MessageId,
    content: Vec<ContentBlock>,
}

impl BufferedMessage {
    pub(crate) fn into_updates(self) -> impl Iterator<Item = SessionUpdate> {
        let BufferedMessage { kind, id, content } = self;
        content.into_iter().map(move |block| kind.chunk(&id, block))
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
            self.hold(content)?;
        } else {
            self.turn.update(self.kind.chunk(&self.id, content)).await?;
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
            ClearMode::Send => self.turn.update(self.kind.clear(&self.id)).await?,
            ClearMode::Hold => self.turn.with_drafts(|drafts| drafts.retain(|draft| draft.id != self.id))?,
            ClearMode::Separate => {
                self.turn.update(self.kind.chunk(&self.id, SEPARATOR.into())).await?;
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
        let draft = self.turn.with_drafts(|drafts| {
            let index = drafts.iter().position(|draft| draft.id == self.id)?;
            Some(drafts.remove(index))
        })?;
        // An update that cannot be sent does not stop the others.
        let sent = draft
            .into_iter()
            .flat_map(BufferedMessage::into_updates)
            .map(|update| self.turn.update_now(update));
        sent.fold(Ok(()), Result::and)
    }

    fn clearing(&self) -> ClearMode {
        self.turn.client().clearing()
    }

    fn hold(&self, content: ContentBlock) -> Result<()> {
        self.turn.with_drafts(|drafts| match drafts.iter_mut().find(|draft| draft.id == self.id) {
            // Adjacent text becomes one chunk.
            Some(draft) => append_content(&mut draft.content, &content),
            None => {
                drafts.push(BufferedMessage { kind: self.kind, id: self.id.clone(), content: vec![content] })
            }
        })
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
