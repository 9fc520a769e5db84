//! Child sessions, in which agents work for a session.

use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;

use duologue_rpc::{CancellationToken, Lock};
use duologue_schema::{
    ContentBlock, Meta, Patch, SessionCancelCapabilities, SessionId, SessionMessage, SessionNotification,
    SessionUpdate, StateUpdate, StopReason, SubagentSessionCapabilities, SubagentUpdate,
};

use super::not_open_yet;
use crate::error::{Error, Result};
use crate::session::{Session, SessionParams};
use crate::session_memory::SessionMemory;
use crate::turn::{Turn, TurnState};

impl Turn {
    /// Begins a child session with a title for the user, in which another agent works for this one.
    ///
    /// The child has its own messages, tool calls and requests to the client. It ends when its handle is dropped or
    /// [finished](Subagent::finish). It can outlive the turn.
    ///
    /// ```
    /// use duologue_agent::{Error, Result, StopReason, Turn};
    ///
    /// async fn review(turn: &Turn, file: &str) -> Result<()> {
    ///     let child = match turn.subagent("Review").description("Reads the change").start().await {
    ///         // The client shows no children.
    ///         Err(Error::NotSupported { .. }) => return Ok(()),
    ///         child => child?,
    ///     };
    ///     child.instruct(format!("Review {file}.")).await?;
    ///     child.message().push("It looks good.").await?;
    ///     child.report("No findings.").await?;
    ///     child.finish(StopReason::EndTurn);
    ///     Ok(())
    /// }
    /// ```
    pub fn subagent(&self, title: impl Into<String>) -> NewSubagent {
        let id = SessionId::from(uuid::Uuid::new_v4().to_string());
        NewSubagent { parent: self.clone(), update: SubagentUpdate::new(id).title(title.into()), cwd: None }
    }
}

/// A child session that has not begun, see [`Turn::subagent`].
#[must_use = "a child session does not begin until `start` is called"]
#[derive(Debug)]
pub struct NewSubagent {
    parent: Turn,
    update: SubagentUpdate,
    cwd: Option<PathBuf>,
}

impl NewSubagent {
    /// Sets the role or the purpose of the child, to show to the user.
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.update.description = Patch::Set(description.into());
        self
    }

    /// Sets the working folder of the child, an absolute path. It is that of the parent by default.
    pub fn cwd(mut self, cwd: impl Into<PathBuf>) -> Self {
        self.cwd = Some(cwd.into());
        self
    }

    /// Lets the client cancel the work of the child alone. [`Turn::cancelled`] of the child reports it.
    pub fn cancellable(mut self) -> Self {
        let cancel = SessionCancelCapabilities::new();
        self.update.capabilities = Patch::Set(SubagentSessionCapabilities::new().cancel(cancel));
        self
    }

    /// Sets extension data about the child.
    pub fn meta(mut self, meta: impl Into<Meta>) -> Self {
        self.update.meta = Patch::Set(meta.into());
        self
    }

    /// Announces the child and begins its work.
    ///
    /// # Errors
    ///
    /// [`Error::NotSupported`] if the client does not advertise `subagents`, [`Error::RelativePath`], and as
    /// [`Turn::update`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future while it waits begins nothing.
    pub async fn start(self) -> Result<Subagent> {
        let NewSubagent { parent, mut update, cwd } = self;
        let client = parent.client().clone();
        client.require(|client| client.subagents.is_some(), "subagents")?;
        if parent.session().is_opening() {
            return Err(not_open_yet());
        }
        if let Some(path) = cwd.as_ref().filter(|path| !path.is_absolute()) {
            return Err(Error::RelativePath { field: "cwd", path: path.clone() });
        }
        if let Some(cwd) = &cwd {
            update.cwd = Patch::Set(cwd.clone());
        }
        update.state = Patch::Set(StateUpdate::running());
        let id = update.session_id.clone();
        let cancellation = parent.cancellation().child_token();
        let is_cancellable = update.capabilities.value().is_some();
        let params = SessionParams {
            cwd: cwd.unwrap_or_else(|| parent.cwd().to_owned()),
            additional_directories: parent.additional_directories().to_vec(),
            mcp_servers: Vec::new(),
            meta: None,
            system_prompt: None,
            // A child of the agent is not a request of the client.
            #[cfg(feature = "unstable")]
            initial_options: Vec::new(),
            reservation: SessionMemory::default().reserve(0)?,
        };
        let context = parent.context().clone().with_cancellation(cancellation.clone());
        let turn =
            Turn::new(Session::new(id, params, client, false, None), context, Arc::new(TurnState::running()));
        let running = RunningChild { parent: parent.session().clone(), turn, cancellation, is_cancellable };
        let entry = ChildEntry::new(running.clone());
        parent.update(update).await?;
        let child = Subagent { running, ended: false, _entry: entry };
        #[cfg(feature = "protocol-v2")]
        child.update_now(StateUpdate::running().into())?;
        Ok(child)
    }
}

/// A child session that works, and the session for which it does.
#[derive(Clone, Debug)]
pub(super) struct RunningChild {
    pub(super) parent: Session,
    pub(super) turn: Turn,
    pub(super) cancellation: CancellationToken,
    /// True if the client may cancel the child alone.
    pub(super) is_cancellable: bool,
}

