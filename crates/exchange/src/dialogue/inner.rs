//! The runtime half of a dialogue: routes incoming messages to waiting callers and sends outgoing
//! ones.

use duologue_rpc::Lock as _;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};

use duologue_rpc::{PendingTable, with_cancel_grace};
use duologue_schema::dialogue::{
    AgentUri, DialogueContent, DialogueErrorCode as Code, DialogueId, DialogueMessageId, ErrorContent,
    MessageType,
};
use futures::FutureExt;
use tokio::sync::{Notify, oneshot};

use super::callbacks;
use super::dialogue::Dialogue;
use super::dialogue_registry::DialogueKey;
use super::dialogues::Dialogues;
use super::error::Error;
use super::message::{QueuedMessage, VerifiedMessage};
use super::replies::ReplyWaiters;
use super::send::MessageDraft;
use super::state::{Arrival, DialogueAction, DialogueState, refused};
use crate::PeerAgent;

/// Returns true if tasks can be spawned: a handle may be dropped after its runtime.
pub(crate) fn in_runtime() -> bool {
    tokio::runtime::Handle::try_current().is_ok()
}

/// Returns a random id.
pub(crate) fn new_id() -> String {
    uuid::Uuid::new_v4().to_string()
}

/// Returns the current time in the format of messages.
pub(crate) fn timestamp() -> String {
    format!("{:.3}", jiff::Timestamp::now())
}

/// The dialogue in which another one was opened.
#[derive(Clone)]
pub(crate) struct ParentDialogue {
    /// The dialogue, if this side takes part in it. Otherwise only its id is known.
    pub(crate) inner: Option<Arc<DialogueInner>>,
    pub(crate) session: DialogueId,
    pub(crate) message: Option<DialogueMessageId>,
}

/// The shared part of a dialogue.
pub(crate) struct DialogueInner {
    pub(crate) id: DialogueId,
    key: DialogueKey,
    pub(crate) dialogues: Arc<Dialogues>,
    /// The other side, in the ACP session that carries the dialogue.
    pub(crate) peer: PeerAgent,
    pub(crate) other: AgentUri,
    pub(crate) parent: Option<ParentDialogue>,
    pub(crate) correlation: String,
    pub(crate) state: Mutex<InnerState>,
    /// Notified when a message is queued and when the dialogue ends.
    changed: Notify,
    /// Messages are sent one at a time, so that steps are used in the order in which they are
    /// assigned.
    pub(crate) sending: Arc<tokio::sync::Mutex<()>>,
}

pub(crate) struct InnerState {
    pub(crate) dialogue: DialogueState,
    /// Keeps the ACP session registered until the dialogue ends.
    session_guard: Option<PeerAgent>,
    /// The waiters for answers to our messages.
    pub(crate) waiters: PendingTable<DialogueMessageId, ReplyWaiters, ()>,
    /// Our last message in flight, and a channel that is notified when an answer arrives before its
    /// receipt.
    pub(crate) in_flight: Option<(DialogueMessageId, oneshot::Sender<()>)>,
    /// Delivered messages that no call waits for.
    pub(crate) queue: VecDeque<QueuedMessage>,
    /// The reason why no more messages will arrive.
    pub(crate) end_reason: Option<Error>,
    /// True if the handler reads the queue, and not a [`Dialogue`] that we opened.
    handled: bool,
    working: bool,
    /// The size of the message that is being handled.
    handling_bytes: usize,
    timer: bool,
    /// The number of tasks that report an invalid buffered message to the other side.
    error_reports: usize,
    /// The share of this dialogue in the connection's count of waiting bytes.
    counted_bytes: usize,
    /// While a receipt is sent: the actions that follow it.
    after_receipt: Option<AfterReceipt>,
}

/// The work that waits for a receipt to be sent, so that nothing that results from a message
/// overtakes its receipt.
#[derive(Default)]
struct AfterReceipt {
    actions: Vec<DialogueAction>,
    end: Option<Error>,
}

