//! Routing of incoming `_session/…` messages to the handlers of each scheme.

#[cfg(feature = "work")]
use std::sync::Arc;

use duologue_rpc::{Closed, Incoming, Responder};
use duologue_schema::{Meta, SessionId};

#[cfg(feature = "dialogue")]
use crate::dialogue;
use crate::envelope;
use crate::peer_agent::PeerAgent;
#[cfg(feature = "work")]
use crate::work::worker;

pub(crate) type SessionLookup = Box<dyn Fn(&SessionId) -> bool + Send + Sync>;

/// Routes incoming messages, for an SDK. It is tried before the user's extension handlers.
///
/// The connection's reader calls these methods, and they return at once.
#[doc(hidden)]
pub struct ExchangeService {
    peer: PeerAgent,
    knows: SessionLookup,
    #[cfg(feature = "work")]
    worker: Option<Arc<dyn worker::ErasedWorker>>,
}

impl ExchangeService {
    pub(crate) fn new(
        peer: PeerAgent,
        knows: SessionLookup,
        #[cfg(feature = "work")] worker: Option<Arc<dyn worker::ErasedWorker>>,
    ) -> Self {
        ExchangeService {
            peer,
            knows,
            #[cfg(feature = "work")]
            worker,
        }
    }

    /// Returns the handle on the other agent, without a session.
    #[must_use]
    pub fn peer_agent(&self) -> &PeerAgent {
        &self.peer
    }

    /// Records the other side's capabilities from `initialize`.
    pub fn set_peer_capabilities(&self, meta: Option<&Meta>) {
        self.peer.set_peer_capabilities(meta);
    }

    /// Handles a request of one of the schemes.
    ///
    /// # Errors
    ///
    /// Returns the responder if the method belongs to no scheme, or to one that this side does not
    /// handle.
    pub fn request(&self, request: Incoming<'_>, responder: Responder) -> Result<(), Responder> {
        let unhandled = envelope::service::request(&self.peer, &self.knows, request, responder);
        #[cfg(feature = "work")]
        let unhandled = unhandled.or_else(|responder| {
            worker::request(&self.peer, self.worker.as_ref(), &self.knows, request, responder)
        });
        #[cfg(feature = "dialogue")]
        let unhandled = unhandled
            .or_else(|responder| dialogue::service::request(&self.peer, &self.knows, request, responder));
        unhandled
    }

    /// Answers a request that nothing else has handled if it carries an envelope of an unknown
    /// kind.
    ///
    /// # Errors
    ///
    /// Returns the responder if the request carries no envelope.
    pub fn unknown_request(&self, request: Incoming<'_>, responder: Responder) -> Result<(), Responder> {
        envelope::service::unknown_kind(&self.peer, request, responder)
    }

    /// Handles a notification; returns true if it belongs to one of the schemes.
    pub fn notification(&self, notification: Incoming<'_>) -> bool {
        envelope::service::notification(&self.peer, &self.knows, notification)
    }

    /// Reports a notification that nothing else has handled if it carries an envelope of an unknown
    /// kind.
    pub fn unknown_notification(&self, notification: Incoming<'_>) {
        envelope::service::unknown_notification(&self.peer, notification);
    }

    /// Ends everything that waits for the connection.
    pub fn closed(&self, reason: &Closed) {
        envelope::service::closed(&self.peer, reason);
        #[cfg(feature = "dialogue")]
        self.peer.link.dialogue_connection.closed(reason);
    }
}
