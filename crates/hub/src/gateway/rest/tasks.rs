//! Tasks: their creation, their states, and their cancellation.

use axum::http::StatusCode;
use duologue_schema::envelope::TaskState;
use duologue_store::{
    ChangeOutcome, JsonText, NewTask, Store, StoreBatch, StoreChange, StorePage, StoreTime, StoredTask,
    StoredTaskKey, TaskQuery, TaskUpdate,
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::gateway::access::Action;
use crate::gateway::agent_calls::forwarded;
use crate::gateway::dialogue_relay::DIALOGUE;
use crate::gateway::rest::messages::stopping;
use crate::gateway::rest::request::{
    JsonBody, OnceBatch, OnceOutcome, PathOf, QueryOf, RestCaller, RestReply,
};
use crate::gateway::rest::sent_reply::SentReply;
use crate::gateway::rest::values::{
    AgentTarget, OwnerQuery, PageLimit, PageOffset, Pagination, RestFailure, RestId, RestMetadata,
    RestNumber, RestPriority, RestUrl, TaskTarget, object, unless_null,
};
use crate::gateway::rest::visibility::{RoutedAgent, Visible, find_task, list_visible};
use crate::gateway::rest_agent::outbound_settings;
use crate::gateway::routing::OPERATOR;
use crate::gateway::states::task_status;
use crate::gateway::{Refusal, RefusalCode, events};

/// The ended tasks whose duration predicts that of a new one.
pub(crate) const SAMPLES: u64 = 20;
/// The attempts to cancel a task that changes at the same time.
const ATTEMPTS: usize = 16;

/// The work of a task.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = Work)]
#[non_exhaustive]
pub struct RestWork {
    /// The type.
    #[serde(rename = "type")]
    pub kind: RestId,
    /// The parameters. `prompt` or `text` alone is the prompt of an agent that has no tasks.
    #[serde(default)]
    #[schema(value_type = Value)]
    pub parameters: JsonText,
}

/// A task for an agent.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = NewTask)]
#[non_exhaustive]
pub struct RestNewTask {
    /// The sender: the caller or the agent that it is. That is also the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<RestId>,
    /// The id. A task that is created again with the same id and content is not run twice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_id: Option<RestId>,
    /// The work.
    #[serde(deserialize_with = "object")]
    pub task: RestWork,
    /// The address that receives the end of the task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callback: Option<RestUrl>,
    /// False sends nothing to `streamEndpoint`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub streaming: Option<bool>,
    /// The address that receives the output of the task while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream_endpoint: Option<RestUrl>,
    /// The agent that gets the task if no other one can, or `operator`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback: Option<RestId>,
    /// The priority.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<RestPriority>,
    /// The time limit of the work in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<RestNumber>,
    /// Other members. `retry` with the value `safe` lets the server start the task again after its agent was lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<RestMetadata>,
}

impl RestNewTask {
    /// Creates a task of a type from its parameters, which can be a prompt.
    #[must_use]
    pub fn new(kind: impl Into<RestId>, parameters: JsonText) -> Self {
        RestNewTask {
            from: None,
            task_id: None,
            task: RestWork { kind: kind.into(), parameters },
            callback: None,
            streaming: None,
            stream_endpoint: None,
            fallback: None,
            priority: None,
            timeout: None,
            metadata: None,
        }
    }
}

/// The decision on a new task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = TaskAcceptance)]
pub enum RestAcceptance {
    /// It waits or runs, or has ended.
    Accepted,
    /// The agent has not accepted it.
    Rejected,
}

/// The answer to a new task.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = CreatedTask)]
#[non_exhaustive]
pub struct RestCreatedTask {
    /// The id of the task.
    pub task_id: String,
    /// The agent that has it.
    pub agent_id: String,
    /// The decision.
    pub status: RestAcceptance,
    /// The time at which it ends if it takes as long as the last tasks of its type, in milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub estimated_completion: Option<u64>,
    /// The reason for which it was not accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<RestFailure>,
}

/// The status of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = TaskStatus)]
pub enum RestTaskStatus {
    /// It waits.
    Pending,
    /// The agent works on it.
    Processing,
    /// It has a result.
    Completed,
    /// It has an error.
    Failed,
    /// It was cancelled.
    Cancelled,
}

/// A task.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Task)]
#[non_exhaustive]
pub struct RestTask {
    /// The id.
    pub task_id: String,
    /// The agent that runs it.
    pub agent_id: String,
    /// The sender.
    pub from: String,
    /// The principal that has created it.
    pub owner: String,
    /// The type.
    #[serde(rename = "type")]
    pub kind: String,
    /// The status.
    pub status: RestTaskStatus,
    /// The state, which is finer than the status: `submitted`, `working`, `input_required`, `cancelling`, `completed`,
    /// `failed`, `cancelled`, `rejected` or `expired`.
    pub state: String,
    /// True if it waits for the answer to a question.
    #[serde(default, skip_serializing_if = "is_false")]
    pub awaiting: bool,
    /// True if it is being cancelled.
    #[serde(default, skip_serializing_if = "is_false")]
    pub cancelling: bool,
    /// The priority.
    pub priority: RestPriority,
    /// The progress in percent: that of the agent's plan, or the one that the agent reports. Left out until
    /// it is 1 or more.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 100)]
    pub progress: Option<u8>,
    /// The result.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>)]
    pub result: Option<JsonText>,
    /// The error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<RestFailure>,
    /// The session in which it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// The time of its creation, in milliseconds since 1970.
    pub created_at: u64,
    /// The time of the last change, in milliseconds since 1970.
    pub updated_at: u64,
    /// The time of its end, in milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<u64>,
}

fn is_false(value: &bool) -> bool {
    !value
}

impl RestTaskStatus {
    /// Returns the text of the status.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            RestTaskStatus::Pending => "pending",
            RestTaskStatus::Processing => "processing",
            RestTaskStatus::Completed => "completed",
            RestTaskStatus::Failed => "failed",
            RestTaskStatus::Cancelled => "cancelled",
        }
    }
}

