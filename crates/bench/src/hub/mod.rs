//! Load figures of a hub and its store, for `cargo xtask bench hub`.
//!
//! [`store`] measures the queue of a store in this process, [`bare`] the same work on plain SQLite, and [`served`] the program
//! `duologue serve` over its REST interface. Each figure is the median of the rounds. This is no test: it judges nothing.

pub mod bare;
pub mod served;
pub mod store;

use std::fmt::Write as _;
use std::path::Path;

use crate::command_line::CommandLine;
use crate::runner::pairs::Peers;
use crate::runner::stats::median;
use crate::runner::table::number;
use crate::runner::{HUB_SECTION, machine};

/// The reason for which a measurement ended.
pub type HubFailure = Box<dyn std::error::Error + Send + Sync>;

/// Rounds of a whole run.
const ROUNDS: usize = 3;
/// Divides the sizes of a `--quick` run, which shows that the program works.
const QUICK_PART: usize = 50;

/// Measures everything and prints a table.
///
/// # Errors
///
/// If the store or the hub fails, or an argument is wrong.
#[expect(clippy::print_stdout, reason = "this is the program's output")]
pub fn main() -> Result<(), HubFailure> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let options = CommandLine::read(&args)?;
    let program = std::env::current_exe()?.with_file_name("duologue");
    let folder = tempfile::tempdir()?;
    let rounds = options.rounds.unwrap_or(if options.quick { 1 } else { ROUNDS });
    let part = if options.quick { QUICK_PART } else { 1 };
    println!("{HUB_SECTION}\n{}", machine::lines(&Peers::default(), &args).join("\n"));
    println!("- Disk: {}; the store is in WAL mode.", file_system(folder.path())?);
    println!("- Synced: `synchronous` is `full`, so a power cut loses nothing. Accepted: it is `normal`.");
    println!("- Rounds: {rounds}; each figure is their median.\n");

    let mut figures = LoadFigures::default();
    // The idle hubs start first, and wait while the store is measured.
    let hubs = (0..rounds).map(|round| served::MeasuredHub::start(&program, folder.path(), round));
    let hubs = hubs.collect::<Result<Vec<_>, _>>()?;
    served::first_requests(&hubs, &mut figures)?;
    store::measure(folder.path(), rounds, part, &mut figures)?;
    served::idle(&hubs, part, &mut figures)?;
    for hub in &hubs {
        served::measure(hub, part, &mut figures)?;
    }
    print!("{}", figures.table());
    if options.quick {
        println!("\nMeasured small and once: not to be compared with BENCHMARKS.md.");
    }
    Ok(())
}

/// Figures by their names, in the order of their first values.
#[derive(Debug, Default)]
pub struct LoadFigures(Vec<LoadFigure>);

#[derive(Debug)]
struct LoadFigure {
    name: String,
    unit: &'static str,
    values: Vec<f64>,
}

impl LoadFigures {
    /// Adds the value of a round.
    pub fn add(&mut self, name: impl Into<String>, unit: &'static str, value: f64) {
        let name = name.into();
        match self.0.iter_mut().find(|figure| figure.name == name) {
            Some(figure) => figure.values.push(value),
            None => self.0.push(LoadFigure { name, unit, values: vec![value] }),
        }
    }

    /// Returns a table in Markdown.
    #[must_use]
    pub fn table(&self) -> String {
        let mut table = "| figure | unit | median | lowest – highest |\n|---|---|---|---|\n".to_owned();
        for LoadFigure { name, unit, values } in &self.0 {
            let middle = number(median(values.clone()).unwrap_or(f64::NAN));
            let lowest = number(values.iter().copied().fold(f64::INFINITY, f64::min));
            let highest = number(values.iter().copied().fold(f64::NEG_INFINITY, f64::max));
            let _ = writeln!(table, "| {name} | {unit} | {middle} | {lowest} – {highest} |");
        }
        table
    }
}

/// Returns the file system of a folder and its device.
fn file_system(folder: &Path) -> Result<String, HubFailure> {
    let mounts = std::fs::read_to_string("/proc/mounts")?;
    let mounts = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ');
        let (device, place, kind) = (words.next()?, words.next()?, words.next()?);
        folder.starts_with(place).then(|| (place.len(), format!("{kind} on {device}")))
    });
    Ok(mounts.max_by_key(|(length, _)| *length).map_or("unknown".to_owned(), |(_, name)| name))
}
