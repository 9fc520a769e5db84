//! The client of the benchmark on the official Rust crate, as its documentation writes clients: a handler for the updates.
//! `crates/bench/src/client.rs` is the same on our own SDK.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use agent_client_protocol::schema::ProtocolVersion;
use agent_client_protocol::v1::ConnectionTo;
use agent_client_protocol::v1::schema::{
    ClientCapabilities, ContentBlock, FileSystemCapabilities, ImageContent, InitializeRequest,
    NewSessionRequest, PromptRequest, ReadTextFileRequest, ReadTextFileResponse, SessionId,
    SessionNotification, SessionUpdate, StopReason,
};
use agent_client_protocol::{Agent, Client, ConnectTo, Error, Result};
use futures::future::try_join_all;
use serde_json::Value;

use super::figures::{Figures, Watch, take_reads, usage};
use super::play::{FILE_BYTES, Play};

/// Received updates, by session.
type Seen = Arc<Mutex<HashMap<SessionId, Session>>>;

#[derive(Default)]
struct Session {
    messages: usize,
    bytes: usize,
    /// The text of the agent, if requested.
    text: Option<String>,
}

/// Connects to an agent, and does something with the connection.
pub async fn connected_to<T>(
    agent: impl ConnectTo<Client> + 'static,
    work: impl AsyncFnOnce(Stage) -> Result<T>,
) -> Result<T> {
    let seen = Seen::default();
    let told = seen.clone();
    let file = "x".repeat(FILE_BYTES);
    Client
        .v1()
        .name("bench")
        .on_receive_notification(
            async move |notification: SessionNotification, _connection| {
                update(&mut told.lock().expect("no holder panics"), notification);
                Ok(())
            },
            agent_client_protocol::on_receive_notification!(),
        )
        .on_receive_request(
            async move |_: ReadTextFileRequest, responder, _connection| {
                responder.respond(ReadTextFileResponse::new(file.clone()))
            },
            agent_client_protocol::on_receive_request!(),
        )
        .connect_with(agent, async move |connection: ConnectionTo<Agent>| {
            let files = FileSystemCapabilities::new().read_text_file(true);
            let hello = InitializeRequest::new(ProtocolVersion::V1);
            let hello = hello.client_capabilities(ClientCapabilities::new().fs(files));
            connection.send_request(hello).block_task().await?;
            work(Stage { connection, seen }).await
        })
        .await
}

fn update(seen: &mut HashMap<SessionId, Session>, told: SessionNotification) {
    let SessionUpdate::AgentMessageChunk(chunk) = told.update else { return };
    let ContentBlock::Text(content) = chunk.content else { return };
    let session = seen.entry(told.session_id).or_default();
    session.messages += 1;
    session.bytes += content.text.len();
    match &mut session.text {
        // The crate knows no clear; a chunk without text stands for one.
        Some(text) if content.text.is_empty() => text.clear(),
        Some(text) => text.push_str(&content.text),
        None => {}
    }
}

/// A connection.
pub struct Stage {
    connection: ConnectionTo<Agent>,
    seen: Seen,
}