impl DialogueInner {
    pub(crate) fn new(
        dialogues: Arc<Dialogues>,
        peer: PeerAgent,
        id: DialogueId,
        other: AgentUri,
        parent: Option<ParentDialogue>,
        correlation: String,
        handled: bool,
    ) -> Arc<Self> {
        let dialogue = DialogueState::new(dialogues.own().clone(), other.clone(), dialogues.limits.clone());
        Arc::new(DialogueInner {
            key: (peer.link.dialogue_connection.id, id.clone()),
            id,
            dialogues,
            peer: peer.released(),
            other,
            parent,
            correlation,
            state: Mutex::new(InnerState {
                dialogue,
                session_guard: Some(peer),
                waiters: PendingTable::default(),
                in_flight: None,
                queue: VecDeque::new(),
                end_reason: None,
                handled,
                working: false,
                handling_bytes: 0,
                timer: false,
                error_reports: 0,
                counted_bytes: 0,
                after_receipt: None,
            }),
            changed: Notify::new(),
            sending: Arc::default(),
        })
    }

    /// Registers the dialogue.
    pub(crate) fn enter(self: &Arc<Self>) -> Result<(), Error> {
        let mut registry = self.dialogues.registry.lock_unpoisoned();
        if registry.get(&self.key).is_some() {
            return Err(Error::IdTaken(self.id.to_string()));
        }
        // The end of a connection is marked before its dialogues are collected, so this one would
        // be missed.
        if self.peer.link.dialogue_connection.ended.is_cancelled() {
            return Err(Error::Ended);
        }
        // Otherwise an intermediary with one of our messages could receive the answers.
        if registry.elsewhere(&self.key).any(|inner| inner.other == self.other) {
            let text = "this dialogue is open on another connection";
            return Err(Error::Response(refused(Code::Conflict, text)));
        }
        registry
            .add(self.key.clone(), self.clone())
            .map_err(|_| Error::TooMany(self.dialogues.limits.dialogues))
    }

    /// Removes the dialogue from the registry.
    pub(crate) fn leave(&self) {
        self.dialogues.registry.lock_unpoisoned().remove(&self.key);
    }

    /// Handles a verified message; the reader calls it. Unless the message is rejected, `receipt`
    /// is called before the message takes effect, so that the receipt is sent before any message
    /// that results from it. No lock is taken meanwhile, since a tap that sees the receipt may read
    /// the dialogue.
    pub(crate) fn arrive(
        self: &Arc<Self>,
        received: VerifiedMessage,
        receipt: impl FnOnce(&Arrival),
    ) -> Arrival {
        let mut state = self.state.lock_unpoisoned();
        if let Some(reason) = state.end_reason.as_ref().filter(|reason| !matches!(reason, Error::Ended)) {
            return Arrival::Refused(refused(Code::NotFound, reason.to_string()));
        }
        let awaited = state.awaits(&received);
        let (all, bytes) = (self.peer.link.dialogue_connection.waiting.load(Relaxed), received.bytes());
        let limits = &self.dialogues.limits;
        let full = all > 0
            && all.saturating_add(bytes) > limits.waiting_bytes
            && state.counted_bytes.saturating_add(bytes) > limits.waiting_bytes / limits.dialogues.max(1);
        if full && !awaited {
            let text = "too many bytes are waiting to be handled; retry later";
            return Arrival::Refused(refused(Code::Overloaded, text));
        }
        let parent = received.parent_message_id.clone();
        let (arrival, mut actions) = state.dialogue.arrive(received, awaited, self.dialogues.now());
        let (mut end, mut panic) = (None, None);
        if !matches!(arrival, Arrival::Refused(_)) {
            state.after_receipt = Some(AfterReceipt { actions, end: None });
            drop(state);
            panic = catch_unwind(AssertUnwindSafe(|| receipt(&arrival))).err();
            state = self.state.lock_unpoisoned();
            AfterReceipt { actions, end } = state.after_receipt.take().unwrap_or_default();
            if let Some((_, answered)) = state.in_flight.take_if(|(id, _)| parent.as_ref() == Some(id)) {
                let _ = answered.send(());
            }
        }
        self.apply(&mut state, actions);
        if let Some(reason) = end {
            self.finish(&mut state, &reason);
            self.forget(&mut state);
            self.changed.notify_waiters();
        }
        // A dialogue with a handle of ours is removed when the handle is dropped.
        if state.handled && state.dialogue.is_blank() {
            drop(state);
            self.leave();
        } else {
            drop(state);
        }
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
        arrival
    }

