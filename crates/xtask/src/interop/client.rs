//! Our client of the interop matrix, written as a user of duologue-client would write it: the client's half of
//! `interop/surface.json`, by hand.

use super::extension::{AskRequest, AskResponse, Echo, NoteNotification, TellNotification};
use super::surface::{Surface, row_of};
use duologue_client::http::{ConnectOptions, RemoteTransport};
use duologue_client::schema::{self, *};
use duologue_client::{
    Client, Command, Connection, Error, Extensions, Host, HostContext, HostResult, PromptBuilder, Result,
    Session, SessionBuilder,
};
use futures::TryStreamExt as _;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// The time in which the updates of a replay arrive behind its response.
const LATE_UPDATE: Duration = Duration::from_secs(10);

/// A host that reports every call of the agent, and responds as the surface demands.
#[derive(Clone)]
struct Played {
    surface: Arc<Surface>,
}

impl Played {
    /// Reports what came for `method`, compared with the surface.
    fn came(&self, method: &str, params: &Value) -> &Value {
        let of_method = |call: &&Value| call["method"] == method || call["notify"] == method;
        let candidates = self.surface.calls().into_iter().filter(of_method).collect();
        let (call, outcome) = self.surface.pick(candidates, params);
        if call["cancel"].is_null() || outcome.is_err() {
            self.surface.report(method, outcome, "");
        }
        call
    }

    fn answer<R: Request>(&self, request: &R) -> HostResult<R::Result> {
        let call = self.came(R::METHOD, &json!(request));
        self.surface.set("$TERMINAL", "term-duologue");
        serde_json::from_value(self.surface.fill(&call["result"]))
            .map_err(|e| schema::Error::internal(e.to_string()))
    }
}

impl Host for Played {
    fn capabilities(&self) -> ClientCapabilities {
        let session = ClientSessionCapabilities::new()
            .config_options(
                SessionConfigOptionsCapabilities::new().boolean(BooleanConfigOptionCapabilities::new()),
            )
            .compaction(CompactionCapabilities::new())
            .notices(NoticeCapabilities::new());
        let elicitation = ElicitationCapabilities::new()
            .form(ElicitationFormCapabilities::new())
            .url(ElicitationUrlCapabilities::new());
        ClientCapabilities::new()
            .fs(FileSystemCapabilities::new().read_text_file(true).write_text_file(true))
            .terminal(true)
            .session(session)
            .auth(AuthCapabilities::new().terminal(true))
            .elicitation(elicitation)
    }

    async fn request_permission(
        &self,
        _: &HostContext,
        request: RequestPermissionRequest,
    ) -> HostResult<RequestPermissionResponse> {
        let call = self.came("session/request_permission", &json!(request));
        if call["cancel"].is_string() {
            // The agent takes this one back, which drops this future.
            let _taken_back = ReportOnDrop(self.surface.clone());
            std::future::pending::<()>().await;
        }
        Ok(RequestPermissionOutcome::selected("yes").into())
    }

    async fn read_text_file(
        &self,
        _: &HostContext,
        request: ReadTextFileRequest,
    ) -> HostResult<ReadTextFileResponse> {
        self.answer(&request)
    }

    async fn write_text_file(
        &self,
        _: &HostContext,
        request: WriteTextFileRequest,
    ) -> HostResult<WriteTextFileResponse> {
        self.answer(&request)
    }

    async fn create_terminal(
        &self,
        _: &HostContext,
        request: CreateTerminalRequest,
    ) -> HostResult<CreateTerminalResponse> {
        self.answer(&request)
    }

    async fn terminal_output(
        &self,
        _: &HostContext,
        request: TerminalOutputRequest,
    ) -> HostResult<TerminalOutputResponse> {
        self.answer(&request)
    }

    async fn wait_for_terminal_exit(
        &self,
        _: &HostContext,
        request: WaitForTerminalExitRequest,
    ) -> HostResult<WaitForTerminalExitResponse> {
        self.answer(&request)
    }

    async fn kill_terminal(
        &self,
        _: &HostContext,
        request: KillTerminalRequest,
    ) -> HostResult<KillTerminalResponse> {
        self.answer(&request)
    }

