//! `duologue show`, the real binary.

use std::path::Path;
use std::process::{Command, Output};

use crate::process::{DUOLOGUE, shown};

const TRANSCRIPTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/transcripts");

fn show(args: &[&str]) -> Output {
    Command::new(DUOLOGUE)
        .arg("show")
        .args(args)
        .current_dir(TRANSCRIPTS)
        .output()
        .expect("the binary starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

/// The data in a page.
fn data(page: &str) -> serde_json::Value {
    let (_, data) = page.split_once(r#"<script type="application/json" id="data">"#).expect("data");
    serde_json::from_str(data.split_once("</script>").expect("an end").0).expect("JSON")
}

#[test]
fn a_transcript_is_shown_as_text() {
    insta::assert_snapshot!(shown(&show(&["hello.jsonl"])), @r#"
    ## connection

    → initialize v1
    ← initialize v1

    ## session sess-1

    → session/new /home/me/project
    ← session/new ok
    → session/prompt "How far is the moon?"
    ← agent_message "About 300,000 miles."
    ← agent_message_clear
    ← agent_message "384,400 km."
    ← session/prompt end_turn

    ## stderr

    | sketcher 0.3 is ready

    ## end

    → end of output
    the agent's process ended with code 0
    exit 0
    "#);
    insta::assert_snapshot!(shown(&show(&["--fold", "hello.jsonl"])), @r#"
    ## session sess-1

    user "How far is the moon?"
    agent "384,400 km."
    exit 0
    "#);
    insta::assert_snapshot!(shown(&show(&["--chunks", "--times", "hello.jsonl"])), @r#"
    ## connection

           0.000 → initialize v1
           0.001 ← initialize v1

    ## session sess-1

           0.001 → session/new /home/me/project
           0.002 ← session/new ok
           0.003 → session/prompt "How far is the moon?"
           0.250 ← agent_message_chunk "About "
           0.300 ← agent_message_chunk "300,000 miles."
           0.400 ← agent_message_clear
           0.450 ← agent_message_chunk "384,400 km."
           0.500 ← session/prompt end_turn

    ## stderr

           0.000 | sketcher 0.3 is ready

    ## end

           0.510 → end of output
           0.520 the agent's process ended with code 0
    exit 0
    "#);
}

#[test]
fn it_is_json_too() {
    let output = show(&["--json", "hello.jsonl"]);
    let script: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(script["sections"].as_array().is_some_and(|sections| sections.len() == 4), "{script}");
}

#[test]
fn ids_and_paths_can_be_taken_out() {
    let shown = shown(&show(&["--redact", "hello.jsonl"]));
    assert!(shown.contains("[session-1]") && !shown.contains("/home/me"), "{shown}");
}

#[test]
fn the_log_of_another_program_is_shown_and_nothing_in_it_moves_the_cursor() {
    insta::assert_snapshot!(shown(&show(&["--times", "editor.log"])), @r#"
    ## connection

           0.000 → initialize v1
           0.250 ← initialize v1
           3.000 ← noise "\u{1b}[2Jnoise \u{202e}gpj.exe" (the line is not JSON (-32700))

    ## session s

           1.000 → session/new /home/me/project
           1.500 ← session/new ok

    ## stderr

           2.000 | \u001b[2Jwarming up
    exit 0
    "#);
}

#[test]
fn of_a_damaged_file_the_rest_is_shown() {
    let folder = tempfile::tempdir().expect("a folder");
    let whole = std::fs::read_to_string(Path::new(TRANSCRIPTS).join("hello.jsonl")).expect("a file");
    let file = folder.path().join("cut.jsonl");
    let damaged = whole.replacen(r#"{"at":900,"stderr""#, r#"{"at":900,"std"#, 1);
    std::fs::write(&file, damaged.trim_end().trim_end_matches('}')).expect("written");
    let output = show(&["--html", file.to_str().expect("UTF-8")]);
    insta::assert_snapshot!(text(&output.stderr), @r#"
    error: line 3 is not a record: expected `:` at line 1 column 17
    error: the file ends within a line, which is left out
    "#);
    assert_eq!(output.status.code(), Some(4));
    let page = data(&text(&output.stdout));
    assert_eq!(page["faults"].as_array().map(Vec::len), Some(2));
    assert_eq!(page["frames"].as_array().map(Vec::len), Some(10));
}

#[test]
fn the_page_has_both_states_of_a_message_and_asks_nobody() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("page.html");
    let output = show(&["--html", "-o", file.to_str().expect("UTF-8"), "hello.jsonl"]);
    assert_eq!(shown(&output), "exit 0");
    let page = std::fs::read_to_string(&file).expect("a page");
    assert!(page.contains("default-src 'none'; script-src 'sha256-"));
    assert!(!page.contains("http:") && !page.contains("https:") && !page.contains("src=\""));
    let items = data(&page)["items"].clone();
    let message =
        items.as_array().expect("items").iter().find(|item| item["kind"] == "agent").expect("a message");
    insta::assert_snapshot!(message, @r#"{"at":250000,"drafts":[{"at":400000,"text":"About 300,000 miles."}],"frames":[5,6,7,8],"from":"agent","kind":"agent","name":"","session":0,"text":"384,400 km.","until":450000}"#);
}

#[test]
fn messages_between_agents_are_shown_in_words() {
    insta::assert_snapshot!(shown(&show(&["--redact", "agents.jsonl"])), @r#"
    ## connection

    → initialize v1
      can _meta = {"duologue":{"agentId":"[agent-1]","dialogue":{},"envelope":{"v":[1]},"work":{}}}
    ← initialize v1
      can _meta = {"duologue":{"agentId":"[agent-2]","dialogue":{},"envelope":{"v":[1]},"work":{}}}

    ## session [session-1]

    → session/new [cwd]
    ← session/new ok
    → _session/query work.paint "Is there blue paint?"
    ← _session/query "Three litres." 9 tokens
      data {"litres":3}
    → _session/delegate [session-1.envelope-3] "Paint the kitchen"
    ← _session/delegate accepted
    ← _session/notify [session-1.envelope-5] re [session-1.envelope-3] task.progress low
      data 0.5
    ← _session/result re [session-1.envelope-3] completed "It is blue."
    → _session/dialogue step 1 propose [session-1.message-1]
      agent://home/owner to agent://work/painter in [session-1.dialogue-1]
      negotiatePrice {"price":400}
      "400 for the kitchen?"
    ← _session/dialogue delivered [session-1.message-1] in [session-1.dialogue-1]
    ← _session/dialogue step 2 accept [session-1.message-2] re [session-1.message-1]
      agent://work/painter to agent://home/owner in [session-1.dialogue-1]
    → _session/dialogue delivered [session-1.message-2] in [session-1.dialogue-1]
    → _session/work plan for kitchen house iteration 1
      path feature_root = rooms/kitchen
    ← _session/work success proceed "A plan in two steps."
      create plan.md [17 bytes, 99404c96]

    ## end

    → end of output
    the agent's process ended with code 0
    exit 0
    "#);
    let page = shown(&show(&["--html", "agents.jsonl"]));
    let items = data(&page)["items"].clone();
    let words = items.as_array().expect("items").iter().map(|item| {
        let word = |key: &str| item[key].as_str().unwrap_or_default().to_owned();
        format!("{} {} {:?}\n", word("from"), word("name"), word("text"))
    });
    insta::assert_snapshot!(words.collect::<String>(), @r#"
    client initialize "{\"clientCapabilities\":{\"_meta\":{\"duologue\":{\"agentId\":\"c1c1\",\"dialogue\":{},\"envelope\":{\"v\":[1]},\"work\":{}}}},\"protocolVersion\":1}"
    agent initialize "{\"agentCapabilities\":{\"_meta\":{\"duologue\":{\"agentId\":\"a9a9\",\"dialogue\":{},\"envelope\":{\"v\":[1]},\"work\":{}}}},\"protocolVersion\":1}"
    client session/new "{\"cwd\":\"/home/me/house\",\"mcpServers\":[]}"
    agent session/new ""
    client _session/query "Is there blue paint?"
    agent _session/query "Three litres."
    client _session/delegate "Paint the kitchen"
    agent _session/delegate "{\"envelope\":{\"from\":\"a9a9\",\"id\":\"e4\",\"kind\":\"ack\",\"payload\":{\"accepted\":true},\"ref\":\"e3\",\"to\":\"c1c1\",\"ts\":1795273200007,\"v\":1}}"
    agent _session/notify "task.progress"
    agent _session/result "It is blue."
    client _session/dialogue "400 for the kitchen?"
    agent _session/dialogue "delivered"
    agent _session/dialogue "accept"
    client _session/dialogue "delivered"
    client _session/work "plan"
    agent _session/work "A plan in two steps."
     end "the client writes nothing more"
     exit "exit code 0"
    "#);
}

#[test]
fn an_existing_file_is_replaced_only_on_request() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("hello.jsonl");
    std::fs::copy(Path::new(TRANSCRIPTS).join("hello.jsonl"), &file).expect("a copy");
    let path = file.to_str().expect("UTF-8");
    let output = show(&["-o", path, path]);
    assert_eq!(shown(&output), format!("error: {path} exists; --force replaces it\nexit 2"));
    assert_eq!(shown(&show(&[path])), shown(&show(&["hello.jsonl"])));
    assert_eq!(shown(&show(&["--force", "-o", path, "editor.log"])), "exit 0");
    assert!(std::fs::read_to_string(&file).expect("a text").starts_with("## connection"));
}

#[test]
fn redacted_events_keep_their_times_where_they_are_shown() {
    let shown = shown(&show(&["--redact", "--times", "hello.jsonl"]));
    assert!(shown.contains("       0.003 → session/prompt"), "{shown}");
    assert!(shown.contains("[session-1]"), "{shown}");
}

#[test]
fn impossible_requests_are_reported() {
    insta::assert_snapshot!(shown(&show(&["nothing.jsonl"])), @r#"
    error: nothing.jsonl: No such file or directory (os error 2)
    exit 4
    "#);
    insta::assert_snapshot!(shown(&show(&["-o", "/nowhere/page.html", "--html", "hello.jsonl"])), @r#"
    error: /nowhere/page.html: No such file or directory (os error 2)
    exit 4
    "#);
    insta::assert_snapshot!(shown(&show(&["--html", "--json", "hello.jsonl"])), @r#"
    error: the argument '--html' cannot be used with '--json'

    Usage: duologue show [OPTIONS] <FILE>

    For more information, try '--help'.
    exit 2
    "#);
}

/// Runs `duologue show` on a log from standard input.
fn show_log(args: &[&str], log: &str) -> String {
    shown(&crate::process::run(Command::new(DUOLOGUE).arg("show").args(args).arg("-"), log))
}

#[test]
fn a_log_without_directions_is_told_how_to_get_them() {
    let log = "{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"initialize\"}\n";
    insta::assert_snapshot!(show_log(&[], log), @r#"
    error: standard input: the messages have no direction; write `> ` before those of the client and `< ` before those of the agent
    exit 4
    "#);
    assert!(show_log(&[], &format!("> {log}")).contains("→ initialize"));
    insta::assert_snapshot!(show_log(&[], "hello\n"), @r#"
    error: standard input: neither a recording nor a log of JSON-RPC lines
    exit 4
    "#);
}

/// The fold of the text, and the one of the page.
#[test]
fn a_rejected_load_leaves_the_session_as_it_was() {
    let log = |answer: &str| {
        [
            r#"> {"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"sessionId":"s","prompt":[{"type":"text","text":"hi"}]}}"#,
            r#"< {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","messageId":"m","content":{"type":"text","text":"good "}}}}"#,
            r#"> {"jsonrpc":"2.0","id":2,"method":"session/load","params":{"sessionId":"s","cwd":"/","mcpServers":[]}}"#,
            &format!(r#"< {{"jsonrpc":"2.0","id":2,{answer}}}"#),
            r#"< {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","messageId":"m","content":{"type":"text","text":"day"}}}}"#,
        ]
        .join("\n")
    };
    let messages = |answer: &str| {
        let page = data(&show_log(&["--html"], &log(answer)));
        let items = page["items"].as_array().expect("items").clone();
        let texts = items.iter().filter(|item| item["kind"] == "agent").map(|item| item["text"].to_string());
        (show_log(&["--fold"], &log(answer)), texts.collect::<Vec<_>>().join(" "))
    };
    let (fold, page) = messages(r#""error":{"code":-32000,"message":"no"}"#);
    assert!(fold.contains("user \"hi\"") && fold.contains("\"good day\""), "{fold}");
    assert_eq!(page, "\"good day\"");
    let (fold, page) = messages(r#""result":{}"#);
    assert!(!fold.contains("good") && fold.contains("\"day\""), "{fold}");
    assert_eq!(page, "\"good \" \"day\"");
}

#[cfg(target_os = "linux")]
#[test]
fn a_pipe_is_read_and_not_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let pipe = folder.path().join("pipe");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &pipe,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .expect("a pipe");
    let path = pipe.to_str().expect("UTF-8");
    let output = show(&["--force", "-o", path, "hello.jsonl"]);
    assert_eq!(
        shown(&output),
        format!("error: {path} is a pipe; redirect the standard output to it instead\nexit 2")
    );
    let writer = pipe.clone();
    let writing =
        std::thread::spawn(move || std::fs::copy(Path::new(TRANSCRIPTS).join("hello.jsonl"), writer));
    assert_eq!(shown(&show(&[path])), shown(&show(&["hello.jsonl"])));
    writing.join().expect("no panic").expect("written");
}
