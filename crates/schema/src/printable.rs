//! Escapes text from a peer for a terminal.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Escapes the characters that move the cursor, change the terminal or reorder text: control
/// characters except line feed and tab, and bidirectional and invisible format characters.
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

fn escapes(char: char) -> bool {
    match char {
        '\n' | '\t' => false,
        // C0, DEL and C1.
        char if char.is_control() => true,
        // Directional marks, embeddings, overrides and isolates.
        '\u{61C}' | '\u{200E}' | '\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}' => true,
        // Line and paragraph separators, and zero-width characters except the joiners of emoji and scripts.
        '\u{2028}'
        | '\u{2029}'
        | '\u{200B}'
        | '\u{2060}'..='\u{2065}'
        | '\u{206A}'..='\u{206F}'
        | '\u{FEFF}' => true,
        // Tags, which are invisible.
        '\u{E0000}'..='\u{E007F}' => true,
        _ => false,
    }
}
