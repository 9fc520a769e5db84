//! `duologue guard`: ends the agents of a server that was killed.
//!
//! The server starts this program and writes to its stdin `+ID` for each process group that it starts, and `-ID` for each that
//! has ended. The input ends when the server does, however it ends. The stdout is the locked file of the data folder, so that
//! the next server waits until the agents of this one have ended.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use duologue_conformance::is_group_alive;
use duologue_hub::{ProcessEvent, ProcessObserver};
use duologue_rpc::Lock as _;
use duologue_transcript::private_file::{no_links, private};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group};

use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::files::in_file;
use crate::{state_folder, ui};

/// The time that agents have to end after the end of their input, again after SIGTERM, and again after SIGKILL.
const PATIENCE: Duration = Duration::from_secs(2);
/// The time between two looks at the processes or the lock.
const POLL: Duration = Duration::from_millis(50);
/// The time that a start waits for the agents of an earlier server. It is longer than three times [`PATIENCE`].
const LOCK_PATIENCE: Duration = Duration::from_secs(10);
/// The time after which a start says that it waits. The lock of a server that has ended by itself is free earlier.
const LOCK_SILENCE: Duration = Duration::from_millis(500);

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
    for signal in [Some(Signal::TERM), Some(Signal::KILL), None] {
        let end = Instant::now() + PATIENCE;
        while !left.is_empty() && Instant::now() < end {
            left.retain(|id| is_group_alive(*id));
            std::thread::sleep(POLL);
        }
        if let Some(signal) = signal {
            left.iter().for_each(|id| _ = kill_process_group(*id, signal));
        }
    }
    Ok(Exit::Ok)
}

/// Waits for the agents of an earlier server with this data folder, and starts the program. The observer reports processes to it.
///
/// # Errors
///
/// If those agents do not end within [`LOCK_PATIENCE`], or if a server with this folder runs.
pub(crate) async fn start(folder: &Path) -> Result<ProcessObserver> {
    let lock = lock(folder, LOCK_PATIENCE).await?;
    let mut command = Command::new(std::env::current_exe()?);
    // The lock belongs to the open file. This process closes it, so it ends with the guard.
    command.arg("guard").stdin(Stdio::piped()).stdout(lock);
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

/// Locks the file of a data folder that a guard has locked as long as it runs.
async fn lock(folder: &Path, patience: Duration) -> Result<File> {
    let path = folder.join("guard");
    let failed = in_file(path.display());
    let file = no_links(private().create(true).write(true)).open(&path).map_err(&failed)?;
    let begin = tokio::time::Instant::now();
    let mut is_silent = true;
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK | Errno::INTR) => {}
            locked => {
                locked.map_err(|error| failed(error.into()))?;
                return Ok(file);
            }
        }
        let shown = folder.display();
        if state_folder::is_running(folder) {
            let state = "a server with this folder runs already; name another folder with --data";
            return Err(Error::Start(format!("{shown}: {state}")));
        }
        let waited = begin.elapsed();
        if waited >= patience {
            let limit = patience.as_secs();
            let state = format!(
                "another program uses this folder, or agents of an earlier one still run after {limit} seconds"
            );
            return Err(Error::Start(format!(
                "{shown}: {state}; name another folder with --data (`duologue attach` has one for each --id), or end them"
            )));
        }
        if is_silent && waited >= LOCK_SILENCE {
            is_silent = false;
            // If stderr is closed, nobody reads it.
            _ = writeln!(
                ui::stderr(),
                "{shown}: waiting until no other program and no agent of an earlier one uses this folder"
            );
        }
        tokio::time::sleep(POLL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_start_waits_for_a_guard_and_gives_up() {
        let folder = tempfile::tempdir().unwrap();
        let of_earlier = lock(folder.path(), Duration::ZERO).await.unwrap();
        let refused = lock(folder.path(), Duration::ZERO).await.unwrap_err().to_string();
        assert!(refused.contains("still run after 0 seconds; name another folder with --data"), "{refused}");
        // A server that listens is the reason, and not its agents.
        let listener =
            std::os::unix::net::UnixListener::bind(state_folder::socket_path(folder.path())).unwrap();
        let refused = lock(folder.path(), LOCK_PATIENCE).await.unwrap_err().to_string();
        assert!(refused.contains("runs already; name another folder"), "{refused}");
        drop(listener);
        let waiting = lock(folder.path(), LOCK_PATIENCE);
        let (locked, ()) = tokio::join!(waiting, async { drop(of_earlier) });
        locked.unwrap();
    }
}
