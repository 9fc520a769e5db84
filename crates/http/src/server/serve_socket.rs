//! Serves one WebSocket of a client: its first message, its frames, acknowledgements, pings and its end.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use duologue_rpc::Lock as _;
use duologue_rpc::raw_message::beginning;
use futures_util::{FutureExt as _, Sink, SinkExt as _, Stream, StreamExt as _};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout};

use crate::frame_view::{FrameView, is_blank};
use crate::lines::BATCH;
use crate::server::endpoint::{
    CloseReason, ConnectRequest, ConnectionKind, Endpoint, FrameSource, HttpRequestHead, Rejection,
    ResumeRefused, ResumeRequest, ServerConnection, SourceEnd,
};
use crate::server::options::ServerOptions;
use crate::socket::{FrameSocket, SocketError, SocketMessage};
use crate::wire::{
    self, ACK, INITIALIZE, RESUME, RESUME_FAILED, RESUMED, ReceivedParams, RemoteConnectionId,
    ResumeFailedParams, ResumeParams, close_code,
};

/// The bytes after which a ping lets the client confirm them.
const PING_BYTES: usize = 256 * 1024;
/// The time after which a ping lets the client confirm fewer bytes.
const PING_DELAY: Duration = Duration::from_secs(1);
/// The time after which an agent that does not read is not waited for any more.
const UNBLOCK_AFTER: Duration = Duration::from_secs(5);
/// The accepted frames after which they are acknowledged at once.
const ACK_FRAMES: u64 = 64;
/// The time in which a client answers a close.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// The facts about the request that opened a socket.
pub(crate) struct SocketContext<E> {
    pub(crate) endpoint: Arc<E>,
    pub(crate) options: Arc<ServerOptions>,
    pub(crate) id: RemoteConnectionId,
    pub(crate) head: HttpRequestHead,
    /// True if the client wants acknowledgements from the beginning.
    pub(crate) wants_acks: bool,
}

/// A socket whose first message was accepted.
struct Opened<C: ServerConnection> {
    connection: C,
    source: C::Source,
    received: u64,
    /// The number of these frames that the client knows to be accepted.
    acknowledged: u64,
    sends_acks: bool,
}

/// The end of a socket.
#[derive(Debug)]
enum SocketEnd {
    /// The frames have ended.
    Source(SourceEnd),
    /// The client closed the socket with this code.
    Closed(Option<u16>),
    /// The socket failed, or the client is gone.
    Lost(SocketError),
    /// The client did not answer pings.
    Dead,
    /// The client did not read.
    Stalled,
    /// The agent does not read, and confirmations wait behind the frames that it has not read.
    Blocked,
    Rejected(Rejection),
}

