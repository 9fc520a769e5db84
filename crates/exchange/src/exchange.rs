//! The configuration of one side of an exchange.

use std::any::Any;
use std::sync::{Arc, OnceLock};

use duologue_rpc::Peer;
use duologue_schema::envelope::{self, AgentId};
use duologue_schema::{DuologueCapabilities, Meta, SessionId};
use tokio::time::Instant;

#[cfg(feature = "dialogue")]
use crate::dialogue::{DialogueConnection, Dialogues};
use crate::envelope::discovery::DiscoveryCache;
use crate::envelope::handler::{EnvelopeHandler, ErasedEnvelopeHandler};
use crate::envelope::state::EnvelopeState;
use crate::envelope::{inbox, task_runner};
use crate::limits::{ATTACHMENT_BYTES, HOPS};
use crate::peer_agent::{Link, PeerAgent};
use crate::pending_session::PendingSessions;
use crate::service::ExchangeService;
#[cfg(feature = "work")]
use crate::work::worker::{self, Worker};

/// The configuration of one side of an exchange between agents: its id and its handlers.
///
/// Both SDKs take one and advertise its schemes in `initialize`. Envelopes are always advertised: a
/// `ping` is answered even without an [`EnvelopeHandler`].
///
/// ```
/// use duologue_exchange::Exchange;
/// use duologue_exchange::envelope::{EnvelopeHandler, Received};
/// use duologue_schema::envelope::{Capabilities, EnvelopeError, Query, QueryResponse};
///
/// struct Calendar;
///
/// impl EnvelopeHandler for Calendar {
///     fn capabilities(&self) -> Capabilities {
///         Capabilities::new("calendar").domains(vec!["family.calendar".to_owned()])
///     }
///
///     async fn query(&self, query: Received<Query>) -> Result<QueryResponse, EnvelopeError> {
///         Ok(QueryResponse::new(format!("nobody knows {}", query.question)))
///     }
/// }
///
/// let exchange = Exchange::new().agent_id("c0ffee").envelope_handler(Calendar);
/// # let _ = exchange;
/// ```
#[must_use = "pass it to a server or a client"]
pub struct Exchange {
    started: Instant,
    agent_id: Option<AgentId>,
    envelope_handler: Arc<dyn ErasedEnvelopeHandler>,
    #[cfg(feature = "work")]
    worker: Option<Arc<dyn worker::ErasedWorker>>,
    #[cfg(feature = "dialogue")]
    dialogues: Option<Arc<Dialogues>>,
    max_hops: u32,
    max_attachment_bytes: usize,
    offers_work: bool,
    offers_dialogue: bool,
}

impl Default for Exchange {
    fn default() -> Self {
        Exchange {
            started: Instant::now(),
            agent_id: None,
            envelope_handler: Arc::new(()),
            #[cfg(feature = "work")]
            worker: None,
            #[cfg(feature = "dialogue")]
            dialogues: None,
            max_hops: HOPS,
            max_attachment_bytes: ATTACHMENT_BYTES,
            offers_work: false,
            offers_dialogue: false,
        }
    }
}

impl std::fmt::Debug for Exchange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Exchange").field("agent_id", &self.agent_id).finish_non_exhaustive()
    }
}

impl Exchange {
    /// Creates a side with a random id that answers `ping` and `discover` and rejects everything
    /// else. Its uptime begins here.
    pub fn new() -> Self {
        Exchange::default()
    }

    /// Sets our id in envelopes, by convention hexadecimal digits. By default each connection gets
    /// a random one.
    pub fn agent_id(mut self, id: impl Into<AgentId>) -> Self {
        self.agent_id = Some(id.into());
        self
    }

    /// Sets the handler for envelopes.
    pub fn envelope_handler(mut self, envelope_handler: impl EnvelopeHandler) -> Self {
        self.envelope_handler = Arc::new(envelope_handler);
        self
    }

    /// Sets the handler for work orders. Without one, work orders are rejected.
    #[cfg(feature = "work")]
    pub fn work(mut self, worker: impl Worker) -> Self {
        self.offers_work = true;
        self.worker = Some(Arc::new(worker));
        self
    }

