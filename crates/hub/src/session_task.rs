//! The task of a session: executes the actions of its owner.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use duologue_rpc::raw_message::{member, member_text, splice};
use duologue_rpc::{Limits, RpcMessage};
use duologue_schema::{
    InitializeResponse, LoadSessionRequest, NewSessionRequest, Patch, Request as _, RequestId,
    ResumeSessionRequest, SessionId, SessionNotification, SessionUpdate,
};
use duologue_store::{FileLog, Log, LogLine};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use crate::abilities::Abilities;
use crate::error::Error;
use crate::hosted_agent::HostedAgent;
use crate::hub::HubShared;
use crate::input::{OwnerAction, OwnerInput};
use crate::owner::SessionOwner;
use crate::projection::{error_response, interruption};
use crate::record::ClientKey;

/// The agent is not read above this number of bytes that wait for the log.
const UNWRITTEN_BYTES: usize = 4 << 20;
/// Limit on the messages of clients that wait for the session.
const COMMANDS: usize = 64;
/// The time after which a session without a client and a turn ends its process.
const IDLE: Duration = Duration::from_secs(10 * 60);

/// The responses for a client that are not in a log.
pub(crate) type Replies = mpsc::UnboundedSender<Vec<u8>>;

/// A message to the task of a session.
#[derive(Debug)]
pub(crate) enum SessionCommand {
    Attach {
        client: ClientKey,
        /// Distinguishes this attachment from others of the client.
        attachment: u64,
        abilities: Abilities,
        replies: Replies,
        /// The params of the client, with which the agent is started again from now on. Absent members stay.
        params: Option<Value>,
        attached: oneshot::Sender<AttachReply>,
    },
    FromClient {
        client: ClientKey,
        line: Vec<u8>,
    },
    /// An older attachment than the last one has no effect.
    Left {
        client: ClientKey,
        attachment: u64,
    },
    /// The client closes the session. The process ends with the last client.
    Release {
        client: ClientKey,
        attachment: u64,
        done: oneshot::Sender<()>,
    },
    /// Ends the process of the agent and the task.
    Close(oneshot::Sender<()>),
}

/// The place of a client that has opened a session.
#[derive(Debug)]
pub(crate) struct AttachReply {
    /// The position behind which the client reads the log.
    pub(crate) position: u64,
    /// The position behind what the attachment itself has recorded.
    pub(crate) end: u64,
    /// The requests of the client that wait for their responses.
    pub(crate) requests: Vec<RequestId>,
}

/// A session whose task runs.
#[derive(Clone, Debug)]
pub(crate) struct LiveSession {
    pub(crate) id: SessionId,
    pub(crate) commands: mpsc::Sender<SessionCommand>,
    /// The position up to which clients may read.
    pub(crate) visible: watch::Receiver<u64>,
    /// True while a prompt runs.
    pub(crate) has_turn: watch::Receiver<bool>,
    /// The log, while the task or a reader of it runs.
    pub(crate) log: Weak<FileLog>,
}

/// The outcome of a write: the position of the last record, and whether it was synced.
type Written = Result<(u64, bool), duologue_store::Error>;
/// The process, the id of the session at the agent, and true if the agent knows the conversation.
type Started = Result<(HostedAgent, String, bool), StartFailure>;

/// The reason for which a process does not continue a session.
#[derive(Debug)]
enum StartFailure {
    ContextLost,
    Error(Error),
}

pub(crate) struct SessionTask {
    id: SessionId,
    owner: SessionOwner,
    hub: Weak<HubShared>,
    log: Arc<FileLog>,
    began: Instant,
    agent: Option<HostedAgent>,
    /// The id of the session at the agent.
    agent_session: String,
    /// The params of `session/new`, with which the session is restored.
    params: Value,
    /// The clients, with the number of their last attachment.
    replies: HashMap<ClientKey, (u64, Replies)>,
    visible: watch::Sender<u64>,
    /// True while a prompt runs.
    turns: watch::Sender<bool>,
    batch: Vec<LogLine>,
    wants_sync: bool,
    writing: Option<JoinHandle<Written>>,
    starting: Option<JoinHandle<Started>>,
    /// The update of the index that runs, and the one that follows it: with the title if that has changed.
    indexing: Option<JoinHandle<()>>,
    to_index: Option<Option<Option<String>>>,
    /// The agent reads no more.
    agent_failed: bool,
}

