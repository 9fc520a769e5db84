//! The layering of the crates: their allowed dependencies, and the size of their files.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::Value;

use crate::workspace::{root, rust_files};

/// The allowed dependencies. A new one is a decision: argue it in an RFD, draw it in ARCHITECTURE.md, then add it here.
const ALLOWED: [(&str, &[&str]); 14] = [
    ("duologue-schema-derive", &[]),
    ("duologue-schema", &["duologue-schema-derive"]),
    ("duologue-rpc", &["duologue-schema"]),
    ("duologue-exchange", &["duologue-rpc", "duologue-schema"]),
    ("duologue-agent", &["duologue-exchange", "duologue-http", "duologue-rpc", "duologue-schema"]),
    ("duologue-client", &["duologue-exchange", "duologue-http", "duologue-rpc", "duologue-schema"]),
    ("duologue-http", &["duologue-rpc"]),
    ("duologue-transcript", &["duologue-rpc", "duologue-schema"]),
    ("duologue-proxy", &["duologue-rpc", "duologue-schema", "duologue-transcript"]),
    ("duologue-store", &["duologue-rpc", "duologue-schema", "duologue-transcript"]),
    (
        "duologue-hub",
        &[
            "duologue-client",
            "duologue-http",
            "duologue-rpc",
            "duologue-schema",
            "duologue-store",
            "duologue-transcript",
        ],
    ),
    ("duologue-testkit", &["duologue-agent", "duologue-rpc"]),
    (
        "duologue-conformance",
        &["duologue-client", "duologue-http", "duologue-rpc", "duologue-schema", "duologue-transcript"],
    ),
    (
        "duologue-cli",
        &[
            "duologue-agent",
            "duologue-client",
            "duologue-conformance",
            "duologue-exchange",
            "duologue-http",
            "duologue-hub",
            "duologue-proxy",
            "duologue-rpc",
            "duologue-schema",
            "duologue-testkit",
            "duologue-transcript",
        ],
    ),
];

/// The dependencies of the crates' tests beyond the allowed ones: a peer of the other side to talk to.
const ALLOWED_IN_TESTS: [&str; 4] =
    ["duologue-agent", "duologue-client", "duologue-test-support", "duologue-testkit"];

/// Packages above the map: no package of the map depends on them, and they may use all others.
const ABOVE: [&str; 7] = [
    "duologue-test-support",
    "duologue-tests",
    "duologue-examples",
    "duologue-hello",
    "xtask",
    "duologue-microbench",
    "duologue-bench",
];

/// The only ones that may name jsonrpsee.
const JSONRPSEE: [&str; 2] = ["duologue-rpc", "duologue-examples"];

/// The most packages of an agent with the default features.
const MOST_PACKAGES: usize = 50;
const LONGEST_FILE: usize = 800;
const LONGEST_MAIN: usize = 40;

fn packages() -> Vec<Value> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version=1", "--no-deps", "--offline"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut metadata: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    serde_json::from_value(metadata["packages"].take()).expect("packages")
}

fn name(value: &Value) -> &str {
    value["name"].as_str().expect("a name")
}

/// Returns the dependencies of a package, with true for those of its tests alone.
fn dependencies(package: &Value) -> impl Iterator<Item = (&str, bool)> {
    let dependencies = package["dependencies"].as_array().expect("an array");
    dependencies.iter().map(|dependency| (name(dependency), dependency["kind"] == "dev"))
}

#[test]
fn no_dependency_was_added() {
    let packages = packages();
    let members: BTreeSet<&str> = packages.iter().map(name).collect();
    let mut strays = Vec::new();
    for package in &packages {
        let package_name = name(package);
        let allowed = ALLOWED.iter().find(|(from, _)| *from == package_name).map(|(_, to)| *to);
        if allowed.is_none() && !ABOVE.contains(&package_name) {
            strays.push(format!("{package_name} is not on the map"));
        }
        for (dependency, dev) in dependencies(package) {
            if dependency == "jsonrpsee" && !JSONRPSEE.contains(&package_name) {
                strays.push(format!("{package_name} names jsonrpsee; it is re-exported from duologue-rpc"));
            }
            if !members.contains(dependency) || dependency == package_name {
                continue;
            }
            if dev && ALLOWED_IN_TESTS.contains(&dependency) {
                continue;
            }
            if ABOVE.contains(&dependency) && !ABOVE.contains(&package_name) {
                strays.push(format!("{package_name} -> {dependency}, which stands above the map"));
            }
            if allowed.is_some_and(|allowed| !allowed.contains(&dependency)) {
                strays.push(format!("{package_name} -> {dependency}"));
            }
        }
    }
    assert!(strays.is_empty(), "dependencies that the map does not allow:\n  {}", strays.join("\n  "));
}

/// The packages that an agent with the default features compiles. The features of its users add others.
#[test]
fn a_plain_agent_is_small() {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["tree", "--offline", "-p", "duologue-agent", "-e", "normal", "--prefix", "none"])
        .args(["--format", "{p}", "--no-dedupe"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = String::from_utf8_lossy(&output.stdout);
    let packages: BTreeSet<_> = lines.lines().filter_map(|line| line.split(' ').next()).collect();
    for heavy in ["cap-std", "hmac", "jiff", "ring", "sha2"] {
        assert!(!packages.contains(heavy), "{heavy} is for signed dialogues and work orders");
    }
    assert!(
        packages.len() <= MOST_PACKAGES,
        "{} packages, {MOST_PACKAGES} are allowed: {packages:?}",
        packages.len()
    );
}

#[test]
fn files_open_with_documentation_and_stay_short() {
    let files = rust_files(&root());
    assert!(files.len() > 50, "the walk found only {} files", files.len());
    let mut faults = Vec::new();
    for path in files {
        let text = std::fs::read_to_string(&path).expect("UTF-8");
        let shown = path.strip_prefix(root()).unwrap_or(&path).display();
        let lines = text.lines().count();
        if !text.starts_with("//!") && !text.starts_with("#![doc = include_str!(") {
            faults.push(format!("{shown} does not begin with //!"));
        }
        let is_main = path.file_name().is_some_and(|name| name == "main.rs");
        let most = if is_main { LONGEST_MAIN } else { LONGEST_FILE };
        if lines >= most {
            faults.push(format!("{shown} has {lines} lines, {most} are too many"));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
