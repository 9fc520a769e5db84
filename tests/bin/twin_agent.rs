//! An agent that answers envelopes, and says what the same questions to its client come to.

use duologue_agent::{Agent, Error, Exchange, Prompt, Result, Server, StopReason, Turn};

#[path = "../envelopes/tour.rs"]
mod tour;

use tour::Twin;

struct Traveller(Twin);

impl Agent for Traveller {
    async fn prompt(&self, turn: &Turn, prompt: Prompt) -> Result<StopReason> {
        let said = match prompt.text().as_ref() {
            "heard" => self.0.0.lock().unwrap().join("\n"),
            _ => tour::tour(&turn.peer_agent()).await.map_err(Error::other)?,
        };
        turn.message().push(said).await?;
        Ok(StopReason::EndTurn)
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let twin = Twin::default();
    let exchange = Exchange::new().agent_id("a1").correspondent(twin.clone());
    Server::new(Traveller(twin)).exchange(exchange).serve_stdio().await
}
