//! An agent and a client in one program: the agent streams a draft, clears it, and streams the answer in its place.
#![allow(clippy::print_stdout, reason = "this program is a client: its stdout is the user's")]

use std::io::{IsTerminal as _, Write as _, stdout};
use std::time::Duration;

use duologue_agent::{Agent, MessageWriter, Prompt, StopReason, Turn, serve};
use duologue_client::schema::printable;
use duologue_client::{Client, SessionUpdate, Transport};

struct Drafter;

impl Agent for Drafter {
    async fn prompt(&self, turn: &Turn, prompt: Prompt) -> duologue_agent::Result<StopReason> {
        let mut message = turn.message();
        stream(&mut message, "Let me think about this for a moment …").await?;
        message.clear().await?;
        stream(&mut message, &format!("You said “{}”, and so do I.", prompt.text())).await?;
        Ok(StopReason::EndTurn)
    }
}

/// Sends the words one by one, as a model does.
async fn stream(message: &mut MessageWriter, text: &str) -> duologue_agent::Result<()> {
    for word in text.split_inclusive(' ') {
        message.push(word).await?;
        tokio::time::sleep(Duration::from_millis(60)).await;
    }
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (ours, theirs) = Transport::memory();
    tokio::spawn(serve(Drafter, theirs));

    let client = Client::new(()).connect(ours).await?;
    let session = client.new_session(std::env::current_dir()?).await?;
    let mut turn = session.prompt("hello").await?;
    while let Some(update) = turn.next().await {
        match update? {
            SessionUpdate::AgentMessageClear(_) if stdout().is_terminal() => print!("\r\x1b[2K"),
            SessionUpdate::AgentMessageClear(_) => println!(" [cleared]"),
            update => print!("{}", printable(&update.to_string())),
        }
        stdout().flush()?;
    }
    println!("\n[{}]", turn.outcome().await?.stop_reason.as_str());
    Ok(())
}
