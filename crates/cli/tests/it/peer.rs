//! `duologue peer`: messages to the mock, as another agent would send them.

use std::fs;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::process::shown;

fn peer(args: &[&str], agent: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_duologue"));
    command.arg("peer").args(args).arg("--").args(agent).stdin(Stdio::null());
    shown(&command.output().unwrap())
}

fn mock(args: &[&str]) -> String {
    peer(args, &[env!("CARGO_BIN_EXE_duologue"), "mock", "--pace", "0"])
}

/// An agent that writes the messages that it receives to the file `received`, and sends a notification.
fn listener(folder: &TempDir) -> String {
    format!(
        r#"cd '{}'; read -r a; to=${{a#*'"agentId":"'}}; to=${{to%%'"'*}}; echo '{{"jsonrpc":"2.0","id":1,"result":{{"protocolVersion":1,"agentCapabilities":{{"_meta":{{"duologue":{{"agentId":"a1","envelope":{{"v":[1]}}}}}}}}}}}}'
        read -r a; echo '{{"jsonrpc":"2.0","id":2,"result":{{"sessionId":"s"}}}}'
        echo '{{"jsonrpc":"2.0","method":"_session/notify","params":{{"sessionId":"s","envelope":{{"v":1,"id":"n1","from":"a1","to":"'$to'","ts":1,"kind":"notify","payload":{{"topic":"work.build","data":{{"failed":2}},"importance":"high"}}}}}}}}'
        while read -r a; do printf '%s\n' "$a" >>received; done"#,
        folder.path().display()
    )
}

fn received(folder: &TempDir) -> Value {
    let text = fs::read_to_string(folder.path().join("received")).unwrap();
    let line: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    line["params"]["envelope"].clone()
}

#[test]
fn notifications_are_sent_and_printed() {
    let folder = TempDir::new().unwrap();
    let agent = listener(&folder);
    fs::write(folder.path().join("rota.csv"), "Ann,Bob\n").unwrap();
    let file = folder.path().join("rota.csv");
    let args = ["notify", "family.calendar", r#"{"moved":"dinner"}"#, "--id", "n-7", "--importance", "high"];
    let args = [&args[..], &["--file", file.to_str().unwrap()]].concat();
    assert_eq!(peer(&args, &["sh", "-c", &agent]), "· sent n-7\nexit 0");
    let envelope = received(&folder);
    assert_eq!((&envelope["kind"], &envelope["id"]), (&json!("notify"), &json!("n-7")));
    let payload = &envelope["payload"];
    assert_eq!(payload["data"], json!({"moved": "dinner"}));
    assert_eq!(payload["importance"], "high");
    let attached = json!({"mime_type": "text/csv", "text": "Ann,Bob\n", "name": "rota.csv"});
    assert_eq!(payload["attachments"], json!([attached]));

    let printed = peer(&["subscribe", "work.*", "--count", "1"], &["sh", "-c", &agent]);
    assert_eq!(printed, "work.build\t{\"failed\":2}\nexit 0");
    let printed = peer(&["subscribe", "other", "--time", "200ms", "--json"], &["sh", "-c", &agent]);
    assert_eq!(printed, "exit 0");
}

#[test]
fn tasks_have_a_priority_an_id_and_files() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("plan.md");
    fs::write(&file, "# Plan\n").unwrap();
    let args =
        ["delegate", "Tidy up", "--priority", "critical", "--id", "task-7", "--no-report", "--timeout", "1"];
    let args = [&args[..], &["--file", file.to_str().unwrap()]].concat();
    peer(&args, &["sh", "-c", &listener(&folder)]);
    let envelope = received(&folder);
    assert_eq!(envelope["id"], "task-7");
    assert_eq!(envelope["payload"]["priority"], "critical");
    assert_eq!(envelope["payload"]["attachments"][0]["mime_type"], "text/markdown");
    assert!(mock(&["query", "Who?", "--id", "q-1"]).starts_with("You asked: Who?\n"));
}

#[test]
fn work_is_shown_and_written_only_on_request() {
    let folder = TempDir::new().unwrap();
    let order = |action: &str| {
        let order = json!({"context": {"feature_id": "login", "workflow": "feature", "iteration": 1},
            "paths": {"feature_root": "features/login"}, "task": {"action": action, "params": {}}});
        let file = folder.path().join(format!("{action}.json"));
        fs::write(&file, order.to_string()).unwrap();
        file.to_str().unwrap().to_owned()
    };
    let project = folder.path().join("project");
    fs::create_dir(&project).unwrap();
    let shown = mock(&["work", &order("specify")]);
    assert!(shown.contains("\ncreate ") && shown.ends_with("exit 0"), "{shown}");
    assert_eq!(fs::read_dir(&project).unwrap().count(), 0);
    let shown = mock(&["work", &order("specify"), "--apply", project.to_str().unwrap()]);
    assert!(shown.contains("· wrote 1 file below "), "{shown}");
    assert!(project.join("features/login").read_dir().unwrap().count() == 1);
    let failed = mock(&["work", &order("fail"), "--json", "--apply", project.to_str().unwrap()]);
    assert!(failed.starts_with("{\"kind\":\"work\"") && failed.ends_with("exit 1"), "{failed}");
    let none = peer(&["work", &order("specify")], &["sh", "-c", &listener(&folder)]);
    assert!(none.ends_with("exit 5"), "{none}");
}

