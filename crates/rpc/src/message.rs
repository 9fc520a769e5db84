//! One line, read as one JSON-RPC message that borrows from it.

use std::borrow::Cow;

use duologue_schema::{Error, RequestId};
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::json_scanner::{JsonScanner, JsonTokenKind};
use crate::limits::Limits;
use crate::surrogates::{has_surrogate_escape, repair_surrogates};

/// A well-formed message, as every connection of this crate reads it.
///
/// ```
/// use duologue_rpc::{Limits, RpcMessage};
///
/// let line = br#"{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"s"}}"#;
/// let Some(Ok(RpcMessage::Notification { method, .. })) = RpcMessage::read(line, &Limits::default()) else {
///     panic!("a notification");
/// };
/// assert_eq!(method, "session/cancel");
/// assert!(RpcMessage::read(b" \r", &Limits::default()).is_none(), "blank");
/// assert!(matches!(RpcMessage::read(b"npm WARN", &Limits::default()), Some(Err(_))));
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum RpcMessage<'a> {
    /// Somebody waits for an answer.
    Request {
        /// Names the request in its answer.
        id: RequestId,
        /// What is asked.
        method: Cow<'a, str>,
        /// About what; `null` counts as left out.
        params: Option<&'a RawValue>,
    },
    /// Nobody waits for an answer.
    Notification {
        /// What is told.
        method: Cow<'a, str>,
        /// About what; `null` counts as left out.
        params: Option<&'a RawValue>,
    },
    /// The answer to a request.
    Response {
        /// The request it answers; not always one that could have been asked.
        id: &'a RawValue,
        /// What it says.
        outcome: ResponseOutcome<'a>,
    },
}

impl<'a> RpcMessage<'a> {
    /// Reads one line. A blank line is `None`.
    ///
    /// # Errors
    ///
    /// [`Malformed`] when the line is no message.
    #[must_use]
    pub fn read(line: &'a [u8], limits: &Limits) -> Option<Result<Self, Malformed>> {
        decode(line, limits)
    }

    /// The line as a connection reads it, if that is not how it stands: half of a surrogate pair, as
    /// programs write it that cut text in the middle of a character, is read as `\ufffd`.
    #[must_use]
    pub fn repair(line: &'a [u8]) -> Option<Vec<u8>> {
        if has_surrogate_escape(line) { repair_surrogates(line) } else { None }
    }
}

/// What a response says.
#[derive(Debug)]
#[non_exhaustive]
pub enum ResponseOutcome<'a> {
    /// It worked.
    Result(&'a RawValue),
    /// It did not.
    Error(Error),
    /// Neither a result nor an error that can be read.
    Unreadable(serde_json::Error),
    /// An id and nothing else: a null result that was left out, or a request without its method.
    Missing(Error),
}

/// Why a line is no message, and what a connection does about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Malformed {
    /// Not addressed to anybody: logs, banners, fragments. Answered by agents only.
    #[error("{0}")]
    Noise(Error),
    /// A request by its shape: somebody waits, so it is answered on both sides.
    #[error("{1}")]
    Request(RequestId, Error),
    /// A response or notification by its shape: never answered.
    #[error("{0}")]
    Silent(&'static str),
}

/// Reads one line. A blank line is `None`.
pub(crate) fn decode<'a>(line: &'a [u8], limits: &Limits) -> Option<Result<RpcMessage<'a>, Malformed>> {
    let line = trim(line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line));
    if line.is_empty() {
        return None;
    }
    let Ok(text) = std::str::from_utf8(line) else {
        return Some(Err(Malformed::Noise(Error::parse_error("the line is not UTF-8"))));
    };
    if !text.starts_with('{') {
        let error = match serde_json::from_str::<&RawValue>(text) {
            Ok(_) if text.starts_with('[') => {
                Error::invalid_request("JSON arrays (batches) are not supported")
            }
            Ok(_) => Error::invalid_request("a message is a JSON object"),
            Err(_) => Error::parse_error("the line is not JSON"),
        };
        return Some(Err(Malformed::Noise(error)));
    }
    let Ok(envelope) = serde_json::from_str::<Envelope<'a>>(text) else {
        return Some(Err(Malformed::Noise(Error::parse_error("the line is not JSON"))));
    };
    // An answer has to hold the id, so it must leave room for the rest.
    let longest_id = Limits::ID_BYTES.min(limits.frame_bytes / 4);
    Some(envelope.classify(exceeded_limit(line, limits), longest_id))
}