impl Stage {
    /// Plays in a session of its own.
    pub async fn play(&self, play: Play) -> Result<Figures> {
        let session = self.new_session().await?;
        let before = self.usage(&session).await?;
        let mut figures = match play {
            Play::Start { .. } | Play::Modes { .. } => return Err(Error::invalid_params().data("it is not for one connection of this client")),
            Play::Stream { count, bytes } => {
                let begun = Instant::now();
                self.prompt(&session, format!("stream {count} {bytes}").into()).await?;
                let Session { messages, bytes, .. } = self.take(&session);
                Figures { messages, bytes, wall: begun.elapsed(), ..Figures::default() }
            }
            Play::Prompts { count } => {
                let (mut figures, mut watch) = (Figures::default(), Watch::start(count));
                for _ in 0..count {
                    self.prompt(&session, "end".into()).await?;
                    watch.lap();
                    figures.messages += 1;
                }
                (figures.wall, figures.latency) = watch.stop();
                figures
            }
            Play::Read { count } => {
                let (mut figures, begun) = (Figures::default(), Instant::now());
                let text = self.said(&session, vec![format!("read {count}").into()]).await?;
                figures.wall = begun.elapsed();
                take_reads(&mut figures, &text).expect("what the agent has read");
                figures
            }
            Play::Sessions { sessions, count, bytes } => self.sessions(sessions, count, bytes).await?,
            Play::Idle { sessions } => {
                let (begun, mut open) = (Instant::now(), Vec::new());
                for _ in 0..sessions {
                    open.push(self.new_session().await?);
                }
                Figures { messages: open.len(), wall: begun.elapsed(), ..Figures::default() }
            }
            Play::Image { bytes, count } => {
                let image = "A".repeat(bytes);
                let (mut figures, mut watch) = (Figures::default(), Watch::start(count));
                for _ in 0..count {
                    let image = ContentBlock::Image(ImageContent::new(image.clone(), "image/png"));
                    watch.again();
                    let said = self.said(&session, vec!["image".into(), image]).await?;
                    watch.lap();
                    figures.bytes += said.parse::<usize>().map_err(Error::into_internal_error)?;
                    figures.messages += 1;
                }
                (figures.wall, figures.latency) = watch.stop();
                figures
            }
            Play::Redraw { rounds, bytes } => {
                let begun = Instant::now();
                self.seen().entry(session.clone()).or_default().text = Some(String::new());
                self.prompt(&session, format!("redraw {rounds} {bytes}").into()).await?;
                let Session { messages, text, .. } = self.take(&session);
                let bytes = text.unwrap_or_default().len();
                Figures { messages, bytes, wall: begun.elapsed(), ..Figures::default() }
            }
        };
        figures.usage = vec![before, self.usage(&session).await?];
        Ok(figures)
    }

    async fn sessions(&self, sessions: usize, count: usize, bytes: usize) -> Result<Figures> {
        let mut open = Vec::new();
        for _ in 0..sessions {
            open.push(self.new_session().await?);
        }
        let (mut figures, begun) = (Figures::default(), Instant::now());
        let turns = open.iter().map(|session| self.prompt(session, format!("stream {count} {bytes}").into()));
        try_join_all(turns).await?;
        figures.wall = begun.elapsed();
        for session in &open {
            let seen = self.take(session);
            assert_eq!(seen.messages, count, "every session sees all of its updates");
            figures.messages += seen.messages;
            figures.bytes += seen.bytes;
        }
        Ok(figures)
    }

    async fn usage(&self, session: &SessionId) -> Result<(Value, Value)> {
        let said = self.said(session, vec!["usage".into()]).await?;
        Ok((usage(None), serde_json::from_str(&said).map_err(Error::into_internal_error)?))
    }

    async fn new_session(&self) -> Result<SessionId> {
        Ok(self.connection.send_request(NewSessionRequest::new("/bench")).block_task().await?.session_id)
    }

    async fn prompt(&self, session: &SessionId, prompt: ContentBlock) -> Result<()> {
        self.prompt_with(session, vec![prompt]).await
    }

    async fn prompt_with(&self, session: &SessionId, prompt: Vec<ContentBlock>) -> Result<()> {
        let request = PromptRequest::new(session.clone(), prompt);
        let answer = self.connection.send_request(request).block_task().await?;
        assert_eq!(answer.stop_reason, StopReason::EndTurn);
        Ok(())
    }

    async fn said(&self, session: &SessionId, prompt: Vec<ContentBlock>) -> Result<String> {
        self.seen().entry(session.clone()).or_default().text = Some(String::new());
        self.prompt_with(session, prompt).await?;
        Ok(self.take(session).text.unwrap_or_default())
    }

    fn take(&self, session: &SessionId) -> Session {
        self.seen().remove(session).unwrap_or_default()
    }

    fn seen(&self) -> std::sync::MutexGuard<'_, HashMap<SessionId, Session>> {
        self.seen.lock().expect("no holder panics")
    }
}
