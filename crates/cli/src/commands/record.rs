//! `duologue record`.

use std::collections::HashSet;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};
use std::time::Duration;

use duologue_client::AgentProcess;
use duologue_rpc::{Lock, Stdio};
use duologue_transcript::{Recorder, Side, forward, forward_stderr};
use serde::Deserialize;
use serde::de::IgnoredAny;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::task::JoinHandle;

use crate::commands::AgentArgs;
use crate::error::Result;
use crate::exit::{self, Exit};
use crate::recording;
use crate::signals::Signals;
use crate::{runtime, ui};

/// The silence after which an agent is ended whose client has left, unless it still owes a response.
const QUIET: Duration = Duration::from_secs(2);
/// The bytes after which a line is not examined as a message.
const LONGEST_LINE: usize = 16 << 20;
/// The silence after which output is closed that a child of an ended agent holds open.
const LEFTOVERS: Duration = Duration::from_millis(500);
/// The time that the end waits for the disk.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// Record the conversation between a client and an agent
///
/// Put it in front of the agent's command in the client's configuration. No byte of the conversation is changed,
/// and everything that reached the other side is in the file.
///
/// The end of the client's input is passed on. An agent that does not end may continue while it owes a response or
/// sends something, and then gets a SIGTERM. SIGHUP, SIGINT and SIGTERM end it at once; a second one kills it.
#[derive(clap::Args)]
pub(crate) struct RecordArgs {
    /// The transcript to write
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Replace FILE if it exists
    #[arg(long)]
    force: bool,
    /// Drop lines instead of delaying the conversation when the disk is slow
    #[arg(long)]
    lossy: bool,
    /// Redact keys, tokens and authorization headers before they reach the file; `false` keeps them
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_value_t = true,
        default_missing_value = "true",
        action = clap::ArgAction::Set
    )]
    redact_secrets: bool,
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
    let recorder = args.open()?;
    let (process, pipes) = match AgentProcess::start(command) {
        Ok(started) => started,
        Err(error) => {
            recording::take_back(recorder, &args.output).await;
            return Err(error.into());
        }
    };
    let (from_client, to_client) = Stdio::take()?.transport.into_split();
    let complaint = tokio::spawn(complain(recorder.clone()));

    let flow = Arc::new(Flow::default());
    let from_client = Watched::new(Side::Client, from_client, &flow);
    let from_agent = Watched::new(Side::Agent, pipes.stdout, &flow);
    let to = recorder.clone();
    let asked = tokio::spawn(async move { forward(Side::Client, from_client, pipes.stdin, &to).await });
    let to = recorder.clone();
    let answered = tokio::spawn(async move { forward(Side::Agent, from_agent, to_client, &to).await });
    let to = recorder.clone();
    let grumbled = tokio::spawn(async move { forward_stderr(pipes.stderr, tokio::io::stderr(), &to).await });

    let status = Middle { asked, answered, grumbled, flow, signals }.until_gone(process).await;
    if let Some(status) = status {
        recorder.exit(status);
    }
    let is_complete = match tokio::time::timeout(LAST_WORDS, recorder.finish()).await {
        Ok(written) => {
            // The recorder has an error exactly if this is one.
            let _ = complaint.await;
            written.is_ok()
        }
        Err(_) => {
            ui::complain(&"the file takes nothing more; the recording is incomplete");
            false
        }
    };
    Ok(match status.and_then(|status| exit::agent_code(&status.into())) {
        Some(0) if !is_complete => Exit::File,
        Some(code) => Exit::AsTheAgent(code),
        None => Exit::Agent,
    })
}

impl RecordArgs {
    fn open(&self) -> Result<Recorder> {
        let mut recorder = Recorder::builder()
            .name(concat!("duologue ", env!("CARGO_PKG_VERSION")))
            .program(self.agent.words());
        if self.lossy {
            recorder = recorder.lossy();
        }
        if !self.redact_secrets {
            recorder = recorder.keep_secrets();
        }
        recording::begin(recorder, &self.output, self.force)
    }
}

/// Prints once that the recording has stopped.
async fn complain(recorder: Recorder) {
    if let Some(error) = recorder.stopped().await {
        ui::complain(&format_args!("recording stopped: {error}; the conversation goes on"));
    }
}

