//! Routes updates to turns, to listeners between turns, and to the state of sessions.
//!
//! This code runs on the reader, in the order of the wire, and must not block.

mod other_turn;
mod questions;

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};

use duologue_rpc::{EvictingQueue, EvictionLimits, Limits, Lock, QueueSender};
use duologue_schema::{
    AuthMethod, Conversation, LoadSessionResponse, Meta, NewSessionResponse, PromptRequest, PromptResponse,
    ProtocolVersion, Retention, SessionConfigOption, SessionId, SessionModeState, SessionState,
    SessionUpdate, ToolCallUpdate, serialized_len,
};
#[cfg(feature = "protocol-v2")]
use duologue_schema::{AvailableCommand, AvailableCommandsUpdate};
use tokio::sync::futures::Notified;
use tokio::sync::{Notify, watch};

use self::questions::UserQuestion;
pub(crate) use self::questions::{OpenQuestions, QuestionKind};
#[cfg(feature = "protocol-v2")]
use crate::cancellable::CancellableIds;
use crate::error::Result;
use crate::idle_updates::IdleUpdates;
use crate::limits::{KEPT_BYTES, KEPT_UPDATES, OPEN_CALL_BYTES_TOGETHER, STATE_BYTES};
use crate::open_state::{OpenState, RestoreTicket};
#[cfg(feature = "protocol-v2")]
use crate::prompt_progress::PromptProgress;
use crate::turn_events::TurnEvent;

/// The limits of updates for sessions that are being created.
const EARLY: EvictionLimits =
    EvictionLimits { items: KEPT_UPDATES, bytes: KEPT_BYTES, shared_bytes: usize::MAX };

/// Notifies the host of the folders of a session, or of its end.
pub(crate) type SessionHook = Box<dyn Fn(&SessionId, Option<&[PathBuf]>) + Send + Sync>;

pub(crate) type PromptTurnEvent = TurnEvent<PromptResponse>;

/// A session of the client.
pub(crate) struct SessionEntry {
    pub(crate) id: SessionId,
    /// The number of loads and resumes, see [`OpenState`].
    restored: AtomicU64,
    /// The session of the client to which this child session belongs.
    pub(crate) root: Option<Weak<SessionEntry>>,
    inner: Mutex<EntryState>,
    pub(crate) shared: Arc<ConnectionShared>,
}

impl Drop for SessionEntry {
    /// Removes the slot of the session, whose weak pointer would keep the memory of the entry.
    fn drop(&mut self) {
        let mut sessions = self.shared.sessions();
        if sessions.slots.get(&self.id).is_some_and(|known| std::ptr::eq(known.entry.as_ptr(), self)) {
            sessions.slots.remove(&self.id);
        }
    }
}

pub(crate) struct EntryState {
    /// The state and the open tool calls. With `Client::keep_conversations` the entries too.
    pub(crate) conversation: Conversation,
    /// The `_meta` of the response that opened the session.
    meta: Option<Meta>,
    /// The bytes of open tool calls that are counted in [`ConnectionShared::call_bytes`].
    call_bytes: usize,
    /// The running turn. A session runs at most one.
    turn: Option<RunningTurn>,
    replay: Option<RunningReplay>,
    #[cfg(feature = "protocol-v2")]
    cancellable: CancellableIds,
    between: IdleUpdates,
    /// The number of updates between turns so far.
    between_count: u64,
    /// The agent's requests to the user that are open, by age. A cancellation responds to them in the order in
    /// which they arrived.
    questions: BTreeMap<u64, UserQuestion>,
    last_number: u64,
    /// True while the turn of another client may run: what the server says or, without its word, from a load or resume to the
    /// end of a turn of this client.
    may_have_other_turn: watch::Sender<bool>,
    pub(crate) children: crate::children::Children,
    shared: Arc<ConnectionShared>,
}

/// The state that the sessions of a connection share.
#[derive(Default)]
pub(crate) struct ConnectionShared {
    /// The number of dropped updates.
    pub(crate) dropped: AtomicU64,
    /// The bytes of the updates that wait for a listener, of all sessions.
    kept: Arc<AtomicUsize>,
    /// The bytes of the open tool calls of all sessions.
    call_bytes: AtomicUsize,
    /// The ways to log in, for the error of a turn that needs a login.
    auth_methods: OnceLock<Vec<AuthMethod>>,
    /// Notified at the end of each turn.
    turn_ended: Notify,
    /// The sessions whose prompt of version 2 was accepted, by address, until the end of the turn. No response is
    /// pending that would keep them.
    #[cfg(feature = "protocol-v2")]
    accepted: Mutex<HashMap<usize, Arc<SessionEntry>>>,
    /// No entry may be dropped under this lock, because the drop takes it.
    sessions: Mutex<Sessions>,
}

