//! The results of a run, as text for people, as JSON for programs and as JUnit XML for continuous integration.

mod junit;
mod text;

use std::time::Duration;

use duologue_transcript::{Record, RecordEvent, Side};
use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};

use crate::finding::{Check, Finding, Verdict};

pub use text::TextReport;

/// Lines that are shown for one result.
const MAX_FRAMES: usize = 12;
/// Lines of stderr among them.
const MAX_STDERR_FRAMES: usize = 5;
/// Characters of a line in text.
const TEXT_LINE: usize = 180;
/// Characters of a line in JSON and XML.
const DATA_LINE: usize = 4_000;

/// The results of all checks of a run.
#[derive(Clone, Debug)]
#[must_use = "a failed check is only a result: call `assert_passed`"]
pub struct Report {
    pub(crate) results: Vec<CheckResult>,
    /// Set if the agent answered `initialize` at least once.
    pub(crate) has_agent: bool,
    /// The reason for which no session or no turn could be had, if a check needed one.
    pub(crate) untested: Option<String>,
}

/// The result of one check.
#[derive(Clone, Debug)]
pub struct CheckResult {
    check: &'static Check,
    verdict: Verdict,
    saw: String,
    duration: Duration,
    shown: Vec<Record>,
}

/// The number of results by verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Summary {
    /// The number of checks that passed.
    pub pass: usize,
    /// The number of checks that failed.
    pub fail: usize,
    /// The number of checks that ended with a warning.
    pub warn: usize,
    /// The number of checks that were skipped.
    pub skipped: usize,
}

impl Report {
    /// Returns the results in the order of the checks.
    #[must_use]
    pub fn results(&self) -> &[CheckResult] {
        &self.results
    }

    /// Returns true if the agent answered `initialize`, could be tested and no check failed. Warnings and skipped checks
    /// are no failures.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.has_agent && self.untested.is_none() && self.summary().fail == 0
    }

    /// Returns the reason for which checks were skipped because the agent opened no session or answered no prompt, for
    /// example because it requires a login.
    #[must_use]
    pub fn untested(&self) -> Option<&str> {
        self.untested.as_deref()
    }

    /// Counts the results.
    #[must_use]
    pub fn summary(&self) -> Summary {
        let count = |verdict| self.results.iter().filter(|result| result.verdict == verdict).count();
        Summary {
            pass: count(Verdict::Pass),
            fail: count(Verdict::Fail),
            warn: count(Verdict::Warn),
            skipped: count(Verdict::Skipped),
        }
    }

    /// Panics if the agent does not conform or could not be tested.
    ///
    /// # Panics
    ///
    /// If [`passed`](Self::passed) returns false. The message contains the report as text.
    #[track_caller]
    pub fn assert_passed(&self) {
        if self.passed() {
            return;
        }
        let text = self.to_text();
        match self.untested() {
            Some(reason) if self.summary().fail == 0 => panic!(
                "the agent could not be tested: {reason}\n\
                 If it requires a login, set the method with `Suite::login`; if it rejects the prompt, set another one \
                 with `Suite::prompt`.\n\n{text}"
            ),
            _ => panic!("the agent does not conform:\n\n{text}"),
        }
    }

    /// Returns the report as text, without colours.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = Vec::new();
        let mut writer = TextReport::plain(&mut text);
        for result in &self.results {
            // Writing to memory cannot fail.
            let _ = writer.result(result);
        }
        let _ = writer.summary(self.summary());
        String::from_utf8_lossy(&text).into_owned()
    }

    /// Returns the results as JSON, one object a line, and a last line with the summary.
    #[must_use]
    pub fn to_json_lines(&self) -> String {
        let rows = self.results.iter().map(|result| serde_json::to_string(result).unwrap_or_default());
        let last = serde_json::json!({"summary": self.summary()});
        rows.chain([last.to_string()]).map(|row| row + "\n").collect()
    }

    /// Returns the report as JUnit XML: a test suite for each group, a test case for each check.
    ///
    /// A warning is a test case that passed; its text is in `system-out`.
    #[must_use]
    pub fn to_junit(&self) -> String {
        junit::document(&self.results)
    }
}

impl CheckResult {
    pub(crate) fn new(check: &'static Check, finding: Finding, duration: Duration) -> Self {
        CheckResult { check, verdict: finding.verdict, saw: finding.saw, duration, shown: finding.shown }
    }

    /// Returns the check.
    #[must_use]
    pub fn check(&self) -> &'static Check {
        self.check
    }

    /// Returns the verdict.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        self.verdict
    }

    /// Returns the observation that led to the verdict, a sentence.
    #[must_use]
    pub fn saw(&self) -> &str {
        &self.saw
    }

    /// Returns the lines and events that show the observation; if no line shows it, everything during the check.
    #[must_use]
    pub fn records(&self) -> &[Record] {
        &self.shown
    }

    /// Returns the time that the check took.
    #[must_use]
    pub fn duration(&self) -> Duration {
        self.duration
    }
}

impl Serialize for CheckResult {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut row = serializer.serialize_map(None)?;
        let check = self.check;
        row.serialize_entry("check", check.name)?;
        row.serialize_entry("group", check.group)?;
        row.serialize_entry("severity", &check.severity)?;
        row.serialize_entry("rule", check.rule)?;
        row.serialize_entry("page", check.page)?;
        row.serialize_entry("verdict", &self.verdict)?;
        row.serialize_entry("saw", &self.saw)?;
        let (_, frames) = frames(&self.shown, DATA_LINE);
        if self.verdict != Verdict::Skipped && !frames.is_empty() {
            row.serialize_entry("frames", &frames)?;
        }
        row.end()
    }
}

/// A line of the conversation, as a report shows it.
#[derive(Serialize)]
struct ShownLine {
    from: &'static str,
    line: String,
}

/// Returns the last lines, and the number of lines before them. Lines longer than `max_chars` are shortened.
fn frames(records: &[Record], max_chars: usize) -> (usize, Vec<ShownLine>) {
    let is_stderr = |record: &&Record| matches!(record.event, RecordEvent::Stderr(_));
    let mut surplus = records.iter().filter(is_stderr).count().saturating_sub(MAX_STDERR_FRAMES);
    let kept = records.iter().filter(|record| {
        let dropped = is_stderr(record) && surplus > 0;
        surplus -= usize::from(dropped);
        !dropped
    });
    let all: Vec<ShownLine> = kept.filter_map(|record| frame(record, max_chars)).collect();
    let left_out = all.len().saturating_sub(MAX_FRAMES);
    (left_out, all.into_iter().skip(left_out).collect())
}

fn frame(record: &Record, max_chars: usize) -> Option<ShownLine> {
    let (from, text) = match &record.event {
        RecordEvent::Line(line) => (line.from.name(), String::from_utf8_lossy(line.bytes()).into_owned()),
        RecordEvent::Stderr(text) => ("stderr", text.clone()),
        RecordEvent::Eof(Side::Client) => ("client", "(stdin closed)".into()),
        RecordEvent::Eof(Side::Agent) => ("agent", "(stdout closed)".into()),
        _ => return None,
    };
    Some(ShownLine { from, line: shorten(&text, max_chars) })
}

/// Cuts a long text in its middle, since both ends of a message identify it.
fn shorten(text: &str, max_chars: usize) -> String {
    let length = text.chars().count();
    if length <= max_chars {
        return text.to_owned();
    }
    let (head, tail) = (max_chars * 2 / 3, max_chars / 3);
    let start: String = text.chars().take(head).collect();
    let end: String = text.chars().skip(length - tail).collect();
    format!("{start}…{}…{end}", length - head - tail)
}
