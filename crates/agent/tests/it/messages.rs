//! Messages that an agent writes, clears and replaces, as the client receives them under each policy.

use duologue_agent::schema::{
    ContentChunk, ImageContent, MessageId, Meta, SessionUpdate, ToolCallStatus, ToolCallUpdate,
};
use duologue_agent::{Agent, ClearPolicy, ContentBlock, Limits, Prompt, Result, Server, StopReason, Turn};
use futures::FutureExt;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use duologue_test_support::{ScriptedPeer, Wire, in_time};

struct Writer(mpsc::UnboundedSender<String>);

fn image(bytes: usize) -> ContentBlock {
    ContentBlock::Image(Box::new(ImageContent::new("i".repeat(bytes), "image/png")))
}

fn chunk(id: &str, content: impl Into<ContentBlock>) -> ContentChunk {
    ContentChunk::new(content).message_id(MessageId::from(id))
}

impl Agent for Writer {
    async fn prompt(&self, turn: &Turn, prompt: Prompt) -> Result<StopReason> {
        let mut message = turn.message().with_id("m");
        match prompt.text().as_str() {
            "clear" => {
                message.clear().await?;
                message.push("").await?;
                message.clear().await?;
                message.push("a").await?;
                message.clear().await?;
                message.clear().await?;
                message.push("b").await?;
            }
            "set" => {
                message.set("one").await?;
                message.set("one").await?;
                message.set("one two").await?;
                message.set("three").await?;
                message.set("three four").await?;
                message.push(image(1)).await?;
                message.set("three four").await?;
                message.set("three four five").await?;
            }
            "thought" => {
                let mut thought = turn.thought().with_id("t");
                thought.push("hm").await?;
                thought.clear().await?;
                thought.push("oh").await?;
            }
            "finish" => {
                let mut other = turn.message().with_id("n");
                message.push("first").await?;
                other.push("second").await?;
                message.push(" message").await?;
                let _ = self.0.send("held".into());
                message.finish().await?;
                turn.update(SessionUpdate::agent_thought("between").with_message_id("t")).await?;
                other.push(" message").await?;
            }
            "clear one" => {
                let mut other = turn.message().with_id("n");
                message.push("draft").await?;
                other.push("kept").await?;
                message.clear().await?;
                message.push("final").await?;
            }
            "parts" => {
                turn.update(SessionUpdate::AgentMessageChunk(chunk("m", "a"))).await?;
                let part = chunk("m", "b").meta(Meta::from_iter([("key", 1)]));
                turn.update(SessionUpdate::AgentMessageChunk(part)).await?;
                turn.update(SessionUpdate::AgentMessageChunk(chunk("m", "c"))).await?;
                turn.update(SessionUpdate::AgentMessageChunk(chunk("m", image(1)))).await?;
                turn.update(SessionUpdate::AgentMessageChunk(chunk("m", "d"))).await?;
            }
            "too large" => {
                message.push("a").await?;
                message.push(image(4000)).await?;
                message.push("b").await?;
                let finished = message.finish().await;
                let _ = self.0.send(finished.is_err().to_string());
            }
            "renamed" => {
                for number in 0..1025 {
                    let id = MessageId::from(number.to_string());
                    turn.update(SessionUpdate::agent_message_clear(Some(id))).await?;
                }
                for id in ["1024", "1023"] {
                    turn.update(SessionUpdate::AgentMessageChunk(chunk(id, "new"))).await?;
                }
                turn.update(SessionUpdate::agent_message_clear(Some("1023".into()))).await?;
                turn.update(SessionUpdate::AgentMessageChunk(chunk("1023", "newer"))).await?;
            }
            "full" => self.full(turn).await?,
            other => panic!("{other}"),
        }
        Ok(StopReason::EndTurn)
    }
}

