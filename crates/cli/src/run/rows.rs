//! Styled text and its division into the rows of a terminal.

use anstyle::Style;
use unicode_width::UnicodeWidthChar as _;

use crate::ui::printable;

/// The spaces that a tab is shown as.
const TAB: &str = "    ";

/// Text in one style. Control characters are escaped, so that it cannot move the cursor.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Span {
    style: Style,
    text: String,
}

impl Span {
    /// Creates text of any number of lines.
    pub(super) fn new(style: Style, text: &str) -> Self {
        Span { style, text: printable(&text.replace("\r\n", "\n")).into_owned() }
    }

    /// Creates text in one line. Line breaks are escaped, so that it cannot fake a second line.
    pub(super) fn line(style: Style, text: &str) -> Self {
        Span { style, text: Span::new(style, text).text.replace('\n', "\\n") }
    }

    /// Creates text without a style.
    pub(super) fn plain(text: &str) -> Self {
        Span::new(Style::new(), text)
    }

    /// Appends text in the same style.
    pub(super) fn push(&mut self, text: &str) {
        self.text.push_str(&Span::new(self.style, text).text);
    }

    pub(super) fn as_str(&self) -> &str {
        &self.text
    }
}

/// Returns the text of the spans.
pub(super) fn flat(spans: &[Span]) -> String {
    spans.iter().map(Span::as_str).collect()
}

/// Returns the text of the spans between two byte offsets.
pub(super) fn between(spans: &[Span], from: usize, to: usize) -> String {
    let (mut text, mut at) = (String::new(), 0);
    for span in spans {
        let (start, end) = (from.saturating_sub(at), to.saturating_sub(at).min(span.text.len()));
        text.push_str(span.text.get(start..end).unwrap_or_default());
        at += span.text.len();
    }
    text
}

/// One row, and the offset in the text at which the next one begins.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct WrappedRow {
    pub(super) text: String,
    pub(super) end: usize,
}

/// One character of a line.
struct Cell {
    char: char,
    style: Style,
    width: usize,
    /// Its end in the text.
    end: usize,
}

/// Breaks text into rows of at most `width` columns, between words where that is possible, beginning
/// at the byte `from`, where a row began before.
pub(super) fn wrap(spans: &[Span], from: usize, width: usize, colours: bool) -> Vec<WrappedRow> {
    let (mut rows, mut line) = (Vec::new(), Vec::new());
    let (mut at, mut before) = (0, '\n');
    // Skips the text before `from`, except its last character.
    let mut rest = spans;
    while let [first, behind @ ..] = rest
        && at + first.text.len() <= from
    {
        at += first.text.len();
        before = first.text.chars().next_back().unwrap_or(before);
        rest = behind;
    }
    let within = from.saturating_sub(at);
    if let Some(shown) = rest.first().and_then(|span| span.text.get(..within)) {
        before = shown.chars().next_back().unwrap_or(before);
    }
    at += within;
    let chars = rest.iter().enumerate().flat_map(|(index, span)| {
        let text = span.text.get(if index == 0 { within } else { 0 }..).unwrap_or_default();
        text.chars().map(|char| (char, span.style))
    });
    for (char, style) in chars {
        at += char.len_utf8();
        if char != '\n' {
            line.push(Cell { char, style, width: width_of(char), end: at });
        } else {
            // The end of a line that was shown to its end before needs no row.
            if at != from + 1 || before == '\n' {
                break_line(&line, at, width, colours, &mut rows);
            }
            line.clear();
        }
    }
    if !line.is_empty() {
        break_line(&line, at, width, colours, &mut rows);
    }
    rows
}

fn break_line(line: &[Cell], end: usize, width: usize, colours: bool, rows: &mut Vec<WrappedRow>) {
    let mut rest = line;
    loop {
        let (mut used, mut count, mut after_space) = (0, 0, None);
        for cell in rest {
            if used + cell.width > width && count > 0 {
                break;
            }
            used += cell.width;
            count += 1;
            if cell.char == ' ' && rest.iter().take(count).any(|cell| cell.char != ' ') {
                after_space = Some(count);
            }
        }
        let (shown, taken) = match rest.get(count) {
            None => (count, count),
            // A space that does not fit is left out.
            Some(cell) if cell.char == ' ' => (count, count + 1),
            Some(_) => {
                let count = after_space.unwrap_or(count);
                (count, count)
            }
        };
        let (row, next) = rest.split_at(taken);
        let mut shown = row.get(..shown).unwrap_or_default();
        if next.is_empty() {
            rows.push(WrappedRow { text: paint(shown, colours), end });
            return;
        }
        while let [rest @ .., Cell { char: ' ', .. }] = shown {
            shown = rest;
        }
        rows.push(WrappedRow { text: paint(shown, colours), end: row.last().map_or(end, |cell| cell.end) });
        rest = next;
    }
}

fn paint(cells: &[Cell], colours: bool) -> String {
    let mut text = String::new();
    for run in cells.chunk_by(|left, right| left.style == right.style) {
        let style = run.first().map(|cell| cell.style).filter(|_| colours).unwrap_or_default();
        text.push_str(&style.render().to_string());
        for cell in run {
            match cell.char {
                '\t' => text.push_str(TAB),
                char => text.push(char),
            }
        }
        text.push_str(&style.render_reset().to_string());
    }
    text
}

