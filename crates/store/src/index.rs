//! The list of the sessions of a folder, in SQLite. It can be made again from the folders of the logs.

use std::collections::HashSet;
use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use duologue_rpc::Lock as _;
use duologue_transcript::private_file::private;
use rusqlite::types::Value;
use rusqlite::{Connection, ErrorCode, OptionalExtension as _, Row, params, params_from_iter};
use serde::{Deserialize, Serialize};

use crate::disk::{open_ordinary, remove_if_there, sync_folder};
use crate::error::{Error, Result};
use crate::root::LogRoot;

/// The version of the tables. An index with another one is made again.
const VERSION: i64 = 1;

/// The memory for pages of the database in KiB.
const CACHE_KIB: i64 = 512;

/// The table, as SQLite returns it from its schema.
const TABLE: &str = "CREATE TABLE sessions (
        id TEXT PRIMARY KEY, owner TEXT NOT NULL, agent TEXT NOT NULL, cwd TEXT NOT NULL, title TEXT,
        state TEXT NOT NULL, created INTEGER NOT NULL, updated INTEGER NOT NULL, log TEXT NOT NULL UNIQUE
    ) STRICT, WITHOUT ROWID";

const INDEXES: &str = "
    CREATE INDEX by_time ON sessions (updated, id);
    CREATE INDEX by_owner ON sessions (owner, updated, id);
    CREATE INDEX by_cwd ON sessions (owner, cwd, updated, id);
    PRAGMA user_version = 1;
";

const COLUMNS: &str = "id, owner, agent, cwd, title, state, created, updated, log";

/// The name of the file with the entry, in the folder of the log.
const ENTRY: &str = "session.json";

/// The most bytes of that file. A title is at most a line of an agent.
const ENTRY_BYTES: u64 = 32 * 1024 * 1024;

/// A session in the index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct IndexedSession {
    /// The id that clients use.
    pub id: String,
    /// The principal that owns it.
    pub owner: String,
    /// The id of the agent.
    pub agent: String,
    /// The working directory.
    pub cwd: String,
    /// The title, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The state. The index does not interpret it.
    pub state: String,
    /// The time of its creation, in milliseconds since 1970.
    pub created: u64,
    /// The time of its last change, in milliseconds since 1970.
    pub updated: u64,
    /// The name of its log.
    pub log: String,
}

impl IndexedSession {
    /// Creates the entry of a session that begins now, without a title or a state.
    #[must_use]
    pub fn new(
        id: impl Into<String>,
        owner: impl Into<String>,
        agent: impl Into<String>,
        cwd: impl Into<String>,
        log: impl Into<String>,
    ) -> Self {
        let now = millis(SystemTime::now());
        IndexedSession {
            id: id.into(),
            owner: owner.into(),
            agent: agent.into(),
            cwd: cwd.into(),
            title: None,
            state: String::new(),
            created: now,
            updated: now,
            log: log.into(),
        }
    }
}

/// A filter of sessions, and the place of a page.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct IndexQuery {
    /// The owner. `None` lists the sessions of all owners.
    pub owner: Option<String>,
    /// The working directory, exactly.
    pub cwd: Option<String>,
    /// The state, exactly.
    pub state: Option<String>,
    /// The [`next`](IndexPage::next) of the page before.
    pub cursor: Option<String>,
    /// The most sessions of the page. Zero counts as 100, and 1000 is the most.
    pub limit: usize,
}

/// Sessions, the one that was changed last first.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct IndexPage {
    /// The sessions.
    pub sessions: Vec<IndexedSession>,
    /// The cursor of the next page, if there is one. A session that changes in the meantime is in front of it, so
    /// later pages lack it.
    pub next: Option<String>,
}

/// The result of a comparison of the index with the folders.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RebuildReport {
    /// The sessions that were added.
    pub added: usize,
    /// The sessions that were removed, since their log has no entry.
    pub removed: usize,
    /// Logs with an unreadable entry or the session of another log, and the reason.
    pub skipped: Vec<(String, String)>,
}

/// The list of the sessions in a folder of logs.
///
/// Each change is first written into the folder of the log, then into the database. Functions block.
#[derive(Debug)]
pub struct SessionIndex {
    root: LogRoot,
    path: PathBuf,
    database: Mutex<Connection>,
    report: RebuildReport,
}

