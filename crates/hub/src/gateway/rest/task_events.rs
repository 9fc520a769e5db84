//! The events of a task, as a stream of server-sent events.

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::fmt;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use duologue_rpc::raw_message::{member, member_text};
use duologue_schema::envelope::TaskState;
use duologue_schema::{Notification as _, SessionNotification};
use duologue_store::{
    JsonText, LogRecord, QuestionQuery, QuestionState, Store, StorePage, StoreTopic, StoreWatch,
    StoredQuestion, StoredTask, StoredTaskKey,
};
use duologue_transcript::Side;
use futures_util::stream::unfold;
use serde::{Deserialize, Serialize};

use crate::LogEntry;
use crate::error::Error;
use crate::gateway::Refusal;
use crate::gateway::rest::RestShared;
use crate::gateway::rest::admission::RestAdmission;
use crate::gateway::rest::request::{PathOf, QueryOf, RestCaller};
use crate::gateway::rest::session_log::{LogFollower, STREAM_BYTES};
use crate::gateway::rest::task_input::RestQuestion;
use crate::gateway::rest::tasks::{RestTask, visible_task};
use crate::gateway::rest::values::{OwnerQuery, TaskTarget, event_number};

/// The time after which a comment keeps a silent connection open.
pub(crate) const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Streams the changes of a task and the output of its agent until its end.
///
/// Events: `state` and `end` have the task, `progress` has `{taskId, progress}`, `question` has the question with its
/// state, and `update` has `{taskId, number, update}`: an update of the task's session, with the number of its record
/// in the log. The id of an event has the time of the task's creation, its version and the number of the last
/// record. With `Last-Event-ID` only later changes follow, and open questions. After `end` the stream ends, and a client
/// that connects again is answered with 204.
#[utoipa::path(
    get, path = "/agents/{agentId}/tasks/{taskId}/events", tag = "tasks",
    params(
        TaskTarget, OwnerQuery,
        ("Last-Event-ID" = Option<String>, Header, pattern = "^([0-9]{1,15}(-[0-9]{1,15}){0,2})?$", description = "The id of the last event that the client has received, or nothing."),
    ),
    responses(
        (status = 200, content_type = "text/event-stream", body = String, description = "The events."),
        (status = 204, description = "The client has received the end of the task."),
    ),
)]
pub(crate) async fn watch_task(
    caller: RestCaller,
    PathOf(target): PathOf<TaskTarget>,
    QueryOf(query): QueryOf<OwnerQuery>,
) -> Result<Response, Refusal> {
    let last = caller.last_event_id(TaskEventId::parse)?;
    let task = visible_task(&caller, target, query.owner).await?;
    // The task of the id can have been erased since, and this one is another.
    let last = last.filter(|last| last.created == task.created);
    if task.state.is_final() && last.is_some_and(|last| last.version >= task.version) {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let rest = caller.rest.clone();
    let (version, position) = last.map_or((0, 0), |last| (last.version, last.position));
    let events = TaskEvents {
        admission: caller.admit()?,
        changes: rest.gateway.store.watch(&StoreTopic::Task(task.key.clone())),
        key: task.key,
        created: task.created,
        rest,
        seen: SeenTask { version, ..SeenTask::default() },
        position,
        log: None,
        waiting: VecDeque::new(),
        must_read: true,
        end: None,
        has_ended: false,
    };
    let stream =
        unfold(events, |mut events| async move { Some((Ok::<_, Infallible>(events.next().await?), events)) });
    Ok(Sse::new(stream).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response())
}

/// The id of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TaskEventId {
    /// The time of the task's creation.
    created: u64,
    /// The version of the task.
    version: u64,
    /// The number of the last record of the log.
    position: u64,
}

impl TaskEventId {
    fn parse(text: &str) -> Option<Self> {
        let numbers: Vec<u64> = text.split('-').map(event_number).collect::<Option<_>>()?;
        match numbers[..] {
            [created, version, position] => Some(TaskEventId { created, version, position }),
            // One of an earlier version of the server is that of no task.
            [_] | [_, _] => Some(TaskEventId { created: u64::MAX, version: 0, position: 0 }),
            _ => None,
        }
    }
}

impl fmt::Display for TaskEventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}-{}", self.created, self.version, self.position)
    }
}

struct TaskEvents {
    admission: RestAdmission,
    rest: Arc<RestShared>,
    key: StoredTaskKey,
    /// A later task with the key has another time.
    created: u64,
    changes: StoreWatch,
    seen: SeenTask,
    /// The number of the last record of the log that was read.
    position: u64,
    /// The log of the task's session, until it ends.
    log: Option<LogFollower>,
    waiting: VecDeque<Event>,
    /// True if the task may have changed.
    must_read: bool,
    /// The end of the task, which is sent behind the rest of the log.
    end: Option<TaskWithQuestions>,
    has_ended: bool,
}

