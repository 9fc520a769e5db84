//! Work beside turns: begun by the agent, in the background, or cancelled alone.

use std::sync::Arc;
use std::time::Duration;

use duologue_agent::schema::v2::{BackgroundToolCall, TerminalExitStatus, TerminalSize, TerminalUpdate};
use duologue_agent::schema::{
    Patch, PermissionOption, PermissionOptionKind, TerminalId, ToolCallStatus, ToolCallUpdate,
};
use duologue_agent::{Agent, Context, Error, Prompt, Result, Server, Session, StopReason, Turn};
use duologue_test_support::{Wire, in_time};
use serde_json::json;

use super::{client, client_of, short};

/// Does what the prompt names.
struct Work;

impl Agent for Work {
    async fn prompt(&self, turn: &Turn, prompt: Prompt) -> Result<StopReason> {
        let session = turn.session().clone();
        let outlived_by = |reason: Option<StopReason>| {
            let work = session.begin_work();
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_secs(1)).await;
                if let Some(reason) = reason {
                    work.finish(reason);
                }
            });
        };
        match prompt.text().as_str() {
            "longer work" => outlived_by(Some(StopReason::MaxTokens)),
            "dropped work" => outlived_by(None),
            "failure before work" => {
                outlived_by(Some(StopReason::EndTurn));
                return Err(Error::other("no model"));
            }
            "background" => {
                let call = turn.tool_call("Watch").id("c").start().await?.detach()?;
                session.background(vec![BackgroundToolCall::new(call.clone()).into()]);
                let ended = async move {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    session.update(ToolCallUpdate::new(call).status(ToolCallStatus::Completed)).await?;
                    session.background(Vec::new());
                    Ok::<_, Error>(())
                };
                tokio::spawn(ended);
            }
            "watch" => {
                let call =
                    turn.tool_call("Watch").id("w").cancellable().start().await?.detach_cancellable()?;
                assert!(call.id().as_str() == "w" && !call.is_cancelled());
                tokio::spawn(async move {
                    call.cancelled().await;
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    session.update(ToolCallUpdate::new("w").status(ToolCallStatus::Cancelled)).await
                });
            }
            "watch and wait" => {
                let call =
                    turn.tool_call("Watch").id("w").cancellable().start().await?.detach_cancellable()?;
                turn.cancelled().await;
                turn.message().with_id("m").push(format!("{}", call.is_cancelled())).await.ok();
                assert!(!call.is_cancelled(), "the turn was cancelled, not the call");
                turn.session().update(ToolCallUpdate::new("w").status(ToolCallStatus::Completed)).await?;
            }
            "watch no more" => {
                drop(turn.tool_call("Watch").id("w").cancellable().start().await?.detach_cancellable()?);
            }
            "terminal" => {
                let call = turn.tool_call("Test").id("c").start().await?;
                let mut terminal = turn.display_terminal("cargo test").id("t").cancellable().start().await?;
                call.display(&terminal).await?;
                terminal.append(vec![b'x'; 40_000]).await?;
                terminal.append("\u{e9}").await?;
                terminal.update(|update| update.size(TerminalSize::new(80_u16, 24_u16))).await?;
                terminal.exit(TerminalExitStatus::new().exit_code(1)).await?;
                drop(turn.display_terminal("sleep").id("u").cwd("/elsewhere").start().await?);
                call.complete().await?;
            }
            "show" => {
                let terminal = turn.display_terminal("sleep").id("t").cancellable().start().await?;
                let plain = turn.display_terminal("sleep").id("u").start().await?;
                tokio::spawn(async move {
                    std::future::pending::<()>().await;
                    drop((terminal, plain));
                });
            }
            "ask in the background" => {
                let call = turn.tool_call("Watch").id("c").start().await?.detach()?;
                session.background(vec![BackgroundToolCall::new(call.clone()).into()]);
                let allow = PermissionOption::new("allow", "Allow", PermissionOptionKind::AllowOnce);
                session.request_permission(ToolCallUpdate::new(call), vec![allow]).await?;
            }
            "say when cancelled" => {
                let call = turn.tool_call("Sleep").id("c").cancellable().start().await?;
                let mut cancelled = std::pin::pin!(call.cancelled());
                let saying = Arc::new(SayWhenWoken(turn.clone()));
                let waker = saying.into();
                let is_ready =
                    cancelled.as_mut().poll(&mut std::task::Context::from_waker(&waker)).is_ready();
                assert!(!is_ready);
                turn.cancelled().await;
            }
            "run" => {
                turn.tool_call("Test")
                    .id("c")
                    .run(async |call| call.status(ToolCallStatus::Paused).await)
                    .await?;
            }
            "many calls" => {
                for number in 0..=Turn::OPEN_CALLS {
                    turn.tool_call("Sleep").id(number.to_string()).cancellable().start().await?;
                }
            }
            "ended" => {
                let call = turn.tool_call("Sleep").id("c").cancellable().start().await?;
                call.complete().await?;
                // An id can be used again.
                turn.tool_call("Sleep").id("d").cancellable().start().await?;
                turn.cancelled().await;
            }
            _ => {}
        }
        Ok(StopReason::EndTurn)
    }

    async fn cancel_terminal(&self, _: &Context, session: &Session, terminal: TerminalId) -> Result<()> {
        assert_eq!(terminal.as_str(), "t", "the only one with the offer");
        let mut update = TerminalUpdate::new(terminal);
        update.exit_status = Patch::Set(TerminalExitStatus::new().signal("SIGTERM"));
        session.update(update).await
    }
}

