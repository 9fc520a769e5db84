//! The erasure of everything that a principal has left. One that a server does not end goes on with the next start.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, Weak};

use duologue_rpc::Lock as _;
use duologue_store::{
    ChangeOutcome, IndexedSession, Store, StoreBatch, StoreChange, StoreTime, StoredTask, TaskQuery,
};

use crate::error::Error;
use crate::gateway::rest::session_log::log_refusal;
use crate::gateway::task_run::stop_lost;
use crate::gateway::{GatewayShared, Refusal, RefusalCode};
use crate::hub::Hub;

/// The erasures that run, and the connections of attached agents. A principal has one or the other.
#[derive(Clone, Debug, Default)]
pub(crate) struct ErasureTurns(Arc<Mutex<TurnTable>>);

#[derive(Debug, Default)]
struct TurnTable {
    holders: HashMap<String, TurnHolder>,
    /// The exports that run.
    exports: HashMap<String, Vec<Weak<AtomicBool>>>,
}

/// An export of the data of a principal, which an erasure makes incomplete.
#[derive(Debug)]
pub(crate) struct WatchedExport(Arc<AtomicBool>);

impl WatchedExport {
    /// Returns true if an erasure of the principal has begun since.
    pub(crate) fn is_incomplete(&self) -> bool {
        self.0.load(Relaxed)
    }
}

#[derive(Debug)]
enum TurnHolder {
    Erasure,
    /// The ids of the agents, once for each connection.
    Agents(Vec<String>),
}

/// The turn of an erasure or of a connection. Dropping it ends that.
#[derive(Debug)]
pub(crate) struct ErasureTurn {
    turns: ErasureTurns,
    principal: String,
    /// The agent of a connection.
    agent: Option<String>,
}

impl ErasureTurns {
    /// Takes the turn of an erasure, unless another one runs or an agent of the principal is attached.
    pub(crate) fn erase(&self, principal: &str) -> Result<ErasureTurn, Refusal> {
        let mut table = self.0.lock_unpoisoned();
        let why = match table.holders.get(principal) {
            None => {
                table.holders.insert(principal.to_owned(), TurnHolder::Erasure);
                for export in table.exports.remove(principal).into_iter().flatten() {
                    export.upgrade().inspect(|is_incomplete| is_incomplete.store(true, Relaxed));
                }
                return Ok(ErasureTurn { turns: self.clone(), principal: principal.to_owned(), agent: None });
            }
            Some(TurnHolder::Erasure) => being_erased(principal),
            Some(TurnHolder::Agents(agents)) => {
                let agent = agents.first().map_or("", String::as_str);
                format!(
                    "the agent {agent:?} of the principal is attached; end its program first. A connection that was lost \
                     ends after `limits.attachment_seconds`"
                )
            }
        };
        Err(Refusal::new(RefusalCode::Conflict, why))
    }

    /// Watches for an erasure during an export, unless one runs.
    pub(crate) fn export(&self, principal: &str) -> Result<WatchedExport, Refusal> {
        let mut table = self.0.lock_unpoisoned();
        if let Some(TurnHolder::Erasure) = table.holders.get(principal) {
            return Err(Refusal::new(RefusalCode::Conflict, being_erased(principal)));
        }
        table.exports.retain(|_, running| {
            running.retain(|export| export.strong_count() > 0);
            !running.is_empty()
        });
        let export = Arc::new(AtomicBool::new(false));
        table.exports.entry(principal.to_owned()).or_default().push(Arc::downgrade(&export));
        Ok(WatchedExport(export))
    }

    /// Takes the turn of a connection of an attached agent, unless the data of its principal is being erased.
    pub(crate) fn attach(&self, principal: &str, agent: &str) -> Result<ErasureTurn, Refusal> {
        let holders = &mut self.0.lock_unpoisoned().holders;
        let holder = holders.entry(principal.to_owned()).or_insert_with(|| TurnHolder::Agents(Vec::new()));
        let TurnHolder::Agents(agents) = holder else {
            let why = format!("the data of {principal:?} is being erased; attach when that has ended");
            return Err(Refusal::new(RefusalCode::Unreachable, why));
        };
        agents.push(agent.to_owned());
        let agent = Some(agent.to_owned());
        Ok(ErasureTurn { turns: self.clone(), principal: principal.to_owned(), agent })
    }
}

fn being_erased(principal: &str) -> String {
    format!("the data of {principal:?} is being erased; retry when that has ended")
}

impl ErasureTurn {
    /// Returns the principal.
    pub(crate) fn principal(&self) -> &str {
        &self.principal
    }
}

