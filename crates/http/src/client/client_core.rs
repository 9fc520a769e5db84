//! The frames of one client in both directions, as plain data without I/O: the frames to send and to send again, the
//! positions in the streams of the server, and the frames that the client has not read.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use duologue_rpc::SecretText;
use duologue_rpc::raw_message::member;
use serde::de::DeserializeOwned;

use crate::client::dial::read_beginning;
use crate::client::error::Error;
use crate::client::link::LinkCore;
use crate::frame_view::{FrameView, without_cursors, without_line_breaks};
use crate::lines::FrameQueue;
use crate::request_sessions::{ID_BYTES, RequestSessions};
use crate::wire::{
    self, ACK, INITIALIZE, RESUME, ReceivedParams, ResumableCapability, ResumeFailedParams, ResumeGrant,
    ResumeParams, StreamId, StreamPosition,
};

/// The most streams whose positions are kept. A client beyond it cannot resume, nor one with an id or a cursor of over
/// [`ID_BYTES`].
pub(crate) const MOST_STREAMS: usize = 16 * 1024;

/// The state of one client.
pub(crate) struct ClientCore {
    connection_id: String,
    /// The frames that the server has not acknowledged, sent or not.
    frames: VecDeque<Bytes>,
    /// The number of the first of them. `initialize` has the number 1.
    first: u64,
    /// The number of the next frame to write to the current socket.
    next: u64,
    /// The number of the next frame that was never written.
    unsent: u64,
    bytes: usize,
    /// The bytes that may wait. Frames beyond it wait in the transport.
    limit: usize,
    has_ended: bool,
    /// The number of frames that were acknowledged before `initialize` was answered. They are kept until then.
    early_ack: u64,
    initialize_id: Option<Bytes>,
    resumption: Resumption,
    positions: BTreeMap<StreamId, Position>,
    /// The requests whose success ends a session.
    closing_requests: RequestSessions,
    inbox: FrameQueue,
}

/// The position in one stream.
#[derive(Default)]
struct Position {
    cursor: Option<Arc<str>>,
    frames: u64,
}

/// The answer of the server to the question of resumption.
#[derive(Debug)]
pub(crate) enum Resumption {
    /// `initialize` was not answered.
    Unknown,
    Refused,
    Offered {
        secret: Option<SecretText>,
        acknowledges: bool,
        retention: Duration,
    },
}

impl Resumption {
    /// Returns the time for which the server keeps the connection of an absent client.
    pub(crate) fn retention(&self) -> Option<Duration> {
        match self {
            Resumption::Offered { retention, .. } if !retention.is_zero() => Some(*retention),
            _ => None,
        }
    }
}

impl ClientCore {
    pub(crate) fn new(connection_id: String, limit: usize) -> Self {
        ClientCore {
            connection_id,
            frames: VecDeque::new(),
            first: 1,
            next: 1,
            unsent: 1,
            bytes: 0,
            limit,
            has_ended: false,
            early_ack: 0,
            initialize_id: None,
            resumption: Resumption::Unknown,
            positions: BTreeMap::new(),
            closing_requests: RequestSessions::default(),
            inbox: FrameQueue::default(),
        }
    }

    /// Returns true if the client has ended and every frame was written.
    pub(crate) fn is_written(&self) -> bool {
        self.has_ended && self.next > self.last()
    }

    /// Returns the next frame to write to the socket.
    pub(crate) fn next_frame(&mut self) -> Option<Bytes> {
        let index = usize::try_from(self.next - self.first).ok()?;
        let frame = self.frames.get(index)?.clone();
        let view = (index > 0 && self.is_initializing()).then(|| FrameView::read(&frame));
        if view.is_some_and(|view| view.id.is_some() && view.method.is_some()) {
            // It could be done twice if the connection begins again.
            return None;
        }
        self.next += 1;
        self.unsent = self.unsent.max(self.next);
        match self.resumption {
            Resumption::Refused => self.drop_first(),
            // Without acknowledgements the oldest frames are dropped, or the client would wait for ever.
            Resumption::Offered { acknowledges: false, .. } => {
                while self.bytes > self.limit / 2 && self.first < self.next {
                    self.drop_first();
                }
            }
            _ => {}
        }
        Some(frame)
    }

