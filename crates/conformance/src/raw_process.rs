//! An agent at the end of its pipes, driven line by line. Nothing is hidden and everything is written
//! down: a client library would be too polite to see what is wrong.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use duologue_client::schema::{
    Error as WireError, ReadTextFileRequest, Request as _, RequestPermissionRequest, SessionId,
    WriteTextFileRequest,
};
use duologue_client::{AgentProcess, Host as _, HostResult, LocalHost};
use duologue_rpc::{Malformed, ResponseOutcome as Said, RpcMessage};
use duologue_transcript::{LineEnd, Record, RecordEvent, RecordedLine, Side};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::ChildStdin;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout, timeout_at};

use super::bench::QUIET;
use super::finding::{Finding, check_of_answers, fail};
use crate::error::Result;

/// How much is said and told in one run, with all processes of the agent. More is a flood.
const RUN_BYTES: usize = 64 * 1024 * 1024;
/// What a record takes beside its text.
const RECORD_BYTES: usize = 256;
/// What is said of a flood.
const FLOOD: &str = "the agent floods: more than 64 MiB or 250,000 lines in one run";
/// How many lines wait to be looked at before the agent has to wait.
const WAITING_LINES: usize = 4096;
/// How much of a file is lent at once.
const FILE_BYTES: u64 = 1024 * 1024;
/// The time in which the real answer to a request may follow an answer without an id.
const GRACE: Duration = Duration::from_secs(1);
/// How many lines of stderr are kept.
const STDERR_LINES: usize = 100;

/// All that one agent's process said and was told.
#[derive(Clone, Default)]
pub(crate) struct Tape {
    records: Arc<Mutex<Vec<Record>>>,
    /// What this tape and those before it take.
    bytes: Arc<AtomicUsize>,
}

impl Tape {
    /// A tape for the next process, of the same run.
    pub(crate) fn next(&self) -> Self {
        Tape { records: Arc::default(), bytes: self.bytes.clone() }
    }

    /// Writes down what happened. Nothing more once there is too much.
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

    /// Why nothing more is written down, if that is so.
    pub(crate) fn flooded(&self) -> Option<&'static str> {
        (self.bytes.load(Relaxed) > RUN_BYTES).then_some(FLOOD)
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    /// A copy of what was recorded from `start` on.
    pub(crate) fn since(&self, start: usize) -> Vec<Record> {
        self.lock().get(start..).unwrap_or_default().to_vec()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Record>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A message of the agent.
pub(crate) enum Seen {
    Request(Asked),
    Notification(Told),
    Answer(Answer),
    /// Nothing that could be read. The checks of the whole stream look at it.
    Noise,
}

/// What the agent asks.
pub(crate) struct Asked {
    pub(crate) id: String,
    pub(crate) method: String,
    pub(crate) params: Value,
}

/// What the agent tells.
pub(crate) struct Told {
    pub(crate) params: Value,
}

/// What the agent answers.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    /// The id as it stands in the line; empty if there is none.
    pub(crate) id: String,
    pub(crate) outcome: std::result::Result<Value, Refusal>,
}

impl Answer {
    /// Returns true if the id names no request.
    fn is_anonymous(&self) -> bool {
        self.id.is_empty() || self.id == "null"
    }
}

/// An error as an answer.
#[derive(Clone, Debug)]
pub(crate) struct Refusal {
    pub(crate) code: i64,
    pub(crate) message: String,
    /// What comes with it; null if nothing does.
    pub(crate) data: Value,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "error {} ({})", self.code, self.message)
    }
}

/// What became of waiting.
pub(crate) enum Next {
    Seen(Seen),
    /// Nothing came in time.
    Silence,
    /// The agent will say nothing more.
    End,
}

/// A running agent.
pub(crate) struct Wire {
    process: AgentProcess,
    stdin: Option<ChildStdin>,
    lines: mpsc::Receiver<RecordedLine>,
    tape: Tape,
    start: Instant,
    /// Answers nobody has asked for yet, the first one of each id.
    answers: HashMap<String, Answer>,
    /// The methods of the requests that were sent, by id.
    methods: HashMap<String, String>,
    /// The number of lines sent that an agent may answer without an id.
    anonymous_allowed: usize,
    /// The id of an answer beyond these, as it is written, until an answer with an id comes.
    anonymous: Option<String>,
    next_id: u64,
    open: bool,
    /// Lends it the files of the sessions' folder.
    host: LocalHost,
    folder: PathBuf,
    /// Sessions that it has made and that are not closed.
    sessions: Vec<String>,
    /// Sessions whose turn was cancelled: they get no permission any more.
    cancelled: HashSet<String>,
    pub(crate) patience: Duration,
    /// Unset if the agent is known to leave requests for extension methods unanswered.
    pub(crate) answers_probes: bool,
}

