//! Our client of the dialogue of version 2: a program of version 1 with `Client::protocol_v2`.

use duologue_client::schema::*;
use duologue_client::{Client, Command, Connection, Host, HostContext, HostResult, Result, Session};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

use crate::interop::client::ReportOnDrop;
use crate::interop::surface::Surface;
use crate::interop::wire;

#[derive(Clone)]
struct Answering {
    surface: Arc<Surface>,
}

impl Host for Answering {
    fn capabilities(&self) -> ClientCapabilities {
        let elicitation = ElicitationCapabilities::new()
            .form(ElicitationFormCapabilities::new())
            .url(ElicitationUrlCapabilities::new());
        ClientCapabilities::new().elicitation(elicitation)
    }

    async fn request_permission(
        &self,
        _: &HostContext,
        request: RequestPermissionRequest,
    ) -> HostResult<RequestPermissionResponse> {
        let call = &request.tool_call.tool_call_id;
        if call.as_str() == "call-5" {
            // The agent takes this one back, which drops this future.
            let _taken_back = ReportOnDrop(self.surface.clone());
            std::future::pending::<()>().await;
        }
        self.surface.expect("session/request_permission", call, &"call-2".into());
        Ok(RequestPermissionOutcome::selected("yes").into())
    }

    async fn create_elicitation(
        &self,
        _: &HostContext,
        request: CreateElicitationRequest,
    ) -> HostResult<CreateElicitationResponse> {
        let message = request.message.as_str();
        if message == "Log in there" {
            return Ok(CreateElicitationResponse::accept([]));
        }
        self.surface.expect("elicitation/create", message, "Who are you?");
        Ok(CreateElicitationResponse::accept([("name".to_owned(), "Ada".into())]))
    }

    fn elicitation_complete(&self, _: &HostContext, complete: CompleteElicitationNotification) {
        self.surface.expect("elicitation/complete", complete.elicitation_id.as_str(), "e-1");
    }
}

/// Drives the agent whose command follows.
#[tokio::main]
pub(crate) async fn drive(command: &[String]) -> crate::interop::Result<()> {
    let [program, args @ ..] = command else { return Ok(()) };
    let surface = Arc::new(Surface::load("INTEROP_CLIENT_REPORT"));
    let cwd = surface.fill(&json!("$CWD")).as_str().unwrap_or_default().to_owned();
    let mut client = Client::new(Answering { surface: surface.clone() })
        .protocol_v2()
        .info(Implementation::new("interop-client", "1.0.0"))
        .keep_conversations()
        .request_timeout(Duration::from_secs(15));
    if let Some(tap) = wire::tap("client") {
        client = client.tap(tap);
    }
    let agent = client.spawn(Command::new(program).args(args)).await?;
    let run = Run { surface: &surface, agent: &agent, cwd };
    let session = run.begin().await?;
    run.turns(&session).await?;
    run.end(session).await?;
    agent.close().await;
    Ok(())
}

struct Run<'a> {
    surface: &'a Surface,
    agent: &'a Connection,
    cwd: String,
}

