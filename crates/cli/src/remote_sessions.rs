//! The relay of `duologue connect`: a client, and a connection to a server that is replaced when the server has lost it.
//!
//! `duologue-http` resumes a lost socket. This is for what it cannot resume, such as a server that was started
//! again. The new connection has the key of the old one (`_meta.duologue.client`), and the sessions are resumed behind the
//! frames that the client has (`_meta.duologue.after`). Answers are repeated if their question comes again
//! on the new connection. Requests are never repeated: those that the server does not know are answered with the error `interrupted`.
//!
//! Without `--allow-files` the relay also stands between the server and the files and programs of the client.

mod client_files;
mod client_lines;
mod lines;
mod link_log;
mod messages;
mod paths;
mod replacement;
mod stderr_log;

use std::collections::HashMap;
use std::convert::Infallible;
use std::hash::BuildHasher as _;
use std::io;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use duologue_http::{ConnectOptions, connect as open};
use duologue_proxy::{PathMap, Side};
use duologue_rpc::raw_message::{call_frame, is_of_transport, response_frame};
use duologue_rpc::{Limits, Lock as _, Malformed, ResponseOutcome, RpcMessage, Transport};
use duologue_schema::{
    CancelNotification, CancelRequestNotification, CloseSessionRequest, DeleteSessionRequest,
    Error as RpcError, InitializeRequest, Notification as _, PromptRequest, Request as _, RequestId,
    SessionId, SessionNotification, SessionUpdate, is_of_client_files,
};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{Notify, mpsc};
use tokio::time::timeout;

use self::client_lines::{LongLine, RefusedLine};
use self::lines::{LineError, RelayLines};
pub(crate) use self::link_log::first_failure;
use self::link_log::{connected, report};
use self::replacement::{Losses, RelayServer, WaitingClient, is_replaceable, replace};
pub(crate) use self::stderr_log::end_log;
use self::stderr_log::log;
use messages::{
    QuestionContent, check_id, is_question, key, opens_session, position, refuse, request_id_of,
    root_session_of, session_of, set_meta, value, with_fresh, with_fresh_option,
};

/// The settings of a relay.
#[derive(Clone)]
pub(crate) struct RelaySettings {
    /// True if the server may use the files and terminals of the client.
    pub(crate) allows_files: bool,
    /// True if a session may continue without its conversation, should the agent have lost it.
    pub(crate) fresh: bool,
    /// The folders of the client and of the server, if they differ.
    pub(crate) paths: Option<PathMap>,
    /// The time in which the server has to accept the last messages after the client has ended.
    pub(crate) end_wait: Duration,
}

impl Default for RelaySettings {
    fn default() -> Self {
        RelaySettings { allows_files: false, fresh: false, paths: None, end_wait: Duration::from_secs(2) }
    }
}

/// The bytes that are written to the client at once, if as many were read.
const WRITE_BYTES: usize = 64 << 10;

/// The longest id of a question, a session or a client from the server that is kept.
const ID_BYTES: usize = 1024;
/// The most questions that are kept. The oldest one is forgotten beyond it, so that the client may receive it again.
const QUESTIONS: usize = 256;
/// The longest answer that is kept. The client may receive a question with a longer one again.
const ANSWER_BYTES: usize = 64 << 10;
/// The most answers that wait for the server. It does not read then, and the answers beyond it are dropped.
const ANSWERS: usize = 1024;

/// The most errors for the client that wait for it. Its next line waits too then.
const REFUSALS: usize = 2;

/// Connects to the server, and relays until the client or the server ends the connection, or the server does not answer
/// within [`RelaySettings::end_wait`] after the client has ended. `input_end` is ready if the client is known to have ended
/// before all its lines are read.
///
/// # Errors
///
/// The error of the connection, if it cannot be opened or replaced.
pub(crate) async fn relay(
    client: Transport,
    input_end: impl Future<Output = ()>,
    url: &str,
    options: &ConnectOptions,
    settings: RelaySettings,
) -> io::Result<()> {
    let (reader, to_client) = client.into_split();
    let client = RelayLines::new(reader);
    let (end, end_wait) = (client.end.clone(), settings.end_wait);
    let after_end = async {
        tokio::select! {
            () = end.notified() => {}
            () = input_end => {}
        }
        let _ = timeout(end_wait, std::future::pending::<()>()).await;
    };
    tokio::select! {
        relayed = relay_lines(client, to_client, url, options, settings) => relayed,
        () = after_end => {
            log(format_args!(
                "the client has ended, and the server has not taken or answered all its messages within {end_wait:?}: the last ones may be lost"
            ));
            Ok(())
        }
    }
}

