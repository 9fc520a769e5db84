//! Between a client and an agent: bytes pass unchanged, lines are recorded.

use std::io;

use duologue_rpc::{Limits, Transport};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::format::Side;
use crate::record::line_splitter::{LineSplitter, SplitLine};
use crate::record::queue::QueuedEvent;
use crate::record::recorder::Recorder;

/// What is read in one go: as much as a pipe holds.
const CHUNK: usize = 64 * 1024;

/// Passes bytes between a client and an agent, in both directions and unchanged, and records their
/// lines. Returns when both sides have ended; each half is passed on when it ends.
///
/// Bytes are passed on as they come, a prompt without the end of its line included; those are recorded when
/// their line or its direction ends, however it does. What completes a line is
/// held back until its record is with the operating system: a line that the other side has received
/// is in the file, whatever becomes of this process. So a slow disk makes the wire wait; a
/// [`lossy`](crate::RecorderBuilder::lossy) recorder does not, and may lose the last records when it is killed.
///
/// A line of more than 16 MiB, which no connection of ours would take, is passed on and recorded as a
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
/// When a stream cannot be read or written. Both directions have ended then too. A recording that
/// fails is no error here, see [`Recorder::stopped`].
///
/// # Cancel safety
///
/// Bytes that were read, and recorded, may not have been written when the future is dropped.
pub async fn proxy(client: Transport, agent: Transport, recorder: &Recorder) -> io::Result<()> {
    let (from_client, to_client) = client.into_split();
    let (from_agent, to_agent) = agent.into_split();
    let (asked, answered) = tokio::join!(
        forward(Side::Client, from_client, to_agent, recorder),
        forward(Side::Agent, from_agent, to_client, recorder),
    );
    asked.and(answered)
}

/// One direction of a [`proxy`], for those who have to do something when one side ends: passes on what
/// `side` writes until it ends, then ends `to`.
///
/// # Errors
///
/// When a stream cannot be read or written.
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

/// Passes on what an agent writes to stderr, and records its lines.
///
/// # Errors
///
/// When a stream cannot be read or written.
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

/// One direction.
struct Forwarder<'a> {
    recorder: &'a Recorder,
    lines: LineSplitter,
    /// Who writes; none for stderr.
    side: Option<Side>,
}

/// However it ends, what was passed on of an unfinished line is recorded.
impl Drop for Forwarder<'_> {
    fn drop(&mut self) {
        let (recorder, side) = (self.recorder, self.side);
        self.lines.end(|piece| record(recorder, side, &piece));
    }
}

impl<'a> Forwarder<'a> {
    fn new(recorder: &'a Recorder, side: Option<Side>) -> Self {
        // A carriage return is no part of the line.
        Forwarder { recorder, lines: LineSplitter::new(Limits::default().frame_bytes + 1), side }
    }

    async fn run(
        mut self,
        mut from: impl AsyncRead + Unpin,
        mut to: impl AsyncWrite + Unpin,
    ) -> io::Result<()> {
        let recorder = self.recorder;
        let read = self.pass(&mut from, &mut to).await;
        let side = self.side;
        drop(self);
        if let (Some(side), Err(ForwardError::Reading(_)) | Ok(())) = (side, &read) {
            recorder.eof(side);
        }
        recorder.ahead().await;
        // A reader that has left needs no end.
        let _ = to.shutdown().await;
        read.map_err(|(ForwardError::Reading(error) | ForwardError::Writing(error))| error)
    }

    async fn pass(
        &mut self,
        from: &mut (impl AsyncRead + Unpin),
        to: &mut (impl AsyncWrite + Unpin),
    ) -> Result<(), ForwardError> {
        let (recorder, side) = (self.recorder, self.side);
        let mut buffer = vec![0; CHUNK];
        loop {
            let bytes = match from.read(&mut buffer).await {
                Ok(0) => return Ok(()),
                Ok(count) => buffer.get(..count).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(ForwardError::Reading(error)),
            };
            if self.lines.feed(bytes, |piece| record(recorder, side, &piece)) {
                recorder.ahead().await;
            }
            to.write_all(bytes).await.map_err(ForwardError::Writing)?;
            to.flush().await.map_err(ForwardError::Writing)?;
        }
    }
}

/// Where a direction ended, other than by its end.
enum ForwardError {
    /// The side that writes is broken.
    Reading(io::Error),
    /// Nobody takes it; the side that writes may go on.
    Writing(io::Error),
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
