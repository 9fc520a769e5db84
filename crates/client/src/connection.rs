//! A connection to an initialized agent: what it can do, its sessions, its end.

use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use duologue_exchange::{ExchangeService, PeerAgent};
use duologue_rpc::{Error as RpcError, Peer, RequestHandle};
use duologue_schema::{
    AgentCapabilities, AuthMethod, AuthMethodId, AuthenticateRequest, CancelNotification,
    DeleteSessionRequest, Implementation, InitializeResponse, LogoutRequest, Request, SessionId,
};
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};

use crate::error::{Error, Result};
use crate::limits::CANCEL_PATIENCE;
use crate::listing::Listing;
use crate::process::ProcessHandle;
use crate::router::{Router, SessionEntry};
use crate::session::{Session, SessionBuilder, SessionReplay, absolute};

/// A connection to an agent that has answered `initialize`. Cheap to clone.
///
/// When the last handle is gone, its sessions' and turns' included, the agent is told to end: its
/// input is closed, then it is signalled if it stays.
#[derive(Clone)]
pub struct Connection {
    pub(crate) inner: Arc<ConnectionInner>,
}

pub(crate) struct ConnectionInner {
    peer: Peer,
    hello: OnceLock<InitializeResponse>,
    process: Option<ProcessHandle>,
    request_timeout: Option<Duration>,
    runtime: Handle,
    pub(crate) router: Arc<Router>,
    exchange: Arc<ExchangeService>,
    pub(crate) turn_ended: Notify,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("agent", &self.info()).finish_non_exhaustive()
    }
}

impl ConnectionInner {
    pub(crate) fn new(
        peer: Peer,
        process: Option<ProcessHandle>,
        router: Arc<Router>,
        exchange: Arc<ExchangeService>,
        request_timeout: Option<Duration>,
    ) -> Self {
        let (hello, runtime, turn_ended) = (OnceLock::new(), Handle::current(), Notify::new());
        ConnectionInner { peer, hello, process, request_timeout, runtime, router, exchange, turn_ended }
    }

    pub(crate) fn initialized(&self, hello: InitializeResponse) {
        self.exchange.set_peer_capabilities(hello.agent_capabilities.meta.as_ref());
        let _ = self.hello.set(hello);
    }

    pub(crate) fn peer(&self) -> &Peer {
        &self.peer
    }

    pub(crate) fn peer_agent(&self) -> &PeerAgent {
        self.exchange.peer_agent()
    }

    pub(crate) fn agent(&self) -> &AgentCapabilities {
        static NONE: OnceLock<AgentCapabilities> = OnceLock::new();
        match self.hello.get() {
            Some(hello) => &hello.agent_capabilities,
            None => NONE.get_or_init(AgentCapabilities::default),
        }
    }

    pub(crate) fn auth_methods(&self) -> &[AuthMethod] {
        self.hello.get().map_or(&[], |hello| &hello.auth_methods)
    }

    pub(crate) fn require(&self, offered: bool, capability: &'static str) -> Result<()> {
        if offered { Ok(()) } else { Err(Error::NotSupported { capability }) }
    }

    pub(crate) fn stderr(&self) -> String {
        self.process.as_ref().map(ProcessHandle::stderr).unwrap_or_default()
    }

    pub(crate) fn kill(&self) {
        match &self.process {
            Some(process) => process.kill(),
            None => self.peer.close(),
        }
    }

    /// Sends `session/cancel` for a turn unless that was done, answers its open questions, and gives
    /// the agent a while to end it.
    pub(crate) fn cancel_turn(self: &Arc<Self>, route: &Arc<SessionEntry>, number: u64, drop_sink: bool) {
        let Some(questions) = route.cancel(number, drop_sink) else { return };
        self.send_cancel(route);
        questions.cancel();
        let (route, connection) = (Arc::downgrade(route), Arc::downgrade(self));
        let patience = async move {
            tokio::time::sleep(CANCEL_PATIENCE).await;
            if let Some(route) = route.upgrade() {
                route.done(number, Err(Error::CancelIgnored { after: CANCEL_PATIENCE }));
            }
            if let Some(connection) = connection.upgrade() {
                connection.turn_ended.notify_waiters();
            }
        };
        // A turn may be dropped on any thread, an editor's own among them.
        self.runtime.spawn(patience);
    }

