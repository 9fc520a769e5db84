//! The mock covers the protocol: every update, every call to the client, every name the schema knows.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use duologue_schema::{METHODS, export};
use serde_json::{Value, json};

/// A client that can do everything, and keeps what it is sent.
struct Editor {
    mock: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    session: Value,
    frames: Vec<Value>,
}

impl Editor {
    fn start(args: &[&str], client: &Value) -> Editor {
        let mut mock = Command::new(env!("CARGO_BIN_EXE_duologue"))
            .args(["mock", "--pace", "0"])
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (to, from) = (mock.stdin.take().unwrap(), BufReader::new(mock.stdout.take().unwrap()));
        let mut editor = Editor { mock, to, from, session: Value::Null, frames: Vec::new() };
        editor.ask("initialize", &json!({ "protocolVersion": 1, "clientCapabilities": client }));
        editor
    }

    /// A client that can do everything, in a session.
    fn whole() -> Editor {
        let mut editor = Editor::start(
            &[],
            &json!({
                "fs": { "readTextFile": true, "writeTextFile": true },
                "terminal": true,
                "plan": {},
                "subagents": {},
                "session": { "notices": {}, "compaction": {}, "configOptions": { "boolean": {} } },
                "elicitation": { "form": {}, "url": {} },
                "_meta": { "duologue": { "messageClear": true } },
            }),
        );
        editor.new_session();
        editor
    }

    fn new_session(&mut self) {
        let made = self.ask("session/new", &json!({ "cwd": "/work/project", "mcpServers": [] }));
        self.session = made["result"]["sessionId"].clone();
    }

    fn send(&mut self, frame: &Value) {
        writeln!(self.to, "{frame}").unwrap();
    }

    /// Sends a request and does what the agent asks until its answer comes.
    fn ask(&mut self, method: &str, params: &Value) -> Value {
        self.send(&json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }));
        loop {
            let mut line = String::new();
            assert!(self.from.read_line(&mut line).unwrap() > 0, "the mock ended during {method}");
            let frame: Value = serde_json::from_str(&line).unwrap();
            self.frames.push(frame.clone());
            match (frame["method"].as_str(), frame.get("id")) {
                (None, Some(_)) => return frame,
                (Some(asked), Some(id)) => {
                    let result = answer(asked);
                    self.send(&json!({ "jsonrpc": "2.0", "id": id, "result": result }));
                }
                _ if frame["params"]["update"]["content"]["text"] == "me." => {
                    // The scenario `cancel` sends this text and then works until it is cancelled.
                    let session = self.session.clone();
                    let params = json!({ "sessionId": session });
                    self.send(&json!({ "jsonrpc": "2.0", "method": "session/cancel", "params": params }));
                }
                _ => {}
            }
        }
    }

    fn prompt(&mut self, text: &str) -> Value {
        let params = json!({ "sessionId": self.session, "prompt": [{ "type": "text", "text": text }] });
        self.ask("session/prompt", &params)
    }

    fn end(mut self) -> Vec<Value> {
        drop(self.to);
        assert!(self.mock.wait().unwrap().success());
        self.frames
    }
}

fn answer(method: &str) -> Value {
    match method {
        "session/request_permission" => {
            json!({ "outcome": { "outcome": "selected", "optionId": "allow-once" } })
        }
        "fs/read_text_file" => json!({ "content": "text" }),
        "terminal/create" => json!({ "terminalId": "terminal-1" }),
        "terminal/output" => json!({ "output": "hello", "truncated": false }),
        "terminal/wait_for_exit" => json!({ "exitCode": 0 }),
        "elicitation/create" => json!({ "action": "accept", "content": { "name": "me" } }),
        _ => json!({}),
    }
}

/// The scenarios, by the list that people get.
fn scenarios() -> Vec<String> {
    let list = Command::new(env!("CARGO_BIN_EXE_duologue")).args(["mock", "--list"]).output().unwrap();
    let list = String::from_utf8(list.stdout).unwrap();
    list.lines().map(|line| line.split_whitespace().next().unwrap().to_owned()).collect()
}

