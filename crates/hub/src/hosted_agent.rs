//! The process of an agent, as lines in both directions.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use duologue_client::{AgentExited, AgentProcess, Command, Pipes};
use duologue_rpc::raw_message::{call_frame, response_frame};
use duologue_rpc::{Limits, LineBuffer, Lock as _, ResponseOutcome, RpcMessage};
use duologue_schema::{
    CancelRequestNotification, Error as RpcError, InitializeRequest, InitializeResponse, Notification as _,
    OutputTail, ProtocolVersion, Request as _, RequestId, SessionId,
};
use serde::Serialize;
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite as _, BufReader, ReadBuf};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep};
use tracing::field::{DisplayValue, display};

use crate::abilities::AdvertisedAbilities;
use crate::announced_id::RenamedAgent;
use crate::asking_client::{AskingClient, declined};
use crate::error::Error;
use crate::hub::{ProcessEvent, ProcessObserver};
use crate::output::LINE_RESERVE;

/// Limit on the bytes that wait for the agent. A process that reads no more is ended above it.
const WAITING_BYTES: usize = 32 << 20;
/// Limit on the lines that an agent sends before its session is open.
const EARLY_LINES: usize = 256;
/// Limit on their bytes.
const EARLY_BYTES: usize = 16 << 20;
/// The time in which an agent that reads no more may write.
const LAST_OUTPUT: Duration = Duration::from_secs(5);
/// The time for the rest of the output of an agent that has exited, if a descendant keeps it open.
const OUTPUT_OF_ENDED: Duration = Duration::from_millis(500);
/// The bytes that are read behind the end of a process. Its pipe holds no more, so the rest is written by its descendants.
const REST_OF_ENDED: usize = 1 << 20;
/// The time in which an agent whose link was dropped may read what was sent before.
const LAST_INPUT: Duration = Duration::from_secs(2);
/// The time in which an agent whose input is closed exits, and again after SIGTERM. Then it is killed.
const OWN_EXIT: Duration = Duration::from_secs(2);
/// The time for the rest of the stderr of an agent that has ended. A process that left its group may keep it open.
const LAST_STDERR: Duration = Duration::from_secs(2);
/// The bytes that are kept of the end of an agent's stderr, for the error that the end of the agent causes.
const STDERR_TAIL: usize = 4 << 10;
/// The bytes of stderr that are logged at once.
const STDERR_LINE: u64 = 64 << 10;

/// The reason for the end of an agent whose process goes on.
pub(crate) const CLOSED_OUTPUT: &str = "the agent closed its output, and its process was ended";
/// The reason for the end of an agent that does not take its input.
pub(crate) const READS_NO_MORE: &str = "the agent reads no more, and its process was ended";

/// The end of an agent, as far as it is known.
#[derive(Clone, Debug)]
pub(crate) struct AgentEnd {
    /// The cause, unless the process has exited by itself.
    pub(crate) cause: Option<String>,
    /// The exit status of a process that was not ended by this program, and the end of its stderr.
    pub(crate) exited: AgentExited,
}

impl AgentEnd {
    /// Creates the end of an agent without a process.
    pub(crate) fn of(cause: String) -> Self {
        AgentEnd { cause: Some(cause), exited: AgentExited::new(None, String::new()) }
    }

    /// Returns the reason for the user, with the last lines of stderr.
    pub(crate) fn reason(&self) -> String {
        match &self.cause {
            Some(cause) => format!("{cause}{}", self.exited.last_output()),
            None => self.exited.to_string(),
        }
    }
}

