//! Routes the messages of the agent to the host, to closures and to sessions.

use std::any::Any;
use std::borrow::Cow;
use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use duologue_exchange::ExchangeService;
#[cfg(feature = "protocol-v2")]
use duologue_rpc::Error as RpcError;
use duologue_rpc::{CancellationToken, Closed, Extensions, Incoming, Responder, Service, with_cancel_grace};
#[cfg(feature = "protocol-v2")]
use duologue_schema::v2;
use duologue_schema::{
    AgentNotification, AgentRequest, ClientCapabilities, CreateElicitationRequest, CreateTerminalRequest,
    ElicitationCapabilities, ElicitationFormCapabilities, ElicitationMode, ElicitationUrlCapabilities,
    Error as WireError, KillTerminalRequest, Meta, Notification as _, OtherTurnNotification,
    ReadTextFileRequest, ReleaseTerminalRequest, Request, RequestPermissionRequest, SessionId,
    SessionNotification, SessionUpdate, TerminalOutputRequest, WaitForTerminalExitRequest,
    WriteTextFileRequest, path_fault,
};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::context::HostContext;
#[cfg(feature = "protocol-v2")]
use crate::error::Error;
use crate::fair::{FairSemaphore, Permit};
use crate::host::{Host, HostResult};
use crate::router::{QuestionKind, Router, SessionEntry};

type Closure = Arc<dyn Fn(ClosureParams<'_>, HostContext, HostReply) + Send + Sync>;

/// The params of a request to a closure.
struct ClosureParams<'a> {
    /// The params in the form of version 1.
    raw: Option<&'a RawValue>,
    /// The decoded params of a method of the host, which have parts without a form in version 1.
    typed: Option<Box<dyn Any>>,
}

/// The methods that closures handle instead of the host.
#[derive(Clone, Default)]
pub(crate) struct Closures(HashMap<&'static str, Closure>);

impl Closures {
    pub(crate) fn insert<R, F, Fut>(&mut self, answer: F)
    where
        R: Request,
        F: Fn(HostContext, R) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = HostResult<R::Result>> + Send + 'static,
    {
        self.0.insert(
            R::METHOD,
            Arc::new(move |params: ClosureParams<'_>, context, reply: HostReply| {
                // A closure can have a type of its own for the params.
                let typed = params.typed.and_then(|typed| typed.downcast::<R>().ok());
                let request = match typed {
                    Some(request) => Ok(*request),
                    None => serde_json::from_str::<R>(params.raw.map_or("{}", RawValue::get)),
                };
                match request {
                    Ok(request) => reply.spawn(answer(context, request)),
                    Err(_) => reply.refuse(WireError::invalid_params("the params do not fit the method")),
                }
            }),
        );
    }

    /// Advertises the methods that have closures.
    pub(crate) fn advertise(&self, capabilities: &mut ClientCapabilities) {
        capabilities.fs.read_text_file |= self.0.contains_key(ReadTextFileRequest::METHOD);
        capabilities.fs.write_text_file |= self.0.contains_key(WriteTextFileRequest::METHOD);
        let terminal = [
            CreateTerminalRequest::METHOD,
            TerminalOutputRequest::METHOD,
            WaitForTerminalExitRequest::METHOD,
            KillTerminalRequest::METHOD,
            ReleaseTerminalRequest::METHOD,
        ];
        capabilities.terminal |= terminal.iter().all(|method| self.0.contains_key(method));
        if self.0.contains_key(CreateElicitationRequest::METHOD) {
            capabilities.elicitation.get_or_insert_with(|| {
                ElicitationCapabilities::new()
                    .form(ElicitationFormCapabilities::new())
                    .url(ElicitationUrlCapabilities::new())
            });
        }
    }
}

/// Observes requests that are rejected before the host sees them.
pub(crate) type RejectedHook = Box<dyn Fn(&HostContext, &AgentRequest, &WireError) + Send + Sync>;

