//! Our client of the dialogue of the unstable part.

use duologue_client::schema::*;
use duologue_client::{Client, Command, Connection, Extensions, HostResult, Result, Session};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

use super::MCP_SERVER;
use crate::interop::surface::Surface;
use crate::interop::wire;

/// Drives the agent whose command follows.
#[tokio::main]
pub(crate) async fn drive(command: &[String]) -> crate::interop::Result<()> {
    let [program, args @ ..] = command else { return Ok(()) };
    let surface = Arc::new(Surface::load("INTEROP_CLIENT_REPORT"));
    let cwd = surface.fill(&json!("$CWD")).as_str().unwrap_or_default().to_owned();
    let of_auth = surface.clone();
    let mut client = Client::new(())
        .advertise(|client| client.plan(PlanCapabilities::new()).subagents(SubagentCapabilities::new()))
        .on_auth_status(move |_, status| {
            of_auth.expect("auth/status_update", status.state, AuthState::Unauthenticated);
        })
        .extensions(Extensions::new().on_request_with(surface.clone(), mcp))
        .info(Implementation::new("interop-client", "1.0.0"))
        .keep_conversations()
        .request_timeout(Duration::from_secs(15));
    if let Some(tap) = wire::tap("client") {
        client = client.tap(tap);
    }
    let agent = client.spawn(Command::new(program).args(args)).await?;
    let run = Run { surface: &surface, agent: &agent, cwd };
    run.connection().await?;
    let session = run.begin().await?;
    run.turns(&session).await?;
    run.archive(&session).await?;
    run.chain().await?;
    agent.close().await;
    Ok(())
}

/// Handles a request to the MCP server of this client.
async fn mcp(
    surface: Arc<Surface>,
    context: duologue_client::RequestContext,
    request: MessageMcpRequest,
) -> HostResult<MessageMcpResponse> {
    surface.expect("mcp/message request", request.server_id.as_str(), MCP_SERVER);
    if request.method != "tools/list" {
        let error = McpError::new(-32602, "no such tool");
        return Ok(McpFailure::new(error).into());
    }
    let mut progress =
        MessageMcpNotification::new(request.server_id, request.request_id, "notifications/progress");
    progress.params.get_or_insert_default().insert("progress", 1);
    match context.peer().notify_now(&progress) {
        Ok(()) => surface.did("mcp/message notification"),
        Err(error) => surface.report("mcp/message notification", Err(error.to_string()), ""),
    }
    Ok(McpSuccess::new(json!({"tools": []})).into())
}

struct Run<'a> {
    surface: &'a Surface,
    agent: &'a Connection,
    cwd: String,
}

