//! Threads against each other: loom and Miri over the peer, each built into a folder of its own.
//!
//! `cargo xtask loom [loom | miri]`; without a name, loom.

use std::error::Error;
use std::process::Command;

pub(crate) fn run(args: &[String]) -> Result<(), Box<dyn Error>> {
    let name = match args {
        [] => "loom",
        [name] if matches!(name.as_str(), "loom" | "miri") => name,
        _ => return Err("cargo xtask loom [loom | miri]".into()),
    };
    let mut cargo = Command::new("cargo");
    cargo
        .env("CARGO_TARGET_DIR", crate::target::folder().join("interleavings").join(name))
        .env("CARGO_INCREMENTAL", "0");
    if name == "miri" {
        // The unit tests alone. Nightly, with `rustup +nightly component add miri rust-src`.
        cargo.env("RUSTUP_TOOLCHAIN", "nightly").env("MIRIFLAGS", "-Zmiri-disable-isolation");
        cargo.env("PROPTEST_CASES", "4").args(["miri", "test", "-p", "duologue-rpc", "--lib"]);
    } else {
        cargo.env("RUSTFLAGS", "--cfg duologue_loom");
        cargo.args([
            "test",
            "--release",
            "-p",
            "duologue-rpc",
            "--lib",
            "interleavings",
            "--",
            "--nocapture",
        ]);
    }
    if cargo.status()?.success() { Ok(()) } else { Err(format!("{name} found something").into()) }
}
