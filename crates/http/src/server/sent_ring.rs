//! The frames that were sent or wait to be sent to one client: plain data without I/O.

use std::collections::{HashMap, VecDeque};

use bytes::Bytes;

use crate::frame_view::{FrameView, with_member};
use crate::lines::FRAME_OVERHEAD;
use crate::request_sessions::RequestSessions;
use crate::server::endpoint::OutgoingFrame;
use crate::wire::{CURSOR, StreamId, StreamPosition};

/// The frames after which a stream gets another cursor.
const CURSOR_FRAMES: u64 = 64;
/// The bytes after which a stream gets another cursor.
const CURSOR_BYTES: usize = 64 * 1024;
/// The most streams of one connection. A client beyond it cannot resume.
const MOST_STREAMS: usize = 16 * 1024;

/// The limits of a [`SentRing`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct RingLimits {
    /// The bytes of frames that the client has not confirmed, at which the agent waits.
    pub(crate) bytes: usize,
    /// The number of these frames, at which the agent waits.
    pub(crate) frames: usize,
    /// The bytes of confirmed frames that are kept.
    pub(crate) confirmed_bytes: usize,
}

/// The reason for which a position cannot be resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PositionError {
    /// Frames after the position were evicted.
    Gone,
    /// The position was never sent.
    Invalid,
}

/// A ring of sent frames in the order of the connection.
///
/// Frames are *taken* by the current socket, and *confirmed* when the client has received them. Only confirmed frames
/// are evicted. The cursor of a frame is its number in its stream, so a client's position in a stream is the number of
/// frames that it received in it.
pub(crate) struct SentRing {
    frames: VecDeque<SentFrame>,
    /// The position of the first frame in the ring. Positions begin with 1.
    first: u64,
    taken: u64,
    confirmed: u64,
    bytes: usize,
    confirmed_bytes: usize,
    streams: HashMap<StreamId, SentStream>,
    /// The requests of the client whose success ends a session.
    closing_requests: RequestSessions,
    /// The ends of sessions in their order, until no client can come back to a position before them.
    ends: VecDeque<(SessionEnd, StreamId)>,
    /// The numbers of a new stream begin behind this one. Clients may have a position up to it in a stream that was removed.
    removed: u64,
    has_too_many_streams: bool,
    limits: RingLimits,
}

struct SentFrame {
    stream: StreamId,
    /// The number of the frame in its stream.
    number: u64,
    has_cursor: bool,
    text: Bytes,
}

impl SentFrame {
    fn cost(&self) -> usize {
        self.text.len() + FRAME_OVERHEAD
    }
}

/// The state of a stream.
#[derive(Default)]
struct SentStream {
    /// The number of its last frame.
    last: u64,
    /// The number of its last frame with a cursor.
    cursor: u64,
    bytes_since_cursor: usize,
    /// The number of its last frame that was evicted.
    evicted: u64,
    /// The ends of its session.
    ends: Vec<SessionEnd>,
    /// True from the last end until the next frame.
    is_closed: bool,
}

/// The end of a session. A client that has received the response has all frames up to the last one.
#[derive(Clone, Copy, PartialEq, Eq)]
struct SessionEnd {
    /// The number of the response in the stream of the connection.
    response: u64,
    /// The number of the last frame in the stream of the session.
    last: u64,
}

impl SentStream {
    /// Creates a stream whose numbers begin behind `removed`.
    fn behind(removed: u64) -> Self {
        let ends = vec![SessionEnd { response: 0, last: removed }];
        SentStream { last: removed, evicted: removed, ends, ..SentStream::default() }
    }

    /// Returns the number of the frame up to which a client has everything, by its position in the stream of the connection.
    fn received_at(&self, connection: u64) -> u64 {
        let end = self.ends.iter().rfind(|end| end.response <= connection);
        end.map_or(0, |end| end.last)
    }
}

impl SentRing {
    pub(crate) fn new(limits: RingLimits) -> Self {
        SentRing {
            frames: VecDeque::new(),
            first: 1,
            taken: 0,
            confirmed: 0,
            bytes: 0,
            confirmed_bytes: 0,
            streams: HashMap::new(),
            closing_requests: RequestSessions::default(),
            ends: VecDeque::new(),
            removed: 0,
            has_too_many_streams: false,
            limits,
        }
    }

