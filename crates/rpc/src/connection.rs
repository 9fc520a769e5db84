//! The builder of a connection, its reader, and the state that its parts share.
//!
//! One reader owns the input, one writer owns the output. The reader decodes a line and passes it to
//! the service or to the request that waits for it. It awaits nothing but input, except that it
//! pauses while the queues exceed their budget.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use duologue_schema::{Error as WireError, RequestId};
use serde_json::value::RawValue;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::budget::{Budget, Overrun, ReadDecision};
use crate::error::{Closed, Error};
use crate::frame::Frame;
use crate::in_flight::InFlight;
use crate::limits::Limits;
use crate::line_buffer::{LineBuffer, LineTooLong};
use crate::message::{self, Malformed, ResponseOutcome, RpcMessage};
use crate::noise::NoiseLog;
use crate::outbox::{Outbox, PushMode};
use crate::peer::{CANCEL_REQUEST, CancelRequest, Peer};
use crate::pending::{Pending, RawResponse};
use crate::service::{Incoming, Responder, Service};
use crate::stats::StatCounters;
use crate::sync::{JoinHandle, Lock, Mutex, spawn};
use crate::tap::{ConnectionTap, Direction, InsideTapPolicy, Tap, TapDepth};
use crate::transport::{SharedWriter, Transport};

/// The state that the reader, the writer, the handlers and the handles share.
pub(crate) struct ConnectionState {
    pub(crate) limits: Limits,
    pub(crate) pending: Pending,
    pub(crate) in_flight: Mutex<InFlight>,
    pub(crate) outbox: Outbox,
    /// Locked while the response of a handler waits for space, so that only one waiting response is encoded.
    pub(crate) answer_turn: tokio::sync::Mutex<()>,
    pub(crate) budget: Arc<Budget>,
    pub(crate) counters: StatCounters,
    pub(crate) noise: NoiseLog,
    pub(crate) tasks: TaskTracker,
    /// True while the reader is paused by the budget.
    pub(crate) paused: AtomicBool,
    /// True while the reader has more lines of the last read.
    more_lines: AtomicBool,
    /// Cancelled at the beginning of the end: the reader stops and handlers are cancelled.
    pub(crate) closing: CancellationToken,
    pub(crate) done: EndSignal,
    reason: Mutex<Option<Closed>>,
    tap: Option<ConnectionTap>,
}

impl ConnectionState {
    pub(crate) fn new(limits: Limits, tap: Option<Arc<dyn Tap>>) -> Self {
        let limits = limits.clamped();
        ConnectionState {
            pending: Pending::default(),
            in_flight: Mutex::default(),
            outbox: Outbox::new(&limits),
            answer_turn: tokio::sync::Mutex::new(()),
            budget: Arc::new(Budget::new(&limits)),
            counters: StatCounters::default(),
            noise: NoiseLog::default(),
            tasks: TaskTracker::new(),
            paused: AtomicBool::new(false),
            more_lines: AtomicBool::new(false),
            closing: CancellationToken::new(),
            done: EndSignal(watch::Sender::new(None)),
            reason: Mutex::default(),
            tap: tap.map(ConnectionTap::new),
            limits,
        }
    }

    /// Appends a frame to the output, even if it is full.
    #[cfg(test)]
    pub(crate) fn send(&self, mut frame: Frame) -> Result<(), Error> {
        self.send_all(std::slice::from_mut(&mut frame), InsideTapPolicy::Refuse)
    }

    /// Sends a request, even if the output is full. `is_only` is true if no other request waits for its response.
    pub(crate) fn send_request(&self, mut frame: Frame, is_only: bool) -> Result<(), Error> {
        let mode = if is_only { PushMode::WriteNow } else { PushMode::Always };
        self.push(std::slice::from_mut(&mut frame), mode, InsideTapPolicy::Refuse).map(drop)
    }

