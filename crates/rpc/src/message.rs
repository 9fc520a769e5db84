//! Parses a line to a JSON-RPC message that borrows from it.

use std::borrow::Cow;

use duologue_schema::{Error, RequestId};
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::json_scanner::{JsonScanner, JsonTokenKind};
use crate::limits::Limits;
use crate::raw_message::is_similar_name;
use crate::surrogates::{has_surrogate_escape, repair_surrogates};

/// A well-formed JSON-RPC message.
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
    /// A message that expects a response.
    Request {
        /// The id of the request.
        id: RequestId,
        /// The name of the method.
        method: Cow<'a, str>,
        /// The params; `null` counts as absent.
        params: Option<&'a RawValue>,
    },
    /// A message that expects no response.
    Notification {
        /// The name of the method.
        method: Cow<'a, str>,
        /// The params; `null` counts as absent.
        params: Option<&'a RawValue>,
    },
    /// The response to a request.
    Response {
        /// The id of the request. It can be a token that is not a legal id.
        id: &'a RawValue,
        /// The result or the error.
        outcome: ResponseOutcome<'a>,
    },
}

impl<'a> RpcMessage<'a> {
    /// Parses one line. Returns `None` for a blank line.
    ///
    /// # Errors
    ///
    /// [`Malformed`] if the line is not a message.
    #[must_use]
    pub fn read(line: &'a [u8], limits: &Limits) -> Option<Result<Self, Malformed>> {
        Self::read_line(line, limits, false)
    }

    /// Parses one line, as [`read`](Self::read), for a program that passes the line on. It refuses what other programs could
    /// take for another message: a member with the name of a member of JSON-RPC in another case, and a method beside a result
    /// or an error that is not null.
    ///
    /// # Errors
    ///
    /// [`Malformed`] if the line is not a message, or could be read as another one.
    #[must_use]
    pub fn read_strict(line: &'a [u8], limits: &Limits) -> Option<Result<Self, Malformed>> {
        Self::read_line(line, limits, true)
    }

    fn read_line(line: &'a [u8], limits: &Limits, is_strict: bool) -> Option<Result<Self, Malformed>> {
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
                Ok(_) => Error::invalid_request("a message must be a JSON object"),
                Err(_) => Error::parse_error("the line is not JSON"),
            };
            return Some(Err(Malformed::Noise(error)));
        }
        let Ok(mut envelope) = serde_json::from_str::<Envelope<'a>>(text) else {
            return Some(Err(Malformed::Noise(Error::parse_error("the line is not JSON"))));
        };
        if is_strict {
            envelope.refuse_other_readings();
        }
        // The id is repeated in the response, which must not exceed the limit of a line.
        let longest_id = Limits::ID_BYTES.min(limits.frame_bytes / 4);
        Some(envelope.classify(exceeded_limit(line, limits), longest_id))
    }

    /// Replaces each escaped half of a surrogate pair by `\ufffd`. Returns `None` if there are none.
    ///
    /// Programs that cut text between the UTF-16 units of a character write such halves. A connection
    /// repairs every line before it parses it.
    #[must_use]
    pub fn repair(line: &'a [u8]) -> Option<Vec<u8>> {
        if has_surrogate_escape(line) { repair_surrogates(line) } else { None }
    }
}

/// The outcome of a request, as its response states it.
#[derive(Debug)]
#[non_exhaustive]
pub enum ResponseOutcome<'a> {
    /// The request succeeded.
    Result(&'a RawValue),
    /// The request failed.
    Error(Error),
    /// The response contains neither a result nor a valid error.
    Unreadable(serde_json::Error),
    /// The message contains an id and nothing else: a response without its null result, or a request without its
    /// method.
    Missing(Error),
}

/// A line that is not a message. The variants differ in their answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Malformed {
    /// A line that is not JSON-RPC, such as a log line. Only agents answer it.
    #[error("{0}")]
    Noise(Error),
    /// An invalid request. The peer expects a response, so both sides answer it with the error.
    #[error("{1}")]
    Request(RequestId, Error),
    /// An invalid response or notification, which is never answered.
    #[error("{0}")]
    Silent(&'static str),
}

/// Returns the beginning of a notification whose members are in the usual order, up to its params.
pub(crate) fn fast_path_prefix(method: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":"#)
}

