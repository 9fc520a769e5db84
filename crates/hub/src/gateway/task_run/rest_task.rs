//! Runs a task at an agent that serves the REST interface itself.
//!
//! The agent knows the task by an id that is the same in all attempts. So a task is sent again after a failure and after
//! a restart of the gateway, and nothing runs twice.

use std::sync::Arc;
use std::time::Duration;

use duologue_schema::envelope::TaskState;
use duologue_store::{JsonText, Leased, StoreBatch, StoreChange, StoreTopic, StoreWatch, StoredTask};
use hyper::HeaderMap;
use hyper::header::HeaderValue;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout, timeout_at};

use super::{CANCEL, Cancelled, ChunkPosts, Looked, OpenQuestions, TaskEnd, TaskRun};
use crate::gateway::GatewayShared;
use crate::gateway::agent_calls::forwarded;
use crate::gateway::rest::types::RestPriority;
use crate::gateway::rest_agent::{
    FIRST_POLL, LONGEST_POLL, RestFault, RestPeer, id_at_agent, return_pause, trace_headers,
};
use crate::gateway::runner::renewing;
use crate::gateway::work::WorkPlace;

/// Runs one task.
pub(super) async fn run(
    gateway: Arc<GatewayShared>,
    leased: Leased<StoredTask>,
    agent: Arc<RestPeer>,
    place: WorkPlace,
) {
    let Leased { entry: task, lease } = leased;
    // Watched from before the first change on, so that no cancellation is missed.
    let changes = gateway.store.watch(&StoreTopic::Task(task.key.clone()));
    let run = TaskRun { gateway, key: task.key.clone(), lease };
    if let Err(refusal) = run.change(|_, update| Some(update.state(TaskState::Working))).await {
        return tracing::debug!(task = run.key.task.as_str(), %refusal, "a task was not started");
    }
    let mut closing = run.gateway.closing.subscribe();
    let work = renewing(&run.gateway, lease, work(&run, &task, &agent, changes, place));
    let end = tokio::select! {
        end = work => end,
        // The agent works on, and the next start finds the task there.
        _ = closing.wait_for(|closing| *closing) => return,
    };
    match end {
        Ok(end) => run.finish(&task, end).await,
        Err(fault) => put_back(&run, &task, fault).await,
    }
}

/// Returns a task whose agent is not reached to its place. After its last attempt it has failed.
async fn put_back(run: &TaskRun, task: &StoredTask, fault: RestFault) {
    if !task.retry_safe || task.attempts >= task.max_attempts {
        return run.finish(task, TaskEnd::failed("unreachable", fault.message, true)).await;
    }
    let change = StoreChange::ReturnTask { lease: run.lease, delay: return_pause(task.attempts) };
    let batch = StoreBatch::new(run.gateway.time()).with(change);
    if let Err(refusal) = run.gateway.in_store(move |store| store.apply(batch)).await {
        // The end of its lease returns it.
        tracing::debug!(task = run.key.task.as_str(), %refusal, "a task was not returned");
    }
}

/// Gives the agent the task, and follows it to its end. An error is one that a later attempt can avoid.
async fn work(
    run: &TaskRun,
    task: &StoredTask,
    agent: &RestPeer,
    changes: StoreWatch,
    place: WorkPlace,
) -> Result<TaskEnd, RestFault> {
    let id = id_at_agent(&task.key.owner, &task.key.task, task.created, task.seq);
    match begin(run, task, agent, &id).await {
        Ok(()) => {}
        Err(fault) if fault.is_temporary => return Err(fault),
        Err(RestFault { code, message, .. }) => {
            return Ok(TaskEnd { state: TaskState::Rejected, ..TaskEnd::failed(&code, message, false) });
        }
    }
    // A drain need not wait for it.
    drop(place);
    Ok(follow(run, task, agent, &id, changes).await)
}

async fn begin(run: &TaskRun, task: &StoredTask, agent: &RestPeer, id: &str) -> Result<(), RestFault> {
    if task.attempts > 1 {
        // An earlier attempt can have reached it.
        match agent.get(&["tasks", id]).await {
            Err(fault) if fault.is_absent() => {}
            found => return found.map(drop),
        }
    }
    let metadata: Value = task.metadata.parse().unwrap_or_default();
    let limit = run.gateway.config.limits.call_depth;
    let metadata = forwarded(&metadata, &task.key.agent, limit)
        .map_err(|error| RestFault::new(error.code.as_str(), error.message.as_str()))?;
    let mut body = json!({
        "taskId": id,
        "task": {"type": task.kind, "parameters": task.parameters},
        "priority": RestPriority::of(task.priority),
        "metadata": metadata,
    });
    if let Some(timeout) = task.timeout_ms {
        body["timeout"] = json!(timeout);
    }
    let mut headers = trace_headers(task.trace.as_deref());
    if let Ok(key) = HeaderValue::from_str(id.rsplit('.').next().unwrap_or_default()) {
        headers.insert("idempotency-key", key);
    }
    let answer = agent.post(&["tasks"], &body, headers).await?;
    match answer["status"].as_str() {
        Some("rejected") => Err(RestFault::answered(&answer["error"])),
        _ => Ok(()),
    }
}

