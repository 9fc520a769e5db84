//! Styled text and its division into the rows of a terminal.

use anstyle::Style;
use unicode_width::UnicodeWidthChar as _;

use crate::ui::printable;

/// The spaces that a tab is shown as.
const TAB: &str = "    ";

/// The margin of the agent's text on a terminal. Only rows of this program and of the user begin in the
/// first column, so that no text of the agent can pass for a question or an entry of the audit trail.
pub(super) const INDENT: &str = "  ";

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
    /// False if the row continues the line of the row before.
    pub(super) begins_line: bool,
}

/// The number of columns of the rows.
#[derive(Clone, Copy, Debug)]
pub(super) struct RowWidths {
    /// For a row that begins a line.
    first: usize,
    /// For every further row of the line.
    further: usize,
}

impl RowWidths {
    pub(super) fn all(width: usize) -> Self {
        RowWidths { first: width.max(1), further: width.max(1) }
    }

    /// Returns the widths of rows behind the [`INDENT`].
    pub(super) fn indented(width: usize) -> Self {
        RowWidths::all(width.saturating_sub(INDENT.len()))
    }

    /// Returns the widths of lines whose further rows are behind the [`INDENT`].
    pub(super) fn hanging(width: usize) -> Self {
        RowWidths { first: width.max(1), ..RowWidths::indented(width) }
    }
}

/// Returns text of the agent as rows behind the [`INDENT`].
pub(super) fn indented(spans: &[Span], width: usize, colours: bool) -> Vec<String> {
    let rows = wrap(spans, 0, RowWidths::indented(width), colours);
    rows.into_iter().map(|row| behind(INDENT, row.text)).collect()
}

/// Returns lines of this program as rows. Whatever they quote, only the lines begin in the first column.
pub(super) fn hanging(spans: &[Span], width: usize, colours: bool) -> Vec<String> {
    let rows = wrap(spans, 0, RowWidths::hanging(width), colours).into_iter();
    rows.map(|row| if row.begins_line { row.text } else { behind(INDENT, row.text) }).collect()
}

/// Returns a note of this program as rows. Whatever it quotes, only the first row begins in the first column.
pub(super) fn note(spans: &[Span], width: usize, colours: bool) -> Vec<String> {
    let rows = wrap(spans, 0, RowWidths::hanging(width), colours).into_iter().enumerate();
    rows.map(|(index, row)| if index == 0 { row.text } else { behind(INDENT, row.text) }).collect()
}

/// Returns a row behind a margin, which an empty row does not need.
pub(super) fn behind(margin: &str, row: String) -> String {
    if row.is_empty() { row } else { format!("{margin}{row}") }
}

/// One character of a line.
struct Cell {
    char: char,
    style: Style,
    width: usize,
    /// Its end in the text.
    end: usize,
}

/// Breaks text into rows of at most these columns, between words where that is possible, beginning
/// at the byte `from`, where a row began before.
pub(super) fn wrap(spans: &[Span], from: usize, widths: RowWidths, colours: bool) -> Vec<WrappedRow> {
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
    let mut begins_line = before == '\n';
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
                break_line(&line, at, widths, begins_line, colours, &mut rows);
            }
            line.clear();
            begins_line = true;
        }
    }
    if !line.is_empty() {
        break_line(&line, at, widths, begins_line, colours, &mut rows);
    }
    rows
}

