//! Tasks of agents, and the questions that they ask.

use std::time::Duration;

use duologue_schema::envelope::TaskState;
use serde::{Deserialize, Serialize, Serializer};

use super::messages::MessageSender;
use super::values::{JsonText, LeaseToken};

/// The key of a task. An owner chooses the ids of its tasks, so two owners may use the same one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StoredTaskKey {
    /// The principal that has created it.
    pub owner: String,
    /// The agent that runs it.
    pub agent: String,
    /// The id of the task.
    pub task: String,
}

impl StoredTaskKey {
    /// Creates a key.
    #[must_use]
    pub fn new(owner: impl Into<String>, agent: impl Into<String>, task: impl Into<String>) -> Self {
        StoredTaskKey { owner: owner.into(), agent: agent.into(), task: task.into() }
    }
}

/// The error that ended a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskFailure {
    /// The code, such as `timeout`.
    pub code: String,
    /// The message.
    pub message: String,
    /// True if another task with the same work may succeed.
    pub retryable: bool,
}

impl TaskFailure {
    /// The code of started work whose worker has lost its lease.
    pub const WORKER_LOST: &str = "worker_lost";
    /// The code of started work whose lease ended with the life of the store.
    pub const RESTARTED: &str = "restarted";
    /// The code of a task whose agent was removed from the registry.
    pub const AGENT_REMOVED: &str = "agent_removed";
    /// The code of work whose principal may not use the server any more.
    pub const PRINCIPAL_REMOVED: &str = "principal_removed";
    /// The code of a task that was not started in time.
    pub const EXPIRED: &str = "expired";
    /// The codes that the store gives.
    pub const CODES: &[&str] =
        &[Self::WORKER_LOST, Self::RESTARTED, Self::AGENT_REMOVED, Self::PRINCIPAL_REMOVED, Self::EXPIRED];

    /// Creates an error.
    #[must_use]
    pub fn new(code: impl Into<String>, message: impl Into<String>, retryable: bool) -> Self {
        TaskFailure { code: code.into(), message: message.into(), retryable }
    }
}

/// A new task.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NewTask {
    /// The key. `from.principal` is the owner too.
    pub key: StoredTaskKey,
    /// The name that the sender has given, such as an agent id.
    pub from: String,
    /// The type of the task.
    pub kind: String,
    /// The parameters.
    pub parameters: JsonText,
    /// The priority, 0 to 9. Higher numbers count as 9.
    pub priority: u8,
    /// The address that receives the end of the task.
    pub callback: Option<String>,
    /// The address that receives the output of the task.
    pub stream_endpoint: Option<String>,
    /// The time limit of the work in milliseconds.
    pub timeout_ms: Option<u64>,
    /// The time after which it is not started any more, in milliseconds since 1970.
    pub expires: Option<u64>,
    /// True if the work may be started again after its worker is lost.
    pub retry_safe: bool,
    /// The most attempts, at least one. Only tasks that were not started, or are safe to retry, have several.
    pub max_attempts: u32,
    /// The metadata.
    pub metadata: JsonText,
    /// The trace context of the request. It is not compared with that of an earlier one.
    pub trace: Option<String>,
}

impl NewTask {
    /// The most attempts of [`new`](Self::new).
    pub const MAX_ATTEMPTS: u32 = 5;
    /// The priority of [`new`](Self::new).
    pub const PRIORITY: u8 = 4;

    /// Creates a task with priority 4, without addresses and limits. It is not safe to retry.
    #[must_use]
    pub fn new(
        key: StoredTaskKey,
        from: impl Into<String>,
        kind: impl Into<String>,
        parameters: JsonText,
    ) -> Self {
        NewTask {
            key,
            from: from.into(),
            kind: kind.into(),
            parameters,
            priority: NewTask::PRIORITY,
            callback: None,
            stream_endpoint: None,
            timeout_ms: None,
            expires: None,
            retry_safe: false,
            max_attempts: NewTask::MAX_ATTEMPTS,
            metadata: JsonText::default(),
            trace: None,
        }
    }
}

