//! `duologue agents`.

use std::time::Duration;

use clap::{Args, Subcommand};
use duologue_hub::gateway::types::{
    AgentFilter, RestAgent, RestAgentStatus, RestCapability, RestId, RestRegistration, RestUrl,
};

use crate::error::Result;
use crate::exit::Exit;
use crate::hub_request::{self, HubArgs, HubRequest, PageArgs};
use crate::ui;

const EXAMPLES: &str = "\
Examples:
  duologue agents
  duologue agents list --capability review --json
  duologue agents show writer
  duologue agents register translator --capability translate
  duologue agents heartbeat translator --every 20";

/// Find the agents of a hub, and register others
///
/// The hub is one of `duologue serve --config`, on this machine if `--hub` names no other.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct AgentsArgs {
    #[command(flatten)]
    hub: HubArgs,
    #[command(subcommand)]
    verb: Option<AgentsVerb>,
}

#[derive(Subcommand)]
enum AgentsVerb {
    /// List the agents that match. The default
    List(AgentsListArgs),
    /// Show an agent
    Show {
        /// The id of the agent
        id: String,
    },
    /// Register an agent that takes its messages from the hub, or replace its entry. It is offline a minute after its last
    /// heartbeat
    Register(AgentsRegisterArgs),
    /// Send a sign of life of an agent
    Heartbeat(AgentsHeartbeatArgs),
    /// Remove the entry of an agent that was registered
    Remove {
        /// The id of the agent
        id: String,
    },
}

#[derive(Args, Default)]
struct AgentsListArgs {
    /// Only agents with this capability
    #[arg(long, value_name = "NAME")]
    capability: Option<String>,
    /// Only agents of this domain
    #[arg(long, value_name = "NAME")]
    domain: Option<String>,
    /// Only agents with this tag
    #[arg(long, value_name = "NAME")]
    tag: Option<String>,
    /// Only agents of this provider
    #[arg(long, value_name = "NAME")]
    provider: Option<String>,
    /// Also agents that are offline
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    page: PageArgs,
}

#[derive(Args)]
struct AgentsRegisterArgs {
    /// The id of the agent
    id: String,
    /// A capability; give the option several times for others
    #[arg(long = "capability", value_name = "NAME")]
    capabilities: Vec<String>,
    /// A domain of its knowledge
    #[arg(long = "domain", value_name = "NAME")]
    domains: Vec<String>,
    /// Another word by which it is found
    #[arg(long = "tag", value_name = "NAME")]
    tags: Vec<String>,
    /// The provider
    #[arg(long, value_name = "NAME")]
    provider: Option<String>,
    /// The version of the agent
    #[arg(long = "agent-version", value_name = "TEXT")]
    version: Option<String>,
    /// The address of the agent, if it does not take its messages from the hub
    #[arg(long, value_name = "URL")]
    endpoint: Option<String>,
}

#[derive(Args)]
struct AgentsHeartbeatArgs {
    /// The id of the agent
    id: String,
    /// The state of the agent
    #[arg(long, value_name = "STATE", value_enum, default_value_t = AgentStateName::Online)]
    status: AgentStateName,
    /// Repeat it after so many seconds, until the command is ended
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3600))]
    every: Option<u64>,
}

/// The name of an agent's state on the command line.
#[derive(Clone, Copy, clap::ValueEnum)]
enum AgentStateName {
    Online,
    Busy,
    Offline,
}

impl From<AgentStateName> for RestAgentStatus {
    fn from(name: AgentStateName) -> Self {
        match name {
            AgentStateName::Online => RestAgentStatus::Online,
            AgentStateName::Busy => RestAgentStatus::Busy,
            AgentStateName::Offline => RestAgentStatus::Offline,
        }
    }
}

pub(crate) fn run(args: AgentsArgs) -> Result<Exit> {
    let verb = args.verb.unwrap_or_else(|| AgentsVerb::List(AgentsListArgs::default()));
    hub_request::run(args.hub, async |request| match verb {
        AgentsVerb::List(args) => list(request, args).await,
        AgentsVerb::Show { id } => {
            let agent = request.result(request.hub.agent(&id).await)?;
            request.print(&agent, || details(&agent))
        }
        AgentsVerb::Register(args) => register(request, args).await,
        AgentsVerb::Heartbeat(args) => heartbeat(request, &args).await,
        AgentsVerb::Remove { id } => {
            request.result(request.hub.unregister(&id).await)?;
            request.print(&serde_json::json!({"agentId": id}), || format!("{id}: removed"))
        }
    })
}

async fn register(request: &HubRequest, args: AgentsRegisterArgs) -> Result<Exit> {
    let ids = |names: Vec<String>| names.into_iter().map(RestId).collect::<Vec<_>>();
    let mut entry = RestRegistration::default();
    entry.capabilities = ids(args.capabilities).into_iter().map(RestCapability::Name).collect();
    (entry.domains, entry.tags) = (ids(args.domains), ids(args.tags));
    (entry.metadata.provider, entry.metadata.version) = (args.provider, args.version);
    entry.endpoint = args.endpoint.map(RestUrl);
    let agent = request.result(request.hub.register(&args.id, &entry).await)?;
    request.print(&agent, || details(&agent))
}

/// Sends heartbeats. A hub that is lost is tried again at the next one.
async fn heartbeat(request: &HubRequest, args: &AgentsHeartbeatArgs) -> Result<Exit> {
    let mut is_first = true;
    loop {
        match request.hub.heartbeat(&args.id, args.status.into()).await {
            Err(error) if error.is_temporary() && !is_first => ui::print_error(&error),
            beaten => {
                let agent = request.result(beaten)?;
                if is_first {
                    request.print(&agent, || format!("{}: {}", agent.agent_id, status_of(&agent)))?;
                }
            }
        }
        is_first = false;
        let Some(seconds) = args.every else { return Ok(Exit::Ok) };
        tokio::time::sleep(Duration::from_secs(seconds)).await;
    }
}

async fn list(request: &HubRequest, args: AgentsListArgs) -> Result<Exit> {
    let mut filter = AgentFilter::default();
    (filter.offset, filter.limit) = args.page.place();
    (filter.capability, filter.domain) = (args.capability, args.domain);
    (filter.tag, filter.provider) = (args.tag, args.provider);
    let listed = match args.all {
        true => request.hub.registry(&filter).await,
        false => request.hub.agents(&filter).await,
    };
    let listed = request.result(listed)?;
    request.print_page(&listed.agents, listed.pagination, |agent| {
        let status = status_of(agent).to_owned();
        vec![agent.agent_id.clone(), status, agent.endpoint.clone(), capabilities(agent)]
    })
}

fn status_of(agent: &RestAgent) -> &'static str {
    match agent.status {
        RestAgentStatus::Online => "online",
        RestAgentStatus::Busy => "busy",
        RestAgentStatus::Offline => "offline",
    }
}

fn capabilities(agent: &RestAgent) -> String {
    agent.capabilities.iter().map(RestCapability::name).collect::<Vec<_>>().join(", ")
}

fn details(agent: &RestAgent) -> String {
    let mut text = format!("{}: {}\nendpoint: {}\n", agent.agent_id, status_of(agent), agent.endpoint);
    for (name, value) in [
        ("capabilities", capabilities(agent)),
        ("domains", agent.domains.join(", ")),
        ("tags", agent.tags.join(", ")),
        ("provider", agent.metadata.provider.clone().unwrap_or_default()),
        ("version", agent.metadata.version.clone().unwrap_or_default()),
    ] {
        if !value.is_empty() {
            text.push_str(&format!("{name}: {value}\n"));
        }
    }
    text
}
