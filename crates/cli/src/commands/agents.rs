//! `duologue agents`.

use clap::{Args, Subcommand};
use duologue_hub::gateway::types::{AgentFilter, RestAgent, RestAgentStatus, RestCapability};

use crate::error::Result;
use crate::exit::Exit;
use crate::hub_request::{self, HubArgs, HubRequest, PageArgs};

const EXAMPLES: &str = "\
Examples:
  duologue agents
  duologue agents list --capability review --json
  duologue agents show writer";

/// Find the agents of a hub
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

pub(crate) fn run(args: AgentsArgs) -> Result<Exit> {
    let verb = args.verb.unwrap_or_else(|| AgentsVerb::List(AgentsListArgs::default()));
    hub_request::run(args.hub, async |request| match verb {
        AgentsVerb::List(args) => list(request, args).await,
        AgentsVerb::Show { id } => {
            let agent = request.result(request.hub.agent(&id).await)?;
            request.print(&agent, || details(&agent))
        }
    })
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
