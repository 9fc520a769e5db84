//! The numbers of records.

use duologue_schema::envelope::TaskState;
use rusqlite::{Connection, Row};

use super::queue::band_of_priority;
use super::rows::{number, outbox_state, small};
use crate::tables::statistics::{OutboxCount, QueueDepth, StoreStatistics, TaskCount};

const TASKS: &str = "SELECT agent, state, count(*) FROM tasks GROUP BY agent, state";
const OUTBOX: &str = "SELECT state, count(*), min(created) FROM outbox GROUP BY state";
/// Selects the columns of a [`QueueDepth`] from a table with a condition.
macro_rules! depths {
    ($from:literal) => {
        concat!(
            "SELECT agent, ",
            band_of_priority!(),
            " AS depth_band, count(*), min(created) FROM ",
            $from,
            " GROUP BY agent, depth_band"
        )
    };
}

pub(super) fn read(database: &Connection) -> rusqlite::Result<StoreStatistics> {
    // The transaction makes the numbers fit together.
    let snapshot = database.unchecked_transaction()?;
    let task = |row: &Row<'_>| {
        let state = TaskState::from(row.get_ref(1)?.as_str()?);
        Ok(TaskCount { agent: row.get(0)?, state, count: number(row, 2)? })
    };
    let post = |row: &Row<'_>| {
        Ok(OutboxCount { state: outbox_state::get(row, 0)?, count: number(row, 1)?, oldest: number(row, 2)? })
    };
    Ok(StoreStatistics {
        tasks: all(&snapshot, TASKS, task)?,
        waiting_tasks: all(&snapshot, depths!("tasks WHERE state = 'submitted'"), depth)?,
        waiting_messages: all(&snapshot, depths!("messages WHERE state = 0 AND lease IS NULL"), depth)?,
        outbox: all(&snapshot, OUTBOX, post)?,
    })
}

fn depth(row: &Row<'_>) -> rusqlite::Result<QueueDepth> {
    Ok(QueueDepth {
        agent: row.get(0)?,
        band: small(row, 1)?,
        count: number(row, 2)?,
        oldest: number(row, 3)?,
    })
}

fn all<T>(
    database: &Connection,
    text: &str,
    read: impl Fn(&Row<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<Vec<T>> {
    database.prepare_cached(text)?.query_map([], read)?.collect()
}
