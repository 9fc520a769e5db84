//! Child sessions: sessions of the agent that belong to a session of the client.
//!
//! An update of the parent announces a child. The child has a [`SessionEntry`] like any other session, which its root
//! keeps until the root is closed or its tree is full.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use duologue_rpc::Limits;
use duologue_schema::{ChildSession, Conversation, SessionId, SessionState, SessionUpdate};

use crate::connection::ConnectionInner;
use crate::error::Result;
use crate::idle_updates::Updates;
use crate::open_state::OpenState;
use crate::router::{EntryState, Router, SessionEntry, SessionSlot, Sessions};
use crate::session::Session;

/// The children of a session.
#[derive(Default)]
pub(crate) struct Children {
    /// True in the entry of a child.
    pub(crate) of_child: bool,
    /// The children of a root, and their children.
    entries: HashMap<SessionId, Arc<SessionEntry>>,
}

/// The effects of updates about children that follow without the lock of the sessions.
#[derive(Default)]
pub(crate) struct ChildChanges {
    begun: Vec<(Arc<SessionEntry>, Vec<PathBuf>)>,
    ended: Vec<Arc<SessionEntry>>,
    /// Entries that may be dropped without the lock only.
    kept: Vec<Arc<SessionEntry>>,
}

/// Returns true for an update that a child ignores if its entries are not kept. There can be many children, and a
/// limit on the state of each would not limit the state of all.
pub(crate) fn is_state(update: &SessionUpdate) -> bool {
    SessionState::is_changed_by(update) || matches!(update, SessionUpdate::SubagentUpdate(_))
}

impl SessionEntry {
    /// Returns the session of the client to which this one belongs, possibly itself.
    fn root(self: &Arc<Self>) -> Option<Arc<SessionEntry>> {
        match &self.root {
            None => Some(self.clone()),
            Some(root) => root.upgrade(),
        }
    }

    /// Creates the entry of a child.
    fn child(root: &Arc<SessionEntry>, id: SessionId, inner: &EntryState) -> Arc<Self> {
        let mut entry = SessionEntry::unshared(id, inner.conversation.retention(), &root.shared);
        entry.root = Some(Arc::downgrade(root));
        entry.lock().children.of_child = true;
        Arc::new(entry)
    }
}

impl Sessions {
    /// Applies an update of `entry` about a child. The child is registered before the update is delivered. An update about
    /// the id of another session is dropped.
    pub(crate) fn update_child(
        &mut self,
        entry: &Arc<SessionEntry>,
        update: SessionUpdate,
        bytes: usize,
        changes: &mut ChildChanges,
    ) {
        let SessionUpdate::SubagentUpdate(child) = &update else { return entry.update(update, bytes) };
        let Some(root) = entry.root() else { return };
        changes.kept.push(root.clone());
        let is_root = Arc::ptr_eq(entry, &root);
        let mut inner = root.lock();
        if !self.can_have(&inner, &child.session_id) {
            tracing::warn!("dropped an update about a child with the id of another session");
            entry.shared.dropped.fetch_add(1, Relaxed);
            return;
        }
        let id = child.session_id.clone();
        match is_root {
            true => inner.apply(&update, bytes),
            false => inner.conversation.apply_of_child(&entry.id, &update),
        }
        if inner.conversation.children().get(&id).is_some() && !inner.children.entries.contains_key(&id) {
            self.begin_child(&mut inner, &root, id, changes);
            self.end_unlisted(&mut inner, changes);
        }
        if is_root {
            return inner.pass_on(update, bytes);
        }
        drop(inner);
        entry.update(update, bytes);
    }

    /// Returns true if a session with this id is a child of the root, or can become one.
    fn can_have(&self, root: &EntryState, id: &SessionId) -> bool {
        let is_used = || self.slots.get(id).is_some_and(|slot| slot.entry.strong_count() > 0);
        root.children.entries.contains_key(id) || (id.as_str().len() <= Limits::ID_BYTES && !is_used())
    }

    fn begin_child(
        &mut self,
        inner: &mut EntryState,
        root: &Arc<SessionEntry>,
        id: SessionId,
        changes: &mut ChildChanges,
    ) {
        // The host grants the folders of the root. Those that the agent names for the child grant nothing.
        let folders = self.slots.get(&root.id).and_then(|slot| slot.open.folders()).unwrap_or_default();
        let folders = folders.to_vec();
        let entry = SessionEntry::child(root, id.clone(), inner);
        let slot = SessionSlot { entry: Arc::downgrade(&entry), open: OpenState::opened(folders.clone()) };
        self.slots.insert(id.clone(), slot);
        inner.children.entries.insert(id, entry.clone());
        changes.begun.push((entry, folders));
    }

    /// Ends the children that are no longer in the tree of the root, which is limited.
    fn end_unlisted(&mut self, inner: &mut EntryState, changes: &mut ChildChanges) {
        let tree = inner.conversation.children();
        if inner.children.entries.len() <= tree.iter().count() {
            return;
        }
        let listed: HashSet<_> = tree.iter().map(|child| &child.id).collect();
        for (_, entry) in inner.children.entries.extract_if(|id, _| !listed.contains(id)) {
            self.end_child(entry, changes);
        }
    }

    fn end_child(&mut self, entry: Arc<SessionEntry>, changes: &mut ChildChanges) {
        if self.slots.get(&entry.id).is_some_and(|slot| slot.entry.as_ptr() == Arc::as_ptr(&entry)) {
            self.slots.remove(&entry.id);
        }
        changes.ended.push(entry);
    }

