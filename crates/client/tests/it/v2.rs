//! A client that speaks protocol version 2 to a scripted agent.

#[cfg(unix)]
mod permissions;

use std::time::Duration;

use duologue_client::schema::{
    ErrorCode, PermissionOptionId, ProtocolVersion, RequestPermissionOutcome, RequestPermissionRequest,
    SelectedPermissionOutcome, SessionUpdate, StopReason, ToolCallContent,
};
use duologue_client::{Client, Connection, Error, Host, PromptBuilder, Session, Turn};
use serde_json::{Value, json};

use duologue_test_support::{ScriptedPeer, Wire, in_time};

struct Agent {
    peer: ScriptedPeer,
}

impl Agent {
    async fn update(&mut self, update: Value) {
        self.peer.notify("session/update", json!({"sessionId": "s", "update": update})).await;
    }

    async fn state(&mut self, state: Value) {
        let mut update = state;
        update["sessionUpdate"] = json!("state_update");
        self.update(update).await;
    }

    async fn text(&mut self, text: &str) {
        let content = json!({"type": "text", "text": text});
        self.update(json!({"sessionUpdate": "agent_message_chunk", "messageId": "m", "content": content}))
            .await;
    }

    async fn user_message(&mut self, id: &str) {
        self.user_text(id, "hi").await;
    }

    async fn user_text(&mut self, id: &str, text: &str) {
        let content = json!([{"type": "text", "text": text}]);
        self.update(json!({"sessionUpdate": "user_message", "messageId": id, "content": content})).await;
    }

    async fn accept(&mut self, prompt: &Value) {
        self.peer.respond(prompt, json!({"messageId": "u"})).await;
    }

    /// Asks the user about a subject and returns the chosen option, or the outcome if there is none.
    async fn ask(&mut self, subject: Value) -> String {
        let options = json!([
            {"optionId": "yes", "name": "Yes", "kind": "allow_once"},
            {"optionId": "no", "name": "No", "kind": "reject_once"},
        ]);
        let params = json!({"sessionId": "s", "title": "Go on?", "subject": subject, "options": options});
        let response = self.peer.request("session/request_permission", params).await;
        let outcome = &response["result"]["outcome"];
        let answer = outcome["optionId"].as_str().or(outcome["outcome"].as_str());
        answer.unwrap_or_else(|| panic!("an outcome: {response}")).to_owned()
    }
}

/// Connects a client that offers both versions, and opens the session `s`.
async fn connect<H: Host>(client: Client<H>) -> (Connection, Session, Agent) {
    let (transport, mut peer) = Wire::Memory.scripted();
    let script = async {
        let request = peer.expect("initialize").await;
        assert_eq!(request["params"]["protocolVersion"], 2);
        let result = json!({
            "protocolVersion": 2, "info": {"name": "agent", "version": "1"},
            "capabilities": {"session": {"delete": {}}},
        });
        peer.respond(&request, result).await;
        let request = peer.expect("session/new").await;
        let commands = json!([{"type": "command", "name": "plan", "description": "Plan"}]);
        peer.respond(&request, json!({"sessionId": "s", "availableCommands": commands})).await;
        peer
    };
    let connected = async {
        let connection = client.protocol_v2().connect(transport).await.expect("a connection");
        let session = connection.new_session("/").await.expect("a session");
        (connection, session)
    };
    let ((connection, session), peer) = tokio::join!(connected, script);
    (connection, session, Agent { peer })
}

async fn begin(session: &Session, agent: &mut Agent) -> (Turn, Value) {
    let (turn, prompt) = tokio::join!(session.prompt("hi"), agent.peer.expect("session/prompt"));
    (turn.expect("a turn"), prompt)
}

/// Returns the texts of the updates, and the states in brackets.
async fn texts(turn: &mut Turn) -> Vec<String> {
    let mut texts = Vec::new();
    while let Some(update) = turn.next().await {
        texts.push(match update.expect("an update") {
            SessionUpdate::StateUpdate(state) => format!("[{}]", state.tag()),
            SessionUpdate::UserMessage(message) => format!("user {}", message.message_id),
            update => update.to_string(),
        });
    }
    texts
}

