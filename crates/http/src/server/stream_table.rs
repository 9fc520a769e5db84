//! The frames for a client over HTTP with SSE, by stream: plain data without I/O.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use duologue_rpc::raw_message::member;
use serde_json::value::RawValue;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::frame_view::{FrameView, without_cursors, without_line_breaks};
use crate::lines::FRAME_OVERHEAD;
use crate::request_sessions::RequestSessions;
use crate::server::endpoint::{OutgoingFrame, ResumeRefused};
use crate::wire::{CANCEL_REQUEST, StreamId};

/// The method with which a client continues a session.
const RESUME_SESSION: &str = "session/resume";
/// The limits of a [`StreamTable`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamLimits {
    /// The bytes of frames that no response has taken, at which the agent waits. As many bytes of taken frames are kept.
    pub(crate) bytes: usize,
    /// The number of these frames.
    pub(crate) frames: usize,
    /// The bytes of taken frames that are kept of closed sessions. Those of the last one are kept in any case.
    pub(crate) closed_bytes: usize,
    /// The time for which taken frames are kept.
    pub(crate) kept_for: Duration,
    /// The most streams.
    pub(crate) streams: usize,
    /// The setting that has `streams`.
    pub(crate) streams_setting: &'static str,
}

/// The frames of all streams of one connection.
///
/// A frame is *taken* when it is written to the response of its stream. HTTP does not report what a client has received,
/// so taken frames are kept until the memory is needed. The id of an event is the number of its frame in the stream.
pub(crate) struct StreamTable {
    streams: HashMap<StreamId, StreamFrames>,
    /// One entry for each taken frame with its time, oldest first. An entry allows to evict the first frame of its stream.
    evictable: VecDeque<(Instant, StreamId)>,
    /// The streams of closed sessions whose frames were all taken, in the order of their ends, and the bytes of these frames.
    over: VecDeque<StreamId>,
    over_bytes: usize,
    taken: FrameTotal,
    waiting: FrameTotal,
    held: Vec<HeldResponse>,
    held_total: FrameTotal,
    /// The open requests of the client.
    client_requests: RequestSessions,
    /// The open requests of the agent.
    agent_requests: RequestSessions,
    limits: StreamLimits,
}

/// A number of frames and their cost in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct FrameTotal {
    bytes: usize,
    frames: usize,
}

impl FrameTotal {
    fn add(&mut self, text: &Bytes) {
        self.bytes += cost(text);
        self.frames += 1;
    }

    fn remove(&mut self, text: &Bytes) {
        self.bytes -= cost(text);
        self.frames -= 1;
    }
}

/// The frames of one stream.
struct StreamFrames {
    frames: VecDeque<Bytes>,
    /// The number of the first of them. Numbers begin with 1.
    first: u64,
    /// The number of the last frame that the current response has taken.
    taken: u64,
    /// The number of the last frame that any response has taken.
    sent: u64,
    /// The number of the last frame before the session was opened again.
    base: u64,
    /// True after the session was closed.
    is_closed: bool,
    /// True while the stream is in `over`.
    is_over: bool,
    /// The cost of the frames.
    bytes: usize,
    /// The entries of this stream in `evictable`.
    entries: u64,
    source: Option<u64>,
    was_opened: bool,
    /// True if frames were dropped that no response had taken.
    has_gap: bool,
    /// Notified when the source has to look at the stream.
    changed: Arc<Notify>,
}

impl Default for StreamFrames {
    fn default() -> Self {
        StreamFrames {
            frames: VecDeque::new(),
            first: 1,
            taken: 0,
            sent: 0,
            base: 0,
            is_closed: false,
            is_over: false,
            bytes: 0,
            entries: 0,
            source: None,
            was_opened: false,
            has_gap: false,
            changed: Arc::default(),
        }
    }
}

impl StreamFrames {
    fn last(&self) -> u64 {
        self.first - 1 + self.frames.len() as u64
    }

