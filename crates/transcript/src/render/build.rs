//! From records to steps: into which section each goes, which request an answer belongs to, which
//! chunks are one message.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use serde_json::{Map, Value};

use super::Render;
use super::fields::{Fields, sorted};
use super::script::{About, Answered, Script, Section, Step, What};
use crate::Transcript;
use crate::format::{Event, Record, Side};
use crate::reading::{Entry, Said};

pub(super) fn build(transcript: &Transcript, options: Render) -> Script {
    let mut build = Build { options, ..Build::default() };
    build.section(About::Connection);
    let entries = transcript.entries();
    let mut next = entries.iter().enumerate().peekable();
    for (place, record) in transcript.records().iter().enumerate() {
        match next.next_if(|(_, entry)| entry.record == place) {
            Some((place, entry)) => build.entry(place, entry),
            None => build.event(record),
        }
    }
    if transcript.is_cut() {
        build.add(About::End, Duration::ZERO, None, What::Cut);
    }
    build.finish()
}

/// Where a request was asked, and as what it is known there.
struct Asked {
    section: usize,
    from: Side,
    method: String,
    number: u32,
}

/// Hands out the lowest number that is not in use.
#[derive(Default)]
struct Numbers {
    /// All up to here were in use once.
    highest: u32,
    free: BTreeSet<u32>,
}

impl Numbers {
    fn take(&mut self) -> u32 {
        self.free.pop_first().unwrap_or_else(|| {
            self.highest += 1;
            self.highest
        })
    }
}

#[derive(Default)]
struct Build {
    options: Render,
    sections: Vec<Section>,
    places: HashMap<About, usize>,
    /// Open requests, by their entries.
    open: HashMap<usize, Asked>,
    /// The numbers of open requests of one method.
    numbers: HashMap<(usize, Side, String), Numbers>,
}

impl Build {
    fn section(&mut self, about: About) -> usize {
        if let Some(place) = self.places.get(&about) {
            return *place;
        }
        let place = self.sections.len();
        self.places.insert(about.clone(), place);
        self.sections.push(Section { about, steps: Vec::new() });
        place
    }

    fn add(&mut self, about: About, at: Duration, from: Option<Side>, what: What) {
        let place = self.section(about);
        let at = self.options.times.then_some(at);
        if let Some(section) = self.sections.get_mut(place) {
            section.steps.push(Step { at, from, what });
        }
    }

    fn finish(mut self) -> Script {
        // Sessions stand in the order in which they were met, and sorting keeps it.
        let process = self.options.process;
        self.sections.retain(|section| {
            !section.steps.is_empty() && (process || !matches!(section.about, About::Stderr | About::End))
        });
        self.sections.sort_by_key(|section| match section.about {
            About::Connection => 0,
            About::Session(_) => 1,
            About::Stderr => 2,
            About::End => 3,
        });
        // Whether the process or its output ended first is chance.
        for section in self.sections.iter_mut().filter(|section| section.about == About::End) {
            section.steps.sort_by_key(|step| match step.what {
                What::Eof => 0,
                What::Exit(_) => 1,
                _ => 2,
            });
        }
        Script { sections: self.sections, options: self.options }
    }

    /// What is no line.
    fn event(&mut self, record: &Record) {
        let (about, from, what) = match &record.event {
            Event::Line(_) => return,
            Event::Stderr(text) => (About::Stderr, None, What::Stderr { text: text.clone() }),
            Event::Eof(side) => (About::End, Some(*side), What::Eof),
            Event::Exit(exit) => (About::End, None, What::Exit(*exit)),
            Event::Dropped { lines, bytes } => {
                (About::Connection, None, What::Dropped { lines: *lines, bytes: *bytes })
            }
            Event::Unknown(json) => {
                let mut record = json.parse().unwrap_or(Value::Null);
                if let Value::Object(map) = &mut record {
                    map.remove("at");
                }
                (About::Connection, None, What::Unknown { record: sorted(record) })
            }
        };
        self.add(about, record.at, from, what);
    }

    fn entry(&mut self, place: usize, entry: &Entry<'_>) {
        let Some(mut line) = object(entry.line.readable()) else { return self.noise(entry) };
        let about = entry.session.clone().map_or(About::Connection, About::Session);
        let section = self.section(about.clone());
        let mut body = |key: &str| line.take(key).map(|value| self.body(value, entry));
        let (params, result, error) = (body("params"), body("result"), body("error"));
        let what = match &entry.said {
            Said::Noise(_) => return self.noise(entry),
            Said::Blank => return,
            Said::Request { method, answer, .. } => {
                let method = method.clone().into_owned();
                let number = self.ask(place, section, entry.from(), &method);
                What::Request { method, number, params, answered: answer.is_some(), more: rest(line) }
            }
            Said::Notification { method, .. } => {
                let method = method.clone().into_owned();
                What::Notification { method, params, more: rest(line) }
            }
            Said::Response { request, method, .. } => {
                let number = request.and_then(|request| self.answered(request)).unwrap_or(1);
                let to = match method.clone() {
                    Some(method) => Answered::Request { method, number },
                    None => Answered::Nothing { id: line.take("id").unwrap_or_default() },
                };
                What::Response { to, result, error, more: rest(line) }
            }
        };
        if self.options.single_chunks || !self.join(section, entry.from(), &what) {
            self.add(about, entry.at, Some(entry.from()), what);
        }
    }

