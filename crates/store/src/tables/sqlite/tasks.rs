//! Tasks, and the questions that they ask.

use std::time::Duration;

use duologue_schema::envelope::TaskState;
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::check::cut;
use super::messages::rows;
use super::queue::{QueueSql, band_of_priority, expect, lost, next_number, one, queue_sql};
use super::rows::{Filter, int, json, maybe_json, maybe_number, number, parsed, question_state, small};
use super::writer::{ChangeStep, CountedList, OpenChange};
use crate::error::Error;
use crate::tables::batch::ChangeOutcome;
use crate::tables::messages::MessageSender;
use crate::tables::settings::PageRoom;
use crate::tables::store::SweepReport;
use crate::tables::tasks::{
    NewQuestion, NewTask, QuestionQuery, QuestionState, StoredQuestion, StoredTask, StoredTaskKey,
    TaskFailure, TaskQuery, TaskUpdate,
};
use crate::tables::values::{Claim, Claimed, JsonText, LeaseKind, LeaseToken, StorePage};
use crate::tables::watch::StoreTopic;

macro_rules! columns {
    () => {
        "seq, owner, agent, id, sender, kind, parameters, priority, state, started, progress, result, error, callback, callback_queued, stream_endpoint, session, timeout_ms, expires, retry_safe, attempts, max_attempts, worker, dead, metadata, version, created, updated, started_at, completed, trace, handed_at"
    };
}

pub(super) const QUEUE: QueueSql = queue_sql!(Task, "tasks", "owner", columns);

pub(super) const COLUMNS: &str = columns!();

pub(super) fn read(row: &Row<'_>) -> rusqlite::Result<StoredTask> {
    let owner: String = row.get(1)?;
    let has_error = row.get_ref(12)?.as_str_or_null().is_ok_and(|error| error.is_some());
    Ok(StoredTask {
        seq: number(row, 0)?,
        key: StoredTaskKey { owner: owner.clone(), agent: row.get(2)?, task: row.get(3)? },
        from: MessageSender { principal: owner, name: row.get(4)? },
        kind: row.get(5)?,
        parameters: json(row, 6)?,
        priority: small(row, 7)?,
        state: TaskState::from(row.get_ref(8)?.as_str()?),
        started: row.get(9)?,
        progress: Some(small(row, 10)?).filter(|percent| *percent > 0),
        result: maybe_json(row, 11)?,
        error: has_error.then(|| parsed(row, 12)).transpose()?,
        callback: row.get(13)?,
        callback_queued: row.get(14)?,
        stream_endpoint: row.get(15)?,
        session: row.get(16)?,
        timeout_ms: maybe_number(row, 17)?,
        expires: maybe_number(row, 18)?,
        retry_safe: row.get(19)?,
        attempts: small(row, 20)?,
        max_attempts: small(row, 21)?,
        worker: row.get(22)?,
        dead: row.get(23)?,
        metadata: json(row, 24)?,
        version: number(row, 25)?,
        created: number(row, 26)?,
        updated: number(row, 27)?,
        started_at: maybe_number(row, 28)?,
        completed: maybe_number(row, 29)?,
        trace: row.get(30)?,
        handed_at: maybe_number(row, 31)?,
    })
}

fn name(key: &StoredTaskKey) -> String {
    format!("the task {:?} of {:?}", key.task, key.agent)
}

fn missing(key: &StoredTaskKey) -> Error {
    Error::NoRecord { record: name(key) }
}

fn wrong_state(key: &StoredTaskKey, state: impl Into<String>) -> Error {
    Error::WrongState { record: name(key), state: state.into() }
}

pub(super) fn get(database: &Connection, key: &StoredTaskKey) -> rusqlite::Result<Option<StoredTask>> {
    let text = format!("SELECT {COLUMNS} FROM tasks WHERE owner = ?1 AND agent = ?2 AND id = ?3");
    let mut statement = database.prepare_cached(&text)?;
    statement.query_row([&key.owner, &key.agent, &key.task], read).optional()
}

fn by_row(change: &OpenChange<'_>, row: i64) -> rusqlite::Result<StoredTask> {
    change.prepare(&format!("SELECT {COLUMNS} FROM tasks WHERE seq = ?1"))?.query_row([row], read)
}

