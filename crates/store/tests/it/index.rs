//! The index of sessions: filters, pages, and making it again from the folders.

use std::fs;
use std::path::Path;

use duologue_store::{Error, IndexQuery, IndexedSession, LogRoot, LogSettings, SessionIndex};
use tempfile::tempdir;

use crate::support::{header, root};

/// The index of a folder with sessions of three owners in two directories. The later ones were changed later.
fn filled(folder: &Path, sessions: u64) -> (LogRoot, SessionIndex) {
    let logs = root(folder, LogSettings::default());
    let index = SessionIndex::open(&logs).expect("an index");
    for number in 0..sessions {
        index.put(&added(&logs, number)).expect("added");
    }
    (logs, index)
}

/// A time after that of the files, so that a new index has the same.
const LATE: u64 = 1 << 42;

fn added(logs: &LogRoot, number: u64) -> IndexedSession {
    let log = format!("log-{number}");
    logs.open(&log, &header()).expect("a log");
    let (owner, cwd) = (format!("owner-{}", number % 3), format!("/work/{}", number % 2));
    let mut session = IndexedSession::new(format!("session-{number}"), owner, "agent", cwd, log);
    // Some have the same time.
    session.updated = LATE + number / 4;
    session.title = (number.is_multiple_of(5)).then(|| format!("title {number}"));
    session
}

/// Lists all pages.
fn list(index: &SessionIndex, owner: Option<&str>, cwd: Option<&str>, limit: usize) -> Vec<IndexedSession> {
    let mut query = IndexQuery::default();
    (query.owner, query.cwd, query.limit) = (owner.map(Into::into), cwd.map(Into::into), limit);
    let mut sessions = Vec::new();
    loop {
        let page = index.list(&query).expect("a page");
        assert!(page.sessions.len() <= limit);
        sessions.extend(page.sessions);
        query.cursor = page.next;
        if query.cursor.is_none() {
            return sessions;
        }
    }
}

#[test]
fn sessions_are_listed_by_owner_and_directory_in_pages() {
    let folder = tempdir().expect("a folder");
    let (_logs, index) = filled(folder.path(), 40);
    for owner in [None, Some("owner-0"), Some("owner-2"), Some("nobody")] {
        for cwd in [None, Some("/work/0"), Some("/work")] {
            let whole = list(&index, owner, cwd, 1000);
            let matches = |session: &&IndexedSession| {
                owner.is_none_or(|owner| session.owner == owner) && cwd.is_none_or(|cwd| session.cwd == cwd)
            };
            let all = list(&index, None, None, 1000);
            assert!(whole.iter().eq(all.iter().filter(matches)));
            assert!(whole.is_sorted_by(|one, next| (one.updated, &one.id) > (next.updated, &next.id)));
            for limit in [1, 3, 7, 40] {
                assert_eq!(list(&index, owner, cwd, limit), whole);
            }
        }
    }
    let mut query = IndexQuery::default();
    query.cursor = Some("yesterday".into());
    assert!(matches!(index.list(&query), Err(Error::BadIndexCursor { .. })));
}

#[test]
fn a_session_can_be_changed_and_removed() {
    let folder = tempdir().expect("a folder");
    let (logs, index) = filled(folder.path(), 3);
    let mut session = index.get("session-1").expect("read").expect("there");
    (session.title, session.state) = (Some("'; DROP TABLE sessions; --".into()), "closed".into());
    index.put(&session).expect("changed");
    index.touch("session-1", LATE + 50).expect("changed");
    session.updated = LATE + 50;
    assert_eq!(index.get("session-1").expect("read"), Some(session.clone()));
    assert_eq!(list(&index, None, None, 10)[0], session);
    let mut query = IndexQuery::default();
    query.state = Some("open".into());
    assert!(index.list(&query).expect("read").sessions.is_empty());
    index.update("session-1", |session| session.state = "open".into()).expect("changed");
    index.update("absent", |_| panic!("no session")).expect("nothing to change");
    session.state = "open".into();
    assert_eq!(index.list(&query).expect("read").sessions, [session]);
    index.remove("session-1").expect("removed");
    index.remove("session-1").expect("removed before");
    logs.remove("log-1").expect("removed");
    assert_eq!(index.get("session-1").expect("read"), None);
    assert_eq!(list(&index, None, None, 10).len(), 2);
    let unknown = IndexedSession::new("x", "x", "x", "/", "no-such-log");
    assert!(matches!(index.put(&unknown), Err(Error::File { .. })));
}

