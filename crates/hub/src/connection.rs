//! The connection of one client: its requests, and the sessions that it has open.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use duologue_rpc::raw_message::response_line;
use duologue_rpc::{Limits, LineBuffer, Malformed, RpcMessage, Transport};
use duologue_schema::{
    AuthenticateRequest, CancelRequestNotification, CloseSessionRequest, DeleteSessionRequest,
    DuologueCapabilities, Error as RpcError, InitializeRequest, InitializeResponse, ListSessionsRequest,
    LoadSessionRequest, LoadSessionResponse, LogoutRequest, NewSessionRequest, Notification as _,
    PromptRequest, ProtocolVersion, Request as _, RequestId, ResumeSessionRequest, SessionId,
    SessionNotification,
};
use duologue_store::FileLog;
use serde::Deserialize as _;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::{Id, JoinHandle, JoinSet};
use tokio::time::timeout;
use uuid::Uuid;

use crate::abilities::Abilities;
use crate::error::Error;
use crate::hub::HubShared;
use crate::load;
use crate::output::{ClientOutput, OutputWriter};
use crate::projection::{ClientView, error_response, interruption, project};
use crate::record::ClientKey;
use crate::session_task::{AttachReply, LiveSession, Replies, SessionCommand, ended_response};

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

    /// Closes the session for the client, and waits until the session knows.
    async fn leave(mut self) {
        let _ = self.live.commands.send(self.left()).await;
        self.is_open = false;
    }

    /// Closes the session, and ends its process if no other client has it open. Returns true if it has ended.
    async fn release(mut self) -> bool {
        let (done, closed) = oneshot::channel();
        let (client, attachment) = (self.client.clone(), self.attachment);
        let command = SessionCommand::Release { client, attachment, done };
        let sent = self.live.commands.send(command).await;
        self.is_open = false;
        if sent.is_ok() {
            let _ = closed.await;
        }
        self.live.commands.is_closed()
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
    /// Ends the reader.
    fn into_session(self) -> SessionUse {
        self.session
    }

    /// Closes the session. If it ends with that, the client receives its last frames, such as the response to a prompt.
    async fn release(self) {
        let OpenSession { session, mut reader } = self;
        if session.release().await {
            let _ = timeout(LAST_FRAMES, &mut reader.0).await;
        }
    }
}

/// The task of a [`LogReader`]. Dropping it ends the task.
#[derive(Debug)]
struct LogReaderTask(JoinHandle<()>);

impl Drop for LogReaderTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The outcome of a request that was answered in a task of its own.
type Answered = Result<Answer, Error>;

/// The time in which a client receives the last frames of a session that it has closed.
const LAST_FRAMES: Duration = Duration::from_secs(10);
/// Limit on the requests of a client that are answered in tasks at once.
const ANSWERING: usize = 64;
/// The number of times that a session is opened again if it ends meanwhile.
const ATTEMPTS: usize = 3;

enum Answer {
    /// A result without an effect on the connection.
    Result(Box<RawValue>),
    /// A session that was created, loaded or resumed.
    Opened(OpenedSession),
}

struct OpenedSession {
    session: SessionUse,
    log: Arc<FileLog>,
    result: Box<RawValue>,
    /// The position behind which the client reads the log.
    position: u64,
}

/// The connection of a client.
pub(crate) struct ClientConnection {
    hub: Arc<HubShared>,
    client: ClientKey,
    abilities: Option<Abilities>,
    output: ClientOutput,
    replies: Replies,
    sessions: HashMap<SessionId, OpenSession>,
    answering: JoinSet<Answered>,
    /// The requests of the tasks in `answering`, with the session that is opened, closed or deleted.
    answering_requests: HashMap<Id, (RequestId, Option<SessionId>)>,
    /// Notified to end the connection: a reader of a log has failed, or another connection continues this one.
    end: Arc<Notify>,
}

