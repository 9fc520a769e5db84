//! Errors of logs and stores.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use crate::position::LogPosition;

/// The result of functions of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of a log, of the index or of a store.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file cannot be opened, read or written.
    #[error("{}: {error}", path.display())]
    File {
        /// The path of the file.
        path: PathBuf,
        /// The error of the operating system.
        error: Arc<io::Error>,
    },
    /// The disk is full. Nothing of the batch was appended; it can be appended again when there is space.
    #[error("{}: the disk is full; nothing was appended, free some space and retry", path.display())]
    DiskFull {
        /// The path of the file.
        path: PathBuf,
    },
    /// The file has reached the size limit of the process or of the file system. Nothing of the batch was appended.
    #[error("{}: the file has reached its size limit, see `ulimit -f`; nothing was appended", path.display())]
    FileSizeLimit {
        /// The path of the file.
        path: PathBuf,
    },
    /// The log has reached its size limit. Nothing of the batch was appended.
    #[error("the log has {size} bytes and {more} more would exceed its limit of {limit}; raise `{setting}`")]
    LogFull {
        /// The size of the log in bytes.
        size: u64,
        /// The size of the batch in bytes.
        more: u64,
        /// The limit in bytes.
        limit: u64,
        /// The name of the setting.
        setting: &'static str,
    },
    /// The bytes are not one line of JSON with one object.
    #[error("not a record: {reason}")]
    InvalidLine {
        /// The reason.
        reason: &'static str,
    },
    /// The records behind a position or cursor cannot be read from it.
    #[error("the log cannot be read behind record {position}: {reason}")]
    CursorGone {
        /// The position.
        position: LogPosition,
        /// The reason.
        reason: CursorGoneReason,
    },
    /// Records in the file are damaged. Reading can go on behind `last`.
    #[error("{}, line {line}: records {first} to {last} are damaged: {reason}", path.display())]
    Damaged {
        /// The path of the segment.
        path: PathBuf,
        /// The number of the first damaged line, counted from 1.
        line: u64,
        /// The first damaged record.
        first: LogPosition,
        /// The last damaged record.
        last: LogPosition,
        /// The reason.
        reason: String,
    },
    /// The log or the folder is open already, in this process or in another.
    #[error("{}: it is open already, here or in another program", path.display())]
    InUse {
        /// The path of the folder.
        path: PathBuf,
    },
    /// Another program has changed a file while the log was open. Open the log again to go on.
    #[error("{}: another program has changed it ({found} bytes, expected {expected}); open the log again", path.display())]
    Changed {
        /// The path of the segment.
        path: PathBuf,
        /// The expected length in bytes.
        expected: u64,
        /// The length of the file in bytes, or zero if it was removed or replaced.
        found: u64,
    },
    /// An earlier sync has failed, so the system may have dropped records. Open the log again to go on.
    #[error("{}: records may not have reached the disk ({error}); open the log again", path.display())]
    SyncFailed {
        /// The folder of the log.
        path: PathBuf,
        /// The error of the operating system.
        error: Arc<io::Error>,
    },
    /// The header of a log cannot be used, since a later version has written it.
    #[error("{}: {reason}", path.display())]
    LaterVersion {
        /// The path of the segment.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The name cannot be one of a log.
    #[error("{name:?} cannot name a log: it must have 1 to 128 of `a-z`, `A-Z`, `0-9`, `-` and `_`")]
    BadName {
        /// The name.
        name: String,
    },
    /// The index cannot be read or written.
    #[cfg(feature = "index")]
    #[error("{}: {error}", path.display())]
    Index {
        /// The path of the database.
        path: PathBuf,
        /// The error of the database.
        error: Arc<rusqlite::Error>,
    },
    /// The database of a store cannot be read or written.
    #[cfg(feature = "store")]
    #[error("{}: {error}", path.display())]
    Database {
        /// The path of the database.
        path: PathBuf,
        /// The error of the database.
        error: Arc<rusqlite::Error>,
    },
    /// The database of a store is damaged. It is never replaced, since nothing else has its contents.
    #[cfg(feature = "store")]
    #[error("{}: the database is damaged ({reason}); restore a backup, or move it away to begin without data", path.display())]
    StoreDamaged {
        /// The path of the database.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// A later version of this program has written the database of a store.
    #[cfg(feature = "store")]
    #[error("{}: it has version {found} and this program knows up to {known}; use a later program", path.display())]
    NewerVersion {
        /// The path of the database.
        path: PathBuf,
        /// The version of the database.
        found: i64,
        /// The last version that this program knows.
        known: i64,
    },
    /// The text is not JSON of the expected form.
    #[cfg(feature = "store")]
    #[error("not the expected JSON: {reason}")]
    InvalidJson {
        /// The reason.
        reason: String,
    },
    /// An id or a text is too long, or an id is empty. Nothing of the batch was applied.
    #[cfg(feature = "store")]
    #[error("{field} has a size of {size}, and 1 to {limit} are allowed; see `{setting}`")]
    TooLong {
        /// The name of the field.
        field: &'static str,
        /// The size: characters of an id, bytes of a text, or the number of names or changes.
        size: u64,
        /// The limit.
        limit: u64,
        /// The name of the setting.
        setting: &'static str,
    },
    /// A list of the store is full. Nothing of the batch was applied.
    #[cfg(feature = "store")]
    #[error(
        "{list} has {limit} entries, which is its limit; retry when there are fewer, or raise `{setting}`"
    )]
    LimitReached {
        /// The list, such as the inbox of an agent.
        list: String,
        /// The limit.
        limit: u64,
        /// The name of the setting.
        setting: &'static str,
    },
    /// The records of a principal would have more bytes than they may have. Nothing of the batch was applied.
    #[cfg(feature = "store")]
    #[error(
        "the records of {principal:?} would have over {limit} bytes, which is their limit; remove what has ended, or raise `limits.principal_stored_bytes` (`StoreSettings::bytes_per_principal`)"
    )]
    BytesReached {
        /// The principal.
        principal: String,
        /// The limit in bytes.
        limit: u64,
    },
    /// The disk has little room left, which is kept for the ends of work and for removals. Nothing was appended or applied.
    #[error(
        "the disk has {free} bytes left, and {reserved} are kept for the ends of work and for removals; remove what has ended, free some space, or lower {setting}"
    )]
    DiskReserve {
        /// The bytes that are left. Those of a store have the room of removed records too.
        free: u64,
        /// The bytes that are kept.
        reserved: u64,
        /// The names of the setting.
        setting: &'static str,
    },
    /// A task has changed since the caller has read it. Nothing of the batch was applied.
    #[cfg(feature = "store")]
    #[error("{record} has version {found}, and the update expects {expected}; read it again")]
    VersionLost {
        /// The task.
        record: String,
        /// The version in the update.
        expected: u64,
        /// The version in the store.
        found: u64,
    },
    /// The lease has ended or was never given. Another worker may have the entry. Nothing of the batch was applied.
    #[cfg(feature = "store")]
    #[error("{record} is not valid any more, and another worker may have the entry; claim again")]
    LeaseLost {
        /// The lease.
        record: String,
    },
    /// There is another record with this key. Nothing of the batch was applied.
    #[cfg(feature = "store")]
    #[error("{record} exists with another content or owner; use another id")]
    RecordConflict {
        /// The record.
        record: String,
    },
    /// The remembered key is that of another request. Nothing of the batch was applied.
    #[cfg(feature = "store")]
    #[error("the key {key:?} belongs to another request; use another key")]
    KeyReused {
        /// The key.
        key: String,
    },
    /// There is no such record. Nothing of the batch was applied.
    #[cfg(feature = "store")]
    #[error("{record} does not exist; check its id")]
    NoRecord {
        /// The record.
        record: String,
    },
    /// The state of the record does not allow the change. Nothing of the batch was applied.
    #[cfg(feature = "store")]
    #[error("{record} is {state}, which does not allow this change; read it again")]
    WrongState {
        /// The record.
        record: String,
        /// Its state.
        state: String,
    },
    /// The text is not a cursor of a page of the index.
    #[cfg(feature = "index")]
    #[error("{cursor:?} is not a cursor of this list")]
    BadIndexCursor {
        /// The text.
        cursor: String,
    },
}

