//! Redaction line by line, in the order of the connection.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;

use duologue_rpc::{ResponseOutcome, RpcMessage};
use duologue_schema::{CancelRequestNotification, Notification as _};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::json_scan::{
    DecodedString, Edits, JsonVisitor, PathStep, QuotedString, escaped, member, outer_member, scan,
};
use super::placeholder_ids::{IdPlaceholders, SessionNumber, is_uuid};
use super::placeholders::{SIGNATURE, TIME, VERSION};
use super::redaction::{Redaction, find_times};
use super::secret_patterns::SECRET;
use crate::classify::{creates_session, id_key, request_of, session_of};
use crate::format::{RecordedLine, Side};
use crate::id_paths::{IdKind, VariableField, field_of};
use crate::terminal_text;

/// Redacts a conversation line by line, and keeps the ids and folders that have appeared. Created by
/// [`Redaction::start`].
///
/// It does not find a secret or path that is split over several chunks of a message;
/// [`Transcript::redact`](crate::Transcript::redact) does.
#[derive(Clone, Debug)]
pub struct Redactor {
    redaction: Redaction,
    names: IdPlaceholders,
    requests: HashMap<(Side, String), SeenRequest>,
    /// The answered requests, oldest first. They are kept for a while, since a cancel may still name them.
    answered: VecDeque<(Side, String)>,
    counts: HashMap<(Side, SessionNumber), u64>,
}

/// A request that has appeared.
#[derive(Clone, Debug)]
struct SeenRequest {
    name: String,
    scope: SessionNumber,
    /// The number that is reserved for the session it creates.
    makes: Option<u64>,
    is_answered: bool,
}

/// The number of answered requests that are kept.
const ANSWERED: usize = 1024;

/// The session and the id of a line.
#[derive(Debug, Default)]
struct LineIds {
    scope: SessionNumber,
    /// The placeholder of its own id.
    id: Option<String>,
}

impl Redactor {
    pub(crate) fn new(redaction: Redaction) -> Self {
        Redactor {
            redaction,
            names: IdPlaceholders::default(),
            requests: HashMap::new(),
            answered: VecDeque::new(),
            counts: HashMap::new(),
        }
    }

    /// Redacts the next line of the conversation.
    #[must_use]
    pub fn line(&mut self, line: &RecordedLine) -> RecordedLine {
        let (_, edits) = self.edits(line, None, None);
        let bytes = edits.apply(line.bytes());
        RecordedLine::new(line.from, self.redaction.secrets.redact(&bytes).into_owned()).ending(line.end)
    }

    /// Redacts a line of stderr, or any other text.
    #[must_use]
    pub fn text(&self, text: &str) -> String {
        let mut edits = Edits::default();
        self.rules(None, text.as_bytes(), |span, with| edits.replace(span, with));
        let text = String::from_utf8_lossy(&edits.apply(text.as_bytes())).into_owned();
        self.redaction.secrets.redact_text(&text).into_owned()
    }

    /// Returns the replacements in the next line, and its session. `makes` is the session that the response to this
    /// request will name, if known. The text in `spare` is not changed.
    pub(crate) fn edits(
        &mut self,
        line: &RecordedLine,
        makes: Option<&str>,
        spare: Option<&Range<usize>>,
    ) -> (SessionNumber, Edits) {
        let ids = self.line_ids(line, makes);
        let scope = ids.scope;
        (scope, self.change(ids, line.from, line.bytes(), spare))
    }

    /// Returns the replacements in an unknown record.
    pub(crate) fn unknown(&mut self, record: &str) -> Edits {
        self.change(LineIds::default(), Side::Agent, record.as_bytes(), None)
    }

    fn change(&mut self, ids: LineIds, from: Side, line: &[u8], spare: Option<&Range<usize>>) -> Edits {
        let mut edits = Edits::default();
        let scope = ids.scope;
        let json = std::str::from_utf8(line).is_ok_and(|text| {
            let places = self.places(text);
            let hidden = places.is_none();
            let places = places.unwrap_or_default();
            let begun = Vec::new();
            let mut places =
                RedactVisitor { redactor: self, ids, from, places, hidden, begun, spare, edits: &mut edits };
            scan(text, &mut places)
        });
        if json {
            self.redaction.secrets.search(line, &mut edits);
        } else {
            self.rules(scope, line, |span, with| edits.replace(span, with));
        }
        if let Some(spare) = spare {
            edits.spare(spare);
        }
        edits
    }

    /// Calls `found` with the replacements in a text of a session, or in one that may mention all sessions.
    pub(crate) fn rules(
        &self,
        scope: SessionNumber,
        text: &[u8],
        mut found: impl FnMut(Range<usize>, String),
    ) {
        self.redaction.secrets.find(text, |span| found(span, SECRET.into()));
        let name = |word: &str| match scope {
            Some(_) => self.names.anywhere(scope, word),
            None => self.names.of_any_session(word),
        };
        self.plain_rules(scope, text, name, found);
    }

