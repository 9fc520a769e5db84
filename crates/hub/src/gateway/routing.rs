//! Addresses that name an agent by its abilities, such as `agent://*?domain=travel`.

use std::collections::HashSet;

use duologue_store::{
    AgentQuery, InboxKey, RegisteredAgent, RegistryStatus, Store, StoredTaskKey, TaskQuery,
};
use percent_encoding::percent_decode_str;
use serde_json::Value;
use tokio::sync::watch;

use crate::exchange_state::AGENT_SCHEME;
use crate::gateway::access::Action;
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

    /// Returns the agents that are online, match, and pass `is_allowed`.
    pub(crate) fn online(
        &self,
        store: &dyn Store,
        is_allowed: impl Fn(&RegisteredAgent) -> bool,
    ) -> duologue_store::Result<Vec<RegisteredAgent>> {
        self.find(store, Some(RegistryStatus::Online), is_allowed)
    }

    /// Returns the agents that match, in one state or in any, and that `wanted` returns true for.
    fn find(
        &self,
        store: &dyn Store,
        status: Option<RegistryStatus>,
        wanted: impl Fn(&RegisteredAgent) -> bool,
    ) -> duologue_store::Result<Vec<RegisteredAgent>> {
        let mut query = AgentQuery::default();
        let [capability, domain, tag, provider] = self.filters.clone();
        (query.capability, query.domain, query.tag, query.provider) = (capability, domain, tag, provider);
        query.status = status;
        let mut found = Vec::new();
        loop {
            let page = store.agents(&query)?;
            let count = page.items.len() as u64;
            found.extend(page.items.into_iter().filter(|agent| self.matches(&agent.id) && wanted(agent)));
            query.offset += count;
            if count == 0 || query.offset >= page.total {
                return Ok(found);
            }
        }
    }
}

/// The work that is routed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RoutedWork {
    /// `Task` or `Message`.
    pub(crate) action: Action,
    /// The principal that gives it.
    pub(crate) principal: String,
    /// The id, if the principal has chosen one.
    pub(crate) id: Option<String>,
}

impl RoutedWork {
    /// Returns the one of some agents that has had this work first.
    fn earlier<'a>(
        &self,
        store: &dyn Store,
        agents: impl Iterator<Item = &'a str>,
    ) -> duologue_store::Result<Option<String>> {
        let Some(id) = &self.id else { return Ok(None) };
        let mut first: Option<(u64, &str)> = None;
        for agent in agents {
            let created = match self.action {
                Action::Task => {
                    let key = StoredTaskKey::new(&*self.principal, agent, &**id);
                    store.task(&key)?.map(|task| task.created)
                }
                _ => {
                    let key = InboxKey::new(agent, &*self.principal, &**id);
                    store.message(&key)?.map(|message| message.created)
                }
            };
            if let Some(created) = created
                && first.is_none_or(|(earliest, _)| created < earliest)
            {
                first = Some((created, agent));
            }
        }
        Ok(first.map(|(_, agent)| agent.to_owned()))
    }
}

/// The work whose agents are being chosen.
///
/// Work with an id gets its agent in one request at a time, so that the next request finds it there.
#[derive(Clone, Debug, Default)]
pub(crate) struct RoutingTurns(watch::Sender<HashSet<RoutedWork>>);

/// The turn of a request, from the choice of an agent until the agent has the work. Dropping it ends the turn.
#[derive(Debug)]
pub(crate) struct RoutingTurn {
    all: RoutingTurns,
    work: RoutedWork,
}

impl RoutingTurns {
    /// Waits for the turn of a request. Work without an id needs none, because no other request gives it.
    pub(crate) async fn begin(&self, work: &RoutedWork) -> Option<RoutingTurn> {
        work.id.as_ref()?;
        let mut running = self.0.subscribe();
        while !self.0.send_if_modified(|running| running.insert(work.clone())) {
            running.wait_for(|running| !running.contains(work)).await.ok()?;
        }
        Some(RoutingTurn { all: self.clone(), work: work.clone() })
    }
}

impl Drop for RoutingTurn {
    fn drop(&mut self) {
        self.all.0.send_if_modified(|running| running.remove(&self.work));
    }
}

/// Chooses the agent with the fewest tasks below its maximum, or one that has no task of the principal, or the fallback. `Ok(Err(_))` has the reason for which there
/// is none. An agent that fits the address and has the work already is chosen again, whatever its state is.
///
/// The caller has the turn of the work, and keeps it until the agent has the work.
pub(crate) fn choose(
    store: &dyn Store,
    pattern: &AgentPattern,
    fallback: Option<&str>,
    work: &RoutedWork,
    is_allowed: impl Fn(&RegisteredAgent) -> bool,
) -> duologue_store::Result<Result<String, Refusal>> {
    let mut agents = pattern.find(store, None, |_| true)?;
    let ids = agents.iter().map(|agent| &*agent.id).chain(fallback);
    if let Some(agent) = work.earlier(store, ids)? {
        return Ok(Ok(agent));
    }
    agents.retain(|agent| agent.status == RegistryStatus::Online && is_allowed(agent));
    let mut best: Option<(u64, String)> = None;
    let is_empty = agents.is_empty();
    for agent in agents {
        // The number alone, without a page.
        let mut query = TaskQuery::default();
        (query.agent, query.ended, query.offset) = (Some(agent.id.clone()), Some(false), u64::MAX);
        let running = store.tasks(&query)?.total;
        let card: Value = agent.card.parse().unwrap_or_default();
        let mut is_full = card["maxConcurrentTasks"].as_u64().is_some_and(|most| running >= most);
        if is_full {
            // Nobody takes all tasks of an agent from a principal that has none there.
            query.owner = Some(work.principal.clone());
            is_full = store.tasks(&query)?.total > 0;
        }
        // A message waits for no place of a task.
        let fits = !is_full || work.action == Action::Message;
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
    use std::pin::{Pin, pin};
    use std::task::{Context, Poll, Waker};

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
    /// Polls once.
    fn next<T>(future: Pin<&mut impl Future<Output = T>>) -> Option<T> {
        match future.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(value) => Some(value),
            Poll::Pending => None,
        }
    }

    #[tokio::test]
    async fn one_request_at_a_time_chooses_for_an_id() {
        let turns = RoutingTurns::default();
        let work = |action, principal: &str, id: Option<&str>| RoutedWork {
            action,
            principal: principal.to_owned(),
            id: id.map(str::to_owned),
        };
        let same = work(Action::Task, "alice", Some("t1"));
        let first = turns.begin(&same).await;
        assert!(first.is_some());
        for other in [
            work(Action::Message, "alice", Some("t1")),
            work(Action::Task, "bob", Some("t1")),
            work(Action::Task, "alice", Some("t2")),
        ] {
            assert!(turns.begin(&other).await.is_some());
        }
        assert!(turns.begin(&work(Action::Task, "alice", None)).await.is_none());
        let (mut second, mut third) = (pin!(turns.begin(&same)), pin!(turns.begin(&same)));
        assert!(next(second.as_mut()).is_none() && next(third.as_mut()).is_none());
        drop(first);
        let turn = next(second.as_mut()).expect("the turn is free");
        assert!(turn.is_some() && next(third.as_mut()).is_none());
        drop(turn);
        assert!(next(third.as_mut()).expect("the turn is free").is_some());
        assert!(turns.0.borrow().is_empty());
    }
}
