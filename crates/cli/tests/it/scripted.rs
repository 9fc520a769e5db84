//! An agent that plays lines, and waits for the answer to each of its requests.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

/// The end of the turn.
pub(crate) fn end_turn() -> Value {
    json!({"jsonrpc": "2.0", "id": 3, "result": {"stopReason": "end_turn"}})
}

pub(crate) fn update(update: Value) -> Value {
    json!({"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "s", "update": update}})
}

/// A request of session `s`, unless the params name another one.
pub(crate) fn request(id: &str, method: &str, params: Value) -> Value {
    let mut all = json!({"sessionId": "s"});
    let members = params.as_object().unwrap().clone();
    all.as_object_mut().unwrap().extend(members);
    json!({"jsonrpc": "2.0", "id": format!("q {id}"), "method": method, "params": all})
}

/// A question whether a tool call may run.
pub(crate) fn ask(id: &str, call: Value) -> Value {
    let option = |id: &str, name: &str, kind: &str| json!({"optionId": id, "name": name, "kind": kind});
    let options = [
        option("yes", "Yes", "allow_once"),
        option("all", "Always", "allow_always"),
        option("no", "No", "reject_once"),
    ];
    request(id, "session/request_permission", json!({"toolCall": call, "options": options}))
}

/// Returns the shell script of an agent that sends the lines after the first prompt. The answers to its requests are
/// in the file `answers` of the folder.
pub(crate) fn agent(folder: &Path, lines: &[Value]) -> String {
    let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
    fs::write(folder.join("lines"), lines).unwrap();
    format!(
        r#"cd '{}'; read -r a; echo '{{"jsonrpc":"2.0","id":1,"result":{{"protocolVersion":1}}}}'
        read -r a; echo '{{"jsonrpc":"2.0","id":2,"result":{{"sessionId":"s"}}}}'; read -r a
        while IFS= read -r line <&3; do
            printf '%s\n' "$line"
            case $line in *'"id":"q '*) read -r answer; printf '%s\n' "$answer" >&4;; esac
        done 3<lines 4>answers; read -r a"#,
        folder.display()
    )
}

/// An agent that sends a message without an id after the end of each turn.
pub(crate) fn talkative(folder: &Path) -> String {
    let chunk = |text: &str| {
        format!(
            r#"'{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":"s","update":{{"sessionUpdate":"agent_message_chunk","content":{{"type":"text","text":"{text} '$id'"}}}}}}}}'"#
        )
    };
    format!(
        r#"cd '{}'; read -r a; echo '{{"jsonrpc":"2.0","id":1,"result":{{"protocolVersion":1}}}}'
        read -r a; echo '{{"jsonrpc":"2.0","id":2,"result":{{"sessionId":"s"}}}}'
        id=3; while IFS= read -r a; do echo {}
            printf '%s\n%s\n' '{{"jsonrpc":"2.0","id":'$id',"result":{{"stopReason":"end_turn"}}}}' {}
            id=$((id+1)); done"#,
        folder.display(),
        chunk("answer"),
        chunk("stray"),
    )
}
