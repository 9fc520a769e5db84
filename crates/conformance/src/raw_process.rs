//! An agent's process, driven line by line. Every line is logged, and no line is interpreted more than
//! necessary: a client library would forgive what the checks have to find.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use duologue_client::{AgentProcess, Host as _, HostContext, HostResult, LocalHost};
use duologue_rpc::{Lock, Malformed, ResponseOutcome, RpcMessage};
use duologue_schema::{
    CancelNotification, CloseSessionRequest, Error as WireError, Notification as _, PromptRequest,
    ReadTextFileRequest, Request as _, RequestPermissionRequest, SessionId, WriteTextFileRequest,
};
use duologue_transcript::{LineEnd, Record, RecordEvent, RecordedLine, Side, id_key};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::ChildStdin;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout, timeout_at};

use crate::finding::{Finding, check_of_responses, fail};
use crate::harness::Waits;

/// The bytes that all processes of a run may send and receive. More is a flood.
const RUN_BYTES: usize = 64 * 1024 * 1024;
/// The bytes that a record takes beside its text.
const RECORD_BYTES: usize = 256;
/// The finding of a flood.
const FLOOD: &str = "the agent floods: more than 64 MiB or 250,000 lines in one run";
/// The number of unread lines after which the agent has to wait.
const WAITING_LINES: usize = 4096;
/// The bytes of a file that one request may read.
const FILE_BYTES: u64 = 1024 * 1024;
/// The time in which the correct response may follow a response without an id.
const GRACE: Duration = Duration::from_secs(1);
/// The number of lines of stderr that are logged.
const STDERR_LINES: usize = 100;

/// The log of everything that a process sent and received.
#[derive(Clone, Default)]
pub(crate) struct ProcessLog {
    records: Arc<Mutex<Vec<Record>>>,
    /// The size of this log and of those before it.
    bytes: Arc<AtomicUsize>,
}

impl ProcessLog {
    /// Creates the log of the run's next process.
    pub(crate) fn next(&self) -> Self {
        ProcessLog { records: Arc::default(), bytes: self.bytes.clone() }
    }

    /// Appends an event, unless the run's limit is reached.
    fn push(&self, start: Instant, event: RecordEvent) {
        let text = match &event {
            RecordEvent::Line(line) => line.bytes().len(),
            RecordEvent::Stderr(text) => text.len(),
            _ => 0,
        };
        if self.bytes.fetch_add(text + RECORD_BYTES, Relaxed) + text + RECORD_BYTES <= RUN_BYTES {
            self.lock().push(Record::new(start.elapsed(), event));
        }
    }

    /// Returns the finding of a flood if the run's limit is reached.
    pub(crate) fn flooded(&self) -> Option<&'static str> {
        (self.bytes.load(Relaxed) > RUN_BYTES).then_some(FLOOD)
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    /// Returns a copy of the records from `start` on.
    pub(crate) fn since(&self, start: usize) -> Vec<Record> {
        self.lock().get(start..).unwrap_or_default().to_vec()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Record>> {
        self.records.lock_unpoisoned()
    }
}

/// A message of the agent.
pub(crate) enum FromAgent {
    Request(RequestFromAgent),
    Notification(NotificationFromAgent),
    Response(ResponseFromAgent),
    /// A line that is no message. The checks of the stream report it.
    Noise,
}

/// A request of the agent.
pub(crate) struct RequestFromAgent {
    pub(crate) id: String,
    pub(crate) method: String,
    pub(crate) params: Value,
}

/// A notification of the agent.
pub(crate) struct NotificationFromAgent {
    pub(crate) params: Value,
}

/// A response of the agent.
#[derive(Clone, Debug)]
pub(crate) struct ResponseFromAgent {
    /// The id as it is written in the line; empty if there is none.
    pub(crate) id: String,
    pub(crate) outcome: Result<Value, ErrorFromAgent>,
}

impl ResponseFromAgent {
    /// Returns true if the id names no request.
    fn is_anonymous(&self) -> bool {
        self.id.is_empty() || self.id == "null"
    }
}

/// An error response.
#[derive(Clone, Debug)]
pub(crate) struct ErrorFromAgent {
    pub(crate) code: i64,
    pub(crate) message: String,
    /// The error's data; null if there is none.
    pub(crate) data: Value,
}

impl std::fmt::Display for ErrorFromAgent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "error {} ({})", self.code, self.message)
    }
}

