//! Bytes in, lines out: the splitter below the reader.

use std::ops::Range;

/// A line was longer than the limit.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LineTooLong;

/// Collects bytes and hands out complete lines, looking at each byte once.
///
/// Lines end at `\n` and nothing else; their end is not part of them. The buffer grows with a long
/// line and shrinks back after it.
pub(crate) struct LineBuffer {
    bytes: Vec<u8>,
    start: usize,
    scanned: usize,
    end: usize,
    limit: usize,
}

/// Small in the fuzz target, whose inputs shall cross it often.
const CHUNK: usize = if cfg!(fuzzing) { 64 } else { 64 * 1024 };

impl LineBuffer {
    pub(crate) fn new(limit: usize) -> Self {
        LineBuffer { bytes: vec![0; CHUNK], start: 0, scanned: 0, end: 0, limit }
    }

    /// Room to read into; never empty.
    pub(crate) fn space(&mut self) -> &mut [u8] {
        if self.start == self.end {
            (self.start, self.scanned, self.end) = (0, 0, 0);
            if self.bytes.len() > CHUNK {
                self.bytes = vec![0; CHUNK];
            }
        } else if self.start > 0 && self.bytes.len() - self.end < CHUNK / 2 {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.scanned, self.end) = (self.scanned - self.start, self.end - self.start);
            self.start = 0;
        }
        if self.end == self.bytes.len() {
            // Two bytes past the limit are enough to see a carriage return and the newline of a line that is
            // exactly as long as it may be. The vector's own growth keeps the copying linear, and only what
            // will be read into is touched.
            let grown = (self.bytes.len() + 4 * CHUNK).min((self.limit + 2).max(CHUNK));
            self.bytes.resize(grown.max(self.end + 1), 0);
        }
        self.bytes.get_mut(self.end..).unwrap_or_default()
    }

    /// Tells how many bytes were read into [`space`](Self::space).
    pub(crate) fn filled(&mut self, count: usize) {
        self.end = (self.end + count).min(self.bytes.len());
    }

    /// The next complete line, if there is one.
    pub(crate) fn next_line(&mut self) -> Result<Option<&[u8]>, LineTooLong> {
        let unseen = self.bytes.get(self.scanned..self.end).unwrap_or_default();
        let Some(offset) = memchr::memchr(b'\n', unseen) else {
            self.scanned = self.end;
            let held = self.trimmed(self.start..self.end).len();
            return if held > self.limit { Err(LineTooLong) } else { Ok(None) };
        };
        let line = self.start..self.scanned + offset;
        self.start = line.end + 1;
        self.scanned = self.start;
        let line = self.trimmed(line);
        if line.len() > self.limit { Err(LineTooLong) } else { Ok(self.bytes.get(line)) }
    }

    /// What is left at the end of input, when the last line has no newline.
    pub(crate) fn rest(&mut self) -> &[u8] {
        let line = self.trimmed(self.start..self.end);
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
        let mut rest = input;
        while !rest.is_empty() {
            let space = buffer.space();
            let count = step.min(space.len()).min(rest.len());
            space[..count].copy_from_slice(&rest[..count]);
            buffer.filled(count);
            rest = &rest[count..];
            while let Some(line) = buffer.next_line()? {
                lines.push(line.to_vec());
            }
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
        }
    }

    #[test]
    fn the_limit_is_exact_and_leaves_carriage_returns_out() {
        let line = |len: usize, end: &str| [vec![b'x'; len], end.as_bytes().to_vec()].concat();
        for step in [1, 7, CHUNK] {
            assert_eq!(split(&line(100_000, "\n"), 100_000, step).unwrap()[0].len(), 100_000);
            assert_eq!(split(&line(100_000, "\r\n"), 100_000, step).unwrap()[0].len(), 100_000);
            assert_eq!(split(&line(100_001, "\n"), 100_000, step), Err(LineTooLong));
            assert_eq!(split(&line(100_001, ""), 100_000, step), Err(LineTooLong));
        }
    }

    #[test]
    fn a_line_of_the_limit_takes_two_bytes_more_at_most() {
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
                    assert!(buffer.bytes.len() <= CHUNK.max(limit + 2), "{limit}: {}", buffer.bytes.len());
                    lines += usize::from(buffer.next_line().unwrap().is_some());
                }
                assert_eq!(lines, 1);
            }
        }
    }

    /// Looked at again with each of its bytes it would take hours.
    #[test]
    fn a_line_that_comes_byte_by_byte_is_looked_at_once() {
        let mut line = vec![b'x'; 4 << 20];
        line.push(b'\n');
        let begun = std::time::Instant::now();
        assert_eq!(split(&line, 16 << 20, 1).unwrap()[0].len(), 4 << 20);
        let took = begun.elapsed();
        assert!(took < std::time::Duration::from_secs(30), "{took:?}");
    }

    #[test]
    fn the_buffer_shrinks_after_a_long_line() {
        let mut buffer = LineBuffer::new(1 << 24);
        let mut left = 1 << 20;
        while left > 0 {
            let space = buffer.space();
            let count = space.len().min(left);
            space[..count].fill(b'x');
            buffer.filled(count);
            left -= count;
            assert_eq!(buffer.next_line(), Ok(None));
        }
        buffer.space()[0] = b'\n';
        buffer.filled(1);
        assert_eq!(buffer.next_line().unwrap().unwrap().len(), 1 << 20);
        assert_eq!(buffer.space().len(), CHUNK);
    }
}
