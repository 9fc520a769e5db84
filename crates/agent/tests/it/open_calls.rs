//! Tool calls that are still open when their turn ends, and relative paths in tool calls.

use std::time::Duration;

use duologue_agent::schema::{
    AgentCapabilities, SessionUpdate, ToolCall, ToolCallContent, ToolCallLocation, ToolCallStatus,
    ToolCallUpdate,
};
use duologue_agent::{Agent, Context, Error, Prompt, Result, Session, SessionSetup, StopReason, Turn, serve};
use serde_json::{Value, json};

use duologue_test_support::{ScriptedPeer, Wire, in_time};

struct Caller;

impl Agent for Caller {
    async fn prompt(&self, turn: &Turn, prompt: Prompt) -> Result<StopReason> {
        let open = |id: &'static str| turn.tool_call(id).id(id);
        match prompt.text().as_str() {
            "return" => {
                let first = open("z").start().await?;
                let second = open("a").announce().await?;
                open("done").start().await?.complete().await?;
                open("failed").start().await?.fail("no").await?;
                drop((first, second));
            }
            "error" => {
                open("a").start().await?;
                return Err(Error::other("it broke"));
            }
            "panic" => {
                open("a").start().await?;
                panic!("it broke");
            }
            "cancel" => {
                let call = open("a").start().await?;
                open("b").start().await?;
                turn.cancelled().await;
                call.complete().await?;
            }
            "stuck" => {
                open("a").start().await?;
                std::future::pending().await
            }
            "raw" => {
                let update = |id: &str| ToolCallUpdate::new(id);
                turn.update(ToolCall::new("a", "A")).await?;
                turn.update(update("b").status(ToolCallStatus::InProgress)).await?;
                turn.update(update("c").title("never opened")).await?;
                for id in ["done", "other"] {
                    turn.update(ToolCall::new(id, id).status(ToolCallStatus::InProgress)).await?;
                }
                turn.update(update("done").status(ToolCallStatus::Completed)).await?;
                turn.update(update("done").title("late")).await?;
                let cancelled: ToolCallStatus = serde_json::from_value(json!("cancelled")).expect("a status");
                turn.update(update("other").status(cancelled)).await?;
                // This call continues after the turn.
                turn.session()
                    .update(ToolCall::new("background", "B").status(ToolCallStatus::InProgress))
                    .await?;
            }
            "background" => {
                for id in ["done", "open", "detached"] {
                    let call = open(id).start().await?;
                    if id == "detached" {
                        assert_eq!(call.detach()?.as_str(), id);
                        // A later update of the turn does not make the call its own again.
                        turn.update(ToolCallUpdate::new(id).status(ToolCallStatus::InProgress)).await?;
                    }
                }
                let session = turn.session().clone();
                let job = tokio::spawn(async move {
                    session.update(ToolCallUpdate::new("done").status(ToolCallStatus::Completed)).await?;
                    session.update(ToolCallUpdate::new("open").title("at work")).await
                });
                job.await.map_err(Error::other)??;
            }
            "run" => run(turn).await?,
            "relative" => relative(turn).await?,
            _ => {}
        }
        Ok(StopReason::EndTurn)
    }
}

async fn run(turn: &Turn) -> Result<()> {
    let text = String::from("captured");
    let length = turn.tool_call("a").id("a").run(async |call| {
        call.content(text.as_str()).await?;
        Ok(text.len())
    });
    assert_eq!(length.await?, 8);
    let refused = turn.tool_call("b").id("b").run(async |_| turn.write_text_file("/a", "").await).await;
    assert!(matches!(refused, Err(Error::NotSupported { .. })), "{refused:?}");
    turn.tool_call("c").id("c").run(async |call| call.status(ToolCallStatus::Failed).await).await
}

/// Every way to send a relative path. Nothing of it is sent, and the call goes on.
async fn relative(turn: &Turn) -> Result<()> {
    let call = turn.tool_call("a").id("a").start().await?;
    let diff = || vec![ToolCallContent::diff("src/a", None, "new")];
    let refused = [
        turn.tool_call("b").location("src/a").start().await.map(drop),
        call.location("src/a").await,
        call.diff("src/a", None, "new").await,
        turn.update(ToolCallUpdate::new("a").content(diff())).await,
        turn.session().update(SessionUpdate::from(ToolCall::new("b", "B").content(diff()))).await,
        turn.request_permission(ToolCallUpdate::new("a").locations([ToolCallLocation::new("src/a")]), vec![])
            .await
            .map(drop),
    ];
    for refused in refused {
        let Err(error @ Error::RelativePath { .. }) = refused else { panic!("{refused:?}") };
        assert!(error.to_string().contains("path \"src/a\" must be absolute"), "{error}");
        assert!(error.user_message().contains("src/a"), "{}", error.user_message());
    }
    call.title("renamed").await?;
    call.location("/src/a").await?;
    call.location("/src/b").await?;
    call.raw_input(json!(1)).await?;
    call.complete().await
}

