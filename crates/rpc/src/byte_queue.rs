//! First-in, first-out queues that count the bytes of their items.
//!
//! These are plain data: they neither lock nor wake. [`Queue`](crate::Queue) adds a lock, a waker and the memory budget
//! of a connection.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// A first-in, first-out queue that knows how many bytes its items have together.
///
/// The caller says how many bytes an item counts as, usually its length on the wire.
pub(crate) struct ByteQueue<T> {
    items: VecDeque<(T, usize)>,
    bytes: usize,
}

impl<T> Default for ByteQueue<T> {
    fn default() -> Self {
        ByteQueue::new()
    }
}

impl<T> ByteQueue<T> {
    pub(crate) const fn new() -> Self {
        ByteQueue { items: VecDeque::new(), bytes: 0 }
    }

    /// Returns the sum of the bytes of all items.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Appends an item that counts as `bytes`.
    pub(crate) fn push(&mut self, item: T, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes);
        self.items.push_back((item, bytes));
    }

    /// Removes the oldest item. Returns it with its bytes.
    pub(crate) fn pop(&mut self) -> Option<(T, usize)> {
        let (item, bytes) = self.items.pop_front()?;
        self.bytes = self.bytes.saturating_sub(bytes);
        Some((item, bytes))
    }
}

/// The limits of an [`EvictingQueue`].
#[derive(Clone, Copy, Debug)]
pub struct EvictionLimits {
    /// The most items of the queue.
    pub items: usize,
    /// The most bytes of the queue.
    pub bytes: usize,
    /// The most bytes of all queues that share a total.
    pub shared_bytes: usize,
}

/// A first-in, first-out queue of items and their bytes that evicts the oldest when it exceeds its limits.
///
/// The caller says how many bytes an item counts as, usually its length on the wire. Several queues can share a total of bytes. A push that exceeds the shared limit evicts items of the queue that
/// receives the push, even if another queue is larger.
///
/// ```
/// use std::sync::Arc;
///
/// use duologue_rpc::{EvictingQueue, EvictionLimits};
///
/// let limits = EvictionLimits { items: 2, bytes: 100, shared_bytes: usize::MAX };
/// let mut queue = EvictingQueue::new(limits, &Arc::default());
/// assert_eq!([1, 2, 3].map(|item| queue.push(item, 10)), [0, 0, 1]);
/// assert_eq!(queue.pop(), Some((2, 10)));
/// ```
pub struct EvictingQueue<T> {
    queue: ByteQueue<T>,
    limits: EvictionLimits,
    shared: Arc<AtomicUsize>,
}

impl<T> EvictingQueue<T> {
    /// Creates an empty queue. `shared` counts the bytes of all queues that share this total.
    #[must_use]
    pub fn new(limits: EvictionLimits, shared: &Arc<AtomicUsize>) -> Self {
        EvictingQueue { queue: ByteQueue::new(), limits, shared: shared.clone() }
    }

    /// Appends an item that counts as `bytes`. Returns the number of items that were dropped: the oldest, or only the
    /// new one if it exceeds the limit alone.
    pub fn push(&mut self, item: T, bytes: usize) -> u64 {
        if bytes > self.limits.bytes {
            return 1;
        }
        let mut evicted = 0;
        while !self.can_count(bytes) {
            if self.pop().is_none() {
                return evicted + 1;
            }
            evicted += 1;
        }
        self.queue.push(item, bytes);
        self.shared.fetch_add(bytes, Relaxed);
        while self.exceeds_limit() && self.pop().is_some() {
            evicted += 1;
        }
        evicted
    }

    /// Removes the oldest item. Returns it with its bytes.
    pub fn pop(&mut self) -> Option<(T, usize)> {
        let (item, bytes) = self.queue.pop()?;
        self.shared.fetch_sub(bytes, Relaxed);
        Some((item, bytes))
    }

    /// Returns the number of items.
    #[must_use]
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Returns true if there are no items.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Returns true if the shared sum, which includes that of the queue, remains a number with these bytes. Other
    /// queues change it only by lengths that are in memory, so it does not come near the limit between this check and
    /// the addition.
    fn can_count(&self, bytes: usize) -> bool {
        self.shared.load(Relaxed).checked_add(bytes).is_some()
    }

    fn exceeds_limit(&self) -> bool {
        let EvictionLimits { items, bytes, shared_bytes } = self.limits;
        self.queue.len() > items || self.queue.bytes() > bytes || self.shared.load(Relaxed) > shared_bytes
    }
}

impl<T> Drop for EvictingQueue<T> {
    fn drop(&mut self) {
        self.shared.fetch_sub(self.queue.bytes(), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: EvictionLimits = EvictionLimits { items: 3, bytes: 10, shared_bytes: 25 };

    fn items(queue: &EvictingQueue<u32>) -> Vec<u32> {
        queue.queue.items.iter().map(|(item, _)| *item).collect()
    }

    #[test]
    fn any_number_of_bytes_is_counted() {
        let limits = EvictionLimits { items: 3, bytes: usize::MAX, shared_bytes: usize::MAX };
        let shared = Arc::default();
        let mut queue = EvictingQueue::new(limits, &shared);
        assert_eq!(queue.push(1, usize::MAX), 0);
        assert_eq!(queue.push(2, usize::MAX), 1);
        assert_eq!(EvictingQueue::new(limits, &shared).push(3, 1), 1);
        assert_eq!(items(&queue), [2]);
        drop(queue);
        assert_eq!(shared.load(Relaxed), 0);
    }

    #[test]
    fn the_oldest_items_are_evicted_first() {
        let shared = Arc::default();
        let mut queue = EvictingQueue::new(LIMITS, &shared);
        assert_eq!([1, 2, 3, 4].map(|item| queue.push(item, 1)), [0, 0, 0, 1]);
        assert_eq!(items(&queue), [2, 3, 4]);
        assert_eq!(queue.push(5, 9), 2);
        assert_eq!(items(&queue), [4, 5]);
        // An item over the limit is dropped itself, and evicts nothing.
        assert_eq!(queue.push(6, 11), 1);
        assert_eq!((items(&queue), shared.load(Relaxed)), (vec![4, 5], 10));
    }

    #[test]
    fn the_queue_that_receives_the_push_evicts_for_the_shared_limit() {
        let shared = Arc::default();
        let [mut first, mut second, mut third] = [(); 3].map(|()| EvictingQueue::new(LIMITS, &shared));
        assert_eq!([first.push(1, 10), second.push(2, 10), third.push(3, 5)], [0; 3]);
        assert_eq!(third.push(4, 1), 1);
        assert_eq!((items(&first), items(&second), items(&third)), (vec![1], vec![2], vec![4]));
        assert_eq!((first.pop(), first.is_empty()), (Some((1, 10)), true));
        assert_eq!(third.push(5, 9), 0);
        drop((first, second, third));
        assert_eq!(shared.load(Relaxed), 0);
    }

    #[test]
    fn bytes_follow_the_items() {
        let mut queue = ByteQueue::new();
        queue.push('a', 1);
        queue.push('b', 2);
        assert_eq!((queue.len(), queue.bytes()), (2, 3));
        assert_eq!(queue.pop(), Some(('a', 1)));
        assert_eq!((queue.pop(), queue.pop(), queue.bytes()), (Some(('b', 2)), None, 0));
    }
}
