//! Routes the messages of the client to the methods of the [`Agent`].
//!
//! The reader calls this code. Steps that must keep the order of the wire run at once: taking the slot for
//! a turn, taking a ticket of a session, a cancellation. The rest runs in a task of its own.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use duologue_exchange::{ExchangeConnector, ExchangeService};
use duologue_rpc::{Closed, Extensions, Incoming, Limits, Peer, Responder, Service};
use duologue_schema::{
    AgentCapabilities, AuthMethod, AuthenticateResponse, ClientNotification, ClientRequest,
    CloseSessionResponse, ConfigOptionUpdate, ContentBlock, CurrentModeUpdate, DeleteSessionResponse,
    DuologueCapabilities, Error as WireError, InitializeRequest, InitializeResponse, LoadSessionResponse,
    LogoutResponse, McpServer, Meta, NewSessionResponse, PromptRequest, PromptResponse, ProtocolVersion,
    ResumeSessionResponse, SessionConfigOption, SessionConfigOptionValue, SessionId, SessionModeId,
    SetSessionConfigOptionRequest, SetSessionConfigOptionResponse, SetSessionModeRequest,
    SetSessionModeResponse, StopReason, path_fault,
};
use serde::Serialize;

use crate::agent::{Agent, Prompt, SessionSetup};
use crate::client::ClientHandle;
use crate::context::Context;
use crate::error::{Error, Result};
use crate::message::ClearPolicy;
use crate::session::{QueueTicket, Reservation, Session, SessionMemory, SessionParams};
use crate::session_table::SessionTable;
use crate::settings::{ModeMirror, ModeSource};
use crate::turn::Turn;
use crate::unhandled::{check_capabilities, is_unhandled};

/// Creates the [`SessionParams`] from a request that creates or restores a session.
macro_rules! params {
    ($request:ident, $reservation:ident) => {
        SessionParams {
            cwd: $request.cwd,
            additional_directories: $request.additional_directories,
            mcp_servers: $request.mcp_servers,
            meta: $request.meta,
            reservation: $reservation,
        }
    };
}

/// Adds the `_meta` that the handler has set to a response.
macro_rules! answered {
    ($response:expr, $context:ident) => {{
        let mut response = $response;
        response.meta = $context.answer_meta();
        Ok(response)
    }};
}

pub(crate) struct AgentService<A> {
    shared: Arc<Shared<A>>,
    exchange: ExchangeService,
    extensions: Extensions,
}

struct Shared<A> {
    agent: A,
    client: ClientHandle,
    sessions: SessionTable,
    memory: SessionMemory,
    /// The capabilities of the agent and of its exchange.
    capabilities: AgentCapabilities,
    /// The capabilities of the exchange, if there is one.
    of_exchange: Option<DuologueCapabilities>,
    /// The capabilities in the response to `initialize`.
    advertised: OnceLock<AgentCapabilities>,
}

impl<A: Agent> AgentService<A> {
    pub(crate) fn new(
        agent: A,
        peer: &Peer,
        exchange: ExchangeConnector,
        extensions: Extensions,
        clear_policy: ClearPolicy,
    ) -> Self {
        let sessions = SessionTable::default();
        let mut capabilities = agent.capabilities();
        exchange.advertise(&mut capabilities.meta);
        let mut of_exchange = None;
        exchange.advertise(&mut of_exchange);
        let of_exchange = of_exchange.map(|meta| DuologueCapabilities::of(Some(&meta)));
        let known = sessions.clone();
        // Handlers keep the id for longer than the message is counted, so its length is limited.
        let knows = move |id: &SessionId| id.as_str().len() <= Limits::ID_BYTES && known.contains(id);
        let exchange = exchange.start(peer, knows, sessions.downgrade());
        let client = ClientHandle::new(peer.clone(), exchange.peer_agent().clone(), clear_policy);
        AgentService {
            shared: Arc::new(Shared {
                agent,
                client,
                sessions,
                memory: SessionMemory::default(),
                capabilities,
                of_exchange,
                advertised: OnceLock::new(),
            }),
            exchange,
            extensions,
        }
    }

