//! A session: prompts, settings, and what happens between turns.

use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use duologue_exchange::PeerAgent;
use duologue_rpc::{Error as RpcError, Queue};
use duologue_schema::{
    CloseSessionRequest, ConfigOptionUpdate, Conversation, CurrentModeUpdate, LoadSessionRequest,
    LoadSessionResponse, McpServer, Meta, NewSessionRequest, PromptRequest, Request as _,
    ResumeSessionRequest, SessionConfigOption, SessionId, SessionModeId, SessionState, SessionUpdate,
    SetSessionConfigOptionRequest, SetSessionModeRequest,
};
use futures::Stream;
use tokio::sync::oneshot;

use crate::connection::{Connection, ConnectionInner, WithdrawOnDrop};
use crate::error::{Error, Result};
use crate::prompt::PromptBuilder;
use crate::router::{SessionEntry, TurnRefused};
use crate::turn::Turn;
use crate::turn_events::TurnEvents;

/// A session that is about to be made or restored: its folder and what goes with it.
///
/// ```no_run
/// # async fn run(agent: duologue_client::Connection) -> duologue_client::Result<()> {
/// let session = agent
///     .session_in("/home/me/project")
///     .additional_directory("/home/me/library")
///     .create()
///     .await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "a session begins with create, load or resume"]
#[derive(Clone, Debug)]
pub struct SessionBuilder {
    connection: Connection,
    cwd: PathBuf,
    additional_directories: Vec<PathBuf>,
    mcp_servers: Vec<McpServer>,
    meta: Option<Meta>,
}

impl SessionBuilder {
    pub(crate) fn new(connection: Connection, cwd: PathBuf) -> Self {
        SessionBuilder {
            connection,
            cwd,
            additional_directories: Vec::new(),
            mcp_servers: Vec::new(),
            meta: None,
        }
    }

    /// Adds a folder the session may work in. The agent has to advertise
    /// `sessionCapabilities.additionalDirectories`.
    pub fn additional_directory(mut self, path: impl Into<PathBuf>) -> Self {
        self.additional_directories.push(path.into());
        self
    }

    /// Adds an MCP server for the agent to connect to. Servers over HTTP and SSE need an agent that
    /// advertises them.
    pub fn mcp_server(mut self, server: impl Into<McpServer>) -> Self {
        self.mcp_servers.push(server.into());
        self
    }

    /// Adds `_meta` to the request.
    pub fn meta(mut self, meta: Meta) -> Self {
        self.meta = Some(meta);
        self
    }

    /// Makes a new session.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future withdraws the request.
    ///
    /// # Errors
    ///
    /// [`Error::AuthRequired`] when the user has to log in first, [`Error::RelativePath`],
    /// [`Error::NotSupported`], and what the agent answers.
    pub async fn create(self) -> Result<Session> {
        let folders = self.check()?;
        let mut request = NewSessionRequest::new(self.cwd);
        request.mcp_servers = self.mcp_servers;
        request.additional_directories = self.additional_directories;
        request.meta = self.meta;
        let inner = self.connection.inner;
        inner.router.opening();
        let (sender, receiver) = oneshot::channel();
        let sent = inner.peer().request_into(&request, None, {
            let inner = Arc::downgrade(&inner);
            move |response| {
                // On the reader: the session is known before anything behind this answer is read.
                let Some(inner) = inner.upgrade() else { return };
                let route = inner.router.opened(response.as_ref().ok(), &folders);
                if let Err(Ok(Some(route))) = sender.send(response.map(|_| route)) {
                    // Nobody waits for it any more, so nobody will ever use it.
                    if inner.agent().session_capabilities.close.is_some() {
                        drop(inner.peer().request(&CloseSessionRequest::new(route.id.clone())).detach());
                    }
                }
            }
        });
        let _withdraw = match sent {
            Ok(asked) => WithdrawOnDrop(asked),
            Err(error) => {
                inner.router.opened(None, &[]);
                return Err(error.into());
            }
        };
        match inner.limited(NewSessionRequest::METHOD, receiver).await? {
            Ok(Some(route)) => Ok(Session { connection: inner, route }),
            Ok(None) => Err(Error::from(RpcError::Closed(duologue_rpc::Closed::Local))),
            Err(error) => Err(Error::from(error).with_login(inner.auth_methods())),
        }
    }