pub(super) fn list(
    database: &Connection,
    query: &TaskQuery,
    room: PageRoom,
) -> rusqlite::Result<StorePage<StoredTask>> {
    let flag = |value: Option<bool>, yes, no| value.map(|value| if value { yes } else { no });
    let due = "ended = 1 AND callback_queued = 0 AND (callback IS NOT NULL OR stream_endpoint IS NOT NULL)";
    Filter::default()
        .with("owner = ?", query.owner.clone())
        .with("agent = ?", query.agent.clone())
        .with("id = ?", query.id.clone())
        .with("session = ?", query.session.clone())
        .with("state = ?", query.state.as_ref().map(|state| state.as_str().to_owned()))
        .only(flag(query.ended, "ended = 1", "ended = 0"))
        .only(flag(query.dead, "dead = 1", "dead = 0"))
        .only(query.callback_due.then_some(due))
        .only(query.attempted.then_some("attempts > 0"))
        .page(
            database,
            (COLUMNS, "tasks", if query.newest_first { "seq DESC" } else { "seq" }),
            (query.offset, room),
            read,
        )
}

pub(super) fn median_duration(
    database: &Connection,
    agent: &str,
    kind: &str,
    last: u64,
) -> rusqlite::Result<Option<Duration>> {
    let text = "SELECT completed - started_at FROM tasks WHERE agent = ?1 AND kind = ?2 AND state = 'completed' \
                AND started_at IS NOT NULL ORDER BY completed DESC LIMIT ?3";
    let mut statement = database.prepare_cached(text)?;
    let times = statement.query_map(params![agent, kind, int(last)], |row| number(row, 0))?;
    let mut times = times.collect::<rusqlite::Result<Vec<_>>>()?;
    times.sort_unstable();
    Ok(times.get(times.len() / 2).map(|time| Duration::from_millis(*time)))
}

pub(super) fn create(change: &mut OpenChange<'_>, task: &NewTask) -> ChangeStep<ChangeOutcome> {
    let key = &task.key;
    let priority = task.priority.min(9);
    let text = concat!(
        "INSERT INTO tasks (seq, owner, agent, id, sender, kind, priority, state, ended, started, progress, callback, ",
        "stream_endpoint, timeout_ms, expires, retry_safe, band, blocked, not_before, attempts, max_attempts, dead, ",
        "version, created, updated, metadata, parameters, trace) VALUES (",
        next_number!("tasks"),
        ", ?1, ?2, ?3, ?4, ?5, ?6, 'submitted', 0, 0, 0, ?7, ",
        "?8, ?9, ?10, ?11, CASE WHEN ?6 < 3 THEN 0 WHEN ?6 < 6 THEN 1 WHEN ?6 < 8 THEN 2 ELSE 3 END, 0, 0, 0, ?12, 0, ",
        "1, ?13, ?13, ?14, ?15, ?16) ON CONFLICT DO NOTHING"
    );
    let added = change.prepare(text)?.execute(params![
        key.owner,
        key.agent,
        key.task,
        task.from,
        task.kind,
        priority,
        task.callback,
        task.stream_endpoint,
        task.timeout_ms.map(int),
        task.expires.map(int),
        task.retry_safe,
        task.max_attempts.max(1),
        change.wall(),
        task.metadata.as_str(),
        task.parameters.as_str(),
        task.trace,
    ])?;
    if added == 0 {
        let is_same = get(change.database, key)?.is_some_and(|earlier| {
            earlier.from.name == task.from
                && earlier.kind == task.kind
                && earlier.parameters == task.parameters
                && earlier.priority == priority
                && earlier.callback == task.callback
                && earlier.stream_endpoint == task.stream_endpoint
                && earlier.timeout_ms == task.timeout_ms
                && earlier.retry_safe == task.retry_safe
        });
        return match is_same {
            true => Ok(ChangeOutcome::Duplicate),
            false => Err(Error::RecordConflict { record: name(key) }.into()),
        };
    }
    add_open(change, key)?;
    change.grows(&key.owner);
    Ok(ChangeOutcome::Done)
}

