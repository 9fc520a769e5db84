//! Where updates go: to the turn, to whoever listens between turns, or into the session's state.
//!
//! Runs on the reader, so everything here is quick and in the order of the wire.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use duologue_rpc::{Limits, QueueSender, Responder};
use duologue_schema::{
    Conversation, LoadSessionResponse, NewSessionResponse, PromptResponse, SessionId, SessionUpdate,
    ToolCallUpdate,
};

use crate::bounded::{Bounded, Bounds};
use crate::calls::OpenCalls;
use crate::error::Result;
use crate::limits::{KEPT_BYTES, KEPT_BYTES_TOGETHER, KEPT_UPDATES};
use crate::state::SessionState;
use crate::turn_events::TurnEvent;

/// Updates that wait for somebody who listens.
const KEPT: Bounds = Bounds { items: KEPT_UPDATES, bytes: KEPT_BYTES, together: KEPT_BYTES_TOGETHER };

/// Tells the host of a session and its folders.
pub(crate) type SessionStartedHook = Box<dyn Fn(&SessionId, &[PathBuf]) + Send + Sync>;

/// How a question is answered when its turn is cancelled.
pub(crate) type AnswerCancelled = fn(Responder);

pub(crate) type PromptTurnEvent = TurnEvent<PromptResponse>;

/// A session's entry.
pub(crate) struct SessionEntry {
    pub(crate) id: SessionId,
    /// How often it was loaded or resumed: a close or delete ends only what was there before it.
    restored: AtomicU64,
    inner: Mutex<EntryState>,
    together: Arc<ConnectionShared>,
}

impl Drop for SessionEntry {
    /// What an entry points to is not freed while the entry is there.
    fn drop(&mut self) {
        let mut sessions = self.together.sessions();
        if sessions.routes.get(&self.id).is_some_and(|known| std::ptr::eq(known.route.as_ptr(), self)) {
            sessions.routes.remove(&self.id);
        }
    }
}

struct EntryState {
    state: SessionState,
    conversation: Option<Conversation>,
    calls: OpenCalls,
    turn: TurnSlot,
    replay: Option<RunningReplay>,
    between: IdleUpdates,
    /// Questions of the agent that the user has not answered, by age: a cancellation answers them in
    /// the order they were asked.
    questions: BTreeMap<u64, Question>,
    last_number: u64,
    together: Arc<ConnectionShared>,
}

/// What the sessions of a connection have in common.
#[derive(Default)]
struct ConnectionShared {
    /// Updates that nobody took.
    dropped: AtomicU64,
    /// Bytes of those that are kept for whoever listens next.
    kept: Arc<AtomicUsize>,
    /// Bytes of what the agent has said of open tool calls.
    calls: Arc<AtomicUsize>,
    /// No route may be let go of under this lock, which its end takes.
    sessions: Mutex<Sessions>,
}

