//! Redaction of text in pieces: the chunks of a message, the lines of stderr. A match may begin in one piece and
//! end in another.

use std::collections::HashMap;
use std::ops::Range;

use duologue_schema::SessionId;

use super::json_scan::Edits;
use super::secret_patterns::SECRET;
use super::streamed_text::{PieceEvent, StreamedText};
use crate::classify::{ParsedLine, TranscriptEntry};
use crate::format::Side;

/// The texts of a session that may get further pieces, by number.
#[derive(Default)]
struct OpenTexts {
    /// Messages with an id, by id and kind.
    by_id: HashMap<String, HashMap<String, usize>>,
    /// Messages without an id, by kind.
    without_id: HashMap<String, usize>,
    /// Other texts, by their sender.
    others: HashMap<(Side, StreamedText), usize>,
}

/// Returns the pieces of each text, in order, as indexes of entries.
pub(crate) fn texts(entries: &[TranscriptEntry<'_>]) -> Vec<(StreamedText, Vec<usize>)> {
    let mut texts: Vec<(StreamedText, Vec<usize>)> = Vec::new();
    let mut open: HashMap<Option<SessionId>, OpenTexts> = HashMap::new();
    for (place, entry) in entries.iter().enumerate() {
        #[cfg(test)]
        crate::steps::count();
        let event = match &entry.parsed {
            ParsedLine::Notification { method, params } | ParsedLine::Request { method, params, .. } => {
                PieceEvent::of(method, *params)
            }
            _ => None,
        };
        let Some(event) = event else { continue };
        let session = open.entry(entry.session.clone()).or_default();
        let text = match event {
            PieceEvent::Clear(Some(id)) => {
                session.by_id.remove(&id);
                continue;
            }
            PieceEvent::Clear(None) => {
                session.by_id.clear();
                session.without_id.clear();
                continue;
            }
            PieceEvent::Prompt => {
                session.without_id.clear();
                continue;
            }
            PieceEvent::Piece(text) => text,
        };
        let next = texts.len();
        let number = match &text {
            StreamedText::Message { kind, id } => {
                let open = match id {
                    Some(id) => session.by_id.entry(id.clone()).or_default(),
                    None => &mut session.without_id,
                };
                *open.entry(kind.clone()).or_insert(next)
            }
            StreamedText::Output(_) | StreamedText::Terminal(_) => {
                *session.others.entry((entry.from(), text.clone())).or_insert(next)
            }
        };
        if number == next {
            texts.push((text, Vec::new()));
        }
        if let Some((_, pieces)) = texts.get_mut(number) {
            pieces.push(place);
        }
    }
    texts
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