    /// Restores a session and replays its conversation: the stream of updates is there at once, and
    /// its outcome is the session. Needs an agent that advertises `loadSession`.
    ///
    /// # Errors
    ///
    /// [`Error::NotSupported`], [`Error::RelativePath`], [`Error::Connection`], and [`Error::Busy`]
    /// while the same session runs a turn or is being loaded; what the agent answers comes out of the
    /// replay.
    pub fn load(self, id: impl Into<SessionId>) -> Result<SessionReplay> {
        let folders = self.check()?;
        let inner = self.connection.inner;
        inner.require(inner.agent().load_session, "loadSession")?;
        let mut request = LoadSessionRequest::new(id.into(), self.cwd);
        request.mcp_servers = self.mcp_servers;
        request.additional_directories = self.additional_directories;
        request.meta = self.meta;
        let (sink, queue) = inner.peer().queue();
        let stream = sink.id();
        let route = inner.router.register_replay(&request.session_id, &folders, sink).ok_or(Error::Busy)?;
        let sent = inner.peer().request_into(&request, Some(stream), {
            let route = route.clone();
            move |response| {
                route.end_replay(response.map_err(Error::from));
            }
        });
        let withdraw = match sent {
            Ok(asked) => WithdrawOnDrop(asked),
            Err(error) => {
                route.end_replay(Err(Error::from(error.clone())));
                return Err(error.into());
            }
        };
        Ok(SessionReplay {
            session: Session { connection: inner, route },
            events: TurnEvents::new(queue),
            _withdraw: withdraw,
        })
    }

    /// Restores a session without replaying it. Needs an agent that advertises
    /// `sessionCapabilities.resume`.
    ///
    /// # Errors
    ///
    /// As [`create`](Self::create).
    pub async fn resume(self, id: impl Into<SessionId>) -> Result<Session> {
        let folders = self.check()?;
        let inner = self.connection.inner;
        inner.require(inner.agent().session_capabilities.resume.is_some(), "sessionCapabilities.resume")?;
        let mut request = ResumeSessionRequest::new(id.into(), self.cwd);
        request.additional_directories = self.additional_directories;
        request.meta = self.meta;
        request.mcp_servers = self.mcp_servers;
        let route = inner.router.register(&request.session_id, &folders);
        let restored = route.clone();
        let answer = inner.call_then(&request, move |response| {
            restored.begin_state(response.modes.as_ref(), response.config_options.as_deref());
        });
        match answer.await {
            Ok(_) => Ok(Session { connection: inner, route }),
            Err(error) => Err(error),
        }
    }

    /// The folders of the session, if it can be asked for.
    fn check(&self) -> Result<Vec<PathBuf>> {
        let agent = self.connection.inner.agent();
        let folders: Vec<_> =
            std::iter::once(&self.cwd).chain(&self.additional_directories).cloned().collect();
        folders.iter().try_for_each(|path| absolute(path))?;
        let inner = &self.connection.inner;
        if !self.additional_directories.is_empty() {
            let offered = agent.session_capabilities.additional_directories.is_some();
            inner.require(offered, "sessionCapabilities.additionalDirectories")?;
        }
        for server in &self.mcp_servers {
            match server {
                McpServer::Http(_) => inner.require(agent.mcp_capabilities.http, "mcpCapabilities.http")?,
                McpServer::Sse(_) => inner.require(agent.mcp_capabilities.sse, "mcpCapabilities.sse")?,
                _ => {}
            }
        }
        Ok(folders)
    }
}

pub(crate) fn absolute(path: &Path) -> Result<()> {
    if path.is_absolute() { Ok(()) } else { Err(Error::RelativePath { path: path.to_owned() }) }
}

/// One conversation with the agent. Cheap to clone.
#[derive(Clone)]
pub struct Session {
    connection: Arc<ConnectionInner>,
    route: Arc<SessionEntry>,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("id", &self.route.id).finish_non_exhaustive()
    }
}

