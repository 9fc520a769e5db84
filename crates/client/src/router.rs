//! Routes updates to turns, to listeners between turns, and to the state of sessions.
//!
//! This code runs on the reader, in the order of the wire, and must not block.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use duologue_rpc::{EvictingQueue, EvictionLimits, Limits, Lock, QueueSender, Responder};
use duologue_schema::{
    Conversation, LoadSessionResponse, Meta, NewSessionResponse, PromptResponse, Retention,
    SessionConfigOption, SessionId, SessionModeState, SessionState, SessionUpdate, ToolCallUpdate,
    serialized_len,
};

use crate::error::Result;
use crate::idle_updates::IdleUpdates;
use crate::limits::{KEPT_BYTES, KEPT_UPDATES, OPEN_CALL_BYTES_TOGETHER, STATE_BYTES};
use crate::open_state::{OpenState, RestoreTicket};
use crate::turn_events::TurnEvent;

/// The limits of updates for sessions that are being created.
const EARLY: EvictionLimits =
    EvictionLimits { items: KEPT_UPDATES, bytes: KEPT_BYTES, shared_bytes: usize::MAX };

/// Notifies the host of a session and its folders.
pub(crate) type SessionStartedHook = Box<dyn Fn(&SessionId, &[PathBuf]) + Send + Sync>;

/// Responds to a request to the user whose turn was cancelled.
pub(crate) type AnswerCancelled = fn(Responder);

pub(crate) type PromptTurnEvent = TurnEvent<PromptResponse>;

