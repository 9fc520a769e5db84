//! A client on the official Rust crate that plays the client's half of the surface: `interop-client AGENT [ARG…]` or
//! `interop-client URL`

use agent_client_protocol::v1::schema::{
    AgentNotification, AgentRequest, AgentResponse, ClientNotification, ClientRequest, ClientResponse,
};
use agent_client_protocol::v1::{ConnectionTo, Responder};
use agent_client_protocol::{
    AcpAgent, Agent, Client, ConnectTo, Error, JsonRpcMessage as _, JsonRpcResponse as _,
};
use agent_client_protocol_http::HttpClient;
use interop_peers::{Surface, row_of};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;

struct State {
    surface: Surface,
    seen: Mutex<Vec<Value>>,
    updated: Notify,
}

/// Drives the agent whose command or URL follows.
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    match std::env::args().nth(1) {
        Some(url) if url.contains("://") => {
            drive(HttpClient::with_endpoint(url).map_err(Error::into_internal_error)?).await
        }
        _ => drive(AcpAgent::from_args(std::env::args().skip(1))?).await,
    }
}

async fn drive(agent: impl ConnectTo<Client>) -> Result<(), Error> {
    let surface = Surface::load("INTEROP_CLIENT_REPORT");
    let state = Arc::new(State { surface, seen: Mutex::default(), updated: Notify::new() });
    let (asked, told) = (state.clone(), state.clone());
    Client
        .v1()
        .name("interop")
        .on_receive_request(
            async move |request: AgentRequest, responder: Responder, cx: ConnectionTo<Agent>| {
                let state = asked.clone();
                cx.spawn(async move { state.answer(request, responder).await })
            },
            agent_client_protocol::on_receive_request!(),
        )
        .on_receive_notification(
            async move |notification: AgentNotification, _cx| told.notified(notification),
            agent_client_protocol::on_receive_notification!(),
        )
        .connect_with(agent, async move |cx| {
            for entry in state.surface.entries() {
                state.step(entry, &cx).await;
            }
            Ok(())
        })
        .await
}

impl State {
    async fn answer(&self, request: AgentRequest, responder: Responder) -> Result<(), Error> {
        let (method, params) = request.to_untyped_message()?.into_parts();
        let of_method = |call: &&Value| call["method"] == method.as_str();
        let candidates: Vec<_> = self.surface.calls().into_iter().filter(of_method).collect();
        if candidates.is_empty() {
            return responder.respond_with_error(Error::method_not_found());
        }
        let (call, outcome) = self.surface.pick(candidates, &params);
        self.surface.report(row_of(call), outcome, "");
        self.surface.set("$TERMINAL", "term-rust");
        if call["cancel"].is_string() {
            responder.cancellation().cancelled().await;
        }
        responder.cast().respond(ClientResponse::from_json(&method, self.surface.fill(&call["result"]))?)
    }

    fn notified(&self, notification: AgentNotification) -> Result<(), Error> {
        let (method, mut params) = notification.to_untyped_message()?.into_parts();
        if method == "session/update" {
            self.seen.lock().unwrap().push(params["update"].take());
            self.updated.notify_one();
        } else {
            let of_method = |call: &&Value| call["notify"] == method.as_str();
            let candidates = self.surface.calls().into_iter().filter(of_method).collect();
            self.surface.report(&method, self.surface.pick(candidates, &params).1, "");
        }
        Ok(())
    }

    async fn step(&self, entry: &Value, cx: &ConnectionTo<Agent>) {
        if let Some(method) = entry["notify"].as_str() {
            let notification = ClientNotification::parse_message(method, &entry["params"]);
            let sent = notification.and_then(|notification| cx.send_notification(notification));
            return self.surface.report(method, sent.map_err(|error| error.to_string()), "");
        }
        self.seen.lock().unwrap().clear();
        let row = if entry["error"].is_object() { "an error" } else { row_of(entry) };
        let asked = tokio::time::timeout(Duration::from_secs(15), self.ask(entry, cx));
        let outcome = asked.await.unwrap_or_else(|_| Err("no answer in 15 s".to_owned()));
        self.surface.report(row, outcome, "");
        if entry["readable"].is_object() {
            self.check_readable("agent_message_clear", "agent_message_chunk", &entry["readable"]["text"]);
            self.check_readable("agent_thought_clear", "agent_thought_chunk", &entry["readable"]["thought"]);
        } else {
            self.check_updates(entry);
        }
    }

    /// Makes one call to the agent and says what is wrong with the answer.
    async fn ask(&self, entry: &Value, cx: &ConnectionTo<Agent>) -> Result<(), String> {
        let text = |error: Error| error.to_string();
        let method = entry["method"].as_str().unwrap_or_default();
        let request =
            ClientRequest::parse_message(method, &self.surface.fill(&entry["params"])).map_err(text)?;
        let sent = cx.send_request(request);
        if let Some(how) = entry["cancel"].as_str() {
            while self.seen.lock().unwrap().is_empty() {
                self.updated.notified().await;
            }
            if how == "session/cancel" {
                let params = self.surface.fill(&json!({"sessionId": "$SESSION"}));
                cx.send_notification(ClientNotification::parse_message(how, &params).map_err(text)?)
                    .map_err(text)?;
            } else {
                sent.cancel().map_err(text)?;
            }
        }
        match (sent.block_task().await, entry.get("error")) {
            (Ok(_), Some(_)) => Err("answered, not refused".to_owned()),
            (Ok(answer), None) => {
                let answer =
                    AgentResponse::from_json(method, answer).and_then(|typed| typed.into_json(method));
                self.surface.difference(&entry["result"], Some(&answer.map_err(text)?), "")
            }
            (Err(error), Some(expected)) => {
                self.surface.difference(expected, serde_json::to_value(&error).ok().as_ref(), "")
            }
            (Err(error), None) if row_of(entry) == "$/cancel_request" && i32::from(error.code) == -32800 => {
                Ok(())
            }
            (Err(error), None) => Err(text(error)),
        }
    }

    /// Every update of the entry must have come, in order, before its answer.
    fn check_updates(&self, entry: &Value) {
        let seen = std::mem::take(&mut *self.seen.lock().unwrap());
        let mut rest = seen.as_slice();
        for update in self.surface.known(entry, "updates") {
            let row = row_of(update);
            let compare = |other: &Value| self.surface.difference(update, Some(other), "");
            match rest.iter().position(|other| compare(other).is_ok()) {
                Some(at) => {
                    rest = &rest[at + 1..];
                    self.surface.report(row, Ok(()), "");
                }
                None => {
                    let rival = seen.iter().find(|other| row_of(other) == row);
                    let problem = rival.map_or_else(|| Err("did not come".to_owned()), compare);
                    self.surface.report(row, problem.and(Err("out of order".to_owned())), "");
                }
            }
        }
    }

    /// Checks that a client without support for clears still gets a readable text.
    fn check_readable(&self, row: &str, kind: &str, end: &Value) {
        let seen = self.seen.lock().unwrap();
        let of_kind = seen.iter().filter(|update| row_of(update) == kind);
        let said: String = of_kind.filter_map(|update| update["content"]["text"].as_str()).collect();
        let readable = said.ends_with(end.as_str().unwrap_or_default());
        let outcome = if readable { Ok(()) } else { Err(format!("not readable: {said:?}")) };
        self.surface.report(row, outcome, &said);
    }
}
