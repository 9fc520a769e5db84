//! Two connected sides in memory, for tests of handlers.

use duologue_rpc::{Closed, Incoming, PeerBuilder, Responder, Service, Transport};

use crate::{Exchange, ExchangeConnector, ExchangeService, PeerAgent};

/// Routes messages as an SDK does.
pub(crate) struct InMemoryService(pub(crate) ExchangeService);

impl Service for InMemoryService {
    fn request(&self, request: Incoming<'_>, responder: Responder) {
        let nobody = self.0.request(request, responder).err();
        if let Some(responder) = nobody.and_then(|responder| self.0.unknown_request(request, responder).err())
        {
            responder.method_not_found(request.method);
        }
    }

    fn notification(&self, notification: Incoming<'_>) {
        if !self.0.notification(notification) {
            self.0.unknown_notification(notification);
        }
    }

    fn closed(&self, reason: &Closed) {
        self.0.closed(reason);
    }
}

impl Exchange {
    /// Connects two sides in memory, in one session, to test an [`EnvelopeHandler`] and other
    /// handlers. Returns the handle with which this side calls the other, then the handle with
    /// which the other side calls this one.
    ///
    /// ```
    /// use duologue_exchange::Exchange;
    /// use duologue_exchange::envelope::{EnvelopeHandler, EnvelopeError, Query, Received, QueryResponse};
    ///
    /// struct Calendar;
    ///
    /// impl EnvelopeHandler for Calendar {
    ///     async fn query(&self, query: Received<Query>) -> Result<QueryResponse, EnvelopeError> {
    ///         Ok(QueryResponse::new(format!("nobody knows {}", query.question)))
    ///     }
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> duologue_exchange::Result<()> {
    /// let (calendar, _) = Exchange::new().in_memory(Exchange::new().envelope_handler(Calendar));
    /// assert_eq!(calendar.query("the day").await?.summary, "nobody knows the day");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime with time enabled.
    ///
    /// [`EnvelopeHandler`]: crate::envelope::EnvelopeHandler
    #[must_use]
    pub fn in_memory(self, other: Exchange) -> (PeerAgent, PeerAgent) {
        let (ours, peer_capabilities) = Transport::memory();
        let (here, there) = (ExchangeConnector::new(Some(self)), ExchangeConnector::new(Some(other)));
        let (mut of_here, mut of_there) = (None, None);
        here.advertise(&mut of_here);
        there.advertise(&mut of_there);
        let start = |transport, wiring: ExchangeConnector, meta: Option<_>| {
            let mut agent = None;
            PeerBuilder::new(transport).start(|peer| {
                let service = wiring.start(peer, |_| true, ());
                service.set_peer_capabilities(meta.as_ref());
                agent = Some(service.peer_agent().in_session("memory"));
                InMemoryService(service)
            });
            agent.expect("the service is made before the connection starts")
        };
        (start(ours, here, of_there), start(peer_capabilities, there, of_here))
    }
}
