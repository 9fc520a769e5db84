//! Splits a stream of bytes into lines.

use std::ops::Range;

/// The error for a line that is longer than the limit.
#[derive(Debug, PartialEq, Eq)]
pub struct LineTooLong;

/// A buffer that splits a stream of bytes into lines.
///
/// A line ends with `\n` and with nothing else. Each byte is examined once. The buffer begins with 1 KiB, so that an idle
/// stream costs little. It has 64 KiB once a read filled it, grows further for a longer line, and shrinks afterwards.
///
/// A reader reads into [`space`](Self::space), reports the count with [`filled`](Self::filled), and takes lines with
/// [`next_line`](Self::next_line) until there are none. [`feed`](Self::feed) does the same for bytes that are in memory.
///
/// ```
/// use duologue_rpc::LineBuffer;
///
/// let mut buffer = LineBuffer::new(1024);
/// let mut lines = Vec::new();
/// for piece in [&b"first\r\nsec"[..], b"ond\nrest"] {
///     buffer.feed(piece, |line| lines.push(String::from_utf8_lossy(line).into_owned())).expect("short lines");
/// }
/// assert_eq!(lines, ["first", "second"]);
/// assert_eq!(buffer.rest(), b"rest");
/// ```
#[derive(Debug)]
pub struct LineBuffer {
    bytes: Vec<u8>,
    /// The beginning of the first line that was not returned.
    start: usize,
    /// The end of the bytes that were searched for a line end.
    scanned: usize,
    end: usize,
    /// The number of reads in a row that would have fitted into [`IDLE`] bytes.
    small_reads: u8,
    limit: usize,
}

/// The size of a new buffer. It is small in the fuzz target, so that inputs often exceed it.
const IDLE: usize = CHUNK / 64;

/// The size of an empty buffer after a read that needed more than [`IDLE`] bytes.
const CHUNK: usize = if cfg!(fuzzing) { 64 } else { 64 * 1024 };

/// The reads of at most [`IDLE`] bytes after which a buffer shrinks to that size.
const SMALL_READS: u8 = 64;

