//! A session: its folder, its state, and the updates that belong to no turn.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use duologue_exchange::{PeerAgent, PendingSession};
use duologue_rpc::{CancellationToken, Limits, Lock, NotificationBuffer, Peer, Responder};
use duologue_schema::{McpServer, Meta, NewSessionResponse, SessionId, SessionNotification, SessionUpdate};
use tokio::sync::{oneshot, watch};

use crate::client::ClientHandle;
use crate::error::{Error, Result};

/// One conversation with the client. Cheap to clone; keep a clone to send updates between turns.
#[derive(Clone)]
pub struct Session {
    inner: Arc<Inner>,
}

struct Inner {
    id: SessionId,
    params: SessionParams,
    client: ClientHandle,
    state: Mutex<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>,
    pre_open: Mutex<PreOpenBuffer>,
    turn: watch::Sender<Option<CancellationToken>>,
    /// How many `session/close` are at work: no turn begins meanwhile.
    closing: AtomicUsize,
    last_ticket: Mutex<Option<oneshot::Receiver<()>>>,
}

/// What the client said when it made or restored the session.
pub(crate) struct SessionParams {
    pub(crate) cwd: PathBuf,
    pub(crate) additional_directories: Vec<PathBuf>,
    pub(crate) mcp_servers: Vec<McpServer>,
    pub(crate) meta: Option<Meta>,
    pub(crate) _reservation: Reservation,
}

/// The bytes that the facts of all sessions of a connection count.
#[derive(Default)]
pub(crate) struct SessionMemory(Arc<AtomicUsize>);

impl SessionMemory {
    /// Counts the facts of one more session, unless there are too many already.
    pub(crate) fn reserve(&self, wire_bytes: usize) -> Option<Reservation> {
        let bytes = wire_bytes.saturating_add(SESSION_ITSELF);
        let together = |reservation: usize| {
            let together = reservation.saturating_add(bytes);
            (reservation == 0 || together <= Session::BYTES_TOGETHER).then_some(together)
        };
        self.0.fetch_update(Relaxed, Relaxed, together).ok()?;
        Some(Reservation { together: self.0.clone(), bytes })
    }
}

/// What a session is in memory without its facts.
const SESSION_ITSELF: usize = 1024;

/// The count of one session's facts, for as long as they are there.
pub(crate) struct Reservation {
    together: Arc<AtomicUsize>,
    bytes: usize,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.together.fetch_sub(self.bytes, Relaxed);
    }
}

/// Updates of a new session wait here until the answer that names the session is on its way.
enum PreOpenBuffer {
    Buffering { updates: Vec<SessionNotification>, bytes: usize, pending_session: PendingSession },
    Open,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("id", &self.inner.id).finish_non_exhaustive()
    }
}

impl Session {
    /// How much the sessions of a connection may hold together of what the client said when it made
    /// them: the bytes of those requests, and 1 KiB for each. The next one is refused, unless it is alone.
    /// A session counts until it is closed or deleted, and the last clone of it is gone.
    pub const BYTES_TOGETHER: usize = 64 << 20;

    pub(crate) fn new(
        id: SessionId,
        params: SessionParams,
        client: ClientHandle,
        hold_updates: bool,
    ) -> Self {
        let pre_open = if hold_updates {
            let pending_session = client.peer_agent().pending_session(id.clone());
            PreOpenBuffer::Buffering { updates: Vec::new(), bytes: 0, pending_session }
        } else {
            PreOpenBuffer::Open
        };
        Session {
            inner: Arc::new(Inner {
                id,
                params,
                client,
                state: Mutex::default(),
                pre_open: Mutex::new(pre_open),
                turn: watch::Sender::new(None),
                closing: AtomicUsize::new(0),
                last_ticket: Mutex::default(),
            }),
        }
    }

    /// The session's id.
    #[must_use]
    pub fn id(&self) -> &SessionId {
        &self.inner.id
    }

    /// The folder relative paths start from. Always absolute.
    #[must_use]
    pub fn cwd(&self) -> &Path {
        &self.inner.params.cwd
    }

    /// Further folders the session may work in. Always absolute.
    #[must_use]
    pub fn additional_directories(&self) -> &[PathBuf] {
        &self.inner.params.additional_directories
    }

