//! An agent whose prompts say what to do, and a client that follows a plan.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use duologue_agent::schema::{
    AgentCapabilities, ListSessionsRequest, ListSessionsResponse, SessionCapabilities, SessionInfo,
    SessionListCapabilities, SessionResumeCapabilities, SessionUpdate,
};
use duologue_agent::{
    Agent, Context, PermissionOption, PermissionOptionKind, Prompt, Result, Server, Session, SessionSetup,
    StopReason, Turn,
};
use duologue_client::exchange::envelope::{
    Capabilities, DelegationOutcome, EnvelopeError, EnvelopeHandler, OutcomeStatus, Query, QueryResponse,
    Received, ReceivedTask,
};
use duologue_client::exchange::{Exchange, PeerAgent};
use duologue_client::schema::{
    ClientCapabilities, CreateTerminalRequest, CreateTerminalResponse, FileSystemCapabilities,
    ReadTextFileRequest, ReadTextFileResponse, ReleaseTerminalRequest, ReleaseTerminalResponse,
    RequestPermissionOutcome, RequestPermissionRequest, RequestPermissionResponse, TerminalExitStatus,
    TerminalOutputRequest, TerminalOutputResponse, WaitForTerminalExitRequest, WaitForTerminalExitResponse,
    WriteTextFileRequest, WriteTextFileResponse,
};
use duologue_client::{Client, Connection, Host, HostContext, HostResult};
use duologue_rpc::{Direction, Tap, TappedFrame, Transport};
use duologue_transcript::{
    Header, Record, RecordEvent, RecordedLine, Replay, ReplayReport, Side, Transcript,
};
use tokio::time::Instant;

/// The client's actions.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) sessions: Vec<PlannedSession>,
    pub(crate) at_once: bool,
    pub(crate) list: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct PlannedSession {
    pub(crate) turns: Vec<String>,
    /// Load it afterwards, or resume it.
    pub(crate) restore: Option<bool>,
}

struct Obedient;

impl Agent for Obedient {
    fn capabilities(&self) -> AgentCapabilities {
        let sessions = SessionCapabilities::new()
            .list(SessionListCapabilities::new())
            .resume(SessionResumeCapabilities::new());
        AgentCapabilities::new().load_session(true).session_capabilities(sessions)
    }

    async fn load_session(&self, _: &Context, session: &Session) -> Result<SessionSetup> {
        session.update(SessionUpdate::user_message("as before")).await?;
        session.update(SessionUpdate::agent_message("Yes.")).await?;
        Ok(SessionSetup::new())
    }

    async fn resume_session(&self, _: &Context, _: &Session) -> Result<SessionSetup> {
        Ok(SessionSetup::new())
    }

    async fn list_sessions(&self, _: &Context, _: ListSessionsRequest) -> Result<ListSessionsResponse> {
        Ok(ListSessionsResponse::new(vec![SessionInfo::new("of-old", "/work/old")]))
    }

    async fn prompt(&self, turn: &Turn, prompt: Prompt) -> Result<StopReason> {
        let file = turn.session().cwd().join("notes.txt");
        let mut message = turn.message();
        for word in prompt.text().split_whitespace() {
            match word {
                "say" => message.push("some words, ").await?,
                "clear" => message.clear().await?,
                "think" => turn.thought().push("hm").await?,
                "plan" => turn.set_plan(Vec::new()).await?,
                "tool" => {
                    let call = turn.tool_call("Look").location(&file).start().await?;
                    call.content("seen").await?;
                    call.complete().await?;
                }
                "ask" => {
                    let call = turn.tool_call("May I").announce().await?;
                    let yes = PermissionOption::new("yes", "Yes", PermissionOptionKind::AllowOnce);
                    match call.request_permission(vec![yes]).await? {
                        RequestPermissionOutcome::Selected(_) => call.complete().await?,
                        _ => call.fail("no").await?,
                    }
                }
                "read" => {
                    let text = turn.read_text_file(&file).await?;
                    message.push(text).await?;
                }
                "write" => turn.write_text_file(&file, "new").await?,
                "terminal" => {
                    let terminal = turn.create_terminal("ls", ["-l"]).await?;
                    terminal.wait_for_exit().await?;
                    let output = terminal.output().await?.output;
                    terminal.release().await?;
                    message.push(output).await?;
                }
                "query" | "delegate" | "tell" => {
                    let answer = talk(&turn.session().peer_agent(), word).await;
                    message.push(answer).await?;
                }
                "fail" => return Err(duologue_agent::Error::not_found("nothing here")),
                "wait" => {
                    message.push("waiting").await?;
                    turn.cancelled().await;
                }
                _ => {}
            }
        }
        Ok(StopReason::EndTurn)
    }
}

