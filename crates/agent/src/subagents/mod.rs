//! Child sessions, in which agents work for a session, and the messages between them.

mod session_message;
mod subagent;

use std::collections::HashMap;
use std::sync::Mutex;

use duologue_rpc::{CancellationToken, Lock};
use duologue_schema::{Error as WireError, SessionId};

pub use self::session_message::SessionMessageWriter;
use self::subagent::RunningChild;
pub use self::subagent::{NewSubagent, Subagent};
use crate::error::Error;

/// The child sessions of a connection that work.
#[derive(Default)]
pub(crate) struct RunningChildren(Mutex<HashMap<SessionId, RunningChild>>);

impl RunningChildren {
    /// Cancels the work of a child, if the client may do so.
    pub(crate) fn cancel_child(&self, id: &SessionId) {
        let children = self.0.lock_unpoisoned();
        let child = children.get(id).filter(|child| child.is_cancellable);
        let cancellation = child.map(|child| child.cancellation.clone());
        drop(children);
        if let Some(cancellation) = cancellation {
            cancellation.cancel();
        }
    }

    /// Cancels the work of the children of a session. Those of its children are cancelled with them.
    pub(crate) fn cancel_children(&self, parent: &SessionId) {
        let children = self.0.lock_unpoisoned();
        let of_parent = children.values().filter(|child| child.parent.id() == parent);
        let cancellations: Vec<_> = of_parent.map(|child| child.cancellation.clone()).collect();
        drop(children);
        cancellations.iter().for_each(CancellationToken::cancel);
    }

    /// Ends the children of a session that is closed in version 2. Nothing of them follows.
    #[cfg(feature = "protocol-v2")]
    pub(crate) fn end_children(&self, parent: &SessionId) {
        let is_of_parent = |_: &SessionId, child: &mut RunningChild| child.parent.id() == parent;
        let ended: Vec<_> = self.0.lock_unpoisoned().extract_if(is_of_parent).collect();
        for (id, child) in ended {
            child.cancellation.cancel();
            self.end_children(&id);
            child.report_end(duologue_schema::StateUpdate::idle(duologue_schema::StopReason::Cancelled));
            child.turn.session().end_updates();
        }
    }
}

/// Returns the error for a session that is still being created.
fn not_open_yet() -> Error {
    Error::Response(WireError::internal("the session is not open yet; begin its children in the first turn"))
}
