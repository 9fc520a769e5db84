//! Moves frames between a transport and sockets, and opens the next socket when one is lost.

use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use duologue_rpc::{Lock as _, Transport};
use futures_util::{Sink, SinkExt as _, Stream, StreamExt as _};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::client::client_core::{ClientCore, refusal};
use crate::client::error::Error;
use crate::client::options::ConnectOptions;
use crate::frame_view::{FrameView, is_blank};
use crate::lines::{LineSink, LineSource, LinesError, read_lines, write_lines};
use crate::socket::{FrameSocket, SocketError, SocketMessage};
use crate::wire::{RESUME_FAILED, RESUMED, close_code};

/// The time in which the reading half may give a better reason than the failure of the writing half.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Opens sockets to one server.
pub(crate) trait Dialer: Send + Sync + 'static {
    type Socket: FrameSocket + 'static;

    fn dial(&mut self) -> impl Future<Output = Result<Dialed<Self::Socket>, Error>> + Send;
}

/// An open socket.
pub(crate) struct Dialed<S> {
    pub(crate) socket: S,
    /// The id of the connection, if the socket begins one.
    pub(crate) connection_id: String,
}

/// The state of the connection behind a transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LinkState {
    /// There is a socket.
    Connected,
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
    connection_id: Arc<str>,
    state: watch::Receiver<LinkState>,
    resumes: Arc<AtomicU64>,
}

impl RemoteLink {
    /// Returns the id of the connection, or an empty text if the server gave none.
    #[must_use]
    pub fn connection_id(&self) -> &str {
        &self.connection_id
    }

    /// Returns the current state.
    #[must_use]
    pub fn state(&self) -> LinkState {
        *self.state.borrow()
    }

