//! Wakers that are held while the reader is at work, against those that are not.

use std::sync::Arc;

use loom::thread;

use super::{block_on, every_order, patient};
use crate::budget::Budget;
use crate::queue::{Queue, queue};

/// Takes so many items: none comes after them that could make up for a lost wake-up.
fn take(mut queue: Queue<u32>, count: usize) -> Vec<u32> {
    let taken = (0..count).map(|_| block_on(queue.next()));
    taken.map(|item| item.expect("no end").expect("no error")).collect()
}

fn take_all(mut queue: Queue<u32>) -> Vec<u32> {
    let next = || block_on(queue.next()).map(|item| item.expect("no error"));
    std::iter::from_fn(next).collect()
}

#[test]
fn a_push_from_outside_is_heard_beside_a_hold() {
    every_order("two pushes under a hold, one from outside, a taker", || {
        let budget = Arc::new(Budget::new(&patient()));
        let (sender, queue) = queue(&budget);
        let taker = thread::spawn(move || take(queue, 3));
        let outside = thread::spawn({
            let sender = sender.clone();
            move || sender.push(3, 1)
        });
        let together = budget.wakes.hold();
        assert_eq!([1, 2].map(|item| sender.push(item, 1)), [Ok(()); 2]);
        drop(together);
        assert_eq!(outside.join().expect("no panic"), Ok(()));
        let taken = taker.join().expect("no panic");
        assert!([[1, 2, 3], [1, 3, 2], [3, 1, 2]].iter().any(|order| taken == order), "{taken:?}");
    });
}

#[test]
fn an_end_from_outside_is_heard_beside_a_hold() {
    every_order("two pushes under a hold, finish from outside, a taker", || {
        let budget = Arc::new(Budget::new(&patient()));
        let (sender, queue) = queue(&budget);
        let taker = thread::spawn(move || take_all(queue));
        let outside = thread::spawn({
            let sender = sender.clone();
            move || sender.finish()
        });
        let together = budget.wakes.hold();
        let pushed = [1, 2].map(|item| sender.push(item, 1));
        drop(together);
        outside.join().expect("no panic");
        let expected: Vec<u32> =
            (1..).zip(pushed).filter(|(_, pushed)| pushed.is_ok()).map(|(item, _)| item).collect();
        assert_eq!(taker.join().expect("no panic"), expected);
    });
}

/// Two takers, woken by the same drop; the second hold begins before they have come back.
#[test]
fn each_hold_wakes_those_it_held() {
    every_order("two holds, two takers", || {
        let budget = Arc::new(Budget::new(&patient()));
        let streams = [queue(&budget), queue(&budget)];
        let (senders, takers): (Vec<_>, Vec<_>) = streams
            .into_iter()
            .map(|(sender, queue)| (sender, thread::spawn(move || take(queue, 2))))
            .unzip();
        for item in 1..=2 {
            let _together = budget.wakes.hold();
            for sender in &senders {
                assert_eq!(sender.push(item, 1), Ok(()));
            }
        }
        for taker in takers {
            assert_eq!(taker.join().expect("no panic"), [1, 2]);
        }
    });
}
