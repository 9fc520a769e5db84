//! The report as JUnit XML, in the form that Jenkins, GitLab and GitHub actions read.

use std::fmt::Write as _;
use std::time::Duration;

use super::{CheckResult, DATA_LINE, frames, shorten};
use crate::finding::Verdict;

/// Returns the document: one `testsuite` for each group, in the order of the results.
pub(super) fn document(results: &[CheckResult]) -> String {
    let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let _ = writeln!(xml, "<testsuites name=\"duologue-conformance\"{}>", counts(results));
    for group in results.chunk_by(|left, right| left.check.group == right.check.group) {
        let name = group.first().map_or("", |result| result.check.group);
        let _ = writeln!(xml, "  <testsuite name=\"{}\"{}>", escaped(name), counts(group));
        group.iter().for_each(|result| test_case(&mut xml, result));
        xml.push_str("  </testsuite>\n");
    }
    xml.push_str("</testsuites>\n");
    xml
}

/// Returns the attributes that count the results.
fn counts(results: &[CheckResult]) -> String {
    let count = |verdict| results.iter().filter(|result| result.verdict == verdict).count();
    let time: Duration = results.iter().map(|result| result.duration).sum();
    format!(
        " tests=\"{}\" failures=\"{}\" errors=\"0\" skipped=\"{}\" time=\"{:.3}\"",
        results.len(),
        count(Verdict::Fail),
        count(Verdict::Skipped),
        time.as_secs_f64()
    )
}

fn test_case(xml: &mut String, result: &CheckResult) {
    let check = result.check;
    let (name, group, time) = (escaped(check.name), escaped(check.group), result.duration.as_secs_f64());
    let _ = write!(xml, "    <testcase name=\"{name}\" classname=\"{group}\" time=\"{time:.3}\"");
    let saw = escaped(&shorten(&result.saw, DATA_LINE));
    let _ = match result.verdict {
        Verdict::Pass => writeln!(xml, "/>"),
        Verdict::Skipped => writeln!(xml, "><skipped message=\"{saw}\"/></testcase>"),
        Verdict::Fail => writeln!(
            xml,
            "><failure type=\"{}\" message=\"{saw}\">{}</failure></testcase>",
            check.severity.name(),
            details(result)
        ),
        Verdict::Warn => {
            writeln!(xml, "><system-out>warning: {saw}\n{}</system-out></testcase>", details(result))
        }
    };
}

/// Returns the rule, its page and the lines that show the violation.
fn details(result: &CheckResult) -> String {
    let mut text = format!("{}\n{}\n", result.check.rule, result.check.page);
    for frame in frames(&result.shown, DATA_LINE).1 {
        let _ = writeln!(text, "{}: {}", frame.from, frame.line);
    }
    escaped(&text)
}

/// Escapes markup. A character that XML 1.0 cannot hold, such as an escape character, becomes `\u{…}`.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\n' | '\t' => safe.push(char),
            '\u{fffe}' | '\u{ffff}' => safe.extend(char.escape_unicode()),
            _ if char.is_control() => safe.extend(char.escape_unicode()),
            _ => safe.push(char),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_and_control_characters_are_escaped() {
        assert_eq!(
            escaped("a<b>&\"c\"\u{1b}[0m\u{0}\r"),
            "a&lt;b&gt;&amp;&quot;c&quot;\\u{1b}[0m\\u{0}\\u{d}"
        );
    }
}
