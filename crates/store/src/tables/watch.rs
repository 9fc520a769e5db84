//! Wake-ups for those that wait for a change.

use std::hash::{BuildHasher as _, RandomState};

use tokio::sync::watch;

use super::tasks::StoredTaskKey;

/// A part of the store that can be waited for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreTopic {
    /// The registry.
    Registry,
    /// The messages of an agent.
    Inbox(String),
    /// The queue of an agent's tasks: created, returned and ended ones.
    AgentTasks(String),
    /// One task, with its questions.
    Task(StoredTaskKey),
    /// The outbox.
    Outbox,
    /// The times of [`Store::next_sweep`](crate::Store::next_sweep). Changes that only remove something do not wake it.
    Sweep,
}

/// A wait for changes of a topic, from [`Store::watch`](crate::Store::watch).
///
/// It sees every change that is applied after its creation, so no wake-up is lost if the caller first creates it, then
/// queries, then waits. A wake-up can also be one of another topic: the caller queries again.
#[derive(Clone, Debug)]
pub struct StoreWatch(watch::Receiver<()>);

impl StoreWatch {
    /// Waits for a change after the last call, or after the creation. It is cancel safe.
    ///
    /// Changes of a batch wake once it can be read. If the store is dropped, this waits for ever.
    pub async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Returns true if there was a change after the last call of this or [`changed`](Self::changed).
    pub fn take_changed(&mut self) -> bool {
        let changed = self.0.has_changed().unwrap_or_default();
        self.0.mark_unchanged();
        changed
    }
}

/// The senders of wake-ups. Topics share them by their hash, so their number does not grow.
#[derive(Debug)]
pub(crate) struct StoreSignals {
    senders: Box<[watch::Sender<()>]>,
    hash: RandomState,
}

/// The number of senders. With 1,000 waiting agents a change wakes four of them.
const SENDERS: usize = 256;

impl StoreSignals {
    pub(crate) fn new() -> Self {
        StoreSignals {
            senders: (0..SENDERS).map(|_| watch::Sender::new(())).collect(),
            hash: RandomState::new(),
        }
    }

    fn sender(&self, topic: &StoreTopic) -> Option<&watch::Sender<()>> {
        let index = self.hash.hash_one(topic) as usize % self.senders.len().max(1);
        self.senders.get(index)
    }

    pub(crate) fn watch(&self, topic: &StoreTopic) -> StoreWatch {
        match self.sender(topic) {
            Some(sender) => StoreWatch(sender.subscribe()),
            None => StoreWatch(watch::Sender::new(()).subscribe()),
        }
    }

    /// Wakes all that wait for a topic.
    pub(crate) fn wake(&self, topic: &StoreTopic) {
        if let Some(sender) = self.sender(topic) {
            sender.send_replace(());
        }
    }
}
