//! `duologue record`.

use std::collections::HashSet;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use duologue_client::AgentProcess;
use duologue_rpc::Stdio;
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

/// An agent whose client has left may go on for as long as it owes an answer or says something this often.
const QUIET: Duration = Duration::from_secs(2);
/// What is longer is no message.
const LONGEST_LINE: usize = 16 << 20;
/// How long output may be silent after the agent's end, when something it started still holds it.
const LEFTOVERS: Duration = Duration::from_millis(500);
/// How long the end waits for the disk.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// Sit between a client and an agent and write down what they say
///
/// Put it in front of the agent's command wherever a client starts one. No byte of the conversation is changed;
/// what has reached the other side is in the file.
///
/// The end of the client's input is passed on. An agent that goes on nevertheless is waited for while it owes an
/// answer or says something, and is then asked to end; SIGHUP, SIGINT and SIGTERM ask it at once, a second one kills it.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The transcript to write
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Replace FILE if it exists
    #[arg(long)]
    force: bool,
    /// Leave lines out rather than let the conversation wait for a slow disk
    #[arg(long)]
    lossy: bool,
    /// Take keys, tokens and authorization headers out before they reach the file; `false` keeps them
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

pub(crate) fn run(args: Args) -> Result<Exit> {
    let runtime = runtime::current_thread()?;
    let exit = runtime.block_on(record(&args));
    // A terminal that nobody types into cannot be waited for.
    runtime.shutdown_background();
    exit
}

async fn record(args: &Args) -> Result<Exit> {
    let command = args.agent.required()?;
    // First, so that a file that takes nothing is an error too.
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
            // It has something to say exactly if this is an error.
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

impl Args {
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

/// Says once that the recording has stopped, when it does.
async fn complain(recorder: Recorder) {
    if let Some(error) = recorder.stopped().await {
        ui::complain(&format_args!("recording stopped: {error}; the conversation goes on"));
    }
}

/// What runs between the client and the agent.
struct Middle {
    asked: JoinHandle<io::Result<()>>,
    answered: JoinHandle<io::Result<()>>,
    grumbled: JoinHandle<io::Result<()>>,
    flow: Arc<Flow>,
    signals: Signals,
}

impl Middle {
    /// Passes everything on until the agent is gone and the client has what it said. `None` when its end
    /// could not be seen.
    async fn until_gone(mut self, mut process: AgentProcess) -> Option<ExitStatus> {
        let client_left = async {
            // An agent that takes nothing more is something else, and may still speak.
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
        // What it started may hold its output open, and is killed with it.
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
            // Somebody insists. Dropping the process kills it.
            _ = self.signals.next() => None,
        }
    }
}

/// Waits for the end of what the agent says: true, or until nothing comes: false.
async fn ended_or_quiet(answered: &mut JoinHandle<io::Result<()>>, flow: &Flow) -> bool {
    tokio::select! {
        _ = answered => true,
        () = flow.quiet(LEFTOVERS) => false,
    }
}

/// Whether the agent says anything, and has to.
#[derive(Default)]
struct Flow {
    reads: AtomicU64,
    /// Somebody waits for more. Not so while the client or the disk is what takes its time.
    waits: AtomicBool,
    /// The ids of the requests it has not answered.
    owed: Mutex<HashSet<String>>,
}

impl Flow {
    /// Waits until nothing has come for this long.
    async fn quiet(&self, long: Duration) {
        loop {
            let before = self.reads.load(Relaxed);
            tokio::time::sleep(long).await;
            if self.waits.load(Relaxed) && self.reads.load(Relaxed) == before {
                return;
            }
        }
    }

    /// Waits until nothing has come for this long and nothing has to.
    async fn idle(&self, long: Duration) {
        loop {
            self.quiet(long).await;
            if self.owed().is_empty() {
                return;
            }
        }
    }

    fn owed(&self) -> MutexGuard<'_, HashSet<String>> {
        self.owed.lock().unwrap_or_else(PoisonError::into_inner)
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

/// What tells requests, answers and the rest apart.
#[derive(Deserialize)]
struct Head {
    id: Option<serde_json::Value>,
    method: Option<IgnoredAny>,
}

/// What a side says, watched.
struct Watched<R> {
    from: Side,
    inner: R,
    flow: Arc<Flow>,
    /// The beginning of a line.
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