impl Run<'_> {
    async fn begin(&self) -> Result<Session> {
        self.surface.expect("initialize", &self.agent.protocol_version(), &ProtocolVersion::V2);
        let capabilities = self.agent.capabilities();
        let known = capabilities.session_capabilities.delete.is_some() && capabilities.auth.logout.is_some();
        self.surface.expect("initialize", &known, &true);
        self.agent.authenticate("token").await?;
        self.surface.did("auth/login");
        let session = self.agent.new_session(&self.cwd).await?;
        self.surface.expect("session/new", &model(&session.state().config_options), &Some("small".into()));
        let options = session.set_config_option("model", "large").await?;
        self.surface.expect(
            "session/set_config_option",
            &model(&options.config_options),
            &Some("large".into()),
        );
        Ok(session)
    }

    /// Prompts, and returns the names of the updates with the end of the turn.
    async fn turn(&self, session: &Session, prompt: &str) -> Result<(Vec<String>, Result<StopReason>)> {
        let mut turn = session.prompt(prompt).await?;
        self.surface.did("session/prompt");
        let mut seen = Vec::new();
        while let Some(update) = turn.next().await {
            match update {
                Ok(SessionUpdate::StateUpdate(state)) => {
                    let work = state.background().map(|work| json!(work).to_string());
                    seen.extend(work.map(|work| format!("background {work}")));
                    seen.push(state.tag().to_owned());
                }
                Ok(SessionUpdate::TerminalOutputChunk(chunk)) => {
                    session.cancel_terminal(chunk.terminal_id).await?;
                    self.surface.did("terminal/cancel");
                }
                Ok(SessionUpdate::ToolCallUpdate(call))
                    if call.status == Some(ToolCallStatus::InProgress)
                        && call.tool_call_id.as_str() == "call-3" =>
                {
                    session.cancel_tool_call(call.tool_call_id).await?;
                    self.surface.did("tool_call/cancel");
                }
                Ok(update) => {
                    if update.to_string() == "waiting" {
                        turn.cancel();
                    }
                    seen.push(update.tag().to_owned());
                }
                Err(_) => break,
            }
        }
        Ok((seen, turn.outcome().await.map(|response| response.stop_reason)))
    }

    async fn turns(&self, session: &Session) -> Result<()> {
        let (seen, end) = self.turn(session, "updates").await?;
        self.surface.expect("idle", &end?, &StopReason::EndTurn);
        self.conversation(session, &seen);
        let (seen, end) = self.turn(session, "permission").await?;
        self.surface.expect("idle", &end?, &StopReason::EndTurn);
        self.surface.expect("requires_action", &seen.iter().any(|kind| kind == "requires_action"), &true);
        let (_, end) = self.turn(session, "terminal").await?;
        self.surface.expect("idle", &end?, &StopReason::EndTurn);
        let all = session.conversation().unwrap_or_default();
        let terminal = all.terminal("t-1");
        let output = terminal.map(|terminal| terminal.output().0);
        self.surface.expect("terminal_output_chunk", output.as_deref(), Some("hello\n"));
        let status =
            terminal.and_then(|terminal| Some((terminal.size.clone()?, terminal.exit_status.clone()?)));
        let signal = v2::TerminalExitStatus::new().signal("SIGTERM");
        self.surface.expect("terminal_update", status, Some((v2::TerminalSize::new(80, 24), signal)));
        let (seen, end) = self.turn(session, "background").await?;
        self.surface.expect("idle", &end?, &StopReason::EndTurn);
        let call = v2::BackgroundWork::from(v2::BackgroundToolCall::new("call-4"));
        for work in [vec![call], Vec::new()] {
            let shown = seen.contains(&format!("background {}", json!(work)));
            self.surface.expect("background work", shown, true);
        }
        let (_, end) = self.turn(session, "elicitation").await?;
        self.surface.expect("idle", &end?, &StopReason::EndTurn);
        let (_, end) = self.turn(session, "cancel call").await?;
        self.surface.expect("idle", &end?, &StopReason::EndTurn);
        let call =
            session.conversation().and_then(|all| all.tool_call("call-3").map(|call| call.status.clone()));
        self.surface.expect("tool_call_update", &call, &Some(ToolCallStatus::Cancelled));
        let (_, end) = self.turn(session, "cancel").await?;
        self.surface.expect("session/cancel", &end?, &StopReason::Cancelled);
        let (_, end) = self.turn(session, "fail").await?;
        let error = end.err().map(|error| error.to_string()).unwrap_or_default();
        self.surface.expect("error", &error.contains("no model"), &true);
        Ok(())
    }

    /// Checks what the conversation holds after the turn of all updates.
    fn conversation(&self, session: &Session, seen: &[String]) {
        let all = session.conversation().unwrap_or_default();
        self.surface.expect("running", &seen.iter().any(|kind| kind == "running"), &true);
        let mine = all.messages().find(|message| message.kind == MessageKind::User);
        self.surface.expect(
            "user_message",
            &mine.map(ConversationMessage::text),
            &Some("updates".to_owned()),
        );
        let thought = all.last_agent_thought().map(ConversationMessage::text);
        self.surface.expect("agent_thought_chunk", &thought, &Some("thinking".to_owned()));
        // The draft is cleared.
        let text = all.last_agent_message().map(ConversationMessage::text);
        for row in ["agent_message", "agent_message_chunk"] {
            self.surface.expect(row, &text, &Some("Hello é世界".to_owned()));
        }
        let call = all.tool_call("call-1");
        self.surface.expect(
            "tool_call_update",
            &call.map(|call| &call.status),
            &Some(&ToolCallStatus::Completed),
        );
        let content = call.map(|call| json!(call.content)[0]["content"]["text"].clone());
        self.surface.expect("tool_call_content_chunk", &content, &Some(json!("done")));
        for row in [
            "plan_update",
            "session_info_update",
            "usage_update",
            "config_option_update",
            "available_commands_update",
            "notice",
            "compaction_update",
            "compaction_summary_chunk",
        ] {
            self.surface.expect(row, &seen.iter().any(|kind| kind == row), &true);
        }
        self.surface.expect("session_info_update", &all.title(), &Some("A talk"));
        self.surface.expect(
            "usage_update",
            &all.usage().map(|usage| (usage.used, usage.size)),
            &Some((12, 34)),
        );
        let commands: Vec<_> = all.commands().iter().map(|command| command.name.as_str()).collect();
        self.surface.expect("available_commands_update", commands, vec!["plan"]);
        let compacted = all.entries().iter().find_map(ConversationEntry::as_compaction);
        let summary = compacted.map(|compaction| json!(compaction.summary)[0]["text"].clone());
        self.surface.expect("compaction_summary_chunk", summary, Some(json!("So far: hello")));
        self.surface.expect("config_option_update", &model(all.config_options()), &Some("small".into()));
    }

    async fn end(&self, session: Session) -> Result<()> {
        let id = session.id().clone();
        let listed = self.agent.list_sessions(Some(self.cwd.clone().into()))?.all().await?;
        let listed: Vec<_> = listed.into_iter().map(|session| session.session_id).collect();
        self.surface.expect("session/list", &listed, &vec![id.clone()]);
        let mut replay = self.agent.load_session(id.clone(), &self.cwd)?;
        let mut seen = Vec::new();
        while let Some(update) = replay.next().await {
            seen.push(update?.tag().to_owned());
        }
        let session = replay.outcome().await?;
        seen.retain(|kind| kind.ends_with("_message"));
        let whole = ["user_message", "agent_message"].map(str::to_owned);
        self.surface.expect("session/resume", &seen, &whole.to_vec());
        session.close().await?;
        self.surface.did("session/close");
        self.agent.delete_session(id).await?;
        self.surface.did("session/delete");
        self.agent.logout().await?;
        self.surface.did("auth/logout");
        Ok(())
    }
}

/// Returns the current value of the option for the model.
fn model(options: &[SessionConfigOption]) -> Option<serde_json::Value> {
    json!(options).pointer("/0/currentValue").cloned()
}