async fn relay_lines(
    mut client: RelayLines,
    mut to_client: impl AsyncWrite + Unpin,
    url: &str,
    options: &ConnectOptions,
    settings: RelaySettings,
) -> io::Result<()> {
    let opened = while_client_is_read(&mut client, open(url, options.clone())).await;
    let (server, mut link) = opened.map_err(io::Error::other)?;
    let mut server = RelayServer::new(server);
    let signals = RelaySignals { noticed: Notify::new(), answered: Notify::new(), end: client.end.clone() };
    let book = Mutex::new(Book { settings, ..Book::default() });
    let (answers, mut repeated) = mpsc::channel(ANSWERS);
    let (refusals, mut refused) = mpsc::channel(REFUSALS);
    let mut losses = Losses::default();
    loop {
        let ended = {
            let RelayServer { lines, writer } = &mut server;
            let up = async {
                let is_ready = async || connected(&link).await;
                send_to_server(&mut client, &mut repeated, &refusals, (writer, is_ready), &book).await;
                // A turn goes on without its client.
                while book.lock_unpoisoned().has_requests_but_prompts() {
                    signals.answered.notified().await;
                }
                // The other direction has the reason of a failure.
                let _ = writer.shutdown().await;
                std::future::pending::<Infallible>().await
            };
            let down = send_to_client(lines, &mut refused, &mut to_client, (&book, &signals), &answers);
            tokio::select! {
                ended = down => ended,
                never = up => match never {},
                never = report(link.clone(), &book, &signals.noticed) => match never {},
            }
        };
        let Err(error) = ended else { return Ok(()) };
        let outage = link.outage();
        if !book.lock_unpoisoned().can_continue() || !is_replaceable(&error, outage, options) {
            return Err(error);
        }
        log(format_args!("{error}; the sessions are resumed on another connection"));
        let mut waiting =
            WaitingClient { book: &book, output: &mut to_client, answers: &answers, repeated: &mut repeated };
        let replacing = replace(url, options, (outage, &mut losses), &mut waiting);
        // The next connection gets the lines of a client that ends meanwhile.
        (server, link) = while_client_is_read(&mut client, replacing).await?;
        log(format_args!("the sessions were resumed"));
    }
}

/// Sends the client's lines, and answers that are repeated, until the client ends.
///
/// Lines wait in the relay until the server can receive them: those that a lost connection has not sent can be sent on another.
async fn send_to_server(
    client: &mut RelayLines,
    repeated: &mut mpsc::Receiver<Vec<u8>>,
    refusals: &mpsc::Sender<Vec<u8>>,
    (server, is_ready): (&mut (impl AsyncWrite + Unpin), impl AsyncFn()),
    book: &Mutex<Book>,
) {
    loop {
        let answer = tokio::select! {
            () = client.wait_for_line() => None,
            Some(answer) = repeated.recv() => Some(answer),
        };
        while_client_is_read(client, is_ready()).await;
        // A refusal has its place before its line is taken: another connection drops this future, and what it has. The
        // receiver is there as long as the relay.
        let Ok(refusal) = while_client_is_read(client, refusals.reserve()).await else { return };
        let line = match answer {
            Some(answer) => Ok(Some(answer)),
            None => client.next().await,
        };
        let line = match line {
            Ok(Some(line)) => line,
            Ok(None) => return,
            Err(LineError::TooLong { beginning, limit }) => {
                let long = LongLine::read(&beginning, limit);
                log(format_args!(
                    "a line of the client is longer than {limit} bytes and was not sent; {}",
                    long.consequence()
                ));
                match long {
                    LongLine::Request(error) => {
                        refusal.send(error);
                        continue;
                    }
                    // The agent waits for it.
                    LongLine::Response(error) => error,
                    LongLine::Unanswered => continue,
                }
            }
            Err(LineError::Io(error)) => return log(format_args!("the client cannot be read: {error}")),
        };
        let accepted = book.lock_unpoisoned().accept_client_line(line);
        let line = match accepted {
            Ok(Some(line)) => line,
            Ok(None) => continue,
            Err(RefusedLine { answer, reason }) => {
                log(format_args!("a line of the client was not sent: {reason}"));
                if let Some(answer) = answer {
                    refusal.send(answer);
                }
                continue;
            }
        };
        if while_client_is_read(client, write(server, line)).await.is_err() {
            // The other direction has the reason.
            return std::future::pending().await;
        }
    }
}

