//! The interface of a store.

use std::fmt;
use std::time::Duration;

use rusqlite::types::Value as SqlValue;
use serde_json::Value;

use super::agents::{AgentQuery, RegisteredAgent};
use super::batch::{BatchOutcome, StoreBatch};
use super::messages::{InboxKey, MessageQuery, StoredMessage};
use super::outbox::{OutboxEntry, OutboxQuery};
use super::principals::{SeenAnswer, SeenKey, StoredPrincipal};
use super::settings::StoreSettings;
use super::statistics::StoreStatistics;
use super::tasks::{QuestionQuery, StoredQuestion, StoredTask, StoredTaskKey, TaskQuery};
use super::values::{Claim, Claimed, StorePage, StoreTime};
use super::watch::{StoreTopic, StoreWatch};
use crate::error::Result;

/// The state of a server beside the logs of its sessions.
///
/// The functions block, so an asynchronous caller runs them on a thread of its own. [`watch`](Self::watch) does not.
/// All changes come from one process. Its threads may call at the same time: each batch, claim and sweep is atomic,
/// and a query sees all batches that were applied before it.
///
/// **Queues.** Messages and tasks wait for a claim in four bands by their priority: 0 to 2, 3 to 5, 6 and 7, 8 and 9.
/// Of 15 claims from full bands, 1, 2, 4 and 8 come from these. An empty band passes its turn on, so no band
/// starves. Inside a band the order is that of arrival. One message of a group is out at a time, in order of arrival.
/// Posts of the outbox are ordered by their time, and one of a stream is out at a time.
///
/// **Leases.** A claimed entry has a lease, which ends with an acknowledgement, after its time, or with this life of
/// the store. An entry whose lease has ended without an acknowledgement returns to its place, or becomes a dead letter
/// after its last attempt. What an agent has started does not return, unless it is safe to retry: a task fails with
/// `worker_lost`, or with `restarted` after the end of a life, and a message is a dead letter with this reason.
///
/// # Errors
///
/// All functions return [`Error::Database`](crate::Error::Database) and
/// [`Error::StoreDamaged`](crate::Error::StoreDamaged) if the database fails. Changes also return
/// [`Error::DiskFull`](crate::Error::DiskFull), [`Error::TooLong`](crate::Error::TooLong) and
/// [`Error::LimitReached`](crate::Error::LimitReached).
pub trait Store: fmt::Debug + Send + Sync {
    /// Returns the limits.
    fn settings(&self) -> &StoreSettings;

    /// Applies a batch.
    ///
    /// # Errors
    ///
    /// After an error nothing of the batch is applied. Besides the errors of the trait there are
    /// [`Error::VersionLost`](crate::Error::VersionLost), [`Error::LeaseLost`](crate::Error::LeaseLost),
    /// [`Error::RecordConflict`](crate::Error::RecordConflict), [`Error::NoRecord`](crate::Error::NoRecord) and
    /// [`Error::WrongState`](crate::Error::WrongState).
    fn apply(&self, batch: StoreBatch) -> Result<BatchOutcome>;

    /// Leases messages of an inbox.
    ///
    /// # Errors
    ///
    /// As the trait.
    fn claim_messages(&self, agent: &str, claim: &Claim) -> Result<Claimed<StoredMessage>>;

    /// Leases tasks of an agent. The caller limits the number of running ones. A claimed task is still
    /// `submitted`: the worker updates it to `working`, with its lease, before the agent starts it.
    ///
    /// # Errors
    ///
    /// As the trait.
    fn claim_tasks(&self, agent: &str, claim: &Claim) -> Result<Claimed<StoredTask>>;

    /// Leases posts of the outbox.
    ///
    /// # Errors
    ///
    /// As the trait.
    fn claim_deliveries(&self, claim: &Claim) -> Result<Claimed<OutboxEntry>>;

    /// Ends leases whose time is over, expires messages, tasks and keys, and returns the number of each. A lease
    /// that is over is also refused without it, and claims of the same kind end it too.
    ///
    /// # Errors
    ///
    /// As the trait.
    fn sweep(&self, time: StoreTime) -> Result<SweepReport>;

    /// Returns the times at which a sweep, [`MarkStale`](crate::StoreChange::MarkStale) and
    /// [`Purge`](crate::StoreChange::Purge) have something to do. [`StoreTopic::Sweep`] tells when to ask again.
    ///
    /// # Errors
    ///
    /// As the trait.
    fn next_sweep(&self) -> Result<SweepTimes>;

    /// Returns an entry of the registry.
    ///
    /// # Errors
    ///
    /// As the trait.
    fn agent(&self, id: &str) -> Result<Option<RegisteredAgent>>;

    /// Lists entries of the registry.
    ///
    /// # Errors
    ///
    /// As the trait.
    fn agents(&self, query: &AgentQuery) -> Result<StorePage<RegisteredAgent>>;

    /// Returns a message.
    ///
    /// # Errors
    ///
    /// As the trait.
    fn message(&self, key: &InboxKey) -> Result<Option<StoredMessage>>;

    /// Lists messages.
    ///
    /// # Errors
    ///
    /// As the trait.
    fn messages(&self, query: &MessageQuery) -> Result<StorePage<StoredMessage>>;

    /// Returns a task.
    ///
    /// # Errors
    ///
    /// As the trait.
    fn task(&self, key: &StoredTaskKey) -> Result<Option<StoredTask>>;

