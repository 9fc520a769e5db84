//! The order of queues: bands, groups, and workers that compete.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use duologue_store::{Claim, Store, StoreChange};

use super::{
    AGENT, change, claim, claim_at, drain, enqueue, ids, in_group, message, on_each_store, task, time,
};

on_each_store!(
    a_band_keeps_the_order_of_arrival,
    full_bands_get_their_turns_8_4_2_1,
    an_empty_band_passes_its_turn_on,
    no_band_starves_while_others_are_refilled,
    one_of_a_group_is_out_at_a_time,
    groups_of_principals_have_nothing_in_common,
    a_group_keeps_its_order_whatever_the_priorities_are,
    a_delayed_head_keeps_its_group,
    tasks_have_the_same_bands,
    a_claim_that_leaves_out_principals_keeps_the_order,
    competing_workers_never_get_one_message_twice,
);

fn with_priority(id: &str, priority: u8) -> duologue_store::NewInboxMessage {
    let mut message = message(id);
    message.priority = priority;
    message
}

fn a_band_keeps_the_order_of_arrival(store: &dyn Store) {
    // 3, 4 and 5 are one band.
    enqueue(store, [with_priority("a", 4), with_priority("b", 3), with_priority("c", 5)]);
    assert_eq!(ids(&claim(store, 2)), ["a", "b"]);
    assert_eq!(ids(&claim(store, 2)), ["c"]);
}

/// Counts the claims of each priority.
fn counts(ids: &[String]) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    for id in ids {
        *counts.entry(id.split('-').next().expect("a priority")).or_default() += 1;
    }
    counts
}

fn fill(store: &dyn Store, priorities: &[u8], each: usize) {
    for priority in priorities {
        enqueue(store, (0..each).map(|number| with_priority(&format!("{priority}-{number}"), *priority)));
    }
}

fn full_bands_get_their_turns_8_4_2_1(store: &dyn Store) {
    fill(store, &[0, 3, 6, 8], 60);
    let mut claimed = Vec::new();
    // The turns go on over claims of any size.
    for max in [1, 2, 7, 20, 30, 15].into_iter().cycle() {
        let max = max.min(75 - claimed.len());
        if max == 0 {
            break;
        }
        claimed.extend(claim(store, max).into_iter().map(|leased| leased.entry.id));
    }
    assert_eq!(counts(&claimed), BTreeMap::from([("0", 5), ("3", 10), ("6", 20), ("8", 40)]));
}

fn an_empty_band_passes_its_turn_on(store: &dyn Store) {
    fill(store, &[0, 6], 50);
    let claimed: Vec<_> = claim(store, 25).into_iter().map(|leased| leased.entry.id).collect();
    assert_eq!(counts(&claimed), BTreeMap::from([("0", 5), ("6", 20)]), "1 to 4");
    assert_eq!(drain(store, 1).len(), 75);
}

fn no_band_starves_while_others_are_refilled(store: &dyn Store) {
    enqueue(store, [with_priority("low", 0)]);
    for number in 0..15 {
        enqueue(store, (0..2).map(|it| with_priority(&format!("{number}-{it}"), 9)));
        if ids(&claim(store, 1)) == ["low"] {
            return;
        }
    }
    panic!("the low band got no turn");
}

fn one_of_a_group_is_out_at_a_time(store: &dyn Store) {
    enqueue(store, [in_group("a1", "a"), in_group("a2", "a"), in_group("b1", "b"), message("x")]);
    let first = claim(store, 9);
    assert_eq!(ids(&first), ["a1", "b1", "x"]);
    assert_eq!(claim(store, 9), []);
    change(store, StoreChange::AckMessage { lease: first[0].lease, response: None });
    assert_eq!(ids(&claim(store, 9)), ["a2"]);
}

fn groups_of_principals_have_nothing_in_common(store: &dyn Store) {
    let of_bob = |id: &str| {
        let mut sent = in_group(id, "a");
        sent.from.principal = "bob".into();
        sent
    };
    enqueue(store, [in_group("a1", "a"), of_bob("b1"), of_bob("b2")]);
    let first = claim(store, 9);
    assert_eq!(ids(&first), ["a1", "b1"]);
    change(store, StoreChange::AckMessage { lease: first[0].lease, response: None });
    assert_eq!(claim(store, 9), [], "the group of the other principal waits for its own head");
    change(store, StoreChange::AckMessage { lease: first[1].lease, response: None });
    assert_eq!(ids(&claim(store, 9)), ["b2"]);
}