/// Reads the state of the task until it has ended. While the agent is not reached it can work on, so only the time limit
/// of the task ends that.
async fn follow(
    run: &TaskRun,
    task: &StoredTask,
    agent: &RestPeer,
    id: &str,
    mut changes: StoreWatch,
) -> TaskEnd {
    let limits = &run.gateway.config.limits;
    let limit = task.timeout_ms.map_or(Duration::from_secs(limits.task_seconds), Duration::from_millis);
    let until = Instant::now() + limit;
    let mut chunks = ChunkPosts::of(task);
    let mut progress = 0;
    let mut pause = FIRST_POLL;
    // The reason for which it is being cancelled, the end of the agent's time for it, and true if the agent knows.
    let mut cancelled: Option<(Cancelled, Instant, bool)> = None;
    loop {
        changes.take_changed();
        match run.look(&mut OpenQuestions::default()).await {
            Ok(Looked::Ended) => {
                _ = cancel(agent, id).await;
                return TaskEnd::failed("worker_lost", "the task ended elsewhere", true);
            }
            Ok(Looked::Cancelling) if cancelled.is_none() => {
                cancelled = Some((Cancelled::Asked, Instant::now() + CANCEL, false));
            }
            _ if cancelled.is_none() && Instant::now() >= until => {
                cancelled = Some((Cancelled::Timeout, Instant::now() + CANCEL, false));
            }
            _ => {}
        }
        // An agent that does not answer delays no end of a limit.
        let next = cancelled.as_ref().map_or(until, |(_, end, _)| *end);
        if let Some((_, _, is_known @ false)) = &mut cancelled {
            *is_known = timeout_at(next, cancel(agent, id)).await.is_ok_and(|answer| answer.is_ok());
        }
        let found = timeout_at(next, agent.get(&["tasks", id])).await;
        let found = found.unwrap_or_else(|_| Err(RestFault::unreachable("the agent does not answer")));
        let mut fault = None;
        match found.and_then(|found| end_of(&found, agent).map(|end| (end, percent(&found)))) {
            Ok((Some(end), _)) => {
                return match &cancelled {
                    Some((Cancelled::Timeout, _, _)) => Cancelled::Timeout.end(limit),
                    Some((Cancelled::Asked, _, _)) if end.state == TaskState::Failed => {
                        Cancelled::Asked.end(limit)
                    }
                    _ => {
                        chunks.waiting.push_str(text_of(end.result.as_ref()).as_deref().unwrap_or_default());
                        TaskEnd { chunks, ..end }
                    }
                };
            }
            Ok((None, Some(percent))) if percent != progress => {
                (progress, pause) = (percent, FIRST_POLL);
                run.write_output(&mut chunks, Some(percent)).await;
            }
            Ok(_) => {}
            Err(error) if error.is_temporary => fault = Some(error),
            Err(RestFault { code, message, .. }) => return TaskEnd::failed(&code, message, false),
        }
        if let Some((reason, end, _)) = &cancelled
            && Instant::now() >= *end
        {
            return match (reason, fault) {
                (Cancelled::Timeout, Some(fault)) => TaskEnd::failed("unreachable", fault.message, true),
                _ => reason.end(limit),
            };
        }
        let wait = pause.min(next.saturating_duration_since(Instant::now()));
        if timeout(wait, changes.changed()).await.is_err() {
            pause = pause.saturating_mul(2).min(LONGEST_POLL);
        }
    }
}

async fn cancel(agent: &RestPeer, id: &str) -> Result<Value, RestFault> {
    agent.post(&["tasks", id, "cancel"], &json!({}), HeaderMap::new()).await
}

/// Returns the end of a task that has ended.
fn end_of(found: &Value, agent: &RestPeer) -> Result<Option<TaskEnd>, RestFault> {
    let ended =
        |state| TaskEnd { state, result: None, error: None, chunks: ChunkPosts::default(), is_lost: false };
    Ok(Some(match found["status"].as_str() {
        Some("pending" | "processing") => return Ok(None),
        Some("completed") => {
            let result = agent.checked_result(&found["result"])?.and_then(|result| JsonText::of(result).ok());
            TaskEnd { result, ..ended(TaskState::Completed) }
        }
        Some("cancelled") => ended(TaskState::Cancelled),
        Some("failed") => {
            let RestFault { code, message, .. } = RestFault::answered(&found["error"]);
            TaskEnd::failed(&code, message, found["error"]["retryable"] == true)
        }
        _ => {
            return Err(RestFault::new(
                "agent_failed",
                "the agent answered with a task without a known status",
            ));
        }
    }))
}

fn percent(found: &Value) -> Option<u8> {
    found["progress"]
        .as_u64()
        .and_then(|percent| u8::try_from(percent).ok())
        .filter(|percent| *percent <= 100)
}

/// Returns the text of a result.
fn text_of(result: Option<&JsonText>) -> Option<String> {
    match result?.parse::<Value>().ok()? {
        Value::String(text) => Some(text),
        other => other["text"].as_str().map(str::to_owned),
    }
}
