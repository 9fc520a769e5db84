//! `duologue ping`, `query`, `delegate` and `discover`: against the mock, and against agents that are not like it.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

use crate::process::at_once;

fn duologue(args: &[&str], agent: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_duologue"));
    command.args(args).arg("--").args(agent).stdin(Stdio::null());
    command
}

/// With the mock as the agent.
fn mock(args: &[&str]) -> Command {
    duologue(args, &[env!("CARGO_BIN_EXE_duologue"), "mock", "--pace", "0"])
}

fn shown(command: &mut Command) -> String {
    printed(command.output().unwrap())
}

fn printed(Output { status, stdout, stderr }: Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}--- stderr\n{}--- {}", text(&stdout), text(&stderr), status.code().unwrap())
}

/// An agent as a shell script. It advertises the capabilities `hello`, and then runs the commands in `then`.
fn script(args: &[&str], hello: &str, then: &str) -> Command {
    let hello = format!(
        r#"read a; echo '{{"jsonrpc":"2.0","id":1,"result":{{"protocolVersion":1,"agentCapabilities":{{{hello}}}}}}}'"#
    );
    duologue(args, &["sh", "-c", &format!("{hello}; {then}")])
}

const SPEAKS: &str = r#""_meta":{"duologue":{"agentId":"a1","envelope":{"v":[1]}}}"#;
const SESSION: &str = r#"read a; echo '{"jsonrpc":"2.0","id":2,"result":{"sessionId":"s"}}'"#;
const ALL: [&[&str]; 4] = [&["ping"], &["discover"], &["query", "why?"], &["delegate", "do it"]];

/// No agent is needed to try it.
#[test]
fn asks_the_mock_without_an_agent() {
    for args in ALL {
        let mut command = Command::new(env!("CARGO_BIN_EXE_duologue"));
        let output = command.args(args).stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(!output.stdout.is_empty(), "{args:?}");
    }
}

#[test]
fn pings() {
    let line = String::from_utf8(mock(&["ping"]).output().unwrap().stdout).unwrap();
    assert!(line.starts_with("duologue-mock: idle, 0 tasks, up "), "{line}");
    assert!(line.contains(" s, answered in "), "{line}");
    let output = mock(&["ping", "--json"]).output().unwrap();
    let pong: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&pong["kind"], &pong["payload"]["agent_name"]), (&"pong".into(), &"duologue-mock".into()));
}

