//! An agent that answers envelopes and listens in dialogues, and says what the same questions to its client
//! come to.

use duologue_agent::{Agent, Error, Exchange, Prompt, Result, Server, StopReason, Turn};

#[path = "../it/exchange_dialogue/walkthrough.rs"]
mod talk;
#[path = "../it/envelopes/walkthrough.rs"]
mod walkthrough;

use talk::Listener;
use walkthrough::Twin;

struct Traveller(Twin, Listener);

impl Agent for Traveller {
    async fn prompt(&self, turn: &Turn, prompt: Prompt) -> Result<StopReason> {
        let peer = turn.peer_agent();
        let said = match prompt.text().as_ref() {
            "heard" => self.0.0.lock().unwrap().join("\n"),
            "listened" => self.1.heard(),
            "talk" => talk::walkthrough(&peer, talk::CLIENT).await.map_err(Error::other)?,
            _ => walkthrough::walkthrough(&peer).await.map_err(Error::other)?,
        };
        turn.message().push(said).await?;
        Ok(StopReason::EndTurn)
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let (twin, listener) = (Twin::default(), Listener::default());
    let dialogues = listener.dialogues(talk::AGENT);
    let exchange = Exchange::new().agent_id("a1").envelope_handler(twin.clone()).dialogue(dialogues);
    Server::new(Traveller(twin, listener)).exchange(exchange).serve_stdio().await
}