    /// Passes a request that is not part of ACP to the exchange, then to the user's extensions.
    fn extension(&self, request: Incoming<'_>, responder: Responder) -> Result<(), Responder> {
        let to_exchange = match self.shared.client.is_initialized() {
            true => self.exchange.request(request, responder),
            false => Err(responder),
        };
        to_exchange
            .or_else(|responder| self.extensions.request(request, responder))
            .or_else(|responder| self.exchange.unknown_request(request, responder))
    }

    /// Handles `initialize`. A rejected request leaves no trace.
    fn initialize(&self, initialize: InitializeRequest) -> Result<InitializeResponse, WireError> {
        let shared = &self.shared;
        if shared.client.is_initialized() {
            return Err(WireError::invalid_request("initialized already"));
        }
        let response = shared.introduction(&initialize)?;
        let _ = shared.advertised.set(response.agent_capabilities.clone());
        self.exchange.set_peer_capabilities(initialize.client_capabilities.meta.as_ref());
        shared.client.set_initialize_request(initialize);
        Ok(response)
    }

    fn route(&self, request: ClientRequest, wire_bytes: usize, responder: Responder) {
        let shared = self.shared.clone();
        if !shared.client.is_initialized() && !matches!(request, ClientRequest::Initialize(_)) {
            return refuse(responder, WireError::invalid_request("initialize first"));
        }
        let method = request.method();
        let context = |responder: &Responder, meta: &Option<Meta>| {
            Context::new(self.shared.client.clone(), responder.context(method, meta.clone()))
        };
        match request {
            ClientRequest::Initialize(initialize) => responder.respond(self.initialize(initialize)),
            ClientRequest::Authenticate(request) => {
                let context = context(&responder, &request.meta);
                answer(responder, async move {
                    shared.agent.authenticate(&context, request).await?;
                    answered!(AuthenticateResponse::new(), context)
                });
            }
            ClientRequest::Logout(request) => {
                let context = context(&responder, &request.meta);
                answer(responder, async move {
                    shared.agent.logout(&context).await?;
                    answered!(LogoutResponse::new(), context)
                });
            }
            ClientRequest::NewSession(request) => {
                let Some((reservation, responder)) = shared.reserve(wire_bytes, responder) else { return };
                let context = context(&responder, &request.meta);
                shared.new_session(context, params!(request, reservation), responder);
            }
            ClientRequest::LoadSession(request) => {
                let Some((reservation, responder)) = shared.reserve(wire_bytes, responder) else { return };
                let context = context(&responder, &request.meta);
                let params = params!(request, reservation);
                let missing = is_unhandled(A::load_session).then_some(method);
                shared.restore(
                    request.session_id,
                    params,
                    missing,
                    responder,
                    |shared, session| async move {
                        let setup =
                            shared.offer(&session, shared.agent.load_session(&context, &session).await?);
                        let mut response = LoadSessionResponse::new();
                        (response.modes, response.config_options) = (setup.modes, setup.config_options);
                        answered!(response, context)
                    },
                );
            }
            ClientRequest::ResumeSession(request) => {
                let Some((reservation, responder)) = shared.reserve(wire_bytes, responder) else { return };
                let context = context(&responder, &request.meta);
                let params = params!(request, reservation);
                let missing = is_unhandled(A::resume_session).then_some(method);
                shared.restore(
                    request.session_id,
                    params,
                    missing,
                    responder,
                    |shared, session| async move {
                        let setup =
                            shared.offer(&session, shared.agent.resume_session(&context, &session).await?);
                        let mut response = ResumeSessionResponse::new();
                        (response.modes, response.config_options) = (setup.modes, setup.config_options);
                        answered!(response, context)
                    },
                );
            }
            ClientRequest::ListSessions(request) => {
                let context = context(&responder, &request.meta);
                answer(responder, async move {
                    if let Some(cwd) = &request.cwd {
                        check_path(cwd, "cwd")?;
                    }
                    let mut response = shared.agent.list_sessions(&context, request).await?;
                    response.meta = context.answer_meta().or(response.meta);
                    Ok(response)
                });
            }
            ClientRequest::DeleteSession(request) => {
                let context = context(&responder, &request.meta);
                // A session that is loaded later has the same id.
                let session = shared.session(&request.session_id);
                answer(responder, async move {
                    shared.agent.delete_session(&context, request).await?;
                    if let Some(session) = session {
                        shared.sessions.forget(&session);
                        session.cancel_turn();
                    }
                    answered!(DeleteSessionResponse::new(), context)
                });
            }
            // The turn of the session goes on.
            ClientRequest::CloseSession(_) if is_unhandled(A::close_session) => {
                refuse(responder, WireError::method_not_found(method));
            }
            ClientRequest::CloseSession(request) => {
                let context = context(&responder, &request.meta);
                shared.in_session(request.session_id, responder, |shared, session| {
                    let closing = session.begin_close();
                    async move {
                        session.turn_ended().await;
                        shared.agent.close_session(&context, &session).await?;
                        shared.sessions.forget(&session);
                        drop(closing);
                        answered!(CloseSessionResponse::new(), context)
                    }
                });
            }
            ClientRequest::SetSessionMode(request) => {
                let context = context(&responder, &request.meta);
                let id = request.session_id.clone();
                shared.in_session(id, responder, |shared, session| async move {
                    shared.set_mode(&context, &session, request).await?;
                    answered!(SetSessionModeResponse::new(), context)
                });
            }
            ClientRequest::SetSessionConfigOption(request) => {
                let context = context(&responder, &request.meta);
                let id = request.session_id.clone();
                shared.in_session(id, responder, |shared, session| async move {
                    let options = shared.set_config_option(&context, &session, request).await?;
                    answered!(SetSessionConfigOptionResponse::new(options), context)
                });
            }
            ClientRequest::Prompt(request) => {
                let context = context(&responder, &request.meta);
                shared.prompt(context, request, responder);
            }
        }
    }
}

