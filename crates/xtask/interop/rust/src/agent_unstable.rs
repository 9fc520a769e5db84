//! An agent on the official Rust crate with the unstable part of version 1, as `interop/unstable.rs` lists it.

use agent_client_protocol::v1::schema::{
    AgentNotification, AgentRequest, AgentResponse, ClientNotification, ClientRequest, ClientResponse,
    ProxyNotification, ProxyRequest, ProxyResponse,
};
use agent_client_protocol::v1::{ConnectionTo, Responder};
use agent_client_protocol::{
    Agent, Client, Error, JsonRpcMessage as _, JsonRpcResponse as _, Stdio, UntypedMessage,
};
use interop_peers::Surface;
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::sync::Notify;

struct State {
    surface: Surface,
    steered: Notify,
    child_cancelled: Notify,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let surface = Surface::load("INTEROP_AGENT_REPORT");
    surface.set("$SESSION", "session-rust");
    surface.set("$FORK", "fork-rust");
    surface.set("$CHILD", "child-rust");
    let state = Arc::new(State { surface, steered: Notify::new(), child_cancelled: Notify::new() });
    let (of_proxy, notified, notified_of_proxy) = (state.clone(), state.clone(), state.clone());
    Agent
        .v1()
        .name("interop")
        // The tables of the crate take every method, so these come first.
        .on_receive_request(
            async move |request: ProxyRequest,
                        responder: Responder<ProxyResponse>,
                        _cx: ConnectionTo<Client>| {
                responder.respond(of_proxy.answer_proxy(request)?)
            },
            agent_client_protocol::on_receive_request!(),
        )
        .on_receive_notification(
            async move |notification: ProxyNotification, _cx: ConnectionTo<Client>| {
                let (_, params) = notification.to_untyped_message()?.into_parts();
                let row = "proxy/successor notification";
                notified_of_proxy.check(row, json!({"method": "session/cancel"}), &params);
                Ok(())
            },
            agent_client_protocol::on_receive_notification!(),
        )
        .on_receive_request(
            async move |request: ClientRequest, responder: Responder, cx: ConnectionTo<Client>| {
                let state = state.clone();
                cx.clone().spawn(async move { state.answer(request, responder, cx).await })
            },
            agent_client_protocol::on_receive_request!(),
        )
        .on_receive_notification(
            async move |notification: ClientNotification, _cx: ConnectionTo<Client>| {
                notified.notified(&notification.to_untyped_message()?);
                Ok(())
            },
            agent_client_protocol::on_receive_notification!(),
        )
        .connect_to(Stdio::new())
        .await
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

impl State {
    /// Reports params or a response.
    fn check(&self, row: &str, expected: Value, actual: &Value) {
        self.surface.report(row, self.surface.difference(&expected, Some(actual), ""), "");
    }

    fn notified(&self, notification: &UntypedMessage) {
        match notification.method() {
            "session/cancel" => self.child_cancelled.notify_one(),
            "mcp/message" => {
                let expected =
                    json!({"serverId": "tools-1", "requestId": "list", "method": "notifications/progress"});
                self.check("mcp/message notification", expected, notification.params());
            }
            _ => {}
        }
    }

    fn answer_proxy(&self, request: ProxyRequest) -> Result<ProxyResponse, Error> {
        let (method, mut params) = request.to_untyped_message()?.into_parts();
        let response = if method == "proxy/initialize" {
            self.check("proxy/initialize", json!({"protocolVersion": 1}), &params);
            json!({"protocolVersion": 1})
        } else {
            self.check("proxy/successor request", json!({"method": "_interop/behind"}), &params);
            json!({"params": params["params"].take()})
        };
        ProxyResponse::from_json(&method, response)
    }

