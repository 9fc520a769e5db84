//! The rows of `tests/RELIABILITY.md`. The page is the store: a run replaces the rows it measured and leaves the others.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::requirements::{REQUIREMENTS, Requirement, RequirementFigures, RequirementOutcome};
use crate::interop::Result;

const BEGIN: &str = "<!-- rows: written by `cargo xtask reliability` -->";
const END: &str = "<!-- end of rows -->";
const TITLES: &str = "| requirement | asks | duologue | official Rust SDK | met | measured | command |\n|---|---|---|---|---|---|---|";

/// One row of the page.
pub(super) struct RequirementRow {
    name: String,
    asks: &'static str,
    ours: String,
    theirs: String,
    pub(super) outcome: RequirementOutcome,
    /// The official SDK's, where there is one.
    pub(super) theirs_played: bool,
    command: String,
}

impl RequirementRow {
    pub(super) fn new(
        requirement: &Requirement,
        ours: RequirementFigures,
        theirs: Option<RequirementFigures>,
    ) -> Self {
        // A part of ours that has no counterpart there.
        let theirs_played =
            theirs.as_ref().is_none_or(|theirs| theirs.outcome != RequirementOutcome::NotPlayed);
        let theirs = theirs.map_or("–".to_owned(), |theirs| {
            format!(
                "{}{}",
                if theirs.outcome == RequirementOutcome::Short { "**short** " } else { "" },
                theirs.text
            )
        });
        let outcome = ours.outcome;
        RequirementRow {
            name: requirement.name(),
            asks: requirement.asks,
            ours: ours.text,
            theirs,
            outcome,
            theirs_played,
            command: requirement.shell_command(),
        }
    }
}

impl fmt::Display for RequirementRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let met = match self.outcome {
            RequirementOutcome::Met => "met",
            RequirementOutcome::Short => "SHORT",
            RequirementOutcome::NotPlayed => "?",
        };
        write!(f, "{met:5} {:14} {}\n      {:14} official: {}", self.name, self.ours, "", self.theirs)
    }
}

/// Writes the row into the page in place of the previous one. A row of a `quick` run is marked.
pub(super) fn replace(row: &RequirementRow, quick: bool) -> Result<()> {
    let path = page();
    let page = fs::read_to_string(&path)?;
    let (head, rows, tail) = parts(&page)?;
    let old = rows.lines().filter(|line| line.starts_with("| R"));
    let mut rows: Vec<String> = old.filter(|line| cell(line, 1) != row.name).map(ToOwned::to_owned).collect();
    let clean = |text: &str| text.replace('|', "\\|").replace('\n', " ");
    let met = match row.outcome {
        RequirementOutcome::Met => "yes",
        RequirementOutcome::Short => "**no**",
        RequirementOutcome::NotPlayed => "?",
    };
    rows.push(format!(
        "| {} | {} | {} | {} | {met} | {} | `{}` |",
        row.name,
        row.asks,
        clean(&row.ours),
        clean(&row.theirs),
        measured_at()?,
        row.command.clone() + if quick { " --quick" } else { "" }
    ));
    // In the order of the list; a row whose requirement is gone goes with it.
    let place =
        |line: &String| REQUIREMENTS.iter().position(|requirement| requirement.name() == cell(line, 1));
    rows.retain(|line| place(line).is_some());
    rows.sort_by_key(place);
    fs::write(path, format!("{head}{BEGIN}\n\n{TITLES}\n{}\n\n{END}{tail}", rows.join("\n")))?;
    Ok(())
}

fn cell(line: &str, number: usize) -> &str {
    line.split('|').nth(number).unwrap_or_default().trim()
}

/// Returns the page before its rows, the rows with their titles, and the page behind them.
fn parts(page: &str) -> Result<(&str, &str, &str)> {
    let (head, rest) = page.split_once(BEGIN).ok_or("the page has lost the mark before its rows")?;
    let (rows, tail) = rest.split_once(END).ok_or("the page has lost the mark behind its rows")?;
    Ok((head, rows, tail))
}

fn page() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/RELIABILITY.md")
}

/// Returns the date and the commit of a measurement.
fn measured_at() -> Result<String> {
    let printed = |program: &str, args: &[&str]| -> Result<String> {
        let output = Command::new(program).args(args).current_dir(crate::target::root()).output()?;
        Ok(String::from_utf8(output.stdout)?.trim().to_owned())
    };
    let commit = printed("git", &["describe", "--always", "--exclude=*", "--dirty=+"])?;
    Ok(format!("{}, {commit}", printed("date", &["+%F"])?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A requirement without a row was never measured, and a row with other words was measured as something else.
    #[test]
    fn the_page_has_the_requirements_as_they_are() {
        let page = fs::read_to_string(page()).expect("the page");
        let (_, rows, _) = parts(&page).expect("rows");
        assert!(rows.trim_start().starts_with(TITLES), "the titles are {TITLES}");
        let rows: Vec<String> =
            rows.lines().filter(|line| line.starts_with("| R")).map(fixed_cells).collect();
        let wanted: Vec<String> = REQUIREMENTS
            .iter()
            .map(|row| format!("{} | {} | `{}`", row.name(), row.asks, row.shell_command()))
            .collect();
        for (row, wanted) in rows.iter().zip(&wanted) {
            assert_eq!(row, wanted, "measure it again: `cargo xtask reliability REQUIREMENT`");
        }
        assert_eq!(rows.len(), wanted.len(), "a requirement has no row");
    }

    /// Returns the cells of a row that no measurement changes.
    fn fixed_cells(row: &str) -> String {
        format!("{} | {} | {}", cell(row, 1), cell(row, 2), cell(row, 7))
    }
}
