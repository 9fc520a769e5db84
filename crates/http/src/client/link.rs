//! The common part of the transports of a client: the frames between the halves of a transport and its task, the handle for the
//! program, and the attempts to get a lost connection back.

use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use duologue_rpc::{Lock as _, Transport};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout};

use crate::client::error::Error;
use crate::client::options::ConnectOptions;
use crate::lines::{FrameQueue, LineSink, LineSource, LinesError, read_lines, utf8, write_lines};

/// The time in which another part of a connection may give a better reason for its end.
pub(crate) const LAST_WORDS: Duration = Duration::from_secs(1);

/// The frames of a client in both directions, as plain data.
pub(crate) trait LinkCore: Send + 'static {
    /// Returns true if the client may send another frame.
    fn has_room(&self) -> bool;

    /// Takes a frame of the client.
    fn push(&mut self, frame: Bytes);

    /// Ends the frames of the client.
    fn end(&mut self);

    /// Returns true if the client has ended and the server has accepted everything, as far as it says so.
    fn is_finished(&self) -> bool;

    /// Returns the time for which the server keeps the connection of an absent client.
    fn retention(&self) -> Option<Duration>;

    /// Returns the frames that the client has not read.
    fn inbox(&mut self) -> &mut FrameQueue;
}

/// The state of the connection behind a transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LinkState {
    /// There is a socket.
    Connected,
    /// There is a socket, and a ping or comment of the server is missing. The link may be dead.
    Silent,
    /// The socket was lost, and another one is being opened.
    Resuming {
        /// The number of the attempt, from 1.
        attempt: u32,
    },
    /// The connection has ended. The reading half of the transport has the reason.
    Ended,
}

/// A handle to observe the connection behind a transport. Dropping it has no effect.
#[derive(Clone, Debug)]
pub struct RemoteLink {
    status: Arc<LinkStatus>,
    state: watch::Receiver<LinkState>,
}

impl RemoteLink {
    /// Returns the id of the connection. It is empty until `initialize` is answered, and if the server gave none.
    #[must_use]
    pub fn connection_id(&self) -> &str {
        self.status.connection_id()
    }

    /// Returns the current state.
    #[must_use]
    pub fn state(&self) -> LinkState {
        *self.state.borrow()
    }

    /// Returns the time since the connection was lost, and zero while there is a socket. For a connection that has ended it is
    /// the time until its end.
    #[must_use]
    pub fn outage(&self) -> Duration {
        let end = self.status.ended_at.get().copied().unwrap_or_else(Instant::now);
        self.status.lost_at.lock_unpoisoned().map_or(Duration::ZERO, |at| end - at)
    }

    /// Returns how often the connection was resumed.
    #[must_use]
    pub fn resumes(&self) -> u64 {
        self.status.resumes.load(Relaxed)
    }

    /// Waits for another state and returns it. After the end it returns [`LinkState::Ended`] at once.
    ///
    /// # Cancel safety
    ///
    /// No change is lost if the future is dropped. States that follow each other quickly can be skipped.
    pub async fn changed(&mut self) -> LinkState {
        let _ = self.state.changed().await;
        *self.state.borrow_and_update()
    }
}

/// The state that the halves of a connection share. Each notification has one waiter.
pub(crate) struct LinkShared<C> {
    core: Mutex<C>,
    inbox_bytes: usize,
    /// There may be something to write to the socket.
    pub(crate) outgoing: Notify,
    /// There may be room for frames of the client.
    pub(crate) room: Notify,
    /// There may be frames for the client.
    pub(crate) inbox: Notify,
    /// There may be room for frames of the server.
    pub(crate) inbox_room: Notify,
    /// The client may be gone.
    pub(crate) gone: Notify,
    /// True if the client reads no more.
    is_abandoned: AtomicBool,
    has_inbox_ended: AtomicBool,
    /// The error for the reading half of the transport.
    error: Mutex<Option<Error>>,
}

impl<C: LinkCore> LinkShared<C> {
    pub(crate) fn new(core: C, options: &ConnectOptions) -> Self {
        LinkShared {
            core: Mutex::new(core),
            inbox_bytes: options.inbox_bytes.max(1),
            outgoing: Notify::new(),
            room: Notify::new(),
            inbox: Notify::new(),
            inbox_room: Notify::new(),
            gone: Notify::new(),
            is_abandoned: AtomicBool::new(false),
            has_inbox_ended: AtomicBool::new(false),
            error: Mutex::new(None),
        }
    }

    pub(crate) fn with<T>(&self, action: impl FnOnce(&mut C) -> T) -> T {
        action(&mut self.core.lock_unpoisoned())
    }

