//! Sessions: prompts, settings and updates between turns.

use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use duologue_rpc::{Error as RpcError, QueueId, RequestHandle};
#[cfg(feature = "protocol-v2")]
use duologue_schema::SetSessionModeResponse;
use duologue_schema::{
    CloseSessionRequest, CloseSessionResponse, ConfigOptionUpdate, Conversation, CurrentModeUpdate,
    ErrorCode, LoadSessionRequest, LoadSessionResponse, McpServer, Meta, NewSessionRequest,
    NewSessionResponse, PromptRequest, ProtocolVersion, ResumeSessionRequest, SessionConfigId,
    SessionConfigOption, SessionConfigOptionValue, SessionId, SessionModeId, SessionModeState, SessionState,
    SessionUpdate, SetSessionConfigOptionRequest, SetSessionModeRequest, SteerOutcome, VersionedRequest,
};
use futures::Stream;
use tokio::sync::oneshot;

use crate::connection::{Connection, ConnectionInner, WithdrawOnDrop};
use crate::error::{Error, Result};
use crate::idle_updates::Updates;
use crate::open_state::RestoreTicket;
use crate::prompt::PromptBuilder;
use crate::request::RequestBuilder;
use crate::router::{ReplayTicket, Router, SessionEntry, TurnRefused, opened};
use crate::set_option::{SetOption, SetOptionResult, set_value};
use crate::turn::Turn;
use crate::turn_events::TurnEvents;

/// Builds the request that creates or restores a session.
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
#[must_use = "call create, load or resume to open the session"]
#[derive(Clone, Debug)]
pub struct SessionBuilder {
    pub(crate) connection: Connection,
    pub(crate) cwd: PathBuf,
    pub(crate) additional_directories: Vec<PathBuf>,
    pub(crate) mcp_servers: Vec<McpServer>,
    pub(crate) system_prompt: Option<duologue_schema::SystemPrompt>,
    pub(crate) meta: Option<Meta>,
}

impl SessionBuilder {
    pub(crate) fn new(connection: Connection, cwd: PathBuf) -> Self {
        SessionBuilder {
            connection,
            cwd,
            additional_directories: Vec::new(),
            mcp_servers: Vec::new(),
            system_prompt: None,
            meta: None,
        }
    }

    /// Adds a folder that the session may use. Needs an agent that advertises
    /// `sessionCapabilities.additionalDirectories`.
    pub fn additional_directory(mut self, path: impl Into<PathBuf>) -> Self {
        self.additional_directories.push(path.into());
        self
    }

    /// Adds an MCP server to which the agent should connect. Servers over HTTP and SSE need an agent that
    /// advertises them.
    pub fn mcp_server(mut self, server: impl Into<McpServer>) -> Self {
        self.mcp_servers.push(server.into());
        self
    }

    /// Sets the `_meta` of the request, or its trace context.
    pub fn meta(mut self, meta: impl Into<Meta>) -> Self {
        self.meta = Some(meta.into());
        self
    }

    /// Creates a session.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels the request. If the agent creates the session all the same, it is closed, if the agent
    /// supports that.
    ///
    /// # Errors
    ///
    /// [`Error::AuthRequired`] if the user has to log in first, [`Error::RelativePath`],
    /// [`Error::NotSupported`], and the error of the agent.
    pub async fn create(self) -> Result<Session> {
        let folders = self.check()?;
        let mut request = NewSessionRequest::new(self.cwd);
        request.mcp_servers = self.mcp_servers;
        request.additional_directories = self.additional_directories;
        request.meta = self.meta;
        request.system_prompt = self.system_prompt;
        open(self.connection.inner, request, folders, std::convert::identity).await
    }