    /// Takes a frame of the server. Returns true if it is for the client, and false if it belongs to the transport. The client
    /// gets it without cursors, which mean nothing to others and would be wrong on another connection.
    ///
    /// # Errors
    ///
    /// If the server breaks the protocol.
    pub(crate) fn receive(&mut self, frame: Bytes) -> Result<bool, Error> {
        let frame = without_line_breaks(frame);
        if matches!(self.resumption, Resumption::Refused) {
            self.inbox.push(without_cursors(frame));
            return Ok(true);
        }
        let view = FrameView::read(&frame);
        if let (Resumption::Unknown, Some(id)) = (&self.resumption, &self.initialize_id)
            && view.is_response_to(id)
        {
            self.resumption = offered(view.result.unwrap_or_default());
            if matches!(self.resumption, Resumption::Refused) {
                while self.first < self.next {
                    self.drop_first();
                }
                self.inbox.push(without_cursors(frame));
                return Ok(true);
            }
            // The server has `initialize`, too.
            self.acknowledge(self.early_ack.max(1))?;
        }
        // An agent that takes long to answer `initialize` is acknowledged before its answer.
        if view.method.as_deref() == Some(ACK) && view.id.is_none() {
            self.acknowledge(received(&view)?)?;
            return Ok(false);
        }
        if view.params_session().into_iter().chain(view.cursor.as_deref()).any(|id| id.len() > ID_BYTES) {
            self.stop_resuming(format_args!("an id or a cursor has over {ID_BYTES} bytes"));
            self.inbox.push(without_cursors(frame));
            return Ok(true);
        }
        let position = self.positions.entry(view.stream()).or_default();
        match &view.cursor {
            Some(cursor) => *position = Position { cursor: Some(Arc::from(&**cursor)), frames: 0 },
            None => position.frames += 1,
        }
        if let (None, Some(id)) = (&view.method, view.id)
            && let Some(closed) = self.closing_requests.remove(id)
            && view.result.is_some()
            && matches!(self.resumption, Resumption::Offered { acknowledges: true, .. })
        {
            // Our server knows from the position of the connection that this client has all frames of the session.
            self.positions.remove(&StreamId::Session(closed.session));
        }
        if self.positions.len() > MOST_STREAMS {
            self.stop_resuming(format_args!("the server uses over {MOST_STREAMS} sessions"));
        }
        let cleaned = view.without_cursors(&frame).map(Bytes::from);
        self.inbox.push(cleaned.unwrap_or_else(|| frame.clone()));
        Ok(true)
    }

    fn stop_resuming(&mut self, reason: std::fmt::Arguments<'_>) {
        tracing::warn!("{reason}; the connection cannot be resumed any more");
        self.resumption = Resumption::Refused;
        self.positions.clear();
        // Nothing drops what was written before any more.
        while self.first < self.next {
            self.drop_first();
        }
    }

    /// Returns true if the server lets this client resume.
    pub(crate) fn can_resume(&self) -> bool {
        matches!(self.resumption, Resumption::Offered { .. })
    }

    /// Returns true if nothing can have been done that another connection would repeat: at most `initialize` was written, and
    /// nothing was received.
    pub(crate) fn can_begin_again(&self) -> bool {
        let most = if self.initialize_id.is_some() { 2 } else { 1 };
        matches!(self.resumption, Resumption::Unknown) && self.unsent <= most && self.positions.is_empty()
    }

    /// Returns true if `initialize` was written.
    pub(crate) fn has_sent_initialize(&self) -> bool {
        self.initialize_id.is_some()
    }

    /// Goes back to the first frame, on another connection.
    pub(crate) fn begin_again(&mut self, connection_id: String) {
        self.connection_id = connection_id;
        (self.next, self.early_ack) = (self.first, 0);
    }

    pub(crate) fn connection_id(&self) -> &str {
        &self.connection_id
    }

    /// Returns true if the client has sent `initialize`, and the server has not answered it.
    fn is_initializing(&self) -> bool {
        matches!(self.resumption, Resumption::Unknown) && self.initialize_id.is_some()
    }

