//! The end of records: erasure and export of the data of a principal, and retention.

use rusqlite::types::Value;
use rusqlite::{Connection, Row, ToSql, params, params_from_iter};
use serde::Serialize;
use serde_json::{Map, Value as Json};

use super::rows::{from_micros, int, invalid, text_bytes, uint};
use super::writer::{ChangeStep, OpenChange};
use super::{agents, messages, outbox, principals, tasks};
use crate::tables::batch::ChangeOutcome;
use crate::tables::store::{ExportPage, ExportPosition, SweepTimes};
use crate::tables::watch::StoreTopic;

/// The condition for the agents of a principal. Those of a configuration stay, with what all principals have sent them.
macro_rules! own_agents {
    () => {
        "owner = ?1 AND source <> 'config'"
    };
}

/// The condition for the messages of a principal, and of its agents. A `+` in front of its columns keeps them from an index.
macro_rules! own_messages {
    ($sign:literal) => {
        concat!(
            $sign,
            "principal = ?1 OR ",
            $sign,
            "agent IN (SELECT id FROM agents WHERE ",
            own_agents!(),
            ")"
        )
    };
}

/// The bytes of text behind which a change removes no more. Changes of others come before the next part.
const PART_BYTES: i64 = 16 << 20;

/// Records that are removed in parts, because they can have much text.
struct Removal {
    table: &'static str,
    /// The columns of its primary key.
    key: &'static [&'static str],
    /// The condition, with the values ?1 and following.
    condition: &'static str,
}

impl Removal {
    /// Returns the query for the next records, at most so many: their keys and bytes.
    fn query(&self, most: u64) -> String {
        let Removal { table, key, condition } = self;
        format!("SELECT {}, bytes FROM {table} WHERE {condition} LIMIT {most}", key.join(", "))
    }

    /// Removes records while `room`, in bytes, is left, and returns their number with the questions of tasks. No room is
    /// left if more may follow.
    fn run(&self, change: &mut OpenChange<'_>, values: &[&dyn ToSql], room: &mut i64) -> ChangeStep<u64> {
        let most = change.settings.page_entries;
        let mut keys = Vec::new();
        {
            let mut statement = change.prepare(&self.query(most))?;
            let mut rows = statement.query(values)?;
            while *room > 0 {
                let Some(row) = rows.next()? else { break };
                let key: rusqlite::Result<Vec<Value>> =
                    (0..self.key.len()).map(|column| row.get(column)).collect();
                keys.push(key?);
                *room -= row.get::<_, i64>(self.key.len())?;
            }
        }
        let mut count = 0;
        let equal: Vec<_> = self.key.iter().map(|column| format!("{column} = ?")).collect();
        let delete = format!("DELETE FROM {} WHERE {}", self.table, equal.join(" AND "));
        for key in &keys {
            if self.table == "tasks" {
                count += change.prepare(QUESTIONS)?.execute(params_from_iter(key))?;
            }
            count += change.prepare(&delete)?.execute(params_from_iter(key))?;
        }
        if keys.len() as u64 >= most {
            *room = 0;
        }
        Ok(count as u64)
    }
}

/// Removes the questions of a task.
const QUESTIONS: &str =
    "DELETE FROM questions WHERE (owner, agent, task) = (SELECT owner, agent, id FROM tasks WHERE seq = ?1)";

const fn tasks_where(condition: &'static str) -> Removal {
    Removal { table: "tasks", key: &["seq"], condition }
}

const fn messages_where(condition: &'static str) -> Removal {
    Removal { table: "messages", key: &["seq"], condition }
}

const fn posts_where(condition: &'static str) -> Removal {
    Removal { table: "outbox", key: &["id"], condition }
}

/// The records of a principal with much text. Questions are those of tasks.
const DATA: [Removal; 4] = [
    tasks_where("owner = ?1"),
    messages_where(own_messages!("")),
    posts_where("principal = ?1"),
    Removal { table: "seen", key: &["principal", "scope", "key"], condition: "principal = ?1" },
];
/// Its other records: the table, and the condition with ?1. Agents are last, since others depend on them.
const AGENTS: [(&str, &str); 2] = [
    ("agent_names", concat!("agent IN (SELECT id FROM agents WHERE ", own_agents!(), ")")),
    ("agents", own_agents!()),
];

/// The inboxes with messages of a principal.
const INBOXES: &str = "SELECT DISTINCT agent FROM messages WHERE principal = ?1";
/// Removes a principal from the questions of others.
const ANSWERS: &str = "UPDATE questions SET answered_by = NULL WHERE answered_by = ?1";