    async fn answer(
        &self,
        request: ClientRequest,
        responder: Responder,
        cx: ConnectionTo<Client>,
    ) -> Result<(), Error> {
        let (method, params) = request.to_untyped_message()?.into_parts();
        let system_prompt = |mode: &str, content: &str| json!({"mode": mode, "content": [text(content)]});
        let mut row = method.as_str();
        let (expected, answer) = match method.as_str() {
            "initialize" => (
                json!({"protocolVersion": 1, "clientCapabilities": {"plan": {}, "subagents": {}}}),
                json!({
                    "protocolVersion": 1,
                    "agentInfo": {"name": "interop-agent", "version": "1.0.0"},
                    "agentCapabilities": {
                        "auth": {"status": {}}, "providers": {}, "mcpCapabilities": {"acp": true},
                        "sessionCapabilities": {
                            "list": {}, "fork": {}, "archive": {}, "status": {}, "title": {},
                            "systemPrompt": {"mode": {"override": {}}},
                        },
                    },
                    "_meta": {"steering": {"supported": true, "idleBehavior": "promptRequired"}},
                }),
            ),
            "auth/status" => (
                json!({}),
                json!({
                    "state": "authenticated",
                    "accounts": [{"label": "Work", "active": true, "email": "ada@example.com"}],
                }),
            ),
            "providers/list" => {
                let current = json!({"apiType": "anthropic", "baseUrl": "https://example.com/a"});
                let supported = json!(["anthropic", "openai"]);
                let main = json!({"providerId": "main", "supported": supported, "required": false, "current": current});
                (json!({}), json!({"providers": [main]}))
            }
            "providers/set" => (
                json!({
                    "providerId": "main", "apiType": "openai", "baseUrl": "https://example.com/b",
                    "headers": {"X-Key": "k"},
                }),
                json!({}),
            ),
            "providers/disable" => (json!({"providerId": "main"}), json!({})),
            "session/new" => {
                row = "systemPrompt append";
                let server = json!({"type": "acp", "name": "Tools", "serverId": "tools-1"});
                let append = system_prompt("append", "Answer in French.");
                (json!({"systemPrompt": append, "mcpServers": [server]}), json!({"sessionId": "$SESSION"}))
            }
            "session/fork" => {
                let overriding = system_prompt("override", "You are a poet.");
                self.check("systemPrompt override", overriding, &params["systemPrompt"]);
                (json!({"sessionId": "$SESSION", "cwd": "$CWD"}), json!({"sessionId": "$FORK"}))
            }
            "session/set_title" => {
                (json!({"sessionId": "$SESSION", "title": " A talk "}), json!({"title": "A talk"}))
            }
            "session/status" => {
                let is_fork = params["sessionId"] == self.surface.fill(&json!("$FORK"));
                (json!({}), json!({"status": if is_fork { "saved" } else { "open" }}))
            }
            "session/list" => {
                row = "session/list archived";
                (json!({"archived": "only"}), json!({"sessions": [{"sessionId": "$FORK", "cwd": "$CWD"}]}))
            }
            "session/archive" | "session/unarchive" => (json!({"sessionId": "$FORK"}), json!({})),
            "_session/steering" => {
                self.steered.notify_one();
                let message = json!({"sessionId": "$SESSION", "prompt": [text("Only the parser.")]});
                (message, json!({"outcome": "injected"}))
            }
            "session/prompt" => {
                row = "initialize";
                let usage = self.play(params["prompt"][0]["text"].as_str().unwrap_or_default(), &cx).await;
                let usage =
                    usage.inspect_err(|error| self.surface.report(row, Err(error.to_string()), ""))?;
                (json!({"sessionId": "$SESSION"}), json!({"stopReason": "end_turn", "usage": usage}))
            }
            _ => return responder.respond_with_error(Error::method_not_found()),
        };
        self.check(row, expected, &params);
        responder.cast().respond(AgentResponse::from_json(&method, self.surface.fill(&answer))?)
    }

    /// Sends one update, and reports it under its kind.
    fn say(&self, of: &str, update: Value, cx: &ConnectionTo<Client>) -> Result<(), Error> {
        let params = self.surface.fill(&json!({"sessionId": of, "update": update}));
        cx.send_notification(AgentNotification::parse_message("session/update", &params)?)?;
        match update["sessionUpdate"].as_str() {
            Some(kind) if kind != "agent_message_chunk" => self.surface.did(kind),
            _ => {}
        }
        Ok(())
    }

