//! Supervises the process of an agent: its stderr and its exit.

use std::convert::Infallible;
use std::io::Write;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use duologue_rpc::{Closed, Lock, Peer, Transport};
use duologue_schema::OutputTail;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Child;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::child::{AgentProcess, Pipes, ProcessGroup, graceful_shutdown, reap};
use crate::command::Command;
use crate::error::{AgentExited, Result};
use crate::last_output::{LAST_OUTPUT, LAST_ROUNDS};
use crate::limits::STDERR_TAIL;

/// The most chunks of stderr that wait for their writer.
const SHOWN_CHUNKS: usize = 64;
/// The time in which an agent that has ended its output exits. A later exit does not explain the end of the connection.
const EXIT_LIMIT: Duration = Duration::from_secs(2);
/// The time after the exit in which its stderr ends, unless another process keeps it open.
const STDERR_LIMIT: Duration = Duration::from_secs(2);

/// Owns the process until it has exited.
pub(crate) struct Supervisor {
    process: ProcessHandle,
    child: Child,
    group: ProcessGroup,
}

/// A handle of the process. Cheap to clone.
#[derive(Clone)]
pub(crate) struct ProcessHandle {
    shared: Arc<Shared>,
}

struct Shared {
    stderr: Mutex<OutputTail>,
    stderr_done: watch::Sender<bool>,
    exit: watch::Sender<Option<ProcessExit>>,
    close: Notify,
    terminate: Notify,
    kill: Notify,
}

/// The exit of the process.
#[derive(Clone, Copy)]
struct ProcessExit {
    /// `None` if it is unknown.
    status: Option<ExitStatus>,
    at: Instant,
}

impl ProcessExit {
    fn now(status: Option<ExitStatus>) -> Self {
        ProcessExit { status, at: Instant::now() }
    }
}

impl ProcessHandle {
    pub(crate) fn stderr(&self) -> String {
        self.shared.stderr.lock_unpoisoned().text().0
    }

    /// Begins the shutdown: end of input, SIGTERM, SIGKILL.
    pub(crate) fn close(&self) {
        self.shared.close.notify_one();
    }

    /// Sends SIGTERM now.
    pub(crate) fn terminate(&self) {
        self.shared.terminate.notify_one();
    }

    /// Kills the process at once.
    pub(crate) fn kill(&self) {
        self.shared.kill.notify_one();
    }

    pub(crate) async fn exited(&self) -> Option<ExitStatus> {
        self.exit().await.status
    }

    async fn exit(&self) -> ProcessExit {
        let mut exit = self.shared.exit.subscribe();
        let exit = exit.wait_for(Option::is_some).await;
        exit.ok().and_then(|exit| *exit).unwrap_or_else(|| ProcessExit::now(None))
    }

    /// Replaces the reason of the end by the exit of the process, if it exits shortly after the end of its output.
    pub(crate) async fn explain(&self, reason: Closed, noise: Vec<String>) -> Closed {
        if !matches!(reason, Closed::EndOfInput | Closed::Io(_)) {
            return reason;
        }
        match tokio::time::timeout(EXIT_LIMIT, self.exit()).await {
            Ok(exit) => self.cause(exit, noise).await,
            Err(_) => reason,
        }
    }

    async fn cause(&self, exit: ProcessExit, noise: Vec<String>) -> Closed {
        let mut done = self.shared.stderr_done.subscribe();
        let _ = tokio::time::timeout_at(exit.at + STDERR_LIMIT, done.wait_for(|done| *done)).await;
        Closed::Cause(Arc::new(AgentExited { status: exit.status, stderr: self.stderr(), noise }))
    }
}

/// Starts the program and drains its stderr.
pub(crate) fn spawn(mut command: Command) -> Result<(Transport, ProcessHandle, Supervisor)> {
    let shown = command.take_stderr();
    let (AgentProcess { child, group }, Pipes { stdin, stdout, stderr }) = AgentProcess::start(command)?;
    let shared = Arc::new(Shared {
        stderr: Mutex::new(OutputTail::new(STDERR_TAIL)),
        stderr_done: watch::Sender::new(false),
        exit: watch::Sender::new(None),
        close: Notify::new(),
        terminate: Notify::new(),
        kill: Notify::new(),
    });
    tokio::spawn({
        let shared = shared.clone();
        async move {
            drain(&shared.stderr, stderr, shown).await;
            shared.stderr_done.send_replace(true);
        }
    });
    let process = ProcessHandle { shared };
    let transport = Transport::new(stdout, stdin);
    // On other systems a thread writes to the pipe.
    #[cfg(unix)]
    let transport = transport.writes_at_once();
    Ok((transport, process.clone(), Supervisor { process, child, group }))
}

