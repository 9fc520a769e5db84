//! The targets, compared with the results.

use std::fmt::Write as _;

use super::pairs::{OURS, OURS_MANY, OURS_RECORDED, OURS_STAGES, SERDE};
use super::stats::{BenchSummary, times_as_good};
use super::table::{Results, TableRow, number};
use crate::workloads::Figure;

/// The official Rust crate as its documentation has it.
const STOCK: &str = "Rust SDK, stock";
/// The official Rust crate in its fastest form.
const SYNC: &str = "Rust SDK, synchronous writes";

/// One target.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// The workload it is about.
    workload: String,
    /// In words.
    asks: &'static str,
    /// The measured value.
    measured: String,
    /// True if the target is met.
    pub met: bool,
}

/// The section of the page.
#[must_use]
pub fn section(targets: &[Target]) -> String {
    let mut text = "## Targets\n\nA MB is a million bytes. The MiB of the other tables is 1,048,576 bytes.\n\n| workload | target | measured | met |\n|---|---|---|---|\n".to_owned();
    for Target { workload, asks, measured, met } in targets {
        let met = if *met { "yes" } else { "**no**" };
        let _ = writeln!(text, "| {workload} | {asks} | {measured} | {met} |");
    }
    text
}

/// Compares the results with the targets. Targets without a result are left out.
#[must_use]
pub fn judge(all: &[Results]) -> Vec<Target> {
    let mut targets = Vec::new();
    for results in all {
        let Some(ours) = results.of(OURS) else { continue };
        let mut judge = Judge { results, ours, targets: &mut targets };
        match results.workload.name {
            "a40" => {
                judge.share_of_floor(
                    "at least 0.444 of the floor (1,200,000 a second where it does 2,700,000)",
                    1.2 / 2.7,
                );
                judge.ahead_of_fastest("6 times the fastest peer", 6.0);
                judge.ahead_of_stock("50 times the stock Rust SDK", 50.0);
                judge.cpu("CPU at most 3 times the floor's", 3.0);
                judge.peaks("peak of the agent at most 8 MB, of the client 12 MB", 8.0, 12.0);
                judge.allocations("at most 3 allocations for each, both sides together", 3.0);
                judge.share_of("recording costs at most 10 % of the rate", OURS_RECORDED, OURS, 0.9);
                judge.share_of("three stages keep 80 % of the rate", OURS_STAGES, OURS, 0.8);
            }
            "a1k" => {
                judge.peaks("peak of the agent at most 8 MB, of the client 12 MB", 8.0, 12.0);
                judge.allocations("at most 3 allocations for each, both sides together", 3.0);
            }
            "b1" | "c1" => {
                judge.adds("three stages add at most 3 µs to the mean", OURS_STAGES, 3.0);
                judge.share_of_floor("mean at most 2.2 times the floor's", 1.0 / 2.2);
                judge.share_of(
                    "with a thread a core, mean at most 2.5 times the floor's",
                    OURS_MANY,
                    SERDE,
                    1.0 / 2.5,
                );
                judge.ahead_of_fastest("mean at most half of the fastest peer's", 2.0);
                judge.p99("p99 below every peer's");
            }
            "d" => judge.ahead_of_fastest("6 times the fastest peer", 6.0),
            "e" => {
                judge.at_most("at most 1.5 ms", 1.5);
                judge.share_of_floor("at most 1.1 times the floor's", 1.0 / 1.1);
            }
            "f" => judge.grown("at most 1,200 bytes on each side", 1200.0),
            "g" => {
                judge.share_of("at most as long as with synchronous writes of the Rust SDK", OURS, SYNC, 1.0)
            }
            _ => {}
        }
        judge.ahead_of_fastest("no peer is ahead", 1.0);
    }
    targets
}

struct Judge<'a> {
    results: &'a Results,
    ours: &'a BenchSummary,
    targets: &'a mut Vec<Target>,
}