impl RunningChild {
    /// Ends the work, and reports the state in the session of the child and in that of its parent. Version 1 has the second
    /// report only.
    pub(super) fn report_end(&self, state: StateUpdate) {
        self.turn.end();
        let report = |session: &Session, update: SessionUpdate| {
            let update = SessionNotification::new(session.id().clone(), update);
            if let Err(error) = session.send_now(&update) {
                tracing::debug!(session = %self.turn.id(), %error, "the end of a child session could not be reported");
            }
        };
        #[cfg(feature = "protocol-v2")]
        report(self.turn.session(), state.clone().into());
        report(&self.parent, SubagentUpdate::new(self.turn.id().clone()).state(state).into());
    }
}

/// The entry of a child session in the list of those that work. Dropping it removes the entry.
#[derive(Debug)]
struct ChildEntry(Session);

impl ChildEntry {
    fn new(child: RunningChild) -> Self {
        let session = child.turn.session().clone();
        session.client().children().0.lock_unpoisoned().insert(session.id().clone(), child);
        ChildEntry(session)
    }
}

impl Drop for ChildEntry {
    fn drop(&mut self) {
        // The entry is dropped without the lock.
        let _entry = self.0.client().children().0.lock_unpoisoned().remove(self.0.id());
    }
}

/// A child session that works. It has all methods of a [`Turn`]: messages, tool calls, and requests to the client.
///
/// It is cancelled with the turn that began it, and when the session of that turn is closed. Dropping it fails its open tool
/// calls and reports that the child is idle.
#[derive(Debug)]
pub struct Subagent {
    running: RunningChild,
    ended: bool,
    _entry: ChildEntry,
}

impl Deref for Subagent {
    type Target = Turn;

    fn deref(&self) -> &Turn {
        &self.running.turn
    }
}

impl Subagent {
    /// Returns the session for which the child works.
    #[must_use]
    pub fn parent(&self) -> &Session {
        &self.running.parent
    }

    /// Reports the state of the work, for example that the child waits for the user.
    ///
    /// # Errors
    ///
    /// As [`Session::update`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future while it waits can leave the state in the session of the child alone.
    pub async fn set_state(&self, state: impl Into<StateUpdate>) -> Result<()> {
        let state = state.into();
        #[cfg(feature = "protocol-v2")]
        self.update(state.clone()).await?;
        self.change(|update| update.state = Patch::Set(state)).await
    }

    /// Changes the title.
    ///
    /// # Errors
    ///
    /// As [`Session::update`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future while it waits sends nothing.
    pub async fn set_title(&self, title: impl Into<String>) -> Result<()> {
        self.change(|update| update.title = Patch::Set(title.into())).await
    }

    async fn change(&self, change: impl FnOnce(&mut SubagentUpdate)) -> Result<()> {
        let mut update = SubagentUpdate::new(self.id().clone());
        change(&mut update);
        self.parent().update(update).await
    }

    /// Shows a message of the parent to the child, in both sessions.
    ///
    /// # Errors
    ///
    /// As [`Turn::update`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future while it waits can leave the message in the session of the sender alone.
    pub async fn instruct(&self, content: impl Into<ContentBlock>) -> Result<()> {
        let (sent, received) = views(self.parent().id(), self.id(), Patch::Set(vec![content.into()]));
        self.parent().update(sent).await?;
        self.update(received).await
    }

    /// Shows a message of the child to the parent, in both sessions.
    ///
    /// # Errors
    ///
    /// As [`Turn::update`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future while it waits can leave the message in the session of the sender alone.
    pub async fn report(&self, content: impl Into<ContentBlock>) -> Result<()> {
        let (sent, received) = views(self.id(), self.parent().id(), Patch::Set(vec![content.into()]));
        self.update(sent).await?;
        self.parent().update(received).await
    }

    /// Ends the work with a stop reason. Open tool calls get the status `failed`.
    pub fn finish(mut self, reason: StopReason) {
        self.end(StateUpdate::idle(reason));
    }

    fn end(&mut self, state: StateUpdate) {
        if !std::mem::replace(&mut self.ended, true) {
            self.running.report_end(state);
        }
    }
}

impl Drop for Subagent {
    fn drop(&mut self) {
        self.end(match self.is_cancelled() {
            true => StateUpdate::idle(StopReason::Cancelled),
            false => duologue_schema::IdleStateUpdate::new().into(),
        });
    }
}

/// Returns the views of a message in the session of the sender and in that of the recipient.
pub(super) fn views(
    sender: &SessionId,
    recipient: &SessionId,
    content: Patch<Vec<ContentBlock>>,
) -> (SessionMessage, SessionMessage) {
    let (of_sender, of_recipient) = (Turn::new_message_id(), Turn::new_message_id());
    let view = |id| {
        let mut view = SessionMessage::new(id);
        view.sender_session_id = Patch::Set(sender.clone());
        view.recipient_session_id = Patch::Set(recipient.clone());
        view.content = content.clone();
        view
    };
    let (mut sent, mut received) = (view(of_sender.clone()), view(of_recipient.clone()));
    sent.recipient_message_id = Patch::Set(of_recipient);
    received.sender_message_id = Patch::Set(of_sender);
    (sent, received)
}
