//! Starts and initializes agents.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use duologue_exchange::{Exchange, ExchangeConnector, ExchangeService};
use duologue_rpc::{Closed, Error as RpcError, Extensions, Limits, Tap, Transport};
use duologue_schema::{
    AgentRequest, ClientCapabilities, DuologueCapabilities, Error as WireError, Implementation,
    InitializeRequest, InitializeResponse, Meta, ProtocolVersion, Request,
};
#[cfg(feature = "protocol-v2")]
use serde_json::value::RawValue;
use tokio::sync::oneshot;

use crate::command::Command;
use crate::connection::{AgentLink, Connection, ConnectionInner};
use crate::context::HostContext;
use crate::error::{Error, Result};
use crate::fair::FairSemaphore;
use crate::host::{Host, HostResult};
use crate::limits::{CANCEL_PATIENCE, HOST_BYTES, START_TIMEOUT};
use crate::process::{self, ProcessHandle};
use crate::router::{Router, SessionHook};
#[cfg(feature = "unstable")]
use crate::service::AuthStatusHook;
use crate::service::{ClientService, Closures, RejectedHook};

/// A change of the advertised capabilities.
type Advertise = Box<dyn FnOnce(ClientCapabilities) -> ClientCapabilities + Send + Sync>;

/// A client with its host and its settings, before it has an agent.
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
#[must_use = "call spawn or connect to start an agent"]
pub struct Client<H = ()> {
    host: H,
    info: Option<Implementation>,
    meta: Option<Meta>,
    closures: Closures,
    advertise: Vec<Advertise>,
    rejected: Option<RejectedHook>,
    #[cfg(feature = "unstable")]
    auth_status: Option<AuthStatusHook>,
    exchange: Option<Exchange>,
    extensions: Extensions,
    limits: Limits,
    tap: Option<Arc<dyn Tap>>,
    start_timeout: Duration,
    request_timeout: Option<Duration>,
    cancel_patience: Duration,
    host_bytes: usize,
    keep_conversations: bool,
    message_clear: bool,
    #[cfg(feature = "protocol-v2")]
    offers_v2: bool,
}

impl<H: Host> Client<H> {
    /// Creates a client. `host` handles the requests of its agents; `()` rejects all of them.
    pub fn new(host: H) -> Self {
        Client {
            host,
            info: None,
            meta: None,
            closures: Closures::default(),
            advertise: Vec::new(),
            rejected: None,
            #[cfg(feature = "unstable")]
            auth_status: None,
            exchange: None,
            extensions: Extensions::default(),
            limits: Limits::default(),
            tap: None,
            start_timeout: START_TIMEOUT,
            request_timeout: None,
            cancel_patience: CANCEL_PATIENCE,
            host_bytes: HOST_BYTES,
            keep_conversations: false,
            message_clear: true,
            #[cfg(feature = "protocol-v2")]
            offers_v2: false,
        }
    }

