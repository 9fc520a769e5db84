//! The one writer of a database: transactions, groups of batches, and values that are counted in memory.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use duologue_rpc::Lock as _;
use rusqlite::{CachedStatement, Connection, ffi, params_from_iter};

use super::queue::Turns;
use super::rows::{from_micros, int, micros};
use super::{BUSY_TIMEOUT, agents, erase, failure, messages, outbox, principals, room, tasks};
use crate::error::{Error, Result};
use crate::tables::batch::{BatchOutcome, ChangeOutcome, Durability, StoreBatch, StoreChange};
use crate::tables::principals::SeenAnswer;
use crate::tables::settings::StoreSettings;
use crate::tables::store::SweepReport;
use crate::tables::tasks::StoredTaskKey;
use crate::tables::values::{LeaseKind, StoreTime};
use crate::tables::watch::StoreTopic;

/// A batch that waits for the writer, and its result.
#[derive(Debug)]
pub(super) struct BatchSlot {
    batch: Mutex<Option<StoreBatch>>,
    result: Mutex<Option<Result<BatchOutcome>>>,
}

impl BatchSlot {
    pub(super) fn new(batch: StoreBatch) -> Self {
        BatchSlot { batch: Mutex::new(Some(batch)), result: Mutex::default() }
    }

    pub(super) fn take_result(&self) -> Option<Result<BatchOutcome>> {
        self.result.lock_unpoisoned().take()
    }
}

/// The reason for which a change ends its batch.
#[derive(Debug)]
pub(super) enum Stop {
    Database(rusqlite::Error),
    Refused(Error),
    Repeated(SeenAnswer),
}

impl From<rusqlite::Error> for Stop {
    fn from(error: rusqlite::Error) -> Self {
        Stop::Database(error)
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Stop::Refused(error)
    }
}

/// The result of a part of a transaction.
pub(super) type ChangeStep<T> = std::result::Result<T, Stop>;

/// A list whose entries are counted, for the principal, the agent or both that have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum CountedList {
    Agents,
    Inbox,
    /// The entries of one principal in an inbox.
    InboxOfSender,
    Tasks,
    Outbox,
    Seen,
}

impl CountedList {
    fn sql(self) -> &'static str {
        match self {
            CountedList::Agents => "SELECT count(*) FROM agents WHERE owner = ?1",
            CountedList::Inbox => "SELECT count(*) FROM messages WHERE agent = ?1 AND state = 0",
            CountedList::InboxOfSender => {
                "SELECT count(*) FROM messages WHERE agent = ?1 AND principal = ?2 AND state = 0"
            }
            CountedList::Tasks => "SELECT count(*) FROM tasks WHERE owner = ?1 AND ended = 0",
            CountedList::Outbox => "SELECT count(*) FROM outbox WHERE principal = ?1 AND state = 'pending'",
            CountedList::Seen => "SELECT count(*) FROM seen WHERE principal = ?1",
        }
    }
}

/// Counts of lists. Each is read from the database once.
#[derive(Debug, Default)]
struct ListCounts {
    counts: HashMap<CountKey, i64>,
    /// The differences of the current batch, or `None` for a count that it has read. They are undone if the batch
    /// ends without effect.
    journal: Vec<(CountKey, Option<i64>)>,
}

type CountKey = (CountedList, Box<[Box<str>]>);

fn count_key(list: CountedList, key: &[&str]) -> CountKey {
    (list, key.iter().map(|part| Box::from(*part)).collect())
}

/// The most counts in memory.
const COUNTS: usize = 50_000;

impl ListCounts {
    fn undo(&mut self) {
        for (key, difference) in self.journal.drain(..) {
            match difference {
                Some(difference) => {
                    if let Some(count) = self.counts.get_mut(&key) {
                        *count -= difference;
                    }
                }
                None => drop(self.counts.remove(&key)),
            }
        }
    }

    fn keep(&mut self) {
        self.journal.clear();
        if self.counts.len() > COUNTS {
            self.counts.clear();
        }
    }

    fn clear(&mut self) {
        self.journal.clear();
        self.counts.clear();
    }
}

