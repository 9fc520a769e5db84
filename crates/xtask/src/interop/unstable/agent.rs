//! Our agent of the dialogue of the unstable part.

use duologue_agent::schema::*;
use duologue_agent::{
    Agent, Context, Error, Extensions, Prompt, Result, Server, Session, SessionSetup, Turn,
};
use serde_json::json;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::Notify;

use super::{MCP_SERVER, mcp_params};
use crate::interop::surface::Surface;
use crate::interop::wire;

struct Unstable {
    surface: Arc<Surface>,
    steered: Notify,
}

#[tokio::main]
pub(crate) async fn main() -> Result<()> {
    let surface = Arc::new(Surface::load("INTEROP_AGENT_REPORT"));
    let agent = Unstable { surface: surface.clone(), steered: Notify::new() };
    let mut server = Server::new(agent).extensions(extensions(&surface));
    if let Some(tap) = wire::tap("agent") {
        server = server.tap(tap);
    }
    server.serve_stdio().await
}

/// Returns the handlers of the messages that the trait has no methods for.
fn extensions(surface: &Arc<Surface>) -> Extensions {
    let (of_mcp, of_proxy) = (surface.clone(), surface.clone());
    Extensions::new()
        .on_notification(move |_, message: MessageMcpNotification| {
            let came = (message.server_id.as_str(), message.request_id.as_str(), message.method.as_str());
            let expected = (MCP_SERVER, "list", "notifications/progress");
            of_mcp.expect("mcp/message notification", came, expected);
        })
        .on_request_with(surface.clone(), async |surface, _, request: InitializeProxyRequest| {
            let InitializeProxyRequest(request) = request;
            surface.expect("proxy/initialize", request.protocol_version, ProtocolVersion::V1);
            Ok(InitializeProxyResponse(InitializeResponse::new(ProtocolVersion::V1)))
        })
        .on_request_with(surface.clone(), async |surface, _, request: ProxySuccessorRequest| {
            surface.expect("proxy/successor request", request.method.as_str(), "_interop/behind");
            Ok(ProxySuccessorResponse(json!({"params": request.params}).into()))
        })
        .on_notification(move |_, notification: ProxySuccessorNotification| {
            of_proxy.expect("proxy/successor notification", notification.method.as_str(), "session/cancel");
        })
}

impl Unstable {
    /// Reports the system prompt that the client has sent.
    fn system_prompt(&self, row: &str, session: &Session, mode: SystemPromptMode, text: &str) {
        let expected = SystemPrompt::new(mode, vec![text.into()]);
        self.surface.expect(row, session.system_prompt(), Some(&expected));
    }

    async fn plans(&self, turn: &Turn) -> Result<()> {
        let entry = PlanEntry::new("Look", PlanEntryPriority::High, PlanEntryStatus::Completed);
        turn.show_plan(PlanItems::new("p-1", vec![entry])).await?;
        turn.show_plan(PlanMarkdown::new("p-2", "# Later")).await?;
        self.surface.did("plan_update");
        turn.remove_plan("p-2").await?;
        self.surface.did("plan_removed");
        Ok(())
    }

    async fn child(&self, turn: &Turn) -> Result<()> {
        let child = turn.subagent("Review").description("Reads the change").start().await?;
        self.surface.did("subagent_update");
        child.instruct("Review the change.").await?;
        self.surface.did("session_message");
        child.message().push("It looks good.").await?;
        child.update(SessionMessageChunk::new("m-1", "No ")).await?;
        child.update(SessionMessageChunk::new("m-1", "findings.")).await?;
        self.surface.did("session_message_chunk");
        child.report("No findings.").await?;
        child.finish(StopReason::EndTurn);
        Ok(())
    }

    /// Calls the MCP server of the client, once with success.
    async fn mcp(&self, turn: &Turn) -> Result<()> {
        let call = |id: &str, method: &str| {
            let request = MessageMcpRequest::new(MCP_SERVER, id, method).params(mcp_params());
            turn.client().peer().request(&request)
        };
        let listed = call("list", "tools/list").await?;
        let expected = McpSuccess::new(json!({"tools": []}));
        self.surface.expect("mcp/message request", json!(listed), json!(expected));
        let failed = call("fail", "tools/call").await?;
        let code = match failed {
            MessageMcpResponse::Failure(failure) => Some(failure.error.code),
            _ => None,
        };
        self.surface.expect("mcp/message request", code, Some(-32602));
        Ok(())
    }
}

impl Agent for Unstable {
    fn capabilities(&self) -> AgentCapabilities {
        let r#override = SessionSystemPromptOverrideCapabilities::new();
        let mode = SessionSystemPromptModeCapabilities::new().r#override(r#override);
        let session = SessionCapabilities::new()
            .list(SessionListCapabilities::new())
            .system_prompt(SessionSystemPromptCapabilities::new().mode(mode))
            .fork(SessionForkCapabilities::new())
            .archive(SessionArchiveCapabilities::new())
            .status(SessionStatusCapabilities::new())
            .title(SessionTitleCapabilities::new());
        AgentCapabilities::new()
            .session_capabilities(session)
            .auth(AgentAuthCapabilities::new().status(AuthStatusCapabilities::new()))
            .providers(ProvidersCapabilities::new())
            .mcp_capabilities(McpCapabilities::new().acp(true))
    }

