//! R3 on the client: the lines of `tests/hostile/known.jsonl` that no agent should write, each followed by a question.

use std::time::Duration;

use duologue_tests::Result;
use duologue_tests::hostile_lines::{is_right, known};
use serde_json::{Value, json};

use super::{ClientRun, log_of, raw_agent};
use crate::harness::{Measured, play};

/// A little more than the raw agent waits for one line.
const EACH: Duration = Duration::from_millis(2500);

#[test]
fn r3_client() {
    play(bad_lines);
}

/// One turn for each line; a client that does not survive one is started again for the next.
fn bad_lines() -> Result<Measured> {
    let rows = known("client")?;
    let (mut off, mut from, mut lost, mut slowest) = (Vec::new(), 0, 0, 0);
    while let Some(left) = rows.get(from..).filter(|left| !left.is_empty()) {
        let (agent, log) = raw_agent("bad");
        let scenario = ["turns", &from.to_string(), &rows.len().to_string(), "bad"];
        let limit = Duration::from_secs(10) + EACH * u32::try_from(left.len())?;
        let run = ClientRun::of(&scenario, &agent, limit)?;
        let log = log_of(&log)?;
        let mut turns = run.lines.iter().filter(|line| line["updates"].is_u64());
        let mut ended = false;
        for row in left {
            let Some(turn) = turns.next() else { break };
            let heard = log.iter().find(|line| line["bad"] == from);
            let outcome = outcome(row, turn, heard, &log);
            match outcome {
                Ok(ms) => slowest = slowest.max(ms),
                Err(fault) => off.push(format!("{} ({fault})", row["case"].as_str().unwrap_or_default())),
            }
            from += 1;
            if !turn["stop"].is_string() {
                ended = true;
                lost += usize::from(row["last"] != true);
                break;
            }
        }
        if let (false, Some(row)) = (ended, rows.get(from)) {
            // The log ends here: the client hangs or breaks at this line.
            off.push(format!("{} ({})", row["case"].as_str().unwrap_or_default(), run.end()));
            (from, lost) = (from + 1, lost + 1);
        }
    }
    let mut text = format!(
        "{} of {} as wanted, probe at most {slowest} ms, {lost} connections lost",
        rows.len() - off.len(),
        rows.len()
    );
    if !off.is_empty() {
        text = format!("{text}; off: {}", off.join("; "));
    }
    Ok(Measured::new(off.is_empty(), text))
}

/// Returns the response time of the request behind a line, or describes the fault.
fn outcome(
    row: &Value,
    turn: &Value,
    heard: Option<&Value>,
    log: &[Value],
) -> std::result::Result<u64, String> {
    let answers =
        |line: Option<&Value>| line.and_then(|line| line["answers"].as_array().cloned()).unwrap_or_default();
    let right = |answers: Vec<Value>| {
        if is_right(&row["client"], &answers) { Ok(()) } else { Err(json!(answers).to_string()) }
    };
    if row["last"] == true {
        // Its output ends first; responses received after that are in its last log line.
        return right(answers(log.iter().find(|line| line["left"] == true))).map(|()| 0);
    }
    if !turn["stop"].is_string() {
        return Err("the turn failed".to_owned());
    }
    right(answers(heard))?;
    heard
        .and_then(|heard| heard["probe_ms"].as_u64())
        .ok_or("no answer to the question behind it in 1 s".to_owned())
}
