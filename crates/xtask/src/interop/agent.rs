//! Our agent of the interop matrix, written as a user of duologue-agent would write it: the agent's half of
//! `interop/surface.json`, by hand.

use super::extension::{AskRequest, AskResponse, Echo, NoteNotification, TellNotification};
use super::surface::Surface;
use duologue_agent::http::ServerOptions;
use duologue_agent::schema::*;
use duologue_agent::{
    Agent, Context, Error, Extensions, Prompt, Result, Server, Session, SessionSetup, Turn, serve_http,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;

#[derive(Clone)]
struct Interop {
    surface: Arc<Surface>,
}

#[tokio::main]
pub(crate) async fn main() -> Result<()> {
    server().serve_stdio().await
}

/// Serves over HTTP and WebSocket, at an address that it prints.
#[tokio::main]
#[expect(clippy::print_stdout, reason = "this is the program's output")]
pub(crate) async fn serve() -> super::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?);
    Ok(serve_http(listener, ServerOptions::default(), server).await?)
}

fn server() -> Server<Interop> {
    let agent = Interop { surface: Arc::new(Surface::load("INTEROP_AGENT_REPORT")) };
    let (asked, noted) = (agent.clone(), agent.clone());
    let extensions = Extensions::new()
        .on_request(move |_, echo: Echo| {
            asked.came("_interop/echo", json!(echo));
            async move { Ok(echo) }
        })
        .on_notification(move |_, note: NoteNotification| noted.came("_interop/note", json!(note)));
    let mut server = Server::new(agent).extensions(extensions);
    if let Some(tap) = super::wire::tap("agent") {
        server = server.tap(tap);
    }
    server
}

impl Interop {
    /// Reports what came for `method`, compared with the surface.
    fn came(&self, method: &str, params: Value) {
        let of_method = |entry: &&Value| entry["method"] == method || entry["notify"] == method;
        let candidates: Vec<_> = self.surface.entries().into_iter().filter(of_method).collect();
        let outcome = if candidates.is_empty() {
            Err("the other SDK lacks it, and sent it".to_owned())
        } else {
            self.surface.pick(candidates, &params).1
        };
        self.surface.report(method, outcome, "");
    }

    fn knows(&self, row: &str) -> bool {
        self.surface.knows(row)
    }
}

impl Agent for Interop {
    fn capabilities(&self) -> AgentCapabilities {
        AgentCapabilities::new()
            .load_session(true)
            .prompt_capabilities(PromptCapabilities::new().image(true).audio(true).embedded_context(true))
            .mcp_capabilities(McpCapabilities::new().http(true).sse(true))
            .session_capabilities(
                SessionCapabilities::new()
                    .list(SessionListCapabilities::new())
                    .delete(SessionDeleteCapabilities::new())
                    .additional_directories(SessionAdditionalDirectoriesCapabilities::new())
                    .resume(SessionResumeCapabilities::new())
                    .close(SessionCloseCapabilities::new()),
            )
            .auth(AgentAuthCapabilities::new().logout(LogoutCapabilities::new()))
    }

    fn info(&self) -> Option<Implementation> {
        Some(Implementation::new("interop-agent", "1.0.0").title("Interop agent"))
    }

    fn auth_methods(&self, client: &InitializeRequest) -> Vec<AuthMethod> {
        self.came("initialize", json!(client));
        let tty = AuthMethodTerminal::new("tty", "In a terminal");
        vec![
            AuthMethodAgent::new("token", "Token").description("Paste a token").into(),
            tty.args(vec!["--login".to_owned()])
                .env(BTreeMap::from([("A".to_owned(), "b".to_owned())]))
                .into(),
        ]
    }

    async fn authenticate(&self, _: &Context, request: AuthenticateRequest) -> Result<()> {
        self.came("authenticate", json!({"methodId": request.method_id}));
        Ok(())
    }

    async fn logout(&self, _: &Context) -> Result<()> {
        self.came("logout", json!({}));
        Ok(())
    }