    /// The MCP servers the client wants connected.
    #[must_use]
    pub fn mcp_servers(&self) -> &[McpServer] {
        &self.inner.params.mcp_servers
    }

    /// The `_meta` of the request that made or restored the session.
    #[must_use]
    pub fn meta(&self) -> Option<&Meta> {
        self.inner.params.meta.as_ref()
    }

    /// The client this session belongs to.
    #[must_use]
    pub fn client(&self) -> &ClientHandle {
        &self.inner.client
    }

    /// The agent on the client's side, spoken to in this session: to ask it, to delegate to it.
    ///
    /// Its calls fail with a typed error if the client speaks no envelopes. What it is told while the session
    /// is being made is kept and sent behind the answer that names the session, and behind its updates.
    /// Questions and tasks are not: the answer would wait for theirs. A client may say of those that it knows
    /// no such session (this project's SDK does not), so ask in the first turn, or in a task that begins
    /// there.
    #[must_use]
    #[cfg_attr(not(feature = "exchange"), doc(hidden))]
    pub fn peer_agent(&self) -> PeerAgent {
        self.inner.client.peer_agent().in_session(self.inner.id.clone())
    }

    /// The session's own `T`, made with `T::default()` when it is first asked for.
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
        let mut states = self.inner.state.lock_unpoisoned();
        let state = states.entry(TypeId::of::<T>()).or_insert_with(|| Arc::new(T::default()));
        // The key is the type, so the fallback is never taken.
        Arc::downcast(state.clone()).unwrap_or_default()
    }

    /// Puts a `T` into the session, for state that has no default.
    pub fn set_state<T: Send + Sync + 'static>(&self, state: T) {
        self.inner.state.lock_unpoisoned().insert(TypeId::of::<T>(), Arc::new(state));
    }

    /// The session's `T` if there is one.
    #[must_use]
    pub fn get_state<T: Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        let state = self.inner.state.lock_unpoisoned().get(&TypeId::of::<T>())?.clone();
        Arc::downcast(state).ok()
    }

    /// Sends an update. The methods below and those of [`Turn`](crate::Turn) are shorthands for it.
    ///
    /// Waits while the client is slow to read. Updates of a session that is being made are kept
    /// and sent behind the answer that names it.
    ///
    /// # Errors
    ///
    /// When the connection has ended or the update is larger than a line may be.
    pub async fn update(&self, update: impl Into<SessionUpdate>) -> Result<()> {
        let update = update.into();
        if !self.inner.client.accepts(&update) {
            return Ok(());
        }
        let update = SessionNotification::new(self.inner.id.clone(), update);
        loop {
            if matches!(&*self.inner.pre_open.lock_unpoisoned(), PreOpenBuffer::Open) {
                self.peer().ready().await?;
            }
            if self.try_send(&update)? {
                return Ok(());
            }
        }
    }

    /// Sends an update of this session if there is room; `false` if one has to wait for it.
    pub(crate) fn try_send(&self, update: &SessionNotification) -> Result<bool> {
        self.pass(update, |peer| peer.try_notify(update))
    }

    /// Sends an update without waiting.
    pub(crate) fn send_now(&self, update: SessionUpdate) -> Result<()> {
        let update = SessionNotification::new(self.inner.id.clone(), update);
        self.pass(&update, |peer| peer.notify_now(&update).map(|()| true)).map(drop)
    }

    /// Keeps an update or sends it. The gate is held meanwhile, so nothing can come between the
    /// updates it kept and this one.
    fn pass(
        &self,
        update: &SessionNotification,
        send: impl FnOnce(&Peer) -> Result<bool, duologue_rpc::Error>,
    ) -> Result<bool> {
        let mut pre_open = self.inner.pre_open.lock_unpoisoned();
        let PreOpenBuffer::Buffering { updates, bytes, .. } = &mut *pre_open else {
            return Ok(send(self.peer())?);
        };
        let more = serde_json::to_string(&update.update)?.len();
        if *bytes + more > Limits::EARLY_BYTES {
            return Err(Error::other(format!(
                "more than {} bytes of updates before the session was answered: send them in its first turn",
                Limits::EARLY_BYTES
            )));
        }
        *bytes += more;
        updates.push(update.clone());
        Ok(true)
    }

    /// Answers the request that made the session and sends the kept updates behind the answer, as one
    /// push: the client reacts to the answer only when all of them are in the output. Whatever the
    /// session sends because of that, an update, a request or an answer, comes after them.
    pub(crate) fn open(&self, responder: Responder, answer: NewSessionResponse) {
        let mut pre_open = self.inner.pre_open.lock_unpoisoned();
        let PreOpenBuffer::Buffering { updates, pending_session, .. } =
            std::mem::replace(&mut *pre_open, PreOpenBuffer::Open)
        else {
            return responder.respond(Ok(answer));
        };
        let mut notifications = NotificationBuffer::new(self.peer());
        for update in updates {
            if let Err(error) = notifications.push(&update) {
                tracing::warn!(session = %self.inner.id, %error, "an update could not be sent");
            }
        }
        pending_session
            .done(notifications, |notifications| responder.respond_followed_by(Ok(answer), notifications));
    }

    pub(crate) fn peer(&self) -> &Peer {
        self.inner.client.peer()
    }

    /// Takes the one place for a turn, or says why it cannot.
    pub(crate) fn begin_turn(&self, cancellation: CancellationToken) -> Result<(), &'static str> {
        if self.inner.closing.load(Relaxed) > 0 {
            return Err("the session is being closed");
        }
        let begun = self.inner.turn.send_if_modified(|turn| {
            let free = turn.is_none();
            turn.get_or_insert(cancellation);
            free
        });
        if begun { Ok(()) } else { Err("a prompt is already running in this session") }
    }

    /// Cancels the running turn and lets none begin until the guard is dropped. Called by the
    /// reader, as [`begin_turn`](Self::begin_turn) is: a turn that began behind the close would wait
    /// for its place in line, and the close for the turn.
    pub(crate) fn begin_close(&self) -> CloseGuard {
        self.inner.closing.fetch_add(1, Relaxed);
        self.cancel_turn();
        CloseGuard(self.clone())
    }

    /// Whether both are the same session, not just two with one id.
    pub(crate) fn is(&self, other: &Session) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Frees the place and answers as one step: whoever sees the answer finds the place free, and
    /// whoever sees the place free comes after the answer.
    pub(crate) fn end_turn(&self, answer: impl FnOnce()) {
        self.inner.turn.send_modify(|turn| {
            answer();
            *turn = None;
        });
    }

    /// Waits until no turn is running.
    pub(crate) async fn turn_ended(&self) {
        let _ = self.inner.turn.subscribe().wait_for(Option::is_none).await;
    }

    /// `session/cancel`: a no-op between turns.
    pub(crate) fn cancel_turn(&self) {
        let turn = self.inner.turn.borrow().clone();
        if let Some(turn) = turn {
            turn.cancel();
        }
    }

    /// A place in the line of requests that change this session. Taken by the reader, so the line
    /// has the order of the wire.
    pub(crate) fn queue_ticket(&self) -> QueueTicket {
        let (done, next) = oneshot::channel();
        QueueTicket { before: self.inner.last_ticket.lock_unpoisoned().replace(next), _done: done }
    }
}

