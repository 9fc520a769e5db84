//! Connections to initialized agents.

use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use duologue_exchange::ExchangeService;
use duologue_rpc::{Error as RpcError, Peer, QueueId, RequestHandle};
use duologue_schema::{
    AgentCapabilities, AuthMethod, AuthMethodId, AuthenticateRequest, CancelNotification,
    DeleteSessionRequest, Implementation, InVersion, InitializeResponse, LogoutRequest, ProtocolVersion,
    SessionId, SteerOutcome, SteerRequest, VersionedRequest,
};
use serde_json::value::RawValue;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::context::HostContext;
use crate::error::{Error, Result};
use crate::limits::CLOSE_STEP;
use crate::listing::Listing;
use crate::process::ProcessHandle;
use crate::prompt::PromptBuilder;
use crate::request::RequestBuilder;
use crate::router::{ReplayTicket, Router, SessionEntry};
use crate::session::{Session, SessionBuilder, SessionReplay, absolute};

/// A connection to an agent that has responded to `initialize`. Cheap to clone.
///
/// Dropping the last handle, including those of sessions and turns, ends the agent: its input is closed,
/// then it is signalled if it does not exit.
///
/// # Cancel safety
///
/// Dropping the future of a request cancels the request, but the agent may have acted on it already.
#[derive(Clone)]
pub struct Connection {
    pub(crate) inner: Arc<ConnectionInner>,
}

/// The peer of an agent and its process, if this program started it. Dropping it ends the agent.
pub(crate) struct AgentLink {
    pub(crate) peer: Peer,
    pub(crate) process: Option<ProcessHandle>,
}

impl AgentLink {
    pub(crate) fn stderr(&self) -> String {
        self.process.as_ref().map(ProcessHandle::stderr).unwrap_or_default()
    }

    pub(crate) fn kill(&self) {
        match &self.process {
            Some(process) => process.kill(),
            None => self.peer.close(),
        }
    }
}

impl Drop for AgentLink {
    fn drop(&mut self) {
        match &self.process {
            Some(process) => process.close(),
            None => self.peer.close(),
        }
    }
}

pub(crate) struct ConnectionInner {
    pub(crate) link: AgentLink,
    context: HostContext,
    initialize_response: InitializeResponse,
    request_timeout: Option<Duration>,
    cancel_patience: Duration,
    pub(crate) runtime: Handle,
    pub(crate) router: Arc<Router>,
    #[cfg(feature = "exchange")]
    exchange: Arc<ExchangeService>,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("agent", &self.info()).finish_non_exhaustive()
    }
}

impl ConnectionInner {
    pub(crate) fn new(
        link: AgentLink,
        context: HostContext,
        initialize_response: InitializeResponse,
        router: Arc<Router>,
        exchange: Arc<ExchangeService>,
        request_timeout: Option<Duration>,
        cancel_patience: Duration,
    ) -> Self {
        exchange.set_peer_capabilities(initialize_response.agent_capabilities.meta.as_ref());
        router.set_auth_methods(initialize_response.auth_methods.clone());
        let runtime = Handle::current();
        ConnectionInner {
            link,
            context,
            initialize_response,
            request_timeout,
            cancel_patience,
            runtime,
            router,
            #[cfg(feature = "exchange")]
            exchange,
        }
    }

    pub(crate) fn peer(&self) -> &Peer {
        &self.link.peer
    }

    #[cfg(feature = "exchange")]
    pub(crate) fn peer_agent(&self) -> &duologue_exchange::PeerAgent {
        self.exchange.peer_agent()
    }

    pub(crate) fn agent(&self) -> &AgentCapabilities {
        &self.initialize_response.agent_capabilities
    }

    pub(crate) fn auth_methods(&self) -> &[AuthMethod] {
        &self.initialize_response.auth_methods
    }

    pub(crate) fn require(&self, offered: bool, capability: &'static str) -> Result<()> {
        if offered { Ok(()) } else { Err(Error::NotSupported { capability }) }
    }

    /// Sends `session/cancel` for a turn, once, responds to its open requests to the user, and ends the turn
    /// after a timeout if the agent does not.
    pub(crate) fn cancel_turn(self: &Arc<Self>, entry: &Arc<SessionEntry>, number: u64, drop_sink: bool) {
        let Some(questions) = entry.cancel(number, drop_sink) else { return };
        self.send_cancel(entry);
        questions.cancel();
        let (entry, after) = (Arc::downgrade(entry), self.cancel_patience);
        let patience = async move {
            tokio::time::sleep(after).await;
            if let Some(entry) = entry.upgrade() {
                entry.end_turn(number, Err(Error::CancelIgnored { after }));
            }
        };
        // A turn can be dropped on a thread without a runtime.
        self.runtime.spawn(patience);
    }

