//! One connection of an [`AgentEndpoint`](crate::AgentEndpoint): the frames of its client, the ring of its own, and the
//! agent's transport.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use duologue_rpc::{Limits, Lock as _, RpcMessage, SecretText, Transport};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::frame_view::{FrameView, is_transport_frame, with_member, without_cursors, without_line_breaks};
use crate::lines::{FrameQueue, LineSink, LineSource, LinesError, read_lines, utf8, write_lines};
use crate::server::agent_endpoint::EndpointShared;
use crate::server::endpoint::{
    CloseReason, ConnectionKind, FrameSource, IncomingFrame, OutgoingFrame, Rejection, ResumeRefused,
    Resumed, ServerConnection, SourceEnd, StreamRequest,
};
use crate::server::options::AgentEndpointOptions;
use crate::server::sent_ring::{PositionError, RingLimits, SentRing};
use crate::server::stream_table::{StreamLimits, StreamTable};
use crate::wire::{
    RemoteConnectionId, ResumableCapability, ResumeGrant, StreamId, StreamPosition, close_code,
};

/// The time without a line after which the output of an agent whose future has resolved counts as kept open by a task.
const NO_OUTPUT: Duration = Duration::from_secs(1);

/// The state of a connection, shared by its socket and the task of its agent.
pub(crate) struct AgentConnectionShared {
    pub(crate) id: RemoteConnectionId,
    secret: SecretText,
    options: AgentEndpointOptions,
    state: Mutex<ConnectionCore>,
    /// Notified when `input` changes: there is a frame, room, or its end.
    input: Notify,
    /// Notified when the frames for the client change: there is one, room, or their end.
    output: Notify,
    /// Notified when the client leaves or comes, and when the connection is closed.
    life: Notify,
}

struct ConnectionCore {
    /// Raised by each resume. Handles of an older generation are refused.
    generation: u64,
    /// The number of the newest source.
    sources: u64,
    input: FrameQueue,
    received: u64,
    /// The number of the last frame that the client has numbered.
    last_number: u64,
    has_input_ended: bool,
    output: Output,
    /// The number of lines that the agent has written.
    lines: u64,
    /// Set when the agent has ended its output.
    ended: Option<SourceEnd>,
    /// The id of `initialize`, until it is answered.
    initialize_id: Option<Bytes>,
    /// True for an `initialize` that an agent cannot read, and answers with the id `null`. Otherwise such a line is no response
    /// to it.
    may_be_null: bool,
    /// The response to it, for a client that gets it as the response to its POST.
    initialize_response: Option<Bytes>,
    absent_since: Option<Instant>,
    is_closed: bool,
    /// True after an SSE stream was opened with the secret. Each request has to have it from then on.
    needs_secret: bool,
}

/// The frames for the client.
enum Output {
    /// Those of a WebSocket, and the number of the source that returns them.
    Socket {
        ring: SentRing,
        source: Option<u64>,
    },
    Events(StreamTable),
}

impl Output {
    fn has_room(&self) -> bool {
        match self {
            Output::Socket { ring, .. } => ring.has_room(),
            Output::Events(streams) => streams.has_room(),
        }
    }
}

impl AgentConnectionShared {
    pub(crate) fn new(
        id: RemoteConnectionId,
        kind: ConnectionKind,
        secret: SecretText,
        initialize: &[u8],
        options: AgentEndpointOptions,
    ) -> Self {
        let (bytes, frames) = (options.ring_bytes, options.ring_frames.max(1));
        let output = match kind {
            ConnectionKind::WebSocket => {
                let limits = RingLimits { bytes, frames, confirmed_bytes: options.retained_bytes };
                Output::Socket { ring: SentRing::new(limits), source: None }
            }
            ConnectionKind::Events => {
                let (streams, streams_setting) = (options.streams.max(1), "AgentEndpointOptions::streams");
                let (closed_bytes, kept_for) = (options.retained_bytes, options.grace);
                let limits = StreamLimits { bytes, frames, closed_bytes, kept_for, streams, streams_setting };
                Output::Events(StreamTable::new(limits))
            }
        };
        let core = ConnectionCore {
            generation: 1,
            sources: 0,
            input: FrameQueue::default(),
            received: 0,
            last_number: 0,
            has_input_ended: false,
            output,
            lines: 0,
            ended: None,
            initialize_id: FrameView::read(initialize).id.map(Bytes::copy_from_slice),
            may_be_null: !matches!(
                RpcMessage::read(initialize, &Limits::default()),
                Some(Ok(RpcMessage::Request { .. }))
            ),
            initialize_response: None,
            absent_since: Some(Instant::now()),
            is_closed: false,
            needs_secret: false,
        };
        AgentConnectionShared {
            id,
            secret,
            options,
            state: Mutex::new(core),
            input: Notify::new(),
            output: Notify::new(),
            life: Notify::new(),
        }
    }

