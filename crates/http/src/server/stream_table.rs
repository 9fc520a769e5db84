//! The frames for a client over HTTP with SSE, by stream: plain data without I/O.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use duologue_rpc::raw_message::member;
use serde_json::value::RawValue;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::frame_view::{FrameView, without_line_breaks};
use crate::request_sessions::RequestSessions;
use crate::server::endpoint::{OutgoingFrame, ResumeRefused};
use crate::wire::{CANCEL_REQUEST, CLOSING, StreamId};

/// The method with which a client continues a session.
const RESUME_SESSION: &str = "session/resume";
/// The memory that a frame takes beside its text, so that tiny frames are limited too.
const OVERHEAD: usize = 64;

/// The limits of a [`StreamTable`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamLimits {
    /// The bytes of frames that no response has taken, at which the agent waits. As many bytes of taken frames are kept.
    pub(crate) bytes: usize,
    /// The number of these frames.
    pub(crate) frames: usize,
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
    /// One entry for each taken frame, oldest first. An entry allows to evict the first frame of its stream.
    evictable: VecDeque<StreamId>,
    taken: FrameTotal,
    waiting: FrameTotal,
    held: Vec<HeldResponse>,
    held_total: FrameTotal,
    /// The open requests of the client.
    client_requests: RequestSessions,
    /// Those of them whose success ends a session.
    closing_requests: RequestSessions,
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
    text.len() + OVERHEAD
}

impl StreamTable {
    pub(crate) fn new(limits: StreamLimits) -> Self {
        StreamTable {
            streams: HashMap::from([(StreamId::Connection, StreamFrames::default())]),
            evictable: VecDeque::new(),
            taken: FrameTotal::default(),
            waiting: FrameTotal::default(),
            held: Vec::new(),
            held_total: FrameTotal::default(),
            client_requests: RequestSessions::default(),
            closing_requests: RequestSessions::default(),
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
        } else if let Some(session) = view.params_session().or(session) {
            self.client_requests.insert(id, session);
            if view.method.as_deref() == Some(RESUME_SESSION) {
                // Requests that the client has sent on an earlier connection.
                for id in continued_requests(view.params.unwrap_or_default()) {
                    self.client_requests.insert(id.get().as_bytes(), session);
                }
            }
            if view.method.as_deref().is_some_and(|method| CLOSING.contains(&method)) {
                self.closing_requests.insert(id, session);
            }
        }
    }