    /// Returns the time for attempts to resume.
    pub(crate) fn resume_limit(&self, options: &ConnectOptions) -> Duration {
        let retention = self.with(|core| core.retention());
        retention.map_or(options.resume_time, |time| time.min(options.resume_time))
    }

    fn abandon(&self) {
        self.is_abandoned.store(true, Relaxed);
        self.with(|core| core.inbox().clear());
        self.inbox_room.notify_one();
        self.gone.notify_one();
    }

    /// Waits until the server may send another frame.
    pub(crate) async fn inbox_room(&self) {
        while !self.is_abandoned() && self.with(|core| core.inbox().bytes()) >= self.inbox_bytes {
            self.inbox_room.notified().await;
        }
        // Another stream may wait too.
        self.inbox_room.notify_one();
    }

    /// Reports that there is a frame for the client.
    pub(crate) fn received(&self) {
        if self.is_abandoned() {
            self.with(|core| core.inbox().clear());
        } else {
            self.inbox.notify_one();
        }
    }

    /// Returns true if the client reads no more.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.is_abandoned.load(Relaxed)
    }

    /// Waits until nobody needs the connection any more.
    pub(crate) async fn is_gone(&self) {
        while !(self.is_abandoned() && self.with(|core| core.is_finished())) {
            self.gone.notified().await;
        }
    }
}

impl<C: LinkCore> LineSink for LinkShared<C> {
    async fn room(&self) {
        while !self.with(|core| core.has_room()) {
            self.room.notified().await;
        }
    }

    fn lines(&self, lines: impl Iterator<Item = Bytes>) {
        self.with(|core| lines.for_each(|line| core.push(utf8(line))));
        self.outgoing.notify_one();
    }
}

impl<C: LinkCore> LineSource for LinkShared<C> {
    async fn next(&self, lines: &mut Vec<u8>) -> bool {
        loop {
            if self.with(|core| core.inbox().pop_lines(lines)) {
                self.inbox_room.notify_one();
                return true;
            }
            if self.has_inbox_ended.load(Relaxed) {
                return false;
            }
            self.inbox.notified().await;
        }
    }
}

/// The reading half of the client's transport. At the end it fails with the reason, if the end is not a regular one.
struct LinkReader<C: LinkCore> {
    reader: Box<dyn AsyncRead + Send + Unpin>,
    shared: Arc<LinkShared<C>>,
}

impl<C: LinkCore> AsyncRead for LinkReader<C> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = ready!(Pin::new(&mut self.reader).poll_read(cx, buf));
        if read.is_ok() && buf.filled().len() == before && buf.remaining() > 0 {
            let error = self.shared.error.lock_unpoisoned().take();
            return Poll::Ready(error.map_or(Ok(()), |error| Err(io::Error::other(error))));
        }
        Poll::Ready(read)
    }
}

impl<C: LinkCore> Drop for LinkReader<C> {
    fn drop(&mut self) {
        self.shared.abandon();
    }
}

/// The parts of a [`RemoteLink`] that the task of the connection changes.
#[derive(Debug)]
pub(crate) struct LinkStatus {
    connection_id: OnceLock<String>,
    state: watch::Sender<LinkState>,
    /// The beginning of the state `Resuming`.
    lost_at: Mutex<Option<Instant>>,
    ended_at: OnceLock<Instant>,
    resumes: AtomicU64,
    /// The number of [`ReportedOutage`]s.
    outages: AtomicU64,
}

impl LinkStatus {
    pub(crate) fn new() -> (Arc<Self>, RemoteLink) {
        let (state, observed) = watch::channel(LinkState::Connected);
        let status = Arc::new(LinkStatus {
            connection_id: OnceLock::new(),
            state,
            lost_at: Mutex::default(),
            ended_at: OnceLock::new(),
            resumes: AtomicU64::new(0),
            outages: AtomicU64::new(0),
        });
        (status.clone(), RemoteLink { status, state: observed })
    }

    /// Returns the id of the connection, or an empty text before there is one.
    pub(crate) fn connection_id(&self) -> &str {
        self.connection_id.get().map_or("", String::as_str)
    }

    /// Sets the id of the connection, when `initialize` is answered. It does not change.
    pub(crate) fn set_connection_id(&self, id: &str) {
        let _ = self.connection_id.set(id.to_owned());
    }

    /// Reports an attempt to get the connection back.
    pub(crate) fn resuming(&self, attempt: u32) {
        self.state.send_if_modified(|state| {
            let is_open = *state != LinkState::Ended;
            if is_open {
                self.lost_at.lock_unpoisoned().get_or_insert_with(Instant::now);
                *state = LinkState::Resuming { attempt };
            }
            is_open
        });
    }