impl Wire {
    pub(crate) fn start(
        command: duologue_client::Command,
        folder: &Path,
        patience: Duration,
        tape: Tape,
    ) -> Result<Self> {
        let (process, pipes) = AgentProcess::start(command)?;
        let start = Instant::now();
        let (sender, lines) = mpsc::channel(WAITING_LINES);
        tokio::spawn(read_lines(pipes.stdout, tape.clone(), start, sender));
        tokio::spawn(read_stderr(pipes.stderr, tape.clone(), start));
        Ok(Wire {
            process,
            stdin: Some(pipes.stdin),
            lines,
            tape,
            start,
            answers: HashMap::new(),
            methods: HashMap::new(),
            anonymous_allowed: 0,
            anonymous: None,
            next_id: 1,
            open: true,
            host: LocalHost::new(folder).without_terminals().max_read(FILE_BYTES),
            folder: folder.to_owned(),
            sessions: Vec::new(),
            cancelled: HashSet::new(),
            patience,
            answers_probes: true,
        })
    }

    pub(crate) fn tape(&self) -> &Tape {
        &self.tape
    }

    /// Whether it can still be talked to, as far as is known.
    pub(crate) fn is_open(&self) -> bool {
        self.open && self.stdin.is_some()
    }

    #[cfg(unix)]
    pub(crate) fn id(&self) -> Option<u32> {
        self.process.id()
    }

    /// Writes bytes as they are, whole lines or not.
    pub(crate) async fn send(&mut self, bytes: &[u8]) -> std::result::Result<(), Finding> {
        self.note(bytes);
        self.write(bytes).await
    }

    /// Writes a line a few bytes at a time.
    pub(crate) async fn send_slowly(&mut self, bytes: &[u8]) -> std::result::Result<(), Finding> {
        self.note(bytes);
        for byte in bytes {
            self.write(std::slice::from_ref(byte)).await?;
            tokio::time::sleep(Duration::from_micros(500)).await;
        }
        Ok(())
    }

    fn note(&mut self, bytes: &[u8]) {
        for line in bytes.strip_suffix(b"\n").unwrap_or(bytes).split(|byte| *byte == b'\n') {
            let line = line_of(Side::Client, line);
            match line.message() {
                Some(Ok(RpcMessage::Request { id, method, .. })) => {
                    self.methods.insert(id_name(id.token()), method.into_owned());
                }
                // Some agents answer a cancel while its turn still takes its time.
                Some(Ok(RpcMessage::Notification { method, .. })) if method == "session/cancel" => {
                    self.anonymous_allowed += 1;
                }
                Some(Err(_)) => self.anonymous_allowed += 1,
                _ => {}
            }
            self.tape.push(self.start, RecordEvent::Line(line));
        }
    }