    /// Returns true if the message is buffered until the messages before it arrive.
    pub(crate) fn is_early(&self, id: &DialogueMessageId) -> bool {
        self.state.lock_unpoisoned().dialogue.is_early(id)
    }

    /// Executes the actions of the state machine.
    pub(crate) fn apply(self: &Arc<Self>, state: &mut InnerState, actions: Vec<DialogueAction>) {
        if let Some(after) = &mut state.after_receipt {
            after.actions.extend(actions);
            return;
        }
        let mut actions = VecDeque::from(actions);
        while let Some(action) = actions.pop_front() {
            match action {
                DialogueAction::Deliver(received) => {
                    let last = received.message_type == MessageType::Termination;
                    if state.give_answer(&received) {
                        let bytes = received.bytes();
                        actions.extend(state.dialogue.taken(bytes, self.dialogues.now()));
                    } else {
                        state.queue.push_back(Arc::unwrap_or_clone(received).into());
                    }
                    actions.extend(self.discard(state));
                    if last {
                        self.finish(state, &Error::Ended);
                    }
                }
                DialogueAction::Refuse(received, error) => self.report_later(state, &received, *error),
            }
        }
        self.update_waiting_bytes(state);
        self.changed.notify_waiters();
        if in_runtime() {
            self.start_timer(state);
            self.start_handler(state);
        }
        self.forget(state);
    }

    /// Drops queued messages if there is neither a reader nor a handler.
    fn discard(&self, state: &mut InnerState) -> Vec<DialogueAction> {
        if !state.handled || self.dialogues.handler.is_some() {
            return Vec::new();
        }
        let queue = std::mem::take(&mut state.queue);
        queue.iter().flat_map(|queued| state.dialogue.taken(queued.bytes(), self.dialogues.now())).collect()
    }

    /// Updates the share of this dialogue in the connection's count of waiting bytes.
    fn update_waiting_bytes(&self, state: &mut InnerState) {
        let (waiting, bytes) =
            (&self.peer.link.dialogue_connection.waiting, state.dialogue.bytes() + state.handling_bytes);
        waiting.fetch_add(bytes, Relaxed);
        waiting.fetch_sub(state.counted_bytes, Relaxed);
        state.counted_bytes = bytes;
    }

    /// Ends the dialogue and wakes all waiters.
    fn finish(&self, state: &mut InnerState, why: &Error) {
        state.end_reason.get_or_insert_with(|| why.clone());
        state.session_guard = None;
        for waiters in state.waiters.close(()) {
            waiters.send(&Err(why.clone()));
        }
        self.dialogues.registry.lock_unpoisoned().end(&self.key);
    }

    /// Ends the dialogue, after our termination or with its connection.
    pub(crate) fn end(&self, why: &Error) {
        let mut state = self.state.lock_unpoisoned();
        if let Some(after) = &mut state.after_receipt {
            after.end.get_or_insert_with(|| why.clone());
            return;
        }
        self.finish(&mut state, why);
        self.forget(&mut state);
        self.changed.notify_waiters();
    }

    /// Clears the log of an ended dialogue that no handle or handler will read.
    fn forget(&self, state: &mut InnerState) {
        if state.end_reason.is_some() && state.handled && !state.working && state.queue.is_empty() {
            state.dialogue.log.clear();
        }
    }

    /// Starts a timer for buffered messages whose predecessors are missing.
    fn start_timer(self: &Arc<Self>, state: &mut InnerState) {
        let Some(deadline) = state.dialogue.deadline().filter(|_| !state.timer) else { return };
        state.timer = true;
        let (mut moment, this) = (self.dialogues.moment(deadline), Arc::downgrade(self));
        let ended = self.peer.link.dialogue_connection.ended.clone();
        self.peer.rpc().spawn(async move {
            loop {
                let time = tokio::time::sleep_until(moment);
                if ended.run_until_cancelled(time).await.is_none() {
                    return;
                }
                let Some(inner) = this.upgrade() else { return };
                let mut state = inner.state.lock_unpoisoned();
                let actions = state.dialogue.tick(inner.dialogues.now());
                inner.apply(&mut state, actions);
                match state.dialogue.deadline() {
                    Some(deadline) => moment = inner.dialogues.moment(deadline),
                    None => {
                        state.timer = false;
                        return;
                    }
                }
            }
        });
    }

