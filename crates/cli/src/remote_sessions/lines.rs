//! The lines of one direction.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use duologue_rpc::Limits;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};
use tokio::sync::Notify;

/// The bytes that are read at once, and the bytes that are kept of a line over the limit.
const CHUNK: usize = 64 << 10;
/// Limit on the bytes of the client that wait while the connection is replaced.
const WAITING_BYTES: usize = 1 << 20;

/// The error of a line.
#[derive(Debug)]
pub(super) enum LineError {
    /// A line is longer than the limit, and was skipped.
    TooLong {
        /// Its first bytes, which may have its id.
        beginning: Vec<u8>,
        limit: usize,
    },
    /// Nothing can be read any more.
    Io(io::Error),
}

impl From<LineError> for io::Error {
    fn from(error: LineError) -> Self {
        match error {
            LineError::TooLong { limit, .. } => {
                let error = format!("a line is longer than {limit} bytes");
                io::Error::new(io::ErrorKind::InvalidData, error)
            }
            LineError::Io(error) => error,
        }
    }
}

/// The lines of one direction.
pub(super) struct RelayLines {
    reader: BufReader<Box<dyn AsyncRead + Send + Unpin>>,
    /// The beginning of the line that is being read.
    line: Vec<u8>,
    is_too_long: bool,
    limit: usize,
    /// Lines that were read while nobody could receive them.
    waiting: VecDeque<Result<Vec<u8>, LineError>>,
    waiting_bytes: usize,
    pub(super) has_ended: bool,
    /// Is notified at the end.
    pub(super) end: Arc<Notify>,
}

impl RelayLines {
    pub(super) fn new(reader: impl AsyncRead + Send + Unpin + 'static) -> Self {
        RelayLines {
            reader: BufReader::with_capacity(CHUNK, Box::new(reader)),
            line: Vec::new(),
            is_too_long: false,
            limit: Limits::default().frame_bytes,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            has_ended: false,
            end: Arc::default(),
        }
    }

    /// Returns the next line without its line end, `None` at the end.
    ///
    /// # Errors
    ///
    /// [`LineError`]. The lines behind one that is too long can be read.
    ///
    /// # Cancel safety
    ///
    /// No line is lost if the future is dropped.
    pub(super) async fn next(&mut self) -> Result<Option<Vec<u8>>, LineError> {
        match self.waiting.pop_front() {
            Some(line) => {
                self.waiting_bytes -= cost(&line);
                line.map(Some)
            }
            None => self.read().await,
        }
    }

    /// Returns the next line that was read already. The next read has the error of a line that is too long.
    pub(super) fn buffered(&mut self) -> Option<Vec<u8>> {
        if !self.waiting.is_empty() {
            return None;
        }
        let line = self.take_line()?;
        if line.is_err() {
            self.keep(line);
            return None;
        }
        line.ok()
    }

    /// Waits until the next line can be taken at once, or the end is reached.
    pub(super) async fn wait_for_line(&mut self) {
        if self.waiting.is_empty() && !self.has_ended {
            match self.read().await {
                Ok(Some(line)) => self.keep(Ok(line)),
                Ok(None) => {}
                Err(error) => self.keep(Err(error)),
            }
        }
    }

    /// Waits for the end. Lines before it are kept, and nothing is read above a limit.
    pub(super) async fn wait_for_end(&mut self) {
        while self.waiting_bytes < WAITING_BYTES {
            match self.read().await {
                Ok(None) | Err(LineError::Io(_)) => return,
                Ok(Some(line)) => self.keep(Ok(line)),
                Err(error) => self.keep(Err(error)),
            }
        }
        std::future::pending().await
    }

    fn keep(&mut self, line: Result<Vec<u8>, LineError>) {
        self.waiting_bytes += cost(&line);
        self.waiting.push_back(line);
    }