    /// Changes the state and wakes those who wait for the part that changed.
    fn update<T>(&self, changed: &Notify, change: impl FnOnce(&mut ConnectionCore) -> T) -> T {
        let result = change(&mut self.state.lock_unpoisoned());
        changed.notify_waiters();
        result
    }

    /// Waits until `check` returns a value.
    async fn wait<T>(&self, changed: &Notify, mut check: impl FnMut(&mut ConnectionCore) -> Option<T>) -> T {
        loop {
            let mut notified = pin!(changed.notified());
            notified.as_mut().enable();
            if let Some(value) = check(&mut self.state.lock_unpoisoned()) {
                return value;
            }
            notified.await;
        }
    }

    /// Serves the agent until it or its client ends the connection.
    pub(crate) async fn run(
        self: Arc<Self>,
        endpoint: Arc<EndpointShared>,
        transport: Transport,
        mut serving: Pin<Box<dyn Future<Output = ()> + Send>>,
    ) {
        // The guard removes the connection even if the agent panics.
        let _guard = ConnectionGuard { connection: &self, endpoint: &endpoint };
        let (reader, writer) = transport.into_split();
        let writing = pin!(async {
            // The agent reads no more, or the input has ended. Neither ends the connection.
            let _ = write_lines(&*self, writer).await;
            std::future::pending::<()>().await;
        });
        let agent = async {
            let mut reading = pin!(self.read_output(reader));
            tokio::select! {
                () = &mut serving => tokio::select! {
                    () = reading => {}
                    () = self.is_quiet() => {
                        let reason = "the agent ended, and its output was kept open";
                        self.end_output(SourceEnd::Failed(reason.into()));
                    }
                },
                () = &mut reading => {
                    let _ = timeout(self.options.end_grace, &mut serving).await;
                }
            }
        };
        let life = async {
            let mut agent = pin!(agent);
            tokio::select! {
                () = &mut agent => {}
                () = self.is_left() => {
                    self.end_input();
                    if timeout(self.options.end_grace, agent).await.is_err() {
                        tracing::warn!(id = %self.id, "an agent did not end after its client had left; it is dropped");
                    }
                }
            }
            self.end_output(SourceEnd::Ended);
            // The client may still read the rest.
            self.is_left().await;
        };
        let (mut life, mut writing) = (pin!(life), writing);
        poll_fn(|cx| {
            let _ = writing.as_mut().poll(cx);
            life.as_mut().poll(cx)
        })
        .await;
    }

    /// Resolves when the agent has written nothing for a second in which its lines had room.
    async fn is_quiet(&self) {
        loop {
            let lines = |state: &mut ConnectionCore| state.output.has_room().then_some(state.lines);
            let before = self.wait(&self.output, lines).await;
            sleep(NO_OUTPUT).await;
            if self.wait(&self.output, |state| Some(lines(state))).await == Some(before) {
                return;
            }
        }
    }

    async fn read_output(&self, reader: impl tokio::io::AsyncRead + Unpin) {
        let end = match read_lines(reader, self.options.frame_bytes, self).await {
            Ok(()) | Err(LinesError::Io(_)) => SourceEnd::Ended,
            Err(error @ LinesError::TooLong { .. }) => {
                SourceEnd::Failed(format!("the agent failed: {error} (`AgentEndpointOptions::frame_bytes`)"))
            }
        };
        self.end_output(end);
    }