    async fn write(&mut self, bytes: &[u8]) -> std::result::Result<(), Finding> {
        let Some(stdin) = &mut self.stdin else { return Err(fail("its stdin is closed")) };
        match timeout(self.patience, async { stdin.write_all(bytes).await }).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => {
                self.open = false;
                // What it said last explains it.
                tokio::time::sleep(Duration::from_millis(50)).await;
                Err(self.over("the agent no longer reads: it closed its stdin or ended"))
            }
            Err(_) => {
                self.open = false;
                Err(fail("the agent does not read its stdin"))
            }
        }
    }

    /// Why it says nothing more.
    fn over(&self, otherwise: impl Into<String>) -> Finding {
        match self.tape.flooded() {
            Some(flood) => {
                self.process.kill();
                fail(flood)
            }
            None => fail(otherwise),
        }
    }

    /// Closes its stdin, the polite way to end it.
    pub(crate) fn hang_up(&mut self) {
        self.tape.push(self.start, RecordEvent::Eof(Side::Client));
        self.stdin = None;
    }

    /// The id of the next request, as it is written.
    pub(crate) fn new_id(&mut self) -> String {
        let id = self.next_id;
        self.next_id += 1;
        id.to_string()
    }

    /// Sends a request and does not wait for its answer.
    pub(crate) async fn post(&mut self, method: &str, params: Value) -> std::result::Result<String, Finding> {
        if method == "session/prompt" {
            self.cancelled.remove(params["sessionId"].as_str().unwrap_or_default());
        }
        let id = self.new_id();
        self.send(&request(&id, method, &params)).await?;
        Ok(id)
    }

    pub(crate) async fn notify(&mut self, method: &str, params: Value) -> std::result::Result<(), Finding> {
        self.send(&notification(method, &params)).await
    }

    /// Cancels what runs in a session.
    pub(crate) async fn cancel(&mut self, session: &str) -> std::result::Result<(), Finding> {
        self.cancelled.insert(session.to_owned());
        self.notify("session/cancel", json!({"sessionId": session})).await
    }

    /// Sends a request and waits for its answer; what the agent asks meanwhile is answered.
    pub(crate) async fn ask(&mut self, method: &str, params: Value) -> std::result::Result<Answer, Finding> {
        let id = self.post(method, params).await?;
        self.answer(&id, method).await
    }

    /// Waits for the answer to a request, until the timeout. An answer whose id is another spelling of the
    /// request's, or that has no id, is a failure without waiting longer.
    pub(crate) async fn answer(&mut self, id: &str, what: &str) -> std::result::Result<Answer, Finding> {
        let name = id_name(id);
        let check = self.methods.get(&name).and_then(|method| check_of_answers(method));
        let is_hopeless = !self.answers_probes && check == Some("unknown-extension");
        let patience = if is_hopeless { QUIET.min(self.patience) } else { self.patience };
        let mut deadline = Instant::now() + patience;
        let finding = loop {
            if let Some(answer) = self.answers.remove(&name) {
                return Ok(answer);
            }
            if let Some(other) = self.answers.values().find(|answer| nearly_same_id(&answer.id, id)) {
                break other_id(what, id, &other.id);
            }
            if self.anonymous.is_some() && name != "null" {
                deadline = deadline.min(Instant::now() + GRACE);
            }
            match self.next(deadline).await {
                Next::Seen(Seen::Answer(answer)) => self.keep(answer),
                Next::Seen(Seen::Request(asked)) => self.serve(&asked).await?,
                Next::Seen(_) => {}
                Next::Silence => match self.anonymous.take() {
                    Some(other) if name != "null" => break other_id(what, id, &other),
                    _ => break fail(format!("no answer to {what} within {}", seconds(patience))),
                },
                Next::End => break self.over(format!("the agent ended before it answered {what}")),
            }
        };
        Err(check.into_iter().fold(finding, Finding::explained_by))
    }

    /// Listens for a while, and answers what is asked.
    pub(crate) async fn listen(&mut self, time: Duration) -> std::result::Result<(), Finding> {
        let deadline = Instant::now() + time;
        loop {
            match self.next(deadline).await {
                Next::Seen(Seen::Request(asked)) => self.serve(&asked).await?,
                Next::Seen(Seen::Answer(answer)) => self.keep(answer),
                Next::Seen(_) => {}
                Next::Silence | Next::End => return Ok(()),
            }
        }
    }

    /// Whether an answer has come that nobody waited for.
    pub(crate) fn has_answer(&self, id: &str) -> bool {
        self.answers.contains_key(&id_name(id))
    }

    /// Leaves out what was answered so far and nobody waited for.
    pub(crate) fn forget_answers(&mut self) {
        self.answers.clear();
    }

    pub(crate) fn keep(&mut self, answer: Answer) {
        self.answers.entry(id_name(&answer.id)).or_insert(answer);
    }

    /// Whether it still answers: asks for a method nobody has. Any answer will do.
    pub(crate) async fn still_there(&mut self, after: &str) -> std::result::Result<(), Finding> {
        match self.ask("_duologue.dev/are_you_there", json!({})).await {
            Ok(_) => Ok(()),
            Err(mut finding) => {
                finding.saw = format!("after {after}: {}", finding.saw);
                Err(finding)
            }
        }
    }

    /// That nothing since `start` was answered without an id: notifications have no answer.
    pub(crate) fn nothing_answered(&self, start: usize) -> std::result::Result<(), Finding> {
        let is_stray = |record: &Record| {
            let value = record.line().and_then(|line| serde_json::from_slice::<Value>(line.bytes()).ok());
            value.is_some_and(|line| {
                let answer = line.get("result").is_some() || line.get("error").is_some();
                answer && line.get("method").is_none() && line["id"].is_null()
            })
        };
        match self.tape.since(start).into_iter().find(is_stray) {
            Some(stray) => {
                let finding = fail("a notification was answered").shown([stray]);
                Err(finding.explained_by("unknown-notification"))
            }
            None => Ok(()),
        }
    }

    /// The next message.
    pub(crate) async fn next(&mut self, deadline: Instant) -> Next {
        match timeout_at(deadline, self.lines.recv()).await {
            Err(_) => Next::Silence,
            Ok(None) => {
                self.open = false;
                Next::End
            }
            Ok(Some(line)) => {
                let seen = seen(&line);
                if let Seen::Answer(answer) = &seen {
                    if let Ok(result) = &answer.outcome {
                        self.sessions.extend(result["sessionId"].as_str().map(str::to_owned));
                    }
                    match (answer.is_anonymous(), self.anonymous_allowed.checked_sub(1)) {
                        (true, Some(left)) => self.anonymous_allowed = left,
                        (true, None) => self.anonymous = Some(answer.id.clone()),
                        (false, _) => self.anonymous = None,
                    }
                }
                Next::Seen(seen)
            }
        }
    }

    /// The sessions that it has made and that were not closed.
    pub(crate) fn sessions(&self) -> &[String] {
        &self.sessions
    }

    /// Closes a session, whatever the answer is. An error is that there is none.
    pub(crate) async fn close(&mut self, session: &str) -> std::result::Result<(), Finding> {
        self.sessions.retain(|other| other != session);
        self.ask("session/close", json!({"sessionId": session})).await?;
        Ok(())
    }

    /// Answers the agent as the simplest useful client would: it may read and write in the session's
    /// folder, and it gets the first permission it asks for.
    pub(crate) async fn serve(&mut self, asked: &Asked) -> std::result::Result<(), Finding> {
        let answer = match asked.method.as_str() {
            RequestPermissionRequest::METHOD => {
                let session = asked.params["sessionId"].as_str();
                let cancelled = session.is_some_and(|id| self.cancelled.contains(id));
                let outcome = if cancelled { json!({"outcome": "cancelled"}) } else { chosen(&asked.params) };
                Ok(json!({"outcome": outcome}))
            }
            ReadTextFileRequest::METHOD => match params::<ReadTextFileRequest>(asked) {
                Ok(request) => {
                    self.lend_folder(&request.session_id);
                    self.host.read_text_file(request).await.map(|read| json!(read))
                }
                Err(error) => Err(error),
            },
            WriteTextFileRequest::METHOD => match params::<WriteTextFileRequest>(asked) {
                Ok(request) => {
                    self.lend_folder(&request.session_id);
                    self.host.write_text_file(request).await.map(|written| json!(written))
                }
                Err(error) => Err(error),
            },
            other => Err(WireError::method_not_found(other)),
        };
        self.respond(&asked.id, answer).await
    }

    /// Lends the folder to a session, however it came to be: some checks open sessions in unusual ways.
    fn lend_folder(&self, session: &SessionId) {
        self.host.session_started(session, std::slice::from_ref(&self.folder));
    }

    pub(crate) async fn respond(
        &mut self,
        id: &str,
        answer: HostResult<Value>,
    ) -> std::result::Result<(), Finding> {
        let member = match answer {
            Ok(result) => format!("\"result\":{result}"),
            Err(error) => format!("\"error\":{}", json!(error)),
        };
        self.send(format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},{member}}}\n").as_bytes()).await
    }

    /// Waits for the process to end by itself.
    pub(crate) async fn exit(&mut self, time: Duration) -> Option<ExitStatus> {
        // What it still says must not hold it up.
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

    /// Ends it: politely for a moment, then not.
    pub(crate) async fn end(mut self) {
        self.stdin = None;
        let _ = self.exit(Duration::from_secs(1)).await;
        self.process.kill();
    }
}

