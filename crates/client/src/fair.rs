//! A semaphore that serves its keys in turn.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::Hash;
use std::sync::{Arc, Mutex};

use duologue_rpc::Lock;
use tokio::sync::oneshot;

/// Divides a number of units between keys: sessions, say, or hosts.
///
/// Requests of one key are served in the order they were made, keys with requests one after the other. A key may
/// hold half of the units, or one request of any size while it holds nothing, so that a key with many requests
/// cannot keep the others out.
pub(crate) struct FairSemaphore<K: FairKey>(Arc<Mutex<State<K>>>);

/// Names one of the users of a [`FairSemaphore`].
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
    held: usize,
    waiting: BTreeMap<u64, (usize, oneshot::Sender<Permit<K>>)>,
}

/// Units of a [`FairSemaphore`], returned when it is dropped.
#[must_use = "the units are returned when it is dropped"]
pub(crate) struct Permit<K: FairKey> {
    state: Arc<Mutex<State<K>>>,
    key: K,
    units: usize,
    is_replaced: bool,
}

impl<K: FairKey> Permit<K> {
    /// Gives the others as many units as this permit holds, which its key still counts as held. For work that
    /// does not end: it costs its own key, and nobody else.
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
    /// Creates a semaphore of `capacity` units, and of one if that is 0.
    pub(crate) fn new(capacity: usize) -> Self {
        let capacity = capacity.max(1);
        let state =
            State { capacity, free: capacity, last_ticket: 0, users: HashMap::new(), turn: VecDeque::new() };
        FairSemaphore(Arc::new(Mutex::new(state)))
    }

    /// Waits for `units`, or for all of them if there are fewer.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives the place in the queue back.
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
        User { held: 0, waiting: BTreeMap::new() }
    }
}

impl<K: FairKey> State<K> {
    /// Returns true if these units are free, and the key may have them.
    fn fits(&self, key: &K, units: usize) -> bool {
        let held = self.users.get(key).map_or(0, |user| user.held);
        units <= self.free && (held == 0 || held + units <= self.capacity / 2)
    }

    fn take(&mut self, key: &K, units: usize) {
        self.free -= units;
        self.users.entry(key.clone()).or_default().held += units;
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

    /// Grants what can be granted. It looks at the first request of each waiting key at most once more than it
    /// grants, and only keys that hold their share are passed over: never more than there are permits.
    fn grant(&mut self, shared: &Arc<Mutex<State<K>>>) {
        let mut passed_over = 0;
        while passed_over < self.turn.len()
            && let Some(key) = self.turn.pop_front()
        {
            let Some(user) = self.users.get_mut(&key) else { continue };
            let Some(first) = user.waiting.first_entry() else { continue };
            let units = first.get().0;
            if user.held > 0 && user.held + units > self.capacity / 2 {
                passed_over += 1;
                self.turn.push_back(key);
                continue;
            }
            if units > self.free {
                // Smaller requests behind it wait too, or it would wait for ever.
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
                    user.held += units;
                    self.free -= units;
                }
                // Nobody waits for it. Dropping it as it is would lock the state again.
                Err(mut unclaimed) => unclaimed.units = 0,
            }
        }
    }

    fn forget_if_idle(&mut self, key: &K) {
        if self.users.get(key).is_some_and(|user| user.held == 0 && user.waiting.is_empty()) {
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
            user.held -= self.units;
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
            // It was granted, or would have been to a future that is gone.
            return state.forget_if_idle(self.key);
        }
        if user.waiting.is_empty() {
            state.turn.retain(|key| key != self.key);
        }
        // It may have been the one that the others waited for.
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

    /// Requests in the order of the letters, each of so many units.
    fn acquire<'a>(semaphore: &'a FairSemaphore<char>, keys: &str, units: usize) -> Vec<Acquire<'a>> {
        let acquire = |key| {
            let mut acquire = semaphore.acquire(key, units).boxed();
            assert!((&mut acquire).now_or_never().is_none(), "{key} was served at once");
            acquire
        };
        keys.chars().map(acquire).collect()
    }

    /// The keys in the order in which requests are served when each permit is returned at once.
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

    fn held(semaphore: &FairSemaphore<char>, key: char, units: usize) -> Permit<char> {
        semaphore.acquire(key, units).now_or_never().expect("there is room")
    }

    #[tokio::test]
    async fn keys_are_served_in_turn() {
        let semaphore = FairSemaphore::new(1);
        let first = held(&semaphore, 'z', 1);
        let waiting = acquire(&semaphore, "aaaabbc", 1);
        assert_eq!(served(&semaphore, waiting, first).await, "abcabaa");
    }

    #[test]
    fn a_key_holds_half_at_most() {
        let semaphore = FairSemaphore::new(8);
        let two = [held(&semaphore, 'a', 2), held(&semaphore, 'a', 2)];
        let waiting = acquire(&semaphore, "a", 2);
        let other = held(&semaphore, 'b', 4);
        drop((two, other));
        drop(waiting);
        assert_eq!(semaphore.0.lock_unpoisoned().free, 8);
    }

    #[test]
    fn a_key_without_units_gets_one_request_of_any_size() {
        let semaphore = FairSemaphore::new(8);
        drop(held(&semaphore, 'a', 100));
        assert_eq!(semaphore.0.lock_unpoisoned().free, 8);
    }

    #[tokio::test]
    async fn a_large_request_is_not_overtaken_for_ever() {
        let semaphore = FairSemaphore::new(8);
        let first = held(&semaphore, 'a', 1);
        let mut waiting = acquire(&semaphore, "b", 8);
        waiting.extend(acquire(&semaphore, "cc", 1));
        assert_eq!(served(&semaphore, waiting, first).await, "bcc");
    }

    #[tokio::test]
    async fn a_dropped_request_gives_its_place_back() {
        let semaphore = FairSemaphore::new(8);
        let first = held(&semaphore, 'a', 4);
        let large = acquire(&semaphore, "b", 8);
        let waiting = acquire(&semaphore, "c", 1);
        drop(large);
        assert_eq!(served(&semaphore, waiting, first).await, "c");
    }

    #[test]
    fn a_permit_that_nobody_takes_is_returned() {
        let semaphore = FairSemaphore::new(1);
        let first = held(&semaphore, 'a', 1);
        let waiting = acquire(&semaphore, "b", 1);
        drop(first);
        assert_eq!(semaphore.0.lock_unpoisoned().free, 0);
        drop(waiting);
        assert_eq!(semaphore.0.lock_unpoisoned().free, 1);
    }

    #[test]
    fn a_replaced_permit_costs_its_own_key_alone() {
        let semaphore = FairSemaphore::new(4);
        let mut stuck = [held(&semaphore, 'a', 1), held(&semaphore, 'a', 1)];
        let others = [held(&semaphore, 'b', 1), held(&semaphore, 'b', 1)];
        let waiting = acquire(&semaphore, "a", 1);
        let free = acquire(&semaphore, "c", 1);
        stuck.iter_mut().for_each(Permit::replace);
        assert_eq!(semaphore.0.lock_unpoisoned().free, 1, "c has one of the two");
        drop((free, waiting, others, stuck));
        let state = semaphore.0.lock_unpoisoned();
        assert_eq!((state.free, state.users.len()), (4, 0));
    }

    #[test]
    fn a_semaphore_of_nothing_serves_one_at_a_time() {
        let semaphore = FairSemaphore::new(0);
        let first = held(&semaphore, 'a', 100);
        drop(acquire(&semaphore, "b", 1));
        drop(first);
        assert_eq!(semaphore.0.lock_unpoisoned().users.len(), 0);
    }
}
