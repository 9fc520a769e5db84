//! The state machine of one dialogue: legal moves, delivery and order. It does no I/O, and the time
//! is an argument.
//!
//! A step counts the messages of both participants. A message is in order if it follows the last
//! step that both sides know: one delivered here, or one of ours with a receipt. A higher step
//! comes from a sender that knows more messages than we do, so the message is buffered until the
//! missing ones arrive.
//!
//! A trace on one connection that needs the buffer:
//!
//! 1. We send step 1. The sending task waits for the receipt.
//! 2. The other side sends the receipt, and then step 2 without a parent.
//! 3. Our reader receives both in one read. It resolves the request of the sending task and passes
//!    step 2 on at once. The receipt is not recorded yet, so no step is known to both sides.
//! 4. The sending task runs and records the receipt, which delivers step 2.
//!
//! Without the buffer, step 2 would be delivered with a gap or rejected, depending on which task
//! runs first.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use duologue_schema::dialogue::{
    AgentUri, DialogueErrorCode as Code, DialogueMessage, DialogueMessageId, ErrorContent, MessageType,
};
use duologue_schema::{Json, Members};
use serde_json::json;

use super::beliefs::{self, Beliefs};
use super::limits::DialogueLimits;
use super::message::{QueuedMessage, VerifiedMessage};
use super::message_log::{MessageLog, MessagePosition};
use super::moves::{DialogueStage, IllegalMove};
use crate::limits::STEPS_AHEAD;

/// The outcome of an incoming message.
#[derive(Debug, PartialEq)]
pub(crate) enum Arrival {
    /// The message was delivered.
    Delivered,
    /// The message is buffered until the messages before it arrive.
    Buffered,
    /// The message had already arrived.
    Duplicate,
    /// The message was rejected.
    Refused(Box<ErrorContent>),
}

/// An action that results from an incoming message or from the time.
#[derive(Debug, PartialEq)]
pub(crate) enum DialogueAction {
    /// Deliver a message.
    Deliver(Arc<VerifiedMessage>),
    /// Reject a buffered message that turned out to be invalid.
    Refuse(Arc<VerifiedMessage>, Box<ErrorContent>),
}

/// A buffered message.
struct Early {
    queued: QueuedMessage,
    until: Duration,
    /// True if a call waits for the message, so that it must not wait for the handler.
    awaited: bool,
}

/// The state of one dialogue, as one participant sees it.
pub(crate) struct DialogueState {
    own: AgentUri,
    other: AgentUri,
    limits: Arc<DialogueLimits>,
    pub(crate) log: MessageLog,
    pub(crate) beliefs: Beliefs,
    /// The last step that we have used.
    own_step: u64,
    /// The last step of the other side that was delivered.
    their_step: u64,
    /// The last step that both sides know.
    settled: u64,
    early: BTreeMap<MessagePosition, Early>,
    /// Number and size of the messages that were delivered and not yet taken by the handler.
    waiting: usize,
    waiting_bytes: usize,
    ended: bool,
}

impl DialogueState {
    /// Creates the state of a dialogue without messages.
    pub(crate) fn new(own: AgentUri, other: AgentUri, limits: Arc<DialogueLimits>) -> Self {
        DialogueState {
            own,
            other,
            limits,
            log: MessageLog::default(),
            beliefs: Beliefs::new(),
            own_step: 0,
            their_step: 0,
            settled: 0,
            early: BTreeMap::new(),
            waiting: 0,
            waiting_bytes: 0,
            ended: false,
        }
    }

    /// Returns the stage of the dialogue.
    pub(crate) fn stage(&self) -> DialogueStage {
        match (self.ended, self.own_step.max(self.their_step)) {
            (true, _) => DialogueStage::Ended,
            (false, 0) => DialogueStage::New,
            (false, _) => DialogueStage::Live,
        }
    }

    /// Returns true if the dialogue has no messages, not even buffered ones.
    pub(crate) fn is_blank(&self) -> bool {
        self.stage() == DialogueStage::New && self.early.is_empty()
    }

    /// Handles a verified message of the other side. An `awaited` message ignores the limit on
    /// messages that wait for the handler.
    pub(crate) fn arrive(
        &mut self,
        received: VerifiedMessage,
        awaited: bool,
        now: Duration,
    ) -> (Arrival, Vec<DialogueAction>) {
        let mut actions = Vec::new();
        let verdict = self.admit(received, awaited, now, &mut actions);
        (verdict.unwrap_or_else(Arrival::Refused), actions)
    }