impl LineBuffer {
    /// Creates a buffer for lines of at most `limit` bytes, without their line end.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        LineBuffer { bytes: vec![0; IDLE], start: 0, scanned: 0, end: 0, small_reads: 0, limit }
    }

    /// Returns space to read into. It is never empty.
    pub fn space(&mut self) -> &mut [u8] {
        if self.bytes.len() < CHUNK && self.end == self.bytes.len() {
            self.resize(CHUNK);
        } else if self.start == self.end {
            self.small_reads = if self.end <= IDLE { self.small_reads.saturating_add(1) } else { 0 };
            if self.bytes.len() > CHUNK {
                self.resize(CHUNK);
            } else if self.small_reads >= SMALL_READS {
                self.resize(IDLE);
            }
            (self.start, self.scanned, self.end) = (0, 0, 0);
        } else if self.start > 0 && self.bytes.len() - self.end < self.bytes.len().min(CHUNK) / 2 {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.scanned, self.end) = (self.scanned - self.start, self.end - self.start);
            self.start = 0;
        }
        if self.end == self.bytes.len() {
            // Two bytes past the limit hold the `\r\n` of a line of exactly the limit. Doubling the capacity keeps the
            // copying linear, and only bytes that will be read into are initialized.
            let most = self.limit.saturating_add(2).max(self.end + 1);
            let grown = (self.end + 4 * CHUNK).min(most);
            if grown > self.bytes.capacity() {
                let capacity = self.bytes.capacity().saturating_mul(2).clamp(grown, most);
                self.bytes.reserve_exact(capacity - self.end);
            }
            self.bytes.resize(grown, 0);
        }
        self.bytes.get_mut(self.end..).unwrap_or_default()
    }

    /// Moves the bytes that were not returned into a buffer of `size` bytes, which holds them.
    fn resize(&mut self, size: usize) {
        if size == self.bytes.len() {
            return;
        }
        let mut bytes = vec![0; size];
        let kept = self.bytes.get(self.start..self.end).unwrap_or_default();
        if let Some(space) = bytes.get_mut(..kept.len()) {
            space.copy_from_slice(kept);
        }
        (self.scanned, self.end) = (self.scanned - self.start, self.end - self.start);
        (self.start, self.bytes) = (0, bytes);
        self.small_reads = 0;
    }

    /// Adds the first `count` bytes of [`space`](Self::space) to the buffer.
    pub fn filled(&mut self, count: usize) {
        self.end = (self.end + count).min(self.bytes.len());
    }

    /// Adds `bytes` and calls `each` for every line that they complete.
    ///
    /// # Errors
    ///
    /// [`LineTooLong`] if a line is longer than the limit. Lines before it have been passed to `each`.
    pub fn feed(&mut self, bytes: &[u8], mut each: impl FnMut(&[u8])) -> Result<(), LineTooLong> {
        self.feed_with(bytes, |buffer| Ok(buffer.next_line()?.map(&mut each).is_some()))
    }

    /// [`feed`](Self::feed), for lines with their line end.
    ///
    /// # Errors
    ///
    /// As [`feed`](Self::feed).
    pub fn feed_with_ends(&mut self, bytes: &[u8], mut each: impl FnMut(&[u8])) -> Result<(), LineTooLong> {
        self.feed_with(bytes, |buffer| Ok(buffer.next_line_with_end()?.map(&mut each).is_some()))
    }

    /// Adds `bytes` and calls `next`, which returns true for a line, until there are no more.
    fn feed_with(
        &mut self,
        mut bytes: &[u8],
        mut next: impl FnMut(&mut Self) -> Result<bool, LineTooLong>,
    ) -> Result<(), LineTooLong> {
        while !bytes.is_empty() {
            let space = self.space();
            let (now, later) = bytes.split_at(space.len().min(bytes.len()));
            if let Some(space) = space.get_mut(..now.len()) {
                space.copy_from_slice(now);
            }
            self.filled(now.len());
            bytes = later;
            while next(self)? {}
        }
        Ok(())
    }

    /// Returns the longest line, in bytes without its line end.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Removes the next complete line and returns it without its line end, which is `\n` or `\r\n`.
    ///
    /// # Errors
    ///
    /// [`LineTooLong`] if the line is longer than the limit, complete or not.
    pub fn next_line(&mut self) -> Result<Option<&[u8]>, LineTooLong> {
        Ok(self.next_line_of_read()?.map(|(line, _)| line))
    }

    /// [`next_line`](Self::next_line), with true if no byte follows the line in the buffer.
    pub(crate) fn next_line_of_read(&mut self) -> Result<Option<(&[u8], bool)>, LineTooLong> {
        let unseen = self.bytes.get(self.scanned..self.end).unwrap_or_default();
        let Some(offset) = memchr::memchr(b'\n', unseen) else {
            self.scanned = self.end;
            let length = self.trimmed(self.start..self.end).len();
            return if length > self.limit { Err(LineTooLong) } else { Ok(None) };
        };
        let line = self.start..self.scanned + offset;
        self.start = line.end + 1;
        self.scanned = self.start;
        let line = self.trimmed(line);
        if line.len() > self.limit {
            return Err(LineTooLong);
        }
        Ok(self.bytes.get(line).map(|line| (line, self.start == self.end)))
    }

    /// Removes the next complete line and returns it with its line end, if the difference between `\n` and `\r\n`
    /// matters.
    ///
    /// # Errors
    ///
    /// As [`next_line`](Self::next_line).
    pub fn next_line_with_end(&mut self) -> Result<Option<&[u8]>, LineTooLong> {
        let start = self.start;
        let is_complete = self.next_line()?.is_some();
        Ok(if is_complete { self.bytes.get(start..self.start) } else { None })
    }

    /// Removes and returns the bytes after the last line end, without a `\r` at their end.
    pub fn rest(&mut self) -> &[u8] {
        let line = self.trimmed(self.start..self.end);
        self.start = self.end;
        self.bytes.get(line).unwrap_or_default()
    }

    /// Removes and returns the bytes after the last line end, all of them.
    pub fn rest_with_end(&mut self) -> &[u8] {
        let line = self.start..self.end;
        self.start = self.end;
        self.bytes.get(line).unwrap_or_default()
    }

    fn trimmed(&self, line: Range<usize>) -> Range<usize> {
        match self.bytes.get(line.clone()) {
            Some([.., b'\r']) => line.start..line.end - 1,
            _ => line,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn split(input: &[u8], limit: usize, step: usize) -> Result<Vec<Vec<u8>>, LineTooLong> {
        let mut buffer = LineBuffer::new(limit);
        let mut lines = Vec::new();
        for piece in input.chunks(step) {
            buffer.feed(piece, |line| lines.push(line.to_vec()))?;
        }
        lines.push(buffer.rest().to_vec());
        Ok(lines)
    }

    proptest! {
        #[test]
        fn any_split_gives_the_same_lines(
            lines in prop::collection::vec(prop::collection::vec(any::<u8>().prop_filter("line end", |b| !b"\r\n".contains(b)), 0..300), 1..20),
            step in 1..700usize,
        ) {
            let input = lines.join(&b'\n');
            prop_assert_eq!(split(&input, 1 << 20, step).unwrap(), lines);
            let (mut buffer, mut whole) = (LineBuffer::new(1 << 20), Vec::new());
            for piece in input.chunks(step) {
                buffer.feed_with_ends(piece, |line| whole.extend_from_slice(line)).unwrap();
            }
            whole.extend_from_slice(buffer.rest_with_end());
            prop_assert_eq!(whole, input);
        }
    }

    #[test]
    fn a_line_can_be_taken_with_its_end() {
        let mut buffer = LineBuffer::new(10);
        buffer.space()[..8].copy_from_slice(b"a\r\n\nb\n\rc");
        buffer.filled(8);
        for line in [&b"a\r\n"[..], b"\n", b"b\n"] {
            assert_eq!(buffer.next_line_with_end(), Ok(Some(line)));
        }
        assert_eq!(buffer.next_line_with_end(), Ok(None));
        assert_eq!(buffer.rest(), b"\rc");
        // A line that is too long ends the others.
        let mut lines = Vec::new();
        let fed = buffer.feed_with_ends(b"a\r\n\nb\n0123456789x\r\nc\n", |line| lines.push(line.to_vec()));
        assert_eq!((fed, lines.concat()), (Err(LineTooLong), b"a\r\n\nb\n".to_vec()));
    }

    #[test]
    fn the_rest_is_taken_once_with_or_without_its_carriage_return() {
        let filled = || {
            let mut buffer = LineBuffer::new(10);
            buffer.feed(b"a\nb\r", |_| {}).unwrap();
            buffer
        };
        let mut buffer = filled();
        assert_eq!((buffer.rest().to_vec(), buffer.rest().len()), (b"b".to_vec(), 0));
        let mut buffer = filled();
        assert_eq!((buffer.rest_with_end().to_vec(), buffer.rest_with_end().len()), (b"b\r".to_vec(), 0));
        // No more than the space can be filled.
        let mut buffer = LineBuffer::new(1 << 20);
        buffer.filled(CHUNK + 1);
        assert_eq!(buffer.rest().len(), IDLE);
    }

    /// Reads that end within a line leave its beginning in the buffer, which does not grow for that.
    #[test]
    fn short_lines_do_not_grow_the_buffer() {
        let mut buffer = LineBuffer::new(1 << 24);
        let input = b"a short line\n".repeat(200_000);
        let (mut rest, mut lines) = (input.as_slice(), 0);
        while !rest.is_empty() {
            let space = buffer.space();
            let count = space.len().min(rest.len()).min(10_000);
            space[..count].copy_from_slice(&rest[..count]);
            buffer.filled(count);
            rest = &rest[count..];
            while let Some(line) = buffer.next_line().unwrap() {
                assert_eq!(line, b"a short line");
                lines += 1;
            }
            assert!(buffer.bytes.capacity() <= CHUNK);
        }
        assert_eq!((lines, buffer.bytes.len()), (200_000, CHUNK));
        // It is small again after many short reads.
        for _ in 0..=SMALL_READS {
            buffer.feed(b"a short line\n", |_| {}).unwrap();
        }
        assert_eq!(buffer.bytes.capacity(), IDLE);
    }

    #[test]
    fn the_limit_is_exact_and_excludes_carriage_returns() {
        let line = |len: usize, end: &str| [vec![b'x'; len], end.as_bytes().to_vec()].concat();
        for step in [1, 7, CHUNK] {
            assert_eq!(split(&line(100_000, "\n"), 100_000, step).unwrap()[0].len(), 100_000);
            assert_eq!(split(&line(100_000, "\r\n"), 100_000, step).unwrap()[0].len(), 100_000);
            assert_eq!(split(&line(100_001, "\n"), 100_000, step), Err(LineTooLong));
            assert_eq!(split(&line(100_001, ""), 100_000, step), Err(LineTooLong));
        }
    }

    #[test]
    fn a_line_of_the_limit_needs_at_most_two_more_bytes() {
        for limit in [10, CHUNK - 2, CHUNK - 1, CHUNK, 3 * CHUNK + 5, 4 * CHUNK, 9 * CHUNK - 1] {
            for end in ["\n", "\r\n"] {
                let input = [vec![b'x'; limit], end.into()].concat();
                let (mut buffer, mut rest, mut lines) = (LineBuffer::new(limit), input.as_slice(), 0);
                while !rest.is_empty() {
                    let space = buffer.space();
                    let count = space.len().min(rest.len());
                    space[..count].copy_from_slice(&rest[..count]);
                    buffer.filled(count);
                    rest = &rest[count..];
                    let capacity = buffer.bytes.capacity();
                    assert!(capacity <= CHUNK.max(limit + 2), "{limit}: {capacity}");
                    lines += usize::from(buffer.next_line().unwrap().is_some());
                }
                assert_eq!(lines, 1);
            }
        }
    }

    /// Searching the whole line after every byte would take hours.
    #[test]
    fn each_byte_of_a_line_is_searched_once() {
        let mut line = vec![b'x'; 4 << 20];
        line.push(b'\n');
        let started = std::time::Instant::now();
        assert_eq!(split(&line, 16 << 20, 1).unwrap()[0].len(), 4 << 20);
        let took = started.elapsed();
        assert!(took < std::time::Duration::from_secs(30), "{took:?}");
    }

    #[test]
    fn the_buffer_shrinks_after_a_long_line() {
        const LENGTH: usize = 1 << 24;
        let mut buffer = LineBuffer::new(LENGTH);
        let (mut left, mut reads, mut capacities) = (LENGTH, 0, std::collections::BTreeSet::new());
        while left > 0 {
            capacities.insert(buffer.bytes.capacity());
            reads += 1;
            let space = buffer.space();
            let count = space.len().min(left);
            space[..count].fill(b'x');
            buffer.filled(count);
            left -= count;
            assert_eq!(buffer.next_line(), Ok(None));
        }
        assert!(reads <= LENGTH / CHUNK, "{reads} reads of {CHUNK} bytes or more");
        assert!(capacities.len() <= 12, "it doubles, so that little is copied: {capacities:?}");
        buffer.space()[0] = b'\n';
        buffer.filled(1);
        assert_eq!(buffer.next_line().unwrap().unwrap().len(), LENGTH);
        assert_eq!(buffer.space().len(), CHUNK);
    }
}
