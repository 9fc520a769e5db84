//! The environment of a scenario: the programs under test, and the size of the run.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::interop::install::{BUILD, rust};
use crate::interop::{InteropPaths, Result, finish};

/// The SDK that the program under test is built on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TestSubject {
    Duologue,
    Official,
}

/// The measured value of a requirement.
#[derive(Debug)]
pub(super) struct Measured {
    /// The numbers, short: it is a cell of a table.
    pub(super) text: String,
    pub(super) outcome: RequirementOutcome,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequirementOutcome {
    Met,
    /// The subject did not reach it.
    Short,
    /// The harness could not find out, which says nothing about the subject.
    NotPlayed,
}

impl Measured {
    pub(super) fn new(met: bool, text: impl Into<String>) -> Self {
        let outcome = if met { RequirementOutcome::Met } else { RequirementOutcome::Short };
        Measured { text: text.into(), outcome }
    }

    pub(super) fn not_played(why: impl fmt::Display) -> Self {
        Measured { text: format!("not played: {why}"), outcome: RequirementOutcome::NotPlayed }
    }

    pub(super) fn met(text: impl Into<String>) -> Self {
        Measured::new(true, text)
    }

    pub(super) fn short(text: impl Into<String>) -> Self {
        Measured::new(false, text)
    }
}

/// A wrong action of the subject: an error of a scenario that counts as its result. Any other error is the
/// harness's own.
#[derive(Debug)]
pub(super) struct Failed(pub(super) String);

impl Failed {
    /// The error of a scenario.
    pub(super) fn because<T>(what: impl Into<String>) -> Result<T> {
        Err(Failed(what.into()).into())
    }

    /// Takes a failure of the subject out of what went wrong.
    pub(super) fn of<T>(outcome: Result<T>) -> Result<Result<T, String>> {
        match outcome {
            Ok(value) => Ok(Ok(value)),
            Err(error) => error.downcast::<Failed>().map(|failed| Err(failed.0)),
        }
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Failed {}

/// The programs, built for release, and the size of the run.
pub(super) struct ScenarioHarness {
    full: bool,
    ours: PathBuf,
    official: PathBuf,
}

impl ScenarioHarness {
    /// Builds what scenarios need.
    pub(super) fn prepare(full: bool, scenarios: bool, subjects: &[TestSubject]) -> Result<Self> {
        let target = crate::target::folder();
        let mut official = PathBuf::new();
        if scenarios {
            let mut ours = crate::target::release(&["duologue-tests", "duologue-cli"], !full);
            finish(&mut ours, BUILD)?;
            if subjects.contains(&TestSubject::Official) {
                official = rust(&InteropPaths::new())?;
            }
        }
        let harness = ScenarioHarness { full, ours: target.join("release"), official };
        if scenarios {
            let programs =
                subjects.iter().flat_map(|subject| [harness.agent(*subject), harness.client(*subject)]);
            for program in programs.chain([harness.scripted()]) {
                let path = Path::new(program.get_program());
                if !path.is_file() {
                    return Err(format!("{} was not built", path.display()).into());
                }
            }
        }
        Ok(harness)
    }

    /// Returns the size of the work, full or quick.
    pub(super) fn size<T>(&self, quick: T, full: T) -> T {
        if self.full { full } else { quick }
    }

    /// The agent under test; its prompts say what to do.
    pub(super) fn agent(&self, subject: TestSubject) -> Command {
        self.program(subject, "subject-agent")
    }

    /// The client under test; its arguments say what to do, and after `--` which agent to start.
    pub(super) fn client(&self, subject: TestSubject) -> Command {
        self.program(subject, "subject-client")
    }

    /// The agent without any SDK that follows a script: see `tests/bin/scripted_agent.rs`.
    pub(super) fn scripted(&self) -> Command {
        Command::new(self.ours.join("scripted-agent"))
    }

    /// A folder for what scenarios write.
    pub(super) fn scratch(&self) -> Result<PathBuf> {
        let scratch = self.ours.with_file_name("reliability-scratch");
        std::fs::create_dir_all(&scratch)?;
        Ok(scratch)
    }

    /// This program, playing another part: one of the hidden commands of `cargo xtask`.
    pub(super) fn part(name: &str) -> Result<Command> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(name);
        Ok(command)
    }

    fn program(&self, subject: TestSubject, name: &str) -> Command {
        Command::new(match subject {
            TestSubject::Duologue => self.ours.join(name),
            TestSubject::Official => self.official.join(name),
        })
    }
}
