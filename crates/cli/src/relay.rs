//! The relay between a client on stdio and the process of an agent, for `record` and `proxy`.

use std::io;
use std::process::ExitStatus;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use duologue_client::AgentProcess;
use duologue_proxy::{Proxy, RelayActivity};
use duologue_rpc::{Lock as _, OutputWatch};
use tokio::task::JoinHandle;

use crate::exit::{self, Exit};
use crate::signals::Signals;

/// The silence after which output is closed that a child of an ended agent holds open.
const CHILD_OUTPUT_TIMEOUT: Duration = Duration::from_millis(500);

/// Limit on the time in which the stderr of an ended agent ends. Only a child of the agent reaches it.
const STDERR_LIMIT: Duration = Duration::from_secs(2);

/// The directions of a relay, each with the future that forwards it.
pub(crate) struct Relay<A, C, E, B> {
    pub(crate) to_agent: A,
    pub(crate) to_client: C,
    pub(crate) stderr: E,
    /// Is ready when the connection cannot go on. The agent is ended then.
    pub(crate) broken: B,
    pub(crate) activity: Arc<RelayActivity>,
    /// The output for the client.
    pub(crate) output: OutputWatch,
    pub(crate) signals: Signals,
}

impl<A, C, E, B> Relay<A, C, E, B>
where
    A: Future<Output = io::Result<()>> + Send + 'static,
    C: Future<Output = io::Result<()>> + Send + 'static,
    E: Future<Output = io::Result<()>> + Send + 'static,
    B: Future<Output = ()>,
{
    /// Passes everything on until the agent has ended and the client has all its output. Returns `None` if the end
    /// could not be observed.
    pub(crate) async fn run(mut self, mut process: AgentProcess) -> Option<ExitStatus> {
        let output = Arc::new(Mutex::new(Some(self.output)));
        let mut to_agent = tokio::spawn(self.to_agent);
        let mut to_client = tokio::spawn({
            let output = output.clone();
            async move {
                let forwarded = self.to_client.await;
                // The client sees the end of the output once it is not watched any more.
                output.lock_unpoisoned().take();
                forwarded
            }
        });
        let stderr = tokio::spawn(self.stderr);
        let activity = &self.activity;
        let client_left = async {
            // An agent that reads no more may still write.
            if !matches!((&mut to_agent).await, Ok(Ok(()))) {
                std::future::pending::<()>().await;
            }
            let is_unread = || output.lock_unpoisoned().as_ref().is_none_or(OutputWatch::is_unread);
            activity.wait_until_idle(Proxy::MAX_SILENCE, is_unread).await;
        };
        let by_itself = tokio::select! {
            _ = process.wait() => true,
            () = client_left => false,
            () = self.broken => false,
            _ = self.signals.next() => {
                process.terminate();
                false
            }
        };
        to_agent.abort();
        // Child processes may hold its output open, and are killed with it.
        let the_end = async {
            let has_ended = by_itself && wait_for_end(&mut to_client, activity).await;
            let status = process.end().await;
            if !has_ended {
                wait_for_end(&mut to_client, activity).await;
            }
            let _ = tokio::time::timeout(STDERR_LIMIT, stderr).await;
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
async fn wait_for_end(to_client: &mut JoinHandle<io::Result<()>>, activity: &RelayActivity) -> bool {
    tokio::select! {
        _ = to_client => true,
        () = activity.wait_for_silence(CHILD_OUTPUT_TIMEOUT) => false,
    }
}

/// Returns the outcome of a command that ends as the agent does.
pub(crate) fn outcome(status: Option<ExitStatus>, is_recorded: bool) -> Exit {
    match status.and_then(|status| exit::agent_code(&status.into())) {
        Some(0) if !is_recorded => Exit::File,
        Some(code) => Exit::AgentCode(code),
        None => Exit::Agent,
    }
}
