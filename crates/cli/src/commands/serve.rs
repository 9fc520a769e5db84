//! `duologue serve`.

use std::convert::Infallible;
use std::io::{ErrorKind, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use duologue_client::Command as AgentCommand;
#[cfg(unix)]
use duologue_hub::LocalListener;
#[cfg(feature = "tls")]
use duologue_hub::ServerTls;
use duologue_hub::gateway::{Gateway, GatewayConfig, GatewaySettings};
use duologue_hub::{AllowedHosts, Hub, HubSettings, Listeners, ServerOptions};
use tokio::net::TcpListener;

use crate::commands::AgentArgs;
#[cfg(unix)]
use crate::commands::guard;
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::files::in_file;
use crate::server_log::{self, LogLevel};
use crate::signals::Signals;
use crate::state_folder::PublishedAddress;
use crate::ui::{self, DIM};
use crate::{runtime, state_folder};

const EXAMPLES: &str = "\
Examples:
  duologue serve -- my-agent --acp
  duologue serve --config hub.toml
  duologue run \"hello\" -- duologue connect
From another machine, through SSH:
  duologue run \"hello\" -- ssh my-server duologue connect";

/// Serve an agent over the network, with sessions that outlive connections and restarts
///
/// Each session has a process of the agent, unless `--shared`, and a log in the data folder. A turn goes on when its client is gone; the
/// client gets what it missed when it is back, and another client can load the session. After a restart of the server
/// sessions can be loaded; a turn that ran has ended as interrupted.
///
/// Programs of the same user reach it by a socket in the data folder, without a token; `duologue connect` does. With
/// `--listen` it also listens on an address, and its clients need the token in the data folder.
/// With `--config` it is a hub of several agents, with a registry, messages, tasks and a REST interface.
///
/// SIGINT and SIGTERM end the server when no turn runs any more, at most `--drain` seconds later. A second one ends it at
/// once.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ServeArgs {
    /// The file of a hub, `hub.toml`, in the place of an agent
    #[arg(long, value_name = "FILE", conflicts_with_all = ["agent", "client_files", "shared"])]
    config: Option<PathBuf>,
    /// Listen on this address too, for clients with the token. One that is not a loopback address needs `--cert`. With
    /// port 0 the system chooses the port
    #[arg(long, value_name = "ADDR")]
    listen: Option<SocketAddr>,
    /// The file with the certificate of the server, followed by those of its issuers, for encrypted connections (https)
    #[cfg(feature = "tls")]
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// The file with the private key of the certificate
    #[cfg(feature = "tls")]
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// The file with the certificates of the authorities that sign those of clients (`principals.certificate` of the
    /// configuration)
    #[cfg(feature = "tls")]
    #[arg(long, value_name = "FILE", requires_all = ["cert", "config"])]
    client_ca: Option<PathBuf>,
    /// The folder of the logs and the token, if not that of the user: `~/.local/state/duologue`, or `duologue` in
    /// $XDG_STATE_HOME
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Let the agent request files and terminals from the client, for an agent that shares no files with it
    #[arg(long)]
    client_files: bool,
    /// Use one process of the agent for all sessions. If it ends, the turns of all sessions are interrupted
    #[arg(long)]
    shared: bool,
    /// The seconds that running turns have to end after SIGINT or SIGTERM. Others are interrupted
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    drain: u64,
    /// Remove sessions, with their logs, that were not changed for so many days. Without it all are kept
    #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u32).range(1..))]
    keep: Option<u32>,
    /// The GiB of all logs at which new sessions are refused, if not 100. In a hub it is `disk_bytes` of each agent
    #[arg(long, value_name = "GIB", conflicts_with = "config", value_parser = clap::value_parser!(u64).range(1..1 << 20))]
    disk: Option<u64>,
    /// The lowest level of the log on stderr. `warn` has the stderr of the agents too, and every level but `off` refused
    /// access and answers to questions
    #[arg(long, value_name = "LEVEL", value_enum, default_value_t = LogLevel::Warn)]
    log: LogLevel,
    #[command(flatten)]
    agent: AgentArgs,
}

pub(crate) fn run(args: ServeArgs) -> Result<Exit> {
    server_log::start(args.log);
    #[cfg(unix)]
    raise_descriptor_limit();
    let runtime = runtime::multi_thread(2)?;
    let exit = runtime.block_on(async {
        let mut signals = Signals::listen()?;
        let served = serve(args, &mut signals).await;
        // A signal after that of `signals` would end this process with a part of the log.
        server_log::flush();
        served
    });
    runtime.shutdown_background();
    exit
}

const DAY: Duration = Duration::from_secs(24 * 3600);

/// The address without `--listen`, on systems without Unix sockets.
#[cfg(not(unix))]
const LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 8931);

/// The time between two removals of old sessions.
const REMOVAL_INTERVAL: Duration = Duration::from_secs(3600);

/// The server, whose data folder is open.
enum Server {
    Hub(Hub),
    Gateway(Gateway),
}

impl Server {
    async fn drain(&self, limit: Duration) {
        match self {
            Server::Hub(hub) => _ = hub.drain(limit).await,
            Server::Gateway(gateway) => _ = gateway.drain(limit).await,
        }
    }

