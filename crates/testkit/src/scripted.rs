//! A peer whose messages a test writes itself.

use duologue_rpc::Transport;
use serde_json::{Value, json};
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};

use crate::wire::Wire;

/// A client or an agent that a test plays, message by message. It validates nothing, so it can also break the
/// protocol.
///
/// All methods panic if the other side breaks the connection or sends something unexpected, as an assertion does.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// use duologue_testkit::ScriptedPeer;
/// use serde_json::json;
///
/// let (transport, mut agent) = ScriptedPeer::in_memory();
/// // Instead of your own client, which connects to `transport`.
/// let mut client = ScriptedPeer::over(transport);
/// let session = async {
///     client.initialize(json!({})).await;
///     client.new_session().await
/// };
/// let script = async {
///     agent.accept_initialize(json!({})).await;
///     agent.accept_session("s-1").await;
/// };
/// assert_eq!(tokio::join!(session, script).0, "s-1");
/// # }
/// ```
#[allow(missing_debug_implementations, reason = "holds pipes")]
pub struct ScriptedPeer {
    /// The messages of the other side.
    reader: BufReader<Box<dyn AsyncRead + Send + Unpin>>,
    /// The output, until it is closed.
    writer: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    next_id: u64,
}

impl ScriptedPeer {
    /// Returns one end of a connection in memory, and a peer at the other end.
    #[must_use]
    pub fn in_memory() -> (Transport, Self) {
        Wire::Memory.scripted()
    }

    /// Returns one end of a connection over two pipes of the operating system, and a peer at the other end.
    ///
    /// # Panics
    ///
    /// If the system has no more pipes, or outside a tokio runtime with I/O enabled.
    #[cfg(unix)]
    #[must_use]
    pub fn over_pipes() -> (Transport, Self) {
        Wire::Pipes.scripted()
    }

    /// Creates a peer from the two halves of a connection.
    pub fn new(
        reader: impl AsyncRead + Send + Unpin + 'static,
        writer: impl AsyncWrite + Send + Unpin + 'static,
    ) -> Self {
        let (reader, writer) = (BufReader::new(Box::new(reader) as _), Box::new(writer));
        ScriptedPeer { reader, writer: Some(writer), next_id: 1000 }
    }

    /// Creates a peer from one end of a connection.
    #[must_use]
    pub fn over(transport: Transport) -> Self {
        let (reader, writer) = transport.into_split();
        ScriptedPeer::new(reader, writer)
    }

    /// Returns the two halves of the connection, for a test that reads or writes parts of a line. A writer that was
    /// closed is `None`.
    #[must_use]
    pub fn into_parts(
        self,
    ) -> (impl AsyncBufRead + Send + Unpin + 'static, Option<impl AsyncWrite + Send + Unpin + 'static>) {
        (self.reader, self.writer)
    }

    /// Writes bytes unchanged.
    pub async fn write(&mut self, bytes: impl AsRef<[u8]>) {
        let writer = self.writer.as_mut().expect("the writer was dropped");
        writer.write_all(bytes.as_ref()).await.expect("the other side reads");
        writer.flush().await.expect("the other side reads");
    }

    /// Sends one line.
    pub async fn send(&mut self, line: impl std::fmt::Display) {
        self.write(format!("{line}\n")).await;
    }

    /// Returns the next line of the other side, or `None` at its end.
    pub async fn next_line(&mut self) -> Option<String> {
        let mut line = String::new();
        let count = self.reader.read_line(&mut line).await.expect("UTF-8 from the other side");
        (count > 0).then(|| line.trim_end_matches('\n').to_owned())
    }

