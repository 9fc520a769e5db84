//! A disk that fills up under a store.

use std::path::Path;
use std::process::Command;

use duologue_store::{
    Error, MessageQuery, SqliteStore, Store, StoreBatch, StoreChange, StoreSettings, TaskQuery,
};
use duologue_test_support::{measured, passed, skipped};
use tempfile::tempdir;

use crate::store_contract::{json, message, task, time};

/// The folder of the store, in the process that has the small disk.
const FOLDER: &str = "DUOLOGUE_TEST_STORE_DISK";

#[test]
fn a_full_disk_refuses_whole_batches() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        return full(Path::new(&folder));
    }
    let folder = tempdir().expect("a folder");
    let this = std::env::current_exe().expect("our own");
    let own_disk = |then: &str| {
        let mut command = Command::new("unshare");
        let script = format!("mount -t tmpfs -o size=2m none \"$0\" && {then}");
        command.args(["--map-root-user", "--mount", "sh", "-c", &script]).arg(folder.path()).arg(&this);
        command.env(FOLDER, folder.path()).output()
    };
    if !own_disk("true").is_ok_and(|output| output.status.success()) {
        skipped("store::full_disk", "`unshare --map-root-user --mount` with a tmpfs is not allowed here");
        return measured("not played: no small disk could be had");
    }
    let test = "exec \"$1\" --nocapture --exact store_full_disk::a_full_disk_refuses_whole_batches";
    passed(&own_disk(test).expect("it runs"));
}

/// Applies batches of a task and five messages from a number on, until the disk is full. Returns the next number.
fn fill(store: &dyn Store, mut next: u64) -> u64 {
    loop {
        let mut batch = StoreBatch::new(time(1));
        for number in 0..5 {
            let mut new = message(&format!("{next}-{number}"));
            new.content = json(&format!("{:?}", "x".repeat(2000)));
            batch.push(StoreChange::Enqueue(new));
        }
        batch.push(StoreChange::CreateTask(task(&next.to_string())));
        match store.apply(batch) {
            Ok(_) => next += 1,
            Err(Error::DiskFull { .. }) => return next,
            Err(error) => panic!("{error}"),
        }
        assert!(next < 10_000, "it never fills up");
    }
}

fn check(store: &dyn Store, batches: u64) {
    assert_eq!(store.tasks(&TaskQuery::default()).expect("a list").total, batches);
    assert_eq!(store.messages(&MessageQuery::default()).expect("a list").total, 5 * batches);
}

fn full(disk: &Path) {
    let other = disk.join("other");
    std::fs::write(&other, vec![0; 512 * 1024]).expect("a file");
    let path = disk.join("store.sqlite");
    // The disk is smaller than what is kept of one.
    let mut settings = StoreSettings::default();
    settings.reserved_bytes = 0;
    let store = SqliteStore::open(&path, settings.clone(), 0).expect("a store");
    let count = fill(&store, 0);
    check(&store, count);
    for _ in 0..10 {
        assert_eq!(fill(&store, count), count);
    }
    check(&store, count);
    std::fs::remove_file(other).expect("space");
    let more = fill(&store, count);
    assert!(more > count);
    check(&store, more);
    drop(store);
    match SqliteStore::open(&path, settings, 0) {
        Ok(store) => check(&store, more),
        // Opening needs a little space too.
        Err(Error::DiskFull { .. }) => {}
        Err(error) => panic!("{error}"),
    }
    measured(format_args!("`DiskFull` after {count} batches, {more} after space was made; all are whole"));
}