/// A running agent: a process, or a session's lane of a process that all share. Dropping it ends the process or the lane.
///
/// The owner of a process reads and writes the pipes itself, because a task between them would cost two changes of tasks for
/// each round trip. Only what the pipe does not take at once is written by a task.
#[derive(Debug)]
pub(crate) struct HostedAgent {
    /// Absent for a lane.
    stdin: Option<SharedStdin>,
    to_agent: mpsc::UnboundedSender<Vec<u8>>,
    /// The bytes that wait for the agent.
    waiting: Arc<AtomicUsize>,
    from_agent: AgentInput,
    /// The session of the process, once it is known. One that several sessions use has none.
    session: Arc<OnceLock<SessionId>>,
    early: VecDeque<Vec<u8>>,
    early_bytes: usize,
    /// The ids in envelopes, if the process has another one than clients have learned.
    pub(crate) renamed: Option<RenamedAgent>,
    /// The schemes that were advertised to the agent.
    pub(crate) schemes: AdvertisedAbilities,
    /// The number of the last login of its hub that the process knows.
    pub(crate) login: u64,
    /// The time for the response to a request of the hub.
    limit: Duration,
    /// Dropped to end a process that does not read. Absent for a lane.
    link: Option<oneshot::Sender<Infallible>>,
    /// Ends with the process.
    process: JoinHandle<()>,
    /// Receives the end of the process.
    end: watch::Receiver<Option<AgentEnd>>,
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
        let Pipes { stdin, stdout, stderr, .. } = pipes;
        let (to_agent, lines_in) = mpsc::unbounded_channel();
        let stdin = SharedStdin(Arc::new(Mutex::new(Some(stdin))));
        let from_agent = AgentInput::Pipe(AgentLines::new(stdout));
        let waiting = Arc::new(AtomicUsize::new(0));
        let (link, dropped) = oneshot::channel();
        let input = ProcessInput { lines: lines_in, waiting: waiting.clone(), link: dropped };
        let session = Arc::<OnceLock<_>>::default();
        let running = run(process, stdin.clone(), (stderr, session.clone()), input, closing);
        let (ended, end) = watch::channel(None);
        let process = tokio::spawn(async move {
            let exited = running.await;
            drop(reported);
            ended.send_replace(Some(AgentEnd { cause: None, exited }));
        });
        Ok(HostedAgent {
            stdin: Some(stdin),
            to_agent,
            waiting,
            from_agent,
            session,
            early: VecDeque::new(),
            early_bytes: 0,
            renamed: None,
            schemes: AdvertisedAbilities::default(),
            login: 0,
            limit,
            link: Some(link),
            process,
            end,
        })
    }

    /// Creates the end of a lane of a shared process.
    pub(crate) fn of_lane(lane: AgentLane, schemes: AdvertisedAbilities, limit: Duration) -> Self {
        let AgentLane { to_agent, waiting, from_agent, pump, end } = lane;
        HostedAgent {
            stdin: None,
            to_agent,
            waiting,
            from_agent: AgentInput::Lane(from_agent),
            session: Arc::default(),
            early: VecDeque::new(),
            early_bytes: 0,
            renamed: None,
            schemes,
            login: 0,
            limit,
            link: None,
            process: pump,
            end,
        }
    }

    /// Names the session of the process in the lines of the log about it.
    pub(crate) fn set_session(&self, session: &SessionId) {
        // It has one session as long as it runs.
        _ = self.session.set(session.clone());
    }

    /// Returns the session of the process, for the log.
    pub(crate) fn session(&self) -> Option<DisplayValue<&SessionId>> {
        self.session.get().map(display)
    }

    /// Sends a line without its line end. Returns false if the agent has ended, or does not read.
    pub(crate) fn send(&mut self, line: Vec<u8>) -> bool {
        let mut line = match &self.renamed {
            Some(renamed) => renamed.address(line),
            None => line,
        };
        if let Some(stdin) = &self.stdin {
            line.push(b'\n');
            // Nothing waits, so nobody else writes until the rest is sent to the task.
            if self.waiting.load(Ordering::Acquire) == 0 {
                let mut at_once = Context::from_waker(Waker::noop());
                if let Poll::Ready(Ok(count)) = stdin.poll_write(&mut at_once, &line) {
                    line.drain(..count);
                }
                if line.is_empty() {
                    return true;
                }
            }
        }
        // The task has the error of the pipe too.
        let waiting = self.waiting.fetch_add(line.len(), Ordering::Release);
        waiting < WAITING_BYTES && self.to_agent.send(line).is_ok()
    }

    /// Ends the process, and waits until it has ended.
    pub(crate) async fn end(mut self) {
        self.close();
        // It has a limit of its own, after which it kills the process.
        let _ = self.process.await;
    }

    /// Closes the input and the output.
    fn close(&mut self) {
        self.to_agent = mpsc::unbounded_channel().0;
        self.from_agent = AgentInput::Lane(mpsc::channel(1).1);
        self.link = None;
    }

    /// Ends an agent whose output has ended or that reads no more, and waits for the reason. `otherwise` is the reason if
    /// there is no better one.
    pub(crate) async fn ended(&mut self, otherwise: &str) -> String {
        self.wait_for_end(otherwise).await.reason()
    }

    /// Returns the end of an agent, as [`ended`](Self::ended).
    pub(crate) async fn wait_for_end(&mut self, otherwise: &str) -> AgentEnd {
        let failure = self.from_agent.failure();
        // A lane can fail alone, and then its process goes on.
        let is_ending = self.stdin.is_some() || !self.from_agent.is_open();
        self.close();
        let end = match is_ending {
            true => self.end.wait_for(Option::is_some).await.ok().and_then(|end| end.clone()),
            false => None,
        };
        let mut end = end.unwrap_or_else(|| AgentEnd::of(otherwise.to_owned()));
        if failure.is_some() {
            end.cause = failure;
        } else if end.exited.status.is_none() {
            end.cause.get_or_insert_with(|| otherwise.to_owned());
        }
        end
    }

    /// Returns true if the process has exited or is being ended. Its output can go on: a descendant may have it open.
    pub(crate) fn has_exited(&self) -> bool {
        self.stdin.as_ref().is_some_and(|stdin| stdin.0.lock_unpoisoned().is_none())
    }

    /// Returns true until the process exits or closes its output.
    pub(crate) fn is_running(&mut self) -> bool {
        !self.has_exited() && self.from_agent.is_open()
    }

    /// Returns true if [`next`](Self::next) returns a line at once.
    pub(crate) fn has_lines(&self) -> bool {
        !self.early.is_empty() || self.from_agent.has_lines()
    }

    /// Returns the next line without its line end, or `None` if the agent has ended.
    ///
    /// # Cancel safety
    ///
    /// No line is lost if the future is dropped.
    pub(crate) async fn next(&mut self) -> Option<Vec<u8>> {
        match self.early_line() {
            Some(line) => Some(line),
            None => self.next_input().await,
        }
    }

    /// Returns the next line if it was read already, also one that was kept in a lane.
    pub(crate) fn ready_line(&mut self) -> Option<Vec<u8>> {
        self.early_line().or_else(|| self.from_agent.ready_line())
    }

    fn early_line(&mut self) -> Option<Vec<u8>> {
        self.early.pop_front().inspect(|line| self.early_bytes -= line.len())
    }

    /// Returns the next line of the input, or `None` at its end or when the process has ended. Its descendants can keep
    /// its output open, and write without an end.
    async fn next_input(&mut self) -> Option<Vec<u8>> {
        if self.stdin.is_none() {
            return self.from_agent.next().await;
        }
        if self.end.borrow().is_some() {
            self.from_agent.read_at_most(REST_OF_ENDED);
        }
        tokio::select! {
            biased;
            // Lines from before its end are read first, and are not more than the limit above.
            line = tokio::task::unconstrained(self.from_agent.next()) => line,
            _ = self.end.wait_for(Option::is_some) => {
                self.from_agent = AgentInput::Lane(mpsc::channel(1).1);
                None
            }
        }
    }

    /// Sends a request and waits for its response, not longer than `HubSettings::agent_timeout`. Questions of the agent go to
    /// the client, if there is one, and its user may take any time for them.
    pub(crate) async fn request<P: Serialize + ?Sized>(
        &mut self,
        method: &'static str,
        params: &P,
        client: Option<&AskingClient>,
    ) -> Result<Box<RawValue>, Error> {
        let (limit, never) = (self.limit, Notify::new());
        match self.request_within(method, params, client, &never, Some(limit)).await? {
            Some(result) => Ok(result),
            None => Err(Error::AgentTimeout { method, limit }),
        }
    }

    /// Sends a request for which a user may take any time, and waits for its response. If `cancelled` is notified, the agent
    /// learns that the request is cancelled. It responds all the same.
    pub(crate) async fn request_of_user<P: Serialize + ?Sized>(
        &mut self,
        method: &str,
        params: &P,
        client: Option<&AskingClient>,
        cancelled: &Notify,
    ) -> Result<Box<RawValue>, Error> {
        let result = self.request_within(method, params, client, cancelled, None).await?;
        result.ok_or(Error::Closed)
    }

    /// Sends a request, and returns its result, or `None` after the limit. Other lines than questions are kept for
    /// [`next`](Self::next).
    async fn request_within<P: Serialize + ?Sized>(
        &mut self,
        method: &str,
        params: &P,
        client: Option<&AskingClient>,
        cancelled: &Notify,
        limit: Option<Duration>,
    ) -> Result<Option<Box<RawValue>>, Error> {
        // The requests of sessions have numbers.
        let id = to_raw_value(&format!("hub:{method}")).map_err(Error::Encode)?;
        let line = call_frame(Some(&id), method, params).map_err(Error::Encode)?;
        if !self.send(line) {
            return Err(self.end_before_answer(method).await);
        }
        // They are withdrawn at the end.
        let mut asked = JoinSet::new();
        let mut asked_bytes = 0;
        let mut timeout = pin!(sleep(limit.unwrap_or_default()));
        loop {
            let line = tokio::select! {
                line = self.next_input() => line,
                () = cancelled.notified() => match self.cancel(&id)? {
                    true => continue,
                    false => None,
                },
                Some(Ok((question, bytes, outcome))) = asked.join_next(), if !asked.is_empty() => {
                    asked_bytes -= bytes;
                    let outcome: Result<Box<RawValue>, RpcError> = outcome;
                    let line = response_frame(RequestId::token(&question), outcome.as_deref());
                    self.send(line.map_err(Error::Encode)?);
                    timeout.as_mut().reset(Instant::now() + limit.unwrap_or_default());
                    continue;
                }
                () = &mut timeout, if limit.is_some() && asked.is_empty() => return Ok(None),
            };
            let Some(line) = line else { return Err(self.end_before_answer(method).await) };
            match RpcMessage::read_strict(&line, &Limits::default()) {
                Some(Ok(RpcMessage::Response { id: of, outcome })) if of.get() == id.get() => {
                    return match outcome {
                        ResponseOutcome::Result(result) => Ok(Some(result.to_owned())),
                        ResponseOutcome::Error(error) | ResponseOutcome::Missing(error) => {
                            Err(Error::Agent { method: method.to_owned(), error })
                        }
                        _ => Err(Error::Agent {
                            method: method.to_owned(),
                            error: RpcError::internal("the response is unreadable"),
                        }),
                    };
                }
                // The agent may not answer before it knows this.
                Some(Ok(RpcMessage::Request { id, method, params }))
                    if asked.len() < EARLY_LINES && asked_bytes + line.len() <= EARLY_BYTES =>
                {
                    asked_bytes += line.len();
                    let (method, params) = (method.into_owned(), params.unwrap_or(RawValue::NULL).to_owned());
                    let client = client.cloned();
                    asked.spawn(async move {
                        let outcome = match &client {
                            Some(client) => client.ask(&method, &params).await,
                            None => declined(&method, &params),
                        };
                        (id, line.len(), outcome)
                    });
                }
                _ if self.early.len() < EARLY_LINES && self.early_bytes + line.len() <= EARLY_BYTES => {
                    self.early_bytes += line.len();
                    self.early.push_back(line);
                }
                _ => tracing::warn!(
                    session = self.session(),
                    "dropped a line that the agent sent before its session is open"
                ),
            }
        }
    }

    /// Returns the error for a request that an agent has not answered before its end.
    async fn end_before_answer(&mut self, method: &str) -> Error {
        let reason = self.ended(CLOSED_OUTPUT).await;
        Error::AgentEnded { method: method.to_owned(), reason }
    }

    /// Sends `$/cancel_request` for a request. Returns false if the agent has ended.
    fn cancel(&mut self, id: &RawValue) -> Result<bool, Error> {
        let params = json!({ "requestId": id });
        let line = call_frame(None, CancelRequestNotification::METHOD, &params).map_err(Error::Encode)?;
        Ok(self.send(line))
    }

    /// Drops what the agent has sent, such as the replay of a session that was restored.
    pub(crate) fn drop_early(&mut self) {
        self.early.clear();
        self.early_bytes = 0;
    }

    /// Introduces the hub to the agent.
    pub(crate) async fn initialize(
        &mut self,
        client_files: bool,
        schemes: AdvertisedAbilities,
    ) -> Result<InitializeResponse, Error> {
        self.schemes = schemes;
        let params = json!({
            "protocolVersion": 1,
            "clientCapabilities": schemes.client_capabilities(client_files),
            "clientInfo": {"name": "duologue-hub", "title": "Duologue", "version": env!("CARGO_PKG_VERSION")},
        });
        let result = self.request(InitializeRequest::METHOD, &params, None).await?;
        let introduction: InitializeResponse = serde_json::from_str(result.get()).map_err(Error::Decode)?;
        match introduction.protocol_version {
            ProtocolVersion::V1 => Ok(introduction),
            version => Err(Error::Version { version }),
        }
    }
}