/// Serves a socket to its end.
pub(crate) async fn serve_socket<E: Endpoint>(mut socket: impl FrameSocket, context: SocketContext<E>) {
    let opened = match open(&mut socket, &context).await {
        Ok(opened) => opened,
        Err(Some((code, reason))) => return close(&mut socket, code, &reason).await,
        Err(None) => return,
    };
    let Opened { connection, source, received, acknowledged, sends_acks } = opened;
    let options = context.options.clone();
    // The headers of the request refer to the buffer of 16 KiB into which it was read.
    drop(context);
    let session = SocketSession {
        connection: &connection,
        options: &options,
        sends_acks,
        state: Mutex::new(SocketState { confirmed: 0, received, is_blocked: false, read_at: Instant::now() }),
        changed: Notify::new(),
    };
    let (mut sink, mut stream) = socket.split();
    let end = tokio::select! {
        end = session.read(&mut stream) => end,
        end = session.write(&mut sink, source, acknowledged) => end,
        end = session.watch() => end,
    };
    let id = connection.id();
    tracing::debug!(%id, ?end, "a socket ends");
    let Ok(mut socket) = stream.reunite(sink) else { return };
    match end {
        SocketEnd::Source(SourceEnd::Ended) => {
            if close_answered(&mut socket, close_code::NORMAL, "the connection has ended").await {
                connection.close(CloseReason::ClientClosed).await;
            }
        }
        SocketEnd::Source(SourceEnd::Superseded) => {
            close(&mut socket, close_code::SUPERSEDED, "a newer socket has resumed the connection").await;
        }
        SocketEnd::Source(SourceEnd::Failed(reason)) => {
            close(&mut socket, close_code::AGENT_FAILED, &reason).await;
        }
        // 1005 stands for a close without a code.
        SocketEnd::Closed(None | Some(close_code::NORMAL | 1005)) => {
            let _ = timeout(CLOSE_TIMEOUT, socket.close()).await;
            connection.close(CloseReason::ClientClosed).await;
        }
        SocketEnd::Closed(Some(_)) => {
            let _ = timeout(CLOSE_TIMEOUT, socket.close()).await;
        }
        SocketEnd::Stalled => {
            close(
                &mut socket,
                close_code::STALLED,
                "the client does not read (`ServerOptions::stall_timeout`)",
            )
            .await;
        }
        SocketEnd::Blocked => {
            close(&mut socket, close_code::STALLED, "the agent does not read; resume the connection").await;
        }
        SocketEnd::Lost(SocketError::TooLarge { bytes, limit }) => {
            let reason = format!("message of {bytes} bytes, limit {limit} (`ServerOptions::frame_bytes`)");
            close(&mut socket, close_code::TOO_BIG, &reason).await;
        }
        SocketEnd::Rejected(rejection) => {
            close(&mut socket, rejection.close_code, &rejection.message).await;
        }
        SocketEnd::Lost(SocketError::Protocol(reason)) => {
            close(&mut socket, close_code::PROTOCOL, &reason).await;
        }
        SocketEnd::Lost(_) | SocketEnd::Dead => {}
    }
}

/// Sends a close and waits for the client to answer it, so that no message before it is lost.
async fn close(socket: &mut impl FrameSocket, code: u16, reason: &str) {
    close_answered(socket, code, reason).await;
}

/// Sends a close. Returns true if the client answered it.
async fn close_answered(socket: &mut impl FrameSocket, code: u16, reason: &str) -> bool {
    // A control frame has at most 125 bytes.
    let reason = beginning(reason, 120).to_owned();
    let closing = async {
        if socket.send(SocketMessage::Close(Some((code, reason)))).await.is_err() {
            return false;
        }
        let mut is_answered = false;
        while let Some(Ok(message)) = socket.next().await {
            is_answered |= matches!(message, SocketMessage::Close(_));
        }
        is_answered
    };
    timeout(CLOSE_TIMEOUT, closing).await.unwrap_or(false)
}

/// Reads the first message and opens the connection. The error is the code and the reason that close the socket.
async fn open<E: Endpoint>(
    socket: &mut impl FrameSocket,
    context: &SocketContext<E>,
) -> Result<Opened<E::Connection>, Option<(u16, String)>> {
    let limit = context.options.handshake_timeout;
    let first = match timeout(limit, first_text(socket)).await {
        Ok(Some(Ok(first))) => first,
        Ok(Some(Err(bytes))) => {
            let limit = context.options.frame_bytes;
            let reason = format!("message of {bytes} bytes, limit {limit} (`ServerOptions::frame_bytes`)");
            return Err(Some((close_code::TOO_BIG, reason)));
        }
        Ok(None) => return Err(None),
        Err(_) => {
            let reason = format!("no message within {limit:?} (`ServerOptions::handshake_timeout`)");
            // The network of the client may be slow, so it may try again.
            return Err(Some((close_code::STALLED, reason)));
        }
    };
    let view = FrameView::read(&first);
    if view.is_request(INITIALIZE) {
        return initialize(socket, context, first.clone(), &view).await;
    }
    match (view.method.as_deref(), wire::params::<ResumeParams>(&view)) {
        (Some(RESUME), Ok(params)) => resume(socket, context, params).await,
        _ => {
            let reason = "the first message must be `initialize` or `stream/resume`";
            Err(Some((close_code::PROTOCOL, reason.into())))
        }
    }
}

