//! Our programs over a network: the server of the agent, a bridge to an agent on stdio, and the transport of the client.

pub mod load;
pub mod relay;

use std::future::Future;
use std::io;

use duologue_client::{AgentProcess, Command, Pipes, Transport};
use duologue_http::{
    AgentEndpoint, AgentEndpointOptions, ConnectOptions, RemoteTransport, ServerOptions, connect as open,
};
use tokio::io::{copy, sink};
use tokio::net::TcpListener;

/// The most clients of a server.
const CLIENTS: usize = 20_000;

/// Creates an endpoint for many clients.
pub fn endpoint<F, Fut>(serve: F) -> AgentEndpoint
where
    F: Fn(Transport) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = ()> + Send + 'static,
{
    let mut options = AgentEndpointOptions::default();
    options.connections = CLIENTS;
    AgentEndpoint::with_options(serve, options)
}

/// Creates an endpoint that starts a process for each client and copies the bytes between both. It keeps no log.
pub fn bridge(agent: Vec<String>) -> AgentEndpoint {
    endpoint(move |transport| {
        let agent = agent.clone();
        async move {
            let Some((program, args)) = agent.split_first() else { return };
            let started = AgentProcess::start(Command::new(program).args(args));
            let Ok((process, Pipes { mut stdin, mut stdout, mut stderr, .. })) = started else { return };
            let (mut reader, mut writer) = transport.into_split();
            let errors = tokio::spawn(async move { copy(&mut stderr, &mut sink()).await });
            tokio::select! {
                _ = copy(&mut reader, &mut stdin) => {}
                _ = copy(&mut stdout, &mut writer) => {}
            }
            errors.abort();
            process.end().await;
        }
    })
}

/// Serves an endpoint at an address of the system's choice, which it prints.
///
/// # Errors
///
/// If the listener fails.
#[expect(clippy::print_stdout, reason = "its output is its address")]
pub async fn serve(endpoint: AgentEndpoint) -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?);
    let mut options = ServerOptions::default();
    (options.sockets, options.requests) = (CLIENTS, CLIENTS);
    duologue_http::serve(listener, endpoint, options).await
}

/// Connects to a server: over a WebSocket if the scheme is `ws`, else over HTTP with SSE.
///
/// # Errors
///
/// As [`duologue_http::connect`].
pub async fn connect(url: &str) -> Result<Transport, duologue_http::Error> {
    let mut options = ConnectOptions::default();
    options.bearer_token = std::env::var(crate::TOKEN).ok().map(Into::into);
    options.transport =
        if url.starts_with("ws") { RemoteTransport::WebSocket } else { RemoteTransport::Events };
    Ok(open(url, options).await?.0)
}