/// The parts of a lane.
pub(crate) struct AgentLane {
    pub(crate) to_agent: mpsc::UnboundedSender<Vec<u8>>,
    /// The bytes that wait for the agent.
    pub(crate) waiting: Arc<AtomicUsize>,
    pub(crate) from_agent: mpsc::Receiver<Vec<u8>>,
    /// Ends when `to_agent` is dropped.
    pub(crate) pump: JoinHandle<()>,
    /// Receives the end of the agent, after the end of `from_agent`.
    pub(crate) end: watch::Receiver<Option<AgentEnd>>,
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

/// The stdin of a process, until it is closed.
#[derive(Clone, Debug)]
struct SharedStdin(Arc<Mutex<Option<ChildStdin>>>);

impl SharedStdin {
    fn poll_write(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut *self.0.lock_unpoisoned() {
            Some(stdin) => Pin::new(stdin).poll_write(cx, bytes),
            None => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
        }
    }

    async fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let count = poll_fn(|cx| self.poll_write(cx, bytes)).await?;
            bytes = bytes.get(count..).unwrap_or_default();
            if count == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
        }
        Ok(())
    }

    fn close(&self) {
        self.0.lock_unpoisoned().take();
    }
}

/// The lines that an agent sends.
#[derive(Debug)]
enum AgentInput {
    Pipe(AgentLines),
    Lane(mpsc::Receiver<Vec<u8>>),
}