#[test]
fn an_index_is_made_again_from_the_folders() {
    let folder = tempdir().expect("a folder");
    let (logs, index) = filled(folder.path(), 20);
    let before = list(&index, None, None, 100);
    assert_eq!(index.rebuild().expect("made").added, 20);
    assert_eq!(list(&index, None, None, 100), before);
    drop(index);
    let files = ["index.sqlite", "index.sqlite-wal", "index.sqlite-shm"].map(|name| folder.path().join(name));
    for damage in 0..4 {
        for file in &files {
            match damage {
                0 => drop(fs::remove_file(file)),
                1 if file.exists() => fs::write(file, "x".repeat(10_000)).expect("damaged"),
                2 if file.exists() => {
                    let mut bytes = fs::read(file).expect("a file");
                    bytes.iter_mut().skip(100).for_each(|byte| *byte = 7);
                    fs::write(file, bytes).expect("damaged");
                }
                _ => {}
            }
        }
        let index = SessionIndex::open(&logs).expect("an index");
        assert_eq!(index.report().added, if damage < 3 { 20 } else { 0 }, "damage {damage}");
        assert_eq!(list(&index, None, None, 100), before);
    }
}

#[test]
fn the_index_follows_the_folders_when_it_is_opened() {
    let folder = tempdir().expect("a folder");
    let (logs, index) = filled(folder.path(), 6);
    drop(index);
    logs.remove("log-2").expect("removed");
    fs::remove_file(folder.path().join("log-3/session.json")).expect("removed");
    fs::write(folder.path().join("log-4/session.json"), "{").expect("damaged");
    let copy = folder.path().join("log-7");
    fs::create_dir(&copy).expect("a folder");
    fs::copy(folder.path().join("log-5/session.json"), copy.join("session.json")).expect("copied");
    let index = SessionIndex::open(&logs).expect("an index");
    assert_eq!((index.report().added, index.report().removed), (0, 2), "{:?}", index.report());
    let skipped = |report: &duologue_store::RebuildReport| -> Vec<String> {
        report.skipped.iter().map(|(name, _)| name.clone()).collect()
    };
    assert_eq!(skipped(index.report()), ["log-7"], "a copy");
    assert_eq!(skipped(&index.rebuild().expect("made")), ["log-4", "log-7"]);
    assert_eq!(list(&index, None, None, 10).len(), 3);
}

/// Changes the tables of a closed index.
fn change_tables(folder: &Path, text: &str) {
    let database = rusqlite::Connection::open(folder.join("index.sqlite")).expect("a database");
    database.execute_batch(text).expect("changed");
}

#[test]
fn an_index_with_other_tables_is_made_again() {
    let folder = tempdir().expect("a folder");
    let (logs, index) = filled(folder.path(), 6);
    let before = list(&index, None, None, 100);
    drop(index);
    for change in [
        "ALTER TABLE sessions DROP COLUMN title",
        "ALTER TABLE sessions ADD COLUMN more TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE sessions RENAME COLUMN log TO place",
        "DROP TABLE sessions",
        "DROP TABLE sessions; CREATE VIEW sessions AS SELECT 1 AS id",
        "DROP TABLE sessions; CREATE TABLE sessions (id)",
        "CREATE TRIGGER t BEFORE DELETE ON sessions BEGIN SELECT RAISE(ABORT, 'no'); END;
         UPDATE sessions SET log = 'none' WHERE id = 'session-1'",
    ] {
        change_tables(folder.path(), change);
        let index = SessionIndex::open(&logs).unwrap_or_else(|error| panic!("{change}: {error}"));
        assert_eq!(list(&index, None, None, 100), before, "{change}");
        let mut session = before[0].clone();
        session.title = Some("new".into());
        index.put(&session).expect("changed");
        index.put(&before[0]).expect("changed back");
    }
}

