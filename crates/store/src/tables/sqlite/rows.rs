//! Conversions between columns and values, and pages of rows.

use std::time::Duration;

use rusqlite::types::{Type, Value, ValueRef};
use rusqlite::{Connection, Row, params_from_iter};

use crate::tables::settings::PageRoom;
use crate::tables::values::{JsonText, StorePage};

pub(super) fn int(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

pub(super) fn uint(value: i64) -> u64 {
    u64::try_from(value).unwrap_or_default()
}

/// Returns a time in microseconds. Zero has a meaning of its own in some columns, so it is at least one.
pub(super) fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX).max(1)
}

pub(super) fn from_micros(time: i64) -> Duration {
    Duration::from_micros(uint(time))
}

pub(super) fn number(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    row.get(column).map(uint)
}

pub(super) fn maybe_number(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<u64>> {
    Ok(row.get::<_, Option<i64>>(column)?.map(uint))
}

pub(super) fn small<T: TryFrom<i64> + Default>(row: &Row<'_>, column: usize) -> rusqlite::Result<T> {
    Ok(T::try_from(row.get::<_, i64>(column)?).unwrap_or_default())
}

pub(super) fn json(row: &Row<'_>, column: usize) -> rusqlite::Result<JsonText> {
    row.get(column).map(JsonText::trusted)
}

pub(super) fn maybe_json(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<JsonText>> {
    Ok(row.get::<_, Option<String>>(column)?.map(JsonText::trusted))
}

pub(super) fn parsed<T: serde::de::DeserializeOwned>(row: &Row<'_>, column: usize) -> rusqlite::Result<T> {
    let text: String = row.get(column)?;
    serde_json::from_str(&text).map_err(|error| invalid(column, error))
}

pub(super) fn invalid(
    column: usize,
    error: impl std::error::Error + Send + Sync + 'static,
) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, Type::Text, Box::new(error))
}

pub(super) fn name_list(names: &[String]) -> String {
    serde_json::to_string(names).unwrap_or_default()
}

/// Declares the names of an enum in the database.
macro_rules! names {
    ($($module:ident: $type:ty { $($variant:ident = $name:literal),* $(,)? })*) => {$(
        pub(super) mod $module {
            use super::*;

            pub(in crate::tables::sqlite) fn name(value: $type) -> &'static str {
                match value { $(<$type>::$variant => $name,)* }
            }

            pub(in crate::tables::sqlite) fn get(row: &Row<'_>, column: usize) -> rusqlite::Result<$type> {
                match row.get_ref(column)?.as_str()? {
                    $($name => Ok(<$type>::$variant),)*
                    other => Err(invalid(column, std::io::Error::other(format!("{other:?} is no name")))),
                }
            }
        }
    )*};
}

use crate::tables::agents::{RegistrySource, RegistryStatus};
use crate::tables::outbox::{OutboxKind, OutboxState};
use crate::tables::tasks::QuestionState;

names! {
    source: RegistrySource { Config = "config", Attached = "attached", Rest = "rest" }
    status: RegistryStatus { Online = "online", Busy = "busy", Offline = "offline" }
    outbox_kind: OutboxKind { Callback = "callback", Chunk = "chunk" }
    outbox_state: OutboxState { Pending = "pending", Delivered = "delivered", GivenUp = "given_up" }
    question_state: QuestionState { Open = "open", Answered = "answered", Withdrawn = "withdrawn" }
}

/// Returns the bytes of the texts of a row.
pub(super) fn text_bytes(row: &Row<'_>) -> rusqlite::Result<usize> {
    let columns = row.as_ref().column_count();
    (0..columns).try_fold(0, |bytes, column| {
        Ok(match row.get_ref(column)? {
            ValueRef::Text(text) | ValueRef::Blob(text) => bytes + text.len(),
            _ => bytes,
        })
    })
}

/// The conditions of a list, with their values.
#[derive(Default)]
pub(super) struct Filter {
    conditions: Vec<&'static str>,
    values: Vec<Value>,
}

impl Filter {
    /// Adds a condition with one `?`, if there is a value.
    pub(super) fn with(mut self, condition: &'static str, value: Option<impl Into<Value>>) -> Self {
        if let Some(value) = value {
            self.conditions.push(condition);
            self.values.push(value.into());
        }
        self
    }

    /// Adds a condition without a value.
    pub(super) fn only(mut self, condition: Option<&'static str>) -> Self {
        self.conditions.extend(condition);
        self
    }