/// Says something to the other agent; what it answers.
async fn talk(peer: &PeerAgent, word: &str) -> String {
    let answer = match word {
        "query" => peer.query("Who is free?").domain("family").await.map(|answer| answer.summary.clone()),
        "tell" => peer.notify("work.news", serde_json::json!("rain")).await.map(|_| "told".to_owned()),
        _ => match peer.delegate("paint").await {
            Ok(task) => task.result().await.map(|result| result.outcome.clone()),
            Err(error) => Err(error),
        },
    };
    answer.unwrap_or_else(|error| error.to_string())
}

/// The envelope handler of either side. Its id is random, so it differs in every conversation.
struct Colleague;

impl EnvelopeHandler for Colleague {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new("colleague").max_concurrent_tasks(100)
    }

    async fn query(&self, query: Received<Query>) -> std::result::Result<QueryResponse, EnvelopeError> {
        Ok(QueryResponse::new(format!("you asked: {}", query.question)))
    }

    async fn delegate(&self, task: ReceivedTask) -> std::result::Result<DelegationOutcome, EnvelopeError> {
        task.progress(serde_json::json!("half of it")).await.map_err(|error| error.fault())?;
        Ok(DelegationOutcome::new(OutcomeStatus::Completed).outcome(format!("done: {}", task.task)))
    }
}

fn exchange() -> Exchange {
    Exchange::new().envelope_handler(Colleague)
}

/// Its terminals have other names in every conversation.
struct Desk;

impl Host for Desk {
    fn capabilities(&self) -> ClientCapabilities {
        let files = FileSystemCapabilities::default().read_text_file(true).write_text_file(true);
        ClientCapabilities::default().fs(files).terminal(true)
    }

    async fn request_permission(
        &self,
        _: &HostContext,
        _: RequestPermissionRequest,
    ) -> HostResult<RequestPermissionResponse> {
        Ok(RequestPermissionOutcome::selected("yes").into())
    }

    async fn read_text_file(
        &self,
        _: &HostContext,
        request: ReadTextFileRequest,
    ) -> HostResult<ReadTextFileResponse> {
        Ok(ReadTextFileResponse::new(format!("the text of {}", request.path.display())))
    }

    async fn write_text_file(
        &self,
        _: &HostContext,
        _: WriteTextFileRequest,
    ) -> HostResult<WriteTextFileResponse> {
        Ok(WriteTextFileResponse::default())
    }

    async fn create_terminal(
        &self,
        _: &HostContext,
        _: CreateTerminalRequest,
    ) -> HostResult<CreateTerminalResponse> {
        static NUMBER: AtomicU64 = AtomicU64::new(1);
        Ok(CreateTerminalResponse::new(format!("pty-{}", NUMBER.fetch_add(1, Relaxed))))
    }

    async fn terminal_output(
        &self,
        _: &HostContext,
        _: TerminalOutputRequest,
    ) -> HostResult<TerminalOutputResponse> {
        Ok(TerminalOutputResponse::new("total 0", false))
    }

    async fn wait_for_terminal_exit(
        &self,
        _: &HostContext,
        _: WaitForTerminalExitRequest,
    ) -> HostResult<WaitForTerminalExitResponse> {
        Ok(TerminalExitStatus::default().exit_code(0).into())
    }