/// Runs a turn. Returns its updates as "id status", and the response.
async fn turn(client: &mut ScriptedPeer, text: &str) -> (Vec<String>, Value) {
    let session = client.new_session().await;
    let id = client.prompt(&session, text).await;
    if matches!(text, "cancel" | "stuck") {
        client.expect("session/update").await;
        if text == "cancel" {
            client.expect("session/update").await;
        }
        client.cancel(&session).await;
    }
    let mut updates = Vec::new();
    loop {
        let message = client.next_message().await;
        if message["id"] == id {
            return (updates, message);
        }
        let update = &message["params"]["update"];
        let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
        updates.push(format!("{} {}", text(&update["toolCallId"]), text(&update["status"])));
    }
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_turn_fails_its_open_calls() {
    in_time(async {
        let (transport, mut client) = Wire::Memory.scripted();
        tokio::spawn(serve(Caller, transport));
        client.initialize(json!({})).await;
        for (text, expected, answer) in [
            (
                "return",
                &[
                    "z in_progress",
                    "a -",
                    "done in_progress",
                    "done completed",
                    "failed in_progress",
                    "failed -",
                    "failed failed",
                    "z failed",
                    "a failed",
                ][..],
                "end_turn",
            ),
            ("error", &["a in_progress", "a failed"], "it broke"),
            ("panic", &["a in_progress", "a failed"], "the handler panicked"),
            ("cancel", &["a completed", "b failed"], "cancelled"),
            ("stuck", &["a failed"], "cancelled"),
            (
                "raw",
                &[
                    "a -",
                    "b in_progress",
                    "c -",
                    "done in_progress",
                    "other in_progress",
                    "done completed",
                    "done -",
                    // With version 2 in the build, the status has its form of version 1.
                    if cfg!(feature = "protocol-v2") { "other failed" } else { "other cancelled" },
                    "background in_progress",
                    "a failed",
                    "b failed",
                ],
                "end_turn",
            ),
            (
                "background",
                &[
                    "done in_progress",
                    "open in_progress",
                    "detached in_progress",
                    "detached in_progress",
                    "done completed",
                    "open -",
                    "open failed",
                ],
                "end_turn",
            ),
            (
                "run",
                &[
                    "a in_progress",
                    "a -",
                    "a completed",
                    "b in_progress",
                    "b -",
                    "b failed",
                    "c in_progress",
                    "c failed",
                ],
                "end_turn",
            ),
            ("relative", &["a in_progress", "a -", "a -", "a -", "a -", "a completed"], "end_turn"),
        ] {
            let (updates, response) = turn(&mut client, text).await;
            assert_eq!(updates, expected, "{text}");
            let answered =
                response["result"]["stopReason"].as_str().or(response["error"]["message"].as_str());
            assert_eq!(answered, Some(answer), "{text}: {response}");
        }
    })
    .await;
}

/// The table of open calls is bounded, and an agent that ends its calls never reaches the limit.
#[tokio::test(start_paused = true)]
async fn the_calls_of_a_turn_are_bounded() {
    struct Many;

    impl Agent for Many {
        async fn prompt(&self, turn: &Turn, prompt: Prompt) -> Result<StopReason> {
            for number in 0..Turn::OPEN_CALLS + 10 {
                let call = turn.tool_call("A").id(number.to_string()).start().await?;
                if prompt.text() == "end" {
                    call.complete().await?;
                }
            }
            Ok(StopReason::EndTurn)
        }
    }

    let (transport, mut client) = Wire::Memory.scripted();
    tokio::spawn(serve(Many, transport));
    client.initialize(json!({})).await;
    for (text, failed) in [("leave", Turn::OPEN_CALLS), ("end", 0)] {
        let updates = tokio::time::timeout(Duration::from_secs(60), turn(&mut client, text)).await;
        let (updates, _) = updates.expect("in time");
        assert_eq!(updates.iter().filter(|update| update.ends_with(" failed")).count(), failed, "{text}");
    }
}

/// An old history may have relative paths. Outside of turns they fail nothing.
#[tokio::test(start_paused = true)]
async fn a_history_with_a_relative_path_is_replayed() {
    struct Replaying;

    impl Agent for Replaying {
        fn capabilities(&self) -> AgentCapabilities {
            AgentCapabilities::new().load_session(true)
        }

        async fn load_session(&self, _: &Context, session: &Session) -> Result<SessionSetup> {
            let call = ToolCall::new("a", "A").locations([ToolCallLocation::new("src/a")]);
            session.update(call.status(ToolCallStatus::Completed)).await?;
            Ok(SessionSetup::new())
        }

        async fn prompt(&self, _: &Turn, _: Prompt) -> Result<StopReason> {
            Ok(StopReason::EndTurn)
        }
    }

    in_time(async {
        let (transport, mut client) = Wire::Memory.scripted();
        tokio::spawn(serve(Replaying, transport));
        client.initialize(json!({})).await;
        let params = json!({"sessionId": "s", "cwd": "/", "mcpServers": []});
        let id = client.send_request("session/load", params).await;
        let update = client.next_message().await;
        assert_eq!(update["params"]["update"]["locations"][0]["path"], "src/a", "{update}");
        let answer = client.next_message().await;
        assert!(answer["id"] == id && answer["result"].is_object(), "{answer}");
    })
    .await;
}
