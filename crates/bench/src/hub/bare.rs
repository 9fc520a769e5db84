//! A queue in plain SQLite with the pragmas of the store, for comparison.
//!
//! It has one table with a unique id, an index of what is ready, a lease and a state. It checks nothing, and has no bands,
//! groups, limits, time-outs or wake-ups.

use std::path::Path;

use rusqlite::{Connection, params};

use super::HubFailure;
use super::store::QueueRates;

/// Measures the work of [`store::queue_rates`](super::store::queue_rates).
///
/// # Errors
///
/// If SQLite fails or an entry is lost.
pub fn queue_rates(
    path: &Path,
    synced: bool,
    batch: usize,
    count: usize,
    content: &str,
) -> Result<QueueRates, HubFailure> {
    let synchronous = if synced { "full" } else { "normal" };
    let queue = BareQueue::open(path, synchronous)?;
    let take = |queue: &mut BareQueue| {
        // A lease needs no sync in both.
        queue.0.pragma_update(None, "synchronous", "normal")?;
        let rows = queue.claim(batch)?;
        queue.0.pragma_update(None, "synchronous", synchronous)?;
        queue.acknowledge(&rows)?;
        Ok(rows.len())
    };
    QueueRates::of(queue, (batch, count), |queue, first| queue.enqueue(first, batch, content), take)
}

struct BareQueue(Connection);

impl BareQueue {
    fn open(path: &Path, synchronous: &str) -> Result<Self, HubFailure> {
        let database = Connection::open(path)?;
        database.pragma_update(None, "journal_mode", "wal")?;
        database.pragma_update(None, "synchronous", synchronous)?;
        database.pragma_update(None, "secure_delete", true)?;
        database.execute_batch(
            "CREATE TABLE queue (seq INTEGER PRIMARY KEY, agent TEXT NOT NULL, id TEXT NOT NULL, created INTEGER NOT NULL,
                 state INTEGER NOT NULL, lease INTEGER, lease_end INTEGER, content TEXT NOT NULL) STRICT;
             CREATE UNIQUE INDEX queue_id ON queue (agent, id);
             CREATE INDEX queue_ready ON queue (agent, seq) WHERE state = 0;",
        )?;
        Ok(BareQueue(database))
    }

    fn enqueue(&mut self, first: usize, batch: usize, content: &str) -> Result<(), HubFailure> {
        let change = self.0.transaction()?;
        let text = "INSERT INTO queue (agent, id, created, state, content) VALUES ('agent', ?1, 1, 0, ?2)";
        for number in first..first + batch {
            change.prepare_cached(text)?.execute(params![number.to_string(), content])?;
        }
        Ok(change.commit()?)
    }

    fn claim(&mut self, batch: usize) -> Result<Vec<(i64, String)>, HubFailure> {
        let change = self.0.transaction()?;
        let rows = {
            let text = "UPDATE queue SET state = 1, lease = 7, lease_end = 9 WHERE seq IN (SELECT seq FROM queue \
                        WHERE agent = 'agent' AND state = 0 ORDER BY seq LIMIT ?1) RETURNING seq, content";
            let mut statement = change.prepare_cached(text)?;
            let rows = statement.query_map([batch as i64], |row| Ok((row.get(0)?, row.get(1)?)))?;
            rows.collect::<Result<_, _>>()?
        };
        change.commit()?;
        Ok(rows)
    }

    /// Keeps the rows, as the store does. A deletion would also change the index of ids.
    fn acknowledge(&mut self, rows: &[(i64, String)]) -> Result<(), HubFailure> {
        let change = self.0.transaction()?;
        for (row, _) in rows {
            let text = "UPDATE queue SET state = 2, lease = NULL WHERE seq = ?1 AND lease = 7";
            change.prepare_cached(text)?.execute([row])?;
        }
        Ok(change.commit()?)
    }
}
