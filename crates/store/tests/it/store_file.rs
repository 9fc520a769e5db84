//! The file of a store: its mode, its lock, versions, damage, and erased data.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use duologue_schema::envelope::TaskState;
use duologue_store::{
    ChangeOutcome, Error, NewInboxMessage, NewQuestion, RegisteredAgent, RegistrySource, SeenId, SeenKey,
    SqliteStore, Store, StoreBatch, StoreChange, StoreSettings, StoredPrincipal, TaskQuery, TaskUpdate,
};
use rusqlite::Connection;
use tempfile::{TempDir, tempdir};

use crate::store_contract::{
    AGENT, OWNER, change, claim, claim_at, drain, enqueue, ids, json, message, message_key, outbox, task,
    task_key, time,
};

fn place() -> (TempDir, PathBuf) {
    let folder = tempdir().expect("a folder");
    let path = folder.path().join("store.sqlite");
    (folder, path)
}

fn open(path: &Path) -> Result<SqliteStore, Error> {
    SqliteStore::open(path, StoreSettings::default(), time(0).wall)
}

/// Creates a store with a thousand messages and closes it.
fn filled(path: &Path) {
    let store = open(path).expect("a store");
    enqueue(&store, (0..1000).map(|number| message(&format!("m{number}"))));
}

