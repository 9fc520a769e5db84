//! What can go wrong with a transcript.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use crate::transcript::Transcript;

/// The result of this crate's functions.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a transcript could not be read, written or used.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file cannot be opened, read or written.
    #[error("{}: {error}", path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// What the system says.
        error: Arc<io::Error>,
    },
    /// The disk is full. What was recorded until then can be read.
    #[error("{}: the disk is full; the transcript ends here", path.display())]
    DiskFull {
        /// Which file.
        path: PathBuf,
    },
    /// The file may not grow any more, by the limit of the process or of the file system. What was recorded until
    /// then can be read.
    #[error("{}: the file is as large as it may be, see `ulimit -f`; the transcript ends here", path.display())]
    FileSizeLimit {
        /// Which file.
        path: PathBuf,
    },
    /// The input, which is no file, cannot be read or written.
    #[error("the transcript cannot be read or written: {0}")]
    Io(Arc<io::Error>),
    /// The first line is no header of a transcript.
    #[error(
        "not a transcript: the first line should be its header ({reason}); for other logs see Transcript::import"
    )]
    NoHeader {
        /// What is wrong with the line.
        reason: String,
    },
    /// The transcript was written in a later format.
    #[error("the transcript has format version {found}, this program reads {known}; update it")]
    Version {
        /// The version of the file.
        found: u32,
        /// The version that can be read.
        known: u32,
    },
    /// A line in the middle is not a record. What comes after it can still be read, with a
    /// [`Reader`](crate::Reader) or an [`Importer`](crate::Importer).
    #[error("line {line} is no record: {reason}")]
    Damaged {
        /// Which line, counted from 1.
        line: u64,
        /// What is wrong with it.
        reason: String,
    },
    /// A line is longer than a reader takes, see [`Transcript::LINE_BYTES`](crate::Transcript::LINE_BYTES). What comes
    /// after it can still be read, as after a damaged one.
    #[error("line {line} is longer than {} MiB, the most that a reader takes (`Transcript::LINE_BYTES`)", Transcript::LINE_BYTES >> 20)]
    LineTooLong {
        /// Which line, counted from 1.
        line: u64,
    },
    /// A rule of redaction cannot be used.
    #[error("the pattern {pattern:?} cannot be used: {reason}")]
    Pattern {
        /// The regular expression or JSON path.
        pattern: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A place to ignore is no path.
    #[error("{path} is no path: {reason}")]
    BadPath {
        /// What was given.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
}

impl Error {
    /// An error of the system about a file.
    pub(crate) fn file(path: impl Into<PathBuf>, error: io::Error) -> Self {
        let path = path.into();
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Error::DiskFull { path },
            io::ErrorKind::FileTooLarge => Error::FileSizeLimit { path },
            _ => Error::File { path, error: Arc::new(error) },
        }
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Error::Io(Arc::new(error))
    }
}