    fn info(&self) -> Option<Implementation> {
        Some(Implementation::new("interop-agent", "1.0.0"))
    }

    fn auth_methods(&self, client: &InitializeRequest) -> Vec<AuthMethod> {
        let ClientCapabilities { plan, subagents, .. } = &client.client_capabilities;
        self.surface.expect("initialize", (plan.is_some(), subagents.is_some()), (true, true));
        Vec::new()
    }

    async fn auth_status(&self, _: &Context) -> Result<AuthStatusResponse> {
        self.surface.did("auth/status");
        let account = AuthAccount::new("Work").active(true).email("ada@example.com");
        Ok(AuthStatusResponse::new(AuthState::Authenticated).accounts(vec![account]))
    }

    async fn list_providers(&self, _: &Context) -> Result<Vec<ProviderInfo>> {
        self.surface.did("providers/list");
        let supported = vec![LlmProtocol::Anthropic, LlmProtocol::OpenAi];
        let current = ProviderCurrentConfig::new(LlmProtocol::Anthropic, "https://example.com/a");
        Ok(vec![ProviderInfo::new("main", supported, false).current(current)])
    }

    async fn set_provider(&self, _: &Context, request: SetProviderRequest) -> Result<()> {
        let mut expected = SetProviderRequest::new("main", LlmProtocol::OpenAi, "https://example.com/b");
        expected.headers.insert("X-Key".to_owned(), "k".to_owned());
        self.surface.expect("providers/set", request, expected);
        Ok(())
    }

    async fn disable_provider(&self, _: &Context, request: DisableProviderRequest) -> Result<()> {
        self.surface.expect("providers/disable", request, DisableProviderRequest::new("main"));
        Ok(())
    }

    async fn new_session(&self, _: &Context, session: &Session) -> Result<SessionSetup> {
        self.surface.set("$SESSION", session.id().as_str());
        self.system_prompt("systemPrompt append", session, SystemPromptMode::Append, "Answer in French.");
        let server: McpServer = McpServerAcp::new("Tools", MCP_SERVER).into();
        self.surface.expect("mcp/message request", session.mcp_servers(), &[server]);
        Ok(SessionSetup::new())
    }

    async fn fork_session(&self, _: &Context, session: &Session, origin: SessionId) -> Result<SessionSetup> {
        self.surface.set("$FORK", session.id().as_str());
        self.surface.expect("session/fork", json!(origin), self.surface.fill(&json!("$SESSION")));
        self.system_prompt("systemPrompt override", session, SystemPromptMode::Override, "You are a poet.");
        Ok(SessionSetup::new())
    }

    async fn set_session_title(&self, _: &Context, request: SetSessionTitleRequest) -> Result<String> {
        self.surface.expect("session/set_title", request.title.as_str(), " A talk ");
        Ok(request.title.trim().to_owned())
    }

    async fn session_status(&self, _: &Context, request: SessionStatusRequest) -> Result<SessionStatus> {
        self.is_fork("session/status", &request.session_id);
        Ok(SessionStatus::Saved)
    }

    async fn archive_session(&self, _: &Context, request: ArchiveSessionRequest) -> Result<()> {
        self.is_fork("session/archive", &request.session_id);
        Ok(())
    }

    async fn unarchive_session(&self, _: &Context, request: UnarchiveSessionRequest) -> Result<()> {
        self.is_fork("session/unarchive", &request.session_id);
        Ok(())
    }

    async fn list_sessions(&self, _: &Context, request: ListSessionsRequest) -> Result<ListSessionsResponse> {
        self.surface.expect("session/list archived", request.archived, Some(SessionArchiveFilter::Only));
        let known = |name: &str| self.surface.fill(&json!(name)).as_str().unwrap_or_default().to_owned();
        Ok(ListSessionsResponse::new(vec![SessionInfo::new(known("$FORK"), PathBuf::from(known("$CWD")))]))
    }

    async fn steer(&self, _: &Context, _: &Session, message: Prompt) -> Result<SteerOutcome> {
        self.surface.expect("_session/steering", message.text().as_str(), "Only the parser.");
        self.steered.notify_one();
        Ok(SteerOutcome::Injected)
    }

    async fn prompt(&self, turn: &Turn, prompt: Prompt) -> Result<StopReason> {
        match prompt.text().as_str() {
            "plans" => self.plans(turn).await?,
            "usage" => {
                turn.set_token_usage(Usage::new(30, 20, 10).thought_tokens(5));
                self.surface.did("session/prompt usage");
            }
            "child" => self.child(turn).await?,
            "cancel child" => {
                let child = turn.subagent("Wait").cancellable().start().await?;
                child.cancelled().await;
                self.surface.did("session/cancel of a child");
            }
            "steer" => {
                turn.message().push("waiting").await?;
                self.steered.notified().await;
            }
            "auth" => {
                let status = AuthStatusUpdateNotification::new(AuthState::Unauthenticated);
                turn.client().auth_status_changed(status).await?;
                self.surface.did("auth/status_update");
            }
            "mcp" => self.mcp(turn).await?,
            other => return Err(Error::other(format!("{other:?} is no prompt of the dialogue"))),
        }
        Ok(StopReason::EndTurn)
    }
}

impl Unstable {
    fn is_fork(&self, row: &str, id: &SessionId) {
        self.surface.expect(row, json!(id), self.surface.fill(&json!("$FORK")));
    }
}
