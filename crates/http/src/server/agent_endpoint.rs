//! An endpoint whose agents are in this process: one transport for each connection.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use duologue_rpc::{Lock as _, SecretText, Transport};
use tokio::time::{sleep, timeout};

use crate::server::agent_connection::{AgentConnection, AgentConnectionShared};
use crate::server::endpoint::{
    ConnectRequest, Endpoint, HttpRequestHead, IncomingFrame, Rejection, ResumeRefused, ResumeRequest,
    Resumed, ServerConnection as _,
};
use crate::server::options::AgentEndpointOptions;
use crate::server::presence::ClientPresence;
use crate::wire::{RESUME_SECRET, RemoteConnectionId};

/// The time between two looks of [`AgentEndpoint::flush`].
const FLUSH_PAUSE: Duration = Duration::from_millis(25);
/// The number of looks in a row that have to find nothing.
const FLUSH_LOOKS: u32 = 4;

type ServeAgent = dyn Fn(Transport, ClientPresence) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync;

/// An [`Endpoint`] that gives each connection a [`Transport`] and passes it to a closure.
///
/// The closure serves an agent on the transport, or copies it to the pipes of a process. The connection ends when the
/// future of the closure resolves. What the agent sends while its client is absent is kept within limits; then the
/// agent waits.
///
/// All clients are one principal: each that passes [`ServerOptions::token`](crate::ServerOptions::token) and knows the id
/// of a connection may use it. An endpoint that separates users has to check [`HttpRequestHead`] itself.
///
/// ```no_run
/// use duologue_agent::{Agent, Prompt, StopReason, Turn, serve};
/// use duologue_http::{AgentEndpoint, ServerOptions};
///
/// #[derive(Clone)]
/// struct Echo;
///
/// impl Agent for Echo {
///     async fn prompt(&self, turn: &Turn, prompt: Prompt) -> duologue_agent::Result<StopReason> {
///         turn.message().push(prompt.text()).await?;
///         Ok(StopReason::EndTurn)
///     }
/// }
///
/// # async fn run() -> std::io::Result<()> {
/// let endpoint = AgentEndpoint::new(|transport| async {
///     let _ = serve(Echo, transport).await;
/// });
/// let listener = tokio::net::TcpListener::bind("127.0.0.1:8931").await?;
/// duologue_http::serve(listener, endpoint, ServerOptions::default()).await
/// # }
/// ```
#[derive(Clone)]
pub struct AgentEndpoint {
    shared: Arc<EndpointShared>,
}

pub(crate) struct EndpointShared {
    serve: Box<ServeAgent>,
    options: AgentEndpointOptions,
    connections: Mutex<HashMap<RemoteConnectionId, Arc<AgentConnectionShared>>>,
}

impl AgentEndpoint {
    /// Creates an endpoint with the default settings.
    pub fn new<F, Fut>(serve: F) -> Self
    where
        F: Fn(Transport) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        AgentEndpoint::with_options(serve, AgentEndpointOptions::default())
    }

    /// Creates an endpoint.
    pub fn with_options<F, Fut>(serve: F, options: AgentEndpointOptions) -> Self
    where
        F: Fn(Transport) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        AgentEndpoint::with_presence(move |transport, _| serve(transport), options)
    }

    /// Creates an endpoint whose closure also learns if its client is present.
    pub fn with_presence<F, Fut>(serve: F, options: AgentEndpointOptions) -> Self
    where
        F: Fn(Transport, ClientPresence) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        let serve = Box::new(move |transport, presence| Box::pin(serve(transport, presence)) as Pin<Box<_>>);
        AgentEndpoint { shared: Arc::new(EndpointShared { serve, options, connections: Mutex::default() }) }
    }

    /// Waits until everything that the agents have written is on its way to the clients that are there, but not longer than
    /// `limit`. It is for a program that is about to end.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect on the connections.
    pub async fn flush(&self, limit: Duration) {
        let flushing = async {
            // The output of an agent passes through buffers before it is counted here.
            let mut quiet = 0;
            while quiet < FLUSH_LOOKS {
                sleep(FLUSH_PAUSE).await;
                let connections = self.shared.connections.lock_unpoisoned();
                let is_quiet = !connections.values().any(|connection| connection.has_unsent_frames());
                quiet = if is_quiet { quiet + 1 } else { 0 };
            }
        };
        let _ = timeout(limit, flushing).await;
    }

    /// Returns the number of connections, those of absent clients included.
    #[must_use]
    pub fn connection_count(&self) -> usize {
        self.shared.connections.lock_unpoisoned().len()
    }

    /// Returns true if it has no connections and no other clone, so that a new endpoint in its place makes no difference.
    #[must_use]
    pub fn is_unused(&self) -> bool {
        Arc::strong_count(&self.shared) == 1 && self.connection_count() == 0
    }
}

