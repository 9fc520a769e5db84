//! Reads what the transport needs to know about a message, and sets members of it, without building values.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use duologue_rpc::raw_message::{is_of_transport, text};
use duologue_rpc::{JsonScanner, JsonTokenKind};
use memchr::memmem::Finder;

use crate::wire::{CURSOR, StreamId, root_session};

/// Parts of a text for which frames are searched. They are made once.
type Words<const N: usize> = LazyLock<[Finder<'static>; N], fn() -> [Finder<'static>; N]>;

const fn words<const N: usize>(make: fn() -> [Finder<'static>; N]) -> Words<N> {
    LazyLock::new(make)
}

fn has_any<const N: usize>(words: &Words<N>, frame: &[u8]) -> bool {
    words.iter().any(|word| word.find(frame).is_some())
}

/// The parts of a message that the transport reads. They are found in one pass over the text, which is not validated.
#[derive(Debug, Default)]
pub(crate) struct FrameView<'a> {
    pub(crate) id: Option<&'a [u8]>,
    pub(crate) method: Option<Cow<'a, str>>,
    pub(crate) params: Option<&'a [u8]>,
    pub(crate) result: Option<&'a [u8]>,
    /// `params.sessionId`.
    session: Option<Cow<'a, str>>,
    /// The cursor in the `_meta` of params or result, if it is a string.
    pub(crate) cursor: Option<Cow<'a, str>>,
    /// The places of all cursors, each with its name, whatever their values are.
    cursors: Vec<Range<usize>>,
}

/// The members of the outer object that matter.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Member {
    Id,
    Method,
    Params,
    Result,
    Other,
}

impl<'a> FrameView<'a> {
    pub(crate) fn read(frame: &'a [u8]) -> Self {
        FrameView::of_update(frame).unwrap_or_else(|| FrameView::scan(frame))
    }

    /// Reads the most frequent message, an update in the usual text, without a scan. Its params are left out.
    fn of_update(frame: &'a [u8]) -> Option<Self> {
        /// The beginning up to the id of the session.
        const BEGINNING: &[u8] = br#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":""#;
        /// The id of a request, a second method, a result, a cursor, and names with escapes.
        static OTHERS: Words<5> =
            words(|| ["\"id\"", "\"method\"", "\"result\"", "cursor\"", "\\u"].map(Finder::new));
        let rest = frame.strip_prefix(BEGINNING)?;
        let end = memchr::memchr2(b'"', b'\\', rest).filter(|end| rest.get(*end) == Some(&b'"'))?;
        let session = std::str::from_utf8(rest.get(..end)?).ok()?;
        (!has_any(&OTHERS, rest)).then(|| FrameView {
            method: Some(Cow::Borrowed("session/update")),
            session: Some(Cow::Borrowed(session)),
            ..FrameView::default()
        })
    }

    fn scan(frame: &'a [u8]) -> Self {
        let mut view = FrameView::default();
        let mut scanner = JsonScanner::new(frame);
        let (mut member, mut second, mut third) = (Member::Other, Second::Other, false);
        let mut name_at = 0;
        let mut start = None;
        while let Some(token) = scanner.next() {
            let depth = scanner.depth();
            let string = || frame.get(token.span.clone()).and_then(text);
            if token.kind == JsonTokenKind::Key {
                match depth {
                    1 => {
                        (second, third) = (Second::Other, false);
                        start = None;
                        member = match string().as_deref() {
                            Some("id") => Member::Id,
                            Some("method") => Member::Method,
                            Some("params") => Member::Params,
                            Some("result") => Member::Result,
                            _ => Member::Other,
                        };
                    }
                    2 => {
                        third = false;
                        second = match string().as_deref() {
                            Some("sessionId") if member == Member::Params => Second::Session,
                            Some("_meta") if member != Member::Other => Second::Meta,
                            _ => Second::Other,
                        };
                    }
                    3 => {
                        third = second == Second::Meta && string().as_deref() == Some(CURSOR);
                        name_at = token.span.start;
                    }
                    _ => {}
                }
                continue;
            }
            let is_string = token.kind == JsonTokenKind::String;
            if is_string && depth == 2 && second == Second::Session {
                // The first one counts, as for the hub, which refuses a second one.
                view.session = view.session.take().or_else(string);
            }
            // An object or a list ends where the scanner is back.
            if third && depth == 3 && token.kind != JsonTokenKind::Comma {
                view.cursor = if is_string { string() } else { None };
                view.cursors.push(name_at..token.span.end);
                third = false;
            }
            if member == Member::Other || token.kind == JsonTokenKind::Comma {
                continue;
            }
            // The value of a member begins with its first token and ends when the scanner is back at the outer object.
            let begin = *start.get_or_insert(token.span.start);
            if depth != 1 {
                continue;
            }
            let value = frame.get(begin..token.span.end);
            match member {
                Member::Id => view.id = value,
                Member::Method => view.method = value.and_then(text),
                Member::Params => view.params = value,
                Member::Result => view.result = value,
                Member::Other => {}
            }
            member = Member::Other;
        }
        view
    }

