//! The other side, without an SDK: what it says was written beforehand, so that it costs next to nothing.

use duologue_rpc::Transport;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

type Input = Box<dyn tokio::io::AsyncRead + Send + Unpin>;
type Output = Box<dyn tokio::io::AsyncWrite + Send + Unpin>;

/// One end of a transport.
pub(crate) struct Played {
    input: BufReader<Input>,
    output: Output,
}

impl Played {
    pub(crate) fn new(transport: Transport) -> Self {
        let (input, output) = transport.into_split();
        Played { input: BufReader::with_capacity(64 * 1024, input), output }
    }

    async fn say(&mut self, bytes: &[u8]) {
        self.output.write_all(bytes).await.expect("the other side reads");
    }

    /// The agent of one session: answers every prompt with `updates`, whole lines, before its answer.
    pub(crate) async fn agent(mut self, updates: Vec<u8>) {
        let mut line = String::new();
        while self.input.read_line(&mut line).await.expect("the other side writes") > 0 {
            let asked: Value = serde_json::from_str(&line).expect("a message");
            let result = match asked["method"].as_str() {
                Some("initialize") => json!({"protocolVersion": 1}),
                Some("session/new") => json!({"sessionId": SESSION}),
                _ => {
                    self.say(&updates).await;
                    json!({"stopReason": "end_turn"})
                }
            };
            let answer = json!({"jsonrpc": "2.0", "id": asked["id"], "result": result});
            self.say(format!("{answer}\n").as_bytes()).await;
            line.clear();
        }
    }

    /// Asks for something, and returns the result.
    pub(crate) async fn ask(&mut self, method: &str, params: Value) -> Value {
        let asked = json!({"jsonrpc": "2.0", "id": 0, "method": method, "params": params});
        self.say(format!("{asked}\n").as_bytes()).await;
        let mut line = String::new();
        self.input.read_line(&mut line).await.expect("the other side writes");
        let mut answer: Value = serde_json::from_str(&line).expect("a message");
        answer["result"].take()
    }

    /// Says a line, and takes what comes until it ends with `end`.
    pub(crate) async fn hear_out(&mut self, line: &[u8], end: &[u8]) {
        self.say(line).await;
        let mut tail = Vec::new();
        while !tail.ends_with(end) {
            let heard = self.input.fill_buf().await.expect("the other side writes");
            assert!(!heard.is_empty(), "the other side left");
            let count = heard.len();
            tail.extend_from_slice(heard.get(count.saturating_sub(end.len())..).unwrap_or_default());
            self.input.consume(count);
        }
    }
}

/// The session of the agent that is played.
pub(crate) const SESSION: &str = "0bd7d9b9-6a1c-4c53-9b1c-6f0a54d9e1f2";