fn add_open(change: &mut OpenChange<'_>, key: &StoredTaskKey) -> ChangeStep<()> {
    let limit = (change.settings.tasks_per_owner, "StoreSettings::tasks_per_owner");
    change.added_to(CountedList::Tasks, &key.owner, limit, "the list of open tasks of")?;
    wake(change, key);
    Ok(())
}

fn wake(change: &mut OpenChange<'_>, key: &StoredTaskKey) {
    change.wake(StoreTopic::AgentTasks(key.agent.clone()));
    change.wake(StoreTopic::Task(key.clone()));
}

pub(super) fn claim(
    change: &mut OpenChange<'_>,
    agent: &str,
    claim: &Claim,
) -> ChangeStep<Claimed<StoredTask>> {
    change.time = claim.time;
    QUEUE.end_lapsed(change, |change, row| {
        if let (key, LostTask::Ended) = lapse(change, row, TaskFailure::WORKER_LOST)? {
            change.report_ended(key);
        }
        Ok(())
    })?;
    QUEUE.claim(change, agent, claim, read, |change, row| {
        let key = expire(change, row)?;
        change.report_ended(key);
        Ok(())
    })
}

/// Returns the row of a valid lease.
fn leased(change: &OpenChange<'_>, lease: LeaseToken) -> ChangeStep<i64> {
    expect(lease, LeaseKind::Task)?;
    let text = "SELECT seq FROM tasks WHERE seq = ?1 AND lease = ?2 AND lease_end > ?3";
    let row = one(change, text, params![lease.entry, lease.secret, change.now()])?;
    row.ok_or_else(|| lost(lease).into())
}

pub(super) fn update(change: &mut OpenChange<'_>, update: &TaskUpdate) -> ChangeStep<ChangeOutcome> {
    let key = &update.key;
    let task = get(change.database, key)?.ok_or_else(|| missing(key))?;
    let row = int(task.seq);
    if task.version != update.version {
        let (expected, found) = (update.version, task.version);
        return Err(Error::VersionLost { record: name(key), expected, found }.into());
    }
    let has_lease = match update.lease {
        Some(lease) if leased(change, lease)? != row => return Err(lost(lease).into()),
        lease => lease.is_some(),
    };
    let TaskUpdate { state, progress, result, error, session, metadata, .. } = update;
    let has_others = state.is_some()
        || progress.is_some()
        || result.is_some()
        || error.is_some()
        || session.is_some()
        || metadata.is_some();
    if task.state.is_final() && has_others {
        return Err(wrong_state(key, task.state.as_str()).into());
    }
    let next = state.as_ref().unwrap_or(&task.state);
    let ends = next.is_final() && !task.state.is_final();
    let starts = !task.started && matches!(next, TaskState::Working | TaskState::InputRequired);
    match next {
        // Without a lease another worker could take it too, and nothing would end it.
        _ if starts && !has_lease => {
            return Err(wrong_state(key, "submitted, and starting it needs its lease").into());
        }
        TaskState::Submitted if task.started => {
            return Err(wrong_state(key, "started, and only its lease returns it").into());
        }
        TaskState::Unknown(_) => return Err(wrong_state(key, "not changed to an unknown state").into()),
        _ => {}
    }
    // The worker that ends a task need not wait as its next attempt would.
    let stops_waiting = *next == TaskState::Cancelling && task.worker.is_none();
    let text = concat!(
        "UPDATE tasks SET version = version + 1, updated = ?2, state = ?3, ended = ?4, started = ?5, ",
        "started_at = CASE WHEN ?6 THEN ?2 ELSE started_at END, completed = CASE WHEN ?7 THEN ?2 ELSE completed END, ",
        "progress = coalesce(?8, progress), result = coalesce(?9, result), error = coalesce(?10, error), ",
        "session = coalesce(?11, session), metadata = coalesce(?12, metadata), ",
        "callback_queued = max(callback_queued, ?13), ",
        "not_before = CASE WHEN ?14 THEN 0 ELSE not_before END, band = CASE WHEN ?14 THEN ",
        band_of_priority!(),
        " ELSE band END WHERE seq = ?1"
    );
    let error = error.as_ref().map(|TaskFailure { code, message, retryable }| {
        JsonText::of(&TaskFailure::new(code, cut(change.settings, message.clone()), *retryable))
    });
    let error = error.transpose()?;
    change.prepare(text)?.execute(params![
        row,
        change.wall(),
        next.as_str(),
        next.is_final(),
        task.started || starts,
        starts,
        ends,
        progress.map(|progress| progress.min(100)),
        result.as_ref().map(JsonText::as_str),
        error.as_ref().map(JsonText::as_str),
        session,
        metadata.as_ref().map(JsonText::as_str),
        update.callback_queued,
        stops_waiting,
    ])?;
    if ends {
        ended(change, key, row)?;
    }
    wake(change, key);
    Ok(ChangeOutcome::Version(task.version + 1))
}

