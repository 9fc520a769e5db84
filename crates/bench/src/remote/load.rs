//! A client of many plain WebSockets, on no SDK, for servers of any SDK.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::{WebSocketStream, client_async_with_config};

use crate::figures::{Figures, usage};
use crate::play::Latency;

type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

/// The connections that are opened at once.
const OPENING: usize = 64;
/// The buffer of the system for a slow reader, in bytes. The system doubles it.
const SLOW_BUFFER: u32 = 8 * 1024;
/// The time in which the server returns to rest before its memory is read.
const REST: Duration = Duration::from_millis(300);
/// The time between two round trips beside a load.
const PROBE_PAUSE: Duration = Duration::from_millis(2);

/// The loads: `LOAD NUMBER.. -- ws://HOST:PORT/PATH`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// `idle CONNECTIONS`: so many connections that have only sent `initialize`.
    Idle {
        /// The number of connections.
        connections: usize,
    },
    /// `readers SESSIONS SLOW COUNT BYTES`: so many sessions on connections of their own, each with one turn of so many
    /// chunks of so many bytes. The slow ones among them read nothing before all others have ended. Another connection
    /// measures the round trip of a prompt meanwhile.
    Readers {
        /// The number of sessions.
        sessions: usize,
        /// The number of slow ones among them.
        slow: usize,
        /// The number of chunks.
        count: usize,
        /// The bytes of each.
        bytes: usize,
    },
}

impl Load {
    /// Reads a load.
    ///
    /// # Errors
    ///
    /// A text that lists the loads.
    pub fn parse(words: &[String]) -> Result<Self, String> {
        let error = || "there are `idle CONNECTIONS` and `readers SESSIONS SLOW COUNT BYTES`".to_owned();
        let (name, numbers) = words.split_first().ok_or_else(error)?;
        let numbers: Option<Vec<usize>> = numbers.iter().map(|word| word.parse().ok()).collect();
        match (name.as_str(), numbers.ok_or_else(error)?.as_slice()) {
            ("idle", &[connections]) => Ok(Load::Idle { connections }),
            ("readers", &[sessions, slow, count, bytes]) if slow < sessions => {
                Ok(Load::Readers { sessions, slow, count, bytes })
            }
            _ => Err(error()),
        }
    }

    /// The words it is read from.
    #[must_use]
    pub fn words(&self) -> Vec<String> {
        let (name, numbers) = match *self {
            Load::Idle { connections } => ("idle", vec![connections]),
            Load::Readers { sessions, slow, count, bytes } => ("readers", vec![sessions, slow, count, bytes]),
        };
        std::iter::once(name.to_owned()).chain(numbers.iter().map(ToString::to_string)).collect()
    }

    /// Returns the number of messages, and of bytes in them, that the client must have received in the time that counts.
    #[must_use]
    pub fn promises(&self) -> (usize, usize) {
        match *self {
            Load::Idle { connections } => (connections, 0),
            Load::Readers { sessions, slow, count, bytes } => {
                ((sessions - slow) * count, (sessions - slow) * count * bytes)
            }
        }
    }
}

/// Runs what the command line asks for, and prints one line of figures.
///
/// # Errors
///
/// A load there is none of, and whatever goes wrong in it.
#[expect(clippy::print_stdout, reason = "its output is its result")]
pub async fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let end = args.iter().position(|arg| arg == "--").ok_or("LOAD NUMBER.. -- URL")?;
    let url = args.get(end + 1).ok_or("a URL is missing after --")?;
    let figures = match Load::parse(&args[..end])? {
        Load::Idle { connections } => idle(url, connections).await?,
        Load::Readers { sessions, slow, count, bytes } => readers(url, sessions, slow, count, bytes).await?,
    };
    println!("{}", figures.line());
    Ok(())
}

async fn idle(url: &str, connections: usize) -> Result<Figures> {
    let mut measuring = PlainClient::open(url, None).await?;
    measuring.new_session().await?;
    let before = measuring.usage().await?;
    let begun = Instant::now();
    let open = open_all(url, connections, 0, false).await?;
    let wall = begun.elapsed();
    tokio::time::sleep(REST).await;
    let usage = vec![before, measuring.usage().await?];
    Ok(Figures { messages: open.len(), wall, usage, ..Figures::default() })
}

async fn readers(url: &str, sessions: usize, slow: usize, count: usize, bytes: usize) -> Result<Figures> {
    let mut measuring = PlainClient::open(url, None).await?;
    measuring.new_session().await?;
    let open = open_all(url, sessions, slow, true).await?;
    let before = measuring.usage().await?;
    let (ended, fast_ended) = watch::channel(false);
    let text = format!("stream {count} {bytes}");
    let (mut fast, mut slow_ones) = (JoinSet::new(), JoinSet::new());
    let begun = Instant::now();
    for (at, mut client) in open.into_iter().enumerate() {
        let text = text.clone();
        let mut fast_ended = fast_ended.clone();
        if at < slow {
            slow_ones.spawn(async move {
                client.send_prompt(&text).await?;
                fast_ended.wait_for(|ended| *ended).await?;
                client.read_turn().await
            });
        } else {
            fast.spawn(async move {
                client.send_prompt(&text).await?;
                client.read_turn().await
            });
        }
    }
    let mut took = Vec::new();
    let mut figures = Figures::default();
    loop {
        tokio::select! {
            biased;
            turn = fast.join_next() => {
                let Some(turn) = turn else { break };
                let (seen, of) = turn??;
                figures.messages += seen;
                figures.bytes += of;
            }
            () = tokio::time::sleep(PROBE_PAUSE) => {
                let begun = Instant::now();
                measuring.send_prompt("end").await?;
                measuring.read_turn().await?;
                took.push(begun.elapsed());
            }
        }
    }
    figures.wall = begun.elapsed();
    figures.latency = Latency::of(took);
    figures.usage = vec![before, measuring.usage().await?];
    ended.send_replace(true);
    while let Some(turn) = slow_ones.join_next().await {
        let seen = turn??;
        if seen != (count, count * bytes) {
            return Err(format!("a slow reader saw {seen:?} updates and bytes").into());
        }
    }
    Ok(figures)
}

