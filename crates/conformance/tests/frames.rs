//! The validation of frames that are expensive to validate.

use duologue_conformance::frames::{FrameReport, validate};
use duologue_transcript::{Importer, Side, Transcript};

/// Returns the report on the message that an agent sent.
fn report(message: &str) -> FrameReport {
    let log = format!("{{\"direction\":\"in\",\"message\":{message}}}\n");
    let mut importer = Importer::new(log.as_bytes()).seen_by(Side::Client);
    let records: Vec<_> = importer.by_ref().collect::<Result<_, _>>().unwrap();
    validate(&Transcript::new(importer.header(), records)).remove(0)
}

/// Returns the bytes of all problems.
fn size(report: &FrameReport) -> usize {
    report.problems.iter().map(|problem| problem.path.len() + problem.problem.len()).sum()
}

#[test]
fn duplicates_below_a_long_name_have_short_paths() {
    let long = "k".repeat(100_000);
    let duplicates = vec!["\"a\":1"; 2_000].join(",");
    let message =
        format!("{{\"jsonrpc\":\"2.0\",\"method\":\"_x\",\"params\":{{\"{long}\":{{{duplicates}}}}}}}");
    let report = report(&message);
    assert!(size(&report) < 50_000, "{}", size(&report));
    let first = &report.problems[0];
    assert_eq!(first.path, format!("$.params[\"{}\"…].a", "k".repeat(64)));
    let last = report.problems.last().unwrap();
    assert_eq!((last.path.as_str(), last.problem.as_str()), ("$", "and 1899 more warnings"));
    assert!(report.ok && !report.lossless);
}

#[test]
fn unknown_members_have_a_limited_number_of_warnings() {
    let members: String = (0..20_000).map(|number| format!(",\"u{number}\":1")).collect();
    let report = report(&format!(
        "{{\"jsonrpc\":\"2.0\",\"method\":\"session/update\",\"params\":{{\"sessionId\":\"s\",\"update\":\
         {{\"sessionUpdate\":\"agent_message_chunk\",\"content\":{{\"type\":\"text\",\"text\":\"x\"{members}}}}}}}}}"
    ));
    assert!(report.problems.len() <= 102 && size(&report) < 50_000, "{}", report.problems.len());
    assert!(!report.lossless);
}

#[test]
fn an_error_is_reported_behind_any_number_of_warnings() {
    let strays: String = (0..500).map(|number| format!(",\"s{number}\":1")).collect();
    let report =
        report(&format!("{{\"jsonrpc\":\"2.0\",\"method\":\"session/nwe\",\"params\":{{}}{strays}}}"));
    assert!(!report.ok && report.problems.iter().any(|problem| problem.path == "$.method"));
    assert_eq!(report.problems.last().unwrap().problem, "and 400 more warnings");
}