impl ConnectionShared {
    fn sessions(&self) -> MutexGuard<'_, Sessions> {
        self.sessions.lock_unpoisoned()
    }
}

/// A `session/load` without a response.
struct RunningReplay {
    number: u64,
    sink: QueueSender<TurnEvent<LoadSessionResponse>>,
    /// The conversation before the replay, which a failed load restores.
    before: Box<Conversation>,
}

/// A `session/load` that was begun.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReplayTicket {
    pub(crate) number: u64,
    restore: RestoreTicket,
}

struct RunningTurn {
    number: u64,
    /// `None` after the turn was detached or dropped.
    sink: Option<QueueSender<PromptTurnEvent>>,
    cancelled: bool,
    detached: bool,
    /// The progress of a prompt of version 2.
    #[cfg(feature = "protocol-v2")]
    progress: Option<PromptProgress>,
    /// The key in [`ConnectionShared::accepted`].
    #[cfg(feature = "protocol-v2")]
    accepted: Option<usize>,
}

/// The state of a session in the response that opened it.
#[derive(Default)]
pub(crate) struct Opened<'a> {
    pub(crate) modes: Option<&'a SessionModeState>,
    pub(crate) config_options: Option<&'a [SessionConfigOption]>,
    /// The commands of version 2. In version 1, and if there are none here, they are an update.
    #[cfg(feature = "protocol-v2")]
    pub(crate) commands: &'a [AvailableCommand],
    pub(crate) meta: Option<&'a Meta>,
}

/// Returns the [`Opened`] of a response of any method that opens a session.
macro_rules! opened {
    ($response:expr) => {
        $crate::router::Opened {
            modes: $response.modes.as_ref(),
            config_options: $response.config_options.as_deref(),
            #[cfg(feature = "protocol-v2")]
            commands: &$response.available_commands,
            meta: $response.meta.as_ref(),
        }
    };
}
pub(crate) use opened;

impl SessionEntry {
    fn new(id: SessionId, retention: Retention, shared: &Arc<ConnectionShared>) -> Arc<Self> {
        Arc::new(SessionEntry::unshared(id, retention, shared))
    }