    fn frame(&self, number: u64) -> Option<&Bytes> {
        self.frames.get(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }

    /// Returns the number of kept frames that were taken.
    fn taken_frames(&self) -> u64 {
        self.taken + 1 - self.first
    }

    /// Returns the number of the last frame that a client has.
    fn position(&self, cursor: Option<&str>, takes_over: bool) -> Result<u64, ResumeRefused> {
        let position = match cursor {
            Some(cursor) => cursor.parse().map_err(|_| ResumeRefused::InvalidCursor)?,
            // A client that can take a stream over knows its position. Without a cursor it has received nothing.
            None if takes_over => self.base,
            None if self.has_gap => return Err(ResumeRefused::CursorGone),
            None => self.taken,
        };
        if position > self.sent {
            return Err(ResumeRefused::InvalidCursor);
        }
        if position + 1 < self.first {
            return Err(ResumeRefused::CursorGone);
        }
        Ok(position)
    }
}

/// A response whose session has no stream yet.
struct HeldResponse {
    session: Arc<str>,
    text: Bytes,
    until: Instant,
}

/// Returns the ids of the open requests that a client continues: `_meta.duologue.requests` in the params.
fn continued_requests(params: &[u8]) -> Vec<&RawValue> {
    let path = ["_meta", "duologue", "requests"];
    let found = path.iter().try_fold(params, |object, name| object.get(member(object, name)?));
    found.and_then(|ids| serde_json::from_slice(ids).ok()).unwrap_or_default()
}

fn cost(text: &Bytes) -> usize {
    text.len() + FRAME_OVERHEAD
}

impl StreamTable {
    pub(crate) fn new(limits: StreamLimits) -> Self {
        StreamTable {
            streams: HashMap::from([(StreamId::Connection, StreamFrames::default())]),
            evictable: VecDeque::new(),
            over: VecDeque::new(),
            over_bytes: 0,
            taken: FrameTotal::default(),
            waiting: FrameTotal::default(),
            held: Vec::new(),
            held_total: FrameTotal::default(),
            client_requests: RequestSessions::default(),
            agent_requests: RequestSessions::default(),
            limits,
        }
    }

    /// Records the session of a frame of the client, so that its response gets onto the same stream.
    pub(crate) fn note_client_frame(&mut self, frame: &[u8], session: Option<&str>) {
        let view = FrameView::read(frame);
        let Some(id) = view.id else { return };
        if view.method.is_none() {
            self.agent_requests.remove(id);
        } else if let Some(session) = view.stream_session().or(session) {
            self.client_requests.insert_another(&view, session);
            if view.method.as_deref() == Some(RESUME_SESSION) {
                // Requests that the client has sent on an earlier connection.
                for id in continued_requests(view.params.unwrap_or_default()) {
                    self.client_requests.insert(id.get().as_bytes(), session);
                }
            }
        }
    }

    /// Appends a frame of the agent to its stream, without cursors of the agent. A response for a session without a stream waits until `hold_until`.
    pub(crate) fn push(&mut self, frame: Bytes, hold_until: Instant) {
        let frame = without_cursors(without_line_breaks(frame));
        let view = FrameView::read(&frame);
        let mut closes = false;
        let stream = match (view.method.as_deref(), view.id) {
            (None, Some(id)) => match self.client_requests.remove(id) {
                Some(request) => {
                    let stream = StreamId::Session(request.session.clone());
                    if !self.streams.get(&stream).is_some_and(|stream| stream.was_opened) {
                        return self.hold(request.session, frame, hold_until);
                    }
                    closes = request.closes && view.result.is_some();
                    stream
                }
                None => StreamId::Connection,
            },
            // Behind the request that it withdraws.
            (Some(CANCEL_REQUEST), _) => {
                let params = view.params.unwrap_or_default();
                let request = member(params, "requestId").and_then(|id| params.get(id));
                let session = request.and_then(|id| self.agent_requests.get(id).cloned());
                session.map_or_else(|| view.stream(), StreamId::Session)
            }
            (_, id) => {
                if let (Some(id), Some(session)) = (id, view.stream_session()) {
                    self.agent_requests.insert(id, session);
                }
                view.stream()
            }
        };
        if closes && let Some(closed) = self.streams.get_mut(&stream) {
            closed.is_closed = true;
            closed.base = closed.last() + 1;
        }
        self.append(stream, frame);
    }

    fn hold(&mut self, session: Arc<str>, text: Bytes, until: Instant) {
        self.held_total.add(&text);
        self.held.push(HeldResponse { session, text, until });
        // The source of the connection waits until the end of this time.
        self.wake(&StreamId::Connection);
    }

    fn append(&mut self, mut id: StreamId, text: Bytes) {
        if !self.has_stream_room(&id) {
            let (limit, setting) = (self.limits.streams, self.limits.streams_setting);
            tracing::warn!(
                limit,
                "too many streams (`{setting}`); a frame is sent on that of the connection"
            );
            id = StreamId::Connection;
        }
        self.leave_over(&id);
        self.waiting.add(&text);
        let stream = self.streams.entry(id).or_default();
        stream.bytes += cost(&text);
        stream.frames.push_back(text);
        stream.changed.notify_waiters();
    }

    /// Returns true if there is such a stream, or there can be another one. Streams of closed sessions make room.
    fn has_stream_room(&mut self, id: &StreamId) -> bool {
        if self.streams.len() < self.limits.streams || self.streams.contains_key(id) {
            return true;
        }
        let is_over = |(_, stream): &(&StreamId, &StreamFrames)| {
            stream.is_closed && stream.source.is_none() && stream.taken == stream.last()
        };
        let Some(over) = self.streams.iter().find(is_over).map(|(id, _)| id.clone()) else { return false };
        self.forget_over(&over);
        true
    }

