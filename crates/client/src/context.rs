//! The context of a call to the host.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use duologue_rpc::{
    CancellationToken, Incoming, Peer, PeerBuilder, RequestContext, Responder, Service, Transport,
};
use duologue_schema::{Meta, RequestId, TraceContext};

/// The id of a connection in this program. With it a host distinguishes sessions of two agents that have the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(u64);

impl ConnectionId {
    /// Returns a new id.
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        ConnectionId(NUMBER.fetch_add(1, Relaxed))
    }
}

/// The context of a call to a [`Host`](crate::Host) or to a closure of the client: the connection and the request.
/// Cheap to clone.
///
/// A host that wraps another one passes the context on. An editor that calls a host itself gets one from
/// [`Connection::host_context`](crate::Connection::host_context).
#[derive(Clone, Debug)]
pub struct HostContext {
    connection: ConnectionId,
    peer: Peer,
    /// Cancelled with the connection.
    end: CancellationToken,
    /// `None` for a notification and for calls outside of requests.
    request: Option<RequestContext>,
}

impl HostContext {
    /// Creates the context of a new connection.
    pub(crate) fn of_connection(peer: Peer) -> Self {
        HostContext { connection: ConnectionId::new(), end: peer.closing(), peer, request: None }
    }

    /// Returns the context of a request of this connection.
    pub(crate) fn of_request(&self, request: RequestContext) -> Self {
        HostContext { request: Some(request), ..self.clone() }
    }

    /// Creates the context of a connection without an agent, for tests of a host and for tools that call a host
    /// themselves. Its peer is closed, and the context is never cancelled.
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime.
    #[must_use]
    pub fn detached() -> Self {
        let peer = PeerBuilder::new(Transport::memory().0).start(|_| Rejecting);
        peer.close();
        HostContext { end: CancellationToken::new(), ..HostContext::of_connection(peer) }
    }

    /// Returns the id of the connection.
    #[must_use]
    pub fn connection_id(&self) -> ConnectionId {
        self.connection
    }

    /// Returns the agent as a peer, for extension requests and notifications to it. It does not keep the connection
    /// open.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Returns the request, or `None` in a call that belongs to no request.
    #[must_use]
    pub fn request(&self) -> Option<&RequestContext> {
        self.request.as_ref()
    }

    /// Returns the JSON-RPC id of the request.
    #[must_use]
    pub fn request_id(&self) -> Option<&RequestId> {
        self.request().map(RequestContext::id)
    }

    /// Returns the `_meta` of the request.
    #[must_use]
    pub fn meta(&self) -> Option<&Meta> {
        self.request()?.meta()
    }

    /// Returns the trace context in the `_meta` of the request.
    #[must_use]
    pub fn trace_context(&self) -> Option<TraceContext> {
        self.request()?.trace_context()
    }

    /// Returns true if the request was cancelled or the connection ends.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.request().map_or_else(|| self.end.is_cancelled(), RequestContext::is_cancelled)
    }

    /// Waits until the request is cancelled or the connection ends. The call of a request is dropped one second later,
    /// and a request to the user at once.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    pub async fn cancelled(&self) {
        match &self.request {
            Some(request) => request.cancelled().await,
            None => self.end.cancelled().await,
        }
    }

    /// Returns a token that is cancelled with the request, or with the connection if the call belongs to no request.
    #[must_use]
    pub fn cancellation(&self) -> CancellationToken {
        match &self.request {
            Some(request) => request.cancellation(),
            None => self.end.child_token(),
        }
    }
}

/// The service of a detached context, which receives no messages.
struct Rejecting;

impl Service for Rejecting {
    fn request(&self, request: Incoming<'_>, responder: Responder) {
        responder.method_not_found(request.method);
    }

    fn notification(&self, _: Incoming<'_>) {}
}
