//! The environment of a scenario: the programs under test, and the size of the run.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use duologue_tests::{Failed, Result};

/// Plays the scenarios in the size that the requirements ask for.
const FULL: &str = "DUOLOGUE_FULL";
/// The folder of the programs under test, `subject-agent` and `subject-client`, if they are not ours.
const SUBJECT: &str = "DUOLOGUE_SUBJECT";

/// The measured value of a requirement.
#[derive(Debug)]
pub(crate) struct Measured {
    /// The numbers, short: it is a cell of a table.
    text: String,
    outcome: RequirementOutcome,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequirementOutcome {
    Met,
    /// The subject did not reach it.
    Short,
    /// The harness could not find out, which says nothing about the subject.
    NotPlayed,
}

impl Measured {
    pub(crate) fn new(met: bool, text: impl Into<String>) -> Self {
        let outcome = if met { RequirementOutcome::Met } else { RequirementOutcome::Short };
        Measured { text: text.into(), outcome }
    }

    pub(crate) fn not_played(why: impl fmt::Display) -> Self {
        Measured { text: why.to_string(), outcome: RequirementOutcome::NotPlayed }
    }

    pub(crate) fn met(text: impl Into<String>) -> Self {
        Measured::new(true, text)
    }

    pub(crate) fn short(text: impl Into<String>) -> Self {
        Measured::new(false, text)
    }
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = match self.outcome {
            RequirementOutcome::Met => "",
            RequirementOutcome::Short => "short: ",
            RequirementOutcome::NotPlayed => "not played: ",
        };
        write!(f, "{mark}{}", self.text.replace('\n', " "))
    }
}

/// Plays a scenario, and fails if its requirement is not met. `cargo xtask reliability` prints the line `measured: …`.
#[expect(clippy::print_stdout, reason = "`cargo xtask reliability` reads it")]
pub(crate) fn play(scenario: fn() -> Result<Measured>) {
    let _guard = in_turn();
    let measured = measure(scenario);
    println!("measured: {measured}");
    assert_eq!(measured.outcome, RequirementOutcome::Met, "{measured}");
}

/// Waits for the other scenarios: they measure memory and time, so they run one after the other.
pub(crate) fn in_turn() -> MutexGuard<'static, ()> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

fn measure(scenario: fn() -> Result<Measured>) -> Measured {
    match Failed::of(scenario()) {
        Ok(outcome) => outcome.unwrap_or_else(Measured::short),
        Err(error) => Measured::not_played(error),
    }
}

fn is_full() -> bool {
    std::env::var_os(FULL).is_some()
}

/// Returns the size of the work, small or full.
pub(crate) fn size<T>(small: T, full: T) -> T {
    if is_full() { full } else { small }
}

/// The agent under test; its prompts say what to do.
pub(crate) fn agent() -> Command {
    subject(env!("CARGO_BIN_EXE_subject-agent"))
}

/// The client under test; its arguments say what to do, and after `--` which agent to start.
pub(crate) fn client() -> Command {
    subject(env!("CARGO_BIN_EXE_subject-client"))
}

/// Returns the command of a program under test: ours, or the one of its name in the folder of the subject.
fn subject(ours: &'static str) -> Command {
    let ours = Path::new(ours);
    let theirs = std::env::var_os(SUBJECT).map(PathBuf::from);
    Command::new(match (theirs, ours.file_name()) {
        (Some(folder), Some(name)) => folder.join(name),
        _ => ours.to_owned(),
    })
}

/// The agent without any SDK that follows a script: see `tests/bin/scripted_agent.rs`.
pub(crate) fn scripted() -> Command {
    Command::new(env!("CARGO_BIN_EXE_scripted-agent"))
}

/// The folder for what scenarios write.
pub(crate) fn scratch() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}
