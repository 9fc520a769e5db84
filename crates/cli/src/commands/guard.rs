//! `duologue guard`: ends the agents of a server that was killed.
//!
//! The server starts this program and writes to its stdin `+ID` for each process group that it starts, and `-ID` for each that
//! has ended. The input ends when the server does, however it ends.

use std::collections::BTreeSet;
use std::io::{BufRead as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use duologue_hub::{ProcessEvent, ProcessObserver};
use duologue_rpc::Lock as _;
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};

use crate::error::Result;
use crate::exit::Exit;
use crate::ui;

/// The time that agents have to end after the end of their input, and again after SIGTERM.
const PATIENCE: Duration = Duration::from_secs(2);
/// The time between two looks at the processes.
const POLL: Duration = Duration::from_millis(50);

pub(crate) fn run() -> Result<Exit> {
    let mut groups = BTreeSet::new();
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let (sign, id) = line.split_at_checked(1).unwrap_or_default();
        // Zero and negative numbers have other meanings for the system, and 1 is its first process.
        match (sign, id.parse::<i32>()) {
            ("+", Ok(id @ 2..)) => _ = groups.insert(id),
            ("-", Ok(id)) => _ = groups.remove(&id),
            _ => {}
        }
    }
    let mut left: Vec<Pid> = groups.into_iter().filter_map(Pid::from_raw).collect();
    for signal in [Signal::TERM, Signal::KILL] {
        let end = Instant::now() + PATIENCE;
        while !left.is_empty() && Instant::now() < end {
            left.retain(|id| test_kill_process_group(*id).is_ok());
            std::thread::sleep(POLL);
        }
        for id in &left {
            let _ = kill_process_group(*id, signal);
        }
    }
    Ok(Exit::Ok)
}

/// Starts the program. The observer reports processes to it.
pub(crate) fn start() -> Result<ProcessObserver> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("guard").stdin(Stdio::piped()).stdout(Stdio::null());
    // A signal from the keyboard is for the server.
    let mut child = command.process_group(0).spawn()?;
    let input: Mutex<Option<ChildStdin>> = Mutex::new(child.stdin.take());
    Ok(ProcessObserver::new(move |event| {
        let line = match event {
            ProcessEvent::Started(id) => format!("+{id}\n"),
            ProcessEvent::Ended(id) => format!("-{id}\n"),
            _ => return,
        };
        let mut input = input.lock_unpoisoned();
        let written = input.as_mut().map(|input| input.write_all(line.as_bytes()));
        if let Some(Err(error)) = written {
            let text = "agents are left if this server is killed: the program that ends them is gone";
            let _ = writeln!(ui::stderr(), "{text}: {error}");
            *input = None;
        }
    }))
}
