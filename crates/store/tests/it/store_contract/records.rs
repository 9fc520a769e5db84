//! The registry and the principals, erasure, export and retention.

use std::time::Duration;

use duologue_schema::envelope::TaskState;
use duologue_store::{
    AgentQuery, ChangeOutcome, Error, ExportPosition, MessageQuery, MessageSender, MessageState, NewQuestion,
    OutboxQuery, OutboxState, QuestionQuery, RegisteredAgent, RegistrySource, RegistryStatus, SeenId,
    SeenKey, Store, StoreBatch, StoreChange, StoreTopic, StoredPrincipal, StoredTaskKey, TaskFailure,
    TaskQuery,
};

use super::{
    AGENT, OWNER, change, change_at, claim, claim_at, drain, enqueue, ids, in_group, json, message,
    message_key, on_each_store, task, task_key, tasks, time,
};

on_each_store!(
    agents_are_found_by_all_filters,
    an_agent_belongs_to_its_owner,
    silent_agents_are_marked_offline,
    principals_are_found_by_their_key,
    the_work_of_principals_that_are_not_kept_ends,
    the_data_of_a_principal_is_exported_and_erased,
    the_tasks_of_others_at_erased_agents_fail,
    the_tasks_of_others_at_erased_agents_end_in_parts,
    a_page_of_an_export_ends_before_a_mib,
    much_text_is_removed_in_parts,
    what_has_ended_is_purged,
    the_numbers_of_removed_tasks_and_messages_are_not_used_again,
    the_posts_of_an_open_task_are_kept,
    statistics_count_what_is_there,
);

fn agent(id: &str, owner: &str) -> RegisteredAgent {
    RegisteredAgent::new(id, owner, RegistrySource::Rest, "https://example.com")
}

