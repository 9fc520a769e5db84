//! A peer without an SDK: the test says its lines itself and sees what the other side writes.

use duologue_client::{Client, Connection, Host};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};

use super::Wire;

/// One end of a wire in the hands of the test.
pub struct Played {
    pub reader: BufReader<Box<dyn AsyncRead + Send + Unpin>>,
    pub writer: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    next_id: u64,
}

impl Played {
    pub fn new(
        reader: impl AsyncRead + Send + Unpin + 'static,
        writer: impl AsyncWrite + Send + Unpin + 'static,
    ) -> Self {
        Played { reader: BufReader::new(Box::new(reader)), writer: Some(Box::new(writer)), next_id: 1000 }
    }

    /// Writes bytes as they are.
    pub async fn write(&mut self, bytes: impl AsRef<[u8]>) {
        let writer = self.writer.as_mut().expect("the writer was dropped");
        writer.write_all(bytes.as_ref()).await.expect("the other side reads");
        writer.flush().await.expect("the other side reads");
    }

    /// Writes one line.
    pub async fn say(&mut self, line: impl std::fmt::Display) {
        self.write(format!("{line}\n")).await;
    }

    /// The next line of the other side, or `None` at its end.
    pub async fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let count = self.reader.read_line(&mut line).await.expect("UTF-8 from the other side");
        (count > 0).then(|| line.trim_end_matches('\n').to_owned())
    }

    /// The next message of the other side.
    pub async fn hear(&mut self) -> Value {
        let line = self.line().await.expect("a message before the end");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error} in {line}"))
    }

    /// The next message, which has to be this request or notification.
    pub async fn expect(&mut self, method: &str) -> Value {
        let message = self.hear().await;
        assert_eq!(message["method"], method, "{message}");
        message
    }

    /// Closes our half; the other half can still be read.
    pub async fn hang_up(&mut self) {
        if let Some(mut writer) = self.writer.take() {
            // A writer in memory does not end with its last owner.
            let _ = writer.shutdown().await;
        }
    }

    /// Reads to the end.
    pub async fn rest(&mut self) -> Vec<Value> {
        let mut rest = Vec::new();
        while let Some(line) = self.line().await {
            rest.push(serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error} in {line}")));
        }
        rest
    }

    /// Sends a request and returns its id.
    pub async fn ask(&mut self, method: &str, params: Value) -> u64 {
        self.next_id += 1;
        let id = self.next_id;
        self.say(json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})).await;
        id
    }

    /// Sends a request and returns its answer, which has to be the next message.
    pub async fn asked(&mut self, method: &str, params: Value) -> Value {
        let id = self.ask(method, params).await;
        let answer = self.hear().await;
        assert_eq!(answer["id"], id, "{answer}");
        answer
    }

    pub async fn tell(&mut self, method: &str, params: Value) {
        self.say(json!({"jsonrpc": "2.0", "method": method, "params": params})).await;
    }

    pub async fn answer(&mut self, request: &Value, result: Value) {
        self.say(json!({"jsonrpc": "2.0", "id": request["id"], "result": result})).await;
    }

    /// Sends an unknown method and expects the error, which comes behind all earlier output.
    pub async fn probe(&mut self) {
        let answer = self.asked("_probe", json!({})).await;
        assert_eq!(answer["error"]["code"], -32601, "{answer}");
    }

    // As a client.

    pub async fn initialize(&mut self, capabilities: Value) -> Value {
        let params = json!({"protocolVersion": 1, "clientCapabilities": capabilities});
        self.asked("initialize", params).await
    }

    pub async fn new_session(&mut self) -> String {
        let answer = self.asked("session/new", json!({"cwd": "/tmp", "mcpServers": []})).await;
        answer["result"]["sessionId"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
    }

    /// Starts a turn and returns the request's id.
    pub async fn prompt(&mut self, session: &str, text: &str) -> u64 {
        let params = json!({"sessionId": session, "prompt": [{"type": "text", "text": text}]});
        self.ask("session/prompt", params).await
    }

    pub async fn cancel(&mut self, session: &str) {
        self.tell("session/cancel", json!({"sessionId": session})).await;
    }

    // As an agent.

    /// Answers `initialize`.
    pub async fn greet(&mut self, capabilities: Value) -> Value {
        let hello = self.expect("initialize").await;
        self.answer(&hello, json!({"protocolVersion": 1, "agentCapabilities": capabilities})).await;
        hello
    }

    /// Answers `session/new`.
    pub async fn open(&mut self, session: &str) {
        let request = self.expect("session/new").await;
        self.answer(&request, json!({"sessionId": session})).await;
    }

    /// Sends a chunk of an agent message.
    pub async fn chunk(&mut self, session: &str, text: &str) {
        self.write(chunk(session, text)).await;
    }

    /// Ends a turn.
    pub async fn end(&mut self, prompt: &Value, reason: &str) {
        self.answer(prompt, json!({"stopReason": reason})).await;
    }
}

/// A client whose agent the test plays.
pub async fn client_of<H: Host>(wire: Wire, client: Client<H>, capabilities: Value) -> (Connection, Played) {
    let (transport, mut agent) = wire.played();
    let (connection, _) = tokio::join!(client.connect(transport), agent.greet(capabilities));
    (connection.expect("a connection"), agent)
}

/// A chunk of an agent message, with its line end.
pub fn chunk(session: &str, text: &str) -> String {
    let update = json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}});
    let params = json!({"sessionId": session, "update": update});
    format!("{}\n", json!({"jsonrpc": "2.0", "method": "session/update", "params": params}))
}

/// Everything a turn says until its end.
pub async fn texts(turn: &mut duologue_client::Turn) -> Vec<String> {
    let mut texts = Vec::new();
    while let Some(update) = turn.next().await {
        texts.push(update.expect("an update").to_string());
    }
    texts
}
