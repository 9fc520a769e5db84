//! A WebSocket as a stream and a sink of messages, independent of the library behind it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_util::{Sink, SinkExt as _, Stream, StreamExt as _};

/// A message of a WebSocket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SocketMessage {
    Text(Bytes),
    Binary,
    Ping(Bytes),
    Pong(Bytes),
    Close(Option<(u16, String)>),
}

/// The end of a socket that was not closed by a message.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SocketError {
    #[error("a message has {bytes} bytes, the limit is {limit}")]
    TooLarge { bytes: usize, limit: usize },
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Protocol(String),
}

/// A WebSocket. It answers pings by itself when it is read, after the messages before them were returned.
pub(crate) trait FrameSocket:
    Stream<Item = Result<SocketMessage, SocketError>> + Sink<SocketMessage, Error = SocketError> + Send + Unpin
{
}

impl<S> FrameSocket for S where
    S: Stream<Item = Result<SocketMessage, SocketError>>
        + Sink<SocketMessage, Error = SocketError>
        + Send
        + Unpin
{
}

/// The default of `waiting_pings` in the settings of both sides.
pub(crate) const WAITING_PINGS: usize = 1024;

/// A socket that ends if too many pings wait for a peer that does not read their pongs.
pub(crate) struct PingLimit<S> {
    socket: S,
    /// The pings since everything was written.
    waiting: usize,
    limit: usize,
    setting: &'static str,
}

impl<S> PingLimit<S> {
    /// Limits a socket. `setting` is the name of the limit.
    pub(crate) fn new(socket: S, limit: usize, setting: &'static str) -> Self {
        PingLimit { socket, waiting: 0, limit, setting }
    }
}

impl<S: FrameSocket> Stream for PingLimit<S> {
    type Item = Result<SocketMessage, SocketError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let next = ready!(self.socket.poll_next_unpin(cx));
        if !matches!(next, Some(Ok(SocketMessage::Ping(_)))) {
            return Poll::Ready(next);
        }
        self.waiting += 1;
        // The next read has the error of a flush that fails.
        let _ = Sink::<SocketMessage>::poll_flush(self.as_mut(), cx);
        if self.waiting > self.limit {
            let reason =
                format!("over {} pings wait for a peer that does not read (`{}`)", self.limit, self.setting);
            return Poll::Ready(Some(Err(SocketError::Protocol(reason))));
        }
        Poll::Ready(next)
    }
}

impl<S: FrameSocket> Sink<SocketMessage> for PingLimit<S> {
    type Error = SocketError;

    fn poll_ready(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), SocketError>> {
        self.socket.poll_ready_unpin(cx)
    }

    fn start_send(mut self: Pin<&mut Self>, message: SocketMessage) -> Result<(), SocketError> {
        self.socket.start_send_unpin(message)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), SocketError>> {
        let flushed = self.socket.poll_flush_unpin(cx);
        if flushed.is_ready() {
            self.waiting = 0;
        }
        flushed
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), SocketError>> {
        self.socket.poll_close_unpin(cx)
    }
}

/// Converts the error of a WebSocket library.
#[cfg(any(feature = "client", feature = "server"))]
pub(crate) fn socket_error(error: tokio_tungstenite::tungstenite::Error) -> SocketError {
    use tokio_tungstenite::tungstenite::error::{CapacityError, Error, ProtocolError};
    match error {
        Error::Capacity(CapacityError::MessageTooLong { size, max_size }) => {
            SocketError::TooLarge { bytes: size, limit: max_size }
        }
        Error::Io(error) => SocketError::Io(error),
        Error::Protocol(ProtocolError::ResetWithoutClosingHandshake) => {
            SocketError::Io(io::ErrorKind::ConnectionReset.into())
        }
        Error::ConnectionClosed | Error::AlreadyClosed => SocketError::Io(io::ErrorKind::BrokenPipe.into()),
        error => SocketError::Protocol(error.to_string()),
    }
}

#[cfg(all(test, any(feature = "client", feature = "server")))]
mod tests {
    use std::task::Waker;

    use super::*;

    /// A socket with pings without end.
    struct Pinging {
        is_read: bool,
    }

    impl Stream for Pinging {
        type Item = Result<SocketMessage, SocketError>;

        fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
            Poll::Ready(Some(Ok(SocketMessage::Ping(Bytes::new()))))
        }
    }

    impl Sink<SocketMessage> for Pinging {
        type Error = SocketError;

        fn poll_ready(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), SocketError>> {
            Poll::Ready(Ok(()))
        }

        fn start_send(self: Pin<&mut Self>, _: SocketMessage) -> Result<(), SocketError> {
            Ok(())
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), SocketError>> {
            if self.is_read { Poll::Ready(Ok(())) } else { Poll::Pending }
        }

        fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), SocketError>> {
            Poll::Ready(Ok(()))
        }
    }

    #[test]
    fn pings_wait_up_to_a_limit() {
        let mut cx = Context::from_waker(Waker::noop());
        for is_read in [true, false] {
            let mut socket = PingLimit::new(Pinging { is_read }, 3, "a_setting");
            for _ in 0..3 {
                assert!(matches!(socket.poll_next_unpin(&mut cx), Poll::Ready(Some(Ok(_)))));
            }
            let next = socket.poll_next_unpin(&mut cx);
            let is_refused = matches!(
                &next,
                Poll::Ready(Some(Err(SocketError::Protocol(reason)))) if reason.contains("`a_setting`")
            );
            assert_eq!(is_refused, !is_read, "{next:?}");
        }
    }
}
