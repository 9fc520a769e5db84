//! The hub: its agents' command, its sessions and their logs.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use duologue_client::Command;
use duologue_rpc::raw_message::{call_line, member, response_line, splice};
use duologue_rpc::{Lock as _, Transport};
use duologue_schema::{
    InitializeRequest, InitializeResponse, ListSessionsRequest, ListSessionsResponse, NewSessionRequest,
    Request as _, SessionId, SessionInfo,
};
use duologue_store::{
    FileLog, IndexQuery, IndexedSession, Log as _, LogLine, LogPosition, LogRoot, LogSettings, SessionIndex,
};
use duologue_transcript::{Header, Side};
use jiff::Timestamp;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use tokio::sync::{Notify, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use uuid::Uuid;

use crate::connection::ClientConnection;
use crate::error::Error;
use crate::hosted_agent::HostedAgent;
use crate::owner::{OwnerRestore, OwnerSettings, SessionOwner, micros};
use crate::record::{ClientKey, HubEvent, LogEntry};
use crate::session_task::{LiveSession, SessionCommand, SessionTask, session_of};

/// The owner of all sessions, until there are several principals.
const OWNER: &str = "local";
/// The agent of all sessions, until there are several.
const AGENT: &str = "agent";

/// The settings of a hub.
#[derive(Debug)]
#[non_exhaustive]
pub struct HubSettings {
    /// Creates the command of an agent. Each session has a process of its own.
    pub agent: AgentCommand,
    /// The folder of the sessions' logs.
    pub data: PathBuf,
    /// Lets agents request files and terminals from clients. False by default: an agent uses those of its machine.
    pub client_files: bool,
    /// Limit on the sessions whose process or client is there. 1,024 by default.
    pub sessions: usize,
    /// The time in which an agent answers `initialize`, and creates or restores a session. 120 seconds by default. The
    /// process of one that does not is ended.
    pub agent_timeout: Duration,
    /// Learns which processes run, for example to end them if this process is killed.
    pub processes: Option<ProcessObserver>,
    /// The settings of each session.
    pub owner: OwnerSettings,
    /// The limits of the logs.
    pub logs: LogSettings,
}

/// Creates the command of an agent.
pub struct AgentCommand(Box<dyn Fn() -> Command + Send + Sync>);

impl AgentCommand {
    /// Creates it from a closure.
    pub fn new(command: impl Fn() -> Command + Send + Sync + 'static) -> Self {
        AgentCommand(Box::new(command))
    }
}

impl std::fmt::Debug for AgentCommand {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AgentCommand").finish_non_exhaustive()
    }
}

/// A change of the processes of a hub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProcessEvent {
    /// An agent was started. On Unix the id of the process is that of its group too.
    Started(u32),
    /// The agent and the rest of its group have ended.
    Ended(u32),
}

/// A receiver of [`ProcessEvent`]s. It must not block.
#[derive(Clone)]
pub struct ProcessObserver(Arc<dyn Fn(ProcessEvent) + Send + Sync>);

impl ProcessObserver {
    /// Creates it from a closure.
    pub fn new(observe: impl Fn(ProcessEvent) + Send + Sync + 'static) -> Self {
        ProcessObserver(Arc::new(observe))
    }

    pub(crate) fn report(&self, event: ProcessEvent) {
        (self.0)(event);
    }
}

impl std::fmt::Debug for ProcessObserver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProcessObserver").finish_non_exhaustive()
    }
}

impl HubSettings {
    /// Creates settings for the command of an agent and the folder of the logs.
    pub fn new(agent: impl Fn() -> Command + Send + Sync + 'static, data: impl Into<PathBuf>) -> Self {
        HubSettings {
            agent: AgentCommand::new(agent),
            data: data.into(),
            client_files: false,
            sessions: 1024,
            agent_timeout: Duration::from_secs(120),
            processes: None,
            owner: OwnerSettings::default(),
            logs: LogSettings::default(),
        }
    }
}

