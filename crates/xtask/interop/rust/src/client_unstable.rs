//! A client on the official Rust crate with the unstable part of version 1: `interop-client-unstable AGENT [ARG…]`

use agent_client_protocol::v1::schema::{
    AgentNotification, AgentRequest, AgentResponse, ClientNotification, ClientRequest, ClientResponse,
    ProxyNotification, ProxyRequest,
};
use agent_client_protocol::v1::{ConnectionTo, Responder};
use agent_client_protocol::{AcpAgent, Agent, Client, Error, JsonRpcMessage as _, JsonRpcResponse as _};
use interop_peers::{Surface, Updates};
use serde_json::{Value, json};
use std::sync::Arc;

struct State {
    surface: Surface,
    updates: Updates,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let surface = Surface::load("INTEROP_CLIENT_REPORT");
    let state = Arc::new(State { surface, updates: Updates::default() });
    let (answering, received) = (state.clone(), state.clone());
    Client
        .v1()
        .name("interop")
        .on_receive_request(
            async move |request: AgentRequest, responder: Responder, cx: ConnectionTo<Agent>| {
                answering.answer(request, responder, &cx)
            },
            agent_client_protocol::on_receive_request!(),
        )
        .on_receive_notification(
            async move |notification: AgentNotification, _cx: ConnectionTo<Agent>| {
                let (method, params) = notification.to_untyped_message()?.into_parts();
                if method == "session/update" {
                    received.updates.push(params);
                } else {
                    received.check(&method, json!({"state": "unauthenticated"}), &params);
                }
                Ok(())
            },
            agent_client_protocol::on_receive_notification!(),
        )
        .connect_with(AcpAgent::from_args(std::env::args().skip(1))?, async move |cx| {
            state.connection(&cx).await?;
            state.turns(&cx).await?;
            state.sessions(&cx).await
        })
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

    /// Handles a request to the MCP server of this client.
    fn answer(
        &self,
        request: AgentRequest,
        responder: Responder,
        cx: &ConnectionTo<Agent>,
    ) -> Result<(), Error> {
        let (method, mut params) = request.to_untyped_message()?.into_parts();
        if method != "mcp/message" {
            return responder.respond_with_error(Error::method_not_found());
        }
        let response = if params["method"] == "tools/list" {
            self.check("mcp/message request", json!({"serverId": "tools-1", "requestId": "list"}), &params);
            params["method"] = json!("notifications/progress");
            params["params"] = json!({"progress": 1});
            cx.send_notification(ClientNotification::parse_message("mcp/message", &params)?)?;
            self.surface.did("mcp/message notification");
            json!({"result": {"tools": []}})
        } else {
            json!({"error": {"code": -32602, "message": "no such tool"}})
        };
        responder.cast().respond(ClientResponse::from_json(&method, response)?)
    }

    /// Sends a request, and reports the response.
    async fn ask(
        &self,
        cx: &ConnectionTo<Agent>,
        row: &str,
        method: &str,
        params: Value,
        expected: Value,
    ) -> Result<(), Error> {
        let params = self.surface.fill(&params);
        let response = if method.starts_with("proxy/") {
            let sent = cx.send_request(ProxyRequest::parse_message(method, &params)?);
            sent.block_task().await.and_then(|response| response.into_json(method))
        } else {
            let sent = cx.send_request(ClientRequest::parse_message(method, &params)?);
            sent.block_task()
                .await
                .and_then(|response| AgentResponse::from_json(method, response)?.into_json(method))
        };
        match response {
            Ok(response) => self.check(row, expected, &response),
            Err(error) => {
                self.surface.report(row, Err(error.to_string()), "");
                return Err(error);
            }
        }
        Ok(())
    }

    async fn until(&self, expected: Value) -> Result<Value, Error> {
        let late = |late| Error::internal_error().data(late);
        self.updates.until(&self.surface, &expected).await.map_err(late)
    }

