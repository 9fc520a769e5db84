//! The agent that the reliability scenarios put under test, on the official Rust crate, written as its cookbook
//! writes agents: a prompt that takes longer is a task of the connection. `tests/bin/subject_agent.rs` does the
//! same on our own SDK; the first word of the prompt says what.

use std::collections::HashMap;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent_client_protocol::v1::schema::{
    AgentCapabilities, CancelNotification, ContentBlock, ContentChunk, InitializeRequest, InitializeResponse,
    NewSessionRequest, NewSessionResponse, PermissionOption, PermissionOptionKind, PromptRequest,
    PromptResponse, ReadTextFileRequest, RequestPermissionOutcome, RequestPermissionRequest, SessionId,
    SessionNotification, SessionUpdate, StopReason, ToolCallUpdate, ToolCallUpdateFields,
};
use agent_client_protocol::v1::{ConnectionTo, Responder};
use agent_client_protocol::{Agent, Client, Error, Result, Stdio};
use tokio::sync::Notify;

/// The sessions, each with what its turn's cancellation wakes.
#[derive(Default)]
struct Sessions {
    made: AtomicUsize,
    open: Mutex<HashMap<SessionId, Arc<Notify>>>,
}

impl Sessions {
    fn add(&self) -> SessionId {
        let id = SessionId::new(format!("session-{}", self.made.fetch_add(1, Ordering::Relaxed)));
        self.open.lock().expect("no holder panics").insert(id.clone(), Arc::default());
        id
    }

    /// A turn begins: what may have cancelled the one before it is over.
    fn begin(&self, id: &SessionId) -> Result<Arc<Notify>> {
        let mut open = self.open.lock().expect("no holder panics");
        let cancelled = open.get_mut(id).ok_or_else(|| Error::invalid_params().data("no such session"))?;
        *cancelled = Arc::default();
        Ok(cancelled.clone())
    }

    fn cancel(&self, id: &SessionId) {
        if let Some(cancelled) = self.open.lock().expect("no holder panics").get(id) {
            cancelled.notify_one();
        }
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let sessions = Arc::new(Sessions::default());
    let (of_new, of_cancel) = (sessions.clone(), sessions.clone());
    Agent
        .v1()
        .name("subject")
        .on_receive_request(
            async move |request: InitializeRequest, responder, _connection| {
                let capabilities = AgentCapabilities::new();
                responder.respond(
                    InitializeResponse::new(request.protocol_version).agent_capabilities(capabilities),
                )
            },
            agent_client_protocol::on_receive_request!(),
        )
        .on_receive_request(
            async move |request: NewSessionRequest, responder, _connection| {
                assert!(!request.cwd.ends_with("panic"), "as I was told");
                responder.respond(NewSessionResponse::new(of_new.add()))
            },
            agent_client_protocol::on_receive_request!(),
        )
        .on_receive_request(
            async move |request: PromptRequest, responder: Responder<PromptResponse>, connection| {
                let turn = Turn::new(&sessions, &request, connection)?;
                assert!(turn.text != "panic", "as I was told");
                let cancellation = responder.cancellation();
                turn.connection.clone().spawn(async move {
                    let outcome = tokio::select! {
                        outcome = turn.run() => outcome,
                        () = turn.cancelled.notified() => Ok(StopReason::Cancelled),
                        () = cancellation.cancelled() => Ok(StopReason::Cancelled),
                    };
                    responder.respond_with_result(outcome.map(PromptResponse::new))
                })
            },
            agent_client_protocol::on_receive_request!(),
        )
        .on_receive_notification(
            async move |cancel: CancelNotification, _connection| {
                of_cancel.cancel(&cancel.session_id);
                Ok(())
            },
            agent_client_protocol::on_receive_notification!(),
        )
        .connect_to(Stdio::new())
        .await
}

struct Turn {
    session: SessionId,
    text: String,
    cancelled: Arc<Notify>,
    connection: ConnectionTo<Client>,
}

impl Turn {
    fn new(sessions: &Sessions, request: &PromptRequest, connection: ConnectionTo<Client>) -> Result<Self> {
        let text = request.prompt.iter().filter_map(|block| match block {
            ContentBlock::Text(text) => Some(text.text.as_str()),
            _ => None,
        });
        Ok(Turn {
            session: request.session_id.clone(),
            text: text.collect(),
            cancelled: sessions.begin(&request.session_id)?,
            connection,
        })
    }

    async fn run(&self) -> Result<StopReason> {
        let (word, rest) = self.text.split_once(' ').unwrap_or((&self.text, ""));
        match word {
            "flood" => {
                let (count, bytes) = rest.split_once(' ').unwrap_or((rest, "1"));
                let chunk = "x".repeat(number(bytes)?);
                for index in 0..number(count)? {
                    self.say(format!("{index} {chunk}"))?;
                    // As an agent that waits for its model's next word does.
                    tokio::task::yield_now().await;
                }
            }
            "read" => {
                let request = ReadTextFileRequest::new(self.session.clone(), rest);
                let answer = self.connection.send_request(request).block_task().await?;
                self.say(answer.content.len().to_string())?;
            }
            "ask" => match self.ask().await? {
                RequestPermissionOutcome::Cancelled => return Ok(StopReason::Cancelled),
                outcome => self.say(format!("{outcome:?}"))?,
            },
            "panic-task" => self.connection.spawn(async { panic!("as I was told") })?,
            "print" => print()?,
            "stuck" => loop {
                std::thread::sleep(Duration::from_secs(3600));
            },
            "hang" => std::future::pending().await,
            "sleep" => tokio::time::sleep(Duration::from_millis(number(rest)? as u64)).await,
            _ => self.say(rest.to_owned())?,
        }
        Ok(StopReason::EndTurn)
    }

    fn say(&self, text: String) -> Result<()> {
        let update = SessionUpdate::AgentMessageChunk(ContentChunk::new(text.into()));
        self.connection.send_notification(SessionNotification::new(self.session.clone(), update))
    }

    async fn ask(&self) -> Result<RequestPermissionOutcome> {
        let request = RequestPermissionRequest::new(
            self.session.clone(),
            ToolCallUpdate::new("call", ToolCallUpdateFields::new()),
            vec![PermissionOption::new("yes", "Yes", PermissionOptionKind::AllowOnce)],
        );
        Ok(self.connection.send_request(request).block_task().await?.outcome)
    }
}

fn number(text: &str) -> Result<usize> {
    text.trim().parse().map_err(Error::into_internal_error)
}

fn print() -> Result<()> {
    println!("debugging output");
    print!("and half a line");
    Command::new("sh").args(["-c", "echo from a child"]).status().map_err(Error::into_internal_error)?;
    Ok(())
}