/// How a notification begins in the order in which most peers write its members.
pub(crate) fn fast_path_prefix(method: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":"#)
}

/// What stands where the params of a notification stand, if its line has the usual `start` and they begin an object:
/// its params, provided that this is one JSON value. Anything else is more than that: a second member, a second message.
pub(crate) fn fast_path_params<'a>(line: &'a [u8], start: &str, limits: &Limits) -> Option<&'a str> {
    let params = line.strip_prefix(start.as_bytes())?.strip_suffix(b"}")?;
    let ordinary = params.first() == Some(&b'{')
        && !has_surrogate_escape(params)
        && exceeded_limit(line, limits).is_none();
    std::str::from_utf8(params).ok().filter(|_| ordinary)
}

/// The members of a JSON-RPC message, each still as text, so that `null` and absent stay apart.
#[derive(Default)]
struct Envelope<'a> {
    jsonrpc: Option<&'a RawValue>,
    id: Option<&'a RawValue>,
    method: Option<&'a RawValue>,
    params: Option<&'a RawValue>,
    result: Option<&'a RawValue>,
    error: Option<&'a RawValue>,
    duplicate: bool,
}

impl<'a> Envelope<'a> {
    fn classify(
        self,
        exceeded_limit: Option<&'static str>,
        longest_id: usize,
    ) -> Result<RpcMessage<'a>, Malformed> {
        let readable = self.id.filter(|raw| raw.get().len() <= longest_id);
        let id = self.id.map(|_| readable.and_then(|raw| RequestId::from_token(raw.get())));
        let Some(method) = self.method else {
            return self.response(exceeded_limit, id.flatten());
        };
        let fault = if self.duplicate {
            Some(Error::invalid_request("a member of the envelope stands twice"))
        } else if let Some(exceeded_limit) = exceeded_limit {
            Some(Error::invalid_request(exceeded_limit))
        } else if self.jsonrpc.is_none_or(|raw| string(raw).as_deref() != Some("2.0")) {
            Some(Error::invalid_request("jsonrpc must be \"2.0\""))
        } else if id == Some(None) {
            Some(Error::invalid_request("an id is a string, an integer or null, and not long"))
        } else {
            None
        };
        let method = string(method);
        let (Some(method), None) = (method, &fault) else {
            let error = fault.unwrap_or_else(|| Error::invalid_request("method must be a string"));
            return Err(match id {
                // Without a legal id the answer carries null, but it is still somebody's request.
                Some(id) => Malformed::Request(id.unwrap_or_else(RequestId::null), error),
                None => Malformed::Noise(error),
            });
        };
        let params = self.params.filter(|raw| raw.get() != "null");
        let structured = params.is_none_or(|raw| raw.get().starts_with(['{', '[']));
        match id.flatten() {
            Some(id) if structured => Ok(RpcMessage::Request { id, method, params }),
            Some(id) => {
                Err(Malformed::Request(id, Error::invalid_params("params must be an object or an array")))
            }
            None if structured => Ok(RpcMessage::Notification { method, params }),
            None => Err(Malformed::Silent("a notification whose params are neither object nor array")),
        }
    }

    fn response(
        self,
        exceeded_limit: Option<&'static str>,
        readable: Option<RequestId>,
    ) -> Result<RpcMessage<'a>, Malformed> {
        let error = self.error.filter(|raw| raw.get() != "null");
        if self.result.is_none() && self.error.is_none() {
            let error = Error::invalid_request("neither a request nor a response");
            return match (readable, self.id) {
                (Some(id), Some(raw)) if self.jsonrpc.is_some() && id != RequestId::null() => {
                    if self.params.is_some() {
                        return Err(Malformed::Request(id, error));
                    }
                    Ok(RpcMessage::Response { id: raw, outcome: ResponseOutcome::Missing(error) })
                }
                _ => Err(Malformed::Noise(error)),
            };
        }
        let Some(id) = self.id else {
            return Err(Malformed::Silent("a response without an id"));
        };
        if self.duplicate {
            return Err(Malformed::Silent("a response with a doubled member"));
        }
        if let Some(exceeded_limit) = exceeded_limit {
            // Whoever asked is told, and does not wait for an answer that has come.
            let outcome = ResponseOutcome::Unreadable(serde::de::Error::custom(exceeded_limit));
            return Ok(RpcMessage::Response { id, outcome });
        }
        let outcome = match (self.result, error) {
            (_, Some(error)) if self.result.is_none_or(|raw| raw.get() == "null") => {
                match serde_json::from_str(error.get()) {
                    Ok(error) => ResponseOutcome::Error(error),
                    Err(error) => ResponseOutcome::Unreadable(error),
                }
            }
            (Some(result), None) => ResponseOutcome::Result(result),
            _ => ResponseOutcome::Unreadable(serde::de::Error::custom(
                "a response needs a result or an error, not both",
            )),
        };
        Ok(RpcMessage::Response { id, outcome })
    }
}

