//! Our agent of the dialogue of version 2: a program of version 1 with `Server::protocol_v2`.

use duologue_agent::schema::*;
use duologue_agent::{Agent, Context, Error, Prompt, Result, Server, Session, SessionSetup, Turn};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

use crate::interop::surface::Surface;
use crate::interop::wire;

struct Both {
    surface: Arc<Surface>,
    terminal_cancelled: Notify,
}

#[tokio::main]
pub(crate) async fn main() -> Result<()> {
    let surface = Arc::new(Surface::load("INTEROP_AGENT_REPORT"));
    let agent = Both { surface, terminal_cancelled: Notify::new() };
    let mut server = Server::new(agent).protocol_v2();
    if let Some(tap) = wire::tap("agent") {
        server = server.tap(tap);
    }
    server.serve_stdio().await
}

impl Both {
    async fn updates(&self, turn: &Turn) -> Result<()> {
        turn.thought().push("thinking").await?;
        self.surface.did("agent_thought_chunk");
        let mut message = turn.message();
        message.push("Draft").await?;
        self.surface.did("agent_message_chunk");
        message.clear().await?;
        self.surface.did("agent_message");
        message.push("Hello é世界").await?;
        let call = turn.tool_call("Edit").id("call-1").kind(ToolKind::Edit).start().await?;
        // The handle would send the whole content.
        let piece = ToolCallContent::from(ContentBlock::from("done"));
        turn.update(ToolCallContentChunk::new("call-1", piece)).await?;
        self.surface.did("tool_call_content_chunk");
        call.complete().await?;
        self.surface.did("tool_call_update");
        let entry = PlanEntry::new("Look", PlanEntryPriority::High, PlanEntryStatus::Completed);
        turn.set_plan(vec![entry]).await?;
        self.surface.did("plan_update");
        turn.set_info(SessionInfoUpdate::new().title("A talk")).await?;
        self.surface.did("session_info_update");
        turn.set_usage(UsageUpdate::new(12, 34)).await?;
        self.surface.did("usage_update");
        turn.config_changed(options("small")).await?;
        self.surface.did("config_option_update");
        let plan = AvailableCommand::new("plan", "Makes a plan");
        turn.set_commands(vec![plan.input(UnstructuredCommandInput::new("what to plan"))]).await?;
        self.surface.did("available_commands_update");
        turn.notice(Notice::new(NoticeSeverity::Warning, "Rate limited")).await?;
        self.surface.did("notice");
        turn.update(CompactionUpdate::new("c-1", CompactionStatus::InProgress)).await?;
        turn.update(CompactionSummaryChunk::new("c-1", "So far: hello")).await?;
        self.surface.did("compaction_summary_chunk");
        turn.update(CompactionUpdate::new("c-1", CompactionStatus::Completed)).await?;
        self.surface.did("compaction_update");
        Ok(())
    }

    async fn permission(&self, turn: &Turn) -> Result<()> {
        let call = turn.tool_call("Delete all").id("call-2").announce().await?;
        let options = || {
            let yes = PermissionOption::new("yes", "Yes", PermissionOptionKind::AllowOnce);
            vec![yes, PermissionOption::new("no", "No", PermissionOptionKind::RejectOnce)]
        };
        let outcome = call.request_permission(options()).await?;
        self.surface.expect("session/request_permission", outcome, RequestPermissionOutcome::selected("yes"));
        self.surface.did("requires_action");
        call.complete().await?;
        let call = ToolCallUpdate::new("call-5").title("Taken back");
        let request = turn.request_permission(call, options());
        let taken_back = tokio::time::timeout(Duration::from_millis(200), request).await;
        self.surface.expect("$/cancel_request", taken_back.is_err(), true);
        Ok(())
    }

    /// Shows a terminal until the client cancels it.
    async fn terminal(&self, turn: &Turn) -> Result<()> {
        let cancel = v2::TerminalCapabilities::new().cancel(v2::TerminalCancelCapabilities::new());
        let begun = v2::TerminalUpdate::new("t-1")
            .command("make")
            .cwd(turn.cwd())
            .size(v2::TerminalSize::new(80, 24))
            .capabilities(cancel);
        turn.update(begun).await?;
        turn.update(v2::TerminalOutputChunk::new("t-1", "aGVsbG8K")).await?;
        self.surface.did("terminal_output_chunk");
        self.terminal_cancelled.notified().await;
        let status = v2::TerminalExitStatus::new().signal("SIGTERM");
        turn.update(v2::TerminalUpdate::new("t-1").exit_status(status)).await?;
        self.surface.did("terminal_update");
        Ok(())
    }

    async fn background(&self, turn: &Turn) -> Result<()> {
        let id = turn.tool_call("Build").id("call-4").start().await?.detach()?;
        turn.background(vec![v2::BackgroundToolCall::new(id.clone()).into()]);
        turn.update(ToolCallUpdate::new(id).status(ToolCallStatus::Completed)).await?;
        turn.background(Vec::new());
        self.surface.did("background work");
        Ok(())
    }

