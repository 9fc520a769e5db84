//! The tables of the methods that are not stable.
//!
//! They are apart from [`ClientRequest`](crate::ClientRequest) and the other tables of the stable protocol, so that
//! a crate that matches those compiles with and without this feature.

use super::*;
use crate::MethodRow;
use crate::v1::methods;

methods! {
    Agent, AGENT_METHODS;
    /// The result of an unstable request to an agent.
    UnstableAgentResponse;
    /// An unstable request that a client sends to an agent.
    UnstableClientRequest {
        "auth/status" AuthStatus(AuthStatusRequest) -> AuthStatusResponse,
        "session/archive" ArchiveSession(ArchiveSessionRequest) -> ArchiveSessionResponse,
        "session/unarchive" UnarchiveSession(UnarchiveSessionRequest) -> UnarchiveSessionResponse,
        "session/set_title" SetSessionTitle(SetSessionTitleRequest) -> SetSessionTitleResponse,
        "session/status" SessionStatus(SessionStatusRequest) -> SessionStatusResponse,
        "session/fork" ForkSession(ForkSessionRequest) -> ForkSessionResponse,
        "session/options" SessionOptions(SessionOptionsRequest) -> SessionOptionsResponse,
        "providers/list" ListProviders(ListProvidersRequest) -> ListProvidersResponse,
        "providers/set" SetProvider(SetProviderRequest) -> SetProviderResponse,
        "providers/disable" DisableProvider(DisableProviderRequest) -> DisableProviderResponse,
    } with {}
    /// An unstable notification that a client sends to an agent.
    UnstableClientNotification {
        "mcp/message" MessageMcp(MessageMcpNotification),
    } with {}
}

methods! {
    Client, CLIENT_METHODS;
    /// The result of an unstable request to a client.
    UnstableClientResponse;
    /// An unstable request that an agent sends to a client.
    UnstableAgentRequest {
        "mcp/message" MessageMcp(MessageMcpRequest) -> MessageMcpResponse,
    } with {}
    /// An unstable notification that an agent sends to a client.
    UnstableAgentNotification {
        "auth/status_update" AuthStatusUpdate(AuthStatusUpdateNotification),
    } with {}
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
        "proxy/successor" Successor(ProxySuccessorRequest) -> ProxySuccessorResponse,
    } with {}
    /// A notification in a chain of proxies.
    ProxyNotification {
        "proxy/successor" Successor(ProxySuccessorNotification),
    } with {}
}

/// Every unstable method, by the side that handles it: agent, client, and programs of a chain of proxies.
pub const UNSTABLE_METHODS: [&[MethodRow]; 3] = [AGENT_METHODS, CLIENT_METHODS, PROXY_METHODS];
