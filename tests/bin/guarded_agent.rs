//! An agent on our own SDK whose handler does the steps of the prompt, one word each, some of them
//! for ever. `one` as the first argument gives it a runtime of one thread, `free` leaves the process alone.
//! It is recorded if a second one names a file.
#![allow(clippy::print_stdout, reason = "that it does no harm is what is tested")]

use std::process::{Command, Stdio};
use std::time::Duration;

use duologue_agent::{
    Agent, Context, Error, Prompt, Result, Server, Session, SessionSetup, StopReason, Turn, rpc,
};
use duologue_transcript::{Recorder, Side};

struct Guarded;

impl Agent for Guarded {
    /// Does what the folder's name says, for clients that cannot wait for a session.
    async fn new_session(&self, _: &Context, session: &Session) -> Result<SessionSetup> {
        match session.cwd().to_str() {
            Some("/sleep") => sleep(),
            Some("/blocking") => tokio::task::spawn_blocking(sleep).await.map_err(Error::other)?,
            Some("/await") => std::future::pending().await,
            Some("/print") => drop(print()?),
            _ => {}
        }
        Ok(SessionSetup::default())
    }

    async fn prompt(&self, turn: &Turn, prompt: Prompt) -> Result<StopReason> {
        let mut message = turn.message();
        for step in prompt.text().split_whitespace() {
            let (step, number) = step.split_once(':').unwrap_or((step, "0"));
            let number: usize = number.parse().map_err(Error::other)?;
            // Earlier output leaves before this thread may get stuck.
            tokio::time::sleep(Duration::from_millis(5)).await;
            match step {
                "say" => {
                    for index in 0..number {
                        message.push(format!("{index} ")).await?;
                    }
                }
                // Some MB, or without end.
                "flood" => {
                    let text = "x".repeat(32 * 1024);
                    let mut left = if number == 0 { usize::MAX } else { number * 32 };
                    while left > 0 {
                        message.push(text.as_str()).await?;
                        left -= 1;
                    }
                }
                "sleep" => sleep(),
                "spin" => spin(),
                "blocking" => tokio::task::spawn_blocking(sleep).await.map_err(Error::other)?,
                "await" => std::future::pending().await,
                "cancelled" => turn.cancelled().await,
                "fail" => return Err(Error::invalid_params("as I was told")),
                "print" => message.push(print()?).await?,
                "fds" => message.push(child_fds()?).await?,
                _ => message.push(step).await?,
            }
        }
        Ok(StopReason::EndTurn)
    }
}

fn sleep() {
    loop {
        std::thread::sleep(Duration::from_secs(3600));
    }
}

#[expect(clippy::empty_loop, reason = "a handler that computes for ever")]
fn spin() {
    loop {}
}

/// Everything an agent had better not do with its stdin and stdout.
fn print() -> Result<String> {
    println!("printed");
    print!("{{\"jsonrpc\":");
    let said = Command::new("sh").args(["-c", "echo from a child; cat; exit 7"]).status()?;
    let eaten = Command::new("cat").stdin(Stdio::inherit()).output()?;
    let mut line = String::new();
    let read = std::io::stdin().read_line(&mut line)?;
    Ok(format!("{:?} {} {read}", said.code(), eaten.stdout.len()))
}

/// Returns the open descriptors of a child with inherited stdio.
fn child_fds() -> Result<String> {
    let mut child = Command::new("sleep").arg("60").spawn()?;
    // Until it is asleep: before that it is a copy of us, or opens its libraries.
    while !std::fs::read_to_string(format!("/proc/{}/stat", child.id()))?.contains("(sleep) S ") {
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut fds = Vec::new();
    for entry in std::fs::read_dir(format!("/proc/{}/fd", child.id()))? {
        let entry = entry?;
        let target = std::fs::read_link(entry.path())?;
        fds.push(format!("{}={}", entry.file_name().to_string_lossy(), target.display()));
    }
    child.kill()?;
    child.wait()?;
    fds.sort();
    Ok(fds.join(" "))
}

fn main() -> Result<()> {
    // Still in the buffer when the conversation begins.
    print!("half a line, before the conversation");
    let [flavor, recording] = [1, 2].map(|index| std::env::args().nth(index));
    let mut server = Server::new(Guarded);
    if let Some(path) = recording {
        // The connection has the only handle.
        server = server.tap(Recorder::create(path).map_err(Error::other)?.tap(Side::Agent));
    }
    let mut runtime = match flavor.as_deref() {
        Some("one") => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    runtime.enable_all().build()?.block_on(async {
        match flavor.as_deref() {
            Some("free") => server.serve(rpc::Stdio::take()?.transport).await,
            _ => server.serve_stdio().await,
        }
    })
}