/// Observes changes of the state of authentication.
#[cfg(feature = "unstable")]
pub(crate) type AuthStatusHook =
    Box<dyn Fn(&HostContext, duologue_schema::AuthStatusUpdateNotification) + Send + Sync>;

pub(crate) struct ClientService<H> {
    pub(crate) host: Arc<H>,
    pub(crate) capabilities: ClientCapabilities,
    pub(crate) closures: Closures,
    pub(crate) rejected: Option<RejectedHook>,
    #[cfg(feature = "unstable")]
    pub(crate) auth_status: Option<AuthStatusHook>,
    pub(crate) exchange: Arc<ExchangeService>,
    pub(crate) extensions: Extensions,
    pub(crate) router: Arc<Router>,
    /// Limits the bytes of running requests to the host and of their responses.
    pub(crate) host_bytes: FairSemaphore<SessionId>,
    /// The context of calls outside of requests.
    pub(crate) context: HostContext,
    /// True at the end of the connection, before the host is notified of it.
    pub(crate) ended: Arc<AtomicBool>,
    /// True in a connection of version 2.
    #[cfg(feature = "protocol-v2")]
    pub(crate) is_v2: Arc<AtomicBool>,
}

impl<H: Host> ClientService<H> {
    /// Checks a request before the host sees it. Returns the error to respond with, if any.
    fn fault(&self, request: &AgentRequest) -> Option<WireError> {
        let ClientCapabilities { fs, terminal, .. } = &self.capabilities;
        let (path, offered) = match request {
            AgentRequest::RequestPermission(_) => (None, true),
            AgentRequest::ReadTextFile(request) => (Some(&*request.path), fs.read_text_file),
            AgentRequest::WriteTextFile(request) => (Some(&*request.path), fs.write_text_file),
            AgentRequest::CreateTerminal(request) => (request.cwd.as_deref(), *terminal),
            AgentRequest::TerminalOutput(_)
            | AgentRequest::WaitForTerminalExit(_)
            | AgentRequest::KillTerminal(_)
            | AgentRequest::ReleaseTerminal(_) => (None, *terminal),
            // An elicitation may precede the session that it names.
            AgentRequest::CreateElicitation(request) => {
                let is_accepted = match &request.mode {
                    ElicitationMode::Form(_) => self.capabilities.has_form_elicitation(),
                    ElicitationMode::Url(_) => self.capabilities.has_url_elicitation(),
                    _ => false,
                };
                let fault = || WireError::invalid_params("this client cannot show this kind of question");
                return (!is_accepted).then(fault);
            }
        };
        if !offered {
            return Some(WireError::method_not_found(request.method()));
        }
        if let Some(fault) = path.and_then(path_fault) {
            return Some(WireError::invalid_params(format!("the path {fault}")));
        }
        let is_known = session_of(request).is_none_or(|id| self.router.knows(id));
        (!is_known).then(|| WireError::resource_not_found("unknown session"))
    }

    /// Decodes a request in the version of the connection.
    fn decode_request(&self, incoming: &Incoming<'_>) -> Option<Result<AgentRequest, WireError>> {
        #[cfg(feature = "protocol-v2")]
        if self.is_v2() {
            return crate::v2::decode_request(incoming);
        }
        AgentRequest::decode(incoming.method, incoming.params)
    }

    /// Decodes a notification in the version of the connection.
    fn decode_notification(&self, incoming: &Incoming<'_>) -> Option<Result<AgentNotification, WireError>> {
        #[cfg(feature = "protocol-v2")]
        if self.is_v2() {
            return crate::v2::decode_notification(incoming);
        }
        AgentNotification::decode(incoming.method, incoming.params)
    }

    /// Returns true in a connection of version 2.
    fn is_v2(&self) -> bool {
        #[cfg(feature = "protocol-v2")]
        return self.is_v2.load(SeqCst);
        #[cfg(not(feature = "protocol-v2"))]
        false
    }

