//! Queues, their budget, and the reader that the budget pauses.

use std::sync::Arc;

use loom::thread;

use super::{block_on, every_order, patient};
use crate::budget::{Budget, Overrun, ReadDecision};
use crate::error::{Closed, Error};
use crate::limits::Limits;
use crate::pending::{Pending, RawResponse};
use crate::queue::{Queue, QueueSender, queue};
use crate::sync::atomic::Ordering::Relaxed;
use crate::sync::{Lock, Mutex};

fn budget(queue_bytes: usize, queue_bytes_hard: usize) -> Arc<Budget> {
    Arc::new(Budget::new(&Limits { queue_bytes, queue_bytes_hard, ..patient() }))
}

/// Processes the lines of one read, like `Reader::lines` with its pauses.
fn read(budget: &Budget, pending: &Pending, sender: &QueueSender<u32>, items: impl IntoIterator<Item = u32>) {
    let (mut overrun, mut items) = (None, items.into_iter());
    let mut lines = |overrun| {
        let _batch = budget.wakes.begin();
        for item in items.by_ref() {
            assert_eq!(sender.push(item, 2), Ok(()));
            if budget.decides(overrun) {
                return true;
            }
        }
        false
    };
    while lines(overrun) {
        pause(budget, pending, &mut overrun);
    }
}

/// `Reader::pause` without its clock and its cancellation.
fn pause(budget: &Budget, pending: &Pending, overrun: &mut Option<Overrun>) {
    block_on(async {
        loop {
            let relief = budget.relief.notified();
            let decide = budget.decide(overrun, |stream, alive| pending.any_besides(stream, alive));
            if let ReadDecision::Read = decide {
                return;
            }
            relief.await;
        }
    });
}

fn take_all(mut queue: Queue<u32>) -> (Vec<u32>, Option<Error>) {
    let mut items = Vec::new();
    loop {
        match block_on(queue.next()) {
            Some(Ok(item)) => items.push(item),
            Some(Err(error)) => return (items, Some(error)),
            None => return (items, None),
        }
    }
}

#[test]
fn no_item_is_lost_and_the_end_is_last() {
    every_order("push and finish against a consumer", || {
        let budget = budget(100, 100);
        let (sender, queue) = queue(&budget);
        let taker = thread::spawn(move || take_all(queue));
        for item in 1..=3 {
            assert_eq!(sender.push(item, 1), Ok(()));
        }
        sender.finish();
        assert_eq!(sender.push(4, 1), Err(4));
        let (items, end) = taker.join().expect("no panic");
        assert_eq!(items, [1, 2, 3]);
        assert!(end.is_none());
        assert_eq!(budget.used.load(Relaxed), 0);
    });
}

/// The budget is one byte, so the reader pauses after nearly every line and the consumer wakes it.
#[test]
fn a_paused_reader_is_woken_by_its_consumer() {
    every_order("a reader over its budget against a consumer", || {
        let budget = budget(1, 100);
        let (sender, queue) = queue(&budget);
        let taker = thread::spawn(move || take_all(queue));
        let pending = Pending::default();
        read(&budget, &pending, &sender, 1..=3);
        sender.finish();
        assert_eq!(taker.join().expect("no panic").0, [1, 2, 3]);
        assert_eq!(budget.used.load(Relaxed), 0);
    });
}

/// Two consumers empty different queues. Either of them can credit the last byte over the budget.
#[test]
fn a_paused_reader_is_woken_by_the_last_of_two_consumers() {
    every_order("a reader over its budget against two consumers", || {
        let budget = budget(1, 100);
        let takers = [1, 2].map(|item| {
            let (sender, queue) = queue(&budget);
            assert_eq!(sender.push(item, 1), Ok(()));
            sender.finish();
            thread::spawn(move || take_all(queue))
        });
        pause(&budget, &Pending::default(), &mut None);
        for taker in takers {
            assert!(taker.join().expect("no panic").1.is_none());
        }
        assert_eq!(budget.used.load(Relaxed), 0);
    });
}

/// A consumer sends a request instead of taking items. The request has to wake the reader, or its response
/// would never be read.
#[test]
fn a_paused_reader_is_woken_by_a_request() {
    every_order("a reader over its budget against a request", || {
        let budget = budget(1, 100);
        let pending = Arc::new(Pending::default());
        let (sender, queue) = queue::<u32>(&budget);
        assert_eq!(sender.push(1, 2), Ok(()));
        let asking = thread::spawn({
            let (budget, pending) = (budget.clone(), pending.clone());
            move || {
                // As `Peer::send_request` does.
                let id = pending.register(None, Box::new(|_: RawResponse<'_>| {})).ok().map(|(id, _)| id);
                budget.relief.notify_one();
                id
            }
        });
        pause(&budget, &pending, &mut None);
        assert!(asking.join().expect("no panic").is_some());
        drop(queue);
        assert_eq!(budget.used.load(Relaxed), 0);
    });
}

#[test]
fn a_paused_reader_is_woken_by_a_dropped_queue() {
    every_order("a reader over its budget against a dropped queue", || {
        let budget = budget(1, 100);
        let (sender, mut queue) = queue(&budget);
        for item in 1..=2 {
            assert_eq!(sender.push(item, 2), Ok(()));
        }
        let taker = thread::spawn(move || block_on(queue.next()).is_some());
        pause(&budget, &Pending::default(), &mut None);
        let _ = sender.push(3, 2);
        assert!(taker.join().expect("no panic"));
        assert_eq!(sender.push(4, 2), Err(4));
        assert_eq!(budget.used.load(Relaxed), 0);
    });
}

/// A stalled queue credits its bytes once, even if its consumer has a batch at that moment.
#[test]
fn a_stalled_stream_is_credited_once() {
    every_order("a stall against a consumer in the middle of a batch", || {
        let budget = budget(1, 4);
        let (sender, queue) = queue(&budget);
        for item in 1..=2 {
            assert_eq!(sender.push(item, 2), Ok(()));
        }
        let taker = thread::spawn(move || take_all(queue));
        pause(&budget, &Pending::default(), &mut None);
        sender.finish();
        let (items, end) = taker.join().expect("no panic");
        assert!([1, 2].starts_with(&items), "{items:?}");
        assert!(matches!(end, Some(Error::Stalled { .. })) || items.len() == 2, "{items:?} {end:?}");
        assert_eq!(budget.used.load(Relaxed), 0);
    });
}

/// The end reaches every queue, including one that is being created.
#[test]
fn the_end_reaches_a_queue_that_is_being_created() {
    every_order("close_all against a new queue and a push", || {
        let budget = budget(100, 100);
        let pushed = Arc::new(Mutex::new(false));
        let making = thread::spawn({
            let (budget, pushed) = (budget.clone(), pushed.clone());
            move || {
                let (sender, queue) = queue(&budget);
                *pushed.lock_unpoisoned() = sender.push(1, 1).is_ok();
                take_all(queue)
            }
        });
        budget.close_all(&Closed::EndOfInput);
        let (items, end) = making.join().expect("no panic");
        assert_eq!(items.len(), usize::from(*pushed.lock_unpoisoned()));
        assert!(matches!(end, Some(Error::Closed(Closed::EndOfInput))), "{end:?}");
        assert_eq!(budget.used.load(Relaxed), 0);
    });
}