    /// Returns the next message of the other side.
    pub async fn next_message(&mut self) -> Value {
        let line = self.next_line().await.expect("a message before the end");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error} in {line}"))
    }

    /// Returns the next message, which has to be this request or notification.
    pub async fn expect(&mut self, method: &str) -> Value {
        let message = self.next_message().await;
        assert_eq!(message["method"], method, "{message}");
        message
    }

    /// Closes the output. The other side can still be read.
    pub async fn close(&mut self) {
        if let Some(mut writer) = self.writer.take() {
            // A writer in memory does not close when it is dropped.
            let _ = writer.shutdown().await;
        }
    }

    /// Returns all messages until the end of the connection.
    pub async fn read_to_end(&mut self) -> Vec<Value> {
        let mut rest = Vec::new();
        while let Some(line) = self.next_line().await {
            rest.push(serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error} in {line}")));
        }
        rest
    }

    /// Sends a request and returns its id.
    pub async fn send_request(&mut self, method: &str, params: Value) -> u64 {
        self.next_id += 1;
        let id = self.next_id;
        self.send(json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})).await;
        id
    }

    /// Sends a request and returns its response, which has to be the next message.
    pub async fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.send_request(method, params).await;
        let response = self.next_message().await;
        assert_eq!(response["id"], id, "{response}");
        response
    }

    /// Sends a notification.
    pub async fn notify(&mut self, method: &str, params: Value) {
        self.send(json!({"jsonrpc": "2.0", "method": method, "params": params})).await;
    }

    /// Answers a request.
    pub async fn respond(&mut self, request: &Value, result: Value) {
        self.send(json!({"jsonrpc": "2.0", "id": request["id"], "result": result})).await;
    }

    /// Sends a request of an unknown method, whose error has to be the next message. After that the other side has
    /// processed everything that was sent before.
    pub async fn probe(&mut self) {
        let response = self.request("_probe", json!({})).await;
        assert_eq!(response["error"]["code"], -32601, "{response}");
    }
}

/// The steps of a client.
impl ScriptedPeer {
    /// Sends `initialize` and returns the response.
    pub async fn initialize(&mut self, capabilities: Value) -> Value {
        let params = json!({"protocolVersion": 1, "clientCapabilities": capabilities});
        self.request("initialize", params).await
    }

    /// Sends `session/new` and returns the id of the session.
    pub async fn new_session(&mut self) -> String {
        let response = self.request("session/new", json!({"cwd": "/tmp", "mcpServers": []})).await;
        response["result"]["sessionId"].as_str().unwrap_or_else(|| panic!("{response}")).to_owned()
    }

    /// Starts a turn and returns the id of the request.
    pub async fn prompt(&mut self, session: &str, text: &str) -> u64 {
        let params = json!({"sessionId": session, "prompt": [{"type": "text", "text": text}]});
        self.send_request("session/prompt", params).await
    }

    /// Cancels a turn.
    pub async fn cancel(&mut self, session: &str) {
        self.notify("session/cancel", json!({"sessionId": session})).await;
    }
}

/// The steps of an agent.
impl ScriptedPeer {
    /// Answers `initialize` and returns the request.
    pub async fn accept_initialize(&mut self, capabilities: Value) -> Value {
        let request = self.expect("initialize").await;
        self.respond(&request, json!({"protocolVersion": 1, "agentCapabilities": capabilities})).await;
        request
    }

    /// Answers `session/new`.
    pub async fn accept_session(&mut self, session: &str) {
        let request = self.expect("session/new").await;
        self.respond(&request, json!({"sessionId": session})).await;
    }

    /// Sends a chunk of an agent message.
    pub async fn send_chunk(&mut self, session: &str, text: &str) {
        self.write(message_chunk(session, text)).await;
    }

    /// Ends a turn.
    pub async fn end_turn(&mut self, prompt: &Value, reason: &str) {
        self.respond(prompt, json!({"stopReason": reason})).await;
    }
}

/// Returns the line of a chunk of an agent message, with its line end.
#[must_use]
pub fn message_chunk(session: &str, text: &str) -> String {
    format!("{}\n", chunk(session, text))
}

/// Returns the update with a chunk of an agent message.
pub(crate) fn chunk(session: &str, text: &str) -> Value {
    let content = json!({"type": "text", "text": text});
    update(session, json!({"sessionUpdate": "agent_message_chunk", "content": content}))
}

/// Returns the notification of an update.
pub(crate) fn update(session: &str, update: Value) -> Value {
    let params = json!({"sessionId": session, "update": update});
    json!({"jsonrpc": "2.0", "method": "session/update", "params": params})
}
