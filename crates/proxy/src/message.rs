//! The message that a stage sees.

use std::borrow::Cow;
use std::cell::OnceCell;

use duologue_rpc::raw_message::{call_line, member, member_text, position, response_line, splice};
use duologue_rpc::{Limits, Malformed, ResponseOutcome, RpcMessage};
use duologue_schema::{Error as RpcError, Notification, Request, RequestId, params_fault};
use duologue_transcript::LineEnd;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::stage::{Decision, Replacement};

/// The characters that end a line in some programs.
const LINE_ENDS: [char; 6] = ['\r', '\u{b}', '\u{c}', '\u{85}', '\u{2028}', '\u{2029}'];

/// Returns true for a character that some programs remove in front of a message: spaces, control characters, the byte order
/// mark and its relatives, and bytes that are no UTF-8.
fn is_removed(c: char) -> bool {
    c.is_whitespace() || c.is_control() || matches!(c, '\u{180e}' | '\u{200b}' | '\u{feff}' | '\u{fffd}')
}

/// A line between the client and the agent, as a [`ProxyStage`](crate::ProxyStage) sees it.
///
/// It is parsed when a stage first looks at it, once for all stages. A line that is not a JSON-RPC message
/// [is invalid](Self::is_invalid), and has neither a method nor an id.
#[derive(Debug)]
pub struct StageMessage<'a> {
    /// The line with its end.
    raw: &'a [u8],
    limits: &'a Limits,
    parsed: OnceCell<Option<Result<RpcMessage<'a>, Malformed>>>,
}

impl<'a> StageMessage<'a> {
    pub(crate) fn new(raw: &'a [u8], limits: &'a Limits) -> Self {
        StageMessage { raw, limits, parsed: OnceCell::new() }
    }