/// The result of waiting for a message.
pub(crate) enum ReadOutcome {
    Message(FromAgent),
    /// No message arrived before the deadline.
    Timeout,
    /// The agent closed its stdout.
    End,
}

/// A running process of the agent.
pub(crate) struct RawProcess {
    process: AgentProcess,
    stdin: Option<ChildStdin>,
    lines: mpsc::Receiver<RecordedLine>,
    log: ProcessLog,
    start: Instant,
    /// Responses that no check has waited for yet, the first one of each id.
    responses: HashMap<String, ResponseFromAgent>,
    /// The methods of the sent requests, by id.
    methods: HashMap<String, String>,
    /// The number of sent lines that an agent may answer without an id.
    anonymous_allowed: usize,
    /// The id of an unexpected response whose id names no request. A response with an id removes it.
    anonymous: Option<String>,
    next_id: u64,
    open: bool,
    /// Serves the files of the sessions' folder.
    host: LocalHost,
    host_context: HostContext,
    folder: PathBuf,
    /// The sessions that it opened and that are not closed.
    sessions: Vec<String>,
    /// The sessions whose turn was cancelled. Their permission requests are cancelled, too.
    cancelled: HashSet<String>,
    pub(crate) patience: Duration,
    pub(crate) waits: Waits,
    /// False if the agent is known to leave requests for extension methods unanswered.
    pub(crate) answers_probes: bool,
}

impl RawProcess {
    pub(crate) fn start(
        command: duologue_client::Command,
        folder: &Path,
        patience: Duration,
        waits: Waits,
        log: ProcessLog,
    ) -> Result<Self, duologue_client::Error> {
        let (process, pipes) = AgentProcess::start(command)?;
        let start = Instant::now();
        let (sender, lines) = mpsc::channel(WAITING_LINES);
        tokio::spawn(read_lines(pipes.stdout, log.clone(), start, sender));
        tokio::spawn(read_stderr(pipes.stderr, log.clone(), start));
        Ok(RawProcess {
            process,
            stdin: Some(pipes.stdin),
            lines,
            log,
            start,
            responses: HashMap::new(),
            methods: HashMap::new(),
            anonymous_allowed: 0,
            anonymous: None,
            next_id: 1,
            open: true,
            host: LocalHost::new(folder).without_terminals().max_read(FILE_BYTES),
            host_context: HostContext::detached(),
            folder: folder.to_owned(),
            sessions: Vec::new(),
            cancelled: HashSet::new(),
            patience,
            waits,
            answers_probes: true,
        })
    }

    pub(crate) fn log(&self) -> &ProcessLog {
        &self.log
    }

    /// Returns true if neither side is known to have closed its pipe.
    pub(crate) fn is_open(&self) -> bool {
        self.open && self.stdin.is_some()
    }

    #[cfg(unix)]
    pub(crate) fn id(&self) -> Option<u32> {
        self.process.id()
    }

    /// Writes bytes unchanged.
    pub(crate) async fn send(&mut self, bytes: &[u8]) -> Result<(), Finding> {
        self.log_lines(bytes);
        self.write(bytes).await
    }

    /// Writes a line byte by byte.
    pub(crate) async fn send_slowly(&mut self, bytes: &[u8]) -> Result<(), Finding> {
        self.log_lines(bytes);
        for byte in bytes {
            self.write(std::slice::from_ref(byte)).await?;
            tokio::time::sleep(Duration::from_micros(500)).await;
        }
        Ok(())
    }

