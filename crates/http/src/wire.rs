//! The names and messages of the transport itself: headers, close codes, and the methods `stream/…`.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use duologue_rpc::SecretText;
use duologue_rpc::raw_message::call_frame;
use http::HeaderValue;
use http::header::InvalidHeaderValue;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize, Serializer};

use crate::frame_view::FrameView;

/// The header with the id of a connection.
pub const CONNECTION_ID: &str = "acp-connection-id";
/// The header of a client that wants its frames acknowledged from the beginning.
pub const STREAM_ACK: &str = "acp-stream-ack";
/// The header with the session of a request over HTTP with SSE.
pub const SESSION_ID: &str = "acp-session-id";
/// The header with the number of a client's frame over HTTP with SSE. A frame is accepted once, however often it is sent.
pub const FRAME_NUMBER: &str = "acp-frame-number";
/// The header with the secret of a connection, with which a client takes an SSE stream over from an older request. From then on
/// every request of the connection needs it.
pub const RESUME_SECRET: &str = "acp-resume";
/// The header with the id of the last event that a client has received in a stream.
pub(crate) const LAST_EVENT_ID: &str = "last-event-id";

/// The JSON-RPC code for a failure of the agent.
pub(crate) const INTERNAL_ERROR: i64 = -32603;

/// The close codes of a WebSocket that this crate sends or understands.
pub mod close_code {
    /// The connection has ended. It cannot be resumed.
    pub const NORMAL: u16 = 1000;
    /// The first frame was neither `initialize` nor `stream/resume`.
    pub const PROTOCOL: u16 = 1002;
    /// The client did not read, or did not send its first message, for too long. The connection can be resumed.
    pub const STALLED: u16 = 1008;
    /// A message was longer than the limit.
    pub const TOO_BIG: u16 = 1009;
    /// The agent failed. The connection cannot be resumed.
    pub const AGENT_FAILED: u16 = 4500;
    /// A newer socket resumed the connection.
    pub const SUPERSEDED: u16 = 4409;
}

pub(crate) const INITIALIZE: &str = "initialize";
/// The method that withdraws a request.
pub(crate) const CANCEL_REQUEST: &str = "$/cancel_request";
pub(crate) const RESUME: &str = "stream/resume";
pub(crate) const RESUMED: &str = "stream/resumed";
pub(crate) const RESUME_FAILED: &str = "stream/resume_failed";
pub(crate) const ACK: &str = "stream/ack";
/// The member of `_meta` with the cursor of a frame.
pub(crate) const CURSOR: &str = "acp/cursor";

/// Returns the session of a child session, from the id that a hub gives to the child: the id of its session, which is a UUID,
/// `~`, and a number. Another id is returned as it is.
#[must_use]
pub fn root_session(id: &str) -> &str {
    /// The length of a UUID as text.
    const UUID: usize = 36;
    let is_uuid = |text: &str| {
        text.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
    };
    match id.split_at_checked(UUID) {
        Some((root, child)) if is_uuid(root) => match child.strip_prefix('~') {
            Some(number) if !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) => root,
            _ => id,
        },
        _ => id,
    }
}

/// A stream of frames from the server, each with cursors of its own.
///
/// The stream of a frame is a function of its text: a request or notification with a `params.sessionId` belongs to the
/// stream of that session, or of its [root](root_session), and every other frame to the stream of the connection. Both sides
/// count by this rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StreamId {
    /// The frames that belong to no session, and all responses.
    Connection,
    /// The frames of a session.
    Session(Arc<str>),
}

/// The position of a client in one stream: a cursor and the number of frames after it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StreamPosition {
    /// The session of the stream. Absent for the stream of the connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<Arc<str>>,
    /// The last cursor that the client received in this stream. Absent before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<Arc<str>>,
    /// The number of frames of this stream that the client received after the frame with the cursor.
    #[serde(default)]
    pub frames: u64,
}

impl StreamPosition {
    /// Returns the stream.
    #[must_use]
    pub fn stream(&self) -> StreamId {
        self.session_id.clone().map_or(StreamId::Connection, StreamId::Session)
    }
}

/// The params of `stream/resume`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ResumeParams {
    pub(crate) connection_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none", serialize_with = "secret_text")]
    pub(crate) secret: Option<SecretText>,
    #[serde(default)]
    pub(crate) cursors: Vec<StreamPosition>,
}

/// The params of `stream/resumed` and `stream/ack`.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ReceivedParams {
    pub(crate) received: u64,
}

/// The params of `stream/resume_failed`.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ResumeFailedParams {
    pub(crate) reason: String,
    #[serde(default)]
    pub(crate) message: String,
}

/// The secret that a client needs to resume its connection, and the promise of the server to acknowledge frames: the
/// member `resume` of `_meta.duologue` in the response to `initialize`.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct ResumeGrant {
    #[serde(serialize_with = "secret_text")]
    pub(crate) secret: Option<SecretText>,
    #[serde(default)]
    pub(crate) acknowledges: bool,
}

/// The capability `transport.resumable`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ResumableCapability {
    #[serde(default)]
    pub(crate) retention_messages: u64,
    #[serde(default)]
    pub(crate) retention_seconds: u64,
}

/// The id of a connection: a random text that is no credential.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct RemoteConnectionId(Arc<str>);

impl RemoteConnectionId {
    /// Creates an id from its text.
    pub fn new(id: impl Into<Arc<str>>) -> Self {
        RemoteConnectionId(id.into())
    }

    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for RemoteConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for RemoteConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Returns the value of the header `Authorization` with a token, if it has the characters for it.
pub(crate) fn authorization(token: &SecretText) -> Result<HeaderValue, InvalidHeaderValue> {
    let mut value = HeaderValue::try_from(format!("Bearer {}", token.as_str()))?;
    value.set_sensitive(true);
    Ok(value)
}

/// Writes a notification of the transport.
pub(crate) fn notification<P: Serialize>(method: &str, params: &P) -> Bytes {
    // These params are strings and numbers, so encoding cannot fail.
    Bytes::from(call_frame(None, method, params).unwrap_or_default())
}

/// Reads the params of a message of the transport.
pub(crate) fn params<P: DeserializeOwned>(view: &FrameView<'_>) -> Result<P, serde_json::Error> {
    serde_json::from_slice(view.params.unwrap_or(b"null"))
}

/// Writes a secret into a message.
fn secret_text<S: Serializer>(secret: &Option<SecretText>, serializer: S) -> Result<S::Ok, S::Error> {
    secret.as_ref().map(SecretText::as_str).serialize(serializer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_in_the_message_and_not_shown() {
        let text = r#"{"connectionId":"c","secret":"swordfish","cursors":[]}"#;
        let params: ResumeParams = serde_json::from_str(text).unwrap();
        let shown = format!("{params:?}");
        assert!(shown.contains("[redacted]") && !shown.contains("swordfish"), "{shown}");
        assert_eq!(serde_json::to_string(&params).unwrap(), text);
    }
}