/// A session of the client.
pub(crate) struct SessionEntry {
    pub(crate) id: SessionId,
    /// The number of loads and resumes, see [`OpenState`].
    restored: AtomicU64,
    inner: Mutex<EntryState>,
    shared: Arc<ConnectionShared>,
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

struct EntryState {
    /// The state and the open tool calls. With `Client::keep_conversations` the entries too.
    conversation: Conversation,
    /// The `_meta` of the response that opened the session.
    meta: Option<Meta>,
    /// The bytes of open tool calls that are counted in [`ConnectionShared::call_bytes`].
    call_bytes: usize,
    /// The running turn. A session runs at most one.
    turn: Option<RunningTurn>,
    replay: Option<RunningReplay>,
    between: IdleUpdates,
    /// The agent's requests to the user that are open, by age. A cancellation responds to them in the order in
    /// which they arrived.
    questions: BTreeMap<u64, Question>,
    last_number: u64,
    shared: Arc<ConnectionShared>,
}

/// The state that the sessions of a connection share.
#[derive(Default)]
struct ConnectionShared {
    /// The number of dropped updates.
    dropped: AtomicU64,
    /// The bytes of the updates that wait for a listener, of all sessions.
    kept: Arc<AtomicUsize>,
    /// The bytes of the open tool calls of all sessions.
    call_bytes: AtomicUsize,
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

/// A request to the user, with its response for a cancelled turn.
struct Question {
    responder: Responder,
    cancel: AnswerCancelled,
}

struct RunningTurn {
    number: u64,
    /// `None` after the turn was detached or dropped.
    sink: Option<QueueSender<PromptTurnEvent>>,
    cancelled: bool,
    detached: bool,
}

impl SessionEntry {
    fn new(id: SessionId, retention: Retention, shared: &Arc<ConnectionShared>) -> Arc<Self> {
        Arc::new(SessionEntry {
            id,
            restored: AtomicU64::new(0),
            inner: Mutex::new(EntryState {
                conversation: Conversation::retaining(retention),
                meta: None,
                call_bytes: 0,
                turn: None,
                replay: None,
                between: IdleUpdates::kept(&shared.kept),
                questions: BTreeMap::new(),
                last_number: 0,
                shared: shared.clone(),
            }),
            shared: shared.clone(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, EntryState> {
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
    pub(crate) fn begin_state(
        &self,
        modes: Option<&SessionModeState>,
        config_options: Option<&[SessionConfigOption]>,
        meta: Option<&Meta>,
    ) {
        self.lock().begin_state(modes, config_options, meta);
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

    fn update(&self, update: SessionUpdate, bytes: usize) {
        let mut inner = self.lock();
        inner.apply(&update, bytes);
        if let Some(replay) = &inner.replay {
            let _ = replay.sink.push(TurnEvent::Update(update), bytes);
            return;
        }
        match &inner.turn {
            Some(RunningTurn { sink: Some(sink), .. }) => {
                // A stream that has stalled rejects updates. Its turn reports the error.
                let _ = sink.push(TurnEvent::Update(update), bytes);
                return;
            }
            // Updates of a dropped turn are discarded.
            Some(RunningTurn { detached: false, .. }) => return,
            _ => {}
        }
        inner.between(update, bytes);
    }

    /// Begins a turn and returns its number.
    ///
    /// # Errors
    ///
    /// The reason why no turn can begin.
    pub(crate) fn begin(&self, sink: QueueSender<PromptTurnEvent>) -> Result<u64, TurnRefused> {
        let mut inner = self.lock();
        if let Some(turn) = &inner.turn {
            return Err(if turn.cancelled { TurnRefused::Ending } else { TurnRefused::Busy });
        }
        if inner.replay.is_some() {
            return Err(TurnRefused::Busy);
        }
        inner.last_number += 1;
        let number = inner.last_number;
        inner.turn = Some(RunningTurn { number, sink: Some(sink), cancelled: false, detached: false });
        Ok(number)
    }

    /// Adds a prompt to the conversation.
    pub(crate) fn add_prompt(&self, prompt: &[duologue_schema::ContentBlock]) {
        self.lock().conversation.prompt(prompt);
    }

    /// Ends a turn with its response or an error, which follows the updates in its stream.
    pub(crate) fn end_turn(&self, number: u64, outcome: Result<PromptResponse>) {
        let mut inner = self.lock();
        let Some(turn) = inner.turn.take_if(|turn| turn.number == number) else { return };
        inner.conversation.end_turn();
        inner.count_open_calls();
        if let Some(sink) = turn.sink {
            let _ = sink.push(TurnEvent::Done(outcome), 0);
            sink.finish();
        }
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
        Some(OpenQuestions(std::mem::take(&mut inner.questions)))
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
                let (modes, options) = (response.modes.as_ref(), response.config_options.as_deref());
                inner.begin_state(modes, options, response.meta.as_ref());
                inner.conversation.end_turn();
            }
            Err(_) => inner.conversation = *before,
        }
        inner.count_open_calls();
        let _ = sink.push(TurnEvent::Done(answer), 0);
        sink.finish();
    }

    /// Sends the kept updates, and later updates between turns, to `sink`.
    pub(crate) fn listen(&self, sink: QueueSender<SessionUpdate>) {
        self.lock().between.listen(sink);
    }

    /// Fills in absent fields from earlier updates of the tool call. Returns false if nothing was added.
    pub(crate) fn complete(&self, call: &mut ToolCallUpdate) -> bool {
        let inner = self.lock();
        inner.conversation.open_call(&call.tool_call_id).is_some_and(|known| call.complete_from(known))
    }

    /// Adds a request to the user until it has its response or the turn is cancelled. Returns its number.
    ///
    /// # Errors
    ///
    /// The responder, if the turn was cancelled already.
    pub(crate) fn add_question(
        &self,
        responder: Responder,
        cancel: AnswerCancelled,
    ) -> Result<u64, Responder> {
        let mut inner = self.lock();
        if inner.turn.as_ref().is_some_and(|turn| turn.cancelled) {
            return Err(responder);
        }
        inner.last_number += 1;
        let number = inner.last_number;
        inner.questions.insert(number, Question { responder, cancel });
        Ok(number)
    }

    /// Responds to a request to the user, unless a cancellation did. Runs under the lock, so that the choice
    /// of the user cannot follow a `session/cancel`.
    pub(crate) fn answer(&self, question: u64, answer: impl FnOnce(Responder)) {
        let mut inner = self.lock();
        if let Some(question) = inner.questions.remove(&question) {
            answer(question.responder);
        }
    }
}

/// The open requests to the user of a cancelled turn.
pub(crate) struct OpenQuestions(BTreeMap<u64, Question>);

impl OpenQuestions {
    /// Responds to all of them with `cancelled`, as the protocol requires, and cancels their handlers.
    pub(crate) fn cancel(self) {
        for Question { responder, cancel } in self.0.into_values() {
            responder.cancellation().cancel();
            cancel(responder);
        }
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
    fn apply(&mut self, update: &SessionUpdate, bytes: usize) {
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

    /// Returns the turn of this number, if it is running.
    fn running(&mut self, number: u64) -> Option<&mut RunningTurn> {
        self.turn.as_mut().filter(|turn| turn.number == number)
    }

    fn keeps_entries(&self) -> bool {
        self.conversation.retention() == Retention::All
    }

    fn begin_state(
        &mut self,
        modes: Option<&SessionModeState>,
        config_options: Option<&[SessionConfigOption]>,
        meta: Option<&Meta>,
    ) {
        let has_no_limit = self.keeps_entries();
        self.meta = meta.filter(|meta| has_no_limit || fits(meta)).cloned();
        let modes = modes.filter(|modes| has_no_limit || fits(modes)).cloned();
        let options = config_options.filter(|options| has_no_limit || fits(options)).map(<[_]>::to_vec);
        self.conversation.begin(modes, options.unwrap_or_default());
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

    fn between(&mut self, update: SessionUpdate, bytes: usize) {
        let evicted = self.between.push(update, bytes, &self.shared.kept);
        self.shared.dropped.fetch_add(evicted, Relaxed);
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
    started: SessionStartedHook,
    shared: Arc<ConnectionShared>,
}

struct Sessions {
    /// The sessions that have handles or a running turn. An entry removes itself when it is dropped.
    slots: HashMap<SessionId, SessionSlot>,
    /// The number of `session/new` requests without a response. While there are any, updates of unknown
    /// sessions are kept, because they may be of the new session.
    opening: usize,
    early: EvictingQueue<(SessionId, SessionUpdate)>,
}

/// The slot of a session id.
struct SessionSlot {
    entry: Weak<SessionEntry>,
    open: OpenState,
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

    /// Opens a session until its restore has a response.
    fn begin_restore(&mut self, entry: &Arc<SessionEntry>) -> RestoreTicket {
        let ticket = RestoreTicket { number: entry.restored.fetch_add(1, Relaxed) + 1 };
        if let Some(open) = self.open_state(entry) {
            open.begin_restore(ticket);
        }
        ticket
    }
}

impl Router {
    pub(crate) fn new(keep_conversations: bool, started: SessionStartedHook) -> Self {
        let retention = if keep_conversations { Retention::All } else { Retention::OpenCalls };
        Router { retention, started, shared: Arc::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Sessions> {
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
            (self.started)(&response.session_id, folders);
        }
        // Created before the lock is taken, so that a panic releases the lock before it drops the entry, which takes
        // the lock.
        let entry = response.map(|response| {
            let entry = SessionEntry::new(response.session_id.clone(), self.retention, &self.shared);
            let (modes, options) = (response.modes.as_ref(), response.config_options.as_deref());
            entry.begin_state(modes, options, response.meta.as_ref());
            entry
        });
        let mut sessions = self.lock();
        sessions.opening -= 1;
        if let Some(entry) = &entry {
            for _ in 0..sessions.early.len() {
                let Some(((id, update), bytes)) = sessions.early.pop() else { break };
                if id == entry.id {
                    entry.update(update, bytes);
                } else {
                    sessions.early.push((id, update), bytes);
                }
            }
            let slot = SessionSlot { entry: Arc::downgrade(entry), open: OpenState::opened() };
            sessions.slots.insert(entry.id.clone(), slot);
        }
        if sessions.opening == 0 {
            self.shared.dropped.fetch_add(sessions.early.len() as u64, Relaxed);
            sessions.early = Sessions::default().early;
        }
        entry
    }

    /// Registers a session whose id is known in advance, for `session/resume`.
    pub(crate) fn register(&self, id: &SessionId, folders: &[PathBuf]) -> (Arc<SessionEntry>, RestoreTicket) {
        (self.started)(id, folders);
        let mut sessions = self.lock();
        let entry = self.find(&mut sessions, id);
        let restore = sessions.begin_restore(&entry);
        drop(sessions);
        (entry, restore)
    }

    /// Ends a restore, unless it has ended.
    pub(crate) fn end_restore(&self, entry: &Arc<SessionEntry>, restore: RestoreTicket, is_restored: bool) {
        if let Some(open) = self.lock().open_state(entry) {
            open.end_restore(restore, is_restored);
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
        // The request has not been sent, so the host knows the folders before any request of the session.
        (self.started)(id, folders);
        let restore = self.lock().begin_restore(&entry);
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
        if let Some(open) = self.lock().open_state(entry) {
            open.close(restored);
        }
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
mod tests {
    use duologue_schema::OPEN_CALL_BYTES;

    use super::*;
    use crate::limits::KEPT_BYTES_TOGETHER;

    /// Returns a session that was restored.
    fn restored(router: &Router, id: &SessionId) -> Arc<SessionEntry> {
        let (entry, restore) = router.register(id, &[]);
        router.end_restore(&entry, restore, true);
        entry
    }

    /// A weak pointer keeps the memory of its target, 1.6 KiB per session, for the life of the connection.
    #[test]
    fn a_session_without_handles_is_removed() {
        let router = Router::new(false, Box::new(|_, _| {}));
        let id = SessionId::from("a");
        let (first, again) = (restored(&router, &id), restored(&router, &id));
        drop(first);
        assert!(router.knows(&id));
        router.forget(&again, again.restored());
        assert!(!router.knows(&id));
        drop(again);
        assert!(router.lock().slots.is_empty());
    }

    #[test]
    fn a_long_id_of_a_session_is_not_kept() {
        let router = Router::new(false, Box::new(|_, _| {}));
        let named = |bytes: usize| SessionId::from("x".repeat(bytes));
        router.opening();
        assert!(router.knows(&named(Limits::ID_BYTES)));
        assert!(!router.knows(&named(Limits::ID_BYTES + 1)));
        // The bytes of a line include its id.
        for _ in 0..3 {
            router.update(
                named(KEPT_BYTES / 2).as_str(),
                SessionUpdate::agent_message("x"),
                KEPT_BYTES / 2 + 100,
            );
        }
        router.update(named(KEPT_BYTES).as_str(), SessionUpdate::agent_message("x"), KEPT_BYTES + 100);
        assert_eq!((router.lock().early.len(), router.dropped()), (1, 3));
    }

    #[test]
    fn the_kept_updates_of_all_sessions_are_limited() {
        let router = Router::new(false, Box::new(|_, _| {}));
        let ids: Vec<SessionId> = (0..40).map(|number| SessionId::from(number.to_string())).collect();
        let sessions: Vec<_> = ids.iter().map(|id| router.register(id, &[]).0).collect();
        for id in ids.iter().cycle().take(80) {
            router.update(id.as_str(), SessionUpdate::agent_message("x"), KEPT_BYTES / 2);
        }
        let kept = || router.shared.kept.load(Relaxed);
        assert_eq!(kept(), KEPT_BYTES_TOGETHER);
        assert_eq!(router.dropped(), 80 - (KEPT_BYTES_TOGETHER / (KEPT_BYTES / 2)) as u64);
        drop(sessions);
        assert_eq!(kept(), 0);
    }

    fn announce(router: &Router, session: &SessionId, title: usize) {
        let call = duologue_schema::ToolCall::new("a", "x".repeat(title));
        router.update(session.as_str(), call.into(), title);
    }

    fn knows_call(entry: &SessionEntry) -> bool {
        entry.complete(&mut ToolCallUpdate::new("a"))
    }

    #[test]
    fn the_open_calls_of_all_sessions_are_bounded() {
        let router = Router::new(false, Box::new(|_, _| {}));
        let ids: Vec<SessionId> = (0..100).map(|number| SessionId::from(number.to_string())).collect();
        let mut sessions: Vec<_> = ids.iter().map(|id| router.register(id, &[]).0).collect();
        ids.iter().for_each(|id| announce(&router, id, OPEN_CALL_BYTES / 2));
        let total = || router.shared.call_bytes.load(Relaxed);
        assert!(total() <= OPEN_CALL_BYTES_TOGETHER);
        let most = OPEN_CALL_BYTES_TOGETHER / (OPEN_CALL_BYTES / 2);
        let known =
            |sessions: &[Arc<SessionEntry>]| sessions.iter().filter(|entry| knows_call(entry)).count();
        assert_eq!(known(&sessions), most - 1);
        // A session that ends makes room for another.
        sessions.swap_remove(0);
        announce(&router, &ids[99], OPEN_CALL_BYTES / 2);
        assert_eq!(known(&sessions), most - 1);
        drop(sessions);
        assert_eq!(total(), 0);
    }

    #[test]
    fn a_long_update_or_response_leaves_the_state_unchanged() {
        let router = Router::new(false, Box::new(|_, _| {}));
        let id = SessionId::from("a");
        let (entry, _) = router.register(&id, &[]);
        let titled = |title: &str| duologue_schema::SessionInfoUpdate::new().title(title).into();
        router.update("a", titled("first"), STATE_BYTES);
        router.update("a", titled("second"), STATE_BYTES + 1);
        assert_eq!(entry.read_state(SessionState::clone).title.as_deref(), Some("first"));

        let modes = |length: usize| {
            let mode = duologue_schema::SessionMode::new("a", "x".repeat(length));
            SessionModeState::new("a", vec![mode])
        };
        entry.begin_state(Some(&modes(9)), None, None);
        assert_eq!(entry.read_state(SessionState::clone).modes, Some(modes(9)));
        entry.begin_state(Some(&modes(STATE_BYTES)), None, None);
        assert_eq!(entry.read_state(SessionState::clone).modes, None);
    }

    /// A conversation has no limit, so neither has its state.
    #[test]
    fn the_state_of_a_conversation_has_no_limit() {
        let router = Router::new(true, Box::new(|_, _| {}));
        let (entry, _) = router.register(&SessionId::from("a"), &[]);
        let long = "x".repeat(STATE_BYTES);
        let titled = duologue_schema::SessionInfoUpdate::new().title(long.clone());
        router.update("a", titled.into(), STATE_BYTES + 100);
        assert_eq!(entry.read_state(SessionState::clone).title.as_ref(), Some(&long));
        let mode = duologue_schema::SessionMode::new("a", long);
        let modes = SessionModeState::new("a", vec![mode]);
        entry.begin_state(Some(&modes), None, None);
        assert_eq!(entry.read_state(SessionState::clone).modes, Some(modes));
        let option = SessionConfigOption::boolean("a", "x".repeat(STATE_BYTES), true);
        let options = duologue_schema::ConfigOptionUpdate::new(vec![option.clone()]);
        entry.change_state(&options.into());
        assert_eq!(entry.read_state(SessionState::clone).config_options, [option]);
    }

    #[test]
    fn a_restored_session_reuses_the_entry_with_handles() {
        let router = Router::new(false, Box::new(|_, _| {}));
        let id = SessionId::from("a");
        let closed = restored(&router, &id);
        router.forget(&closed, closed.restored());
        let restored = restored(&router, &id);
        assert!(Arc::ptr_eq(&closed, &restored) && router.knows(&id));
    }
}
