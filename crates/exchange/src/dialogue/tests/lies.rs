//! Random lies between the honest messages of a dialogue: other names, keys, steps, times and sizes. None is delivered.

use std::sync::Arc;
use std::time::Duration;

use duologue_schema::Json;
use duologue_schema::dialogue::{DialogueErrorCode as Code, DialogueMessage, MessageType};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::algorithms::{PRIVATE, forge_ed25519, header, private, public};
use super::verify::{BUYER, SECOND, SELLER, forge, keys, seller, start, value};
use crate::dialogue::limits::DialogueLimits;
use crate::dialogue::state::{Arrival, DialogueAction, DialogueState};
use crate::dialogue::verify::{Verifier, VerifyOutcome};
use crate::dialogue::{Key, sign};
use crate::limits::{MESSAGE_BYTES, STEPS_AHEAD};

const MALLORY: &str = "agent://mallory.example";
const MALLORYS_SECRET: [u8; 32] = [9; 32];
const NOW: Duration = Duration::from_secs(1);

/// Every lie: of a third agent with a key of its own, and of the buyer itself.
#[derive(Clone, Copy, Debug)]
enum Lie {
    NameOfAnother,
    NameOfTheReceiver,
    KeyOfAnother,
    UnknownKey,
    Unsigned,
    NotInvited,
    OtherRecipient,
    PastStep,
    FarStep,
    IdWithOtherContent,
    Repetition,
    OldTime,
    FutureTime,
    Huge,
}

const LIES: [Lie; 14] = [
    Lie::NameOfAnother,
    Lie::NameOfTheReceiver,
    Lie::KeyOfAnother,
    Lie::UnknownKey,
    Lie::Unsigned,
    Lie::NotInvited,
    Lie::OtherRecipient,
    Lie::PastStep,
    Lie::FarStep,
    Lie::IdWithOtherContent,
    Lie::Repetition,
    Lie::OldTime,
    Lie::FutureTime,
    Lie::Huge,
];

/// The end of a message that is not delivered.
#[derive(Debug, PartialEq)]
enum Refusal {
    Duplicate,
    Code(Code),
}

/// The side of the seller.
struct Receiver {
    verifier: Verifier,
    state: DialogueState,
    delivered: Vec<String>,
    sent: Vec<Json>,
}

impl Receiver {
    fn new() -> Self {
        let mallory = Key::new("m1", MALLORY, MALLORYS_SECRET).unwrap().with(SELLER).unwrap();
        let limits = Arc::new(DialogueLimits { messages: 8, ..DialogueLimits::default() });
        Receiver {
            verifier: seller(&keys([public("e1"), mallory])).since(start() - 10 * SECOND),
            state: DialogueState::new(SELLER.into(), BUYER.into(), limits),
            delivered: Vec::new(),
            sent: Vec::new(),
        }
    }

    fn receive(&mut self, message: &Json) -> Result<(), Refusal> {
        let refused = |code| Err(Refusal::Code(code));
        let new = match self.verifier.verify(message, 0, start()) {
            Ok(VerifyOutcome::New(new)) => new,
            Ok(VerifyOutcome::Duplicate(_)) => return Err(Refusal::Duplicate),
            Ok(VerifyOutcome::Refused(error)) => return refused(error.error_code.clone()),
            Err(error) => return refused(error.code()),
        };
        let (arrival, actions) = self.state.arrive(new.received, false, NOW);
        for action in actions {
            let DialogueAction::Deliver(received) = action else { panic!("{action:?}") };
            self.delivered.push(received.message_id.as_str().to_owned());
            assert_eq!(self.state.taken(received.bytes(), NOW), []);
        }
        match arrival {
            Arrival::Refused(error) => {
                self.verifier.forget(&new.replay_key);
                refused(error.error_code.clone())
            }
            other => {
                assert_eq!(other, Arrival::Delivered);
                Ok(())
            }
        }
    }

    /// Returns the next message of the buyer, unsigned.
    fn next(&self, kind: MessageType) -> DialogueMessage {
        let step = self.state.next_step();
        DialogueMessage::new(format!("m{step}"), "s1", BUYER, SELLER, "2026-03-01T12:00:00Z", step, kind)
    }

