//! Messages between agents: the client that a message of the agent goes to, and delegations whose agent has ended.

use duologue_transcript::Side;

use super::{SessionOwner, raw_line};
use crate::exchange_state::{ExchangeScheme, is_broadcast};
use crate::record::{ClientKey, HubEvent};

impl SessionOwner {
    /// Returns the event of a message between agents that one client receives.
    pub(super) fn notification_event(&self, method: &str, params: &str) -> Option<HubEvent> {
        ExchangeScheme::of(method)?;
        let holder = self.state.exchange.client_of_reference(method, params.as_bytes());
        let client = holder.or(self.host(method).filter(|_| !is_broadcast(method)));
        client.map(|client| HubEvent::Addressed { client: client.clone() })
    }

    /// Returns the client that receives a request of the agent which is not a question to the user: for a message to
    /// another agent the one that holds the message or delegation it belongs to, otherwise the host.
    pub(super) fn recipient(&self, method: &str, params: &str) -> Option<ClientKey> {
        if let Some(scheme) = ExchangeScheme::of(method) {
            let holder = self.state.exchange.client_of_reference(method, params.as_bytes());
            // A dialogue outlives the connection of its client: a hub that was started again has another one.
            let has_left = |client: &ClientKey| {
                scheme == ExchangeScheme::Dialogues && !self.clients.contains_key(client)
            };
            if let Some(client) = holder.filter(|client| !has_left(client)) {
                return Some(client.clone());
            }
            let calls = self.state.calls.iter().filter(|(_, open)| open.is_peers);
            let calls = calls.filter_map(|(call, open)| Some((*call, &open.askers.first()?.client)));
            let running = calls.chain(self.state.exchange.newest());
            let running = running.filter(|(_, client)| self.clients.contains_key(client));
            if let Some((_, client)) = running.max_by_key(|(call, _)| *call) {
                return Some(client.clone());
            }
        }
        self.host_of(method, params)
    }

    /// Ends the delegations of clients whose agent has ended.
    pub(super) fn fail_delegations(&mut self, reason: &str) {
        let open: Vec<_> = self.state.exchange.delegations().cloned().collect();
        for delegation in open {
            let failure = delegation.failure(&self.session, self.state.end + 1, reason);
            let Some(frame) = raw_line(failure) else { continue };
            let event = HubEvent::Addressed { client: delegation.client };
            self.record(Some((Side::Agent, &frame)), Some(event));
        }
    }
}