/// Returns the params of a notification if its line begins with `prefix`, up to the params, and they begin an object. `None`
/// is no statement about the line.
///
/// The params are not validated. If the returned text is one JSON value, then the line is a valid notification, because
/// a second member or a second message would make it more than one value.
#[must_use]
pub fn plain_params<'a>(line: &'a [u8], prefix: &str, limits: &Limits) -> Option<&'a str> {
    let params = line.strip_prefix(prefix.as_bytes())?.strip_suffix(b"}")?;
    let ordinary = params.first() == Some(&b'{')
        && !has_surrogate_escape(params)
        && exceeded_limit(line, limits).is_none();
    std::str::from_utf8(params).ok().filter(|_| ordinary)
}

/// The members of a JSON-RPC message as text, so that `null` differs from an absent member.
#[derive(Default)]
struct Envelope<'a> {
    jsonrpc: Option<&'a RawValue>,
    id: Option<&'a RawValue>,
    method: Option<&'a RawValue>,
    params: Option<&'a RawValue>,
    result: Option<&'a RawValue>,
    error: Option<&'a RawValue>,
    /// The reason why another reader can take the message for another one.
    ambiguity: Option<&'static str>,
    /// True if a member has the name of a member of JSON-RPC in another case.
    has_similar: bool,
}

