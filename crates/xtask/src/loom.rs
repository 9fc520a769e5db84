//! Threads against each other: loom, shuttle and Miri over the peer, each built into a folder of its own.
//!
//! `cargo xtask loom [loom | shuttle | miri] [--runs N]`; without a name, loom and shuttle.

use std::error::Error;
use std::process::Command;

/// The schedules of each shuttle model without `--runs`.
const SCHEDULES: &str = "100000";

pub(crate) fn run(args: &[String]) -> Result<(), Box<dyn Error>> {
    let (mut names, mut runs) = (Vec::new(), SCHEDULES);
    let mut args = args.iter().map(String::as_str);
    while let Some(arg) = args.next() {
        match arg {
            "loom" | "shuttle" | "miri" => names.push(arg),
            "--runs" => runs = args.next().ok_or("--runs needs a number")?,
            other => {
                return Err(format!("{other}: cargo xtask loom [loom | shuttle | miri] [--runs N]").into());
            }
        }
    }
    if names.is_empty() {
        names = vec!["loom", "shuttle"];
    }
    for name in names {
        let mut cargo = Command::new("cargo");
        cargo
            .env("CARGO_TARGET_DIR", crate::target::folder().join("interleavings").join(name))
            .env("CARGO_INCREMENTAL", "0");
        match name {
            // The unit tests alone. Nightly, with `rustup +nightly component add miri rust-src`.
            "miri" => {
                cargo.env("RUSTUP_TOOLCHAIN", "nightly").env("MIRIFLAGS", "-Zmiri-disable-isolation");
                cargo.env("PROPTEST_CASES", "4").args(["miri", "test", "-p", "duologue-rpc", "--lib"]);
            }
            cfg => {
                cargo.env("RUSTFLAGS", format!("--cfg duologue_{cfg}")).env("DUOLOGUE_RUNS", runs);
                cargo.args(["test", "--release", "-p", "duologue-rpc", "--lib", "interleavings", "--"]);
                cargo.arg("--nocapture");
            }
        }
        if !cargo.status()?.success() {
            return Err(format!("{name} found something").into());
        }
    }
    Ok(())
}
