//! Routing: from a `_session/<kind>` of the other side to what answers it.

use std::sync::Arc;

use duologue_rpc::{Closed, Incoming, Responder};
use duologue_schema::{Meta, SessionId};

use crate::peer_agent::PeerAgent;
use crate::work::worker;
use crate::{dialogue, envelope};

pub(crate) type SessionLookup = Box<dyn Fn(&SessionId) -> bool + Send + Sync>;

/// What an SDK hands incoming messages to, ahead of its user's extension methods.
///
/// The methods are called by the reader of the connection, and return at once.
pub struct ExchangeService {
    peer: PeerAgent,
    knows: SessionLookup,
    worker: Option<Arc<dyn worker::ErasedWorker>>,
}

impl ExchangeService {
    pub(crate) fn new(
        peer: PeerAgent,
        knows: SessionLookup,
        worker: Option<Arc<dyn worker::ErasedWorker>>,
    ) -> Self {
        ExchangeService { peer, knows, worker }
    }

    /// The handle on the other agent, in no session.
    #[must_use]
    pub fn peer_agent(&self) -> &PeerAgent {
        &self.peer
    }

    /// Hears the other side's capabilities, out of `initialize`.
    pub fn set_peer_capabilities(&self, meta: Option<&Meta>) {
        self.peer.set_peer_capabilities(meta);
    }

    /// Answers a request if it is one of the exchange, else gives the responder back.
    ///
    /// # Errors
    ///
    /// The responder, when the method is not one of ours or we were not set up for it.
    pub fn request(&self, request: Incoming<'_>, responder: Responder) -> Result<(), Responder> {
        envelope::service::request(&self.peer, &self.knows, request, responder)
            .or_else(|responder| {
                worker::request(&self.peer, self.worker.as_ref(), &self.knows, request, responder)
            })
            .or_else(|responder| dialogue::service::request(&self.peer, &self.knows, request, responder))
    }

    /// Answers a request that nobody else has answered: an envelope of a kind that does not exist.
    ///
    /// # Errors
    ///
    /// The responder, when the request carries no envelope.
    pub fn unknown_request(&self, request: Incoming<'_>, responder: Responder) -> Result<(), Responder> {
        envelope::service::unknown_kind(&self.peer, request, responder)
    }

    /// Takes a notification if it is one of the exchange; tells whether it was.
    pub fn notification(&self, notification: Incoming<'_>) -> bool {
        envelope::service::notification(&self.peer, &self.knows, notification)
    }

    /// Hears of a notification that nobody has taken: an envelope of a kind that does not exist.
    pub fn unknown_notification(&self, notification: Incoming<'_>) {
        envelope::service::unknown_notification(&self.peer, notification);
    }

    /// The connection has ended.
    pub fn closed(&self, reason: &Closed) {
        envelope::service::closed(&self.peer, reason);
        self.peer.link.dialogue_connection.closed(reason);
    }
}
