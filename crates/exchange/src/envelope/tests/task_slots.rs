//! Compares the task slots with a model.

use std::collections::{HashMap, HashSet};

use duologue_schema::envelope::{Ack, AgentStatus, Capabilities, TaskState, TaskStatus};
use proptest::prelude::*;

use crate::envelope::ended_tasks::{EndedTask, TaskKey};
use crate::envelope::task_slots::{Admission, TaskLookup, TaskSlots};

#[derive(Clone, Copy, Debug)]
enum Event {
    Arrives { urgent: bool, content: u128 },
    Refused { rejected: bool },
    Finished,
    Cancelled,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        3 => (any::<bool>(), 0..2_u128).prop_map(|(urgent, content)| Event::Arrives { urgent, content }),
        1 => any::<bool>().prop_map(|rejected| Event::Refused { rejected }),
        2 => Just(Event::Finished),
        1 => Just(Event::Cancelled),
    ]
}

fn ended(content: u128, state: TaskState) -> EndedTask {
    EndedTask { content, ack: Ack::new(true), status: TaskStatus::new("t", state), end: None }
}

proptest! {
    #[test]
    fn no_slot_leaks_or_is_used_twice(
        limit in 0_u32..4,
        events in prop::collection::vec((0..8_usize, event()), 0..80),
    ) {
        let mut tasks = TaskSlots::default();
        let (mut running, mut known) = (HashSet::new(), HashMap::<usize, EndedTask>::new());
        let mut contents = HashMap::new();
        for (number, event) in events {
            // Half of the tasks have the id of another sender's.
            let key: TaskKey = ((number % 2).to_string().into(), (number / 2).to_string().into());
            match event {
                Event::Arrives { urgent, content } => {
                    let room = limit > 0 && running.len() < limit as usize + usize::from(urgent);
                    let admission = if running.contains(&number) {
                        if contents[&number] == content { Admission::Running(number) } else { Admission::Conflict }
                    } else {
                        match known.get(&number) {
                            Some(ended) if ended.content != content => Admission::Conflict,
                            Some(ended) if !ended.is_rejected() => Admission::Ended(Box::new(ended.clone())),
                            _ if room => {
                                running.insert(number);
                                contents.insert(number, content);
                                known.remove(&number);
                                Admission::Admitted
                            }
                            _ => Admission::Full,
                        }
                    };
                    prop_assert_eq!(tasks.admit(&key, content, limit, urgent, number), admission);
                }
                Event::Refused { rejected } => {
                    let task = rejected.then(|| {
                        ended(contents.get(&number).copied().unwrap_or_default(), TaskState::Rejected)
                    });
                    tasks.refuse(&key, task.clone());
                    if running.remove(&number) && let Some(task) = task {
                        known.insert(number, task);
                    }
                }
                Event::Finished => {
                    let first = running.remove(&number);
                    let task = ended(contents.get(&number).copied().unwrap_or_default(), TaskState::Completed);
                    if first {
                        known.insert(number, task.clone());
                    }
                    prop_assert_eq!(tasks.finish(&key, task), first);
                }
                Event::Cancelled => {
                    let found = if running.contains(&number) {
                        TaskLookup::Running(number)
                    } else {
                        match known.get(&number) {
                            Some(ended) => TaskLookup::Ended(Box::new(ended.clone())),
                            None => TaskLookup::Nothing,
                        }
                    };
                    prop_assert_eq!(tasks.find(&key), found);
                }
            }
            prop_assert_eq!(tasks.count(), running.len() as u64);
            prop_assert!(running.len() <= limit as usize + 1);
        }
    }
}

#[test]
fn a_ping_reports_the_load() {
    let mut tasks = TaskSlots::default();
    let key = |id: &str| -> TaskKey { ("a".into(), id.into()) };
    // An agent that takes no tasks is idle without queries.
    assert_eq!(tasks.pong(2).status, AgentStatus::Idle);
    assert!(tasks.start_query(2));
    assert_eq!(tasks.pong(2).status, AgentStatus::Busy);
    assert!(tasks.start_query(2) && !tasks.start_query(2));
    assert_eq!(tasks.pong(2).status, AgentStatus::Overloaded);
    tasks.finish_query();
    tasks.finish_query();
    tasks.capabilities = Capabilities::new("painter").max_concurrent_tasks(2);
    assert_eq!(tasks.admit(&key("1"), 1, 2, false, ()), Admission::Admitted);
    assert_eq!((tasks.pong(2).status, tasks.pong(2).active_tasks), (AgentStatus::Busy, 1));
    assert_eq!(tasks.admit(&key("2"), 1, 2, false, ()), Admission::Admitted);
    assert_eq!(tasks.pong(2).status, AgentStatus::Overloaded);
}
