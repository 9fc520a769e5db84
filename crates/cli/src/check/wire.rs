//! An agent at the end of its pipes, driven line by line. Nothing is hidden and everything is written
//! down: a client library would be too polite to see what is wrong.

use std::collections::HashSet;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use duologue_client::AgentProcess;
use duologue_rpc::{Message, Outcome as Said};
use duologue_transcript::{Event, Line, LineEnd, Record, Side};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::ChildStdin;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout, timeout_at};

use super::finding::{Finding, fail};
use crate::error::Result;

/// Longest line that is read whole; what is beyond counts as the next line.
const LINE_BYTES: u64 = 64 * 1024 * 1024;
/// How many lines of stderr are kept.
const STDERR_LINES: usize = 100;

/// All that one agent's process said and was told.
#[derive(Clone, Default)]
pub(crate) struct Tape(Arc<Mutex<Vec<Record>>>);

impl Tape {
    fn push(&self, start: Instant, event: Event) {
        self.lock().push(Record::new(start.elapsed(), event));
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    /// A copy of what was recorded from `start` on.
    pub(crate) fn since(&self, start: usize) -> Vec<Record> {
        self.lock().get(start..).unwrap_or_default().to_vec()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Record>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
    /// The id as it stands in the line.
    pub(crate) id: String,
    pub(crate) outcome: std::result::Result<Value, Refusal>,
}

/// An error as an answer.
#[derive(Clone, Debug)]
pub(crate) struct Refusal {
    pub(crate) code: i64,
    pub(crate) message: String,
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
    lines: mpsc::UnboundedReceiver<Line>,
    tape: Tape,
    start: Instant,
    /// Answers nobody has asked for yet.
    answers: Vec<Answer>,
    next_id: u64,
    open: bool,
    /// The folder it may read and write through us.
    folder: PathBuf,
    /// Sessions whose turn was cancelled: they get no permission any more.
    cancelled: HashSet<String>,
    pub(crate) patience: Duration,
}

impl Wire {
    pub(crate) fn start(
        command: duologue_client::Command,
        folder: PathBuf,
        patience: Duration,
    ) -> Result<Self> {
        let (process, pipes) = AgentProcess::start(command)?;
        let (tape, start) = (Tape::default(), Instant::now());
        let (sender, lines) = mpsc::unbounded_channel();
        tokio::spawn(read_lines(pipes.stdout, tape.clone(), start, sender));
        tokio::spawn(read_stderr(pipes.stderr, tape.clone(), start));
        Ok(Wire {
            process,
            stdin: Some(pipes.stdin),
            lines,
            tape,
            start,
            answers: Vec::new(),
            next_id: 1,
            open: true,
            folder,
            cancelled: HashSet::new(),
            patience,
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

    fn note(&self, bytes: &[u8]) {
        for line in bytes.strip_suffix(b"\n").unwrap_or(bytes).split(|byte| *byte == b'\n') {
            self.tape.push(self.start, Event::Line(line_of(Side::Client, line)));
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
                Err(fail("the agent no longer reads: it closed its stdin or ended"))
            }
            Err(_) => {
                self.open = false;
                Err(fail("the agent does not read its stdin"))
            }
        }
    }

    /// Closes its stdin, the polite way to end it.
    pub(crate) fn hang_up(&mut self) {
        self.tape.push(self.start, Event::Eof(Side::Client));
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

    /// Waits for the answer to a request, as long as our patience lasts.
    pub(crate) async fn answer(&mut self, id: &str, what: &str) -> std::result::Result<Answer, Finding> {
        let deadline = Instant::now() + self.patience;
        loop {
            if let Some(at) = self.answers.iter().position(|answer| same_id(&answer.id, id)) {
                return Ok(self.answers.swap_remove(at));
            }
            match self.next(deadline).await {
                Next::Seen(Seen::Answer(answer)) => self.answers.push(answer),
                Next::Seen(Seen::Request(asked)) => self.serve(&asked).await?,
                Next::Seen(_) => {}
                Next::Silence => {
                    return Err(fail(format!("no answer to {what} within {}", seconds(self.patience))));
                }
                Next::End => return Err(fail(format!("the agent ended before it answered {what}"))),
            }
        }
    }

    /// Listens for a while, and answers what is asked.
    pub(crate) async fn listen(&mut self, time: Duration) -> std::result::Result<(), Finding> {
        let deadline = Instant::now() + time;
        loop {
            match self.next(deadline).await {
                Next::Seen(Seen::Request(asked)) => self.serve(&asked).await?,
                Next::Seen(Seen::Answer(answer)) => self.answers.push(answer),
                Next::Seen(_) => {}
                Next::Silence | Next::End => return Ok(()),
            }
        }
    }

    /// Whether an answer has come that nobody waited for.
    pub(crate) fn has_answer(&self, id: &str) -> bool {
        self.answers.iter().any(|answer| same_id(&answer.id, id))
    }

    /// Leaves out what was answered so far and nobody waited for.
    pub(crate) fn forget_answers(&mut self) {
        self.answers.clear();
    }

    pub(crate) fn keep(&mut self, answer: Answer) {
        self.answers.push(answer);
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

    /// The next message.
    pub(crate) async fn next(&mut self, deadline: Instant) -> Next {
        match timeout_at(deadline, self.lines.recv()).await {
            Err(_) => Next::Silence,
            Ok(None) => {
                self.open = false;
                Next::End
            }
            Ok(Some(line)) => Next::Seen(seen(&line)),
        }
    }

    /// Answers the agent as the simplest useful client would: it may read and write in the session's
    /// folder, and it gets the first permission it asks for.
    pub(crate) async fn serve(&mut self, asked: &Asked) -> std::result::Result<(), Finding> {
        let params = &asked.params;
        let answer = match asked.method.as_str() {
            "session/request_permission" => {
                let cancelled = params["sessionId"].as_str().is_some_and(|id| self.cancelled.contains(id));
                let outcome = if cancelled { json!({"outcome": "cancelled"}) } else { chosen(params) };
                Ok(json!({"outcome": outcome}))
            }
            "fs/read_text_file" => self.file(params).and_then(|path| {
                let text = std::fs::read_to_string(path).map_err(|_| (-32002, "no such file"))?;
                Ok(json!({"content": part(&text, params)}))
            }),
            "fs/write_text_file" => self.file(params).and_then(|path| {
                let text = params["content"].as_str().ok_or((-32602, "no content"))?;
                std::fs::write(path, text).map_err(|_| (-32603, "it cannot be written"))?;
                Ok(json!({}))
            }),
            _ => Err((-32601, "method not found")),
        };
        self.respond(&asked.id, answer).await
    }

    pub(crate) async fn respond(
        &mut self,
        id: &str,
        answer: std::result::Result<Value, (i32, &str)>,
    ) -> std::result::Result<(), Finding> {
        let member = match answer {
            Ok(result) => format!("\"result\":{result}"),
            Err((code, message)) => {
                format!("\"error\":{}", json!({"code": code, "message": message}))
            }
        };
        self.send(format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},{member}}}\n").as_bytes()).await
    }

    /// The file the params name, if it is in the session's folder.
    fn file(&self, params: &Value) -> std::result::Result<PathBuf, (i32, &'static str)> {
        let refused = (-32002, "only files in the session's folder are lent");
        let path = PathBuf::from(params["path"].as_str().ok_or((-32602, "no path"))?);
        let parent = path.parent().and_then(|parent| parent.canonicalize().ok()).ok_or(refused)?;
        let whole = parent.join(path.file_name().ok_or(refused)?);
        let link = whole.symlink_metadata().is_ok_and(|file| file.is_symlink());
        if whole.starts_with(&self.folder) && !link { Ok(whole) } else { Err(refused) }
    }

    /// Waits for the process to end by itself.
    pub(crate) async fn exit(&mut self, time: Duration) -> Option<ExitStatus> {
        timeout(time, self.process.wait()).await.ok().flatten()
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

/// Whether two ids say the same; a string may be written in more than one way.
pub(crate) fn same_id(one: &str, other: &str) -> bool {
    let value = |token: &str| serde_json::from_str::<Value>(token).ok();
    one == other || value(one).is_some_and(|one| Some(one) == value(other))
}

/// A time for people.
pub(crate) fn seconds(time: Duration) -> String {
    format!("{} s", time.as_secs_f64())
}

fn seen(line: &Line) -> Seen {
    let value = |raw: Option<&serde_json::value::RawValue>| {
        raw.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or(Value::Null)
    };
    match line.message() {
        Some(Ok(Message::Request { id, method, params })) => Seen::Request(Asked {
            id: id.token().to_owned(),
            method: method.into_owned(),
            params: value(params),
        }),
        Some(Ok(Message::Notification { params, .. })) => Seen::Notification(Told { params: value(params) }),
        Some(Ok(Message::Response { id, outcome })) => Seen::Answer(Answer {
            id: id.get().to_owned(),
            outcome: match outcome {
                Said::Result(result) => Ok(value(Some(result))),
                Said::Error(error) => {
                    Err(Refusal { code: error.code.0.into(), message: error.message.into_owned() })
                }
                _ => Err(Refusal { code: 0, message: "neither a result nor a readable error".into() }),
            },
        }),
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

/// The lines of a text that the params ask for.
fn part(text: &str, params: &Value) -> String {
    let number = |name: &str| params[name].as_u64().and_then(|number| usize::try_from(number).ok());
    let skipped = number("line").unwrap_or(1).saturating_sub(1);
    text.split_inclusive('\n').skip(skipped).take(number("limit").unwrap_or(usize::MAX)).collect()
}

fn line_of(from: Side, bytes: &[u8]) -> Line {
    match bytes.strip_suffix(b"\r") {
        Some(bytes) => {
            let mut line = Line::new(from, bytes);
            line.end = LineEnd::CrLf;
            line
        }
        None => Line::new(from, bytes),
    }
}

async fn read_lines(
    pipe: impl AsyncRead + Unpin,
    tape: Tape,
    start: Instant,
    sender: mpsc::UnboundedSender<Line>,
) {
    let mut pipe = BufReader::new(pipe);
    let mut bytes = Vec::new();
    while matches!((&mut pipe).take(LINE_BYTES).read_until(b'\n', &mut bytes).await, Ok(1..)) {
        let line = match bytes.strip_suffix(b"\n") {
            Some(whole) => line_of(Side::Agent, whole),
            None => {
                let mut line = Line::new(Side::Agent, bytes.as_slice());
                line.end = LineEnd::None;
                line
            }
        };
        tape.push(start, Event::Line(line.clone()));
        if sender.send(line).is_err() {
            return;
        }
        bytes.clear();
    }
    tape.push(start, Event::Eof(Side::Agent));
}

async fn read_stderr(pipe: impl AsyncRead + Unpin, tape: Tape, start: Instant) {
    let mut pipe = BufReader::new(pipe);
    let (mut bytes, mut kept) = (Vec::new(), 0);
    while matches!((&mut pipe).take(64 * 1024).read_until(b'\n', &mut bytes).await, Ok(1..)) {
        if kept < STDERR_LINES {
            kept += 1;
            let text = String::from_utf8_lossy(&bytes).trim_end().to_owned();
            tape.push(start, Event::Stderr(text));
        }
        bytes.clear();
    }
}
