//! A scanner of JSON lines that reports each string with its path and its span. So parts of a line can be
//! replaced while the rest stays byte for byte.

use std::borrow::Cow;
use std::ops::Range;

use duologue_rpc::{JsonScanner, JsonToken, JsonTokenKind, Limits};
use serde_json::value::RawValue;

use super::secret_patterns::SECRET;

/// A step of the path from the root of a line to a value: an open object or array.
#[derive(Debug)]
pub(crate) struct PathStep<'a> {
    /// The current member, in an object.
    pub(crate) member: Option<Cow<'a, str>>,
    /// The index of the current element, counted from 0.
    pub(crate) index: usize,
}

/// Returns the last member of a path; `None` for an element of a list.
pub(crate) fn member<'f>(frames: &'f [PathStep<'_>]) -> Option<&'f str> {
    frames.last()?.member.as_deref()
}

/// Returns the member that contains the last object or list of a path.
pub(crate) fn outer_member<'f>(frames: &'f [PathStep<'_>]) -> Option<&'f str> {
    frames.split_last().and_then(|(_, outer)| member(outer))
}

/// A string without its quotes, as it is spelled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QuotedString<'a> {
    raw: &'a str,
    start: usize,
}

impl<'a> QuotedString<'a> {
    /// `token` includes the quotes and starts at `at`.
    pub(crate) fn new(token: &'a str, at: usize) -> Self {
        let raw = token.strip_prefix('"').and_then(|raw| raw.strip_suffix('"')).unwrap_or_default();
        QuotedString { raw, start: at + 1 }
    }

    /// Returns the string as it is spelled, with its quotes.
    pub(crate) fn token(self) -> String {
        format!("\"{}\"", self.raw)
    }

    /// Decodes the escapes of the string.
    pub(crate) fn read(self) -> DecodedString<'a> {
        DecodedString::read(self.raw, self.start)
    }
}