    /// Does the same except for secrets, which are found in whole lines. `named` returns the placeholder of an id.
    fn plain_rules(
        &self,
        scope: SessionNumber,
        text: &[u8],
        named: impl Fn(&str) -> Option<String>,
        mut found: impl FnMut(Range<usize>, String),
    ) {
        let redaction = &self.redaction;
        redaction.find_patterns(text, &mut found);
        if redaction.paths {
            redaction.folders.find(scope, text, |span, name| found(span, name.into()));
        }
        if redaction.times {
            find_times(text, |span| found(span, TIME.into()));
        }
        if redaction.ids {
            for word in words(text) {
                if let Some(name) = text.get(word.clone()).and_then(|bytes| std::str::from_utf8(bytes).ok())
                    && let Some(name) = named(name)
                {
                    found(word, name);
                }
            }
        }
    }

    /// Registers the ids and folders of a line.
    fn line_ids(&mut self, line: &RecordedLine, makes: Option<&str>) -> LineIds {
        match line.message() {
            Some(Ok(RpcMessage::Request { id, method, params })) => {
                let made = creates_session(&method).then(|| self.reserve(makes));
                let named = params.and_then(session_of);
                let scope = match named {
                    Some(session) => Some(self.names.session(session.as_str())),
                    None => made.or_else(|| makes.map(|session| self.names.session(session))),
                };
                if line.from == Side::Client && method.starts_with("session/") {
                    self.folders(made.or(scope), params);
                }
                let count = self.counts.entry((line.from, scope)).or_default();
                *count += 1;
                let name = match scope {
                    Some(session) => format!("[session-{session}.request-{count}]"),
                    None => format!("[request-{count}]"),
                };
                let request = SeenRequest { name: name.clone(), scope, makes: made, is_answered: false };
                self.requests.insert((line.from, id_key(id.token())), request);
                LineIds { scope, id: Some(name) }
            }
            Some(Ok(RpcMessage::Notification { method, params })) => {
                let withdrawn = || {
                    let id = request_of(params.filter(|_| method == CancelRequestNotification::METHOD))?;
                    self.requests.get(&(line.from, id))?.scope
                };
                let scope = match params.and_then(session_of) {
                    Some(session) => Some(self.names.session(session.as_str())),
                    None => withdrawn(),
                };
                LineIds { scope, id: None }
            }
            Some(Ok(RpcMessage::Response { id, outcome })) => {
                let Some(request) = self.answered(line.from.other(), id.get()) else {
                    return LineIds::default();
                };
                let session = match outcome {
                    ResponseOutcome::Result(result) => session_of(result),
                    _ => None,
                };
                if let (Some(number), ResponseOutcome::Error(_)) = (request.makes, &outcome) {
                    self.names.release_session(number);
                }
                if let (Some(number), Some(session)) = (request.makes, &session) {
                    self.names.bind_session(session.as_str(), number);
                }
                let scope =
                    request.scope.or_else(|| session.map(|session| self.names.session(session.as_str())));
                LineIds { scope, id: Some(request.name) }
            }
            _ => LineIds::default(),
        }
    }

    /// Returns the request that is answered. Old answered requests are removed.
    fn answered(&mut self, side: Side, id: &str) -> Option<SeenRequest> {
        let key = (side, id_key(id));
        let request = self.requests.get_mut(&key)?;
        let found = request.clone();
        if !std::mem::replace(&mut request.is_answered, true) {
            self.answered.push_back(key);
        }
        if self.answered.len() > ANSWERED
            && let Some(oldest) = self.answered.pop_front()
            // The id may have been used again.
            && self.requests.get(&oldest).is_some_and(|request| request.is_answered)
        {
            self.requests.remove(&oldest);
        }
        Some(found)
    }

    fn reserve(&mut self, makes: Option<&str>) -> u64 {
        let number = self.names.reserve_session();
        if let Some(session) = makes {
            self.names.bind_session(session, number);
        }
        number
    }

    fn folders(&mut self, scope: SessionNumber, params: Option<&RawValue>) {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Named {
            cwd: String,
            #[serde(default)]
            additional_directories: Vec<String>,
        }
        if let Some(Ok(named)) = params.map(|params| serde_json::from_str::<Named>(params.get())) {
            let folders = std::iter::once(named.cwd).chain(named.additional_directories);
            self.redaction.folders.add_session(scope, folders);
        }
    }