impl SessionTask {
    /// Starts the task.
    pub(crate) fn spawn(
        hub: &Arc<HubShared>,
        id: SessionId,
        owner: SessionOwner,
        log: Arc<FileLog>,
        agent: Option<HostedAgent>,
        agent_session: String,
        params: Value,
    ) -> LiveSession {
        let (sender, commands) = mpsc::channel(COMMANDS);
        let (visible, readers) = watch::channel(owner.visible());
        let log_of_readers = Arc::downgrade(&log);
        let turns = watch::Sender::new(owner.has_turn());
        let live = LiveSession {
            id: id.clone(),
            commands: sender,
            visible: readers,
            has_turn: turns.subscribe(),
            log: log_of_readers,
        };
        let task = SessionTask {
            id,
            owner,
            hub: Arc::downgrade(hub),
            log,
            began: Instant::now(),
            agent,
            agent_session,
            params,
            replies: HashMap::new(),
            visible,
            turns,
            batch: Vec::new(),
            wants_sync: false,
            writing: None,
            starting: None,
            indexing: None,
            to_index: None,
            agent_failed: false,
        };
        tokio::spawn(task.run(commands));
        live
    }

    async fn run(mut self, mut commands: mpsc::Receiver<SessionCommand>) {
        let mut waits_for_end = None;
        self.input(OwnerInput::Time);
        let mut idle_since = Instant::now();
        loop {
            self.write();
            let now = self.now();
            let is_used = !self.replies.is_empty() || self.owner.has_turn();
            if is_used {
                idle_since = Instant::now();
            }
            let until_idle = IDLE.saturating_sub(idle_since.elapsed());
            let deadline = self.owner.deadline().map(|at| at.saturating_sub(now));
            let sleep = deadline.map_or(until_idle, |deadline| deadline.min(until_idle));
            // Above the limit nobody is read until the log has caught up.
            let reads = self.owner.unwritten_bytes() < UNWRITTEN_BYTES;
            tokio::select! {
                command = commands.recv(), if reads => match command {
                    None => {
                        self.close().await;
                        break;
                    }
                    Some(SessionCommand::Release { client, attachment, done }) => {
                        self.refuse_requests_of(&client);
                        self.command(SessionCommand::Left { client, attachment });
                        if self.replies.is_empty() {
                            self.close().await;
                            waits_for_end = Some(done);
                            break;
                        }
                        let _ = done.send(());
                    }
                    Some(SessionCommand::Close(done)) => {
                        self.close().await;
                        waits_for_end = Some(done);
                        break;
                    }
                    Some(command) => self.command(command),
                },
                line = next_line(&mut self.agent), if reads => match line {
                    Some(line) => {
                        let line = with_session(line, &self.agent_session, self.id.as_str());
                        let had_turn = self.owner.has_turn();
                        self.input(OwnerInput::FromAgent(&line));
                        let title = new_title(&line);
                        if title.is_some() || (had_turn && !self.owner.has_turn()) {
                            self.to_index = Some(title.or_else(|| self.to_index.take().flatten()));
                            self.index();
                        }
                    }
                    None => {
                        self.agent = None;
                        self.input(OwnerInput::AgentEnded("the agent's process ended"));
                    }
                },
                written = join(&mut self.writing) => {
                    self.writing = None;
                    match written {
                        Ok((end, false)) => self.input(OwnerInput::Written(end)),
                        Ok((end, true)) => self.input(OwnerInput::Synced(end)),
                        Err(error) => {
                            self.fail(&Error::Log(error));
                            break;
                        }
                    }
                },
                () = join(&mut self.indexing) => {
                    self.indexing = None;
                    self.index();
                }
                started = join(&mut self.starting) => {
                    self.starting = None;
                    self.started(started);
                },
                () = tokio::time::sleep(sleep) => {
                    if idle_since.elapsed() >= IDLE {
                        self.close().await;
                        break;
                    }
                    self.input(OwnerInput::Time);
                }
            }
        }
        self.end(commands);
        if let Some(done) = waits_for_end {
            let _ = done.send(());
        }
    }

