//! Errors of transcripts.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::format::Side;
use crate::transcript::Transcript;

/// The result of functions of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// An error while reading, writing or using a transcript.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file cannot be opened, read or written.
    #[error("{}: {error}", path.display())]
    File {
        /// The path of the file.
        path: PathBuf,
        /// The error of the operating system.
        error: Arc<io::Error>,
    },
    /// The disk is full. The records before this point can be read.
    #[error("{}: the disk is full; the recording ends here", path.display())]
    DiskFull {
        /// The path of the file.
        path: PathBuf,
    },
    /// The file has reached the size limit of the process or of the file system. The records before this
    /// point can be read.
    #[error("{}: the file has reached its size limit, see `ulimit -f`; the recording ends here", path.display())]
    FileSizeLimit {
        /// The path of the file.
        path: PathBuf,
    },
    /// The recording in memory has reached its limit. The conversation goes on.
    #[error("the recording has reached its {limit} bytes of memory, see `RecorderBuilder::memory_bytes`")]
    MemoryFull {
        /// The limit in bytes.
        limit: usize,
    },
    /// An input or output that is not a file cannot be read or written.
    #[error("the recording cannot be read or written: {0}")]
    Io(Arc<io::Error>),
    /// The live side of a [`Replay`](crate::Replay) has sent much more than the recording contains.
    #[error("the {} has sent more than {} MiB, the limit for this recording", side.name(), limit >> 20)]
    Flood {
        /// The live side.
        side: Side,
        /// The limit in bytes.
        limit: usize,
    },
    /// The first line is not the header of a transcript.
    #[error(
        "not a recording: the first line should be its header ({reason}); for other logs see Transcript::import"
    )]
    NoHeader {
        /// The reason.
        reason: String,
    },
    /// The transcript has a later format version.
    #[error("the recording has format version {found}, this program reads {known}; update it")]
    Version {
        /// The version of the transcript.
        found: u32,
        /// The latest version that can be read.
        known: u32,
    },
    /// A line is not a record. A [`Reader`](crate::Reader) or an [`Importer`](crate::Importer) can go on with
    /// the next line.
    #[error("line {line} is not a record: {reason}")]
    Damaged {
        /// The number of the line, counted from 1.
        line: u64,
        /// The reason.
        reason: String,
    },
    /// A line is longer than [`Transcript::LINE_BYTES`](crate::Transcript::LINE_BYTES). Reading can go on with
    /// the next line.
    #[error("line {line} is longer than {} MiB, the limit of a reader (`Transcript::LINE_BYTES`)", Transcript::LINE_BYTES >> 20)]
    LineTooLong {
        /// The number of the line, counted from 1.
        line: u64,
    },
    /// A redaction pattern is invalid.
    #[error("the pattern {pattern:?} cannot be used: {reason}")]
    Pattern {
        /// The regular expression or JSON path.
        pattern: String,
        /// The reason.
        reason: String,
    },
    /// A path to ignore is invalid.
    #[error("{path} is not a path: {reason}")]
    BadPath {
        /// The path.
        path: String,
        /// The reason.
        reason: String,
    },
}

impl Error {
    /// Converts an error of the operating system about a file.
    pub(crate) fn file(path: impl Into<PathBuf>, error: io::Error) -> Self {
        let path = path.into();
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Error::DiskFull { path },
            io::ErrorKind::FileTooLarge => Error::FileSizeLimit { path },
            _ => Error::File { path, error: Arc::new(error) },
        }
    }

    /// Rejects a redaction pattern.
    pub(crate) fn pattern(pattern: &str, reason: impl ToString) -> Self {
        Error::Pattern { pattern: pattern.into(), reason: reason.to_string() }
    }

    /// Adds the path to an error of an input that is a file.
    pub(crate) fn in_file(self, path: &Path) -> Self {
        match self {
            Error::Io(error) => Error::File { path: path.into(), error },
            error => error,
        }
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Error::Io(Arc::new(error))
    }
}