    /// Returns the message that resumes the connection on a new socket.
    pub(crate) fn resume_message(&self) -> Bytes {
        let secret = match &self.resumption {
            Resumption::Offered { secret, .. } => secret.clone(),
            _ => None,
        };
        let cursors = self.positions.iter().map(|(stream, position)| StreamPosition {
            session_id: match stream {
                StreamId::Connection => None,
                StreamId::Session(id) => Some(id.clone()),
            },
            cursor: position.cursor.clone(),
            frames: position.frames,
        });
        let params =
            ResumeParams { connection_id: self.connection_id.clone(), secret, cursors: cursors.collect() };
        wire::notification(RESUME, &params)
    }

    /// Goes back to the first frame that the server has not accepted.
    ///
    /// # Errors
    ///
    /// If the frame is not kept any more, or the server counts frames that were never sent.
    pub(crate) fn resumed(&mut self, view: &FrameView<'_>) -> Result<(), Error> {
        let received = received(view)?;
        if received + 1 < self.first {
            return Err(Error::FramesLost { frames: self.first - received - 1 });
        }
        self.acknowledge(received)?;
        self.next = self.first;
        Ok(())
    }

    /// Drops the frames up to a number.
    fn acknowledge(&mut self, received: u64) -> Result<(), Error> {
        if received >= self.unsent {
            let sent = self.unsent - 1;
            return Err(Error::Protocol(format!(
                "{received} messages were acknowledged and {sent} were sent"
            )));
        }
        if self.is_initializing() {
            self.early_ack = received;
            return Ok(());
        }
        while self.first <= received {
            self.drop_first();
        }
        Ok(())
    }

    fn drop_first(&mut self) {
        if let Some(frame) = self.frames.pop_front() {
            self.bytes -= frame.len();
            self.first += 1;
            self.next = self.next.max(self.first);
        }
    }

    fn last(&self) -> u64 {
        self.first - 1 + self.frames.len() as u64
    }
}

impl LinkCore for ClientCore {
    fn has_room(&self) -> bool {
        self.bytes < self.limit
    }

    fn push(&mut self, frame: Bytes) {
        let view = FrameView::read(&frame);
        if self.last() == 0 && view.is_request(INITIALIZE) {
            self.initialize_id = view.id.map(Bytes::copy_from_slice);
        }
        self.closing_requests.insert_closing(&view);
        self.bytes += frame.len();
        self.frames.push_back(frame);
    }

    fn end(&mut self) {
        self.has_ended = true;
    }

    fn is_finished(&self) -> bool {
        let waits_for_acks = matches!(self.resumption, Resumption::Offered { acknowledges: true, .. });
        self.has_ended && self.next > self.last() && (self.frames.is_empty() || !waits_for_acks)
    }

    fn retention(&self) -> Option<Duration> {
        self.resumption.retention()
    }

    fn inbox(&mut self) -> &mut FrameQueue {
        &mut self.inbox
    }
}

fn received(view: &FrameView<'_>) -> Result<u64, Error> {
    let params: ReceivedParams = wire::params(view)
        .map_err(|error| Error::Protocol(format!("unreadable acknowledgement: {error}")))?;
    // The next number has to exist.
    if params.received == u64::MAX {
        return Err(Error::Protocol("unreadable acknowledgement".into()));
    }
    Ok(params.received)
}

/// Reads the capability to resume from the result of `initialize`.
pub(crate) fn offered(result: &[u8]) -> Resumption {
    // Version 2 has another name for the capabilities of an agent.
    let capability: Option<ResumableCapability> = ["agentCapabilities", "capabilities"]
        .iter()
        .find_map(|capabilities| value(result, &[capabilities, "transport", "resumable"]));
    let Some(capability) = capability else { return Resumption::Refused };
    let grant: ResumeGrant = value(result, &["_meta", "duologue", "resume"]).unwrap_or_default();
    Resumption::Offered {
        // It is in every request over SSE.
        secret: grant.secret.filter(|secret| secret.as_str().len() <= ID_BYTES),
        acknowledges: grant.acknowledges,
        retention: Duration::from_secs(capability.retention_seconds),
    }
}

/// Reads the value at the end of a path of members.
pub(crate) fn value<T: DeserializeOwned>(mut object: &[u8], path: &[&str]) -> Option<T> {
    for name in path {
        object = object.get(member(object, name)?)?;
    }
    serde_json::from_slice(object).ok()
}

