//! The agent of the benchmark on the official Rust crate, as its cookbook writes agents: a prompt that takes longer is a
//! task of the connection. `crates/bench/src/agent.rs` is the same on our own SDK.

use std::sync::atomic::{AtomicUsize, Ordering};

use agent_client_protocol::v1::schema::{
    AgentCapabilities, ContentBlock, ContentChunk, InitializeRequest, InitializeResponse, NewSessionRequest,
    NewSessionResponse, PromptCapabilities, PromptRequest, PromptResponse, ReadTextFileRequest, SessionId,
    SessionNotification, SessionUpdate, StopReason,
};
use agent_client_protocol::v1::{ConnectionTo, Responder};
use agent_client_protocol::{Agent, Client, ConnectTo, Error, Result};

use super::figures::{Watch, reads, usage};
use super::play::{PromptCommand, growth};

/// The agent, for any transport.
pub fn agent() -> impl ConnectTo<Client> {
    let made = AtomicUsize::new(0);
    Agent
        .v1()
        .name("bench")
        .on_receive_request(
            async move |request: InitializeRequest, responder, _connection| {
                let capabilities = PromptCapabilities::new().image(true);
                responder.respond(
                    InitializeResponse::new(request.protocol_version)
                        .agent_capabilities(AgentCapabilities::new().prompt_capabilities(capabilities)),
                )
            },
            agent_client_protocol::on_receive_request!(),
        )
        .on_receive_request(
            async move |_: NewSessionRequest, responder, _connection| {
                // As long as a UUID, which is what agents use.
                let id = format!("{:036}", made.fetch_add(1, Ordering::Relaxed));
                responder.respond(NewSessionResponse::new(SessionId::new(id)))
            },
            agent_client_protocol::on_receive_request!(),
        )
        .on_receive_request(
            async move |request: PromptRequest, responder: Responder<PromptResponse>, connection| {
                let turn = Turn { session: request.session_id.clone(), connection };
                turn.connection.clone().spawn(async move {
                    let outcome = turn.run(&request.prompt).await;
                    responder.respond_with_result(outcome.map(PromptResponse::new))
                })
            },
            agent_client_protocol::on_receive_request!(),
        )
}

struct Turn {
    session: SessionId,
    connection: ConnectionTo<Client>,
}

impl Turn {
    async fn run(&self, prompt: &[ContentBlock]) -> Result<StopReason> {
        let (mut text, mut image) = ("", 0);
        for block in prompt {
            match block {
                ContentBlock::Text(block) => text = &block.text,
                ContentBlock::Image(block) => image = block.data.len(),
                _ => {}
            }
        }
        let command = PromptCommand::parse(text);
        match command.ok_or_else(|| Error::invalid_params().data("the prompt is none of the benchmark's"))? {
            PromptCommand::End => {}
            PromptCommand::Stream { count, bytes } => {
                let chunk = "x".repeat(bytes);
                for _ in 0..count {
                    self.say(chunk.clone())?;
                    // As an agent that waits for its model's next word does; without it all chunks are queued at once.
                    tokio::task::yield_now().await;
                }
            }
            PromptCommand::Read { count } => {
                let (mut watch, mut bytes) = (Watch::start(count), 0);
                for _ in 0..count {
                    let request = ReadTextFileRequest::new(self.session.clone(), "/bench/file");
                    bytes += self.connection.send_request(request).block_task().await?.content.len();
                    watch.lap();
                }
                self.say(reads(count, bytes, watch.stop().1))?;
            }
            PromptCommand::Redraw { rounds, bytes } => {
                let (whole, mut there) = ("x".repeat(bytes), 0);
                for length in growth(rounds, bytes) {
                    self.say(whole[there..length].to_owned())?;
                    self.say(String::new())?;
                    self.say(whole[..length].to_owned())?;
                    tokio::task::yield_now().await;
                    there = length;
                }
            }
            PromptCommand::Image => self.say(image.to_string())?,
            PromptCommand::Usage => self.say(usage(None).to_string())?,
        }
        Ok(StopReason::EndTurn)
    }

    fn say(&self, text: String) -> Result<()> {
        let update = SessionUpdate::AgentMessageChunk(ContentChunk::new(text.into()));
        self.connection.send_notification(SessionNotification::new(self.session.clone(), update))
    }
}