    async fn connection(&self, cx: &ConnectionTo<Agent>) -> Result<(), Error> {
        let hello = json!({
            "protocolVersion": 1,
            "clientInfo": {"name": "interop-client", "version": "1.0.0"},
            "clientCapabilities": {"plan": {}, "subagents": {}},
        });
        let response = json!({
            "protocolVersion": 1,
            "agentCapabilities": {
                "auth": {"status": {}}, "providers": {}, "mcpCapabilities": {"acp": true},
                "sessionCapabilities": {
                    "fork": {}, "archive": {}, "status": {}, "title": {},
                    "systemPrompt": {"mode": {"override": {}}},
                },
            },
            "_meta": {"steering": {"supported": true}},
        });
        self.ask(cx, "initialize", "initialize", hello, response).await?;
        let account = json!({"label": "Work", "active": true, "email": "ada@example.com"});
        let status = json!({"state": "authenticated", "accounts": [account]});
        self.ask(cx, "auth/status", "auth/status", json!({}), status).await?;
        let current = json!({"apiType": "anthropic", "baseUrl": "https://example.com/a"});
        let supported = json!(["anthropic", "openai"]);
        let main =
            json!({"providerId": "main", "supported": supported, "required": false, "current": current});
        self.ask(cx, "providers/list", "providers/list", json!({}), json!({"providers": [main]})).await?;
        let endpoint = json!({
            "providerId": "main", "apiType": "openai", "baseUrl": "https://example.com/b", "headers": {"X-Key": "k"},
        });
        self.ask(cx, "providers/set", "providers/set", endpoint, json!({})).await?;
        let main = json!({"providerId": "main"});
        self.ask(cx, "providers/disable", "providers/disable", main, json!({})).await
    }

    /// Runs a turn. `row` is the row of its response.
    async fn turn(
        &self,
        cx: &ConnectionTo<Agent>,
        prompt: &str,
        row: &str,
        mut expected: Value,
        during: impl Future<Output = Result<(), Error>>,
    ) -> Result<(), Error> {
        self.updates.clear();
        expected["stopReason"] = json!("end_turn");
        let params = json!({"sessionId": "$SESSION", "prompt": [text(prompt)]});
        let turn = self.ask(cx, row, "session/prompt", params, expected);
        futures::future::try_join(turn, during).await.map(|_| ())
    }

    /// Reports an update of the last turn.
    fn came(&self, expected: Value) {
        let row = expected["sessionUpdate"].as_str().unwrap_or_default().to_owned();
        self.updates.expect(&self.surface, &row, &expected);
    }