/// Receives the parts of a line in order. `frames` is the path from the root.
pub(crate) trait JsonVisitor<'a> {
    /// Called for the name of a member; the last step is its object.
    fn name(&mut self, _frames: &[PathStep<'a>], _name: &DecodedString<'a>) {}
    /// Called for a string value.
    fn string(&mut self, frames: &[PathStep<'a>], string: QuotedString<'a>);
    /// Called for a number, `true`, `false` or `null`, with its span.
    fn scalar(&mut self, _frames: &[PathStep<'a>], _token: &'a str, _span: Range<usize>) {}
    /// Called at the start of the object or array of the last step.
    fn open(&mut self, _frames: &[PathStep<'a>], _start: usize) {}
    /// Called at the end of the object or array of the last step.
    fn close(&mut self, _frames: &[PathStep<'a>], _end: usize) {}
    /// Called for an object or array that is nested too deeply, with its span. Its content is not visited.
    fn too_deep(&mut self, _span: Range<usize>) {}
}

/// Scans a line. Returns false without calling the visitor if it is not JSON. Visits values as deep as a message
/// may have them, so that the path of each is short.
pub(crate) fn scan<'a>(line: &'a str, visitor: &mut impl JsonVisitor<'a>) -> bool {
    if serde_json::from_str::<&RawValue>(line).is_err() {
        return false;
    }
    let deepest = Limits::default().depth;
    let mut too_deep = None;
    let mut frames: Vec<PathStep<'a>> = Vec::new();
    let mut tokens = JsonScanner::new(line.as_bytes());
    while let Some(JsonToken { kind, span }) = tokens.next() {
        if tokens.depth() > deepest {
            too_deep.get_or_insert(span.start);
            continue;
        }
        if let Some(start) = too_deep.take() {
            visitor.too_deep(start..span.end);
            continue;
        }
        let token = line.get(span.clone()).unwrap_or_default();
        match kind {
            JsonTokenKind::ObjectStart | JsonTokenKind::ArrayStart => {
                frames.push(PathStep { member: None, index: 0 });
                visitor.open(&frames, span.start);
            }
            JsonTokenKind::ObjectEnd | JsonTokenKind::ArrayEnd => {
                visitor.close(&frames, span.end);
                frames.pop();
            }
            JsonTokenKind::Comma => frames.last_mut().into_iter().for_each(|frame| frame.index += 1),
            JsonTokenKind::Key => {
                let name = QuotedString::new(token, span.start).read();
                visitor.name(&frames, &name);
                if let Some(frame) = frames.last_mut() {
                    frame.member = Some(name.text);
                }
            }
            JsonTokenKind::String => visitor.string(&frames, QuotedString::new(token, span.start)),
            JsonTokenKind::Scalar => visitor.scalar(&frames, token, span),
        }
    }
    true
}

/// A decoded string that maps its parts to their place in the line.
#[derive(Debug)]
pub(crate) struct DecodedString<'a> {
    /// The decoded text.
    pub(crate) text: Cow<'a, str>,
    /// The start and the place after each escape, both in `text` and in the line.
    places: Vec<(usize, usize)>,
}

impl<'a> DecodedString<'a> {
    fn read(raw: &'a str, start: usize) -> Self {
        let mut places = vec![(0, start)];
        let mut rest = raw;
        let Some(first) = memchr::memchr(b'\\', raw.as_bytes()) else {
            return DecodedString { text: Cow::Borrowed(raw), places };
        };
        let mut text = String::with_capacity(raw.len());
        let mut next = Some(first);
        while let Some((plain, escape)) = next.and_then(|at| rest.split_at_checked(at)) {
            text.push_str(plain);
            let (char, length) = unescape(escape);
            text.push(char);
            rest = escape.get(length..).unwrap_or_default();
            places.push((text.len(), start + raw.len() - rest.len()));
            next = memchr::memchr(b'\\', rest.as_bytes());
        }
        text.push_str(rest);
        DecodedString { text: Cow::Owned(text), places }
    }

    /// Returns the span in the line of a part of the text.
    pub(crate) fn span(&self, part: Range<usize>) -> Range<usize> {
        self.place(part.start)..self.place(part.end)
    }

    /// Returns the span in the line of the whole text.
    pub(crate) fn whole(&self) -> Range<usize> {
        self.span(0..self.text.len())
    }

    fn place(&self, at: usize) -> usize {
        let after = self.places.partition_point(|(text, _)| *text <= at);
        let (text, line) = self.places.get(after.saturating_sub(1)).copied().unwrap_or_default();
        line + (at - text)
    }
}

/// Decodes the escape at the start of a text. Returns its character and length. Half a surrogate pair becomes
/// a replacement character.
fn unescape(escape: &str) -> (char, usize) {
    let unit = |at: usize| {
        let digits = escape.get(at..)?.strip_prefix("\\u")?.get(..4)?;
        u16::from_str_radix(digits, 16).ok()
    };
    match escape.as_bytes().get(1) {
        Some(b'n') => ('\n', 2),
        Some(b't') => ('\t', 2),
        Some(b'r') => ('\r', 2),
        Some(b'b') => ('\u{8}', 2),
        Some(b'f') => ('\u{c}', 2),
        Some(b'u') => {
            let units = unit(0).into_iter().chain(unit(6));
            match char::decode_utf16(units).next() {
                Some(Ok(char)) => (char, if char.len_utf16() == 2 { 12 } else { 6 }),
                _ => (char::REPLACEMENT_CHARACTER, 6),
            }
        }
        Some(&other) => (char::from(other), 2),
        None => (char::REPLACEMENT_CHARACTER, 1),
    }
}

/// Replacements of spans in a text.
#[derive(Debug, Default)]
pub(crate) struct Edits {
    edits: Vec<(Range<usize>, String)>,
}

impl Edits {
    pub(crate) fn is_empty(&self) -> bool {
        self.edits.is_empty()
    }

    pub(crate) fn replace(&mut self, span: Range<usize>, text: impl Into<String>) {
        self.edits.push((span, text.into()));
    }

    /// Drops the replacements within a span.
    pub(crate) fn spare(&mut self, spared: &Range<usize>) {
        self.edits.retain(|(span, _)| span.start < spared.start || span.end > spared.end);
    }

    /// Returns the replacements in order, without overlaps. A span within another one is dropped. Two that overlap
    /// otherwise become one, which is a secret if either is.
    pub(crate) fn merged(mut self) -> Vec<(Range<usize>, String)> {
        self.edits.sort_by_key(|(span, _)| (span.start, std::cmp::Reverse(span.end)));
        let mut merged: Vec<(Range<usize>, String)> = Vec::with_capacity(self.edits.len());
        for (span, with) in self.edits {
            match merged.last_mut() {
                Some((last, _)) if span.end <= last.end => {}
                Some((last, text)) if span.start < last.end => {
                    last.end = span.end;
                    if with == SECRET {
                        *text = with;
                    }
                }
                _ => merged.push((span, with)),
            }
        }
        merged
    }

    /// Returns the text with all replacements.
    pub(crate) fn apply(self, text: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(text.len());
        let mut at = 0;
        for (span, with) in self.merged() {
            out.extend_from_slice(text.get(at..span.start).unwrap_or_default());
            out.extend_from_slice(with.as_bytes());
            at = span.end;
        }
        out.extend_from_slice(text.get(at..).unwrap_or_default());
        out
    }
}

/// Returns a string as it is spelled between the quotes of JSON.
pub(crate) fn escaped(text: &str) -> String {
    let quoted = serde_json::Value::from(text).to_string();
    quoted.get(1..quoted.len().saturating_sub(1)).unwrap_or_default().to_owned()
}

#[cfg(test)]
#[allow(clippy::string_slice)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Listed(Vec<String>);

    impl<'a> JsonVisitor<'a> for Listed {
        fn name(&mut self, _: &[PathStep<'a>], name: &DecodedString<'a>) {
            self.0.push(format!("{}:", name.text));
        }
        fn string(&mut self, frames: &[PathStep<'a>], string: QuotedString<'a>) {
            let path: Vec<_> = frames
                .iter()
                .map(|frame| frame.member.as_deref().map_or(frame.index.to_string(), str::to_owned))
                .collect();
            self.0.push(format!("{}={}", path.join("."), string.read().text));
        }
        fn scalar(&mut self, _: &[PathStep<'a>], token: &'a str, _: Range<usize>) {
            self.0.push(token.into());
        }
    }

    /// A wider replacement goes before one within it, and a secret before any other text.
    #[test]
    fn replacements_do_not_overlap() {
        for (edits, expected) in [
            ([(0..2, "a"), (0..5, "b")], vec![(0..5, "b")]),
            ([(0..4, "a"), (2..6, SECRET)], vec![(0..6, SECRET)]),
            ([(0..4, SECRET), (2..6, "a")], vec![(0..6, SECRET)]),
            ([(0..4, "a"), (2..6, "b")], vec![(0..6, "a")]),
            ([(0..2, "a"), (2..4, "b")], vec![(0..2, "a"), (2..4, "b")]),
        ] {
            let mut all = Edits::default();
            edits.clone().into_iter().for_each(|(span, with)| all.replace(span, with));
            let merged = all.merged();
            let merged: Vec<_> = merged.iter().map(|(span, with)| (span.clone(), with.as_str())).collect();
            assert_eq!(merged, expected, "{edits:?}");
        }
    }

    #[test]
    fn strings_come_with_their_place() {
        let mut listed = Listed::default();
        assert!(scan(r#" {"a":["x", {"b\u0021":"y\/z\"", "c":-1.5e3}, [], "q"],"d":null} "#, &mut listed));
        assert_eq!(listed.0, ["a:", "a.0=x", "b!:", "a.1.b!=y/z\"", "c:", "-1.5e3", "a.3=q", "d:", "null"]);
        assert!(!scan("{", &mut listed));
    }

    #[test]
    fn values_below_the_limit_of_messages_are_not_visited() {
        #[derive(Default)]
        struct Deepest(usize, Vec<Range<usize>>);
        impl<'a> JsonVisitor<'a> for Deepest {
            fn string(&mut self, frames: &[PathStep<'a>], _: QuotedString<'a>) {
                self.0 = self.0.max(frames.len());
            }
            fn open(&mut self, frames: &[PathStep<'a>], _: usize) {
                self.0 = self.0.max(frames.len());
            }
            fn too_deep(&mut self, span: Range<usize>) {
                self.1.push(span);
            }
        }
        let deepest = Limits::default().depth;
        let line = |depth| format!("{}\"x\"{},[],7]", "[".repeat(depth), "]".repeat(depth - 1));
        let mut seen = Deepest::default();
        assert!(scan(&line(deepest), &mut seen));
        assert_eq!((seen.0, seen.1), (deepest, vec![]));
        let mut seen = Deepest::default();
        assert!(scan(&line(deepest + 2), &mut seen));
        assert_eq!(seen.0, deepest);
        assert!(seen.1.into_iter().eq(std::iter::once(deepest..deepest + 7)));
    }

    #[test]
    fn a_part_of_a_string_is_found_behind_its_escapes() {
        let line = r#""a\n\u0073k-\ud83d\ude00\/b\ud800c""#;
        let spelled = QuotedString { raw: &line[1..line.len() - 1], start: 1 }.read();
        assert_eq!(spelled.text, "a\nsk-😀/b\u{fffd}c");
        for part in ["sk-", "😀/", "/b", "c", "\n"] {
            let at = spelled.text.find(part).unwrap();
            let span = spelled.span(at..at + part.len());
            let again = QuotedString { raw: &line[span.clone()], start: 0 }.read();
            assert_eq!(again.text, part, "{span:?}");
        }
        assert_eq!(spelled.whole(), 1..line.len() - 1);
    }

    proptest::proptest! {
        #[test]
        fn every_part_of_any_string_is_found(text: String, from: proptest::sample::Index, to: proptest::sample::Index) {
            let line = serde_json::to_string(&text).unwrap();
            let spelled = QuotedString { raw: &line[1..line.len() - 1], start: 1 }.read();
            proptest::prop_assert_eq!(&spelled.text, &text);
            let ends: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
            let (from, to) = (*from.get(&ends), *to.get(&ends));
            let span = spelled.span(from.min(to)..from.max(to));
            let part = format!("\"{}\"", &line[span]);
            proptest::prop_assert_eq!(serde_json::from_str::<String>(&part).unwrap(), &text[from.min(to)..from.max(to)]);
        }
    }
}
