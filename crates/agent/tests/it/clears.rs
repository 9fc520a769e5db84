//! Chunks and clears that an agent sends as updates of its own, to clients with and without support for clears.

use duologue_agent::schema::{
    ContentChunk, Meta, PlanEntry, PlanEntryPriority, PlanEntryStatus, SessionUpdate,
};
use duologue_agent::{Agent, ClearPolicy, Prompt, Result, Server, StopReason, Turn};
use serde_json::{Value, json};

use duologue_test_support::{Wire, in_time};

struct Redrafter;

impl Agent for Redrafter {
    async fn prompt(&self, turn: &Turn, prompt: Prompt) -> Result<StopReason> {
        let say = |text: &str| SessionUpdate::agent_message(text);
        let clear = || SessionUpdate::agent_message_clear(None);
        match prompt.text().as_str() {
            "named" => {
                turn.update(say("one").with_message_id("m")).await?;
                turn.update(clear().with_message_id("m")).await?;
                turn.update(say("two").with_message_id("m")).await?;
                turn.update(say("other").with_message_id("n")).await?;
                turn.update(clear().with_message_id("m")).await?;
                turn.update(say("three").with_message_id("m")).await?;
            }
            "unnamed" => {
                turn.update(say("first")).await?;
                turn.set_plan(vec![PlanEntry::new("p", PlanEntryPriority::Low, PlanEntryStatus::Pending)])
                    .await?;
                turn.update(say("draft")).await?;
                turn.update(clear()).await?;
                turn.update(say("fi")).await?;
                turn.update(say("nal")).await?;
                turn.update(SessionUpdate::agent_thought("hm")).await?;
                let chunk = ContentChunk::new("meta").meta(Meta::from_iter([("key", 1)]));
                turn.update(SessionUpdate::AgentThoughtChunk(chunk)).await?;
            }
            // Between turns nothing can be buffered.
            _ => {
                turn.session().update(say("draft").with_message_id("m")).await?;
                turn.session().update(clear().with_message_id("m")).await?;
            }
        }
        Ok(StopReason::EndTurn)
    }
}

/// Returns the updates of a turn: the id as a number in order of appearance, and the text.
async fn updates(policy: ClearPolicy, supports: bool, text: &str) -> Vec<String> {
    let (transport, mut client) = Wire::Memory.scripted();
    tokio::spawn(Server::new(Redrafter).clear_policy(policy).serve(transport));
    client.initialize(json!({"_meta": {"duologue": {"messageClear": supports}}})).await;
    let session = client.new_session().await;
    let prompt = client.prompt(&session, text).await;
    let (mut updates, mut ids) = (Vec::new(), Vec::new());
    loop {
        let message = client.next_message().await;
        if message["id"] == prompt {
            return updates;
        }
        let update = &message["params"]["update"];
        let id = match &update["messageId"] {
            Value::Null => "-".to_owned(),
            id => {
                let known = ids.iter().position(|known| known == id);
                known
                    .unwrap_or_else(|| {
                        ids.push(id.clone());
                        ids.len() - 1
                    })
                    .to_string()
            }
        };
        let kind = update["sessionUpdate"].as_str().expect("a kind").trim_start_matches("agent_");
        let text = update["content"]["text"].as_str().unwrap_or_default().trim();
        let meta = if update["_meta"].is_null() { "" } else { " +meta" };
        updates.push(format!("{id} {kind} {text}{meta}"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_clear_in_an_update_follows_the_policy() {
    in_time(async {
        let named =
            ["0 message_chunk one", "0 message_clear ", "0 message_chunk two", "1 message_chunk other"];
        let supported = [&named[..], &["0 message_clear ", "0 message_chunk three"]].concat();
        for policy in [ClearPolicy::Separator, ClearPolicy::Hold] {
            assert_eq!(updates(policy, true, "named").await, supported, "{policy:?}");
        }
        assert_eq!(updates(ClearPolicy::Always, false, "named").await, supported);
        assert_eq!(
            updates(ClearPolicy::Separator, false, "named").await,
            [
                "0 message_chunk one",
                "0 message_chunk ---",
                "1 message_chunk two",
                "2 message_chunk other",
                "1 message_chunk ---",
                "3 message_chunk three"
            ]
        );
        assert_eq!(
            updates(ClearPolicy::Hold, false, "named").await,
            ["0 message_chunk other", "1 message_chunk three"]
        );
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_clear_without_an_id_clears_the_current_message() {
    in_time(async {
        assert_eq!(
            updates(ClearPolicy::Separator, false, "unnamed").await,
            [
                "- message_chunk first",
                "- plan ",
                "- message_chunk draft",
                "- message_chunk ---",
                "- message_chunk fi",
                "- message_chunk nal",
                "- thought_chunk hm",
                "- thought_chunk meta +meta"
            ]
        );
        assert_eq!(
            updates(ClearPolicy::Hold, false, "unnamed").await,
            [
                "- plan ",
                "0 message_chunk first",
                "1 message_chunk final",
                "2 thought_chunk hm",
                "2 thought_chunk meta +meta"
            ]
        );
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_clear_between_turns_is_a_separator() {
    in_time(async {
        let separated = ["0 message_chunk draft", "0 message_chunk ---"];
        for policy in [ClearPolicy::Separator, ClearPolicy::Hold] {
            assert_eq!(updates(policy, false, "between").await, separated, "{policy:?}");
        }
        let cleared = ["0 message_chunk draft", "0 message_clear "];
        assert_eq!(updates(ClearPolicy::Separator, true, "between").await, cleared);
    })
    .await;
}
