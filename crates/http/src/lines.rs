//! Copies between the lines of a transport and frames.

use std::collections::VecDeque;
use std::future::Future;
use std::io;

use bytes::Bytes;
use duologue_rpc::{Limits, LineBuffer, RpcMessage};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// The bytes that are written at once, if the frames are short.
pub(crate) const BATCH: usize = 64 * 1024;

/// A receiver of the lines of a transport.
pub(crate) trait LineSink {
    /// Waits until more lines may be read.
    fn room(&self) -> impl Future<Output = ()> + Send;

    /// Takes the lines of a read, without their ends. None is blank or longer than the limit. They share the memory of the read,
    /// which is at most about [`BATCH`] bytes unless a line is longer.
    fn lines(&self, lines: impl Iterator<Item = Bytes>);
}

/// A source of lines for a transport.
pub(crate) trait LineSource {
    /// Waits for frames and appends them as lines. Returns false at the end.
    fn next(&self, lines: &mut Vec<u8>) -> impl Future<Output = bool> + Send;
}

/// The end of the lines of a transport before their regular end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LinesError {
    #[error("a line is longer than {limit} bytes")]
    TooLong { limit: usize },
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// Replaces what is not UTF-8, because a text frame cannot carry it. Only an invalid message has such bytes, and its receiver
/// answers it.
pub(crate) fn utf8(line: Bytes) -> Bytes {
    match std::str::from_utf8(&line) {
        Ok(_) => line,
        Err(_) => Bytes::from(String::from_utf8_lossy(&line).into_owned()),
    }
}

/// Passes the lines of a transport to a sink until they end.
pub(crate) async fn read_lines<S: LineSink>(
    mut reader: impl AsyncRead + Unpin,
    limit: usize,
    sink: &S,
) -> Result<(), LinesError> {
    let mut lines = LineBuffer::new(limit);
    let mut lengths = Vec::new();
    loop {
        sink.room().await;
        let count = reader.read(lines.space()).await?;
        if count == 0 {
            // The last line counts without its end if it is whole.
            let rest = lines.rest();
            if matches!(RpcMessage::read(rest, &Limits::default()), Some(Ok(_))) {
                sink.lines(std::iter::once(Bytes::copy_from_slice(rest)));
            }
            return Ok(());
        }
        lines.filled(count);
        let mut read = Vec::new();
        let rest = loop {
            match lines.next_line() {
                Ok(Some(line)) if crate::frame_view::is_blank(line) => {}
                Ok(Some(line)) => {
                    read.extend_from_slice(line);
                    lengths.push(line.len());
                }
                Ok(None) => break Ok(()),
                Err(_) => break Err(LinesError::TooLong { limit }),
            }
        };
        if !lengths.is_empty() {
            read.shrink_to_fit();
            let mut read = Bytes::from(read);
            sink.lines(lengths.drain(..).map(|length| read.split_to(length)));
        }
        rest?;
    }
}

/// Writes the lines of a source to a transport and closes it at their end.
pub(crate) async fn write_lines<S: LineSource>(
    source: &S,
    mut writer: impl AsyncWrite + Unpin,
) -> io::Result<()> {
    let mut lines = Vec::new();
    while source.next(&mut lines).await {
        writer.write_all(&lines).await?;
        writer.flush().await?;
        lines.clear();
        lines.shrink_to(BATCH);
    }
    writer.shutdown().await
}

/// The memory that a frame takes beside its text, so that tiny frames are limited too.
pub(crate) const FRAME_OVERHEAD: usize = 64;

/// A queue of frames that counts their bytes.
#[derive(Default)]
pub(crate) struct FrameQueue {
    frames: VecDeque<Bytes>,
    bytes: usize,
}

impl FrameQueue {
    /// Returns the bytes of all frames, with what they take in the queue.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn push(&mut self, frame: Bytes) {
        self.bytes += frame.len() + FRAME_OVERHEAD;
        self.frames.push_back(frame);
    }

    pub(crate) fn clear(&mut self) {
        *self = FrameQueue::default();
    }

    /// Moves frames into `lines`, at most about 64 KiB of them. Returns false if there were none.
    pub(crate) fn pop_lines(&mut self, lines: &mut Vec<u8>) -> bool {
        let had_frames = !self.frames.is_empty();
        while lines.len() < BATCH
            && let Some(frame) = self.frames.pop_front()
        {
            self.bytes -= frame.len() + FRAME_OVERHEAD;
            lines.extend_from_slice(&frame);
            lines.push(b'\n');
        }
        had_frames
    }
}
