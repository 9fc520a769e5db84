//! The connection of one client: its requests, and the sessions that it has open.

mod open_session;

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use duologue_rpc::raw_message::{is_similar_name, response_frame};
use duologue_rpc::{Limits, LineBuffer, Malformed, RpcMessage, Transport};
use duologue_schema::{
    AuthMethod, AuthenticateRequest, CancelRequestNotification, CloseSessionRequest, DeleteSessionRequest,
    DuologueCapabilities, Error as RpcError, InitializeRequest, InitializeResponse, ListSessionsRequest,
    LoadSessionRequest, LogoutRequest, NewSessionRequest, Notification as _, PromptRequest, ProtocolVersion,
    Request as _, RequestId, ResumeSessionRequest, SessionId,
};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::{Id, JoinSet};
use tokio::time::timeout;
use uuid::Uuid;

use self::open_session::{ClientAttachment, create, open_session};
use crate::abilities::{Abilities, passed_on};
use crate::asking_client::{AskingClient, QuestionsOfRequests};
use crate::error::Error;
use crate::exchange_state::needs_no_session;
use crate::hub::HubShared;
use crate::log_reader::{LogReaderTask, session_id};
use crate::output::{ClientOutput, OpenOutput, check_length, client_output};
use crate::projection::{error_response, interruption};
use crate::record::ClientKey;
use crate::routing::check_client_routing;
use crate::session_policy::passes;
use crate::session_task::{AttachingClient, ClientRole, LiveSession, Replies, SessionCommand};

/// A session that the client has open. Dropping it closes the session for the client; others and the agent go on.
#[derive(Debug)]
struct SessionUse {
    live: LiveSession,
    client: ClientKey,
    attachment: u64,
    is_open: bool,
}

impl SessionUse {
    fn left(&self) -> SessionCommand {
        SessionCommand::Left { client: self.client.clone(), attachment: self.attachment }
    }

    /// Reports that the client is present or absent.
    async fn report(&self, is_present: bool) {
        let (client, attachment) = (self.client.clone(), self.attachment);
        let _ = self.live.commands.send(SessionCommand::Presence { client, attachment, is_present }).await;
    }

    /// Reports the client as absent, and closes the session for it unless another connection has continued it in time.
    async fn hand_over(mut self) {
        self.report(false).await;
        self.is_open = false;
        let (commands, left) = (self.live.commands.clone(), self.left());
        tokio::spawn(async move {
            tokio::time::sleep(HANDED_OVER).await;
            // It has no effect after a newer attachment of the client.
            let _ = commands.send(left).await;
        });
    }

    /// Closes the session, and ends its process if no other client has it open. Returns the position of the last
    /// record, or `None` if the session has ended.
    async fn release(mut self) -> Option<u64> {
        let (done, closed) = oneshot::channel();
        let (client, attachment) = (self.client.clone(), self.attachment);
        let command = SessionCommand::Release { client, attachment, done };
        let sent = self.live.commands.send(command).await;
        self.is_open = false;
        sent.ok()?;
        let position = closed.await.ok()?;
        (!self.live.commands.is_closed()).then_some(position)
    }
}

impl Drop for SessionUse {
    fn drop(&mut self) {
        let runtime = tokio::runtime::Handle::try_current().ok().filter(|_| self.is_open);
        if let Some(runtime) = runtime {
            let (commands, left) = (self.live.commands.clone(), self.left());
            runtime.spawn(async move {
                let _ = commands.send(left).await;
            });
        }
    }
}

/// A session with the task that reads its log.
#[derive(Debug)]
struct OpenSession {
    session: SessionUse,
    reader: LogReaderTask,
}

impl OpenSession {
    /// Closes the session. The client receives the responses to its requests, and all frames if the session ends.
    async fn release(self) {
        let OpenSession { session, reader } = self;
        match session.release().await {
            Some(position) => reader.finish(position).await,
            None => reader.ended().await,
        }
    }
}

/// The outcome of a request that was answered in a task of its own.
type Answered = Result<Answer, Error>;

/// Limit on the requests of a client that are answered in tasks at once.
const ANSWERING: usize = 64;
/// The time in which a client that continues on another connection opens its sessions there.
const HANDED_OVER: Duration = Duration::from_secs(60);

/// The time in which the login of a client that has left can end. The agent serves the next login after that.
const LOGIN: Duration = Duration::from_secs(2);