impl SessionIndex {
    /// Opens the index of a folder and compares it with the folders. A missing, damaged or older index is made again.
    ///
    /// # Errors
    ///
    /// [`Error::Index`], [`Error::DiskFull`], [`Error::File`].
    pub fn open(root: &LogRoot) -> Result<Self> {
        let path = root.folder().join("index.sqlite");
        let files = ["", "-wal", "-shm"].map(|end| root.folder().join(format!("index.sqlite{end}")));
        let found = |file| fs::symlink_metadata(file).ok();
        // SQLite would follow a link and wait for a pipe.
        if files.iter().filter_map(found).all(|found| found.is_file()) {
            match SessionIndex::open_file(root, &path) {
                Err(Error::Index { error, .. }) if is_damage(&error) => {}
                index => return index,
            }
        }
        for file in &files {
            // A folder with files is not ours, and stays.
            let is_folder = found(file).is_some_and(|found| found.is_dir());
            let removed = if is_folder { fs::remove_dir(file) } else { remove_if_there(file) };
            removed.map_err(|error| Error::file(file, error))?;
        }
        SessionIndex::open_file(root, &path)
    }

    fn open_file(root: &LogRoot, path: &Path) -> Result<Self> {
        let (database, report) = (Mutex::new(connect(path)?), RebuildReport::default());
        let mut index = SessionIndex { root: root.clone(), path: path.into(), database, report };
        index.report = index.compare(false)?;
        Ok(index)
    }

    /// Returns the result of the comparison when the index was opened.
    #[must_use]
    pub fn report(&self) -> &RebuildReport {
        &self.report
    }

