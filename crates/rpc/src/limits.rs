//! Every number that bounds a connection, in one place.

use std::time::Duration;

/// What one connection may cost. The defaults suit an editor and an agent on one machine.
///
/// ```
/// use duologue_rpc::Limits;
///
/// let limits = Limits::default();
/// assert_eq!(limits.frame_bytes, 16 * 1024 * 1024);
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Limits {
    /// Longest line in either direction, in bytes without its line end. A longer incoming line ends
    /// the connection; a longer outgoing one is refused to its sender.
    pub frame_bytes: usize,
    /// Deepest nesting of arrays and objects that is read.
    pub depth: usize,
    /// Values in one line (objects, arrays, and what stands between two commas) that are read. It bounds what
    /// a line can become: three bytes of text, an empty string in a list, take eight times as much in memory.
    pub values: usize,
    /// Wire bytes that all queues of a connection may hold together before the reader pauses.
    pub queue_bytes: usize,
    /// Wire bytes at which the fullest queue is ended even though the reader may not pause.
    pub queue_bytes_hard: usize,
    /// How long the queues may stay over `queue_bytes` with nothing taken before the fullest one ends.
    pub stall_timeout: Duration,
    /// Incoming requests that may wait for their answer; the next one is refused at once.
    pub in_flight: usize,
    /// Wire bytes of those requests together; above it the next one is refused, unless it is alone.
    pub in_flight_bytes: usize,
    /// Unwritten output at which senders of notifications wait. A cancellation queues behind it, so keep it small: a
    /// pipe holds 64 KiB.
    pub output_bytes: usize,
    /// Unwritten output at which the connection ends when nothing leaves for `stall_timeout`: the peer asks but does
    /// not read. Answers of handlers wait at half of it, and while so much of it is answers the reader pauses, so a
    /// peer that reads is served at its own speed. At
    /// four times as much, which only requests and notifications of this side can reach before the end, the connection ends at
    /// once.
    pub output_bytes_hard: usize,
    /// Answers to unreadable lines in a row before we fall silent.
    pub parse_errors_in_a_row: u32,
    /// How long a cancelled handler may take to answer before it is dropped and answered for.
    pub cancel_grace: Duration,
}

const MIB: usize = 1024 * 1024;

impl Limits {
    /// Longest id that is read, in bytes of its token, or a quarter of `frame_bytes`. It is kept while its request
    /// is in flight. Requests in a session whose id is longer are refused.
    pub const ID_BYTES: usize = 64 * 1024;
    /// How many bytes may be said in a session before the answer that makes it has been sent, which they wait for.
    pub const EARLY_BYTES: usize = 8 * MIB;
    /// How many of the last lines that were no messages are kept, for the error that they explain.
    pub const NOISE_LINES: usize = 20;
    /// How many bytes of each.
    pub const NOISE_LINE_BYTES: usize = 1024;
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            frame_bytes: 16 * MIB,
            depth: 128,
            values: 512 * 1024,
            queue_bytes: 32 * MIB,
            queue_bytes_hard: 48 * MIB,
            stall_timeout: Duration::from_secs(10),
            in_flight: 1024,
            in_flight_bytes: 64 * MIB,
            output_bytes: 256 * 1024,
            output_bytes_hard: 64 * MIB,
            parse_errors_in_a_row: 10,
            cancel_grace: Duration::from_secs(1),
        }
    }
}