    /// Resolves when the connection was closed, or its client was absent for the grace period.
    async fn is_left(&self) {
        loop {
            let mut changed = pin!(self.life.notified());
            changed.as_mut().enable();
            let (is_closed, absent_since) = {
                let state = self.state.lock_unpoisoned();
                (state.is_closed, state.absent_since)
            };
            if is_closed {
                return;
            }
            match absent_since {
                None => changed.await,
                Some(since) => {
                    let left = self.options.grace.saturating_sub(since.elapsed());
                    if left.is_zero() {
                        tracing::info!(id = %self.id, "a client did not come back; its connection ends");
                        return;
                    }
                    // A request may have come in this time.
                    let _ = timeout(left, changed).await;
                }
            }
        }
    }

    /// Returns the time at which the client left; `None` if it is there.
    pub(crate) fn absent_since(&self) -> Option<Instant> {
        self.state.lock_unpoisoned().absent_since
    }

    /// Waits until the presence of the client is not `last`, and returns it.
    pub(crate) async fn other_presence(&self, last: bool) -> bool {
        let other = |state: &mut ConnectionCore| (state.absent_since.is_none() != last).then_some(!last);
        self.wait(&self.life, other).await
    }

    /// Returns true if there are frames that a present client could be sent.
    pub(crate) fn has_unsent_frames(&self) -> bool {
        let state = self.state.lock_unpoisoned();
        state.absent_since.is_none()
            && match &state.output {
                Output::Socket { ring, .. } => ring.taken() < ring.last(),
                Output::Events(streams) => streams.has_unsent_frames(),
            }
    }

    /// Returns true if the client has SSE streams, and may send requests with this secret. A client of the published protocol
    /// has none, and cannot come back to a connection whose client has used it.
    pub(crate) fn accepts_requests(&self, secret: Option<&str>) -> bool {
        let state = self.state.lock_unpoisoned();
        let is_right = |secret| self.secret.is(secret);
        matches!(state.output, Output::Events(_)) && (!state.needs_secret || secret.is_some_and(is_right))
    }

    /// Ends the connection.
    pub(crate) fn end(&self) {
        self.state.lock_unpoisoned().is_closed = true;
        self.life.notify_waiters();
        self.output.notify_waiters();
    }

    fn end_input(&self) {
        self.update(&self.input, |state| state.has_input_ended = true);
    }

    fn end_output(&self, end: SourceEnd) {
        self.update(&self.output, |state| {
            state.ended.get_or_insert(end);
            state.wake_streams();
        });
    }

    /// Raises the generation for a client with the secret of the connection.
    pub(crate) fn resume(
        self: Arc<Self>,
        secret: Option<&str>,
    ) -> Result<Resumed<AgentConnection>, ResumeRefused> {
        if !secret.is_some_and(|secret| self.secret.is(secret)) {
            return Err(ResumeRefused::Unknown);
        }
        let (generation, received) = {
            let mut state = self.state.lock_unpoisoned();
            if state.is_closed || matches!(state.output, Output::Events(_)) {
                return Err(ResumeRefused::Unknown);
            }
            state.generation += 1;
            state.leave();
            (state.generation, state.received)
        };
        // The older handle waits for room, the older source for frames.
        self.input.notify_waiters();
        self.output.notify_waiters();
        self.life.notify_waiters();
        Ok(Resumed { connection: AgentConnection { inner: self, generation }, received })
    }

    /// Returns the message in a line of the agent.
    fn message(&self, line: Bytes) -> Option<Bytes> {
        // Agents that are processes sometimes write logs to their output. A message is an object.
        if line.iter().find(|byte| !byte.is_ascii_whitespace()) != Some(&b'{') {
            tracing::debug!(id = %self.id, bytes = line.len(), "a line of the agent is not a message; it is dropped");
            return None;
        }
        let line = utf8(line);
        if is_transport_frame(&line) {
            tracing::warn!(id = %self.id, "the agent wrote a message of the transport (`stream/…`); it is dropped");
            return None;
        }
        Some(line)
    }

    /// Adds a message of the agent to the frames for the client.
    fn push(&self, state: &mut ConnectionCore, mut message: Bytes) {
        state.lines += 1;
        let mut is_initialize = false;
        if let Some(id) = &state.initialize_id {
            let view = FrameView::read(&message);
            is_initialize = view.is_response_to(id) || (state.may_be_null && view.is_response_to(b"null"));
            if is_initialize {
                message = self.with_grant(message.clone(), &view);
                state.initialize_id = None;
            }
        }
        match &mut state.output {
            _ if state.is_closed => {}
            Output::Socket { ring, .. } => ring.push(message),
            Output::Events(_) if is_initialize => {
                state.initialize_response = Some(without_cursors(without_line_breaks(message)));
            }
            Output::Events(streams) => {
                // A stream that nobody reads does not keep the frames of others.
                let message = Bytes::copy_from_slice(&message);
                streams.push(message, Instant::now() + self.options.session_stream_wait);
            }
        }
    }