    fn parsed(&self) -> Option<&RpcMessage<'a>> {
        self.read()?.as_ref().ok()
    }

    fn read(&self) -> Option<&Result<RpcMessage<'a>, Malformed>> {
        self.parsed.get_or_init(|| RpcMessage::read(self.line(), self.limits)).as_ref()
    }

    pub(crate) fn raw(&self) -> &'a [u8] {
        self.raw
    }

    pub(crate) fn limits(&self) -> &'a Limits {
        self.limits
    }

    /// Returns the unchanged line without its end. It may not be UTF-8.
    #[must_use]
    pub fn line(&self) -> &'a [u8] {
        let line = self.raw.strip_suffix(b"\n").unwrap_or(self.raw);
        line.strip_suffix(b"\r").unwrap_or(line)
    }

    pub(crate) fn end(&self) -> LineEnd {
        match self.raw {
            [.., b'\r', b'\n'] => LineEnd::CrLf,
            [.., b'\n'] => LineEnd::Lf,
            _ => LineEnd::None,
        }
    }

    /// Returns the method of a request or a notification.
    #[must_use]
    pub fn method(&self) -> Option<&str> {
        match self.parsed()? {
            RpcMessage::Request { method, .. } | RpcMessage::Notification { method, .. } => Some(method),
            _ => None,
        }
    }

    /// Returns the id of a request or a response, as its JSON token.
    #[must_use]
    pub fn id(&self) -> Option<&str> {
        match self.parsed()? {
            RpcMessage::Request { id, .. } => Some(id.token()),
            RpcMessage::Response { id, .. } => Some(id.get()),
            _ => None,
        }
    }

    /// Returns the params of a request or a notification; `null` counts as absent.
    #[must_use]
    pub fn params(&self) -> Option<&'a RawValue> {
        match self.parsed()? {
            RpcMessage::Request { params, .. } | RpcMessage::Notification { params, .. } => *params,
            _ => None,
        }
    }

    /// Returns the result of a response.
    #[must_use]
    pub fn result(&self) -> Option<&'a RawValue> {
        match self.parsed()? {
            RpcMessage::Response { outcome: ResponseOutcome::Result(result), .. } => Some(result),
            _ => None,
        }
    }

    /// Returns the error of a response.
    #[must_use]
    pub fn error(&self) -> Option<&RpcError> {
        match self.parsed()? {
            RpcMessage::Response { outcome: ResponseOutcome::Error(error), .. } => Some(error),
            _ => None,
        }
    }

    /// Returns the id of the session that the params name.
    #[must_use]
    pub fn session_id(&self) -> Option<Cow<'a, str>> {
        member_text(self.params()?.get().as_bytes(), "sessionId")
    }

    /// Returns true for a message that expects a response.
    #[must_use]
    pub fn is_request(&self) -> bool {
        matches!(self.parsed(), Some(RpcMessage::Request { .. }))
    }

    /// Returns true for a message that expects no response.
    #[must_use]
    pub fn is_notification(&self) -> bool {
        matches!(self.parsed(), Some(RpcMessage::Notification { .. }))
    }

    /// Returns true for the response to a request.
    #[must_use]
    pub fn is_response(&self) -> bool {
        matches!(self.parsed(), Some(RpcMessage::Response { .. }))
    }

    /// Returns true for a line that is not a JSON-RPC message, such as a log line or a blank line.
    #[must_use]
    pub fn is_invalid(&self) -> bool {
        self.parsed().is_none()
    }

    /// Returns true for a line that another program may read as other messages than this crate does. A stage that restricts
    /// something drops such a line:
    ///
    /// - an object or an array that is not a message here
    /// - the same behind characters that some programs remove, such as a byte order mark, a no-break space or a NUL
    /// - the same behind another line end, such as a carriage return
    /// - a message with a carriage return in it, which is a line end elsewhere
    /// - a message with a member of JSON-RPC in another case, or with a method beside a result or an error
    #[must_use]
    pub fn is_suspect(&self) -> bool {
        let line = self.line();
        if !self.is_invalid() {
            let has_other_reading = matches!(RpcMessage::read_strict(line, self.limits), Some(Err(_)));
            return has_other_reading || memchr::memchr(b'\r', line.trim_ascii()).is_some();
        }
        let starts = |part: &str| part.trim_start_matches(is_removed).starts_with(['{', '[']);
        String::from_utf8_lossy(line).split(LINE_ENDS).any(starts)
    }

    /// Returns the error for the sender of an invalid request.
    pub(crate) fn invalid_request(&self) -> Option<(&RequestId, &RpcError)> {
        match self.read()? {
            Err(Malformed::Request(id, error)) => Some((id, error)),
            _ => None,
        }
    }

    /// Returns the id that a `$/cancel_request` names, as its JSON token.
    pub(crate) fn cancelled(&self) -> Option<&'a str> {
        use duologue_schema::CancelRequestNotification;
        if self.method()? != CancelRequestNotification::METHOD {
            return None;
        }
        let params = self.params()?.get();
        params.get(member(params.as_bytes(), "requestId")?)
    }

    /// Decodes the params. Absent ones and `null` read as `{}`.
    ///
    /// # Errors
    ///
    /// Invalid params (`-32602`), without a quotation of them.
    pub fn params_as<T: DeserializeOwned>(&self) -> Result<T, RpcError> {
        serde_json::from_str(self.params().map_or("{}", RawValue::get)).map_err(|error| {
            RpcError::invalid_params(params_fault(self.method().unwrap_or("the message"), &error))
        })
    }

    /// Decodes a request of the type `R`. Returns `None` for other messages.
    ///
    /// For all methods of a side use its table, such as
    /// [`ClientRequest::decode`](duologue_schema::ClientRequest::decode) with [`method`](Self::method) and
    /// [`params`](Self::params).
    #[must_use]
    pub fn request<R: Request>(&self) -> Option<Result<R, RpcError>> {
        (self.is_request() && self.method() == Some(R::METHOD)).then(|| self.params_as())
    }

    /// Decodes a notification of the type `N`. Returns `None` for other messages.
    #[must_use]
    pub fn notification<N: Notification>(&self) -> Option<Result<N, RpcError>> {
        (self.is_notification() && self.method() == Some(N::METHOD)).then(|| self.params_as())
    }

    /// Replaces the params of a request or a notification. All other bytes of the line stay.
    pub fn with_params<P: Serialize + ?Sized>(&self, params: &P) -> Decision {
        let line = || {
            let method = self.method().ok_or("only a request or a notification has params")?;
            let params = serde_json::value::to_raw_value(params).map_err(|error| error.to_string())?;
            let old = self.params().and_then(|old| position(self.raw, old.get()));
            if let Some(line) = old.and_then(|old| splice(self.raw, old, params.get().as_bytes())) {
                return Ok(line);
            }
            let id = self.id().map(serde_json::from_str).transpose().map_err(|error| error.to_string())?;
            call_line(id, method, &params).map_err(|error| error.to_string())
        };
        Decision::replacement(line(), true)
    }

    /// Replaces the result of a response. All other bytes of the line stay. A response with an error gets the result in
    /// place of it.
    pub fn with_result<R: Serialize + ?Sized>(&self, result: &R) -> Decision {
        let line = || {
            let id = self.id().filter(|_| self.is_response()).ok_or("only a response has a result")?;
            let result = serde_json::value::to_raw_value(result).map_err(|error| error.to_string())?;
            let old = self.result().and_then(|old| position(self.raw, old.get()));
            if let Some(line) = old.and_then(|old| splice(self.raw, old, result.get().as_bytes())) {
                return Ok(line);
            }
            response_line(id, Ok(&result)).map_err(|error| error.to_string())
        };
        Decision::replacement(line(), true)
    }

    /// Replaces the id of a request. The chain restores the id in the response, and maps cancels of it.
    pub fn with_id(&self, id: &RequestId) -> Decision {
        let line = || {
            let line = if self.is_request() { self.id_replaced(id.token()) } else { None };
            line.ok_or_else(|| "only a request has an id that can be replaced".into())
        };
        Decision::replacement(line(), false)
    }

    /// Replaces the whole line by another message of the same kind. A response keeps its id.
    pub fn with_line(&self, line: impl Into<Vec<u8>>) -> Decision {
        let mut line = line.into();
        if line.pop_if(|last| *last == b'\n').is_some() {
            line.pop_if(|last| *last == b'\r');
        }
        if memchr::memchr(b'\n', &line).is_some() {
            return Decision::replacement(Err("a message is one line".into()), false);
        }
        line.push(b'\n');
        Decision::Replace(Replacement { line, is_same: false })
    }

    /// Replaces the line, without its end, by one with the same kind and id.
    pub(crate) fn with_same_line(&self, mut line: Vec<u8>) -> Decision {
        line.extend_from_slice(self.raw.get(self.line().len()..).unwrap_or_default());
        Decision::Replace(Replacement { line, is_same: true })
    }

    pub(crate) fn id_replaced(&self, id: &str) -> Option<Vec<u8>> {
        splice(self.raw, member(self.raw, "id")?, id.as_bytes())
    }

    /// Replaces the id that a `$/cancel_request` names.
    pub(crate) fn cancelled_replaced(&self, id: &str) -> Option<Vec<u8>> {
        splice(self.raw, position(self.raw, self.cancelled()?)?, id.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replaced(line: &str, change: impl FnOnce(&StageMessage<'_>) -> Decision) -> String {
        let limits = Limits::default();
        match change(&StageMessage::new(line.as_bytes(), &limits)) {
            Decision::Replace(replacement) => String::from_utf8(replacement.line).unwrap(),
            decision => format!("{decision:?}"),
        }
    }

    #[test]
    fn a_change_keeps_all_other_bytes() {
        let params = |message: &StageMessage<'_>| message.with_params(&[1]);
        let id = |message: &StageMessage<'_>| message.with_id(&RequestId::from(7));
        let line = "{ \"x\":\"params\", \"params\" :{\"a\":2}, \"id\":\"\\u0061\",\"jsonrpc\":\"2.0\",\"method\":\"m\"}\r\n";
        assert_eq!(replaced(line, params), line.replace("{\"a\":2}", "[1]"));
        assert_eq!(replaced(line, id), line.replace("\"\\u0061\"", "7"));
        let line = "{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"m\",\"params\":null}\n";
        assert_eq!(replaced(line, params), line.replace("null", "[1]"));
        let line = "{\"id\":3,\"result\":{},\"jsonrpc\":\"2.0\"}";
        assert_eq!(replaced(line, |message| message.with_result("r")), line.replace("{}", "\"r\""));
        assert!(replaced(line, params).contains("only a request"), "{}", replaced(line, params));
        assert!(replaced(line, id).contains("only a request"));
        assert!(replaced(line, |message| message.with_line("a\nb")).contains("one line"));
        assert_eq!(replaced(line, |message| message.with_line("a\r\n")), "a\n");
    }

    #[test]
    fn lines_that_another_program_may_read_are_suspect() {
        let limits = Limits::default();
        for (line, is_suspect) in [
            ("", false),
            ("npm WARN {", false),
            ("{\"jsonrpc\":\"2.0\",\"method\":\"a\"}", false),
            ("{\"jsonrpc\":\"2.0\",\"method\":\"a\",\"method\":\"b\"}", true),
            (" {\"method\":\"a\"}", true),
            ("{\"jsonrpc\":\"2.0\",\"method\":\"a\",\"Method\":\"b\"}", true),
            ("{\"jsonrpc\":\"2.0\",\"method\":\"a\",\"result\":{}}", true),
            ("\u{feff}[{\"jsonrpc\":\"2.0\",\"method\":\"a\"}]", true),
            // `trim` of JavaScript, Java and Python removes these.
            ("\u{a0}{\"jsonrpc\":\"2.0\",\"method\":\"a\"}", true),
            (" \u{feff}{\"jsonrpc\":\"2.0\",\"method\":\"a\"}", true),
            ("\u{0}{\"jsonrpc\":\"2.0\",\"method\":\"a\"}", true),
            ("\u{1f}\u{2003}{\"jsonrpc\":\"2.0\",\"method\":\"a\"}", true),
            // A carriage return ends a line of Python and of readline of Node.
            ("log\r{\"jsonrpc\":\"2.0\",\"method\":\"a\"}", true),
            ("log\u{2028}{\"jsonrpc\":\"2.0\",\"method\":\"a\"}", true),
            ("{\"jsonrpc\":\"2.0\",\"method\":\"a\",\"params\":[\r{\"method\":\"b\"}\r]}", true),
            ("50 %\r100 %", false),
            ("{\"jsonrpc\":\"2.0\",\"method\":\"a\",\"params\":[\"\u{2028}{\"]}\r\n", false),
        ] {
            let message = StageMessage::new(line.as_bytes(), &limits);
            assert_eq!(message.is_suspect(), is_suspect, "{line}");
        }
    }
}