/// Waits for the server or for the receiver of a line, and reads the client meanwhile: one that does not answer does not hide
/// the end of the client.
async fn while_client_is_read<T>(client: &mut RelayLines, waiting: impl Future<Output = T>) -> T {
    let mut waiting = pin!(waiting);
    tokio::select! {
        biased;
        done = &mut waiting => done,
        () = client.wait_for_end() => waiting.await,
    }
}

/// The notifications between the directions of a relay.
struct RelaySignals {
    /// There may be notices of the connection.
    noticed: Notify,
    /// There may be fewer requests without a response.
    answered: Notify,
    /// The client has ended, or reads no more.
    end: Arc<Notify>,
}

/// Sends the server's lines, the errors for lines of the client that are not sent, and the notices of the connection, until
/// the server ends. A client that reads no more may have sent lines before, so the lines for it are dropped.
async fn send_to_client(
    server: &mut RelayLines,
    refused: &mut mpsc::Receiver<Vec<u8>>,
    client: &mut (impl AsyncWrite + Unpin),
    (book, signals): (&Mutex<Book>, &RelaySignals),
    answers: &mpsc::Sender<Vec<u8>>,
) -> io::Result<()> {
    let (mut lines, mut is_read) = (Vec::new(), true);
    loop {
        tokio::select! {
            line = async {
                // Errors for requests of the server wait until it reads them.
                let _ = answers.reserve().await;
                server.next().await
            } => {
                let mut next = line?;
                if next.is_none() {
                    return Ok(());
                }
                while let Some(line) = next {
                    if let Some(line) = book.lock_unpoisoned().accept_server_line(line, answers) {
                        lines.extend_from_slice(&line);
                        lines.push(b'\n');
                    }
                    let has_room = lines.len() < WRITE_BYTES && answers.capacity() > 0;
                    next = if has_room { server.buffered() } else { None };
                }
            }
            Some(line) = refused.recv() => {
                lines.extend_from_slice(&line);
                lines.push(b'\n');
            }
            () = signals.noticed.notified() => {
                for line in book.lock_unpoisoned().link_notices() {
                    lines.extend_from_slice(&line);
                    lines.push(b'\n');
                }
            }
        }
        if is_read && (client.write_all(&lines).await.is_err() || client.flush().await.is_err()) {
            is_read = false;
            signals.end.notify_one();
        }
        signals.answered.notify_one();
        lines.clear();
    }
}

async fn write_lines(writer: &mut (impl AsyncWrite + Unpin), lines: Vec<Vec<u8>>) -> io::Result<()> {
    for line in lines {
        write(writer, line).await?;
    }
    Ok(())
}

async fn write(writer: &mut (impl AsyncWrite + Unpin), mut line: Vec<u8>) -> io::Result<()> {
    line.push(b'\n');
    writer.write_all(&line).await?;
    writer.flush().await
}

/// Returns the error for a response that cannot be read, or has more values than a message may have.
fn unreadable(outcome: &ResponseOutcome<'_>) -> Option<RpcError> {
    match outcome {
        ResponseOutcome::Unreadable(error) => {
            Some(RpcError::internal(format!("the response of the server cannot be read: {error}")))
        }
        _ => None,
    }
}

/// A request of the client without a response.
struct PendingRequest {
    /// The id as the client wrote it.
    id: Box<RawValue>,
    method: String,
    /// The session, unless the request opens one.
    session: Option<String>,
    /// The params of `initialize`, and of a request that opens a session.
    params: Value,
    /// The client's cancellation of the prompt.
    cancellation: Option<Vec<u8>>,
}

/// A session that the client has open.
struct OpenSession {
    /// The params of the request that opened it.
    params: Value,
    /// The server's position when it was opened. Only the server reads it.
    position: String,
    /// The requests and notifications of the session since then.
    frames: u64,
}

