//! R29 on the client: very many sessions on one connection.

use std::time::Duration;

use super::{Run, raw_agent};
use crate::interop::Result;
use crate::reliability::stage::{Measured, Stage, Subject};

/// The C library keeps what a thread frees for that thread, and one such block on top of the heap keeps all below it
/// from going back to the system. Without it, what is left is what the program has not freed.
const WITHOUT_CACHES: (&str, &str) = ("GLIBC_TUNABLES", "glibc.malloc.tcache_count=0");

/// Opens them, has a turn in each, floods some, closes all; with an agent that costs both clients the same.
pub(in super::super) fn sessions(stage: &Stage, subject: Subject) -> Result<Measured> {
    let count = stage.size(1000, 10_000);
    let limit = Duration::from_secs(stage.size(15, 90));
    let (agent, _) = raw_agent(stage, "sessions")?;
    let play = |caches: bool| {
        let mut client = stage.client(subject);
        client.args([
            "sessions",
            &count.to_string(),
            "say",
            stage.size("flood 5000 1", "flood 50000 1"),
            "--",
        ]);
        client.arg(agent.get_program()).args(agent.get_args());
        if !caches {
            client.env(WITHOUT_CACHES.0, WITHOUT_CACHES.1);
        }
        Run::of_program(&mut client, limit)
    };
    let run = play(true)?;
    let (Some(open), Some(turns), Some(rate), Some((grown, share))) =
        (run.number("open_kib"), run.said("turns"), run.number("per_second"), left(&run))
    else {
        return Ok(Measured::short(run.end()));
    };
    let each = open.saturating_sub(run.idle_kib()) as f64 / count as f64;
    let p99 = turns["p99_ms"].as_f64().unwrap_or(f64::INFINITY);
    let freed = left(&play(false)?).map_or("unknown".to_owned(), |(_, share)| format!("{share:.0} %"));
    let text = format!(
        "{count} sessions: {each:.1} KiB each, turns p99 {p99:.1} ms, {rate} updates/s, \
         {share:.0} % of {grown} KiB left after closing ({freed} without the thread caches of glibc)"
    );
    // A share of what few sessions took says nothing.
    let gone = stage.size(true, share <= 10.0);
    Ok(Measured::new(each <= 20.0 && p99 < 10.0 && rate >= 50_000 && gone, text))
}

/// What a client took over idle, and the share of it that was left after it had closed everything, in percent.
fn left(run: &Run) -> Option<(u64, f64)> {
    let idle = run.idle_kib();
    let grown = run.number("peak_kib")?.saturating_sub(idle);
    let left = run.number("left_kib")?.saturating_sub(idle);
    Some((grown, left as f64 / grown.max(1) as f64 * 100.0))
}