/// Earliest times at which something of a queue may be due: no later than the real one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct QueueBounds {
    pub(super) lease_end: Option<i64>,
    pub(super) delay_end: Option<i64>,
}

impl QueueBounds {
    /// Lowers a bound to a time.
    pub(super) fn lower(bound: &mut Option<i64>, time: i64) {
        *bound = Some(bound.map_or(time, |bound| bound.min(time)));
    }
}

/// The state of an open transaction.
pub(super) struct OpenChange<'a> {
    pub(super) database: &'a Connection,
    pub(super) settings: &'a StoreSettings,
    pub(super) time: StoreTime,
    memory: &'a mut WriterMemory,
    /// The principals with something new, whose room is checked at the end of the batch.
    growing: Vec<String>,
}

#[derive(Debug, Default)]
struct WriterMemory {
    counts: ListCounts,
    bounds: [QueueBounds; 3],
    turns: Turns,
    wakes: Vec<StoreTopic>,
    /// The tasks that claims or the begin of this life have ended, until a sweep reports them.
    ended_tasks: Vec<StoredTaskKey>,
    /// The number of those that earlier transactions have ended. The others are lost if this one has no effect.
    earlier_ends: usize,
    secrets: RandomState,
    leases: u64,
    /// True if this transaction has erased data, which the log of the database must not keep.
    has_erased: bool,
}

impl OpenChange<'_> {
    pub(super) fn prepare(&self, sql: &str) -> rusqlite::Result<CachedStatement<'_>> {
        self.database.prepare_cached(sql)
    }

    /// Returns the monotonic time in microseconds.
    pub(super) fn now(&self) -> i64 {
        micros(self.time.now)
    }

    /// Returns the wall time in milliseconds.
    pub(super) fn wall(&self) -> i64 {
        int(self.time.wall)
    }

    /// Returns the time after a duration in microseconds.
    pub(super) fn after(&self, duration: Duration) -> i64 {
        micros(self.time.now.saturating_add(duration))
    }

    /// Lets the end of the batch check the room of a principal that has something new.
    pub(super) fn grows(&mut self, principal: &str) {
        if self.growing.last().is_none_or(|last| last != principal) {
            self.growing.push(principal.to_owned());
        }
    }

    pub(super) fn wake(&mut self, topic: StoreTopic) {
        if self.memory.wakes.last() != Some(&topic) {
            self.memory.wakes.push(topic);
        }
    }

    /// Lets the next sweep report a task that has ended without a worker.
    pub(super) fn report_ended(&mut self, key: StoredTaskKey) {
        self.memory.ended_tasks.push(key);
        self.wake(StoreTopic::Sweep);
    }

    pub(super) fn bounds(&mut self, kind: LeaseKind) -> &mut QueueBounds {
        let [messages, tasks, deliveries] = &mut self.memory.bounds;
        match kind {
            LeaseKind::Message => messages,
            LeaseKind::Task => tasks,
            LeaseKind::Delivery => deliveries,
        }
    }

    pub(super) fn turns(&mut self) -> &mut Turns {
        &mut self.memory.turns
    }

    /// Returns a random number for a lease.
    pub(super) fn lease_secret(&mut self) -> i64 {
        self.memory.leases += 1;
        self.memory.secrets.hash_one(self.memory.leases).cast_signed()
    }

    /// Changes the count of a list.
    pub(super) fn count(&mut self, list: CountedList, key: &[&str], difference: i64) {
        let place = count_key(list, key);
        let ListCounts { counts, journal } = &mut self.memory.counts;
        if let Some(count) = counts.get_mut(&place) {
            *count += difference;
            journal.push((place, Some(difference)));
        }
    }

    /// Counts an entry that was added to a list, and refuses it if there are too many. Returns their number.
    pub(super) fn added_to(
        &mut self,
        list: CountedList,
        key: &str,
        (limit, setting): (u64, &'static str),
        name: &str,
    ) -> ChangeStep<i64> {
        let count = self.added(list, &[key])?;
        if count > int(limit) {
            return Err(Error::LimitReached { list: format!("{name} {key:?}"), limit, setting }.into());
        }
        Ok(count)
    }

    /// Counts an entry that was added to a list. Returns the number of entries.
    pub(super) fn added(&mut self, list: CountedList, key: &[&str]) -> ChangeStep<i64> {
        let place = count_key(list, key);
        if let Some(count) = self.memory.counts.counts.get_mut(&place) {
            *count += 1;
            let count = *count;
            self.memory.counts.journal.push((place, Some(1)));
            return Ok(count);
        }
        // It counts the entry too.
        let count = self.prepare(list.sql())?.query_row(params_from_iter(key), |row| row.get(0))?;
        self.memory.counts.journal.push((place.clone(), None));
        self.memory.counts.counts.insert(place, count);
        Ok(count)
    }

    /// Counts everything again after this transaction and in it, because many records are removed.
    pub(super) fn forget_counts(&mut self) {
        self.memory.counts.clear();
    }

    /// Empties the log of the database after this transaction, since it has the erased data.
    pub(super) fn has_erased(&mut self) {
        self.memory.has_erased = true;
    }
}