    /// Removes old sessions, now and every hour.
    async fn remove_old(&self, age: Duration) -> Infallible {
        loop {
            let removed = match self {
                Server::Hub(hub) => hub.remove_old(age).await,
                Server::Gateway(gateway) => gateway.remove_old(age).await,
            };
            if let Err(error) = removed {
                // If stderr is closed, nobody reads it.
                _ = writeln!(ui::stderr(), "warning: old sessions were not removed: {error}");
            }
            tokio::time::sleep(REMOVAL_INTERVAL).await;
        }
    }
}

async fn serve(args: ServeArgs, signals: &mut Signals) -> Result<Exit> {
    let config = args.config.as_deref().map(GatewayConfig::read).transpose()?;
    if config.is_none() {
        args.agent.required()?;
    }
    let listen = args.listen.or_else(|| config.as_ref().and_then(|config| config.listen));
    #[cfg(not(unix))]
    let listen = listen.or(Some(LISTEN));
    let mut options = ServerOptions::default();
    #[cfg(unix)]
    {
        options.strangers = fitting_strangers(options.strangers);
    }
    #[cfg(feature = "tls")]
    if let (Some(cert), Some(key)) = (&args.cert, &args.key) {
        state_folder::check_key(key)?;
        let mut tls = ServerTls::from_pem_files(cert, key)?;
        if let Some(authorities) = &args.client_ca {
            tls = tls.accept_clients_of(authorities)?;
        }
        options.tls = Some(tls);
    }
    #[cfg(feature = "tls")]
    let has_authorities = args.client_ca.is_some();
    #[cfg(not(feature = "tls"))]
    let has_authorities = false;
    let principals = config.iter().flat_map(|config| &config.principals);
    if let Some(unknown) = principals.into_iter().find(|one| one.certificate.is_some() && !has_authorities) {
        let why = "has a certificate, and no authority is named: use `--client-ca`";
        return Err(Error::Usage(format!("principal {:?} {why}", unknown.id)));
    }
    #[cfg(feature = "tls")]
    let is_encrypted = options.tls.is_some();
    #[cfg(not(feature = "tls"))]
    let is_encrypted = false;
    if let Some(listen) = listen.filter(|listen| !listen.ip().is_loopback()) {
        if !is_encrypted {
            let why = "is not a loopback address, and the connection is not encrypted: use `--cert` and `--key`, or listen on 127.0.0.1 and forward the port by SSH";
            return Err(Error::Usage(format!("{listen} {why}")));
        }
        // Clients know the server by names of their own, and each request needs the token.
        options.hosts = AllowedHosts::Any;
    }
    let has_files = config.is_none().then_some(args.client_files);
    let configured = config.as_ref().and_then(|config| config.data.clone());
    let named = args.data.or(configured);
    let config_path = args.config.as_deref().map(std::path::absolute).transpose()?;
    let is_of_user = named.is_none();
    let data = named.map_or_else(state_folder::of_user, Ok)?;
    state_folder::prepare(&data)?;
    #[cfg(unix)]
    let processes = match guard::start(&data).await {
        Ok(processes) => Some(processes),
        Err(error) => return Err(running(&data).await.unwrap_or(error)),
    };
    #[cfg(not(unix))]
    let processes = None;
    if let (Some(path), true) = (&config_path, is_of_user) {
        state_folder::check_config(&data, path)?;
    }
    let (opened, subject) = match config {
        Some(config) => {
            let subject = ui::plural(config.agents.len(), "agent");
            let mut settings = GatewaySettings::new(&data);
            settings.processes = processes;
            (Gateway::open(config, settings).map(Server::Gateway), subject)
        }
        None => {
            let words = ui::printable(&args.agent.words().join(" ")).into_owned();
            let agent = args.agent;
            // It is there, see above.
            let command = move || agent.given().unwrap_or_else(|| AgentCommand::new("false"));
            let mut settings = HubSettings::new(command, &data);
            settings.client_files = args.client_files;
            settings.shared_process = args.shared;
            settings.processes = processes;
            if let Some(gib) = args.disk {
                settings.disk_bytes = gib << 30;
            }
            (Hub::open(settings).map(Server::Hub), words)
        }
    };
    let server = match opened {
        Ok(server) => server,
        Err(error) => return Err(running(&data).await.unwrap_or_else(|| error.into())),
    };
    if let Some(path) = &config_path {
        state_folder::remember_config(&data, path)?;
    }
    options.token = Some(state_folder::token(&data)?);
    // Another program may have the port of an earlier server by now.
    PublishedAddress::remove(&data)?;
    let tcp = match listen {
        Some(listen) => Some(TcpListener::bind(listen).await.map_err(in_file(listen))?),
        None => None,
    };
    let scheme = if is_encrypted { "https" } else { "http" };
    let address = tcp.as_ref().map(TcpListener::local_addr).transpose()?;
    let published = address.map(|address| PublishedAddress::write(&data, scheme, address)).transpose()?;
    #[cfg(unix)]
    let (listeners, socket) = {
        let path = state_folder::socket_path(&data);
        let local = LocalListener::bind(&path).map_err(|error| match error.kind() {
            ErrorKind::InvalidInput => Error::Usage(format!("{error}; name a shorter folder with --data")),
            _ => error.into(),
        })?;
        let listeners = Listeners::from(local);
        (tcp.into_iter().fold(listeners, Listeners::and_tcp), Some(path))
    };
    #[cfg(not(unix))]
    let (listeners, socket) = {
        let missing = || std::io::Error::from(ErrorKind::AddrNotAvailable);
        (tcp.map(Listeners::from).ok_or_else(missing)?, None::<PathBuf>)
    };
    let at = match (address, &socket) {
        (Some(address), _) => format!("{scheme}://{address}/acp"),
        (None, socket) => socket.iter().map(|path| path.display().to_string()).collect(),
    };
    // The server does not need its output, which may be closed, or full without a reader, or get no thread.
    let (socket, folder) = (socket.filter(|_| address.is_some()), data.clone());
    let _ = std::thread::Builder::new()
        .spawn(move || announce(&subject, &at, socket.as_deref(), &folder, address.is_some(), has_files));
    let stop = async {
        signals.next().await;
        let limit = args.drain;
        // As above: nobody may read it.
        let _ = std::thread::Builder::new().spawn(move || {
            writeln!(
                ui::stderr(),
                "stopping when no turn runs, in {limit} s at most; another signal stops at once"
            )
        });
        // New prompts are refused from now on. Another signal does not wait for the running ones.
        tokio::select! {
            () = server.drain(Duration::from_secs(args.drain)) => {}
            _ = signals.next() => {}
        }
    };
    // Dropped signals would end this process before the sessions have ended.
    let served = async {
        match &server {
            Server::Hub(hub) => hub.serve_http(listeners, options, stop).await,
            Server::Gateway(gateway) => gateway.serve_http(listeners, options, stop).await,
        }
    };
    match args.keep {
        Some(days) => tokio::select! {
            served = served => served?,
            never = server.remove_old(DAY * days) => match never {},
        },
        None => served.await?,
    }
    drop(published);
    Ok(Exit::Ok)
}

