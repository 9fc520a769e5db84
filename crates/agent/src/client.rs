//! The handle of the client.

use std::sync::{Arc, OnceLock};

use duologue_exchange::PeerAgent;
use duologue_rpc::Peer;
use duologue_schema::{
    ClientCapabilities, Implementation, InVersion, InitializeRequest, ProtocolVersion, SessionConfigKind,
    SessionConfigOption, SessionUpdate,
};

use crate::error::{Error, Result};
use crate::message::ClearPolicy;
use crate::subagents::RunningChildren;

/// The client on the other side.
#[derive(Clone)]
pub struct ClientHandle {
    peer: Peer,
    agent: PeerAgent,
    state: Arc<ClientState>,
}

struct ClientState {
    initialize: OnceLock<Introduction>,
    none: ClientCapabilities,
    clear_policy: ClearPolicy,
    children: RunningChildren,
    #[cfg(feature = "unstable")]
    unstable: crate::unstable::UnstableState,
}

/// The `initialize` request of the client.
struct Introduction {
    request: InitializeRequest,
    version: ProtocolVersion,
    supports_clear: bool,
}

impl std::fmt::Debug for ClientHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientHandle").field("info", &self.info()).finish_non_exhaustive()
    }
}

impl ClientHandle {
    pub(crate) fn new(peer: Peer, agent: PeerAgent, clear_policy: ClearPolicy) -> Self {
        let state = ClientState {
            initialize: OnceLock::new(),
            none: ClientCapabilities::default(),
            clear_policy,
            children: RunningChildren::default(),
            #[cfg(feature = "unstable")]
            unstable: Default::default(),
        };
        ClientHandle { peer, agent, state: Arc::new(state) }
    }

    /// Stores the client's `initialize` request and the version of the response. Returns false if there was a request
    /// before.
    pub(crate) fn set_initialize_request(
        &self,
        request: InitializeRequest,
        version: ProtocolVersion,
    ) -> bool {
        // In version 2 every client can clear.
        let supports_clear = version > ProtocolVersion::V1 || request.client_capabilities.has_message_clear();
        self.state.initialize.set(Introduction { request, version, supports_clear }).is_ok()
    }

    /// Returns the protocol version of the connection, which is [`ProtocolVersion::V1`] until `initialize`.
    #[must_use]
    pub fn protocol_version(&self) -> ProtocolVersion {
        self.state.initialize.get().map_or(ProtocolVersion::V1, |introduction| introduction.version)
    }

    /// Returns true if the connection speaks version 2.
    pub(crate) fn is_v2(&self) -> bool {
        cfg!(feature = "protocol-v2") && self.protocol_version() > ProtocolVersion::V1
    }

    /// Returns a message that is written in the version of the connection.
    pub(crate) fn in_version<T>(&self, message: T) -> InVersion<T> {
        InVersion { version: self.protocol_version(), message }
    }

    fn initialize_request(&self) -> Option<&InitializeRequest> {
        self.state.initialize.get().map(|introduction| &introduction.request)
    }

    pub(crate) fn is_initialized(&self) -> bool {
        self.state.initialize.get().is_some()
    }

    /// Returns the capabilities of the client.
    #[must_use]
    pub fn capabilities(&self) -> &ClientCapabilities {
        self.initialize_request().map_or(&self.state.none, |request| &request.client_capabilities)
    }

    /// Returns the name and version of the client, if it sent them.
    #[must_use]
    pub fn info(&self) -> Option<&Implementation> {
        self.initialize_request()?.client_info.as_ref()
    }

    /// Returns the connection, for extension methods and [`flush`](Peer::flush).
    ///
    /// Many clients never respond to a request that they do not know. Give such a request a
    /// [`timeout`](duologue_rpc::ResponseFuture::timeout), or check a capability in the client's `_meta` first:
    ///
    /// ```
    /// # use duologue_agent::schema::Request;
    /// # #[derive(serde::Serialize, serde::Deserialize)]
    /// # struct Weather {}
    /// # impl Request for Weather {
    /// #     const METHOD: &'static str = "_example/weather";
    /// #     type Result = ();
    /// # }
    /// # async fn turn(turn: &duologue_agent::Turn) -> duologue_agent::Result<()> {
    /// let answer = turn.client().peer().request(&Weather {}).timeout(std::time::Duration::from_secs(10)).await;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Returns the agent on the client's side, outside of sessions, for `ping` and `discover`. Use
    /// [`Session::peer_agent`](crate::Session::peer_agent) for queries and delegations.
    #[must_use]
    #[cfg(feature = "exchange")]
    pub fn peer_agent(&self) -> &PeerAgent {
        self.other_agent()
    }

    /// Returns the agent on the client's side, which supports nothing without the feature `exchange`.
    pub(crate) fn other_agent(&self) -> &PeerAgent {
        &self.agent
    }

    /// Returns the way to clear a message for this client.
    pub(crate) fn clearing(&self) -> ClearMode {
        match self.state.clear_policy {
            ClearPolicy::Always => ClearMode::Send,
            _ if self.state.initialize.get().is_some_and(|client| client.supports_clear) => ClearMode::Send,
            ClearPolicy::Separator => ClearMode::Separate,
            ClearPolicy::Hold => ClearMode::Hold,
        }
    }

    /// Returns false for an update that the client has not advertised.
    pub(crate) fn accepts(&self, update: &SessionUpdate) -> bool {
        match update {
            SessionUpdate::Notice(_) => self.capabilities().has_notices(),
            SessionUpdate::CompactionUpdate(_) | SessionUpdate::CompactionSummaryChunk(_) => {
                self.capabilities().has_compaction()
            }
            SessionUpdate::PlanUpdate(_) | SessionUpdate::PlanRemoved(_) => {
                self.capabilities().plan.is_some()
            }
            SessionUpdate::SubagentUpdate(_)
            | SessionUpdate::SessionMessage(_)
            | SessionUpdate::SessionMessageChunk(_) => self.capabilities().subagents.is_some(),
            #[cfg(feature = "unstable")]
            SessionUpdate::PromptSuggestionsUpdate(_) => self.capabilities().has_prompt_suggestions(),
            #[cfg(feature = "unstable")]
            SessionUpdate::CursorUpdate(_) => self.capabilities().has_cursors(),
            _ => true,
        }
    }

    /// Returns the child sessions that work.
    pub(crate) fn children(&self) -> &RunningChildren {
        &self.state.children
    }

    #[cfg(feature = "unstable")]
    pub(crate) fn unstable(&self) -> &crate::unstable::UnstableState {
        &self.state.unstable
    }

    /// Removes boolean options for a client that has not advertised them.
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

/// The way to clear a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClearMode {
    Send,
    Separate,
    Hold,
}
