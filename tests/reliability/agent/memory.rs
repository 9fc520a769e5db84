//! The memory that an agent needs for long lines, and for lines that grow when they are parsed.

use std::thread::sleep;
use std::time::{Duration, Instant};

use duologue_agent::Limits;
use duologue_test_support::at_most;
use duologue_tests::process::{TOO_LARGE_KIB, mib};
use duologue_tests::raw_client::{PATIENCE, RawClient, RawOutput};
use duologue_tests::{Failed, Result};
use serde_json::json;

use crate::harness::{self, Measured, play};

const MIB_KIB: u64 = 1024;
/// The time limit for reading one line.
const READ_WITHIN: Duration = Duration::from_secs(60);

/// Twice the longest line that our SDK takes, and 32 MiB.
fn room_kib() -> u64 {
    2 * Limits::default().frame_bytes as u64 / 1024 + 32 * MIB_KIB
}

#[test]
fn r5_agent() {
    play(limit);
}

/// Lines just below, at and above the limit: the answers, and what memory is left taken by them.
fn limit() -> Result<Measured> {
    let (mut texts, mut met) = (Vec::new(), true);
    let limit = Limits::default().frame_bytes;
    for (name, length, fits) in
        [("limit-1", limit - 1, true), ("limit", limit, true), ("limit+1", limit + 1, false)]
    {
        let outcome = Failed::of(line_of(length, fits))?;
        let (well, text) = outcome.unwrap_or_else(|error| (false, error));
        met &= well;
        texts.push(format!("{name} {text}"));
    }
    Ok(Measured::new(met, texts.join("; ")))
}

/// A request of this length, and whether its agent did what it should.
fn line_of(length: usize, fits: bool) -> Result<(bool, String)> {
    let mut client = RawClient::greeted(&mut harness::agent())?;
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
    let within = if fits { PATIENCE } else { at_most(Duration::from_secs(1)) };
    let mut heard = client.hear(within)?;
    let took = begun.elapsed();
    // It may say why before it ends.
    if let (false, RawOutput::Line(_)) = (fits, &heard) {
        heard = client.hear(within)?;
    }
    match heard {
        RawOutput::Line(line) if fits => {
            let answered = String::from_utf8_lossy(&line).contains("-32601");
            client.probe()?;
            sleep(Duration::from_millis(500));
            let left = client.process.memory_kib().saturating_sub(idle);
            let peak = client.process.peak_kib();
            let what = if answered { "answered" } else { "refused" };
            let text = format!("{what}, peak {}, +{} after it", mib(peak), mib(left));
            Ok((answered && peak <= room_kib() && left <= MIB_KIB, text))
        }
        RawOutput::End if !fits => {
            let end = client.end();
            Ok((took < at_most(Duration::from_millis(100)), format!("{end} after {} ms", took.as_millis())))
        }
        RawOutput::Silence if !fits => Ok((false, "is read on".to_owned())),
        RawOutput::End => Ok((false, client.end())),
        heard => Ok((false, format!("{heard:?}").chars().take(100).collect())),
    }
}

#[test]
fn r5_agent_endless() {
    play(endless);
}