impl<'a> Envelope<'a> {
    /// Notes the reason if a reader that ignores case, or that looks at the result first, reads another message.
    fn refuse_other_readings(&mut self) {
        let is_answer = [self.result, self.error].into_iter().flatten().any(|raw| raw.get() != "null");
        if self.has_similar {
            self.ambiguity = Some("a member has the name of a member of JSON-RPC in another case");
        } else if is_answer && self.method.is_some() {
            self.ambiguity = Some("a message with a method has no result and no error");
        }
    }

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
        let fault = if let Some(ambiguity) = self.ambiguity {
            Some(Error::invalid_request(ambiguity))
        } else if let Some(exceeded_limit) = exceeded_limit {
            Some(Error::invalid_request(exceeded_limit))
        } else if self.jsonrpc.is_none_or(|raw| string(raw).as_deref() != Some("2.0")) {
            Some(Error::invalid_request("jsonrpc must be \"2.0\""))
        } else if id == Some(None) {
            Some(Error::invalid_request(format!(
                "an id must be a string, an integer or null of at most {longest_id} bytes"
            )))
        } else {
            None
        };
        let method = string(method);
        let (Some(method), None) = (method, &fault) else {
            let error = fault.unwrap_or_else(|| Error::invalid_request("method must be a string"));
            return Err(match id {
                // The peer waits for a response even if its id is invalid. The error has the id `null` then.
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
            None => Err(Malformed::Silent("a notification whose params are neither an object nor an array")),
        }
    }

    fn response(
        self,
        exceeded_limit: Option<&'static str>,
        readable: Option<RequestId>,
    ) -> Result<RpcMessage<'a>, Malformed> {
        if let Some(ambiguity) = self.ambiguity {
            let is_response = self.result.is_some() || self.error.is_some();
            return Err(match is_response {
                true => Malformed::Silent(ambiguity),
                false => Malformed::Noise(Error::invalid_request(ambiguity)),
            });
        }
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
        if let Some(exceeded_limit) = exceeded_limit {
            // The caller gets an error, because no other response will arrive.
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

/// Returns the content of a JSON string, borrowed if it contains no escapes.
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
                Key::Similar | Key::Other => {
                    map.next_value::<serde::de::IgnoredAny>()?;
                    envelope.has_similar |= matches!(key, Key::Similar);
                    continue;
                }
            };
            let value: &RawValue = map.next_value()?;
            if slot.replace(value).is_some() {
                envelope.ambiguity = Some("a member of JSON-RPC occurs twice");
            }
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
    /// A name that is equal to one of the others for a reader that ignores case.
    Similar,
    Other,
}

/// The names of the members of a message.
const MEMBERS: [&str; 6] = ["jsonrpc", "id", "method", "params", "result", "error"];

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
                    _ if MEMBERS.iter().any(|member| is_similar_name(member, name)) => Key::Similar,
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

/// Returns the limit that the line exceeds, if any.
///
/// Deep nesting overflows the stack of a recursive decoder. Short values take more memory than text, see
/// [`Limits::values`].
fn exceeded_limit(line: &[u8], limits: &Limits) -> Option<&'static str> {
    // A line cannot have more levels than opening brackets, or more values than bytes.
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
            return Some("the message is nested too deeply (Limits::depth)");
        }
        if values > limits.values {
            return Some("the message has too many values (Limits::values)");
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> String {
        shown(RpcMessage::read(line.as_bytes(), &Limits::default()))
    }

    fn shown(message: Option<Result<RpcMessage<'_>, Malformed>>) -> String {
        match message {
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

    /// If both paths accept a line, they return the same params.
    #[test]
    fn the_fast_path_agrees_with_the_general_path() {
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
            let params = plain_params(line.as_bytes(), &start, &limits);
            let short = params.filter(|params| serde_json::from_str::<serde::de::IgnoredAny>(params).is_ok());
            assert_eq!(short.is_some(), expect, "{line}");
            let Some(short) = short else { continue };
            let Some(Ok(RpcMessage::Notification { method, params: Some(params) })) =
                RpcMessage::read(line.as_bytes(), &limits)
            else {
                panic!("{line}")
            };
            assert_eq!((&*method, params.get()), ("a", short.trim()));
        }
    }

    #[test]
    fn every_shape_of_line_is_classified() {
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
            (r#"{"jsonrpc":"2.0","id":null}"#, "noise -32600"),
            (r#"{"id":1}"#, "noise -32600"),
            (r#"{"jsonrpc":"2.0","id":1,"result":1,"result":2}"#, "silent"),
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
            (r#"{"jsonrpc":"2.0","id":1,"method":"a","result":{},"Method":"b"}"#, "request 1 a -"),
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
    fn a_line_that_is_passed_on_has_one_reading() {
        for (line, expect) in [
            (r#"{"jsonrpc":"2.0","method":"a","result":null,"x":1}"#, "notification a -"),
            (r#"{"jsonrpc":"2.0","id":1,"method":"a","result":{}}"#, "bad request 1 -32600"),
            (r#"{"jsonrpc":"2.0","method":"a","error":{}}"#, "noise -32600"),
            (r#"{"JSONRPC":"2.0","ID":1,"METHOD":"a"}"#, "noise -32600"),
            (r#"{"jsonrpc":"2.0","id":1,"method":"a","Method":"b"}"#, "bad request 1 -32600"),
            (r#"{"jsonrpc":"2.0","method":"a","paramſ":{}}"#, "noise -32600"),
            (r#"{"jsonrpc":"2.0","id":1,"Result":{}}"#, "noise -32600"),
            (r#"{"jsonrpc":"2.0","id":1,"result":{},"RESULT":{}}"#, "silent"),
        ] {
            let message = RpcMessage::read_strict(line.as_bytes(), &Limits::default());
            assert_eq!(shown(message), expect, "{line}");
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

    /// Counts byte by byte, as a reference for the scanner.
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
        fn strings_are_skipped_and_nothing_else(line in r#"(["\\\[\]{},a]|\\\\|\\"){0,40}"#) {
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
            matches!(RpcMessage::read(line.as_bytes(), &limits), Some(Ok(_)))
        };
        // The envelope has five, the list itself is one of them.
        let list = |values: usize| format!("[{}]", vec![r#""""#; values].join(","));
        assert!(read(&list(96)) && !read(&list(97)));
        assert!(read(&format!(r#"["{}"]"#, ",[".repeat(500))));
        let answer = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{}}}"#, list(200));
        let read = RpcMessage::read(answer.as_bytes(), &limits);
        assert!(matches!(
            read,
            Some(Ok(RpcMessage::Response { outcome: ResponseOutcome::Unreadable(error), .. }))
                if error.to_string() == "the message has too many values (Limits::values)"
        ));
    }

    /// The id is kept and repeated, so its length is limited: to a quarter of a line, and to 64 KiB.
    #[test]
    fn the_longest_id_is_exact() {
        for (frame_bytes, longest) in [(Limits::default().frame_bytes, Limits::ID_BYTES), (1000, 250)] {
            let limits = Limits { frame_bytes, ..Limits::default() };
            for (length, is_accepted) in [(longest, true), (longest + 1, false)] {
                let id = "x".repeat(length - 2);
                let line = format!(r#"{{"jsonrpc":"2.0","id":"{id}","method":"a"}}"#);
                match RpcMessage::read(line.as_bytes(), &limits) {
                    Some(Ok(RpcMessage::Request { .. })) => assert!(is_accepted, "{length}"),
                    Some(Err(Malformed::Request(id, error))) => {
                        assert!(!is_accepted && id == RequestId::null(), "{length}");
                        assert!(error.message.contains(&format!("at most {longest} bytes")), "{error}");
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
    }
}
