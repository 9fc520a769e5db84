//! Notifications of sessions that the other side does not know yet. They are buffered until the
//! response that names the session has been sent.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use duologue_rpc::{Error as RpcError, Limits, NotificationBuffer, Peer};
use duologue_schema::SessionId;
use duologue_schema::envelope::{EnvelopeParams, NotificationPayload};

use crate::PeerAgent;
use crate::error::{Error, Result};
use crate::peer_agent::Link;
use duologue_rpc::Lock as _;

type Send = Box<dyn FnOnce(Output<'_>) -> Result<(), RpcError> + std::marker::Send>;

/// The destination of a buffered notification.
enum Output<'a> {
    /// Behind the response that names the session.
    Response(&'a mut NotificationBuffer),
    /// The connection, after that response.
    Connection(&'a Peer),
}

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
        waiting.notifications.push(Box::new(move |output| match output {
            Output::Response(notifications) => notifications.push(&message),
            Output::Connection(peer) => peer.notify_now(&message),
        }));
        Ok(None)
    }
}

impl PendingSession {
    /// Appends the buffered notifications to `notifications` and calls `answer`, which sends them
    /// after the response that names the session. Later notifications of the session are sent after
    /// that.
    pub fn done(self, mut notifications: NotificationBuffer, answer: impl FnOnce(NotificationBuffer)) {
        // No lock is taken while they are sent, since a tap that sees them may send as well.
        // Notifications are buffered until everything before them is sent, so none overtakes another.
        for send in self.take() {
            self.send(send, Output::Response(&mut notifications));
        }
        answer(notifications);
        while !self.is_finished() {
            for send in self.take() {
                self.send(send, Output::Connection(&self.link.peer));
            }
        }
    }

    /// Takes the buffered notifications.
    fn take(&self) -> Vec<Send> {
        let mut all = self.link.pending_sessions.0.lock_unpoisoned();
        all.get_mut(&self.session).map(std::mem::take).unwrap_or_default().notifications
    }

    /// Stops to buffer if nothing is buffered. Returns false otherwise.
    fn is_finished(&self) -> bool {
        let mut all = self.link.pending_sessions.0.lock_unpoisoned();
        let is_empty = all.get(&self.session).is_none_or(|waiting| waiting.notifications.is_empty());
        if is_empty {
            all.remove(&self.session);
        }
        is_empty
    }

    fn send(&self, send: Send, output: Output<'_>) {
        if let Err(error) = send(output) {
            tracing::warn!(session = %self.session, %error, "a notification could not be sent");
        }
    }
}

impl Drop for PendingSession {
    fn drop(&mut self) {
        self.link.pending_sessions.0.lock_unpoisoned().remove(&self.session);
    }
}
