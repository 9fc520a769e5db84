//! Batches: all or nothing, idempotency, limits, and threads that apply at the same time.

use duologue_schema::envelope::TaskState;
use duologue_store::{
    BatchOutcome, ChangeOutcome, Error, MessageQuery, MessageSender, RegisteredAgent, RegistrySource, SeenId,
    SeenKey, Store, StoreBatch, StoreChange, StoreSettings, TaskFailure, TaskQuery, TaskUpdate,
};

use super::{
    InFile, InMemory, OWNER, StoreBackend, change, change_at, enqueue, json, message, on_each_store, task,
    task_key, time,
};

on_each_store!(
    a_batch_has_an_outcome_for_each_change,
    a_failed_change_undoes_the_whole_batch,
    a_repeated_request_has_the_first_answer_and_no_effect,
    a_key_can_be_used_again_after_its_time,
    batches_of_many_threads_are_independent,
);

fn totals(store: &dyn Store) -> (u64, u64) {
    let messages = store.messages(&MessageQuery::default()).expect("a list").total;
    (messages, store.tasks(&TaskQuery::default()).expect("a list").total)
}

fn a_batch_has_an_outcome_for_each_change(store: &dyn Store) {
    let batch = StoreBatch::new(time(1))
        .with(StoreChange::Enqueue(message("m1")))
        .with(StoreChange::Enqueue(message("m1")))
        .with(StoreChange::RemoveAgent { agent: "none".into() })
        .with(StoreChange::CreateTask(task("t1")))
        .with(StoreChange::UpdateTask(TaskUpdate::new(task_key("t1"), 1)));
    let outcome = store.apply(batch).expect("applied");
    let expected = [
        ChangeOutcome::Done,
        ChangeOutcome::Duplicate,
        ChangeOutcome::Count(0),
        ChangeOutcome::Done,
        ChangeOutcome::Version(2),
    ];
    assert_eq!((outcome.of(4), outcome.of(5)), (Some(&ChangeOutcome::Version(2)), None));
    assert_eq!(outcome, BatchOutcome::Applied(expected.into()));
    assert_eq!(store.apply(StoreBatch::new(time(1))).expect("applied"), BatchOutcome::Applied(vec![]));
}

fn a_failed_change_undoes_the_whole_batch(store: &dyn Store) {
    change(store, StoreChange::CreateTask(task("t0")));
    let mut batch = StoreBatch::new(time(1));
    for number in 0..20 {
        batch.push(StoreChange::Enqueue(message(&format!("m{number}"))));
        batch.push(StoreChange::CreateTask(task(&format!("t{}", number + 1))));
    }
    let lost = StoreChange::UpdateTask(TaskUpdate::new(task_key("t0"), 7));
    let error = store.apply(batch.clone().with(lost)).expect_err("a lost version");
    assert!(matches!(error, Error::VersionLost { .. }), "{error}");
    assert_eq!(totals(store), (0, 1));
    store.apply(batch).expect("applied");
    assert_eq!(totals(store), (20, 21));
}

fn seen(digest: &[u8]) -> SeenId {
    SeenId::new(SeenKey::new(OWNER, "POST tasks", "key-1"), digest, time(100).wall)
}

fn a_repeated_request_has_the_first_answer_and_no_effect(store: &dyn Store) {
    let batch = |id: &str, digest| {
        StoreBatch::new(time(1))
            .with(StoreChange::Enqueue(message(id)))
            .with(StoreChange::Remember(seen(digest)))
    };
    store.apply(batch("m1", b"one")).expect("applied");
    let repeated = |store: &dyn Store| match store.apply(batch("m2", b"one")).expect("no error") {
        BatchOutcome::Repeated(answer) => answer.response,
        other => panic!("{other:?}"),
    };
    assert_eq!(repeated(store), None, "the first still runs");
    let key = seen(b"one").key;
    change(store, StoreChange::SetResponse { key: key.clone(), response: json("[1]") });
    assert_eq!(repeated(store), Some(json("[1]")));
    assert!(matches!(store.apply(batch("m3", b"two")), Err(Error::KeyReused { .. })));
    assert_eq!(totals(store).0, 1);
    assert_eq!(store.remembered(&key, time(99)).expect("read").expect("a key").digest, b"one");
    assert_eq!(store.remembered(&key, time(100)).expect("read"), None);
    // Another principal and another scope have keys of their own.
    for key in [SeenKey::new("bob", "POST tasks", "key-1"), SeenKey::new(OWNER, "POST messages", "key-1")] {
        let seen = SeenId::new(key, b"two", u64::MAX).response(json("2"));
        assert_eq!(change(store, StoreChange::Remember(seen)), ChangeOutcome::Done);
    }
}