/// Takes a task that has ended out of the queue, withdraws its questions and counts it.
fn ended(change: &mut OpenChange<'_>, key: &StoredTaskKey, row: i64) -> ChangeStep<()> {
    let text = "UPDATE tasks SET ended = 1, band = NULL, not_before = 0, lease = NULL, lease_end = NULL WHERE seq = ?1";
    change.prepare(text)?.execute([row])?;
    withdraw_all(change, key)?;
    change.count(CountedList::Tasks, &[&key.owner], -1);
    wake(change, key);
    Ok(())
}

fn withdraw_all(change: &OpenChange<'_>, key: &StoredTaskKey) -> ChangeStep<()> {
    let text = "UPDATE questions SET state = 'withdrawn', ended = ?4 \
                WHERE owner = ?1 AND agent = ?2 AND task = ?3 AND state = 'open'";
    change.prepare(text)?.execute(params![key.owner, key.agent, key.task, change.wall()])?;
    Ok(())
}

/// Ends a task that no worker ends.
fn end(
    change: &mut OpenChange<'_>,
    task: &StoredTask,
    state: &TaskState,
    failure: Option<&TaskFailure>,
    is_dead: bool,
) -> ChangeStep<()> {
    let error = failure.map(JsonText::of).transpose()?;
    let text = "UPDATE tasks SET version = version + 1, updated = ?2, completed = ?2, state = ?3, \
                error = coalesce(?4, error), dead = ?5 WHERE seq = ?1";
    let row = int(task.seq);
    let error = error.as_ref().map(JsonText::as_str);
    change.prepare(text)?.execute(params![row, change.wall(), state.as_str(), error, is_dead])?;
    ended(change, &task.key, row)
}

/// The fate of a task that has lost its worker.
#[derive(Debug, PartialEq, Eq)]
enum LostTask {
    Returned,
    Ended,
}

/// Returns a task to its place, unless it was started or has had all its attempts. `code` is that of its error. One that is
/// being cancelled stays so: its next worker ends it.
fn give_back_row(
    change: &mut OpenChange<'_>,
    task: &StoredTask,
    delay: Duration,
    code: &str,
) -> ChangeStep<LostTask> {
    let is_cancelling = task.state == TaskState::Cancelling;
    if is_cancelling && (!task.retry_safe || task.attempts >= task.max_attempts) {
        let failure = TaskFailure::new(code, "its worker was lost while it stopped", true);
        end(change, task, &TaskState::Cancelled, Some(&failure), false)?;
        return Ok(LostTask::Ended);
    }
    if (task.started && !task.retry_safe) || task.attempts >= task.max_attempts {
        let text = match task.started {
            true => concat!(
                "its worker was lost after an agent had started it, so it does not run again; ",
                "send it again, or allow a second start with `\"retry\": \"safe\"` in its `metadata`"
            ),
            false => "its workers were lost, and it has had all its attempts",
        };
        let failure = TaskFailure::new(code, text, true);
        end(change, task, &TaskState::Failed, Some(&failure), true)?;
        return Ok(LostTask::Ended);
    }
    let not_before = QUEUE.not_before(change, delay);
    let text = concat!(
        "UPDATE tasks SET version = version + 1, updated = ?2, progress = 0, ",
        "state = CASE WHEN ?4 THEN state ELSE 'submitted' END, started = CASE WHEN ?4 THEN started ELSE 0 END, ",
        "expires = CASE WHEN ?4 THEN NULL ELSE expires END, lease = NULL, lease_end = NULL, worker = NULL, not_before = ?3, ",
        "band = CASE WHEN ?3 > 0 THEN NULL ELSE ",
        band_of_priority!(),
        " END WHERE seq = ?1"
    );
    change.prepare(text)?.execute(params![int(task.seq), change.wall(), not_before, is_cancelling])?;
    withdraw_all(change, &task.key)?;
    wake(change, &task.key);
    Ok(LostTask::Returned)
}

