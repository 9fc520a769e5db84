//! The agent that the reliability scenarios put under test, on our own SDK. Its twin on the official SDK, the
//! `subject-agent` of `crates/xtask/interop/rust`, does the same; the first word of the prompt says what.
#![allow(clippy::print_stdout, reason = "that it does no harm is what is tested")]

use std::process::Command;
use std::time::Duration;

use duologue_agent::schema::{RequestPermissionOutcome, ToolCallUpdate};
use duologue_agent::{
    Agent, Context, Error, PermissionOption, PermissionOptionKind, Prompt, Result, Session, SessionSetup,
    StopReason, Turn, serve_stdio,
};

struct Subject;

impl Agent for Subject {
    async fn new_session(&self, _: &Context, session: &Session) -> Result<SessionSetup> {
        assert!(!session.cwd().ends_with("panic"), "as I was told");
        Ok(SessionSetup::default())
    }

    async fn prompt(&self, turn: &Turn, prompt: Prompt) -> Result<StopReason> {
        let text = prompt.text();
        let (word, rest) = text.split_once(' ').unwrap_or((&text, ""));
        let mut message = turn.message();
        match word {
            "flood" => {
                let (count, bytes) = rest.split_once(' ').unwrap_or((rest, "1"));
                let chunk = "x".repeat(number(bytes)?);
                for index in 0..number(count)? {
                    message.push(format!("{index} {chunk}")).await?;
                }
            }
            "read" => message.push(turn.read_text_file(rest).await?.len().to_string()).await?,
            "ask" => {
                let options = vec![PermissionOption::new("yes", "Yes", PermissionOptionKind::AllowOnce)];
                match turn.request_permission(ToolCallUpdate::new("call"), options).await? {
                    RequestPermissionOutcome::Cancelled => return Ok(StopReason::Cancelled),
                    outcome => message.push(format!("{outcome:?}")).await?,
                }
            }
            "panic" => panic!("as I was told"),
            "panic-task" => turn.session().client().peer().spawn(async { panic!("as I was told") }),
            "print" => print()?,
            "stuck" => loop {
                std::thread::sleep(Duration::from_secs(3600));
            },
            "hang" => {
                turn.cancelled().await;
                return Ok(StopReason::Cancelled);
            }
            "sleep" => tokio::time::sleep(Duration::from_millis(number(rest)? as u64)).await,
            _ => message.push(rest).await?,
        }
        Ok(StopReason::EndTurn)
    }
}

fn number(text: &str) -> Result<usize> {
    text.trim().parse().map_err(Error::other)
}

fn print() -> Result<()> {
    println!("debugging output");
    print!("and half a line");
    Command::new("sh").args(["-c", "echo from a child"]).status()?;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<()> {
    serve_stdio(Subject).await
}