    /// Sets the maximum number of hops of a query, a delegation or a work order; [`HOPS`] by
    /// default. A call with more is rejected when it arrives, and is not sent when one of our
    /// handlers makes it. With 0, no handler can make such a call.
    pub fn max_hops(mut self, max_hops: u32) -> Self {
        self.max_hops = max_hops;
        self
    }

    /// Sets the maximum size of the attachments of an envelope together, in bytes of the message;
    /// [`ATTACHMENT_BYTES`] by default. A message with more is rejected when it arrives, and is not
    /// sent. A line has a limit too: [`Limits::frame_bytes`](duologue_rpc::Limits::frame_bytes).
    pub fn max_attachment_bytes(mut self, max_attachment_bytes: usize) -> Self {
        self.max_attachment_bytes = max_attachment_bytes;
        self
    }

    /// Sets our side of dialogues. Several connections can share one in an [`Arc`]. Without it
    /// neither side can open a dialogue.
    #[cfg(feature = "dialogue")]
    pub fn dialogue(mut self, dialogues: impl Into<Arc<Dialogues>>) -> Self {
        self.offers_dialogue = true;
        self.dialogues = Some(dialogues.into());
        self
    }
}

/// Starts an exchange on a connection, for an SDK: advertises our capabilities, records those of
/// the other side, and routes incoming messages.
#[doc(hidden)]
pub struct ExchangeConnector {
    settings: Option<Exchange>,
    own: AgentId,
}

impl ExchangeConnector {
    /// Creates a connector. Without a configuration nothing is advertised and nothing is handled,
    /// but the schemes of the other side can be used.
    #[must_use]
    pub fn new(settings: Option<Exchange>) -> Self {
        let id = settings.as_ref().and_then(|settings| settings.agent_id.clone());
        ExchangeConnector { settings, own: id.unwrap_or_else(crate::error::random_agent_id) }
    }

    /// Adds our schemes to our capabilities.
    pub fn advertise(&self, meta: &mut Option<Meta>) {
        let Some(settings) = &self.settings else { return };
        let mut capabilities = DuologueCapabilities::of(meta.as_ref());
        capabilities.agent_id = Some(self.own.clone());
        capabilities.envelope = vec![envelope::VERSION];
        (capabilities.work, capabilities.dialogue) = (settings.offers_work, settings.offers_dialogue);
        capabilities.write_to(meta);
    }

    /// Starts the exchange on a connection. `knows` returns true if a session with that id exists. `sdk` is
    /// returned by [`PeerAgent::sdk`]; it must not own a handle on the connection.
    #[must_use]
    pub fn start(
        self,
        peer: &Peer,
        knows: impl Fn(&SessionId) -> bool + Send + Sync + 'static,
        sdk: impl Any + Send + Sync,
    ) -> ExchangeService {
        let is_configured = self.settings.is_some();
        let settings = self.settings.unwrap_or_default();
        let link = Link {
            peer: peer.clone(),
            own: self.own,
            peer_capabilities: OnceLock::new(),
            envelope_handler: is_configured.then_some(settings.envelope_handler),
            discovered: DiscoveryCache::default(),
            pending_sessions: PendingSessions::default(),
            #[cfg(feature = "dialogue")]
            dialogue_connection: DialogueConnection::new(settings.dialogues),
            envelopes: EnvelopeState::new(settings.started),
            max_hops: settings.max_hops,
            max_attachment_bytes: settings.max_attachment_bytes,
            sdk: Box::new(sdk),
        };
        let peer = PeerAgent::new(Arc::new(link));
        if let Some(envelope_handler) = &peer.link.envelope_handler {
            // A panic is reported to the agent that sends `discover`.
            let _ = task_runner::capabilities(&peer, &**envelope_handler);
        }
        inbox::start(&peer);
        ExchangeService {
            peer,
            knows: Box::new(knows),
            #[cfg(feature = "work")]
            worker: settings.worker,
            #[cfg(feature = "work")]
            orders: Arc::default(),
        }
    }
}