    /// Starts the handler unless it is running or the queue is empty.
    fn start_handler(self: &Arc<Self>, state: &mut InnerState) {
        if state.handled && !state.working && !state.queue.is_empty() && self.dialogues.handler.is_some() {
            state.working = true;
            self.peer.rpc().spawn(self.clone().run_handler());
        }
    }

    async fn run_handler(self: Arc<Self>) {
        let Some(handler) = self.dialogues.handler.clone() else { return };
        let ended = &self.peer.link.dialogue_connection.ended;
        let grace = self.peer.rpc().limits().cancel_grace;
        loop {
            let received = {
                let mut state = self.state.lock_unpoisoned();
                state.handling_bytes = 0;
                match self.take_queued(&mut state) {
                    Some(received) if !ended.is_cancelled() => {
                        state.handling_bytes = received.bytes();
                        self.update_waiting_bytes(&mut state);
                        received
                    }
                    _ => {
                        state.working = false;
                        self.update_waiting_bytes(&mut state);
                        self.forget(&mut state);
                        return;
                    }
                }
            };
            let dialogue = Dialogue::about(self.clone(), &received);
            let handled = AssertUnwindSafe(handler.message(&dialogue, &received)).catch_unwind();
            match with_cancel_grace(ended, grace, handled).await {
                None | Some(Ok(Ok(()))) => {}
                Some(Ok(Err(error))) => {
                    tracing::warn!(dialogue = %self.id, message = %received.message_id, %error, "a handler failed");
                    self.report(&received, error.into_content()).await;
                }
                Some(Err(_)) => {
                    tracing::error!(dialogue = %self.id, message = %received.message_id, "a handler panicked");
                    let error = ErrorContent::of(Code::ServerError, "the handler panicked").retryable(false);
                    self.report(&received, error).await;
                }
            }
        }
    }

    /// Reports an error about a message that already has its receipt.
    async fn report(self: &Arc<Self>, received: &VerifiedMessage, error: ErrorContent) {
        // Two agents could otherwise exchange errors forever.
        if received.message_type != MessageType::Error {
            self.send_error(MessageDraft::about(received, error.about(&received.raw))).await;
        }
    }

    async fn send_error(self: &Arc<Self>, draft: MessageDraft) {
        if let Err(error) = self.send(draft).await {
            tracing::warn!(dialogue = %self.id, %error, "an error message could not be sent");
        }
    }

    /// Reports an error in a task of its own, unless too many such tasks are waiting.
    fn report_later(
        self: &Arc<Self>,
        state: &mut InnerState,
        received: &VerifiedMessage,
        error: ErrorContent,
    ) {
        self.dialogues.verifier.refuse(received, self.peer.link.dialogue_connection.id, &error);
        if received.message_type == MessageType::Error {
            return;
        }
        if state.error_reports >= self.dialogues.limits.window || !in_runtime() {
            let (message, why) = (&received.message_id, error.error_message);
            tracing::warn!(dialogue = %self.id, %message, why, "a message was dropped without notifying its sender");
            return;
        }
        state.error_reports += 1;
        let inner = self.clone();
        // Only the draft is kept: the message itself is no longer counted.
        let draft = MessageDraft::about(received, error.about(&received.raw));
        self.peer.rpc().spawn(async move {
            inner.send_error(draft).await;
            inner.state.lock_unpoisoned().error_reports -= 1;
        });
    }

