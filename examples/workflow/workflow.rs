//! A workflow: one agent specifies, another validates and sends it back once. Both are processes that take
//! work orders over stdio; what they propose is written into a temporary project.
//!
//! `workflow` runs it all. It starts its agents as `workflow specify` and `workflow validate`: any other
//! program that does work orders would do.
#![allow(clippy::print_stdout, reason = "this program is a client: its stdout is the user's")]

mod agents;
mod steps;

use std::path::Path;

use duologue_agent::{Exchange, Server};
use duologue_client::exchange::work::{RunEnd, Worker};
use duologue_client::schema::printable;
use duologue_client::{Client, Command, Connection};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    match std::env::args().nth(1).as_deref() {
        Some("specify") => agent(agents::specify).await?,
        Some("validate") => agent(agents::validate).await?,
        _ => run().await?,
    }
    Ok(())
}

/// The `main` of an agent.
async fn agent(worker: impl Worker) -> duologue_agent::Result<()> {
    Server::new(agents::OnlyOrders).exchange(Exchange::new().work(worker)).serve_stdio().await
}

async fn run() -> Result<(), Box<dyn std::error::Error>> {
    let project = tempfile::tempdir()?;
    steps::prepare(project.path())?;
    let specifier = start("specify", project.path()).await?;
    let validator = start("validate", project.path()).await?;

    let workflow = steps::workflow(specifier.peer_agent(), validator.peer_agent(), project.path())
        .on_step(|done| {
            let (action, iteration, output) = (&done.action, done.iteration, &done.output);
            show(&format!("{action}, iteration {iteration}: {} [{}]", output.summary, output.recommendation));
            output.notes.iter().for_each(|note| show(&format!("  noted {note}")));
            done.written.iter().for_each(|path| show(&format!("  wrote {}", path.display())));
        })
        .on_escalate(|run| println!("a person has to decide: {:?}", run.end));
    let run = workflow.run(steps::context(), steps::paths()).await?;

    if run.end == RunEnd::Finished {
        show(&format!("\n{}", std::fs::read_to_string(project.path().join("features/login/spec.md"))?));
    }
    specifier.close().await;
    validator.close().await;
    Ok(())
}

/// Says what the agents say, and nothing to the terminal.
fn show(text: &str) {
    println!("{}", printable(text));
}

/// Starts this program as one of its agents, where the project is: orders hold paths, not contents.
async fn start(role: &str, project: &Path) -> Result<Connection, Box<dyn std::error::Error>> {
    let command = Command::new(std::env::current_exe()?).arg(role).cwd(project);
    Ok(Client::new(()).spawn(command).await?)
}