/// Returns the reason in a refusal to resume.
pub(crate) fn refusal(view: &FrameView<'_>) -> String {
    match wire::params::<ResumeFailedParams>(view) {
        Ok(ResumeFailedParams { reason, message }) if message.is_empty() => beginning(&reason),
        Ok(ResumeFailedParams { reason, message }) => {
            format!("{} ({})", beginning(&reason), beginning(&message))
        }
        Err(_) => "no reason given".into(),
    }
}

/// Returns the part of a text of the server that an error shows.
fn beginning(text: &str) -> String {
    String::from_utf8_lossy(read_beginning(text.as_bytes())).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const INITIALIZE_REQUEST: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize"}"#;

    /// Returns a core whose `initialize` was answered with this result.
    fn core(result: &str, limit: usize) -> ClientCore {
        let mut core = ClientCore::new("c".into(), limit);
        core.push(INITIALIZE_REQUEST.into());
        assert!(core.next_frame().is_some() && !core.can_resume());
        let answer = format!(r#"{{"jsonrpc":"2.0","id":0,"result":{result}}}"#);
        assert!(core.receive(answer.into()).expect("valid"));
        core
    }

    fn resumable(acknowledges: bool) -> String {
        format!(
            r#"{{"capabilities":{{"transport":{{"resumable":{{"retentionSeconds":9}}}}}},
                "_meta":{{"acp/cursor":"a","duologue":{{"resume":{{"secret":"s","acknowledges":{acknowledges}}}}}}}}}"#
        )
    }

    fn resumed(core: &mut ClientCore, received: u64) -> Result<(), Error> {
        let frame = wire::notification("stream/resumed", &ReceivedParams { received });
        core.resumed(&FrameView::read(&frame))
    }

    fn frame(length: usize) -> Bytes {
        vec![b'x'; length].into()
    }

    #[test]
    fn without_the_capability_nothing_is_kept() {
        let mut core = core(r#"{"agentCapabilities":{}}"#, 1000);
        assert!(!core.can_resume());
        core.push(frame(2000));
        assert!(!core.has_room());
        assert!(core.next_frame().is_some() && core.has_room() && core.frames.is_empty());
        // The methods of the transport mean nothing without it.
        assert!(
            core.receive(r#"{"method":"stream/ack","params":{"received":900}}"#.into()).expect("passed on")
        );
    }

    #[test]
    fn a_resume_states_the_position_in_each_stream() {
        let mut core = core(&resumable(true), 1000);
        assert_eq!(core.retention(), Some(Duration::from_secs(9)));
        for text in [
            r#"{"method":"m","params":{"sessionId":"s"}}"#,
            r#"{"method":"m","params":{"sessionId":"t","_meta":{"acp/cursor":"b"}}}"#,
            r#"{"method":"m","params":{"sessionId":"t"}}"#,
            r#"{"id":1,"error":{}}"#,
        ] {
            assert!(core.receive(text.into()).expect("valid"));
        }
        let mut lines = Vec::new();
        while core.inbox.pop_lines(&mut lines) {}
        assert!(!String::from_utf8_lossy(&lines).contains("cursor"), "a cursor belongs to the transport");
        let message: serde_json::Value = serde_json::from_slice(&core.resume_message()).expect("JSON");
        assert_eq!(
            message["params"],
            serde_json::json!({"connectionId": "c", "secret": "s", "cursors": [
                {"cursor": "a", "frames": 1},
                {"sessionId": "s", "frames": 1},
                {"sessionId": "t", "cursor": "b", "frames": 1},
            ]})
        );
    }

    #[test]
    fn a_closed_session_has_no_position() {
        for (acknowledges, answer, left) in
            [(true, r#""result":{}"#, 1), (true, r#""error":{}"#, 2), (false, r#""result":{}"#, 2)]
        {
            let mut core = core(&resumable(acknowledges), 1000);
            core.push(r#"{"id":1,"method":"session/close","params":{"sessionId":"s"}}"#.into());
            let update = r#"{"method":"m","params":{"sessionId":"s"}}"#;
            assert!(core.receive(update.into()).expect("valid"));
            assert!(core.receive(format!(r#"{{"id":1,{answer}}}"#).into()).expect("valid"));
            assert_eq!(core.positions.len(), left, "{answer} {acknowledges}");
        }
    }

    #[test]
    fn cursors_do_not_reach_a_client_that_cannot_resume() {
        let update = |cursor: &str| {
            format!(r#"{{"method":"m","params":{{"_meta":{{"acp/cursor":{cursor},"a":1}}}}}}"#)
        };
        let long = format!(r#""{}""#, "x".repeat(ID_BYTES + 1));
        for (result, cursor) in [("{}", r#""7""#), ("{}", "[7]"), (&resumable(true), &long)] {
            let mut core = core(result, 1000);
            core.inbox.clear();
            assert!(core.receive(update(cursor).into()).expect("passed on") && !core.can_resume());
            let mut lines = Vec::new();
            core.inbox.pop_lines(&mut lines);
            assert_eq!(lines, b"{\"method\":\"m\",\"params\":{\"_meta\":{\"a\":1}}}\n", "{result} {cursor}");
        }
        let mut core = ClientCore::new("c".into(), 1000);
        core.push(INITIALIZE_REQUEST.into());
        let answer = r#"{"jsonrpc":"2.0","id":0,"result":{"_meta":{"acp/cursor":"1"}}}"#;
        assert!(core.receive(answer.into()).expect("valid"));
        let mut lines = Vec::new();
        core.inbox.pop_lines(&mut lines);
        assert_eq!(lines, b"{\"jsonrpc\":\"2.0\",\"id\":0,\"result\":{\"_meta\":{}}}\n");
    }

    #[test]
    fn a_refusal_is_cut() {
        let frame =
            format!(r#"{{"method":"m","params":{{"reason":"r","message":"{}"}}}}"#, "x".repeat(10_000));
        let shown = refusal(&FrameView::read(frame.as_bytes()));
        assert!(shown.starts_with("r (xxx") && shown.len() < 1000, "{}", shown.len());
    }

    #[test]
    fn long_ids_and_cursors_are_not_kept() {
        let long = "x".repeat(ID_BYTES + 1);
        for params in [
            format!(r#"{{"sessionId":"{long}"}}"#),
            format!(r#"{{"sessionId":"s","_meta":{{"acp/cursor":"{long}"}}}}"#),
        ] {
            let mut core = core(&resumable(true), 1000);
            let update = format!(r#"{{"method":"m","params":{params}}}"#);
            assert!(core.receive(update.into()).expect("passed on"));
            assert!(!core.can_resume() && core.positions.is_empty());
            // Sent frames are not kept for a resume either.
            core.push(frame(2000));
            assert!(core.next_frame().is_some() && core.has_room());
        }
    }

    #[test]
    fn frames_are_kept_until_they_are_acknowledged() {
        let mut core = core(&resumable(true), 100);
        (0..3).for_each(|_| core.push(frame(60)));
        assert!(core.next_frame().is_some() && core.next_frame().is_some() && !core.has_room());
        assert!(!core.receive(r#"{"method":"stream/ack","params":{"received":2}}"#.into()).expect("valid"));
        assert_eq!((core.first, core.next, core.frames.len()), (3, 4, 2));
        assert!(resumed(&mut core, 2).is_ok());
        assert_eq!(core.next, 3);
        // Neither a number that was never sent nor one before an acknowledgement can be right.
        assert!(matches!(resumed(&mut core, 4), Err(Error::Protocol(_))));
        assert!(matches!(resumed(&mut core, u64::MAX), Err(Error::Protocol(_))));
        assert!(matches!(resumed(&mut core, 1), Err(Error::FramesLost { frames: 1 })));
        assert!(core.receive(r#"{"method":"stream/ack","params":{}}"#.into()).is_err());
    }

    #[test]
    fn a_server_without_acknowledgements_does_not_stop_the_client() {
        let mut core = core(&resumable(false), 100);
        for _ in 0..50 {
            core.push(frame(30));
            assert!(core.next_frame().is_some() && core.has_room());
        }
        core.end();
        assert!(core.is_finished() && core.bytes <= 100);
        assert!(resumed(&mut core, 51).is_ok());
        core.push(frame(1));
        assert!(matches!(resumed(&mut core, 10), Err(Error::FramesLost { .. })));
    }
}
