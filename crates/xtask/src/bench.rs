//! `cargo xtask bench [--quick | --rust] [--rounds N] [WORKLOAD..]`: builds the programs of `crates/bench`, installs those
//! on the official SDKs, and has them play. Without a workload it writes `BENCHMARKS.md`; with `--quick` it plays small,
//! with `--quick` or `--rust` with the official Rust crate alone, and none of these writes.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::interop::install::{BUILD, npm, once, python, rust, ts};
use crate::interop::{InteropPaths, Result, finish};
use command_line::CommandLine;

/// The command line of the runner, parsed here too so that mistakes are found before anything is built.
#[path = "../../bench/src/command_line.rs"]
#[allow(unreachable_pub, reason = "a file of crates/bench")]
mod command_line;
#[path = "../../bench/src/play.rs"]
#[allow(unreachable_pub, dead_code, reason = "a file of crates/bench")]
mod play;
#[path = "../../bench/src/workloads.rs"]
#[allow(unreachable_pub, dead_code, reason = "a file of crates/bench")]
mod workloads;

/// Playing everything with everybody takes its time.
const PLAY: Duration = Duration::from_secs(4 * 3600);

/// Does it.
#[expect(clippy::print_stdout, reason = "this is the program's output")]
pub(crate) fn run(args: &[String]) -> Result<()> {
    let options = CommandLine::read(args)?;
    if options.help {
        println!("{}", command_line::usage());
        return Ok(());
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize()?;
    let peers = InteropPaths::new();
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

/// Says what takes so long.
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
