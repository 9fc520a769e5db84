//! A picture from another agent: find an agent that paints, give it the task, read its output while it works, and
//! save the image of its result.
//!
//! `picture [FILE]` starts two agents, `picture painter` and `picture calendar`: any other programs that speak
//! envelopes would do.
#![allow(clippy::print_stdout, reason = "this program is a client: its stdout is the user's")]

mod painter;

use duologue_agent::schema::Implementation;
use duologue_agent::{Agent, Exchange, Prompt, Server, StopReason, Turn};
use duologue_client::exchange::envelope::{Directory, EnvelopeHandler};
use duologue_client::schema::printable;
use duologue_client::{Client, Command};

type Failure = Box<dyn std::error::Error>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    match std::env::args().nth(1).as_deref() {
        Some("painter") => agent(painter::Painter).await?,
        Some("calendar") => agent(painter::Calendar).await?,
        file => run(file).await?,
    }
    Ok(())
}

/// The `main` of an agent.
async fn agent(handler: impl EnvelopeHandler) -> duologue_agent::Result<()> {
    Server::new(OnlyEnvelopes).exchange(Exchange::new().envelope_handler(handler)).serve_stdio().await
}

async fn run(file: Option<&str>) -> Result<(), Failure> {
    let (mut agents, mut connections) = (Directory::new(), Vec::new());
    for name in ["calendar", "painter"] {
        let connection = Client::new(()).spawn(Command::new(std::env::current_exe()?).arg(name)).await?;
        let session = connection.new_session(std::env::temp_dir()).await?;
        agents.add(session.peer_agent().clone());
        connections.push((connection, session));
    }

    let painters = agents.who_handles("art.pictures").await;
    let painter = painters.first().ok_or("no agent paints")?;
    let card = painter.discover().await?;
    println!("{} paints {}", printable(&card.agent_name), printable(&card.mime_types.join(", ")));

    let task = painter.delegate("Paint a sunset").context([("width", 4), ("height", 3)]).await?;
    let mut output = task.output();
    while let Some(chunk) = output.next().await {
        println!("{}", printable(&chunk?.text().unwrap_or_default()));
    }
    let result = task.result().await?;
    println!("{}", printable(&result.outcome));
    for image in &result.attachments {
        let bytes = image.bytes()?;
        println!("{}: {} bytes", printable(&image.mime_type), bytes.len());
        // The name of the attachment is the agent's: the user chooses the file.
        if let Some(file) = file {
            std::fs::write(file, &bytes)?;
        }
    }
    for (connection, session) in connections {
        drop(session);
        connection.close().await;
    }
    Ok(())
}

/// An agent for other agents: it has sessions, and no prompts.
struct OnlyEnvelopes;

impl Agent for OnlyEnvelopes {
    fn info(&self) -> Option<Implementation> {
        Some(Implementation::new("painter", env!("CARGO_PKG_VERSION")).title("Painter"))
    }

    async fn prompt(&self, _: &Turn, _: Prompt) -> duologue_agent::Result<StopReason> {
        Ok(StopReason::Refusal)
    }
}
