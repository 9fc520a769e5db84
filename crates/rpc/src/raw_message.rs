//! Finds members in the text of JSON objects, and writes the lines of messages. For programs that pass messages on
//! and keep everything in them that they do not change.
//!
//! ```
//! use duologue_rpc::raw_message::{member, splice};
//!
//! let line = br#"{"jsonrpc":"2.0","id":7,"method":"session/prompt","params":{"id":1}}"#;
//! let id = member(line, "id").expect("a request has an id");
//! assert_eq!(splice(line, id, b"\"q\"").as_deref(), Some(
//!     &br#"{"jsonrpc":"2.0","id":"q","method":"session/prompt","params":{"id":1}}"#[..]
//! ));
//! ```

use std::borrow::Cow;
use std::ops::Range;

use duologue_schema::Error as RpcError;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::json_scanner::{JsonScanner, JsonTokenKind};
pub use crate::message::plain_params;

/// Returns the text of a JSON string with its quotes, or `None` if it is not valid.
#[must_use]
pub fn text(quoted: &[u8]) -> Option<Cow<'_, str>> {
    let quoted = std::str::from_utf8(quoted).ok()?;
    if memchr::memchr(b'\\', quoted.as_bytes()).is_none() {
        return Some(Cow::Borrowed(quoted.strip_prefix('"')?.strip_suffix('"')?));
    }
    serde_json::from_str(quoted).ok().map(Cow::Owned)
}

/// Returns the beginning of a text, at most `limit` bytes, which ends between characters.
#[must_use]
pub fn beginning(text: &str, limit: usize) -> &str {
    let end = (0..=limit.min(text.len())).rev().find(|&end| text.is_char_boundary(end));
    end.and_then(|end| text.get(..end)).unwrap_or_default()
}

/// Returns true for a method of a transport (RFD 0017). Such a message is neither one of an agent nor of its client.
#[must_use]
pub fn is_of_transport(method: &str) -> bool {
    method.starts_with("stream/")
}

/// Returns the position of a member's value in the text of an object.
#[must_use]
pub fn member(object: &[u8], name: &str) -> Option<Range<usize>> {
    let mut scanner = JsonScanner::new(object);
    while let Some(token) = scanner.next() {
        if token.kind != JsonTokenKind::Key || scanner.depth() != 1 {
            continue;
        }
        if text(object.get(token.span)?).as_deref() != Some(name) {
            continue;
        }
        let first = scanner.next()?;
        let mut end = first.span.end;
        while scanner.depth() > 1 {
            end = scanner.next()?.span.end;
        }
        return Some(first.span.start..end);
    }
    None
}

/// Returns true if the names are equal for a reader that ignores case, as programs in Go do, or that also reads names with
/// underscores, as the official Python SDK does. Readers without case also take the long s and the sign of kelvin for `s`
/// and `k`.
#[must_use]
pub fn is_similar_name(a: &str, b: &str) -> bool {
    fn folded(name: &str) -> impl Iterator<Item = char> + '_ {
        name.chars().filter(|char| *char != '_').flat_map(char::to_uppercase).flat_map(char::to_lowercase)
    }
    folded(a).eq(folded(b))
}

/// Returns the names of the members of an object that a reader without case takes for one of `names`, each with that one.
pub fn similar_members<'a>(
    object: &'a [u8],
    names: &'a [&'a str],
) -> impl Iterator<Item = (Cow<'a, str>, &'a str)> + 'a {
    let mut scanner = JsonScanner::new(object);
    std::iter::from_fn(move || {
        while let Some(token) = scanner.next() {
            if token.kind != JsonTokenKind::Key || scanner.depth() != 1 {
                continue;
            }
            let Some(key) = object.get(token.span).and_then(text) else { continue };
            if let Some(name) = names.iter().find(|name| is_similar_name(name, &key)) {
                return Some((key, *name));
            }
        }
        None
    })
}

/// Returns true if an object has a member more than once. Readers of JSON do not agree on the one that counts.
#[must_use]
pub fn is_doubled(object: &[u8], name: &str) -> bool {
    // Only an escape `\u` can write a name in another way. A search is faster than a scan.
    let plain = memchr::memmem::find_iter(object, name.as_bytes()).take(2).count();
    if plain < 2 && memchr::memmem::find(object, b"\\u").is_none() {
        return false;
    }
    let mut scanner = JsonScanner::new(object);
    let mut count = 0;
    while let Some(token) = scanner.next() {
        if token.kind == JsonTokenKind::Key
            && scanner.depth() == 1
            && object.get(token.span).and_then(text).as_deref() == Some(name)
        {
            count += 1;
        }
    }
    count > 1
}

/// Returns the text of a member that is a string.
#[must_use]
pub fn member_text<'a>(object: &'a [u8], name: &str) -> Option<Cow<'a, str>> {
    text(object.get(member(object, name)?)?)
}