    /// Fills in a permission request from earlier updates of its tool call. Returns the params for a closure, if they
    /// differ from those on the wire.
    ///
    /// In version 2 the tool call of the request is an update too. A call that stands in for another operation is neither
    /// an update nor filled in, because the earlier call is not what the user decides about.
    fn complete(&self, request: &mut AgentRequest, wire_bytes: usize) -> Option<Box<RawValue>> {
        let mut changed = self.is_v2();
        if let AgentRequest::RequestPermission(question) = request
            && !is_stand_in(question)
            && let Some(entry) = self.router.entry(&question.session_id)
        {
            #[cfg(feature = "protocol-v2")]
            if self.is_v2() {
                entry.apply_call(&question.tool_call, wire_bytes);
            }
            changed |= entry.complete(&mut question.tool_call);
        }
        let _ = wire_bytes;
        changed.then(|| serde_json::value::to_raw_value(request).ok()).flatten()
    }

    fn dispatch(&self, request: AgentRequest, context: HostContext, reply: HostReply) {
        let host = self.host.clone();
        macro_rules! call {
            ($method:ident, $request:ident) => {
                reply.spawn(async move { host.$method(&context, $request).await })
            };
        }
        match request {
            AgentRequest::RequestPermission(request) => call!(request_permission, request),
            AgentRequest::ReadTextFile(request) => call!(read_text_file, request),
            AgentRequest::WriteTextFile(request) => call!(write_text_file, request),
            AgentRequest::CreateTerminal(request) => call!(create_terminal, request),
            AgentRequest::TerminalOutput(request) => call!(terminal_output, request),
            AgentRequest::WaitForTerminalExit(request) => call!(wait_for_terminal_exit, request),
            AgentRequest::KillTerminal(request) => call!(kill_terminal, request),
            AgentRequest::ReleaseTerminal(request) => call!(release_terminal, request),
            AgentRequest::CreateElicitation(request) => call!(create_elicitation, request),
        }
    }

    /// Passes `auth/status_update` to its observer, if there is one.
    #[cfg(feature = "unstable")]
    fn auth_status_changed(&self, notification: &Incoming<'_>) -> bool {
        use duologue_schema::UnstableAgentNotification;

        let Some(observe) = &self.auth_status else { return false };
        match UnstableAgentNotification::decode(notification.method, notification.params) {
            Some(Ok(UnstableAgentNotification::AuthStatusUpdate(status))) => observe(&self.context, status),
            Some(Err(error)) => tracing::debug!(%error, "dropped an invalid state of authentication"),
            None => return false,
        }
        true
    }

    /// Handles the notification about the turn of another client.
    fn other_turn_changed(&self, notification: &Incoming<'_>) -> bool {
        if notification.method != OtherTurnNotification::METHOD {
            return false;
        }
        let params = notification.params.map_or("", RawValue::get);
        match serde_json::from_str::<OtherTurnNotification>(params) {
            Ok(turn) => {
                if let Some(entry) = self.router.entry(&turn.session_id) {
                    entry.note_other_turn(turn.running);
                }
            }
            Err(error) => tracing::debug!(%error, "dropped an invalid notification of a turn"),
        }
        true
    }

    /// Passes a request that is not part of ACP to the exchange, then to the user's extensions.
    fn extension(&self, request: Incoming<'_>, responder: Responder) -> Result<(), Responder> {
        self.exchange
            .request(request, responder)
            .or_else(|responder| self.extensions.request(request, responder))
            .or_else(|responder| self.exchange.unknown_request(request, responder))
    }

    /// Returns the reply to a request. A cancellation can respond to a request to the user first.
    fn answer(&self, request: &AgentRequest, wire_bytes: usize, responder: Responder) -> HostReply {
        let kind = QuestionKind::of(request);
        HostReply {
            responder,
            admission: self.admission(request, wire_bytes),
            question: kind.and_then(|kind| Some((self.router.entry(session_of(request)?)?, kind))),
        }
    }

