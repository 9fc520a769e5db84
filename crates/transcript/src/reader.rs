//! Reading of a transcript, record by record.

use std::io::BufRead;

use crate::error::{Error, Result};
use crate::format::{Header, Record, VERSION};
use crate::line_reader::LineReader;

/// Reads a transcript of any length record by record.
///
/// A last line that was cut short is left out, see [`is_cut`](Reader::is_cut). A damaged line, or one of more
/// than [`Transcript::LINE_BYTES`], is an error, after which reading can go on. If a line is more than nine
/// times that long, the reader gives up, so that it ends on an endless device.
///
/// [`Transcript::LINE_BYTES`]: crate::Transcript::LINE_BYTES
#[derive(Debug)]
pub struct Reader<R> {
    lines: LineReader<R>,
    header: Header,
}

impl<R: BufRead> Reader<R> {
    /// Reads the header.
    ///
    /// # Errors
    ///
    /// [`Error::NoHeader`] if there is none, [`Error::Version`] if its format is later, [`Error::LineTooLong`] and
    /// [`Error::Io`].
    pub fn new(input: R) -> Result<Self> {
        let mut lines = LineReader::new(input);
        let line = match lines.next(|line| Ok(line.to_owned())) {
            Err(Error::Damaged { reason, .. }) => return Err(Error::NoHeader { reason }),
            line => line?.unwrap_or_default(),
        };
        let header: Header = serde_json::from_str(&line).map_err(|error| no_header(&line, &error))?;
        if !header.is_known() {
            return Err(Error::NoHeader { reason: "its `format` is not `acp-transcript`".into() });
        }
        if header.version() > VERSION {
            return Err(Error::Version { found: header.version(), known: VERSION });
        }
        Ok(Reader { lines, header })
    }

    /// Returns the header.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Returns true if the file ended within a record. Known once the end is reached.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.lines.is_cut()
    }

    /// Returns the line number of the last record or error, counted from 1.
    #[must_use]
    pub fn line(&self) -> u64 {
        self.lines.line()
    }
}

/// Detects a header of a later version, which may have other members.
fn no_header(line: &str, error: &serde_json::Error) -> Error {
    #[derive(serde::Deserialize)]
    struct Marks {
        format: String,
        version: u32,
    }
    match serde_json::from_str::<Marks>(line) {
        Ok(Marks { format, version }) if format == crate::format::FORMAT && version > VERSION => {
            Error::Version { found: version, known: VERSION }
        }
        _ => Error::NoHeader { reason: error.to_string() },
    }
}

impl<R: BufRead> Iterator for Reader<R> {
    type Item = Result<Record>;

    fn next(&mut self) -> Option<Self::Item> {
        self.lines.next(Record::read).transpose()
    }
}
