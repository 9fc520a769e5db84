//! Finding agents, and their cards.

use std::collections::BTreeMap;

use duologue_store::{AgentQuery, RegisteredAgent, RegistryStatus, Store};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use crate::gateway::Refusal;
use crate::gateway::rest::request::{PathOf, QueryOf, RestCaller, RestReply};
use crate::gateway::rest::sent_reply::SentReply;
use crate::gateway::rest::values::{
    AgentTarget, PageLimit, PageOffset, Pagination, RestId, RestMetadata, RestNumber, object, object_or_null,
};

/// The member of a card with the capabilities that have more than a name.
const CAPABILITIES: &str = "capabilities";

/// The state of an agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = AgentStatus)]
pub enum RestAgentStatus {
    /// It accepts work.
    #[default]
    Online,
    /// It is there and accepts no more work now.
    Busy,
    /// It is not there, or has sent no heartbeat for too long.
    Offline,
}

impl From<RegistryStatus> for RestAgentStatus {
    fn from(status: RegistryStatus) -> Self {
        match status {
            RegistryStatus::Online => RestAgentStatus::Online,
            RegistryStatus::Busy => RestAgentStatus::Busy,
            _ => RestAgentStatus::Offline,
        }
    }
}

impl From<RestAgentStatus> for RegistryStatus {
    fn from(status: RestAgentStatus) -> Self {
        match status {
            RestAgentStatus::Online => RegistryStatus::Online,
            RestAgentStatus::Busy => RegistryStatus::Busy,
            RestAgentStatus::Offline => RegistryStatus::Offline,
        }
    }
}

/// A capability of an agent: its name, or its name with more.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(untagged, expecting = "use a name, or an object with a `name`")]
#[schema(as = Capability)]
pub enum RestCapability {
    /// The name.
    Name(RestId),
    /// The name with a description.
    Detailed(#[serde(deserialize_with = "object")] RestCapabilityDetails),
}

/// A capability with its description.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = CapabilityDetails)]
#[non_exhaustive]
pub struct RestCapabilityDetails {
    /// The name.
    pub name: RestId,
    /// The description for a reader.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The JSON Schema of its parameters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<RestMetadata>,
}

impl RestCapability {
    /// Returns the name.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            RestCapability::Name(name) => &name.0,
            RestCapability::Detailed(details) => &details.name.0,
        }
    }
}

/// The card of an agent. Members that are not listed are kept and returned.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = AgentMetadata)]
#[non_exhaustive]
pub struct RestAgentMetadata {
    /// The version of the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The name of its provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// The MIME types that it accepts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub supported_mime_types: Option<Vec<String>>,
    /// The most tasks that it works on at a time.
    #[serde(default, deserialize_with = "whole_number", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>, maximum = 4_294_967_295_u64)]
    pub max_concurrent_tasks: Option<u32>,
    /// The mean time of a response in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub average_response_time: Option<f64>,
    /// The price.
    #[serde(default, deserialize_with = "object_or_null", skip_serializing_if = "Option::is_none")]
    pub pricing: Option<RestPricing>,
    /// Other members, such as `contact` and `keys`.
    #[serde(flatten)]
    pub other: BTreeMap<String, Value>,
}

/// Parses a number as [`RestNumber`] does, whose fraction may be zero.
fn whole_number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    let Some(number) = Option::<RestNumber>::deserialize(deserializer)? else { return Ok(None) };
    let too_large = |_| D::Error::custom(format!("use a whole number, at most {}", u32::MAX));
    u32::try_from(number.0).map(Some).map_err(too_large)
}

/// The price of an agent.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = Pricing)]
#[non_exhaustive]
pub struct RestPricing {
    /// The unit that is paid for.
    pub model: RestPricingModel,
    /// The price of a unit.
    pub rate: f64,
    /// The currency, such as `EUR`.
    pub currency: String,
}