impl From<StoredTask> for RestTask {
    fn from(task: StoredTask) -> Self {
        RestTask {
            task_id: task.key.task,
            agent_id: task.key.agent,
            from: task.from.name,
            owner: task.key.owner,
            kind: task.kind,
            status: task_status(&task.state),
            state: task.state.as_str().to_owned(),
            awaiting: task.state == TaskState::InputRequired,
            cancelling: task.state == TaskState::Cancelling,
            priority: RestPriority::of(task.priority),
            progress: task.progress,
            result: task.result.as_ref().and_then(unless_null),
            error: task.error.map(RestFailure::from),
            session_id: task.session,
            created_at: task.created,
            updated_at: task.updated,
            completed_at: task.completed,
        }
    }
}

/// A page of tasks, the newest first.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = TaskList)]
#[non_exhaustive]
pub struct RestTaskList {
    /// The tasks.
    pub tasks: Vec<RestTask>,
    /// The place of the page.
    pub pagination: Pagination,
}

/// Gives an agent a task.
#[utoipa::path(
    post, path = "/agents/{agentId}/tasks", tag = "tasks",
    params(
        AgentTarget,
        ("Idempotency-Key" = Option<String>, Header, min_length = 1, max_length = 128, pattern = "^[!-~]+$", description = "A repeated request with this key has the first response."),
    ),
    request_body = RestNewTask,
    responses(
        (status = 422, body = crate::gateway::rest::RefusalBody, description = "The `Idempotency-Key` belongs to a request with another content."),
        (status = 200, body = RestCreatedTask, description = "The task was created before."),
        (status = 202, body = RestCreatedTask, description = "The task was created."),
        (status = 409, body = crate::gateway::rest::RefusalBody, description = "Another task has the id, a request with the key still runs, the agent takes messages alone, or it has no folder (`not_configured`)."),
        (status = 503, body = crate::gateway::rest::RefusalBody, description = "The server is stopped."),
    ),
)]
pub(crate) async fn create_task(
    caller: RestCaller,
    PathOf(AgentTarget { agent_id }): PathOf<AgentTarget>,
    body: JsonBody<RestNewTask>,
) -> Result<RestReply, Refusal> {
    let sent = body.value;
    let seen = caller.once("create_task", &body.bytes)?;
    if let Some(reply) = caller.repeated(seen.as_ref()).await? {
        return Ok(reply);
    }
    let (fallback, chosen) = (sent.fallback.as_ref(), sent.task_id.as_ref());
    let routed = caller.route(agent_id, fallback, Action::Task, chosen).await?;
    let RoutedAgent { id: agent_id, is_allowed, turn } = routed;
    let gateway = caller.gateway();
    let time = gateway.time();
    // An agent that the caller cannot find is absent, whatever the sender is.
    let from = if is_allowed { caller.sender(sent.from.map(|from| from.0))? } else { String::new() };
    let id = sent.task_id.map_or_else(|| crate::unique_id::new_id().to_string(), |id| id.0);
    let key = StoredTaskKey::new(caller.id(), &agent_id, &id);
    let mut new = NewTask::new(key, from, sent.task.kind.0, sent.task.parameters);
    new.priority = sent.priority.unwrap_or_default().number();
    new.callback = sent.callback.map(|url| url.0);
    new.stream_endpoint = sent.stream_endpoint.filter(|_| sent.streaming != Some(false)).map(|url| url.0);
    let outbound = outbound_settings(&gateway.config);
    for (member, url) in [("callback", &new.callback), ("streamEndpoint", &new.stream_endpoint)] {
        // The sender would refuse it after the task.
        if let Some(Err(error)) = url.as_ref().map(|url| outbound.check(url)) {
            return Err(Refusal::invalid(format!("{member}: {error}")));
        }
    }
    new.timeout_ms = sent.timeout.map(|timeout| timeout.0);
    new.trace = caller.trace();
    if let Some(metadata) = sent.metadata {
        if new.kind == DIALOGUE && metadata.0.contains_key("duologue") {
            return Err(Refusal::invalid(
                "metadata.duologue: agents alone begin dialogues; use another type, or leave it out",
            ));
        }
        new.retry_safe = metadata.0.get("retry").is_some_and(|retry| retry == "safe");
        new.metadata = JsonText::of(&metadata)?;
    }
    // It knows the task by an id that is the same in all attempts.
    let is_elsewhere = gateway.rest_agent(&agent_id).is_some();
    new.retry_safe |= is_elsewhere;
    if is_allowed && is_elsewhere {
        // A task that waits could wait for a place that its own chain of calls holds.
        forwarded(&new.metadata.parse()?, &agent_id, gateway.config.limits.call_depth)
            .map_err(|error| Refusal::invalid(error.message))?;
    }
    let (shared, agent) = (gateway.clone(), agent_id.clone());
    let create = move |store: &dyn Store| {
        // It ends with this job, also if the client goes before.
        let _turn = turn;
        let found = store.agent(&agent)?;
        // The operator needs no entry in the registry.
        if !is_allowed || (found.is_none() && agent != OPERATOR) {
            return Ok(Err(Refusal::not_found("agent")));
        }
        if let Some(refusal) = shared.unable(&agent, found.as_ref(), Action::Task) {
            return Ok(Err(refusal));
        }
        if shared.is_draining() {
            return Ok(Err(stopping()));
        }
        let duration = store.median_duration(&agent, &new.kind, SAMPLES)?;
        let end = |start: u64| {
            duration
                .map(|duration| start.saturating_add(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)))
        };
        let created = RestCreatedTask {
            task_id: new.key.task.clone(),
            agent_id: agent.clone(),
            status: RestAcceptance::Accepted,
            estimated_completion: end(time.wall),
            error: None,
        };
        let reply = RestReply::kept(StatusCode::ACCEPTED, &created)?;
        let reply = reply.at(&["agents", &agent, "tasks", &new.key.task]);
        let key = new.key.clone();
        let batch = StoreBatch::new(time).with(StoreChange::CreateTask(new));
        let duplicate = |outcome| {
            let found = if outcome == ChangeOutcome::Duplicate { store.task(&key)? } else { None };
            let Some(existing) = found else { return Ok(None) };
            let is_rejected = existing.state == TaskState::Rejected;
            let repeated = RestCreatedTask {
                task_id: existing.key.task,
                agent_id: existing.key.agent,
                status: if is_rejected { RestAcceptance::Rejected } else { RestAcceptance::Accepted },
                estimated_completion: if existing.completed.is_none() { end(existing.created) } else { None },
                error: existing.error.filter(|_| is_rejected).map(RestFailure::from),
            };
            RestReply::kept(StatusCode::OK, &repeated).map(Some)
        };
        let OnceOutcome { reply, first } = OnceBatch::new(batch, seen).apply(store, reply, duplicate)?;
        Ok(Ok((reply, first.is_some_and(|first| first != ChangeOutcome::Duplicate))))
    };
    let (reply, is_new) = gateway.in_store(create).await??;
    if is_new {
        events::task_created(caller.id(), &agent_id, &id);
    }
    Ok(reply)
}

