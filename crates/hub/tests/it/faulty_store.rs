//! A store whose changes and claims fail if a test wants that, or that dies at a chosen write. It counts claims and reads.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use duologue_rpc::Lock as _;
use duologue_schema::envelope::TaskState;
use duologue_store::{
    AgentQuery, BatchOutcome, ChangeOutcome, Claim, Claimed, Error, ExportPage, ExportPosition, InboxKey,
    MessageQuery, MessageState, OutboxEntry, OutboxQuery, OutboxState, QuestionQuery, RegisteredAgent,
    Result, SeenAnswer, SeenKey, SqliteStore, Store, StoreBatch, StoreChange, StorePage, StoreSettings,
    StoreStatistics, StoreTime, StoreTopic, StoreWatch, StoredMessage, StoredPrincipal, StoredQuestion,
    StoredTask, StoredTaskKey, SweepReport, SweepTimes, TaskQuery,
};

/// The faults, which a test switches on and off.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    pub(crate) apply: AtomicBool,
    pub(crate) claim: AtomicBool,
    pub(crate) claims: AtomicUsize,
    pub(crate) reads: AtomicUsize,
    /// While a test has it, no list of messages is read.
    pub(crate) lists: tokio::sync::Mutex<()>,
    /// The principals whose messages were listed, when the lists began.
    pub(crate) begun: Mutex<Vec<Option<String>>>,
    /// All calls that read or write the database.
    pub(crate) calls: AtomicUsize,
    plan: Mutex<FaultPlan>,
    /// True from the death on: nothing is read or written any more.
    is_dead: AtomicBool,
}

/// The end of a store, at one of its next writes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Death {
    /// The write with this number is there, and nobody gets the answer to it.
    After(usize),
    /// The write with this number is not there. Its cause has happened.
    Before(usize),
}

/// The writes since the plan was made: changes, claims and sweeps that have changed something.
#[derive(Debug, Default)]
struct FaultPlan {
    writes: usize,
    death: Option<Death>,
    /// The writes until the disk is full, and those that fail then.
    full: Option<(usize, usize)>,
}

impl Faults {
    /// Lets the store die at a write from now on. The writes before do not count.
    pub(crate) fn die(&self, death: Death) {
        *self.plan.lock_unpoisoned() = FaultPlan { death: Some(death), ..FaultPlan::default() };
    }

    /// Lets a number of writes fail as on a full disk, after a number of others. Reads work.
    pub(crate) fn fill(&self, after: usize, failing: usize) {
        *self.plan.lock_unpoisoned() = FaultPlan { full: Some((after, failing)), ..FaultPlan::default() };
    }

    /// Returns true if all writes have failed that were to fail.
    pub(crate) fn was_full(&self) -> bool {
        matches!(self.plan.lock_unpoisoned().full, Some((_, 0)))
    }

    /// Ends the plan. Returns true if the store has not died.
    pub(crate) fn survives(&self) -> bool {
        self.plan.lock_unpoisoned().death = None;
        !self.is_dead.load(Ordering::SeqCst)
    }

    fn end(&self) {
        self.is_dead.store(true, Ordering::SeqCst);
    }
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

    /// Opens the store of a gateway.
    pub(crate) fn open(path: &Path, faults: Arc<Faults>) -> Self {
        let wall = duologue_hub::HubClock::system().now().wall;
        let inner = SqliteStore::open(path, StoreSettings::default(), wall).expect("a store");
        FaultyStore { inner, faults }
    }

    /// Counts a read.
    fn read(&self) -> Result<&SqliteStore> {
        self.faults.reads.fetch_add(1, Ordering::SeqCst);
        self.count()
    }

    fn count(&self) -> Result<&SqliteStore> {
        fails(&self.faults.is_dead)?;
        self.faults.calls.fetch_add(1, Ordering::SeqCst);
        Ok(&self.inner)
    }

    /// Writes, one after the other. `is_due` tells if the write would change something, and `has_changed` if it has.
    fn write<T>(
        &self,
        is_due: impl Fn(&SqliteStore) -> Result<bool>,
        write: impl FnOnce(&SqliteStore) -> Result<T>,
        has_changed: impl FnOnce(&T) -> bool,
    ) -> Result<T> {
        let mut plan = self.faults.plan.lock_unpoisoned();
        let inner = self.count()?;
        let writes = plan.writes;
        if let Some((after, failing @ 1..)) = &mut plan.full
            && *after <= writes
            && is_due(inner)?
        {
            *failing -= 1;
            return Err(Error::DiskFull { path: PathBuf::new() });
        }
        if matches!(plan.death, Some(Death::Before(number)) if number == writes + 1) && is_due(inner)? {
            self.faults.end();
            fails(&self.faults.is_dead)?;
        }
        let answer = write(inner)?;
        if has_changed(&answer) {
            plan.writes += 1;
            if matches!(plan.death, Some(Death::After(number)) if number == plan.writes) {
                self.faults.end();
                fails(&self.faults.is_dead)?;
            }
        }
        Ok(answer)
    }

    fn claim<T>(
        &self,
        waiting: impl Fn(&SqliteStore) -> Result<u64>,
        claim: impl FnOnce(&SqliteStore) -> Result<Claimed<T>>,
    ) -> Result<Claimed<T>> {
        self.write(|store| Ok(waiting(store)? > 0), claim, |claimed| !claimed.entries.is_empty())
    }
}

fn fails(fault: &AtomicBool) -> Result<()> {
    match fault.load(Ordering::SeqCst) {
        true => Err(Error::StoreDamaged { path: PathBuf::new(), reason: "a fault of a test".into() }),
        false => Ok(()),
    }
}