#[test]
fn a_dialogue_is_opened_and_its_answer_printed() {
    let to = ["--to", "agent://duologue.dev/mock"];
    let shown = mock(&[&["dialogue", "request", "Is anybody there?"], &to[..]].concat());
    assert!(shown.starts_with("response: You said: Is anybody there?\n· sent "), "{shown}");
    assert!(shown.ends_with("exit 0"), "{shown}");
    let help = Command::new(env!("CARGO_BIN_EXE_duologue")).args(["peer", "dialogue", "--help"]).output();
    let help = String::from_utf8(help.unwrap().stdout).unwrap();
    let readme = include_str!("../../../../README.md");
    assert!(help.contains(to[1]) && readme.contains(to[1]), "{help}");
    let shown = mock(&[&["dialogue", "propose", "Let us stop.", "--json"], &to[..]].concat());
    let line: Value = serde_json::from_str(shown.lines().next().unwrap()).unwrap();
    assert_eq!((&line["kind"], &line["payload"]["message_type"]), (&json!("dialogue"), &json!("accept")));

    let folder = TempDir::new().unwrap();
    let file = folder.path().join("keys.json");
    let keys = |row: Value| fs::write(&file, json!([row]).to_string()).unwrap();
    let with_keys = ["--keys", file.to_str().unwrap(), "--wait", "2s"];
    keys(json!({"id": "k", "owner": "agent://duologue.local", "secret": "short"}));
    let shown = mock(&[&["dialogue", "inform", "Hello."], &to[..], &with_keys].concat());
    assert!(shown.contains("keys.json: ") && shown.ends_with("exit 2"), "{shown}");
    let shown =
        peer(&[&["dialogue", "inform", "Hello."], &to[..]].concat(), &["sh", "-c", &listener(&folder)]);
    assert!(shown.ends_with("exit 5"), "{shown}");
}

#[test]
fn messages_have_a_meta_and_a_trace() {
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let meta = ["--meta", "example.com/thread=t1", "--meta", r#"n={"a":[1]}"#, "--trace", trace];
    let sent = json!({"example.com/thread": "t1", "n": {"a": [1]}, "traceparent": trace});
    let carries = |command: &[&str], kind: &str| {
        let folder = TempDir::new().unwrap();
        peer(&[command, &meta].concat(), &["sh", "-c", &listener(&folder)]);
        let text = fs::read_to_string(folder.path().join("received")).unwrap();
        let line: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
        assert_eq!(line["params"]["envelope"]["kind"], kind);
        for (key, value) in sent.as_object().unwrap() {
            assert_eq!(&line["params"]["_meta"][key], value, "{kind}: {line}");
        }
    };
    let carries = &carries;
    std::thread::scope(|scope| {
        for (command, kind) in [
            (&["notify", "topic", "1"][..], "notify"),
            (&["query", "Who?", "--deadline", "3s"], "query"),
            (&["delegate", "Tidy up", "--no-report", "--timeout", "3"], "delegate"),
            (&["cancel", "task-7", "--reason", "Enough", "--timeout", "3"], "cancel"),
        ] {
            scope.spawn(move || carries(command, kind));
        }
    });
    let folder = TempDir::new().unwrap();
    let order = json!({"context": {"feature_id": "login", "workflow": "feature", "iteration": 1},
        "paths": {"feature_root": "features/login"}, "task": {"action": "specify", "params": {}}});
    let order_file = folder.path().join("order.json");
    fs::write(&order_file, order.to_string()).unwrap();
    let to = "agent://duologue.dev/mock";
    for (command, scheme) in [
        (&["work", order_file.to_str().unwrap()][..], "work"),
        (&["dialogue", "request", "Is anybody there?", "--to", to], "dialogue"),
    ] {
        let file = folder.path().join(format!("{scheme}.jsonl"));
        let recorded = ["--record", file.to_str().unwrap()];
        let shown = mock(&[command, &meta, &recorded].concat());
        assert!(shown.ends_with("exit 0"), "{shown}");
        let text = fs::read_to_string(file).unwrap();
        let mut lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let is_message = |line: &Value| {
            line["from"] == "client"
                && line["frame"]["method"].as_str().is_some_and(|method| method.contains(scheme))
        };
        let line = lines.find(is_message).expect("a message");
        for (key, value) in sent.as_object().unwrap() {
            assert_eq!(&line["frame"]["params"]["_meta"][key], value, "{scheme}: {line}");
        }
    }
    for wrong in [["--trace", "00-1"], ["--meta", "key"], ["--meta", "=1"]] {
        let shown = mock(&[&["query", "Who?"][..], &wrong].concat());
        assert!(shown.ends_with("exit 2"), "{shown}");
    }
}

/// An agent that streams output, out of order and with a gap, and answers queries and cancellations about its task.
fn streaming(folder: &TempDir) -> String {
    format!(
        r#"cd '{}'; read -r a; me=${{a#*'"agentId":"'}}; me=${{me%%'"'*}}
        envelope() {{ printf '{{"v":1,"id":"%s","ref":"%s","from":"a1","to":"%s","ts":1,"kind":"%s","payload":%s}}' "$1" "$2" "$me" "$3" "$4"; }}
        answer() {{ printf '{{"jsonrpc":"2.0","id":%s,"result":{{"envelope":%s}}}}\n' "$1" "$(envelope "r$1" "$2" "$3" "$4")"; }}
        tell() {{ printf '{{"jsonrpc":"2.0","method":"_session/%s","params":{{"sessionId":"s","envelope":%s}}}}\n' "$3" "$(envelope "$1" "$2" "$3" "$4")"; }}
        chunk() {{ tell "c$1" "$t" notify '{{"topic":"task.output","data":{{"chunk":'"$2"',"position":'"$1"',"complete":'"$3"'}}}}'; }}
        echo '{{"jsonrpc":"2.0","id":1,"result":{{"protocolVersion":1,"agentCapabilities":{{"_meta":{{"duologue":{{"agentId":"a1","envelope":{{"v":[1]}}}}}}}}}}}}'
        read -r a; echo '{{"jsonrpc":"2.0","id":2,"result":{{"sessionId":"s"}}}}'
        while read -r a; do n=${{a#*'"id":'}}; n=${{n%%,*}}; t=${{a#*'"envelope":'}}; t=${{t#*'"id":"'}}; t=${{t%%'"'*}}
            case $a in
            *'"kind":"delegate"'*)
                answer "$n" "$t" ack '{{"accepted":true}}'
                chunk 1 '"upon\na time"' false; chunk 0 '"Once"' false; chunk 3 '{{"n":1}}' true
                tell end "$t" result '{{"status":"completed","outcome":"Told."}}';;
            *'"kind":"query"'*)
                case $a in *'"ref":"job-17"'*) answer "$n" "$t" response '{{"summary":"","data":{{"task":"job-17","state":"failed","error":{{"code":"internal","message":"no\nspace"}}}}}}';;
                *) answer "$n" "$t" response '{{"summary":"What?"}}';; esac;;
            *'"kind":"cancel"'*)
                case $a in *'"ref":"job-17"'*) answer "$n" "$t" ack '{{"accepted":true}}';;
                *) answer "$n" "$t" ack '{{"accepted":false,"reason":"no such task"}}';; esac;;
        esac; done"#,
        folder.path().display()
    )
}