/// Returns the error about the server that has a folder open, with its address and its process.
async fn running(folder: &Path) -> Option<Error> {
    if !state_folder::is_running(folder) {
        return None;
    }
    let url = state_folder::server_url(folder).ok();
    #[cfg(unix)]
    let (socket, process) = {
        let path = state_folder::socket_path(folder);
        let stream = tokio::net::UnixStream::connect(&path).await.ok();
        let process = stream.and_then(|stream| stream.peer_cred().ok()?.pid());
        (Some(path.display().to_string()), process)
    };
    #[cfg(not(unix))]
    let (socket, process) = (None::<String>, None::<i32>);
    let places = url.into_iter().chain(socket).collect::<Vec<_>>().join(" and ");
    let process = process.map(|process| format!(" (process {process})")).unwrap_or_default();
    let state = format!("a server with this folder runs already at {places}{process}");
    let remedy = "stop it, or name another folder with --data";
    Some(std::io::Error::other(format!("{}: {state}; {remedy}", folder.display())).into())
}

/// Prints the ways to the server. `socket` is beside the address in `at`. `has_files` is absent for a hub, whose agents each have the setting.
fn announce(
    subject: &str,
    at: &str,
    socket: Option<&Path>,
    data: &Path,
    has_token: bool,
    has_files: Option<bool>,
) -> std::io::Result<()> {
    let mut out = ui::stdout();
    writeln!(out, "serving {subject} at {at}")?;
    if has_token {
        writeln!(out, "{DIM}token: {}{DIM:#}", state_folder::token_path(data).display())?;
    }
    if let Some(socket) = socket {
        writeln!(out, "{DIM}socket: {}{DIM:#}", socket.display())?;
    }
    match has_files {
        Some(true) => writeln!(out, "{DIM}files and terminals of clients: on{DIM:#}")?,
        Some(false) => writeln!(out, "{DIM}files and terminals of clients: off (--client-files){DIM:#}")?,
        None => {}
    }
    out.flush()
}

/// The most descriptors that are useful. Some programs, which the agents may be, look at each possible one.
#[cfg(unix)]
const DESCRIPTORS: u64 = 65_536;

/// Returns the connections without a token that leave most descriptors to the others.
#[cfg(unix)]
fn fitting_strangers(strangers: usize) -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let eighth = limit.and_then(|limit| usize::try_from(limit / 8).ok());
    eighth.map_or(strangers, |eighth| strangers.min(eighth))
}

/// Raises the limit of open files, because each session takes five. The usual limit of 1,024 is for programs that
/// use `select`.
#[cfg(unix)]
fn raise_descriptor_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};

    let mut limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.map_or(DESCRIPTORS, |maximum| maximum.min(DESCRIPTORS));
    if limit.current.is_some_and(|current| current < wanted) {
        limit.current = Some(wanted);
        // The server works with the lower limit, for fewer sessions.
        _ = setrlimit(Resource::Nofile, limit);
    }
}
