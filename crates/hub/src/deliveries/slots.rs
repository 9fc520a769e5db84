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

    /// Returns true if a post can have a place. A principal never has more than are free for others, so that several slow
    /// ones do not take all.
    fn may_take(&self, key: &SlotKey, settings: &DeliverySettings) -> bool {
        let free = settings.concurrent.max(1).saturating_sub(self.running);
        let own = count_of(&self.principals, &key.principal);
        own < free && count_of(&self.hosts, &key.host) < settings.per_host.max(1)
    }

    /// Takes a place if there is one.
    pub(crate) fn take(&mut self, key: &SlotKey, settings: &DeliverySettings) -> bool {
        let is_free = self.may_take(key, settings);
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

    /// Takes a place for a waiting post that can have one: the first one of the principal with the fewest that run.
    pub(crate) fn next(&mut self, settings: &DeliverySettings) -> Option<WaitingPost> {
        let ready = self.waiting.iter().enumerate().filter(|(_, post)| self.may_take(&post.key, settings));
        let first = ready.min_by_key(|(_, post)| count_of(&self.principals, &post.key.principal));
        let next = first.map(|(index, _)| index).and_then(|index| self.waiting.remove(index))?;
        self.take(&next.key, settings);
        Some(next)
    }

    /// Removes all waiting posts.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = WaitingPost> {
        std::mem::take(&mut self.waiting).into_iter()
    }
}

fn count_of(counts: &HashMap<String, usize>, name: &str) -> usize {
    counts.get(name).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(principal: &str, number: usize) -> SlotKey {
        SlotKey { host: format!("{principal}{number}.example"), principal: principal.to_owned() }
    }

    #[test]
    fn slow_principals_leave_places_for_others() {
        let (mut slots, settings) = (DeliverySlots::default(), DeliverySettings::default());
        let mut fill =
            |principal: &str| (0..100).filter(|it| slots.take(&key(principal, *it), &settings)).count();
        assert_eq!(["a", "b", "c", "d", "e"].map(&mut fill), [32, 16, 8, 4, 2]);
        assert_eq!(["f", "g", "h"].map(fill), [1, 1, 0]);
    }
}