/// A task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct StoredTask {
    /// The place in the order of creation, a number that no other task ever has. A task that is sent again gets another.
    pub seq: u64,
    /// The key.
    pub key: StoredTaskKey,
    /// The sender. Its principal is the owner.
    pub from: MessageSender,
    /// The type of the task.
    pub kind: String,
    /// The parameters.
    pub parameters: JsonText,
    /// The priority, 0 to 9.
    pub priority: u8,
    /// The state.
    #[serde(serialize_with = "state_name")]
    pub state: TaskState,
    /// True if an agent has started it, so it is not started again unless it is safe to retry.
    pub started: bool,
    /// The progress in percent, which is 1 or more. Absent until a part of the work is known to be done.
    pub progress: Option<u8>,
    /// The result.
    pub result: Option<JsonText>,
    /// The error.
    pub error: Option<TaskFailure>,
    /// The address that receives the end of the task.
    pub callback: Option<String>,
    /// True if the last posts to `callback` and `stream_endpoint` are in the outbox.
    pub callback_queued: bool,
    /// The address that receives the output of the task.
    pub stream_endpoint: Option<String>,
    /// The session in which it runs.
    pub session: Option<String>,
    /// The time limit of the work in milliseconds.
    pub timeout_ms: Option<u64>,
    /// The time after which it is not started any more, in milliseconds since 1970.
    pub expires: Option<u64>,
    /// True if the work may be started again after its worker is lost.
    pub retry_safe: bool,
    /// The attempts that have begun.
    pub attempts: u32,
    /// The most attempts.
    pub max_attempts: u32,
    /// The worker that has it, if one has.
    pub worker: Option<String>,
    /// True if it is a dead letter: its worker was lost, or it has had all its attempts.
    pub dead: bool,
    /// The metadata.
    pub metadata: JsonText,
    /// The trace context of the request.
    pub trace: Option<String>,
    /// The version. Each update adds one, and so does its return or end without a worker. A claim does not.
    pub version: u64,
    /// The time of its creation, in milliseconds since 1970.
    pub created: u64,
    /// The time of the last change, in milliseconds since 1970.
    pub updated: u64,
    /// The time at which an agent has started it last, in milliseconds since 1970.
    pub started_at: Option<u64>,
    /// The time of its end, in milliseconds since 1970.
    pub completed: Option<u64>,
    /// The time at which an agent has last got it, in milliseconds since 1970. See
    /// [`StoreChange::HandOver`](crate::StoreChange::HandOver).
    pub handed_at: Option<u64>,
}

fn state_name<S: Serializer>(state: &TaskState, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(state.as_str())
}

/// A change of a task. Absent members stay as they are.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TaskUpdate {
    /// The task.
    pub key: StoredTaskKey,
    /// The version that the caller has read. With another one the update is lost:
    /// [`Error::VersionLost`](crate::Error::VersionLost).
    pub version: u64,
    /// The lease of the worker. If it is set, it has to be valid:
    /// [`Error::LeaseLost`](crate::Error::LeaseLost).
    pub lease: Option<LeaseToken>,
    /// The state. `Working` and `InputRequired` mean that an agent has started it. A final state ends the lease,
    /// withdraws open questions, and is never changed again.
    pub state: Option<TaskState>,
    /// The progress in percent. Higher numbers count as 100.
    pub progress: Option<u8>,
    /// The result.
    pub result: Option<JsonText>,
    /// The error.
    pub error: Option<TaskFailure>,
    /// The session in which it runs.
    pub session: Option<String>,
    /// The metadata.
    pub metadata: Option<JsonText>,
    /// True if this batch has the last posts to `callback` and `stream_endpoint`. It is the only change that a task that has ended accepts.
    pub callback_queued: bool,
}