/// The content of a JSON string, borrowed when it holds no escapes.
fn string(raw: &RawValue) -> Option<Cow<'_, str>> {
    let inner = raw.get().strip_prefix('"')?.strip_suffix('"')?;
    if memchr::memchr(b'\\', inner.as_bytes()).is_none() {
        return Some(Cow::Borrowed(inner));
    }
    serde_json::from_str(raw.get()).ok().map(Cow::Owned)
}

impl<'de: 'a, 'a> Deserialize<'de> for Envelope<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(EnvelopeVisitor)
    }
}

struct EnvelopeVisitor;

impl<'de> Visitor<'de> for EnvelopeVisitor {
    type Value = Envelope<'de>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Envelope<'de>, A::Error> {
        let mut envelope = Envelope::default();
        while let Some(key) = map.next_key::<Key>()? {
            let slot = match key {
                Key::Jsonrpc => &mut envelope.jsonrpc,
                Key::Id => &mut envelope.id,
                Key::Method => &mut envelope.method,
                Key::Params => &mut envelope.params,
                Key::Result => &mut envelope.result,
                Key::Error => &mut envelope.error,
                Key::Other => {
                    map.next_value::<serde::de::IgnoredAny>()?;
                    continue;
                }
            };
            let value: &RawValue = map.next_value()?;
            envelope.duplicate |= slot.replace(value).is_some();
        }
        Ok(envelope)
    }
}

enum Key {
    Jsonrpc,
    Id,
    Method,
    Params,
    Result,
    Error,
    Other,
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct KeyVisitor;
        impl Visitor<'_> for KeyVisitor {
            type Value = Key;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a member name")
            }
            fn visit_str<E>(self, name: &str) -> Result<Key, E> {
                Ok(match name {
                    "jsonrpc" => Key::Jsonrpc,
                    "id" => Key::Id,
                    "method" => Key::Method,
                    "params" => Key::Params,
                    "result" => Key::Result,
                    "error" => Key::Error,
                    _ => Key::Other,
                })
            }
        }
        deserializer.deserialize_identifier(KeyVisitor)
    }
}

fn trim(mut line: &[u8]) -> &[u8] {
    while let [b' ' | b'\t' | b'\r' | b'\n', rest @ ..] | [rest @ .., b' ' | b'\t' | b'\r' | b'\n'] = line {
        line = rest;
    }
    line
}

