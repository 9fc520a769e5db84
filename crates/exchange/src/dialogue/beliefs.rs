//! The beliefs that the participants of a dialogue have stated.

use std::collections::BTreeMap;

use duologue_schema::Json;
use duologue_schema::dialogue::{AgentUri, DialogueMessage, DialogueMessageId};

/// The beliefs that result from the messages of one dialogue.
///
/// The beliefs of each participant are separate. For one attribute of one entity the later step
/// wins, within a message the higher confidence, then the later entry. The result does not depend
/// on the order in which messages arrive.
///
/// ```
/// use duologue_exchange::dialogue::Beliefs;
/// use duologue_schema::dialogue::{Belief, DialogueContent, DialogueMessage, MessageType};
/// use duologue_schema::Json;
///
/// let price = Belief::new("vehicle:1", "price", Json::new(&18_000)?, 0.9);
/// let message = DialogueMessage::new(
///     "m1", "s1", "agent://seller", "agent://buyer", "2026-03-01T12:00:00Z", 1, MessageType::Inform,
/// )
/// .content(DialogueContent::new().belief_updates(vec![price.into()]));
///
/// let mut beliefs = Beliefs::new();
/// beliefs.fold(&message)?;
/// let belief = beliefs.get(&message.sender_id, "vehicle:1", "price").unwrap();
/// assert_eq!((belief.value.parse::<u32>()?, belief.confidence), (18_000, 0.9));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Beliefs {
    beliefs: BTreeMap<Key, BeliefEntry>,
    bytes: usize,
    dropped: u64,
}

/// The entity, the attribute and the participant.
type Key = (String, String, AgentUri);

/// A belief of one participant.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct BeliefEntry {
    /// The attribute's value.
    pub value: Json,
    /// The confidence, from 0 to 1.
    pub confidence: f64,
    /// The step of the message that stated it.
    pub step: u64,
    /// The id of that message.
    pub message_id: DialogueMessageId,
    /// The index of the belief in that message.
    index: usize,
}

impl BeliefEntry {
    /// Returns true if this belief replaces `other`, of the same participant about the same
    /// attribute.
    fn replaces(&self, other: &BeliefEntry) -> bool {
        let this = (self.step, self.confidence, self.index);
        // A confidence is never NaN: the message was checked.
        this.partial_cmp(&(other.step, other.confidence, other.index)).is_none_or(|order| order.is_ge())
    }
}

impl Beliefs {
    /// Maximum memory of the beliefs of one dialogue, in bytes. Each takes about 200 bytes more
    /// than its texts. Beliefs that do not fit are dropped and counted.
    pub const BYTES: usize = 64 * 1024;

    /// Creates an empty set.
    #[must_use]
    pub fn new() -> Self {
        Beliefs::default()
    }

    /// Adds the beliefs of a message. Updates of an unknown form are skipped.
    ///
    /// # Errors
    ///
    /// Returns an error if a confidence is not from 0 to 1. Nothing of the message is added then.
    pub fn fold(&mut self, message: &DialogueMessage) -> Result<(), InvalidConfidence> {
        check(message)?;
        for (index, update) in message.content.belief_updates.iter().enumerate() {
            let Some(belief) = update.belief() else { continue };
            let key = (belief.entity.clone(), belief.attribute.clone(), message.sender_id.clone());
            let new = BeliefEntry {
                value: belief.value.clone(),
                confidence: belief.confidence,
                step: message.interaction_step,
                message_id: message.message_id.clone(),
                index,
            };
            let old = self.beliefs.get(&key);
            if old.is_some_and(|old| !new.replaces(old)) {
                continue;
            }
            // The old belief is removed even if the new one does not fit.
            let freed = old.map_or(0, |old| size(&key, old));
            let bytes = self.bytes - freed + size(&key, &new);
            self.beliefs.remove(&key);
            if bytes > Self::BYTES {
                self.bytes -= freed;
                self.dropped += 1;
                tracing::warn!(dialogue = %message.session_id, "a belief was dropped because the limit is reached");
                continue;
            }
            self.bytes = bytes;
            self.beliefs.insert(key, new);
        }
        Ok(())
    }

