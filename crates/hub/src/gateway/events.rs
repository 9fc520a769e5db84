//! The `tracing` events of messages and tasks, without their content.
//!
//! Ids are recorded as strings and never as `Display`, so that a subscriber writes their control characters escaped. None
//! has the name `message`, whose text subscribers write without quotes.

use duologue_store::{StoredMessage, StoredTaskKey};

/// The target of the events.
const TARGET: &str = "duologue::events";

/// A principal has left a message in an inbox.
pub(crate) fn message_received(principal: &str, agent: &str, message: &str) {
    tracing::info!(target: TARGET, event = "acp_message_received", principal, agent, message_id = message);
}

/// An agent has been given a message.
pub(crate) fn message_sent(message: &StoredMessage) {
    let (agent, attempt) = (message.agent.as_str(), message.attempts);
    tracing::info!(target: TARGET, event = "acp_message_sent", agent, message_id = message.id.as_str(), attempt);
}

/// A principal has created a task.
pub(crate) fn task_created(principal: &str, agent: &str, task: &str) {
    tracing::info!(target: TARGET, event = "acp_task_created", principal, agent, task);
}

/// A principal has cancelled a task.
pub(crate) fn task_cancelled(principal: &str, key: &StoredTaskKey) {
    let StoredTaskKey { agent, task, .. } = key;
    let (agent, task) = (agent.as_str(), task.as_str());
    tracing::info!(target: TARGET, event = "acp_task_cancelled", principal, agent, task);
}

/// A task has ended, in any final state.
pub(crate) fn task_completed(key: &StoredTaskKey, state: &str) {
    let StoredTaskKey { agent, task, .. } = key;
    let (agent, task) = (agent.as_str(), task.as_str());
    tracing::info!(target: TARGET, event = "acp_task_completed", agent, task, state);
}

/// A part of the output of a task is in the outbox.
pub(crate) fn stream_chunk(key: &StoredTaskKey, position: u64, complete: bool) {
    let StoredTaskKey { agent, task, .. } = key;
    let (agent, task) = (agent.as_str(), task.as_str());
    tracing::info!(target: TARGET, event = "acp_stream_chunk", agent, task, position, complete);
}

/// The data of a principal was removed.
pub(crate) fn principal_erased(principal: &str, erased: &str, removed: u64) {
    tracing::info!(target: TARGET, event = "acp_principal_erased", principal, erased, removed);
}