    async fn elicitation(&self, turn: &Turn) -> Result<()> {
        let field: ElicitationPropertySchema = StringPropertySchema::new().into();
        let form = ElicitationSchema::new().properties([("name", field)]).required(vec!["name".to_owned()]);
        let scope = ElicitationSessionScope::new(turn.id().clone());
        let request = CreateElicitationRequest::new("Who are you?", ElicitationFormMode::new(scope, form));
        let expected =
            CreateElicitationResponse::accept([("name".to_owned(), ElicitationContentValue::from("Ada"))]);
        self.surface.expect("elicitation/create", &turn.elicit(request).await?, &expected);
        let link = ElicitationUrlMode::new(turn.id().clone(), "e-1", "https://example.com/login");
        let response = turn.elicit(CreateElicitationRequest::new("Log in there", link)).await?;
        let accepted = matches!(response.action, ElicitationAction::Accept(_));
        self.surface.expect("elicitation/create", accepted, true);
        turn.elicitation_complete("e-1").await?;
        self.surface.did("elicitation/complete");
        Ok(())
    }
}

impl Agent for Both {
    fn capabilities(&self) -> AgentCapabilities {
        AgentCapabilities::new()
            .load_session(true)
            .session_capabilities(
                SessionCapabilities::new()
                    .list(SessionListCapabilities::new())
                    .delete(SessionDeleteCapabilities::new())
                    .resume(SessionResumeCapabilities::new())
                    .close(SessionCloseCapabilities::new()),
            )
            .auth(AgentAuthCapabilities::new().logout(LogoutCapabilities::new()))
    }

    fn info(&self) -> Option<Implementation> {
        Some(Implementation::new("interop-agent", "1.0.0"))
    }

    fn auth_methods(&self, client: &InitializeRequest) -> Vec<AuthMethod> {
        let name = client.client_info.as_ref().map(|info| info.name.as_str());
        self.surface.expect("initialize", &name, &Some("interop-client"));
        vec![AuthMethodAgent::new("token", "Token").into()]
    }

    async fn authenticate(&self, _: &Context, request: AuthenticateRequest) -> Result<()> {
        self.surface.expect("auth/login", &request.method_id, &"token".into());
        Ok(())
    }

    async fn logout(&self, _: &Context) -> Result<()> {
        self.surface.did("auth/logout");
        Ok(())
    }

    async fn new_session(&self, _: &Context, _: &Session) -> Result<SessionSetup> {
        self.surface.did("session/new");
        Ok(SessionSetup::new().config_options(options("small")))
    }

    async fn load_session(&self, _: &Context, session: &Session) -> Result<SessionSetup> {
        session.update(SessionUpdate::user_message("before").with_message_id("u-0")).await?;
        session.update(SessionUpdate::agent_message("replayed").with_message_id("a-0")).await?;
        self.surface.did("session/resume");
        Ok(SessionSetup::new().config_options(options("large")))
    }

    async fn resume_session(&self, _: &Context, _: &Session) -> Result<SessionSetup> {
        Ok(SessionSetup::new().config_options(options("large")))
    }

    async fn list_sessions(&self, _: &Context, request: ListSessionsRequest) -> Result<ListSessionsResponse> {
        self.surface.did("session/list");
        let id = self.surface.fill(&json!("$SESSION")).as_str().unwrap_or_default().to_owned();
        let sessions = request.cwd.into_iter().map(|cwd| SessionInfo::new(id.clone(), cwd));
        Ok(ListSessionsResponse::new(sessions.collect::<Vec<_>>()))
    }

    async fn cancel_terminal(&self, _: &Context, _: &Session, terminal: TerminalId) -> Result<()> {
        self.surface.expect("terminal/cancel", terminal.as_str(), "t-1");
        self.terminal_cancelled.notify_one();
        Ok(())
    }

    async fn close_session(&self, _: &Context, _: &Session) -> Result<()> {
        self.surface.did("session/close");
        Ok(())
    }

    async fn delete_session(&self, _: &Context, _: DeleteSessionRequest) -> Result<()> {
        self.surface.did("session/delete");
        Ok(())
    }

    async fn set_config_option(
        &self,
        _: &Context,
        session: &Session,
        request: SetSessionConfigOptionRequest,
    ) -> Result<Vec<SessionConfigOption>> {
        self.surface.set("$SESSION", session.id().as_str());
        self.surface.expect("session/set_config_option", &request.config_id, &"model".into());
        Ok(options("large"))
    }

    async fn prompt(&self, turn: &Turn, prompt: Prompt) -> Result<StopReason> {
        // The library sends these three, and `idle` after this method.
        for row in ["session/prompt", "user_message", "running", "idle"] {
            self.surface.did(row);
        }
        match prompt.text().as_str() {
            "updates" => self.updates(turn).await?,
            "permission" => self.permission(turn).await?,
            "terminal" => self.terminal(turn).await?,
            "background" => self.background(turn).await?,
            "elicitation" => self.elicitation(turn).await?,
            "cancel call" => {
                let call = turn.tool_call("Sleep").id("call-3").cancellable().start().await?;
                call.cancelled().await;
                self.surface.did("tool_call/cancel");
                call.status(ToolCallStatus::Cancelled).await?;
            }
            "cancel" => {
                turn.message().push("waiting").await?;
                turn.cancelled().await;
                self.surface.did("session/cancel");
            }
            _ => {
                self.surface.did("error");
                return Err(Error::other("no model"));
            }
        }
        Ok(StopReason::EndTurn)
    }
}

fn options(model: &str) -> Vec<SessionConfigOption> {
    let models = [("small", "Small"), ("large", "Large")];
    let models = models.map(|(id, name)| SessionConfigSelectOption::new(id, name));
    vec![SessionConfigOption::select("model", "Model", model.to_owned(), models.to_vec())]
}
