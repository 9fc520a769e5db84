//! An agent that follows the commands in its prompts, and misuses stdout in every way.
//!
//! `count N` sends N numbered updates, `print` writes to stdout in every way there is, `panic` and
//! `fail` do so, `hang` never ends by itself.
#![allow(clippy::print_stdout, reason = "that it does no harm is what is tested")]

use std::io::Write;
use std::process::{Command, Stdio};

use duologue_agent::{Agent, Error, Prompt, Result, StopReason, Turn, serve_stdio};

struct Obedient;

impl Agent for Obedient {
    async fn prompt(&self, turn: &Turn, prompt: Prompt) -> Result<StopReason> {
        let text = prompt.text();
        match text.split_once(' ').unwrap_or((&text, "")) {
            ("count", number) => count(turn, number.parse().map_err(Error::other)?).await?,
            ("print", _) => print_everything(turn).await?,
            ("panic", _) => panic!("as I was told"),
            ("fail", _) => return Err(Error::invalid_params("as I was told")),
            ("hang", _) => std::future::pending().await,
            _ => turn.message().push(text).await?,
        }
        Ok(StopReason::EndTurn)
    }
}

async fn count(turn: &Turn, number: usize) -> Result<()> {
    let mut message = turn.message();
    for index in 0..number {
        message.push(format!("{index} ")).await?;
    }
    Ok(())
}

/// Between two updates each, so that a stray byte would tear a frame.
async fn print_everything(turn: &Turn) -> Result<()> {
    let mut message = turn.message();
    for round in 0..50 {
        message.push(format!("{round} ")).await?;
        println!("debugging output {round}");
        print!("half a line, and then {{\"jsonrpc\":\"2.0\",\"method\":");
        std::io::stdout().write_all(b"\xff\xfe\n")?;
        std::io::stdout().flush()?;
    }
    // Both would write into the wire and read from it, if they had it.
    let status = Command::new("sh").args(["-c", "echo from a child; cat; echo eaten"]).status()?;
    message.push(format!("child {} ", status.success())).await?;
    let piped = Command::new("cat").stdin(Stdio::inherit()).output()?;
    message.push(format!("eaten {} ", piped.stdout.len())).await
}

#[tokio::main]
async fn main() -> Result<()> {
    println!("a banner before the conversation");
    print!("and half of another");
    serve_stdio(Obedient).await
}