    /// Returns the replacements by JSON path, keyed by JSON pointer. `None` if paths cannot be applied: the line
    /// contains a number out of range, or is nested too deeply.
    fn places(&self, line: &str) -> Option<HashMap<String, String>> {
        if self.redaction.places.is_empty() {
            return Some(HashMap::new());
        }
        let repaired = RpcMessage::repair(line.as_bytes());
        let readable = repaired.as_deref().unwrap_or(line.as_bytes());
        let json = serde_json::from_slice::<serde_json::Value>(readable).ok()?;
        let rules = self.redaction.places.iter();
        let places = rules.flat_map(|(path, with)| {
            let located = path.query_located(&json);
            let pointers: Vec<_> = located.locations().map(|place| place.to_json_pointer()).collect();
            pointers.into_iter().map(|pointer| (pointer, with.to_string()))
        });
        Some(places.collect())
    }
}

/// Splits a text into words that may be ids.
fn words(text: &[u8]) -> impl Iterator<Item = Range<usize>> {
    let mut at = 0;
    text.split(|byte| !(byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))).map(move |word| {
        let start = at;
        at += word.len() + 1;
        start..start + word.len()
    })
}

/// Collects the replacements in the values of a message.
struct RedactVisitor<'r> {
    redactor: &'r mut Redactor,
    ids: LineIds,
    from: Side,
    /// The replacements by JSON path.
    places: HashMap<String, String>,
    /// True if all values are hidden, since JSON paths cannot be applied.
    hidden: bool,
    /// For each open object or array that is replaced as a whole: its start and the replacement.
    begun: Vec<Option<(usize, String)>>,
    /// The text of a chunk, which is redacted together with its neighbours.
    spare: Option<&'r Range<usize>>,
    edits: &'r mut Edits,
}