impl std::fmt::Debug for AgentEndpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AgentEndpoint").field("connections", &self.connection_count()).finish_non_exhaustive()
    }
}

impl EndpointShared {
    /// Registers a connection. At the limit it replaces the one whose client has been absent for the longest time.
    fn insert(&self, connection: &Arc<AgentConnectionShared>) -> Result<(), Rejection> {
        let mut connections = self.connections.lock_unpoisoned();
        let limit = self.options.connections;
        if connections.len() >= limit {
            let absent = connections.values().filter_map(|other| Some((other.absent_since()?, other)));
            let Some(oldest) = absent.min_by_key(|(since, _)| *since).map(|(_, other)| other.clone()) else {
                return Err(Rejection::new(format!(
                    "connection limit reached ({limit}); retry later or raise `AgentEndpointOptions::connections`"
                )));
            };
            tracing::warn!(id = %oldest.id, limit, "connection limit reached; that of an absent client ends");
            connections.remove(&oldest.id);
            oldest.end();
        }
        match connections.entry(connection.id.clone()) {
            Entry::Occupied(_) => Err(Rejection::new("the connection id is in use")),
            Entry::Vacant(place) => {
                place.insert(connection.clone());
                Ok(())
            }
        }
    }

    pub(crate) fn remove(&self, id: &RemoteConnectionId) {
        self.connections.lock_unpoisoned().remove(id);
    }
}

impl Endpoint for AgentEndpoint {
    type Connection = AgentConnection;

    async fn connect(&self, request: ConnectRequest) -> Result<AgentConnection, Rejection> {
        let options = self.shared.options.clone();
        let secret = crate::server::secret::random_token()
            .map_err(|error| Rejection::new(format!("no random secret: {error}")))?;
        let ConnectRequest { id, kind, initialize, .. } = request;
        let inner = Arc::new(AgentConnectionShared::new(id, kind, secret.into(), &initialize, options));
        self.shared.insert(&inner)?;
        let (ours, theirs) = Transport::memory();
        let serving = (self.shared.serve)(theirs, ClientPresence::new(inner.clone()));
        tokio::spawn(inner.clone().run(self.shared.clone(), ours, serving));
        let connection = AgentConnection::new(inner);
        // It has the first number.
        connection.accept(IncomingFrame { number: Some(1), ..initialize.into() }).await?;
        Ok(connection)
    }

    async fn resume(&self, request: ResumeRequest) -> Result<Resumed<AgentConnection>, ResumeRefused> {
        let found = self.shared.connections.lock_unpoisoned().get(&request.id).cloned();
        let connection = found.ok_or(ResumeRefused::Unknown)?;
        connection.resume(request.secret.as_ref().map(SecretText::as_str))
    }

    async fn find(&self, id: &RemoteConnectionId, head: &HttpRequestHead) -> Option<AgentConnection> {
        let found = self.shared.connections.lock_unpoisoned().get(id).cloned()?;
        let secret = head.headers.get(RESUME_SECRET).and_then(|secret| secret.to_str().ok());
        found.accepts_requests(secret).then(|| AgentConnection::new(found))
    }
}
