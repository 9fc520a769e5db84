//! The traits between the router and the agents behind it.

use std::future::Future;
use std::sync::Arc;

use axum::http::{Extensions, HeaderMap, Uri};
use bytes::Bytes;
use duologue_rpc::SecretText;

use crate::wire::{RemoteConnectionId, StreamId, StreamPosition};

/// The head of the HTTP request that opened a socket, for authentication.
///
/// A layer in front of the router can store the caller in [`extensions`](Self::extensions).
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct HttpRequestHead {
    /// The address of the request.
    pub uri: Uri,
    /// The headers of the request.
    pub headers: HeaderMap,
    /// The values that layers in front of the router have stored.
    pub extensions: Extensions,
}

/// The transport of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectionKind {
    /// A WebSocket with all frames in their order.
    #[default]
    WebSocket,
    /// A POST for each frame of the client, and an SSE response for each stream.
    Events,
}

/// A new connection: the `initialize` request of a client.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ConnectRequest {
    /// The id that the client was given for the connection.
    pub id: RemoteConnectionId,
    /// The transport.
    pub kind: ConnectionKind,
    /// The head of the HTTP request.
    pub head: HttpRequestHead,
    /// The text of `initialize`.
    pub initialize: Bytes,
}

/// A client that comes back to its connection.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ResumeRequest {
    /// The connection.
    pub id: RemoteConnectionId,
    /// The secret of the connection.
    pub secret: Option<SecretText>,
    /// The head of the HTTP request.
    pub head: HttpRequestHead,
    /// The positions of the client.
    pub positions: Vec<StreamPosition>,
}

/// An SSE response that a client opens.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StreamRequest {
    /// The stream.
    pub stream: StreamId,
    /// The id of the last event that the client has received.
    pub cursor: Option<Arc<str>>,
    /// The secret of the connection. With it the stream is taken over from an older response, and without a cursor the
    /// client has received nothing. Without it the stream goes on behind the last frame that was written. An
    /// [`AgentEndpoint`](crate::AgentEndpoint) refuses every request without it from then on.
    pub secret: Option<SecretText>,
}

/// One frame of a client.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct IncomingFrame {
    /// The text of the frame.
    pub text: Bytes,
    /// The session that the request names in its header. The params may have another place for it, or none.
    pub session: Option<Arc<str>>,
    /// The number of the frame, if the client numbers them. A frame is accepted once, however often it is sent.
    pub number: Option<u64>,
}

impl From<Bytes> for IncomingFrame {
    fn from(text: Bytes) -> Self {
        IncomingFrame { text, session: None, number: None }
    }
}

/// A connection that was resumed.
#[derive(Debug)]
pub struct Resumed<C> {
    /// The connection. It replaces all handles that were given out before.
    pub connection: C,
    /// The number of the client's frames that were accepted, `initialize` included.
    pub received: u64,
}

/// The refusal of a connection or a frame.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
#[non_exhaustive]
pub struct Rejection {
    /// The code of the JSON-RPC error.
    pub code: i64,
    /// The message of the JSON-RPC error.
    pub message: String,
    /// The code that closes the socket.
    pub close_code: u16,
}

impl Rejection {
    /// Creates a refusal with the JSON-RPC code of an internal error.
    pub fn new(message: impl Into<String>) -> Self {
        Rejection { code: -32603, message: message.into(), close_code: crate::close_code::STALLED }
    }

    /// Sets the code of the JSON-RPC error.
    #[must_use]
    pub fn code(mut self, code: i64) -> Self {
        self.code = code;
        self
    }

    /// Sets the code that closes the socket.
    #[must_use]
    pub fn close_code(mut self, close_code: u16) -> Self {
        self.close_code = close_code;
        self
    }
}

/// The refusal of a resume or of an SSE response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ResumeRefused {
    /// No such connection, or not this secret. A client cannot distinguish the two.
    #[error("unknown connection, or it has ended")]
    Unknown,
    /// Frames after the position of the client are not kept any more.
    #[error("frames after the cursor are not kept any more")]
    CursorGone,
    /// The position is none that the server has sent.
    #[error("invalid cursors")]
    InvalidCursor,
    /// Another response has the stream.
    #[error("another request has this stream; end it, or take the stream over with `Acp-Resume`")]
    InUse,
    /// The connection has too many streams.
    #[error("stream limit reached ({limit}); close sessions or raise `{setting}`")]
    TooManyStreams {
        /// The limit.
        limit: usize,
        /// The setting with the limit.
        setting: &'static str,
    },
    /// The endpoint has no SSE streams.
    #[error("unsupported stream")]
    Unsupported,
}