/// The unit that is paid for.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = PricingModel)]
pub enum RestPricingModel {
    /// Each request.
    PerRequest,
    /// Each minute of work.
    PerMinute,
    /// A fixed price for a time.
    Subscription,
}

/// An agent.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Agent)]
#[non_exhaustive]
pub struct RestAgent {
    /// The id.
    pub agent_id: String,
    /// The address: a path of this server, or that of the agent itself.
    pub endpoint: String,
    /// Its capabilities.
    pub capabilities: Vec<RestCapability>,
    /// The state.
    pub status: RestAgentStatus,
    /// The domains of its knowledge.
    pub domains: Vec<String>,
    /// Other words by which it is found.
    pub tags: Vec<String>,
    /// The time of the last sign of life, in milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_seen: Option<u64>,
    /// The card.
    pub metadata: RestAgentMetadata,
}

/// The capabilities of an agent, with its card.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = AgentCapabilities)]
#[non_exhaustive]
pub struct RestAgentCapabilities {
    /// The id of the agent.
    pub agent_id: String,
    /// Its capabilities.
    pub capabilities: Vec<RestCapability>,
    /// The card.
    pub metadata: RestAgentMetadata,
}

/// A page of agents, in order of their ids.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = AgentList)]
#[non_exhaustive]
pub struct RestAgentList {
    /// The agents.
    pub agents: Vec<RestAgent>,
    /// The place of the page.
    pub pagination: Pagination,
}

impl From<RegisteredAgent> for RestAgent {
    fn from(agent: RegisteredAgent) -> Self {
        let (capabilities, metadata) = card(&agent);
        RestAgent {
            agent_id: agent.id,
            endpoint: agent.endpoint,
            capabilities,
            status: agent.status.into(),
            domains: agent.domains,
            tags: agent.tags,
            last_seen: agent.last_seen,
            metadata,
        }
    }
}

/// Returns the capabilities and the metadata of an entry.
fn card(agent: &RegisteredAgent) -> (Vec<RestCapability>, RestAgentMetadata) {
    let mut card: BTreeMap<String, Value> = agent.card.parse().unwrap_or_default();
    let detailed = card.remove(CAPABILITIES).and_then(|detailed| serde_json::from_value(detailed).ok());
    let names = || agent.capabilities.iter().map(|name| RestCapability::Name(RestId(name.clone()))).collect();
    let capabilities = detailed.unwrap_or_else(names);
    let mut metadata: RestAgentMetadata = serde_json::from_value(Value::from_iter(card.clone()))
        .unwrap_or_else(|_| {
            // A card of another origin with members of other types.
            RestAgentMetadata { other: card, ..RestAgentMetadata::default() }
        });
    metadata.provider = metadata.provider.or_else(|| agent.provider.clone());
    (capabilities, metadata)
}

/// Returns the members of the card for the store.
pub(crate) fn card_members(
    capabilities: &[RestCapability],
    metadata: &RestAgentMetadata,
) -> serde_json::Result<Value> {
    let mut card = serde_json::to_value(metadata)?;
    card[CAPABILITIES] = serde_json::to_value(capabilities)?;
    Ok(card)
}

/// Filters of agents, all of which have to match, and the place of a page.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
#[non_exhaustive]
pub struct AgentFilter {
    /// The name of a capability.
    pub capability: Option<String>,
    /// A domain.
    pub domain: Option<String>,
    /// A tag.
    pub tag: Option<String>,
    /// The name of a provider.
    pub provider: Option<String>,
    /// A state. Without it `GET /agents` leaves out agents that are offline.
    pub status: Option<RestAgentStatus>,
    /// The number of entries in front of the page.
    #[param(inline)]
    pub offset: PageOffset,
    /// The most entries of the page.
    #[param(inline)]
    pub limit: PageLimit,
}

