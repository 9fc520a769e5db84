//! Routing of incoming `_session/…` messages to the handlers of each scheme.

#[cfg(feature = "work")]
use std::sync::Arc;

use duologue_rpc::{Closed, Incoming, Responder};
#[cfg(any(feature = "dialogue", feature = "work"))]
use duologue_schema::Request as _;
#[cfg(feature = "dialogue")]
use duologue_schema::dialogue::DialogueRequest;
use duologue_schema::envelope::{
    Ack, Cancel, Capabilities, Delegate, DelegationOutcome, Discover, EnvelopeError, Notify, Payload, Ping,
    Pong, Query, QueryResponse,
};
#[cfg(feature = "work")]
use duologue_schema::work::WorkParams;
use duologue_schema::{Meta, SessionId};

#[cfg(feature = "dialogue")]
use crate::dialogue;
use crate::envelope::machine::EnvelopeMachine;
use crate::envelope::{service as envelopes, task_runner};
use crate::peer_agent::PeerAgent;
#[cfg(feature = "work")]
use crate::work::order_cache::OrderCache;
#[cfg(feature = "work")]
use crate::work::worker;

type RequestHandler = fn(&ExchangeService, Incoming<'_>, Responder) -> Result<(), Responder>;
type NotificationHandler = fn(&ExchangeService, Incoming<'_>) -> bool;

/// The requests of all schemes.
const REQUESTS: &[(&str, RequestHandler)] = &[
    (Ping::METHOD, |to, request, responder| envelopes::request(to, request, responder, envelopes::ping)),
    (Discover::METHOD, |to, request, responder| {
        envelopes::request(to, request, responder, envelopes::discover)
    }),
    (Query::METHOD, |to, request, responder| envelopes::request(to, request, responder, envelopes::query)),
    (Delegate::METHOD, |to, request, responder| {
        envelopes::request(to, request, responder, task_runner::delegate)
    }),
    (Cancel::METHOD, |to, request, responder| {
        envelopes::request(to, request, responder, task_runner::cancel)
    }),
    #[cfg(feature = "work")]
    (WorkParams::METHOD, worker::request),
    #[cfg(feature = "dialogue")]
    (DialogueRequest::METHOD, dialogue::service::request),
];

/// The notifications of all schemes, and the requests that must not be sent as notifications.
const NOTIFICATIONS: &[(&str, NotificationHandler)] = &[
    (Notify::METHOD, |to, message| envelopes::notification(to, message, EnvelopeMachine::notify)),
    (DelegationOutcome::METHOD, |to, message| envelopes::notification(to, message, EnvelopeMachine::result)),
    (EnvelopeError::METHOD, |to, message| envelopes::notification(to, message, EnvelopeMachine::error)),
    (Pong::METHOD, envelopes::reply::<Pong>),
    (QueryResponse::METHOD, envelopes::reply::<QueryResponse>),
    (Ack::METHOD, envelopes::reply::<Ack>),
    (Capabilities::METHOD, envelopes::reply::<Capabilities>),
    (Ping::METHOD, envelopes::misplaced_request),
    (Discover::METHOD, envelopes::misplaced_request),
    (Query::METHOD, envelopes::misplaced_request),
    (Delegate::METHOD, envelopes::misplaced_request),
    (Cancel::METHOD, envelopes::misplaced_request),
];

fn find<H: Copy>(table: &[(&str, H)], method: &str) -> Option<H> {
    table.iter().find(|(name, _)| *name == method).map(|(_, handler)| *handler)
}

pub(crate) type SessionLookup = Box<dyn Fn(&SessionId) -> bool + Send + Sync>;

/// Routes incoming messages, for an SDK. It is tried before the user's extension handlers.
///
/// The connection's reader calls these methods, and they return at once.
#[doc(hidden)]
pub struct ExchangeService {
    pub(crate) peer: PeerAgent,
    pub(crate) knows: SessionLookup,
    #[cfg(feature = "work")]
    pub(crate) worker: Option<Arc<dyn worker::ErasedWorker>>,
    #[cfg(feature = "work")]
    pub(crate) orders: Arc<OrderCache>,
}

impl ExchangeService {
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
        match find(REQUESTS, request.method) {
            Some(handle) => handle(self, request, responder),
            None => Err(responder),
        }
    }

    /// Answers a request that nothing else has handled if it carries an envelope of an unknown
    /// kind.
    ///
    /// # Errors
    ///
    /// Returns the responder if the request carries no envelope.
    pub fn unknown_request(&self, request: Incoming<'_>, responder: Responder) -> Result<(), Responder> {
        envelopes::unknown_kind(&self.peer, request, responder)
    }

    /// Handles a notification; returns true if it belongs to one of the schemes.
    pub fn notification(&self, notification: Incoming<'_>) -> bool {
        find(NOTIFICATIONS, notification.method).is_some_and(|handle| handle(self, notification))
    }

    /// Reports a notification that nothing else has handled if it carries an envelope of an unknown
    /// kind.
    pub fn unknown_notification(&self, notification: Incoming<'_>) {
        envelopes::unknown_notification(&self.peer, notification);
    }

    /// Ends everything that waits for the connection.
    pub fn closed(&self, reason: &Closed) {
        envelopes::closed(&self.peer, reason);
        #[cfg(feature = "dialogue")]
        self.peer.link.dialogue_connection.closed(reason);
    }
}
