//! A semaphore that serves its keys in turn.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::Hash;
use std::sync::{Arc, Mutex};

use duologue_rpc::Lock;
use tokio::sync::oneshot;

/// Divides a number of units between keys, such as sessions or hosts.
///
/// Requests of one key are served in their order. Keys with requests are served in turn. A key can have half of the
/// units, or one request of any size if it has none. Thus a key with many requests cannot block the others.
pub(crate) struct FairSemaphore<K: FairKey>(Arc<Mutex<State<K>>>);

/// The key of a user of a [`FairSemaphore`].
pub(crate) trait FairKey: Clone + Eq + Hash + Send + 'static {}

impl<K: Clone + Eq + Hash + Send + 'static> FairKey for K {}

struct State<K: FairKey> {
    capacity: usize,
    free: usize,
    last_ticket: u64,
    users: HashMap<K, User<K>>,
    /// Keys that have requests waiting, the next to be served first.
    turn: VecDeque<K>,
}

struct User<K: FairKey> {
    used: usize,
    waiting: BTreeMap<u64, (usize, oneshot::Sender<Permit<K>>)>,
}

/// Units of a [`FairSemaphore`]. Dropping it returns them.
#[must_use = "dropping the permit returns its units"]
pub(crate) struct Permit<K: FairKey> {
    state: Arc<Mutex<State<K>>>,
    key: K,
    units: usize,
    is_replaced: bool,
}

impl<K: FairKey> Permit<K> {
    /// Adds as many free units as this permit has, while its key still counts them as used. Call it for work that is
    /// stuck, so that it costs only its own key.
    #[cfg(any(test, feature = "local-host"))]
    pub(crate) fn replace(&mut self) {
        if !std::mem::replace(&mut self.is_replaced, true) {
            let mut state = self.state.lock_unpoisoned();
            state.free += self.units;
            state.grant(&self.state);
        }
    }
}

impl<K: FairKey> Clone for FairSemaphore<K> {
    fn clone(&self) -> Self {
        FairSemaphore(self.0.clone())
    }
}

impl<K: FairKey> FairSemaphore<K> {
    /// Creates a semaphore with `capacity` units, but at least one.
    pub(crate) fn new(capacity: usize) -> Self {
        let capacity = capacity.max(1);
        let state =
            State { capacity, free: capacity, last_ticket: 0, users: HashMap::new(), turn: VecDeque::new() };
        FairSemaphore(Arc::new(Mutex::new(state)))
    }

    /// Waits for `units`, or for all units if there are fewer.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future removes the request from the queue.
    pub(crate) async fn acquire(&self, key: K, units: usize) -> Permit<K> {
        let (sender, receiver) = {
            let mut state = self.0.lock_unpoisoned();
            let units = units.clamp(1, state.capacity);
            if state.turn.is_empty() && state.fits(&key, units) {
                state.take(&key, units);
                return Permit { state: self.0.clone(), key, units, is_replaced: false };
            }
            oneshot::channel()
        };
        let ticket = self.0.lock_unpoisoned().enqueue(&key, units, sender);
        let queued = QueuedRequest { state: &self.0, key: &key, ticket };
        self.0.lock_unpoisoned().grant(&self.0);
        let granted = receiver.await;
        drop(queued);
        // Only dropping the queued request drops the sender.
        granted.unwrap_or(Permit { state: self.0.clone(), key, units: 0, is_replaced: false })
    }
}

impl<K: FairKey> Default for User<K> {
    fn default() -> Self {
        User { used: 0, waiting: BTreeMap::new() }
    }
}

impl<K: FairKey> State<K> {
    /// Returns true if the units are free and the share of the key allows them.
    fn fits(&self, key: &K, units: usize) -> bool {
        let used = self.users.get(key).map_or(0, |user| user.used);
        units <= self.free && (used == 0 || used + units <= self.capacity / 2)
    }

    fn take(&mut self, key: &K, units: usize) {
        self.free -= units;
        self.users.entry(key.clone()).or_default().used += units;
    }

    fn enqueue(&mut self, key: &K, units: usize, sender: oneshot::Sender<Permit<K>>) -> u64 {
        self.last_ticket += 1;
        let units = units.clamp(1, self.capacity);
        let user = self.users.entry(key.clone()).or_default();
        if user.waiting.is_empty() {
            self.turn.push_back(key.clone());
        }
        user.waiting.insert(self.last_ticket, (units, sender));
        self.last_ticket
    }