    /// Counts a stream as one with a client that may come back.
    fn leave_over(&mut self, id: &StreamId) {
        let Some(stream) = self.streams.get_mut(id).filter(|stream| stream.is_over) else { return };
        stream.is_over = false;
        self.over_bytes -= stream.bytes;
        self.over.retain(|other| other != id);
    }

    /// Drops the frames of a closed session, and its stream unless a response to it is open.
    fn forget_over(&mut self, id: &StreamId) {
        self.leave_over(id);
        let Some(stream) = self.streams.get_mut(id) else { return };
        stream.frames.iter().for_each(|text| self.taken.remove(text));
        stream.first = stream.last() + 1;
        (stream.frames, stream.bytes, stream.entries) = (VecDeque::new(), 0, 0);
        self.evictable.retain(|(_, other)| other != id);
        self.remove_empty(id);
    }

    /// Removes the stream of a closed session that has neither frames nor a response.
    fn remove_empty(&mut self, id: &StreamId) {
        let is_empty =
            |stream: &StreamFrames| stream.is_closed && stream.frames.is_empty() && stream.source.is_none();
        if self.streams.get(id).is_some_and(is_empty) {
            self.leave_over(id);
            self.streams.remove(id);
        }
    }

    /// Returns true if the agent may send another frame.
    pub(crate) fn has_room(&self) -> bool {
        self.waiting.bytes + self.held_total.bytes < self.limits.bytes
            && self.waiting.frames + self.held_total.frames < self.limits.frames
    }

    /// Returns true if the client has a response to any stream.
    pub(crate) fn is_open(&self) -> bool {
        self.streams.values().any(|stream| stream.source.is_some())
    }

    /// Opens a stream behind a cursor, for the source with this number.
    ///
    /// Without a cursor the stream goes on behind the last frame that was taken, as the protocol has it. A client that
    /// takes a stream over has to have every frame, so without a cursor it gets the first one.
    ///
    /// # Errors
    ///
    /// If the stream is in use and not taken over, or frames behind the cursor are not kept. Nothing is changed then, but
    /// that a client without a cursor is refused once for frames that were dropped.
    pub(crate) fn open(
        &mut self,
        id: &StreamId,
        cursor: Option<&str>,
        takes_over: bool,
        source: u64,
    ) -> Result<Arc<Notify>, ResumeRefused> {
        let limit = self.limits.streams;
        if !self.has_stream_room(id) {
            return Err(ResumeRefused::TooManyStreams { limit, setting: self.limits.streams_setting });
        }
        if let Some(stream) = self.streams.get_mut(id) {
            if stream.source.is_some() && !takes_over {
                return Err(ResumeRefused::InUse);
            }
            if let Err(refused) = stream.position(cursor, takes_over) {
                if refused == ResumeRefused::CursorGone {
                    stream.has_gap = false;
                }
                return Err(refused);
            }
        } else {
            StreamFrames::default().position(cursor, takes_over)?;
        }
        self.leave_over(id);
        let stream = self.streams.entry(id.clone()).or_default();
        let position = stream.position(cursor, takes_over)?;
        // Frames behind the position wait again, and those before it do not.
        for number in position + 1..=stream.taken {
            if let Some(text) = stream.frame(number) {
                self.waiting.add(text);
                self.taken.remove(text);
            }
        }
        for number in stream.taken + 1..=position {
            if let Some(text) = stream.frame(number) {
                self.waiting.remove(text);
                self.taken.add(text);
            }
        }
        stream.taken = position;
        // The frames that wait again get new entries when they are taken.
        let mut kept = stream.taken_frames();
        if stream.entries > kept {
            stream.entries = kept;
            self.evictable.retain(|(_, other)| {
                let is_kept = other != id || kept > 0;
                kept -= u64::from(other == id && is_kept);
                is_kept
            });
        }
        while stream.entries < stream.taken_frames() {
            stream.entries += 1;
            self.evictable.push_back((Instant::now(), id.clone()));
        }
        stream.source = Some(source);
        stream.was_opened = true;
        stream.is_closed = false;
        stream.has_gap = false;
        let changed = stream.changed.clone();
        changed.notify_waiters();
        if let StreamId::Session(session) = id {
            self.release(|held| held.session == *session, id);
        }
        Ok(changed)
    }

    /// Closes a stream of this source. Returns true if no stream is open any more.
    pub(crate) fn close(&mut self, id: &StreamId, source: u64) -> bool {
        match self.streams.get_mut(id) {
            Some(stream) if stream.source == Some(source) => {
                stream.source = None;
                self.remove_empty(id);
                !self.is_open()
            }
            _ => false,
        }
    }

