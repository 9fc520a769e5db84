//! The gates of sessions: one turn at a time, no turn in a closing session, and no session behind its close or its
//! deletion.

use std::time::Duration;

use duologue_agent::schema::{
    AgentCapabilities, DeleteSessionRequest, McpCapabilities, PromptCapabilities, SessionUpdate,
    ToolCallStatus,
};
use duologue_agent::{Agent, Context, Error, Prompt, Result, Session, SessionSetup, StopReason, Turn, serve};
use serde_json::{Value, json};
use tokio::time::Instant;

use duologue_test_support::{ScriptedPeer, Wire, in_time};

/// Takes its time as the folder of the session says, and answers a prompt with that folder.
#[derive(Default)]
struct Gated(AgentCapabilities);

impl Agent for Gated {
    fn capabilities(&self) -> AgentCapabilities {
        self.0.clone()
    }

    async fn new_session(&self, _: &Context, session: &Session) -> Result<SessionSetup> {
        match session.cwd().to_str() {
            Some("/never") => std::future::pending().await,
            Some("/early") => {
                let update = |bytes| SessionUpdate::agent_message("x".repeat(bytes));
                session.update(update(5 << 20)).await?;
                session.update(update(2 << 20)).await?;
                let error = session.update(update(2 << 20)).await.expect_err("over the limit");
                session.update(SessionUpdate::agent_message(error.to_string())).await?;
            }
            _ => {}
        }
        Ok(SessionSetup::new())
    }

    async fn load_session(&self, _: &Context, session: &Session) -> Result<SessionSetup> {
        tokio::time::sleep(Duration::from_secs(5)).await;
        if session.cwd().ends_with("fails") { Err(Error::other("no")) } else { Ok(SessionSetup::new()) }
    }

    async fn close_session(&self, _: &Context, _: &Session) -> Result<()> {
        tokio::time::sleep(Duration::from_secs(1)).await;
        Ok(())
    }

    async fn delete_session(&self, _: &Context, _: DeleteSessionRequest) -> Result<()> {
        tokio::time::sleep(Duration::from_secs(1)).await;
        Ok(())
    }

    async fn prompt(&self, turn: &Turn, prompt: Prompt) -> Result<StopReason> {
        match prompt.text().as_str() {
            "wait" => turn.cancelled().await,
            "order" => {
                for number in 0..10 {
                    turn.tool_call("T").id(number.to_string()).start().await?;
                }
            }
            "preset" => {
                let call = turn.tool_call("T").id("t").with(|call| call.status(ToolCallStatus::Completed));
                let call = call.start().await?;
                call.content("one").await?;
                call.content("two").await?;
                call.location("/a").await?;
                call.location("/b").await?;
            }
            "refused" => {
                let call = turn.tool_call("T").id("t");
                let _ = call.run(async |_| turn.create_terminal("make", ["-x"]).await).await;
            }
            _ => turn.message().push(turn.cwd().display().to_string()).await?,
        }
        Ok(StopReason::EndTurn)
    }
}

async fn client_of(agent: Gated) -> ScriptedPeer {
    let (transport, mut client) = Wire::Memory.scripted();
    tokio::spawn(serve(agent, transport));
    client.initialize(json!({})).await;
    client
}

fn load(session: &str, folder: &str) -> Value {
    json!({"sessionId": session, "cwd": folder, "mcpServers": []})
}

/// Returns the folder of the session that answers, or the error.
async fn folder_of(client: &mut ScriptedPeer, session: &str) -> Result<Value, Value> {
    client.prompt(session, "folder").await;
    let message = client.next_message().await;
    if message["error"].is_object() {
        return Err(message["error"]["code"].clone());
    }
    assert_eq!(client.next_message().await["result"]["stopReason"], "end_turn");
    Ok(message["params"]["update"]["content"]["text"].clone())
}

async fn settle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

