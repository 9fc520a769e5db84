//! Refusals of `duologue run`, and their objects for scripts.

use std::path::Path;
use std::process::Command;

use crate::scripted::{agent, ask, end_turn, request};
use serde_json::{Value, json};
use tempfile::TempDir;

fn run(args: &[&str], agent: &[&str], folder: &Path) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_duologue"));
    command.arg("run").args(args).arg("--cwd").arg(folder).arg("--").args(agent);
    let output = command.stdin(std::process::Stdio::null()).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).replace(folder.to_str().unwrap(), "[folder]");
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// Plays the lines, and returns the exit code, the objects and what was answered to the agent.
fn played(args: &[&str], lines: &[Value]) -> (Option<i32>, String, String) {
    let folder = TempDir::new().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let lines: Vec<Value> = lines
        .iter()
        .map(|line| serde_json::from_str(&line.to_string().replace("[file]", &file("written"))).unwrap())
        .collect();
    let script = agent(folder.path(), &lines);
    let (code, stdout, _) = run(&[args, &["--json", "go"]].concat(), &["sh", "-c", &script], folder.path());
    let answers = std::fs::read_to_string(folder.path().join("answers")).unwrap();
    (code, stdout, answers)
}

fn write(id: &str, path: &str) -> Value {
    request(id, "fs/write_text_file", json!({"path": path, "content": "text"}))
}

fn execute() -> Value {
    let input = json!({"command": "rm -rf x"});
    json!({"toolCallId": "t", "title": "Bash", "kind": "execute", "rawInput": input})
}