fn a_group_keeps_its_order_whatever_the_priorities_are(store: &dyn Store) {
    let mut urgent = in_group("a2", "a");
    urgent.priority = 9;
    enqueue(store, [in_group("a1", "a"), urgent, in_group("a3", "a")]);
    assert_eq!(drain(store, 1), ["a1", "a2", "a3"]);
}

fn a_delayed_head_keeps_its_group(store: &dyn Store) {
    enqueue(store, [in_group("a1", "a"), in_group("a2", "a")]);
    let lease = claim(store, 1)[0].lease;
    change(store, StoreChange::NackMessage { lease, delay: Duration::from_secs(5), error: None });
    assert_eq!(claim(store, 9), []);
    assert_eq!(drain(store, 6), ["a1", "a2"]);
}

fn tasks_have_the_same_bands(store: &dyn Store) {
    for priority in [0, 4, 7, 9] {
        for number in 0..30 {
            let mut task = task(&format!("{priority}-{number}"));
            task.priority = priority;
            change(store, StoreChange::CreateTask(task));
        }
    }
    let claimed = store.claim_tasks(AGENT, &claim_at(1, 30)).expect("claimed").entries;
    let claimed: Vec<_> = claimed.into_iter().map(|leased| leased.entry.key.task).collect();
    assert_eq!(counts(&claimed), BTreeMap::from([("0", 2), ("4", 4), ("7", 8), ("9", 16)]));
}

fn a_claim_that_leaves_out_principals_keeps_the_order(store: &dyn Store) {
    // The principals take turns, in two bands.
    for number in 0..40 {
        for principal in ["carol", "alice", "dave", "bob"] {
            let priority = if number % 2 == 0 { 0 } else { 6 };
            let mut sent = with_priority(&format!("{priority}-{number:02}-{principal}"), priority);
            sent.from.principal = principal.into();
            enqueue(store, [sent]);
        }
    }
    let mut claimed = Vec::new();
    for max in [1, 1, 3, 1, 9] {
        let claim = claim_at(1, max).except(vec!["alice".into(), "nobody".into(), "dave".into()]);
        let entries = store.claim_messages(AGENT, &claim).expect("claimed").entries;
        assert_eq!(entries.len(), max);
        claimed.extend(entries.into_iter().map(|leased| leased.entry.id));
    }
    assert_eq!(counts(&claimed), BTreeMap::from([("0", 3), ("6", 12)]), "1 to 4");
    for band in ["0", "6"] {
        let of_band: Vec<_> = claimed.iter().filter(|id| id.starts_with(band)).collect();
        let first = if band == "0" { 0 } else { 1 };
        let expected = (first..)
            .step_by(2)
            .flat_map(|number| ["carol", "bob"].map(|of| format!("{band}-{number:02}-{of}")));
        assert!(of_band.iter().copied().cloned().eq(expected.take(of_band.len())), "{of_band:?}");
    }
}

fn competing_workers_never_get_one_message_twice(store: &dyn Store) {
    let out = Mutex::new(BTreeMap::<String, u32>::new());
    std::thread::scope(|scope| {
        for sender in 0..2 {
            scope.spawn(move || {
                for number in 0..100 {
                    let mut message = message(&format!("{sender}-{number}"));
                    message.group = (number % 3 == 0).then(|| format!("{sender}-{}", number % 9));
                    change(store, StoreChange::Enqueue(message));
                }
            });
        }
        for worker in 0..4 {
            let out = &out;
            scope.spawn(move || {
                let claim =
                    Claim::new(time(1), Duration::from_secs(10), format!("w{worker}")).max(worker + 1);
                while out.lock().expect("sound").len() < 200 {
                    for leased in store.claim_messages(AGENT, &claim).expect("claimed").entries {
                        *out.lock().expect("sound").entry(leased.entry.id).or_default() += 1;
                        change(store, StoreChange::AckMessage { lease: leased.lease, response: None });
                    }
                    std::thread::yield_now();
                }
            });
        }
    });
    assert!(out.into_inner().expect("sound").values().all(|count| *count == 1));
}
