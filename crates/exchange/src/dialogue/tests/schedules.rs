//! Random schedules for the state of a dialogue: late, repeated and reordered messages, and illegal
//! moves.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use duologue_schema::Json;
use duologue_schema::dialogue::{
    DialogueContent, DialogueErrorCode as Code, DialogueMessage, MessageType as M,
};
use proptest::prelude::*;
use serde_json::json;

use crate::dialogue::limits::DialogueLimits;
use crate::dialogue::message::VerifiedMessage;
use crate::dialogue::moves::{COUNTER_OFFER, MOVES};
use crate::dialogue::state::{Arrival, DialogueAction, DialogueState, object};

const US: &str = "agent://us";
const THEM: &str = "agent://them";

fn message(from: &str, id: &str, step: u64, kind: M) -> DialogueMessage {
    let to = if from == US { THEM } else { US };
    let time = format!("2026-03-01T12:00:00.{:03}Z", step % 1000);
    DialogueMessage::new(id, "s1", from, to, time, step, kind)
}

fn received(message: DialogueMessage) -> VerifiedMessage {
    let raw = Json::new(&message).unwrap();
    VerifiedMessage::new(message, raw)
}

fn state(limits: DialogueLimits) -> DialogueState {
    DialogueState::new(US.into(), THEM.into(), Arc::new(limits))
}

fn limits(window: usize, inbox: usize) -> DialogueLimits {
    DialogueLimits { window, inbox, ..DialogueLimits::default() }
}

fn delivered(events: &[DialogueAction]) -> Vec<(u64, bool)> {
    let delivered = |event: &DialogueAction| match event {
        DialogueAction::Deliver(received) => Some((received.interaction_step, received.gap)),
        DialogueAction::Refuse(..) => None,
    };
    events.iter().filter_map(delivered).collect()
}

fn refusal(arrival: &Arrival) -> Option<Code> {
    match arrival {
        Arrival::Refused(error) => Some(error.error_code.clone()),
        _ => None,
    }
}

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[test]
fn early_messages_are_buffered_and_missing_ones_leave_a_gap() {
    let mut state = state(limits(64, 64));
    let mut arrive = |step: u64, at| {
        let (arrival, events) =
            state.arrive(received(message(THEM, &step.to_string(), step, M::Inform)), false, ms(at));
        (arrival, delivered(&events))
    };
    assert_eq!(arrive(1, 0), (Arrival::Delivered, vec![(1, false)]));
    assert_eq!(arrive(4, 0), (Arrival::Buffered, vec![]));
    assert_eq!(arrive(3, 10), (Arrival::Buffered, vec![]));
    assert_eq!(arrive(4, 10), (Arrival::Duplicate, vec![]));
    assert_eq!(arrive(2, 20), (Arrival::Delivered, vec![(2, false), (3, false), (4, false)]));
    assert_eq!(arrive(7, 100), (Arrival::Buffered, vec![]));
    assert_eq!(state.deadline(), Some(ms(5100)));
    assert_eq!(delivered(&state.tick(ms(5099))), []);
    assert_eq!(delivered(&state.tick(ms(5100))), [(7, true)]);
    assert_eq!(state.deadline(), None);
    let late = state.arrive(received(message(THEM, "5", 5, M::Inform)), false, ms(5200)).0;
    assert_eq!(refusal(&late), Some(Code::Conflict));
}

#[test]
fn a_full_window_delivers_early() {
    let mut state = state(limits(3, 64));
    for step in [9, 7, 8] {
        let arrival =
            state.arrive(received(message(THEM, &step.to_string(), step, M::Inform)), false, ms(0)).0;
        assert_eq!(arrival, Arrival::Buffered);
    }
    let (arrival, events) = state.arrive(received(message(THEM, "12", 12, M::Inform)), false, ms(0));
    assert_eq!(arrival, Arrival::Buffered);
    assert_eq!(delivered(&events), [(7, true), (8, false), (9, false)]);
}

#[test]
fn a_step_belongs_to_one_message_of_a_participant() {
    let mut state = state(limits(64, 64));
    let mut arrive =
        |id: &str, step| refusal(&state.arrive(received(message(THEM, id, step, M::Inform)), false, ms(0)).0);
    assert_eq!(arrive("a", 1), None);
    assert_eq!(arrive("b", 1), Some(Code::Conflict));
    assert_eq!(arrive("c", 3), None);
    assert_eq!(arrive("d", 3), Some(Code::Conflict));
    assert_eq!(arrive("a", 2), Some(Code::Conflict), "another message with that id");
    assert_eq!(delivered(&state.tick(ms(10_000))), [(3, true)]);
}