    /// Returns how often the connection was resumed.
    #[must_use]
    pub fn resumes(&self) -> u64 {
        self.resumes.load(Relaxed)
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

/// Starts the task of a connection and returns its transport.
pub(crate) fn start<D: Dialer>(
    dialer: D,
    first: Dialed<D::Socket>,
    options: Arc<ConnectOptions>,
) -> (Transport, RemoteLink) {
    let core = ClientCore::new(first.connection_id.clone(), options.unacknowledged_bytes.max(1));
    let shared = Arc::new(LinkShared {
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
    });
    let (state, observed) = watch::channel(LinkState::Connected);
    let resumes = Arc::<AtomicU64>::default();
    let link =
        RemoteLink { connection_id: first.connection_id.into(), state: observed, resumes: resumes.clone() };
    let (ours, theirs) = Transport::memory();
    let runner = LinkRunner { dialer, options, shared: shared.clone(), state, resumes, outage: None };
    tokio::spawn(runner.run(first.socket, ours));
    let (reader, writer) = theirs.into_split();
    (Transport::new(LinkReader { reader, shared }, writer), link)
}

/// The state that the halves of a connection share. Each notification has one waiter.
struct LinkShared {
    core: Mutex<ClientCore>,
    inbox_bytes: usize,
    /// There may be something to write to the socket.
    outgoing: Notify,
    /// There may be room for frames of the client.
    room: Notify,
    /// There may be frames for the client.
    inbox: Notify,
    /// There may be room for frames of the server.
    inbox_room: Notify,
    /// The client may be gone.
    gone: Notify,
    /// True if the client reads no more.
    is_abandoned: AtomicBool,
    has_inbox_ended: AtomicBool,
    /// The error for the reading half of the transport.
    error: Mutex<Option<Error>>,
}

impl LinkShared {
    fn with<T>(&self, action: impl FnOnce(&mut ClientCore) -> T) -> T {
        action(&mut self.core.lock_unpoisoned())
    }

    fn abandon(&self) {
        self.is_abandoned.store(true, Relaxed);
        self.with(|core| core.inbox.clear());
        self.inbox_room.notify_one();
        self.gone.notify_one();
    }

    fn has_inbox_room(&self) -> bool {
        self.is_abandoned.load(Relaxed) || self.with(|core| core.inbox.bytes()) < self.inbox_bytes
    }

    /// Returns true if nobody needs the connection any more.
    fn is_gone(&self) -> bool {
        self.is_abandoned.load(Relaxed) && self.with(|core| core.is_finished())
    }
}

impl LineSink for LinkShared {
    async fn room(&self) {
        while !self.with(|core| core.has_room()) {
            self.room.notified().await;
        }
    }

    fn line(&self, line: Bytes) {
        // Only an invalid message is not UTF-8. The agent answers it.
        let line = match std::str::from_utf8(&line) {
            Ok(_) => line,
            Err(_) => Bytes::from(String::from_utf8_lossy(&line).into_owned()),
        };
        self.with(|core| core.push(line));
        self.outgoing.notify_one();
    }
}

impl LineSource for LinkShared {
    async fn next(&self, lines: &mut Vec<u8>) -> bool {
        loop {
            if self.with(|core| core.inbox.pop_lines(lines)) {
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
struct LinkReader {
    reader: Box<dyn AsyncRead + Send + Unpin>,
    shared: Arc<LinkShared>,
}

impl AsyncRead for LinkReader {
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

impl Drop for LinkReader {
    fn drop(&mut self) {
        self.shared.abandon();
    }
}

/// The end of a socket.
enum LinkEnd {
    /// The connection has ended regularly.
    Finished,
    /// The connection has failed and cannot be resumed.
    Failed(Error),
    /// The socket is lost for this reason.
    Lost(String),
}

impl From<SocketError> for LinkEnd {
    fn from(error: SocketError) -> Self {
        match error {
            SocketError::TooLarge { bytes, limit } => LinkEnd::Failed(Error::FrameTooLarge { bytes, limit }),
            SocketError::Io(_) => LinkEnd::Lost(error.to_string()),
            // A message that breaks the rules of WebSocket would be sent again.
            SocketError::Protocol(reason) => LinkEnd::Failed(Error::Protocol(reason)),
        }
    }
}

/// The task of a connection.
struct LinkRunner<D> {
    dialer: D,
    options: Arc<ConnectOptions>,
    shared: Arc<LinkShared>,
    state: watch::Sender<LinkState>,
    resumes: Arc<AtomicU64>,
    /// The beginning of the time without a socket, and the attempts since.
    outage: Option<(Instant, u32)>,
}

impl<D: Dialer> LinkRunner<D> {
    async fn run(mut self, first: D::Socket, transport: Transport) {
        let shared = self.shared.clone();
        let (reader, writer) = transport.into_split();
        let frame_bytes = self.options.frame_bytes;
        let sending = async {
            match read_lines(reader, frame_bytes, &*shared).await {
                Ok(()) | Err(LinesError::Io(_)) => {
                    shared.with(ClientCore::end);
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
            let link = pin!(self.link(first));
            let mut is_receiving = true;
            let (mut link, mut sending) = (link, pin!(sending));
            loop {
                tokio::select! {
                    ended = &mut link => break ended,
                    error = &mut sending => break Err(error),
                    () = &mut receiving, if is_receiving => is_receiving = false,
                }
                if !is_receiving {
                    break tokio::select! {
                        ended = &mut link => ended,
                        error = &mut sending => Err(error),
                    };
                }
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "a connection ends");
            *shared.error.lock_unpoisoned() = Some(error);
        }
        shared.has_inbox_ended.store(true, Relaxed);
        shared.inbox.notify_one();
        self.state.send_replace(LinkState::Ended);
        if !shared.is_abandoned.load(Relaxed) {
            receiving.await;
        }
    }

    /// Serves one socket after the other.
    async fn link(&mut self, first: D::Socket) -> Result<(), Error> {
        let mut end = self.serve(first).await;
        loop {
            let reason = match end {
                LinkEnd::Finished => return Ok(()),
                // The server knows the connection no more because it has received our close.
                LinkEnd::Failed(Error::ResumeRefused { .. })
                    if self.shared.with(|core| core.is_written()) =>
                {
                    return Ok(());
                }
                LinkEnd::Failed(error) => return Err(error),
                LinkEnd::Lost(reason) => reason,
            };
            if self.options.resume_attempts == 0 || !self.shared.with(|core| core.can_resume()) {
                return Err(Error::Lost { reason });
            }
            tracing::debug!(reason, "a socket is lost; the connection is resumed");
            let Some(socket) = self.redial(reason).await? else { return Ok(()) };
            end = self.resume(socket).await;
        }
    }

    /// Opens another socket. Returns `None` if nobody needs it any more.
    async fn redial(&mut self, reason: String) -> Result<Option<D::Socket>, Error> {
        let shared = self.shared.clone();
        let mut last = reason;
        loop {
            let (since, attempts) = *self.outage.get_or_insert((Instant::now(), 0));
            let limit = self.options.resume_time;
            let limit = shared.with(|core| core.retention()).map_or(limit, |time| time.min(limit));
            let elapsed = since.elapsed();
            if attempts >= self.options.resume_attempts || elapsed >= limit {
                return Err(Error::GaveUp { attempts, elapsed, last });
            }
            self.outage = Some((since, attempts + 1));
            self.state.send_replace(LinkState::Resuming { attempt: attempts + 1 });
            let pause = self.options.pause(attempts).min(limit - elapsed);
            let dialed = tokio::select! {
                dialed = async {
                    sleep(pause).await;
                    self.dialer.dial().await
                } => dialed,
                () = async {
                    while !shared.is_gone() {
                        shared.gone.notified().await;
                    }
                } => return Ok(None),
            };
            match dialed {
                Ok(dialed) => return Ok(Some(dialed.socket)),
                Err(error) if error.is_temporary() => last = error.to_string(),
                Err(error) => return Err(error),
            }
        }
    }

    /// Resumes the connection on another socket and serves it.
    async fn resume(&mut self, mut socket: D::Socket) -> LinkEnd {
        let after = self.options.connect_timeout;
        match timeout(after, self.resume_handshake(&mut socket)).await {
            Ok(Ok(())) => {}
            Ok(Err(end)) => return end,
            Err(_) => {
                return LinkEnd::Lost(format!("no answer to the resume within {after:?}"));
            }
        }
        self.outage = None;
        self.resumes.fetch_add(1, Relaxed);
        self.state.send_replace(LinkState::Connected);
        self.shared.room.notify_one();
        self.serve(socket).await
    }

    async fn resume_handshake(&self, socket: &mut D::Socket) -> Result<(), LinkEnd> {
        let message = self.shared.with(|core| core.resume_message());
        socket.send(SocketMessage::Text(message)).await?;
        loop {
            let frame = match socket.next().await {
                None => return Err(LinkEnd::Lost("the socket ended before the answer to the resume".into())),
                Some(Ok(SocketMessage::Text(frame))) if !is_blank(&frame) => frame,
                Some(Ok(SocketMessage::Close(close))) => return Err(self.closed(close)),
                Some(Ok(_)) => continue,
                Some(Err(error)) => return Err(error.into()),
            };
            let view = FrameView::read(&frame);
            return match view.method.as_deref() {
                Some(RESUMED) => self.shared.with(|core| core.resumed(&view)).map_err(LinkEnd::Failed),
                Some(RESUME_FAILED) => Err(LinkEnd::Failed(Error::ResumeRefused { reason: refusal(&view) })),
                _ => Err(LinkEnd::Failed(Error::Protocol("unexpected answer to stream/resume".into()))),
            };
        }
    }

    async fn serve(&self, socket: D::Socket) -> LinkEnd {
        let (mut sink, mut stream) = socket.split();
        let mut reading = pin!(self.read(&mut stream));
        let written = tokio::select! {
            end = &mut reading => return end,
            end = self.write(&mut sink) => end,
        };
        if !matches!(written, LinkEnd::Finished) {
            // The reading half may know a better reason.
            return timeout(LAST_WORDS, reading).await.unwrap_or(written);
        }
        let since = Instant::now();
        loop {
            match timeout(self.options.close_timeout, &mut reading).await {
                // The answer to our close comes after everything before it was accepted.
                Ok(LinkEnd::Lost(reason)) if self.shared.with(|core| core.can_resume()) => {
                    return LinkEnd::Lost(reason);
                }
                // The agent may be slow to take the last frames.
                Err(_)
                    if !self.shared.with(|core| core.is_finished())
                        && since.elapsed() < self.options.resume_time => {}
                _ => return LinkEnd::Finished,
            }
        }
    }

    async fn read(
        &self,
        stream: &mut (impl Stream<Item = Result<SocketMessage, SocketError>> + Unpin),
    ) -> LinkEnd {
        let missed = self.options.missed_keepalives.max(1);
        let dead_after = self.options.keepalive.saturating_mul(missed);
        loop {
            while !self.shared.has_inbox_room() {
                self.shared.inbox_room.notified().await;
            }
            let message = match timeout(dead_after, stream.next()).await {
                Ok(Some(Ok(message))) => message,
                Ok(Some(Err(error))) => return error.into(),
                Ok(None) => return LinkEnd::Lost("the socket ended".into()),
                Err(_) => return LinkEnd::Lost(format!("{missed} pings were not answered")),
            };
            match message {
                SocketMessage::Text(frame) if !is_blank(&frame) => {
                    match self.shared.with(|core| core.receive(frame)) {
                        Ok(true) if self.shared.is_abandoned.load(Relaxed) => {
                            self.shared.with(|core| core.inbox.clear());
                        }
                        Ok(true) => self.shared.inbox.notify_one(),
                        Ok(false) => self.shared.room.notify_one(),
                        Err(error) => return LinkEnd::Failed(error),
                    }
                    // An acknowledgement may be the last, and the answer to `initialize` changes the rules.
                    self.shared.outgoing.notify_one();
                }
                SocketMessage::Close(close) => {
                    // The next read sends the answer.
                    let _ = timeout(LAST_WORDS, stream.next()).await;
                    return self.closed(close);
                }
                _ => {}
            }
        }
    }

    async fn write(&self, sink: &mut (impl Sink<SocketMessage, Error = SocketError> + Unpin)) -> LinkEnd {
        match self.write_frames(sink).await {
            Ok(()) => LinkEnd::Finished,
            Err(error) => error.into(),
        }
    }

    /// Writes frames and pings, and a close after the last frame.
    async fn write_frames(
        &self,
        sink: &mut (impl Sink<SocketMessage, Error = SocketError> + Unpin),
    ) -> Result<(), SocketError> {
        let mut ping_at = Instant::now() + self.options.keepalive;
        let mut is_dirty = false;
        loop {
            if let Some(frame) = self.shared.with(ClientCore::next_frame) {
                self.shared.room.notify_one();
                sink.feed(SocketMessage::Text(frame)).await?;
                is_dirty = true;
                continue;
            }
            if self.shared.with(|core| core.is_written()) {
                let close = SocketMessage::Close(Some((close_code::NORMAL, String::new())));
                return sink.send(close).await;
            }
            tokio::select! {
                biased;
                () = self.shared.outgoing.notified() => {}
                () = sleep_until(ping_at) => {
                    ping_at = Instant::now() + self.options.keepalive;
                    sink.feed(SocketMessage::Ping(Bytes::new())).await?;
                    is_dirty = true;
                }
                flushed = sink.flush(), if is_dirty => {
                    flushed?;
                    is_dirty = false;
                }
            }
        }
    }

    /// Judges the close of the server.
    fn closed(&self, close: Option<(u16, String)>) -> LinkEnd {
        match close {
            Some((close_code::NORMAL, _)) => LinkEnd::Finished,
            // 1005 stands for a close without a code.
            None | Some((1005, _)) if !self.shared.with(|core| core.can_resume()) => LinkEnd::Finished,
            None => LinkEnd::Lost("the server closed it without a code".into()),
            Some((code @ (1002 | 1003 | 1007 | 1009 | 1010 | 4000..), reason)) => {
                LinkEnd::Failed(Error::Closed { code, reason })
            }
            Some((code, reason)) => LinkEnd::Lost(format!("the server closed it with code {code}: {reason}")),
        }
    }
}
