//! Runs a task at an agent that serves the REST interface itself.
//!
//! The agent knows the task by an id that is the same in all attempts. So a task is sent again after a failure and after
//! a restart of the gateway, and nothing runs twice.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use duologue_rpc::Lock as _;
use duologue_schema::envelope::TaskState;
use duologue_store::{
    JsonText, Leased, StoreBatch, StoreChange, StoreTopic, StoreWatch, StoredTask, TaskFailure,
};
use hyper::HeaderMap;
use hyper::header::HeaderValue;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::{CANCEL, Cancelled, ChunkPosts, Looked, OpenQuestions, RETRY, TaskEnd, TaskRun, found_again};
use crate::gateway::agent_calls::forwarded;
use crate::gateway::rest::types::RestPriority;
use crate::gateway::rest_agent::{
    FIRST_POLL, LONGEST_POLL, RestFault, RestPeer, answer_about, id_at_agent, return_pause, trace_headers,
};
use crate::gateway::runner::{continue_work, hand_over, insist, renewing};
use crate::gateway::work::WorkPlace;
use crate::gateway::work_turn::check_attachments;
use crate::gateway::{GatewayShared, failure};

/// The requests that cancel a task at its agent after it has ended here.
const STOPS: u32 = 3;

/// The least time of an attempt that finds its task at the agent, so that it can read an end from before.
const LEAST_TIME: Duration = Duration::from_secs(5);

/// The end of a task here. The agent can work on unless `is_over` is true.
struct Ending {
    end: TaskEnd,
    is_over: bool,
}

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
    let run = TaskRun { gateway, key: task.key.clone(), created: task.created, lease };
    // A task that was being cancelled when its worker was lost is still being cancelled.
    let started = insist(|| {
        run.change(|task, update| {
            (task.state != TaskState::Cancelling).then(|| update.state(TaskState::Working))
        })
    });
    if let Err(refusal) = started.await {
        return tracing::debug!(task = run.key.task.as_str(), %refusal, "a task was not started");
    }
    let id = task_id(&task);
    let mut closing = run.gateway.closing.subscribe();
    let work = renewing(&run.gateway, lease, work(&run, &task, &agent, &id, changes, place));
    let end = tokio::select! {
        end = work => end,
        // The agent works on, and the next start finds the task there.
        _ = closing.wait_for(|closing| *closing) => return,
    };
    let Ending { end, is_over } = match end {
        Ok(ending) => ending,
        Err(fault) if task.retry_safe && task.attempts < task.max_attempts => {
            if !put_back(&run, &task, fault.wait).await {
                spawn_stop(&run.gateway, agent, id);
            }
            return;
        }
        Err(fault) => {
            Ending { end: TaskEnd::failed(failure::UNREACHABLE, fault.message, true), is_over: false }
        }
    };
    run.finish(&task, end).await;
    if !is_over {
        spawn_stop(&run.gateway, agent, id);
    }
}

/// Cancels tasks at their agents that have ended here without a worker. It does not wait for the agents.
pub(crate) fn stop_lost(gateway: &GatewayShared, tasks: impl IntoIterator<Item = StoredTask>) {
    // Without an attempt the agent does not have it.
    for task in tasks.into_iter().filter(|task| task.attempts > 0) {
        if let Some(agent) = gateway.rest_agent(&task.key.agent) {
            spawn_stop(gateway, agent, task_id(&task));
        }
    }
}

/// Cancels a task at the agent that has ended here, beside the work of the gateway.
fn spawn_stop(gateway: &GatewayShared, agent: Arc<RestPeer>, id: String) {
    let mut closing = gateway.closing.subscribe();
    let mut stops = gateway.stops.lock_unpoisoned();
    while stops.try_join_next().is_some() {}
    stops.spawn(async move {
        tokio::select! {
            () = stop(&agent, &id) => {}
            _ = closing.wait_for(|closing| *closing) => {}
        }
    });
}

/// Returns the id of a task at its agent.
fn task_id(task: &StoredTask) -> String {
    id_at_agent(&task.key.owner, &task.key.task, task.created, task.seq)
}

/// Cancels a task at the agent that has ended here. There are a few attempts to reach the agent.
async fn stop(agent: &RestPeer, id: &str) {
    for attempt in 1..=STOPS {
        match cancel(agent, id).await {
            Err(fault) if fault.is_temporary && attempt < STOPS => {
                sleep(return_pause(attempt).max(fault.wait)).await;
            }
            Err(fault) => return tracing::debug!(id, ?fault, "a task was not cancelled at its agent"),
            Ok(_) => return,
        }
    }
}