impl Run<'_> {
    async fn connection(&self) -> Result<()> {
        let capabilities = self.agent.capabilities();
        let known = (capabilities.providers.is_some(), capabilities.mcp_capabilities.acp);
        self.surface.expect("initialize", known, (true, true));
        let status = self.agent.auth_status().await?;
        let account = AuthAccount::new("Work").active(true).email("ada@example.com");
        self.surface.expect(
            "auth/status",
            (status.state, status.accounts),
            (AuthState::Authenticated, vec![account]),
        );

        let listed = self.agent.list_providers().await?.providers;
        let supported = vec![LlmProtocol::Anthropic, LlmProtocol::OpenAi];
        let current = ProviderCurrentConfig::new(LlmProtocol::Anthropic, "https://example.com/a");
        let expected = ProviderInfo::new("main", supported, false).current(current);
        self.surface.expect("providers/list", listed, vec![expected]);
        let headers = [("X-Key".to_owned(), "k".to_owned())];
        self.agent.set_provider("main", LlmProtocol::OpenAi, "https://example.com/b", headers).await?;
        self.surface.did("providers/set");
        self.agent.disable_provider("main").await?;
        self.surface.did("providers/disable");
        Ok(())
    }

    async fn begin(&self) -> Result<Session> {
        let session = self
            .agent
            .session_in(&self.cwd)
            .mcp_server(McpServerAcp::new("Tools", MCP_SERVER))
            .system_prompt(SystemPromptMode::Append, "Answer in French.")
            .create()
            .await?;
        self.surface.did("systemPrompt append");
        let stored = session.set_title(" A talk ").await?;
        let title = session.state().title;
        self.surface.expect(
            "session/set_title",
            (stored.title, title),
            ("A talk".into(), Some("A talk".into())),
        );
        Ok(session)
    }

    async fn turns(&self, session: &Session) -> Result<()> {
        self.turn(session, "plans").await?;
        let plans: Vec<_> = session.state().plans.iter().map(PlanUpdateContent::plan_id).collect();
        for row in ["plan_update", "plan_removed"] {
            self.surface.expect(row, plans.as_slice(), &[Some("p-1".into())]);
        }
        let usage = self.turn(session, "usage").await?.usage;
        self.surface.expect("session/prompt usage", usage, Some(Usage::new(30, 20, 10).thought_tokens(5)));

        self.turn(session, "child").await?;
        self.child(session);
        self.turn(session, "cancel child").await?;
        self.turn(session, "steer").await?;
        self.turn(session, "auth").await?;
        self.turn(session, "mcp").await?;
        Ok(())
    }

    /// Runs a turn. Cancels a child that can be cancelled, and steers a turn that waits for it.
    async fn turn(&self, session: &Session, prompt: &str) -> Result<PromptResponse> {
        let mut turn = session.prompt(prompt).await?;
        while let Some(update) = turn.next().await {
            let update = update?;
            if let SessionUpdate::SubagentUpdate(child) = &update
                && let (Patch::Set(_), Some(child)) = (&child.capabilities, session.child(&child.session_id))
            {
                child.cancel()?;
                self.surface.did("session/cancel of a child");
            }
            if update.to_string() == "waiting" {
                let outcome = turn.steer("Only the parser.").await?;
                self.surface.expect("_session/steering", outcome, SteerOutcome::Injected);
            }
        }
        turn.outcome().await
    }

    /// Checks the child session that has ended.
    fn child(&self, session: &Session) {
        let children = session.children();
        let child = children.last().and_then(|child| session.child(&child.id));
        let info = child.as_ref().and_then(duologue_client::SubagentSession::info);
        let shown = info.map(|info| (info.title, info.state.and_then(|state| state.stop_reason())));
        let expected = (Some("Review".to_owned()), Some(StopReason::EndTurn));
        self.surface.expect("subagent_update", shown, Some(expected));

        let conversation = child.and_then(|child| child.conversation()).unwrap_or_default();
        let text = conversation.last_agent_message().map(ConversationMessage::text);
        self.surface.expect("subagent_update", text.as_deref(), Some("It looks good."));
        let texts = |conversation: &Conversation| -> Vec<String> {
            let messages = conversation.entries().iter().filter_map(ConversationEntry::as_session_message);
            let text = |block: &ContentBlock| block.as_text().map(str::to_owned);
            messages.map(|message| message.content.iter().filter_map(text).collect()).collect()
        };
        let of_child = texts(&conversation);
        let has = |text: &str| of_child.iter().any(|known| known == text);
        self.surface.expect("session_message", has("Review the change."), true);
        self.surface.expect("session_message_chunk", has("No findings."), true);
        let of_parent = session.conversation().map(|conversation| texts(&conversation)).unwrap_or_default();
        self.surface.expect(
            "session_message",
            of_parent.iter().any(|text| text == "Review the change."),
            true,
        );
    }

    async fn archive(&self, session: &Session) -> Result<()> {
        let builder = self.agent.session_in(&self.cwd);
        let fork =
            builder.system_prompt(SystemPromptMode::Override, "You are a poet.").fork(session.id().clone());
        let fork = fork.await?.id().clone();
        self.surface.did("systemPrompt override");
        self.surface.expect("session/fork", fork == *session.id(), false);

        let status = self.agent.session_status(session.id().clone()).await?.status;
        self.surface.expect("session/status", status, SessionStatus::Open);
        self.agent.archive_session(fork.clone()).await?;
        self.surface.did("session/archive");
        let status = self.agent.session_status(fork.clone()).await?.status;
        self.surface.expect("session/status", status, SessionStatus::Saved);
        let listed = self.agent.list_sessions(None)?.archived(SessionArchiveFilter::Only)?.all().await?;
        let listed: Vec<_> = listed.into_iter().map(|session| session.session_id).collect();
        self.surface.expect("session/list archived", listed, vec![fork.clone()]);
        self.agent.unarchive_session(fork).await?;
        self.surface.did("session/unarchive");
        Ok(())
    }

    /// Sends the messages between the programs of a chain of proxies.
    async fn chain(&self) -> Result<()> {
        let peer = self.agent.peer();
        let request = InitializeProxyRequest(InitializeRequest::new(ProtocolVersion::V1));
        let InitializeProxyResponse(response) = peer.request(&request).await?;
        self.surface.expect("proxy/initialize", response.protocol_version, ProtocolVersion::V1);
        let request = ProxySuccessorRequest::new("_interop/behind").params(json!({"n": 1}));
        let ProxySuccessorResponse(response) = peer.request(&request).await?;
        self.surface.expect("proxy/successor request", json!(response), json!({"params": {"n": 1}}));
        let params = json!({"sessionId": "behind"});
        peer.notify(&ProxySuccessorNotification::new("session/cancel").params(params)).await?;
        self.surface.did("proxy/successor notification");
        // A response is later than the effects of the notification.
        self.agent.auth_status().await?;
        Ok(())
    }
}
