//! Methods beyond the protocol, typed on both sides by one jsonrpsee trait.
//!
//! The agent serves `_example/count` and the client calls it like a function. Meanwhile the agent
//! notifies the client; extension notifications arrive in the order they were sent. Names of
//! extension methods start with `_`.
#![allow(clippy::print_stdout, reason = "the client's stdout is the user's")]

use duologue_agent::rpc::Peer;
use duologue_agent::schema::{Implementation, Notification};
use duologue_agent::{Agent, Extensions, Prompt, Server, StopReason, Turn};
use duologue_client::{Client, Transport};
use jsonrpsee::core::async_trait;
use jsonrpsee::proc_macros::rpc;
use jsonrpsee::types::ErrorObjectOwned;
use serde::{Deserialize, Serialize};

/// The extension that both sides support.
#[rpc(client, server)]
pub trait Counting {
    /// Returns the number of words of a text.
    #[method(name = "_example/count", param_kind = map, with_extensions)]
    async fn count(&self, text: String) -> Result<usize, ErrorObjectOwned>;
}

/// The agent's notification while it counts.
#[derive(Serialize, Deserialize)]
struct Seen {
    word: String,
}

impl Notification for Seen {
    const METHOD: &'static str = "_example/seen";
}

struct Counter;

#[async_trait]
impl CountingServer for Counter {
    async fn count(&self, context: &jsonrpsee::Extensions, text: String) -> Result<usize, ErrorObjectOwned> {
        let mut words = 0;
        for word in text.split_whitespace() {
            // The requesting client is in the context of the call.
            if let Some(client) = context.get::<Peer>() {
                let _ = client.notify(&Seen { word: word.to_owned() }).await;
            }
            words += 1;
        }
        Ok(words)
    }
}

struct Quiet;

impl Agent for Quiet {
    fn info(&self) -> Option<Implementation> {
        Some(Implementation::new("extension-agent", env!("CARGO_PKG_VERSION")).title("Quiet"))
    }

    async fn prompt(&self, _: &Turn, _: Prompt) -> duologue_agent::Result<StopReason> {
        Ok(StopReason::EndTurn)
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (ours, theirs) = Transport::memory();
    let extensions = Extensions::new().merge(Counter.into_rpc())?;
    tokio::spawn(Server::new(Quiet).extensions(extensions).serve(theirs));

    let seen =
        Extensions::new().on_notification(|_, seen: Seen| println!("the agent has seen {:?}", seen.word));
    let agent = Client::new(()).extensions(seen).connect(ours).await?;
    let words = agent.peer().count("how many words are these".into()).await?;
    println!("{words} words");
    assert_eq!(words, 5);
    Ok(())
}
