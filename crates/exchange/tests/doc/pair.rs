// Two ends of an exchange in memory, for the examples in the documentation, which include this file.

use duologue_exchange::envelope::{Correspondent, VERSION};
use duologue_exchange::{Exchange, ExchangeService, PeerAgent, Wiring};
use duologue_rpc::{Closed, Connection, Incoming, Responder, Service, Transport};
use duologue_schema::DuologueCapabilities;

/// What an SDK does for its users.
struct End(ExchangeService);

impl Service for End {
    fn request(&self, request: Incoming<'_>, responder: Responder) {
        if let Err(responder) = self.0.request(request, responder) {
            responder.method_not_found(request.method);
        }
    }

    fn notification(&self, notification: Incoming<'_>) {
        self.0.notification(notification);
    }

    fn closed(&self, reason: &Closed) {
        self.0.closed(reason);
    }
}

fn connect(transport: Transport, correspondent: impl Correspondent) -> PeerAgent {
    let mut capabilities = DuologueCapabilities::new();
    capabilities.envelope = vec![VERSION];
    let mut meta = None;
    capabilities.write_to(&mut meta);
    let mut agent = None;
    Connection::new(transport).start(|peer| {
        let service = Wiring::new(Some(Exchange::new().correspondent(correspondent))).start(peer, |_| true);
        service.introduced(meta.as_ref());
        agent = Some(service.peer_agent().in_session("s"));
        End(service)
    });
    agent.expect("the service is made before the connection starts")
}

/// The handle on an agent that answers like this.
fn agent_that_answers_with(correspondent: impl Correspondent) -> PeerAgent {
    let (ours, theirs) = Transport::memory();
    connect(theirs, correspondent);
    connect(ours, ())
}
