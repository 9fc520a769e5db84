//! The sessions of a gateway over ACP: one path for each agent, and connections that belong to principals.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{CACHE_CONTROL, CONNECTION, CONTENT_TYPE, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, Method, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use duologue_http::{
    AgentConnection, AgentEndpoint, ConnectRequest, ConnectionStanding, Endpoint, HttpRequestHead, Rejection,
    RemoteConnectionId, ResumeRefused, ResumeRequest, Resumed, ServerOptions, endpoint_router,
};
use duologue_rpc::{Lock as _, SecretText};

use crate::audit;
use crate::gateway::access::{Action, Principal};
#[cfg(feature = "page")]
use crate::gateway::page::{self, PageChecks};
use crate::gateway::rest::{self, RefusalBody};
use crate::gateway::{GatewayShared, Refusal, RefusalCode, attach};
use crate::place_counts::PlaceCounts;

/// Paths without a key: their answers say nothing about agents and principals.
const OPEN_PATHS: [&str; 2] = ["/health", "/ready"];

/// An agent and a principal.
type EndpointKey = (String, Arc<str>);

/// The connections of all principals with all agents.
#[derive(Clone, Default)]
pub(crate) struct PrincipalEndpoints {
    /// Token providers have any number of principals. Those without a connection are removed when another one comes.
    all: Arc<Mutex<HashMap<EndpointKey, AgentEndpoint>>>,
}

impl PrincipalEndpoints {
    /// Returns the endpoint of an agent and a principal.
    pub(crate) fn get_or_insert(
        &self,
        agent: &str,
        principal: &Arc<str>,
        create: impl FnOnce() -> AgentEndpoint,
    ) -> AgentEndpoint {
        let mut all = self.all.lock_unpoisoned();
        let key = (agent.to_owned(), principal.clone());
        if let Some(found) = all.get(&key) {
            return found.clone();
        }
        all.retain(|_, endpoint| !endpoint.is_unused());
        all.entry(key).or_insert_with(create).clone()
    }

    /// Waits until the clients have been sent what is for them.
    pub(crate) async fn flush(&self, limit: Duration) {
        let all: Vec<_> = self.all.lock_unpoisoned().values().cloned().collect();
        for endpoint in all {
            endpoint.flush(limit).await;
        }
    }
}

/// The path of all agents, or of one.
struct AgentPath {
    gateway: Arc<GatewayShared>,
    /// The agent of a path that names none.
    agent: Option<String>,
    endpoints: PrincipalEndpoints,
}

impl AgentPath {
    /// Returns the endpoint of the principal that has sent a request, if it may use the sessions of the agent.
    fn endpoint(&self, head: &HttpRequestHead) -> Option<AgentEndpoint> {
        let principal = head.extensions.get::<Principal>()?;
        let agent = agent_of(self.agent.as_deref(), head.uri.path());
        self.gateway.permit(principal, Action::Session, agent).ok()?;
        let hub = self.gateway.hosted(agent)?.hub.clone();
        Some(self.endpoints.get_or_insert(agent, &principal.id, || hub.endpoint(&principal.id)))
    }
}

/// Returns the agent of a path, which is `first` for one that names none.
fn agent_of<'a>(first: Option<&'a str>, path: &'a str) -> &'a str {
    first.or_else(|| path.strip_prefix("/acp/")).unwrap_or_default()
}

/// Refuses a principal that may not use the sessions of an agent, and an agent that is not there, before a connection is
/// opened.
async fn check_agent(
    State((gateway, first)): State<(Arc<GatewayShared>, Option<String>)>,
    request: Request,
    next: Next,
) -> Response {
    let agent = agent_of(first.as_deref(), request.uri().path());
    let principal = request.extensions().get::<Principal>();
    let may_use = principal.is_some_and(|it| gateway.permit(it, Action::Session, agent).is_ok());
    match gateway.hosted(agent).filter(|_| may_use) {
        Some(entry) if entry.rest.is_some() => {
            let why =
                format!("the agent {agent:?} has no sessions here; send it messages and tasks over REST");
            Refusal::new(RefusalCode::Conflict, why).into_response()
        }
        Some(_) => next.run(request).await,
        None => Refusal::not_found("agent").into_response(),
    }
}