    /// Removes the session from the hub, and answers the requests that wait for it. A task that opens it again waits
    /// until its commands are closed.
    fn end(self, mut commands: mpsc::Receiver<SessionCommand>) {
        commands.close();
        while let Ok(command) = commands.try_recv() {
            let SessionCommand::FromClient { client, line } = command else { continue };
            if let (Some((_, replies)), Some(answer)) = (self.replies.get(&client), ended_response(&line)) {
                let _ = replies.send(answer);
            }
        }
        if let Some(hub) = self.hub.upgrade() {
            hub.forget(&self.id);
        }
    }

    /// Returns the time since the log began.
    fn now(&self) -> Duration {
        self.log.opened_at() + self.began.elapsed()
    }

    fn command(&mut self, command: SessionCommand) {
        match command {
            SessionCommand::Attach { client, attachment, abilities, replies, params, attached } => {
                self.replies.insert(client.clone(), (attachment, replies));
                // Members that the request leaves out stay, such as the MCP servers.
                if let (Some(Value::Object(given)), Some(params)) = (params, self.params.as_object_mut()) {
                    params.extend(given);
                }
                let position = self.owner.end();
                self.input(OwnerInput::Attached { client: &client, abilities, is_host: true });
                let (end, requests) = (self.owner.end(), self.owner.requests_of(&client));
                let _ = attached.send(AttachReply { position, end, requests });
            }
            SessionCommand::FromClient { client, line } => {
                self.input(OwnerInput::FromClient { client: &client, number: 0, line: &line });
            }
            SessionCommand::Left { client, attachment } => {
                if self.replies.get(&client).is_some_and(|(last, _)| *last == attachment) {
                    self.replies.remove(&client);
                    self.input(OwnerInput::Left(&client));
                }
            }
            SessionCommand::Release { .. } | SessionCommand::Close(_) => {}
        }
    }

    /// Answers the requests of a client that closes the session while others go on. Those of the last client are in the log.
    fn refuse_requests_of(&self, client: &ClientKey) {
        let Some((_, replies)) = self.replies.get(client).filter(|_| self.replies.len() > 1) else { return };
        let error =
            interruption("session_closed", "this client closed the session, which goes on for others");
        for request in self.owner.requests_of(client) {
            let _ = replies.send(error_response(request.token(), &error));
        }
    }

    /// Gives an input to the owner and executes its actions.
    fn input(&mut self, input: OwnerInput<'_>) {
        self.handle(input);
        if std::mem::take(&mut self.agent_failed) {
            self.agent = None;
            self.handle(OwnerInput::AgentEnded("the agent's process reads no more"));
        }
    }

    fn handle(&mut self, input: OwnerInput<'_>) {
        for action in self.owner.handle(self.now(), input) {
            match action {
                OwnerAction::Append(line) => match LogLine::new(line) {
                    Ok(line) => self.batch.push(line),
                    Err(error) => tracing::error!(session = %self.id, %error, "a record is invalid"),
                },
                OwnerAction::Sync => self.wants_sync = true,
                OwnerAction::ToAgent(line) => {
                    let line = with_session(line, self.id.as_str(), &self.agent_session);
                    if self.agent.as_ref().is_some_and(|agent| !agent.send(line)) {
                        // The end is an input of its own, after these actions.
                        self.agent_failed = true;
                    }
                }
                OwnerAction::Reply { client, line } => {
                    if let Some((_, replies)) = self.replies.get(&client) {
                        let _ = replies.send(line);
                    }
                }
                OwnerAction::Acknowledge { .. } => {}
                OwnerAction::StartAgent { fresh } => self.start_agent(fresh),
            }
        }
        publish(&self.visible, self.owner.visible());
        publish(&self.turns, self.owner.has_turn());
    }

