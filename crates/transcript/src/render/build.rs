//! Builds a script from records: assigns steps to sections and responses to requests, and joins chunks.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use duologue_schema::{Notification as _, SessionNotification};
use serde_json::{Map, Value};

use super::RenderOptions;
use super::fields::{Fields, sorted};
use super::script::{ResponseTo, Script, ScriptStep, Section, StepKind, Subject};
use crate::Transcript;
use crate::classify::{ParsedLine, TranscriptEntry};
use crate::format::{Record, RecordEvent, Side};
use crate::terminal_text;

pub(super) fn build(transcript: &Transcript, options: RenderOptions) -> Script {
    let mut build = ScriptBuilder { options, ..ScriptBuilder::default() };
    build.section(Subject::Connection);
    let entries = transcript.entries();
    let mut next = entries.iter().enumerate().peekable();
    for (index, record) in transcript.records().iter().enumerate() {
        match next.next_if(|(_, entry)| entry.record == index) {
            Some((index, entry)) => build.entry(index, entry),
            None => build.event(record),
        }
    }
    if transcript.is_cut() {
        build.add(Subject::End, Duration::ZERO, None, StepKind::Cut);
    }
    build.finish()
}

/// An open request: its section, and its name there.
struct OpenRequest {
    section: usize,
    from: Side,
    method: String,
    number: u32,
}

/// Allocates the lowest number that is not in use.
#[derive(Default)]
struct RequestNumbers {
    /// The highest number that was ever in use.
    highest: u32,
    free: BTreeSet<u32>,
}

impl RequestNumbers {
    fn take(&mut self) -> u32 {
        self.free.pop_first().unwrap_or_else(|| {
            self.highest += 1;
            self.highest
        })
    }
}

#[derive(Default)]
struct ScriptBuilder {
    options: RenderOptions,
    sections: Vec<Section>,
    indexes: HashMap<Subject, usize>,
    /// Open requests, by their entries.
    open: HashMap<usize, OpenRequest>,
    /// The numbers of open requests of one method.
    numbers: HashMap<(usize, Side, String), RequestNumbers>,
}

impl ScriptBuilder {
    fn section(&mut self, subject: Subject) -> usize {
        if let Some(index) = self.indexes.get(&subject) {
            return *index;
        }
        let index = self.sections.len();
        self.indexes.insert(subject.clone(), index);
        self.sections.push(Section { subject, steps: Vec::new() });
        index
    }

    fn add(&mut self, subject: Subject, at: Duration, from: Option<Side>, kind: StepKind) {
        let index = self.section(subject);
        let at = self.options.times.then_some(at);
        if let Some(section) = self.sections.get_mut(index) {
            section.steps.push(ScriptStep { at, from, kind, ends_turn: false });
        }
    }

    fn finish(mut self) -> Script {
        // The sort is stable, so sessions stay in the order in which they began.
        let process = self.options.process;
        self.sections.retain(|section| {
            !section.steps.is_empty()
                && (process || !matches!(section.subject, Subject::Stderr | Subject::End))
        });
        self.sections.sort_by_key(|section| match section.subject {
            Subject::Connection => 0,
            Subject::Session(_) => 1,
            Subject::Stderr => 2,
            Subject::End => 3,
        });
        // The process and its output end in any order.
        for section in self.sections.iter_mut().filter(|section| section.subject == Subject::End) {
            section.steps.sort_by_key(|step| match step.kind {
                StepKind::Eof => 0,
                StepKind::Exit(_) => 1,
                _ => 2,
            });
        }
        Script { sections: self.sections, options: self.options }
    }

    /// Adds a record that is not a line.
    fn event(&mut self, record: &Record) {
        let (subject, from, kind) = match &record.event {
            RecordEvent::Line(_) => return,
            RecordEvent::Stderr(text) => (Subject::Stderr, None, StepKind::Stderr { text: text.clone() }),
            RecordEvent::Eof(side) => (Subject::End, Some(*side), StepKind::Eof),
            RecordEvent::Exit(exit) => (Subject::End, None, StepKind::Exit(*exit)),
            RecordEvent::Dropped { lines, bytes } => {
                (Subject::Connection, None, StepKind::Dropped { lines: *lines, bytes: *bytes })
            }
            RecordEvent::Unknown(json) => {
                let mut record = json.parse().unwrap_or(Value::Null);
                if let Value::Object(map) = &mut record {
                    map.remove("at");
                }
                (Subject::Connection, None, StepKind::Unknown { record: sorted(record) })
            }
        };
        self.add(subject, record.at, from, kind);
    }

