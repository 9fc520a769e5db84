//! Sessions: their parameters, their state and updates outside of turns.

use std::any::{Any, TypeId};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use duologue_exchange::PendingSession;
use duologue_rpc::{
    CancellationToken, EncodedNotification, Limits, Lock, NotificationBuffer, Peer, Responder,
};
#[cfg(feature = "protocol-v2")]
use duologue_schema::Notification as _;
use duologue_schema::{
    ContentBlock, McpServer, Meta, NewSessionResponse, SessionId, SessionNotification, SessionUpdate,
    serialized_len,
};
use tokio::sync::watch;

use crate::agent::SessionSetup;
use crate::client::{ClearMode, ClientHandle};
use crate::error::{Error, Result};
use crate::history::HistoryFile;
use crate::message::without_clear;
use crate::session_memory::Reservation;
use crate::session_queue::{QueueTicket, SessionQueue};
#[cfg(feature = "exchange")]
use crate::session_table::WeakSessionTable;
use crate::settings::OfferedSettings;
use crate::turn::{TurnState, ends_call};

/// A session with the client. Cheap to clone. Keep a clone to send updates between turns.
///
/// # Cancel safety
///
/// Dropping the future of a method that sends updates sends nothing if it still waits. Dropping the future of a request to
/// the client cancels the request, but the client may have acted on it already.
#[derive(Clone)]
pub struct Session {
    inner: Arc<Inner>,
}

struct Inner {
    id: SessionId,
    params: SessionParams,
    client: ClientHandle,
    settings: Mutex<OfferedSettings>,
    /// The state by its type, the newest last.
    state: Mutex<Vec<Arc<dyn Any + Send + Sync>>>,
    /// Shared with the session that this one has replaced, whose handles end with this one.
    pre_open: Arc<Mutex<PreOpenBuffer>>,
    turn: watch::Sender<Option<ActiveTurn>>,
    /// The number of running `session/close` requests. No turn can begin while there are any.
    closing: AtomicUsize,
    #[cfg(feature = "protocol-v2")]
    v2: Arc<crate::v2::SessionStateV2>,
    queue: SessionQueue,
    /// The file that keeps the conversation.
    history: OnceLock<HistoryFile>,
}

/// The turn that has the slot of its session.
struct ActiveTurn {
    cancellation: CancellationToken,
    state: Arc<TurnState>,
}

/// The beginning of a session with a new id.
pub(crate) enum Beginning {
    New,
    /// The session continues another one.
    #[cfg(feature = "unstable")]
    Fork(SessionId),
}

/// The parameters of the request that created or restored the session.
pub(crate) struct SessionParams {
    pub(crate) cwd: PathBuf,
    pub(crate) additional_directories: Vec<PathBuf>,
    pub(crate) mcp_servers: Vec<McpServer>,
    pub(crate) meta: Option<Meta>,
    pub(crate) system_prompt: Option<duologue_schema::SystemPrompt>,
    #[cfg(feature = "unstable")]
    pub(crate) initial_options: Vec<duologue_schema::InitialSessionConfigOption>,
    pub(crate) reservation: Reservation,
}

/// Buffers the updates of a new session until the response that names the session is sent.
enum PreOpenBuffer {
    Buffering {
        updates: Vec<SessionNotification>,
        bytes: usize,
        pending_session: PendingSession,
    },
    Open,
    /// The session is closed, and version 2 forbids further messages of it.
    #[cfg(feature = "protocol-v2")]
    Closed,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("id", &self.inner.id).finish_non_exhaustive()
    }
}

/// An update that is sent when there is space.
pub(crate) struct WaitingUpdate {
    pub(crate) notification: SessionNotification,
    encoded: Option<EncodedNotification>,
}

impl WaitingUpdate {
    pub(crate) fn new(session: SessionId, update: SessionUpdate) -> Self {
        WaitingUpdate { notification: SessionNotification::new(session, update), encoded: None }
    }
}

/// Returns true for an update of the modes, options or commands.
fn changes_settings(update: &SessionUpdate) -> bool {
    matches!(
        update,
        SessionUpdate::CurrentModeUpdate(_)
            | SessionUpdate::ConfigOptionUpdate(_)
            | SessionUpdate::AvailableCommandsUpdate(_)
    )
}

