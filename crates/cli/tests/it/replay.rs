//! `duologue replay`, driven by raw lines and against real agents.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use duologue_transcript::{Record, RecordEvent, Transcript};
use insta::assert_snapshot;

use crate::process::{self, DUOLOGUE};

const HEADER: &str = r#"{"format":"acp-transcript","version":1,"recorder":"by hand","protocolVersion":1,"started":"2026-01-01T00:00:00Z"}"#;

/// A recording: `> line` is the client's, `< line` the agent's, any other a record as it is.
fn write(path: &Path, script: &str) {
    let mut text = format!("{HEADER}\n");
    for (at, line) in script.lines().map(str::trim).filter(|line| !line.is_empty()).enumerate() {
        let said = |from, line: &str| match line.starts_with('{') {
            true => format!(r#"{{"at":{at},"from":"{from}","frame":{line}}}"#),
            false => format!(r#"{{"at":{at},"from":"{from}","text":"{line}"}}"#),
        };
        let record = match line.split_once(' ') {
            Some((">", line)) => said("client", line),
            Some(("<", line)) => said("agent", line),
            _ => line.to_owned(),
        };
        text.push_str(&record);
        text.push('\n');
    }
    fs::write(path, text).expect("a file");
}

/// Runs the command in a folder, with these lines as its input.
fn run(folder: &Path, args: &[&str], input: &str) -> Output {
    let lines: String = input
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .map(|line| format!("{line}\n"))
        .collect();
    process::run(Command::new(DUOLOGUE).args(args).current_dir(folder).env("NO_COLOR", "1"), lines)
}

/// All that one sees of a run.
fn shown(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}---\n{}exit {:?}", text(&output.stdout), text(&output.stderr), output.status.code())
}

fn replay(script: &str, options: &[&str], input: &str) -> Output {
    let folder = tempfile::tempdir().expect("a folder");
    write(&folder.path().join("a.jsonl"), script);
    run(folder.path(), &[&["replay", "a.jsonl"], options].concat(), input)
}

const TURN: &str = r#"
    < npm WARN
    {"at":1,"stderr":"loading \u001b[2J"}
    > {"jsonrpc":"2.0","id":0,"method":"session/new","params":{"cwd":"/home/me/p","mcpServers":[]}}
    < {"jsonrpc":"2.0","id":0,"result":{"sessionId":"s"}}
    > {"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"sessionId":"s","prompt":[{"type":"text","text":"hello"}]}}
    < { "jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","path":"/home/me/p/a"}}
    < {"jsonrpc":"2.0","id":1,"result":{"stopReason":"end_turn"}}
    {"at":9,"eof":"client"}
    {"at":9,"exit":{"code":7}}
"#;

const NEW: &str =
    r#"{"jsonrpc":"2.0","id":"a","method":"session/new","params":{"cwd":"/x","mcpServers":[]}}"#;

fn prompt(text: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":"b","method":"session/prompt","params":{{"sessionId":"s","prompt":[{{"type":"text","text":"{text}"}}]}}}}"#
    )
}

