//! An agent that does what its prompts tell it, and a client whose user dawdles.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use duologue_agent::{Agent, Context, Error, Prompt, Result, Session, SessionSetup, StopReason, Turn};
use duologue_client::{Host, HostContext, HostResult};
use duologue_rpc::{Direction, Tap, TappedFrame};
use duologue_schema::{
    AgentCapabilities, ClientCapabilities, CloseSessionRequest, FileSystemCapabilities, LoadSessionRequest,
    NewSessionRequest, PermissionOption, PermissionOptionKind, PromptRequest, ReadTextFileRequest,
    ReadTextFileResponse, RequestPermissionOutcome, RequestPermissionRequest, RequestPermissionResponse,
    SessionCapabilities, SessionCloseCapabilities, SessionUpdate, SetSessionModeRequest, ToolCallUpdate,
};
use fastrand::Rng;
use serde_json::Value;

use super::random_delay::random_delays;

/// The recorded actions of both sides and of the wire between them.
#[derive(Default)]
pub struct Books(Mutex<Known>);

#[derive(Default)]
pub struct Known {
    /// By prompt: how many updates the agent had taken from it.
    pub sent: BTreeMap<u64, u64>,
    pub permissions: u64,
    pub cancelled_permissions: u64,
    pub reads: u64,
    /// By session: true if the client knows its id.
    known_to_client: BTreeMap<String, bool>,
    /// By id of a `session/prompt`: what its text was.
    prompts: BTreeMap<u64, u64>,
    answered_prompts: BTreeMap<u64, bool>,
    requests: BTreeMap<(bool, String), u32>,
    pub faults: Vec<String>,
}