/// Breaks an edited text into rows of at most `width` columns, the first of which begins at the column
/// `indent`. Returns the row and the column of the byte `cursor` too.
pub(super) fn typed_rows(
    text: &str,
    cursor: usize,
    indent: usize,
    width: usize,
) -> (Vec<String>, (usize, usize)) {
    let (mut rows, mut row, mut column) = (Vec::new(), String::new(), indent);
    let mut place = None;
    for (at, char) in text.char_indices() {
        let shown = match char {
            '\n' => "".into(),
            '\t' => TAB.into(),
            _ => printable(char.encode_utf8(&mut [0; 4])).into_owned(),
        };
        let needed: usize = shown.chars().map(width_of).sum();
        if column + needed > width && column > 0 {
            rows.push(std::mem::take(&mut row));
            column = 0;
        }
        if at == cursor {
            place = Some((rows.len(), column));
        }
        row.push_str(&shown);
        column += needed;
        if char == '\n' {
            rows.push(std::mem::take(&mut row));
            column = 0;
        }
    }
    if column >= width {
        rows.push(std::mem::take(&mut row));
        column = 0;
    }
    let place = place.unwrap_or((rows.len(), column));
    rows.push(row);
    (rows, place)
}

/// Returns the largest number of columns of a character. Characters that a terminal draws as one are
/// counted one by one, so that a row may end early but never late.
fn width_of(char: char) -> usize {
    match char {
        '\t' => TAB.len(),
        // Makes the character before it wide.
        '\u{fe0f}' => 1,
        char => char.width().unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::{Span, flat, typed_rows, wrap};

    fn rows(text: &str, width: usize) -> Vec<String> {
        wrap(&[Span::plain(text)], 0, width, false).into_iter().map(|row| row.text).collect()
    }

    #[test]
    fn breaks_between_words_and_within_long_ones() {
        assert_eq!(rows("one two three", 8), ["one two", "three"]);
        assert_eq!(rows("abcdefghij klm", 4), ["abcd", "efgh", "ij", "klm"]);
        assert_eq!(rows("a\n\nb", 10), ["a", "", "b"]);
        assert_eq!(rows("    indented text", 12), ["    indented", "text"]);
        assert_eq!(rows("", 10), [""; 0]);
        assert_eq!(rows("\n", 10), [""]);
    }

    #[test]
    fn counts_columns_and_not_characters() {
        assert_eq!(rows("終端機の幅", 4), ["終端", "機の", "幅"]);
        assert_eq!(rows("終端機", 5), ["終端", "機"]);
        assert_eq!(rows("e\u{301}e\u{301}e\u{301}", 2), ["e\u{301}e\u{301}", "e\u{301}"]);
        assert_eq!(rows("\u{1b}[2J", 20), ["\\u{1b}[2J"]);
    }

    /// Rows that scrolled away can be left out at any row without a change to the rest.
    #[test]
    fn goes_on_where_a_row_began() {
        for text in [
            "one two three four",
            "aa\nbb\n\ncc dd ee ff gg",
            "終端機の幅 は二つ分 です",
            "abcdefghijklmnop qrs",
        ] {
            for width in 2..12 {
                let spans = [Span::plain(text)];
                let all = wrap(&spans, 0, width, false);
                for (index, row) in all.iter().enumerate() {
                    assert_eq!(wrap(&spans, row.end, width, false), all[index + 1..], "{text:?} at {width}");
                }
                assert_eq!(all.last().map(|row| row.end), Some(flat(&spans).len()));
            }
        }
    }

    #[test]
    fn an_edited_text_has_a_cursor() {
        let typed = |text: &str, cursor| typed_rows(text, cursor, 2, 6);
        assert_eq!(typed("abc", 3), (vec!["abc".to_owned()], (0, 5)));
        assert_eq!(typed("abcd", 4), (vec!["abcd".to_owned(), String::new()], (1, 0)));
        assert_eq!(typed("abcdef", 1).1, (0, 3));
        assert_eq!(typed("abcdef", 4), (vec!["abcd".to_owned(), "ef".to_owned()], (1, 0)));
        assert_eq!(typed("a\n\nb", 2), (["a", "", "b"].map(str::to_owned).into(), (1, 0)));
        assert_eq!(typed("ab終機", 5), (["ab終", "機"].map(str::to_owned).into(), (1, 0)));
        assert_eq!(typed("\u{1b}", 1), (["", "\\u{1b}", ""].map(str::to_owned).into(), (2, 0)));
    }

    /// Rows that have others below them never change while text streams in.
    #[test]
    fn is_stable_while_text_grows() {
        let text = "one two three, abcdefghijklmnop and\n  some more 終端機の幅 words to come";
        for width in 3..20 {
            let all = rows(text, width);
            for end in (0..text.len()).filter(|&end| text.is_char_boundary(end)) {
                let part = rows(text.get(..end).unwrap_or_default(), width);
                let done = part.len().saturating_sub(1);
                assert_eq!(part[..done], all[..done], "{end} at {width}");
            }
        }
    }
}
