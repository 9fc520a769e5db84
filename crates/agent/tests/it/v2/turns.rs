//! The turn of a prompt: its response, its states and its end.

use duologue_agent::SessionSetup;
use duologue_agent::schema::{
    ElicitationSchema, Meta, PermissionOption, PermissionOptionKind, RequestPermissionOutcome,
    ToolCallUpdate, Usage,
};
use duologue_agent::schema::{SessionMode, SessionModeState, SetSessionModeRequest};
use duologue_agent::{Agent, Context, Error, Limits, Prompt, Result, Server, Session, StopReason, Turn};
use duologue_test_support::{Wire, in_time};
use serde_json::json;

use super::{Both, client, client_of, initialize, short};

/// Does what the prompt names.
struct Turns;

impl Agent for Turns {
    async fn new_session(&self, _: &Context, _: &Session) -> Result<SessionSetup> {
        let modes = vec![SessionMode::new("ask", "Ask"), SessionMode::new("slow", "Slow")];
        Ok(SessionSetup::new().modes(SessionModeState::new("ask", modes)))
    }

    async fn set_mode(&self, _: &Context, _: &Session, _: SetSessionModeRequest) -> Result<()> {
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        Ok(())
    }

    async fn prompt(&self, turn: &Turn, prompt: Prompt) -> Result<StopReason> {
        let allow = || vec![PermissionOption::new("allow", "Allow", PermissionOptionKind::AllowOnce)];
        match prompt.text().as_str() {
            "usage" => {
                turn.set_token_usage(Usage::new(3, 1, 2));
                turn.set_answer_meta(Meta::from_iter([("k", 1)]));
            }
            "two questions" => {
                let (first, second) = tokio::join!(
                    turn.request_permission(ToolCallUpdate::new("a"), allow()).into_future(),
                    turn.request_permission(ToolCallUpdate::new("b"), allow()).into_future(),
                );
                first.and(second)?;
            }
            "elicit" => {
                turn.elicit_form("Which?", ElicitationSchema::new()).await?;
            }
            "open question" => {
                let session = turn.session().clone();
                let question = async move {
                    session.request_permission(ToolCallUpdate::new("a"), allow()).await.expect("an outcome");
                };
                tokio::spawn(question);
                tokio::time::sleep(std::time::Duration::from_secs(1)).await;
            }
            "fail" => {
                turn.tool_call("Sleep").id("c").start().await?;
                return Err(Error::other("no model"));
            }
            "panic" => {
                turn.tool_call("Sleep").id("c").start().await?;
                turn.cancelled().await;
                panic!("a bug");
            }
            "ask and clean up" => {
                let call = turn.tool_call("Delete").id("c").start().await?;
                let outcome = call.request_permission(allow()).await?;
                assert_eq!(outcome, RequestPermissionOutcome::Cancelled);
                call.fail("not permitted").await?;
            }
            "choices" => {
                let outcome = turn.request_permission(ToolCallUpdate::new("a"), allow()).await?;
                assert_eq!(outcome, RequestPermissionOutcome::Cancelled);
                let twice = [allow(), allow()].concat();
                for options in [Vec::new(), twice] {
                    turn.request_permission(ToolCallUpdate::new("a"), options).await.expect_err("no options");
                }
            }
            "ignore" => std::future::pending().await,
            _ => {}
        }
        Ok(StopReason::EndTurn)
    }
}