impl<A: Agent> Service for AgentService<A> {
    fn request(&self, request: Incoming<'_>, responder: Responder) {
        match ClientRequest::decode(request.method, request.params) {
            Some(Ok(decoded)) => {
                self.route(decoded, request.wire_bytes, responder);
            }
            Some(Err(error)) => refuse(responder, error),
            None => {
                if let Err(responder) = self.extension(request, responder) {
                    responder.method_not_found(request.method);
                }
            }
        }
    }

    fn notification(&self, notification: Incoming<'_>) {
        match ClientNotification::decode(notification.method, notification.params) {
            Some(Ok(ClientNotification::Cancel(cancel))) => {
                let session = self.shared.sessions.get(&cancel.session_id);
                if let Some(session) = session {
                    session.cancel_turn();
                }
            }
            Some(Err(error)) => {
                tracing::debug!(method = notification.method, %error, "dropped a notification")
            }
            None => {
                let taken = self.exchange.notification(notification)
                    || self.extensions.notification(notification, self.shared.client.peer());
                if !taken {
                    self.exchange.unknown_notification(notification);
                }
            }
        }
    }

    fn closed(&self, reason: &Closed) {
        self.exchange.closed(reason);
    }
}

impl<A: Agent> Shared<A> {
    /// Returns the response to `initialize`.
    fn introduction(&self, initialize: &InitializeRequest) -> Result<InitializeResponse, WireError> {
        // There is one version so far. The response contains it in any case, and a client that does not
        // support it closes the connection.
        let mut response = InitializeResponse::new(ProtocolVersion::V1);
        response.agent_capabilities = self.capabilities.clone();
        response.agent_info = self.agent.info();
        response.auth_methods = self.agent.auth_methods(initialize);
        response = self.agent.initialize(initialize, response).map_err(Error::into_wire)?;
        if let Some(capabilities) = &self.of_exchange {
            capabilities.write_to(&mut response.agent_capabilities.meta);
        }
        if !initialize.client_capabilities.auth.terminal {
            // The protocol allows terminal logins only for clients that advertise them.
            response.auth_methods.retain(|method| !matches!(method, AuthMethod::Terminal(_)));
        }
        check_capabilities::<A>(&response).inspect_err(|error| tracing::error!("{error}"))?;
        Ok(response)
    }

