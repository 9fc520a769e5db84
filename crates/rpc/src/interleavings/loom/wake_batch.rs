//! Batched wake-ups against wake-ups from outside the reader.

use std::sync::Arc;

use loom::thread;

use super::{block_on, every_order, patient};
use crate::budget::Budget;
use crate::queue::{Queue, queue};

/// Takes `count` items. No later item can hide a lost wake-up.
fn take(mut queue: Queue<u32>, count: usize) -> Vec<u32> {
    let taken = (0..count).map(|_| block_on(queue.next()));
    taken.map(|item| item.expect("no end").expect("no error")).collect()
}

fn take_all(mut queue: Queue<u32>) -> Vec<u32> {
    let next = || block_on(queue.next()).map(|item| item.expect("no error"));
    std::iter::from_fn(next).collect()
}

#[test]
fn a_push_from_outside_is_received_during_a_batch() {
    every_order("two pushes in a batch, one from outside, a consumer", || {
        let budget = Arc::new(Budget::new(&patient()));
        let (sender, queue) = queue(&budget);
        let taker = thread::spawn(move || take(queue, 3));
        let outside = thread::spawn({
            let sender = sender.clone();
            move || sender.push(3, 1)
        });
        let batch = budget.wakes.begin();
        assert_eq!([1, 2].map(|item| sender.push(item, 1)), [Ok(()); 2]);
        drop(batch);
        assert_eq!(outside.join().expect("no panic"), Ok(()));
        let taken = taker.join().expect("no panic");
        assert!([[1, 2, 3], [1, 3, 2], [3, 1, 2]].iter().any(|order| taken == order), "{taken:?}");
    });
}

#[test]
fn an_end_from_outside_is_received_during_a_batch() {
    every_order("two pushes in a batch, finish from outside, a consumer", || {
        let budget = Arc::new(Budget::new(&patient()));
        let (sender, queue) = queue(&budget);
        let taker = thread::spawn(move || take_all(queue));
        let outside = thread::spawn({
            let sender = sender.clone();
            move || sender.finish()
        });
        let batch = budget.wakes.begin();
        let pushed = [1, 2].map(|item| sender.push(item, 1));
        drop(batch);
        outside.join().expect("no panic");
        let expected: Vec<u32> =
            (1..).zip(pushed).filter(|(_, pushed)| pushed.is_ok()).map(|(item, _)| item).collect();
        assert_eq!(taker.join().expect("no panic"), expected);
    });
}

/// Two consumers are woken by the end of the same batch. The second batch begins before they run.
#[test]
fn each_batch_wakes_its_consumers() {
    every_order("two batches, two consumers", || {
        let budget = Arc::new(Budget::new(&patient()));
        let streams = [queue(&budget), queue(&budget)];
        let (senders, takers): (Vec<_>, Vec<_>) = streams
            .into_iter()
            .map(|(sender, queue)| (sender, thread::spawn(move || take(queue, 2))))
            .unzip();
        for item in 1..=2 {
            let _batch = budget.wakes.begin();
            for sender in &senders {
                assert_eq!(sender.push(item, 1), Ok(()));
            }
        }
        for taker in takers {
            assert_eq!(taker.join().expect("no panic"), [1, 2]);
        }
    });
}
