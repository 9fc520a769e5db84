//! The runner: plays every workload with every pair, in turns, and writes the page.

pub(crate) mod machine;
pub mod pairs;
pub mod play;
pub mod plot;
pub mod remote;
pub mod stats;
pub mod table;
pub mod targets;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::command_line::CommandLine;
use crate::workloads::{WORKLOADS, Workload};
use pairs::{BenchSubject, OURS, Pair, Peers};
use play::BenchRun;
use table::{Results, TableRow};

type Result<T, E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

/// The heading of the last section of `BENCHMARKS.md`, which has the output of `cargo xtask bench hub`.
pub(crate) const HUB_SECTION: &str = "\n## Load of a hub\n";

/// Rounds that each pair plays of each workload.
const ROUNDS: usize = 5;
/// The same in a smoke run.
const QUICK_ROUNDS: usize = 2;
/// Mixed pairs play in so many of the rounds: they are there to tell one half from the other.
const MIXED_ROUNDS: usize = 3;

/// The arguments from `cargo xtask bench`: `[--rust FOLDER] [--ts FOLDER NODE] [--python FOLDER PYTHON] [--page FOLDER]
/// -- ARG..`, the last of which are the user's. Over a network the folder of Rust programs is another one.
#[derive(Debug, Default)]
struct RunnerArgs {
    peers: Peers,
    /// The folder that the page is written to.
    page: Option<PathBuf>,
    args: Vec<String>,
}

impl RunnerArgs {
    fn read(mut args: impl Iterator<Item = String>) -> Result<Self> {
        let mut parsed = RunnerArgs::default();
        while let Some(arg) = args.next() {
            let mut path = || args.next().map(PathBuf::from).ok_or_else(|| format!("{arg} needs a path"));
            match arg.as_str() {
                "--rust" => parsed.peers.rust = Some(path()?),
                "--ts" => parsed.peers.ts = Some((path()?, path()?)),
                "--python" => parsed.peers.python = Some((path()?, path()?)),
                "--page" => parsed.page = Some(path()?),
                "--" => break,
                _ => {
                    return Err(
                        format!("{arg} is not for this program; `cargo xtask bench` starts it").into()
                    );
                }
            }
        }
        parsed.args = args.collect();
        Ok(parsed)
    }
}

/// Does what the command line asks for.
///
/// # Errors
///
/// When a program fails or data was lost.
#[expect(clippy::print_stdout, reason = "this is the program's output")]
pub fn main() -> Result<()> {
    let args = RunnerArgs::read(std::env::args().skip(1))?;
    let options = CommandLine::read(&args.args)?;
    // The programs stand beside this one.
    let bin = std::env::current_exe()?;
    let bin = bin.parent().ok_or("this program is nowhere")?;
    let head = machine::lines(&args.peers, &args.args).join("\n");
    println!("{head}\n");
    if options.remote {
        return remote::main(bin, &args.peers, &options, &head, args.page.as_deref());
    }
    let subjects = pairs::subjects(bin, &args.peers);
    let mut workloads = options.workloads.clone();
    if workloads.is_empty() {
        workloads.extend(WORKLOADS);
    }
    let mut all = Vec::new();
    for workload in workloads {
        let begun = Instant::now();
        let results = measure(workload, &subjects, bin, &options)?;
        println!("{}\n{:.0} s\n", table::section(&results), begun.elapsed().as_secs_f64());
        all.push(results);
    }
    if options.quick {
        println!("Played small and few times: not to be compared with BENCHMARKS.md.");
        return Ok(());
    }
    let targets = targets::section(&targets::judge(&all));
    println!("{targets}");
    if let Some(folder) = args.page {
        let sections: Vec<String> = all.iter().map(table::section).collect();
        let file = folder.join("BENCHMARKS.md");
        // The figures of a hub are measured by another command.
        let earlier = std::fs::read_to_string(&file).unwrap_or_default();
        let hub = earlier.find(HUB_SECTION).and_then(|place| earlier.get(place..)).unwrap_or_default();
        std::fs::write(file, page(&head, &targets, &sections) + hub)?;
        std::fs::write(folder.join("BENCHMARKS.svg"), plot::svg(&all))?;
    }
    Ok(())
}

fn page(head: &str, targets: &str, sections: &[String]) -> String {
    format!(
        "# Benchmarks\n\n`cargo xtask bench` writes this page. The documentation of \
         [`crates/bench`](crates/bench/src/lib.rs) explains it, and\n[RFD 0010](rfds/0010-the-benchmark.md) gives the \
         reasons.\n\n{head}\n\n![how many times as slow as duologue each SDK is, by \
         workload](BENCHMARKS.svg)\n\n{targets}\n{}",
        sections.join("\n")
    )
}

/// Plays one workload with all pairs: in turns, every second round from the last to the first, so that what else the
/// machine does meets all of them alike.
fn measure(
    workload: &Workload,
    subjects: &[BenchSubject],
    bin: &Path,
    options: &CommandLine,
) -> Result<Results> {
    let mut pairs = pairs::own(subjects);
    pairs.retain(|pair| workload.floor || pair.kind != Some(pairs::PairKind::Floor));
    if workload.recorded {
        pairs.extend(pairs::recorded(subjects));
    }
    if workload.stages {
        pairs.extend(pairs::with_stages(subjects));
    }
    let own = pairs.len();
    if workload.mixed && !options.quick {
        pairs.extend(pairs::mixed(subjects));
    }
    let play = if options.quick { &workload.quick } else { &workload.play };
    let rounds = options.rounds.unwrap_or(if options.quick { QUICK_ROUNDS } else { ROUNDS });
    let mut runs: BTreeMap<usize, Vec<BenchRun>> = BTreeMap::new();
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
    let mut rows: Vec<TableRow> = Vec::new();
    for (place, pair) in pairs.into_iter().enumerate() {
        let mut figures = stats::figures(workload, messages, runs.get(&place).map_or(&[], Vec::as_slice));
        if pair.name == OURS {
            let counted = play::play(&pairs::counting(bin), play, workload.pinned)?;
            figures.allocations = stats::allocations(messages, &counted);
        }
        rows.push(TableRow { name: pair.name, kind: pair.kind, figures });
    }
    // The page says what was played.
    Ok(Results { workload: Workload { play: *play, ..*workload }, small: options.quick, rows })
}