#[test]
fn streamed_output_is_printed_in_its_order() {
    let folder = TempDir::new().unwrap();
    let agent = streaming(&folder);
    let printed = peer(&["delegate", "Tell a story"], &["sh", "-c", &agent]);
    insta::assert_snapshot!(printed.replace('\t', " | "), @r#"
    0 | Once
    1 | upon\na time
    3 | {"n":1}
    Told.
    · accepted
    · 1 chunks of the output are missing from position 2 on
    exit 0
    "#);
    let printed = peer(&["delegate", "Tell a story", "--json"], &["sh", "-c", &agent]);
    let lines: Vec<Value> = printed.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let positions = lines.iter().filter_map(|line| line["payload"]["data"]["position"].as_u64());
    assert_eq!(positions.collect::<Vec<_>>(), [0, 1, 3], "{printed}");
    let kinds: Vec<_> = lines.iter().map(|line| line["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["ack", "notify", "notify", "notify", "result"], "{printed}");
}

#[test]
fn tasks_have_a_state_and_are_cancelled_by_their_id() {
    let folder = TempDir::new().unwrap();
    let agent = streaming(&folder);
    let agent = ["sh", "-c", &agent];
    let shown = peer(&["status", "job-17"], &agent);
    assert_eq!(shown, "failed: no\\nspace (internal)\nexit 0");
    let shown = peer(&["status", "job-17", "--json"], &agent);
    assert!(shown.starts_with(r#"{"kind":"status","payload":{"task":"job-17","state":"failed","#), "{shown}");
    assert!(peer(&["status", "job-18"], &agent).ends_with("exit 3"));
    assert_eq!(peer(&["cancel", "job-17"], &agent), "· the agent cancels the task\nexit 0");
    let shown = peer(&["cancel", "job-18"], &agent);
    assert_eq!(shown, "· the agent does not cancel: no such task\nexit 1");
    // Our own agents remember the tasks of their connection.
    for command in ["status", "cancel"] {
        let shown = mock(&[command, "job-17"]);
        assert!(shown.contains("not_found") && shown.ends_with("exit 1"), "{shown}");
    }
}

/// The names from before are still accepted, and are not listed.
#[test]
fn the_old_names_still_work() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_duologue"));
    let help = shown(&command.arg("--help").output().unwrap());
    assert!(help.contains("\n  peer ") && !help.contains("\n  query "), "{help}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_duologue"));
    let old = shown(&command.args(["discover"]).stdin(Stdio::null()).output().unwrap());
    assert_eq!(old, mock(&["discover"]));
}