    /// Returns the belief of `speaker` about an attribute.
    #[must_use]
    pub fn get(&self, speaker: &AgentUri, entity: &str, attribute: &str) -> Option<&BeliefEntry> {
        self.beliefs.get(&(entity.to_owned(), attribute.to_owned(), speaker.clone()))
    }

    /// Returns the beliefs of all participants about an attribute.
    pub fn about(&self, entity: &str, attribute: &str) -> impl Iterator<Item = (&AgentUri, &BeliefEntry)> {
        let first = (entity.to_owned(), attribute.to_owned(), AgentUri::from(""));
        self.beliefs
            .range(first..)
            .take_while(move |((of, which, _), _)| of == entity && which == attribute)
            .map(|((.., speaker), beliefs)| (speaker, beliefs))
    }

    /// Returns all beliefs with their entity, attribute and participant.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str, &AgentUri, &BeliefEntry)> {
        self.beliefs.iter().map(|((entity, attribute, speaker), beliefs)| {
            (entity.as_str(), attribute.as_str(), speaker, beliefs)
        })
    }

    /// Returns the number of beliefs.
    #[must_use]
    pub fn len(&self) -> usize {
        self.beliefs.len()
    }

    /// Returns true if there are no beliefs.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.beliefs.is_empty()
    }

    /// Returns the number of beliefs that did not fit; see [`BYTES`](Self::BYTES).
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped
    }
}

/// Returns the memory that a belief takes. The names of its participant and its message are counted
/// in full.
fn size((entity, attribute, speaker): &Key, beliefs: &BeliefEntry) -> usize {
    let texts = [entity, attribute, speaker.as_str(), beliefs.value.get(), beliefs.message_id.as_str()];
    size_of::<(Key, BeliefEntry)>() + 64 + texts.map(str::len).iter().sum::<usize>()
}

/// Checks the confidences in a message.
pub(crate) fn check(message: &DialogueMessage) -> Result<(), InvalidConfidence> {
    for (index, update) in message.content.belief_updates.iter().enumerate() {
        let Some(belief) = update.belief() else { continue };
        if !(0.0..=1.0).contains(&belief.confidence) {
            return Err(InvalidConfidence { index, confidence: belief.confidence });
        }
    }
    Ok(())
}

/// A confidence that is not from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("belief_updates[{index}].confidence is {confidence}, it must be from 0 to 1")]
#[non_exhaustive]
pub struct InvalidConfidence {
    /// The index in `belief_updates`.
    pub index: usize,
    /// The confidence.
    pub confidence: f64,
}

#[cfg(test)]
mod tests {
    use duologue_schema::dialogue::{Belief, BeliefUpdate, DialogueContent, MessageType};
    use proptest::prelude::*;

    use super::*;

    fn message(sender: &str, step: u64, updates: Vec<BeliefUpdate>) -> DialogueMessage {
        let id = format!("{sender}-{step}");
        let time = "2026-03-01T12:00:00Z";
        DialogueMessage::new(id, "s1", sender, "agent://nobody", time, step, MessageType::Inform)
            .content(DialogueContent::new().belief_updates(updates))
    }

    fn belief(attribute: &str, value: u32, confidence: f64) -> BeliefUpdate {
        Belief::new("car", attribute, Json::from(serde_json::json!(value)), confidence).into()
    }

    fn value(beliefs: &Beliefs, sender: &str) -> u32 {
        beliefs.get(&sender.into(), "car", "price").unwrap().value.parse().unwrap()
    }

    #[test]
    fn the_later_step_wins_and_then_the_higher_confidence() {
        let mut beliefs = Beliefs::new();
        beliefs.fold(&message("agent://a", 3, vec![belief("price", 3, 0.1)])).unwrap();
        beliefs.fold(&message("agent://a", 1, vec![belief("price", 1, 1.0)])).unwrap();
        assert_eq!(value(&beliefs, "agent://a"), 3);
        let surer = vec![belief("price", 5, 0.5), belief("price", 9, 0.9), belief("price", 2, 0.2)];
        beliefs.fold(&message("agent://a", 4, surer)).unwrap();
        assert_eq!(value(&beliefs, "agent://a"), 9);
    }