/// Returns the position of `part` within `whole`, if it borrows from it.
#[must_use]
pub fn position(whole: &[u8], part: &str) -> Option<Range<usize>> {
    let start = part.as_ptr().addr().checked_sub(whole.as_ptr().addr())?;
    let span = start..start.checked_add(part.len())?;
    (whole.get(span.clone())? == part.as_bytes()).then_some(span)
}

/// Replaces a part of a text.
#[must_use]
pub fn splice(whole: &[u8], part: Range<usize>, with: &[u8]) -> Option<Vec<u8>> {
    Some([whole.get(..part.start)?, with, whole.get(part.end..)?].concat())
}

#[derive(Serialize)]
struct Line<'a, P: Serialize + ?Sized> {
    jsonrpc: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    method: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    params: Option<&'a P>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a RpcError>,
}

fn encode<P: Serialize + ?Sized>(line: &Line<'_, P>) -> serde_json::Result<Vec<u8>> {
    let mut bytes = serde_json::to_vec(line)?;
    // Only a raw value can contain line breaks. They are white space there, because a JSON string escapes them.
    bytes.iter_mut().filter(|byte| **byte == b'\n').for_each(|byte| *byte = b' ');
    Ok(bytes)
}

fn ended(mut line: Vec<u8>) -> Vec<u8> {
    line.push(b'\n');
    line
}

/// Writes a request, or a notification without an id. The line ends with a line feed.
///
/// # Errors
///
/// If `params` cannot be serialized.
pub fn call_line<P: Serialize + ?Sized>(
    id: Option<&RawValue>,
    method: &str,
    params: &P,
) -> serde_json::Result<Vec<u8>> {
    call_frame(id, method, params).map(ended)
}

/// Writes a request, or a notification without an id, as a line without its end.
///
/// # Errors
///
/// If `params` cannot be serialized.
pub fn call_frame<P: Serialize + ?Sized>(
    id: Option<&RawValue>,
    method: &str,
    params: &P,
) -> serde_json::Result<Vec<u8>> {
    encode(&Line {
        jsonrpc: "2.0",
        id,
        method: Some(method),
        params: Some(params),
        result: None,
        error: None,
    })
}

/// Writes a response. The line ends with a line feed. `id` is a JSON token.
///
/// # Errors
///
/// If `id` is not JSON.
pub fn response_line(id: &str, outcome: Result<&RawValue, &RpcError>) -> serde_json::Result<Vec<u8>> {
    response_frame(id, outcome).map(ended)
}

/// Writes a response as a line without its end. `id` is a JSON token.
///
/// # Errors
///
/// If `id` is not JSON.
pub fn response_frame(id: &str, outcome: Result<&RawValue, &RpcError>) -> serde_json::Result<Vec<u8>> {
    let id: &RawValue = serde_json::from_str(id)?;
    encode(&Line::<()> {
        jsonrpc: "2.0",
        id: Some(id),
        method: None,
        params: None,
        result: outcome.ok(),
        error: outcome.err(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_between_characters() {
        for (limit, expected) in [(0, ""), (2, "ab"), (3, "ab"), (4, "abä"), (120, "abä")] {
            assert_eq!(beginning("abä", limit), expected);
        }
    }

    #[test]
    fn doubled_members_are_found() {
        for (object, expected) in [
            (r#"{"id":1,"id":2}"#, true),
            (r#"{"id":1,"\u0069d":2}"#, true),
            (r#"{"\u0069\u0064":1,"\u0069d":2}"#, true),
            (r#"{"id":"id","a":{"id":1}}"#, false),
            (r#"{"id":"\u0069d"}"#, false),
            (r#"[{"id":1,"id":2}]"#, false),
            ("{}", false),
        ] {
            assert_eq!(is_doubled(object.as_bytes(), "id"), expected, "{object}");
        }
    }

    #[test]
    fn similar_members_are_found() {
        let object = br#"{"cwd":{"Cwd":1},"CWD":2,"\u0063wd":3,"\u017fid":4,"cwds":5,"s_Id":6}"#;
        let found: Vec<_> = similar_members(object, &["cwd", "sid"]).collect();
        let found: Vec<_> = found.iter().map(|(key, name)| (&**key, *name)).collect();
        assert_eq!(
            found,
            [("cwd", "cwd"), ("CWD", "cwd"), ("cwd", "cwd"), ("\u{17f}id", "sid"), ("s_Id", "sid")]
        );
        assert_eq!(similar_members(b"[\"cwd\"]", &["cwd"]).count(), 0);
    }

    #[test]
    fn members_of_the_outer_object_are_found() {
        let object = br#" {"b":{"id":1},"x":["id",{"id":2}],"\u0069d" : {"a":[3]}, "id2":"\n"}"#;
        assert_eq!(object.get(member(object, "id").unwrap()), Some(&br#"{"a":[3]}"#[..]));
        assert_eq!(member_text(object, "id2").as_deref(), Some("\n"));
        assert_eq!(member(object, "a"), None);
        assert_eq!(member(b"[\"id\",1]", "id"), None);
        assert_eq!(member(b"{\"id\":", "id"), None);
    }
}