    /// Waits for the next part of a socket or a response, and reports its silence. Returns `None` after the time without a
    /// sign of life after which it is dead.
    pub(crate) async fn observe<T>(
        &self,
        options: &ConnectOptions,
        next: impl Future<Output = T>,
    ) -> Option<T> {
        let (silent_after, dead_after) = (options.silent_after(), options.dead_after());
        let mut next = pin!(next);
        let seen = match timeout(silent_after, &mut next).await {
            Ok(seen) => seen,
            Err(_) => {
                self.replace(LinkState::Connected, LinkState::Silent);
                timeout(dead_after - silent_after, next).await.ok()?
            }
        };
        // It may be the silence of another stream, which has ended meanwhile.
        if *self.state.borrow() == LinkState::Silent {
            self.replace(LinkState::Silent, LinkState::Connected);
        }
        Some(seen)
    }

    /// Replaces a state by another one.
    fn replace(&self, from: LinkState, to: LinkState) {
        self.state.send_if_modified(|state| {
            let is_replaced = *state == from;
            if is_replaced {
                *state = to;
            }
            is_replaced
        });
    }

    /// Reports that there is a socket.
    pub(crate) fn connected(&self) {
        self.connected_if(|| true);
    }

    /// Reports that there is a socket, if the condition holds. Nothing else is reported meanwhile.
    fn connected_if(&self, condition: impl FnOnce() -> bool) {
        self.state.send_if_modified(|state| {
            let is_resuming = condition() && matches!(state, LinkState::Resuming { .. });
            if is_resuming {
                *self.lost_at.lock_unpoisoned() = None;
                *state = LinkState::Connected;
            }
            is_resuming
        });
    }

    /// Reports the end of the connection. An outage that ends later is no return of the connection.
    pub(crate) fn end(&self) {
        self.ended_at.get_or_init(Instant::now);
        self.state.send_replace(LinkState::Ended);
    }

    /// Counts a resume of one of several streams.
    pub(crate) fn count_resume(&self) {
        self.resumes.fetch_add(1, Relaxed);
    }

    /// Reports that the connection is back.
    pub(crate) fn resumed(&self) {
        self.count_resume();
        self.connected();
    }
}

/// The shortest time of an attempt. The last one may begin when the time for attempts is over.
const LAST_ATTEMPT: Duration = Duration::from_secs(1);

/// The time without a connection, and the attempts since.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outage {
    since: Instant,
    attempts: u32,
}

impl Outage {
    pub(crate) fn begin() -> Self {
        Outage { since: Instant::now(), attempts: 0 }
    }

    /// Counts an attempt to resume. Returns its number and the pause before it.
    ///
    /// # Errors
    ///
    /// [`Error::GaveUp`] after the time for attempts.
    pub(crate) fn next_resume(
        &mut self,
        options: &ConnectOptions,
        limit: Duration,
        last: &str,
    ) -> Result<(u32, Duration), Error> {
        let (attempts, elapsed) = (self.attempts, self.since.elapsed());
        self.next(options, limit).ok_or_else(|| Error::GaveUp { attempts, elapsed, last: last.into() })
    }

    /// Counts an attempt. Returns its number and the pause before it, or `None` after the time for attempts.
    pub(crate) fn next(&mut self, options: &ConnectOptions, limit: Duration) -> Option<(u32, Duration)> {
        let left = Some(self.left(limit)).filter(|left| !left.is_zero())?;
        let pause = options.pause(self.attempts).min(left);
        self.attempts = self.attempts.saturating_add(1);
        Some((self.attempts, pause))
    }

    /// Returns the time that is left of a limit.
    fn left(&self, limit: Duration) -> Duration {
        limit.saturating_sub(self.since.elapsed())
    }

    /// Returns the time for one attempt, at most `longest`. It ends with the time for attempts. A limit of zero is a single
    /// attempt.
    pub(crate) fn attempt_time(&self, longest: Duration, limit: Duration) -> Duration {
        match limit.is_zero() {
            true => longest,
            false => longest.min(self.left(limit).max(LAST_ATTEMPT)),
        }
    }
}

/// An outage of one of several streams. The connection is back when the last of them has ended.
pub(crate) struct ReportedOutage {
    outage: Outage,
    status: Arc<LinkStatus>,
}

impl ReportedOutage {
    pub(crate) fn begin(status: &Arc<LinkStatus>) -> Self {
        status.outages.fetch_add(1, Relaxed);
        ReportedOutage { outage: Outage::begin(), status: status.clone() }
    }

    /// Returns the time for the next attempt, as [`Outage::attempt_time`].
    pub(crate) fn attempt_time(&self, longest: Duration, limit: Duration) -> Duration {
        self.outage.attempt_time(longest, limit)
    }

