//! The client's half: scenarios in which a client program is under test, and the agent does not behave.

mod control;
mod ends;
mod leaks;
mod lines;
mod memory;
mod scale;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use duologue_test_support::at_most;
use duologue_tests::Result;
use duologue_tests::process::{ObservedProcess, TOO_LARGE_KIB, mib};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::harness;

/// Marks the processes of a run, so that those left behind can be found.
const MARK: &str = "DUOLOGUE_RELIABILITY_RUN";

/// A run of a client under test, from its start to its end.
pub(crate) struct ClientRun {
    /// The lines of its output.
    pub(crate) lines: Vec<Value>,
    /// The most memory it had.
    pub(crate) peak_kib: u64,
    pub(crate) took: Duration,
    /// Why it was ended by us, if it was.
    pub(crate) given_up: Option<String>,
    /// Processes that lived on after it had ended by itself.
    pub(crate) left: usize,
}

impl ClientRun {
    /// Plays a scenario against an agent, to its end or for as long as `limit`.
    pub(crate) fn of(scenario: &[&str], agent: &Command, limit: Duration) -> Result<Self> {
        let mut client = harness::client();
        client.args(scenario).arg("--").arg(agent.get_program()).args(agent.get_args());
        ClientRun::of_program(&mut client, limit)
    }

    /// [`of`](Self::of) for a command line that is complete.
    pub(crate) fn of_program(client: &mut Command, limit: Duration) -> Result<Self> {
        static RUNS: AtomicU64 = AtomicU64::new(0);
        let mark = format!("{}-{}", std::process::id(), RUNS.fetch_add(1, Relaxed));
        let begun = Instant::now();
        let limit = at_most(limit);
        let mut process = ObservedProcess::start(client.env(MARK, &mark))?;
        let stdout = process.stdout()?;
        let (sender, said) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(std::result::Result::ok) {
                let _ = sender.send(line);
            }
        });
        let (mut lines, mut given_up) = (Vec::new(), None);
        loop {
            match said.recv_timeout(Duration::from_millis(10)) {
                Ok(line) => lines.push(serde_json::from_str(&line).unwrap_or(Value::String(line))),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {}
            }
            if begun.elapsed() > limit {
                given_up = Some(format!("not done in {} s, ended", limit.as_secs()));
                break;
            }
            if process.memory_kib() > TOO_LARGE_KIB {
                given_up = Some(format!("over {}, ended", mib(TOO_LARGE_KIB)));
                break;
            }
        }
        if given_up.is_none() && process.wait(Duration::from_secs(5))?.is_none() {
            given_up = Some("said all, but did not end".to_owned());
        }
        let (peak_kib, took) = (process.peak_kib(), begun.elapsed());
        drop(process);
        // Terminated processes need a moment.
        let left = (0..20).map(|_| marked(&mark)).find(|left| {
            let gone = left.is_empty();
            std::thread::sleep(Duration::from_millis(if gone { 0 } else { 50 }));
            gone
        });
        let left = if left.is_some() { Vec::new() } else { marked(&mark) };
        for pid in left.iter().filter_map(|&pid| Pid::from_raw(pid)) {
            let _ = kill_process(pid, Signal::KILL);
        }
        let left = if given_up.is_some() { 0 } else { left.len() };
        Ok(ClientRun { lines, peak_kib, took, given_up, left })
    }

    /// Returns the last value it printed under this name.
    pub(crate) fn printed(&self, name: &str) -> Option<&Value> {
        self.lines.iter().rev().find_map(|line| line.get(name))
    }

    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        self.printed(name)?.as_u64()
    }

    /// Its memory when the first session was there.
    pub(crate) fn idle_kib(&self) -> u64 {
        let ready = self.lines.iter().find(|line| line["ready"] == true);
        ready.and_then(|line| line["kib"].as_u64()).unwrap_or_default()
    }

    /// Returns the peak memory above that value.
    pub(crate) fn growth_kib(&self) -> u64 {
        self.peak_kib.saturating_sub(self.idle_kib())
    }

    /// Describes the end of the turn, or the reason for its absence.
    pub(crate) fn end(&self) -> String {
        let text = |name| self.printed(name).and_then(Value::as_str).map(ToOwned::to_owned);
        let end = self.given_up.clone().or_else(|| text("error")).or_else(|| text("stop"));
        let end = end.unwrap_or_else(|| "said nothing".to_owned());
        end.lines().next().unwrap_or_default().chars().take(80).collect()
    }
}

/// The processes that carry this mark.
fn marked(mark: &str) -> Vec<i32> {
    let mark = format!("{MARK}={mark}");
    let carries = |pid: &i32| {
        let environ = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environ.split(|&byte| byte == 0).any(|variable| variable == mark.as_bytes())
    };
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    all.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(carries).collect()
}

/// A command that starts the raw agent, and the file where it says what it saw.
fn raw_agent(name: &str) -> (Command, PathBuf) {
    let log = harness::scratch().join(format!("{name}.jsonl"));
    let _ = fs::remove_file(&log);
    let mut agent = Command::new(env!("CARGO_BIN_EXE_raw-agent"));
    agent.arg(&log);
    (agent, log)
}

/// Reads the log of the raw agent.
fn log_of(log: &PathBuf) -> Result<Vec<Value>> {
    let text = fs::read_to_string(log).map_err(|error| format!("{}: {error}", log.display()))?;
    Ok(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
}

/// A command behind a line of shell that has it as `"$@"`.
fn wrapped(script: &str, command: &Command) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", script, "sh"]).arg(command.get_program()).args(command.get_args());
    shell
}
