//! Our reading of a line beside a plain one that makes a tree of it: the same message, or the same refusal. And what it
//! says is written as `serde_json` writes it.

use std::collections::HashSet;

use duologue_rpc::{Limits, Malformed, ResponseOutcome, RpcMessage};
use duologue_schema::{Error, RequestId};
use serde_json::{Map, Value};

use crate::marked::is_marked;

/// A line, as far as both readings must agree.
#[derive(Debug, PartialEq)]
enum Read {
    Blank,
    Request { id: Value, method: String, params: Option<Value> },
    Notification { method: String, params: Option<Value> },
    Result { id: Value, result: Value },
    Error { id: Value, error: Box<Error> },
    Unreadable { id: Value },
    Missing { id: Value },
    BadRequest { id: Value, code: i64 },
    Noise { code: i64 },
    Silent,
}

/// The intended differences between the two parsers.
#[derive(Debug)]
enum Difference {
    /// A member of the envelope, or of its error, stands twice. A tree has the last; we refuse.
    Doubled,
    /// More levels than a tree takes. We take one more, and then refuse with the id where it can be read.
    Deep,
    /// A number that no double holds. It is the text's business until somebody reads it.
    Number,
    /// The key with which serde_json marks raw values, which its trees take for their own.
    Marked,
}

const PARSE_ERROR: i64 = -32700;
const INVALID_REQUEST: i64 = -32600;
const INVALID_PARAMS: i64 = -32602;

/// A line.
pub fn check(line: &[u8]) {
    // Both read what a connection reads: halves of characters are gone before (target `surrogates`).
    let repaired = RpcMessage::repair(line);
    let line = repaired.as_deref().unwrap_or(line);
    written(line);
    let Some(ours) = ours(line) else {
        assert!(difference(line).is_some(), "parts of a message that are no JSON");
        return;
    };
    let plain = plain(line);
    if ours != plain {
        let difference = difference(line);
        let allowed = match difference {
            Some(Difference::Doubled) => is_refusal(&ours),
            Some(Difference::Deep | Difference::Number) => plain == Read::Noise { code: PARSE_ERROR },
            Some(Difference::Marked) => true,
            None => false,
        };
        assert!(allowed, "{ours:?}, but plainly {plain:?} ({difference:?})");
    }
}

/// The line as a text, and what it means if it is JSON.
fn written(line: &[u8]) {
    let text = String::from_utf8_lossy(line);
    assert_eq!(duologue_rpc::fuzzing::written(&text).ok(), serde_json::to_vec(&text).ok());
    if let Ok(tree) = serde_json::from_slice::<Value>(line) {
        assert_eq!(duologue_rpc::fuzzing::written(&tree).ok(), serde_json::to_vec(&tree).ok());
    }
}

fn is_refusal(read: &Read) -> bool {
    matches!(
        read,
        Read::BadRequest { code: INVALID_REQUEST, .. }
            | Read::Noise { code: INVALID_REQUEST }
            | Read::Silent
            | Read::Unreadable { .. }
    )
}

/// `None` when a part is beyond what a tree can hold.
fn ours(line: &[u8]) -> Option<Read> {
    fn tree(json: &str) -> Option<Value> {
        serde_json::from_str(json).ok()
    }
    fn id(id: &RequestId) -> Option<Value> {
        tree(id.token())
    }
    Some(match RpcMessage::read(line, &Limits::default()) {
        None => Read::Blank,
        Some(Ok(RpcMessage::Request { id: token, method, params })) => {
            let params = match params {
                Some(params) => Some(tree(params.get())?),
                None => None,
            };
            Read::Request { id: id(&token)?, method: method.into_owned(), params }
        }
        Some(Ok(RpcMessage::Notification { method, params })) => {
            let params = match params {
                Some(params) => Some(tree(params.get())?),
                None => None,
            };
            Read::Notification { method: method.into_owned(), params }
        }
        Some(Ok(RpcMessage::Response { id, outcome })) => {
            let id = tree(id.get())?;
            match outcome {
                ResponseOutcome::Result(result) => Read::Result { id, result: tree(result.get())? },
                ResponseOutcome::Error(error) => Read::Error { id, error: error.into() },
                ResponseOutcome::Missing(_) => Read::Missing { id },
                _ => Read::Unreadable { id },
            }
        }
        Some(Err(Malformed::Request(token, error))) => {
            Read::BadRequest { id: id(&token)?, code: i64::from(error.code.0) }
        }
        Some(Err(Malformed::Noise(error))) => Read::Noise { code: i64::from(error.code.0) },
        Some(Err(_)) => Read::Silent,
        Some(Ok(other)) => panic!("a kind of message that is not compared: {other:?}"),
    })
}

