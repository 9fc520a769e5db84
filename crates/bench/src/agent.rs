//! The agent on our SDK: it does what the text of the prompt says.

use std::path::Path;

use duologue_agent::schema::{AgentCapabilities, PromptCapabilities, SetSessionModeRequest};
use duologue_agent::{
    Agent, ContentBlock, Context, Error, Prompt, Result, Session, StopReason, Turn, serve, serve_stdio,
};

use crate::figures::{Watch, reads, usage};
use crate::play::{PromptCommand, growth};
use crate::remote;

/// Returns the number of allocations so far, in a program that counts them.
pub type Allocations = fn() -> Option<usize>;

struct Bench {
    allocations: Allocations,
}

impl Agent for Bench {
    fn capabilities(&self) -> AgentCapabilities {
        AgentCapabilities::default().prompt_capabilities(PromptCapabilities::default().image(true))
    }

    async fn set_mode(&self, _: &Context, _: &Session, _: SetSessionModeRequest) -> Result<()> {
        Ok(())
    }

    async fn prompt(&self, turn: &Turn, prompt: Prompt) -> Result<StopReason> {
        let ask = PromptCommand::parse(&prompt.text());
        match ask.ok_or_else(|| Error::invalid_params("the prompt is none of the benchmark's"))? {
            PromptCommand::End => {}
            PromptCommand::Stream { count, bytes } => {
                let (mut message, chunk) = (turn.message(), "x".repeat(bytes));
                for _ in 0..count {
                    message.push(chunk.as_str()).await?;
                }
            }
            PromptCommand::Read { count } => {
                let (mut watch, mut bytes) = (Watch::start(count), 0);
                for _ in 0..count {
                    bytes += turn.read_text_file(Path::new("/bench/file")).await?.len();
                    watch.lap();
                }
                turn.message().push(reads(count, bytes, watch.stop().1)).await?;
            }
            PromptCommand::Redraw { rounds, bytes } => {
                let (mut message, whole, mut there) = (turn.message(), "x".repeat(bytes), 0);
                for length in growth(rounds, bytes) {
                    message.push(whole.get(there..length).unwrap_or_default()).await?;
                    message.clear().await?;
                    message.push(whole.get(..length).unwrap_or_default()).await?;
                    there = length;
                }
            }
            PromptCommand::Image => {
                let images = prompt.blocks().iter().map(|block| match block {
                    ContentBlock::Image(image) => image.data.len(),
                    _ => 0,
                });
                turn.message().push(images.sum::<usize>().to_string()).await?;
            }
            PromptCommand::Usage => turn.message().push(usage((self.allocations)()).to_string()).await?,
        }
        Ok(StopReason::EndTurn)
    }
}

/// Serves one client on stdio. With [`SERVE`](crate::SERVE) it serves many over a network, and with
/// [`BRIDGE`](crate::BRIDGE) it starts the agent whose command line follows for each of them.
///
/// # Errors
///
/// As [`serve_stdio`], or if the network cannot be used.
pub async fn main(allocations: Allocations) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let mut args = std::env::args().skip(1).skip_while(|arg| arg == crate::MANY_THREADS);
    match args.next().as_deref() {
        Some(crate::SERVE) => {
            let endpoint = remote::endpoint(move |transport| async move {
                // The client's end is no error of the server.
                let _ = serve(Bench { allocations }, transport).await;
            });
            Ok(remote::serve(endpoint).await?)
        }
        Some(crate::BRIDGE) => Ok(remote::serve(remote::bridge(args.collect())).await?),
        _ => Ok(serve_stdio(Bench { allocations }).await?),
    }
}
