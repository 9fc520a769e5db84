//! The end of a session: nothing of it follows the response to the close.

use std::time::Duration;

use duologue_agent::schema::{
    AgentCapabilities, PermissionOption, PermissionOptionKind, SessionCapabilities, SessionCloseCapabilities,
    SessionResumeCapabilities, StateUpdate, ToolCallUpdate,
};
use duologue_agent::{
    Agent, Context, Error, Prompt, Result, Server, Session, SessionSetup, StopReason, Turn,
};
use duologue_test_support::in_time;
use serde_json::{Value, json};

use super::{Client, client_of, short};

/// Works in tasks that outlive the turn by a second, and closes sessions slowly.
struct Outliving;

impl Agent for Outliving {
    fn capabilities(&self) -> AgentCapabilities {
        let session = SessionCapabilities::new()
            .close(SessionCloseCapabilities::new())
            .resume(SessionResumeCapabilities::new());
        AgentCapabilities::new().session_capabilities(session)
    }

    async fn resume_session(&self, _: &Context, _: &Session) -> Result<SessionSetup> {
        Ok(SessionSetup::new())
    }

    async fn close_session(&self, _: &Context, session: &Session) -> Result<()> {
        if session.meta().is_some() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        Ok(())
    }

    async fn prompt(&self, turn: &Turn, prompt: Prompt) -> Result<StopReason> {
        let session = turn.session().clone();
        match prompt.text().as_str() {
            "update later" => {
                let mut terminal = session.display_terminal("cargo test").start().await?;
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    let closed = terminal.append("late").await;
                    assert!(matches!(closed, Err(Error::SessionClosed)), "{closed:?}");
                });
            }
            "ask later" => {
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    let allow = PermissionOption::new("allow", "Allow", PermissionOptionKind::AllowOnce);
                    let closed = session.request_permission(ToolCallUpdate::new("c"), vec![allow]).await;
                    assert!(matches!(closed, Err(Error::SessionClosed)), "{closed:?}");
                });
            }
            "watch" => {
                let call =
                    turn.tool_call("Watch").id("w").cancellable().start().await?.detach_cancellable()?;
                tokio::spawn(async move { call.cancelled().await });
            }
            "child" => {
                let child = turn.subagent("Review").start().await?;
                let _open = child.tool_call("Read").id("r").start().await?;
                child.set_state(StateUpdate::requires_action()).await?;
                tokio::spawn(async move {
                    child.cancelled().await;
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    child.message().push("late").await.expect_err("the child has ended");
                    child.finish(StopReason::EndTurn);
                });
            }
            "finished child" => turn.subagent("Review").start().await?.finish(StopReason::MaxTokens),
            other => panic!("{other}"),
        }
        Ok(StopReason::EndTurn)
    }
}

/// Waits for two seconds, in which nothing of the session may arrive.
async fn expect_silence(client: &mut Client) {
    tokio::time::sleep(Duration::from_secs(2)).await;
    client.peer.probe().await;
}