    /// Calls the MCP server of the client.
    async fn mcp(
        &self,
        id: &str,
        method: &str,
        expected: Value,
        cx: &ConnectionTo<Client>,
    ) -> Result<(), Error> {
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        let params =
            json!({"serverId": "tools-1", "requestId": id, "method": method, "params": {"_meta": meta}});
        let request = AgentRequest::parse_message("mcp/message", &params)?;
        let answer = cx.send_request(request).block_task().await?;
        let answer = ClientResponse::from_json("mcp/message", answer)?.into_json("mcp/message")?;
        self.check("mcp/message request", expected, &answer);
        Ok(())
    }

    /// Does the work of a prompt. Returns the tokens that it has used.
    async fn play(&self, prompt: &str, cx: &ConnectionTo<Client>) -> Result<Value, Error> {
        let (session, child) = ("$SESSION", "$CHILD");
        match prompt {
            "plans" => {
                let entries = json!([{"content": "Look", "priority": "high", "status": "completed"}]);
                for update in [
                    json!({"sessionUpdate": "plan_update", "plan": {"type": "items", "planId": "p-1", "entries": entries}}),
                    json!({"sessionUpdate": "plan_update", "plan": {"type": "markdown", "planId": "p-2", "content": "# Later"}}),
                    json!({"sessionUpdate": "plan_removed", "planId": "p-2"}),
                ] {
                    self.say(session, update, cx)?;
                }
            }
            "usage" => {
                self.surface.did("session/prompt usage");
                return Ok(
                    json!({"totalTokens": 30, "inputTokens": 20, "outputTokens": 10, "thoughtTokens": 5}),
                );
            }
            "child" => {
                let message = |id: &str, from: &str, to: &str, content: Value| {
                    json!({
                        "sessionUpdate": "session_message", "messageId": id, "senderSessionId": from,
                        "recipientSessionId": to, "content": content,
                    })
                };
                let chunk = |content: &str| json!({"sessionUpdate": "session_message_chunk", "messageId": "sent-2", "content": text(content)});
                let begun = json!({
                    "sessionUpdate": "subagent_update", "sessionId": child, "title": "Review",
                    "description": "Reads the change", "state": {"state": "running"},
                });
                let ended = json!({"state": "idle", "stopReason": "end_turn"});
                let content = json!([text("Review the change.")]);
                for (of, update) in [
                    (session, begun),
                    (session, message("sent-1", session, child, content.clone())),
                    (child, message("received-1", session, child, content)),
                    (
                        child,
                        json!({"sessionUpdate": "agent_message_chunk", "content": text("It looks good.")}),
                    ),
                    (child, message("sent-2", child, session, json!([]))),
                    (child, chunk("No ")),
                    (child, chunk("findings.")),
                    (
                        session,
                        json!({"sessionUpdate": "subagent_update", "sessionId": child, "state": ended}),
                    ),
                ] {
                    self.say(of, update, cx)?;
                }
            }
            "cancel child" => {
                let child = json!({
                    "sessionUpdate": "subagent_update", "sessionId": "child-2", "title": "Wait",
                    "capabilities": {"cancel": {}}, "state": {"state": "running"},
                });
                self.say(session, child, cx)?;
                self.child_cancelled.notified().await;
                self.surface.did("session/cancel of a child");
                let state = json!({"state": "idle", "stopReason": "cancelled"});
                let ended =
                    json!({"sessionUpdate": "subagent_update", "sessionId": "child-2", "state": state});
                self.say(session, ended, cx)?;
            }
            "steer" => {
                let waiting = json!({"sessionUpdate": "agent_message_chunk", "content": text("waiting")});
                self.say(session, waiting, cx)?;
                self.steered.notified().await;
            }
            "auth" => {
                let status = json!({"state": "unauthenticated", "accounts": []});
                cx.send_notification(AgentNotification::parse_message("auth/status_update", &status)?)?;
                self.surface.did("auth/status_update");
            }
            "mcp" => {
                self.mcp("list", "tools/list", json!({"result": {"tools": []}}), cx).await?;
                self.mcp("fail", "tools/call", json!({"error": {"code": -32602}}), cx).await?;
            }
            other => return Err(Error::invalid_params().data(other.to_owned())),
        }
        Ok(Value::Null)
    }
}