fn damaged(path: &Path) -> String {
    match open(path) {
        Err(error @ Error::StoreDamaged { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_files_are_private() {
    let (folder, path) = place();
    let store = open(&path).expect("a store");
    enqueue(&store, [message("m1")]);
    let mut names = Vec::new();
    for entry in fs::read_dir(folder.path()).expect("a folder") {
        let entry = entry.expect("an entry");
        let mode = entry.metadata().expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{:?}", entry.file_name());
        names.push(entry.file_name().into_string().expect("UTF-8"));
    }
    names.sort();
    assert_eq!(names, ["store.sqlite", "store.sqlite-shm", "store.sqlite-wal", "store.sqlite.lock"]);
}

#[test]
fn one_owner_has_the_file() {
    let (_folder, path) = place();
    let store = open(&path).expect("a store");
    assert!(matches!(open(&path), Err(Error::InUse { .. })));
    drop(store);
    open(&path).expect("it is free");
}

#[test]
fn a_link_is_refused() {
    let (folder, path) = place();
    let other = folder.path().join("other");
    fs::write(&other, "").expect("a file");
    std::os::unix::fs::symlink(&other, &path).expect("a link");
    assert!(matches!(open(&path), Err(Error::File { .. })));
}

/// The bytes of each principal.
type PrincipalBytes = Vec<(String, i64)>;

/// Returns the bytes that the database has counted, and those of the records.
fn bytes(database: &Connection) -> (PrincipalBytes, PrincipalBytes) {
    let read = |text: &str| {
        let mut statement = database.prepare(text).expect("a query");
        let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).expect("rows");
        rows.collect::<rusqlite::Result<_>>().expect("bytes")
    };
    let owners = ["tasks", "questions", "agents"].map(|table| format!("SELECT owner, bytes FROM {table}"));
    let principals =
        ["messages", "outbox", "seen"].map(|table| format!("SELECT principal, bytes FROM {table}"));
    let all = [owners, principals].concat().join(" UNION ALL ");
    let there = format!("SELECT owner, sum(bytes) FROM ({all}) GROUP BY owner");
    (read("SELECT principal, bytes FROM stored ORDER BY principal"), read(&there))
}

#[test]
fn the_bytes_of_a_principal_are_those_of_its_records() {
    let (_folder, path) = place();
    let store = open(&path).expect("a store");
    let database = Connection::open(&path).expect("the same database");
    let mut last = 0;
    let mut after = |what: StoreChange| {
        let outcome = change(&store, what);
        let (counted, there) = bytes(&database);
        assert_eq!(counted, there);
        let bytes = counted.first().map_or(0, |(_, bytes)| *bytes);
        (std::mem::replace(&mut last, bytes), bytes, outcome)
    };
    let mut grows = |what: StoreChange| {
        let (before, now, _) = after(what);
        assert!(now > before, "{before} {now}");
    };
    let agent = || RegisteredAgent::new("a", OWNER, RegistrySource::Rest, "https://example.com");
    let key = SeenKey::new(OWNER, "scope", "key");
    grows(StoreChange::PutAgent(agent()));
    let mut replaced = agent();
    replaced.card = json(r#"{"longer":true}"#);
    grows(StoreChange::PutAgent(replaced));
    grows(StoreChange::Enqueue(message("m1")));
    grows(StoreChange::CreateTask(task("t1")));
    grows(StoreChange::AddQuestion(NewQuestion::new(task_key("t1"), "q1", json("1"))));
    grows(StoreChange::PushDelivery(outbox::post("s", 0)));
    grows(StoreChange::Remember(SeenId::new(key.clone(), b"digest", 9_000_000)));
    grows(StoreChange::SetResponse { key, response: json("1") });
    let (question, answered_by) = ("q1".to_owned(), OWNER.to_owned());
    grows(StoreChange::AnswerQuestion { task: task_key("t1"), question, answer: json("1"), answered_by });
    let lease = claim(&store, 1)[0].lease;
    grows(StoreChange::AckMessage { lease, response: Some(json("1")) });
    let mut update = TaskUpdate::new(task_key("t1"), 1);
    update.result = Some(json("1"));
    grows(StoreChange::UpdateTask(update));
    let lease = store.claim_deliveries(&claim_at(1, 1)).expect("a claim").entries[0].lease;
    let (before, now, _) = after(StoreChange::Delivered { lease });
    assert!(now < before, "its body is gone");
    after(StoreChange::Purge { ended_before: u64::MAX >> 1, principal: None });
    while after(StoreChange::ErasePrincipal { principal: OWNER.into() }).2 != ChangeOutcome::Count(0) {}
    assert_eq!(bytes(&database), (vec![], vec![]));
}

#[test]
fn version_1_is_migrated() {
    let (_folder, path) = place();
    let old = Connection::open(&path).expect("a database");
    old.execute_batch(include_str!("store_version_1.sql")).expect("version 1");
    drop(old);
    let store = open(&path).expect("migrated");
    let running = store.task(&task_key("running")).expect("read").expect("a task");
    assert_eq!((running.state, running.dead), (TaskState::Failed, true), "its worker is lost");
    assert_eq!(store.opening().tasks_ended, [task_key("running")]);
    // The callbacks of tasks that ended in version 1 were sent by it.
    let mut query = TaskQuery::default();
    query.callback_due = true;
    let due = store.tasks(&query).expect("a list");
    assert_eq!((due.total, &due.items[0].key), (1, &task_key("running")));
    assert_eq!(drain(&store, 1), ["m1", "m2"]);
    drop(store);
    let version = "SELECT version FROM schema_version";
    let database = Connection::open(&path).expect("a database");
    assert_eq!(database.query_row(version, [], |row| row.get::<_, i64>(0)).expect("a version"), 11);
    let (counted, there) = bytes(&database);
    assert!(counted == there && there.len() == 1, "{counted:?} {there:?}");
    drop(database);
    open(&path).expect("again");
}

#[test]
fn the_stream_of_a_task_that_ended_before_version_7_stays_as_it_is() {
    let (_folder, path) = place();
    let old = Connection::open(&path).expect("a database");
    old.execute_batch(include_str!("store_version_1.sql")).expect("version 1");
    for script in [
        include_str!("../../src/tables/sqlite/version_2.sql"),
        include_str!("../../src/tables/sqlite/version_3.sql"),
        include_str!("../../src/tables/sqlite/version_4.sql"),
        include_str!("../../src/tables/sqlite/version_5.sql"),
        include_str!("../../src/tables/sqlite/version_6.sql"),
        "UPDATE schema_version SET version = 6; DELETE FROM tasks WHERE id = 'running';
         UPDATE tasks SET callback = NULL, callback_queued = 0, stream_endpoint = 'https://example.com'",
    ] {
        old.execute_batch(script).expect("version 6");
    }
    drop(old);
    let store = open(&path).expect("migrated");
    let done = store.task(&task_key("done")).expect("read").expect("a task");
    assert!(done.stream_endpoint.is_some() && done.callback.is_none(), "{done:?}");
    let mut query = TaskQuery::default();
    query.callback_due = true;
    assert_eq!(store.tasks(&query).expect("a list").total, 0);
}

#[test]
fn a_migrated_message_does_not_wait_for_the_group_of_another_principal() {
    let (_folder, path) = place();
    let old = Connection::open(&path).expect("a database");
    old.execute_batch(include_str!("store_version_1.sql")).expect("version 1");
    let text = "INSERT INTO messages (agent, principal, id, sender, grp, priority, created, updated, state, blocked, not_before, \
        attempts, max_attempts, content) SELECT agent, 'bob', 'b' || id, sender, grp, priority, 2, 2, 0, 1, 0, 0, 5, content \
        FROM messages WHERE id IN ('m1', 'm2')";
    assert_eq!(old.execute(text, []).expect("messages of another principal"), 2);
    drop(old);
    let store = open(&path).expect("migrated");
    let claimed = store.claim_messages(AGENT, &claim_at(1, 9)).expect("claimed").entries;
    assert_eq!(ids(&claimed), ["m1", "bm1"]);
}

#[test]
fn a_migrated_store_gives_no_number_again() {
    let (_folder, path) = place();
    let old = Connection::open(&path).expect("a database");
    old.execute_batch(include_str!("store_version_1.sql")).expect("version 1");
    for script in [
        include_str!("../../src/tables/sqlite/version_2.sql"),
        include_str!("../../src/tables/sqlite/version_3.sql"),
        include_str!("../../src/tables/sqlite/version_4.sql"),
        include_str!("../../src/tables/sqlite/version_5.sql"),
        include_str!("../../src/tables/sqlite/version_6.sql"),
        include_str!("../../src/tables/sqlite/version_7.sql"),
        include_str!("../../src/tables/sqlite/version_8.sql"),
        include_str!("../../src/tables/sqlite/version_9.sql"),
        "UPDATE schema_version SET version = 9;
         INSERT INTO outbox (stream, position, url, kind, principal, attempts, state, created, updated, body, task)
         VALUES ('callback:812.1', 0, '', 'callback', 'alice', 1, 'delivered', 1, 1, '1', NULL),
                ('chunk:90.1', 0, '', 'chunk', 'alice', 1, 'delivered', 1, 1, '1', 90),
                ('9999.1', 0, '', 'chunk', 'alice', 1, 'delivered', 1, 1, '1', NULL)",
    ] {
        old.execute_batch(script).expect("version 9");
    }
    drop(old);
    let numbers = |id: &str| {
        let store = open(&path).expect("a store");
        change(&store, StoreChange::CreateTask(task(id)));
        enqueue(&store, [message(id)]);
        let sent = store.message(&message_key(id)).expect("read").expect("a message");
        let numbers = (store.task(&task_key(id)).expect("read").expect("a task").seq, sent.seq);
        change(&store, StoreChange::ErasePrincipal { principal: OWNER.into() });
        numbers
    };
    // There was a callback of the task 812.
    assert_eq!(numbers("t1"), (813, 3));
    assert_eq!(numbers("t2"), (814, 4), "in the next life");
}

#[test]
fn a_newer_version_is_refused() {
    let (_folder, path) = place();
    filled(&path);
    let database = Connection::open(&path).expect("a database");
    database.execute("UPDATE schema_version SET version = 12", []).expect("changed");
    drop(database);
    match open(&path) {
        Err(error @ Error::NewerVersion { found: 12, known: 11, .. }) => {
            assert!(error.to_string().ends_with("use a later program"), "{error}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_database_of_another_program_is_refused() {
    let (_folder, path) = place();
    let database = Connection::open(&path).expect("a database");
    database.execute_batch("CREATE TABLE notes (text TEXT)").expect("a table");
    drop(database);
    assert!(damaged(&path).contains("not a database of this program"));
}

#[test]
fn a_damaged_file_is_an_error_and_stays() {
    let (_folder, path) = place();
    filled(&path);
    let text = fs::read(&path).expect("the file");
    let mut broken = text.clone();
    broken[4096..].fill(0xa5);
    for content in [b"no database".repeat(1000), broken] {
        fs::write(&path, &content).expect("written");
        let error = damaged(&path);
        assert!(error.contains("restore a backup"), "{error}");
        assert_eq!(fs::read(&path).expect("the file"), content);
    }
    fs::write(&path, &text).expect("restored");
    assert!(open(&path).expect("a store").message(&message_key("m999")).expect("read").is_some());
}

#[test]
fn a_lost_or_empty_file_is_an_error() {
    let (_folder, path) = place();
    filled(&path);
    fs::write(&path, "").expect("emptied");
    assert!(damaged(&path).contains("it is empty"));
    fs::remove_file(&path).expect("removed");
    assert!(damaged(&path).contains("it is lost"));
    assert!(!path.exists());
    // A start that was interrupted has left no mark, so it is repeated.
    fs::write(path.with_extension("sqlite.lock"), "").expect("no mark");
    fs::write(&path, "").expect("nothing");
    open(&path).expect("created");
}

#[test]
fn erased_data_is_not_in_the_files() {
    let (folder, path) = place();
    let store = open(&path).expect("a store");
    let secret = "erase-this-content";
    for number in 0..300 {
        let mut new: NewInboxMessage = message(&format!("m{number}"));
        new.content = json(&format!("{:?}", format!("{secret}-{number}-{}", "x".repeat(number))));
        change(&store, StoreChange::Enqueue(new));
    }
    assert!(is_in_files(&folder, secret.as_bytes()));
    let erase = StoreChange::ErasePrincipal { principal: OWNER.into() };
    store.apply(StoreBatch::new(time(1)).with(erase)).expect("erased");
    assert!(!is_in_files(&folder, secret.as_bytes()));
}

#[test]
fn the_secrets_of_a_disabled_principal_are_not_in_the_files() {
    let (folder, path) = place();
    let store = open(&path).expect("a store");
    let (hash, secret) = ([0xa7; 32], "a secret that signs callbacks");
    let mut principal = StoredPrincipal::new(OWNER);
    (principal.key_hash, principal.webhook_secret) = (Some(hash), Some(secret.into()));
    change(&store, StoreChange::PutPrincipal(principal));
    assert!(is_in_files(&folder, secret.as_bytes()) && is_in_files(&folder, &hash));
    change(&store, StoreChange::KeepPrincipals { principals: Vec::new(), prefixes: Vec::new() });
    assert!(!is_in_files(&folder, secret.as_bytes()) && !is_in_files(&folder, &hash));
}

/// Returns true if a file of a store has some bytes.
fn is_in_files(folder: &TempDir, bytes: &[u8]) -> bool {
    let files = fs::read_dir(folder.path()).expect("a folder");
    files
        .map(|entry| fs::read(entry.expect("an entry").path()).expect("a file"))
        .any(|content| content.windows(bytes.len()).any(|window| window == bytes))
}