impl Session {
    /// The limit on the bytes of the requests that created the open sessions of a connection and of their modes and
    /// options, plus 1 KiB per session. Above it another session is rejected, unless it is the only one. A session counts
    /// until it is closed or deleted and its last clone is dropped.
    pub const BYTES_TOGETHER: usize = 64 << 20;

    pub(crate) fn new(
        id: SessionId,
        params: SessionParams,
        client: ClientHandle,
        hold_updates: bool,
        replaced: Option<&Session>,
    ) -> Self {
        // The close of a session does not end the one that a later request opened with its id.
        let replaced = replaced.filter(|replaced| !replaced.is_closing() && !replaced.is_opening());
        let pre_open = if let Some(replaced) = replaced {
            replaced.inner.pre_open.clone()
        } else if hold_updates {
            let pending_session = client.other_agent().pending_session(id.clone());
            let buffer = PreOpenBuffer::Buffering { updates: Vec::new(), bytes: 0, pending_session };
            Arc::new(Mutex::new(buffer))
        } else {
            Arc::new(Mutex::new(PreOpenBuffer::Open))
        };
        Session {
            inner: Arc::new(Inner {
                id,
                params,
                client,
                settings: Mutex::default(),
                state: Mutex::default(),
                pre_open,
                turn: watch::Sender::new(None),
                closing: AtomicUsize::new(0),
                #[cfg(feature = "protocol-v2")]
                v2: replaced.map(|replaced| replaced.inner.v2.clone()).unwrap_or_default(),
                queue: SessionQueue::default(),
                history: OnceLock::new(),
            }),
        }
    }

    /// Returns the id of the session.
    #[must_use]
    pub fn id(&self) -> &SessionId {
        &self.inner.id
    }

    /// Returns the working folder of the session, an absolute path.
    #[must_use]
    pub fn cwd(&self) -> &Path {
        &self.inner.params.cwd
    }

    /// Returns further folders that the session may use, as absolute paths.
    #[must_use]
    pub fn additional_directories(&self) -> &[PathBuf] {
        &self.inner.params.additional_directories
    }

    /// Returns the MCP servers to which the agent should connect.
    #[must_use]
    pub fn mcp_servers(&self) -> &[McpServer] {
        &self.inner.params.mcp_servers
    }

    /// Returns the `_meta` of the request that created or restored the session.
    #[must_use]
    pub fn meta(&self) -> Option<&Meta> {
        self.inner.params.meta.as_ref()
    }

    /// Returns the parameters of the session.
    pub(crate) fn params(&self) -> &SessionParams {
        &self.inner.params
    }

    /// Returns true until the response that opens the session is sent.
    pub(crate) fn is_opening(&self) -> bool {
        matches!(&*self.inner.pre_open.lock_unpoisoned(), PreOpenBuffer::Buffering { .. })
    }

    /// Returns true while a request closes the session.
    pub(crate) fn is_closing(&self) -> bool {
        self.inner.closing.load(Relaxed) > 0
    }

    /// Returns true while a turn runs.
    pub(crate) fn has_turn(&self) -> bool {
        self.inner.turn.borrow().is_some()
    }

    /// Returns the client of the session.
    #[must_use]
    pub fn client(&self) -> &ClientHandle {
        &self.inner.client
    }

    /// Returns a handle on the agent that the client speaks for, if there is one, to send it questions and tasks in this
    /// session.
    ///
    /// Its calls fail with a typed error if the client does not support envelopes.
    ///
    /// In [`Agent::new_session`](crate::Agent::new_session) the client does not know the session yet. Notifications
    /// are buffered there, and sent behind the response that names the session. Queries and delegations are sent at
    /// once, and some clients reject them because of the unknown session. Send them in the first turn.
    #[must_use]
    #[cfg(feature = "exchange")]
    pub fn peer_agent(&self) -> duologue_exchange::PeerAgent {
        self.inner.client.peer_agent().in_session(self.inner.id.clone())
    }

