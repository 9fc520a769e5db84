//! `duologue connect`.

use std::path::PathBuf;

use duologue_http::{ConnectOptions, RemoteTransport, connect as open};
use duologue_proxy::{PathMap, Proxy};
use duologue_rpc::{Stdio, Transport};

use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::signals::Signals;
use crate::{remote_sessions, runtime, state_folder};

const EXAMPLES: &str = "\
Examples:
  duologue run \"hello\" -- duologue connect http://127.0.0.1:8931/acp
  duologue connect --map /home/me/project=/srv/project ws://127.0.0.1:8931/acp
In an editor's configuration of an agent: the command `duologue` with the arguments
  connect http://127.0.0.1:8931/acp";

/// Connect a client on stdio, such as an editor, to an agent behind `duologue serve`
///
/// It is an agent for the editor. A lost connection is replaced in the background: what was not delivered is sent again in
/// both directions, and the editor notices a pause only. After a restart of the server the sessions go on too; a turn that
/// ran has ended.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ConnectArgs {
    /// The file with the token, if not that of the server of this user: `~/.local/state/duologue/token`
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// The file with the certificates to trust for https and wss, instead of those of the system
    #[cfg(feature = "tls")]
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// Replace a folder of the client by one of the server in paths and file links, and back. Requests with other
    /// absolute paths are rejected
    #[arg(long = "map", value_name = "LOCAL=REMOTE", value_parser = map)]
    maps: Vec<(String, String)>,
    /// The transport: a WebSocket, HTTP with server-sent events, or a WebSocket if the server has one
    #[arg(long, value_name = "NAME", value_enum, default_value_t = TransportName::Auto)]
    transport: TransportName,
    /// The address of the server: http, https, ws or wss
    url: String,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum TransportName {
    Auto,
    Ws,
    Sse,
}

impl From<TransportName> for RemoteTransport {
    fn from(name: TransportName) -> Self {
        match name {
            TransportName::Auto => RemoteTransport::Auto,
            TransportName::Ws => RemoteTransport::WebSocket,
            TransportName::Sse => RemoteTransport::Events,
        }
    }
}

fn map(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((local, remote)) if local.starts_with('/') && remote.starts_with('/') => {
            Ok((local.into(), remote.into()))
        }
        _ => Err(format!("{text} are not two absolute folders: LOCAL=REMOTE")),
    }
}

/// Returns true if the host of an address is this machine.
fn is_loopback(url: &str) -> bool {
    let authority = url.split_once("://").map_or("", |(_, rest)| rest);
    let authority = authority.split(['/', '?', '#']).next().unwrap_or_default();
    let host = match authority.strip_prefix('[') {
        Some(rest) => rest.split_once(']').map_or("", |(host, _)| host),
        None => authority.split(':').next().unwrap_or_default(),
    };
    let is_address = host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
    !authority.contains('@') && (is_address || host.eq_ignore_ascii_case("localhost"))
}

pub(crate) fn run(args: ConnectArgs) -> Result<Exit> {
    let runtime = runtime::current_thread()?;
    let exit = runtime.block_on(connect(args));
    // A blocked read of a terminal is not waited for.
    runtime.shutdown_background();
    exit
}

async fn connect(args: ConnectArgs) -> Result<Exit> {
    let mut signals = Signals::listen()?;
    let token = match &args.token_file {
        Some(path) => Some(state_folder::read_token(path)?),
        // The server of this user listens on loopback addresses. Others must not receive its token.
        None if !is_loopback(&args.url) => None,
        None => state_folder::of_user()
            .and_then(|folder| state_folder::read_token(&state_folder::token_path(&folder)))
            .ok(),
    };
    let mut options = ConnectOptions::default();
    options.bearer_token = token;
    options.transport = args.transport.into();
    #[cfg(feature = "tls")]
    if let Some(path) = &args.ca_file {
        options.trust_pem_file(path).map_err(|error| Error::Usage(error.to_string()))?;
    }
    let (server, _link) =
        open(&args.url, options.clone()).await.map_err(|error| Error::Start(error.to_string()))?;
    let mut proxy = Proxy::new();
    if !args.maps.is_empty() {
        let maps = args.maps.iter().fold(PathMap::new(), |maps, (local, remote)| maps.map(local, remote));
        proxy = proxy.stage(maps.strict());
    }
    let stdio = Stdio::take()?;
    let (inner, outer) = Transport::memory();
    // Each ends the other.
    let relayed = async {
        let relay = remote_sessions::relay(outer, server, &args.url, &options);
        let (staged, relayed) = tokio::join!(proxy.run(stdio.transport, inner), relay);
        relayed.and(staged).map_err(|error| Error::Start(error.to_string()))
    };
    tokio::select! {
        relayed = relayed => relayed?,
        _ = signals.next() => {}
    }
    Ok(Exit::Ok)
}

#[cfg(test)]
mod tests {
    use super::is_loopback;

    #[test]
    fn only_servers_of_this_machine_receive_the_token_of_the_user() {
        for url in ["http://127.0.0.1:8931/acp", "ws://localhost", "wss://[::1]:1/acp", "http://127.1.2.3?x"]
        {
            assert!(is_loopback(url), "{url}");
        }
        for url in [
            "http://example.com/acp",
            "http://127.0.0.1.example.com/",
            "http://127.0.0.1@example.com/",
            "http://localhost:x@example.com/",
            "https://example.com/?127.0.0.1",
            "wss://[2001:db8::1]/",
            "127.0.0.1",
        ] {
            assert!(!is_loopback(url), "{url}");
        }
    }
}
