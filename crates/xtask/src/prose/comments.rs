//! Comments of a source file.

use super::markdown::TextLine;

/// Consecutive comment lines of one kind.
#[derive(Debug, PartialEq)]
pub(super) struct Comment {
    /// True for `///` and `//!`.
    pub(super) doc: bool,
    pub(super) lines: Vec<TextLine>,
}

/// Adds a line to the last comment if it continues it, else begins a new one.
fn push(comments: &mut Vec<Comment>, doc: bool, continues: bool, line: TextLine) {
    match comments.last_mut() {
        Some(last)
            if continues
                && last.doc == doc
                && last.lines.last().is_some_and(|before| before.number + 1 == line.number) =>
        {
            last.lines.push(line);
        }
        _ => comments.push(Comment { doc, lines: vec![line] }),
    }
}

/// Returns the comments of a file in which a line that starts with `#` is a comment.
pub(super) fn hash(text: &str) -> Vec<Comment> {
    let mut comments = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let Some(comment) = line.trim_start().strip_prefix('#') else { continue };
        if !comment.starts_with('!') {
            push(&mut comments, false, true, TextLine::new(at + 1, comment));
        }
    }
    comments
}

/// Returns the line and block comments of a Rust file. Comments inside of literals are none.
pub(super) fn rust(text: &str) -> Vec<Comment> {
    let mut comments = Vec::new();
    let (mut at, mut number, mut blank) = (0, 1, true);
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        let length = if let Some(comment) = rest.strip_prefix("//") {
            let comment = comment.lines().next().unwrap_or_default();
            let doc = comment.starts_with('!') || comment.starts_with('/') && !comment.starts_with("//");
            let shown = if doc { comment.get(1..).unwrap_or_default() } else { comment };
            push(&mut comments, doc, blank, TextLine::new(number, shown));
            2 + comment.len()
        } else if rest.starts_with("/*") {
            let length = block(rest);
            let inside = rest.get(2..length).unwrap_or_default().trim_end_matches("*/");
            for (below, line) in inside.lines().enumerate() {
                let line = line.trim_start().trim_start_matches('*');
                push(&mut comments, false, below > 0, TextLine::new(number + below, line));
            }
            length
        } else {
            literal(rest).unwrap_or_else(|| rest.chars().next().map_or(1, char::len_utf8))
        };
        let passed = rest.get(..length).unwrap_or(rest);
        if let Some((before, last)) = passed.rsplit_once('\n') {
            number += 1 + before.matches('\n').count();
            blank = last.trim().is_empty();
        } else {
            blank &= passed.trim().is_empty();
        }
        at += length;
    }
    comments
}

/// Returns the length of a block comment, in which others may be nested.
fn block(text: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        if rest.starts_with("/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if rest.starts_with("*/") {
            (depth, at) = (depth - 1, at + 2);
        } else {
            at += rest.chars().next().map_or(1, char::len_utf8);
        }
        if depth == 0 {
            break;
        }
    }
    at
}

/// Returns the length of the string, character or identifier at the start of a text.
fn literal(text: &str) -> Option<usize> {
    let word = text.find(|char: char| !char.is_alphanumeric() && char != '_').unwrap_or(text.len());
    let (prefix, rest) = text.split_at(word);
    let hashes = rest.len() - rest.trim_start_matches('#').len();
    if prefix.ends_with('r') && rest.get(hashes..).is_some_and(|rest| rest.starts_with('"')) {
        let end = format!("\"{}", "#".repeat(hashes));
        let body = word + hashes + 1;
        return Some(text.get(body..)?.find(&end).map_or(text.len(), |found| body + found + end.len()));
    }
    if word > 0 && !rest.starts_with(['"', '\'']) {
        return Some(word);
    }
    match rest.chars().next()? {
        '"' => Some(word + quoted(rest, '"')),
        // A lifetime has no closing quote.
        '\'' if rest.starts_with("'\\") => Some(word + quoted(rest, '\'')),
        '\'' => {
            let mut chars = rest.char_indices().skip(1);
            let (_, (end, after)) = (chars.next()?, chars.next()?);
            (after == '\'').then_some(word + end + 1)
        }
        _ => None,
    }
}

/// Returns the length of a literal between two quotes.
fn quoted(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, char) in text.char_indices().skip(1) {
        match char {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if char == quote => return at + 1,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(source: &str) -> Vec<(bool, Vec<(usize, String)>)> {
        let lines = |lines: Vec<TextLine>| lines.into_iter().map(|line| (line.number, line.text)).collect();
        rust(source).into_iter().map(|comment| (comment.doc, lines(comment.lines))).collect()
    }

    #[test]
    fn comments_are_grouped_by_kind_and_place() {
        let source = "//! One.\n//! Two.\n\n/// Three.\n// Four.\nlet a = 1; // Five.\n// Six.\n";
        let numbers: Vec<(bool, Vec<usize>)> = lines(source)
            .into_iter()
            .map(|(doc, lines)| (doc, lines.into_iter().map(|(number, _)| number).collect()))
            .collect();
        assert_eq!(numbers, [(true, vec![1, 2]), (true, vec![4]), (false, vec![5]), (false, vec![6, 7])]);
    }

    #[test]
    fn literals_hold_no_comments() {
        for source in [
            r#"let a = "// none";"#,
            r##"let a = r#"" // none"#;"##,
            r#"let a = b"\" // none";"#,
            "let a = '\"'; let b = \"// none\";",
            "let a = '\\''; let b = \"// none\";",
            "fn a<'a>(b: &'a str) -> &'a str { \"// none\" }",
            "let a = \"one\n// none\n\";",
        ] {
            assert_eq!(lines(source), [], "{source}");
        }
    }

    #[test]
    fn block_comments_are_read_with_their_lines() {
        let found = lines("let a = 1;\n/* One.\n * Two. /* nested */\n */\n// Three.\n");
        let text: Vec<(usize, String)> = found.into_iter().flat_map(|(_, lines)| lines).collect();
        let text: Vec<(usize, &str)> = text.iter().map(|(number, text)| (*number, text.trim())).collect();
        assert_eq!(text, [(2, "One."), (3, "Two. /* nested */"), (4, ""), (5, "Three.")]);
    }

    #[test]
    fn a_shebang_is_no_comment() {
        let found = hash("#!/bin/sh\n# One.\n# Two.\nset -e # not read\n");
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].lines.iter().map(|line| line.number).collect::<Vec<_>>(), [2, 3]);
    }
}
