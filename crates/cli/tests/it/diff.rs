//! `duologue diff`, the real binary.

use std::path::Path;
use std::process::Command;

use crate::process::{self, DUOLOGUE};

/// A transcript in which the agent says these chunks, with ids and times of its own.
fn transcript(id: &str, start: u32, chunks: &[&str], stop: &str) -> String {
    let mut lines = vec![
        r#"{"format":"acp-transcript","version":1,"recorder":"test","protocolVersion":1,"started":"2026-11-21T15:00:00Z"}"#.to_owned(),
        format!(r#"{{"at":1,"from":"client","frame":{{"jsonrpc":"2.0","id":{start},"method":"session/new","params":{{"cwd":"/home/{id}/project","mcpServers":[]}}}}}}"#),
        format!(r#"{{"at":2,"from":"agent","frame":{{"jsonrpc":"2.0","id":{start},"result":{{"sessionId":"ses_{id}"}}}}}}"#),
        format!(r#"{{"at":3,"from":"client","frame":{{"jsonrpc":"2.0","id":"p","method":"session/prompt","params":{{"sessionId":"ses_{id}","prompt":[{{"type":"text","text":"Hello"}}]}}}}}}"#),
    ];
    for chunk in chunks {
        lines.push(format!(r#"{{"at":{start},"from":"agent","frame":{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":"ses_{id}","update":{{"sessionUpdate":"agent_message_chunk","messageId":"msg_{id}","content":{{"type":"text","text":"{chunk}"}}}}}}}}}}"#));
    }
    lines.push(format!(r#"{{"at":9999,"from":"agent","frame":{{"jsonrpc":"2.0","id":"p","result":{{"stopReason":"{stop}"}}}}}}"#));
    lines.join("\n") + "\n"
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, text) in [
        ("a.jsonl", transcript("one", 7, &["Good ", "day."], "end_turn")),
        ("same.jsonl", transcript("two", 900, &["Go", "o", "d d", "ay."], "end_turn")),
        ("other.jsonl", transcript("three", 7, &["Good\\n", "night.\u{202e}"], "cancelled")),
        ("stops.jsonl", transcript("four", 7, &["Good day."], "cancelled")),
        ("log.jsonl", r#"{"dir":"a2c","line":{"jsonrpc":"2.0","method":"_x/y"}}"#.into()),
        ("no.jsonl", "# a readme\n".into()),
    ] {
        std::fs::write(folder.path().join(name), text).expect("a file");
    }
    folder
}

/// Runs `duologue diff` in the folder and returns its output and exit code.
fn diff(folder: &Path, args: &[&str], input: &str) -> String {
    let mut command = Command::new(DUOLOGUE);
    command.arg("diff").args(args).current_dir(folder).env_remove("CLICOLOR_FORCE");
    process::shown(&process::run(&mut command, input))
}

#[test]
fn ids_times_folders_and_chunks_are_no_difference() {
    let folder = folder();
    assert_eq!(diff(folder.path(), &["a.jsonl", "same.jsonl"], ""), "exit 0");
    let input = transcript("three", 1, &["Good day."], "end_turn");
    assert_eq!(diff(folder.path(), &["a.jsonl", "-"], &input), "exit 0");
    assert_eq!(
        diff(folder.path(), &["--json", "-", "same.jsonl"], &input),
        "{\"equal\":true,\"hunks\":[]}\nexit 0"
    );
}

#[test]
fn a_difference_is_shown_under_its_session() {
    let folder = folder();
    insta::assert_snapshot!(diff(folder.path(), &["a.jsonl", "other.jsonl"], ""), @r#"
    --- a.jsonl
    +++ other.jsonl
    @@ -3,5 +3,7 @@ session [session-1]
     → session/new [cwd]
     ← session/new ok
     → session/prompt "Hello"
    -← agent_message [message-1] "Good day."
    -← session/prompt end_turn
    +← agent_message [message-1]
    +  | Good
    +  | night.\u{202e}
    +← session/prompt cancelled
    exit 1
    "#);
    insta::assert_snapshot!(diff(folder.path(), &["-U0", "a.jsonl", "stops.jsonl"], ""), @r"
    --- a.jsonl
    +++ stops.jsonl
    @@ -7,1 +7,1 @@ session [session-1]
    -← session/prompt end_turn
    +← session/prompt cancelled
    exit 1
    ");
    insta::assert_snapshot!(diff(folder.path(), &["--json", "-U", "1", "a.jsonl", "stops.jsonl"], ""), @r#"
    {"equal":false,"hunks":[{"section":"session [session-1]","line":{"a":6,"b":6},"lines":{"a":2,"b":2},"changes":[{"only":null,"text":"← agent_message [message-1] \"Good day.\""},{"only":"a","text":"← session/prompt end_turn"},{"only":"b","text":"← session/prompt cancelled"}]}]}
    exit 1
    "#);
}

#[test]
fn folded_only_what_it_came_to_counts() {
    let folder = folder();
    assert_eq!(diff(folder.path(), &["--fold", "a.jsonl", "stops.jsonl"], ""), "exit 0");
    insta::assert_snapshot!(diff(folder.path(), &["--fold", "a.jsonl", "other.jsonl"], ""), @r#"
    --- a.jsonl
    +++ other.jsonl
    @@ -1,4 +1,6 @@ session [session-1]
     ## session [session-1]

     user "Hello"
    -agent [message-1] "Good day."
    +agent [message-1]
    +  | Good
    +  | night.\u{202e}
    exit 1
    "#);
}

#[test]
fn logs_of_other_programs_are_read_too() {
    let folder = folder();
    insta::assert_snapshot!(diff(folder.path(), &["log.jsonl", "a.jsonl", "-U0"], "").lines().take(4).collect::<Vec<_>>().join("\n"), @r"
    --- log.jsonl
    +++ a.jsonl
    @@ -1,1 +1,1 @@ connection
    -## connection
    ");
}

#[test]
fn incomparable_recordings_are_an_error() {
    let folder = folder();
    insta::assert_snapshot!(diff(folder.path(), &["-", "-"], ""), @r"
    error: only one of the two can be standard input
    exit 2
    ");
    insta::assert_snapshot!(diff(folder.path(), &["a.jsonl", "gone.jsonl"], ""), @r"
    error: gone.jsonl: No such file or directory (os error 2)
    exit 4
    ");
    insta::assert_snapshot!(diff(folder.path(), &["a.jsonl", "no.jsonl"], ""), @r"
    error: no.jsonl: neither a recording nor a log of JSON-RPC lines
    exit 4
    ");
}

#[test]
fn colours_appear_on_request() {
    let folder = folder();
    let coloured = |variable: &str| {
        let output = Command::new(DUOLOGUE)
            .args(["diff", "a.jsonl", "stops.jsonl"])
            .current_dir(folder.path())
            .env_remove("NO_COLOR")
            .env(variable, "1")
            .output()
            .expect("it runs");
        output.stdout.contains(&b'\x1b')
    };
    assert!(coloured("CLICOLOR_FORCE"));
    assert!(!coloured("NO_COLOR"));
}

/// The differences were not read, so the code must not promise that there are none.
#[test]
fn a_closed_output_is_no_success() {
    let folder = folder();
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut command = Command::new(DUOLOGUE);
    command.args(["diff", "a.jsonl", "other.jsonl"]).current_dir(folder.path()).stdout(writer);
    let output = command.spawn().expect("it starts").wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(141));
}

/// A readable part may be equal, and the rest is unknown.
#[test]
fn a_damaged_file_is_an_error_whatever_it_contains() {
    let folder = folder();
    let whole = std::fs::read_to_string(folder.path().join("a.jsonl")).expect("a transcript");
    for (name, damage) in [("line.jsonl", "damage\n"), ("cut.jsonl", "{\"at\":10")] {
        std::fs::write(folder.path().join(name), whole.clone() + damage).expect("a file");
        let alike = diff(folder.path(), &["a.jsonl", name], "");
        assert!(alike.contains("error: ") && alike.ends_with("exit 4"), "{alike}");
        // Only the end of a cut file is a difference.
        assert_eq!(alike.contains("@@ "), name == "cut.jsonl", "{alike}");
        let other = diff(folder.path(), &["stops.jsonl", name], "");
        assert!(other.contains("@@ ") && other.ends_with("exit 4"), "{other}");
    }
}

/// Lines of stderr and the end of the process are no messages.
#[test]
fn only_messages_count_on_request() {
    let folder = folder();
    let whole = std::fs::read_to_string(folder.path().join("a.jsonl")).expect("a transcript");
    let more = whole + "{\"at\":10000,\"stderr\":\"bye\"}\n{\"at\":10001,\"exit\":{\"code\":1}}\n";
    std::fs::write(folder.path().join("more.jsonl"), more).expect("a file");
    let shown = diff(folder.path(), &["a.jsonl", "more.jsonl"], "");
    assert!(shown.contains("bye") && shown.ends_with("exit 1"), "{shown}");
    assert_eq!(diff(folder.path(), &["--wire", "a.jsonl", "more.jsonl"], ""), "exit 0");
    assert!(diff(folder.path(), &["--wire", "a.jsonl", "stops.jsonl"], "").ends_with("exit 1"));
}

/// Each difference is shown under the last heading above it.
#[test]
fn each_difference_names_its_section() {
    let folder = folder();
    let two = |end: &str| {
        let second = transcript("two", 9, &["Bye."], end);
        let rest: Vec<_> = second.lines().skip(1).collect();
        transcript("one", 7, &["Good day."], end) + &rest.join("\n") + "\n"
    };
    std::fs::write(folder.path().join("x.jsonl"), two("end_turn")).expect("a file");
    std::fs::write(folder.path().join("y.jsonl"), two("cancelled")).expect("a file");
    let shown = diff(folder.path(), &["-U0", "x.jsonl", "y.jsonl"], "");
    let heads: Vec<_> =
        shown.lines().filter_map(|line| Some(line.strip_prefix("@@ ")?.split_once("@@ ")?.1)).collect();
    assert_eq!(heads, ["session [session-1]", "session [session-2]"], "{shown}");
}
