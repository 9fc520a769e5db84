//! The benchmark over a network: the official SDKs' pairs, the way through `duologue connect` and `duologue serve`, and many
//! connections at once.

mod page;
mod programs;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::time::Instant;

use super::Result;
use super::pairs::{Pair, Peers};
use super::play::{BenchRun, load, play};
use super::stats::median;
use crate::command_line::CommandLine;
use crate::play::Play;
use crate::remote::load::Load;
use programs::{RemoteHop, RemoteSubject};

/// The page.
const PAGE: &str = "BENCHMARKS-REMOTE.md";
/// Rounds of all plays.
const ROUNDS: usize = 3;
/// The syncs whose duration is measured.
const SYNCS: usize = 100;

/// The transports, with the schemes of their addresses.
const TRANSPORTS: [(&str, &str); 2] = [("WebSocket", "ws"), ("HTTP with SSE", "http")];

/// The sizes of the plays.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    prompts: Play,
    stream: Play,
    modes: Play,
    /// Prompts through the log, each of which waits for the disk.
    synced: Play,
    /// The updates of the turn through the log.
    logged: Play,
    idle: Load,
    readers: [Load; 2],
}

impl Sizes {
    fn of(is_quick: bool) -> Self {
        let size = |full: usize, quick: usize| if is_quick { quick } else { full };
        let (sessions, count) = (size(1_000, 50), size(300, 100));
        let readers = |slow| Load::Readers { sessions, slow, count, bytes: 1024 };
        Sizes {
            prompts: Play::Prompts { count: size(3_000, 100) },
            stream: Play::Stream { count: size(50_000, 1_000), bytes: 40 },
            modes: Play::Modes { count: size(3_000, 50) },
            synced: Play::Prompts { count: size(500, 20) },
            logged: Play::Stream { count: size(200_000, 2_000), bytes: 40 },
            idle: Load::Idle { connections: size(10_000, 200) },
            readers: [readers(0), readers(sessions / 10)],
        }
    }
}

/// All runs, by transport, name and play.
#[derive(Debug, Default)]
struct Runs(BTreeMap<(usize, String, String), Vec<BenchRun>>);

impl Runs {
    fn add(&mut self, transport: usize, name: &str, words: &[String], run: BenchRun) {
        self.0.entry((transport, name.to_owned(), words.join(" "))).or_default().push(run);
    }

    /// Returns the median of a value of the runs.
    fn of(
        &self,
        transport: usize,
        name: &str,
        words: &[String],
        value: impl Fn(&BenchRun) -> Option<f64>,
    ) -> Option<f64> {
        let runs = self.0.get(&(transport, name.to_owned(), words.join(" ")))?;
        median(runs.iter().filter_map(value).collect())
    }
}

/// Plays everything and writes the page into a folder.
#[expect(clippy::print_stdout, clippy::print_stderr, reason = "this is the program's output")]
pub(super) fn main(
    bin: &Path,
    peers: &Peers,
    options: &CommandLine,
    head: &str,
    folder: Option<&Path>,
) -> Result<()> {
    let sizes = Sizes::of(options.quick);
    let rounds = options.rounds.unwrap_or(if options.quick { 1 } else { ROUNDS });
    let subjects = programs::subjects(bin, peers);
    let hops = programs::hops();
    let mut runs = Runs::default();
    for round in 0..rounds {
        let begun = Instant::now();
        for transport in 0..TRANSPORTS.len() {
            let mut order: Vec<&RemoteSubject> = subjects.iter().collect();
            let mut hop_order: Vec<&RemoteHop> = hops.iter().collect();
            if round % 2 == 1 {
                order.reverse();
                hop_order.reverse();
            }
            for subject in order {
                pairs_of(subject, transport, &sizes, &mut runs)?;
            }
            for hop in hop_order {
                plays_of_hop(bin, hop, transport, &sizes, &mut runs)?;
            }
        }
        for subject in &subjects {
            loads_of(bin, subject, &sizes, &mut runs)?;
        }
        eprintln!("round {} of {rounds}: {:.0} s", round + 1, begun.elapsed().as_secs_f64());
    }
    let sync = sync_duration()?;
    let text = page::text(head, &sizes, &subjects, &hops, &runs, sync, rounds);
    println!("{text}");
    if options.quick {
        println!("Played small and few times: not to be compared with {PAGE}.");
    } else if let Some(folder) = folder {
        std::fs::write(folder.join(PAGE), text)?;
    }
    Ok(())
}

/// Plays the pair of one SDK.
fn pairs_of(subject: &RemoteSubject, transport: usize, sizes: &Sizes, runs: &mut Runs) -> Result<()> {
    let server = subject.start()?;
    let url = server.url(TRANSPORTS[transport].1);
    let pair =
        Pair { name: subject.name.into(), kind: None, client: subject.client.clone(), agent: vec![url] };
    for each in [&sizes.prompts, &sizes.stream] {
        runs.add(transport, subject.name, &each.words(), play(&pair, each, false)?);
    }
    Ok(())
}

/// Plays the chain of programs up to one hop.
fn plays_of_hop(bin: &Path, hop: &RemoteHop, transport: usize, sizes: &Sizes, runs: &mut Runs) -> Result<()> {
    let started = hop.start(bin, TRANSPORTS[transport].1)?;
    for each in [&sizes.modes, &sizes.synced, &sizes.logged] {
        runs.add(transport, hop.name, &each.words(), play(&started.pair, each, false)?);
    }
    Ok(())
}

/// Puts the loads on the server of one SDK. A server of another SDK may not survive them.
#[expect(clippy::print_stderr, reason = "this is the program's output")]
fn loads_of(bin: &Path, subject: &RemoteSubject, sizes: &Sizes, runs: &mut Runs) -> Result<()> {
    for each in [sizes.idle, sizes.readers[0], sizes.readers[1]] {
        let server = subject.start()?;
        match load(&bin.join("bench-load"), each, &server.url("ws")) {
            Ok(run) => runs.add(0, subject.name, &each.words(), run),
            Err(error) if subject.is_ours => return Err(error),
            Err(error) => eprintln!("{}: {error}", subject.name),
        }
    }
    Ok(())
}

/// Returns the median duration of writing a small record and syncing it, in µs.
fn sync_duration() -> Result<f64> {
    let folder = tempfile::tempdir()?;
    let mut file = std::fs::File::create(folder.path().join("record"))?;
    let mut took = Vec::new();
    for _ in 0..SYNCS {
        let begun = Instant::now();
        file.write_all(&[b'x'; 256])?;
        file.sync_data()?;
        took.push(begun.elapsed().as_secs_f64() * 1e6);
    }
    Ok(median(took).unwrap_or_default())
}
