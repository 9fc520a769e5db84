//! Stand-ins for the exchange without the feature `envelope`: they offer nothing and handle nothing, so that
//! the SDKs need no code of their own for that case.

use std::any::Any;
use std::sync::Arc;

use duologue_rpc::{Closed, Incoming, NotificationBuffer, Peer, Responder};
use duologue_schema::{Meta, SessionId};

/// The settings of an exchange. Without the feature `envelope` there are none.
#[derive(Debug)]
pub enum Exchange {}

/// The exchange of a connection that offers nothing.
#[doc(hidden)]
pub struct ExchangeConnector;

impl ExchangeConnector {
    /// Creates a connector.
    #[must_use]
    pub fn new(_: Option<Exchange>) -> Self {
        ExchangeConnector
    }

    /// Adds nothing to the capabilities.
    pub fn advertise(&self, _: &mut Option<Meta>) {}

    /// Starts a service that handles nothing.
    #[must_use]
    pub fn start(
        self,
        _: &Peer,
        _: impl Fn(&SessionId) -> bool + Send + Sync + 'static,
        _: impl Any + Send + Sync,
    ) -> ExchangeService {
        ExchangeService(PeerAgent)
    }
}

/// A service that handles nothing.
#[doc(hidden)]
pub struct ExchangeService(PeerAgent);

impl ExchangeService {
    /// Returns the handle on the other agent.
    #[must_use]
    pub fn peer_agent(&self) -> &PeerAgent {
        &self.0
    }

    /// Ignores the capabilities of the other side.
    pub fn set_peer_capabilities(&self, _: Option<&Meta>) {}

    /// Returns the responder.
    ///
    /// # Errors
    ///
    /// Always.
    pub fn request(&self, _: Incoming<'_>, responder: Responder) -> Result<(), Responder> {
        Err(responder)
    }

    /// Returns the responder.
    ///
    /// # Errors
    ///
    /// Always.
    pub fn unknown_request(&self, _: Incoming<'_>, responder: Responder) -> Result<(), Responder> {
        Err(responder)
    }

    /// Returns false.
    pub fn notification(&self, _: Incoming<'_>) -> bool {
        false
    }

    /// Ignores a notification.
    pub fn unknown_notification(&self, _: Incoming<'_>) {}

    /// Ignores the end of the connection.
    pub fn closed(&self, _: &Closed) {}
}

/// A handle without methods for its user.
#[doc(hidden)]
#[derive(Clone, Debug)]
pub struct PeerAgent;

impl PeerAgent {
    /// Returns the same handle.
    #[must_use]
    pub fn in_session(&self, _: impl Into<SessionId>) -> Self {
        PeerAgent
    }

    /// Returns the same handle.
    #[must_use]
    pub fn in_guarded_session(&self, _: impl Into<SessionId>, _: Arc<dyn Any + Send + Sync>) -> Self {
        PeerAgent
    }

    /// Returns a session in which nothing waits.
    pub fn pending_session(&self, _: impl Into<SessionId>) -> PendingSession {
        PendingSession
    }
}

/// A session in which nothing waits.
#[doc(hidden)]
#[must_use = "call `done` to answer"]
pub struct PendingSession;

impl PendingSession {
    /// Sends the answer.
    pub fn done(self, notifications: NotificationBuffer, answer: impl FnOnce(NotificationBuffer)) {
        answer(notifications);
    }
}
