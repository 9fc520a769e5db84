//! Escapes text from a peer for a terminal.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::ops::RangeInclusive;

/// Escapes the characters that move the cursor, change the terminal or reorder text: control
/// characters except line feed and tab, bidirectional characters, and characters that are invisible. The joiners and
/// variation selectors of emoji and scripts stay.
///
/// Use it for every text of an agent on a terminal. Otherwise an agent could overwrite earlier output.
/// A text may be escaped in pieces, and escaping it twice changes nothing.
///
/// ```
/// use duologue_schema::printable;
///
/// assert_eq!(printable("a\n\tb"), "a\n\tb");
/// assert_eq!(printable("\u{1b}[2J"), "\\u{1b}[2J");
/// assert_eq!(printable("\u{202e}exe.txt"), "\\u{202e}exe.txt");
/// ```
#[must_use]
pub fn printable(text: &str) -> Cow<'_, str> {
    let Some(first) = text.char_indices().find_map(|(index, char)| escapes(char).then_some(index)) else {
        return Cow::Borrowed(text);
    };
    let (clean, rest) = text.split_at(first);
    let mut safe = String::with_capacity(text.len() + 16);
    safe.push_str(clean);
    for char in rest.chars() {
        match char {
            '\r' => safe.push_str("\\r"),
            char if escapes(char) => {
                let _ = write!(safe, "\\u{{{:x}}}", u32::from(char));
            }
            char => safe.push(char),
        }
    }
    Cow::Owned(safe)
}

/// The characters without a mark, in order: soft hyphens, fillers, blanks, zero-width and bidirectional characters,
/// annotations, variation selectors and tags.
pub const INVISIBLE: &[RangeInclusive<char>] = &[
    '\u{AD}'..='\u{AD}',
    '\u{34F}'..='\u{34F}',
    '\u{61C}'..='\u{61C}',
    '\u{115F}'..='\u{1160}',
    '\u{17B4}'..='\u{17B5}',
    '\u{180B}'..='\u{180F}',
    '\u{200B}'..='\u{200F}',
    '\u{202A}'..='\u{202E}',
    '\u{2060}'..='\u{206F}',
    '\u{2800}'..='\u{2800}',
    '\u{3164}'..='\u{3164}',
    '\u{FE00}'..='\u{FE0F}',
    '\u{FEFF}'..='\u{FEFF}',
    '\u{FFA0}'..='\u{FFA0}',
    '\u{FFF0}'..='\u{FFFB}',
    '\u{1BCA0}'..='\u{1BCA3}',
    '\u{1D173}'..='\u{1D17A}',
    '\u{E0000}'..='\u{E0FFF}',
];

fn escapes(char: char) -> bool {
    match char {
        '\n' | '\t' => false,
        // C0, DEL and C1.
        char if char.is_control() => true,
        '\0'..'\u{AD}' => false,
        // Line and paragraph separators.
        '\u{2028}' | '\u{2029}' => true,
        // The joiners of emoji and scripts, and the selectors of the text or the picture of an emoji.
        '\u{200C}' | '\u{200D}' | '\u{FE0E}' | '\u{FE0F}' => false,
        char => INVISIBLE.iter().any(|range| range.contains(&char)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invisible_characters_are_escaped() {
        let invisible = "\u{ad}\u{34f}\u{115f}\u{1160}\u{17b4}\u{180b}\u{180e}\u{200b}\u{2028}\u{2060}\u{2800}\u{3164}\
            \u{fe00}\u{fe0d}\u{feff}\u{ffa0}\u{fff9}\u{fffa}\u{fffb}\u{1d173}\u{e0001}\u{e0100}\u{e01ef}";
        for char in invisible.chars() {
            let text = format!("a{char}b");
            assert_eq!(printable(&text), format!("a\\u{{{:x}}}b", u32::from(char)));
        }
    }

    #[test]
    fn control_characters_are_escaped_except_line_feed_and_tab() {
        for char in ('\0'..='\u{9f}').filter(|char| char.is_control()) {
            let expected = match char {
                '\n' | '\t' => format!("a{char}b"),
                '\r' => "a\\rb".to_owned(),
                char => format!("a\\u{{{:x}}}b", u32::from(char)),
            };
            assert_eq!(printable(&format!("a{char}b")), expected);
            // Also behind another one that is escaped.
            assert_eq!(printable(&format!("\0a{char}b")), format!("\\u{{0}}{expected}"));
        }
    }

    #[test]
    fn emoji_and_scripts_stay() {
        for text in [
            "❤\u{fe0f}\u{200d}🔥",
            "👩\u{200d}💻",
            "☎\u{fe0e}",
            "می\u{200c}خواهم",
            "한글",
            "क्\u{200d}ष",
            "⠋",
            "\u{fffd}",
        ] {
            assert_eq!(printable(text), text);
        }
    }
}