#[test]
fn discovers() {
    insta::assert_snapshot!(shown(&mut mock(&["discover"])), @"
    name      duologue-mock
    model     none
    domains   family.calendar, work.build
    topics    work.build
    tools     echo
    tasks     2 at once
    --- stderr
    --- 0
    ");
    insta::assert_snapshot!(shown(&mut mock(&["discover", "--json"])), @r#"
    {"kind":"capabilities","payload":{"agent_name":"duologue-mock","domains":["family.calendar","work.build"],"channels":[],"tools":["echo"],"max_concurrent_tasks":2,"model":"none","topics":["work.build"]}}
    --- stderr
    --- 0
    "#);
}

#[test]
fn queries() {
    insta::assert_snapshot!(shown(&mut mock(&["query", "Who is free?", "--domain", "family.calendar.friday"])), @r#"
    You asked about family.calendar.friday: Who is free?
    {"domain":"family.calendar.friday","question":"Who is free?","words":7}
    --- stderr
    --- 0
    "#);
    insta::assert_snapshot!(shown(&mut mock(&["query", "one two three", "--max-tokens", "4"])), @r#"
    You asked: one two
    {"domain":null,"question":"one two three","words":5}
    --- stderr
    · the agent left something out
    --- 0
    "#);
    insta::assert_snapshot!(shown(&mut mock(&["query", "Who?", "--json"])), @r#"
    {"kind":"response","payload":{"data":{"domain":null,"question":"Who?","words":3},"summary":"You asked: Who?","tokens_used":3,"truncated":false}}
    --- stderr
    --- 0
    "#);
}

#[test]
fn tells_a_no_from_silence() {
    insta::assert_snapshot!(shown(&mut mock(&["query", "Who?", "--domain", "cooking"])), @"
    --- stderr
    error: the other agent returned an error: nobody here knows about cooking (unknown_domain)
    --- 1
    ");
    insta::assert_snapshot!(shown(&mut mock(&["query", "not_authorized", "--json"])), @r#"
    {"kind":"error","payload":{"code":"not_authorized","message":"the mock was asked for this error","retryable":false}}
    --- stderr
    error: the other agent returned an error: the mock was asked for this error (not_authorized)
    --- 1
    "#);
    insta::assert_snapshot!(shown(&mut mock(&["query", "slow", "--deadline", "200ms"])), @"
    --- stderr
    error: no response to query within 200ms
    --- 3
    ");
    insta::assert_snapshot!(shown(&mut mock(&["query", "slow", "--deadline", "200ms", "--json"])), @r#"
    {"kind":"error","payload":{"code":"timeout","message":"no response to query within 200ms","retryable":true}}
    --- stderr
    error: no response to query within 200ms
    --- 3
    "#);
    insta::assert_snapshot!(shown(&mut mock(&["query", "slow", "--deadline", "soon"])), @"
    --- stderr
    error: invalid value 'soon' for '--deadline <TIME>': a time is written as 500ms, 30s or 2m

    For more information, try '--help'.
    --- 2
    ");
}

#[test]
fn delegates() {
    insta::assert_snapshot!(shown(&mut mock(&["delegate", "Paint the kitchen"])), @r#"
    Done: Paint the kitchen
    {"context":{},"steps":3,"urgent":false}
    --- stderr
    · accepted, takes about 1ms
    · 1 of 3: looked around
    · 2 of 3: changed something
    · 3 of 3: tidied up
    --- 0
    "#);
    insta::assert_snapshot!(shown(&mut mock(&["delegate", "Paint", "--json", "--urgent", "--context", r#"{"room":"kitchen"}"#])), @r#"
    {"kind":"ack","payload":{"accepted":true,"estimated_ms":0}}
    {"kind":"notify","payload":{"topic":"task.progress","data":"1 of 3: looked around","importance":"medium"}}
    {"kind":"notify","payload":{"topic":"task.progress","data":"2 of 3: changed something","importance":"medium"}}
    {"kind":"notify","payload":{"topic":"task.progress","data":"3 of 3: tidied up","importance":"medium"}}
    {"kind":"result","payload":{"status":"completed","outcome":"Done: Paint","data":{"context":{"room":"kitchen"},"steps":3,"urgent":true},"error":null}}
    --- stderr
    --- 0
    "#);
    insta::assert_snapshot!(shown(&mut mock(&["delegate", "Paint", "--no-report"])), @"
    --- stderr
    · accepted, takes about 1ms
    --- 0
    ");
}

#[test]
fn says_how_a_task_ended() {
    let mut all = String::new();
    for task in ["fail", "partial", "refuse", "overloaded", "internal"] {
        all.push_str(&format!("$ {task}\n{}\n", shown(&mut mock(&["delegate", task]))));
        let output = mock(&["delegate", task, "--json"]).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{task}");
        let text = String::from_utf8(output.stdout).unwrap();
        let last: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
        let kind = if ["fail", "partial"].contains(&task) { "result" } else { "error" };
        assert_eq!(last["kind"], kind, "{task}");
    }
    insta::assert_snapshot!(all, @r#"
    $ fail
    Nothing came of it: fail
    --- stderr
    · accepted, takes about 1ms
    · 1 of 3: looked around
    · failed: the mock was asked to fail (internal)
    --- 1
    $ partial
    Two of three steps are done: partial
    {"steps":2}
    --- stderr
    · accepted, takes about 1ms
    · 1 of 3: looked around
    · 2 of 3: changed something
    · partial
    --- 1
    $ refuse
    --- stderr
    error: the other agent rejected the task: the mock does not do that (not_authorized)
    --- 1
    $ overloaded
    --- stderr
    error: the other agent rejected the task: the mock has enough to do (overloaded)
    --- 1
    $ internal
    --- stderr
    · accepted, takes about 1ms
    error: the other agent returned an error: the mock was asked for this error (internal)
    --- 1
    "#);
}

#[test]
fn cancels_what_takes_too_long() {
    let [cancelled, late, stubborn, quick] = at_once([
        mock(&["delegate", "slow", "--cancel-after", "2s"]),
        mock(&["delegate", "slow", "--deadline", "2s"]),
        mock(&["delegate", "stubborn", "--cancel-after", "2s"]),
        mock(&["delegate", "quick", "--cancel-after", "1h"]),
    ])
    .map(printed);
    insta::assert_snapshot!(cancelled, @"
    --- stderr
    · accepted, takes about 1ms
    · working until it is cancelled
    · cancelling
    error: the other agent returned an error: the mock stopped as it was told (cancelled)
    --- 1
    ");
    insta::assert_snapshot!(late, @"
    --- stderr
    · accepted, takes about 1ms
    · working until it is cancelled
    error: the other agent returned an error: not done within 2s: the mock stopped as it was told (timeout)
    --- 1
    ");
    // A delegation that ignores the cancel request is awaited to its end.
    insta::assert_snapshot!(stubborn, @r#"
    Done: stubborn
    {"context":{},"steps":3,"urgent":false}
    --- stderr
    · accepted, takes about 1ms
    · working, whatever anybody says
    · cancelling
    · the agent does not cancel: the mock ends what it began
    · 1 of 3: looked around
    · 2 of 3: changed something
    · 3 of 3: tidied up
    --- 0
    "#);
    // A delegation that is done before the time of `--cancel-after` is not cancelled.
    assert!(quick.ends_with("--- 0"), "{quick}");
}

#[test]
fn a_time_that_never_comes_is_no_limit() {
    let ever = "500000000000y";
    for args in [
        ["delegate", "quick", "--cancel-after", ever],
        ["delegate", "quick", "--deadline", ever],
        ["query", "Who?", "--deadline", ever],
    ] {
        let output = mock(&args).output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn takes_the_context_from_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("context.json");
    std::fs::write(&file, r#"{"colour":"blue"}"#).unwrap();
    let from = format!("@{}", file.display());
    let output = mock(&["delegate", "Paint", "--context", &from]).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains(r#""context":{"colour":"blue"}"#));
    insta::assert_snapshot!(shown(&mut mock(&["delegate", "Paint", "--context", "[1]"])), @"
    --- stderr
    error: --context is no JSON object: invalid type: sequence, expected an object at line 1 column 0
    --- 2
    ");
    let missing = mock(&["delegate", "Paint", "--context", "@/no/such/file"]).output().unwrap();
    assert_eq!(missing.status.code(), Some(4));
}

/// The agent turns to us while it works, and everything about it is in the recording.
#[test]
fn is_a_colleague_too() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("talk.jsonl");
    let record = ["delegate", "colleague", "--record", file.to_str().unwrap()];
    insta::assert_snapshot!(shown(&mut mock(&record)), @r#"
    Done: colleague
    {"context":{},"steps":3,"urgent":false}
    --- stderr
    · accepted, takes about 1ms
    · work.build: {"build":"green"}
    · You are idle.
    · Your name is "duologue".
    · I sent you news of work.build.
    · You do not answer questions: the other agent returned an error: query is not handled here (unknown_kind).
    · 1 of 3: looked around
    · 2 of 3: changed something
    · 3 of 3: tidied up
    --- 0
    "#);
    let recording = std::fs::read_to_string(&file).unwrap();
    for method in ["ping", "discover", "notify", "query", "delegate", "result"] {
        assert!(recording.contains(&format!("_session/{method}")), "{method} is not in\n{recording}");
    }
}

/// The recorded end of a task is the end of it in a replay, whether it says in which session or not.
#[test]
fn a_task_ends_in_a_replay_too() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("talk.jsonl");
    let file = file.to_str().unwrap();
    mock(&["delegate", "internal", "--record", file]).output().unwrap();
    let recording = std::fs::read_to_string(file).unwrap();
    let told = recording.lines().map(|line| match line.split_once(r#""method":"_session/error""#) {
        Some(_) => {
            let (before, session) = line.split_once(r#""sessionId":"#).unwrap();
            format!("{before}{}\n", session.split_once(',').unwrap().1)
        }
        None => format!("{line}\n"),
    });
    let told: String = told.collect();
    assert_ne!(told, recording);
    std::fs::write(file, told).unwrap();
    let replay = [env!("CARGO_BIN_EXE_duologue"), "replay", file];
    insta::assert_snapshot!(shown(&mut duologue(&["delegate", "internal"], &replay)), @"
    --- stderr
    · accepted, takes about 1ms
    error: the other agent returned an error: the mock was asked for this error (internal)
    --- 1
    ");
}

#[test]
fn leaves_no_escape_sequence() {
    let bad = |char: char| char.is_control() && char != '\n' || char == '\u{202e}';
    for args in [["query", "hostile"], ["delegate", "hostile"]] {
        for json in [false, true] {
            let mut command = mock(&args);
            if json {
                command = mock(&[&args[..], &["--json"]].concat());
            }
            let output = command.output().unwrap();
            for text in [&output.stdout, &output.stderr] {
                let text = String::from_utf8_lossy(text);
                assert!(!text.contains(bad), "{args:?}: {text:?}");
                assert!(!json || text.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()));
            }
            assert!(String::from_utf8_lossy(&output.stdout).contains("desrever"));
        }
    }
}

#[test]
fn an_agent_without_envelopes_is_an_error_that_names_them() {
    for args in ALL {
        insta::allow_duplicates! {
            insta::assert_snapshot!(shown(&mut script(args, "", "read a")), @r#"
            --- stderr
            error: sh does not support messages between agents; nothing was sent
            --- 5
            "#);
        }
    }
    let later = r#""_meta":{"duologue":{"agentId":"a1","envelope":{"v":[2,3]}}}"#;
    insta::assert_snapshot!(shown(&mut script(&["ping", "--json"], later, "read a")), @r#"
    {"kind":"error","payload":{"code":"unknown_kind","message":"sh does not support messages between agents of version 1, but 2, 3; nothing was sent","retryable":false}}
    --- stderr
    error: sh does not support messages between agents of version 1, but 2, 3; nothing was sent
    --- 5
    "#);
}

#[test]
fn a_dead_agent_and_a_rejection_are_reported_differently() {
    insta::assert_snapshot!(shown(&mut mock(&["query", "crash"])), @"
    --- stderr
    error: the agent ended with exit status: 7; its stderr ended with:
      mock: crashing as asked
    --- 3
    ");
    insta::assert_snapshot!(shown(&mut mock(&["delegate", "crash", "--json"])), @r#"
    {"kind":"ack","payload":{"accepted":true,"estimated_ms":0}}
    {"kind":"notify","payload":{"topic":"task.progress","data":"1 of 3: looked around","importance":"medium"}}
    {"kind":"error","payload":{"code":"unreachable","message":"the agent ended with exit status: 7; its stderr ended with:\nmock: crashing as asked","retryable":true}}
    --- stderr
    error: the agent ended with exit status: 7; its stderr ended with:
      mock: crashing as asked
    --- 3
    "#);
    insta::assert_snapshot!(shown(&mut script(&["ping"], SPEAKS, "read a; echo broken >&2; exit 3")), @"
    --- stderr
    error: the agent ended with exit status: 3; its stderr ended with:
      broken
    --- 3
    ");
    insta::assert_snapshot!(shown(&mut duologue(&["ping"], &["/no/such/agent"])), @"
    --- stderr
    error: cannot start /no/such/agent: No such file or directory (os error 2); is it installed and on the PATH?
    --- 3
    ");
}

#[test]
fn an_agent_that_never_answers_is_not_waited_for() {
    let silent = "while read -r a; do :; done";
    let asked = format!("{SESSION}; {silent}");
    let args = |args: &'static [&'static str], agent: &str| script(args, SPEAKS, agent);
    let [ping, discover, query, deadline, delegate] = at_once([
        args(&["ping", "--timeout", "3"], silent),
        args(&["discover", "--timeout", "3", "--json"], silent),
        args(&["query", "Who?", "--timeout", "3"], silent),
        args(&["query", "Who?", "--deadline", "300ms"], &asked),
        args(&["delegate", "Paint", "--timeout", "3"], &asked),
    ])
    .map(printed);
    insta::assert_snapshot!(ping, @"
    --- stderr
    error: no response to ping within 3s
    --- 3
    ");
    insta::assert_snapshot!(discover, @r#"
    {"kind":"error","payload":{"code":"timeout","message":"no response to discover within 3s","retryable":true}}
    --- stderr
    error: no response to discover within 3s
    --- 3
    "#);
    insta::assert_snapshot!(query, @"
    --- stderr
    error: the agent did not answer session/new within 3s (--timeout)
    --- 3
    ");
    insta::assert_snapshot!(deadline, @"
    --- stderr
    error: no response to query within 300ms
    --- 3
    ");
    insta::assert_snapshot!(delegate, @"
    --- stderr
    error: no response to delegate within 3s
    --- 3
    ");
}

/// An answer that is none does not pass for one.
#[test]
fn an_answer_that_does_not_fit_is_an_error() {
    let odd = r#"read a; echo '{"jsonrpc":"2.0","id":2,"result":{"envelope":7}}'; read a"#;
    let output = script(&["ping"], SPEAKS, odd).output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn logs_in_first() {
    let mock = [env!("CARGO_BIN_EXE_duologue"), "mock", "login"];
    insta::assert_snapshot!(shown(&mut duologue(&["query", "Who?"], &mock)), @"
    --- stderr
    error: the agent requires a login: authentication required
      try again with:
        --login mock-login  Say please (Always works)
    --- 1
    ");
    let output = duologue(&["query", "Who?", "--login", "mock-login"], &mock).output().unwrap();
    assert!(output.status.success());
}

#[cfg(unix)]
mod interrupted {
    use super::*;

    fn interrupt(child: &Child) {
        let kill = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
        assert!(kill.success());
    }

    /// Starts it and waits until the task is at work.
    fn at_work(mut command: Command, sign: &str) -> (Child, BufReader<std::process::ChildStderr>) {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        while !line.contains(sign) {
            line.clear();
            assert!(stderr.read_line(&mut line).unwrap() > 0, "it ended too early");
        }
        (child, stderr)
    }

    fn rest(mut stderr: BufReader<std::process::ChildStderr>) -> String {
        let mut text = String::new();
        std::io::Read::read_to_string(&mut stderr, &mut text).unwrap();
        text
    }

    #[test]
    fn a_task_is_cancelled_and_its_end_waited_for() {
        let (mut child, stderr) = at_work(mock(&["delegate", "slow"]), "working");
        interrupt(&child);
        assert_eq!(child.wait().unwrap().code(), Some(130));
        insta::assert_snapshot!(rest(stderr), @"
        · cancelling; Ctrl-C again leaves
        · the other agent returned an error: the mock stopped as it was told (cancelled)
        ");
    }

    #[test]
    fn scripts_get_the_reason_of_a_cancellation() {
        let mut command = mock(&["delegate", "slow", "--json", "-v"]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut kinds = Vec::new();
        while let Some(Ok(line)) = lines.next() {
            let line: Value = serde_json::from_str(&line).unwrap();
            if line["kind"] == "notify" {
                interrupt(&child);
            }
            kinds.push(format!("{} {}", line["kind"], line["payload"]["code"]));
        }
        assert_eq!(child.wait().unwrap().code(), Some(130));
        assert_eq!(kinds[..2], [r#""ack" null"#, r#""notify" null"#]);
        assert!(kinds.contains(&r#""error" "cancelled""#.to_owned()), "{kinds:?}");
    }

    /// It accepts the task and cancels nothing.
    const DEAF: &str = r#"read a; echo '{"jsonrpc":"2.0","id":3,"result":{"envelope":{"v":1,"id":"e1","from":"a1","to":"","ts":1,"kind":"ack","ref":null,"payload":{"accepted":true}}}}'; exec sleep 1000"#;

    #[test]
    fn a_second_one_leaves() {
        let agent = format!("{SESSION}; {DEAF}");
        let (mut child, mut stderr) = at_work(script(&["delegate", "Paint"], SPEAKS, &agent), "accepted");
        interrupt(&child);
        let mut line = String::new();
        stderr.read_line(&mut line).unwrap();
        assert!(line.contains("cancelling; Ctrl-C again leaves"), "{line}");
        interrupt(&child);
        assert_eq!(child.wait().unwrap().code(), Some(130));
    }

    #[test]
    fn a_question_is_left_at_once() {
        let agent = format!("{SESSION}; read a; echo asked >&2; exec sleep 100");
        let (mut child, _stderr) = at_work(script(&["query", "Who?", "-v"], SPEAKS, &agent), "asked");
        interrupt(&child);
        assert_eq!(child.wait().unwrap().code(), Some(130));
    }
}
