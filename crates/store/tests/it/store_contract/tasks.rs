//! Tasks: creation, versions, the end, lost workers, dead letters and questions.

use std::time::Duration;

use duologue_schema::envelope::TaskState;
use duologue_store::{
    ChangeOutcome, Error, Leased, NewQuestion, QuestionQuery, QuestionState, RegisteredAgent, RegistrySource,
    Store, StoreChange, StoredTask, StoredTaskKey, TaskFailure, TaskQuery, TaskUpdate,
};

use super::{AGENT, OWNER, change, change_at, claim_at, json, on_each_store, task, task_key, time};

on_each_store!(
    a_task_is_created_once,
    a_task_runs_to_its_end,
    a_claim_leaves_out_principals,
    a_lost_version_names_the_task_and_changes_nothing,
    an_ended_task_is_never_changed_again,
    starting_needs_the_lease,
    the_tasks_of_a_removed_agent_fail,
    a_started_task_whose_worker_is_lost_has_failed,
    a_task_that_was_not_started_returns,
    a_task_that_is_safe_to_retry_is_started_again,
    a_task_that_is_being_cancelled_ends_with_its_worker,
    a_dead_task_is_sent_again_or_dropped,
    a_task_expires_unless_it_was_started,
    callbacks_are_due_until_they_are_queued,
    tasks_are_listed_by_owner_agent_and_state,
    the_median_is_that_of_the_last_completed_tasks,
    the_first_answer_to_a_question_counts,
    questions_end_with_their_task,
);

pub(crate) fn get(store: &dyn Store, id: &str) -> StoredTask {
    store.task(&task_key(id)).expect("read").expect("a task")
}

pub(crate) fn create(store: &dyn Store, id: &str) {
    assert_eq!(change(store, StoreChange::CreateTask(task(id))), ChangeOutcome::Done);
}

pub(crate) fn claim_one(store: &dyn Store, seconds: u64) -> Leased<StoredTask> {
    let claimed = store.claim_tasks(AGENT, &claim_at(seconds, 1)).expect("claimed");
    claimed.entries.into_iter().next().expect("a task")
}

pub(crate) fn set(leased: &Leased<StoredTask>, state: TaskState) -> StoreChange {
    let StoredTask { key, version, .. } = leased.entry.clone();
    StoreChange::UpdateTask(TaskUpdate::new(key, version).lease(leased.lease).state(state))
}

/// Creates a task, claims it at second 1 and starts it.
pub(crate) fn started(store: &dyn Store, id: &str) -> Leased<StoredTask> {
    create(store, id);
    let mut leased = claim_one(store, 1);
    assert_eq!(change(store, set(&leased, TaskState::Working)), ChangeOutcome::Version(2));
    leased.entry.version = 2;
    leased
}

fn a_task_is_created_once(store: &dyn Store) {
    create(store, "t1");
    assert_eq!(change(store, StoreChange::CreateTask(task("t1"))), ChangeOutcome::Duplicate);
    let mut other = task("t1");
    other.parameters = json("[]");
    let error = change_at(store, 1, StoreChange::CreateTask(other)).expect_err("a conflict");
    assert!(matches!(error, Error::RecordConflict { .. }), "{error}");
    // Another owner has tasks of its own.
    let mut other = task("t1");
    other.key.owner = "bob".into();
    assert_eq!(change(store, StoreChange::CreateTask(other)), ChangeOutcome::Done);
    let found = get(store, "t1");
    assert_eq!((found.state, found.version, found.progress), (TaskState::Submitted, 1, None));
    assert_eq!((found.created, found.from.principal.as_str()), (time(1).wall, OWNER));
}

fn a_claim_leaves_out_principals(store: &dyn Store) {
    create(store, "t1");
    create(store, "t2");
    let mut other = task("t3");
    other.key.owner = "bob".into();
    assert_eq!(change(store, StoreChange::CreateTask(other)), ChangeOutcome::Done);
    let claimed = |except: &[&str]| {
        let except = except.iter().map(ToString::to_string).collect();
        let claim = claim_at(1, 1).except(except);
        let entries = store.claim_tasks(AGENT, &claim).expect("claimed").entries;
        entries.into_iter().map(|leased| leased.entry.key.task).collect::<Vec<_>>()
    };
    assert_eq!(claimed(&[OWNER, "bob"]), [""; 0]);
    assert_eq!(claimed(&[OWNER]), ["t3"]);
    assert_eq!(claimed(&["bob"]), ["t1"]);
    assert_eq!(claimed(&[]), ["t2"]);
}