/// The time in which a connection that is ended sends the lines that wait. A client that reads nothing does not hold it.
const LAST_LINES: Duration = Duration::from_millis(500);

enum Answer {
    /// A result without an effect on the connection.
    Result(Box<RawValue>),
    /// The result of `initialize`.
    Introduction(Box<RawValue>),
    /// A session that was created, loaded or resumed, and the result for the client. Its reader has not begun.
    Opened(OpenSession, Box<RawValue>),
    /// A session that the client has open, and the error of its load.
    Kept(OpenSession, Error),
}

/// A request that a task answers.
struct AnsweringRequest {
    id: RequestId,
    /// The session that is opened, closed or deleted.
    session: Option<SessionId>,
    /// Notified if the client cancels a request that belongs to no session.
    cancelled: Arc<Notify>,
    /// The session that the client has open while it is opened again.
    open: Option<LiveSession>,
}

/// The connection of a client.
pub(crate) struct ClientConnection {
    hub: Arc<HubShared>,
    principal: Arc<str>,
    client: ClientKey,
    abilities: Option<Abilities>,
    output: ClientOutput,
    /// Lets `output` send. Without it nothing is sent, and nothing waits.
    _open: OpenOutput,
    replies: Replies,
    /// Questions of agents that belong to no session.
    questions: QuestionsOfRequests,
    sessions: HashMap<SessionId, OpenSession>,
    answering: JoinSet<Answered>,
    /// The requests of the tasks in `answering`.
    answering_requests: HashMap<Id, AnsweringRequest>,
    /// Notified to end the connection: a reader of a log has failed, or another connection continues this one.
    end: Arc<Notify>,
    /// False while the connection is lost and the client can come back.
    is_present: bool,
    role: ClientRole,
}

impl Drop for ClientConnection {
    fn drop(&mut self) {
        let key = (self.principal.clone(), self.client.clone());
        self.hub.unregister(&key, &self.end);
        let mut answering = std::mem::take(&mut self.answering);
        let requests = std::mem::take(&mut self.answering_requests);
        // The work of the server itself is begun again after its end.
        if answering.is_empty() || self.role.is_work() {
            return;
        }
        let (hub, end) = (self.hub.clone(), self.end.clone());
        self.hub.finishing.spawn(async move {
            let finished = async {
                while let Some(answered) = answering.join_next_with_id().await {
                    match answered {
                        Ok((task, Ok(Answer::Opened(open, _) | Answer::Kept(open, _)))) => {
                            if requests.get(&task).is_some_and(|request| request.session.is_none()) {
                                // Nobody knows the id of a new session. The turn of another one goes on without the client.
                                open.session.release().await;
                            } else if hub.is_continued(&key, &end) {
                                open.session.hand_over().await;
                            }
                        }
                        Ok((_, Err(error))) => hub.note_failure(&error),
                        _ => {}
                    }
                }
            };
            let mut finished = pin!(finished);
            if timeout(LOGIN, &mut finished).await.is_err() {
                // A login that waits for its user ends with the client.
                requests.values().for_each(|request| request.cancelled.notify_one());
                finished.await;
            }
        });
    }
}

impl ClientConnection {
    /// Serves a client until its input ends. Its requests that are being answered are finished all the same.
    pub(crate) async fn serve(
        hub: Arc<HubShared>,
        principal: Arc<str>,
        transport: Transport,
        presence: watch::Receiver<bool>,
        role: ClientRole,
    ) {
        let (reader, writer) = transport.into_split();
        let (output, open, writing) = client_output(writer, !hub.has_client_files());
        let mut writing = pin!(writing);
        let reading = ClientConnection::read(hub, principal, reader, (output, open), presence, role);
        let mut reading = pin!(reading);
        let is_ended = tokio::select! {
            is_ended = &mut reading => is_ended,
            () = &mut writing => {
                reading.await;
                return;
            }
        };
        if is_ended {
            let _ = timeout(LAST_LINES, writing).await;
        } else {
            writing.await;
        }
    }

