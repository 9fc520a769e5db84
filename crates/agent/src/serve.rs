//! Runs an agent on stdio or on any transport.

use std::sync::Arc;
use std::time::Duration;

use duologue_exchange::{Exchange, ExchangeConnector};
use duologue_rpc::{
    CancellationToken, Closed, Extensions, InputEndReason, Limits, PeerBuilder, Stdio, Tap, Transport,
};

use crate::agent::Agent;
use crate::error::{Error, Result};
use crate::message::ClearPolicy;
use crate::service::AgentService;

/// The time between the end of the input and the exit of the process, see [`serve_stdio`].
/// Handlers and the last responses need at most 1.5 s of it.
const EXIT_DELAY: Duration = Duration::from_millis(1_600);

/// The time in which the input should end after the exit of the parent.
const ORPHAN_DELAY: Duration = Duration::from_millis(400);

/// Serves one client over stdin and stdout until the client disconnects.
///
/// This is the `main` of an agent that an editor starts as its child process. While it runs, only protocol messages
/// reach the real stdout: `println!` writes to stderr instead, and child processes of the agent read an empty stdin.
///
/// # The end of the process
///
/// A client disconnects when it closes the agent's stdin. All turns are cancelled then. The methods of the agent have one
/// second to return, and this function returns after them. Two seconds after stdin was closed the process exits in any
/// case, even if a method never returns.
///
/// On Linux the exit of the parent process counts as the end of stdin too. A parent that had exited before the agent
/// started is ignored.
///
/// SIGTERM is not handled, so it ends the process at once. To shut down cleanly, await a signal of `tokio::signal::unix`
/// beside this future, and drop the future. `duologue-client` sends SIGTERM two seconds after it closed stdin.
///
/// An agent that has work to do after the connection, or that outlives its parent, passes the transport of
/// [`Stdio::take`] to [`serve`]. Neither of them ends the process.
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
/// [`Error::Stdio`] if stdin and stdout cannot be taken, [`Error::Connection`] if the connection broke.
/// A client that disconnects is not an error.
///
/// # Cancel safety
///
/// Dropping the future ends the connection. Stdin and stdout cannot be taken again.
///
/// # Panics
///
/// Panics outside a tokio runtime with I/O and time enabled.
pub async fn serve_stdio<A: Agent>(agent: A) -> Result<()> {
    Server::new(agent).serve_stdio().await
}

/// Serves one client over `transport` until the client disconnects. Unlike [`serve_stdio`], this never
/// ends the process.
///
/// # Errors
///
/// [`Error::Connection`] if the connection broke. A client that disconnects is not an error.
///
/// # Cancel safety
///
/// Dropping the future ends the connection.
///
/// # Panics
///
/// Panics outside a tokio runtime with time enabled.
pub async fn serve<A: Agent>(agent: A, transport: Transport) -> Result<()> {
    Server::new(agent).serve(transport).await
}

/// Serves every client of a listener over WebSocket, at `/acp`. `server` creates the agent of a connection; one that is
/// shared is in an `Arc`, or is cloned.
///
/// A client whose socket is lost resumes its connection, and an agent notices only a pause. After
/// [`AgentEndpointOptions::grace`](duologue_http::AgentEndpointOptions::grace) the connection ends. To serve other paths too,
/// or to change these limits, mount [`duologue_http::router`].
///
/// ```no_run
/// use duologue_agent::http::ServerOptions;
/// use duologue_agent::{Agent, Prompt, Result, Server, StopReason, Turn, serve_http};
/// use tokio::net::TcpListener;
///
/// #[derive(Clone)]
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
/// async fn main() -> std::io::Result<()> {
///     let mut options = ServerOptions::default();
///     options.token = Some("a secret of the client and the server".into());
///     let listener = TcpListener::bind("127.0.0.1:8931").await?;
///     serve_http(listener, options, || Server::new(Echo)).await
/// }
/// ```
///
/// # Errors
///
/// If the listener fails. [`InvalidInput`](std::io::ErrorKind::InvalidInput) for an address that is not a loopback address
/// without a token.
///
/// # Cancel safety
///
/// Dropping the future closes the listener. Open connections go on until the runtime ends.
#[cfg(feature = "http")]
pub async fn serve_http<A: Agent>(
    listener: tokio::net::TcpListener,
    options: duologue_http::ServerOptions,
    server: impl Fn() -> Server<A> + Send + Sync + 'static,
) -> std::io::Result<()> {
    let endpoint = duologue_http::AgentEndpoint::new(move |transport| {
        let serving = server().serve(transport);
        async {
            if let Err(error) = serving.await {
                tracing::warn!(%error, "a connection has failed");
            }
        }
    });
    duologue_http::serve(listener, endpoint, options).await
}

/// An agent with its settings.
///
/// ```no_run
/// # use duologue_agent::{Agent, ClearPolicy, Result, Server};
/// # async fn run(agent: impl Agent) -> Result<()> {
/// Server::new(agent).clear_policy(ClearPolicy::Hold).serve_stdio().await
/// # }
/// ```
#[must_use = "call serve or serve_stdio to run the agent"]
pub struct Server<A> {
    agent: A,
    clear_policy: ClearPolicy,
    exchange: Option<Exchange>,
    extensions: Extensions,
    limits: Limits,
    tap: Option<Arc<dyn Tap>>,
    #[cfg(feature = "protocol-v2")]
    accepts_v2: bool,
}

