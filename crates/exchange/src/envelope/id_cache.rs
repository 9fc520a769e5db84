//! A bounded cache of ids.
//!
//! The replay cache of dialogues is another type: it evicts by send time, compares contents, and
//! rejects messages as old as evicted ones. Envelopes have no authentic send time.

use std::collections::{HashSet, VecDeque};
use std::hash::{BuildHasher, RandomState};

use crate::limits::ENVELOPE_IDS;

/// A cache of the last [`ENVELOPE_IDS`] ids. It stores a fingerprint of each, because a peer may
/// choose ids of any length.
pub(crate) struct IdCache {
    states: [RandomState; 2],
    known: HashSet<u128>,
    order: VecDeque<u128>,
}

impl Default for IdCache {
    fn default() -> Self {
        let states = [RandomState::new(), RandomState::new()];
        IdCache { states, known: HashSet::new(), order: VecDeque::new() }
    }
}

impl IdCache {
    /// Adds an id; returns false if it was already present.
    pub(crate) fn insert(&mut self, id: &str) -> bool {
        let print = self.fingerprint(id);
        if !self.known.insert(print) {
            return false;
        }
        if self.order.len() == ENVELOPE_IDS
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
        self.order.push_back(print);
        true
    }

    /// Returns true if the id is present.
    pub(crate) fn contains(&self, id: &str) -> bool {
        self.known.contains(&self.fingerprint(id))
    }

    /// Hashes an id with random keys, so that a peer cannot construct two ids with the same
    /// fingerprint.
    fn fingerprint(&self, id: &str) -> u128 {
        let [low, high] = self.states.each_ref().map(|state| u128::from(state.hash_one(id)));
        high << 64 | low
    }
}

#[cfg(test)]
mod tests {
    use super::IdCache;
    use crate::limits::ENVELOPE_IDS;

    #[test]
    fn the_oldest_id_is_evicted() {
        let mut seen = IdCache::default();
        assert!(seen.insert("first") && !seen.insert("first"));
        for number in 0..ENVELOPE_IDS {
            assert!(seen.insert(&number.to_string()));
        }
        assert_eq!((seen.known.len(), seen.order.len()), (ENVELOPE_IDS, ENVELOPE_IDS));
        assert!(!seen.contains("first") && seen.contains("0") && seen.insert("first"));
    }
}
