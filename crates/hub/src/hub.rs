//! The hub: its agents' command, its sessions and their logs.

mod descriptors;
mod disk;
mod introductions;
mod session_records;
mod settings;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use duologue_rpc::{Lock as _, Transport};
use duologue_schema::{
    InitializeResponse, ListSessionsRequest, ListSessionsResponse, NewSessionRequest, Request as _,
    SessionId, SessionInfo,
};
use duologue_store::{FileLog, IndexQuery, IndexedSession, Log as _, LogRoot, SessionIndex};
use jiff::Timestamp;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};
use tokio::sync::{Notify, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use self::disk::DiskUse;
use self::introductions::{Introductions, Login};
use self::session_records::{append, opening_records, report_index, restore, with_id};
pub(crate) use self::session_records::{behind_damage, for_each_record, leave_out, read_behind_damage};
#[cfg(feature = "gateway")]
pub(crate) use self::settings::DISK_BYTES;
pub use self::settings::{AgentCommand, HubSettings, ProcessEvent, ProcessObserver};
#[cfg(feature = "gateway")]
use crate::abilities::AdvertisedAbilities;
use crate::announced_id::AnnouncedId;
use crate::asking_client::AskingClient;
use crate::connection::ClientConnection;
use crate::error::Error;
use crate::finishing::FinishingRequests;
use crate::open_log::OpenLog;
use crate::owner::{SessionOwner, micros};
use crate::record::ClientKey;
use crate::session_task::{
    CallSender, ClientRole, LiveSession, SessionCommand, SessionStart, SessionTask, session_of,
};
use crate::shared_agent::SharedAgent;

/// The principal of clients that [`Hub::serve`] serves.
pub(crate) const LOCAL: &str = "local";

/// A server for an agent, whose sessions outlive connections and restarts of the server.
#[derive(Clone, Debug)]
pub struct Hub {
    pub(crate) shared: Arc<HubShared>,
}

#[derive(Debug)]
pub(crate) struct HubShared {
    settings: HubSettings,
    logs: LogRoot,
    index: SessionIndex,
    sessions: Mutex<Sessions>,
    /// Notified to end the connection of a client: another connection continues it.
    clients: Mutex<HashMap<OwnedClient, Arc<Notify>>>,
    attachments: AtomicU64,
    pub(crate) finishing: FinishingRequests,
    introductions: Introductions,
    login: Mutex<Login>,
    shared_agent: SharedAgent,
    announced_id: AnnouncedId,
    /// The places of requests that belong to no session.
    without_session: Semaphore,
    /// The places of conversations that are read from their logs for clients.
    loads: Arc<Semaphore>,
    /// The number of loads that wait for a place.
    waiting_loads: watch::Sender<usize>,
    disk_use: Mutex<DiskUse>,
    /// The time of the last warning about the limit of open files.
    last_warning: Mutex<Option<Instant>>,
    /// True ends all processes. Each has a receiver until it has ended.
    closing: watch::Sender<bool>,
}

/// A principal and the key of one of its clients.
type OwnedClient = (Arc<str>, ClientKey);

#[derive(Debug, Default)]
struct Sessions {
    live: HashMap<SessionId, LiveSession>,
    /// The principals of sessions that are being opened, which count too.
    opening: Vec<Arc<str>>,
    /// One task at a time opens or deletes a session.
    gates: HashMap<SessionId, Arc<tokio::sync::Mutex<()>>>,
    /// The logs that are open: a reader can outlive its session, and a log is open once.
    logs: HashMap<SessionId, Weak<OpenLog>>,
    /// True from the beginning of a drain on. Work that was taken before it still opens its sessions.
    is_closed: bool,
    /// True from the beginning of the shutdown on.
    is_ended: bool,
}

impl Sessions {
    /// Returns true if prompts and new sessions of a client are refused. `is_work` is true for a worker of the server.
    fn refuses(&self, is_work: bool) -> bool {
        self.is_ended || (self.is_closed && !is_work)
    }
}

/// The time in which sessions end at a shutdown, before their processes are ended.
const SESSIONS_END: Duration = Duration::from_secs(20);
/// The time in which processes end at a shutdown.
const PROCESSES_END: Duration = Duration::from_secs(10);
/// The time in which readers release a log that they have read to its end.
const LOG_RELEASED: Duration = Duration::from_secs(2);
/// The time in which readers release the log of a session that is deleted. They read what is left of it.
const DELETED_LOG_RELEASED: Duration = Duration::from_secs(20);

impl Hub {
    /// Opens the folder of the logs.
    ///
    /// # Errors
    ///
    /// [`Error::Log`] if the folder cannot be used, or another server uses it.
    pub fn open(mut settings: HubSettings) -> Result<Self, Error> {
        settings.owner.is_process_shared = settings.shared_process || settings.agent.is_shared();
        let logs = LogRoot::new(settings.data.join("sessions"), settings.logs.clone())?;
        let index = SessionIndex::open(&logs)?;
        report_index(index.report());
        let (sessions, introductions) = (Mutex::default(), Introductions::default());
        let closing = watch::Sender::new(false);
        let (clients, attachments) = (Mutex::default(), AtomicU64::new(0));
        let (shared_agent, announced_id) = (SharedAgent::default(), AnnouncedId::default());
        let places = |limit: usize| Semaphore::new(limit.min(Semaphore::MAX_PERMITS));
        let without_session = places(settings.requests_without_session);
        let loads = Arc::new(places(settings.loads.max(1)));
        let shared = HubShared {
            settings,
            logs,
            index,
            sessions,
            clients,
            attachments,
            finishing: FinishingRequests::default(),
            introductions,
            login: Mutex::default(),
            shared_agent,
            announced_id,
            without_session,
            loads,
            waiting_loads: watch::Sender::default(),
            disk_use: Mutex::default(),
            last_warning: Mutex::default(),
            closing,
        };
        Ok(Hub { shared: Arc::new(shared) })
    }

    /// Returns all sessions of a principal.
    #[cfg(feature = "gateway")]
    pub(crate) async fn sessions_of(&self, principal: &Arc<str>) -> Result<Vec<IndexedSession>, Error> {
        self.shared.all_of(principal).await
    }

    /// Connects to the agent, or starts it, if it is not there, and returns its introduction.
    #[cfg(feature = "gateway")]
    pub(crate) async fn reach_agent(&self) -> Result<InitializeResponse, Error> {
        self.shared.introduction(AdvertisedAbilities::ALL).await
    }

    /// Returns the number of sessions that are open, and that of connected clients.
    #[cfg(feature = "gateway")]
    pub(crate) fn counts(&self) -> (usize, usize) {
        let sessions = self.shared.sessions.lock_unpoisoned().live.len();
        (sessions, self.shared.clients.lock_unpoisoned().len())
    }

    /// Returns the bytes of all logs. It blocks.
    #[cfg(feature = "gateway")]
    pub(crate) fn log_bytes(&self) -> Result<u64, Error> {
        Ok(self.shared.logs.disk_bytes()?)
    }

    /// Serves a client until its connection ends. Its sessions go on. They belong to the principal `local`.
    pub async fn serve(&self, transport: Transport) {
        self.serve_as(LOCAL, transport).await;
    }

    /// Serves a client of a principal, as [`serve`](Self::serve). The client has no access to the sessions of other
    /// principals: for it they do not exist.
    pub async fn serve_as(&self, principal: impl Into<Arc<str>>, transport: Transport) {
        self.serve_watched(principal, transport, watch::Sender::new(true).subscribe()).await;
    }

    /// Serves a client of a principal whose connection can be lost for a while. `presence` is false in this time: questions
    /// that only absent clients could answer wait for
    /// [`OwnerSettings::question`](crate::OwnerSettings::question) at most.
    pub async fn serve_watched(
        &self,
        principal: impl Into<Arc<str>>,
        transport: Transport,
        presence: watch::Receiver<bool>,
    ) {
        ClientConnection::serve(self.shared.clone(), principal.into(), transport, presence, ClientRole::User)
            .await;
    }

    /// Serves a worker of the server, whose work was taken before a drain and goes on during it.
    #[cfg(feature = "gateway")]
    pub(crate) async fn serve_work(&self, principal: String, transport: Transport, role: ClientRole) {
        let presence = watch::Sender::new(true).subscribe();
        ClientConnection::serve(self.shared.clone(), principal.into(), transport, presence, role).await;
    }

    /// Waits until no turn runs, at most for `limit`. From now on prompts and new sessions are refused. Returns the number of
    /// turns that run on; [`shut_down`](Self::shut_down) interrupts them.
    ///
    /// # Cancel safety
    ///
    /// Prompts are refused from the first poll on.
    pub async fn drain(&self, limit: Duration) -> usize {
        let mut live = self.begin_drain();
        let idle = async {
            for session in &mut live {
                // A task that has ended has no turn.
                let _ = session.has_turn.wait_for(|has_turn| !has_turn).await;
            }
        };
        let _ = tokio::time::timeout(limit, idle).await;
        self.turns()
    }

    /// Refuses prompts and new sessions of clients from now on. Returns the sessions that are open.
    pub(crate) fn begin_drain(&self) -> Vec<LiveSession> {
        let mut sessions = self.shared.sessions.lock_unpoisoned();
        sessions.is_closed = true;
        sessions.live.values().cloned().collect()
    }

    /// Returns the number of turns that run.
    pub(crate) fn turns(&self) -> usize {
        let sessions = self.shared.sessions.lock_unpoisoned();
        let live = sessions.live.values();
        live.filter(|session| *session.has_turn.borrow() && !session.commands.is_closed()).count()
    }

    /// Ends all sessions: their turns are interrupted, their logs are synced, their processes end. Sessions have 20 seconds for
    /// it, and processes 10 more. The requests of clients that have left are finished in the same time.
    pub async fn shut_down(&self) {
        let live: Vec<LiveSession> = {
            let mut sessions = self.shared.sessions.lock_unpoisoned();
            (sessions.is_closed, sessions.is_ended) = (true, true);
            sessions.live.values().cloned().collect()
        };
        let closed: JoinSet<()> =
            live.into_iter().map(|session| async move { session.close().await }).collect();
        if tokio::time::timeout(SESSIONS_END, closed.join_all()).await.is_err() {
            tracing::warn!("sessions did not end in time; their processes are ended");
        }
        // Also ends a process that is being started and does not answer.
        self.shared.closing.send_replace(true);
        let ended = async { tokio::join!(self.shared.closing.closed(), self.shared.finishing.end()) };
        if tokio::time::timeout(PROCESSES_END, ended).await.is_err() {
            tracing::warn!(
                "processes of the agent, or requests of clients that have left, did not end in time"
            );
        }
    }
}

/// A place for a session that is being opened.
struct Opening(Arc<HubShared>, Arc<str>);

impl Drop for Opening {
    fn drop(&mut self) {
        let opening = &mut self.0.sessions.lock_unpoisoned().opening;
        if let Some(place) = opening.iter().position(|principal| *principal == self.1) {
            opening.swap_remove(place);
        }
    }
}

impl HubShared {
    /// Returns true if agents may request files and terminals from clients.
    pub(crate) fn has_client_files(&self) -> bool {
        self.settings.client_files
    }

    /// Returns the name of the agent.
    pub(crate) fn agent_name(&self) -> &str {
        &self.settings.agent_name
    }

    /// Registers the connection of a client, and ends an older one of the same principal.
    pub(crate) fn register(&self, client: OwnedClient, end: &Arc<Notify>) {
        if let Some(older) = self.clients.lock_unpoisoned().insert(client, end.clone()) {
            older.notify_one();
        }
    }

    /// Returns true if another connection of the client has continued this one.
    pub(crate) fn is_continued(&self, client: &OwnedClient, end: &Arc<Notify>) -> bool {
        self.clients.lock_unpoisoned().get(client).is_some_and(|last| !Arc::ptr_eq(last, end))
    }

    /// Removes a connection that has ended, unless another one continues it.
    pub(crate) fn unregister(&self, client: &OwnedClient, end: &Arc<Notify>) {
        let mut clients = self.clients.lock_unpoisoned();
        if clients.get(client).is_some_and(|last| Arc::ptr_eq(last, end)) {
            clients.remove(client);
        }
    }

    /// Returns the number of the next attachment of a client to a session.
    pub(crate) fn next_attachment(&self) -> u64 {
        self.attachments.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the receiver of the calls of agents to other agents.
    pub(crate) fn calls(&self) -> Option<CallSender> {
        self.settings.calls.clone()
    }

    /// Returns true if prompts are refused: from the beginning of a drain on, and those of work from the shutdown on.
    pub(crate) fn is_closed(&self, is_work: bool) -> bool {
        self.sessions.lock_unpoisoned().refuses(is_work)
    }

    fn begin_opening(self: &Arc<Self>, principal: &Arc<str>, is_work: bool) -> Result<Opening, Error> {
        let mut sessions = self.sessions.lock_unpoisoned();
        let limit = self.settings.sessions;
        if sessions.refuses(is_work) {
            return Err(Error::Closed);
        }
        if sessions.live.len() + sessions.opening.len() >= limit {
            return Err(Error::Sessions { limit });
        }
        let owners = sessions.live.values().map(|live| &live.principal).chain(&sessions.opening);
        let limit = self.settings.principal_sessions;
        if owners.filter(|owner| *owner == principal).count() >= limit {
            return Err(Error::PrincipalSessions { limit });
        }
        sessions.opening.push(principal.clone());
        drop(sessions);
        Ok(Opening(self.clone(), principal.clone()))
    }

    /// Creates a session of a principal. Returns it with the result for the client. The task of the session handles `attach`
    /// before the first message of the agent, so that the client receives all of them.
    pub(crate) async fn new_session(
        self: &Arc<Self>,
        principal: &Arc<str>,
        params: Value,
        client: &AskingClient,
        attach: SessionCommand,
        is_work: bool,
    ) -> Result<(LiveSession, Box<RawValue>), Error> {
        let opening = self.begin_opening(principal, is_work)?;
        self.check_disk(principal).await?;
        let params = self.checked(params).await?;
        let (mut agent, introduction) = self.start_agent(client.abilities.schemes()).await?;
        let result = agent.request(NewSessionRequest::METHOD, &params, Some(client)).await?;
        let agent_session = session_of(&result).ok_or(Error::UnknownSession)?;
        let id = SessionId::from(crate::unique_id::new_id().to_string());
        let result = with_id(&result, &id).ok_or(Error::UnknownSession)?;
        let (hub, principal) = (self.clone(), principal.clone());
        // It ends also if the client leaves meanwhile, so that a log without an entry in the index is removed.
        let created = tokio::spawn(async move {
            let _opening = opening;
            let created =
                hub.create_log(&id, &principal, &introduction, &params, &result, &agent_session).await;
            let (log, end) = match created {
                Ok(created) => created,
                Err(error) => {
                    hub.remove_unused(id).await;
                    return Err(error);
                }
            };
            let owner = SessionOwner::new(id.clone(), hub.settings.owner.clone(), end);
            let owner = owner.opened(&introduction, &result);
            let (log, agent, first) = (Arc::new(OpenLog::new(log)), Some(agent), Some(attach));
            let params = to_raw_value(&params).map_err(Error::Encode)?;
            let start = SessionStart { id, principal, owner, log, agent, agent_session, params, first };
            Ok((hub.spawn(start)?, result))
        });
        created.await.map_err(|_| Error::Closed)?
    }

    /// Creates the log of a session with its first records, and the entry in the index. Returns the log and its end.
    async fn create_log(
        self: &Arc<Self>,
        id: &SessionId,
        principal: &Arc<str>,
        introduction: &InitializeResponse,
        params: &Value,
        result: &RawValue,
        agent_session: &str,
    ) -> Result<(FileLog, u64), Error> {
        let log = self.open_log(id).await?;
        let at = micros(log.opened_at());
        let records =
            opening_records(at, introduction, params, result, agent_session).map_err(Error::Encode)?;
        let (log, end) = append(log, records).await?;
        let cwd = params["cwd"].as_str().unwrap_or_default().to_owned();
        let agent_name = self.settings.agent_name.as_str();
        let entry = IndexedSession::new(id.as_str(), &**principal, agent_name, cwd, id.as_str());
        self.in_index(move |index| index.put(&entry)).await?;
        Ok((log, end))
    }

    /// Removes the log of a session that could not be created.
    async fn remove_unused(self: &Arc<Self>, id: SessionId) {
        let (hub, name) = (self.clone(), id.clone());
        let removed = tokio::task::spawn_blocking(move || {
            let removed = hub.index.remove(name.as_str());
            removed.and(hub.logs.remove(name.as_str()))
        });
        if let Ok(Err(error)) = removed.await {
            tracing::warn!(session = %id, %error, "the log of a session that could not be created was not removed");
        }
    }

    /// Checks the params that open a session, and returns them.
    pub(crate) async fn checked(&self, params: Value) -> Result<Value, Error> {
        let policy = self.settings.policy.clone();
        let checked = move || {
            policy.check(&params)?;
            let mut params = params;
            policy.filter(&mut params);
            Ok(params)
        };
        tokio::task::spawn_blocking(checked).await.map_err(|_| Error::Closed)?
    }

    /// Starts the task of a session.
    fn spawn(self: &Arc<Self>, start: SessionStart) -> Result<LiveSession, Error> {
        let mut sessions = self.sessions.lock_unpoisoned();
        // A session that was being opened when a drain began is still opened.
        if sessions.is_ended {
            return Err(Error::Closed);
        }
        let id = start.id.clone();
        sessions.logs.retain(|_, log| log.strong_count() > 0);
        sessions.logs.insert(id.clone(), Arc::downgrade(&start.log));
        let live = SessionTask::spawn(self, start);
        sessions.live.insert(id, live.clone());
        Ok(live)
    }

    /// Returns the mutex of the tasks that open or delete a session.
    fn gate(&self, id: &SessionId) -> Arc<tokio::sync::Mutex<()>> {
        let mut sessions = self.sessions.lock_unpoisoned();
        sessions.gates.retain(|_, gate| Arc::strong_count(gate) > 1);
        sessions.gates.entry(id.clone()).or_default().clone()
    }

    /// Looks into the index again behind the gate: the session may be deleted, and opening its log would create it.
    async fn check_exists(self: &Arc<Self>, id: &SessionId) -> Result<(), Error> {
        let name = id.as_str().to_owned();
        let found = self.in_index(move |index| index.get(&name)).await?;
        found.map(drop).ok_or(Error::UnknownSession)
    }

    /// Returns the log of a session if it is open.
    pub(crate) fn known_log(&self, id: &SessionId) -> Option<Arc<OpenLog>> {
        self.sessions.lock_unpoisoned().logs.get(id).and_then(Weak::upgrade)
    }

    /// Returns a session of a principal, and opens its log if it is not open.
    pub(crate) async fn session(
        self: &Arc<Self>,
        principal: &Arc<str>,
        id: &SessionId,
        params: &Value,
    ) -> Result<LiveSession, Error> {
        if let Some(live) = self.live(principal, id) {
            return Ok(live);
        }
        let _opening = self.begin_opening(principal, false)?;
        self.indexed(principal, id).await?.ok_or(Error::UnknownSession)?;
        let gate = self.gate(id);
        let _alone = gate.lock().await;
        if let Some(live) = self.live(principal, id) {
            return Ok(live);
        }
        self.check_exists(id).await?;
        self.wait_for_end(id).await;
        let (hub, name) = (self.clone(), id.clone());
        tokio::task::spawn_blocking(move || hub.snapshot(&name)).await.map_err(|_| Error::Closed)??;
        // One whose session could not be deleted is not read any more.
        let log = match self.known_log(id).filter(|log| !log.is_deleted()) {
            Some(log) => log,
            None => Arc::new(OpenLog::new(self.open_released_log(id).await?)),
        };
        let hub = self.clone();
        let owned = id.clone();
        let restored = tokio::task::spawn_blocking(move || restore(&hub, owned, log)).await;
        let (owner, log, agent_session) = restored.map_err(|_| Error::Closed)??;
        let (id, principal) = (id.clone(), principal.clone());
        let params = to_raw_value(params).map_err(Error::Encode)?;
        let (agent, first) = (None, None);
        self.spawn(SessionStart { id, principal, owner, log, agent, agent_session, params, first })
    }

    /// Returns the entry of a session if it belongs to the principal.
    pub(crate) async fn indexed(
        self: &Arc<Self>,
        principal: &Arc<str>,
        id: &SessionId,
    ) -> Result<Option<IndexedSession>, Error> {
        let name = id.as_str().to_owned();
        let found = self.in_index(move |index| index.get(&name)).await?;
        Ok(found.filter(|session| *session.owner == **principal))
    }

    /// Lists the sessions of a principal, the one that was changed last first.
    pub(crate) async fn list(
        self: &Arc<Self>,
        principal: &Arc<str>,
        request: ListSessionsRequest,
    ) -> Result<ListSessionsResponse, Error> {
        let mut query = IndexQuery::default();
        query.owner = Some(principal.as_ref().to_owned());
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

    /// Returns all sessions of a principal.
    pub(crate) async fn all_of(self: &Arc<Self>, principal: &Arc<str>) -> Result<Vec<IndexedSession>, Error> {
        let mut query = IndexQuery::default();
        query.owner = Some(principal.as_ref().to_owned());
        self.every(query).await
    }

    /// Returns the sessions of all pages of a list.
    async fn every(self: &Arc<Self>, mut query: IndexQuery) -> Result<Vec<IndexedSession>, Error> {
        query.limit = usize::MAX;
        self.in_index(move |index| {
            let mut sessions = Vec::new();
            loop {
                let page = index.list(&query)?;
                sessions.extend(page.sessions);
                match page.next {
                    Some(next) => query.cursor = Some(next),
                    None => return Ok(sessions),
                }
            }
        })
        .await
    }

    /// Records a change of a session, with its title if that has changed.
    pub(crate) async fn changed(self: &Arc<Self>, id: &SessionId, title: Option<Option<String>>) {
        let name = id.as_str().to_owned();
        let updated = u64::try_from(Timestamp::now().as_millisecond()).unwrap_or_default();
        let changed = self.in_index(move |index| match title {
            Some(title) => index.update(&name, |session| (session.title, session.updated) = (title, updated)),
            None => index.touch(&name, updated),
        });
        if let Err(error) = changed.await {
            tracing::warn!(session = %id, %error, "the index of sessions was not updated");
        }
    }

    pub(crate) async fn in_index<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&SessionIndex) -> Result<T, duologue_store::Error> + Send + 'static,
    ) -> Result<T, Error> {
        let hub = self.clone();
        let done = tokio::task::spawn_blocking(move || work(&hub.index)).await;
        Ok(done.map_err(|_| Error::Closed)??)
    }

    /// Returns a session of a principal whose task runs.
    pub(crate) fn live(&self, principal: &Arc<str>, id: &SessionId) -> Option<LiveSession> {
        let sessions = self.sessions.lock_unpoisoned();
        let live = sessions.live.get(id).filter(|live| live.principal == *principal);
        live.filter(|live| !live.commands.is_closed()).cloned()
    }

    /// Removes a session of a principal with its log. One that does not exist counts as removed.
    pub(crate) async fn delete(self: &Arc<Self>, principal: &Arc<str>, id: &SessionId) -> Result<(), Error> {
        if self.indexed(principal, id).await?.is_none() {
            return Ok(());
        }
        let gate = self.gate(id);
        let _alone = gate.lock().await;
        if let Some(live) = self.live(principal, id) {
            live.close().await;
        }
        if let Some(log) = self.known_log(id) {
            log.delete();
        }
        self.remove_closed(id, DELETED_LOG_RELEASED).await
    }

    /// Removes a session whose task has ended or ends, with its log. The readers of clients have a time in which they release
    /// it. The caller has the gate of the session.
    async fn remove_closed(self: &Arc<Self>, id: &SessionId, limit: Duration) -> Result<(), Error> {
        self.wait_for_end(id).await;
        let released = async {
            while self.known_log(id).is_some() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let _ = tokio::time::timeout(limit, released).await;
        let (hub, id) = (self.clone(), id.clone());
        let removed = tokio::task::spawn_blocking(move || {
            if hub.index.get(id.as_str())?.is_none() {
                return Ok(());
            }
            // A look at all logs has each of them for a moment.
            let until = Instant::now() + LOG_RELEASED;
            while let Err(error) = hub.logs.remove(id.as_str()) {
                if !matches!(error, duologue_store::Error::InUse { .. }) || Instant::now() >= until {
                    return Err(error);
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            // On a full disk, for example. The session has no content any more.
            if let Err(error) = hub.index.remove(id.as_str()) {
                tracing::error!(session = %id, %error, "a deleted session stays in the list until it is deleted again, or the next start");
            }
            Ok(())
        });
        Ok(removed.await.map_err(|_| Error::Closed)??)
    }

    /// Waits until the former task of a session has ended, and its process with it.
    async fn wait_for_end(&self, id: &SessionId) {
        let former = {
            let sessions = self.sessions.lock_unpoisoned();
            sessions.live.get(id).filter(|live| live.commands.is_closed()).cloned()
        };
        if let Some(mut former) = former {
            // The sender is dropped with the task.
            while former.visible.changed().await.is_ok() {}
        }
    }

    pub(crate) fn forget(&self, id: &SessionId) {
        let mut sessions = self.sessions.lock_unpoisoned();
        if sessions.live.get(id).is_some_and(|live| live.commands.is_closed()) {
            sessions.live.remove(id);
        }
    }
}

#[cfg(all(test, unix))]
mod tests;
