//! Moves frames between a transport and sockets, and opens the next socket when one is lost.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use duologue_rpc::Transport;
use futures_util::{Sink, SinkExt as _, Stream, StreamExt as _};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::client::client_core::{ClientCore, refusal};
use crate::client::error::Error;
use crate::client::link::{
    LAST_WORDS, LinkCore as _, LinkShared, LinkStatus, Outage, RemoteLink, start_link,
};
use crate::client::options::ConnectOptions;
use crate::frame_view::{FrameView, is_blank};
use crate::socket::{FrameSocket, SocketError, SocketMessage};
use crate::wire::{RESUME_FAILED, RESUMED, close_code};

/// The time between two looks for a sent `initialize`.
const INITIALIZE_CHECK: Duration = Duration::from_secs(1);

/// Opens sockets to one server.
pub(crate) trait Dialer: Send + Sync + 'static {
    type Socket: FrameSocket + 'static;

    fn dial(&mut self, within: Duration) -> impl Future<Output = Result<Dialed<Self::Socket>, Error>> + Send;
}

/// An open socket.
pub(crate) struct Dialed<S> {
    pub(crate) socket: S,
    /// The id of the connection, if the socket begins one.
    pub(crate) connection_id: String,
}

/// Starts the task of a connection and returns its transport.
pub(crate) fn start<D: Dialer>(
    dialer: D,
    first: Dialed<D::Socket>,
    options: Arc<ConnectOptions>,
) -> (Transport, RemoteLink) {
    let core = ClientCore::new(first.connection_id.clone(), options.unacknowledged_bytes.max(1));
    let shared = Arc::new(LinkShared::new(core, &options));
    let (status, link) = LinkStatus::new();
    let mut runner = LinkRunner {
        dialer,
        options: options.clone(),
        shared: shared.clone(),
        status: status.clone(),
        outage: None,
    };
    let running = async move { runner.link(first.socket).await };
    (start_link(shared, status, &options, running), link)
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
    shared: Arc<LinkShared<ClientCore>>,
    status: Arc<LinkStatus>,
    outage: Option<Outage>,
}