/// Returns a task whose agent is not reached to its place, for `wait` at least. It is false if the task is gone: the agent
/// may have it.
async fn put_back(run: &TaskRun, task: &StoredTask, wait: Duration) -> bool {
    let delay = return_pause(task.attempts).max(wait);
    let change = StoreChange::ReturnTask { lease: run.lease, delay };
    let returned = insist(|| {
        let batch = StoreBatch::new(run.gateway.time()).with(change.clone());
        run.gateway.in_store(move |store| store.apply(batch))
    });
    let Err(refusal) = returned.await else { return true };
    // The end of its lease returns it.
    tracing::debug!(task = run.key.task.as_str(), %refusal, "a task was not returned");
    !matches!(run.gateway.in_store(found_again(task)).await, Ok(false))
}

/// Gives the agent the task, and follows it to its end. An error is one that a later attempt can avoid.
async fn work(
    run: &TaskRun,
    task: &StoredTask,
    agent: &RestPeer,
    id: &str,
    changes: StoreWatch,
    place: WorkPlace,
) -> Result<Ending, RestFault> {
    let limits = &run.gateway.config.limits;
    let limit = task.timeout_ms.map_or(Duration::from_secs(limits.task_seconds), Duration::from_millis);
    let left = match begin(run, task, agent, id).await {
        Ok(Begun::Sent) => limit,
        Ok(Begun::Found) => time_left(limit, task.handed_at, run.gateway.time().wall),
        // The agent does not have it.
        Ok(Begun::Cancelled) => {
            return Ok(Ending { end: Cancelled::Asked.end(Duration::ZERO), is_over: true });
        }
        Err(fault) if fault.is_temporary => return Err(fault),
        Err(fault) => {
            // With another answer than a refusal it can have begun.
            let is_over = fault.is_refusal();
            let failed = TaskEnd::failed(&fault.code, fault.message, false);
            return Ok(Ending { end: TaskEnd { state: TaskState::Rejected, ..failed }, is_over });
        }
    };
    // A drain need not wait for it.
    drop(place);
    Ok(follow(run, task, agent, id, changes, (limit, left)).await)
}

/// The begin of an attempt.
enum Begun {
    /// The agent has got the task.
    Sent,
    /// The agent had got it from an earlier attempt.
    Found,
    /// The task is being cancelled, and the agent does not have it.
    Cancelled,
}

/// Returns the rest of the time limit of a task that an earlier attempt has given to its agent.
fn time_left(limit: Duration, handed_at: Option<u64>, wall: u64) -> Duration {
    let passed = Duration::from_millis(wall.saturating_sub(handed_at.unwrap_or(wall)));
    limit.saturating_sub(passed).max(LEAST_TIME.min(limit))
}

