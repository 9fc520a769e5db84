//! `cargo xtask bench [--quick | --rust] [--rounds N] [WORKLOAD..]`: builds the programs of `crates/bench`, installs those
//! on the official SDKs, and runs the benchmark. Without options it writes `BENCHMARKS.md`. `--quick` runs small workloads,
//! `--quick` and `--rust` use the official Rust crate alone; with an option or a workload it writes nothing. `cargo xtask bench
//! remote` does the same over a network, and writes `BENCHMARKS-REMOTE.md`. `cargo xtask bench hub` prints the load figures of
//! a hub and its store.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use duologue_bench::command_line::{self, CommandLine};

use crate::interop::install::{BUILD, npm, once, python, rust, rust_network_bench, ts};
use crate::interop::{InteropPaths, Result, finish};

/// The time limit of a run with all programs and workloads.
const PLAY: Duration = Duration::from_secs(4 * 3600);

/// Builds and installs the programs, and runs the benchmark.
#[expect(clippy::print_stdout, reason = "this is the program's output")]
pub(crate) fn run(args: &[String]) -> Result<()> {
    // Parsed before anything is built. The runner parses it again.
    let options = CommandLine::read(args)?;
    if options.help {
        println!("{}", command_line::usage());
        return Ok(());
    }
    if options.hub {
        return hub(args);
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize()?;
    let peers = InteropPaths::new();
    if options.remote {
        return remote(&options, args, &peers, &root);
    }
    step("building the programs of crates/bench");
    finish(&mut crate::target::release("duologue-bench"), BUILD)?;

    let mut runner = Command::new(crate::target::folder().join("release/duologue-bench"));
    step("building those on the official Rust SDK");
    runner.arg("--rust").arg(rust(&peers)?);
    if !options.rust_alone() {
        step("installing those on the official TypeScript SDK, and a newer node");
        runner.arg("--ts").args(typescript(&peers)?);
        step("installing those on the official Python SDK");
        runner.arg("--python").args(uvloop(&peers)?);
    }
    if options.whole() {
        runner.arg("--page").arg(root);
    }
    step("playing");
    finish(runner.arg("--").args(args), PLAY)
}

/// Runs the benchmark over a network. A small one is built without optimization, because it shows no speed.
fn remote(options: &CommandLine, args: &[String], peers: &InteropPaths, root: &Path) -> Result<()> {
    step("building the programs of crates/bench and the command");
    let packages = ["duologue-bench", "duologue-cli"];
    let profile = if options.quick {
        // One by one, because the tests have built the command like this.
        for package in packages {
            let mut cargo = crate::target::cargo();
            finish(cargo.args(["build", "--quiet", "--locked", "--bins", "-p", package]), BUILD)?;
        }
        "debug"
    } else {
        finish(crate::target::release(packages[0]).args(["-p", packages[1]]), BUILD)?;
        "release"
    };
    let mut runner = Command::new(crate::target::folder().join(profile).join("duologue-bench"));
    step("building those on the official Rust SDK");
    runner.arg("--rust").arg(rust_network_bench(peers, profile)?);
    if !options.rust_alone() {
        step("installing those on the official TypeScript SDK");
        ts(peers)?;
        runner.arg("--ts").arg(peers.target.join("ts")).arg("node");
    }
    if options.whole() {
        runner.arg("--page").arg(root);
    }
    step("playing");
    finish(runner.arg("--").args(args), PLAY)
}

/// Measures a hub and its store. The program starts the command that is built beside it.
fn hub(args: &[String]) -> Result<()> {
    step("building the program and the command");
    let mut cargo = crate::target::cargo();
    cargo.args(["build", "--release", "--quiet", "--locked", "-p", "duologue-cli", "--bin", "duologue"]);
    cargo.args(["-p", "duologue-bench", "--features", "duologue-bench/hub", "--bin", "bench-hub"]);
    finish(&mut cargo, BUILD)?;
    step("measuring");
    finish(Command::new(crate::target::folder().join("release/bench-hub")).args(args), PLAY)
}

/// Prints the name of a step that takes long.
#[expect(clippy::print_stderr, reason = "this is a program")]
fn step(what: &str) {
    eprintln!("{what}");
}

/// Returns the folder of the programs on the TypeScript SDK, and a node newer than the one that is found.
fn typescript(peers: &InteropPaths) -> Result<[PathBuf; 2]> {
    ts(peers)?;
    let node = peers.target.join("node24");
    npm(&peers.sources.join("bench"), &node)?;
    Ok([peers.target.join("ts"), node.join("node_modules/node/bin/node")])
}

/// Returns the folder of the programs on the Python SDK, and an interpreter that has it and uvloop.
fn uvloop(peers: &InteropPaths) -> Result<[PathBuf; 2]> {
    let (sources, target) = (peers.sources.join("python"), peers.target.join("python"));
    python(&sources, &target)?;
    let wanted = target.join("bench.txt");
    once(&peers.sources.join("bench/requirements.txt"), &wanted, || {
        let mut pip = Command::new(target.join("venv/bin/pip"));
        pip.args(["install", "--quiet", "--disable-pip-version-check", "-r"]).arg(&wanted);
        finish(&mut pip, BUILD)
    })?;
    Ok([sources, target.join("venv/bin/python")])
}

#[cfg(test)]
mod tests {
    use duologue_bench::workloads::WORKLOADS;

    #[test]
    fn the_page_has_a_table_for_each_workload() {
        let page = include_str!("../../../BENCHMARKS.md");
        let tables: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("## (")).collect();
        let workloads: Vec<&str> =
            WORKLOADS.iter().filter_map(|workload| workload.title.strip_prefix('(')).collect();
        assert_eq!(tables, workloads, "run `cargo xtask bench`");
    }
}