    /// Lists tasks.
    ///
    /// # Errors
    ///
    /// As the trait.
    fn tasks(&self, query: &TaskQuery) -> Result<StorePage<StoredTask>>;

    /// Returns the median duration of the last completed tasks of an agent and type, at most `last` of them. It is
    /// `None` if there is none.
    ///
    /// # Errors
    ///
    /// As the trait.
    fn median_duration(&self, agent: &str, kind: &str, last: u64) -> Result<Option<Duration>>;

    /// Returns a question of a task.
    ///
    /// # Errors
    ///
    /// As the trait.
    fn question(&self, task: &StoredTaskKey, question: &str) -> Result<Option<StoredQuestion>>;

    /// Lists questions.
    ///
    /// # Errors
    ///
    /// As the trait.
    fn questions(&self, query: &QuestionQuery) -> Result<StorePage<StoredQuestion>>;

    /// Returns a post of the outbox.
    ///
    /// # Errors
    ///
    /// As the trait.
    fn delivery(&self, id: u64) -> Result<Option<OutboxEntry>>;

    /// Lists posts of the outbox.
    ///
    /// # Errors
    ///
    /// As the trait.
    fn deliveries(&self, query: &OutboxQuery) -> Result<StorePage<OutboxEntry>>;

    /// Returns the position of the last post of a stream, if the outbox has one.
    ///
    /// # Errors
    ///
    /// As the trait.
    fn stream_end(&self, stream: &str) -> Result<Option<u64>>;

    /// Returns a remembered key that has not expired.
    ///
    /// # Errors
    ///
    /// As the trait.
    fn remembered(&self, key: &SeenKey, time: StoreTime) -> Result<Option<SeenAnswer>>;

    /// Returns a principal.
    ///
    /// # Errors
    ///
    /// As the trait.
    fn principal(&self, id: &str) -> Result<Option<StoredPrincipal>>;

    /// Returns the principal with the SHA-256 of an API key. The caller checks `disabled` and `expires`.
    ///
    /// # Errors
    ///
    /// As the trait.
    fn principal_by_key(&self, key_hash: &[u8; 32]) -> Result<Option<StoredPrincipal>>;

    /// Lists principals by their id. Zero as a limit counts as 100.
    ///
    /// # Errors
    ///
    /// As the trait.
    fn principals(&self, offset: u64, limit: u64) -> Result<StorePage<StoredPrincipal>>;

    /// Returns the principals that [`StoreChange::ErasePrincipal`](crate::StoreChange::ErasePrincipal) names, until
    /// [`StoreChange::EndErasure`](crate::StoreChange::EndErasure).
    ///
    /// # Errors
    ///
    /// As the trait.
    fn erasures(&self) -> Result<Vec<String>>;

    /// Returns a page of the data of a principal that
    /// [`StoreChange::ErasePrincipal`](crate::StoreChange::ErasePrincipal) removes: at most a MiB, unless its first
    /// record is longer. Records that change between pages are there in one of their states.
    ///
    /// # Errors
    ///
    /// As the trait.
    fn export(&self, principal: &str, position: &ExportPosition) -> Result<ExportPage>;

    /// Returns the numbers of records, for an operator. It takes time in proportion to the number of tasks.
    ///
    /// # Errors
    ///
    /// As the trait.
    fn statistics(&self) -> Result<StoreStatistics>;

    /// Returns a wait for changes of a topic. It does not block.
    fn watch(&self, topic: &StoreTopic) -> StoreWatch;
}

/// The place of a page in an export. The default is the first one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ExportPosition {
    pub(crate) source: usize,
    /// The last row that was read of the source.
    pub(crate) after: Option<(SqlValue, SqlValue)>,
}

/// A page of an export.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ExportPage {
    /// Objects with one member, which is named after the kind of record. There may be none before the last page.
    pub records: Vec<Value>,
    /// The place of the next page, if there is one.
    pub next: Option<ExportPosition>,
}

/// The result of a sweep. It ends at most [`StoreSettings::page_entries`] of each kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SweepReport {
    /// The messages that have returned to their place.
    pub messages_returned: u64,
    /// The messages that have become dead letters.
    pub messages_dead: u64,
    /// The tasks that have returned to their place.
    pub tasks_returned: u64,
    /// The tasks that have ended since the last sweep: `worker_lost`, `restarted` or `expired`. A claim and the begin of a
    /// life of the store end some too. Those with a callback or a stream are in the list
    /// [`callback_due`](crate::TaskQuery::callback_due).
    pub tasks_ended: Vec<StoredTaskKey>,
    /// The posts that have returned to their place.
    pub deliveries_returned: u64,
    /// The remembered keys that were removed.
    pub keys_removed: u64,
    /// True if there may be more to end now.
    pub has_more: bool,
    /// The time at which the next lease ends.
    pub next_lease_end: Option<Duration>,
}

/// The times at which the next entries are due, from [`Store::next_sweep`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SweepTimes {
    /// The end of a lease, in monotonic time.
    pub lease_end: Option<Duration>,
    /// The expiry of a message, task or key, in milliseconds since 1970.
    pub expiry: Option<u64>,
    /// The oldest end of what [`Purge`](crate::StoreChange::Purge) removes, in milliseconds since 1970.
    pub ended: Option<u64>,
    /// The oldest sign of life that [`MarkStale`](crate::StoreChange::MarkStale) reads, in milliseconds since 1970.
    pub seen: Option<u64>,
}