    async fn read(&mut self) -> Result<Option<Vec<u8>>, LineError> {
        loop {
            if let Some(line) = self.take_line() {
                return line.map(Some);
            }
            if self.has_ended {
                // The last line counts without its line end.
                return (!self.line.is_empty()).then(|| self.complete()).transpose();
            }
            let read = self.reader.fill_buf().await;
            self.has_ended = !matches!(read, Ok([_, ..]));
            if self.has_ended {
                self.end.notify_one();
            }
            read.map_err(LineError::Io)?;
        }
    }

    /// Takes the bytes that were read, up to the end of a line. Returns the line if it is complete.
    fn take_line(&mut self) -> Option<Result<Vec<u8>, LineError>> {
        let read = self.reader.buffer();
        let end = read.iter().position(|byte| *byte == b'\n');
        let part = read.get(..end.unwrap_or(read.len())).unwrap_or_default();
        let count = part.len() + usize::from(end.is_some());
        if !self.is_too_long {
            // The carriage return before a line feed does not count.
            let room = (self.limit + 1).saturating_sub(self.line.len());
            self.is_too_long = part.len() > room;
            self.line.extend_from_slice(part.get(..room).unwrap_or(part));
        }
        self.reader.consume(count);
        end?;
        Some(self.complete())
    }

    /// Takes the line that was read.
    fn complete(&mut self) -> Result<Vec<u8>, LineError> {
        let mut line = std::mem::take(&mut self.line);
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        if std::mem::take(&mut self.is_too_long) || line.len() > self.limit {
            line.truncate(CHUNK);
            line.shrink_to_fit();
            return Err(LineError::TooLong { beginning: line, limit: self.limit });
        }
        Ok(line)
    }
}

/// Returns the bytes of a line that waits.
fn cost(line: &Result<Vec<u8>, LineError>) -> usize {
    line.as_ref().map_or(CHUNK, Vec::len)
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    /// Reads `text` in pieces of at most `piece` bytes. Returns its lines, and the beginnings of those that are too long.
    async fn split(text: &'static [u8], limit: usize, piece: usize) -> Vec<Result<String, String>> {
        let (mut writer, reader) = tokio::io::duplex(piece);
        tokio::spawn(async move { writer.write_all(text).await });
        let mut lines = RelayLines { limit, ..RelayLines::new(reader) };
        let mut all = Vec::new();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        loop {
            match lines.next().await {
                Ok(Some(line)) => all.push(Ok(text(line))),
                Ok(None) => return all,
                Err(LineError::TooLong { beginning, .. }) => all.push(Err(text(beginning))),
                Err(LineError::Io(error)) => panic!("{error}"),
            }
        }
    }

    #[tokio::test]
    async fn the_lines_behind_a_long_one_are_read() {
        let text = b"a\r\n\n0123456789\r\n0123456789x\nb\n0123456789 and many more\r\nc\nno end";
        for piece in [1, 3, 7, 1024] {
            let lines = split(text, 10, piece).await;
            let ends: Vec<_> = lines.iter().map(|line| line.as_deref().map_err(String::as_str)).collect();
            let expected = [
                Ok("a"),
                Ok(""),
                Ok("0123456789"),
                Err("0123456789x"),
                Ok("b"),
                Err("0123456789 "),
                Ok("c"),
                Ok("no end"),
            ];
            assert_eq!(ends, expected, "{piece}");
        }
    }

    #[tokio::test]
    async fn lines_before_the_end_are_kept() {
        let mut lines = RelayLines { limit: 3, ..RelayLines::new(&b"abc\nabcd\nab"[..]) };
        lines.wait_for_end().await;
        assert_eq!(lines.buffered(), None);
        assert_eq!(lines.next().await.unwrap().as_deref(), Some(&b"abc"[..]));
        assert!(matches!(lines.next().await, Err(LineError::TooLong { limit: 3, .. })));
        assert_eq!(lines.next().await.unwrap().as_deref(), Some(&b"ab"[..]));
        assert_eq!((lines.next().await.unwrap(), lines.waiting_bytes), (None, 0));
    }
}
