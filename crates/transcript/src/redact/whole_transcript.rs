//! Redaction of a whole transcript, where later lines are known: the rest of a text in pieces, and the response
//! to each request.

use std::time::{Duration, SystemTime};

use duologue_rpc::ResponseOutcome;
use duologue_schema::SessionId;
use serde::de::IgnoredAny;

use super::json_scan::{Edits, escaped};
use super::redaction::Redaction;
use super::redactor::Redactor;
use super::split_text;
use crate::classify::{ParsedLine, TranscriptEntry, entries, session_of};
use crate::format::{Header, Record, RecordEvent, RecordedLine, Redacted, Side};
use crate::transcript::Transcript;

/// The limit of passes over a transcript. One more pass nearly always finds nothing.
const ROUNDS: usize = 16;

impl Transcript {
    /// Returns the transcript without secrets, ids, paths and times, by [`Redaction::default`]. It can be compared,
    /// shown to others, loaded and replayed.
    #[must_use]
    pub fn redacted(&self) -> Transcript {
        self.redact(&Redaction::default())
    }

    /// Returns the redacted transcript. Redacting it again changes nothing.
    #[must_use]
    pub fn redact(&self, redaction: &Redaction) -> Transcript {
        let (mut records, redactor) = once(self.records(), redaction);
        let settled = redaction.settled();
        for _ in 0..ROUNDS {
            let (next, _) = once(&records, &settled);
            if next == records {
                break;
            }
            records = next;
        }
        self.with_records(header(self.header(), redaction, &redactor), records)
    }
}

fn header(header: &Header, redaction: &Redaction, redactor: &Redactor) -> Header {
    let mut header = header.clone();
    header.program = redaction.secrets.redact_words(&header.program);
    for text in header.program.iter_mut().chain([&mut header.recorder]) {
        *text = redactor.text(text);
    }
    if redaction.paths
        && let Some(program) = header.program.first_mut()
        && let Some(name) = program.rsplit(['/', '\\']).next().filter(|name| !name.is_empty())
    {
        *program = name.to_owned();
    }
    if redaction.times {
        header.started = SystemTime::UNIX_EPOCH;
    }
    let everything = redaction.ids && redaction.paths && redaction.times;
    header.redacted = match header.redacted {
        Redacted::Everything => Redacted::Everything,
        _ if everything => Redacted::Everything,
        _ => Redacted::Secrets,
    };
    header
}

/// Does one pass over all records.
fn once(records: &[Record], redaction: &Redaction) -> (Vec<Record>, Redactor) {
    let entries = entries(records);
    let mut redactor = redaction.start();
    let messages = split_text::messages(&entries);
    let mut chunks: Vec<_> = entries.iter().map(|_| None).collect();
    for place in messages.iter().flatten() {
        if let (Some(chunk), Some(entry)) = (chunks.get_mut(*place), entries.get(*place)) {
            *chunk = entry.line.text().and_then(split_text::chunk);
        }
    }

    // All messages come first, in order, since they contain the ids and folders. Then come texts in pieces, and the
    // lines of stderr and noise, which may mention an id before the connection does.
    let mut changes: Vec<_> = entries
        .iter()
        .zip(&chunks)
        .map(|(entry, chunk)| {
            if noise(entry).is_some() {
                return (None, Edits::default());
            }
            let makes = made_by(&entries, entry);
            redactor.edits(
                entry.line,
                makes.as_ref().map(SessionId::as_str),
                chunk.as_ref().map(|chunk| chunk.whole()).as_ref(),
            )
        })
        .collect();
    for message in &messages {
        let places: Vec<_> =
            message.iter().filter_map(|place| Some((*place, chunks.get(*place)?.as_ref()?))).collect();
        let scope = message.first().and_then(|place| changes.get(*place)).and_then(|(scope, _)| *scope);
        let texts: Vec<_> = places.iter().map(|(_, chunk)| chunk.text.as_ref()).collect();
        let rules = |text: &[u8], edits: &mut Edits| {
            redactor.rules(scope, text, |span, with| edits.replace(span, with))
        };
        split_text::redact(&texts, "", rules, |piece, span, with| {
            if let Some((place, chunk)) = places.get(piece)
                && let Some((_, edits)) = changes.get_mut(*place)
            {
                edits.replace(chunk.span(span), escaped(&with.unwrap_or_default()));
            }
        });
    }
    let rules = |text: &[u8], edits: &mut Edits| {
        redactor.rules(None, text, |span, with| edits.replace(span, with));
    };
    for side in [Side::Client, Side::Agent] {
        let of_side = entries.iter().enumerate().filter(|(_, entry)| entry.from() == side);
        let (places, texts): (Vec<_>, Vec<_>) =
            of_side.filter_map(|(place, entry)| Some((place, noise(entry)?))).unzip();
        split_text::redact_lines(&texts, rules, |piece, span, with| {
            if let Some((_, edits)) = places.get(piece).and_then(|place| changes.get_mut(*place)) {
                edits.replace(span, with);
            }
        });
    }
    let (stderr, texts): (Vec<_>, Vec<_>) = records
        .iter()
        .enumerate()
        .filter_map(|(place, record)| match &record.event {
            RecordEvent::Stderr(text) => Some((place, text.as_str())),
            _ => None,
        })
        .unzip();
    let mut errors: Vec<Edits> = texts.iter().map(|_| Edits::default()).collect();
    for (text, edits) in texts.iter().zip(&mut errors) {
        // A log line may be JSON.
        redaction.secrets.search(text.as_bytes(), edits);
    }
    split_text::redact_lines(&texts, rules, |piece, span, with| {
        if let Some(edits) = errors.get_mut(piece) {
            edits.replace(span, with);
        }
    });

    let mut redacted: Vec<Record> = records.to_vec();
    for (entry, (_, edits)) in entries.iter().zip(changes) {
        if let Some(record) = redacted.get_mut(entry.record)
            && !edits.is_empty()
        {
            let bytes = edits.apply(entry.line.bytes());
            record.event =
                RecordEvent::Line(RecordedLine::new(entry.line.from, bytes).ending(entry.line.end));
        }
    }
    for ((place, text), edits) in stderr.into_iter().zip(texts).zip(errors) {
        if let Some(record) = redacted.get_mut(place) {
            record.event =
                RecordEvent::Stderr(String::from_utf8_lossy(&edits.apply(text.as_bytes())).into_owned());
        }
    }
    for record in &mut redacted {
        if let RecordEvent::Unknown(json) = &mut record.event
            && let Ok(changed) =
                serde_json::from_slice(&redactor.unknown(json.get()).apply(json.get().as_bytes()))
        {
            *json = changed;
        }
    }
    if !redaction.keep_pace {
        for record in &mut redacted {
            record.at = Duration::ZERO;
        }
    }
    (redacted, redactor)
}

/// Returns the text of a line that is not JSON.
fn noise<'a>(entry: &TranscriptEntry<'a>) -> Option<&'a str> {
    let ParsedLine::Noise(_) = &entry.parsed else { return None };
    let text = entry.line.text()?;
    serde_json::from_str::<IgnoredAny>(text).is_err().then_some(text)
}

/// Returns the session that the response to a request names.
fn made_by(entries: &[TranscriptEntry<'_>], entry: &TranscriptEntry<'_>) -> Option<SessionId> {
    let ParsedLine::Request { answer: Some(answer), .. } = &entry.parsed else { return None };
    match &entries.get(*answer)?.parsed {
        ParsedLine::Response { outcome: ResponseOutcome::Result(result), .. } => session_of(result),
        _ => None,
    }
}
