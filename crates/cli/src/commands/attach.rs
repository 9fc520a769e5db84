//! `duologue attach`.

use std::io::Write as _;
use std::path::PathBuf;

use duologue_client::Command as AgentCommand;
use duologue_http::Error as HttpError;
use duologue_hub::gateway::types::RefusalBody;
use duologue_hub::gateway::{AgentAttachment, AttachError, AttachmentEvent};
use duologue_hub::{Hub, HubSettings, SessionPolicy};

use crate::commands::AgentArgs;
use crate::commands::dialogue::published_keys;
#[cfg(unix)]
use crate::commands::guard;
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::server_args::{ServerArgs, TransportName};
use crate::signals::Signals;
use crate::ui::{self, DIM};
use crate::{runtime, state_folder};

const EXAMPLES: &str = "\
Examples:
  duologue attach --hub https://hub.example --token-file planner.key --id planner -- my-agent --acp
  duologue attach --id planner --capability plan -- my-agent";

/// Serve an agent to a hub that it dials, from behind a firewall
///
/// The hub (`duologue serve --config`) shows the agent in its registry and gives it sessions, messages and tasks. A lost
/// connection is replaced in the background. The sessions have a process each, unless `--shared`, and logs in the data folder.
/// They use folders inside the current one, or inside those of `--root`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct AttachArgs {
    /// The address of the hub, http, https, ws or wss, if it is not the one of this user on this machine
    #[arg(long = "hub", value_name = "URL", id = "url")]
    url: Option<String>,
    #[command(flatten)]
    server: ServerArgs,
    /// The id of the agent, if not that of the key's principal
    #[arg(long, value_name = "ID")]
    id: Option<String>,
    /// A capability for the registry. Can be repeated
    #[arg(long = "capability", value_name = "NAME")]
    capabilities: Vec<String>,
    /// A domain of its knowledge for the registry. Can be repeated
    #[arg(long = "domain", value_name = "NAME")]
    domains: Vec<String>,
    /// Publish the keys of this agent in a file, as that of `duologue peer dialogue --keys`, without secrets and
    /// private keys
    #[arg(long, value_name = "FILE", requires = "id")]
    keys: Option<PathBuf>,
    /// The tasks that run at a time
    #[arg(long, value_name = "COUNT", default_value_t = 4)]
    max_tasks: usize,
    /// The further tasks that wait for answers to their questions, or did. A task that asks leaves its place among
    /// `--max-tasks` for one of these. With 0 it keeps its place
    #[arg(long, value_name = "COUNT", default_value_t = 4)]
    max_asking_tasks: usize,
    /// The messages that are answered at a time
    #[arg(long, value_name = "COUNT", default_value_t = 4)]
    max_messages: usize,
    /// A folder that sessions may use, in the place of the current one. Can be repeated; tasks run in the first
    #[arg(long = "root", value_name = "DIR")]
    roots: Vec<PathBuf>,
    /// Use one process of the agent for all sessions
    #[arg(long)]
    shared: bool,
    /// The folder of the logs, if not one of the agent in the state folder of the user
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    #[command(flatten)]
    agent: AgentArgs,
}

pub(crate) fn run(args: AttachArgs) -> Result<Exit> {
    let runtime = runtime::multi_thread(2)?;
    let exit = runtime.block_on(attach(args));
    runtime.shutdown_background();
    exit
}

async fn attach(args: AttachArgs) -> Result<Exit> {
    args.agent.required()?;
    let mut signals = Signals::listen()?;
    let is_own_hub = args.url.is_none();
    let (url, options) = args.server.target(args.url.as_deref(), None, TransportName::Ws)?;
    let roots = match args.roots.as_slice() {
        [] => vec![std::env::current_dir()?],
        roots => roots.iter().map(std::path::absolute).collect::<std::io::Result<_>>()?,
    };
    let data = match args.data {
        Some(data) => data,
        // A hub of the same user has the folder `attached`.
        None => state_folder::of_user()?.join("attachments").join(args.id.as_deref().unwrap_or("agent")),
    };
    let mut attachment = AgentAttachment::new(&url, options);
    if let (Some(file), Some(id)) = (&args.keys, &args.id) {
        attachment.card.keys = published_keys(file, &format!("agent://{id}"))?;
    }
    attachment.agent = args.id;
    attachment.card.capabilities = args.capabilities;
    attachment.card.domains = args.domains;
    attachment.card.max_tasks = Some(args.max_tasks);
    attachment.card.max_asking_tasks = Some(args.max_asking_tasks);
    attachment.card.max_messages = Some(args.max_messages);
    attachment.card.cwd = roots.first().cloned();
    let agent = args.agent;
    // It is there, see above.
    let command = move || agent.given().unwrap_or_else(|| AgentCommand::new("false"));
    state_folder::prepare(&data)?;
    #[cfg(unix)]
    let processes = Some(guard::start(&data).await?);
    #[cfg(not(unix))]
    let processes = None;
    let mut settings = HubSettings::new(command, data);
    settings.processes = processes;
    settings.shared_process = args.shared;
    let mut policy = SessionPolicy::default();
    policy.roots = Some(roots);
    settings.policy = policy;
    let hub = Hub::open(settings)?;
    let ended = tokio::select! {
        refused = hub.attach(&attachment, |event| report(event, is_own_hub)) => refused.map_err(|error| refusal(&error)),
        _ = signals.next() => Ok(()),
    };
    hub.shut_down().await;
    drop(signals);
    ended.map(|()| Exit::Ok)
}

/// Returns the error that ends the command, with what to do.
fn refusal(error: &AttachError) -> Error {
    let AttachError::Connect(HttpError::Refused { status, message }) = error else {
        return Error::Start(error.to_string());
    };
    let refused = serde_json::from_str::<RefusalBody>(message);
    let message = refused.map_or_else(|_| format!("{message} (status {status})"), |refused| refused.message);
    let remedy = match status {
        400 if message.starts_with("name the agent") => "; `--id` names it",
        401 => "; `--token-file` names the file of the key",
        _ => "",
    };
    Error::Start(format!("the hub refused the agent: {message}{remedy}"))
}

fn report(event: AttachmentEvent, is_own_hub: bool) {
    let mut out = ui::stdout();
    let remedy = if is_own_hub { " (`--hub` names another hub)" } else { "" };
    let _ = match event {
        AttachmentEvent::Attached(agent) => writeln!(out, "attached as {}", ui::printable(&agent)),
        AttachmentEvent::Lost { reason, pause } => {
            let (reason, pause) = (ui::printable(&reason), pause.as_secs_f32());
            writeln!(out, "{DIM}not attached: {reason}; next attempt in {pause:.1} s{remedy}{DIM:#}")
        }
        _ => Ok(()),
    };
    let _ = out.flush();
}
