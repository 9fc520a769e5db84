//! The WebSocket of tungstenite as a [`FrameSocket`](crate::socket::FrameSocket).

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_util::{Sink, SinkExt as _, Stream, StreamExt as _};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::CloseFrame;
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};

use crate::socket::{SocketError, SocketMessage, socket_error};

/// A socket that a client has opened.
pub(crate) struct TungsteniteSocket<S>(pub(crate) WebSocketStream<S>);

impl<S: AsyncRead + AsyncWrite + Unpin> Stream for TungsteniteSocket<S> {
    type Item = Result<SocketMessage, SocketError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Some(message) = ready!(self.0.poll_next_unpin(cx)) else { return Poll::Ready(None) };
        Poll::Ready(Some(message.map_err(socket_error).map(|message| match message {
            Message::Text(text) => SocketMessage::Text(text.into()),
            Message::Binary(_) | Message::Frame(_) => SocketMessage::Binary,
            Message::Ping(payload) => SocketMessage::Ping(payload),
            Message::Pong(payload) => SocketMessage::Pong(payload),
            Message::Close(close) => {
                SocketMessage::Close(close.map(|close| (close.code.into(), close.reason.to_string())))
            }
        })))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Sink<SocketMessage> for TungsteniteSocket<S> {
    type Error = SocketError;

    fn poll_ready(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), SocketError>> {
        self.0.poll_ready_unpin(cx).map_err(socket_error)
    }

    fn start_send(mut self: Pin<&mut Self>, message: SocketMessage) -> Result<(), SocketError> {
        let message = match message {
            SocketMessage::Text(text) => {
                let text = Utf8Bytes::try_from(text);
                Message::Text(text.map_err(|error| SocketError::Protocol(error.to_string()))?)
            }
            SocketMessage::Ping(payload) => Message::Ping(payload),
            SocketMessage::Pong(payload) => Message::Pong(payload),
            SocketMessage::Close(close) => Message::Close(
                close.map(|(code, reason)| CloseFrame { code: code.into(), reason: reason.into() }),
            ),
            SocketMessage::Binary => return Ok(()),
        };
        self.0.start_send_unpin(message).map_err(socket_error)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), SocketError>> {
        self.0.poll_flush_unpin(cx).map_err(socket_error)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), SocketError>> {
        self.0.poll_close_unpin(cx).map_err(socket_error)
    }
}