#[test]
fn help_lists_the_scenarios() {
    let output = |word: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_duologue")).args(["mock", word]).output().unwrap();
        assert!(output.status.success(), "{word}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(output("help"), output("--list"));
    assert!(!output("--list").contains("\nhelp "));
}

/// The values of `key` anywhere in the frames, in objects that `fits`.
fn values(frames: &[Value], key: &str, fits: &dyn Fn(&Value) -> bool) -> BTreeSet<String> {
    fn look(value: &Value, key: &str, fits: &dyn Fn(&Value) -> bool, found: &mut BTreeSet<String>) {
        match value {
            Value::Object(object) => {
                if fits(value) {
                    found.extend(object.get(key).and_then(Value::as_str).map(str::to_owned));
                }
                object.values().for_each(|value| look(value, key, fits, found));
            }
            Value::Array(items) => items.iter().for_each(|value| look(value, key, fits, found)),
            _ => {}
        }
    }
    let mut found = BTreeSet::new();
    frames.iter().for_each(|frame| look(frame, key, fits, &mut found));
    found
}

/// The names the schema has for a type: its constants, or the tags of its variants.
fn names(definition: &str, tag: Option<&str>) -> BTreeSet<String> {
    let document = export::document();
    let definition = &document["$defs"][definition];
    // A type that others may add names to is an `anyOf`.
    let variants = definition.get("oneOf").or(definition.get("anyOf")).and_then(Value::as_array);
    let constant = |variant: &Value| match tag {
        Some(tag) => variant["properties"][tag]["const"].as_str().map(str::to_owned),
        None => variant["const"].as_str().map(str::to_owned),
    };
    let names: BTreeSet<_> = variants.into_iter().flatten().filter_map(constant).collect();
    assert!(!names.is_empty(), "the schema has another form: {definition}");
    names
}

#[test]
fn covers_every_update_and_every_callback() {
    let mut editor = Editor::whole();
    for scenario in scenarios().iter().filter(|name| !["slow", "crash"].contains(&name.as_str())) {
        editor.prompt(scenario);
    }
    let load = json!({ "sessionId": "session-old-1", "cwd": "/work/project", "mcpServers": [] });
    editor.ask("session/load", &load);
    let frames = editor.end();

    let is_update = |value: &Value| value.get("sessionUpdate").is_some();
    let is_call = |value: &Value| value.get("toolCallId").is_some();
    let all = |_: &Value| true;
    let missing = |definition: &str, tag: Option<&str>, found: BTreeSet<String>| -> Vec<String> {
        names(definition, tag).difference(&found).cloned().collect()
    };
    let none: [String; 0] = [];
    let updates = values(&frames, "sessionUpdate", &is_update);
    assert_eq!(missing("SessionUpdate", Some("sessionUpdate"), updates), none);
    assert_eq!(missing("StopReason", None, values(&frames, "stopReason", &all)), none);
    assert_eq!(missing("ToolKind", None, values(&frames, "kind", &is_call)), none);
    assert_eq!(missing("ToolCallStatus", None, values(&frames, "status", &is_call)), none);
    assert_eq!(missing("PermissionOptionKind", None, values(&frames, "kind", &all)), none);
    assert_eq!(missing("PlanEntryStatus", None, values(&frames, "status", &all)), none);
    assert_eq!(missing("NoticeSeverity", None, values(&frames, "severity", &all)), none);
    assert_eq!(missing("ContentBlock", Some("type"), values(&frames, "type", &all)), none);
    assert_eq!(missing("ToolCallContent", Some("type"), values(&frames, "type", &all)), none);

    let methods = values(&frames, "method", &all);
    let [_, client, _] = METHODS;
    let uncalled: Vec<_> =
        client.iter().map(|row| row.method).filter(|method| !methods.contains(*method)).collect();
    assert_eq!(uncalled, [""; 0]);
}

#[test]
fn says_the_same_every_time() {
    let session = || {
        let mut editor = Editor::whole();
        for scenario in ["hello", "tools", "permission", "clear", "elicitation", "something unheard of"] {
            editor.prompt(scenario);
        }
        editor.end()
    };
    assert_eq!(session(), session());
}

/// For an editor that knows nothing of clearing, a draft is set apart, and what comes is another message.
#[test]
fn is_kind_to_clients_that_cannot_clear() {
    let mut editor = Editor::start(&["hello"], &json!({}));
    editor.new_session();
    editor.prompt("whatever");
    let frames = editor.end();
    let updates = values(&frames, "sessionUpdate", &|_| true);
    assert_eq!(
        updates,
        ["agent_message_chunk", "agent_thought_chunk", "available_commands_update"].map(Into::into).into()
    );
    assert_eq!(
        values(&frames, "messageId", &|_| true),
        ["message-1", "message-2", "message-3"].map(Into::into).into()
    );
}

/// A client that has not advertised them gets a plan without an id, and no child session.
#[test]
fn sends_plans_by_id_and_child_sessions_to_clients_that_show_them() {
    let of_children = ["session_message", "session_message_chunk", "subagent_update"];
    let by_id = ["plan_removed", "plan_update"];
    for (client, plans, children) in [
        (json!({}), false, false),
        (json!({ "plan": {} }), true, false),
        (json!({ "subagents": {} }), false, true),
        (json!({ "plan": {}, "subagents": {} }), true, true),
    ] {
        let mut editor = Editor::start(&[], &client);
        editor.new_session();
        let session = editor.session.clone();
        for scenario in ["plans", "subagents"] {
            assert_eq!(editor.prompt(scenario)["result"]["stopReason"], "end_turn", "{client}");
        }
        let frames = editor.end();
        let updates = values(&frames, "sessionUpdate", &|_| true);
        let sent = |names: &[&str]| names.iter().filter(|name| updates.contains(**name)).count();
        assert_eq!(sent(&by_id), if plans { 2 } else { 0 }, "{client}: {updates:?}");
        assert_eq!(sent(&["plan"]), usize::from(!plans), "{client}: {updates:?}");
        assert_eq!(sent(&of_children), if children { 3 } else { 0 }, "{client}: {updates:?}");
        let others: Vec<_> = frames
            .iter()
            .filter(|frame| frame["method"] == "session/update" && frame["params"]["sessionId"] != session)
            .collect();
        assert_eq!(others.is_empty(), !children, "{client}");
        let types = values(&frames, "type", &|value| value.get("sessionId").is_some());
        assert_eq!(types.contains("session"), children, "{client}");
    }
}

#[test]
fn wants_a_login_when_started_for_that() {
    let mut editor = Editor::start(&["login"], &json!({}));
    let session = json!({ "cwd": "/work", "mcpServers": [] });
    assert_eq!(editor.ask("session/new", &session)["error"]["code"], -32000);
    editor.ask("authenticate", &json!({ "methodId": "mock-login" }));
    editor.new_session();
    assert_eq!(editor.prompt("hello")["result"]["stopReason"], "end_turn");
    editor.ask("logout", &json!({}));
    assert_eq!(editor.prompt("hello")["error"]["code"], -32000);
    editor.end();
}

#[test]
fn keeps_sessions_to_list_load_resume_close_and_delete() {
    let mut editor = Editor::whole();
    let first = editor.ask("session/list", &json!({}));
    assert_eq!(first["result"]["sessions"][0]["sessionId"], "session-old-1");
    let cursor = first["result"]["nextCursor"].clone();
    let second = editor.ask("session/list", &json!({ "cursor": cursor }));
    assert_eq!(second["result"]["sessions"][0]["sessionId"], "session-old-2");
    let resume = json!({ "sessionId": "session-old-2", "cwd": "/work", "mcpServers": [] });
    assert_eq!(editor.ask("session/resume", &resume)["result"]["modes"]["currentModeId"], "ask");
    editor.ask("session/close", &json!({ "sessionId": "session-old-2" }));
    editor.ask("session/delete", &json!({ "sessionId": "session-old-2" }));
    assert_eq!(editor.ask("session/resume", &resume)["error"]["code"], -32002);
    editor.end();
}

#[test]
fn takes_modes_and_options_as_they_are_offered() {
    let mut editor = Editor::whole();
    let session = editor.session.clone();
    let mut set = |option: &str, value: Value, kind: Option<&str>| {
        let mut params = json!({ "sessionId": session, "configId": option, "value": value });
        if let Some(kind) = kind {
            params["type"] = kind.into();
        }
        editor.ask("session/set_config_option", &params)
    };
    assert_eq!(set("model", "huge".into(), None)["result"]["configOptions"][1]["currentValue"], "huge");
    assert_eq!(
        set("verbose", true.into(), Some("boolean"))["result"]["configOptions"][3]["currentValue"],
        true
    );
    assert_eq!(set("model", "tiny".into(), None)["error"]["code"], -32602);
    let mode = json!({ "sessionId": session, "modeId": "code" });
    assert_eq!(editor.ask("session/set_mode", &mode)["result"], json!({}));
    let mode = json!({ "sessionId": session, "modeId": "chaos" });
    assert_eq!(editor.ask("session/set_mode", &mode)["error"]["code"], -32602);
    let echo = editor.ask("_duologue.dev/echo", &json!({ "a": 1 }));
    assert_eq!(echo["result"], json!({ "a": 1 }));
    editor.end();
}
