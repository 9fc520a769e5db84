//! Compares the table of pending replies with a model that keeps every event.

use std::collections::HashSet;

use duologue_schema::envelope::{EnvelopeId, EnvelopeKind};
use proptest::prelude::*;

use crate::envelope::pending::{PendingReplies, ReplyTarget};

/// Number of own messages: the even ones are delegations, the odd ones queries.
const MESSAGES: usize = 6;
/// Number of ids that the peer invents.
const STRANGERS: usize = 2;

#[derive(Clone, Copy, Debug)]
enum Event {
    Send,
    Answered,
    Replied { fits: bool },
    Result,
    Error,
    GivesUp,
    LetsRun,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        3 => Just(Event::Send),
        2 => Just(Event::Answered),
        1 => any::<bool>().prop_map(|fits| Event::Replied { fits }),
        2 => Just(Event::Result),
        1 => Just(Event::Error),
        1 => Just(Event::GivesUp),
        1 => Just(Event::LetsRun),
    ]
}

#[derive(Default)]
struct Model {
    sent: HashSet<usize>,
    asking: HashSet<usize>,
    delegated: HashSet<usize>,
    /// The flag is true if the message had been sent by then: its id was unknown before.
    ended: HashSet<(usize, bool)>,
}

proptest! {
    #[test]
    fn everybody_is_told_once_and_what_is_theirs(
        events in prop::collection::vec((0..MESSAGES + STRANGERS, event()), 0..60),
    ) {
        let mut table = PendingReplies::<usize, usize>::default();
        let mut model = Model::default();
        for (number, event) in events {
            let id = EnvelopeId::from(&*number.to_string());
            let (delegation, answer) =
                if number % 2 == 0 { (true, EnvelopeKind::Ack) } else { (false, EnvelopeKind::Response) };
            match event {
                Event::Send if number < MESSAGES && model.sent.insert(number) => {
                    if delegation {
                        table.delegate(id.clone(), number);
                        model.delegated.insert(number);
                    }
                    table.ask(id.clone(), answer, number);
                    model.asking.insert(number);
                }
                Event::Send => {}
                Event::Answered => {
                    let told = model.asking.remove(&number).then_some(number);
                    prop_assert_eq!(table.answered(&id), told);
                }
                Event::Replied { fits } => {
                    let told = (fits && model.asking.remove(&number)).then_some(number);
                    let kind = if fits { answer } else { EnvelopeKind::Pong };
                    prop_assert_eq!(table.replied(&id, &kind), told);
                }
                Event::Result => {
                    let whose = if model.delegated.remove(&number) {
                        // Its `ack` is no longer pending.
                        model.asking.remove(&number);
                        model.ended.insert((number, true));
                        ReplyTarget::Delegator(number)
                    } else if model.ended.insert((number, model.sent.contains(&number))) {
                        ReplyTarget::Unknown
                    } else {
                        ReplyTarget::Nobody
                    };
                    prop_assert_eq!(table.result(&id), whose);
                }
                Event::Error => {
                    let delegated = model.delegated.remove(&number);
                    let asking = model.asking.remove(&number);
                    prop_assert_eq!(table.awaits(&id), asking || delegated);
                    let first = model.ended.insert((number, model.sent.contains(&number)));
                    let whose = if asking {
                        ReplyTarget::Asker(number)
                    } else if delegated {
                        ReplyTarget::Delegator(number)
                    } else if first {
                        ReplyTarget::Unknown
                    } else {
                        ReplyTarget::Nobody
                    };
                    prop_assert_eq!(table.error(&id), whose);
                }
                Event::GivesUp => {
                    prop_assert_eq!(table.gives_up(&id), model.asking.remove(&number));
                }
                Event::LetsRun => {
                    table.lets_run(&id);
                    model.delegated.remove(&number);
                }
            }
            prop_assert_eq!(table.delegator(&id).copied(), model.delegated.get(&number).copied());
        }
        let (asked, delegated) = table.close();
        prop_assert_eq!(asked.into_iter().collect::<HashSet<_>>(), model.asking);
        prop_assert_eq!(delegated.into_iter().collect::<HashSet<_>>(), model.delegated);
        prop_assert!(table.is_empty());
    }
}

/// Invented ids do not evict our own, however many there are.
#[test]
fn noise_does_not_make_anything_end_twice() {
    let mut table = PendingReplies::<(), u32>::default();
    let [ended, dropped, stranger] = ["ended", "dropped", "stranger"].map(EnvelopeId::from);
    for (number, id) in [&ended, &dropped].into_iter().enumerate() {
        table.delegate(id.clone(), number as u32);
        table.ask(id.clone(), EnvelopeKind::Ack, ());
    }
    table.lets_run(&dropped);
    assert_eq!(table.result(&ended), ReplyTarget::Delegator(0));
    assert_eq!(
        [&dropped, &stranger].map(|id| table.result(id)),
        [ReplyTarget::Unknown, ReplyTarget::Unknown]
    );
    for number in 0..10_000 {
        table.result(&EnvelopeId::from(number.to_string()));
    }
    assert_eq!([&ended, &dropped].map(|id| table.result(id)), [ReplyTarget::Nobody, ReplyTarget::Nobody]);
}