    /// Writes the records that wait, unless a write is under way.
    fn write(&mut self) {
        if self.writing.is_some() || (self.batch.is_empty() && !self.wants_sync) {
            return;
        }
        let (lines, syncs) = (std::mem::take(&mut self.batch), std::mem::take(&mut self.wants_sync));
        let log = self.log.clone();
        self.writing = Some(tokio::task::spawn_blocking(move || {
            let end = log.append(&lines)?;
            if syncs {
                log.sync()?;
            }
            Ok((end.number(), syncs))
        }));
    }

    /// Updates the index, beside the work of the session and one update at a time.
    fn index(&mut self) {
        let hub = self.hub.upgrade().filter(|_| self.indexing.is_none());
        let Some((hub, title)) = hub.and_then(|hub| Some((hub, self.to_index.take()?))) else { return };
        let id = self.id.clone();
        self.indexing = Some(tokio::spawn(async move { hub.changed(&id, title).await }));
    }

    fn start_agent(&mut self, fresh: bool) {
        let Some(hub) = self.hub.upgrade() else { return };
        let (agent_session, params) = (self.agent_session.clone(), self.params.clone());
        self.starting = Some(tokio::spawn(async move {
            let (mut agent, introduction) = hub.start_agent().await.map_err(StartFailure::Error)?;
            let (agent_session, has_context) =
                restore(&mut agent, &introduction, agent_session, params, fresh).await?;
            Ok((agent, agent_session, has_context))
        }));
    }

    fn started(&mut self, started: Started) {
        match started {
            Ok((agent, agent_session, has_context)) => {
                self.agent = Some(agent);
                let new_session = (!has_context).then_some(agent_session.as_str());
                self.agent_session.clone_from(&agent_session);
                self.input(OwnerInput::AgentStarted { new_session });
            }
            Err(StartFailure::ContextLost) => self.input(OwnerInput::ContextLost),
            Err(StartFailure::Error(error)) => self.input(OwnerInput::AgentEnded(&error.to_string())),
        }
    }

    /// Ends the process and writes the end of what was open.
    async fn close(&mut self) {
        let agent = self.agent.take();
        if let Some(starting) = self.starting.take() {
            starting.abort();
        }
        self.input(OwnerInput::AgentEnded("the session was closed"));
        while self.writing.is_some() || !self.batch.is_empty() {
            self.write();
            let written = join(&mut self.writing).await;
            self.writing = None;
            match written {
                Ok((end, _)) => self.input(OwnerInput::Written(end)),
                Err(error) => return self.fail(&Error::Log(error)),
            }
        }
        if let Some(indexing) = self.indexing.take() {
            let _ = indexing.await;
        }
        self.index();
        if let Some(indexing) = self.indexing.take() {
            let _ = indexing.await;
        }
        let log = self.log.clone();
        let synced = tokio::task::spawn_blocking(move || log.sync()).await;
        if let Ok(Ok(end)) = synced {
            self.input(OwnerInput::Synced(end.number()));
        }
        // A process that is started for this session later must not find this one in its folders.
        if let Some(agent) = agent {
            agent.end().await;
        }
    }

    /// Ends the session because its log failed. Records that were accepted stay.
    fn fail(&mut self, error: &Error) {
        tracing::error!(session = %self.id, %error, "the log of a session failed");
        for action in self.owner.fail(&error.to_string()) {
            if let OwnerAction::Reply { client, line } = action
                && let Some((_, replies)) = self.replies.get(&client)
            {
                let _ = replies.send(line);
            }
        }
    }
}

