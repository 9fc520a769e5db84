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

#[cfg(test)]
mod tests {
    use super::*;

    fn first_error(text: &str) -> Option<Error> {
        Reader::new(text.as_bytes()).err()
    }

    #[test]
    fn the_header_has_a_known_format_and_version() {
        let header = |format: &str, version: u32| {
            let mut header = serde_json::to_value(Header::new("test")).unwrap();
            (header["format"], header["version"]) = (format.into(), version.into());
            header.to_string()
        };
        assert!(first_error(&header(FORMAT, VERSION)).is_none());
        assert!(first_error(&format!("\n\u{feff}{}\n", header(FORMAT, VERSION))).is_none());
        let error = first_error(&header(FORMAT, VERSION + 1));
        assert!(
            matches!(error, Some(Error::Version { found, known: VERSION }) if found == VERSION + 1),
            "{error:?}"
        );
        // A later version of the format may have another header.
        let later = format!(r#"{{"format":"{FORMAT}","version":{}}}"#, VERSION + 1);
        assert!(matches!(first_error(&later), Some(Error::Version { .. })));
        for other in
            [header("other", VERSION), header("other", VERSION + 1), "{}".into(), "x".into(), String::new()]
        {
            assert!(matches!(first_error(&other), Some(Error::NoHeader { .. })), "{other}");
        }
    }

    /// Only a last record without its line end may be incomplete.
    #[test]
    fn a_blank_line_is_skipped_and_an_incomplete_last_one_is_cut() {
        let header = serde_json::to_string(&Header::new("test")).unwrap();
        let mut record = Vec::new();
        let event = crate::format::RecordEvent::Stderr("text".into());
        Record::new(std::time::Duration::ZERO, event).write(&mut record);
        let record = String::from_utf8(record).unwrap();
        let incomplete = record.get(..10).unwrap();
        for (end, records, is_cut) in [
            (record.clone(), 1, false),
            (format!("\n  \n{record}\n{record}"), 2, false),
            (record.trim_end().to_owned(), 1, false),
            (format!("{record}{incomplete}"), 1, true),
            (format!("\u{feff}{record}"), 1, false),
        ] {
            let text = format!("{header}\n{end}");
            let mut reader = Reader::new(text.as_bytes()).unwrap();
            let found = reader.by_ref().filter(Result::is_ok).count();
            assert_eq!((found, reader.is_cut()), (records, is_cut), "{end:?}");
        }
        let text = format!("{header}\n{incomplete}\n{record}");
        let results: Vec<_> = Reader::new(text.as_bytes()).unwrap().map(|record| record.is_ok()).collect();
        assert_eq!(results, [false, true]);
    }
}
