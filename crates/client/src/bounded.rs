//! What is kept of a session within bounds: its own, and those of all sessions of a connection together.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// How much may be kept.
pub(crate) struct Bounds {
    pub(crate) items: usize,
    pub(crate) bytes: usize,
    /// Bytes of all queues that share a total.
    pub(crate) together: usize,
}

/// A queue that forgets its oldest items when there are too many, in it or in all that share its total: who is
/// given more pays, whoever has most.
pub(crate) struct Bounded<T> {
    items: VecDeque<(T, usize)>,
    bytes: usize,
    bounds: &'static Bounds,
    together: Arc<AtomicUsize>,
}

impl<T> Bounded<T> {
    pub(crate) fn new(bounds: &'static Bounds, together: &Arc<AtomicUsize>) -> Self {
        Bounded { items: VecDeque::new(), bytes: 0, bounds, together: together.clone() }
    }

    /// Appends an item, and tells how many were forgotten for it.
    pub(crate) fn push(&mut self, item: T, bytes: usize) -> u64 {
        self.items.push_back((item, bytes));
        self.bytes += bytes;
        self.together.fetch_add(bytes, Relaxed);
        let mut forgotten = 0;
        while self.is_over() && self.pop().is_some() {
            forgotten += 1;
        }
        forgotten
    }

    pub(crate) fn pop(&mut self) -> Option<(T, usize)> {
        let item = self.items.pop_front();
        self.taken(item)
    }

    fn is_over(&self) -> bool {
        let Bounds { items, bytes, together } = *self.bounds;
        self.items.len() > items || self.bytes > bytes || self.together.load(Relaxed) > together
    }

    fn taken(&mut self, item: Option<(T, usize)>) -> Option<(T, usize)> {
        let bytes = item.as_ref().map_or(0, |(_, bytes)| *bytes);
        self.bytes -= bytes;
        self.together.fetch_sub(bytes, Relaxed);
        item
    }
}

impl<T> Drop for Bounded<T> {
    fn drop(&mut self) {
        self.together.fetch_sub(self.bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds { items: 3, bytes: 10, together: 25 };

    fn kept(queue: &Bounded<u32>) -> Vec<u32> {
        queue.items.iter().map(|(item, _)| *item).collect()
    }

    #[test]
    fn the_oldest_go_first() {
        let together = Arc::default();
        let mut queue = Bounded::new(&BOUNDS, &together);
        assert_eq!([1, 2, 3, 4].map(|item| queue.push(item, 1)), [0, 0, 0, 1]);
        assert_eq!(kept(&queue), [2, 3, 4]);
        assert_eq!(queue.push(5, 9), 2);
        assert_eq!(kept(&queue), [4, 5]);
        // One that is too long alone leaves nothing.
        assert_eq!(queue.push(6, 11), 3);
        assert_eq!((kept(&queue), together.load(Relaxed)), (vec![], 0));
    }

    #[test]
    fn who_is_given_more_pays_for_all_together() {
        let together = Arc::default();
        let [mut first, mut second, mut third] = [(); 3].map(|()| Bounded::new(&BOUNDS, &together));
        assert_eq!([first.push(1, 10), second.push(2, 10), third.push(3, 5)], [0; 3]);
        assert_eq!(third.push(4, 1), 1);
        assert_eq!((kept(&first), kept(&second), kept(&third)), (vec![1], vec![2], vec![4]));
        assert_eq!(first.pop(), Some((1, 10)));
        assert_eq!(third.push(5, 9), 0);
        drop((first, second, third));
        assert_eq!(together.load(Relaxed), 0);
    }
}
