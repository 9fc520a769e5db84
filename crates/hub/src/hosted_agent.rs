//! The process of an agent, as lines in both directions.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use duologue_client::{AgentProcess, Command, Pipes};
use duologue_rpc::raw_message::call_line;
use duologue_rpc::{Limits, LineBuffer, ResponseOutcome, RpcMessage};
use duologue_schema::{Error as RpcError, InitializeRequest, InitializeResponse, Request as _};
use serde::Serialize;
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use crate::error::Error;
use crate::hub::{ProcessEvent, ProcessObserver};

/// Limit on the lines of the agent that wait.
const WAITING_LINES: usize = 64;
/// Limit on the bytes that wait for the agent. A process that reads no more is ended above it.
const WAITING_BYTES: usize = 32 << 20;
/// Limit on the lines that an agent sends before its session is open.
const EARLY_LINES: usize = 256;
/// Limit on their bytes.
const EARLY_BYTES: usize = 16 << 20;

/// A running agent. Dropping it ends the process.
#[derive(Debug)]
pub(crate) struct HostedAgent {
    to_agent: mpsc::UnboundedSender<Vec<u8>>,
    /// The bytes that wait for the agent.
    waiting: Arc<AtomicUsize>,
    from_agent: mpsc::Receiver<Vec<u8>>,
    early: VecDeque<Vec<u8>>,
    early_bytes: usize,
    /// The time for the response to a request of the hub.
    limit: Duration,
    /// Ends with the process.
    process: JoinHandle<()>,
}

impl HostedAgent {
    /// Starts the program. It ends when `closing` becomes true. The receiver is dropped when the process has ended.
    pub(crate) fn start(
        command: Command,
        limit: Duration,
        observer: Option<ProcessObserver>,
        closing: watch::Receiver<bool>,
    ) -> Result<Self, Error> {
        let (process, pipes) = AgentProcess::start(command).map_err(Error::Start)?;
        let reported = ReportedProcess::new(&process, observer);
        let (to_agent, lines_in) = mpsc::unbounded_channel();
        let (lines_out, from_agent) = mpsc::channel(WAITING_LINES);
        let waiting = Arc::new(AtomicUsize::new(0));
        let running = run(process, pipes, lines_in, waiting.clone(), lines_out, closing);
        let process = tokio::spawn(async move {
            running.await;
            drop(reported);
        });
        let early = VecDeque::new();
        Ok(HostedAgent { to_agent, waiting, from_agent, early, early_bytes: 0, limit, process })
    }

    /// Sends a line without its line end. Returns false if the agent has ended, or does not read.
    pub(crate) fn send(&self, line: Vec<u8>) -> bool {
        let waiting = self.waiting.fetch_add(line.len(), Ordering::Relaxed);
        waiting < WAITING_BYTES && self.to_agent.send(line).is_ok()
    }

    /// Ends the process, and waits until it has ended.
    pub(crate) async fn end(self) {
        let HostedAgent { process, to_agent, from_agent, .. } = self;
        drop((to_agent, from_agent));
        // It has a limit of its own, after which it kills the process.
        let _ = process.await;
    }

    /// Returns true until the process closes its output.
    pub(crate) fn is_running(&self) -> bool {
        !self.from_agent.is_closed()
    }

    /// Returns the next line without its line end, or `None` if the agent has ended.
    ///
    /// # Cancel safety
    ///
    /// No line is lost if the future is dropped.
    pub(crate) async fn next(&mut self) -> Option<Vec<u8>> {
        match self.early.pop_front() {
            Some(line) => {
                self.early_bytes -= line.len();
                Some(line)
            }
            None => self.from_agent.recv().await,
        }
    }

    /// Sends a request and waits for its response, not longer than `HubSettings::agent_timeout`.
    pub(crate) async fn request<P: Serialize + ?Sized>(
        &mut self,
        method: &'static str,
        params: &P,
    ) -> Result<Box<RawValue>, Error> {
        let limit = self.limit;
        let answered = tokio::time::timeout(limit, self.request_of_user(method, params)).await;
        answered.unwrap_or(Err(Error::AgentTimeout { method, limit }))
    }