    fn admit(
        &mut self,
        received: VerifiedMessage,
        awaited: bool,
        now: Duration,
        actions: &mut Vec<DialogueAction>,
    ) -> Result<Arrival, Box<ErrorContent>> {
        let message = &received.message;
        if message.sender_id != self.other || message.recipient_id != self.own {
            let text = format!("this dialogue is between {} and {}", self.other, self.own);
            return Err(refused(Code::Unauthorized, text));
        }
        let early = self.early.iter().find(|(place, _)| place.id == message.message_id);
        let known = match early {
            Some((_, early)) => Some(early.queued.raw() == received.raw.get()),
            None => self.log.knows(&message.message_id, received.raw.get()),
        };
        match known {
            Some(true) => return Ok(Arrival::Duplicate),
            Some(false) => {
                return Err(refused(Code::Conflict, "another message has this message_id"));
            }
            None => {}
        }
        if self.ended {
            self.check_received(message)?;
        }
        let step = message.interaction_step;
        let next = self.next_step();
        let used = step <= self.their_step || self.early.keys().any(|place| place.step == step);
        if used || step.saturating_sub(next) > STEPS_AHEAD {
            let problem = match used {
                true => format!("step {step} was already used or passed"),
                false => format!("more than {STEPS_AHEAD} steps are missing before step {step}"),
            };
            let text = format!("{problem}; the next one is {next}");
            let details = json!({ "next_step": next });
            return Err(Box::new(ErrorContent::of(Code::Conflict, text).details(object(details))));
        }
        beliefs::check(message).map_err(|bad| refused(Code::InvalidParameter, bad.to_string()))?;
        // An answer to our message implies that it was delivered, even if its receipt is still in
        // flight.
        let answered = message.parent_message_id.as_ref().and_then(|id| self.log.summary(id));
        if let Some(step) = answered.filter(|parent| parent.own).map(|parent| parent.step) {
            self.settled = self.settled.max(step);
            self.settle(now, actions);
        }
        if step <= self.settled.saturating_add(1) {
            if let Err(illegal) = self.check_received(message) {
                // The sender may use the step again or the one after it.
                self.settled = self.settled.max(step);
                self.settle(now, actions);
                return Err(illegal);
            }
            self.room(awaited)?;
            self.deliver(received, actions);
            self.settle(now, actions);
            return Ok(Arrival::Delivered);
        }
        if self.is_full(1, received.bytes()) {
            self.room(awaited)?;
        }
        let id = message.message_id.clone();
        let until = now.saturating_add(self.limits.patience);
        self.early.insert(MessagePosition::of(message), Early { queued: received.into(), until, awaited });
        self.settle(now, actions);
        // The message itself may have filled the window.
        let refused = |action: &DialogueAction| matches!(action, DialogueAction::Refuse(received, _) if received.message_id == id);
        if let Some(at) = actions.iter().position(refused)
            && let DialogueAction::Refuse(_, error) = actions.remove(at)
        {
            return Ok(Arrival::Refused(error));
        }
        Ok(if self.is_early(&id) { Arrival::Buffered } else { Arrival::Delivered })
    }

    /// Returns true if the message is buffered until the messages before it arrive.
    pub(crate) fn is_early(&self, id: &DialogueMessageId) -> bool {
        self.early.keys().any(|place| place.id == *id)
    }

    /// Returns true if the window would overflow with these messages and bytes.
    fn is_full(&self, more: usize, bytes: usize) -> bool {
        let buffered = self.early_bytes();
        self.early.len() + more > self.limits.window || buffered + bytes > self.limits.message_bytes
    }

    fn early_bytes(&self) -> usize {
        self.early.values().map(|early| early.queued.bytes()).sum()
    }

    /// Returns the size of all messages that are buffered or wait for the handler.
    pub(crate) fn bytes(&self) -> usize {
        self.waiting_bytes + self.early_bytes()
    }

    /// Rejects a message if too many wait for the handler.
    fn room(&self, awaited: bool) -> Result<(), Box<ErrorContent>> {
        if awaited || self.waiting < self.limits.inbox {
            return Ok(());
        }
        let text = format!(
            "inbox limit reached ({} messages of this dialogue are waiting); retry later",
            self.waiting
        );
        Err(refused(Code::Overloaded, text))
    }

    /// Checks that a message of the other side is a legal move now.
    fn check_received(&self, message: &DialogueMessage) -> Result<(), Box<ErrorContent>> {
        let parent = self.log.parent(message.parent_message_id.as_ref(), false);
        IllegalMove::check(&message.message_type, self.stage(), &parent).map_err(|illegal| {
            let allowed: Vec<&str> = illegal.allowed.iter().map(MessageType::as_str).collect();
            let details = json!({ "allowed": allowed });
            Box::new(ErrorContent::of(Code::InvalidParameter, illegal.to_string()).details(object(details)))
        })
    }

