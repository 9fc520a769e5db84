//! Places that principals share: each has at most as many as it leaves to the others.

use std::collections::HashMap;

/// Returns true if an owner with `own` places may take one of those that are `free`. It never has more than are free
/// for others, except the last one, which goes to an owner without any.
pub(crate) fn may_take_one(own: usize, free: usize) -> bool {
    own < free
}

/// The places that are taken, by their owner.
#[derive(Debug, Default)]
pub(crate) struct FairPlaces {
    taken: usize,
    owners: HashMap<String, usize>,
}

impl FairPlaces {
    /// Returns the number of places that are taken.
    pub(crate) fn taken(&self) -> usize {
        self.taken
    }

    /// Returns the number of places of an owner.
    pub(crate) fn count_of(&self, owner: &str) -> usize {
        self.owners.get(owner).copied().unwrap_or_default()
    }

    /// Returns true if an owner may take one of so many places.
    pub(crate) fn may_take(&self, owner: &str, places: usize) -> bool {
        may_take_one(self.count_of(owner), places.saturating_sub(self.taken))
    }

    /// Returns the owners that have places and may not take another one.
    pub(crate) fn full_owners(&self, places: usize) -> Vec<String> {
        self.owners.keys().filter(|owner| !self.may_take(owner, places)).cloned().collect()
    }

    /// Counts a place, whether it was free or not.
    pub(crate) fn add(&mut self, owner: &str) {
        self.taken += 1;
        *self.owners.entry(owner.to_owned()).or_default() += 1;
    }

    /// Returns a place.
    pub(crate) fn release(&mut self, owner: &str) {
        if let Some(count) = self.owners.get_mut(owner) {
            self.taken -= 1;
            *count -= 1;
            if *count == 0 {
                self.owners.remove(owner);
            }
        }
    }
}
