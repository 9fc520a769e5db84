//! A client on the official Rust crate that speaks the draft of protocol version 2: `interop-client-v2 AGENT [ARG…]`

use agent_client_protocol::v2::schema::{
    AgentNotification, AgentRequest, AgentResponse, ClientNotification, ClientRequest, ClientResponse,
};
use agent_client_protocol::v2::{ConnectionTo, Responder};
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
        .v2()
        .name("interop")
        .on_receive_request(
            async move |request: AgentRequest, responder: Responder, cx: ConnectionTo<Agent>| {
                let state = answering.clone();
                cx.spawn(async move { state.answer(request, responder).await })
            },
            agent_client_protocol::on_receive_request!(),
        )
        .on_receive_notification(
            async move |notification: AgentNotification, _cx: ConnectionTo<Agent>| {
                let (method, params) = notification.to_untyped_message()?.into_parts();
                if method == "session/update" {
                    received.updates.push(params);
                } else {
                    received.check(&method, json!({"elicitationId": "e-1"}), &params);
                }
                Ok(())
            },
            agent_client_protocol::on_receive_notification!(),
        )
        .connect_with(AcpAgent::from_args(std::env::args().skip(1))?, async move |cx| {
            state.dialogue(&cx).await
        })
        .await
}

impl State {
    /// Reports params.
    fn check(&self, row: &str, expected: Value, actual: &Value) {
        self.surface.report(row, self.surface.difference(&expected, Some(actual), ""), "");
    }

    async fn answer(&self, request: AgentRequest, responder: Responder) -> Result<(), Error> {
        let (method, params) = request.to_untyped_message()?.into_parts();
        let (expected, answer) = match method.as_str() {
            "session/request_permission" if params["subject"]["toolCall"]["toolCallId"] == "call-5" => {
                responder.cancellation().cancelled().await;
                self.surface.did("$/cancel_request");
                (json!({}), json!({"outcome": {"outcome": "cancelled"}}))
            }
            "session/request_permission" => (
                json!({"sessionId": "$SESSION", "subject": {"type": "tool_call", "toolCall": {"toolCallId": "call-2"}}}),
                json!({"outcome": {"outcome": "selected", "optionId": "yes"}}),
            ),
            "elicitation/create" if params["mode"] == "url" => (
                json!({"elicitationId": "e-1", "url": "https://example.com/login", "sessionId": "$SESSION"}),
                json!({"action": "accept"}),
            ),
            "elicitation/create" => (
                json!({"mode": "form", "message": "Who are you?", "sessionId": "$SESSION"}),
                json!({"action": "accept", "content": {"name": "Ada"}}),
            ),
            _ => return responder.respond_with_error(Error::method_not_found()),
        };
        self.check(&method, expected, &params);
        responder.cast().respond(ClientResponse::from_json(&method, answer)?)
    }

    async fn ask(
        &self,
        cx: &ConnectionTo<Agent>,
        method: &str,
        params: Value,
        expected: Value,
    ) -> Result<(), Error> {
        let request = ClientRequest::parse_message(method, &self.surface.fill(&params))?;
        let answer = match cx.send_request(request).block_task().await {
            Ok(answer) => AgentResponse::from_json(method, answer)?.into_json(method)?,
            Err(error) => {
                self.surface.report(method, Err(error.to_string()), "");
                return Err(error);
            }
        };
        self.surface.report(method, self.surface.difference(&expected, Some(&answer), ""), "");
        Ok(())
    }

    /// Reports an update of the last turn.
    fn came(&self, row: &str, expected: Value) {
        self.updates.expect(&self.surface, row, &expected);
    }

    /// Waits for an update that has these members.
    async fn until(&self, expected: Value) -> Result<(), Error> {
        let found = self.updates.until(&self.surface, &expected).await;
        found.map(|_| ()).map_err(|late| Error::internal_error().data(late))
    }

    /// Begins a turn.
    async fn prompt(&self, cx: &ConnectionTo<Agent>, text: &str) -> Result<(), Error> {
        self.updates.clear();
        let params = json!({"sessionId": "$SESSION", "prompt": [{"type": "text", "text": text}]});
        self.ask(cx, "session/prompt", params, json!({})).await
    }

    /// Waits for the end of a turn.
    async fn end(&self, stop_reason: &str) -> Result<(), Error> {
        self.until(json!({"sessionUpdate": "state_update", "state": "idle"})).await?;
        self.came("user_message", json!({"sessionUpdate": "user_message"}));
        self.came("running", json!({"sessionUpdate": "state_update", "state": "running"}));
        let idle = json!({"sessionUpdate": "state_update", "state": "idle", "stopReason": stop_reason});
        self.came("idle", idle);
        Ok(())
    }

