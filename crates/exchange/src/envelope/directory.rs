//! A set of agents: lookup by domain, and notifications to all of them.

use std::future::IntoFuture;

use duologue_schema::envelope::{EnvelopeId, EnvelopeKind, Importance};
use duologue_schema::{Attachment, Json, Meta, TraceContext};
use futures::future::BoxFuture;

use super::NotifyBuilder;
use super::domain::familiarity;
use super::request::SHORT;
use crate::error::{Error, Result};
use crate::peer_agent::PeerAgent;

/// A set of agents, each on its own connection.
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
    /// Creates an empty directory.
    #[must_use]
    pub fn new() -> Self {
        Directory::default()
    }

    /// Adds an agent. Messages to it are sent in the session of this handle.
    pub fn add(&mut self, agent: PeerAgent) -> &mut Self {
        self.agents.push(agent);
        self
    }

    /// Returns all agents in the order in which they were added. Agents whose connection has ended
    /// stay until [`retain_connected`](Self::retain_connected).
    #[must_use]
    pub fn agents(&self) -> &[PeerAgent] {
        &self.agents
    }

    /// Removes the agents whose connection has ended.
    pub fn retain_connected(&mut self) {
        self.agents.retain(|agent| !agent.rpc().is_closing());
    }

    /// Returns the agents that declare `domain`, best match first: an agent for `family.calendar`
    /// comes before one for `family`. An agent may also answer queries about domains that it does
    /// not declare.
    ///
    /// The declarations come from [`discover`](PeerAgent::discover), usually from its cache. Agents
    /// that do not answer and agents whose connection has ended are left out.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses only the responses that have not arrived.
    pub async fn who_handles(&self, domain: &str) -> Vec<PeerAgent> {
        let declared = futures::future::join_all(self.agents.iter().map(PeerAgent::discover)).await;
        let mut known: Vec<(usize, &PeerAgent)> = Vec::new();
        for (agent, capabilities) in self.agents.iter().zip(declared) {
            match capabilities {
                Ok(capabilities) => {
                    let best = capabilities.domains.iter().filter_map(|it| familiarity(it, domain)).max();
                    known.extend(best.map(|familiarity| (familiarity, agent)));
                }
                Err(error) => tracing::debug!(?agent, %error, "discover failed"),
            }
        }
        known.sort_by_key(|(familiarity, _)| std::cmp::Reverse(*familiarity));
        known.into_iter().map(|(_, agent)| agent.clone()).collect()
    }

    /// Creates a notification to all agents, which is sent when it is awaited. It resolves to one
    /// result for each agent, in the order of [`agents`](Self::agents). A failure does not affect
    /// the other agents.
    ///
    /// # Errors
    ///
    /// Each result has the errors of [`PeerAgent::notify`], and [`Error::Timeout`] if the agent
    /// does not read its input.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future sends nothing to agents whose output is full. The others have been
    /// notified.
    pub fn notify(&self, topic: impl Into<String>, data: impl Into<Json>) -> BroadcastBuilder {
        let (topic, data) = (topic.into(), data.into());
        BroadcastBuilder {
            each: self.agents.iter().map(|agent| agent.notify(&*topic, data.clone())).collect(),
        }
    }
}

/// A notification to several agents before it is sent; see [`Directory::notify`].
#[must_use = "the notification is sent when it is awaited"]
#[derive(Debug)]
pub struct BroadcastBuilder {
    each: Vec<NotifyBuilder>,
}

impl BroadcastBuilder {
    /// Sets the importance; medium by default.
    pub fn importance(self, importance: Importance) -> Self {
        self.map(|notification| notification.importance(importance.clone()))
    }
}

impl BroadcastBuilder {
    /// Sets the `_meta` beside each envelope.
    pub fn meta(self, meta: impl Into<Meta>) -> Self {
        let meta = meta.into();
        self.map(|notification| notification.meta(meta.clone()))
    }

    /// Adds a trace context to the `_meta`.
    pub fn trace_context(self, context: impl Into<Option<TraceContext>>) -> Self {
        let context = context.into();
        self.map(|notification| notification.trace_context(context.clone()))
    }

    /// Adds an image, a sound or another document.
    pub fn attachment(self, attachment: Attachment) -> Self {
        self.map(|notification| notification.attachment(attachment.clone()))
    }

    fn map(self, change: impl Fn(NotifyBuilder) -> NotifyBuilder) -> Self {
        BroadcastBuilder { each: self.each.into_iter().map(change).collect() }
    }
}

impl IntoFuture for BroadcastBuilder {
    type Output = Vec<Result<EnvelopeId>>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        let each = self.each.into_iter().map(|notification| async move {
            let sent = tokio::time::timeout(SHORT, notification.into_future()).await;
            sent.unwrap_or(Err(Error::Timeout { kind: EnvelopeKind::Notify, after: SHORT }))
        });
        Box::pin(futures::future::join_all(each))
    }
}
