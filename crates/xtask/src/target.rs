//! The folders of the workspace, and commands in them.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::interop::Result;

/// The folder that cargo builds into, wherever a program is started.
pub(crate) fn folder() -> PathBuf {
    let own = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
    let folder = std::env::var_os("CARGO_TARGET_DIR").map_or_else(own, PathBuf::from);
    std::path::absolute(&folder).unwrap_or(folder)
}

/// Returns the cargo that runs this program. It builds into that folder, whatever the user's configuration is.
pub(crate) fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    cargo.env("CARGO_TARGET_DIR", folder());
    cargo
}

/// Returns the command that builds the programs of a package for release.
pub(crate) fn release(package: &str) -> Command {
    let mut cargo = cargo();
    cargo.args(["build", "--release", "--quiet", "--locked", "--bins", "-p", package]);
    cargo
}

/// Runs a command of cargo that builds one program, and returns its path.
pub(crate) fn executable(cargo: &mut Command) -> Result<PathBuf> {
    let output = cargo.arg("--message-format=json-render-diagnostics").stderr(Stdio::inherit()).output()?;
    let messages = String::from_utf8(output.stdout)?;
    let program = messages.lines().rev().find_map(|line| {
        let message: Value = serde_json::from_str(line).ok()?;
        Some(PathBuf::from(message.get("executable")?.as_str()?))
    });
    program.ok_or_else(|| format!("{cargo:?} built no program: {}", output.status).into())
}

/// Returns the root of the workspace.
pub(crate) fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// Runs a command, which has to succeed.
pub(crate) fn passes(command: &mut Command) -> Result<()> {
    let status = command.status().map_err(|error| format!("{command:?}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{command:?}: {status}").into()) }
}