/// A line without an end.
fn endless() -> Result<Measured> {
    let all: u64 = harness::size(1 << 30, 10_000_000_000);
    let mut client = RawClient::greeted(&mut harness::agent())?;
    let chunk = vec![b'x'; 64 * 1024];
    let (begun, mut written) = (Instant::now(), 0u64);
    let mut given_up = None;
    while written < all {
        if Failed::of(client.write(&chunk, PATIENCE))?.is_err() {
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
    let limit = Limits::default().frame_bytes as u64;
    Ok(Measured::new(written <= limit + (1 << 20) && peak <= room_kib(), text))
}

/// A line that is the same thing over and over: its name, and its four parts.
type Amplifier = (&'static str, &'static str, &'static str, &'static str, &'static str);

const NOTIFICATION: &str = r#"{"jsonrpc":"2.0","method":"_x/y","params":{"#;
const PROMPT: &str =
    r#"{"jsonrpc":"2.0","id":"it","method":"session/prompt","params":{"sessionId":"$SESSION","#;
const SESSION: &str = r#"{"jsonrpc":"2.0","id":"it","method":"session/new","params":{"cwd":"/tmp","#;

/// Values that no handler parses, and that may be kept as raw text.
const RAW: &[Amplifier] = &[
    ("numbers", NOTIFICATION, r#""a":["#, "1,", "1]}}"),
    ("empty objects", NOTIFICATION, r#""a":["#, "{},", "{}]}}"),
    ("empty strings", NOTIFICATION, r#""a":["#, r#""","#, r#"""]}}"#),
    ("escapes", NOTIFICATION, r#""t":""#, "\\u0041", r#""}}"#),
    ("numbers in a prompt's _meta", PROMPT, r#""prompt":[],"_meta":{"a":["#, "1,", "1]}}}"),
    ("objects in a prompt's _meta", PROMPT, r#""prompt":[],"_meta":{"a":["#, "{},", "{}]}}}"),
    ("keys in a prompt's _meta", PROMPT, r#""prompt":[],"_meta":{"#, r#""$N":0,"#, r#""z":0}}}"#),
    ("escapes in a prompt", PROMPT, r#""prompt":[{"type":"text","text":""#, "\\u0041", r#""}]}}"#),
];

/// Lists that become values of the schema's types.
const TYPED: &[Amplifier] = &[
    (
        "blocks of a prompt",
        PROMPT,
        r#""prompt":["#,
        r#"{"type":"text","text":""},"#,
        r#"{"type":"text","text":""}]}}"#,
    ),
    (
        "links of a prompt",
        PROMPT,
        r#""prompt":["#,
        r#"{"type":"resource_link","name":"","uri":""},"#,
        r#"{"type":"text","text":""}]}}"#,
    ),
    ("folders of a session", SESSION, r#""mcpServers":[],"additionalDirectories":["#, r#""/","#, r#""/"]}}"#),
    (
        "arguments of a server",
        SESSION,
        r#""mcpServers":[{"name":"s","command":"c","env":[],"args":["#,
        r#""","#,
        r#"""]}]}}"#,
    ),
    (
        "environment of a server",
        SESSION,
        r#""mcpServers":[{"name":"s","command":"c","args":[],"env":["#,
        r#"{"name":"","value":""},"#,
        r#"{"name":"","value":""}]}]}}"#,
    ),
    (
        "servers of a session",
        SESSION,
        r#""mcpServers":["#,
        r#"{"name":"","command":"c","args":[],"env":[]},"#,
        r#"{"name":"","command":"c","args":[],"env":[]}]}}"#,
    ),
];

#[test]
fn r6_agent() {
    play(amplifiers);
}

/// Valid lines of 16 MiB that are small things over and over, and the typed ones once more with as many things as our
/// SDK reads in one line, and blanks between them.
fn amplifiers() -> Result<Measured> {
    // Of this size in a short run too: a shorter line may be more times its own size, as few of its values are refused.
    let Limits { frame_bytes: size, values, .. } = Limits::default();
    let dense = RAW.iter().chain(TYPED).map(|line| (line, usize::MAX));
    let lines = dense.chain(TYPED.iter().map(|line| (line, values)));
    let (mut worst, mut over, mut refused, mut dead) = ((0.0, ""), 0, 0, Vec::new());
    let count = lines.clone().count();
    for (line, values) in lines {
        match Failed::of(amplifier((size, values), line))? {
            Ok((factor, well)) => {
                over += usize::from(factor > 4.0);
                refused += usize::from(!well);
                if factor > worst.0 {
                    worst = (factor, line.0);
                }
            }
            Err(error) => dead.push(format!("{}: {error}", line.0)),
        }
    }
    let (most, name) = worst;
    let mut text = format!(
        "at most {most:.1} x the line ({name}), {over} of {count} over 4, {refused} refused, {} connections lost",
        dead.len()
    );
    if let Some(first) = dead.first() {
        text = format!("{text}; such as {first}");
    }
    Ok(Measured::new(over == 0 && dead.is_empty(), text))
}

/// Measures the memory of a line as a multiple of its size. Returns true if it was accepted rather than rejected.
fn amplifier(
    (size, values): (usize, usize),
    &(_, head, opening, unit, tail): &Amplifier,
) -> Result<(f64, bool)> {
    let mut client = RawClient::greeted(&mut harness::agent())?;
    let session = client.new_session()?;
    let mut line = format!("{}{opening}", head.replace("$SESSION", &session));
    // The number of values, and the padding that keeps a line of this size below the limit of values.
    let each = unit.matches(['[', '{', ',']).count().max(1);
    let length = (size / (values.saturating_sub(16) / each).max(1) + 1).max(unit.len());
    let unit = format!("{unit:length$}");
    for number in 0.. {
        if line.len() + unit.len() + 8 + tail.len() > size {
            break;
        }
        match unit.split_once("$N") {
            Some((before, after)) => line.push_str(&format!("{before}{number:x}{after}")),
            None => line.push_str(&unit),
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
    let (mut probed, mut answered, mut well) = (false, head == NOTIFICATION, true);
    while !(probed && answered) {
        let message = client.message(READ_WITHIN)?;
        if message.get("method").is_none() {
            let to_probe = message["id"] == id;
            probed |= to_probe;
            answered |= message["id"] == "it";
            well &= to_probe || message.get("error").is_none();
        }
    }
    // Its reaction to a notification may come after the response to the probe.
    sleep(Duration::from_millis(300));
    Ok((client.process.peak_kib().saturating_sub(idle) as f64 / length, well))
}
