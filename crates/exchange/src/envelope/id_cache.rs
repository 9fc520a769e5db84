//! A bounded cache of ids.
//!
//! The replay cache of dialogues is another type: it evicts by send time, compares contents, and
//! rejects messages as old as evicted ones. Envelopes have no authentic send time.

use std::collections::{HashSet, VecDeque};
use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher as _, RandomState};
use std::io;

use serde::Serialize;

use crate::limits::ENVELOPE_IDS;

/// A cache of the last [`ENVELOPE_IDS`] ids. It stores a fingerprint of each, because a peer may
/// choose ids of any length.
#[derive(Default)]
pub(crate) struct IdCache {
    prints: Fingerprints,
    known: HashSet<u128>,
    order: VecDeque<u128>,
}

impl IdCache {
    /// Adds an id; returns false if it was already present. A foreign id is added with its sender.
    pub(crate) fn insert(&mut self, id: impl Hash) -> bool {
        let print = self.prints.of(id);
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
    pub(crate) fn contains(&self, id: impl Hash) -> bool {
        self.known.contains(&self.prints.of(id))
    }
}

/// Hashes values with random keys, so that a peer cannot construct two with the same fingerprint.
pub(crate) struct Fingerprints([RandomState; 2]);

impl Default for Fingerprints {
    fn default() -> Self {
        Fingerprints([RandomState::new(), RandomState::new()])
    }
}

impl Fingerprints {
    pub(crate) fn of(&self, value: impl Hash) -> u128 {
        let [low, high] = self.0.each_ref().map(|state| u128::from(state.hash_one(&value)));
        high << 64 | low
    }

    /// Returns the fingerprint of the JSON of a value, without storing its text.
    pub(crate) fn of_json(&self, value: &impl Serialize) -> u128 {
        let mut hashers = JsonHashers(self.0.each_ref().map(BuildHasher::build_hasher));
        // A value that was decoded can be encoded, and the hashers do not fail.
        let _ = serde_json::to_writer(&mut hashers, value);
        let [low, high] = hashers.0.map(|hasher| u128::from(hasher.finish()));
        high << 64 | low
    }
}

/// Hashes what is written.
struct JsonHashers([DefaultHasher; 2]);

impl io::Write for JsonHashers {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.iter_mut().for_each(|hasher| hasher.write(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
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
            assert!(seen.insert(number.to_string()));
        }
        assert_eq!((seen.known.len(), seen.order.len()), (ENVELOPE_IDS, ENVELOPE_IDS));
        assert!(!seen.contains("first") && seen.contains("0") && seen.insert("first"));
    }
}