    async fn new_session(&self, _: &Context, session: &Session) -> Result<SessionSetup> {
        self.surface.set("$SESSION", session.id().as_str());
        self.came("session/new", facts(session));
        Ok(setup("small", false))
    }

    async fn load_session(&self, _: &Context, session: &Session) -> Result<SessionSetup> {
        self.came("session/load", facts(session));
        if session.id().as_str() == "missing" {
            return Err(schema_error(session));
        }
        session.update(SessionUpdate::user_message("updates").with_message_id("m-8")).await?;
        session.update(SessionUpdate::agent_message("Hello").with_message_id("m-9")).await?;
        Ok(setup("large", true))
    }

    async fn resume_session(&self, _: &Context, session: &Session) -> Result<SessionSetup> {
        self.came("session/resume", facts(session));
        Ok(setup("large", true))
    }

    async fn list_sessions(&self, _: &Context, request: ListSessionsRequest) -> Result<ListSessionsResponse> {
        self.came("session/list", json!(request));
        let (Some(cwd), None) = (request.cwd, request.cursor) else {
            return Ok(ListSessionsResponse::new(vec![]));
        };
        let id = self.surface.fill(&json!("$SESSION")).as_str().unwrap_or_default().to_owned();
        let more = cwd.join("more");
        let session = SessionInfo::new(id, cwd)
            .title("A talk")
            .updated_at("2026-01-02T03:04:05Z")
            .additional_directories(vec![more]);
        Ok(ListSessionsResponse::new(vec![session]).next_cursor("page-2"))
    }

    async fn close_session(&self, _: &Context, session: &Session) -> Result<()> {
        self.came("session/close", json!({"sessionId": session.id()}));
        Ok(())
    }

    async fn delete_session(&self, _: &Context, request: DeleteSessionRequest) -> Result<()> {
        self.came("session/delete", json!({"sessionId": request.session_id}));
        Ok(())
    }

    async fn set_mode(&self, _: &Context, session: &Session, request: SetSessionModeRequest) -> Result<()> {
        self.came("session/set_mode", json!({"sessionId": session.id(), "modeId": request.mode_id}));
        Ok(())
    }

    async fn set_config_option(
        &self,
        _: &Context,
        _session: &Session,
        request: SetSessionConfigOptionRequest,
    ) -> Result<Vec<SessionConfigOption>> {
        self.came("session/set_config_option", json!(request));
        Ok(options("large", request.value == SessionConfigOptionValue::Boolean(true)))
    }

    async fn prompt(&self, turn: &Turn, prompt: Prompt) -> Result<StopReason> {
        self.came("session/prompt", json!({"sessionId": turn.id(), "prompt": prompt.blocks()}));
        match prompt.text().as_str() {
            "updates" => self.updates(turn).await?,
            "permission" => self.permission(turn).await?,
            "files" => self.files(turn).await?,
            "terminal" => self.terminal(turn).await?,
            "elicitation" => self.elicitation(turn).await?,
            "extensions" => self.extensions(turn).await?,
            "clear" | "clear anyway" => self.clear(turn, prompt.text() == "clear anyway").await?,
            "cancel" => self.wait(turn, "session/cancel").await?,
            "cancel request" => self.wait(turn, "$/cancel_request").await?,
            "refuse" => return Ok(StopReason::Refusal),
            other => turn.message().push(other).await?,
        }
        Ok(StopReason::EndTurn)
    }
}

