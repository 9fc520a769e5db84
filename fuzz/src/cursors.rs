//! Cursors: in messages, in their text, and in the position of a client.

use duologue_http::StreamPosition;
use duologue_http::fuzzing::{SentFrames, cursor_of};
use duologue_store::LogCursor;
use serde_json::Value;

use crate::marked::is_marked;

/// The text of a cursor, a line end, and messages of a server, one a line.
pub fn check(input: &[u8]) {
    let end = input.iter().position(|byte| *byte == b'\n').unwrap_or(input.len());
    let text = String::from_utf8_lossy(&input[..end]);
    if let Ok(cursor) = text.parse::<LogCursor>() {
        assert_eq!(cursor.to_string().parse(), Ok(cursor), "{text}");
    }

    // The lines of an agent are repaired before they get there.
    let text_of_messages = String::from_utf8_lossy(input.get(end + 1..).unwrap_or_default());
    let messages: Vec<&str> = text_of_messages.split('\n').collect();
    let mut sent = SentFrames::new(messages.iter().map(|message| message.as_bytes()));
    let frames = sent.take_all();
    assert_eq!(frames.len(), messages.len());
    for (message, (frame, cursor)) in messages.iter().zip(&frames) {
        let Some(cursor) = cursor else {
            match cursor_of(message.as_bytes()) {
                // A cursor that is no text is removed too.
                None if message.contains("acp/cursor") || message.contains('\\') => {}
                None => assert_eq!(frame, message.as_bytes(), "a frame without a cursor is the message"),
                Some(_) => assert_eq!(cursor_of(frame), None, "a cursor of another connection is removed"),
            }
            continue;
        };
        if let (Ok(before), false) = (serde_json::from_str::<Value>(message), is_marked(message)) {
            has_cursor(&before, frame, cursor);
        }
    }

    // Any position is refused, or leads to the last frames.
    let position =
        |cursor: &str, frames| StreamPosition { session_id: None, cursor: Some(cursor.into()), frames };
    for count in [0, 1, u64::MAX] {
        if sent.resume(&[position(&text, count)]) {
            let number: u64 = text.parse().expect("a cursor of this server is a number");
            let rest = sent.take_all();
            assert!(frames.ends_with(&rest), "{text}");
            assert!(number.checked_add(count).is_some_and(|number| number <= frames.len() as u64));
        }
    }
    assert!(sent.resume(&[]), "a client that has received nothing");
    assert_eq!(sent.take_all(), frames);
}

/// Asserts that a frame is the message with this cursor, and nothing else.
fn has_cursor(before: &Value, frame: &[u8], cursor: &str) {
    let after: Value = serde_json::from_slice(frame).expect("the message is JSON with its cursor too");
    let part = if after.get("method").is_some() { "params" } else { "result" };
    // A member that is there twice has one of its two values.
    if after.pointer(&format!("/{part}/_meta/acp~1cursor")).is_none_or(|found| found != cursor) {
        return;
    }
    assert_eq!(cursor_of(frame).as_deref(), Some(cursor));
    let mut expected = before.clone();
    let meta = &mut expected[part]["_meta"];
    if !meta.is_object() {
        *meta = Value::Object(Default::default());
    }
    meta["acp/cursor"] = cursor.into();
    assert_eq!(after, expected);
}
