//! A stream whose first read waits for the whole head of the response to an upgrade.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, BytesMut};
use memchr::memmem;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The most bytes of a head. tungstenite refuses more.
pub(crate) const HEAD_BYTES: usize = 64 * 1024;

/// Holds the bytes of the head back until it is complete. tungstenite takes a head that arrives in many small parts for an
/// attack. What comes behind the head passes as it arrives.
pub(crate) struct WholeHead<S> {
    stream: S,
    head: BytesMut,
    is_complete: bool,
}

impl<S> WholeHead<S> {
    pub(crate) fn new(stream: S) -> Self {
        WholeHead { stream, head: BytesMut::new(), is_complete: false }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WholeHead<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while !self.is_complete {
            let mut part = [0; 1024];
            let mut part = ReadBuf::new(&mut part);
            ready!(Pin::new(&mut self.stream).poll_read(cx, &mut part))?;
            // The end may begin in the part before.
            let searched = self.head.len().saturating_sub(2);
            self.head.extend_from_slice(part.filled());
            let new = self.head.get(searched..).unwrap_or_default();
            let has_end = memmem::find(new, b"\n\r\n").is_some() || memmem::find(new, b"\n\n").is_some();
            self.is_complete = has_end || part.filled().is_empty() || self.head.len() > HEAD_BYTES;
        }
        if self.head.is_empty() {
            return Pin::new(&mut self.stream).poll_read(cx, buf);
        }
        let count = self.head.len().min(buf.remaining());
        buf.put_slice(self.head.get(..count).unwrap_or_default());
        self.head.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WholeHead<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