    /// Offers protocol version 2 to the agent, which chooses the version of the connection.
    ///
    /// Version 2 is a draft of ACP that may change at any time. The program does not change: it uses the requests and
    /// updates of version 1, which are converted. [`Connection::protocol_version`] returns the chosen version. Files and
    /// terminals of the host are used by agents of version 1 only.
    ///
    /// ```no_run
    /// # use duologue_client::{Client, Command, LocalHost, Result};
    /// # async fn run() -> Result<()> {
    /// let agent = Client::new(LocalHost::new("/home/me/project")).protocol_v2();
    /// let agent = agent.spawn(Command::new("my-agent")).await?;
    /// println!("version {}", agent.protocol_version());
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "protocol-v2")]
    pub fn protocol_v2(mut self) -> Self {
        self.offers_v2 = true;
        self
    }

    /// Sets the name and version of this client, for the agent's logs.
    pub fn info(mut self, info: Implementation) -> Self {
        self.info = Some(info);
        self
    }

    /// Sets the `_meta` of `initialize`.
    pub fn meta(mut self, meta: impl Into<Meta>) -> Self {
        self.meta = Some(meta.into());
        self
    }

    /// Changes the capabilities that `initialize` advertises.
    ///
    /// `change` gets the capabilities of the [`Host`] with those of the closures of [`on`](Self::on). Later calls get the
    /// result of earlier ones. An editor with a `LocalHost` uses this to advertise the rest of its user interface:
    ///
    /// ```
    /// use duologue_client::Client;
    /// use duologue_client::schema::{
    ///     AuthCapabilities, BooleanConfigOptionCapabilities, ClientSessionCapabilities, CompactionCapabilities,
    ///     NoticeCapabilities, SessionConfigOptionsCapabilities,
    /// };
    ///
    /// let client = Client::new(()).advertise(|capabilities| {
    ///     let boolean = BooleanConfigOptionCapabilities::new();
    ///     let session = ClientSessionCapabilities::new()
    ///         .config_options(SessionConfigOptionsCapabilities::new().boolean(boolean))
    ///         .notices(NoticeCapabilities::new())
    ///         .compaction(CompactionCapabilities::new());
    ///     let mut capabilities = capabilities.session(session).auth(AuthCapabilities::new().terminal(true));
    ///     capabilities.meta.get_or_insert_default().insert("example.com/theme", "dark");
    ///     capabilities
    /// });
    /// # let _ = client;
    /// ```
    ///
    /// Requests for a capability that `change` removes are rejected. The key `duologue` of `_meta` is written afterwards,
    /// see [`without_message_clear`](Self::without_message_clear).
    pub fn advertise(
        mut self,
        change: impl FnOnce(ClientCapabilities) -> ClientCapabilities + Send + Sync + 'static,
    ) -> Self {
        self.advertise.push(Box::new(change));
        self
    }

    /// Handles one method with a closure instead of the host, and advertises it. The type of the params
    /// selects the method, which can be an extension method.
    ///
    /// ```
    /// use duologue_client::Client;
    /// use duologue_client::schema::{ReadTextFileRequest, ReadTextFileResponse};
    ///
    /// let client = Client::new(()).on(async |_, request: ReadTextFileRequest| {
    ///     Ok(ReadTextFileResponse::new(format!("unsaved text of {}", request.path.display())))
    /// });
    /// # let _ = client;
    /// ```
    ///
    /// An `async` closure that captures variables does not compile here ("async closure does not implement `Fn`").
    /// [`on_with`](Self::on_with) passes state to the closure instead. A plain closure with an `async move` block also
    /// works: `move |_, request| { let state = state.clone(); async move { … } }`.
    ///
    /// | a closure for | advertises |
    /// | --- | --- |
    /// | `fs/read_text_file`, `fs/write_text_file` | `fs.readTextFile`, `fs.writeTextFile` |
    /// | all five terminal methods | `terminal` |
    /// | `elicitation/create` | `elicitation.form` and `elicitation.url`, unless the host advertises elicitation |
    /// | `session/request_permission`, an extension method | nothing; see [`advertise`](Self::advertise) |
    pub fn on<R, F, Fut>(mut self, answer: F) -> Self
    where
        R: Request,
        F: Fn(HostContext, R) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = HostResult<R::Result>> + Send + 'static,
    {
        self.closures.insert(answer);
        self
    }

    /// Handles one method with a closure, as [`on`](Self::on), and passes it a clone of `state`: an `Arc`, the sender of a
    /// channel, or a tuple of several.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use duologue_client::schema::{ReadTextFileRequest, ReadTextFileResponse};
    /// use duologue_client::{Client, Host, LocalHost};
    ///
    /// let disk = Arc::new(LocalHost::new("/home/me/project"));
    /// let (reads, shown) = tokio::sync::mpsc::unbounded_channel();
    /// let client = Client::new(disk.clone()).on_with(
    ///     (disk, reads),
    ///     async |(disk, reads), context, request: ReadTextFileRequest| {
    ///         let _ = reads.send(request.path.clone());
    ///         disk.read_text_file(&context, request).await
    ///     },
    /// );
    /// # let _ = (client, shown);
    /// ```
    pub fn on_with<S, R, F, Fut>(self, state: S, answer: F) -> Self
    where
        S: Clone + Send + Sync + 'static,
        R: Request,
        F: Fn(S, HostContext, R) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = HostResult<R::Result>> + Send + 'static,
    {
        self.on(move |context, request| answer(state.clone(), context, request))
    }

    /// Calls `observe` with each request that the client rejects itself, and with its error. Reasons are a capability
    /// that was not advertised, a relative path, or an unknown session.
    ///
    /// It is called on the reader and must not block.
    pub fn on_rejected(
        mut self,
        observe: impl Fn(&HostContext, &AgentRequest, &WireError) + Send + Sync + 'static,
    ) -> Self {
        self.rejected = Some(Box::new(observe));
        self
    }

    /// Calls `observe` with each change of the state of authentication that an agent with `auth.status` reports.
    ///
    /// It is called on the reader and must not block.
    ///
    /// ```
    /// use duologue_client::Client;
    /// use duologue_client::schema::AuthState;
    ///
    /// let (states, changed) = tokio::sync::watch::channel(AuthState::Undetermined);
    /// let client = Client::new(()).on_auth_status(move |_, status| drop(states.send(status.state)));
    /// # let _ = (client, changed);
    /// ```
    #[cfg(feature = "unstable")]
    pub fn on_auth_status(
        mut self,
        observe: impl Fn(&HostContext, duologue_schema::AuthStatusUpdateNotification) + Send + Sync + 'static,
    ) -> Self {
        self.auth_status = Some(Box::new(observe));
        self
    }

    /// Sets the handlers for messages of the agent as a peer, and the name of this side.
    #[cfg(feature = "exchange")]
    pub fn exchange(mut self, exchange: Exchange) -> Self {
        self.exchange = Some(exchange);
        self
    }

    /// Sets the handlers for extension methods.
    pub fn extensions(mut self, extensions: Extensions) -> Self {
        self.extensions = extensions;
        self
    }

    /// Sets the limits of the connection.
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

    /// Sets the timeout of `initialize`, 30 seconds by default.
    pub fn start_timeout(mut self, after: Duration) -> Self {
        self.start_timeout = after;
        self
    }

    /// Sets the timeout of all requests except `initialize`, prompts and `session/load`. There is none by
    /// default.
    pub fn request_timeout(mut self, after: Duration) -> Self {
        self.request_timeout = Some(after);
        self
    }

    /// Sets the time that an agent has to end a cancelled turn, 10 seconds by default. After it the turn fails with
    /// [`Error::CancelIgnored`], and the session can run another one. An abandoned replay ends in the same way.
    pub fn cancel_patience(mut self, patience: Duration) -> Self {
        self.cancel_patience = patience;
        self
    }

    /// Sets the limit on the bytes of all running requests to the host, 128 MiB by default.
    ///
    /// A request whose response can contain a file or the output of a program counts as [`Limits::frame_bytes`] until
    /// the response is sent. Other requests count as their own length. Requests over the limit wait. Sessions are served
    /// in turn. One session uses at most half of the limit, or one request of any size.
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

    /// Does not advertise that this client can clear messages. Use it for a client that only prints:
    /// agents then separate a draft with a visible rule instead of clearing it.
    pub fn without_message_clear(mut self) -> Self {
        self.message_clear = false;
        self
    }

    /// Starts an agent and initializes it.
    ///
    /// The agent has a process group of its own, which ends with it. Call [`Connection::close`] before the
    /// runtime ends; otherwise the group is killed at once. If this program is killed, an agent that watches
    /// its input ends by itself, as all agents of this project do. Other agents may survive, and so do
    /// processes that left the group with `setsid`.
    ///
    /// # Errors
    ///
    /// [`Error::Spawn`] if the program cannot be started, [`Error::AgentExited`] if it exits before it
    /// responds, [`Error::StartTimeout`] if it does not respond, and as [`connect`](Self::connect).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the agent.
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime with I/O and time enabled.
    pub async fn spawn(self, command: impl Into<Command>) -> Result<Connection> {
        let (transport, process, supervisor) = process::spawn(command.into())?;
        let (starting, request) = self.start(transport, Some(process))?;
        supervisor.watch(starting.link.peer.clone());
        starting.initialize(request).await
    }

    /// Initializes an agent over a transport.
    ///
    /// # Errors
    ///
    /// [`Error::UnsupportedVersion`] if the agent does not support our version, [`Error::StartTimeout`] if
    /// it does not respond, and the error with which it responds.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the connection.
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime with time enabled.
    pub async fn connect(self, transport: Transport) -> Result<Connection> {
        let (starting, request) = self.start(transport, None)?;
        starting.initialize(request).await
    }

    /// Connects to an agent over WebSocket and initializes it.
    ///
    /// A lost socket is resumed in the background if the server allows it; calls only wait. When that fails, the connection
    /// ends with the reason. `wss` and `https` addresses need the feature `tls` of `duologue-http`.
    ///
    /// ```no_run
    /// use duologue_client::http::ConnectOptions;
    /// use duologue_client::Client;
    ///
    /// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut options = ConnectOptions::default();
    /// options.bearer_token = Some(std::env::var("AGENT_TOKEN")?.into());
    /// let connection = Client::new(()).connect_url("http://127.0.0.1:8931/acp", options).await?;
    /// let session = connection.new_session("/srv/project").await?;
    /// println!("{}", session.prompt("hello").await?.finish().await?.text);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Remote`] if there is no connection, and as [`connect`](Self::connect).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the connection.
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime with I/O and time enabled.
    #[cfg(feature = "http")]
    pub async fn connect_url(self, url: &str, options: duologue_http::ConnectOptions) -> Result<Connection> {
        let connected = duologue_http::connect(url, options).await;
        let (transport, _link) = connected.map_err(|error| Error::Remote(std::sync::Arc::new(error)))?;
        self.connect(transport).await
    }

    fn start(
        self,
        transport: Transport,
        process: Option<ProcessHandle>,
    ) -> Result<(Starting, InitializeRequest)> {
        let mut capabilities = self.host.capabilities();
        self.closures.advertise(&mut capabilities);
        let mut capabilities = self.advertise.into_iter().fold(capabilities, |so_far, change| change(so_far));
        let mut duologue = DuologueCapabilities::of(capabilities.meta.as_ref());
        duologue.message_clear = self.message_clear;
        duologue.write_to(&mut capabilities.meta);
        let exchange = ExchangeConnector::new(self.exchange);
        exchange.advertise(&mut capabilities.meta);
        let version = ProtocolVersion::LATEST;
        #[cfg(feature = "protocol-v2")]
        let version = if self.offers_v2 { ProtocolVersion::V2 } else { version };
        let mut request = InitializeRequest::new(version);
        request.client_capabilities = capabilities.clone();
        request.client_info = self.info;
        request.meta = self.meta;

        let host = Arc::new(self.host);
        let mut connection = duologue_rpc::PeerBuilder::new(transport).limits(self.limits);
        if let Some(tap) = self.tap {
            connection = connection.tap(tap);
        }
        if let Some(process) = process.clone() {
            connection = connection.explain_end(move |reason, peer| async move {
                process.explain(reason, peer.recent_noise()).await
            });
        }
        #[cfg(feature = "protocol-v2")]
        let is_v2 = Arc::<AtomicBool>::default();
        let mut started = None;
        let peer = connection.start(|peer| {
            let context = HostContext::of_connection(peer.clone());
            let ended = Arc::<AtomicBool>::default();
            let notify = session_hook(&host, context.clone(), ended.clone());
            let router = Arc::new(Router::new(self.keep_conversations, notify));
            let known = router.clone();
            let exchange = Arc::new(exchange.start(peer, move |id| known.knows(id), ()));
            started = Some((context.clone(), router.clone(), exchange.clone()));
            ClientService {
                host,
                capabilities,
                closures: self.closures,
                rejected: self.rejected,
                #[cfg(feature = "unstable")]
                auth_status: self.auth_status,
                exchange,
                extensions: self.extensions,
                router,
                host_bytes: FairSemaphore::new(self.host_bytes),
                context,
                ended,
                #[cfg(feature = "protocol-v2")]
                is_v2: is_v2.clone(),
            }
        });
        // `PeerBuilder::start` has called the closure.
        let Some((context, router, exchange)) = started else {
            return Err(Error::from(RpcError::Closed(Closed::Local)));
        };
        let starting = Starting {
            link: AgentLink { peer, process },
            context,
            router,
            exchange,
            timeout: self.start_timeout,
            request_timeout: self.request_timeout,
            cancel_patience: self.cancel_patience,
            #[cfg(feature = "protocol-v2")]
            v2: self.offers_v2.then_some(is_v2),
        };
        Ok((starting, request))
    }
}

