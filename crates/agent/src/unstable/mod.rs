//! The unstable methods: their capabilities and their requests.

use duologue_rpc::{Incoming, Responder};
use duologue_schema::{
    AgentCapabilities, ArchiveSessionRequest, ArchiveSessionResponse, AuthState, AuthStatusRequest,
    AuthStatusResponse, AuthStatusUpdateNotification, DisableProviderRequest, DisableProviderResponse,
    ErrorCode, ForkSessionRequest, InitialSessionConfigOption, ListProvidersRequest, ListProvidersResponse,
    Meta, Request, SessionArchiveFilter, SessionId, SessionOptionsRequest, SessionOptionsResponse,
    SessionStatus, SessionStatusRequest, SessionStatusResponse, SetProviderRequest, SetProviderResponse,
    SetSessionTitleRequest, SetSessionTitleResponse, UnarchiveSessionRequest, UnarchiveSessionResponse,
    UnstableClientRequest,
};
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::agent::Agent;
use crate::client::ClientHandle;
use crate::context::Context;
use crate::error::{Error, Result};
use crate::service::{AgentService, answer, refuse};
use crate::session::{Beginning, Session, SessionParams};
use crate::unhandled::is_unhandled;

/// Returns the unstable capabilities: if the agent advertises each, if its method is missing, and both names.
pub(crate) fn advertised<A: Agent>(
    agent: &AgentCapabilities,
) -> [(bool, bool, &'static str, &'static str); 10] {
    let AgentCapabilities { session_capabilities: session, auth, providers, .. } = agent;
    let (archive, providers) = (session.archive.is_some(), providers.is_some());
    [
        (
            auth.status.is_some(),
            is_unhandled(|agent: &A, context, ()| agent.auth_status(context)),
            "auth.status",
            "auth_status",
        ),
        (
            session.title.is_some(),
            is_unhandled(A::set_session_title),
            "sessionCapabilities.title",
            "set_session_title",
        ),
        (archive, is_unhandled(A::archive_session), "sessionCapabilities.archive", "archive_session"),
        (archive, is_unhandled(A::unarchive_session), "sessionCapabilities.archive", "unarchive_session"),
        (
            session.status.is_some(),
            is_unhandled(A::session_status),
            "sessionCapabilities.status",
            "session_status",
        ),
        (
            session.options.is_some(),
            is_unhandled(A::session_options),
            "sessionCapabilities.options",
            "session_options",
        ),
        (
            session.fork.is_some(),
            is_unhandled(|agent: &A, context, (session, origin): (&Session, SessionId)| {
                agent.fork_session(context, session, origin)
            }),
            "sessionCapabilities.fork",
            "fork_session",
        ),
        (
            providers,
            is_unhandled(|agent: &A, context, ()| agent.list_providers(context)),
            "providers",
            "list_providers",
        ),
        (providers, is_unhandled(A::set_provider), "providers", "set_provider"),
        (providers, is_unhandled(A::disable_provider), "providers", "disable_provider"),
    ]
}

/// Returns true for an unstable method that the agent has advertised.
fn is_advertised(method: &str, agent: &AgentCapabilities) -> bool {
    let session = &agent.session_capabilities;
    match method {
        AuthStatusRequest::METHOD => agent.auth.status.is_some(),
        SetSessionTitleRequest::METHOD => session.title.is_some(),
        ArchiveSessionRequest::METHOD | UnarchiveSessionRequest::METHOD => session.archive.is_some(),
        SessionStatusRequest::METHOD => session.status.is_some(),
        SessionOptionsRequest::METHOD => session.options.is_some(),
        ForkSessionRequest::METHOD => session.fork.is_some(),
        ListProvidersRequest::METHOD | SetProviderRequest::METHOD | DisableProviderRequest::METHOD => {
            agent.providers.is_some()
        }
        _ => false,
    }
}

/// Fails for a filter of sessions that the agent does not support. `exclude` is the default.
pub(crate) fn check_archive_filter(
    filter: Option<&SessionArchiveFilter>,
    agent: &AgentCapabilities,
) -> Result<()> {
    let is_supported = match filter {
        None | Some(SessionArchiveFilter::Exclude) => true,
        Some(SessionArchiveFilter::Include | SessionArchiveFilter::Only) => {
            agent.session_capabilities.archive.is_some()
        }
        Some(_) => false,
    };
    if !is_supported {
        let filter = filter.map(SessionArchiveFilter::as_str).unwrap_or_default();
        return Err(Error::invalid_params(format!(
            "the filter {filter:?} of archived sessions is not supported"
        )));
    }
    Ok(())
}