#[test]
fn steps_far_ahead_are_rejected() {
    let mut state = state(limits(64, 64));
    let mut arrive =
        |step: u64| state.arrive(received(message(THEM, &step.to_string(), step, M::Inform)), false, ms(0));
    for step in [1026, (1 << 53) - 1, u64::MAX] {
        let Arrival::Refused(error) = arrive(step).0 else { panic!("step {step} was taken") };
        assert_eq!(error.error_code, Code::Conflict);
        assert_eq!(error.details.get("next_step"), Some(1));
    }
    assert_eq!(arrive(1025).0, Arrival::Buffered);
    assert_eq!(delivered(&state.tick(ms(10_000))), [(1025, true)]);
    assert_eq!(state.next_step(), 1026);
}

#[test]
fn both_participants_may_use_a_step() {
    let mut state = state(limits(64, 64));
    let ours = Arc::new(message(US, "ours", 1, M::Inform));
    state.record_sent(&ours, &Json::new(&*ours).unwrap());
    assert_eq!(
        state.arrive(received(message(THEM, "theirs", 1, M::Inform)), false, ms(0)).0,
        Arrival::Delivered
    );
    assert_eq!(state.next_step(), 2);
    // Their step counts ours before its receipt has arrived, so it waits unless it answers ours.
    assert_eq!(
        state.arrive(received(message(THEM, "next", 3, M::Inform)), false, ms(0)).0,
        Arrival::Buffered
    );
    let ours = Arc::new(message(US, "more", 2, M::Inform));
    state.record_sent(&ours, &Json::new(&*ours).unwrap());
    assert_eq!(delivered(&state.record_receipt(&ours, ms(1))), [(3, false)]);
}

/// The trace in the documentation of the state machine, which needs the buffer on one connection.
#[test]
fn a_message_after_a_receipt_waits_until_the_receipt_is_recorded() {
    let mut state = state(limits(64, 64));
    let ours = message(US, "ours", 1, M::Inform);
    state.record_sent(&ours, &Json::new(&ours).unwrap());
    let theirs = received(message(THEM, "theirs", 2, M::Inform));
    assert_eq!(state.arrive(theirs, false, ms(0)), (Arrival::Buffered, vec![]));
    assert_eq!(delivered(&state.record_receipt(&ours, ms(0))), [(2, false)]);
}

#[test]
fn an_answer_implies_the_receipt() {
    let mut state = state(limits(64, 64));
    let ours = Arc::new(message(US, "ours", 1, M::Request));
    state.record_sent(&ours, &Json::new(&*ours).unwrap());
    let answer = message(THEM, "answer", 2, M::Response).parent_message_id("ours");
    assert_eq!(state.arrive(received(answer), false, ms(0)).0, Arrival::Delivered);
}

#[test]
fn awaited_messages_ignore_the_inbox_limit() {
    let mut state = state(limits(64, 1));
    let inform = |step: u64| received(message(THEM, &step.to_string(), step, M::Inform));
    let answer =
        |step: u64| received(message(THEM, &step.to_string(), step, M::Response).parent_message_id("ours"));
    let ours = Arc::new(message(US, "ours", 1, M::Request));
    state.record_sent(&ours, &Json::new(&*ours).unwrap());
    state.record_receipt(&ours, ms(0));
    assert_eq!(state.arrive(inform(2), false, ms(0)).0, Arrival::Delivered);
    assert_eq!(refusal(&state.arrive(inform(3), false, ms(0)).0), Some(Code::Overloaded));
    assert_eq!(state.arrive(answer(3), true, ms(0)).0, Arrival::Delivered);
    // The early messages before it need no room either.
    assert_eq!(state.arrive(inform(5), false, ms(0)).0, Arrival::Buffered);
    assert_eq!(state.arrive(inform(7), false, ms(0)).0, Arrival::Buffered);
    assert_eq!(state.deadline(), None);
    assert_eq!(state.arrive(answer(6), true, ms(0)).0, Arrival::Buffered);
    assert_eq!(state.deadline(), Some(ms(5000)));
    assert_eq!(delivered(&state.tick(ms(5000))), [(5, true), (6, false)]);
    assert_eq!(state.deadline(), None);
}

