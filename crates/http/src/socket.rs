//! A WebSocket as a stream and a sink of messages, independent of the library behind it.

use std::io;

use bytes::Bytes;
use futures_util::{Sink, Stream};

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
