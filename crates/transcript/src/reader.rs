//! Reading a transcript, record by record.

use std::io::BufRead;

use crate::error::{Error, Result};
use crate::format::{Header, Record, VERSION};

/// Reads a transcript record by record, however long it is.
///
/// A last line that was cut short is left out, see [`is_cut`](Reader::is_cut). A damaged line in the
/// middle is an error, after which reading can go on.
#[derive(Debug)]
pub struct Reader<R> {
    input: R,
    header: Header,
    line: u64,
    cut: bool,
}

impl<R: BufRead> Reader<R> {
    /// Reads the header.
    ///
    /// # Errors
    ///
    /// [`Error::NoHeader`] when there is none, [`Error::Version`] when it is of a later format, and
    /// [`Error::Io`].
    pub fn new(mut input: R) -> Result<Self> {
        let mut line = Vec::new();
        input.read_until(b'\n', &mut line)?;
        let bytes = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(&line);
        let header: Header = serde_json::from_slice(bytes).map_err(|error| no_header(bytes, &error))?;
        if !header.is_known() {
            return Err(Error::NoHeader { reason: "its `format` is another".into() });
        }
        if header.version() > VERSION {
            return Err(Error::Version { found: header.version(), known: VERSION });
        }
        Ok(Reader { input, header, line: 1, cut: false })
    }

    /// The header.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Whether the file ended in the middle of a record. Known at its end.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.cut
    }

    /// The line the last record or error comes from, counted from 1.
    #[must_use]
    pub fn line(&self) -> u64 {
        self.line
    }

    fn read(&mut self) -> Result<Option<Record>> {
        let mut line = Vec::new();
        loop {
            line.clear();
            if self.input.read_until(b'\n', &mut line)? == 0 {
                return Ok(None);
            }
            self.line += 1;
            let Some(whole) = line.strip_suffix(b"\n") else {
                self.cut = true;
                return Ok(None);
            };
            if whole.trim_ascii().is_empty() {
                continue;
            }
            let damaged = |reason| Error::Damaged { line: self.line, reason };
            let text = std::str::from_utf8(whole).map_err(|error| damaged(error.to_string()))?;
            return Record::read(text).map(Some).map_err(damaged);
        }
    }
}

/// A header of a later version may not even look like one of ours.
fn no_header(line: &[u8], error: &serde_json::Error) -> Error {
    #[derive(serde::Deserialize)]
    struct Marks {
        format: String,
        version: u32,
    }
    match serde_json::from_slice::<Marks>(line) {
        Ok(Marks { format, version }) if format == crate::format::FORMAT && version > VERSION => {
            Error::Version { found: version, known: VERSION }
        }
        _ => Error::NoHeader { reason: error.to_string() },
    }
}

impl<R: BufRead> Iterator for Reader<R> {
    type Item = Result<Record>;

    fn next(&mut self) -> Option<Self::Item> {
        self.read().transpose()
    }
}
