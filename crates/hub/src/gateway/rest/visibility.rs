//! The parts of the store that a principal can see.

use duologue_store::{
    InboxKey, MessageQuery, RegisteredAgent, Store, StorePage, StoredMessage, StoredTask, StoredTaskKey,
    TaskQuery,
};

use crate::gateway::Refusal;
use crate::gateway::access::Action;
use crate::gateway::rest::request::RestCaller;
use crate::gateway::rest::values::RestId;
use crate::gateway::routing::{self, AgentPattern, OPERATOR, RoutedWork, RoutingTurn};

/// The records of an agent that a principal can see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Visible {
    /// None: the agent is as absent.
    Nothing,
    /// Its own.
    Own(String),
    /// Those of all principals.
    All,
}

impl Visible {
    /// Returns false if the agent is as absent.
    pub(crate) fn is_any(&self) -> bool {
        *self != Visible::Nothing
    }

    /// Returns the owner of the records that are listed, among all of them or those of one owner. It is `None` if
    /// nothing may be listed.
    pub(crate) fn filter(&self, wanted: Option<String>) -> Option<Option<String>> {
        match (self, wanted) {
            (Visible::Nothing, _) => None,
            (Visible::All, wanted) => Some(wanted),
            (Visible::Own(own), Some(wanted)) if wanted != *own => None,
            (Visible::Own(own), _) => Some(Some(own.clone())),
        }
    }
}

/// The agent that gets some work.
pub(crate) struct RoutedAgent {
    pub(crate) id: String,
    /// True if the caller may give it the work.
    pub(crate) is_allowed: bool,
    /// The turn of the request, which the job of the store that gives the work to the agent keeps.
    pub(crate) turn: Option<RoutingTurn>,
}

impl RestCaller {
    /// Returns true if the principal can find an agent. The principal of an agent can find it.
    pub(crate) fn finds(&self, agent: &str) -> bool {
        self.gateway().finds(&self.principal, agent)
    }

    /// Returns true if the principal may do something with an agent, which it has to find.
    pub(crate) fn may(&self, action: Action, agent: &str) -> bool {
        self.gateway().may(&self.principal, action, agent)
    }

    /// Returns the records of an agent that the principal can see: those of all if it acts for the agent, else its own
    /// if it may create such.
    pub(crate) fn sees(&self, action: Action, agent: &str) -> Visible {
        if self.has(Action::Act, agent) {
            Visible::All
        } else if self.may(action, agent) {
            Visible::Own(self.id().to_owned())
        } else {
            Visible::Nothing
        }
    }

    /// Finds a record in the store, among those that the principal can see.
    pub(crate) async fn find<T: Send + 'static>(
        &self,
        visible: Visible,
        find: impl FnOnce(&dyn Store, &Visible) -> duologue_store::Result<Option<T>> + Send + 'static,
    ) -> Result<Option<T>, Refusal> {
        // A search among the records of all reads as much as a list.
        let is_search = visible == Visible::All;
        let find = move |store: &dyn Store| find(store, &visible);
        match is_search {
            true => self.rest.read_list(&self.principal.id, find).await,
            false => self.gateway().in_store(find).await,
        }
    }

    /// Returns the agent for an address.
    ///
    /// An id alone stays as it is, unless there is a fallback. The permission for `operator` comes with the fallback.
    pub(crate) async fn route(
        &self,
        address: String,
        fallback: Option<&RestId>,
        action: Action,
        id: Option<&RestId>,
    ) -> Result<RoutedAgent, Refusal> {
        let pattern = AgentPattern::read(&address)?;
        if let (Some(agent), None) = (pattern.exact(), fallback) {
            let is_allowed = self.may(action, agent);
            return Ok(RoutedAgent { id: agent.to_owned(), is_allowed, turn: None });
        }
        let caller = self.clone();
        let fallback = fallback.map(|name| name.0.clone());
        let is_operator = fallback.as_deref() == Some(OPERATOR);
        let work = RoutedWork { action, principal: self.id().to_owned(), id: id.map(|id| id.0.clone()) };
        let turn = self.gateway().routing.begin(&work).await;
        let choose = move |store: &dyn Store| {
            let is_allowed = |agent: &RegisteredAgent| {
                let unable = || caller.gateway().unable(&agent.id, Some(agent), action);
                caller.may(action, &agent.id) && unable().is_none()
            };
            routing::choose(store, &pattern, fallback.as_deref(), &work, is_allowed)
        };
        let id = self.rest.read_list(&self.principal.id, choose).await??;
        let is_allowed = self.may(action, &id) || (is_operator && id == OPERATOR);
        Ok(RoutedAgent { id, is_allowed, turn })
    }

    fn has(&self, action: Action, agent: &str) -> bool {
        self.gateway().permit(&self.principal, action, agent).is_ok()
    }
}

