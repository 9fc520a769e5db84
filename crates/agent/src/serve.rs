//! Starting an agent: on stdio, or on any transport.

use std::sync::Arc;
use std::time::Duration;

use duologue_exchange::{Exchange, ExchangeConnector};
use duologue_rpc::{
    CancellationToken, Closed, Extensions, InputEnded, Limits, PeerBuilder, Stdio, Tap, Transport,
};

use crate::agent::Agent;
use crate::error::{Error, Result};
use crate::message::ClearPolicy;
use crate::service::AgentService;

/// How long the process lives on after the end of its input, see [`serve_stdio`].
/// Handlers and the last answers take 1.5 s of it; the rest up to 2 s is for a busy machine.
const LAST_MOMENTS: Duration = Duration::from_millis(1_600);

/// How long an input that did not end with our parent has to do so.
const ORPHANED: Duration = Duration::from_millis(400);

/// Serves one client over stdin and stdout until it leaves.
///
/// From here on both belong to the conversation: `println!` writes to stderr instead, and child
/// processes inherit an empty stdin.
///
/// When the client closes stdin, turns are cancelled, handlers get a second to answer, and this
/// returns. The process ends two seconds after stdin closed at the latest, even when a handler is
/// stuck: an agent without a client is an orphan.
///
/// On Linux the end of the parent process counts as the end of stdin, whoever else holds it open: it
/// is the client, or what the client started and waits for. A launcher that leaves while the
/// agent runs takes it along; one that has left before is not missed.
///
/// SIGTERM ends the process at once, as it does any. A client of ours sends it two seconds after it closed stdin; for
/// others, wait for it (`tokio::signal::unix`) beside this future, whose end or drop is the end of the conversation.
///
/// What takes longer than that after the conversation, or has to outlive its parent, needs [`serve`]
/// with the transport of [`Stdio::take`], which leaves the process alone.
///
/// ```no_run
/// use duologue_agent::{Agent, Prompt, Result, StopReason, Turn, serve_stdio};
///
/// struct Echo;
///
/// impl Agent for Echo {
///     async fn prompt(&self, turn: &Turn, prompt: Prompt) -> Result<StopReason> {
///         turn.message().push(prompt.text()).await?;
///         Ok(StopReason::EndTurn)
///     }
/// }
///
/// #[tokio::main]
/// async fn main() -> Result<()> {
///     serve_stdio(Echo).await
/// }
/// ```
///
/// # Errors
///
/// [`Error::Stdio`] when stdin and stdout cannot be taken, [`Error::Connection`] when the
/// conversation broke. A client that goes away is no error.
///
/// # Panics
///
/// Outside a tokio runtime with I/O and time enabled.
pub async fn serve_stdio<A: Agent>(agent: A) -> Result<()> {
    Server::new(agent).serve_stdio().await
}

/// Serves one client over `transport` until it leaves. See [`serve_stdio`] for the rest; the
/// process is left alone here.
///
/// # Errors
///
/// [`Error::Connection`] when the conversation broke. A client that goes away is no error.
///
/// # Cancel safety
///
/// Dropping the future ends the connection.
///
/// # Panics
///
/// Outside a tokio runtime with time enabled.
pub async fn serve<A: Agent>(agent: A, transport: Transport) -> Result<()> {
    Server::new(agent).serve(transport).await
}

/// An agent with settings other than the default ones.
///
/// ```no_run
/// # use duologue_agent::{Agent, ClearPolicy, Result, Server};
/// # async fn run(agent: impl Agent) -> Result<()> {
/// Server::new(agent).clear_policy(ClearPolicy::Hold).serve_stdio().await
/// # }
/// ```
#[must_use = "an agent runs once it is served"]
pub struct Server<A> {
    agent: A,
    clear_policy: ClearPolicy,
    exchange: Option<Exchange>,
    extensions: Extensions,
    limits: Limits,
    tap: Option<Arc<dyn Tap>>,
}

impl<A: Agent> Server<A> {
    /// The agent with default settings.
    pub fn new(agent: A) -> Self {
        Server {
            agent,
            clear_policy: ClearPolicy::default(),
            exchange: None,
            extensions: Extensions::default(),
            limits: Limits::default(),
            tap: None,
        }
    }

    /// What clearing a message does for clients that do not know it.
    pub fn clear_policy(mut self, policy: ClearPolicy) -> Self {
        self.clear_policy = policy;
        self
    }