/// What of a line is more than is read: levels, which a program that recurses would pay for with its stack, or values,
/// of which three bytes can become a hundred.
fn exceeded_limit(line: &[u8], limits: &Limits) -> Option<&'static str> {
    // There are no more levels than brackets, and no more values than bytes.
    let shallow = memchr::memchr2_iter(b'[', b'{', line).nth(limits.depth).is_none();
    if shallow && line.len() <= limits.values {
        return None;
    }
    let mut values = 0;
    let mut tokens = JsonScanner::new(line);
    while let Some(token) = tokens.next() {
        values += usize::from(matches!(
            token.kind,
            JsonTokenKind::ObjectStart | JsonTokenKind::ArrayStart | JsonTokenKind::Comma
        ));
        if tokens.depth() > limits.depth {
            return Some("the message is nested too deeply");
        }
        if values > limits.values {
            return Some("the message has too many values");
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> String {
        match decode(line.as_bytes(), &Limits::default()) {
            None => "blank".into(),
            Some(Ok(RpcMessage::Request { id, method, params })) => {
                format!("request {id} {method} {}", params.map_or("-", RawValue::get))
            }
            Some(Ok(RpcMessage::Notification { method, params })) => {
                format!("notification {method} {}", params.map_or("-", RawValue::get))
            }
            Some(Ok(RpcMessage::Response { id, outcome })) => match outcome {
                ResponseOutcome::Result(result) => format!("result {id} {result}"),
                ResponseOutcome::Error(error) => format!("error {id} {error}"),
                ResponseOutcome::Unreadable(_) => format!("unreadable {id}"),
                ResponseOutcome::Missing(_) => format!("missing {id}"),
            },
            Some(Err(Malformed::Noise(error))) => format!("noise {}", error.code.0),
            Some(Err(Malformed::Request(id, error))) => format!("bad request {id} {}", error.code.0),
            Some(Err(Malformed::Silent(_))) => "silent".into(),
        }
    }

    /// Both ways of reading say the same of what both take.
    #[test]
    fn the_short_way_takes_nothing_that_the_long_one_reads_otherwise() {
        let (limits, start) = (Limits { depth: 4, values: 200, ..Limits::default() }, fast_path_prefix("a"));
        let lines = [
            (r#"{"a":1}}"#, true),
            (r#"{"a":[1,"\u00e4","\ud83e\udd80"]} }"#, false),
            (r#"{"a":[1,"\u00e4"]}}"#, true),
            (r#"[1] }"#, false),
            (r#" {"a":1}}"#, false),
            (r#"{"a":1},"id":3}"#, false),
            (r#"{"a":1},"params":{"a":2}}"#, false),
            (r#"{"a":1}} {"a":2}}"#, false),
            (r#"{"a":1}"#, false),
            (r#"{"a":[[[1]]]}}"#, false),
            (r#"{"a":"\ud83e"}}"#, false),
            ("{\"a\":\"\u{1}\"}}", false),
        ];
        for (end, expect) in lines {
            let line = format!("{start}{end}");
            let params = fast_path_params(line.as_bytes(), &start, &limits);
            let short = params.filter(|params| serde_json::from_str::<serde::de::IgnoredAny>(params).is_ok());
            assert_eq!(short.is_some(), expect, "{line}");
            let Some(short) = short else { continue };
            let Some(Ok(RpcMessage::Notification { method, params: Some(params) })) =
                decode(line.as_bytes(), &limits)
            else {
                panic!("{line}")
            };
            assert_eq!((&*method, params.get()), ("a", short.trim()));
        }
    }

    #[test]
    fn every_shape_of_line_has_its_place() {
        for (line, expect) in [
            ("", "blank"),
            (" \t\r", "blank"),
            ("\u{feff}", "blank"),
            ("\u{feff}{\"jsonrpc\":\"2.0\",\"method\":\"a\"}", "notification a -"),
            (r#"{"jsonrpc":"2.0","id":1,"method":"a","params":{}}"#, "request 1 a {}"),
            (
                r#"{"params":[1],"method":"session\/x","id":"1","jsonrpc":"2.0"}"#,
                r#"request "1" session/x [1]"#,
            ),
            (r#"{"jsonrpc":"2.0","id":null,"method":"a"}"#, "request null a -"),
            (r#"{"jsonrpc":"2.0","method":"a","params":null}"#, "notification a -"),
            (r#"{"jsonrpc":"2.0","\u0069d":7,"method":"a"}"#, "request 7 a -"),
            (r#"{"jsonrpc":"2.0","id":1,"result":null}"#, "result 1 null"),
            (r#"{"jsonrpc":"2.0","id":1,"result":{},"error":null}"#, "result 1 {}"),
            (
                r#"{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"m","x":1},"result":null}"#,
                "error 1 m (-1)",
            ),
            (r#"{"jsonrpc":"2.0","id":1,"error":null}"#, "unreadable 1"),
            (r#"{"jsonrpc":"2.0","id":1,"error":"boom"}"#, "unreadable 1"),
            (r#"{"jsonrpc":"2.0","id":1,"result":1,"error":{"code":1,"message":""}}"#, "unreadable 1"),
            (r#"{"jsonrpc":"2.0","error":{"code":1,"message":""}}"#, "silent"),
            (r#"{"jsonrpc":"2.0","id":1}"#, "missing 1"),
            (r#"{"jsonrpc":"2.0","id":1,"params":{}}"#, "bad request 1 -32600"),
            (r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"a"}"#, "bad request 2 -32600"),
            (r#"{"jsonrpc":"2.0","id":1.5,"method":"a"}"#, "bad request null -32600"),
            (r#"{"jsonrpc":"2.0","id":true,"method":"a"}"#, "bad request null -32600"),
            (r#"{"id":1,"method":"a"}"#, "bad request 1 -32600"),
            (r#"{"jsonrpc":"2.0","id":1,"method":null}"#, "bad request 1 -32600"),
            (r#"{"jsonrpc":"2.0","id":1,"method":"a","params":7}"#, "bad request 1 -32602"),
            (r#"{"jsonrpc":"2.0","method":"a","params":7}"#, "silent"),
            (r#"{"jsonrpc":"2.0","method":7}"#, "noise -32600"),
            (r#"{"JSONRPC":"2.0","ID":1,"METHOD":"a"}"#, "noise -32600"),
            ("{}", "noise -32600"),
            ("[]", "noise -32600"),
            ("null", "noise -32600"),
            ("[{]", "noise -32700"),
            ("{", "noise -32700"),
            ("npm WARN x", "noise -32700"),
            ("2026-01-02 starting", "noise -32700"),
            (r#"{"jsonrpc":"2.0","method":"a"} x"#, "noise -32700"),
            (r#"{"jsonrpc":"2.0","method":"a","params":{"x":NaN}}"#, "noise -32700"),
        ] {
            assert_eq!(read(line), expect, "{line}");
        }
    }

    #[test]
    fn depth_is_counted_outside_strings() {
        let nested = |n: usize| {
            format!(r#"{{"jsonrpc":"2.0","id":1,"method":"a","params":{}{}}}"#, "[".repeat(n), "]".repeat(n))
        };
        assert!(read(&nested(127)).starts_with("request"));
        assert_eq!(read(&nested(128)), "bad request 1 -32600");
        assert_eq!(read(&nested(1_000_000)), "bad request 1 -32600");
        let text = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"a","params":["{}\""]}}"#, "[".repeat(500));
        assert!(read(&text).starts_with("request"));
    }

    /// Byte by byte, which is what skipping texts must come to.
    fn counted(line: &str) -> (usize, usize) {
        let (mut depth, mut deepest, mut values, mut in_text, mut escaped) = (0usize, 0, 0, false, false);
        for byte in line.bytes() {
            match byte {
                _ if escaped => escaped = false,
                b'\\' if in_text => escaped = true,
                b'"' => in_text = !in_text,
                _ if in_text => {}
                b'[' | b'{' => (depth, values) = (depth + 1, values + 1),
                b']' | b'}' => depth = depth.saturating_sub(1),
                b',' => values += 1,
                _ => {}
            }
            deepest = deepest.max(depth);
        }
        (deepest, values)
    }

    proptest::proptest! {
        #[test]
        fn texts_are_skipped_and_nothing_else(line in r#"(["\\\[\]{},a]|\\\\|\\"){0,40}"#) {
            let (depth, values) = counted(&line);
            let is_exceeded = |depth, values| {
                exceeded_limit(line.as_bytes(), &Limits { depth, values, ..Limits::default() }).is_some()
            };
            proptest::prop_assert!(!is_exceeded(depth, values));
            proptest::prop_assert!(depth == 0 || is_exceeded(depth - 1, values));
            proptest::prop_assert!(values == 0 || is_exceeded(depth, values - 1));
        }
    }

    #[test]
    fn values_are_counted_outside_strings() {
        let limits = Limits { values: 100, ..Limits::default() };
        let read = |params: &str| {
            let line = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"a","params":{params}}}"#);
            matches!(decode(line.as_bytes(), &limits), Some(Ok(_)))
        };
        // The envelope has five, the list itself is one of them.
        let list = |values: usize| format!("[{}]", vec![r#""""#; values].join(","));
        assert!(read(&list(96)) && !read(&list(97)));
        assert!(read(&format!(r#"["{}"]"#, ",[".repeat(500))));
        let answer = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{}}}"#, list(200));
        let read = decode(answer.as_bytes(), &limits);
        assert!(matches!(
            read,
            Some(Ok(RpcMessage::Response { outcome: ResponseOutcome::Unreadable(error), .. }))
                if error.to_string() == "the message has too many values"
        ));
    }
}
