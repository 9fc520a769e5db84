//! Client and agent in one process: a small request, there and back, both ways.

use duologue_agent::{Agent, Prompt, Result, StopReason, Turn, serve};
use duologue_client::schema::{ReadTextFileRequest, ReadTextFileResponse};
use duologue_client::{Client, Session};
use duologue_rpc::Transport;
use tokio::runtime::Runtime;

use crate::{Path, runtime};

const CALLS: u64 = 1_000;

pub(crate) const PATHS: &[Path] = &[
    Path::new("both/prompt", CALLS, || {
        let (runtime, session) = joined(0);
        Box::new(move || runtime.block_on(prompts(&session, CALLS)))
    }),
    Path::new("both/read_text_file", CALLS, || {
        let (runtime, session) = joined(CALLS);
        Box::new(move || runtime.block_on(prompts(&session, 1)))
    }),
];

/// Reads a file so often, and says nothing.
struct Reader {
    reads: u64,
}

impl Agent for Reader {
    async fn prompt(&self, turn: &Turn, _: Prompt) -> Result<StopReason> {
        for _ in 0..self.reads {
            assert_eq!(turn.read_text_file("/a").await?.len(), 4096);
        }
        Ok(StopReason::EndTurn)
    }
}

fn joined(reads: u64) -> (Runtime, Session) {
    let runtime = runtime();
    let session = runtime.block_on(async {
        let (ours, theirs) = Transport::memory();
        tokio::spawn(serve(Reader { reads }, theirs));
        let text = "x".repeat(4096);
        let client = Client::new(()).on(move |_, _: ReadTextFileRequest| {
            let text = text.clone();
            async move { Ok(ReadTextFileResponse::new(text)) }
        });
        let connection = client.connect(ours).await.expect("it says hello");
        connection.new_session("/").await.expect("it makes a session")
    });
    (runtime, session)
}

async fn prompts(session: &Session, count: u64) {
    for _ in 0..count {
        let mut turn = session.prompt("go").await.expect("it takes a prompt");
        turn.outcome().await.expect("it answers");
    }
}