impl AgentInput {
    /// Returns the next line, or `None` at the end. No line is lost if the future is dropped.
    async fn next(&mut self) -> Option<Vec<u8>> {
        match self {
            AgentInput::Pipe(lines) => lines.next().await,
            AgentInput::Lane(lines) => lines.recv().await,
        }
    }

    fn ready_line(&mut self) -> Option<Vec<u8>> {
        match self {
            AgentInput::Pipe(lines) => lines.lines.pop_front(),
            AgentInput::Lane(lines) => lines.try_recv().ok(),
        }
    }

    /// Ends the input of a pipe behind a number of bytes. A second call has no effect.
    fn read_at_most(&mut self, bytes: usize) {
        if let AgentInput::Pipe(lines) = self {
            lines.rest.get_or_insert(bytes);
        }
    }

    fn has_lines(&self) -> bool {
        match self {
            AgentInput::Pipe(lines) => !lines.lines.is_empty(),
            AgentInput::Lane(lines) => !lines.is_empty(),
        }
    }

    /// Returns the reason for which the input was ended by its reader.
    fn failure(&mut self) -> Option<String> {
        match self {
            AgentInput::Pipe(lines) => lines.failure.take(),
            AgentInput::Lane(_) => None,
        }
    }

    /// Returns false if the input has ended.
    fn is_open(&mut self) -> bool {
        match self {
            AgentInput::Pipe(lines) => lines.is_open(),
            AgentInput::Lane(lines) => !lines.is_closed(),
        }
    }
}