/// Lists records of an agent: those of an owner, or all that the caller can see. `list` gets the agent and the owner.
///
/// The store is read in any case, so that the time does not tell what there is. The records of an agent that was removed
/// stay.
pub(crate) async fn list_visible<T: Send + 'static>(
    caller: &RestCaller,
    action: Action,
    agent: String,
    owner: Option<String>,
    list: impl FnOnce(&dyn Store, Option<String>, Option<String>) -> duologue_store::Result<StorePage<T>>
    + Send
    + 'static,
) -> Result<StorePage<T>, Refusal> {
    let visible = caller.sees(action, &agent);
    let filter = visible.filter(owner);
    let is_empty = filter.is_none();
    let read = move |store: &dyn Store| {
        let is_absent = store.agent(&agent)?.is_none();
        Ok((is_absent, list(store, Some(agent), filter.flatten())?))
    };
    let (is_absent, mut page) = caller.rest.read_list(&caller.principal.id, read).await?;
    if is_empty {
        (page.items, page.total) = (Vec::new(), 0);
    }
    if !visible.is_any() || (is_absent && page.total == 0) {
        return Err(Refusal::not_found("agent"));
    }
    Ok(page)
}

/// Finds a record by its id. The caller's own is preferred to those of others with the same id. `by_owner` finds that of
/// an owner, and `any` one of several.
fn find<T>(
    visible: &Visible,
    own: &str,
    owner: Option<String>,
    by_owner: impl FnOnce(String) -> duologue_store::Result<Option<T>>,
    any: impl FnOnce() -> duologue_store::Result<StorePage<T>>,
) -> duologue_store::Result<Option<T>> {
    let Some(filter) = visible.filter(owner) else { return Ok(None) };
    let is_of_all = filter.is_none();
    match by_owner(filter.unwrap_or_else(|| own.to_owned()))? {
        None if is_of_all => Ok(any()?.items.into_iter().next()),
        found => Ok(found),
    }
}

/// Finds a task by its id.
pub(crate) fn find_task(
    store: &dyn Store,
    visible: &Visible,
    own: &str,
    (agent, task): (&str, &str),
    owner: Option<String>,
) -> duologue_store::Result<Option<StoredTask>> {
    let by_owner = |owner| store.task(&StoredTaskKey::new(owner, agent, task));
    find(visible, own, owner, by_owner, || {
        let mut query = TaskQuery::default();
        (query.agent, query.id) = (Some(agent.to_owned()), Some(task.to_owned()));
        (query.newest_first, query.limit) = (true, 1);
        store.tasks(&query)
    })
}

/// Finds a message by its id.
pub(crate) fn find_message(
    store: &dyn Store,
    visible: &Visible,
    own: &str,
    (agent, message): (&str, &str),
    sender: Option<String>,
) -> duologue_store::Result<Option<StoredMessage>> {
    let by_owner = |sender: String| store.message(&InboxKey::new(agent, sender, message));
    find(visible, own, sender, by_owner, || {
        let mut query = MessageQuery::default();
        (query.agent, query.id) = (Some(agent.to_owned()), Some(message.to_owned()));
        query.limit = 1;
        store.messages(&query)
    })
}
