//! The registry of agents: all entries, and the changes of those that agents have made.

use std::fmt::Display;

use axum::http::StatusCode;
use duologue_store::{
    JsonText, RegisteredAgent, RegistrySource, RegistryStatus, Store, StoreBatch, StoreChange,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::gateway::Refusal;
use crate::gateway::access::Action;
use crate::gateway::config::is_agent_id;
use crate::gateway::hosted::{KEYS, check_keys};
use crate::gateway::rest::agents::{
    AgentFilter, RestAgent, RestAgentList, RestAgentMetadata, RestAgentStatus, RestCapability, card_members,
    list,
};
use crate::gateway::rest::request::{
    JsonBody, OptionalBody, PathOf, QueryOf, RestCaller, RestReply, known_path,
};
use crate::gateway::rest::sent_reply::SentReply;
use crate::gateway::rest::values::{AgentTarget, JsonObject, RestId, RestUrl, conflict, object};

/// The entry of an agent, as its program registers it.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Registration)]
#[non_exhaustive]
pub struct RestRegistration {
    /// The address of the agent. Without one it takes its messages from this server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<RestUrl>,
    /// Its capabilities.
    #[serde(default)]
    #[schema(max_items = 64)]
    pub capabilities: Vec<RestCapability>,
    /// The domains of its knowledge.
    #[serde(default)]
    #[schema(max_items = 64)]
    pub domains: Vec<RestId>,
    /// Other words by which it is found.
    #[serde(default)]
    #[schema(max_items = 64)]
    pub tags: Vec<RestId>,
    /// The state. `online` by default.
    #[serde(default)]
    pub status: RestAgentStatus,
    /// The card.
    #[serde(default, deserialize_with = "object")]
    pub metadata: RestAgentMetadata,
}

/// A sign of life of an agent.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[schema(as = Heartbeat)]
#[non_exhaustive]
pub struct RestHeartbeat {
    /// The state. `online` by default.
    #[serde(default)]
    pub status: RestAgentStatus,
}

/// Lists all entries that the caller can find, with those that are offline.
#[utoipa::path(
    get, path = "/registry/agents", tag = "registry", params(AgentFilter),
    responses((status = 200, body = RestAgentList, description = "A page of agents.")),
)]
pub(crate) async fn list_registry(
    caller: RestCaller,
    QueryOf(filter): QueryOf<AgentFilter>,
) -> Result<SentReply, Refusal> {
    list(caller, filter, true).await
}

/// A change of an entry.
#[derive(Clone, Copy, PartialEq, Eq)]
enum EntryChange {
    Update,
    Remove,
}

/// Returns an entry that may be changed. `Err` has the reason.
fn changeable(
    store: &dyn Store,
    agent: &str,
    change: EntryChange,
) -> duologue_store::Result<Result<Option<RegisteredAgent>, Refusal>> {
    let found = store.agent(agent)?;
    Ok(match found {
        Some(entry) if entry.source == RegistrySource::Config => {
            Err(conflict("the agent is in the configuration of the server; change it there"))
        }
        // Its state would be that of a connection which is not there.
        Some(entry) if entry.source == RegistrySource::Attached && change == EntryChange::Update => {
            Err(conflict(
                "the agent is one that attaches, and its connection alone changes its entry; to register it over REST, end its program and remove the entry first",
            ))
        }
        Some(entry)
            if entry.source == RegistrySource::Attached && entry.status != RegistryStatus::Offline =>
        {
            Err(conflict("the agent is attached, and the server keeps its entry; end its program first"))
        }
        found => Ok(found),
    })
}

/// Checks that an entry may be changed and belongs to an owner, or that all do.
fn require_own(
    store: &dyn Store,
    agent: &str,
    owner: Option<&String>,
    change: EntryChange,
) -> duologue_store::Result<Result<(), Refusal>> {
    Ok(changeable(store, agent, change)?.and_then(|entry| {
        let is_own = entry.is_some_and(|entry| owner.is_none_or(|owner| *owner == entry.owner));
        is_own.then_some(()).ok_or_else(|| Refusal::not_found("agent"))
    }))
}

fn require_act(caller: &RestCaller, agent: &str) -> Result<(), Refusal> {
    caller.gateway().permit(&caller.principal, Action::Act, agent)
}