fn a_key_can_be_used_again_after_its_time(store: &dyn Store) {
    change(store, StoreChange::Remember(seen(b"one")));
    let mut later = seen(b"two");
    later.expires = time(200).wall;
    assert!(change_at(store, 99, StoreChange::Remember(later.clone())).is_err());
    assert_eq!(change_at(store, 100, StoreChange::Remember(later)).expect("free"), ChangeOutcome::Done);
    assert_eq!(store.sweep(time(199)).expect("swept").keys_removed, 0);
    assert_eq!(store.sweep(time(200)).expect("swept").keys_removed, 1);
}

/// Threads whose batches share a transaction: some fail, and the others have their effect.
fn batches_of_many_threads_are_independent(store: &dyn Store) {
    change(store, StoreChange::CreateTask(task("shared")));
    let won: u64 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|thread| {
                scope.spawn(move || {
                    let mut won = 0;
                    for number in 0..25 {
                        let id = format!("{thread}-{number}");
                        let version = store.task(&task_key("shared")).expect("read").expect("it").version;
                        let batch = StoreBatch::new(time(1))
                            .with(StoreChange::Enqueue(message(&id)))
                            .with(StoreChange::UpdateTask(TaskUpdate::new(task_key("shared"), version)));
                        match store.apply(batch) {
                            Ok(outcome) => {
                                assert_eq!(outcome.of(1), Some(&ChangeOutcome::Version(version + 1)));
                                assert!(store.message(&super::message_key(&id)).expect("read").is_some());
                                won += 1;
                            }
                            Err(Error::VersionLost { .. }) => {
                                assert!(store.message(&super::message_key(&id)).expect("read").is_none());
                            }
                            Err(error) => panic!("{error}"),
                        }
                    }
                    won
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("it ends")).sum()
    });
    assert_eq!(totals(store).0, won);
    assert_eq!(store.task(&task_key("shared")).expect("read").expect("it").version, 1 + won);
}

fn small() -> StoreSettings {
    let mut settings = StoreSettings::default();
    (settings.inbox_entries, settings.tasks_per_owner, settings.outbox_entries) = (5, 2, 2);
    (settings.seen_per_principal, settings.agents_per_owner, settings.names) = (2, 2, 2);
    (settings.content_bytes, settings.text_bytes, settings.id_chars) = (100, 50, 10);
    (settings.page_entries, settings.batch_changes) = (2, 5);
    settings
}

/// Applies changes until one is refused because a list is full, and returns their number and the setting.
fn until_full(store: &dyn Store, make: impl Fn(u64) -> StoreChange) -> (u64, &'static str) {
    for number in 0.. {
        match change_at(store, 1, make(number)) {
            Ok(_) => {}
            Err(error @ Error::LimitReached { setting, .. }) => {
                assert!(error.to_string().contains(setting), "{error}");
                return (number, setting);
            }
            Err(error) => panic!("{error}"),
        }
    }
    unreachable!()
}

/// A principal has half of the places that others leave: 3 of 5, then 1 of 2, then the last one.
fn no_principal_fills_an_inbox_alone(store: &dyn Store) {
    let of = |sender: &'static str| {
        move |number| {
            let mut new = message(&format!("m{number}"));
            new.from = MessageSender::new(sender, "agent");
            StoreChange::Enqueue(new)
        }
    };
    for (sender, count) in [(OWNER, 3), ("bob", 1), ("eve", 1)] {
        assert_eq!(until_full(store, of(sender)), (count, "StoreSettings::inbox_entries"), "{sender}");
    }
    assert_eq!(super::drain(store, 1).len(), 5);
    assert_eq!(until_full(store, |number| of("bob")(number + 3)).0, 3, "acknowledged ones do not count");
}