    pub(crate) fn unshared(id: SessionId, retention: Retention, shared: &Arc<ConnectionShared>) -> Self {
        SessionEntry {
            id,
            restored: AtomicU64::new(0),
            root: None,
            inner: Mutex::new(EntryState {
                conversation: Conversation::retaining(retention),
                meta: None,
                call_bytes: 0,
                turn: None,
                replay: None,
                #[cfg(feature = "protocol-v2")]
                cancellable: CancellableIds::default(),
                between: IdleUpdates::kept(&shared.kept),
                between_count: 0,
                questions: BTreeMap::new(),
                last_number: 0,
                may_have_other_turn: watch::Sender::new(false),
                children: Default::default(),
                shared: shared.clone(),
            }),
            shared: shared.clone(),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, EntryState> {
        self.inner.lock_unpoisoned()
    }

    /// Returns the argument for [`Router::forget`]. Call it before the request to the agent.
    pub(crate) fn restored(&self) -> u64 {
        self.restored.load(Relaxed)
    }

    pub(crate) fn read_state<T>(&self, read: impl FnOnce(&SessionState) -> T) -> T {
        read(self.lock().conversation.state())
    }

    pub(crate) fn meta(&self) -> Option<Meta> {
        self.lock().meta.clone()
    }

    /// Sets the state from the response that opened the session. Parts over the limit are dropped.
    pub(crate) fn begin_state(&self, opened: Opened<'_>) {
        self.lock().begin_state(opened);
    }

    /// Applies a change that the response to a request of ours confirms, unless it is over the limit.
    pub(crate) fn change_state(&self, change: &SessionUpdate) {
        let has_no_limit = self.lock().keeps_entries();
        if has_no_limit || fits(change) {
            self.lock().conversation.apply(change);
        }
    }

    /// Passes the conversation to `read`, if its entries are kept.
    pub(crate) fn with_conversation<T>(&self, read: impl FnOnce(&Conversation) -> T) -> Option<T> {
        let inner = self.lock();
        inner.keeps_entries().then(|| read(&inner.conversation))
    }

    pub(crate) fn update(&self, update: SessionUpdate, bytes: usize) {
        let mut inner = self.lock();
        inner.apply(&update, bytes);
        inner.pass_on(update, bytes);
    }

    /// Waits until `begin` is worth another attempt. Create the future before the attempt that fails.
    pub(crate) fn turn_ended(&self) -> Notified<'_> {
        self.shared.turn_ended.notified()
    }

    /// Begins a turn. Returns its number, and the number of updates between turns before it. In version 2 its end is an
    /// update, otherwise the response.
    ///
    /// # Errors
    ///
    /// The reason why no turn can begin.
    pub(crate) fn begin(
        &self,
        sink: QueueSender<PromptTurnEvent>,
        version: ProtocolVersion,
    ) -> Result<(u64, u64), TurnRefused> {
        let mut inner = self.lock();
        if let Some(turn) = &inner.turn {
            return Err(if turn.cancelled { TurnRefused::Ending } else { TurnRefused::Busy });
        }
        if inner.replay.is_some() {
            return Err(TurnRefused::Busy);
        }
        inner.last_number += 1;
        let number = inner.last_number;
        inner.turn = Some(RunningTurn {
            number,
            sink: Some(sink),
            cancelled: false,
            detached: false,
            #[cfg(feature = "protocol-v2")]
            progress: (version > ProtocolVersion::V1).then(PromptProgress::default),
            #[cfg(feature = "protocol-v2")]
            accepted: None,
        });
        #[cfg(not(feature = "protocol-v2"))]
        let _ = version;
        Ok((number, inner.between_count))
    }

    /// Adds a prompt to the conversation.
    pub(crate) fn add_prompt(&self, prompt: &PromptRequest) {
        self.lock().conversation.prompt(&prompt.prompt);
    }

    /// Adds the prompt of a turn of version 2 to the conversation when the agent reports it, or at the end of the turn.
    #[cfg(feature = "protocol-v2")]
    pub(crate) fn expect_prompt(&self, number: u64, prompt: &Arc<PromptRequest>) {
        let mut inner = self.lock();
        match inner.running(number).and_then(|turn| turn.progress.as_mut()) {
            Some(progress) => progress.set_prompt(prompt.clone()),
            None => inner.conversation.prompt(&prompt.prompt),
        }
    }

    /// Ends a turn with its response or an error, which follows the updates in its stream.
    pub(crate) fn end_turn(&self, number: u64, outcome: Result<PromptResponse>) {
        self.lock().end_turn(number, outcome);
    }

    /// Lets the turn continue without its stream.
    pub(crate) fn detach(&self, number: u64) {
        if let Some(turn) = self.lock().running(number) {
            turn.sink = None;
            turn.detached = true;
        }
    }

    /// Marks the turn as cancelled, once. Returns its open requests to the user, to be answered after
    /// `session/cancel` was sent. `drop_sink` is true if the stream was dropped.
    pub(crate) fn cancel(&self, number: u64, drop_sink: bool) -> Option<OpenQuestions> {
        let mut inner = self.lock();
        let turn = inner.running(number)?;
        if drop_sink {
            turn.sink = None;
        }
        if std::mem::replace(&mut turn.cancelled, true) {
            return None;
        }
        Some(inner.take_questions())
    }

    /// Returns true if the turn was cancelled and has not ended.
    pub(crate) fn is_cancelled(&self, number: u64) -> bool {
        self.lock().running(number).is_some_and(|turn| turn.cancelled)
    }

    /// Returns true if the turn is running and was not detached.
    pub(crate) fn is_attached(&self, number: u64) -> bool {
        self.lock().running(number).is_some_and(|turn| !turn.detached)
    }

    /// Returns the number of the running turn, if there is one.
    pub(crate) fn running(&self) -> Option<u64> {
        self.lock().turn.as_ref().map(|turn| turn.number)
    }

    /// Begins a replay with an empty conversation and returns its number. Returns `None` while a turn or another
    /// replay runs.
    fn begin_replay(&self, sink: QueueSender<TurnEvent<LoadSessionResponse>>) -> Option<u64> {
        let mut inner = self.lock();
        if inner.replay.is_some() || inner.turn.is_some() {
            return None;
        }
        inner.last_number += 1;
        let number = inner.last_number;
        let fresh = Conversation::retaining(inner.conversation.retention());
        let before = Box::new(std::mem::replace(&mut inner.conversation, fresh));
        inner.replay = Some(RunningReplay { number, sink, before });
        Some(number)
    }

    /// Returns true if this replay is running.
    pub(crate) fn is_replaying(&self, number: u64) -> bool {
        self.lock().replay.as_ref().is_some_and(|replay| replay.number == number)
    }

    fn end_replay(&self, number: u64, answer: Result<LoadSessionResponse>) {
        let mut inner = self.lock();
        let replay = inner.replay.take_if(|replay| replay.number == number);
        let Some(RunningReplay { sink, before, .. }) = replay else { return };
        match &answer {
            Ok(response) => {
                inner.begin_state(opened!(response));
                inner.note_opened(response.meta.as_ref());
                inner.conversation.end_turn();
            }
            Err(_) => inner.conversation = *before,
        }
        inner.count_open_calls();
        let _ = sink.push(TurnEvent::Done(answer), 0);
        sink.finish();
    }

    /// Sends the kept updates, and later updates between turns, to `sink`. Returns the number of updates between turns
    /// before them.
    pub(crate) fn listen(&self, sink: QueueSender<SessionUpdate>) -> u64 {
        let mut inner = self.lock();
        let kept = inner.between.listen(sink);
        inner.between_count - kept
    }

    /// Fills in absent fields from earlier updates of the tool call. Returns false if nothing was added.
    pub(crate) fn complete(&self, call: &mut ToolCallUpdate) -> bool {
        let inner = self.lock();
        inner.conversation.open_call(&call.tool_call_id).is_some_and(|known| call.complete_from(known))
    }
}

impl Drop for EntryState {
    fn drop(&mut self) {
        self.shared.call_bytes.fetch_sub(self.call_bytes, Relaxed);
    }
}

impl EntryState {
    /// Applies an update of `bytes` on the wire. One over the limit leaves the state unchanged, which is kept for
    /// as long as the session is known; with the entries, everything is kept.
    pub(crate) fn apply(&mut self, update: &SessionUpdate, bytes: usize) {
        #[cfg(feature = "protocol-v2")]
        self.cancellable.apply(update);
        if self.children.of_child && !self.keeps_entries() && crate::children::is_state(update) {
            return;
        }
        if bytes > STATE_BYTES && !self.keeps_entries() && SessionState::is_changed_by(update) {
            tracing::warn!(bytes, "an update is too long for the state of its session");
            return;
        }
        self.conversation.apply(update);
        let before = self.call_bytes;
        self.count_open_calls();
        let has_grown = self.call_bytes > before;
        while has_grown
            && self.shared.call_bytes.load(Relaxed) > OPEN_CALL_BYTES_TOGETHER
            && self.conversation.evict_open_call()
        {
            self.count_open_calls();
        }
    }