#[test]
fn a_rejected_message_frees_its_step() {
    let mut state = state(limits(64, 64));
    let arrive = |state: &mut DialogueState, id: &str, step, kind| {
        state.arrive(received(message(THEM, id, step, kind)), false, ms(0)).0
    };
    assert_eq!(arrive(&mut state, "a", 1, M::Inform), Arrival::Delivered);
    assert_eq!(refusal(&arrive(&mut state, "b", 2, M::Accept)), Some(Code::InvalidParameter));
    // The sender may use the step again or the one after it.
    assert_eq!(arrive(&mut state, "c", 3, M::Inform), Arrival::Delivered);
    let ours = Arc::new(message(US, "ours", 4, M::Inform));
    state.record_sent(&ours, &Json::new(&*ours).unwrap());
    assert_eq!(state.next_step(), 5);
    state.refused(&ours);
    assert_eq!(state.next_step(), 4);
    assert!(state.log.message(&ours.message_id).is_none());
}

#[test]
fn invalid_buffered_messages_are_rejected_later() {
    let mut state = state(limits(64, 64));
    let mut arrive =
        |id: &str, step, kind| state.arrive(received(message(THEM, id, step, kind)), false, ms(0));
    assert_eq!(arrive("a", 2, M::Accept).0, Arrival::Buffered);
    assert_eq!(arrive("b", 3, M::Inform).0, Arrival::Buffered);
    let (arrival, events) = arrive("c", 1, M::Inform);
    assert_eq!(arrival, Arrival::Delivered);
    assert_eq!(delivered(&events), [(1, false), (3, false)]);
    let DialogueAction::Refuse(received, error) = &events[1] else { panic!("{events:?}") };
    assert_eq!((received.message_id.as_str(), &error.error_code), ("a", &Code::InvalidParameter));
}

#[test]
fn expired_buffered_messages_are_rejected() {
    let mut state = state(limits(64, 64));
    let mut early = received(message(THEM, "b", 2, M::Inform));
    early.ends = Some(ms(1000));
    assert_eq!(state.arrive(early, false, ms(0)).0, Arrival::Buffered);
    let (_, events) = state.arrive(received(message(THEM, "a", 1, M::Inform)), false, ms(1001));
    assert_eq!(delivered(&events), [(1, false)]);
    let DialogueAction::Refuse(received, error) = &events[1] else { panic!("{events:?}") };
    assert_eq!((received.message_id.as_str(), &error.error_code), ("b", &Code::Expired));
    assert_eq!(state.next_step(), 3);
}

#[test]
fn nothing_is_buffered_after_the_end() {
    let mut state = state(limits(64, 64));
    let mut arrive =
        |step: u64, kind| state.arrive(received(message(THEM, &step.to_string(), step, kind)), false, ms(0));
    arrive(1, M::Inform);
    assert_eq!(arrive(5, M::Inform).0, Arrival::Buffered);
    assert_eq!(arrive(6, M::Error).0, Arrival::Buffered);
    let (_, events) = arrive(2, M::Termination);
    assert_eq!(delivered(&events), [(2, false), (6, false)]);
    assert!(matches!(&events[1], DialogueAction::Refuse(received, _) if received.interaction_step == 5));
}

#[test]
fn an_invalid_confidence_is_rejected_with_its_index() {
    let belief = duologue_schema::dialogue::Belief::new("car", "price", json!(1), 1.5);
    let mut state = state(limits(64, 64));
    let bad =
        message(THEM, "a", 1, M::Inform).content(DialogueContent::new().belief_updates(vec![belief.into()]));
    let Arrival::Refused(error) = state.arrive(received(bad), false, ms(0)).0 else { panic!("it was taken") };
    assert_eq!(error.error_code, Code::InvalidParameter);
    assert!(
        error.error_message.starts_with("belief_updates[0].confidence is 1.5"),
        "{}",
        error.error_message
    );
    assert!(state.is_blank());
}

#[test]
fn the_log_is_bounded_and_evicted_offers_cannot_be_accepted() {
    let mut state = state(DialogueLimits { messages: 4, ..limits(64, usize::MAX) });
    let say = |state: &mut DialogueState, step: u64, kind, parent: Option<&str>| {
        let mut message = message(THEM, &step.to_string(), step, kind);
        message.parent_message_id = parent.map(Into::into);
        state.arrive(received(message), false, ms(0)).0
    };
    let ours = Arc::new(message(US, "offer", 1, M::Propose));
    state.record_sent(&ours, &Json::new(&*ours).unwrap());
    state.record_receipt(&ours, ms(0));
    for step in 2..22 {
        assert_eq!(say(&mut state, step, M::Inform, None), Arrival::Delivered);
    }
    assert_eq!(state.log.messages().count(), 4);
    assert!(state.log.message(&"12".into()).is_none());
    assert_eq!(say(&mut state, 22, M::Inform, Some("offer")), Arrival::Delivered);
    assert_eq!(refusal(&say(&mut state, 23, M::Accept, Some("offer"))), Some(Code::InvalidParameter));
    // The message is evicted, but its step stays used.
    assert_eq!(refusal(&say(&mut state, 2, M::Inform, None)), Some(Code::Conflict));
}

