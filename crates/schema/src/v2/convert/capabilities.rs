//! The first request of a connection, and authentication.

use crate::{
    AgentCapabilities, AuthMethod, AuthMethodAgent, AuthMethodTerminal, AuthenticateRequest,
    AuthenticateResponse, BooleanConfigOptionCapabilities, CancelNotification, ClientCapabilities,
    ClientSessionCapabilities, CompactionCapabilities, DuologueCapabilities, EnvVariable, Implementation,
    InitializeRequest, InitializeResponse, LogoutCapabilities, LogoutRequest, LogoutResponse,
    NoticeCapabilities, PlanCapabilities, SessionCloseCapabilities, SessionConfigOptionsCapabilities,
    SessionCursorsCapabilities, SessionListCapabilities, SessionResumeCapabilities, SubagentCapabilities, v2,
};

use super::all;

/// The name of a program that has given none.
fn placeholder() -> Implementation {
    Implementation::new("unnamed", "0")
}

impl From<v2::InitializeRequest> for InitializeRequest {
    fn from(request: v2::InitializeRequest) -> Self {
        InitializeRequest {
            protocol_version: request.protocol_version,
            client_capabilities: request.capabilities.into(),
            client_info: Some(request.info),
            meta: request.meta,
        }
    }
}

impl From<InitializeRequest> for v2::InitializeRequest {
    fn from(request: InitializeRequest) -> Self {
        v2::InitializeRequest {
            protocol_version: request.protocol_version,
            info: request.client_info.unwrap_or_else(placeholder),
            capabilities: request.client_capabilities.into(),
            meta: request.meta,
        }
    }
}

impl From<v2::InitializeResponse> for InitializeResponse {
    fn from(response: v2::InitializeResponse) -> Self {
        let mut agent_capabilities = AgentCapabilities::from(response.capabilities);
        // An agent with a way to log in has a way to log out.
        agent_capabilities.auth.logout =
            (!response.auth_methods.is_empty()).then(LogoutCapabilities::default);
        InitializeResponse {
            protocol_version: response.protocol_version,
            agent_capabilities,
            auth_methods: all(response.auth_methods),
            agent_info: Some(response.info),
            meta: response.meta,
        }
    }
}

impl From<InitializeResponse> for v2::InitializeResponse {
    fn from(response: InitializeResponse) -> Self {
        v2::InitializeResponse {
            protocol_version: response.protocol_version,
            info: response.agent_info.unwrap_or_else(placeholder),
            capabilities: response.agent_capabilities.into(),
            auth_methods: all(response.auth_methods),
            meta: response.meta,
        }
    }
}

/// Every client of version 2 shows plans, notices, compactions, boolean options, child sessions and cleared messages, and
/// receives cursors.
impl From<v2::ClientCapabilities> for ClientCapabilities {
    fn from(capabilities: v2::ClientCapabilities) -> Self {
        let v2::ClientCapabilities { auth, elicitation, session: offered, mut meta } = capabilities;
        let options = SessionConfigOptionsCapabilities::new().boolean(BooleanConfigOptionCapabilities::new());
        let mut session = ClientSessionCapabilities::new()
            .compaction(CompactionCapabilities::new())
            .config_options(options)
            .notices(NoticeCapabilities::new())
            .cursors(SessionCursorsCapabilities::new());
        if let Some(offered) = offered {
            session.prompt_suggestions = offered.prompt_suggestions;
            session.meta = offered.meta;
        }
        DuologueCapabilities::of(meta.as_ref()).message_clear(true).write_to(&mut meta);
        let mut converted = ClientCapabilities::new()
            .session(session)
            .subagents(SubagentCapabilities::new())
            .plan(PlanCapabilities::new());
        if let Some(auth) = auth {
            converted.auth.terminal = auth.terminal.is_some();
            converted.auth.meta = auth.meta;
        }
        converted.elicitation = elicitation;
        converted.meta = meta;
        converted
    }
}

impl From<ClientCapabilities> for v2::ClientCapabilities {
    fn from(capabilities: ClientCapabilities) -> Self {
        let ClientCapabilities { auth, elicitation, session, meta, .. } = capabilities;
        let session = session.and_then(|session| {
            let ClientSessionCapabilities { prompt_suggestions, meta, .. } = session;
            let is_offered = prompt_suggestions.is_some() || meta.is_some();
            is_offered.then_some(v2::ClientSessionCapabilities { prompt_suggestions, commands: None, meta })
        });
        let has_auth = auth.terminal || auth.meta.is_some();
        let auth = v2::ClientAuthCapabilities {
            terminal: auth.terminal.then(v2::TerminalAuthCapabilities::new),
            meta: auth.meta,
        };
        v2::ClientCapabilities { auth: has_auth.then_some(auth), elicitation, session, meta }
    }
}