    /// Sends a response, even if the output is full. `is_last` is true if no other request of the peer is in flight.
    pub(crate) fn send_response(&self, mut frame: Frame, is_last: bool) -> Result<(), Error> {
        // More lines of the same read may be requests, whose responses are written together.
        let at_once = is_last && !self.more_lines.load(Relaxed);
        let mode = if at_once { PushMode::WriteNow } else { PushMode::Always };
        self.push(std::slice::from_mut(&mut frame), mode, InsideTapPolicy::Defer).map(drop)
    }

    /// Appends frames in one step. No other frame comes between them, and the peer cannot react to one
    /// of them before all are in the output.
    pub(crate) fn send_all(&self, frames: &mut [Frame], policy: InsideTapPolicy) -> Result<(), Error> {
        self.push(frames, PushMode::Always, policy).map(drop)
    }

    /// Appends a frame if there is space. Returns false if there is none and the frame is unchanged.
    pub(crate) fn send_if_room(&self, frame: &mut Frame) -> Result<bool, Error> {
        self.push(std::slice::from_mut(frame), PushMode::IfRoom, InsideTapPolicy::Refuse)
    }

    fn push(&self, frames: &mut [Frame], mode: PushMode, policy: InsideTapPolicy) -> Result<bool, Error> {
        frames.iter().try_for_each(|frame| self.fits(frame))?;
        match &self.tap {
            None => self.append(frames, mode, |_| {}),
            Some(tap) => {
                let append = |frames: &mut [Frame], shown| {
                    let mode = if shown == TapDepth::First { mode } else { PushMode::Always };
                    self.append(frames, mode, |frame| tap.outgoing(frame, shown))
                };
                tap.push(frames, policy, append, || self.outbox.finish())
            }
        }
    }

    fn append(&self, frames: &mut [Frame], mode: PushMode, seen: impl Fn(&Frame)) -> Result<bool, Error> {
        self.outbox.push_all(frames, mode, seen).map_err(|reason| {
            if matches!(reason, Closed::OutputStalled { .. }) {
                self.close(reason.clone());
            }
            Error::Closed(reason)
        })
    }

    /// Fails if a frame exceeds the length limit of a line.
    pub(crate) fn fits(&self, frame: &Frame) -> Result<(), Error> {
        let (bytes, limit) = (frame.line().len(), self.limits.frame_bytes);
        if bytes > limit { Err(Error::FrameTooLarge { bytes, limit }) } else { Ok(()) }
    }

    /// Ends the output after everything that was sent.
    pub(crate) fn finish(&self) {
        if !self.tap.as_ref().is_some_and(ConnectionTap::defers_finish) {
            self.outbox.finish();
        }
    }

    /// Fails inside the tap's call for an outgoing frame, where waiting for the output would never end.
    pub(crate) fn check_outside_tap(&self) -> Result<(), Error> {
        self.tap.as_ref().map_or(Ok(()), ConnectionTap::check_outside)
    }

    /// Returns the number of requests in flight and their bytes.
    #[cfg(test)]
    pub(crate) fn in_flight_len(&self) -> (usize, usize) {
        let in_flight = self.in_flight.lock_unpoisoned();
        (in_flight.len(), in_flight.bytes)
    }

    pub(crate) fn close(&self, reason: Closed) {
        self.reason.lock_unpoisoned().get_or_insert(reason);
        self.closing.cancel();
    }

    /// Waits if the tap wants to delay reading and writing.
    async fn tap_has_room(&self) {
        if let Some(tap) = &self.tap {
            tap.room().await;
        }
    }
}

/// Stores the reason of the end of the connection and wakes everyone who waits for it.
pub(crate) struct EndSignal(watch::Sender<Option<Closed>>);

impl EndSignal {
    pub(crate) async fn wait(&self) -> Closed {
        let mut receiver = self.0.subscribe();
        let reason = receiver.wait_for(Option::is_some).await;
        reason.ok().and_then(|reason| reason.clone()).unwrap_or(Closed::Local)
    }
}

/// Limit on the time of [`PeerBuilder::explain_end`].
const EXPLANATION_LIMIT: Duration = Duration::from_secs(10);

type ExplainEnd = Box<dyn FnOnce(Closed, Peer) -> Pin<Box<dyn Future<Output = Closed> + Send>> + Send>;

