//! Messages between a session and its child, written piece by piece.

use duologue_schema::{ContentBlock, MessageId, Patch, SessionMessageChunk, SessionUpdate};

use super::subagent::{Subagent, views};
use crate::error::Result;
use crate::session::Session;

/// A message between a session and its child, which both show while it is written. See
/// [`Subagent::write_instruction`] and [`Subagent::write_report`].
#[derive(Debug)]
pub struct SessionMessageWriter<'a> {
    child: &'a Subagent,
    is_of_child: bool,
    /// The ids of the message in the sessions of the sender and of the recipient, after the first piece.
    ids: Option<(MessageId, MessageId)>,
}

impl Subagent {
    /// Begins a message of the parent to the child. Pushed pieces are appended to it.
    #[must_use]
    pub fn write_instruction(&self) -> SessionMessageWriter<'_> {
        SessionMessageWriter { child: self, is_of_child: false, ids: None }
    }

    /// Begins a message of the child to the parent. Pushed pieces are appended to it.
    ///
    /// ```
    /// # async fn report(child: &duologue_agent::Subagent) -> duologue_agent::Result<()> {
    /// let mut report = child.write_report();
    /// report.push("No ").await?;
    /// report.push("findings.").await
    /// # }
    /// ```
    #[must_use]
    pub fn write_report(&self) -> SessionMessageWriter<'_> {
        SessionMessageWriter { child: self, is_of_child: true, ids: None }
    }
}

impl SessionMessageWriter<'_> {
    /// Appends text or another piece, in both sessions. The first piece announces the message.
    ///
    /// # Errors
    ///
    /// As [`Turn::update`](crate::Turn::update).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future while it waits can leave the piece in the session of the sender alone.
    pub async fn push(&mut self, content: impl Into<ContentBlock>) -> Result<()> {
        let (of_sender, of_recipient) = match self.ids.clone() {
            Some(ids) => ids,
            None => self.begin().await?,
        };
        let content = content.into();
        let sent = SessionMessageChunk::new(of_sender, content.clone());
        self.send(sent.into(), SessionMessageChunk::new(of_recipient, content).into()).await
    }

    async fn begin(&mut self) -> Result<(MessageId, MessageId)> {
        let (parent, child): (&Session, &Session) = (self.child.parent(), self.child.session());
        let (sender, recipient) = if self.is_of_child { (child, parent) } else { (parent, child) };
        let (sent, received) = views(sender.id(), recipient.id(), Patch::Keep);
        let ids = (sent.message_id.clone(), received.message_id.clone());
        self.send(sent.into(), received.into()).await?;
        Ok(self.ids.insert(ids).clone())
    }

    /// Sends an update to the session of the sender, then one to that of the recipient.
    async fn send(&self, sent: SessionUpdate, received: SessionUpdate) -> Result<()> {
        if self.is_of_child {
            self.child.update(sent).await?;
            return self.child.parent().update(received).await;
        }
        self.child.parent().update(sent).await?;
        self.child.update(received).await
    }
}