/// A request as a line.
pub(crate) fn request(id: &str, method: &str, params: &Value) -> Vec<u8> {
    let method = json!(method);
    format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":{method},\"params\":{params}}}\n").into_bytes()
}

/// A notification as a line.
pub(crate) fn notification(method: &str, params: &Value) -> Vec<u8> {
    format!("{{\"jsonrpc\":\"2.0\",\"method\":{},\"params\":{params}}}\n", json!(method)).into_bytes()
}

/// What an id says; a string may be written in more than one way.
pub(crate) fn id_name(token: &str) -> String {
    serde_json::from_str::<Value>(token).map_or_else(|_| token.to_owned(), |id| id.to_string())
}

/// Returns true if an id is another spelling of the other: a rounded number, or a number as a string.
pub(crate) fn nearly_same_id(one: &str, other: &str) -> bool {
    let number = |token: &str| match serde_json::from_str(token) {
        Ok(Value::Number(number)) => number.as_f64(),
        Ok(Value::String(text)) => text.parse::<f64>().ok(),
        _ => None,
    };
    number(one).is_some_and(|one| number(other) == Some(one))
}

/// The failure of an answer that does not have the id of its request.
fn other_id(what: &str, id: &str, other: &str) -> Finding {
    let other = if other.is_empty() { "without an id".to_owned() } else { format!("with the id {other}") };
    fail(format!("{what} has the id {id}, and is answered {other}")).explained_by("answer-id")
}