/// Fails if two of the first values are for one option.
pub(crate) fn check_initial_options(options: &[InitialSessionConfigOption]) -> Result<()> {
    let mut seen = HashSet::new();
    match options.iter().find(|option| !seen.insert(&option.config_id)) {
        None => Ok(()),
        Some(_) => Err(Error::invalid_params("`configOptions` has two values for one `configId`; send one")),
    }
}

impl Session {
    /// Returns the first values of config options from the client, if the agent advertises
    /// `session_capabilities.options`. Ignore an unknown option and a value that does not fit.
    #[must_use]
    pub fn initial_options(&self) -> &[InitialSessionConfigOption] {
        &self.params().initial_options
    }
}

/// The state of the unstable methods of a connection.
#[derive(Default)]
pub(crate) struct UnstableState {
    has_auth_status: AtomicBool,
}

impl UnstableState {
    /// Stores the capabilities that the agent has advertised.
    pub(crate) fn set_advertised(&self, agent: &AgentCapabilities) {
        self.has_auth_status.store(agent.auth.status.is_some(), Relaxed);
    }
}

impl ClientHandle {
    /// Reports that the state of authentication has changed. Waits while the client is slow to read.
    ///
    /// # Errors
    ///
    /// [`Error::Other`] if the agent does not advertise `auth.status`, and [`Error::Connection`] after the end of the
    /// connection.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future while it waits sends nothing.
    pub async fn auth_status_changed(&self, status: AuthStatusUpdateNotification) -> Result<()> {
        if !self.unstable().has_auth_status.load(Relaxed) {
            return Err(Error::other("the agent does not advertise auth.status"));
        }
        loop {
            self.peer().ready().await?;
            if self.peer().try_notify(&status)? {
                return Ok(());
            }
        }
    }
}

impl<A: Agent> AgentService<A> {
    /// Handles an unstable request.
    ///
    /// # Errors
    ///
    /// Returns the responder for another method, and for one that the agent has not advertised.
    pub(crate) fn unstable_request(
        &self,
        request: Incoming<'_>,
        responder: Responder,
    ) -> Result<(), Responder> {
        let client = &self.shared.client;
        if !client.is_initialized() || !is_advertised(request.method, self.shared.advertised()) {
            return Err(responder);
        }
        #[cfg(feature = "protocol-v2")]
        if client.is_v2() && request.method == ForkSessionRequest::METHOD {
            use duologue_schema::v2;

            match v2::ClientRequest::decode(request.method, request.params) {
                Some(Ok(v2::ClientRequest::ForkSession(fork))) => {
                    self.fork(fork.into(), request.wire_bytes, responder);
                }
                Some(Err(error)) => refuse(responder, error),
                _ => return Err(responder),
            }
            return Ok(());
        }
        match UnstableClientRequest::decode(request.method, request.params) {
            Some(Ok(decoded)) => self.route_unstable(decoded, request.wire_bytes, responder),
            Some(Err(error)) => refuse(responder, error),
            None => return Err(responder),
        }
        Ok(())
    }

