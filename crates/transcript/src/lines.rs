//! The lines of a file, as transcripts and logs are made of them.

use std::io::{BufRead, Read as _};

use crate::error::{Error, Result};

/// The longest line that is read, in bytes. A recorder keeps 16 MiB of a line, and JSON spells each byte with
/// six at most.
const LONGEST: u64 = 128 << 20;

/// Reads line by line, and keeps no more than one.
#[derive(Debug)]
pub(crate) struct LineReader<R> {
    input: R,
    bytes: Vec<u8>,
    line: u64,
    cut: bool,
}

impl<R: BufRead> LineReader<R> {
    pub(crate) fn new(input: R) -> Self {
        LineReader { input, bytes: Vec::new(), line: 0, cut: false }
    }

    /// The line that was read last, counted from 1.
    pub(crate) fn line(&self) -> u64 {
        self.line
    }

    /// Whether the input ended within a line. Known at its end.
    pub(crate) fn is_cut(&self) -> bool {
        self.cut
    }

    /// Reads the next line that is not blank. A last one without its end is left out, unless it can be read:
    /// then nothing is missing but the end.
    pub(crate) fn next<T>(
        &mut self,
        read: impl FnOnce(&str) -> std::result::Result<T, String>,
    ) -> Result<Option<T>> {
        loop {
            self.bytes.clear();
            self.bytes.shrink_to(64 * 1024);
            if (&mut self.input).take(LONGEST + 1).read_until(b'\n', &mut self.bytes)? == 0 {
                return Ok(None);
            }
            self.line += 1;
            let is_whole = self.bytes.ends_with(b"\n");
            if !is_whole && self.bytes.len() as u64 > LONGEST {
                self.input.skip_until(b'\n')?;
                let reason = format!("longer than {} MiB", LONGEST >> 20);
                return Err(Error::Damaged { line: self.line, reason });
            }
            let line = self.bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(&self.bytes).trim_ascii();
            if line.is_empty() {
                continue;
            }
            let read = std::str::from_utf8(line).map_err(|error| error.to_string()).and_then(read);
            if read.is_err() && !is_whole {
                self.cut = true;
                return Ok(None);
            }
            return read.map(Some).map_err(|reason| Error::Damaged { line: self.line, reason });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes without end: what a file with a hole in it reads as.
    fn hole(length: u64) -> impl BufRead {
        std::io::BufReader::with_capacity(1 << 20, std::io::repeat(0).take(length))
    }

    #[test]
    fn a_line_without_end_costs_that_line_and_bounded_memory() {
        let input = hole(LONGEST * 2).chain(&b"\nnext"[..]);
        let mut lines = LineReader::new(input);
        let text = |line: &str| Ok(line.to_owned());
        assert!(
            matches!(lines.next(text), Err(Error::Damaged { line: 1, reason }) if reason.contains("MiB"))
        );
        assert!(lines.bytes.capacity() as u64 <= 2 * LONGEST + 2);
        assert_eq!(lines.next(text).expect("a line").as_deref(), Some("next"));
        assert_eq!((lines.line(), lines.is_cut()), (2, false));
        assert!(lines.next(text).expect("the end").is_none());
    }
}
