//! Faults of the output: damaged bytes, their pace, and noise between frames.

use std::future::pending;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use duologue_agent::rpc::CancellationToken;
use fastrand::Rng;
use serde_json::{Value, json};
use tokio::io::{AsyncWrite, AsyncWriteExt as _};

use super::list::{Faults, FragmentSize};
use super::process::{self, AfterFrame};

/// The time between two fragments to another process, so that they are not read as one.
const FRAGMENT_TIME: Duration = Duration::from_micros(100);
/// The bytes that are buffered at most before they are written.
const MAX_BUFFERED: usize = 16 << 20;
/// Marks half a surrogate pair until the line is encoded, since a string cannot hold one.
const HALF_PAIR_MARK: &str = "<duologue-mock-half-a-pair>";

/// Lines that are no messages.
const NOISE: &[&[u8]] = &[
    b"Welcome to the mock agent!",
    b"\x1b[1;32mok\x1b[0m ready in \x1b[3m12 ms\x1b[0m",
    b"2026-01-02T03:04:05Z INFO mock: a log line that begins with a digit",
    b"{\"level\":\"info\",\"msg\":\"a log line in JSON\"}",
    b"[1/3] a list that is none",
    b"42",
    b"",
    b"  \t",
    b"\r",
    b"\xef\xbb\xbf",
    b"caf\xe9 in another encoding, and \xff\xfe",
    b"cut in the middle of a character: \xe2\x82",
];

/// The pause between two fragments of a line, in which the client reads the first one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FragmentPause {
    /// The client is another process: the thread sleeps. A timer of the runtime would wait ten times as long.
    Sleep,
    /// The client is in this process: its task runs, also on a runtime of one thread.
    Yield,
}

/// The agent's output, with the faults that damage it.
pub(super) struct FaultyOutput {
    /// `None` after it was closed.
    pipe: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    faults: Arc<Faults>,
    fragment_pause: FragmentPause,
    rng: Rng,
    /// The number of written frames.
    count: usize,
    /// Notifications that wait for the next response or request, or for the end.
    buffered: Vec<u8>,
    deaf: CancellationToken,
}

impl FaultyOutput {
    pub(super) fn new(
        pipe: Box<dyn AsyncWrite + Send + Unpin>,
        faults: Arc<Faults>,
        fragment_pause: FragmentPause,
        deaf: CancellationToken,
    ) -> Self {
        let rng = Rng::with_seed(faults.seed);
        FaultyOutput { pipe: Some(pipe), faults, fragment_pause, rng, count: 0, buffered: Vec::new(), deaf }
    }

    /// Writes the noise before the first frame.
    pub(super) async fn begin(&mut self) -> io::Result<()> {
        if self.faults.noise {
            for line in NOISE {
                self.noise(line).await?;
            }
        }
        self.finish_frame().await
    }

    /// Writes a message.
    pub(super) async fn frame(&mut self, mut frame: Value) -> io::Result<()> {
        let waits = frame.get("id").is_none();
        if self.faults.unknown {
            add_unknown(&mut frame);
        }
        if self.faults.surrogates && cut_text(&mut frame) {
            return self.line(&frame.to_string().replace(HALF_PAIR_MARK, "\\ud83d"), waits).await;
        }
        self.line(&frame.to_string(), waits).await
    }

    /// Writes an encoded message. `may_wait` allows it to be buffered.
    pub(super) async fn line(&mut self, line: &str, may_wait: bool) -> io::Result<()> {
        if self.faults.noise && self.count > 0 && self.rng.bool() {
            let noise = self.rng.choice(NOISE).copied().unwrap_or_default();
            self.noise(noise).await?;
        }
        if let Some(time) = self.faults.slow {
            tokio::time::sleep(time).await;
        }
        if self.faults.torn == Some(self.count + 1) {
            let half = line.as_bytes().get(..line.len() / 2).unwrap_or_default();
            self.write(half, false).await?;
            process::torn(self.count + 1);
        }
        let mut bytes = Vec::with_capacity(line.len() + 8);
        if self.faults.bom {
            bytes.extend_from_slice(b"\xef\xbb\xbf");
        }
        bytes.extend_from_slice(line.as_bytes());
        bytes.extend_from_slice(if self.faults.crlf { b"\r\n" } else { b"\n" });
        self.write(&bytes, may_wait).await?;
        self.count += 1;
        self.finish_frame().await
    }

