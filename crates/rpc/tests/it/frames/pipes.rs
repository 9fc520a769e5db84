//! Pipes of one page, and wrappers that make any wire difficult.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use fastrand::Rng;
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::unix::pipe::{Receiver, Sender};

/// The capacity of a narrow pipe.
pub(crate) const PAGE: usize = 4096;

/// A pipe that holds one page.
pub(crate) fn narrow() -> (Receiver, Sender) {
    let (receiver, sender) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).expect("a pipe");
    assert_eq!(fcntl_setpipe_size(&sender, PAGE).expect("a size"), PAGE);
    let receiver = Receiver::from_owned_fd(receiver).expect("a pipe");
    (receiver, Sender::from_owned_fd(sender).expect("a pipe"))
}

/// Reads, writes and flushes as its seed says: short, later, interrupted, or as they are.
pub(crate) struct Difficult<T> {
    inner: T,
    rng: Rng,
}

impl<T> Difficult<T> {
    pub(crate) fn new(inner: T, seed: u64) -> Self {
        Difficult { inner, rng: Rng::with_seed(seed) }
    }

    /// Returns the injected result, if the call is to be replaced.
    fn instead(&mut self, cx: &Context<'_>) -> Option<Poll<io::Error>> {
        match self.rng.u8(..8) {
            0 => Some(Poll::Ready(io::ErrorKind::Interrupted.into())),
            // The future's form of `EAGAIN`.
            1 | 2 => {
                cx.waker().wake_by_ref();
                Some(Poll::Pending)
            }
            _ => None,
        }
    }

    /// As much as there is, or some of it, down to one byte.
    fn some(&mut self, most: usize) -> usize {
        match self.rng.u8(..4) {
            0 => most,
            1 => 1,
            2 => self.rng.usize(1..=most.min(64)),
            _ => self.rng.usize(1..=most),
        }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Difficult<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(instead) = self.instead(cx) {
            return instead.map(Err);
        }
        let most = self.some(buf.remaining());
        let mut some = buf.take(most);
        let read = Pin::new(&mut self.inner).poll_read(cx, &mut some);
        let count = some.filled().len();
        buf.advance(count);
        read
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Difficult<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if let Some(instead) = self.instead(cx) {
            return instead.map(Err);
        }
        let most = self.some(bytes.len());
        Pin::new(&mut self.inner).poll_write(cx, &bytes[..most])
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(instead) = self.instead(cx) {
            return instead.map(Err);
        }
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
