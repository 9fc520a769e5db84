//! Turns: the work between a prompt and its response.

use std::collections::{HashMap, HashSet};
use std::ops::Deref;
use std::sync::{Arc, Mutex};

use duologue_rpc::{CancellationToken, Lock};
use duologue_schema::{
    MessageId, Meta, RequestId, SessionNotification, SessionUpdate, ToolCallId, ToolCallStatus,
    ToolCallUpdate, TraceContext,
};

use crate::client::ClearMode;
use crate::context::Context;
use crate::error::{Error, Result};
use crate::message::{ChunkKind, MessageBuffer, MessageWriter, message_id, without_clear};
use crate::session::{Session, WaitingUpdate};
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
    state: Arc<TurnState>,
    #[cfg(feature = "unstable")]
    tokens: Mutex<Option<duologue_schema::Usage>>,
}

/// The state of a running turn, or `None` after the response. Locked while an update of the turn is sent,
/// so that no update can follow the response.
#[derive(Default)]
pub(crate) struct TurnState(Mutex<Option<Running>>);

impl TurnState {
    pub(crate) fn running() -> Self {
        TurnState(Mutex::new(Some(Running::default())))
    }

    /// Runs `work`, unless the turn has ended. The turn does not end meanwhile.
    #[cfg(feature = "protocol-v2")]
    pub(crate) fn if_running(&self, work: impl FnOnce()) {
        if self.0.lock_unpoisoned().is_some() {
            work();
        }
    }

    /// Sends an update that is not part of the turn. `send` returns true if it has sent the update. A call that the
    /// update ends is no longer an open call of the turn.
    pub(crate) fn end_call(
        &self,
        update: &mut WaitingUpdate,
        send: impl FnOnce(&mut WaitingUpdate) -> Result<bool>,
    ) -> Result<bool> {
        let mut state = self.0.lock_unpoisoned();
        let sent = send(update)?;
        if sent && let Some(running) = state.as_mut() {
            running.open_calls.end(&update.notification.update);
        }
        Ok(sent)
    }
}

/// The parts of the turn that its end completes.
#[derive(Default)]
struct Running {
    buffer: MessageBuffer,
    open_calls: OpenCallIds,
    /// The new ids of messages that were cleared with a separator, by their old ids.
    renamed: HashMap<MessageId, MessageId>,
}

impl Running {
    /// Gives a message that continues behind a separator its new id. Returns the id of a clear.
    fn rename(&self, update: &mut SessionUpdate) -> Option<MessageId> {
        let (id, is_clear) = message_id(update)?;
        let before = id.clone();
        if let Some(new) = self.renamed.get(id) {
            *id = new.clone();
        }
        is_clear.then_some(before)
    }

    /// Chooses a new id for a message that was cleared with a separator.
    fn cleared(&mut self, id: MessageId) {
        if self.renamed.len() < Turn::RENAMED_MESSAGES || self.renamed.contains_key(&id) {
            self.renamed.insert(id, Turn::new_message_id());
        }
    }
}

/// The ids of the tool calls that the client shows as open, in the order of their announcement.
#[derive(Default)]
struct OpenCallIds {
    positions: HashMap<ToolCallId, u64>,
    next: u64,
    /// The open calls that the end of the turn leaves open.
    detached: HashSet<ToolCallId>,
}

/// Returns the id of a tool call whose status an update sets, and true if the call is open then.
///
/// A late update of a call that has ended does not open it again.
fn status_of(update: &SessionUpdate) -> Option<(&ToolCallId, bool)> {
    let (id, status) = match update {
        SessionUpdate::ToolCall(call) => (&call.tool_call_id, &call.status),
        SessionUpdate::ToolCallUpdate(update) => (&update.tool_call_id, update.status.as_ref()?),
        _ => return None,
    };
    Some((id, !status.is_final()))
}

/// Returns true for an update that ends a tool call.
pub(crate) fn ends_call(update: &SessionUpdate) -> bool {
    status_of(update).is_some_and(|(_, is_open)| !is_open)
}

impl OpenCallIds {
    /// Removes a call that an update ends.
    fn end(&mut self, update: &SessionUpdate) {
        if let Some((id, false)) = status_of(update) {
            self.remove(id);
        }
    }

    fn remove(&mut self, id: &ToolCallId) {
        self.positions.remove(id);
        self.detached.remove(id);
    }

    /// Leaves a call open at the end of the turn, also if the turn updates it again.
    fn detach(&mut self, id: &ToolCallId) {
        if self.positions.remove(id).is_some() && self.detached.len() < Turn::OPEN_CALLS {
            self.detached.insert(id.clone());
        }
    }

    fn apply(&mut self, update: &SessionUpdate) {
        let Some((id, is_open)) = status_of(update) else { return };
        if !is_open {
            self.remove(id);
        } else if !self.detached.contains(id) && self.positions.len() < Turn::OPEN_CALLS {
            self.positions.entry(id.clone()).or_insert(self.next);
            self.next += 1;
        }
    }

    fn into_ids(self) -> impl Iterator<Item = ToolCallId> {
        let mut calls: Vec<_> = self.positions.into_iter().collect();
        calls.sort_unstable_by_key(|(_, position)| *position);
        calls.into_iter().map(|(id, _)| id)
    }
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
    /// The limit on the open tool calls that the end of a turn fails. Further ones stay open if the agent does not
    /// end them.
    pub const OPEN_CALLS: usize = 1024;
    /// The limit on messages that continue with a new id after a separator.
    const RENAMED_MESSAGES: usize = 1024;

