//! A server, a client whose lines a test writes itself, and a relay that cuts connections.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use duologue_http::{AgentEndpoint, ConnectOptions, Endpoint, ServerOptions, router};
use duologue_rpc::Transport;
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::broadcast;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

/// Starts a server and returns its address.
pub(crate) async fn server(endpoint: impl Endpoint, options: ServerOptions) -> SocketAddr {
    serve_router(router(endpoint, options.clone()), options).await
}

/// Starts a server for a router and returns its address.
pub(crate) async fn serve_router(router: axum::Router, options: ServerOptions) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move { duologue_http::serve_router(listener, router, &options).await });
    address
}

pub(crate) fn url(address: SocketAddr) -> String {
    format!("ws://{address}/acp")
}

/// Returns options that resume quickly.
pub(crate) fn quick() -> ConnectOptions {
    let mut options = ConnectOptions::default();
    options.resume_delay = Duration::from_millis(2);
    options.resume_delay_max = Duration::from_millis(20);
    options
}

/// Returns an endpoint whose agent answers `initialize`, `echo` and `count` (that many updates before the answer).
pub(crate) fn echo_endpoint() -> AgentEndpoint {
    AgentEndpoint::new(|transport| async { echo_agent(transport).await })
}

pub(crate) async fn echo_agent(transport: Transport) {
    let mut lines = Lines::new(transport);
    while let Some(message) = lines.next().await {
        let id = message["id"].clone();
        let params = &message["params"];
        match message["method"].as_str() {
            Some("initialize") => {
                let result = json!({"protocolVersion": 1, "agentCapabilities": {}});
                lines.send(&json!({"jsonrpc": "2.0", "id": id, "result": result})).await;
            }
            Some("count") => {
                for number in 1..=params["count"].as_u64().unwrap_or(0) {
                    let params = json!({"sessionId": params["sessionId"], "number": number});
                    lines.send(&json!({"jsonrpc": "2.0", "method": "update", "params": params})).await;
                }
                lines.send(&json!({"jsonrpc": "2.0", "id": id, "result": {}})).await;
            }
            Some(_) if !id.is_null() => {
                lines.send(&json!({"jsonrpc": "2.0", "id": id, "result": params})).await;
            }
            _ => {}
        }
    }
}

/// A transport as lines of JSON.
pub(crate) struct Lines {
    reader: BufReader<Box<dyn AsyncRead + Send + Unpin>>,
    writer: Box<dyn AsyncWrite + Send + Unpin>,
    pub(crate) end: Option<std::io::Error>,
}

impl Lines {
    pub(crate) fn new(transport: Transport) -> Self {
        let (reader, writer) = transport.into_split();
        Lines { reader: BufReader::new(reader), writer, end: None }
    }

    pub(crate) async fn send(&mut self, message: &Value) {
        self.send_text(&message.to_string()).await;
    }

    pub(crate) async fn send_text(&mut self, text: &str) {
        let _ = self.writer.write_all(format!("{text}\n").as_bytes()).await;
    }

    /// Ends the connection. What the server still sends can be read.
    pub(crate) async fn end_output(&mut self) {
        self.writer.shutdown().await.expect("an open transport");
    }

    pub(crate) async fn next(&mut self) -> Option<Value> {
        let mut line = String::new();
        match self.reader.read_line(&mut line).await {
            Ok(0) => None,
            Ok(_) => Some(serde_json::from_str(&line).expect("JSON")),
            Err(error) => {
                self.end = Some(error);
                None
            }
        }
    }

    /// Sends a request and returns its response, and the number of the messages before it.
    pub(crate) async fn request(&mut self, id: u64, method: &str, params: Value) -> (Value, Vec<Value>) {
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})).await;
        let mut before = Vec::new();
        loop {
            let message = self.next().await.expect("the response");
            if message["id"] == id {
                return (message, before);
            }
            before.push(message);
        }
    }

    /// Returns the error of the connection at its end.
    pub(crate) async fn error(&mut self) -> Option<duologue_http::Error> {
        while self.next().await.is_some() {}
        let error = self.end.take()?.into_inner()?;
        Some(*error.downcast().expect("an error of this crate"))
    }
}

/// A WebSocket whose messages a test writes itself.
pub(crate) struct RawSocket(pub(crate) WebSocketStream<MaybeTlsStream<TcpStream>>);

impl RawSocket {
    pub(crate) async fn open(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.expect("a connection");
        let stream = MaybeTlsStream::Plain(stream);
        let (socket, _) = tokio_tungstenite::client_async(url(address), stream).await.expect("a socket");
        RawSocket(socket)
    }

    pub(crate) async fn send(&mut self, message: impl Into<Message>) {
        self.0.send(message.into()).await.expect("an open socket");
    }

    pub(crate) async fn send_json(&mut self, message: &Value) {
        self.send(message.to_string()).await;
    }

    /// Waits for a ping and answers it.
    pub(crate) async fn answer_ping(&mut self) {
        while !matches!(self.0.next().await, Some(Ok(Message::Ping(_)))) {}
        self.0.flush().await.expect("an open socket");
    }

    /// Returns the next text, or the code that closed the socket.
    pub(crate) async fn next(&mut self) -> Result<Value, Option<u16>> {
        loop {
            match self.0.next().await {
                Some(Ok(Message::Text(text))) => return Ok(serde_json::from_str(&text).expect("JSON")),
                Some(Ok(Message::Close(close))) => return Err(close.map(|close| close.code.into())),
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return Err(None),
            }
        }
    }
}

pub(crate) fn initialize() -> Value {
    json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": 1}})
}

/// A relay of TCP connections that a test cuts.
pub(crate) struct CutRelay {
    pub(crate) address: SocketAddr,
    cut: broadcast::Sender<()>,
}

impl CutRelay {
    pub(crate) async fn new(to: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
        let address = listener.local_addr().expect("an address");
        let cut = broadcast::Sender::new(1);
        let cuts = cut.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let mut cut = cuts.subscribe();
                tokio::spawn(async move {
                    let server = TcpStream::connect(to).await.expect("the server");
                    let (client, server) = (Arc::new(client), Arc::new(server));
                    tokio::select! {
                        () = copy(&client, &server) => {}
                        () = copy(&server, &client) => {}
                        _ = cut.recv() => {
                            pass_half(&server, &client);
                            pass_half(&client, &server);
                        }
                    }
                });
            }
        });
        CutRelay { address, cut }
    }

    /// Cuts all open connections. Half of the bytes on their way are lost, so a cut may be inside a TLS record.
    pub(crate) fn cut(&self) {
        let _ = self.cut.send(());
    }
}

async fn copy(from: &TcpStream, to: &TcpStream) {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        if from.readable().await.is_err() {
            return;
        }
        let count = match from.try_read(&mut buffer) {
            Ok(0) => return,
            Ok(count) => count,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => continue,
            Err(_) => return,
        };
        let mut rest = &buffer[..count];
        while !rest.is_empty() {
            if to.writable().await.is_err() {
                return;
            }
            match to.try_write(rest) {
                Ok(count) => rest = &rest[count..],
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => return,
            }
        }
    }
}

/// Passes the first half of the bytes that wait on.
fn pass_half(from: &TcpStream, to: &TcpStream) {
    let mut buffer = vec![0; 16 * 1024];
    if let Ok(count) = from.try_read(&mut buffer) {
        let _ = to.try_write(&buffer[..count / 2]);
    }
}