impl Session {
    /// The session's id, to load or resume it later.
    #[must_use]
    pub fn id(&self) -> &SessionId {
        &self.route.id
    }

    /// The agent as one that talks to agents, spoken to in this session: to ask it, to delegate to it.
    ///
    /// Its calls fail with a typed error if the agent speaks no envelopes. It keeps the session known, so that
    /// the agent is heard in it, but not the connection open.
    #[must_use]
    #[cfg_attr(not(feature = "exchange"), doc(hidden))]
    pub fn peer_agent(&self) -> PeerAgent {
        self.connection.peer_agent().in_guarded_session(self.route.id.clone(), self.route.clone())
    }

    /// Starts a turn.
    ///
    /// After a turn that was cancelled or dropped this waits until the agent has ended it, for at
    /// most 10 seconds.
    ///
    /// # Errors
    ///
    /// [`Error::Busy`] while a turn is running, [`Error::NotSupported`] when the agent does not take
    /// a kind of content, [`Error::Connection`] and [`Error::AgentExited`] after the end.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future starts nothing, or cancels what it has started.
    pub async fn prompt(&self, prompt: impl Into<PromptBuilder>) -> Result<Turn> {
        let (blocks, meta) = prompt.into().for_agent(self.connection.agent())?;
        let (sink, queue) = self.connection.peer().queue();
        let stream = sink.id();
        let number = loop {
            let changed = self.connection.turn_ended.notified();
            match self.route.begin(sink.clone()) {
                Ok(number) => break number,
                Err(TurnRefused::Busy) => return Err(Error::Busy),
                Err(TurnRefused::Ending) => changed.await,
            }
        };
        self.route.asked(&blocks);
        let mut request = PromptRequest::new(self.route.id.clone(), blocks);
        request.meta = meta;
        let sent = self.connection.peer().request_into(&request, Some(stream), {
            let (connection, route) = (Arc::downgrade(&self.connection), self.route.clone());
            move |answer| {
                // On the reader: the answer takes its place behind the turn's updates.
                let answer = answer.map_err(Error::from);
                match connection.upgrade() {
                    Some(connection) => {
                        let methods = connection.auth_methods();
                        route.done(number, answer.map_err(|error| error.with_login(methods)));
                        connection.turn_ended.notify_waiters();
                    }
                    None => route.done(number, answer),
                }
            }
        });
        match sent {
            Ok(_) => {
                if self.route.is_cancelled(number) {
                    // The cancellation came between, and may have left before the prompt.
                    self.connection.send_cancel(&self.route);
                }
                Ok(Turn::new(self.connection.clone(), self.route.clone(), number, queue))
            }
            Err(error) => {
                let error = Error::from(error);
                self.route.done(number, Err(error.clone()));
                self.connection.turn_ended.notify_waiters();
                Err(error)
            }
        }
    }

    /// Cancels the running turn, whoever holds it. Does nothing between turns.
    pub fn cancel(&self) {
        if let Some(number) = self.route.running() {
            self.connection.cancel_turn(&self.route, number, false);
        }
    }

    /// Listens to updates between turns: those that were kept since nobody listened, then those to come. The
    /// last one who calls it gets them.
    ///
    /// The last 256 are kept, and 1 MiB of them. While all sessions together keep 16 MiB, one that is told
    /// something forgets its own oldest updates for it.
    #[must_use]
    pub fn updates(&self) -> Updates {
        let (sink, queue) = self.connection.peer().queue();
        self.route.listen(sink);
        Updates { queue, session: self.route.clone() }
    }

    /// The last word on modes, options, commands, plan, usage and title. Modes and options are there
    /// from the start; agents send the rest a moment after the session was made. What is longer than 1 MiB is not
    /// kept in it.
    #[must_use]
    pub fn state(&self) -> SessionState {
        self.route.state()
    }

    /// The conversation so far, if the client keeps conversations
    /// (see [`Client::keep_conversations`](crate::Client::keep_conversations)).
    #[must_use]
    pub fn conversation(&self) -> Option<Conversation> {
        self.route.conversation()
    }

