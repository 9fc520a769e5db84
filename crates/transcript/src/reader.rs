//! Reading of a transcript, record by record.

use std::io::BufRead;

use crate::error::{Error, Result};
use crate::format::{FORMAT, Header, Record, VERSION};
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
        // A later version may have other members.
        if let Ok(Marks { format, version }) = serde_json::from_str(&line)
            && format == FORMAT
            && version > VERSION
        {
            return Err(Error::Version { found: version, known: VERSION });
        }
        let header: Header =
            serde_json::from_str(&line).map_err(|error| Error::NoHeader { reason: error.to_string() })?;
        if !header.is_known() {
            return Err(Error::NoHeader { reason: "its `format` is not `acp-transcript`".into() });
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

/// The members of the header in each version.
#[derive(serde::Deserialize)]
struct Marks {
    format: String,
    version: u32,
}

impl<R: BufRead> Iterator for Reader<R> {
    type Item = Result<Record>;

    fn next(&mut self) -> Option<Self::Item> {
        self.lines.next(Record::read).transpose()
    }
}
