//! The end of records: erasure and export of the data of a principal, and retention.

use std::collections::VecDeque;

use rusqlite::{Connection, Row};
use serde::Serialize;
use serde_json::{Map, Value};

use super::rows::{from_micros, int, uint};
use super::writer::{ChangeStep, OpenChange};
use super::{SqliteStore, agents, messages, outbox, principals, tasks};
use crate::error::Result;
use crate::tables::batch::ChangeOutcome;
use crate::tables::store::SweepTimes;
use crate::tables::watch::StoreTopic;

/// The condition for the agents of a principal. Those of a configuration stay, with what all principals have sent them.
macro_rules! own_agents {
    () => {
        "owner = ?1 AND source <> 'config'"
    };
}

/// The condition for the messages of a principal, and of its agents.
macro_rules! own_messages {
    () => {
        concat!("principal = ?1 OR agent IN (SELECT id FROM agents WHERE ", own_agents!(), ")")
    };
}

/// The records of a principal: the table, and the condition with ?1. Agents are last, since others depend on them.
const DATA: [(&str, &str); 7] = [
    ("questions", "owner = ?1"),
    ("tasks", "owner = ?1"),
    ("messages", own_messages!()),
    ("outbox", "principal = ?1"),
    ("seen", "principal = ?1"),
    ("agent_names", concat!("agent IN (SELECT id FROM agents WHERE ", own_agents!(), ")")),
    ("agents", own_agents!()),
];

pub(super) fn erase(change: &mut OpenChange<'_>, principal: &str) -> ChangeStep<ChangeOutcome> {
    let mut count = 0;
    let text = "SELECT DISTINCT agent FROM messages WHERE principal = ?1 AND state = 0";
    let inboxes: Vec<String> = {
        let mut statement = change.prepare(text)?;
        let rows = statement.query_map([principal], |row| row.get(0))?;
        rows.collect::<rusqlite::Result<_>>()?
    };
    // The workers of its tasks end them at their agents.
    tasks::wake_all(change, principal)?;
    for (table, condition) in DATA {
        let removed =
            change.prepare(&format!("DELETE FROM {table} WHERE {condition}"))?.execute([principal])?;
        if table != "agent_names" {
            count += removed as u64;
        }
    }
    let text = "UPDATE questions SET answered_by = NULL WHERE answered_by = ?1";
    change.prepare(text)?.execute([principal])?;
    for agent in inboxes {
        change.wake(StoreTopic::Inbox(agent));
    }
    change.has_erased();
    change.forget_counts();
    change.wake(StoreTopic::Registry);
    change.wake(StoreTopic::Outbox);
    Ok(ChangeOutcome::Count(count))
}

/// The tasks that a purge removes.
macro_rules! old_tasks {
    () => {
        "FROM tasks WHERE ended = 1 AND dead = 0 AND completed < ?1 \
         AND (callback IS NULL OR callback_queued = 1) ORDER BY completed LIMIT ?2"
    };
}

/// The statements of a purge. ?1 is the time, ?2 the most rows.
const PURGE: [&str; 4] = [
    concat!(
        "DELETE FROM questions WHERE (owner, agent, task) IN (SELECT owner, agent, id ",
        old_tasks!(),
        ")"
    ),
    concat!("DELETE FROM tasks WHERE seq IN (SELECT seq ", old_tasks!(), ")"),
    "DELETE FROM messages WHERE seq IN \
     (SELECT seq FROM messages WHERE state = 2 AND updated < ?1 ORDER BY updated LIMIT ?2)",
    "DELETE FROM outbox WHERE id IN \
     (SELECT id FROM outbox WHERE state <> 'pending' AND updated < ?1 ORDER BY updated LIMIT ?2)",
];