/// Builds a connection over a transport and starts it as a [`Peer`].
///
/// ```
/// use duologue_rpc::{PeerBuilder, Incoming, Responder, Service, Transport};
///
/// struct Echo;
/// impl Service for Echo {
///     fn request(&self, request: Incoming<'_>, responder: Responder) {
///         match request.method {
///             "_echo" => responder.respond(Ok(request.params)),
///             other => responder.method_not_found(other),
///         }
///     }
///     fn notification(&self, _: Incoming<'_>) {}
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), duologue_rpc::Error> {
/// let (ours, theirs) = Transport::memory();
/// let _echo = PeerBuilder::new(theirs).start(|_peer| Echo);
/// let peer = PeerBuilder::new(ours).start(|_peer| Echo);
/// let answer: Vec<u8> = peer.call("_echo", &[1, 2, 3]).await?;
/// assert_eq!(answer, [1, 2, 3]);
/// # Ok(())
/// # }
/// ```
#[must_use = "call start to begin the connection"]
pub struct PeerBuilder {
    transport: Transport,
    limits: Limits,
    tap: Option<Arc<dyn Tap>>,
    answers_noise: bool,
    explain: Option<ExplainEnd>,
}

impl PeerBuilder {
    /// Creates a builder with the default limits.
    pub fn new(transport: Transport) -> Self {
        PeerBuilder { transport, limits: Limits::default(), tap: None, answers_noise: false, explain: None }
    }

    /// Sets the limits.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Shows every frame to `tap`.
    pub fn tap(mut self, tap: Arc<dyn Tap>) -> Self {
        self.tap = Some(tap);
        self
    }

    /// Answers unreadable lines with `-32700` or `-32600`, as an agent does. A client must not do this,
    /// because it would send an agent's log lines back to it.
    pub fn answer_noise(mut self, yes: bool) -> Self {
        self.answers_noise = yes;
        self
    }

    /// Replaces the reason of the end by the result of `explain`, before waiting callers receive it.
    /// The owner of a child process reports its exit this way. After 10 seconds the callers receive the original reason.
    pub fn explain_end<F>(mut self, explain: impl FnOnce(Closed, Peer) -> F + Send + 'static) -> Self
    where
        F: Future<Output = Closed> + Send + 'static,
    {
        self.explain = Some(Box::new(move |reason, peer| Box::pin(explain(reason, peer))));
        self
    }

    /// Starts to read and write in tasks of their own. They run until the peer ends its half or
    /// [`Peer::close`] is called, even if all handles were dropped.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub fn start<S: Service>(self, service: impl FnOnce(&Peer) -> S) -> Peer {
        let shared = Arc::new(ConnectionState::new(self.limits, self.tap));
        let peer = Peer { shared: shared.clone() };
        let service = service(&peer);
        let fast_path_prefix = service.fast_path_method().map(message::fast_path_prefix);
        let reader = Reader {
            shared: shared.clone(),
            service,
            answers_noise: self.answers_noise,
            parse_errors: 0,
            overrun: None,
            fast_path_prefix,
            read_at: Instant::now(),
        };
        let Transport { reader: input, writer: output, writes_at_once } = self.transport;
        // A tap may delay writing.
        let with_senders = writes_at_once && shared.tap.is_none();
        let writer = spawn({
            let shared = shared.clone();
            async move {
                let may_write = || shared.tap_has_room();
                let written = match with_senders {
                    true => shared.outbox.write_with_senders(SharedWriter::new(output), may_write).await,
                    false => shared.outbox.write_to(output, may_write).await,
                };
                if let Err(reason) = written {
                    shared.outbox.break_off();
                    // The last messages of the peer may still be in the pipe. Give the reader some time to
                    // find the end itself.
                    let found = shared.closing.cancelled();
                    let _ = tokio::time::timeout(shared.limits.cancel_grace / 2, found).await;
                    shared.close(reason);
                }
            }
        });
        spawn(run(shared, reader, input, writer, self.explain));
        peer
    }
}

async fn run<S: Service>(
    shared: Arc<ConnectionState>,
    mut reader: Reader<S>,
    input: Box<dyn AsyncRead + Send + Unpin>,
    mut writer: JoinHandle<()>,
    explain: Option<ExplainEnd>,
) {
    let grace = shared.limits.cancel_grace;
    // The guard notifies waiting callers even if `explain` panics.
    let mut end = EndGuard { shared: &shared, reason: Closed::Local };
    end.reason = reader.read(input).await;
    if let Some(explain) = explain {
        // Limited in time, because callers wait for it.
        let explained = explain(end.reason.clone(), Peer { shared: shared.clone() });
        end.reason = tokio::time::timeout(EXPLANATION_LIMIT, explained).await.unwrap_or(end.reason.clone());
    }
    let reason = end.reason.clone();
    tracing::debug!(%reason, "the connection ends");
    end.fail_waiting_callers();
    reader.guarded(|reader| reader.service.closed(&reason));
    shared.tasks.close();
    // Handlers end after the grace period. The rest of the time is for the scheduler.
    let _ = tokio::time::timeout(grace + grace / 4, shared.tasks.wait()).await;
    shared.outbox.finish();
    if tokio::time::timeout(grace / 4, &mut writer).await.is_err() {
        writer.abort();
    }
}

/// Ends the connection when it is dropped, even if the task of the connection is dropped.
struct EndGuard<'a> {
    shared: &'a ConnectionState,
    reason: Closed,
}

