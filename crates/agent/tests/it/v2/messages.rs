//! Messages and updates in the form of each version.

use duologue_agent::schema::v2::{
    Diff, DiffChange, DiffOperation, DiffPatch, DiffPatchFormat, DiffPathChange, TerminalOutputChunk,
    TerminalUpdate,
};
use duologue_agent::schema::{MessageUpdate, SessionUpdate, Terminal, ToolCallContent, ToolCallStatus};
use duologue_agent::{Agent, Prompt, Result, Server, StopReason, Turn};
use duologue_test_support::{Wire, in_time};
use serde_json::json;

use super::{Both, client};

/// Sends updates that version 1 lacks.
struct Later;

impl Agent for Later {
    async fn prompt(&self, turn: &Turn, _: Prompt) -> Result<StopReason> {
        let whole = |id: &str, text: &str| MessageUpdate::new(id).content(vec![text.into(), "!".into()]);
        turn.update(SessionUpdate::UserMessage(whole("u", "hi"))).await?;
        turn.update(SessionUpdate::AgentThought(whole("t", "hm"))).await?;
        turn.update(SessionUpdate::AgentMessage(whole("m", "yes"))).await?;
        turn.update(SessionUpdate::AgentMessage(MessageUpdate::new("m"))).await?;
        turn.update(SessionUpdate::AgentMessage(MessageUpdate::new("m").clear_content())).await?;
        let change = || DiffChange::new(DiffOperation::Modify(DiffPathChange::new("/a")));
        let patch = DiffPatch::new(DiffPatchFormat::GitPatch, "--- a");
        let content = vec![
            ToolCallContent::Changes(Box::new(Diff::new(vec![change()]).patch(patch))),
            ToolCallContent::Changes(Box::new(Diff::new(vec![change(), change()]))),
            ToolCallContent::DisplayTerminal(Terminal::new("d")),
        ];
        let call = turn.tool_call("Edit").id("c").with(|call| call.content(content.clone())).start().await?;
        call.status(ToolCallStatus::Paused).await?;
        call.update(|update| update.content(content)).await?;
        call.complete().await?;
        turn.update(TerminalUpdate::new("d")).await?;
        turn.update(TerminalOutputChunk::new("d", "aGk=")).await?;
        Ok(StopReason::EndTurn)
    }
}

/// Pieces without an id are one message until another kind, and a cleared message continues behind others.
#[tokio::test(start_paused = true)]
async fn every_message_has_an_id() {
    in_time(async {
        let mut client = client().await;
        let prompt = client.prompt("without ids").await;
        let mut ids = Vec::new();
        loop {
            let message = client.peer.next_message().await;
            let update = &message["params"]["update"];
            match update["sessionUpdate"].as_str() {
                Some("state_update") if update["state"] == "idle" => break,
                Some(kind) if kind.starts_with("agent_") => {
                    let id = update["messageId"].as_str().expect("an id").to_owned();
                    let position = ids.iter().position(|known| *known == id).unwrap_or_else(|| {
                        ids.push(id);
                        ids.len() - 1
                    });
                    assert!(position < 4, "{update}");
                }
                _ => assert!(message["id"].is_null() || message["id"] == prompt),
            }
        }
        // Two messages and two thoughts: the last piece continues the cleared message.
        assert_eq!(ids.len(), 4);
    })
    .await;
}

/// A change to a known call does not end a message, but a prompt does.
#[tokio::test(start_paused = true)]
async fn a_message_without_an_id_ends_with_its_turn() {
    in_time(async {
        let mut client = client().await;
        let mut ids = Vec::new();
        for _ in 0..2 {
            let prompt = client.prompt("continued").await;
            loop {
                let message = client.peer.next_message().await;
                let update = &message["params"]["update"];
                if update["sessionUpdate"] == "agent_message_chunk" {
                    ids.push(update["messageId"].clone());
                }
                if update["state"] == "idle" {
                    break;
                }
                assert!(message["id"].is_null() || message["id"] == prompt);
            }
        }
        assert_eq!((ids.len(), &ids[0], &ids[2]), (4, &ids[1], &ids[3]));
        assert_ne!(ids[0], ids[2]);
    })
    .await;
}

/// A client of version 1 gets nothing that its version does not have.
#[tokio::test(start_paused = true)]
async fn version_1_has_its_own_form() {
    in_time(async {
        let (transport, mut peer) = Wire::Memory.scripted();
        tokio::spawn(Server::new(Both).protocol_v2().serve(transport));
        peer.initialize(json!({})).await;
        let session = peer.new_session().await;
        let prompt = peer.prompt(&session, "v2 only").await;
        let mut lines = Vec::new();
        loop {
            let message = peer.next_message().await;
            if message["id"] == prompt {
                break;
            }
            let update = &message["params"]["update"];
            assert!(update["capabilities"].is_null(), "{update}");
            let status = update["status"].as_str().unwrap_or_default();
            let text = update["content"]["text"].as_str().unwrap_or_default();
            lines.push(format!("{} {status}{text}", update["sessionUpdate"].as_str().unwrap_or_default()));
        }
        let expected = ["agent_message_chunk whole", "tool_call in_progress", "tool_call_update failed"];
        assert_eq!(lines, expected);
    })
    .await;
}

