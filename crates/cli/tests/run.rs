//! `duologue run` in pipes.

use std::io::Write as _;
use std::process::{Command, Output, Stdio};

/// Runs in a temporary folder, with the mock as the agent.
fn run(args: &[&str], input: &str) -> (i32, String, String) {
    with_agent(args, &["mock", "--pace", "0"], input)
}

fn with_agent(args: &[&str], mock: &[&str], input: &str) -> (i32, String, String) {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().canonicalize().unwrap();
    std::fs::create_dir_all(&folder).unwrap();
    let duologue = env!("CARGO_BIN_EXE_duologue");
    let mut command = Command::new(duologue);
    command.arg("run").args(args).arg("--").arg(duologue).args(mock).current_dir(&folder);
    let output = feed(command, input);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).replace(&*folder.to_string_lossy(), "[cwd]");
    let result = (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr));
    let _ = std::fs::remove_dir_all(folder);
    result
}

fn feed(mut command: Command, input: &str) -> Output {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn show((code, stdout, stderr): (i32, String, String)) -> String {
    format!("{stdout}--- stderr\n{stderr}--- {code}")
}

/// The first thing anybody tries: no agent is installed, and none is needed.
#[test]
fn talks_to_the_mock_without_an_agent() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_duologue"));
    command.args(["run", "hello"]);
    let output = feed(command, "");
    assert!(output.status.success());
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.starts_with("Hello! I am the mock agent"), "{said}");
}