    /// Records a request of the client that ends a session.
    pub(crate) fn note_client_frame(&mut self, frame: &[u8]) {
        let view = FrameView::read(frame);
        self.closing_requests.insert_closing(&view);
    }

    /// Appends a frame. It gets a cursor if one is due in its stream and the message can carry it. A cursor that the agent
    /// has passed on belongs to another connection, and is removed.
    pub(crate) fn push(&mut self, frame: Bytes) {
        let view = FrameView::read(&frame);
        let cleaned = view.without_cursors(&frame);
        let last = self.frames.back().map(|frame| &frame.stream);
        let id = match (view.stream_session(), last) {
            (Some(session), Some(StreamId::Session(last))) if **last == *session => {
                StreamId::Session(last.clone())
            }
            _ => view.stream(),
        };
        let part = if view.method.is_some() { "params" } else { "result" };
        if self.streams.len() >= MOST_STREAMS && !self.streams.contains_key(&id) {
            self.has_too_many_streams = true;
            self.streams.clear();
        }
        let answered = view.id.filter(|_| view.method.is_none());
        let closed =
            answered.and_then(|id| self.closing_requests.remove(id)).filter(|_| view.result.is_some());
        let removed = if id == StreamId::Connection { 0 } else { self.removed };
        let stream = self.streams.entry(id.clone()).or_insert_with(|| SentStream::behind(removed));
        stream.last += 1;
        stream.is_closed = false;
        stream.bytes_since_cursor = stream.bytes_since_cursor.saturating_add(frame.len());
        let is_due = stream.cursor == 0
            || stream.last - stream.cursor >= CURSOR_FRAMES
            || stream.bytes_since_cursor >= CURSOR_BYTES;
        let number = stream.last;
        let frame = cleaned.map_or_else(|| frame.clone(), Bytes::from);
        let marked = if is_due && !self.has_too_many_streams {
            with_member(&frame, &[part, "_meta", CURSOR], &format!("\"{number}\""))
        } else {
            None
        };
        let has_cursor = marked.is_some();
        if has_cursor {
            (stream.cursor, stream.bytes_since_cursor) = (number, 0);
        }
        let frame = SentFrame { stream: id, number, has_cursor, text: marked.map_or(frame, Bytes::from) };
        self.bytes += frame.cost();
        self.frames.push_back(frame);
        if let Some(closed) = closed {
            self.end_session(StreamId::Session(closed.session), number);
        }
        self.evict();
    }

