//! Places that are counted for each owner of one.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex};

use duologue_rpc::Lock as _;

/// The places that are taken, by their owner.
#[derive(Clone, Debug)]
pub(crate) struct PlaceCounts<K>(Arc<Mutex<HashMap<K, usize>>>);

impl<K> Default for PlaceCounts<K> {
    fn default() -> Self {
        PlaceCounts(Arc::default())
    }
}

/// A place that is taken until it is dropped.
#[derive(Debug)]
pub(crate) struct CountedPlace<K: Clone + Eq + Hash> {
    counts: PlaceCounts<K>,
    owner: K,
}

impl<K: Clone + Eq + Hash> PlaceCounts<K> {
    /// Takes a place, or returns `None` if the owner has `limit` of them.
    pub(crate) fn take(&self, owner: &K, limit: usize) -> Option<CountedPlace<K>> {
        let mut counts = self.0.lock_unpoisoned();
        if counts.get(owner).copied().unwrap_or_default() >= limit {
            return None;
        }
        *counts.entry(owner.clone()).or_default() += 1;
        Some(CountedPlace { counts: self.clone(), owner: owner.clone() })
    }
}

impl<K: Clone + Eq + Hash> Drop for CountedPlace<K> {
    fn drop(&mut self) {
        let mut counts = self.counts.0.lock_unpoisoned();
        if let Some(count) = counts.get_mut(&self.owner) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.owner);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_owner_has_its_places() {
        let counts = PlaceCounts::default();
        let first = counts.take(&"a", 1);
        assert!(first.is_some() && counts.take(&"a", 1).is_none() && counts.take(&"b", 1).is_some());
        drop(first);
        assert!(counts.take(&"a", 1).is_some() && counts.take(&"a", 0).is_none());
        assert!(counts.0.lock_unpoisoned().is_empty());
    }
}
