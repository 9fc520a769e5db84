//! `duologue run` in pipes.

use std::io::Write as _;
use std::process::{Command, Output, Stdio};

use serde_json::json;

use crate::process::at_once;
use crate::scripted::{agent, end_turn, talkative, update};

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
    --- 1
    ");
    // The worst of the turns counts.
    assert_eq!(run(&[], "refusal\nthoughts\n").0, 1);
    assert_eq!(run(&[], "error\nrefusal\nthoughts\n").0, 1);
    assert_eq!(run(&[], "thoughts\n").0, 0);
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
    error: the agent responded with an error: the mock was asked to fail (-32603)
    --- 1
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
    ✗ refused: no user can answer (--yes or --allow edit allows it): Change notes.txt
    --- 6
    ");
    insta::assert_snapshot!(show(run(&["permission", "--yes"], "")), @r#"
    You allowed it. (I only pretended to change anything.)
    --- stderr
    ✓ allowed by --yes (allow once, "Yes"): Change notes.txt
    --- 0
    "#);
    insta::assert_snapshot!(show(run(&["permission", "--allow", "read,edit"], "")), @r#"
    You allowed it. (I only pretended to change anything.)
    --- stderr
    ✓ allowed by --allow edit (allow once, "Yes"): Change notes.txt
    --- 0
    "#);
    insta::assert_snapshot!(show(run(&["permission", "--allow", "read"], "")), @"
    I left it as it was.
    --- stderr
    ✗ refused: no user can answer (--yes or --allow edit allows it): Change notes.txt
    --- 6
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
    "call-4" "The editor could not read a file: [cwd]/no such file does not exist"
    "call-4" failed
    "#);
    insta::assert_snapshot!(calls(&["files", "--yes", "--json", "--read-only"]), @r#"
    "call-1" null
    "call-1" null
    "call-1" "This needs an editor that writes files for the agent."
    "call-1" failed
    "call-2" "The editor could not read a file: [cwd]/duologue-mock.txt does not exist"
    "call-2" failed
    "call-3" "The editor could not read a file: [cwd]/duologue-mock.txt does not exist"
    "call-3" failed
    "call-4" "The editor could not read a file: [cwd]/no such file does not exist"
    "call-4" failed
    "#);
    insta::assert_snapshot!(calls(&["files", "--yes", "--json", "--no-tools"]), @r#"
    "call-1" null
    "call-1" null
    "call-1" "This needs an editor that writes files for the agent."
    "call-1" failed
    "call-2" "This needs an editor that reads files for the agent."
    "call-2" failed
    "call-3" "This needs an editor that reads files for the agent."
    "call-3" failed
    "call-4" "This needs an editor that reads files for the agent."
    "call-4" failed
    "#);
    insta::assert_snapshot!(calls(&["terminal", "--yes", "--json"]), @r#"
    "call-1" null
    "call-1" null
    "call-1" "echo ended with code 0 and said \"hello from a terminal\\n\""
    "call-1" null
    "call-1" "echo ended with code 0 and said \"hello from a terminal\\n\""
    "call-1" "sleep was killed by SIGKILL"
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
    assert_eq!(code, 1);
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

/// A recording can be shown, and contains the end of the process.
#[test]
fn records_all_messages() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("talk.jsonl");
    let (code, _, stderr) = run(&["stderr", "--record", file.to_str().unwrap()], "");
    assert_eq!((code, stderr.as_str()), (0, ""));
    let transcript = std::fs::read_to_string(&file).unwrap();
    for sign in ["session/prompt", "end_turn", "mock: a line on stderr", r#""exit""#] {
        assert!(transcript.contains(sign), "{sign} is not in\n{transcript}");
    }
    // The order shows that the agent ended because its input did. Lines of stderr are left out: they arrive
    // on another pipe, so their position varies.
    let said = |line: &&str| !line.contains(r#""stderr""#);
    let end = transcript.lines().rev().filter(said).take(3).map(|line| line.split_once(',').unwrap().1);
    let end: Vec<_> = end.collect();
    assert_eq!(end, [r#""exit":{"code":0}}"#, r#""eof":"agent"}"#, r#""eof":"client"}"#]);
    // An old one is not lost.
    let (code, _, _) = run(&["hello", "--record", file.to_str().unwrap()], "");
    assert_eq!(code, 2);
    let (code, _, _) = run(&["hello", "--force", "--record", file.to_str().unwrap()], "");
    assert_eq!(code, 0);
    // An agent that does not start is not recorded.
    let file = folder.path().join("none.jsonl");
    let mut command = Command::new(env!("CARGO_BIN_EXE_duologue"));
    command.args(["run", "hello", "--record"]).arg(&file).args(["--", "/no/such/agent"]);
    assert_eq!(feed(command, "").status.code(), Some(3));
    assert!(!file.exists());
}

#[test]
fn shows_stderr_on_request() {
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
    error: the agent requires a login: authentication required
      try again with:
        --login mock-login  Say please (Always works)
    --- 1
    ");
    insta::assert_snapshot!(show(with_agent(&["hello", "--login", "mock-login"], &mock, "")), @"
    You are logged in.
    --- stderr
    --- 0
    ");
    insta::assert_snapshot!(show(with_agent(&["hello", "--login", "other"], &mock, "")), @"
    --- stderr
    error: the agent has no login method other for requests; it has mock-login
    --- 1
    ");
}

/// Text before a message that the user sends during the turn, perhaps from another client, is not lost in a pipe.
#[cfg(unix)]
#[test]
fn a_message_of_the_user_during_a_turn_hides_no_text() {
    let folder = tempfile::tempdir().unwrap();
    let chunk = |kind: &str, text: &str| {
        update(json!({"sessionUpdate": kind, "content": {"type": "text", "text": text}}))
    };
    let lines = [
        chunk("agent_message_chunk", "before"),
        chunk("user_message_chunk", "faster"),
        chunk("agent_message_chunk", "after"),
        end_turn(),
    ];
    let mut command = Command::new(env!("CARGO_BIN_EXE_duologue"));
    command.args(["run", "hello", "--", "sh", "-c", &agent(folder.path(), &lines)]);
    let output = feed(command, "");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "before\n\nafter\n");
    assert_eq!(output.status.code(), Some(0));
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
    error: the agent responded with an error: the mock knows no such session (-32002)
    --- 1
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
    error: the session has no mode chaos; it has ask, plan, code
    --- 1
    ");
    let (code, _, stderr) = run(&["modes", "--option", "model"], "");
    assert!(code == 2 && stderr.contains("it takes NAME=VALUE"), "{code} {stderr}");
    insta::assert_snapshot!(show(run(&["modes", "--option", "verbose=enabled"], "")), @"
    --- stderr
    error: the option verbose is on or off, not enabled
    --- 2
    ");
    insta::assert_snapshot!(show(run(&["modes", "--option", "model=tiny"], "")), @"
    --- stderr
    error: the config option model has no value tiny; it has small, large, huge
    --- 1
    ");
    insta::assert_snapshot!(show(run(&["modes", "--option", "colour=red"], "")), @"
    --- stderr
    error: the session has no config option colour; it has mode, model, effort, verbose
    --- 1
    ");
}

/// A listed mode, option or value can be set.
#[test]
fn lists_modes_and_options() {
    insta::assert_snapshot!(show(run(&["--settings", "--mode", "plan"], "")), @"
    mode	ask	Ask	Asks first
    mode	plan*	Plan	Only plans
    mode	code	Code	Just does it
    option	mode=ask, plan*, code	Mode
    option	model=small*, large, huge	Model	Which model pretends to think
    option	effort=low*, high	Effort
    option	verbose=on, off*	Verbose
    --- stderr
    --- 0
    ");
    let (code, stdout, _) = run(&["--settings", "--json"], "");
    assert_eq!(code, 0);
    let line: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(line["sessionId"], "session-1");
    assert_eq!(line["settings"]["modes"]["currentModeId"], "ask");
    assert!(line["settings"]["configOptions"].as_array().is_some_and(|options| !options.is_empty()));
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

/// An agent, as a shell script that has answered `initialize`.
fn script(args: &[&str], then: &str) -> Command {
    let script =
        format!(r#"read a; echo '{{"jsonrpc":"2.0","id":1,"result":{{"protocolVersion":1}}}}'; {then}"#);
    let mut command = Command::new(env!("CARGO_BIN_EXE_duologue"));
    command.arg("run").args(args).args(["--", "sh", "-c", &script]);
    command
}

fn shown(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    show((output.status.code().unwrap(), text(&output.stdout), text(&output.stderr)))
}

const SESSION: &str = r#"read a; echo '{"jsonrpc":"2.0","id":2,"result":{"sessionId":"s"}}'; read a;"#;
const END: &str = r#"echo '{"jsonrpc":"2.0","id":3,"result":{"stopReason":"end_turn"}}'; read a"#;

#[test]
fn does_not_wait_for_ever_for_a_start() {
    let mut silent = Command::new(env!("CARGO_BIN_EXE_duologue"));
    let agent = "echo no key found >&2; while read -r a; do :; done";
    silent.args(["run", "hi", "--timeout", "2", "--", "sh", "-c", agent]);
    let late =
        script(&["hi", "--timeout", "2", "--json"], "echo no network >&2; while read -r a; do :; done");
    let [silent, late] = at_once([silent, late]);
    insta::assert_snapshot!(shown(&silent), @"
    --- stderr
    error: the agent did not respond to initialize within 2s; its stderr ended with:
      no key found
    --- 3
    ");
    insta::assert_snapshot!(shown(&late), @r#"
    {"sessionId":null,"error":{"message":"the agent did not answer session/new within 2s (--timeout); its stderr ended with:\nno network"}}
    --- stderr
    error: the agent did not answer session/new within 2s (--timeout); its stderr ended with:
      no network
    --- 3
    "#);
}

#[test]
fn does_not_wait_for_ever_for_an_answer_before_the_first_turn() {
    let hello = r#"echo '{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":1,"agentCapabilities":{"loadSession":true,"sessionCapabilities":{"list":{}}}}}'"#;
    let session = r#"read a; echo '{"jsonrpc":"2.0","id":2,"result":{"sessionId":"s","modes":{"currentModeId":"a","availableModes":[{"id":"a","name":"A"},{"id":"b","name":"B"}]},"configOptions":[{"id":"o","name":"O","type":"boolean","currentValue":false}]}}'; "#;
    let cases = [
        (&["--list"][..], "", "session/list"),
        (&["--load", "s", "hi"], "", "session/load"),
        (&["--mode", "b", "hi"], session, "session/set_mode"),
        (&["--option", "o=on", "hi"], session, "session/set_config_option"),
    ];
    let outputs = at_once(cases.map(|(args, answers, _)| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_duologue"));
        let agent = format!("read a; {hello}; {answers}read a; while read -r a; do :; done");
        command.args(["run", "--timeout", "3"]).args(args).args(["--", "sh", "-c", &agent]);
        command
    }));
    for ((args, _, method), output) in cases.into_iter().zip(outputs) {
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        let expected = format!("error: the agent did not answer {method} within 3s (--timeout)\n");
        assert_eq!((output.status.code(), error), (Some(3), expected), "{args:?}");
    }
}

#[test]
fn an_agent_that_was_forgotten_is_not_the_mock() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_duologue"));
    command.args(["run", "hi", "--"]);
    insta::assert_snapshot!(shown(&feed(command, "")), @"
    --- stderr
    error: no agent follows `--`
    --- 2
    ");
}

#[test]
fn refuses_what_is_no_text() {
    for args in [&["-"][..], &[]] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("prompt");
        std::fs::write(&file, b"caf\xe9\n").unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_duologue"));
        command.arg("run").args(args).stdin(std::fs::File::open(file).unwrap());
        let output = command.output().unwrap();
        insta::allow_duplicates! {
            insta::assert_snapshot!(shown(&output), @"
            --- stderr
            error: standard input: not UTF-8, so no prompt
            --- 4
            ");
        }
    }
}

/// With `-v`, lines of the agent that are not protocol messages are shown.
#[test]
fn tells_of_noise() {
    let noisy = format!("{SESSION} echo 'a stray line'; {END}");
    insta::assert_snapshot!(shown(&feed(script(&["hi", "-v"], &noisy), "")), @"
    --- stderr
    stdout: 1 line beside the protocol
    stdout: a stray line
    --- 0
    ");
}

/// Much of stderr is shown in time, and all of it is accounted for.
#[test]
fn a_flood_of_stderr_is_shown_or_counted() {
    let flood = format!("{SESSION} seq -w 1 300000 >&2; {END}");
    let output = feed(script(&["hi", "-v"], &flood), "");
    assert!(output.status.success());
    let stderr = String::from_utf8_lossy(&output.stderr);
    // The numbers that are shown, and the counts since the last one.
    let (mut shown, mut last, mut left_out, mut skipped) = (0, 0_u64, 0, 0);
    for line in stderr.lines().filter_map(|line| line.strip_prefix("stderr: ")).chain(["300001"]) {
        let count = |text: &str| text.split(' ').next().unwrap().parse::<u64>().unwrap();
        if let Some(counted) = line.strip_prefix("… ") {
            left_out += count(counted);
        } else if let Some(counted) = line.strip_prefix('[') {
            skipped += count(counted);
        } else if let Some(number) = line.parse::<u64>().ok().filter(|_| line.len() == 6) {
            // A shorter number is a piece of a line at an end of a gap.
            let missing = number - last - 1;
            assert!(missing == 0 || left_out + skipped > 0, "silence between {last} and {number}");
            assert!(left_out <= missing, "{left_out} left out between {last} and {number}");
            (shown, last, left_out, skipped) = (shown + 1, number, 0, 0);
        }
    }
    assert!(shown > 100, "{shown}");
}

#[test]
fn completions_are_cut_short_without_a_fuss() {
    let mut command = Command::new("sh");
    command.args(["-c", "\"$0\" completions bash | true; exit 0", env!("CARGO_BIN_EXE_duologue")]);
    let output = feed(command, "");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    let mut command = Command::new(env!("CARGO_BIN_EXE_duologue"));
    command.args(["completions", "zsh"]);
    assert!(String::from_utf8_lossy(&feed(command, "").stdout).starts_with("#compdef duologue"));
}

/// A signal ends it also while it is stuck in a write that nobody takes, and the agent with it.
#[cfg(unix)]
#[test]
fn a_signal_ends_it_when_nobody_reads() {
    use std::time::{Duration, Instant};

    let text = "x".repeat(2000);
    // The process id arrives on another pipe, stderr. The pause lets it through before stdout is full.
    let flood = format!(
        r#"{SESSION} sleep 0.5; while :; do echo '{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":"s","update":{{"sessionUpdate":"agent_message_chunk","content":{{"type":"text","text":"{text}"}}}}}}}}'; done"#
    );
    // And one that is stuck, ignores the end of its input, and has to be ended.
    let deaf = format!("{SESSION} trap '' TERM; while :; do sleep 0.1; done");
    let end_by = |signal: &str, code: i32, agent: &str, twice: bool| {
        let agent = format!("echo $$ >&2; {agent}");
        let mut command = script(&["--json", "-v", "hi"], &agent);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stderr = std::io::BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        std::io::BufRead::read_line(&mut stderr, &mut line).unwrap();
        let agent = line.trim().trim_start_matches("stderr: ").to_owned();
        let stdout = child.stdout.as_ref().unwrap();
        let start = Instant::now();
        let mut unread = (0, start);
        // Until the pipe is full, which nobody takes from; the other agent says next to nothing.
        while unread.1.elapsed() < Duration::from_millis(700) && start.elapsed() < Duration::from_secs(20) {
            let now = rustix::io::ioctl_fionread(stdout).unwrap();
            if now != unread.0 {
                unread = (now, Instant::now());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let kill = |signal: &str, id: &str| {
            Command::new("kill").args([&format!("-{signal}"), id]).stderr(Stdio::null()).status().unwrap()
        };
        kill(signal, &child.id().to_string());
        if twice {
            std::thread::sleep(Duration::from_millis(200));
            kill(signal, &child.id().to_string());
        }
        let status = child.wait().unwrap();
        assert_eq!(status.code(), Some(code), "{signal}");
        while kill("0", &agent).success() {
            assert!(start.elapsed() < Duration::from_secs(60), "{signal} left the agent running");
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    let end_by = &end_by;
    std::thread::scope(|scope| {
        for (signal, code) in [("INT", 130), ("TERM", 143), ("HUP", 129)] {
            for (agent, twice) in [(&flood, false), (&deaf, signal == "INT")] {
                scope.spawn(move || end_by(signal, code, agent, twice));
            }
        }
    });
}

/// A message outside of a turn is neither lost nor part of the next answer.
#[test]
fn a_message_between_turns_is_a_line_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    for (args, input, expected) in [
        (&[][..], "one\ntwo\n", "answer 3\nstray 3\nanswer 4\nstray 4\n"),
        (&["one"][..], "", "answer 3\nstray 3\n"),
    ] {
        for _ in 0..3 {
            let mut command = Command::new(env!("CARGO_BIN_EXE_duologue"));
            command.arg("run").args(args).args(["--", "sh", "-c", &talkative(folder.path())]);
            let output = feed(command, input);
            assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
        }
    }
}

/// An agent that sends updates without a pause between two turns does not delay a prompt for long.
#[test]
fn updates_without_a_pause_do_not_hold_a_prompt_back() {
    let agent = r#"read -r a; echo '{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":1}}'
        read -r a; echo '{"jsonrpc":"2.0","id":2,"result":{"sessionId":"s"}}'
        for id in 3 4; do
            yes '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_thought_chunk","content":{"type":"text","text":"."}}}}' &
            flood=$!; (exec >/dev/null 2>&1; sleep 20; : >waited; kill $flood) & watch=$!
            read -r a; kill $watch $flood; wait
            echo; echo '{"jsonrpc":"2.0","id":'$id',"result":{"stopReason":"end_turn"}}'
        done; read -r a"#;
    for (args, input) in [(&["one"][..], ""), (&[][..], "one\ntwo\n")] {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_duologue"));
        command.arg("run").args(args).args(["--", "sh", "-c", agent]).current_dir(folder.path());
        let output = feed(command, input);
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(!folder.path().join("waited").exists(), "{args:?}");
    }
}

/// A turn of any length is printed whole, and kept only up to a limit.
#[test]
fn a_long_turn_is_printed_in_parts() {
    let agent = r#"read a; echo '{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":1}}'
        read a; echo '{"jsonrpc":"2.0","id":2,"result":{"sessionId":"s"}}'
        read a; text=$(head -c 1048575 /dev/zero | tr '\0' x)
        for i in $(seq 70); do echo '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"'"$text"'y"}}}}'; done
        echo '{"jsonrpc":"2.0","id":3,"result":{"stopReason":"end_turn"}}'; read a"#;
    let mut command = Command::new(env!("CARGO_BIN_EXE_duologue"));
    command.args(["run", "go", "--", "sh", "-c", agent]);
    let output = feed(command, "");
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(output.stdout.len(), (70 << 20) + 1);
    assert_eq!(output.stdout.iter().filter(|byte| **byte == b'y').count(), 70);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(stderr, "· more than 64 MiB in a turn: its text is printed before it is final\n");
}

/// A login in a terminal is described and not waited for, in the protocol's form and in the older one.
#[test]
fn a_login_in_a_terminal_is_described() {
    let agent = r#"read a; echo '{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":1,"authMethods":[
        {"id":"old","name":"Old","_meta":{"terminal-auth":{"command":"my-agent","args":["login","a b"],"env":{"A":"1"}}}},
        {"type":"terminal","id":"new","name":"New","args":["--login"]}]}}' | tr -d '\n'; echo
        read a; sleep 60"#;
    for (method, expected) in [("old", "A=1 my-agent login 'a b'\n"), ("new", " --login\n")] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_duologue"));
        command.args(["run", "--auth", method, "go", "--", "sh", "-c", agent]);
        let output = feed(command, "");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert!(stderr.contains("logs in in a terminal; run this first"), "{stderr}");
        assert!(stderr.ends_with(expected), "{stderr}");
    }
}

#[test]
fn a_program_without_the_separator_is_not_a_prompt() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("my-agent"), "").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_duologue"));
    command.args(["run", "./my-agent"]).current_dir(folder.path());
    let output = feed(command, "");
    assert_eq!(output.status.code(), Some(2));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("start an agent with `duologue run -- ./my-agent`"), "{stderr}");
}

#[test]
fn a_misspelt_option_does_not_become_the_agent() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_duologue"));
    command.args(["run", "--jsn", "hello"]);
    let output = feed(command, "");
    assert_eq!(output.status.code(), Some(2));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("'--json'") && !stderr.contains("-- --jsn"), "{stderr}");
}

#[test]
fn every_help_has_examples() {
    let mut commands = 0;
    let help = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_duologue"));
        command.args(args).arg("--help");
        String::from_utf8(feed(command, "").stdout).unwrap()
    };
    for group in [&[][..], &["peer"]] {
        let all = help(group);
        let (_, listed) = all.split_once("Commands:\n").unwrap();
        for line in listed.lines().take_while(|line| !line.is_empty()) {
            let Some(name) = line.strip_prefix("  ").and_then(|line| line.split(' ').next()) else {
                continue;
            };
            if name.is_empty() || name == "help" {
                continue;
            }
            assert!(help(&[group, &[name]].concat()).contains("\nExamples:\n"), "{name}");
            commands += 1;
        }
    }
    assert!(commands >= 20, "{commands}");
}

/// The mock chooses version 2, in which the turn ends with a state.
#[test]
fn speaks_protocol_version_2() {
    insta::assert_snapshot!(show(run(&["--protocol", "2", "hello"], "")), @"
    Hello! I am the mock agent: no model, the same words every time. Prompt me with `tools`, `plan` or `permission`, or with `help` for all I can do.
    --- stderr
    --- 0
    ");
    // Messages are cleared, and a stop reason arrives.
    insta::assert_snapshot!(show(run(&["--protocol", "2"], "thoughts\nrefusal\n")), @"
    Then I speak.

    And speak again.
    I would rather not.
    --- stderr
    · stopped: refusal
    --- 1
    ");
    let (code, stdout, _) = run(&["--protocol", "2", "--json", "--yes", "permission"], "");
    assert_eq!(code, 0, "{stdout}");
    assert!(stdout.contains("\"sessionUpdate\":\"state_update\",\"state\":\"requires_action\""), "{stdout}");
}

/// A turn of version 2 by the command and the mock keeps the rules of the draft.
#[test]
fn a_recorded_turn_of_version_2_is_valid() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("turn.jsonl");
    let file = file.to_str().unwrap();
    for prompt in ["permission", "clear"] {
        let record = ["--protocol", "2", "--yes", "--record", file, "--force", prompt];
        let (code, _, stderr) = run(&record, "");
        assert_eq!(code, 0, "{stderr}");
        let mut validate = Command::new(env!("CARGO_BIN_EXE_duologue"));
        validate.args(["validate", file]);
        let output = feed(validate, "");
        let reports = String::from_utf8(output.stdout).unwrap();
        let problems: Vec<_> = reports.lines().filter(|line| !line.contains("\"problems\":[]")).collect();
        assert!(output.status.success(), "{problems:#?}");
        let mut shown = Command::new(env!("CARGO_BIN_EXE_duologue"));
        shown.args(["show", file]);
        let shown = String::from_utf8(feed(shown, "").stdout).unwrap();
        assert!(shown.contains("state idle end_turn"), "{shown}");
    }
}
