//! The relay between an agent and its client. The agent's messages pass through the faults, and the client's
//! messages are examined on their way.

use std::collections::HashMap;
use std::future::pending;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use duologue_agent::Transport;
use duologue_agent::rpc::{CancellationToken, Lock, Stdio};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::sync::Notify;

use super::list::Faults;
use super::messages::MessageFaults;
use super::output::{FaultyOutput, FragmentPause};
use super::process;
use crate::mock::MockAgent;

/// The time between two updates of an endless replay.
const REPLAY_PACE: Duration = Duration::from_millis(1);

/// An error of an agent with faults.
#[doc(hidden)]
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FaultError {
    /// The agent failed.
    #[error(transparent)]
    Agent(#[from] duologue_agent::Error),
    /// A pipe failed, or a fault needs a system call that failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Serves a mock agent with these faults over stdin and stdout, for the command `duologue mock`.
///
/// # Errors
///
/// An error of the agent, of its pipes or of a system call that a fault needs. A client that closes its end is no
/// error.
#[doc(hidden)]
pub async fn serve_stdio(mock: MockAgent, faults: Faults) -> Result<(), FaultError> {
    process::log(&format!("faults {faults}, seed {}", faults.seed));
    process::prepare(&faults)?;
    let Stdio { transport, end, .. } = Stdio::take()?;
    process::exit_after(&faults, end)?;
    let ignores_eof = faults.ignore_eof;
    let (agent, server_end) = Transport::memory();
    let server = mock.server()?;
    let served = tokio::spawn(async move { server.serve(server_end).await });
    let relayed = relay(agent, transport, faults, FragmentPause::Sleep).await;
    if ignores_eof {
        pending::<()>().await;
    }
    match relayed {
        Ok(()) => Ok(served.await.map_err(duologue_agent::Error::other)??),
        // The client is gone.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(error.into()),
    }
}

impl Faults {
    /// Applies the faults to a stream: takes the client's end of an agent's transport and returns the transport for
    /// the client.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use duologue_testkit::{Faults, MockAgent};
    ///
    /// let agent = MockAgent::new().spawn()?;
    /// let faulty = "noise,fragment=7".parse::<Faults>()?.apply(agent)?;
    /// # drop(faulty);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidFault`](super::InvalidFault) if a fault acts on the agent's process, such as `crash`.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with time enabled.
    pub fn apply(self, agent: Transport) -> Result<Transport, super::InvalidFault> {
        self.expect_stream()?;
        let (client, client_end) = Transport::memory();
        tokio::spawn(async move {
            match relay(agent, client_end, self, FragmentPause::Yield).await {
                Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                    process::log(&format!("the agent's messages cannot be passed on: {error}"));
                }
                // The agent has ended, or the client is gone.
                _ => {}
            }
        });
        Ok(client)
    }
}

/// Passes messages in both directions until the agent has closed its output. It does not read with `LineBuffer` of
/// `duologue_rpc`, since it passes on lines of any length: their limit is for the agent and the client to check.
async fn relay(agent: Transport, client: Transport, faults: Faults, pause: FragmentPause) -> io::Result<()> {
    let (from_client, to_client) = client.into_split();
    let (from_agent, to_agent) = agent.into_split();
    let faults = Arc::new(faults);
    let deaf = CancellationToken::new();
    let requests = Arc::new(RequestTracker::default());
    let output = FaultyOutput::new(to_client, faults.clone(), pause, deaf.clone());
    let mut messages = MessageFaults::new(faults, requests.clone(), output);
    messages.begin().await?;
    tokio::spawn(pass_to_agent(from_client, to_agent, requests.clone(), deaf));
    pass_to_client(from_agent, &mut messages, &requests).await
}

/// Passes on the agent's messages until its output ends.
async fn pass_to_client(
    from_agent: impl AsyncRead + Unpin,
    messages: &mut MessageFaults,
    requests: &RequestTracker,
) -> io::Result<()> {
    let mut lines = BufReader::new(from_agent).split(b'\n');
    loop {
        tokio::select! {
            line = lines.next_segment() => match line? {
                Some(line) => messages.pass_line(&line).await?,
                None => return messages.finish().await,
            },
            () = requests.answered.notified() => messages.release().await?,
            () = tokio::time::sleep(REPLAY_PACE), if messages.is_loading() => messages.replay().await?,
        }
    }
}

/// Passes on the client's messages until its output ends or the agent stops reading.
async fn pass_to_agent(
    from_client: impl AsyncRead + Unpin,
    mut to_agent: impl AsyncWrite + Unpin,
    requests: Arc<RequestTracker>,
    deaf: CancellationToken,
) {
    let mut from_client = BufReader::new(from_client);
    let mut line = Vec::new();
    loop {
        line.clear();
        tokio::select! {
            biased;
            () = deaf.cancelled() => pending().await,
            read = from_client.read_until(b'\n', &mut line) => if !matches!(read, Ok(1..)) { break },
        }
        if !requests.track(&line) && to_agent.write_all(&line).await.is_err() {
            break;
        }
    }
    let _ = to_agent.shutdown().await;
}

/// The open requests of the client, and the open permission requests that a fault sent.
#[derive(Default)]
pub(super) struct RequestTracker {
    state: Mutex<TrackerState>,
    answered: Notify,
}

#[derive(Default)]
struct TrackerState {
    /// The client's requests, by the id as it is written.
    requests: HashMap<String, TrackedRequest>,
    /// The number of unanswered permission requests of a turn.
    open: HashMap<usize, usize>,
}

/// A request of the client.
pub(super) struct TrackedRequest {
    pub(super) method: String,
    /// The session, or an empty string.
    pub(super) session: String,
}

/// The prefix of the ids of the faults' own requests.
const OWN_ID: &str = "fault-";

impl RequestTracker {
    fn lock(&self) -> MutexGuard<'_, TrackerState> {
        self.state.lock_unpoisoned()
    }

    /// Returns the id of a permission request.
    pub(super) fn own_id(turn: usize, number: usize) -> String {
        format!("{OWN_ID}{turn}-{number}")
    }

    /// Registers the number of permission requests of a turn.
    pub(super) fn expect(&self, turn: usize, count: usize) {
        self.lock().open.insert(turn, count);
    }

    pub(super) fn is_answered(&self, turn: usize) -> bool {
        self.lock().open.get(&turn).is_none_or(|open| *open == 0)
    }

    /// Removes and returns the client's request of this id.
    pub(super) fn take(&self, id: &Value) -> Option<TrackedRequest> {
        self.lock().requests.remove(&id.to_string())
    }

    /// Examines a line of the client. Returns true if it answers a request of a fault, which the agent must not see.
    fn track(&self, line: &[u8]) -> bool {
        let Ok(line) = serde_json::from_slice::<Value>(line) else { return false };
        let Some(id) = line.get("id") else { return false };
        if let Some(method) = line["method"].as_str() {
            let session = line["params"]["sessionId"].as_str().unwrap_or_default().to_owned();
            let request = TrackedRequest { method: method.to_owned(), session };
            self.lock().requests.insert(id.to_string(), request);
            return false;
        }
        let own = id.as_str().and_then(|id| id.strip_prefix(OWN_ID));
        let Some(turn) = own.and_then(|id| id.split('-').next()?.parse().ok()) else { return false };
        if let Some(open) = self.lock().open.get_mut(&turn) {
            *open = open.saturating_sub(1);
        }
        self.answered.notify_one();
        true
    }
}
