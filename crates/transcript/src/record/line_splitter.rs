//! Splitting of a byte stream into lines with their ends.
//!
//! It is not `LineBuffer` of `duologue_rpc`, for which a line that is too long is an error. A proxy goes on after
//! such a line and records its length, and a line within one read is not copied.

use crate::format::LineEnd;

/// A line of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SplitLine<'a> {
    /// The bytes of a line, and its end.
    Line(&'a [u8], LineEnd),
    /// The length of a line that exceeds the limit.
    TooLong(u64),
}

/// Splits a stream into lines. Buffers at most the start of one line.
#[derive(Debug)]
pub(super) struct LineSplitter {
    partial: Vec<u8>,
    /// The skipped bytes of a line that exceeds the limit.
    skipped: u64,
    limit: usize,
}

impl LineSplitter {
    /// Creates a splitter for lines of up to `limit` bytes, including a carriage return at the end.
    pub(super) fn new(limit: usize) -> Self {
        LineSplitter { partial: Vec::new(), skipped: 0, limit }
    }

    /// Calls `seen` with each line that these bytes complete. Returns true if there is one.
    pub(super) fn feed(&mut self, bytes: &[u8], mut seen: impl FnMut(SplitLine<'_>)) -> bool {
        let mut rest = bytes;
        while let Some(end) = memchr::memchr(b'\n', rest) {
            let (line, after) = rest.split_at(end);
            rest = after.get(1..).unwrap_or_default();
            if self.partial.is_empty() && self.skipped == 0 && line.len() <= self.limit {
                seen(whole(line));
                continue;
            }
            self.keep(line);
            seen(match self.skipped {
                0 => whole(&self.partial),
                skipped => SplitLine::TooLong(skipped),
            });
            self.partial.clear();
            self.partial.shrink_to(64 * 1024);
            self.skipped = 0;
        }
        self.keep(rest);
        rest.len() < bytes.len()
    }

    /// Ends the stream: the rest is a line without an end. Call it once.
    pub(super) fn end(&mut self, mut seen: impl FnMut(SplitLine<'_>)) {
        match self.skipped {
            0 if self.partial.is_empty() => {}
            0 => seen(SplitLine::Line(&self.partial, LineEnd::None)),
            skipped => seen(SplitLine::TooLong(skipped)),
        }
    }

    fn keep(&mut self, bytes: &[u8]) {
        if self.skipped > 0 || self.partial.len() + bytes.len() > self.limit {
            self.skipped += (self.partial.len() + bytes.len()) as u64;
            self.partial = Vec::new();
        } else {
            self.partial.extend_from_slice(bytes);
        }
    }
}

fn whole(line: &[u8]) -> SplitLine<'_> {
    match line.strip_suffix(b"\r") {
        Some(line) => SplitLine::Line(line, LineEnd::CrLf),
        None => SplitLine::Line(line, LineEnd::Lf),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns the joined lines, and the number of bytes that were skipped.
    fn joined(input: &[u8], limit: usize, step: usize) -> (Vec<u8>, u64) {
        let (mut bytes, mut lost) = (Vec::new(), 0);
        let mut seen = |piece: SplitLine<'_>| match piece {
            SplitLine::Line(line, end) => {
                assert!(line.len() <= limit);
                bytes.extend_from_slice(line);
                bytes.extend_from_slice(end.as_str().as_bytes());
            }
            SplitLine::TooLong(length) => lost += length,
        };
        let mut lines = LineSplitter::new(limit);
        for chunk in input.chunks(step) {
            lines.feed(chunk, &mut seen);
        }
        lines.end(&mut seen);
        (bytes, lost)
    }

    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(prop_oneof![Just(b'\n'), Just(b'\r'), Just(0), Just(b'{'), any::<u8>()], 0..400)
    }

    proptest! {
        #[test]
        fn the_lines_with_their_ends_are_the_bytes(input in bytes(), step in 1..50usize) {
            prop_assert_eq!(joined(&input, 1000, step), (input, 0));
        }

        #[test]
        fn a_line_over_the_limit_is_counted(input in bytes(), step in 1..50usize) {
            let long = |line: &&[u8]| line.len() > 20;
            let lost: usize = input.split(|byte| *byte == b'\n').filter(long).map(<[u8]>::len).sum();
            prop_assert_eq!(joined(&input, 20, step).1, lost as u64);
        }
    }
}
