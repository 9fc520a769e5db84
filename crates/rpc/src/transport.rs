//! The byte streams of a connection.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite};

use crate::sync::{Lock, Mutex};

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
    pub(crate) writes_at_once: bool,
}

impl Transport {
    /// Creates a transport from its two halves.
    pub fn new(
        reader: impl AsyncRead + Send + Unpin + 'static,
        writer: impl AsyncWrite + Send + Unpin + 'static,
    ) -> Self {
        Transport { reader: Box::new(reader), writer: Box::new(writer), writes_at_once: false }
    }

    /// Declares that the writer is a nonblocking pipe or socket without a buffer of its own.
    ///
    /// Polling it outside a task, without a flush, must write at once what fits. Then the sender of a single request or
    /// response writes it without waking the writer's task. Do not declare this for files, terminals and wrappers that
    /// buffer.
    #[must_use]
    pub fn writes_at_once(mut self) -> Self {
        self.writes_at_once = true;
        self
    }

    /// Returns true if [`writes_at_once`](Self::writes_at_once) was declared, for a wrapper of the halves.
    #[must_use]
    pub fn is_written_at_once(&self) -> bool {
        self.writes_at_once
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

/// The writing half, shared by the writer and the senders. One of them writes at a time.
#[derive(Clone)]
pub(crate) struct SharedWriter(Arc<Mutex<Writer>>);

impl SharedWriter {
    pub(crate) fn new(writer: Writer) -> Self {
        SharedWriter(Arc::new(Mutex::new(writer)))
    }
}

impl AsyncWrite for SharedWriter {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.0.lock_unpoisoned()).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0.lock_unpoisoned()).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0.lock_unpoisoned()).poll_shutdown(cx)
    }
}