    fn log_lines(&mut self, bytes: &[u8]) {
        for line in bytes.strip_suffix(b"\n").unwrap_or(bytes).split(|byte| *byte == b'\n') {
            let line = logged_line(Side::Client, line);
            match line.message() {
                Some(Ok(RpcMessage::Request { id, method, .. })) => {
                    self.methods.insert(id_key(id.token()), method.into_owned());
                }
                // Some agents answer a cancel before its turn has ended.
                Some(Ok(RpcMessage::Notification { method, .. })) if method == CancelNotification::METHOD => {
                    self.anonymous_allowed += 1;
                }
                Some(Err(_)) => self.anonymous_allowed += 1,
                _ => {}
            }
            self.log.push(self.start, RecordEvent::Line(line));
        }
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), Finding> {
        let Some(stdin) = &mut self.stdin else { return Err(fail("its stdin is closed")) };
        match timeout(self.patience, async { stdin.write_all(bytes).await }).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => {
                self.open = false;
                // Its last lines explain the reason, so wait for them.
                tokio::time::sleep(Duration::from_millis(50)).await;
                Err(self.closed("the agent no longer reads: it closed its stdin or ended"))
            }
            Err(_) => {
                self.open = false;
                Err(fail("the agent does not read its stdin"))
            }
        }
    }

    /// Returns the failure of an agent that closed a pipe.
    fn closed(&self, otherwise: impl Into<String>) -> Finding {
        match self.log.flooded() {
            Some(flood) => {
                self.process.kill();
                fail(flood)
            }
            None => fail(otherwise),
        }
    }

    /// Closes its stdin, after which an agent should end.
    pub(crate) fn close_stdin(&mut self) {
        self.log.push(self.start, RecordEvent::Eof(Side::Client));
        self.stdin = None;
    }

    /// Returns the id of the next request, as it is written.
    pub(crate) fn new_id(&mut self) -> String {
        let id = self.next_id;
        self.next_id += 1;
        id.to_string()
    }

    /// Sends a request and returns its id, without waiting for the response.
    pub(crate) async fn send_request(&mut self, method: &str, params: Value) -> Result<String, Finding> {
        if method == PromptRequest::METHOD {
            self.cancelled.remove(params["sessionId"].as_str().unwrap_or_default());
        }
        let id = self.new_id();
        self.send(&request(&id, method, &params)).await?;
        Ok(id)
    }

    pub(crate) async fn notify(&mut self, method: &str, params: Value) -> Result<(), Finding> {
        self.send(&notification(method, &params)).await
    }

    /// Cancels the turn of a session.
    pub(crate) async fn cancel(&mut self, session: &str) -> Result<(), Finding> {
        self.cancelled.insert(session.to_owned());
        self.notify(CancelNotification::METHOD, json!({"sessionId": session})).await
    }

    /// Sends a request and waits for its response. Requests of the agent are answered meanwhile.
    pub(crate) async fn request(
        &mut self,
        method: &str,
        params: Value,
    ) -> Result<ResponseFromAgent, Finding> {
        let id = self.send_request(method, params).await?;
        self.response(&id, method).await
    }

    /// Waits for the response to a request, until the timeout. A response with another spelling of the id, or
    /// without an id, is a failure at once.
    pub(crate) async fn response(&mut self, id: &str, what: &str) -> Result<ResponseFromAgent, Finding> {
        let name = id_key(id);
        let check = self.methods.get(&name).and_then(|method| check_of_responses(method));
        let is_unanswered = !self.answers_probes && check == Some("unknown-extension");
        let patience = if is_unanswered { self.waits.quiet.min(self.patience) } else { self.patience };
        let mut deadline = Instant::now() + patience;
        let is_misspelled = |response: &&ResponseFromAgent| nearly_same_id(&response.id, id);
        let mut misspelled = self.responses.values().find(is_misspelled).map(|response| response.id.clone());
        let finding = loop {
            if let Some(response) = self.responses.remove(&name) {
                if name == "null" {
                    // It was expected, so it answers no other request.
                    self.anonymous = None;
                }
                return Ok(response);
            }
            if let Some(other) = &misspelled {
                break wrong_id(what, id, other);
            }
            if self.anonymous.is_some() && name != "null" {
                deadline = deadline.min(Instant::now() + GRACE);
            }
            match self.next(deadline).await {
                ReadOutcome::Message(message) => {
                    if let FromAgent::Response(response) = &message {
                        misspelled = Some(response).filter(is_misspelled).map(|response| response.id.clone());
                    }
                    self.handle(message).await?;
                }
                ReadOutcome::Timeout => match self.anonymous.take() {
                    Some(other) if name != "null" => break wrong_id(what, id, &other),
                    _ => break fail(format!("no answer to {what} within {}", seconds(patience))),
                },
                ReadOutcome::End => break self.closed(format!("the agent ended before it answered {what}")),
            }
        };
        Err(check.into_iter().fold(finding, Finding::explained_by))
    }

    /// Reads for the time in which a message that must not come would come, and answers the agent's requests.
    pub(crate) async fn serve_in_quiet(&mut self) -> Result<(), Finding> {
        self.serve_for(self.waits.quiet).await
    }

    /// Reads for a while, and answers the agent's requests.
    pub(crate) async fn serve_for(&mut self, time: Duration) -> Result<(), Finding> {
        let deadline = Instant::now() + time;
        loop {
            match self.next(deadline).await {
                ReadOutcome::Message(message) => self.handle(message).await?,
                ReadOutcome::Timeout | ReadOutcome::End => return Ok(()),
            }
        }
    }

    /// Handles a message that no check waits for: answers a request and stores a response.
    pub(crate) async fn handle(&mut self, message: FromAgent) -> Result<(), Finding> {
        match message {
            FromAgent::Request(incoming) => self.serve(&incoming).await?,
            FromAgent::Response(response) => self.store_response(response),
            FromAgent::Notification(_) | FromAgent::Noise => {}
        }
        Ok(())
    }

    /// Returns true if a stored response has this id.
    pub(crate) fn has_response(&self, id: &str) -> bool {
        self.responses.contains_key(&id_key(id))
    }

    /// Discards the stored responses.
    pub(crate) fn forget_responses(&mut self) {
        self.responses.clear();
    }

    fn store_response(&mut self, response: ResponseFromAgent) {
        self.responses.entry(id_key(&response.id)).or_insert(response);
    }

    /// Sends a request for an unknown method and waits for any response, as a sign that the agent still works.
    pub(crate) async fn expect_alive(&mut self, after: &str) -> Result<(), Finding> {
        match self.request("_duologue.dev/are_you_there", json!({})).await {
            Ok(_) => Ok(()),
            Err(mut finding) => {
                finding.saw = format!("after {after}: {}", finding.saw);
                Err(finding)
            }
        }
    }

    /// Returns an error if a response without an id was logged since `start`: notifications have no response.
    pub(crate) fn expect_no_response(&self, start: usize) -> Result<(), Finding> {
        let is_stray = |record: &Record| {
            let value = record.line().and_then(|line| serde_json::from_slice::<Value>(line.bytes()).ok());
            value.is_some_and(|line| {
                let response = line.get("result").is_some() || line.get("error").is_some();
                response && line.get("method").is_none() && line["id"].is_null()
            })
        };
        match self.log.since(start).into_iter().find(is_stray) {
            Some(stray) => {
                let finding = fail("a notification was answered").shown([stray]);
                Err(finding.explained_by("unknown-notification"))
            }
            None => Ok(()),
        }
    }

    /// Waits for the next message.
    pub(crate) async fn next(&mut self, deadline: Instant) -> ReadOutcome {
        match timeout_at(deadline, self.lines.recv()).await {
            Err(_) => ReadOutcome::Timeout,
            Ok(None) => {
                self.open = false;
                ReadOutcome::End
            }
            Ok(Some(line)) => {
                let message = read_message(&line);
                if let FromAgent::Response(response) = &message {
                    if let Ok(result) = &response.outcome {
                        self.sessions.extend(result["sessionId"].as_str().map(str::to_owned));
                    }
                    match (response.is_anonymous(), self.anonymous_allowed.checked_sub(1)) {
                        (true, Some(left)) => self.anonymous_allowed = left,
                        (true, None) => self.anonymous = Some(response.id.clone()),
                        (false, _) => self.anonymous = None,
                    }
                }
                ReadOutcome::Message(message)
            }
        }
    }

    /// Returns the sessions that it opened and that are not closed.
    pub(crate) fn sessions(&self) -> &[String] {
        &self.sessions
    }

    /// Closes a session. Only a missing response is an error.
    pub(crate) async fn close(&mut self, session: &str) -> Result<(), Finding> {
        self.sessions.retain(|other| other != session);
        self.request(CloseSessionRequest::METHOD, json!({"sessionId": session})).await?;
        Ok(())
    }

    /// Answers a request as the simplest useful client would. The agent may read and write files in the session's
    /// folder, and gets the first permission of each request.
    async fn serve(&mut self, incoming: &RequestFromAgent) -> Result<(), Finding> {
        let response = match incoming.method.as_str() {
            RequestPermissionRequest::METHOD => {
                let session = incoming.params["sessionId"].as_str();
                let cancelled = session.is_some_and(|id| self.cancelled.contains(id));
                let outcome = if cancelled {
                    json!({"outcome": "cancelled"})
                } else {
                    first_permission(&incoming.params)
                };
                Ok(json!({"outcome": outcome}))
            }
            ReadTextFileRequest::METHOD => match params::<ReadTextFileRequest>(incoming) {
                Ok(request) => {
                    self.grant_folder(&request.session_id);
                    self.host.read_text_file(&self.host_context, request).await.map(|read| json!(read))
                }
                Err(error) => Err(error),
            },
            WriteTextFileRequest::METHOD => match params::<WriteTextFileRequest>(incoming) {
                Ok(request) => {
                    self.grant_folder(&request.session_id);
                    self.host.write_text_file(&self.host_context, request).await.map(|written| json!(written))
                }
                Err(error) => Err(error),
            },
            other => Err(WireError::method_not_found(other)),
        };
        self.respond(&incoming.id, response).await
    }

    /// Grants a session access to the folder. Some checks open sessions in unusual ways, so this happens on use.
    fn grant_folder(&self, session: &SessionId) {
        self.host.session_started(&self.host_context, session, std::slice::from_ref(&self.folder));
    }

    pub(crate) async fn respond(&mut self, id: &str, response: HostResult<Value>) -> Result<(), Finding> {
        let member = match response {
            Ok(result) => format!("\"result\":{result}"),
            Err(error) => format!("\"error\":{}", serde_json::to_string(&error).unwrap_or_default()),
        };
        self.send(format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},{member}}}\n").as_bytes()).await
    }

    /// Waits for the process to end.
    pub(crate) async fn exit(&mut self, time: Duration) -> Option<ExitStatus> {
        // Its output is read, so that a full pipe does not keep it from ending.
        let lines = &mut self.lines;
        let listened = async {
            while lines.recv().await.is_some() {}
            std::future::pending().await
        };
        tokio::select! {
            status = self.process.wait() => status,
            () = tokio::time::sleep(time) => None,
            () = listened => None,
        }
    }

    /// Closes its stdin. One that has not ended after a second is sent SIGTERM, and is killed after another second.
    pub(crate) async fn end(mut self) {
        const STEP: Duration = Duration::from_secs(1);
        self.stdin = None;
        if self.exit(STEP).await.is_none() {
            self.process.terminate();
            let _ = self.exit(STEP).await;
        }
        self.process.kill();
    }
}