/// Returns the first text of a socket, the length of one over the limit, or `None` at the end.
async fn first_text(socket: &mut impl FrameSocket) -> Option<Result<Bytes, usize>> {
    loop {
        match socket.next().await? {
            Ok(SocketMessage::Text(text)) if !is_blank(&text) => return Some(Ok(text)),
            Ok(SocketMessage::Close(_)) => return None,
            Ok(_) => {}
            Err(SocketError::TooLarge { bytes, .. }) => return Some(Err(bytes)),
            Err(_) => return None,
        }
    }
}

async fn initialize<E: Endpoint>(
    socket: &mut impl FrameSocket,
    context: &SocketContext<E>,
    initialize: Bytes,
    view: &FrameView<'_>,
) -> Result<Opened<E::Connection>, Option<(u16, String)>> {
    let request = ConnectRequest {
        id: context.id.clone(),
        kind: ConnectionKind::WebSocket,
        head: context.head.clone(),
        initialize,
    };
    let connected = context.endpoint.connect(request).await;
    let opened = connected.and_then(|connection| {
        let source = connection
            .open(&[])
            .map_err(|error| Rejection::new(format!("the connection ended while it was opened: {error}")))?;
        Ok(Opened { connection, source, received: 1, acknowledged: 0, sends_acks: context.wants_acks })
    });
    match opened {
        Ok(opened) => Ok(opened),
        Err(rejection) => {
            let id = view.id.map_or("null".into(), String::from_utf8_lossy);
            let error = crate::server::error_body(&id, rejection.code, &rejection.message);
            let _ = timeout(CLOSE_TIMEOUT, socket.send(SocketMessage::Text(error))).await;
            Err(Some((rejection.close_code, rejection.message)))
        }
    }
}

async fn resume<E: Endpoint>(
    socket: &mut impl FrameSocket,
    context: &SocketContext<E>,
    params: ResumeParams,
) -> Result<Opened<E::Connection>, Option<(u16, String)>> {
    let request = ResumeRequest {
        id: RemoteConnectionId::new(params.connection_id),
        secret: params.secret,
        head: context.head.clone(),
        positions: params.cursors,
    };
    let positions = request.positions.clone();
    let opened = context.endpoint.resume(request).await.and_then(|resumed| {
        let source = resumed.connection.open(&positions)?;
        Ok((resumed, source))
    });
    let answer = match &opened {
        Ok((resumed, _)) => wire::notification(RESUMED, &ReceivedParams { received: resumed.received }),
        Err(refused) => refusal(*refused),
    };
    let is_sent = timeout(CLOSE_TIMEOUT, socket.send(SocketMessage::Text(answer))).await;
    match opened {
        Ok((resumed, source)) if matches!(is_sent, Ok(Ok(()))) => Ok(Opened {
            connection: resumed.connection,
            source,
            received: resumed.received,
            acknowledged: resumed.received,
            sends_acks: true,
        }),
        Ok(_) => Err(None),
        Err(refused) => Err(Some((close_code::NORMAL, refused.to_string()))),
    }
}

fn refusal(refused: ResumeRefused) -> Bytes {
    let params = ResumeFailedParams { reason: refused.reason().into(), message: refused.to_string() };
    wire::notification(RESUME_FAILED, &params)
}

/// The two directions of an open socket.
struct SocketSession<'a, C> {
    connection: &'a C,
    options: &'a ServerOptions,
    sends_acks: bool,
    state: Mutex<SocketState>,
    /// Notified when the writing half has to look at the state.
    changed: Notify,
}

/// The state that the reading half reports to the others.
struct SocketState {
    /// The number of frames that the client has confirmed with a pong.
    confirmed: u64,
    /// The number of the client's frames that were accepted.
    received: u64,
    /// True while the agent does not take a frame, so that nothing is read.
    is_blocked: bool,
    read_at: Instant,
}