impl<A: Agent> Server<A> {
    /// Creates a server with the default settings.
    pub fn new(agent: A) -> Self {
        Server {
            agent,
            clear_policy: ClearPolicy::default(),
            exchange: None,
            extensions: Extensions::default(),
            limits: Limits::default(),
            tap: None,
            #[cfg(feature = "protocol-v2")]
            accepts_v2: false,
        }
    }

    /// Serves protocol version 2 to clients that ask for it, and version 1 to the others.
    ///
    /// Version 2 is a draft of ACP that may change at any time. The agent does not change: it gets the requests of
    /// version 1 and sends its updates, which are converted. See RFD 0016 for the differences.
    ///
    /// ```no_run
    /// # use duologue_agent::{Agent, Result, Server};
    /// # async fn run(agent: impl Agent) -> Result<()> {
    /// Server::new(agent).protocol_v2().serve_stdio().await
    /// # }
    /// ```
    #[cfg(feature = "protocol-v2")]
    pub fn protocol_v2(mut self) -> Self {
        self.accepts_v2 = true;
        self
    }

    /// Sets the behaviour of clearing a message for clients that do not support it.
    pub fn clear_policy(mut self, policy: ClearPolicy) -> Self {
        self.clear_policy = policy;
        self
    }

    /// Sets the handlers for messages of other agents, and the name of this agent.
    #[cfg(feature = "exchange")]
    pub fn exchange(mut self, exchange: Exchange) -> Self {
        self.exchange = Some(exchange);
        self
    }

    /// Sets the handlers for extension methods.
    pub fn extensions(mut self, extensions: Extensions) -> Self {
        self.extensions = extensions;
        self
    }

    /// Sets the limits of the connection.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Shows every frame to `tap`.
    pub fn tap(mut self, tap: Arc<dyn Tap>) -> Self {
        self.tap = Some(tap);
        self
    }

    /// Serves one client over stdin and stdout, see [`serve_stdio`].
    ///
    /// # Errors
    ///
    /// As [`serve_stdio`].
    ///
    /// # Cancel safety
    ///
    /// As [`serve_stdio`].
    pub async fn serve_stdio(self) -> Result<()> {
        let Stdio { transport, end, .. } = Stdio::take().map_err(Error::Stdio)?;
        // The thread owns only this token. It outlives the connection and must not keep the tap alive.
        let orphaned = CancellationToken::new();
        // A thread of its own, because the runtime may be stuck. It starts first, because any method of the agent may be
        // stuck, also those for `initialize`.
        let watch = std::thread::Builder::new().name("duologue-stdin-end".into());
        let orphan = orphaned.clone();
        let watching = watch.spawn(move || {
            wait_before_exit(end.wait(), &orphan, std::thread::sleep);
            std::process::exit(0);
        });
        watching.map_err(Error::Stdio)?;
        let serving = self.start(transport);
        if let Some(ended) = orphaned.run_until_cancelled(serving.ended()).await {
            return ended;
        }
        serving.0.close();
        serving.ended().await
    }

    /// Serves one client over `transport`, see [`serve`].
    ///
    /// # Errors
    ///
    /// As [`serve`].
    ///
    /// # Cancel safety
    ///
    /// As [`serve`].
    pub async fn serve(self, transport: Transport) -> Result<()> {
        self.start(transport).ended().await
    }

    fn start(self, transport: Transport) -> Serving {
        let Server { agent, clear_policy, exchange, extensions, limits, tap, .. } = self;
        #[cfg(feature = "protocol-v2")]
        let accepts_v2 = self.accepts_v2;
        let exchange = ExchangeConnector::new(exchange);
        let mut connection = PeerBuilder::new(transport).limits(limits).answer_noise(true);
        if let Some(tap) = tap {
            connection = connection.tap(tap);
        }
        Serving(connection.start(|peer| {
            let service = AgentService::new(agent, peer, exchange, extensions, clear_policy);
            #[cfg(feature = "protocol-v2")]
            let service = service.accepting_v2(accepts_v2);
            service
        }))
    }
}

/// Sleeps from the end of the input until the process has to exit. If the parent exited and the input is still open,
/// cancels `orphaned` first, so that the connection ends too.
fn wait_before_exit(ended: InputEndReason, orphaned: &CancellationToken, mut sleep: impl FnMut(Duration)) {
    if ended == InputEndReason::Parent {
        sleep(ORPHAN_DELAY);
        orphaned.cancel();
    }
    sleep(EXIT_DELAY);
}

/// A running connection. Dropping it ends the connection.
struct Serving(duologue_rpc::Peer);

impl Serving {
    async fn ended(&self) -> Result<()> {
        match self.0.closed().await {
            Closed::EndOfInput | Closed::Local => Ok(()),
            // The client has disconnected. Either pipe can report it first.
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

    /// Before the exit, handlers have the grace period of a cancellation and their responses are written.
    #[test]
    fn the_process_exits_two_seconds_after_its_input_ended() {
        let answers = Limits::default().cancel_grace * 3 / 2;
        for ended in [InputEndReason::Input, InputEndReason::Parent] {
            let orphaned = CancellationToken::new();
            let mut slept = Vec::new();
            wait_before_exit(ended, &orphaned, |time| slept.push((orphaned.is_cancelled(), time)));
            assert_eq!(orphaned.is_cancelled(), ended == InputEndReason::Parent);
            let (conversation_ended, last) = slept[slept.len() - 1];
            assert_eq!(conversation_ended, ended == InputEndReason::Parent);
            assert!(last > answers, "{ended:?}: {last:?}");
            let total: Duration = slept.into_iter().map(|(_, time)| time).sum();
            assert!(total <= Duration::from_secs(2), "{ended:?}: {total:?}");
        }
    }
}
