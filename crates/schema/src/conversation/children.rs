//! The tree of child sessions.

use std::collections::VecDeque;
use std::path::PathBuf;

use crate::serialized_len::serialized_len;
use crate::{Meta, SessionId, StateUpdate, SubagentSessionCapabilities, SubagentUpdate};

/// Limit on the child sessions of a tree. The one that was updated longest ago is dropped.
pub const CHILD_SESSIONS: usize = 256;
/// Limit on the bytes of their descriptions together.
pub const CHILD_SESSION_BYTES: usize = 1024 * 1024;

/// A child session, in which an agent works for another session.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ChildSession {
    /// The id.
    pub id: SessionId,
    /// The parent. `None` is the session of the [`Conversation`](crate::Conversation) that has the tree.
    pub parent: Option<SessionId>,
    /// The title.
    pub title: Option<String>,
    /// The role or the purpose.
    pub description: Option<String>,
    /// The requests of a client that the child accepts.
    pub capabilities: Option<SubagentSessionCapabilities>,
    /// The state of the foreground work. Absent means unknown, not idle.
    pub state: Option<StateUpdate>,
    /// The working directory. Absent means that of the parent.
    pub cwd: Option<PathBuf>,
    /// Further working directories. Absent means those of the parent.
    pub additional_directories: Option<Vec<PathBuf>>,
    /// Extension data about the child.
    pub meta: Option<Meta>,
}

impl ChildSession {
    fn new(id: SessionId, parent: Option<SessionId>) -> Self {
        ChildSession {
            id,
            parent,
            title: None,
            description: None,
            capabilities: None,
            state: None,
            cwd: None,
            additional_directories: None,
            meta: None,
        }
    }

    fn apply(&mut self, update: SubagentUpdate) {
        update.title.apply(&mut self.title);
        update.description.apply(&mut self.description);
        update.capabilities.apply(&mut self.capabilities);
        update.state.apply(&mut self.state);
        update.cwd.apply(&mut self.cwd);
        update.additional_directories.apply(&mut self.additional_directories);
        Meta::patch(&mut self.meta, update.meta);
    }

    fn bytes(&self) -> usize {
        let ChildSession {
            id,
            parent,
            title,
            description,
            capabilities,
            state,
            cwd,
            additional_directories,
            meta,
        } = self;
        let parts = (id, parent, title, description, capabilities, state, cwd, additional_directories, meta);
        serialized_len(&parts, usize::MAX).unwrap_or(usize::MAX)
    }
}

/// The child sessions of a session, and their children.
///
/// ```
/// use duologue_schema::{SessionId, SessionTree, SubagentUpdate};
///
/// let mut tree = SessionTree::default();
/// tree.apply(None, &SubagentUpdate::new("a").title("Review"));
/// tree.apply(Some(&SessionId::new("a")), &SubagentUpdate::new("b"));
/// assert_eq!(tree.children_of(None).count(), 1);
/// assert_eq!(tree.get(&SessionId::new("b")).unwrap().parent, Some(SessionId::new("a")));
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SessionTree {
    /// The session updated last is at the end.
    sessions: VecDeque<(ChildSession, usize)>,
    bytes: usize,
}

impl SessionTree {
    /// Returns the child session with this id.
    #[must_use]
    pub fn get(&self, id: &SessionId) -> Option<&ChildSession> {
        self.sessions.iter().rev().map(|(child, _)| child).find(|child| child.id == *id)
    }

    /// Returns all child sessions, the one updated last at the end.
    pub fn iter(&self) -> impl Iterator<Item = &ChildSession> {
        self.sessions.iter().map(|(child, _)| child)
    }

    /// Returns the children of a session, or of the root for `None`.
    pub fn children_of(&self, parent: Option<&SessionId>) -> impl Iterator<Item = &ChildSession> {
        self.iter().filter(move |child| child.parent.as_ref() == parent)
    }

    /// Applies an update of the session `parent`, or of the root for `None`. The first update of a child determines
    /// its parent.
    ///
    /// Returns false, and changes nothing, if the child would be its own ancestor, or is longer than
    /// [`CHILD_SESSION_BYTES`].
    pub fn apply(&mut self, parent: Option<&SessionId>, update: &SubagentUpdate) -> bool {
        let id = &update.session_id;
        let known = self.sessions.iter().rposition(|(child, _)| child.id == *id);
        if known.is_none() && self.is_ancestor(id, parent) {
            return false;
        }
        let new = || ChildSession::new(id.clone(), parent.cloned());
        let mut child =
            known.and_then(|index| self.sessions.get(index)).map_or_else(new, |(child, _)| child.clone());
        child.apply(update.clone());
        let bytes = child.bytes();
        if bytes > CHILD_SESSION_BYTES {
            return false;
        }
        if let Some((_, before)) = known.and_then(|index| self.sessions.remove(index)) {
            self.bytes -= before;
        }
        self.bytes += bytes;
        self.sessions.push_back((child, bytes));
        while self.sessions.len() > CHILD_SESSIONS || self.bytes > CHILD_SESSION_BYTES {
            let Some((_, bytes)) = self.sessions.pop_front() else { break };
            self.bytes -= bytes;
        }
        true
    }

    /// Returns true if `id` is `session` or one of its ancestors.
    fn is_ancestor(&self, id: &SessionId, session: Option<&SessionId>) -> bool {
        let mut next = session;
        for _ in 0..=CHILD_SESSIONS {
            match next {
                Some(session) if session == id => return true,
                Some(session) => next = self.get(session).and_then(|child| child.parent.as_ref()),
                None => return false,
            }
        }
        true
    }
}
