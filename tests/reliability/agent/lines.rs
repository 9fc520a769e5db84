//! Lines nobody should send, to an agent: those of the table, and floods of lines that are too many to write down.

use std::time::{Duration, Instant};

use duologue_test_support::at_most;
use duologue_tests::hostile_lines::{bytes, is_right, known, shown};
use duologue_tests::process::mib;
use duologue_tests::raw_client::{PATIENCE, RawClient, RawOutput, parsed};
use duologue_tests::{Failed, Result};
use serde_json::{Value, json};

use crate::harness::{self, Measured, play};

/// The time limit of the request behind a bad line.
const SOON: Duration = Duration::from_secs(1);

const ANSWER: &str = "{\"jsonrpc\":\"2.0\",\"id\":987654,\"result\":{}}\n";
const CANCEL: &str =
    "{\"jsonrpc\":\"2.0\",\"method\":\"session/cancel\",\"params\":{\"sessionId\":\"nobody\"}}\n";

#[test]
fn r3_agent() {
    play(bad_lines);
}

fn bad_lines() -> Result<Measured> {
    let (rows, mut off, mut slowest) = (known("agent")?, Vec::new(), Duration::ZERO);
    for row in &rows {
        match Failed::of(put(row))? {
            Ok(took) => slowest = slowest.max(took),
            Err(error) => off.push(format!("{} ({error})", row["case"].as_str().unwrap_or_default())),
        }
    }
    let mut text = format!(
        "{} of {} as wanted, probe at most {} ms",
        rows.len() - off.len(),
        rows.len(),
        slowest.as_millis()
    );
    if !off.is_empty() {
        text.push_str("; off: ");
        text.push_str(&off.join("; "));
    }
    Ok(Measured::new(off.is_empty(), text))
}

/// Puts one line to an agent of its own, and says how soon a question behind it was answered.
fn put(row: &Value) -> Result<Duration> {
    let mut command = harness::agent();
    let mut client = match row["state"].as_str() {
        Some("fresh") => RawClient::start(&mut command)?,
        _ => RawClient::greeted(&mut command)?,
    };
    let session = if row["state"] == "session" { client.new_session()? } else { String::new() };
    client.write(&bytes(&row["line"], &session)?, PATIENCE)?;
    if row["last"] == true {
        client.hang_up();
        return last(&mut client, row);
    }
    let begun = Instant::now();
    client.write(b"\n{\"jsonrpc\":\"2.0\",\"id\":\"probe\",\"method\":\"_probe\"}\n", PATIENCE)?;
    let (mut answers, mut soon) = (Vec::new(), None);
    // Requests may be answered in any order: what is still owed when the probe is answered gets a moment more.
    loop {
        let complete = is_right(&row["agent"], &answers);
        let within =
            if soon.is_none() { PATIENCE } else { Duration::from_millis(if complete { 20 } else { 500 }) };
        match client.hear(within)? {
            RawOutput::Silence if soon.is_some() => break,
            RawOutput::Silence => {
                return Failed::because(format!("a question behind it has no answer in {PATIENCE:?}"));
            }
            RawOutput::End => return Failed::because(client.end()),
            RawOutput::Line(line) => {
                for message in messages(&line)? {
                    if message["id"] == "probe" {
                        soon = Some(begun.elapsed());
                    } else if message.get("method").is_none() {
                        answers.push(shown(&message));
                    }
                }
            }
        }
    }
    if !is_right(&row["agent"], &answers) {
        return Failed::because(json!(answers).to_string());
    }
    match soon {
        Some(soon) if soon < at_most(SOON) => Ok(soon),
        soon => Failed::because(format!("a question behind it took {soon:?}")),
    }
}