impl TaskUpdate {
    /// Creates an update that changes nothing yet.
    #[must_use]
    pub fn new(key: StoredTaskKey, version: u64) -> Self {
        TaskUpdate {
            key,
            version,
            lease: None,
            state: None,
            progress: None,
            result: None,
            error: None,
            session: None,
            metadata: None,
            callback_queued: false,
        }
    }

    /// Sets the lease.
    #[must_use]
    pub fn lease(mut self, lease: LeaseToken) -> Self {
        self.lease = Some(lease);
        self
    }

    /// Sets the state.
    #[must_use]
    pub fn state(mut self, state: TaskState) -> Self {
        self.state = Some(state);
        self
    }
}

/// Filters of tasks, all of which have to match, and the place of a page. Tasks are in order of creation.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct TaskQuery {
    /// An owner.
    pub owner: Option<String>,
    /// An agent.
    pub agent: Option<String>,
    /// The id of a task, which tasks of several owners can have.
    pub id: Option<String>,
    /// A state.
    pub state: Option<TaskState>,
    /// True lists tasks that have ended, false those that have not.
    pub ended: Option<bool>,
    /// True lists dead letters alone.
    pub dead: Option<bool>,
    /// True lists the tasks that a worker has claimed at least once.
    pub attempted: bool,
    /// A session.
    pub session: Option<String>,
    /// True lists the tasks that have ended and whose last posts to `callback` and `stream_endpoint` are not in the outbox. A
    /// server looks for them after each [`sweep`](crate::Store::sweep) and after its start.
    pub callback_due: bool,
    /// True lists the newest task first.
    pub newest_first: bool,
    /// The number of entries in front of the page.
    pub offset: u64,
    /// The most entries of the page. Zero counts as 100, and
    /// [`StoreSettings::page_entries`](crate::StoreSettings::page_entries) is the most.
    pub limit: u64,
}

/// The state of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum QuestionState {
    /// It waits for an answer.
    Open,
    /// It was answered.
    Answered,
    /// It needs no answer any more.
    Withdrawn,
}

/// A new question of a task.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NewQuestion {
    /// The id, which is unique in the task.
    pub id: String,
    /// The task that asks.
    pub task: StoredTaskKey,
    /// The body.
    pub body: JsonText,
}

impl NewQuestion {
    /// Creates a question.
    #[must_use]
    pub fn new(task: StoredTaskKey, id: impl Into<String>, body: JsonText) -> Self {
        NewQuestion { id: id.into(), task, body }
    }
}

/// A question of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct StoredQuestion {
    /// The id, which is unique in the task.
    pub id: String,
    /// The task that asks.
    pub task: StoredTaskKey,
    /// The body.
    pub body: JsonText,
    /// The state.
    pub state: QuestionState,
    /// The answer.
    pub answer: Option<JsonText>,
    /// The principal that has answered.
    pub answered_by: Option<String>,
    /// The time of its creation, in milliseconds since 1970.
    pub created: u64,
    /// The time of its answer or withdrawal, in milliseconds since 1970.
    pub ended: Option<u64>,
}

/// Filters of questions, all of which have to match, and the place of a page. Questions are in order of creation.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct QuestionQuery {
    /// A task.
    pub task: Option<StoredTaskKey>,
    /// The owner of the tasks.
    pub owner: Option<String>,
    /// The agent of the tasks.
    pub agent: Option<String>,
    /// A state.
    pub state: Option<QuestionState>,
    /// The number of entries in front of the page.
    pub offset: u64,
    /// The most entries of the page. Zero counts as 100, and
    /// [`StoreSettings::page_entries`](crate::StoreSettings::page_entries) is the most.
    pub limit: u64,
}

impl StoredTask {
    /// Returns the time that the work took, if it was started and has ended.
    #[must_use]
    pub fn duration(&self) -> Option<Duration> {
        Some(Duration::from_millis(self.completed?.saturating_sub(self.started_at?)))
    }
}
