//! `duologue record`.

use std::collections::HashSet;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::pin::Pin;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};
use std::time::Duration;

use duologue_client::AgentProcess;
use duologue_rpc::{Lock, OutputWatch, Stdio};
use duologue_transcript::{Recorder, Side, forward, forward_stderr};
use serde::Deserialize;
use serde::de::IgnoredAny;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::task::JoinHandle;

use crate::commands::AgentArgs;
use crate::error::Result;
use crate::exit::{self, Exit};
use crate::recording::{self, SecretArgs};
use crate::runtime;
use crate::signals::Signals;
use crate::ui::{self, DIM};

const EXAMPLES: &str = "\
Examples:
  duologue record -o talk.jsonl -- my-agent --acp
  duologue run \"hello\" -- duologue record -o hello.jsonl -- duologue mock
In an editor's configuration of an agent: the command `duologue` with the arguments
  record -o /home/me/talk.jsonl -- my-agent --acp";

/// The silence after which an agent is ended whose client has left, unless it still owes a response.
const MAX_SILENCE: Duration = Duration::from_secs(2);
/// The bytes after which a line is not examined as a message.
const MAX_LINE: usize = 16 << 20;
/// The silence after which output is closed that a child of an ended agent holds open.
const CHILD_OUTPUT_TIMEOUT: Duration = Duration::from_millis(500);
/// The time that the end waits for the disk.
const DISK_TIMEOUT: Duration = Duration::from_secs(5);

/// Record the conversation between a client and an agent
///
/// Put it in front of the agent's command in the client's configuration. No byte of the conversation is changed,
/// and everything that reached the other side is in the file.
///
/// The end of the client's input is passed on. An agent that does not end may continue while it owes a response or
/// sends something, and then gets a SIGTERM. It is not waited for once nothing reads its output. SIGHUP, SIGINT and
/// SIGTERM end it at once; a second one kills it.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RecordArgs {
    /// The transcript to write; if `talk.jsonl` exists, `talk-2.jsonl` and so on, so that an editor can
    /// start the command again
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Replace FILE if it exists. A pipe needs a reader
    #[arg(long)]
    force: bool,
    /// Drop lines instead of delaying the conversation when the disk is slow
    #[arg(long)]
    lossy: bool,
    #[command(flatten)]
    secrets: SecretArgs,
    #[command(flatten)]
    agent: AgentArgs,
}

pub(crate) fn run(args: RecordArgs) -> Result<Exit> {
    let runtime = runtime::current_thread()?;
    let exit = runtime.block_on(record(&args));
    // A blocked read of a terminal is not waited for.
    runtime.shutdown_background();
    exit
}

async fn record(args: &RecordArgs) -> Result<Exit> {
    let command = args.agent.required()?;
    // Checked first, so that an unwritable file is an error too.
    let signals = Signals::listen()?;
    let (recorder, path) = args.open()?;
    let (process, pipes) = match AgentProcess::start(command) {
        Ok(started) => started,
        Err(error) => {
            recording::remove(recorder, &path).await;
            return Err(error.into());
        }
    };
    let stdio = Stdio::take()?;
    let (from_client, to_client) = stdio.transport.into_split();
    let complaint = tokio::spawn(report_stop(recorder.clone()));

    let activity = Arc::new(Activity::default());
    *activity.output.lock_unpoisoned() = Some(stdio.output);
    let from_client = ObservedReader::new(Side::Client, from_client, &activity);
    let from_agent = ObservedReader::new(Side::Agent, pipes.stdout, &activity);
    let to = recorder.clone();
    let to_agent = tokio::spawn(async move { forward(Side::Client, from_client, pipes.stdin, &to).await });
    let to = recorder.clone();
    let watch = activity.clone();
    let to_client = tokio::spawn(async move {
        let forwarded = forward(Side::Agent, from_agent, to_client, &to).await;
        // The client sees the end of the output once it is not watched any more.
        watch.output.lock_unpoisoned().take();
        forwarded
    });
    let to = recorder.clone();
    let stderr_copy =
        tokio::spawn(async move { forward_stderr(pipes.stderr, tokio::io::stderr(), &to).await });

    let status = Relay { to_agent, to_client, stderr_copy, activity, signals }.run_to_end(process).await;
    if let Some(status) = status {
        recorder.exit(status);
    }
    let is_complete = match tokio::time::timeout(DISK_TIMEOUT, recorder.finish()).await {
        Ok(written) => {
            // The recorder has an error exactly if this is one.
            let _ = complaint.await;
            written.is_ok()
        }
        Err(_) => {
            ui::print_error(&"the file takes nothing more; the recording is incomplete");
            false
        }
    };
    Ok(match status.and_then(|status| exit::agent_code(&status.into())) {
        Some(0) if !is_complete => Exit::File,
        Some(code) => Exit::AgentCode(code),
        None => Exit::Agent,
    })
}

impl RecordArgs {
    /// Creates the file. Returns its path too.
    fn open(&self) -> Result<(Recorder, PathBuf)> {
        let recorder = || {
            let recorder = self.secrets.recorder().program(self.agent.words());
            if self.lossy { recorder.lossy() } else { recorder }
        };
        if self.force {
            return Ok((recording::create(recorder(), &self.output, true)?, self.output.clone()));
        }
        let (recorder, path) = recording::create_numbered(recorder, &self.output)?;
        if path != self.output {
            let name = path.display().to_string();
            writeln!(ui::stderr(), "{DIM}recording to {}{DIM:#}", ui::printable(&name))?;
        }
        Ok((recorder, path))
    }
}

