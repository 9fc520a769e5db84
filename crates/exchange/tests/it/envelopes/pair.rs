//! Two ends of an exchange without anything else: what is the same in both directions is tested here.

use std::sync::{Arc, Mutex};

use duologue_agent::{Agent, Prompt, Server, StopReason, Turn};
use duologue_client::exchange::envelope::*;
use duologue_client::exchange::{Exchange, PeerAgent};
use duologue_client::{Client, Session, Transport};

/// An agent that only has sessions.
pub(crate) struct Quiet;

impl Agent for Quiet {
    async fn prompt(&self, _: &Turn, _: Prompt) -> duologue_agent::Result<StopReason> {
        Ok(StopReason::EndTurn)
    }
}

/// A session whose agent answers envelopes with `there`, and whose client answers them with `here`.
pub(crate) async fn pair(here: impl EnvelopeHandler, there: impl EnvelopeHandler) -> (Session, PeerAgent) {
    let (ours, theirs) = Transport::memory();
    let exchange = Exchange::new().agent_id("a1").envelope_handler(there);
    tokio::spawn(Server::new(Quiet).exchange(exchange).serve(theirs));
    let exchange = Exchange::new().agent_id("c1").envelope_handler(here);
    let agent = Client::new(()).exchange(exchange).connect(ours).await.unwrap();
    let session = agent.new_session("/tmp").await.unwrap();
    let peer = session.peer_agent().clone();
    (session, peer)
}

/// The messages that a handler received, in order.
#[derive(Clone, Default)]
pub(crate) struct Heard(Arc<Mutex<Vec<String>>>);

impl Heard {
    pub(crate) fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    pub(crate) fn add(&self, what: impl Into<String>) {
        self.0.lock().unwrap().push(what.into());
    }

    /// Waits until it has received so many messages.
    pub(crate) async fn wait(&self, many: usize) -> Vec<String> {
        loop {
            let all = self.all();
            if all.len() >= many {
                return all;
            }
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
    }
}
