//! Redaction of text in pieces: the chunks of a message, the lines of stderr. A match may begin in one piece and
//! end in another.

use std::collections::HashMap;
use std::ops::Range;

use duologue_schema::{Notification as _, PromptRequest, Request as _, SessionId, SessionNotification};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::json_scan::{DecodedString, Edits, JsonVisitor, PathStep, QuotedString, scan};
use super::secret_patterns::SECRET;
use crate::classify::{ParsedLine, TranscriptEntry};

/// Returns the text of the chunk in a line, with its place.
pub(crate) fn chunk(line: &str) -> Option<DecodedString<'_>> {
    struct Find<'a>(Option<QuotedString<'a>>);
    impl<'a> JsonVisitor<'a> for Find<'a> {
        fn string(&mut self, frames: &[PathStep<'a>], string: QuotedString<'a>) {
            let place = ["params", "update", "content", "text"];
            if frames.len() == place.len()
                && frames.iter().zip(place).all(|(frame, name)| frame.member.as_deref() == Some(name))
            {
                self.0 = Some(string);
            }
        }
    }
    let mut find = Find(None);
    scan(line, &mut find);
    find.0.map(QuotedString::read)
}

/// The messages of a session that may get further chunks, by number.
#[derive(Default)]
struct OpenMessages {
    /// Those with an id, by id and kind.
    by_id: HashMap<String, HashMap<String, usize>>,
    /// The kind and number of the message without an id.
    without_id: Option<(String, usize)>,
}

/// Returns the chunks of each message, in order, as indexes of entries.
pub(crate) fn messages(entries: &[TranscriptEntry<'_>]) -> Vec<Vec<usize>> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Params {
        update: Update,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Update {
        session_update: String,
        #[serde(default)]
        message_id: Option<Box<RawValue>>,
    }
    let mut messages: Vec<Vec<usize>> = Vec::new();
    let mut open: HashMap<Option<SessionId>, OpenMessages> = HashMap::new();
    for (place, entry) in entries.iter().enumerate() {
        #[cfg(test)]
        crate::steps::count();
        let session = open.entry(entry.session.clone()).or_default();
        let update = match &entry.parsed {
            ParsedLine::Notification { method, params: Some(params) }
                if method == SessionNotification::METHOD =>
            {
                serde_json::from_str::<Params>(params.get()).ok().map(|params| params.update)
            }
            ParsedLine::Request { method, .. } if method == PromptRequest::METHOD => {
                session.without_id = None;
                None
            }
            _ => None,
        };
        let Some(Update { session_update: kind, message_id }) = update else { continue };
        let id = message_id.map(|raw| raw.get().to_owned()).filter(|id| id != "null");
        if kind.ends_with("_clear") {
            match id {
                Some(id) => _ = session.by_id.remove(&id),
                None => *session = OpenMessages::default(),
            }
        } else if kind.ends_with("_chunk") {
            // Chunks of one kind without an id are one message until something interrupts them.
            session.without_id.take_if(|(other, _)| *other != kind);
            let next = messages.len();
            let message = match id {
                Some(id) => *session.by_id.entry(id).or_default().entry(kind).or_insert(next),
                None => session.without_id.get_or_insert((kind, next)).1,
            };
            if message == next {
                messages.push(Vec::new());
            }
            if let Some(message) = messages.get_mut(message) {
                message.push(place);
            }
        } else if kind.starts_with("tool_call") {
            session.without_id = None;
        }
    }
    messages
}

/// Joins the pieces, with `between` between them, and applies `rules`. A replacement goes to the piece in which
/// its match begins; the other pieces lose their part of the match.
pub(crate) fn redact(
    pieces: &[&str],
    between: &str,
    rules: impl FnOnce(&[u8], &mut Edits),
    mut change: impl FnMut(usize, Range<usize>, Option<String>),
) {
    let whole = pieces.join(between);
    let mut edits = Edits::default();
    rules(whole.as_bytes(), &mut edits);
    if edits.is_empty() {
        return;
    }
    let mut pieces = pieces.iter().enumerate().scan(0, |at, (piece, text)| {
        let start = *at;
        *at += text.len() + between.len();
        Some((piece, start..start + text.len()))
    });
    let mut current = pieces.next();
    for (span, with) in edits.merged() {
        let mut with = Some(with);
        while let Some((piece, place)) = &current {
            let start = span.start.max(place.start);
            let end = span.end.min(place.end);
            if start < end {
                change(*piece, start - place.start..end - place.start, with.take());
            }
            // The next match may begin in this piece.
            if span.end <= place.end {
                break;
            }
            current = pieces.next();
        }
    }
}

/// Does the same for lines. A line that would be empty gets a placeholder, so that it stays a line.
pub(crate) fn redact_lines(
    lines: &[&str],
    rules: impl FnOnce(&[u8], &mut Edits),
    mut change: impl FnMut(usize, Range<usize>, String),
) {
    redact(lines, "\n", rules, |piece, span, with| {
        let is_lost = lines.get(piece).is_some_and(|line| span == (0..line.len()));
        let rest = if is_lost { SECRET } else { "" };
        change(piece, span, with.unwrap_or_else(|| rest.into()));
    });
}