impl<C: ServerConnection> SocketSession<'_, C> {
    fn update(&self, change: impl FnOnce(&mut SocketState)) {
        change(&mut self.state.lock_unpoisoned());
        self.changed.notify_one();
    }

    async fn read(
        &self,
        stream: &mut (impl Stream<Item = Result<SocketMessage, SocketError>> + Unpin),
    ) -> SocketEnd {
        while let Some(message) = stream.next().await {
            self.state.lock_unpoisoned().read_at = Instant::now();
            match message {
                Ok(SocketMessage::Text(frame)) if is_blank(&frame) => {}
                Ok(SocketMessage::Text(frame)) => {
                    self.update(|state| state.is_blocked = true);
                    let accepted = self.connection.accept(frame.into()).await;
                    self.update(|state| {
                        state.is_blocked = false;
                        state.read_at = Instant::now();
                        state.received += u64::from(accepted.is_ok());
                    });
                    if let Err(rejection) = accepted {
                        return SocketEnd::Rejected(rejection);
                    }
                }
                Ok(SocketMessage::Pong(payload)) => {
                    if let Ok(frames) = payload.as_ref().try_into().map(u64::from_be_bytes) {
                        self.update(|state| state.confirmed = state.confirmed.max(frames));
                    }
                }
                Ok(SocketMessage::Close(close)) => return SocketEnd::Closed(close.map(|(code, _)| code)),
                Ok(SocketMessage::Ping(_) | SocketMessage::Binary) => {}
                Err(error) => return SocketEnd::Lost(error),
            }
        }
        SocketEnd::Lost(SocketError::Io(std::io::ErrorKind::UnexpectedEof.into()))
    }

    /// Ends when nothing was received for several keepalives.
    async fn watch(&self) -> SocketEnd {
        let dead_after = self.options.keepalive.saturating_mul(self.options.missed_keepalives.max(1));
        loop {
            let deadline = {
                let mut state = self.state.lock_unpoisoned();
                if state.is_blocked {
                    state.read_at = Instant::now();
                }
                state.read_at + dead_after
            };
            if deadline <= Instant::now() {
                return SocketEnd::Dead;
            }
            sleep_until(deadline).await;
        }
    }

    async fn write<W: Sink<SocketMessage, Error = SocketError> + Unpin>(
        &self,
        sink: &mut W,
        mut source: C::Source,
        mut acknowledged: u64,
    ) -> SocketEnd {
        let options = self.options;
        let mut window = SendWindow::new(options.window_bytes);
        let mut ping_at = Instant::now() + options.keepalive;
        let mut ack_at: Option<Instant> = None;
        let mut stall_at: Option<Instant> = None;
        let mut unblock_at: Option<Instant> = None;
        let mut is_dirty = false;
        loop {
            let (confirmed, received, is_blocked) = {
                let state = self.state.lock_unpoisoned();
                (state.confirmed, state.received, state.is_blocked)
            };
            if let Some(frames) = window.confirm(confirmed) {
                source.confirm(frames);
                stall_at = None;
            }
            let is_open = window.unconfirmed() < options.window_bytes.max(1);
            let now = Instant::now();
            if is_open {
                stall_at = None;
            } else {
                stall_at.get_or_insert(now + options.stall_timeout);
            }
            if is_blocked && window.unconfirmed() > 0 {
                unblock_at.get_or_insert(now + UNBLOCK_AFTER);
            } else {
                unblock_at = None;
            }
            if self.sends_acks && received > acknowledged {
                ack_at.get_or_insert(now + options.ack_delay);
                if received - acknowledged >= ACK_FRAMES {
                    ack_at = Some(now);
                }
            }
            let deadline =
                [Some(ping_at), ack_at, stall_at, unblock_at].into_iter().flatten().min().unwrap_or(ping_at);
            let message = tokio::select! {
                biased;
                () = self.changed.notified() => continue,
                () = sleep_until(deadline) => {
                    let now = Instant::now();
                    if stall_at.is_some_and(|at| at <= now) {
                        return SocketEnd::Stalled;
                    }
                    if unblock_at.is_some_and(|at| at <= now) {
                        // The pongs of the client wait behind a frame that the agent does not take, perhaps because its
                        // own output is full. A resume confirms the frames too. Another client cannot lose them twice.
                        if self.sends_acks {
                            return SocketEnd::Blocked;
                        }
                        source.confirm(window.confirm_all());
                        continue;
                    }
                    if ack_at.is_some_and(|at| at <= now) {
                        ack_at = None;
                        acknowledged = self.state.lock_unpoisoned().received;
                        SocketMessage::Text(wire::notification(ACK, &ReceivedParams { received: acknowledged }))
                    } else {
                        ping_at = now + options.keepalive;
                        window.ping()
                    }
                }
                frame = source.next(), if is_open => match frame {
                    Ok(frame) => {
                        window.sent(frame.text.len());
                        ping_at = ping_at.min(now + PING_DELAY);
                        SocketMessage::Text(frame.text)
                    }
                    Err(end) => return self.flushed(sink, SocketEnd::Source(end)).await,
                },
                flushed = sink.flush(), if is_dirty => {
                    is_dirty = false;
                    match flushed {
                        Ok(()) => continue,
                        Err(error) => return SocketEnd::Lost(error),
                    }
                }
            };
            is_dirty = true;
            let (mut next, mut bytes) = (Some(message), 0);
            while let Some(message) = next.take() {
                match timeout(options.stall_timeout, sink.feed(message)).await {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => return SocketEnd::Lost(error),
                    Err(_) => return SocketEnd::Stalled,
                }
                if window.is_ping_due() {
                    ping_at = Instant::now() + options.keepalive;
                    next = Some(window.ping());
                } else if bytes < BATCH
                    && window.unconfirmed() < options.window_bytes.max(1)
                    && let Some(Ok(frame)) = source.next().now_or_never()
                {
                    // The end of the source comes again.
                    bytes += frame.text.len();
                    window.sent(frame.text.len());
                    ping_at = ping_at.min(now + PING_DELAY);
                    next = Some(SocketMessage::Text(frame.text));
                }
            }
        }
    }

    async fn flushed<W: Sink<SocketMessage, Error = SocketError> + Unpin>(
        &self,
        sink: &mut W,
        end: SocketEnd,
    ) -> SocketEnd {
        match timeout(self.options.stall_timeout, pin!(sink.flush())).await {
            Ok(Ok(())) => end,
            Ok(Err(error)) => SocketEnd::Lost(error),
            Err(_) => SocketEnd::Stalled,
        }
    }
}

