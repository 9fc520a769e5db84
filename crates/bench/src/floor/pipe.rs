//! Both ends of a pipe: lines in, bytes out.

use std::io::{Read, Result, Write};

/// Bytes that are read or written at once.
const AT_ONCE: usize = 64 * 1024;

/// Lines, as they are in the buffer they were read into.
pub(super) struct Lines<R> {
    pipe: R,
    buffer: Vec<u8>,
    /// The start of the next line.
    start: usize,
    /// Up to where there is no end of it.
    scanned: usize,
    end: usize,
}

impl<R: Read> Lines<R> {
    pub(super) fn new(pipe: R) -> Self {
        Lines { pipe, buffer: vec![0; AT_ONCE], start: 0, scanned: 0, end: 0 }
    }

    /// Returns true if the next line is buffered.
    pub(super) fn is_waiting(&self) -> bool {
        memchr::memchr(b'\n', &self.buffer[self.scanned..self.end]).is_none()
    }

    /// The next line without its end; `None` when there are no more.
    pub(super) fn next(&mut self) -> Result<Option<&[u8]>> {
        loop {
            if let Some(at) = memchr::memchr(b'\n', &self.buffer[self.scanned..self.end]) {
                let (start, end) = (self.start, self.scanned + at);
                (self.start, self.scanned) = (end + 1, end + 1);
                return Ok(Some(&self.buffer[start..end]));
            }
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            (self.start, self.scanned) = (0, self.end);
            if self.end == self.buffer.len() {
                self.buffer.resize(2 * self.end, 0);
            }
            match self.pipe.read(&mut self.buffer[self.end..])? {
                0 => return Ok(None),
                count => self.end += count,
            }
        }
    }
}

/// A buffer that is flushed when it is large enough, or on demand.
pub(super) struct Batch<W> {
    pipe: W,
    buffer: Vec<u8>,
}

impl<W: Write> Batch<W> {
    pub(super) fn new(pipe: W) -> Self {
        Batch { pipe, buffer: Vec::with_capacity(AT_ONCE) }
    }

    pub(super) fn write(&mut self, pieces: &[&[u8]]) -> Result<()> {
        for piece in pieces {
            self.buffer.extend_from_slice(piece);
        }
        if self.buffer.len() >= AT_ONCE { self.flush() } else { Ok(()) }
    }

    pub(super) fn flush(&mut self) -> Result<()> {
        if !self.buffer.is_empty() {
            self.pipe.write_all(&self.buffer)?;
            self.pipe.flush()?;
            self.buffer.clear();
        }
        Ok(())
    }
}
