//! `duologue check` on the command line: its output and its exit codes.

use std::process::{Command, Output};

use serde_json::Value;

fn duologue(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_duologue")).args(args).output().expect("it starts")
}

fn check(args: &[&str]) -> (Option<i32>, String) {
    let output = duologue(&[&["check"], args].concat());
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output.status.code(), text)
}

#[test]
fn the_mock_passes_checks() {
    let groups = ["handshake", "ids", "requests", "turns"];
    let (code, text) = check(
        &[&["--only"], &groups[..], &["--", env!("CARGO_BIN_EXE_duologue"), "mock", "--pace", "0"]].concat(),
    );
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains(", 0 failed, 0 with a warning, "), "{text}");
}

#[test]
fn a_mode_that_the_agent_has_not_skips_what_needs_a_session() {
    let mock = ["--", env!("CARGO_BIN_EXE_duologue"), "mock"];
    let (code, text) =
        check(&[&["--mode", "chaos", "--only", "session-new", "prompt-answered"], &mock[..]].concat());
    assert_eq!(code, Some(1), "nothing could be checked");
    assert!(
        text.contains("session-new                the mode chaos is answered with error -32602"),
        "{text}"
    );
    assert!(text.contains("set another one"), "{text}");
    assert!(text.contains(" 0 failed, 0 with a warning, 2 skipped"), "{text}");
}

