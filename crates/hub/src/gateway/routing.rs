//! Addresses that name an agent by its abilities, such as `agent://*?domain=travel`.

use duologue_store::{AgentQuery, MessageQuery, RegisteredAgent, RegistryStatus, Store, TaskQuery};
use percent_encoding::percent_decode_str;
use serde_json::Value;

use crate::exchange_state::AGENT_SCHEME;
use crate::gateway::{Refusal, RefusalCode};

/// The fallback that is a person: an inbox that an administrator takes messages from.
pub(crate) const OPERATOR: &str = "operator";

/// An address without the scheme.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct AgentPattern {
    /// The beginning of the id, and true if more may follow: `*` is every agent, `planner-*` the instances of one.
    id: String,
    is_prefix: bool,
    filters: [Option<String>; 4],
}

/// The names of the filters, in the order of `filters`.
const FILTERS: [&str; 4] = ["capability", "domain", "tag", "provider"];

impl AgentPattern {
    /// Reads an address. An id alone is one too.
    pub(crate) fn read(address: &str) -> Result<Self, Refusal> {
        let Some(rest) = address.strip_prefix(AGENT_SCHEME) else {
            let id = address.to_owned();
            return Ok(AgentPattern { id, is_prefix: false, filters: Default::default() });
        };
        let (id, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut filters: [Option<String>; 4] = Default::default();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = percent_decode_str(value).decode_utf8().map_err(|_| {
                Refusal::invalid(format!("the address {address:?} has a value that is not UTF-8"))
            })?;
            let place = FILTERS.iter().position(|filter| *filter == name).and_then(|at| filters.get_mut(at));
            match place {
                Some(place) if place.is_none() => *place = Some(value.into_owned()),
                _ => {
                    let names = FILTERS.join("`, `");
                    return Err(Refusal::invalid(format!(
                        "the address {address:?} has an unknown or repeated filter {name:?}; use `{names}`, each once"
                    )));
                }
            }
        }
        let (id, is_prefix) = match id.strip_suffix('*') {
            Some(prefix) => (prefix, true),
            None => (id, false),
        };
        Ok(AgentPattern { id: id.to_owned(), is_prefix, filters })
    }

    /// Returns the id if the address names one agent alone.
    pub(crate) fn exact(&self) -> Option<&str> {
        let is_exact = !self.is_prefix && self.filters.iter().all(Option::is_none);
        is_exact.then_some(&*self.id)
    }

    fn matches(&self, id: &str) -> bool {
        if self.is_prefix { id.starts_with(&self.id) } else { id == self.id }
    }

    fn query(&self) -> AgentQuery {
        let mut query = AgentQuery::default();
        let [capability, domain, tag, provider] = self.filters.clone();
        (query.capability, query.domain, query.tag, query.provider) = (capability, domain, tag, provider);
        query.status = Some(RegistryStatus::Online);
        query
    }

    /// Returns the agents that are online, match, and pass `is_allowed`.
    pub(crate) fn online(
        &self,
        store: &dyn Store,
        is_allowed: impl Fn(&RegisteredAgent) -> bool,
    ) -> duologue_store::Result<Vec<RegisteredAgent>> {
        let mut query = self.query();
        let mut found = Vec::new();
        loop {
            let page = store.agents(&query)?;
            let count = page.items.len() as u64;
            found.extend(page.items.into_iter().filter(|agent| self.matches(&agent.id) && is_allowed(agent)));
            query.offset += count;
            if count == 0 || query.offset >= page.total {
                return Ok(found);
            }
        }
    }
}

/// The work that is routed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RoutedWork<'a> {
    /// A task of a principal, with its id if the principal has chosen one.
    Task { principal: &'a str, id: Option<&'a str> },
    /// A message of a principal.
    Message { principal: &'a str, id: Option<&'a str> },
}