impl Interop {
    async fn updates(&self, turn: &Turn) -> Result<()> {
        turn.update(SessionUpdate::user_message("you said é世界 😀").with_message_id("m-1")).await?;
        self.surface.did("user_message_chunk");
        turn.thought().push("thinking \"quoted\" \\ back\nline").await?;
        self.surface.did("agent_thought_chunk");

        let mut message = turn.message();
        let notes = Annotations::new()
            .audience(vec![Role::User, Role::Assistant])
            .last_modified("2026-01-02T03:04:05Z")
            .priority(0.5);
        message.push(TextContent::new("Hello").annotations(notes)).await?;
        message.push(ImageContent::new("aGk=", "image/png").uri("file:///x.png")).await?;
        message.push(AudioContent::new("aGk=", "audio/wav")).await?;
        let link = ResourceLink::new("x.txt", "file:///x.txt");
        message.push(link.title("X").description("An x").mime_type("text/plain").size(12)).await?;
        let text = TextResourceContents::new("x", "file:///x.txt").mime_type("text/plain");
        message.push(EmbeddedResource::new(text)).await?;
        let blob = BlobResourceContents::new("aGk=", "file:///x.bin").mime_type("application/octet-stream");
        message.push(EmbeddedResource::new(blob)).await?;
        self.surface.did("agent_message_chunk");

        let notes = turn.cwd().join("notes.txt");
        let call = turn
            .tool_call("Edit notes")
            .id("call-1")
            .kind(ToolKind::Edit)
            .raw_input(json!({"deep": [1, 2.5, "x", true, {"k": "v"}]}))
            .with(|call| {
                call.name("edit_file")
                    .content(vec![
                        ContentBlock::from("before").into(),
                        ToolCallContent::diff(&notes, Some("a".to_owned()), "b"),
                        ToolCallContent::diff(turn.cwd().join("new.txt"), None, "fresh"),
                        ToolCallContent::terminal("term-shown"),
                    ])
                    .locations(vec![
                        ToolCallLocation::new(notes.clone()).line(3),
                        ToolCallLocation::new(turn.cwd().join("new.txt")),
                    ])
                    .raw_output(json!(["out"]))
            })
            .start()
            .await?;
        self.surface.did("tool_call");
        call.update(|call| {
            call.status(ToolCallStatus::Completed)
                .title("Edited notes")
                .kind(ToolKind::Execute)
                .content(vec![ContentBlock::image("aGk=", "image/png").into()])
                .locations(vec![ToolCallLocation::new(notes.clone()).line(4)])
                .raw_output(json!({"ok": true}))
        })
        .await?;
        self.surface.did("tool_call_update");

        turn.set_plan(vec![
            PlanEntry::new("Look", PlanEntryPriority::High, PlanEntryStatus::Completed),
            PlanEntry::new("Leap", PlanEntryPriority::Low, PlanEntryStatus::InProgress),
            PlanEntry::new("Land", PlanEntryPriority::Medium, PlanEntryStatus::Pending),
        ])
        .await?;
        self.surface.did("plan");
        turn.set_commands(vec![
            AvailableCommand::new("plan", "Makes a plan")
                .input(UnstructuredCommandInput::new("what to plan")),
            AvailableCommand::new("undo", "Takes it back"),
        ])
        .await?;
        self.surface.did("available_commands_update");
        turn.mode_changed("code").await?;
        self.surface.did("current_mode_update");
        turn.config_changed(options("small", false)).await?;
        self.surface.did("config_option_update");
        turn.set_info(SessionInfoUpdate::new().title("A talk").updated_at("2026-01-02T03:04:05Z")).await?;
        self.surface.did("session_info_update");
        turn.set_usage(UsageUpdate::new(1234, 200_000).cost(Cost::new(0.25, "EUR"))).await?;
        self.surface.did("usage_update");

        turn.notice(Notice::new(NoticeSeverity::Warning, "Rate limited").description("Slowing down")).await?;
        self.surface.did("notice");
        turn.update(CompactionUpdate::new("c-1", CompactionStatus::InProgress)).await?;
        turn.update(CompactionSummaryChunk::new("c-1", "So far: hello")).await?;
        self.surface.did("compaction_summary_chunk");
        let done = CompactionUpdate::new("c-1", CompactionStatus::Completed);
        turn.update(done.summary(vec!["So far: hello".into()])).await?;
        self.surface.did("compaction_update");
        Ok(())
    }