pub(super) fn erase(change: &mut OpenChange<'_>, principal: &str) -> ChangeStep<ChangeOutcome> {
    let (mut count, mut room, mut most) = (0, PART_BYTES, change.settings.page_entries);
    let mut inboxes = agents_of(change, INBOXES, principal)?;
    // The workers of its tasks end them at their agents.
    tasks::wake_all(change, principal)?;
    // Other principals have tasks at its agents.
    for agent in agents_of(change, concat!("SELECT id FROM agents WHERE ", own_agents!()), principal)? {
        if room > 0 {
            let ended = tasks::end_of_agent(change, &agent, most)?;
            most -= ended;
            // The rest follows in the next part.
            if most == 0 {
                room = 0;
                count = change.settings.page_entries;
            }
        }
        inboxes.push(agent);
    }
    for removal in &DATA {
        count += removal.run(change, &[&principal], &mut room)?;
    }
    if room > 0 {
        for (table, condition) in AGENTS {
            let removed =
                change.prepare(&format!("DELETE FROM {table} WHERE {condition}"))?.execute([principal])?;
            if table != "agent_names" {
                count += removed as u64;
            }
        }
    }
    let answers = change.prepare(ANSWERS)?.execute([principal])?;
    change.prepare("INSERT OR IGNORE INTO erasures VALUES (?1)")?.execute([principal])?;
    for agent in inboxes {
        change.wake(StoreTopic::Inbox(agent));
    }
    if count > 0 || answers > 0 {
        change.has_erased();
        change.forget_counts();
    }
    change.wake(StoreTopic::Registry);
    change.wake(StoreTopic::Outbox);
    Ok(ChangeOutcome::Count(count))
}