/// A line at the very end of the input.
fn last(client: &mut RawClient, row: &Value) -> Result<Duration> {
    let mut answers = Vec::new();
    while let RawOutput::Line(line) = client.hear(PATIENCE)? {
        answers.extend(messages(&line)?.iter().map(shown));
    }
    let Some(status) = client.process.wait(PATIENCE)? else { return Failed::because("it does not end") };
    if is_right(&row["agent"], &answers) && status.success() {
        Ok(Duration::ZERO)
    } else {
        Failed::because(format!("{}, {status}", json!(answers)))
    }
}

/// A line as messages: one, or those of a batch.
fn messages(line: &[u8]) -> Result<Vec<Value>> {
    Ok(match parsed(line)? {
        Value::Array(messages) => messages,
        message => vec![message],
    })
}

#[test]
fn r3_agent_floods() {
    play(floods);
}

/// Millions of lines that are none, an array of 100,000 notifications, and a million levels.
fn floods() -> Result<Measured> {
    let notification = r#"{"jsonrpc":"2.0","method":"_n"}"#;
    let array = format!("[{}{notification}]\n", format!(" {notification},").repeat(100_000));
    let deep =
        format!("{}{}\n", r#"{"jsonrpc":"2.0","id":1,"method":"_x","params":{"x":"#, "[".repeat(1_000_000));
    let floods = [
        ("blank lines", "\n", harness::size(1_000_000, 10_000_000), 0),
        ("lines of noise", "npm WARN x\n", harness::size(100_000, 1_000_000), 10),
        ("answers to nobody", ANSWER, harness::size(100_000, 1_000_000), 0),
        ("cancels of nobody", CANCEL, harness::size(100_000, 1_000_000), 0),
        ("an array of 100,001 notifications", array.as_str(), 1, 1),
        ("a million levels", deep.as_str(), 1, 1),
    ];
    let (mut texts, mut met) = (Vec::new(), true);
    for (name, unit, count, most) in floods {
        let outcome = Failed::of(flood(unit, count))?;
        let (well, text) = match outcome {
            Ok((answers, took, grown)) => {
                let grown_text = mib(grown);
                (
                    answers <= most && took < at_most(Duration::from_secs(5)) && grown < 32 * 1024,
                    format!("{answers} answers, probe {:.2} s, +{grown_text}", took.as_secs_f64()),
                )
            }
            Err(error) => (false, error),
        };
        met &= well;
        let count = if count > 1 { format!("{count} ") } else { String::new() };
        texts.push(format!("{count}{name}: {text}"));
    }
    Ok(Measured::new(met, texts.join("; ")))
}

/// Says how many answers a flood had, how long a question behind it took, and how much memory it cost.
fn flood(unit: &str, count: usize) -> Result<(usize, Duration, u64)> {
    let mut client = RawClient::greeted(&mut harness::agent())?;
    let idle = client.process.memory_kib();
    let at_once = (64 * 1024 / unit.len()).clamp(1, count);
    let chunk = unit.repeat(at_once);
    let mut left = count;
    while left > 0 {
        let bytes = unit.len() * left.min(at_once);
        client.write(chunk.as_bytes().get(..bytes).unwrap_or_default(), PATIENCE)?;
        left -= left.min(at_once);
    }
    let begun = Instant::now();
    client.write(b"{\"jsonrpc\":\"2.0\",\"id\":\"probe\",\"method\":\"_probe\"}\n", PATIENCE)?;
    let mut answers = 0;
    loop {
        let left = PATIENCE.saturating_sub(begun.elapsed());
        match client.hear(left)? {
            RawOutput::Line(line)
                if line.len() < 1000 && String::from_utf8_lossy(&line).contains("\"probe\"") =>
            {
                break;
            }
            RawOutput::Line(_) if !left.is_zero() => answers += 1,
            RawOutput::End => return Failed::because(client.end()),
            _ => return Failed::because(format!("{answers} answers, and none to the probe in {PATIENCE:?}")),
        }
    }
    Ok((answers, begun.elapsed(), client.process.peak_kib().saturating_sub(idle)))
}