/// A question of the server's agent.
struct Question {
    session: Option<String>,
    /// The hash of its method and params.
    text: u64,
    /// Its place in the order of the questions.
    number: u64,
    /// The client's answer.
    answer: Option<Vec<u8>>,
    /// True if the connection was replaced since the client received it, so that the server may send it again.
    may_return: bool,
}

/// Lines that follow from the response to a resume.
#[derive(Default)]
struct Settled {
    to_client: Vec<Vec<u8>>,
    to_server: Vec<Vec<u8>>,
}

/// The state of the connection, from the lines that have passed.
#[derive(Default)]
struct Book {
    /// The params of the `initialize` that the server has accepted.
    initialize: Value,
    /// The key of the client, from a server that lets it continue.
    key: Option<String>,
    pending: HashMap<String, PendingRequest>,
    sessions: HashMap<String, OpenSession>,
    questions: HashMap<String, Question>,
    /// The number of questions so far.
    question_count: u64,
    was_replaced: bool,
    /// True if the server is away.
    is_away: bool,
    /// True if the last notice for the client was that the server is away.
    is_noticed_away: bool,
    settings: RelaySettings,
    /// The number of the server's lines that were dropped.
    dropped_lines: u64,
}

impl Book {
    fn can_continue(&self) -> bool {
        self.key.is_some()
    }

    /// Returns true while a request of the client has no response, other than a prompt.
    fn has_requests_but_prompts(&self) -> bool {
        self.pending.values().any(|request| request.method != PromptRequest::METHOD)
    }

    /// Notes a line of the client, and returns the line to send in its place, if any. Without `allows_files` the params of
    /// `initialize` are written anew, so that the server reads what was read here.
    ///
    /// # Errors
    ///
    /// A line that is not exactly one message is not sent. The server could read it in another way. Byte order marks in front
    /// of a message are removed, however many there are, because a reader may skip them.
    fn accept_client_line(&mut self, mut line: Vec<u8>) -> Result<Option<Vec<u8>>, RefusedLine> {
        let mark = client_lines::BYTE_ORDER_MARK;
        let marks = line.chunks(mark.len()).take_while(|part| *part == mark).count();
        line.drain(..marks * mark.len());
        let mapped = paths::mapped(self.settings.paths.as_ref(), Side::Client, line);
        let line = mapped.map_err(|refused| RefusedLine::unmapped(&refused))?;
        let line = client_lines::measured(line)?;
        match RpcMessage::read_strict(&line, &Limits::default()) {
            None => return Ok(None),
            Some(Err(malformed)) => return Err(RefusedLine::malformed(&malformed)),
            Some(Ok(RpcMessage::Request { id, method, params })) => {
                let raw = RawValue::from_string(id.token().to_owned());
                let raw = raw.map_err(|error| RefusedLine::silent(error.to_string()))?;
                // A resume on another connection names it.
                if raw.get().len() > ID_BYTES {
                    let reason =
                        format!("the id of a request has at most {ID_BYTES} bytes; use a shorter one");
                    return Err(RefusedLine::request(&id, reason));
                }
                if serde_json::from_str::<Value>(raw.get()).is_err() {
                    let reason = "the id of the request is no Unicode text; use another one".to_owned();
                    return Err(RefusedLine::request(&id, reason));
                }
                if is_of_transport(&method) {
                    let reason = format!("`{method}` is a message of the transport, which no client sends");
                    return Err(RefusedLine::request(&id, reason));
                }
                let opens = opens_session(&method);
                let is_initialize = method == InitializeRequest::METHOD;
                let mut kept = if opens || is_initialize { value(params) } else { Value::Null };
                let mut masked = None;
                if is_initialize && !self.settings.allows_files {
                    if params.is_some() && !kept.is_object() {
                        // The server could read them all the same.
                        kept = json!({"protocolVersion": 1});
                    }
                    client_files::remove_capabilities(&mut kept);
                    let line = call_frame(Some(&raw), &method, &kept);
                    masked = Some(line.map_err(|error| RefusedLine::silent(error.to_string()))?);
                }
                if method == PromptRequest::METHOD && self.settings.fresh {
                    masked = with_fresh(&raw, &method, params);
                    if masked.is_none() {
                        log(format_args!(
                            "the params of a prompt cannot be read, so `--fresh` has no effect on it"
                        ));
                    }
                }
                let masked = masked.map(client_lines::measured).transpose()?;
                let session = params.filter(|_| !opens).and_then(session_of);
                let method = method.into_owned();
                let request = PendingRequest { id: raw, method, session, params: kept, cancellation: None };
                self.pending.insert(key(id.token()), request);
                if masked.is_some() {
                    return Ok(masked);
                }
            }
            Some(Ok(RpcMessage::Notification { method, .. }))
                if method == InitializeRequest::METHOD && !self.settings.allows_files =>
            {
                return Err(RefusedLine::silent("`initialize` without an id".to_owned()));
            }
            Some(Ok(RpcMessage::Notification { method, params })) if method == CancelNotification::METHOD => {
                let session = params.and_then(session_of);
                for request in self.pending.values_mut() {
                    if request.method == PromptRequest::METHOD && request.session == session {
                        request.cancellation = Some(line.clone());
                    }
                }
            }
            Some(Ok(RpcMessage::Response { id, .. })) => {
                let id = key(id.get());
                if line.len() > ANSWER_BYTES {
                    self.questions.remove(&id);
                } else if let Some(question) = self.questions.get_mut(&id) {
                    // A client may answer twice. The first answer was sent first.
                    question.answer.get_or_insert_with(|| line.clone());
                }
            }
            Some(Ok(_)) => {}
        }
        Ok(Some(line))
    }

