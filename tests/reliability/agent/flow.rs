//! Flow control of an agent: a client that does not read, full pipes in both directions, and many requests at once.

use std::thread::sleep;
use std::time::{Duration, Instant};

use duologue_test_support::at_most;
use duologue_tests::process::{TOO_LARGE_KIB, mib};
use duologue_tests::raw_client::{PATIENCE, RawClient, RawOutput, parsed};
use duologue_tests::{Failed, Result};

use crate::harness::{self, Measured, play};

/// Part of every update's line and of nothing else.
const UPDATE: &str = "\"agent_message_chunk\"";

fn is_update(line: &[u8]) -> bool {
    std::str::from_utf8(line).is_ok_and(|line| line.contains(UPDATE))
}

#[test]
fn r7_agent_unread() {
    play(unread);
}

/// A client that stops reading while its agent has 300,000 updates to say, and then reads them.
fn unread() -> Result<Measured> {
    stalled(harness::size(100_000, 300_000), Duration::from_secs(harness::size(3, 15)), true)
}

#[test]
fn r7_agent_never_read() {
    play(never_read);
}

/// The same with 10 GB, which nobody ever reads.
fn never_read() -> Result<Measured> {
    stalled(harness::size(1_000_000, 9_000_000), Duration::from_secs(harness::size(5, 60)), false)
}

fn stalled(count: usize, pause: Duration, reads: bool) -> Result<Measured> {
    let mut client = RawClient::greeted(&mut harness::agent())?;
    let session = client.new_session()?;
    let idle = client.process.memory_kib();
    let id = client.begin(&session, &format!("flood {count} 1000"))?;
    let begun = Instant::now();
    let mut ended = "";
    while begun.elapsed() < pause {
        sleep(Duration::from_millis(20));
        if client.process.memory_kib() > TOO_LARGE_KIB {
            ended = ", ended by us";
            break;
        }
    }
    let grown = client.process.peak_kib().saturating_sub(idle);
    let mut text = format!("agent +{} after {:.0} s{ended}", mib(grown), begun.elapsed().as_secs_f64());
    let mut met = grown <= 16 * 1024 && client.process.wait(Duration::ZERO)?.is_none();
    if reads && ended.is_empty() {
        let mut updates = 0;
        let end = loop {
            match client.hear(PATIENCE)? {
                RawOutput::Line(line) if is_update(&line) => updates += 1,
                RawOutput::Line(line)
                    if String::from_utf8_lossy(&line).contains(&format!("\"id\":{id},")) =>
                {
                    break "end of the turn".to_owned();
                }
                RawOutput::Line(_) => {}
                RawOutput::End => break client.end(),
                RawOutput::Silence => break "silence".to_owned(),
            }
        };
        met &= updates == count && end == "end of the turn";
        text.push_str(&format!(", then {updates} of {count} updates and {end}"));
    }
    Ok(Measured::new(met, text))
}

#[test]
fn r9_both_pipes_full() {
    play(both_full);
}

