//! An agent on the official Rust crate that plays the agent's half of the surface.

use agent_client_protocol::v1::schema::{
    AgentNotification, AgentRequest, AgentResponse, ClientNotification, ClientRequest, ClientResponse,
    SessionNotification,
};
use agent_client_protocol::v1::{ConnectionTo, Responder};
use agent_client_protocol::{
    Agent, Client, ConnectTo, Error, JsonRpcMessage as _, JsonRpcResponse as _, Stdio, UntypedMessage,
};
use agent_client_protocol_http::AcpHttpServer;
use interop_peers::{Surface, row_of};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

struct State {
    surface: Surface,
    cancelled: Notify,
}

/// Serves on stdio, or with the argument `--serve` over HTTP and WebSocket at an address that it prints.
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    if std::env::args().nth(1).as_deref() != Some("--serve") {
        return agent().connect_to(Stdio::new()).await;
    }
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.map_err(Error::into_internal_error)?;
    println!("{}", listener.local_addr().map_err(Error::into_internal_error)?);
    let router = AcpHttpServer::new(agent).into_router();
    axum::serve(listener, router).await.map_err(Error::into_internal_error)
}

fn agent() -> impl ConnectTo<Client> {
    let surface = Surface::load("INTEROP_AGENT_REPORT");
    surface.set("$SESSION", "session-rust");
    let state = Arc::new(State { surface, cancelled: Notify::new() });
    let canceller = state.clone();
    Agent
        .v1()
        .name("interop")
        .on_receive_request(
            async move |request: ClientRequest, responder: Responder, cx: ConnectionTo<Client>| {
                let state = state.clone();
                cx.clone().spawn(async move { state.answer(request, responder, cx).await })
            },
            agent_client_protocol::on_receive_request!(),
        )
        .on_receive_notification(
            async move |notification: ClientNotification, _cx| {
                match notification {
                    ClientNotification::CancelNotification(_) => canceller.cancelled.notify_one(),
                    other => canceller.told(&other.to_untyped_message()?),
                }
                Ok(())
            },
            agent_client_protocol::on_receive_notification!(),
        )
}

impl State {
    fn told(&self, notification: &UntypedMessage) {
        let of_method = |entry: &&Value| entry["notify"] == notification.method();
        let candidates = self.surface.entries().into_iter().filter(of_method).collect();
        self.surface.report(
            notification.method(),
            self.surface.pick(candidates, notification.params()).1,
            "",
        );
    }

    async fn answer(
        &self,
        request: ClientRequest,
        responder: Responder,
        cx: ConnectionTo<Client>,
    ) -> Result<(), Error> {
        let (method, params) = request.to_untyped_message()?.into_parts();
        let of_method = |entry: &&Value| entry["method"] == method.as_str();
        let candidates: Vec<_> = self.surface.entries().into_iter().filter(of_method).collect();
        if candidates.is_empty() {
            return responder.respond_with_error(Error::method_not_found());
        }
        let (entry, outcome) = self.surface.pick(candidates, &params);
        self.surface.report(&method, outcome, "");
        for update in self.surface.known(entry, "updates") {
            self.update(update, &cx)?;
        }
        for call in self.surface.known(entry, "calls") {
            let outcome = self.call(call, &cx).await;
            self.surface.report(row_of(call), outcome, "");
        }
        match entry["cancel"].as_str() {
            Some("session/cancel") => self.cancelled.notified().await,
            Some(_) => responder.cancellation().cancelled().await,
            None => {}
        }
        if entry["cancel"].is_string() {
            self.surface.report(row_of(entry), Ok(()), "");
        }
        match entry.get("error") {
            Some(error) => {
                responder.respond_with_error(serde_json::from_value(error.clone()).expect("an error"))
            }
            None => responder
                .cast()
                .respond(AgentResponse::from_json(&method, self.surface.fill(&entry["result"]))?),
        }
    }

    /// Sends one update: typed, or raw when the crate does not know the variant.
    fn update(&self, update: &Value, cx: &ConnectionTo<Client>) -> Result<(), Error> {
        let params = self.surface.fill(&json!({"sessionId": "$SESSION", "update": update}));
        match serde_json::from_value::<SessionNotification>(params.clone()) {
            Ok(notification) => cx.send_notification(notification)?,
            Err(_) => cx.send_notification(UntypedMessage::new("session/update", params)?)?,
        }
        self.surface.report(row_of(update), Ok(()), "");
        Ok(())
    }

    /// Makes one call to the client and says what is wrong with the answer.
    async fn call(&self, call: &Value, cx: &ConnectionTo<Client>) -> Result<(), String> {
        let params = self.surface.fill(&call["params"]);
        let text = |error: Error| error.to_string();
        if let Some(method) = call["notify"].as_str() {
            let notification = AgentNotification::parse_message(method, &params).map_err(text)?;
            return cx.send_notification(notification).map_err(text);
        }
        let method = call["method"].as_str().unwrap_or_default();
        let sent = cx.send_request(AgentRequest::parse_message(method, &params).map_err(text)?);
        if call["cancel"].is_string() {
            tokio::time::sleep(Duration::from_millis(200)).await;
            sent.cancel().map_err(text)?;
        }
        match sent.block_task().await {
            Ok(answer) => {
                let answer =
                    ClientResponse::from_json(method, answer).and_then(|typed| typed.into_json(method));
                self.surface.difference(&call["result"], Some(&answer.map_err(text)?), "")
            }
            Err(error) if call["cancel"].is_string() && i32::from(error.code) == -32800 => Ok(()),
            Err(error) => Err(text(error)),
        }
    }
}