    /// Handles the messages of a client until its input ends. Returns true if its connection was ended before.
    async fn read(
        hub: Arc<HubShared>,
        principal: Arc<str>,
        reader: impl AsyncRead + Unpin,
        (output, open): (ClientOutput, OpenOutput),
        presence: watch::Receiver<bool>,
        role: ClientRole,
    ) -> bool {
        let (replies, waiting) = mpsc::unbounded_channel();
        let mut connection = ClientConnection {
            hub,
            principal,
            client: ClientKey::new(crate::unique_id::new_id().to_string()),
            abilities: None,
            output,
            _open: open,
            replies,
            questions: QuestionsOfRequests::default(),
            sessions: HashMap::new(),
            answering: JoinSet::new(),
            answering_requests: HashMap::new(),
            end: Arc::new(Notify::new()),
            is_present: true,
            role,
        };
        let end = connection.end.clone();
        tokio::select! {
            // It does not wait for a client that reads nothing.
            () = end.notified() => {}
            () = connection.relay(reader, waiting, presence) => return false,
        }
        connection.hand_over().await;
        true
    }

    /// Handles the messages of the client and of its sessions until its input ends.
    async fn relay(
        &mut self,
        mut reader: impl AsyncRead + Unpin,
        mut waiting: mpsc::UnboundedReceiver<Vec<u8>>,
        mut presence: watch::Receiver<bool>,
    ) {
        let mut buffer = LineBuffer::new(Limits::default().frame_bytes);
        loop {
            let count = tokio::select! {
                biased;
                Some(line) = waiting.recv() => {
                    self.output.send(line).await;
                    continue;
                }
                Some(answered) = self.answering.join_next_with_id(), if !self.answering.is_empty() => {
                    let (task, answered) = match answered {
                        Ok((task, answered)) => (task, answered),
                        // It has panicked.
                        Err(error) => (error.id(), Err(Error::Closed)),
                    };
                    if let Some(request) = self.answering_requests.remove(&task) {
                        self.answered(&request.id, answered).await;
                    }
                    continue;
                }
                is_present = next_presence(&mut presence) => {
                    self.set_present(is_present).await;
                    continue;
                }
                read = reader.read(buffer.space()) => read.unwrap_or(0),
            };
            if count == 0 {
                break;
            }
            buffer.filled(count);
            loop {
                let line = match buffer.next_line() {
                    Ok(Some(line)) => line.to_vec(),
                    Ok(None) => break,
                    Err(_) => {
                        let limit = buffer.limit();
                        tracing::warn!("a line of a client exceeds {limit} bytes; its connection is closed");
                        return;
                    }
                };
                self.line(line).await;
            }
        }
    }

    async fn line(&mut self, line: Vec<u8>) {
        let repaired = RpcMessage::repair(&line);
        let text = repaired.as_deref().unwrap_or(&line);
        match RpcMessage::read_strict(text, &Limits::default()) {
            None => {}
            Some(Ok(RpcMessage::Request { id, method, params })) => {
                if let Err(error) = check_length(text).and_then(|()| check_client_routing(params)) {
                    return self.refuse(&id, &error).await;
                }
                let session = params.and_then(session_id);
                self.request(id, &method, params, session, text).await;
            }
            Some(Ok(RpcMessage::Notification { method, params })) => {
                if let Err(error) = check_length(text).and_then(|()| check_client_routing(params)) {
                    let session = params.and_then(session_id);
                    let session = session.as_ref().map(SessionId::as_str);
                    return tracing::warn!(session, %error, method = &*method, "dropped a notification of a client");
                }
                if method == CancelRequestNotification::METHOD {
                    self.cancel_passed(params);
                    // It names no session. The owner that knows the request takes it.
                    let open = self.sessions.values().map(|open| &open.session.live);
                    let again = self.answering_requests.values().filter_map(|request| request.open.as_ref());
                    let live: Vec<_> = open.chain(again).cloned().collect();
                    for live in live {
                        self.forward(&live, text).await;
                    }
                } else if passes(&method, params)
                    && let Some(live) = params.and_then(session_id).and_then(|id| self.open_session(&id))
                {
                    self.forward(&live, text).await;
                }
            }
            Some(Ok(RpcMessage::Response { id, .. })) => {
                // The agent waits for an answer.
                let refused = check_length(text).err().map(|error| error_response(id.get(), &error));
                let text = refused.as_deref().unwrap_or(text);
                let id: Option<String> = serde_json::from_str(id.get()).ok();
                if id.as_deref().is_some_and(|id| self.questions.answer(id, text)) {
                    return;
                }
                let session = id.as_deref().and_then(|id| id.rsplit_once(':'));
                let live = session.and_then(|(session, _)| self.live_session(&SessionId::from(session)));
                if let Some(live) = live {
                    self.forward(&live, text).await;
                }
            }
            Some(Err(Malformed::Request(id, error))) => self.refuse(&id, &error).await,
            Some(Err(Malformed::Noise(error))) => self.refuse(&RequestId::null(), &error).await,
            Some(_) => {}
        }
    }