impl ResumeRefused {
    /// Returns the reason as it is on the wire.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            ResumeRefused::Unknown => "unknown_connection",
            ResumeRefused::CursorGone => "cursor_gone",
            ResumeRefused::InvalidCursor => "invalid_cursor",
            ResumeRefused::InUse => "stream_in_use",
            ResumeRefused::TooManyStreams { .. } => "too_many_streams",
            ResumeRefused::Unsupported => "unsupported",
        }
    }
}

/// A frame from the server.
#[derive(Clone, Debug)]
pub struct OutgoingFrame {
    /// The stream that the frame belongs to.
    pub stream: StreamId,
    /// The cursor in the frame, if it has one. In an SSE stream each frame has one, and it is the id of the event.
    pub cursor: Option<Arc<str>>,
    /// The text of the frame: one JSON-RPC message without line breaks.
    pub text: Bytes,
}

/// The reason for which a source has no more frames.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SourceEnd {
    /// The connection has ended, and every frame was returned.
    Ended,
    /// A newer source replaced this one.
    Superseded,
    /// The agent failed with this reason.
    Failed(String),
}

/// The reason for which a connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CloseReason {
    /// The client closed its socket with the code 1000 or without a code.
    ClientClosed,
    /// The client deleted the connection.
    Deleted,
}

/// The agents behind a router.
pub trait Endpoint: Send + Sync + 'static {
    /// The connection of one client.
    type Connection: ServerConnection;

    /// Opens a connection and accepts its `initialize`.
    fn connect(
        &self,
        request: ConnectRequest,
    ) -> impl Future<Output = Result<Self::Connection, Rejection>> + Send;

    /// Gives a client its connection back. It always wins over an older socket: handles and sources that were given out
    /// before end with it.
    fn resume(
        &self,
        request: ResumeRequest,
    ) -> impl Future<Output = Result<Resumed<Self::Connection>, ResumeRefused>> + Send;

    /// Returns an open connection of the kind [`ConnectionKind::Events`]. Its id is no credential; an endpoint with several
    /// users compares the caller in the head of the request.
    fn find(
        &self,
        id: &RemoteConnectionId,
        head: &HttpRequestHead,
    ) -> impl Future<Output = Option<Self::Connection>> + Send;
}

/// The connection of one client.
pub trait ServerConnection: Clone + Send + Sync + 'static {
    /// The frames for the client.
    type Source: FrameSource;

    /// Returns the id of the connection.
    fn id(&self) -> &RemoteConnectionId;

    /// Takes one frame of the client. It resolves when the frame is accepted, so that its number may be acknowledged.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped before it resolves, the frame was not accepted.
    fn accept(&self, frame: IncomingFrame) -> impl Future<Output = Result<(), Rejection>> + Send;

    /// Opens all frames for the client of a WebSocket, behind these positions. A newer source ends the older one.
    ///
    /// # Errors
    ///
    /// If the positions cannot be resumed.
    fn open(&self, positions: &[StreamPosition]) -> Result<Self::Source, ResumeRefused>;

    /// Waits for the response to `initialize` of a connection of the kind [`ConnectionKind::Events`]. No stream has it.
    ///
    /// # Cancel safety
    ///
    /// The response is not lost if the future is dropped.
    fn initialize_response(&self) -> impl Future<Output = Result<Bytes, SourceEnd>> + Send;

    /// Opens one stream of a connection of the kind [`ConnectionKind::Events`].
    ///
    /// # Errors
    ///
    /// If the stream is in use, or cannot be resumed.
    fn open_stream(&self, request: StreamRequest) -> Result<Self::Source, ResumeRefused>;

    /// Ends the connection.
    fn close(&self, reason: CloseReason) -> impl Future<Output = ()> + Send;
}

/// The frames for one client in their order. Dropping the source means that the client is absent.
pub trait FrameSource: Send + 'static {
    /// Returns the next frame, and waits for it.
    ///
    /// # Errors
    ///
    /// The end of the source. Later calls return it again: a server that takes frames as long as they are there drops the
    /// first one.
    ///
    /// # Cancel safety
    ///
    /// No frame is lost if the future is dropped.
    fn next(&mut self) -> impl Future<Output = Result<OutgoingFrame, SourceEnd>> + Send;

    /// Reports that the client has received the first `frames` frames of this source, which need not be kept.
    fn confirm(&mut self, frames: u64) {
        let _ = frames;
    }
}
