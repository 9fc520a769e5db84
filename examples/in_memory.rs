//! A test of an agent without a process: both ends of the conversation in one program.

use duologue_agent::schema::Implementation;
use duologue_agent::{Agent, Prompt, StopReason, Turn, serve};
use duologue_client::{Client, Transport};

struct Revising;

impl Agent for Revising {
    fn info(&self) -> Option<Implementation> {
        Some(Implementation::new("in-memory-agent", env!("CARGO_PKG_VERSION")).title("Revising"))
    }

    async fn prompt(&self, turn: &Turn, prompt: Prompt) -> duologue_agent::Result<StopReason> {
        let mut message = turn.message();
        message.push("Um, ").await?;
        message.clear().await?;
        message.push(prompt.text()).await?;
        Ok(StopReason::EndTurn)
    }
}

#[tokio::test]
async fn the_draft_is_gone_in_the_end() -> Result<(), Box<dyn std::error::Error>> {
    let (ours, theirs) = Transport::memory();
    let agent = tokio::spawn(serve(Revising, theirs));

    let client = Client::new(()).connect(ours).await?;
    let session = client.new_session("/tmp").await?;
    let reply = session.prompt("hello").await?.finish().await?;

    assert_eq!(reply.text, "hello");
    assert_eq!(*reply.stop_reason(), StopReason::EndTurn);

    client.close().await;
    agent.await??;
    Ok(())
}
