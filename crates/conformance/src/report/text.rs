//! The report as text: one line for each check, and the lines that show a failure.

use std::io::{self, Write};

use anstyle::{AnsiColor, Style};
use duologue_transcript::printable;

use super::{CheckResult, Summary, TEXT_LINE, frames, shorten};
use crate::finding::{Check, Severity, Verdict};

/// Writes results as text, one at a time. Text from the agent is escaped.
pub struct TextReport<W> {
    out: W,
    colours: Colours,
    group: &'static str,
}

#[derive(Clone, Copy, Default)]
struct Colours {
    bold: Style,
    dim: Style,
    good: Style,
    bad: Style,
    mark: Style,
}

/// Escapes text of the agent, also its line breaks: a line of its own would look like a result.
fn one_line(text: &str) -> String {
    printable(text).replace('\n', "\\n")
}

impl<W: Write> TextReport<W> {
    /// Creates a report with colours, as ANSI escape sequences.
    pub fn coloured(out: W) -> Self {
        let colours = Colours {
            bold: Style::new().bold(),
            dim: Style::new().dimmed(),
            good: AnsiColor::Green.on_default(),
            bad: AnsiColor::Red.on_default(),
            mark: AnsiColor::Cyan.on_default(),
        };
        TextReport { out, colours, group: "" }
    }

    /// Creates a report without colours.
    pub fn plain(out: W) -> Self {
        TextReport { out, colours: Colours::default(), group: "" }
    }

    /// Writes the rule of a check.
    ///
    /// # Errors
    ///
    /// Any error of the writer.
    pub fn description(&mut self, check: &Check) -> io::Result<()> {
        self.headline(check.group)?;
        let Colours { bold, dim, .. } = self.colours;
        let style = if check.severity == Severity::Must { bold } else { dim };
        let (name, severity) = (check.name, check.severity.name());
        writeln!(self.out, "  {name:<26} {style}{severity:<6}{style:#} {}", check.rule)?;
        writeln!(self.out, "  {:<33} {dim}{}{dim:#}", "", check.page)
    }

    /// Writes the result of a check.
    ///
    /// # Errors
    ///
    /// Any error of the writer.
    pub fn result(&mut self, result: &CheckResult) -> io::Result<()> {
        let check = result.check;
        self.headline(check.group)?;
        let Colours { dim, good, bad, mark, .. } = self.colours;
        let (sign, style) = match result.verdict {
            Verdict::Pass => ("✓", good),
            Verdict::Fail => ("✗", bad),
            Verdict::Warn => ("!", mark),
            Verdict::Skipped => ("–", dim),
        };
        let saw = shorten(&result.saw, TEXT_LINE);
        writeln!(self.out, "  {style}{sign}{style:#} {:<26} {}", check.name, one_line(&saw))?;
        if !matches!(result.verdict, Verdict::Fail | Verdict::Warn) {
            return Ok(());
        }
        writeln!(self.out, "      {dim}{}: {} {}{dim:#}", check.severity.name(), check.rule, check.page)?;
        let (left_out, frames) = frames(&result.shown, TEXT_LINE);
        if left_out > 0 {
            writeln!(self.out, "      {dim}… {left_out} lines before{dim:#}")?;
        }
        for frame in frames {
            let arrow = match frame.from {
                "client" => "→",
                "agent" => "←",
                _ => "!",
            };
            writeln!(self.out, "      {mark}{arrow}{mark:#} {}", one_line(&frame.line))?;
        }
        Ok(())
    }

    /// Writes the number of results by verdict.
    ///
    /// # Errors
    ///
    /// Any error of the writer.
    pub fn summary(&mut self, summary: Summary) -> io::Result<()> {
        let Summary { pass, fail, warn, skipped } = summary;
        let style = if fail > 0 { self.colours.bad } else { self.colours.good };
        writeln!(self.out)?;
        writeln!(
            self.out,
            "{style}{pass} passed, {fail} failed{style:#}, {warn} with a warning, {skipped} skipped"
        )
    }

    fn headline(&mut self, group: &'static str) -> io::Result<()> {
        if self.group == group {
            return Ok(());
        }
        if !self.group.is_empty() {
            writeln!(self.out)?;
        }
        self.group = group;
        let bold = self.colours.bold;
        writeln!(self.out, "{bold}{group}{bold:#}")
    }
}
