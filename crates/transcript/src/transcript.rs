//! A transcript in memory.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;

use crate::classify::{ParsedLine, TranscriptEntry, entries};
use crate::error::{Error, Result};
use crate::format::{Header, Record, Side};
use crate::import::Importer;
use crate::reader::Reader;

/// A recorded conversation: a header and its records.
#[derive(Clone, Debug, PartialEq)]
pub struct Transcript {
    header: Header,
    records: Vec<Record>,
    cut: bool,
}

impl Transcript {
    /// The length of the longest line that a [`Reader`] or an [`Importer`] accepts, in bytes: 128 MiB. A recorder
    /// keeps 16 MiB of a line, and JSON needs at most six bytes for each of them.
    pub const LINE_BYTES: u64 = 128 << 20;

    /// Creates a transcript of these records, which are in order of time.
    #[must_use]
    pub fn new(header: Header, records: Vec<Record>) -> Self {
        Transcript { header, records, cut: false }
    }

    /// Loads a file. If its last record was cut short, by a crash or a full disk, the records before it are
    /// loaded; see [`is_cut`](Self::is_cut).
    ///
    /// # Errors
    ///
    /// [`Error::File`], and as [`read`](Self::read).
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let file = File::open(path).map_err(|error| Error::file(path, error))?;
        Self::read(BufReader::new(file)).map_err(|error| error.in_file(path))
    }

    /// Reads a transcript to its end.
    ///
    /// # Errors
    ///
    /// [`Error::NoHeader`] and [`Error::Version`] if the input is not a transcript. [`Error::Damaged`] and
    /// [`Error::LineTooLong`] at the first line that is not a record; a [`Reader`] goes on after it.
    /// [`Error::Io`].
    pub fn read(input: impl BufRead) -> Result<Self> {
        let mut reader = Reader::new(input)?;
        let records = reader.by_ref().collect::<Result<_>>().map_err(with_hint)?;
        Ok(Transcript { header: reader.header().clone(), records, cut: reader.is_cut() })
    }

    /// Reads a log of another program: JSON-RPC lines with their direction. [`Importer`] describes the accepted
    /// logs, and goes on after invalid lines.
    ///
    /// ```
    /// use duologue_transcript::Transcript;
    ///
    /// let log = "> {\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"initialize\"}\n\
    ///            < {\"jsonrpc\":\"2.0\",\"id\":0,\"result\":{\"protocolVersion\":1}}\n";
    /// let transcript = Transcript::import(log.as_bytes())?;
    /// assert_eq!(transcript.entries()[1].method(), Some("initialize"));
    /// # Ok::<(), duologue_transcript::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Damaged`] at the first line without a direction or a frame, [`Error::LineTooLong`], [`Error::Io`].
    pub fn import(input: impl BufRead) -> Result<Self> {
        let mut importer = Importer::new(input);
        let records = importer.by_ref().collect::<Result<_>>().map_err(with_hint)?;
        Ok(Transcript { header: importer.header(), records, cut: importer.is_cut() })
    }

    /// Writes the transcript.
    ///
    /// # Errors
    ///
    /// [`Error::Io`].
    pub fn write(&self, mut output: impl Write) -> Result<()> {
        let mut line =
            serde_json::to_vec(&self.header).map_err(|error| Error::from(std::io::Error::from(error)))?;
        line.push(b'\n');
        for record in &self.records {
            output.write_all(&line)?;
            line.clear();
            record.write(&mut line);
        }
        output.write_all(&line)?;
        output.flush()?;
        Ok(())
    }

    /// Returns a transcript of other records that is cut if this one is.
    pub(crate) fn with_records(&self, header: Header, records: Vec<Record>) -> Self {
        Transcript { header, records, cut: self.cut }
    }

    pub(crate) fn push(&mut self, record: Record) {
        self.records.push(record);
    }

    /// Returns the header.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Returns the records, in order.
    #[must_use]
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// Returns true if the file ended within a record. That record is left out.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.cut
    }

    /// Marks the transcript as ending within a record. For callers that read the records themselves.
    #[must_use]
    pub fn cut_short(mut self) -> Self {
        self.cut = true;
        self
    }

    /// Returns the lines with their method, their session and the request that they answer.
    #[must_use]
    pub fn entries(&self) -> Vec<TranscriptEntry<'_>> {
        entries(&self.records)
    }

    /// Returns the working directory of the first session.
    #[must_use]
    pub fn cwd(&self) -> Option<String> {
        #[derive(serde::Deserialize)]
        struct Named {
            cwd: String,
        }
        let cwd = |entry: TranscriptEntry<'_>| match entry.parsed {
            ParsedLine::Request { params: Some(params), .. } if entry.line.from == Side::Client => {
                serde_json::from_str::<Named>(params.get()).ok().map(|named| named.cwd)
            }
            _ => None,
        };
        self.entries().into_iter().filter_map(cwd).find(|folder| !folder.is_empty())
    }
}

/// Adds a hint for readers of a whole file: where to find the lines after the damaged one.
fn with_hint(error: Error) -> Error {
    match error {
        Error::Damaged { line, reason } => {
            Error::Damaged { line, reason: format!("{reason}; `duologue show` goes on after it") }
        }
        error => error,
    }
}