/// Returns a function that notifies the host of its sessions.
fn session_hook<H: Host>(host: &Arc<H>, context: HostContext, ended: Arc<AtomicBool>) -> SessionHook {
    // Weak, because handles of the connection must not keep the host alive.
    let host = Arc::downgrade(host);
    Box::new(move |session, folders| {
        let Some(host) = host.upgrade() else { return };
        // The reader is processing the response that opens or ends the session. A panic must not cost the session.
        let notify = AssertUnwindSafe(|| match folders {
            Some(folders) => host.session_started(&context, session, folders),
            None if ended.load(SeqCst) => {}
            None => host.session_ended(&context, session),
        });
        if std::panic::catch_unwind(notify).is_err() {
            tracing::error!("the host panicked in session_started or session_ended");
        }
        // The connection has released its sessions already.
        if folders.is_some() && ended.load(SeqCst) {
            host.closed(&context);
        }
    })
}

/// A connection before the response to `initialize`. Dropping it ends the agent.
struct Starting {
    link: AgentLink,
    context: HostContext,
    router: Arc<Router>,
    exchange: Arc<ExchangeService>,
    timeout: Duration,
    request_timeout: Option<Duration>,
    cancel_patience: Duration,
    /// Set if the agent chooses version 2. `None` if the client does not offer it.
    #[cfg(feature = "protocol-v2")]
    v2: Option<Arc<AtomicBool>>,
}

