//! Nothing that an agent says, wherever it says it, reaches the terminal as it is.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::emulator::Terminal;
use super::payloads::{obeyed, payloads};

/// Updates in which `@` marks each place for a payload, with one in every text that an update can have.
fn updates() -> Vec<Value> {
    let block = |block: Value| json!({"sessionUpdate": "agent_message_chunk", "content": block});
    let select = json!({"id": "@", "name": "@", "description": "@", "type": "select", "currentValue": "@",
        "options": [{"value": "@", "name": "@"}]});
    vec![
        block(json!({"type": "text", "text": "@ and @"})),
        block(
            json!({"type": "resource_link", "name": "@", "uri": "file:///@", "title": "@", "mimeType": "@"}),
        ),
        block(json!({"type": "resource", "resource": {"uri": "@", "text": "@\n@", "mimeType": "@"}})),
        block(json!({"type": "resource", "resource": {"uri": "@", "blob": "AAAA"}})),
        block(json!({"type": "image", "data": "AAAA", "mimeType": "@"})),
        block(json!({"type": "audio", "data": "AAAA", "mimeType": "@"})),
        block(json!({"type": "@"})),
        json!({"sessionUpdate": "agent_thought_chunk", "content": {"type": "text", "text": "@"}}),
        json!({"sessionUpdate": "user_message_chunk", "content": {"type": "text", "text": "@"}}),
        json!({"sessionUpdate": "agent_message_chunk", "messageId": "@",
            "content": {"type": "text", "text": "x"}}),
        json!({"sessionUpdate": "tool_call", "toolCallId": "call @", "title": "@\n@", "kind": "@", "status": "@",
            "rawInput": {"@": "@"}, "locations": [{"path": "/@", "line": 1}],
            "content": [{"type": "content", "content": {"type": "text", "text": "@\n@"}},
                {"type": "diff", "path": "/@", "oldText": "@\n", "newText": "@\n@"},
                {"type": "terminal", "terminalId": "@"}, {"type": "@"}]}),
        json!({"sessionUpdate": "tool_call_update", "toolCallId": "call @", "status": "failed", "title": "@",
            "rawOutput": "@", "content": [{"type": "content", "content": {"type": "text", "text": "@"}}]}),
        json!({"sessionUpdate": "plan", "entries": [{"content": "@", "priority": "@", "status": "@"}]}),
        json!({"sessionUpdate": "available_commands_update",
            "availableCommands": [{"name": "@", "description": "@", "input": {"hint": "@"}}]}),
        json!({"sessionUpdate": "current_mode_update", "currentModeId": "@"}),
        json!({"sessionUpdate": "config_option_update", "configOptions": [select]}),
        json!({"sessionUpdate": "session_info_update", "title": "@", "updatedAt": "@"}),
        json!({"sessionUpdate": "usage_update", "used": 1, "size": 2, "cost": {"amount": 1.5, "currency": "@"}}),
        json!({"sessionUpdate": "notice", "severity": "@", "title": "@", "description": "@"}),
        json!({"sessionUpdate": "compaction_update", "compactionId": "@", "status": "failed", "error": "@"}),
        json!({"sessionUpdate": "@"}),
    ]
}

/// The message with a payload in all its places, as a line.
fn filled(message: &Value, payload: &str) -> String {
    // A placeholder and a payload stand in strings: as JSON, each without its quotes.
    let quoted = Value::from(payload).to_string();
    let inner = quoted.get(1..quoted.len() - 1).unwrap();
    message.to_string().replace('@', inner)
}

