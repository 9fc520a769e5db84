//! A client on our own SDK that is killed, or counts what it leaves behind.
//!
//! `turn FRAME kill|stop PROMPT PROGRAM…` runs a turn and signals itself when that frame arrives;
//! `cycle COUNT PROGRAM…` starts and closes the program that often and prints its descriptors,
//! children, threads and KiB of memory after a warm-up and at the end; `environ PROGRAM…` prints what a program
//! with a clean environment sees; `orphan PROGRAM…` drops its runtime and prints how many children
//! it has a while later, zombies included.
#![allow(clippy::print_stdout, reason = "its output is its result")]

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use duologue_client::rpc::{Direction, Tap, TappedFrame};
use duologue_client::{Client, Command};
use rustix::process::{Signal, getpid, kill_process};

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

struct Doom {
    frame: usize,
    signal: Signal,
    seen: AtomicUsize,
}

impl Doom {
    fn strike(&self) {
        kill_process(getpid(), self.signal).expect("that is me");
    }
}

impl Tap for Doom {
    fn frame(&self, frame: TappedFrame<'_>) {
        if frame.direction == Direction::Incoming
            && self.seen.fetch_add(1, Ordering::SeqCst) + 1 == self.frame
        {
            self.strike();
        }
    }
}

async fn turn(frame: usize, signal: Signal, prompt: String, command: Command) -> Result {
    let doom = Arc::new(Doom { frame, signal, seen: AtomicUsize::new(0) });
    let starting = Client::new(()).tap(doom.clone()).spawn(command);
    if frame == 0 {
        let _ = tokio::time::timeout(Duration::from_millis(50), starting).await;
        doom.strike();
        return Ok(());
    }
    let agent = starting.await?;
    let session = agent.new_session("/").await?;
    let mut turn = session.prompt(prompt).await?;
    while let Some(update) = turn.next().await {
        update?;
    }
    turn.outcome().await?;
    std::future::pending().await
}

fn count(folder: &str) -> Result<usize> {
    Ok(std::fs::read_dir(folder)?.count())
}

/// Zombies count too.
fn children() -> Result<usize> {
    let mut children = 0;
    for thread in std::fs::read_dir("/proc/self/task")? {
        let list = std::fs::read_to_string(thread?.path().join("children"));
        children += list.unwrap_or_default().split_whitespace().count();
    }
    Ok(children)
}

/// Returns the resident memory of this process in KiB.
fn memory() -> Result<usize> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no size")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}

async fn cycle(rounds: usize, command: impl Fn() -> Command) -> Result {
    for round in 0..=rounds {
        if round == 10 || round == rounds {
            let counts = (count("/proc/self/fd")?, children()?, count("/proc/self/task")?);
            println!("{} {} {} {}", counts.0, counts.1, counts.2, memory()?);
        }
        let agent = Client::new(()).spawn(command()).await?;
        if round % 2 == 0 {
            agent.close().await;
        } else {
            drop(agent);
            // Nothing to wait on: that is what this half is about.
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    Ok(())
}

fn main() -> Result {
    let mut args = std::env::args().skip(1);
    let what = args.next().ok_or("too few arguments")?;
    let runtime = tokio::runtime::Runtime::new()?;
    if what != "orphan" {
        return runtime.block_on(run(&what, args));
    }
    let program = args.next().ok_or("too few arguments")?;
    let agent = runtime.block_on(Client::new(()).spawn(Command::new(program).args(args)))?;
    drop(runtime);
    // Without a runtime: nobody else collects what is left.
    std::thread::sleep(Duration::from_millis(500));
    println!("{}", children()?);
    drop(agent);
    Ok(())
}

async fn run(what: &str, mut args: std::iter::Skip<std::env::Args>) -> Result {
    let mut next = || args.next().ok_or("too few arguments");
    match what {
        "turn" => {
            let (frame, signal, prompt, program) = (next()?.parse()?, next()?, next()?, next()?);
            let signal = if signal == "stop" { Signal::STOP } else { Signal::KILL };
            turn(frame, signal, prompt, Command::new(program).args(args)).await
        }
        "cycle" => {
            let (count, program) = (next()?.parse()?, next()?);
            let rest: Vec<String> = args.collect();
            cycle(count, || Command::new(&program).args(&rest)).await
        }
        "environ" => {
            let program = next()?;
            let command = Command::new(program).args(args).env("EXPLICIT", "1").clean_env();
            let agent = Client::new(()).spawn(command).await?;
            let pid = agent.info().ok_or("no info")?.version.clone();
            let environ = std::fs::read_to_string(format!("/proc/{pid}/environ"))?;
            println!("{}", environ.replace('\0', "\n"));
            agent.close().await;
            Ok(())
        }
        other => Err(format!("{other} is nothing one can do").into()),
    }
}