    /// Restores a session and replays its conversation. Returns the stream of updates at once. The outcome
    /// of the stream is the session. Needs an agent that advertises `loadSession`.
    ///
    /// # Errors
    ///
    /// [`Error::NotSupported`], [`Error::RelativePath`], [`Error::Connection`], and [`Error::Busy`] while
    /// the same session runs a turn or is being loaded. The replay returns the error of the agent.
    pub fn load(self, id: impl Into<SessionId>) -> Result<SessionReplay> {
        let folders = self.check()?;
        let inner = self.connection.inner;
        inner.require(inner.agent().load_session, "loadSession")?;
        let mut request = LoadSessionRequest::new(id.into(), self.cwd);
        request.mcp_servers = self.mcp_servers;
        request.additional_directories = self.additional_directories;
        request.meta = self.meta;
        request.system_prompt = self.system_prompt;
        let (sink, queue) = inner.peer().queue();
        let stream = sink.id();
        let (entry, ticket) =
            inner.router.register_replay(&request.session_id, &folders, sink).ok_or(Error::Busy)?;
        let sent = inner.send_request(&request, Some(stream), {
            let (router, entry) = (inner.router.clone(), entry.clone());
            move |response| router.end_replay(&entry, ticket, response.map_err(Error::from))
        });
        let request = match sent {
            Ok(request) => WithdrawOnDrop(request),
            Err(error) => {
                inner.router.end_replay(&entry, ticket, Err(Error::from(error.clone())));
                return Err(error.into());
            }
        };
        let session = Session { connection: inner, entry };
        let abandon = AbandonOnDrop { _request: request, session: session.clone(), ticket };
        Ok(SessionReplay { session, events: TurnEvents::new(queue), _abandon: abandon })
    }

    /// Restores a session without a replay. Needs an agent that advertises `sessionCapabilities.resume`.
    ///
    /// # Errors
    ///
    /// As [`create`](Self::create).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels the request. The agent may restore the session all the same, which has an effect only if
    /// there are other handles of the session.
    pub async fn resume(self, id: impl Into<SessionId>) -> Result<Session> {
        let folders = self.check()?;
        let inner = self.connection.inner;
        inner.require(inner.agent().session_capabilities.resume.is_some(), "sessionCapabilities.resume")?;
        let mut request = ResumeSessionRequest::new(id.into(), self.cwd);
        request.additional_directories = self.additional_directories;
        request.meta = self.meta;
        request.mcp_servers = self.mcp_servers;
        request.system_prompt = self.system_prompt;
        let (entry, restore) = inner.router.register(&request.session_id, &folders);
        let restore = RunningRestore { router: inner.router.clone(), entry: entry.clone(), ticket: restore };
        let answer = inner.call_then(&request, move |response| {
            if let Some(response) = response {
                restore.entry.begin_resumed(opened!(response));
                restore.router.end_restore(&restore.entry, restore.ticket, true);
            }
        });
        answer.await?;
        Ok(Session { connection: inner, entry })
    }

    /// Checks the request and returns the folders of the session.
    pub(crate) fn check(&self) -> Result<Vec<PathBuf>> {
        self.check_system_prompt()?;
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
                #[cfg(feature = "unstable")]
                McpServer::Acp(_) => inner.require(agent.mcp_capabilities.acp, "mcpCapabilities.acp")?,
                _ => {}
            }
        }
        Ok(folders)
    }
}

/// Sends a request for a session with a new id. `as_new` returns its response as that to `session/new`.
pub(crate) async fn open<R: VersionedRequest>(
    inner: Arc<ConnectionInner>,
    request: R,
    folders: Vec<PathBuf>,
    as_new: fn(R::Result) -> NewSessionResponse,
) -> Result<Session> {
    inner.router.opening();
    let (sender, receiver) = oneshot::channel();
    let sent = inner.send_request(&request, None, {
        let inner = Arc::downgrade(&inner);
        move |response| {
            // This runs on the reader, so the session is registered before later messages are read.
            let Some(inner) = inner.upgrade() else { return };
            let response = response.map(as_new);
            let entry = inner.router.opened(response.as_ref().ok(), &folders);
            // If the caller has gone, the session is dropped with the message, which closes it.
            let connection = Arc::downgrade(&inner);
            let _ = sender.send(response.map(|_| UnclaimedSession { connection, entry }));
        }
    });
    let _withdraw = match sent {
        Ok(request) => WithdrawOnDrop(request),
        Err(error) => {
            inner.router.opened(None, &[]);
            return Err(error.into());
        }
    };
    match inner.limited(R::METHOD, receiver).await? {
        Ok(mut unclaimed) => match unclaimed.entry.take() {
            Some(entry) => Ok(Session { connection: inner, entry }),
            None => Err(Error::from(RpcError::Closed(duologue_rpc::Closed::Local))),
        },
        Err(error) => Err(Error::from(error).with_login(inner.auth_methods())),
    }
}

