//! The room for new records: the bytes of a principal, and those that are kept on the disk.

use duologue_store::{
    Error, MessageSender, NewInboxMessage, NewQuestion, RegisteredAgent, RegistrySource, StoreChange,
    StoreSettings, TaskUpdate,
};

use super::{
    AGENT, OWNER, StoreBackend, change, change_at, claim, enqueue, json, message, message_key,
    on_each_durable_store, task, task_key, tasks, time,
};

on_each_durable_store!(
    the_bytes_of_a_principal_are_bounded,
    a_disk_with_little_room_takes_ends_and_removals_alone,
);

fn long(bytes: usize) -> duologue_store::JsonText {
    json(&format!("{:?}", "x".repeat(bytes - 2)))
}

fn is_full(result: Result<duologue_store::ChangeOutcome, Error>) -> bool {
    match result {
        Err(error @ Error::BytesReached { .. }) => {
            error.to_string().contains("`StoreSettings::bytes_per_principal`")
        }
        _ => false,
    }
}

fn the_bytes_of_a_principal_are_bounded(backend: &impl StoreBackend) {
    let mut settings = StoreSettings::default();
    settings.bytes_per_principal = 10_000;
    let store = &*backend.open(settings.clone(), 0);
    let of = |principal: &str, id: &str| {
        let from = MessageSender::new(principal, "agent://sender");
        StoreChange::Enqueue(NewInboxMessage::new(AGENT, id, from, long(3_000)))
    };
    for id in ["m1", "m2", "m3"] {
        change(store, of(OWNER, id));
    }
    let leases: Vec<_> = claim(store, 3).iter().map(|leased| leased.lease).collect();
    // Three messages have 9,768 bytes.
    assert!(is_full(change_at(store, 1, of(OWNER, "m4"))));
    assert!(is_full(change_at(store, 1, StoreChange::CreateTask(task("t")))));
    let agent = RegisteredAgent::new("a", OWNER, RegistrySource::Rest, "https://example.com");
    assert!(is_full(change_at(store, 1, StoreChange::PutAgent(agent))));
    change(store, of("bob", "m1"));
    // Work that has begun goes on.
    change(store, StoreChange::AckMessage { lease: leases[0], response: Some(long(9_000)) });
    change(store, StoreChange::AckMessage { lease: leases[1], response: None });
    let purge = |principal: &str| StoreChange::Purge {
        ended_before: time(2).wall,
        principal: Some(principal.to_owned()),
    };
    change(store, purge("bob"));
    assert!(store.message(&message_key("m1")).expect("read").is_some(), "it is not bob's");
    change(store, purge(OWNER));
    assert!(store.message(&message_key("m1")).expect("read").is_none());
    change(store, of(OWNER, "m4"));
    // Each kind of record counts, and its removal too.
    let leased = tasks::started(store, "t1");
    let mut update = TaskUpdate::new(task_key("t1"), leased.entry.version).lease(leased.lease);
    update.result = Some(long(6_500));
    change(store, StoreChange::UpdateTask(update));
    let question = StoreChange::AddQuestion(NewQuestion::new(task_key("t1"), "q1", long(10)));
    assert!(is_full(change_at(store, 1, question)));
    let erase = || StoreChange::ErasePrincipal { principal: OWNER.to_owned() };
    while change(store, erase()) != duologue_store::ChangeOutcome::Count(0) {}
    for id in ["m1", "m2", "m3"] {
        change(store, of(OWNER, id));
    }
    assert!(is_full(change_at(store, 1, of(OWNER, "m4"))));
}

fn a_disk_with_little_room_takes_ends_and_removals_alone(backend: &impl StoreBackend) {
    let store = backend.open(StoreSettings::default(), 0);
    enqueue(&*store, [message("m1"), message("m2")]);
    drop(store);
    let mut settings = StoreSettings::default();
    settings.reserved_bytes = u64::MAX;
    let store = &*backend.open(settings, 0);
    for new in [StoreChange::Enqueue(message("m3")), StoreChange::CreateTask(task("t1"))] {
        let error = change_at(store, 1, new).expect_err("a refusal");
        assert!(matches!(error, Error::DiskReserve { reserved: u64::MAX, .. }), "{error}");
        assert!(error.to_string().contains("`StoreSettings::reserved_bytes`"), "{error}");
    }
    let lease = claim(store, 1)[0].lease;
    change(store, StoreChange::AckMessage { lease, response: Some(long(100)) });
    change(store, StoreChange::RemoveMessage { key: message_key("m2") });
}
