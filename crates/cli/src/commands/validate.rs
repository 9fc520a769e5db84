//! `duologue validate`.

use std::io::Write as _;

use crate::error::Result;
use crate::exit::Exit;
use crate::source::SourceArgs;
use crate::ui;
use crate::validate::validate;

/// Check every frame of a transcript or log against the protocol
///
/// Prints one line of JSON a frame: where it stands (`line`), who sent it (`from`), what it is (`kind`:
/// `request`, `notification`, `response` or `noise`; `method`), whether it keeps to the protocol (`ok`), whether
/// reading it with types and writing it again gives the same JSON (`lossless`), and its `problems`, each with
/// a JSON path.
///
/// Errors, which make a frame not ok: no message, not UTF-8, an unknown method, the wrong side, params or a result
/// that do not fit, a relative path, an answer nobody asked for, an id in use, a session nobody made.
/// Warnings: what is ignored, forgiven or read as something else, a request without an answer.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    source: SourceArgs,
}

pub(crate) fn run(args: Args) -> Result<Exit> {
    let source = args.source.read()?;
    let verdicts = validate(&source);
    let mut out = ui::stdout().lock();
    for verdict in &verdicts {
        ui::json_line(&mut out, verdict)?;
    }
    let count = |of: &dyn Fn(&crate::validate::Verdict) -> bool| verdicts.iter().filter(|it| of(it)).count();
    let (bad, lossy) = (count(&|it| !it.ok), count(&|it| !it.lossless));
    let warnings = count(&|it| it.ok && !it.problems.is_empty());
    writeln!(
        ui::stderr(),
        "{}: {} not ok, {warnings} more with warnings, {lossy} not lossless",
        ui::plural(verdicts.len(), "frame"),
        bad
    )?;
    Ok(match (source.complain(), bad) {
        (true, _) => Exit::File,
        (false, 0) => Exit::Ok,
        (false, _) => Exit::Found,
    })
}
