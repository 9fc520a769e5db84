//! A bounded log of the messages of one dialogue, with their parents.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::BuildHasher;

use duologue_schema::Json;
use duologue_schema::dialogue::{DialogueMessage, DialogueMessageId, MessageType};

use super::DialogueLimits;
use super::moves::{ParentMessage, has_counter_offer, settles_offer};

/// The position of a message in the log. The id distinguishes two messages with the same step.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct MessagePosition {
    pub(crate) step: u64,
    at: Option<jiff::Timestamp>,
    pub(crate) id: DialogueMessageId,
}

impl MessagePosition {
    pub(crate) fn of(message: &DialogueMessage) -> Self {
        let at = message.timestamp.parse().ok();
        MessagePosition { step: message.interaction_step, at, id: message.message_id.clone() }
    }
}

/// The properties of a message that are kept after its text is evicted. Its size does not depend on
/// that of the message.
pub(crate) struct MessageSummary {
    kind: MessageType,
    counter: bool,
    pub(crate) own: bool,
    pub(crate) step: u64,
    /// True for a message of ours that has its receipt.
    pub(crate) accepted: bool,
    digest: u64,
    /// The hash of the id of the message that accepted or rejected this offer.
    settled_by: Option<u64>,
}

/// The messages of a dialogue. The newest ones are stored as text and parsed on demand, because the
/// parsed form may take many times the memory.
#[derive(Default)]
pub(crate) struct MessageLog {
    /// By the hash of the message id.
    summaries: HashMap<u64, MessageSummary>,
    /// Oldest first.
    order: VecDeque<u64>,
    messages: BTreeMap<MessagePosition, Json>,
    bytes: usize,
    /// True if messages are missing because they were evicted or never received.
    pub(crate) incomplete: bool,
}

impl MessageLog {
    /// Adds a message with its text.
    pub(crate) fn add(&mut self, message: &DialogueMessage, text: &Json, own: bool, limits: &DialogueLimits) {
        let summary = MessageSummary {
            kind: message.message_type.clone(),
            counter: has_counter_offer(message),
            own,
            step: message.interaction_step,
            accepted: false,
            digest: self.digest(text.get()),
            settled_by: None,
        };
        let id = self.digest(message.message_id.as_str());
        if settles_offer(&message.message_type)
            && let Some(offer) = message.parent_message_id.as_ref().map(|id| self.digest(id.as_str()))
            && let Some(offer) = self.summaries.get_mut(&offer)
        {
            offer.settled_by = Some(id);
        }
        if self.summaries.insert(id, summary).is_none() {
            self.order.push_back(id);
        }
        while self.order.len() > limits.summaries() {
            if let Some(oldest) = self.order.pop_front() {
                self.summaries.remove(&oldest);
                self.incomplete = true;
            }
        }
        let bytes = text.get().len();
        // A longer text would evict all others and still not fit.
        if bytes > limits.message_bytes {
            return;
        }
        self.messages.insert(MessagePosition::of(message), text.clone());
        self.bytes += bytes;
        while self.messages.len() > limits.messages || self.bytes > limits.message_bytes {
            let Some((_, text)) = self.messages.pop_first() else { return };
            self.bytes -= text.get().len();
        }
    }

    /// Returns a hash that distinguishes the texts within this dialogue.
    fn digest(&self, text: &str) -> u64 {
        self.summaries.hasher().hash_one(text)
    }

    /// Removes a message that did not become part of the dialogue. An offer that it settled is open again.
    pub(crate) fn remove(&mut self, id: &DialogueMessageId) {
        let digest = self.digest(id.as_str());
        self.summaries.remove(&digest);
        for offer in self.summaries.values_mut() {
            offer.settled_by.take_if(|settled_by| *settled_by == digest);
        }
        self.order.retain(|other| *other != digest);
        let place = self.messages.keys().find(|place| place.id == *id).cloned();
        if let Some(text) = place.and_then(|place| self.messages.remove(&place)) {
            self.bytes -= text.get().len();
        }
    }

