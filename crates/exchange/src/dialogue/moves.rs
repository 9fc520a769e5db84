//! The table of legal moves.
//!
//! The rules depend on the type of a message, on the message that it answers, and on the stage of
//! the dialogue. They do not depend on its dialogue act.

use duologue_schema::dialogue::{DialogueMessage, MessageType};

/// The key in `parameters` that makes a `reject` a counter-offer. Its value is the offer.
pub const COUNTER_OFFER: &str = "counter_offer";

/// All moves, in the order of the specification.
pub(crate) const MOVES: [MessageType; 12] = [
    MessageType::Request,
    MessageType::Response,
    MessageType::Inform,
    MessageType::Confirm,
    MessageType::Propose,
    MessageType::Accept,
    MessageType::Reject,
    MessageType::Clarify,
    MessageType::Query,
    MessageType::Update,
    MessageType::Error,
    MessageType::Termination,
];

/// The condition under which a move is legal.
enum Rule {
    /// The move may open a dialogue, and is legal at any time before its end. It may name a parent.
    Opens,
    /// The move is legal at any time between the first message and the end. It may name a parent.
    Follows,
    /// The move has to name a parent of any type.
    Names,
    /// The move has to answer one of these types, sent by the other participant.
    Answers(fn(&MessageType, CounterOffer) -> bool),
    /// The move is legal at any time after the first message, even after the end.
    Always,
}

/// True if a `reject` has a counter-offer.
type CounterOffer = bool;

/// Returns the rule for a type; `None` for an unknown type, which is never legal.
fn rule(kind: &MessageType) -> Option<Rule> {
    use MessageType as M;
    Some(match kind {
        M::Request | M::Query | M::Propose | M::Inform => Rule::Opens,
        M::Response => Rule::Answers(|kind, _| matches!(kind, M::Request | M::Query)),
        M::Accept => {
            Rule::Answers(|kind, counter| matches!(kind, M::Propose) || (*kind == M::Reject && counter))
        }
        M::Reject => Rule::Answers(|kind, _| matches!(kind, M::Propose)),
        M::Confirm | M::Clarify | M::Update => Rule::Names,
        M::Termination => Rule::Follows,
        M::Error => Rule::Always,
        _ => return None,
    })
}

/// The stage of a dialogue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DialogueStage {
    /// Nothing has been sent.
    New,
    /// A message has been sent.
    Live,
    /// The dialogue has been terminated.
    Ended,
}

/// The known properties of the message that a move names as its parent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ParentMessage {
    /// The move names no parent.
    None,
    /// No such message exists.
    Unknown,
    /// The message may have existed, but this side has evicted or missed it.
    Forgotten,
    /// The message is known.
    Known {
        /// Its type.
        kind: MessageType,
        /// True for a `reject` with a counter-offer.
        counter: CounterOffer,
        /// True if the participant that makes the move also sent the parent.
        same_speaker: bool,
        /// True for an offer that was accepted or rejected.
        settled: bool,
    },
}

/// Returns true for a move that settles the offer it answers: each offer is accepted or rejected once.
pub(crate) fn settles_offer(kind: &MessageType) -> bool {
    matches!(kind, MessageType::Accept | MessageType::Reject)
}

/// Returns true if a message of the type `kind` is legal.
pub(crate) fn is_legal(kind: &MessageType, stage: DialogueStage, parent: &ParentMessage) -> bool {
    let Some(rule) = rule(kind) else { return false };
    if *parent == ParentMessage::Unknown && stage != DialogueStage::Ended {
        return false;
    }
    match (rule, stage) {
        (Rule::Always, DialogueStage::Live | DialogueStage::Ended) => true,
        (_, DialogueStage::Ended) | (Rule::Always, DialogueStage::New) => false,
        (Rule::Opens, _) => true,
        (_, DialogueStage::New) => false,
        (Rule::Follows, DialogueStage::Live) => true,
        (Rule::Names, DialogueStage::Live) => *parent != ParentMessage::None,
        (Rule::Answers(fits), DialogueStage::Live) => match parent {
            ParentMessage::Known { kind, counter, same_speaker, settled } => {
                !same_speaker && !settled && fits(kind, *counter)
            }
            // The parent is unknown, and an offer cannot be accepted unseen.
            ParentMessage::None | ParentMessage::Unknown | ParentMessage::Forgotten => false,
        },
    }
}

/// Returns the legal moves.
pub(crate) fn allowed(stage: DialogueStage, parent: &ParentMessage) -> Vec<MessageType> {
    MOVES.into_iter().filter(|kind| is_legal(kind, stage, parent)).collect()
}

/// Returns true if a message of the type `kind` ends the wait for an answer to one of the type
/// `sent`. Errors always do and are handled elsewhere.
pub(crate) fn settles(sent: &MessageType, kind: &MessageType) -> bool {
    use MessageType as M;
    match sent {
        M::Request | M::Query => matches!(kind, M::Response | M::Propose | M::Clarify),
        M::Propose | M::Reject => matches!(kind, M::Accept | M::Reject | M::Propose | M::Clarify),
        M::Clarify => !matches!(kind, M::Confirm | M::Update),
        _ => true,
    }
}

/// Returns true for a `reject` with an offer under [`COUNTER_OFFER`] in its `parameters`. Such a
/// message can be answered by `accept`.
#[must_use]
pub fn has_counter_offer(message: &DialogueMessage) -> bool {
    let offer = message.content.parameters.get::<serde_json::Value>(COUNTER_OFFER);
    message.message_type == MessageType::Reject && offer.is_some_and(|offer| !offer.is_null())
}