/// Returns a request as a line.
pub(crate) fn request(id: &str, method: &str, params: &Value) -> Vec<u8> {
    let method = json!(method);
    format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":{method},\"params\":{params}}}\n").into_bytes()
}

/// Returns a notification as a line.
pub(crate) fn notification(method: &str, params: &Value) -> Vec<u8> {
    format!("{{\"jsonrpc\":\"2.0\",\"method\":{},\"params\":{params}}}\n", json!(method)).into_bytes()
}

/// Returns true if two ids differ only in spelling: a rounded number, or a number as a string.
pub(crate) fn nearly_same_id(one: &str, other: &str) -> bool {
    numeric_id(one).is_some_and(|one| numeric_id(other) == Some(one))
}

/// Returns a key of the number in an id, also of one in a string. It is equal for all spellings of the number.
pub(crate) fn numeric_id(token: &str) -> Option<u64> {
    let number = match serde_json::from_str(token).ok()? {
        Value::Number(number) => number.as_f64()?,
        Value::String(text) => text.parse::<f64>().ok()?,
        _ => return None,
    };
    // The sum turns -0 into 0.
    (!number.is_nan()).then(|| (number + 0.0).to_bits())
}

/// Returns the failure of a response that has not the id of its request.
fn wrong_id(what: &str, id: &str, other: &str) -> Finding {
    let other = if other.is_empty() { "without an id".to_owned() } else { format!("with the id {other}") };
    fail(format!("{what} has the id {id}, and is answered {other}")).explained_by("answer-id")
}