/// Opens connections, the first of them with small buffers for slow readers.
async fn open_all(url: &str, connections: usize, slow: usize, sessions: bool) -> Result<Vec<PlainClient>> {
    let (mut opening, places) = (JoinSet::new(), Arc::new(Semaphore::new(OPENING)));
    for at in 0..connections {
        let (url, places) = (url.to_owned(), places.clone());
        opening.spawn(async move {
            let _place = places.acquire().await?;
            let mut client = PlainClient::open(&url, (at < slow).then_some(SLOW_BUFFER)).await?;
            if sessions {
                client.new_session().await?;
            }
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>((at, client))
        });
    }
    let mut open = Vec::new();
    while let Some(opened) = opening.join_next().await {
        open.push(opened??);
    }
    open.sort_by_key(|(at, _)| *at);
    Ok(open.into_iter().map(|(_, client)| client).collect())
}

/// A connection that was initialized.
struct PlainClient {
    socket: WebSocketStream<TcpStream>,
    last_id: u64,
    session: String,
}

impl PlainClient {
    async fn open(url: &str, buffer: Option<u32>) -> Result<Self> {
        let host = url.strip_prefix("ws://").ok_or("the address is not a ws:// one")?;
        let host = host.split('/').next().unwrap_or_default();
        let socket = TcpSocket::new_v4()?;
        if let Some(bytes) = buffer {
            socket.set_recv_buffer_size(bytes)?;
        }
        let stream = socket.connect(host.parse()?).await?;
        stream.set_nodelay(true)?;
        let config = WebSocketConfig::default().read_buffer_size(4096).write_buffer_size(0);
        let (socket, _) = client_async_with_config(url, stream, Some(config)).await?;
        let mut client = PlainClient { socket, last_id: 0, session: String::new() };
        client.call("initialize", json!({"protocolVersion": 1, "clientCapabilities": {}})).await?;
        Ok(client)
    }

    async fn new_session(&mut self) -> Result<()> {
        let result = self.call("session/new", json!({"cwd": "/bench", "mcpServers": []})).await?;
        self.session = result["sessionId"].as_str().ok_or("no session")?.to_owned();
        Ok(())
    }

    async fn send(&mut self, method: &str, params: Value) -> Result<()> {
        self.last_id += 1;
        let request = json!({"jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params});
        Ok(self.socket.send(Message::text(request.to_string())).await?)
    }

    /// Sends a request and returns its result.
    async fn call(&mut self, method: &str, params: Value) -> Result<Value> {
        self.send(method, params).await?;
        loop {
            let mut message: Value = serde_json::from_str(&self.next().await?)?;
            if message.get("method").is_none() && message["id"] == self.last_id {
                let result = message["result"].take();
                return if result.is_null() { Err(message.to_string().into()) } else { Ok(result) };
            }
        }
    }

    /// Returns the next text.
    async fn next(&mut self) -> Result<String> {
        loop {
            match self.socket.next().await.ok_or("the server has closed a socket")?? {
                Message::Text(text) => return Ok(text.as_str().to_owned()),
                Message::Close(_) => return Err("the server closes a socket".into()),
                _ => {}
            }
        }
    }

    async fn send_prompt(&mut self, text: &str) -> Result<()> {
        let prompt = json!([{"type": "text", "text": text}]);
        self.send("session/prompt", json!({"sessionId": self.session, "prompt": prompt})).await
    }

    /// Reads the updates of a turn up to its response, and returns their number and the bytes in them.
    async fn read_turn(&mut self) -> Result<(usize, usize)> {
        let (mut updates, mut bytes) = (0, 0);
        loop {
            let message = self.next().await?;
            // A chunk consists of one letter, many times. Parsing it would take more time than some servers.
            if message.contains("\"agent_message_chunk\"") {
                updates += 1;
                bytes += message.split("\"text\":\"").nth(1).and_then(|rest| rest.find('"')).unwrap_or(0);
            } else if message.contains("\"stopReason\"") {
                return Ok((updates, bytes));
            } else if message.contains("\"error\"") {
                return Err(message.into());
            }
        }
    }

    /// Returns the usage of this process and of the server's.
    async fn usage(&mut self) -> Result<(Value, Value)> {
        self.send_prompt("usage").await?;
        let mut server = Value::Null;
        loop {
            let mut message: Value = serde_json::from_str(&self.next().await?)?;
            if let Some(text) = message["params"]["update"]["content"]["text"].as_str() {
                server = serde_json::from_str(text)?;
            } else if message.get("result").is_some() {
                return Ok((usage(None), server));
            } else if message["error"].take() != Value::Null {
                return Err("the server refused `usage`".into());
            }
        }
    }
}
