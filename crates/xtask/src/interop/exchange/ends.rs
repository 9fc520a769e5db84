//! The two programs on our side.

use super::{answers, walkthrough};
use crate::interop::Result;
use duologue_agent::{Agent, Prompt, Server, StopReason, Turn};
use duologue_client::{Client, Command};

/// Sends its requests in a turn.
struct Prompted;

impl Agent for Prompted {
    async fn prompt(&self, turn: &Turn, _prompt: Prompt) -> duologue_agent::Result<StopReason> {
        let report = std::env::var("INTEROP_AGENT_REPORT").unwrap_or_default();
        walkthrough::run(&turn.peer_agent(), &report)
            .await
            .map_err(|error| duologue_agent::Error::other(error.to_string()))?;
        Ok(StopReason::EndTurn)
    }
}

/// Our agent.
#[tokio::main]
pub(crate) async fn agent() -> Result<()> {
    Ok(Server::new(Prompted).exchange(answers::exchange()?).serve_stdio().await?)
}

/// Runs our client with the agent of this command. It sends requests, and then prompts the agent to send some.
#[tokio::main]
pub(crate) async fn client(command: &[String]) -> Result<()> {
    let [program, args @ ..] = command else { return Ok(()) };
    let command = Command::new(program).args(args);
    let agent = Client::new(()).exchange(answers::exchange()?).spawn(command).await?;
    let session = agent.new_session(std::env::var("INTEROP_CWD")?).await?;
    walkthrough::run(&session.peer_agent(), &std::env::var("INTEROP_CLIENT_REPORT")?).await?;
    session.prompt("your turn").await?.finish().await?;
    agent.close().await;
    Ok(())
}