    /// Switches to one of the modes in [`state`](Self::state).
    ///
    /// # Errors
    ///
    /// [`Error::NotSupported`] when the agent has no modes, and what it answers.
    pub async fn set_mode(&self, mode: impl Into<SessionModeId>) -> Result<()> {
        self.connection.require(self.route.has_modes(), "modes")?;
        let (route, mode) = (self.route.clone(), mode.into());
        let request = SetSessionModeRequest::new(self.route.id.clone(), mode.clone());
        let switched = move |_: &_| {
            route.change_state(&CurrentModeUpdate::new(mode).into());
        };
        self.connection.call_then(&request, switched).await?;
        Ok(())
    }

    /// Sets one of the options in [`state`](Self::state) to one of its values, and returns all of
    /// them as they are now.
    ///
    /// # Errors
    ///
    /// [`Error::NotSupported`] when the agent has no options, and what it answers.
    pub async fn set_config_option(
        &self,
        option: impl Into<duologue_schema::SessionConfigId>,
        value: impl Into<duologue_schema::SessionConfigOptionValue>,
    ) -> Result<Vec<SessionConfigOption>> {
        self.connection.require(self.route.has_options(), "configOptions")?;
        let request = SetSessionConfigOptionRequest::new(self.route.id.clone(), option.into(), value.into());
        let route = self.route.clone();
        let answer = self.connection.call_then(&request, move |response| {
            route.change_state(&ConfigOptionUpdate::new(response.config_options.clone()).into());
        });
        Ok(answer.await?.config_options)
    }

    /// Ends the session on the agent's side; a running turn is cancelled by it. Needs an agent that
    /// advertises `sessionCapabilities.close`.
    ///
    /// # Errors
    ///
    /// [`Error::NotSupported`], and what the agent answers.
    pub async fn close(&self) -> Result<()> {
        let offered = self.connection.agent().session_capabilities.close.is_some();
        self.connection.require(offered, "sessionCapabilities.close")?;
        // The agent is going to end the turn as if it were cancelled, so it may as well be.
        self.cancel();
        let restored = self.route.restored();
        self.connection.call(&CloseSessionRequest::new(self.route.id.clone())).await?;
        self.connection.router.forget(&self.route, restored);
        Ok(())
    }

    /// The connection the session belongs to.
    #[must_use]
    pub fn connection(&self) -> Connection {
        Connection { inner: self.connection.clone() }
    }
}

/// Updates of a session outside its turns. Ends with the connection.
pub struct Updates {
    queue: Queue<SessionUpdate>,
    /// Who listens to a session holds it.
    session: Arc<SessionEntry>,
}

impl std::fmt::Debug for Updates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Updates").field("session", &self.session.id).finish_non_exhaustive()
    }
}

impl Updates {
    /// Waits for the next update. When the connection has ended there is one error that says why, and
    /// `None` after it.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no update.
    pub async fn next(&mut self) -> Option<Result<SessionUpdate>> {
        self.queue.next().await.map(|update| update.map_err(Error::from))
    }
}

impl Stream for Updates {
    type Item = Result<SessionUpdate>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Pin::new(&mut self.queue).poll_next(cx).map(|item| item.map(|update| update.map_err(Error::from)))
    }
}

/// A session being restored: a stream of what happened in it, then the session. Dropping it before
/// its end withdraws the request.
#[must_use = "the session comes out of the replay"]
#[derive(Debug)]
pub struct SessionReplay {
    session: Session,
    events: TurnEvents<LoadSessionResponse>,
    _withdraw: WithdrawOnDrop,
}

impl SessionReplay {
    /// The next update, or `None` when the replay has ended.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no update.
    pub async fn next(&mut self) -> Option<Result<SessionUpdate>> {
        self.events.next().await
    }

    /// Waits for the end of the replay and gives the session. Updates that were not taken are
    /// skipped.
    ///
    /// # Errors
    ///
    /// What the agent answered, and [`Error::AuthRequired`] when the user has to log in first.
    pub async fn outcome(mut self) -> Result<Session> {
        match self.events.outcome().await {
            Ok(_) => Ok(self.session),
            Err(error) => Err(error.with_login(self.session.connection.auth_methods())),
        }
    }
}

impl Stream for SessionReplay {
    type Item = Result<SessionUpdate>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.events.poll_update(cx)
    }
}
