//! The limits of a connection.

use std::time::Duration;

/// The limits of one connection. The defaults suit an editor and an agent on one machine.
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
    /// The longest line in either direction, in bytes without its line end. A longer incoming line ends
    /// the connection; a longer outgoing message is rejected with an error to its sender.
    pub frame_bytes: usize,
    /// The deepest nesting of arrays and objects.
    pub depth: usize,
    /// The most values in one line, counted by objects, arrays and commas. It bounds the memory of a decoded line:
    /// an empty string in a list has three bytes of text and takes eight times as much in memory.
    pub values: usize,
    /// The wire bytes in all queues of a connection at which the reader pauses.
    pub queue_bytes: usize,
    /// The wire bytes in all queues at which the fullest queue is ended, even if the reader may not pause.
    pub queue_bytes_hard: usize,
    /// The time after which the fullest queue ends if all queues exceed `queue_bytes` and nothing is taken.
    pub stall_timeout: Duration,
    /// The most incoming requests that wait for their response. The next one is rejected at once.
    pub in_flight: usize,
    /// The most wire bytes of those requests together. The next request is rejected, unless it is the only one.
    pub in_flight_bytes: usize,
    /// The unwritten output at which senders of notifications wait. A cancellation queues behind this output, so keep
    /// it small: a pipe holds 64 KiB.
    pub output_bytes: usize,
    /// The unwritten output at which the connection ends if nothing is written for `stall_timeout`, because the peer
    /// sends requests but does not read.
    ///
    /// Responses of handlers wait at half of it. The reader pauses while this much of the output is responses, so a
    /// slow peer is served at its own speed. At four times as much the connection ends at once. Only requests and
    /// notifications of this side can reach that.
    pub output_bytes_hard: usize,
    /// The most consecutive unreadable lines that are answered with an error.
    pub parse_errors_in_a_row: u32,
    /// The time that a cancelled handler has to respond before it is dropped and an error is sent for it.
    pub cancel_grace: Duration,
}

const MIB: usize = 1024 * 1024;

impl Limits {
    /// The longest id of a request, in bytes of its token, or a quarter of `frame_bytes` if that is less. The id is
    /// kept while its request is in flight. Requests in a session with a longer id are rejected.
    pub const ID_BYTES: usize = 64 * 1024;
    /// The most bytes of updates that wait for the response which creates their session.
    pub const EARLY_BYTES: usize = 8 * MIB;
    /// The number of recent lines that were not messages and are kept to explain errors.
    pub const NOISE_LINES: usize = 20;
    /// The bytes that are kept of each of these lines.
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