impl Supervisor {
    /// Supervises the process until its exit, in a task of its own.
    pub(crate) fn watch(self, peer: Peer) {
        let Supervisor { process, mut child, mut group } = self;
        tokio::spawn(async move {
            let shared = &process.shared;
            let status = tokio::select! {
                status = child.wait() => status.ok(),
                never = terminations(shared, &group) => match never {},
                () = shared.kill.notified() => {
                    group.kill();
                    reap(&mut child).await
                }
                // A process without a connection is ended, whichever side closed it.
                () = closing(shared, &peer) => {
                    peer.finish();
                    tokio::select! {
                        status = graceful_shutdown(&mut child, &group) => status,
                        never = terminations(shared, &group) => match never {},
                        () = shared.kill.notified() => {
                            group.kill();
                            reap(&mut child).await
                        }
                    }
                }
            };
            // End the processes that the program left behind.
            group.kill();
            group.forget();
            let exit = ProcessExit::now(status);
            shared.exit.send_replace(Some(exit));
            // A helper process that inherited the pipe can keep it open or continue to write. So the
            // rest of the pipe is read, and the connection ends after a silence or after some rounds.
            let (mut read, mut rounds) = (None, 0);
            while tokio::time::timeout(LAST_OUTPUT, peer.closed()).await.is_err() {
                if peer.is_paused() {
                    continue;
                }
                let so_far = Some(peer.stats().bytes_read);
                rounds += 1;
                if rounds == LAST_ROUNDS || std::mem::replace(&mut read, so_far) == so_far {
                    peer.close_because(process.cause(exit, peer.recent_noise()).await);
                    break;
                }
            }
        });
    }
}

/// Sends SIGTERM whenever that is requested.
async fn terminations(shared: &Shared, group: &ProcessGroup) -> Infallible {
    loop {
        shared.terminate.notified().await;
        group.terminate();
    }
}

async fn closing(shared: &Shared, peer: &Peer) {
    tokio::select! {
        () = shared.close.notified() => {}
        _ = peer.closed() => {}
    }
}

/// Reads stderr to its end and keeps its last bytes.
async fn drain(
    tail: &Mutex<OutputTail>,
    mut pipe: impl AsyncRead + Unpin,
    shown: Option<Box<dyn Write + Send>>,
) {
    let mut chunk = vec![0; 8 * 1024];
    let shown = shown.map(StderrCopy::new);
    while let Ok(count @ 1..) = pipe.read(&mut chunk).await {
        let new = chunk.get(..count).unwrap_or_default();
        tail.lock_unpoisoned().push(new);
        if let Some(shown) = &shown {
            shown.send(new);
        }
    }
    tail.lock_unpoisoned().finish();
}

/// The thread that copies stderr to a writer. It ends when this is dropped and everything is written.
struct StderrCopy {
    /// Chunks, each with the number of bytes that were skipped before it.
    chunks: SyncSender<(u64, Vec<u8>)>,
    /// The bytes that were skipped since the last chunk.
    skipped: Arc<AtomicU64>,
}

impl StderrCopy {
    fn new(mut writer: Box<dyn Write + Send>) -> Self {
        let (chunks, receiver) = sync_channel::<(u64, Vec<u8>)>(SHOWN_CHUNKS);
        let skipped = Arc::new(AtomicU64::new(0));
        let at_the_end = skipped.clone();
        std::thread::spawn(move || {
            let mut write = |skipped: u64, chunk: &[u8]| {
                if skipped > 0 {
                    writeln!(writer, "\n[{skipped} bytes of stderr were skipped]")?;
                }
                writer.write_all(chunk)
            };
            for (skipped, chunk) in receiver {
                if write(skipped, &chunk).is_err() {
                    return;
                }
            }
            let _ = write(at_the_end.load(Relaxed), &[]);
        });
        StderrCopy { chunks, skipped }
    }

    /// Passes a chunk to the thread. One that it does not accept in time is skipped and counted, so that nothing waits
    /// for a slow writer.
    fn send(&self, chunk: &[u8]) {
        let before = self.skipped.swap(0, Relaxed);
        if self.chunks.try_send((before, chunk.to_vec())).is_err() {
            self.skipped.fetch_add(before + chunk.len() as u64, Relaxed);
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    fn process() -> ProcessHandle {
        let shared = Shared {
            stderr: Mutex::new(OutputTail::new(STDERR_TAIL)),
            stderr_done: watch::Sender::new(false),
            exit: watch::Sender::new(None),
            close: Notify::new(),
            terminate: Notify::new(),
            kill: Notify::new(),
        };
        ProcessHandle { shared: Arc::new(shared) }
    }

    /// The end of the output is explained by an exit that follows, together with the last lines of stderr.
    #[tokio::test(start_paused = true)]
    async fn an_exit_after_the_end_of_the_output_explains_it() {
        for (exit_after, stderr_after, expected) in [
            (0, 0, Some("last words")),
            (1999, 0, Some("last words")),
            (1999, 1999, Some("last words")),
            (1999, 2001, Some("")),
            (2001, 0, None),
        ] {
            let process = process();
            let shared = process.shared.clone();
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(exit_after)).await;
                shared.exit.send_replace(Some(ProcessExit::now(Some(ExitStatus::from_raw(0)))));
                tokio::time::sleep(Duration::from_millis(stderr_after)).await;
                shared.stderr.lock_unpoisoned().push(b"last words");
                shared.stderr_done.send_replace(true);
            });
            let reason = process.explain(Closed::EndOfInput, Vec::new()).await;
            let found = match &reason {
                Closed::Cause(cause) => {
                    cause.downcast_ref::<AgentExited>().map(|exited| exited.stderr.as_str())
                }
                _ => None,
            };
            assert_eq!(
                found, expected,
                "an exit after {exit_after} ms and stderr {stderr_after} ms later: {reason}"
            );
        }
        assert!(matches!(process().explain(Closed::Local, Vec::new()).await, Closed::Local));
    }
}
