//! R30: garbage, stalls, floods, cancels, kills and reconnects on our client in one process and our agent in another, the
//! two parts of `tests/bin/soak`. It takes one minute, which shows everything but a slow growth of memory, or as many as
//! `cargo xtask soak --minutes M [--seed N]` says.
//!
//! Both are looked at once a second. Every so often they let go of everything they have, and what they still hold then
//! is what the slopes are made of: a leak shows at rest, whatever the work in between was.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use duologue_tests::Result;
use duologue_tests::process::ObservedProcess;
use serde_json::Value;

use crate::harness::in_turn;

/// The share of the time that is not looked at: caches fill, the allocator finds its size.
const WARM_UP: f64 = 0.2;

/// Makes the C library return freed memory to the system. Otherwise the memory of a process is mostly
/// freed pages that the allocator keeps, which vary by more than a leak shows in an hour.
const GIVE_BACK: [(&str, &str); 3] =
    [("MALLOC_ARENA_MAX", "1"), ("MALLOC_MMAP_THRESHOLD_", "65536"), ("MALLOC_TRIM_THRESHOLD_", "65536")];

/// The largest slope that counts as flat, in MiB an hour.
const FLAT: f64 = 1.0;
/// A line through fewer points than this says nothing.
const RESTS: usize = 5;

/// The length and the seed of the run, if they are chosen.
const MINUTES: &str = "DUOLOGUE_MINUTES";
const SEED: &str = "DUOLOGUE_SEED";

/// Minutes of a quick run: enough to come to rest twice.
const QUICK: f64 = 1.0;

/// The judgement of the numbers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Flat,
    /// Something is left behind, or went wrong, or it never comes to rest.
    Grows,
    /// The run was too short to tell the one from the other.
    Unknown,
}

/// One of the two processes, and what is known of it.
struct Part {
    name: &'static str,
    process: ObservedProcess,
    reports: Receiver<Value>,
    /// Hours since the start and memory in MiB, once a second.
    samples: Vec<(f64, f64)>,
    /// The same at rest.
    rests: Vec<(f64, f64)>,
    /// Its resources at rest.
    resources: Vec<Value>,
}

impl Part {
    fn start(name: &'static str, seed: u64, seconds: u64) -> Result<Self> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_soak"));
        command.args([name, &seed.to_string(), &seconds.to_string()]).envs(GIVE_BACK);
        let mut process = ObservedProcess::start_with(&mut command, Stdio::inherit())?;
        let stdout = process.stdout()?;
        let (sender, reports) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(std::result::Result::ok) {
                let _ = sender.send(serde_json::from_str(&line).unwrap_or_default());
            }
        });
        Ok(Part { name, process, reports, samples: Vec::new(), rests: Vec::new(), resources: Vec::new() })
    }

    fn look(&mut self, hours: f64) {
        self.samples.push((hours, self.process.memory_kib() as f64 / 1024.0));
        for resources in self.reports.try_iter() {
            self.rests.push((hours, resources["kib"].as_f64().unwrap_or_default() / 1024.0));
            self.resources.push(resources);
        }
    }

    /// The numbers in a line, and what they tell. A `quick` run says nothing of a slope.
    fn verdict(&self, quick: bool) -> (String, Verdict) {
        let after_warm_up = |points: &[(f64, f64)]| {
            let skip = (points.len() as f64 * WARM_UP) as usize;
            points.iter().skip(skip).copied().collect::<Vec<_>>()
        };
        let rests = after_warm_up(&self.rests);
        let resources: Vec<_> = self.resources.iter().skip(self.resources.len() - rests.len()).collect();
        let [first, .., last] = resources[..] else {
            return (format!("{}: did not come to rest twice", self.name), Verdict::Grows);
        };
        let ((slope, error), (busy, _)) = (slope(&rests), slope(&after_warm_up(&self.samples)));
        let flat = |name: &str| first[name] == last[name];
        let well = ["descriptors", "threads", "tasks", "children"].iter().all(|name| flat(name))
            && last["panics"] == 0
            && last["hung"] == 0;
        let long = !quick && rests.len() >= RESTS;
        let verdict = if !well || (long && slope - error >= FLAT) {
            Verdict::Grows
        } else if long && slope + error < FLAT {
            Verdict::Flat
        } else {
            Verdict::Unknown
        };
        let span = |name: &str| format!("{name} {} to {}", first[name], last[name]);
        let spans = ["descriptors", "threads", "tasks", "children"].map(span).join(", ");
        let (from, to) = (rests.first().map_or(0.0, |rest| rest.1), rests.last().map_or(0.0, |rest| rest.1));
        let line = format!(
            "{}: {} visits, memory at rest {from:.1} to {to:.1} MiB, {slope:+.2} MiB/h (± {error:.2}; {busy:+.2} at work), {spans}, \
             panics {}, hung {}",
            self.name, last["visits"], last["panics"], last["hung"]
        );
        let line = match verdict {
            Verdict::Unknown if quick => format!("{line}; too short to judge the memory"),
            Verdict::Unknown => format!("{line}; {} rests cannot tell {FLAT} MiB/h", rests.len()),
            _ => line,
        };
        (line, verdict)
    }
}

