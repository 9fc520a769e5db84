//! Encodes messages. Only this module writes JSON-RPC envelopes.

use std::cell::Cell;

use duologue_schema::{Error, RequestId};
use serde::Serialize;

use crate::json_writer;

/// An encoded message.
pub(crate) struct Frame {
    /// The line with its line end.
    bytes: Vec<u8>,
    is_answer: bool,
}

thread_local! {
    /// The buffer of the last message. Most messages are copied to the outbox before the next one is encoded, so the
    /// buffer can be reused.
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// The initial capacity of a message, in bytes.
const INITIAL_BYTES: usize = 512;
/// The largest buffer that is reused.
const SPARE_BYTES: usize = 16 * 1024;

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

    /// Creates a frame from a line with its line end.
    #[cfg(test)]
    pub(crate) fn raw(line: &str) -> Self {
        Frame { bytes: line.into(), is_answer: false }
    }

    fn start() -> Self {
        // At the end of a thread its locals may be gone while turns and calls are dropped, which send messages.
        let mut bytes = SPARE.try_with(Cell::take).unwrap_or_default();
        bytes.reserve(INITIAL_BYTES);
        bytes.extend_from_slice(b"{\"jsonrpc\":\"2.0\"");
        Frame { bytes, is_answer: false }
    }

    fn answer(id: &RequestId) -> Self {
        let mut frame = Frame::start();
        frame.is_answer = true;
        frame.bytes.extend_from_slice(b",\"id\":");
        frame.bytes.extend_from_slice(id.token().as_bytes());
        frame
    }

    fn method(&mut self, method: &str) -> serde_json::Result<()> {
        self.member(",\"method\":", method)
    }

    fn member<T: Serialize + ?Sized>(&mut self, name: &str, value: &T) -> serde_json::Result<()> {
        self.bytes.extend_from_slice(name.as_bytes());
        json_writer::write(&mut self.bytes, value)
    }

    fn end(mut self) -> serde_json::Result<Self> {
        // Only a raw value from a user can contain line breaks. They are white space there, because a JSON
        // string must escape them.
        if memchr::memchr(b'\n', &self.bytes).is_some() {
            self.bytes.iter_mut().filter(|byte| **byte == b'\n').for_each(|byte| *byte = b' ');
        }
        self.bytes.extend_from_slice(b"}\n");
        Ok(self)
    }

    /// Returns true for a response.
    pub(crate) fn is_answer(&self) -> bool {
        self.is_answer
    }

    /// Returns the line with its line end.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Moves the line to a new frame.
    pub(crate) fn take(&mut self) -> Self {
        Frame { bytes: std::mem::take(&mut self.bytes), is_answer: self.is_answer }
    }

    /// Swaps the encoded line with an empty buffer.
    pub(crate) fn swap(&mut self, bytes: &mut Vec<u8>) {
        std::mem::swap(&mut self.bytes, bytes);
    }

    /// Returns the line without its line end.
    pub(crate) fn line(&self) -> &[u8] {
        self.bytes.strip_suffix(b"\n").unwrap_or(&self.bytes)
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        if (1..=SPARE_BYTES).contains(&self.bytes.capacity()) {
            self.bytes.clear();
            let _ = SPARE.try_with(|spare| spare.set(std::mem::take(&mut self.bytes)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::value::RawValue;

    #[test]
    fn messages_are_encoded_at_the_end_of_a_thread() {
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
            // Initialized first, so that it is dropped after the spare buffer.
            LAST.with(|_| {});
            drop(Frame::notification("first", &()).unwrap());
        });
        thread.join().unwrap();
    }

    #[test]
    fn a_frame_that_is_moved_stays_a_response() {
        let mut frames = [Frame::result(&RequestId::from(1), &()), Frame::notification("m", &())];
        let moved = frames.each_mut().map(|frame| frame.as_mut().unwrap().take().is_answer());
        assert_eq!(moved, [true, false]);
    }

    /// The buffer of a small frame is used again, and that of a large one is freed.
    #[test]
    fn only_small_buffers_are_kept() {
        for (bytes, is_kept) in [(100, true), (SPARE_BYTES, false)] {
            drop(SPARE.take());
            drop(Frame::notification("m", &"x".repeat(bytes)).unwrap());
            assert_eq!(SPARE.take().capacity() > 0, is_kept, "{bytes}");
        }
    }

    #[test]
    fn a_frame_is_always_one_line() {
        let pretty = RawValue::from_string("{\n \"a\": \"b\\n\"\n}".into()).unwrap();
        let frame = Frame::request(7, "m", &pretty).unwrap();
        assert_eq!(frame.line(), br#"{"jsonrpc":"2.0","id":7,"method":"m","params":{  "a": "b\n" }}"#);
    }

    #[test]
    fn ids_are_echoed_unchanged() {
        for token in ["0", "-7", "\"1\"", "\"\\u00e9\"", "null"] {
            let id = RequestId::from_token(token).unwrap();
            let line = String::from_utf8(Frame::result(&id, &()).unwrap().line().to_vec()).unwrap();
            assert_eq!(line, format!(r#"{{"jsonrpc":"2.0","id":{token},"result":null}}"#));
        }
    }
}
