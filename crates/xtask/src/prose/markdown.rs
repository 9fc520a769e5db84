//! Markdown as far as the rules need it: its paragraphs, without code, and the words outside of quotations.

/// A line with its number in the file.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TextLine {
    pub(super) number: usize,
    pub(super) text: String,
}

impl TextLine {
    pub(super) fn new(number: usize, text: &str) -> Self {
        TextLine { number, text: text.to_owned() }
    }
}

/// Lines that belong together: a paragraph, an item of a list, a heading, or a row of a table.
#[derive(Debug, PartialEq)]
pub(super) struct Paragraph {
    pub(super) table: bool,
    pub(super) lines: Vec<TextLine>,
}

/// Splits Markdown into paragraphs without their markers. Code blocks are left out.
pub(super) fn paragraphs(lines: &[TextLine]) -> Vec<Paragraph> {
    let mut paragraphs: Vec<Paragraph> = Vec::new();
    let (mut fence, mut open) = (None, false);
    for line in lines {
        let text = line.text.trim();
        let mark = ["```", "~~~"].into_iter().find(|mark| text.starts_with(mark));
        if mark.is_some() && (fence.is_none() || fence == mark) {
            (fence, open) = (if fence.is_none() { mark } else { None }, false);
            continue;
        }
        if fence.is_some() || text.is_empty() || text.starts_with("<!--") {
            open &= fence.is_some();
            continue;
        }
        let (table, (marked, text)) = (text.starts_with('|'), unmarked(text));
        let line = TextLine { number: line.number, text: text.to_owned() };
        match paragraphs.last_mut() {
            Some(last) if open && !table && !marked => last.lines.push(line),
            _ => paragraphs.push(Paragraph { table, lines: vec![line] }),
        }
        open = !table;
    }
    paragraphs
}

/// Returns a line without the markers of headings, quotes and lists, and true if there were any.
fn unmarked(text: &str) -> (bool, &str) {
    let mut rest = text;
    loop {
        let digits = rest.trim_start_matches(|char: char| char.is_ascii_digit());
        let marked = rest.trim_start_matches('#').strip_prefix(' ').filter(|_| rest.starts_with('#'));
        let item = ["- ", "* ", "+ ", "> "].into_iter().find_map(|mark| rest.strip_prefix(mark));
        let item = item.or_else(|| digits.strip_prefix(". ").filter(|_| digits.len() < rest.len()));
        match marked.or(item) {
            Some(inside) => rest = inside.trim_start(),
            None => return (rest.len() < text.len(), rest),
        }
    }
}

/// Stands for a code span or a link target.
pub(super) const CODE: char = '\u{FFFC}';

/// Replaces code spans, link targets and addresses by one character each. Line ends are kept.
pub(super) fn without_code(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some(char) = rest.chars().next() {
        let ticks = rest.len() - rest.trim_start_matches('`').len();
        let taken = if ticks > 0 {
            let mark = "`".repeat(ticks);
            rest.get(ticks..).and_then(|after| after.find(&mark)).map(|end| ticks + end + ticks)
        } else if rest.starts_with("](") {
            rest.find(')').map(|end| end + 1)
        } else if rest.starts_with("https://") || rest.starts_with("http://") {
            Some(rest.find(|char: char| char.is_whitespace() || ")>\"".contains(char)).unwrap_or(rest.len()))
        } else {
            None
        };
        match taken.and_then(|length| rest.split_at_checked(length)) {
            Some((code, after)) => {
                plain.push(CODE);
                plain.extend(code.chars().filter(|char| *char == '\n'));
                rest = after;
            }
            None => {
                plain.push(char);
                rest = rest.get(char.len_utf8()..).unwrap_or_default();
            }
        }
    }
    plain
}

