//! Child sessions, plans and system prompts through a server and a hub, as processes.
#![cfg(all(unix, feature = "serve"))]

use std::process::Command;

use serde_json::{Value, json};

use crate::process::DUOLOGUE;
use crate::served::{RawClient, Server, prompt, text};

fn able() -> Value {
    json!({"plan": {}, "subagents": {}})
}

fn with_transport(server: &Server, transport: &str, capabilities: &Value) -> RawClient {
    RawClient::of(server.connect().args(["--transport", transport]), capabilities)
}

/// Returns the updates of a kind, each with its session.
fn updates<'a>(messages: &'a [Value], kind: &str) -> Vec<(&'a str, &'a Value)> {
    let params = messages.iter().map(|message| &message["params"]);
    let found = params.filter(|params| params["update"]["sessionUpdate"] == kind);
    found.map(|params| (params["sessionId"].as_str().expect("a session"), &params["update"])).collect()
}

/// Returns the id of the child, which all updates name, and the text of its messages.
fn child_of(session: &str, messages: &[Value]) -> (String, String) {
    let announced = updates(messages, "subagent_update");
    let (parent, update) = announced.first().unwrap_or_else(|| panic!("no child: {messages:?}"));
    assert_eq!((*parent, &update["title"]), (session, &json!("Reviewer")));
    let child = update["sessionId"].as_str().expect("an id").to_owned();
    assert!(child.starts_with(&format!("{session}~")), "{child}");
    assert!(announced.iter().all(|(_, update)| update["sessionId"] == *child), "{announced:?}");
    let calls = [updates(messages, "tool_call"), updates(messages, "tool_call_update")].concat();
    let references: Vec<_> = calls
        .iter()
        .flat_map(|(_, call)| call["content"].as_array().into_iter().flatten())
        .filter(|content| content["type"] == "session")
        .collect();
    assert!(!references.is_empty() && references.iter().all(|content| content["sessionId"] == *child));
    let received = updates(messages, "session_message");
    let between: Vec<_> = received
        .iter()
        .map(|(at, message)| (*at == session, &message["senderSessionId"], &message["recipientSessionId"]))
        .filter(|(_, sender, _)| sender.is_string())
        .collect();
    let (parent, child_id) = (json!(session), json!(child));
    assert!(
        between.contains(&(true, &parent, &child_id)) && between.contains(&(true, &child_id, &parent)),
        "{between:?}"
    );
    let own: Vec<_> =
        messages.iter().filter(|message| message["params"]["sessionId"] == *child).cloned().collect();
    (child, text(&own))
}

#[test]
fn a_child_session_is_shown_live_and_after_a_restart() {
    for (transport, is_shared) in [("ws", false), ("sse", false), ("ws", true)] {
        let data = tempfile::tempdir().unwrap();
        let start = || {
            let mut command = Command::new(DUOLOGUE);
            command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(data.path());
            command.args(is_shared.then_some("--shared"));
            Server::of(command.args(["--", DUOLOGUE, "mock", "--pace", "0"]))
        };
        let mut server = start();
        let mut client = with_transport(&server, transport, &able());
        let mut other = with_transport(&server, transport, &json!({}));
        let session = client.session();
        let load = json!({"sessionId": session, "cwd": "/tmp", "mcpServers": []});
        other.request("session/load", &load);
        let (ended, messages) = client.request_with("session/prompt", &prompt(&session, "subagents"));
        assert_eq!(ended["result"]["stopReason"], "end_turn", "{ended}");
        let (child, said) = child_of(&session, &messages);
        assert!(said.contains("I read the change."), "{said}");
        let states: Vec<_> = updates(&messages, "subagent_update")
            .iter()
            .map(|(_, update)| update["state"]["state"].clone())
            .collect();
        assert_eq!((states.first(), states.last()), (Some(&json!("running")), Some(&json!("idle"))));
        // A client that does not show children has the rest.
        let mut shown = Vec::new();
        while !text(&shown).contains("reviewer is done.") {
            shown.push(other.next());
        }
        assert!(shown.iter().all(|message| message["params"]["sessionId"] == *session), "{shown:?}");
        assert!(!json!(shown).to_string().contains('~') && updates(&shown, "subagent_update").is_empty());
        // The next life of the server.
        drop((client, other));
        server.kill();
        let server = start();
        let mut client = with_transport(&server, transport, &able());
        let (loaded, messages) = client.request_with("session/load", &load);
        assert!(loaded["error"].is_null(), "{loaded}");
        let (loaded, said) = child_of(&session, &messages);
        assert_eq!(loaded, child, "{transport}");
        assert!(said.contains("I read the change."), "{transport}: {said}");
        let position = |of: &dyn Fn(&Value) -> bool| messages.iter().position(of);
        let announced =
            position(&|message| message["params"]["update"]["sessionUpdate"] == "subagent_update");
        assert!(announced < position(&|message| message["params"]["sessionId"] == *child));
        let mut other = with_transport(&server, transport, &json!({}));
        let (_, messages) = other.request_with("session/load", &load);
        assert!(!json!(messages).to_string().contains('~'), "{messages:?}");
    }
}