impl TaskEvents {
    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.waiting.pop_front() {
                return Some(event);
            }
            if self.has_ended {
                return None;
            }
            if std::mem::take(&mut self.must_read) {
                self.read_task().await?;
                continue;
            }
            if self.end.is_some() && self.log.is_none() {
                self.has_ended = true;
                self.send_state();
                continue;
            }
            let is_ending = self.end.is_some();
            let log = async {
                match &mut self.log {
                    Some(log) if is_ending => log.next(Duration::ZERO, STREAM_BYTES).await,
                    Some(log) => log.wait().await,
                    None => pending().await,
                }
            };
            let records = tokio::select! {
                records = log => records,
                () = self.changes.changed(), if !is_ending => {
                    self.must_read = true;
                    continue;
                }
                // The client connects again, with the id of the last event.
                () = self.admission.stopped() => return None,
            };
            self.add(records, is_ending);
        }
    }

    /// Reads the task. A failure of the store ends the stream, and the client connects again.
    async fn read_task(&mut self) -> Option<()> {
        let key = self.key.clone();
        let found = self.rest.gateway.in_store(move |store| read(store, key)).await.ok()??;
        if found.0.created != self.created {
            return None;
        }
        let is_known = found.0.session.is_none() || found.0.session == self.seen.session;
        if !is_known {
            // A task that is tried again has another session.
            if self.seen.session.is_some() {
                self.position = 0;
            }
            self.seen.session.clone_from(&found.0.session);
            self.log = self.follower();
        }
        let is_final = found.0.state.is_final();
        self.end = Some(found);
        if !is_final {
            self.send_state();
        }
        Some(())
    }

    fn follower(&self) -> Option<LogFollower> {
        let hub = self.rest.gateway.hosted(&self.key.agent)?.hub.clone();
        let (owner, session) = (self.key.owner.clone(), self.seen.session.clone()?);
        Some(LogFollower { hub, owner, session, position: self.position })
    }

    fn send_state(&mut self) {
        if let Some((task, questions)) = self.end.take() {
            self.waiting.extend(self.seen.events(task, questions, self.position));
        }
    }

    /// Adds the updates in records of the log.
    fn add(&mut self, records: Result<Option<Vec<LogRecord>>, Error>, is_ending: bool) {
        let records = match records {
            Ok(Some(records)) if !(is_ending && records.is_empty()) => records,
            Ok(_) => {
                self.log = None;
                return;
            }
            Err(error) => {
                // The session was erased, or its log cannot be read. The states of the task follow without it.
                tracing::debug!(%error, task = %self.key.task, "the output of a task is not shown any more");
                self.log = None;
                return;
            }
        };
        for record in &records {
            self.position = record.position.number();
            let (created, version) = (self.created, self.seen.version);
            let id = TaskEventId { created, version, position: self.position };
            let update = RestTaskUpdate::read(&self.key.task, record);
            let update = update.and_then(|update| event("update", &update));
            self.waiting.extend(update.map(|update| update.id(id.to_string())));
        }
    }
}

/// An update of the session of a task: the data of an `update` event.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct RestTaskUpdate {
    /// The id of the task.
    pub task_id: String,
    /// The number of its record in the log of the session.
    pub number: u64,
    /// The update, as in `session/update` of the Agent Client Protocol.
    pub update: JsonText,
}

impl RestTaskUpdate {
    /// Returns the update in a record, if it is one of the agent.
    fn read(task: &str, record: &LogRecord) -> Option<Self> {
        let Some((Side::Agent, frame)) = LogEntry::read(&record.line).ok()?.frame else { return None };
        let frame = frame.get().as_bytes();
        if member_text(frame, "method")? != SessionNotification::METHOD {
            return None;
        }
        let params = frame.get(member(frame, "params")?)?;
        let update = params.get(member(params, "update")?)?;
        let update = JsonText::new(String::from_utf8(update.to_vec()).ok()?).ok()?;
        Some(RestTaskUpdate { task_id: task.to_owned(), number: record.position.number(), update })
    }
}

type TaskWithQuestions = (StoredTask, Vec<StoredQuestion>);

fn read(store: &dyn Store, key: StoredTaskKey) -> duologue_store::Result<Option<TaskWithQuestions>> {
    let Some(task) = store.task(&key)? else { return Ok(None) };
    let mut query = QuestionQuery::default();
    query.task = Some(key);
    let questions = StorePage::all(|offset| {
        query.offset = offset;
        store.questions(&query)
    })?;
    Ok(Some((task, questions)))
}

/// The last state of a task that a client has received.
#[derive(Default)]
struct SeenTask {
    version: u64,
    session: Option<String>,
    state: Option<TaskState>,
    progress: Option<u8>,
    questions: HashMap<String, QuestionState>,
}

/// The progress of a task: the data of a `progress` event.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct RestTaskProgress {
    /// The id of the task.
    pub task_id: String,
    /// The progress in percent.
    pub progress: u8,
}

impl SeenTask {
    /// Returns the events of the changes since the last call. Events of one version have the same id, which the last
    /// of them alone carries, so a client that loses the connection between them receives all of them again.
    fn events(&mut self, task: StoredTask, questions: Vec<StoredQuestion>, position: u64) -> Vec<Event> {
        let mut events = Vec::new();
        for question in questions {
            let known = self.questions.insert(question.id.clone(), question.state);
            let is_change = match known {
                Some(known) => known != question.state,
                // The end of a question matters to a client that has received it.
                None => question.state == QuestionState::Open,
            };
            if is_change {
                events.extend(event("question", &RestQuestion::from(question)));
            }
        }
        if task.version > self.version {
            let (created, version) = (task.created, task.version);
            let is_final = task.state.is_final();
            let mut changes = Vec::new();
            let is_new_state = self.state.as_ref() != Some(&task.state);
            let news = task.progress.filter(|_| task.progress != self.progress && !is_new_state);
            if let Some(progress) = news {
                let progress = RestTaskProgress { task_id: task.key.task.clone(), progress };
                changes.extend(event("progress", &progress));
            }
            (self.version, self.progress) = (version, task.progress);
            self.state = Some(task.state.clone());
            if is_new_state || is_final {
                changes.extend(event(if is_final { "end" } else { "state" }, &RestTask::from(task)));
            }
            if let Some(last) = changes.pop() {
                changes.push(last.id(TaskEventId { created, version, position }.to_string()));
            }
            events.extend(changes);
        }
        events
    }
}

/// Creates an event with data of JSON.
pub(crate) fn event(name: &str, data: &impl Serialize) -> Option<Event> {
    let data = serde_json::to_string(data).ok()?;
    Some(Event::default().event(name).data(data))
}
