//! Asking: `ping` and `query`.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::time::Duration;

use duologue_schema::envelope::{Ask, Envelope, Ping, Pong, Query, Response};

use crate::error::{Error, Result};
use crate::peer_agent::PeerAgent;

/// How long `ping` and `discover` may take.
pub(super) const SHORT: Duration = Duration::from_secs(10);

impl PeerAgent {
    /// Asks whether the other agent is there, and how busy it is.
    ///
    /// # Errors
    ///
    /// [`Error::NotSupported`], [`Error::Timeout`] after 10 seconds, and what the other agent answers.
    pub async fn ping(&self) -> Result<Pong> {
        self.ask(self.envelope(Ping::new()), SHORT).await.map(|reply| reply.payload)
    }

    /// A question, sent when it is awaited.
    pub fn query(&self, question: impl Into<String>) -> AskQuery {
        AskQuery { peer: self.clone(), query: Query::new(question) }
    }

    pub(crate) async fn ask<P: Ask>(
        &self,
        envelope: Envelope<P>,
        within: Duration,
    ) -> Result<Envelope<P::Reply>> {
        self.require_envelopes()?;
        self.require_session(P::KIND)?;
        let reply = self.rpc().request(&self.carried(envelope)).timeout(within).await;
        reply.map(|reply| reply.envelope).map_err(Error::of_call::<P>)
    }
}

/// A question before it is asked, see [`PeerAgent::query`].
#[must_use = "a question is asked when it is awaited"]
#[derive(Debug)]
pub struct AskQuery {
    peer: PeerAgent,
    query: Query,
}

impl AskQuery {
    /// What it is about, such as `family.calendar`.
    pub fn domain(mut self, domain: impl Into<String>) -> Self {
        self.query = self.query.domain(domain);
        self
    }

    /// How long the answer should be at most, in tokens.
    pub fn max_tokens(mut self, max_tokens: u64) -> Self {
        self.query = self.query.max_tokens(max_tokens);
        self
    }

    /// How long to wait for the answer; 30 seconds by default.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.query = self.query.deadline_ms(u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX));
        self
    }
}

impl IntoFuture for AskQuery {
    type Output = Result<Response>;
    type IntoFuture = Pin<Box<dyn Future<Output = Result<Response>> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        let AskQuery { peer, query } = self;
        Box::pin(async move {
            let deadline = Duration::from_millis(query.deadline_ms.unwrap_or(Query::DEADLINE_MS));
            peer.ask(peer.envelope(query), deadline).await.map(|reply| reply.payload)
        })
    }
}