    /// Follows the turn, and delivers an update for the user.
    pub(crate) fn pass_on(&mut self, update: SessionUpdate, bytes: usize) {
        #[cfg(feature = "protocol-v2")]
        let Some(update) = self.progress(update) else { return };
        self.deliver(update, bytes);
    }

    /// Passes an update to the replay, the turn or the listener between turns.
    fn deliver(&mut self, update: SessionUpdate, bytes: usize) {
        if let Some(replay) = &self.replay {
            let _ = replay.sink.push(TurnEvent::Update(update), bytes);
            return;
        }
        match &self.turn {
            Some(RunningTurn { sink: Some(sink), .. }) => {
                // A stream that has stalled rejects updates. Its turn reports the error.
                let _ = sink.push(TurnEvent::Update(update), bytes);
                return;
            }
            // Updates of a dropped turn are discarded.
            Some(RunningTurn { detached: false, .. }) => return,
            _ => {}
        }
        self.between_count += 1;
        let evicted = self.between.push(update, bytes, &self.shared.kept);
        self.shared.dropped.fetch_add(evicted, Relaxed);
    }

    fn end_turn(&mut self, number: u64, outcome: Result<PromptResponse>) {
        let Some(turn) = self.turn.take_if(|turn| turn.number == number) else { return };
        #[cfg(feature = "protocol-v2")]
        let turn = self.release(turn);
        self.conversation.end_turn();
        self.count_open_calls();
        // A prompt can be refused because another turn runs.
        if outcome.is_ok() {
            self.may_have_other_turn.send_replace(false);
        }
        if let Some(sink) = turn.sink {
            let login = self.shared.auth_methods.get().map(Vec::as_slice).unwrap_or_default();
            let _ = sink.push(TurnEvent::Done(outcome.map_err(|error| error.with_login(login))), 0);
            sink.finish();
        }
        self.shared.turn_ended.notify_waiters();
    }