    /// Returns true if a stream is open for this source.
    pub(crate) fn is_current(&self, id: &StreamId, source: u64) -> bool {
        self.streams.get(id).is_some_and(|stream| stream.source == Some(source))
    }

    /// Returns true if an open stream has frames that its response has not taken.
    pub(crate) fn has_unsent_frames(&self) -> bool {
        self.streams.values().any(|stream| stream.source.is_some() && stream.taken < stream.last())
    }

    /// Returns true if a stream has frames that its response has not taken.
    pub(crate) fn has_waiting(&self, id: &StreamId) -> bool {
        self.streams.get(id).is_some_and(|stream| stream.taken < stream.last())
    }

    /// Returns the next frame of a stream that its response has not taken.
    pub(crate) fn take(&mut self, id: &StreamId) -> Option<OutgoingFrame> {
        let now = Instant::now();
        let stream = self.streams.get_mut(id)?;
        let number = stream.taken + 1;
        let text = stream.frame(number)?.clone();
        stream.taken = number;
        stream.sent = stream.sent.max(number);
        self.waiting.remove(&text);
        self.taken.add(&text);
        if stream.entries < stream.taken_frames() {
            stream.entries += 1;
            self.evictable.push_back((now, id.clone()));
        }
        if stream.is_closed && number == stream.last() {
            stream.is_over = true;
            self.over_bytes += stream.bytes;
            self.over.push_back(id.clone());
        }
        self.evict(now);
        Some(OutgoingFrame { stream: id.clone(), cursor: Some(number.to_string().into()), text })
    }

    /// Returns the time at which the first waiting response is due on the stream of the connection.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.held.iter().map(|held| held.until).min()
    }

    /// Appends the waiting responses that are due to the stream of the connection.
    pub(crate) fn release_due(&mut self, now: Instant) {
        self.release(|held| held.until <= now, &StreamId::Connection);
    }

    fn release(&mut self, is_due: impl Fn(&HeldResponse) -> bool, to: &StreamId) {
        let (due, held): (Vec<_>, Vec<_>) = std::mem::take(&mut self.held).into_iter().partition(is_due);
        self.held = held;
        for HeldResponse { text, .. } in due {
            self.held_total.remove(&text);
            self.append(to.clone(), text);
        }
    }

    /// Drops the frames of streams that the client does not read, if it reads others. Returns the number of these streams.
    ///
    /// The client is refused when it opens such a stream, so it never has a hole that it does not know of.
    pub(crate) fn drop_unread(&mut self) -> usize {
        if !self.is_open() {
            return 0;
        }
        let mut count = 0;
        for stream in self.streams.values_mut() {
            if stream.source.is_some() || stream.taken == stream.last() {
                continue;
            }
            let taken = usize::try_from(stream.taken_frames()).unwrap_or(usize::MAX);
            for (index, text) in stream.frames.iter().enumerate() {
                let total = if index < taken { &mut self.taken } else { &mut self.waiting };
                total.remove(text);
            }
            let last = stream.last();
            (stream.frames, stream.bytes) = (VecDeque::new(), 0);
            (stream.first, stream.taken, stream.sent, stream.has_gap) = (last + 1, last, last, true);
            count += 1;
        }
        count
    }

    /// Wakes the sources of all streams.
    pub(crate) fn wake_all(&self) {
        self.streams.values().for_each(|stream| stream.changed.notify_waiters());
    }

    fn wake(&self, id: &StreamId) {
        if let Some(stream) = self.streams.get(id) {
            stream.changed.notify_waiters();
        }
    }

    /// Drops the oldest taken frames beyond the limits.
    fn evict(&mut self, now: Instant) {
        while self.over_bytes > self.limits.closed_bytes && self.over.len() > 1 {
            let Some(oldest) = self.over.front().cloned() else { break };
            self.forget_over(&oldest);
        }
        let StreamLimits { bytes, frames, kept_for, .. } = self.limits;
        loop {
            let is_old = |(at, _): &(Instant, StreamId)| now.saturating_duration_since(*at) > kept_for;
            let is_full = self.taken.bytes > bytes || self.taken.frames > frames;
            if !is_full && !self.evictable.front().is_some_and(is_old) {
                return;
            }
            let Some((_, id)) = self.evictable.pop_front() else { return };
            let Some(stream) = self.streams.get_mut(&id) else { continue };
            // A stream of the same name may be a new one.
            stream.entries = stream.entries.saturating_sub(1);
            // After a resume the first frame may wait again.
            if stream.taken_frames() > 0
                && let Some(text) = stream.frames.pop_front()
            {
                stream.first += 1;
                stream.bytes -= cost(&text);
                self.over_bytes -= if stream.is_over { cost(&text) } else { 0 };
                self.taken.remove(&text);
                self.remove_empty(&id);
            }
        }
    }
}

#[cfg(test)]
mod tests;