/// Registers an agent, or replaces its entry. It is offline if no heartbeat follows for a minute.
#[utoipa::path(
    put, path = "/registry/agents/{agentId}", tag = "registry", request_body = RestRegistration,
    params(("agentId" = String, Path, min_length = 1, max_length = 64, pattern = r"^(\.{3,}|\.*[A-Za-z0-9_-][A-Za-z0-9._-]*)$", description = "The id of the agent.")),
    responses(
        (status = 200, body = RestAgent, description = "The entry was replaced."),
        (status = 201, body = RestAgent, description = "The agent was registered."),
        (status = 409, body = crate::gateway::rest::RefusalBody, description = "The agent is in the configuration of the server, is one that attaches, or belongs to another principal."),
    ),
)]
pub(crate) async fn put_agent(
    caller: RestCaller,
    PathOf(AgentTarget { agent_id }): PathOf<AgentTarget>,
    body: JsonBody<RestRegistration>,
) -> Result<RestReply, Refusal> {
    require_act(&caller, &agent_id)?;
    if !is_agent_id(&agent_id) {
        return Err(Refusal::invalid("agentId: use 1 to 64 letters, digits, `.`, `_` and `-`"));
    }
    let RestRegistration { endpoint, capabilities, domains, tags, status, metadata } = body.value;
    if let Some(keys) = metadata.other.get(KEYS) {
        let refused =
            |place: &str, why: &dyn Display| Refusal::invalid(format!("metadata.{KEYS}{place}: {why}"));
        let keys: Vec<JsonObject<_>> = serde_path_to_error::deserialize(keys)
            .map_err(|error| refused(&known_path(error.path()).unwrap_or_default(), error.inner()))?;
        let keys: Vec<_> = keys.into_iter().map(|JsonObject(key)| key).collect();
        check_keys(&keys).map_err(|why| refused("", &why))?;
    }
    let endpoint = endpoint.map_or_else(|| format!("/agents/{agent_id}"), |endpoint| endpoint.0);
    let time = caller.gateway().time();
    let mut entry = RegisteredAgent::new(&agent_id, caller.id(), RegistrySource::Rest, endpoint);
    entry.card = JsonText::of(&card_members(&capabilities, &metadata).unwrap_or_default())?;
    entry.capabilities = capabilities.iter().map(|capability| capability.name().to_owned()).collect();
    entry.domains = domains.into_iter().map(|domain| domain.0).collect();
    entry.tags = tags.into_iter().map(|tag| tag.0).collect();
    entry.provider = metadata.provider.filter(|provider| !provider.is_empty());
    entry.status = status.into();
    entry.last_seen = Some(time.wall);
    let is_admin = caller.principal.is_admin();
    let put = move |store: &dyn Store| {
        let existing = match changeable(store, &entry.id, EntryChange::Update)? {
            Ok(existing) => existing,
            Err(refusal) => return Ok(Err(refusal)),
        };
        // An administrator changes the entry of another, who stays its owner.
        if let Some(existing) = existing.as_ref().filter(|_| is_admin) {
            entry.owner.clone_from(&existing.owner);
        }
        store.apply(StoreBatch::new(time).with(StoreChange::PutAgent(entry.clone())))?;
        Ok(Ok((existing.is_some(), store.agent(&entry.id)?.unwrap_or(entry))))
    };
    let (has_replaced, entry) = caller.gateway().in_store(put).await??;
    let status = if has_replaced { StatusCode::OK } else { StatusCode::CREATED };
    Ok(RestReply::new(status, &RestAgent::from(entry))?.at(&["agents", &agent_id]))
}

/// Removes the entry of an agent. Its inbox stays, and its tasks that have not ended fail with `agent_removed`.
#[utoipa::path(
    delete, path = "/registry/agents/{agentId}", tag = "registry", params(AgentTarget),
    responses(
        (status = 204, description = "The entry was removed."),
        (status = 409, body = crate::gateway::rest::RefusalBody, description = "The agent is in the configuration of the server, or is attached."),
    ),
)]
pub(crate) async fn remove_agent(
    caller: RestCaller,
    PathOf(AgentTarget { agent_id }): PathOf<AgentTarget>,
) -> Result<StatusCode, Refusal> {
    require_act(&caller, &agent_id)?;
    let time = caller.gateway().time();
    let owner = owner_filter(&caller);
    let remove = move |store: &dyn Store| {
        if let Err(refusal) = require_own(store, &agent_id, owner.as_ref(), EntryChange::Remove)? {
            return Ok(Err(refusal));
        }
        store.apply(StoreBatch::new(time).with(StoreChange::RemoveAgent { agent: agent_id }))?;
        Ok(Ok(StatusCode::NO_CONTENT))
    };
    caller.gateway().in_store(remove).await?
}

/// Records a sign of life of an agent.
#[utoipa::path(
    post, path = "/registry/agents/{agentId}/heartbeat", tag = "registry", params(AgentTarget),
    request_body(content = Option<RestHeartbeat>),
    responses(
        (status = 200, body = RestAgent, description = "The entry."),
        (status = 409, body = crate::gateway::rest::RefusalBody, description = "The agent is in the configuration of the server or is one that attaches, so the server keeps its state."),
    ),
)]
pub(crate) async fn send_heartbeat(
    caller: RestCaller,
    PathOf(AgentTarget { agent_id }): PathOf<AgentTarget>,
    OptionalBody(beat): OptionalBody<RestHeartbeat>,
) -> Result<RestReply, Refusal> {
    require_act(&caller, &agent_id)?;
    let time = caller.gateway().time();
    let owner = owner_filter(&caller);
    let status = beat.status.into();
    let record = move |store: &dyn Store| {
        if let Err(refusal) = require_own(store, &agent_id, owner.as_ref(), EntryChange::Update)? {
            return Ok(Err(refusal));
        }
        let change = StoreChange::Heartbeat { agent: agent_id.clone(), status };
        store.apply(StoreBatch::new(time).accepted().with(change))?;
        Ok(store.agent(&agent_id)?.ok_or_else(|| Refusal::not_found("agent")))
    };
    let entry = caller.gateway().in_store(record).await??;
    RestReply::ok(&RestAgent::from(entry))
}

/// Returns the owner whose entries the caller may change. `None` stands for all.
fn owner_filter(caller: &RestCaller) -> Option<String> {
    (!caller.principal.is_admin()).then(|| caller.id().to_owned())
}