#[tokio::test(start_paused = true)]
async fn a_session_has_one_turn_at_a_time() {
    in_time(async {
        let mut client = client_of(Gated::default()).await;
        let (session, other) = (client.new_session().await, client.new_session().await);
        let first = client.prompt(&session, "wait").await;
        for _ in 0..2 {
            let second = client.prompt(&session, "wait").await;
            let refused = client.next_message().await;
            assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!(second), &json!(-32600)));
            let message = refused["error"]["message"].as_str().expect("a message");
            assert!(message.contains("already running"), "{message}");
        }
        assert_eq!(folder_of(&mut client, &other).await, Ok(json!("/tmp")), "another session is free");
        client.cancel(&session).await;
        let answer = client.next_message().await;
        assert_eq!((&answer["id"], &answer["result"]["stopReason"]), (&json!(first), &json!("cancelled")));
        assert_eq!(folder_of(&mut client, &session).await, Ok(json!("/tmp")));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_cancellation_ends_the_running_turn_and_no_later_one() {
    in_time(async {
        let mut client = client_of(Gated::default()).await;
        let session = client.new_session().await;
        for _ in 0..2 {
            for _ in 0..2 {
                client.cancel(&session).await;
            }
            assert_eq!(folder_of(&mut client, &session).await, Ok(json!("/tmp")));
            let prompt = client.prompt(&session, "wait").await;
            for _ in 0..2 {
                client.cancel(&session).await;
            }
            let answer = client.next_message().await;
            let outcome = (&answer["id"], &answer["result"]["stopReason"]);
            assert_eq!(outcome, (&json!(prompt), &json!("cancelled")));
        }
        assert_eq!(folder_of(&mut client, &session).await, Ok(json!("/tmp")));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_closing_session_begins_no_turn_and_a_closed_one_is_gone() {
    in_time(async {
        let mut client = client_of(Gated::default()).await;
        let session = client.new_session().await;
        let running = client.prompt(&session, "wait").await;
        let close = client.send_request("session/close", json!({"sessionId": session})).await;
        let late = client.prompt(&session, "wait").await;
        let (mut stopped, mut refused) = (Value::Null, Value::Null);
        for _ in 0..2 {
            let answer = client.next_message().await;
            match answer["id"].as_u64() {
                Some(id) if id == running => stopped = answer,
                Some(id) if id == late => refused = answer,
                _ => panic!("{answer}"),
            }
        }
        assert_eq!(stopped["result"]["stopReason"], "cancelled");
        assert_eq!(refused["error"]["code"], -32600, "{refused}");
        let message = refused["error"]["message"].as_str().expect("a message");
        assert!(message.contains("being closed"), "{message}");
        let closed = client.next_message().await;
        assert!(closed["id"] == close && closed["result"].is_object(), "{closed}");
        assert_eq!(folder_of(&mut client, &session).await, Err(json!(-32002)));
        let again = client.request("session/close", json!({"sessionId": session})).await;
        assert_eq!(again["error"]["code"], -32002);
    })
    .await;
}

/// The session that was open before a load that fails answers again, not the one of the load.
#[tokio::test(start_paused = true)]
async fn a_failed_load_gives_back_the_same_session() {
    in_time(async {
        let mut client = client_of(Gated::default()).await;
        let session = client.new_session().await;
        let failed = client.request("session/load", load(&session, "/fails")).await;
        assert_eq!(failed["error"]["code"], -32603);
        assert_eq!(folder_of(&mut client, &session).await, Ok(json!("/tmp")));

        // A load that ends beneath another one is the session that comes back.
        client.send_request("session/load", load(&session, "/second")).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        client.send_request("session/load", load(&session, "/fails")).await;
        assert!(client.next_message().await["result"].is_object());
        assert!(client.next_message().await["error"].is_object());
        assert_eq!(folder_of(&mut client, &session).await, Ok(json!("/second")));

        // The last of two loads that succeed is the session.
        client.send_request("session/load", load(&session, "/third")).await;
        client.send_request("session/load", load(&session, "/fourth")).await;
        assert!(client.next_message().await["result"].is_object());
        assert!(client.next_message().await["result"].is_object());
        assert_eq!(folder_of(&mut client, &session).await, Ok(json!("/fourth")));
    })
    .await;
}

/// A load that fails later does not bring back a session that was closed or deleted meanwhile.
#[tokio::test(start_paused = true)]
async fn a_closed_or_deleted_session_does_not_come_back() {
    in_time(async {
        for (method, comes_first) in
            [("session/close", true), ("session/delete", true), ("session/delete", false)]
        {
            let mut client = client_of(Gated::default()).await;
            let session = client.new_session().await;
            let mut steps =
                [(method, json!({"sessionId": session})), ("session/load", load(&session, "/fails"))];
            if !comes_first {
                steps.reverse();
            }
            let [first, second] = steps;
            client.send_request(first.0, first.1).await;
            settle().await;
            client.send_request(second.0, second.1).await;
            let (ended, failed) = (client.next_message().await, client.next_message().await);
            assert!(ended["result"].is_object(), "{method}: {ended}");
            assert_eq!(failed["error"]["code"], -32603, "{method}: {failed}");
            assert_eq!(folder_of(&mut client, &session).await, Err(json!(-32002)), "{method}");
            let failed = client.request("session/load", load(&session, "/fails")).await;
            assert_eq!(failed["error"]["code"], -32603);
            assert_eq!(folder_of(&mut client, &session).await, Err(json!(-32002)), "{method}");
        }
    })
    .await;
}

/// A method that ignores the cancellation is dropped after the grace period.
#[tokio::test(start_paused = true)]
async fn a_session_that_is_not_made_in_time_is_cancelled() {
    in_time(async {
        let mut client = client_of(Gated::default()).await;
        let request = client.send_request("session/new", json!({"cwd": "/never", "mcpServers": []})).await;
        client.probe().await;
        let begun = Instant::now();
        client.notify("$/cancel_request", json!({"requestId": request})).await;
        let answer = client.next_message().await;
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(request), &json!(-32800)), "{answer}");
        assert_eq!(begun.elapsed(), Duration::from_secs(1));
    })
    .await;
}

/// Updates of a session that is being created are buffered up to 8 MiB.
#[tokio::test(start_paused = true)]
async fn the_updates_of_a_new_session_are_limited() {
    in_time(async {
        let mut client = client_of(Gated::default()).await;
        let made = client.request("session/new", json!({"cwd": "/early", "mcpServers": []})).await;
        assert!(made["result"].is_object());
        let mut lengths = Vec::new();
        for _ in 0..3 {
            let update = client.expect("session/update").await;
            let text = update["params"]["update"]["content"]["text"].as_str().expect("text").to_owned();
            lengths.push(text.len());
            if lengths.len() == 3 {
                assert!(text.contains("8388608 bytes before the session is open"), "{text}");
            }
        }
        assert_eq!(lengths[..2], [5 << 20, 2 << 20]);
        client.probe().await;
    })
    .await;
}

/// Each kind of content and each transport is accepted exactly if the agent offers it.
#[tokio::test(start_paused = true)]
async fn what_the_agent_offers_is_accepted_and_nothing_else() {
    in_time(async {
        let server = |kind: &str| match kind {
            "stdio" => json!({"name": "n", "command": "/bin/server", "args": [], "env": []}),
            kind => json!({"type": kind, "name": "n", "url": "https://example.com", "headers": []}),
        };
        let block = |kind: &str| match kind {
            "text" => json!({"type": "text", "text": "t"}),
            "resource_link" => json!({"type": "resource_link", "name": "n", "uri": "file:///a"}),
            "resource" => json!({"type": "resource", "resource": {"uri": "file:///a", "text": ""}}),
            kind => json!({"type": kind, "mimeType": "a/b", "data": ""}),
        };
        let prompts = PromptCapabilities::default;
        let mcp = McpCapabilities::default;
        for (offered, capabilities) in [
            ("nothing", AgentCapabilities::default()),
            ("image", AgentCapabilities::default().prompt_capabilities(prompts().image(true))),
            ("audio", AgentCapabilities::default().prompt_capabilities(prompts().audio(true))),
            ("resource", AgentCapabilities::default().prompt_capabilities(prompts().embedded_context(true))),
            ("http", AgentCapabilities::default().mcp_capabilities(mcp().http(true))),
            ("sse", AgentCapabilities::default().mcp_capabilities(mcp().sse(true))),
        ] {
            let mut client = client_of(Gated(capabilities)).await;
            for kind in ["stdio", "http", "sse", "websocket"] {
                let params = json!({"cwd": "/tmp", "mcpServers": [server("stdio"), server(kind)]});
                let answer = client.request("session/new", params).await;
                let is_accepted = kind == "stdio" || kind == offered;
                assert_eq!(answer["result"].is_object(), is_accepted, "{offered}: {kind}: {answer}");
                assert!(is_accepted || answer["error"]["code"] == -32602, "{answer}");
            }
            let session = client.new_session().await;
            for kind in ["text", "resource_link", "resource", "image", "audio", "hologram"] {
                let params = json!({"sessionId": session, "prompt": [block("text"), block(kind)]});
                client.send_request("session/prompt", params).await;
                let is_accepted = matches!(kind, "text" | "resource_link") || kind == offered;
                let answer = client.next_message().await;
                if is_accepted {
                    assert_eq!(answer["method"], "session/update", "{offered}: {kind}: {answer}");
                    client.next_message().await;
                } else {
                    assert_eq!(answer["error"]["code"], -32602, "{offered}: {kind}: {answer}");
                }
            }
        }
    })
    .await;
}

/// Returns the updates of a turn.
async fn updates(client: &mut ScriptedPeer, text: &str) -> Vec<Value> {
    let session = client.new_session().await;
    let prompt = client.prompt(&session, text).await;
    let mut updates = Vec::new();
    loop {
        let message = client.next_message().await;
        if message["id"] == prompt {
            return updates;
        }
        updates.push(message["params"]["update"].clone());
    }
}

#[tokio::test(start_paused = true)]
async fn tool_calls_keep_their_order_their_status_and_their_lists() {
    in_time(async {
        let mut client = client_of(Gated::default()).await;
        let order = updates(&mut client, "order").await;
        let ids: Vec<_> = order.iter().map(|update| update["toolCallId"].as_str().unwrap_or("-")).collect();
        let expected = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"];
        assert_eq!(ids, [expected, expected].concat());
        assert!(order[10..].iter().all(|update| update["status"] == "failed"), "{order:?}");

        let preset = updates(&mut client, "preset").await;
        assert_eq!(preset.len(), 5, "a call that has ended is not failed: {preset:?}");
        assert_eq!(preset[0]["status"], "completed");
        let texts = preset[2]["content"].as_array().expect("a list").iter();
        assert!(texts.map(|content| &content["content"]["text"]).eq(["one", "two"]), "{preset:?}");
        let paths = preset[4]["locations"].as_array().expect("a list").iter();
        assert!(paths.map(|location| &location["path"]).eq(["/a", "/b"]), "{preset:?}");

        let refused = updates(&mut client, "refused").await;
        let text = "This needs an editor that runs programs in a terminal.";
        assert_eq!(refused[1]["content"][0]["content"]["text"], text, "it is a message for the user");
        assert_eq!(refused[2]["status"], "failed");
        assert_eq!(refused.len(), 3);
    })
    .await;
}

/// A turn is no request of the queue: the modes can be changed while it runs.
#[tokio::test(start_paused = true)]
async fn requests_of_a_session_are_answered_during_its_turn() {
    in_time(async {
        let mut client = client_of(Gated::default()).await;
        let session = client.new_session().await;
        let prompt = client.prompt(&session, "wait").await;
        let mode = json!({"sessionId": session, "modeId": "m"});
        for _ in 0..2 {
            // This agent has no modes.
            assert_eq!(client.request("session/set_mode", mode.clone()).await["error"]["code"], -32601);
        }
        client.cancel(&session).await;
        assert_eq!(client.next_message().await["id"], prompt);
    })
    .await;
}