    /// Reserves bytes for a request before the host sees it: a whole frame if the response can contain a file or the
    /// output of a program, otherwise the length of the request. Requests that only wait or release need none.
    fn admission(&self, request: &AgentRequest, wire_bytes: usize) -> Option<Admission> {
        let bytes = match request {
            AgentRequest::ReadTextFile(_) | AgentRequest::TerminalOutput(_) => {
                self.context.peer().limits().frame_bytes
            }
            AgentRequest::WriteTextFile(_)
            | AgentRequest::CreateTerminal(_)
            | AgentRequest::RequestPermission(_)
            | AgentRequest::CreateElicitation(_) => wire_bytes,
            AgentRequest::WaitForTerminalExit(_)
            | AgentRequest::KillTerminal(_)
            | AgentRequest::ReleaseTerminal(_) => return None,
        };
        let session = session_of(request).cloned().unwrap_or_else(|| SessionId::from(""));
        Some(Admission { semaphore: self.host_bytes.clone(), session, bytes })
    }
}

/// Returns true if the tool call of a permission request only describes another operation.
fn is_stand_in(request: &RequestPermissionRequest) -> bool {
    #[cfg(feature = "protocol-v2")]
    return request.question.as_ref().is_some_and(|question| question.is_stand_in);
    #[cfg(not(feature = "protocol-v2"))]
    {
        let _ = request;
        false
    }
}

/// Evaluates an expression with the params of a request.
macro_rules! with_params {
    ($request:expr, $params:ident => $value:expr, CreateElicitation => $elicitation:expr) => {
        match $request {
            AgentRequest::RequestPermission($params) => $value,
            AgentRequest::ReadTextFile($params) => $value,
            AgentRequest::WriteTextFile($params) => $value,
            AgentRequest::CreateTerminal($params) => $value,
            AgentRequest::TerminalOutput($params) => $value,
            AgentRequest::WaitForTerminalExit($params) => $value,
            AgentRequest::KillTerminal($params) => $value,
            AgentRequest::ReleaseTerminal($params) => $value,
            AgentRequest::CreateElicitation($params) => $elicitation,
        }
    };
}

/// Returns the session of a request, if it has one.
fn session_of(request: &AgentRequest) -> Option<&SessionId> {
    with_params!(request, params => Some(&params.session_id), CreateElicitation => params.mode.session_id())
}

/// Returns the params of a request.
fn into_params(request: AgentRequest) -> Box<dyn Any> {
    with_params!(request, params => Box::new(params), CreateElicitation => Box::new(params))
}

/// Returns the `_meta` of a request.
fn meta_of(request: &AgentRequest) -> Option<&Meta> {
    with_params!(request, params => params.meta.as_ref(), CreateElicitation => params.meta.as_ref())
}

impl<H: Host> Service for ClientService<H> {
    fn request(&self, incoming: Incoming<'_>, responder: Responder) {
        let refuse = |responder: Responder, error| responder.respond::<()>(Err(error));
        match self.decode_request(&incoming) {
            Some(Ok(mut request)) => {
                let context = responder.context(request.method(), meta_of(&request).cloned());
                let context = self.context.of_request(context);
                if let Some(fault) = self.fault(&request) {
                    if let Some(observe) = &self.rejected {
                        observe(&context, &request, &fault);
                    }
                    return refuse(responder, fault);
                }
                let completed = self.complete(&mut request, incoming.wire_bytes);
                // A short request about a long tool call counts as much as a long request.
                let bytes =
                    completed.as_ref().map_or(0, |params| params.get().len()).max(incoming.wire_bytes);
                if let Err(error) = responder.count_more(bytes - incoming.wire_bytes) {
                    return refuse(responder, error);
                }
                let reply = self.answer(&request, bytes, responder);
                match self.closures.0.get(incoming.method) {
                    Some(closure) => {
                        let raw = completed.as_deref().or(incoming.params);
                        closure(ClosureParams { raw, typed: Some(into_params(request)) }, context, reply)
                    }
                    None => self.dispatch(request, context, reply),
                }
            }
            Some(Err(error)) => refuse(responder, error),
            None => match self.closures.0.get_key_value(incoming.method) {
                Some((method, closure)) => {
                    let context = self.context.of_request(responder.context(method, incoming.meta()));
                    closure(
                        ClosureParams { raw: incoming.params, typed: None },
                        context,
                        HostReply { responder, admission: None, question: None },
                    )
                }
                None => {
                    if let Err(responder) = self.extension(incoming, responder) {
                        responder.method_not_found(incoming.method);
                    }
                }
            },
        }
    }