/// The writer.
#[derive(Debug)]
pub(super) struct StoreWriter {
    path: PathBuf,
    database: Connection,
    settings: Arc<StoreSettings>,
    memory: WriterMemory,
    durability: Durability,
    /// The error of a sync. A batch that was not confirmed may then be there in the next life, so nothing may follow it.
    failed: Option<Error>,
    /// True if the log of the database has erased data, because a list has read it.
    keeps_erased: Arc<AtomicBool>,
}

impl StoreWriter {
    pub(super) fn new(
        path: PathBuf,
        database: Connection,
        settings: Arc<StoreSettings>,
        keeps_erased: Arc<AtomicBool>,
    ) -> Self {
        // The last life may have erased data and left its log.
        let memory = WriterMemory { has_erased: true, ..WriterMemory::default() };
        let durability = Durability::Synced;
        StoreWriter { path, database, settings, memory, durability, failed: None, keeps_erased }
    }

    pub(super) fn database(&self) -> &Connection {
        &self.database
    }

    pub(super) fn take_wakes(&mut self) -> Vec<StoreTopic> {
        std::mem::take(&mut self.memory.wakes)
    }

    fn begin(&mut self, durability: Durability) -> Result<()> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        if !self.database.is_autocommit() {
            // A panic has left it open.
            self.roll_back();
        }
        let begin = || {
            if durability != self.durability {
                let synchronous = if durability == Durability::Synced { "full" } else { "normal" };
                self.database.pragma_update(None, "synchronous", synchronous)?;
            }
            self.database.prepare_cached("BEGIN IMMEDIATE")?.execute([])
        };
        begin().map_err(|error| failure(&self.path, error))?;
        self.durability = durability;
        self.memory.earlier_ends = self.memory.ended_tasks.len();
        Ok(())
    }

    fn commit(&mut self) -> Result<()> {
        let committed = self.database.prepare_cached("COMMIT").and_then(|mut commit| commit.execute([]));
        let Err(error) = committed else {
            self.memory.counts.keep();
            if std::mem::take(&mut self.memory.has_erased) {
                self.empty_log();
            }
            return Ok(());
        };
        let code = error.sqlite_error().map(|error| error.extended_code);
        let error = failure(&self.path, error);
        if matches!(code, Some(ffi::SQLITE_IOERR_FSYNC | ffi::SQLITE_IOERR_DIR_FSYNC)) {
            self.failed = Some(error.clone());
        }
        self.roll_back();
        Err(error)
    }

    /// Empties the log of the database. It does not wait for a list that reads the log, since all changes would wait too: then the
    /// end of a list tries again.
    pub(super) fn empty_log(&mut self) {
        let empty = || {
            self.database.busy_timeout(Duration::ZERO)?;
            let is_busy = self.database.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0));
            self.database.busy_timeout(BUSY_TIMEOUT)?;
            is_busy
        };
        self.keeps_erased.store(!matches!(empty(), Ok(false)), Ordering::Relaxed);
    }

    /// Ends a transaction without effect, if the database has not ended it already.
    fn roll_back(&mut self) {
        if !self.database.is_autocommit() {
            let _ = self.database.execute_batch("ROLLBACK");
        }
        self.memory.counts.clear();
        // Those that wait for an earlier transaction were woken before this one began.
        self.memory.wakes.clear();
        self.memory.ended_tasks.truncate(self.memory.earlier_ends);
        self.lose_bounds();
    }

    fn lose_bounds(&mut self) {
        self.memory.bounds = [QueueBounds { lease_end: Some(0), delay_end: Some(0) }; 3];
    }

    fn refusal(&self, stop: Stop) -> Error {
        match stop {
            Stop::Database(error) => failure(&self.path, error),
            Stop::Refused(error) => error,
            Stop::Repeated(answer) => {
                Error::RecordConflict { record: format!("the key {:?}", answer.key.key) }
            }
        }
    }

    /// Runs a change that does not need to survive a power cut, in its own transaction.
    pub(super) fn transaction<T>(
        &mut self,
        work: impl FnOnce(&mut OpenChange<'_>) -> ChangeStep<T>,
    ) -> Result<T> {
        self.transact(Durability::Accepted, work)
    }

    fn transact<T>(
        &mut self,
        durability: Durability,
        work: impl FnOnce(&mut OpenChange<'_>) -> ChangeStep<T>,
    ) -> Result<T> {
        self.begin(durability)?;
        let StoreWriter { database, settings, memory, .. } = &mut *self;
        let mut change =
            OpenChange { database, settings, time: StoreTime::default(), memory, growing: Vec::new() };
        match work(&mut change) {
            Ok(result) => self.commit().map(|()| result),
            Err(stop) => {
                let error = self.refusal(stop);
                self.roll_back();
                Err(error)
            }
        }
    }

    /// Applies the batches of several threads in one transaction. Each has an effect of its own, or none.
    pub(super) fn apply(&mut self, slots: &[Arc<BatchSlot>]) {
        let batches: Vec<_> = slots.iter().filter_map(|slot| slot.batch.lock_unpoisoned().take()).collect();
        let synced = batches.iter().any(|batch| batch.durability == Durability::Synced);
        let durability = if synced { Durability::Synced } else { Durability::Accepted };
        let results = match self.begin(durability) {
            Ok(()) => self.apply_batches(batches),
            Err(error) => vec![Err(error); slots.len()],
        };
        for (slot, result) in slots.iter().zip(results) {
            *slot.result.lock_unpoisoned() = Some(result);
        }
    }

    fn apply_batches(&mut self, batches: Vec<StoreBatch>) -> Vec<Result<BatchOutcome>> {
        let number = batches.len();
        // A batch alone needs no savepoint.
        let is_group = number > 1;
        let mut results: Vec<Result<BatchOutcome>> = Vec::with_capacity(number);
        let mut lost = None;
        for batch in batches {
            let (wakes, ends) = (self.memory.wakes.len(), self.memory.ended_tasks.len());
            let outcome = self.apply_one(batch, is_group);
            match outcome {
                Ok(outcomes) => results.push(Ok(BatchOutcome::Applied(outcomes))),
                Err(stop) => {
                    self.memory.wakes.truncate(wakes);
                    self.memory.ended_tasks.truncate(ends);
                    self.memory.counts.undo();
                    self.lose_bounds();
                    let result = match stop {
                        Stop::Repeated(answer) => Ok(BatchOutcome::Repeated(answer)),
                        stop => Err(self.refusal(stop)),
                    };
                    // A full disk ends the transaction, and with it the batches before this one.
                    let is_lost = self.database.is_autocommit()
                        || (is_group
                            && self.database.execute_batch("ROLLBACK TO batch; RELEASE batch").is_err());
                    if is_lost {
                        lost = Some(result.err().unwrap_or_else(|| self.refusal(Stop::Database(aborted()))));
                        break;
                    }
                    results.push(result);
                }
            }
            self.memory.counts.keep();
        }
        let has_changes = results.iter().any(|result| matches!(result, Ok(BatchOutcome::Applied(_))));
        let ended = match lost {
            Some(error) => {
                self.roll_back();
                Err(error)
            }
            None if has_changes => self.commit(),
            None => {
                // Each batch has undone its counts.
                let _ = self.database.execute_batch("ROLLBACK");
                return results;
            }
        };
        let Err(error) = ended else { return results };
        results.resize(number, Err(error.clone()));
        for result in &mut results {
            if matches!(result, Ok(BatchOutcome::Applied(_))) {
                *result = Err(error.clone());
            }
        }
        results
    }

    fn apply_one(&mut self, batch: StoreBatch, has_savepoint: bool) -> ChangeStep<Vec<ChangeOutcome>> {
        let StoreWriter { database, settings, memory, .. } = &mut *self;
        if has_savepoint {
            database.prepare_cached("SAVEPOINT batch")?.execute([])?;
        }
        let mut change = OpenChange { database, settings, time: batch.time, memory, growing: Vec::new() };
        let mut outcomes = Vec::with_capacity(batch.changes.len());
        for one in batch.changes {
            outcomes.push(apply_change(&mut change, one)?);
        }
        let growing = std::mem::take(&mut change.growing);
        room::require(&change, growing)?;
        if has_savepoint {
            database.prepare_cached("RELEASE batch")?.execute([])?;
        }
        Ok(outcomes)
    }

    /// Ends the leases of an earlier life.
    pub(super) fn begin_life(&mut self, wall: u64) -> Result<SweepReport> {
        let report = self.transact(Durability::Synced, |change| {
            let mut report = SweepReport::default();
            change.time = StoreTime { now: Duration::ZERO, wall };
            messages::end_all_leases(change, &mut report)?;
            tasks::end_all_leases(change, &mut report)?;
            outbox::end_all_leases(change, &mut report)?;
            Ok(report)
        })?;
        // Delays go on.
        self.lose_bounds();
        self.memory.wakes.clear();
        self.memory.ended_tasks.clone_from(&report.tasks_ended);
        Ok(report)
    }

    pub(super) fn sweep(&mut self, time: StoreTime) -> Result<SweepReport> {
        let mut report = self.transact(Durability::Synced, |change| {
            let mut report = SweepReport::default();
            change.time = time;
            messages::sweep(change, &mut report)?;
            tasks::sweep(change, &mut report)?;
            outbox::sweep(change, &mut report)?;
            principals::sweep(change, &mut report)?;
            let ends = [LeaseKind::Message, LeaseKind::Task, LeaseKind::Delivery]
                .map(|kind| change.bounds(kind).lease_end);
            report.next_lease_end = ends.into_iter().flatten().min().map(from_micros);
            Ok(report)
        })?;
        // A sweep without effect leaves them to the next one.
        report.tasks_ended.splice(0..0, self.memory.ended_tasks.drain(..));
        Ok(report)
    }
}

fn aborted() -> rusqlite::Error {
    rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_ABORT), None)
}