pub(super) fn give_back(
    change: &mut OpenChange<'_>,
    lease: LeaseToken,
    delay: Duration,
) -> ChangeStep<ChangeOutcome> {
    let row = leased(change, lease)?;
    let task = by_row(change, row)?;
    if task.started && !task.retry_safe {
        return Err(wrong_state(&task.key, "started and not safe to retry").into());
    }
    match give_back_row(change, &task, delay, TaskFailure::WORKER_LOST)? {
        LostTask::Returned => Ok(ChangeOutcome::Done),
        LostTask::Ended => Ok(ChangeOutcome::Dead),
    }
}

/// Ends a lease. `code` is the reason.
fn lapse(change: &mut OpenChange<'_>, row: i64, code: &str) -> ChangeStep<(StoredTaskKey, LostTask)> {
    let task = by_row(change, row)?;
    let fate = give_back_row(change, &task, Duration::ZERO, code)?;
    Ok((task.key, fate))
}

fn expire(change: &mut OpenChange<'_>, row: i64) -> ChangeStep<StoredTaskKey> {
    let task = by_row(change, row)?;
    let failure = TaskFailure::new(TaskFailure::EXPIRED, "it was not started in time", true);
    end(change, &task, &TaskState::Expired, Some(&failure), false)?;
    Ok(task.key)
}

/// Wakes the workers of the open tasks of an owner.
pub(super) fn wake_all(change: &mut OpenChange<'_>, owner: &str) -> ChangeStep<()> {
    let keys: Vec<StoredTaskKey> = {
        let mut statement = change.prepare("SELECT agent, id FROM tasks WHERE owner = ?1 AND ended = 0")?;
        let key =
            |row: &Row<'_>| Ok(StoredTaskKey { owner: owner.into(), agent: row.get(0)?, task: row.get(1)? });
        statement.query_map([owner], key)?.collect::<rusqlite::Result<_>>()?
    };
    keys.iter().for_each(|key| wake(change, key));
    Ok(())
}

/// Ends the tasks of an agent that is removed, at most so many, and returns their number.
pub(super) fn end_of_agent(change: &mut OpenChange<'_>, agent: &str, most: u64) -> ChangeStep<u64> {
    let failure = TaskFailure::new(TaskFailure::AGENT_REMOVED, "its agent was removed", false);
    let text = "SELECT seq FROM tasks WHERE agent = ?1 AND ended = 0 LIMIT ?2";
    let open = rows(change, text, params![agent, int(most)])?;
    let count = open.len() as u64;
    open.into_iter().try_for_each(|row| fail(change, row, &failure).map(drop))?;
    Ok(count)
}

/// Ends the tasks of a principal that is disabled. The next sweep reports them: an agent elsewhere can have them.
pub(super) fn end_of_owner(change: &mut OpenChange<'_>, owner: &str) -> ChangeStep<()> {
    let failure = TaskFailure::new(TaskFailure::PRINCIPAL_REMOVED, super::principals::REMOVED, false);
    for row in rows(change, "SELECT seq FROM tasks WHERE owner = ?1 AND ended = 0", [owner])? {
        let key = fail(change, row, &failure)?;
        change.report_ended(key);
    }
    Ok(())
}

/// Ends a task for a reason outside of it. One that is being cancelled is cancelled.
fn fail(change: &mut OpenChange<'_>, row: i64, failure: &TaskFailure) -> ChangeStep<StoredTaskKey> {
    let task = by_row(change, row)?;
    let is_cancelled = task.state == TaskState::Cancelling;
    let state = if is_cancelled { TaskState::Cancelled } else { TaskState::Failed };
    end(change, &task, &state, Some(failure), false)?;
    Ok(task.key)
}