    /// Returns the turn of this number, if it is running.
    fn running(&mut self, number: u64) -> Option<&mut RunningTurn> {
        self.turn.as_mut().filter(|turn| turn.number == number)
    }

    fn keeps_entries(&self) -> bool {
        self.conversation.retention() == Retention::All
    }

    fn begin_state(&mut self, opened: Opened<'_>) {
        let has_no_limit = self.keeps_entries();
        self.meta = opened.meta.filter(|meta| has_no_limit || fits(meta)).cloned();
        let modes = opened.modes.filter(|modes| has_no_limit || fits(modes)).cloned();
        let options = opened.config_options.filter(|options| has_no_limit || fits(options));
        self.conversation.begin(modes, options.map(<[_]>::to_vec).unwrap_or_default());
        #[cfg(feature = "protocol-v2")]
        if !opened.commands.is_empty() && (has_no_limit || fits(&opened.commands)) {
            let update = AvailableCommandsUpdate::new(opened.commands.to_vec());
            self.conversation.apply(&SessionUpdate::AvailableCommandsUpdate(update));
        }
    }

    /// Updates the total of all sessions after the open tool calls of this one changed.
    fn count_open_calls(&mut self) {
        let replaced = self.replay.as_ref().map_or(0, |replay| replay.before.open_call_bytes());
        let bytes = self.conversation.open_call_bytes() + replaced;
        if bytes != self.call_bytes {
            self.shared.call_bytes.fetch_add(bytes.wrapping_sub(self.call_bytes), Relaxed);
            self.call_bytes = bytes;
        }
    }
}

/// Returns true if the part of a response is short enough for the state, and logs it otherwise.
fn fits(part: &impl serde::Serialize) -> bool {
    let fits = serialized_len(part, STATE_BYTES).is_some();
    if !fits {
        tracing::warn!("a response is too long for the state of its session");
    }
    fits
}

/// The reason why a turn cannot begin.
pub(crate) enum TurnRefused {
    Busy,
    /// A cancelled turn is still ending.
    Ending,
}

/// The sessions of a connection, and the updates of sessions that are being created.
pub(crate) struct Router {
    retention: Retention,
    /// Called without the lock.
    pub(crate) notify_host: SessionHook,
    shared: Arc<ConnectionShared>,
}

pub(crate) struct Sessions {
    /// The sessions that have handles or a running turn. An entry removes itself when it is dropped.
    pub(crate) slots: HashMap<SessionId, SessionSlot>,
    /// The number of `session/new` requests without a response. While there are any, updates of unknown
    /// sessions are kept, because they may be of the new session.
    opening: usize,
    early: EvictingQueue<(SessionId, SessionUpdate)>,
}

/// The slot of a session id.
pub(crate) struct SessionSlot {
    pub(crate) entry: Weak<SessionEntry>,
    pub(crate) open: OpenState,
}

impl SessionSlot {
    fn is_open(&self) -> bool {
        self.open.is_open()
    }
}

impl Default for Sessions {
    fn default() -> Self {
        let early = EvictingQueue::new(EARLY, &Arc::default());
        Sessions { slots: HashMap::new(), opening: 0, early }
    }
}

impl Sessions {
    fn entry(&self, id: &str) -> Option<Arc<SessionEntry>> {
        self.slots.get(id).filter(|known| known.is_open())?.entry.upgrade()
    }

    /// Returns the state of a session, unless another session has its id now.
    fn open_state(&mut self, entry: &Arc<SessionEntry>) -> Option<&mut OpenState> {
        let known = self.slots.get_mut(&entry.id)?;
        (known.entry.as_ptr() == Arc::as_ptr(entry)).then_some(&mut known.open)
    }