    /// Makes the index again from the folders of the logs.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn rebuild(&self) -> Result<RebuildReport> {
        self.compare(true)
    }

    /// Adds a session or changes it. Its log must have been opened before.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open), and [`Error::BadName`].
    pub fn put(&self, session: &IndexedSession) -> Result<()> {
        self.write(&self.database.lock_unpoisoned(), session)
    }

    /// Sets the time of the last change, in milliseconds since 1970. It is not written into the folder of the log,
    /// so that each turn costs one write. Does nothing for an unknown session.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn touch(&self, id: &str, updated: u64) -> Result<()> {
        let database = self.database.lock_unpoisoned();
        let done =
            database.execute("UPDATE sessions SET updated = ?2 WHERE id = ?1", params![id, integer(updated)]);
        done.map(drop).map_err(|error| self.failed(error))
    }

    /// Changes the entry of a session as one step. Does nothing for an unknown session.
    ///
    /// # Errors
    ///
    /// As [`put`](Self::put).
    pub fn update(&self, id: &str, change: impl FnOnce(&mut IndexedSession)) -> Result<()> {
        let database = self.database.lock_unpoisoned();
        let Some(mut session) = find(&database, id).map_err(|error| self.failed(error))? else {
            return Ok(());
        };
        change(&mut session);
        self.write(&database, &session)
    }

    /// Returns a session.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn get(&self, id: &str) -> Result<Option<IndexedSession>> {
        find(&self.database.lock_unpoisoned(), id).map_err(|error| self.failed(error))
    }

    /// Removes a session from the list, before or after its log is removed. Does nothing for an unknown session.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn remove(&self, id: &str) -> Result<()> {
        let Some(session) = self.get(id)? else { return Ok(()) };
        let database = self.database.lock_unpoisoned();
        let path = self.root.log_folder(&session.log)?.join(ENTRY);
        remove_if_there(&path).map_err(|error| Error::file(path, error))?;
        let removed = database.execute("DELETE FROM sessions WHERE id = ?1", [id]);
        removed.map(drop).map_err(|error| self.failed(error))
    }

    /// Lists sessions, the one that was changed last first.
    ///
    /// # Errors
    ///
    /// [`Error::BadIndexCursor`], and as [`open`](Self::open).
    pub fn list(&self, query: &IndexQuery) -> Result<IndexPage> {
        let limit = if query.limit == 0 { 100 } else { query.limit.min(1000) };
        let mut conditions = Vec::new();
        let mut values: Vec<Value> = Vec::new();
        for (column, value) in [("owner", &query.owner), ("cwd", &query.cwd), ("state", &query.state)] {
            if let Some(value) = value {
                conditions.push(format!("{column} = ?"));
                values.push(value.clone().into());
            }
        }
        if let Some(cursor) = &query.cursor {
            let place = cursor.split_once('.').and_then(|(time, id)| Some((time.parse::<i64>().ok()?, id)));
            let (time, id) = place.ok_or_else(|| Error::BadIndexCursor { cursor: cursor.clone() })?;
            conditions.push("(updated, id) < (?, ?)".into());
            values.extend([time.into(), id.to_owned().into()]);
        }
        let conditions =
            if conditions.is_empty() { String::new() } else { format!("WHERE {}", conditions.join(" AND ")) };
        // One more than the page, to know if there is a next one.
        let text = format!(
            "SELECT {COLUMNS} FROM sessions {conditions} ORDER BY updated DESC, id DESC LIMIT {}",
            limit + 1
        );
        let list = || {
            let database = self.database.lock_unpoisoned();
            let mut statement = database.prepare(&text)?;
            statement.query_map(params_from_iter(values), session)?.collect::<rusqlite::Result<Vec<_>>>()
        };
        let mut sessions = list().map_err(|error| self.failed(error))?;
        let has_more = sessions.len() > limit;
        sessions.truncate(limit);
        let next = sessions.last().filter(|_| has_more).map(|last| format!("{}.{}", last.updated, last.id));
        Ok(IndexPage { sessions, next })
    }

    /// Removes sessions without an entry from the index, and adds those of folders that are not in it. `from_nothing` also
    /// replaces the tables and reads all entries.
    fn compare(&self, from_nothing: bool) -> Result<RebuildReport> {
        let mut report = RebuildReport::default();
        let mut database = self.database.lock_unpoisoned();
        let failed = |error| self.failed(error);
        let change = database.transaction().map_err(failed)?;
        if from_nothing {
            make_tables(&change).map_err(failed)?;
        }
        let known = || {
            let mut statement = change.prepare("SELECT log FROM sessions")?;
            statement.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<HashSet<String>>>()
        };
        let mut known = known().map_err(failed)?;
        let entry = |name: &str| self.root.folder().join(name).join(ENTRY);
        let mut new = self.root.names()?;
        new.sort();
        new.retain(|name| !(entry(name).exists() && known.remove(name)));
        // First those without an entry, since one with a wrong log hides the session of the right one.
        for log in known {
            change.execute("DELETE FROM sessions WHERE log = ?1", [log]).map_err(failed)?;
            report.removed += 1;
        }
        for name in new {
            match read_entry(&entry(&name), &name) {
                // A copy of a folder does not take the place of the session.
                Ok(Some(session)) if has(&change, &session.id).map_err(failed)? => {
                    report.skipped.push((name, format!("another log has the session {}", session.id)));
                }
                Ok(Some(session)) => {
                    insert(&change, &session).map_err(failed)?;
                    report.added += 1;
                }
                // A log without a session, or one that was just being created.
                Ok(None) => {}
                Err(error) => report.skipped.push((name, error.to_string())),
            }
        }
        change.commit().map_err(failed)?;
        Ok(report)
    }

    fn write(&self, database: &Connection, session: &IndexedSession) -> Result<()> {
        let folder = self.root.log_folder(&session.log)?;
        write_entry(&folder, session).map_err(|error| Error::file(folder.join(ENTRY), error))?;
        insert(database, session).map_err(|error| self.failed(error))
    }

    fn failed(&self, error: rusqlite::Error) -> Error {
        index_error(&self.path, error)
    }
}

fn index_error(path: &Path, error: rusqlite::Error) -> Error {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => Error::DiskFull { path: path.into() },
        _ => Error::Index { path: path.into(), error: Arc::new(error) },
    }
}

/// Returns true unless the same database can be opened later. Nothing is only in the index.
fn is_damage(error: &rusqlite::Error) -> bool {
    let passes = [ErrorCode::DatabaseBusy, ErrorCode::DatabaseLocked, ErrorCode::OutOfMemory];
    error.sqlite_error_code().is_none_or(|code| !passes.contains(&code))
}

/// Makes the tables, instead of others.
fn make_tables(database: &Connection) -> rusqlite::Result<()> {
    database.execute_batch(&format!("DROP TABLE IF EXISTS sessions; {TABLE}; {INDEXES}"))
}

