//! The machine and the versions that were measured.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::pairs::Peers;

/// Returns the head of the page, line by line. `args` are those of `cargo xtask bench`.
pub(crate) fn lines(peers: &Peers, args: &[String]) -> Vec<String> {
    let command: Vec<&str> =
        ["cargo xtask bench"].into_iter().chain(args.iter().map(String::as_str)).collect();
    let mut lines = vec![
        format!("Command: `{}`", command.join(" ")),
        format!("Commit: {}", commit()),
        format!("Date: {}", output_or_unknown("date", &["+%F"])),
        format!("Machine: {}", machine()),
        format!("Load before the run, over 1, 5 and 15 minutes: {}", load()),
        format!("Compiler: {}, release profile", output_or_unknown("rustc", &["--version"])),
    ];
    let mut sdks = vec![format!("duologue {}", env!("CARGO_PKG_VERSION"))];
    if peers.rust.is_some() {
        let lock = include_str!("../../../xtask/interop/rust/Cargo.lock");
        sdks.push(format!("Rust SDK {}", locked(lock, "agent-client-protocol")));
    }
    if let Some((folder, node)) = &peers.ts {
        let package = folder.join("node_modules/@agentclientprotocol/sdk/package.json");
        let package: serde_json::Value =
            serde_json::from_slice(&fs::read(package).unwrap_or_default()).unwrap_or_default();
        sdks.push(format!("TypeScript SDK {}", package["version"].as_str().unwrap_or("?")));
        sdks.push(format!("node {} as found, {}", output_or_unknown("node", &["--version"]), version(node)));
    }
    if let Some((_, python)) = &peers.python {
        let package = |name: &str| {
            let script = format!("from importlib.metadata import version; print(version('{name}'))");
            output_or_unknown(&python.to_string_lossy(), &["-c", &script])
        };
        sdks.push(format!("Python SDK {}", package("agent-client-protocol")));
        sdks.push(format!("{}, uvloop {}", version(python), package("uvloop")));
    }
    lines.push(format!("Versions: {}", sdks.join("; ")));
    lines.into_iter().map(|line| format!("- {line}")).collect()
}

/// Which sources these are.
fn commit() -> String {
    let git = |args: &[&str]| output("git", &[&["-C", env!("CARGO_MANIFEST_DIR")], args].concat());
    let Some(commit) = git(&["rev-parse", "--short", "HEAD"]) else { return "unknown".to_owned() };
    let changed = git(&["status", "--porcelain"]).is_some();
    if changed { commit + ", changed since" } else { commit }
}

fn machine() -> String {
    let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpus.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or_default();
    let cores = cpus.lines().filter(|line| line.starts_with("processor")).count();
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = memory.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = kib.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok()).unwrap_or_default();
    format!(
        "{cores} cores ({}), {:.0} GiB of memory, {}",
        model.trim_start_matches([' ', '\t', ':']),
        kib / 1024.0 / 1024.0,
        output_or_unknown("uname", &["-sr"])
    )
}

fn load() -> String {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    load.split_whitespace().take(3).collect::<Vec<_>>().join(", ")
}

fn version(program: &Path) -> String {
    output_or_unknown(&program.to_string_lossy(), &["--version"])
}

/// Returns the output of a program, or a question mark if it cannot be run.
fn output_or_unknown(program: &str, args: &[&str]) -> String {
    output(program, args).unwrap_or_else(|| "?".to_owned())
}

/// Returns the output of a program, if it can be run and prints something.
fn output(program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program).args(args).output().ok()?;
    let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    Some(said).filter(|said| !said.is_empty())
}

/// The version of a package in a lock file.
fn locked(lock: &str, name: &str) -> String {
    let begin = format!("name = \"{name}\"\nversion = \"");
    let version = lock.split_once(&begin).and_then(|(_, rest)| rest.split('"').next());
    version.unwrap_or("?").to_owned()
}
