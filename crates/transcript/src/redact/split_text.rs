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

impl OpenTexts {
    /// Ends a text, so that the next piece with its names begins another one.
    fn close(&mut self, text: &StreamedText, from: Side) {
        match text {
            StreamedText::Message { kind, id: Some(id) } => {
                self.by_id.get_mut(id).and_then(|kinds| kinds.remove(kind))
            }
            StreamedText::Message { kind, id: None } => self.without_id.remove(kind),
            _ => self.others.remove(&(from, text.clone())),
        };
    }
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
            PieceEvent::Clear(kind) => {
                for kinds in session.by_id.values_mut() {
                    kinds.remove(&kind);
                }
                session.without_id.remove(&kind);
                continue;
            }
            PieceEvent::Prompt => {
                session.without_id.clear();
                continue;
            }
            PieceEvent::Piece(text) => text,
            PieceEvent::Begin(text) => {
                session.close(&text, entry.from());
                text
            }
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
            StreamedText::Output(_)
            | StreamedText::Terminal(_)
            | StreamedText::Display(_)
            | StreamedText::ToolContent(_) => {
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
    pieces: &[&[u8]],
    between: &[u8],
    rules: impl FnOnce(&[u8], &mut Edits),
    mut change: impl FnMut(usize, Range<usize>, Option<String>),
) {
    let whole = pieces.join(between);
    let mut edits = Edits::default();
    rules(&whole, &mut edits);
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
    let pieces: Vec<_> = lines.iter().map(|line| line.as_bytes()).collect();
    redact(&pieces, b"\n", rules, |piece, span, with| {
        let is_lost = lines.get(piece).is_some_and(|line| span == (0..line.len()));
        let rest = if is_lost { SECRET } else { "" };
        change(piece, span, with.unwrap_or_else(|| rest.into()));
    });
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init)]
mod tests {
    use super::*;
    use crate::Transcript;
    use crate::redact::Redaction;

    /// The replacement goes to the piece in which a match begins. No piece is changed beside the match.
    #[test]
    fn a_match_changes_the_pieces_that_it_covers() {
        type Change = (usize, Range<usize>, Option<&'static str>);
        type Case<'a> = (&'a [u8], &'a [Range<usize>], &'a [Change]);
        let cases: [Case<'_>; 7] = [
            (b"", &[0..2], &[(0, 0..2, Some("0"))]),
            (b"", &[2..4], &[(1, 0..2, Some("0"))]),
            (b"", &[1..3], &[(0, 1..2, Some("0")), (1, 0..1, None)]),
            (b"", &[1..2, 2..3], &[(0, 1..2, Some("0")), (1, 0..1, Some("1"))]),
            (b"", &[3..5, 5..6], &[(1, 1..2, Some("0")), (3, 0..1, None), (3, 1..2, Some("1"))]),
            (b"\n", &[0..4], &[(0, 0..2, Some("0")), (1, 0..1, None)]),
            (b"\n", &[3..5, 7..9], &[(1, 0..2, Some("0")), (3, 0..2, Some("1"))]),
        ];
        for (between, matches, expected) in cases {
            let rules = |_: &[u8], edits: &mut Edits| {
                matches.iter().enumerate().for_each(|(at, span)| edits.replace(span.clone(), at.to_string()));
            };
            let mut changes = Vec::new();
            redact(&[b"ab", b"cd", b"", b"ef"], between, rules, |piece, span, with| {
                changes.push((piece, span, with))
            });
            let expected =
                expected.iter().map(|(piece, span, with)| (*piece, span.clone(), with.map(str::to_owned)));
            assert_eq!(changes, expected.collect::<Vec<_>>(), "{matches:?}");
        }
    }

    /// A line that is lost within a match stays a line.
    #[test]
    fn a_line_is_never_empty() {
        let mut changes = Vec::new();
        let rules = |_: &[u8], edits: &mut Edits| edits.replace(1..6, SECRET);
        redact_lines(&["ab", "cd", "ef"], rules, |line, span, with| changes.push((line, span, with)));
        let secret = || SECRET.to_owned();
        assert_eq!(changes, [(0, 1..2, secret()), (1, 0..2, secret())]);
    }

    /// Each side has terminals of its own, in each session.
    #[test]
    fn terminals_of_two_sides_are_apart() {
        let piece = |side: char, session: &str, text: &str| {
            format!(
                r#"{side} {{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":"{session}","update":{{"sessionUpdate":"tool_call_update","toolCallId":"t","_meta":{{"terminal_output":{{"terminal_id":"t","data":"{text}"}}}}}}}}}}"#
            )
        };
        for (side, session, is_one) in [('<', "s", true), ('>', "s", false), ('<', "other", false)] {
            let log = [piece('<', "s", "ghp_A1b2C3d4"), piece(side, session, "E5f6G7h8I9j0K1")].join("\n");
            let transcript = Transcript::import(log.as_bytes()).unwrap();
            let redacted = transcript.redact(&Redaction::secrets_only());
            assert_eq!(redacted.records() != transcript.records(), is_one, "{side} {session}");
        }
    }
}
