//! `cargo xtask reliability [--quick] [REQUIREMENT..]`: how hard it is to break, in numbers.
//!
//! A requirement is a number that has to be reached. Some are tests of the workspace, run at the scale the requirement asks for; the
//! others are scenarios, played with a program on our SDK and with the same program on the official Rust SDK, one after
//! the other on the same machine. A full run replaces its rows of `tests/RELIABILITY.md`.

mod agent;
mod client;
mod harness;
mod measure;
mod requirements;
mod soak;
mod table;

use std::time::Instant;

pub(crate) use soak::run as soak;

use super::interop::Result;
use harness::{Failed, Measured, RequirementOutcome, ScenarioHarness, TestSubject};
use requirements::{Procedure, REQUIREMENTS, Requirement};
use table::RequirementRow;

/// This program in the part of a peer without an SDK, or of one half of the soak.
pub(crate) fn part(name: &str, args: &[String]) -> Option<Result<()>> {
    Some(match name {
        "raw-agent" => client::raw_agent::main(args),
        "raw-client" => agent::doomed(args),
        "soak-agent" => soak::agent::main(args),
        "soak-client" => soak::client::main(args),
        _ => return None,
    })
}

/// Runs the requirements `args` name, by their number or by number and part, or all of them, and writes their rows. With
/// `--quick` it is the scenarios alone, small, and the page is left as it is unless they are to be kept (`--keep`); with
/// `--ours` the official SDK is left out, and so is the page.
#[expect(clippy::print_stdout, reason = "this is the program's output")]
pub(crate) fn run(args: &[String]) -> Result<()> {
    let (options, wanted): (Vec<&String>, Vec<&String>) = args.iter().partition(|arg| arg.starts_with("--"));
    let has = |name: &str| options.iter().any(|option| *option == name);
    let (quick, ours, keep) = (has("--quick"), has("--ours"), has("--keep"));
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
    let subjects =
        if ours { &[TestSubject::Duologue][..] } else { &[TestSubject::Duologue, TestSubject::Official] };
    let harness = ScenarioHarness::prepare(
        !quick,
        requirements.iter().any(|requirement| requirement.is_scenario()),
        subjects,
    )?;
    let (mut short, mut not_played) = (0, 0);
    for requirement in requirements {
        let begun = Instant::now();
        let mut row = measure(requirement, &harness, subjects)?;
        if quick && row.outcome != RequirementOutcome::Met {
            // A short run is for finding what is broken, and the machine may have been busy with something else.
            row = measure(requirement, &harness, subjects)?;
        }
        short += usize::from(row.outcome == RequirementOutcome::Short);
        not_played +=
            usize::from(row.outcome == RequirementOutcome::NotPlayed || (!quick && !row.theirs_played));
        println!("{row}  ({:.1} s)", begun.elapsed().as_secs_f64());
        if !ours && (keep || !quick) {
            table::replace(&row, quick)?;
        }
    }
    match (short, not_played) {
        (0, 0) => Ok(()),
        _ => Err(format!("{short} requirements were not reached, {not_played} could not be played").into()),
    }
}

fn measure(
    requirement: &Requirement,
    harness: &ScenarioHarness,
    subjects: &[TestSubject],
) -> Result<RequirementRow> {
    let (ours, theirs) = match requirement.how {
        Procedure::Test(test) => (test.run()?, None),
        Procedure::Command(args) => (requirements::subcommand(args)?, None),
        Procedure::Scenario(play) => {
            // Neither is the end of the run, which takes hours.
            let mut played = subjects.iter().map(|subject| match Failed::of(play(harness, *subject)) {
                Ok(outcome) => outcome.unwrap_or_else(Measured::short),
                Err(error) => Measured::not_played(error),
            });
            (played.next().ok_or("nobody is to play")?, played.next())
        }
    };
    Ok(RequirementRow::new(requirement, ours, theirs))
}
