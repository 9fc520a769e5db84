//! A table of requests that wait for their response.

use std::collections::BTreeMap;

/// A table of requests that wait for their response, by their ids.
///
/// After [`close`](Self::close) the table rejects new entries with the reason of the end, so no request can be added
/// that nobody will answer. The table is plain data: its owner locks it.
///
/// ```
/// use duologue_rpc::PendingTable;
///
/// let mut table = PendingTable::default();
/// assert_eq!(table.insert(1, "first"), Ok(None));
/// assert_eq!(table.insert(2, "second"), Ok(None));
/// assert_eq!(table.remove(&1), Some("first"));
/// assert_eq!(table.close("the connection ended").collect::<Vec<_>>(), ["second"]);
/// assert_eq!(table.insert(3, "third"), Err(("the connection ended", "third")));
/// ```
#[derive(Debug)]
pub struct PendingTable<K, V, R> {
    /// Sorted by id, so that the end reaches numbered requests in the order in which they were made.
    entries: BTreeMap<K, V>,
    closed: Option<R>,
}

impl<K, V, R> Default for PendingTable<K, V, R> {
    fn default() -> Self {
        PendingTable { entries: BTreeMap::new(), closed: None }
    }
}

impl<K: Ord, V, R: Clone> PendingTable<K, V, R> {
    /// Adds a request and returns an earlier one with the same id. Call this before the request is sent, so that no
    /// response can arrive too early.
    ///
    /// # Errors
    ///
    /// The reason of the end and the value, after [`close`](Self::close). The owner of the table can drop the value
    /// outside its lock.
    pub fn insert(&mut self, id: K, value: V) -> Result<Option<V>, (R, V)> {
        match &self.closed {
            Some(reason) => Err((reason.clone(), value)),
            None => Ok(self.entries.insert(id, value)),
        }
    }

    /// Removes a request. Returns `None` if it has its response already.
    pub fn remove(&mut self, id: &K) -> Option<V> {
        self.entries.remove(id)
    }

    /// Removes a request if `fits` returns true for it.
    pub fn remove_if(&mut self, id: &K, fits: impl FnOnce(&V) -> bool) -> Option<V> {
        if fits(self.entries.get(id)?) { self.entries.remove(id) } else { None }
    }

    /// Returns a request.
    #[must_use]
    pub fn get(&self, id: &K) -> Option<&V> {
        self.entries.get(id)
    }

    /// Returns a request to be changed.
    pub fn get_mut(&mut self, id: &K) -> Option<&mut V> {
        self.entries.get_mut(id)
    }

    /// Iterates over the requests, sorted by id.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.entries.values()
    }

    /// Returns the number of requests that wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns true if no request waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Removes all requests and rejects later ones. The first reason is kept.
    pub fn close(&mut self, reason: R) -> impl Iterator<Item = V> + use<K, V, R> {
        self.closed.get_or_insert(reason);
        std::mem::take(&mut self.entries).into_values()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_removed_only_by_a_response_that_fits() {
        let mut table = PendingTable::<_, _, ()>::default();
        table.insert("id", 7).unwrap();
        assert_eq!(table.remove_if(&"id", |kind| *kind == 8), None);
        assert_eq!(table.remove_if(&"other", |_| true), None);
        assert_eq!(table.remove_if(&"id", |kind| *kind == 7), Some(7));
        assert!(table.is_empty());
    }

    #[test]
    fn the_first_reason_of_the_end_is_kept() {
        let mut table = PendingTable::<u64, (), _>::default();
        assert_eq!([table.close("first").count(), table.close("second").count()], [0, 0]);
        assert_eq!(table.insert(1, ()), Err(("first", ())));
    }

    #[test]
    fn a_second_request_with_an_id_returns_the_first() {
        let mut table = PendingTable::<_, _, ()>::default();
        assert_eq!([table.insert("id", 1), table.insert("id", 2)], [Ok(None), Ok(Some(1))]);
        assert_eq!(table.remove(&"id"), Some(2));
    }
}
