//! The chain as its user builds it.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use duologue_rpc::{Limits, Transport};
use duologue_transcript::Side;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};

use crate::activity::RelayActivity;
use crate::link::StageLink;
use crate::message::StageMessage;
use crate::stage::{Decision, OnAgentMessage, OnClientMessage, ProxyStage};
use crate::transport;

/// The most messages that the stages of a chain may send because of one line, so that two stages cannot answer each other
/// without end.
pub const MESSAGES_PER_LINE: usize = 10_000;

/// The size of a read: the capacity of a pipe.
const CHUNK: usize = 64 * 1024;

/// A chain of stages between a client and an agent.
///
/// ```
/// use duologue_proxy::{Limits, PathMap, PermissionPolicy, PermissionRule, Proxy, RedactStage};
///
/// let proxy = Proxy::new()
///     .stage(RedactStage::new())
///     .stage(PermissionPolicy::new().rule("execute", PermissionRule::Deny))
///     .stage(PathMap::new().map("/home/me/project", "/workspace"))
///     .on_agent_message(|message, _link| {
///         if message.is_invalid() {
///             eprintln!("{}", String::from_utf8_lossy(message.line()));
///             return duologue_proxy::Decision::Drop;
///         }
///         duologue_proxy::Decision::Pass
///     });
/// # let _ = proxy;
/// ```
#[derive(Default)]
#[must_use = "a chain has no effect before `run`, `to_agent` or `to_client`"]
pub struct Proxy {
    stages: Vec<Box<dyn ProxyStage>>,
    limits: Limits,
}

impl Proxy {
    /// The silence after which an agent is left whose client has left, unless it owes a response.
    pub const MAX_SILENCE: Duration = Duration::from_secs(2);

    /// Creates a chain without stages.
    pub fn new() -> Self {
        Proxy::default()
    }

    /// Adds a stage behind the others, on the side of the agent.
    pub fn stage(mut self, stage: impl ProxyStage) -> Self {
        self.stages.push(Box::new(stage));
        self
    }

    /// Adds a stage that is a closure for the messages of the client. Messages of the agent pass it.
    pub fn on_client_message<F>(self, stage: F) -> Self
    where
        F: FnMut(&StageMessage<'_>, &mut StageLink<'_>) -> Decision + Send + 'static,
    {
        self.stage(OnClientMessage(stage))
    }

    /// Adds a stage that is a closure for the messages of the agent. Messages of the client pass it.
    pub fn on_agent_message<F>(self, stage: F) -> Self
    where
        F: FnMut(&StageMessage<'_>, &mut StageLink<'_>) -> Decision + Send + 'static,
    {
        self.stage(OnAgentMessage(stage))
    }

    /// Sets the limits. A chain uses `frame_bytes`, `depth`, `values`, `output_bytes`, `output_bytes_hard`, and `in_flight` for
    /// the ids that it keeps and for the jobs of stages.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Puts the chain in front of an agent. The result is the transport of a client, for `Client::connect`.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    #[must_use]
    pub fn to_agent(self, agent: Transport) -> Transport {
        transport::chained(self.stages, self.limits, agent, Side::Agent)
    }

    /// Puts the chain in front of a client. The result is the transport of an agent, for `serve`.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    #[must_use]
    pub fn to_client(self, client: Transport) -> Transport {
        transport::chained(self.stages, self.limits, client, Side::Client)
    }

    /// Connects a client and an agent until the agent ends its output, or until the client has left and the agent is silent
    /// for two seconds and owes no response. The end of one side's output closes the input of the other.
    ///
    /// For a child process use `AgentProcess::start` of `duologue-client`, and call `AgentProcess::end` afterwards:
    ///
    /// ```no_run
    /// use duologue_client::{AgentProcess, Command};
    /// use duologue_proxy::{Proxy, RedactStage, Stdio, Transport};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let (process, mut pipes) = AgentProcess::start(Command::new("my-agent"))?;
    /// // Discards the stderr of the agent. A full pipe would block the agent.
    /// tokio::spawn(async move { tokio::io::copy(&mut pipes.stderr, &mut tokio::io::sink()).await });
    /// let agent = Transport::new(pipes.stdout, pipes.stdin);
    /// Proxy::new().stage(RedactStage::new()).run(Stdio::take()?.transport, agent).await?;
    /// process.end().await;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// If a side cannot be read, the client cannot be written to, or a line is longer than `Limits::frame_bytes`. If only the
    /// input of the agent is closed, its output still goes on.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, both transports are closed, and messages that were read may be lost.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub async fn run(self, client: Transport, agent: Transport) -> io::Result<()> {
        let activity = Arc::new(RelayActivity::default());
        let (from_client, to_client) = client.into_split();
        let (from_agent, to_agent) = self.to_agent(agent).into_split();
        let from_client = activity.observe(Side::Client, from_client);
        let from_agent = activity.observe(Side::Agent, from_agent);
        let client_left = async {
            match copy_to_end(from_client, to_agent).await {
                Ok(()) => activity.wait_until_idle(Proxy::MAX_SILENCE, || false).await,
                // An agent that reads no more may still write.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => std::future::pending().await,
                Err(error) => return Err(error),
            }
            Ok(())
        };
        tokio::select! {
            ended = copy_to_end(from_agent, to_client) => ended,
            left = client_left => left,
        }
    }
}

/// Copies bytes as they arrive, then closes `to`.
///
/// # Errors
///
/// If a stream cannot be read or written.
pub async fn copy_to_end(from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin) -> io::Result<()> {
    let copied = tokio::io::copy_buf(&mut BufReader::with_capacity(CHUNK, from), &mut to).await;
    let closed = to.shutdown().await;
    copied.and(closed)
}

impl std::fmt::Debug for Proxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Proxy").field("stages", &self.stages.len()).finish_non_exhaustive()
    }
}