    /// Drops all texts.
    pub(crate) fn clear(&mut self) {
        self.messages.clear();
        self.bytes = 0;
    }

    /// Returns the summary of a message.
    pub(crate) fn summary(&self, id: &DialogueMessageId) -> Option<&MessageSummary> {
        self.summaries.get(&self.digest(id.as_str()))
    }

    /// Records that a message of ours has its receipt.
    pub(crate) fn accept(&mut self, id: &DialogueMessageId) {
        let id = self.digest(id.as_str());
        if let Some(summary) = self.summaries.get_mut(&id) {
            summary.accepted = true;
        }
    }

    /// Returns the first message that `is_answer` accepts among those of the other side that name `id`
    /// as their parent, with its text.
    pub(crate) fn answer(
        &self,
        id: &DialogueMessageId,
        is_answer: impl Fn(&MessageType) -> bool,
    ) -> Option<(DialogueMessage, &Json)> {
        let is_theirs = |id| self.summary(id).is_some_and(|summary| !summary.own && is_answer(&summary.kind));
        let texts = self.messages.iter().filter(|(place, _)| is_theirs(&place.id)).map(|(_, text)| text);
        texts
            .filter_map(|text| Some((text.parse::<DialogueMessage>().ok()?, text)))
            .find(|(message, _)| message.parent_message_id.as_ref() == Some(id))
    }

    /// Returns `None` for an unknown id, otherwise true if that message had this text.
    pub(crate) fn knows(&self, id: &DialogueMessageId, text: &str) -> Option<bool> {
        self.summary(id).map(|summary| summary.digest == self.digest(text))
    }

    /// Returns a message, if its text is still in the log.
    pub(crate) fn message(&self, id: &DialogueMessageId) -> Option<DialogueMessage> {
        self.text(id)?.parse().ok()
    }

    /// Returns the text of a message.
    pub(crate) fn text(&self, id: &DialogueMessageId) -> Option<&Json> {
        self.messages.iter().find(|(place, _)| place.id == *id).map(|(_, text)| text)
    }

    /// Returns the messages whose texts are still in the log, in order.
    pub(crate) fn messages(&self) -> impl Iterator<Item = DialogueMessage> {
        self.messages.values().filter_map(|text| text.parse().ok())
    }

    /// Returns the parent message of a move by one of the participants.
    pub(crate) fn parent(&self, id: Option<&DialogueMessageId>, own: bool) -> ParentMessage {
        let Some(id) = id else { return ParentMessage::None };
        match self.summary(id) {
            Some(summary) => ParentMessage::Known {
                kind: summary.kind.clone(),
                counter: summary.counter,
                same_speaker: summary.own == own,
                settled: summary.settled_by.is_some(),
            },
            None if self.incomplete => ParentMessage::Forgotten,
            None => ParentMessage::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offer_is_open_again_if_its_answer_was_refused() {
        let limits = DialogueLimits::default();
        let mut log = MessageLog::default();
        let add = |log: &mut MessageLog, id: &str, kind, parent: Option<&str>, own| {
            let mut message =
                DialogueMessage::new(id, "s", "agent://a", "agent://b", "2026-03-01T12:00:00Z", 1, kind);
            message.parent_message_id = parent.map(Into::into);
            log.add(&message, &Json::new(&message).unwrap(), own, &limits);
        };
        let is_settled = |log: &MessageLog| match log.parent(Some(&"offer".into()), true) {
            ParentMessage::Known { settled, .. } => settled,
            other => panic!("{other:?}"),
        };
        add(&mut log, "offer", MessageType::Propose, None, false);
        add(&mut log, "question", MessageType::Clarify, Some("offer"), true);
        assert!(!is_settled(&log));
        for kind in [MessageType::Accept, MessageType::Reject] {
            add(&mut log, "answer", kind, Some("offer"), true);
            assert!(is_settled(&log));
            log.remove(&"question".into());
            assert!(is_settled(&log));
            log.remove(&"answer".into());
            assert!(!is_settled(&log));
        }
    }
}