impl RedactVisitor<'_> {
    /// Returns the replacement by JSON path of a value.
    fn placed(&self, frames: &[PathStep<'_>]) -> Option<&String> {
        if self.places.is_empty() {
            return None;
        }
        let steps = frames.iter().map(|frame| match &frame.member {
            Some(name) => format!("/{}", name.replace('~', "~0").replace('/', "~1")),
            None => format!("/{}", frame.index),
        });
        self.places.get(&steps.collect::<String>())
    }

    /// Returns true for a value that is hidden: all but the members that make the line a message.
    fn hides(&self, frames: &[PathStep<'_>]) -> bool {
        self.hidden
            && match frames {
                [top] => !matches!(top.member.as_deref(), Some("jsonrpc" | "id" | "method")),
                [top, inner] if top.member.as_deref() == Some("error") => {
                    inner.member.as_deref() != Some("code")
                }
                _ => true,
            }
    }

    /// Returns the placeholder of a request that a message names.
    fn request(&self, token: &str) -> Option<&str> {
        let request = |side| self.redactor.requests.get(&(side, id_key(token)));
        request(self.from).or_else(|| request(self.from.other())).map(|request| request.name.as_str())
    }

    /// Returns the replacement of a string that is known by its path in a message between agents.
    fn between_agents(&mut self, frames: &[PathStep<'_>], text: &str) -> Option<String> {
        let Redaction { ids, times, .. } = self.redactor.redaction;
        if text.is_empty() || !(ids || times) {
            return None;
        }
        let kind = match field_of(frames)? {
            VariableField::Time => return times.then(|| TIME.into()),
            VariableField::Signature => return ids.then(|| SIGNATURE.into()),
            VariableField::Id(IdKind::Correlation) if !is_uuid(text) => return None,
            VariableField::Id(IdKind::Correlation) => IdKind::Other,
            VariableField::Id(kind) => kind,
        };
        ids.then(|| self.redactor.names.name(self.ids.scope, kind, text))
    }

    /// Returns the placeholder of an id, if a member of this name contains one.
    fn id(&mut self, frames: &[PathStep<'_>], name: &str, token: &str, text: &str) -> Option<String> {
        if !self.redactor.redaction.ids || text.is_empty() {
            return None;
        }
        match name {
            "id" if frames.len() == 1 => self.ids.id.clone(),
            "requestId" => self.request(token).map(str::to_owned),
            _ => Some(self.redactor.names.name(self.ids.scope, IdKind::of_member(name)?, text)),
        }
    }

    /// Returns the replacement of a string that is known by its place in the message.
    fn by_place(&mut self, frames: &[PathStep<'_>], token: &str, text: &str) -> Option<String> {
        if let Some(with) = self.between_agents(frames, text) {
            return Some(with);
        }
        let name = member(frames)?;
        let is_version = self.redactor.redaction.versions && name == "version" && of_program(frames);
        self.id(frames, name, token, text).or_else(|| is_version.then(|| VERSION.into()))
    }

    /// Returns the placeholder of a string that is a known id or a UUID.
    fn id_anywhere(&mut self, text: &str) -> Option<String> {
        if !self.redactor.redaction.ids {
            return None;
        }
        let (scope, names) = (self.ids.scope, &mut self.redactor.names);
        names.anywhere(scope, text).or_else(|| is_uuid(text).then(|| names.name(scope, IdKind::Other, text)))
    }

    fn rules(&mut self, string: &DecodedString<'_>) {
        let scope = self.ids.scope;
        let edits = &mut *self.edits;
        let named = |word: &str| self.redactor.names.anywhere(scope, word);
        self.redactor.plain_rules(scope, string.text.as_bytes(), named, |part, with| {
            edits.replace(string.span(part), escaped(&with));
        });
    }
}

impl<'a> JsonVisitor<'a> for RedactVisitor<'_> {
    fn name(&mut self, _: &[PathStep<'a>], name: &DecodedString<'a>) {
        self.rules(name);
    }

    fn string(&mut self, frames: &[PathStep<'a>], string: QuotedString<'a>) {
        let token = string.token();
        let string = string.read();
        let whole = string.whole();
        let quoted = whole.start - 1..whole.end + 1;
        if let Some(with) = self.placed(frames).cloned() {
            self.edits.replace(quoted, with);
        } else if let Some(with) = self.by_place(frames, &token, &string.text) {
            self.edits.replace(whole, with);
        } else if self.hides(frames) {
            // With its quotes, so that the text of a chunk is hidden too.
            self.edits.replace(quoted, format!("\"{SECRET}\""));
        } else if self.spare != Some(&whole) {
            let output = terminal_text::redacted(frames, &string.text, |output, edits| {
                self.redactor.rules(self.ids.scope, output, |span, with| edits.replace(span, with));
            });
            if let Some(output) = output {
                return self.edits.replace(whole, output);
            }
            match self.id_anywhere(&string.text) {
                Some(id) => self.edits.replace(whole, id),
                None => self.rules(&string),
            }
        }
    }

    fn scalar(&mut self, frames: &[PathStep<'a>], token: &'a str, span: Range<usize>) {
        if let Some(with) = self.placed(frames).cloned() {
            self.edits.replace(span, with);
            return;
        }
        let is_number = token.starts_with(|char: char| char == '-' || char.is_ascii_digit());
        if is_number && self.hides(frames) {
            self.edits.replace(span, "0");
            return;
        }
        let Some(name) = member(frames) else { return };
        let Ok(number) = token.parse::<f64>() else { return };
        // Only the ids of JSON-RPC may be numbers.
        if matches!(name, "id" | "requestId") {
            if let Some(id) = self.id(frames, name, token, token) {
                self.edits.replace(span, format!("\"{id}\""));
            }
        } else if (self.redactor.redaction.durations && names_duration(name))
            || (self.redactor.redaction.times && names_time(name) && number >= SECONDS_IN_2001)
        {
            self.edits.replace(span, "0");
        }
    }

    fn open(&mut self, frames: &[PathStep<'a>], start: usize) {
        let place = frames.split_last().and_then(|(_, outer)| self.placed(outer));
        let begun = place.map(|with| (start, with.clone()));
        self.begun.push(begun);
    }

    fn close(&mut self, _: &[PathStep<'a>], end: usize) {
        if let Some(Some((start, with))) = self.begun.pop() {
            self.edits.replace(start..end, with);
        }
    }

    fn too_deep(&mut self, span: Range<usize>) {
        self.edits.replace(span, format!("\"{SECRET}\""));
    }
}

/// Smaller numbers are not seconds since 1970.
const SECONDS_IN_2001: f64 = 1e9;

fn names_time(name: &str) -> bool {
    let ends = ["At", "_at", "ime", "imestamp", "Date", "date", "imeMs", "AtMs", "time_ms", "Ts", "_ts"];
    name == "ts" || ends.iter().any(|end| name.ends_with(end))
}

fn names_duration(name: &str) -> bool {
    let plain = name.to_ascii_lowercase();
    let plain = ["_ms", "ms", "_millis", "millis", "_seconds", "seconds", "_secs", "secs", "_ns", "_us"]
        .iter()
        .find_map(|unit| plain.strip_suffix(unit))
        .unwrap_or(&plain);
    ["duration", "elapsed", "latency", "took", "uptime"].iter().any(|end| plain.ends_with(end))
}

/// Returns true within the description that a side gives of its program.
fn of_program(frames: &[PathStep<'_>]) -> bool {
    let of_v2 = || {
        let names = frames.iter().map(|frame| frame.member.as_deref().unwrap_or_default());
        matches!(names.collect::<Vec<_>>()[..], ["params" | "result", "info", _])
    };
    matches!(outer_member(frames), Some("agentInfo" | "clientInfo" | "serverInfo")) || of_v2()
}