/// A state of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = TaskStateFilter)]
pub enum RestStateFilter {
    /// It waits.
    Submitted,
    /// The agent works on it.
    Working,
    /// It waits for the answer to a question.
    InputRequired,
    /// It is being cancelled.
    Cancelling,
    /// It has a result.
    Completed,
    /// It has an error.
    Failed,
    /// It was cancelled.
    Cancelled,
    /// The agent has not accepted it.
    Rejected,
    /// It was not started in time.
    Expired,
}

impl From<RestStateFilter> for TaskState {
    fn from(state: RestStateFilter) -> Self {
        match state {
            RestStateFilter::Submitted => TaskState::Submitted,
            RestStateFilter::Working => TaskState::Working,
            RestStateFilter::InputRequired => TaskState::InputRequired,
            RestStateFilter::Cancelling => TaskState::Cancelling,
            RestStateFilter::Completed => TaskState::Completed,
            RestStateFilter::Failed => TaskState::Failed,
            RestStateFilter::Cancelled => TaskState::Cancelled,
            RestStateFilter::Rejected => TaskState::Rejected,
            RestStateFilter::Expired => TaskState::Expired,
        }
    }
}

/// Filters of tasks, and the place of a page.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
#[non_exhaustive]
pub struct TaskFilter {
    /// The principal that has created it.
    pub owner: Option<String>,
    /// A state.
    #[param(inline)]
    pub state: Option<RestStateFilter>,
    /// The number of entries in front of the page.
    #[param(inline)]
    pub offset: PageOffset,
    /// The most entries of the page.
    #[param(inline)]
    pub limit: PageLimit,
}

