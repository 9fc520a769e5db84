//! Methods beyond the protocol, typed on both sides by one jsonrpsee trait.
//!
//! The agent serves `_example/count`, the client calls it like a function, and a notification goes
//! the other way, in order. Names of extension methods start with `_`.
#![allow(clippy::print_stdout, reason = "the client's stdout is the user's")]

use duologue_agent::{Agent, Extensions, Prompt, Server, StopReason, Turn};
use duologue_client::{Client, Transport};
use jsonrpsee::core::async_trait;
use jsonrpsee::proc_macros::rpc;
use jsonrpsee::types::ErrorObjectOwned;

/// What both sides agreed on.
#[rpc(client, server)]
pub trait Counting {
    /// How many words a text has.
    #[method(name = "_example/count", param_kind = map)]
    async fn count(&self, text: String) -> Result<usize, ErrorObjectOwned>;
}

struct Counter;

#[async_trait]
impl CountingServer for Counter {
    async fn count(&self, text: String) -> Result<usize, ErrorObjectOwned> {
        Ok(text.split_whitespace().count())
    }
}

struct Quiet;

impl Agent for Quiet {
    async fn prompt(&self, _: &Turn, _: Prompt) -> duologue_agent::Result<StopReason> {
        Ok(StopReason::EndTurn)
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (ours, theirs) = Transport::memory();
    let extensions = Extensions::new().merge(Counter.into_rpc())?;
    tokio::spawn(Server::new(Quiet).extensions(extensions).serve(theirs));

    let agent = Client::new(()).connect(ours).await?;
    let words = agent.peer().count("how many words are these".into()).await?;
    println!("{words} words");
    assert_eq!(words, 5);
    Ok(())
}