#[test]
fn writes_and_programs_are_objects() {
    let lines = [
        write("1", "[file]"),
        write("2", "/etc/none"),
        request("3", "terminal/create", json!({"command": "true", "args": ["a b"]})),
        request("4", "terminal/create", json!({"command": "no-such-program"})),
        request("5", "terminal/create", json!({"command": "true", "cwd": "/etc"})),
        end_turn(),
    ];
    let (code, stdout, _) = played(&[], &lines);
    assert_eq!(code, Some(6));
    insta::assert_snapshot!(stdout, @r#"
    {"sessionId":"s","write":{"bytes":4,"outcome":"done","path":"[folder]/written"}}
    {"sessionId":"s","write":{"bytes":4,"outcome":"refused","path":"/etc/none","reason":"/etc/none is outside of the session's folders: [folder]"}}
    {"sessionId":"s","terminal":{"args":["a b"],"command":"true","cwd":null,"env":[],"outcome":"done"}}
    {"sessionId":"s","terminal":{"args":[],"command":"no-such-program","cwd":null,"env":[],"outcome":"failed","reason":"there is no program no-such-program"}}
    {"sessionId":"s","terminal":{"args":[],"command":"true","cwd":"/etc","env":[],"outcome":"refused","reason":"/etc is outside of the session's folders: [folder]"}}
    {"sessionId":"s","outcome":{"stopReason":"end_turn"}}
    "#);
}

/// Requests that are rejected unread are objects too.
#[test]
fn missing_capabilities_are_reported() {
    let lines = [
        write("1", "[file]"),
        request("2", "terminal/create", json!({"command": "true"})),
        request("3", "fs/write_text_file", json!({"sessionId": "other", "path": "/etc/none", "content": ""})),
        request(
            "4",
            "elicitation/create",
            json!({"mode": "url", "elicitationId": "e", "url": "https://x", "message": "Hello"}),
        ),
        end_turn(),
    ];
    let (code, stdout, _) = played(&["--read-only"], &lines);
    assert_eq!(code, Some(6));
    insta::assert_snapshot!(stdout, @r#"
    {"sessionId":"s","write":{"bytes":4,"outcome":"refused","path":"[folder]/written","reason":"--read-only or --no-tools forbids it"}}
    {"sessionId":"s","terminal":{"args":[],"command":"true","cwd":null,"env":[],"outcome":"refused","reason":"--read-only or --no-tools forbids it"}}
    {"sessionId":"other","write":{"bytes":0,"outcome":"refused","path":"/etc/none","reason":"--read-only or --no-tools forbids it"}}
    {"sessionId":"s","answer":{"message":"Hello","outcome":"refused","reason":"no user can answer"}}
    {"sessionId":"s","outcome":{"stopReason":"end_turn"}}
    "#);
    let lines = [write("1", "relative"), end_turn()];
    insta::assert_snapshot!(played(&[], &lines).1, @r#"
    {"sessionId":"s","write":{"bytes":4,"outcome":"refused","path":"relative","reason":"the path must be absolute"}}
    {"sessionId":"s","outcome":{"stopReason":"end_turn"}}
    "#);
}

#[test]
fn answers_are_objects() {
    for (args, chosen) in [(&[][..], "no"), (&["--yes"], "yes"), (&["--allow", "execute"], "yes")] {
        let (code, stdout, answers) = played(args, &[ask("1", execute()), end_turn()]);
        assert_eq!(code, Some(if chosen == "no" { 6 } else { 0 }), "{args:?}");
        assert!(answers.contains(&format!(r#""optionId":"{chosen}""#)), "{answers}");
        insta::allow_duplicates! {
            let (answer, end) = stdout.split_once('\n').unwrap();
            insta::assert_snapshot!(end, @r#"{"sessionId":"s","outcome":{"stopReason":"end_turn"}}"#);
            let answer: Value = serde_json::from_str(answer).unwrap();
            let by = match args.first() {
                None => json!({"by": "nobody", "outcome": "rejected"}),
                Some(&"--yes") => json!({"by": "rule", "rule": "--yes", "outcome": "allowed"}),
                Some(_) => json!({"by": "rule", "rule": "--allow execute", "outcome": "allowed"}),
            };
            let option = match chosen {
                "no" => json!({"optionId": "no", "name": "No", "kind": "reject_once"}),
                _ => json!({"optionId": "yes", "name": "Yes", "kind": "allow_once"}),
            };
            let mut expected = json!({"toolCallId": "t", "title": "Bash", "kind": "execute", "command": "rm -rf x"});
            expected["option"] = option;
            expected.as_object_mut().unwrap().extend(by.as_object().unwrap().clone());
            assert_eq!(answer, json!({"sessionId": "s", "answer": expected}));
        }
    }
}

/// Nobody refused a program that does not exist, nor one that the agent did not ask for.
#[test]
fn a_failure_is_no_refusal() {
    let start = request("1", "terminal/create", json!({"command": "no-such-program"}));
    let (code, stdout, _) = played(&[], &[start, end_turn()]);
    assert_eq!(code, Some(0));
    assert!(stdout.contains(r#""outcome":"failed""#), "{stdout}");
}

/// A rule allows the tools that it names, and no others.
#[test]
fn a_rule_for_other_tools_allows_nothing() {
    let without_kind = json!({"toolCallId": "t", "title": "Bash", "rawInput": {"command": "rm -rf x"}});
    for (allowed, call) in [("read,edit", execute()), ("other", execute()), ("execute", without_kind)] {
        let (code, stdout, answers) = played(&["--allow", allowed], &[ask("1", call), end_turn()]);
        assert_eq!(code, Some(6), "{allowed}: {stdout}");
        assert!(answers.contains(r#""optionId":"no""#) && stdout.contains(r#""by":"nobody""#), "{stdout}");
    }
}

/// A refusal is not worth an exit code of its own if something worse happened.
#[test]
fn anything_is_worse_than_a_refusal() {
    let end = |result: Value| json!({"jsonrpc": "2.0", "id": 3, "result": result});
    let error = json!({"jsonrpc": "2.0", "id": 3, "error": {"code": -32603, "message": "no"}});
    for (end, code) in [
        (end(json!({"stopReason": "end_turn"})), 6),
        (end(json!({"stopReason": "refusal"})), 1),
        (error, 1),
        (json!("no message"), 3),
    ] {
        let lines = [ask("1", execute()), end.clone()];
        let folder = TempDir::new().unwrap();
        // It leaves instead of waiting for the end of its input.
        let script = agent(folder.path(), &lines).trim_end_matches("read -r a").to_owned();
        assert_eq!(run(&["go"], &["sh", "-c", &script], folder.path()).0, Some(code), "{end}");
    }
}

/// However many requests are rejected, each is an object or counted.
#[test]
fn a_flood_of_rejected_requests_is_shown_or_counted() {
    const MANY: usize = 20_000;
    let folder = TempDir::new().unwrap();
    let flood = write("1", "relative");
    let lines: String = std::iter::repeat_n(format!("{flood}\n"), MANY).collect();
    std::fs::write(folder.path().join("flood"), lines).unwrap();
    let setup = agent(folder.path(), &[]);
    let (setup, _) = setup.split_once("while").unwrap();
    let script = format!("{setup} exec 4<&0; cat <&4 >/dev/null & cat flood; echo '{}'; wait", end_turn());
    let (code, stdout, stderr) = run(&["--json", "go"], &["sh", "-c", &script], folder.path());
    assert_eq!(code, Some(6), "{stderr}");
    let told = stdout.lines().filter(|line| line.contains(r#""outcome":"refused""#)).count();
    let counted = stderr.lines().find_map(|line| line.strip_prefix("✗ … ")?.split(' ').next()?.parse().ok());
    assert_eq!(told + counted.unwrap_or(0), MANY, "{stderr}");
}

/// The exit codes of `run` are those of `--help`.
#[test]
fn every_error_has_the_documented_exit_code() {
    let folder = TempDir::new().unwrap();
    let plain = agent(folder.path(), &[end_turn()]);
    let bare = vec!["sh", "-c", &plain];
    let crash = vec!["sh", "-c", "read -r a; exit 7"];
    let mock = vec![env!("CARGO_BIN_EXE_duologue"), "mock", "--pace", "0"];
    let login = vec![env!("CARGO_BIN_EXE_duologue"), "mock", "login"];
    for (args, agent, code) in [
        (&["hello"][..], &mock, 0),
        // It answered, and the answer is no.
        (&["error"], &mock, 1),
        (&["refusal"], &mock, 1),
        (&["hello", "--login", "nonsense"], &login, 1),
        (&["hello"], &login, 1),
        (&["hello", "--mode", "nonsense"], &mock, 1),
        (&["hello", "--option", "nonsense=1"], &mock, 1),
        (&["hello", "--load", "nonsense"], &mock, 1),
        (&["hello", "--resume", "nonsense"], &mock, 1),
        // The command line is wrong.
        (&["hello", "--option", "verbose=perhaps"], &mock, 2),
        // The agent is not there, or not for long.
        (&["hello"], &vec!["no-such-agent"], 3),
        (&["hello"], &crash, 3),
        (&["crash"], &mock, 3),
        // It did not advertise that.
        (&["hello", "--mode", "plan"], &bare, 5),
        (&["hello", "--option", "a=b"], &bare, 5),
        (&["hello", "--load", "s"], &bare, 5),
        (&["hello", "--resume", "s"], &bare, 5),
        (&["--list"], &bare, 5),
        (&["permission"], &mock, 6),
    ] {
        let (exit, _, stderr) = run(args, agent, folder.path());
        assert_eq!(exit, Some(code), "{args:?} {agent:?}: {stderr}");
    }
    // A message may have 16 MiB.
    let too_long = "x".repeat(17 * 1024 * 1024);
    let mut command = Command::new(env!("CARGO_BIN_EXE_duologue"));
    let mut child = command
        .args(["run", "-"])
        .stdin(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), too_long.as_bytes()).unwrap();
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(2));
}
