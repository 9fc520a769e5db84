//! A proxy that records lines and forwards bytes unchanged.

use std::io;

use duologue_rpc::{Limits, Transport};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::format::Side;
use crate::record::line_splitter::{LineSplitter, SplitLine};
use crate::record::queue::QueuedEvent;
use crate::record::recorder::Recorder;

/// The size of a read: the capacity of a pipe.
const CHUNK: usize = 64 * 1024;

/// Forwards bytes between a client and an agent, in both directions, and records their lines. Returns once both
/// sides have ended. If one side ends, its output is closed and the other direction goes on.
///
/// Bytes are forwarded as they arrive, including a prompt without a line feed. A line without an end is
/// recorded when its direction ends. The end of a line is forwarded only after its record is with the
/// operating system. So each line that the other side has received is in the file, even if this process is
/// killed, and a slow disk delays the connection. A [`lossy`](crate::RecorderBuilder::lossy) recorder never
/// delays it, and may lose the last records when it is killed.
///
/// A line of more than 16 MiB, the limit of our connections, is forwarded and recorded as a
/// [`Dropped`](crate::RecordEvent::Dropped) with its length.
///
/// ```
/// use duologue_rpc::Transport;
/// use duologue_transcript::{Recorder, proxy};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// let recorder = Recorder::create(folder.path().join("talk.jsonl"))?;
/// let client = Transport::new(&b"{\"id\":1}\r\nno end"[..], tokio::io::sink());
/// let agent = Transport::new(&b""[..], tokio::io::sink());
/// proxy(client, agent, &recorder).await?;
/// recorder.finish().await?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// If a stream cannot be read or written. Both directions have ended then. A failed recording is not an
/// error here, see [`Recorder::stopped`].
///
/// # Cancel safety
///
/// If the future is dropped, bytes may have been read and recorded without having been written.
pub async fn proxy(client: Transport, agent: Transport, recorder: &Recorder) -> io::Result<()> {
    let (from_client, to_client) = client.into_split();
    let (from_agent, to_agent) = agent.into_split();
    let (to_agent, to_client) = tokio::join!(
        forward(Side::Client, from_client, to_agent, recorder),
        forward(Side::Agent, from_agent, to_client, recorder),
    );
    to_agent.and(to_client)
}

/// Forwards one direction of a [`proxy`]: the output of `side` until it ends, then closes `to`. For callers
/// that act on the end of one side.
///
/// # Errors
///
/// If a stream cannot be read or written.
///
/// # Cancel safety
///
/// As [`proxy`].
pub async fn forward(
    side: Side,
    from: impl AsyncRead + Unpin,
    to: impl AsyncWrite + Unpin,
    recorder: &Recorder,
) -> io::Result<()> {
    Forwarder::new(recorder, Some(side)).run(from, to).await
}

/// Forwards the stderr of an agent and records its lines.
///
/// # Errors
///
/// If a stream cannot be read or written.
///
/// # Cancel safety
///
/// As [`proxy`].
pub async fn forward_stderr(
    from: impl AsyncRead + Unpin,
    to: impl AsyncWrite + Unpin,
    recorder: &Recorder,
) -> io::Result<()> {
    Forwarder::new(recorder, None).run(from, to).await
}

/// Records what is written to it as the agent's stderr; see [`Recorder::stderr_writer`].
#[derive(Debug)]
pub struct StderrWriter {
    recorder: Recorder,
    lines: LineSplitter,
}

impl StderrWriter {
    pub(super) fn new(recorder: Recorder) -> Self {
        StderrWriter { recorder, lines: line_splitter() }
    }
}

/// Records a line. A line of a full queue is counted instead, since nothing can wait here.
fn record_now(recorder: &Recorder, piece: SplitLine<'_>) {
    match piece {
        SplitLine::Line(line, _) => recorder.stderr(line),
        SplitLine::TooLong(_) => record(recorder, None, &piece),
    }
}

impl io::Write for StderrWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.lines.feed(bytes, |piece| record_now(&self.recorder, piece));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for StderrWriter {
    fn drop(&mut self) {
        self.lines.end(|piece| record_now(&self.recorder, piece));
    }
}

/// Returns a splitter for lines as long as those of the protocol. The carriage return does not count.
fn line_splitter() -> LineSplitter {
    LineSplitter::new(Limits::default().frame_bytes + 1)
}

/// One direction of a proxy.
struct Forwarder<'a> {
    recorder: &'a Recorder,
    lines: LineSplitter,
    /// The side that writes; `None` for stderr.
    side: Option<Side>,
    /// True if the input has ended or failed. If the output fails, the side may go on.
    ended: bool,
}

/// Records the forwarded part of an unfinished line, also if the future is dropped.
impl Drop for Forwarder<'_> {
    fn drop(&mut self) {
        let (recorder, side) = (self.recorder, self.side);
        self.lines.end(|piece| record(recorder, side, &piece));
    }
}

impl<'a> Forwarder<'a> {
    fn new(recorder: &'a Recorder, side: Option<Side>) -> Self {
        Forwarder { recorder, lines: line_splitter(), side, ended: false }
    }

    async fn run(
        mut self,
        mut from: impl AsyncRead + Unpin,
        mut to: impl AsyncWrite + Unpin,
    ) -> io::Result<()> {
        let recorder = self.recorder;
        let side = self.side;
        let passed = self.pass(&mut from, &mut to).await;
        let ended = self.ended;
        drop(self);
        if let (Some(side), true) = (side, ended) {
            recorder.eof(side);
        }
        recorder.ahead().await;
        // The reader may have left already.
        let _ = to.shutdown().await;
        passed
    }

    /// Forwards until the input ends, or one of both fails.
    async fn pass(
        &mut self,
        from: &mut (impl AsyncRead + Unpin),
        to: &mut (impl AsyncWrite + Unpin),
    ) -> io::Result<()> {
        let (recorder, side) = (self.recorder, self.side);
        let mut buffer = vec![0; CHUNK];
        loop {
            let bytes = match from.read(&mut buffer).await {
                Ok(0) => {
                    self.ended = true;
                    return Ok(());
                }
                Ok(count) => buffer.get(..count).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    self.ended = true;
                    return Err(error);
                }
            };
            if self.lines.feed(bytes, |piece| record(recorder, side, &piece)) {
                recorder.ahead().await;
            }
            to.write_all(bytes).await?;
            to.flush().await?;
        }
    }
}

fn record(recorder: &Recorder, side: Option<Side>, piece: &SplitLine<'_>) {
    match (*piece, side) {
        (SplitLine::Line(bytes, end), Some(from)) => {
            recorder.push(QueuedEvent::Line { from, end, object: false }, bytes)
        }
        (SplitLine::Line(bytes, _), None) => recorder.push(QueuedEvent::Stderr, bytes),
        (SplitLine::TooLong(bytes), _) => recorder.push(QueuedEvent::Dropped { lines: 1, bytes }, &[]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A carriage return before the end does not count.
    #[test]
    fn a_line_is_as_long_as_a_message_may_be() {
        let longest = Limits::default().frame_bytes;
        for (length, is_line) in [(longest, true), (longest + 1, false)] {
            let line = [vec![b'x'; length].as_slice(), b"\r\n"].concat();
            let mut found = Vec::new();
            line_splitter().feed(&line, |piece| found.push(matches!(piece, SplitLine::Line(..))));
            assert_eq!(found, [is_line], "{length}");
        }
    }
}
