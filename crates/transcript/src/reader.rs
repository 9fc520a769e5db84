//! Reading a transcript, record by record.

use std::io::BufRead;

use crate::error::{Error, Result};
use crate::format::{Header, Record, VERSION};
use crate::line_reader::LineReader;

/// Reads a transcript record by record, however long it is.
///
/// A last line that was cut short is left out, see [`is_cut`](Reader::is_cut). A damaged line in the
/// middle, or one of more than [`Transcript::LINE_BYTES`], is an error, after which reading can go on. It goes on
/// nowhere if a line is more than nine times that long: a device without end is not read for ever.
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
    /// [`Error::NoHeader`] when there is none, [`Error::Version`] when it is of a later format,
    /// [`Error::LineTooLong`] and [`Error::Io`].
    pub fn new(input: R) -> Result<Self> {
        let mut lines = LineReader::new(input);
        let line = match lines.next(|line| Ok(line.to_owned())) {
            Err(Error::Damaged { reason, .. }) => return Err(Error::NoHeader { reason }),
            line => line?.unwrap_or_default(),
        };
        let header: Header = serde_json::from_str(&line).map_err(|error| no_header(&line, &error))?;
        if !header.is_known() {
            return Err(Error::NoHeader { reason: "its `format` is another".into() });
        }
        if header.version() > VERSION {
            return Err(Error::Version { found: header.version(), known: VERSION });
        }
        Ok(Reader { lines, header })
    }

    /// The header.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Whether the file ended in the middle of a record. Known at its end.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.lines.is_cut()
    }

    /// The line the last record or error comes from, counted from 1.
    #[must_use]
    pub fn line(&self) -> u64 {
        self.lines.line()
    }
}

/// A header of a later version may not even look like one of ours.
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
