//! What lines, long ones and those that grow when they are read, cost an agent.

use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::json;

use super::super::measure::{TOO_LARGE_KIB, mib};
use super::super::stage::{Measured, Stage, Subject};
use super::raw_client::{Heard, PATIENCE, RawClient};
use crate::interop::Result;

/// The longest line that our SDK takes, without its line end.
const LIMIT: usize = 16 * 1024 * 1024;
const MIB_KIB: u64 = 1024;
/// How long the reading of one line may take.
const READ_WITHIN: Duration = Duration::from_secs(60);

/// Lines just below, at and above the limit: the answers, and what memory is left taken by them.
pub(in super::super) fn limit(stage: &Stage, subject: Subject) -> Result<Measured> {
    let (mut texts, mut met) = (Vec::new(), true);
    for (name, length, fits) in
        [("limit-1", LIMIT - 1, true), ("limit", LIMIT, true), ("limit+1", LIMIT + 1, false)]
    {
        let (well, text) =
            line_of(stage, subject, length, fits).unwrap_or_else(|error| (false, error.to_string()));
        met &= well;
        texts.push(format!("{name} {text}"));
    }
    Ok(Measured::new(met, texts.join("; ")))
}

/// A request of this length, and whether its agent did what it should.
fn line_of(stage: &Stage, subject: Subject, length: usize, fits: bool) -> Result<(bool, String)> {
    let mut client = RawClient::greeted(&mut stage.agent(subject))?;
    let idle = client.process.memory_kib();
    let (head, tail) = (r#"{"jsonrpc":"2.0","id":"long","method":"_nosuch","params":{"t":""#, "\"}}");
    let mut line = Vec::with_capacity(length + 1);
    line.extend(head.bytes());
    line.resize(length - tail.len(), b'x');
    line.extend(tail.bytes());
    client.write(&line, PATIENCE)?;
    let begun = Instant::now();
    // One that is too long is too long before its end.
    if fits {
        client.write(b"\n", PATIENCE)?;
    }
    let within = if fits { PATIENCE } else { Duration::from_secs(1) };
    let mut heard = client.hear(within)?;
    let took = begun.elapsed();
    // It may say why before it ends.
    if let (false, Heard::Line(_)) = (fits, &heard) {
        heard = client.hear(within)?;
    }
    match heard {
        Heard::Line(line) if fits => {
            let answered = String::from_utf8_lossy(&line).contains("-32601");
            client.probe()?;
            sleep(Duration::from_millis(500));
            let left = client.process.memory_kib().saturating_sub(idle);
            let peak = client.process.peak_kib().saturating_sub(idle);
            let what = if answered { "answered" } else { "refused" };
            let text = format!("{what}, peak +{}, +{} after it", mib(peak), mib(left));
            // Beside the buffer, what the allocator keeps of its own.
            Ok((answered && peak <= 64 * MIB_KIB && left <= 2 * MIB_KIB, text))
        }
        Heard::End if !fits => {
            let end = client.end();
            Ok((took < Duration::from_millis(100), format!("{end} after {} ms", took.as_millis())))
        }
        Heard::Silence if !fits => Ok((false, "is read on".to_owned())),
        Heard::End => Ok((false, client.end())),
        heard => Ok((false, format!("{heard:?}").chars().take(100).collect())),
    }
}

/// A line without an end.
pub(in super::super) fn endless(stage: &Stage, subject: Subject) -> Result<Measured> {
    let all: u64 = stage.size(1 << 30, 10_000_000_000);
    let mut client = RawClient::greeted(&mut stage.agent(subject))?;
    let chunk = vec![b'x'; 64 * 1024];
    let (begun, mut written) = (Instant::now(), 0u64);
    let mut given_up = None;
    while written < all {
        if client.write(&chunk, PATIENCE).is_err() {
            break;
        }
        written += chunk.len() as u64;
        if client.process.memory_kib() > TOO_LARGE_KIB {
            given_up = Some("ended by us");
            break;
        }
    }
    let (took, peak) = (begun.elapsed(), client.process.peak_kib());
    let end = given_up
        .map_or_else(|| if written < all { client.end() } else { "all of it taken".to_owned() }, Into::into);
    let text = format!(
        "{} of {} MB taken in {:.1} s, peak {}, {end}",
        written / 1_000_000,
        all / 1_000_000,
        took.as_secs_f64(),
        mib(peak)
    );
    // A pipe and a write beyond the limit.
    Ok(Measured::new(written <= LIMIT as u64 + (1 << 20) && peak <= 64 * MIB_KIB, text))
}

/// Valid lines of 16 MiB that are small things over and over.
pub(in super::super) fn amplifiers(stage: &Stage, subject: Subject) -> Result<Measured> {
    let prompt = r#"{"jsonrpc":"2.0","id":"p","method":"session/prompt","params":{"sessionId":"$SESSION","#;
    let notification = r#"{"jsonrpc":"2.0","method":"_x/y","params":{"#;
    let lines = [
        ("numbers", notification, r#""a":["#, "1,", "1]}}"),
        ("empty objects", notification, r#""a":["#, "{},", "{}]}}"),
        ("empty strings", notification, r#""a":["#, r#""","#, r#"""]}}"#),
        ("escapes", notification, r#""t":""#, "\\u0041", r#""}}"#),
        ("numbers in a prompt's _meta", prompt, r#""prompt":[],"_meta":{"a":["#, "1,", "1]}}}"),
        ("objects in a prompt's _meta", prompt, r#""prompt":[],"_meta":{"a":["#, "{},", "{}]}}}"),
        ("keys in a prompt's _meta", prompt, r#""prompt":[],"_meta":{"#, r#""$N":0,"#, r#""z":0}}}"#),
        (
            "blocks of a prompt",
            prompt,
            r#""prompt":["#,
            r#"{"type":"text","text":""},"#,
            r#"{"type":"text","text":""}]}}"#,
        ),
        ("escapes in a prompt", prompt, r#""prompt":[{"type":"text","text":""#, "\\u0041", r#""}]}}"#),
    ];
    let size = stage.size(LIMIT / 4, LIMIT);
    let (mut texts, mut met) = (Vec::new(), true);
    for (name, head, opening, unit, tail) in lines {
        let outcome = amplifier(stage, subject, size, [head, opening, unit, tail]);
        texts.push(match outcome {
            Ok(factor) => {
                met &= factor <= 4.0;
                format!("{name} {factor:.1}")
            }
            Err(error) => {
                met = false;
                format!("{name} {error}")
            }
        });
    }
    Ok(Measured::new(met, format!("times the line: {}", texts.join(", "))))
}

/// How many times its own size a line takes.
fn amplifier(
    stage: &Stage,
    subject: Subject,
    size: usize,
    [head, opening, unit, tail]: [&str; 4],
) -> Result<f64> {
    let mut client = RawClient::greeted(&mut stage.agent(subject))?;
    let session = client.new_session()?;
    let mut line = format!("{}{opening}", head.replace("$SESSION", &session));
    for number in 0.. {
        if line.len() + unit.len() + 8 + tail.len() > size {
            break;
        }
        match unit.split_once("$N") {
            Some((before, after)) => line.push_str(&format!("{before}{number:x}{after}")),
            None => line.push_str(unit),
        }
    }
    line.push_str(tail);
    let length = line.len() as f64 / 1024.0;
    line.push('\n');
    let idle = client.process.memory_kib();
    // It is memory that is measured here: what reads slowly may take its time.
    client.write(line.as_bytes(), READ_WITHIN)?;
    let (probe, id) = client.request("_probe", &json!({}));
    client.write(&probe, READ_WITHIN)?;
    client.answer(id, READ_WITHIN)?;
    // What it makes of a prompt may come after the answer to the probe.
    sleep(Duration::from_millis(300));
    Ok(client.process.peak_kib().saturating_sub(idle) as f64 / length)
}
