//! The frames of a client over HTTP with SSE, as plain data without I/O: the frames to send, the sessions that they belong
//! to, the streams of the server, and the frames that the client has not read.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use duologue_rpc::SecretText;
use duologue_rpc::raw_message::member;
use http::HeaderValue;
use serde_json::{Value, json};

use crate::client::client_core::{MOST_STREAMS, Resumption, offered, value};
use crate::client::dial::read_beginning;
use crate::client::link::LinkCore;
use crate::frame_view::{FrameView, without_cursors, without_line_breaks};
use crate::lines::FrameQueue;
use crate::request_sessions::{ID_BYTES, RequestSessions};
use crate::wire::{CANCEL_REQUEST, INITIALIZE, StreamId};

/// The state of one client.
pub(crate) struct EventsCore {
    /// The frames that the server has not accepted.
    frames: VecDeque<Bytes>,
    /// The number of the first of them. `initialize` has the number 1.
    number: u64,
    bytes: usize,
    /// The bytes that may wait. Frames beyond it wait in the transport.
    limit: usize,
    has_ended: bool,
    resumption: Resumption,
    streams: HashMap<StreamId, StreamState>,
    /// The changes of streams that the task of the connection has not seen.
    changes: VecDeque<StreamChange>,
    /// The sessions of the open requests of this client.
    own_requests: RequestSessions,
    /// Those that belong to no session, and may open one.
    opening_requests: RequestSessions,
    /// The sessions of the open requests of the server.
    server_requests: RequestSessions,
    inbox: FrameQueue,
}

/// The state of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamState {
    /// The server has not answered.
    Opening,
    Open,
    /// The server does not know the session yet. The stream is opened again when a request for it is answered.
    Deferred,
}

/// A change of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StreamChange {
    Open(StreamId),
    Close(StreamId),
}

impl EventsCore {
    pub(crate) fn new(limit: usize) -> Self {
        EventsCore {
            frames: VecDeque::new(),
            number: 1,
            bytes: 0,
            limit,
            has_ended: false,
            resumption: Resumption::Unknown,
            streams: HashMap::new(),
            changes: VecDeque::new(),
            own_requests: RequestSessions::default(),
            opening_requests: RequestSessions::default(),
            server_requests: RequestSessions::default(),
            inbox: FrameQueue::default(),
        }
    }

    /// Returns the next frame for the server, with its number.
    pub(crate) fn next_frame(&self) -> Option<(u64, Bytes)> {
        self.frames.front().map(|frame| (self.number, frame.clone()))
    }

    /// Drops the first frame, because the server has answered it.
    pub(crate) fn answered(&mut self) {
        if let Some(frame) = self.frames.pop_front() {
            self.bytes -= frame.len();
            self.number += 1;
        }
    }

    /// Returns true if the client has ended and every frame was answered.
    pub(crate) fn is_sent(&self) -> bool {
        self.has_ended && self.frames.is_empty()
    }

    /// Returns the session for the header of a frame, and records it for the response.
    pub(crate) fn session_of(&mut self, frame: &[u8]) -> Option<Arc<str>> {
        let view = FrameView::read(frame);
        match (view.method.as_deref(), view.id) {
            (None, Some(id)) => self.server_requests.remove(id).map(|request| request.session),
            (Some(CANCEL_REQUEST), _) => {
                let params = view.params.unwrap_or_default();
                params.get(member(params, "requestId")?).and_then(|id| self.own_requests.get(id).cloned())
            }
            (_, id) => {
                let session = view.params_session();
                if let (Some(id), None) = (id, session) {
                    self.opening_requests.insert(id, "");
                }
                let session = session?;
                if id.is_some() {
                    self.own_requests.insert_another(&view, session);
                }
                Some(session.into())
            }
        }
    }

    /// Takes the response to `initialize`. Returns true if it begins a connection.
    pub(crate) fn initialized(&mut self, response: Bytes) -> bool {
        let response = without_cursors(without_line_breaks(response));
        let result = FrameView::read(&response).result;
        let is_success = result.is_some();
        if let Some(result) = result {
            self.resumption = offered(result);
        }
        self.inbox.push(response);
        is_success
    }

    /// Takes a frame of the server from one of its streams. Cursors in it mean nothing here.
    pub(crate) fn receive(&mut self, frame: Bytes, stream: &StreamId) {
        let frame = without_cursors(without_line_breaks(frame));
        let view = FrameView::read(&frame);
        match (&view.method, view.id) {
            (Some(_), Some(id)) => {
                let of_stream = match stream {
                    StreamId::Connection => None,
                    StreamId::Session(session) => Some(&**session),
                };
                let session = view.params_session().or(of_stream);
                // The answer has no header then.
                if let Some(session) = session.filter(|session| fits_header(session)) {
                    self.server_requests.insert(id, session);
                }
            }
            (None, Some(id)) => {
                let own = self.own_requests.remove(id);
                let is_own = self.opening_requests.remove(id).is_some() || own.is_some();
                if let Some(result) = view.result.filter(|_| is_own) {
                    if let Some(closed) = own.as_ref().filter(|own| own.closes) {
                        self.close_stream(StreamId::Session(closed.session.clone()));
                    } else if let Some(session) = value::<String>(result, &["sessionId"])
                        && session.len() <= ID_BYTES
                        && fits_header(&session)
                        && self.streams.len() < MOST_STREAMS
                    {
                        self.want_stream(StreamId::Session(session.into()));
                    }
                    if let Some(session) = own.map(|own| StreamId::Session(own.session))
                        && self.streams.get(&session) == Some(&StreamState::Deferred)
                    {
                        self.streams.remove(&session);
                        self.want_stream(session);
                    }
                }
            }
            _ => {}
        }
        self.inbox.push(frame);
    }

