//! The settings of logs.

/// The limits of the logs in a folder. The defaults suit a server with thousands of sessions.
///
/// ```
/// let mut settings = duologue_store::LogSettings::default();
/// settings.log_bytes = 10 * 1024 * 1024;
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LogSettings {
    /// The size at which a new segment begins, 64 MiB. A longer batch has a segment of its own.
    pub segment_bytes: u64,
    /// The most bytes of one log, 1 GiB.
    pub log_bytes: u64,
    /// The bytes of the disk that are kept for the ends of turns and for removals, 64 MiB. With less room
    /// [`Log::append`](crate::Log::append) is refused.
    pub reserved_bytes: u64,
    /// The most bytes of the newest records that each log keeps in memory for readers, 1 MiB.
    pub tail_bytes: usize,
    /// The bytes that all logs together keep in memory, 64 MiB. Beyond it a log that grows keeps
    /// [`SMALL_TAIL_BYTES`](Self::SMALL_TAIL_BYTES).
    pub all_tails_bytes: usize,
    /// The most files that are open for writing, 256. The least recently used ones are closed.
    pub open_files: usize,
}

const MIB: u64 = 1024 * 1024;

impl LogSettings {
    /// The bytes in memory of a log when `all_tails_bytes` is exceeded.
    pub const SMALL_TAIL_BYTES: usize = 16 * 1024;
    /// The bytes beyond `log_bytes` for [`Log::append_reserved`](crate::Log::append_reserved).
    pub const RESERVE_BYTES: u64 = MIB;
}

impl Default for LogSettings {
    fn default() -> Self {
        LogSettings {
            segment_bytes: 64 * MIB,
            log_bytes: 1024 * MIB,
            reserved_bytes: 64 * MIB,
            tail_bytes: 1024 * 1024,
            all_tails_bytes: 64 * 1024 * 1024,
            open_files: 256,
        }
    }
}
