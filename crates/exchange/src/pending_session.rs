//! Notifications of sessions that the other side does not know yet. They are buffered until the
//! response that names the session has been sent.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use duologue_rpc::{Error as RpcError, Limits, NotificationBuffer};
use duologue_schema::SessionId;
use duologue_schema::envelope::{EnvelopeParams, NotificationPayload};

use crate::PeerAgent;
use crate::error::{Error, Result};
use crate::peer_agent::Link;
use duologue_rpc::Lock as _;

type Send = Box<dyn FnOnce(&mut NotificationBuffer) -> Result<(), RpcError> + std::marker::Send>;

/// The buffered notifications, by session.
#[derive(Default)]
pub(crate) struct PendingSessions(Mutex<HashMap<SessionId, Waiting>>);

#[derive(Default)]
struct Waiting {
    notifications: Vec<Send>,
    bytes: usize,
}

/// A session that the other side does not know yet, for an SDK that is creating one. Dropping it
/// drops the buffered notifications.
#[must_use = "notifications are buffered until `done` is called"]
#[doc(hidden)]
pub struct PendingSession {
    link: Arc<Link>,
    session: SessionId,
}

impl PeerAgent {
    /// Starts to buffer the notifications of a session until the response that names it has been
    /// sent.
    pub fn pending_session(&self, session: impl Into<SessionId>) -> PendingSession {
        let session = session.into();
        self.link.pending_sessions.0.lock_unpoisoned().insert(session.clone(), Waiting::default());
        PendingSession { link: self.link.clone(), session }
    }

    /// Buffers a message if its session is pending; returns it otherwise.
    pub(crate) fn keep<P: NotificationPayload>(
        &self,
        message: EnvelopeParams<P>,
    ) -> Result<Option<EnvelopeParams<P>>> {
        let mut all = self.link.pending_sessions.0.lock_unpoisoned();
        let waiting = self.session().and_then(|session| all.get_mut(session));
        let Some(waiting) = waiting.filter(|_| !self.rpc().is_closing()) else { return Ok(Some(message)) };
        let method = P::METHOD;
        let bytes = serde_json::to_string(&message)
            .map_err(|error| RpcError::Encode { method: method.into(), error: Arc::new(error) })?
            .len();
        if waiting.bytes + bytes > Limits::EARLY_BYTES {
            return Err(Error::TooEarly);
        }
        waiting.bytes += bytes;
        waiting.notifications.push(Box::new(move |notifications| notifications.push(&message)));
        Ok(None)
    }
}

impl PendingSession {
    /// Appends the buffered notifications to `notifications` and calls `answer`, which sends them
    /// after the response that names the session. Later notifications of the session are sent after
    /// that.
    pub fn done(self, mut notifications: NotificationBuffer, answer: impl FnOnce(NotificationBuffer)) {
        // The lock is kept until everything is sent, so that no notification overtakes another.
        let mut all = self.link.pending_sessions.0.lock_unpoisoned();
        for send in all.remove(&self.session).unwrap_or_default().notifications {
            if let Err(error) = send(&mut notifications) {
                tracing::warn!(session = %self.session, %error, "a notification could not be sent");
            }
        }
        answer(notifications);
        // `Drop` takes the lock.
        drop(all);
    }
}

impl Drop for PendingSession {
    fn drop(&mut self) {
        self.link.pending_sessions.0.lock_unpoisoned().remove(&self.session);
    }
}