/// A `session/resume` without a response. Dropping it ends the restore as failed, unless it has succeeded.
struct RunningRestore {
    router: Arc<Router>,
    entry: Arc<SessionEntry>,
    ticket: RestoreTicket,
}

impl Drop for RunningRestore {
    fn drop(&mut self) {
        self.router.end_restore(&self.entry, self.ticket, false);
    }
}

/// A new session between the reader and its caller. Dropping it closes the session.
struct UnclaimedSession {
    connection: Weak<ConnectionInner>,
    entry: Option<Arc<SessionEntry>>,
}

impl Drop for UnclaimedSession {
    fn drop(&mut self) {
        if let (Some(entry), Some(connection)) = (self.entry.take(), self.connection.upgrade())
            && connection.agent().session_capabilities.close.is_some()
        {
            drop(connection.peer().request(&CloseSessionRequest::new(entry.id.clone())).detach());
        }
    }
}

pub(crate) fn absolute(path: &Path) -> Result<()> {
    if path.is_absolute() { Ok(()) } else { Err(Error::RelativePath { path: path.to_owned() }) }
}

/// A session with the agent. Cheap to clone.
///
/// # Cancel safety
///
/// Dropping the future of a request cancels the request. If the agent has acted on it already, its effect on this handle is
/// the same as without the drop.
#[derive(Clone)]
pub struct Session {
    pub(crate) connection: Arc<ConnectionInner>,
    pub(crate) entry: Arc<SessionEntry>,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("id", &self.entry.id).finish_non_exhaustive()
    }
}

impl Session {
    /// Returns the id of the session, with which it can be loaded or resumed later.
    #[must_use]
    pub fn id(&self) -> &SessionId {
        &self.entry.id
    }

    /// Returns the agent as a peer: a handle that sends it questions and tasks of another agent, outside of turns. An editor
    /// needs it only if it speaks for an agent of its own.
    ///
    /// If the agent does not support envelopes, the calls of the handle fail and nothing is sent. While a handle or a
    /// [`Session`] exists, the agent can send messages in this session too. The handle does not keep the connection open.
    #[must_use]
    #[cfg(feature = "exchange")]
    pub fn peer_agent(&self) -> duologue_exchange::PeerAgent {
        self.connection.peer_agent().in_guarded_session(self.entry.id.clone(), self.entry.clone())
    }

    /// Starts a turn.
    ///
    /// If the previous turn was cancelled or dropped, this waits until the agent has ended it, for at most
    /// 10 seconds.
    ///
    /// # Errors
    ///
    /// [`Error::Busy`] while a turn is running, [`Error::NotSupported`] if the agent does not accept a kind
    /// of content, [`Error::EmptyPrompt`] in version 2, [`Error::Connection`] and [`Error::AgentExited`] after the end of the connection.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future starts no turn, or cancels the turn that it has started.
    pub async fn prompt(&self, prompt: impl Into<PromptBuilder>) -> Result<Turn> {
        let (blocks, meta) = prompt.into().for_agent(self.connection.agent())?;
        if blocks.is_empty() && self.connection.version() > ProtocolVersion::V1 {
            return Err(Error::EmptyPrompt);
        }
        let (sink, queue) = self.connection.peer().queue();
        let stream = sink.id();
        let (number, between) = loop {
            let changed = self.entry.turn_ended();
            match self.entry.begin(sink.clone(), self.connection.version()) {
                Ok(begun) => break begun,
                Err(TurnRefused::Busy) => return Err(Error::Busy),
                Err(TurnRefused::Ending) => changed.await,
            }
        };
        let mut request = PromptRequest::new(self.entry.id.clone(), blocks);
        request.meta = meta;
        match self.send_prompt(request, stream, number) {
            Ok(_) => {
                if self.entry.is_cancelled(number) {
                    // The turn was cancelled meanwhile, and the cancellation may precede the prompt.
                    self.connection.send_cancel(&self.entry);
                }
                Ok(Turn::new(self.connection.clone(), self.entry.clone(), number, between, queue))
            }
            Err(error) => {
                let error = Error::from(error);
                self.entry.end_turn(number, Err(error.clone()));
                Err(error)
            }
        }
    }

