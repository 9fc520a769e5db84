//! The erasure of everything that a principal has left. One that a server does not end goes on with the next start.

use duologue_store::{ChangeOutcome, Store, StoreBatch, StoreChange, StoredTask, TaskQuery};

use crate::gateway::rest::session_log::log_refusal;
use crate::gateway::task_run::stop_lost;
use crate::gateway::{GatewayShared, Refusal};

/// Removes the records and the sessions of a principal, and returns their number. The store knows of the erasure from
/// the removal of the records on.
pub(crate) async fn erase(gateway: &GatewayShared, principal: &str) -> Result<u64, Refusal> {
    let batch = StoreBatch::new(gateway.time());
    let batch = batch.with(StoreChange::ErasePrincipal { principal: principal.to_owned() });
    let owner = principal.to_owned();
    let erased = move |store: &dyn Store| Ok((waiting_tasks(store, owner)?, store.apply(batch)?));
    let (lost, outcome) = gateway.in_store(erased).await?;
    stop_lost(gateway, lost);
    let records = match outcome.of(0) {
        Some(ChangeOutcome::Count(count)) => *count,
        _ => 0,
    };
    // After the records: work whose session is being opened has none of them any more, and removes its session itself.
    Ok(records + erase_sessions(gateway, principal).await?)
}

/// Removes the sessions of principals whose erasure the last server has not ended. Call it before a session is opened.
pub(crate) async fn go_on(gateway: &GatewayShared) {
    // The log of the server has a failure of the store.
    let open = gateway.in_store(|store| store.erasures()).await.unwrap_or_default();
    for principal in open {
        match erase_sessions(gateway, &principal).await {
            Ok(removed) => tracing::info!(principal, removed, "an erasure of the last server has ended"),
            Err(refusal) => {
                tracing::error!(principal, %refusal, "an erasure goes on with the next start");
            }
        }
    }
}

/// Removes the sessions of a principal, and ends its erasure. One that cannot be removed does not keep the others.
async fn erase_sessions(gateway: &GatewayShared, principal: &str) -> Result<u64, Refusal> {
    let (mut removed, mut failed) = (0, None);
    for (_, agent) in gateway.all_hosted() {
        let sessions = agent.hub.sessions_of(&principal.into()).await.unwrap_or_else(|error| {
            failed = Some(error);
            Vec::new()
        });
        for session in sessions {
            match agent.hub.erase_session(&session.owner, &session.id).await {
                Ok(()) => removed += 1,
                Err(error) => failed = Some(error),
            }
        }
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

/// Returns the open tasks of an owner that have no worker. The others have one that ends them at their agents.
fn waiting_tasks(store: &dyn Store, owner: String) -> duologue_store::Result<Vec<StoredTask>> {
    let mut query = TaskQuery::default();
    (query.owner, query.ended, query.limit) = (Some(owner), Some(false), u64::MAX);
    let mut waiting = Vec::new();
    loop {
        let page = store.tasks(&query)?;
        query.offset += page.items.len() as u64;
        let is_last = page.items.is_empty() || query.offset >= page.total;
        waiting.extend(page.items.into_iter().filter(|task| task.worker.is_none()));
        if is_last {
            return Ok(waiting);
        }
    }
}
