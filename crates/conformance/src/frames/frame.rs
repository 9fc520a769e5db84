//! Validates one frame: its envelope, its method, its side and its types.

use std::path::Path;

use duologue_rpc::ResponseOutcome;
use duologue_schema::{
    CreateTerminalRequest, ForkSessionRequest, ListSessionsRequest, LoadSessionRequest,
    MethodSide as Handler, NewSessionRequest, Notification as _, ReadTextFileRequest, Request as _,
    RequestPermissionRequest, ResumeSessionRequest, SessionNotification, WriteTextFileRequest, is_absolute,
    path_fault,
};
use duologue_transcript::{ParsedLine, Redacted, Side, TranscriptEntry};
use serde_json::{Map, Value};

use super::path::JsonPath;
use super::problems::Problems;
use super::{Problem, duplicate_keys, row, typed};

/// Returns true if decoding and encoding the frame gives the same JSON, and the problems.
pub(super) fn check(entry: &TranscriptEntry<'_>, redacted: Redacted) -> (bool, Vec<Problem>) {
    let mut problems = Problems::default();
    match &entry.parsed {
        ParsedLine::Blank => return (true, vec![Problem::warning("$", "a blank line")]),
        ParsedLine::Noise(malformed) => {
            return (true, vec![Problem::error("$", format!("no message: {malformed}"))]);
        }
        _ => {}
    }
    let text = entry.line.text().unwrap_or_default().trim_start_matches('\u{feff}');
    let frame = match read(text) {
        Ok(frame) => frame,
        Err(problem) => return (false, vec![problem]),
    };
    duplicate_keys::warn(text, &mut problems);
    let known: &[&str] = match &entry.parsed {
        ParsedLine::Request { .. } => &["jsonrpc", "id", "method", "params"],
        ParsedLine::Notification { .. } => &["jsonrpc", "method", "params"],
        _ => &["jsonrpc", "id", "result", "error"],
    };
    for key in frame.keys().filter(|key| !known.contains(&key.as_str())) {
        let path = JsonPath::Base("$");
        problems.warning(JsonPath::Member(&path, key), "is no part of such a message and is ignored");
    }
    if frame.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
        problems.error("$.jsonrpc", "must be \"2.0\"");
    }
    let mut lossless = problems.is_empty();
    match &entry.parsed {
        ParsedLine::Request { method, .. } | ParsedLine::Notification { method, .. } => {
            if let Some(problem) = misplaced(entry, method) {
                problems.push(problem);
            }
            if frame.get("params").is_some_and(Value::is_null) {
                lossless = false;
                problems.warning("$.params", "is null and reads as left out");
            }
            let params = frame.get("params").filter(|params| !params.is_null());
            let nothing = Value::Object(Map::new());
            lossless &= typed::params(entry, params.unwrap_or(&nothing), &mut problems);
            relative_paths(method, params.unwrap_or(&nothing), redacted, &mut problems);
        }
        ParsedLine::Response { method, outcome, .. } => match outcome {
            ResponseOutcome::Result(_) => {
                let result = frame.get("result").unwrap_or(&Value::Null);
                lossless &= typed::result(entry, result, &mut problems);
                if frame.contains_key("error") {
                    lossless = false;
                    problems.warning("$.error", "stands beside a result and is ignored");
                }
            }
            ResponseOutcome::Error(_) => {
                let requested = method.as_deref().unwrap_or_default();
                let error = frame.get("error").unwrap_or(&Value::Null);
                lossless &= typed::error(requested, error, &mut problems);
                if frame.contains_key("result") {
                    lossless = false;
                    problems.warning("$.result", "stands beside an error and is ignored");
                }
            }
            ResponseOutcome::Missing(_) => {
                lossless = false;
                problems.error("$", "an answer without a result or an error");
            }
            ResponseOutcome::Unreadable(error) => {
                lossless = false;
                problems.error("$", format!("an answer that cannot be read: {error}"));
            }
            _ => {}
        },
        _ => {}
    }
    (lossless, problems.into_vec())
}

/// Parses the frame. The problem of an unreadable text names the position.
fn read(text: &str) -> Result<Map<String, Value>, Problem> {
    let mut json = serde_json::Deserializer::from_str(text);
    serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let path = typed::below("$", error.path());
        let reason = error.into_inner().to_string();
        if reason.contains("surrogate") || reason.contains("hex escape") {
            return Problem::error(path, "holds half a character (a lone surrogate)");
        }
        Problem::error(path, format!("cannot be read: {reason}"))
    })
}