/// Sends a value if it has changed.
fn publish<T: PartialEq>(sender: &watch::Sender<T>, value: T) {
    sender.send_if_modified(|last| {
        let is_new = *last != value;
        *last = value;
        is_new
    });
}

/// Returns the response to a request of a client whose session has ended.
pub(crate) fn ended_response(line: &[u8]) -> Option<Vec<u8>> {
    let Some(Ok(RpcMessage::Request { id, .. })) = RpcMessage::read(line, &Limits::default()) else {
        return None;
    };
    let error = interruption("session_ended", "the session was closed or deleted; load it again");
    Some(error_response(id.token(), &error))
}

/// Restores a session in a new process. Returns the id at the agent, and true if the agent knows the conversation.
async fn restore(
    agent: &mut HostedAgent,
    introduction: &InitializeResponse,
    agent_session: String,
    mut params: Value,
    fresh: bool,
) -> Result<(String, bool), StartFailure> {
    let capabilities = &introduction.agent_capabilities;
    let method = if capabilities.session_capabilities.resume.is_some() {
        Some(ResumeSessionRequest::METHOD)
    } else if capabilities.load_session {
        Some(LoadSessionRequest::METHOD)
    } else {
        None
    };
    if let Some(params) = params.as_object_mut() {
        params.entry("mcpServers").or_insert_with(|| json!([]));
    }
    if let Some(method) = method {
        params["sessionId"] = json!(agent_session);
        match agent.request(method, &params).await {
            Ok(_) => {
                agent.drop_early();
                return Ok((agent_session, true));
            }
            Err(Error::Agent { error, .. }) => {
                tracing::info!(%error, "the agent cannot restore a session");
                agent.drop_early();
            }
            Err(error) => return Err(StartFailure::Error(error)),
        }
    }
    if !fresh {
        return Err(StartFailure::ContextLost);
    }
    if let Some(params) = params.as_object_mut() {
        params.remove("sessionId");
    }
    let result = agent.request(NewSessionRequest::METHOD, &params).await.map_err(StartFailure::Error)?;
    let agent_session = session_of(&result).ok_or(StartFailure::ContextLost)?;
    Ok((agent_session, false))
}

/// Returns the `sessionId` of a result.
pub(crate) fn session_of(result: &RawValue) -> Option<String> {
    Some(member_text(result.get().as_bytes(), "sessionId")?.into_owned())
}

/// Replaces the id of a session in the params of a message. A message of another session stays as it is.
fn with_session(line: Vec<u8>, from: &str, to: &str) -> Vec<u8> {
    let replaced = || {
        let params = member(&line, "params")?;
        let start = params.start;
        let params = line.get(params)?;
        if member_text(params, "sessionId")? != from {
            return None;
        }
        let id = member(params, "sessionId")?;
        splice(&line, start + id.start..start + id.end, json!(to).to_string().as_bytes())
    };
    replaced().unwrap_or(line)
}

/// Returns the title in an update of the session, `Some(None)` if the update removes it.
fn new_title(line: &[u8]) -> Option<Option<String>> {
    memchr::memmem::find(line, b"session_info_update")?;
    let params = line.get(member(line, "params")?)?;
    let update: SessionNotification = serde_json::from_slice(params).ok()?;
    match update.update {
        SessionUpdate::SessionInfoUpdate(info) => match info.title {
            Patch::Keep => None,
            Patch::Clear => Some(None),
            Patch::Set(title) => Some(Some(title)),
        },
        _ => None,
    }
}

async fn next_line(agent: &mut Option<HostedAgent>) -> Option<Vec<u8>> {
    match agent {
        Some(agent) => agent.next().await,
        None => std::future::pending().await,
    }
}

/// Waits for a task, if there is one.
async fn join<T>(task: &mut Option<JoinHandle<T>>) -> T {
    let Some(running) = task else { return std::future::pending().await };
    match running.await {
        Ok(output) => output,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime shuts down.
            Err(_) => std::future::pending().await,
        },
    }
}
