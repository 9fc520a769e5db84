//! `duologue run` with agents that are shell scripts: their answers, their questions and their end.
#![cfg(unix)]

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::process::{DUOLOGUE, run, shown};

/// Returns a line of a script that reads a message and answers it.
fn answer(id: u32, result: &Value) -> String {
    format!("read -r a; echo '{}'\n", json!({"jsonrpc": "2.0", "id": id, "result": result}))
}

/// Returns `duologue run` with an agent that has answered `initialize`.
fn agent(args: &[&str], then: &str) -> Command {
    let script = [&answer(1, &json!({"protocolVersion": 1})), then].concat();
    let mut command = Command::new(DUOLOGUE);
    command.arg("run").args(args).args(["--", "sh", "-c", &script]);
    command
}

#[test]
fn an_agent_that_saves_on_sigterm_is_not_killed() {
    for (signal, code) in [("HUP", 129), ("TERM", 143)] {
        let folder = tempfile::tempdir().unwrap();
        let saved = folder.path().join("saved");
        let then = format!(
            "{}read -r a; trap 'echo saved > {}; exit' TERM; echo ready >&2; while :; do sleep 0.05; done",
            answer(2, &json!({"sessionId": "s"})),
            saved.display()
        );
        let mut command = agent(&["hi", "-v"], &then);
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        while !line.contains("ready") {
            line.clear();
            assert!(stderr.read_line(&mut line).unwrap() > 0, "it ended before the signal");
        }
        let id = child.id().to_string();
        assert!(Command::new("kill").args([&format!("-{signal}"), &id]).status().unwrap().success());
        assert_eq!(child.wait().unwrap().code(), Some(code), "{signal}");
        assert_eq!(std::fs::read_to_string(&saved).unwrap_or_default(), "saved\n", "{signal}");
    }
}

/// The agent still works when its input has ended, and says so in the place of messages.
#[test]
fn an_agent_that_reads_its_input_to_the_end_has_time_to_save() {
    let folder = tempfile::tempdir().unwrap();
    let saved = folder.path().join("saved");
    let then = format!(
        "{}{}cat >/dev/null; echo 'bye; {{'; echo saved > {}",
        answer(2, &json!({"sessionId": "s"})),
        answer(3, &json!({"stopReason": "end_turn"})),
        saved.display()
    );
    let output = run(&mut agent(&["hi"], &then), "");
    assert_eq!(shown(&output), "exit 0");
    assert_eq!(std::fs::read_to_string(&saved).unwrap_or_default(), "saved\n");
}

#[test]
fn an_answer_without_options_sets_the_option() {
    let choices = json!([{"value": "small", "name": "S"}, {"value": "large", "name": "L"}]);
    let model = json!({"id": "model", "name": "Model", "type": "select", "currentValue": "small", "options": choices});
    for result in [json!({}), json!({"configOptions": null}), json!(null)] {
        let then = [
            answer(2, &json!({"sessionId": "s", "configOptions": [model]})),
            answer(3, &result),
            answer(4, &json!({"stopReason": "end_turn"})),
            "read -r a".to_owned(),
        ];
        let output = run(&mut agent(&["hi", "--option", "model=large"], &then.concat()), "");
        assert_eq!(shown(&output), "exit 0", "{result}");
    }
}

/// The options are the answers to a question, and not steps of a permission.
#[test]
fn a_rule_chooses_none_of_several_answers() {
    let option = |id: &str, kind: &str| json!({"optionId": id, "name": id, "kind": kind});
    let options = json!([
        option("sqlite", "allow_once"),
        option("postgres", "allow_once"),
        option("no", "reject_once")
    ]);
    let call = json!({"toolCallId": "t", "title": "Which database?", "kind": "execute"});
    let question = json!({"jsonrpc": "2.0", "id": 9, "method": "session/request_permission",
        "params": {"sessionId": "s", "toolCall": call, "options": options}});
    // The answer of the client is the text of the agent.
    let then = format!(
        r#"{}read -r a; echo '{question}'; read -r reply
        case "$reply" in *cancelled*) text=cancelled;; *) text=chosen;; esac
        echo '{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":"s","update":{{"sessionUpdate":"agent_message_chunk","content":{{"type":"text","text":"'$text'"}}}}}}}}'
        echo '{{"jsonrpc":"2.0","id":3,"result":{{"stopReason":"end_turn"}}}}'; read -r a"#,
        answer(2, &json!({"sessionId": "s"})),
    );
    for rule in [&["--yes"][..], &["--allow", "execute"]] {
        let output = run(&mut agent(&[&["hi"], rule].concat(), &then), "");
        let shown = shown(&output);
        assert!(shown.starts_with("cancelled\n"), "{rule:?}: {shown}");
        assert!(shown.contains("not answered: several options allow it"), "{rule:?}: {shown}");
        assert!(!output.status.success(), "{rule:?}: {shown}");
    }
}

