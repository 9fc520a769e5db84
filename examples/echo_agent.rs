//! The smallest agent: it echoes the prompt.

use duologue_agent::schema::Implementation;
use duologue_agent::{Agent, Prompt, Result, StopReason, Turn, serve_stdio};

struct Echo;

impl Agent for Echo {
    fn info(&self) -> Option<Implementation> {
        Some(Implementation::new("echo-agent", env!("CARGO_PKG_VERSION")).title("Echo"))
    }

    async fn prompt(&self, turn: &Turn, prompt: Prompt) -> Result<StopReason> {
        turn.message().push(prompt.text()).await?;
        Ok(StopReason::EndTurn)
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    serve_stdio(Echo).await
}