/// A server for an agent, whose sessions outlive connections and restarts of the server.
#[derive(Clone, Debug)]
pub struct Hub {
    shared: Arc<HubShared>,
}

#[derive(Debug)]
pub(crate) struct HubShared {
    settings: HubSettings,
    logs: LogRoot,
    index: SessionIndex,
    sessions: Mutex<Sessions>,
    /// Notified to end the connection of a client: another connection continues it.
    clients: Mutex<HashMap<ClientKey, Arc<Notify>>>,
    attachments: AtomicU64,
    spare: tokio::sync::Mutex<Spare>,
    /// True ends all processes. Each has a receiver until it has ended.
    closing: watch::Sender<bool>,
}

/// A process that was started for its introduction, for the first session.
#[derive(Debug, Default)]
struct Spare {
    agent: Option<(HostedAgent, InitializeResponse)>,
    /// The last failure to start one. All who waited for that process fail with it.
    failed: Option<(Instant, Arc<Error>)>,
}

#[derive(Debug, Default)]
struct Sessions {
    live: HashMap<SessionId, LiveSession>,
    /// The sessions that are being opened count too.
    opening: usize,
    /// One task at a time opens or deletes a session.
    gates: HashMap<SessionId, Arc<tokio::sync::Mutex<()>>>,
    /// The logs that are open: a reader can outlive its session, and a log is open once.
    logs: HashMap<SessionId, Weak<FileLog>>,
    is_closed: bool,
}

/// The time in which processes end at a shutdown.
const PROCESSES_END: Duration = Duration::from_secs(10);
/// The time in which readers release a log that is deleted.
const LOG_RELEASED: Duration = Duration::from_secs(2);

impl Hub {
    /// Opens the folder of the logs.
    ///
    /// # Errors
    ///
    /// [`Error::Log`] if the folder cannot be used, or another server uses it.
    pub fn open(settings: HubSettings) -> Result<Self, Error> {
        let logs = LogRoot::new(settings.data.join("sessions"), settings.logs.clone())?;
        let index = SessionIndex::open(&logs)?;
        let (sessions, spare) = (Mutex::default(), tokio::sync::Mutex::default());
        let closing = watch::Sender::new(false);
        let (clients, attachments) = (Mutex::default(), AtomicU64::new(0));
        let shared = HubShared { settings, logs, index, sessions, clients, attachments, spare, closing };
        Ok(Hub { shared: Arc::new(shared) })
    }

    /// Serves a client until its connection ends. Its sessions go on.
    pub async fn serve(&self, transport: Transport) {
        ClientConnection::serve(self.shared.clone(), transport).await;
    }

    /// Waits until no turn runs, at most for `limit`. From now on prompts and new sessions are refused. Returns the number of
    /// turns that run on; [`shut_down`](Self::shut_down) interrupts them.
    ///
    /// # Cancel safety
    ///
    /// Prompts are refused from the first poll on.
    pub async fn drain(&self, limit: Duration) -> usize {
        let mut live: Vec<LiveSession> = {
            let mut sessions = self.shared.sessions.lock_unpoisoned();
            sessions.is_closed = true;
            sessions.live.values().cloned().collect()
        };
        let idle = async {
            for session in &mut live {
                // A task that has ended has no turn.
                let _ = session.has_turn.wait_for(|has_turn| !has_turn).await;
            }
        };
        let _ = tokio::time::timeout(limit, idle).await;
        live.iter().filter(|session| *session.has_turn.borrow() && !session.commands.is_closed()).count()
    }

    /// Ends all sessions: their turns are interrupted, their logs are synced, their processes end.
    pub async fn shut_down(&self) {
        let live: Vec<LiveSession> = {
            let mut sessions = self.shared.sessions.lock_unpoisoned();
            sessions.is_closed = true;
            sessions.live.values().cloned().collect()
        };
        let closed: JoinSet<()> =
            live.into_iter().map(|session| async move { session.close().await }).collect();
        closed.join_all().await;
        // Also ends a process that is being started and does not answer.
        self.shared.closing.send_replace(true);
        if tokio::time::timeout(PROCESSES_END, self.shared.closing.closed()).await.is_err() {
            tracing::warn!("processes of the agent did not end in time");
        }
    }
}