    /// Adds the capability to resume and the secret to the response to `initialize`.
    fn with_grant(&self, response: Bytes, view: &FrameView<'_>) -> Bytes {
        let Some(result) = view.result else { return response };
        let seconds = self.options.grace.as_secs();
        let resumable = ResumableCapability {
            retention_messages: self.options.ring_frames as u64,
            retention_seconds: seconds,
        };
        let grant = ResumeGrant { secret: Some(self.secret.clone()), acknowledges: true };
        // Version 2 has another name for the capabilities of an agent.
        let is_v2 = duologue_rpc::raw_message::member(result, "capabilities").is_some()
            && duologue_rpc::raw_message::member(result, "agentCapabilities").is_none();
        let capabilities = if is_v2 { "capabilities" } else { "agentCapabilities" };
        let json = |value: serde_json::Result<String>| value.unwrap_or_else(|_| "null".into());
        let with_capability = with_member(
            &response,
            &["result", capabilities, "transport", "resumable"],
            &json(serde_json::to_string(&resumable)),
        );
        let with_grant = with_capability.and_then(|response| {
            let grant = json(serde_json::to_string(&grant));
            with_member(&response, &["result", "_meta", "duologue", "resume"], &grant)
        });
        with_grant.map_or(response, Bytes::from)
    }
}

impl ConnectionCore {
    /// Ends the current source, because its client has left or comes back.
    fn leave(&mut self) {
        if let Output::Socket { source, .. } = &mut self.output {
            *source = None;
        }
        self.absent_since.get_or_insert_with(Instant::now);
    }

    fn wake_streams(&self) {
        if let Output::Events(streams) = &self.output {
            streams.wake_all();
        }
    }
}

/// Removes a connection from its endpoint when it ends.
struct ConnectionGuard<'a> {
    connection: &'a AgentConnectionShared,
    endpoint: &'a EndpointShared,
}

impl Drop for ConnectionGuard<'_> {
    fn drop(&mut self) {
        let AgentConnectionShared { id, state, input, output, .. } = self.connection;
        self.endpoint.remove(id);
        {
            let mut state = state.lock_unpoisoned();
            state.ended.get_or_insert(SourceEnd::Failed("the agent failed".into()));
            state.is_closed = true;
            state.has_input_ended = true;
            state.input.clear();
            state.wake_streams();
        }
        input.notify_waiters();
        output.notify_waiters();
    }
}

impl LineSink for AgentConnectionShared {
    async fn room(&self) {
        loop {
            let room =
                self.wait(&self.output, |state| (state.is_closed || state.output.has_room()).then_some(()));
            if timeout(self.options.unread_stream_wait, room).await.is_ok() {
                return;
            }
            if let Output::Events(streams) = &mut self.state.lock_unpoisoned().output {
                let count = streams.drop_unread();
                tracing::warn!(id = %self.id, count, "frames of streams that the client does not open are dropped");
            }
        }
    }

    fn lines(&self, lines: impl Iterator<Item = Bytes>) {
        let messages = lines.filter_map(|line| self.message(line));
        // Once for all lines of a read: the source waits for the lock, and for the notification.
        self.update(&self.output, |state| messages.for_each(|message| self.push(state, message)));
    }
}

impl LineSource for AgentConnectionShared {
    async fn next(&self, lines: &mut Vec<u8>) -> bool {
        let has_frames = self
            .wait(&self.input, |state| {
                let has_frames = state.input.pop_lines(lines);
                (has_frames || state.has_input_ended).then_some(has_frames)
            })
            .await;
        self.input.notify_waiters();
        has_frames
    }
}

/// A handle of a connection of an [`AgentEndpoint`](crate::AgentEndpoint).
#[derive(Clone)]
pub struct AgentConnection {
    inner: Arc<AgentConnectionShared>,
    generation: u64,
}

impl AgentConnection {
    pub(crate) fn new(inner: Arc<AgentConnectionShared>) -> Self {
        AgentConnection { inner, generation: 1 }
    }
}