    /// Takes the next message from the queue.
    fn take_queued(self: &Arc<Self>, state: &mut InnerState) -> Option<Arc<VerifiedMessage>> {
        loop {
            let queued = state.queue.pop_front()?;
            let actions = state.dialogue.taken(queued.bytes(), self.dialogues.now());
            match actions.is_empty() {
                true => self.update_waiting_bytes(state),
                false => self.apply(state, actions),
            }
            if in_runtime() {
                // The timer does not run while the queue is full.
                self.start_timer(state);
            }
            let Some(received) = queued.read().map(Arc::new) else { continue };
            match received.in_time(self.dialogues.now()) {
                Ok(()) => return Some(received),
                Err(error) => self.report_later(state, &received, *error),
            }
        }
    }

    /// Waits for the next message that no other call waits for.
    pub(crate) async fn next(self: &Arc<Self>) -> Result<Arc<VerifiedMessage>, Error> {
        callbacks::refuse()?;
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            {
                let mut state = self.state.lock_unpoisoned();
                if let Some(received) = self.take_queued(&mut state) {
                    return Ok(received);
                }
                if let Some(reason) = &state.end_reason {
                    return Err(reason.clone());
                }
            }
            changed.await;
        }
    }

    /// Hands further messages to the handler. Without a handler the dialogue is terminated.
    pub(crate) fn hand_over(self: &Arc<Self>) {
        if callbacks::is_inside() && in_runtime() {
            let inner = self.clone();
            return self.peer.rpc().spawn(async move { inner.hand_over() });
        }
        let mut state = self.state.lock_unpoisoned();
        state.handled = true;
        if state.dialogue.is_blank() {
            drop(state);
            return self.leave();
        }
        let actions = self.discard(&mut state);
        self.apply(&mut state, actions);
        if self.dialogues.handler.is_none() && state.end_reason.is_none() && in_runtime() {
            let inner = self.clone();
            let termination = MessageDraft::new(
                MessageType::Termination,
                DialogueContent::from("Nobody listens any more."),
            );
            self.peer.rpc().spawn(async move {
                let _ = inner.send(termination).await;
                inner.end(&Error::Ended);
            });
        }
    }
}

impl Drop for DialogueInner {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.peer.link.dialogue_connection.waiting.fetch_sub(state.counted_bytes, Relaxed);
        // The parents are dropped in a loop: with recursion a long chain of nested dialogues would
        // exhaust the stack.
        let mut parent = self.parent.take().and_then(|parent| parent.inner);
        while let Some(mut inner) = parent.and_then(Arc::into_inner) {
            parent = inner.parent.take().and_then(|parent| parent.inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Exchange;

    #[tokio::test]
    async fn a_long_chain_of_nested_dialogues_is_dropped_with_a_small_stack() {
        let us = Arc::new(Dialogues::new("agent://us").unwrap());
        let (peer, _) = Exchange::new().dialogue(us.clone()).in_memory(Exchange::new());
        let mut last: Option<Arc<DialogueInner>> = None;
        for number in 0..80_000 {
            let parent = last.map(|inner| ParentDialogue {
                session: inner.id.clone(),
                inner: Some(inner),
                message: None,
            });
            let (id, other) = (number.to_string().as_str().into(), AgentUri::from("agent://them"));
            last =
                Some(DialogueInner::new(us.clone(), peer.clone(), id, other, parent, String::new(), false));
        }
        let thread = std::thread::Builder::new().stack_size(64 * 1024);
        thread.spawn(move || drop(last)).unwrap().join().unwrap();
    }

    #[tokio::test]
    async fn no_dialogue_opens_on_a_connection_that_ends() {
        let us = Arc::new(Dialogues::new("agent://us").unwrap());
        let them = Exchange::new().dialogue(Dialogues::new("agent://them").unwrap());
        let (peer, _) = Exchange::new().dialogue(us.clone()).in_memory(them);
        let registry = us.registry.lock_unpoisoned();
        let ended = peer.link.dialogue_connection.ended.clone();
        let opener = std::thread::spawn(move || peer.dialogue("agent://them").map(drop));
        // The dialogue is about to be registered when the connection ends.
        std::thread::sleep(std::time::Duration::from_millis(50));
        ended.cancel();
        drop(registry);
        assert!(matches!(opener.join().unwrap(), Err(Error::Ended)));
    }
}
