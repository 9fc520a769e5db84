//! The settings of a store.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The limits of a store. An error that reports one names the setting.
///
/// ```
/// let mut settings = duologue_store::StoreSettings::default();
/// settings.inbox_entries = 1000;
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StoreSettings {
    /// The most characters of an id or name, 128. An id has at least one.
    pub id_chars: usize,
    /// The most bytes of an address or an error text, 4 KiB. A longer error text is cut.
    pub text_bytes: usize,
    /// The most bytes of a content, a body, parameters, a result, a card or another JSON text, 4 MiB.
    pub content_bytes: usize,
    /// The most capabilities, domains and tags of an agent, or roles of a principal, 64 of each.
    pub names: usize,
    /// The most agents of one owner, 10,000.
    pub agents_per_owner: u64,
    /// The most messages that wait in one inbox or are out, 10,000. Those of one principal are at most half of the places
    /// that others leave.
    pub inbox_entries: u64,
    /// The most tasks of one owner that have not ended, 10,000.
    pub tasks_per_owner: u64,
    /// The most questions of one task, 1,000.
    pub questions_per_task: u64,
    /// The most waiting posts of one principal, 10,000.
    pub outbox_entries: u64,
    /// The most remembered keys of one principal, 100,000.
    pub seen_per_principal: u64,
    /// The bytes of the records of one principal above which its new agents, messages, tasks and questions are refused, 4 GiB:
    /// those of their texts and 256 for each record, with posts and remembered keys. Work that has begun goes on, with its
    /// results and posts.
    pub bytes_per_principal: u64,
    /// The bytes of the disk that are kept for the ends of work and for removals, 64 MiB. With less room new agents,
    /// messages, tasks and questions are refused. A store in memory has no such limit.
    pub reserved_bytes: u64,
    /// The most entries of a page or a claim, 1,000. More are cut, without an error.
    pub page_entries: u64,
    /// The bytes of text before which a page ends, 4 MiB. It has at least one entry, which can be longer. A claim of
    /// messages or tasks ends with the entry that reaches it.
    pub page_bytes: usize,
    /// The most changes of a batch, 10,000.
    pub batch_changes: usize,
    /// Learns the time that each batch takes, with the wait for earlier ones. Nothing by default.
    pub batch_times: Option<BatchObserver>,
}

/// A receiver of the times of batches. It must not block.
#[derive(Clone)]
pub struct BatchObserver(Arc<dyn Fn(Duration) + Send + Sync>);

impl BatchObserver {
    /// Creates it from a closure.
    pub fn new(observe: impl Fn(Duration) + Send + Sync + 'static) -> Self {
        BatchObserver(Arc::new(observe))
    }

    pub(crate) fn observe(&self, duration: Duration) {
        (self.0)(duration);
    }
}

impl fmt::Debug for BatchObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BatchObserver").finish_non_exhaustive()
    }
}

impl StoreSettings {
    /// The entries of a page whose query has no limit.
    pub const DEFAULT_PAGE: u64 = 100;

    /// Returns the room of a page.
    pub(crate) fn page(&self, limit: u64) -> PageRoom {
        let entries = if limit == 0 { StoreSettings::DEFAULT_PAGE } else { limit }.min(self.page_entries);
        PageRoom { entries, bytes: self.page_bytes }
    }
}

/// The limits of a page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageRoom {
    pub(crate) entries: u64,
    pub(crate) bytes: usize,
}

impl Default for StoreSettings {
    fn default() -> Self {
        StoreSettings {
            id_chars: 128,
            text_bytes: 4 * 1024,
            content_bytes: 4 * 1024 * 1024,
            names: 64,
            agents_per_owner: 10_000,
            inbox_entries: 10_000,
            tasks_per_owner: 10_000,
            questions_per_task: 1_000,
            outbox_entries: 10_000,
            seen_per_principal: 100_000,
            bytes_per_principal: 4 << 30,
            reserved_bytes: 64 << 20,
            page_entries: 1_000,
            page_bytes: 4 * 1024 * 1024,
            batch_changes: 10_000,
            batch_times: None,
        }
    }
}