/// Returns a time in seconds, as text.
pub(crate) fn seconds(time: Duration) -> String {
    format!("{} s", time.as_secs_f64())
}

fn read_message(line: &RecordedLine) -> FromAgent {
    let value = |raw: Option<&serde_json::value::RawValue>| {
        raw.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or(Value::Null)
    };
    match line.message() {
        Some(Ok(RpcMessage::Request { id, method, params })) => FromAgent::Request(RequestFromAgent {
            id: id.token().to_owned(),
            method: method.into_owned(),
            params: value(params),
        }),
        Some(Ok(RpcMessage::Notification { params, .. })) => {
            FromAgent::Notification(NotificationFromAgent { params: value(params) })
        }
        Some(Ok(RpcMessage::Response { id, outcome })) => FromAgent::Response(ResponseFromAgent {
            id: id.get().to_owned(),
            outcome: match outcome {
                ResponseOutcome::Result(result) => Ok(value(Some(result))),
                ResponseOutcome::Error(error) => {
                    let data = error.data.and_then(|data| data.parse().ok()).unwrap_or_default();
                    Err(ErrorFromAgent {
                        code: error.code.0.into(),
                        message: error.message.into_owned(),
                        data,
                    })
                }
                _ => {
                    let message = "neither a result nor a readable error".into();
                    Err(ErrorFromAgent { code: 0, message, data: Value::Null })
                }
            },
        }),
        Some(Err(Malformed::Silent(_))) => match serde_json::from_slice::<Value>(line.bytes()) {
            Ok(value) if value.get("method").is_none() && value.get("id").is_none() => {
                FromAgent::Response(ResponseFromAgent { id: String::new(), outcome: Ok(Value::Null) })
            }
            _ => FromAgent::Noise,
        },
        _ => FromAgent::Noise,
    }
}