    /// Waits before another attempt to resume.
    ///
    /// # Errors
    ///
    /// As [`Outage::next_resume`].
    pub(crate) async fn pause(
        &mut self,
        options: &ConnectOptions,
        limit: Duration,
        last: &str,
    ) -> Result<(), Error> {
        let (attempt, pause) = self.outage.next_resume(options, limit, last)?;
        self.status.resuming(attempt);
        sleep(pause).await;
        Ok(())
    }

    /// Waits before another attempt to begin the connection. Returns false after the time for attempts.
    pub(crate) async fn pause_before_begin(&mut self, options: &ConnectOptions) -> bool {
        let Some((attempt, pause)) = self.outage.next(options, options.open_time) else { return false };
        self.status.resuming(attempt);
        sleep(pause).await;
        true
    }
}

impl Drop for ReportedOutage {
    fn drop(&mut self) {
        self.status.connected_if(|| self.status.outages.fetch_sub(1, Relaxed) == 1);
    }
}

/// Creates the transport of a client, and runs the task of its connection.
///
/// `link` moves frames between `shared` and the server until the connection ends.
pub(crate) fn start_link<C: LinkCore>(
    shared: Arc<LinkShared<C>>,
    status: Arc<LinkStatus>,
    options: &ConnectOptions,
    link: impl Future<Output = Result<(), Error>> + Send + 'static,
) -> Transport {
    let (ours, theirs) = Transport::memory();
    let (reader, writer) = theirs.into_split();
    let client = Transport::new(LinkReader { reader, shared: shared.clone() }, writer);
    tokio::spawn(run_link(shared, status, ours, options.frame_bytes, link));
    client
}

async fn run_link<C: LinkCore>(
    shared: Arc<LinkShared<C>>,
    status: Arc<LinkStatus>,
    transport: Transport,
    frame_bytes: usize,
    link: impl Future<Output = Result<(), Error>>,
) {
    let (reader, writer) = transport.into_split();
    let sending = async {
        match read_lines(reader, frame_bytes, &*shared).await {
            Ok(()) | Err(LinesError::Io(_)) => {
                shared.with(C::end);
                shared.outgoing.notify_one();
                shared.gone.notify_one();
                std::future::pending().await
            }
            Err(LinesError::TooLong { limit }) => Error::FrameTooLarge { bytes: limit + 1, limit },
        }
    };
    let mut receiving = pin!(async {
        if write_lines(&*shared, writer).await.is_err() {
            shared.abandon();
        }
    });
    let ended = {
        let (mut link, mut sending) = (pin!(link), pin!(sending));
        let mut is_receiving = true;
        loop {
            tokio::select! {
                ended = &mut link => break ended,
                error = &mut sending => {
                    // An outage ends with the link, and is no return of the connection.
                    status.end();
                    break Err(error);
                }
                () = &mut receiving, if is_receiving => is_receiving = false,
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ends");
        *shared.error.lock_unpoisoned() = Some(error);
    }
    shared.has_inbox_ended.store(true, Relaxed);
    shared.inbox.notify_one();
    status.end();
    if !shared.is_abandoned() {
        receiving.await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_connection_is_back_when_the_last_outage_has_ended() {
        let options = ConnectOptions::default();
        let (status, link) = LinkStatus::new();
        let mut outages = [ReportedOutage::begin(&status), ReportedOutage::begin(&status)];
        for outage in &mut outages {
            outage.pause(&options, options.resume_time, "reset").await.expect("another attempt");
        }
        let [first, second] = outages;
        drop(first);
        assert_eq!(link.state(), LinkState::Resuming { attempt: 1 });
        drop(second);
        assert_eq!(link.state(), LinkState::Connected);
        let late = ReportedOutage::begin(&status);
        status.state.send_replace(LinkState::Ended);
        drop(late);
        assert_eq!(link.state(), LinkState::Ended);
    }
    #[tokio::test(start_paused = true)]
    async fn a_missing_ping_is_reported_before_the_link_is_dead() {
        let options = ConnectOptions::default();
        let (status, link) = LinkStatus::new();
        let after = |seconds| sleep(Duration::from_secs(seconds));
        assert!(status.observe(&options, after(29)).await.is_some());
        for (seconds, is_alive) in [(44, true), (46, false)] {
            let mut observing = pin!(status.observe(&options, after(seconds)));
            assert!(timeout(Duration::from_secs(31), &mut observing).await.is_err());
            assert_eq!(link.state(), LinkState::Silent);
            assert_eq!(observing.await.is_some(), is_alive);
            assert_eq!(link.state() == LinkState::Connected, is_alive);
        }
        // Another stream is alive.
        assert!(status.observe(&options, after(1)).await.is_some());
        assert_eq!(link.state(), LinkState::Connected);
    }
}