/// Sends a message at once when it is woken, as a task of another thread might.
struct SayWhenWoken(Turn);

impl std::task::Wake for SayWhenWoken {
    fn wake(self: Arc<Self>) {
        let mut message = self.0.message().with_id("m");
        let push = std::pin::pin!(message.push("stopping"));
        let poll = push.poll(&mut std::task::Context::from_waker(std::task::Waker::noop()));
        assert!(poll.is_ready(), "there is space");
    }
}

/// However fast the agent reacts, the response comes first.
#[tokio::test(start_paused = true)]
async fn the_response_to_a_cancelled_call_precedes_its_end() {
    in_time(async {
        let mut client = client_of(Server::new(Work)).await;
        let prompt = client.prompt("say when cancelled").await;
        assert_eq!(client.peer.next_message().await["id"], prompt);
        client.updates(3).await;
        let cancel = json!({"sessionId": client.session, "toolCallId": "c"});
        let accepted = client.peer.send_request("tool_call/cancel", cancel).await;
        assert_eq!(client.peer.next_message().await["id"], accepted);
        assert_eq!(client.updates(1).await, ["agent_message_chunk m stopping"]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_paused_call_is_completed_with_its_work() {
    in_time(async {
        let mut client = client_of(Server::new(Work)).await;
        let prompt = client.prompt("run").await;
        let lines = client.until_idle(prompt).await;
        assert_eq!(lines[4..6], ["tool_call_update c paused", "tool_call_update c completed"], "{lines:?}");
    })
    .await;
}

/// The turn can go on without the answer.
#[tokio::test(start_paused = true)]
async fn a_question_in_the_background_requires_no_action() {
    in_time(async {
        let mut client = client_of(Server::new(Work)).await;
        let prompt = client.prompt("ask in the background").await;
        let lines = client.until_idle(prompt).await;
        let expected = ["state_update running", "permission \"tool_call\"", "state_update idle end_turn"];
        assert_eq!(lines[4..], expected, "{lines:?}");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_client_cancels_one_tool_call() {
    in_time(async {
        let mut client = client().await;
        let cancel = |session: &str, call: &str| json!({"sessionId": session, "toolCallId": call});
        let session = client.session.clone();
        let refused = client.peer.request("tool_call/cancel", cancel(&session, "c")).await;
        assert_eq!(refused["error"]["code"], -32602, "{refused}");
        let prompt = client.prompt("cancellable").await;
        loop {
            let update = client.peer.next_message().await;
            if update["params"]["update"]["sessionUpdate"] == "tool_call_update" {
                assert_eq!(update["params"]["update"]["capabilities"], json!({"cancel": {}}));
                break;
            }
        }
        let accepted = client.peer.send_request("tool_call/cancel", cancel(&session, "c")).await;
        assert_eq!(client.peer.next_message().await["id"], accepted);
        let ended = client.peer.next_message().await;
        let update = &ended["params"]["update"];
        assert_eq!(
            (&update["status"], update.get("capabilities")),
            (&json!("cancelled"), Some(&json!(null)))
        );
        assert_eq!(client.until_idle(prompt).await, ["state_update idle end_turn"]);
        let refused = client.peer.request("tool_call/cancel", cancel(&session, "c")).await;
        assert_eq!(refused["error"]["code"], -32602, "it has ended: {refused}");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn work_without_a_prompt_runs_and_is_idle() {
    in_time(async {
        let mut client = client().await;
        let prompt = client.prompt("late").await;
        client.until_idle(prompt).await;
        let mut lines = Vec::new();
        while lines.len() < 3 {
            lines.push(short(&client.peer.next_message().await["params"]["update"]));
        }
        assert_eq!(
            lines,
            ["state_update running", "agent_message_chunk l later", "state_update idle end_turn"]
        );
    })
    .await;
}

/// Work without a prompt goes on behind a turn. Its session ends as the turn did, after a cancellation of all.
#[tokio::test(start_paused = true)]
async fn the_end_of_a_turn_is_reported_with_the_end_of_all_work() {
    in_time(async {
        let mut client = client().await;
        let prompt = client.prompt("worker").await;
        assert_eq!(client.peer.next_message().await["id"], prompt);
        let mut lines = Vec::new();
        for _ in 0..4 {
            lines.push(short(&client.peer.next_message().await["params"]["update"]));
        }
        assert_eq!(lines[1..], ["state_update running"; 3], "the prompt, the work, and the end of the turn");
        let session = client.session.clone();
        client.peer.cancel(&session).await;
        // The cancellation has ended the work, although the turn had failed.
        let idle = short(&client.peer.next_message().await["params"]["update"]);
        assert_eq!(idle, "state_update idle cancelled");

        // A close ends the work before its response, and nothing follows.
        let prompt = client.prompt("worker").await;
        assert_eq!(client.peer.next_message().await["id"], prompt);
        for _ in 0..4 {
            client.peer.next_message().await;
        }
        let close = client.peer.send_request("session/close", json!({"sessionId": session})).await;
        let idle = short(&client.peer.next_message().await["params"]["update"]);
        assert_eq!(idle, "state_update idle cancelled");
        assert_eq!(client.peer.next_message().await["id"], close);
        let again = client.peer.request("session/close", json!({"sessionId": session})).await;
        assert!(again["result"].is_object(), "{again}");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_detached_call_cannot_be_cancelled() {
    in_time(async {
        let mut client = client().await;
        let prompt = client.prompt("detached").await;
        let lines = client.until_idle(prompt).await;
        assert_eq!(lines[3..5], ["tool_call_update c in_progress", "tool_call_update c"], "{lines:?}");
        let cancel = json!({"sessionId": client.session, "toolCallId": "c"});
        let refused = client.peer.request("tool_call/cancel", cancel).await;
        assert_eq!(refused["error"]["code"], -32602, "{refused}");
    })
    .await;
}

/// The end that counts is the last one, unless something failed before.
#[tokio::test(start_paused = true)]
async fn the_last_work_decides_unless_a_turn_failed() {
    in_time(async {
        for (text, idle) in [
            ("longer work", "state_update idle max_tokens"),
            ("dropped work", "state_update idle end_turn"),
            ("failure before work", "state_update idle error no model"),
        ] {
            let mut client = client_of(Server::new(Work)).await;
            let prompt = client.prompt(text).await;
            let lines = client.until_idle(prompt).await;
            assert_eq!(
                lines[2..5],
                ["state_update running"; 3],
                "the prompt, the work, and the end of the turn"
            );
            assert_eq!(lines[5..], [idle], "{text}");
        }
    })
    .await;
}

/// Every state has the work in the background, from its first report on.
#[tokio::test(start_paused = true)]
async fn work_in_the_background_is_part_of_every_state() {
    in_time(async {
        let mut client = client_of(Server::new(Work)).await;
        let prompt = client.prompt("background").await;
        assert_eq!(client.peer.next_message().await["id"], prompt);
        let mut states = Vec::new();
        while states.len() < 4 {
            let message = client.peer.expect("session/update").await;
            let update = &message["params"]["update"];
            if update["sessionUpdate"] == "state_update" {
                states.push((update["state"].clone(), update.get("background").cloned()));
            }
        }
        let work = json!([{"type": "tool_call", "toolCallId": "c"}]);
        let expected = [
            (json!("running"), None),
            (json!("running"), Some(work.clone())),
            (json!("idle"), Some(work)),
            (json!("idle"), Some(json!([]))),
        ];
        assert_eq!(states, expected);
    })
    .await;
}

/// Version 1 has no state of the session.
#[tokio::test(start_paused = true)]
async fn version_1_does_not_see_work_beside_turns() {
    in_time(async {
        for text in ["longer work", "background", "watch", "terminal"] {
            let (transport, mut peer) = Wire::Memory.scripted();
            tokio::spawn(Server::new(Work).protocol_v2().serve(transport));
            peer.initialize(json!({})).await;
            let session = peer.new_session().await;
            let prompt = peer.prompt(&session, text).await;
            let mut lines = Vec::new();
            loop {
                let message = peer.next_message().await;
                if message["id"] == prompt {
                    assert_eq!(message["result"]["stopReason"], "end_turn", "{message}");
                    break;
                }
                lines.push(short(&message["params"]["update"]));
            }
            let calls = lines.iter().filter(|line| line.starts_with("tool_call"));
            assert_eq!(calls.count(), lines.len(), "{lines:?}");
            tokio::time::sleep(Duration::from_secs(2)).await;
            if text == "background" {
                peer.expect("session/update").await;
            }
            peer.probe().await;
        }
    })
    .await;
}

/// A cancellation of the session does not reach a detached call, `tool_call/cancel` does.
#[tokio::test(start_paused = true)]
async fn a_detached_call_is_cancelled_alone() {
    in_time(async {
        let mut client = client_of(Server::new(Work)).await;
        let session = client.session.clone();
        let cancel = json!({"sessionId": session, "toolCallId": "w"});
        let prompt = client.prompt("watch").await;
        let lines = client.until_idle(prompt).await;
        assert_eq!(lines[3..], ["tool_call_update w in_progress", "state_update idle end_turn"]);
        client.peer.cancel(&session).await;
        client.peer.probe().await;
        let accepted = client.peer.request("tool_call/cancel", cancel.clone()).await;
        assert!(accepted["result"].is_object(), "{accepted}");
        assert_eq!(client.updates(1).await, ["tool_call_update w cancelled"]);
        let refused = client.peer.request("tool_call/cancel", cancel.clone()).await;
        assert_eq!(refused["error"]["code"], -32602, "it has ended: {refused}");

        let prompt = client.prompt("watch and wait").await;
        assert_eq!(client.peer.next_message().await["id"], prompt);
        client.updates(3).await;
        client.peer.cancel(&session).await;
        let expected = ["tool_call_update w completed", "state_update idle cancelled"];
        assert_eq!(client.updates(2).await, expected);

        // Without its handle, nothing would see the cancellation.
        let prompt = client.prompt("watch no more").await;
        let lines = client.until_idle(prompt).await;
        assert_eq!(lines[3..5], ["tool_call_update w in_progress", "tool_call_update w"], "{lines:?}");
        let refused = client.peer.request("tool_call/cancel", cancel).await;
        assert_eq!(refused["error"]["code"], -32602, "{refused}");
    })
    .await;
}

/// The close of a session ends its work in the background too. Nothing of the session follows the response.
#[tokio::test(start_paused = true)]
async fn a_close_cancels_detached_calls() {
    in_time(async {
        let mut client = client_of(Server::new(Work)).await;
        let prompt = client.prompt("watch").await;
        client.until_idle(prompt).await;
        let session = client.session.clone();
        let close = client.peer.send_request("session/close", json!({"sessionId": session})).await;
        let ended = client.peer.next_message().await;
        let update = &ended["params"]["update"];
        assert_eq!((&update["toolCallId"], &update["status"]), (&json!("w"), &json!("cancelled")), "{ended}");
        assert_eq!(client.peer.next_message().await["id"], close);
        tokio::time::sleep(Duration::from_secs(5)).await;
        let list = client.peer.send_request("session/list", json!({})).await;
        assert_eq!(client.peer.next_message().await["id"], list);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_calls_that_can_be_cancelled_are_limited() {
    in_time(async {
        let mut client = client_of(Server::new(Work)).await;
        let prompt = client.prompt("many calls").await;
        assert_eq!(client.peer.next_message().await["id"], prompt);
        client.updates(2).await;
        for number in 0..=Turn::OPEN_CALLS {
            let update = client.peer.expect("session/update").await;
            let offered = &update["params"]["update"]["capabilities"]["cancel"];
            assert_eq!(offered.is_object(), number < Turn::OPEN_CALLS, "{update}");
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_call_that_has_ended_cannot_be_cancelled() {
    in_time(async {
        let mut client = client_of(Server::new(Work)).await;
        let prompt = client.prompt("ended").await;
        assert_eq!(client.peer.next_message().await["id"], prompt);
        assert_eq!(client.updates(5).await[4], "tool_call_update d in_progress");
        for (id, accepted) in [("c", false), ("d", true)] {
            let cancel = json!({"sessionId": client.session, "toolCallId": id});
            let response = client.peer.request("tool_call/cancel", cancel).await;
            assert_eq!(response["result"].is_object(), accepted, "{response}");
        }
        let unknown = json!({"sessionId": "other", "toolCallId": "d"});
        let refused = client.peer.request("tool_call/cancel", unknown).await;
        assert_eq!(refused["error"]["code"], -32002, "{refused}");
        assert_eq!(refused["error"]["data"], json!({"sessionId": "other"}));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_agent_stops_a_terminal() {
    in_time(async {
        let mut client = client_of(Server::new(Work)).await;
        let cancel = |session: &str, id: &str| json!({"sessionId": session, "terminalId": id});
        let session = client.session.clone();
        let refused = client.peer.request("terminal/cancel", cancel(&session, "t")).await;
        assert_eq!(refused["error"]["code"], -32602, "unknown: {refused}");
        let prompt = client.prompt("show").await;
        client.until_idle(prompt).await;
        let accepted = client.peer.send_request("terminal/cancel", cancel(&session, "t")).await;
        let update = client.peer.expect("session/update").await;
        assert_eq!(update["params"]["update"]["exitStatus"], json!({"signal": "SIGTERM"}));
        assert_eq!(update["params"]["update"].get("capabilities"), Some(&json!(null)));
        assert_eq!(client.peer.next_message().await["id"], accepted);
        // It has exited, the second one has no offer, and the third one is unknown.
        for (session, terminal, code) in [
            (session.as_str(), "t", -32602),
            (&session, "u", -32602),
            (&session, "v", -32602),
            ("other", "t", -32002),
        ] {
            let refused = client.peer.request("terminal/cancel", cancel(session, terminal)).await;
            assert_eq!(refused["error"]["code"], code, "{refused}");
        }
        // Most agents have no terminals.
        let mut client = super::client().await;
        let cancel = cancel(&client.session, "t");
        let refused = client.peer.request("terminal/cancel", cancel).await;
        assert_eq!(refused["error"]["code"], -32602, "{refused}");
    })
    .await;
}

/// Long output is sent in pieces, and the end of a terminal is always reported.
#[tokio::test(start_paused = true)]
async fn the_client_displays_a_terminal_of_the_agent() {
    in_time(async {
        let mut client = client_of(Server::new(Work)).await;
        let prompt = client.prompt("terminal").await;
        assert_eq!(client.peer.next_message().await["id"], prompt);
        let mut updates = Vec::new();
        while updates.last().is_none_or(|update: &serde_json::Value| update["state"] != "idle") {
            updates.push(client.peer.expect("session/update").await["params"]["update"].take());
        }
        let mut terminals = updates.iter().filter(|update| update["terminalId"].is_string());
        let offer = json!({"cancel": {}});
        let begins = json!({"sessionUpdate": "terminal_update", "terminalId": "t", "command": "cargo test", "cwd": "/",
            "capabilities": offer});
        assert_eq!(terminals.next(), Some(&begins));
        let mut output = Vec::new();
        for length in [32 * 1024_usize, 40_000 - 32 * 1024, 2] {
            let update = terminals.next().expect("output");
            let data = update["data"].as_str().expect("data");
            // Four characters stand for three bytes.
            assert_eq!(data.len(), length.div_ceil(3) * 4, "{update}");
            output.push(data.to_owned());
        }
        assert_eq!(output[2], "w6k=");
        let size = json!({"sessionUpdate": "terminal_update", "terminalId": "t", "size": {"cols": 80, "rows": 24}});
        assert_eq!(terminals.next(), Some(&size));
        let ends = |id: &str, status| {
            json!({"sessionUpdate": "terminal_update", "terminalId": id, "exitStatus": status, "capabilities": null})
        };
        assert_eq!(terminals.next(), Some(&ends("t", json!({"exitCode": 1}))));
        assert_eq!(terminals.next().map(|update| &update["cwd"]), Some(&json!("/elsewhere")));
        assert_eq!(terminals.next(), Some(&ends("u", json!({}))));
        let shown = json!([{"type": "terminal", "terminalId": "t"}]);
        assert!(updates.iter().any(|update| update["toolCallId"] == "c" && update["content"] == shown));
    })
    .await;
}