/// An agent of version 1 reads its own members of the request, and may repeat the version of the client.
#[tokio::test(start_paused = true)]
async fn an_agent_of_version_1_gets_all_capabilities() {
    in_time(async {
        for (version, capabilities) in
            [(1, json!({"loadSession": true})), (2, json!({"loadSession": true})), (2, Value::Null)]
        {
            let offers_load = capabilities.is_object();
            let (transport, mut peer) = Wire::Memory.scripted();
            let script = async {
                let request = peer.expect("initialize").await;
                let params = &request["params"];
                assert!(params["clientCapabilities"]["_meta"]["duologue"].is_object(), "{request}");
                assert!(
                    params["capabilities"].is_object() && params["info"]["name"].is_string(),
                    "{request}"
                );
                let mut result = json!({"protocolVersion": version});
                if offers_load {
                    result["agentCapabilities"] = capabilities;
                }
                peer.respond(&request, result).await;
                let request = peer.expect("session/new").await;
                peer.respond(&request, json!({"sessionId": "s"})).await;
                let prompt = peer.expect("session/prompt").await;
                peer.end_turn(&prompt, "end_turn").await;
                peer
            };
            let turn = async {
                let connection =
                    Client::new(()).protocol_v2().connect(transport).await.expect("a connection");
                assert_eq!(connection.protocol_version(), ProtocolVersion::V1);
                assert_eq!(connection.capabilities().load_session, offers_load);
                let session = connection.new_session("/").await.expect("a session");
                let mut turn = session.prompt("hi").await.expect("a turn");
                assert_eq!(turn.outcome().await.expect("an outcome").stop_reason, StopReason::EndTurn);
            };
            tokio::join!(turn, script);
        }
    })
    .await;
}

/// The state before the prompt does not end the turn, and nothing is lost between the response and the end.
#[tokio::test(start_paused = true)]
async fn a_turn_ends_with_the_state_after_its_response() {
    in_time(async {
        let (connection, session, mut agent) = connect(Client::new(())).await;
        assert_eq!(connection.protocol_version(), ProtocolVersion::V2);
        let (mut turn, prompt) = begin(&session, &mut agent).await;
        agent.state(json!({"state": "idle", "stopReason": "end_turn"})).await;
        agent.accept(&prompt).await;
        agent.user_message("u").await;
        agent.state(json!({"state": "running"})).await;
        agent.text("one").await;
        agent.state(json!({"state": "requires_action"})).await;
        agent.state(json!({"state": "running"})).await;
        agent.text("two").await;
        agent.state(json!({"state": "idle", "stopReason": "max_tokens", "_meta": {"a": 1}})).await;
        agent.text("after").await;
        assert_eq!(texts(&mut turn).await, ["[running]", "one", "[requires_action]", "[running]", "two"]);
        let outcome = turn.outcome().await.expect("an outcome");
        assert_eq!(outcome.stop_reason, StopReason::MaxTokens);
        assert!(outcome.meta.is_some());
        // An update that follows the turn is one between turns.
        let update = session.updates().next().await.expect("an update").expect("no error");
        assert_eq!(update.to_string(), "after");
    })
    .await;
}

