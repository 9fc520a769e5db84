//! An agent that streams a draft, clears it, and streams the final text.
//!
//! A client without support for clearing sees the draft, a rule, and the final text.

use std::time::Duration;

use duologue_agent::schema::Implementation;
use duologue_agent::{Agent, MessageWriter, Prompt, Result, StopReason, Turn, serve_stdio};

struct Drafter;

impl Agent for Drafter {
    fn info(&self) -> Option<Implementation> {
        Some(Implementation::new("drafting-agent", env!("CARGO_PKG_VERSION")).title("Drafter"))
    }

    async fn prompt(&self, turn: &Turn, prompt: Prompt) -> Result<StopReason> {
        turn.thought().push("A first draft shows that I am at it.").await?;
        let mut message = turn.message();
        stream(&mut message, "Let me think about this for a moment …").await?;
        message.clear().await?;
        stream(&mut message, &format!("You said “{}”, and I mean it.", prompt.text())).await?;
        Ok(StopReason::EndTurn)
    }
}

async fn stream(message: &mut MessageWriter, text: &str) -> Result<()> {
    for word in text.split_inclusive(' ') {
        message.push(word).await?;
        tokio::time::sleep(Duration::from_millis(60)).await;
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<()> {
    serve_stdio(Drafter).await
}
