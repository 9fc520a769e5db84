//! The agent: from `push` to the bytes of an update.

use duologue_agent::{Agent, Prompt, Result, StopReason, Turn, serve};
use duologue_rpc::Transport;
use serde_json::json;

use crate::played::Played;
use crate::{Path, Work, runtime};

const UPDATES: u64 = 10_000;

pub(crate) const PATHS: &[Path] =
    &[Path::new("agent/update", UPDATES, || turn(40)), Path::new("agent/update_1k", UPDATES, || turn(1024))];

/// Says the same again and again.
struct Talker {
    text: String,
}

impl Agent for Talker {
    async fn prompt(&self, turn: &Turn, _: Prompt) -> Result<StopReason> {
        let mut message = turn.message();
        for _ in 0..UPDATES {
            message.push(self.text.as_str()).await?;
        }
        Ok(StopReason::EndTurn)
    }
}

/// A turn of updates of so many bytes of text.
fn turn(bytes: usize) -> Work {
    let runtime = runtime();
    let (ours, theirs) = Transport::memory();
    let mut client = Played::new(theirs);
    let session = runtime.block_on(async {
        tokio::spawn(serve(Talker { text: "x".repeat(bytes) }, ours));
        client.ask("initialize", json!({"protocolVersion": 1})).await;
        client.ask("session/new", json!({"cwd": "/", "mcpServers": []})).await["sessionId"].take()
    });
    let params = json!({"sessionId": session, "prompt": [{"type": "text", "text": "go"}]});
    let prompt = json!({"jsonrpc": "2.0", "id": 1, "method": "session/prompt", "params": params});
    let prompt = format!("{prompt}\n").into_bytes();
    Box::new(move || runtime.block_on(client.hear_out(&prompt, b"\"end_turn\"}}\n")))
}
