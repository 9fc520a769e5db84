//! An agent that speaks protocol version 2 to a scripted client.

mod closing;
mod messages;
mod sessions;
mod turns;
mod work;

use duologue_agent::schema::{
    PermissionOption, PermissionOptionKind, SessionMode, SessionModeState, SessionUpdate,
    SetSessionModeRequest, ToolCallStatus,
};
use duologue_agent::{
    Agent, Context, Error, Prompt, Result, Server, Session, SessionSetup, StopReason, Turn,
};
use serde_json::{Value, json};

use duologue_test_support::{ScriptedPeer, Wire};

/// Does what the prompt names.
struct Both;

impl Agent for Both {
    async fn new_session(&self, _: &Context, _: &Session) -> Result<SessionSetup> {
        let modes = vec![SessionMode::new("ask", "Ask"), SessionMode::new("code", "Code")];
        Ok(SessionSetup::new().modes(SessionModeState::new("ask", modes)))
    }

    async fn set_mode(&self, _: &Context, _: &Session, _: SetSessionModeRequest) -> Result<()> {
        Ok(())
    }

    async fn load_session(&self, _: &Context, session: &Session) -> Result<SessionSetup> {
        session.update(SessionUpdate::user_message("before")).await?;
        session.update(SessionUpdate::agent_message("replayed")).await?;
        Ok(SessionSetup::new())
    }

    async fn prompt(&self, turn: &Turn, prompt: Prompt) -> Result<StopReason> {
        match prompt.text().as_str() {
            "write" => {
                let mut message = turn.message().with_id("m");
                message.push("draft").await?;
                message.clear().await?;
                message.push("final").await?;
                let call = turn.tool_call("Read").id("c").start().await?;
                call.complete().await?;
            }
            "without ids" => {
                turn.update(SessionUpdate::agent_message("one")).await?;
                turn.update(SessionUpdate::agent_message("two")).await?;
                turn.update(SessionUpdate::agent_thought("hm")).await?;
                turn.update(SessionUpdate::agent_message("three")).await?;
                turn.update(SessionUpdate::agent_message_clear(None)).await?;
                turn.update(SessionUpdate::agent_thought("oh")).await?;
                turn.update(SessionUpdate::agent_message("four")).await?;
            }
            "ask" => {
                let call = turn.tool_call("Delete").id("c").start().await?;
                let allow = PermissionOption::new("allow", "Allow", PermissionOptionKind::AllowOnce);
                let outcome = call.request_permission(vec![allow]).await?;
                turn.message().with_id("m").push(format!("{outcome:?}")).await?;
                call.complete().await?;
            }
            "wait" => {
                let _open = turn.tool_call("Sleep").id("c").start().await?;
                turn.cancelled().await;
            }
            "cancellable" => {
                let call = turn.tool_call("Sleep").id("c").cancellable().start().await?;
                call.cancelled().await;
                assert!(!turn.is_cancelled());
                call.status(ToolCallStatus::Cancelled).await?;
            }
            "late" => {
                let session = turn.session().clone();
                tokio::spawn(async move {
                    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
                    let work = session.begin_work();
                    session.update(SessionUpdate::agent_message("later").with_message_id("l")).await?;
                    work.finish(StopReason::EndTurn);
                    Ok::<_, Error>(())
                });
            }
            "worker" => {
                let work = turn.session().begin_work();
                tokio::spawn(async move {
                    work.cancelled().await;
                    work.finish(StopReason::EndTurn);
                });
                return Err(Error::other("no model"));
            }
            "detached" => {
                turn.tool_call("Sleep").id("c").cancellable().start().await?.detach()?;
            }
            "continued" => {
                turn.update(SessionUpdate::agent_message("Hel")).await?;
                turn.session().update(duologue_agent::schema::ToolCallUpdate::new("known")).await?;
                turn.update(SessionUpdate::agent_message("lo")).await?;
            }
            "v2 only" => {
                let whole = duologue_agent::schema::MessageUpdate::new("w").content(vec!["whole".into()]);
                turn.update(SessionUpdate::AgentMessage(whole)).await?;
                turn.update(duologue_agent::schema::StateUpdate::running()).await?;
                let call = turn.tool_call("Sleep").id("c").cancellable().start().await?;
                call.status(ToolCallStatus::Cancelled).await?;
            }
            "mode" => turn.mode_changed("code").await?,
            "nothing to clear" => {
                turn.update(SessionUpdate::agent_message_clear(None)).await?;
                turn.message().with_id("m").push("text").await?;
            }
            "fail" => return Err(Error::other("no model")),
            "panic" => panic!("a bug"),
            other => panic!("{other}"),
        }
        Ok(StopReason::EndTurn)
    }
}