    fn entry(&mut self, index: usize, entry: &TranscriptEntry<'_>) {
        let Some(mut line) = object(entry.line.readable()) else { return self.noise(entry) };
        let subject = entry.session.clone().map_or(Subject::Connection, Subject::Session);
        let section = self.section(subject.clone());
        let mut body = |key: &str| line.take(key).map(|value| self.body(value, entry));
        let (params, result, error) = (body("params"), body("result"), body("error"));
        let kind = match &entry.parsed {
            ParsedLine::Noise(_) => return self.noise(entry),
            ParsedLine::Blank => return,
            ParsedLine::Request { method, answer, .. } => {
                let method = method.clone().into_owned();
                let number = self.open_request(index, section, entry.from(), &method);
                StepKind::Request { method, number, params, answered: answer.is_some(), more: rest(line) }
            }
            ParsedLine::Notification { method, .. } => {
                let method = method.clone().into_owned();
                StepKind::Notification { method, params, more: rest(line) }
            }
            ParsedLine::Response { request, method, .. } => {
                let number = request.and_then(|request| self.close_request(request)).unwrap_or(1);
                let to = match method.clone() {
                    Some(method) => ResponseTo::Request { method, number },
                    None => ResponseTo::Nothing { id: line.take("id").unwrap_or_default() },
                };
                StepKind::Response { to, result, error, more: rest(line) }
            }
        };
        if self.options.single_chunks || !self.join(section, entry.from(), &kind) {
            self.add(subject, entry.at, Some(entry.from()), kind);
        }
        let last = self.sections.get_mut(section).and_then(|section| section.steps.last_mut());
        if let Some(last) = last.filter(|_| entry.ends_turn()) {
            last.ends_turn = true;
        }
    }

    fn noise(&mut self, entry: &TranscriptEntry<'_>) {
        let (subject, reason) = match &entry.parsed {
            ParsedLine::Noise(malformed) => (Subject::Connection, malformed.to_string()),
            // For example a number that is too large.
            _ => {
                let subject = entry.session.clone().map_or(Subject::Connection, Subject::Session);
                (subject, "a message whose JSON cannot be shown".into())
            }
        };
        match entry.parsed {
            ParsedLine::Blank => return,
            ParsedLine::Response { request: Some(request), .. } => _ = self.close_request(request),
            _ => {}
        }
        let text = match entry.line.text() {
            Some(text) => text.to_owned(),
            None => entry.line.bytes().escape_ascii().to_string(),
        };
        self.add(subject, entry.at, Some(entry.from()), StepKind::Noise { text, reason });
    }

    /// Returns the members of a message without its session id. A cancelled request is replaced by
    /// its name.
    fn body(&self, value: Value, entry: &TranscriptEntry<'_>) -> Value {
        let mut fields = match Fields::try_from(value) {
            Ok(fields) => fields,
            Err(value) => return sorted(value),
        };
        if let Some(session) = &entry.session {
            fields.forget("sessionId", &session.as_str().into());
        }
        if let Some(request) = entry.withdraws.and_then(|request| self.open.get(&request)) {
            fields.put("requestId", numbered(&request.method, request.number).into());
        }
        sorted(Value::Object(fields.into_map()))
    }

    /// Adds an open request and returns its number.
    fn open_request(&mut self, entry: usize, section: usize, from: Side, method: &str) -> u32 {
        let numbers = self.numbers.entry((section, from, method.to_owned())).or_default();
        let number = numbers.take();
        let request = OpenRequest { section, from, method: method.to_owned(), number };
        self.open.insert(entry, request);
        number
    }

