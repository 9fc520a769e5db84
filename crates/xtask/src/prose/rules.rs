//! The rules, each with the text that breaks it.

use super::comments::Comment;
use super::markdown::{CODE, Paragraph, TextLine, paragraphs, sentences, without_code, without_quotations};

/// Words that no line of prose begins with.
const OPENINGS: [&str; 5] = ["What", "Whether", "Whose", "Who", "How"];
/// Words that no doc comment begins with, besides the ones above.
const DOC_OPENINGS: [&str; 2] = ["When", "Where"];
/// Words that have a plainer one.
const WORDS: [&str; 13] = [
    "told",
    "heard",
    "said",
    "asked",
    "held",
    "news",
    "whoever",
    "letters",
    "manners",
    "doors",
    "scenes",
    "the person",
    "the other one",
];
const SENTENCE_WORDS: usize = 40;
const LINE_CHARS: usize = 200;
/// Two printed pages.
const RFD_LINES: usize = 120;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    Opening,
    Word,
    Sentence,
    Line,
    Rfd,
}

impl Rule {
    pub(super) const ALL: [Rule; 5] = [Rule::Opening, Rule::Word, Rule::Sentence, Rule::Line, Rule::Rfd];

    pub(super) fn name(self) -> &'static str {
        match self {
            Rule::Opening => "opening",
            Rule::Word => "word",
            Rule::Sentence => "sentence",
            Rule::Line => "line",
            Rule::Rfd => "rfd",
        }
    }
}

/// A line that breaks a rule.
#[derive(Debug, PartialEq)]
pub(super) struct Violation {
    pub(super) line: usize,
    pub(super) rule: Rule,
    pub(super) text: String,
}

/// Returns the findings of a comment.
pub(super) fn comment(comment: &Comment) -> Vec<Violation> {
    let paragraphs = paragraphs(&comment.lines);
    let mut findings: Vec<Violation> = paragraphs.iter().flat_map(paragraph).collect();
    if let Some(first) = paragraphs.first().and_then(|first| first.lines.first()).filter(|_| comment.doc) {
        findings.extend(opening(first, &DOC_OPENINGS));
    }
    findings
}

/// Returns the findings of a Markdown page.
pub(super) fn page(text: &str, rfd: bool) -> Vec<Violation> {
    let lines: Vec<TextLine> =
        text.lines().enumerate().map(|(at, line)| TextLine::new(at + 1, line)).collect();
    let mut findings = Vec::new();
    for part in paragraphs(&lines) {
        findings.extend(paragraph(&part));
        findings.extend(long_sentences(&part));
        if !part.table {
            findings.extend(part.lines.iter().filter_map(|line| long_line(line, &lines)));
        }
    }
    if rfd && lines.len() > RFD_LINES {
        let text = format!("{} lines, at most {RFD_LINES} are allowed", lines.len());
        findings.push(Violation { line: RFD_LINES + 1, rule: Rule::Rfd, text });
    }
    findings
}

/// Checks the openings and the words of a paragraph.
fn paragraph(paragraph: &Paragraph) -> Vec<Violation> {
    let text: Vec<&str> = paragraph.lines.iter().map(|line| &*line.text).collect();
    let plain = without_quotations(&without_code(&text.join("\n"))).to_lowercase();
    // The term of the field for a message that cannot be delivered.
    let plain = plain.replace("dead letters", "dead messages");
    let mut findings = Vec::new();
    for (at, line) in paragraph.lines.iter().enumerate() {
        if !paragraph.table {
            findings.extend(opening(line, &OPENINGS));
        }
        let here = plain.lines().nth(at).unwrap_or_default();
        // A phrase may go on in the next line.
        let next = plain.lines().nth(at + 1).unwrap_or_default();
        for word in WORDS.iter().filter(|word| begins_in(word, here, next)) {
            findings.push(Violation {
                line: line.number,
                rule: Rule::Word,
                text: format!("`{word}` in: {}", line.text.trim()),
            });
        }
    }
    findings
}

/// Checks the first word of a line.
fn opening(line: &TextLine, openings: &[&str]) -> Option<Violation> {
    let word: String = line.text.trim().chars().take_while(|char| char.is_alphanumeric()).collect();
    openings.contains(&&*word).then(|| Violation {
        line: line.number,
        rule: Rule::Opening,
        text: line.text.trim().to_owned(),
    })
}

/// Returns true if a word or phrase begins in a line, and ends in it or in the next one.
fn begins_in(phrase: &str, here: &str, next: &str) -> bool {
    fn words(line: &str) -> impl Iterator<Item = &str> {
        line.split(|char: char| !char.is_alphanumeric()).filter(|word| !word.is_empty())
    }
    let wanted: Vec<&str> = phrase.split(' ').collect();
    let count = words(here).count();
    let all: Vec<&str> = words(here).chain(words(next)).collect();
    (0..count).any(|at| all.get(at..at + wanted.len()).is_some_and(|found| found == wanted))
}

