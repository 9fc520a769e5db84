//! The handle on the other agent.

use std::any::Any;
use std::sync::{Arc, OnceLock};

use duologue_rpc::Peer;
use duologue_schema::envelope::{AgentId, Envelope, EnvelopeId, EnvelopeKind, EnvelopeParams, Payload};
use duologue_schema::{DuologueCapabilities, Meta, SessionId};

use crate::dialogue::DialogueConnection;
use crate::envelope::discovery::DiscoveryCache;
use crate::envelope::handler::ErasedEnvelopeHandler;
use crate::envelope::state::EnvelopeState;
use crate::error::{Error, Result};
use crate::hops::Hops;
use crate::pending_session::PendingSessions;

/// The agent on the other side of a connection. Cheap to clone.
///
/// Taken from a session, it speaks in that session; taken from the connection it can only be asked what
/// needs no session: [`ping`](Self::ping) and [`discover`](Self::discover).
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
    /// What keeps the session known on our side.
    _session: Option<Arc<dyn Any + Send + Sync>>,
}

/// What all handles on one connection share.
pub(crate) struct Link {
    pub(crate) peer: Peer,
    /// Our id.
    pub(crate) own: AgentId,
    /// What the other side said in `initialize`.
    peer_capabilities: OnceLock<DuologueCapabilities>,
    /// Who answers envelopes; `None` if this side was not set up for them.
    pub(crate) envelope_handler: Option<Arc<dyn ErasedEnvelopeHandler>>,
    pub(crate) discovered: DiscoveryCache,
    pub(crate) unannounced: PendingSessions,
    /// What this connection has to do with dialogues.
    pub(crate) dialogue_connection: DialogueConnection,
    /// What this connection has to do with envelopes.
    pub(crate) envelopes: EnvelopeState,
    /// See [`Exchange::max_hops`](crate::Exchange::max_hops).
    pub(crate) max_hops: u32,
}

impl Link {
    pub(crate) fn new(
        peer: Peer,
        own: AgentId,
        envelope_handler: Option<Arc<dyn ErasedEnvelopeHandler>>,
        dialogue_connection: DialogueConnection,
        envelopes: EnvelopeState,
        max_hops: u32,
    ) -> Self {
        let (peer_capabilities, discovered, unannounced) = Default::default();
        Link {
            peer,
            own,
            peer_capabilities,
            envelope_handler,
            discovered,
            unannounced,
            dialogue_connection,
            envelopes,
            max_hops,
        }
    }
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
        PeerAgent { link, session: None, _session: None }
    }

    /// The same agent, spoken to in a session.
    #[must_use]
    pub fn in_session(&self, session: impl Into<SessionId>) -> Self {
        PeerAgent { link: self.link.clone(), session: Some(session.into()), _session: None }
    }

    /// The same agent, spoken to in a session that is known as long as `held` is, for an SDK: whoever has
    /// the agent hears it in that session.
    #[must_use]
    pub fn in_guarded_session(
        &self,
        session: impl Into<SessionId>,
        held: Arc<dyn Any + Send + Sync>,
    ) -> Self {
        PeerAgent { _session: Some(held), ..self.in_session(session) }
    }

    /// The same agent in the same session, which this does not keep known.
    pub(crate) fn released(&self) -> Self {
        PeerAgent { _session: None, ..self.clone() }
    }

    /// Its id in envelopes, if it told.
    #[must_use]
    pub fn id(&self) -> Option<&AgentId> {
        self.link.peer_capabilities.get()?.agent_id.as_ref()
    }

    /// Our own id, as the other agent sees it.
    #[must_use]
    pub fn own_id(&self) -> &AgentId {
        &self.link.own
    }

    /// What it can do beyond ACP, as it said in `initialize`.
    #[must_use]
    pub fn offers(&self) -> DuologueCapabilities {
        self.link.peer_capabilities.get().cloned().unwrap_or_default()
    }

    /// The session it is spoken to in.
    #[must_use]
    pub fn session(&self) -> Option<&SessionId> {
        self.session.as_ref()
    }

    /// The connection itself.
    #[must_use]
    pub fn rpc(&self) -> &Peer {
        &self.link.peer
    }

    /// Keeps what the other side said in `initialize`; the first word counts.
    pub(crate) fn set_peer_capabilities(&self, meta: Option<&Meta>) {
        let _ = self.link.peer_capabilities.set(DuologueCapabilities::of(meta));
    }

    /// Checks whether it said that it speaks envelopes, as is done before each is sent.
    ///
    /// # Errors
    ///
    /// [`Error::NotSupported`] if it did not, or does not speak ours.
    pub fn require_envelopes(&self) -> Result<()> {
        let peer_capabilities = self.link.peer_capabilities.get();
        if peer_capabilities.is_some_and(DuologueCapabilities::speaks_envelopes) {
            return Ok(());
        }
        let versions =
            peer_capabilities.map(|peer_capabilities| peer_capabilities.envelope.clone()).unwrap_or_default();
        Err(Error::NotSupported { scheme: DuologueCapabilities::ENVELOPE, versions })
    }

    pub(crate) fn require_session(&self, kind: EnvelopeKind) -> Result<()> {
        if kind.needs_session() && self.session.is_none() {
            return Err(Error::NoSession { kind });
        }
        Ok(())
    }

    /// A new envelope for it. One that has not told its id is addressed as whoever is at the other end: by
    /// an empty `to`.
    pub(crate) fn envelope<P: Payload>(&self, payload: P) -> Envelope<P> {
        let id = EnvelopeId::from(uuid::Uuid::new_v4().to_string());
        let to = self.id().cloned().unwrap_or_else(|| AgentId::from(""));
        Envelope::new(id, self.link.own.clone(), to, now_ms(), payload)
    }

    /// A new envelope as it is sent, with its hops: those of the call that is being handled here, or `made` if the call
    /// was made elsewhere with more.
    pub(crate) fn counted<P: Payload>(&self, envelope: Envelope<P>, made: Hops) -> Result<EnvelopeParams<P>> {
        let mut carried = self.carried(envelope);
        made.max(Hops::current()).write_to(&mut carried.meta, self.link.max_hops)?;
        Ok(carried)
    }

    pub(crate) fn carried<P: Payload>(&self, envelope: Envelope<P>) -> EnvelopeParams<P> {
        EnvelopeParams::new(self.session.clone(), envelope)
    }
}

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(u64::MAX))
}