impl<D: Dialer> LinkRunner<D> {
    /// Serves one socket after the other.
    async fn link(&mut self, first: D::Socket) -> Result<(), Error> {
        let mut end = self.serve(first).await;
        let mut was_beginning = false;
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
            let is_beginning = self.shared.with(|core| core.can_begin_again());
            if std::mem::replace(&mut was_beginning, is_beginning) && !is_beginning {
                self.outage = None;
            }
            let can_resume =
                !self.options.resume_time.is_zero() && self.shared.with(|core| core.can_resume());
            if !is_beginning && !can_resume {
                return Err(Error::Lost { reason });
            }
            tracing::debug!(
                reason,
                is_beginning,
                "a socket is lost; the connection is resumed or begins again"
            );
            let Some(dialed) = self.redial(reason, is_beginning).await? else { return Ok(()) };
            end = if is_beginning {
                self.shared.with(|core| core.begin_again(dialed.connection_id));
                self.status.connected();
                self.serve(dialed.socket).await
            } else {
                self.resume(dialed.socket).await
            };
        }
    }

    /// Opens another socket. Returns `None` if nobody needs it any more.
    async fn redial(
        &mut self,
        reason: String,
        is_beginning: bool,
    ) -> Result<Option<Dialed<D::Socket>>, Error> {
        let shared = self.shared.clone();
        let mut last = reason;
        loop {
            let resume_limit = self.shared.resume_limit(&self.options);
            let outage = self.outage.get_or_insert_with(Outage::begin);
            let (limit, next) = match is_beginning {
                true => {
                    let limit = self.options.open_time;
                    (limit, outage.next(&self.options, limit).ok_or(Error::Lost { reason: last })?)
                }
                false => (resume_limit, outage.next_resume(&self.options, resume_limit, &last)?),
            };
            let (attempt, pause) = next;
            self.status.resuming(attempt);
            let dialed = tokio::select! {
                dialed = async {
                    sleep(pause).await;
                    self.dialer.dial(outage.attempt_time(self.options.connect_timeout, limit)).await
                } => dialed,
                () = shared.is_gone() => return Ok(None),
            };
            match dialed {
                Ok(dialed) => return Ok(Some(dialed)),
                Err(error) if error.is_temporary() => last = error.to_string(),
                Err(error) => return Err(error),
            }
        }
    }

    /// Resumes the connection on another socket and serves it.
    async fn resume(&mut self, mut socket: D::Socket) -> LinkEnd {
        let limit = self.shared.resume_limit(&self.options);
        let outage = self.outage.get_or_insert_with(Outage::begin);
        let after = outage.attempt_time(self.options.connect_timeout, limit);
        match timeout(after, self.resume_handshake(&mut socket)).await {
            Ok(Ok(())) => {}
            Ok(Err(end)) => return end,
            Err(_) => {
                return LinkEnd::Lost(format!("no answer to the resume within {after:?}"));
            }
        }
        self.outage = None;
        self.status.resumed();
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
            () = self.late_initialize() => {
                let limit = self.options.initialize_timeout;
                let reason = format!("no answer to `initialize` within {limit:?} (`ConnectOptions::initialize_timeout`)");
                return LinkEnd::Failed(Error::Lost { reason });
            }
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

    /// Waits until the answer to `initialize` is too late. Its time begins when it is sent, or somewhat later.
    async fn late_initialize(&self) {
        let mut was_sent = false;
        while self.shared.with(|core| core.can_begin_again()) {
            let is_sent = self.shared.with(|core| core.has_sent_initialize());
            if was_sent {
                return;
            }
            was_sent = is_sent;
            let time = if is_sent { self.options.initialize_timeout } else { INITIALIZE_CHECK };
            sleep(time).await;
        }
        std::future::pending().await
    }

    async fn read(
        &self,
        stream: &mut (impl Stream<Item = Result<SocketMessage, SocketError>> + Unpin),
    ) -> LinkEnd {
        let dead_after = self.options.dead_after();
        loop {
            self.shared.inbox_room().await;
            let message = match self.status.observe(&self.options, stream.next()).await {
                Some(Some(Ok(message))) => message,
                Some(Some(Err(error))) => return error.into(),
                Some(None) => return LinkEnd::Lost("the socket ended".into()),
                None => return LinkEnd::Lost(format!("nothing was received for {dead_after:?}")),
            };
            match message {
                SocketMessage::Text(frame) if !is_blank(&frame) => {
                    match self.shared.with(|core| core.receive(frame)) {
                        Ok(true) => {
                            self.note_connection_id();
                            self.shared.received();
                        }
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

    /// Reports the id of the connection when it is that of the answer to `initialize`.
    fn note_connection_id(&self) {
        if self.status.connection_id().is_empty() && !self.shared.with(|core| core.can_begin_again()) {
            self.shared.with(|core| self.status.set_connection_id(core.connection_id()));
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

    /// Returns the effect of the server's close.
    fn closed(&self, close: Option<(u16, String)>) -> LinkEnd {
        match close {
            Some((close_code::NORMAL, _)) => LinkEnd::Finished,
            // 1005 stands for a close without a code.
            None | Some((1005, _))
                if self.shared.with(|core| !core.can_resume() && !core.can_begin_again()) =>
            {
                LinkEnd::Finished
            }
            None => LinkEnd::Lost("the server closed it without a code".into()),
            Some((code @ (1002 | 1003 | 1007 | 1009 | 1010 | 4000..), reason)) => {
                LinkEnd::Failed(Error::Closed { code, reason })
            }
            Some((code, reason)) => LinkEnd::Lost(format!("the server closed it with code {code}: {reason}")),
        }
    }
}
