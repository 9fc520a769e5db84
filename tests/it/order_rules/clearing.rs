//! The wire form of a cleared message, for each policy and each kind of client.

use duologue_agent::schema::ContentBlock;
use duologue_agent::{Agent, ClearPolicy, Prompt, Server, StopReason, Turn};
use insta::assert_snapshot;
use serde_json::{Value, json};

use duologue_test_support::{Wire, in_time};

/// Thinks, drafts, takes both back, and goes on.
struct Drafter;

impl Agent for Drafter {
    async fn prompt(&self, turn: &Turn, _: Prompt) -> duologue_agent::Result<StopReason> {
        let mut thought = turn.thought();
        thought.push("hm").await?;
        thought.clear().await?;
        let mut message = turn.message();
        message.clear().await?;
        message.push("a ").await?;
        message.push("draft").await?;
        message.clear().await?;
        message.clear().await?;
        message.push("the ").await?;
        message.set("the answer").await?;
        message.set("the end").await?;
        let mut kept = turn.message();
        kept.push("held ").await?;
        kept.push("early").await?;
        kept.finish().await?;
        Ok(StopReason::EndTurn)
    }
}

/// Returns the lines of one turn, with the ids numbered as they appear.
async fn wire_of(policy: ClearPolicy, capabilities: Value) -> String {
    let (transport, mut client) = Wire::Pipes.scripted();
    tokio::spawn(Server::new(Drafter).clear_policy(policy).serve(transport));
    client.initialize(capabilities).await;
    let session = client.new_session().await;
    let prompt = client.prompt(&session, "go").await;
    let (mut ids, mut wire) = (Vec::new(), String::new());
    loop {
        let line = client.next_line().await.expect("a line").replace(&session, "s");
        let message: Value = serde_json::from_str(&line).expect("JSON");
        if message["id"] == prompt {
            return wire + &line;
        }
        let id = message["params"]["update"]["messageId"].as_str().expect("an id");
        let number = ids.iter().position(|seen| seen == id).unwrap_or_else(|| {
            ids.push(id.to_owned());
            ids.len() - 1
        });
        wire += &line.replace(id, &format!("m{number}"));
        wire.push('\n');
    }
}

fn can_clear() -> Value {
    json!({"_meta": {"duologue": {"messageClear": true}}})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_can_clear_is_sent_clears() {
    let wire = in_time(wire_of(ClearPolicy::Separator, can_clear())).await;
    assert_snapshot!(wire, @r#"
    {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_thought_chunk","content":{"type":"text","text":"hm"},"messageId":"m0"}}}
    {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_thought_clear","messageId":"m0"}}}
    {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"a "},"messageId":"m1"}}}
    {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"draft"},"messageId":"m1"}}}
    {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_clear","messageId":"m1"}}}
    {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"the "},"messageId":"m1"}}}
    {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"answer"},"messageId":"m1"}}}
    {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_clear","messageId":"m1"}}}
    {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"the end"},"messageId":"m1"}}}
    {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"held "},"messageId":"m2"}}}
    {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"early"},"messageId":"m2"}}}
    {"jsonrpc":"2.0","id":1003,"result":{"stopReason":"end_turn"}}
    "#);
    for policy in [ClearPolicy::Hold, ClearPolicy::Always] {
        assert_eq!(wire_of(policy, can_clear()).await, wire, "{policy:?}");
    }
    assert_eq!(wire_of(ClearPolicy::Always, json!({})).await, wire, "always means always");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_separator_sets_the_draft_apart() {
    let wire = in_time(wire_of(ClearPolicy::Separator, json!({}))).await;
    assert_snapshot!(wire, @r#"
    {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_thought_chunk","content":{"type":"text","text":"hm"},"messageId":"m0"}}}
    {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_thought_chunk","content":{"type":"text","text":"\n\n---\n\n"},"messageId":"m0"}}}
    {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"a "},"messageId":"m1"}}}
    {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"draft"},"messageId":"m1"}}}
    {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"\n\n---\n\n"},"messageId":"m1"}}}
    {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"the "},"messageId":"m2"}}}
    {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"answer"},"messageId":"m2"}}}
    {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"\n\n---\n\n"},"messageId":"m2"}}}
    {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"the end"},"messageId":"m3"}}}
    {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"held "},"messageId":"m4"}}}
    {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"early"},"messageId":"m4"}}}
    {"jsonrpc":"2.0","id":1003,"result":{"stopReason":"end_turn"}}
    "#);
    let no = json!({"_meta": {"duologue": {"messageClear": false}}});
    assert_eq!(wire_of(ClearPolicy::Separator, no).await, wire);
    let odd = json!({"_meta": {"duologue": {"messageClear": "yes"}}});
    assert_eq!(wire_of(ClearPolicy::Separator, odd).await, wire, "only true is true");
}

#[tokio::test(flavor = "multi_thread")]
async fn held_messages_are_sent_when_they_are_final() {
    let wire = in_time(wire_of(ClearPolicy::Hold, json!({}))).await;
    assert_snapshot!(wire, @r#"
    {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"held early"},"messageId":"m0"}}}
    {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"the end"},"messageId":"m1"}}}
    {"jsonrpc":"2.0","id":1003,"result":{"stopReason":"end_turn"}}
    "#);
}

/// Clears one of two messages that are buffered at the same time.
struct TwoDrafts;

impl Agent for TwoDrafts {
    async fn prompt(&self, turn: &Turn, _: Prompt) -> duologue_agent::Result<StopReason> {
        let (mut first, mut second) = (turn.message(), turn.message());
        first.push("kept").await?;
        second.push("a draft").await?;
        second.clear().await?;
        second.push("the text").await?;
        Ok(StopReason::EndTurn)
    }
}

#[tokio::test(start_paused = true)]
async fn a_clear_leaves_the_other_buffered_messages() {
    let (transport, mut client) = Wire::Memory.scripted();
    tokio::spawn(Server::new(TwoDrafts).clear_policy(ClearPolicy::Hold).serve(transport));
    client.initialize(json!({})).await;
    let session = client.new_session().await;
    client.prompt(&session, "go").await;
    for text in ["kept", "the text"] {
        let update = in_time(client.expect("session/update")).await;
        assert_eq!(update["params"]["update"]["content"]["text"], text, "{update}");
    }
}

/// Sets the text of a message that holds more than text.
struct Mixed;

impl Agent for Mixed {
    async fn prompt(&self, turn: &Turn, _: Prompt) -> duologue_agent::Result<StopReason> {
        let mut message = turn.message();
        message.push("a").await?;
        message.push(ContentBlock::image("", "image/png")).await?;
        message.set("a b").await?;
        message.set("a b c").await?;
        Ok(StopReason::EndTurn)
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_with_a_picture_is_set_anew() {
    let (transport, mut client) = Wire::Memory.scripted();
    tokio::spawn(Server::new(Mixed).serve(transport));
    client.initialize(can_clear()).await;
    let session = client.new_session().await;
    client.prompt(&session, "go").await;
    for (kind, text) in [
        ("agent_message_chunk", json!("a")),
        ("agent_message_chunk", Value::Null),
        ("agent_message_clear", Value::Null),
        ("agent_message_chunk", json!("a b")),
        ("agent_message_chunk", json!(" c")),
    ] {
        let message = in_time(client.expect("session/update")).await;
        let update = &message["params"]["update"];
        assert_eq!((update["sessionUpdate"].as_str(), &update["content"]["text"]), (Some(kind), &text));
    }
}
