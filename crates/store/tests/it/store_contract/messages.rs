//! Messages: new, duplicate, acknowledged, returned, expired and dead ones.

use std::time::Duration;

use duologue_store::{ChangeOutcome, Error, MessageQuery, MessageSender, MessageState, Store, StoreChange};

use super::{
    AGENT, change, change_at, claim, claim_at, drain, enqueue, json, message, message_key, on_each_store,
};

on_each_store!(
    a_message_is_claimed_and_acknowledged_with_a_response,
    a_repeated_message_is_a_duplicate_and_another_content_a_conflict,
    two_senders_may_use_one_id,
    a_returned_message_waits_for_its_delay,
    the_last_attempt_makes_a_dead_letter,
    a_rejected_message_is_dead_at_once,
    a_dead_letter_is_sent_again_as_the_newest,
    an_expired_message_is_not_delivered,
    lists_have_filters_pages_and_totals,
    a_page_and_a_claim_end_before_their_bytes,
    a_message_is_removed_unless_a_worker_has_it,
);

fn state(store: &dyn Store, id: &str) -> MessageState {
    store.message(&message_key(id)).expect("read").expect("a message").state
}

fn a_message_is_claimed_and_acknowledged_with_a_response(store: &dyn Store) {
    let mut new = message("m1");
    new.correlation_id = Some("c1".into());
    new.priority = 200;
    assert_eq!(change(store, StoreChange::Enqueue(new)), ChangeOutcome::Done);
    let leased = claim(store, 10).pop().expect("a message");
    assert_eq!((leased.entry.priority, leased.entry.attempts), (9, 1));
    assert_eq!((leased.entry.state, leased.entry.worker.as_deref()), (MessageState::Leased, Some("worker")));
    assert_eq!(leased.entry.correlation_id.as_deref(), Some("c1"));
    assert_eq!(claim(store, 10), []);
    let response = Some(json(r#"{"ok":true}"#));
    let ack = StoreChange::AckMessage { lease: leased.lease, response: response.clone() };
    assert_eq!(change(store, ack.clone()), ChangeOutcome::Done);
    let done = store.message(&message_key("m1")).expect("read").expect("a message");
    assert_eq!((done.state, done.response), (MessageState::Done, response));
    assert!(matches!(change_at(store, 1, ack), Err(Error::LeaseLost { .. })), "once");
    assert_eq!(claim(store, 10), []);
}

fn a_repeated_message_is_a_duplicate_and_another_content_a_conflict(store: &dyn Store) {
    enqueue(store, [message("m1")]);
    let mut again = message("m1");
    again.expires = Some(u64::MAX);
    assert_eq!(change(store, StoreChange::Enqueue(again)), ChangeOutcome::Duplicate);
    let mut other = message("m1");
    other.content = json("{}");
    let error = change_at(store, 1, StoreChange::Enqueue(other)).expect_err("a conflict");
    assert!(matches!(error, Error::RecordConflict { .. }) && error.to_string().contains("\"m1\""), "{error}");
    assert_eq!(drain(store, 1), ["m1"]);
    assert_eq!(change(store, StoreChange::Enqueue(message("m1"))), ChangeOutcome::Duplicate, "after its end");
    assert_eq!(drain(store, 1), [""; 0]);
}

fn two_senders_may_use_one_id(store: &dyn Store) {
    let mut other = message("m1");
    other.from = MessageSender::new("bob", "agent://bob");
    enqueue(store, [message("m1"), other]);
    assert_eq!(drain(store, 1), ["m1", "m1"]);
}

fn a_returned_message_waits_for_its_delay(store: &dyn Store) {
    enqueue(store, [message("m1"), message("m2")]);
    let first = claim(store, 1).pop().expect("a message");
    let nack = StoreChange::NackMessage {
        lease: first.lease,
        delay: Duration::from_secs(5),
        error: Some("busy".into()),
    };
    assert_eq!(change(store, nack), ChangeOutcome::Done);
    assert_eq!(state(store, "m1"), MessageState::Ready);
    let now = store.claim_messages(AGENT, &claim_at(5, 9)).expect("claimed");
    assert_eq!(super::ids(&now.entries), ["m2"]);
    assert_eq!(now.next_due, Some(Duration::from_secs(6)), "the end of the delay");
    let then = store.claim_messages(AGENT, &claim_at(6, 9)).expect("claimed");
    assert_eq!(super::ids(&then.entries), ["m1"]);
    assert_eq!((then.entries[0].entry.attempts, then.entries[0].entry.error.as_deref()), (2, Some("busy")));
    let delayed = {
        let mut it = message("m3");
        it.delay = Duration::from_secs(3);
        it
    };
    enqueue(store, [delayed]);
    assert_eq!(store.claim_messages(AGENT, &claim_at(3, 9)).expect("claimed").entries, []);
    assert_eq!(super::ids(&store.claim_messages(AGENT, &claim_at(4, 9)).expect("claimed").entries), ["m3"]);
}

fn the_last_attempt_makes_a_dead_letter(store: &dyn Store) {
    let mut new = message("m1");
    new.max_attempts = 2;
    enqueue(store, [new]);
    for outcome in [ChangeOutcome::Done, ChangeOutcome::Dead] {
        let lease = claim(store, 1).pop().expect("a message").lease;
        let nack = StoreChange::NackMessage { lease, delay: Duration::ZERO, error: Some("no".into()) };
        assert_eq!(change(store, nack), outcome);
    }
    assert_eq!(claim(store, 1), []);
    let mut query = MessageQuery::default();
    query.state = Some(MessageState::Dead);
    let dead = store.messages(&query).expect("a list");
    assert_eq!((dead.total, dead.items[0].attempts, dead.items[0].error.as_deref()), (1, 2, Some("no")));
}

fn a_rejected_message_is_dead_at_once(store: &dyn Store) {
    enqueue(store, [message("m1")]);
    let lease = claim(store, 1).pop().expect("a message").lease;
    let reject = StoreChange::RejectMessage { lease, error: "x".repeat(5000) };
    assert_eq!(change(store, reject), ChangeOutcome::Dead);
    let dead = store.message(&message_key("m1")).expect("read").expect("a message");
    assert_eq!((dead.state, dead.error.expect("a reason").len()), (MessageState::Dead, 4096));
}

fn a_dead_letter_is_sent_again_as_the_newest(store: &dyn Store) {
    enqueue(store, [message("m1"), message("m2")]);
    let resend = StoreChange::ResendMessage { key: message_key("m1"), expires: None };
    let error = change_at(store, 1, resend.clone()).expect_err("not dead");
    assert!(matches!(error, Error::WrongState { .. }), "{error}");
    let lease = claim(store, 1).pop().expect("a message").lease;
    change(store, StoreChange::HandOver { lease });
    change(store, StoreChange::RejectMessage { lease, error: "no".into() });
    let late = change_at(store, 1, StoreChange::HandOver { lease });
    assert!(matches!(late, Err(Error::LeaseLost { .. })), "{late:?}");
    let dead = store.message(&message_key("m1")).expect("read").expect("a message");
    assert_eq!(dead.handed_seq, Some(dead.seq));
    assert_eq!(change(store, resend), ChangeOutcome::Done);
    let again = store.message(&message_key("m1")).expect("read").expect("a message");
    assert!(again.seq != dead.seq && again.handed_seq == dead.handed_seq, "{again:?}");
    assert_eq!(drain(store, 1), ["m2", "m1"]);
    let other = StoreChange::ResendMessage { key: message_key("m9"), expires: None };
    assert!(matches!(change_at(store, 1, other), Err(Error::NoRecord { .. })));
}

fn an_expired_message_is_not_delivered(store: &dyn Store) {
    for id in ["m1", "m2", "m3"] {
        let mut new = message(id);
        new.expires = Some(super::time(if id == "m3" { 100 } else { 5 }).wall);
        new.group = Some("g".into());
        enqueue(store, [new]);
    }
    assert_eq!(super::ids(&store.claim_messages(AGENT, &claim_at(4, 1)).expect("claimed").entries), ["m1"]);
    // The lease of the first ends, then both are too old.
    let report = store.sweep(super::time(50)).expect("swept");
    assert_eq!((report.messages_returned, report.messages_dead), (1, 2));
    assert_eq!(state(store, "m1"), MessageState::Dead);
    assert_eq!(drain(store, 50), ["m3"], "the group goes on");
    // A claim does not wait for a sweep.
    let mut new = message("m4");
    new.expires = Some(super::time(60).wall);
    enqueue(store, [new, message("m5")]);
    assert_eq!(drain(store, 60), ["m5"]);
    assert_eq!(
        store.message(&message_key("m4")).expect("read").expect("it").error.as_deref(),
        Some("expired")
    );
}

fn lists_have_filters_pages_and_totals(store: &dyn Store) {
    for number in 0..25 {
        let mut new = message(&format!("m{number:02}"));
        new.group = (number % 5 == 0).then(|| "g".into());
        enqueue(store, [new]);
    }
    let mut query = MessageQuery::default();
    (query.agent, query.offset, query.limit) = (Some(AGENT.into()), 20, 3);
    let page = store.messages(&query).expect("a page");
    assert_eq!((page.total, page.offset, page.limit, page.items.len()), (25, 20, 3, 3));
    assert_eq!(page.items[0].id, "m20");
    query = MessageQuery::default();
    query.group = Some("g".into());
    assert_eq!(store.messages(&query).expect("a page").total, 5);
    query.state = Some(MessageState::Leased);
    assert_eq!(store.messages(&query).expect("a page").total, 0);
    query.agent = Some("other".into());
    query.limit = u64::MAX;
    let page = store.messages(&query).expect("a page");
    assert_eq!((page.total, page.limit), (0, 1000));
}

fn a_page_and_a_claim_end_before_their_bytes(store: &dyn Store) {
    let size = store.settings().page_bytes * 2 / 5;
    for number in 0..5 {
        let mut long = message(&format!("m{number}"));
        long.content = json(&format!("\"{}\"", "x".repeat(size)));
        enqueue(store, [long]);
    }
    let (mut query, mut pages) = (MessageQuery::default(), Vec::new());
    loop {
        let page = store.messages(&query).expect("a page");
        assert_eq!((page.limit, page.total), (100, 5));
        if page.items.is_empty() {
            break;
        }
        query.offset += page.items.len() as u64;
        pages.push(page.items.into_iter().map(|message| message.id).collect::<Vec<_>>());
    }
    assert_eq!(pages, [vec!["m0", "m1"], vec!["m2", "m3"], vec!["m4"]]);
    let claimed = store.claim_messages(AGENT, &claim_at(1, 100)).expect("claimed");
    assert_eq!(
        (claimed.entries.len(), claimed.next_due),
        (3, Some(Duration::from_secs(1))),
        "more are due now"
    );
    let claimed = store.claim_messages(AGENT, &claim_at(1, 100)).expect("claimed");
    assert_eq!(claimed.entries.len(), 2);
    assert!(claimed.next_due > Some(Duration::from_secs(1)), "the end of a lease");
}

fn a_message_is_removed_unless_a_worker_has_it(store: &dyn Store) {
    enqueue(store, [super::in_group("m1", "g"), super::in_group("m2", "g"), super::in_group("m3", "g")]);
    assert_eq!(change(store, StoreChange::RemoveMessage { key: message_key("m1") }), ChangeOutcome::Count(1));
    assert_eq!(change(store, StoreChange::RemoveMessage { key: message_key("m1") }), ChangeOutcome::Count(0));
    assert_eq!(super::ids(&claim(store, 5)), ["m2"]);
    let leased = change_at(store, 1, StoreChange::RemoveMessage { key: message_key("m2") });
    assert!(matches!(leased, Err(Error::WrongState { .. })));
}
