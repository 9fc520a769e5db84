//! Escaped text on a terminal: nothing in it moves the cursor, or reorders the text.

use std::borrow::Cow;

use duologue_schema::INVISIBLE;
use duologue_transcript::{Transcript, printable};

/// Text, and also a transcript if it is one.
pub fn check(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let shown = printable(&text);
    assert_eq!(shown.chars().find(|char| is_dangerous(*char)), None);
    match &shown {
        Cow::Borrowed(shown) => assert_eq!(*shown, text),
        Cow::Owned(shown) => assert!(text.chars().any(is_escaped), "{text:?} became {shown:?}"),
    }
    assert!(matches!(printable(&shown), Cow::Borrowed(_)), "escaped twice");
    // Escaping two halves gives the same as escaping the whole.
    let middle = (0..=text.len() / 2).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default();
    assert_eq!(format!("{}{}", printable(&text[..middle]), printable(&text[middle..])), shown);

    if let Ok(transcript) = Transcript::read(input) {
        for shown in [transcript.render(), transcript.redacted().render()] {
            assert_eq!(shown.chars().find(|char| is_dangerous(*char)), None);
        }
        let folded = transcript.fold();
        assert_eq!(printable(&folded).chars().find(|char| is_dangerous(*char)), None);
    }
}

/// Control characters but line feed and tab, and Unicode's property `Bidi_Control`.
fn is_dangerous(char: char) -> bool {
    char.is_control() && char != '\n' && char != '\t'
        || matches!(u32::from(char), 0x61C | 0x200E..=0x200F | 0x202A..=0x202E | 0x2066..=0x2069)
}

/// Returns true for characters that may be escaped: dangerous and invisible ones, and separators of lines.
fn is_escaped(char: char) -> bool {
    is_dangerous(char)
        || matches!(char, '\u{2028}' | '\u{2029}')
        || INVISIBLE.iter().any(|range| range.contains(&char))
}
