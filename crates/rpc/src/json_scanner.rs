//! Splits JSON text into tokens without building values.

use std::ops::Range;

/// The kind of a [`JsonToken`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JsonTokenKind {
    /// `{`
    ObjectStart,
    /// `}`
    ObjectEnd,
    /// `[`
    ArrayStart,
    /// `]`
    ArrayEnd,
    /// `,`
    Comma,
    /// The name of a member: a string before a colon.
    Key,
    /// A string that is a value.
    String,
    /// A number, `true`, `false` or `null`.
    Scalar,
}

/// A token of a JSON text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonToken {
    /// The kind of the token.
    pub kind: JsonTokenKind,
    /// The position of the token in the text. Keys and strings include their quotes.
    pub span: Range<usize>,
}

/// An iterator over the tokens of a JSON text. Colons and white space are skipped.
///
/// The scanner does not validate: check the text with `serde_json` first if it comes from a peer. On text that is not
/// JSON it returns arbitrary tokens, always ends, and never panics. The cost is linear in the length of the text.
/// Strings are skipped with `memchr`.
///
/// ```
/// use duologue_rpc::{JsonScanner, JsonTokenKind};
///
/// let text = r#"{"a": [1, "b\""]}"#;
/// let mut scanner = JsonScanner::new(text.as_bytes());
/// let mut numbers = Vec::new();
/// while let Some(token) = scanner.next() {
///     if token.kind == JsonTokenKind::Scalar {
///         numbers.push((scanner.depth(), &text[token.span]));
///     }
/// }
/// assert_eq!(numbers, [(2, "1")]);
/// ```
#[derive(Clone, Debug)]
pub struct JsonScanner<'a> {
    text: &'a [u8],
    at: usize,
    depth: usize,
}

impl<'a> JsonScanner<'a> {
    /// Creates a scanner at the beginning of `text`.
    #[must_use]
    pub fn new(text: &'a [u8]) -> Self {
        JsonScanner { text, at: 0, depth: 0 }
    }

    /// Returns the number of objects and arrays that are open after the last token.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// Returns true if the next byte that is not white space is a colon.
    fn is_before_colon(&self) -> bool {
        let rest = self.text.get(self.at..).unwrap_or_default();
        rest.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b':')
    }
}

impl Iterator for JsonScanner<'_> {
    type Item = JsonToken;

    fn next(&mut self) -> Option<JsonToken> {
        loop {
            let start = self.at;
            let byte = *self.text.get(start)?;
            self.at += 1;
            let kind = match byte {
                b'{' | b'[' => {
                    self.depth += 1;
                    if byte == b'{' { JsonTokenKind::ObjectStart } else { JsonTokenKind::ArrayStart }
                }
                b'}' | b']' => {
                    self.depth = self.depth.saturating_sub(1);
                    if byte == b'}' { JsonTokenKind::ObjectEnd } else { JsonTokenKind::ArrayEnd }
                }
                b',' => JsonTokenKind::Comma,
                b'"' => {
                    self.at = skip_string(self.text, self.at);
                    if self.is_before_colon() { JsonTokenKind::Key } else { JsonTokenKind::String }
                }
                b':' => continue,
                _ if byte.is_ascii_whitespace() => continue,
                _ => {
                    let rest = self.text.get(self.at..).unwrap_or_default();
                    self.at += rest.iter().position(|byte| ends_scalar(*byte)).unwrap_or(rest.len());
                    JsonTokenKind::Scalar
                }
            };
            return Some(JsonToken { kind, span: start..self.at });
        }
    }
}

const fn ends_scalar(byte: u8) -> bool {
    matches!(byte, b',' | b':' | b'{' | b'}' | b'[' | b']' | b'"') || byte.is_ascii_whitespace()
}

/// Returns the position behind the string whose first byte after the quote is at `at`.
fn skip_string(text: &[u8], mut at: usize) -> usize {
    while let Some(offset) = text.get(at..).and_then(|rest| memchr::memchr2(b'"', b'\\', rest)) {
        let end = at + offset + 1;
        if text.get(at + offset) == Some(&b'"') {
            return end;
        }
        // An escaped character does not end the string.
        at = end + 1;
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(text: &str) -> Vec<(JsonTokenKind, &str, usize)> {
        let mut scanner = JsonScanner::new(text.as_bytes());
        std::iter::from_fn(|| {
            scanner
                .next()
                .map(|token| (token.kind, text.get(token.span).unwrap_or_default(), scanner.depth()))
        })
        .collect()
    }

    #[test]
    fn every_token_has_its_kind_span_and_depth() {
        use JsonTokenKind::*;
        let text = r#" {"a\"" : [-1.5e3,"b:,]",{}], "c":null}"#;
        let expected = [
            (ObjectStart, "{", 1),
            (Key, r#""a\"""#, 1),
            (ArrayStart, "[", 2),
            (Scalar, "-1.5e3", 2),
            (Comma, ",", 2),
            (String, r#""b:,]""#, 2),
            (Comma, ",", 2),
            (ObjectStart, "{", 3),
            (ObjectEnd, "}", 2),
            (ArrayEnd, "]", 1),
            (Comma, ",", 1),
            (Key, r#""c""#, 1),
            (Scalar, "null", 1),
            (ObjectEnd, "}", 0),
        ];
        assert_eq!(tokens(text), expected);
    }

    #[test]
    fn text_that_is_not_json_ends_too() {
        assert_eq!(tokens(r#"]]"open\"#).len(), 3);
        assert_eq!(tokens("").len(), 0);
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_scanned_within_their_bounds(text: Vec<u8>) {
            let mut end = 0;
            for token in JsonScanner::new(&text) {
                proptest::prop_assert!(token.span.start >= end && token.span.end <= text.len());
                end = token.span.end;
            }
        }
    }
}