    /// Grants all requests that can be granted. Each grant examines every waiting key at most once more. Only keys that
    /// have used their share are skipped, and there are never more of them than permits.
    fn grant(&mut self, shared: &Arc<Mutex<State<K>>>) {
        let mut passed_over = 0;
        while passed_over < self.turn.len()
            && let Some(key) = self.turn.pop_front()
        {
            let Some(user) = self.users.get_mut(&key) else { continue };
            let Some(first) = user.waiting.first_entry() else { continue };
            let units = first.get().0;
            if user.used > 0 && user.used + units > self.capacity / 2 {
                passed_over += 1;
                self.turn.push_back(key);
                continue;
            }
            if units > self.free {
                // Smaller requests behind it wait too. Otherwise it would starve.
                self.turn.push_front(key);
                return;
            }
            let (_, sender) = first.remove();
            passed_over = 0;
            if !user.waiting.is_empty() {
                self.turn.push_back(key.clone());
            }
            let permit = Permit { state: shared.clone(), key, units, is_replaced: false };
            match sender.send(permit) {
                Ok(()) => {
                    user.used += units;
                    self.free -= units;
                }
                // The request was dropped. Dropping a permit with units would lock the state again.
                Err(mut unclaimed) => unclaimed.units = 0,
            }
        }
    }

    fn forget_if_idle(&mut self, key: &K) {
        if self.users.get(key).is_some_and(|user| user.used == 0 && user.waiting.is_empty()) {
            self.users.remove(key);
        }
    }
}

impl<K: FairKey> Drop for Permit<K> {
    fn drop(&mut self) {
        if self.units == 0 {
            return;
        }
        let mut state = self.state.lock_unpoisoned();
        if !self.is_replaced {
            state.free += self.units;
        }
        if let Some(user) = state.users.get_mut(&self.key) {
            user.used -= self.units;
        }
        state.grant(&self.state);
        state.forget_if_idle(&self.key);
    }
}

/// A request in its queue, taken out when it is dropped.
struct QueuedRequest<'a, K: FairKey> {
    state: &'a Arc<Mutex<State<K>>>,
    key: &'a K,
    ticket: u64,
}