#[test]
fn too_long_messages_are_not_logged() {
    let mut state = state(DialogueLimits { message_bytes: 1000, ..limits(64, 64) });
    let mut arrive = |step: u64, words: &str| {
        let message = message(THEM, &step.to_string(), step, M::Inform).content(DialogueContent::from(words));
        assert_eq!(state.arrive(received(message), false, ms(0)).0, Arrival::Delivered);
        let kept: Vec<u64> = state.log.messages().map(|message| message.interaction_step).collect();
        kept
    };
    assert_eq!(arrive(1, "short"), [1]);
    assert_eq!(arrive(2, &"x".repeat(1000)), [1]);
    assert_eq!(arrive(3, &"x".repeat(500)), [1, 3]);
    assert_eq!(arrive(4, &"x".repeat(400)), [4]);
    // The summary is kept.
    assert!(state.check_move(&M::Confirm, Some(&"2".into())).is_ok());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Messages of one participant in any order, with repetitions, pauses and a slow handler. Each
    /// is delivered once and in order, or rejected.
    #[test]
    fn no_message_is_lost_repeated_or_out_of_order(
        count in 1_u64..60,
        window in 1_usize..20,
        inbox in 1_usize..10,
        chaos in proptest::collection::vec((any::<prop::sample::Index>(), 0_u64..2500, 0_usize..4, any::<bool>()), 1..200),
    ) {
        let mut state = state(limits(window, inbox));
        let mut pending: Vec<u64> = (1..=count).collect();
        let (mut now, mut waiting) = (0, 0_usize);
        let mut came: Vec<(u64, bool)> = Vec::new();
        let mut refused = BTreeSet::new();
        let mut turns = chaos.iter().cycle();
        let mut left = 10_000;
        while !pending.is_empty() {
            left -= 1;
            prop_assert!(left > 0, "no end");
            let (pick, pause, takes, again) = turns.next().unwrap();
            // The final attempts end the test.
            let (takes, again) = if left < 9000 { (4, false) } else { (*takes, *again) };
            // Mostly near the front, as on a real connection.
            let at = pick.index(pending.len().min(8));
            let step = pending[at];
            now += pause;
            let (arrival, mut events) =
                state.arrive(received(message(THEM, &step.to_string(), step, M::Inform)), false, ms(now));
            match refusal(&arrival) {
                Some(Code::Overloaded) => {}
                Some(code) => {
                    prop_assert_eq!(code, Code::Conflict);
                    refused.insert(step);
                    pending.remove(at);
                }
                None if again => {}
                None => drop(pending.remove(at)),
            }
            waiting += delivered(&events).len();
            for _ in 0..takes.min(waiting) {
                waiting -= 1;
                let more = state.taken(0, ms(now));
                waiting += delivered(&more).len();
                events.extend(more);
            }
            prop_assert!(waiting <= inbox);
            came.extend(delivered(&events));
        }
        for round in 1.. {
            prop_assert!(round < 1000, "no end");
            let events = state.tick(ms(now + 60_000));
            waiting += delivered(&events).len();
            came.extend(delivered(&events));
            if waiting == 0 {
                break;
            }
            waiting -= 1;
            let more = state.taken(0, ms(now + 60_000));
            waiting += delivered(&more).len();
            came.extend(delivered(&more));
        }
        prop_assert!(came.is_sorted_by(|left, right| left.0 < right.0), "{:?}", came);
        let steps: BTreeSet<u64> = came.iter().map(|(step, _)| *step).collect();
        for step in 1..=count {
            prop_assert!(steps.contains(&step) || refused.contains(&step), "{step} is lost");
        }
        // A gap is reported exactly where one exists.
        for (at, (step, gap)) in came.iter().enumerate() {
            let before = if at == 0 { 0 } else { came[at - 1].0 };
            prop_assert_eq!(*gap, *step != before + 1);
        }
        prop_assert!(state.deadline().is_none());
    }

    /// Within the window no message is rejected and there are no gaps.
    #[test]
    fn within_the_window_the_order_is_restored(
        count in 1_u64..200,
        keys in proptest::collection::vec(0_u64..30, 200),
        twice in proptest::collection::vec(any::<bool>(), 200),
    ) {
        let mut order: Vec<u64> = (1..=count).collect();
        order.sort_by_key(|step| step + keys[*step as usize - 1]);
        let mut state = state(limits(64, usize::MAX));
        let mut came = Vec::new();
        for step in order {
            for round in 0..=u8::from(twice[step as usize - 1]) {
                let (arrival, events) =
                    state.arrive(received(message(THEM, &step.to_string(), step, M::Inform)), false, ms(step));
                prop_assert_eq!(refusal(&arrival), None);
                prop_assert!(round == 0 || arrival == Arrival::Duplicate);
                came.extend(delivered(&events));
            }
        }
        let expected: Vec<(u64, bool)> = (1..=count).map(|step| (step, false)).collect();
        prop_assert_eq!(came, expected);
    }

    /// Two participants who both send, over connections that delay, reorder and repeat messages.
    /// Each sends the next message after the receipt of the last one, as a `Dialogue` does.
    #[test]
    fn both_participants_receive_everything_and_agree_on_the_order(
        counts in (1_u64..30, 1_u64..30),
        delays in proptest::collection::vec(0_u64..400, 50..200),
    ) {
        let mut sides = [
            Side::new(US, counts.0), Side::new(THEM, counts.1),
        ];
        let mut delays = delays.iter().copied().cycle();
        let mut way: BTreeMap<(u64, u64), Flight> = BTreeMap::new();
        let (mut now, mut number) = (0, 0);
        let mut send = |way: &mut BTreeMap<(u64, u64), Flight>, now: u64, flight: Flight| {
            number += 1;
            way.insert((now + delays.next().unwrap(), number), flight);
        };
        loop {
            for (at, side) in sides.iter_mut().enumerate() {
                if let Some(message) = side.send() {
                    for copy in 0..=u64::from(message.interaction_step % 3 == 0) {
                        send(&mut way, now + copy, Flight::Message(1 - at, message.clone()));
                    }
                }
            }
            let Some(((time, _), flight)) = way.pop_first() else { break };
            now = time;
            match flight {
                Flight::Message(to, message) => {
                    let (arrival, events) = sides[to].state.arrive(received((*message).clone()), false, ms(now));
                    prop_assert_eq!(refusal(&arrival), None, "{:?}", arrival);
                    sides[to].deliver(&events, now);
                    send(&mut way, now, Flight::Receipt(1 - to, message));
                }
                Flight::Receipt(to, message) => {
                    let events = sides[to].state.record_receipt(&message, ms(now));
                    sides[to].sent(&message);
                    sides[to].deliver(&events, now);
                }
            }
        }
        let [left, right] = &sides;
        for (side, other) in [(left, right), (right, left)] {
            prop_assert_eq!(&side.received, &other.spoken);
            prop_assert_eq!(side.left, 0);
        }
        let order = |side: &Side| -> Vec<String> {
            side.state.log.messages().map(|message| message.message_id.to_string()).collect()
        };
        prop_assert_eq!(order(left), order(right));
    }

    /// Compares random moves of both participants with the rules as an oracle states them.
    #[test]
    fn legal_moves_match_the_oracle(
        tries in proptest::collection::vec((any::<bool>(), 0..12_usize, proptest::option::of(0..12_usize), any::<bool>()), 1..60),
    ) {
        let mut state = state(limits(64, usize::MAX));
        let mut sent: Vec<SentMove> = Vec::new();
        for (number, (ours, kind, parent, counter)) in tries.into_iter().enumerate() {
            let kind = MOVES[kind].clone();
            let id = format!("m{number}");
            // Some of the parents do not exist.
            let parent_id = parent.map(|at| sent.get(at).map_or("nowhere".to_owned(), |sent| sent.id.clone()));
            let parent = parent.map(|at| sent.get(at));
            let allowed: Vec<M> =
                MOVES.into_iter().filter(|kind| oracle(&sent, ours, kind, parent)).collect();
            let legal = allowed.contains(&kind);
            let mut message = message(if ours { US } else { THEM }, &id, state.next_step(), kind.clone());
            if counter {
                message.content = DialogueContent::new().parameters(object(json!({ COUNTER_OFFER: 7 })));
            }
            message.parent_message_id = parent_id.map(|id| id.as_str().into());
            if ours {
                let may = state.check_move(&kind, message.parent_message_id.as_ref());
                prop_assert_eq!(may.as_ref().err().map(|illegal| &illegal.allowed), (!legal).then_some(&allowed));
                if legal {
                    let message = Arc::new(message);
                    state.record_sent(&message, &Json::new(&*message).unwrap());
                    state.record_receipt(&message, ms(0));
                }
            } else {
                match state.arrive(received(message), false, ms(0)).0 {
                    Arrival::Delivered => prop_assert!(legal),
                    Arrival::Refused(error) => {
                        prop_assert!(!legal);
                        prop_assert_eq!(&error.error_code, &Code::InvalidParameter);
                        let named: Vec<String> = error.details.get("allowed").unwrap();
                        let named: Vec<M> = named.iter().map(|kind| kind.as_str().into()).collect();
                        prop_assert_eq!(named, allowed);
                    }
                    other => prop_assert!(false, "{:?}", other),
                }
            }
            if legal {
                sent.push(SentMove { id, ours, counter: counter && kind == M::Reject, kind });
            }
        }
    }
}

