//! From runs to figures: medians of each, and what they are compared with.

use super::play::{BenchRun, ProcessUsage};
use crate::workloads::{Figure, Workload};

/// The figures of one pair on one workload, each the median of its runs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BenchSummary {
    /// The number of runs.
    pub runs: usize,
    /// The main value, in the unit of the workload's figure.
    pub value: f64,
    /// The worst of 99 in 100, in the same unit, where there is one.
    pub p99: Option<f64>,
    /// The lowest and the highest of the runs.
    pub range: (f64, f64),
    /// CPU time of the client for each message, in µs.
    pub client_cpu: Option<f64>,
    /// The agent's.
    pub agent_cpu: Option<f64>,
    /// The client's peak, in MiB.
    pub client_peak: Option<f64>,
    /// The agent's.
    pub agent_peak: Option<f64>,
    /// By how many bytes the client has grown for each message.
    pub client_grown: Option<f64>,
    /// The agent.
    pub agent_grown: Option<f64>,
    /// Allocations of the client and the agent for each message.
    pub allocations: Option<(f64, f64)>,
}

/// The middle of the values; between the two middle ones if there are as many on each side.
#[must_use]
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.len() / 2;
    match (values.len() % 2, values.get(middle)) {
        (_, None) => None,
        (1, Some(value)) => Some(*value),
        (_, Some(value)) => Some(f64::midpoint(*value, values[middle - 1])),
    }
}

/// Summarizes the runs of one pair.
#[must_use]
pub fn figures(workload: &Workload, messages: f64, runs: &[BenchRun]) -> BenchSummary {
    let of = |figure: &dyn Fn(&BenchRun) -> Option<f64>| median(runs.iter().filter_map(figure).collect());
    let value = |run: &BenchRun| match workload.figure {
        Figure::Rate => messages / run.wall_ns * 1e9,
        Figure::Latency => run.latency_ns.mean / 1e3,
        Figure::Millis => run.latency_ns.p50 / 1e6,
        Figure::Grown => (grown(&run.client, messages) + grown(&run.agent, messages)).max(0.0),
    };
    let values: Vec<f64> = runs.iter().map(value).collect();
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(0.0, f64::max);
    let last = |usage: &[ProcessUsage], field: fn(&ProcessUsage) -> f64| usage.last().map(field);
    let spent = |usage: &[ProcessUsage]| match usage {
        [before, after] => Some((after.cpu_us - before.cpu_us) / messages),
        _ => None,
    };
    let is_grown = workload.figure == Figure::Grown;
    BenchSummary {
        runs: runs.len(),
        value: median(values).unwrap_or_default(),
        p99: (workload.figure == Figure::Latency)
            .then(|| of(&|run| Some(run.latency_ns.p99 / 1e3)))
            .flatten(),
        range: (least, most),
        client_cpu: of(&|run| spent(&run.client)),
        agent_cpu: of(&|run| spent(&run.agent)),
        client_peak: of(&|run| last(&run.client, |usage| usage.peak_kib / 1024.0)),
        agent_peak: of(&|run| last(&run.agent, |usage| usage.peak_kib / 1024.0)),
        client_grown: is_grown.then(|| of(&|run| Some(grown(&run.client, messages)))).flatten(),
        agent_grown: is_grown.then(|| of(&|run| Some(grown(&run.agent, messages)))).flatten(),
        allocations: None,
    }
}

/// Allocations of the client and the agent for each message, from a run that counted them.
#[must_use]
pub fn allocations(messages: f64, run: &BenchRun) -> Option<(f64, f64)> {
    let counted = |usage: &[ProcessUsage]| match usage {
        [before, after] => Some((after.allocations? - before.allocations?) / messages),
        _ => None,
    };
    Some((counted(&run.client)?, counted(&run.agent)?))
}

fn grown(usage: &[ProcessUsage], messages: f64) -> f64 {
    match usage {
        [before, after] => (after.rss_kib - before.rss_kib) * 1024.0 / messages,
        _ => 0.0,
    }
}

/// Returns the ratio by which `ours` is better; above 1 it is better, whatever the figure.
#[must_use]
pub fn times_as_good(figure: Figure, ours: f64, other: f64) -> f64 {
    match figure {
        Figure::Rate => ours / other,
        Figure::Latency | Figure::Millis | Figure::Grown => other / ours,
    }
}