#[test]
fn a_login_that_did_not_help_is_not_proposed_again() {
    let method = |id: &str| json!({"id": id, "name": id});
    for (methods, advice) in [
        (json!([method("a")]), "it offers no other login"),
        (json!([method("a"), method("b")]), "try another login:\n    --login b"),
    ] {
        let refused = json!({"jsonrpc": "2.0", "id": 3, "error": {"code": -32000, "message": "locked"}});
        let script = [
            answer(1, &json!({"protocolVersion": 1, "authMethods": methods})),
            answer(2, &json!({})),
            format!("read -r a; echo '{refused}'; read -r a"),
        ];
        let mut command = Command::new(DUOLOGUE);
        command.args(["run", "hi", "--login", "a", "--", "sh", "-c", &script.concat()]);
        let shown = shown(&run(&mut command, ""));
        let text = "error: the agent still requires a login after --login a: locked";
        assert!(shown.contains(text) && shown.contains(advice), "{shown}");
        assert!(!shown.contains("--login a  "), "{shown}");
    }
}

/// The detail is for the developer of the agent.
#[test]
fn the_detail_of_an_error_is_shown_if_it_is_wanted() {
    let data = json!({"detail": "join it with Session::cwd()"});
    let error = json!({"code": -32603, "message": "a relative path", "data": data});
    let script = [
        answer(1, &json!({"protocolVersion": 1})),
        answer(2, &json!({"sessionId": "s"})),
        format!("read -r a; echo '{}'; read -r a", json!({"jsonrpc": "2.0", "id": 3, "error": error})),
    ];
    for (option, detail) in [("-v", "\n  detail: join it with Session::cwd()"), ("--no-tools", "")] {
        let mut command = Command::new(DUOLOGUE);
        command.args(["run", "hi", option, "--", "sh", "-c", &script.concat()]);
        let shown = shown(&run(&mut command, ""));
        let text = format!("error: the agent responded with an error: a relative path (-32603){detail}\n");
        assert!(shown.contains(&text), "{shown}");
    }
}

#[test]
fn an_agent_without_its_dashes_gets_a_tip() {
    let tip = "tip: the agent's command follows `--`";
    for (args, has_tip) in [
        (&["run", "hi", "my-agent"][..], true),
        (&["query", "Who?", "my-agent", "--acp"], true),
        (&["run", "hi", "--nosuch"], false),
        (&["show", "a.jsonl", "b.jsonl"], false),
    ] {
        let output = Command::new(DUOLOGUE).args(args).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), stderr.contains(tip)), (Some(2), has_tip), "{stderr}");
    }
}

#[test]
fn the_messages_of_a_child_session_are_shown() {
    let with_mock = |args: &[&str]| {
        let mut command = Command::new(DUOLOGUE);
        command.args(["run", "subagents"]).args(args).args(["--", DUOLOGUE, "mock", "--pace", "0"]);
        run(&mut command, "")
    };
    let output = with_mock(&[]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "The reviewer is done.\n");
    let notes = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(notes, "· Reviewer: I read the change.\n· Reviewer: Read src/main.rs\n");
    let output = with_mock(&["--json"]);
    let lines: Vec<Value> = output
        .stdout
        .split(|byte| *byte == b'\n')
        .filter_map(|line| serde_json::from_slice(line).ok())
        .collect();
    let kind = |line: &Value| line["update"]["sessionUpdate"].as_str().unwrap_or_default().to_owned();
    let announced = lines.iter().position(|line| kind(line) == "subagent_update").expect("a child");
    let child = &lines[announced]["update"]["sessionId"];
    let of_child: Vec<usize> =
        (0..lines.len()).filter(|index| lines[*index]["sessionId"] == *child).collect();
    let text: String =
        of_child.iter().filter_map(|index| lines[*index]["update"]["content"]["text"].as_str()).collect();
    assert!(text.contains("I read the change."), "{lines:?}");
    let outcome = lines.iter().position(|line| line["outcome"].is_object()).expect("an end");
    assert!(of_child.iter().all(|index| (announced..outcome).contains(index)), "{lines:?}");
}

/// The agent tells what the prompt contains by its stop reason.
#[test]
fn a_lost_conversation_can_be_begun_again() {
    for (options, code) in [(&["hi", "--fresh"][..], 0), (&["hi"], 1)] {
        let end = |reason: &str| json!({"jsonrpc": "2.0", "id": 3, "result": {"stopReason": reason}});
        let then = format!(
            "{}read -r a; case $a in *'\"duologue\":{{\"fresh\":true}}'*) echo '{}';; *) echo '{}';; esac; read -r a",
            answer(2, &json!({"sessionId": "s"})),
            end("end_turn"),
            end("refusal"),
        );
        let ended = run(&mut agent(options, &then), "");
        assert_eq!(ended.status.code(), Some(code), "{}", String::from_utf8_lossy(&ended.stderr));
    }
}