    fn deliver(&mut self, received: VerifiedMessage, actions: &mut Vec<DialogueAction>) {
        let message = &received.message;
        self.their_step = message.interaction_step;
        self.settled = self.settled.max(message.interaction_step);
        self.log.incomplete |= received.gap;
        self.log.add(message, &received.raw, false, &self.limits);
        // The confidences have been checked, so this does not fail.
        let _ = self.beliefs.fold(message);
        self.ended |= message.message_type == MessageType::Termination;
        self.waiting += 1;
        self.waiting_bytes += received.bytes();
        actions.push(DialogueAction::Deliver(Arc::new(received)));
    }

    /// Returns true if buffered messages may be delivered: the handler has room, or a call waits
    /// for one of them.
    fn passes(&self) -> bool {
        self.waiting < self.limits.inbox || self.early.values().any(|early| early.awaited)
    }

    /// Delivers the buffered messages that are due.
    fn settle(&mut self, now: Duration, actions: &mut Vec<DialogueAction>) {
        while self.passes() {
            let full = self.is_full(0, 0);
            let late = self.early.values().any(|early| early.until <= now);
            let Some(first) = self.early.first_entry() else { return };
            let gap = first.key().step > self.settled.saturating_add(1);
            // After the end of the dialogue no message is waited for.
            if gap && !full && !late && !self.ended {
                return;
            }
            let Some(received) = first.remove().queued.read() else { continue };
            let received = VerifiedMessage { gap, ..received };
            self.log.incomplete |= gap;
            match received.in_time(now).and_then(|()| self.check_received(&received.message)) {
                Ok(()) => self.deliver(received, actions),
                Err(error) => {
                    // The sender has a receipt, so the step counts as used on both sides.
                    self.their_step = received.interaction_step;
                    self.settled = self.settled.max(self.their_step);
                    actions.push(DialogueAction::Refuse(Arc::new(received), error));
                }
            }
        }
    }

    /// Delivers the buffered messages whose time is up.
    pub(crate) fn tick(&mut self, now: Duration) -> Vec<DialogueAction> {
        let mut actions = Vec::new();
        self.settle(now, &mut actions);
        actions
    }

    /// Returns the time at which [`tick`](Self::tick) has to be called next.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        // If the handler has no room, it calls `taken` later.
        self.early.values().map(|early| early.until).min().filter(|_| self.passes())
    }

    /// Returns a taken message to the count of waiting ones.
    pub(crate) fn returned(&mut self, bytes: usize) {
        self.waiting += 1;
        self.waiting_bytes += bytes;
    }

    /// Records that the handler has taken a message of this size.
    pub(crate) fn taken(&mut self, bytes: usize, now: Duration) -> Vec<DialogueAction> {
        self.waiting = self.waiting.saturating_sub(1);
        self.waiting_bytes = self.waiting_bytes.saturating_sub(bytes);
        self.tick(now)
    }

    /// Returns the step of the next message of either side.
    pub(crate) fn next_step(&self) -> u64 {
        self.own_step.max(self.their_step).saturating_add(1)
    }

    /// Checks that we may make a move.
    pub(crate) fn check_move(
        &self,
        kind: &MessageType,
        parent: Option<&DialogueMessageId>,
    ) -> Result<(), IllegalMove> {
        IllegalMove::check(kind, self.stage(), &self.log.parent(parent, true))
    }

    /// Records that we send a message with the [next step](Self::next_step).
    pub(crate) fn record_sent(&mut self, message: &DialogueMessage, text: &Json) {
        self.own_step = message.interaction_step;
        self.log.add(message, text, true, &self.limits);
    }

    /// Records that the other side accepted our message.
    pub(crate) fn record_receipt(&mut self, message: &DialogueMessage, now: Duration) -> Vec<DialogueAction> {
        self.settled = self.settled.max(message.interaction_step);
        self.log.accept(&message.message_id);
        let _ = self.beliefs.fold(message);
        self.ended |= message.message_type == MessageType::Termination;
        self.tick(now)
    }

    /// Records that the other side rejected our message, which frees its step. A message with a receipt
    /// keeps its step: only a repetition of it was rejected.
    pub(crate) fn refused(&mut self, message: &DialogueMessage) {
        if self.log.summary(&message.message_id).is_some_and(|summary| summary.accepted) {
            return;
        }
        self.log.remove(&message.message_id);
        if self.own_step == message.interaction_step {
            self.own_step -= 1;
        }
    }
}

/// Creates the content of a rejection.
pub(crate) fn refused(code: Code, message: impl Into<String>) -> Box<ErrorContent> {
    Box::new(ErrorContent::of(code, message))
}

/// Returns the members of a JSON object.
pub(crate) fn object(value: serde_json::Value) -> Members {
    match value {
        serde_json::Value::Object(map) => map.into(),
        _ => Members::new(),
    }
}