    /// Returns the session with this id, or the one with this child.
    fn open_session(&self, id: &SessionId) -> Option<LiveSession> {
        let root = || id.as_str().rsplit_once('~').map(|(root, _)| SessionId::from(root));
        self.live_session(id).or_else(|| self.live_session(&root()?))
    }

    /// Returns a session that the client has open, also while it is opened again.
    fn live_session(&self, id: &SessionId) -> Option<LiveSession> {
        let again = || {
            let mut requests = self.answering_requests.values();
            requests.find(|request| request.session.as_ref() == Some(id))?.open.clone()
        };
        self.sessions.get(id).map(|open| open.session.live.clone()).or_else(again)
    }

    /// Cancels a request that was passed to an agent without a session.
    fn cancel_passed(&self, params: Option<&RawValue>) {
        let cancelled = params.and_then(|params| serde_json::from_str(params.get()).ok());
        let Some(CancelRequestNotification { request_id, .. }) = cancelled else { return };
        for request in self.answering_requests.values().filter(|request| request.id == request_id) {
            request.cancelled.notify_one();
        }
    }

    /// Reports to the sessions that the client is absent or back.
    async fn set_present(&mut self, is_present: bool) {
        self.is_present = is_present;
        for open in self.sessions.values() {
            open.session.report(is_present).await;
        }
    }

    /// Keeps the places of the client in its sessions, if another connection continues this one.
    async fn hand_over(&mut self) {
        if !self.hub.is_continued(&(self.principal.clone(), self.client.clone()), &self.end) {
            return;
        }
        for (_, open) in self.sessions.drain() {
            open.session.hand_over().await;
        }
    }

    async fn forward(&self, live: &LiveSession, line: &[u8]) {
        let command = SessionCommand::FromClient { client: self.client.clone(), line: line.to_vec() };
        if live.commands.send(command).await.is_err()
            && let Some(answer) = live.ended_response(line)
        {
            self.output.send(answer).await;
        }
    }

    async fn refuse(&self, id: &RequestId, error: &RpcError) {
        self.output.send(error_response(id.token(), error)).await;
    }

    async fn respond(&self, id: &RequestId, outcome: Result<&RawValue, &RpcError>) {
        respond(&self.output, id, outcome).await;
    }

    async fn respond_with(&self, id: &RequestId, outcome: Result<Box<RawValue>, Error>) {
        match outcome {
            Ok(result) => self.respond(id, Ok(&result)).await,
            Err(error) => self.respond(id, Err(&error.to_wire())).await,
        }
    }

