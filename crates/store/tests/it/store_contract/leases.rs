//! Leases: renewal, loss, and tokens of others. Wake-ups of those that wait.

use std::time::Duration;

use duologue_store::{
    ChangeOutcome, Error, LeaseToken, MessageState, Store, StoreChange, StoreTopic, StoreWatch, SweepTimes,
};

use super::{
    AGENT, change, change_at, claim, claim_at, enqueue, ids, in_group, message, message_key, on_each_store,
    task, task_key, time,
};

on_each_store!(
    a_renewed_lease_lasts_from_its_renewal,
    a_lost_lease_returns_the_message_and_refuses_its_worker,
    a_lease_that_is_over_is_refused_before_it_is_swept,
    a_group_waits_for_a_lease_and_goes_on_after_it,
    tokens_are_texts_that_cannot_be_guessed,
    a_change_wakes_those_that_wait_for_it,
    a_batch_without_effect_wakes_nobody,
    the_next_sweep_is_that_of_the_first_due_entry,
);

fn a_renewed_lease_lasts_from_its_renewal(store: &dyn Store) {
    enqueue(store, [message("m1")]);
    let lease = claim(store, 1)[0].lease;
    let renew = StoreChange::RenewLease { lease, lasts: Duration::from_secs(20) };
    assert_eq!(change_at(store, 9, renew.clone()).expect("renewed"), ChangeOutcome::Done);
    let other = store.claim_messages(AGENT, &claim_at(28, 1)).expect("claimed");
    assert_eq!((other.entries, other.next_due), (vec![], Some(Duration::from_secs(29))));
    assert!(matches!(change_at(store, 29, renew), Err(Error::LeaseLost { .. })));
    assert_eq!(store.claim_messages(AGENT, &claim_at(29, 1)).expect("claimed").entries.len(), 1);
}

fn a_lost_lease_returns_the_message_and_refuses_its_worker(store: &dyn Store) {
    let mut new = message("m1");
    new.max_attempts = 2;
    enqueue(store, [new]);
    let first = claim(store, 1)[0].lease;
    let report = store.sweep(time(10)).expect("swept");
    assert_eq!((report.messages_returned, report.next_lease_end), (0, Some(Duration::from_secs(11))));
    let report = store.sweep(time(11)).expect("swept");
    assert_eq!((report.messages_returned, report.next_lease_end), (1, None));
    let second = store.claim_messages(AGENT, &claim_at(11, 1)).expect("claimed").entries.remove(0);
    assert_eq!((second.entry.attempts, second.entry.error.as_deref()), (2, Some("lease_lost")));
    for change in [
        StoreChange::AckMessage { lease: first, response: None },
        StoreChange::NackMessage { lease: first, delay: Duration::ZERO, error: None },
        StoreChange::RejectMessage { lease: first, error: "no".into() },
        StoreChange::RenewLease { lease: first, lasts: Duration::from_secs(1) },
    ] {
        let error = change_at(store, 11, change).expect_err("another worker has it");
        assert!(matches!(error, Error::LeaseLost { .. }), "{error}");
    }
    assert_eq!(store.sweep(time(21)).expect("swept").messages_dead, 1, "it was the last attempt");
    assert_eq!(store.message(&message_key("m1")).expect("read").expect("it").state, MessageState::Dead);
}

fn a_lease_that_is_over_is_refused_before_it_is_swept(store: &dyn Store) {
    enqueue(store, [message("m1")]);
    let lease = claim(store, 1)[0].lease;
    let late = change_at(store, 11, StoreChange::AckMessage { lease, response: None });
    assert!(matches!(late, Err(Error::LeaseLost { .. })));
    // A clock of the wall that jumps does not end a lease.
    let mut jump = time(10);
    jump.wall = u64::MAX;
    assert_eq!(store.sweep(jump).expect("swept").messages_returned, 0);
    change_at(store, 10, StoreChange::AckMessage { lease, response: None }).expect("in time");
}

fn a_group_waits_for_a_lease_and_goes_on_after_it(store: &dyn Store) {
    let mut first = in_group("a1", "a");
    first.max_attempts = 1;
    enqueue(store, [first, in_group("a2", "a")]);
    assert_eq!(ids(&claim(store, 9)), ["a1"]);
    // The first one dies with its only attempt.
    let next = store.claim_messages(AGENT, &claim_at(11, 9)).expect("claimed").entries;
    assert_eq!(ids(&next), ["a2"]);
}

