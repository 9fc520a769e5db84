//! Several agents at once: who knows about what, and news for all of them.

use std::future::{Future, IntoFuture};
use std::pin::Pin;

use duologue_schema::Json;
use duologue_schema::envelope::{EnvelopeId, EnvelopeKind, Importance};

use super::NotifyBuilder;
use super::domain::familiarity;
use super::request::SHORT;
use crate::error::{Error, Result};
use crate::peer_agent::PeerAgent;

/// The agents one can turn to, each on a connection of its own.
///
/// ```no_run
/// # async fn run(calendar: duologue_exchange::PeerAgent, kitchen: duologue_exchange::PeerAgent)
/// # -> duologue_exchange::Result<()> {
/// use duologue_exchange::envelope::Directory;
///
/// let mut agents = Directory::new();
/// agents.add(calendar);
/// agents.add(kitchen);
/// if let Some(agent) = agents.who_handles("family.dinner").await.first() {
///     println!("{}", agent.query("What is for dinner?").domain("family.dinner").await?.summary);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Directory {
    agents: Vec<PeerAgent>,
}

impl Directory {
    /// Nobody.
    #[must_use]
    pub fn new() -> Self {
        Directory::default()
    }

    /// Adds an agent. What is asked of it is asked in the session it comes with.
    pub fn add(&mut self, agent: PeerAgent) -> &mut Self {
        self.agents.push(agent);
        self
    }

    /// All of them, in the order they were added. Those whose connection has ended stay until
    /// [`retain_connected`](Self::retain_connected).
    #[must_use]
    pub fn agents(&self) -> &[PeerAgent] {
        &self.agents
    }

    /// Removes those whose connection has ended.
    pub fn retain_connected(&mut self) {
        self.agents.retain(|agent| !agent.rpc().is_closed());
    }

    /// Who says that it knows about `domain`, the one that says so most closely first: an agent for
    /// `family.calendar` comes before one for `family`. An agent may well answer beyond what it declares.
    ///
    /// What the agents declare comes from [`discover`](PeerAgent::discover), so mostly from its cache. One
    /// that does not answer is left out, as is one whose connection has ended.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing but the answers that have not come.
    pub async fn who_handles(&self, domain: &str) -> Vec<PeerAgent> {
        let declared = futures::future::join_all(self.agents.iter().map(PeerAgent::discover)).await;
        let mut known: Vec<(usize, &PeerAgent)> = Vec::new();
        for (agent, capabilities) in self.agents.iter().zip(declared) {
            match capabilities {
                Ok(capabilities) => {
                    let best = capabilities.domains.iter().filter_map(|it| familiarity(it, domain)).max();
                    known.extend(best.map(|familiarity| (familiarity, agent)));
                }
                Err(error) => tracing::debug!(?agent, %error, "an agent does not say what it knows about"),
            }
        }
        known.sort_by_key(|(familiarity, _)| std::cmp::Reverse(*familiarity));
        known.into_iter().map(|(_, agent)| agent.clone()).collect()
    }

    /// News for all of them, sent when it is awaited. What became of each comes back in the order of
    /// [`agents`](Self::agents): one that is gone does not keep the news from the others.
    ///
    /// # Errors
    ///
    /// Of each, as [`PeerAgent::notify`], and [`Error::Timeout`] of one that does not read what it is sent.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future while some have no room sends them nothing; the others have the news.
    pub fn notify(&self, topic: impl Into<String>, data: impl Into<Json>) -> BroadcastBuilder {
        let (topic, data) = (topic.into(), data.into());
        BroadcastBuilder {
            each: self.agents.iter().map(|agent| agent.notify(&*topic, data.clone())).collect(),
        }
    }
}

/// News for several agents before they are sent, see [`Directory::notify`].
#[must_use = "news are sent when they are awaited"]
#[derive(Debug)]
pub struct BroadcastBuilder {
    each: Vec<NotifyBuilder>,
}

impl BroadcastBuilder {
    /// How much they matter; medium by default.
    pub fn importance(mut self, importance: Importance) -> Self {
        self.each = self.each.into_iter().map(|news| news.importance(importance.clone())).collect();
        self
    }
}

impl IntoFuture for BroadcastBuilder {
    type Output = Vec<Result<EnvelopeId>>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        let each = self.each.into_iter().map(|news| async move {
            let told = tokio::time::timeout(SHORT, news.into_future()).await;
            told.unwrap_or(Err(Error::Timeout { kind: EnvelopeKind::Notify, after: SHORT }))
        });
        Box::pin(futures::future::join_all(each))
    }
}
