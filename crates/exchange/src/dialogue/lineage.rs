//! The messages of one dialogue, for as long as there is room: who answered whom.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use duologue_schema::dialogue::{DialogueMessageId, Message, MessageType};

use super::DialogueLimits;
use super::moves::{Parent, has_counter_offer};

/// Where a message stands among the others: two speakers may claim the same step.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) step: u64,
    at: Option<jiff::Timestamp>,
    pub(crate) id: DialogueMessageId,
}

impl Place {
    pub(crate) fn of(message: &Message) -> Self {
        let at = message.timestamp.parse().ok();
        Place { step: message.interaction_step, at, id: message.message_id.clone() }
    }
}

/// What is remembered of a message when its text is gone.
pub(crate) struct Headline {
    kind: MessageType,
    counter: bool,
    pub(crate) own: bool,
    pub(crate) step: u64,
    digest: u64,
}

/// Tells two texts apart, within one process.
pub(crate) fn digest(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

/// The messages of a dialogue, the newest of them whole.
#[derive(Default)]
pub(crate) struct Lineage {
    headlines: HashMap<DialogueMessageId, Headline>,
    /// Oldest first.
    order: VecDeque<DialogueMessageId>,
    messages: BTreeMap<Place, (Arc<Message>, usize)>,
    places: HashMap<DialogueMessageId, Place>,
    bytes: usize,
    /// Whether there were messages that are not here: forgotten, or never received.
    pub(crate) incomplete: bool,
}

impl Lineage {
    /// Adds a message that has this text.
    pub(crate) fn add(&mut self, message: &Arc<Message>, text: &str, own: bool, limits: &DialogueLimits) {
        let id = message.message_id.clone();
        let headline = Headline {
            kind: message.message_type.clone(),
            counter: has_counter_offer(message),
            own,
            step: message.interaction_step,
            digest: digest(text),
        };
        if self.headlines.insert(id.clone(), headline).is_none() {
            self.order.push_back(id.clone());
        }
        while self.order.len() > limits.headlines() {
            if let Some(oldest) = self.order.pop_front() {
                self.headlines.remove(&oldest);
                self.incomplete = true;
            }
        }
        let place = Place::of(message);
        self.places.insert(id, place.clone());
        self.messages.insert(place, (message.clone(), text.len()));
        self.bytes += text.len();
        let too_many = |all: &Self| all.messages.len() > limits.messages || all.bytes > limits.message_bytes;
        while self.messages.len() > 1 && too_many(self) {
            if let Some((place, (_, bytes))) = self.messages.pop_first() {
                self.places.remove(&place.id);
                self.bytes -= bytes;
            }
        }
    }

    /// Takes a message back that never was part of the dialogue.
    pub(crate) fn remove(&mut self, id: &DialogueMessageId) {
        self.headlines.remove(id);
        self.order.retain(|other| other != id);
        if let Some((_, bytes)) = self.places.remove(id).and_then(|place| self.messages.remove(&place)) {
            self.bytes -= bytes;
        }
    }

    /// What is remembered of a message.
    pub(crate) fn headline(&self, id: &DialogueMessageId) -> Option<&Headline> {
        self.headlines.get(id)
    }

    /// Whether a message of this id is there, and if so whether it had this text.
    pub(crate) fn knows(&self, id: &DialogueMessageId, text: &str) -> Option<bool> {
        self.headlines.get(id).map(|headline| headline.digest == digest(text))
    }

    /// The message, if its text is still here.
    pub(crate) fn message(&self, id: &DialogueMessageId) -> Option<Arc<Message>> {
        Some(self.messages.get(self.places.get(id)?)?.0.clone())
    }

    /// The messages that are still here, in order.
    pub(crate) fn messages(&self) -> impl Iterator<Item = &Arc<Message>> {
        self.messages.values().map(|(message, _)| message)
    }

    /// What a move by one of the speakers answers.
    pub(crate) fn parent(&self, id: Option<&DialogueMessageId>, own: bool) -> Parent {
        let Some(id) = id else { return Parent::None };
        match self.headlines.get(id) {
            Some(headline) => Parent::Known {
                kind: headline.kind.clone(),
                counter: headline.counter,
                same_speaker: headline.own == own,
            },
            None if self.incomplete => Parent::Forgotten,
            None => Parent::Unknown,
        }
    }
}