    /// Removes the open request of this entry and frees its number.
    fn close_request(&mut self, entry: usize) -> Option<u32> {
        let request = self.open.remove(&entry)?;
        if let Some(numbers) = self.numbers.get_mut(&(request.section, request.from, request.method)) {
            numbers.free.insert(request.number);
        }
        Some(request.number)
    }

    /// Joins a chunk to the step before it, if only their texts differ.
    fn join(&mut self, section: usize, from: Side, kind: &StepKind) -> bool {
        if !matches!(kind, StepKind::Notification { .. }) {
            return false;
        }
        let mut frame = kind.clone();
        if let Some(output) = output_of(&mut frame).map(std::mem::take) {
            return self.join_output(section, from, &frame, &output);
        }
        let Some(chunk) = text_of(&mut frame).map(std::mem::take) else { return false };
        let last = self.sections.get_mut(section).and_then(|section| section.steps.last_mut());
        let Some(last) = last.filter(|step| step.from == Some(from)) else { return false };
        let Some(mut text) = text_of(&mut last.kind).map(std::mem::take) else { return false };
        let joins = frame == last.kind;
        if joins {
            text.push_str(&chunk);
        }
        if let Some(last_text) = text_of(&mut last.kind) {
            *last_text = text;
        }
        joins
    }

    /// Joins the output of a terminal, which is base64, to that of the step before it.
    fn join_output(&mut self, section: usize, from: Side, frame: &StepKind, output: &str) -> bool {
        let last = self.sections.get_mut(section).and_then(|section| section.steps.last_mut());
        let Some(last) = last.filter(|step| step.from == Some(from)) else { return false };
        let Some(mut before) = output_of(&mut last.kind).map(std::mem::take) else { return false };
        let joins = *frame == last.kind && terminal_text::append(&mut before, output);
        if let Some(last) = output_of(&mut last.kind) {
            *last = before;
        }
        joins
    }
}

/// Returns the name of a request in its section.
fn numbered(method: &str, number: u32) -> String {
    if number == 1 { method.to_owned() } else { format!("{method} #{number}") }
}

/// The updates that stream a text.
const CHUNKS: [&str; 5] = [
    "user_message_chunk",
    "agent_message_chunk",
    "agent_thought_chunk",
    "compaction_summary_chunk",
    "session_message_chunk",
];

/// Returns the text of a chunk.
fn text_of(kind: &mut StepKind) -> Option<&mut String> {
    let StepKind::Notification { method, params: Some(params), .. } = kind else { return None };
    let update = params.get_mut("update").filter(|_| method == SessionNotification::METHOD)?;
    if !CHUNKS.contains(&update.get("sessionUpdate")?.as_str()?) {
        return None;
    }
    let content = update.get_mut("content").filter(|content| content["type"] == "text")?;
    match content.get_mut("text")? {
        Value::String(text) => Some(text),
        _ => None,
    }
}

/// Returns the base64 of a piece of the output of a terminal.
fn output_of(kind: &mut StepKind) -> Option<&mut String> {
    let StepKind::Notification { method, params: Some(params), .. } = kind else { return None };
    let update = params.get_mut("update").filter(|_| method == SessionNotification::METHOD)?;
    if update.get("sessionUpdate")?.as_str()? != terminal_text::OUTPUT_CHUNK {
        return None;
    }
    match update.get_mut("data")? {
        Value::String(data) => Some(data),
        _ => None,
    }
}

/// Returns the members of a line that is a JSON object.
fn object(line: &[u8]) -> Option<Fields> {
    let line = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line);
    serde_json::from_slice::<Value>(line).ok().and_then(|value| Fields::try_from(value).ok())
}

/// Returns the members of a JSON-RPC message that the specification does not know.
fn rest(mut line: Fields) -> Value {
    for known in ["id", "method"] {
        line.take(known);
    }
    match line.peek("jsonrpc") {
        Some("2.0") => line.forget("jsonrpc", &"2.0".into()),
        Some(_) => {}
        // Responses without it are accepted.
        None => line.put("jsonrpc", Value::Null),
    }
    let map: Map<_, _> = line.into_map();
    if map.is_empty() { Value::Null } else { sorted(map.into()) }
}
