//! R29 on the client: very many sessions on one connection.

use std::time::Duration;

use super::{Run, raw_agent};
use crate::interop::Result;
use crate::reliability::stage::{Measured, Stage, Subject};

/// Opens them, has a turn in each, floods some, closes all; with an agent that costs both clients the same.
pub(in super::super) fn sessions(stage: &Stage, subject: Subject) -> Result<Measured> {
    let count = stage.size(1000, 10_000);
    let limit = Duration::from_secs(stage.size(8, 90));
    let scene = ["sessions", &count.to_string(), "echo hello", stage.size("flood 5000 1", "flood 50000 1")];
    let (agent, _) = raw_agent(stage, "sessions")?;
    let run = Run::of(stage, subject, &scene, &agent, limit)?;
    let (Some(open), Some(turns)) = (run.number("open_kib"), run.said("turns")) else {
        return Ok(Measured::short(run.end()));
    };
    let (Some(rate), Some(peak), Some(left)) =
        (run.number("per_second"), run.number("peak_kib"), run.number("left_kib"))
    else {
        return Ok(Measured::short(run.end()));
    };
    let idle = run.idle_kib();
    let each = open.saturating_sub(idle) as f64 / count as f64;
    let p99 = turns["p99_ms"].as_f64().unwrap_or(f64::INFINITY);
    let (grown, left) = (peak.saturating_sub(idle), left.saturating_sub(idle));
    let share = left as f64 / grown.max(1) as f64 * 100.0;
    let text = format!(
        "{count} sessions: {each:.1} KiB each, turns p99 {p99:.1} ms, {rate} updates/s, \
         {share:.0} % of {grown} KiB left after closing"
    );
    Ok(Measured::new(each <= 20.0 && p99 < 10.0 && rate >= 50_000 && share <= 10.0, text))
}