    /// Returns the session of a message of the other agent, by its `peer`, to send updates to the user or to ask for
    /// permission while the message is handled. Returns `None` for a message without a session, and when the session has
    /// been closed. The `peer` of a connection that is not an agent's has no such session either.
    ///
    /// ```
    /// use duologue_agent::exchange::envelope::{
    ///     Capabilities, DelegationOutcome, EnvelopeError, EnvelopeHandler, OutcomeStatus, ReceivedTask,
    /// };
    /// use duologue_agent::schema::SessionUpdate;
    /// use duologue_agent::{Exchange, Session};
    ///
    /// struct Painter;
    ///
    /// impl EnvelopeHandler for Painter {
    ///     fn capabilities(&self) -> Capabilities {
    ///         Capabilities::new("painter").max_concurrent_tasks(1)
    ///     }
    ///
    ///     async fn delegate(&self, task: ReceivedTask) -> Result<DelegationOutcome, EnvelopeError> {
    ///         if let Some(session) = Session::of(&task.peer) {
    ///             let text = format!("Painting {} for another agent.", task.task);
    ///             let update = SessionUpdate::agent_message(text);
    ///             session.update(update).await.map_err(|error| EnvelopeError::internal(error.to_string()))?;
    ///         }
    ///         Ok(DelegationOutcome::new(OutcomeStatus::Completed))
    ///     }
    /// }
    ///
    /// let exchange = Exchange::new().envelope_handler(Painter);
    /// # let _ = exchange;
    /// ```
    #[must_use]
    #[cfg(feature = "exchange")]
    pub fn of(peer: &duologue_exchange::PeerAgent) -> Option<Self> {
        peer.sdk::<WeakSessionTable>()?.get(peer.session()?)
    }