    /// Adds the prompt of a turn to the conversation and sends it. The responses are delivered on the reader, so they follow
    /// the turn's updates in the queue.
    fn send_prompt(
        &self,
        request: PromptRequest,
        stream: QueueId,
        number: u64,
    ) -> Result<RequestHandle, RpcError> {
        let entry = self.entry.clone();
        #[cfg(feature = "protocol-v2")]
        if self.connection.version() > ProtocolVersion::V1 {
            let request = Arc::new(request);
            entry.expect_prompt(number, &request);
            return self.connection.send_prompt_v2(&request, stream, entry, number);
        }
        entry.add_prompt(&request);
        self.connection.peer().request_into(&request, Some(stream), move |answer| {
            entry.end_turn(number, answer.map_err(Error::from));
        })
    }

    /// Cancels the running turn, if there is one. After a load or resume this can be the turn of another client, see
    /// [`may_have_other_turn`](Self::may_have_other_turn). In version 2 it also cancels work that the agent began itself.
    pub fn cancel(&self) {
        #[cfg(not(feature = "protocol-v2"))]
        let has_own_work = false;
        #[cfg(feature = "protocol-v2")]
        let has_own_work = self.connection.version() > ProtocolVersion::V1;
        if !self.cancel_turn()
            && (has_own_work || self.may_have_other_turn())
            && let Some(questions) = self.entry.cancel_between_turns()
        {
            self.connection.send_cancel(&self.entry);
            questions.cancel();
        }
    }

    /// Returns true if the turn of another client may run. `duologue serve` says whether one runs, when the session is opened
    /// and at each change. With other agents it is true from a load or resume to the first successful turn of this client.
    /// The updates of such a turn are those of [`updates`](Self::updates), and [`cancel`](Self::cancel) ends it.
    #[must_use]
    pub fn may_have_other_turn(&self) -> bool {
        self.entry.may_have_other_turn()
    }