/// A time for people.
pub(crate) fn seconds(time: Duration) -> String {
    format!("{} s", time.as_secs_f64())
}

fn seen(line: &RecordedLine) -> Seen {
    let value = |raw: Option<&serde_json::value::RawValue>| {
        raw.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or(Value::Null)
    };
    match line.message() {
        Some(Ok(RpcMessage::Request { id, method, params })) => Seen::Request(Asked {
            id: id.token().to_owned(),
            method: method.into_owned(),
            params: value(params),
        }),
        Some(Ok(RpcMessage::Notification { params, .. })) => {
            Seen::Notification(Told { params: value(params) })
        }
        Some(Ok(RpcMessage::Response { id, outcome })) => Seen::Answer(Answer {
            id: id.get().to_owned(),
            outcome: match outcome {
                Said::Result(result) => Ok(value(Some(result))),
                Said::Error(error) => {
                    let data = error.data.and_then(|data| data.parse().ok()).unwrap_or_default();
                    Err(Refusal { code: error.code.0.into(), message: error.message.into_owned(), data })
                }
                _ => {
                    let message = "neither a result nor a readable error".into();
                    Err(Refusal { code: 0, message, data: Value::Null })
                }
            },
        }),
        Some(Err(Malformed::Silent(_))) => match serde_json::from_slice::<Value>(line.bytes()) {
            Ok(value) if value.get("method").is_none() && value.get("id").is_none() => {
                Seen::Answer(Answer { id: String::new(), outcome: Ok(Value::Null) })
            }
            _ => Seen::Noise,
        },
        _ => Seen::Noise,
    }
}

/// The first option that allows once, else the first that is there.
fn chosen(params: &Value) -> Value {
    let options = params["options"].as_array().map(Vec::as_slice).unwrap_or_default();
    let once = options.iter().find(|option| option["kind"] == "allow_once").or(options.first());
    match once {
        Some(option) => json!({"outcome": "selected", "optionId": option["optionId"]}),
        None => json!({"outcome": "cancelled"}),
    }
}

/// What a request is about, as its type.
fn params<T: DeserializeOwned>(asked: &Asked) -> HostResult<T> {
    T::deserialize(&asked.params).map_err(|error| WireError::invalid_params(error.to_string()))
}

fn line_of(from: Side, bytes: &[u8]) -> RecordedLine {
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
    tape: Tape,
    start: Instant,
    sender: mpsc::Sender<RecordedLine>,
) {
    let mut pipe = BufReader::new(pipe);
    let mut bytes = Vec::new();
    while matches!((&mut pipe).take(RUN_BYTES as u64).read_until(b'\n', &mut bytes).await, Ok(1..)) {
        let line = match bytes.strip_suffix(b"\n") {
            Some(whole) => line_of(Side::Agent, whole),
            None => {
                let mut line = RecordedLine::new(Side::Agent, bytes.as_slice());
                line.end = LineEnd::None;
                line
            }
        };
        tape.push(start, RecordEvent::Line(line.clone()));
        if tape.flooded().is_some() || sender.send(line).await.is_err() {
            return;
        }
        bytes.clear();
    }
    tape.push(start, RecordEvent::Eof(Side::Agent));
}

async fn read_stderr(pipe: impl AsyncRead + Unpin, tape: Tape, start: Instant) {
    let mut pipe = BufReader::new(pipe);
    let (mut bytes, mut kept) = (Vec::new(), 0);
    while matches!((&mut pipe).take(64 * 1024).read_until(b'\n', &mut bytes).await, Ok(1..)) {
        if kept < STDERR_LINES {
            kept += 1;
            let text = String::from_utf8_lossy(&bytes).trim_end().to_owned();
            tape.push(start, RecordEvent::Stderr(text));
        }
        bytes.clear();
    }
}
