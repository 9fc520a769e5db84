//! The agent's part: clients that ask for everything, cancel, talk nonsense, do not read, and leave.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use duologue_agent::{
    Agent, Error, Limits, PermissionOption, PermissionOptionKind, Prompt, Server, StopReason, Transport,
    Turn, schema::ToolCallUpdate,
};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::watch;

use crate::part::{Counts, ORDERED};

const PATIENCE: Duration = Duration::from_secs(30);

struct Chaos;

impl Agent for Chaos {
    async fn prompt(&self, turn: &Turn, prompt: Prompt) -> duologue_agent::Result<StopReason> {
        let text = prompt.text();
        let (word, rest) = text.split_once(' ').unwrap_or((&text, ""));
        let mut message = turn.message();
        match word {
            "flood" => {
                let chunk = "x".repeat(500);
                for _ in 0..rest.parse().map_err(Error::other)? {
                    message.push(chunk.as_str()).await?;
                }
            }
            "ask" => {
                let options = vec![PermissionOption::new("yes", "Yes", PermissionOptionKind::AllowOnce)];
                turn.request_permission(ToolCallUpdate::new("call"), options).await?;
            }
            "panic" => panic!("{ORDERED}"),
            "fail" => return Err(Error::invalid_params(ORDERED)),
            "hang" => {
                turn.cancelled().await;
                return Ok(StopReason::Cancelled);
            }
            "stuck" => std::future::pending().await,
            _ => message.push(rest).await?,
        }
        Ok(StopReason::EndTurn)
    }
}

fn limits() -> Limits {
    let mut limits = Limits::default();
    limits.frame_bytes = 256 * 1024;
    limits.output_bytes = 64 * 1024;
    limits.output_bytes_hard = 256 * 1024;
    limits.stall_timeout = Duration::from_millis(300);
    limits.cancel_grace = Duration::from_millis(200);
    limits
}

/// One client, from its first word to its leaving.
pub(crate) async fn visit(mut rng: fastrand::Rng, counts: &'static Counts) {
    let (ours, theirs) = Transport::memory();
    let served = tokio::spawn(Server::new(Chaos).limits(limits()).serve(ours));
    let (reader, writer) = theirs.into_split();
    let stay = async {
        let (session, known) = watch::channel(None);
        let reading = tokio::spawn(listen(reader, session, rng.fork()));
        let mut writer = speak(writer, known, &mut rng).await;
        if rng.bool() {
            // A graceful end: close the input, then read the remaining output.
            let _ = writer.shutdown().await;
            let _ = reading.await;
        } else {
            reading.abort();
        }
        drop(writer);
        // A panic of the server itself is one that nobody ordered.
        let _ = served.await;
    };
    if tokio::time::timeout(PATIENCE, stay).await.is_err() {
        counts.hung.fetch_add(1, Relaxed);
    }
}

/// Reads what the agent says, and at times does not.
async fn listen(
    reader: impl AsyncRead + Unpin,
    session: watch::Sender<Option<String>>,
    mut rng: fastrand::Rng,
) {
    let mut lines = BufReader::new(reader).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        if session.borrow().is_none() {
            let line: Value = serde_json::from_str(&line).unwrap_or_default();
            if let Some(id) = line["result"]["sessionId"].as_str() {
                session.send_replace(Some(id.to_owned()));
            }
        }
        if rng.u32(0..1000) == 0 {
            tokio::time::sleep(Duration::from_millis(rng.u64(0..600))).await;
        }
    }
}

/// Answers `initialize`, and then sends messages of all kinds.
async fn speak<W: AsyncWrite + Unpin>(
    mut writer: W,
    mut known: watch::Receiver<Option<String>>,
    rng: &mut fastrand::Rng,
) -> W {
    let hello = json!({"protocolVersion": 1, "clientCapabilities": {}});
    let mut lines = vec![
        json!({"jsonrpc": "2.0", "id": "hello", "method": "initialize", "params": hello}),
        json!({"jsonrpc": "2.0", "id": "new", "method": "session/new", "params": {"cwd": "/", "mcpServers": []}}),
    ];
    for line in lines.drain(..) {
        let _ = writer.write_all(format!("{line}\n").as_bytes()).await;
    }
    let new = tokio::time::timeout(Duration::from_secs(5), known.wait_for(Option::is_some)).await;
    let Ok(Ok(id)) = new.map(|id| id.map(|id| id.clone().unwrap_or_default())) else { return writer };
    for number in 0..rng.usize(1..40) {
        let line = said(&id, number, rng);
        // Nobody may read us for a while.
        let written = tokio::time::timeout(Duration::from_secs(2), writer.write_all(&line)).await;
        if !matches!(written, Ok(Ok(()))) {
            return writer;
        }
        if rng.u8(0..4) == 0 {
            tokio::time::sleep(Duration::from_millis(rng.u64(0..50))).await;
        }
    }
    if rng.u8(0..4) == 0 {
        // And no end to the last line.
        let _ = tokio::time::timeout(Duration::from_secs(1), writer.write_all(b"{\"jsonrpc\":")).await;
    }
    writer
}

/// A line of some kind.
fn said(session: &str, number: usize, rng: &mut fastrand::Rng) -> Vec<u8> {
    let request = |method: &str, params: Value| {
        json!({"jsonrpc": "2.0", "id": number, "method": method, "params": params}).to_string()
    };
    let prompt = |text: String| {
        request("session/prompt", json!({"sessionId": session, "prompt": [{"type": "text", "text": text}]}))
    };
    let mut line = match rng.u8(0..14) {
        0 | 1 => prompt(format!("flood {}", rng.u32(1..1000))).into_bytes(),
        2 => prompt("ask".into()).into_bytes(),
        3 => prompt("panic".into()).into_bytes(),
        4 => prompt("fail".into()).into_bytes(),
        5 => prompt("hang".into()).into_bytes(),
        6 => prompt("stuck".into()).into_bytes(),
        7 => json!({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": session}})
            .to_string()
            .into_bytes(),
        8 => {
            json!({"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": rng.usize(0..40)}})
                .to_string()
                .into_bytes()
        }
        9 => request("session/new", json!({"cwd": "/", "mcpServers": []})).into_bytes(),
        10 => request("_nobody/knows", json!({"a": [1, 2, 3]})).into_bytes(),
        11 => json!({"jsonrpc": "2.0", "id": number, "result": {}}).to_string().into_bytes(),
        12 => vec![b'x'; rng.usize(0..400_000)],
        _ => (0..rng.usize(0..300)).map(|_| rng.u8(..)).collect(),
    };
    line.push(b'\n');
    line
}
