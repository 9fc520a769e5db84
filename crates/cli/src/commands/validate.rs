//! `duologue validate`.

use std::io::{IsTerminal as _, Write};

use duologue_conformance::frames::{FrameReport, ProblemLevel, validate_file};

use crate::error::Result;
use crate::exit::Exit;
use crate::run::envelope_command::one_line;
use crate::source::SourceArgs;
use crate::ui::{self, BAD, DIM};

/// Check every frame of a recording or log against the protocol
///
/// On a terminal it prints the frames with problems. In a pipe, and with `--json`, it prints one line of JSON a
/// frame: its line in the file (`line`), its sender (`from`), its type (`kind`:
/// `request`, `notification`, `response` or `noise`; `method`), true if it conforms to the protocol (`ok`), true if
/// decoding and encoding it gives the same JSON, empty members aside (`lossless`), and its `problems`, each
/// with a JSON path.
///
/// Errors, which make a frame not ok: no message, not UTF-8, an unknown method, the wrong side, params or a result
/// of the wrong type, a relative path, a response to no request, an id in use, an unknown session.
/// On a connection with version 2 also: a capability that the other side has not, and messages of a turn in a wrong
/// order.
/// Warnings: parts that are ignored, forgiven or read as something else, and a request without a response.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ValidateArgs {
    #[command(flatten)]
    source: SourceArgs,
    /// Print a line of JSON for each frame, also on a terminal
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  duologue validate session.jsonl
  duologue validate --json session.jsonl | jq 'select(.ok | not)'";

pub(crate) fn run(args: ValidateArgs) -> Result<Exit> {
    let source = args.source.read()?;
    let reports = validate_file(&source.transcript, &source.lines);
    let mut out = ui::stdout().lock();
    let is_json = args.json || !std::io::stdout().is_terminal();
    for report in &reports {
        if is_json {
            ui::json_line(&mut out, report)?;
        } else {
            write_problems(report, &mut out)?;
        }
    }
    out.flush()?;
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

/// Prints the problems of a frame for a user, one a line.
fn write_problems(report: &FrameReport, out: &mut impl Write) -> Result<()> {
    for problem in &report.problems {
        let style = if problem.level == ProblemLevel::Error { BAD } else { DIM };
        let level = if problem.level == ProblemLevel::Error { "error" } else { "warning" };
        let method = report.method.as_deref().unwrap_or("no method");
        writeln!(
            out,
            "line {}, {} ({}): {style}{level}{style:#}: {} {}",
            report.line,
            one_line(method),
            report.from.name(),
            one_line(&problem.path),
            one_line(&problem.problem)
        )?;
    }
    Ok(())
}