    async fn request(
        &mut self,
        id: RequestId,
        method: &str,
        params: Option<&RawValue>,
        session: Option<SessionId>,
        line: &[u8],
    ) {
        let value =
            || params.and_then(|params| serde_json::from_str::<Value>(params.get()).ok()).unwrap_or_default();
        if method == InitializeRequest::METHOD {
            return self.initialize(id, params).await;
        }
        let Some(abilities) = self.abilities else {
            return self.refuse(&id, &RpcError::invalid_request("initialize the connection first")).await;
        };
        match method {
            NewSessionRequest::METHOD => {
                let params = value();
                if !params.is_object() {
                    return self.refuse(&id, &RpcError::invalid_params("the params are not an object")).await;
                }
                let (hub, attach) = (self.hub.clone(), self.attachment(abilities));
                let client = self.asking(&id);
                self.answer(id, None, async move { create(&hub, attach, client, params).await }).await;
            }
            LoadSessionRequest::METHOD | ResumeSessionRequest::METHOD => {
                let Some(session) = session else {
                    return self.refuse(&id, &RpcError::invalid_params("`sessionId` is missing")).await;
                };
                if self.is_changing(&session) {
                    return self.refuse(&id, &busy()).await;
                }
                // A client that loads a session again reads it from the new place on. If that fails, it goes on as before, and
                // its answers and cancellations reach the session meanwhile.
                let earlier = self.sessions.remove(&session);
                let open = earlier.as_ref().map(|earlier| earlier.session.live.clone());
                let (hub, params) = (self.hub.clone(), value());
                let attach = ClientAttachment { earlier, ..self.attachment(abilities) };
                let (opening, is_load) = (Some(session.clone()), method == LoadSessionRequest::METHOD);
                let opened = async move { open_session(&hub, attach, session, params, is_load).await };
                let request = AnsweringRequest { id, session: opening, cancelled: Arc::default(), open };
                self.answer_cancellable(request, opened).await;
            }
            ListSessionsRequest::METHOD => {
                let request = params.map(|params| serde_json::from_str::<ListSessionsRequest>(params.get()));
                match request.transpose() {
                    Ok(request) => {
                        let listed = self.hub.list(&self.principal, request.unwrap_or_default()).await;
                        let result = listed.and_then(|listed| to_raw_value(&listed).map_err(Error::Encode));
                        self.respond_with(&id, result).await;
                    }
                    Err(error) => self.refuse(&id, &RpcError::invalid_params(error.to_string())).await,
                }
            }
            AuthenticateRequest::METHOD => self.pass(id, AuthenticateRequest::METHOD, params).await,
            LogoutRequest::METHOD => self.pass(id, LogoutRequest::METHOD, params).await,
            CloseSessionRequest::METHOD | DeleteSessionRequest::METHOD => {
                let Some(session) = session else {
                    return self.refuse(&id, &RpcError::invalid_params("`sessionId` is missing")).await;
                };
                if self.is_changing(&session) {
                    return self.refuse(&id, &busy()).await;
                }
                let open = self.sessions.remove(&session);
                let (hub, principal) = (self.hub.clone(), self.principal.clone());
                let is_deleted = method == DeleteSessionRequest::METHOD;
                self.answer(id, Some(session.clone()), async move {
                    if let Some(open) = open {
                        open.release().await;
                    }
                    if is_deleted {
                        hub.delete(&principal, &session).await?;
                    }
                    result(&json!({}))
                })
                .await;
            }
            PromptRequest::METHOD if self.hub.is_closed(self.role.is_work()) => {
                self.refuse(&id, &Error::Closed.to_wire()).await
            }
            _ => match session {
                Some(_) if !passes(method, params) => {
                    self.refuse(&id, &RpcError::method_not_found(method)).await
                }
                Some(session) => match self.sessions.get(&session) {
                    Some(open) => self.forward(&open.session.live.clone(), line).await,
                    None => self.refuse(&id, &Error::UnknownSession.to_wire()).await,
                },
                None if needs_no_session(method) && passes(method, params) => {
                    self.pass(id, method, params).await
                }
                None => self.refuse(&id, &RpcError::method_not_found(method)).await,
            },
        }
    }

    async fn initialize(&mut self, id: RequestId, params: Option<&RawValue>) {
        let request = params.map(|params| serde_json::from_str::<InitializeRequest>(params.get()));
        let request = match request {
            Some(Ok(request)) => request,
            Some(Err(error)) => return self.refuse(&id, &RpcError::invalid_params(error.to_string())).await,
            None => return self.refuse(&id, &RpcError::invalid_params("the params are missing")).await,
        };
        if self.abilities.is_some() {
            let error = RpcError::invalid_request("the connection is initialized already");
            return self.refuse(&id, &error).await;
        }
        let mut abilities = Abilities::of(&request.client_capabilities);
        if !self.hub.has_client_files() {
            // An agent can send requests that were not advertised to it.
            abilities = abilities.without_files();
        }
        let schemes = abilities.schemes();
        self.abilities = Some(abilities);
        // A client whose connection was lost for good continues it with its key.
        let continued: Option<ClientMeta> = request.meta.and_then(|meta| meta.get("duologue"));
        if let Some(key) = continued.and_then(|meta| Uuid::try_parse(&meta.client?).ok()) {
            self.client = ClientKey::new(key.to_string());
        }
        self.hub.register((self.principal.clone(), self.client.clone()), &self.end);
        let (hub, client) = (self.hub.clone(), self.client.clone());
        self.answer(id, None, async move {
            let introduction = introduced(hub.introduction(schemes).await?, hub.has_client_files());
            with_meta(&introduction, [("client", json!(client))]).map(Answer::Introduction)
        })
        .await;
    }