fn agents_are_found_by_all_filters(store: &dyn Store) {
    for number in 0..20 {
        let mut entry = agent(&format!("agent-{number:02}"), if number < 10 { OWNER } else { "bob" });
        entry.capabilities = vec!["search".into(), format!("cap-{}", number % 4)];
        entry.domains = vec![format!("domain-{}", number % 2)];
        entry.tags = if number % 5 == 0 { vec!["fast".into(), "fast".into()] } else { vec![] };
        entry.provider = (number % 3 == 0).then(|| "ACME".into());
        entry.status = if number < 15 { RegistryStatus::Online } else { RegistryStatus::Busy };
        entry.card = json(r#"{"version":"1.0"}"#);
        change(store, StoreChange::PutAgent(entry));
    }
    let list = |edit: fn(&mut AgentQuery)| {
        let mut query = AgentQuery::default();
        edit(&mut query);
        let page = store.agents(&query).expect("a list");
        (page.total, page.items.into_iter().map(|agent| agent.id).collect::<Vec<_>>())
    };
    assert_eq!(list(|it| it.capability = Some("search".into())).0, 20);
    assert_eq!(list(|it| it.capability = Some("cap-1".into())).0, 5);
    // A capability is not a domain, and not a part of one.
    assert_eq!(list(|it| it.domain = Some("cap-1".into())).0, 0);
    assert_eq!(list(|it| it.capability = Some("cap".into())).0, 0);
    assert_eq!(
        list(|it| (it.domain, it.tag) = (Some("domain-0".into()), Some("fast".into()))).1,
        ["agent-00", "agent-10"]
    );
    assert_eq!(
        list(|it| (it.provider, it.status) = (Some("ACME".into()), Some(RegistryStatus::Busy))).1,
        ["agent-15", "agent-18"]
    );
    assert_eq!(
        list(|it| (it.owner, it.offset, it.limit) = (Some("bob".into()), 8, 5)),
        (10, vec!["agent-18".into(), "agent-19".into()])
    );
    assert_eq!(list(|it| it.source = Some(RegistrySource::Config)).0, 0);
    // A new entry replaces the names.
    change(store, StoreChange::PutAgent(agent("agent-00", OWNER)));
    assert_eq!(list(|it| it.tag = Some("fast".into())).0, 3);
    let found = store.agent("agent-05").expect("read").expect("an agent");
    assert_eq!(
        (found.card, found.tags.len(), found.created),
        (json(r#"{"version":"1.0"}"#), 2, time(1).wall)
    );
}

fn an_agent_belongs_to_its_owner(store: &dyn Store) {
    change(store, StoreChange::PutAgent(agent("a", OWNER)));
    let other = change_at(store, 2, StoreChange::PutAgent(agent("a", "bob")));
    assert!(matches!(other, Err(Error::RecordConflict { .. })));
    let mut moved = agent("a", OWNER);
    moved.endpoint = "https://example.org".into();
    change_at(store, 2, StoreChange::PutAgent(moved)).expect("replaced");
    let found = store.agent("a").expect("read").expect("an agent");
    assert_eq!((found.created, found.updated), (time(1).wall, time(2).wall));
    assert_eq!(found.endpoint, "https://example.org");
    assert_eq!(change(store, StoreChange::RemoveAgent { agent: "a".into() }), ChangeOutcome::Count(1));
    assert_eq!(store.agent("a").expect("read"), None);
}

fn silent_agents_are_marked_offline(store: &dyn Store) {
    for (id, source) in
        [("a", RegistrySource::Rest), ("b", RegistrySource::Attached), ("c", RegistrySource::Config)]
    {
        let mut entry = agent(id, OWNER);
        (entry.source, entry.status) = (source, RegistryStatus::Online);
        change(store, StoreChange::PutAgent(entry));
    }
    let beat = |agent: &str| StoreChange::Heartbeat { agent: agent.into(), status: RegistryStatus::Online };
    change_at(store, 50, beat("a")).expect("alive");
    assert!(matches!(change_at(store, 50, beat("x")), Err(Error::NoRecord { .. })));
    let stale = StoreChange::MarkStale { seen_before: time(40).wall };
    assert_eq!(change_at(store, 60, stale.clone()).expect("marked"), ChangeOutcome::Count(1));
    assert_eq!(change_at(store, 60, stale).expect("marked"), ChangeOutcome::Count(0));
    let status = |id: &str| store.agent(id).expect("read").expect("an agent").status;
    assert_eq!(
        [status("a"), status("b"), status("c")],
        [RegistryStatus::Online, RegistryStatus::Offline, RegistryStatus::Online]
    );
    change_at(store, 61, beat("b")).expect("alive");
    assert_eq!(status("b"), RegistryStatus::Online);
    assert_eq!(store.agent("b").expect("read").expect("an agent").last_seen, Some(time(61).wall));
}

fn principals_are_found_by_their_key(store: &dyn Store) {
    let mut alice = StoredPrincipal::new("alice");
    alice.roles = vec!["admin".into()];
    (alice.key_hash, alice.webhook_secret) = (Some([7; 32]), Some("hush".into()));
    change(store, StoreChange::PutPrincipal(alice.clone()));
    alice.created = time(1).wall;
    assert_eq!(store.principal_by_key(&[7; 32]).expect("read"), Some(alice.clone()));
    assert_eq!(store.principal_by_key(&[0; 32]).expect("read"), None);
    assert!(!format!("{alice:?}").contains("hush") && !format!("{alice:?}").contains("7, 7"));
    let mut bob = StoredPrincipal::new("bob");
    bob.key_hash = Some([7; 32]);
    let same = change_at(store, 2, StoreChange::PutPrincipal(bob.clone()));
    assert!(matches!(same, Err(Error::RecordConflict { .. })));
    bob.key_hash = None;
    change(store, StoreChange::PutPrincipal(bob));
    change(store, StoreChange::PutPrincipal(StoredPrincipal::new("carol")));
    (alice.key_hash, alice.disabled, alice.expires) = (Some([8; 32]), true, Some(5));
    change_at(store, 2, StoreChange::PutPrincipal(alice.clone())).expect("replaced");
    assert_eq!(store.principal_by_key(&[7; 32]).expect("read"), None, "the old key");
    assert_eq!(store.principal("alice").expect("read"), Some(alice));
    let page = store.principals(1, 1).expect("a list");
    assert_eq!((page.total, page.items[0].id.as_str()), (3, "bob"));
    assert_eq!(
        change(store, StoreChange::RemovePrincipal { principal: "bob".into() }),
        ChangeOutcome::Count(1)
    );
    assert_eq!(store.principal("bob").expect("read"), None);
}

/// Alice is not kept, the subjects of `corp` are, and those of `gone` are known by their work alone.
fn the_work_of_principals_that_are_not_kept_ends(store: &dyn Store) {
    let mut alice = StoredPrincipal::new("alice");
    (alice.key_hash, alice.webhook_secret) = (Some([7; 32]), Some("hush".into()));
    change(store, StoreChange::PutPrincipal(alice.clone()));
    change(store, StoreChange::PutPrincipal(StoredPrincipal::new("bob")));
    enqueue(store, [message("dead")]);
    let dead = claim(store, 1)[0].lease;
    change(store, StoreChange::RejectMessage { lease: dead, error: "no".into() });
    let started = tasks::started(store, "started");
    change(store, tasks::set(&started, TaskState::Cancelling));
    for owner in ["alice", "bob", "corp/ada", "gone/eve"] {
        for id in ["m1", "m2"] {
            let mut sent = in_group(id, "group");
            sent.from.principal = owner.into();
            change(store, StoreChange::Enqueue(sent));
        }
        let mut work = task("t");
        work.key.owner = owner.into();
        change(store, StoreChange::CreateTask(work));
    }

    let keep = |prefix: &str| StoreChange::KeepPrincipals {
        principals: vec!["bob".into(), "local".into()],
        prefixes: vec![prefix.into()],
    };
    assert_eq!(change(store, keep("corp/")), ChangeOutcome::Count(2));
    assert_eq!(change(store, keep("corp/")), ChangeOutcome::Count(0));
    let found = store.principal("alice").expect("read").expect("it stays");
    assert!(found.disabled && found.key_hash.is_none() && found.webhook_secret.is_none());
    let is_disabled = |id: &str| store.principal(id).expect("read").map(|found| found.disabled);
    assert_eq!(["bob", "corp/ada", "gone/eve"].map(is_disabled), [Some(false), None, Some(true)]);

    let eve = StoredTaskKey::new("gone/eve", AGENT, "t");
    let reported = store.sweep(time(1)).expect("swept").tasks_ended;
    assert_eq!(reported, [task_key("started"), task_key("t"), eve.clone()]);
    let ended = |key: &StoredTaskKey| {
        let task = store.task(key).expect("read").expect("a task");
        (task.state, task.error.map(|error| error.code), task.dead)
    };
    let removed = Some("principal_removed".to_owned());
    for key in [&task_key("t"), &eve] {
        assert_eq!(ended(key), (TaskState::Failed, removed.clone(), false));
    }
    assert_eq!(ended(&task_key("started")), (TaskState::Cancelled, removed, false));
    let renew = StoreChange::RenewLease { lease: started.lease, lasts: Duration::from_secs(9) };
    assert!(matches!(change_at(store, 1, renew), Err(Error::LeaseLost { .. })), "its worker goes on");
    for id in ["m1", "m2"] {
        let sent = store.message(&message_key(id)).expect("read").expect("a message");
        assert_eq!(sent.state, MessageState::Dead);
        assert!(sent.error.is_some_and(|error| error.starts_with("principal_removed: ")));
    }
    let left = store.claim_tasks(AGENT, &claim_at(1, 9)).expect("claimed").entries;
    let owners: Vec<_> = left.iter().map(|it| it.entry.key.owner.as_str()).collect();
    assert_eq!(owners, ["bob", "corp/ada"]);
    assert_eq!(ids(&claim(store, 9)), ["m1", "m1"], "one of each group");

    let resend = StoreChange::ResendMessage { key: message_key("dead"), expires: None };
    assert!(matches!(change_at(store, 1, resend.clone()), Err(Error::WrongState { .. })));
    change(store, StoreChange::PutPrincipal(alice.clone()));
    change(store, resend);
    let found = store.principal("alice").expect("read").expect("a principal");
    assert_eq!((found.disabled, found.webhook_secret), (false, alice.webhook_secret));
    // The provider is there again.
    change(store, keep("gone/"));
    assert_eq!(is_disabled("gone/eve"), Some(false));
    // A key moves to a principal that is put before its former owner.
    let principals = vec!["alice".into(), "bob".into()];
    change(store, StoreChange::KeepPrincipals { principals, prefixes: Vec::new() });
    let mut bob = StoredPrincipal::new("bob");
    bob.key_hash.clone_from(&alice.key_hash);
    change(store, StoreChange::PutPrincipal(bob));
}

/// Returns the pages of an export.
fn export(store: &dyn Store, principal: &str) -> Vec<Vec<serde_json::Value>> {
    let (mut pages, mut next) = (Vec::new(), Some(ExportPosition::default()));
    while let Some(position) = next {
        let page = store.export(principal, &position).expect("a page");
        pages.push(page.records);
        next = page.next;
    }
    pages
}

/// Adds data of a principal, with messages to and from another one.
fn add_data(store: &dyn Store, owner: &str, other_agent: &str) {
    let mut principal = StoredPrincipal::new(owner);
    principal.webhook_secret = Some("hush".into());
    change(store, StoreChange::PutPrincipal(principal));
    let mut entry = agent(&format!("{owner}-agent"), owner);
    entry.tags = vec!["tag".into()];
    change(store, StoreChange::PutAgent(entry));
    for number in 0..70 {
        let mut sent = in_group(&format!("{owner}-{number}"), "shared");
        (sent.agent, sent.from) = (other_agent.into(), MessageSender::new(owner, "x"));
        sent.content = json(&format!(r#""content of {owner}""#));
        change(store, StoreChange::Enqueue(sent));
    }
    let mut work = task(&format!("{owner}-task"));
    work.key.owner = owner.into();
    let key = work.key.clone();
    change(store, StoreChange::CreateTask(work));
    change(store, StoreChange::AddQuestion(NewQuestion::new(key, "q", json("1"))));
    let mut post = super::outbox::post(&format!("{owner}-stream"), 0);
    post.principal = owner.into();
    change(store, StoreChange::PushDelivery(post));
    let seen = SeenId::new(SeenKey::new(owner, "s", "k"), b"d", u64::MAX);
    change(store, StoreChange::Remember(seen));
}

fn the_data_of_a_principal_is_exported_and_erased(store: &dyn Store) {
    add_data(store, "alice", "bob-agent");
    add_data(store, "bob", "bob-agent");
    enqueue(
        store,
        [{
            let mut it = message("to-alice");
            it.agent = "alice-agent".into();
            it.from.principal = "carol".into();
            it
        }],
    );
    let export = |principal: &str| export(store, principal).concat();
    let alice = export("alice");
    let count = |kind: &str| alice.iter().filter(|record| record.get(kind).is_some()).count();
    let kinds = ["principal", "agent", "key", "message", "task", "question", "delivery"];
    assert_eq!(kinds.map(count), [1, 1, 1, 71, 1, 1, 1]);
    let text = serde_json::to_string(&alice).expect("JSON");
    assert!(!text.contains("hush") && !text.contains("content of bob"));
    assert!(text.contains(r#""content":"content of alice""#), "contents are JSON, not text");
    let bob = export("bob");
    let erase = StoreChange::ErasePrincipal { principal: "alice".into() };
    assert_eq!(change(store, erase.clone()), ChangeOutcome::Count(71 + 5));
    assert_eq!(change(store, erase), ChangeOutcome::Count(0));
    assert_eq!(export("alice").len(), 1, "the principal stays");
    let after: Vec<_> =
        bob.into_iter().filter(|record| record["message"]["from"]["principal"] != "alice").collect();
    assert_eq!(export("bob"), after);
    // The group of the erased messages goes on.
    let claim = super::claim_at(1, 9);
    let next = store.claim_messages("bob-agent", &claim).expect("claimed").entries;
    assert_eq!(super::ids(&next), ["bob-0"]);
}

fn the_tasks_of_others_at_erased_agents_fail(store: &dyn Store) {
    add_data(store, "alice", AGENT);
    let mut work = task("t");
    (work.key.agent, work.key.owner) = ("alice-agent".into(), "bob".into());
    let key = work.key.clone();
    change(store, StoreChange::CreateTask(work));
    // Senders wait there for answers.
    let mut inbox = store.watch(&StoreTopic::Inbox("alice-agent".into()));
    change(store, StoreChange::ErasePrincipal { principal: "alice".into() });
    assert!(inbox.take_changed());
    let task = store.task(&key).expect("the store").expect("the task");
    let code = task.error.map(|error| error.code);
    assert_eq!((task.state, code.as_deref()), (TaskState::Failed, Some(TaskFailure::AGENT_REMOVED)));
}

fn the_tasks_of_others_at_erased_agents_end_in_parts(store: &dyn Store) {
    add_data(store, "alice", AGENT);
    let page = store.settings().page_entries;
    let mut batch = StoreBatch::new(time(1));
    for number in 0..=page {
        let mut work = task(&format!("t{number}"));
        (work.key.agent, work.key.owner) = ("alice-agent".into(), "bob".into());
        batch.push(StoreChange::CreateTask(work));
    }
    store.apply(batch).expect("tasks");
    let mut open = TaskQuery::default();
    (open.agent, open.ended) = (Some("alice-agent".into()), Some(false));
    let erase = || change(store, StoreChange::ErasePrincipal { principal: "alice".into() });
    assert_eq!(erase(), ChangeOutcome::Count(page));
    assert_eq!(store.tasks(&open).expect("a list").total, 1, "changes of others come between two parts");
    assert!(matches!(erase(), ChangeOutcome::Count(1..)));
    assert_eq!(erase(), ChangeOutcome::Count(0));
    assert_eq!(store.tasks(&open).expect("a list").total, 0);
    assert_eq!(store.agent("alice-agent").expect("the store"), None);
}

fn a_page_of_an_export_ends_before_a_mib(store: &dyn Store) {
    let text = json(&format!("\"{}\"", "x".repeat(400_000)));
    let mut all = Vec::new();
    for number in 0..5 {
        let mut sent = message(&format!("m{number}"));
        sent.content = text.clone();
        all.push(sent);
        let seen = SeenId::new(SeenKey::new(OWNER, "s", format!("k{number}")), b"d", u64::MAX);
        change(store, StoreChange::Remember(seen.response(text.clone())));
        let mut entry = agent(&format!("a{number}"), OWNER);
        entry.card = text.clone();
        change(store, StoreChange::PutAgent(entry));
    }
    enqueue(store, all);
    let pages: Vec<_> = export(store, OWNER).iter().map(Vec::len).filter(|count| *count > 0).collect();
    assert_eq!(pages, [2, 2, 1, 2, 2, 1, 2, 2, 1], "agents, keys and messages");
}

fn the_posts_of_an_open_task_are_kept(store: &dyn Store) {
    let open = tasks::started(store, "t1");
    for (stream, of) in [("chunk", Some(open.entry.seq)), ("other", Some(99)), ("none", None)] {
        let mut post = super::outbox::post(stream, 0);
        post.task = of;
        change(store, StoreChange::PushDelivery(post));
    }
    for leased in store.claim_deliveries(&claim_at(1, 9)).expect("claimed").entries {
        change(store, StoreChange::Delivered { lease: leased.lease });
    }
    let ends = |count| {
        let purge = StoreChange::Purge { ended_before: u64::MAX >> 1, principal: None };
        assert_eq!(change(store, purge), ChangeOutcome::Count(count));
        assert_eq!(store.next_sweep().expect("read").ended, None);
        ["chunk", "other", "none"].map(|stream| store.stream_end(stream).expect("read"))
    };
    assert_eq!(ends(2), [Some(0), None, None]);
    let StoreChange::UpdateTask(mut end) = tasks::set(&open, TaskState::Completed) else { unreachable!() };
    end.callback_queued = true;
    change(store, StoreChange::UpdateTask(end));
    // The task and its post.
    assert_eq!(ends(2), [None, None, None]);
}

fn much_text_is_removed_in_parts(store: &dyn Store) {
    let text = json(&format!("\"{}\"", "x".repeat((4 << 20) - 2)));
    let add = || {
        for number in 0..3 {
            let mut sent = message(&format!("m{number}"));
            sent.content = text.clone();
            enqueue(store, [sent]);
            let mut work = task(&format!("t{number}"));
            work.parameters = text.clone();
            change(store, StoreChange::CreateTask(work));
        }
    };
    let count = |change_of: &StoreChange| match change(store, change_of.clone()) {
        ChangeOutcome::Count(count) => count,
        other => panic!("{other:?}"),
    };
    add();
    let erase = StoreChange::ErasePrincipal { principal: OWNER.into() };
    assert_eq!([&erase; 3].map(count), [4, 2, 0]);
    assert_eq!(store.erasures().expect("read"), [OWNER]);
    add();
    assert_eq!(drain(store, 1).len(), 3);
    for _ in 0..3 {
        let begun = tasks::claim_one(store, 1);
        change(store, tasks::set(&begun, TaskState::Completed));
    }
    let purge = StoreChange::Purge { ended_before: u64::MAX >> 1, principal: None };
    assert_eq!([&purge; 3].map(count), [4, 2, 0]);
}

fn what_has_ended_is_purged(store: &dyn Store) {
    enqueue(store, (0..3).map(|number| message(&format!("m{number}"))));
    let dead = claim(store, 1)[0].lease;
    change(store, StoreChange::RejectMessage { lease: dead, error: "no".into() });
    assert_eq!(drain(store, 1).len(), 2);
    let done = tasks::started(store, "t1");
    change(store, StoreChange::AddQuestion(NewQuestion::new(task_key("t1"), "q", json("1"))));
    change(store, tasks::set(&done, TaskState::Completed));
    tasks::started(store, "t2");
    let mut with_callback = task("t3");
    with_callback.callback = Some("https://example.com".into());
    change(store, StoreChange::CreateTask(with_callback));
    let due = tasks::claim_one(store, 1);
    change(store, tasks::set(&due, TaskState::Completed));
    super::outbox::push(store, "s", 0);
    let post = store.claim_deliveries(&super::claim_at(1, 1)).expect("claimed").entries[0].lease;
    change(store, StoreChange::Delivered { lease: post });
    super::outbox::push(store, "s", 1);
    let purge = |seconds| StoreChange::Purge { ended_before: time(seconds).wall, principal: None };
    assert_eq!(change(store, purge(1)), ChangeOutcome::Count(0));
    // Two messages, a task, its question, a post.
    assert_eq!(change(store, purge(2)), ChangeOutcome::Count(5));
    let mut query = MessageQuery::default();
    query.agent = Some(AGENT.into());
    assert_eq!(store.messages(&query).expect("a list").total, 1, "the dead letter");
    assert_eq!(
        store.tasks(&TaskQuery::default()).expect("a list").total,
        2,
        "it runs, or its callback is due"
    );
    assert_eq!(store.questions(&QuestionQuery::default()).expect("a list").total, 0);
    assert_eq!(store.deliveries(&OutboxQuery::default()).expect("a list").total, 1);
}

fn the_numbers_of_removed_tasks_and_messages_are_not_used_again(store: &dyn Store) {
    let (mut last_task, mut last_message) = (0, 0);
    let mut next = |id: &str| {
        tasks::create(store, id);
        enqueue(store, [message(id)]);
        let found = store.message(&message_key(id)).expect("read").expect("a message");
        let numbers = (tasks::get(store, id).seq, found.seq);
        assert!(numbers.0 > last_task && numbers.1 > last_message, "{id}: {numbers:?}");
        (last_task, last_message) = numbers;
    };
    next("purged");
    let begun = tasks::claim_one(store, 1);
    change(store, tasks::set(&begun, TaskState::Completed));
    drain(store, 1);
    let purge = StoreChange::Purge { ended_before: u64::MAX >> 1, principal: None };
    assert_eq!(change(store, purge), ChangeOutcome::Count(2));
    next("erased");
    change(store, StoreChange::ErasePrincipal { principal: OWNER.into() });
    next("removed");
    assert_eq!(
        change(store, StoreChange::RemoveMessage { key: message_key("removed") }),
        ChangeOutcome::Count(1)
    );
    next("dead");
    // A dead letter that is sent again has a number that later ones exceed, and that is not one of a removed message.
    let dead = claim(store, 1)[0].lease;
    change(store, StoreChange::RejectMessage { lease: dead, error: "no".into() });
    enqueue(store, [message("newest")]);
    change(store, StoreChange::RemoveMessage { key: message_key("newest") });
    let resend = StoreChange::ResendMessage { key: message_key("dead"), expires: None };
    change(store, resend);
    let again = store.message(&message_key("dead")).expect("read").expect("a message").seq;
    assert_eq!(again, last_message + 2);
    last_message = again;
    let next = |id: &str| {
        enqueue(store, [message(id)]);
        let found = store.message(&message_key(id)).expect("read").expect("a message");
        assert_eq!(found.seq, last_message + 1);
    };
    next("last");
}

fn statistics_count_what_is_there(store: &dyn Store) {
    let none = store.statistics().expect("numbers");
    assert!(none.tasks.is_empty() && none.waiting_messages.is_empty() && none.outbox.is_empty());
    let mut urgent = message("urgent");
    urgent.priority = 9;
    enqueue(store, [message("m1"), in_group("m2", "g"), in_group("m3", "g"), urgent]);
    // A worker has the urgent one.
    assert_eq!(claim(store, 1)[0].entry.id, "urgent");
    tasks::started(store, "t1");
    tasks::create(store, "t2");
    super::outbox::push(store, "s", 0);
    let found = store.statistics().expect("numbers");
    let states: Vec<_> = found.tasks.iter().map(|task| (task.state.clone(), task.count)).collect();
    assert_eq!(states, [(TaskState::Submitted, 1), (TaskState::Working, 1)]);
    let depth = &found.waiting_messages[..];
    assert_eq!((depth.len(), depth[0].band, depth[0].count, &*depth[0].agent), (1, 1, 3, AGENT));
    assert_eq!((found.waiting_tasks[0].count, found.waiting_tasks[0].oldest), (1, time(1).wall));
    assert_eq!((found.outbox[0].state, found.outbox[0].count), (OutboxState::Pending, 1));
}
