//! `duologue` under limits of the system: open files, the size of a file, memory.
#![cfg(target_os = "linux")]

use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Output};

use crate::process::{self, DUOLOGUE};

/// Runs the command under a limit that a shell sets, with this as its input.
fn limited(limit: &str, args: &[&str], input: &[u8]) -> Output {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit {limit}; exec \"$0\" \"$@\""), DUOLOGUE]).args(args);
    process::run(command.env_remove("RUST_BACKTRACE"), input)
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn no_limit_of_open_files_makes_a_command_panic() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("UTF-8").to_owned();
    let recording = path("recording.jsonl");
    let header = r#"{"format":"acp-transcript","version":1,"recorder":"by hand","protocolVersion":1,"started":"2026-01-01T00:00:00Z"}"#;
    std::fs::write(&recording, format!("{header}\n")).expect("a file");
    let output = path("output.jsonl");
    let commands: [&[&str]; 9] = [
        &["run", "hello"],
        &["run", "hello", "--", DUOLOGUE, "mock"],
        &["record", "--force", "-o", &output, "--", DUOLOGUE, "mock"],
        &["check", "--timeout", "5", "--only", "initialize-answers", "--", DUOLOGUE, "mock"],
        &["mock"],
        &["show", &recording],
        &["replay", &recording],
        &["replay", &recording, "--", "true"],
        &["ping"],
    ];
    for files in 3..=12 {
        for args in commands {
            let output = limited(&format!("-n {files}"), args, b"");
            let said = stderr(&output);
            assert_eq!(output.status.signal(), None, "{args:?} with {files} files: {said}");
            assert_ne!(output.status.code(), Some(101), "{args:?} with {files} files: {said}");
            assert!(!said.contains("panicked"), "{args:?} with {files} files: {said}");
        }
    }
    let said = stderr(&limited("-n 7", &["run", "hello"], b""));
    assert!(said.contains("more open files are needed") && said.contains("raise `ulimit -n`"), "{said}");
}

/// Sends this many lines as the client.
fn lines(count: usize) -> String {
    (0..count).map(|id| format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"_x/say\"}}\n")).collect()
}

#[test]
fn a_limit_of_the_file_size_ends_the_recording_and_not_the_conversation() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("a.jsonl");
    let path = file.to_str().expect("UTF-8");
    let said = lines(1000);
    // Eight blocks of 512 bytes, or of 1,024 in some shells.
    let output = limited("-f 8", &["record", "-o", path, "--", "cat"], said.as_bytes());
    assert_eq!(output.status.signal(), None, "{}", stderr(&output));
    assert_eq!(String::from_utf8_lossy(&output.stdout), said);
    let complaint = stderr(&output);
    assert!(complaint.contains("recording stopped") && complaint.contains("ulimit -f"), "{complaint}");
    assert!(complaint.contains("the conversation goes on"), "{complaint}");
    assert_eq!(output.status.code(), Some(4), "{complaint}");
    let recorded = std::fs::read(&file).expect("a file");
    assert!(
        recorded.ends_with(b"}\n") && recorded.len() <= 8 * 1024,
        "whole records, and no more than the limit"
    );
}

#[test]
fn a_file_that_may_hold_nothing_is_an_error_at_the_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("a.jsonl");
    let path = file.to_str().expect("UTF-8");
    let output = limited("-f 0", &["record", "-o", path, "--", "cat"], b"");
    assert_eq!(output.status.signal(), None, "{}", stderr(&output));
    assert_eq!(output.status.code(), Some(4), "{}", stderr(&output));
}

/// The number of the signal that a process gets when a file grows beyond its limit.
const SIGXFSZ: u32 = 25;

#[test]
fn an_agent_starts_with_the_usual_action_of_the_signal() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("a.jsonl");
    let agent = ["record", "-o", file.to_str().expect("UTF-8"), "--", "grep", "SigIgn", "/proc/self/status"];
    let output = limited("-n 100", &agent, b"");
    let text = String::from_utf8_lossy(&output.stdout);
    let mask = text.trim().strip_prefix("SigIgn:").map(str::trim).expect("a mask");
    let ignored = u64::from_str_radix(mask, 16).expect("a number");
    assert_eq!(ignored & (1 << (SIGXFSZ - 1)), 0, "{text}");
}

/// More than a line of the longest may take in memory, and much less than what is behind the device.
const MEMORY: &str = "-v 1500000";

#[test]
fn a_device_without_end_is_an_error_that_names_the_limit() {
    for args in [["show", "/dev/zero"], ["validate", "/dev/zero"], ["replay", "/dev/zero"]] {
        let output = limited(MEMORY, &args, b"");
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(4), "{args:?}: {said}");
        assert!(said.contains("line 1 is longer than 128 MiB"), "{args:?}: {said}");
        assert!(said.contains("`Transcript::LINE_BYTES`"), "{args:?}: {said}");
    }
}

#[test]
fn a_recording_that_goes_on_as_a_device_without_end_is_shown_as_far_as_it_goes() {
    let folder = tempfile::tempdir().expect("a folder");
    let header = r#"{"format":"acp-transcript","version":1,"recorder":"by hand","protocolVersion":1,"started":"2026-01-01T00:00:00Z"}"#;
    let record = r#"{"at":1,"stderr":"loading"}"#;
    write(&folder.path().join("a.jsonl"), &format!("{header}\n{record}\n"));
    let endless = "ulimit -v 1500000; cd \"$1\"; cat a.jsonl /dev/zero | \"$0\" show -";
    let output =
        Command::new("sh").args(["-c", endless, DUOLOGUE]).arg(folder.path()).output().expect("it starts");
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert!(said.contains("line 3 is longer than 128 MiB"), "{said}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("loading"), "{output:?}");
}

fn write(path: &Path, text: &str) {
    std::fs::write(path, text).expect("a file");
}