#[test]
fn a_session_with_a_wrong_log_in_the_index_is_listed() {
    let folder = tempdir().expect("a folder");
    let (logs, index) = filled(folder.path(), 3);
    let before = list(&index, None, None, 100);
    drop(index);
    for log in ["log-9", "", "../log-1"] {
        change_tables(folder.path(), &format!("UPDATE sessions SET log = '{log}' WHERE id = 'session-1'"));
        let index = SessionIndex::open(&logs).expect("an index");
        assert_eq!((index.report().added, index.report().removed), (1, 1), "{log}");
        assert_eq!(list(&index, None, None, 100), before);
    }
}

#[cfg(unix)]
#[test]
fn an_entry_that_is_no_ordinary_file_is_skipped() {
    let folder = tempdir().expect("a folder");
    let (logs, index) = filled(folder.path(), 6);
    let entry = |number: u64| folder.path().join(format!("log-{number}/session.json"));
    let (pipe, huge) = (folder.path().join("pipe"), folder.path().join("huge"));
    crate::support::pipe(&pipe);
    fs::File::create(&huge).and_then(|file| file.set_len(1 << 40)).expect("a huge file");
    (0..5).for_each(|number| fs::remove_file(entry(number)).expect("removed"));
    crate::support::pipe(&entry(0));
    std::os::unix::fs::symlink(&pipe, entry(1)).expect("a link");
    std::os::unix::fs::symlink(&huge, entry(2)).expect("a link");
    fs::rename(&huge, entry(3)).expect("moved");
    fs::create_dir(entry(4)).expect("a folder");
    let report = index.rebuild().expect("made");
    assert_eq!((report.added, report.skipped.len()), (1, 5), "{report:?}");
    assert!(report.skipped[3].1.contains("33554432"), "{report:?}");
    // They are read when the index is lost.
    drop(index);
    fs::remove_file(folder.path().join("index.sqlite")).expect("removed");
    let index = SessionIndex::open(&logs).expect("an index");
    assert_eq!(index.report().skipped.len(), 5);
    // A pipe in the place of a file that is written is replaced.
    crate::support::pipe(&folder.path().join("log-5/.session.new"));
    index.put(&index.get("session-5").expect("read").expect("there")).expect("changed");
}

#[cfg(unix)]
#[test]
fn an_index_that_is_no_ordinary_file_is_made_again() {
    let folder = tempdir().expect("a folder");
    let (logs, index) = filled(folder.path(), 3);
    let before = list(&index, None, None, 100);
    drop(index);
    for name in ["index.sqlite", "index.sqlite-wal", "index.sqlite-shm"] {
        let path = folder.path().join(name);
        let make: [fn(&Path); 3] = [
            |path| fs::create_dir(path).expect("a folder"),
            |path| crate::support::pipe(path),
            |path| std::os::unix::fs::symlink("log-0/session.json", path).expect("a link"),
        ];
        for (kind, make) in make.into_iter().enumerate() {
            let _ = fs::remove_file(&path);
            make(&path);
            let index = SessionIndex::open(&logs).unwrap_or_else(|error| panic!("{name}, {kind}: {error}"));
            assert_eq!(list(&index, None, None, 100), before, "{name}, {kind}");
        }
    }
    assert!(logs.folder().join("log-0/session.json").is_file());
    // A folder with files is not removed.
    let path = folder.path().join("index.sqlite");
    fs::remove_file(&path).expect("removed");
    fs::create_dir_all(path.join("notes")).expect("a folder");
    let error = SessionIndex::open(&logs).expect_err("a folder").to_string();
    assert!(error.contains("index.sqlite: "), "{error}");
}

#[cfg(unix)]
#[test]
fn the_files_of_the_index_are_private() {
    use std::os::unix::fs::PermissionsExt as _;

    let folder = tempdir().expect("a folder");
    let (_logs, _index) = filled(folder.path(), 1);
    for name in ["index.sqlite", "index.sqlite-wal", "log-0/session.json"] {
        let mode = fs::metadata(folder.path().join(name)).expect("a file").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
}