    /// Reads a page of a table, in the order of its primary key. What is beyond the page is not read.
    pub(super) fn page<T>(
        self,
        database: &Connection,
        (columns, table, order): (&str, &str, &str),
        (offset, room): (u64, PageRoom),
        read: fn(&Row<'_>) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<StorePage<T>> {
        let Filter { conditions, mut values } = self;
        let conditions = match conditions.is_empty() {
            true => String::new(),
            false => format!("WHERE {}", conditions.join(" AND ")),
        };
        // The transaction makes the page and the number fit.
        let snapshot = database.unchecked_transaction()?;
        let mut count = snapshot.prepare_cached(&format!("SELECT count(*) FROM {table} {conditions}"))?;
        let total = count.query_row(params_from_iter(&values), |row| number(row, 0))?;
        let mut page = StorePage { items: Vec::new(), offset, limit: room.entries, total };
        if offset >= total {
            return Ok(page);
        }
        let text = page_query(columns, table, order, &conditions);
        values.extend([int(room.entries).into(), int(offset).into()]);
        let mut statement = snapshot.prepare_cached(&text)?;
        let mut bytes = 0;
        let mut rows = statement.query(params_from_iter(&values))?;
        while let Some(row) = rows.next()? {
            bytes += text_bytes(row)?;
            if bytes > room.bytes && !page.items.is_empty() {
                break;
            }
            page.items.push(read(row)?);
        }
        Ok(page)
    }
}

/// Returns the query for a page. It finds the keys of the page first, so an index with the conditions is enough for the
/// rows in front of it.
fn page_query(columns: &str, table: &str, order: &str, conditions: &str) -> String {
    let key = order.trim_end_matches(" DESC");
    let keys = format!("SELECT {key} FROM {table} {conditions} ORDER BY {order} LIMIT ? OFFSET ?");
    format!("SELECT {columns} FROM {table} WHERE {key} IN ({keys}) ORDER BY {order}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::SqliteStore;
    use crate::tables::settings::StoreSettings;
    use crate::tables::sqlite::schema::query_plan;

    /// Lists read the rows of their page alone, as another process of the store has the tables.
    #[test]
    fn the_rows_in_front_of_a_page_are_not_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("store.sqlite");
        let store = SqliteStore::open(path, StoreSettings::default(), 0).expect("a store");
        for (table, order, conditions, index) in [
            (
                "messages",
                "seq",
                "agent = ? AND principal = ?",
                "messages_principal (principal=? AND agent=?)",
            ),
            ("messages", "seq", "agent = ?", "messages_key (agent=?)"),
            ("messages", "seq", "agent = ? AND id = ?", "messages_key (agent=? AND id=?)"),
            (
                "messages",
                "seq",
                "agent = ? AND correlation = ?",
                "messages_correlation (agent=? AND correlation=?)",
            ),
            (
                "messages",
                "seq",
                "agent = ? AND principal = ? AND correlation = ?",
                "messages_correlation (agent=? AND correlation=? AND principal=?)",
            ),
            ("messages", "seq", "agent = ? AND state = 3", "messages_dead (agent=?)"),
            ("tasks", "seq DESC", "agent = ?", "tasks_agent (agent=?)"),
            ("tasks", "seq DESC", "owner = ? AND agent = ?", "tasks_owner (owner=?)"),
            ("tasks", "seq DESC", "agent = ? AND id = ?", "tasks_id (agent=? AND id=?)"),
            ("tasks", "seq", "agent = ? AND ended = 0", "tasks_open_of_agent (agent=?)"),
            ("tasks", "seq", "owner = ? AND agent = ? AND ended = 0", "tasks_open_of_agent (agent=?)"),
            ("tasks", "seq", "agent = ? AND dead = 1", "tasks_dead (agent=?)"),
            ("outbox", "id", "stream = ? AND state = ? AND state = 'given_up'", "outbox_given_up (stream=?)"),
        ] {
            let conditions = format!("WHERE {conditions}");
            let page = page_query("*", table, order, &conditions);
            let plan = store.read_list(|database| query_plan(database, &page)).expect("a plan").join("; ");
            assert!(plan.contains(&format!("USING COVERING INDEX {index}")), "{page}: {plan}");
            let count = format!("SELECT count(*) FROM {table} {conditions}");
            let plan = store.read_list(|database| query_plan(database, &count)).expect("a plan").join("; ");
            assert!(plan.contains("USING COVERING INDEX"), "{count}: {plan}");
        }
        // The task of a session is read from its row.
        let conditions = "WHERE owner = ? AND session = ? AND ended = 0";
        let page = page_query("*", "tasks", "seq", conditions);
        let plan = store.read_list(|database| query_plan(database, &page)).expect("a plan").join("; ");
        assert!(plan.contains("USING INDEX tasks_session (session=? AND owner=?)"), "{plan}");
    }
}
