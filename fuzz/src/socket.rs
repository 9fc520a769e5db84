//! The bytes of a client on a socket: the server answers in HTTP or WebSocket, and nothing of the client stays.

use std::io;
use std::time::Duration;

use duologue_agent::{Agent, Prompt, Result, StopReason, Turn, serve};
use duologue_http::{AgentEndpoint, ServerOptions, router};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

use crate::input::Input;

/// The bytes that the socket holds in each direction.
const BUFFER: usize = 1 << 16;
/// Time for the answers. Also without a cost.
const SETTLED: Duration = Duration::from_secs(1);
/// Longer than every time limit of a server. The clock is paused, so it costs nothing.
const LONG: Duration = Duration::from_secs(24 * 60 * 60);
/// The request for a socket.
const UPGRADE: &str = "GET /acp HTTP/1.1\r\nhost: localhost\r\nupgrade: websocket\r\nconnection: upgrade\r\n\
    sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\nacp-stream-ack: true\r\n\r\n";
/// The beginning of a message over HTTP with SSE.
const POST: &str = "POST /acp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1,"clientCapabilities":{}}}"#;

/// One byte that says what follows: a request, frames of an upgraded socket, lines, of which each becomes a frame, or the
/// body of a POST.
pub fn check(input: &[u8]) {
    let mut input = Input::new(input);
    let kind = input.below(5);
    let rest = input.take(usize::MAX);
    let mut bytes = Vec::new();
    let is_upgraded = (1..4).contains(&kind);
    if is_upgraded {
        bytes.extend(UPGRADE.as_bytes());
    }
    if is_upgraded && kind > 1 {
        frame(&mut bytes, INITIALIZE.as_bytes());
    }
    match kind {
        0 | 1 => bytes.extend(rest),
        4 => {
            bytes.extend(POST.as_bytes());
            bytes.extend(format!("content-length: {}\r\n\r\n", rest.len()).bytes());
            bytes.extend(rest);
        }
        _ => rest.split(|byte| *byte == b'\n').for_each(|line| frame(&mut bytes, line)),
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(play(&bytes, is_upgraded));
}

/// Appends a masked text frame.
fn frame(bytes: &mut Vec<u8>, text: &[u8]) {
    bytes.push(0x81);
    match u8::try_from(text.len()) {
        Ok(short @ 0..=125) => bytes.push(0x80 | short),
        _ => {
            bytes.push(0x80 | 126);
            bytes.extend(u16::try_from(text.len()).unwrap_or(u16::MAX).to_be_bytes());
        }
    }
    // A mask of zeros changes nothing.
    bytes.extend([0; 4]);
    bytes.extend(text);
}

#[derive(Clone)]
struct Echo;

impl Agent for Echo {
    async fn prompt(&self, turn: &Turn, prompt: Prompt) -> Result<StopReason> {
        turn.message().push(prompt.text()).await?;
        Ok(StopReason::EndTurn)
    }
}

/// A listener with one connection.
struct OneSocket(Option<DuplexStream>);

impl axum::serve::Listener for OneSocket {
    type Io = DuplexStream;
    type Addr = ();

    async fn accept(&mut self) -> (DuplexStream, ()) {
        match self.0.take() {
            Some(socket) => (socket, ()),
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<()> {
        Ok(())
    }
}

async fn play(bytes: &[u8], upgraded: bool) {
    let endpoint = AgentEndpoint::new(|transport| async {
        let _ = serve(Echo, transport).await;
    });
    let (mut client, server) = tokio::io::duplex(BUFFER);
    let router = router(endpoint.clone(), ServerOptions::default());
    let serving = tokio::spawn(async move { axum::serve(OneSocket(Some(server)), router).await });
    // The server may have ended the connection before it has read everything.
    let _ = client.write_all(bytes).await;
    // A server need not answer a client that has ended before.
    tokio::time::sleep(SETTLED).await;
    let _ = client.shutdown().await;
    let mut answer = Vec::new();
    let ended = tokio::time::timeout(LONG, client.read_to_end(&mut answer)).await;
    assert!(ended.is_ok(), "the server keeps the socket of a client that has ended");
    drop(client);
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1."), "{:?}", String::from_utf8_lossy(&answer));
    if upgraded {
        assert!(answer.starts_with(b"HTTP/1.1 101 "), "{:?}", String::from_utf8_lossy(&answer));
        let head = answer.windows(4).position(|window| window == b"\r\n\r\n").expect("a head");
        check_frames(&answer[head + 4..]);
    }
    tokio::time::sleep(LONG).await;
    assert_eq!(endpoint.connection_count(), 0);
    serving.abort();
}

/// Asserts that the server has sent whole frames: texts are messages, everything else is about the socket.
fn check_frames(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    while !input.is_empty() {
        let opcode = input.byte();
        let length = match input.byte() {
            short @ 0..=125 => usize::from(short),
            126 => number(input.take(2)),
            _ => number(input.take(8)),
        };
        let payload = input.take(length);
        assert_eq!(payload.len(), length, "the last frame is cut");
        match opcode {
            0x81 => drop(serde_json::from_slice::<Value>(payload).expect("a message")),
            0x88..=0x8a => assert!(length <= 125),
            other => panic!("a frame begins with {other:#x}"),
        }
    }
}

fn number(bytes: &[u8]) -> usize {
    bytes.iter().fold(0, |number, byte| number << 8 | usize::from(*byte))
}