    async fn permission(&self, turn: &Turn) -> Result<()> {
        let ask = |id: &str, title: &str| {
            let call = ToolCallUpdate::new(id)
                .title(title)
                .kind(ToolKind::Execute)
                .status(ToolCallStatus::Pending)
                .raw_input(json!({"command": "rm"}));
            let options = vec![
                PermissionOption::new("yes", "Yes", PermissionOptionKind::AllowOnce),
                PermissionOption::new("always", "Always", PermissionOptionKind::AllowAlways),
                PermissionOption::new("no", "No", PermissionOptionKind::RejectOnce),
                PermissionOption::new("never", "Never", PermissionOptionKind::RejectAlways),
            ];
            turn.request_permission(call, options)
        };
        let outcome = ask("call-2", "Delete all").await?;
        self.surface.expect("session/request_permission", outcome, RequestPermissionOutcome::selected("yes"));
        // Not waiting any longer is how a request is taken back.
        if self.knows("$/cancel_request") {
            let taken_back =
                tokio::time::timeout(Duration::from_millis(200), ask("call-4", "Taken back")).await;
            self.surface.expect("$/cancel_request", taken_back.is_err(), true);
        }
        Ok(())
    }

    async fn files(&self, turn: &Turn) -> Result<()> {
        let notes = turn.cwd().join("notes.txt");
        turn.write_text_file(&notes, "one\ntwo é世界\nthree\n").await?;
        self.surface.did("fs/write_text_file");
        let whole = turn.read_text_file(&notes).await?;
        self.surface.expect("fs/read_text_file", whole.as_str(), "one\ntwo é世界\nthree\n");
        let line = turn.read_lines(&notes, 2, 1).await?;
        self.surface.expect("fs/read_text_file", line.as_str(), "two é世界\n");
        Ok(())
    }

    async fn terminal(&self, turn: &Turn) -> Result<()> {
        let request = CreateTerminalRequest::new(turn.id().clone(), "sh")
            .args(vec!["-c".to_owned(), "printf \"$GREETING\"".to_owned()])
            .env(vec![EnvVariable::new("GREETING", "hello")])
            .cwd(turn.cwd())
            .output_byte_limit(1000);
        let terminal = turn.create_terminal_with(request).await?;
        self.surface.did("terminal/create");
        self.surface.expect("terminal/wait_for_exit", terminal.wait_for_exit().await?.exit_code, Some(0));
        let output = terminal.output().await?;
        self.surface.expect("terminal/output", (output.output.as_str(), output.truncated), ("hello", false));
        terminal.kill().await?;
        self.surface.did("terminal/kill");
        terminal.release().await?;
        self.surface.did("terminal/release");
        Ok(())
    }

    async fn elicitation(&self, turn: &Turn) -> Result<()> {
        let one_of = vec![EnumOption::new("r", "Red"), EnumOption::new("b", "Blue")];
        let tags = StringMultiSelectItems::new(vec!["x".to_owned(), "y".to_owned()]);
        let fields: [(&str, ElicitationPropertySchema); 7] = [
            ("name", StringPropertySchema::new().title("Name").min_length(1).max_length(40).into()),
            ("mail", StringPropertySchema::new().format(StringFormat::Email).into()),
            ("colour", StringPropertySchema::new().one_of(one_of).into()),
            ("age", IntegerPropertySchema::new().minimum(0).maximum(150).default(30).into()),
            ("score", NumberPropertySchema::new().minimum(0.5).into()),
            ("keen", BooleanPropertySchema::new().default(true).into()),
            ("tags", MultiSelectPropertySchema::new(tags).min_items(1).into()),
        ];
        let form =
            ElicitationSchema::new().title("About you").properties(fields).required(vec!["name".to_owned()]);
        let scope = ElicitationSessionScope::new(turn.id().clone()).tool_call_id("call-3");
        let request = CreateElicitationRequest::new("Who are you?", ElicitationFormMode::new(scope, form));
        let answers: [(&str, ElicitationContentValue); 5] = [
            ("name", "Ada".into()),
            ("age", 36.into()),
            ("score", 1.5.into()),
            ("keen", true.into()),
            ("tags", vec!["x".to_owned(), "y".to_owned()].into()),
        ];
        let answers = answers.map(|(name, value)| (name.to_owned(), value));
        self.surface.expect(
            "elicitation/create",
            turn.elicit(request).await?,
            CreateElicitationResponse::accept(answers),
        );

        let url = ElicitationUrlMode::new(turn.id().clone(), "e-1", "https://example.com/login");
        let response = turn.elicit(CreateElicitationRequest::new("Log in there", url)).await?;
        let accepted = matches!(response.action, ElicitationAction::Accept(_));
        self.surface.expect("elicitation/create", accepted, true);
        turn.elicitation_complete("e-1").await?;
        self.surface.did("elicitation/complete");

        let empty = ElicitationFormMode::new(turn.id().clone(), ElicitationSchema::new());
        let response = turn.elicit(CreateElicitationRequest::new("Again?", empty)).await?;
        self.surface.expect("elicitation/create", response, CreateElicitationResponse::decline());
        Ok(())
    }