    /// Waits until no turn of another client runs, see [`may_have_other_turn`](Self::may_have_other_turn).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    pub async fn other_turn_ended(&self) {
        self.entry.other_turn_ended().await;
    }

    /// Cancels the running turn. Returns false if there is none.
    fn cancel_turn(&self) -> bool {
        let running = self.entry.running();
        if let Some(number) = running {
            self.connection.cancel_turn(&self.entry, number, false);
        }
        running.is_some()
    }

    /// Sends a message of the user for the running turn, and returns its effect. Needs an agent that advertises
    /// `_meta.steering`, an extension that several agents have. The request tells it to start nothing if no turn runs, with
    /// the outcome [`PromptRequired`](SteerOutcome::PromptRequired): send the message as a prompt then.
    ///
    /// ```no_run
    /// use duologue_client::schema::SteerOutcome;
    ///
    /// # async fn run(session: duologue_client::Session) -> duologue_client::Result<()> {
    /// match session.steer("Only the tests, please.").await? {
    ///     SteerOutcome::PromptRequired => drop(session.prompt("Only the tests, please.").await?.outcome().await?),
    ///     SteerOutcome::Failed => println!("The agent cannot take this now."),
    ///     // The agent has the message. Its updates are part of the running turn, or between turns.
    ///     _ => {}
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::NotSupported`] for an agent without steering or without a kind of content, and the error of the agent.
    ///
    /// # Cancel safety
    ///
    /// As [the type](Self#cancel-safety).
    pub async fn steer(&self, message: impl Into<PromptBuilder>) -> Result<SteerOutcome> {
        self.connection.steer(&self.entry, message.into()).await
    }

    /// Returns the updates that arrive while no turn runs, for example a new title or late text.
    ///
    /// An update belongs to the [`Turn`] that runs when it arrives: from the call of [`prompt`](Self::prompt) to the end of
    /// the turn. All other updates are in this stream, in the order of the wire. It begins with the updates that
    /// arrived before this call. A session has one such stream: a later call ends the stream of an earlier one.
    ///
    /// A session keeps the last 256 updates and at most 1 MiB of them. If all sessions together exceed 16 MiB,
    /// the session that receives an update evicts its own oldest ones.
    #[must_use]
    pub fn updates(&self) -> Updates {
        Updates::of(&self.connection, &self.entry)
    }

    /// Returns the current modes, options, commands, plan, usage and title. Modes and options are present from
    /// the start. In version 2 the modes are one of the options, see [`modes`](Self::modes). Agents send the others
    /// shortly after the session was created. Values over 1 MiB are only kept by a client that
    /// [keeps conversations](crate::Client::keep_conversations).
    #[must_use]
    pub fn state(&self) -> SessionState {
        self.entry.read_state(SessionState::clone)
    }

    /// Returns the conversation so far, if the client keeps conversations
    /// (see [`Client::keep_conversations`](crate::Client::keep_conversations)).
    ///
    /// This copies the whole conversation, and updates of the session wait meanwhile. To follow a conversation, read it
    /// with [`with_conversation`](Self::with_conversation).
    #[must_use]
    pub fn conversation(&self) -> Option<Conversation> {
        self.with_conversation(Conversation::clone)
    }

    /// Passes the conversation so far to `read` and returns the result, if the client keeps conversations.
    ///
    /// The updates of all sessions wait meanwhile, so `read` must be short. It must not use the session, which would
    /// deadlock.
    pub fn with_conversation<T>(&self, read: impl FnOnce(&Conversation) -> T) -> Option<T> {
        self.entry.with_conversation(read)
    }

    /// Returns the modes with the current one, if the agent has modes. Some agents of version 1 have a config option for
    /// modes instead, and all of version 2, where this returns the values of the option.
    #[must_use]
    pub fn modes(&self) -> Option<SessionModeState> {
        self.entry.read_state(|state| {
            #[cfg(feature = "protocol-v2")]
            if let Some(option) = self.mode_option(state) {
                return option.to_modes();
            }
            state.modes.clone()
        })
    }

    /// Returns the option for modes of an agent of version 2.
    #[cfg(feature = "protocol-v2")]
    fn mode_option<'a>(&self, state: &'a SessionState) -> Option<&'a SessionConfigOption> {
        let is_v2 = self.connection.version() > ProtocolVersion::V1;
        is_v2.then(|| duologue_schema::v2::convert::mode_option(&state.config_options)).flatten()
    }

    /// Returns the config options with their current values.
    #[must_use]
    pub fn config_options(&self) -> Vec<SessionConfigOption> {
        self.entry.read_state(|state| state.config_options.clone())
    }

    /// Returns the `_meta` of the response that created or restored the session.
    #[must_use]
    pub fn meta(&self) -> Option<Meta> {
        self.entry.meta()
    }

    /// Switches to one of the [`modes`](Self::modes).
    ///
    /// ```no_run
    /// # async fn run(session: duologue_client::Session) -> duologue_client::Result<()> {
    /// for mode in session.modes().iter().flat_map(|modes| &modes.available_modes) {
    ///     println!("{} {}", mode.id, mode.name);
    /// }
    /// session.set_mode("code").await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Nothing is sent with [`Error::NotSupported`] if the agent has no modes, and [`Error::NotOffered`] if this is none of
    /// them. [`unchecked`](RequestBuilder::unchecked) sends it anyway. Otherwise the error of the agent.
    ///
    /// # Cancel safety
    ///
    /// As [the type](Self#cancel-safety).
    pub fn set_mode(&self, mode: impl Into<SessionModeId>) -> RequestBuilder<SetSessionModeRequest> {
        let (entry, mode) = (self.entry.clone(), mode.into());
        let request = SetSessionModeRequest::new(self.entry.id.clone(), mode.clone());
        let (offering, wanted) = (self.clone(), mode.clone());
        let check = move || match offering.modes() {
            Some(modes) => Ok(modes.check(&wanted)?),
            None => Err(Error::NotSupported { capability: "modes" }),
        };
        let set_meta = |request: &mut SetSessionModeRequest, meta| request.meta = Some(meta);
        #[cfg(feature = "protocol-v2")]
        if self.connection.version() > ProtocolVersion::V1 {
            let session = self.clone();
            return RequestBuilder::sent_by(
                &self.connection,
                request,
                set_meta,
                check,
                |_, request| async move { session.set_mode_option(request).await },
            );
        }
        let switched = move |response: Option<&_>| {
            if response.is_some() {
                entry.change_state(&CurrentModeUpdate::new(mode).into());
            }
        };
        RequestBuilder::new(&self.connection, request, set_meta, check, switched)
    }

    /// Switches the mode of an agent of version 2, which has an option for modes.
    #[cfg(feature = "protocol-v2")]
    async fn set_mode_option(&self, request: SetSessionModeRequest) -> Result<SetSessionModeResponse> {
        let option = self.entry.read_state(|state| self.mode_option(state).map(|option| option.id.clone()));
        let option = option.ok_or(Error::NotSupported { capability: "modes" })?;
        let mut set = self.set_config_option(option, request.mode_id.as_str()).unchecked();
        if let Some(meta) = request.meta {
            set = set.meta(meta);
        }
        let mut response = SetSessionModeResponse::new();
        response.meta = set.await?.meta;
        Ok(response)
    }

    /// Sets one of the [`config_options`](Self::config_options) to one of its values. The response has all options, those of
    /// the session if the agent sends none.
    ///
    /// # Errors
    ///
    /// Nothing is sent with [`Error::NotSupported`] if the agent has no options, and [`Error::NotOffered`] if it has not this
    /// option or this value. [`unchecked`](RequestBuilder::unchecked) sends it anyway. Otherwise the error of the agent.
    ///
    /// # Cancel safety
    ///
    /// As [the type](Self#cancel-safety).
    pub fn set_config_option(
        &self,
        option: impl Into<SessionConfigId>,
        value: impl Into<SessionConfigOptionValue>,
    ) -> RequestBuilder<SetSessionConfigOptionRequest> {
        let (entry, option, value) = (self.entry.clone(), option.into(), value.into());
        let request =
            SetSessionConfigOptionRequest::new(self.entry.id.clone(), option.clone(), value.clone());
        let (offering, checked) = (entry.clone(), (option.clone(), value.clone()));
        let check = move || {
            offering.read_state(|state| match &*state.config_options {
                [] => Err(Error::NotSupported { capability: "configOptions" }),
                options => Ok(SessionConfigOption::check(options, &checked.0, &checked.1)?),
            })
        };
        let send = move |connection: Arc<ConnectionInner>, request| async move {
            let before = entry.read_state(|state| state.config_options.clone());
            let in_reader = entry.clone();
            let set = move |result: Option<&SetOptionResult>| {
                let Some(result) = result else { return };
                let mut options = result.response.config_options.clone();
                if !result.has_options {
                    options = in_reader.read_state(|state| state.config_options.clone());
                    // An update of the agent has the last word.
                    if options == before {
                        set_value(&mut options, &option, &value);
                    }
                }
                in_reader.change_state(&ConfigOptionUpdate::new(options).into());
            };
            let mut result = connection.call_then(&SetOption(request), set).await?;
            if !result.has_options {
                result.response.config_options = entry.read_state(|state| state.config_options.clone());
            }
            Ok(result.response)
        };
        let set_meta = |request: &mut SetSessionConfigOptionRequest, meta| request.meta = Some(meta);
        RequestBuilder::sent_by(&self.connection, request, set_meta, check, send)
    }

    /// Closes the session of the agent and cancels a running turn. Needs an agent that advertises
    /// `sessionCapabilities.close`. In version 2 a session that the agent does not know counts as closed.
    ///
    /// # Errors
    ///
    /// [`Error::NotSupported`], and the error of the agent.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels the request, but the running turn stays cancelled. If the agent closes the session all the
    /// same, it is closed here too.
    pub fn close(&self) -> RequestBuilder<CloseSessionRequest> {
        let offered = self.connection.agent().session_capabilities.close.is_some();
        let check = self.connection.require(offered, "sessionCapabilities.close");
        let request = CloseSessionRequest::new(self.entry.id.clone());
        let set_meta = |request: &mut CloseSessionRequest, meta| request.meta = Some(meta);
        let session = self.clone();
        let send = move |connection: Arc<ConnectionInner>, request| async move {
            // The agent ends the turn as if it were cancelled, so it is cancelled here too.
            session.cancel_turn();
            let (router, entry, restored) =
                (connection.router.clone(), session.entry.clone(), session.entry.restored());
            let closed = move |response: Option<&_>| {
                if response.is_some() {
                    router.forget(&entry, restored);
                }
            };
            match connection.call_then(&request, closed).await {
                // In version 2 a session that the agent does not know counts as closed.
                Err(Error::Response(error))
                    if error.code == ErrorCode::RESOURCE_NOT_FOUND
                        && connection.version() > ProtocolVersion::V1 =>
                {
                    connection.router.forget(&session.entry, restored);
                    Ok(CloseSessionResponse::new())
                }
                closed => closed,
            }
        };
        RequestBuilder::sent_by(&self.connection, request, set_meta, || check, send)
    }

    /// Returns the connection of the session.
    #[must_use]
    pub fn connection(&self) -> Connection {
        Connection { inner: self.connection.clone() }
    }
}