impl Endpoint for AgentPath {
    type Connection = AgentConnection;

    async fn connect(&self, request: ConnectRequest) -> Result<AgentConnection, Rejection> {
        match self.endpoint(&request.head) {
            Some(endpoint) => endpoint.connect(request).await,
            None => Err(Rejection::new(Refusal::not_found("agent").message)),
        }
    }

    async fn resume(&self, request: ResumeRequest) -> Result<Resumed<AgentConnection>, ResumeRefused> {
        match self.endpoint(&request.head) {
            Some(endpoint) => endpoint.resume(request).await,
            None => Err(ResumeRefused::Unknown),
        }
    }

    async fn find(&self, id: &RemoteConnectionId, head: &HttpRequestHead) -> Option<AgentConnection> {
        self.endpoint(head)?.find(id, head).await
    }
}

/// Creates the router of a gateway. Every path except `/health` and `/ready` needs a key.
pub(crate) fn router(gateway: &Arc<GatewayShared>, options: &ServerOptions) -> (Router, PrincipalEndpoints) {
    let endpoints = PrincipalEndpoints::default();
    let mut router = Router::new();
    let mut options = options.clone();
    // The gateway checks the key.
    let token = options.token.take();
    let mut path_of = |path: &str, agent: Option<String>| {
        let checked = from_fn_with_state((gateway.clone(), agent.clone()), check_agent);
        let path_of_agent = AgentPath { gateway: gateway.clone(), agent, endpoints: endpoints.clone() };
        options.path = path.to_owned();
        endpoint_router(path_of_agent, options.clone()).route_layer(checked)
    };
    router = router.merge(path_of("/acp/{agentId}", None));
    // Without a name it is the first agent of the configuration.
    if let Some(first) = gateway.config.agents.first() {
        router = router.merge(path_of("/acp", Some(first.id.clone())));
    }
    let attached = PrincipalEndpoints::default();
    for path in [attach::ATTACH.to_owned(), format!("{}/{{agentId}}", attach::ATTACH)] {
        options.path = path;
        let path = attach::AttachPath { gateway: gateway.clone(), endpoints: attached.clone() };
        let checked = from_fn_with_state(gateway.clone(), attach::check);
        router = router.merge(endpoint_router(path, options.clone()).route_layer(checked));
    }
    let router = router.merge(rest::router(gateway));
    #[cfg(feature = "page")]
    let page = Arc::new(PageChecks::new(gateway, &options));
    #[cfg(feature = "page")]
    let router = router.merge(page::router(gateway, &page, token.clone()));
    let checks = RequestChecks {
        gateway: gateway.clone(),
        options,
        token,
        connections: PlaceCounts::default(),
        #[cfg(feature = "page")]
        page,
    };
    let checks = Arc::new(checks);
    let router = router
        .fallback(|| async {
            Refusal::new(RefusalCode::NotFound, "no such path; `/openapi.json` has those that there are")
        })
        .method_not_allowed_fallback(|| async {
            Refusal::new(
                RefusalCode::MethodNotAllowed,
                "the path has no such method; `Allow` has those that it has",
            )
        })
        .layer(from_fn_with_state(checks, check));
    (router, endpoints)
}

struct RequestChecks {
    gateway: Arc<GatewayShared>,
    options: ServerOptions,
    token: Option<SecretText>,
    /// The open connections of each principal, with the WebSockets.
    connections: PlaceCounts<Arc<str>>,
    #[cfg(feature = "page")]
    page: Arc<PageChecks>,
}

impl RequestChecks {
    /// Checks the origin and the key of a request. A path that needs no key has no principal.
    fn admit(&self, request: &Request) -> Result<Option<Principal>, Refusal> {
        if let Some(reason) = self.options.foreign_request(request.headers())
            && !self.is_of_page(request)
        {
            return Err(Refusal::new(RefusalCode::NotAuthorized, reason));
        }
        if OPEN_PATHS.contains(&request.uri().path()) {
            return Ok(None);
        }
        #[cfg(feature = "page")]
        if PageChecks::is_open(request.uri().path()) {
            return Ok(None);
        }
        let principal = self.authenticate(request);
        match principal {
            // It shows the way to the login.
            #[cfg(feature = "page")]
            Err(_) if request.uri().path() == "/" => Ok(None),
            principal => principal.map(Some),
        }
    }