/// A session that is being closed; see [`Session::begin_close`].
pub(crate) struct CloseGuard(Session);

impl Drop for CloseGuard {
    fn drop(&mut self) {
        self.0.inner.closing.fetch_sub(1, Relaxed);
    }
}

/// Dropping it lets the next one go.
pub(crate) struct QueueTicket {
    before: Option<oneshot::Receiver<()>>,
    _done: oneshot::Sender<()>,
}

impl QueueTicket {
    /// Whether something is ahead of it.
    pub(crate) fn must_wait(&mut self) -> bool {
        let empty = Err(oneshot::error::TryRecvError::Empty);
        // What has been received cannot be waited for again.
        self.before.take_if(|before| before.try_recv() != empty);
        self.before.is_some()
    }

    pub(crate) async fn wait_turn(&mut self) {
        if let Some(before) = self.before.take() {
            let _ = before.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_hold_so_much_together() {
        let memory = SessionMemory::default();
        // Alone it may be as large as a line may be.
        let alone = memory.reserve(2 * Session::BYTES_TOGETHER).expect("room");
        assert!(memory.reserve(0).is_none());
        drop(alone);
        let small: Vec<Reservation> = std::iter::from_fn(|| memory.reserve(0)).collect();
        assert_eq!(small.len(), Session::BYTES_TOGETHER / SESSION_ITSELF);
    }
}