/// Some agents report the work before they respond to the prompt.
#[tokio::test(start_paused = true)]
async fn a_turn_may_end_before_its_response() {
    in_time(async {
        let (_connection, session, mut agent) = connect(Client::new(())).await;
        let (mut turn, prompt) = begin(&session, &mut agent).await;
        agent.user_text("other", "a comment").await;
        agent.user_message("u").await;
        agent.state(json!({"state": "running"})).await;
        agent.text("one").await;
        agent.state(json!({"state": "idle", "stopReason": "refusal"})).await;
        agent.accept(&prompt).await;
        assert_eq!(texts(&mut turn).await, ["user other", "[running]", "one"]);
        assert_eq!(turn.outcome().await.expect("an outcome").stop_reason, StopReason::Refusal);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_rejected_or_failed_prompt_is_an_error() {
    in_time(async {
        let (_connection, session, mut agent) = connect(Client::new(())).await;
        let (mut turn, prompt) = begin(&session, &mut agent).await;
        let error = json!({"code": -32602, "message": "no"});
        agent.peer.send(json!({"jsonrpc": "2.0", "id": prompt["id"], "error": error})).await;
        let rejected = turn.outcome().await.expect_err("rejected");
        assert!(
            matches!(&rejected, Error::Response(error) if error.code == ErrorCode::INVALID_PARAMS),
            "{rejected}"
        );

        let (mut turn, prompt) = begin(&session, &mut agent).await;
        agent.accept(&prompt).await;
        let error = json!({"code": -32603, "message": "no model"});
        agent.state(json!({"state": "idle", "stopReason": "error", "error": error})).await;
        let failed = turn.outcome().await.expect_err("failed");
        assert!(matches!(&failed, Error::Response(error) if error.message == "no model"), "{failed}");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_turn_ends_with_idle_or_with_a_withdrawn_prompt() {
    in_time(async {
        let (_connection, session, mut agent) = connect(Client::new(())).await;
        let (mut turn, prompt) = begin(&session, &mut agent).await;
        agent.accept(&prompt).await;
        turn.cancel();
        agent.peer.expect("session/cancel").await;
        agent.text("late").await;
        agent.state(json!({"state": "idle", "stopReason": "cancelled"})).await;
        assert_eq!(turn.outcome().await.expect("an outcome").stop_reason, StopReason::Cancelled);

        let (mut turn, prompt) = begin(&session, &mut agent).await;
        turn.cancel();
        agent.peer.expect("session/cancel").await;
        let error = json!({"code": -32800, "message": "cancelled"});
        agent.peer.send(json!({"jsonrpc": "2.0", "id": prompt["id"], "error": error})).await;
        assert_eq!(turn.outcome().await.expect("an outcome").stop_reason, StopReason::Cancelled);
    })
    .await;
}

/// The host sees a tool call, whatever the subject of the question is.
#[tokio::test(start_paused = true)]
async fn a_permission_request_is_shown_as_a_tool_call() {
    in_time(async {
        let client = Client::new(()).on(async |_, request: RequestPermissionRequest| {
            let title = request.tool_call.title.clone().unwrap_or_default();
            let option = request.options.iter().find(|option| option.name == title);
            let id = option.map_or(PermissionOptionId::from("none"), |option| option.option_id.clone());
            Ok(RequestPermissionOutcome::Selected(SelectedPermissionOutcome::new(id)).into())
        });
        let (_connection, session, mut agent) = connect(client).await;
        let (_turn, prompt) = begin(&session, &mut agent).await;
        agent.accept(&prompt).await;
        let call = json!({"type": "tool_call", "toolCall": {"toolCallId": "c", "title": "Delete", "kind": "delete"}});
        let command = json!({"type": "command", "command": "rm -r /tmp/a", "cwd": "/tmp"});
        for (subject, title) in [(call, "Delete"), (command, "rm -r /tmp/a"), (Value::Null, "Go on?")] {
            let option = json!({"optionId": "o", "name": title, "kind": "allow_once"});
            let params = json!({"sessionId": "s", "title": "Go on?", "subject": subject, "options": [option]});
            let response = agent.peer.request("session/request_permission", params).await;
            assert_eq!(response["result"]["outcome"]["optionId"], "o", "{title}");
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn requests_have_the_form_of_version_2() {
    in_time(async {
        let (connection, session, mut agent) = connect(Client::new(())).await;
        let script = async {
            let request = agent.peer.expect("session/resume").await;
            assert_eq!(request["params"]["replayFrom"], json!({"type": "start"}));
            agent
                .peer
                .notify(
                    "session/update",
                    json!({"sessionId": "old", "update": {
                        "sessionUpdate": "agent_message", "messageId": "m",
                        "content": [{"type": "text", "text": "whole"}],
                    }}),
                )
                .await;
            agent.peer.respond(&request, json!({"configOptions": []})).await;
            let request = agent.peer.expect("session/set_config_option").await;
            assert_eq!(request["params"]["type"], "id");
            agent.peer.respond(&request, json!({"configOptions": []})).await;
            let request = agent.peer.expect("session/list").await;
            agent.peer.respond(&request, json!({"sessions": [{"sessionId": "x", "cwd": "/"}]})).await;
            let request = agent.peer.expect("session/delete").await;
            agent.peer.respond(&request, json!({})).await;
            agent.peer
        };
        let requests = async {
            let mut replay = connection.load_session("old", "/").expect("loads");
            let update = replay.next().await.expect("an update").expect("no error");
            assert_eq!(update.to_string().trim(), "whole");
            replay.outcome().await.expect("a session");
            session.set_config_option("model", "small").unchecked().await.expect("set");
            let listed = connection.list_sessions(None).expect("lists").all().await.expect("sessions");
            assert_eq!(listed[0].session_id.as_str(), "x");
            connection.delete_session("x").await.expect("deleted");
        };
        tokio::join!(requests, script);
    })
    .await;
}

/// An agent of version 2 has an option for modes. `modes` and `set_mode` use it.
#[tokio::test(start_paused = true)]
async fn a_mode_is_an_option() {
    in_time(async {
        let (_connection, session, mut agent) = connect(Client::new(())).await;
        let option = |current: &str| {
            json!({"configId": "how", "name": "How", "category": "mode", "type": "select", "currentValue": current,
                "options": [{"value": "ask", "name": "Ask"}, {"value": "code", "name": "Code"}]})
        };
        assert!(matches!(session.set_mode("code").await, Err(Error::NotSupported { capability: "modes" })));
        agent.update(json!({"sessionUpdate": "config_option_update", "configOptions": [option("ask")]})).await;
        agent.peer.probe().await;
        let current = |session: &Session| session.modes().expect("modes").current_mode_id.to_string();
        assert_eq!(current(&session), "ask");
        assert!(matches!(session.set_mode("other").await, Err(Error::NotOffered { .. })));
        let script = async {
            let request = agent.peer.expect("session/set_config_option").await;
            assert_eq!((&request["params"]["configId"], &request["params"]["value"]), (&json!("how"), &json!("code")));
            agent.peer.respond(&request, json!({"configOptions": [option("code")]})).await;
        };
        let (switched, ()) = tokio::join!(std::future::IntoFuture::into_future(session.set_mode("code")), script);
        switched.expect("switched");
        assert_eq!(current(&session), "code");
    })
    .await;
}

/// A message may be replaced after its turn, and keeps its place.
#[tokio::test(start_paused = true)]
async fn an_upsert_after_the_turn_changes_the_message() {
    in_time(async {
        let (_connection, session, mut agent) = connect(Client::new(()).keep_conversations()).await;
        let (mut turn, prompt) = begin(&session, &mut agent).await;
        agent.accept(&prompt).await;
        agent.user_message("u").await;
        agent.state(json!({"state": "running"})).await;
        agent.text("secret").await;
        agent.state(json!({"state": "idle", "stopReason": "end_turn"})).await;
        turn.outcome().await.expect("an outcome");
        let whole = json!([{"type": "text", "text": "removed"}]);
        agent.update(json!({"sessionUpdate": "agent_message", "messageId": "m", "content": whole})).await;
        agent.peer.probe().await;
        let conversation = session.conversation().expect("kept");
        let texts: Vec<_> = conversation.messages().map(|message| message.text()).collect();
        assert_eq!(texts, ["hi", "removed"]);
        let state = session.state().foreground.expect("a state");
        assert_eq!(state.stop_reason(), Some(StopReason::EndTurn));
    })
    .await;
}

/// Work that the agent began itself may end between the prompt and the response.
#[tokio::test(start_paused = true)]
async fn the_end_of_other_work_does_not_end_the_turn() {
    in_time(async {
        let (_connection, session, mut agent) = connect(Client::new(())).await;
        let (mut turn, prompt) = begin(&session, &mut agent).await;
        agent.state(json!({"state": "running"})).await;
        agent.state(json!({"state": "idle", "stopReason": "end_turn"})).await;
        agent.accept(&prompt).await;
        agent.user_message("u").await;
        // Only the work in the background has changed.
        agent.state(json!({"state": "idle", "background": []})).await;
        agent.state(json!({"state": "running"})).await;
        agent.text("text").await;
        agent.state(json!({"state": "idle", "stopReason": "error"})).await;
        assert_eq!(texts(&mut turn).await, ["[running]", "[running]", "text"]);
        turn.outcome().await.expect_err("failed");

        let (mut turn, prompt) = begin(&session, &mut agent).await;
        agent.user_message("u").await;
        agent.state(json!({"state": "running"})).await;
        agent.state(json!({"state": "idle", "stopReason": "end_turn"})).await;
        agent.state(json!({"state": "running"})).await;
        agent.accept(&prompt).await;
        agent.text("text").await;
        agent.state(json!({"state": "idle", "stopReason": "refusal"})).await;
        assert_eq!(texts(&mut turn).await, ["[running]", "[running]", "text"]);
        assert_eq!(turn.outcome().await.expect("an outcome").stop_reason, StopReason::Refusal);
    })
    .await;
}

/// The agent may take the prompt into work that it began itself. It repeats no state, and need not give a reason.
#[tokio::test(start_paused = true)]
async fn the_end_of_work_that_ran_before_the_prompt_ends_the_turn() {
    in_time(async {
        let (_connection, session, mut agent) = connect(Client::new(())).await;
        agent.state(json!({"state": "running"})).await;
        agent.peer.probe().await;
        let (mut turn, prompt) = begin(&session, &mut agent).await;
        agent.accept(&prompt).await;
        agent.user_message("u").await;
        agent.text("text").await;
        agent.state(json!({"state": "idle"})).await;
        assert_eq!(texts(&mut turn).await, ["text"]);
        assert_eq!(turn.outcome().await.expect("an outcome").stop_reason, StopReason::EndTurn);
    })
    .await;
}

/// The client sends nothing that version 2 forbids.
#[tokio::test(start_paused = true)]
async fn forbidden_requests_are_not_sent() {
    in_time(async {
        let (connection, session, mut agent) = connect(Client::new(())).await;
        let empty = session.prompt(PromptBuilder::default()).await.expect_err("empty");
        assert!(matches!(empty, Error::EmptyPrompt), "{empty}");
        // This agent has no login.
        let login = connection.authenticate("token").await.expect_err("no method");
        assert!(matches!(login, Error::NotOffered(_)), "{login}");
        let logout = connection.logout().await.expect_err("no method");
        assert!(matches!(logout, Error::NotSupported { .. }), "{logout}");
        agent.peer.probe().await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_session_that_the_agent_does_not_know_counts_as_closed() {
    in_time(async {
        let (connection, session, mut agent) = connect(Client::new(())).await;
        let script = async {
            let request = agent.peer.expect("session/close").await;
            let error = json!({"code": -32002, "message": "unknown", "data": {"sessionId": "s"}});
            agent.peer.send(json!({"jsonrpc": "2.0", "id": request["id"], "error": error})).await;
        };
        let (closed, ()) = tokio::join!(std::future::IntoFuture::into_future(session.close()), script);
        closed.expect("closed");
        agent.text("late").await;
        agent.peer.probe().await;
        assert_eq!(connection.dropped_updates(), 1);
    })
    .await;
}

/// Without the user's message, the end before the response may be that of other work. The turn waits for more work, but
/// not for ever.
#[tokio::test(start_paused = true)]
async fn a_turn_without_the_users_message_may_end_before_its_response() {
    in_time(async {
        for goes_on in [false, true] {
            let (_connection, session, mut agent) = connect(Client::new(())).await;
            let (mut turn, prompt) = begin(&session, &mut agent).await;
            agent.state(json!({"state": "running"})).await;
            agent.text("one").await;
            agent.state(json!({"state": "idle", "stopReason": "max_tokens"})).await;
            agent.accept(&prompt).await;
            if goes_on {
                tokio::time::sleep(Duration::from_secs(9)).await;
                agent.state(json!({"state": "running"})).await;
                tokio::time::sleep(Duration::from_secs(9)).await;
                agent.state(json!({"state": "idle", "stopReason": "refusal"})).await;
            }
            let reason = turn.outcome().await.expect("an outcome").stop_reason;
            assert_eq!(reason, if goes_on { StopReason::Refusal } else { StopReason::MaxTokens });
            // The session is free.
            let (mut turn, prompt) = begin(&session, &mut agent).await;
            agent.accept(&prompt).await;
            agent.state(json!({"state": "idle", "stopReason": "end_turn"})).await;
            turn.outcome().await.expect("an outcome");
        }
    })
    .await;
}

/// Before the response, the user's own message is known by its content. Nothing waits for the response.
#[tokio::test(start_paused = true)]
async fn user_messages_keep_their_order() {
    in_time(async {
        let (_connection, session, mut agent) = connect(Client::new(())).await;
        let (mut turn, prompt) = begin(&session, &mut agent).await;
        let long = "x".repeat(100_000);
        for piece in ["h", "i"] {
            let content = json!({"type": "text", "text": piece});
            let chunk = json!({"sessionUpdate": "user_message_chunk", "messageId": "u", "content": content});
            agent.update(chunk).await;
        }
        agent.state(json!({"state": "running"})).await;
        agent.user_text("other", &long).await;
        agent.text("one").await;
        agent.user_text("more", "a comment").await;
        agent.accept(&prompt).await;
        agent.text("two").await;
        agent.state(json!({"state": "idle", "stopReason": "end_turn"})).await;
        assert_eq!(texts(&mut turn).await, ["[running]", "user other", "one", "user more", "two"]);
    })
    .await;
}

/// No response is pending that would report the end of the connection.
#[tokio::test(start_paused = true)]
async fn the_end_of_the_connection_ends_an_accepted_turn() {
    in_time(async {
        for detached in [false, true] {
            let (connection, session, mut agent) = connect(Client::new(())).await;
            let (mut turn, prompt) = begin(&session, &mut agent).await;
            agent.accept(&prompt).await;
            agent.state(json!({"state": "running"})).await;
            agent.peer.probe().await;
            if detached {
                turn.detach();
                drop(agent);
            } else {
                drop(agent);
                assert_eq!(texts(&mut turn).await, ["[running]"]);
                let ended = turn.outcome().await.expect_err("ended");
                assert!(matches!(ended, Error::Connection(_)), "{ended}");
            }
            connection.closed().await;
            let ended = session.prompt("again").await.expect_err("ended");
            assert!(matches!(ended, Error::Connection(_)), "{ended}");
        }
    })
    .await;
}

/// A detached turn goes on without handles, until its end.
#[tokio::test(start_paused = true)]
async fn an_accepted_turn_keeps_its_session() {
    in_time(async {
        let yes = || SelectedPermissionOutcome::new(PermissionOptionId::from("yes"));
        let client = || {
            Client::new(()).on(move |_, _: RequestPermissionRequest| async move {
                Ok(RequestPermissionOutcome::Selected(yes()).into())
            })
        };
        let (_connection, session, mut agent) = connect(client()).await;
        let (turn, prompt) = begin(&session, &mut agent).await;
        agent.accept(&prompt).await;
        agent.state(json!({"state": "running"})).await;
        agent.peer.probe().await;
        turn.detach();
        drop(session);
        assert_eq!(agent.ask(Value::Null).await, "yes");
        agent.state(json!({"state": "idle", "stopReason": "end_turn"})).await;
        let params = json!({"sessionId": "s", "title": "Go on?", "subject": null, "options": []});
        let response = agent.peer.request("session/request_permission", params).await;
        assert_eq!(response["error"]["code"], -32002, "the session has no handles: {response}");

        let (_connection, session, mut agent) = connect(client()).await;
        let (turn, prompt) = begin(&session, &mut agent).await;
        agent.accept(&prompt).await;
        agent.peer.probe().await;
        drop((turn, session));
        agent.peer.expect("session/cancel").await;
        assert_eq!(agent.ask(Value::Null).await, "cancelled");
    })
    .await;
}

/// A closure gets the parts that version 1 lacks, and the tool call of the request is an update.
#[tokio::test(start_paused = true)]
async fn a_permission_request_is_whole_and_updates_its_tool_call() {
    in_time(async {
        let client = Client::new(()).keep_conversations().on(async |_, request: RequestPermissionRequest| {
            let question = request.question.map(|question| question.title);
            let content = request.tool_call.content.unwrap_or_default();
            let is_whole = question.as_deref() == Some("Go on?")
                && matches!(&*content, [ToolCallContent::Changes(diff)] if diff.changes.len() == 1);
            let id = PermissionOptionId::from(if is_whole { "yes" } else { "no" });
            Ok(RequestPermissionOutcome::Selected(SelectedPermissionOutcome::new(id)).into())
        });
        let (_connection, session, mut agent) = connect(client).await;
        let change = json!({"operation": "delete", "path": "/a"});
        let call =
            json!({"toolCallId": "c", "title": "Delete", "content": [{"type": "diff", "changes": [change]}]});
        assert_eq!(agent.ask(json!({"type": "tool_call", "toolCall": call})).await, "yes");
        let command = json!({"type": "command", "command": "rm /a", "cwd": "/", "toolCallId": "c"});
        agent.ask(command).await;
        let conversation = session.conversation().expect("kept");
        let call = conversation.tool_call("c").expect("a tool call");
        assert_eq!((call.title.as_str(), conversation.entries().len()), ("Delete", 1));
        assert_eq!(session.state().commands[0].name, "plan");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_prompt_that_the_agent_does_not_report_is_in_the_conversation() {
    in_time(async {
        let (_connection, session, mut agent) = connect(Client::new(()).keep_conversations()).await;
        for reported in [true, false] {
            let (mut turn, prompt) = begin(&session, &mut agent).await;
            agent.accept(&prompt).await;
            if reported {
                agent.user_message("u").await;
            }
            agent.state(json!({"state": "idle", "stopReason": "end_turn"})).await;
            turn.outcome().await.expect("an outcome");
        }
        let conversation = session.conversation().expect("kept");
        let texts: Vec<_> = conversation.messages().map(|message| message.text()).collect();
        assert_eq!(texts, ["hi", "hi"]);
    })
    .await;
}

/// The agent may work without a prompt. Its requests to the user are cancelled too.
#[tokio::test(start_paused = true)]
async fn work_between_turns_can_be_cancelled() {
    in_time(async {
        let client = Client::new(()).on(async |_, _: RequestPermissionRequest| std::future::pending().await);
        let (_connection, session, mut agent) = connect(client).await;
        agent.state(json!({"state": "running"})).await;
        let params = json!({"sessionId": "s", "title": "Go on?", "subject": null, "options": []});
        agent.peer.send_request("session/request_permission", params).await;
        agent.peer.probe().await;
        session.cancel();
        agent.peer.expect("session/cancel").await;
        assert_eq!(agent.peer.next_message().await["result"]["outcome"]["outcome"], "cancelled");
    })
    .await;
}

/// `session/cancel` cancels foreground work. The agent itself cancels the requests of other work.
#[tokio::test(start_paused = true)]
async fn requests_of_background_work_outlive_a_cancellation() {
    in_time(async {
        let client = Client::new(()).on(async |_, _: RequestPermissionRequest| std::future::pending().await);
        let (_connection, session, mut agent) = connect(client).await;
        let background = json!([{"type": "tool_call", "toolCallId": "b"}]);
        let question = |call: Option<&str>| {
            let subject = call.map(|id| json!({"type": "tool_call", "toolCall": {"toolCallId": id}}));
            json!({"sessionId": "s", "title": "Go on?", "subject": subject, "options": []})
        };
        let ask = "session/request_permission";
        agent.state(json!({"state": "idle", "background": background})).await;
        let of_idle = agent.peer.send_request(ask, question(Some("a"))).await;
        agent.peer.probe().await;
        let (mut turn, prompt) = begin(&session, &mut agent).await;
        agent.accept(&prompt).await;
        agent.state(json!({"state": "running", "background": background})).await;
        let of_background = agent.peer.send_request(ask, question(Some("b"))).await;
        let of_turn = agent.peer.send_request(ask, question(Some("c"))).await;
        let unnamed = agent.peer.send_request(ask, question(None)).await;
        agent.peer.probe().await;
        turn.cancel();
        agent.peer.expect("session/cancel").await;
        let late = agent.peer.send_request(ask, question(Some("d"))).await;
        let late_of_background = agent.peer.send_request(ask, question(Some("b"))).await;
        for cancelled in [of_turn, late] {
            let response = agent.peer.next_message().await;
            assert_eq!((&response["id"], outcome(&response)), (&json!(cancelled), "cancelled"));
        }
        agent.state(json!({"state": "idle", "stopReason": "cancelled", "background": background})).await;
        turn.outcome().await.expect("an outcome");
        // The agent knows what else it has cancelled.
        for open in [of_idle, of_background, unnamed, late_of_background] {
            agent.peer.notify("$/cancel_request", json!({"requestId": open})).await;
            let response = agent.peer.next_message().await;
            assert_eq!((&response["id"], outcome(&response)), (&json!(open), "cancelled"));
        }
    })
    .await;
}

fn outcome(response: &Value) -> &str {
    response["result"]["outcome"]["outcome"].as_str().unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn tool_calls_and_terminals_can_be_cancelled() {
    in_time(async {
        let (_connection, session, mut agent) = connect(Client::new(())).await;
        let refused = session.cancel_tool_call("c").await;
        assert!(matches!(refused, Err(Error::NotSupported { capability: "capabilities.cancel" })));
        let offer = json!({"cancel": {}});
        let call = json!({"sessionUpdate": "tool_call_update", "toolCallId": "c", "capabilities": offer});
        agent.update(call).await;
        let terminal = json!({"sessionUpdate": "terminal_update", "terminalId": "t", "capabilities": offer});
        agent.update(terminal).await;
        agent.peer.probe().await;
        let script = async {
            let request = agent.peer.expect("tool_call/cancel").await;
            assert_eq!(request["params"], json!({"sessionId": "s", "toolCallId": "c"}));
            agent.peer.respond(&request, json!({})).await;
            let request = agent.peer.expect("terminal/cancel").await;
            assert_eq!(request["params"], json!({"sessionId": "s", "terminalId": "t"}));
            agent.peer.respond(&request, json!({})).await;
        };
        let cancelled = async {
            session.cancel_tool_call("c").await.expect("cancelled");
            session.cancel_terminal("t").await.expect("cancelled");
        };
        tokio::join!(cancelled, script);
        let ended = json!({"sessionUpdate": "tool_call_update", "toolCallId": "c", "status": "cancelled"});
        agent.update(ended).await;
        agent.peer.probe().await;
        session.cancel_tool_call("c").await.expect_err("ended");
    })
    .await;
}
