//! A store in one SQLite file.

mod agents;
mod check;
mod erase;
mod messages;
mod outbox;
mod principals;
mod queue;
mod readers;
mod room;
mod rows;
mod schema;
mod statistics;
mod tasks;
mod writer;

use std::fs::File;
use std::io::{ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use duologue_rpc::Lock as _;
use duologue_transcript::private_file::{locked, no_links, private};
use rusqlite::{Connection, ErrorCode, ffi};

use super::agents::{AgentQuery, RegisteredAgent};
use super::batch::{BatchOutcome, StoreBatch};
use super::messages::{InboxKey, MessageQuery, StoredMessage};
use super::outbox::{OutboxEntry, OutboxQuery};
use super::principals::{SeenAnswer, SeenKey, StoredPrincipal};
use super::settings::StoreSettings;
use super::statistics::StoreStatistics;
use super::store::{ExportPage, ExportPosition, Store, SweepReport, SweepTimes};
use super::tasks::{QuestionQuery, StoredQuestion, StoredTask, StoredTaskKey, TaskQuery};
use super::values::{Claim, Claimed, StorePage, StoreTime};
use super::watch::{StoreSignals, StoreTopic, StoreWatch};
use crate::error::{Error, Result};
use readers::StoreReaders;
use writer::{BatchSlot, StoreWriter};

/// A [`Store`] in a SQLite file with mode 0600, or in memory.
///
/// One process opens the file; a second file, `NAME.lock`, has the lock. Batches of several threads that wait for the
/// disk at the same time are synced together. Queries do not wait for the writer, and
/// those of single records do not wait for lists.
#[derive(Debug)]
pub struct SqliteStore {
    path: PathBuf,
    settings: Arc<StoreSettings>,
    /// The batches that wait for the writer.
    waiting: Mutex<Vec<Arc<BatchSlot>>>,
    writer: Mutex<StoreWriter>,
    /// The connections for queries, which a store in memory has not.
    readers: Option<StoreReaders>,
    /// True if the log of the database has erased data.
    keeps_erased: Arc<AtomicBool>,
    signals: StoreSignals,
    opening: SweepReport,
    _lock: Option<File>,
}

/// The content of the file with the lock once the database has its tables.
const CREATED: &[u8] = b"the database beside this file has been created\n";

impl SqliteStore {
    /// Opens a file, or creates it. This ends all leases of the earlier life and all delays.
    ///
    /// `wall` is the time in milliseconds since 1970. [`opening`](Self::opening) has the tasks that have failed because
    /// their worker is lost.
    ///
    /// # Errors
    ///
    /// [`Error::InUse`] if another process has it open, [`Error::StoreDamaged`] also if the file is lost or empty,
    /// [`Error::NewerVersion`], [`Error::Database`], [`Error::DiskFull`], [`Error::File`].
    pub fn open(path: impl Into<PathBuf>, settings: StoreSettings, wall: u64) -> Result<Self> {
        let path = path.into();
        let mut lock_path = path.clone().into_os_string();
        lock_path.push(".lock");
        let lock_path = PathBuf::from(lock_path);
        let in_lock = |error| Error::file(&lock_path, error);
        let lock = no_links(private().create(true).truncate(false).read(true).write(true)).open(&lock_path);
        let mut lock = lock.and_then(|file| locked(file, &lock_path)).map_err(in_lock)?;
        let mut created = Vec::new();
        (&mut lock).take(CREATED.len() as u64).read_to_end(&mut created).map_err(in_lock)?;
        let was_created = created == CREATED;
        let lost = |reason: &str| {
            let lock = lock_path.display();
            let reason = format!("it is {reason}, and {lock} says that it was created");
            Error::StoreDamaged { path: path.clone(), reason }
        };
        // SQLite gives its other files the mode of this one.
        let file = no_links(private().create(!was_created).truncate(false).write(true)).open(&path);
        match file.and_then(|file| file.metadata()) {
            Ok(file) if was_created && file.len() == 0 => return Err(lost("empty")),
            Ok(_) => {}
            Err(error) if was_created && error.kind() == ErrorKind::NotFound => return Err(lost("lost")),
            Err(error) => return Err(Error::file(&path, error)),
        }
        let database = connect(&path).map_err(|error| failure(&path, error))?;
        schema::migrate(&database, &path)?;
        // A statement with a trigger keeps copies of the pages that it changes. By default many of them go to a file.
        let kept = database.pragma_update(None, "temp_store", "memory");
        kept.map_err(|error| failure(&path, error))?;
        if !was_created {
            let written =
                lock.set_len(0).and_then(|()| lock.write_all(CREATED)).and_then(|()| lock.sync_all());
            written.map_err(in_lock)?;
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            let folder = folder.unwrap_or(Path::new("."));
            crate::disk::sync_folder(folder).map_err(|error| Error::file(folder, error))?;
        }
        let readers = StoreReaders::open(&path).map_err(|error| failure(&path, error))?;
        SqliteStore::new(path, settings, database, Some(readers), Some(lock), wall)
    }

    /// Creates an empty store in memory.
    ///
    /// # Errors
    ///
    /// [`Error::Database`].
    pub fn in_memory(settings: StoreSettings) -> Result<Self> {
        let path = PathBuf::from(":memory:");
        let database = Connection::open_in_memory().map_err(|error| failure(&path, error))?;
        database.set_prepared_statement_cache_capacity(STATEMENTS);
        schema::migrate(&database, &path)?;
        SqliteStore::new(path, settings, database, None, None, 0)
    }

    fn new(
        path: PathBuf,
        settings: StoreSettings,
        database: Connection,
        readers: Option<StoreReaders>,
        lock: Option<File>,
        wall: u64,
    ) -> Result<Self> {
        let settings = Arc::new(settings);
        let keeps_erased = Arc::<AtomicBool>::default();
        let mut writer = StoreWriter::new(path.clone(), database, settings.clone(), keeps_erased.clone());
        let opening = writer.begin_life(wall)?;
        Ok(SqliteStore {
            path,
            settings,
            waiting: Mutex::default(),
            writer: Mutex::new(writer),
            readers,
            keeps_erased,
            signals: StoreSignals::new(),
            opening,
            _lock: lock,
        })
    }

    /// Returns the leases that were ended when the store was opened.
    #[must_use]
    pub fn opening(&self) -> &SweepReport {
        &self.opening
    }

    /// Returns the path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads single records, or a bounded number of them.
    fn read<T>(&self, query: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T> {
        self.query(StoreReaders::records, query)
    }

    /// Reads pages and numbers of records, which can take long.
    fn read_list<T>(&self, query: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T> {
        let result = self.query(StoreReaders::list, query);
        if self.keeps_erased.load(Ordering::Relaxed) {
            self.writer.lock_unpoisoned().empty_log();
        }
        result
    }

    /// Reads a page. One of an agent and an id has at most one record of each principal, so it does not wait for others.
    fn read_named<T>(
        &self,
        is_named: bool,
        query: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T> {
        if is_named { self.read(query) } else { self.read_list(query) }
    }

    fn query<T>(
        &self,
        reader: fn(&StoreReaders) -> MutexGuard<'_, Connection>,
        query: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T> {
        let result = match &self.readers {
            Some(readers) => query(&reader(readers)),
            None => query(self.writer.lock_unpoisoned().database()),
        };
        result.map_err(|error| failure(&self.path, error))
    }

    /// Runs a change that returns more than an outcome, and wakes those that wait for it.
    fn change<T>(&self, change: impl FnOnce(&mut StoreWriter) -> Result<T>) -> Result<T> {
        let mut writer = self.writer.lock_unpoisoned();
        let result = change(&mut writer);
        self.wake(writer.take_wakes());
        result
    }

    fn apply_checked(&self, batch: StoreBatch) -> Result<BatchOutcome> {
        let slot = Arc::new(BatchSlot::new(batch));
        self.waiting.lock_unpoisoned().push(slot.clone());
        let mut writer = self.writer.lock_unpoisoned();
        // Another thread may have applied it with its own.
        if let Some(result) = slot.take_result() {
            return result;
        }
        let slots = std::mem::take(&mut *self.waiting.lock_unpoisoned());
        writer.apply(&slots);
        self.wake(writer.take_wakes());
        slot.take_result().unwrap_or_else(|| {
            Err(failure(&self.path, rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_ABORT), None)))
        })
    }

    fn wake(&self, topics: Vec<StoreTopic>) {
        topics.iter().for_each(|topic| self.signals.wake(topic));
    }
}

impl Store for SqliteStore {
    fn settings(&self) -> &StoreSettings {
        &self.settings
    }

    fn apply(&self, batch: StoreBatch) -> Result<BatchOutcome> {
        check::batch(&self.settings, &batch)?;
        let began = Instant::now();
        let outcome = self.apply_checked(batch);
        if let Some(observer) = &self.settings.batch_times {
            observer.observe(began.elapsed());
        }
        outcome
    }

    fn claim_messages(&self, agent: &str, claim: &Claim) -> Result<Claimed<StoredMessage>> {
        check::claim(&self.settings, claim)?;
        self.change(|writer| writer.transaction(|change| messages::claim(change, agent, claim)))
    }

    fn claim_tasks(&self, agent: &str, claim: &Claim) -> Result<Claimed<StoredTask>> {
        check::claim(&self.settings, claim)?;
        self.change(|writer| writer.transaction(|change| tasks::claim(change, agent, claim)))
    }

    fn claim_deliveries(&self, claim: &Claim) -> Result<Claimed<OutboxEntry>> {
        check::claim(&self.settings, claim)?;
        self.change(|writer| writer.transaction(|change| outbox::claim(change, claim)))
    }

    fn sweep(&self, time: StoreTime) -> Result<SweepReport> {
        self.change(|writer| writer.sweep(time))
    }

    fn next_sweep(&self) -> Result<SweepTimes> {
        self.read(erase::next_sweep)
    }

    fn agent(&self, id: &str) -> Result<Option<RegisteredAgent>> {
        self.read(|database| agents::get(database, id))
    }

    fn agents(&self, query: &AgentQuery) -> Result<StorePage<RegisteredAgent>> {
        self.read_list(|database| agents::list(database, query, self.settings.page(query.limit)))
    }

    fn message(&self, key: &InboxKey) -> Result<Option<StoredMessage>> {
        self.read(|database| messages::get(database, key))
    }

    fn messages(&self, query: &MessageQuery) -> Result<StorePage<StoredMessage>> {
        let list = |database: &Connection| messages::list(database, query, self.settings.page(query.limit));
        self.read_named(query.agent.is_some() && query.id.is_some(), list)
    }

    fn task(&self, key: &StoredTaskKey) -> Result<Option<StoredTask>> {
        self.read(|database| tasks::get(database, key))
    }

    fn tasks(&self, query: &TaskQuery) -> Result<StorePage<StoredTask>> {
        let list = |database: &Connection| tasks::list(database, query, self.settings.page(query.limit));
        self.read_named(query.agent.is_some() && query.id.is_some(), list)
    }

    fn median_duration(&self, agent: &str, kind: &str, last: u64) -> Result<Option<Duration>> {
        self.read(|database| {
            tasks::median_duration(database, agent, kind, last.min(self.settings.page_entries))
        })
    }

    fn question(&self, task: &StoredTaskKey, question: &str) -> Result<Option<StoredQuestion>> {
        self.read(|database| tasks::question(database, task, question))
    }

    fn questions(&self, query: &QuestionQuery) -> Result<StorePage<StoredQuestion>> {
        self.read_list(|database| tasks::questions(database, query, self.settings.page(query.limit)))
    }

    fn delivery(&self, id: u64) -> Result<Option<OutboxEntry>> {
        self.read(|database| outbox::get(database, id))
    }

    fn deliveries(&self, query: &OutboxQuery) -> Result<StorePage<OutboxEntry>> {
        self.read_list(|database| outbox::list(database, query, self.settings.page(query.limit)))
    }

    fn stream_end(&self, stream: &str) -> Result<Option<u64>> {
        self.read(|database| outbox::stream_end(database, stream))
    }

    fn remembered(&self, key: &SeenKey, time: StoreTime) -> Result<Option<SeenAnswer>> {
        self.read(|database| principals::remembered(database, key, time.wall))
    }

    fn principal(&self, id: &str) -> Result<Option<StoredPrincipal>> {
        self.read(|database| principals::get(database, id))
    }

    fn principal_by_key(&self, key_hash: &[u8; 32]) -> Result<Option<StoredPrincipal>> {
        self.read(|database| principals::by_key(database, key_hash))
    }

    fn principals(&self, offset: u64, limit: u64) -> Result<StorePage<StoredPrincipal>> {
        self.read_list(|database| principals::list(database, offset, self.settings.page(limit)))
    }

    fn erasures(&self) -> Result<Vec<String>> {
        self.read(erase::open)
    }

    fn export(&self, principal: &str, position: &ExportPosition) -> Result<ExportPage> {
        self.read_list(|database| erase::export(database, principal, position))
    }

    fn statistics(&self) -> Result<StoreStatistics> {
        self.read_list(statistics::read)
    }

    fn watch(&self, topic: &StoreTopic) -> StoreWatch {
        self.signals.watch(topic)
    }
}

/// The statements that a connection keeps prepared.
const STATEMENTS: usize = 128;

/// The time for which a connection waits for the others of this process.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let database = Connection::open(path)?;
    database.set_prepared_statement_cache_capacity(STATEMENTS);
    // The connections of this process wait for each other while a file is checkpointed.
    database.busy_timeout(BUSY_TIMEOUT)?;
    database.pragma_update(None, "journal_mode", "wal")?;
    database.pragma_update(None, "synchronous", "full")?;
    // Pages keep no data that was removed from them or moved to another one.
    database.pragma_update(None, "secure_delete", true)?;
    Ok(database)
}

/// Converts an error of the database.
fn failure(path: &Path, error: rusqlite::Error) -> Error {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => Error::DiskFull { path: path.into() },
        Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => {
            Error::StoreDamaged { path: path.into(), reason: error.to_string() }
        }
        _ => Error::Database { path: path.into(), error: Arc::new(error) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::batch::StoreChange;
    use crate::tables::messages::{MessageSender, NewInboxMessage};
    use crate::tables::values::JsonText;

    /// Lists that have all their connections stop no other query and no change.
    #[test]
    fn lists_hold_up_nothing_else() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("store.sqlite");
        let store = SqliteStore::open(path, StoreSettings::default(), 0).expect("a store");
        let time = StoreTime::new(Duration::from_secs(1), 1000);
        let content = JsonText::of("text").expect("a text");
        let message = NewInboxMessage::new("writer", "m1", MessageSender::new("alice", "alice"), content);
        let key = message.key();
        let readers = store.readers.as_ref().expect("a file has them");
        let lists = [readers.list(), readers.list()];
        store.apply(StoreBatch::new(time).with(StoreChange::Enqueue(message))).expect("an acceptance");
        assert!(store.message(&key).expect("a query").is_some());
        let claim = Claim::new(time, Duration::from_secs(1), "worker");
        assert_eq!(store.claim_messages("writer", &claim).expect("a claim").entries.len(), 1);
        // A list of what has an id has few records.
        let mut named = MessageQuery::default();
        (named.agent, named.id) = (Some(key.agent.clone()), Some(key.message.clone()));
        assert_eq!(store.messages(&named).expect("a list").total, 1);
        let mut named = TaskQuery::default();
        (named.agent, named.id) = (Some(key.agent), Some("t1".to_owned()));
        assert_eq!(store.tasks(&named).expect("a list").total, 0);
        drop(lists);
        assert_eq!(store.messages(&MessageQuery::default()).expect("a list").total, 1);
    }

    /// The end of a list empties the log if one has kept the erasure from it, and so does the next life.
    #[test]
    fn an_erasure_waits_for_no_list() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("store.sqlite");
        let store = SqliteStore::open(&path, StoreSettings::default(), 0).expect("a store");
        let log = || std::fs::metadata(path.with_extension("sqlite-wal")).expect("the log").len();
        let apply = |change: StoreChange| {
            let time = StoreTime::new(Duration::from_secs(1), 1000);
            store.apply(StoreBatch::new(time).with(change)).expect("a change")
        };
        let content = JsonText::of("text").expect("a text");
        let from = MessageSender::new("alice", "alice");
        apply(StoreChange::Enqueue(NewInboxMessage::new("writer", "m1", from, content)));
        let list = store.readers.as_ref().expect("a file has them").list();
        list.execute_batch("BEGIN; SELECT count(*) FROM messages").expect("a list");
        apply(StoreChange::ErasePrincipal { principal: "alice".to_owned() });
        assert!(log() > 0);
        let read = || store.messages(&MessageQuery::default()).expect("a list");
        read();
        assert!(log() > 0);
        list.execute_batch("COMMIT").expect("the end of the list");
        drop(list);
        read();
        assert_eq!(log(), 0);
    }
}