impl EndGuard<'_> {
    fn fail_waiting_callers(&self) {
        self.shared.close(self.reason.clone());
        self.shared.pending.close(&self.reason);
        self.shared.budget.close_all(&self.reason);
    }
}

impl Drop for EndGuard<'_> {
    fn drop(&mut self) {
        self.fail_waiting_callers();
        self.shared.outbox.close(self.reason.clone());
        self.shared.done.0.send_replace(Some(self.reason.clone()));
    }
}

struct Reader<S> {
    shared: Arc<ConnectionState>,
    service: S,
    answers_noise: bool,
    /// The number of unreadable lines that were answered since the last readable one.
    parse_errors: u32,
    overrun: Option<Overrun>,
    /// The beginning of a line on the fast path, if there is one.
    fast_path_prefix: Option<String>,
    /// The time of the last read.
    read_at: Instant,
}

impl<S: Service> Reader<S> {
    async fn read(&mut self, mut input: Box<dyn AsyncRead + Send + Unpin>) -> Closed {
        let shared = self.shared.clone();
        let mut lines = LineBuffer::new(shared.limits.frame_bytes);
        let local = || shared.reason.lock_unpoisoned().clone().unwrap_or(Closed::Local);
        let mut closing = std::pin::pin!(shared.closing.cancelled());
        loop {
            let overdue = self.overrun.map(|overrun| overrun.deadline);
            let space = lines.space();
            let room = space.len();
            let read = tokio::select! {
                biased;
                () = &mut closing => return local(),
                count = input.read(space) => count,
                () = sleep_until(overdue) => {
                    if self.pause().await.is_break() {
                        return local();
                    }
                    continue;
                }
            };
            let count = match read {
                Ok(0) => {
                    // The last line counts without its line end if it is a valid message.
                    let rest = lines.rest();
                    if matches!(RpcMessage::read(rest, &shared.limits), Some(Ok(_))) {
                        self.line(rest);
                    }
                    return Closed::EndOfInput;
                }
                Ok(count) => count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => return Closed::Io(Arc::new(error)),
            };
            if shared.tap.is_some() {
                self.read_at = Instant::now();
            }
            shared.counters.bytes_read.count(count);
            lines.filled(count);
            loop {
                match self.lines(&mut lines) {
                    Ok(Progress::NeedsMore) => break,
                    Ok(Progress::OverBudget) => {}
                    Err(_) => {
                        let limit = shared.limits.frame_bytes;
                        self.answer_noise(WireError::invalid_request(format!(
                            "line too long (the limit is {limit} bytes)"
                        )));
                        return Closed::FrameTooLarge { limit };
                    }
                }
                if shared.outbox.has_answer_backlog() {
                    tokio::select! {
                        biased;
                        () = &mut closing => return local(),
                        relieved = shared.outbox.relieved() => if let Err(reason) = relieved {
                            return reason;
                        }
                    }
                }
                if self.pause().await.is_break() {
                    return local();
                }
            }
            tokio::select! {
                biased;
                () = &mut closing => return local(),
                () = shared.tap_has_room() => {}
            }
            // Tasks that these lines woke wait for this worker thread. Yield after each full buffer and after many
            // small ones, so that endless input does not starve them.
            if count == room {
                tokio::task::yield_now().await;
            } else {
                tokio::task::coop::consume_budget().await;
            }
        }
    }