/// Sends the task, unless an earlier attempt has.
async fn begin(run: &TaskRun, task: &StoredTask, agent: &RestPeer, id: &str) -> Result<Begun, RestFault> {
    if task.attempts > 1 {
        // An earlier attempt can have reached it.
        match agent.get(&["tasks", id]).await {
            Err(fault) if fault.is_absent() => {}
            found => {
                answer_about(id, "taskId", found?)?;
                continue_work(&run.gateway, run.lease).await;
                return Ok(Begun::Found);
            }
        }
    }
    if task.state == TaskState::Cancelling {
        return Ok(Begun::Cancelled);
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
    hand_over(&run.gateway, run.lease).await;
    let answer = answer_about(id, "taskId", agent.post(&["tasks"], &body, headers).await?)?;
    match answer["status"].as_str() {
        Some("rejected") => Err(RestFault::answered(&answer["error"])),
        _ => Ok(Begun::Sent),
    }
}

/// Reads the state of the task until it has ended. While the agent is not reached it can work on, so only the time limit
/// of the task ends that: `limit`, of which there is so much left.
async fn follow(
    run: &TaskRun,
    task: &StoredTask,
    agent: &RestPeer,
    id: &str,
    mut changes: StoreWatch,
    (limit, left): (Duration, Duration),
) -> Ending {
    let until = Instant::now() + left;
    let mut chunks = ChunkPosts::of(task);
    let mut progress = 0;
    let mut pause = Duration::ZERO;
    // True after an answer that the agent does not show the task. Servers in front of it give such answers too.
    let mut is_hidden = false;
    // The reason for which it is being cancelled, the end of the agent's time for it, and true if the agent knows.
    let mut cancelled: Option<(Cancelled, Instant, bool)> = None;
    let mut news = pin!(stopped(run, &mut changes));
    let mut is_watched = true;
    loop {
        if cancelled.is_none() && Instant::now() >= until {
            cancelled = Some((Cancelled::Timeout, Instant::now() + CANCEL, false));
        }
        // An agent that does not answer delays no end of a limit.
        let next = cancelled.as_ref().map_or(until, |(_, end, _)| *end);
        if let Some((_, _, is_known @ false)) = &mut cancelled {
            *is_known = timeout_at(next, cancel(agent, id)).await.is_ok_and(|answer| answer.is_ok());
        }
        let asked = async {
            sleep_until(next.min(Instant::now() + pause)).await;
            timeout_at(next, agent.get(&["tasks", id])).await
        };
        let found = tokio::select! {
            looked = &mut news, if is_watched => {
                is_watched = false;
                if matches!(looked, Looked::Ended) {
                    let end = TaskEnd::failed(TaskFailure::WORKER_LOST, "the task ended elsewhere", true);
                    return Ending { end, is_over: false };
                }
                pause = FIRST_POLL;
                cancelled.get_or_insert_with(|| (Cancelled::Asked, Instant::now() + CANCEL, false));
                continue;
            }
            found = asked => found,
        };
        pause = pause.saturating_mul(2).clamp(FIRST_POLL, LONGEST_POLL);
        let found = found.unwrap_or_else(|_| Err(RestFault::unreachable("the agent does not answer")));
        let mut fault = None;
        let found = found.and_then(|found| answer_about(id, "taskId", found));
        match found.and_then(|found| end_of(&found, agent).map(|end| (end, percent(&found)))) {
            Ok((Some(end), _)) => {
                let end = match &cancelled {
                    Some((Cancelled::Timeout, _, _)) => Cancelled::Timeout.end(limit),
                    Some((Cancelled::Asked, _, _)) if end.state == TaskState::Failed => {
                        Cancelled::Asked.end(limit)
                    }
                    _ => {
                        chunks.add(text_of(end.result.as_ref()).as_deref().unwrap_or_default());
                        TaskEnd { chunks, ..end }
                    }
                };
                return Ending { end, is_over: true };
            }
            Ok((None, percent)) => {
                is_hidden = false;
                // Progress that goes down is none.
                if let Some(percent) = percent.filter(|percent| *percent > progress) {
                    (progress, pause) = (percent, FIRST_POLL);
                    run.write_output(&mut chunks, Some(percent)).await;
                }
            }
            Err(error) if error.is_temporary => {
                pause = pause.max(error.wait);
                fault = Some(error);
            }
            Err(error) if error.is_hidden() && !std::mem::replace(&mut is_hidden, true) => {}
            Err(RestFault { code, message, .. }) => {
                return Ending { end: TaskEnd::failed(&code, message, false), is_over: false };
            }
        }
        if let Some((reason, end, is_known)) = &cancelled
            && Instant::now() >= *end
        {
            let end = match (reason, fault) {
                (Cancelled::Timeout, Some(fault)) => {
                    TaskEnd::failed(failure::UNREACHABLE, fault.message, true)
                }
                _ => reason.end(limit),
            };
            return Ending { end, is_over: *is_known };
        }
    }
}

/// Waits until somebody cancels or ends the task. Its other changes, such as that of its progress, do not count.
async fn stopped(run: &TaskRun, changes: &mut StoreWatch) -> Looked {
    loop {
        changes.take_changed();
        match run.look(&mut OpenQuestions::default()).await {
            Ok(Looked::Working) => changes.changed().await,
            Ok(looked) => return looked,
            Err(_) => sleep(RETRY).await,
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
            let mut result = agent.checked_result(&found["result"])?.cloned();
            if let Some(result) = &mut result
                && check_attachments(result, agent.result_size)
            {
                result["truncated"] = json!(true);
            }
            let result = result.and_then(|result| JsonText::of(&result).ok());
            TaskEnd { result, ..ended(TaskState::Completed) }
        }
        Some("cancelled") => ended(TaskState::Cancelled),
        Some("failed") => {
            let RestFault { code, message, .. } = RestFault::answered(&found["error"]);
            TaskEnd::failed(&code, message, found["error"]["retryable"] == true)
        }
        _ => {
            return Err(RestFault::new(
                failure::AGENT_FAILED,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_limit_counts_from_the_first_hand_over() {
        let limit = Duration::from_secs(60);
        for (handed_at, left) in [(None, 60), (Some(100_000), 60), (Some(80_000), 40), (Some(0), 5)] {
            assert_eq!(time_left(limit, handed_at, 100_000), Duration::from_secs(left), "{handed_at:?}");
        }
        // The clock was set, and a limit that is shorter than the least time.
        assert_eq!(time_left(limit, Some(200_000), 100_000), limit);
        assert_eq!(time_left(Duration::from_secs(1), Some(0), 100_000), Duration::from_secs(1));
    }
}
