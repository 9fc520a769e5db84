//! One run of one pair: start the client, read its line, and let nothing count that lost data.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::Deserialize;

use super::Result;
use super::pairs::Pair;
use crate::play::Play;
use crate::remote::load::Load;

/// No run takes longer.
const LIMIT: Duration = Duration::from_secs(300);

/// The result of one run.
#[derive(Clone, Debug, Deserialize)]
pub struct BenchRun {
    messages: usize,
    bytes: usize,
    /// The duration.
    pub wall_ns: f64,
    /// The durations of the messages, where measured.
    #[serde(default)]
    pub latency_ns: Spread,
    /// The usage of the client's process before and after.
    #[serde(default)]
    pub client: Vec<ProcessUsage>,
    /// The agent's.
    #[serde(default)]
    pub agent: Vec<ProcessUsage>,
}

/// Durations in nanoseconds.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub struct Spread {
    /// The sum by the number.
    pub mean: f64,
    /// Half of them took no longer.
    pub p50: f64,
    /// 99 in 100 took no longer.
    pub p99: f64,
}

/// The usage of a process.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct ProcessUsage {
    /// User and system time.
    pub cpu_us: f64,
    /// Memory now.
    pub rss_kib: f64,
    /// The most it ever had.
    pub peak_kib: f64,
    /// Allocations, in programs that count them.
    pub allocations: Option<f64>,
}

/// Plays it once, on one core if both are to share it.
///
/// # Errors
///
/// When a program fails, is not done in five minutes, or messages or bytes are missing.
pub fn play(pair: &Pair, play: &Play, pinned: bool) -> Result<BenchRun> {
    run(&pair.name, client(pair, play.words())?, play.promises(), pinned)
}

/// Puts a load on a server once. `program` is the client with its arguments, `url` the address of the server.
///
/// # Errors
///
/// As [`play`].
pub fn load(program: &Path, load: Load, url: &str) -> Result<BenchRun> {
    let mut command = Command::new(program);
    command.args(load.words()).args(["--", url]);
    run(url, command, load.promises(), false)
}

fn client(pair: &Pair, words: Vec<String>) -> Result<Command> {
    let (program, args) = pair.client.split_first().ok_or("no program")?;
    let mut command = Command::new(program);
    command.args(args).args(words).arg("--").args(&pair.agent);
    Ok(command)
}

/// Runs a client, and compares the messages and bytes that arrived with the promised ones.
fn run(name: &str, command: Command, promised: (usize, usize), pinned: bool) -> Result<BenchRun> {
    let words: Vec<_> = command.get_args().map(|arg| arg.to_string_lossy().into_owned()).collect();
    let name = format!("{name}: {}", words.join(" "));
    let said = output(command, pinned).map_err(|error| format!("{name}: {error}"))?;
    let run: BenchRun = serde_json::from_str(&said).map_err(|error| format!("{name}: {error}: {said}"))?;
    let seen = (run.messages, run.bytes);
    if seen != promised {
        return Err(format!("{name}: {seen:?} messages and bytes arrived, {promised:?} were sent").into());
    }
    Ok(run)
}

fn output(mut command: Command, pinned: bool) -> Result<String> {
    command.env("PYTHONDONTWRITEBYTECODE", "1").stdin(Stdio::null()).stdout(Stdio::piped());
    // The child inherits where its parent's thread may run.
    let all = sched_getaffinity(None)?;
    if pinned {
        let mut one = CpuSet::new();
        one.set((0..CpuSet::MAX_CPU).rev().find(|cpu| all.is_set(*cpu)).ok_or("no core")?);
        sched_setaffinity(None, &one)?;
    }
    let child = command.spawn();
    sched_setaffinity(None, &all)?;
    let mut child = child?;
    let mut said = String::new();
    // One line, which fits the pipe: it can be read when the client is done.
    let begun = Instant::now();
    let status = loop {
        match child.try_wait()? {
            Some(status) => break status,
            None if begun.elapsed() > LIMIT => {
                child.kill()?;
                child.wait()?;
                return Err(format!("not done in {LIMIT:?}").into());
            }
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    child.stdout.take().ok_or("no stdout")?.read_to_string(&mut said)?;
    if status.success() { Ok(said) } else { Err(format!("the client ended with {status}").into()) }
}