impl Drop for ErasureTurn {
    fn drop(&mut self) {
        let holders = &mut self.turns.0.lock_unpoisoned().holders;
        if let (Some(agent), Some(TurnHolder::Agents(agents))) =
            (&self.agent, holders.get_mut(&self.principal))
        {
            if let Some(place) = agents.iter().position(|other| other == agent) {
                agents.swap_remove(place);
            }
            if !agents.is_empty() {
                return;
            }
        }
        holders.remove(&self.principal);
    }
}

/// The erasures that the last server has not ended.
#[derive(Debug)]
pub(crate) struct LeftErasures(Vec<ErasureTurn>);

/// An erasure with the sessions that it removes. What the principal begins later stays.
pub(crate) struct BegunErasure {
    turn: ErasureTurn,
    sessions: FoundSessions,
}

/// The sessions of a principal at all agents.
struct FoundSessions {
    all: Vec<(Hub, IndexedSession)>,
    /// The error of an agent whose sessions could not be listed.
    failed: Option<Error>,
}

impl LeftErasures {
    /// Takes the turns of these erasures, and removes the rest of their records. It blocks.
    pub(crate) fn find(
        turns: &ErasureTurns,
        store: &dyn Store,
        time: StoreTime,
    ) -> duologue_store::Result<Self> {
        let open = store.erasures()?;
        for principal in &open {
            while erase_part(store, principal, time)? > 0 {}
        }
        Ok(LeftErasures(open.iter().filter_map(|principal| turns.erase(principal).ok()).collect()))
    }

    /// Finds the sessions that there are before the server serves. No clock decides: it can have been set since the last server.
    pub(crate) async fn begin(self, gateway: &GatewayShared) -> Vec<BegunErasure> {
        let mut begun = Vec::new();
        for turn in self.0 {
            let sessions = FoundSessions::of(gateway, turn.principal()).await;
            begun.push(BegunErasure { turn, sessions });
        }
        begun
    }
}

impl FoundSessions {
    async fn of(gateway: &GatewayShared, principal: &str) -> Self {
        let mut found = FoundSessions { all: Vec::new(), failed: None };
        for (_, agent) in gateway.all_hosted() {
            match agent.hub.sessions_of(&principal.into()).await {
                Ok(sessions) => found.all.extend(sessions.into_iter().map(|it| (agent.hub.clone(), it))),
                Err(error) => found.failed = Some(error),
            }
        }
        found
    }
}

/// Removes the records and the sessions of a principal, and returns their number. The store knows of the erasure from
/// the removal of the records on.
pub(crate) async fn erase(gateway: &GatewayShared, turn: ErasureTurn) -> Result<u64, Refusal> {
    let principal = turn.principal();
    let (owner, time) = (principal.to_owned(), gateway.time());
    let begin = move |store: &dyn Store| Ok((open_tasks(store, &owner)?, erase_part(store, &owner, time)?));
    let (lost, mut part) = gateway.in_store(begin).await?;
    stop_lost(gateway, lost);
    let mut records = part;
    while part > 0 {
        let (owner, time) = (principal.to_owned(), gateway.time());
        part = gateway.in_store(move |store| erase_part(store, &owner, time)).await?;
        records += part;
    }
    // After the records: work whose session is being opened has none of them any more, and removes its session itself.
    let sessions = FoundSessions::of(gateway, principal).await;
    Ok(records + erase_sessions(gateway, principal, sessions).await?)
}

/// Removes the sessions of principals whose erasure the last server has not ended. A stop leaves the rest to the next start.
pub(crate) async fn go_on(gateway: Arc<GatewayShared>, begun: Vec<BegunErasure>) {
    let mut closing = gateway.closing.subscribe();
    for BegunErasure { turn, sessions } in begun {
        let principal = turn.principal();
        let erased = tokio::select! {
            biased;
            _ = closing.wait_for(|closing| *closing) => return,
            erased = erase_sessions(&gateway, principal, sessions) => erased,
        };
        match erased {
            Ok(removed) => tracing::info!(principal, removed, "an erasure of the last server has ended"),
            Err(refusal) => {
                tracing::error!(principal, %refusal, "an erasure goes on with the next start");
            }
        }
    }
}