    /// Ends an abandoned replay after a timeout if the agent does not respond to its load.
    pub(crate) fn abandon_replay(&self, entry: &Arc<SessionEntry>, ticket: ReplayTicket) {
        if !entry.is_replaying(ticket.number) {
            return;
        }
        let (entry, router, after) = (Arc::downgrade(entry), self.router.clone(), self.cancel_patience);
        // A replay can be dropped on a thread without a runtime.
        self.runtime.spawn(async move {
            tokio::time::sleep(after).await;
            if let Some(entry) = entry.upgrade() {
                router.end_replay(&entry, ticket, Err(Error::CancelIgnored { after }));
            }
        });
    }

    pub(crate) fn send_cancel(&self, entry: &SessionEntry) {
        let _ = self.peer().notify_now(&CancelNotification::new(entry.id.clone()));
    }

    /// Sends a request with the timeout of the connection. Dropping the future cancels the request.
    pub(crate) async fn call<R: VersionedRequest>(&self, request: &R) -> Result<R::Result> {
        self.call_then(request, |_| {}).await
    }

    /// [`call`](Self::call) with a function that runs on the reader before later messages are read, even if the future
    /// was dropped. An error is passed as `None`. A change of a session's state must not undo a later update.
    pub(crate) async fn call_then<R: VersionedRequest>(
        &self,
        request: &R,
        then: impl FnOnce(Option<&R::Result>) + Send + 'static,
    ) -> Result<R::Result> {
        let (sender, receiver) = oneshot::channel();
        let request = self.send_request(request, None, move |answer| {
            then(answer.as_ref().ok());
            let _ = sender.send(answer);
        })?;
        let _withdraw = WithdrawOnDrop(request);
        let answer = self.limited(R::METHOD, receiver).await?;
        answer.map_err(|error| Error::from(error).with_login(self.auth_methods()))
    }

    /// [`Peer::request_into`] in the version of the connection.
    pub(crate) fn send_request<R: VersionedRequest>(
        &self,
        request: &R,
        stream: Option<QueueId>,
        deliver: impl FnOnce(Result<R::Result, RpcError>) + Send + 'static,
    ) -> Result<RequestHandle, RpcError> {
        let version = self.version();
        if version == ProtocolVersion::V1 {
            return self.peer().request_into(request, stream, deliver);
        }
        let message = InVersion { version, message: request };
        self.peer().call_into(R::METHOD_V2, &message, stream, |result: Result<Box<RawValue>, _>| {
            deliver(result.and_then(|result| {
                let unreadable =
                    |error| RpcError::Decode { method: R::METHOD_V2.into(), error: Arc::new(error) };
                R::read_result_v2(&result).map_err(unreadable)
            }));
        })
    }

    pub(crate) fn version(&self) -> ProtocolVersion {
        self.initialize_response.protocol_version
    }

    /// Sends a message of the user for the running turn.
    pub(crate) async fn steer(&self, entry: &SessionEntry, message: PromptBuilder) -> Result<SteerOutcome> {
        self.require(self.initialize_response.has_steering(), "_meta.steering")?;
        let (blocks, meta) = message.for_agent(self.agent())?;
        let mut request = SteerRequest::new(entry.id.clone(), blocks);
        request.meta = meta;
        request.require_turn();
        Ok(self.call(&request).await?.outcome)
    }

    /// Waits for a response with the timeout of the connection.
    pub(crate) async fn limited<T>(&self, method: &str, answer: oneshot::Receiver<T>) -> Result<T> {
        let closed = || Error::from(RpcError::Closed(duologue_rpc::Closed::Local));
        let Some(after) = self.request_timeout else { return answer.await.map_err(|_| closed()) };
        match tokio::time::timeout(after, answer).await {
            Ok(answer) => answer.map_err(|_| closed()),
            Err(_) => Err(Error::from(RpcError::Timeout { method: method.into(), after })),
        }
    }
}

/// Cancels a request when it is dropped, unless the response has arrived.
#[derive(Debug)]
pub(crate) struct WithdrawOnDrop(pub(crate) RequestHandle);

impl Drop for WithdrawOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

impl Connection {
    /// Returns the response of the agent to `initialize`.
    #[must_use]
    pub fn initialize_response(&self) -> &InitializeResponse {
        &self.inner.initialize_response
    }