    fn notification(&self, notification: Incoming<'_>) {
        match self.decode_notification(&notification) {
            Some(Ok(AgentNotification::SessionUpdate(update))) => {
                self.router.update(update.session_id.as_str(), update.update, notification.wire_bytes);
            }
            Some(Ok(AgentNotification::CompleteElicitation(complete))) => {
                self.host.elicitation_complete(&self.context, complete);
            }
            Some(Err(error)) => {
                // An invalid update is dropped, but the turn continues.
                tracing::debug!(method = notification.method, %error, "dropped an invalid notification of the agent");
                if notification.method == SessionNotification::METHOD {
                    self.router.count_invalid();
                }
            }
            #[cfg(feature = "unstable")]
            None if self.auth_status_changed(&notification) => {}
            None if self.other_turn_changed(&notification) => {}
            None => {
                let taken = self.exchange.notification(notification)
                    || self.extensions.notification(notification, self.context.peer());
                if !taken {
                    self.exchange.unknown_notification(notification);
                }
            }
        }
    }

    fn fast_path_method(&self) -> Option<&'static str> {
        Some(SessionNotification::METHOD)
    }

    fn notification_fast_path(&self, params: &str, wire_bytes: usize, valid: &dyn Fn()) -> bool {
        #[cfg(feature = "protocol-v2")]
        if self.is_v2() {
            let update = serde_json::from_str::<BorrowedUpdate<'_, v2::SessionUpdate>>(params);
            let Ok(BorrowedUpdate { session_id, update }) = update else { return false };
            valid();
            self.router.update(&session_id, update.into(), wire_bytes);
            return true;
        }
        let update = serde_json::from_str::<BorrowedUpdate<'_, SessionUpdate>>(params);
        let Ok(BorrowedUpdate { session_id, update }) = update else { return false };
        valid();
        self.router.update(&session_id, update, wire_bytes);
        true
    }

    fn closed(&self, reason: &Closed) {
        self.exchange.closed(reason);
        #[cfg(feature = "protocol-v2")]
        self.router.end_accepted_turns(&Error::from(RpcError::Closed(reason.clone())));
        self.ended.store(true, SeqCst);
        self.host.closed(&self.context);
    }
}

/// A [`SessionNotification`] that borrows the id of the session.
#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct BorrowedUpdate<'a, U> {
    #[serde(borrow)]
    session_id: Cow<'a, str>,
    update: U,
}

/// The reply to one request of the agent. If it is a request to the user, the cancellation of the
/// session's turn can respond to it.
struct HostReply {
    responder: Responder,
    admission: Option<Admission>,
    question: Option<(Arc<SessionEntry>, QuestionKind)>,
}

/// A reservation of bytes that precedes the call of the host and lasts until the response is sent.
struct Admission {
    semaphore: FairSemaphore<SessionId>,
    session: SessionId,
    bytes: usize,
}