    /// Passes a request that belongs to no session to an agent.
    async fn pass(&mut self, id: RequestId, method: &str, params: Option<&RawValue>) {
        let (hub, method) = (self.hub.clone(), method.to_owned());
        let params = params.map(RawValue::to_owned);
        let client = self.asking(&id);
        let cancelled = Arc::<Notify>::default();
        let is_cancelled = cancelled.clone();
        let passed = async move {
            let request = hub.request_of_no_session(&method, params.as_deref(), &client, &is_cancelled);
            request.await.map(Answer::Result)
        };
        self.answer_cancellable(AnsweringRequest { id, session: None, cancelled, open: None }, passed).await;
    }

    /// Starts the task that answers a request. Other messages are handled meanwhile.
    async fn answer(
        &mut self,
        id: RequestId,
        session: Option<SessionId>,
        answering: impl Future<Output = Answered> + Send + 'static,
    ) {
        let request = AnsweringRequest { id, session, cancelled: Arc::default(), open: None };
        self.answer_cancellable(request, answering).await;
    }

    async fn answer_cancellable(
        &mut self,
        request: AnsweringRequest,
        answering: impl Future<Output = Answered> + Send + 'static,
    ) {
        if self.answering.len() >= ANSWERING {
            let error =
                format!("{ANSWERING} requests of this client open or close sessions already; retry later");
            return self.refuse(&request.id, &interruption("limit_reached", &error)).await;
        }
        let task = self.answering.spawn(answering).id();
        self.answering_requests.insert(task, request);
    }

    /// Returns the client for the questions of an agent that handles a request of it.
    fn asking(&self, request: &RequestId) -> AskingClient {
        AskingClient {
            request: request.clone(),
            abilities: self.abilities.unwrap_or_default(),
            output: self.replies.clone(),
            questions: self.questions.clone(),
        }
    }

    /// Returns true while a session is opened, closed or deleted for this client.
    fn is_changing(&self, session: &SessionId) -> bool {
        self.answering_requests.values().any(|request| request.session.as_ref() == Some(session))
    }

    fn attachment(&self, abilities: Abilities) -> ClientAttachment {
        ClientAttachment {
            principal: self.principal.clone(),
            from: AttachingClient {
                client: self.client.clone(),
                attachment: self.hub.next_attachment(),
                abilities,
                replies: self.replies.clone(),
                role: self.role,
            },
            output: self.output.clone(),
            end: self.end.clone(),
            earlier: None,
        }
    }

    /// Sends the response of a request, and the frames behind it if the request opened a session.
    async fn answered(&mut self, request: &RequestId, answered: Answered) {
        if let Err(error) | Ok(Answer::Kept(_, error)) = &answered {
            self.hub.note_failure(error);
        }
        let (open, outcome) = match answered {
            Ok(Answer::Opened(open, result)) => (open, Ok(result)),
            Ok(Answer::Kept(open, error)) => (open, Err(error)),
            Ok(Answer::Result(result)) => return self.respond(request, Ok(&result)).await,
            Ok(Answer::Introduction(result)) => {
                return respond(&self.output.with_logins(), request, Ok(&result)).await;
            }
            Err(error) => return self.respond(request, Err(&error.to_wire())).await,
        };
        let session = open.session.live.id.clone();
        // The end of the connection drops this future, and hands the session over.
        self.sessions.insert(session.clone(), open);
        self.respond_with(request, outcome).await;
        let Some(open) = self.sessions.get_mut(&session) else { return };
        open.reader.begin();
        if !self.is_present {
            open.session.report(false).await;
        }
    }
}

async fn respond(output: &ClientOutput, id: &RequestId, outcome: Result<&RawValue, &RpcError>) {
    let line = response_frame(id.token(), outcome)
        .unwrap_or_else(|error| error_response(id.token(), &RpcError::internal(error.to_string())));
    output.send(line).await;
}

/// Waits for a change of the presence of a client.
async fn next_presence(presence: &mut watch::Receiver<bool>) -> bool {
    match presence.changed().await {
        Ok(()) => *presence.borrow_and_update(),
        Err(_) => std::future::pending().await,
    }
}

/// Returns the answer with a result.
fn result(result: &impl serde::Serialize) -> Answered {
    to_raw_value(result).map(Answer::Result).map_err(Error::Encode)
}

/// The member `duologue` in the `_meta` of `initialize`.
#[derive(serde::Deserialize)]
struct ClientMeta {
    client: Option<String>,
}

/// The members of `_meta.duologue` that are those of the hub. An agent that sends them could mislead a client.
const OWN_MEMBERS: [&str; 7] = ["client", "resume", "position", "requests", "turn", "after", "fresh"];

