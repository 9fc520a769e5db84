//! What is printed: a line a check for people, an object a line for programs.

use std::io::Write;

use anstyle::Style;
use duologue_transcript::{Record, RecordEvent, Side};
use serde::Serialize;

use super::finding::{Check, Finding, Severity, Verdict};
use crate::error::Result;
use crate::ui::{self, BAD, BOLD, DIM, GOOD, MARK, printable};

/// How many lines are shown for one finding.
const FRAMES: usize = 12;
/// How many of them may be of stderr, which likes to talk.
const STDERR_FRAMES: usize = 5;
/// How long a line is when people read it, and when programs do, in characters.
const FOR_PEOPLE: usize = 180;
const FOR_PROGRAMS: usize = 4_000;

/// How many checks ended how.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Summary {
    pass: usize,
    fail: usize,
    warn: usize,
    skipped: usize,
}

impl Summary {
    pub(crate) fn add(&mut self, verdict: Verdict) {
        match verdict {
            Verdict::Pass => self.pass += 1,
            Verdict::Fail => self.fail += 1,
            Verdict::Warn => self.warn += 1,
            Verdict::Skipped => self.skipped += 1,
        }
    }

    pub(crate) fn failed(&self) -> bool {
        self.fail > 0
    }
}

#[derive(Serialize)]
struct Row<'a> {
    check: &'a str,
    group: &'a str,
    severity: Severity,
    rule: &'a str,
    page: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    verdict: Option<Verdict>,
    #[serde(skip_serializing_if = "Option::is_none")]
    saw: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    frames: Vec<Frame>,
}

#[derive(Serialize)]
struct Frame {
    from: &'static str,
    line: String,
}

/// Prints, in one of two ways.
pub(crate) struct Report {
    json: bool,
    group: &'static str,
}

impl Report {
    pub(crate) fn new(json: bool) -> Self {
        Report { json, group: "" }
    }

    /// A check without a verdict: what it checks.
    pub(crate) fn describe(&mut self, group: &'static str, check: &Check) -> Result<()> {
        let mut out = ui::stdout();
        if self.json {
            return json(&mut out, &row(group, check));
        }
        self.headline(&mut out, group)?;
        let severity = if check.severity == Severity::Must { BOLD } else { DIM };
        writeln!(
            out,
            "  {:<26} {severity}{:<6}{severity:#} {}",
            check.name,
            check.severity.name(),
            check.rule
        )?;
        writeln!(out, "  {:<33} {DIM}{}{DIM:#}", "", check.page)?;
        Ok(())
    }

    /// A check and what it found.
    pub(crate) fn finding(&mut self, group: &'static str, check: &Check, finding: &Finding) -> Result<()> {
        let mut out = ui::stdout();
        if self.json {
            let mut row = row(group, check);
            row.verdict = Some(finding.verdict);
            row.saw = Some(&finding.saw);
            if finding.verdict != Verdict::Skipped {
                row.frames = frames(&finding.shown, FOR_PROGRAMS).1;
            }
            return json(&mut out, &row);
        }
        self.headline(&mut out, group)?;
        let (mark, style) = mark(finding.verdict);
        let saw = shorten(&finding.saw, FOR_PEOPLE);
        writeln!(out, "  {style}{mark}{style:#} {:<26} {}", check.name, printable(&saw))?;
        if matches!(finding.verdict, Verdict::Fail | Verdict::Warn) {
            writeln!(out, "      {DIM}{}: {} {}{DIM:#}", check.severity.name(), check.rule, check.page)?;
            let (left_out, frames) = frames(&finding.shown, FOR_PEOPLE);
            if left_out > 0 {
                writeln!(out, "      {DIM}… {left_out} lines before{DIM:#}")?;
            }
            for frame in frames {
                let arrow = match frame.from {
                    "client" => "→",
                    "agent" => "←",
                    _ => "!",
                };
                writeln!(out, "      {MARK}{arrow}{MARK:#} {}", printable(&frame.line))?;
            }
        }
        Ok(())
    }

    pub(crate) fn summary(&self, summary: Summary) -> Result<()> {
        let mut out = ui::stdout();
        if self.json {
            #[derive(Serialize)]
            struct Last {
                summary: Summary,
            }
            return json(&mut out, &Last { summary });
        }
        let Summary { pass, fail, warn, skipped } = summary;
        let style = if fail > 0 { BAD } else { GOOD };
        writeln!(out)?;
        writeln!(
            out,
            "{style}{pass} passed, {fail} failed{style:#}, {warn} with a warning, {skipped} skipped"
        )?;
        Ok(())
    }

    fn headline(&mut self, out: &mut impl Write, group: &'static str) -> Result<()> {
        if self.group != group {
            if !self.group.is_empty() {
                writeln!(out)?;
            }
            self.group = group;
            writeln!(out, "{BOLD}{group}{BOLD:#}")?;
        }
        Ok(())
    }
}

fn row<'a>(group: &'a str, check: &'a Check) -> Row<'a> {
    Row {
        check: check.name,
        group,
        severity: check.severity,
        rule: check.rule,
        page: check.page,
        verdict: None,
        saw: None,
        frames: Vec::new(),
    }
}

fn json(out: &mut impl Write, row: &impl Serialize) -> Result<()> {
    let mut line = serde_json::to_vec(row).map_err(std::io::Error::from)?;
    line.push(b'\n');
    out.write_all(&line)?;
    out.flush()?;
    Ok(())
}

fn mark(verdict: Verdict) -> (&'static str, Style) {
    match verdict {
        Verdict::Pass => ("✓", GOOD),
        Verdict::Fail => ("✗", BAD),
        Verdict::Warn => ("!", MARK),
        Verdict::Skipped => ("–", DIM),
    }
}

/// The last lines, and how many came before them.
fn frames(records: &[Record], longest: usize) -> (usize, Vec<Frame>) {
    let is_stderr = |record: &&Record| matches!(record.event, RecordEvent::Stderr(_));
    let mut surplus = records.iter().filter(is_stderr).count().saturating_sub(STDERR_FRAMES);
    let kept = records.iter().filter(|record| {
        let dropped = is_stderr(record) && surplus > 0;
        surplus -= usize::from(dropped);
        !dropped
    });
    let all: Vec<Frame> = kept.filter_map(|record| frame(record, longest)).collect();
    let left_out = all.len().saturating_sub(FRAMES);
    (left_out, all.into_iter().skip(left_out).collect())
}

fn frame(record: &Record, longest: usize) -> Option<Frame> {
    let (from, text) = match &record.event {
        RecordEvent::Line(line) => (line.from.name(), String::from_utf8_lossy(line.bytes()).into_owned()),
        RecordEvent::Stderr(text) => ("stderr", text.clone()),
        RecordEvent::Eof(Side::Client) => ("client", "(stdin closed)".into()),
        RecordEvent::Eof(Side::Agent) => ("agent", "(stdout closed)".into()),
        _ => return None,
    };
    Some(Frame { from, line: shorten(&text, longest) })
}

/// The text, cut in its middle when it is long: both ends of a message tell what it is.
fn shorten(text: &str, longest: usize) -> String {
    let length = text.chars().count();
    if length <= longest {
        return text.to_owned();
    }
    let (head, tail) = (longest * 2 / 3, longest / 3);
    let start: String = text.chars().take(head).collect();
    let end: String = text.chars().skip(length - tail).collect();
    format!("{start}…{}…{end}", length - head - tail)
}