/// Replaces quotations by one character each. Line ends are kept.
pub(super) fn without_quotations(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some(char) = rest.chars().next() {
        let close = match char {
            '"' => Some('"'),
            '“' => Some('”'),
            '‘' => Some('’'),
            '«' => Some('»'),
            _ => None,
        };
        let after = rest.get(char.len_utf8()..).unwrap_or_default();
        match close.and_then(|close| after.split_once(close)) {
            Some((quoted, after)) => {
                plain.push(CODE);
                plain.extend(quoted.chars().filter(|char| *char == '\n'));
                rest = after;
            }
            None => {
                plain.push(char);
                rest = after;
            }
        }
    }
    plain
}

/// Returns the sentences of a text with the line on which each begins, counted from 0.
pub(super) fn sentences(text: &str) -> Vec<(usize, String)> {
    let mut sentences = Vec::new();
    let (mut sentence, mut begun) = (String::new(), 0);
    let mut line = 0;
    let mut chars = text.chars().peekable();
    while let Some(char) = chars.next() {
        if sentence.trim().is_empty() {
            begun = line;
        }
        line += usize::from(char == '\n');
        sentence.push(char);
        let ends = ".!?".contains(char) && chars.peek().is_none_or(|next| next.is_whitespace());
        let ends_in_quotation = "\"”)".contains(char)
            && sentence.chars().rev().nth(1).is_some_and(|before| ".!?".contains(before))
            && chars.peek().is_none_or(|next| next.is_whitespace());
        if ends || ends_in_quotation {
            sentences.push((begun, std::mem::take(&mut sentence).trim().to_owned()));
        }
    }
    if !sentence.trim().is_empty() {
        sentences.push((begun, sentence.trim().to_owned()));
    }
    sentences
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(text: &str) -> Vec<Paragraph> {
        let lines: Vec<TextLine> =
            text.lines().enumerate().map(|(at, line)| TextLine::new(at + 1, line)).collect();
        paragraphs(&lines)
    }

    #[test]
    fn paragraphs_are_split_at_blank_lines_and_markers() {
        let found = page("# Head\none\ntwo\n\n- three\n  four\n1. five\n| a | b |\n| c | d |\nsix\n");
        let numbers: Vec<(bool, Vec<usize>)> = found
            .iter()
            .map(|part| (part.table, part.lines.iter().map(|line| line.number).collect()))
            .collect();
        assert_eq!(
            numbers,
            [
                (false, vec![1, 2, 3]),
                (false, vec![5, 6]),
                (false, vec![7]),
                (true, vec![8]),
                (true, vec![9]),
                (false, vec![10])
            ]
        );
        assert_eq!(found[0].lines[0].text, "Head");
        assert_eq!(found[2].lines[0].text, "five");
    }

    #[test]
    fn code_blocks_are_left_out() {
        assert_eq!(page("```sh\nWhat\n```\n~~~\n```\n~~~\n"), []);
        assert_eq!(page("```sh\nWhat\n```\ntext\n").len(), 1);
    }

    #[test]
    fn code_and_links_are_replaced() {
        assert_eq!(
            without_code("a `b` c ``d ` e`` [f](g.md) https://h.example i"),
            "a \u{FFFC} c \u{FFFC} [f\u{FFFC} \u{FFFC} i"
        );
        assert_eq!(without_code("a ` alone"), "a ` alone");
        assert_eq!(without_code("a `b\nc` d"), "a \u{FFFC}\n d");
    }

    #[test]
    fn quotations_are_replaced() {
        assert_eq!(without_quotations("a \"b\nc\" d “e” f"), "a \u{FFFC}\n d \u{FFFC} f");
        assert_eq!(without_quotations("a \" alone"), "a \" alone");
    }

    #[test]
    fn sentences_end_at_a_stop_before_a_space() {
        let found = sentences("One is 1.5 long. Two\nis longer! Three \"ends.\" Four");
        assert_eq!(
            found,
            [
                (0, "One is 1.5 long.".to_owned()),
                (0, "Two\nis longer!".to_owned()),
                (1, "Three \"ends.\"".to_owned()),
                (1, "Four".to_owned())
            ]
        );
    }
}