/// 10 MB each way through the smallest pipes before the client reads anything.
fn both_full() -> Result<Measured> {
    let count = harness::size(2_000, 10_000);
    let mut client = RawClient::greeted(&mut harness::agent())?;
    let session = client.new_session()?;
    client.narrow()?;
    let begun = Instant::now();
    let turn = client.begin(&session, &format!("flood {count} 1000"))?;
    client.reads = false;
    let note =
        format!("{}{}{}\n", r#"{"jsonrpc":"2.0","method":"_note","params":{"t":""#, "x".repeat(950), "\"}}");
    let mut written = 0;
    for _ in 0..count {
        if let Err(error) = Failed::of(client.write(note.as_bytes(), PATIENCE))? {
            return Ok(Measured::short(format!("{error} after {} MB", written / 1_000_000)));
        }
        written += note.len();
    }
    let (line, last) = client.request("_probe", &serde_json::json!({}));
    client.write(&line, PATIENCE)?;
    client.reads = true;
    let (mut updates, mut answers) = (0, 0);
    while answers < 2 {
        match client.hear(PATIENCE)? {
            RawOutput::Line(line) if is_update(&line) => updates += 1,
            RawOutput::Line(line) => {
                let message = parsed(&line)?;
                answers += usize::from(message["id"] == turn || message["id"] == last);
            }
            RawOutput::End => return Ok(Measured::short(client.end())),
            RawOutput::Silence => return Ok(Measured::short(format!("silence after {updates} updates"))),
        }
    }
    let took = begun.elapsed();
    let text = format!("{updates} of {count} updates and all answers in {:.1} s", took.as_secs_f64());
    Ok(Measured::new(updates == count && took < at_most(Duration::from_secs(5)), text))
}

#[test]
fn r13_agent_at_once() {
    play(at_once);
}

/// 2,000 prompts at once, each of a session of its own, none of which ends soon.
fn at_once() -> Result<Measured> {
    let count = 2_000;
    let mut client = RawClient::greeted(&mut harness::agent())?;
    let sessions = (0..count).map(|_| client.new_session()).collect::<Result<Vec<_>>>()?;
    let mut lines = Vec::new();
    let first = client.prompt(&sessions[0], "echo x").1 + 1;
    for session in &sessions {
        lines.extend(client.prompt(session, "sleep 1500").0);
    }
    let (mut answered, mut refused, mut twice) = (vec![false; count], 0, 0);
    let begun = Instant::now();
    client.write(&lines, PATIENCE)?;
    let (mut probe, mut within, mut took) = (0, PATIENCE, Duration::ZERO);
    loop {
        if probe == 0 && !answered.contains(&false) {
            let (line, id) = client.request("_probe", &serde_json::json!({}));
            client.write(&line, PATIENCE)?;
            probe = id;
        }
        let message = match client.hear(within)? {
            RawOutput::Line(line) => parsed(&line)?,
            RawOutput::End => return Ok(Measured::short(client.end())),
            RawOutput::Silence => break,
        };
        if message["id"] == probe {
            // A second answer to one of the last is behind it, if there is one.
            within = Duration::from_millis(500);
        }
        let Some(index) = message["id"].as_u64().and_then(|id| id.checked_sub(first)) else { continue };
        let Some(answer) = answered.get_mut(usize::try_from(index)?) else { continue };
        twice += usize::from(std::mem::replace(answer, true));
        took = begun.elapsed();
        refused += usize::from(message.get("error").is_some());
    }
    let missing = answered.iter().filter(|answered| !**answered).count();
    let text = format!(
        "{count} prompts at once: {missing} without an answer, {twice} answered twice, {refused} refused, {:.1} s",
        took.as_secs_f64()
    );
    Ok(Measured::new(missing == 0 && twice == 0, text))
}

#[test]
fn r7_agent_requests() {
    play(answers_unread);
}

/// A client that asks for ever and never reads an answer.
fn answers_unread() -> Result<Measured> {
    let all = harness::size(500_000_000, 10_000_000_000_u64);
    let mut client = RawClient::greeted(&mut harness::agent())?;
    let idle = client.process.memory_kib();
    client.reads = false;
    let questions = "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"_nosuch\"}\n".repeat(1000);
    let (begun, mut written) = (Instant::now(), 0);
    let end = loop {
        if let Err(error) = Failed::of(client.write(questions.as_bytes(), Duration::from_secs(15)))? {
            break error;
        }
        written += questions.len() as u64;
        if written >= all {
            break "all of it taken".to_owned();
        }
        if client.process.memory_kib() > TOO_LARGE_KIB {
            break "ended by us".to_owned();
        }
    };
    let grown = client.process.peak_kib().saturating_sub(idle);
    let text = format!(
        "agent +{} by {} MB of questions in {:.1} s, {end}",
        mib(grown),
        written / 1_000_000,
        begun.elapsed().as_secs_f64()
    );
    let given_up = client.process.wait(at_most(Duration::from_secs(1)))?.is_some();
    Ok(Measured::new(given_up && grown <= 320 * 1024, text))
}

#[test]
fn r29_agent() {
    play(sessions);
}

/// Many sessions on one connection: what each costs, and how soon each is served.
fn sessions() -> Result<Measured> {
    let count = harness::size(1_000, 10_000);
    let mut client = RawClient::greeted(&mut harness::agent())?;
    let first = client.new_session()?;
    client.turn(&first, "echo warm")?;
    let idle = client.process.memory_kib();
    let ids = (0..count).map(|_| client.new_session()).collect::<Result<Vec<_>>>()?;
    let mut took = Vec::with_capacity(count);
    for id in &ids {
        let begun = Instant::now();
        client.turn(id, "echo hello")?;
        took.push(begun.elapsed());
    }
    took.sort_unstable();
    let p99 = took.get(count * 99 / 100).copied().unwrap_or_default();
    let each = client.process.memory_kib().saturating_sub(idle) as f64 / count as f64;
    let text = format!("{each:.1} KiB each of {count}, a turn p99 {:.1} ms", p99.as_secs_f64() * 1000.0);
    Ok(Measured::new(each <= 20.0 && p99 < at_most(Duration::from_millis(10)), text))
}