    /// Records the end of a session, with the number of the response.
    fn end_session(&mut self, id: StreamId, response: u64) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let end = SessionEnd { response, last: stream.last };
        stream.ends.push(end);
        stream.is_closed = true;
        // A client that has received the response has no position any more.
        stream.cursor = 0;
        self.ends.push_back((end, id));
    }

    /// Removes what is known of sessions whose ends every client has received.
    fn forget_ends(&mut self, response: u64) {
        while self.ends.front().is_some_and(|(end, _)| end.response <= response)
            && let Some((end, id)) = self.ends.pop_front()
        {
            let Some(stream) = self.streams.get_mut(&id) else { continue };
            if stream.is_closed && stream.ends.last() == Some(&end) {
                self.removed = self.removed.max(stream.last);
                self.streams.remove(&id);
            } else {
                stream.ends.retain(|other| other.response >= end.response);
            }
        }
    }

    /// Returns true if the agent may send another frame.
    pub(crate) fn has_room(&self) -> bool {
        let unconfirmed = self.last() - self.confirmed;
        self.bytes - self.confirmed_bytes < self.limits.bytes && unconfirmed < self.limits.frames as u64
    }

    /// Returns the next frame that the socket has not taken.
    pub(crate) fn take(&mut self) -> Option<OutgoingFrame> {
        let next = self.taken + 1;
        let frame = self.frames.get(usize::try_from(next.checked_sub(self.first)?).ok()?)?;
        self.taken = next;
        Some(OutgoingFrame {
            stream: frame.stream.clone(),
            cursor: frame.has_cursor.then(|| frame.number.to_string().into()),
            text: frame.text.clone(),
        })
    }

    /// Returns the position of the last frame that was taken.
    pub(crate) fn taken(&self) -> u64 {
        self.taken
    }

    /// Marks the frames up to a position as received by the client.
    pub(crate) fn confirm(&mut self, position: u64) {
        let confirmed = position.min(self.taken);
        while self.confirmed < confirmed {
            let frame = self.confirmed + 1 - self.first;
            let cost = usize::try_from(frame).ok().and_then(|frame| self.frames.get(frame));
            self.confirmed_bytes += cost.map_or(0, SentFrame::cost);
            self.confirmed += 1;
        }
        self.evict();
    }

    /// Moves back to the first frame that a client with these positions has not received.
    ///
    /// # Errors
    ///
    /// If the frame was evicted or the positions are none that this ring has sent. Nothing is changed then.
    pub(crate) fn resume(&mut self, positions: &[StreamPosition]) -> Result<(), PositionError> {
        if self.has_too_many_streams {
            return Err(PositionError::Gone);
        }
        let mut received: HashMap<StreamId, u64> = HashMap::new();
        for position in positions {
            let cursor = match &position.cursor {
                Some(cursor) => cursor.parse().map_err(|_| PositionError::Invalid)?,
                None => 0u64,
            };
            let number = cursor.checked_add(position.frames).ok_or(PositionError::Invalid)?;
            received.insert(position.stream(), number);
        }
        for (id, number) in &received {
            let last = self.streams.get(id).map_or(self.removed, |stream| stream.last);
            if *number > last {
                return Err(PositionError::Invalid);
            }
        }
        let connection = received.get(&StreamId::Connection).copied().unwrap_or(0);
        for (id, stream) in &self.streams {
            let number = stream.received_at(connection);
            if number > 0 {
                let received = received.entry(id.clone()).or_default();
                *received = number.max(*received);
            }
        }
        for (id, stream) in &self.streams {
            if received.get(id).copied().unwrap_or(0) < stream.evicted {
                return Err(PositionError::Gone);
            }
        }
        let has =
            |frame: &SentFrame| received.get(&frame.stream).is_some_and(|number| frame.number <= *number);
        let count = self.frames.iter().take_while(|frame| has(frame)).count();
        // The frames were sent in one order, so a client cannot have a frame without those before it.
        if self.frames.iter().skip(count).any(has) {
            return Err(PositionError::Invalid);
        }
        self.taken = self.first - 1 + count as u64;
        self.confirmed = self.taken;
        self.confirmed_bytes = self.frames.iter().take(count).map(SentFrame::cost).sum();
        Ok(())
    }

    /// Returns the position of the last frame.
    pub(crate) fn last(&self) -> u64 {
        self.first - 1 + self.frames.len() as u64
    }

    /// Drops the oldest confirmed frames beyond the limits.
    fn evict(&mut self) {
        while self.first <= self.confirmed {
            let is_over = self.bytes > self.limits.bytes
                || self.frames.len() > self.limits.frames
                || self.confirmed_bytes > self.limits.confirmed_bytes;
            if !is_over {
                return;
            }
            let Some(frame) = self.frames.pop_front() else { return };
            self.first += 1;
            self.bytes -= frame.cost();
            self.confirmed_bytes -= frame.cost();
            if let Some(stream) = self.streams.get_mut(&frame.stream) {
                stream.evicted = stream.evicted.max(frame.number);
            }
            if frame.stream == StreamId::Connection {
                self.forget_ends(frame.number);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: RingLimits = RingLimits { bytes: 10_000, frames: 100, confirmed_bytes: 1000 };

    fn update(session: &str) -> Bytes {
        format!(r#"{{"jsonrpc":"2.0","method":"u","params":{{"sessionId":"{session}"}}}}"#).into()
    }

    fn error() -> Bytes {
        Bytes::from_static(br#"{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":""}}"#)
    }

    fn position(session: Option<&str>, cursor: Option<&str>, frames: u64) -> StreamPosition {
        StreamPosition { session_id: session.map(Into::into), cursor: cursor.map(Into::into), frames }
    }

    fn take_all(ring: &mut SentRing) -> Vec<(StreamId, Option<String>)> {
        std::iter::from_fn(|| ring.take())
            .map(|frame| (frame.stream, frame.cursor.map(|cursor| cursor.to_string())))
            .collect()
    }

    #[test]
    fn the_first_frame_of_a_stream_and_every_64th_carry_a_cursor() {
        let mut ring = SentRing::new(RingLimits { frames: 1000, bytes: 1 << 20, ..LIMITS });
        ring.push(error());
        (0..200).for_each(|_| ring.push(update("s")));
        let frames = take_all(&mut ring);
        assert_eq!(frames[0], (StreamId::Connection, None));
        let cursors: Vec<_> = frames.iter().filter_map(|(_, cursor)| cursor.as_deref()).collect();
        assert_eq!(cursors, ["1", "65", "129", "193"]);
        // A long frame brings a cursor too.
        ring.push(
            format!(r#"{{"method":"u","params":{{"sessionId":"s","x":"{}"}}}}"#, "x".repeat(70_000)).into(),
        );
        assert_eq!(take_all(&mut ring)[0].1.as_deref(), Some("201"));
    }

    #[test]
    fn a_cursor_of_another_connection_is_removed() {
        let mut ring = SentRing::new(LIMITS);
        let foreign = |cursor: u32| -> Bytes {
            format!(r#"{{"method":"u","params":{{"_meta":{{"acp/cursor":"{cursor}"}},"sessionId":"s"}}}}"#)
                .into()
        };
        (0..3).for_each(|number| ring.push(foreign(129 + number)));
        let frames: Vec<_> = std::iter::from_fn(|| ring.take()).collect();
        let of_frame =
            |frame: &OutgoingFrame| FrameView::read(&frame.text).cursor.map(|cursor| cursor.to_string());
        assert_eq!(frames.iter().map(of_frame).collect::<Vec<_>>(), [Some("1".to_owned()), None, None]);
        // A client with too many streams has no position that it could state.
        ring.has_too_many_streams = true;
        ring.push(foreign(7));
        assert_eq!(ring.take().as_ref().map(of_frame), Some(None));
    }

    #[test]
    fn a_client_resumes_at_the_first_frame_it_does_not_have() {
        let mut ring = SentRing::new(LIMITS);
        for frame in [error(), update("a"), update("b"), update("a"), error(), update("b")] {
            ring.push(frame);
        }
        take_all(&mut ring);
        let positions =
            [position(None, None, 1), position(Some("a"), Some("1"), 0), position(Some("b"), Some("1"), 0)];
        assert_eq!(ring.resume(&positions), Ok(()));
        assert_eq!(ring.taken(), 3);
        assert_eq!(take_all(&mut ring).len(), 3);
        assert_eq!(ring.resume(&[]), Ok(()));
        assert_eq!(take_all(&mut ring).len(), 6);
        // A later frame without an earlier one, a number that was not sent, and a cursor of another server.
        assert_eq!(ring.resume(&[position(Some("b"), None, 2)]), Err(PositionError::Invalid));
        assert_eq!(ring.resume(&[position(Some("c"), None, 1)]), Err(PositionError::Invalid));
        assert_eq!(ring.resume(&[position(None, Some("x"), 1)]), Err(PositionError::Invalid));
        assert_eq!(ring.resume(&[position(None, Some("1"), u64::MAX)]), Err(PositionError::Invalid));
    }

    #[test]
    fn there_is_room_up_to_the_limits() {
        for (bytes, frames) in [(usize::MAX, 3), (3 * update("s").len(), 100)] {
            let mut ring = SentRing::new(RingLimits { bytes, frames, ..LIMITS });
            let cost = |ring: &SentRing| ring.frames.iter().map(SentFrame::cost).sum::<usize>();
            while ring.has_room() {
                ring.push(update("s"));
            }
            let has_all = cost(&ring) >= bytes || ring.frames.len() == frames;
            assert!(has_all && ring.frames.len() <= frames, "{bytes} {frames}");
            // A frame that fills the bytes exactly is the last one.
            let mut exact = SentRing::new(RingLimits { bytes: cost(&ring), frames: 100, ..LIMITS });
            (0..ring.frames.len()).for_each(|_| exact.push(update("s")));
            assert!(!exact.has_room());
        }
    }

    #[test]
    fn only_confirmed_frames_are_evicted() {
        let mut ring = SentRing::new(LIMITS);
        let mut count = 0;
        while ring.has_room() {
            ring.push(update("s"));
            count += 1;
        }
        assert!((50..=100).contains(&count), "{count}");
        ring.confirm(u64::MAX);
        assert!(!ring.has_room(), "nothing was taken");
        assert_eq!(take_all(&mut ring).len(), count);
        ring.confirm(count as u64);
        assert!(ring.has_room() && ring.confirmed_bytes <= LIMITS.confirmed_bytes);
        let kept = ring.frames.len() as u64;
        let at = |frames| [position(Some("s"), Some("1"), frames - 1)];
        assert_eq!(ring.resume(&at(count as u64 - kept)), Ok(()));
        assert_eq!(ring.resume(&at(count as u64 - kept - 1)), Err(PositionError::Gone));
    }

    fn close(ring: &mut SentRing, session: &str) {
        let request = format!(r#"{{"id":1,"method":"session/close","params":{{"sessionId":"{session}"}}}}"#);
        ring.note_client_frame(request.as_bytes());
        ring.push(Bytes::from_static(br#"{"jsonrpc":"2.0","id":1,"result":{}}"#));
    }

    #[test]
    fn a_closed_session_is_removed_with_its_last_frame() {
        let mut ring = SentRing::new(LIMITS);
        for number in 0..1000 {
            let session = number.to_string();
            (0..3).for_each(|_| ring.push(update(&session)));
            close(&mut ring, &session);
            let taken = take_all(&mut ring);
            assert_eq!(taken[0].1.as_deref(), Some((ring.removed + 1).to_string().as_str()));
            ring.confirm(u64::MAX);
            assert!(ring.streams.len() < 10 && ring.ends.len() < 10, "{}", ring.streams.len());
        }
        assert!(ring.removed > 0 && ring.removed <= 3 * 1000);
        // Positions in streams that were removed are those of a client that keeps them.
        let connection = position(None, Some("1"), 999);
        assert_eq!(ring.resume(&[connection.clone(), position(Some("0"), Some("1"), 2)]), Ok(()));
        assert_eq!(take_all(&mut ring), []);
        let other = position(Some("0"), Some("1"), ring.removed);
        assert_eq!(ring.resume(&[connection, other]), Err(PositionError::Invalid));
    }

    #[test]
    fn a_client_that_knows_the_end_of_a_session_has_its_frames() {
        let mut ring = SentRing::new(LIMITS);
        for _ in 0..2 {
            (0..2).for_each(|_| ring.push(update("s")));
            close(&mut ring, "s");
        }
        ring.push(update("s"));
        let streams = |frames: Vec<(StreamId, Option<String>)>| -> Vec<Option<String>> {
            frames.into_iter().map(|(_, cursor)| cursor).collect()
        };
        let cursor = |cursor: &str| Some(cursor.to_owned());
        let all = [cursor("1"), None, cursor("1"), cursor("3"), None, None, cursor("5")];
        assert_eq!(streams(take_all(&mut ring)), all);
        // It has the first response, and nothing or one frame of the session since then.
        for (positions, left) in [
            (vec![position(None, Some("1"), 0)], 4),
            (vec![position(None, Some("1"), 0), position(Some("s"), Some("3"), 0)], 3),
            (vec![position(None, Some("1"), 1)], 1),
            (vec![position(None, Some("1"), 1), position(Some("s"), Some("5"), 0)], 0),
            (vec![position(Some("s"), Some("1"), 0)], 6),
        ] {
            assert_eq!(ring.resume(&positions), Ok(()));
            assert_eq!(take_all(&mut ring).len(), left, "{positions:?}");
        }
    }

    #[test]
    fn a_long_frame_fits_once_the_others_are_confirmed() {
        let mut ring = SentRing::new(LIMITS);
        ring.push(vec![b'x'; 50_000].into());
        assert!(!ring.has_room());
        take_all(&mut ring);
        ring.confirm(1);
        assert!(ring.has_room() && ring.frames.is_empty());
        assert_eq!((ring.bytes, ring.confirmed_bytes), (0, 0));
    }
}
