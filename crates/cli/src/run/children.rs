//! The child sessions of the session that `duologue run` shows. A terminal and a pipe get their messages as notes, and a
//! script all their updates.

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::task::Poll;

use duologue_client::{Result as ClientResult, Session, Updates};
use duologue_schema::{ContentBlock, ContentChunk, MessageId, SessionId, SessionUpdate};
use duologue_transcript::describe;

use super::output::SessionOutput;
use super::rows::Span;
use crate::ui::{DIM, MARK};

/// Limit on the text of a message that is kept until its end, in bytes. A longer one is shown in parts.
const TEXT_BYTES: usize = 64 * 1024;

/// The child sessions that the agent has announced.
#[derive(Default)]
pub(super) struct ShownChildren(Vec<ShownChild>);

struct ShownChild {
    id: SessionId,
    title: String,
    updates: Updates,
    /// The message that goes on.
    message: Option<MessageId>,
    text: String,
}

impl ShownChildren {
    /// Follows the children of a session that are not followed yet.
    pub(super) fn follow(&mut self, session: &Session) {
        for info in session.children() {
            let known = self.0.iter_mut().find(|child| child.id == info.id);
            let title = info.title.unwrap_or_else(|| info.id.to_string());
            match (known, session.child(&info.id)) {
                (Some(known), _) => known.title = title,
                (None, Some(child)) => {
                    let (updates, text) = (child.updates(), String::new());
                    self.0.push(ShownChild { id: info.id, title, updates, message: None, text });
                }
                (None, None) => {}
            }
        }
    }

    /// Waits for the next update of a child.
    ///
    /// # Cancel safety
    ///
    /// No update is lost if the future is dropped.
    pub(super) async fn next(&mut self) -> (SessionId, ClientResult<SessionUpdate>) {
        poll_fn(|cx| {
            let mut index = 0;
            while let Some(child) = self.0.get_mut(index) {
                let polled = {
                    let next = pin!(child.updates.next());
                    next.poll(cx)
                };
                match polled {
                    Poll::Ready(Some(update)) => return Poll::Ready((child.id.clone(), update)),
                    // The session forgot the child, or the connection has ended.
                    Poll::Ready(None) if child.text.is_empty() => _ = self.0.remove(index),
                    Poll::Ready(None) | Poll::Pending => index += 1,
                }
            }
            Poll::Pending
        })
        .await
    }

    /// Shows an update of a child. The text of a message is shown at its end.
    pub(super) fn show(
        &mut self,
        output: &mut SessionOutput,
        id: &SessionId,
        update: &SessionUpdate,
    ) -> io::Result<()> {
        if let SessionOutput::Json = output {
            return output.update(id, update);
        }
        let Some(child) = self.0.iter_mut().find(|child| child.id == *id) else { return Ok(()) };
        match update {
            SessionUpdate::AgentMessageChunk(ContentChunk { content, message_id, .. }) => {
                if child.message != *message_id || child.text.len() > TEXT_BYTES {
                    child.end_message(output)?;
                }
                child.message.clone_from(message_id);
                child.text.push_str(&match content {
                    ContentBlock::Text(text) => text.text.as_str().into(),
                    content => describe::content(content),
                });
                Ok(())
            }
            SessionUpdate::AgentMessageClear(_) => {
                child.text.clear();
                Ok(())
            }
            SessionUpdate::ToolCall(call) => {
                child.end_message(output)?;
                child.note(output, &[Span::line(DIM, &call.title)])
            }
            SessionUpdate::SubagentUpdate(_) | SessionUpdate::UserMessageChunk(_) => {
                child.end_message(output)
            }
            _ => Ok(()),
        }
    }

    /// Shows what is left of the messages: of one child, or of all.
    pub(super) fn end_messages(
        &mut self,
        output: &mut SessionOutput,
        of: Option<&SessionId>,
    ) -> io::Result<()> {
        let mut children = self.0.iter_mut().filter(|child| of.is_none_or(|id| child.id == *id));
        children.try_for_each(|child| child.end_message(output))
    }
}

impl ShownChild {
    fn end_message(&mut self, output: &mut SessionOutput) -> io::Result<()> {
        self.message = None;
        let text = std::mem::take(&mut self.text);
        let mut lines = text.trim().lines();
        let Some(first) = lines.next() else { return Ok(()) };
        let mut spans = vec![Span::plain(first)];
        spans.extend(lines.flat_map(|line| [Span::plain("\n  "), Span::plain(line)]));
        self.note(output, &spans)
    }

    fn note(&self, output: &mut SessionOutput, spans: &[Span]) -> io::Result<()> {
        let head = [Span::new(MARK, "· "), Span::line(DIM, &format!("{}: ", self.title))];
        output.note([&head[..], spans].concat())
    }
}
