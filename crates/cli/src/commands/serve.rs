//! `duologue serve`.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use duologue_client::Command as AgentCommand;
#[cfg(feature = "tls")]
use duologue_hub::ServerTls;
use duologue_hub::{AccessToken, AllowedHosts, Hub, HubSettings, ServerOptions};
use tokio::net::TcpListener;

use crate::commands::AgentArgs;
#[cfg(unix)]
use crate::commands::guard;
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::files::in_file;
use crate::signals::Signals;
use crate::ui::{self, DIM};
use crate::{runtime, state_folder};

const EXAMPLES: &str = "\
Examples:
  duologue serve -- my-agent --acp
  duologue run \"hello\" -- duologue connect http://127.0.0.1:8931/acp
From another machine, through SSH:
  ssh -N -L 8931:127.0.0.1:8931 my-server";

/// Serve an agent over the network, with sessions that outlive connections and restarts
///
/// Each session has a process of the agent and a log in the data folder. A turn goes on when its client is gone; the
/// client gets what it missed when it is back, and another client can load the session. After a restart of the server
/// sessions can be loaded; a turn that ran has ended as interrupted.
///
/// Clients need the token that the server writes to the data folder. `duologue connect` of the same user finds it.
/// SIGINT and SIGTERM end the server when no turn runs any more, at most `--drain` seconds later. A second one ends it at
/// once.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ServeArgs {
    /// The address. One that is not a loopback address needs `--cert`. With port 0 the system chooses the port
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8931")]
    listen: SocketAddr,
    /// The file with the certificate of the server, followed by those of its issuers, for encrypted connections (https)
    #[cfg(feature = "tls")]
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// The file with the private key of the certificate
    #[cfg(feature = "tls")]
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// The folder of the logs and the token, if not that of the user: `~/.local/state/duologue`
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Let the agent request files and terminals from the client, for an agent that shares no files with it
    #[arg(long)]
    client_files: bool,
    /// The seconds that running turns have to end after SIGINT or SIGTERM. Others are interrupted
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    drain: u64,
    #[command(flatten)]
    agent: AgentArgs,
}

pub(crate) fn run(args: ServeArgs) -> Result<Exit> {
    let runtime = runtime::multi_thread(2)?;
    let exit = runtime.block_on(serve(args));
    runtime.shutdown_background();
    exit
}

async fn serve(args: ServeArgs) -> Result<Exit> {
    args.agent.required()?;
    let mut options = ServerOptions::default();
    #[cfg(feature = "tls")]
    if let (Some(cert), Some(key)) = (&args.cert, &args.key) {
        options.tls = Some(ServerTls::from_pem_files(cert, key)?);
    }
    #[cfg(feature = "tls")]
    let is_encrypted = options.tls.is_some();
    #[cfg(not(feature = "tls"))]
    let is_encrypted = false;
    if !args.listen.ip().is_loopback() {
        if !is_encrypted {
            let why = "is not a loopback address, and the connection is not encrypted: use `--cert` and `--key`, or listen on 127.0.0.1 and forward the port by SSH";
            return Err(Error::Usage(format!("{} {why}", args.listen)));
        }
        // Clients know the server by names of their own, and each request needs the token.
        options.hosts = AllowedHosts::Any;
    }
    let mut signals = Signals::listen()?;
    let data = args.data.map_or_else(state_folder::of_user, Ok)?;
    let words = args.agent.words();
    let agent = args.agent;
    let mut settings = HubSettings::new(
        // It is there, see above.
        move || agent.given().unwrap_or_else(|| AgentCommand::new("false")),
        &data,
    );
    settings.client_files = args.client_files;
    #[cfg(unix)]
    {
        settings.processes = Some(guard::start()?);
    }
    let hub = Hub::open(settings)?;
    options.token = Some(AccessToken::new(state_folder::token(&data)?));
    let listener = TcpListener::bind(args.listen).await.map_err(in_file(args.listen))?;
    let address = listener.local_addr()?;
    let scheme = if is_encrypted { "https" } else { "http" };
    let mut out = ui::stdout();
    writeln!(out, "serving {} at {scheme}://{address}/acp", ui::printable(&words.join(" ")))?;
    writeln!(out, "{DIM}token: {}{DIM:#}", state_folder::token_path(&data).display())?;
    out.flush()?;
    let stop = async {
        signals.next().await;
        // New prompts are refused from now on. Another signal does not wait for the running ones.
        tokio::select! {
            _ = hub.drain(Duration::from_secs(args.drain)) => {}
            _ = signals.next() => {}
        }
    };
    // Dropped signals would end this process before the sessions have ended.
    hub.serve_http(listener, options, stop).await?;
    drop(signals);
    Ok(Exit::Ok)
}
