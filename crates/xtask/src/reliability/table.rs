//! The rows of `tests/RELIABILITY.md`. The page is the store: a run replaces the rows it measured and leaves the others.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::requirements::{Procedure, REQUIREMENTS, Requirement, RequirementFigures, RequirementOutcome};
use crate::interop::Result;

const BEGIN: &str = "<!-- rows: written by `cargo xtask reliability` -->";
const END: &str = "<!-- end of rows -->";

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
        let command = match requirement.how {
            Procedure::Test(test) => test.command(),
            Procedure::Command(args) => format!("cargo xtask {}", args.join(" ")),
            Procedure::Scenario(_) => format!("cargo xtask reliability '{}'", requirement.name()),
        };
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
            command,
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
    let (head, rest) = page.split_once(BEGIN).ok_or("the page has lost the mark before its rows")?;
    let (rows, tail) = rest.split_once(END).ok_or("the page has lost the mark behind its rows")?;
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
        today()?,
        row.command.clone() + if quick { " --quick" } else { "" }
    ));
    // In the order of the list; a row whose requirement is gone goes with it.
    let place =
        |line: &String| REQUIREMENTS.iter().position(|requirement| requirement.name() == cell(line, 1));
    rows.retain(|line| place(line).is_some());
    rows.sort_by_key(place);
    let titles = "| requirement | asks | duologue | official Rust SDK | met | date | command |\n|---|---|---|---|---|---|---|";
    fs::write(path, format!("{head}{BEGIN}\n\n{titles}\n{}\n\n{END}{tail}", rows.join("\n")))?;
    Ok(())
}

fn cell(line: &str, number: usize) -> &str {
    line.split('|').nth(number).unwrap_or_default().trim()
}

fn page() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/RELIABILITY.md")
}

fn today() -> Result<String> {
    let output = Command::new("date").arg("+%F").output()?;
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}