impl Drop for ClientConnection {
    fn drop(&mut self) {
        self.hub.unregister(&self.client, &self.end);
    }
}

impl ClientConnection {
    /// Serves a client until its input ends.
    pub(crate) async fn serve(hub: Arc<HubShared>, transport: Transport) {
        let (mut reader, writer) = transport.into_split();
        let (output, writer) = OutputWriter::start(writer);
        let (replies, mut waiting) = mpsc::unbounded_channel();
        let mut connection = ClientConnection {
            hub,
            client: ClientKey::new(Uuid::now_v7().to_string()),
            abilities: None,
            output,
            replies,
            sessions: HashMap::new(),
            answering: JoinSet::new(),
            answering_requests: HashMap::new(),
            end: Arc::new(Notify::new()),
        };
        let mut buffer = LineBuffer::new(Limits::default().frame_bytes);
        loop {
            let count = tokio::select! {
                biased;
                Some(line) = waiting.recv() => {
                    connection.output.send(line).await;
                    continue;
                }
                Some(answered) = connection.answering.join_next_with_id(), if !connection.answering.is_empty() => {
                    let (task, answered) = match answered {
                        Ok((task, answered)) => (task, answered),
                        // It has panicked.
                        Err(error) => (error.id(), Err(Error::Closed)),
                    };
                    if let Some((request, _)) = connection.answering_requests.remove(&task) {
                        connection.answered(&request, answered).await;
                    }
                    continue;
                }
                () = connection.end.notified() => break,
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
                connection.line(line).await;
            }
        }
        drop(connection);
        writer.finish().await;
    }

    async fn line(&mut self, line: Vec<u8>) {
        let repaired = RpcMessage::repair(&line);
        let text = repaired.as_deref().unwrap_or(&line);
        match RpcMessage::read(text, &Limits::default()) {
            None => {}
            Some(Ok(RpcMessage::Request { id, method, params })) => {
                let session = params.and_then(session_id);
                self.request(id, &method, params, session, text).await;
            }
            Some(Ok(RpcMessage::Notification { method, params })) => {
                if method == CancelRequestNotification::METHOD {
                    // It names no session. The owner that knows the request takes it.
                    let live: Vec<_> = self.sessions.values().map(|open| open.session.live.clone()).collect();
                    for live in live {
                        self.forward(&live, text).await;
                    }
                } else if let Some(open) = params.and_then(session_id).and_then(|id| self.sessions.get(&id)) {
                    self.forward(&open.session.live.clone(), text).await;
                }
            }
            Some(Ok(RpcMessage::Response { id, .. })) => {
                let id: Option<String> = serde_json::from_str(id.get()).ok();
                let session = id.as_deref().and_then(|id| id.rsplit_once(':'));
                let open = session.and_then(|(session, _)| self.sessions.get(&SessionId::from(session)));
                if let Some(open) = open {
                    self.forward(&open.session.live.clone(), text).await;
                }
            }
            Some(Err(Malformed::Request(id, error))) => self.refuse(&id, &error).await,
            Some(Err(Malformed::Noise(error))) => self.refuse(&RequestId::null(), &error).await,
            Some(_) => {}
        }
    }

    async fn forward(&self, live: &LiveSession, line: &[u8]) {
        let command = SessionCommand::FromClient { client: self.client.clone(), line: line.to_vec() };
        if live.commands.send(command).await.is_err()
            && let Some(answer) = ended_response(line)
        {
            self.output.send(answer).await;
        }
    }

    async fn refuse(&self, id: &RequestId, error: &RpcError) {
        self.output.send(error_response(id.token(), error)).await;
    }

