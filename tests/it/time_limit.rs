//! The time limit of test programs, which cargo starts with `.ci/test-program`.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use crate::workspace::root;

const RUNNER: &str = ".ci/test-program";

/// Runs a shell script as cargo runs a program of that name.
fn run(name: &str, script: &str, env: &[(&str, &str)]) -> Output {
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join(name);
    fs::create_dir_all(program.parent().unwrap_or(Path::new("/"))).expect("a folder");
    fs::write(&program, format!("#!/bin/sh\n{script}\n")).expect("a program");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).expect("executable");
    let mut command = Command::new(root().join(RUNNER));
    command.arg(program).arg("--exact");
    for campaign in ["DUOLOGUE_RUNS", "DUOLOGUE_FULL", "DUOLOGUE_MINUTES"] {
        command.env_remove(campaign);
    }
    command.env("DUOLOGUE_TEST_SECONDS", "1").envs(env.iter().copied()).output().expect("it runs")
}

#[test]
fn cargo_starts_test_programs_with_a_time_limit() {
    let config = fs::read_to_string(root().join(".cargo/config.toml")).expect("the configuration");
    assert!(config.contains(&format!("\nrunner = \"{RUNNER}\"")), "{config}");
}

#[test]
fn a_test_program_that_hangs_is_aborted() {
    let begun = Instant::now();
    let output = run("deps/it-1234", "exec sleep 60", &[]);
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    assert_eq!(output.status.code(), Some(124));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("deps/it-1234 was aborted after 1 s (DUOLOGUE_TEST_SECONDS)"), "{stderr}");
}

#[test]
fn other_programs_and_campaigns_are_not_limited() {
    let script = "sleep 2; echo \"$1\"; exit 3";
    for (name, env) in [("xtask", &[][..]), ("deps/it-1234", &[("DUOLOGUE_RUNS", "1000")])] {
        let output = run(name, script, env);
        assert_eq!(output.status.code(), Some(3), "{name}");
        assert_eq!(output.stdout, b"--exact\n", "{name}");
    }
    assert_eq!(run("deps/it-1234", "exit 101", &[]).status.code(), Some(101));
}
