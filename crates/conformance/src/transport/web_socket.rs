//! A connection over a WebSocket: its messages, the positions of its streams and a session on it.

use std::collections::BTreeMap;

use duologue_http::raw::{RawMessage, RawWebSocket};
use duologue_transcript::Side;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};

use crate::finding::{Finding, fail};
use crate::raw_process::seconds;
use crate::transport::harness::AgentCalls;
use crate::transport::http::prompt_request;
use crate::transport::wire::{ServerWire, initialize, is_response_to, reply_to, request, session_of};

/// A socket whose messages are logged.
pub(crate) struct LoggedSocket {
    wire: ServerWire,
    socket: RawWebSocket,
    /// The id of the connection in the answer to the upgrade.
    pub(crate) id: Option<String>,
    /// The header of a subprotocol or an extension that nobody requested.
    pub(crate) unrequested: Option<String>,
}

/// The result of waiting for a message.
#[derive(Debug)]
pub(crate) enum NextMessage {
    Message(Value),
    Binary,
    Pong(Vec<u8>),
    /// None came before the deadline.
    Quiet,
    /// The server closed the socket with this code, or none.
    Closed(Option<u16>),
    /// The socket ended without a close.
    Lost,
}

impl LoggedSocket {
    /// Opens a socket.
    pub(crate) async fn open(wire: &ServerWire) -> Result<Self, Finding> {
        wire.log.push(Side::Client, &format!("GET {} Upgrade: websocket", wire.client.path()));
        let (socket, headers) = wire.client.upgrade(&[]).await.map_err(|error| {
            wire.log.push(Side::Agent, &format!("({error})"));
            fail(format!("the upgrade failed: {error}"))
        })?;
        let id = headers.get("acp-connection-id").map(str::to_owned);
        wire.log.push(Side::Agent, &format!("101 acp-connection-id: {}", id.as_deref().unwrap_or("(none)")));
        let unrequested = ["sec-websocket-protocol", "sec-websocket-extensions"]
            .into_iter()
            .find(|name| headers.get(name).is_some())
            .map(str::to_owned);
        Ok(LoggedSocket { wire: wire.clone(), socket, id, unrequested })
    }

    /// Sends a text.
    pub(crate) async fn send_text(&mut self, text: &str) -> Result<(), Finding> {
        self.wire.log.push(Side::Client, text);
        self.socket.send_text(text).await.map_err(|error| fail(format!("a message was not sent: {error}")))
    }

    pub(crate) async fn send(&mut self, message: &Value) -> Result<(), Finding> {
        self.send_text(&message.to_string()).await
    }

    pub(crate) async fn send_binary(&mut self, data: &[u8]) -> Result<(), Finding> {
        self.wire.log.push(Side::Client, "(binary message)");
        let sent = self.socket.send_binary(data).await;
        sent.map_err(|error| fail(format!("a binary message was not sent: {error}")))
    }

    pub(crate) async fn send_ping(&mut self, payload: &[u8]) -> Result<(), Finding> {
        self.wire.log.push(Side::Client, "(ping)");
        self.socket.send_ping(payload).await.map_err(|error| fail(format!("a ping was not sent: {error}")))
    }

    /// Closes the socket, and with it the connection.
    pub(crate) async fn send_close(&mut self) {
        self.wire.log.push(Side::Client, "(close 1000)");
        // A socket that is lost is closed.
        let _ = self.socket.send_close(1000).await;
    }

    /// Returns the next message.
    pub(crate) async fn next(&mut self, deadline: Instant) -> Result<NextMessage, Finding> {
        loop {
            let message = match timeout_at(deadline, self.socket.next()).await {
                Err(_) => return Ok(NextMessage::Quiet),
                Ok(Err(error)) => {
                    return Err(fail(format!("the server breaks the rules of WebSocket: {error}")));
                }
                Ok(Ok(message)) => message,
            };
            let log = &self.wire.log;
            return Ok(match message {
                Some(RawMessage::Text(text)) => {
                    log.push(Side::Agent, &text);
                    match serde_json::from_str::<Value>(&text) {
                        Ok(message) if message.is_object() => NextMessage::Message(message),
                        _ => {
                            let beginning: String = text.chars().take(100).collect();
                            return Err(fail(format!("a text is no message: {beginning}")));
                        }
                    }
                }
                Some(RawMessage::Binary) => {
                    log.push(Side::Agent, "(binary message)");
                    NextMessage::Binary
                }
                Some(RawMessage::Ping) => continue,
                Some(RawMessage::Pong(payload)) => {
                    log.push(Side::Agent, "(pong)");
                    NextMessage::Pong(payload)
                }
                Some(RawMessage::Close(code)) => {
                    log.push(Side::Agent, &code.map_or("(close)".into(), |code| format!("(close {code})")));
                    NextMessage::Closed(code)
                }
                None => {
                    log.push(Side::Agent, "(the socket ends)");
                    NextMessage::Lost
                }
            });
        }
    }
}

/// The positions of a client in the streams of a connection.
#[derive(Clone, Default)]
pub(crate) struct StreamPositions(BTreeMap<Option<String>, (Option<String>, u64)>);

impl StreamPositions {
    /// Counts a message of the server.
    fn count(&mut self, message: &Value) {
        let cursor = ["params", "result"]
            .into_iter()
            .find_map(|member| message[member]["_meta"]["acp/cursor"].as_str());
        let position = self.0.entry(session_of(message).map(str::to_owned)).or_default();
        *position = match cursor {
            Some(cursor) => (Some(cursor.to_owned()), 0),
            None => (position.0.take(), position.1 + 1),
        };
    }