    /// Returns the line for the client, unless the client has it already or may not have it.
    fn accept_server_line(&mut self, line: Vec<u8>, answers: &mpsc::Sender<Vec<u8>>) -> Option<Vec<u8>> {
        let line = self.note_server_line(line, answers)?;
        let refused = match paths::mapped(self.settings.paths.as_ref(), Side::Agent, line) {
            Ok(line) => return Some(line),
            Err(refused) => refused,
        };
        if let Some(id) = &refused.id {
            refuse(id, &refused.error, answers);
            // It is refused again if it comes again.
            self.questions.remove(&key(id.token()));
        }
        self.log_dropped(&refused.error);
        None
    }

    /// Notes a line of the server, and returns the line for the client before its paths are mapped.
    fn note_server_line(&mut self, line: Vec<u8>, answers: &mpsc::Sender<Vec<u8>>) -> Option<Vec<u8>> {
        // The client could read a line that is no message in another way.
        let is_guarded = !self.settings.allows_files || self.settings.paths.is_some();
        match RpcMessage::read_strict(&line, &Limits::default()) {
            Some(Ok(RpcMessage::Response { id, outcome })) => match self.pending.remove(&key(id.get())) {
                Some(request) => {
                    let result = match outcome {
                        ResponseOutcome::Result(result) => Some(result),
                        _ => None,
                    };
                    let lost = match &outcome {
                        ResponseOutcome::Error(error) if request.method == PromptRequest::METHOD => {
                            with_fresh_option(error).filter(|_| !self.settings.fresh)
                        }
                        _ => None,
                    };
                    let may_have_logins = result.is_none() || request.method == InitializeRequest::METHOD;
                    let unreadable = unreadable(&outcome);
                    let own_id = request.id.clone();
                    self.answered(request, result);
                    let lost = lost.and_then(|error| response_frame(own_id.get(), Err(&error)).ok());
                    let line = lost.unwrap_or(line);
                    if may_have_logins && !self.settings.allows_files {
                        let masked = match unreadable {
                            Some(error) => Err(error),
                            None => client_files::without_terminal_logins(&line),
                        };
                        return match masked {
                            Ok(masked) => Some(masked),
                            Err(error) => response_frame(own_id.get(), Err(&error)).ok(),
                        };
                    }
                    return Some(line);
                }
                // It arrived on the connection before.
                None if self.was_replaced => return None,
                // The client may take it for the response to `initialize`.
                None if !self.settings.allows_files => {
                    let masked = match unreadable(&outcome) {
                        Some(error) => Err(error),
                        None => client_files::without_terminal_logins(&line),
                    };
                    return masked.inspect_err(|error| self.log_dropped(error)).ok();
                }
                None => {}
            },
            Some(Ok(RpcMessage::Request { id, method, params })) => {
                let session = params.and_then(root_session_of);
                self.count(session.as_deref());
                if let Err(error) = check_id(&id) {
                    refuse(&id, &error, answers);
                    self.log_dropped(&error);
                    return None;
                }
                if !self.settings.allows_files && is_of_client_files(&method) {
                    refuse(&id, &client_files::refusal(), answers);
                    return None;
                }
                if is_question(&method) && !self.note_question(id.token(), &method, params, session, answers)
                {
                    return None;
                }
            }
            // Without resumption they reach this place.
            Some(Ok(RpcMessage::Notification { method, .. })) if is_of_transport(&method) => {
                return None;
            }
            Some(Ok(RpcMessage::Notification { method, params })) => {
                if method == CancelRequestNotification::METHOD
                    && let Some(id) = params.and_then(request_id_of)
                {
                    self.questions.remove(&key(id));
                }
                self.count(params.and_then(root_session_of).as_deref());
                if !self.settings.allows_files && is_of_client_files(&method) {
                    return None;
                }
            }
            None if is_guarded && !line.trim_ascii().is_empty() => {
                self.log_dropped(&"it is blank behind a byte order mark");
                return None;
            }
            Some(Err(malformed)) if is_guarded => {
                if let Malformed::Request(id, error) = &malformed {
                    refuse(id, error, answers);
                }
                self.log_dropped(&malformed);
                return None;
            }
            _ => {}
        }
        Some(line)
    }

