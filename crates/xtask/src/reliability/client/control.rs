//! R8 and D3 on the client: what has to be heard is heard, whatever else is being said.

use std::time::Duration;

use serde_json::Value;

use super::{Run, log_of, raw_agent};
use crate::interop::Result;
use crate::reliability::stage::{Measured, Stage, Subject};

/// A session nobody listens to, with a flood in it, and another one that talks.
pub(in super::super) fn two_sessions(stage: &Stage, subject: Subject) -> Result<Measured> {
    let (agent, _) = raw_agent(stage, "two")?;
    let rounds = stage.size("20", "1000");
    let scene = ["two", rounds, "flood 1000000000 1000", "say"];
    let run = Run::of(stage, subject, &scene, &agent, Duration::from_secs(stage.size(20, 180)))?;
    let Some((turns, cancels)) = run.said("turns").zip(run.said("cancels")) else {
        return Ok(Measured::short(run.end()));
    };
    let p99 = |spread: &Value| spread["p99_ms"].as_f64().unwrap_or(f64::INFINITY);
    let text = format!(
        "{} turns p99 {:.1} ms (max {:.1}), {} cancels p99 {:.1} ms (max {:.1})",
        turns["times"],
        p99(turns),
        turns["max_ms"].as_f64().unwrap_or_default(),
        cancels["times"],
        p99(cancels),
        cancels["max_ms"].as_f64().unwrap_or_default(),
    );
    Ok(Measured::new(p99(turns) <= 100.0 && p99(cancels) <= 100.0, text))
}

/// What an agent may ask for, and something nobody has heard of.
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

/// Every request is answered at once, also by a client that handles none.
pub(in super::super) fn requests(stage: &Stage, subject: Subject) -> Result<Measured> {
    let (mut answered, mut asked, mut silent) = (0, 0, Vec::new());
    for method in METHODS {
        let (agent, log) = raw_agent(stage, "ask")?;
        let scene = ["turn", &format!("ask 10 {method}")];
        Run::of(stage, subject, &scene, &agent, Duration::from_secs(10))?;
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
