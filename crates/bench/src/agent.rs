//! The agent on our SDK: it does what the text of the prompt says.

use std::path::Path;

use duologue_agent::schema::{AgentCapabilities, PromptCapabilities};
use duologue_agent::{Agent, ContentBlock, Error, Prompt, Result, StopReason, Turn, serve_stdio};

use crate::figures::{Watch, reads, usage};
use crate::play::{PromptCommand, growth};

/// Returns the number of allocations so far, in a program that counts them.
pub type Allocations = fn() -> Option<usize>;

struct Bench {
    allocations: Allocations,
}

impl Agent for Bench {
    fn capabilities(&self) -> AgentCapabilities {
        AgentCapabilities::default().prompt_capabilities(PromptCapabilities::default().image(true))
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

/// Serves one client.
///
/// # Errors
///
/// As [`serve_stdio`].
pub async fn main(allocations: Allocations) -> Result<()> {
    serve_stdio(Bench { allocations }).await
}
