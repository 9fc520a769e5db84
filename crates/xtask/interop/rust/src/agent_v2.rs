//! An agent on the official Rust crate that speaks the draft of protocol version 2, as `interop/v2.rs` lists it.

use agent_client_protocol::v2::schema::{
    AgentNotification, AgentRequest, AgentResponse, ClientNotification, ClientRequest, ClientResponse,
};
use agent_client_protocol::v2::{ConnectionTo, Responder};
use agent_client_protocol::{Agent, Client, Error, JsonRpcMessage as _, JsonRpcResponse as _, Stdio};
use interop_peers::Surface;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

struct State {
    surface: Surface,
    cancelled: Notify,
    call_cancelled: Notify,
    terminal_cancelled: Notify,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let surface = Surface::load("INTEROP_AGENT_REPORT");
    surface.set("$SESSION", "session-rust");
    let (cancelled, call_cancelled, terminal_cancelled) = (Notify::new(), Notify::new(), Notify::new());
    let state = Arc::new(State { surface, cancelled, call_cancelled, terminal_cancelled });
    let canceller = state.clone();
    Agent
        .v2()
        .name("interop")
        .on_receive_request(
            async move |request: ClientRequest, responder: Responder, cx: ConnectionTo<Client>| {
                let state = state.clone();
                cx.clone().spawn(async move { state.answer(request, responder, cx).await })
            },
            agent_client_protocol::on_receive_request!(),
        )
        .on_receive_notification(
            async move |notification: ClientNotification, _cx: ConnectionTo<Client>| {
                if let ClientNotification::CancelSessionNotification(_) = notification {
                    canceller.cancelled.notify_one();
                }
                Ok(())
            },
            agent_client_protocol::on_receive_notification!(),
        )
        .connect_to(Stdio::new())
        .await
}

