//! Messages as text: the one place that writes an envelope.

use std::cell::Cell;

use duologue_schema::{Error, RequestId};
use serde::Serialize;

use crate::json;

/// One message, ready to be pushed: a line with its end.
pub(crate) struct Frame(Vec<u8>);

thread_local! {
    /// The room of the last message, for the next one: most are copied to the outbox before another one is written.
    static ROOM: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// The room a message begins with, in bytes.
const ROOM_BYTES: usize = 512;
/// More room than this is given back.
const KEPT_BYTES: usize = 16 * 1024;

impl Frame {
    pub(crate) fn notification<P: Serialize + ?Sized>(method: &str, params: &P) -> serde_json::Result<Self> {
        let mut frame = Frame::start();
        frame.method(method)?;
        frame.member(",\"params\":", params)?;
        frame.end()
    }

    pub(crate) fn request<P: Serialize + ?Sized>(
        id: u64,
        method: &str,
        params: &P,
    ) -> serde_json::Result<Self> {
        let mut frame = Frame::start();
        frame.member(",\"id\":", &id)?;
        frame.method(method)?;
        frame.member(",\"params\":", params)?;
        frame.end()
    }

    pub(crate) fn result<R: Serialize + ?Sized>(id: &RequestId, result: &R) -> serde_json::Result<Self> {
        let mut frame = Frame::answer(id);
        frame.member(",\"result\":", result)?;
        frame.end()
    }

    pub(crate) fn error(id: &RequestId, error: &Error) -> serde_json::Result<Self> {
        let mut frame = Frame::answer(id);
        frame.member(",\"error\":", error)?;
        frame.end()
    }

    /// Any line, end included, as it is.
    #[cfg(test)]
    pub(crate) fn raw(line: &str) -> Self {
        Frame(line.into())
    }

    fn start() -> Self {
        // A thread that ends may have none any more, and still drops turns and calls that say so to the peer.
        let mut bytes = ROOM.try_with(Cell::take).unwrap_or_default();
        bytes.reserve(ROOM_BYTES);
        bytes.extend_from_slice(b"{\"jsonrpc\":\"2.0\"");
        Frame(bytes)
    }

    fn answer(id: &RequestId) -> Self {
        let mut frame = Frame::start();
        frame.0.extend_from_slice(b",\"id\":");
        frame.0.extend_from_slice(id.token().as_bytes());
        frame
    }

    fn method(&mut self, method: &str) -> serde_json::Result<()> {
        self.member(",\"method\":", method)
    }

    fn member<T: Serialize + ?Sized>(&mut self, name: &str, value: &T) -> serde_json::Result<()> {
        self.0.extend_from_slice(name.as_bytes());
        json::write(&mut self.0, value)
    }

    fn end(mut self) -> serde_json::Result<Self> {
        // Our own JSON has no line breaks, but a raw value from a user may: they can only be white
        // space, since a JSON string must escape them.
        if memchr::memchr(b'\n', &self.0).is_some() {
            self.0.iter_mut().filter(|byte| **byte == b'\n').for_each(|byte| *byte = b' ');
        }
        self.0.extend_from_slice(b"}\n");
        Ok(self)
    }

    /// The line with its end.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Takes the line out, for another frame.
    pub(crate) fn take(&mut self) -> Self {
        Frame(std::mem::take(&mut self.0))
    }

    /// Gives the line away, for a buffer without anything in it.
    pub(crate) fn swap(&mut self, bytes: &mut Vec<u8>) {
        std::mem::swap(&mut self.0, bytes);
    }

    /// The line without its end.
    pub(crate) fn line(&self) -> &[u8] {
        self.0.strip_suffix(b"\n").unwrap_or(&self.0)
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        if (1..=KEPT_BYTES).contains(&self.0.capacity()) {
            self.0.clear();
            let _ = ROOM.try_with(|room| room.set(std::mem::take(&mut self.0)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::value::RawValue;

    #[test]
    fn a_thread_that_ends_still_writes() {
        struct Last;
        impl Drop for Last {
            fn drop(&mut self) {
                drop(Frame::notification("last", &()).unwrap());
            }
        }
        thread_local! {
            static LAST: Last = const { Last };
        }
        let thread = std::thread::spawn(|| {
            // Made first, so that it goes after the room.
            LAST.with(|_| {});
            drop(Frame::notification("first", &()).unwrap());
        });
        thread.join().unwrap();
    }

    #[test]
    fn a_frame_is_always_one_line() {
        let pretty = RawValue::from_string("{\n \"a\": \"b\\n\"\n}".into()).unwrap();
        let frame = Frame::request(7, "m", &pretty).unwrap();
        assert_eq!(frame.line(), br#"{"jsonrpc":"2.0","id":7,"method":"m","params":{  "a": "b\n" }}"#);
    }

    #[test]
    fn ids_are_echoed_as_they_came() {
        for token in ["0", "-7", "\"1\"", "\"\\u00e9\"", "null"] {
            let id = RequestId::from_token(token).unwrap();
            let line = String::from_utf8(Frame::result(&id, &()).unwrap().line().to_vec()).unwrap();
            assert_eq!(line, format!(r#"{{"jsonrpc":"2.0","id":{token},"result":null}}"#));
        }
    }
}