fn update(update: &Value) -> Value {
    json!({"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "s", "update": update}})
}

/// Questions to the user, each as the text to wait for, the reply to type and the request.
fn questions(number: usize) -> Vec<(String, &'static str, Value)> {
    let ask = |method: &str, params: Value| {
        let id = format!("q{number} {method} {}", params["mode"]);
        json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
    };
    let option = |name: &str, kind: &str| json!({"optionId": name, "name": format!("{name} {number}# @"), "kind": kind});
    let diff = json!({"type": "diff", "path": "/@", "newText": "@"});
    let call = json!({"toolCallId": format!("asked {number}"), "title": "@", "name": "@", "kind": "@",
        "rawInput": {"command": ["@", "@"], "@": "@\n@", "path": "@"}, "locations": [{"path": "/@", "line": 1}],
        "content": [diff, {"type": "content", "content": {"type": "text", "text": "@\n@"}},
            {"type": "terminal", "terminalId": "@"}, {"type": "@"}]});
    let options = [option("yes", "allow_once"), option("no", "reject_once")];
    let permission = json!({"sessionId": "s", "toolCall": call, "options": options});
    let field = json!({"type": "string", "title": format!("field {number}# @"), "description": "@",
        "default": "@", "oneOf": [{"const": "@", "title": "@"}]});
    let form = json!({"sessionId": "s", "mode": "form", "message": "@",
        "requestedSchema": {"type": "object", "properties": {"@": field}}});
    let link = json!({"sessionId": "s", "mode": "url", "elicitationId": "@", "url": "https://@",
        "message": format!("link {number}# @")});
    vec![
        (format!("no {number}#"), "n", ask("session/request_permission", permission)),
        (format!("field {number}#"), "!", ask("elicitation/create", form)),
        (format!("link {number}#"), "n", ask("elicitation/create", link)),
    ]
}

/// An agent that says what is in the files of a folder, line by line, and waits for the answer to what it asks.
fn agent(folder: &Path, lines: &[String], answer: &Value) -> String {
    let all = payloads().concat();
    let put = |name: &str, text: String| fs::write(folder.join(name), text).unwrap();
    let login = json!({"id": "@", "name": "@", "description": "@"});
    let greeting = json!({"protocolVersion": 1, "authMethods": [login],
        "agentInfo": {"name": "@", "version": "@", "title": "@"},
        "agentCapabilities": {"sessionCapabilities": {"list": {}}}});
    let init = json!({"jsonrpc": "2.0", "id": 1, "result": greeting});
    put("init", filled(&init, &all) + "\n");
    let mode =
        json!({"currentModeId": "@", "availableModes": [{"id": "@", "name": "@", "description": "@"}]});
    let session = json!({"jsonrpc": "2.0", "id": 2, "result": {"sessionId": "s", "modes": mode}});
    put("session", filled(&session, &all) + "\n");
    // Lines that are not messages, for stdout and stderr.
    put("noise", payloads().iter().map(|payload| payload.replace('\n', " ") + "\n").collect());
    put("talk", lines.iter().map(|line| format!("{line}\n")).collect());
    put("end", filled(answer, &all) + "\n");
    format!(
        r#"cd '{}'; read -r a; cat init; read -r a; cat session; read -r a; cat noise; cat noise >&2
        while IFS= read -r line <&3; do
            printf '%s\n' "$line"
            case $line in *'"id":"q'*) read -r answer; printf '%s\n' "$answer" >&4;; esac
        done 3<talk 4>answers
        cat end; read -r a"#,
        folder.display()
    )
}

fn talk() -> Vec<String> {
    let updates: Vec<_> = updates().iter().map(update).collect();
    payloads().iter().flat_map(|payload| updates.iter().map(move |update| filled(update, payload))).collect()
}

/// A program was shown all payloads, and the terminal obeyed none.
fn check(what: &str, output: &str) {
    assert_eq!(obeyed(output), None, "{what}");
    for number in 0..payloads().len() {
        assert!(output.contains(&format!("p{number}:")), "{what}: payload {number} is not shown");
    }
}

fn run(args: &[&str], env: &[(&str, &str)], agent: &str) -> Terminal {
    let args = [&["run"], args, &["--", "sh", "-c", agent]].concat();
    Terminal::start(60, 100, &args, env)
}

#[test]
#[allow(clippy::print_stdout, reason = "what a campaign reads")]
fn no_payload_is_obeyed_wherever_it_stands() {
    let folder = TempDir::new().unwrap();
    let count = payloads().len();
    assert!(count >= 200, "{count}");
    questions_are_answered(folder.path());
    updates_are_shown(folder.path());
    listed_sessions_are_shown(folder.path());
    transcripts_are_shown(folder.path());
    checks_are_reported(folder.path());
    let places = talk().len() / count;
    println!(
        "measured: 0 of {count} payloads in {places} kinds of updates, and in questions, lists, errors, noise and \
         transcripts"
    );
}

/// The two ends of a prompt: an error, and a result with a payload as its stop reason.
fn ends() -> [Value; 2] {
    let error = json!({"code": -32603, "message": "@", "data": {"@": "@"}});
    [
        json!({"jsonrpc": "2.0", "id": 3, "error": error}),
        json!({"jsonrpc": "2.0", "id": 3, "result": {"stopReason": "@"}}),
    ]
}

fn questions_are_answered(folder: &Path) {
    let count = payloads().len();
    let mut asked = Vec::new();
    for (number, payload) in payloads().iter().enumerate() {
        let filled = |(seen, typed, question)| (seen, typed, filled(&question, payload));
        asked.extend(questions(number).into_iter().map(filled));
    }
    let questions: Vec<String> = asked.iter().map(|(_, _, question)| question.clone()).collect();
    let [error, _] = ends();
    let mut terminal = run(&["-v", "hello"], &[], &agent(folder, &questions, &error));
    for (seen, typed, _) in &asked {
        terminal.wait_for(seen);
        terminal.type_line(typed);
    }
    assert_ne!(terminal.end(), 0);
    check("questions", &terminal.bytes());
    let answers = fs::read_to_string(folder.join("answers")).unwrap();
    assert_eq!(answers.matches(r#""optionId":"no""#).count(), count);
    assert_eq!(answers.matches(r#""action":"decline""#).count(), 2 * count);
}

/// As they come, without a cursor that moves, and for a script.
fn updates_are_shown(folder: &Path) {
    let [error, stopped] = ends();
    for (args, env, end) in [
        (&["-v", "hello"][..], &[][..], &error),
        (&["-v", "hello"], &[("NO_COLOR", "1")], &stopped),
        (&["-v", "hello"], &[("TERM", "dumb")], &error),
        (&["-v", "--json", "hello"], &[], &stopped),
    ] {
        let mut terminal = run(args, env, &agent(folder, &talk(), end));
        assert_ne!(terminal.end(), 0);
        check(&format!("run {args:?} {env:?}"), &terminal.bytes());
    }
}

/// Sessions, and ways to log in.
fn listed_sessions_are_shown(folder: &Path) {
    let session = |payload: &String| json!({"sessionId": payload, "cwd": format!("/{payload}"), "title": payload, "updatedAt": payload});
    let sessions: Vec<_> = payloads().iter().map(session).collect();
    let list = json!({"jsonrpc": "2.0", "id": 2, "result": {"sessions": sessions}});
    fs::write(folder.join("list"), format!("{list}\n")).unwrap();
    let agent = format!("cd '{}'; read -r a; cat init; read -r a; cat list; read -r a", folder.display());
    let mut terminal = run(&["--list"], &[], &agent);
    assert_eq!(terminal.end(), 0, "{}", terminal.screen());
    check("--list", &terminal.bytes());
    let mut terminal = run(&["--login", "none", "hello"], &[], &agent);
    assert_ne!(terminal.end(), 0);
    assert_eq!(obeyed(&terminal.bytes()), None, "--login");
}

fn transcripts_are_shown(folder: &Path) {
    let file = transcript(folder, &talk());
    for args in [
        &["show"][..],
        &["show", "--fold"],
        &["show", "--json"],
        &["show", "--chunks", "--times"],
        &["show", "--redact"],
        &["validate"],
        &["diff", concat!(env!("CARGO_MANIFEST_DIR"), "/tests/transcripts/hello.jsonl")],
    ] {
        let mut terminal = Terminal::start(60, 100, &[args, &[file.as_str()]].concat(), &[]);
        terminal.end();
        let output = terminal.bytes();
        assert_eq!(obeyed(&output), None, "{args:?}");
        assert!(output.contains("p7:"), "{args:?}: {output}");
    }
}

/// The agent's name and its lines that are no messages, in the results of checks.
fn checks_are_reported(folder: &Path) {
    let agent = agent(folder, &talk(), &ends()[0]);
    let checks = ["--only", "initialize-answers", "stdout-only-messages", "--timeout", "2"];
    for args in [&["check"][..], &["check", "--json"]] {
        let mut terminal =
            Terminal::start(60, 100, &[args, &checks, &["--", "sh", "-c", &agent]].concat(), &[]);
        assert_eq!(terminal.end(), 1, "{}", terminal.screen());
        let output = terminal.bytes();
        assert!(output.contains("p0:") && output.contains("stdout-only-messages"), "{args:?}: {output}");
        if args.contains(&"--json") {
            check("check --json", &output);
        }
        assert_eq!(obeyed(&output), None, "{args:?}");
    }
}

/// The conversation as a transcript.
fn transcript(folder: &Path, lines: &[String]) -> String {
    let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap().trim_end().to_owned();
    let all = payloads().concat();
    let header = json!({"format": "acp-transcript", "version": 1, "recorder": all, "program": payloads(),
        "protocolVersion": 1, "started": "2026-11-21T15:00:00Z", "redacted": "nothing"});
    let ask = |id: u64, method: &str, params: Value| {
        json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string()
    };
    let mut said = vec![
        ("client", ask(1, "initialize", json!({"protocolVersion": 1}))),
        ("agent", read("init")),
        ("client", ask(2, "session/new", json!({"cwd": "/", "mcpServers": []}))),
        ("agent", r#"{"jsonrpc":"2.0","id":2,"result":{"sessionId":"s"}}"#.to_owned()),
        (
            "client",
            ask(3, "session/prompt", json!({"sessionId": "s", "prompt": [{"type": "text", "text": all}]})),
        ),
    ];
    said.extend(lines.iter().map(|line| ("agent", line.clone())));
    said.push(("agent", read("end")));
    let mut file = format!("{header}\n");
    for (from, frame) in said {
        file.push_str(&format!("{{\"at\":1,\"from\":\"{from}\",\"frame\":{frame}}}\n"));
    }
    for payload in payloads() {
        let line = payload.replace('\n', " ");
        let noise = json!({"at": 1, "from": "agent", "text": line});
        file.push_str(&format!("{}\n{noise}\n", json!({"at": 1, "stderr": line})));
    }
    let path = folder.join("talk.jsonl");
    fs::write(&path, file).unwrap();
    path.to_str().unwrap().to_owned()
}
