//! `duologue validate`.

use std::io::Write as _;

use duologue_conformance::frames::{FrameReport, validate_file};

use crate::error::Result;
use crate::exit::Exit;
use crate::source::SourceArgs;
use crate::ui;

/// Check every frame of a transcript or log against the protocol
///
/// Prints one line of JSON a frame: its line in the file (`line`), its sender (`from`), its type (`kind`:
/// `request`, `notification`, `response` or `noise`; `method`), true if it conforms to the protocol (`ok`), true if
/// decoding and encoding it gives the same JSON (`lossless`), and its `problems`, each with
/// a JSON path.
///
/// Errors, which make a frame not ok: no message, not UTF-8, an unknown method, the wrong side, params or a result
/// of the wrong type, a relative path, a response to no request, an id in use, an unknown session.
/// Warnings: parts that are ignored, forgiven or read as something else, and a request without a response.
#[derive(clap::Args)]
pub(crate) struct ValidateArgs {
    #[command(flatten)]
    source: SourceArgs,
}

pub(crate) fn run(args: ValidateArgs) -> Result<Exit> {
    let source = args.source.read()?;
    let reports = validate_file(&source.transcript, &source.lines);
    let mut out = ui::stdout().lock();
    for report in &reports {
        ui::json_line(&mut out, report)?;
    }
    let count = |is_counted: &dyn Fn(&FrameReport) -> bool| {
        reports.iter().filter(|report| is_counted(report)).count()
    };
    let (bad, lossy) = (count(&|report| !report.ok), count(&|report| !report.lossless));
    let warnings = count(&|report| report.ok && !report.problems.is_empty());
    writeln!(
        ui::stderr(),
        "{}: {} not ok, {warnings} more with warnings, {lossy} not lossless",
        ui::plural(reports.len(), "frame"),
        bad
    )?;
    Ok(match (source.print_damage(), bad) {
        (true, _) => Exit::File,
        (false, 0) => Exit::Ok,
        (false, _) => Exit::Found,
    })
}
