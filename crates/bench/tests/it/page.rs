//! The statistics, the tables, the targets and the picture, from runs that are made up.

use duologue_bench::play::Latency;
use duologue_bench::runner::pairs::{OURS, OURS_MANY, OURS_RECORDED, PairKind, SERDE};
use duologue_bench::runner::play::BenchRun;
use duologue_bench::runner::stats::{BenchSummary, allocations, figures, median, times_as_good};
use duologue_bench::runner::table::{Results, TableRow, number, section};
use duologue_bench::runner::{plot, targets};
use duologue_bench::workloads::{Figure, WORKLOADS, Workload};
use serde_json::json;
use std::time::Duration;

fn workload(name: &str) -> Workload {
    *WORKLOADS.iter().find(|workload| workload.name == name).expect("a workload")
}

/// A run of 100 messages in so many milliseconds.
fn run(ms: u64) -> BenchRun {
    let usage = |cpu_us: u64, allocations: u64| json!({"cpu_us": cpu_us, "rss_kib": 2048, "peak_kib": 4096, "allocations": allocations});
    serde_json::from_value(json!({
        "messages": 100,
        "bytes": 4000,
        "wall_ns": ms * 1_000_000,
        "latency_ns": {"mean": 1000 * ms, "p50": 900 * ms, "p99": 5000 * ms},
        "client": [usage(1000, 50), usage(1200, 450)],
        "agent": [usage(100, 10), usage(400, 210)],
    }))
    .expect("a run")
}

fn row(name: &str, kind: PairKind, value: f64) -> TableRow {
    let figures =
        BenchSummary { value, p99: Some(2.0 * value), range: (value, value), ..BenchSummary::default() };
    TableRow { name: name.to_owned(), kind: Some(kind), figures }
}

#[test]
fn a_median_is_in_the_middle() {
    assert_eq!(median(vec![]), None);
    assert_eq!(median(vec![3.0]), Some(3.0));
    assert_eq!(median(vec![9.0, 1.0, 2.0]), Some(2.0));
    assert_eq!(median(vec![9.0, 1.0, 2.0, 4.0]), Some(3.0));
}

#[test]
fn ninety_nine_in_a_hundred_took_no_longer() {
    let took = (1..=200).rev().map(Duration::from_nanos).collect();
    assert_eq!(Latency::of(took), Latency { mean: 100.5, p50: 100.0, p99: 198.0 });
    assert_eq!(Latency::of(Vec::new()), Latency::default());
}

#[test]
fn figures_are_medians_for_each_message() {
    let runs = [run(10), run(40), run(20)];
    let rate = figures(&workload("a40"), 100.0, &runs);
    assert_eq!((rate.value, rate.range, rate.p99), (5000.0, (2500.0, 10_000.0), None));
    assert_eq!((rate.client_cpu, rate.agent_cpu), (Some(2.0), Some(3.0)));
    assert_eq!((rate.client_peak, rate.agent_peak, rate.runs), (Some(4.0), Some(4.0), 3));
    let latency = figures(&workload("b"), 100.0, &runs);
    assert_eq!((latency.value, latency.p99), (20.0, Some(100.0)));
    assert_eq!(allocations(100.0, &runs[0]), Some((4.0, 2.0)));
}

#[test]
fn better_is_above_one_whatever_is_measured() {
    assert_eq!(times_as_good(Figure::Rate, 6.0, 2.0), 3.0);
    assert_eq!(times_as_good(Figure::Latency, 2.0, 6.0), 3.0);
}

#[test]
fn numbers_have_three_digits_that_count() {
    let shown = [0.0, 0.0512, 1.234, 12.34, 99.96, 123.4, 1234.0, 1_234_567.0, -1234.0].map(number);
    assert_eq!(shown, ["0", "0.051", "1.23", "12.3", "100", "123", "1,230", "1,230,000", "-1,230"]);
    assert_eq!(number(f64::NAN), "–");
}

#[test]
fn a_table_has_the_ratios() {
    let rows = vec![
        row(SERDE, PairKind::Floor, 2_000_000.0),
        row(OURS, PairKind::Ours, 1_000_000.0),
        row("Rust SDK, stock", PairKind::Peer, 20_000.0),
    ];
    let text = section(&Results { workload: workload("a40"), small: false, rows });
    let line = |name: &str| text.lines().find(|line| line.starts_with(name)).expect("its line").to_owned();
    assert!(line("| **duologue**").contains("| 1,000,000 / 2,000,000 |"), "{text}");
    assert!(line("| **duologue**").contains("| 0.500 × | – |"), "{text}");
    assert!(!text.contains("played small"), "{text}");
    assert!(line("| Rust SDK, stock").contains("| 0.010 × | 50.0 × |"), "{text}");
}