    /// What we answer to the other agent beyond ACP, and our name there.
    #[cfg(feature = "exchange")]
    pub fn exchange(mut self, exchange: Exchange) -> Self {
        self.exchange = Some(exchange);
        self
    }

    /// Handlers for extension methods.
    pub fn extensions(mut self, extensions: Extensions) -> Self {
        self.extensions = extensions;
        self
    }

    /// Other limits than the default ones.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Shows every frame to `tap`.
    pub fn tap(mut self, tap: Arc<dyn Tap>) -> Self {
        self.tap = Some(tap);
        self
    }

    /// As [`serve_stdio`].
    ///
    /// # Errors
    ///
    /// As [`serve_stdio`].
    pub async fn serve_stdio(self) -> Result<()> {
        let Stdio { transport, end, .. } = Stdio::take().map_err(Error::Stdio)?;
        // All that the thread holds: it stays when the conversation is over, whose tap has to go.
        let orphaned = CancellationToken::new();
        // A thread of its own, because the runtime may be what is stuck. If there is none, nothing has begun.
        std::thread::Builder::new()
            .name("duologue-stdin-end".into())
            .spawn({
                let orphaned = orphaned.clone();
                move || {
                    wait_before_exit(end.wait(), &orphaned, std::thread::sleep);
                    std::process::exit(0);
                }
            })
            .map_err(Error::Stdio)?;
        let serving = self.start(transport);
        if let Some(ended) = orphaned.run_until_cancelled(serving.ended()).await {
            return ended;
        }
        serving.0.close();
        serving.ended().await
    }

    /// As [`serve`].
    ///
    /// # Errors
    ///
    /// As [`serve`].
    pub async fn serve(self, transport: Transport) -> Result<()> {
        self.start(transport).ended().await
    }

    fn start(self, transport: Transport) -> Serving {
        let Server { agent, clear_policy, exchange, extensions, limits, tap } = self;
        let exchange = ExchangeConnector::new(exchange);
        let mut connection = PeerBuilder::new(transport).limits(limits).answer_noise(true);
        if let Some(tap) = tap {
            connection = connection.tap(tap);
        }
        Serving(connection.start(|peer| AgentService::new(agent, peer, exchange, extensions, clear_policy)))
    }
}

/// Sleeps from the end of the input until the process has to exit. If the parent has ended and the input has not,
/// it cancels `orphaned` first, so that the conversation ends too.
fn wait_before_exit(ended: InputEnded, orphaned: &CancellationToken, mut sleep: impl FnMut(Duration)) {
    if ended == InputEnded::Parent {
        sleep(ORPHANED);
        orphaned.cancel();
    }
    sleep(LAST_MOMENTS);
}

/// A conversation that runs. Dropping it ends the conversation.
struct Serving(duologue_rpc::Peer);

impl Serving {
    async fn ended(&self) -> Result<()> {
        match self.0.closed().await {
            Closed::EndOfInput | Closed::Local => Ok(()),
            // The client is gone, whichever pipe noticed first.
            Closed::Io(error)
                if matches!(
                    error.kind(),
                    std::io::ErrorKind::BrokenPipe
                        | std::io::ErrorKind::ConnectionReset
                        | std::io::ErrorKind::UnexpectedEof
                ) =>
            {
                Ok(())
            }
            reason => Err(Error::Connection(duologue_rpc::Error::Closed(reason))),
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Handlers have the grace of a cancellation before that, and their answers are written.
    #[test]
    fn the_process_exits_two_seconds_after_its_input_ended() {
        let answers = Limits::default().cancel_grace * 3 / 2;
        for ended in [InputEnded::Input, InputEnded::Parent] {
            let orphaned = CancellationToken::new();
            let mut slept = Vec::new();
            wait_before_exit(ended, &orphaned, |time| slept.push((orphaned.is_cancelled(), time)));
            assert_eq!(orphaned.is_cancelled(), ended == InputEnded::Parent);
            let (conversation_ended, last) = slept[slept.len() - 1];
            assert_eq!(conversation_ended, ended == InputEnded::Parent);
            assert!(last > answers, "{ended:?}: {last:?}");
            let total: Duration = slept.into_iter().map(|(_, time)| time).sum();
            assert!(total <= Duration::from_secs(2), "{ended:?}: {total:?}");
        }
    }
}