impl<K: FairKey> Drop for QueuedRequest<'_, K> {
    fn drop(&mut self) {
        let mut state = self.state.lock_unpoisoned();
        let Some(user) = state.users.get_mut(self.key) else { return };
        if user.waiting.remove(&self.ticket).is_none() {
            // It was granted, possibly to a future that was dropped.
            return state.forget_if_idle(self.key);
        }
        if user.waiting.is_empty() {
            state.turn.retain(|key| key != self.key);
        }
        // Other requests may have waited for this one.
        state.grant(self.state);
        state.forget_if_idle(self.key);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use futures::future::{BoxFuture, join_all};

    use super::*;

    type Acquire<'a> = BoxFuture<'a, Permit<char>>;

    /// Queues a request of `units` for each key.
    fn acquire<'a>(semaphore: &'a FairSemaphore<char>, keys: &str, units: usize) -> Vec<Acquire<'a>> {
        let acquire = |key| {
            let mut acquire = semaphore.acquire(key, units).boxed();
            assert!((&mut acquire).now_or_never().is_none(), "{key} was served at once");
            acquire
        };
        keys.chars().map(acquire).collect()
    }

    /// Returns the keys in the order in which their requests are served, if each permit is returned at once.
    async fn served(
        semaphore: &FairSemaphore<char>,
        waiting: Vec<Acquire<'_>>,
        first: Permit<char>,
    ) -> String {
        let order = Mutex::new(String::new());
        let order_of = async |acquire: Acquire<'_>| {
            let permit = acquire.await;
            order.lock().unwrap().push(permit.key);
        };
        drop(first);
        join_all(waiting.into_iter().map(order_of)).await;
        let state = semaphore.0.lock_unpoisoned();
        assert_eq!((state.free, state.users.len(), state.turn.len()), (state.capacity, 0, 0));
        order.into_inner().unwrap()
    }

    fn acquired(semaphore: &FairSemaphore<char>, key: char, units: usize) -> Permit<char> {
        semaphore.acquire(key, units).now_or_never().expect("there is room")
    }

    #[tokio::test]
    async fn keys_are_served_in_turn() {
        let semaphore = FairSemaphore::new(1);
        let first = acquired(&semaphore, 'z', 1);
        let waiting = acquire(&semaphore, "aaaabbc", 1);
        assert_eq!(served(&semaphore, waiting, first).await, "abcabaa");
    }

    #[test]
    fn a_key_has_at_most_half_of_the_units() {
        let semaphore = FairSemaphore::new(8);
        let two = [acquired(&semaphore, 'a', 2), acquired(&semaphore, 'a', 2)];
        let waiting = acquire(&semaphore, "a", 2);
        let other = acquired(&semaphore, 'b', 4);
        drop((two, other));
        drop(waiting);
        assert_eq!(semaphore.0.lock_unpoisoned().free, 8);
    }

    #[test]
    fn a_key_without_units_gets_one_request_of_any_size() {
        let semaphore = FairSemaphore::new(8);
        drop(acquired(&semaphore, 'a', 100));
        assert_eq!(semaphore.0.lock_unpoisoned().free, 8);
    }

    #[tokio::test]
    async fn a_large_request_does_not_starve() {
        let semaphore = FairSemaphore::new(8);
        let first = acquired(&semaphore, 'a', 1);
        let mut waiting = acquire(&semaphore, "b", 8);
        waiting.extend(acquire(&semaphore, "cc", 1));
        assert_eq!(served(&semaphore, waiting, first).await, "bcc");
    }

    /// A request that waits for many units keeps its turn while they become free one by one.
    #[test]
    fn a_large_request_is_not_passed_by_a_small_one() {
        let semaphore = FairSemaphore::new(8);
        let (first, second) = (acquired(&semaphore, 'a', 1), acquired(&semaphore, 'd', 1));
        let mut large = acquire(&semaphore, "b", 8).remove(0);
        let mut small = acquire(&semaphore, "c", 1).remove(0);
        drop(first);
        assert!((&mut large).now_or_never().is_none() && (&mut small).now_or_never().is_none());
        drop(second);
        let permit = large.now_or_never().expect("all units are free");
        assert!((&mut small).now_or_never().is_none(), "no unit is left");
        drop(permit);
        assert!(small.now_or_never().is_some());
    }

    /// A request for more units than there are waits for all of them, and one for none waits for one.
    #[test]
    fn a_waiting_request_has_at_least_one_unit_and_at_most_all() {
        for (units, granted) in [(100, 8), (8, 8), (0, 1)] {
            let semaphore = FairSemaphore::new(8);
            let first = [acquired(&semaphore, 'z', 4), acquired(&semaphore, 'y', 4)];
            let waiting = acquire(&semaphore, "a", units).remove(0);
            drop(first);
            let permit = waiting.now_or_never().expect("all units are free");
            assert_eq!((permit.units, semaphore.0.lock_unpoisoned().free), (granted, 8 - granted));
        }
    }

    /// Keys that have used their share are skipped, and the others get everything that is free.
    #[test]
    fn a_key_with_its_share_does_not_hold_up_others() {
        let semaphore = FairSemaphore::new(8);
        let _share = acquired(&semaphore, 'a', 4);
        let first = acquired(&semaphore, 'z', 4);
        let mut skipped = acquire(&semaphore, "a", 1).remove(0);
        let others = acquire(&semaphore, "bbcb", 1);
        drop(first);
        let permits: Vec<_> =
            others.into_iter().map(|other| other.now_or_never().expect("it is free")).collect();
        assert_eq!((permits.len(), semaphore.0.lock_unpoisoned().free), (4, 0));
        assert!((&mut skipped).now_or_never().is_none());
    }

    #[tokio::test]
    async fn a_dropped_request_leaves_the_queue() {
        let semaphore = FairSemaphore::new(8);
        let first = acquired(&semaphore, 'a', 4);
        let large = acquire(&semaphore, "b", 8);
        let mut waiting = acquire(&semaphore, "c", 1);
        drop(large);
        let permit = (&mut waiting[0]).now_or_never().expect("nothing is in front of it");
        drop(permit);
        drop(first);
        // A key that comes back has one turn, not two.
        let semaphore = FairSemaphore::new(1);
        let first = acquired(&semaphore, 'z', 1);
        let mut waiting = acquire(&semaphore, "a", 1);
        drop(acquire(&semaphore, "b", 1));
        waiting.extend(acquire(&semaphore, "abbc", 1));
        assert_eq!(served(&semaphore, waiting, first).await, "abcab");
    }

    #[test]
    fn an_unclaimed_permit_is_returned() {
        let semaphore = FairSemaphore::new(1);
        let first = acquired(&semaphore, 'a', 1);
        let waiting = acquire(&semaphore, "b", 1);
        drop(first);
        assert_eq!(semaphore.0.lock_unpoisoned().free, 0);
        drop(waiting);
        assert_eq!(semaphore.0.lock_unpoisoned().free, 1);
    }

    #[test]
    fn a_replaced_permit_costs_only_its_own_key() {
        let semaphore = FairSemaphore::new(4);
        let mut stuck = [acquired(&semaphore, 'a', 1), acquired(&semaphore, 'a', 1)];
        let others = [acquired(&semaphore, 'b', 1), acquired(&semaphore, 'b', 1)];
        let waiting = acquire(&semaphore, "a", 1);
        let free = acquire(&semaphore, "c", 1);
        stuck.iter_mut().for_each(Permit::replace);
        assert_eq!(semaphore.0.lock_unpoisoned().free, 1, "c has one of the two");
        drop((free, waiting, others, stuck));
        let state = semaphore.0.lock_unpoisoned();
        assert_eq!((state.free, state.users.len()), (4, 0));
    }

    #[test]
    fn a_semaphore_without_units_serves_one_request_at_a_time() {
        let semaphore = FairSemaphore::new(0);
        let first = acquired(&semaphore, 'a', 100);
        drop(acquire(&semaphore, "b", 1));
        drop(first);
        assert_eq!(semaphore.0.lock_unpoisoned().users.len(), 0);
    }
}