impl Admission {
    /// Waits for the bytes. Returns `None` if the request is cancelled first.
    async fn wait(self, cancellation: &CancellationToken) -> Option<Permit<SessionId>> {
        tokio::select! {
            biased;
            () = cancellation.cancelled() => None,
            permit = self.semaphore.acquire(self.session, self.bytes) => Some(permit),
        }
    }
}

impl HostReply {
    fn refuse(self, error: WireError) {
        self.responder.respond::<()>(Err(error));
    }

    fn spawn<R: Serialize + Send + 'static>(
        self,
        work: impl Future<Output = HostResult<R>> + Send + 'static,
    ) {
        let HostReply { responder, admission, question } = self;
        // Boxed, because a future that is moved into a task is copied for each layer around it.
        let work = Box::pin(work);
        let Some((entry, kind)) = question else {
            return responder.spawn_with(move |responder| async move {
                let _permit = match admission {
                    None => None,
                    Some(admission) => match admission.wait(responder.cancellation()).await {
                        None => return responder.respond::<()>(Err(WireError::request_cancelled())),
                        permit => permit,
                    },
                };
                responder.answer_with(work).await;
            });
        };
        let (cancellation, peer) = (responder.cancellation().clone(), responder.peer());
        let number = match entry.add_question(responder, kind.clone()) {
            Ok(number) => number,
            Err(responder) => return kind.cancel(responder),
        };
        let question = Question { entry, number };
        peer.spawn(async move {
            let _permit = match admission {
                None => None,
                Some(admission) => admission.wait(&cancellation).await,
            };
            // A cancelled request to the user has no grace period. If it was cancelled before the host saw
            // it, the host is not called.
            let answer = match cancellation.is_cancelled() {
                true => None,
                false => with_cancel_grace(&cancellation, Duration::ZERO, work).await,
            };
            // If the turn was cancelled meanwhile, the cancellation has responded.
            question.entry.answer(question.number, |responder| match answer {
                Some(answer) => responder.respond(answer),
                None => kind.cancel(responder),
            });
        });
    }
}

/// An open request to the user. If the host panics, dropping this sends the response.
struct Question {
    entry: Arc<SessionEntry>,
    number: u64,
}

impl Drop for Question {
    fn drop(&mut self) {
        self.entry.answer(self.number, drop);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The fast path decodes an update like the general path, or rejects it (RFD 0002).
    #[test]
    fn the_fast_path_decodes_updates_like_the_general_path() {
        let chunk = r#"{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"a"}}"#;
        let late = r#"{"content":{"type":"text","text":"a"},"sessionUpdate":"agent_message_chunk"}"#;
        let lines = [
            (format!(r#"{{"sessionId":"s","update":{chunk}}}"#), true),
            (format!(r#"{{"update":{late},"_meta":{{"a":1}},"sessionId":"\u0073\n"}}"#), true),
            (r#"{"sessionId":"s","update":{"sessionUpdate":"later","x":[1]},"more":{}}"#.to_owned(), true),
            // The fast path rejects a duplicate member; the general path takes the last one.
            (format!(r#"{{"sessionId":"s","sessionId":"t","update":{chunk}}}"#), false),
            (format!(r#"{{"sessionId":null,"update":{chunk}}}"#), false),
            (format!(r#"{{"sessionId":"s","update":{chunk}}} {{}}"#), false),
            (r#"{"sessionId":"s","update":{}}"#.to_owned(), false),
            (r#"{"sessionId":"s"}"#.to_owned(), false),
        ];
        for (line, short) in lines {
            let update = serde_json::from_str::<BorrowedUpdate<'_, SessionUpdate>>(&line);
            assert_eq!(update.is_ok(), short, "{line}");
            let Ok(update) = update else { continue };
            let long: SessionNotification = serde_json::from_str(&line).expect("the long way takes it too");
            assert_eq!(
                (&*update.session_id, update.update),
                (long.session_id.as_str(), long.update),
                "{line}"
            );
        }
    }
}
