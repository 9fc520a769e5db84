//! Lines nobody should send, to an agent: the table `tests/hostile/known.jsonl`, which holds what any peer may be
//! expected to do, and floods of lines that are too many to write down.
//!
//! A row's `agent` and `client` list the outcomes that are right, each a list of answers `[code, id]`, `["result", id]` or, for
//! either, `["any", id]`. `state` is `fresh` before `initialize` and `session` when one is needed, `last` means that
//! the input ends behind the line, without a line end. `line` is written as in `tests/hostile_lines.rs`.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::super::harness::{Failed, Measured, ScenarioHarness, TestSubject};
use super::super::measure::mib;
use super::raw_client::{PATIENCE, RawClient, RawOutput, parsed};
use crate::interop::Result;

/// The time limit of the request behind a bad line.
const SOON: Duration = Duration::from_secs(1);

const ANSWER: &str = "{\"jsonrpc\":\"2.0\",\"id\":987654,\"result\":{}}\n";
const CANCEL: &str =
    "{\"jsonrpc\":\"2.0\",\"method\":\"session/cancel\",\"params\":{\"sessionId\":\"nobody\"}}\n";

/// The rows of the table that say what a peer of this kind may do.
pub(in super::super) fn known(side: &str) -> Result<Vec<Value>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/hostile/known.jsonl");
    let mut rows = Vec::new();
    for line in fs::read_to_string(path)?.lines() {
        let row: Value = serde_json::from_str(line)?;
        if row.get(side).is_some() {
            rows.push(row);
        }
    }
    Ok(rows)
}

pub(in super::super) fn bad_lines(harness: &ScenarioHarness, subject: TestSubject) -> Result<Measured> {
    let (rows, mut off, mut slowest) = (known("agent")?, Vec::new(), Duration::ZERO);
    for row in &rows {
        match Failed::of(put(harness, subject, row))? {
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
fn put(harness: &ScenarioHarness, subject: TestSubject, row: &Value) -> Result<Duration> {
    let mut command = harness.agent(subject);
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
        Some(soon) if soon < SOON => Ok(soon),
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

/// The part of an answer that the table speaks of.
pub(in super::super) fn shown(answer: &Value) -> Value {
    let what = if answer.get("result").is_some() { json!("result") } else { answer["error"]["code"].clone() };
    json!([what, answer["id"]])
}

/// Returns true if these responses are one of the outcomes.
pub(in super::super) fn is_right(outcomes: &Value, answers: &[Value]) -> bool {
    let same = |wanted: &Value, answer: &Value| {
        let id = |a: &Value, b: &Value| a == b || (a.is_number() && a.as_f64() == b.as_f64());
        (wanted[0] == "any" || wanted[0] == answer[0]) && id(&wanted[1], &answer[1])
    };
    let outcomes = outcomes.as_array().into_iter().flatten().filter_map(Value::as_array);
    let mut right = outcomes.filter(|wanted| wanted.len() == answers.len());
    right.any(|wanted| wanted.iter().zip(answers).all(|(wanted, answer)| same(wanted, answer)))
}

/// The bytes of a line of the table.
pub(in super::super) fn bytes(line: &Value, session: &str) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    for part in line.as_array().map_or(std::slice::from_ref(line), Vec::as_slice) {
        match part {
            Value::String(text) => bytes.extend(text.replace("$SESSION", session).bytes()),
            Value::Number(byte) => bytes.push(u8::try_from(byte.as_u64().unwrap_or(u64::MAX))?),
            repeated => {
                let times = usize::try_from(repeated["times"].as_u64().ok_or("how often?")?)?;
                bytes.extend(repeated["of"].as_str().ok_or("of what?")?.repeat(times).bytes());
            }
        }
    }
    Ok(bytes)
}

/// Millions of lines that are none, an array of 100,000 notifications, and a million levels.
pub(in super::super) fn floods(harness: &ScenarioHarness, subject: TestSubject) -> Result<Measured> {
    let notification = r#"{"jsonrpc":"2.0","method":"_n"}"#;
    let array = format!("[{}{notification}]\n", format!(" {notification},").repeat(100_000));
    let deep =
        format!("{}{}\n", r#"{"jsonrpc":"2.0","id":1,"method":"_x","params":{"x":"#, "[".repeat(1_000_000));
    let floods = [
        ("blank lines", "\n", harness.size(1_000_000, 10_000_000), 0),
        ("lines of noise", "npm WARN x\n", harness.size(100_000, 1_000_000), 10),
        ("answers to nobody", ANSWER, harness.size(100_000, 1_000_000), 0),
        ("cancels of nobody", CANCEL, harness.size(100_000, 1_000_000), 0),
        ("an array of 100,001 notifications", array.as_str(), 1, 1),
        ("a million levels", deep.as_str(), 1, 1),
    ];
    let (mut texts, mut met) = (Vec::new(), true);
    for (name, unit, count, most) in floods {
        let outcome = Failed::of(flood(harness, subject, unit, count))?;
        let (well, text) = match outcome {
            Ok((answers, took, grown)) => {
                let grown_text = mib(grown);
                (
                    answers <= most && took < Duration::from_secs(5) && grown < 32 * 1024,
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
fn flood(
    harness: &ScenarioHarness,
    subject: TestSubject,
    unit: &str,
    count: usize,
) -> Result<(usize, Duration, u64)> {
    let mut client = RawClient::greeted(&mut harness.agent(subject))?;
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