/// A message that was sent, for the oracle.
struct SentMove {
    id: String,
    ours: bool,
    kind: M,
    counter: bool,
}

/// The rules in sequence. `parent` is the message that the move names; `Some(None)` is one that
/// does not exist.
fn oracle(sent: &[SentMove], ours: bool, kind: &M, parent: Option<Option<&SentMove>>) -> bool {
    // After a termination only errors are legal.
    if sent.iter().any(|sent| sent.kind == M::Termination) {
        return *kind == M::Error;
    }
    // A dialogue is opened by a request, a query, a proposal or an inform without a parent.
    let opens = [M::Request, M::Query, M::Propose, M::Inform].contains(kind);
    if sent.is_empty() {
        return opens && parent.is_none();
    }
    // The parent exists.
    if parent == Some(None) {
        return false;
    }
    let parent = parent.flatten();
    // These are always legal, with or without a parent.
    if opens || [M::Error, M::Termination].contains(kind) {
        return true;
    }
    // The others need a parent.
    let Some(parent) = parent else { return false };
    let theirs = parent.ours != ours;
    match kind {
        M::Confirm | M::Clarify | M::Update => true,
        M::Response => theirs && (parent.kind == M::Request || parent.kind == M::Query),
        M::Reject => theirs && parent.kind == M::Propose,
        M::Accept => theirs && (parent.kind == M::Propose || parent.counter),
        _ => false,
    }
}

