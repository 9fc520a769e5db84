//! `duologue proxy` between real processes.
#![cfg(unix)]

use std::fs;
use std::path::Path;
use std::process::Command;

use duologue_transcript::Transcript;
use insta::assert_snapshot;

use crate::process::{DUOLOGUE, run, shown};

fn proxy(options: &[&str], agent: &[&str]) -> Command {
    let mut command = Command::new(DUOLOGUE);
    command.arg("proxy").args(options).arg("--").args(agent);
    command
}

/// Runs a prompt in a folder, with the mock behind a proxy.
fn mock(folder: &Path, prompt: &str, options: &[&str]) -> String {
    let mut command = Command::new(DUOLOGUE);
    command.args(["run", prompt, "--yes", "--cwd"]).arg(folder);
    command.args(["--", DUOLOGUE, "proxy"]).args(options).args(["--", DUOLOGUE, "mock", "--pace", "0"]);
    shown(&run(&mut command, ""))
}

#[test]
fn a_session_with_the_mock_passes_all_stages() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("talk.jsonl");
    let record = format!("record={}", file.display());
    let map = format!("path-map={}=/workspace", folder.path().display());
    let plain = mock(folder.path(), "hello", &[]);
    assert!(plain.contains("Hello!") && plain.ends_with("exit 0"), "{plain}");
    let options = ["--use", &record, "--use", "redact", "--use", "permissions=ask:*", "--use", &map];
    let through = mock(folder.path(), "hello", &options);
    assert_eq!(through, plain);
    let transcript = Transcript::load(&file).expect("a transcript");
    assert!(transcript.render().contains("session/prompt"));
    assert!(fs::read_to_string(&file).expect("text").contains("\"exit\":{\"code\":0}"));
}

#[test]
fn a_rule_answers_before_the_user() {
    let folder = tempfile::tempdir().expect("a folder");
    let asked = mock(folder.path(), "permission", &["--use", "permissions=ask:*"]);
    let denied = mock(folder.path(), "permission", &["--use", "permissions=deny:*"]);
    assert_ne!(asked, denied);
    assert!(asked.contains("You allowed it."), "{asked}");
    // The client gets no question.
    assert!(denied.contains("I left it as it was.") && !denied.contains("--yes"), "{denied}");
}

#[test]
fn instructions_go_before_the_first_prompt() {
    let folder = tempfile::tempdir().expect("a folder");
    let (rules, file) = (folder.path().join("rules.md"), folder.path().join("talk.jsonl"));
    fs::write(&rules, "Be brief.").expect("a file");
    let prompt = format!("system-prompt={}", rules.display());
    let record = format!("record={}", file.display());
    // The record is behind the stage, so it has what the agent gets.
    mock(folder.path(), "hello", &["--use", &prompt, "--use", &record]);
    let text = fs::read_to_string(&file).expect("text");
    assert!(
        text.contains(r#""prompt":[{"text":"Be brief.","type":"text"},{"type":"text","text":"hello"}]"#),
        "{text}"
    );
}

#[test]
fn paths_outside_of_strict_maps_are_rejected() {
    let line = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"session/new\",\"params\":{\"cwd\":\"/other\"}}\n";
    let options = ["--use", "path-map=/a=/b", "--strict-paths"];
    assert_snapshot!(shown(&run(&mut proxy(&options, &["cat"]), line)), @r#"
    {"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"/other is outside of the mapped folders; use one inside, or map it too"}}
    exit 0
    "#);
    let line = line.replace("/other", "/a/x").replace("\"id\":1,", "");
    assert_eq!(shown(&run(&mut proxy(&options, &["cat"]), &line)), format!("{line}exit 0"));
}

#[test]
fn it_ends_as_the_agent_does_and_without_stages_changes_no_byte() {
    let odd = b"\x00\xff\r\n\n{\"a\":1}\r\nno end".as_slice();
    let output = run(&mut proxy(&[], &["cat"]), odd);
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(0), odd));
    assert_eq!(run(&mut proxy(&[], &["sh", "-c", "echo x >&2; exit 7"]), "").status.code(), Some(7));
    assert_eq!(run(&mut proxy(&[], &["sh", "-c", "kill -11 $$"]), "").status.code(), Some(128 + 11));
    let output = run(&mut proxy(&[], &["sh", "-c", "head -c 17000000 /dev/zero; sleep 1000"]), "");
    assert_eq!(output.status.code(), Some(3));
    assert_snapshot!(String::from_utf8_lossy(&output.stderr), @"error: a line of the agent is longer than 16777216 bytes (`Limits::frame_bytes`)");
}

#[test]
fn mistakes_are_named_before_anything_starts() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("talk.jsonl");
    let record = format!("record={}", file.display());
    let fault = |options: &[&str], agent: &str| {
        let output = run(&mut proxy(options, &[agent]), "");
        assert!(output.stdout.is_empty());
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stderr).lines().next().unwrap_or_default().to_owned(),
        )
    };
    for (stage, text) in [
        ("recrod=x", "the stages are record, redact, permissions, path-map and system-prompt"),
        ("record", "record needs a value: record=FILE"),
        ("redact=x", "redact has no value"),
        ("permissions=deny", "deny is not a rule like deny:execute"),
        ("permissions=deny:exec", "exec is not a kind of tool; `duologue proxy --help` lists them"),
        ("permissions=no:read", "no is not a rule: allow, ask or deny"),
        ("path-map=a=b", "a=b are not two absolute folders: path-map=CLIENT=AGENT"),
        ("path-map=1:=/b", "1:=/b are not two absolute folders: path-map=CLIENT=AGENT"),
        (
            "path-map=/a=/b/../..",
            "/b/../.. leads out of its folder by `..`; name the folder that is meant: path-map=CLIENT=AGENT",
        ),
    ] {
        let (code, line) = fault(&["--use", stage], "cat");
        assert_eq!(code, Some(2), "{stage}");
        assert!(line.ends_with(text), "{line}");
    }
    let connect = run(Command::new(DUOLOGUE).args(["connect", "--map", r"C:\a\..=/b"]), "");
    assert!(String::from_utf8_lossy(&connect.stderr).contains(r"C:\a\.. leads out of its folder by `..`"));
    assert_eq!(connect.status.code(), Some(2));
    let windows = ["connect", "--map", r"C:\work=/data", "--wait", "0", "http://127.0.0.1:1/acp"];
    assert_eq!(run(Command::new(DUOLOGUE).args(windows), "").status.code(), Some(3));
    let missing = folder.path().join("missing");
    let prompt = format!("system-prompt={}", missing.display());
    assert_eq!(fault(&["--use", &record, "--use", &prompt], "cat").0, Some(4));
    assert_eq!(fault(&["--use", &record], "no-such-agent").0, Some(3));
    assert!(!file.exists(), "nothing is left");
}
