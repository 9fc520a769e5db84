//! Scenarios of text: messages, thoughts, and clearing them.

use std::time::Duration;

use duologue_agent::Result;
use duologue_agent::schema::{MessageClear, SessionUpdate};

use super::scenario_turn::ScenarioTurn;

pub(super) async fn hello(turn: &ScenarioTurn<'_>) -> Result<()> {
    turn.send_thought("Somebody is there. What do they want to hear?").await?;
    let mut message = turn.message();
    turn.stream(&mut message, "This is a draft. It comes word by word, and will be taken back.").await?;
    turn.wait(turn.pace * 20).await;
    turn.clear(&mut message).await?;
    let answer = "Hello! I am the mock agent: no model, the same words every time. \
                  Prompt me with `tools`, `plan` or `permission`, or with `help` for all I can do.";
    turn.stream(&mut message, answer).await
}

pub(super) async fn clear(turn: &ScenarioTurn<'_>) -> Result<()> {
    let mut thought = turn.thought();
    turn.stream(&mut thought, "A thought nobody will see.").await?;
    turn.clear(&mut thought).await?;
    turn.stream(&mut thought, "A better thought.").await?;

    // An id identifies a message, even one that is not the last.
    let mut first = turn.message();
    turn.stream(&mut first, "The first message, before.").await?;
    turn.send("The second message.").await?;
    turn.clear(&mut first).await?;
    turn.stream(&mut first, "The first message, after.").await?;

    // Nothing replaces the text.
    let mut vanishing = turn.message();
    turn.stream(&mut vanishing, "This message becomes empty and stays so.").await?;
    turn.clear(&mut vanishing).await?;

    if !turn.client().capabilities().has_message_clear() {
        return turn.send("This client cannot clear, so the rest is left out.").await;
    }
    // Without an id the clear applies to the current message, even after a tool call.
    turn.update(SessionUpdate::agent_message("No id, and wrong.")).await?;
    turn.tool_call("Something in between").start().await?.complete().await?;
    turn.update(SessionUpdate::agent_message_clear(None)).await?;
    turn.update(SessionUpdate::agent_message("No id, and right.")).await?;
    turn.update(SessionUpdate::agent_thought("No id either.")).await?;
    turn.update(SessionUpdate::AgentThoughtClear(MessageClear::new())).await?;
    // A clear of an unknown message has no effect.
    turn.update(SessionUpdate::agent_message_clear(Some("message-of-nobody".into()))).await
}

pub(super) async fn thoughts(turn: &ScenarioTurn<'_>) -> Result<()> {
    turn.send_thought("First I think.").await?;
    turn.send("Then I speak.").await?;
    turn.send_thought("I think again,\nin two lines.").await?;
    turn.send("And speak again.").await
}

pub(super) async fn markdown(turn: &ScenarioTurn<'_>) -> Result<()> {
    turn
        .send(
            "# A heading\n\nA paragraph with *emphasis*, **strong words**, `code` and a \
             [link](https://agentclientprotocol.com).\n\n- one\n- two\n  - two and a half\n\n\
             1. first\n2. second\n\n> a quotation\n\n```rust\nfn main() {\n    println!(\"hello\");\n}\n```\n\n\
             | column | another |\n| --- | --- |\n| cell | cell |\n\n---\n\n<b>HTML</b>, and the end.",
        )
        .await
}

pub(super) async fn unicode(turn: &ScenarioTurn<'_>) -> Result<()> {
    turn.send(
        "Wide: 終端機の幅は二つ分です。 Combining: e\u{301} n\u{303} a\u{30a}. \
             Emoji: 🙂 👩‍👩‍👧‍👦 🇩🇪 ❤\u{fe0f} 👍🏽. Hebrew: שלום. Arabic: سلام. \
             A tab:\there. Windows lines:\r\nhere. Zero: [\u{0}].",
    )
    .await
}

pub(super) async fn slow(turn: &ScenarioTurn<'_>) -> Result<()> {
    let mut message = turn.message();
    for word in "This takes ten seconds, and you can stop me. ".split_inclusive(' ') {
        turn.wait(Duration::from_secs(1)).await;
        message.push(word).await?;
    }
    message.push("Done.").await
}

pub(super) async fn long(turn: &ScenarioTurn<'_>) -> Result<()> {
    let mut message = turn.message();
    for line in 1..=300 {
        if line % 10 == 0 {
            turn.pause().await;
        }
        message.push(format!("Line {line} of three hundred.\n")).await?;
    }
    turn.clear(&mut message).await?;
    turn.stream(&mut message, "Three hundred lines were said and taken back.").await
}