    async fn release_terminal(
        &self,
        _: &HostContext,
        request: ReleaseTerminalRequest,
    ) -> HostResult<ReleaseTerminalResponse> {
        self.answer(&request)
    }

    async fn create_elicitation(
        &self,
        _: &HostContext,
        request: CreateElicitationRequest,
    ) -> HostResult<CreateElicitationResponse> {
        self.came("elicitation/create", &json!(request));
        Ok(match request.message.as_str() {
            "Who are you?" => {
                let answers: [(&str, ElicitationContentValue); 5] = [
                    ("name", "Ada".into()),
                    ("age", 36.into()),
                    ("score", 1.5.into()),
                    ("keen", true.into()),
                    ("tags", vec!["x".to_owned(), "y".to_owned()].into()),
                ];
                CreateElicitationResponse::accept(answers.map(|(name, value)| (name.to_owned(), value)))
            }
            "Log in there" => CreateElicitationResponse::accept([]),
            _ => CreateElicitationResponse::decline(),
        })
    }

    fn elicitation_complete(&self, _: &HostContext, notification: CompleteElicitationNotification) {
        self.came("elicitation/complete", &json!(notification));
    }
}

/// Reports that the agent took its question back.
pub(super) struct ReportOnDrop(pub(super) Arc<Surface>);

impl Drop for ReportOnDrop {
    fn drop(&mut self) {
        self.0.report("$/cancel_request", Ok(()), "");
    }
}

/// Drives the agent whose command or URL follows, through everything the surface has a client do.
#[tokio::main]
pub(crate) async fn drive(command: &[String]) -> super::Result<()> {
    let surface = Arc::new(Surface::load("INTEROP_CLIENT_REPORT"));
    let [program, args @ ..] = command else { return Ok(()) };
    let cwd = surface.fill(&json!("$CWD")).as_str().unwrap_or_default().to_owned();
    let host = Played { surface: surface.clone() };
    let (asked, told) = (host.clone(), host.clone());
    let extensions = Extensions::new()
        .on_request(move |_, ask: AskRequest| {
            asked.came("_interop/ask", &json!(ask));
            async { Ok(AskResponse { answer: "yes".to_owned() }) }
        })
        .on_notification(move |_, tell: TellNotification| {
            told.came("_interop/tell", &json!(tell));
        });
    let mut client = Client::new(host)
        .extensions(extensions)
        .info(Implementation::new("interop-client", "1.0.0"))
        .keep_conversations()
        .request_timeout(Duration::from_secs(15));
    if let Some(tap) = super::wire::tap("client") {
        client = client.tap(tap);
    }
    let agent = if program.contains("://") {
        let mut options = ConnectOptions::default();
        let is_websocket = program.starts_with("ws");
        options.transport = if is_websocket { RemoteTransport::WebSocket } else { RemoteTransport::Events };
        client.connect_url(program, options).await?
    } else {
        client.spawn(Command::new(program).args(args)).await?
    };
    let mut run = Run { entries: surface.entries().into_iter(), surface: &surface, agent: &agent, cwd };
    let session = run.begin().await?;
    run.turns(&session).await;
    run.extensions().await?;
    run.turns(&session).await;
    run.restore(session).await?;
    agent.close().await;
    Ok(())
}

struct Run<'a> {
    surface: &'a Surface,
    agent: &'a Connection,
    cwd: String,
    /// The remaining entries; the calls below follow their order.
    entries: std::vec::IntoIter<&'a Value>,
}