/// Prints once that the recording has stopped.
async fn report_stop(recorder: Recorder) {
    if let Some(error) = recorder.stopped().await {
        ui::print_error(&format_args!("recording stopped: {error}; the conversation goes on"));
    }
}

/// The relay between the client and the agent.
struct Relay {
    to_agent: JoinHandle<io::Result<()>>,
    to_client: JoinHandle<io::Result<()>>,
    stderr_copy: JoinHandle<io::Result<()>>,
    activity: Arc<Activity>,
    signals: Signals,
}

impl Relay {
    /// Passes everything on until the agent has ended and the client has all its output. Returns `None` if the end
    /// could not be observed.
    async fn run_to_end(mut self, mut process: AgentProcess) -> Option<ExitStatus> {
        let client_left = async {
            // An agent that reads no more may still write.
            if !matches!((&mut self.to_agent).await, Ok(Ok(()))) {
                std::future::pending::<()>().await;
            }
            self.activity.wait_until_idle(MAX_SILENCE).await;
        };
        let by_itself = tokio::select! {
            _ = process.wait() => true,
            () = client_left => false,
            _ = self.signals.next() => {
                process.terminate();
                false
            }
        };
        self.to_agent.abort();
        // Child processes may hold its output open, and are killed with it.
        let (mut to_client, activity) = (self.to_client, &self.activity);
        let the_end = async {
            let has_ended = by_itself && wait_for_end(&mut to_client, activity).await;
            let status = process.end().await;
            if !has_ended {
                wait_for_end(&mut to_client, activity).await;
            }
            let _ = tokio::time::timeout(CHILD_OUTPUT_TIMEOUT, self.stderr_copy).await;
            status
        };
        tokio::select! {
            status = the_end => status,
            // A second signal. Dropping the process kills it.
            _ = self.signals.next() => None,
        }
    }
}

/// Waits for the end of the agent's output. Returns false if it was silent for too long instead.
async fn wait_for_end(to_client: &mut JoinHandle<io::Result<()>>, activity: &Activity) -> bool {
    tokio::select! {
        _ = to_client => true,
        () = activity.wait_for_silence(CHILD_OUTPUT_TIMEOUT) => false,
    }
}

/// The activity of the agent, and the responses that it owes.
#[derive(Default)]
struct Activity {
    reads: AtomicU64,
    /// Set while the relay waits for the agent, and not for the client or the disk.
    waits: AtomicBool,
    /// The output for the client, until it ends.
    output: Mutex<Option<OutputWatch>>,
    /// The ids of the unanswered requests.
    open_requests: Mutex<HashSet<String>>,
}

impl Activity {
    /// Waits until the agent was silent for this time.
    async fn wait_for_silence(&self, long: Duration) {
        loop {
            let before = self.reads.load(Relaxed);
            tokio::time::sleep(long).await;
            if self.waits.load(Relaxed) && self.reads.load(Relaxed) == before {
                return;
            }
        }
    }

    /// Waits until the agent was silent for this time and owes no response that a client would read.
    async fn wait_until_idle(&self, long: Duration) {
        loop {
            self.wait_for_silence(long).await;
            if self.open_requests().is_empty() || self.is_unread() {
                return;
            }
        }
    }

    /// Returns true if nothing reads the responses any more.
    fn is_unread(&self) -> bool {
        self.output.lock_unpoisoned().as_ref().is_none_or(OutputWatch::is_unread)
    }

    fn open_requests(&self) -> MutexGuard<'_, HashSet<String>> {
        self.open_requests.lock_unpoisoned()
    }

    fn observe(&self, from: Side, line: &[u8]) {
        let Ok(MessageHead { id: Some(id), method }) = serde_json::from_slice(line) else { return };
        match (from, method) {
            (Side::Client, Some(_)) => {
                self.open_requests().insert(id.to_string());
            }
            (Side::Agent, None) => {
                self.open_requests().remove(&id.to_string());
            }
            _ => {}
        }
    }
}

/// The members that distinguish requests, responses and notifications.
#[derive(Deserialize)]
struct MessageHead {
    id: Option<serde_json::Value>,
    method: Option<IgnoredAny>,
}

/// The output of a side, observed line by line.
struct ObservedReader<R> {
    from: Side,
    inner: R,
    activity: Arc<Activity>,
    /// The beginning of the current line.
    line: Vec<u8>,
}

impl<R> ObservedReader<R> {
    fn new(from: Side, inner: R, activity: &Arc<Activity>) -> Self {
        ObservedReader { from, inner, activity: activity.clone(), line: Vec::new() }
    }

    fn observe(&mut self, bytes: &[u8]) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            if self.line.len() <= MAX_LINE {
                self.line.extend_from_slice(piece);
            }
            if piece.ends_with(b"\n") {
                self.activity.observe(self.from, &self.line);
                self.line.clear();
            }
        }
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for ObservedReader<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.inner).poll_read(cx, buf);
        if self.from == Side::Agent {
            self.activity.waits.store(read.is_pending(), Relaxed);
            self.activity.reads.fetch_add(1, Relaxed);
        }
        self.observe(buf.filled().get(before..).unwrap_or_default());
        read
    }
}
