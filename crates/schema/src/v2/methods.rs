//! The tables of methods of version 2.

use super::*;
use crate::MethodRow;
use crate::v1::methods;

methods! {
    Agent, AGENT_METHODS;
    /// The result of a request to an agent.
    AgentResponse;
    /// A request that a client sends to an agent.
    ClientRequest {
        "initialize" Initialize(InitializeRequest) -> InitializeResponse,
        "auth/login" LoginAuth(LoginAuthRequest) -> LoginAuthResponse,
        "auth/logout" LogoutAuth(LogoutAuthRequest) -> LogoutAuthResponse,
        "session/new" NewSession(NewSessionRequest) -> NewSessionResponse,
        "session/resume" ResumeSession(ResumeSessionRequest) -> ResumeSessionResponse,
        "session/fork" ForkSession(ForkSessionRequest) -> ForkSessionResponse,
        "session/set_config_option"
            SetSessionConfigOption(SetSessionConfigOptionRequest) -> SetSessionConfigOptionResponse,
        "session/prompt" Prompt(PromptRequest) -> PromptResponse,
        "tool_call/cancel" CancelToolCall(CancelToolCallRequest) -> CancelToolCallResponse,
        "terminal/cancel" CancelTerminal(CancelTerminalRequest) -> CancelTerminalResponse,
    } with {
        "session/list" ListSessions(ListSessionsRequest) -> ListSessionsResponse,
        "session/delete" DeleteSession(DeleteSessionRequest) -> DeleteSessionResponse,
        "session/close" CloseSession(CloseSessionRequest) -> CloseSessionResponse,
        "auth/status" AuthStatus(AuthStatusRequest) -> AuthStatusResponse,
        "session/archive" ArchiveSession(ArchiveSessionRequest) -> ArchiveSessionResponse,
        "session/unarchive" UnarchiveSession(UnarchiveSessionRequest) -> UnarchiveSessionResponse,
        "session/set_title" SetSessionTitle(SetSessionTitleRequest) -> SetSessionTitleResponse,
        "session/status" SessionStatus(SessionStatusRequest) -> SessionStatusResponse,
        "session/options" SessionOptions(SessionOptionsRequest) -> SessionOptionsResponse,
        "providers/list" ListProviders(ListProvidersRequest) -> ListProvidersResponse,
        "providers/set" SetProvider(SetProviderRequest) -> SetProviderResponse,
        "providers/disable" DisableProvider(DisableProviderRequest) -> DisableProviderResponse,
    }
    /// A notification that a client sends to an agent.
    ClientNotification {
        "session/cancel" CancelSession(CancelSessionNotification),
    } with {
        "mcp/message" MessageMcp(MessageMcpNotification),
    }
}

methods! {
    Client, CLIENT_METHODS;
    /// The result of a request to a client.
    ClientResponse;
    /// A request that an agent sends to a client.
    AgentRequest {
        "session/request_permission"
            RequestPermission(RequestPermissionRequest) -> RequestPermissionResponse,
    } with {
        "elicitation/create" CreateElicitation(CreateElicitationRequest) -> CreateElicitationResponse,
        "mcp/message" MessageMcp(MessageMcpRequest) -> MessageMcpResponse,
    }
    /// A notification that an agent sends to a client.
    AgentNotification {
        "session/update" UpdateSession(UpdateSessionNotification),
    } with {
        "elicitation/complete" CompleteElicitation(CompleteElicitationNotification),
        "auth/status_update" AuthStatusUpdate(AuthStatusUpdateNotification),
    }
}

methods! {
    Protocol,
    /// The methods between the programs of a chain of proxies.
    pub PROXY_METHODS;
    /// The result of a request in a chain of proxies.
    ProxyResponse;
    /// A request in a chain of proxies.
    ProxyRequest {
        "proxy/initialize" Initialize(InitializeProxyRequest) -> InitializeProxyResponse,
    } with {
        "proxy/successor" Successor(ProxySuccessorRequest) -> ProxySuccessorResponse,
    }
    /// A notification in a chain of proxies.
    ProxyNotification {} with {
        "proxy/successor" Successor(ProxySuccessorNotification),
    }
}

/// Every method of version 2, by the side that handles it. The unstable ones are also in
/// [`UNSTABLE_METHODS`](crate::UNSTABLE_METHODS).
pub const METHODS: [&[MethodRow]; 3] = [AGENT_METHODS, CLIENT_METHODS, crate::METHODS[2]];