/// Chooses the first option that allows once, or else the first option.
pub(crate) fn first_permission(params: &Value) -> Value {
    let options = params["options"].as_array().map(Vec::as_slice).unwrap_or_default();
    let once = options.iter().find(|option| option["kind"] == "allow_once").or(options.first());
    match once {
        Some(option) => json!({"outcome": "selected", "optionId": option["optionId"]}),
        None => json!({"outcome": "cancelled"}),
    }
}

/// Reads the params of a request as their type.
fn params<T: DeserializeOwned>(incoming: &RequestFromAgent) -> HostResult<T> {
    T::deserialize(&incoming.params).map_err(|error| WireError::invalid_params(error.to_string()))
}

fn logged_line(from: Side, bytes: &[u8]) -> RecordedLine {
    match bytes.strip_suffix(b"\r") {
        Some(bytes) => {
            let mut line = RecordedLine::new(from, bytes);
            line.end = LineEnd::CrLf;
            line
        }
        None => RecordedLine::new(from, bytes),
    }
}

async fn read_lines(
    pipe: impl AsyncRead + Unpin,
    log: ProcessLog,
    start: Instant,
    sender: mpsc::Sender<RecordedLine>,
) {
    // It is not `LineBuffer` of `duologue_rpc`: the limit is that of the run, and a last line without an end is logged
    // like the others. So is a line of stderr that is read in parts.
    let mut pipe = BufReader::new(pipe);
    let mut bytes = Vec::new();
    while matches!((&mut pipe).take(RUN_BYTES as u64).read_until(b'\n', &mut bytes).await, Ok(1..)) {
        let line = match bytes.strip_suffix(b"\n") {
            Some(whole) => logged_line(Side::Agent, whole),
            None => {
                let mut line = RecordedLine::new(Side::Agent, bytes.as_slice());
                line.end = LineEnd::None;
                line
            }
        };
        log.push(start, RecordEvent::Line(line.clone()));
        if log.flooded().is_some() || sender.send(line).await.is_err() {
            return;
        }
        bytes.clear();
    }
    log.push(start, RecordEvent::Eof(Side::Agent));
}

async fn read_stderr(pipe: impl AsyncRead + Unpin, log: ProcessLog, start: Instant) {
    let mut pipe = BufReader::new(pipe);
    let (mut bytes, mut kept) = (Vec::new(), 0);
    while matches!((&mut pipe).take(64 * 1024).read_until(b'\n', &mut bytes).await, Ok(1..)) {
        if kept < STDERR_LINES {
            kept += 1;
            let text = String::from_utf8_lossy(&bytes).trim_end().to_owned();
            log.push(start, RecordEvent::Stderr(text));
        }
        bytes.clear();
    }
}
