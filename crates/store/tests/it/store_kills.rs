//! A process that applies batches is killed at random moments: each batch is there as a whole or not at all.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use duologue_schema::envelope::TaskState;
use duologue_store::{
    MessageQuery, MessageState, SeenId, SeenKey, SqliteStore, Store, StoreBatch, StoreChange, StoreSettings,
    TaskQuery,
};
use duologue_test_support::{Reproduction, measured, runs, seed};
use tempfile::tempdir;

use crate::store_contract::{AGENT, OWNER, claim_at, message, task, tasks, time};

/// The folder of the store, in the process that applies.
const FOLDER: &str = "DUOLOGUE_TEST_STORE";

const THIS: &str = "store_kills::batches_are_whole_after_the_end_of_the_process";

/// The messages of each batch.
const MESSAGES: u64 = 5;

fn open(folder: &Path) -> SqliteStore {
    SqliteStore::open(folder.join("store.sqlite"), StoreSettings::default(), time(0).wall).expect("a store")
}

fn message_ids(store: &dyn Store, state: Option<MessageState>) -> Vec<String> {
    let mut query = MessageQuery::default();
    (query.state, query.limit) = (state, 1000);
    let mut ids = Vec::new();
    loop {
        let page = store.messages(&query).expect("a page");
        query.offset += page.items.len() as u64;
        ids.extend(page.items.into_iter().map(|message| message.id));
        if query.offset >= page.total {
            return ids;
        }
    }
}

#[test]
fn batches_are_whole_after_the_end_of_the_process() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        return apply_for_ever(Path::new(&folder));
    }
    let (kills, seed) = (runs(8), seed());
    let _reproduction = Reproduction::of("-p duologue-store --test it store_kills", seed, kills);
    let mut random = fastrand::Rng::with_seed(seed);
    let mut folder = tempdir().expect("a folder");
    let (mut applied, mut lost) = (0, 0);
    let mut finished = BTreeSet::new();
    for kill in 0..kills {
        if kill % 8 == 0 {
            folder = tempdir().expect("a folder");
            finished.clear();
        }
        let report = killed(folder.path(), &mut random);
        finished.extend(report.finished);
        let store = open(folder.path());
        lost += store.opening().tasks_ended.len();
        let batches = check(&store);
        assert!(batches >= report.applied, "batch {} was applied, and {batches} are there", report.applied);
        applied += report.applied;
        // An acknowledged message is never delivered again.
        let done: BTreeSet<_> = message_ids(&store, Some(MessageState::Done)).into_iter().collect();
        assert!(finished.is_subset(&done), "{:?}", finished.difference(&done));
        assert_eq!(store.sweep(time(1)).expect("swept").next_lease_end, None, "every lease has ended");
    }
    measured(format_args!(
        "{kills} kills, {applied} confirmed batches are whole, {lost} started tasks have failed"
    ));
}

/// Checks that each batch is whole, and returns their number.
fn check(store: &dyn Store) -> u64 {
    let ids = message_ids(store, None);
    let batches = ids.len() as u64 / MESSAGES;
    let ids: BTreeSet<_> = ids.into_iter().collect();
    for batch in 0..batches {
        for number in 0..MESSAGES {
            assert!(ids.contains(&format!("{batch}-{number}")), "{batch}");
        }
        let key = SeenKey::new(OWNER, "batch", batch.to_string());
        assert!(store.remembered(&key, time(1)).expect("read").is_some(), "{batch}");
    }
    assert_eq!(ids.len() as u64, batches * MESSAGES, "a part of a batch");
    let mut query = TaskQuery::default();
    assert_eq!(store.tasks(&query).expect("a list").total, batches);
    query.state = Some(TaskState::Working);
    assert_eq!(store.tasks(&query).expect("a list").total, 0, "a started task has no worker");
    batches
}

#[derive(Default)]
struct KillReport {
    applied: u64,
    finished: Vec<String>,
}

fn killed(folder: &Path, random: &mut fastrand::Rng) -> KillReport {
    let mut command = Command::new(std::env::current_exe().expect("our own"));
    command.args(["--exact", THIS, "--nocapture"]).env(FOLDER, folder);
    let mut child = command.stdout(Stdio::piped()).spawn().expect("it runs");
    let mut output = BufReader::new(child.stdout.take().expect("its output")).lines();
    let mut report = KillReport::default();
    let mut read = |line: &str| {
        if let Some((_, number)) = line.split_once("applied ") {
            report.applied = number.trim().parse().unwrap_or(report.applied);
        } else if let Some((_, id)) = line.split_once("finished ") {
            report.finished.push(id.trim().into());
        }
    };
    // Some are killed while they open the store, the others while they apply.
    if random.u8(..5) > 0 {
        for line in output.by_ref() {
            let line = line.expect("its output");
            read(&line);
            if line.contains("applied") {
                break;
            }
        }
    }
    std::thread::sleep(Duration::from_micros(random.u64(..60_000)));
    child.kill().expect("killed");
    child.wait().expect("ended");
    for line in output {
        // The last line can be cut short.
        read(&line.expect("its output"));
    }
    report
}

#[allow(clippy::print_stdout, reason = "the report to the process that kills this one")]
fn apply_for_ever(folder: &Path) {
    let store = open(folder);
    let mut number = message_ids(&store, None).len() as u64 / MESSAGES;
    loop {
        let mut batch = StoreBatch::new(time(1));
        if !number.is_multiple_of(3) {
            batch = batch.accepted();
        }
        let key = SeenKey::new(OWNER, "batch", number.to_string());
        batch.push(StoreChange::Remember(SeenId::new(key, b"digest", u64::MAX)));
        for it in 0..MESSAGES {
            batch.push(StoreChange::Enqueue(message(&format!("{number}-{it}"))));
        }
        batch.push(StoreChange::CreateTask(task(&number.to_string())));
        store.apply(batch).expect("applied");
        number += 1;
        println!("applied {number}");
        for leased in store.claim_messages(AGENT, &claim_at(1, 2)).expect("claimed").entries {
            let ack = StoreChange::AckMessage { lease: leased.lease, response: None };
            store.apply(StoreBatch::new(time(1)).accepted().with(ack)).expect("acknowledged");
            println!("finished {} ", leased.entry.id);
        }
        let leased = tasks::claim_one(&store, 1);
        let start = tasks::set(&leased, TaskState::Working);
        store.apply(StoreBatch::new(time(1)).accepted().with(start)).expect("started");
    }
}
