//! The handle on the other agent.

use std::any::Any;
use std::sync::{Arc, OnceLock};

use duologue_rpc::Peer;
use duologue_schema::envelope::{AgentId, Envelope, EnvelopeId, EnvelopeKind, EnvelopeParams, Payload};
use duologue_schema::{DuologueCapabilities, Meta, SessionId, TraceContext};

#[cfg(feature = "dialogue")]
use crate::dialogue::DialogueConnection;
use crate::envelope::discovery::DiscoveryCache;
use crate::envelope::handler::ErasedEnvelopeHandler;
use crate::envelope::state::EnvelopeState;
use crate::error::{Error, Result};
use crate::hops::Hops;
use crate::pending_session::PendingSessions;

/// The agent on the other side of a connection. Cheap to clone.
///
/// A handle from a session sends in that session. A handle from the connection can only call
/// methods that need no session, which are [`ping`](Self::ping) and [`discover`](Self::discover).
///
/// ```no_run
/// # async fn run(peer: duologue_exchange::PeerAgent) -> duologue_exchange::Result<()> {
/// let answer = peer.query("Who is free on Friday?").domain("family.calendar").max_tokens(200).await?;
/// println!("{}", answer.summary);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct PeerAgent {
    pub(crate) link: Arc<Link>,
    session: Option<SessionId>,
    /// The hops that calls through this handle have at least: it came with a call.
    hops: Hops,
    /// Absent if the handle has neither a trace context nor an address.
    heading: Option<Arc<Heading>>,
    /// Keeps the session registered on our side.
    _session: Option<Arc<dyn Any + Send + Sync>>,
}

/// The members of the messages of a handle that most handles do not have.
#[derive(Clone, Default)]
struct Heading {
    /// The trace context of the message that the handle came with.
    trace: Option<TraceContext>,
    /// The agent behind the other side that messages are addressed to.
    to: Option<AgentId>,
}

/// The state that all handles on one connection share.
///
/// Envelopes have one lock for the connection. Each dialogue has its own, because its receipts are
/// sent under it, so that nothing overtakes them, and other dialogues must not wait for that. The
/// registry of dialogues and the replay cache have locks of their own: all connections of an agent
/// share them. A worker keeps the state of work orders for each connection.
pub(crate) struct Link {
    pub(crate) peer: Peer,
    /// Our agent id.
    pub(crate) own: AgentId,
    /// The capabilities that the other side advertised in `initialize`.
    pub(crate) peer_capabilities: OnceLock<DuologueCapabilities>,
    /// The handler for envelopes; `None` if this side was not configured for them.
    pub(crate) envelope_handler: Option<Arc<dyn ErasedEnvelopeHandler>>,
    pub(crate) discovered: DiscoveryCache,
    pub(crate) pending_sessions: PendingSessions,
    /// The state of this connection for dialogues.
    #[cfg(feature = "dialogue")]
    pub(crate) dialogue_connection: DialogueConnection,
    /// The state of this connection for envelopes.
    pub(crate) envelopes: EnvelopeState,
    /// See [`Exchange::max_hops`](crate::Exchange::max_hops).
    pub(crate) max_hops: u32,
    /// See [`Exchange::max_attachment_bytes`](crate::Exchange::max_attachment_bytes).
    pub(crate) max_attachment_bytes: usize,
    /// The data of the SDK that started the exchange.
    pub(crate) sdk: Box<dyn Any + Send + Sync>,
}

impl std::fmt::Debug for PeerAgent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PeerAgent")
            .field("id", &self.id())
            .field("session", &self.session)
            .finish_non_exhaustive()
    }
}

impl PeerAgent {
    pub(crate) fn new(link: Arc<Link>) -> Self {
        PeerAgent { link, session: None, hops: Hops::default(), heading: None, _session: None }
    }

    /// Returns a handle that sends in a session.
    #[must_use]
    pub fn in_session(&self, session: impl Into<SessionId>) -> Self {
        PeerAgent { session: Some(session.into()), _session: None, ..self.clone() }
    }

    /// Returns a handle that sends in a session and owns `guard`, for an SDK. The session stays
    /// registered as long as the handle exists, so its notifications are received.
    #[must_use]
    pub fn in_guarded_session(
        &self,
        session: impl Into<SessionId>,
        guard: Arc<dyn Any + Send + Sync>,
    ) -> Self {
        PeerAgent { _session: Some(guard), ..self.in_session(session) }
    }