    /// Answers a request that the server has refused, with the error in its refusal or else its status and its text.
    pub(crate) fn refused(&mut self, frame: &[u8], status: u16, body: &[u8]) {
        let view = FrameView::read(frame);
        let (Some(id), Some(_)) = (view.id, &view.method) else {
            tracing::warn!(status, "the server refused a message: {:?}", beginning(body));
            return;
        };
        for requests in [&mut self.own_requests, &mut self.opening_requests] {
            requests.remove(id);
        }
        let error = member(body, "error").and_then(|error| serde_json::from_slice(body.get(error)?).ok());
        let error = error.filter(|error: &Value| error["code"].is_i64() && error["message"].is_string());
        let error = error.unwrap_or_else(|| {
            let message =
                format!("the server refused the message with status {status}: {:?}", beginning(body));
            json!({"code": -32603, "message": message})
        });
        let id = String::from_utf8_lossy(id);
        // It is written anew, because its text can have several lines.
        self.inbox.push(format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#).into());
    }

    /// Asks for a stream, if it is neither open nor being opened. Returns its state.
    pub(crate) fn want_stream(&mut self, stream: StreamId) -> StreamState {
        if let Some(state) = self.streams.get(&stream) {
            return *state;
        }
        self.changes.push_back(StreamChange::Open(stream.clone()));
        self.streams.insert(stream, StreamState::Opening);
        StreamState::Opening
    }

    fn close_stream(&mut self, stream: StreamId) {
        if self.streams.remove(&stream).is_some() {
            self.changes.push_back(StreamChange::Close(stream));
        }
    }

    /// Returns the next change of a stream.
    pub(crate) fn next_change(&mut self) -> Option<StreamChange> {
        self.changes.pop_front()
    }

    /// Reports the state of a stream. `None` means that it has ended and can be opened again.
    pub(crate) fn set_stream(&mut self, stream: &StreamId, state: Option<StreamState>) {
        match (self.streams.get_mut(stream), state) {
            (Some(current), Some(state)) => *current = state,
            (Some(_), None) => _ = self.streams.remove(stream),
            (None, _) => {}
        }
    }

    /// Returns true if the server lets this client continue its streams.
    pub(crate) fn can_resume(&self) -> bool {
        matches!(self.resumption, Resumption::Offered { .. })
    }

    /// Returns the secret of the connection, and true if the server accepts each numbered frame only once.
    pub(crate) fn grant(&self) -> (Option<&SecretText>, bool) {
        match &self.resumption {
            Resumption::Offered { secret, acknowledges, .. } => (secret.as_ref(), *acknowledges),
            _ => (None, false),
        }
    }
}

impl LinkCore for EventsCore {
    fn has_room(&self) -> bool {
        self.bytes < self.limit
    }

    fn push(&mut self, frame: Bytes) {
        self.bytes += frame.len();
        self.frames.push_back(frame);
    }

    fn end(&mut self) {
        self.has_ended = true;
    }

    fn is_finished(&self) -> bool {
        self.is_sent()
    }

    fn retention(&self) -> Option<Duration> {
        self.resumption.retention()
    }