impl Judge<'_> {
    fn add(&mut self, asks: &'static str, met: bool, measured: String) {
        self.targets.push(Target { workload: self.results.workload.name.to_owned(), asks, measured, met });
    }

    fn figure(&self) -> Figure {
        self.results.workload.figure
    }

    fn fastest(&self) -> Option<&TableRow> {
        let good = |row: &&TableRow| times_as_good(self.figure(), row.figures.value, 1.0);
        self.results.peers().max_by(|one, other| good(one).total_cmp(&good(other)))
    }

    fn share_of_floor(&mut self, asks: &'static str, share: f64) {
        self.share_of(asks, OURS, SERDE, share);
    }

    /// Asks that the pair `name` is at least `share` times as good as the pair `other`.
    fn share_of(&mut self, asks: &'static str, name: &str, other: &str, share: f64) {
        let Some((one, base)) = self.results.of(name).zip(self.results.of(other)) else { return };
        let good = times_as_good(self.figure(), one.value, base.value);
        let whose = if other == SERDE { "the floor's " } else { "" };
        // The ratio of durations is inverted, as the target states it.
        let ratio = if self.figure() == Figure::Rate { good } else { 1.0 / good };
        let measured =
            format!("{} × ({} to {whose}{})", number(ratio), number(one.value), number(base.value));
        self.add(asks, good >= share, measured);
    }

    /// Asks that the pair `name` takes at most so much longer than ours.
    fn adds(&mut self, asks: &'static str, name: &str, most: f64) {
        let Some(other) = self.results.of(name) else { return };
        let added = other.value - self.ours.value;
        let measured =
            format!("{} µs ({} to {})", number(added), number(other.value), number(self.ours.value));
        self.add(asks, added <= most, measured);
    }

    fn grown(&mut self, asks: &'static str, most: f64) {
        let Some((client, agent)) = self.ours.client_grown.zip(self.ours.agent_grown) else { return };
        let measured = format!("{} in the client, {} in the agent", number(client), number(agent));
        self.add(asks, client <= most && agent <= most, measured);
    }

    fn ahead_of_fastest(&mut self, asks: &'static str, times: f64) {
        let Some(fastest) = self.fastest() else { return };
        let good = times_as_good(self.figure(), self.ours.value, fastest.figures.value);
        let measured = format!("{} × {}", number(good), fastest.name);
        self.add(asks, good >= times, measured);
    }

    fn ahead_of_stock(&mut self, asks: &'static str, times: f64) {
        let Some(stock) = self.results.of(STOCK) else { return };
        let good = times_as_good(self.figure(), self.ours.value, stock.value);
        self.add(asks, good >= times, format!("{} ×", number(good)));
    }

    fn cpu(&mut self, asks: &'static str, times: f64) {
        let sum = |figures: &BenchSummary| Some(figures.client_cpu? + figures.agent_cpu?);
        let Some((ours, floor)) = sum(self.ours).zip(self.results.of(SERDE).and_then(sum)) else { return };
        let measured = format!("{} × ({} µs to {} µs)", number(ours / floor), number(ours), number(floor));
        self.add(asks, ours <= times * floor, measured);
    }

    fn peaks(&mut self, asks: &'static str, agent_most: f64, client_most: f64) {
        let Some((agent, client)) = self.ours.agent_peak.zip(self.ours.client_peak) else { return };
        let mb = |mib: f64| mib * 1024.0 * 1024.0 / 1e6;
        let met = mb(agent) <= agent_most && mb(client) <= client_most;
        self.add(asks, met, format!("agent {} MB, client {} MB", number(mb(agent)), number(mb(client))));
    }

    fn allocations(&mut self, asks: &'static str, most: f64) {
        let Some((client, agent)) = self.ours.allocations else { return };
        let measured = format!("{} ({} in the client)", number(client + agent), number(client));
        self.add(asks, client + agent <= most, measured);
    }

    fn p99(&mut self, asks: &'static str) {
        let Some(ours) = self.ours.p99 else { return };
        let least = self.results.peers().filter_map(|row| Some((row.figures.p99?, &row.name)));
        let Some((least, name)) = least.min_by(|one, other| one.0.total_cmp(&other.0)) else { return };
        self.add(asks, ours < least, format!("{} µs to {} µs of {name}", number(ours), number(least)));
    }

    fn at_most(&mut self, asks: &'static str, most: f64) {
        self.add(asks, self.ours.value <= most, format!("{} ms", number(self.ours.value)));
    }
}