/// The relay between the client and the agent.
struct Middle {
    asked: JoinHandle<io::Result<()>>,
    answered: JoinHandle<io::Result<()>>,
    grumbled: JoinHandle<io::Result<()>>,
    flow: Arc<Flow>,
    signals: Signals,
}

impl Middle {
    /// Passes everything on until the agent has ended and the client has all its output. Returns `None` if the end
    /// could not be observed.
    async fn until_gone(mut self, mut process: AgentProcess) -> Option<ExitStatus> {
        let client_left = async {
            // An agent that reads no more may still write.
            if !matches!((&mut self.asked).await, Ok(Ok(()))) {
                std::future::pending::<()>().await;
            }
            self.flow.idle(QUIET).await;
        };
        let by_itself = tokio::select! {
            _ = process.wait() => true,
            () = client_left => false,
            _ = self.signals.next() => {
                process.terminate();
                false
            }
        };
        self.asked.abort();
        // Child processes may hold its output open, and are killed with it.
        let (mut answered, flow) = (self.answered, &self.flow);
        let the_end = async {
            let heard = by_itself && ended_or_quiet(&mut answered, flow).await;
            let status = process.end().await;
            if !heard {
                ended_or_quiet(&mut answered, flow).await;
            }
            let _ = tokio::time::timeout(LEFTOVERS, self.grumbled).await;
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
async fn ended_or_quiet(answered: &mut JoinHandle<io::Result<()>>, flow: &Flow) -> bool {
    tokio::select! {
        _ = answered => true,
        () = flow.quiet(LEFTOVERS) => false,
    }
}

/// The activity of the agent, and the responses that it owes.
#[derive(Default)]
struct Flow {
    reads: AtomicU64,
    /// Set while the relay waits for the agent, and not for the client or the disk.
    waits: AtomicBool,
    /// The ids of the unanswered requests.
    owed: Mutex<HashSet<String>>,
}

impl Flow {
    /// Waits until the agent was silent for this time.
    async fn quiet(&self, long: Duration) {
        loop {
            let before = self.reads.load(Relaxed);
            tokio::time::sleep(long).await;
            if self.waits.load(Relaxed) && self.reads.load(Relaxed) == before {
                return;
            }
        }
    }

    /// Waits until the agent was silent for this time and owes no response.
    async fn idle(&self, long: Duration) {
        loop {
            self.quiet(long).await;
            if self.owed().is_empty() {
                return;
            }
        }
    }

    fn owed(&self) -> MutexGuard<'_, HashSet<String>> {
        self.owed.lock_unpoisoned()
    }

    fn saw(&self, from: Side, line: &[u8]) {
        let Ok(Head { id: Some(id), method }) = serde_json::from_slice(line) else { return };
        match (from, method) {
            (Side::Client, Some(_)) => {
                self.owed().insert(id.to_string());
            }
            (Side::Agent, None) => {
                self.owed().remove(&id.to_string());
            }
            _ => {}
        }
    }
}

/// The members that distinguish requests, responses and notifications.
#[derive(Deserialize)]
struct Head {
    id: Option<serde_json::Value>,
    method: Option<IgnoredAny>,
}

/// The output of a side, observed line by line.
struct Watched<R> {
    from: Side,
    inner: R,
    flow: Arc<Flow>,
    /// The beginning of the current line.
    line: Vec<u8>,
}

impl<R> Watched<R> {
    fn new(from: Side, inner: R, flow: &Arc<Flow>) -> Self {
        Watched { from, inner, flow: flow.clone(), line: Vec::new() }
    }

    fn saw(&mut self, bytes: &[u8]) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            if self.line.len() <= LONGEST_LINE {
                self.line.extend_from_slice(piece);
            }
            if piece.ends_with(b"\n") {
                self.flow.saw(self.from, &self.line);
                self.line.clear();
            }
        }
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for Watched<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.inner).poll_read(cx, buf);
        if self.from == Side::Agent {
            self.flow.waits.store(read.is_pending(), Relaxed);
            self.flow.reads.fetch_add(1, Relaxed);
        }
        self.saw(buf.filled().get(before..).unwrap_or_default());
        read
    }
}