fn lists_are_limited(store: &dyn Store) {
    let inbox = |number| StoreChange::Enqueue(message(&format!("m{number}")));
    assert_eq!(until_full(store, inbox), (3, "StoreSettings::inbox_entries"));
    assert_eq!(change(store, inbox(0)), ChangeOutcome::Duplicate, "a duplicate needs no space");
    assert_eq!(super::drain(store, 1).len(), 3);
    assert_eq!(until_full(store, |number| inbox(number + 3)).0, 3, "acknowledged ones do not count");
    let tasks = |number| StoreChange::CreateTask(task(&format!("t{number}")));
    assert_eq!(until_full(store, tasks), (2, "StoreSettings::tasks_per_owner"));
    let posts = |number| StoreChange::PushDelivery(super::outbox::post("s", number));
    assert_eq!(until_full(store, posts), (2, "StoreSettings::outbox_entries"));
    let keys = |number: u64| {
        let key = SeenKey::new(OWNER, "scope", number.to_string());
        StoreChange::Remember(SeenId::new(key, b"x", u64::MAX))
    };
    assert_eq!(until_full(store, keys), (2, "StoreSettings::seen_per_principal"));
    let agents = |number| {
        let id = format!("a{number}");
        StoreChange::PutAgent(RegisteredAgent::new(id, OWNER, RegistrySource::Rest, ""))
    };
    assert_eq!(until_full(store, agents), (2, "StoreSettings::agents_per_owner"));
    change(store, StoreChange::RemoveAgent { agent: "a0".into() });
    assert_eq!(until_full(store, |number| agents(number + 2)).0, 1);
}

fn ids_and_texts_are_limited(store: &dyn Store) {
    let refused = |change| match change_at(store, 1, change) {
        Err(error @ Error::TooLong { field, setting, .. }) => {
            assert!(error.to_string().contains(setting), "{error}");
            (field, setting)
        }
        other => panic!("{other:?}"),
    };
    let ids = "StoreSettings::id_chars";
    assert_eq!(refused(StoreChange::Enqueue(message(""))), ("message", ids));
    assert_eq!(refused(StoreChange::Enqueue(message(&"é".repeat(11)))), ("message", ids));
    let mut fits = message(&"é".repeat(10));
    fits.content = json("1");
    assert!(matches!(
        change_at(store, 1, StoreChange::Enqueue(fits.clone())),
        Err(Error::TooLong { field: "sender", .. })
    ));
    fits.from.name = "a".into();
    change(store, StoreChange::Enqueue(fits.clone()));
    fits.content = json(&format!("[{}]", "1,".repeat(60) + "1"));
    assert_eq!(refused(StoreChange::Enqueue(fits)), ("content", "StoreSettings::content_bytes"));
    let mut long = task("t");
    (long.from, long.callback) = ("a".into(), Some("x".repeat(51)));
    assert_eq!(refused(StoreChange::CreateTask(long)), ("callback", "StoreSettings::text_bytes"));
    let mut fits = task("t");
    fits.from = "a".into();
    change(store, StoreChange::CreateTask(fits));
    // The text of an error is cut.
    let mut update = TaskUpdate::new(task_key("t"), 1).state(TaskState::Failed);
    update.error = Some(TaskFailure::new("c", "x".repeat(51), false));
    change(store, StoreChange::UpdateTask(update));
    let error = store.task(&task_key("t")).expect("the store").and_then(|task| task.error).expect("an error");
    assert_eq!(error.message.len(), 50);
    let mut many = RegisteredAgent::new("a", OWNER, RegistrySource::Rest, "");
    many.tags = vec!["x".into(); 3];
    assert_eq!(refused(StoreChange::PutAgent(many)), ("tags", "StoreSettings::names"));
    let mut batch = StoreBatch::new(time(1));
    (0..6).for_each(|_| batch.push(StoreChange::RemoveAgent { agent: "x".into() }));
    let error = store.apply(batch).expect_err("too many");
    assert!(error.to_string().contains("`StoreSettings::batch_changes`"), "{error}");
}

fn refusals_do_not_change_the_counts(store: &dyn Store) {
    let unknown = StoreChange::SetResponse { key: seen(b"").key, response: json("1") };
    for number in 0..10 {
        let batch = StoreBatch::new(time(1))
            .with(StoreChange::Enqueue(message(&format!("x{number}"))))
            .with(unknown.clone())
            .with(StoreChange::UpdateTask(TaskUpdate::new(task_key("none"), 1)));
        store.apply(batch).expect_err("no such task");
    }
    enqueue(store, [message("m1"), message("m2"), message("m3")]);
    assert!(matches!(
        change_at(store, 1, StoreChange::Enqueue(message("m4"))),
        Err(Error::LimitReached { .. })
    ));
}

/// Runs a test with small limits on each backend.
fn on_small(test: fn(&dyn Store), settings: &StoreSettings) {
    test(&*InMemory::empty().open(settings.clone(), 0));
    test(&*InFile::empty().open(settings.clone(), 0));
}

#[test]
fn limits_are_named() {
    let mut settings = small();
    on_small(ids_and_texts_are_limited, &settings);
    settings.id_chars = 128;
    on_small(lists_are_limited, &settings);
    on_small(no_principal_fills_an_inbox_alone, &settings);
    on_small(refusals_do_not_change_the_counts, &settings);
}
