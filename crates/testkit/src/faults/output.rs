//! What is spoiled on the way out: the bytes of a frame, their pace, and what stands between frames.

use std::future::pending;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use duologue_agent::rpc::CancellationToken;
use fastrand::Rng;
use serde_json::{Value, json};
use tokio::io::{AsyncWrite, AsyncWriteExt as _};

use super::list::{Faults, Pieces};
use super::process::{self, Fate};

/// Between two pieces, so that they are not read as one.
const BETWEEN_PIECES: Duration = Duration::from_micros(100);
/// More than this is not collected before it is written.
const COLLECTED: usize = 16 << 20;
/// Stands for half a pair until the line is text, which cannot have it.
const HALF: &str = "<duologue-mock-half-a-pair>";

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

/// The agent's stdout.
pub(super) struct Out {
    /// `None` once it is closed.
    pipe: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    faults: Arc<Faults>,
    rng: Rng,
    /// Frames written.
    count: usize,
    /// What waits for a frame that somebody waits for, or for the end.
    collected: Vec<u8>,
    deaf: CancellationToken,
}

impl Out {
    pub(super) fn new(
        pipe: Box<dyn AsyncWrite + Send + Unpin>,
        faults: Arc<Faults>,
        seed: u64,
        deaf: CancellationToken,
    ) -> Self {
        let rng = Rng::with_seed(seed);
        Out { pipe: Some(pipe), faults, rng, count: 0, collected: Vec::new(), deaf }
    }

    /// What comes before the first frame.
    pub(super) async fn begin(&mut self) -> io::Result<()> {
        if self.faults.noise {
            for line in NOISE {
                self.noise(line).await?;
            }
        }
        self.fate().await
    }

    /// Writes a message.
    pub(super) async fn frame(&mut self, mut frame: Value) -> io::Result<()> {
        let waits = frame.get("id").is_none();
        if self.faults.unknown {
            add_unknown(&mut frame);
        }
        if self.faults.surrogates && cut_text(&mut frame) {
            return self.line(&frame.to_string().replace(HALF, "\\ud83d"), waits).await;
        }
        self.line(&frame.to_string(), waits).await
    }

    /// Writes a message as it is. It may wait for others if nobody waits for it.
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
        self.fate().await
    }

    /// Writes so many bytes of a line, never its end, and nothing after it.
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

    /// Writes what still waits for others: nothing more comes.
    pub(super) async fn end(&mut self) -> io::Result<()> {
        let Some(pipe) = &mut self.pipe else { return Ok(()) };
        pipe.write_all(&self.collected).await?;
        self.collected.clear();
        pipe.flush().await
    }

    async fn noise(&mut self, line: &[u8]) -> io::Result<()> {
        self.write(&[line, b"\n"].concat(), true).await
    }

    async fn write(&mut self, bytes: &[u8], may_wait: bool) -> io::Result<()> {
        let Some(pipe) = &mut self.pipe else { return Ok(()) };
        match self.faults.fragment {
            None if self.faults.coalesce => {
                self.collected.extend_from_slice(bytes);
                if !may_wait || self.collected.len() > COLLECTED {
                    pipe.write_all(&self.collected).await?;
                    self.collected.clear();
                }
            }
            None => pipe.write_all(bytes).await?,
            Some(pieces) => {
                let mut rest = bytes;
                while !rest.is_empty() {
                    let length = match pieces {
                        Pieces::Of(length) => length,
                        Pieces::Random => self.rng.usize(1..=16),
                    };
                    let (piece, after) = rest.split_at(length.min(rest.len()));
                    pipe.write_all(piece).await?;
                    pipe.flush().await?;
                    // Not the runtime's: its shortest is ten times as long.
                    std::thread::sleep(BETWEEN_PIECES);
                    rest = after;
                }
            }
        }
        pipe.flush().await
    }

    /// What becomes of the process now.
    async fn fate(&mut self) -> io::Result<()> {
        match process::after(self.count, &self.faults) {
            Fate::Live => Ok(()),
            Fate::Hang => pending().await,
            Fate::Deaf => {
                self.deaf.cancel();
                Ok(())
            }
            Fate::CloseStdout => {
                self.end().await?;
                self.pipe = None;
                Ok(())
            }
        }
    }
}

/// Fields nobody knows: around the message, in it, and deeper inside.
fn add_unknown(frame: &mut Value) {
    for place in ["", "/params", "/result", "/params/update", "/params/update/content"] {
        if let Some(Value::Object(fields)) = frame.pointer_mut(place) {
            fields.insert("duologueMockUnknown".into(), json!([{ "a": null }]));
        }
    }
}

/// Puts the mark at the end of an update's text.
fn cut_text(frame: &mut Value) -> bool {
    match frame.pointer_mut("/params/update/content/text") {
        Some(Value::String(text)) => {
            text.push_str(HALF);
            true
        }
        _ => false,
    }
}