    /// Processes the lines in the buffer, then wakes their consumers.
    fn lines(&mut self, lines: &mut LineBuffer) -> Result<Progress, LineTooLong> {
        let shared = self.shared.clone();
        let _batch = shared.budget.wakes.begin();
        while let Some((line, is_last)) = lines.next_line_of_read()? {
            shared.more_lines.store(!is_last, Relaxed);
            self.line(line);
            if shared.budget.decides(self.overrun) || shared.outbox.has_answer_backlog() {
                return Ok(Progress::OverBudget);
            }
        }
        Ok(Progress::NeedsMore)
    }

    /// Waits while the queues exceed their budget and waiting helps. Breaks at the end of the connection.
    async fn pause(&mut self) -> std::ops::ControlFlow<()> {
        let shared = &self.shared;
        loop {
            let relief = shared.budget.relief.notified();
            let feeds_another = |stream, alive: &dyn Fn(_) -> bool| shared.pending.any_besides(stream, alive);
            if let ReadDecision::Read = shared.budget.decide(&mut self.overrun, feeds_another) {
                return std::ops::ControlFlow::Continue(());
            }
            shared.paused.store(true, Relaxed);
            let ended = tokio::select! {
                biased;
                () = shared.closing.cancelled() => true,
                () = relief => false,
                () = sleep_until(self.overrun.map(|overrun| overrun.deadline)) => false,
            };
            shared.paused.store(false, Relaxed);
            if ended {
                return std::ops::ControlFlow::Break(());
            }
        }
    }

    fn line(&mut self, line: &[u8]) {
        if self.notification_fast_path(line) {
            self.parse_errors = 0;
            return;
        }
        let repaired = RpcMessage::repair(line);
        if repaired.is_some() {
            self.shared.counters.repaired.add();
        }
        let decoded = RpcMessage::read(repaired.as_deref().unwrap_or(line), &self.shared.limits);
        if let Some(tap) = &self.shared.tap {
            tap.show(Direction::Incoming, self.read_at, line, matches!(decoded, Some(Ok(_))));
        }
        match decoded {
            None => {}
            Some(Ok(message)) => {
                self.parse_errors = 0;
                self.message(message, line.len());
            }
            Some(Err(malformed)) => self.malformed(malformed, line),
        }
    }

    /// Passes the line to the service on the fast path. Returns false if the general path has to process it.
    fn notification_fast_path(&mut self, line: &[u8]) -> bool {
        let Some(start) = &self.fast_path_prefix else { return false };
        let Some(params) = message::plain_params(line, start, &self.shared.limits) else { return false };
        let mut taken = true;
        self.guarded(|reader| {
            let valid = || {
                if let Some(tap) = &reader.shared.tap {
                    tap.show(Direction::Incoming, reader.read_at, line, true);
                }
            };
            taken = reader.service.notification_fast_path(params, line.len(), &valid);
        });
        taken
    }

    fn message(&mut self, message: RpcMessage<'_>, wire_bytes: usize) {
        match message {
            RpcMessage::Request { id, method, params } => {
                self.request(id, Incoming { method: &method, params, wire_bytes });
            }
            RpcMessage::Notification { method, params } if method == CANCEL_REQUEST => self.cancel(params),
            // Other `$/` notifications may be ignored.
            RpcMessage::Notification { method, .. } if method.starts_with("$/") => {}
            RpcMessage::Notification { method, params } => {
                let notification = Incoming { method: &method, params, wire_bytes };
                self.guarded(|reader| reader.service.notification(notification));
            }
            RpcMessage::Response { id, outcome } => self.guarded(|reader| reader.response(id, outcome)),
        }
    }

