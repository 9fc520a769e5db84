//! A connection that ends if its peer does not take what is written.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// A connection whose writes fail if the peer takes nothing for a time.
pub(super) struct StallingOutput<T> {
    io: T,
    limit: Duration,
    /// The end of the time, while something waits for the peer.
    stall: Option<Pin<Box<Sleep>>>,
    is_upgraded: UpgradeMark,
}

/// Notes that a connection is a WebSocket, which has limits of its own.
#[derive(Clone, Debug, Default)]
pub(super) struct UpgradeMark(Arc<AtomicBool>);

impl UpgradeMark {
    pub(super) fn set(&self) {
        self.0.store(true, Relaxed);
    }
}

impl<T> StallingOutput<T> {
    pub(super) fn new(io: T, limit: Duration, is_upgraded: UpgradeMark) -> Self {
        StallingOutput { io, limit, stall: None, is_upgraded }
    }

    /// Passes the result of a write on, or fails if nothing was taken for the time.
    fn check<R>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<R>>) -> Poll<io::Result<R>> {
        if written.is_ready() || self.is_upgraded.0.load(Relaxed) {
            self.stall = None;
            return written;
        }
        let stall = self.stall.get_or_insert_with(|| Box::pin(sleep(self.limit)));
        ready!(stall.as_mut().poll(cx));
        let reason = format!("the client took nothing for {:?} (`ServerOptions::stall_timeout`)", self.limit);
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, reason)))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for StallingOutput<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buffer)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for StallingOutput<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(cx, bytes);
        self.check(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(cx, parts);
        self.check(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let written = Pin::new(&mut self.io).poll_flush(cx);
        self.check(cx, written)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let written = Pin::new(&mut self.io).poll_shutdown(cx);
        self.check(cx, written)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn a_write_fails_when_nothing_was_taken_for_the_time() {
        let (server, mut client) = duplex(4);
        let mut output = StallingOutput::new(server, LIMIT, UpgradeMark::default());
        let writing = tokio::spawn(async move { output.write_all(&[0; 20]).await });
        // Each part begins the time again.
        for _ in 0..4 {
            tokio::time::advance(LIMIT * 2 / 3).await;
            client.read_exact(&mut [0; 4]).await.expect("a part");
        }
        writing.await.expect("no panic").expect("written");
        let (server, _client) = duplex(4);
        let error = StallingOutput::new(server, LIMIT, UpgradeMark::default()).write_all(&[0; 12]).await;
        let error = error.expect_err("nobody reads");
        assert!(error.to_string().contains("`ServerOptions::stall_timeout`"), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_web_socket_has_its_own_limit() {
        let (server, mut client) = duplex(4);
        let mark = UpgradeMark::default();
        let mut output = StallingOutput::new(server, LIMIT, mark.clone());
        mark.set();
        let writing = tokio::spawn(async move { output.write_all(&[0; 8]).await });
        tokio::time::advance(LIMIT * 2).await;
        client.read_exact(&mut [0; 8]).await.expect("everything");
        writing.await.expect("no panic").expect("written");
    }
}
