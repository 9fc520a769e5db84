//! `cargo xtask bench [--quick] [--rounds N] [WORKLOAD..]`: builds the programs of `crates/bench`, installs those on the
//! official SDKs, and has them play. Without a workload it writes `BENCHMARKS.md`; with `--quick` it plays small, with
//! the official Rust crate alone, and writes nothing.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::interop::install::{BUILD, npm, once, python, rust, ts};
use crate::interop::{Paths, Result, finish};

/// Playing everything with everybody takes its time.
const PLAY: Duration = Duration::from_secs(4 * 3600);

/// Does it.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize()?;
    let peers = Paths::new();
    let mut cargo = crate::target::cargo();
    finish(cargo.args(["build", "--release", "--quiet", "--locked", "--package", "duologue-bench"]), BUILD)?;

    let mut runner = Command::new(crate::target::folder().join("release/duologue-bench"));
    runner.arg("--rust").arg(rust(&peers)?);
    if !args.iter().any(|arg| arg == "--quick") {
        runner.arg("--ts").args(typescript(&peers)?);
        runner.arg("--python").args(uvloop(&peers)?);
        runner.arg("--page").arg(root);
    }
    finish(runner.args(args), PLAY)
}

/// Where the programs on the TypeScript SDK are, and a node newer than the one that is found.
fn typescript(peers: &Paths) -> Result<[PathBuf; 2]> {
    ts(peers)?;
    let node = peers.target.join("node24");
    npm(&peers.sources.join("bench"), &node)?;
    Ok([peers.target.join("ts"), node.join("node_modules/node/bin/node")])
}

/// Where the programs on the Python SDK are, and an interpreter that has it and uvloop.
fn uvloop(peers: &Paths) -> Result<[PathBuf; 2]> {
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
