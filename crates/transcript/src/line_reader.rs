//! The lines of a file, as transcripts and logs are made of them.

use std::io::{BufRead, Read as _};

use crate::error::{Error, Result};
use crate::transcript::Transcript;

/// The most bytes of a line that is too long that are passed over in search of its end.
const SKIPPED: u64 = 8 * Transcript::LINE_BYTES;

/// Reads line by line, and keeps no more than one.
#[derive(Debug)]
pub(crate) struct LineReader<R> {
    input: R,
    bytes: Vec<u8>,
    line: u64,
    cut: bool,
    /// The state of the input.
    next: InputState,
}

/// The state of the input between two lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InputState {
    /// At the start of a line.
    Line,
    /// Within a line that is too long.
    RestOfLine,
    /// Given up: the end of a line that is too long was not found.
    Nothing,
}

impl<R: BufRead> LineReader<R> {
    pub(crate) fn new(input: R) -> Self {
        LineReader { input, bytes: Vec::new(), line: 0, cut: false, next: InputState::Line }
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
            if self.next == InputState::RestOfLine {
                // One byte more, so that a line that ends with the last of them is told from one that goes on.
                let skipped = (&mut self.input).take(SKIPPED + 1).skip_until(b'\n')?;
                self.next = if skipped as u64 > SKIPPED { InputState::Nothing } else { InputState::Line };
            }
            if self.next == InputState::Nothing {
                return Ok(None);
            }
            if (&mut self.input).take(Transcript::LINE_BYTES + 1).read_until(b'\n', &mut self.bytes)? == 0 {
                return Ok(None);
            }
            self.line += 1;
            let is_whole = self.bytes.ends_with(b"\n");
            if !is_whole && self.bytes.len() as u64 > Transcript::LINE_BYTES {
                self.next = InputState::RestOfLine;
                return Err(Error::LineTooLong { line: self.line });
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
        let input = hole(Transcript::LINE_BYTES * 2).chain(&b"\nnext"[..]);
        let mut lines = LineReader::new(input);
        let text = |line: &str| Ok(line.to_owned());
        let error = lines.next(text).expect_err("too long");
        assert!(matches!(error, Error::LineTooLong { line: 1 }), "{error}");
        assert!(
            error.to_string().contains("128 MiB") && error.to_string().contains("Transcript::LINE_BYTES")
        );
        assert!(lines.bytes.capacity() as u64 <= 2 * Transcript::LINE_BYTES + 2);
        assert_eq!(lines.next(text).expect("a line").as_deref(), Some("next"));
        assert_eq!((lines.line(), lines.is_cut()), (2, false));
        assert!(lines.next(text).expect("the end").is_none());
    }

    #[test]
    fn an_input_without_end_is_not_read_for_ever() {
        let endless = std::io::BufReader::with_capacity(1 << 20, std::io::repeat(0));
        let mut lines = LineReader::new(endless);
        let text = |line: &str| Ok(line.to_owned());
        assert!(matches!(lines.next(text), Err(Error::LineTooLong { line: 1 })));
        assert!(lines.next(text).expect("the end").is_none());
        assert!(lines.next(text).expect("still the end").is_none());
        assert!(lines.bytes.capacity() as u64 <= 2 * Transcript::LINE_BYTES + 2);
    }
}
