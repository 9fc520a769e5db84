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
    delegations: HashSet<usize>,
    /// The flag is true if the message had been sent by then: its id was unknown before.
    ended: HashSet<(usize, bool)>,
}

proptest! {
    #[test]
    fn every_reply_reaches_its_receiver_once(
        events in prop::collection::vec((0..MESSAGES + STRANGERS, event()), 0..60),
    ) {
        let mut pending = PendingReplies::<usize, usize>::default();
        let mut model = Model::default();
        for (number, event) in events {
            let id = EnvelopeId::from(&*number.to_string());
            let (delegation, answer) =
                if number % 2 == 0 { (true, EnvelopeKind::Ack) } else { (false, EnvelopeKind::Response) };
            match event {
                Event::Send if number < MESSAGES && model.sent.insert(number) => {
                    if delegation {
                        pending.add_delegation(id.clone(), number);
                        model.delegations.insert(number);
                    }
                    pending.add_request(id.clone(), answer, number);
                    model.asking.insert(number);
                }
                Event::Send => {}
                Event::Answered => {
                    let reply = model.asking.remove(&number).then_some(number);
                    prop_assert_eq!(pending.take_response(&id), reply);
                }
                Event::Replied { fits } => {
                    let reply = (fits && model.asking.remove(&number)).then_some(number);
                    let kind = if fits { answer } else { EnvelopeKind::Pong };
                    prop_assert_eq!(pending.take_reply(&id, &kind), reply);
                }
                Event::Result => {
                    let whose = if model.delegations.remove(&number) {
                        // Its `ack` is no longer pending.
                        model.asking.remove(&number);
                        model.ended.insert((number, true));
                        ReplyTarget::Delegation(number)
                    } else if model.ended.insert((number, model.sent.contains(&number))) {
                        ReplyTarget::Unknown
                    } else {
                        ReplyTarget::Repeated
                    };
                    prop_assert_eq!(pending.result(&"peer".into(), &id), whose);
                }
                Event::Error => {
                    let delegations = model.delegations.remove(&number);
                    let asking = model.asking.remove(&number);
                    prop_assert_eq!(pending.awaits(&id), asking || delegations);
                    let first = model.ended.insert((number, model.sent.contains(&number)));
                    let whose = if asking {
                        ReplyTarget::Request(number)
                    } else if delegations {
                        ReplyTarget::Delegation(number)
                    } else if first {
                        ReplyTarget::Unknown
                    } else {
                        ReplyTarget::Repeated
                    };
                    prop_assert_eq!(pending.error(&"peer".into(), &id), whose);
                }
                Event::GivesUp => {
                    prop_assert_eq!(pending.take_response(&id).is_some(), model.asking.remove(&number));
                }
                Event::LetsRun => {
                    pending.remove_delegation(&id);
                    model.delegations.remove(&number);
                }
            }
            prop_assert_eq!(pending.delegation(&id).copied(), model.delegations.get(&number).copied());
        }
        let (requests, delegations) = pending.close();
        prop_assert_eq!(requests.into_iter().collect::<HashSet<_>>(), model.asking);
        prop_assert_eq!(delegations.into_iter().collect::<HashSet<_>>(), model.delegations);
        prop_assert!(pending.is_empty());
    }
}

/// Invented ids do not evict our own, however many there are.
#[test]
fn invented_ids_do_not_repeat_an_end() {
    let mut pending = PendingReplies::<(), u32>::default();
    let [ended, dropped, stranger] = ["ended", "dropped", "stranger"].map(EnvelopeId::from);
    for (number, id) in [&ended, &dropped].into_iter().enumerate() {
        pending.add_delegation(id.clone(), number as u32);
        pending.add_request(id.clone(), EnvelopeKind::Ack, ());
    }
    pending.remove_delegation(&dropped);
    assert_eq!(pending.result(&"peer".into(), &ended), ReplyTarget::Delegation(0));
    assert_eq!(
        [&dropped, &stranger].map(|id| pending.result(&"peer".into(), id)),
        [ReplyTarget::Unknown, ReplyTarget::Unknown]
    );
    for number in 0..10_000 {
        pending.result(&"peer".into(), &EnvelopeId::from(number.to_string()));
    }
    assert_eq!(
        [&ended, &dropped].map(|id| pending.result(&"peer".into(), id)),
        [ReplyTarget::Repeated, ReplyTarget::Repeated]
    );
}