    fn speak(&mut self, kind: MessageType) {
        let message = sign(&self.next(kind), &private("e1")).unwrap();
        assert_eq!(self.receive(&message), Ok(()));
        self.sent.push(message);
    }

    /// Tells a lie, and checks its refusal.
    fn lie(&mut self, lie: Lie, number: usize, has_ended: bool) {
        let mut message = self.next(MessageType::Inform);
        message.message_id = format!("lie{number}").into();
        let by_buyer =
            |message: &DialogueMessage| forge_ed25519(&value(message), &header("EdDSA", "e1"), &PRIVATE);
        let by_mallory =
            |message: &DialogueMessage| forge(&value(message), &header("HS256", "m1"), &MALLORYS_SECRET);
        let (text, code) = match lie {
            Lie::NameOfAnother => (by_mallory(&message), Code::Unauthorized),
            Lie::NameOfTheReceiver => {
                message.sender_id = SELLER.into();
                (by_mallory(&message), Code::Unauthorized)
            }
            Lie::KeyOfAnother => {
                (forge(&value(&message), &header("EdDSA", "e1"), &MALLORYS_SECRET), Code::Unauthorized)
            }
            Lie::UnknownKey => {
                (forge_ed25519(&value(&message), &header("EdDSA", "e2"), &PRIVATE), Code::Unauthorized)
            }
            Lie::Unsigned => (Json::new(&message).unwrap(), Code::Unauthorized),
            Lie::NotInvited => {
                message.sender_id = MALLORY.into();
                (by_mallory(&message), Code::Unauthorized)
            }
            Lie::OtherRecipient => {
                message.recipient_id = MALLORY.into();
                (by_buyer(&message), Code::NotFound)
            }
            Lie::PastStep | Lie::FarStep => {
                let next = message.interaction_step;
                let is_past = matches!(lie, Lie::PastStep);
                message.interaction_step = if is_past { next - 1 } else { next + STEPS_AHEAD + 1 };
                // Nothing follows the end, whatever its step.
                (by_buyer(&message), if has_ended { Code::InvalidParameter } else { Code::Conflict })
            }
            Lie::IdWithOtherContent => {
                let mut other: Value = self.sent[number % self.sent.len()].parse().unwrap();
                other.as_object_mut().unwrap().remove("signature");
                other["content"]["natural_language"] = json!("I have said something else.");
                (forge_ed25519(&other, &header("EdDSA", "e1"), &PRIVATE), Code::Conflict)
            }
            Lie::Repetition => {
                let again = self.sent[number % self.sent.len()].clone();
                return assert_eq!(self.receive(&again), Err(Refusal::Duplicate));
            }
            Lie::OldTime => {
                message.timestamp = "2026-03-01T11:59:40Z".into();
                (by_buyer(&message), Code::Expired)
            }
            Lie::FutureTime => {
                message.timestamp = "2026-03-01T12:02:00Z".into();
                (by_buyer(&message), Code::InvalidParameter)
            }
            Lie::Huge => {
                message.content.natural_language = Some("x".repeat(MESSAGE_BYTES));
                (Json::new(&message).unwrap(), Code::InvalidParameter)
            }
        };
        assert_eq!(self.receive(&text), Err(Refusal::Code(code)), "{lie:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn lies_change_nothing_in_a_dialogue(schedule in proptest::collection::vec(0..LIES.len() + 4, 1..40)) {
        let mut receiver = Receiver::new();
        receiver.speak(MessageType::Request);
        for (number, choice) in schedule.iter().enumerate() {
            match LIES.get(*choice) {
                Some(lie) => receiver.lie(*lie, number, false),
                None => receiver.speak(MessageType::Inform),
            }
            prop_assert_eq!(receiver.state.bytes(), 0);
        }
        receiver.speak(MessageType::Termination);
        let after = receiver.next(MessageType::Inform);
        let refused = receiver.receive(&sign(&after, &private("e1")).unwrap());
        prop_assert_eq!(refused, Err(Refusal::Code(Code::InvalidParameter)));
        for (number, lie) in LIES.into_iter().enumerate() {
            receiver.lie(lie, schedule.len() + number, true);
        }
        let spoken: Vec<String> = (1..=receiver.sent.len()).map(|step| format!("m{step}")).collect();
        prop_assert_eq!(&receiver.delivered, &spoken);
        prop_assert!(receiver.state.log.messages().count() <= 8);
    }
}