impl Starting {
    async fn initialize(self, request: InitializeRequest) -> Result<Connection> {
        let (ours, (sender, response)) = (request.protocol_version, oneshot::channel());
        let deliver = move |response| {
            let _ = sender.send(response);
        };
        // Not cancelled, because the protocol does not allow to cancel `initialize`.
        self.send(&request, deliver)?;
        let Starting { link, context, router, exchange, timeout, request_timeout, cancel_patience, .. } =
            self;
        let response = match tokio::time::timeout(timeout, response).await {
            Ok(response) => response.unwrap_or(Err(RpcError::Closed(Closed::Local)))?,
            Err(_) => {
                link.kill();
                let noise = link.peer.recent_noise();
                return Err(Error::StartTimeout { after: timeout, stderr: link.stderr(), noise });
            }
        };
        if response.protocol_version > ours || response.protocol_version < ProtocolVersion::V1 {
            return Err(Error::UnsupportedVersion { agent: response.protocol_version, ours });
        }
        let inner =
            ConnectionInner::new(link, context, response, router, exchange, request_timeout, cancel_patience);
        Ok(Connection { inner: Arc::new(inner) })
    }

    /// Sends `initialize`. The reader calls `deliver`, so the version is known before later messages are read.
    fn send(
        &self,
        request: &InitializeRequest,
        deliver: impl FnOnce(Result<InitializeResponse, RpcError>) + Send + 'static,
    ) -> Result<(), RpcError> {
        #[cfg(feature = "protocol-v2")]
        if let Some(is_v2) = self.v2.clone() {
            let both = crate::v2::InitializeBoth::new(request);
            let method = InitializeRequest::METHOD;
            let deliver = move |response: Result<Box<RawValue>, _>| {
                let response = response.and_then(|response| {
                    let unreadable =
                        |error| RpcError::Decode { method: method.into(), error: Arc::new(error) };
                    crate::v2::read_initialize(&response).map_err(unreadable)
                });
                let version = response.as_ref().map(|response| response.protocol_version);
                is_v2.store(version.is_ok_and(|version| version == ProtocolVersion::V2), SeqCst);
                deliver(response);
            };
            return self.link.peer.call_into(method, &both, None, deliver).map(drop);
        }
        self.link.peer.request_into(request, None, deliver).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::Mutex;

    use duologue_rpc::Lock;
    use duologue_schema::SessionId;

    use super::*;

    #[derive(Default)]
    struct Calls(Mutex<Vec<&'static str>>);

    impl Host for Calls {
        fn session_started(&self, _: &HostContext, _: &SessionId, _: &[PathBuf]) {
            self.0.lock_unpoisoned().push("started");
        }

        fn closed(&self, _: &HostContext) {
            self.0.lock_unpoisoned().push("closed");
        }
    }

    /// A host that several connections share keeps no session of a connection that has ended.
    #[tokio::test]
    async fn a_session_that_starts_after_the_end_is_released() {
        let (host, ended) = (Arc::<Calls>::default(), Arc::<AtomicBool>::default());
        let started = session_hook(&host, HostContext::detached(), ended.clone());
        started(&"early".into(), Some(&[]));
        assert_eq!(*host.0.lock_unpoisoned(), ["started"]);
        ended.store(true, SeqCst);
        started(&"late".into(), Some(&[]));
        assert_eq!(*host.0.lock_unpoisoned(), ["started", "started", "closed"]);
    }
}