/// Least squares: how much the second grows while the first grows by one, and how far off that may be.
fn slope(points: &[(f64, f64)]) -> (f64, f64) {
    let count = points.len().max(1) as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let covered: f64 = points.iter().map(|point| (point.0 - x) * (point.0 - x)).sum();
    let together: f64 = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum();
    if covered == 0.0 || count < 3.0 {
        return (0.0, f64::INFINITY);
    }
    let slope = together / covered;
    let off = |point: &(f64, f64)| (point.1 - y - slope * (point.0 - x)).powi(2);
    let error = (points.iter().map(off).sum::<f64>() / (count - 2.0) / covered).sqrt();
    (slope, error)
}

#[test]
fn r30_soak() -> Result<()> {
    let _guard = in_turn();
    let minutes = std::env::var(MINUTES).ok().map(|minutes| minutes.parse()).transpose()?;
    let seed = std::env::var(SEED).ok().map(|seed| seed.parse()).transpose()?;
    soak(minutes.unwrap_or(QUICK), minutes.is_none(), seed.unwrap_or_else(|| fastrand::u64(..)))
}

/// Runs both parts for some minutes. A `quick` run does not judge the memory.
#[expect(clippy::print_stdout, reason = "a run of hours shows its state")]
fn soak(minutes: f64, quick: bool, seed: u64) -> Result<()> {
    let seconds = (minutes * 60.0) as u64;
    println!("{minutes} minutes with {SEED}={seed}");
    let mut parts = [Part::start("client", seed, seconds)?, Part::start("agent", seed, seconds)?];
    let begun = Instant::now();
    let mut printed = 0;
    // A visit takes what it takes; who is not done long after that hangs.
    while parts.iter_mut().any(|part| part.process.wait(Duration::ZERO).is_ok_and(|end| end.is_none())) {
        if begun.elapsed() > Duration::from_secs(seconds + 120) {
            return Err(format!("not done in time, with {SEED}={seed}").into());
        }
        std::thread::sleep(Duration::from_secs(1));
        for part in &mut parts {
            part.look(begun.elapsed().as_secs_f64() / 3600.0);
        }
        let rests = parts.iter().map(|part| part.resources.len()).min().unwrap_or_default();
        if rests > printed {
            printed = rests;
            let line = parts.each_ref().map(|part| part.resources.last().cloned().unwrap_or_default());
            println!("{:6.0} s  client {}  agent {}", begun.elapsed().as_secs_f64(), line[0], line[1]);
        }
    }
    let mut verdicts = Vec::new();
    for part in &mut parts {
        let ended = part.process.wait(Duration::ZERO)?.is_some_and(|status| status.success());
        let (line, verdict) = part.verdict(quick);
        println!("measured: {line}");
        verdicts.push(if ended { verdict } else { Verdict::Grows });
    }
    if verdicts.contains(&Verdict::Grows) {
        return Err(format!("not flat, with {SEED}={seed}").into());
    }
    if verdicts.contains(&Verdict::Unknown) && !quick {
        return Err("cannot tell whether it is flat: it takes more minutes".into());
    }
    Ok(())
}