/// Opens the database, and makes its tables unless they are there in this version.
fn connect(path: &Path) -> Result<Connection> {
    // SQLite gives its other files the mode of this one.
    open_ordinary(path, private().create(true).truncate(false).write(true))
        .map_err(|error| Error::file(path, error))?;
    let open = || {
        let mut database = Connection::open(path)?;
        database.pragma_update(None, "journal_mode", "wal")?;
        database.pragma_update(None, "synchronous", "full")?;
        database.pragma_update(None, "cache_size", -CACHE_KIB)?;
        let version: i64 = database.query_row("PRAGMA user_version", [], |row| row.get(0))?;
        let query = "SELECT sql FROM sqlite_schema WHERE name = 'sessions'";
        let table: Option<String> = database.query_row(query, [], |row| row.get(0)).optional()?;
        if version != VERSION || table.as_deref() != Some(TABLE) {
            let change = database.transaction()?;
            make_tables(&change)?;
            change.commit()?;
        }
        Ok(database)
    };
    open().map_err(|error| index_error(path, error))
}

fn insert(database: &Connection, session: &IndexedSession) -> rusqlite::Result<()> {
    let IndexedSession { id, owner, agent, cwd, title, state, created, updated, log } = session;
    let text = format!("INSERT OR REPLACE INTO sessions ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)");
    let (created, updated) = (integer(*created), integer(*updated));
    database.execute(&text, params![id, owner, agent, cwd, title, state, created, updated, log]).map(drop)
}

fn find(database: &Connection, id: &str) -> rusqlite::Result<Option<IndexedSession>> {
    let text = format!("SELECT {COLUMNS} FROM sessions WHERE id = ?1");
    database.query_row(&text, [id], session).optional()
}

fn has(database: &Connection, id: &str) -> rusqlite::Result<bool> {
    database.query_row("SELECT EXISTS (SELECT 1 FROM sessions WHERE id = ?1)", [id], |row| row.get(0))
}

fn session(row: &Row<'_>) -> rusqlite::Result<IndexedSession> {
    let time = |column| row.get::<_, i64>(column).map(|time| u64::try_from(time).unwrap_or_default());
    Ok(IndexedSession {
        id: row.get(0)?,
        owner: row.get(1)?,
        agent: row.get(2)?,
        cwd: row.get(3)?,
        title: row.get(4)?,
        state: row.get(5)?,
        created: time(6)?,
        updated: time(7)?,
        log: row.get(8)?,
    })
}

/// Replaces the entry in the folder of a log.
fn write_entry(folder: &Path, session: &IndexedSession) -> io::Result<()> {
    let (new, path) = (folder.join(".session.new"), folder.join(ENTRY));
    let text = serde_json::to_vec(session)?;
    check_length(text.len() as u64)?;
    remove_if_there(&new)?;
    let mut file = private().write(true).create_new(true).open(&new)?;
    file.write_all(&text)?;
    file.sync_all()?;
    fs::rename(&new, &path)?;
    sync_folder(folder)
}

/// Reads the entry of a log. The time of its last change is that of its newest file, if that is later.
fn read_entry(path: &Path, log: &str) -> io::Result<Option<IndexedSession>> {
    let file = match open_ordinary(path, OpenOptions::new().read(true)) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    check_length(file.metadata()?.len())?;
    let mut text = Vec::new();
    file.take(ENTRY_BYTES).read_to_end(&mut text)?;
    let mut session: IndexedSession = serde_json::from_slice(&text)?;
    session.log = log.into();
    for entry in path.parent().map(fs::read_dir).transpose()?.into_iter().flatten() {
        let entry = entry?;
        if entry.path().extension().is_some_and(|extension| extension == "jsonl") {
            session.updated = session.updated.max(millis(entry.metadata()?.modified()?));
        }
    }
    Ok(Some(session))
}

fn check_length(length: u64) -> io::Result<()> {
    if length <= ENTRY_BYTES {
        return Ok(());
    }
    let reason = format!("it has {length} bytes, and an entry has at most {ENTRY_BYTES}");
    Err(io::Error::new(ErrorKind::InvalidData, reason))
}

fn millis(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn integer(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