    pub(crate) fn send_cancel(&self, route: &SessionEntry) {
        let _ = self.peer.notify_now(&CancelNotification::new(route.id.clone()));
    }

    /// A request with the connection's time limit. Dropping the future withdraws it.
    pub(crate) async fn call<R: Request>(&self, request: &R) -> Result<R::Result> {
        self.call_then(request, |_| {}).await
    }

    /// [`call`](Self::call) with something to do on the reader, before anything behind the answer is
    /// read: what changes a session's state must not undo a later update.
    pub(crate) async fn call_then<R: Request>(
        &self,
        request: &R,
        then: impl FnOnce(&R::Result) + Send + 'static,
    ) -> Result<R::Result> {
        let (sender, receiver) = oneshot::channel();
        let asked = self.peer.request_into(request, None, move |answer| {
            if let Ok(result) = &answer {
                then(result);
            }
            let _ = sender.send(answer);
        })?;
        let _withdraw = WithdrawOnDrop(asked);
        let answer = self.limited(R::METHOD, receiver).await?;
        answer.map_err(|error| Error::from(error).with_login(self.auth_methods()))
    }

    /// The same limit for an answer that comes another way.
    pub(crate) async fn limited<T>(&self, method: &str, answer: oneshot::Receiver<T>) -> Result<T> {
        let closed = || Error::from(RpcError::Closed(duologue_rpc::Closed::Local));
        let Some(after) = self.request_timeout else { return answer.await.map_err(|_| closed()) };
        match tokio::time::timeout(after, answer).await {
            Ok(answer) => answer.map_err(|_| closed()),
            Err(_) => Err(Error::from(RpcError::Timeout { method: method.into(), after })),
        }
    }
}

/// Withdraws a request that has no answer when it is dropped.
#[derive(Debug)]
pub(crate) struct WithdrawOnDrop(pub(crate) RequestHandle);

impl Drop for WithdrawOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

impl Drop for ConnectionInner {
    fn drop(&mut self) {
        match &self.process {
            Some(process) => process.close(),
            None => self.peer.close(),
        }
    }
}

impl Connection {
    /// What the agent answered to `initialize`, whole. Always there on a connection that
    /// [`Client`](crate::Client) made.
    #[must_use]
    pub fn hello(&self) -> Option<&InitializeResponse> {
        self.inner.hello.get()
    }

    /// What the agent offers beyond the baseline.
    #[must_use]
    pub fn capabilities(&self) -> &AgentCapabilities {
        self.inner.agent()
    }

    /// The agent's name and version, if it told.
    #[must_use]
    pub fn info(&self) -> Option<&Implementation> {
        self.inner.hello.get()?.agent_info.as_ref()
    }

    /// The ways to log in that the agent offers.
    #[must_use]
    pub fn auth_methods(&self) -> &[AuthMethod] {
        self.inner.auth_methods()
    }