    async fn release_terminal(
        &self,
        _: &HostContext,
        _: ReleaseTerminalRequest,
    ) -> HostResult<ReleaseTerminalResponse> {
        Ok(ReleaseTerminalResponse::default())
    }
}

/// Writes down what a client sees.
struct Ears {
    started: Instant,
    records: Mutex<Vec<Record>>,
}

impl Tap for Ears {
    fn frame(&self, frame: TappedFrame<'_>) {
        let from = if frame.direction == Direction::Outgoing { Side::Client } else { Side::Agent };
        let event = RecordEvent::Line(RecordedLine::new(from, frame.bytes));
        let record = Record::new(frame.at.duration_since(self.started), event);
        self.records.lock().expect("nobody panics").push(record);
    }
}

/// Follows the plan over a transport; returns what the client saw.
async fn follow(plan: &Plan, cwd: &Path, transport: Transport) -> Transcript {
    let ears = Arc::new(Ears { started: Instant::now(), records: Mutex::default() });
    let agent =
        Client::new(Desk).exchange(exchange()).tap(ears.clone()).connect(transport).await.expect("an agent");
    let each = plan.sessions.iter().enumerate().map(|(number, session)| {
        // Each session has a folder of its own, which identifies it.
        let cwd = cwd.join(number.to_string());
        run(agent.clone(), session.clone(), cwd)
    });
    if plan.at_once {
        futures::future::join_all(each).await;
    } else {
        for session in each {
            session.await;
        }
    }
    if plan.list {
        agent.list_sessions(None).expect("it lists").all().await.expect("a list");
    }
    agent.close().await;
    let records = std::mem::take(&mut *ears.records.lock().expect("nobody panics"));
    Transcript::new(Header::new("test"), records)
}

async fn run(agent: Connection, plan: PlannedSession, cwd: PathBuf) {
    let session = agent.new_session(&cwd).await.expect("a session");
    for prompt in plan.turns {
        // To the agent as an agent, not in a turn.
        if let Some(word) = prompt.strip_prefix("colleague ") {
            talk(&session.peer_agent(), word).await;
            continue;
        }
        let mut turn = session.prompt(prompt.as_str()).await.expect("a turn");
        while let Some(update) = turn.next().await {
            if update.expect("an update").to_string() == "waiting" {
                turn.cancel();
            }
        }
        // A failure is what some are meant to bring.
        let _ = turn.outcome().await;
    }
    match plan.restore {
        Some(true) => {
            let replay = agent.load_session(session.id(), &cwd).expect("it loads");
            replay.outcome().await.expect("a session");
        }
        Some(false) => drop(agent.resume_session(session.id(), &cwd).await.expect("a session")),
        None => {}
    }
}

pub(crate) async fn record(plan: &Plan, cwd: &Path) -> Transcript {
    let (ours, theirs) = Transport::memory();
    let agent = tokio::spawn(Server::new(Obedient).exchange(exchange()).serve(theirs));
    let recording = follow(plan, cwd, ours).await;
    agent.await.expect("no panic").expect("a good end");
    recording
}

/// The same client with the recording for its agent.
pub(crate) async fn replay_to_client(
    recording: &Transcript,
    plan: &Plan,
    cwd: &Path,
) -> (Transcript, ReplayReport) {
    let (ours, theirs) = Transport::memory();
    let replay = tokio::spawn(Replay::new(recording.clone()).serve(theirs));
    let live = follow(plan, cwd, ours).await;
    (live, replay.await.expect("no panic").expect("a report"))
}

/// The same agent with the recording for its client.
pub(crate) async fn replay_to_agent(recording: &Transcript, cwd: &str) -> ReplayReport {
    let (ours, theirs) = Transport::memory();
    let agent = tokio::spawn(Server::new(Obedient).exchange(exchange()).serve(theirs));
    let mut replay = Replay::new(recording.clone());
    if cwd != "/work/recorded" {
        replay = replay.cwd(cwd);
    }
    let report = replay.drive(ours).await.expect("a report");
    agent.await.expect("no panic").expect("a good end");
    report
}
