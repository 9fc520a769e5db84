//! A client without any SDK: one thread, two pipes and `poll`. Every wait has a time limit.
//! It reads its agent's output while it writes, unless `reads` is false.

use std::collections::{HashSet, VecDeque};
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::process::{ChildStdin, ChildStdout, Command};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::pipe::fcntl_setpipe_size;
use serde_json::{Value, json};

use crate::process::ObservedProcess;
use crate::{Failed, Result};

/// The time limit of a wait.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// The frames that an agent sends to the program `raw-client`: the responses to `initialize` and two `session/new`, 56
/// updates and the end of the turn.
pub const FRAMES: usize = 60;

/// Output of the agent.
#[derive(Debug)]
pub enum RawOutput {
    /// A line, with its end.
    Line(Vec<u8>),
    /// Its output has ended.
    End,
    /// Nothing, for as long as was waited.
    Silence,
}

/// A line as what it says.
pub fn parsed(line: &[u8]) -> Result<Value> {
    serde_json::from_slice(line)
        .or_else(|_| Failed::because(format!("foreign output: {}", String::from_utf8_lossy(line))))
}

/// A client of one agent, whose process ends with this value.
pub struct RawClient {
    /// The agent.
    pub process: ObservedProcess,
    stdin: Option<ChildStdin>,
    stdout: Option<BufReader<ChildStdout>>,
    /// The received part of the next line.
    partial: Vec<u8>,
    lines: VecDeque<Vec<u8>>,
    /// True if output is read during a write.
    pub reads: bool,
    last_id: u64,
    /// The requests whose answers [`message`](Self::message) has seen.
    answered: HashSet<u64>,
}

impl RawClient {
    /// Starts an agent.
    pub fn start(command: &mut Command) -> Result<Self> {
        let mut process = ObservedProcess::start(command)?;
        let (stdin, stdout) = (process.stdin()?, process.stdout()?);
        // The agent's ends of the pipes are open files of their own and do not see this.
        fcntl_setfl(&stdin, fcntl_getfl(&stdin)? | OFlags::NONBLOCK)?;
        fcntl_setfl(&stdout, fcntl_getfl(&stdout)? | OFlags::NONBLOCK)?;
        Ok(RawClient {
            process,
            stdin: Some(stdin),
            stdout: Some(BufReader::with_capacity(64 * 1024, stdout)),
            partial: Vec::new(),
            lines: VecDeque::new(),
            reads: true,
            last_id: 0,
            answered: HashSet::new(),
        })
    }

    /// An agent that has been greeted.
    pub fn greeted(command: &mut Command) -> Result<Self> {
        let mut client = RawClient::start(command)?;
        let params = json!({"protocolVersion": 1, "clientCapabilities": {"fs": {"readTextFile": true}}});
        let answer = client.ask("initialize", &params)?;
        if answer["result"]["protocolVersion"] != 1 {
            return Failed::because(format!("initialize was answered {answer}"));
        }
        Ok(client)
    }

    /// Opens a session, and returns its id.
    pub fn new_session(&mut self) -> Result<String> {
        let answer = self.ask("session/new", &json!({"cwd": "/tmp", "mcpServers": []}))?;
        match answer["result"]["sessionId"].as_str() {
            Some(id) => Ok(id.to_owned()),
            None => Failed::because(format!("session/new was answered {answer}")),
        }
    }

    /// Makes both pipes as small as pipes can be.
    pub fn narrow(&self) -> Result<()> {
        if let (Some(stdin), Some(stdout)) = (&self.stdin, &self.stdout) {
            let refused = |error| format!("a pipe of 4 KiB was refused: {error}");
            fcntl_setpipe_size(stdin, 4096).map_err(refused)?;
            fcntl_setpipe_size(stdout.get_ref(), 4096).map_err(refused)?;
        }
        Ok(())
    }

    /// Writes all of it.
    pub fn write(&mut self, bytes: &[u8], within: Duration) -> Result<()> {
        let (mut left, deadline) = (bytes, Instant::now() + within);
        while !left.is_empty() {
            left = self.write_some(left)?;
            if !left.is_empty() && !self.wait(true, deadline)? {
                return Failed::because(format!("it took nothing more for {within:?}"));
            }
        }
        Ok(())
    }