    /// Returns the capabilities that were sent to the client. Its requests are checked against them.
    fn advertised(&self) -> &AgentCapabilities {
        self.advertised.get().unwrap_or(&self.capabilities)
    }

    /// Reserves memory for another session, or rejects the request.
    fn reserve(&self, wire_bytes: usize, responder: Responder) -> Option<(Reservation, Responder)> {
        if let Some(reservation) = self.memory.reserve(wire_bytes) {
            return Some((reservation, responder));
        }
        let mib = Session::BYTES_TOGETHER >> 20;
        let why =
            format!("session memory limit reached ({mib} MiB for all open sessions); close a session first");
        refuse(responder, WireError::internal(why));
        None
    }

    fn new_session(self: Arc<Self>, context: Context, params: SessionParams, responder: Responder) {
        if let Err(error) = self.check(&params) {
            return refuse(responder, error.into_wire());
        }
        responder.spawn_with(move |reply| async move {
            let grace = reply.peer().limits().cancel_grace;
            let made = self.make_session(&context, params);
            let made = duologue_rpc::with_cancel_grace(reply.cancellation(), grace, made);
            match made.await.unwrap_or_else(|| Err(WireError::request_cancelled().into())) {
                Ok((session, response)) => session.open(reply, response),
                Err(error) => reply.respond::<NewSessionResponse>(Err(error.into_wire())),
            }
        });
    }

    async fn make_session(
        &self,
        context: &Context,
        params: SessionParams,
    ) -> Result<(Session, NewSessionResponse)> {
        let id = self.agent.new_session_id().await?;
        if self.session(&id).is_some() {
            return Err(Error::other("the agent returned the id of an open session; ids must be unique"));
        }
        let session = Session::new(id.clone(), params, self.client.clone(), true);
        // Registered first, so that the client can use the id as soon as it receives it.
        let registration = self.sessions.register(session.clone());
        let setup = self.agent.new_session(context, &session).await?;
        registration.keep();
        let mut response = NewSessionResponse::new(id);
        let setup = self.offer(&session, setup);
        (response.modes, response.config_options) = (setup.modes, setup.config_options);
        response.meta = context.answer_meta();
        Ok((session, response))
    }

    /// Handles `session/load` and `session/resume`. The session is registered while the agent restores it,
    /// so that the agent can replay, and stays registered on success. Requests for the session wait for that. `missing` is
    /// the method, if the agent has not implemented it.
    fn restore<R, F>(
        self: Arc<Self>,
        id: SessionId,
        params: SessionParams,
        missing: Option<&str>,
        responder: Responder,
        work: impl FnOnce(Arc<Self>, Session) -> F,
    ) where
        R: Serialize + Send + 'static,
        F: Future<Output = Result<R>> + Send + 'static,
    {
        if let Err(error) = self.check(&params) {
            return refuse(responder, error.into_wire());
        }
        // The turn of an open session goes on.
        if let Some(method) = missing {
            return refuse(responder, WireError::method_not_found(method));
        }
        let session = Session::new(id, params, self.client.clone(), false);
        let registration = self.sessions.register(session.clone());
        if let Some(replaced) = &registration.replaced {
            replaced.cancel_turn();
        }
        let ticket = session.queue_ticket();
        let work = work(self, session);
        responder.spawn_with(move |responder| async move {
            let work = async {
                if let Some(replaced) = &registration.replaced {
                    // The last updates of the old turn must precede the replay.
                    replaced.turn_ended().await;
                }
                let restored = work.await.map_err(Error::into_wire)?;
                registration.keep();
                Ok(restored)
            };
            responder.answer_with(work).await;
            // The next request of the session begins after this response.
            drop(ticket);
        });
    }