pub(super) fn resend(
    change: &mut OpenChange<'_>,
    key: &StoredTaskKey,
    expires: Option<u64>,
) -> ChangeStep<ChangeOutcome> {
    let task = get(change.database, key)?.ok_or_else(|| missing(key))?;
    if !task.dead {
        return Err(wrong_state(key, task.state.as_str()).into());
    }
    super::principals::require_enabled(change, &key.owner)?;
    let text = concat!(
        "UPDATE tasks SET seq = ",
        next_number!("tasks"),
        ", version = version + 1, updated = ?2, ",
        "state = 'submitted', ended = 0, started = 0, progress = 0, result = NULL, error = NULL, session = NULL, ",
        "callback_queued = 0, started_at = NULL, handed_at = NULL, completed = NULL, dead = 0, attempts = 0, worker = NULL, expires = ?3, ",
        "band = ",
        band_of_priority!(),
        " WHERE seq = ?1"
    );
    change.prepare(text)?.execute(params![int(task.seq), change.wall(), expires.map(int)])?;
    add_open(change, key)?;
    Ok(ChangeOutcome::Version(task.version + 1))
}

pub(super) fn drop_dead(change: &mut OpenChange<'_>, key: &StoredTaskKey) -> ChangeStep<ChangeOutcome> {
    let task = get(change.database, key)?.ok_or_else(|| missing(key))?;
    if !task.dead {
        return Err(wrong_state(key, task.state.as_str()).into());
    }
    let text = "UPDATE tasks SET dead = 0, version = version + 1, updated = ?2 WHERE seq = ?1";
    change.prepare(text)?.execute(params![int(task.seq), change.wall()])?;
    wake(change, key);
    Ok(ChangeOutcome::Version(task.version + 1))
}

pub(super) fn sweep(change: &mut OpenChange<'_>, report: &mut SweepReport) -> ChangeStep<()> {
    report.has_more |= QUEUE.end_lapsed(change, |change, row| {
        match lapse(change, row, TaskFailure::WORKER_LOST)? {
            (_, LostTask::Returned) => report.tasks_returned += 1,
            (key, LostTask::Ended) => report.tasks_ended.push(key),
        }
        Ok(())
    })?;
    let text =
        "SELECT seq FROM tasks WHERE started = 0 AND ended = 0 AND lease IS NULL AND expires <= ?1 LIMIT ?2";
    let limit = int(change.settings.page_entries);
    let expired = rows(change, text, [change.wall(), limit])?;
    report.has_more |= expired.len() as i64 >= limit;
    for row in expired {
        report.tasks_ended.push(expire(change, row)?);
    }
    Ok(())
}

pub(super) fn end_all_leases(change: &mut OpenChange<'_>, report: &mut SweepReport) -> ChangeStep<()> {
    for row in rows(change, "SELECT seq FROM tasks WHERE lease IS NOT NULL", [])? {
        match lapse(change, row, TaskFailure::RESTARTED)? {
            (_, LostTask::Returned) => report.tasks_returned += 1,
            (key, LostTask::Ended) => report.tasks_ended.push(key),
        }
    }
    let text =
        concat!("UPDATE tasks SET not_before = 0, band = ", band_of_priority!(), " WHERE not_before > 0");
    change.prepare(text)?.execute([])?;
    Ok(())
}

pub(super) const QUESTION: &str = "id, owner, agent, task, body, state, answer, answered_by, created, ended";

pub(super) fn read_question(row: &Row<'_>) -> rusqlite::Result<StoredQuestion> {
    Ok(StoredQuestion {
        id: row.get(0)?,
        task: StoredTaskKey { owner: row.get(1)?, agent: row.get(2)?, task: row.get(3)? },
        body: json(row, 4)?,
        state: question_state::get(row, 5)?,
        answer: maybe_json(row, 6)?,
        answered_by: row.get(7)?,
        created: number(row, 8)?,
        ended: maybe_number(row, 9)?,
    })
}

