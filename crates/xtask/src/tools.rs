//! Programs that campaigns need, installed where that is possible.

use std::process::{Command, Stdio};

use crate::interop::Result;
use crate::target::passes;

/// A program, and how it is installed.
pub(crate) struct Tool {
    /// Names of the program, one of which has to be found.
    programs: &'static [&'static str],
    install: Install,
}

#[derive(Clone, Copy)]
enum Install {
    /// A package of Debian, which only root installs.
    Apt(&'static str),
    Cargo(&'static str),
}

impl Tool {
    pub(crate) const CHROMIUM: Tool = Tool {
        programs: &["chromium", "chromium-browser", "google-chrome"],
        install: Install::Apt("chromium"),
    };
    pub(crate) const VALGRIND: Tool = Tool { programs: &["valgrind"], install: Install::Apt("valgrind") };
    pub(crate) const NPM: Tool = Tool { programs: &["npm"], install: Install::Apt("npm") };
    pub(crate) const PYTHON: Tool = Tool { programs: &["python3"], install: Install::Apt("python3-venv") };
    pub(crate) const CARGO_DENY: Tool =
        Tool { programs: &["cargo-deny"], install: Install::Cargo("cargo-deny") };
}

/// Returns true if a program of this name starts.
fn starts(program: &str) -> bool {
    let mut command = Command::new(program);
    command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Installs a tool unless it is there.
pub(crate) fn ensure(tool: &Tool) -> Result<()> {
    if tool.programs.iter().any(|program| starts(program)) {
        return Ok(());
    }
    match tool.install {
        Install::Apt(package) => {
            let apt = |args: &[&str]| passes(Command::new("apt-get").arg("-qq").args(args));
            apt(&["update"]).and_then(|()| apt(&["install", "-y", package])).map_err(|error| {
                format!("{} was not found and could not be installed: {error}", tool.programs.join(" or "))
                    .into()
            })
        }
        // Without optimizing: it runs once, and is ready in a third of the time.
        Install::Cargo(name) => {
            passes(crate::target::cargo().args(["install", "--debug", "--locked", "--quiet", name]))
        }
    }
}
