//! A one-shot client: starts an agent, asks one thing, streams the answer to the terminal.
//!
//! `one-shot [AGENT [ARG…]]`; without an agent it starts the drafting agent beside it.
#![allow(clippy::print_stdout, reason = "this program is a client: its stdout is the user's")]

use std::io::{IsTerminal, Write, stdout};

use duologue_client::schema::{Implementation, printable};
use duologue_client::{Client, Command, Result, SessionUpdate};

#[tokio::main]
async fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let agent = match args.next() {
        Some(program) => Command::new(program).args(args),
        None => Command::new(std::env::current_exe().unwrap_or_default().with_file_name("drafting-agent")),
    };
    let agent =
        Client::new(()).info(Implementation::new("one-shot", env!("CARGO_PKG_VERSION"))).spawn(agent).await?;
    let session = agent.new_session(std::env::current_dir().unwrap_or_default()).await?;

    let mut turn = session.prompt("hello").await?;
    while let Some(update) = turn.next().await {
        match update? {
            SessionUpdate::AgentMessageClear(_) => clear(),
            update => print!("{}", printable(&update.to_string())),
        }
        let _ = stdout().flush();
    }
    println!("\n[{}]", printable(turn.outcome().await?.stop_reason.as_str()));

    agent.close().await;
    Ok(())
}

/// Takes the line back on a terminal, and says so where that is impossible.
fn clear() {
    if stdout().is_terminal() { print!("\r\x1b[2K") } else { println!(" [cleared]") }
}
