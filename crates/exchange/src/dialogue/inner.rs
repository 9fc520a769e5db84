//! A dialogue on its connection: what arrives finds who waits for it, what is said finds its way.

use crate::lock::lock;
use std::collections::{HashMap, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};

use duologue_rpc::with_cancel_grace;
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
use super::replies::{DialogueReply, answer};
use super::send::MessageDraft;
use super::state::{Arrival, DialogueAction, DialogueState, refused};
use crate::PeerAgent;

/// Whether there can be tasks: a handle may be dropped after its runtime.
pub(crate) fn in_runtime() -> bool {
    tokio::runtime::Handle::try_current().is_ok()
}

/// A random id.
pub(crate) fn new_id() -> String {
    uuid::Uuid::new_v4().to_string()
}

/// Now, as messages have it.
pub(crate) fn timestamp() -> String {
    format!("{:.3}", jiff::Timestamp::now())
}

/// Within which dialogue another one was opened.
#[derive(Clone)]
pub(crate) struct ParentDialogue {
    /// The dialogue, if it is held here: the other side knows its name only.
    pub(crate) inner: Option<Arc<DialogueInner>>,
    pub(crate) session: DialogueId,
    pub(crate) message: Option<DialogueMessageId>,
}

/// One dialogue.
pub(crate) struct DialogueInner {
    pub(crate) id: DialogueId,
    key: DialogueKey,
    pub(crate) dialogues: Arc<Dialogues>,
    /// The other side, in the session of ACP that carries the dialogue.
    pub(crate) peer: PeerAgent,
    pub(crate) other: AgentUri,
    pub(crate) parent: Option<ParentDialogue>,
    pub(crate) correlation: String,
    pub(crate) state: Mutex<InnerState>,
    /// Something was put into the queue, or the dialogue has ended.
    changed: Notify,
    /// One message leaves at a time, so that steps are taken in the order they are claimed.
    pub(crate) sending: Arc<tokio::sync::Mutex<()>>,
}

