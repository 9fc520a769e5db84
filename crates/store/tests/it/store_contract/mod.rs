//! The contract of `Store`. A backend passes it with an implementation of [`StoreBackend`].

mod batches;
mod leases;
mod messages;
mod odd_ids;
pub(crate) mod outbox;
mod queue_order;
mod records;
mod restart;
mod room;
pub(crate) mod tasks;

use std::time::Duration;

use duologue_store::{
    BatchOutcome, ChangeOutcome, Claim, Error, InboxKey, JsonText, Leased, MessageSender, NewInboxMessage,
    NewTask, SqliteStore, Store, StoreBatch, StoreChange, StoreSettings, StoreTime, StoredMessage,
    StoredTaskKey,
};
use tempfile::{TempDir, tempdir};

/// A place for a store, whose lives follow each other.
pub(crate) trait StoreBackend {
    /// Creates an empty place.
    fn empty() -> Self;

    /// Begins a life of the store.
    fn open(&self, settings: StoreSettings, wall: u64) -> Box<dyn Store>;
}

struct InMemory;

impl StoreBackend for InMemory {
    fn empty() -> Self {
        InMemory
    }

    fn open(&self, settings: StoreSettings, _wall: u64) -> Box<dyn Store> {
        Box::new(SqliteStore::in_memory(settings).expect("a store"))
    }
}

struct InFile(TempDir);

impl StoreBackend for InFile {
    fn empty() -> Self {
        InFile(tempdir().expect("a folder"))
    }

    fn open(&self, settings: StoreSettings, wall: u64) -> Box<dyn Store> {
        Box::new(SqliteStore::open(self.0.path().join("store.sqlite"), settings, wall).expect("a store"))
    }
}

/// Makes a test of each function for each backend. A store with default settings is passed to it.
macro_rules! on_each_store {
    ($($name:ident),* $(,)?) => {$(
        mod $name {
            use crate::store_contract::{InFile, InMemory, StoreBackend};

            #[test]
            fn in_memory() {
                super::$name(&*InMemory::empty().open(Default::default(), 0));
            }

            #[test]
            fn in_a_file() {
                super::$name(&*InFile::empty().open(Default::default(), 0));
            }
        }
    )*};
}
pub(crate) use on_each_store;

/// Makes a test of each function for each backend whose stores survive their end.
macro_rules! on_each_durable_store {
    ($($name:ident),* $(,)?) => {$(
        mod $name {
            use crate::store_contract::{InFile, StoreBackend};

            #[test]
            fn in_a_file() {
                super::$name(&InFile::empty());
            }
        }
    )*};
}
pub(crate) use on_each_durable_store;

pub(crate) const AGENT: &str = "tester";
pub(crate) const OWNER: &str = "alice";

/// Returns a time after this many seconds, in both clocks.
pub(crate) fn time(seconds: u64) -> StoreTime {
    StoreTime::new(Duration::from_secs(seconds), 1_000_000 + seconds * 1000)
}

pub(crate) fn json(text: &str) -> JsonText {
    JsonText::new(text).expect("JSON")
}

pub(crate) fn message(id: &str) -> NewInboxMessage {
    let content = json(&format!(r#"{{"text":"content of {}"}}"#, id.len()));
    NewInboxMessage::new(AGENT, id, MessageSender::new(OWNER, "agent://alice"), content)
}

pub(crate) fn in_group(id: &str, group: &str) -> NewInboxMessage {
    let mut message = message(id);
    message.group = Some(group.into());
    message
}

pub(crate) fn message_key(id: &str) -> InboxKey {
    InboxKey::new(AGENT, OWNER, id)
}

pub(crate) fn task_key(id: &str) -> StoredTaskKey {
    StoredTaskKey::new(OWNER, AGENT, id)
}

pub(crate) fn task(id: &str) -> NewTask {
    NewTask::new(task_key(id), "agent://alice", "work", json(r#"{"a":1}"#))
}

/// Applies one change at a time in seconds.
pub(crate) fn change_at(
    store: &dyn Store,
    seconds: u64,
    change: StoreChange,
) -> Result<ChangeOutcome, Error> {
    match store.apply(StoreBatch::new(time(seconds)).accepted().with(change))? {
        BatchOutcome::Applied(outcomes) => Ok(outcomes[0]),
        other => panic!("{other:?}"),
    }
}

/// Applies one change, which succeeds.
pub(crate) fn change(store: &dyn Store, change: StoreChange) -> ChangeOutcome {
    change_at(store, 1, change).expect("applied")
}

pub(crate) fn enqueue(store: &dyn Store, messages: impl IntoIterator<Item = NewInboxMessage>) {
    let mut batch = StoreBatch::new(time(1)).accepted();
    messages.into_iter().for_each(|message| batch.push(StoreChange::Enqueue(message)));
    store.apply(batch).expect("enqueued");
}

/// A claim at a time, with a lease of ten seconds.
pub(crate) fn claim_at(seconds: u64, max: usize) -> Claim {
    Claim::new(time(seconds), Duration::from_secs(10), "worker").max(max)
}

pub(crate) fn claim(store: &dyn Store, max: usize) -> Vec<Leased<StoredMessage>> {
    store.claim_messages(AGENT, &claim_at(1, max)).expect("claimed").entries
}

/// Claims one message and acknowledges it, until there is none. Returns the ids.
pub(crate) fn drain(store: &dyn Store, seconds: u64) -> Vec<String> {
    let mut ids = Vec::new();
    while let Some(leased) =
        store.claim_messages(AGENT, &claim_at(seconds, 1)).expect("claimed").entries.pop()
    {
        ids.push(leased.entry.id);
        change_at(store, seconds, StoreChange::AckMessage { lease: leased.lease, response: None })
            .expect("acknowledged");
    }
    ids
}

pub(crate) fn ids(entries: &[Leased<StoredMessage>]) -> Vec<&str> {
    entries.iter().map(|leased| leased.entry.id.as_str()).collect()
}