impl LiveSession {
    /// Ends the process and the task of the session.
    pub(crate) async fn close(&self) {
        let (done, closed) = oneshot::channel();
        if self.commands.send(SessionCommand::Close(done)).await.is_ok() {
            let _ = closed.await;
        }
    }
}

/// A place for a session that is being opened.
struct Opening<'a>(&'a HubShared);

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        self.0.sessions.lock_unpoisoned().opening -= 1;
    }
}

impl HubShared {
    /// Starts a process and introduces the hub to it.
    pub(crate) async fn start_agent(&self) -> Result<(HostedAgent, InitializeResponse), Error> {
        // The lock is taken while a process is started for another client.
        let spare = self.spare.try_lock().ok().and_then(|mut spare| spare.agent.take());
        match spare.filter(|(agent, _)| agent.is_running()) {
            Some(spare) => Ok(spare),
            None => self.start_new_agent().await,
        }
    }

    async fn start_new_agent(&self) -> Result<(HostedAgent, InitializeResponse), Error> {
        let closing = self.closing.subscribe();
        if *closing.borrow() {
            return Err(Error::Closed);
        }
        let HubSettings { agent, agent_timeout, processes, .. } = &self.settings;
        let mut agent = HostedAgent::start((agent.0)(), *agent_timeout, processes.clone(), closing)?;
        let introduction = agent.initialize(self.settings.client_files).await?;
        Ok((agent, introduction))
    }

    /// Returns the introduction of an agent. Its process is kept for the next session.
    pub(crate) async fn introduction(&self) -> Result<InitializeResponse, Error> {
        let asked = Instant::now();
        let mut spare = self.spare.lock().await;
        if let Some((agent, introduction)) = &spare.agent
            && agent.is_running()
        {
            return Ok(introduction.clone());
        }
        if let Some((at, error)) = &spare.failed
            && *at >= asked
        {
            return Err(Error::Introduction(error.clone()));
        }
        match self.start_new_agent().await {
            Ok((agent, introduction)) => {
                spare.agent = Some((agent, introduction.clone()));
                Ok(introduction)
            }
            Err(error) => {
                let error = Arc::new(error);
                spare.failed = Some((Instant::now(), error.clone()));
                Err(Error::Introduction(error))
            }
        }
    }

    /// Passes a request that belongs to no session to an agent, such as a login. A user may take any time for it.
    pub(crate) async fn request_of_no_session(
        &self,
        method: &'static str,
        params: Option<&RawValue>,
    ) -> Result<Box<RawValue>, Error> {
        let (mut agent, introduction) = self.start_agent().await?;
        let result = agent.request_of_user(method, &params).await?;
        if let Ok(mut spare) = self.spare.try_lock() {
            spare.agent = Some((agent, introduction));
        }
        Ok(result)
    }

    /// Registers the connection of a client, and ends an older one.
    pub(crate) fn register(&self, client: &ClientKey, end: &Arc<Notify>) {
        if let Some(older) = self.clients.lock_unpoisoned().insert(client.clone(), end.clone()) {
            older.notify_one();
        }
    }

    /// Removes a connection that has ended, unless another one continues it.
    pub(crate) fn unregister(&self, client: &ClientKey, end: &Arc<Notify>) {
        let mut clients = self.clients.lock_unpoisoned();
        if clients.get(client).is_some_and(|last| Arc::ptr_eq(last, end)) {
            clients.remove(client);
        }
    }

