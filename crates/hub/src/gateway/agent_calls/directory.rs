//! The answer of the registry to `discover`.

use std::collections::HashSet;

use duologue_schema::Json;
use duologue_schema::envelope::{AgentCapability, Capabilities, Discover, Envelope, EnvelopeError};
use duologue_store::{RegisteredAgent, Store};
use serde_json::Value;

use super::{Caller, address, open};
use crate::gateway::Refusal;
use crate::gateway::hosted::KEYS;
use crate::gateway::routing::AgentPattern;

/// The most agents in an answer.
const AGENTS: usize = 256;
/// The bytes of their cards, which have to fit in a message. More cards are left out.
const BYTES: usize = 1024 * 1024;
/// The address of all agents.
const ALL: &str = "agent://*";

impl Caller {
    /// Returns the capabilities of one agent, or those of all agents that an address fits, with the list `agents`. The owner
    /// of the session has to find them. The calling agent is left out.
    pub(super) async fn discover(&self, request: &Envelope) -> Result<Capabilities, EnvelopeError> {
        let _: Discover = open(request)?;
        let to = request.to.as_str();
        let pattern = AgentPattern::read(if to.is_empty() { ALL } else { to })?;
        let (gateway, principal, own) = (self.gateway.clone(), self.principal.clone(), self.agent.clone());
        if let Some(agent) = pattern.exact().map(str::to_owned) {
            let is_found = gateway.finds(&principal, &agent);
            let found = gateway.in_store(move |store| store.agent(&agent)).await?.filter(|_| is_found);
            return match found {
                Some(agent) => Ok(card(&agent)),
                None => Err(Refusal::not_found("agent").into()),
            };
        }
        let visible = self.gateway.clone();
        let find = move |store: &dyn Store| {
            pattern.online(store, |agent| agent.id != own && visible.finds(&principal, &agent.id))
        };
        let found = gateway.in_store(find).await?;
        let mut all = Capabilities::new("duologue-hub");
        let (mut agents, mut bytes) = (Vec::new(), 0);
        let (mut domains, mut names) = (HashSet::new(), HashSet::new());
        for agent in found.iter().take(AGENTS) {
            let card = card(agent);
            let mut entry =
                serde_json::to_value(&card).map_err(|error| EnvelopeError::internal(error.to_string()))?;
            entry["address"] = Value::from(address(&agent.id));
            bytes += entry.to_string().len();
            if bytes > BYTES {
                break;
            }
            all.domains.extend(card.domains.iter().filter(|name| domains.insert((*name).clone())).cloned());
            let new = card.capabilities.iter().filter(|one| names.insert(one.name().to_owned()));
            all.capabilities.extend(new.cloned());
            all.max_concurrent_tasks = all.max_concurrent_tasks.saturating_add(card.max_concurrent_tasks);
            agents.push(entry);
        }
        let is_whole = agents.len() == found.len();
        all.extra.insert("agents", Json::from(Value::from(agents)));
        if !is_whole {
            all.extra.insert("truncated", Json::from(Value::from(true)));
        }
        Ok(all)
    }
}

/// Returns the capabilities of an agent from its entry in the registry.
fn card(agent: &RegisteredAgent) -> Capabilities {
    let card: Value = agent.card.parse().unwrap_or_default();
    let mut capabilities = Capabilities::new(agent.id.as_str()).domains(agent.domains.clone());
    let described: Option<Vec<AgentCapability>> = serde_json::from_value(card["capabilities"].clone()).ok();
    let names = || agent.capabilities.iter().map(|name| AgentCapability::from(name.as_str())).collect();
    capabilities.capabilities = described.unwrap_or_else(names);
    capabilities.provider.clone_from(&agent.provider);
    capabilities.version = card["version"].as_str().filter(|version| !version.is_empty()).map(str::to_owned);
    let types = card["supportedMimeTypes"].as_array().map(Vec::as_slice).unwrap_or_default();
    capabilities.mime_types = types.iter().filter_map(Value::as_str).map(str::to_owned).collect();
    let most = card["maxConcurrentTasks"].as_u64().and_then(|most| u32::try_from(most).ok());
    capabilities.max_concurrent_tasks = most.unwrap_or_default();
    if !card[KEYS].is_null() {
        capabilities.extra.insert(KEYS, Json::from(card[KEYS].clone()));
    }
    capabilities
}
