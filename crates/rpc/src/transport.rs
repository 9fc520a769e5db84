//! The byte streams of a connection.

use tokio::io::{AsyncRead, AsyncWrite};

type Reader = Box<dyn AsyncRead + Send + Unpin>;
type Writer = Box<dyn AsyncWrite + Send + Unpin>;

/// The two byte streams of a connection: one to read, one to write.
///
/// ```
/// use duologue_rpc::Transport;
///
/// // Two ends of a pipe in memory, for tests that need both sides in one process.
/// let (ours, theirs) = Transport::memory();
/// # let _ = (ours, theirs);
/// ```
pub struct Transport {
    pub(crate) reader: Reader,
    pub(crate) writer: Writer,
}

impl Transport {
    /// Creates a transport from its two halves.
    pub fn new(
        reader: impl AsyncRead + Send + Unpin + 'static,
        writer: impl AsyncWrite + Send + Unpin + 'static,
    ) -> Self {
        Transport { reader: Box::new(reader), writer: Box::new(writer) }
    }

    /// Returns the two halves.
    #[must_use]
    pub fn into_split(self) -> (Reader, Writer) {
        (self.reader, self.writer)
    }

    /// Creates two connected transports in memory, with the capacity of a Linux pipe.
    #[must_use]
    pub fn memory() -> (Self, Self) {
        Transport::memory_with_capacity(64 * 1024)
    }

    /// Creates two connected transports in memory with a capacity of `bytes` in each direction.
    #[must_use]
    pub fn memory_with_capacity(bytes: usize) -> (Self, Self) {
        let (left, right) = tokio::io::duplex(bytes);
        let (left_reader, left_writer) = tokio::io::split(left);
        let (right_reader, right_writer) = tokio::io::split(right);
        (Transport::new(left_reader, left_writer), Transport::new(right_reader, right_writer))
    }
}

impl std::fmt::Debug for Transport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Transport").finish_non_exhaustive()
    }
}
