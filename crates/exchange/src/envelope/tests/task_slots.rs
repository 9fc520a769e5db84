//! Compares the task slots with a model.

use std::collections::HashSet;

use duologue_schema::envelope::EnvelopeId;
use proptest::prelude::*;

use crate::envelope::task_slots::{Admission, TaskLookup, TaskSlots};

#[derive(Clone, Copy, Debug)]
enum Event {
    Arrives { urgent: bool },
    Refused,
    Finished,
    Cancelled,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        3 => any::<bool>().prop_map(|urgent| Event::Arrives { urgent }),
        1 => Just(Event::Refused),
        2 => Just(Event::Finished),
        1 => Just(Event::Cancelled),
    ]
}

proptest! {
    #[test]
    fn no_slot_leaks_or_is_used_twice(
        limit in 1_u32..4,
        events in prop::collection::vec((0..8_usize, event()), 0..80),
    ) {
        let mut tasks = TaskSlots::default();
        let (mut running, mut finished) = (HashSet::new(), HashSet::new());
        for (number, event) in events {
            let id = EnvelopeId::from(&*number.to_string());
            match event {
                Event::Arrives { urgent } => {
                    let room = running.len() < limit as usize + usize::from(urgent);
                    let admission = if running.contains(&number) {
                        Admission::Running(number)
                    } else if finished.contains(&number) {
                        Admission::Finished
                    } else if room {
                        running.insert(number);
                        Admission::Admitted
                    } else {
                        Admission::Full
                    };
                    prop_assert_eq!(tasks.admit(&id, limit, urgent, number), admission);
                }
                Event::Refused => {
                    tasks.refuse(&id);
                    running.remove(&number);
                }
                Event::Finished => {
                    let first = running.remove(&number);
                    if first {
                        finished.insert(number);
                    }
                    prop_assert_eq!(tasks.finish(&id), first);
                }
                Event::Cancelled => {
                    let found = if running.contains(&number) {
                        TaskLookup::Running(number)
                    } else if finished.contains(&number) {
                        TaskLookup::Finished
                    } else {
                        TaskLookup::Nothing
                    };
                    prop_assert_eq!(tasks.find(&id), found);
                }
            }
            prop_assert_eq!(tasks.count(), running.len() as u64);
            prop_assert!(running.len() <= limit as usize + 1);
        }
    }
}
