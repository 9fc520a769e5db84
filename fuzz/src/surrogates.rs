//! The repair of halves of surrogate pairs: it leaves JSON, changes nothing else, and misses none.

use duologue_rpc::RpcMessage;
use serde::de::IgnoredAny;
use serde_json::Value;

use crate::marked::is_marked;

/// A line.
pub fn check(line: &[u8]) {
    let repaired = RpcMessage::repair(line);
    if let Some(repaired) = &repaired {
        assert_eq!(repaired.len(), line.len());
        assert_ne!(repaired, line);
        assert_eq!(RpcMessage::repair(repaired), None, "repaired twice");
        only_halves_changed(line, repaired);
    }
    // A reader that passes over strings does not look at what escapes mean.
    let Ok(text) = std::str::from_utf8(line) else { return };
    if serde_json::from_str::<IgnoredAny>(text).is_ok() && !is_marked(text) {
        match serde_json::from_slice::<Value>(repaired.as_deref().unwrap_or(line)) {
            Ok(_) => {}
            Err(error) => assert!(is_other_trouble(&error), "{error} after the repair"),
        }
    }
}

/// Returns true for errors about valid JSON that a tree cannot represent.
fn is_other_trouble(error: &serde_json::Error) -> bool {
    let error = error.to_string();
    error.starts_with("number out of range") || error.starts_with("recursion limit exceeded")
}

/// Every change is six bytes long: an escaped half before, `\ufffd` after.
fn only_halves_changed(line: &[u8], repaired: &[u8]) {
    let mut at = 0;
    while at < line.len() {
        let length = match (&line[at..], half(&line[at..])) {
            (_, Some(())) if line[at..at + 6] != repaired[at..at + 6] => {
                assert_eq!(&repaired[at..at + 6], b"\\ufffd");
                at += 6;
                continue;
            }
            ([b'\\', _, ..], _) => 2,
            _ => 1,
        };
        assert_eq!(line[at..at + length], repaired[at..at + length], "at {at}");
        at += length;
    }
}

/// Returns `Some` if the text begins with an escaped half of a surrogate pair.
fn half(line: &[u8]) -> Option<()> {
    let hex = std::str::from_utf8(line.strip_prefix(b"\\u")?.get(..4)?).ok()?;
    let unit = u16::from_str_radix(hex, 16).ok()?;
    (0xD800..=0xDFFF).contains(&unit).then_some(())
}