/// The lines of a pipe. Those of one read are split at once, and nothing is read before they are taken.
#[derive(Debug)]
pub(crate) struct AgentLines<R = ChildStdout> {
    /// Absent after the end.
    input: Option<R>,
    buffer: LineBuffer,
    lines: VecDeque<Vec<u8>>,
    /// The bytes that are still read, if there is a limit.
    rest: Option<usize>,
    /// The reason for the end, if the agent has not ended its output itself.
    pub(crate) failure: Option<String>,
}

impl<R: AsyncRead + Unpin> AgentLines<R> {
    pub(crate) fn new(input: R) -> Self {
        // A line grows with the ids of the hub.
        let buffer = LineBuffer::new(Limits::default().frame_bytes - 2 * LINE_RESERVE);
        AgentLines { input: Some(input), buffer, lines: VecDeque::new(), rest: None, failure: None }
    }

    /// Returns the next line without its line end, or `None` at the end.
    ///
    /// # Cancel safety
    ///
    /// No line is lost if the future is dropped.
    pub(crate) async fn next(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(line) = self.lines.pop_front() {
                return Some(line);
            }
            if !poll_fn(|cx| self.poll_read(cx)).await {
                return None;
            }
        }
    }

    /// Reads once. Returns false at the end.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        if self.rest == Some(0) {
            self.input = None;
        }
        let Some(input) = &mut self.input else { return Poll::Ready(false) };
        let mut space = ReadBuf::new(self.buffer.space());
        let read = ready!(Pin::new(input).poll_read(cx, &mut space));
        let count = space.filled().len();
        self.buffer.filled(count);
        self.rest = self.rest.map(|rest| rest.saturating_sub(count));
        let mut has_ended = read.is_err() || count == 0;
        self.failure = read.err().map(|error| format!("the output of the agent cannot be read: {error}"));
        loop {
            match self.buffer.next_line() {
                Ok(Some(line)) => {
                    // Some programs begin their output with a byte order mark.
                    let line = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line);
                    self.lines.push_back(line.to_vec());
                }
                Ok(None) => break,
                Err(_) => {
                    let limit = self.buffer.limit();
                    let failure = format!(
                        "a line of the agent exceeds the limit of {limit} bytes, and the agent was ended; let it send less at once"
                    );
                    self.failure = Some(failure);
                    has_ended = true;
                    break;
                }
            }
        }
        if has_ended {
            self.input = None;
        }
        Poll::Ready(!has_ended || !self.lines.is_empty())
    }

    /// Returns false if the input has ended. It reads, unless there are lines.
    fn is_open(&mut self) -> bool {
        if self.lines.is_empty() {
            let _ = self.poll_read(&mut Context::from_waker(Waker::noop()));
        }
        self.input.is_some()
    }
}

