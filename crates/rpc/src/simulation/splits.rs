//! Splits of the input: the messages do not depend on them, and a dropped read loses no bytes.

use std::pin::pin;
use std::task::Poll;

use fastrand::Rng;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::wire::wire;
use super::{measured, number, play, replayable, seed};
use crate::limits::Limits;
use crate::line_buffer::LineBuffer;
use crate::message::RpcMessage;

/// Returns lines of every shape, including long ones and ones with other line separators.
fn lines(rng: &mut Rng) -> Vec<Vec<u8>> {
    let shapes = [
        r#"{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"text":"hi \u2028 é \ud83d"}}"#,
        "{\"jsonrpc\":\"2.0\",\"method\":\"session/update\",\"params\":{\"text\":\"a\u{2028}b\u{85}c \u{1f600}\"}}",
        r#"{"jsonrpc":"2.0","id":"1","result":{"a":[1,2,{"b":null}]}}"#,
        r#"{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"m"}}"#,
        "\u{feff}{\"jsonrpc\":\"2.0\",\"method\":\"a\"}",
        "npm WARN deprecated",
        "[]",
        "",
        " \t",
    ];
    let line = |rng: &mut Rng| {
        let mut line = rng.choice(&shapes).unwrap_or(&"").as_bytes().to_vec();
        if rng.u8(0..4) == 0 {
            line.push(b'\r');
        }
        line
    };
    let mut lines: Vec<_> = (0..rng.usize(1..12)).map(|_| line(rng)).collect();
    if rng.u8(0..200) == 0 {
        let long = "x".repeat(rng.usize(60_000..140_000));
        lines.push(format!(r#"{{"jsonrpc":"2.0","id":2,"result":"{long}"}}"#).into_bytes());
    }
    lines
}

/// Describes the decoded message of a line.
fn read(line: &[u8]) -> String {
    format!("{:?}", RpcMessage::read(line, &Limits::default()))
}

#[test]
fn any_split_gives_equal_messages() {
    let splits = number("DUOLOGUE_RUNS").unwrap_or(3000);
    let first = seed();
    let mut messages = 0;
    for seed in (0..splits).map(|run| first.wrapping_add(run)) {
        messages += replayable("splits::any_split", seed, 1, || Ok(split(seed)));
    }
    measured(format_args!("{splits} splits, {messages} lines, each read as it was sent"));
}

/// Splits the bytes of some lines anywhere. Returns the number of lines.
fn split(seed: u64) -> u64 {
    let mut rng = Rng::with_seed(seed);
    let lines = lines(&mut rng);
    let mut bytes = lines.join(&b'\n');
    bytes.push(b'\n');
    let mut rest = bytes.as_slice();
    let mut buffer = LineBuffer::new(1 << 24);
    let mut seen = lines.iter();
    let most = *rng.choice(&[1, 2, 5, 100, 100_000]).unwrap_or(&1);
    let mut messages = 0;
    while !rest.is_empty() {
        let space = buffer.space();
        // Single bytes of a long line test no more than larger pieces.
        let most = if rest.len() > 20_000 { 40_000 } else { most };
        let count = rng.usize(1..=most.min(space.len()).min(rest.len()));
        space[..count].copy_from_slice(&rest[..count]);
        buffer.filled(count);
        rest = &rest[count..];
        while let Some(line) = buffer.next_line().expect("no line is too long") {
            messages += 1;
            let sent = seen.next().map(|line| read(line));
            assert_eq!(Some(read(line)), sent);
        }
    }
    assert_eq!(seen.next(), None);
    messages
}

#[test]
fn a_read_that_is_dropped_at_every_poll_loses_nothing() {
    let rounds = number("DUOLOGUE_RUNS").unwrap_or(1).min(100);
    let first = seed();
    let mut dropped = 0;
    for seed in (0..rounds).map(|round| first.wrapping_add(round)) {
        dropped += replayable("splits::a_read", seed, 1, || play(dropping(seed)));
    }
    measured(format_args!("{rounds} rounds of 200 lines of 64 KiB, {dropped} reads dropped, 0 bytes lost"));
}

/// Reads 200 long lines with futures that live for one poll each.
async fn dropping(seed: u64) -> Result<u64, String> {
    const LINES: usize = 200;
    let mut rng = Rng::with_seed(seed);
    let (there, here, _) = wire(&mut rng, 8000);
    let (_, mut output) = there.into_split();
    let (mut input, _) = here.into_split();
    let line = |number: usize| format!("{number} {}\n", "x".repeat(64 * 1024));
    let writing = tokio::spawn(async move {
        for number in 0..LINES {
            output.write_all(line(number).as_bytes()).await?;
        }
        output.shutdown().await
    });
    let mut buffer = LineBuffer::new(1 << 20);
    let (mut next, mut dropped) = (0, 0);
    loop {
        let polled = {
            let mut reading = pin!(input.read(buffer.space()));
            futures_util::poll!(reading.as_mut())
        };
        match polled {
            Poll::Pending => {
                dropped += 1;
                tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            }
            Poll::Ready(Ok(0)) => break,
            Poll::Ready(Ok(count)) => buffer.filled(count),
            Poll::Ready(Err(error)) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Poll::Ready(Err(error)) => return Err(error.to_string()),
        }
        while let Some(read) = buffer.next_line().map_err(|_| "a line got too long")? {
            if read != line(next).trim_end().as_bytes() {
                return Err(format!("line {next} is another one"));
            }
            next += 1;
        }
    }
    writing.await.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
    if next == LINES { Ok(dropped) } else { Err(format!("{next} of {LINES} lines")) }
}
