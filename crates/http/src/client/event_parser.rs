//! Reads the events of an SSE response from its bytes.

use std::sync::Arc;

use bytes::Bytes;

use crate::client::error::Error;
use crate::request_sessions::ID_BYTES;

/// One event.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ServerEvent {
    /// The name, if it has one.
    pub(crate) name: Option<String>,
    /// The last id of the response. Events without an id of their own have that of an earlier one.
    pub(crate) id: Option<Arc<str>>,
    pub(crate) data: Bytes,
}

/// An event exceeds a limit.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum EventTooLong {
    /// The bytes of the line or the event, and the limit.
    Data(usize, usize),
    /// The bytes of the id.
    Id(usize),
}

impl From<EventTooLong> for Error {
    fn from(error: EventTooLong) -> Self {
        match error {
            EventTooLong::Data(bytes, limit) => Error::FrameTooLarge { bytes, limit },
            EventTooLong::Id(bytes) => {
                Error::Protocol(format!("an event id has {bytes} bytes, the limit is {ID_BYTES}"))
            }
        }
    }
}

/// The state of a response whose bytes arrive in pieces. `retry` and comments are ignored.
#[derive(Debug)]
pub(crate) struct EventParser {
    /// The beginning of a line that is not complete.
    line: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    name: Option<String>,
    /// The events of one read share it.
    id: Option<Arc<str>>,
    /// True if the last byte was a carriage return, so that a line feed belongs to it.
    skips_line_feed: bool,
    is_at_start: bool,
    limit: usize,
}

impl EventParser {
    /// Creates it for data of at most `limit` bytes an event.
    pub(crate) fn new(limit: usize) -> Self {
        EventParser {
            line: Vec::new(),
            data: Vec::new(),
            has_data: false,
            name: None,
            id: None,
            skips_line_feed: false,
            is_at_start: true,
            limit,
        }
    }

    /// Takes more bytes and appends the events that they complete.
    pub(crate) fn push(
        &mut self,
        mut bytes: &[u8],
        events: &mut Vec<ServerEvent>,
    ) -> Result<(), EventTooLong> {
        while let Some(first) = bytes.first() {
            if std::mem::take(&mut self.skips_line_feed) && *first == b'\n' {
                bytes = bytes.split_at(1).1;
                continue;
            }
            let Some(end) = memchr::memchr2(b'\n', b'\r', bytes) else {
                return self.keep(bytes);
            };
            let (line, rest) = bytes.split_at(end);
            self.skips_line_feed = rest.first() == Some(&b'\r');
            bytes = rest.split_at(1).1;
            if self.line.is_empty() {
                self.line(line, events)?;
            } else {
                self.keep(line)?;
                let line = std::mem::take(&mut self.line);
                self.line(&line, events)?;
            }
        }
        Ok(())
    }

    fn keep(&mut self, part: &[u8]) -> Result<(), EventTooLong> {
        // The name of the field is not part of the data.
        let length = self.line.len() + part.len();
        if length > self.limit.saturating_add("data: ".len()) {
            return Err(EventTooLong::Data(length, self.limit));
        }
        self.line.extend_from_slice(part);
        Ok(())
    }

    fn line(&mut self, line: &[u8], events: &mut Vec<ServerEvent>) -> Result<(), EventTooLong> {
        let is_first = std::mem::take(&mut self.is_at_start);
        let line = if is_first { line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line) } else { line };
        if line.is_empty() {
            let name = self.name.take();
            if std::mem::take(&mut self.has_data) {
                let data = Bytes::from(std::mem::take(&mut self.data));
                events.push(ServerEvent { name, id: self.id.clone(), data });
            }
            return Ok(());
        }
        let (name, value) = match memchr::memchr(b':', line) {
            Some(colon) => (line.split_at(colon).0, line.split_at(colon + 1).1),
            None => (line, &[][..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match name {
            b"data" => {
                let length = self.data.len() + value.len() + usize::from(self.has_data);
                if length > self.limit {
                    return Err(EventTooLong::Data(length, self.limit));
                }
                if self.has_data {
                    self.data.push(b'\n');
                }
                self.data.extend_from_slice(value);
                self.has_data = true;
            }
            b"event" => {
                self.name = (!value.is_empty()).then(|| String::from_utf8_lossy(value).into_owned());
            }
            b"id" if value.len() > ID_BYTES => return Err(EventTooLong::Id(value.len())),
            // A header could not carry an id with other characters.
            b"id" if value.iter().all(|byte| (b' '..=b'~').contains(byte)) => {
                self.id = (!value.is_empty()).then(|| String::from_utf8_lossy(value).into());
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str, chunk: usize) -> Vec<(Option<String>, Option<String>, String)> {
        let mut parser = EventParser::new(1000);
        let mut events = Vec::new();
        for chunk in text.as_bytes().chunks(chunk) {
            parser.push(chunk, &mut events).expect("short events");
        }
        let text = |event: ServerEvent| {
            (
                event.name,
                event.id.map(|id| id.to_string()),
                String::from_utf8(event.data.into()).expect("UTF-8"),
            )
        };
        events.into_iter().map(text).collect()
    }

    #[test]
    fn events_are_read_however_their_bytes_arrive() {
        let text = "\u{FEFF}: a comment\n\ndata: {}\n\nid: 7\r\ndata:{\r\ndata: }\r\n\r\nevent: message\rdata: a\r\r\
                    retry: 5\nid\ndata\n\nid: no\u{e9}\ndata:  b: c\n\n\n\ndata: not complete\n";
        let event = |name: Option<&str>, id: Option<&str>, data: &str| {
            (name.map(str::to_owned), id.map(str::to_owned), data.to_owned())
        };
        let expected = [
            event(None, None, "{}"),
            event(None, Some("7"), "{\n}"),
            event(Some("message"), Some("7"), "a"),
            event(None, None, ""),
            event(None, None, " b: c"),
        ];
        for chunk in 1..text.len() {
            assert_eq!(parse(text, chunk), expected, "{chunk}");
        }
    }

    #[test]
    fn an_id_is_short_and_shared_by_the_events_after_it() {
        let mut events = Vec::new();
        let id = "i".repeat(ID_BYTES);
        let text = format!("id: {id}\n{}", "data: {}\n\n".repeat(3));
        assert_eq!(EventParser::new(10_000).push(text.as_bytes(), &mut events), Ok(()));
        let ids: Vec<&Arc<str>> = events.iter().filter_map(|event| event.id.as_ref()).collect();
        assert!(matches!(ids[..], [a, b, c] if Arc::ptr_eq(a, b) && Arc::ptr_eq(b, c)), "{ids:?}");
        let text = format!("id: {id}i\n");
        let pushed = EventParser::new(10_000).push(text.as_bytes(), &mut events);
        assert_eq!(pushed, Err(EventTooLong::Id(ID_BYTES + 1)));
    }

    #[test]
    fn the_length_of_an_event_is_limited() {
        for text in ["data: 12345", "data: 123\ndata: 4\n\n", "1234567890123"] {
            let mut parser = EventParser::new(4);
            let mut events = Vec::new();
            let pushed = text.as_bytes().chunks(3).try_for_each(|chunk| parser.push(chunk, &mut events));
            // A part of a line may be longer by the name of its field.
            let pushed = pushed.and_then(|()| parser.push(b"\n\n", &mut events));
            assert!(pushed.is_err(), "{text}");
            assert!(events.is_empty());
        }
        let mut events = Vec::new();
        assert_eq!(EventParser::new(4).push(b"data: 1234\n\n", &mut events), Ok(()));
        assert_eq!(events.len(), 1);
    }
}
