//! Reading of lines from a file, with a limit of their length.
//!
//! It is not `LineBuffer` of `duologue_rpc`, since it numbers the lines, and goes on after one that is too long.

use std::io::{BufRead, Read as _};

use crate::error::{Error, Result};
use crate::transcript::Transcript;

/// The most bytes that are skipped in search of the end of a line that is too long.
const SKIPPED: u64 = 8 * Transcript::LINE_BYTES;

/// Reads an input line by line. Keeps at most one line in memory.
#[derive(Debug)]
pub(crate) struct LineReader<R> {
    input: R,
    bytes: Vec<u8>,
    line: u64,
    cut: bool,
    /// The state of the input.
    next: InputState,
}

/// The position in the input between two reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InputState {
    /// At the start of a line.
    Line,
    /// Within a line that is too long.
    RestOfLine,
    /// After giving up: the end of a line that is too long was not found.
    Nothing,
}

impl<R: BufRead> LineReader<R> {
    pub(crate) fn new(input: R) -> Self {
        LineReader { input, bytes: Vec::new(), line: 0, cut: false, next: InputState::Line }
    }

    /// Returns the number of the last line, counted from 1.
    pub(crate) fn line(&self) -> u64 {
        self.line
    }

    /// Returns true if the input ended within a line. Known once the end is reached.
    pub(crate) fn is_cut(&self) -> bool {
        self.cut
    }

    /// Reads the next line that is not blank. A last line without its end is left out if `read` rejects it.
    pub(crate) fn next<T>(
        &mut self,
        read: impl FnOnce(&str) -> std::result::Result<T, String>,
    ) -> Result<Option<T>> {
        while let Some(bytes) = self.raw()? {
            let is_whole = bytes.ends_with(b"\n");
            let line = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes).trim_ascii();
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
        Ok(None)
    }

    /// Reads the next line with its end, which the last one may lack.
    pub(crate) fn raw(&mut self) -> Result<Option<&[u8]>> {
        self.bytes.clear();
        self.bytes.shrink_to(64 * 1024);
        if self.next == InputState::RestOfLine {
            // One more byte, to detect a line that goes on after the last allowed byte.
            let skipped = (&mut self.input).take(SKIPPED + 1).skip_until(b'\n')?;
            self.next = if skipped as u64 > SKIPPED { InputState::Nothing } else { InputState::Line };
        }
        if self.next == InputState::Nothing
            || (&mut self.input).take(Transcript::LINE_BYTES + 1).read_until(b'\n', &mut self.bytes)? == 0
        {
            return Ok(None);
        }
        self.line += 1;
        if !self.bytes.ends_with(b"\n") && self.bytes.len() as u64 > Transcript::LINE_BYTES {
            self.next = InputState::RestOfLine;
            return Err(Error::LineTooLong { line: self.line });
        }
        Ok(Some(&self.bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns null bytes, as a file with a hole does.
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
