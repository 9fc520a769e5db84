//! Starting: from settings and a program to an initialized connection.

use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use duologue_exchange::{Exchange, ExchangeConnector};
use duologue_rpc::{Extensions, Limits, Peer, Tap, Transport};
use duologue_schema::{
    AgentRequest, DuologueCapabilities, Error as WireError, Implementation, InitializeRequest,
    ProtocolVersion, Request, SessionId,
};

use crate::command::Command;
use crate::connection::{Connection, ConnectionInner};
use crate::error::{Error, Result};
use crate::fair::FairSemaphore;
use crate::host::{ConnectionId, Host, HostResult};
use crate::limits::{HOST_BYTES, START_TIMEOUT};
use crate::process::{self, ProcessHandle};
use crate::router::Router;
use crate::service::{ClientService, Closures, RejectedHook};

/// A client before it has an agent: its host and its settings.
///
/// ```no_run
/// use duologue_client::schema::printable;
/// use duologue_client::{Client, Command};
///
/// # async fn run() -> duologue_client::Result<()> {
/// let agent = Client::new(()).spawn(Command::new("echo-agent")).await?;
/// let session = agent.new_session("/home/me/project").await?;
/// let reply = session.prompt("hello").await?.finish().await?;
/// println!("{}", printable(&reply.text));
/// # Ok(())
/// # }
/// ```
#[must_use = "a client does nothing until it has an agent"]
pub struct Client<H = ()> {
    host: H,
    info: Option<Implementation>,
    closures: Closures,
    rejected: Option<RejectedHook>,
    exchange: Option<Exchange>,
    extensions: Extensions,
    limits: Limits,
    tap: Option<Arc<dyn Tap>>,
    start_timeout: Duration,
    request_timeout: Option<Duration>,
    host_bytes: usize,
    keep_conversations: bool,
    message_clear: bool,
}

impl<H: Host> Client<H> {
    /// A client whose agents may ask `host`. `()` refuses everything.
    pub fn new(host: H) -> Self {
        Client {
            host,
            info: None,
            closures: Closures::default(),
            rejected: None,
            exchange: None,
            extensions: Extensions::default(),
            limits: Limits::default(),
            tap: None,
            start_timeout: START_TIMEOUT,
            request_timeout: None,
            host_bytes: HOST_BYTES,
            keep_conversations: false,
            message_clear: true,
        }
    }

    /// Name and version of this client, for the agent's logs.
    pub fn info(mut self, info: Implementation) -> Self {
        self.info = Some(info);
        self
    }

    /// Answers one method with a closure instead of the host, and advertises it. The method is
    /// chosen by the type of its params; extension methods of your own work too.
    ///
    /// ```no_run
    /// use duologue_client::Client;
    /// use duologue_client::schema::{ReadTextFileRequest, ReadTextFileResponse};
    ///
    /// let client = Client::new(()).on(async |request: ReadTextFileRequest| {
    ///     Ok(ReadTextFileResponse::new(format!("unsaved text of {}", request.path.display())))
    /// });
    /// # let _ = client;
    /// ```
    ///
    /// All five terminal methods have to be answered before `terminal` may be advertised: give
    /// them to a [`Host`], or advertise it there.
    pub fn on<R, F, Fut>(mut self, answer: F) -> Self
    where
        R: Request,
        F: Fn(R) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = HostResult<R::Result>> + Send + 'static,
    {
        self.closures.insert(answer);
        self
    }

    /// Calls `observe` with each request that the client rejects before the host sees it, and with the error that
    /// the agent gets: the capability was not advertised, a path is not absolute, or the session is unknown.
    ///
    /// It is called on the reader and must not block.
    pub fn on_rejected(
        mut self,
        observe: impl Fn(&AgentRequest, &WireError) + Send + Sync + 'static,
    ) -> Self {
        self.rejected = Some(Box::new(observe));
        self
    }

    /// What we answer to the agent beyond ACP, as an agent like it, and our name there.
    #[cfg(feature = "exchange")]
    pub fn exchange(mut self, exchange: Exchange) -> Self {
        self.exchange = Some(exchange);
        self
    }

    /// Handlers for extension methods.
    pub fn extensions(mut self, extensions: Extensions) -> Self {
        self.extensions = extensions;
        self
    }

    /// Other limits than the default ones.
    ///
    /// ```
    /// use duologue_client::{Client, Limits};
    ///
    /// let mut limits = Limits::default();
    /// limits.frame_bytes = 4 * 1024 * 1024;
    /// limits.queue_bytes = 8 * 1024 * 1024;
    /// limits.queue_bytes_hard = 12 * 1024 * 1024;
    /// let client = Client::new(()).limits(limits);
    /// # let _ = client;
    /// ```
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Shows every frame to `tap`.
    pub fn tap(mut self, tap: Arc<dyn Tap>) -> Self {
        self.tap = Some(tap);
        self
    }

    /// How long the agent may take to answer `initialize`; 30 seconds by default.
    pub fn start_timeout(mut self, after: Duration) -> Self {
        self.start_timeout = after;
        self
    }

    /// How long the agent may take to answer anything but a prompt, an `initialize` or a
    /// `session/load`; unlimited by default.
    pub fn request_timeout(mut self, after: Duration) -> Self {
        self.request_timeout = Some(after);
        self
    }