    async fn respond(&self, id: &RequestId, outcome: Result<&RawValue, &RpcError>) {
        match response_line(id.token(), outcome) {
            Ok(mut line) => {
                line.pop();
                self.output.send(line).await;
            }
            Err(error) => self.refuse(id, &RpcError::internal(error.to_string())).await,
        }
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
                self.answer(id, None, async move { create(&hub, attach, params).await.map(Answer::Opened) })
                    .await;
            }
            LoadSessionRequest::METHOD | ResumeSessionRequest::METHOD => {
                let Some(session) = session else {
                    return self.refuse(&id, &RpcError::invalid_params("`sessionId` is missing")).await;
                };
                if self.is_changing(&session) {
                    return self.refuse(&id, &busy()).await;
                }
                // A client that loads a session again reads it from the new place on.
                if let Some(open) = self.sessions.remove(&session) {
                    open.into_session().leave().await;
                }
                let (hub, attach, params) = (self.hub.clone(), self.attachment(abilities), value());
                let (output, opening) = (self.output.clone(), Some(session.clone()));
                let is_load = method == LoadSessionRequest::METHOD;
                self.answer(id, opening, async move {
                    open_session(&hub, &attach, session, params, output, is_load).await.map(Answer::Opened)
                })
                .await;
            }
            ListSessionsRequest::METHOD => {
                let request = params.map(|params| serde_json::from_str::<ListSessionsRequest>(params.get()));
                match request.transpose() {
                    Ok(request) => {
                        let listed = self.hub.list(request.unwrap_or_default()).await;
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
                let hub = self.hub.clone();
                let is_deleted = method == DeleteSessionRequest::METHOD;
                self.answer(id, Some(session.clone()), async move {
                    if let Some(open) = open {
                        open.release().await;
                    }
                    if is_deleted {
                        hub.delete(&session).await?;
                    }
                    result(&json!({}))
                })
                .await;
            }
            PromptRequest::METHOD if self.hub.is_closed() => self.refuse(&id, &Error::Closed.to_wire()).await,
            _ => match session {
                Some(session) => match self.sessions.get(&session) {
                    Some(open) => self.forward(&open.session.live.clone(), line).await,
                    None => self.refuse(&id, &Error::UnknownSession.to_wire()).await,
                },
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
        self.abilities = Some(Abilities::of(&request.client_capabilities));
        // A client whose connection was lost for good continues it with its key.
        let continued: Option<ClientMeta> = request.meta.and_then(|meta| meta.get("duologue"));
        if let Some(key) = continued.and_then(|meta| Uuid::try_parse(&meta.client?).ok()) {
            self.client = ClientKey::new(key.to_string());
        }
        self.hub.register(&self.client, &self.end);
        let (hub, client) = (self.hub.clone(), self.client.clone());
        self.answer(id, None, async move {
            let introduction = introduced(hub.introduction().await?);
            with_meta(&introduction, [("client", json!(client))]).map(Answer::Result)
        })
        .await;
    }

    /// Passes a request that belongs to no session to an agent.
    async fn pass(&mut self, id: RequestId, method: &'static str, params: Option<&RawValue>) {
        let (hub, params) = (self.hub.clone(), params.map(RawValue::to_owned));
        let passed =
            async move { hub.request_of_no_session(method, params.as_deref()).await.map(Answer::Result) };
        self.answer(id, None, passed).await;
    }

    /// Starts the task that answers a request. Other messages are handled meanwhile.
    async fn answer(
        &mut self,
        id: RequestId,
        session: Option<SessionId>,
        answering: impl Future<Output = Answered> + Send + 'static,
    ) {
        if self.answering.len() >= ANSWERING {
            let error =
                format!("{ANSWERING} requests of this client open or close sessions already; retry later");
            return self.refuse(&id, &interruption("limit_reached", &error)).await;
        }
        let task = self.answering.spawn(answering).id();
        self.answering_requests.insert(task, (id, session));
    }

    /// Returns true while a session is opened, closed or deleted for this client.
    fn is_changing(&self, session: &SessionId) -> bool {
        self.answering_requests.values().any(|(_, changing)| changing.as_ref() == Some(session))
    }

    fn attachment(&self, abilities: Abilities) -> Attachment {
        let attachment = self.hub.next_attachment();
        Attachment { client: self.client.clone(), attachment, abilities, replies: self.replies.clone() }
    }

    /// Sends the response of a request, and the frames behind it if the request opened a session.
    async fn answered(&mut self, request: &RequestId, answered: Answered) {
        let OpenedSession { session, log, result, position } = match answered {
            Ok(Answer::Opened(session)) => session,
            Ok(Answer::Result(result)) => return self.respond(request, Ok(&result)).await,
            Err(error) => return self.respond(request, Err(&error.to_wire())).await,
        };
        self.respond(request, Ok(&result)).await;
        let Some(abilities) = self.abilities else { return };
        let reader = LogReader {
            client: self.client.clone(),
            abilities,
            live: session.live.clone(),
            log,
            output: self.output.clone(),
            end: self.end.clone(),
        };
        let reader = LogReaderTask(tokio::spawn(reader.run(position)));
        self.sessions.insert(session.live.id.clone(), OpenSession { session, reader });
    }
}

/// The members of a client that a session needs.
struct Attachment {
    client: ClientKey,
    attachment: u64,
    abilities: Abilities,
    replies: Replies,
}

impl Attachment {
    /// Opens a session for the client, and returns the position behind which the client reads the log.
    async fn attach(
        &self,
        live: LiveSession,
        params: Option<Value>,
    ) -> Result<(SessionUse, Arc<FileLog>, AttachReply), Error> {
        let (attached, reply) = oneshot::channel();
        let log = live.log.upgrade().ok_or(Error::UnknownSession)?;
        let (client, abilities, replies) = (self.client.clone(), self.abilities, self.replies.clone());
        let attachment = self.attachment;
        let session = SessionUse { live: live.clone(), client: client.clone(), attachment, is_open: true };
        let command = SessionCommand::Attach { client, attachment, abilities, replies, params, attached };
        live.commands.send(command).await.map_err(|_| Error::UnknownSession)?;
        let reply = reply.await.map_err(|_| Error::UnknownSession)?;
        Ok((session, log, reply))
    }
}

/// Returns the answer with a result.
fn result(result: &impl serde::Serialize) -> Answered {
    to_raw_value(result).map(Answer::Result).map_err(Error::Encode)
}

async fn create(hub: &Arc<HubShared>, attach: Attachment, params: Value) -> Result<OpenedSession, Error> {
    let (live, result) = hub.new_session(params).await?;
    let (session, log, reply) = attach.attach(live, None).await?;
    let result = with_meta(&result, [("position", json!(reply.position))])?;
    Ok(OpenedSession { session, log, result, position: reply.position })
}

/// The member `duologue` in the `_meta` of `initialize`.
#[derive(serde::Deserialize)]
struct ClientMeta {
    client: Option<String>,
}

/// The member `duologue` in the `_meta` of `session/resume`.
#[derive(serde::Deserialize)]
struct ResumeMeta {
    after: Option<SeenFrames>,
}

/// The frames of a session that a client has: its requests and notifications with the session's id.
#[derive(Clone, Copy, serde::Deserialize)]
struct SeenFrames {
    /// The position in the result that opened the session.
    position: u64,
    /// The number of frames after that result.
    frames: u64,
}

/// Opens an existing session, and replays its conversation or what the client has missed.
async fn open_session(
    hub: &Arc<HubShared>,
    attach: &Attachment,
    session: SessionId,
    mut params: Value,
    output: ClientOutput,
    is_load: bool,
) -> Result<OpenedSession, Error> {
    let meta = params.get("_meta").and_then(|meta| meta.get("duologue"));
    let meta = meta.filter(|_| !is_load).and_then(|meta| ResumeMeta::deserialize(meta).ok());
    let seen = meta.and_then(|meta| meta.after);
    if let Some(params) = params.as_object_mut() {
        params.remove("sessionId");
        if seen.is_some() {
            // It is for the hub.
            params.remove("_meta");
        }
    }
    let mut attempts = 1..=ATTEMPTS;
    let (live, (open, log, reply)) = loop {
        attempts.next();
        let live = hub.session(&session, &params).await?;
        match attach.attach(live.clone(), Some(params.clone())).await {
            Ok(attached) => break (live, attached),
            // Another client has closed it meanwhile.
            Err(_) if !attempts.is_empty() => {}
            Err(error) => return Err(error),
        }
    };
    let position = if seen.is_some() { reply.end } else { reply.position };
    // Records become visible in order, so the replay ends where the client reads on.
    live.visible.clone().wait_for(|visible| *visible >= position).await.map_err(|_| Error::UnknownSession)?;
    let (folding, id) = (log.clone(), session.clone());
    let folded = tokio::task::spawn_blocking(move || load::fold(&folding, &id, position)).await;
    let conversation = folded.map_err(|_| Error::Closed)??;
    if is_load {
        for update in load::updates(&conversation) {
            let params = SessionNotification::new(session.clone(), update);
            let line = duologue_rpc::raw_message::call_line(None, SessionNotification::METHOD, &params);
            let mut line = line.map_err(Error::Encode)?;
            line.pop();
            output.send(line).await;
        }
    } else if let Some(seen) = seen {
        let reader = LogReader {
            client: attach.client.clone(),
            abilities: attach.abilities,
            live,
            log: log.clone(),
            output,
            end: Arc::default(),
        };
        reader.send_missed(seen, position).await?;
    }
    let mut response = LoadSessionResponse::new();
    response.modes.clone_from(&conversation.state().modes);
    let options = conversation.config_options();
    response.config_options = (!options.is_empty()).then(|| options.to_vec());
    let mine = [("position", json!(position)), ("requests", json!(reply.requests))];
    let result = with_meta(&response, mine)?;
    Ok(OpenedSession { session: open, log, result, position })
}

/// Returns a result with members in `_meta.duologue`, with which a client continues after a lost connection. The text of the
/// other members stays as it is.
fn with_meta<const N: usize>(
    result: &impl serde::Serialize,
    members: [(&str, Value); N],
) -> Result<Box<RawValue>, Error> {
    type RawMembers = BTreeMap<String, Box<RawValue>>;

    let result = to_raw_value(result).map_err(Error::Encode)?;
    let Ok(mut outer) = serde_json::from_str::<RawMembers>(result.get()) else { return Ok(result) };
    let inner = |of: &RawMembers, name: &str| -> RawMembers {
        of.get(name).and_then(|value| serde_json::from_str(value.get()).ok()).unwrap_or_default()
    };
    let mut meta = inner(&outer, "_meta");
    let mut own = inner(&meta, "duologue");
    for (name, value) in members {
        own.insert(name.to_owned(), to_raw_value(&value).map_err(Error::Encode)?);
    }
    meta.insert("duologue".to_owned(), to_raw_value(&own).map_err(Error::Encode)?);
    outer.insert("_meta".to_owned(), to_raw_value(&meta).map_err(Error::Encode)?);
    to_raw_value(&outer).map_err(Error::Encode)
}

/// Returns the introduction of the hub: that of the agent, with the hub's own session methods.
fn introduced(mut introduction: InitializeResponse) -> InitializeResponse {
    introduction.protocol_version = ProtocolVersion::V1;
    let capabilities = &mut introduction.agent_capabilities;
    // Messages of agents to each other, and clears, are not passed on.
    for meta in [&mut introduction.meta, &mut capabilities.meta].into_iter().flatten() {
        meta.remove(DuologueCapabilities::KEY);
    }
    capabilities.load_session = true;
    let sessions = json!({"list": {}, "resume": {}, "close": {}, "delete": {}});
    if let Ok(sessions) = serde_json::from_value(sessions) {
        capabilities.session_capabilities = sessions;
    }
    introduction
}

fn session_id(params: &RawValue) -> Option<SessionId> {
    let id = duologue_rpc::raw_message::member_text(params.get().as_bytes(), "sessionId")?;
    Some(SessionId::from(id.into_owned()))
}

/// Returns true for a frame that [`SeenFrames`] counts.
fn is_counted(frame: &[u8], session: &SessionId) -> bool {
    match RpcMessage::read(frame, &Limits::default()) {
        Some(Ok(RpcMessage::Request { params, .. } | RpcMessage::Notification { params, .. })) => {
            params.and_then(session_id).as_ref() == Some(session)
        }
        _ => false,
    }
}

fn busy() -> RpcError {
    interruption("busy", "the session is being opened or closed; retry after the response of that request")
}

/// Reads the log of a session for a client.
struct LogReader {
    client: ClientKey,
    abilities: Abilities,
    live: LiveSession,
    log: Arc<FileLog>,
    output: ClientOutput,
    /// Notified if the log cannot be read.
    end: Arc<Notify>,
}

impl LogReader {
    /// Sends the frames up to a position that a client has missed.
    async fn send_missed(&self, seen: SeenFrames, end: u64) -> Result<(), Error> {
        if seen.position > end {
            return Err(Error::CursorGone { position: seen.position, end });
        }
        let (mut position, mut seen) = (seen.position, seen.frames);
        while position < end {
            let (frames, last) = self.page(position, end).await?;
            for frame in frames {
                if seen > 0 && is_counted(&frame, &self.live.id) {
                    seen -= 1;
                } else {
                    self.output.send(frame).await;
                }
            }
            if last == position {
                break;
            }
            position = last;
        }
        Ok(())
    }

    /// Sends the frames behind a position until the session ends.
    async fn run(mut self, mut position: u64) {
        loop {
            let visible = *self.live.visible.borrow_and_update();
            while position < visible {
                match self.page(position, visible).await {
                    Ok((frames, last)) => {
                        position = last;
                        for frame in frames {
                            self.output.send(frame).await;
                        }
                    }
                    Err(error) => {
                        tracing::error!(session = %self.live.id, %error, "a log cannot be read; its client is disconnected");
                        return self.end.notify_one();
                    }
                }
            }
            if self.live.visible.changed().await.is_err() {
                return;
            }
        }
    }

    /// Reads a page, and returns its frames and its last position.
    async fn page(&self, after: u64, visible: u64) -> Result<(Vec<Vec<u8>>, u64), Error> {
        /// The size of a page in bytes.
        const PAGE: usize = 256 << 10;
        let (id, log) = (self.live.id.clone(), self.log.clone());
        let (client, abilities) = (self.client.clone(), self.abilities);
        let read = move || {
            use duologue_store::{Log as _, LogPosition};

            let page = log.read(LogPosition::new(after), PAGE)?;
            let view = ClientView { client: &client, session: &id, abilities };
            let (mut frames, mut last) = (Vec::new(), after);
            for record in page.records.iter().take_while(|record| record.position.number() <= visible) {
                let earlier = |position: u64| {
                    let page = log.read(LogPosition::new(position.checked_sub(1)?), 1).ok()?;
                    page.records.first().map(|record| record.line.to_vec())
                };
                last = record.position.number();
                project(&view, last, &record.line, earlier, &mut frames)?;
            }
            Ok((frames, last))
        };
        tokio::task::spawn_blocking(read).await.map_err(|_| Error::Closed)?
    }
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
            (r#"{"_meta":null}"#, r#"{"_meta":{"duologue":{"p":7}}}"#),
            ("null", "null"),
        ] {
            let result: Box<RawValue> = serde_json::from_str(result).unwrap();
            assert_eq!(with_meta(&result, [("p", json!(7))]).unwrap().get(), expected);
        }
    }
}