    /// Returns the session that the params name.
    pub(crate) fn params_session(&self) -> Option<&str> {
        self.session.as_deref().filter(|_| self.method.is_some())
    }

    /// Returns the session whose stream has the message: the one that the params name, or its root.
    pub(crate) fn stream_session(&self) -> Option<&str> {
        self.params_session().map(root_session)
    }

    /// Returns the stream of the message.
    pub(crate) fn stream(&self) -> StreamId {
        self.stream_session().map_or(StreamId::Connection, |session| StreamId::Session(Arc::from(session)))
    }

    pub(crate) fn is_request(&self, method: &str) -> bool {
        self.id.is_some() && self.method.as_deref() == Some(method)
    }

    /// Returns the frame without its cursors, or `None` if it has none.
    pub(crate) fn without_cursors(&self, frame: &[u8]) -> Option<Vec<u8>> {
        if self.cursors.is_empty() {
            return None;
        }
        let (mut rest, mut written) = (Vec::with_capacity(frame.len()), 0);
        for cursor in &self.cursors {
            rest.extend_from_slice(frame.get(written..cursor.start)?);
            written = cursor.end;
            let after = frame.get(written..)?;
            let space = after.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
            if after.get(space) == Some(&b',') {
                written += space + 1;
            } else {
                // Without its white space, which is looked at once.
                rest.truncate(rest.trim_ascii_end().len());
                rest.pop_if(|last| *last == b',');
            }
        }
        rest.extend_from_slice(frame.get(written..)?);
        Some(rest)
    }

    /// Returns true if this is the response to the request with this id.
    pub(crate) fn is_response_to(&self, id: &[u8]) -> bool {
        self.method.is_none() && self.id == Some(id)
    }
}

/// The members of params and result that matter.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Second {
    Session,
    Meta,
    Other,
}

/// Sets a member of a message: the value at the end of `path`. Objects on the way are added, the first one has to exist.
///
/// Returns `None` if a value on the way is not an object.
#[cfg(feature = "server")]
pub(crate) fn with_member(message: &[u8], path: &[&str], value: &str) -> Option<Vec<u8>> {
    let (mut start, mut end, mut path) = (0, message.len(), path);
    loop {
        let (name, deeper) = path.split_first()?;
        let object = message.get(start..end)?;
        let is_outer = start == 0;
        match duologue_rpc::raw_message::member(object, name) {
            Some(found) => {
                let old = object.get(found.clone())?;
                let (begin, stop) = (start + found.start, start + found.end);
                if !deeper.is_empty() && old.first() == Some(&b'{') {
                    (start, end, path) = (begin, stop, deeper);
                    continue;
                }
                if is_outer || !(deeper.is_empty() || old == b"null") {
                    return None;
                }
                let new = nested(deeper, value);
                return Some([message.get(..begin)?, new.as_bytes(), message.get(stop..)?].concat());
            }
            None if is_outer => return None,
            None => {
                let inside = start + 1;
                let rest = message.get(inside..)?;
                let is_empty = rest.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'}');
                let new = format!(r#""{name}":{}{}"#, nested(deeper, value), if is_empty { "" } else { "," });
                return Some([message.get(..inside)?, new.as_bytes(), rest].concat());
            }
        }
    }
}