/// The reason for [`Error::CursorGone`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CursorGoneReason {
    /// The records were removed. `first` is the first one that is still there.
    Removed {
        /// The first record.
        first: LogPosition,
    },
    /// The life of the cursor ends at `last`. The record was lost in a power cut.
    Lost {
        /// The last record of the life.
        last: LogPosition,
    },
    /// The log has never had this life.
    UnknownLife,
    /// The log ends at `end`.
    BehindEnd {
        /// The last record.
        end: LogPosition,
    },
}

impl fmt::Display for CursorGoneReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CursorGoneReason::Removed { first } => {
                write!(f, "older records were removed, {first} is the first")
            }
            CursorGoneReason::Lost { last } => {
                write!(f, "the record was lost, its life of the log ends at {last}")
            }
            CursorGoneReason::UnknownLife => f.write_str("the log has no such life"),
            CursorGoneReason::BehindEnd { end } => write!(f, "the log ends at {end}"),
        }
    }
}

impl Error {
    /// Converts an error of the operating system about a file.
    pub(crate) fn file(path: impl Into<PathBuf>, error: io::Error) -> Self {
        let path = path.into();
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Error::DiskFull { path },
            io::ErrorKind::FileTooLarge => Error::FileSizeLimit { path },
            io::ErrorKind::ResourceBusy => Error::InUse { path },
            _ => Error::File { path, error: Arc::new(error) },
        }
    }
}