impl PartialEq for SentMove {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

/// One of two participants who each send a number of messages.
struct Side {
    name: &'static str,
    state: DialogueState,
    /// The number of messages still to send.
    left: u64,
    /// The message that waits for its receipt.
    open: Option<Arc<DialogueMessage>>,
    spoken: Vec<String>,
    received: Vec<String>,
}

/// A message or receipt in flight.
enum Flight {
    Message(usize, Arc<DialogueMessage>),
    Receipt(usize, Arc<DialogueMessage>),
}

impl Side {
    fn new(name: &'static str, left: u64) -> Self {
        let other = if name == US { THEM } else { US };
        let state = DialogueState::new(name.into(), other.into(), Arc::new(limits(64, 64)));
        Side { name, state, left, open: None, spoken: Vec::new(), received: Vec::new() }
    }

    fn send(&mut self) -> Option<Arc<DialogueMessage>> {
        if self.left == 0 || self.open.is_some() {
            return None;
        }
        self.left -= 1;
        let id = format!("{}-{}", self.name, self.left);
        let message = Arc::new(message(self.name, &id, self.state.next_step(), M::Inform));
        self.state.record_sent(&message, &Json::new(&*message).unwrap());
        self.spoken.push(id);
        self.open = Some(message.clone());
        Some(message)
    }

    /// Handles the receipt of our message. The receipt of a repetition has no effect.
    fn sent(&mut self, message: &DialogueMessage) {
        if self.open.as_ref().is_some_and(|open| open.message_id == message.message_id) {
            self.open = None;
        }
    }

    fn deliver(&mut self, events: &[DialogueAction], now: u64) {
        for event in events {
            let DialogueAction::Deliver(received) = event else { panic!("a refusal") };
            assert!(!received.gap);
            self.received.push(received.message_id.to_string());
            let more = self.state.taken(received.raw.get().len(), ms(now));
            self.deliver(&more, now);
        }
    }
}