struct Client {
    peer: ScriptedPeer,
    session: String,
}

/// Returns the params of an `initialize` of version 2.
fn initialize(version: u16) -> Value {
    json!({"protocolVersion": version, "info": {"name": "test", "version": "1"}, "capabilities": {"elicitation": {"form": {}}}})
}

async fn client() -> Client {
    client_of(Server::new(Both)).await
}

async fn client_of(server: Server<impl Agent>) -> Client {
    let (transport, mut peer) = Wire::Memory.scripted();
    tokio::spawn(server.protocol_v2().serve(transport));
    let response = peer.request("initialize", initialize(2)).await;
    assert_eq!(response["result"]["protocolVersion"], 2, "{response}");
    let response = peer.request("session/new", json!({"cwd": "/"})).await;
    let session = response["result"]["sessionId"].as_str().expect("an id").to_owned();
    Client { peer, session }
}

/// Describes an update in a few words. An id of the library is `*`.
fn short(update: &Value) -> String {
    let kind = update["sessionUpdate"].as_str().unwrap_or_default();
    let id = ["messageId", "toolCallId"].iter().find_map(|key| update[key].as_str()).unwrap_or_default();
    let id = if id.len() == 36 { "*" } else { id };
    let rest = match kind {
        "state_update" => {
            let error = update["error"]["message"].as_str().unwrap_or_default();
            let reason = update["stopReason"].as_str().unwrap_or_default();
            format!("{} {reason} {error}", update["state"].as_str().unwrap_or_default())
        }
        "tool_call_update" => update["status"].as_str().unwrap_or_default().to_owned(),
        _ => match &update["content"] {
            Value::Array(blocks) => blocks.iter().filter_map(|block| block["text"].as_str()).collect(),
            Value::Null if update.get("content").is_some() => "null".to_owned(),
            content => content["text"].as_str().unwrap_or_default().to_owned(),
        },
    };
    [kind, id, rest.trim()].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
}

impl Client {
    async fn prompt(&mut self, text: &str) -> u64 {
        let prompt = json!([{"type": "text", "text": text}]);
        self.peer.send_request("session/prompt", json!({"sessionId": self.session, "prompt": prompt})).await
    }

    /// Returns the messages until the session is idle. `*` in the first line is the id of the user's message.
    async fn until_idle(&mut self, prompt: u64) -> Vec<String> {
        let (mut lines, mut user_message) = (Vec::new(), Value::Null);
        loop {
            let message = self.peer.next_message().await;
            if message["id"] == prompt {
                user_message = message["result"]["messageId"].clone();
                lines.push(format!("response {}", if user_message.is_string() { "*" } else { "error" }));
                if !user_message.is_string() {
                    return lines;
                }
                continue;
            }
            if message["method"] == "elicitation/create" {
                lines.push("elicitation".to_owned());
                self.peer.respond(&message, json!({"action": "decline"})).await;
                continue;
            }
            if message["method"] == "session/request_permission" {
                lines.push(format!("permission {}", message["params"]["subject"]["type"]));
                let outcome = json!({"outcome": {"outcome": "selected", "optionId": "allow"}});
                self.peer.respond(&message, outcome).await;
                continue;
            }
            let update = &message["params"]["update"];
            if update["sessionUpdate"] == "user_message" {
                assert_eq!(update["messageId"], user_message, "the id of the response");
            }
            lines.push(short(update));
            if update["state"] == "idle" {
                return lines;
            }
        }
    }

    /// Returns the descriptions of the next updates. Nothing else may arrive.
    async fn updates(&mut self, count: usize) -> Vec<String> {
        let mut lines = Vec::new();
        for _ in 0..count {
            lines.push(short(&self.peer.expect("session/update").await["params"]["update"]));
        }
        lines
    }
}