fn options(model: &str) -> Value {
    let options = json!([{"value": "small", "name": "Small"}, {"value": "large", "name": "Large"}]);
    json!([{
        "type": "select", "configId": "model", "name": "Model", "currentValue": model, "options": options,
    }])
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

impl State {
    async fn answer(
        &self,
        request: ClientRequest,
        responder: Responder,
        cx: ConnectionTo<Client>,
    ) -> Result<(), Error> {
        let (method, params) = request.to_untyped_message()?.into_parts();
        let (expected, answer) = match method.as_str() {
            "initialize" => (
                json!({"protocolVersion": 2, "info": {"name": "interop-client"}}),
                json!({
                    "protocolVersion": 2,
                    "info": {"name": "interop-agent", "version": "1.0.0"},
                    "capabilities": {"session": {"delete": {}}},
                    "authMethods": [{"type": "agent", "methodId": "token", "name": "Token"}],
                }),
            ),
            "auth/login" => (json!({"methodId": "token"}), json!({})),
            "session/new" => {
                (json!({"cwd": "$CWD"}), json!({"sessionId": "$SESSION", "configOptions": options("small")}))
            }
            "session/set_config_option" => (
                json!({"sessionId": "$SESSION", "configId": "model", "type": "id", "value": "large"}),
                json!({"configOptions": options("large")}),
            ),
            "session/list" => (json!({}), json!({"sessions": [{"sessionId": "$SESSION", "cwd": "$CWD"}]})),
            "session/resume" => {
                for update in [
                    json!({"sessionUpdate": "user_message", "messageId": "u-0", "content": [text("before")]}),
                    json!({"sessionUpdate": "agent_message", "messageId": "a-0", "content": [text("replayed")]}),
                    json!({"sessionUpdate": "state_update", "state": "idle"}),
                ] {
                    self.update(update, &cx)?;
                }
                (
                    json!({"sessionId": "$SESSION", "cwd": "$CWD", "replayFrom": {"type": "start"}}),
                    json!({"configOptions": options("large")}),
                )
            }
            "tool_call/cancel" => (json!({"sessionId": "$SESSION", "toolCallId": "call-3"}), json!({})),
            "terminal/cancel" => (json!({"sessionId": "$SESSION", "terminalId": "t-1"}), json!({})),
            "session/prompt" => (json!({"sessionId": "$SESSION"}), json!({"messageId": "user-1"})),
            "session/close" | "session/delete" => (json!({"sessionId": "$SESSION"}), json!({})),
            "auth/logout" => (json!({}), json!({})),
            _ => return responder.respond_with_error(Error::method_not_found()),
        };
        self.surface.report(&method, self.surface.difference(&expected, Some(&params), ""), "");
        let answer = AgentResponse::from_json(&method, self.surface.fill(&answer))?;
        responder.cast().respond(answer)?;
        match method.as_str() {
            "tool_call/cancel" => self.call_cancelled.notify_one(),
            "terminal/cancel" => self.terminal_cancelled.notify_one(),
            "session/prompt" => {
                if let Err(problem) = self.play(&params["prompt"], &cx).await {
                    self.surface.report("session/prompt", Err(problem.to_string()), "");
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn update(&self, update: Value, cx: &ConnectionTo<Client>) -> Result<(), Error> {
        let params = self.surface.fill(&json!({"sessionId": "$SESSION", "update": update}));
        cx.send_notification(AgentNotification::parse_message("session/update", &params)?)
    }

    /// Sends one update, and reports it under its kind or its state.
    fn say(&self, update: Value, cx: &ConnectionTo<Client>) -> Result<(), Error> {
        let kind =
            update["state"].as_str().or(update["sessionUpdate"].as_str()).unwrap_or_default().to_owned();
        self.update(update, cx)?;
        self.surface.report(&kind, Ok(()), "");
        Ok(())
    }

    /// Makes one call to the client, and reports the answer.
    async fn call(
        &self,
        method: &str,
        params: Value,
        expected: Value,
        cx: &ConnectionTo<Client>,
    ) -> Result<(), Error> {
        let request = AgentRequest::parse_message(method, &self.surface.fill(&params))?;
        let answer = cx.send_request(request).block_task().await?;
        let answer = ClientResponse::from_json(method, answer)?.into_json(method)?;
        self.surface.report(method, self.surface.difference(&expected, Some(&answer), ""), "");
        Ok(())
    }

    /// Does the work of a prompt, after its response.
    async fn play(&self, prompt: &Value, cx: &ConnectionTo<Client>) -> Result<(), Error> {
        let state = |state: &str| json!({"sessionUpdate": "state_update", "state": state});
        let chunk = |kind: &str, id: &str, content: &str| json!({"sessionUpdate": kind, "messageId": id, "content": text(content)});
        let call = |id: &str, status: &str| json!({"sessionUpdate": "tool_call_update", "toolCallId": id, "title": "A call", "status": status});
        self.say(json!({"sessionUpdate": "user_message", "messageId": "user-1", "content": prompt}), cx)?;
        self.say(state("running"), cx)?;
        let mut end = state("idle");
        end["stopReason"] = json!("end_turn");
        match prompt[0]["text"].as_str().unwrap_or_default() {
            "updates" => {
                let entries = json!([{"content": "Look", "priority": "high", "status": "completed"}]);
                let input = json!({"type": "text", "hint": "what to plan"});
                let plan =
                    json!({"type": "command", "name": "plan", "description": "Makes a plan", "input": input});
                let compaction = |status: &str| json!({"sessionUpdate": "compaction_update", "compactionId": "c-1", "status": status});
                for update in [
                    chunk("agent_thought_chunk", "t", "thinking"),
                    chunk("agent_message_chunk", "m", "Draft"),
                    json!({"sessionUpdate": "agent_message", "messageId": "m", "content": null}),
                    chunk("agent_message_chunk", "m", "Hello é世界"),
                    call("call-1", "in_progress"),
                    json!({
                        "sessionUpdate": "tool_call_content_chunk", "toolCallId": "call-1",
                        "content": {"type": "content", "content": text("done")},
                    }),
                    call("call-1", "completed"),
                    json!({
                        "sessionUpdate": "plan_update",
                        "plan": {"type": "items", "planId": "p", "entries": entries},
                    }),
                    json!({"sessionUpdate": "session_info_update", "title": "A talk"}),
                    json!({"sessionUpdate": "usage_update", "used": 12, "size": 34}),
                    json!({"sessionUpdate": "config_option_update", "configOptions": options("small")}),
                    json!({"sessionUpdate": "available_commands_update", "availableCommands": [plan]}),
                    json!({"sessionUpdate": "notice", "severity": "warning", "title": "Rate limited"}),
                    compaction("in_progress"),
                    json!({
                        "sessionUpdate": "compaction_summary_chunk", "compactionId": "c-1",
                        "content": text("So far: hello"),
                    }),
                    compaction("completed"),
                ] {
                    self.say(update, cx)?;
                }
            }
            "permission" => {
                self.say(state("requires_action"), cx)?;
                let params = |id: &str| {
                    let options = json!([
                        {"optionId": "yes", "name": "Yes", "kind": "allow_once"},
                        {"optionId": "no", "name": "No", "kind": "reject_once"},
                    ]);
                    let subject =
                        json!({"type": "tool_call", "toolCall": {"toolCallId": id, "title": "Delete"}});
                    json!({"sessionId": "$SESSION", "title": "Delete?", "subject": subject, "options": options})
                };
                let expected = json!({"outcome": {"outcome": "selected", "optionId": "yes"}});
                self.call("session/request_permission", params("call-2"), expected, cx).await?;
                let params = self.surface.fill(&params("call-5"));
                let sent =
                    cx.send_request(AgentRequest::parse_message("session/request_permission", &params)?);
                tokio::time::sleep(Duration::from_millis(200)).await;
                sent.cancel()?;
                let outcome = match sent.block_task().await {
                    // A client may also answer `cancelled`.
                    Ok(answer) if answer["outcome"]["outcome"] == "cancelled" => Ok(()),
                    Ok(answer) => Err(answer.to_string()),
                    Err(error) if i32::from(error.code) == -32800 => Ok(()),
                    Err(error) => Err(error.to_string()),
                };
                self.surface.report("$/cancel_request", outcome, "");
                self.say(state("running"), cx)?;
            }
            "terminal" => {
                let terminal = |member: &str, value: Value| json!({"sessionUpdate": "terminal_update", "terminalId": "t-1", member: value});
                let mut begun = terminal("command", json!("make"));
                begun["cwd"] = json!("$CWD");
                begun["size"] = json!({"cols": 80, "rows": 24});
                begun["capabilities"] = json!({"cancel": {}});
                self.say(begun, cx)?;
                let output = json!({"sessionUpdate": "terminal_output_chunk", "terminalId": "t-1", "data": "aGVsbG8K"});
                self.say(output, cx)?;
                self.terminal_cancelled.notified().await;
                self.say(terminal("exitStatus", json!({"signal": "SIGTERM"})), cx)?;
            }
            "background" => {
                self.say(call("call-4", "in_progress"), cx)?;
                let mut working = state("running");
                working["background"] = json!([{"type": "tool_call", "toolCallId": "call-4"}]);
                self.say(working.clone(), cx)?;
                self.surface.did("background work");
                self.say(call("call-4", "completed"), cx)?;
                working["background"] = json!([]);
                self.say(working, cx)?;
            }
            "elicitation" => {
                let schema = json!({"type": "object", "properties": {"name": {"type": "string"}}});
                let params = json!({
                    "mode": "form", "message": "Who are you?", "sessionId": "$SESSION", "requestedSchema": schema,
                });
                let expected = json!({"action": "accept", "content": {"name": "Ada"}});
                self.call("elicitation/create", params, expected, cx).await?;
                let link = json!({
                    "mode": "url", "message": "Log in there", "sessionId": "$SESSION", "elicitationId": "e-1",
                    "url": "https://example.com/login",
                });
                self.call("elicitation/create", link, json!({"action": "accept"}), cx).await?;
                let complete = json!({"elicitationId": "e-1"});
                cx.send_notification(AgentNotification::parse_message("elicitation/complete", &complete)?)?;
                self.surface.did("elicitation/complete");
            }
            "cancel call" => {
                let mut begun = call("call-3", "in_progress");
                begun["capabilities"] = json!({"cancel": {}});
                self.say(begun, cx)?;
                self.call_cancelled.notified().await;
                self.say(call("call-3", "cancelled"), cx)?;
            }
            "cancel" => {
                self.say(chunk("agent_message_chunk", "w", "waiting"), cx)?;
                self.cancelled.notified().await;
                self.surface.report("session/cancel", Ok(()), "");
                end["stopReason"] = json!("cancelled");
            }
            _ => {
                self.surface.report("error", Ok(()), "");
                end["stopReason"] = json!("error");
                end["error"] = json!({"code": -32603, "message": "no model"});
            }
        }
        self.say(end, cx)
    }
}
