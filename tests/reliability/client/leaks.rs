//! R20 and R21 on the client: a flood on stderr, what an agent inherits, and what thousands of agents leave behind.

use std::time::Duration;

use duologue_test_support::at_most;
use duologue_tests::Result;
use duologue_tests::process::mib;
use serde_json::Value;

use super::{ClientRun, log_of, raw_agent, wrapped};
use crate::harness::{self, Measured, play};

#[test]
fn r20_client() {
    play(stderr);
}

/// 1 GiB on stderr before the agent answers anything.
fn stderr() -> Result<Measured> {
    let mut agent = harness::scripted();
    agent.args(["--stderr", harness::size("134217728", "1073741824")]);
    let run = ClientRun::of(&["turn", "go"], &agent, Duration::from_secs(60))?;
    let text = format!("{} after {:.1} s, peak {}", run.end(), run.took.as_secs_f64(), mib(run.peak_kib));
    let met = run.printed("stop").is_some()
        && run.took < at_most(Duration::from_secs(30))
        && run.peak_kib < 64 * 1024;
    Ok(Measured::new(met, text))
}

const SECRETS: usize = 50;

/// Shell that goes on with the three descriptors that every program has. Some shells know but one digit.
const CLOSE_ALL: &str = r#"exec bash -c 'for fd in /proc/self/fd/*; do fd=${fd##*/};
    if [ "$fd" -gt 2 ]; then eval "exec $fd>&-"; fi; done; exec "$@"' sh "$@""#;

#[test]
fn r21_client_inherited() {
    play(inherited);
}

/// Checks the environment and the descriptors that an agent inherits.
fn inherited() -> Result<Measured> {
    let (agent, log) = raw_agent("inherited");
    let mut client = harness::client();
    client.args(["clean", "say", "--"]).arg(agent.get_program()).args(agent.get_args());
    // Descriptors that this program inherited itself are closed first.
    let mut client = wrapped(CLOSE_ALL, &client);
    for number in 0..SECRETS {
        client.env(format!("SENTINEL_{number}_API_KEY"), format!("secret-{number}"));
    }
    ClientRun::of_program(&mut client, Duration::from_secs(10))?;
    let log = log_of(&log)?;
    let found =
        log.iter().find(|line| line["sentinels"].is_u64()).ok_or("the agent said nothing of itself")?;
    let secrets = found["sentinels"].as_u64().unwrap_or_default();
    let text = format!("{secrets} of {SECRETS} secrets, descriptors {}", found["descriptors"]);
    Ok(Measured::new(secrets == 0 && found["descriptors"] == serde_json::json!([0, 1, 2]), text))
}

#[test]
fn r21_client_cycles() {
    play(cycles);
}

/// Agents that are started and closed, thousands of them, by one process.
fn cycles() -> Result<Measured> {
    let count = harness::size("200", "10000");
    let agent = harness::scripted();
    let run = ClientRun::of(&["cycle", count], &agent, Duration::from_secs(harness::size(30, 300)))?;
    let held: Vec<&Value> = run.lines.iter().filter(|line| line["descriptors"].is_u64()).collect();
    let [before, after] = held.as_slice() else { return Ok(Measured::short(run.end())) };
    let flat = |name: &str| after[name].as_u64() <= before[name].as_u64();
    let grown =
        after["kib"].as_u64().unwrap_or_default().saturating_sub(before["kib"].as_u64().unwrap_or_default());
    let text = format!(
        "{count} cycles in {:.0} s: descriptors {} to {}, threads {} to {}, children {} to {}, memory +{}",
        run.took.as_secs_f64(),
        before["descriptors"],
        after["descriptors"],
        before["threads"],
        after["threads"],
        before["children"],
        after["children"],
        mib(grown),
    );
    let flat = flat("descriptors") && flat("threads") && after["children"] == 0 && grown < 2 * 1024;
    Ok(Measured::new(flat && run.left == 0, text))
}
