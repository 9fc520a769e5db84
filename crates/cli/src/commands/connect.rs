//! `duologue connect`.

use std::path::PathBuf;
use std::time::Duration;

use duologue_proxy::PathMap;
use duologue_rpc::{InputWatch, Stdio};
use tokio::sync::oneshot;

use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::files;
use crate::remote_sessions::{self, RelaySettings};
use crate::runtime;
use crate::server_args::{ServerArgs, TransportName, agent_url, explained};
use crate::signals::Signals;

const EXAMPLES: &str = "\
Examples:
  duologue run \"hello\" -- duologue connect
  duologue connect --map /home/me/project=/srv/project ws://127.0.0.1:8931/acp
In an editor's configuration of an agent: the command `duologue` with the argument
  connect";

/// Connect a client on stdio, such as an editor, to an agent behind `duologue serve`
///
/// Without an address it uses the socket in the data folder of the server, which only this user can open.
///
/// It is an agent for the editor. A lost connection is replaced in the background: what was not delivered is sent again in
/// both directions, and the editor notices a pause only. After a restart of the server the sessions go on too; a turn that
/// ran has ended.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ConnectArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// Replace a folder of the client by one of the server in paths and file links, and back. Requests with other paths
    /// are rejected
    #[arg(long = "map", value_name = "LOCAL=REMOTE", value_parser = map)]
    maps: Vec<(String, String)>,
    /// The transport: a WebSocket, HTTP with server-sent events, or a WebSocket if the server has one
    #[arg(long, value_name = "NAME", value_enum, default_value_t = TransportName::Auto)]
    transport: TransportName,
    /// Let the server use the files and terminals of the client. Without it `connect` answers such requests itself, with an
    /// error, and tells the server that the client has neither
    #[arg(long)]
    allow_files: bool,
    /// Continue a session whose conversation the agent has lost without the conversation, after the error `context_lost`
    #[arg(long)]
    fresh: bool,
    /// Wait this long for a server that does not answer yet. A server that refuses the connection is not waited for
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    wait: u64,
    /// Try this long to get a lost connection back. A server keeps it for 600 seconds, and the sessions for longer
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    resume_time: u64,
    /// The data folder of the server, if not that of the user: `~/.local/state/duologue`, or `duologue` in $XDG_STATE_HOME
    #[arg(long, value_name = "DIR", conflicts_with = "token_file")]
    data: Option<PathBuf>,
    /// The agent of a hub, if not its first one
    #[arg(long, value_name = "ID", conflicts_with = "url", value_parser = agent_id)]
    agent: Option<String>,
    /// The address of the server, http, https, ws or wss, if it is not the one of this user on this machine
    url: Option<String>,
}

fn agent_id(text: &str) -> Result<String, String> {
    let is_id = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    if text.is_empty() || !text.bytes().all(is_id) {
        return Err("an id has letters, digits and hyphens".to_owned());
    }
    Ok(text.to_owned())
}

fn map(text: &str) -> Result<(String, String), String> {
    files::folder_pair(text, "LOCAL=REMOTE")
}

pub(crate) fn run(args: ConnectArgs) -> Result<Exit> {
    let runtime = runtime::current_thread()?;
    let ended = runtime.block_on(connect(args));
    let error = ended.as_ref().err().map(|error| error as &dyn std::fmt::Display);
    runtime.block_on(remote_sessions::end_log(error));
    let exit = ended.unwrap_or_else(|error| error.exit());
    // A blocked read of a terminal is not waited for.
    runtime.shutdown_background();
    Ok(exit)
}

async fn connect(args: ConnectArgs) -> Result<Exit> {
    let mut signals = Signals::listen()?;
    let (mut url, mut options) =
        args.server.target(args.url.as_deref(), args.data.as_deref(), args.transport)?;
    if let Some(agent) = &args.agent {
        url = agent_url(&url, agent);
    }
    options.open_time = Duration::from_secs(args.wait);
    options.resume_time = Duration::from_secs(args.resume_time);
    options.on_retry = Some(remote_sessions::first_failure(&options));
    let stdio = Stdio::take()?;
    let maps = args.maps.iter().fold(PathMap::new(), |maps, (local, remote)| maps.map(local, remote));
    let settings = RelaySettings {
        allows_files: args.allow_files,
        fresh: args.fresh,
        paths: (!maps.is_empty()).then(|| maps.strict()),
        ..RelaySettings::default()
    };
    let input_end = end_of_input(stdio.end)?;
    let relayed = async {
        let relayed = remote_sessions::relay(stdio.transport, input_end, &url, &options, settings).await;
        relayed.map_err(|error| {
            let known = error.get_ref().and_then(|error| error.downcast_ref());
            Error::Start(known.map_or_else(|| error.to_string(), |known| explained(known, &options)))
        })
    };
    match signals.interrupt(relayed).await {
        Ok(relayed) => relayed.map(|()| Exit::Ok),
        Err(signal) => Ok(Exit::Signal(signal)),
    }
}

/// Returns a future that is ready when the client has closed its end, also while nothing reads the input.
fn end_of_input(watch: InputWatch) -> Result<impl Future<Output = ()>> {
    let (ended, end) = oneshot::channel();
    // A launcher may leave while the client goes on.
    let watch = watch.without_parent();
    std::thread::Builder::new().name("connect-stdin-end".into()).spawn(move || {
        watch.wait();
        // The relay may have ended before.
        let _ = ended.send(());
    })?;
    Ok(async {
        if end.await.is_err() {
            std::future::pending().await
        }
    })
}
