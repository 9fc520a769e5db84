//! R29 on the client: very many sessions on one connection.

use std::time::Duration;

use duologue_test_support::at_most;
use duologue_tests::Result;

use super::{ClientRun, raw_agent};
use crate::harness::{self, Measured, play};

#[test]
fn r29_client() {
    play(sessions);
}

/// Opens them, has a turn in each, floods some, closes all; with an agent that costs both clients the same.
fn sessions() -> Result<Measured> {
    let count = harness::size(1000, 10_000);
    let limit = Duration::from_secs(harness::size(15, 90));
    let (agent, _) = raw_agent("sessions");
    let mut client = harness::client();
    let flood = harness::size("flood 5000 1", "flood 50000 1");
    client.args(["sessions", &count.to_string(), "say", flood, "--"]);
    client.arg(agent.get_program()).args(agent.get_args());
    let run = ClientRun::of_program(&mut client, limit)?;
    let (Some(open), Some(turns), Some(rate), Some(heap), Some(left)) = (
        run.number("open_kib"),
        run.printed("turns"),
        run.number("per_second"),
        run.printed("heap").and_then(kept),
        resident(&run),
    ) else {
        return Ok(Measured::short(run.end()));
    };
    let each = open.saturating_sub(run.idle_kib()) as f64 / count as f64;
    let p99 = turns["p99_ms"].as_f64().unwrap_or(f64::INFINITY);
    let text = format!(
        "{count} sessions: {each:.1} KiB each, turns p99 {p99:.1} ms, {rate} updates/s, {heap:.1} % of the heap in use after \
         closing all ({left:.0} % of the pages: the C library keeps what was freed)"
    );
    // A share of what few sessions took says nothing.
    let gone = harness::size(true, heap <= 10.0);
    let second = at_most(Duration::from_secs(1));
    let is_fast = p99 < 10.0 * second.as_secs_f64() && rate >= 50_000 / second.as_secs();
    Ok(Measured::new(each <= 20.0 && is_fast && gone, text))
}

/// The share of the heap that was still in use after everything was closed, in percent of what the sessions took.
fn kept(heap: &serde_json::Value) -> Option<f64> {
    let [idle, open, left] = ["idle", "open", "left"].map(|when| heap[when].as_f64());
    Some((left? - idle?).max(0.0) / (open? - idle?).max(1.0) * 100.0)
}

/// The same of the memory that is resident.
fn resident(run: &ClientRun) -> Option<f64> {
    let idle = run.idle_kib();
    let [grown, left] = ["peak_kib", "left_kib"].map(|name| run.number(name));
    Some(left?.saturating_sub(idle) as f64 / grown?.saturating_sub(idle).max(1) as f64 * 100.0)
}