    /// Returns the number of the next attachment of a client to a session.
    pub(crate) fn next_attachment(&self) -> u64 {
        self.attachments.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns true from the beginning of a drain or shutdown on.
    pub(crate) fn is_closed(&self) -> bool {
        self.sessions.lock_unpoisoned().is_closed
    }

    fn begin_opening(&self) -> Result<Opening<'_>, Error> {
        let mut sessions = self.sessions.lock_unpoisoned();
        let limit = self.settings.sessions;
        if sessions.is_closed {
            return Err(Error::Closed);
        }
        if sessions.live.len() + sessions.opening >= limit {
            return Err(Error::Sessions { limit });
        }
        sessions.opening += 1;
        Ok(Opening(self))
    }

    /// Creates a session. Returns it with the result for the client.
    pub(crate) async fn new_session(
        self: &Arc<Self>,
        params: Value,
    ) -> Result<(LiveSession, Box<RawValue>), Error> {
        let _opening = self.begin_opening()?;
        let (mut agent, introduction) = self.start_agent().await?;
        let result = agent.request(NewSessionRequest::METHOD, &params).await?;
        let agent_session = session_of(&result).ok_or(Error::UnknownSession)?;
        let id = SessionId::from(Uuid::now_v7().to_string());
        let result = with_id(&result, &id).ok_or(Error::UnknownSession)?;
        let log = self.open_log(&id).await?;
        let at = micros(log.opened_at());
        let records =
            opening_records(at, &introduction, &params, &result, &agent_session).map_err(Error::Encode)?;
        let (log, end) = append(log, records).await?;
        let cwd = params["cwd"].as_str().unwrap_or_default().to_owned();
        let entry = IndexedSession::new(id.as_str(), OWNER, AGENT, cwd, id.as_str());
        self.in_index(move |index| index.put(&entry)).await?;
        let owner = SessionOwner::new(id.clone(), self.settings.owner.clone(), end);
        let live = self.spawn(owner, Arc::new(log), Some(agent), agent_session, params, id)?;
        Ok((live, result))
    }

    /// Starts the task of a session.
    fn spawn(
        self: &Arc<Self>,
        owner: SessionOwner,
        log: Arc<FileLog>,
        agent: Option<HostedAgent>,
        agent_session: String,
        params: Value,
        id: SessionId,
    ) -> Result<LiveSession, Error> {
        let mut sessions = self.sessions.lock_unpoisoned();
        if sessions.is_closed {
            return Err(Error::Closed);
        }
        sessions.logs.retain(|_, log| log.strong_count() > 0);
        sessions.logs.insert(id.clone(), Arc::downgrade(&log));
        let live = SessionTask::spawn(self, id.clone(), owner, log, agent, agent_session, params);
        sessions.live.insert(id, live.clone());
        Ok(live)
    }

    /// Returns the mutex of the tasks that open or delete a session.
    fn gate(&self, id: &SessionId) -> Arc<tokio::sync::Mutex<()>> {
        let mut sessions = self.sessions.lock_unpoisoned();
        sessions.gates.retain(|_, gate| Arc::strong_count(gate) > 1);
        sessions.gates.entry(id.clone()).or_default().clone()
    }

    fn known_log(&self, id: &SessionId) -> Option<Arc<FileLog>> {
        self.sessions.lock_unpoisoned().logs.get(id).and_then(Weak::upgrade)
    }

    /// Returns a session, and opens its log if it is not open.
    pub(crate) async fn session(
        self: &Arc<Self>,
        id: &SessionId,
        params: &Value,
    ) -> Result<LiveSession, Error> {
        if let Some(live) = self.live(id) {
            return Ok(live);
        }
        let _opening = self.begin_opening()?;
        let name = id.as_str().to_owned();
        self.in_index(move |index| index.get(&name)).await?.ok_or(Error::UnknownSession)?;
        let gate = self.gate(id);
        let _alone = gate.lock().await;
        if let Some(live) = self.live(id) {
            return Ok(live);
        }
        let log = match self.known_log(id) {
            Some(log) => log,
            None => Arc::new(self.open_released_log(id).await?),
        };
        let hub = self.clone();
        let owned = id.clone();
        let restored = tokio::task::spawn_blocking(move || restore(&hub, owned, log)).await;
        let (owner, log, agent_session) = restored.map_err(|_| Error::Closed)??;
        self.spawn(owner, log, None, agent_session, params.clone(), id.clone())
    }