/// Lists the tasks of an agent: those of the caller, or all if the caller acts for the agent.
#[utoipa::path(
    get, path = "/agents/{agentId}/tasks", tag = "tasks", params(AgentTarget, TaskFilter),
    responses((status = 200, body = RestTaskList, description = "A page of tasks.")),
)]
pub(crate) async fn list_tasks(
    caller: RestCaller,
    PathOf(AgentTarget { agent_id }): PathOf<AgentTarget>,
    QueryOf(filter): QueryOf<TaskFilter>,
) -> Result<SentReply, Refusal> {
    let admission = caller.open_page().await?;
    let TaskFilter { owner, state, offset, limit } = filter;
    let page = list_visible(&caller, Action::Task, agent_id, owner, move |store, agent, owner| {
        let mut query = TaskQuery::default();
        (query.agent, query.owner, query.state) = (agent, owner, state.map(TaskState::from));
        (query.offset, query.limit, query.newest_first) = (offset.0, limit.0, true);
        store.tasks(&query)
    });
    Ok(admission.until_sent(RestReply::ok(&task_list(page.await?))?))
}

/// Returns the list of a page.
pub(crate) fn task_list(page: StorePage<StoredTask>) -> RestTaskList {
    let pagination = Pagination::from(&page);
    RestTaskList { tasks: page.items.into_iter().map(RestTask::from).collect(), pagination }
}

/// Returns a task that the caller can see.
pub(crate) async fn visible_task(
    caller: &RestCaller,
    target: TaskTarget,
    owner: Option<String>,
) -> Result<StoredTask, Refusal> {
    let TaskTarget { agent_id, task_id } = target;
    let (visible, own) = (caller.sees(Action::Task, &agent_id), caller.id().to_owned());
    let find = move |store: &dyn Store, visible: &Visible| {
        find_task(store, visible, &own, (&agent_id, &task_id), owner)
    };
    caller.find(visible, find).await?.ok_or_else(|| Refusal::not_found("task"))
}