/// The part of a [`HostedAgent`] that the task of its process uses.
struct ProcessInput {
    lines: mpsc::UnboundedReceiver<Vec<u8>>,
    waiting: Arc<AtomicUsize>,
    link: oneshot::Receiver<Infallible>,
}

/// Writes what the pipe did not take at once, until the link is dropped or the process has to end. Returns its end.
async fn run(
    mut process: AgentProcess,
    stdin: SharedStdin,
    (stderr, session): (ChildStderr, Arc<OnceLock<SessionId>>),
    input: ProcessInput,
    mut closing: watch::Receiver<bool>,
) -> AgentExited {
    let ProcessInput { lines: mut lines_in, waiting, link } = input;
    let tail = Arc::new(Mutex::new(OutputTail::new(STDERR_TAIL)));
    let mut log = tokio::spawn(log_stderr(stderr, session, tail.clone()));
    let no_input = Notify::new();
    let send = async {
        let mut reads = true;
        while let Some(line) = lines_in.recv().await {
            if reads && stdin.write_all(&line).await.is_err() {
                reads = false;
                no_input.notify_one();
            }
            waiting.fetch_sub(line.len(), Ordering::AcqRel);
        }
    };
    // An agent that has ended may have written a response before.
    let last_output = async {
        no_input.notified().await;
        tokio::time::sleep(LAST_OUTPUT).await;
    };
    // A full pipe does not take the rest, however long it waits.
    let unread_rest = async {
        let _ = link.await;
        tokio::time::sleep(LAST_INPUT).await;
    };
    tokio::select! {
        // The link was dropped.
        () = send => {}
        () = unread_rest => {}
        () = last_output => {}
        _ = closing.wait_for(|closing| *closing) => {}
        // Its descendants can keep its pipes open, and are not the agent of what comes later.
        () = async {
            process.wait().await;
            stdin.close();
            tokio::time::sleep(OUTPUT_OF_ENDED).await;
        } => {}
    }
    stdin.close();
    // The status of a process that is ended here says nothing about the agent.
    let exited = tokio::time::timeout(OWN_EXIT, process.wait()).await;
    if exited.is_err() {
        process.terminate();
        if tokio::time::timeout(OWN_EXIT, process.wait()).await.is_err() {
            process.kill();
        }
    }
    process.end().await;
    // An error of the agent refers to its last lines.
    let _ = tokio::time::timeout(LAST_STDERR, &mut log).await;
    log.abort();
    let (stderr, _) = tail.lock_unpoisoned().text();
    AgentExited::new(exited.ok().flatten(), stderr)
}

/// Logs the stderr of an agent, and keeps its end. A long line is logged in parts.
async fn log_stderr(stderr: ChildStderr, session: Arc<OnceLock<SessionId>>, tail: Arc<Mutex<OutputTail>>) {
    let mut stderr = BufReader::new(stderr);
    let mut line = Vec::new();
    while let Ok(1..) = (&mut stderr).take(STDERR_LINE).read_until(b'\n', &mut line).await {
        tail.lock_unpoisoned().push(&line);
        let text = String::from_utf8_lossy(&line);
        let session = session.get().map(display);
        tracing::info!(target: "duologue_hub::agent", session, "{}", text.trim_end_matches(['\r', '\n']));
        line.clear();
    }
    tail.lock_unpoisoned().finish();
}