/// Returns a result with members in `_meta.duologue`, with which a client continues after a lost connection, and without those
/// of the agent with these names. The text of the other members stays as it is.
fn with_meta<const N: usize>(
    result: &impl serde::Serialize,
    members: [(&str, Value); N],
) -> Result<Box<RawValue>, Error> {
    type RawMembers = BTreeMap<String, Box<RawValue>>;

    let result = to_raw_value(result).map_err(Error::Encode)?;
    if !result.get().starts_with('{') {
        return Ok(result);
    }
    let mut outer: RawMembers = serde_json::from_str(result.get()).map_err(Error::Decode)?;
    let inner = |of: &RawMembers, name: &str| -> RawMembers {
        of.get(name).and_then(|value| serde_json::from_str(value.get()).ok()).unwrap_or_default()
    };
    let mut meta = inner(&outer, "_meta");
    let mut own = inner(&meta, "duologue");
    own.retain(|name, _| !OWN_MEMBERS.contains(&name.as_str()));
    for (name, value) in members {
        own.insert(name.to_owned(), to_raw_value(&value).map_err(Error::Encode)?);
    }
    meta.insert("duologue".to_owned(), to_raw_value(&own).map_err(Error::Encode)?);
    outer.insert("_meta".to_owned(), to_raw_value(&meta).map_err(Error::Encode)?);
    to_raw_value(&outer).map_err(Error::Encode)
}

/// Returns the introduction of the hub: that of the agent, with the hub's own session methods.
fn introduced(mut introduction: InitializeResponse, client_files: bool) -> InitializeResponse {
    introduction.protocol_version = ProtocolVersion::V1;
    if !client_files {
        // The client would run a program with arguments and variables of the agent.
        introduction.auth_methods.retain(|method| matches!(method, AuthMethod::Agent(_)));
        for method in &mut introduction.auth_methods {
            if let AuthMethod::Agent(method) = method
                && let Some(meta) = &mut method.meta
            {
                let similar = |key: &Cow<'_, str>| is_similar_name(key, AuthMethod::TERMINAL_META);
                let keys: Vec<String> = meta.keys().filter(similar).map(Cow::into_owned).collect();
                keys.iter().for_each(|key| _ = meta.remove(key));
            }
        }
    }
    let capabilities = &mut introduction.agent_capabilities;
    let schemes = passed_on(DuologueCapabilities::of(capabilities.meta.as_ref()));
    for meta in [&mut introduction.meta, &mut capabilities.meta].into_iter().flatten() {
        meta.remove(DuologueCapabilities::KEY);
    }
    schemes.write_to(&mut capabilities.meta);
    capabilities.load_session = true;
    let sessions = json!({"list": {}, "resume": {}, "close": {}, "delete": {}});
    if let Ok(sessions) = serde_json::from_value(sessions) {
        let of_agent = std::mem::replace(&mut capabilities.session_capabilities, sessions);
        // Members of the params that open a session reach the agent.
        capabilities.session_capabilities.system_prompt = of_agent.system_prompt;
        capabilities.session_capabilities.additional_directories = of_agent.additional_directories;
    }
    introduction
}

fn busy() -> RpcError {
    interruption("busy", "the session is being opened or closed; retry after the response of that request")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_keeps_the_text_of_its_other_members() {
        for (result, expected) in [
            (
                r#"{"b":1.50,"_meta":{"a":1e400,"duologue":{"c":{ }}}}"#,
                r#"{"_meta":{"a":1e400,"duologue":{"c":{ },"p":7}},"b":1.50}"#,
            ),
            (
                r#"{"_meta":{"duologue":{"client":"a","turn":true,"resume":{}}}}"#,
                r#"{"_meta":{"duologue":{"p":7}}}"#,
            ),
            (r#"{"_meta":null}"#, r#"{"_meta":{"duologue":{"p":7}}}"#),
            ("null", "null"),
        ] {
            let result: Box<RawValue> = serde_json::from_str(result).unwrap();
            assert_eq!(with_meta(&result, [("p", json!(7))]).unwrap().get(), expected);
        }
        // Half of a pair of surrogates is no name, and what follows would not be read.
        let result: Box<RawValue> =
            serde_json::from_str(r#"{"\ud800":1,"_meta":{"duologue":{"p":1}}}"#).unwrap();
        assert!(with_meta(&result, [("p", json!(7))]).is_err());
    }
}
