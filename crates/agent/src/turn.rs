//! Turns: the work between a prompt and its response.

use std::ops::Deref;
use std::sync::{Arc, Mutex};

use duologue_rpc::{CancellationToken, Lock};
use duologue_schema::{
    MessageId, Meta, RequestId, SessionNotification, SessionUpdate, ToolCallId, TraceContext,
};

use crate::context::Context;
use crate::error::{Error, Result};
use crate::message::{BufferedMessage, ChunkKind, MessageWriter};
use crate::session::Session;
use crate::tool_call::NewToolCall;

/// A running turn. It has all methods of its [`Session`]. Everything that it sends precedes the response
/// of the turn. The [cancel safety](Session#cancel-safety) is that of the session.
#[derive(Clone)]
pub struct Turn {
    inner: Arc<Inner>,
}

struct Inner {
    session: Session,
    context: Context,
    /// The buffered messages, or `None` after the response. Locked while an update of the turn is sent,
    /// so that no update can follow the response.
    drafts: Mutex<Option<Vec<BufferedMessage>>>,
}

impl std::fmt::Debug for Turn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Turn").field("session", self.session()).finish_non_exhaustive()
    }
}

impl Deref for Turn {
    type Target = Session;

    fn deref(&self) -> &Session {
        &self.inner.session
    }
}

impl Turn {
    pub(crate) fn new(session: Session, context: Context) -> Self {
        Turn { inner: Arc::new(Inner { session, context, drafts: Mutex::new(Some(Vec::new())) }) }
    }

    pub(crate) fn context(&self) -> &Context {
        &self.inner.context
    }

    /// Returns the session of the turn.
    #[must_use]
    pub fn session(&self) -> &Session {
        &self.inner.session
    }

    /// Returns the JSON-RPC id of the prompt.
    #[must_use]
    pub fn request_id(&self) -> &RequestId {
        self.context().request_id()
    }

    /// Returns the `_meta` of the prompt. That of the session is `turn.session().meta()`.
    #[must_use]
    pub fn meta(&self) -> Option<&Meta> {
        self.context().meta()
    }

    /// Returns the trace context of the prompt, to pass it on in the `_meta` of another message.
    #[must_use]
    pub fn trace_context(&self) -> Option<TraceContext> {
        self.context().trace_context()
    }

    /// Begins a message of the agent with a new id.
    #[must_use]
    pub fn message(&self) -> MessageWriter {
        MessageWriter::new(self.clone(), ChunkKind::Message)
    }

    /// Begins a thought, which the client may show separately or not at all.
    #[must_use]
    pub fn thought(&self) -> MessageWriter {
        MessageWriter::new(self.clone(), ChunkKind::Thought)
    }

    /// Begins a tool call, see [`NewToolCall`].
    pub fn tool_call(&self, title: impl Into<String>) -> NewToolCall {
        NewToolCall::new(self.clone(), title.into())
    }

    /// Returns true if the client cancelled the turn.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.context().is_cancelled()
    }

    /// Waits until the client cancels the turn.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    pub async fn cancelled(&self) {
        self.context().cancelled().await;
    }

    /// Returns a token that is cancelled with the turn.
    #[must_use]
    pub fn cancellation(&self) -> CancellationToken {
        self.context().cancellation()
    }

    /// Sets the `_meta` of the response of the turn.
    pub fn set_answer_meta(&self, meta: Meta) {
        self.context().set_answer_meta(meta);
    }

    /// Sends an update in this turn. Waits while the client is slow to read.
    ///
    /// # Errors
    ///
    /// [`Error::Cancelled`] if the turn is cancelled while this waits, [`Error::TurnEnded`] after the
    /// response of the turn, and as [`Session::update`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future while it waits sends nothing.
    pub async fn update(&self, update: impl Into<SessionUpdate>) -> Result<()> {
        let update = update.into();
        if !self.client().accepts(&update) {
            return Ok(());
        }
        let update = SessionNotification::new(self.id().clone(), update);
        loop {
            self.room().await?;
            if self.while_running(|session| session.try_send(&update))? {
                return Ok(());
            }
        }
    }

    pub(crate) async fn room(&self) -> Result<()> {
        let mut ready = std::pin::pin!(self.session().peer().ready());
        tokio::select! {
            biased;
            ready = &mut ready => Ok(ready?),
            () = self.cancelled() => Err(Error::Cancelled),
        }
    }

    pub(crate) fn update_now(&self, update: SessionUpdate) -> Result<()> {
        let taken = self.client().accepts(&update);
        self.while_running(|session| if taken { session.send_now(update) } else { Ok(()) })
    }

    /// Sends under the lock that the end of the turn takes, unless the turn has ended.
    fn while_running<T>(&self, send: impl FnOnce(&Session) -> Result<T>) -> Result<T> {
        let drafts = self.inner.drafts.lock_unpoisoned();
        if drafts.is_some() { send(self.session()) } else { Err(Error::TurnEnded) }
    }

    /// Changes the buffered messages, unless the turn has ended.
    pub(crate) fn with_drafts<T>(&self, work: impl FnOnce(&mut Vec<BufferedMessage>) -> T) -> Result<T> {
        self.inner.drafts.lock_unpoisoned().as_mut().map(work).ok_or(Error::TurnEnded)
    }

    /// Sends the buffered messages and ends the turn.
    pub(crate) fn end(&self) {
        let mut drafts = self.inner.drafts.lock_unpoisoned();
        for update in drafts.take().into_iter().flatten().flat_map(BufferedMessage::into_updates) {
            if let Err(error) = self.session().send_now(update) {
                tracing::warn!(%error, "a buffered message could not be sent");
            }
        }
    }

    pub(crate) fn new_message_id() -> MessageId {
        uuid::Uuid::new_v4().to_string().into()
    }

    pub(crate) fn new_tool_call_id() -> ToolCallId {
        uuid::Uuid::new_v4().to_string().into()
    }
}
