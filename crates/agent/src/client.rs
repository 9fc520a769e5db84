//! The client as the agent sees it: what it can do, and calls to it.

use std::sync::{Arc, OnceLock};

use duologue_exchange::PeerAgent;
use duologue_rpc::Peer;
use duologue_schema::{
    ClientCapabilities, Implementation, InitializeRequest, SessionConfigKind, SessionConfigOption,
    SessionUpdate,
};

use crate::error::{Error, Result};
use crate::message::ClearPolicy;

/// The client on the other side.
#[derive(Clone)]
pub struct ClientHandle {
    peer: Peer,
    agent: PeerAgent,
    facts: Arc<Facts>,
}

struct Facts {
    hello: OnceLock<InitializeRequest>,
    none: ClientCapabilities,
    clears: OnceLock<bool>,
    clear_policy: ClearPolicy,
}

impl std::fmt::Debug for ClientHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientHandle").field("info", &self.info()).finish_non_exhaustive()
    }
}

impl ClientHandle {
    pub(crate) fn new(peer: Peer, agent: PeerAgent, clear_policy: ClearPolicy) -> Self {
        let facts = Facts {
            hello: OnceLock::new(),
            none: ClientCapabilities::default(),
            clears: OnceLock::new(),
            clear_policy,
        };
        ClientHandle { peer, agent, facts: Arc::new(facts) }
    }

    /// Keeps what the client said in `initialize`; `false` if it had said it before.
    pub(crate) fn said(&self, hello: InitializeRequest) -> bool {
        let clears = hello.client_capabilities.has_message_clear();
        let first = self.facts.hello.set(hello).is_ok();
        if first {
            let _ = self.facts.clears.set(clears);
        }
        first
    }

    pub(crate) fn initialized(&self) -> bool {
        self.facts.hello.get().is_some()
    }

    /// What the client can do.
    #[must_use]
    pub fn capabilities(&self) -> &ClientCapabilities {
        self.facts.hello.get().map_or(&self.facts.none, |hello| &hello.client_capabilities)
    }

    /// Its name and version, if it told.
    #[must_use]
    pub fn info(&self) -> Option<&Implementation> {
        self.facts.hello.get()?.client_info.as_ref()
    }

    /// The connection itself, for extension methods and [`flush`](Peer::flush).
    #[must_use]
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// The client as an agent like us, in no session: for `ping` and `discover`. A
    /// [`Session`](crate::Session) has the one to talk to.
    #[must_use]
    pub fn peer_agent(&self) -> &PeerAgent {
        &self.agent
    }

    /// How a message is cleared for this client.
    pub(crate) fn clearing(&self) -> Clearing {
        match self.facts.clear_policy {
            ClearPolicy::Always => Clearing::Send,
            _ if self.facts.clears.get() == Some(&true) => Clearing::Send,
            ClearPolicy::Separator => Clearing::Separate,
            ClearPolicy::Hold => Clearing::Hold,
        }
    }

    /// Updates that only some clients may be sent.
    pub(crate) fn takes(&self, update: &SessionUpdate) -> bool {
        match update {
            SessionUpdate::Notice(_) => self.capabilities().has_notices(),
            SessionUpdate::CompactionUpdate(_) | SessionUpdate::CompactionSummaryChunk(_) => {
                self.capabilities().has_compaction()
            }
            _ => true,
        }
    }

    /// The options this client can show: boolean ones only if it said so.
    pub(crate) fn shown_options(&self, mut options: Vec<SessionConfigOption>) -> Vec<SessionConfigOption> {
        if !self.capabilities().has_boolean_options() {
            options.retain(|option| !matches!(option.kind, SessionConfigKind::Boolean(_)));
        }
        options
    }

    pub(crate) fn require(
        &self,
        has: impl Fn(&ClientCapabilities) -> bool,
        capability: &'static str,
    ) -> Result<()> {
        if has(self.capabilities()) { Ok(()) } else { Err(Error::NotSupported { capability }) }
    }
}

/// What `clear` does, decided per client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clearing {
    Send,
    Separate,
    Hold,
}