    /// Opens a session with these folders until its restore has a response.
    fn begin_restore(&mut self, entry: &Arc<SessionEntry>, folders: &[PathBuf]) -> RestoreTicket {
        let ticket = RestoreTicket { number: entry.restored.fetch_add(1, Relaxed) + 1 };
        if let Some(open) = self.open_state(entry) {
            open.begin_restore(ticket, folders.to_vec());
        }
        ticket
    }
}

impl Router {
    pub(crate) fn new(keep_conversations: bool, notify_host: SessionHook) -> Self {
        let retention = if keep_conversations { Retention::All } else { Retention::OpenCalls };
        Router { retention, notify_host, shared: Arc::default() }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Sessions> {
        self.shared.sessions()
    }

    pub(crate) fn entry(&self, id: &SessionId) -> Option<Arc<SessionEntry>> {
        self.lock().entry(id.as_str())
    }

    /// Returns true if requests may name this session: it is open, or a session is being created. The length of the id
    /// is limited, because a terminal, for example, keeps the id for longer than the request is counted.
    pub(crate) fn knows(&self, id: &SessionId) -> bool {
        let known = |slot: &SessionSlot| slot.is_open() && slot.entry.strong_count() > 0;
        let sessions = self.lock();
        id.as_str().len() <= Limits::ID_BYTES
            && (sessions.opening > 0 || sessions.slots.get(id).is_some_and(known))
    }

    pub(crate) fn update(&self, id: &str, update: SessionUpdate, bytes: usize) {
        let mut sessions = self.lock();
        if let Some(entry) = sessions.entry(id) {
            if let SessionUpdate::SubagentUpdate(_) = &update {
                let mut changes = crate::children::ChildChanges::default();
                sessions.update_child(&entry, update, bytes, &mut changes);
                drop(sessions);
                return self.finish(changes);
            }
            drop(sessions);
            return entry.update(update, bytes);
        }
        if sessions.opening == 0 {
            self.shared.dropped.fetch_add(1, Relaxed);
            return;
        }
        // The oldest are evicted first: their session may never be answered.
        let evicted = sessions.early.push((id.into(), update), bytes);
        self.shared.dropped.fetch_add(evicted, Relaxed);
    }

    /// Registers that a `session/new` will be sent.
    pub(crate) fn opening(&self) {
        self.lock().opening += 1;
    }

    /// Handles the response to `session/new`. The reader calls it before it reads later messages.
    pub(crate) fn opened(
        &self,
        response: Option<&NewSessionResponse>,
        folders: &[PathBuf],
    ) -> Option<Arc<SessionEntry>> {
        if let Some(response) = response {
            (self.notify_host)(&response.session_id, Some(folders));
        }
        // Created before the lock is taken, so that a panic releases the lock before it drops the entry, which takes
        // the lock.
        let entry = response.map(|response| {
            let entry = SessionEntry::new(response.session_id.clone(), self.retention, &self.shared);
            entry.begin_state(opened!(response));
            entry
        });
        let mut sessions = self.lock();
        sessions.opening -= 1;
        let mut changes = crate::children::ChildChanges::default();
        if let Some(entry) = &entry {
            let slot =
                SessionSlot { entry: Arc::downgrade(entry), open: OpenState::opened(folders.to_vec()) };
            sessions.slots.insert(entry.id.clone(), slot);
            for _ in 0..sessions.early.len() {
                let Some(((id, update), bytes)) = sessions.early.pop() else { break };
                let Some((id, update)) =
                    sessions.update_early_child(entry, (id, update), bytes, &mut changes)
                else {
                    continue;
                };
                if id == entry.id {
                    entry.update(update, bytes);
                } else {
                    sessions.early.push((id, update), bytes);
                }
            }
        }
        if sessions.opening == 0 {
            self.shared.dropped.fetch_add(sessions.early.len() as u64, Relaxed);
            sessions.early = Sessions::default().early;
        }
        drop(sessions);
        self.finish(changes);
        entry
    }

    /// Registers a session whose id is known in advance, for `session/resume`.
    pub(crate) fn register(&self, id: &SessionId, folders: &[PathBuf]) -> (Arc<SessionEntry>, RestoreTicket) {
        let mut sessions = self.lock();
        let entry = self.find(&mut sessions, id);
        let restore = sessions.begin_restore(&entry, folders);
        drop(sessions);
        // The request has not been sent, so the host knows the folders before any request of the session.
        self.announce(id, Some(folders));
        (entry, restore)
    }

    /// Ends a restore, unless it has ended.
    pub(crate) fn end_restore(&self, entry: &Arc<SessionEntry>, restore: RestoreTicket, is_restored: bool) {
        self.change(entry, |open| open.end_restore(restore, is_restored));
    }

    /// Changes the state of a session, unless another session has its id, and notifies the host of changed folders.
    fn change(&self, entry: &Arc<SessionEntry>, change: impl FnOnce(&mut OpenState)) {
        let mut sessions = self.lock();
        let Some(open) = sessions.open_state(entry) else { return };
        let before = open.folders().map(<[_]>::to_vec);
        change(open);
        let after = open.folders().map(<[_]>::to_vec);
        drop(sessions);
        if after != before {
            self.announce(&entry.id, after.as_deref());
        }
        if after.is_none() {
            self.close_children(entry);
        }
    }

    /// Notifies the host of the folders of a session. If they change meanwhile, on another thread, it does so again: the
    /// last call of the host has the last folders.
    fn announce(&self, id: &SessionId, folders: Option<&[PathBuf]>) {
        (self.notify_host)(id, folders);
        let now = || self.lock().slots.get(id).and_then(|slot| slot.open.folders()).map(<[_]>::to_vec);
        let (mut known, mut current) = (folders.map(<[_]>::to_vec), now());
        while known != current {
            (self.notify_host)(id, current.as_deref());
            (known, current) = (current, now());
        }
    }

    /// Registers a session for `session/load`. Returns `None` without an effect while a turn or another replay runs.
    pub(crate) fn register_replay(
        &self,
        id: &SessionId,
        folders: &[PathBuf],
        sink: QueueSender<TurnEvent<LoadSessionResponse>>,
    ) -> Option<(Arc<SessionEntry>, ReplayTicket)> {
        let entry = self.find(&mut self.lock(), id);
        let number = entry.begin_replay(sink)?;
        let restore = self.lock().begin_restore(&entry, folders);
        self.announce(id, Some(folders));
        Some((entry, ReplayTicket { number, restore }))
    }

    /// Ends a replay with its response or an error, unless it has ended.
    pub(crate) fn end_replay(
        &self,
        entry: &Arc<SessionEntry>,
        ticket: ReplayTicket,
        answer: Result<LoadSessionResponse>,
    ) {
        self.end_restore(entry, ticket.restore, answer.is_ok());
        entry.end_replay(ticket.number, answer);
    }

    /// Returns the session with this id if it has handles, or a new one that is not open yet.
    fn find(&self, sessions: &mut Sessions, id: &SessionId) -> Arc<SessionEntry> {
        // A closed session is reused while it has handles. Two entries with one id would compete for updates.
        if let Some(entry) = sessions.slots.get(id).and_then(|known| known.entry.upgrade()) {
            return entry;
        }
        let entry = SessionEntry::new(id.clone(), self.retention, &self.shared);
        let slot = SessionSlot { entry: Arc::downgrade(&entry), open: OpenState::default() };
        sessions.slots.insert(id.clone(), slot);
        entry
    }

    /// Closes a session, unless another session has its id or it was restored after the close was sent. `restored` is the
    /// number of restores before the close.
    pub(crate) fn forget(&self, entry: &Arc<SessionEntry>, restored: u64) {
        self.change(entry, |open| open.close(restored));
    }

    /// Sets the ways to log in that the agent offers.
    pub(crate) fn set_auth_methods(&self, methods: Vec<AuthMethod>) {
        let _ = self.shared.auth_methods.set(methods);
    }

    /// Counts an update that could not be decoded.
    pub(crate) fn count_invalid(&self) {
        self.shared.dropped.fetch_add(1, Relaxed);
    }

    /// Returns the number of dropped updates since the start of the connection.
    pub(crate) fn dropped(&self) -> u64 {
        self.shared.dropped.load(Relaxed)
    }
}

#[cfg(test)]
mod tests;
#[cfg(feature = "protocol-v2")]
mod turn_v2;
