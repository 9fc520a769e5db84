//! The outbox: order in streams, retries, ends.

use std::time::Duration;

use duologue_store::{
    ChangeOutcome, Error, Leased, NewDelivery, OutboxEntry, OutboxKind, OutboxQuery, OutboxState, Store,
    StoreChange,
};

use super::{OWNER, change, change_at, claim_at, json, on_each_store, time};

on_each_store!(
    a_stream_is_sent_in_order_one_at_a_time,
    a_failed_post_keeps_its_stream_until_its_delay_is_over,
    a_position_is_pushed_once,
    a_post_or_its_whole_stream_is_given_up,
    a_lost_lease_returns_the_post,
    due_posts_are_ordered_by_their_time,
);

pub(crate) fn post(stream: &str, position: u64) -> NewDelivery {
    let body = json(&format!(r#"{{"position":{position}}}"#));
    NewDelivery::new(OutboxKind::Chunk, OWNER, stream, position, "https://example.com/chunks", body)
}

pub(super) fn push(store: &dyn Store, stream: &str, position: u64) -> ChangeOutcome {
    change(store, StoreChange::PushDelivery(post(stream, position)))
}

fn claim(store: &dyn Store, seconds: u64) -> Vec<Leased<OutboxEntry>> {
    store.claim_deliveries(&claim_at(seconds, 9)).expect("claimed").entries
}

fn places(entries: &[Leased<OutboxEntry>]) -> Vec<(&str, u64)> {
    entries.iter().map(|leased| (leased.entry.stream.as_str(), leased.entry.position)).collect()
}

fn a_stream_is_sent_in_order_one_at_a_time(store: &dyn Store) {
    for (stream, position) in [("a", 0), ("a", 1), ("b", 7), ("a", 2)] {
        assert_eq!(push(store, stream, position), ChangeOutcome::Done);
    }
    assert_eq!(store.stream_end("a").expect("read"), Some(2));
    assert_eq!(store.stream_end("c").expect("read"), None);
    let first = claim(store, 1);
    assert_eq!(places(&first), [("a", 0), ("b", 7)]);
    assert_eq!(claim(store, 1), []);
    change(store, StoreChange::Delivered { lease: first[0].lease });
    let next = claim(store, 1);
    assert_eq!(places(&next), [("a", 1)]);
    change(store, StoreChange::Delivered { lease: next[0].lease });
    assert!(matches!(
        change_at(store, 1, StoreChange::Delivered { lease: next[0].lease }),
        Err(Error::LeaseLost { .. })
    ));
    let mut query = OutboxQuery::default();
    query.state = Some(OutboxState::Delivered);
    assert_eq!(store.deliveries(&query).expect("a list").total, 2);
    let found = store.delivery(first[0].entry.id).expect("read").expect("a post");
    assert_eq!((found.state, found.attempts, found.body), (OutboxState::Delivered, 1, json("null")));
}

fn a_failed_post_keeps_its_stream_until_its_delay_is_over(store: &dyn Store) {
    push(store, "a", 0);
    push(store, "a", 1);
    let first = claim(store, 1);
    let failed = StoreChange::DeliveryFailed {
        lease: first[0].lease,
        delay: Duration::from_secs(30),
        error: "503".into(),
    };
    change(store, failed);
    let none = store.claim_deliveries(&claim_at(30, 9)).expect("claimed");
    assert_eq!((none.entries, none.next_due), (vec![], Some(Duration::from_secs(31))));
    let again = claim(store, 31);
    assert_eq!(places(&again), [("a", 0)]);
    assert_eq!((again[0].entry.attempts, again[0].entry.last_error.as_deref()), (2, Some("503")));
}

fn a_position_is_pushed_once(store: &dyn Store) {
    push(store, "a", 3);
    assert_eq!(push(store, "a", 3), ChangeOutcome::Duplicate);
    push(store, "a", 4);
    let mut other = post("a", 3);
    other.body = json("null");
    for wrong in [other, post("a", 2)] {
        let error = change_at(store, 1, StoreChange::PushDelivery(wrong)).expect_err("a conflict");
        assert!(matches!(error, Error::RecordConflict { .. }), "{error}");
    }
    assert_eq!(store.deliveries(&OutboxQuery::default()).expect("a list").total, 2);
}

fn a_post_or_its_whole_stream_is_given_up(store: &dyn Store) {
    for position in 0..4 {
        push(store, "a", position);
    }
    let lease = claim(store, 1)[0].lease;
    let give_up =
        |lease, whole_stream| StoreChange::GiveUpDelivery { lease, error: "410".into(), whole_stream };
    assert_eq!(change(store, give_up(lease, false)), ChangeOutcome::Count(1));
    let next = claim(store, 1);
    assert_eq!(places(&next), [("a", 1)]);
    assert_eq!(change(store, give_up(next[0].lease, true)), ChangeOutcome::Count(3));
    assert_eq!(claim(store, 1), []);
    push(store, "a", 4);
    assert_eq!(places(&claim(store, 1)), [("a", 4)]);
}

fn a_lost_lease_returns_the_post(store: &dyn Store) {
    push(store, "a", 0);
    let lease = claim(store, 1)[0].lease;
    assert_eq!(store.sweep(time(11)).expect("swept").deliveries_returned, 1);
    assert!(matches!(change_at(store, 11, StoreChange::Delivered { lease }), Err(Error::LeaseLost { .. })));
    assert_eq!(places(&claim(store, 11)), [("a", 0)]);
    // A claim does not wait for a sweep.
    assert_eq!(places(&claim(store, 21)), [("a", 0)]);
}

fn due_posts_are_ordered_by_their_time(store: &dyn Store) {
    for stream in ["a", "b", "c"] {
        push(store, stream, 0);
    }
    for (leased, delay) in claim(store, 1).into_iter().zip([9, 3, 6]) {
        let delay = Duration::from_secs(delay);
        change(store, StoreChange::DeliveryFailed { lease: leased.lease, delay, error: String::new() });
    }
    push(store, "d", 0);
    assert_eq!(places(&claim(store, 10)), [("d", 0), ("b", 0), ("c", 0), ("a", 0)]);
}
