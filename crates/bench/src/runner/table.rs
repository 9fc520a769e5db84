//! The table of one workload, in Markdown.

use std::fmt::Write as _;

use super::pairs::{OURS, PairKind, SERDE};
use super::stats::{BenchSummary, times_as_good};
use crate::workloads::{Figure, Workload};

/// One pair in a table.
#[derive(Clone, Debug)]
pub struct TableRow {
    /// As it is called.
    pub name: String,
    /// The kind of both programs, if it is the same.
    pub kind: Option<PairKind>,
    /// The summary of its runs.
    pub figures: BenchSummary,
}

/// A workload and what came of it.
#[derive(Clone, Debug)]
pub struct Results {
    /// The workload.
    pub workload: Workload,
    /// True if it was played smaller than its title says.
    pub small: bool,
    /// By whom, in the order of the page.
    pub rows: Vec<TableRow>,
}

impl Results {
    /// The figures of the pair of that name.
    #[must_use]
    pub fn of(&self, name: &str) -> Option<&BenchSummary> {
        self.rows.iter().find(|row| row.name == name).map(|row| &row.figures)
    }

    /// The pairs of the other SDKs.
    pub fn peers(&self) -> impl Iterator<Item = &TableRow> {
        self.rows.iter().filter(|row| row.kind == Some(PairKind::Peer))
    }
}

/// The section of the page.
#[must_use]
pub fn section(results: &Results) -> String {
    let workload = &results.workload;
    let figure = match workload.figure {
        Figure::Rate => "updates/s",
        Figure::Latency => "mean / p99, µs",
        Figure::Millis => "median, ms",
        Figure::Grown => "client + agent, bytes each",
    };
    let played = workload.play.words().join(" ");
    let small = if results.small { format!(" — played small: `{played}`") } else { String::new() };
    let mut text = format!("## {}{small}\n\n", workload.title);
    if !workload.note.is_empty() {
        let _ = writeln!(text, "{}\n", workload.note);
    }
    let _ = writeln!(
        text,
        "| client and agent | {figure} | lowest – highest | to the floor | duologue is | CPU µs each, client + agent | \
         peak MiB, client / agent |\n|---|---|---|---|---|---|---|"
    );
    for row in &results.rows {
        let figures = &row.figures;
        let ratio = |name| {
            let other = results.of(name)?;
            Some(times_as_good(workload.figure, figures.value, other.value))
        };
        let p99 = figures.p99.map(|p99| format!(" / {}", number(p99))).unwrap_or_default();
        let grown = figures.client_grown.zip(figures.agent_grown);
        let grown = grown.map(|(client, agent)| format!(" ({} + {})", number(client), number(agent)));
        let two = |client: Option<f64>, agent: Option<f64>, between: &str| match (client, agent) {
            (Some(client), Some(agent)) => format!("{}{between}{}", number(client), number(agent)),
            _ => "–".to_owned(),
        };
        let to_ours = ratio(OURS).filter(|_| row.name != OURS && row.kind != Some(PairKind::Ours));
        let _ = writeln!(
            text,
            "| {} | {}{p99}{} | {} – {} | {} | {} | {} | {} |",
            if row.name == OURS { format!("**{OURS}**") } else { row.name.clone() },
            number(figures.value),
            grown.unwrap_or_default(),
            number(figures.range.0),
            number(figures.range.1),
            ratio(SERDE).map_or("–".to_owned(), |ratio| format!("{} ×", number(ratio))),
            to_ours.map_or("–".to_owned(), |ratio| format!("{} ×", number(1.0 / ratio))),
            two(figures.client_cpu, figures.agent_cpu, " + "),
            two(figures.client_peak, figures.agent_peak, " / "),
        );
    }
    if let Some((client, agent)) = results.of(OURS).and_then(|figures| figures.allocations) {
        let _ = writeln!(
            text,
            "\nAllocations of {OURS} for each: {} in the client, {} in the agent.",
            number(client),
            number(agent)
        );
    }
    let runs: Vec<usize> = results.rows.iter().map(|row| row.figures.runs).collect();
    if let (Some(least), Some(most)) = (runs.iter().min(), runs.iter().max()) {
        let runs = if least == most { least.to_string() } else { format!("{least} to {most}") };
        let _ = writeln!(text, "\nRuns of `{played}` for each pair: {runs}; the figures are their medians.");
    }
    text
}

/// A number with three digits that count, and thousands set apart.
#[must_use]
pub fn number(value: f64) -> String {
    if !value.is_finite() {
        return "–".to_owned();
    }
    let size = value.abs();
    if size < 0.0005 {
        return "0".to_owned();
    }
    if size < 99.95 {
        let decimals = if size < 0.9995 {
            3
        } else if size < 9.995 {
            2
        } else {
            1
        };
        return format!("{value:.decimals$}");
    }
    // The fourth digit and those behind it are noise.
    let unit = 10_f64.powi((size.log10().floor() as i32 - 2).max(0));
    let digits = format!("{:.0}", (size / unit).round() * unit);
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    if value < 0.0 { format!("-{text}") } else { text }
}
