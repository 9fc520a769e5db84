//! The interface of a log.

use std::time::Duration;

use bytes::Bytes;
use duologue_transcript::Header;

use crate::error::Result;
use crate::line::LogLine;
use crate::position::{LogCursor, LogPosition};

/// The records of one session, in order.
///
/// The functions block, so an asynchronous caller runs them on a thread of its own. A log has one owner, which
/// appends. Any number of readers read pages; they take no lock while they read a file, and never wait for the
/// writer.
///
/// A log is opened once in each life of its owner, and each life begins with a record
/// `{"at":…,"hub":{"event":"opened","life":N}}` that the log writes itself.
pub trait Log: Send + Sync {
    /// Returns the header of the transcript.
    fn header(&self) -> &Header;

    /// Returns the number of this life. Later lives of a log have higher numbers.
    fn life(&self) -> u32;

    /// Returns the time of the record that began this life, since the start in the header. Records of this life
    /// continue from there, so that times never decrease.
    fn opened_at(&self) -> Duration;

    /// Appends a batch with one write and returns the position of its last record. The batch is accepted then:
    /// it survives the end of this process. An empty batch returns [`end`](Self::end).
    ///
    /// # Errors
    ///
    /// After an error nothing of the batch is in the log, so it can be appended again.
    /// [`Error::LogFull`](crate::Error::LogFull), and for files [`Error::DiskReserve`](crate::Error::DiskReserve),
    /// [`Error::DiskFull`](crate::Error::DiskFull),
    /// [`Error::FileSizeLimit`](crate::Error::FileSizeLimit), [`Error::File`](crate::Error::File),
    /// [`Error::Changed`](crate::Error::Changed) and [`Error::SyncFailed`](crate::Error::SyncFailed).
    fn append(&self, lines: &[LogLine]) -> Result<LogPosition>;

    /// Appends a batch and may use the reserve of a full log: 1 MiB beyond its limit. It is for the record that
    /// ends a turn because the log is full.
    ///
    /// # Errors
    ///
    /// As [`append`](Self::append).
    fn append_reserved(&self, lines: &[LogLine]) -> Result<LogPosition>;

    /// Waits until all accepted records survive a power cut, and returns the position of the last of them.
    ///
    /// # Errors
    ///
    /// [`Error::SyncFailed`](crate::Error::SyncFailed). The log refuses further records then, since the system may
    /// have dropped some. [`Error::File`](crate::Error::File), [`Error::InUse`](crate::Error::InUse) and
    /// [`Error::Changed`](crate::Error::Changed) if another program has removed or changed the file, or if a file that
    /// was closed cannot be opened again.
    fn sync(&self) -> Result<LogPosition>;

    /// Reads records behind a position, at most `max_bytes` of them but at least one if there is one. The page of
    /// the last position is empty.
    ///
    /// # Errors
    ///
    /// [`Error::CursorGone`](crate::Error::CursorGone) if the next record was removed or the position is behind the
    /// end. [`Error::Damaged`](crate::Error::Damaged) if the next record cannot be read.
    fn read(&self, after: LogPosition, max_bytes: usize) -> Result<LogPage>;

    /// Returns the position of the first record that is still there.
    fn first(&self) -> LogPosition;

    /// Returns the position of the last accepted record.
    fn end(&self) -> LogPosition;

    /// Checks a cursor of this or an earlier life and returns its position.
    ///
    /// # Errors
    ///
    /// [`Error::CursorGone`](crate::Error::CursorGone) with the reason. [`Error::File`](crate::Error::File) if the end of an
    /// earlier life cannot be read.
    fn check(&self, cursor: LogCursor) -> Result<LogPosition>;

    /// Returns the cursor of a position for a later [`check`](Self::check).
    fn cursor(&self, position: LogPosition) -> LogCursor {
        LogCursor { life: self.life(), position }
    }

    /// Removes old records, but none from `keep` on, and returns the first one that is still there. Files are
    /// removed in whole segments, never the newest one.
    ///
    /// # Errors
    ///
    /// [`Error::File`](crate::Error::File).
    fn remove_before(&self, keep: LogPosition) -> Result<LogPosition>;
}

/// A record of a log with its position.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogRecord {
    /// The position.
    pub position: LogPosition,
    /// The line, without its line feed. It shares memory with the others of its page.
    pub line: Bytes,
}

/// Consecutive records of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogPage {
    /// The records.
    pub records: Vec<LogRecord>,
    /// The last record of the log when the page was read.
    pub end: LogPosition,
}

impl LogPage {
    /// Returns the position of the last record of the page, from which the next page continues.
    #[must_use]
    pub fn last(&self) -> Option<LogPosition> {
        self.records.last().map(|record| record.position)
    }
}
