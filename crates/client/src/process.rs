//! The agent's process beside its conversation: its stderr, its end, and why.

use std::io::Write;
use std::process::ExitStatus;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use duologue_rpc::{Closed, Lock, Peer, Transport};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Child;
use tokio::sync::{Notify, watch};

use crate::child::{AgentProcess, Pipes, ProcessGroup, graceful_shutdown, reap};
use crate::command::Command;
use crate::error::{AgentExited, Result};
use crate::limits::STDERR_TAIL;

/// How many chunks of stderr may wait to be shown.
const SHOWN_CHUNKS: usize = 64;
/// How long the pipes of an ended process may be silent before they count as ended.
const LAST_OUTPUT: Duration = Duration::from_millis(150);
/// How many times as long they are read if they are not silent: whoever talks on is not the agent.
const LAST_ROUNDS: u32 = 4;

/// Owns the process until it is gone.
pub(crate) struct Supervisor {
    process: ProcessHandle,
    child: Child,
    group: ProcessGroup,
}

/// What others see of the process. Cheap to clone.
#[derive(Clone)]
pub(crate) struct ProcessHandle {
    shared: Arc<Shared>,
}

struct Shared {
    stderr: Tail,
    stderr_done: watch::Sender<bool>,
    /// `Some` once the process has ended; the status may be unknown.
    exit: watch::Sender<Option<Option<ExitStatus>>>,
    close: Notify,
    kill: Notify,
}

impl ProcessHandle {
    pub(crate) fn stderr(&self) -> String {
        self.shared.stderr.text()
    }

    /// Runs the close ladder.
    pub(crate) fn close(&self) {
        self.shared.close.notify_one();
    }

    /// Goes to the end of the ladder at once.
    pub(crate) fn kill(&self) {
        self.shared.kill.notify_one();
    }

    pub(crate) async fn exited(&self) -> Option<ExitStatus> {
        let mut exit = self.shared.exit.subscribe();
        let status = exit.wait_for(Option::is_some).await;
        status.ok().and_then(|status| *status).flatten()
    }

    /// Why the output ended: the exit status, if the process ends within a moment of its pipe.
    pub(crate) async fn explain(&self, reason: Closed, noise: Vec<String>) -> Closed {
        if !matches!(reason, Closed::EndOfInput | Closed::Io(_)) {
            return reason;
        }
        match tokio::time::timeout(Duration::from_millis(400), self.exited()).await {
            Ok(status) => self.cause(status, noise).await,
            Err(_) => reason,
        }
    }

    async fn cause(&self, status: Option<ExitStatus>, noise: Vec<String>) -> Closed {
        let mut done = self.shared.stderr_done.subscribe();
        let _ = tokio::time::timeout(LAST_OUTPUT, done.wait_for(|done| *done)).await;
        Closed::Cause(Arc::new(AgentExited { status, stderr: self.stderr(), noise }))
    }
}

/// Starts the program and drains its stderr.
pub(crate) fn spawn(mut command: Command) -> Result<(Transport, ProcessHandle, Supervisor)> {
    let shown = command.take_stderr();
    let (AgentProcess { child, group }, Pipes { stdin, stdout, stderr }) = AgentProcess::start(command)?;
    let shared = Arc::new(Shared {
        stderr: Tail::default(),
        stderr_done: watch::Sender::new(false),
        exit: watch::Sender::new(None),
        close: Notify::new(),
        kill: Notify::new(),
    });
    tokio::spawn({
        let shared = shared.clone();
        async move {
            shared.stderr.drain(stderr, shown).await;
            shared.stderr_done.send_replace(true);
        }
    });
    let process = ProcessHandle { shared };
    Ok((Transport::new(stdout, stdin), process.clone(), Supervisor { process, child, group }))
}

impl Supervisor {
    /// Watches over the process, in a task of its own, until it is gone.
    pub(crate) fn watch(self, peer: Peer) {
        let Supervisor { process, mut child, mut group } = self;
        tokio::spawn(async move {
            let shared = &process.shared;
            let status = tokio::select! {
                status = child.wait() => status.ok(),
                () = shared.kill.notified() => {
                    group.kill();
                    reap(&mut child).await
                }
                // A process without its conversation is of no use, whoever ended it.
                () = closing(shared, &peer) => {
                    peer.finish();
                    tokio::select! {
                        status = graceful_shutdown(&mut child, &group) => status,
                        () = shared.kill.notified() => {
                            group.kill();
                            reap(&mut child).await
                        }
                    }
                }
            };
            // Whatever the program left behind goes with it.
            group.kill();
            group.forget();
            shared.exit.send_replace(Some(status));
            // A helper that inherited the pipe can hold it open for ever, or even go on writing. So
            // what is in it is read, however slowly it is taken, and the end is declared once
            // nothing comes any more, or it has lasted longer than emptying a pipe does.
            let (mut read, mut rounds) = (None, 0);
            while tokio::time::timeout(LAST_OUTPUT, peer.closed()).await.is_err() {
                if peer.is_paused() {
                    continue;
                }
                let so_far = Some(peer.stats().bytes_read);
                rounds += 1;
                if rounds == LAST_ROUNDS || std::mem::replace(&mut read, so_far) == so_far {
                    peer.close_because(process.cause(status, peer.recent_noise()).await);
                    break;
                }
            }
        });
    }
}

async fn closing(shared: &Shared, peer: &Peer) {
    tokio::select! {
        () = shared.close.notified() => {}
        _ = peer.closed() => {}
    }
}

/// The last bytes of a stream that is always drained.
#[derive(Default)]
struct Tail(Mutex<Vec<u8>>);

impl Tail {
    async fn drain(&self, mut pipe: impl AsyncRead + Unpin, shown: Option<Box<dyn Write + Send>>) {
        let mut chunk = vec![0; 8 * 1024];
        let shown = shown.map(copy_to);
        while let Ok(count @ 1..) = pipe.read(&mut chunk).await {
            let new = chunk.get(..count).unwrap_or_default();
            let mut kept = self.0.lock_unpoisoned();
            kept.extend_from_slice(new);
            // What the writer does not take in time is left out there; nobody may wait for it.
            let _ = shown.as_ref().map(|shown| shown.try_send(new.to_vec()));
            // Cutting at twice the size keeps the copying linear.
            if kept.len() > 2 * STDERR_TAIL {
                let surplus = kept.len() - STDERR_TAIL;
                kept.drain(..surplus);
            }
        }
    }

    fn text(&self) -> String {
        let kept = self.0.lock_unpoisoned();
        let start = kept.len().saturating_sub(STDERR_TAIL);
        let mut text = String::from_utf8_lossy(kept.get(start..).unwrap_or_default()).into_owned();
        // What is no text grows threefold.
        let surplus = text.len().saturating_sub(STDERR_TAIL);
        let cut = (surplus..=text.len()).find(|&index| text.is_char_boundary(index));
        text.drain(..cut.unwrap_or_default());
        text
    }
}

/// A thread that writes what it is given, and ends with its giver.
fn copy_to(mut writer: Box<dyn Write + Send>) -> SyncSender<Vec<u8>> {
    let (sender, receiver) = sync_channel::<Vec<u8>>(SHOWN_CHUNKS);
    std::thread::spawn(move || {
        for chunk in receiver {
            if writer.write_all(&chunk).is_err() {
                return;
            }
        }
    });
    sender
}