/// Runs a prompt with our client and returns the outcome, and the conversation without ids.
async fn conversation(text: &str, is_v2: bool) -> (String, Vec<String>) {
    use duologue_client::schema::{ConversationEntry, RequestPermissionRequest};

    let (ours, theirs) = Wire::Memory.pair();
    let server = tokio::spawn(Server::new(Both).protocol_v2().serve(theirs));
    let client = duologue_client::Client::new(()).keep_conversations().on(
        async |_, request: RequestPermissionRequest| {
            assert_eq!(request.tool_call.title.as_deref(), Some("Delete"));
            Ok(request.outcome(true).into())
        },
    );
    let client = if is_v2 { client.protocol_v2() } else { client };
    let connection = client.connect(ours).await.expect("a connection");
    let session = connection.new_session("/").await.expect("a session");
    let mut turn = session.prompt(text).await.expect("a turn");
    if text == "wait" {
        turn.next().await;
        turn.cancel();
    }
    let outcome = match turn.outcome().await {
        Ok(response) => format!("{:?}", response.stop_reason),
        Err(error) => error.to_string(),
    };
    let conversation = session.conversation().expect("kept");
    let entries = conversation.entries().iter().map(|entry| match entry {
        ConversationEntry::Message(message) => format!("{:?} {}", message.kind, message.text()),
        ConversationEntry::ToolCall(call) => format!("{} {:?} {:?}", call.title, call.status, call.content),
        other => format!("{other:?}"),
    });
    let entries = entries.collect();
    connection.close().await;
    server.await.expect("no panic").expect("no error");
    (outcome, entries)
}

/// A program sees the same turn in both versions. Only the status of a cancelled tool call differs.
#[tokio::test(start_paused = true)]
async fn both_versions_have_the_same_conversation() {
    in_time(async {
        for text in ["write", "without ids", "ask", "fail", "wait"] {
            let (v1, mut v2) = (conversation(text, false).await, conversation(text, true).await);
            for entry in &mut v2.1 {
                *entry = entry.replace(" Cancelled ", " Failed ");
            }
            assert_eq!(v1, v2, "{text}");
        }
    })
    .await;
}

/// A client of version 1 gets pieces, clears if it supports them, and text in place of what its version lacks.
#[tokio::test(start_paused = true)]
async fn updates_of_version_2_have_substitutes() {
    in_time(async {
        for clears in [true, false] {
            let (transport, mut peer) = Wire::Memory.scripted();
            tokio::spawn(Server::new(Later).protocol_v2().serve(transport));
            peer.initialize(json!({"_meta": {"duologue": {"messageClear": clears}}})).await;
            let session = peer.new_session().await;
            let prompt = peer.prompt(&session, "go").await;
            let mut lines = Vec::new();
            loop {
                let message = peer.next_message().await;
                if message["id"] == prompt {
                    break;
                }
                let update = &message["params"]["update"];
                let kind = update["sessionUpdate"].as_str().unwrap_or_default();
                let text = update["content"]["text"].as_str().unwrap_or_default();
                let status = update["status"].as_str().unwrap_or_default();
                let content = update["content"].as_array().into_iter().flatten();
                let content: Vec<_> =
                    content.map(|item| item["content"]["text"].as_str().unwrap_or("?")).collect();
                lines.push(format!("{kind} {text}{status} {}", content.join(", ")).trim().to_owned());
            }
            let clear = |kind: &str| if clears { vec![format!("agent_{kind}_clear")] } else { Vec::new() };
            let pieces =
                |kind: &str, text: &str| vec![format!("{kind}_chunk {text}"), format!("{kind}_chunk !")];
            let expected = [
                pieces("user_message", "hi"),
                clear("thought"),
                pieces("agent_thought", "hm"),
                clear("message"),
                pieces("agent_message", "yes"),
                clear("message"),
                vec![
                    "tool_call in_progress --- a, /a\n/a".to_owned(),
                    "tool_call_update in_progress".to_owned(),
                    "tool_call_update  --- a, /a\n/a".to_owned(),
                    "tool_call_update completed".to_owned(),
                ],
            ];
            assert_eq!(lines, expected.concat());
        }
    })
    .await;
}

/// Every clear of version 2 names a message.
#[tokio::test(start_paused = true)]
async fn a_clear_of_no_message_is_not_sent() {
    in_time(async {
        let mut client = client().await;
        let prompt = client.prompt("nothing to clear").await;
        let lines = client.until_idle(prompt).await;
        assert_eq!(lines[3..], ["agent_message_chunk m text", "state_update idle end_turn"]);
    })
    .await;
}