    fn route_unstable(&self, request: UnstableClientRequest, wire_bytes: usize, responder: Responder) {
        let shared = self.shared.clone();
        let (method, version) = (request.method(), shared.client.protocol_version());
        let context = |responder: &Responder, meta: &Option<Meta>| {
            Context::new(self.shared.client.clone(), responder.context(method, meta.clone()))
        };
        match request {
            UnstableClientRequest::AuthStatus(request) => {
                let context = context(&responder, &request.meta);
                answer(version, responder, async move {
                    let mut response = match shared.agent.auth_status(&context).await {
                        // The protocol forbids this error here. The state has the same meaning.
                        Err(Error::Response(error)) if error.code == ErrorCode::AUTH_REQUIRED => {
                            AuthStatusResponse::new(AuthState::Unauthenticated)
                        }
                        status => status?,
                    };
                    response.meta = context.answer_meta().or(response.meta);
                    Ok(response)
                });
            }
            UnstableClientRequest::SetSessionTitle(request) => {
                let context = context(&responder, &request.meta);
                answer(version, responder, async move {
                    let title = shared.agent.set_session_title(&context, request).await?;
                    let mut response = SetSessionTitleResponse::new(title);
                    response.meta = context.answer_meta();
                    Ok(response)
                });
            }
            UnstableClientRequest::ArchiveSession(request) => {
                let context = context(&responder, &request.meta);
                let open = shared.session(&request.session_id);
                let closing = open.as_ref().map(Session::begin_close);
                answer(version, responder, async move {
                    if let Some(session) = &open {
                        session.turn_ended().await;
                    }
                    shared.agent.archive_session(&context, request).await?;
                    if let Some(session) = open {
                        #[cfg(feature = "protocol-v2")]
                        if shared.client.is_v2() {
                            session.end_session();
                        }
                        shared.sessions.forget(&session);
                    }
                    drop(closing);
                    let mut response = ArchiveSessionResponse::new();
                    response.meta = context.answer_meta();
                    Ok(response)
                });
            }
            UnstableClientRequest::UnarchiveSession(request) => {
                let context = context(&responder, &request.meta);
                answer(version, responder, async move {
                    shared.agent.unarchive_session(&context, request).await?;
                    let mut response = UnarchiveSessionResponse::new();
                    response.meta = context.answer_meta();
                    Ok(response)
                });
            }
            UnstableClientRequest::SessionStatus(request) => {
                let context = context(&responder, &request.meta);
                answer(version, responder, async move {
                    let open = shared.session(&request.session_id);
                    let status = match &open {
                        Some(_) => SessionStatus::Open,
                        None => shared.agent.session_status(&context, request).await?,
                    };
                    let mut response = SessionStatusResponse::new(status);
                    #[cfg(feature = "protocol-v2")]
                    {
                        let open = open.filter(|_| shared.client.is_v2());
                        response.state = open.map(|session| session.state_of_work());
                    }
                    response.meta = context.answer_meta();
                    Ok(response)
                });
            }
            UnstableClientRequest::SessionOptions(request) => {
                let context = context(&responder, &request.meta);
                answer(version, responder, async move {
                    let setup = shared.agent.session_options(&context, request).await?;
                    let mut response = SessionOptionsResponse::new();
                    let options = setup.config_options.map(|options| shared.client.shown_options(options));
                    (response.modes, response.config_options) = (setup.modes, options);
                    response.meta = context.answer_meta();
                    Ok(response)
                });
            }
            UnstableClientRequest::ForkSession(request) => self.fork(request, wire_bytes, responder),
            UnstableClientRequest::ListProviders(request) => {
                let context = context(&responder, &request.meta);
                answer(version, responder, async move {
                    let mut response =
                        ListProvidersResponse::new(shared.agent.list_providers(&context).await?);
                    response.meta = context.answer_meta();
                    Ok(response)
                });
            }
            UnstableClientRequest::SetProvider(request) => {
                let context = context(&responder, &request.meta);
                answer(version, responder, async move {
                    shared.agent.set_provider(&context, request).await?;
                    let mut response = SetProviderResponse::new();
                    response.meta = context.answer_meta();
                    Ok(response)
                });
            }
            UnstableClientRequest::DisableProvider(request) => {
                let context = context(&responder, &request.meta);
                answer(version, responder, async move {
                    shared.agent.disable_provider(&context, request).await?;
                    let mut response = DisableProviderResponse::new();
                    response.meta = context.answer_meta();
                    Ok(response)
                });
            }
        }
    }

    /// Handles `session/fork`, which begins a session as `session/new` does. Agents of this crate fork whole sessions only.
    fn fork(&self, request: ForkSessionRequest, wire_bytes: usize, responder: Responder) {
        if request.cursor_id.is_some() {
            let message = "`cursorId` names no cursor of the session; fork without it for the whole session";
            return refuse(responder, duologue_schema::Error::invalid_params(message));
        }
        let shared = self.shared.clone();
        let Some((reservation, responder)) = shared.reserve(wire_bytes, responder) else { return };
        let context = responder.context(ForkSessionRequest::METHOD, request.meta.clone());
        let context = Context::new(shared.client.clone(), context);
        let params = SessionParams {
            cwd: request.cwd,
            additional_directories: request.additional_directories,
            mcp_servers: request.mcp_servers,
            meta: request.meta,
            system_prompt: request.system_prompt,
            initial_options: request.config_options,
            reservation,
        };
        shared.new_session(context, params, Beginning::Fork(request.session_id), responder);
    }
}