    /// Logs a line of the server that is dropped, if its number is a power of two. A server cannot fill the log.
    fn log_dropped(&mut self, reason: &dyn std::fmt::Display) {
        self.dropped_lines += 1;
        let count = self.dropped_lines;
        if count.is_power_of_two() {
            log(format_args!(
                "a line of the server was dropped: {reason} ({count} so far, which is logged again at {})",
                2 * count
            ));
        }
    }

    /// Notes a question. Returns false if the client has it from an earlier connection; its answer is sent again.
    ///
    /// The same id on the same connection, or with another text, is another question: an id can be used again.
    fn note_question(
        &mut self,
        id: &str,
        method: &str,
        params: Option<&RawValue>,
        session: Option<String>,
        answers: &mpsc::Sender<Vec<u8>>,
    ) -> bool {
        let id = key(id);
        // Params that cannot be read equal no others.
        let content = params.map_or(Some(QuestionContent::default()), QuestionContent::read);
        let is_readable = content.is_some();
        let text = self.questions.hasher().hash_one((method, content));
        if let Some(known) = self.questions.get_mut(&id)
            && is_readable
            && known.text == text
            && std::mem::take(&mut known.may_return)
        {
            if let Some(answer) = &known.answer {
                // A server that does not read gets no answer.
                let _ = answers.try_send(answer.clone());
            }
            return false;
        }
        // The client may have answered the question of the earlier connection, and its answer may still wait to be sent.
        if self.questions.get(&id).is_some_and(|known| known.may_return && known.answer.is_none()) {
            let reason = "a question of an earlier connection has this id and no answer yet; use another id";
            if let Some(id) = RequestId::from_token(&id) {
                refuse(&id, &RpcError::invalid_request(reason), answers);
            }
            return false;
        }
        self.questions.remove(&id);
        if !is_readable || session.as_ref().is_some_and(|session| session.len() > ID_BYTES) {
            return true;
        }
        if self.questions.len() >= QUESTIONS {
            let oldest = self.questions.iter().min_by_key(|(_, question)| question.number);
            if let Some(oldest) = oldest.map(|(id, _)| id.clone()) {
                self.questions.remove(&oldest);
            }
        }
        self.question_count += 1;
        let number = self.question_count;
        self.questions.insert(id, Question { session, text, number, answer: None, may_return: false });
        true
    }

    fn count(&mut self, session: Option<&str>) {
        if let Some(session) = session.and_then(|session| self.sessions.get_mut(session)) {
            session.frames += 1;
        }
    }