    fn in_session<R, F>(
        self: Arc<Self>,
        id: SessionId,
        responder: Responder,
        work: impl FnOnce(Arc<Self>, Session) -> F,
    ) where
        R: Serialize + Send + 'static,
        F: Future<Output = Result<R>> + Send + 'static,
    {
        let Some(session) = self.session(&id) else { return refuse(responder, unknown_session()) };
        let mut ticket = session.queue_ticket();
        // Boxed, because a future that is moved into a task is copied for each layer around it.
        let work = Box::pin(work(self.clone(), session.clone()));
        responder.spawn_with(move |responder| async move {
            let work = async {
                self.wait_for_turn(&session, &mut ticket).await.map_err(Error::into_wire)?;
                work.await.map_err(Error::into_wire)
            };
            responder.answer_with(work).await;
            // The next request of the session begins after this response.
            drop(ticket);
        });
    }

    /// Waits until a request is first in the queue of its session. Fails if an earlier request closed the
    /// session.
    async fn wait_for_turn(&self, session: &Session, ticket: &mut QueueTicket) -> Result<()> {
        ticket.wait_turn().await;
        match self.session(session.id()) {
            Some(known) if known.is(session) => Ok(()),
            _ => Err(Error::Response(unknown_session())),
        }
    }

    fn prompt(self: Arc<Self>, context: Context, request: PromptRequest, responder: Responder) {
        let Some(session) = self.session(&request.session_id) else {
            return refuse(responder, unknown_session());
        };
        if let Err(error) = self.check_blocks(&request.prompt) {
            return refuse(responder, error);
        }
        let state = match session.begin_turn(responder.cancellation().clone()) {
            Ok(state) => state,
            Err(why) => return refuse(responder, WireError::invalid_request(why)),
        };
        let mut ticket = session.queue_ticket();
        let waits = ticket.must_wait();
        let running = RunningTurn { turn: Turn::new(session, context, state), over: false };
        let grace = responder.peer().limits().cancel_grace;
        let prompt = Prompt::new(request.prompt);
        responder.spawn_with(move |reply| async move {
            // In this order, so that a panic frees the slot for a turn before it sends the response.
            let reply = reply;
            let mut running = running;
            let turn = &running.turn;
            let work = async {
                let waited = self.wait_for_turn(turn.session(), &mut ticket).await;
                drop(ticket);
                if waits && turn.is_cancelled() {
                    // The prompt was cancelled in the queue. One that did not wait is passed to the agent.
                    return Ok(StopReason::Cancelled);
                }
                waited?;
                // Boxed, because each layer around it would be larger than the state of the agent's future.
                Box::pin(self.agent.prompt(turn, prompt)).await
            };
            let outcome = duologue_rpc::with_cancel_grace(reply.cancellation(), grace, work).await;
            let outcome = match outcome {
                _ if turn.is_cancelled() => Ok(StopReason::Cancelled),
                Some(outcome) => outcome,
                None => Ok(StopReason::Cancelled),
            };
            let meta = turn.context().answer_meta();
            let answer = outcome.map_err(Error::into_wire).map(|reason| {
                let mut response = PromptResponse::new(reason);
                response.meta = meta;
                response
            });
            running.end(|| reply.respond(answer));
        });
    }

    fn session(&self, id: &SessionId) -> Option<Session> {
        self.sessions.get(id)
    }

    /// Stores the modes and options of a session. Completes them, and removes those that the client does not support.
    fn offer(&self, session: &Session, mut setup: SessionSetup) -> SessionSetup {
        session.offer(&mut setup);
        setup.config_options = setup.config_options.map(|options| self.client.shown_options(options));
        setup
    }