impl<'a> Run<'a> {
    /// The next thing to do, if the other SDK does not lack it.
    fn next(&mut self, method: &str) -> Option<&'a Value> {
        let next = self.entries.as_slice().first()?;
        if next["method"] == method { self.entries.next() } else { None }
    }

    /// Reports an answer of the agent, compared with the surface.
    fn answered(&self, entry: Option<&Value>, answer: Result<Value>) {
        let Some(entry) = entry else { return };
        let outcome = match answer {
            Ok(answer) => self.surface.difference(&entry["result"], Some(&answer), ""),
            Err(error) => Err(error.to_string()),
        };
        self.surface.report(row_of(entry), outcome, "");
    }

    fn sessions(&self) -> SessionBuilder {
        let server = McpServerStdio::new("files", "/bin/true")
            .args(vec!["--stdio".to_owned()])
            .env(vec![EnvVariable::new("K", "v")]);
        self.agent.session_in(&self.cwd).mcp_server(server)
    }

    /// With everything a session can begin with.
    fn full_sessions(&self) -> SessionBuilder {
        let header = HttpHeader::new("X-Key", "k");
        self.sessions()
            .mcp_server(McpServerHttp::new("web", "http://127.0.0.1:9/mcp", vec![header]))
            .mcp_server(McpServerSse::new("old", "http://127.0.0.1:9/sse", Vec::new()))
            .additional_directory(format!("{}/more", self.cwd))
    }

    async fn begin(&mut self) -> Result<Session> {
        let hello = json!({
            "protocolVersion": 1,
            "agentCapabilities": self.agent.capabilities(),
            "authMethods": self.agent.auth_methods(),
            "agentInfo": self.agent.info(),
        });
        let entry = self.next("initialize");
        self.answered(entry, Ok(hello));
        let entry = self.next("authenticate");
        self.answered(entry, self.agent.authenticate("token").await.map(|_| json!({})));

        let entry = self.next("session/new");
        let session = self.full_sessions().create().await?;
        self.answered(entry, Ok(state(&session)));
        let entry = self.next("session/set_mode");
        self.answered(entry, session.set_mode("code").await.map(|_| json!({})));
        let entry = self.next("session/set_config_option");
        let options = session.set_config_option("model", "large").await;
        self.answered(entry, options.map(|options| json!(options)));
        let entry = self.next("session/set_config_option");
        let options = session.set_config_option("brave", true).await;
        self.answered(entry, options.map(|options| json!(options)));
        Ok(session)
    }

    /// Whole turns: their updates, their outcome, and what the conversation holds in the end.
    async fn turns(&mut self, session: &Session) {
        while let Some(entry) = self.next("session/prompt") {
            let text = entry["params"]["prompt"][0]["text"].as_str().unwrap_or_default();
            let mut prompt = PromptBuilder::new(text);
            if text == "updates" {
                prompt = prompt
                    .link("x.txt", "file:///x.txt")
                    .image("aGk=", "image/png")
                    .audio("aGk=", "audio/wav")
                    .resource(EmbeddedResource::new(TextResourceContents::new("x", "file:///x.txt")));
            }
            let outcome = if entry["cancel"] == "$/cancel_request" {
                self.withdrawn(session, text).await
            } else {
                self.turn(session, prompt, entry).await
            };
            self.answered(Some(entry), outcome);
        }
    }

    async fn extensions(&mut self) -> Result<()> {
        let echo = Echo { text: "😀".to_owned(), n: 7 };
        let entry = self.next(Echo::METHOD);
        self.answered(
            entry,
            self.agent.peer().request(&echo).await.map(|echo| json!(echo)).map_err(Error::from),
        );
        self.entries.next();
        self.agent.peer().notify(&NoteNotification { word: "tick".to_owned() }).await?;
        self.surface.report(NoteNotification::METHOD, Ok(()), "");
        Ok(())
    }

    async fn turn(&self, session: &Session, prompt: PromptBuilder, entry: &Value) -> Result<Value> {
        let mut turn = session.prompt(prompt).await?;
        let mut seen = Vec::new();
        while let Some(update) = turn.next().await {
            seen.push(json!(update?));
            if entry["cancel"].is_string() {
                turn.cancel();
            }
        }
        let outcome = turn.outcome().await?;
        if entry["readable"].is_object() {
            self.check_clears(session, &entry["readable"]);
        } else {
            self.check_updates(entry, &seen);
        }
        Ok(json!({"stopReason": outcome.stop_reason}))
    }

    /// Cancels a prompt with `$/cancel_request`. A turn sends `session/cancel` instead, so this uses the peer.
    async fn withdrawn(&self, session: &Session, text: &str) -> Result<Value> {
        let mut updates = session.updates();
        let prompt =
            self.agent.peer().request(&PromptRequest::new(session.id().clone(), ContentBlock::text(text)));
        while !matches!(updates.next().await.transpose()?, None | Some(SessionUpdate::AgentMessageChunk(_))) {
        }
        prompt.cancel();
        match prompt.await.map_err(Error::from) {
            // An SDK may cancel the handler, which then cannot end the turn itself.
            Err(Error::Response(error)) if error.code == ErrorCode::REQUEST_CANCELLED => {
                Ok(json!({"stopReason": StopReason::Cancelled}))
            }
            answer => Ok(json!({"stopReason": answer?.stop_reason})),
        }
    }

    /// Every update of the entry must have come, in order.
    fn check_updates(&self, entry: &Value, seen: &[Value]) {
        let mut rest = seen;
        for update in self.surface.known(entry, "updates") {
            let compare = |other: &Value| self.surface.difference(update, Some(other), "");
            let row = row_of(update);
            let outcome = match rest.iter().position(|other| compare(other).is_ok()) {
                Some(at) => {
                    rest = &rest[at + 1..];
                    Ok(())
                }
                None => {
                    let rival = seen.iter().find(|other| row_of(other) == row);
                    let problem = rival.map_or_else(|| Err("did not come".to_owned()), compare);
                    problem.and(Err("out of order".to_owned()))
                }
            };
            self.surface.report(row, outcome, "");
        }
    }

    /// Checks that cleared text is gone from the conversation.
    fn check_clears(&self, session: &Session, expected: &Value) {
        let conversation = session.conversation().unwrap_or_default();
        for (row, key, text) in [
            ("agent_message_clear", "text", conversation.last_agent_message()),
            ("agent_thought_clear", "thought", conversation.last_agent_thought()),
        ] {
            let text = text.map(duologue_schema::ConversationMessage::text).unwrap_or_default();
            let outcome = if expected[key] == text { Ok(()) } else { Err(format!("the text is {text:?}")) };
            self.surface.report(row, outcome, &text);
        }
    }

    async fn restore(&mut self, session: Session) -> Result<()> {
        let id = session.id().clone();
        if let Some(entry) = self.next("session/load") {
            let outcome = match self.agent.load_session("missing", &self.cwd)?.outcome().await {
                Err(Error::Response(error)) => {
                    self.surface.difference(&entry["error"], Some(&json!(error)), "")
                }
                other => Err(format!("{other:?}")),
            };
            self.surface.report("an error", outcome, "");
        }
        if let Some(entry) = self.next("session/load") {
            let mut replay = self.full_sessions().load(id.clone())?;
            let mut seen = Vec::new();
            while let Some(update) = replay.next().await {
                seen.push(json!(update?));
            }
            let loaded = replay.outcome().await;
            if let Ok(loaded) = &loaded {
                // A server can send the response on another stream, where it overtakes updates.
                let mut late = loaded.updates();
                while seen.len() < self.surface.known(entry, "updates").len() {
                    let Ok(Some(Ok(update))) = tokio::time::timeout(LATE_UPDATE, late.next()).await else {
                        break;
                    };
                    seen.push(json!(update));
                }
            }
            self.check_updates(entry, &seen);
            self.answered(Some(entry), loaded.map(|session| state(&session)));
        }
        let entry = self.next("session/resume");
        self.answered(entry, self.sessions().resume(id.clone()).await.map(|session| state(&session)));
        if let Some(entry) = self.next("session/list") {
            // The stream asks for the second page by itself.
            let sessions: Vec<_> =
                self.agent.list_sessions(Some(self.cwd.clone().into()))?.try_collect().await?;
            let outcome = self.surface.difference(&entry["result"]["sessions"], Some(&json!(sessions)), "");
            self.surface.report(row_of(entry), outcome, "");
            self.next("session/list");
        }
        let entry = self.next("session/close");
        self.answered(entry, session.close().await.map(|_| json!({})));
        if let Some(entry) = self.next("session/delete") {
            self.answered(Some(entry), self.agent.delete_session(id).await.map(|_| json!({})));
        }
        if let Some(entry) = self.next("logout") {
            self.answered(Some(entry), self.agent.logout().await.map(|_| json!({})));
        }
        Ok(())
    }
}

/// Returns the state in the response that opened the session.
fn state(session: &Session) -> Value {
    let state = session.state();
    json!({"sessionId": session.id(), "modes": state.modes, "configOptions": state.config_options})
}
