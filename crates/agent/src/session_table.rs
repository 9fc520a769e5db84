//! The open sessions of a connection, by their ids.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

use duologue_rpc::Lock;
use duologue_schema::SessionId;

use crate::session::Session;

/// The registered sessions. The exchange refers to the table.
#[derive(Clone, Default)]
pub(crate) struct SessionTable(Arc<Mutex<Sessions>>);

/// A reference to a table. The exchange keeps it, and the sessions of the table keep the exchange.
pub(crate) struct WeakSessionTable(
    #[cfg_attr(not(feature = "exchange"), expect(dead_code, reason = "only the exchange reads it"))]
    Weak<Mutex<Sessions>>,
);

impl WeakSessionTable {
    /// Returns an open session.
    #[cfg(feature = "exchange")]
    pub(crate) fn get(&self, id: &SessionId) -> Option<Session> {
        SessionTable(self.0.upgrade()?).get(id)
    }
}

#[derive(Default)]
struct Sessions {
    /// The session to which messages with an id belong.
    current: HashMap<SessionId, Session>,
    /// The sessions that a restore has replaced, oldest first: the open one, and others that are
    /// being restored. A restore that fails gives the last of them back.
    replaced: HashMap<SessionId, Vec<Session>>,
}

impl SessionTable {
    pub(crate) fn downgrade(&self) -> WeakSessionTable {
        WeakSessionTable(Arc::downgrade(&self.0))
    }

    pub(crate) fn contains(&self, id: &SessionId) -> bool {
        self.0.lock_unpoisoned().current.contains_key(id)
    }

    pub(crate) fn get(&self, id: &SessionId) -> Option<Session> {
        self.0.lock_unpoisoned().current.get(id).cloned()
    }

    /// Returns the open sessions.
    #[cfg(feature = "protocol-v2")]
    pub(crate) fn all(&self) -> Vec<Session> {
        self.0.lock_unpoisoned().current.values().cloned().collect()
    }

    /// Removes a session. Another one that was restored with its id stays. If it is still being restored and fails, it
    /// does not give the removed one back.
    pub(crate) fn forget(&self, session: &Session) {
        let mut sessions = self.0.lock_unpoisoned();
        if sessions.is_current(session) {
            sessions.replaced.remove(session.id());
            sessions.current.remove(session.id());
        } else {
            sessions.undo(session);
        }
    }

    /// Registers a session that is being created or restored. Unless the registration is kept,
    /// dropping it gives the replaced session back.
    pub(crate) fn register(&self, session: Session) -> Registration {
        let mut sessions = self.0.lock_unpoisoned();
        let replaced = sessions.current.insert(session.id().clone(), session.clone());
        if let Some(replaced) = &replaced {
            sessions.replaced.entry(session.id().clone()).or_default().push(replaced.clone());
        }
        Registration { table: self.clone(), session, replaced, is_kept: false }
    }
}

impl Sessions {
    fn is_current(&self, session: &Session) -> bool {
        self.current.get(session.id()).is_some_and(|current| current.is(session))
    }

    /// Removes the sessions that this one has replaced.
    fn keep(&mut self, session: &Session) {
        let id = session.id();
        if self.is_current(session) {
            self.replaced.remove(id);
        } else if let Some(replaced) = self.replaced.get_mut(id)
            && let Some(place) = replaced.iter().position(|other| other.is(session))
        {
            replaced.drain(..place);
        }
    }

    /// Removes a session whose restore has failed, or that was closed while another one is restored.
    fn undo(&mut self, session: &Session) {
        let id = session.id();
        let is_current = self.is_current(session);
        let Some(replaced) = self.replaced.get_mut(id) else {
            if is_current {
                self.current.remove(id);
            }
            return;
        };
        if !is_current {
            replaced.retain(|other| !other.is(session));
        } else if let Some(previous) = replaced.pop() {
            self.current.insert(id.clone(), previous);
        }
        if replaced.is_empty() {
            self.replaced.remove(id);
        }
    }
}

/// The registration of a session that is created or restored. Dropping it without `keep` undoes it.
pub(crate) struct Registration {
    table: SessionTable,
    session: Session,
    /// The session that was current before.
    pub(crate) replaced: Option<Session>,
    is_kept: bool,
}

impl Registration {
    pub(crate) fn keep(mut self) {
        self.is_kept = true;
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut sessions = self.table.0.lock_unpoisoned();
        if self.is_kept {
            sessions.keep(&self.session);
        } else {
            sessions.undo(&self.session);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::tests::in_request;
    use crate::session_memory::SessionMemory;

    /// A session that a later restore has replaced is dropped, in whichever order the restores end.
    #[tokio::test]
    async fn a_replaced_session_is_dropped() {
        in_request(|responder, _, make_session| {
            let table = SessionTable::default();
            let session = || {
                let (session, alive) = (make_session(&SessionMemory::default(), false), Arc::new(()));
                session.set_state(alive.clone());
                (session, alive)
            };
            let ((open, open_is_alive), (first, first_is_alive)) = (session(), session());
            let ((second, second_is_alive), (third, third_is_alive)) = (session(), session());
            let is_alive = |alive: &Arc<()>| Arc::strong_count(alive) > 1;
            table.register(open).keep();
            table.register(first.clone()).keep();
            assert!(!is_alive(&open_is_alive));
            // The first of two restores succeeds, the second is still running and fails later.
            let (restored, failing) = (table.register(second.clone()), table.register(third));
            restored.keep();
            drop(first);
            assert!(!is_alive(&first_is_alive) && is_alive(&third_is_alive));
            drop(failing);
            assert!(!is_alive(&third_is_alive));
            assert!(table.get(second.id()).is_some_and(|current| current.is(&second)));
            table.forget(&second);
            drop(second);
            assert!(!is_alive(&second_is_alive) && !table.contains(&"s".into()));
            responder.respond(Ok(()));
        })
        .await;
    }
}