    /// Lists the sessions, the one that was changed last first.
    pub(crate) async fn list(
        self: &Arc<Self>,
        request: ListSessionsRequest,
    ) -> Result<ListSessionsResponse, Error> {
        let mut query = IndexQuery::default();
        query.owner = Some(OWNER.to_owned());
        query.cwd = request.cwd.map(|cwd| cwd.to_string_lossy().into_owned());
        query.cursor = request.cursor;
        let page = self.in_index(move |index| index.list(&query)).await?;
        let listed = page.sessions.into_iter().map(|session| {
            let mut info = SessionInfo::new(session.id, session.cwd);
            info.title = session.title;
            let updated = i64::try_from(session.updated).ok().map(Timestamp::from_millisecond);
            info.updated_at = updated.and_then(Result::ok).map(|time| time.to_string());
            info
        });
        let mut response = ListSessionsResponse::new(listed.collect::<Vec<_>>());
        response.next_cursor = page.next;
        Ok(response)
    }

    /// Records a change of a session, with its title if that has changed.
    pub(crate) async fn changed(self: &Arc<Self>, id: &SessionId, title: Option<Option<String>>) {
        let id = id.as_str().to_owned();
        let updated = u64::try_from(Timestamp::now().as_millisecond()).unwrap_or_default();
        let changed = self.in_index(move |index| match (title, index.get(&id)?) {
            (Some(title), Some(mut session)) => {
                (session.title, session.updated) = (title, updated);
                index.put(&session)
            }
            _ => index.touch(&id, updated),
        });
        if let Err(error) = changed.await {
            tracing::warn!(%error, "the index of sessions was not updated");
        }
    }