#[test]
fn a_recording_is_an_agent() {
    let output = replay(TURN, &[], &format!("{NEW}\n{}", prompt("hello")));
    assert_snapshot!(shown(&output), @r#"
    npm WARN
    {"jsonrpc":"2.0","id":"a","result":{"sessionId":"s"}}
    { "jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","path":"/x/a"}}
    {"jsonrpc":"2.0","id":"b","result":{"stopReason":"end_turn"}}
    ---
    loading \u{1b}[2J
    exit Some(0)
    "#);
}

#[test]
fn another_prompt_is_an_error() {
    let output = replay(TURN, &["--no-stderr"], &format!("{NEW}\n{}", prompt("bye \\u001b[2J")));
    assert_snapshot!(shown(&output), @r#"
    npm WARN
    {"jsonrpc":"2.0","id":"a","result":{"sessionId":"s"}}
    {"jsonrpc":"2.0","id":"b","error":{"code":-32602,"message":"not in the recording: session/prompt; the nearest, the session/prompt in s of line 6, differs at `prompt.0.text`","data":{"difference":"--- recorded\n+++ live\n@@ -2,5 +2,5 @@\n   \"prompt\": [\n     {\n-      \"text\": \"hello\",\n+      \"text\": \"bye \\u001b[2J\",\n       \"type\": \"text\"\n     }\n"}}}
    ---
    difference: not in the recording: session/prompt; the nearest, the session/prompt in s of line 6, differs at `prompt.0.text`
        --- recorded
        +++ live
        @@ -2,5 +2,5 @@
           "prompt": [
             {
        -      "text": "hello",
        +      "text": "bye \u001b[2J",
               "type": "text"
             }
    exit Some(1)
    "#);
}

#[test]
fn ignored_values_may_differ() {
    let output =
        replay(TURN, &["--no-stderr", "--ignore", "prompt.*.text"], &format!("{NEW}\n{}", prompt("bye")));
    assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
    let options = ["--no-stderr", "--ignore", "promt.*.text", "--ignore", "$..text", "--ignore", "cwd"];
    let complaint = shown(&replay(TURN, &options, &format!("{NEW}\n{}", prompt("hello"))));
    assert_eq!(complaint.matches("nothing in the recording is at").count(), 1, "{complaint}");
    assert!(complaint.contains("is at promt.*.text\n"), "{complaint}");
}

#[test]
fn an_early_end_matters_on_request() {
    assert_eq!(replay(TURN, &[], NEW).status.code(), Some(0));
    assert_snapshot!(shown(&replay(TURN, &["--strict", "--no-stderr"], NEW)), @r#"
    npm WARN
    {"jsonrpc":"2.0","id":"a","result":{"sessionId":"s"}}
    ---
    difference: never came: the session/prompt in s of line 6
    exit Some(1)
    "#);
}

#[test]
fn an_agent_that_died_dies_with_its_code() {
    let died = TURN.replace(r#"{"at":9,"eof":"client"}"#, "");
    let output = replay(&died, &["--no-stderr"], &format!("{NEW}\n{}", prompt("hello")));
    assert_eq!(output.status.code(), Some(7), "{}", shown(&output));
    let killed = died.replace(r#""code":7"#, r#""signal":9"#);
    let output = replay(&killed, &["--no-stderr"], &format!("{NEW}\n{}", prompt("hello")));
    assert_eq!(output.status.code(), Some(137), "{}", shown(&output));
}

#[test]
fn wrong_options_are_reported() {
    assert_snapshot!(shown(&replay(TURN, &["--ignore", "$["], "")), @r"
    ---
    error: $[ is not a path: at position 1, parser error
    exit Some(2)
    ");
    assert_eq!(replay(TURN, &["--timing", "quick"], "").status.code(), Some(2));
    assert_eq!(replay(TURN, &["--timing", "0.5x"], "").status.code(), Some(0));
}

/// Everything the mock does, as a client would ask for it; the answers come from a record of it.
fn recorded_mock(folder: &Path) {
    let input = r#"
        {"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1}}
        {"jsonrpc":"2.0","id":1,"method":"session/new","params":{"cwd":"/","mcpServers":[]}}
        {"jsonrpc":"2.0","id":2,"method":"session/list","params":{}}
    "#;
    let duologue = DUOLOGUE;
    let output = run(folder, &["record", "-o", "mock.jsonl", "--", duologue, "mock", "--pace", "0"], input);
    assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
    let replayed = run(folder, &["replay", "mock.jsonl"], input);
    assert_eq!(replayed.status.code(), Some(0), "{}", shown(&replayed));
    let lines = |output: &Output| {
        let mut lines: Vec<_> = output.stdout.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
        // Which of two answers comes first is up to the agent's threads.
        lines.sort();
        lines
    };
    assert_eq!(lines(&replayed), lines(&output));
}

#[test]
fn an_agent_is_compared_with_what_it_did() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    recorded_mock(folder);
    let duologue = DUOLOGUE;
    let mock = ["--", duologue, "mock", "--pace", "0"];
    let output = run(folder, &[&["replay", "mock.jsonl", "--save", "again.jsonl"][..], &mock].concat(), "");
    assert_eq!(shown(&output), "---\nno difference in 4 lines of the agent\nexit Some(0)");
    let recorded = Transcript::load(folder.join("mock.jsonl")).expect("a transcript");
    let again = Transcript::load(folder.join("again.jsonl")).expect("a transcript");
    assert_eq!(again.redacted().render(), recorded.redacted().render());

    // Another agent: the first recording, which is an agent too, with another name.
    let text = fs::read_to_string(folder.join("mock.jsonl")).expect("text");
    fs::write(folder.join("other.jsonl"), text.replace("duologue-mock", "another-mock")).expect("a file");
    let other = ["--", duologue, "replay", "other.jsonl"];
    let output = run(folder, &[&["replay", "mock.jsonl"][..], &other].concat(), "");
    let text = shown(&output);
    assert!(text.contains("duologue-mock") && text.contains("another-mock"), "{text}");
    assert_eq!(output.status.code(), Some(1), "{text}");
}

/// A conversation whose token counts are these.
fn tokens(used: u32) -> String {
    format!(
        r#"
        > {{"jsonrpc":"2.0","id":0,"method":"session/new","params":{{"cwd":"/","mcpServers":[]}}}}
        < {{"jsonrpc":"2.0","id":0,"result":{{"sessionId":"s"}}}}
        > {{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{{"sessionId":"s","prompt":[{{"type":"text","text":"hello"}}]}}}}
        < {{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":"s","update":{{"sessionUpdate":"usage_update","used":{used},"size":90000}}}}}}
        < {{"jsonrpc":"2.0","id":1,"result":{{"stopReason":"end_turn","usage":{{"totalTokens":{used},"inputTokens":1,"outputTokens":2}}}}}}
        "#
    )
}

#[test]
fn ignored_values_may_differ_in_the_conversations_too() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    write(&folder.join("a.jsonl"), &tokens(700));
    write(&folder.join("b.jsonl"), &tokens(701));
    let agent = ["--", DUOLOGUE, "replay", "b.jsonl"];
    let ignored = ["--ignore", "update.used", "--ignore", "result.usage.totalTokens"];
    let output = run(folder, &[&["replay", "a.jsonl"], &ignored[..], &agent].concat(), "");
    assert_eq!(shown(&output), "---\nno difference in 3 lines of the agent\nexit Some(0)");
    // The rest is still compared.
    let output = run(folder, &[&["replay", "a.jsonl"], &ignored[2..], &agent].concat(), "");
    assert!(shown(&output).contains("701") && output.status.code() == Some(1), "{}", shown(&output));

    let output = run(folder, &[&["diff", "a.jsonl", "b.jsonl"], &ignored[..]].concat(), "");
    assert_eq!(shown(&output), "---\nexit Some(0)");
    let output = run(folder, &[&["diff", "--fold", "a.jsonl", "b.jsonl"], &ignored[..]].concat(), "");
    assert_eq!(shown(&output), "---\nexit Some(0)");
    let output = run(folder, &[&["diff", "a.jsonl", "b.jsonl"], &ignored[2..]].concat(), "");
    assert!(shown(&output).contains("701") && output.status.code() == Some(1), "{}", shown(&output));
    let output = run(folder, &["diff", "a.jsonl", "a.jsonl", "--ignore", "update.usde"], "");
    assert!(shown(&output).contains("nothing in the recording is at update.usde"), "{}", shown(&output));
    assert_eq!(run(folder, &["diff", "a.jsonl", "a.jsonl", "--ignore", "$["], "").status.code(), Some(2));
}

#[test]
fn an_agent_that_is_not_there_is_no_difference() {
    let output = replay(TURN, &["--", "/no/such/agent"], "");
    assert_eq!(output.status.code(), Some(3), "{}", shown(&output));
}

#[test]
fn errors_of_an_agent_are_saved() {
    let folder = tempfile::tempdir().expect("a folder");
    write(&folder.path().join("turn.jsonl"), TURN);
    let duologue = DUOLOGUE;
    let args = ["replay", "turn.jsonl", "--save", "again.jsonl", "--", duologue, "replay", "turn.jsonl"];
    let output = run(folder.path(), &args, "");
    assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
    let again = Transcript::load(folder.path().join("again.jsonl")).expect("a transcript");
    let complains =
        |record: &Record| matches!(&record.event, RecordEvent::Stderr(text) if text.contains("loading"));
    assert!(again.records().iter().any(complains), "{}", again.render());
}

#[test]
fn a_cut_recording_is_an_agent_that_dies() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("turn.jsonl");
    write(&path, TURN);
    let text = fs::read_to_string(&path).expect("text");
    let end = text.find("stopReason").expect("the answer");
    fs::write(&path, text.get(..end).expect("its beginning")).expect("a file");
    let output =
        run(folder.path(), &["replay", "turn.jsonl", "--no-stderr"], &format!("{NEW}\n{}", prompt("hello")));
    let text = shown(&output);
    assert!(text.contains(r#""id":"b","error""#), "{text}");
    assert!(text.contains("difference: the recording ends or has a gap"), "{text}");
    assert_eq!(output.status.code(), Some(1), "{text}");
}

/// The readable records are replayed without a difference, but one line of the recording is damaged.
#[test]
fn a_damaged_recording_is_no_success() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("turn.jsonl");
    write(&path, TURN);
    let mut text = fs::read_to_string(&path).expect("text");
    text.push_str("{\"at\":10,\n{\"at\":11,\"stderr\":\"late\"}\n");
    fs::write(&path, text).expect("a file");
    let said = format!("{NEW}\n{}", prompt("hello"));
    let output = run(folder.path(), &["replay", "turn.jsonl", "--no-stderr"], &said);
    let text = shown(&output);
    assert!(text.contains("is not a record") && !text.contains("difference"), "{text}");
    assert_eq!(output.status.code(), Some(4), "{text}");
}

#[test]
fn an_agent_that_floods_is_no_conversation() {
    let folder = tempfile::tempdir().expect("a folder");
    write(&folder.path().join("turn.jsonl"), TURN);
    let output = run(folder.path(), &["replay", "turn.jsonl", "--", "yes"], "");
    let said = shown(&output);
    assert!(said.contains("error: the agent has sent more than 64 MiB"), "{said}");
    assert_eq!(output.status.code(), Some(3));
}

#[test]
fn a_file_to_save_to_is_opened_before_the_first_message() {
    let folder = tempfile::tempdir().expect("a folder");
    write(&folder.path().join("turn.jsonl"), TURN);
    let ran = folder.path().join("ran");
    let replay = |file: &str| {
        let agent = ["--save", file, "--", "touch", ran.to_str().expect("UTF-8")];
        run(folder.path(), &[&["replay", "turn.jsonl"][..], &agent].concat(), "")
    };
    for (file, code, complaint) in
        [("turn.jsonl", 2, "turn.jsonl exists; --force replaces it"), ("no/such.jsonl", 4, "no/such.jsonl")]
    {
        let output = replay(file);
        assert!(shown(&output).contains(complaint), "{}", shown(&output));
        assert_eq!(output.status.code(), Some(code));
    }
    assert!(!ran.exists(), "no agent was started");
}

/// A line of stderr is shown in parts, and a part of a key is not found.
#[cfg(unix)]
#[test]
fn a_key_in_a_long_line_of_stderr_is_not_saved() {
    let folder = tempfile::tempdir().expect("a folder");
    write(&folder.path().join("turn.jsonl"), TURN);
    // A conversation in which the agent sends nothing is not saved.
    let script = format!("echo {{}}; printf '%065530d {KEY} behind\\nlast' 0 >&2");
    run(folder.path(), &["replay", "turn.jsonl", "--save", "again.jsonl", "--", "sh", "-c", &script], "");
    let saved = fs::read_to_string(folder.path().join("again.jsonl")).unwrap_or_default();
    assert!(saved.contains("[secret] behind\"") && saved.contains(r#""stderr":"last""#), "{}", saved.len());
    assert!(!saved.contains("ijklmnop"), "{}", saved.len());
}

/// An agent that names a key in its answer and on stderr.
const KEY: &str = "sk-abcdefghijklmnop1234";

#[test]
fn a_saved_conversation_is_as_private_as_a_recorded_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("turn.jsonl");
    write(&path, TURN);
    let agent = TURN.replace("end_turn", KEY).replace("loading", KEY);
    write(&folder.path().join("agent.jsonl"), &agent);
    let again = folder.path().join("again.jsonl");
    let replay = |options: &[&str]| {
        let agent = ["--", DUOLOGUE, "replay", "agent.jsonl"];
        let output = run(
            folder.path(),
            &[&["replay", "turn.jsonl", "--save", "again.jsonl"], options, &agent].concat(),
            "",
        );
        assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
        fs::read_to_string(&again).expect("a transcript")
    };
    fs::write(&again, "an old file that others may read").expect("a file");
    let saved = replay(&["--force"]);
    assert!(!saved.contains(KEY), "{saved}");
    assert!(
        saved.contains(r#""stopReason":"[secret]""#) && saved.contains(r#""stderr":"[secret]"#),
        "{saved}"
    );
    assert!(saved.contains(r#""redacted":"secrets""#) && saved.contains(r#""exit""#), "{saved}");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = || fs::metadata(&again).expect("a file").permissions().mode() & 0o777;
        assert_eq!(mode(), 0o600);
        fs::rename(&again, folder.path().join("target.jsonl")).expect("a file");
        std::os::unix::fs::symlink("target.jsonl", &again).expect("a link");
        let args = ["replay", "turn.jsonl", "--save", "again.jsonl", "--force", "--", "cat"];
        let output = run(folder.path(), &args, "");
        assert_eq!(output.status.code(), Some(4), "a link is not followed: {}", shown(&output));
        fs::remove_file(&again).expect("a link");
    }
    #[cfg(not(unix))]
    fs::remove_file(&again).expect("a file");
    assert!(replay(&["--redact-secrets=false"]).contains(KEY));
}

#[test]
fn a_conversation_that_does_not_start_leaves_no_file() {
    let folder = tempfile::tempdir().expect("a folder");
    write(&folder.path().join("turn.jsonl"), TURN);
    let args = ["replay", "turn.jsonl", "--save", "again.jsonl", "--", "/no/such/agent"];
    assert_eq!(run(folder.path(), &args, "").status.code(), Some(3));
    assert!(!folder.path().join("again.jsonl").exists());
}

/// A delegation with its updates and its result. Both agents have other ids than the recorded ones.
#[test]
fn agents_that_talk_are_played_too() {
    let folder = tempfile::tempdir().expect("a folder");
    let me = DUOLOGUE;
    let delegate = |options: &[&str], agent: &[&str]| {
        let args = [&["delegate", "Paint it"], options, &["--", me], agent].concat();
        shown(&run(folder.path(), &args, ""))
    };
    let live = delegate(&["--record", "a.jsonl"], &["mock"]);
    assert!(live.ends_with("exit Some(0)") && live.contains("Done: Paint it"), "{live}");
    assert_eq!(delegate(&[], &["replay", "a.jsonl"]), live);

    let redacted = Transcript::load(folder.path().join("a.jsonl")).expect("a transcript").redacted();
    redacted.write(fs::File::create(folder.path().join("redacted.jsonl")).expect("a file")).expect("room");
    assert_eq!(delegate(&[], &["replay", "redacted.jsonl"]), live);

    for file in ["a.jsonl", "redacted.jsonl"] {
        let driven = run(folder.path(), &["replay", "--strict", file, "--", me, "mock"], "");
        assert_eq!(driven.status.code(), Some(0), "{}", shown(&driven));
        assert!(shown(&driven).starts_with("---\nno difference in "), "{}", shown(&driven));
    }
}

/// At the end of its input an agent owes nothing, so its patience is not waited for.
#[test]
fn an_agent_that_does_not_leave_is_not_waited_for() {
    let folder = tempfile::tempdir().expect("a folder");
    write(&folder.path().join("turn.jsonl"), &TURN.replace("npm WARN", "npm"));
    let agent = format!("{DUOLOGUE} replay turn.jsonl --no-stderr; sleep 60; touch left");
    let output = run(folder.path(), &["replay", "turn.jsonl", "--", "sh", "-c", &agent], "");
    assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
    assert!(shown(&output).contains("no difference in 4 lines of the agent"), "{}", shown(&output));
    assert!(!folder.path().join("left").exists(), "the agent left by itself");
}

#[test]
fn the_old_file_stays_if_the_agent_sends_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    write(&folder.path().join("turn.jsonl"), TURN);
    let old = folder.path().join("old.jsonl");
    let save = |agent: &[&str]| {
        fs::write(&old, "the old text").expect("a file");
        run(
            folder.path(),
            &[&["replay", "turn.jsonl", "--save", "old.jsonl", "--force", "--"][..], agent].concat(),
            "",
        );
        fs::read_to_string(&old).expect("a text")
    };
    assert_eq!(save(&["true"]), "the old text");
    assert_eq!(save(&["no-such-agent"]), "the old text");
    assert!(save(&[DUOLOGUE, "replay", "turn.jsonl"]).starts_with("{\"format\""));
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 2, "no other file is left");
    // A file that was not there is not left empty.
    fs::remove_file(&old).expect("removed");
    run(folder.path(), &["replay", "turn.jsonl", "--save", "old.jsonl", "--", "true"], "");
    assert!(!old.exists());
}