    /// Returns true for a request of the page, whose origin is this server.
    #[cfg(feature = "page")]
    fn is_of_page(&self, request: &Request) -> bool {
        self.page.is_own_request(request, &self.options)
    }

    #[cfg(not(feature = "page"))]
    fn is_of_page(&self, _: &Request) -> bool {
        false
    }

    /// Returns the principal of the key, or of the login of the page.
    fn authenticate(&self, request: &Request) -> Result<Principal, Refusal> {
        #[cfg(feature = "page")]
        if let Some(sender) = self.page.sender(request.headers()) {
            return self.page.authenticate(&sender, request);
        }
        #[cfg(feature = "tls")]
        if let Some(certified) = self.gateway.certified(request) {
            return certified;
        }
        Ok(self.gateway.authenticate(request.headers(), self.token.as_ref())?.principal)
    }

    /// Counts the connection of a request as one of its principal.
    fn count(&self, request: &Request, principal: &Principal) -> Result<(), Refusal> {
        let limit = self.gateway.config.limits.principal_connections;
        let take = || self.connections.take(&principal.id, limit);
        match ConnectionStanding::accept_of(request.extensions(), &principal.id, take) {
            true => Ok(()),
            false => {
                let why = format!(
                    "{limit} connections of yours are open already; close one, or raise `limits.principal_connections`"
                );
                Err(Refusal::new(RefusalCode::Overloaded, why))
            }
        }
    }

    /// Counts a refusal, and records it if it is one of access.
    fn observe(&self, principal: Option<&str>, method: &Method, path: &str, response: &Response) {
        let Some(code) = response.extensions().get::<RefusalCode>() else { return };
        self.gateway.metrics.refused(*code);
        // A missing record is refused in the same way as that of another principal.
        let is_access = [RefusalCode::Unauthenticated, RefusalCode::NotAuthorized, RefusalCode::NotFound];
        if is_access.contains(code) {
            audit::refused(principal, method.as_str(), path, code.as_str());
        }
    }
}

/// Checks a request, and passes its principal on.
async fn check(State(checks): State<Arc<RequestChecks>>, mut request: Request, next: Next) -> Response {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let mut sender = None;
    #[cfg(feature = "page")]
    let is_of_page = checks.page.sender(request.headers()).is_some();
    #[cfg_attr(not(feature = "page"), allow(unused_mut))]
    let mut response = match checks.admit(&request) {
        Ok(None) => next.run(request).await,
        Ok(Some(principal)) => {
            sender = Some(principal.id.clone());
            match checks.count(&request, &principal) {
                Ok(()) => {
                    request.extensions_mut().insert(principal);
                    next.run(request).await
                }
                Err(refusal) => {
                    let mut response = refusal.into_response();
                    // It would be one connection more.
                    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                    response
                }
            }
        }
        Err(refusal) => refusal.into_response(),
    };
    if sender.is_some() {
        // RFC 9111 keeps a shared cache from answers to `Authorization`, and knows no other key.
        response.headers_mut().entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    }
    #[cfg(feature = "page")]
    if is_of_page {
        page::protect(response.headers_mut());
    }
    checks.observe(sender.as_deref(), &method, &path, &response);
    response
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let code = self.code;
        let body = serde_json::to_string(&RefusalBody::from(&self)).unwrap_or_default();
        let mut response = Response::new(Body::from(body));
        *response.status_mut() =
            StatusCode::from_u16(code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        response.extensions_mut().insert(code);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if code == RefusalCode::Unauthenticated {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use super::*;

    #[test]
    fn endpoints_without_connections_are_not_kept() {
        let endpoints = PrincipalEndpoints::default();
        let get = |name: &str| {
            endpoints.get_or_insert("writer", &Arc::from(name), || AgentEndpoint::new(|_| ready(())))
        };
        let held = get("held");
        for number in 0..100 {
            get(&format!("corp/{number}"));
        }
        assert!(!held.is_unused());
        let all = endpoints.all.lock_unpoisoned();
        assert_eq!(all.len(), 2, "that of the caller and the last one");
        assert!(all.keys().any(|(_, principal)| &**principal == "held"));
    }
}
