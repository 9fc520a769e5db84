//! Routes the messages of the client to the methods of the [`Agent`].
//!
//! The reader calls this code. Steps that must keep the order of the wire run at once: taking the slot for
//! a turn, taking a ticket of a session, a cancellation. The rest runs in a task of its own.

mod settings;

use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};

use duologue_exchange::{ExchangeConnector, ExchangeService};
use duologue_rpc::{Closed, Extensions, Incoming, Limits, Lock, Peer, Responder, Service};
use duologue_schema::{
    AgentCapabilities, AuthMethod, AuthMethodId, AuthenticateResponse, ClientNotification, ClientRequest,
    CloseSessionResponse, ContentBlock, DeleteSessionResponse, DuologueCapabilities, Error as WireError,
    InVersion, InitializeRequest, InitializeResponse, LoadSessionResponse, LogoutResponse, McpServer, Meta,
    NewSessionResponse, PromptRequest, PromptResponse, ProtocolVersion, Request, ResumeSessionResponse,
    SessionId, SetSessionConfigOptionResponse, SetSessionModeResponse, StopReason, Versioned, path_fault,
};

use crate::agent::{Agent, Prompt};
use crate::client::ClientHandle;
use crate::context::Context;
use crate::error::{Error, Result};
use crate::message::ClearPolicy;
use crate::prompt_answer::{OpenAnswer, PromptAnswer};
use crate::session::{Beginning, Session, SessionParams};
use crate::session_memory::{Reservation, SessionMemory};
use crate::session_queue::QueueTicket;
use crate::session_table::SessionTable;
use crate::steering::has_steering;
use crate::system_prompt::check_system_prompt;
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
            system_prompt: $request.system_prompt,
            #[cfg(feature = "unstable")]
            initial_options: $request.config_options,
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

/// Creates the response to a request that restored a session.
macro_rules! restored {
    ($response:ident, $setup:expr, $context:ident) => {{
        let (setup, mut response) = ($setup, $response::new());
        (response.modes, response.config_options) = (setup.modes, setup.config_options);
        answered!(response, $context)
    }};
}

pub(crate) struct AgentService<A> {
    pub(crate) shared: Arc<Shared<A>>,
    #[cfg(feature = "protocol-v2")]
    pub(crate) accepts_v2: bool,
    /// The negotiation that a later `initialize` may replace.
    introduced: Mutex<Option<Introduced>>,
    exchange: ExchangeService,
    extensions: Extensions,
}

/// The outcome of a successful `initialize`.
struct Introduced {
    initialize: InitializeRequest,
    version: ProtocolVersion,
    response: InitializeResponse,
}

