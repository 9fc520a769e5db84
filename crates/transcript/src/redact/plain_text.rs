//! Text without the characters that hide a secret in it: invisible ones, and percent-encoding.

use std::ops::Range;

use duologue_schema::INVISIBLE;

/// A text without invisible characters and percent-encoding, which maps its parts to their place in the original.
pub(super) struct PlainText {
    pub(super) text: Vec<u8>,
    /// The start and the place after each change, both in `text` and in the original.
    places: Vec<(usize, usize)>,
}

impl PlainText {
    /// Returns `None` if the text has neither.
    pub(super) fn of(text: &[u8]) -> Option<Self> {
        let mut plain = PlainText { text: Vec::new(), places: vec![(0, 0)] };
        let mut copied = 0;
        for (at, _) in text.iter().enumerate().filter(|(_, byte)| matches!(byte, b'%' | 0xC2..)) {
            let (length, decoded) = match text.get(at..).unwrap_or_default() {
                [b'%', high, low, ..] => match (hex_digit(*high), hex_digit(*low)) {
                    (Some(high), Some(low)) => (3, Some(16 * high + low)),
                    _ => continue,
                },
                rest => match first_char(rest) {
                    Some(char) if INVISIBLE.iter().any(|range| range.contains(&char)) => {
                        (char.len_utf8(), None)
                    }
                    _ => continue,
                },
            };
            plain.text.extend_from_slice(text.get(copied..at).unwrap_or_default());
            plain.text.extend(decoded);
            copied = at + length;
            plain.places.push((plain.text.len(), copied));
        }
        if copied == 0 {
            return None;
        }
        plain.text.extend_from_slice(text.get(copied..).unwrap_or_default());
        Some(plain)
    }

    /// Returns the span of a part in the original text.
    pub(super) fn span(&self, part: Range<usize>) -> Range<usize> {
        let place = |at: usize| {
            let after = self.places.partition_point(|(plain, _)| *plain <= at);
            let (plain, text) = self.places.get(after.saturating_sub(1)).copied().unwrap_or_default();
            text + (at - plain)
        };
        place(part.start)..place(part.end)
    }
}

/// Returns the character that a text begins with, if it is not ASCII.
fn first_char(text: &[u8]) -> Option<char> {
    let length = match text.first()? {
        0xC2..=0xDF => 2,
        0xE0..=0xEF => 3,
        0xF0..=0xF4 => 4,
        _ => return None,
    };
    std::str::from_utf8(text.get(..length)?).ok()?.chars().next()
}

fn hex_digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_found_in_the_original() {
        let text = "a%20b\u{ad}c%zz\u{200b}\u{2060}%41%42é”d%4";
        let plain = PlainText::of(text.as_bytes()).unwrap();
        assert_eq!(String::from_utf8(plain.text.clone()).unwrap(), "a bc%zzABé”d%4");
        let original = |part: &str| {
            let at = memchr::memmem::find(&plain.text, part.as_bytes()).unwrap();
            String::from_utf8(text.as_bytes()[plain.span(at..at + part.len())].to_vec()).unwrap()
        };
        assert_eq!(original(" "), "%20");
        assert_eq!(original("bc"), "b\u{ad}c");
        assert_eq!(original("AB"), "%41%42");
        assert_eq!(original("é”d%4"), "é”d%4");
        assert!(PlainText::of("100 % of é ” ".as_bytes()).is_none());
    }
}
