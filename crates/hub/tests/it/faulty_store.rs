//! A store whose changes and claims fail if a test wants that. It counts claims and reads.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use duologue_store::{
    AgentQuery, BatchOutcome, Claim, Claimed, Error, InboxKey, MessageQuery, OutboxEntry, OutboxQuery,
    QuestionQuery, RegisteredAgent, Result, SeenAnswer, SeenKey, SqliteStore, Store, StoreBatch, StoreExport,
    StorePage, StoreSettings, StoreStatistics, StoreTime, StoreTopic, StoreWatch, StoredMessage,
    StoredPrincipal, StoredQuestion, StoredTask, StoredTaskKey, SweepReport, SweepTimes, TaskQuery,
};

/// The faults, which a test switches on and off.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    pub(crate) apply: AtomicBool,
    pub(crate) claim: AtomicBool,
    pub(crate) claims: AtomicUsize,
    pub(crate) reads: AtomicUsize,
    /// All calls that read or write the database.
    pub(crate) calls: AtomicUsize,
}

#[derive(Debug)]
pub(crate) struct FaultyStore {
    inner: SqliteStore,
    faults: Arc<Faults>,
}

impl FaultyStore {
    pub(crate) fn new(faults: Arc<Faults>) -> Self {
        let inner = SqliteStore::in_memory(StoreSettings::default()).expect("a store");
        FaultyStore { inner, faults }
    }

    /// Counts a read.
    fn read(&self) -> &SqliteStore {
        self.faults.reads.fetch_add(1, Ordering::SeqCst);
        self.count()
    }

    fn count(&self) -> &SqliteStore {
        self.faults.calls.fetch_add(1, Ordering::SeqCst);
        &self.inner
    }
}

fn fails(fault: &AtomicBool) -> Result<()> {
    match fault.load(Ordering::SeqCst) {
        true => Err(Error::StoreDamaged { path: PathBuf::new(), reason: "a fault of a test".into() }),
        false => Ok(()),
    }
}

impl Store for FaultyStore {
    fn settings(&self) -> &StoreSettings {
        self.inner.settings()
    }

    fn apply(&self, batch: StoreBatch) -> Result<BatchOutcome> {
        fails(&self.faults.apply)?;
        self.count().apply(batch)
    }

    fn claim_messages(&self, agent: &str, claim: &Claim) -> Result<Claimed<StoredMessage>> {
        self.count().claim_messages(agent, claim)
    }

    fn claim_tasks(&self, agent: &str, claim: &Claim) -> Result<Claimed<StoredTask>> {
        self.count().claim_tasks(agent, claim)
    }

    fn claim_deliveries(&self, claim: &Claim) -> Result<Claimed<OutboxEntry>> {
        self.faults.claims.fetch_add(1, Ordering::SeqCst);
        fails(&self.faults.claim)?;
        self.count().claim_deliveries(claim)
    }

    fn sweep(&self, time: StoreTime) -> Result<SweepReport> {
        self.count().sweep(time)
    }

    fn next_sweep(&self) -> Result<SweepTimes> {
        self.count().next_sweep()
    }

    fn agent(&self, id: &str) -> Result<Option<RegisteredAgent>> {
        self.read().agent(id)
    }

    fn agents(&self, query: &AgentQuery) -> Result<StorePage<RegisteredAgent>> {
        self.read().agents(query)
    }

    fn message(&self, key: &InboxKey) -> Result<Option<StoredMessage>> {
        self.read().message(key)
    }

    fn messages(&self, query: &MessageQuery) -> Result<StorePage<StoredMessage>> {
        self.read().messages(query)
    }

    fn task(&self, key: &StoredTaskKey) -> Result<Option<StoredTask>> {
        self.read().task(key)
    }

    fn tasks(&self, query: &TaskQuery) -> Result<StorePage<StoredTask>> {
        self.read().tasks(query)
    }

    fn median_duration(&self, agent: &str, kind: &str, last: u64) -> Result<Option<Duration>> {
        self.read().median_duration(agent, kind, last)
    }

    fn question(&self, task: &StoredTaskKey, question: &str) -> Result<Option<StoredQuestion>> {
        self.read().question(task, question)
    }

    fn questions(&self, query: &QuestionQuery) -> Result<StorePage<StoredQuestion>> {
        self.read().questions(query)
    }

    fn delivery(&self, id: u64) -> Result<Option<OutboxEntry>> {
        self.count().delivery(id)
    }

    fn deliveries(&self, query: &OutboxQuery) -> Result<StorePage<OutboxEntry>> {
        self.count().deliveries(query)
    }

    fn stream_end(&self, stream: &str) -> Result<Option<u64>> {
        self.count().stream_end(stream)
    }

    fn remembered(&self, key: &SeenKey, time: StoreTime) -> Result<Option<SeenAnswer>> {
        self.read().remembered(key, time)
    }

    fn principal(&self, id: &str) -> Result<Option<StoredPrincipal>> {
        self.read().principal(id)
    }

    fn principal_by_key(&self, key_hash: &[u8; 32]) -> Result<Option<StoredPrincipal>> {
        self.count().principal_by_key(key_hash)
    }

    fn principals(&self, offset: u64, limit: u64) -> Result<StorePage<StoredPrincipal>> {
        self.count().principals(offset, limit)
    }

    fn export(&self, principal: &str) -> Result<StoreExport<'_>> {
        self.read().export(principal)
    }

    fn statistics(&self) -> Result<StoreStatistics> {
        self.count().statistics()
    }

    fn watch(&self, topic: &StoreTopic) -> StoreWatch {
        self.inner.watch(topic)
    }
}