    async fn set_mode(
        &self,
        context: &Context,
        session: &Session,
        request: SetSessionModeRequest,
    ) -> Result<()> {
        session.settings().check_mode(&request.mode_id)?;
        let mode = request.mode_id.clone();
        let mirror = session.settings().mirror().cloned();
        if let Some(ModeMirror { option, source: ModeSource::Option }) = mirror {
            let mut request = SetSessionConfigOptionRequest::new(request.session_id, option, mode.as_str());
            request.meta = context.meta().cloned();
            let options = self.agent.set_config_option(context, session, request).await?;
            // Without a wait: the agent has switched, and a cancelled request must not hide it.
            let switched = session.change_settings(|settings| {
                let switched = settings.set_options(options);
                (switched, Some(ConfigOptionUpdate::new(settings.options()).into()))
            })?;
            if let Some(switched) = switched {
                session.change_settings(|_| ((), Some(CurrentModeUpdate::new(switched).into())))?;
            }
            return session.settings().check_current_mode(&mode);
        }
        let changes_sent = session.settings().changes_sent();
        self.agent.set_mode(context, session, request).await?;
        session.change_settings(|settings| {
            let is_chosen = settings.changes_sent() != changes_sent;
            let changed = !is_chosen && settings.set_mode(&mode) && mirror.is_some();
            ((), changed.then(|| ConfigOptionUpdate::new(settings.options()).into()))
        })?;
        // The response has no mode, so success would mean the requested one.
        session.settings().check_current_mode(&mode)
    }

    async fn set_config_option(
        &self,
        context: &Context,
        session: &Session,
        request: SetSessionConfigOptionRequest,
    ) -> Result<Vec<SessionConfigOption>> {
        session.settings().check_option(&request)?;
        let mirror = session.settings().mirror().cloned();
        if let (
            Some(ModeMirror { option, source: ModeSource::Modes }),
            SessionConfigOptionValue::ValueId(value),
        ) = (mirror, &request.value)
            && option == request.config_id
        {
            let mode = SessionModeId::new(value.as_str());
            let mut request = SetSessionModeRequest::new(request.session_id, mode.clone());
            request.meta = context.meta().cloned();
            let changes_sent = session.settings().changes_sent();
            self.agent.set_mode(context, session, request).await?;
            session.change_settings(|settings| {
                let is_chosen = settings.changes_sent() != changes_sent;
                let changed = !is_chosen && settings.set_mode(&mode);
                ((), changed.then(|| CurrentModeUpdate::new(mode).into()))
            })?;
        } else {
            let options = self.agent.set_config_option(context, session, request).await?;
            session.change_settings(|settings| {
                let mode = settings.set_options(options);
                ((), mode.map(|mode| CurrentModeUpdate::new(mode).into()))
            })?;
        }
        let options = session.settings().options();
        Ok(self.client.shown_options(options))
    }

    fn check(&self, params: &SessionParams) -> Result<()> {
        check_path(&params.cwd, "cwd")?;
        params
            .additional_directories
            .iter()
            .try_for_each(|path| check_path(path, "additionalDirectories"))?;
        let mcp = &self.advertised().mcp_capabilities;
        for server in &params.mcp_servers {
            let (offered, transport) = match server {
                McpServer::Http(_) => (mcp.http, "http"),
                McpServer::Sse(_) => (mcp.sse, "sse"),
                McpServer::Stdio(_) => (true, "stdio"),
                unknown => (false, unknown.tag()),
            };
            if !offered {
                return Err(Error::invalid_params(format!("MCP servers over {transport} are not supported")));
            }
        }
        Ok(())
    }

    fn check_blocks(&self, blocks: &[ContentBlock]) -> Result<(), WireError> {
        let offered = &self.advertised().prompt_capabilities;
        for block in blocks {
            let (is_accepted, kind) = match block {
                ContentBlock::Text(_) | ContentBlock::ResourceLink(_) => (true, "text"),
                ContentBlock::Image(_) => (offered.image, "image"),
                ContentBlock::Audio(_) => (offered.audio, "audio"),
                ContentBlock::Resource(_) => (offered.embedded_context, "resource"),
                _ => (false, "unknown"),
            };
            if !is_accepted {
                return Err(WireError::invalid_params(format!("{kind} content is not supported in prompts")));
            }
        }
        Ok(())
    }
}