fn tokens_are_texts_that_cannot_be_guessed(store: &dyn Store) {
    enqueue(store, [message("m1"), message("m2")]);
    change(store, StoreChange::CreateTask(task("t1")));
    let leased = claim(store, 2);
    let text = leased[0].lease.to_string();
    assert_eq!(text.parse::<LeaseToken>().expect("a token"), leased[0].lease);
    let secret = text.split_once('-').expect("a secret").1;
    assert!(!format!("{:?}", leased[0].lease).contains(secret), "logs do not have it");
    let (first, second) = (text.split_once('-').expect("two"), leased[1].lease.to_string());
    let mixed = format!("{}-{}", first.0, second.split_once('-').expect("two").1);
    for wrong in [mixed, text.replacen('m', "t", 1), text.replacen('m', "d", 1)] {
        let lease: LeaseToken = wrong.parse().expect("a token");
        let ack = change_at(store, 1, StoreChange::AckMessage { lease, response: None });
        assert!(matches!(ack, Err(Error::LeaseLost { .. })));
    }
    for wrong in ["", "m", "m1", "m1-", "x1-0000000000000000", "m01-0000000000000000", "m1-0", "é"] {
        assert!(wrong.parse::<LeaseToken>().is_err(), "{wrong}");
    }
}

fn a_change_wakes_those_that_wait_for_it(store: &dyn Store) {
    let mut inbox = store.watch(&StoreTopic::Inbox(AGENT.into()));
    let mut tasks = store.watch(&StoreTopic::AgentTasks(AGENT.into()));
    let mut task_changes = store.watch(&StoreTopic::Task(task_key("t1")));
    assert!(![&mut inbox, &mut tasks, &mut task_changes].into_iter().any(StoreWatch::take_changed));
    enqueue(store, [message("m1")]);
    assert!(inbox.take_changed() && !inbox.take_changed());
    change(store, StoreChange::CreateTask(task("t1")));
    assert!(tasks.take_changed() && task_changes.take_changed());
    // A lease that ends, and a wait in another thread.
    claim(store, 1);
    inbox.take_changed();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
            runtime.block_on(inbox.changed());
        });
        store.sweep(time(11)).expect("swept");
        waiting.join().expect("woken");
    });
}

fn a_batch_without_effect_wakes_nobody(store: &dyn Store) {
    let mut inbox = store.watch(&StoreTopic::Inbox(AGENT.into()));
    enqueue(store, [message("m1")]);
    inbox.take_changed();
    let batch = duologue_store::StoreBatch::new(time(1)).with(StoreChange::Enqueue(message("m2"))).with(
        StoreChange::Heartbeat { agent: "none".into(), status: duologue_store::RegistryStatus::Online },
    );
    store.apply(batch).expect_err("no such agent");
    assert!(!inbox.take_changed());
}

fn the_next_sweep_is_that_of_the_first_due_entry(store: &dyn Store) {
    let next = || store.next_sweep().expect("read");
    let mut watch = store.watch(&StoreTopic::Sweep);
    assert_eq!(next(), SweepTimes::default());
    let mut expires = message("m1");
    expires.expires = Some(time(100).wall);
    enqueue(store, [message("m2"), expires]);
    assert!(watch.take_changed(), "an expiry is new");
    assert_eq!((next().expiry, next().lease_end), (Some(time(100).wall), None));
    let leased = claim(store, 1).remove(0);
    assert!(watch.take_changed(), "a lease is new");
    assert_eq!(next().lease_end, Some(Duration::from_secs(11)));
    change(store, StoreChange::AckMessage { lease: leased.lease, response: None });
    assert!(watch.take_changed(), "an end is new");
    assert_eq!((next().lease_end, next().ended), (None, Some(time(1).wall)));
    store.sweep(time(100)).expect("swept");
    assert_eq!(next().expiry, None);
    watch.take_changed();
    change(store, StoreChange::Purge { ended_before: time(2).wall, principal: None });
    assert_eq!(next(), SweepTimes::default());
    assert!(!watch.take_changed(), "a purge makes nothing due");
}