    /// Returns the member `cursors` of a resume.
    pub(crate) fn cursors(&self) -> Value {
        let cursors = self.0.iter().map(|(session, (cursor, frames))| {
            let mut position = json!({"frames": frames});
            if let Some(session) = session {
                position["sessionId"] = json!(session);
            }
            if let Some(cursor) = cursor {
                position["cursor"] = json!(cursor);
            }
            position
        });
        cursors.collect()
    }
}

/// A connection that has answered `initialize`.
pub(crate) struct SocketConnection {
    pub(crate) socket: LoggedSocket,
    pub(crate) id: String,
    pub(crate) initialized: Value,
    pub(crate) positions: StreamPositions,
    /// The messages that the client has sent, in their order.
    pub(crate) sent: Vec<Value>,
    next_id: u64,
}

/// Returns true for a message of the transport itself, which has no position.
pub(crate) fn is_of_transport(message: &Value) -> bool {
    message["method"].as_str().is_some_and(|method| method.starts_with("stream/"))
}

impl SocketConnection {
    /// Opens a socket and sends `initialize`.
    pub(crate) async fn open(wire: &ServerWire) -> Result<Self, Finding> {
        let socket = LoggedSocket::open(wire).await?;
        SocketConnection::start(socket).await
    }

    /// Sends `initialize` on an open socket.
    pub(crate) async fn start(mut socket: LoggedSocket) -> Result<Self, Finding> {
        let first = initialize();
        socket.send(&first).await?;
        let patience = socket.wire.patience * 3;
        let deadline = Instant::now() + patience;
        let message = loop {
            match socket.next(deadline).await? {
                NextMessage::Message(message) if is_of_transport(&message) => {}
                NextMessage::Message(message) => break message,
                NextMessage::Quiet => {
                    return Err(fail(format!("`initialize` is not answered within {}", seconds(patience))));
                }
                NextMessage::Closed(code) => {
                    return Err(fail(format!("`initialize` closes the socket ({})", shown_code(code))));
                }
                NextMessage::Lost => return Err(fail("the socket ends after `initialize`")),
                NextMessage::Binary => return Err(fail("`initialize` is answered with a binary message")),
                NextMessage::Pong(_) => {}
            }
        };
        if !is_response_to(&message, 0) || !message["result"].is_object() {
            let shown: String = message.to_string().chars().take(200).collect();
            return Err(fail(format!("the first message is not the result of `initialize`: {shown}")));
        }
        let id = socket.id.clone().unwrap_or_default();
        let mut positions = StreamPositions::default();
        positions.count(&message);
        let initialized = message["result"].clone();
        Ok(SocketConnection { socket, id, initialized, positions, sent: vec![first], next_id: 1 })
    }

    /// Returns the id of the next request.
    pub(crate) fn new_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id - 1
    }

    /// Sends a message.
    pub(crate) async fn send(&mut self, message: &Value) -> Result<(), Finding> {
        self.sent.push(message.clone());
        self.socket.send(message).await
    }

    /// Reads messages until the response to a request. They are returned with it, the response last. Requests of the agent
    /// are answered.
    pub(crate) async fn until_response(&mut self, id: u64, name: &str) -> Result<Vec<Value>, Finding> {
        let patience = self.socket.wire.patience;
        let deadline = Instant::now() + patience;
        let mut messages = Vec::new();
        loop {
            match self.socket.next(deadline).await? {
                NextMessage::Message(message) if is_of_transport(&message) => {}
                NextMessage::Message(message) => {
                    self.positions.count(&message);
                    if let Some(reply) = reply_to(&message) {
                        self.send(&reply).await?;
                    }
                    let is_response = is_response_to(&message, id);
                    messages.push(message);
                    if is_response {
                        return Ok(messages);
                    }
                }
                NextMessage::Binary => return Err(fail("the server sends a binary message")),
                NextMessage::Pong(_) => {}
                NextMessage::Quiet => {
                    return Err(fail(format!("{name} is not answered within {}", seconds(patience))));
                }
                NextMessage::Closed(code) => {
                    return Err(fail(format!(
                        "the server closes the socket ({}) at {name}",
                        shown_code(code)
                    )));
                }
                NextMessage::Lost => return Err(fail(format!("the socket ends at {name}"))),
            }
        }
    }
}

impl AgentCalls for SocketConnection {
    async fn call(&mut self, method: &str, params: &Value) -> Result<Value, Finding> {
        let id = self.new_id();
        self.send(&request(id, method, params)).await?;
        Ok(self.until_response(id, method).await?.pop().unwrap_or_default())
    }
}

/// Returns a close code as a finding shows it.
pub(crate) fn shown_code(code: Option<u16>) -> String {
    code.map_or_else(|| "no code".into(), |code| format!("code {code}"))
}

/// A session on a socket.
pub(crate) struct SocketSession {
    pub(crate) connection: SocketConnection,
    pub(crate) id: String,
}

impl SocketSession {
    /// Sends a prompt and returns its id.
    pub(crate) async fn prompt(&mut self, text: &str) -> Result<u64, Finding> {
        let id = self.connection.new_id();
        self.connection.send(&prompt_request(id, &self.id, text)).await?;
        Ok(id)
    }
}