pub(super) fn purge(change: &mut OpenChange<'_>, ended_before: u64) -> ChangeStep<ChangeOutcome> {
    let values = [int(ended_before), int(change.settings.page_entries)];
    let mut count = 0;
    for text in PURGE {
        count += change.prepare(text)?.execute(values)? as u64;
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
    "SELECT min(completed) FROM tasks \
     WHERE ended = 1 AND dead = 0 AND (callback IS NULL OR callback_queued = 1)",
    "SELECT min(updated) FROM messages WHERE state = 2",
    "SELECT min(updated) FROM outbox WHERE state <> 'pending'",
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

/// Reads the data of a principal in pages.
pub(super) struct StoreExporter<'a> {
    store: &'a SqliteStore,
    principal: String,
    /// The next source, and the last row of it that was read.
    source: usize,
    after: i64,
    page: VecDeque<Value>,
    has_failed: bool,
}

/// Reads a page of a table behind a row.
type ReadPage = fn(&Connection, &str, i64) -> rusqlite::Result<Vec<(i64, Value)>>;

const PAGE: i64 = 64;

fn read_page<T: Serialize>(
    database: &Connection,
    (name, sql): (&str, &str),
    (principal, after): (&str, i64),
    read: fn(&Row<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<Vec<(i64, Value)>> {
    let mut statement = database.prepare_cached(sql)?;
    let rows = statement.query_map((principal, after, PAGE), |row| {
        let value = serde_json::to_value(read(row)?).map_err(|error| super::rows::invalid(0, error))?;
        let number = row.get("number")?;
        Ok((number, Value::Object(Map::from_iter([(name.to_owned(), value)]))))
    })?;
    rows.collect()
}

/// Declares the sources of an export. The column `number` orders the rows.
macro_rules! sources {
    ($($name:literal: $columns:expr, $from:expr, $number:literal, $read:path;)*) => {
        const SOURCES: &[ReadPage] = &[$(|database, principal, after| {
            let sql = format!(
                concat!("SELECT {}, ", $number, " AS number FROM {} AND ", $number, " > ?2 ORDER BY ", $number, " LIMIT ?3"),
                $columns,
                $from
            );
            read_page(database, ($name, &sql), (principal, after), $read)
        }),*];
    };
}

sources! {
    "message": messages::COLUMNS,
        concat!("messages WHERE (", own_messages!(), ")"), "seq", messages::read;
    "task": tasks::COLUMNS, "tasks WHERE owner = ?1", "seq", tasks::read;
    "question": tasks::QUESTION, "questions WHERE owner = ?1", "seq", tasks::read_question;
    "delivery": outbox::COLUMNS, "outbox WHERE principal = ?1", "id", outbox::read;
}

/// Reads the records that are few or have no number: the principal, its agents and keys.
fn others(database: &Connection, principal: &str) -> rusqlite::Result<Vec<(i64, Value)>> {
    let mut page = Vec::new();
    let mut add = |name: &str, value: std::result::Result<Value, serde_json::Error>| {
        let value = value.map_err(|error| super::rows::invalid(0, error))?;
        page.push((0, Value::Object(Map::from_iter([(name.to_owned(), value)]))));
        Ok::<_, rusqlite::Error>(())
    };
    if let Some(principal) = principals::get(database, principal)? {
        add("principal", serde_json::to_value(principal))?;
    }
    let sql = format!("SELECT {} FROM agents WHERE {} ORDER BY id", agents::COLUMNS, own_agents!());
    let mut statement = database.prepare_cached(&sql)?;
    for agent in statement.query_map([principal], agents::read)? {
        add("agent", serde_json::to_value(agent?))?;
    }
    let sql = format!("SELECT {} FROM seen WHERE principal = ?1 ORDER BY scope, key", principals::SEEN);
    let mut statement = database.prepare_cached(&sql)?;
    for seen in statement.query_map([principal], principals::read_seen)? {
        add("key", serde_json::to_value(seen?))?;
    }
    Ok(page)
}

impl<'a> StoreExporter<'a> {
    pub(super) fn new(store: &'a SqliteStore, principal: &str) -> Self {
        StoreExporter {
            store,
            principal: principal.into(),
            source: 0,
            after: i64::MIN,
            page: VecDeque::new(),
            has_failed: false,
        }
    }

    /// Reads the next page, or returns false at the end.
    fn read(&mut self) -> Result<bool> {
        let (principal, after) = (&self.principal, self.after);
        let page = match self.source.checked_sub(1).map(|source| SOURCES.get(source)) {
            None => self.store.read(|database| others(database, principal))?,
            Some(Some(source)) => self.store.read(|database| source(database, principal, after))?,
            Some(None) => return Ok(false),
        };
        if self.source == 0 || page.len() < PAGE as usize {
            (self.source, self.after) = (self.source + 1, i64::MIN);
        } else if let Some((last, _)) = page.last() {
            self.after = *last;
        }
        self.page.extend(page.into_iter().map(|(_, value)| value));
        Ok(true)
    }
}

impl Iterator for StoreExporter<'_> {
    type Item = Result<Value>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.page.is_empty() && !self.has_failed {
            match self.read() {
                Ok(true) => {}
                Ok(false) => return None,
                Err(error) => {
                    self.has_failed = true;
                    return Some(Err(error));
                }
            }
        }
        self.page.pop_front().map(Ok)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::settings::StoreSettings;

    #[test]
    fn what_is_due_is_found_by_an_index() {
        let store = SqliteStore::in_memory(StoreSettings::default()).unwrap();
        for text in PURGE.iter().chain(&LEASE_END).chain(&EXPIRY).chain(&ENDED) {
            let plan = |database: &Connection| {
                let mut statement = database.prepare(&format!("EXPLAIN QUERY PLAN {text}"))?;
                let values = if text.contains("?1") { vec![1, 1] } else { Vec::new() };
                let rows = statement.query_map(rusqlite::params_from_iter(values), |row| row.get(3))?;
                rows.collect::<rusqlite::Result<Vec<String>>>()
            };
            for step in store.read(plan).unwrap() {
                let is_table = step.starts_with("SCAN ") || step.starts_with("SEARCH ");
                assert!(
                    !is_table || step.contains("INDEX") || step.contains("PRIMARY KEY"),
                    "{text}: {step}"
                );
            }
        }
    }
}
