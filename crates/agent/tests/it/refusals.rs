//! Errors of the client to requests of the agent, and errors of the agent, as the client receives them.

use std::sync::Arc;
use std::time::Duration;

use duologue_agent::schema::{
    AgentAuthCapabilities, AgentCapabilities, AuthMethod, AuthMethodAgent, CreateTerminalRequest,
    InitializeRequest, LogoutCapabilities, Request, SessionCapabilities, SessionCloseCapabilities,
    SessionDeleteCapabilities, SessionListCapabilities, SessionResumeCapabilities, ToolCallUpdate,
};
use duologue_agent::{Agent, Error, Prompt, Result, StopReason, Turn, serve};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use duologue_test_support::{Wire, in_time};

#[derive(Serialize, Deserialize)]
struct Unknown {}

impl Request for Unknown {
    const METHOD: &'static str = "_test/unknown";
    type Result = ();
}

struct Asker;

impl Agent for Asker {
    async fn prompt(&self, turn: &Turn, prompt: Prompt) -> Result<StopReason> {
        match prompt.text().as_str() {
            "permission" => drop(turn.request_permission(ToolCallUpdate::new("a"), Vec::new()).await?),
            "terminal" => {
                turn.create_terminal_with(CreateTerminalRequest::new("", "make")).await?;
            }
            "wait" => {
                turn.create_terminal("make", ["-x"]).await?.wait_for_exit().await?;
            }
            "extension" => turn.client().peer().request(&Unknown {}).await?,
            "slow extension" => {
                turn.client().peer().request(&Unknown {}).timeout(Duration::from_secs(10)).await?;
            }
            "form" => drop(turn.elicit_url("Open", "e", "https://example.com").await?),
            "relative" => drop(turn.read_text_file("a").await?),
            "login" => return Err(Error::auth_required("log in first")),
            _ => return Err(Error::other("the model is down")),
        }
        Ok(StopReason::EndTurn)
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_of_the_client_is_not_the_answer_to_its_prompt() {
    in_time(async {
        let (transport, mut client) = Wire::Memory.scripted();
        tokio::spawn(serve(Asker, transport));
        client.initialize(json!({"terminal": true, "fs": {"readTextFile": true}})).await;
        let session = client.new_session().await;
        for (text, method, action) in [
            ("permission", "session/request_permission", "ask for permission"),
            ("terminal", "terminal/create", "run a program"),
            ("wait", "terminal/wait_for_exit", "control a program"),
            ("extension", "_test/unknown", "answer a request of the agent"),
        ] {
            let prompt = client.prompt(&session, text).await;
            let mut request = client.next_message().await;
            if text == "wait" {
                client.respond(&request, json!({"terminalId": "t"})).await;
                request = client.next_message().await;
            }
            assert_eq!(request["method"], method);
            let details = match text {
                "terminal" => json!({"path": "/make"}),
                "wait" => json!("x".repeat(5_000)),
                _ => Value::Null,
            };
            let error = json!({"code": -32601, "message": "Method not found", "data": details});
            client.send(json!({"jsonrpc": "2.0", "id": request["id"], "error": error})).await;
            let mut answer = client.next_message().await;
            if answer["method"] == "terminal/release" {
                answer = client.next_message().await;
            }
            assert_eq!(
                (&answer["id"], &answer["error"]["code"]),
                (&json!(prompt), &json!(-32603)),
                "{answer}"
            );
            let message = format!("The editor could not {action}: Method not found");
            assert_eq!(answer["error"]["message"], message);
            let method = (text != "extension").then_some(method);
            let mut data = json!({"method": method, "code": -32601, "message": "Method not found"});
            if details.is_object() {
                data["data"] = details;
            }
            assert_eq!(answer["error"]["data"], data, "{answer}");
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_request_for_a_missing_method_does_not_end_the_turn() {
    in_time(async {
        let (transport, mut client) = Wire::Memory.scripted();
        tokio::spawn(serve(Asker, transport));
        client.initialize(json!({"terminal": true})).await;
        let session = client.new_session().await;
        let prompt = client.prompt(&session, "permission").await;
        let permission = client.expect("session/request_permission").await;
        for method in ["session/close", "session/load", "session/resume"] {
            let params = json!({"sessionId": session, "cwd": "/", "mcpServers": []});
            let answer = client.request(method, params).await;
            assert_eq!(answer["error"]["code"], -32601, "{answer}");
        }
        client.respond(&permission, json!({"outcome": {"outcome": "cancelled"}})).await;
        let answer = client.next_message().await;
        assert_eq!(
            (&answer["id"], &answer["result"]["stopReason"]),
            (&json!(prompt), &json!("end_turn")),
            "{answer}"
        );
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn messages_for_developers_are_details() {
    in_time(async {
        let (transport, mut client) = Wire::Memory.scripted();
        tokio::spawn(serve(Asker, transport));
        client.initialize(json!({"fs": {"readTextFile": true}})).await;
        let session = client.new_session().await;
        for (text, code, message, detail) in [
            (
                "terminal",
                -32603,
                "This needs an editor that runs programs in a terminal.",
                Some("the client did not advertise terminal"),
            ),
            ("form", -32603, "This needs an editor that opens links.", Some("elicitation.url")),
            ("relative", -32603, "The agent used a relative path: a", Some("Session::cwd()")),
            (
                "slow extension",
                -32603,
                "The editor did not answer in time.",
                Some("_test/unknown within 10s"),
            ),
            ("login", -32000, "log in first", None),
            ("other", -32603, "the model is down", None),
        ] {
            let prompt = client.prompt(&session, text).await;
            if text == "slow extension" {
                client.expect("_test/unknown").await;
                client.expect("$/cancel_request").await;
            }
            let answer = client.next_message().await;
            assert_eq!(answer["id"], prompt);
            let error = &answer["error"];
            assert_eq!(
                (&error["code"], &error["message"]),
                (&json!(code), &json!(message)),
                "{text}: {answer}"
            );
            let found = error["data"]["detail"].as_str();
            assert_eq!(found.is_some(), detail.is_some(), "{answer}");
            assert!(found.unwrap_or_default().contains(detail.unwrap_or_default()), "{answer}");
        }
    })
    .await;
}

/// Advertises a method that it has not implemented.
struct Contradicting(&'static str);

impl Agent for Contradicting {
    fn capabilities(&self) -> AgentCapabilities {
        let (all, session) = (AgentCapabilities::new(), SessionCapabilities::new());
        match self.0 {
            "loadSession" => all.load_session(true),
            "sessionCapabilities.resume" => {
                all.session_capabilities(session.resume(SessionResumeCapabilities::new()))
            }
            "sessionCapabilities.list" => {
                all.session_capabilities(session.list(SessionListCapabilities::new()))
            }
            "sessionCapabilities.close" => {
                all.session_capabilities(session.close(SessionCloseCapabilities::new()))
            }
            "sessionCapabilities.delete" => {
                all.session_capabilities(session.delete(SessionDeleteCapabilities::new()))
            }
            "auth.logout" => all.auth(AgentAuthCapabilities::new().logout(LogoutCapabilities::new())),
            _ => all,
        }
    }

    fn auth_methods(&self, _: &InitializeRequest) -> Vec<AuthMethod> {
        let is_offered = self.0 == "a login method of type agent";
        is_offered.then(|| AuthMethodAgent::new("key", "By key").into()).into_iter().collect()
    }

    async fn prompt(&self, _: &Turn, _: Prompt) -> Result<StopReason> {
        Ok(StopReason::EndTurn)
    }
}

#[tokio::test(start_paused = true)]
async fn a_capability_without_its_method_fails_initialize() {
    in_time(async {
        for (capability, method) in [
            ("loadSession", "load_session"),
            ("sessionCapabilities.resume", "resume_session"),
            ("sessionCapabilities.list", "list_sessions"),
            ("sessionCapabilities.close", "close_session"),
            ("sessionCapabilities.delete", "delete_session"),
            ("auth.logout", "logout"),
            ("a login method of type agent", "authenticate"),
        ] {
            let (transport, mut client) = Wire::Memory.scripted();
            // In an `Arc`, which passes the methods on.
            tokio::spawn(serve(Arc::new(Contradicting(capability)), transport));
            let answer = client.request("initialize", json!({"protocolVersion": 1})).await;
            let expected =
                format!("the agent advertises {capability}, but does not implement Agent::{method}");
            assert_eq!(answer["error"]["message"], json!(expected), "{answer}");
        }
    })
    .await;
}