    /// Notes the effect of a response.
    fn answered(&mut self, request: PendingRequest, result: Option<&RawValue>) {
        let PendingRequest { method, session, params, .. } = request;
        match (method.as_str(), result) {
            (InitializeRequest::METHOD, Some(result)) => {
                self.initialize = params;
                let key = &value(Some(result))["_meta"]["duologue"]["client"];
                self.key = key.as_str().filter(|key| key.len() <= ID_BYTES).map(str::to_owned);
            }
            // A session that was opened in another way cannot be resumed.
            (method, Some(result)) if opens_session(method) && params.is_object() => {
                let result = value(Some(result));
                let id = params["sessionId"].as_str().or_else(|| result["sessionId"].as_str());
                let id = id.filter(|id| id.len() <= ID_BYTES);
                if let (Some(id), Some(position)) = (id, position(&result)) {
                    let id = id.to_owned();
                    self.sessions.insert(id, OpenSession { params, position, frames: 0 });
                }
            }
            (CloseSessionRequest::METHOD | DeleteSessionRequest::METHOD, Some(_)) => {
                session.and_then(|session| self.sessions.remove(&session));
            }
            (PromptRequest::METHOD, _) => self.questions.retain(|_, question| question.session != session),
            _ => {}
        }
    }

    /// Returns the params of `initialize`, and the sessions.
    fn begin_replacement(&mut self) -> (Value, Vec<String>) {
        self.was_replaced = true;
        self.questions.values_mut().for_each(|question| question.may_return = true);
        let mut params = self.initialize.clone();
        set_meta(&mut params, "client", json!(self.key));
        (params, self.sessions.keys().cloned().collect())
    }

    fn resume_params(&self, id: &str) -> Option<Value> {
        let OpenSession { params, position, frames } = self.sessions.get(id)?;
        let mut params = params.clone();
        params["sessionId"] = json!(id);
        set_meta(&mut params, "after", json!({"position": position, "frames": frames}));
        let of_session = self.pending.values().filter(|request| request.session.as_deref() == Some(id));
        let requests: Vec<Value> = of_session.map(|request| value(Some(&request.id))).collect();
        if !requests.is_empty() {
            set_meta(&mut params, "requests", json!(requests));
        }
        Some(params)
    }

    /// Notes the response to a resume, after which text may be missing if it has a gap. The requests that the server does
    /// not know are refused.
    fn resumed(&mut self, id: &str, resumed: Result<Value, RpcError>, has_gap: bool) -> Settled {
        let mut settled = Settled::default();
        let notice = |text: String| {
            let update = SessionUpdate::agent_message(text);
            let notice = SessionNotification::new(SessionId::from(id), update);
            call_frame(None, SessionNotification::METHOD, &notice).ok()
        };
        let mut running = Vec::new();
        match resumed {
            Ok(result) => {
                let mine = &result["_meta"]["duologue"];
                running.extend(mine["requests"].as_array().into_iter().flatten().map(Value::to_string));
                if has_gap {
                    let text = "The server has lost a part of this session. Its text may be incomplete here.";
                    settled.to_client.extend(notice(text.to_owned()));
                }
                if let Some(session) = self.sessions.get_mut(id) {
                    // The server refuses one that it did not give.
                    (session.position, session.frames) = (position(&result).unwrap_or_default(), 0);
                }
                let known = running.iter().filter_map(|request| self.pending.get(request));
                settled.to_server.extend(known.filter_map(|request| request.cancellation.clone()));
            }
            Err(error) => {
                self.sessions.remove(id);
                let text =
                    format!("The server has lost this session ({error}). Its text may be incomplete here.");
                settled.to_client.extend(notice(text));
            }
        }
        settled.to_client.extend(self.refuse(|key, request| {
            request.session.as_deref() == Some(id) && !running.iter().any(|running| running == key)
        }));
        settled
    }

    /// Refuses the requests that belong to no open session.
    fn refuse_others(&mut self) -> Vec<Vec<u8>> {
        let open: Vec<String> = self.sessions.keys().cloned().collect();
        self.refuse(|_, request| request.session.as_ref().is_none_or(|session| !open.contains(session)))
    }

    /// Removes the requests that `is_lost` selects, and returns their responses.
    fn refuse(&mut self, is_lost: impl Fn(&str, &PendingRequest) -> bool) -> Vec<Vec<u8>> {
        let lost = self.pending.extract_if(|key, request| is_lost(key, request));
        let error = RpcError::internal("the connection to the server was lost before it answered; retry");
        let error = error.coded("interrupted", true);
        lost.filter_map(|(_, request)| response_frame(request.id.get(), Err(&error)).ok()).collect()
    }
}

#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
mod outage_tests;
#[cfg(test)]
mod tests;
