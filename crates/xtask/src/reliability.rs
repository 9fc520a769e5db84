//! `cargo xtask reliability [--quick] [REQUIREMENT..]`: how hard it is to break, in numbers.
//!
//! A requirement is a number that has to be reached. All but a few are tests of the workspace, which this command runs at the
//! scale that the requirement demands. The scenarios among them, in `tests/reliability`, are played with a program on our
//! SDK and with the same program on the official Rust SDK, one after the other on the same machine.

mod requirements;

use std::fmt;
use std::path::Path;
use std::time::Instant;

use super::interop::install::{BUILD, rust};
use super::interop::{InteropPaths, Result, finish};
use requirements::{
    Procedure, REQUIREMENTS, Requirement, RequirementFigures, RequirementOutcome, ScenarioTest,
};

/// The result of one requirement.
struct RequirementRow {
    name: String,
    asks: &'static str,
    command: String,
    ours: RequirementFigures,
    /// Those of the official SDK, where it has a counterpart.
    theirs: Option<RequirementFigures>,
}

impl RequirementRow {
    /// Returns true if both sides have a result.
    fn is_played(&self) -> bool {
        let was_played = |figures: &RequirementFigures| figures.outcome != RequirementOutcome::NotPlayed;
        was_played(&self.ours) && self.theirs.as_ref().is_none_or(was_played)
    }
}

impl fmt::Display for RequirementRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RequirementRow { name, asks, command, ours, theirs } = self;
        write!(f, "{name}: {asks}\n  duologue: {ours}\n")?;
        if let Some(theirs) = theirs {
            writeln!(f, "  official Rust SDK: {theirs}")?;
        }
        write!(f, "  {command}")
    }
}

/// Runs the requirements that `args` name, by number or by number and part, or all of them, and prints their figures. With
/// `--quick` it runs only the scenarios, small. With `--ours` it leaves out the official SDK.
#[expect(clippy::print_stdout, reason = "this is the program's output")]
pub(crate) fn run(args: &[String]) -> Result<()> {
    let (options, wanted): (Vec<&String>, Vec<&String>) = args.iter().partition(|arg| arg.starts_with("--"));
    let has = |name: &str| options.iter().any(|option| *option == name);
    let (quick, ours) = (has("--quick"), has("--ours"));
    let named = |requirement: &Requirement| {
        wanted.is_empty() || wanted.iter().any(|name| requirement.is_called(name))
    };
    let requirements: Vec<&Requirement> = REQUIREMENTS
        .iter()
        .filter(|requirement| named(requirement) && (!quick || requirement.is_scenario()))
        .collect();
    if requirements.is_empty() {
        let all: Vec<_> = REQUIREMENTS.iter().map(Requirement::name).collect();
        return Err(format!("no such requirement; there are {}", all.join(", ")).into());
    }
    let mut official = None;
    if requirements.iter().any(|requirement| requirement.is_scenario()) {
        finish(ScenarioTest::cargo().arg("--no-run"), BUILD)?;
        if !ours {
            official = Some(rust(&InteropPaths::new())?);
        }
    }
    let (mut short, mut not_played) = (0, 0);
    for requirement in requirements {
        let begun = Instant::now();
        let row = measure(requirement, !quick, official.as_deref())?;
        short += usize::from(row.ours.outcome == RequirementOutcome::Short);
        not_played += usize::from(!row.is_played());
        println!("{row} ({:.1} s)", begun.elapsed().as_secs_f64());
    }
    match (short, not_played) {
        (0, 0) => Ok(()),
        _ => Err(format!("{short} requirements were not reached, {not_played} could not be played").into()),
    }
}

fn measure(requirement: &Requirement, full: bool, official: Option<&Path>) -> Result<RequirementRow> {
    let (ours, theirs) = match requirement.how {
        Procedure::Test(test) => (test.run()?, None),
        Procedure::Command(args) => (requirements::subcommand(args)?, None),
        Procedure::Scenario(scenario) => {
            let theirs = official.map(|folder| scenario.play(full, Some(folder)));
            (scenario.play(full, None)?, theirs.transpose()?)
        }
    };
    let (name, command) = (requirement.name(), requirement.shell_command());
    Ok(RequirementRow { name, asks: requirement.asks, command, ours, theirs })
}

/// `cargo xtask soak --quick | --minutes M [--seed N] [--remote]`: the test of the soak, with the length and the seed of the
/// run. With `--remote` it is that of `duologue serve` and `duologue connect`.
pub(crate) fn soak(args: &[String]) -> Result<()> {
    let option = |name: &str| {
        let at = args.iter().position(|arg| arg == name)?;
        args.get(at + 1)
    };
    let is_remote = args.iter().any(|arg| arg == "--remote");
    let mut cargo = if is_remote { crate::target::cargo() } else { ScenarioTest::cargo() };
    match (option("--minutes"), args.iter().any(|arg| arg == "--quick")) {
        (Some(minutes), false) => {
            cargo.env("DUOLOGUE_MINUTES", minutes);
        }
        (None, true) => {}
        _ => return Err("cargo xtask soak --quick | --minutes M [--seed N] [--remote]".into()),
    }
    if let Some(seed) = option("--seed") {
        cargo.env("DUOLOGUE_SEED", seed);
    }
    if is_remote {
        cargo.args(["test", "--release", "--quiet", "--locked", "-p", "duologue-cli", "--test", "campaign"]);
        let test = "remote_soak::connections_that_are_cut_leave_nothing_behind";
        return crate::target::passes(cargo.args([test, "--", "--exact", "--nocapture"]));
    }
    crate::target::passes(cargo.args(["soak::r30_soak", "--", "--exact", "--nocapture"]))
}