impl Writer {
    /// Every step waits for space, and a step whose future is dropped was not made.
    async fn full(&self, turn: &Turn) -> Result<()> {
        let ends = turn.tool_call("Ends").id("ends").start().await?;
        let fails = turn.tool_call("Fails").id("fails").start().await?;
        let mut filler = turn.thought().with_id("filler");
        while let Some(pushed) = filler.push("x".repeat(1000)).now_or_never() {
            pushed?;
        }
        let mut message = turn.message();
        assert!(message.push("never").now_or_never().is_none());
        assert!(message.finish().now_or_never().is_none());
        assert!(ends.complete().now_or_never().is_none());
        assert!(fails.fail("never").now_or_never().is_none());
        assert!(turn.tool_call("Never").start().now_or_never().is_none());
        assert!(turn.mode_changed("never").now_or_never().is_none());
        let ended = ToolCallUpdate::new("ends").status(ToolCallStatus::Completed);
        assert!(turn.session().update(ended).now_or_never().is_none());
        // An update is encoded before it waits, so one that is too long does not wait.
        let long = || SessionUpdate::agent_message("never".repeat(10_000));
        let failed = [turn.update(long()).now_or_never(), turn.session().update(long()).now_or_never()];
        for failed in failed {
            let failed = failed.map(|failed| failed.expect_err("too long").to_string());
            assert!(failed.as_ref().is_some_and(|error| error.contains("frame_bytes")), "{failed:?}");
        }
        let _ = self.0.send("full".into());
        turn.mode_changed("later").await
    }
}

struct Client {
    peer: ScriptedPeer,
    session: String,
    reports: mpsc::UnboundedReceiver<String>,
}

async fn client_of(policy: ClearPolicy, can_clear: bool, limits: Limits) -> Client {
    let (sender, reports) = mpsc::unbounded_channel();
    let (transport, mut peer) = Wire::Memory.scripted();
    tokio::spawn(Server::new(Writer(sender)).clear_policy(policy).limits(limits).serve(transport));
    peer.initialize(json!({"_meta": {"duologue": {"messageClear": can_clear}}})).await;
    let session = peer.new_session().await;
    Client { peer, session, reports }
}