    async fn in_index<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&SessionIndex) -> Result<T, duologue_store::Error> + Send + 'static,
    ) -> Result<T, Error> {
        let hub = self.clone();
        let done = tokio::task::spawn_blocking(move || work(&hub.index)).await;
        Ok(done.map_err(|_| Error::Closed)??)
    }

    pub(crate) fn live(&self, id: &SessionId) -> Option<LiveSession> {
        let sessions = self.sessions.lock_unpoisoned();
        sessions.live.get(id).filter(|live| !live.commands.is_closed()).cloned()
    }

    /// Removes a session with its log. One that does not exist counts as removed.
    pub(crate) async fn delete(self: &Arc<Self>, id: &SessionId) -> Result<(), Error> {
        let gate = self.gate(id);
        let _alone = gate.lock().await;
        if let Some(live) = self.live(id) {
            live.close().await;
        }
        // The readers of other clients end when they have read the end of the session.
        let released = async {
            while self.known_log(id).is_some() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let _ = tokio::time::timeout(LOG_RELEASED, released).await;
        let (hub, id) = (self.clone(), id.clone());
        let removed = tokio::task::spawn_blocking(move || {
            if hub.index.get(id.as_str())?.is_none() {
                return Ok(());
            }
            hub.logs.remove(id.as_str())?;
            hub.index.remove(id.as_str())
        });
        Ok(removed.await.map_err(|_| Error::Closed)??)
    }

    pub(crate) fn forget(&self, id: &SessionId) {
        let mut sessions = self.sessions.lock_unpoisoned();
        if sessions.live.get(id).is_some_and(|live| live.commands.is_closed()) {
            sessions.live.remove(id);
        }
    }

    /// Opens a log whose last reader may be about to release it.
    async fn open_released_log(&self, id: &SessionId) -> Result<FileLog, Error> {
        let until = Instant::now() + LOG_RELEASED;
        loop {
            match self.open_log(id).await {
                Err(Error::Log(duologue_store::Error::InUse { .. })) if Instant::now() < until => {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                opened => return opened,
            }
        }
    }

    async fn open_log(&self, id: &SessionId) -> Result<FileLog, Error> {
        let (logs, id) = (self.logs.clone(), id.clone());
        let header = Header::new(concat!("duologue-hub ", env!("CARGO_PKG_VERSION")));
        let opened = tokio::task::spawn_blocking(move || logs.open(id.as_str(), &header)).await;
        Ok(opened.map_err(|_| Error::Closed)??)
    }
}

async fn append(log: FileLog, lines: Vec<Vec<u8>>) -> Result<(FileLog, u64), Error> {
    let appended = tokio::task::spawn_blocking(move || {
        let lines: Vec<LogLine> = lines.into_iter().map(LogLine::new).collect::<Result<_, _>>()?;
        let end = log.append(&lines)?;
        Ok::<_, duologue_store::Error>((log, end.number()))
    });
    Ok(appended.await.map_err(|_| Error::Closed)??)
}

/// Reads the whole log of a session, and returns its owner with the id of the session at the agent.
fn restore(
    hub: &HubShared,
    id: SessionId,
    log: Arc<FileLog>,
) -> Result<(SessionOwner, Arc<FileLog>, String), Error> {
    let mut restore = OwnerRestore::default();
    let mut agent_session = String::new();
    for_each_record(&log, log.end().number(), |entry| {
        if let Some(HubEvent::AgentSession { id }) = &entry.event {
            agent_session.clone_from(id);
        }
        restore.apply(entry);
    })?;
    Ok((restore.finish(id, hub.settings.owner.clone()), log, agent_session))
}

/// Reads the records of a log up to a position.
pub(crate) fn for_each_record(
    log: &FileLog,
    end: u64,
    mut each: impl FnMut(&LogEntry<'_>),
) -> Result<(), Error> {
    /// The size of a page in bytes.
    const PAGE: usize = 1 << 20;
    let mut position = LogPosition::START;
    while position.number() < end {
        let page = log.read(position, PAGE)?;
        let Some(last) = page.last() else { break };
        for record in page.records.iter().filter(|record| record.position.number() <= end) {
            each(&LogEntry::read(&record.line)?);
        }
        position = last;
    }
    Ok(())
}

/// Returns the records that open a log: the exchange that began the session, under the hub's id.
fn opening_records(
    at: u64,
    introduction: &InitializeResponse,
    params: &Value,
    result: &RawValue,
    agent_session: &str,
) -> serde_json::Result<Vec<Vec<u8>>> {
    let initialize = json!({"protocolVersion": 1, "clientCapabilities": {}});
    let mut params = params.clone();
    // Credentials are not written.
    params["mcpServers"] = json!([]);
    let (first, second) = (to_raw_value(&"hub:initialize")?, to_raw_value(&"hub:session/new")?);
    let introduction = to_raw_value(introduction)?;
    let frames = [
        (Side::Client, call_line(Some(&first), InitializeRequest::METHOD, &initialize)?),
        (Side::Agent, response_line(first.get(), Ok(&introduction))?),
        (Side::Client, call_line(Some(&second), NewSessionRequest::METHOD, &params)?),
        (Side::Agent, response_line(second.get(), Ok(result))?),
    ];
    let write = |entry: LogEntry<'_>| entry.write().map_err(|crate::InvalidRecord(error)| error);
    let mut records = Vec::new();
    for (side, frame) in &frames {
        let frame: &RawValue = serde_json::from_slice(frame)?;
        records.push(write(LogEntry { at, frame: Some((*side, frame)), event: None })?);
    }
    let event = HubEvent::AgentSession { id: agent_session.to_owned() };
    records.push(write(LogEntry { at, frame: None, event: Some(event) })?);
    Ok(records)
}

/// Returns a result with another `sessionId`.
fn with_id(result: &RawValue, id: &SessionId) -> Option<Box<RawValue>> {
    let bytes = result.get().as_bytes();
    let replaced = splice(bytes, member(bytes, "sessionId")?, json!(id).to_string().as_bytes())?;
    RawValue::from_string(String::from_utf8(replaced).ok()?).ok()
}