pub(crate) struct InnerState {
    pub(crate) dialogue: DialogueState,
    /// What keeps the session of ACP known until the dialogue is over.
    held: Option<PeerAgent>,
    /// Those who wait for the answer to a message of ours, whose type stands beside it.
    pub(crate) waiters: HashMap<DialogueMessageId, (MessageType, oneshot::Sender<DialogueReply>)>,
    /// The message of ours that left last, and who hears that the other side has answered it.
    pub(crate) leaving: Option<(DialogueMessageId, oneshot::Sender<()>)>,
    /// What was delivered and nobody waited for.
    pub(crate) queue: VecDeque<QueuedMessage>,
    /// Why nothing more will come.
    pub(crate) over: Option<Error>,
    /// Whether the handler takes from the queue, and not a [`Dialogue`] that we opened.
    handled: bool,
    working: bool,
    /// The bytes of the message that the handler is at work on.
    handling: usize,
    timer: bool,
    /// How many tasks tell the other side that what it was given a receipt for does not fit.
    telling: usize,
    /// What of the bytes that wait over the connection is counted for this dialogue.
    counted: usize,
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
                held: Some(peer),
                waiters: HashMap::new(),
                leaving: None,
                queue: VecDeque::new(),
                over: None,
                handled,
                working: false,
                handling: 0,
                timer: false,
                telling: 0,
                counted: 0,
            }),
            changed: Notify::new(),
            sending: Arc::default(),
        })
    }

    /// Takes its place among the dialogues of the agent.
    pub(crate) fn enter(self: &Arc<Self>) -> Result<(), Error> {
        let mut registry = lock(&self.dialogues.registry);
        // The end of a connection is marked before its dialogues are fetched: it would not find this one.
        if self.peer.link.dialogue_connection.ended.is_cancelled() {
            return Err(Error::Ended);
        }
        // Whoever got hold of one of its messages on the way would have the answers.
        if registry.elsewhere(&self.key).any(|inner| inner.other == self.other) {
            let text = "this dialogue is held over another connection";
            return Err(Error::Response(refused(Code::Conflict, text)));
        }
        registry
            .add(self.key.clone(), self.clone())
            .map_err(|_| Error::TooMany(self.dialogues.limits.dialogues))
    }

    /// Gives its place up.
    pub(crate) fn leave(&self) {
        lock(&self.dialogues.registry).remove(&self.key);
    }

    /// Takes a message of the other side. Called by the reader. Unless the message is refused, `receipt` hears what
    /// became of it before anybody else does: the receipt leaves before all that is said because of it.
    pub(crate) fn arrive(
        self: &Arc<Self>,
        received: VerifiedMessage,
        receipt: impl FnOnce(&Arrival),
    ) -> Arrival {
        let mut state = lock(&self.state);
        if let Some(over) = state.over.as_ref().filter(|over| !matches!(over, Error::Ended)) {
            return Arrival::Refused(refused(Code::NotFound, over.to_string()));
        }
        let awaited = state.awaits(&received);
        let (all, bytes) =
            (self.peer.link.dialogue_connection.waiting.load(Relaxed), received.raw.get().len());
        let limits = &self.dialogues.limits;
        let full = all > 0
            && all.saturating_add(bytes) > limits.waiting_bytes
            && state.counted.saturating_add(bytes) > limits.waiting_bytes / limits.dialogues.max(1);
        if full && !awaited {
            let text = "too much waits to be handled; try again later";
            return Arrival::Refused(refused(Code::Overloaded, text));
        }
        let parent = received.parent_message_id.clone();
        let (arrival, events) = state.dialogue.arrive(received, awaited, self.dialogues.now());
        if !matches!(arrival, Arrival::Refused(_)) {
            // The lock is held so that nothing overtakes the receipt.
            callbacks::call("a Tap", || receipt(&arrival));
            if let Some((_, answered)) = state.leaving.take_if(|(id, _)| parent.as_ref() == Some(id)) {
                let _ = answered.send(());
            }
        }
        self.apply(&mut state, events);
        // One that we opened and hold is ours to give up.
        if state.handled && state.dialogue.is_blank() {
            drop(state);
            self.leave();
        }
        arrival
    }

    /// Does what the state says is to be done.
    pub(crate) fn apply(self: &Arc<Self>, state: &mut InnerState, events: Vec<DialogueAction>) {
        let mut events = VecDeque::from(events);
        while let Some(event) = events.pop_front() {
            match event {
                DialogueAction::Deliver(received) => {
                    let last = received.message_type == MessageType::Termination;
                    match state.waiter(&received) {
                        Some(waiter) => match waiter.send(answer(&received)) {
                            Ok(()) => {
                                let bytes = received.raw.get().len();
                                events.extend(state.dialogue.taken(bytes, self.dialogues.now()));
                            }
                            Err(_) => state.queue.push_back(Arc::unwrap_or_clone(received).into()),
                        },
                        None => state.queue.push_back(Arc::unwrap_or_clone(received).into()),
                    }
                    events.extend(self.discard(state));
                    if last {
                        self.over(state, &Error::Ended);
                    }
                }
                DialogueAction::Refuse(received, error) => self.tell_later(state, &received, *error),
            }
        }
        self.count(state);
        self.changed.notify_waiters();
        if in_runtime() {
            self.watch(state);
            self.work(state);
        }
        self.forget(state);
    }

    /// Drops what nobody will take any more.
    fn discard(&self, state: &mut InnerState) -> Vec<DialogueAction> {
        if !state.handled || self.dialogues.handler.is_some() {
            return Vec::new();
        }
        let queue = std::mem::take(&mut state.queue);
        queue
            .iter()
            .flat_map(|queued| state.dialogue.taken(queued.raw().len(), self.dialogues.now()))
            .collect()
    }

    /// Counts what waits here among what waits over the connection.
    fn count(&self, state: &mut InnerState) {
        let (waiting, bytes) =
            (&self.peer.link.dialogue_connection.waiting, state.dialogue.bytes() + state.handling);
        waiting.fetch_add(bytes, Relaxed);
        waiting.fetch_sub(state.counted, Relaxed);
        state.counted = bytes;
    }

    /// Nothing more will be said.
    fn over(&self, state: &mut InnerState, why: &Error) {
        state.over.get_or_insert_with(|| why.clone());
        state.held = None;
        for (_, (_, waiter)) in state.waiters.drain() {
            let _ = waiter.send(Err(why.clone()));
        }
        lock(&self.dialogues.registry).end(&self.key);
    }

    /// The dialogue has ended, by a termination of ours or with its connection.
    pub(crate) fn end(&self, why: &Error) {
        let mut state = lock(&self.state);
        self.over(&mut state, why);
        self.forget(&mut state);
        self.changed.notify_waiters();
    }

    /// Forgets what was said in a dialogue that has ended, unless somebody is to look at it.
    fn forget(&self, state: &mut InnerState) {
        if state.over.is_some() && state.handled && !state.working && state.queue.is_empty() {
            state.dialogue.log.clear();
        }
    }

    /// Looks again when what came early has waited long enough.
    fn watch(self: &Arc<Self>, state: &mut InnerState) {
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
                let mut state = lock(&inner.state);
                let events = state.dialogue.tick(inner.dialogues.now());
                inner.apply(&mut state, events);
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

    /// Starts the handler unless it is at work or there is nothing to do.
    fn work(self: &Arc<Self>, state: &mut InnerState) {
        if state.handled && !state.working && !state.queue.is_empty() && self.dialogues.handler.is_some() {
            state.working = true;
            self.peer.rpc().spawn(self.clone().handle());
        }
    }

    async fn handle(self: Arc<Self>) {
        let Some(handler) = self.dialogues.handler.clone() else { return };
        let ended = &self.peer.link.dialogue_connection.ended;
        let grace = self.peer.rpc().limits().cancel_grace;
        loop {
            let received = {
                let mut state = lock(&self.state);
                state.handling = 0;
                match self.take(&mut state) {
                    Some(received) if !ended.is_cancelled() => {
                        state.handling = received.raw.get().len();
                        self.count(&mut state);
                        received
                    }
                    _ => {
                        state.working = false;
                        self.count(&mut state);
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
                    self.tell(&received, error.into_content()).await;
                }
                Some(Err(_)) => {
                    tracing::error!(dialogue = %self.id, message = %received.message_id, "a handler panicked");
                    let error = ErrorContent::of(Code::ServerError, "the handler panicked").retryable(false);
                    self.tell(&received, error).await;
                }
            }
        }
    }

    /// Tells the other side what is wrong with a message that it has a receipt for.
    async fn tell(self: &Arc<Self>, received: &VerifiedMessage, error: ErrorContent) {
        // Two agents could go on like that for ever.
        if received.message_type != MessageType::Error {
            self.say_error(MessageDraft::about(received, error.about(&received.raw))).await;
        }
    }

    async fn say_error(self: &Arc<Self>, draft: MessageDraft) {
        if let Err(error) = self.say(draft).await {
            tracing::warn!(dialogue = %self.id, %error, "an error message could not be sent");
        }
    }

    /// Tells it in a task, unless as many wait for their turn as may wait to be heard.
    fn tell_later(self: &Arc<Self>, state: &mut InnerState, received: &VerifiedMessage, error: ErrorContent) {
        if received.message_type == MessageType::Error {
            return;
        }
        if state.telling >= self.dialogues.limits.window || !in_runtime() {
            let (message, why) = (&received.message_id, error.error_message);
            tracing::warn!(dialogue = %self.id, %message, why, "a message was dropped, and its sender is not told");
            return;
        }
        state.telling += 1;
        let inner = self.clone();
        // The message itself does not wait, as nobody counts it any more.
        let draft = MessageDraft::about(received, error.about(&received.raw));
        self.peer.rpc().spawn(async move {
            inner.say_error(draft).await;
            lock(&inner.state).telling -= 1;
        });
    }

    /// The next message in the queue.
    fn take(self: &Arc<Self>, state: &mut InnerState) -> Option<Arc<VerifiedMessage>> {
        loop {
            let queued = state.queue.pop_front()?;
            let events = state.dialogue.taken(queued.raw().len(), self.dialogues.now());
            match events.is_empty() {
                true => self.count(state),
                false => self.apply(state, events),
            }
            if in_runtime() {
                // While there was no room, nobody looked whether what came early has waited long enough.
                self.watch(state);
            }
            let Some(received) = queued.read().map(Arc::new) else { continue };
            match received.in_time(self.dialogues.now()) {
                Ok(()) => return Some(received),
                Err(error) => self.tell_later(state, &received, *error),
            }
        }
    }

    /// Waits for the next message that nobody else waits for.
    pub(crate) async fn next(self: &Arc<Self>) -> Result<Arc<VerifiedMessage>, Error> {
        callbacks::refuse()?;
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            {
                let mut state = lock(&self.state);
                if let Some(received) = self.take(&mut state) {
                    return Ok(received);
                }
                if let Some(over) = &state.over {
                    return Err(over.clone());
                }
            }
            changed.await;
        }
    }

    /// From now on the handler takes what arrives. Where there is none, the dialogue ends.
    pub(crate) fn hand_over(self: &Arc<Self>) {
        if callbacks::is_inside() && in_runtime() {
            let inner = self.clone();
            return self.peer.rpc().spawn(async move { inner.hand_over() });
        }
        let mut state = lock(&self.state);
        state.handled = true;
        if state.dialogue.is_blank() {
            drop(state);
            return self.leave();
        }
        let events = self.discard(&mut state);
        self.apply(&mut state, events);
        if self.dialogues.handler.is_none() && state.over.is_none() && in_runtime() {
            let inner = self.clone();
            let goodbye = MessageDraft::new(
                MessageType::Termination,
                DialogueContent::from("Nobody listens any more."),
            );
            self.peer.rpc().spawn(async move {
                let _ = inner.say(goodbye).await;
                inner.end(&Error::Ended);
            });
        }
    }
}

impl Drop for DialogueInner {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.peer.link.dialogue_connection.waiting.fetch_sub(state.counted, Relaxed);
        // One after the other: a long chain of nested dialogues would exhaust the stack if each dropped its parent.
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
    async fn nobody_enters_a_connection_that_ends() {
        let us = Arc::new(Dialogues::new("agent://us").unwrap());
        let them = Exchange::new().dialogue(Dialogues::new("agent://them").unwrap());
        let (peer, _) = Exchange::new().dialogue(us.clone()).in_memory(them);
        let registry = lock(&us.registry);
        let ended = peer.link.dialogue_connection.ended.clone();
        let opener = std::thread::spawn(move || peer.dialogue("agent://them").map(drop));
        // It is on its way in when the connection ends.
        std::thread::sleep(std::time::Duration::from_millis(50));
        ended.cancel();
        drop(registry);
        assert!(matches!(opener.join().unwrap(), Err(Error::Ended)));
    }
}