/// Returns the updates of a turn: the id, the kind and the content. An id of the library is `*`, and `**` is another
/// one than the last.
async fn updates(policy: ClearPolicy, can_clear: bool, text: &str) -> Vec<String> {
    let mut client = client_of(policy, can_clear, Limits::default()).await;
    let prompt = client.peer.prompt(&client.session, text).await;
    let (mut updates, mut last) = (Vec::new(), Value::Null);
    loop {
        let message = client.peer.next_message().await;
        if message["id"] == prompt {
            return updates;
        }
        let update = &message["params"]["update"];
        let id = update["messageId"].as_str().expect("an id");
        let shown = match id.len() {
            36 if last.is_null() || last == id => "*",
            36 => "**",
            _ => id,
        };
        let kind = update["sessionUpdate"].as_str().expect("a kind").trim_start_matches("agent_");
        let content = &update["content"];
        let content = content["text"].as_str().map(str::trim).or(content["type"].as_str()).unwrap_or("");
        let meta = if update["_meta"].is_null() { "" } else { " +meta" };
        updates.push(format!("{shown} {kind} {content}{meta}"));
        if id.len() == 36 {
            last = json!(id);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_clear_removes_what_was_written() {
    in_time(async {
        let sent = ["m message_chunk a", "m message_clear ", "m message_chunk b"];
        for (policy, can_clear) in
            [(ClearPolicy::Separator, true), (ClearPolicy::Hold, true), (ClearPolicy::Always, false)]
        {
            assert_eq!(updates(policy, can_clear, "clear").await, sent, "{policy:?}");
        }
        let separated = ["m message_chunk a", "m message_chunk ---", "* message_chunk b"];
        assert_eq!(updates(ClearPolicy::Separator, false, "clear").await, separated);
        assert_eq!(updates(ClearPolicy::Hold, false, "clear").await, ["m message_chunk b"]);
        let thought = ["t thought_chunk hm", "t thought_clear ", "t thought_chunk oh"];
        assert_eq!(updates(ClearPolicy::Separator, true, "thought").await, thought);
        let thought = ["t thought_chunk hm", "t thought_chunk ---", "* thought_chunk oh"];
        assert_eq!(updates(ClearPolicy::Separator, false, "thought").await, thought);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_set_sends_what_is_missing() {
    in_time(async {
        assert_eq!(
            updates(ClearPolicy::Separator, true, "set").await,
            [
                "m message_chunk one",
                "m message_chunk two",
                "m message_clear ",
                "m message_chunk three",
                "m message_chunk four",
                "m message_chunk image",
                "m message_clear ",
                "m message_chunk three four",
                "m message_chunk five",
            ]
        );
        assert_eq!(
            updates(ClearPolicy::Separator, false, "set").await,
            [
                "m message_chunk one",
                "m message_chunk two",
                "m message_chunk ---",
                "* message_chunk three",
                "* message_chunk four",
                "* message_chunk image",
                "* message_chunk ---",
                "** message_chunk three four",
                "* message_chunk five",
            ]
        );
        assert_eq!(updates(ClearPolicy::Hold, false, "set").await, ["m message_chunk three four five"]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_held_message_is_finished_or_cleared_alone() {
    in_time(async {
        assert_eq!(
            updates(ClearPolicy::Hold, false, "finish").await,
            ["m message_chunk first message", "n message_chunk second message", "t thought_chunk between"]
        );
        assert_eq!(
            updates(ClearPolicy::Hold, false, "clear one").await,
            ["n message_chunk kept", "m message_chunk final"]
        );
    })
    .await;
}

/// A `_meta` begins another chunk of the buffered message and belongs to its first block.
#[tokio::test(start_paused = true)]
async fn a_held_chunk_with_a_meta_stays_apart() {
    in_time(async {
        assert_eq!(
            updates(ClearPolicy::Hold, false, "parts").await,
            ["m message_chunk a", "m message_chunk bc +meta", "m message_chunk image", "m message_chunk d"]
        );
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_held_block_that_cannot_be_sent_does_not_stop_the_others() {
    in_time(async {
        let mut limits = Limits::default();
        limits.frame_bytes = 2000;
        let mut client = client_of(ClearPolicy::Hold, false, limits).await;
        let prompt = client.peer.prompt(&client.session, "too large").await;
        for text in ["a", "b"] {
            let update = client.peer.expect("session/update").await;
            assert_eq!(update["params"]["update"]["content"]["text"], text);
        }
        assert_eq!(client.peer.next_message().await["id"], prompt);
        assert_eq!(client.reports.recv().await.as_deref(), Some("true"), "the error is returned");
    })
    .await;
}

/// The new ids of messages that were cleared with a separator are bounded.
#[tokio::test(start_paused = true)]
async fn the_renamed_messages_of_a_turn_are_bounded() {
    in_time(async {
        let updates = updates(ClearPolicy::Separator, false, "renamed").await;
        let rules: Vec<_> = (0..1025).map(|number| format!("{number} message_chunk ---")).collect();
        assert_eq!(updates[..1025], rules);
        assert_eq!(
            updates[1025..],
            [
                "1024 message_chunk new",
                "* message_chunk new",
                "* message_chunk ---",
                "** message_chunk newer"
            ]
        );
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_sent_by_a_step_that_was_dropped_while_it_waited() {
    in_time(async {
        let mut limits = Limits::default();
        limits.output_bytes = 32 * 1024;
        limits.frame_bytes = 16 * 1024;
        let mut client = client_of(ClearPolicy::Separator, false, limits).await;
        let prompt = client.peer.prompt(&client.session, "full").await;
        // Nothing is read before the output is full.
        assert_eq!(client.reports.recv().await.as_deref(), Some("full"));
        let mut kinds = Vec::new();
        loop {
            let message = client.peer.next_message().await;
            if message["id"] == prompt {
                break;
            }
            let update = &message["params"]["update"];
            assert!(!update.to_string().to_lowercase().contains("never"), "{update}");
            if update["messageId"] != "filler" {
                kinds.push(format!("{} {}", update["toolCallId"], update["status"]));
                if update["sessionUpdate"] == "current_mode_update" {
                    assert_eq!(update["currentModeId"], "later");
                }
            }
        }
        let expected = [
            r#""ends" "in_progress""#,
            r#""fails" "in_progress""#,
            "null null",
            r#""ends" "failed""#,
            r#""fails" "failed""#,
        ];
        assert_eq!(kinds, expected, "the end of the turn fails the calls that are open");
    })
    .await;
}