    fn noise(&mut self, entry: &Entry<'_>) {
        let (about, reason) = match &entry.said {
            Said::Noise(malformed) => (About::Connection, malformed.to_string()),
            // Such as a number that is too large for anybody.
            _ => {
                let about = entry.session.clone().map_or(About::Connection, About::Session);
                (about, "a message whose JSON cannot be shown".into())
            }
        };
        match entry.said {
            Said::Blank => return,
            Said::Response { request: Some(request), .. } => _ = self.answered(request),
            _ => {}
        }
        let text = match entry.line.text() {
            Some(text) => text.to_owned(),
            None => entry.line.bytes().escape_ascii().to_string(),
        };
        self.add(about, entry.at, Some(entry.from()), What::Noise { text, reason });
    }

    /// What a message says, without what its section says for it, and with its requests by name.
    fn body(&self, value: Value, entry: &Entry<'_>) -> Value {
        let mut fields = match Fields::try_from(value) {
            Ok(fields) => fields,
            Err(value) => return sorted(value),
        };
        if let Some(session) = &entry.session {
            fields.forget("sessionId", &session.as_str().into());
        }
        if let Some(asked) = entry.withdraws.and_then(|request| self.open.get(&request)) {
            fields.put("requestId", numbered(&asked.method, asked.number).into());
        }
        sorted(Value::Object(fields.into_map()))
    }

    /// A request is open from now on; its number.
    fn ask(&mut self, entry: usize, section: usize, from: Side, method: &str) -> u32 {
        let numbers = self.numbers.entry((section, from, method.to_owned())).or_default();
        let number = numbers.take();
        let asked = Asked { section, from, method: method.to_owned(), number };
        self.open.insert(entry, asked);
        number
    }

    /// The request of this entry is open no more; its number is free.
    fn answered(&mut self, entry: usize) -> Option<u32> {
        let asked = self.open.remove(&entry)?;
        if let Some(numbers) = self.numbers.get_mut(&(asked.section, asked.from, asked.method)) {
            numbers.free.insert(asked.number);
        }
        Some(asked.number)
    }

    /// Joins a chunk to the step before it, if they differ in nothing but their text.
    fn join(&mut self, section: usize, from: Side, what: &What) -> bool {
        let Some(chunk) = Chunk::of(what) else { return false };
        let last = self.sections.get_mut(section).and_then(|section| section.steps.last_mut());
        let Some(last) = last.filter(|step| step.from == Some(from)) else { return false };
        let Some(mut text) = text_of(&mut last.what).map(std::mem::take) else { return false };
        let joins = chunk.frame == last.what;
        if joins {
            text.push_str(&chunk.text);
        }
        if let Some(place) = text_of(&mut last.what) {
            *place = text;
        }
        joins
    }
}

/// As which a request is known in its section.
fn numbered(method: &str, number: u32) -> String {
    if number == 1 { method.to_owned() } else { format!("{method} #{number}") }
}

/// The updates that bring a text piece by piece.
const CHUNKS: [&str; 4] =
    ["user_message_chunk", "agent_message_chunk", "agent_thought_chunk", "compaction_summary_chunk"];

/// A chunk of text, and everything else its message says.
struct Chunk {
    text: String,
    frame: What,
}

impl Chunk {
    fn of(what: &What) -> Option<Self> {
        let mut frame = match what {
            What::Notification { .. } => what.clone(),
            _ => return None,
        };
        let text = std::mem::take(text_of(&mut frame)?);
        Some(Chunk { text, frame })
    }
}

/// The text of a chunk.
fn text_of(what: &mut What) -> Option<&mut String> {
    let What::Notification { method, params: Some(params), .. } = what else { return None };
    let update = params.get_mut("update").filter(|_| method == "session/update")?;
    if !CHUNKS.contains(&update.get("sessionUpdate")?.as_str()?) {
        return None;
    }
    let content = update.get_mut("content").filter(|content| content["type"] == "text")?;
    match content.get_mut("text")? {
        Value::String(text) => Some(text),
        _ => None,
    }
}

/// The members of a line that is a JSON object.
fn object(line: &[u8]) -> Option<Fields> {
    let line = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line);
    serde_json::from_slice::<Value>(line).ok().and_then(|value| Fields::try_from(value).ok())
}

/// What is left of an envelope: what it must hold is known.
fn rest(mut line: Fields) -> Value {
    for known in ["id", "method"] {
        line.take(known);
    }
    match line.peek("jsonrpc") {
        Some("2.0") => line.forget("jsonrpc", &"2.0".into()),
        Some(_) => {}
        // Answers are read without it.
        None => line.put("jsonrpc", Value::Null),
    }
    let map: Map<_, _> = line.into_map();
    if map.is_empty() { Value::Null } else { sorted(map.into()) }
}