impl RoutedWork<'_> {
    /// Returns the agent that has this work already, so that a repeated request does not choose another one.
    fn earlier(self, store: &dyn Store) -> duologue_store::Result<Option<String>> {
        match self {
            RoutedWork::Task { principal, id: Some(id) } => {
                let mut query = TaskQuery::default();
                (query.owner, query.id, query.limit) = (Some(principal.to_owned()), Some(id.to_owned()), 1);
                Ok(store.tasks(&query)?.items.into_iter().next().map(|task| task.key.agent))
            }
            RoutedWork::Message { principal, id: Some(id) } => {
                let mut query = MessageQuery::default();
                (query.principal, query.id, query.limit) =
                    (Some(principal.to_owned()), Some(id.to_owned()), 1);
                Ok(store.messages(&query)?.items.into_iter().next().map(|message| message.agent))
            }
            _ => Ok(None),
        }
    }
}

/// Chooses the agent with the fewest tasks below its maximum, or the fallback. `Ok(Err(_))` has the reason for which there
/// is none.
pub(crate) fn choose(
    store: &dyn Store,
    pattern: &AgentPattern,
    fallback: Option<&str>,
    work: RoutedWork<'_>,
    is_allowed: impl Fn(&RegisteredAgent) -> bool,
) -> duologue_store::Result<Result<String, Refusal>> {
    if let Some(agent) = work.earlier(store)?
        && (pattern.matches(&agent) || fallback == Some(&*agent))
    {
        return Ok(Ok(agent));
    }
    let online = pattern.online(store, is_allowed)?;
    let mut best: Option<(u64, String)> = None;
    let is_empty = online.is_empty();
    for agent in online {
        let mut query = TaskQuery::default();
        (query.agent, query.ended, query.limit) = (Some(agent.id.clone()), Some(false), 1);
        let running = store.tasks(&query)?.total;
        let card: Value = agent.card.parse().unwrap_or_default();
        let is_full = card["maxConcurrentTasks"].as_u64().is_some_and(|most| running >= most);
        // A message waits for no place of a task.
        let fits = !is_full || matches!(work, RoutedWork::Message { .. });
        if fits && best.as_ref().is_none_or(|(fewest, _)| running < *fewest) {
            best = Some((running, agent.id));
        }
    }
    if let Some((_, agent)) = best {
        return Ok(Ok(agent));
    }
    if let Some(fallback) = fallback {
        return Ok(Ok(fallback.to_owned()));
    }
    Ok(Err(if is_empty {
        let why = "no agent that you can find and that is online fits the address; retry later or name a `fallback`";
        Refusal::new(RefusalCode::Unreachable, why)
    } else {
        let why = "all agents that fit the address have their most tasks (`max_tasks`); retry later or name a `fallback`";
        Refusal::new(RefusalCode::Overloaded, why)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        for (address, id, is_prefix, filters) in [
            ("planner", "planner", false, [None, None, None, None]),
            ("agent://planner", "planner", false, [None, None, None, None]),
            ("agent://planner-*", "planner-", true, [None, None, None, None]),
            ("agent://*?domain=travel", "", true, [None, Some("travel"), None, None]),
            ("agent://*?tag=a%20b&capability=plan", "", true, [Some("plan"), None, Some("a b"), None]),
        ] {
            let filters = filters.map(|filter| filter.map(str::to_owned));
            let expected = AgentPattern { id: id.to_owned(), is_prefix, filters };
            assert_eq!(AgentPattern::read(address).unwrap(), expected);
        }
        for address in ["agent://*?color=red", "agent://*?tag=a&tag=b", "agent://*?tag=%ff", "agent://*?x"] {
            assert!(AgentPattern::read(address).is_err(), "{address}");
        }
        assert_eq!(AgentPattern::read("agent://a").unwrap().exact(), Some("a"));
        assert_eq!(AgentPattern::read("agent://a?tag=b").unwrap().exact(), None);
    }
}