    /// Sets how many bytes the agent's requests to the host may take together, 128 MiB by default.
    ///
    /// A request that can be answered with a file or a program's output counts as
    /// [`Limits::frame_bytes`], until its answer is on its way; a write or a question as its own length. Requests over
    /// the limit wait. Sessions are served in turn. One session
    /// takes at most half, or one request of any size.
    pub fn host_bytes(mut self, bytes: usize) -> Self {
        self.host_bytes = bytes;
        self
    }

    /// Folds the updates of each session into a conversation, see
    /// [`Session::conversation`](crate::Session::conversation). It grows with the session.
    pub fn keep_conversations(mut self) -> Self {
        self.keep_conversations = true;
        self
    }

    /// Does not tell agents that this client can clear messages, for one that only prints: they
    /// then set a draft apart with a visible rule instead of taking it back.
    pub fn without_message_clear(mut self) -> Self {
        self.message_clear = false;
        self
    }

    /// Starts an agent and initializes it.
    ///
    /// The agent gets a process group of its own, which is ended with it. Call
    /// [`Connection::close`] before the runtime ends, or the group is killed at once instead of being
    /// asked. If this program is killed, an agent that watches its input (all of ours do) ends by
    /// itself; others may not, nor does what left the group with `setsid`.
    ///
    /// # Errors
    ///
    /// [`Error::Spawn`] when the program cannot be started, [`Error::AgentExited`] when it ends
    /// before it answers, [`Error::StartTimeout`] when it does not answer, and as
    /// [`connect`](Self::connect).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the agent.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with I/O and time enabled.
    pub async fn spawn(self, command: impl Into<Command>) -> Result<Connection> {
        let (transport, process, supervisor) = process::spawn(command.into())?;
        let (connection, hello) = self.start(transport, Some(process));
        supervisor.watch(connection.peer().clone());
        connection.initialize(hello).await
    }

    /// Initializes an agent over a transport.
    ///
    /// # Errors
    ///
    /// [`Error::UnsupportedVersion`] when the agent does not speak our version,
    /// [`Error::StartTimeout`] when it does not answer, and what it answers.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with time enabled.
    pub async fn connect(self, transport: Transport) -> Result<Connection> {
        let (connection, hello) = self.start(transport, None);
        connection.initialize(hello).await
    }

    fn start(self, transport: Transport, process: Option<ProcessHandle>) -> (Starting, InitializeRequest) {
        let mut capabilities = self.host.capabilities();
        self.closures.advertise(&mut capabilities);
        let mut duologue = DuologueCapabilities::of(capabilities.meta.as_ref());
        duologue.message_clear = self.message_clear;
        duologue.write_to(&mut capabilities.meta);
        let exchange = ExchangeConnector::new(self.exchange);
        exchange.advertise(&mut capabilities.meta);
        let mut hello = InitializeRequest::new(ProtocolVersion::LATEST);
        hello.client_capabilities = capabilities.clone();
        hello.client_info = self.info;

        let id = ConnectionId::new();
        let host = Arc::new(self.host);
        // Handles on the connection do not keep the host: it ends with the conversation.
        let weak = Arc::downgrade(&host);
        let started = Box::new(move |session: &SessionId, folders: &[PathBuf]| {
            let Some(host) = weak.upgrade() else { return };
            // On the reader, in the middle of an answer: its panic must not cost the session.
            let told = AssertUnwindSafe(|| id.call(|| host.session_started(session, folders)));
            if std::panic::catch_unwind(told).is_err() {
                tracing::error!("the host panicked over a session that started");
            }
        });
        let router = Arc::new(Router::new(self.keep_conversations, started));
        let mut connection = duologue_rpc::PeerBuilder::new(transport).limits(self.limits);
        if let Some(tap) = self.tap {
            connection = connection.tap(tap);
        }
        if let Some(process) = process.clone() {
            connection = connection.explain_end(move |reason, peer| async move {
                process.explain(reason, peer.recent_noise()).await
            });
        }
        let known = router.clone();
        let mut started = None;
        let peer = connection.start(|peer| {
            let exchange = Arc::new(exchange.start(peer, move |id| known.knows(id)));
            started = Some(exchange.clone());
            ClientService {
                host,
                capabilities,
                closures: self.closures,
                rejected: self.rejected,
                exchange,
                extensions: self.extensions,
                router: router.clone(),
                host_bytes: FairSemaphore::new(self.host_bytes),
                peer: peer.clone(),
                connection: id,
            }
        });
        let exchange = started.expect("the service is made before the connection starts");
        let inner = ConnectionInner::new(peer, process, router, exchange, self.request_timeout);
        (Starting { inner, timeout: self.start_timeout }, hello)
    }
}

/// A connection whose agent has not said hello. Dropping it ends the agent.
struct Starting {
    inner: ConnectionInner,
    timeout: Duration,
}

impl Starting {
    fn peer(&self) -> &Peer {
        self.inner.peer()
    }

    async fn initialize(self, hello: InitializeRequest) -> Result<Connection> {
        let ours = hello.protocol_version;
        // Never cancelled: the protocol has no answer to a cancelled `initialize`.
        let answer = self.peer().request(&hello).detach();
        let hello = match tokio::time::timeout(self.timeout, answer).await {
            Ok(hello) => hello?,
            Err(_) => {
                self.inner.kill();
                return Err(Error::StartTimeout {
                    after: self.timeout,
                    stderr: self.inner.stderr(),
                    noise: self.peer().recent_noise(),
                });
            }
        };
        if hello.protocol_version != ours {
            return Err(Error::UnsupportedVersion { agent: hello.protocol_version, ours });
        }
        self.inner.initialized(hello);
        Ok(Connection { inner: Arc::new(self.inner) })
    }
}