/// An illegal move, with the legal ones.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message_type} {because}; allowed here: {}", names(allowed))]
#[non_exhaustive]
pub struct IllegalMove {
    /// The type of the message.
    pub message_type: MessageType,
    /// The types that would have been legal.
    pub allowed: Vec<MessageType>,
    because: String,
}

impl IllegalMove {
    /// Checks a move.
    pub(crate) fn check(
        kind: &MessageType,
        stage: DialogueStage,
        parent: &ParentMessage,
    ) -> Result<(), Self> {
        if is_legal(kind, stage, parent) {
            return Ok(());
        }
        let because = match (stage, parent) {
            (DialogueStage::Ended, _) => "comes after the end of the dialogue".to_owned(),
            (_, ParentMessage::Unknown) => "names a parent_message_id that is not in the dialogue".to_owned(),
            (DialogueStage::New, _) => "opens no dialogue".to_owned(),
            (DialogueStage::Live, ParentMessage::None) => "names no parent_message_id".to_owned(),
            (DialogueStage::Live, ParentMessage::Forgotten) => {
                "answers a message that was evicted or never received".to_owned()
            }
            (DialogueStage::Live, ParentMessage::Known { same_speaker: true, .. }) => {
                "answers a message of its own sender".to_owned()
            }
            (DialogueStage::Live, ParentMessage::Known { settled: true, .. }) if settles_offer(kind) => {
                "answers an offer that was accepted or rejected before; it needs a new offer".to_owned()
            }
            (DialogueStage::Live, ParentMessage::Known { kind, .. }) => format!("does not answer {kind}"),
        };
        Err(IllegalMove { message_type: kind.clone(), allowed: allowed(stage, parent), because })
    }
}

fn names(types: &[MessageType]) -> String {
    types.iter().map(MessageType::as_str).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(kind: MessageType) -> ParentMessage {
        ParentMessage::Known { kind, counter: false, same_speaker: false, settled: false }
    }

    fn check(stage: DialogueStage, parent: ParentMessage, expect: &str) {
        let names: Vec<String> = allowed(stage, &parent).iter().map(ToString::to_string).collect();
        assert_eq!(names.join(" "), expect, "{stage:?} {parent:?}");
    }

    const ANYWHERE: &str = "request inform confirm propose clarify query update error termination";

    #[test]
    fn legal_moves_by_stage_and_parent() {
        use MessageType as M;
        check(DialogueStage::New, ParentMessage::None, "request inform propose query");
        check(DialogueStage::Ended, ParentMessage::None, "error");
        check(DialogueStage::Ended, known(M::Propose), "error");
        check(DialogueStage::Live, ParentMessage::None, "request inform propose query error termination");
        check(DialogueStage::Live, ParentMessage::Unknown, "");
        check(DialogueStage::Live, ParentMessage::Forgotten, ANYWHERE);
        for kind in [M::Request, M::Query] {
            check(
                DialogueStage::Live,
                known(kind),
                "request response inform confirm propose clarify query update error termination",
            );
        }
        check(
            DialogueStage::Live,
            known(M::Propose),
            "request inform confirm propose accept reject clarify query update error termination",
        );
        for kind in
            [M::Response, M::Inform, M::Confirm, M::Accept, M::Reject, M::Clarify, M::Update, M::Error]
        {
            check(DialogueStage::Live, known(kind), ANYWHERE);
        }
    }

    #[test]
    fn a_counter_offer_is_accepted_and_a_plain_reject_is_not() {
        let reject = |counter| ParentMessage::Known {
            kind: MessageType::Reject,
            counter,
            same_speaker: false,
            settled: false,
        };
        assert!(is_legal(&MessageType::Accept, DialogueStage::Live, &reject(true)));
        assert!(is_legal(&MessageType::Propose, DialogueStage::Live, &reject(true)));
        assert!(!is_legal(&MessageType::Accept, DialogueStage::Live, &reject(false)));
        assert!(!is_legal(&MessageType::Reject, DialogueStage::Live, &reject(true)));
    }

    #[test]
    fn own_messages_cannot_be_answered() {
        for kind in [MessageType::Request, MessageType::Propose] {
            check(
                DialogueStage::Live,
                ParentMessage::Known { kind, counter: false, same_speaker: true, settled: false },
                ANYWHERE,
            );
        }
    }

    #[test]
    fn an_offer_is_settled_once() {
        let settled =
            |kind, counter| ParentMessage::Known { kind, counter, same_speaker: false, settled: true };
        check(DialogueStage::Live, settled(MessageType::Propose, false), ANYWHERE);
        check(DialogueStage::Live, settled(MessageType::Reject, true), ANYWHERE);
        let again = IllegalMove::check(
            &MessageType::Reject,
            DialogueStage::Live,
            &settled(MessageType::Propose, false),
        );
        assert_eq!(
            again.unwrap_err().to_string(),
            "reject answers an offer that was accepted or rejected before; it needs a new offer; allowed here: \
             request, inform, confirm, propose, clarify, query, update, error, termination"
        );
    }

    #[test]
    fn unknown_types_are_never_legal() {
        let shout = MessageType::from("shout");
        for stage in [DialogueStage::New, DialogueStage::Live, DialogueStage::Ended] {
            assert!(!is_legal(&shout, stage, &ParentMessage::None));
        }
    }

    #[test]
    fn the_error_lists_legal_moves() {
        let illegal =
            IllegalMove::check(&MessageType::Accept, DialogueStage::New, &ParentMessage::None).unwrap_err();
        assert_eq!(
            illegal.to_string(),
            "accept opens no dialogue; allowed here: request, inform, propose, query"
        );
    }
}