impl ConnectionShared {
    fn sessions(&self) -> MutexGuard<'_, Sessions> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A `session/load` at work.
struct RunningReplay {
    sink: QueueSender<TurnEvent<LoadSessionResponse>>,
    /// What the session was before: the replay tells it from the start, unless it fails.
    before: (SessionState, Option<Conversation>),
}

/// A question of the agent, and how it is answered when its turn is cancelled.
struct Question {
    responder: Responder,
    cancel: AnswerCancelled,
}

/// The one place for a turn.
enum TurnSlot {
    Free,
    /// `sink` is `None` once the turn was detached or dropped.
    Running {
        sink: Option<QueueSender<PromptTurnEvent>>,
        cancelled: bool,
        detached: bool,
        number: u64,
    },
}

/// Updates between turns.
enum IdleUpdates {
    Kept(Bounded<SessionUpdate>),
    Sent(QueueSender<SessionUpdate>),
}

impl SessionEntry {
    fn new(id: SessionId, fold: bool, together: &Arc<ConnectionShared>) -> Arc<Self> {
        Arc::new(SessionEntry {
            id,
            restored: AtomicU64::new(0),
            inner: Mutex::new(EntryState {
                state: SessionState::default(),
                conversation: fold.then(Conversation::default),
                calls: OpenCalls::new(&together.calls),
                turn: TurnSlot::Free,
                replay: None,
                between: IdleUpdates::Kept(Bounded::new(&KEPT, &together.kept)),
                questions: BTreeMap::new(),
                last_number: 0,
                together: together.clone(),
            }),
            together: together.clone(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, EntryState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What [`Router::forget`] has to be told, taken before the agent is asked.
    pub(crate) fn restored(&self) -> u64 {
        self.restored.load(Relaxed)
    }

    pub(crate) fn state(&self) -> SessionState {
        self.lock().state.clone()
    }

    pub(crate) fn change_state(&self, change: impl FnOnce(&mut SessionState)) {
        change(&mut self.lock().state);
    }

    pub(crate) fn conversation(&self) -> Option<Conversation> {
        self.lock().conversation.clone()
    }

    fn update(&self, update: SessionUpdate, bytes: usize) {
        let mut inner = self.lock();
        inner.state.apply(&update, bytes);
        inner.calls.apply(&update);
        if let Some(conversation) = &mut inner.conversation {
            conversation.apply(&update);
        }
        if let Some(replay) = &inner.replay {
            let _ = replay.sink.push(TurnEvent::Update(update), bytes);
            return;
        }
        match &inner.turn {
            TurnSlot::Running { sink: Some(sink), .. } => {
                // A stream that has stalled takes nothing more; its turn says so.
                let _ = sink.push(TurnEvent::Update(update), bytes);
                return;
            }
            // What a dropped turn still says is of no interest to anybody.
            TurnSlot::Running { detached: false, .. } => return,
            _ => {}
        }
        inner.between(update, bytes);
    }

    /// Begins a turn; tells why not otherwise.
    pub(crate) fn begin(&self, sink: QueueSender<PromptTurnEvent>) -> Result<u64, TurnRefused> {
        let mut inner = self.lock();
        if let TurnSlot::Running { cancelled, .. } = inner.turn {
            return Err(if cancelled { TurnRefused::Ending } else { TurnRefused::Busy });
        }
        if inner.replay.is_some() {
            return Err(TurnRefused::Busy);
        }
        inner.last_number += 1;
        let number = inner.last_number;
        inner.turn = TurnSlot::Running { sink: Some(sink), cancelled: false, detached: false, number };
        Ok(number)
    }

    /// What the user asked, for the conversation.
    pub(crate) fn asked(&self, prompt: &[duologue_schema::ContentBlock]) {
        if let Some(conversation) = &mut self.lock().conversation {
            conversation.prompt(prompt);
        }
    }

    /// The turn has ended: its answer has come, or it is given up. Puts the end behind its updates.
    pub(crate) fn done(&self, number: u64, answer: Result<PromptResponse>) {
        let mut inner = self.lock();
        let TurnSlot::Running { number: running, .. } = &inner.turn else { return };
        if *running != number {
            return;
        }
        inner.calls = OpenCalls::new(&inner.together.calls);
        if let Some(conversation) = &mut inner.conversation {
            conversation.end_turn();
        }
        if let TurnSlot::Running { sink: Some(sink), .. } = std::mem::replace(&mut inner.turn, TurnSlot::Free)
        {
            let _ = sink.push(TurnEvent::Done(answer), 0);
            sink.finish();
        }
    }

    /// Lets the turn run on without its stream.
    pub(crate) fn detach(&self, number: u64) {
        if let TurnSlot::Running { sink, detached, number: running, .. } = &mut self.lock().turn
            && *running == number
        {
            *sink = None;
            *detached = true;
        }
    }

    /// Marks the turn cancelled, once: what comes out are its open questions, to be answered after
    /// `session/cancel` was sent. `drop_sink` is for a stream that is gone.
    pub(crate) fn cancel(&self, number: u64, drop_sink: bool) -> Option<OpenQuestions> {
        let mut inner = self.lock();
        match &mut inner.turn {
            TurnSlot::Running { sink, cancelled, number: running, .. } if *running == number => {
                if drop_sink {
                    *sink = None;
                }
                if std::mem::replace(cancelled, true) {
                    return None;
                }
                Some(OpenQuestions(std::mem::take(&mut inner.questions)))
            }
            _ => None,
        }
    }

    /// Whether the turn was cancelled and has not ended.
    pub(crate) fn is_cancelled(&self, number: u64) -> bool {
        matches!(self.lock().turn, TurnSlot::Running { cancelled: true, number: running, .. } if running == number)
    }

    /// Whether the turn runs and its stream is held by somebody.
    pub(crate) fn is_attached(&self, number: u64) -> bool {
        matches!(&self.lock().turn, TurnSlot::Running { number: running, detached: false, .. } if *running == number)
    }

    /// The running turn, if there is one.
    pub(crate) fn running(&self) -> Option<u64> {
        match self.lock().turn {
            TurnSlot::Running { number, .. } => Some(number),
            TurnSlot::Free => None,
        }
    }

    /// Begins to tell the session anew; `false` while a turn or another replay runs.
    pub(crate) fn begin_replay(&self, sink: QueueSender<TurnEvent<LoadSessionResponse>>) -> bool {
        let mut inner = self.lock();
        if inner.replay.is_some() || !matches!(inner.turn, TurnSlot::Free) {
            return false;
        }
        let conversation = inner.conversation.is_some().then(Conversation::default);
        let before =
            (std::mem::take(&mut inner.state), std::mem::replace(&mut inner.conversation, conversation));
        inner.replay = Some(RunningReplay { sink, before });
        true
    }

    pub(crate) fn end_replay(&self, answer: Result<LoadSessionResponse>) {
        let mut inner = self.lock();
        let Some(RunningReplay { sink, before }) = inner.replay.take() else { return };
        match &answer {
            Ok(response) => {
                inner.state.begin(&response.modes, &response.config_options);
                if let Some(conversation) = &mut inner.conversation {
                    conversation.end_turn();
                }
            }
            Err(_) => (inner.state, inner.conversation) = before,
        }
        let _ = sink.push(TurnEvent::Done(answer), 0);
        sink.finish();
    }

    /// From here on, updates between turns go to `sink`; what was kept goes first.
    pub(crate) fn listen(&self, sink: QueueSender<SessionUpdate>) {
        let mut inner = self.lock();
        match std::mem::replace(&mut inner.between, IdleUpdates::Sent(sink.clone())) {
            IdleUpdates::Kept(mut kept) => {
                while let Some((update, bytes)) = kept.pop() {
                    let _ = sink.push(update, bytes);
                }
            }
            IdleUpdates::Sent(previous) => previous.finish(),
        }
    }

    /// Adds what the agent has said of a tool call before; `false` if there was nothing to add.
    pub(crate) fn complete(&self, call: &mut ToolCallUpdate) -> bool {
        self.lock().calls.complete(call)
    }

    /// Keeps a question until the user answers or the turn is cancelled. `Err` if it is cancelled
    /// already.
    pub(crate) fn ask(&self, responder: Responder, cancel: AnswerCancelled) -> Result<u64, Responder> {
        let mut inner = self.lock();
        if matches!(inner.turn, TurnSlot::Running { cancelled: true, .. }) {
            return Err(responder);
        }
        inner.last_number += 1;
        let number = inner.last_number;
        inner.questions.insert(number, Question { responder, cancel });
        Ok(number)
    }

    /// Answers a question, unless the cancellation has it. Under the lock, so that what the user
    /// chose cannot come behind a `session/cancel`.
    pub(crate) fn answer(&self, question: u64, answer: impl FnOnce(Responder)) {
        let mut inner = self.lock();
        if let Some(question) = inner.questions.remove(&question) {
            answer(question.responder);
        }
    }
}

/// Questions of the agent that nobody will answer any more.
pub(crate) struct OpenQuestions(BTreeMap<u64, Question>);

impl OpenQuestions {
    /// Answers all of them `cancelled`, as the protocol demands of a client that cancels, and lets
    /// go of the host's work on them.
    pub(crate) fn cancel(self) {
        for Question { responder, cancel } in self.0.into_values() {
            responder.cancellation().cancel();
            cancel(responder);
        }
    }
}

impl EntryState {
    fn between(&mut self, update: SessionUpdate, bytes: usize) {
        let update = match &self.between {
            IdleUpdates::Sent(sink) => match sink.push(update, bytes) {
                Ok(()) => return,
                // The listener is gone: keep again, for the next one.
                Err(update) => {
                    self.between = IdleUpdates::Kept(Bounded::new(&KEPT, &self.together.kept));
                    update
                }
            },
            IdleUpdates::Kept(_) => update,
        };
        if let IdleUpdates::Kept(kept) = &mut self.between {
            let forgotten = kept.push(update, bytes);
            self.together.dropped.fetch_add(forgotten, Relaxed);
        }
    }
}

/// Why a turn cannot begin.
pub(crate) enum TurnRefused {
    Busy,
    /// A cancelled turn is still ending.
    Ending,
}

/// All sessions of a connection, and the updates of sessions that are being made.
pub(crate) struct Router {
    fold: bool,
    started: SessionStartedHook,
    together: Arc<ConnectionShared>,
}

#[derive(Default)]
struct Sessions {
    /// A session lives as long as somebody holds it or a turn of it runs, and takes its entry with it.
    routes: HashMap<SessionId, SessionSlot>,
    /// `session/new` requests without an answer: while there are any, updates of unknown sessions
    /// are kept, since one of them may be the session's.
    opening: usize,
    early: VecDeque<(SessionId, SessionUpdate, usize)>,
    early_bytes: usize,
}

/// A session by its id.
struct SessionSlot {
    route: Weak<SessionEntry>,
    /// Whether the agent has closed it: what it still says goes nowhere.
    closed: bool,
}

impl SessionSlot {
    fn of(route: &Arc<SessionEntry>) -> Self {
        SessionSlot { route: Arc::downgrade(route), closed: false }
    }
}

impl Sessions {
    fn route(&self, id: &str) -> Option<Arc<SessionEntry>> {
        self.routes.get(id).filter(|known| !known.closed)?.route.upgrade()
    }

    /// Opens a session that is new or comes back, unless its id has another one by now.
    fn open(&mut self, route: &Arc<SessionEntry>) {
        if let Some(known) = self.routes.get_mut(&route.id)
            && known.route.as_ptr() == Arc::as_ptr(route)
        {
            known.closed = false;
            route.restored.fetch_add(1, Relaxed);
        }
    }
}

impl Router {
    pub(crate) fn new(fold: bool, started: SessionStartedHook) -> Self {
        Router { fold, started, together: Arc::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Sessions> {
        self.together.sessions()
    }

    pub(crate) fn route(&self, id: &SessionId) -> Option<Arc<SessionEntry>> {
        self.lock().route(id.as_str())
    }

    /// Whether a session may be named in requests: one we know, or one that is being made. What comes of a request,
    /// a terminal say, keeps the id for longer than the request is counted.
    pub(crate) fn knows(&self, id: &SessionId) -> bool {
        let known = |entry: &SessionSlot| !entry.closed && entry.route.strong_count() > 0;
        let sessions = self.lock();
        id.as_str().len() <= Limits::ID_BYTES
            && (sessions.opening > 0 || sessions.routes.get(id).is_some_and(known))
    }

    pub(crate) fn update(&self, id: &str, update: SessionUpdate, bytes: usize) {
        let mut sessions = self.lock();
        if let Some(route) = sessions.route(id) {
            drop(sessions);
            return route.update(update, bytes);
        }
        if sessions.opening == 0 {
            self.together.dropped.fetch_add(1, Relaxed);
            return;
        }
        sessions.early_bytes += bytes;
        sessions.early.push_back((id.into(), update, bytes));
        // The oldest go first: they may be of a session whose answer never came.
        while sessions.early.len() > KEPT_UPDATES || sessions.early_bytes > KEPT_BYTES {
            let Some((_, _, bytes)) = sessions.early.pop_front() else { break };
            sessions.early_bytes -= bytes;
            self.together.dropped.fetch_add(1, Relaxed);
        }
    }

    /// A `session/new` is about to be sent.
    pub(crate) fn opening(&self) {
        self.lock().opening += 1;
    }

    /// Its answer has come: called by the reader, before anything behind the answer is read.
    pub(crate) fn opened(
        &self,
        response: Option<&NewSessionResponse>,
        folders: &[PathBuf],
    ) -> Option<Arc<SessionEntry>> {
        if let Some(response) = response {
            (self.started)(&response.session_id, folders);
        }
        // Made before the lock is taken, so that whatever happens under it, the lock is given back first: the end
        // of a route takes it.
        let route = response.map(|response| {
            let route = SessionEntry::new(response.session_id.clone(), self.fold, &self.together);
            route.change_state(|state| state.begin(&response.modes, &response.config_options));
            route
        });
        let mut sessions = self.lock();
        sessions.opening -= 1;
        if let Some(route) = &route {
            let early = std::mem::take(&mut sessions.early);
            for (id, update, bytes) in early {
                if id == route.id {
                    sessions.early_bytes -= bytes;
                    route.update(update, bytes);
                } else {
                    sessions.early.push_back((id, update, bytes));
                }
            }
            sessions.routes.insert(route.id.clone(), SessionSlot::of(route));
        }
        if sessions.opening == 0 {
            self.together.dropped.fetch_add(sessions.early.len() as u64, Relaxed);
            sessions.early = VecDeque::new();
            sessions.early_bytes = 0;
        }
        route
    }

    /// Registers a session whose id is known beforehand: resume.
    pub(crate) fn register(&self, id: &SessionId, folders: &[PathBuf]) -> Arc<SessionEntry> {
        (self.started)(id, folders);
        let mut sessions = self.lock();
        let route = self.find(&mut sessions, id);
        sessions.open(&route);
        drop(sessions);
        route
    }

    /// The same for one that is told anew: load. `None`, and nothing has changed, while a turn or another replay runs.
    pub(crate) fn register_replay(
        &self,
        id: &SessionId,
        folders: &[PathBuf],
        sink: QueueSender<TurnEvent<LoadSessionResponse>>,
    ) -> Option<Arc<SessionEntry>> {
        let route = self.find(&mut self.lock(), id);
        if !route.begin_replay(sink) {
            return None;
        }
        // The agent has not been asked yet, and whoever hears of the session knows its folders.
        (self.started)(id, folders);
        self.lock().open(&route);
        Some(route)
    }

    /// The session of this id, which somebody may still hold, or one that is not open yet.
    fn find(&self, sessions: &mut Sessions, id: &SessionId) -> Arc<SessionEntry> {
        // One that was closed comes back to whoever still holds it: two would share what the agent
        // says of the one.
        if let Some(route) = sessions.routes.get(id).and_then(|known| known.route.upgrade()) {
            return route;
        }
        let route = SessionEntry::new(id.clone(), self.fold, &self.together);
        sessions.routes.insert(id.clone(), SessionSlot { closed: true, ..SessionSlot::of(&route) });
        route
    }

    /// Closes a session, unless its id has another one by now, or it was restored since.
    pub(crate) fn forget(&self, route: &Arc<SessionEntry>, restored: u64) {
        let mut sessions = self.lock();
        if let Some(known) = sessions.routes.get_mut(&route.id)
            && known.route.as_ptr() == Arc::as_ptr(route)
            && route.restored() == restored
        {
            known.closed = true;
        }
    }

    /// Updates that went nowhere, since the connection began.
    pub(crate) fn dropped(&self) -> u64 {
        self.together.dropped.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A weak entry keeps the memory of what it points to: 1.6 KiB a session, for as long as the
    /// connection lived.
    #[test]
    fn a_session_that_nobody_holds_takes_its_entry_with_it() {
        let router = Router::new(false, Box::new(|_, _| {}));
        let id = SessionId::from("a");
        let (first, again) = (router.register(&id, &[]), router.register(&id, &[]));
        drop(first);
        assert!(router.knows(&id));
        router.forget(&again, again.restored());
        assert!(!router.knows(&id));
        drop(again);
        assert!(router.lock().routes.is_empty());
    }

    #[test]
    fn a_long_id_of_a_session_is_not_kept() {
        let router = Router::new(false, Box::new(|_, _| {}));
        let named = |bytes: usize| SessionId::from("x".repeat(bytes));
        router.opening();
        assert!(router.knows(&named(Limits::ID_BYTES)));
        assert!(!router.knows(&named(Limits::ID_BYTES + 1)));
        // The bytes of a line are those of the id in it too.
        for _ in 0..3 {
            router.update(
                named(KEPT_BYTES / 2).as_str(),
                SessionUpdate::agent_message("x"),
                KEPT_BYTES / 2 + 100,
            );
        }
        router.update(named(KEPT_BYTES).as_str(), SessionUpdate::agent_message("x"), KEPT_BYTES + 100);
        assert_eq!((router.lock().early.len(), router.dropped()), (0, 4));
    }

    #[test]
    fn many_sessions_keep_no_more_than_all_may_together() {
        let router = Router::new(false, Box::new(|_, _| {}));
        let ids: Vec<SessionId> = (0..40).map(|number| SessionId::from(number.to_string())).collect();
        let sessions: Vec<_> = ids.iter().map(|id| router.register(id, &[])).collect();
        for id in ids.iter().cycle().take(80) {
            router.update(id.as_str(), SessionUpdate::agent_message("x"), KEPT_BYTES / 2);
        }
        let kept = || router.together.kept.load(Relaxed);
        assert_eq!(kept(), KEPT_BYTES_TOGETHER);
        assert_eq!(router.dropped(), 80 - (KEPT_BYTES_TOGETHER / (KEPT_BYTES / 2)) as u64);
        drop(sessions);
        assert_eq!(kept(), 0);
    }

    #[test]
    fn a_session_that_is_restored_is_the_one_that_somebody_still_holds() {
        let router = Router::new(false, Box::new(|_, _| {}));
        let id = SessionId::from("a");
        let closed = router.register(&id, &[]);
        router.forget(&closed, closed.restored());
        let restored = router.register(&id, &[]);
        assert!(Arc::ptr_eq(&closed, &restored) && router.knows(&id));
    }
}