/// Returns the problem of a method that does not exist, that the other side has to send, or that is a request
/// instead of a notification or the reverse.
fn misplaced(entry: &TranscriptEntry<'_>, method: &str) -> Option<Problem> {
    let problem = |text: String| Some(Problem::error("$.method", text));
    let is_request = matches!(entry.parsed, ParsedLine::Request { .. });
    let Some(row) = row(entry) else {
        return match method {
            extension if extension.starts_with('_') => None,
            // JSON-RPC reserves this prefix, and such messages may be ignored.
            _ if method.starts_with("$/") => {
                Some(Problem::warning("$.method", "is unknown; what begins with `$/` may be ignored"))
            }
            _ if entry.is_v2() => {
                problem("is no method of version 2; the names of extensions begin with `_`".into())
            }
            _ => problem("is no method of the protocol; the names of extensions begin with `_`".into()),
        };
    };
    match (row.side, entry.from()) {
        (Handler::Agent, Side::Agent) => problem("is for clients to send, not for agents".into()),
        (Handler::Client, Side::Client) => problem("is for agents to send, not for clients".into()),
        _ if is_request && row.result.is_none() => problem("is a notification and has no id".into()),
        _ if !is_request && row.result.is_some() => problem("is a request and needs an id".into()),
        _ => None,
    }
}

/// The members with paths in the params of a method. `[]` stands for the items of a list.
fn path_members(method: &str) -> &'static [&'static str] {
    match method {
        NewSessionRequest::METHOD
        | LoadSessionRequest::METHOD
        | ResumeSessionRequest::METHOD
        | ForkSessionRequest::METHOD => &["cwd", "additionalDirectories[]"],
        ListSessionsRequest::METHOD | CreateTerminalRequest::METHOD => &["cwd"],
        ReadTextFileRequest::METHOD | WriteTextFileRequest::METHOD => &["path"],
        SessionNotification::METHOD => &[
            "update.locations[].path",
            "update.content[].path",
            "update.content[].changes[].path",
            "update.content[].changes[].oldPath",
            "update.content.changes[].path",
            "update.content.changes[].oldPath",
            "update.cwd",
        ],
        RequestPermissionRequest::METHOD => &[
            "toolCall.locations[].path",
            "toolCall.content[].path",
            "subject.toolCall.locations[].path",
            "subject.toolCall.content[].changes[].path",
            "subject.cwd",
        ],
        _ => &[],
    }
}

/// Reports relative paths, since paths on the wire are absolute. The other side may run on another system.
fn relative_paths(method: &str, params: &Value, redacted: Redacted, problems: &mut Problems) {
    for members in path_members(method) {
        each_member(params, members, &JsonPath::Base("$.params"), &mut |text, path| {
            // A redacted path begins with a placeholder.
            let placeholder = redacted == Redacted::Everything && text.starts_with('[');
            let file = Path::new(text);
            let fault = match is_absolute(file) {
                _ if placeholder => None,
                false => Some("must be absolute"),
                true if file.is_absolute() => path_fault(file),
                true => None,
            };
            if let Some(fault) = fault {
                problems.error(path, fault);
            }
        });
    }
}

/// Calls `found` with each string at this path of members.
fn each_member(
    value: &Value,
    members: &str,
    path: &JsonPath<'_>,
    found: &mut impl FnMut(&str, &JsonPath<'_>),
) {
    let (name, rest) = members.split_once('.').unwrap_or((members, ""));
    let (name, is_list) = name.strip_suffix("[]").map_or((name, false), |name| (name, true));
    let Some(member) = value.get(name) else { return };
    let path = JsonPath::Member(path, name);
    let mut visit = |value: &Value, path: &JsonPath<'_>| match value.as_str() {
        Some(text) if rest.is_empty() => found(text, path),
        _ if rest.is_empty() => {}
        _ => each_member(value, rest, path, found),
    };
    match member.as_array() {
        Some(items) if is_list => {
            items.iter().enumerate().for_each(|(place, item)| visit(item, &JsonPath::Item(&path, place)));
        }
        _ if is_list => {}
        _ => visit(member, &path),
    }
}