#[test]
fn a_small_run_says_what_was_played() {
    let small = Workload { play: workload("a40").quick, ..workload("a40") };
    let text = section(&Results { workload: small, small: true, rows: Vec::new() });
    assert!(
        text.starts_with(
            "## (a) one turn of 200,000 updates of 40 bytes — played small: `stream 20000 40`\n"
        ),
        "{text}"
    );
}

#[test]
fn a_target_shows_the_ratio_it_is_judged_by() {
    let rows = vec![row(SERDE, PairKind::Floor, 2_000_000.0), row(OURS, PairKind::Ours, 1_500_000.0)];
    let text =
        targets::section(&targets::judge(&[Results { workload: workload("a40"), small: false, rows }]));
    assert!(text.contains("| 0.750 × (1,500,000 to the floor's 2,000,000) | yes |"), "{text}");
}

#[test]
fn targets_are_met_or_not() {
    let results = |ours: f64| Results {
        workload: workload("b1"),
        small: false,
        rows: vec![
            row(SERDE, PairKind::Floor, 5.0),
            row(OURS, PairKind::Ours, ours),
            row("Rust SDK, stock", PairKind::Peer, 50.0),
            row("TypeScript SDK", PairKind::Peer, 30.0),
        ],
    };
    let met =
        |ours: f64| targets::judge(&[results(ours)]).iter().map(|target| target.met).collect::<Vec<_>>();
    assert_eq!(met(10.0), [true; 4]);
    assert_eq!(met(16.0), [false, false, true, true]);
    assert_eq!(met(31.0), [false; 4]);
}

/// A target about two pairs of a table, or about both sides of ours.
#[test]
fn targets_compare_any_two_pairs_and_each_side() {
    let line = |name: &str, rows: Vec<TableRow>, asks: &str| {
        let results = Results { workload: workload(name), small: false, rows };
        let text = targets::section(&targets::judge(&[results]));
        let line = text.lines().find(|line| line.contains(asks)).expect("its line").to_owned();
        line.rsplit_once(asks).expect("its text").1.to_owned()
    };
    let ours = PairKind::Ours;
    for (recorded, end) in
        [(950.0, "0.950 × (950 to 1,000) | yes |"), (850.0, "0.850 × (850 to 1,000) | **no** |")]
    {
        let rows = vec![row(OURS, ours, 1000.0), row(OURS_RECORDED, ours, recorded)];
        assert!(line("a40", rows, "10 % of the rate").ends_with(end), "{recorded}");
    }
    let rows = vec![row(SERDE, PairKind::Floor, 4.0), row(OURS, ours, 8.0), row(OURS_MANY, ours, 11.0)];
    let many = line("b1", rows, "with a thread a core, mean at most 2.5 times the floor's");
    assert!(many.ends_with("2.75 × (11.0 to the floor's 4.00) | **no** |"), "{many}");
    let rows = vec![row(OURS, ours, 20.0), row("Rust SDK, synchronous writes", PairKind::Peer, 25.0)];
    let image = line("g", rows, "with synchronous writes of the Rust SDK");
    assert!(image.ends_with("0.800 × (20.0 to 25.0) | yes |"), "{image}");
    let mut sides = row(OURS, ours, 2100.0);
    (sides.figures.client_grown, sides.figures.agent_grown) = (Some(800.0), Some(1300.0));
    let grown = line("f", vec![sides], "at most 1,200 bytes on each side");
    assert!(grown.ends_with("800 in the client, 1,300 in the agent | **no** |"), "{grown}");
}

#[test]
fn the_picture_shows_every_pair_but_ours() {
    let rows = vec![
        row(SERDE, PairKind::Floor, 5.0),
        row(OURS, PairKind::Ours, 10.0),
        row("A & B", PairKind::Peer, 50.0),
        row("beyond", PairKind::Peer, 1e9),
    ];
    let svg = plot::svg(&[Results { workload: workload("b1"), small: false, rows }]);
    // One in the legend and one on the line.
    assert_eq!(svg.matches("<circle").count(), 6, "{svg}");
    assert!(svg.contains("A &amp; B: 5.00 ×") && svg.contains("prefers-color-scheme: dark"), "{svg}");
    assert_eq!(svg.matches("<text").count(), svg.matches("</text>").count());
}