impl Books {
    pub fn with<T>(&self, work: impl FnOnce(&mut Known) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Returns the text of a prompt: its number and the seed of the agent's actions.
pub fn plan(number: u64, seed: u64) -> String {
    format!("{number} {seed}")
}

fn numbers(text: &str) -> Option<(u64, u64)> {
    let (first, second) = text.split_once(' ')?;
    Some((first.parse().ok()?, second.parse().ok()?))
}

/// The number of the turn an update belongs to, and its own.
pub fn update_numbers(update: &Value) -> Option<(u64, u64)> {
    numbers(update["content"]["text"].as_str()?)
}

pub struct Scripted {
    pub books: Arc<Books>,
    pub seed: Mutex<Rng>,
    /// A method whose requests are all answered with an error.
    pub refused: Option<&'static str>,
}

impl Scripted {
    fn refuses<R: duologue_schema::Request>(&self) -> Result<()> {
        if self.refused == Some(R::METHOD) { Err(Error::other("refused")) } else { Ok(()) }
    }

    fn rng(&self) -> Rng {
        self.seed.lock().unwrap_or_else(PoisonError::into_inner).fork()
    }
}

impl Agent for Scripted {
    fn capabilities(&self) -> AgentCapabilities {
        let sessions = SessionCapabilities::new().close(SessionCloseCapabilities::default());
        AgentCapabilities::default().load_session(true).session_capabilities(sessions)
    }

    async fn new_session(&self, _: &Context, session: &Session) -> Result<SessionSetup> {
        self.refuses::<NewSessionRequest>()?;
        let mut rng = self.rng();
        // Early ones, which the client must not see before it knows the session.
        for _ in 0..rng.u8(0..4) {
            session.update(SessionUpdate::agent_message("early")).await?;
            random_delays(rng.fork(), 2).await;
        }
        match rng.u8(0..8) {
            0 => Err(Error::other("no session today")),
            1 => std::panic::resume_unwind(Box::new("a handler")),
            _ => Ok(SessionSetup::new()),
        }
    }

    async fn prompt(&self, turn: &Turn, prompt: Prompt) -> Result<StopReason> {
        self.refuses::<PromptRequest>()?;
        let Some((number, seed)) = numbers(&prompt.text()) else { return Err(Error::other("no plan")) };
        let mut rng = Rng::with_seed(seed);
        let mut said = 0;
        for _ in 0..rng.u8(0..8) {
            match rng.u8(0..10) {
                0..=4 => {
                    for _ in 0..rng.u8(1..5) {
                        turn.message().push(format!("{number} {said}")).await?;
                        said += 1;
                        self.books.with(|known| known.sent.insert(number, said));
                    }
                }
                5 => random_delays(rng.fork(), 5).await,
                6 => {
                    let no = PermissionOption::new("no", "No", PermissionOptionKind::RejectOnce);
                    let call = ToolCallUpdate::new("call");
                    let outcome = turn.request_permission(call, vec![no]).await?;
                    let cancelled = outcome == RequestPermissionOutcome::Cancelled;
                    self.books.with(|known| {
                        known.permissions += 1;
                        known.cancelled_permissions += u64::from(cancelled);
                    });
                }
                7 => {
                    turn.read_text_file("/a").await?;
                    self.books.with(|known| known.reads += 1);
                }
                8 => {
                    // Somebody who goes on talking: what comes behind the answer must not leave.
                    let (turn, rng) = (turn.clone(), rng.fork());
                    tokio::spawn(async move {
                        for _ in 0..5 {
                            random_delays(rng.clone(), 5).await;
                            if turn.message().push(format!("{number} {}", u64::MAX)).await.is_err() {
                                return;
                            }
                        }
                    });
                }
                _ => match rng.u8(0..6) {
                    0 => std::panic::resume_unwind(Box::new("a handler")),
                    1 => return Err(Error::other("enough")),
                    // Looks at no cancellation.
                    2 => std::future::pending().await,
                    3 => turn.cancelled().await,
                    _ => {}
                },
            }
        }
        Ok(StopReason::EndTurn)
    }

    async fn load_session(&self, _: &Context, session: &Session) -> Result<SessionSetup> {
        self.refuses::<LoadSessionRequest>()?;
        let mut rng = self.rng();
        for number in 0..rng.u64(0..5) {
            session.update(SessionUpdate::agent_message(format!("0 {number}"))).await?;
            random_delays(rng.fork(), 2).await;
        }
        Ok(SessionSetup::new())
    }

    async fn close_session(&self, _: &Context, _: &Session) -> Result<()> {
        self.refuses::<CloseSessionRequest>()?;
        random_delays(self.rng(), 3).await;
        Ok(())
    }

    async fn set_mode(&self, _: &Context, _: &Session, _: SetSessionModeRequest) -> Result<()> {
        random_delays(self.rng(), 3).await;
        Ok(())
    }
}

pub struct User(pub Mutex<Rng>);

impl Host for User {
    fn capabilities(&self) -> ClientCapabilities {
        ClientCapabilities::default().fs(FileSystemCapabilities::default().read_text_file(true))
    }

    async fn request_permission(
        &self,
        _: &HostContext,
        _: RequestPermissionRequest,
    ) -> HostResult<RequestPermissionResponse> {
        let mut rng = self.0.lock().unwrap_or_else(PoisonError::into_inner).fork();
        random_delays(rng.fork(), 6).await;
        match rng.u8(0..6) {
            // The user has gone for a coffee and never comes back.
            0 => std::future::pending().await,
            1 => std::panic::resume_unwind(Box::new("a handler")),
            _ => Ok(RequestPermissionOutcome::selected("no").into()),
        }
    }

    async fn read_text_file(
        &self,
        _: &HostContext,
        _: ReadTextFileRequest,
    ) -> HostResult<ReadTextFileResponse> {
        let rng = self.0.lock().unwrap_or_else(PoisonError::into_inner).fork();
        random_delays(rng, 4).await;
        Ok(ReadTextFileResponse::new("text"))
    }
}

/// Sees every line between the two, on the agent's side: what leaves it and what it reads.
pub struct Witness(pub Arc<Books>);

impl Tap for Witness {
    fn frame(&self, frame: TappedFrame<'_>) {
        let line: Value = serde_json::from_slice(frame.bytes).unwrap_or_default();
        let agents = frame.direction == Direction::Outgoing;
        self.0.with(|known| known.see(&line, agents));
    }
}

impl Known {
    fn see(&mut self, line: &Value, agents: bool) {
        let (id, method) = (&line["id"], line["method"].as_str());
        match method {
            Some(method) => {
                if !id.is_null() {
                    self.requests.insert((agents, id.to_string()), 0);
                }
                if method == "session/prompt"
                    && let (Some(id), Some(text)) =
                        (id.as_u64(), line["params"]["prompt"][0]["text"].as_str())
                {
                    self.prompts.insert(id, numbers(text).map_or(0, |(number, _)| number));
                }
                if method == "session/load" {
                    self.known_to_client.insert(line["params"]["sessionId"].to_string(), true);
                }
                if method == "session/update" {
                    self.see_update(&line["params"]);
                }
            }
            None => {
                // A request of the other side.
                match self.requests.get_mut(&(!agents, id.to_string())) {
                    Some(answers) if *answers == 0 => *answers = 1,
                    Some(_) => self.faults.push(format!("a second answer: {line}")),
                    None => self.faults.push(format!("an answer to nothing: {line}")),
                }
                if !agents {
                    return;
                }
                if line["result"]["sessionId"].is_string() {
                    self.known_to_client.insert(line["result"]["sessionId"].to_string(), true);
                }
                if let Some(prompt) = id.as_u64().and_then(|id| self.prompts.get(&id)) {
                    self.answered_prompts.insert(*prompt, true);
                }
            }
        }
    }

    fn see_update(&mut self, params: &Value) {
        if !self.known_to_client.contains_key(&params["sessionId"].to_string()) {
            self.faults.push(format!("an update before the answer that names its session: {params}"));
        }
        if let Some((turn, _)) = update_numbers(&params["update"])
            && self.answered_prompts.contains_key(&turn)
        {
            self.faults.push(format!("an update of turn {turn} behind its answer"));
        }
    }

    /// Requests that one side made and that were not answered.
    pub fn unanswered(&self) -> usize {
        self.requests.values().filter(|answers| **answers == 0).count()
    }
}
