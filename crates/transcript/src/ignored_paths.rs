//! Paths that replays and comparisons of transcripts ignore.

use serde_json::{Map, Value};
use serde_json_path::JsonPath;

use crate::error::{Error, Result};
use crate::format::{Record, RecordEvent, RecordedLine};
use crate::transcript::Transcript;

/// Paths in messages that a comparison ignores.
///
/// ```
/// use duologue_transcript::{RecordEvent, Header, IgnoredPaths, RecordedLine, Record, Side, Transcript};
/// use std::time::Duration;
///
/// let transcript = |tokens: u32| {
///     let line = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{"usage":{{"totalTokens":{tokens}}}}}}}"#);
///     let line = RecordedLine::new(Side::Agent, line.into_bytes());
///     Transcript::new(Header::new("a test"), vec![Record::new(Duration::ZERO, RecordEvent::Line(line))])
/// };
/// let mut ignored = IgnoredPaths::default();
/// ignored.add("result.usage")?;
/// assert_ne!(transcript(7).render(), transcript(8).render());
/// assert_eq!(transcript(7).without(&ignored).render(), transcript(8).without(&ignored).render());
/// # Ok::<(), duologue_transcript::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct IgnoredPaths(Vec<(String, JsonPath)>);

impl IgnoredPaths {
    /// Adds a path: either names with dots between them, as `mcpServers.0.env`, where `*` is any name, or a
    /// JSONPath (RFC 9535), as `$..timeout`. A path starts in the params of a request or notification, or at
    /// the `result` or `error` of a response, as `result.usage`.
    ///
    /// # Errors
    ///
    /// [`Error::BadPath`] if the path is invalid.
    pub fn add(&mut self, path: &str) -> Result<()> {
        let json_path = if path.starts_with('$') { path.to_owned() } else { dotted(path) };
        let parsed = JsonPath::parse(&json_path)
            .map_err(|error| Error::BadPath { path: path.into(), reason: error.to_string() })?;
        self.0.push((path.to_owned(), parsed));
        Ok(())
    }

    /// Returns the paths that match nothing in these transcripts. They may be misspelled.
    #[must_use]
    pub fn unmatched(&self, transcripts: &[&Transcript]) -> Vec<&str> {
        let mut unmatched: Vec<_> = self.0.iter().collect();
        for record in transcripts.iter().flat_map(|transcript| transcript.records()) {
            if unmatched.is_empty() {
                break;
            }
            if let Some(mut message) = record.line().and_then(message) {
                with_content(&mut message, |content| {
                    unmatched.retain(|(_, path)| path.query(content).is_empty());
                });
            }
        }
        unmatched.into_iter().map(|(written, _)| written.as_str()).collect()
    }

    /// Removes the values at the paths from `content`. Elements of lists become null, so that the other elements
    /// keep their index.
    pub(crate) fn remove(&self, content: &mut Value) {
        for (_, path) in &self.0 {
            let places: Vec<String> =
                path.query_located(content).iter().map(|node| node.location().to_json_pointer()).collect();
            for place in places {
                remove(content, &place);
            }
        }
    }

    pub(crate) fn extend(&mut self, more: IgnoredPaths) {
        self.0.extend(more.0);
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Transcript {
    /// Returns the transcript without the values at these paths, for comparisons. Unless `ignored` is empty, all
    /// messages are written again, with their members sorted.
    #[must_use]
    pub fn without(&self, ignored: &IgnoredPaths) -> Transcript {
        if ignored.is_empty() {
            return self.clone();
        }
        let changed = |record: &Record| {
            let line = record.line()?;
            let mut message = message(line)?;
            with_content(&mut message, |content| ignored.remove(content));
            let line = RecordedLine::new(line.from, message.to_string().into_bytes()).ending(line.end);
            Some(Record::new(record.at, RecordEvent::Line(line)))
        };
        let records =
            self.records().iter().map(|record| changed(record).unwrap_or_else(|| record.clone())).collect();
        self.with_records(self.header().clone(), records)
    }
}

/// Returns a line as JSON, if it is an object.
fn message(line: &RecordedLine) -> Option<Value> {
    let value: Value = serde_json::from_slice(line.readable()).ok()?;
    value.is_object().then_some(value)
}

/// Calls `act` with the part of a message in which paths start.
fn with_content(message: &mut Value, act: impl FnOnce(&mut Value)) {
    let Some(members) = message.as_object_mut() else { return };
    if members.contains_key("method") {
        return members.get_mut("params").map_or((), act);
    }
    let outcome = ["result", "error"].into_iter().filter_map(|name| members.remove_entry(name));
    let mut content = Value::Object(outcome.collect::<Map<_, _>>());
    act(&mut content);
    if let Value::Object(outcome) = content {
        members.extend(outcome);
    }
}

/// Removes the value at a JSON pointer, if there is one.
fn remove(content: &mut Value, place: &str) {
    let Some((parent, name)) = place.rsplit_once('/') else {
        *content = Value::Null;
        return;
    };
    match content.pointer_mut(parent) {
        Some(Value::Object(members)) => {
            members.remove(&name.replace("~1", "/").replace("~0", "~"));
        }
        Some(Value::Array(list)) => {
            if let Some(element) = name.parse().ok().and_then(|index: usize| list.get_mut(index)) {
                *element = Value::Null;
            }
        }
        _ => {}
    }
}

/// Converts a path with dots to a JSONPath.
fn dotted(path: &str) -> String {
    let mut out = String::from("$");
    for part in path.split('.') {
        match part {
            "*" => out.push_str("[*]"),
            index if !index.is_empty() && index.bytes().all(|byte| byte.is_ascii_digit()) => {
                out.push_str(&format!("[{index}]"));
            }
            name => {
                let name = name.replace('\\', "\\\\").replace('\'', "\\'");
                out.push_str(&format!("['{name}']"));
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn paths_are_written_in_two_ways() {
        let removed = |path: &str, value: Value| {
            let mut ignored = IgnoredPaths::default();
            ignored.add(path).unwrap();
            let mut rest = value;
            ignored.remove(&mut rest);
            rest
        };
        assert_eq!(removed("a.0.it's", json!({"a": [{"it's": 1}]})), json!({"a": [{}]}));
        assert_eq!(removed("$..b", json!({"a": {"b": 1}})), json!({"a": {}}));
        assert_eq!(removed("a/b.c~d", json!({"a/b": {"c~d": 1}})), json!({"a/b": {}}));
        assert_eq!(removed("list.0", json!({"list": [1, 2]})), json!({"list": [null, 2]}));
        assert_eq!(removed("$..a", json!({"a": {"a": 1}, "b": {"a": 2}})), json!({"b": {}}));
        assert!(IgnoredPaths::default().add("$[").is_err());
    }
}