/// Lists the agents that the caller can find, without those that are offline.
#[utoipa::path(
    get, path = "/agents", tag = "agents", params(AgentFilter),
    responses((status = 200, body = RestAgentList, description = "A page of agents.")),
)]
pub(crate) async fn list_agents(
    caller: RestCaller,
    QueryOf(filter): QueryOf<AgentFilter>,
) -> Result<SentReply, Refusal> {
    list(caller, filter, false).await
}

/// Lists the entries that match and that the caller can find.
pub(crate) async fn list(
    caller: RestCaller,
    filter: AgentFilter,
    with_offline: bool,
) -> Result<SentReply, Refusal> {
    let admission = caller.open_page().await?;
    let (rest, principal) = (caller.rest.clone(), caller.principal.clone());
    let listed = move |store: &dyn Store| matching(store, &caller, filter, with_offline);
    let listed = rest.read_list(&principal.id, listed).await?;
    Ok(admission.until_sent(RestReply::ok(&listed)?))
}

fn matching(
    store: &dyn Store,
    caller: &RestCaller,
    filter: AgentFilter,
    with_offline: bool,
) -> duologue_store::Result<RestAgentList> {
    let AgentFilter { capability, domain, tag, provider, status, offset, limit } = filter;
    let leaves_out_offline = status.is_none() && !with_offline;
    let mut query = AgentQuery::default();
    (query.capability, query.domain, query.tag, query.provider) = (capability, domain, tag, provider);
    query.status = status.map(RegistryStatus::from);
    query.limit = u64::MAX;
    let (offset, limit) = (offset.0, limit.0);
    let (mut agents, mut bytes, mut total) = (Vec::new(), 0, 0);
    // The permissions are not in the store, so the page is cut from the entries that the caller can find.
    loop {
        let page = store.agents(&query)?;
        let count = page.items.len() as u64;
        for agent in page.items {
            let is_left_out = leaves_out_offline && agent.status == RegistryStatus::Offline;
            if is_left_out || !caller.finds(&agent.id) {
                continue;
            }
            if total >= offset && total - offset < limit {
                bytes += agent.card.as_str().len();
                if agents.is_empty() || bytes <= store.settings().page_bytes {
                    agents.push(agent.into());
                }
            }
            total += 1;
        }
        query.offset += count;
        if count == 0 || query.offset >= page.total {
            return Ok(RestAgentList { agents, pagination: Pagination { offset, limit, total } });
        }
    }
}

/// Returns an agent.
#[utoipa::path(
    get, path = "/agents/{agentId}", tag = "agents", params(AgentTarget),
    responses((status = 200, body = RestAgent, description = "The agent.")),
)]
pub(crate) async fn get_agent(
    caller: RestCaller,
    PathOf(AgentTarget { agent_id }): PathOf<AgentTarget>,
) -> Result<RestReply, Refusal> {
    RestReply::ok(&RestAgent::from(entry(&caller, agent_id).await?))
}

/// Returns the capabilities of an agent, with its card.
#[utoipa::path(
    get, path = "/agents/{agentId}/capabilities", tag = "agents", params(AgentTarget),
    responses((status = 200, body = RestAgentCapabilities, description = "The capabilities and the card.")),
)]
pub(crate) async fn get_capabilities(
    caller: RestCaller,
    PathOf(AgentTarget { agent_id }): PathOf<AgentTarget>,
) -> Result<RestReply, Refusal> {
    let agent = entry(&caller, agent_id).await?;
    let (capabilities, metadata) = card(&agent);
    RestReply::ok(&RestAgentCapabilities { agent_id: agent.id, capabilities, metadata })
}

/// Returns an entry of the registry that the caller can find. The store is read in any case, so that the time does
/// not tell if there is one.
async fn entry(caller: &RestCaller, agent: String) -> Result<RegisteredAgent, Refusal> {
    let is_visible = caller.finds(&agent);
    let found = caller.gateway().in_store(move |store| store.agent(&agent)).await?;
    found.filter(|_| is_visible).ok_or_else(|| Refusal::not_found("agent"))
}