    /// Writes what there is room for, and returns the rest.
    fn write_some<'a>(&mut self, bytes: &'a [u8]) -> Result<&'a [u8]> {
        let stdin = self.stdin.as_mut().ok_or("its input is closed")?;
        match stdin.write(bytes) {
            Ok(count) => Ok(bytes.get(count..).unwrap_or_default()),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(bytes),
            Err(error) => Failed::because(format!("it takes no input: {error}")),
        }
    }

    /// Waits until something can be read, or written if that is wanted; `false` when it is too late.
    fn wait(&mut self, writes: bool, deadline: Instant) -> Result<bool> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(false);
        }
        let mut fds = Vec::new();
        if let (true, Some(stdin)) = (writes, &self.stdin) {
            fds.push(PollFd::new(stdin, PollFlags::OUT));
        }
        if let (true, Some(stdout)) = (self.reads || !writes, &self.stdout) {
            fds.push(PollFd::new(stdout.get_ref(), PollFlags::IN));
        }
        poll(&mut fds, Some(&Timespec::try_from(left)?))?;
        if self.reads || !writes {
            self.read_some()?;
        }
        Ok(true)
    }

    /// Takes the lines that are there.
    fn read_some(&mut self) -> Result<()> {
        while let Some(stdout) = &mut self.stdout {
            match stdout.read_until(b'\n', &mut self.partial) {
                Ok(0) => self.stdout = None,
                Ok(_) if self.partial.ends_with(b"\n") => {
                    self.lines.push_back(std::mem::take(&mut self.partial));
                    // One that waits for a line need not take all there are.
                    if self.lines.len() >= 1024 {
                        return Ok(());
                    }
                }
                // A last line without a line end.
                Ok(_) => self.lines.push_back(std::mem::take(&mut self.partial)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// The next line, and whatever else may come instead.
    pub fn hear(&mut self, within: Duration) -> Result<RawOutput> {
        let deadline = Instant::now() + within;
        loop {
            if let Some(line) = self.lines.pop_front() {
                return Ok(RawOutput::Line(line));
            }
            if self.stdout.is_none() {
                return Ok(RawOutput::End);
            }
            self.read_some()?;
            if self.lines.is_empty() && self.stdout.is_some() && !self.wait(false, deadline)? {
                return Ok(RawOutput::Silence);
            }
        }
    }

    /// The next message; an error if there is none.
    pub fn message(&mut self, within: Duration) -> Result<Value> {
        let message = match self.hear(within)? {
            RawOutput::Line(line) => parsed(&line)?,
            RawOutput::End => return Failed::because(self.end()),
            RawOutput::Silence => return Failed::because(format!("no answer in {within:?}")),
        };
        match message["id"].as_u64() {
            Some(id) if message.get("method").is_none() && !self.answered.insert(id) => {
                Failed::because(format!("{id} was answered twice"))
            }
            _ => Ok(message),
        }
    }

    /// Describes its end.
    pub fn end(&mut self) -> String {
        match self.process.wait(Duration::from_secs(1)) {
            Ok(Some(status)) => format!("the agent ended, {status}"),
            _ => "the agent closed its output".to_owned(),
        }
    }

    /// The line of a request, and its id.
    pub fn request(&mut self, method: &str, params: &Value) -> (Vec<u8>, u64) {
        self.last_id += 1;
        let request = json!({"jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params});
        (format!("{request}\n").into_bytes(), self.last_id)
    }

    /// The line of a prompt of one text, and its id.
    pub fn prompt(&mut self, session: &str, text: &str) -> (Vec<u8>, u64) {
        let prompt = [json!({"type": "text", "text": text})];
        self.request("session/prompt", &json!({"sessionId": session, "prompt": prompt}))
    }

    /// Sends a prompt, and says its id.
    pub fn begin(&mut self, session: &str, text: &str) -> Result<u64> {
        let (line, id) = self.prompt(session, text);
        self.write(&line, PATIENCE)?;
        Ok(id)
    }

    /// Asks, and waits for the answer; what comes before it is passed over.
    pub fn ask(&mut self, method: &str, params: &Value) -> Result<Value> {
        let (line, id) = self.request(method, params);
        self.write(&line, PATIENCE)?;
        self.answer(id, PATIENCE)
    }

    /// A whole turn; its answer.
    pub fn turn(&mut self, session: &str, text: &str) -> Result<Value> {
        let id = self.begin(session, text)?;
        self.answer(id, PATIENCE)
    }

    /// The answer to a request; what comes before it is passed over.
    pub fn answer(&mut self, id: u64, within: Duration) -> Result<Value> {
        loop {
            let message = self.message(within)?;
            if message["id"] == id && message.get("method").is_none() {
                return Ok(message);
            }
        }
    }

    /// Measures the response time of a request that any agent answers at once.
    pub fn probe(&mut self) -> Result<Duration> {
        let begun = Instant::now();
        self.ask("_probe", &json!({}))?;
        Ok(begun.elapsed())
    }

    /// Sends a notification.
    pub fn notify(&mut self, method: &str, params: &Value) -> Result<()> {
        let line = json!({"jsonrpc": "2.0", "method": method, "params": params});
        self.write(format!("{line}\n").as_bytes(), PATIENCE)
    }

    /// Answers a request.
    pub fn respond(&mut self, id: &Value, result: &Value) -> Result<()> {
        let line = json!({"jsonrpc": "2.0", "id": id, "result": result});
        self.write(format!("{line}\n").as_bytes(), PATIENCE)
    }

    /// Closes the agent's input.
    pub fn hang_up(&mut self) {
        self.stdin = None;
    }
}