    pub(crate) fn new(session: Session, context: Context, state: Arc<TurnState>) -> Self {
        Turn {
            inner: Arc::new(Inner {
                session,
                context,
                state,
                #[cfg(feature = "unstable")]
                tokens: Mutex::default(),
            }),
        }
    }

    /// Sets the tokens that this turn used, for its response. A later call replaces an earlier one.
    #[cfg(feature = "unstable")]
    pub fn set_token_usage(&self, usage: duologue_schema::Usage) {
        *self.inner.tokens.lock_unpoisoned() = Some(usage);
    }

    #[cfg(feature = "unstable")]
    pub(crate) fn take_tokens(&self) -> Option<duologue_schema::Usage> {
        self.inner.tokens.lock_unpoisoned().take()
    }

    /// Returns the context of the prompt, for code that handles other requests too.
    #[must_use]
    pub fn context(&self) -> &Context {
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
    ///
    /// The end of the turn fails tool calls that are still open, also those of a handler that returned an error,
    /// panicked or was cancelled. A call that continues after its turn is
    /// [detached](crate::ToolCallHandle::detach), or sent with [`Session::update`] from the start.
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
    pub fn set_answer_meta(&self, meta: impl Into<Meta>) {
        self.context().set_answer_meta(meta);
    }

    /// Sends an update in this turn. Waits while the client is slow to read.
    ///
    /// A clear of a message follows the [`ClearPolicy`](crate::ClearPolicy), as
    /// [`MessageWriter::clear`] does. So do chunks of messages that [`Hold`](crate::ClearPolicy::Hold) buffers.
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
        let mut update = update.into();
        match self.client().clearing() {
            ClearMode::Send => self.send(update).await,
            ClearMode::Hold => match self.with_buffer(|buffer| buffer.hold(update))? {
                Some(update) => self.send(update).await,
                None => Ok(()),
            },
            ClearMode::Separate => {
                let cleared = self.with_running(|running| running.rename(&mut update))?;
                self.send(without_clear(update)).await?;
                let Some(id) = cleared else { return Ok(()) };
                self.with_running(|running| running.cleared(id))
            }
        }
    }

    /// Sends an update as it is.
    pub(crate) async fn send(&self, update: SessionUpdate) -> Result<()> {
        if !self.session().sends(&update)? {
            return Ok(());
        }
        let mut update = WaitingUpdate::new(self.id().clone(), update);
        self.session().encode(&mut update)?;
        loop {
            self.room().await?;
            let sent = self.with_running(|running| -> Result<bool> {
                let sent = self.session().try_send(&mut update)?;
                if sent {
                    running.open_calls.apply(&update.notification.update);
                }
                Ok(sent)
            })?;
            if sent? {
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
        let sends = self.session().sends(&update)?;
        let update = SessionNotification::new(self.id().clone(), update);
        self.with_running(|running| -> Result<()> {
            if sends {
                self.session().send_now(&update)?;
            }
            running.open_calls.apply(&update.update);
            Ok(())
        })?
    }

    /// Changes the state of the turn, unless the turn has ended. The turn does not end meanwhile.
    fn with_running<T>(&self, work: impl FnOnce(&mut Running) -> T) -> Result<T> {
        self.inner.state.0.lock_unpoisoned().as_mut().map(work).ok_or(Error::TurnEnded)
    }

    /// Leaves a tool call open at the end of the turn.
    pub(crate) fn detach_call(&self, id: &ToolCallId) -> Result<()> {
        self.with_running(|running| running.open_calls.detach(id))
    }

    /// Changes the buffered messages, unless the turn has ended.
    pub(crate) fn with_buffer<T>(&self, work: impl FnOnce(&mut MessageBuffer) -> T) -> Result<T> {
        self.with_running(|running| work(&mut running.buffer))
    }

    /// Sends the buffered messages, fails the open tool calls and ends the turn.
    pub(crate) fn end(&self) {
        let mut state = self.inner.state.0.lock_unpoisoned();
        let Some(Running { buffer, open_calls, .. }) = state.take() else { return };
        let messages = buffer.into_updates();
        let status = self.status_of_open_calls();
        let ended = |id| ToolCallUpdate::new(id).status(status.clone()).into();
        for update in messages.chain(open_calls.into_ids().map(ended)) {
            let update = SessionNotification::new(self.id().clone(), update);
            match self.session().send_now(&update) {
                Err(Error::Connection(duologue_rpc::Error::Closed(_))) => break,
                Err(error) => tracing::warn!(%error, "the last updates of a turn could not all be sent"),
                Ok(()) => {}
            }
        }
    }

    /// Returns the status that the end of the turn gives to its open calls.
    fn status_of_open_calls(&self) -> ToolCallStatus {
        #[cfg(feature = "protocol-v2")]
        if self.client().is_v2() && self.is_cancelled() {
            return ToolCallStatus::Cancelled;
        }
        // Version 1 has no status for a cancelled call, and a client without a status shows the call as running forever.
        ToolCallStatus::Failed
    }

    pub(crate) fn new_message_id() -> MessageId {
        uuid::Uuid::new_v4().to_string().into()
    }

    pub(crate) fn new_tool_call_id() -> ToolCallId {
        uuid::Uuid::new_v4().to_string().into()
    }
}