fn break_line(
    line: &[Cell],
    end: usize,
    widths: RowWidths,
    mut begins_line: bool,
    colours: bool,
    rows: &mut Vec<WrappedRow>,
) {
    let mut rest = line;
    loop {
        let width = if begins_line { widths.first } else { widths.further };
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
            rows.push(WrappedRow { text: paint(shown, colours), end, begins_line });
            return;
        }
        while let [rest @ .., Cell { char: ' ', .. }] = shown {
            shown = rest;
        }
        let end = row.last().map_or(end, |cell| cell.end);
        rows.push(WrappedRow { text: paint(shown, colours), end, begins_line });
        (rest, begins_line) = (next, false);
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

/// The rows of an edited text, and the row and the column of its cursor.
pub(super) type TypedRows = (Vec<String>, (usize, usize));

/// Breaks an edited text into rows of at most `width` columns, the first of which begins at the column
/// `indent`. Returns `None` if there are more than `room`.
pub(super) fn typed_rows(
    text: &str,
    cursor: usize,
    indent: usize,
    width: usize,
    room: usize,
) -> Option<TypedRows> {
    if text.len() > room.saturating_mul(PART) {
        return None;
    }
    let (rows, place) = lay_out(text, (0, text.len()), None, cursor, indent, width, |rows, _| rows > room);
    (rows.len() <= room).then_some((rows, place))
}

/// Breaks an edited text into rows of at most `width` columns, and returns `room` of them. The cursor is in
/// the last one, unless it is near the beginning of the text. Rows further away are not computed.
pub(super) fn typed_rows_around(text: &str, cursor: usize, width: usize, room: usize) -> TypedRows {
    let count = |part: Part, end| {
        let (rows, _) = lay_out(text, (part.start, end), Some(part), end, 0, width, |_, _| false);
        // Behind a line break or a part there is an empty row, which is the first one of the next part.
        rows.len() - usize::from(rows.last().is_some_and(String::is_empty))
    };
    let mut first = Part::of(text, cursor);
    let mut above = count(first, cursor);
    while above < room
        && let Some(before) = first.before(text)
    {
        above += count(before, first.start);
        first = before;
    }
    let is_enough = |rows: usize, row: usize| rows > row && rows >= room;
    let (rows, (row, column)) =
        lay_out(text, (first.start, text.len()), Some(first), cursor, 0, width, is_enough);
    let skipped = (row + 1).saturating_sub(room);
    (rows.into_iter().skip(skipped).take(room).collect(), (row - skipped, column))
}

/// The number of bytes of a line after which a row of [`typed_rows_around`] ends in any case, so that rows
/// are found without those before.
const PART: usize = 4096;

/// A part of an edited text. It begins a row.
#[derive(Clone, Copy, Debug)]
struct Part {
    /// The start of its line.
    line: usize,
    /// Its number in the line.
    index: usize,
    start: usize,
}

impl Part {
    fn new(text: &str, line: usize, index: usize) -> Self {
        let mut start = line + index * PART;
        while start < text.len() && !text.is_char_boundary(start) {
            start -= 1;
        }
        Part { line, index, start }
    }

    /// Returns the part that has this byte.
    fn of(text: &str, at: usize) -> Self {
        let line = text.get(..at).and_then(|text| text.rfind('\n')).map_or(0, |index| index + 1);
        let part = Part::new(text, line, (at - line) / PART);
        Some(part.next(text)).filter(|next| next.start <= at).unwrap_or(part)
    }

    /// Returns the next part of the line.
    fn next(self, text: &str) -> Self {
        Part::new(text, self.line, self.index + 1)
    }

    /// Returns the part before.
    fn before(self, text: &str) -> Option<Self> {
        match self.index.checked_sub(1) {
            Some(index) => Some(Part::new(text, self.line, index)),
            None => Some(Part::of(text, self.line.checked_sub(1)?)),
        }
    }
}

/// Breaks a text into rows between two bytes, until there are enough. The first row begins with the part,
/// if there is one, and then parts begin rows. `is_enough` gets the number of whole rows and the row of the
/// cursor, once that is known.
fn lay_out(
    text: &str,
    (from, to): (usize, usize),
    part: Option<Part>,
    cursor: usize,
    indent: usize,
    width: usize,
    is_enough: impl Fn(usize, usize) -> bool,
) -> TypedRows {
    let (mut rows, mut row, mut column) = (Vec::new(), String::new(), indent);
    let mut place = None;
    let mut next = part.map(|part| part.next(text));
    let mut chars = text.get(from..to).unwrap_or_default().chars().peekable();
    let mut at = from;
    while let Some(char) = chars.next() {
        let mut bytes = [0; 4];
        let shown = match char {
            '\n' => "".into(),
            '\t' => TAB.into(),
            _ => printable(char.encode_utf8(&mut bytes)),
        };
        let needed: usize = shown.chars().map(width_of).sum();
        // It is no row of its own.
        let selector = if chars.peek() == Some(&'\u{fe0f}') { 1 } else { 0 };
        let begins_part = next.filter(|next| next.start == at);
        if begins_part.is_some() || column + needed + selector > width && column > 0 {
            rows.push(std::mem::take(&mut row));
            column = 0;
        }
        next = begins_part.map(|part| part.next(text)).or(next);
        if at == cursor {
            place = Some((rows.len(), column));
        }
        row.push_str(&shown);
        column += needed;
        at += char.len_utf8();
        if char == '\n' {
            rows.push(std::mem::take(&mut row));
            column = 0;
            next = part.map(|_| Part::new(text, at, 1));
        }
        if is_enough(rows.len(), place.map_or(usize::MAX, |(row, _)| row)) {
            return (rows, place.unwrap_or_default());
        }
    }
    if column >= width || next.is_some_and(|next| next.start == at) {
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
    use super::{
        INDENT, PART, RowWidths, Span, TAB, flat, hanging, indented, typed_rows, typed_rows_around, width_of,
        wrap,
    };

    fn rows(text: &str, width: usize) -> Vec<String> {
        let rows = wrap(&[Span::plain(text)], 0, RowWidths::all(width), false);
        rows.into_iter().map(|row| row.text).collect()
    }

    /// Text that imitates a question, and text that a terminal could break elsewhere.
    #[test]
    fn no_row_of_the_agent_begins_in_the_first_column() {
        let fake = "? May it do this?";
        let texts = [
            fake.to_owned(),
            format!("\n{fake}"),
            format!("a\r\n{fake}\n\n\t{fake}"),
            format!("a\r{fake}\u{85}{fake}\u{2028}{fake}\u{2029}{fake}\u{b}{fake}\u{c}{fake}"),
            format!("\u{1b}[1G{fake}\u{1b}E{fake}\u{9b}1G{fake}\u{8}\u{8}\u{8}{fake}"),
            format!("\u{200b}{fake}\n\u{301}{fake}\n\u{a0}{fake}\n終端機{fake}終端機\u{fe0f}{fake}"),
        ];
        for width in 1..50 {
            // A line that fills the row, so that the imitation follows at its end.
            let full = ["x", " ", "終", "\u{301}x"].map(|char| format!("{}{fake}", char.repeat(width)));
            for text in texts.iter().chain(&full) {
                for row in indented(&[Span::plain(text)], width, false) {
                    let columns: usize = row.chars().map(width_of).sum();
                    assert!(row.is_empty() || row.starts_with(INDENT), "{row:?} of {text:?} at {width}");
                    assert!(columns <= width.max(INDENT.len() + TAB.len()), "{row:?} of {text:?} at {width}");
                }
                let own =
                    hanging(&[Span::plain("· title: "), Span::line(Default::default(), text)], width, false);
                for row in &own[1..] {
                    assert!(row.is_empty() || row.starts_with(INDENT), "{row:?} of {text:?} at {width}");
                }
            }
        }
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
                let (spans, widths) = ([Span::plain(text)], RowWidths::hanging(width));
                let all = wrap(&spans, 0, widths, false);
                for (index, row) in all.iter().enumerate() {
                    assert_eq!(wrap(&spans, row.end, widths, false), all[index + 1..], "{text:?} at {width}");
                }
                assert_eq!(all.last().map(|row| row.end), Some(flat(&spans).len()));
            }
        }
    }

    #[test]
    fn an_edited_text_has_a_cursor() {
        let typed = |text: &str, cursor| typed_rows(text, cursor, 2, 6, usize::MAX).unwrap();
        assert_eq!(typed("abc", 3), (vec!["abc".to_owned()], (0, 5)));
        assert_eq!(typed("abcd", 4), (vec!["abcd".to_owned(), String::new()], (1, 0)));
        assert_eq!(typed("abcdef", 1).1, (0, 3));
        assert_eq!(typed("abcdef", 4), (vec!["abcd".to_owned(), "ef".to_owned()], (1, 0)));
        assert_eq!(typed("a\n\nb", 2), (["a", "", "b"].map(str::to_owned).into(), (1, 0)));
        assert_eq!(typed("ab終機", 5), (["ab終", "機"].map(str::to_owned).into(), (1, 0)));
        assert_eq!(typed("\u{1b}", 1), (["", "\\u{1b}", ""].map(str::to_owned).into(), (2, 0)));
    }

    /// The rows of a text without room are those of the whole text, as far as they are seen.
    #[test]
    fn a_text_without_room_is_laid_out_around_the_cursor() {
        let text =
            "one two three, abcdefghijklmnop\n\n終端機の幅\n\u{1b}\te\u{301}e\u{301}e\u{301}❤\u{fe0f}end\n";
        for width in [1, 2, 7, 9, 20] {
            let ends: Vec<_> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
            for &cursor in &ends {
                let (all, (row, column)) = typed_rows(text, cursor, 0, width, usize::MAX).unwrap();
                for room in 1..all.len() {
                    let skipped = (row + 1).saturating_sub(room);
                    let expected = (all[skipped..skipped + room].to_vec(), (row - skipped, column));
                    let seen = typed_rows_around(text, cursor, width, room);
                    assert_eq!(seen, expected, "at {cursor}, width {width}, room {room}");
                    assert_eq!(typed_rows(text, cursor, 0, width, room), None);
                }
            }
        }
    }

    /// A key in a long text costs no more than in a short one, and the cursor is seen everywhere.
    #[test]
    fn a_long_text_is_laid_out_around_the_cursor() {
        for line in ["0123456789".repeat(100_000), "終".repeat(300_000), "line\n".repeat(200_000)] {
            for cursor in (0..=line.len()).step_by(line.len() / 300).chain([line.len()]) {
                let cursor = (cursor..).find(|&at| line.is_char_boundary(at)).unwrap();
                assert_eq!(typed_rows(&line, cursor, 2, 79, 23), None);
                let (rows, (row, column)) = typed_rows_around(&line, cursor, 79, 22);
                assert_eq!(rows.len(), 22);
                let before: String = rows[row].chars().take(column).collect();
                let (typed, _) = line.split_at(cursor);
                assert!(line.starts_with('終') || typed.ends_with(&before), "{cursor}: {rows:?}");
            }
        }
        // Marks on one character have no end of a row.
        let marks = "\u{301}".repeat(500_000);
        let (rows, _) = typed_rows_around(&marks, marks.len(), 79, 22);
        assert!(rows.iter().all(|row| row.len() <= PART));
    }

    /// A character at the edge of a narrow window is whole, with its marks.
    #[test]
    fn characters_at_the_edge_are_whole() {
        let typed = |text: &str| typed_rows(text, text.len(), 2, 9, usize::MAX).unwrap();
        let rows = |text: &str| typed(text).0;
        assert_eq!(typed("123456終"), (["123456", "終"].map(str::to_owned).into(), (1, 2)));
        assert_eq!(typed("12345終"), (["12345終", ""].map(str::to_owned).into(), (1, 0)));
        assert_eq!(rows("123456e\u{301}\u{308}x"), ["123456e\u{301}\u{308}", "x"]);
        assert_eq!(rows("123456❤\u{fe0f}x"), ["123456", "❤\u{fe0f}x"]);
        assert_eq!(rows("終終終終終"), ["終終終", "終終"]);
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