/// Removes these sessions of a principal, and ends its erasure. One that cannot be removed does not keep the others.
async fn erase_sessions(
    gateway: &GatewayShared,
    principal: &str,
    sessions: FoundSessions,
) -> Result<u64, Refusal> {
    let FoundSessions { all, mut failed } = sessions;
    let mut removed = 0;
    for (hub, session) in all {
        match hub.erase_session(&session.owner, &session.id).await {
            Ok(()) => removed += 1,
            Err(error) => failed = Some(error),
        }
    }
    for (_, agent) in gateway.all_hosted() {
        agent.conversations.close_idle(Some(principal)).await;
    }
    if let Some(error) = failed {
        return Err(log_refusal(error));
    }
    let batch = StoreBatch::new(gateway.time());
    let batch = batch.with(StoreChange::EndErasure { principal: principal.to_owned() });
    gateway.in_store(move |store| store.apply(batch)).await?;
    Ok(removed)
}

/// Removes a part of the records of a principal, and returns their number, which is zero if nothing is left.
fn erase_part(store: &dyn Store, principal: &str, time: StoreTime) -> duologue_store::Result<u64> {
    let erase = StoreChange::ErasePrincipal { principal: principal.to_owned() };
    match store.apply(StoreBatch::new(time).with(erase))?.of(0) {
        Some(ChangeOutcome::Count(count)) => Ok(*count),
        _ => Ok(0),
    }
}

/// Returns the open tasks of an owner that an agent can have. A worker that ends its task at the agent too can have lost its
/// lease, or give it back now.
fn open_tasks(store: &dyn Store, owner: &str) -> duologue_store::Result<Vec<StoredTask>> {
    let mut query = TaskQuery::default();
    (query.owner, query.ended, query.attempted, query.limit) =
        (Some(owner.to_owned()), Some(false), true, u64::MAX);
    let mut open = Vec::new();
    loop {
        let page = store.tasks(&query)?;
        query.offset += page.items.len() as u64;
        let is_last = page.items.is_empty() || query.offset >= page.total;
        open.extend(page.items);
        if is_last {
            return Ok(open);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use duologue_http::ServerOptions;
    use tokio::net::TcpListener;

    use super::*;
    use crate::gateway::Gateway;
    use crate::gateway::task_run::tests::gateway;

    #[test]
    fn an_erasure_has_its_principal_alone() {
        let turns = ErasureTurns::default();
        let refusal = |turn: Result<ErasureTurn, Refusal>| turn.expect_err("a refusal");
        let erasure = turns.erase("alice").expect("a turn");
        let again = refusal(turns.erase("alice"));
        assert!(again.code == RefusalCode::Conflict && again.message.contains("is being erased"), "{again}");
        assert!(refusal(turns.attach("alice", "one")).code.is_retryable());
        assert!(turns.erase("bob").is_ok());
        assert_eq!(turns.export("alice").expect_err("a refusal").code, RefusalCode::Conflict);
        let export = turns.export("carol").expect("an export");
        assert!(!export.is_incomplete() && turns.erase("carol").is_ok() && export.is_incomplete());
        drop((erasure, export));
        assert!(turns.export("alice").is_ok() && turns.0.lock_unpoisoned().exports.len() == 1);
        let agents = ["one", "two", "one"].map(|agent| turns.attach("alice", agent).expect("a turn"));
        for agent in agents {
            let attached = refusal(turns.erase("alice"));
            assert!(attached.message.contains("is attached"), "{attached}");
            drop(agent);
        }
        assert!(turns.erase("alice").is_ok());
        assert!(turns.0.lock_unpoisoned().holders.is_empty());
    }

    #[tokio::test]
    async fn a_stop_leaves_an_erasure_to_the_next_start() {
        let (shared, _folder) = gateway("", |_| {});
        let erase = StoreChange::ErasePrincipal { principal: "alice".to_owned() };
        shared.store.apply(StoreBatch::new(shared.time()).with(erase)).expect("an erasure");
        let open = |shared: &GatewayShared| shared.store.erasures().expect("the store");
        let find =
            || LeftErasures::find(&shared.erasures, &*shared.store, StoreTime::default()).expect("the store");
        *shared.left_erasures.lock_unpoisoned() = Some(find());
        assert!(shared.erasures.erase("alice").is_err(), "it goes on from the start on");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let mut options = ServerOptions::default();
        options.token = Some("token".into());
        Gateway { shared: shared.clone() }.serve_http(listener, options, ready(())).await.expect("a stop");
        assert_eq!(open(&shared), ["alice"]);
        shared.closing.send_replace(false);
        go_on(shared.clone(), find().begin(&shared).await).await;
        assert!(open(&shared).is_empty() && shared.erasures.erase("alice").is_ok());
    }
}
