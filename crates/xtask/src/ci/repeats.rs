//! Runs the tests of the workspace, and runs those that failed again, alone.
//!
//! Thousands of tests share the machine, and some of them depend on how soon a thread or a process runs. A test that fails
//! only beside the others is reported and counted as repeated. It does not fail the run.

use std::io::{self, BufRead as _, BufReader};
use std::process::{Command, ExitStatus, Stdio};

use duologue_test_support::repeated;

use crate::interop::Result;

/// The most tests that are run again. More failures are a fault of the change.
const MOST_REPEATED: usize = 3;

/// The runs of each of them, which all have to pass. A test that fails every second time passes with a probability of 1/8.
const RUNS: usize = 3;

/// Long campaigns and tests with limits of time or memory, which depend on the load of the machine. The names are filters.
const SKIPPED: [&str; 7] = [
    "schedules::",
    "kills::",
    "gateway_kills::",
    "killed_at_200",
    "local_host::attacks::",
    "taps::cost",
    "terminal::typing",
];

/// Runs `cargo test`, prints its output, and runs the failed tests again. `cargo` returns a command without arguments.
pub(super) fn run(cargo: impl Fn() -> Command) -> Result<()> {
    let mut all = cargo();
    all.args(["test", "--workspace", "--no-fail-fast", "--"]);
    all.args(SKIPPED.into_iter().flat_map(|name| ["--skip", name]));
    let (status, report) = printed(&mut all)?;
    if status.success() {
        return Ok(());
    }
    let failures = report.failures().ok_or_else(|| format!("{all:?}: {status}"))?;
    if failures.len() > MOST_REPEATED {
        return Err(format!("{} tests failed; at most {MOST_REPEATED} are run again", failures.len()).into());
    }
    for failure in failures {
        for _ in 0..RUNS {
            let mut alone = cargo();
            alone.args(["test", "--workspace"]).args(failure.target.split(' '));
            alone.args(["--", "--exact", failure.test]);
            let (status, report) = printed(&mut alone)?;
            if !status.success() || report.passed == 0 {
                return Err(format!("`{}` failed beside other tests and alone", failure.test).into());
            }
        }
        repeated(failure.test, format_args!("failed beside other tests, passed {RUNS} times alone"));
    }
    Ok(())
}

/// Runs a command, and prints and reads what it writes.
#[expect(clippy::print_stdout, reason = "this is the program's output")]
fn printed(command: &mut Command) -> Result<(ExitStatus, Report)> {
    // One pipe, because the order of cargo's lines and those of the tests matters.
    let (output, input) = io::pipe()?;
    let mut child = command.stdout(input.try_clone()?).stderr(input).spawn()?;
    // The output ends when the command's copies of the pipe are closed.
    command.stdout(Stdio::inherit()).stderr(Stdio::inherit());
    let mut report = Report::default();
    for line in BufReader::new(output).split(b'\n') {
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        println!("{line}");
        report.read(&line);
    }
    Ok((child.wait()?, report))
}

/// The results of tests that `cargo test` printed.
#[derive(Debug, Default)]
struct Report {
    /// The failed tests of each test program, in the order of the programs.
    programs: Vec<Vec<String>>,
    /// The targets of the programs that failed, in the same order, as arguments of cargo.
    targets: Vec<String>,
    passed: usize,
}

/// A test that failed.
#[derive(Debug, PartialEq)]
struct Failure<'a> {
    /// The target as an argument of cargo without its package, such as `--test it`. With all packages, cargo chooses the
    /// features of the first run and builds nothing again.
    target: &'a str,
    test: &'a str,
}

impl Report {
    fn read(&mut self, line: &str) {
        if line.starts_with("     Running ") || line.starts_with("   Doc-tests ") {
            self.programs.push(Vec::new());
        } else if let Some(target) = line.strip_prefix("    `-p ").and_then(|rest| rest.strip_suffix('`')) {
            self.targets.push(target.to_owned());
        } else if let Some(result) = line.strip_prefix("test ") {
            if let Some(test) = result.strip_suffix(" ... FAILED") {
                self.programs.last_mut().into_iter().for_each(|failed| failed.push(test.to_owned()));
            }
            self.passed += usize::from(result.ends_with(" ... ok"));
        }
    }

    /// Returns the failed tests, or `None` if something other than tests failed.
    fn failures(&self) -> Option<Vec<Failure<'_>>> {
        let programs: Vec<_> = self.programs.iter().filter(|failed| !failed.is_empty()).collect();
        // A program that crashed has a target and no failed test.
        if programs.is_empty() || programs.len() != self.targets.len() {
            return None;
        }
        let mut failures = Vec::new();
        for (target, failed) in self.targets.iter().zip(programs) {
            let (_package, target) = target.split_once(' ')?;
            // A test of the documentation depends on nothing else.
            if target == "--doc" {
                return None;
            }
            failures.extend(failed.iter().map(|test| Failure { target, test }));
        }
        Some(failures)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(text: &str) -> Report {
        let mut report = Report::default();
        text.lines().for_each(|line| report.read(line));
        report
    }

    #[test]
    fn failed_tests_have_the_target_of_their_program() {
        let report = report(
            "     Running unittests src/lib.rs (target/debug/deps/one-1)\n\
             test fine ... ok\n\
             test one::broken ... FAILED\n\
             test result: FAILED. 1 passed; 1 failed\n\
             error: test failed, to rerun pass `-p one --lib`\n\
             \u{20}    Running tests/it/main.rs (target/debug/deps/it-2)\n\
             test fine ... ok\n\
             \u{20}    Running tests/it/main.rs (target/debug/deps/it-3)\n\
             test three::broken ... FAILED\n\
             \u{20}  Doc-tests one\n\
             error: 2 targets failed:\n\
             \u{20}   `-p one --lib`\n\
             \u{20}   `-p three --test it`\n",
        );
        assert_eq!(report.passed, 2);
        let failures = report.failures().expect("tests");
        assert_eq!(
            failures,
            [
                Failure { target: "--lib", test: "one::broken" },
                Failure { target: "--test it", test: "three::broken" }
            ]
        );
    }

    #[test]
    fn what_is_not_a_failed_test_fails_the_run() {
        for text in [
            // The compiler.
            "error: could not compile `one`\n",
            // A program that crashed.
            "     Running tests/it/main.rs (it-1)\nerror: 1 target failed:\n    `-p one --test it`\n",
            // A test of the documentation.
            "   Doc-tests one\ntest a.rs - A (line 1) ... FAILED\nerror: 1 target failed:\n    `-p one --doc`\n",
        ] {
            assert_eq!(report(text).failures(), None, "{text}");
        }
    }
}