/// The frames that were sent and not confirmed.
#[derive(Default)]
struct SendWindow {
    frames: u64,
    bytes: u64,
    confirmed_bytes: u64,
    pinged_bytes: u64,
    /// The bytes after which a ping is due.
    ping_bytes: u64,
    /// The frames and bytes that were sent before each ping without a pong.
    pings: VecDeque<(u64, u64)>,
}

impl SendWindow {
    fn new(window_bytes: usize) -> Self {
        SendWindow { ping_bytes: (window_bytes / 2).clamp(1, PING_BYTES) as u64, ..SendWindow::default() }
    }

    fn sent(&mut self, bytes: usize) {
        self.frames += 1;
        self.bytes += bytes as u64;
    }

    fn unconfirmed(&self) -> usize {
        usize::try_from(self.bytes - self.confirmed_bytes).unwrap_or(usize::MAX)
    }

    fn is_ping_due(&self) -> bool {
        self.bytes - self.pinged_bytes >= self.ping_bytes
    }

    /// Returns a ping whose pong confirms all frames before it.
    fn ping(&mut self) -> SocketMessage {
        if self.pings.back().is_none_or(|(frames, _)| *frames < self.frames) {
            self.pings.push_back((self.frames, self.bytes));
        }
        self.pinged_bytes = self.bytes;
        SocketMessage::Ping(Bytes::copy_from_slice(&self.frames.to_be_bytes()))
    }

    /// Counts frames as confirmed. Returns their number if it has grown.
    fn confirm(&mut self, frames: u64) -> Option<u64> {
        let mut confirmed = None;
        while self.pings.front().is_some_and(|(pinged, _)| *pinged <= frames) {
            let (frames, bytes) = self.pings.pop_front()?;
            self.confirmed_bytes = self.confirmed_bytes.max(bytes);
            confirmed = Some(frames);
        }
        confirmed
    }

    fn confirm_all(&mut self) -> u64 {
        self.pings.clear();
        (self.confirmed_bytes, self.pinged_bytes) = (self.bytes, self.bytes);
        self.frames
    }
}

#[cfg(test)]
mod tests;
