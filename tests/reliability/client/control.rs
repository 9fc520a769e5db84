//! R8 and D3 on the client: control messages get through, whatever the load.

use std::time::Duration;

use duologue_test_support::at_most;
use duologue_tests::Result;
use serde_json::Value;

use super::{ClientRun, log_of, raw_agent};
use crate::harness::{self, Measured, play};

#[test]
fn r8_client() {
    play(two_sessions);
}

/// A session nobody listens to, with a flood in it, and another one that talks. A cancel takes from the call to the
/// moment the agent hears it: what comes of the turn then is another matter, and another one for each SDK.
fn two_sessions() -> Result<Measured> {
    let (agent, log) = raw_agent("two");
    let rounds = harness::size(20, 10_000);
    let scenario = ["two", &rounds.to_string(), "flood 1000000000 1000", "say"];
    let run = ClientRun::of(&scenario, &agent, Duration::from_secs(harness::size(30, 600)))?;
    let Some((turns, called)) = run.printed("turns").zip(run.printed("called").and_then(Value::as_array))
    else {
        return Ok(Measured::short(run.end()));
    };
    let heard: Vec<u64> = log_of(&log)?.iter().filter_map(|line| line["cancelled_ns"].as_u64()).collect();
    let called = called.iter().filter_map(Value::as_u64);
    let mut cancels: Vec<u64> =
        heard.iter().zip(called).map(|(heard, called)| heard.saturating_sub(called)).collect();
    cancels.sort_unstable();
    let ms = |nanoseconds: Option<&u64>| {
        nanoseconds.map_or(f64::INFINITY, |nanoseconds| *nanoseconds as f64 / 1e6)
    };
    let cancel_p99 = ms(cancels.get(cancels.len().saturating_sub(1) * 99 / 100));
    let turn_p99 = turns["p99_ms"].as_f64().unwrap_or(f64::INFINITY);
    let text = format!(
        "{} turns p99 {turn_p99:.1} ms (max {:.1}), {} of {rounds} cancels received, p99 {cancel_p99:.1} ms (max {:.1}), \
         {} of the streams ended as stalled",
        turns["times"],
        turns["max_ms"].as_f64().unwrap_or_default(),
        cancels.len(),
        ms(cancels.last()),
        run.number("stalled").unwrap_or_default(),
    );
    let limit = at_most(Duration::from_millis(100)).as_secs_f64() * 1000.0;
    let all = turns["times"] == rounds && cancels.len() == rounds;
    Ok(Measured::new(all && turn_p99.max(cancel_p99) <= limit, text))
}

/// The methods of requests to a client, and an unknown one.
const METHODS: [&str; 9] = [
    "fs/read_text_file",
    "fs/write_text_file",
    "terminal/create",
    "terminal/output",
    "terminal/wait_for_exit",
    "terminal/kill",
    "terminal/release",
    "session/request_permission",
    "_nobody/knows",
];

#[test]
fn r3_client_requests() {
    play(requests);
}

/// Every request is answered at once, also by a client that handles none.
fn requests() -> Result<Measured> {
    let (mut answered, mut asked, mut silent) = (0, 0, Vec::new());
    for method in METHODS {
        let (agent, log) = raw_agent("ask");
        let scenario = ["turn", &format!("ask 10 {method}")];
        ClientRun::of(&scenario, &agent, Duration::from_secs(10))?;
        let codes = log_of(&log)?.iter().find_map(|line| line["codes"].as_array().map(Vec::len));
        asked += 10;
        answered += codes.unwrap_or_default();
        if codes != Some(10) {
            silent.push(method);
        }
    }
    let mut text = format!("{answered} of {asked} answered");
    if !silent.is_empty() {
        text = format!("{text}; not {}", silent.join(", "));
    }
    Ok(Measured::new(answered == asked, text))
}
