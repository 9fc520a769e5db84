//! The runner: plays every workload with every pair, in turns, and writes the page.

mod machine;
pub mod pairs;
pub mod play;
pub mod plot;
pub mod stats;
pub mod table;
pub mod targets;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::workloads::{WORKLOADS, Workload};
use pairs::{OURS, Pair, Peers, Subject};
use play::Run;
use table::{Results, Row};

type Result<T, E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

/// How often each pair plays each workload.
const ROUNDS: usize = 5;
/// How often in a smoke run.
const QUICK_ROUNDS: usize = 2;
/// Mixed pairs play in so many of the rounds: they are there to tell one half from the other.
const MIXED_ROUNDS: usize = 3;

/// What the command line asks for: `[--quick] [--rounds N] [--rust FOLDER] [--ts FOLDER NODE] [--python FOLDER PYTHON]
/// [--page FOLDER] [WORKLOAD..]`.
#[derive(Debug, Default)]
struct Asked {
    quick: bool,
    rounds: Option<usize>,
    peers: Peers,
    /// Where the page is written.
    page: Option<PathBuf>,
    workloads: Vec<Workload>,
}

impl Asked {
    fn read(args: impl Iterator<Item = String>) -> Result<Self> {
        let (mut asked, mut args) = (Asked::default(), args);
        while let Some(arg) = args.next() {
            let mut path = || args.next().map(PathBuf::from).ok_or_else(|| format!("{arg} needs a path"));
            match arg.as_str() {
                "--quick" => asked.quick = true,
                "--rounds" => asked.rounds = Some(args.next().ok_or("--rounds needs a number")?.parse()?),
                "--rust" => asked.peers.rust = Some(path()?),
                "--ts" => asked.peers.ts = Some((path()?, path()?)),
                "--python" => asked.peers.python = Some((path()?, path()?)),
                "--page" => asked.page = Some(path()?),
                name => {
                    let workload = WORKLOADS.iter().find(|workload| workload.name == name);
                    let all: Vec<_> = WORKLOADS.iter().map(|workload| workload.name).collect();
                    let none = || format!("there is no workload `{name}`; there are {}", all.join(", "));
                    asked.workloads.push(*workload.ok_or_else(none)?);
                }
            }
        }
        Ok(asked)
    }
}

/// Does what the command line asks for. The page is written only when all workloads were played at full size.
///
/// # Errors
///
/// When a program fails or data was lost.
#[expect(clippy::print_stdout, reason = "this is the program's output")]
pub fn main() -> Result<()> {
    let asked = Asked::read(std::env::args().skip(1))?;
    // The programs stand beside this one.
    let bin = std::env::current_exe()?;
    let bin = bin.parent().ok_or("this program is nowhere")?;
    let head = machine::lines(&asked.peers);
    let subjects = pairs::subjects(bin, &asked.peers);
    let workloads = if asked.workloads.is_empty() { &WORKLOADS[..] } else { &asked.workloads };
    let mut all = Vec::new();
    for workload in workloads {
        let begun = Instant::now();
        let results = measure(workload, &subjects, bin, &asked)?;
        println!("{}\n{:.0} s\n", table::section(&results), begun.elapsed().as_secs_f64());
        all.push(results);
    }
    let judged = targets::judge(&all);
    if !asked.quick {
        println!("{}", targets::section(&judged));
    }
    if let (Some(folder), false, true) = (&asked.page, asked.quick, asked.workloads.is_empty()) {
        let sections: Vec<String> = all.iter().map(table::section).collect();
        std::fs::write(folder.join("BENCHMARKS.md"), page(&head, &targets::section(&judged), &sections))?;
        std::fs::write(folder.join("BENCHMARKS.svg"), plot::svg(&all))?;
    }
    Ok(())
}

fn page(head: &[String], targets: &str, sections: &[String]) -> String {
    let head: Vec<String> = head.iter().map(|line| format!("- {line}")).collect();
    format!(
        "# Benchmarks\n\nWritten by `cargo xtask bench`, which anybody can run; how to read it is in the documentation \
         of [`crates/bench`](crates/bench/src/lib.rs), why it is as it is in [RFD \
         0010](rfds/0010-the-benchmark.md).\n\n{}\n\n![how many times as slow as duologue each SDK is, by \
         workload](BENCHMARKS.svg)\n\n{targets}\n{}",
        head.join("\n"),
        sections.join("\n")
    )
}

/// Plays one workload with all pairs: in turns, every second round from the last to the first, so that what else the
/// machine does meets all of them alike.
fn measure(workload: &Workload, subjects: &[Subject], bin: &Path, asked: &Asked) -> Result<Results> {
    let mut pairs = pairs::own(subjects);
    pairs.retain(|pair| workload.floor || pair.kind != Some(pairs::Kind::Floor));
    let own = pairs.len();
    if workload.mixed && !asked.quick {
        pairs.extend(pairs::mixed(subjects));
    }
    let play = if asked.quick { &workload.quick } else { &workload.play };
    let rounds = asked.rounds.unwrap_or(if asked.quick { QUICK_ROUNDS } else { ROUNDS });
    let mut runs: BTreeMap<usize, Vec<Run>> = BTreeMap::new();
    for round in 0..rounds {
        let mut order: Vec<(usize, &Pair)> = pairs.iter().enumerate().collect();
        order.retain(|(place, _)| *place < own || round < MIXED_ROUNDS);
        if round % 2 == 1 {
            order.reverse();
        }
        for (place, pair) in order {
            runs.entry(place).or_default().push(play::play(pair, play, workload.pinned)?);
        }
    }
    let messages = play.promises().0 as f64;
    let mut rows: Vec<Row> = Vec::new();
    for (place, pair) in pairs.into_iter().enumerate() {
        let mut figures = stats::figures(workload, messages, runs.get(&place).map_or(&[], Vec::as_slice));
        if pair.name == OURS {
            let counted = play::play(&pairs::counting(bin), play, workload.pinned)?;
            figures.allocations = stats::allocations(messages, &counted);
        }
        rows.push(Row { name: pair.name, kind: pair.kind, figures });
    }
    // The page says what was played.
    Ok(Results { workload: Workload { play: *play, ..*workload }, rows })
}
