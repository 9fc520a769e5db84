//! The next life of a store: records and the delays of messages stay, and leases end.

use std::time::Duration;

use duologue_schema::envelope::TaskState;
use duologue_store::{
    MessageState, RegisteredAgent, RegistrySource, SeenId, SeenKey, StoreChange, StoreSettings,
};

use super::{
    AGENT, OWNER, StoreBackend, change, change_at, claim, claim_at, drain, enqueue, ids, in_group, message,
    message_key, on_each_durable_store, outbox, task, task_key, tasks, time,
};

on_each_durable_store!(
    records_and_counts_stay,
    leases_end_and_the_delays_of_messages_stay,
    the_end_of_each_task_is_kept,
    a_message_is_dead_if_an_agent_has_begun_it,
    an_erasure_is_known_until_its_end,
);

fn records_and_counts_stay<B: StoreBackend>(backend: &B) {
    let mut settings = StoreSettings::default();
    settings.inbox_entries = 3;
    let store = backend.open(settings.clone(), 0);
    enqueue(&*store, [message("m1"), message("m2")]);
    change(&*store, StoreChange::PutAgent(RegisteredAgent::new(AGENT, OWNER, RegistrySource::Rest, "")));
    change(&*store, StoreChange::Remember(SeenId::new(SeenKey::new(OWNER, "s", "k"), b"d", u64::MAX)));
    let before = store.message(&message_key("m1")).expect("read");
    drop(store);
    let store = backend.open(settings, 0);
    assert_eq!(store.message(&message_key("m1")).expect("read"), before);
    assert!(change_at(&*store, 1, StoreChange::Enqueue(message("m3"))).is_err(), "the inbox is full");
    assert!(store.agent(AGENT).expect("read").is_some());
    assert!(store.remembered(&SeenKey::new(OWNER, "s", "k"), time(1)).expect("read").is_some());
}

fn leases_end_and_the_delays_of_messages_stay<B: StoreBackend>(backend: &B) {
    let store = backend.open(StoreSettings::default(), 0);
    enqueue(&*store, [in_group("a1", "a"), in_group("a2", "a"), message("m1"), message("m2")]);
    let claimed = claim(&*store, 3);
    assert_eq!(ids(&claimed), ["a1", "m1", "m2"]);
    let nack =
        StoreChange::NackMessage { lease: claimed[2].lease, delay: Duration::from_secs(999), error: None };
    change(&*store, nack);
    outbox::push(&*store, "s", 0);
    outbox::push(&*store, "t", 0);
    let posts = store.claim_deliveries(&claim_at(1, 9)).expect("claimed").entries;
    let delay = Duration::from_secs(999);
    change(&*store, StoreChange::DeliveryFailed { lease: posts[0].lease, delay, error: "503".into() });
    drop(store);
    // The monotonic clock begins again, and 900 seconds have passed.
    let store = backend.open(StoreSettings::default(), time(901).wall);
    for lease in [claimed[0].lease, claimed[1].lease] {
        change_at(&*store, 0, StoreChange::AckMessage { lease, response: None }).expect_err("a former life");
    }
    assert_eq!(drain(&*store, 0), ["a1", "a2", "m1"]);
    assert_eq!(store.claim_messages(AGENT, &claim_at(98, 9)).expect("claimed").entries, []);
    drop(store);
    // A clock that was set back makes the delay no longer, and one that was set forward ends it.
    let store = backend.open(StoreSettings::default(), 0);
    let claimed = store.claim_messages(AGENT, &claim_at(998, 9)).expect("claimed");
    assert_eq!((claimed.entries.len(), claimed.next_due), (0, Some(Duration::from_secs(999))));
    drop(store);
    let store = backend.open(StoreSettings::default(), time(1000).wall);
    assert_eq!(drain(&*store, 0), ["m2"]);
    assert_eq!(store.claim_deliveries(&claim_at(0, 9)).expect("claimed").entries.len(), 2);
}

fn the_end_of_each_task_is_kept<B: StoreBackend>(backend: &B) {
    let store = backend.open(StoreSettings::default(), 0);
    let completed = tasks::started(&*store, "completed");
    change(&*store, tasks::set(&completed, TaskState::Completed));
    tasks::started(&*store, "started");
    tasks::create(&*store, "claimed");
    tasks::claim_one(&*store, 1);
    let mut safe = task("safe");
    safe.retry_safe = true;
    change(&*store, StoreChange::CreateTask(safe));
    let leased = tasks::claim_one(&*store, 1);
    change(&*store, tasks::set(&leased, TaskState::Working));
    drop(store);
    let store = backend.open(StoreSettings::default(), time(50).wall);
    let state = |id: &str| store.task(&task_key(id)).expect("read").expect("a task").state;
    assert_eq!(state("completed"), TaskState::Completed);
    assert_eq!(state("claimed"), TaskState::Submitted);
    assert_eq!(state("safe"), TaskState::Submitted);
    let lost = store.task(&task_key("started")).expect("read").expect("a task");
    assert_eq!((lost.state, lost.dead, lost.completed), (TaskState::Failed, true, Some(time(50).wall)));
    assert_eq!(lost.error.expect("an error").code, "restarted");
    assert_eq!(store.sweep(time(0)).expect("swept").tasks_ended, [task_key("started")]);
    let again = store.claim_tasks(AGENT, &claim_at(0, 9)).expect("claimed").entries;
    assert_eq!(again.iter().map(|it| it.entry.key.task.as_str()).collect::<Vec<_>>(), ["claimed", "safe"]);
}

fn a_message_is_dead_if_an_agent_has_begun_it<B: StoreBackend>(backend: &B) {
    let store = backend.open(StoreSettings::default(), 0);
    enqueue(&*store, [message("begun"), message("claimed")]);
    let claimed = claim(&*store, 2);
    change(&*store, StoreChange::StartMessage { lease: claimed[0].lease });
    drop(store);
    let store = backend.open(StoreSettings::default(), 0);
    let begun = store.message(&message_key("begun")).expect("read").expect("a message");
    assert_eq!(begun.state, MessageState::Dead);
    assert!(begun.error.as_deref().is_some_and(|error| error.starts_with("restarted: ")), "{begun:?}");
    assert_eq!(drain(&*store, 0), ["claimed"]);
    // Sent again, it is as a new one.
    change_at(&*store, 0, StoreChange::ResendMessage { key: begun.key(), expires: None }).expect("sent");
    let again = store.claim_messages(AGENT, &claim_at(0, 1)).expect("claimed").entries.remove(0);
    drop(store);
    let store = backend.open(StoreSettings::default(), 0);
    let lease = again.lease;
    change_at(&*store, 0, StoreChange::StartMessage { lease }).expect_err("a lease of a former life");
    assert_eq!(drain(&*store, 0), ["begun"]);
}

fn an_erasure_is_known_until_its_end<B: StoreBackend>(backend: &B) {
    let store = backend.open(StoreSettings::default(), 0);
    let principal = || OWNER.to_owned();
    for _ in 0..2 {
        change(&*store, StoreChange::ErasePrincipal { principal: principal() });
    }
    drop(store);
    let store = backend.open(StoreSettings::default(), 0);
    assert_eq!(store.erasures().expect("read"), [OWNER]);
    change(&*store, StoreChange::EndErasure { principal: principal() });
    assert!(store.erasures().expect("read").is_empty());
}
