//! R5, R6 and R7 on the client: what a long line, a line full of small things, and an agent that does not stop cost.

use std::time::Duration;

use duologue_client::Limits;
use duologue_tests::Result;
use duologue_tests::process::mib;

use super::{ClientRun, raw_agent};
use crate::harness::{self, Measured, play};

const MIB_IN_KIB: u64 = 1024;
/// The limit of a line, both ways.
const LINE: u64 = 16 * MIB_IN_KIB;

/// The memory that queues may take over an idle client.
const ROOM: u64 = 64 * MIB_IN_KIB;

const SHORT: Duration = Duration::from_secs(20);
const LONG: Duration = Duration::from_secs(120);

#[test]
fn r5_client() {
    play(long_line);
}

/// A line without end: an error that ends the connection, and no more than twice the limit and 32 MiB.
fn long_line() -> Result<Measured> {
    let (agent, _) = raw_agent("line");
    let bytes = harness::size("1000000000", "10000000000");
    let scenario = ["turn", &format!("line {bytes}")];
    let run = ClientRun::of(&scenario, &agent, harness::size(SHORT, LONG))?;
    let failed = run.printed("error").is_some() && run.given_up.is_none();
    let text = format!("peak {}, {} after {:.1} s", mib(run.peak_kib), run.end(), run.took.as_secs_f64());
    Ok(Measured::new(failed && run.peak_kib <= 2 * LINE + 32 * MIB_IN_KIB, text))
}

/// Lists of an update and of a request that are read into types, the smallest thing that may stand in each, and the
/// values it has.
const TYPED: [(&str, &str, usize); 5] = [
    ("locations", r#"{"path":"/$"},"#, 2),
    ("content", r#"{"type":"content","content":{"type":"text","text":"$"}},"#, 5),
    ("entries", r#"{"content":"$","priority":"low","status":"pending"},"#, 4),
    ("availableCommands", r#"{"name":"a$","description":""},"#, 3),
    ("args", r#""$","#, 1),
];

#[test]
fn r6_client() {
    play(amplifiers);
}

/// 16 MiB of small things in every place where a valid line can have them: at most four times the line. A line that is
/// refused is fine, a connection that is lost over it is not.
fn amplifiers() -> Result<Measured> {
    let (agent, _) = raw_agent("amplify");
    let units = harness::size(&["1,"][..], &["1,", "\"\",", "{},", "\"\\u0041\","][..]);
    let raw = ["meta", "raw", "unknown"].iter();
    let mut tries: Vec<(&str, String)> =
        raw.flat_map(|place| units.iter().map(|unit| (*place, (*unit).to_owned()))).collect();
    // As small as they can be, and just so long that a line has no more values than our SDK reads.
    let sparse = LINE as usize * 1024 / Limits::default().values;
    for (place, unit, values) in TYPED {
        let padding = "x".repeat((values * sparse + 1).saturating_sub(unit.len()));
        tries.extend([(place, unit.replace('$', "")), (place, unit.replace('$', &padding))]);
    }
    let (mut worst, mut what, mut dead, mut over) = (0, String::new(), Vec::new(), 0);
    for (place, unit) in &tries {
        let text = format!("amplify {} {unit} {place}", LINE * 1024 - 1024);
        let run = ClientRun::of(&["turn", &text], &agent, 2 * SHORT)?;
        let shown: String = unit.chars().take(30).collect();
        if run.printed("stop").is_none() {
            dead.push(format!("`{shown}` in {place}: {}", run.end()));
        }
        over += usize::from(run.growth_kib() > 4 * LINE);
        if run.growth_kib() > worst {
            worst = run.growth_kib();
            what = format!("`{shown}` in {place}");
        }
    }
    if worst < LINE {
        return Err("no line of that length ever arrived".into());
    }
    let times = worst as f64 / LINE as f64;
    let mut text = format!(
        "at most {times:.1} x the line ({what}), {over} of {} over 4, {} of the turns failed",
        tries.len(),
        dead.len()
    );
    if let Some(first) = dead.first() {
        text = format!("{text}; such as {first}");
    }
    Ok(Measured::new(times <= 4.0 && dead.is_empty(), text))
}

/// Floods a client and describes the result.
fn flooded((count, bytes): (u64, u64), stalled: &str) -> Result<(ClientRun, String)> {
    let (agent, _) = raw_agent("flood");
    let scenario = ["stalled", stalled, &format!("flood {count} {bytes}")];
    let run = ClientRun::of(&scenario, &agent, harness::size(2 * SHORT, LONG))?;
    let updates = run.number("updates").unwrap_or_default();
    let text = format!("{} over idle, {updates} of {count} taken, {}", mib(run.growth_kib()), run.end());
    Ok((run, text))
}

#[test]
fn r7_client_paused() {
    play(paused);
}

/// A consumer that stands still for a while and then takes everything: nothing is lost.
fn paused() -> Result<Measured> {
    let count = harness::size(300_000, 9_000_000);
    let (run, text) = flooded((count, 1000), harness::size("3", "5"))?;
    let lossless = run.number("updates") == Some(count) && run.printed("stop").is_some();
    Ok(Measured::new(lossless && run.growth_kib() <= ROOM, text))
}

#[test]
fn r7_client_paused_small() {
    play(paused_small);
}

/// The same with the smallest updates there are.
fn paused_small() -> Result<Measured> {
    let count = harness::size(1_000_000, 20_000_000);
    let (run, text) = flooded((count, 1), harness::size("3", "5"))?;
    let lossless = run.number("updates") == Some(count) && run.printed("stop").is_some();
    Ok(Measured::new(lossless && run.growth_kib() <= ROOM, text))
}

#[test]
fn r7_client_stalled() {
    play(stalled);
}

/// A consumer that stands still for good: its stream ends loudly, and the connection goes on.
fn stalled() -> Result<Measured> {
    let count = harness::size(300_000, 9_000_000);
    let (run, text) = flooded((count, 1000), harness::size("12", "60"))?;
    let ended = run.given_up.is_none() && run.printed("error").is_some();
    Ok(Measured::new(ended && run.growth_kib() <= ROOM, text))
}

#[test]
fn r7_client_unknown_session() {
    play(unknown_session);
}

/// A million updates of a session nobody knows.
fn unknown_session() -> Result<Measured> {
    let (agent, _) = raw_agent("unknown");
    let run = ClientRun::of(&["turn", "unknown 1000000 100"], &agent, harness::size(2 * SHORT, LONG))?;
    let text = format!("{} over idle, {}", mib(run.growth_kib()), run.end());
    Ok(Measured::new(run.printed("stop").is_some() && run.growth_kib() <= 8 * MIB_IN_KIB, text))
}