    /// Appends a frame of the agent to its stream. A response for a session without a stream waits until `hold_until`.
    pub(crate) fn push(&mut self, frame: Bytes, hold_until: Instant) {
        let frame = without_line_breaks(frame);
        let view = FrameView::read(&frame);
        let closes = view.method.is_none()
            && view.id.is_some_and(|id| self.closing_requests.remove(id).is_some())
            && view.result.is_some();
        let stream = match (view.method.as_deref(), view.id) {
            (None, Some(id)) => match self.client_requests.remove(id) {
                Some(session) => {
                    let stream = StreamId::Session(session.clone());
                    if !self.streams.get(&stream).is_some_and(|stream| stream.was_opened) {
                        return self.hold(session, frame, hold_until);
                    }
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
                if let (Some(id), Some(session)) = (id, view.params_session()) {
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
        self.waiting.add(&text);
        let stream = self.streams.entry(id).or_default();
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
        let stream = self.streams.remove(&over).unwrap_or_default();
        stream.frames.iter().for_each(|text| self.taken.remove(text));
        true
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
        while stream.entries < stream.taken_frames() {
            stream.entries += 1;
            self.evictable.push_back(id.clone());
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
        let stream = self.streams.get_mut(id)?;
        let number = stream.taken + 1;
        let text = stream.frame(number)?.clone();
        stream.taken = number;
        stream.sent = stream.sent.max(number);
        self.waiting.remove(&text);
        self.taken.add(&text);
        if stream.entries < stream.taken_frames() {
            stream.entries += 1;
            self.evictable.push_back(id.clone());
        }
        self.evict();
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
            stream.frames = VecDeque::new();
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
    fn evict(&mut self) {
        while self.taken.bytes > self.limits.bytes || self.taken.frames > self.limits.frames {
            let Some(id) = self.evictable.pop_front() else { return };
            let Some(stream) = self.streams.get_mut(&id) else { continue };
            // A stream of the same name may be a new one.
            stream.entries = stream.entries.saturating_sub(1);
            // After a resume the first frame may wait again.
            if stream.taken_frames() > 0
                && let Some(text) = stream.frames.pop_front()
            {
                stream.first += 1;
                self.taken.remove(&text);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const LIMITS: StreamLimits =
        StreamLimits { bytes: 10_000, frames: 100, streams: 4, streams_setting: "Options::streams" };

    fn session(id: &str) -> StreamId {
        StreamId::Session(id.into())
    }

    fn update(session: &str) -> Bytes {
        format!(r#"{{"jsonrpc":"2.0","method":"u","params":{{"sessionId":"{session}"}}}}"#).into()
    }

    fn push(table: &mut StreamTable, frame: impl Into<Bytes>) {
        table.push(frame.into(), Instant::now() + Duration::from_secs(10));
    }

    /// Takes all frames of a stream and returns their cursors.
    fn take(table: &mut StreamTable, id: &StreamId) -> Vec<u64> {
        std::iter::from_fn(|| table.take(id))
            .map(|frame| frame.cursor.expect("a cursor").parse().expect("a number"))
            .collect()
    }

    fn open(
        table: &mut StreamTable,
        id: &StreamId,
        cursor: Option<&str>,
        takes_over: bool,
    ) -> Option<ResumeRefused> {
        table.open(id, cursor, takes_over, 1).err()
    }

    #[test]
    fn each_stream_has_numbers_of_its_own() {
        let mut table = StreamTable::new(LIMITS);
        for frame in [update("a"), update("b"), update("a"), Bytes::from_static(b"{\"method\":\"n\"}")] {
            push(&mut table, frame);
        }
        assert_eq!(take(&mut table, &session("a")), [1, 2]);
        assert_eq!(take(&mut table, &session("b")), [1]);
        assert_eq!(take(&mut table, &StreamId::Connection), [1]);
        assert_eq!((table.waiting, table.held_total), Default::default());
    }

    #[test]
    fn a_response_belongs_to_the_session_of_its_request() {
        let mut table = StreamTable::new(LIMITS);
        assert_eq!(open(&mut table, &session("a"), None, false), None);
        table.note_client_frame(br#"{"id":1,"method":"session/prompt","params":{"sessionId":"a"}}"#, None);
        table.note_client_frame(br#"{"id":2,"method":"session/new","params":{}}"#, None);
        table.note_client_frame(br#"{"id":3,"method":"x"}"#, Some("a"));
        for id in [1, 2, 3, 3] {
            push(&mut table, format!(r#"{{"id":{id},"result":{{}}}}"#));
        }
        assert_eq!(take(&mut table, &session("a")), [1, 2]);
        assert_eq!(take(&mut table, &StreamId::Connection), [1, 2]);
    }

    #[test]
    fn a_continued_request_belongs_to_its_session() {
        let mut table = StreamTable::new(LIMITS);
        assert_eq!(open(&mut table, &session("a"), None, false), None);
        let meta = r#"{"duologue":{"after":{},"requests":[6,"x"]}}"#;
        let resume =
            format!(r#"{{"id":1,"method":"session/resume","params":{{"sessionId":"a","_meta":{meta}}}}}"#);
        table.note_client_frame(resume.as_bytes(), None);
        for id in ["1", "6", "\"x\"", "7"] {
            push(&mut table, format!(r#"{{"id":{id},"result":{{}}}}"#));
        }
        assert_eq!(
            (take(&mut table, &session("a")).len(), take(&mut table, &StreamId::Connection).len()),
            (3, 1)
        );
    }

    #[test]
    fn a_withdrawal_follows_its_request() {
        let mut table = StreamTable::new(LIMITS);
        let cancel = r#"{"method":"$/cancel_request","params":{"requestId":"q"}}"#;
        push(&mut table, r#"{"id":"q","method":"session/request_permission","params":{"sessionId":"a"}}"#);
        push(&mut table, cancel);
        assert_eq!(take(&mut table, &session("a")), [1, 2]);
        table.note_client_frame(br#"{"id":"q","result":{}}"#, None);
        push(&mut table, cancel);
        assert_eq!(take(&mut table, &StreamId::Connection), [1]);
    }

    #[test]
    fn a_response_waits_for_the_stream_of_its_session() {
        let mut table = StreamTable::new(LIMITS);
        let load = br#"{"id":1,"method":"session/load","params":{"sessionId":"a"}}"#;
        let response = r#"{"id":1,"result":{}}"#;
        table.note_client_frame(load, None);
        push(&mut table, update("a"));
        push(&mut table, response);
        let due = table.next_due().expect("a held response");
        assert_eq!(open(&mut table, &session("a"), None, false), None);
        assert_eq!(take(&mut table, &session("a")), [1, 2], "behind the replay");
        assert_eq!(table.next_due(), None);
        // Without a stream it gets onto that of the connection.
        table.note_client_frame(br#"{"id":1,"method":"session/load","params":{"sessionId":"b"}}"#, None);
        push(&mut table, response);
        table.release_due(due);
        assert_eq!(take(&mut table, &StreamId::Connection), Vec::<u64>::new());
        table.release_due(due + Duration::from_secs(60));
        assert_eq!(take(&mut table, &StreamId::Connection), [1]);
        assert_eq!((table.waiting, table.held_total), Default::default());
    }

    #[test]
    fn a_client_resumes_behind_its_cursor() {
        let mut table = StreamTable::new(LIMITS);
        let a = session("a");
        (0..5).for_each(|_| push(&mut table, update("a")));
        assert_eq!(open(&mut table, &a, Some("1"), false), Some(ResumeRefused::InvalidCursor), "never sent");
        assert_eq!(open(&mut table, &a, None, false), None);
        assert_eq!(take(&mut table, &a), [1, 2, 3, 4, 5]);
        assert_eq!(open(&mut table, &a, Some("2"), false), Some(ResumeRefused::InUse));
        assert_eq!(open(&mut table, &a, Some("2"), true), None);
        assert_eq!(table.waiting.frames, 3);
        // A later position is valid too, because the client may have received more than it has first stated.
        assert_eq!(open(&mut table, &a, Some("4"), true), None);
        assert_eq!(table.waiting.frames, 1);
        assert_eq!(take(&mut table, &a), [5]);
        // A client that takes over without a cursor has received nothing.
        assert_eq!(open(&mut table, &a, None, true), None);
        assert_eq!(take(&mut table, &a), [1, 2, 3, 4, 5]);
        assert!(table.close(&a, 1) && !table.close(&a, 1));
        // A client of the published protocol goes on with new frames.
        push(&mut table, update("a"));
        assert_eq!(open(&mut table, &a, None, false), None);
        assert_eq!(take(&mut table, &a), [6]);
        for invalid in ["7", "x", "-1", "99999999999999999999"] {
            assert_eq!(open(&mut table, &a, Some(invalid), true), Some(ResumeRefused::InvalidCursor));
        }
        assert_eq!((table.waiting, table.held_total), Default::default());
    }

    #[test]
    fn taken_frames_are_evicted_and_waiting_ones_are_not() {
        let mut table = StreamTable::new(LIMITS);
        let a = session("a");
        assert_eq!(open(&mut table, &a, None, false), None);
        let mut last = 0;
        for _ in 0..2 {
            let before = last;
            while table.has_room() {
                push(&mut table, update("a"));
                last += 1;
            }
            assert_eq!(take(&mut table, &a), (before + 1..=last).collect::<Vec<_>>());
        }
        (0..50).for_each(|_| push(&mut table, update("b")));
        assert!(table.taken.bytes <= LIMITS.bytes && table.taken.frames <= LIMITS.frames);
        assert_eq!(open(&mut table, &a, Some("1"), true), Some(ResumeRefused::CursorGone));
        assert_eq!(open(&mut table, &a, None, true), Some(ResumeRefused::CursorGone));
        assert_eq!(open(&mut table, &a, Some(&(last - 3).to_string()), true), None);
        assert_eq!(take(&mut table, &a), [last - 2, last - 1, last]);
        assert_eq!(take(&mut table, &session("b")).len(), 50);
    }

    #[test]
    fn resumes_do_not_make_the_table_grow() {
        let mut table = StreamTable::new(LIMITS);
        let a = session("a");
        (0..20).for_each(|_| push(&mut table, update("a")));
        for _ in 0..100 {
            assert_eq!(open(&mut table, &a, None, true), None);
            assert_eq!(take(&mut table, &a).len(), 20);
        }
        assert_eq!(table.evictable.len(), 20);
    }

    #[test]
    fn an_unread_stream_stops_the_others_for_a_time_only() {
        let mut table = StreamTable::new(LIMITS);
        let (a, b) = (session("a"), session("b"));
        assert_eq!(open(&mut table, &a, None, false), None);
        while table.has_room() {
            push(&mut table, update("b"));
        }
        assert_eq!(table.drop_unread(), 1);
        assert!(table.has_room());
        assert_eq!((table.taken, table.waiting), Default::default());
        // The client is refused once.
        assert_eq!(open(&mut table, &b, None, false), Some(ResumeRefused::CursorGone));
        assert_eq!(open(&mut table, &b, None, false), None);
        push(&mut table, update("b"));
        assert_eq!(take(&mut table, &b).len(), 1);
        // Nothing is dropped for a client that is absent.
        table.close(&a, 1);
        table.close(&b, 1);
        push(&mut table, update("b"));
        assert_eq!(table.drop_unread(), 0);
    }

    #[test]
    fn a_closed_session_begins_anew() {
        let mut table = StreamTable::new(LIMITS);
        let a = session("a");
        let closing = |table: &mut StreamTable| {
            table.note_client_frame(br#"{"id":1,"method":"session/close","params":{"sessionId":"a"}}"#, None);
            push(table, r#"{"id":1,"result":{}}"#);
        };
        assert_eq!(open(&mut table, &a, None, true), None);
        push(&mut table, update("a"));
        closing(&mut table);
        assert_eq!(take(&mut table, &a), [1, 2]);
        push(&mut table, update("a"));
        // The server may not know yet that the client has left the response.
        assert_eq!(table.open(&a, None, true, 2).err(), None);
        assert_eq!(take(&mut table, &a), [3]);
        closing(&mut table);
        assert_eq!(take(&mut table, &a), [4]);
        table.close(&a, 2);
        // Streams of closed sessions make room.
        for id in ["b", "c", "d"] {
            assert_eq!(open(&mut table, &session(id), None, false), None, "{id}");
        }
        assert_eq!((table.streams.len(), table.taken), (LIMITS.streams, FrameTotal::default()));
        assert!(open(&mut table, &a, None, true).is_some());
    }

    #[test]
    fn the_number_of_streams_is_limited() {
        let mut table = StreamTable::new(LIMITS);
        for id in ["a", "b", "c", "d", "e"] {
            push(&mut table, update(id));
        }
        assert_eq!(table.streams.len(), LIMITS.streams);
        assert_eq!(take(&mut table, &StreamId::Connection), [1, 2]);
        let refused = open(&mut table, &session("d"), None, false).expect("a refusal");
        assert!(refused.to_string().contains("4") && refused.to_string().contains("Options::streams"));
    }
}