    async fn turns(&self, cx: &ConnectionTo<Agent>) -> Result<(), Error> {
        let append = json!({"mode": "append", "content": [text("Answer in French.")]});
        let server = json!({"type": "acp", "name": "Tools", "serverId": "tools-1"});
        let params = json!({"cwd": "$CWD", "mcpServers": [server], "systemPrompt": append});
        self.ask(cx, "systemPrompt append", "session/new", params, json!({"sessionId": "$SESSION"})).await?;
        let title = json!({"sessionId": "$SESSION", "title": " A talk "});
        self.ask(cx, "session/set_title", "session/set_title", title, json!({"title": "A talk"})).await?;

        let nothing = async || Ok(());
        self.turn(cx, "plans", "initialize", json!({}), nothing()).await?;
        let items = json!({"type": "items", "planId": "p-1", "entries": [{"content": "Look"}]});
        self.came(json!({"sessionUpdate": "plan_update", "plan": items}));
        let markdown = json!({"type": "markdown", "planId": "p-2", "content": "# Later"});
        self.came(json!({"sessionUpdate": "plan_update", "plan": markdown}));
        self.came(json!({"sessionUpdate": "plan_removed", "planId": "p-2"}));
        let usage = json!({"totalTokens": 30, "inputTokens": 20, "outputTokens": 10, "thoughtTokens": 5});
        self.turn(cx, "usage", "session/prompt usage", json!({"usage": usage}), nothing()).await?;

        self.turn(cx, "child", "initialize", json!({}), nothing()).await?;
        let begun = json!({
            "sessionUpdate": "subagent_update", "of": "$SESSION", "sessionId": "$CHILD", "title": "Review",
            "description": "Reads the change", "state": {"state": "running"},
        });
        self.came(begun);
        let content = json!([text("Review the change.")]);
        for of in ["$SESSION", "$CHILD"] {
            self.came(json!({
                "sessionUpdate": "session_message", "of": of, "senderSessionId": "$SESSION",
                "recipientSessionId": "$CHILD", "content": content,
            }));
        }
        for content in ["No ", "findings."] {
            self.came(
                json!({"sessionUpdate": "session_message_chunk", "of": "$CHILD", "content": text(content)}),
            );
        }
        let ended = json!({"state": "idle", "stopReason": "end_turn"});
        self.came(json!({"sessionUpdate": "subagent_update", "sessionId": "$CHILD", "state": ended}));

        let cancel = async {
            let waiting =
                json!({"sessionUpdate": "subagent_update", "title": "Wait", "capabilities": {"cancel": {}}});
            let waiting = self.until(waiting).await?;
            let params = json!({"sessionId": waiting["sessionId"]});
            cx.send_notification(ClientNotification::parse_message("session/cancel", &params)?)
        };
        self.turn(cx, "cancel child", "initialize", json!({}), cancel).await?;
        let cancelled = json!({"sessionUpdate": "subagent_update", "state": {"stopReason": "cancelled"}});
        self.updates.expect(&self.surface, "session/cancel of a child", &cancelled);

        let steer = async {
            self.until(json!({"sessionUpdate": "agent_message_chunk", "content": text("waiting")})).await?;
            let message = json!({"sessionId": "$SESSION", "prompt": [text("Only the parser.")]});
            let method = "_session/steering";
            self.ask(cx, method, method, message, json!({"outcome": "injected"})).await
        };
        self.turn(cx, "steer", "initialize", json!({}), steer).await?;
        self.turn(cx, "auth", "initialize", json!({}), nothing()).await?;
        self.turn(cx, "mcp", "initialize", json!({}), nothing()).await
    }

    async fn sessions(&self, cx: &ConnectionTo<Agent>) -> Result<(), Error> {
        let overriding = json!({"mode": "override", "content": [text("You are a poet.")]});
        let fork =
            json!({"sessionId": "$SESSION", "cwd": "$CWD", "mcpServers": [], "systemPrompt": overriding});
        self.ask(cx, "session/fork", "session/fork", fork, json!({"sessionId": "$FORK"})).await?;
        self.surface.did("systemPrompt override");
        let (session, fork) = (json!({"sessionId": "$SESSION"}), json!({"sessionId": "$FORK"}));
        let status = "session/status";
        self.ask(cx, status, status, session, json!({"status": "open"})).await?;
        self.ask(cx, "session/archive", "session/archive", fork.clone(), json!({})).await?;
        self.ask(cx, status, status, fork.clone(), json!({"status": "saved"})).await?;
        let (only, listed) = (json!({"archived": "only"}), json!({"sessions": [fork]}));
        self.ask(cx, "session/list archived", "session/list", only, listed).await?;
        self.ask(cx, "session/unarchive", "session/unarchive", fork, json!({})).await?;

        let hello = json!({"protocolVersion": 1});
        self.ask(cx, "proxy/initialize", "proxy/initialize", hello.clone(), hello).await?;
        let behind = json!({"method": "_interop/behind", "params": {"n": 1}});
        let row = "proxy/successor request";
        self.ask(cx, row, "proxy/successor", behind, json!({"params": {"n": 1}})).await?;
        let cancel = json!({"method": "session/cancel", "params": {"sessionId": "behind"}});
        cx.send_notification(ProxyNotification::parse_message("proxy/successor", &cancel)?)?;
        self.surface.did("proxy/successor notification");
        // A response is later than the effects of the notification.
        self.ask(cx, "auth/status", "auth/status", json!({}), json!({})).await
    }
}