/// The handles that the agent got before the session was resumed are those of the same session.
#[tokio::test(start_paused = true)]
async fn a_close_ends_the_handles_of_a_resumed_session() {
    in_time(async {
        for is_resumed in [false, true] {
            let mut client = client_of(Server::new(Outliving)).await;
            let prompt = client.prompt("update later").await;
            client.until_idle(prompt).await;
            let session = client.session.clone();
            if is_resumed {
                let resume = client
                    .peer
                    .send_request("session/resume", json!({"sessionId": session, "cwd": "/"}))
                    .await;
                assert_eq!(client.updates(1).await, ["state_update idle"]);
                assert_eq!(client.peer.next_message().await["id"], resume);
            }
            let closed = client.peer.request("session/close", json!({"sessionId": session})).await;
            assert!(closed["result"].is_object(), "{closed}");
            expect_silence(&mut client).await;
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn no_request_to_the_user_follows_a_close() {
    in_time(async {
        let mut client = client_of(Server::new(Outliving)).await;
        let prompt = client.prompt("ask later").await;
        client.until_idle(prompt).await;
        let closed = client.peer.request("session/close", json!({"sessionId": client.session})).await;
        assert!(closed["result"].is_object(), "{closed}");
        expect_silence(&mut client).await;
    })
    .await;
}

/// A client may resume a session before the response to its close.
#[tokio::test(start_paused = true)]
async fn a_close_does_not_end_a_session_that_was_resumed_meanwhile() {
    in_time(async {
        let mut client = client_of(Server::new(Outliving)).await;
        let slow = json!({"cwd": "/", "_meta": {"slow": true}});
        let response = client.peer.request("session/new", slow).await;
        client.session = response["result"]["sessionId"].as_str().expect("an id").to_owned();
        let session = client.session.clone();
        let close = client.peer.send_request("session/close", json!({"sessionId": session})).await;
        // The close has begun.
        client.peer.probe().await;
        let resume = json!({"sessionId": session, "cwd": "/"});
        let resume = client.peer.send_request("session/resume", resume).await;
        assert_eq!(client.updates(1).await, ["state_update idle"]);
        assert_eq!(client.peer.next_message().await["id"], resume);
        let prompt = client.prompt("watch").await;
        let lines = client.until_idle(prompt).await;
        assert_eq!(lines[3..], ["tool_call_update w in_progress", "state_update idle end_turn"]);
        let closed = client.peer.next_message().await;
        assert_eq!((&closed["id"], closed["result"].is_object()), (&json!(close), true), "{closed}");
        let cancel = json!({"sessionId": session, "toolCallId": "w"});
        let accepted = client.peer.request("tool_call/cancel", cancel).await;
        assert!(accepted["result"].is_object(), "the session is open: {accepted}");
    })
    .await;
}

/// Returns the session and a description of an update.
fn line(message: &Value, session: &str) -> String {
    let update = &message["params"]["update"];
    let of = if message["params"]["sessionId"] == session { "parent" } else { "child" };
    match update["sessionUpdate"].as_str() {
        Some("subagent_update") => {
            let state = &update["state"];
            let reason = state["stopReason"].as_str().unwrap_or_default();
            format!("{of} shows {} {reason}", state["state"].as_str().unwrap_or_default()).trim().to_owned()
        }
        _ => format!("{of} {}", short(update)),
    }
}

/// A child session has states of its own, which its parent mirrors. It ends with the session that it works for.
#[tokio::test(start_paused = true)]
async fn a_close_ends_the_children_of_the_session() {
    in_time(async {
        let mut client = client_of(Server::new(Outliving)).await;
        let session = client.session.clone();
        let prompt = client.prompt("child").await;
        assert_eq!(client.peer.next_message().await["id"], prompt);
        client.updates(2).await;
        let mut lines = Vec::new();
        while lines.len() < 6 {
            lines.push(line(&client.peer.expect("session/update").await, &session));
        }
        assert_eq!(
            lines,
            [
                "parent shows running",
                "child state_update running",
                "child tool_call_update r in_progress",
                "child state_update requires_action",
                "parent shows requires_action",
                "parent state_update idle end_turn",
            ]
        );
        let close = client.peer.send_request("session/close", json!({"sessionId": session})).await;
        let mut lines = Vec::new();
        while lines.len() < 3 {
            lines.push(line(&client.peer.expect("session/update").await, &session));
        }
        assert_eq!(
            lines,
            [
                "child tool_call_update r cancelled",
                "child state_update idle cancelled",
                "parent shows idle cancelled",
            ]
        );
        assert_eq!(client.peer.next_message().await["id"], close);
        expect_silence(&mut client).await;

        let mut client = client_of(Server::new(Outliving)).await;
        let session = client.session.clone();
        let prompt = client.prompt("finished child").await;
        assert_eq!(client.peer.next_message().await["id"], prompt);
        client.updates(2).await;
        let mut lines = Vec::new();
        while lines.len() < 5 {
            lines.push(line(&client.peer.expect("session/update").await, &session));
        }
        assert_eq!(lines[2..4], ["child state_update idle max_tokens", "parent shows idle max_tokens"]);
    })
    .await;
}
