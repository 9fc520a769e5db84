//! The places of posts that run or wait, in total, per host and per principal.

use std::collections::{HashMap, VecDeque};

use duologue_store::LeaseToken;

use crate::deliveries::DeliverySettings;
use crate::fair_places::FairPlaces;

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
    all: FairPlaces,
    hosts: HashMap<String, FairPlaces>,
    waiting: VecDeque<WaitingPost>,
}

impl DeliverySlots {
    /// Returns the number of posts that can be claimed.
    pub(crate) fn room(&self, settings: &DeliverySettings) -> usize {
        settings.waiting.max(1).saturating_sub(self.waiting.len())
    }

    /// Returns true if a post can have a place, in total and at its host.
    fn may_take(&self, key: &SlotKey, settings: &DeliverySettings) -> bool {
        let at_host = self.hosts.get(&key.host);
        self.all.may_take(&key.principal, settings.concurrent.max(1))
            && at_host.is_none_or(|host| host.may_take(&key.principal, settings.per_host.max(1)))
    }

    /// Takes a place if there is one.
    pub(crate) fn take(&mut self, key: &SlotKey, settings: &DeliverySettings) -> bool {
        let is_free = self.may_take(key, settings);
        if is_free {
            self.all.add(&key.principal);
            self.hosts.entry(key.host.clone()).or_default().add(&key.principal);
        }
        is_free
    }

    /// Returns a place.
    pub(crate) fn release(&mut self, key: &SlotKey) {
        self.all.release(&key.principal);
        if let Some(host) = self.hosts.get_mut(&key.host) {
            host.release(&key.principal);
            if host.taken() == 0 {
                self.hosts.remove(&key.host);
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
        let first = ready.min_by_key(|(_, post)| self.all.count_of(&post.key.principal));
        let next = first.map(|(index, _)| index).and_then(|index| self.waiting.remove(index))?;
        self.take(&next.key, settings);
        Some(next)
    }

    /// Removes all waiting posts.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = WaitingPost> {
        std::mem::take(&mut self.waiting).into_iter()
    }
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

    #[test]
    fn a_slow_principal_leaves_places_of_a_host_for_others() {
        let (mut slots, settings) = (DeliverySlots::default(), DeliverySettings::default());
        let at_host = |principal: &str| SlotKey { host: "shared.example".to_owned(), ..key(principal, 0) };
        let mut fill =
            |principal: &str| (0..100).filter(|_| slots.take(&at_host(principal), &settings)).count();
        assert_eq!(["a", "b", "c", "d", "e"].map(&mut fill), [4, 2, 1, 1, 0]);
        slots.release(&at_host("a"));
        assert!(!slots.take(&at_host("a"), &settings) && slots.take(&at_host("e"), &settings));
    }
}