pub(crate) struct Shared<A> {
    pub(crate) agent: A,
    pub(crate) client: ClientHandle,
    pub(crate) sessions: SessionTable,
    memory: SessionMemory,
    /// The capabilities of the agent and of its exchange.
    capabilities: AgentCapabilities,
    /// The capabilities of the exchange, if there is one.
    of_exchange: Option<DuologueCapabilities>,
    /// The response to `initialize`, with the capabilities and login methods that count.
    introduction: OnceLock<InitializeResponse>,
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
        let knows = move |id: &SessionId| may_be_kept(id) && known.contains(id);
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
                introduction: OnceLock::new(),
            }),
            #[cfg(feature = "protocol-v2")]
            accepts_v2: false,
            introduced: Mutex::default(),
            exchange,
            extensions,
        }
    }

    /// Sets if clients may use version 2.
    #[cfg(feature = "protocol-v2")]
    pub(crate) fn accepting_v2(self, accepts_v2: bool) -> Self {
        AgentService { accepts_v2, ..self }
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

    /// Handles a request that is not part of ACP.
    pub(crate) fn other_request(&self, request: Incoming<'_>, responder: Responder) {
        let known = self.steer(request, responder);
        #[cfg(feature = "unstable")]
        let known = known.or_else(|responder| self.unstable_request(request, responder));
        if let Err(responder) = known.or_else(|responder| self.extension(request, responder)) {
            responder.method_not_found(request.method);
        }
    }

    /// Handles `initialize` and begins a connection of `version`. A rejected request leaves no trace.
    pub(crate) fn initialize(
        &self,
        initialize: InitializeRequest,
        version: ProtocolVersion,
    ) -> Result<InVersion<InitializeResponse>, WireError> {
        let shared = &self.shared;
        if shared.client.is_initialized() {
            return Err(WireError::invalid_request("initialized already"));
        }
        let response = shared.introduce(&initialize, version)?;
        *self.introduced.lock_unpoisoned() =
            Some(Introduced { initialize, version, response: response.clone() });
        // In version 2 the client may repeat the request before any other. The last one counts.
        if version == ProtocolVersion::V1 {
            self.settle();
        }
        Ok(InVersion { version, message: response })
    }

    /// Begins the connection that the last `initialize` has negotiated, before another message is handled.
    fn settle(&self) {
        let Some(introduced) = self.introduced.lock_unpoisoned().take() else { return };
        let Introduced { initialize, version, response } = introduced;
        #[cfg(feature = "unstable")]
        self.shared.client.unstable().set_advertised(&response.agent_capabilities);
        let _ = self.shared.introduction.set(response);
        self.exchange.set_peer_capabilities(initialize.client_capabilities.meta.as_ref());
        self.shared.client.set_initialize_request(initialize, version);
    }

    pub(crate) fn route(&self, request: ClientRequest, wire_bytes: usize, responder: Responder) {
        let shared = self.shared.clone();
        if !shared.client.is_initialized() && !matches!(request, ClientRequest::Initialize(_)) {
            return refuse(responder, WireError::invalid_request("initialize first"));
        }
        let (method, version) = (request.method(), shared.client.protocol_version());
        let context = |responder: &Responder, meta: &Option<Meta>| {
            Context::new(self.shared.client.clone(), responder.context(method, meta.clone()))
        };
        match request {
            ClientRequest::Initialize(initialize) => {
                responder.respond(self.initialize(initialize, ProtocolVersion::V1));
            }
            ClientRequest::Authenticate(request) => {
                let context = context(&responder, &request.meta);
                answer(version, responder, async move {
                    shared.check_login(&request.method_id)?;
                    shared.agent.authenticate(&context, request).await?;
                    answered!(AuthenticateResponse::new(), context)
                });
            }
            ClientRequest::Logout(request) => {
                let context = context(&responder, &request.meta);
                answer(version, responder, async move {
                    shared.agent.logout(&context).await?;
                    answered!(LogoutResponse::new(), context)
                });
            }
            ClientRequest::NewSession(request) => {
                let Some((reservation, responder)) = shared.reserve(wire_bytes, responder) else { return };
                let context = context(&responder, &request.meta);
                shared.new_session(context, params!(request, reservation), Beginning::New, responder);
            }
            ClientRequest::LoadSession(request) => {
                let Some((reservation, responder)) = shared.reserve(wire_bytes, responder) else { return };
                let context = context(&responder, &request.meta);
                let missing = is_unhandled(A::load_session).then_some(method);
                let (id, params) = (request.session_id.clone(), params!(request, reservation));
                shared.restore(id, params, missing, responder, |shared, session| async move {
                    let setup = shared.agent.load_session(&context, &session).await?;
                    let setup = shared.offer(&session, setup)?;
                    #[cfg(feature = "protocol-v2")]
                    session.report_replayed();
                    restored!(LoadSessionResponse, setup, context)
                });
            }
            ClientRequest::ResumeSession(request) => {
                let Some((reservation, responder)) = shared.reserve(wire_bytes, responder) else { return };
                let context = context(&responder, &request.meta);
                let missing = is_unhandled(A::resume_session).then_some(method);
                #[cfg(feature = "protocol-v2")]
                if missing.is_some() && shared.client.is_v2() {
                    return shared.resume_open(request, responder);
                }
                let (id, params) = (request.session_id.clone(), params!(request, reservation));
                shared.restore(id, params, missing, responder, |shared, session| async move {
                    let setup = shared.agent.resume_session(&context, &session).await?;
                    restored!(ResumeSessionResponse, shared.offer(&session, setup)?, context)
                });
            }
            ClientRequest::ListSessions(request) => {
                let context = context(&responder, &request.meta);
                answer(version, responder, async move {
                    if let Some(cwd) = &request.cwd {
                        check_path(cwd, "cwd")?;
                    }
                    #[cfg(feature = "unstable")]
                    crate::unstable::check_archive_filter(request.archived.as_ref(), shared.advertised())?;
                    #[cfg(feature = "protocol-v2")]
                    if shared.client.is_v2() && is_unhandled(A::list_sessions) {
                        return shared.open_sessions(&request);
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
                answer(version, responder, async move {
                    shared.agent.delete_session(&context, request).await?;
                    if let Some(session) = session {
                        shared.sessions.forget(&session);
                        session.cancel_turn();
                    }
                    answered!(DeleteSessionResponse::new(), context)
                });
            }
            // The turn of the session goes on. In version 2 every agent can close.
            ClientRequest::CloseSession(_) if !shared.client.is_v2() && is_unhandled(A::close_session) => {
                refuse(responder, WireError::method_not_found(method));
            }
            #[cfg(feature = "protocol-v2")]
            ClientRequest::CloseSession(request)
                if shared.client.is_v2() && shared.session(&request.session_id).is_none() =>
            {
                // In version 2 an unknown session counts as closed.
                responder.respond(Ok(CloseSessionResponse::new()));
            }
            ClientRequest::CloseSession(request) => {
                let context = context(&responder, &request.meta);
                shared.in_session(request.session_id, responder, |shared, session| {
                    let closing = session.begin_close();
                    async move {
                        session.turn_ended().await;
                        if !is_unhandled(A::close_session) {
                            shared.agent.close_session(&context, &session).await?;
                        }
                        #[cfg(feature = "protocol-v2")]
                        if shared.client.is_v2() {
                            session.end_session();
                        }
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
                shared.prompt(context, request, wire_bytes, responder);
            }
        }
    }
}

impl<A: Agent> Service for AgentService<A> {
    fn request(&self, request: Incoming<'_>, responder: Responder) {
        if !self.shared.client.is_initialized() && request.method != InitializeRequest::METHOD {
            self.settle();
        }
        #[cfg(feature = "protocol-v2")]
        if self.speaks_v2(&request) {
            return self.request_v2(request, responder);
        }
        match ClientRequest::decode(request.method, request.params) {
            Some(Ok(decoded)) => {
                self.route(decoded, request.wire_bytes, responder);
            }
            Some(Err(error)) => refuse(responder, error),
            None => self.other_request(request, responder),
        }
    }

    fn notification(&self, notification: Incoming<'_>) {
        if !self.shared.client.is_initialized() {
            self.settle();
        }
        match ClientNotification::decode(notification.method, notification.params) {
            Some(Ok(ClientNotification::Cancel(cancel))) => {
                let session = self.shared.sessions.get(&cancel.session_id);
                match session {
                    Some(session) => session.cancel_turn(),
                    None => self.shared.client.children().cancel_child(&cancel.session_id),
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
    /// Returns the response to `initialize` in a connection of `version`.
    fn introduce(
        &self,
        initialize: &InitializeRequest,
        version: ProtocolVersion,
    ) -> Result<InitializeResponse, WireError> {
        // A client that does not support this version closes the connection.
        let mut response = InitializeResponse::new(version);
        response.agent_capabilities = self.capabilities.clone();
        response.agent_info = self.agent.info();
        response.auth_methods = self.agent.auth_methods(initialize);
        response = self.agent.initialize(initialize, response).map_err(Error::into_wire)?;
        if has_steering::<A>() {
            response.advertise_steering();
        }
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
    pub(crate) fn advertised(&self) -> &AgentCapabilities {
        self.introduction.get().map_or(&self.capabilities, |response| &response.agent_capabilities)
    }

    /// Fails for a login method that `initialize` has not offered. An agent without a login has no such request.
    fn check_login(&self, method: &AuthMethodId) -> Result<()> {
        if is_unhandled(A::authenticate) {
            return Ok(());
        }
        let offered = self.introduction.get().map_or(&[][..], |response| &response.auth_methods);
        Ok(AuthMethod::check(offered, method, self.client.protocol_version())?)
    }

    /// Reserves memory for another session, or rejects the request.
    pub(crate) fn reserve(
        &self,
        wire_bytes: usize,
        responder: Responder,
    ) -> Option<(Reservation, Responder)> {
        match self.memory.reserve(wire_bytes) {
            Ok(reservation) => Some((reservation, responder)),
            Err(error) => {
                refuse(responder, error);
                None
            }
        }
    }

    /// Handles a request for a session with a new id.
    pub(crate) fn new_session(
        self: Arc<Self>,
        context: Context,
        params: SessionParams,
        beginning: Beginning,
        responder: Responder,
    ) {
        if let Err(error) = self.check(&params) {
            return refuse(responder, error.into_wire());
        }
        responder.spawn_with(move |reply| async move {
            let grace = reply.peer().limits().cancel_grace;
            let made = self.make_session(&context, params, beginning);
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
        beginning: Beginning,
    ) -> Result<(Session, NewSessionResponse)> {
        let id = self.agent.new_session_id().await?;
        if self.session(&id).is_some() {
            return Err(Error::other("the agent returned the id of an open session; ids must be unique"));
        }
        let session = Session::new(id.clone(), params, self.client.clone(), true, None);
        // Registered first, so that the client can use the id as soon as it receives it.
        let registration = self.sessions.register(session.clone());
        let setup = match beginning {
            Beginning::New => self.agent.new_session(context, &session).await?,
            #[cfg(feature = "unstable")]
            Beginning::Fork(origin) => self.agent.fork_session(context, &session, origin).await?,
        };
        let mut response = NewSessionResponse::new(id);
        let setup = self.offer(&session, setup)?;
        registration.keep();
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
        R: Versioned + Send + 'static,
        F: Future<Output = Result<R>> + Send + 'static,
    {
        if let Err(error) = self.check(&params) {
            return refuse(responder, error.into_wire());
        }
        // The turn of an open session goes on.
        if let Some(method) = missing {
            let error = if self.client.is_v2() {
                WireError::invalid_params("the agent cannot replay a session; resume it without replayFrom")
            } else {
                WireError::method_not_found(method)
            };
            return refuse(responder, error);
        }
        let known = self.session(&id);
        let session = Session::new(id, params, self.client.clone(), false, known.as_ref());
        let registration = self.sessions.register(session.clone());
        if let Some(replaced) = &registration.replaced {
            replaced.cancel_turn();
        }
        let ticket = session.queue_ticket();
        let work = work(self, session.clone());
        responder.spawn_with(move |responder| async move {
            let work = async {
                if let Some(replaced) = &registration.replaced {
                    // The last updates of the old turn must precede the replay.
                    replaced.turn_ended().await;
                }
                let restored = work.await.map_err(Error::into_wire)?;
                #[cfg(feature = "protocol-v2")]
                session.report_state();
                registration.keep();
                Ok(session.client().in_version(restored))
            };
            responder.answer_with(work).await;
            // The next request of the session begins after this response.
            drop(ticket);
        });
    }

    pub(crate) fn in_session<R, F>(
        self: Arc<Self>,
        id: SessionId,
        responder: Responder,
        work: impl FnOnce(Arc<Self>, Session) -> F,
    ) where
        R: Versioned + Send + 'static,
        F: Future<Output = Result<R>> + Send + 'static,
    {
        let Some(session) = self.session(&id) else { return refuse(responder, self.unknown_session(&id)) };
        let mut ticket = session.queue_ticket();
        // Boxed, because a future that is moved into a task is copied for each layer around it.
        let work = Box::pin(work(self.clone(), session.clone()));
        responder.spawn_with(move |responder| async move {
            let work = async {
                self.wait_for_turn(&session, &mut ticket).await.map_err(Error::into_wire)?;
                let answer = work.await.map_err(Error::into_wire)?;
                Ok(self.client.in_version(answer))
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
            _ => Err(Error::Response(self.unknown_session(session.id()))),
        }
    }

    fn prompt(
        self: Arc<Self>,
        context: Context,
        request: PromptRequest,
        wire_bytes: usize,
        responder: Responder,
    ) {
        let Some(session) = self.session(&request.session_id) else {
            return refuse(responder, self.unknown_session(&request.session_id));
        };
        if let Err(error) = self.check_blocks(&request.prompt) {
            return refuse(responder, error);
        }
        let answer = match PromptAnswer::new(&self.client, &self.memory, wire_bytes) {
            Ok(answer) => answer,
            Err(error) => return refuse(responder, error),
        };
        let cancellation = answer.cancellation(&responder);
        let context = match self.client.is_v2() {
            true => context.with_cancellation(cancellation.clone()),
            // It has this token.
            false => context,
        };
        let state = match session.begin_turn(cancellation.clone()) {
            Ok(state) => state,
            // In version 2 a prompt that a close prevents is cancelled.
            Err(_) if self.client.is_v2() && session.is_closing() => {
                return refuse(responder, WireError::request_cancelled());
            }
            Err(why) => return refuse(responder, WireError::invalid_request(why)),
        };
        let mut ticket = session.queue_ticket();
        let waits = ticket.must_wait();
        let turn = Turn::new(session, context, state);
        let grace = responder.peer().limits().cancel_grace;
        let prompt = Prompt::new(request.prompt);
        responder.spawn_with(move |responder| async move {
            let mut running = RunningTurn { turn, answer: Some(answer.to(responder)) };
            let RunningTurn { turn, answer } = &mut running;
            let turn = &*turn;
            let work = async {
                let waited = self.wait_for_turn(turn.session(), &mut ticket).await;
                drop(ticket);
                if waits && turn.is_cancelled() {
                    // The prompt was cancelled in the queue. One that did not wait is passed to the agent.
                    return Ok(StopReason::Cancelled);
                }
                waited?;
                if let Some(answer) = answer {
                    answer.accept(turn, &prompt).await?;
                }
                turn.session().keep_prompt(prompt.blocks());
                // Boxed, because each layer around it would be larger than the state of the agent's future.
                Box::pin(self.agent.prompt(turn, prompt)).await
            };
            let outcome = duologue_rpc::with_cancel_grace(&cancellation, grace, work).await;
            let outcome = match outcome {
                _ if turn.is_cancelled() => Ok(StopReason::Cancelled),
                Some(outcome) => outcome,
                None => Ok(StopReason::Cancelled),
            };
            let meta = turn.context().answer_meta();
            let outcome = outcome.map_err(Error::into_wire).map(|reason| {
                let mut response = PromptResponse::new(reason);
                response.meta = meta;
                #[cfg(feature = "unstable")]
                {
                    response.usage = turn.take_tokens();
                }
                response
            });
            running.end(outcome);
        });
    }

    pub(crate) fn session(&self, id: &SessionId) -> Option<Session> {
        self.sessions.get(id)
    }

    /// Returns the error for a session that is not open. In version 2 its data has the id, unless the id is very long.
    pub(crate) fn unknown_session(&self, id: &SessionId) -> WireError {
        let error = WireError::resource_not_found("unknown session: create, load or resume it first");
        if self.client.is_v2() && may_be_kept(id) {
            return error.data(serde_json::json!({ "sessionId": id }));
        }
        error
    }

    /// Returns an open session, or the error to respond with.
    #[cfg(feature = "protocol-v2")]
    pub(crate) fn known_session(&self, id: &SessionId) -> Result<Session, WireError> {
        self.session(id).ok_or_else(|| self.unknown_session(id))
    }

    /// Handles `terminal/cancel`.
    #[cfg(feature = "protocol-v2")]
    pub(crate) fn cancel_terminal(
        self: Arc<Self>,
        request: duologue_schema::v2::CancelTerminalRequest,
        responder: Responder,
    ) {
        let session = match self.known_session(&request.session_id) {
            Ok(session) => session,
            Err(error) => return refuse(responder, error),
        };
        let method = <duologue_schema::v2::CancelTerminalRequest as duologue_schema::Request>::METHOD;
        if !session.v2().cancellable.lock_unpoisoned().has_terminal(&request.terminal_id) {
            let why = format!("the terminal {:?} cannot be cancelled", request.terminal_id.as_str());
            return refuse(responder, WireError::invalid_params(why));
        }
        let context = Context::new(self.client.clone(), responder.context(method, request.meta));
        answer(self.client.protocol_version(), responder, async move {
            self.agent.cancel_terminal(&context, &session, request.terminal_id).await?;
            answered!(duologue_schema::v2::CancelTerminalResponse::new(), context)
        });
    }

    fn check(&self, params: &SessionParams) -> Result<()> {
        check_path(&params.cwd, "cwd")?;
        check_system_prompt(params.system_prompt.as_ref(), self.advertised())?;
        #[cfg(feature = "unstable")]
        crate::unstable::check_initial_options(&params.initial_options)?;
        for path in &params.additional_directories {
            check_path(path, "additionalDirectories")?;
        }
        let mcp = &self.advertised().mcp_capabilities;
        for server in &params.mcp_servers {
            let (offered, transport) = match server {
                McpServer::Http(_) => (mcp.http, "http"),
                McpServer::Sse(_) => (mcp.sse, "sse"),
                McpServer::Stdio(_) => (true, "stdio"),
                #[cfg(feature = "unstable")]
                McpServer::Acp(_) => (mcp.acp, "acp"),
                unknown => (false, unknown.tag()),
            };
            if !offered {
                return Err(Error::invalid_params(format!("MCP servers over {transport} are not supported")));
            }
        }
        Ok(())
    }

    pub(crate) fn check_blocks(&self, blocks: &[ContentBlock]) -> Result<(), WireError> {
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

/// Frees the slot for a turn and sends the answer when the turn ends in any way, including a panic. It does so only once,
/// because the next turn may have the slot then.
struct RunningTurn {
    turn: Turn,
    /// `None` after the end.
    answer: Option<OpenAnswer>,
}

impl RunningTurn {
    fn end(&mut self, outcome: Result<PromptResponse, WireError>) {
        if let Some(mut answer) = self.answer.take() {
            self.turn.end();
            self.turn.session().end_turn(|| answer.end(outcome));
        }
    }
}

impl Drop for RunningTurn {
    fn drop(&mut self) {
        if let Some(answer) = self.answer.take() {
            self.turn.end();
            let is_cancelled = self.turn.is_cancelled();
            self.turn.session().end_turn(|| answer.abandon(is_cancelled));
        }
    }
}

fn check_path(path: &Path, field: &str) -> Result<()> {
    match path_fault(path) {
        Some(fault) => Err(Error::invalid_params(format!("{field} {fault}"))),
        None => Ok(()),
    }
}

pub(crate) fn refuse(responder: Responder, error: WireError) {
    responder.respond::<()>(Err(error));
}

pub(crate) fn answer<R, F>(version: ProtocolVersion, responder: Responder, work: F)
where
    R: Versioned + Send + 'static,
    F: Future<Output = Result<R>> + Send + 'static,
{
    responder.spawn(async move {
        let message = work.await.map_err(Error::into_wire)?;
        Ok(InVersion { version, message })
    });
}

/// Returns true if the id of a session is short enough for what outlives its message, which is counted no more then.
fn may_be_kept(id: &SessionId) -> bool {
    id.as_str().len() <= Limits::ID_BYTES
}

#[cfg(test)]
pub(crate) mod tests;