impl std::fmt::Debug for AgentConnection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AgentConnection").field("id", &self.inner.id).finish_non_exhaustive()
    }
}

impl ServerConnection for AgentConnection {
    type Source = AgentSource;

    fn id(&self) -> &RemoteConnectionId {
        &self.inner.id
    }

    async fn accept(&self, frame: IncomingFrame) -> Result<(), Rejection> {
        let limit = self.inner.options.input_bytes.max(1);
        let IncomingFrame { text, session, number } = frame;
        // The messages of the transport end here, and count as accepted. Its cursors end here too.
        let is_dropped = is_transport_frame(&text);
        let mut frame = Some(without_cursors(without_line_breaks(text)));
        self.inner
            .wait(&self.inner.input, |state| {
                if state.generation != self.generation {
                    let rejection = Rejection::new("a newer socket has resumed the connection");
                    return Some(Err(rejection.close_code(close_code::SUPERSEDED)));
                }
                // This frame was accepted before, and the client did not receive the answer.
                if number.is_some_and(|number| number <= state.last_number) {
                    return Some(Ok(()));
                }
                if state.has_input_ended {
                    // The agent reads nothing any more. Its last output is still on the way to the client.
                    state.received += 1;
                    return Some(Ok(()));
                }
                if state.input.bytes() >= limit {
                    return None;
                }
                let frame = frame.take()?;
                if is_dropped {
                    state.received += 1;
                    state.last_number = number.unwrap_or(state.last_number);
                    return Some(Ok(()));
                }
                match &mut state.output {
                    Output::Socket { ring, .. } => ring.note_client_frame(&frame),
                    Output::Events(streams) => {
                        streams.note_client_frame(&frame, session.as_deref());
                        // A client that sends is not absent, also if it has no stream at the moment.
                        state.absent_since = state.absent_since.map(|_| Instant::now());
                    }
                }
                state.input.push(frame);
                state.received += 1;
                state.last_number = number.unwrap_or(state.last_number);
                Some(Ok(()))
            })
            .await?;
        self.inner.input.notify_waiters();
        Ok(())
    }

    fn open(&self, positions: &[StreamPosition]) -> Result<AgentSource, ResumeRefused> {
        let (id, taken) = {
            let mut state = self.inner.state.lock_unpoisoned();
            if state.generation != self.generation || state.is_closed {
                return Err(ResumeRefused::Unknown);
            }
            let state = &mut *state;
            let Output::Socket { ring, source } = &mut state.output else {
                return Err(ResumeRefused::Unsupported);
            };
            ring.resume(positions).map_err(|error| match error {
                PositionError::Gone => ResumeRefused::CursorGone,
                PositionError::Invalid => ResumeRefused::InvalidCursor,
            })?;
            state.sources += 1;
            *source = Some(state.sources);
            state.absent_since = None;
            (state.sources, ring.taken())
        };
        self.inner.output.notify_waiters();
        self.inner.life.notify_waiters();
        Ok(AgentSource { inner: self.inner.clone(), id, kind: SourceKind::Socket { opened_at: taken } })
    }

    async fn initialize_response(&self) -> Result<Bytes, SourceEnd> {
        let response = |state: &mut ConnectionCore| match &state.initialize_response {
            Some(response) => Some(Ok(response.clone())),
            None => state.ended.clone().map(Err),
        };
        self.inner.wait(&self.inner.output, response).await
    }

    fn open_stream(&self, request: StreamRequest) -> Result<AgentSource, ResumeRefused> {
        let StreamRequest { stream, cursor, secret } = request;
        if secret.as_ref().is_some_and(|secret| self.inner.secret != *secret) {
            return Err(ResumeRefused::Unknown);
        }
        let (id, changed) = {
            let mut state = self.inner.state.lock_unpoisoned();
            if state.is_closed {
                return Err(ResumeRefused::Unknown);
            }
            let state = &mut *state;
            let Output::Events(streams) = &mut state.output else { return Err(ResumeRefused::Unsupported) };
            let id = state.sources + 1;
            let changed = streams.open(&stream, cursor.as_deref(), secret.is_some(), id)?;
            // The last response had everything, and there will be no more.
            if state.ended.is_some() && !streams.has_waiting(&stream) {
                streams.close(&stream, id);
                return Err(ResumeRefused::Unknown);
            }
            state.sources = id;
            state.absent_since = None;
            state.needs_secret |= secret.is_some();
            (id, changed)
        };
        self.inner.life.notify_waiters();
        Ok(AgentSource { inner: self.inner.clone(), id, kind: SourceKind::Stream { stream, changed } })
    }