fn agents_of(change: &OpenChange<'_>, text: &str, principal: &str) -> ChangeStep<Vec<String>> {
    let mut statement = change.prepare(text)?;
    let rows = statement.query_map([principal], |row| row.get(0))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

pub(super) fn end(change: &mut OpenChange<'_>, principal: &str) -> ChangeStep<ChangeOutcome> {
    let count = change.prepare("DELETE FROM erasures WHERE principal = ?1")?.execute([principal])?;
    // The log is emptied once more, if a query has kept the parts from it.
    change.has_erased();
    Ok(ChangeOutcome::Count(count as u64))
}

/// Returns the principals whose erasure has not ended.
pub(super) fn open(database: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut statement = database.prepare_cached("SELECT principal FROM erasures")?;
    statement.query_map([], |row| row.get(0))?.collect()
}

/// The condition for the tasks that a purge removes.
macro_rules! old_tasks {
    () => {
        "ended = 1 AND dead = 0 AND (callback_queued = 1 OR (callback IS NULL AND stream_endpoint IS NULL))"
    };
}

/// The condition for the posts that a purge removes. The end of an open stream is the position of its last post.
macro_rules! old_posts {
    () => {
        "state <> 'pending' AND NOT EXISTS \
         (SELECT 1 FROM tasks WHERE seq = outbox.task AND (ended = 0 OR callback_queued = 0))"
    };
}

/// The records that a purge removes, with a condition for the owner of a task and one for the principal of a message or post.
/// ?1 is the time.
macro_rules! ended {
    ($owner:literal, $principal:literal) => {
        [
            tasks_where(concat!(old_tasks!(), $owner, " AND completed < ?1 ORDER BY completed")),
            messages_where(concat!("state = 2", $principal, " AND updated < ?1 ORDER BY updated")),
            posts_where(concat!(old_posts!(), $principal, " AND updated < ?1 ORDER BY updated")),
        ]
    };
}

const ENDED_OF_ALL: [Removal; 3] = ended!("", "");
/// ?2 is the principal.
const ENDED_OF_ONE: [Removal; 3] = ended!(" AND owner = ?2", " AND principal = ?2");

pub(super) fn purge(
    change: &mut OpenChange<'_>,
    ended_before: u64,
    principal: Option<&str>,
) -> ChangeStep<ChangeOutcome> {
    let before = int(ended_before);
    let (mut count, mut room) = (0, PART_BYTES);
    let (removals, values): (_, &[&dyn ToSql]) = match &principal {
        Some(principal) => (&ENDED_OF_ONE, &[&before, principal]),
        None => (&ENDED_OF_ALL, &[&before]),
    };
    for removal in removals {
        count += removal.run(change, values, &mut room)?;
    }
    Ok(ChangeOutcome::Count(count))
}

/// The first ends of leases.
const LEASE_END: [&str; 3] = [
    "SELECT min(lease_end) FROM messages WHERE lease IS NOT NULL",
    "SELECT min(lease_end) FROM tasks WHERE lease IS NOT NULL",
    "SELECT min(lease_end) FROM outbox WHERE lease IS NOT NULL",
];
/// The first expiries of what a sweep ends.
const EXPIRY: [&str; 3] = [
    "SELECT min(expires) FROM messages WHERE expires IS NOT NULL AND state = 0 AND lease IS NULL",
    "SELECT min(expires) FROM tasks WHERE expires IS NOT NULL AND started = 0 AND ended = 0 AND lease IS NULL",
    "SELECT min(expires) FROM seen",
];
/// The oldest ends of what a purge removes.
const ENDED: [&str; 3] = [
    concat!("SELECT min(completed) FROM tasks WHERE ", old_tasks!()),
    "SELECT min(updated) FROM messages WHERE state = 2",
    concat!("SELECT min(updated) FROM outbox WHERE ", old_posts!()),
];
/// The oldest sign of life.
const SEEN: &str =
    "SELECT min(coalesce(last_seen, updated)) FROM agents WHERE status <> 'offline' AND source <> 'config'";

/// Returns the times of the next entries.
pub(super) fn next_sweep(database: &Connection) -> rusqlite::Result<SweepTimes> {
    let first = |texts: &[&str]| {
        let mut first: Option<i64> = None;
        for text in texts {
            let time: Option<i64> = database.prepare_cached(text)?.query_row([], |row| row.get(0))?;
            first = first.into_iter().chain(time).min();
        }
        Ok::<_, rusqlite::Error>(first)
    };
    Ok(SweepTimes {
        lease_end: first(&LEASE_END)?.map(from_micros),
        expiry: first(&EXPIRY)?.map(uint),
        ended: first(&ENDED)?.map(uint),
        seen: first(&[SEEN])?.map(uint),
    })
}

/// The bytes of text before which a page of an export ends, and its most records.
const EXPORT_BYTES: usize = 1 << 20;
const EXPORT_RECORDS: i64 = 256;

/// Reads a page of the data of a principal.
pub(super) fn export(
    database: &Connection,
    principal: &str,
    position: &ExportPosition,
) -> rusqlite::Result<ExportPage> {
    let Some(source) = SOURCES.get(position.source) else { return Ok(ExportPage::default()) };
    let (records, last) = source(database, principal, position.after.as_ref())?;
    let next = match last {
        Some(last) => ExportPosition { source: position.source, after: Some(last) },
        None => ExportPosition { source: position.source + 1, after: None },
    };
    Ok(ExportPage { records, next: (next.source < SOURCES.len()).then_some(next) })
}

/// The columns that order the rows of a source.
struct ExportKey {
    /// Two columns, the last of the row.
    columns: &'static str,
    /// The condition for the rows behind ?2 and ?3.
    behind: &'static str,
    order: &'static str,
    is_text: bool,
}

const SEQ: ExportKey = ExportKey { columns: "seq, NULL", behind: "seq > ?2", order: "seq", is_text: false };
const ID: ExportKey = ExportKey { columns: "id, NULL", behind: "id > ?2", order: "id", is_text: false };
const NAME: ExportKey = ExportKey { columns: "id, NULL", behind: "id > ?2", order: "id", is_text: true };
const SCOPED: ExportKey = ExportKey {
    columns: "scope, key",
    behind: "(scope, key) > (?2, ?3)",
    order: "scope, key",
    is_text: true,
};

/// The records of a page, and its last row if more can follow in the source.
type SourcePage = (Vec<Json>, Option<(Value, Value)>);

/// Reads a page of a source behind a row.
type ReadPage = fn(&Connection, &str, Option<&(Value, Value)>) -> rusqlite::Result<SourcePage>;

fn read_page<T: Serialize>(
    database: &Connection,
    (name, columns, from): (&str, &str, &str),
    key: &ExportKey,
    (principal, after): (&str, Option<&(Value, Value)>),
    read: fn(&Row<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<SourcePage> {
    let ExportKey { columns: keys, behind, order, is_text } = key;
    let text = format!("SELECT {columns}, {keys} FROM {from} AND {behind} ORDER BY {order} LIMIT ?4");
    let mut statement = database.prepare_cached(&text)?;
    let key_column = statement.column_count() - 2;
    let first = if *is_text { Value::Text(String::new()) } else { Value::Integer(i64::MIN) };
    let first = (first, Value::Text(String::new()));
    let (one, other) = after.unwrap_or(&first);
    let mut rows = statement.query(params![principal, one, other, EXPORT_RECORDS])?;
    let (mut records, mut bytes, mut last) = (Vec::new(), 0, None);
    while let Some(row) = rows.next()? {
        bytes += text_bytes(row)?;
        if bytes > EXPORT_BYTES && !records.is_empty() {
            return Ok((records, last));
        }
        let value = serde_json::to_value(read(row)?).map_err(|error| invalid(0, error))?;
        records.push(Json::Object(Map::from_iter([(name.to_owned(), value)])));
        last = Some((row.get(key_column)?, row.get(key_column + 1)?));
    }
    Ok(if records.len() < EXPORT_RECORDS as usize { (records, None) } else { (records, last) })
}

/// Declares the sources of an export.
macro_rules! sources {
    ($($name:literal: $columns:expr, $from:expr, $key:ident, $read:path;)*) => {
        const SOURCES: &[ReadPage] = &[$(|database, principal, after| {
            read_page(database, ($name, $columns, $from), &$key, (principal, after), $read)
        }),*];
    };
}

sources! {
    "principal": principals::COLUMNS, "principals WHERE id = ?1", NAME, principals::read;
    "agent": agents::COLUMNS, concat!("agents WHERE ", own_agents!()), NAME, agents::read;
    "key": principals::SEEN, "seen WHERE principal = ?1", SCOPED, principals::read_seen;
    // In their order: with an index each page would read and sort all of them.
    "message": messages::COLUMNS, concat!("messages WHERE (", own_messages!("+"), ")"), SEQ, messages::read;
    "task": tasks::COLUMNS, "tasks WHERE owner = ?1", SEQ, tasks::read;
    "question": tasks::QUESTION, "questions WHERE owner = ?1", SEQ, tasks::read_question;
    "delivery": outbox::COLUMNS, "outbox WHERE principal = ?1", ID, outbox::read;
}

#[cfg(test)]
mod tests {
    use duologue_schema::envelope::TaskState;
    use rusqlite::StatementStatus;

    use super::*;
    use crate::tables::SqliteStore;
    use crate::tables::batch::{StoreBatch, StoreChange};
    use crate::tables::settings::StoreSettings;
    use crate::tables::sqlite::schema::query_plan;
    use crate::tables::store::Store as _;
    use crate::tables::tasks::{NewTask, StoredTaskKey, TaskUpdate};
    use crate::tables::values::{JsonText, StoreTime};

    #[test]
    fn what_is_due_is_found_by_an_index() {
        let store = SqliteStore::in_memory(StoreSettings::default()).unwrap();
        let removals = ENDED_OF_ALL.iter().chain(&ENDED_OF_ONE).chain(&DATA).map(|removal| removal.query(1));
        let others = [QUESTIONS, SEEN, INBOXES, ANSWERS];
        let texts = LEASE_END.iter().chain(&EXPIRY).chain(&ENDED).chain(&others);
        for text in removals.chain(texts.map(|text| (*text).to_owned())) {
            for step in store.read(|database| query_plan(database, &text)).unwrap() {
                let is_table = step.starts_with("SCAN ") || step.starts_with("SEARCH ");
                assert!(
                    !is_table || step.contains("INDEX") || step.contains("PRIMARY KEY"),
                    "{text}: {step}"
                );
            }
        }
    }

    #[test]
    fn the_tasks_whose_posts_are_due_are_no_work_of_a_purge() {
        let store = SqliteStore::in_memory(StoreSettings::default()).unwrap();
        let mut steps = Vec::new();
        for number in 0..200 {
            let key = StoredTaskKey::new("alice", "writer", format!("t{number}"));
            let mut task = NewTask::new(key.clone(), "alice", "write", JsonText::default());
            task.callback = Some("https://example.com".into());
            let end = TaskUpdate::new(key, 1).state(TaskState::Cancelled);
            let batch = StoreBatch::new(StoreTime::default()).with(StoreChange::CreateTask(task));
            store.apply(batch.with(StoreChange::UpdateTask(end))).unwrap();
            let read = |database: &Connection| {
                let mut statement = database.prepare(ENDED[0])?;
                let first: Option<i64> = statement.query_row([], |row| row.get(0))?;
                assert_eq!(first, None);
                Ok(statement.get_status(StatementStatus::VmStep))
            };
            steps.push(store.read(read).unwrap());
        }
        assert_eq!(steps.first(), steps.last());
    }
}