/// Frees the slot for a turn when the turn ends in any way, including a panic. It does so only once,
/// because the next turn may have the slot then.
struct RunningTurn {
    turn: Turn,
    over: bool,
}

impl RunningTurn {
    fn end(&mut self, answer: impl FnOnce()) {
        if !std::mem::replace(&mut self.over, true) {
            self.turn.end();
            self.turn.session().end_turn(answer);
        }
    }
}

impl Drop for RunningTurn {
    fn drop(&mut self) {
        self.end(|| {});
    }
}

fn check_path(path: &Path, field: &str) -> Result<()> {
    match path_fault(path) {
        Some(fault) => Err(Error::invalid_params(format!("{field} {fault}"))),
        None => Ok(()),
    }
}

fn unknown_session() -> WireError {
    WireError::resource_not_found("unknown session: create, load or resume it first")
}

fn refuse(responder: Responder, error: WireError) {
    responder.respond::<()>(Err(error));
}

fn answer<R, F>(responder: Responder, work: F)
where
    R: Serialize + Send + 'static,
    F: Future<Output = Result<R>> + Send + 'static,
{
    responder.spawn(async move { work.await.map_err(Error::into_wire) });
}

#[cfg(test)]
pub(crate) mod tests {
    use duologue_rpc::{CancellationToken, PeerBuilder, Transport};

    use super::*;

    type MakeSession<'a> = dyn Fn(&SessionMemory, bool) -> Session + 'a;
    type Test = fn(Responder, &ClientHandle, &MakeSession<'_>);

    /// Runs a test in the handler of a request, because a turn and an open session need one. A panic of the test fails
    /// the request.
    struct InRequest(Test);

    impl Service for InRequest {
        fn request(&self, _: Incoming<'_>, responder: Responder) {
            let peer = responder.peer();
            let exchange = ExchangeConnector::new(None).start(&peer, |_| true, ());
            let client = ClientHandle::new(peer, exchange.peer_agent().clone(), ClearPolicy::default());
            let make_session = |memory: &SessionMemory, hold_updates| {
                let params = SessionParams {
                    cwd: "/".into(),
                    additional_directories: Vec::new(),
                    mcp_servers: Vec::new(),
                    meta: None,
                    reservation: memory.reserve(0).unwrap(),
                };
                Session::new("s".into(), params, client.clone(), hold_updates)
            };
            (self.0)(responder, &client, &make_session);
        }

        fn notification(&self, _: Incoming<'_>) {}
    }

    /// Runs `test`, which has to respond.
    pub(crate) async fn in_request(test: Test) {
        let (ours, theirs) = Transport::memory();
        let server = PeerBuilder::new(theirs).start(|_| InRequest(test));
        let peer = PeerBuilder::new(ours).start(|_| InRequest(|responder, _, _| drop(responder)));
        peer.request_raw("_test", None).await.unwrap();
        peer.close();
        server.closed().await;
        assert_eq!(server.stats().dropped, 0, "the test panicked behind its response");
    }

    /// The next turn may have the slot when the first one is dropped.
    #[tokio::test]
    async fn a_turn_frees_its_slot_once() {
        in_request(|responder, client, make_session| {
            let session = make_session(&SessionMemory::default(), false);
            let state = session.begin_turn(CancellationToken::new()).unwrap();
            let context = Context::new(client.clone(), responder.context("session/prompt", None));
            let mut running = RunningTurn { turn: Turn::new(session.clone(), context, state), over: false };
            assert!(session.begin_turn(CancellationToken::new()).is_err());
            running.end(|| {});
            assert!(session.begin_turn(CancellationToken::new()).is_ok());
            drop(running);
            assert!(session.begin_turn(CancellationToken::new()).is_err());
            responder.respond(Ok(()));
        })
        .await;
    }
}
