//! The picture: a line a workload, and on it each pair, by how many times it is as slow as ours.

use std::fmt::Write as _;

use super::pairs::{NL, OURS, PairKind};
use super::stats::times_as_good;
use super::table::Results;

const WIDTH: f64 = 920.0;
/// Both ends of the axis.
const LEFT: f64 = 330.0;
const RIGHT: f64 = 890.0;
const TOP: f64 = 100.0;
const STEP: f64 = 30.0;
/// The range of the axis: from a tenth to a thousand times ours, on a logarithmic scale.
const TENFOLDS: (i32, i32) = (-1, 3);
/// Distinguishable for colour-blind readers, on white and on black.
const COLOURS: [&str; 8] =
    ["#999999", "#0072b2", "#d55e00", "#e69f00", "#56b4e9", "#009e73", "#cc79a7", "#b8a800"];

/// Draws the pairs that are one SDK on both sides.
#[must_use]
pub fn svg(all: &[Results]) -> String {
    let shown = |name: &str, kind: Option<PairKind>| kind.is_some() && name != OURS && name != NL;
    let mut names: Vec<&str> = Vec::new();
    for row in all.iter().flat_map(|results| &results.rows) {
        if shown(&row.name, row.kind) && !names.contains(&row.name.as_str()) {
            names.push(&row.name);
        }
    }
    let colour = |name: &str| {
        let place = names.iter().position(|other| *other == name).unwrap_or_default();
        COLOURS[place % COLOURS.len()]
    };
    let bottom = TOP + STEP * all.len() as f64;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<style>\n  text {{ fill: #222 }}\n  line {{ stroke: #8886 }}\n  .ours {{ stroke: #888; \
         stroke-width: 2 }}\n  @media (prefers-color-scheme: dark) {{ text {{ fill: #ddd }} }}\n</style>\n\
         <title>How many times as slow, or as large, as duologue: each workload, each SDK</title>\n",
        bottom + 40.0
    );
    for (place, name) in names.iter().enumerate() {
        let (x, y) = (20.0 + 225.0 * (place % 4) as f64, 24.0 + 22.0 * (place / 4) as f64);
        dot(&mut svg, x, y, colour(name), name);
        let _ = writeln!(svg, "<text x=\"{}\" y=\"{}\">{}</text>", x + 12.0, y + 4.0, escaped(name));
    }
    for tenfold in TENFOLDS.0..=TENFOLDS.1 {
        let (x, class) = (at(10_f64.powi(tenfold)), if tenfold == 0 { " class=\"ours\"" } else { "" });
        let _ = writeln!(
            svg,
            "<line{class} x1=\"{x}\" x2=\"{x}\" y1=\"{}\" y2=\"{bottom}\"/>\n\
             <text x=\"{x}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            TOP - 12.0,
            bottom + 20.0,
            match tenfold {
                0 => "duologue".to_owned(),
                tenfold => format!("{} ×", 10_f64.powi(tenfold)),
            }
        );
    }
    for (place, results) in all.iter().enumerate() {
        let y = TOP + STEP * (place as f64 + 0.5);
        let (title, _) = results.workload.title.split_once(", ").unwrap_or((results.workload.title, ""));
        let title = if results.workload.pinned { results.workload.title } else { title };
        let _ = writeln!(
            svg,
            "<line x1=\"{LEFT}\" x2=\"{RIGHT}\" y1=\"{y}\" y2=\"{y}\"/>\n\
             <text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>",
            LEFT - 12.0,
            y + 4.0,
            escaped(title)
        );
        let Some(ours) = results.of(OURS) else { continue };
        for row in results.rows.iter().filter(|row| shown(&row.name, row.kind)) {
            let times = times_as_good(results.workload.figure, ours.value, row.figures.value);
            if times.is_finite() && times > 0.0 {
                dot(&mut svg, at(times), y, colour(&row.name), &format!("{}: {times:.2} ×", row.name));
            }
        }
    }
    svg.push_str("</svg>\n");
    svg
}

/// Returns the position of a ratio on the axis, clamped to its ends.
fn at(times: f64) -> f64 {
    let (from, to) = (f64::from(TENFOLDS.0), f64::from(TENFOLDS.1));
    let share = (times.log10().clamp(from, to) - from) / (to - from);
    ((LEFT + share * (RIGHT - LEFT)) * 10.0).round() / 10.0
}

fn dot(svg: &mut String, x: f64, y: f64, colour: &str, title: &str) {
    let _ = writeln!(
        svg,
        "<circle cx=\"{x}\" cy=\"{y}\" r=\"5\" fill=\"{colour}\"><title>{}</title></circle>",
        escaped(title)
    );
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('`', "")
}
