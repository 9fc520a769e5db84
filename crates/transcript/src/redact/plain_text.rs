//! Text without what hides a secret in it: invisible characters, terminal sequences and percent-encoding.

use std::ops::Range;

use duologue_schema::INVISIBLE;

/// The first character of a terminal sequence.
const ESCAPE: u8 = 0x1B;

/// A text without invisible characters, terminal sequences and percent-encoding, which maps its parts to their place in
/// the original.
pub(super) struct PlainText {
    pub(super) text: Vec<u8>,
    /// The start and the place after each change, both in `text` and in the original.
    places: Vec<(usize, usize)>,
}

impl PlainText {
    /// Returns `None` if the text has none of them.
    pub(super) fn of(text: &[u8]) -> Option<Self> {
        let mut plain = PlainText { text: Vec::new(), places: vec![(0, 0)] };
        let mut copied = 0;
        let hides = |byte: &u8| matches!(*byte, b'%' | b'\\' | ESCAPE | 0xC2..);
        for (at, _) in text.iter().enumerate().filter(|(_, byte)| hides(byte)) {
            if at < copied {
                continue;
            }
            let rest = text.get(at..).unwrap_or_default();
            let (length, decoded) = match (terminal_sequence(rest), rest) {
                (Some(length), _) => {
                    // A part ends before the sequence behind it.
                    plain.places.push((plain.text.len() + at - copied, at));
                    (length, None)
                }
                (None, [b'%', high, low, ..]) => match (hex_digit(*high), hex_digit(*low)) {
                    (Some(high), Some(low)) => (3, Some(16 * high + low)),
                    _ => continue,
                },
                (None, rest) => match first_char(rest) {
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
        let last = |after: usize| self.places.get(after.saturating_sub(1)).copied().unwrap_or_default();
        let (plain, text) = last(self.places.partition_point(|(plain, _)| *plain <= part.start));
        let start = text + (part.start - plain);
        let before = self.places.partition_point(|(plain, _)| *plain < part.end);
        let (plain, text) = match self.places.get(before) {
            Some(change) if change.0 == part.end => *change,
            _ => last(before),
        };
        start..text + (part.end - plain)
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

/// Returns the length of the terminal sequence at the start of a text, such as a colour. Its escape character may be
/// spelled as in a source text. Only sequences that end are recognised.
fn terminal_sequence(text: &[u8]) -> Option<usize> {
    let control = |start: usize| {
        let rest = text.get(start..)?;
        let end = rest.iter().position(|byte| !matches!(byte, b' '..=b'?'))?;
        matches!(rest.get(end), Some(b'@'..=b'~')).then_some(start + end + 1)
    };
    match text {
        [ESCAPE, b'[', ..] => control(2),
        // Both in one character of C1.
        [0xC2, 0x9B, ..] => control(2),
        // A title, a link or another string.
        [ESCAPE, b']' | b'P' | b'X' | b'^' | b'_', rest @ ..] => {
            let end = memchr::memchr2(ESCAPE, 7, rest)?;
            match rest.get(end..)? {
                [7, ..] => Some(end + 3),
                [_, b'\\', ..] => Some(end + 4),
                _ => None,
            }
        }
        [ESCAPE, rest @ ..] => {
            let end = rest.iter().position(|byte| !matches!(byte, b' '..=b'/'))?;
            matches!(rest.get(end), Some(b'0'..=b'~')).then_some(end + 2)
        }
        [b'\\', b'u' | b'x' | b'0' | b'e' | b'E', ..] | [b'%', b'1' | b'c' | b'C', ..] => {
            control(spelled_introducer(text)?)
        }
        _ => None,
    }
}

/// Returns the length of the start of a terminal sequence, if it is spelled in ASCII: in JSON, in a source text or in a URL.
fn spelled_introducer(text: &[u8]) -> Option<usize> {
    const ESCAPES: [&[u8]; 7] = [b"\\u001b", b"\\u{1b}", b"\\u{001b}", b"\\x1b", b"\\033", b"\\e", b"%1b"];
    const BRACKETS: [&[u8]; 2] = [b"[", b"%5b"];
    const BOTH: [&[u8]; 3] = [b"\\u009b", b"\\u{9b}", b"%c2%9b"];
    let length = |spellings: &[&[u8]], text: &[u8]| {
        let is_start = |spelled: &&&[u8]| {
            text.get(..spelled.len()).is_some_and(|start| start.eq_ignore_ascii_case(spelled))
        };
        spellings.iter().find(is_start).map(|spelled| spelled.len())
    };
    length(&BOTH, text).or_else(|| {
        let escape = length(&ESCAPES, text)?;
        Some(escape + length(&BRACKETS, text.get(escape..)?)?)
    })
}

fn hex_digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
#[allow(clippy::string_slice)]
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

    #[test]
    fn terminal_sequences_are_skipped() {
        for sequence in [
            "\x1b[32m",
            "\x1b[m",
            "\x1b[38;2;1;2;3m",
            "\x1b[?25l",
            "\x1b[0 q",
            "\x1b(B\x1b[m",
            "\x1b]0;50% of a title\x07",
            "\x1b]8;;https://example.com\x1b\\",
            r"\u001b[1;31m",
            r"\x1B[0m",
            r"\033[0m",
            r"\e[0m",
            r"\E[0m",
            r"\u{1b}[0m",
            r"\u{001B}[0m",
            "%1B[0m",
            "%1b%5B0m",
            "\u{9b}32m",
            r"\u009b32m",
            "%C2%9B0m",
        ] {
            let text = format!("a{sequence}b{sequence}c{sequence}");
            let plain = PlainText::of(text.as_bytes()).unwrap();
            assert_eq!(plain.text, b"abc", "{sequence:?}");
            assert_eq!(&text[plain.span(1..2)], "b");
            assert_eq!(text[plain.span(1..3)], format!("b{sequence}c"));
        }
        for text in [
            "\x1b[32",
            "\x1b]title",
            "\x1b]title\x1b[",
            "\x1b",
            r"\e[3",
            r"\u{1b}",
            r"C:\x\u001b",
            "\x1b[3\n2m",
            "\u{9b}3",
            "\u{9c}m",
        ] {
            assert!(PlainText::of(text.as_bytes()).is_none(), "{text:?}");
        }
    }
}