pub(super) fn question(
    database: &Connection,
    task: &StoredTaskKey,
    question: &str,
) -> rusqlite::Result<Option<StoredQuestion>> {
    let text =
        format!("SELECT {QUESTION} FROM questions WHERE owner = ?1 AND agent = ?2 AND task = ?3 AND id = ?4");
    let mut statement = database.prepare_cached(&text)?;
    statement.query_row(params![task.owner, task.agent, task.task, question], read_question).optional()
}

pub(super) fn questions(
    database: &Connection,
    query: &QuestionQuery,
    room: PageRoom,
) -> rusqlite::Result<StorePage<StoredQuestion>> {
    let task = query.task.as_ref();
    Filter::default()
        .with("owner = ?", task.map(|task| task.owner.clone()))
        .with("agent = ?", task.map(|task| task.agent.clone()))
        .with("task = ?", task.map(|task| task.task.clone()))
        .with("owner = ?", query.owner.clone())
        .with("agent = ?", query.agent.clone())
        .with("state = ?", query.state.map(|state| question_state::name(state).to_owned()))
        .page(database, (QUESTION, "questions", "seq"), (query.offset, room), read_question)
}

fn question_name(task: &StoredTaskKey, question: &str) -> String {
    format!("the question {question:?} of {}", name(task))
}

pub(super) fn add_question(change: &mut OpenChange<'_>, new: &NewQuestion) -> ChangeStep<ChangeOutcome> {
    let key = &new.task;
    let task = get(change.database, key)?.ok_or_else(|| missing(key))?;
    if task.state.is_final() {
        return Err(wrong_state(key, task.state.as_str()).into());
    }
    let count: Option<u64> = one(
        change,
        "SELECT count(*) FROM questions WHERE owner = ?1 AND agent = ?2 AND task = ?3",
        [&key.owner, &key.agent, &key.task],
    )?
    .map(super::rows::uint);
    let limit = change.settings.questions_per_task;
    if count.is_some_and(|count| count >= limit) {
        let list = format!("the list of questions of {}", name(key));
        return Err(Error::LimitReached { list, limit, setting: "StoreSettings::questions_per_task" }.into());
    }
    let text = "INSERT INTO questions (owner, agent, task, id, state, created, body) \
                VALUES (?1, ?2, ?3, ?4, 'open', ?5, ?6) ON CONFLICT DO NOTHING";
    let values = params![key.owner, key.agent, key.task, new.id, change.wall(), new.body.as_str()];
    if change.prepare(text)?.execute(values)? == 0 {
        let earlier = question(change.database, key, &new.id)?;
        return match earlier.is_some_and(|earlier| earlier.body == new.body) {
            true => Ok(ChangeOutcome::Duplicate),
            false => Err(Error::RecordConflict { record: question_name(key, &new.id) }.into()),
        };
    }
    change.grows(&key.owner);
    change.wake(StoreTopic::Task(key.clone()));
    Ok(ChangeOutcome::Done)
}

/// Answers a question, or withdraws it.
pub(super) fn end_question(
    change: &mut OpenChange<'_>,
    task: &StoredTaskKey,
    id: &str,
    answer: Option<(&JsonText, &str)>,
) -> ChangeStep<ChangeOutcome> {
    let record = || question_name(task, id);
    let found = question(change.database, task, id)?.ok_or_else(|| Error::NoRecord { record: record() })?;
    if found.state != QuestionState::Open {
        let state = question_state::name(found.state).into();
        return Err(Error::WrongState { record: record(), state }.into());
    }
    let state = if answer.is_some() { QuestionState::Answered } else { QuestionState::Withdrawn };
    let text = "UPDATE questions SET state = ?5, answer = ?6, answered_by = ?7, ended = ?8 \
                WHERE owner = ?1 AND agent = ?2 AND task = ?3 AND id = ?4";
    change.prepare(text)?.execute(params![
        task.owner,
        task.agent,
        task.task,
        id,
        question_state::name(state),
        answer.map(|(answer, _)| answer.as_str()),
        answer.map(|(_, by)| by),
        change.wall(),
    ])?;
    change.wake(StoreTopic::Task(task.clone()));
    Ok(ChangeOutcome::Done)
}
