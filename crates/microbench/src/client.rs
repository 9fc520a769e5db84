//! The client: from the bytes of an update to its consumer at the turn.

use std::hint::black_box;

use duologue_client::Client;
use duologue_rpc::Transport;

use crate::played::{Played, SESSION};
use crate::{Path, Work, runtime};

const UPDATES: u64 = 10_000;

pub(crate) const PATHS: &[Path] = &[
    Path::new("client/update", UPDATES, || turn(Client::new(()), 40)),
    Path::new("client/update_1k", UPDATES, || turn(Client::new(()), 1024)),
    Path::new("client/update_fold", UPDATES, || turn(Client::new(()).keep_conversations(), 40)),
];

/// A turn of updates of so many bytes of text, each taken as it comes.
fn turn(client: Client, bytes: usize) -> Work {
    let text = "x".repeat(bytes);
    let update = format!(
        r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":"{SESSION}","update":{{"sessionUpdate":"agent_message_chunk","content":{{"type":"text","text":"{text}"}},"messageId":"c6d3a1de-6c3f-4c4e-a8a1-5a9e36f0b7cd"}}}}}}"#
    );
    let updates = format!("{update}\n").repeat(UPDATES as usize).into_bytes();
    let runtime = runtime();
    let session = runtime.block_on(async {
        let (ours, theirs) = Transport::memory();
        tokio::spawn(Played::new(theirs).agent(updates));
        let connection = client.connect(ours).await.expect("it says hello");
        connection.new_session("/").await.expect("it makes a session")
    });
    Box::new(move || {
        let count = runtime.block_on(async {
            let mut turn = session.prompt("go").await.expect("it takes a prompt");
            let mut count = 0;
            while let Some(update) = turn.next().await {
                black_box(update.expect("an update"));
                count += 1;
            }
            count
        });
        assert_eq!(count, UPDATES);
    })
}
