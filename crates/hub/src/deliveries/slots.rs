//! The places of posts that run or wait, in total, per host and per principal.

use std::collections::{HashMap, VecDeque};

use duologue_store::LeaseToken;

use crate::deliveries::DeliverySettings;

/// The limits that a post counts against.
#[derive(Clone, Debug)]
pub(crate) struct SlotKey {
    pub(crate) host: String,
    pub(crate) principal: String,
}

/// A leased post that waits for a place. Its body is read again when it begins.
#[derive(Debug)]
pub(crate) struct WaitingPost {
    pub(crate) id: u64,
    pub(crate) attempts: u32,
    pub(crate) lease: LeaseToken,
    pub(crate) key: SlotKey,
}

/// The places.
#[derive(Debug, Default)]
pub(crate) struct DeliverySlots {
    running: usize,
    hosts: HashMap<String, usize>,
    principals: HashMap<String, usize>,
    waiting: VecDeque<WaitingPost>,
}

impl DeliverySlots {
    /// Returns the number of posts that can be claimed.
    pub(crate) fn room(&self, settings: &DeliverySettings) -> usize {
        settings.waiting.max(1).saturating_sub(self.waiting.len())
    }

    /// Takes a place if there is one.
    pub(crate) fn take(&mut self, key: &SlotKey, settings: &DeliverySettings) -> bool {
        let of = |counts: &HashMap<String, usize>, name: &str| counts.get(name).copied().unwrap_or_default();
        let is_free = self.running < settings.concurrent.max(1)
            && of(&self.hosts, &key.host) < settings.per_host.max(1)
            && of(&self.principals, &key.principal) < settings.per_principal.max(1);
        if is_free {
            self.running += 1;
            *self.hosts.entry(key.host.clone()).or_default() += 1;
            *self.principals.entry(key.principal.clone()).or_default() += 1;
        }
        is_free
    }

    /// Returns a place.
    pub(crate) fn release(&mut self, key: &SlotKey) {
        self.running = self.running.saturating_sub(1);
        for (counts, name) in [(&mut self.hosts, &key.host), (&mut self.principals, &key.principal)] {
            if let Some(count) = counts.get_mut(name) {
                *count = count.saturating_sub(1);
                if *count == 0 {
                    counts.remove(name);
                }
            }
        }
    }

    /// Adds a post that waits, or returns it if too many of its principal wait.
    pub(crate) fn wait(&mut self, post: WaitingPost, settings: &DeliverySettings) -> Option<WaitingPost> {
        let others = self.waiting.iter().filter(|other| other.key.principal == post.key.principal).count();
        if others >= settings.waiting_per_principal {
            return Some(post);
        }
        self.waiting.push_back(post);
        None
    }

    /// Takes a place for the first waiting post that can have one.
    pub(crate) fn next(&mut self, settings: &DeliverySettings) -> Option<WaitingPost> {
        let mut waiting = std::mem::take(&mut self.waiting);
        let found = waiting.iter().position(|post| self.take(&post.key, settings));
        let next = found.and_then(|index| waiting.remove(index));
        self.waiting = waiting;
        next
    }

    /// Removes all waiting posts.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = WaitingPost> {
        std::mem::take(&mut self.waiting).into_iter()
    }
}