    async fn close(&self, _: CloseReason) {
        let is_current = self.inner.state.lock_unpoisoned().generation == self.generation;
        if is_current {
            self.inner.end();
        }
    }
}

/// The frames of an [`AgentConnection`].
pub struct AgentSource {
    inner: Arc<AgentConnectionShared>,
    id: u64,
    kind: SourceKind,
}

enum SourceKind {
    /// All frames.
    Socket {
        /// The position of the last frame before those of this source.
        opened_at: u64,
    },
    /// Those of one stream.
    Stream { stream: StreamId, changed: Arc<Notify> },
}

impl std::fmt::Debug for AgentSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AgentSource").field("id", &self.inner.id).finish_non_exhaustive()
    }
}

impl AgentSource {
    /// Returns the next frame of a stream. The responses that wait for a stream of their session are due on that of the
    /// connection.
    async fn next_of_stream(&self, stream: &StreamId, changed: &Notify) -> Result<OutgoingFrame, SourceEnd> {
        let is_connection = *stream == StreamId::Connection;
        loop {
            let mut due = None;
            // A change between the check and the wait for the time counts.
            let mut notified = pin!(changed.notified());
            notified.as_mut().enable();
            let next = self.inner.wait(changed, |state| {
                let Output::Events(streams) = &mut state.output else {
                    return Some(Some(Err(SourceEnd::Ended)));
                };
                if !streams.is_current(stream, self.id) {
                    return Some(Some(Err(SourceEnd::Superseded)));
                }
                if is_connection {
                    streams.release_due(Instant::now());
                }
                if let Some(frame) = streams.take(stream) {
                    return Some(Some(Ok(frame)));
                }
                if let Some(end) = &state.ended {
                    return Some(Some(Err(end.clone())));
                }
                let next_due = streams.next_due().filter(|_| is_connection);
                // The time has changed: wait again, with the new one.
                (next_due != due).then(|| {
                    due = next_due;
                    None
                })
            });
            let next = next.await;
            match (next, due) {
                (Some(next), _) => return next,
                (None, Some(due)) => {
                    // It is not an error that nothing happens until then.
                    let _ = timeout_at(due, notified).await;
                }
                (None, None) => {}
            }
        }
    }
}

impl FrameSource for AgentSource {
    async fn next(&mut self) -> Result<OutgoingFrame, SourceEnd> {
        match &self.kind {
            SourceKind::Socket { .. } => {
                self.inner
                    .wait(&self.inner.output, |state| {
                        let Output::Socket { ring, source } = &mut state.output else {
                            return Some(Err(SourceEnd::Ended));
                        };
                        if *source != Some(self.id) {
                            return Some(Err(SourceEnd::Superseded));
                        }
                        match ring.take() {
                            Some(frame) => Some(Ok(frame)),
                            None => state.ended.clone().map(Err),
                        }
                    })
                    .await
            }
            SourceKind::Stream { stream, changed } => {
                let next = self.next_of_stream(stream, changed).await;
                // A frame that is written makes room for the agent.
                self.inner.output.notify_waiters();
                next
            }
        }
    }

    fn confirm(&mut self, frames: u64) {
        let SourceKind::Socket { opened_at } = self.kind else { return };
        self.inner.update(&self.inner.output, |state| {
            if let Output::Socket { ring, source } = &mut state.output
                && *source == Some(self.id)
            {
                ring.confirm(opened_at.saturating_add(frames));
            }
        });
    }
}

impl Drop for AgentSource {
    fn drop(&mut self) {
        self.inner.update(&self.inner.life, |state| {
            let has_left = match (&mut state.output, &self.kind) {
                (Output::Socket { source, .. }, _) => *source == Some(self.id),
                (Output::Events(streams), SourceKind::Stream { stream, .. }) => {
                    streams.close(stream, self.id)
                }
                (Output::Events(_), SourceKind::Socket { .. }) => false,
            };
            if has_left {
                state.leave();
            }
        });
    }
}