#[tokio::test(start_paused = true)]
async fn a_prompt_is_answered_at_once_and_its_turn_ends_with_idle() {
    in_time(async {
        let mut client = client().await;
        let prompt = client.prompt("write").await;
        assert_eq!(
            client.until_idle(prompt).await,
            [
                "response *",
                "user_message * write",
                "state_update running",
                "agent_message_chunk m draft",
                "agent_message m null",
                "agent_message_chunk m final",
                "tool_call_update c in_progress",
                "tool_call_update c completed",
                "state_update idle end_turn",
            ]
        );
        // The session accepts another prompt as soon as it is idle.
        let prompt = client.prompt("write").await;
        assert_eq!(client.until_idle(prompt).await.len(), 9);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_asks_the_user_requires_action() {
    in_time(async {
        let mut client = client().await;
        let prompt = client.prompt("ask").await;
        let lines = client.until_idle(prompt).await;
        assert_eq!(
            lines[3..7],
            [
                "tool_call_update c in_progress",
                "state_update requires_action",
                "permission \"tool_call\"",
                "state_update running",
            ]
        );
        assert_eq!(lines.last().map(String::as_str), Some("state_update idle end_turn"));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_failed_turn_is_idle_with_the_error() {
    in_time(async {
        let mut client = client().await;
        for (text, error) in [("fail", "no model"), ("panic", "the handler panicked")] {
            let prompt = client.prompt(text).await;
            let lines = client.until_idle(prompt).await;
            assert_eq!(lines.len(), 4, "{lines:?}");
            assert_eq!(lines[3], format!("state_update idle error {error}"));
        }
        let prompt = client.prompt("write").await;
        assert_eq!(client.until_idle(prompt).await.len(), 9, "the slot is free");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_turn_cancels_its_open_calls() {
    in_time(async {
        let mut client = client().await;
        let prompt = client.prompt("wait").await;
        assert_eq!(client.peer.next_message().await["id"], prompt);
        let session = client.session.clone();
        client.peer.cancel(&session).await;
        let mut lines = Vec::new();
        while lines.last().is_none_or(|line: &String| !line.contains("idle")) {
            lines.push(short(&client.peer.next_message().await["params"]["update"]));
        }
        assert_eq!(lines[lines.len() - 2..], ["tool_call_update c cancelled", "state_update idle cancelled"]);
    })
    .await;
}

/// A prompt of version 2 has no response in flight, so the end of the connection cancels its turn.
#[tokio::test(start_paused = true)]
async fn the_end_of_the_connection_cancels_the_turn() {
    in_time(async {
        let (transport, mut peer) = Wire::Memory.scripted();
        let serving = tokio::spawn(Server::new(Both).protocol_v2().serve(transport));
        peer.request("initialize", initialize(2)).await;
        let response = peer.request("session/new", json!({"cwd": "/"})).await;
        let prompt = json!([{"type": "text", "text": "wait"}]);
        let params = json!({"sessionId": response["result"]["sessionId"], "prompt": prompt});
        peer.request("session/prompt", params).await;
        peer.close().await;
        let last = peer.read_to_end().await;
        let last = last.iter().map(|message| short(&message["params"]["update"])).collect::<Vec<_>>();
        assert_eq!(last.last().map(String::as_str), Some("state_update idle cancelled"), "{last:?}");
        serving.await.expect("no panic").expect("no error");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_turn_has_its_tokens_and_metadata() {
    in_time(async {
        let mut client = client_of(Server::new(Turns)).await;
        let prompt = client.prompt("usage").await;
        assert_eq!(client.peer.next_message().await["id"], prompt);
        client.updates(2).await;
        let idle = client.peer.next_message().await;
        let idle = &idle["params"]["update"];
        assert_eq!((&idle["state"], &idle["stopReason"]), (&json!("idle"), &json!("end_turn")));
        let usage = json!({"totalTokens": 3, "inputTokens": 1, "outputTokens": 2});
        assert_eq!((&idle["usage"], &idle["_meta"]), (&usage, &json!({"k": 1})));
        // They are those of this turn alone.
        let prompt = client.prompt("nothing").await;
        assert_eq!(client.peer.next_message().await["id"], prompt);
        client.updates(2).await;
        let idle = client.peer.next_message().await;
        assert!(idle["params"]["update"].get("usage").is_none(), "{idle}");
    })
    .await;
}

/// The client may be slow, so both questions are open at once.
#[tokio::test(start_paused = true)]
async fn the_state_changes_with_the_first_and_the_last_question() {
    in_time(async {
        let mut client = client_of(Server::new(Turns)).await;
        let prompt = client.prompt("two questions").await;
        assert_eq!(client.peer.next_message().await["id"], prompt);
        assert_eq!(client.updates(3).await[2], "state_update requires_action");
        let first = client.peer.expect("session/request_permission").await;
        let second = client.peer.expect("session/request_permission").await;
        let outcome = json!({"outcome": {"outcome": "selected", "optionId": "allow"}});
        client.peer.respond(&first, outcome.clone()).await;
        client.peer.probe().await;
        client.peer.respond(&second, outcome).await;
        assert_eq!(client.updates(2).await, ["state_update running", "state_update idle end_turn"]);

        let prompt = client.prompt("elicit").await;
        let lines = client.until_idle(prompt).await;
        assert_eq!(lines[3..6], ["state_update requires_action", "elicitation", "state_update running"]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_question_that_outlives_its_turn_changes_no_state() {
    in_time(async {
        let mut client = client_of(Server::new(Turns)).await;
        let prompt = client.prompt("open question").await;
        assert_eq!(client.peer.next_message().await["id"], prompt);
        assert_eq!(client.updates(3).await[2], "state_update requires_action");
        let question = client.peer.expect("session/request_permission").await;
        assert_eq!(client.updates(1).await, ["state_update idle end_turn"]);
        client.peer.respond(&question, json!({"outcome": {"outcome": "cancelled"}})).await;
        client.peer.probe().await;
        // Nor does it make the next turn wait.
        let prompt = client.prompt("nothing").await;
        assert_eq!(client.until_idle(prompt).await[2], "state_update running");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_failed_turn_fails_its_open_calls() {
    in_time(async {
        let mut client = client_of(Server::new(Turns)).await;
        let prompt = client.prompt("fail").await;
        let lines = client.until_idle(prompt).await;
        assert_eq!(lines[4..], ["tool_call_update c failed", "state_update idle error no model"]);
    })
    .await;
}

/// A cancelled turn ends as cancelled, whatever its handler does then.
#[tokio::test(start_paused = true)]
async fn a_cancelled_handler_cannot_fail_the_turn() {
    in_time(async {
        for (text, updates) in [("panic", 3), ("ignore", 2)] {
            let mut client = client_of(Server::new(Turns)).await;
            let prompt = client.prompt(text).await;
            assert_eq!(client.peer.next_message().await["id"], prompt);
            client.updates(updates).await;
            let session = client.session.clone();
            client.peer.cancel(&session).await;
            if text == "panic" {
                assert_eq!(client.updates(1).await, ["tool_call_update c cancelled"]);
            }
            assert_eq!(client.updates(1).await, ["state_update idle cancelled"]);
        }
    })
    .await;
}

/// The client may answer the question only after `$/cancel_request`. The turn does not wait for that.
#[tokio::test(start_paused = true)]
async fn a_cancelled_turn_withdraws_its_questions() {
    in_time(async {
        let mut client = client_of(Server::new(Turns)).await;
        let prompt = client.prompt("ask and clean up").await;
        assert_eq!(client.peer.next_message().await["id"], prompt);
        assert_eq!(client.updates(4).await[3], "state_update requires_action");
        let question = client.peer.expect("session/request_permission").await;
        let (session, begun) = (client.session.clone(), tokio::time::Instant::now());
        client.peer.cancel(&session).await;
        let (mut withdrawn, mut lines) = (None, Vec::new());
        while lines.last().is_none_or(|line| line != "state_update idle cancelled") {
            let message = client.peer.next_message().await;
            match message["method"].as_str() {
                Some("$/cancel_request") => withdrawn = Some(message["params"]["requestId"].clone()),
                _ => lines.push(short(&message["params"]["update"])),
            }
        }
        assert_eq!(withdrawn.as_ref(), Some(&question["id"]));
        assert!(lines.contains(&"tool_call_update c failed".to_owned()), "{lines:?}");
        assert!(begun.elapsed() < Limits::default().cancel_grace);
        client.peer.respond(&question, json!({"outcome": {"outcome": "cancelled"}})).await;
        client.peer.probe().await;
    })
    .await;
}

/// Only an option that was offered permits anything.
#[tokio::test(start_paused = true)]
async fn an_option_that_was_not_offered_permits_nothing() {
    in_time(async {
        let mut client = client_of(Server::new(Turns)).await;
        let prompt = client.prompt("choices").await;
        assert_eq!(client.peer.next_message().await["id"], prompt);
        client.updates(3).await;
        let question = client.peer.expect("session/request_permission").await;
        let outcome = json!({"outcome": {"outcome": "selected", "optionId": "allow_always"}});
        client.peer.respond(&question, outcome).await;
        assert_eq!(client.updates(2).await, ["state_update running", "state_update idle end_turn"]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_prompt_during_a_close_is_cancelled() {
    in_time(async {
        let mut client = client_of(Server::new(Turns)).await;
        let session = client.session.clone();
        let set = json!({"sessionId": session, "configId": "mode", "type": "id", "value": "slow"});
        let set = client.peer.send_request("session/set_config_option", set).await;
        let close = client.peer.send_request("session/close", json!({"sessionId": session})).await;
        let prompt = client.prompt("nothing").await;
        let refused = client.peer.next_message().await;
        assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!(prompt), &json!(-32800)));
        for id in [set, close] {
            assert_eq!(client.peer.next_message().await["id"], id);
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_second_prompt_is_refused_while_a_turn_runs() {
    in_time(async {
        let mut client = client().await;
        let prompt = client.prompt("wait").await;
        assert_eq!(client.peer.next_message().await["id"], prompt);
        client.updates(3).await;
        let second = client.prompt("write").await;
        let refused = client.peer.next_message().await;
        assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!(second), &json!(-32600)));
        let session = client.session.clone();
        client.peer.cancel(&session).await;
        assert_eq!(client.updates(2).await[1], "state_update idle cancelled");
    })
    .await;
}

/// A prompt behind a slow request is not part of the conversation yet.
#[tokio::test(start_paused = true)]
async fn a_prompt_that_was_cancelled_in_the_queue_is_withdrawn() {
    in_time(async {
        for method in ["session/cancel", "session/close"] {
            let mut client = client_of(Server::new(Turns)).await;
            let session = client.session.clone();
            let set = json!({"sessionId": session, "configId": "mode", "type": "id", "value": "slow"});
            let set = client.peer.send_request("session/set_config_option", set).await;
            let prompt = client.prompt("nothing").await;
            match method {
                "session/cancel" => client.peer.cancel(&session).await,
                close => {
                    client.peer.send_request(close, json!({"sessionId": session})).await;
                }
            }
            assert_eq!(client.peer.next_message().await["id"], set);
            let withdrawn = client.peer.next_message().await;
            assert_eq!(withdrawn["id"], prompt, "{method}: {withdrawn}");
            assert_eq!(withdrawn["error"]["code"], -32800, "{method}: {withdrawn}");
        }
    })
    .await;
}

/// The line of the message has a longer head than that of the prompt.
#[tokio::test(start_paused = true)]
async fn a_message_of_the_user_that_fits_in_no_line_has_no_content() {
    in_time(async {
        let mut limits = Limits::default();
        limits.frame_bytes = 4096;
        let mut client = client_of(Server::new(Turns).limits(limits)).await;
        let mut lengths = Vec::new();
        for length in [3000, 3920] {
            let prompt = client.prompt(&"x".repeat(length)).await;
            let lines = client.until_idle(prompt).await;
            assert_eq!((lines.len(), lines[3].as_str()), (4, "state_update idle end_turn"), "{length}");
            lengths.push(lines[1].len());
        }
        assert_eq!(lengths, ["user_message * ".len() + 3000, "user_message *".len()]);
    })
    .await;
}