/// JSON-RPC 2.0 and rule 4 of RFD 0002, over a tree.
fn plain(line: &[u8]) -> Read {
    let line = without_mark(line);
    if line.iter().all(|byte| b" \t\r\n".contains(byte)) {
        return Read::Blank;
    }
    match serde_json::from_slice(line) {
        Ok(Value::Object(members)) => message(members),
        Ok(_) => Read::Noise { code: INVALID_REQUEST },
        Err(_) => Read::Noise { code: PARSE_ERROR },
    }
}

fn without_mark(line: &[u8]) -> &[u8] {
    line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line)
}

fn message(mut members: Map<String, Value>) -> Read {
    let id = members.remove("id");
    let is_legal = id.as_ref().is_none_or(|id| id.is_string() || id.is_null() || id.as_i64().is_some());
    let legal = id.clone().filter(|_| is_legal);
    let Some(method) = members.remove("method") else {
        return response(members, id, legal);
    };
    let method = method.as_str().map(str::to_owned);
    let version = members.get("jsonrpc").and_then(Value::as_str) == Some("2.0");
    let (Some(method), true, true) = (method, version, is_legal) else {
        return match id {
            Some(_) => Read::BadRequest { id: legal.unwrap_or_default(), code: INVALID_REQUEST },
            None => Read::Noise { code: INVALID_REQUEST },
        };
    };
    let params = members.remove("params").filter(|params| !params.is_null());
    let structured = params.as_ref().is_none_or(|params| params.is_object() || params.is_array());
    match id {
        Some(id) if structured => Read::Request { id, method, params },
        Some(id) => Read::BadRequest { id, code: INVALID_PARAMS },
        None if structured => Read::Notification { method, params },
        None => Read::Silent,
    }
}

fn response(mut members: Map<String, Value>, id: Option<Value>, legal: Option<Value>) -> Read {
    let (result, error) = (members.remove("result"), members.remove("error"));
    if result.is_none() && error.is_none() {
        return match legal.filter(|id| !id.is_null() && members.contains_key("jsonrpc")) {
            Some(id) if members.contains_key("params") => Read::BadRequest { id, code: INVALID_REQUEST },
            Some(id) => Read::Missing { id },
            None => Read::Noise { code: INVALID_REQUEST },
        };
    }
    let Some(id) = id else { return Read::Silent };
    let error = error.filter(|error| !error.is_null());
    match (result, error) {
        (None | Some(Value::Null), Some(error)) => match serde_json::from_value(error) {
            Ok(error) => Read::Error { id, error: Box::new(error) },
            Err(_) => Read::Unreadable { id },
        },
        (Some(result), None) => Read::Result { id, result },
        _ => Read::Unreadable { id },
    }
}

/// Which difference is in the line, found without either reading.
fn difference(line: &[u8]) -> Option<Difference> {
    let line = without_mark(line);
    let text = std::str::from_utf8(line).ok()?;
    if let Err(error) = serde_json::from_str::<Value>(text) {
        let error = error.to_string();
        if error.starts_with("recursion limit") {
            return Some(Difference::Deep);
        }
        if error.starts_with("number out of range") {
            return Some(Difference::Number);
        }
    }
    if is_marked(text) {
        return Some(Difference::Marked);
    }
    is_doubled(text).then_some(Difference::Doubled)
}

/// Returns true if the object, or the object in its `error`, has a key twice.
fn is_doubled(text: &str) -> bool {
    let Ok(Keys(keys)) = serde_json::from_str(text) else { return false };
    let twice = |keys: &[(String, Value)]| {
        let mut seen = HashSet::new();
        keys.iter().any(|(key, _)| !seen.insert(key.clone()))
    };
    twice(&keys)
        || raw_error(text)
            .is_some_and(|error| serde_json::from_str(&error).is_ok_and(|Keys(keys)| twice(&keys)))
}

fn raw_error(text: &str) -> Option<String> {
    let members: std::collections::HashMap<String, &serde_json::value::RawValue> =
        serde_json::from_str(text).ok()?;
    Some(members.get("error")?.get().to_owned())
}

/// The members of an object, each as often as it stands there.
struct Keys(Vec<(String, Value)>);

impl<'de> serde::Deserialize<'de> for Keys {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Keys;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Keys, A::Error> {
                let mut keys = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    keys.push(entry);
                }
                Ok(Keys(keys))
            }
        }
        deserializer.deserialize_map(Visitor)
    }
}