    /// Writes `bytes` of a line without its end, and then hangs.
    pub(super) async fn endless(&mut self, mut bytes: usize) -> io::Result<()> {
        let text = "x".repeat(64 << 10);
        let begin = r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":""#;
        self.write(begin.as_bytes(), false).await?;
        bytes = bytes.saturating_sub(begin.len());
        while bytes > 0 {
            let piece = text.as_bytes().get(..bytes.min(text.len())).unwrap_or_default();
            self.write(piece, false).await?;
            bytes -= piece.len();
        }
        pending().await
    }

    /// Writes the buffered notifications and closes the output.
    pub(super) async fn close(&mut self) -> io::Result<()> {
        let Some(mut pipe) = self.pipe.take() else { return Ok(()) };
        pipe.write_all(&self.buffered).await?;
        self.buffered.clear();
        // Half a connection in memory does not close when it is dropped.
        pipe.shutdown().await
    }

    /// Writes a line that is no message.
    pub(super) async fn noise(&mut self, line: &[u8]) -> io::Result<()> {
        self.write(&[line, b"\n"].concat(), true).await
    }

    async fn write(&mut self, bytes: &[u8], may_wait: bool) -> io::Result<()> {
        let Some(pipe) = &mut self.pipe else { return Ok(()) };
        match self.faults.fragment {
            None if self.faults.coalesce => {
                self.buffered.extend_from_slice(bytes);
                if !may_wait || self.buffered.len() > MAX_BUFFERED {
                    pipe.write_all(&self.buffered).await?;
                    self.buffered.clear();
                }
            }
            None => pipe.write_all(bytes).await?,
            Some(pieces) => {
                let mut rest = bytes;
                while !rest.is_empty() {
                    let length = match pieces {
                        FragmentSize::Of(length) => length,
                        FragmentSize::Random => self.rng.usize(1..=16),
                    };
                    let (piece, after) = rest.split_at(length.min(rest.len()));
                    pipe.write_all(piece).await?;
                    pipe.flush().await?;
                    match self.fragment_pause {
                        FragmentPause::Sleep => std::thread::sleep(FRAGMENT_TIME),
                        FragmentPause::Yield => tokio::task::yield_now().await,
                    }
                    rest = after;
                }
            }
        }
        pipe.flush().await
    }

    /// Applies the faults that act after a frame.
    async fn finish_frame(&mut self) -> io::Result<()> {
        match process::after(self.count, &self.faults) {
            AfterFrame::Live => Ok(()),
            AfterFrame::Hang => pending().await,
            AfterFrame::Deaf => {
                self.deaf.cancel();
                Ok(())
            }
            AfterFrame::CloseStdout => self.close().await,
        }
    }
}

/// Adds unknown fields to the message, its params and their parts.
fn add_unknown(frame: &mut Value) {
    for place in ["", "/params", "/result", "/params/update", "/params/update/content"] {
        if let Some(Value::Object(fields)) = frame.pointer_mut(place) {
            fields.insert("duologueMockUnknown".into(), json!([{ "a": null }]));
        }
    }
}

/// Appends the mark to the text of an update. Returns false if there is none.
fn cut_text(frame: &mut Value) -> bool {
    match frame.pointer_mut("/params/update/content/text") {
        Some(Value::String(text)) => {
            text.push_str(HALF_PAIR_MARK);
            true
        }
        _ => false,
    }
}