fn apply_change(change: &mut OpenChange<'_>, what: StoreChange) -> ChangeStep<ChangeOutcome> {
    use StoreChange as C;
    let may_be_due = !matches!(
        what,
        C::Heartbeat { .. }
            | C::MarkStale { .. }
            | C::Purge { .. }
            | C::PutPrincipal(_)
            | C::RemovePrincipal { .. }
            | C::EndErasure { .. }
    );
    if may_be_due {
        change.wake(StoreTopic::Sweep);
    }
    match what {
        C::PutAgent(agent) => agents::put(change, &agent),
        C::RemoveAgent { agent } => agents::remove(change, &agent),
        C::Heartbeat { agent, status } => agents::heartbeat(change, &agent, status),
        C::MarkStale { seen_before } => agents::mark_stale(change, seen_before),
        C::Enqueue(message) => messages::enqueue(change, &message),
        C::HandOver { lease } => super::queue::hand_over(change, lease),
        C::StartMessage { lease } => messages::start(change, lease),
        C::AckMessage { lease, response } => messages::ack(change, lease, response.as_ref()),
        C::NackMessage { lease, delay, error } => messages::nack(change, lease, delay, error),
        C::RejectMessage { lease, error } => messages::reject(change, lease, error),
        C::ResendMessage { key, expires } => messages::resend(change, &key, expires),
        C::RemoveMessage { key } => messages::remove(change, &key),
        C::RenewLease { lease, lasts } => super::queue::renew(change, lease, lasts),
        C::ContinueWork { lease } => super::queue::continue_work(change, lease),
        C::CreateTask(task) => tasks::create(change, &task),
        C::UpdateTask(update) => tasks::update(change, &update),
        C::ReturnTask { lease, delay } => tasks::give_back(change, lease, delay),
        C::ResendTask { key, expires } => tasks::resend(change, &key, expires),
        C::DropDeadTask { key } => tasks::drop_dead(change, &key),
        C::AddQuestion(question) => tasks::add_question(change, &question),
        C::AnswerQuestion { task, question, answer, answered_by } => {
            tasks::end_question(change, &task, &question, Some((&answer, &answered_by)))
        }
        C::WithdrawQuestion { task, question } => tasks::end_question(change, &task, &question, None),
        C::PushDelivery(delivery) => outbox::push(change, &delivery),
        C::Delivered { lease } => outbox::delivered(change, lease),
        C::DeliveryFailed { lease, delay, error } => outbox::failed(change, lease, delay, error),
        C::GiveUpDelivery { lease, error, whole_stream } => {
            outbox::give_up(change, lease, error, whole_stream)
        }
        C::Remember(seen) => principals::remember(change, &seen),
        C::SetResponse { key, response } => principals::set_response(change, &key, &response),
        C::PutPrincipal(principal) => principals::put(change, &principal),
        C::RemovePrincipal { principal } => principals::remove(change, &principal),
        C::KeepPrincipals { principals, prefixes } => principals::keep(change, &principals, &prefixes),
        C::ErasePrincipal { principal } => erase::erase(change, &principal),
        C::EndErasure { principal } => erase::end(change, &principal),
        C::Purge { ended_before, principal } => erase::purge(change, ended_before, principal.as_deref()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::SqliteStore;
    use crate::tables::sqlite::schema::query_plan;
    use crate::tables::store::Store as _;
    use crate::tables::tasks::NewTask;
    use crate::tables::values::{Claim, JsonText};

    #[test]
    fn a_transaction_without_effect_keeps_the_ends_of_earlier_ones() {
        let store = SqliteStore::in_memory(StoreSettings::default()).unwrap();
        let key = StoredTaskKey::new("alice", "writer", "t");
        let mut task = NewTask::new(key.clone(), "alice", "write", JsonText::default());
        task.expires = Some(1);
        let time = StoreTime::new(Duration::ZERO, 2);
        store.apply(StoreBatch::new(time).with(StoreChange::CreateTask(task))).unwrap();
        let claimed = store.claim_tasks("writer", &Claim::new(time, Duration::from_secs(1), "hub")).unwrap();
        assert!(claimed.entries.is_empty(), "it has expired");
        let fail = |change: &mut OpenChange<'_>| -> ChangeStep<()> {
            change.report_ended(StoredTaskKey::new("alice", "writer", "undone"));
            Err(Stop::Database(aborted()))
        };
        store.change(|writer| writer.transaction(fail)).unwrap_err();
        let rename =
            |text: &str| store.change(|writer| Ok(writer.database.execute_batch(text))).unwrap().unwrap();
        rename("ALTER TABLE seen RENAME TO hidden");
        store.sweep(time).unwrap_err();
        rename("ALTER TABLE hidden RENAME TO seen");
        assert_eq!(store.sweep(time).unwrap().tasks_ended, [key]);
        assert!(store.sweep(time).unwrap().tasks_ended.is_empty());
    }

    #[test]
    fn counts_read_no_rows_of_what_has_ended() {
        use CountedList as L;
        let store = SqliteStore::in_memory(StoreSettings::default()).unwrap();
        for list in [L::Agents, L::Inbox, L::InboxOfSender, L::Tasks, L::Outbox] {
            let plan = store.read(|database| query_plan(database, list.sql())).unwrap();
            assert!(
                matches!(&plan[..], [step] if step.contains(" USING COVERING INDEX ")),
                "{list:?}: {plan:?}"
            );
        }
    }
}