#[test]
fn a_program_that_says_everything_back_is_no_agent() {
    let (code, text) =
        check(&["--timeout", "1", "--only", "initialize-answers", "unknown-method", "--", "cat"]);
    assert_eq!(code, Some(1));
    insta::assert_snapshot!(text.replace(env!("CARGO_PKG_VERSION"), "[version]"), @r#"
    handshake
      ✗ initialize-answers         answered with error -32601 (method not found: initialize)
          must: `initialize` for version 1 is answered with the version to speak. https://agentclientprotocol.com/protocol/v1/initialization
          → {"jsonrpc":"2.0","id":1,"method":"initialize","params":{"clientCapabilities":{"fs":{"readTextFile":true,"writeTextFile":…42…e":"duologue-check","version":"[version]"},"protocolVersion":1}}
          ← {"jsonrpc":"2.0","id":1,"method":"initialize","params":{"clientCapabilities":{"fs":{"readTextFile":true,"writeTextFile":…42…e":"duologue-check","version":"[version]"},"protocolVersion":1}}
          → {"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"method not found: initialize"}}
          ← {"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"method not found: initialize"}}

    requests
      – unknown-method             because initialize-answers failed: error -32601 (method not found: initialize)

    0 passed, 1 failed, 0 with a warning, 1 skipped
    "#);
}

#[test]
fn programs_read_one_object_a_line() {
    let (code, text) = check(&["--json", "--only", "unknown-method", "--", "sh", "-c", "read -r line"]);
    assert_eq!(code, Some(3), "nothing could be checked");
    insta::assert_snapshot!(text, @r#"
    {"check":"unknown-method","group":"requests","severity":"must","rule":"A request for an unknown method is answered with -32601.","page":"https://www.jsonrpc.org/specification","verdict":"skipped","saw":"because initialize-answers failed: the agent ended before it answered initialize"}
    {"summary":{"pass":0,"fail":0,"warn":0,"skipped":1}}
    "#);
}

#[test]
fn escapes_of_an_agent_are_not_printed() {
    let banner = "printf '\\033[2J\\n'; read -r line";
    let (_, text) = check(&["--only", "stdout-only-messages", "--", "sh", "-c", banner]);
    assert!(!text.contains('\u{1b}'), "{text:?}");
    insta::assert_snapshot!(text, @r"
    stream
      ✗ stdout-only-messages       a line that is no message: the line is not JSON
          must: Every line on stdout is one JSON-RPC message, and nothing else is there. https://agentclientprotocol.com/protocol/v1/transports
          ← \u{1b}[2J

    0 passed, 1 failed, 0 with a warning, 0 skipped
    error: the agent could not be tested: because initialize-answers failed: the agent ended before it answered initialize (--login METHOD, --prompt TEXT)
    ");
}

#[cfg(target_os = "linux")]
#[test]
fn a_flood_is_found_and_does_not_fill_the_memory() {
    let limited = "ulimit -v 1000000; exec \"$0\" check --only initialize-answers unknown-method -- yes";
    let output = Command::new("sh").args(["-c", limited, env!("CARGO_BIN_EXE_duologue")]).output();
    let output = output.expect("it starts");
    let text = String::from_utf8_lossy(&output.stdout);
    let flood = "the agent floods: more than 64 MiB or 250,000 lines in one run";
    assert!(text.contains(&format!("✗ initialize-answers         {flood}\n")), "{output:?}");
    assert!(text.contains(&format!("– unknown-method             {flood}\n")), "{text}");
    assert_eq!(output.status.code(), Some(1));
}

#[cfg(unix)]
#[test]
fn a_signal_ends_the_agent_too_and_leaves_nothing_behind() {
    use std::time::{Duration, Instant};
    for (signal, code) in [("TERM", 143), ("HUP", 129), ("INT", 130)] {
        let dir = tempfile::tempdir().expect("a folder");
        let (temporary, note) = (dir.path().join("tmp"), dir.path().join("pid"));
        std::fs::create_dir(&temporary).expect("a folder");
        // It reads nothing, not even that its input has ended, and does not mind signals.
        let stubborn = "trap '' TERM HUP INT; echo $$ >\"$0.new\"; mv \"$0.new\" \"$0\"; exec sleep 600";
        let mut check = Command::new(env!("CARGO_BIN_EXE_duologue"))
            .args(["check", "--", "sh", "-c", stubborn])
            .arg(&note)
            .env("TMPDIR", &temporary)
            .stdout(std::process::Stdio::null())
            .spawn()
            .expect("it starts");
        let deadline = Instant::now() + Duration::from_secs(60);
        let agent = loop {
            match std::fs::read_to_string(&note) {
                Ok(agent) => break agent.trim().to_owned(),
                Err(_) => assert!(Instant::now() < deadline, "the agent starts"),
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        let kill = |args: &[&str]| Command::new("kill").args(args).output().expect("kill").status.success();
        assert!(kill(&["-s", signal, &check.id().to_string()]));
        assert_eq!(check.wait().expect("it ends").code(), Some(code));
        let left: Vec<_> = std::fs::read_dir(&temporary).expect("a folder").collect();
        assert!(left.is_empty(), "{left:?}");
        // A zombie process counts as ended: only its new parent process can collect it.
        let state = |agent: &str| {
            let ps = Command::new("ps").args(["-o", "stat=", "-p", agent]).output().expect("ps");
            String::from_utf8_lossy(&ps.stdout).trim().to_owned()
        };
        while !matches!(state(&agent).chars().next(), None | Some('Z')) {
            assert!(Instant::now() < deadline, "the agent still runs after {signal}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

#[test]
fn the_last_line_of_another_process_is_no_evidence() {
    let echo =
        r#"read line; echo '{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":65000}}'; cat >/dev/null"#;
    let (code, text) = check(&["--only", "initialize-answers", "version-negotiated", "--", "sh", "-c", echo]);
    assert_eq!(code, Some(1));
    let (_, second) = text.split_once("✗ version-negotiated").expect("it fails");
    assert!(second.contains("→ ") && !second.contains("(stdout closed)"), "{text}");
}

#[test]
fn missing_files_and_programs() {
    let (code, text) = check(&["--", "/no/such/agent"]);
    assert_eq!(code, Some(3));
    insta::assert_snapshot!(text, @"error: cannot start /no/such/agent: No such file or directory (os error 2); is it installed and on the PATH?");

    let (code, text) = check(&["--only", "no-such-check", "--", "true"]);
    assert_eq!(code, Some(2));
    insta::assert_snapshot!(text, @"error: there is no check and no group named no-such-check; see `duologue check --list`");

    let (code, _) = check(&[]);
    assert_eq!(code, Some(2));
}

#[test]
fn the_list_says_what_is_checked() {
    let (code, text) = check(&["--list", "--only", "ids", "cancel-ends-turn"]);
    assert_eq!(code, Some(0));
    insta::assert_snapshot!(text, @r"
    ids
      id-string                  must   An id may be a string.
                                        https://www.jsonrpc.org/specification
      id-zero                    must   An id may be 0.
                                        https://www.jsonrpc.org/specification
      id-negative                must   An id may be a negative number.
                                        https://agentclientprotocol.com/protocol/v1/schema
      id-large                   should An id may be any integer of 64 bits, and comes back digit by digit.
                                        https://agentclientprotocol.com/protocol/v1/schema
      id-null                    should A request whose id is null is a request, and its answer has the id null.
                                        https://www.jsonrpc.org/specification

    cancel
      cancel-ends-turn           must   After `session/cancel` the prompt is answered with the stop reason `cancelled`.
                                        https://agentclientprotocol.com/protocol/v1/prompt-turn#cancellation
    ");

    let (_, all) = check(&["--list", "--json"]);
    for line in all.lines() {
        let row: Value = serde_json::from_str(line).expect("JSON");
        let rule = row["rule"].as_str().unwrap_or_default();
        assert!(rule.ends_with('.') && !rule.contains("\n"), "{rule:?} is a sentence");
        let page = row["page"].as_str().unwrap_or_default();
        let rfd = match row["group"].as_str() {
            Some("envelopes") => "RFD 0004 ",
            Some("dialogues") => "RFD 0005 ",
            Some("work") => "RFD 0006 ",
            _ => "none",
        };
        assert!(page.starts_with(rfd) || page.starts_with("https://"), "{line}");
    }
}

/// Answers every request, most of them against the rules of version 2.
#[cfg(unix)]
const FAULTY: &str = r#"
    say() { printf '{"jsonrpc":"2.0",%s}\n' "$1"; }
    update() { say '"method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":'"$1"'}}'; }
    while read -r line; do
        id=${line#*'"id":'}; id=${id%%,*}
        case $line in
        *'"initialize"'*)
            info='"info":{"name":"faulty","version":"1"},"capabilities":{}'
            say '"id":'$id',"result":{"protocolVersion":'$VERSION','"$info"'}' ;;
        *'"session/new"'*) say '"id":'$id',"result":{"sessionId":"s"}' ;;
        *'"session/prompt"'*)
            say '"id":'$id',"result":{"messageId":"u"}'
            update '"user_message","messageId":"other","content":[]'
            update '"agent_message_chunk","content":{"type":"text","text":"one"}'
            update '"state_update","state":"running"'
            update '"state_update","state":"idle"'
            update '"agent_message_chunk","messageId":"m","content":{"type":"text","text":"late"}' ;;
        *'"id":'*) say '"id":'$id',"result":{}' ;;
        esac
    done"#;

#[cfg(unix)]
#[test]
fn a_faulty_agent_fails_the_checks_of_version_2() {
    let found = |version: &str, verdict: &str| -> Vec<String> {
        let script = format!("VERSION={version}{FAULTY}");
        let output = duologue(&["check", "--protocol", "2", "--json", "--", "sh", "-c", &script]);
        assert_eq!(output.status.code(), Some(1));
        let text = String::from_utf8_lossy(&output.stdout);
        let rows = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        rows.filter(|row| row["verdict"] == verdict)
            .map(|row| format!("{}: {}", row["check"].as_str().unwrap_or_default(), row["saw"]))
            .collect()
    };
    let failed = found("2", "fail");
    for check in [
        "unknown-method",
        "user-message",
        "running-first",
        "nothing-after-idle",
        "message-ids",
        "cancel-ends-turn",
        "resume-replays",
        "resume-unknown-place",
        "list-answers",
    ] {
        assert!(failed.iter().any(|row| row.starts_with(&format!("{check}: "))), "{check}: {failed:#?}");
    }
    // The draft recommends a stop reason.
    let warned = found("2", "warn");
    assert!(warned.iter().any(|row| row.starts_with("stop-reason: ")), "{warned:#?}");
    let failed = found("1", "fail");
    assert!(failed.len() == 1 && failed[0].contains("the agent chose version 1"), "{failed:#?}");
}