/// Writes `value` inside of an object for each name.
#[cfg(feature = "server")]
fn nested(names: &[&str], value: &str) -> String {
    names.iter().rev().fold(value.to_owned(), |value, name| format!(r#"{{"{name}":{value}}}"#))
}

/// Returns true for a message of the transport, which neither an agent nor its client sends.
#[cfg_attr(not(feature = "server"), allow(dead_code, reason = "only the server needs it"))]
pub(crate) fn is_transport_frame(frame: &[u8]) -> bool {
    // A name is rarely written with escapes. Most frames are not read twice.
    static NAMES: Words<2> = words(|| ["stream", "\\u"].map(Finder::new));
    has_any(&NAMES, frame) && FrameView::read(frame).method.is_some_and(|method| is_of_transport(&method))
}

/// Returns a message without cursors.
pub(crate) fn without_cursors(frame: Bytes) -> Bytes {
    // A name is rarely written with escapes. Most frames are not read twice.
    static NAMES: Words<2> = words(|| ["cursor", "\\u"].map(Finder::new));
    if !has_any(&NAMES, &frame) {
        return frame;
    }
    let rest = FrameView::read(&frame).without_cursors(&frame).map(Bytes::from);
    rest.unwrap_or(frame)
}

/// Returns a message as one line: line breaks, which can only be white space between values, become spaces.
pub(crate) fn without_line_breaks(frame: Bytes) -> Bytes {
    if memchr::memchr2(b'\n', b'\r', &frame).is_none() {
        return frame;
    }
    let mut bytes = Vec::from(frame);
    bytes.iter_mut().filter(|byte| matches!(**byte, b'\n' | b'\r')).for_each(|byte| *byte = b' ');
    Bytes::from(bytes)
}

/// Returns true for a frame of white space alone.
pub(crate) fn is_blank(frame: &[u8]) -> bool {
    frame.iter().all(u8::is_ascii_whitespace)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(id: &str) -> StreamId {
        StreamId::Session(id.into())
    }

    #[test]
    fn the_stream_and_the_cursor_are_found_in_their_places_only() {
        let cases = [
            (
                r#"{"method":"a","params":{"sessionId":"s","_meta":{"acp/cursor":"7"}}}"#,
                session("s"),
                Some("7"),
            ),
            (r#"{"params":{"x":{"sessionId":"no"},"sessionId":"s"},"method":"a"}"#, session("s"), None),
            (
                r#"{"method":"a","params":{"sessionId":"0198c0de-0000-7000-8000-000000000001~12"}}"#,
                session("0198c0de-0000-7000-8000-000000000001"),
                None,
            ),
            (r#"{"method":"a","params":{"sessionId":"s~12"}}"#, session("s~12"), None),
            (
                r#"{"params":{"x":{"sessionId":"no"}},"method":"a","sessionId":"no"}"#,
                StreamId::Connection,
                None,
            ),
            (
                r#"{"id":1,"result":{"sessionId":"s","_meta":{"a":1,"acp/cursor":"8"}}}"#,
                StreamId::Connection,
                Some("8"),
            ),
            (r#"{"id":1,"error":{"_meta":{"acp/cursor":"8"}}}"#, StreamId::Connection, None),
            (
                r#"{"method":"a","params":["sessionId",{"_meta":{"acp/cursor":"8"}}]}"#,
                StreamId::Connection,
                None,
            ),
            (r#"{"method":"a","params":[{"acp/cursor":"8"}]}"#, StreamId::Connection, None),
            (r#"{"method":"a","params":{"session\u0049d":"\u0073"}}"#, session("s"), None),
            (r#"{"method":"a","params":{"sessionId":"s","sessionId":"t"}}"#, session("s"), None),
            (r#"{"method":"a","params":{"sessionId":7}}"#, StreamId::Connection, None),
        ];
        for (frame, stream, cursor) in cases {
            let view = FrameView::read(frame.as_bytes());
            assert_eq!((view.stream(), view.cursor.as_deref()), (stream, cursor), "{frame}");
        }
    }

    #[test]
    fn an_update_is_read_without_a_scan_as_with_one() {
        let sessions = ["s", "0198c0de-0000-7000-8000-000000000001~12", "", "é", r"\u0073", r#"a\"b"#, "a\\"];
        let inner = [
            "",
            r#","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"say \"id\": 1"}}"#,
            r#","sessionId":"t""#,
            r#","x":{"sessionId":"t"}"#,
            r#","x":"a cursor""#,
            r#","x":"\ud83d\ude00""#,
            r#","_meta":{"acp/cursor":"7"}"#,
            r#","_meta":{"acp\/cursor":"7"}"#,
            r#","_meta":{"acp\u002fcursor":7}"#,
        ];
        let outer = [
            "}",
            "} ",
            "",
            r#","id":7}"#,
            r#", "id" : null}"#,
            r#","\u0069d":7}"#,
            r#","method":"other"}"#,
            r#","result":{"_meta":{"acp/cursor":"8"}}}"#,
            r#","params":{"sessionId":"u"}}"#,
            r#","error":{"code":1,"message":"id"}}"#,
        ];
        let mut direct = 0;
        let members = inner.iter().flat_map(|inner| outer.map(|outer| format!("{inner}}}{outer}")));
        let rests = members.flat_map(|rest| sessions.map(|session| format!("{session}\"{rest}")));
        for rest in rests {
            let frame =
                format!(r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":"{rest}"#);
            let (view, scanned) = (FrameView::read(frame.as_bytes()), FrameView::scan(frame.as_bytes()));
            direct += u32::from(FrameView::of_update(frame.as_bytes()).is_some());
            assert_eq!(view.params_session(), scanned.params_session(), "{frame}");
            assert_eq!(view.stream(), scanned.stream(), "{frame}");
            assert_eq!((view.id, &view.method, view.result), (scanned.id, &scanned.method, scanned.result));
            assert_eq!((&view.cursor, &view.cursors), (&scanned.cursor, &scanned.cursors), "{frame}");
        }
        assert!(direct > 50, "{direct} updates are read without a scan");
    }

    #[test]
    fn the_members_of_the_envelope_are_found() {
        let view =
            FrameView::read(br#" {"jsonrpc":"2.0", "id" : "a" ,"method":"initialize","params":{"a":[1]}}"#);
        assert!(view.is_request("initialize"));
        assert_eq!((view.id, view.params), (Some(&br#""a""#[..]), Some(&br#"{"a":[1]}"#[..])));
        let view = FrameView::read(br#"{"result":{},"id":3}"#);
        assert!(view.is_response_to(b"3") && !view.is_response_to(b"4"));
        assert_eq!(view.result, Some(&b"{}"[..]));
    }

    #[cfg(feature = "server")]
    #[test]
    fn members_are_added_and_replaced() {
        let set = |message: &str, path: &[&str]| {
            with_member(message.as_bytes(), path, "9").map(|bytes| String::from_utf8(bytes).expect("UTF-8"))
        };
        let cases = [
            (r#"{"params":{"a":1}}"#, Some(r#"{"params":{"_meta":{"c":9},"a":1}}"#)),
            (r#"{"params":{ }}"#, Some(r#"{"params":{"_meta":{"c":9} }}"#)),
            (r#" {"params":{"_meta":null}}"#, Some(r#" {"params":{"_meta":{"c":9}}}"#)),
            (r#"{"params":{"_meta":{"c":1,"d":2}}}"#, Some(r#"{"params":{"_meta":{"c":9,"d":2}}}"#)),
            (r#"{"params":{"_meta":{"d":2}}}"#, Some(r#"{"params":{"_meta":{"c":9,"d":2}}}"#)),
            (r#"{"params":{"_meta":[]}}"#, None),
            (r#"{"params":[1]}"#, None),
            (r#"{"params":null}"#, None),
            (r#"{"method":"a"}"#, None),
            ("[1]", None),
            ("", None),
        ];
        for (message, expected) in cases {
            assert_eq!(set(message, &["params", "_meta", "c"]).as_deref(), expected, "{message}");
        }
    }

    #[test]
    fn all_cursors_are_removed() {
        for (frame, expected) in [
            (r#"{"params":{"_meta":{"acp/cursor":"7"}}}"#, Some(r#"{"params":{"_meta":{}}}"#)),
            (r#"{"params":{"_meta":{"acp/cursor":"7" , "a":1}}}"#, Some(r#"{"params":{"_meta":{ "a":1}}}"#)),
            (r#"{"params":{"_meta":{"a":1, "acp/cursor":"7"}}}"#, Some(r#"{"params":{"_meta":{"a":1 }}}"#)),
            (
                r#"{"params":{"_meta":{"a":1,"acp\/cursor":"7","\u0061cp/cursor":"8"}},"result":{"_meta":{"acp/cursor":"9"}}}"#,
                Some(r#"{"params":{"_meta":{"a":1}},"result":{"_meta":{}}}"#),
            ),
            (r#"{"params":{"_meta":{"acp/cursor":7}}}"#, Some(r#"{"params":{"_meta":{}}}"#)),
            (r#"{"params":{"_meta":{"acp/cursor":null,"a":1}}}"#, Some(r#"{"params":{"_meta":{"a":1}}}"#)),
            (
                r#"{"params":{"_meta":{"acp/cursor":{"b":["7",{}],"acp/cursor":"9"},"a":1}},"id":3}"#,
                Some(r#"{"params":{"_meta":{"a":1}},"id":3}"#),
            ),
            (
                r#"{"params":{"_meta":{"acp/cursor":[],"acp/cursor":["7"],"a":{"b":1}}}}"#,
                Some(r#"{"params":{"_meta":{"a":{"b":1}}}}"#),
            ),
            // Half of a surrogate pair is no text.
            (
                r#"{"params":{"_meta":{"acp/cursor":"7","a":1,"acp/cursor":"\ud800"}}}"#,
                Some(r#"{"params":{"_meta":{"a":1}}}"#),
            ),
            (r#"{"params":{"a":{"acp/cursor":"7"}}}"#, None),
            (r#"{"params":{"_meta":["acp/cursor","7"]}}"#, None),
        ] {
            let rest = FrameView::read(frame.as_bytes()).without_cursors(frame.as_bytes());
            let rest = rest.map(|rest| String::from_utf8(rest).expect("UTF-8"));
            let cleaned = without_cursors(Bytes::copy_from_slice(frame.as_bytes()));
            assert_eq!(cleaned, rest.as_deref().unwrap_or(frame).as_bytes());
            // The white space between members is free.
            let compact = |text: &str| text.replace(' ', "");
            assert_eq!(rest.as_deref().map(compact), expected.map(compact), "{frame}");
            if let Some(rest) = rest {
                assert!(FrameView::read(rest.as_bytes()).cursors.is_empty(), "{frame}");
            }
        }
    }

    #[test]
    fn messages_of_the_transport_are_recognized() {
        for (frame, expected) in [
            (r#"{"method":"stream/ack","params":{"received":9}}"#, true),
            (r#"{"method":"\u0073tream\/later"}"#, true),
            (r#"{"method":"session/update","params":{"text":"stream/ack"}}"#, false),
            (r#"{"method":"streams","params":{}}"#, false),
            (r#"{"id":1,"result":{"method":"stream/ack"}}"#, false),
        ] {
            assert_eq!(is_transport_frame(frame.as_bytes()), expected, "{frame}");
        }
    }

    #[test]
    fn line_breaks_become_spaces() {
        assert_eq!(without_line_breaks(Bytes::from_static(b"{\r\n}")), &b"{  }"[..]);
        assert!(is_blank(b" \n") && !is_blank(b" x"));
    }
}