    /// Returns a handle whose messages are addressed to an agent behind the other side. A hub passes them on to the agent
    /// with this address, such as `agent://planner`.
    ///
    /// ```no_run
    /// # async fn run(hub: duologue_exchange::PeerAgent) -> duologue_exchange::Result<()> {
    /// let planner = hub.addressed_to("agent://planner");
    /// let task = planner.delegate("Plan the trip to Rome").await?;
    /// println!("{}", task.result().await?.outcome);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn addressed_to(&self, agent: impl Into<AgentId>) -> Self {
        let heading = Heading { to: Some(agent.into()), ..self.heading() };
        PeerAgent { heading: Some(Arc::new(heading)), ..self.clone() }
    }

    /// Returns the agent behind the other side that messages are addressed to.
    pub(crate) fn address(&self) -> Option<&AgentId> {
        self.heading.as_ref()?.to.as_ref()
    }

    fn heading(&self) -> Heading {
        self.heading.as_deref().cloned().unwrap_or_default()
    }

    /// Returns the data that the SDK passed to [`ExchangeConnector::start`](crate::ExchangeConnector::start),
    /// for the SDK.
    #[doc(hidden)]
    #[must_use]
    pub fn sdk<T: Any>(&self) -> Option<&T> {
        self.link.sdk.downcast_ref()
    }

    /// Returns a handle in the same session that does not keep the session registered.
    #[cfg(feature = "dialogue")]
    pub(crate) fn released(&self) -> Self {
        PeerAgent { _session: None, ..self.clone() }
    }

    /// Returns the other agent's id in envelopes, if it has advertised one.
    #[must_use]
    pub fn id(&self) -> Option<&AgentId> {
        self.link.peer_capabilities.get()?.agent_id.as_ref()
    }

    /// Returns our own id in envelopes.
    #[must_use]
    pub fn own_id(&self) -> &AgentId {
        &self.link.own
    }

    /// Returns the schemes that the other side advertised in `initialize`.
    #[must_use]
    pub fn offers(&self) -> DuologueCapabilities {
        self.link.peer_capabilities.get().cloned().unwrap_or_default()
    }

    /// Returns the session of this handle.
    #[must_use]
    pub fn session(&self) -> Option<&SessionId> {
        self.session.as_ref()
    }

    /// Returns the connection.
    #[must_use]
    pub fn rpc(&self) -> &Peer {
        &self.link.peer
    }

    /// Records the capabilities from `initialize`. Only the first call has an effect.
    pub(crate) fn set_peer_capabilities(&self, meta: Option<&Meta>) {
        let _ = self.link.peer_capabilities.set(DuologueCapabilities::of(meta));
    }

    /// Checks that the other side supports envelopes. Every call that sends an envelope does this
    /// first.
    ///
    /// # Errors
    ///
    /// [`Error::NotSupported`] if it does not support our version of envelopes.
    pub fn require_envelopes(&self) -> Result<()> {
        match self.link.peer_capabilities.get() {
            Some(capabilities) if capabilities.speaks_envelopes() => Ok(()),
            _ => {
                let versions = self.offers().envelope;
                Err(Error::NotSupported { scheme: DuologueCapabilities::ENVELOPE, versions })
            }
        }
    }

    /// Checks that a message of this kind can be sent with this handle.
    pub(crate) fn require(&self, kind: EnvelopeKind) -> Result<()> {
        self.require_envelopes()?;
        if kind.needs_session() && self.session.is_none() {
            return Err(Error::NoSession { kind });
        }
        Ok(())
    }

    /// Creates an envelope for the other agent, or for the one of [`addressed_to`](Self::addressed_to). `to` is empty
    /// if the other side has not advertised an id; an empty `to` addresses any agent at the other end.
    pub(crate) fn envelope<P: Payload>(&self, payload: P) -> Envelope<P> {
        let id = EnvelopeId::from(uuid::Uuid::new_v4().to_string());
        let to = self.address().or(self.id()).cloned().unwrap_or_else(|| AgentId::from(""));
        Envelope::new(id, self.link.own.clone(), to, now_ms(), payload)
    }

    /// Returns a handle for the handler of a call with these hops.
    pub(crate) fn for_handler(self, hops: Hops) -> Self {
        PeerAgent { hops: hops.next(), ..self }
    }

    /// Returns a handle whose messages have this trace context.
    pub(crate) fn in_trace(self, trace: Option<TraceContext>) -> Self {
        if trace.is_none() && self.heading.is_none() {
            return self;
        }
        let heading = Heading { trace, ..self.heading() };
        PeerAgent { heading: Some(Arc::new(heading)), ..self }
    }

    /// Returns the trace context of the message that this handle came with.
    #[cfg(feature = "dialogue")]
    pub(crate) fn trace_context(&self) -> Option<TraceContext> {
        self.heading.as_ref()?.trace.clone()
    }

    /// Writes the trace context of the message that this handle came with, unless `meta` has one.
    pub(crate) fn write_trace(&self, meta: &mut Option<Meta>) {
        let Some(trace) = self.heading.as_ref().and_then(|heading| heading.trace.as_ref()) else { return };
        let has_one =
            meta.as_ref().is_some_and(|meta| meta.keys().any(|key| key == TraceContext::TRACEPARENT));
        if !has_one {
            *meta = Some(meta.take().unwrap_or_default().with_trace_context(trace));
        }
    }

    /// Writes the hops of a call: `made`, those of the call that is being handled here, or those of
    /// the call that this handle came with, whichever are the most.
    pub(crate) fn write_hops(&self, made: Hops, meta: &mut Option<Meta>) -> Result<()> {
        made.max(Hops::current()).max(self.hops).write_to(meta, self.link.max_hops)
    }

    pub(crate) fn carried<P: Payload>(&self, envelope: Envelope<P>) -> EnvelopeParams<P> {
        EnvelopeParams::new(self.session.clone(), envelope)
    }
}

/// Returns the milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(u64::MAX))
}