/// Checks the length of the sentences of a paragraph, or in a table of the parts of its cells, which semicolons separate.
fn long_sentences(paragraph: &Paragraph) -> Vec<Violation> {
    let text: Vec<&str> = paragraph.lines.iter().map(|line| &*line.text).collect();
    let text = without_code(&text.join("\n"));
    let cells: Vec<&str> = if paragraph.table { text.split(['|', ';']).collect() } else { vec![&*text] };
    let mut findings = Vec::new();
    for (line, sentence) in cells.into_iter().flat_map(sentences) {
        let is_word = |word: &&str| word.contains(|char: char| char.is_alphanumeric() || char == CODE);
        let words = sentence.split_whitespace().filter(is_word).count();
        if words > SENTENCE_WORDS {
            let start: Vec<&str> = sentence.split_whitespace().take(8).collect();
            let number = paragraph.lines.get(line).map_or(0, |line| line.number);
            let text = format!("{words} words: {} …", start.join(" ").replace(CODE, "`…`"));
            findings.push(Violation { line: number, rule: Rule::Sentence, text });
        }
    }
    findings
}

/// Checks the length of a line as it stands in the file.
fn long_line(line: &TextLine, page: &[TextLine]) -> Option<Violation> {
    let chars = page.get(line.number - 1)?.text.chars().count();
    (chars > LINE_CHARS).then(|| Violation {
        line: line.number,
        rule: Rule::Line,
        text: format!("{chars} characters, at most {LINE_CHARS} are allowed"),
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::findings;
    use super::*;

    fn found(path: &str, text: &str) -> Vec<(usize, Rule)> {
        findings(Path::new(path), text).into_iter().map(|finding| (finding.line, finding.rule)).collect()
    }

    #[test]
    fn openings_are_found_in_comments_and_pages() {
        for word in OPENINGS {
            assert_eq!(found("a.rs", &format!("/// {word} it is.\n")), [(1, Rule::Opening)]);
            assert_eq!(found("a.rs", &format!("let a = 1; // {word} it is.\n")), [(1, Rule::Opening)]);
            assert_eq!(found("a.toml", &format!("# {word} it is.\n")), [(1, Rule::Opening)]);
            for mark in ["", "# ", "- ", "1. ", "> - "] {
                assert_eq!(found("a.md", &format!("{mark}{word} it is.\n")), [(1, Rule::Opening)]);
            }
        }
        assert_eq!(found("a.rs", "/// Returns\n/// what it is. However, Howard\n/// Whole.\n"), []);
        assert_eq!(found("a.rs", "/// ```\n/// // What it is.\n/// ```\n"), []);
    }

    #[test]
    fn when_and_where_open_no_doc_comment() {
        assert_eq!(found("a.rs", "/// When it is.\n"), [(1, Rule::Opening)]);
        assert_eq!(found("a.rs", "//! Where it is.\n"), [(1, Rule::Opening)]);
        assert_eq!(found("a.rs", "// When it is.\n"), []);
        assert_eq!(found("a.rs", "/// It is.\n/// When it was, it was.\n"), []);
        assert_eq!(found("a.md", "When it is.\n"), []);
    }

    #[test]
    fn words_are_found_outside_of_code_and_quotations() {
        for word in WORDS {
            assert_eq!(found("a.rs", &format!("// It is {word}.\n")), [(1, Rule::Word)], "{word}");
            assert_eq!(found("a.md", &format!("| a | It is {word}. |\n")), [(1, Rule::Word)], "{word}");
            assert_eq!(
                found("a.md", &format!("It is `{word}` and \"{word}\" and “{word}”.\n")),
                [],
                "{word}"
            );
            assert_eq!(found("a.rs", &format!("let a = \"{word}\";\n")), []);
        }
        assert_eq!(found("a.md", "It is the\nother one.\n"), [(1, Rule::Word)]);
        assert_eq!(found("a.md", "A newsletter of outdoors.\n"), []);
        assert_eq!(found("a.md", "Dead letters. Other letters.\n"), [(1, Rule::Word)]);
        assert_eq!(found("a.md", "Dead letters and a list of dead letters.\n"), []);
        assert_eq!(found("a.md", "\"A quotation\nthat was said\" is exempt.\n"), []);
    }

    #[test]
    fn long_sentences_and_lines_are_found_in_pages() {
        let sentence = |words: usize| format!("{}end.\n", "word ".repeat(words - 1));
        assert_eq!(found("a.md", &sentence(40)), []);
        assert_eq!(found("a.md", &sentence(41)), [(1, Rule::Sentence), (1, Rule::Line)]);
        assert_eq!(found("a.md", &sentence(41).replace(" end", "\nend")), [(1, Rule::Sentence)]);
        assert_eq!(found("a.md", &format!("| a | {} |\n", sentence(41).trim())), [(1, Rule::Sentence)]);
        assert_eq!(found("a.md", &format!("| a | {} |\n", sentence(41).replacen("word ", "word; ", 1))), []);
        assert_eq!(found("a.md", &format!("```\n{}```\n", sentence(41))), []);
        assert_eq!(found("a.md", &format!("{}.\n", "x".repeat(199))), []);
        assert_eq!(found("a.md", &format!("{}.\n", "x".repeat(200))), [(1, Rule::Line)]);
    }

    #[test]
    fn an_rfd_has_two_pages() {
        assert_eq!(found("rfds/a.md", &"line\n\n".repeat(60)), []);
        assert_eq!(found("rfds/a.md", &"line\n\n".repeat(61)), [(121, Rule::Rfd)]);
        assert_eq!(found("docs/a.md", &"line\n\n".repeat(61)), []);
    }
}
