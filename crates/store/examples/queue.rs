//! Measures the queue of a store against bare SQLite with the same durability and batch size:
//! `cargo run --release -p duologue-store --features store --example queue -- FOLDER`.
//!
//! The bare queue has one table with a unique id, an index of what is ready, a lease and a state. It checks nothing, and has
//! no bands, groups, limits or time-outs.
#![allow(clippy::print_stdout, reason = "the figures")]

use std::path::Path;
use std::time::{Duration, Instant};

use duologue_store::{
    Claim, JsonText, MessageSender, NewInboxMessage, SqliteStore, Store, StoreBatch, StoreChange,
    StoreSettings, StoreTime,
};
use rusqlite::{Connection, params};

/// The bytes of each message.
const BYTES: usize = 512;

type Failure = Box<dyn std::error::Error>;

struct BareQueue(Connection);

impl BareQueue {
    fn open(path: &Path, synchronous: &str) -> Result<Self, Failure> {
        let database = Connection::open(path)?;
        database.pragma_update(None, "journal_mode", "wal")?;
        database.pragma_update(None, "synchronous", synchronous)?;
        database.execute_batch(
            "CREATE TABLE queue (seq INTEGER PRIMARY KEY, agent TEXT NOT NULL, id TEXT NOT NULL, created INTEGER NOT NULL,
                 state INTEGER NOT NULL, lease INTEGER, lease_end INTEGER, content TEXT NOT NULL) STRICT;
             CREATE UNIQUE INDEX queue_id ON queue (agent, id);
             CREATE INDEX queue_ready ON queue (agent, seq) WHERE state = 0;",
        )?;
        Ok(BareQueue(database))
    }

    fn enqueue(&mut self, first: usize, batch: usize, content: &str) -> Result<(), Failure> {
        let change = self.0.transaction()?;
        let text = "INSERT INTO queue (agent, id, created, state, content) VALUES ('agent', ?1, 1, 0, ?2)";
        for number in first..first + batch {
            change.prepare_cached(text)?.execute(params![number.to_string(), content])?;
        }
        Ok(change.commit()?)
    }

    fn claim(&mut self, batch: usize) -> Result<Vec<(i64, String)>, Failure> {
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

    fn acknowledge(&mut self, rows: &[(i64, String)]) -> Result<(), Failure> {
        let change = self.0.transaction()?;
        for (row, _) in rows {
            let text = "UPDATE queue SET state = 2, lease = NULL WHERE seq = ?1 AND lease = 7";
            change.prepare_cached(text)?.execute([row])?;
        }
        Ok(change.commit()?)
    }
}

/// Returns the operations a second of adding, and of claiming and acknowledging.
fn bare(path: &Path, synced: bool, batch: usize, count: usize, content: &str) -> Result<(f64, f64), Failure> {
    let mut queue = BareQueue::open(path, if synced { "full" } else { "normal" })?;
    let started = Instant::now();
    for first in (0..count).step_by(batch) {
        queue.enqueue(first, batch, content)?;
    }
    let added = started.elapsed();
    let started = Instant::now();
    // A lease needs no sync in both.
    for _ in (0..count).step_by(batch) {
        queue.0.pragma_update(None, "synchronous", "normal")?;
        let rows = queue.claim(batch)?;
        assert_eq!(rows.len(), batch);
        queue.0.pragma_update(None, "synchronous", if synced { "full" } else { "normal" })?;
        queue.acknowledge(&rows)?;
    }
    Ok((rate(count, added), rate(count, started.elapsed())))
}

fn ours(path: &Path, synced: bool, batch: usize, count: usize, content: &str) -> Result<(f64, f64), Failure> {
    let mut settings = StoreSettings::default();
    settings.inbox_entries = u64::MAX;
    let store = SqliteStore::open(path, settings, 1)?;
    let time = StoreTime::new(Duration::from_secs(1), 1);
    let changes = || {
        let batch = StoreBatch::new(time);
        if synced { batch } else { batch.accepted() }
    };
    let content = JsonText::new(content)?;
    let started = Instant::now();
    for first in (0..count).step_by(batch) {
        let mut changes = changes();
        for number in first..first + batch {
            let from = MessageSender::new("alice", "alice");
            let message = NewInboxMessage::new("agent", number.to_string(), from, content.clone());
            changes.push(StoreChange::Enqueue(message));
        }
        store.apply(changes)?;
    }
    let added = started.elapsed();
    let claim = Claim::new(time, Duration::from_secs(60), "worker").max(batch);
    let started = Instant::now();
    for _ in (0..count).step_by(batch) {
        let claimed = store.claim_messages("agent", &claim)?.entries;
        assert_eq!(claimed.len(), batch);
        let mut changes = changes();
        for leased in claimed {
            changes.push(StoreChange::AckMessage { lease: leased.lease, response: None });
        }
        store.apply(changes)?;
    }
    Ok((rate(count, added), rate(count, started.elapsed())))
}

fn rate(count: usize, time: Duration) -> f64 {
    count as f64 / time.as_secs_f64()
}

fn main() -> Result<(), Failure> {
    let folder = std::env::args().nth(1).unwrap_or_else(|| "queue-bench".into());
    let folder = Path::new(&folder);
    std::fs::create_dir_all(folder)?;
    let content = format!("{:?}", "x".repeat(BYTES - 2));
    for synced in [true, false] {
        for batch in [1, 16, 128] {
            let count = if synced { 64 * batch.max(16) } else { 128 * 128 };
            let names = ["bare", "ours"].map(|name| folder.join(format!("{name}-{synced}-{batch}")));
            let (bare_add, bare_run) = bare(&names[0], synced, batch, count, &content)?;
            let (our_add, our_run) = ours(&names[1], synced, batch, count, &content)?;
            println!(
                "{} {batch:3} a batch: enqueue {our_add:8.0}/s, bare {bare_add:8.0}/s ({:3.0} %); \
                 claim and ack {our_run:8.0}/s, bare {bare_run:8.0}/s ({:3.0} %)",
                if synced { "synced  " } else { "accepted" },
                100.0 * our_add / bare_add,
                100.0 * our_run / bare_run,
            );
        }
    }
    std::fs::remove_dir_all(folder)?;
    Ok(())
}
