//! Bytes as they come, told apart as lines with their ends.

use crate::format::LineEnd;

/// What the bytes of one side came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SplitLine<'a> {
    /// A line.
    Line(&'a [u8], LineEnd),
    /// A line of so many bytes, more than are kept.
    TooLong(u64),
}

/// Finds the lines in a stream, keeping at most one line's beginning.
#[derive(Debug)]
pub(super) struct LineSplitter {
    partial: Vec<u8>,
    /// How much of a line was given up.
    skipped: u64,
    limit: usize,
}

impl LineSplitter {
    /// Lines of up to `limit` bytes, a carriage return at their end included.
    pub(super) fn new(limit: usize) -> Self {
        LineSplitter { partial: Vec::new(), skipped: 0, limit }
    }

    /// Takes the next bytes and says what they completed. Returns whether they did.
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

    /// The end: what is left is a line without an end.
    pub(super) fn end(&mut self, mut seen: impl FnMut(SplitLine<'_>)) {
        match self.skipped {
            0 if self.partial.is_empty() => {}
            0 => seen(SplitLine::Line(&self.partial, LineEnd::None)),
            skipped => seen(SplitLine::TooLong(skipped)),
        }
        self.partial.clear();
        self.skipped = 0;
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

    /// The bytes again, and how many were given up.
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
