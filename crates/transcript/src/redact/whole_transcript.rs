//! Redaction of a whole transcript, where later lines are known: the rest of a text in pieces, and the response
//! to each request.

use std::time::{Duration, SystemTime};

use duologue_rpc::ResponseOutcome;
use duologue_schema::SessionId;
use serde::de::IgnoredAny;

use super::json_scan::{DecodedString, Edits, escaped};
use super::placeholder_ids::SessionNumber;
use super::redaction::Redaction;
use super::redactor::Redactor;
use super::secret_patterns::SECRET;
use super::split_text;
use super::streamed_text::StreamedText;
use crate::classify::{ParsedLine, TranscriptEntry, entries, session_of};
use crate::format::{Header, Record, RecordEvent, RecordedLine, Redacted, Side};
use crate::terminal_text;
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

/// A piece of a text in its line.
struct Piece<'a> {
    string: DecodedString<'a>,
    /// The text, if the string is its base64.
    bytes: Option<Vec<u8>>,
}

impl<'a> Piece<'a> {
    /// Returns the piece of `text` in a line, unless it is no base64 but should be.
    fn read(text: &StreamedText, line: &'a str) -> Option<Self> {
        let string = text.piece(line)?.read();
        let bytes = if text.is_base64() { Some(terminal_text::decoded(&string.text)?) } else { None };
        Some(Piece { string, bytes })
    }

    fn text(&self) -> &[u8] {
        self.bytes.as_deref().unwrap_or(self.string.text.as_bytes())
    }
}

/// Does one pass over all records.
fn once(records: &[Record], redaction: &Redaction) -> (Vec<Record>, Redactor) {
    let entries = entries(records);
    let mut redactor = redaction.start();
    let streamed = split_text::texts(&entries);
    let mut chunks: Vec<_> = entries.iter().map(|_| None).collect();
    for (text, places) in &streamed {
        for place in places {
            if let (Some(chunk), Some(entry)) = (chunks.get_mut(*place), entries.get(*place)) {
                *chunk = entry.line.text().and_then(|line| Piece::read(text, line));
            }
        }
    }

    // All messages come first, in order, since they contain the ids and folders. Then come texts in pieces, and the
    // lines of stderr and noise, which may mention an id before the connection does.
    let mut changes: Vec<(SessionNumber, Edits)> = records.iter().map(|_| Default::default()).collect();
    for (record, (_, edits)) in records.iter().zip(&mut changes) {
        // A log line may be JSON.
        if let RecordEvent::Stderr(text) = &record.event {
            redaction.secrets.search(text.as_bytes(), edits);
        }
    }
    for (entry, chunk) in entries.iter().zip(&chunks).filter(|(entry, _)| noise(entry).is_none()) {
        let makes = made_by(&entries, entry);
        let spare = chunk.as_ref().map(|chunk| chunk.string.whole());
        if let Some(change) = changes.get_mut(entry.record) {
            *change = redactor.edits(entry.line, makes.as_ref().map(SessionId::as_str), spare.as_ref());
        }
    }
    for (_, places) in &streamed {
        let record = |place: &usize| entries.get(*place).map(|entry| entry.record);
        let pieces: Vec<_> =
            places.iter().filter_map(|place| Some((record(place)?, chunks.get(*place)?.as_ref()?))).collect();
        let scope = places.first().and_then(|place| changes.get(record(place)?)?.0);
        let texts: Vec<_> = pieces.iter().map(|(_, chunk)| chunk.text()).collect();
        let mut decoded: Vec<Edits> = pieces.iter().map(|_| Edits::default()).collect();
        let rules = |text: &[u8], edits: &mut Edits| {
            redactor.rules(scope, text, |span, with| edits.replace(span, with));
            let starts =
                texts.iter().scan(0, |start, text| Some(std::mem::replace(start, *start + text.len())));
            redaction.secrets.find_starts(text, starts, |span| edits.replace(span, SECRET));
        };
        split_text::redact(&texts, b"", rules, |piece, span, with| {
            if let Some((record, chunk)) = pieces.get(piece)
                && let Some((_, edits)) = changes.get_mut(*record)
            {
                let with = with.unwrap_or_default();
                match (&chunk.bytes, decoded.get_mut(piece)) {
                    (Some(_), Some(decoded)) => decoded.replace(span, with),
                    _ => edits.replace(chunk.string.span(span), escaped(&with)),
                }
            }
        });
        for ((record, chunk), decoded) in pieces.iter().zip(decoded) {
            if let (Some(bytes), false) = (&chunk.bytes, decoded.is_empty())
                && let Some((_, edits)) = changes.get_mut(*record)
            {
                edits.replace(chunk.string.whole(), terminal_text::encoded(&decoded.apply(bytes)));
            }
        }
    }
    let noise = entries.iter().filter_map(|entry| Some((entry.record, Some(entry.from()), noise(entry)?)));
    let stderr = records.iter().enumerate().filter_map(|(place, record)| match &record.event {
        RecordEvent::Stderr(text) => Some((place, None, text.as_str())),
        _ => None,
    });
    let lines: Vec<_> = noise.chain(stderr).collect();
    for stream in [Some(Side::Client), Some(Side::Agent), None] {
        let of_stream = lines.iter().filter(|(_, from, _)| *from == stream);
        let (places, texts): (Vec<_>, Vec<_>) = of_stream.map(|(place, _, text)| (*place, *text)).unzip();
        let rules = |text: &[u8], edits: &mut Edits| {
            redactor.rules(None, text, |span, with| edits.replace(span, with));
        };
        split_text::redact_lines(&texts, rules, |piece, span, with| {
            if let Some((_, edits)) = places.get(piece).and_then(|place| changes.get_mut(*place)) {
                edits.replace(span, with);
            }
        });
    }

    let mut redacted: Vec<Record> = records.to_vec();
    for (record, (_, edits)) in redacted.iter_mut().zip(changes) {
        match &mut record.event {
            RecordEvent::Line(line) if !edits.is_empty() => {
                let bytes = edits.apply(line.bytes());
                *line = RecordedLine::new(line.from, bytes).ending(line.end);
            }
            RecordEvent::Stderr(text) => {
                *text = String::from_utf8_lossy(&edits.apply(text.as_bytes())).into_owned();
            }
            RecordEvent::Unknown(json) => {
                let changed = redactor.unknown(json.get()).apply(json.get().as_bytes());
                match serde_json::from_slice(&changed) {
                    Ok(changed) => *json = changed,
                    // Drops a record that cannot be redacted.
                    Err(_) => {
                        let bytes = json.get().len() as u64;
                        record.event = RecordEvent::Dropped { lines: 1, bytes };
                    }
                }
            }
            _ => {}
        }
        if !redaction.keep_pace {
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