    /// Sends a request for which a user may take any time, and waits for its response. Other lines are kept for [`next`](Self::next).
    pub(crate) async fn request_of_user<P: Serialize + ?Sized>(
        &mut self,
        method: &'static str,
        params: &P,
    ) -> Result<Box<RawValue>, Error> {
        // The requests of sessions have numbers.
        let id = to_raw_value(&format!("hub:{method}")).map_err(Error::Encode)?;
        let mut line = call_line(Some(&id), method, params).map_err(Error::Encode)?;
        line.pop();
        if !self.send(line) {
            return Err(Error::AgentEnded);
        }
        while let Some(line) = self.from_agent.recv().await {
            match RpcMessage::read(&line, &Limits::default()) {
                Some(Ok(RpcMessage::Response { id: of, outcome })) if of.get() == id.get() => {
                    return match outcome {
                        ResponseOutcome::Result(result) => Ok(result.to_owned()),
                        ResponseOutcome::Error(error) | ResponseOutcome::Missing(error) => {
                            Err(Error::Agent { method, error })
                        }
                        _ => Err(Error::Agent {
                            method,
                            error: RpcError::internal("the response is unreadable"),
                        }),
                    };
                }
                _ if self.early.len() < EARLY_LINES && self.early_bytes + line.len() <= EARLY_BYTES => {
                    self.early_bytes += line.len();
                    self.early.push_back(line);
                }
                _ => tracing::warn!("dropped a line that the agent sent before its session is open"),
            }
        }
        Err(Error::AgentEnded)
    }

    /// Drops what the agent has sent, such as the replay of a session that was restored.
    pub(crate) fn drop_early(&mut self) {
        self.early.clear();
        self.early_bytes = 0;
    }

    /// Introduces the hub to the agent.
    pub(crate) async fn initialize(&mut self, client_files: bool) -> Result<InitializeResponse, Error> {
        let params = json!({
            "protocolVersion": 1,
            "clientCapabilities": {
                "fs": {"readTextFile": client_files, "writeTextFile": client_files},
                "terminal": client_files,
                "elicitation": {"form": {}, "url": {}},
            },
            "clientInfo": {"name": "duologue-hub", "title": "Duologue", "version": env!("CARGO_PKG_VERSION")},
        });
        let result = self.request(InitializeRequest::METHOD, &params).await?;
        serde_json::from_str(result.get()).map_err(Error::Decode)
    }
}

/// Reports the end of a process when it is dropped.
struct ReportedProcess(Option<(ProcessObserver, u32)>);

impl ReportedProcess {
    fn new(process: &AgentProcess, observer: Option<ProcessObserver>) -> Self {
        let reported = observer.zip(process.id());
        if let Some((observer, id)) = &reported {
            observer.report(ProcessEvent::Started(*id));
        }
        ReportedProcess(reported)
    }
}

impl Drop for ReportedProcess {
    fn drop(&mut self) {
        if let Some((observer, id)) = &self.0 {
            observer.report(ProcessEvent::Ended(*id));
        }
    }
}

/// Runs the pipes of a process until the link is dropped or the process has ended.
async fn run(
    process: AgentProcess,
    pipes: Pipes,
    mut lines_in: mpsc::UnboundedReceiver<Vec<u8>>,
    waiting: Arc<AtomicUsize>,
    lines_out: mpsc::Sender<Vec<u8>>,
    mut closing: watch::Receiver<bool>,
) {
    let Pipes { mut stdin, stdout, stderr, .. } = pipes;
    let log = tokio::spawn(log_lines(stderr));
    let write = async {
        while let Some(mut line) = lines_in.recv().await {
            waiting.fetch_sub(line.len(), Ordering::Relaxed);
            line.push(b'\n');
            if stdin.write_all(&line).await.is_err() {
                break;
            }
        }
    };
    tokio::select! {
        // The link was dropped, or the agent reads no more and may still write.
        () = write => {}
        () = read_lines(stdout, |line| lines_out.send(line)) => {}
        _ = closing.wait_for(|closing| *closing) => {}
    }
    drop(stdin);
    drop(lines_out);
    process.end().await;
    log.abort();
}

async fn read_lines<F, E>(mut input: impl AsyncRead + Unpin, mut each: impl FnMut(Vec<u8>) -> F)
where
    F: Future<Output = Result<(), E>>,
{
    let mut buffer = LineBuffer::new(Limits::default().frame_bytes);
    loop {
        loop {
            match buffer.next_line() {
                Ok(Some(line)) => {
                    if each(line.to_vec()).await.is_err() {
                        return;
                    }
                }
                Ok(None) => break,
                Err(_) => {
                    let limit = buffer.limit();
                    return tracing::error!(
                        "a line of the agent exceeds {limit} bytes; its process is ended"
                    );
                }
            }
        }
        match input.read(buffer.space()).await {
            Ok(0) | Err(_) => return,
            Ok(count) => buffer.filled(count),
        }
    }
}

/// Logs the stderr of an agent.
async fn log_lines(stderr: impl AsyncRead + Unpin) {
    read_lines(stderr, |line| {
        tracing::info!(target: "duologue_hub::agent", "{}", String::from_utf8_lossy(&line));
        std::future::ready(Ok::<(), ()>(()))
    })
    .await;
}
