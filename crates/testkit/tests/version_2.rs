//! The scenarios of the mock agent that show protocol version 2.
#![cfg(feature = "protocol-v2")]

use std::time::Duration;

use duologue_testkit::{MockAgent, ScriptedPeer};
use serde_json::{Value, json};

struct Editor {
    peer: ScriptedPeer,
    session: Value,
}

impl Editor {
    async fn start() -> Self {
        let agent = MockAgent::new().pace(Duration::from_millis(10)).spawn().unwrap();
        let mut peer = ScriptedPeer::over(agent);
        let capabilities = json!({"elicitation": {"form": {}, "url": {}}});
        let info = json!({"name": "editor", "version": "1"});
        let hello = json!({"protocolVersion": 2, "info": info, "capabilities": capabilities});
        let response = peer.request("initialize", hello).await;
        assert_eq!(response["result"]["protocolVersion"], 2, "{response}");
        let id = peer.send_request("session/new", json!({"cwd": "/"})).await;
        let opened = peer.next_message().await;
        assert_eq!(opened["id"], id, "{opened}");
        let commands = peer.expect("session/update").await;
        let commands = commands["params"]["update"]["availableCommands"].to_string();
        assert!(commands.contains("\"upserts\""), "{commands}");
        Editor { peer, session: opened["result"]["sessionId"].clone() }
    }

    async fn prompt(&mut self, text: &str) {
        let prompt = json!([{"type": "text", "text": text}]);
        let id = self
            .peer
            .send_request("session/prompt", json!({"sessionId": self.session, "prompt": prompt}))
            .await;
        assert_eq!(self.peer.next_message().await["id"], id);
        assert_eq!(self.line().await, "user_message");
        assert!(self.line().await.starts_with("running"));
    }

    /// Describes the next message, and answers a request.
    async fn line(&mut self) -> String {
        let message = self.peer.next_message().await;
        if message["method"] == "elicitation/create" {
            self.peer.respond(&message, json!({"action": "decline"})).await;
            return "elicitation".to_owned();
        }
        if message["method"] == "elicitation/complete" {
            return "complete".to_owned();
        }
        let update = &message["params"]["update"];
        let kind = update["sessionUpdate"].as_str().unwrap_or_else(|| panic!("{message}"));
        match kind {
            "state_update" => {
                let background = update["background"].as_array().map(|work| format!(" {}", work.len()));
                format!("{}{}", text(&update["state"]), background.unwrap_or_default())
            }
            "tool_call_update" => format!("call {}", text(&update["status"])),
            "terminal_update" => {
                let exit = &update["exitStatus"];
                format!(
                    "terminal {}{}",
                    text(&update["command"]),
                    if exit.is_null() { String::new() } else { exit.to_string() }
                )
            }
            _ => kind.to_owned(),
        }
    }

    /// Returns the lines up to this one. Chunks of messages are left out.
    async fn until(&mut self, last: &str) -> Vec<String> {
        let mut lines = Vec::new();
        while lines.last().is_none_or(|line| line != last) {
            let line = self.line().await;
            if line != "agent_message_chunk" {
                lines.push(line);
            }
        }
        lines
    }

    async fn cancel(&mut self, method: &str, key: &str, id: &str) -> Value {
        let id = self.peer.send_request(method, json!({"sessionId": self.session, key: id})).await;
        let response = self.peer.next_message().await;
        assert_eq!(response["id"], id, "{response}");
        response
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn messages_and_calls_are_replaced_and_continued() {
    let mut editor = Editor::start().await;
    editor.prompt("upserts").await;
    let (mut lines, mut message, mut content) = (Vec::new(), String::new(), Vec::new());
    loop {
        let update = editor.peer.next_message().await["params"]["update"].take();
        let kind = text(&update["sessionUpdate"]).to_owned();
        match kind.as_str() {
            "agent_message" => message = text(&update["content"][0]["text"]).to_owned(),
            "agent_message_chunk" => message.push_str(text(&update["content"]["text"])),
            "tool_call_update" if update["content"].is_array() => content.clear(),
            "tool_call_content_chunk" => content.push(text(&update["content"]["content"]["text"]).to_owned()),
            "state_update" => break,
            _ => {}
        }
        if lines.last() != Some(&kind) {
            lines.push(kind);
        }
    }
    let expected = [
        "agent_thought",
        "agent_message",
        "agent_message_chunk",
        "agent_message",
        "agent_message_chunk",
        "tool_call_update",
        "tool_call_content_chunk",
        "tool_call_update",
        "tool_call_content_chunk",
        "tool_call_update",
    ];
    assert_eq!(lines, expected);
    assert_eq!((message.as_str(), content), ("The final message, continued too.", vec!["one".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn a_call_is_cancelled_and_its_turn_goes_on() {
    let mut editor = Editor::start().await;
    for (cancels, end) in [(true, "call cancelled"), (false, "call completed")] {
        editor.prompt("cancellable").await;
        assert_eq!(editor.line().await, "call in_progress");
        if cancels {
            let response = editor.cancel("tool_call/cancel", "toolCallId", "call-1").await;
            assert!(response["result"].is_object(), "{response}");
        }
        assert_eq!(editor.until("idle").await, [end, "idle"]);
    }
}

#[tokio::test(start_paused = true)]
async fn work_goes_on_in_the_background() {
    let mut editor = Editor::start().await;
    editor.prompt("background").await;
    let expected = ["call in_progress", "terminal watch tests", "running 2", "idle 2"];
    assert_eq!(editor.until("idle 2").await, expected);
    let chunk = "terminal_output_chunk";
    let expected = [chunk, chunk, chunk, "terminal {\"exitCode\":0}", "idle 1", "call completed", "idle 0"];
    assert_eq!(editor.until("idle 0").await, expected);

    editor.prompt("background").await;
    editor.until("idle 2").await;
    let response = editor.cancel("terminal/cancel", "terminalId", "terminal-2").await;
    assert!(response["result"].is_object(), "{response}");
    assert_eq!(editor.until("idle 1").await, ["terminal {\"signal\":\"SIGTERM\"}", "idle 1"]);
    let response = editor.cancel("terminal/cancel", "terminalId", "terminal-2").await;
    assert_eq!(response["error"]["code"], -32602, "{response}");
    let response = editor.cancel("tool_call/cancel", "toolCallId", "call-2").await;
    assert!(response["result"].is_object(), "{response}");
    assert_eq!(editor.until("idle 0").await, ["call cancelled", "idle 0"]);
}

#[tokio::test(start_paused = true)]
async fn the_agent_begins_work_of_its_own() {
    let mut editor = Editor::start().await;
    editor.prompt("unprompted").await;
    assert_eq!(editor.until("idle").await, ["idle"]);
    assert_eq!(editor.until("idle").await, ["running", "idle"]);
}

#[tokio::test(start_paused = true)]
async fn an_elicitation_requires_action() {
    let mut editor = Editor::start().await;
    editor.prompt("elicitation").await;
    let lines = editor.until("idle").await;
    assert_eq!(lines[..3], ["requires_action", "elicitation", "running"], "{lines:?}");
}