/// The replay of a session: a stream of its updates with the session as outcome. Dropping it before its
/// end cancels the request. If the agent does not respond within 10 seconds, the session can be used again.
///
/// The replay ends with the response of the agent. Over HTTP with server-sent events some servers send that response
/// on another stream than the updates, so that it can overtake them. Those updates are in [`Session::updates`], or in the
/// turn that runs when they arrive, and the [conversation](Session::conversation) has all of them in order. Late text without
/// a message id begins a new message there.
#[must_use = "await the outcome of the replay to get the session"]
#[derive(Debug)]
pub struct SessionReplay {
    session: Session,
    events: TurnEvents<LoadSessionResponse>,
    _abandon: AbandonOnDrop,
}

/// Cancels a load when it is dropped, and ends it after a timeout if the agent ignores that.
#[derive(Debug)]
struct AbandonOnDrop {
    _request: WithdrawOnDrop,
    session: Session,
    ticket: ReplayTicket,
}

impl Drop for AbandonOnDrop {
    fn drop(&mut self) {
        self.session.connection.abandon_replay(&self.session.entry, self.ticket);
    }
}

impl SessionReplay {
    /// Returns the next update, or `None` at the end of the replay.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no update.
    pub async fn next(&mut self) -> Option<Result<SessionUpdate>> {
        self.events.next().await
    }

    /// Waits for the end of the replay and returns the session. Skips the remaining updates.
    ///
    /// # Errors
    ///
    /// The error of the agent, and [`Error::AuthRequired`] if the user has to log in first.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels the request, as dropping the replay does.
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
