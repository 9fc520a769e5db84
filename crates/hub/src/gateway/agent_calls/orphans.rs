//! Tasks whose calling task was lost when the server ended.

use std::collections::HashMap;

use duologue_schema::envelope::TaskState;
use duologue_store::{
    Store, StoreBatch, StoreChange, StoreTime, StoredTask, StoredTaskKey, TaskFailure, TaskQuery, TaskUpdate,
};

use super::DELEGATED;
use super::chain::parent_of;
use crate::gateway::{events, failure};

/// Cancels the tasks that no task waits for any more. Call it before a worker takes one. It blocks.
///
/// The calling task of a delegation that wants a report is its only reader. One that runs again repeats the delegation.
pub(crate) fn cancel_orphans(store: &dyn Store, time: StoreTime) -> duologue_store::Result<()> {
    let mut has_ended: HashMap<StoredTaskKey, bool> = HashMap::new();
    for task in open_delegations(store)? {
        let Some(parent) = parent_of(&task) else { continue };
        let is_orphan = match has_ended.get(&parent) {
            Some(has_ended) => *has_ended,
            None => {
                let ended = store.task(&parent)?.is_none_or(|parent| parent.state.is_final());
                has_ended.insert(parent, ended);
                ended
            }
        };
        if !is_orphan {
            continue;
        }
        let mut update = TaskUpdate::new(task.key.clone(), task.version).state(TaskState::Cancelled);
        let why = "the task that waited for it was lost when the server ended";
        update.error = Some(TaskFailure::new(failure::PARENT_LOST, why, false));
        store.apply(StoreBatch::new(time).with(StoreChange::UpdateTask(update)))?;
        events::task_completed(&task.key, TaskState::Cancelled.as_str());
    }
    Ok(())
}

/// Returns the delegations that have not ended.
fn open_delegations(store: &dyn Store) -> duologue_store::Result<Vec<StoredTask>> {
    let mut query = TaskQuery::default();
    (query.ended, query.limit) = (Some(false), u64::MAX);
    let mut found = Vec::new();
    loop {
        let page = store.tasks(&query)?;
        query.offset += page.items.len() as u64;
        let is_last = page.items.is_empty() || query.offset >= page.total;
        found.extend(page.items.into_iter().filter(|task| task.kind == DELEGATED));
        if is_last {
            return Ok(found);
        }
    }
}
