//! The bars, in one list.

use std::process::Command;

use super::stage::{Measured, Stage, Subject};
use crate::interop::Result;

/// A number that has to be reached, and how it is measured.
pub(super) struct Bar {
    /// The bar: `R5`.
    pub(super) id: &'static str,
    /// Which part of it, where there are several: `agent`, `client`, or what is done.
    pub(super) part: &'static str,
    /// What has to be reached.
    pub(super) asks: &'static str,
    pub(super) how: How,
}

pub(super) enum How {
    /// A test of the workspace.
    Test(Test),
    /// What is done with a subject. An error means that it could not be played at all.
    Scene(fn(&Stage, Subject) -> Result<Measured>),
}

/// A test that says what it measured on a line that begins with `measured: `.
#[derive(Clone, Copy)]
pub(super) struct Test {
    pub(super) package: &'static str,
    /// The test target, or none for the library's own tests.
    pub(super) target: Option<&'static str>,
    pub(super) name: &'static str,
    /// How often the bar wants it done.
    pub(super) runs: u64,
}

impl Bar {
    const fn test(
        id: &'static str,
        part: &'static str,
        asks: &'static str,
        (package, target, name): (&'static str, Option<&'static str>, &'static str),
        runs: u64,
    ) -> Self {
        Bar { id, part, asks, how: How::Test(Test { package, target, name, runs }) }
    }

    const fn scene(
        id: &'static str,
        part: &'static str,
        asks: &'static str,
        play: fn(&Stage, Subject) -> Result<Measured>,
    ) -> Self {
        Bar { id, part, asks, how: How::Scene(play) }
    }

    pub(super) fn name(&self) -> String {
        format!("{} {}", self.id, self.part).trim_end().to_owned()
    }

    pub(super) fn is_called(&self, name: &str) -> bool {
        self.id == name || self.name() == name
    }

    pub(super) fn is_test(&self) -> bool {
        matches!(self.how, How::Test(_))
    }
}

impl Test {
    pub(super) fn command(&self) -> String {
        let target = self.target.map_or("--lib".to_owned(), |target| format!("--test {target}"));
        format!(
            "DUOLOGUE_RUNS={} cargo test --release -p {} {target} {} -- --exact --nocapture",
            self.runs, self.package, self.name
        )
    }

    pub(super) fn run(&self) -> Result<Measured> {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
        cargo.args(["test", "--release", "--quiet", "-p", self.package]);
        match self.target {
            Some(target) => cargo.args(["--test", target]),
            None => cargo.arg("--lib"),
        };
        cargo.args([self.name, "--", "--exact", "--nocapture"]).env("DUOLOGUE_RUNS", self.runs.to_string());
        let output = cargo.output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        let said: Vec<&str> =
            text.lines().filter_map(|line| Some(line.split_once("measured: ")?.1)).collect();
        if output.status.success() && text.contains("1 passed") && !said.is_empty() {
            return Ok(Measured::met(said.join("; ")));
        }
        let stderr = String::from_utf8_lossy(&output.stderr);
        let why: Vec<&str> = stderr.lines().rev().take(5).collect();
        Ok(Measured::short(format!(
            "{}: {}",
            output.status,
            why.into_iter().rev().collect::<Vec<_>>().join(" ")
        )))
    }
}

/// Every bar in scope, in the order of their numbers.
pub(super) const BARS: &[Bar] = &[];