    /// Returns the protocol version of the connection.
    #[must_use]
    pub fn protocol_version(&self) -> ProtocolVersion {
        self.inner.version()
    }

    /// Returns the optional capabilities of the agent.
    #[must_use]
    pub fn capabilities(&self) -> &AgentCapabilities {
        self.inner.agent()
    }

    /// Returns the name and version of the agent, if it sent them.
    #[must_use]
    pub fn info(&self) -> Option<&Implementation> {
        self.inner.initialize_response.agent_info.as_ref()
    }

    /// Returns the login methods of the agent.
    #[must_use]
    pub fn auth_methods(&self) -> &[AuthMethod] {
        self.inner.auth_methods()
    }

    /// Returns the peer of the connection, for extension methods and counters.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        self.inner.peer()
    }

    /// Returns the context for calls of the editor to a host of this connection, for example to show the output of a
    /// terminal. It belongs to no request.
    #[must_use]
    pub fn host_context(&self) -> &HostContext {
        &self.inner.context
    }

    /// Returns the agent as a peer, outside of sessions, for `ping` and `discover`. Use
    /// [`Session::peer_agent`] for queries and delegations. It does not keep the connection open.
    #[must_use]
    #[cfg(feature = "exchange")]
    pub fn peer_agent(&self) -> &duologue_exchange::PeerAgent {
        self.inner.peer_agent()
    }

    /// Logs in with one of [`auth_methods`](Self::auth_methods).
    ///
    /// For a method of type `terminal`, run the agent's program in a terminal with the arguments of the
    /// method, and connect again when it has exited.
    ///
    /// # Errors
    ///
    /// Nothing is sent with [`Error::NotSupported`] for a method of type `terminal`, and [`Error::NotOffered`] for one that the
    /// agent has not offered. The error of the agent.
    pub fn authenticate(&self, method: impl Into<AuthMethodId>) -> RequestBuilder<AuthenticateRequest> {
        let method = method.into();
        let is_terminal =
            |offered: &AuthMethod| matches!(offered, AuthMethod::Terminal(terminal) if terminal.id == method);
        let check = match self.auth_methods().iter().any(is_terminal) {
            true => Err(Error::NotSupported { capability: "authMethods of a type other than terminal" }),
            false => {
                AuthMethod::check(self.auth_methods(), &method, self.inner.version()).map_err(Error::from)
            }
        };
        let request = AuthenticateRequest::new(method);
        RequestBuilder::new(&self.inner, request, |request, meta| request.meta = Some(meta), || check, |_| {})
    }

    /// Logs out. Needs an agent that advertises `auth.logout`.
    ///
    /// # Errors
    ///
    /// [`Error::NotSupported`], and the error of the agent.
    pub fn logout(&self) -> RequestBuilder<LogoutRequest> {
        let check = self.inner.require(self.capabilities().auth.logout.is_some(), "auth.logout");
        let request = LogoutRequest::default();
        RequestBuilder::new(&self.inner, request, |request, meta| request.meta = Some(meta), || check, |_| {})
    }

    /// Returns a builder for a session in the folder `cwd`, an absolute path.
    pub fn session_in(&self, cwd: impl Into<PathBuf>) -> SessionBuilder {
        SessionBuilder::new(self.clone(), cwd.into())
    }

    /// Creates a session in the folder `cwd`, an absolute path.
    ///
    /// # Errors
    ///
    /// As [`SessionBuilder::create`].
    ///
    /// # Cancel safety
    ///
    /// As [`SessionBuilder::create`].
    pub async fn new_session(&self, cwd: impl Into<PathBuf>) -> Result<Session> {
        self.session_in(cwd).create().await
    }

    /// Restores a session and replays it.
    ///
    /// # Errors
    ///
    /// As [`SessionBuilder::load`].
    pub fn load_session(&self, id: impl Into<SessionId>, cwd: impl Into<PathBuf>) -> Result<SessionReplay> {
        self.session_in(cwd).load(id)
    }

    /// Restores a session without a replay.
    ///
    /// # Errors
    ///
    /// As [`SessionBuilder::resume`].
    ///
    /// # Cancel safety
    ///
    /// As [`SessionBuilder::resume`].
    pub async fn resume_session(&self, id: impl Into<SessionId>, cwd: impl Into<PathBuf>) -> Result<Session> {
        self.session_in(cwd).resume(id).await
    }

    /// Lists the sessions of the agent, or only those of `cwd`. Pages are requested as the listing is
    /// polled. Needs an agent that advertises `sessionCapabilities.list`.
    ///
    /// ```no_run
    /// # async fn run(agent: duologue_client::Connection) -> duologue_client::Result<()> {
    /// for session in agent.list_sessions(None)?.all().await? {
    ///     println!("{:?}", session.session_id);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::NotSupported`] and [`Error::RelativePath`]. The listing returns the error of the agent and
    /// ends with it.
    pub fn list_sessions(&self, cwd: Option<PathBuf>) -> Result<Listing> {
        self.inner
            .require(self.capabilities().session_capabilities.list.is_some(), "sessionCapabilities.list")?;
        cwd.as_deref().map_or(Ok(()), absolute)?;
        Ok(Listing::new(self.inner.clone(), cwd))
    }

    /// Removes a session from the agent's list. An unknown session is not an error. Needs an agent that
    /// advertises `sessionCapabilities.delete`.
    ///
    /// # Errors
    ///
    /// [`Error::NotSupported`], and the error of the agent.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels the request. If the agent deletes the session all the same, it is closed here too.
    pub fn delete_session(&self, id: impl Into<SessionId>) -> RequestBuilder<DeleteSessionRequest> {
        let offered = self.capabilities().session_capabilities.delete.is_some();
        let check = self.inner.require(offered, "sessionCapabilities.delete");
        let id = id.into();
        let request = DeleteSessionRequest::new(id.clone());
        let set_meta = |request: &mut DeleteSessionRequest, meta| request.meta = Some(meta);
        RequestBuilder::begun_by(
            &self.inner,
            request,
            set_meta,
            || check,
            move |connection| {
                let entry = connection.router.entry(&id).map(|entry| (entry.restored(), entry));
                let router = connection.router.clone();
                move |response: Option<&_>| {
                    if let (Some(_), Some((restored, entry))) = (response, entry) {
                        router.forget(&entry, restored);
                    }
                }
            },
        )
    }

    /// Returns the end of the agent's stderr, at most 64 KiB. It is empty for an agent that was not spawned.
    #[must_use]
    pub fn stderr(&self) -> String {
        self.inner.link.stderr()
    }

    /// Returns the number of dropped updates: invalid ones, those of unknown sessions, and those evicted between turns.
    #[must_use]
    pub fn dropped_updates(&self) -> u64 {
        self.inner.router.dropped()
    }

    /// Ends the agent and waits for its exit. Its input is closed. After 2 seconds its process group is sent
    /// SIGTERM, after 2 more seconds SIGKILL. Its output is read meanwhile.
    ///
    /// Returns the exit status, or `None` for an agent that was not spawned.
    ///
    /// If a signal ends this program, its agents only see the end of their input. To close them, wait for the signal
    /// with the feature `signal` of tokio:
    ///
    /// ```no_run
    /// # async fn edit(_: &duologue_client::Connection) {}
    /// # #[cfg(unix)]
    /// # async fn run(agent: duologue_client::Connection) -> std::io::Result<()> {
    /// use tokio::signal::unix::{SignalKind, signal};
    ///
    /// let (mut int, mut term) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    /// tokio::select! {
    ///     () = edit(&agent) => {}
    ///     _ = int.recv() => {}
    ///     _ = term.recv() => {}
    /// }
    /// agent.close().await;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not stop the end of a process. Without a process the connection then stays open until the
    /// agent closes it or the last handle is dropped.
    pub async fn close(&self) -> Option<ExitStatus> {
        let Some(process) = &self.inner.link.process else {
            self.peer().finish();
            // Responses can still arrive for a while.
            let _ = tokio::time::timeout(CLOSE_STEP, self.peer().closed()).await;
            self.peer().close();
            self.peer().closed().await;
            return None;
        };
        process.close();
        let status = process.exited().await;
        // Handlers have less time than their grace period, because nobody waits for them.
        let _ = tokio::time::timeout(Duration::from_millis(500), self.peer().closed()).await;
        status
    }

    /// Sends SIGTERM to the process group of the agent, for a program that has to end soon: call [`close`](Self::close) after
    /// it, which waits for the exit. Has no effect on systems without signals, and on an agent that was not spawned.
    pub fn terminate(&self) {
        if let Some(process) = &self.inner.link.process {
            process.terminate();
        }
    }

    /// Kills the process group of the agent at once.
    pub fn kill(&self) {
        self.inner.link.kill();
    }

    /// Waits for the end of the connection and returns the reason.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    pub async fn closed(&self) -> Error {
        Error::from(RpcError::Closed(self.peer().closed().await))
    }
}