fn a_task_runs_to_its_end(store: &dyn Store) {
    let leased = started(store, "t1");
    assert_eq!(store.claim_tasks(AGENT, &claim_at(2, 9)).expect("claimed").entries, []);
    let mut update = TaskUpdate::new(task_key("t1"), 2).lease(leased.lease);
    (update.progress, update.session) = (Some(200), Some("s1".into()));
    assert_eq!(change_at(store, 3, StoreChange::UpdateTask(update)).expect("it"), ChangeOutcome::Version(3));
    let mut update = TaskUpdate::new(task_key("t1"), 3).lease(leased.lease).state(TaskState::Completed);
    update.result = Some(json("42"));
    change_at(store, 4, StoreChange::UpdateTask(update)).expect("completed");
    let done = get(store, "t1");
    assert_eq!((done.state.clone(), done.progress, done.version), (TaskState::Completed, Some(100), 4));
    assert_eq!((done.result.clone(), done.session.as_deref()), (Some(json("42")), Some("s1")));
    assert_eq!((done.completed, done.duration()), (Some(time(4).wall), Some(Duration::from_secs(3))));
    assert_eq!(store.sweep(time(99)).expect("swept").tasks_ended, [], "its lease has ended");
}

fn a_lost_version_names_the_task_and_changes_nothing(store: &dyn Store) {
    let leased = started(store, "t1");
    let before = get(store, "t1");
    for version in [0, 1, 3] {
        let update = TaskUpdate::new(task_key("t1"), version).lease(leased.lease).state(TaskState::Completed);
        match change_at(store, 1, StoreChange::UpdateTask(update)) {
            Err(Error::VersionLost { record, expected, found: 2 }) => {
                assert!(record.contains("\"t1\"") && expected == version);
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(get(store, "t1"), before);
    let missing = StoreChange::UpdateTask(TaskUpdate::new(task_key("t9"), 1));
    assert!(matches!(change_at(store, 1, missing), Err(Error::NoRecord { .. })));
}

fn an_ended_task_is_never_changed_again(store: &dyn Store) {
    create(store, "t1");
    let cancel = TaskUpdate::new(task_key("t1"), 1).state(TaskState::Cancelled);
    change(store, StoreChange::UpdateTask(cancel));
    assert_eq!(store.claim_tasks(AGENT, &claim_at(1, 9)).expect("claimed").entries, []);
    for state in [TaskState::Completed, TaskState::Cancelled, TaskState::Working, TaskState::Submitted] {
        let update = TaskUpdate::new(task_key("t1"), 2).state(state);
        let error = change_at(store, 1, StoreChange::UpdateTask(update)).expect_err("it has ended");
        assert!(matches!(error, Error::WrongState { .. }), "{error}");
    }
    assert_eq!(get(store, "t1").state, TaskState::Cancelled);
}

fn starting_needs_the_lease(store: &dyn Store) {
    create(store, "t1");
    for state in [TaskState::Working, TaskState::InputRequired] {
        let start = StoreChange::UpdateTask(TaskUpdate::new(task_key("t1"), 1).state(state));
        assert!(matches!(change_at(store, 1, start), Err(Error::WrongState { .. })));
    }
    create(store, "t2");
    let (first, second) = (claim_one(store, 1), claim_one(store, 1));
    let mut wrong = TaskUpdate::new(task_key("t1"), 1).state(TaskState::Working);
    wrong.lease = Some(second.lease);
    assert!(matches!(change_at(store, 1, StoreChange::UpdateTask(wrong)), Err(Error::LeaseLost { .. })));
    let late = change_at(store, 11, set(&first, TaskState::Working));
    assert!(matches!(late, Err(Error::LeaseLost { .. })), "its lease is over");
    let unknown = set(&first, TaskState::from("dancing"));
    assert!(matches!(change_at(store, 2, unknown), Err(Error::WrongState { .. })));
    change_at(store, 2, set(&first, TaskState::Working)).expect("started");
}

fn a_started_task_whose_worker_is_lost_has_failed(store: &dyn Store) {
    let leased = started(store, "t1");
    let report = store.sweep(time(11)).expect("swept");
    assert_eq!((report.tasks_ended, report.tasks_returned), (vec![task_key("t1")], 0));
    let lost = get(store, "t1");
    assert_eq!((lost.state, lost.dead, lost.completed), (TaskState::Failed, true, Some(time(11).wall)));
    let TaskFailure { code, retryable, .. } = lost.error.expect("an error");
    assert_eq!((code.as_str(), retryable), ("worker_lost", true));
    assert_eq!(store.claim_tasks(AGENT, &claim_at(12, 9)).expect("claimed").entries, []);
    let mut late = set(&leased, TaskState::Completed);
    if let StoreChange::UpdateTask(update) = &mut late {
        update.version = lost.version;
    }
    assert!(change_at(store, 12, late).is_err(), "the worker was too late");
}

fn a_task_that_was_not_started_returns(store: &dyn Store) {
    create(store, "t1");
    let leased = claim_one(store, 1);
    assert_eq!(leased.entry.state, TaskState::Submitted);
    assert_eq!(store.sweep(time(11)).expect("swept").tasks_returned, 1);
    let leased = claim_one(store, 11);
    assert_eq!(leased.entry.attempts, 2);
    let give_back = StoreChange::ReturnTask { lease: leased.lease, delay: Duration::from_secs(5) };
    assert_eq!(change_at(store, 11, give_back).expect("returned"), ChangeOutcome::Done);
    let now = store.claim_tasks(AGENT, &claim_at(15, 1)).expect("claimed");
    assert_eq!((now.entries, now.next_due), (vec![], Some(Duration::from_secs(16))));
    assert_eq!(claim_one(store, 16).entry.attempts, 3);
}

fn a_task_that_is_safe_to_retry_is_started_again(store: &dyn Store) {
    let mut new = task("t1");
    (new.retry_safe, new.max_attempts) = (true, 2);
    change(store, StoreChange::CreateTask(new));
    for attempt in 1..=2 {
        let leased = claim_one(store, 11 * attempt);
        assert_eq!(u64::from(leased.entry.attempts), attempt);
        change_at(store, 11 * attempt, set(&leased, TaskState::Working)).expect("started");
        store.sweep(time(11 * (attempt + 1))).expect("swept");
    }
    let ended = get(store, "t1");
    assert_eq!((ended.state, ended.dead, ended.attempts), (TaskState::Failed, true, 2));
    // An attempt that continues the work of earlier ones is the first.
    let mut new = task("t3");
    (new.retry_safe, new.max_attempts) = (true, 2);
    change_at(store, 33, StoreChange::CreateTask(new)).expect("created");
    for attempt in 3..=6 {
        let leased = claim_one(store, 11 * attempt);
        change_at(store, 11 * attempt, set(&leased, TaskState::Working)).expect("started");
        let lease = leased.lease;
        if attempt == 3 {
            change_at(store, 33, StoreChange::HandOver { lease }).expect("handed over");
        }
        assert_eq!(get(store, "t3").handed_at, Some(time(33).wall));
        change_at(store, 11 * attempt, StoreChange::ContinueWork { lease }).expect("continued");
        store.sweep(time(11 * (attempt + 1))).expect("swept");
        let late = change_at(store, 11 * (attempt + 1), StoreChange::ContinueWork { lease });
        assert!(matches!(late, Err(Error::LeaseLost { .. })), "{late:?}");
    }
    let StoredTask { state, attempts, .. } = get(store, "t3");
    assert_eq!((state, attempts), (TaskState::Submitted, 1));
    change_at(
        store,
        77,
        StoreChange::UpdateTask(
            TaskUpdate::new(task_key("t3"), get(store, "t3").version).state(TaskState::Cancelled),
        ),
    )
    .expect("cancelled");
    // A task that is not safe is not returned either.
    let leased = started(store, "t2");
    let give_back = StoreChange::ReturnTask { lease: leased.lease, delay: Duration::ZERO };
    assert!(matches!(
        change(store, StoreChange::RenewLease { lease: leased.lease, lasts: Duration::from_secs(99) }),
        ChangeOutcome::Done
    ));
    assert!(matches!(change_at(store, 2, give_back), Err(Error::WrongState { .. })));
}

fn a_task_that_is_being_cancelled_ends_with_its_worker(store: &dyn Store) {
    started(store, "t1");
    let cancel = TaskUpdate::new(task_key("t1"), 2).state(TaskState::Cancelling);
    change(store, StoreChange::UpdateTask(cancel));
    store.sweep(time(11)).expect("swept");
    let ended = get(store, "t1");
    assert_eq!((ended.state, ended.dead), (TaskState::Cancelled, false));
    // One that is safe to retry goes to another worker, until its last attempt.
    let mut new = task("t2");
    (new.retry_safe, new.max_attempts) = (true, 2);
    change_at(store, 11, StoreChange::CreateTask(new)).expect("created");
    let leased = claim_one(store, 11);
    change_at(store, 11, set(&leased, TaskState::Working)).expect("started");
    let cancel = TaskUpdate::new(task_key("t2"), get(store, "t2").version).state(TaskState::Cancelling);
    change_at(store, 11, StoreChange::UpdateTask(cancel)).expect("asked");
    assert_eq!(store.sweep(time(22)).expect("swept").tasks_returned, 1);
    let StoredTask { state, started, attempts, .. } = claim_one(store, 22).entry;
    assert_eq!((state, started, attempts), (TaskState::Cancelling, true, 2));
    store.sweep(time(33)).expect("swept");
    assert_eq!(get(store, "t2").state, TaskState::Cancelled);
    // It does not wait for the delay of an attempt.
    let mut new = task("t3");
    new.retry_safe = true;
    change_at(store, 33, StoreChange::CreateTask(new)).expect("created");
    let lease = claim_one(store, 33).lease;
    let delay = Duration::from_secs(3600);
    change_at(store, 33, StoreChange::ReturnTask { lease, delay }).expect("returned");
    assert_eq!(store.claim_tasks(AGENT, &claim_at(34, 9)).expect("claimed").entries, []);
    let cancel = TaskUpdate::new(task_key("t3"), get(store, "t3").version).state(TaskState::Cancelling);
    change_at(store, 34, StoreChange::UpdateTask(cancel)).expect("asked");
    assert_eq!(claim_one(store, 34).entry.key, task_key("t3"));
}

fn a_dead_task_is_sent_again_or_dropped(store: &dyn Store) {
    let resend = |id: &str| StoreChange::ResendTask { key: task_key(id), expires: None };
    started(store, "t1");
    assert!(matches!(change_at(store, 1, resend("t1")), Err(Error::WrongState { .. })));
    started(store, "t2");
    store.sweep(time(11)).expect("swept");
    let mut query = TaskQuery::default();
    query.dead = Some(true);
    assert_eq!(store.tasks(&query).expect("a list").total, 2);
    change_at(store, 12, resend("t1")).expect("sent again");
    change_at(store, 12, StoreChange::DropDeadTask { key: task_key("t2") }).expect("dropped");
    assert_eq!(store.tasks(&query).expect("a list").total, 0);
    let again = claim_one(store, 12);
    let StoredTask { key, attempts, started, error, completed, .. } = again.entry;
    assert_eq!((key.task.as_str(), attempts, started, error, completed), ("t1", 1, false, None, None));
    assert_eq!(get(store, "t2").state, TaskState::Failed);
}

fn a_task_expires_unless_it_was_started(store: &dyn Store) {
    for id in ["t1", "t2", "t3"] {
        let mut new = task(id);
        new.expires = Some(time(5).wall);
        change(store, StoreChange::CreateTask(new));
    }
    let leased = claim_one(store, 1);
    change(store, set(&leased, TaskState::Working));
    let report = store.sweep(time(5)).expect("swept");
    assert_eq!(report.tasks_ended, [task_key("t2"), task_key("t3")]);
    let expired = get(store, "t2");
    assert_eq!((expired.state, expired.dead), (TaskState::Expired, false));
    assert_eq!(expired.error.expect("an error").code, "expired");
    assert_eq!(get(store, "t1").state, TaskState::Working);
    let mut new = task("t4");
    new.expires = Some(time(6).wall);
    change(store, StoreChange::CreateTask(new));
    assert_eq!(store.claim_tasks(AGENT, &claim_at(6, 9)).expect("claimed").entries, [], "without a sweep");
    assert_eq!(get(store, "t4").state, TaskState::Expired);
    assert_eq!(store.sweep(time(6)).expect("swept").tasks_ended, [task_key("t4")]);
    assert_eq!(store.sweep(time(6)).expect("swept").tasks_ended, [], "once");
}

fn callbacks_are_due_until_they_are_queued(store: &dyn Store) {
    let mut new = task("t1");
    new.callback = Some("https://example.com/done".into());
    change(store, StoreChange::CreateTask(new));
    create(store, "t2");
    let mut new = task("t3");
    new.stream_endpoint = Some("https://example.com/chunks".into());
    change(store, StoreChange::CreateTask(new));
    for _ in 0..3 {
        let leased = claim_one(store, 1);
        change(store, set(&leased, TaskState::Working));
    }
    let mut query = TaskQuery::default();
    query.callback_due = true;
    assert_eq!(store.tasks(&query).expect("a list").total, 0);
    store.sweep(time(11)).expect("swept");
    let due = store.tasks(&query).expect("a list").items;
    assert_eq!(due.iter().map(|task| &task.key).collect::<Vec<_>>(), [&task_key("t1"), &task_key("t3")]);
    let purge = |store: &dyn Store| {
        change(store, StoreChange::Purge { ended_before: u64::MAX >> 1, principal: None });
        store.task(&task_key("t3")).expect("read").is_some()
    };
    assert!(purge(store), "it is kept until its last posts are in the outbox");
    for task in due {
        let mut update = TaskUpdate::new(task.key, task.version);
        update.callback_queued = true;
        change(store, StoreChange::UpdateTask(update));
    }
    assert_eq!(store.tasks(&query).expect("a list").total, 0);
}

fn tasks_are_listed_by_owner_agent_and_state(store: &dyn Store) {
    for number in 0..10 {
        let mut new = task(&format!("t{number}"));
        new.key.owner = if number % 2 == 0 { OWNER } else { "bob" }.into();
        new.key.agent = if number < 5 { AGENT } else { "other" }.into();
        change(store, StoreChange::CreateTask(new));
    }
    let leased = claim_one(store, 1);
    change(store, set(&leased, TaskState::Working));
    let count = |edit: fn(&mut TaskQuery)| {
        let mut query = TaskQuery::default();
        edit(&mut query);
        store.tasks(&query).expect("a list").total
    };
    assert_eq!(count(|_| {}), 10);
    assert_eq!(count(|it| it.owner = Some("bob".into())), 5);
    assert_eq!(count(|it| (it.owner, it.agent) = (Some("bob".into()), Some(AGENT.into()))), 2);
    assert_eq!(count(|it| it.state = Some(TaskState::Working)), 1);
    assert_eq!(count(|it| it.ended = Some(true)), 0);
    assert_eq!(count(|it| it.id = Some("t3".into())), 1);
    let mut query = TaskQuery::default();
    (query.newest_first, query.offset, query.limit) = (true, 1, 2);
    let page = store.tasks(&query).expect("a list");
    assert_eq!(page.items.iter().map(|it| it.key.task.as_str()).collect::<Vec<_>>(), ["t8", "t7"]);
    assert_eq!(page.total, 10);
}

fn the_median_is_that_of_the_last_completed_tasks(store: &dyn Store) {
    let median = |last| store.median_duration(AGENT, "work", last).expect("read");
    assert_eq!(median(10), None);
    for (number, seconds) in [100, 1, 5, 3].into_iter().enumerate() {
        let leased = started(store, &format!("t{number}"));
        let renew = StoreChange::RenewLease { lease: leased.lease, lasts: Duration::from_secs(1000) };
        change(store, renew);
        // Later ones complete later, whatever they take.
        let now = duologue_store::StoreTime::new(Duration::from_secs(2), time(1).wall + seconds * 1000);
        let batch = duologue_store::StoreBatch::new(now).with(set(&leased, TaskState::Completed));
        store.apply(batch).expect("completed");
    }
    assert_eq!(median(10), Some(Duration::from_secs(5)));
    assert_eq!(median(1), Some(Duration::from_secs(100)), "the latest end");
    assert_eq!(store.median_duration(AGENT, "other", 10).expect("read"), None);
}

fn ask(store: &dyn Store, task: &StoredTaskKey, id: &str) -> Result<ChangeOutcome, Error> {
    change_at(store, 1, StoreChange::AddQuestion(NewQuestion::new(task.clone(), id, json(r#""Sure?""#))))
}

fn the_first_answer_to_a_question_counts(store: &dyn Store) {
    started(store, "t1");
    let key = task_key("t1");
    assert_eq!(ask(store, &key, "q1").expect("added"), ChangeOutcome::Done);
    assert_eq!(ask(store, &key, "q1").expect("added"), ChangeOutcome::Duplicate);
    assert!(matches!(ask(store, &task_key("t9"), "q1"), Err(Error::NoRecord { .. })));
    let answer = |question: &str, by: &str| StoreChange::AnswerQuestion {
        task: task_key("t1"),
        question: question.into(),
        answer: json("true"),
        answered_by: by.into(),
    };
    let mut open = QuestionQuery::default();
    (open.owner, open.state) = (Some(OWNER.into()), Some(QuestionState::Open));
    assert_eq!(store.questions(&open).expect("a list").total, 1);
    assert_eq!(change(store, answer("q1", "alice")), ChangeOutcome::Done);
    assert!(matches!(change_at(store, 1, answer("q1", "bob")), Err(Error::WrongState { .. })));
    assert!(matches!(change_at(store, 1, answer("q2", "bob")), Err(Error::NoRecord { .. })));
    let found = store.question(&key, "q1").expect("read").expect("a question");
    assert_eq!((found.state, found.answer), (QuestionState::Answered, Some(json("true"))));
    assert_eq!((found.answered_by.as_deref(), found.ended), (Some("alice"), Some(time(1).wall)));
    assert_eq!(store.questions(&open).expect("a list").total, 0);
}

fn questions_end_with_their_task(store: &dyn Store) {
    let leased = started(store, "t1");
    let key = task_key("t1");
    for id in ["q1", "q2"] {
        ask(store, &key, id).expect("added");
    }
    change(store, StoreChange::WithdrawQuestion { task: key.clone(), question: "q1".into() });
    change(store, set(&leased, TaskState::Completed));
    let mut query = QuestionQuery::default();
    (query.task, query.state) = (Some(key.clone()), Some(QuestionState::Withdrawn));
    assert_eq!(store.questions(&query).expect("a list").total, 2);
    assert!(matches!(ask(store, &key, "q3"), Err(Error::WrongState { .. })));
}

fn the_tasks_of_a_removed_agent_fail(store: &dyn Store) {
    change(store, StoreChange::PutAgent(RegisteredAgent::new(AGENT, OWNER, RegistrySource::Rest, "")));
    let leased = started(store, "started");
    let completed = started(store, "completed");
    change(store, set(&completed, TaskState::Completed));
    create(store, "waiting");
    change(store, StoreChange::RemoveAgent { agent: AGENT.into() });
    for (id, code) in
        [("started", Some("agent_removed")), ("waiting", Some("agent_removed")), ("completed", None)]
    {
        let task = store.task(&task_key(id)).expect("read").expect("a task");
        assert_eq!(task.error.as_ref().map(|error| error.code.as_str()), code, "{id}");
        assert!(task.state.is_final() && !task.dead, "{id}");
    }
    change_at(store, 1, set(&leased, TaskState::Completed)).expect_err("it has ended");
}