    /// Applies an update that preceded the response to `session/new`, if it is of the new session and about a child, or of
    /// a child. Returns it otherwise.
    pub(crate) fn update_early_child(
        &mut self,
        root: &Arc<SessionEntry>,
        (id, update): (SessionId, SessionUpdate),
        bytes: usize,
        changes: &mut ChildChanges,
    ) -> Option<(SessionId, SessionUpdate)> {
        if id == root.id && matches!(update, SessionUpdate::SubagentUpdate(_)) {
            self.update_child(root, update, bytes, changes);
            return None;
        }
        let child = root.lock().children.entries.get(&id).cloned();
        let Some(child) = child else { return Some((id, update)) };
        self.update_child(&child, update, bytes, changes);
        changes.kept.push(child);
        None
    }
}

impl Router {
    /// Notifies the host of children. Call it without the lock.
    pub(crate) fn finish(&self, changes: ChildChanges) {
        for (entry, folders) in &changes.begun {
            (self.notify_host)(&entry.id, Some(folders));
        }
        for entry in &changes.ended {
            (self.notify_host)(&entry.id, None);
        }
    }

    /// Ends the children of a session that was closed.
    pub(crate) fn close_children(&self, root: &SessionEntry) {
        let entries = std::mem::take(&mut root.lock().children.entries);
        let mut changes = ChildChanges::default();
        let mut sessions = self.lock();
        for entry in entries.into_values() {
            sessions.end_child(entry, &mut changes);
        }
        drop(sessions);
        self.finish(changes);
    }
}

impl Session {
    /// Returns the child sessions, in which agents work for this one, with their own children. The one that was updated
    /// last is at the end. At most [`CHILD_SESSIONS`](duologue_schema::CHILD_SESSIONS) are known.
    ///
    /// Agents have children only for a client that advertises `subagents`:
    ///
    /// ```no_run
    /// use duologue_client::schema::{SessionUpdate, SubagentCapabilities};
    /// use duologue_client::{Client, Command};
    ///
    /// # async fn run() -> duologue_client::Result<()> {
    /// let client = Client::new(()).advertise(|client| client.subagents(SubagentCapabilities::new()));
    /// let agent = client.spawn(Command::new("my-agent")).await?;
    /// let session = agent.new_session("/home/me/project").await?;
    /// let mut turn = session.prompt("Review the change.").await?;
    /// while let Some(update) = turn.next().await {
    ///     if let SessionUpdate::SubagentUpdate(child) = update?
    ///         && let Some(child) = session.child(&child.session_id)
    ///     {
    ///         println!("{:?}", child.info().and_then(|info| info.title));
    ///         let mut updates = child.updates();
    ///         tokio::spawn(async move { while let Some(Ok(update)) = updates.next().await { print!("{update}") } });
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn children(&self) -> Vec<ChildSession> {
        self.entry.lock().conversation.children().iter().cloned().collect()
    }

    /// Returns a handle on a child session that the agent has announced.
    #[must_use]
    pub fn child(&self, id: &SessionId) -> Option<SubagentSession> {
        let entry = self.entry.lock().children.entries.get(id).cloned()?;
        Some(SubagentSession { connection: self.connection.clone(), root: self.entry.clone(), entry })
    }
}

/// A child session, in which an agent works for a [`Session`] of this client. It takes no prompts.
#[derive(Clone)]
pub struct SubagentSession {
    connection: Arc<ConnectionInner>,
    root: Arc<SessionEntry>,
    entry: Arc<SessionEntry>,
}

impl std::fmt::Debug for SubagentSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SubagentSession").field("id", &self.entry.id).finish_non_exhaustive()
    }
}

impl SubagentSession {
    /// Returns the id of the child.
    #[must_use]
    pub fn id(&self) -> &SessionId {
        &self.entry.id
    }

    /// Returns the title, the state and the capabilities of the child, as long as its session knows it.
    #[must_use]
    pub fn info(&self) -> Option<ChildSession> {
        self.root.lock().conversation.children().get(&self.entry.id).cloned()
    }

    /// Returns the updates of the child, see [`Session::updates`].
    #[must_use]
    pub fn updates(&self) -> Updates {
        Updates::of(&self.connection, &self.entry)
    }

    /// Returns the conversation of the child, if the client [keeps conversations](crate::Client::keep_conversations).
    #[must_use]
    pub fn conversation(&self) -> Option<Conversation> {
        self.entry.with_conversation(Conversation::clone)
    }

    /// Cancels the work of the child, and leaves the turn of its parent running. Responds to the open permission requests of
    /// the child with `cancelled`; in version 2 the agent may cancel them itself. Needs a child that the agent has announced with
    /// `capabilities.cancel`.
    ///
    /// # Errors
    ///
    /// [`Error::NotSupported`](crate::Error::NotSupported). Nothing is sent then.
    pub fn cancel(&self) -> Result<()> {
        let capabilities = self.info().and_then(|info| info.capabilities);
        let offered = capabilities.is_some_and(|capabilities| capabilities.cancel.is_some());
        self.connection.require(offered, "capabilities.cancel of the child session")?;
        let questions = self.entry.cancel_child(self.connection.version());
        self.connection.send_cancel(&self.entry);
        questions.cancel();
        Ok(())
    }
}