    fn inbox(&mut self) -> &mut FrameQueue {
        &mut self.inbox
    }
}

/// Returns true if a session can be named in a header, which has no control characters. Without the header it has no stream,
/// and a request for it is never answered.
pub(crate) fn fits_header(session: &str) -> bool {
    HeaderValue::from_bytes(session.as_bytes()).is_ok()
}

fn beginning(body: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(read_beginning(body))
}

/// Returns true for the request that begins a connection.
pub(crate) fn is_initialize(frame: &[u8]) -> bool {
    FrameView::read(frame).is_request(INITIALIZE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(id: &str) -> StreamId {
        StreamId::Session(id.into())
    }

    fn lines(core: &mut EventsCore) -> String {
        let mut lines = Vec::new();
        core.inbox.pop_lines(&mut lines);
        String::from_utf8(lines).expect("UTF-8")
    }

    #[test]
    fn an_answer_belongs_to_the_session_of_its_request() {
        let mut core = EventsCore::new(100);
        let request = br#"{"id":"q","method":"session/request_permission","params":{"sessionId":"a"}}"#;
        core.receive(Bytes::from_static(request), &session("a"));
        core.receive(Bytes::from_static(br#"{"id":5,"method":"x/ask","params":{}}"#), &session("b"));
        assert_eq!(core.session_of(br#"{"id":"q","result":{}}"#).as_deref(), Some("a"));
        assert_eq!(core.session_of(br#"{"id":5,"result":{}}"#).as_deref(), Some("b"));
        assert_eq!(core.session_of(br#"{"id":5,"result":{}}"#), None);
        let prompt = br#"{"id":1,"method":"session/prompt","params":{"sessionId":"a"}}"#;
        assert_eq!(core.session_of(prompt).as_deref(), Some("a"));
        let cancel = br#"{"method":"$/cancel_request","params":{"requestId":1}}"#;
        assert_eq!(core.session_of(cancel).as_deref(), Some("a"));
        assert_eq!(core.session_of(br#"{"id":2,"method":"session/new","params":{}}"#), None);
    }

    #[test]
    fn streams_follow_the_sessions() {
        let mut core = EventsCore::new(100);
        let opened = || Bytes::from_static(br#"{"id":1,"result":{"sessionId":"a"}}"#);
        // A response to no request opens nothing, nor one that comes again.
        core.receive(opened(), &StreamId::Connection);
        assert_eq!(core.next_change(), None);
        core.session_of(br#"{"id":1,"method":"session/new","params":{}}"#);
        core.receive(opened(), &StreamId::Connection);
        assert_eq!(core.next_change(), Some(StreamChange::Open(session("a"))));
        assert_eq!(core.want_stream(session("a")), StreamState::Opening);
        assert_eq!(core.next_change(), None);
        // A server that does not know the session before it was loaded.
        core.session_of(br#"{"id":2,"method":"session/load","params":{"sessionId":"b"}}"#);
        assert_eq!(core.want_stream(session("b")), StreamState::Opening);
        core.next_change();
        core.set_stream(&session("b"), Some(StreamState::Deferred));
        core.receive(Bytes::from_static(br#"{"id":2,"result":{}}"#), &StreamId::Connection);
        assert_eq!(core.next_change(), Some(StreamChange::Open(session("b"))));
        core.session_of(br#"{"id":3,"method":"session/close","params":{"sessionId":"a"}}"#);
        core.receive(Bytes::from_static(br#"{"id":3,"result":{}}"#), &session("a"));
        assert_eq!(core.next_change(), Some(StreamChange::Close(session("a"))));
    }

    #[test]
    fn a_server_cannot_open_streams_without_end() {
        let mut core = EventsCore::new(100);
        let mut open = |id: &str| {
            core.session_of(br#"{"id":1,"method":"session/new","params":{}}"#);
            let opened = format!(r#"{{"id":1,"result":{{"sessionId":"{id}"}}}}"#);
            core.receive(opened.into(), &StreamId::Connection);
            core.next_change()
        };
        assert_eq!(open(&"x".repeat(ID_BYTES + 1)), None);
        assert_eq!(open("\\u0007"), None);
        (0..MOST_STREAMS + 5).for_each(|id| _ = open(&id.to_string()));
        assert_eq!(core.streams.len(), MOST_STREAMS);
    }

    #[test]
    fn cursors_do_not_reach_the_client() {
        let mut core = EventsCore::new(100);
        core.initialized(Bytes::from_static(br#"{"id":0,"result":{"_meta":{"acp/cursor":"1"}}}"#));
        let update = br#"{"method":"m","params":{"sessionId":"a","_meta":{"acp/cursor":{"b":1},"c":2}}}"#;
        core.receive(Bytes::from_static(update), &session("a"));
        let expected = r#"{"id":0,"result":{"_meta":{}}}
{"method":"m","params":{"sessionId":"a","_meta":{"c":2}}}
"#;
        assert_eq!(lines(&mut core), expected);
    }

    #[test]
    fn a_refused_request_is_answered_with_the_error_of_the_server() {
        let mut core = EventsCore::new(100);
        let request = br#"{"id":1,"method":"session/prompt","params":{"sessionId":"a"}}"#;
        core.refused(request, 400, br#"{"id":null,"error":{"code":-32600,"message":"no"}}"#);
        assert_eq!(
            lines(&mut core),
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32600,\"message\":\"no\"}}\n"
        );
        core.refused(
            request,
            400,
            b"{\n  \"error\": {\r\n    \"code\": -32600,\n\n    \"message\": \"no\"\n  }\n}\n",
        );
        assert_eq!(
            lines(&mut core),
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32600,\"message\":\"no\"}}\n"
        );
        let long = [b"<html>\n", &[b'x'; 4096][..]].concat();
        for (status, body) in
            [(413, &long[..]), (400, br#"{"error":{"code":"no"}}"#), (502, b"{\"error\":{]}")]
        {
            core.refused(request, status, body);
            let answer = lines(&mut core);
            let read: Value = serde_json::from_str(answer.trim_end()).expect("one line");
            assert!(read["error"]["message"].as_str().expect("text").contains(&format!("status {status}")));
            assert!(answer.len() < 1024, "{answer}");
        }
        core.refused(br#"{"id":1,"result":{}}"#, 400, b"");
        assert_eq!(lines(&mut core), "");
    }
}