    /// Returns the `T` of the session. The first call creates it with `T::default()`, unless
    /// [`set_state`](Self::set_state) stored a `T` or an `Arc<T>`.
    ///
    /// ```
    /// # use std::sync::atomic::{AtomicU32, Ordering};
    /// # fn count(session: &duologue_agent::Session) -> u32 {
    /// #[derive(Default)]
    /// struct Turns(AtomicU32);
    ///
    /// session.state::<Turns>().0.fetch_add(1, Ordering::Relaxed)
    /// # }
    /// ```
    #[must_use]
    pub fn state<T: Default + Send + Sync + 'static>(&self) -> Arc<T> {
        if let Some(state) = self.get_state() {
            return state;
        }
        // Created and dropped without the lock, because `T` may use the state of the session.
        let new = Arc::new(T::default());
        let mut states = self.inner.state.lock_unpoisoned();
        if let Some(state) = find_state(&states) {
            return state;
        }
        states.push(new.clone());
        new
    }

    /// Stores a `T` in the session, for state without a default. An `Arc<T>` is returned as a `T` too, so that other
    /// tasks can share it.
    pub fn set_state<T: Send + Sync + 'static>(&self, state: T) {
        let state: Arc<dyn Any + Send + Sync> = Arc::new(state);
        let mut states = self.inner.state.lock_unpoisoned();
        let before = states.iter().position(|other| (**other).type_id() == TypeId::of::<T>());
        let replaced = before.map(|index| states.remove(index));
        states.push(state);
        drop(states);
        // Dropped without the lock, because it may use the state of the session.
        drop(replaced);
    }

    /// Returns the `T` of the session, if there is one.
    #[must_use]
    pub fn get_state<T: Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        find_state(&self.inner.state.lock_unpoisoned())
    }

    /// Sends an update. Waits while the client is slow to read.
    ///
    /// While the session is created, updates are buffered and sent behind the response that names it.
    /// Other methods of this type and of [`Turn`](crate::Turn) are shorthands for single updates.
    ///
    /// A clear becomes a visible rule for a client without support for it, see [`ClearPolicy`](crate::ClearPolicy).
    ///
    /// # Errors
    ///
    /// [`Error::RelativePath`] for a tool call with a relative path while a turn runs. Outside of turns it is logged
    /// and sent, so that an old history can be replayed. [`Error::SessionClosed`] if the client closed the session in
    /// version 2. Fails also if the connection has ended or the update exceeds the limit of a line.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future while it waits sends nothing.
    pub async fn update(&self, update: impl Into<SessionUpdate>) -> Result<()> {
        let mut update = update.into();
        if self.client().clearing() != ClearMode::Send {
            update = without_clear(update);
        }
        if !self.sends(&update).or_else(|error| self.outside_turns(&update, error))? {
            return Ok(());
        }
        let mut update = WaitingUpdate::new(self.inner.id.clone(), update);
        loop {
            if matches!(&*self.inner.pre_open.lock_unpoisoned(), PreOpenBuffer::Open) {
                self.encode(&mut update)?;
                self.peer().ready().await?;
            }
            if self.try_send_outside(&mut update)? {
                return Ok(());
            }
        }
    }

    /// Accepts an update with an error outside of turns, where it is part of a history.
    fn outside_turns(&self, update: &SessionUpdate, error: Error) -> Result<bool> {
        if self.inner.turn.borrow().is_some() {
            return Err(error);
        }
        tracing::debug!(session = %self.inner.id, %error, "an update outside of a turn");
        Ok(self.client().accepts(update))
    }

    /// Returns the modes and options that the client has been offered, locked.
    pub(crate) fn settings(&self) -> MutexGuard<'_, OfferedSettings> {
        self.inner.settings.lock_unpoisoned()
    }

    /// Stores a setup and completes it.
    pub(crate) fn offer(&self, setup: &mut SessionSetup) {
        // Version 2 has modes only as an option.
        setup.mirror_modes |= self.client().is_v2();
        let mut settings = self.settings();
        settings.offer(setup);
        self.inner.params.reservation.count_settings(settings.bytes());
    }

    /// Changes the modes and options, and sends the update about it in the same step. A change whose update cannot be
    /// sent is undone. Does not wait, because it is part of the answer to a request.
    pub(crate) fn change_settings<T>(
        &self,
        change: impl FnOnce(&mut OfferedSettings) -> (T, Option<SessionUpdate>),
    ) -> Result<T> {
        let mut pre_open = self.inner.pre_open.lock_unpoisoned();
        let mut settings = self.settings();
        let mut changed = settings.clone();
        let (output, update) = change(&mut changed);
        if let Some(update) = update {
            let update = self.notification(update);
            if !self.buffer(&mut pre_open, &update)? {
                self.notify_now(&update)?;
            }
        }
        self.keep_settings(&mut settings, changed);
        Ok(output)
    }

    fn keep_settings(&self, settings: &mut OfferedSettings, changed: OfferedSettings) {
        self.inner.params.reservation.count_settings(changed.bytes());
        *settings = changed;
    }

    /// Returns an update for the client, without the options that it does not support.
    fn notification(&self, mut update: SessionUpdate) -> SessionNotification {
        if let SessionUpdate::ConfigOptionUpdate(update) = &mut update {
            let options = std::mem::take(&mut update.config_options);
            update.config_options = self.client().shown_options(options);
        }
        SessionNotification::new(self.inner.id.clone(), update)
    }

    /// Stores the modes, options or commands of an update, and sends it with the update that has to follow it. Has no effect and
    /// returns false if there is no space.
    fn send_settings(&self, update: &SessionNotification) -> Result<bool> {
        let mut settings = self.settings();
        let mut changed = settings.clone();
        let mut update = update.update.clone();
        let following = changed.apply(&mut update);
        if !self.try_notify(&self.notification(update))? {
            return Ok(false);
        }
        self.keep_settings(&mut settings, changed);
        if let Some(following) = following {
            self.notify_now(&self.notification(following))?;
        }
        Ok(true)
    }

    /// Sends an update that is not part of a turn, if there is space. Returns false otherwise.
    fn try_send_outside(&self, update: &mut WaitingUpdate) -> Result<bool> {
        let turn = match ends_call(&update.notification.update) {
            true => self.inner.turn.borrow().as_ref().map(|turn| turn.state.clone()),
            false => None,
        };
        match turn {
            Some(turn) => turn.end_call(update, |update| self.try_send(update)),
            None => self.try_send(update),
        }
    }

    /// Returns false for an update that the client has not advertised. Fails for one that the protocol forbids.
    pub(crate) fn sends(&self, update: &SessionUpdate) -> Result<bool> {
        match update.relative_path() {
            Some(relative) => Err(relative.into()),
            None => Ok(self.client().accepts(update)),
        }
    }

    /// Encodes an update, unless its line depends on the state at the moment at which it is sent.
    pub(crate) fn encode(&self, update: &mut WaitingUpdate) -> Result<()> {
        let is_fixed = !self.client().is_v2() && !changes_settings(&update.notification.update);
        #[cfg(feature = "protocol-v2")]
        let is_fixed = is_fixed && self.for_v1(&update.notification).is_none();
        if is_fixed && update.encoded.is_none() {
            update.encoded = Some(self.peer().encode_notification(&update.notification)?);
        }
        Ok(())
    }

    /// Sends an update if there is space. Returns false otherwise.
    pub(crate) fn try_send(&self, update: &mut WaitingUpdate) -> Result<bool> {
        let WaitingUpdate { notification, encoded } = update;
        self.buffer_or_send(notification, || match encoded.take() {
            Some(line) => {
                *encoded = self.peer().try_notify_encoded(line)?;
                Ok(encoded.is_none())
            }
            None if changes_settings(&notification.update) => self.send_settings(notification),
            None => self.try_notify(notification),
        })
    }

    /// Sends an update without waiting.
    pub(crate) fn send_now(&self, update: &SessionNotification) -> Result<()> {
        self.buffer_or_send(update, || self.notify_now(update).map(|()| true)).map(drop)
    }

    /// Buffers or sends an update. The buffer is locked meanwhile, so nothing can come between the
    /// buffered updates and this one.
    fn buffer_or_send(
        &self,
        update: &SessionNotification,
        send: impl FnOnce() -> Result<bool>,
    ) -> Result<bool> {
        let mut pre_open = self.inner.pre_open.lock_unpoisoned();
        let is_sent = self.buffer(&mut pre_open, update)? || send()?;
        if is_sent && let Some(history) = self.inner.history.get() {
            history.update(&update.update);
        }
        Ok(is_sent)
    }

    /// Keeps the conversation from now on in a file.
    pub(crate) fn set_history(&self, history: HistoryFile) {
        let _ = self.inner.history.set(history);
    }

    /// Keeps a prompt, if the conversation is kept.
    pub(crate) fn keep_prompt(&self, blocks: &[ContentBlock]) {
        if let Some(history) = self.inner.history.get() {
            history.prompt(blocks);
        }
    }

    /// Sends an update in the version of the connection, if there is space. Returns false if there is none.
    fn try_notify(&self, update: &SessionNotification) -> Result<bool> {
        #[cfg(feature = "protocol-v2")]
        if self.client().is_v2() {
            return self.send_in_v2(update, |update| {
                Ok(self.peer().try_notify_raw(SessionNotification::METHOD, update)?)
            });
        }
        #[cfg(feature = "protocol-v2")]
        if let Some(updates) = self.for_v1(update) {
            // All or nothing: the first one waits for space for all.
            let Some((first, rest)) = updates.split_first() else { return Ok(true) };
            if !self.peer().try_notify(first)? {
                return Ok(false);
            }
            rest.iter().try_for_each(|update| self.peer().notify_now(update))?;
            return Ok(true);
        }
        Ok(self.peer().try_notify(update)?)
    }

    /// Returns the updates that stand for one that version 1 does not have.
    #[cfg(feature = "protocol-v2")]
    fn for_v1(&self, update: &SessionNotification) -> Option<Vec<SessionNotification>> {
        let can_clear = self.client().clearing() == ClearMode::Send;
        let updates = crate::v2::for_v1(&update.update, can_clear)?;
        let of_session = |update| SessionNotification::new(self.inner.id.clone(), update);
        Some(updates.into_iter().map(of_session).collect())
    }

    /// Sends an update in the version of the connection without waiting for space.
    fn notify_now(&self, update: &SessionNotification) -> Result<()> {
        #[cfg(feature = "protocol-v2")]
        if self.client().is_v2() {
            let send = |update: &_| {
                self.peer().notify_now_raw(SessionNotification::METHOD, update)?;
                Ok(true)
            };
            return self.send_in_v2(update, send).map(drop);
        }
        #[cfg(feature = "protocol-v2")]
        if let Some(updates) = self.for_v1(update) {
            return Ok(updates.iter().try_for_each(|update| self.peer().notify_now(update))?);
        }
        Ok(self.peer().notify_now(update)?)
    }

    /// Appends an update to a buffer in the version of the connection.
    pub(crate) fn push_to(
        &self,
        notifications: &mut NotificationBuffer,
        update: &SessionNotification,
    ) -> Result<()> {
        #[cfg(feature = "protocol-v2")]
        if self.client().is_v2() {
            let push = |update: &_| {
                notifications.push_raw(SessionNotification::METHOD, update)?;
                Ok(true)
            };
            return self.send_in_v2(update, push).map(drop);
        }
        #[cfg(feature = "protocol-v2")]
        if let Some(updates) = self.for_v1(update) {
            return Ok(updates.iter().try_for_each(|update| notifications.push(update))?);
        }
        Ok(notifications.push(update)?)
    }

    /// Buffers an update as it is. Returns false if the session is open. Fails if it is closed.
    fn buffer(&self, pre_open: &mut PreOpenBuffer, update: &SessionNotification) -> Result<bool> {
        let (updates, bytes) = match pre_open {
            PreOpenBuffer::Buffering { updates, bytes, .. } => (updates, bytes),
            PreOpenBuffer::Open => return Ok(false),
            #[cfg(feature = "protocol-v2")]
            PreOpenBuffer::Closed => return Err(Error::SessionClosed),
        };
        let Some(more) = serialized_len(&update.update, Limits::EARLY_BYTES - *bytes) else {
            return Err(Error::other(format!(
                "update limit reached ({} bytes before the session is open); send them in its first turn",
                Limits::EARLY_BYTES
            )));
        };
        *bytes += more;
        updates.push(update.clone());
        Ok(true)
    }

    /// Sends the response that opens the session with the buffered updates behind it, in one step. The
    /// client cannot react to the response before all of them are in the output, so every later message
    /// follows them.
    pub(crate) fn open(&self, responder: Responder, answer: NewSessionResponse) {
        let mut pre_open = self.inner.pre_open.lock_unpoisoned();
        let PreOpenBuffer::Buffering { updates, pending_session, .. } =
            std::mem::replace(&mut *pre_open, PreOpenBuffer::Open)
        else {
            return responder.respond(Ok(self.client().in_version(answer)));
        };
        let mut notifications = NotificationBuffer::new(self.peer());
        let mut settings = self.settings();
        for SessionNotification { mut update, .. } in updates {
            // The response has the setup, so a change of a mode or an option applies to the setup.
            let following = settings.apply(&mut update);
            for update in [Some(update), following].into_iter().flatten() {
                if let Err(error) = self.push_to(&mut notifications, &self.notification(update)) {
                    tracing::warn!(session = %self.inner.id, %error, "an update could not be sent");
                }
            }
        }
        self.inner.params.reservation.count_settings(settings.bytes());
        drop(settings);
        let answer = self.client().in_version(answer);
        pending_session
            .done(notifications, |notifications| responder.respond_followed_by(Ok(answer), notifications));
    }

    pub(crate) fn peer(&self) -> &Peer {
        self.inner.client.peer()
    }

    /// Returns the state of the running turn and its cancellation.
    #[cfg(feature = "protocol-v2")]
    pub(crate) fn running_turn(&self) -> Option<(Arc<TurnState>, CancellationToken)> {
        self.inner.turn.borrow().as_ref().map(|turn| (turn.state.clone(), turn.cancellation.clone()))
    }

    /// Sends a message of the session, unless the client has closed it.
    pub(crate) fn if_open<T>(&self, send: impl FnOnce() -> T) -> Result<T> {
        #[cfg(feature = "protocol-v2")]
        let pre_open = self.inner.pre_open.lock_unpoisoned();
        #[cfg(feature = "protocol-v2")]
        if matches!(*pre_open, PreOpenBuffer::Closed) {
            return Err(Error::SessionClosed);
        }
        Ok(send())
    }

    #[cfg(feature = "protocol-v2")]
    pub(crate) fn v2(&self) -> &crate::v2::SessionStateV2 {
        &self.inner.v2
    }

    /// Returns true if the client knows the session.
    #[cfg(feature = "protocol-v2")]
    pub(crate) fn is_open(&self) -> bool {
        matches!(&*self.inner.pre_open.lock_unpoisoned(), PreOpenBuffer::Open)
    }

    /// Sends no further update.
    #[cfg(feature = "protocol-v2")]
    pub(crate) fn end_updates(&self) {
        *self.inner.pre_open.lock_unpoisoned() = PreOpenBuffer::Closed;
    }

    /// Takes the slot for a turn.
    ///
    /// # Errors
    ///
    /// The reason why no turn can begin.
    pub(crate) fn begin_turn(&self, cancellation: CancellationToken) -> Result<Arc<TurnState>, &'static str> {
        if self.is_closing() {
            return Err("the session is being closed");
        }
        let mut begun = Err("a prompt is already running in this session");
        self.inner.turn.send_if_modified(|turn| {
            if turn.is_none() {
                let state = Arc::new(TurnState::running());
                *turn = Some(ActiveTurn { cancellation, state: state.clone() });
                begun = Ok(state);
            }
            // Nobody waits for the beginning of a turn.
            false
        });
        begun
    }

    /// Cancels the running turn and lets no turn begin until the guard is dropped. The reader calls this
    /// and [`begin_turn`](Self::begin_turn): a turn that began later would wait for the close in the
    /// queue, while the close waits for the turn.
    pub(crate) fn begin_close(&self) -> CloseGuard {
        self.inner.closing.fetch_add(1, Relaxed);
        self.cancel_turn();
        self.client().children().cancel_children(self.id());
        CloseGuard(self.clone())
    }

    /// Returns true if both handles are of the same session. Two sessions can have the same id.
    pub(crate) fn is(&self, other: &Session) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Frees the slot for a turn and sends the response in one step. After the response the slot is free,
    /// and anything that sees the free slot follows the response.
    pub(crate) fn end_turn(&self, answer: impl FnOnce()) {
        self.inner.turn.send_if_modified(|turn| {
            answer();
            *turn = None;
            // A receiver that subscribes later sees the free slot. Waking costs more than this check.
            self.inner.turn.receiver_count() > 0
        });
    }

    /// Waits until no turn is running.
    pub(crate) async fn turn_ended(&self) {
        let _ = self.inner.turn.subscribe().wait_for(Option::is_none).await;
    }

    /// Cancels the running turn, if there is one.
    pub(crate) fn cancel_turn(&self) {
        let turn = self.inner.turn.borrow().as_ref().map(|turn| turn.cancellation.clone());
        if let Some(turn) = turn {
            turn.cancel();
        }
        #[cfg(feature = "protocol-v2")]
        if self.client().is_v2() {
            self.cancel_work();
        }
    }

    /// Returns a ticket for the queue of requests that change this session. The reader calls this, so
    /// the queue has the order of the wire.
    pub(crate) fn queue_ticket(&self) -> QueueTicket {
        self.inner.queue.ticket()
    }
}

/// Returns the newest state that is a `T` or an `Arc<T>`.
fn find_state<T: Send + Sync + 'static>(states: &[Arc<dyn Any + Send + Sync>]) -> Option<Arc<T>> {
    states.iter().rev().find_map(|state| match state.downcast_ref::<Arc<T>>() {
        Some(shared) => Some(shared.clone()),
        None => state.clone().downcast().ok(),
    })
}

/// Prevents new turns while a session is closed, see [`Session::begin_close`].
pub(crate) struct CloseGuard(Session);

impl Drop for CloseGuard {
    fn drop(&mut self) {
        self.0.inner.closing.fetch_sub(1, Relaxed);
    }
}