    /// The connection itself, for extension methods and counts.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        self.inner.peer()
    }

    /// The agent as one that talks to agents, in no session: for `ping` and `discover`. A
    /// [`Session`] has the one to talk to. It does not keep the connection open.
    #[must_use]
    #[cfg_attr(not(feature = "exchange"), doc(hidden))]
    pub fn peer_agent(&self) -> &PeerAgent {
        self.inner.peer_agent()
    }

    /// Logs in by one of [`auth_methods`](Self::auth_methods).
    ///
    /// Methods of type `terminal` are not for this call: run the agent's program in a terminal with
    /// the method's arguments, and connect anew when it has ended.
    ///
    /// # Errors
    ///
    /// [`Error::NotSupported`] for a method of type `terminal`, and what the agent answers.
    pub async fn authenticate(&self, method: impl Into<AuthMethodId>) -> Result<()> {
        let method = method.into();
        let terminal = self
            .auth_methods()
            .iter()
            .any(|offered| matches!(offered, AuthMethod::Terminal(terminal) if terminal.id == method));
        self.inner.require(!terminal, "authMethods of a type other than terminal")?;
        self.inner.call(&AuthenticateRequest::new(method)).await?;
        Ok(())
    }

    /// Logs out. Needs an agent that advertises `auth.logout`.
    ///
    /// # Errors
    ///
    /// [`Error::NotSupported`], and what the agent answers.
    pub async fn logout(&self) -> Result<()> {
        self.inner.require(self.capabilities().auth.logout.is_some(), "auth.logout")?;
        self.inner.call(&LogoutRequest::default()).await?;
        Ok(())
    }

    /// A session in the folder `cwd`, an absolute path, with more to say about it.
    pub fn session_in(&self, cwd: impl Into<PathBuf>) -> SessionBuilder {
        SessionBuilder::new(self.clone(), cwd.into())
    }

    /// Makes a new session in the folder `cwd`, an absolute path.
    ///
    /// # Errors
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

    /// Restores a session without replaying it.
    ///
    /// # Errors
    ///
    /// As [`SessionBuilder::resume`].
    pub async fn resume_session(&self, id: impl Into<SessionId>, cwd: impl Into<PathBuf>) -> Result<Session> {
        self.session_in(cwd).resume(id).await
    }

    /// The sessions the agent knows, page by page as the listing is taken; only those of `cwd` if it
    /// is given. Needs an agent that advertises `sessionCapabilities.list`.
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
    /// [`Error::NotSupported`] and [`Error::RelativePath`] at once; what the agent answers comes out
    /// of the listing and ends it.
    pub fn list_sessions(&self, cwd: Option<PathBuf>) -> Result<Listing> {
        self.inner
            .require(self.capabilities().session_capabilities.list.is_some(), "sessionCapabilities.list")?;
        cwd.as_deref().map_or(Ok(()), absolute)?;
        Ok(Listing::new(self.inner.clone(), cwd))
    }

    /// Removes a session from the agent's list; an unknown one is no error. Needs an agent that
    /// advertises `sessionCapabilities.delete`.
    ///
    /// # Errors
    ///
    /// [`Error::NotSupported`], and what the agent answers.
    pub async fn delete_session(&self, id: impl Into<SessionId>) -> Result<()> {
        let offered = self.capabilities().session_capabilities.delete.is_some();
        self.inner.require(offered, "sessionCapabilities.delete")?;
        let id = id.into();
        let route = self.inner.router.route(&id).map(|route| (route.restored(), route));
        self.inner.call(&DeleteSessionRequest::new(id)).await?;
        if let Some((restored, route)) = route {
            self.inner.router.forget(&route, restored);
        }
        Ok(())
    }

    /// The end of what the agent wrote to stderr, at most 64 KiB. Empty for an agent that was not
    /// spawned.
    #[must_use]
    pub fn stderr(&self) -> String {
        self.inner.stderr()
    }

    /// Updates that went nowhere: for unknown sessions, or beyond what is kept between turns.
    #[must_use]
    pub fn dropped_updates(&self) -> u64 {
        self.inner.router.dropped()
    }

    /// Ends the agent and waits until it is gone: its input is closed, after 2 seconds its process
    /// group is sent TERM, after 2 more KILL. Its output is read meanwhile.
    ///
    /// Returns how the process ended; `None` for an agent that was not spawned.
    ///
    /// A program that a signal ends does not get here: its agents see the end of their input and no more. One that
    /// is to close them waits for the signal itself, with the feature `signal` of tokio:
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
    pub async fn close(&self) -> Option<ExitStatus> {
        let Some(process) = &self.inner.process else {
            self.peer().finish();
            // Its answers may still come; its end must.
            let _ = tokio::time::timeout(Duration::from_secs(2), self.peer().closed()).await;
            self.peer().close();
            self.peer().closed().await;
            return None;
        };
        process.close();
        let status = process.exited().await;
        // Handlers of ours get a moment to see that nobody waits for them, not their whole grace.
        let _ = tokio::time::timeout(Duration::from_millis(500), self.peer().closed()).await;
        status
    }

    /// Kills the agent's whole process group at once.
    pub fn kill(&self) {
        self.inner.kill();
    }

    /// Waits until the connection has ended, and tells why.
    pub async fn closed(&self) -> Error {
        Error::from(RpcError::Closed(self.peer().closed().await))
    }
}