/// Checks that the caller may change a task that it can see: the owner may, and an administrator.
pub(crate) fn require_owner(caller: &RestCaller, task: &StoredTask) -> Result<(), Refusal> {
    if task.key.owner == caller.id() || caller.principal.is_admin() {
        return Ok(());
    }
    Err(Refusal::new(RefusalCode::NotAuthorized, "the task belongs to another principal"))
}

/// Returns a task with its progress, result or error.
#[utoipa::path(
    get, path = "/agents/{agentId}/tasks/{taskId}", tag = "tasks", params(TaskTarget, OwnerQuery),
    responses((status = 200, body = RestTask, description = "The task.")),
)]
pub(crate) async fn get_task(
    caller: RestCaller,
    PathOf(target): PathOf<TaskTarget>,
    QueryOf(query): QueryOf<OwnerQuery>,
) -> Result<SentReply, Refusal> {
    let admission = caller.open_record().await?;
    Ok(admission
        .until_sent(RestReply::ok(&RestTask::from(visible_task(&caller, target, query.owner).await?))?))
}

/// Cancels a task. One that has not begun is cancelled at once, another when its agent has ended the work.
#[utoipa::path(
    post, path = "/agents/{agentId}/tasks/{taskId}/cancel", tag = "tasks", params(TaskTarget, OwnerQuery),
    responses(
        (status = 200, body = RestTask, description = "The task is cancelled."),
        (status = 202, body = RestTask, description = "The agent ends the work."),
        (status = 409, body = crate::gateway::rest::RefusalBody, description = "The task has ended in another way."),
    ),
)]
pub(crate) async fn cancel_task(
    caller: RestCaller,
    PathOf(target): PathOf<TaskTarget>,
    QueryOf(query): QueryOf<OwnerQuery>,
) -> Result<RestReply, Refusal> {
    let task = visible_task(&caller, target, query.owner).await?;
    require_owner(&caller, &task)?;
    let gateway = caller.gateway();
    let time = gateway.time();
    let key = task.key;
    let name = key.clone();
    let (task, is_new) = gateway.in_store(move |store| cancel(store, time, &key)).await??;
    if is_new {
        events::task_cancelled(caller.id(), &name);
        if task.state.is_final() {
            events::task_completed(&name, task.state.as_str());
        }
    }
    let status = if task.state == TaskState::Cancelled { StatusCode::OK } else { StatusCode::ACCEPTED };
    RestReply::new(status, &RestTask::from(task))
}

/// Cancels a task, at once or through its worker. Returns the task, and false if it was cancelled before.
pub(crate) fn cancel(
    store: &dyn Store,
    time: StoreTime,
    key: &StoredTaskKey,
) -> duologue_store::Result<Result<(StoredTask, bool), Refusal>> {
    for _ in 0..ATTEMPTS {
        let Some(task) = store.task(key)? else { return Ok(Err(Refusal::not_found("task"))) };
        let state = match &task.state {
            TaskState::Cancelled | TaskState::Cancelling => return Ok(Ok((task, false))),
            state if state.is_final() => {
                let why = format!("the task has ended already: {}", state.as_str());
                return Ok(Err(Refusal::new(RefusalCode::AlreadyFinished, why)));
            }
            // An earlier attempt can have given it to an agent elsewhere, and its next worker asks there.
            TaskState::Submitted if task.attempts > 0 && task.retry_safe && task.worker.is_none() => {
                TaskState::Cancelling
            }
            TaskState::Submitted => TaskState::Cancelled,
            _ => TaskState::Cancelling,
        };
        let update = TaskUpdate::new(key.clone(), task.version).state(state);
        match store.apply(StoreBatch::new(time).with(StoreChange::UpdateTask(update))) {
            Ok(_) => {
                let cancelled = store.task(key)?.unwrap_or(task);
                return Ok(Ok((cancelled, true)));
            }
            // The agent has begun it, or reports its progress.
            Err(duologue_store::Error::VersionLost { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    let why = "the task changes too often; cancel it again";
    Ok(Err(Refusal::new(RefusalCode::Overloaded, why)))
}