#[test]
fn a_child_session_is_cancelled_through_a_server() {
    for transport in ["ws", "sse"] {
        let data = tempfile::tempdir().unwrap();
        let server = Server::start(data.path(), "100");
        let mut client = with_transport(&server, transport, &able());
        let session = client.session();
        let id = client.send("session/prompt", &prompt(&session, "subagents"));
        let mut messages = Vec::new();
        loop {
            let message = client.next();
            if message["id"] == id && message["method"].is_null() {
                break assert_eq!(message["result"]["stopReason"], "end_turn");
            }
            let announced = &message["params"]["update"]["sessionId"];
            if messages.iter().all(|message: &Value| message["params"]["update"]["sessionId"].is_null())
                && announced.is_string()
            {
                let params = json!({"sessionId": announced});
                client.write(&json!({"jsonrpc": "2.0", "method": "session/cancel", "params": params}));
            }
            messages.push(message);
        }
        let announced = updates(&messages, "subagent_update");
        let (_, last) = announced.last().unwrap_or_else(|| panic!("no child: {messages:?}"));
        assert_eq!(last["state"]["stopReason"], "cancelled", "{transport}: {last}");
        let own: Vec<_> =
            messages.iter().filter(|message| message["params"]["sessionId"] == *session).cloned().collect();
        assert!(text(&own).ends_with("The reviewer was stopped."), "{}", text(&own));
    }
}

#[test]
fn a_system_prompt_reaches_an_agent_that_reads_them() {
    let data = tempfile::tempdir().unwrap();
    let received = data.path().join("received");
    let script = format!(
        r#"read -r a; echo '{{"jsonrpc":"2.0","id":"hub:initialize","result":{{"protocolVersion":1,"agentCapabilities":{{"sessionCapabilities":{{"systemPrompt":{{"mode":{{"override":{{}}}}}},"additionalDirectories":{{}}}}}}}}}}'; read -r a; echo "$a" > {}; echo '{{"jsonrpc":"2.0","id":"hub:session/new","result":{{"sessionId":"s"}}}}'; read -r a"#,
        received.display()
    );
    let mut command = Command::new(DUOLOGUE);
    command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(data.path());
    let server = Server::of(command.args(["--", "sh", "-c", &script]));
    let mut client = RawClient::with(&server, &json!({}));
    let capabilities = &client.introduction["result"]["agentCapabilities"]["sessionCapabilities"];
    assert_eq!(capabilities["systemPrompt"], json!({"mode": {"override": {}}}));
    assert_eq!(capabilities["additionalDirectories"], json!({}));
    let system = json!({"mode": "append", "content": [{"type": "text", "text": "Answer briefly."}]});
    let params = json!({"cwd": "/tmp", "mcpServers": [], "systemPrompt": system});
    assert!(client.request("session/new", &params)["error"].is_null());
    let received: Value = serde_json::from_str(&std::fs::read_to_string(received).unwrap()).unwrap();
    assert_eq!(received["params"]["systemPrompt"], system);
}