    fn response(&mut self, id: &RawValue, outcome: ResponseOutcome<'_>) {
        let (reply, unclaimed) = match outcome {
            ResponseOutcome::Result(result) => (RawResponse::Result(result), None),
            ResponseOutcome::Error(error) => (RawResponse::Error(error.clone()), Some(error)),
            ResponseOutcome::Unreadable(error) => (RawResponse::Unreadable(error), None),
            ResponseOutcome::Missing(error) => {
                // Some peers omit a null result. A message with one of our ids is such a response, possibly a
                // late one. A message with another id is a request without its method.
                if self.shared.pending.resolve(id, RawResponse::Result(RawValue::NULL)) {
                    return;
                }
                match RequestId::from_token(id.get()) {
                    Some(id_of_theirs) if !self.shared.pending.was_ours(id) => {
                        self.answer(&id_of_theirs, &error)
                    }
                    _ => self.shared.counters.stray_responses.add(),
                }
                return;
            }
        };
        if !self.shared.pending.resolve(id, reply) {
            self.shared.counters.stray_responses.add();
            tracing::debug!(id = id.get(), "dropped a response to no pending request");
            if let (Some(error), "null") = (unclaimed, id.get()) {
                // The peer could not read one of our lines and reports it.
                self.shared.noise.keep(error.to_string().as_bytes());
            }
        }
    }

    fn request(&mut self, id: RequestId, request: Incoming<'_>) {
        let shared = &self.shared;
        let cancellation = shared.closing.child_token();
        let admitted =
            shared.in_flight.lock_unpoisoned().admit(&id, &cancellation, request.wire_bytes, &shared.limits);
        if let Err(error) = admitted {
            shared.counters.refused.add();
            return self.answer(&id, &error);
        }
        let responder = Responder::new(shared.clone(), id, cancellation);
        self.guarded(|reader| reader.service.request(request, responder));
    }

    fn cancel(&self, params: Option<&RawValue>) {
        let Some(params) = params else { return };
        let Ok(CancelRequest { request_id }) = serde_json::from_str(params.get()) else { return };
        let token = self.shared.in_flight.lock_unpoisoned().cancellation(&request_id);
        if let Some(token) = token {
            token.cancel();
        }
    }

    fn malformed(&mut self, malformed: Malformed, line: &[u8]) {
        match malformed {
            Malformed::Request(id, error) => self.answer(&id, &error),
            Malformed::Silent(kind) => {
                self.shared.counters.dropped.add();
                tracing::debug!("dropped {kind}");
            }
            Malformed::Noise(error) => {
                self.shared.counters.noise.add();
                self.shared.noise.keep(line);
                tracing::debug!(%error, "skipped a line that is not a message");
                self.answer_noise(error);
            }
        }
    }

    fn answer_noise(&mut self, error: WireError) {
        if self.answers_noise && self.parse_errors < self.shared.limits.parse_errors_in_a_row {
            self.parse_errors += 1;
            self.answer(&RequestId::null(), &error);
        }
    }

    fn answer(&self, id: &RequestId, error: &WireError) {
        if let Ok(frame) = Frame::error(id, error) {
            let _ = self.shared.send_all(&mut [frame], InsideTapPolicy::Defer);
        }
    }

    /// Catches panics of user code on the reader. A panic costs the message, not the connection.
    fn guarded(&mut self, call: impl FnOnce(&mut Self)) {
        if std::panic::catch_unwind(AssertUnwindSafe(|| call(self))).is_err() {
            self.shared.counters.dropped.add();
            tracing::error!("a handler panicked on the reader; its message was dropped");
        }
    }
}

/// The reason why the reader stops processing lines.
enum Progress {
    /// The buffer contains no complete line.
    NeedsMore,
    /// A budget is exceeded.
    OverBudget,
}

async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
