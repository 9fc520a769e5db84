//! The results of the runs: a table, and for each crash the command that reproduces it.

use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use super::Paths;
use crate::interop::Result;

/// The final statistics of libFuzzer.
pub(super) struct FuzzRun {
    executions: u64,
    per_second: u64,
    corpus: u64,
    /// The input that ended it.
    input: Option<PathBuf>,
    failed: bool,
    log: PathBuf,
}

impl FuzzRun {
    pub(super) fn read(log: &Path, status: ExitStatus) -> Result<Self> {
        let bytes = std::fs::read(log)?;
        let text = String::from_utf8_lossy(&bytes);
        let after = |mark: &str| text.lines().rev().find_map(|line| Some(line.split_once(mark)?.1.trim()));
        let number = |mark: &str| after(mark).and_then(|text| text.parse().ok()).unwrap_or_default();
        let corpus = after(" corp: ").and_then(|text| text.split('/').next()?.parse().ok());
        let executions = number("stat::number_of_executed_units:");
        Ok(FuzzRun {
            executions,
            per_second: number("stat::average_exec_per_sec:"),
            corpus: corpus.unwrap_or_default(),
            input: after("Test unit written to ").map(PathBuf::from),
            // One that ran nothing has shown nothing.
            failed: !status.success() || executions == 0,
            log: log.to_owned(),
        })
    }

    /// The input that took too long, if one did.
    pub(super) fn slow_input(&self) -> Option<&Path> {
        let input = self.input.as_deref().filter(|_| self.failed)?;
        input.file_name()?.to_str()?.starts_with("timeout-").then_some(input)
    }

    pub(super) fn slow_again(&mut self, quick: bool) {
        self.failed = !quick;
    }
}

/// Prints the table; an error names each crash.
#[expect(clippy::print_stdout, reason = "this is the program's output")]
pub(super) fn print(
    paths: &Paths,
    sanitizer: &str,
    runs: Vec<(String, Result<FuzzRun, String>)>,
) -> Result<()> {
    let mut crashes = Vec::new();
    println!("{:<16} {:>13} {:>9} {:>7} {:>8}", "target", "executions", "exec/s", "corpus", "crashes");
    for (target, run) in runs {
        let run = run.map_err(|error| format!("{target}: {error}"))?;
        let crashed = u64::from(run.failed);
        println!("{target:<16} {:>13} {:>9} {:>7} {crashed:>8}", run.executions, run.per_second, run.corpus);
        println!("measured: {target}: {} executions, {crashed} crashes", run.executions);
        if run.failed {
            crashes.push(crash(paths, sanitizer, &target, &run));
        }
    }
    if crashes.is_empty() { Ok(()) } else { Err(crashes.join("\n").into()) }
}

fn crash(paths: &Paths, sanitizer: &str, target: &str, run: &FuzzRun) -> String {
    let Some(input) = &run.input else {
        return format!("{target} ended badly, see {}", run.log.display());
    };
    let toolchain = if sanitizer == "address" { "+nightly " } else { "" };
    format!(
        "{target} fails on {input}, see {log}; again:\n  cargo {toolchain}fuzz run --fuzz-dir fuzz --target-dir \
         {build} --sanitizer {sanitizer} {target} {input}",
        input = input.display(),
        log = run.log.display(),
        build = paths.target.join(format!("build-{sanitizer}")).display(),
    )
}