    async fn extensions(&self, turn: &Turn) -> Result<()> {
        let client = turn.client().peer();
        let ask = AskRequest { question: "é?".to_owned(), list: json!([1, null, {"deep": true}]) };
        self.surface.expect(
            "_interop/ask",
            client.request(&ask).await?,
            AskResponse { answer: "yes".to_owned() },
        );
        client.notify(&TellNotification { word: "tock".to_owned() }).await?;
        self.surface.did("_interop/tell");
        Ok(())
    }

    async fn wait(&self, turn: &Turn, row: &str) -> Result<()> {
        turn.message().push("waiting").await?;
        turn.cancelled().await;
        self.surface.did(row);
        Ok(())
    }

    /// Drafts, clears, writes anew: as the client's capabilities allow, or `anyway`.
    async fn clear(&self, turn: &Turn, anyway: bool) -> Result<()> {
        let mut thought = turn.thought();
        thought.push("Hmm… ").await?;
        let mut message = turn.message();
        message.push("Drafting… ").await?;
        if anyway {
            turn.update(SessionUpdate::AgentThoughtClear(
                MessageClear::new().message_id(thought.id().clone()),
            ))
            .await?;
            turn.update(SessionUpdate::agent_message_clear(message.id().clone())).await?;
        } else {
            thought.clear().await?;
            message.clear().await?;
        }
        thought.push("Sure.").await?;
        self.surface.did("agent_thought_clear");
        message.push("Done.").await?;
        self.surface.did("agent_message_clear");
        Ok(())
    }
}

fn facts(session: &Session) -> Value {
    json!({
        "sessionId": session.id(),
        "cwd": session.cwd(),
        "mcpServers": session.mcp_servers(),
        "additionalDirectories": session.additional_directories(),
    })
}

fn schema_error(session: &Session) -> Error {
    let error = duologue_agent::schema::Error::resource_not_found("No such session");
    Error::Response(error.data(json!({"sessionId": session.id()})))
}

fn setup(model: &str, brave: bool) -> SessionSetup {
    let ask = SessionMode::new("ask", "Ask").description("Asks before it acts");
    let modes = SessionModeState::new("ask", vec![ask, SessionMode::new("code", "Code")]);
    SessionSetup::new().modes(modes).config_options(options(model, brave))
}

fn options(model: &str, brave: bool) -> Vec<SessionConfigOption> {
    let large = SessionConfigSelectOption::new("large", "Large").description("Slow");
    let models = vec![SessionConfigSelectOption::new("small", "Small"), large];
    let group =
        SessionConfigSelectGroup::new("g", "Group", vec![SessionConfigSelectOption::new("one", "One")]);
    vec![
        SessionConfigOption::select("model", "Model", model, models)
            .description("Which model answers")
            .category(SessionConfigOptionCategory::Model),
        SessionConfigOption::select("depth", "Depth", "one", vec![group])
            .category(SessionConfigOptionCategory::Unknown("_private".into())),
        SessionConfigOption::boolean("brave", "Brave", brave),
    ]
}