/// Returns true if a batch is part of a sweep, which mostly changes nothing.
fn is_sweep(batch: &StoreBatch) -> bool {
    batch
        .changes
        .iter()
        .all(|change| matches!(change, StoreChange::MarkStale { .. } | StoreChange::Purge { .. }))
}

fn has_changed(outcome: &BatchOutcome) -> bool {
    let is_nothing = |outcome: &ChangeOutcome| matches!(outcome, ChangeOutcome::Count(0));
    !matches!(outcome, BatchOutcome::Applied(outcomes) if outcomes.iter().all(is_nothing))
}

impl Store for FaultyStore {
    fn settings(&self) -> &StoreSettings {
        self.inner.settings()
    }

    fn apply(&self, batch: StoreBatch) -> Result<BatchOutcome> {
        fails(&self.faults.apply)?;
        let is_due = !is_sweep(&batch);
        self.write(|_| Ok(is_due), |store| store.apply(batch), has_changed)
    }

    fn claim_messages(&self, agent: &str, claim: &Claim) -> Result<Claimed<StoredMessage>> {
        let mut query = MessageQuery::default();
        (query.agent, query.state) = (Some(agent.to_owned()), Some(MessageState::Ready));
        self.claim(|store| Ok(store.messages(&query)?.total), |store| store.claim_messages(agent, claim))
    }

    fn claim_tasks(&self, agent: &str, claim: &Claim) -> Result<Claimed<StoredTask>> {
        let mut query = TaskQuery::default();
        (query.agent, query.state) = (Some(agent.to_owned()), Some(TaskState::Submitted));
        self.claim(|store| Ok(store.tasks(&query)?.total), |store| store.claim_tasks(agent, claim))
    }

    fn claim_deliveries(&self, claim: &Claim) -> Result<Claimed<OutboxEntry>> {
        self.faults.claims.fetch_add(1, Ordering::SeqCst);
        fails(&self.faults.claim)?;
        let mut query = OutboxQuery::default();
        query.state = Some(OutboxState::Pending);
        self.claim(|store| Ok(store.deliveries(&query)?.total), |store| store.claim_deliveries(claim))
    }

    fn sweep(&self, time: StoreTime) -> Result<SweepReport> {
        let has_changed = |swept: &SweepReport| {
            let returned = swept.messages_returned + swept.tasks_returned + swept.deliveries_returned;
            returned + swept.messages_dead + swept.keys_removed > 0 || !swept.tasks_ended.is_empty()
        };
        self.write(|_| Ok(false), |store| store.sweep(time), has_changed)
    }

    fn next_sweep(&self) -> Result<SweepTimes> {
        self.count()?.next_sweep()
    }

    fn agent(&self, id: &str) -> Result<Option<RegisteredAgent>> {
        self.read()?.agent(id)
    }

    fn agents(&self, query: &AgentQuery) -> Result<StorePage<RegisteredAgent>> {
        self.read()?.agents(query)
    }

    fn message(&self, key: &InboxKey) -> Result<Option<StoredMessage>> {
        self.read()?.message(key)
    }

    fn messages(&self, query: &MessageQuery) -> Result<StorePage<StoredMessage>> {
        self.faults.begun.lock_unpoisoned().push(query.principal.clone());
        if self.faults.lists.try_lock().is_err() {
            drop(self.faults.lists.blocking_lock());
        }
        self.read()?.messages(query)
    }

    fn task(&self, key: &StoredTaskKey) -> Result<Option<StoredTask>> {
        self.read()?.task(key)
    }

    fn tasks(&self, query: &TaskQuery) -> Result<StorePage<StoredTask>> {
        self.read()?.tasks(query)
    }

    fn median_duration(&self, agent: &str, kind: &str, last: u64) -> Result<Option<Duration>> {
        self.read()?.median_duration(agent, kind, last)
    }

    fn question(&self, task: &StoredTaskKey, question: &str) -> Result<Option<StoredQuestion>> {
        self.read()?.question(task, question)
    }

    fn questions(&self, query: &QuestionQuery) -> Result<StorePage<StoredQuestion>> {
        self.read()?.questions(query)
    }

    fn delivery(&self, id: u64) -> Result<Option<OutboxEntry>> {
        self.count()?.delivery(id)
    }

    fn deliveries(&self, query: &OutboxQuery) -> Result<StorePage<OutboxEntry>> {
        self.count()?.deliveries(query)
    }

    fn stream_end(&self, stream: &str) -> Result<Option<u64>> {
        self.count()?.stream_end(stream)
    }

    fn remembered(&self, key: &SeenKey, time: StoreTime) -> Result<Option<SeenAnswer>> {
        self.read()?.remembered(key, time)
    }

    fn principal(&self, id: &str) -> Result<Option<StoredPrincipal>> {
        self.read()?.principal(id)
    }

    fn principal_by_key(&self, key_hash: &[u8; 32]) -> Result<Option<StoredPrincipal>> {
        self.count()?.principal_by_key(key_hash)
    }

    fn principals(&self, offset: u64, limit: u64) -> Result<StorePage<StoredPrincipal>> {
        self.count()?.principals(offset, limit)
    }

    fn erasures(&self) -> Result<Vec<String>> {
        self.count()?.erasures()
    }

    fn export(&self, principal: &str, position: &ExportPosition) -> Result<ExportPage> {
        self.read()?.export(principal, position)
    }

    fn statistics(&self) -> Result<StoreStatistics> {
        self.count()?.statistics()
    }

    fn watch(&self, topic: &StoreTopic) -> StoreWatch {
        self.inner.watch(topic)
    }
}