/// Every agent of version 2 with sessions lists, loads, resumes and closes them.
impl From<v2::AgentCapabilities> for AgentCapabilities {
    fn from(capabilities: v2::AgentCapabilities) -> Self {
        let mut converted = AgentCapabilities::new();
        converted.providers = capabilities.providers;
        converted.meta = capabilities.meta;
        if let Some(auth) = capabilities.auth {
            converted.auth.status = auth.status;
            converted.auth.meta = auth.meta;
        }
        let Some(session) = capabilities.session else { return converted };
        converted.load_session = true;
        if let Some(prompt) = session.prompt {
            let target = &mut converted.prompt_capabilities;
            target.image = prompt.image.is_some();
            target.audio = prompt.audio.is_some();
            target.embedded_context = prompt.embedded_context.is_some();
            target.meta = prompt.meta;
        }
        if let Some(mcp) = session.mcp {
            let target = &mut converted.mcp_capabilities;
            target.http = mcp.http.is_some();
            target.acp = mcp.acp.is_some();
            target.meta = mcp.meta;
        }
        let target = &mut converted.session_capabilities;
        target.list = Some(SessionListCapabilities::new());
        target.resume = Some(SessionResumeCapabilities::new());
        target.close = Some(SessionCloseCapabilities::new());
        target.delete = session.delete;
        target.additional_directories = session.additional_directories;
        target.system_prompt = session.system_prompt;
        target.fork = session.fork;
        target.archive = session.archive;
        target.status = session.status;
        target.title = session.title;
        target.options = session.options;
        target.meta = session.meta;
        converted
    }
}

impl From<AgentCapabilities> for v2::AgentCapabilities {
    fn from(capabilities: AgentCapabilities) -> Self {
        let AgentCapabilities { prompt_capabilities: prompt, mcp_capabilities: mcp, .. } = capabilities;
        let sessions = capabilities.session_capabilities;
        let mut session = v2::SessionCapabilities::new();
        let has_prompt = prompt.image || prompt.audio || prompt.embedded_context || prompt.meta.is_some();
        session.prompt = has_prompt.then_some(v2::PromptCapabilities {
            image: prompt.image.then(v2::PromptImageCapabilities::new),
            audio: prompt.audio.then(v2::PromptAudioCapabilities::new),
            embedded_context: prompt.embedded_context.then(v2::PromptEmbeddedContextCapabilities::new),
            skill: None,
            meta: prompt.meta,
        });
        session.mcp = Some(v2::McpCapabilities {
            stdio: Some(v2::McpStdioCapabilities::new()),
            http: mcp.http.then(v2::McpHttpCapabilities::new),
            acp: mcp.acp.then(v2::McpAcpCapabilities::new),
            meta: mcp.meta,
        });
        session.delete = sessions.delete;
        session.additional_directories = sessions.additional_directories;
        session.system_prompt = sessions.system_prompt;
        session.fork = sessions.fork;
        session.archive = sessions.archive;
        session.status = sessions.status;
        session.title = sessions.title;
        session.options = sessions.options;
        session.meta = sessions.meta;
        let auth = capabilities.auth;
        let has_auth = auth.status.is_some() || auth.meta.is_some();
        let auth = v2::AgentAuthCapabilities { status: auth.status, meta: auth.meta };
        v2::AgentCapabilities {
            session: Some(session),
            auth: has_auth.then_some(auth),
            providers: capabilities.providers,
            meta: capabilities.meta,
        }
    }
}

impl From<v2::AuthMethod> for AuthMethod {
    fn from(method: v2::AuthMethod) -> Self {
        match method {
            v2::AuthMethod::Agent(method) => AuthMethod::Agent(AuthMethodAgent {
                id: method.method_id,
                name: method.name,
                description: method.description,
                meta: method.meta,
            }),
            v2::AuthMethod::Terminal(method) => AuthMethodTerminal {
                id: method.method_id,
                name: method.name,
                description: method.description,
                args: method.args,
                env: method.env.into_iter().map(|variable| (variable.name, variable.value)).collect(),
                meta: method.meta,
            }
            .into(),
            v2::AuthMethod::Unknown(unknown) => AuthMethod::Unknown(unknown.renamed("methodId", "id")),
        }
    }
}

impl From<AuthMethod> for v2::AuthMethod {
    fn from(method: AuthMethod) -> Self {
        match method {
            AuthMethod::Agent(method) => v2::AuthMethod::Agent(v2::AuthMethodAgent {
                method_id: method.id,
                name: method.name,
                description: method.description,
                meta: method.meta,
            }),
            AuthMethod::Terminal(method) => v2::AuthMethodTerminal {
                method_id: method.id,
                name: method.name,
                description: method.description,
                args: method.args,
                env: method.env.into_iter().map(|(name, value)| EnvVariable::new(name, value)).collect(),
                meta: method.meta,
            }
            .into(),
            AuthMethod::Unknown(unknown) => v2::AuthMethod::Unknown(unknown.renamed("id", "methodId")),
        }
    }
}

/// Implements the conversions between two types with the same fields.
macro_rules! same {
    ($($v2:ident <=> $domain:ident { $($field:ident),* })*) => {$(
        impl From<v2::$v2> for $domain {
            fn from(it: v2::$v2) -> Self {
                $domain { $($field: it.$field,)* meta: it.meta }
            }
        }

        impl From<$domain> for v2::$v2 {
            fn from(it: $domain) -> Self {
                v2::$v2 { $($field: it.$field,)* meta: it.meta }
            }
        }
    )*};
}

same! {
    LoginAuthRequest <=> AuthenticateRequest { method_id }
    LoginAuthResponse <=> AuthenticateResponse {}
    LogoutAuthRequest <=> LogoutRequest {}
    LogoutAuthResponse <=> LogoutResponse {}
    CancelSessionNotification <=> CancelNotification { session_id }
}