/// A pipe gets what is final: no draft, no thought.
#[test]
fn prints_final_words() {
    insta::assert_snapshot!(show(run(&["hello"], "")), @"
    Hello! I am the mock agent: no model, the same words every time. Prompt me with `tools`, `plan` or `permission`, or with `help` for all I can do.
    --- stderr
    --- 0
    ");
    insta::assert_snapshot!(show(run(&["clear"], "")), @"
    The first message, after.

    The second message.

    No id, and right.
    --- stderr
    --- 0
    ");
    insta::assert_snapshot!(show(run(&["-"], "thoughts\nand more")), @"
    Then I speak.

    And speak again.
    --- stderr
    --- 0
    ");
}

#[test]
fn takes_prompts_line_by_line() {
    insta::assert_snapshot!(show(run(&[], "thoughts\n\nrefusal\n/exit\nhello\n")), @"
    Then I speak.

    And speak again.
    I would rather not.
    --- stderr
    · stopped: refusal
    --- 0
    ");
}

#[test]
fn says_why_it_stopped() {
    insta::assert_snapshot!(show(run(&["refusal"], "")), @"
    I would rather not.
    --- stderr
    · stopped: refusal
    --- 1
    ");
    insta::assert_snapshot!(show(run(&["max-tokens"], "")), @"
    This answer is getting too
    --- stderr
    · stopped: max_tokens
    --- 1
    ");
    insta::assert_snapshot!(show(run(&["error"], "")), @"
    This will not end well.
    --- stderr
    error: the agent answered: the mock was asked to fail (-32603)
    --- 3
    ");
    insta::assert_snapshot!(show(run(&["crash"], "")), @"
    Something is about to happen.
    --- stderr
    error: the agent ended with exit status: 7; its stderr ended with:
    mock: crashing as asked
    --- 3
    ");
}

#[test]
fn refuses_what_nobody_allowed() {
    insta::assert_snapshot!(show(run(&["permission"], "")), @"
    I left it as it was.
    --- stderr
    ✗ refused, with nobody to ask (--yes or --allow edit allows it): Change notes.txt
    --- 0
    ");
    insta::assert_snapshot!(show(run(&["permission", "--yes"], "")), @"
    You allowed it. (I only pretended to change anything.)
    --- stderr
    --- 0
    ");
    insta::assert_snapshot!(show(run(&["permission", "--allow", "read,edit"], "")), @"
    You allowed it. (I only pretended to change anything.)
    --- stderr
    --- 0
    ");
    insta::assert_snapshot!(show(run(&["permission", "--allow", "read"], "")), @"
    I left it as it was.
    --- stderr
    ✗ refused, with nobody to ask (--yes or --allow edit allows it): Change notes.txt
    --- 0
    ");
}

#[test]
fn lends_files_and_programs() {
    let calls = |args: &[&str]| -> String {
        let (code, stdout, _) = run(args, "");
        assert_eq!(code, 0);
        let mut calls = String::new();
        for line in stdout.lines() {
            let frame: serde_json::Value = serde_json::from_str(line).unwrap();
            let update = &frame["update"];
            for content in update["content"].as_array().into_iter().flatten() {
                calls.push_str(&format!("{} {}\n", update["toolCallId"], content["content"]["text"]));
            }
            if let Some(status) = update["status"].as_str().filter(|status| *status != "in_progress") {
                calls.push_str(&format!("{} {status}\n", update["toolCallId"]));
            }
        }
        calls
    };
    insta::assert_snapshot!(calls(&["files", "--yes", "--json"]), @r#"
    "call-1" null
    "call-1" completed
    "call-2" "one\ntwo\nthree\n"
    "call-2" completed
    "call-3" "two\n"
    "call-3" completed
    "call-4" "there is no [cwd]/no such file (-32002)"
    "call-4" failed
    "#);
    insta::assert_snapshot!(calls(&["files", "--yes", "--json", "--read-only"]), @r#"
    "call-1" null
    "call-1" null
    "call-1" "the client did not advertise fs.writeTextFile; check it with client().capabilities()"
    "call-1" failed
    "call-2" "there is no [cwd]/duologue-mock.txt (-32002)"
    "call-2" failed
    "call-3" "there is no [cwd]/duologue-mock.txt (-32002)"
    "call-3" failed
    "call-4" "there is no [cwd]/no such file (-32002)"
    "call-4" failed
    "#);
    insta::assert_snapshot!(calls(&["files", "--yes", "--json", "--no-tools"]), @r#"
    "call-1" null
    "call-1" null
    "call-1" "the client did not advertise fs.writeTextFile; check it with client().capabilities()"
    "call-1" failed
    "call-2" "the client did not advertise fs.readTextFile; check it with client().capabilities()"
    "call-2" failed
    "call-3" "the client did not advertise fs.readTextFile; check it with client().capabilities()"
    "call-3" failed
    "call-4" "the client did not advertise fs.readTextFile; check it with client().capabilities()"
    "call-4" failed
    "#);
    insta::assert_snapshot!(calls(&["terminal", "--yes", "--json"]), @r#"
    "call-1" null
    "call-1" null
    "call-1" "echo ended with Some(0) and said \"hello from a terminal\\n\""
    "call-1" null
    "call-1" "echo ended with Some(0) and said \"hello from a terminal\\n\""
    "call-1" "sleep was killed by Some(\"SIGKILL\")"
    "call-1" completed
    "#);
}

#[test]
fn is_readable_by_scripts() {
    let (code, stdout, stderr) = run(&["refusal", "--json"], "");
    let (commands, stdout) = stdout.split_once('\n').unwrap();
    assert!(commands.contains("available_commands_update"), "{commands}");
    insta::assert_snapshot!(show((code, stdout.to_owned(), stderr)), @r#"
    {"sessionId":"session-1","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"I "},"messageId":"message-1"}}
    {"sessionId":"session-1","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"would "},"messageId":"message-1"}}
    {"sessionId":"session-1","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"rather "},"messageId":"message-1"}}
    {"sessionId":"session-1","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"not."},"messageId":"message-1"}}
    {"sessionId":"session-1","outcome":{"stopReason":"refusal"}}
    --- stderr
    --- 1
    "#);
    let (code, stdout, _) = run(&["error", "--json"], "");
    assert_eq!(code, 3);
    insta::assert_snapshot!(stdout.lines().last().unwrap(), @r#"{"sessionId":"session-1","error":{"code":-32603,"data":{"scenario":"error"},"message":"the mock was asked to fail"}}"#);
    // Nothing in it changes a terminal, and all of it can be read.
    let (_, stdout, _) = run(&["hostile", "--json", "--yes"], "");
    assert!(!stdout.contains(|char: char| char.is_control() && char != '\n' || char == '\u{202e}'));
    assert!(stdout.lines().all(|line| serde_json::from_str::<serde_json::Value>(line).is_ok()));
    assert!(stdout.contains(r"\u202edesrever"));
}

#[test]
fn leaves_no_escape_sequence_in_a_pipe() {
    for scenario in ["hostile", "unicode", "unknown", "content", "stderr"] {
        let (_, stdout, stderr) = run(&[scenario, "--yes", "-v"], "");
        for text in [stdout, stderr] {
            let bad = |char: char| char.is_control() && char != '\n' && char != '\t' || char == '\u{202e}';
            assert!(!text.contains(bad), "{scenario}: {text:?}");
        }
    }
}

/// What is recorded can be shown; the end of the process is in it.
#[test]
fn records_what_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("talk.jsonl");
    let (code, _, stderr) = run(&["stderr", "--record", file.to_str().unwrap()], "");
    assert_eq!((code, stderr.as_str()), (0, ""));
    let transcript = std::fs::read_to_string(&file).unwrap();
    for sign in ["session/prompt", "end_turn", "mock: a line on stderr", r#""exit""#] {
        assert!(transcript.contains(sign), "{sign} is not in\n{transcript}");
    }
    // An old one is not lost.
    let (code, _, _) = run(&["hello", "--record", file.to_str().unwrap()], "");
    assert_eq!(code, 4);
}

#[test]
fn shows_stderr_when_asked() {
    insta::assert_snapshot!(show(run(&["stderr"], "")), @"
    I wrote to stderr.
    --- stderr
    --- 0
    ");
    insta::assert_snapshot!(show(run(&["stderr", "-v"], "")), @r"
    I wrote to stderr.
    --- stderr
    stderr: mock: a line on stderr
    stderr: mock: and \u{1b}[31manother\u{1b}[0m
    --- 0
    ");
}

#[test]
fn helps_with_a_login() {
    let mock = ["mock", "login", "--pace", "0"];
    insta::assert_snapshot!(show(with_agent(&["hello"], &mock, "")), @"
    --- stderr
    error: the agent wants a login: authentication required
    try again with:
      --login mock-login  Say please (Always works)
    --- 3
    ");
    insta::assert_snapshot!(show(with_agent(&["hello", "--login", "mock-login"], &mock, "")), @"
    You are logged in.
    --- stderr
    --- 0
    ");
    insta::assert_snapshot!(show(with_agent(&["hello", "--login", "other"], &mock, "")), @"
    --- stderr
    error: the agent answered: there is no such login: it is mock-login (-32602)
    --- 3
    ");
}

#[test]
fn goes_on_with_sessions() {
    insta::assert_snapshot!(show(run(&["--list"], "")), @"
    session-old-1	2026-01-02T03:04:05Z	/	How hot is the sun?
    session-old-2	2026-01-02T03:04:05Z	/	Tidying up
    --- stderr
    --- 0
    ");
    let (code, stdout, _) = run(&["refusal", "--json", "--load", "session-old-1"], "");
    assert_eq!(code, 1);
    assert!(stdout.contains(r#""sessionUpdate":"user_message_chunk""#), "{stdout}");
    insta::assert_snapshot!(show(run(&["refusal", "--resume", "session-old-2"], "")), @"
    I would rather not.
    --- stderr
    · stopped: refusal
    --- 1
    ");
    insta::assert_snapshot!(show(run(&["refusal", "--load", "no-such"], "")), @"
    --- stderr
    error: the agent answered: the mock knows no such session (-32002)
    --- 3
    ");
}

#[test]
fn sets_modes_and_options() {
    let set = ["modes", "--mode", "plan", "--option", "model=huge", "--option", "verbose=on"];
    insta::assert_snapshot!(show(run(&set, "")), @"
    Now the mode is plan.

    Now the mode is code.
    --- stderr
    --- 0
    ");
    insta::assert_snapshot!(show(run(&["modes", "--mode", "chaos"], "")), @"
    --- stderr
    error: the agent answered: there is no such mode (-32602)
    --- 3
    ");
    insta::assert_snapshot!(show(run(&["modes", "--option", "model"], "")), @"
    --- stderr
    error: --option takes NAME=VALUE, not model
    --- 2
    ");
}

#[test]
fn complains_about_what_is_not_there() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_duologue"));
    command.args(["run", "hello", "--", "no-such-agent"]);
    let output = feed(command, "");
    assert_eq!(output.status.code(), Some(3));
    insta::assert_snapshot!(String::from_utf8_lossy(&output.stderr), @"error: cannot start no-such-agent: No such file or directory (os error 2); is it installed and on the PATH?");
    insta::assert_snapshot!(show(run(&["hello", "--cwd", "/no/such/folder"], "")), @"
    --- stderr
    error: /no/such/folder is no folder
    --- 2
    ");
}