    #[test]
    fn participants_are_separate() {
        let mut beliefs = Beliefs::new();
        beliefs
            .fold(&message("agent://a", 1, vec![belief("price", 18, 1.0), belief("year", 2023, 1.0)]))
            .unwrap();
        beliefs.fold(&message("agent://b", 2, vec![belief("price", 16, 0.5)])).unwrap();
        let found: Vec<_> =
            beliefs.about("car", "price").map(|(who, beliefs)| (who.as_str(), beliefs.confidence)).collect();
        assert_eq!(found, [("agent://a", 1.0), ("agent://b", 0.5)]);
        assert_eq!(beliefs.about("car", "colour").count(), 0);
    }

    #[test]
    fn an_invalid_confidence_is_reported_and_adds_nothing() {
        for confidence in [1.5, -0.1, f64::NAN, f64::INFINITY] {
            let mut beliefs = Beliefs::new();
            let updates = vec![belief("price", 1, 1.0), belief("price", 2, confidence)];
            assert_eq!(beliefs.fold(&message("agent://a", 1, updates)).unwrap_err().index, 1);
            assert!(beliefs.is_empty());
        }
    }

    #[test]
    fn unknown_forms_are_skipped_and_memory_is_bounded() {
        let mut beliefs = Beliefs::new();
        let other = BeliefUpdate::Other(Json::from(serde_json::json!({ "believes": "in luck" })));
        beliefs.fold(&message("agent://a", 1, vec![other])).unwrap();
        assert!(beliefs.is_empty());
        let many = (0..1000).map(|n| belief(&n.to_string(), 1, 1.0)).collect();
        beliefs.fold(&message("agent://a", 2, many)).unwrap();
        let dropped = beliefs.dropped();
        assert_eq!(beliefs.len() as u64 + dropped, 1000);
        assert!(beliefs.len() * size_of::<(Key, BeliefEntry)>() < Beliefs::BYTES, "{}", beliefs.len());
        let long = Belief::new("car", "7", Json::from(serde_json::json!("x".repeat(Beliefs::BYTES))), 1.0);
        // An existing belief can still change.
        beliefs.fold(&message("agent://a", 3, vec![belief("7", 2, 1.0)])).unwrap();
        assert_eq!(beliefs.get(&"agent://a".into(), "car", "7").unwrap().step, 3);
        beliefs.fold(&message("agent://a", 4, vec![long.into()])).unwrap();
        assert_eq!((beliefs.get(&"agent://a".into(), "car", "7"), beliefs.dropped()), (None, dropped + 1));
    }

    proptest! {
        #[test]
        fn the_order_of_messages_does_not_matter(
            updates in proptest::collection::vec((0..2_usize, 0..3_u8, 0..5_u32, 0.0_f64..=1.0), 1..20),
            order in any::<prop::sample::Index>(),
            twice in any::<prop::sample::Index>(),
        ) {
            let messages: Vec<DialogueMessage> = updates
                .iter()
                .enumerate()
                .map(|(at, (who, attribute, value, confidence))| {
                    let sender = ["agent://a", "agent://b"][*who];
                    message(sender, 1 + at as u64, vec![
                        belief(&attribute.to_string(), *value, *confidence),
                        belief(&attribute.to_string(), value + 1, *confidence),
                    ])
                })
                .collect();
            let fold = |messages: &[DialogueMessage]| {
                let mut beliefs = Beliefs::new();
                for message in messages {
                    beliefs.fold(message).unwrap();
                }
                beliefs
            };
            let mut others = messages.clone();
            others.rotate_left(order.index(messages.len()));
            others.reverse();
            // Folding a message twice changes nothing.
            others.push(messages[twice.index(messages.len())].clone());
            prop_assert_eq!(fold(&messages), fold(&others));
        }
    }
}
