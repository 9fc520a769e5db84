//! Scenarios of words: messages, thoughts, and taking them back.

use std::time::Duration;

use duologue_agent::Result;
use duologue_agent::schema::{MessageClear, SessionUpdate};

use super::scene::Scene;

pub(super) async fn hello(scene: &Scene<'_>) -> Result<()> {
    scene.think("Somebody is there. What do they want to hear?").await?;
    let mut message = scene.message();
    scene.stream(&mut message, "This is a draft. It comes word by word, and will be taken back.").await?;
    scene.wait(scene.pace * 20).await;
    scene.clear(&mut message).await?;
    let answer = "Hello! I am the mock agent: no model, the same words every time. \
                  Prompt me with `tools`, `plan` or `permission`, or with `help` for all I can do.";
    scene.stream(&mut message, answer).await
}

pub(super) async fn clear(scene: &Scene<'_>) -> Result<()> {
    let mut thought = scene.thought();
    scene.stream(&mut thought, "A thought nobody will see.").await?;
    scene.clear(&mut thought).await?;
    scene.stream(&mut thought, "A better thought.").await?;

    // Ids make it clear what is meant, even of a message that is not the last one.
    let mut first = scene.message();
    scene.stream(&mut first, "The first message, before.").await?;
    scene.say("The second message.").await?;
    scene.clear(&mut first).await?;
    scene.stream(&mut first, "The first message, after.").await?;

    // Nothing comes in its place.
    let mut vanishing = scene.message();
    scene.stream(&mut vanishing, "This message becomes empty and stays so.").await?;
    scene.clear(&mut vanishing).await?;

    if !scene.turn.client().capabilities().has_message_clear() {
        return scene.say("This client cannot clear, so the rest is left out.").await;
    }
    // Without an id the current message is meant, also past a tool call.
    scene.update(SessionUpdate::agent_message("No id, and wrong.")).await?;
    scene.tool_call("Something in between").start().await?.complete().await?;
    scene.update(SessionUpdate::agent_message_clear(None)).await?;
    scene.update(SessionUpdate::agent_message("No id, and right.")).await?;
    scene.update(SessionUpdate::agent_thought("No id either.")).await?;
    scene.update(SessionUpdate::AgentThoughtClear(MessageClear::new())).await?;
    // Nobody knows this one: nothing may happen.
    scene.update(SessionUpdate::agent_message_clear(Some("message-of-nobody".into()))).await
}

pub(super) async fn thoughts(scene: &Scene<'_>) -> Result<()> {
    scene.think("First I think.").await?;
    scene.say("Then I speak.").await?;
    scene.think("I think again,\nin two lines.").await?;
    scene.say("And speak again.").await
}

pub(super) async fn markdown(scene: &Scene<'_>) -> Result<()> {
    scene
        .say(
            "# A heading\n\nA paragraph with *emphasis*, **strong words**, `code` and a \
             [link](https://agentclientprotocol.com).\n\n- one\n- two\n  - two and a half\n\n\
             1. first\n2. second\n\n> a quotation\n\n```rust\nfn main() {\n    println!(\"hello\");\n}\n```\n\n\
             | column | another |\n| --- | --- |\n| cell | cell |\n\n---\n\n<b>HTML</b>, and the end.",
        )
        .await
}

pub(super) async fn unicode(scene: &Scene<'_>) -> Result<()> {
    scene
        .say(
            "Wide: 終端機の幅は二つ分です。 Combining: e\u{301} n\u{303} a\u{30a}. \
             Emoji: 🙂 👩‍👩‍👧‍👦 🇩🇪 ❤\u{fe0f} 👍🏽. Hebrew: שלום. Arabic: سلام. \
             A tab:\there. Windows lines:\r\nhere. Zero: [\u{0}].",
        )
        .await
}

pub(super) async fn slow(scene: &Scene<'_>) -> Result<()> {
    let mut message = scene.message();
    for word in "This takes ten seconds, and you can stop me. ".split_inclusive(' ') {
        scene.wait(Duration::from_secs(1)).await;
        message.push(word).await?;
    }
    message.push("Done.").await
}

pub(super) async fn long(scene: &Scene<'_>) -> Result<()> {
    let mut message = scene.message();
    for line in 1..=300 {
        if line % 10 == 0 {
            scene.pause().await;
        }
        message.push(format!("Line {line} of three hundred.\n")).await?;
    }
    scene.clear(&mut message).await?;
    scene.stream(&mut message, "Three hundred lines were said and taken back.").await
}