    async fn dialogue(&self, cx: &ConnectionTo<Agent>) -> Result<(), Error> {
        let info = json!({"name": "interop-client", "version": "1.0.0"});
        let hello = json!({"protocolVersion": 2, "info": info, "capabilities": {"elicitation": {"form": {}, "url": {}}}});
        let capabilities = json!({"session": {"delete": {}}});
        self.ask(cx, "initialize", hello, json!({"protocolVersion": 2, "capabilities": capabilities}))
            .await?;
        self.ask(cx, "auth/login", json!({"methodId": "token"}), json!({})).await?;
        let options = |model: &str| json!([{"configId": "model", "type": "select", "currentValue": model}]);
        let opened = json!({"sessionId": "$SESSION", "configOptions": options("small")});
        self.ask(cx, "session/new", json!({"cwd": "$CWD"}), opened).await?;
        let set = json!({"sessionId": "$SESSION", "configId": "model", "type": "id", "value": "large"});
        self.ask(cx, "session/set_config_option", set, json!({"configOptions": options("large")})).await?;

        let text = |kind: &str, text: &str| json!({"sessionUpdate": kind, "content": {"type": "text", "text": text}});
        let done = json!({"type": "content", "content": {"type": "text", "text": "done"}});
        let plan =
            json!({"type": "command", "name": "plan", "input": {"type": "text", "hint": "what to plan"}});
        self.prompt(cx, "updates").await?;
        self.end("end_turn").await?;
        for update in [
            text("agent_thought_chunk", "thinking"),
            text("agent_message_chunk", "Draft"),
            json!({"sessionUpdate": "agent_message", "content": null}),
            text("agent_message_chunk", "Hello é世界"),
            json!({"sessionUpdate": "tool_call_update", "toolCallId": "call-1", "status": "completed"}),
            json!({"sessionUpdate": "tool_call_content_chunk", "toolCallId": "call-1", "content": done}),
            json!({"sessionUpdate": "plan_update", "plan": {"type": "items"}}),
            json!({"sessionUpdate": "session_info_update", "title": "A talk"}),
            json!({"sessionUpdate": "usage_update", "used": 12, "size": 34}),
            json!({"sessionUpdate": "config_option_update", "configOptions": options("small")}),
            json!({"sessionUpdate": "available_commands_update", "availableCommands": [plan]}),
            json!({"sessionUpdate": "notice", "severity": "warning", "title": "Rate limited"}),
            json!({"sessionUpdate": "compaction_update", "compactionId": "c-1", "status": "completed"}),
            json!({"sessionUpdate": "compaction_summary_chunk", "content": {"text": "So far: hello"}}),
        ] {
            self.came(update["sessionUpdate"].clone().as_str().unwrap_or_default(), update);
        }
        self.prompt(cx, "permission").await?;
        self.end("end_turn").await?;
        let asks = json!({"sessionUpdate": "state_update", "state": "requires_action"});
        self.came("requires_action", asks);

        self.prompt(cx, "terminal").await?;
        self.until(json!({"sessionUpdate": "terminal_output_chunk"})).await?;
        let cancel = json!({"sessionId": "$SESSION", "terminalId": "t-1"});
        self.ask(cx, "terminal/cancel", cancel, json!({})).await?;
        self.end("end_turn").await?;
        let output =
            json!({"sessionUpdate": "terminal_output_chunk", "terminalId": "t-1", "data": "aGVsbG8K"});
        self.came("terminal_output_chunk", output);
        let size = json!({"cols": 80, "rows": 24});
        let begun = json!({"terminalId": "t-1", "command": "make", "cwd": "$CWD", "size": size});
        self.came("terminal_update", begun);
        self.came("terminal_update", json!({"terminalId": "t-1", "exitStatus": {"signal": "SIGTERM"}}));
        self.prompt(cx, "background").await?;
        self.end("end_turn").await?;
        for work in [json!([{"type": "tool_call", "toolCallId": "call-4"}]), json!([])] {
            self.came("background work", json!({"sessionUpdate": "state_update", "background": work}));
        }
        self.prompt(cx, "elicitation").await?;
        self.end("end_turn").await?;

        let call = json!({"sessionUpdate": "tool_call_update", "toolCallId": "call-3"});
        self.prompt(cx, "cancel call").await?;
        self.until(call).await?;
        let cancel = json!({"sessionId": "$SESSION", "toolCallId": "call-3"});
        self.ask(cx, "tool_call/cancel", cancel, json!({})).await?;
        self.end("end_turn").await?;
        self.prompt(cx, "cancel").await?;
        self.until(text("agent_message_chunk", "waiting")).await?;
        let cancel = self.surface.fill(&json!({"sessionId": "$SESSION"}));
        cx.send_notification(ClientNotification::parse_message("session/cancel", &cancel)?)?;
        self.end("cancelled").await?;
        self.surface.report("session/cancel", Ok(()), "");
        self.prompt(cx, "fail").await?;
        self.end("error").await?;
        self.came("error", json!({"stopReason": "error", "error": {"message": "no model"}}));

        let listed = json!({"sessions": [{"sessionId": "$SESSION", "cwd": "$CWD"}]});
        self.ask(cx, "session/list", json!({"cwd": "$CWD"}), listed).await?;
        self.updates.clear();
        let resume = json!({"sessionId": "$SESSION", "cwd": "$CWD", "replayFrom": {"type": "start"}});
        self.ask(cx, "session/resume", resume, json!({})).await?;
        let replayed = self.updates.text();
        if !replayed.contains("before") || !replayed.contains("replayed") {
            self.surface.report("session/resume", Err(format!("no replay: {replayed}")), "");
        }
        let session = json!({"sessionId": "$SESSION"});
        self.ask(cx, "session/close", session.clone(), json!({})).await?;
        self.ask(cx, "session/delete", session, json!({})).await?;
        self.ask(cx, "auth/logout", json!({}), json!({})).await
    }
}
