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
use super::dialogues::Dialogues;
use super::error::Error;
use super::heard::{Heard, Kept};
use super::rooms::Key;
use super::send::Draft;
use super::state::{Arrival, Event, Track, refused};
use super::waiting::{Answer, answer};
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
pub(crate) struct Above {
    /// The dialogue, if it is held here: the other side knows its name only.
    pub(crate) live: Option<Arc<Live>>,
    pub(crate) session: DialogueId,
    pub(crate) message: Option<DialogueMessageId>,
}

/// One dialogue.
pub(crate) struct Live {
    pub(crate) id: DialogueId,
    key: Key,
    pub(crate) dialogues: Arc<Dialogues>,
    /// The other side, in the session of ACP that carries the dialogue.
    pub(crate) peer: PeerAgent,
    pub(crate) other: AgentUri,
    pub(crate) above: Option<Above>,
    pub(crate) correlation: String,
    pub(crate) inner: Mutex<Inner>,
    /// Something was put into the queue, or the dialogue has ended.
    changed: Notify,
    /// One message leaves at a time, so that steps are taken in the order they are claimed.
    pub(crate) sending: Arc<tokio::sync::Mutex<()>>,
}

pub(crate) struct Inner {
    pub(crate) track: Track,
    /// What keeps the session of ACP known until the dialogue is over.
    held: Option<PeerAgent>,
    /// Those who wait for the answer to a message of ours, whose type stands beside it.
    pub(crate) waiters: HashMap<DialogueMessageId, (MessageType, oneshot::Sender<Answer>)>,
    /// The message of ours that left last, and who hears that the other side has answered it.
    pub(crate) leaving: Option<(DialogueMessageId, oneshot::Sender<()>)>,
    /// What was delivered and nobody waited for.
    pub(crate) queue: VecDeque<Kept>,
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

impl Live {
    pub(crate) fn new(
        dialogues: Arc<Dialogues>,
        peer: PeerAgent,
        id: DialogueId,
        other: AgentUri,
        above: Option<Above>,
        correlation: String,
        handled: bool,
    ) -> Arc<Self> {
        let track = Track::new(dialogues.own().clone(), other.clone(), dialogues.limits.clone());
        Arc::new(Live {
            key: (peer.link.line.id, id.clone()),
            id,
            dialogues,
            peer: peer.released(),
            other,
            above,
            correlation,
            inner: Mutex::new(Inner {
                track,
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
        let mut rooms = lock(&self.dialogues.rooms);
        // The end of a connection is marked before its dialogues are fetched: it would not find this one.
        if self.peer.link.line.ended.is_cancelled() {
            return Err(Error::Ended);
        }
        // Whoever got hold of one of its messages on the way would have the answers.
        if rooms.elsewhere(&self.key).any(|live| live.other == self.other) {
            let text = "this dialogue is held over another connection";
            return Err(Error::Refused(refused(Code::Conflict, text)));
        }
        rooms.add(self.key.clone(), self.clone()).map_err(|_| Error::TooMany(self.dialogues.limits.dialogues))
    }

    /// Gives its place up.
    pub(crate) fn leave(&self) {
        lock(&self.dialogues.rooms).remove(&self.key);
    }

    /// Takes a message of the other side. Called by the reader. Unless the message is refused, `receipt` hears what
    /// became of it before anybody else does: the receipt leaves before all that is said because of it.
    pub(crate) fn arrive(self: &Arc<Self>, heard: Heard, receipt: impl FnOnce(&Arrival)) -> Arrival {
        let mut inner = lock(&self.inner);
        if let Some(over) = inner.over.as_ref().filter(|over| !matches!(over, Error::Ended)) {
            return Arrival::Refused(refused(Code::NotFound, over.to_string()));
        }
        let awaited = inner.awaits(&heard);
        let (all, bytes) = (self.peer.link.line.waiting.load(Relaxed), heard.raw.get().len());
        let limits = &self.dialogues.limits;
        let full = all > 0
            && all.saturating_add(bytes) > limits.waiting_bytes
            && inner.counted.saturating_add(bytes) > limits.waiting_bytes / limits.dialogues.max(1);
        if full && !awaited {
            let text = "too much waits to be handled; try again later";
            return Arrival::Refused(refused(Code::Overloaded, text));
        }
        let parent = heard.parent_message_id.clone();
        let (arrival, events) = inner.track.arrive(heard, awaited, self.dialogues.now());
        if !matches!(arrival, Arrival::Refused(_)) {
            // The lock is held so that nothing overtakes the receipt.
            callbacks::call("a Tap", || receipt(&arrival));
            if let Some((_, answered)) = inner.leaving.take_if(|(id, _)| parent.as_ref() == Some(id)) {
                let _ = answered.send(());
            }
        }
        self.apply(&mut inner, events);
        // One that we opened and hold is ours to give up.
        if inner.handled && inner.track.is_blank() {
            drop(inner);
            self.leave();
        }
        arrival
    }

    /// Does what the state says is to be done.
    pub(crate) fn apply(self: &Arc<Self>, inner: &mut Inner, events: Vec<Event>) {
        let mut events = VecDeque::from(events);
        while let Some(event) = events.pop_front() {
            match event {
                Event::Deliver(heard) => {
                    let last = heard.message_type == MessageType::Termination;
                    match inner.waiter(&heard) {
                        Some(waiter) => match waiter.send(answer(&heard)) {
                            Ok(()) => {
                                let bytes = heard.raw.get().len();
                                events.extend(inner.track.taken(bytes, self.dialogues.now()));
                            }
                            Err(_) => inner.queue.push_back(Arc::unwrap_or_clone(heard).into()),
                        },
                        None => inner.queue.push_back(Arc::unwrap_or_clone(heard).into()),
                    }
                    events.extend(self.discard(inner));
                    if last {
                        self.over(inner, &Error::Ended);
                    }
                }
                Event::Refuse(heard, error) => self.tell_later(inner, &heard, *error),
            }
        }
        self.count(inner);
        self.changed.notify_waiters();
        if in_runtime() {
            self.watch(inner);
            self.work(inner);
        }
        self.forget(inner);
    }

    /// Drops what nobody will take any more.
    fn discard(&self, inner: &mut Inner) -> Vec<Event> {
        if !inner.handled || self.dialogues.handler.is_some() {
            return Vec::new();
        }
        let queue = std::mem::take(&mut inner.queue);
        queue.iter().flat_map(|kept| inner.track.taken(kept.raw().len(), self.dialogues.now())).collect()
    }

    /// Counts what waits here among what waits over the connection.
    fn count(&self, inner: &mut Inner) {
        let (waiting, bytes) = (&self.peer.link.line.waiting, inner.track.bytes() + inner.handling);
        waiting.fetch_add(bytes, Relaxed);
        waiting.fetch_sub(inner.counted, Relaxed);
        inner.counted = bytes;
    }

    /// Nothing more will be said.
    fn over(&self, inner: &mut Inner, why: &Error) {
        inner.over.get_or_insert_with(|| why.clone());
        inner.held = None;
        for (_, (_, waiter)) in inner.waiters.drain() {
            let _ = waiter.send(Err(why.clone()));
        }
        lock(&self.dialogues.rooms).end(&self.key);
    }

    /// The dialogue has ended, by a termination of ours or with its connection.
    pub(crate) fn end(&self, why: &Error) {
        let mut inner = lock(&self.inner);
        self.over(&mut inner, why);
        self.forget(&mut inner);
        self.changed.notify_waiters();
    }

    /// Forgets what was said in a dialogue that has ended, unless somebody is to look at it.
    fn forget(&self, inner: &mut Inner) {
        if inner.over.is_some() && inner.handled && !inner.working && inner.queue.is_empty() {
            inner.track.lineage.clear();
        }
    }

    /// Looks again when what came early has waited long enough.
    fn watch(self: &Arc<Self>, inner: &mut Inner) {
        let Some(deadline) = inner.track.deadline().filter(|_| !inner.timer) else { return };
        inner.timer = true;
        let (mut moment, this) = (self.dialogues.moment(deadline), Arc::downgrade(self));
        let ended = self.peer.link.line.ended.clone();
        self.peer.rpc().spawn(async move {
            loop {
                let time = tokio::time::sleep_until(moment);
                if ended.run_until_cancelled(time).await.is_none() {
                    return;
                }
                let Some(live) = this.upgrade() else { return };
                let mut inner = lock(&live.inner);
                let events = inner.track.tick(live.dialogues.now());
                live.apply(&mut inner, events);
                match inner.track.deadline() {
                    Some(deadline) => moment = live.dialogues.moment(deadline),
                    None => {
                        inner.timer = false;
                        return;
                    }
                }
            }
        });
    }

    /// Starts the handler unless it is at work or there is nothing to do.
    fn work(self: &Arc<Self>, inner: &mut Inner) {
        if inner.handled && !inner.working && !inner.queue.is_empty() && self.dialogues.handler.is_some() {
            inner.working = true;
            self.peer.rpc().spawn(self.clone().handle());
        }
    }

    async fn handle(self: Arc<Self>) {
        let Some(handler) = self.dialogues.handler.clone() else { return };
        let ended = &self.peer.link.line.ended;
        let grace = self.peer.rpc().limits().cancel_grace;
        loop {
            let heard = {
                let mut inner = lock(&self.inner);
                inner.handling = 0;
                match self.take(&mut inner) {
                    Some(heard) if !ended.is_cancelled() => {
                        inner.handling = heard.raw.get().len();
                        self.count(&mut inner);
                        heard
                    }
                    _ => {
                        inner.working = false;
                        self.count(&mut inner);
                        self.forget(&mut inner);
                        return;
                    }
                }
            };
            let dialogue = Dialogue::about(self.clone(), &heard);
            let handled = AssertUnwindSafe(handler.message(&dialogue, &heard)).catch_unwind();
            match with_cancel_grace(ended, grace, handled).await {
                None | Some(Ok(Ok(()))) => {}
                Some(Ok(Err(error))) => {
                    tracing::warn!(dialogue = %self.id, message = %heard.message_id, %error, "a handler failed");
                    self.tell(&heard, error.into_content()).await;
                }
                Some(Err(_)) => {
                    tracing::error!(dialogue = %self.id, message = %heard.message_id, "a handler panicked");
                    let error = ErrorContent::of(Code::ServerError, "the handler panicked").retryable(false);
                    self.tell(&heard, error).await;
                }
            }
        }
    }

    /// Tells the other side what is wrong with a message that it has a receipt for.
    async fn tell(self: &Arc<Self>, heard: &Heard, error: ErrorContent) {
        // Two agents could go on like that for ever.
        if heard.message_type != MessageType::Error {
            self.say_error(Draft::about(heard, error.about(&heard.raw))).await;
        }
    }

    async fn say_error(self: &Arc<Self>, draft: Draft) {
        if let Err(error) = self.say(draft).await {
            tracing::warn!(dialogue = %self.id, %error, "an error message could not be sent");
        }
    }

    /// Tells it in a task, unless as many wait for their turn as may wait to be heard.
    fn tell_later(self: &Arc<Self>, inner: &mut Inner, heard: &Heard, error: ErrorContent) {
        if heard.message_type == MessageType::Error {
            return;
        }
        if inner.telling >= self.dialogues.limits.window || !in_runtime() {
            let (message, why) = (&heard.message_id, error.error_message);
            tracing::warn!(dialogue = %self.id, %message, why, "a message was dropped, and its sender is not told");
            return;
        }
        inner.telling += 1;
        let live = self.clone();
        // The message itself does not wait, as nobody counts it any more.
        let draft = Draft::about(heard, error.about(&heard.raw));
        self.peer.rpc().spawn(async move {
            live.say_error(draft).await;
            lock(&live.inner).telling -= 1;
        });
    }

    /// The next message in the queue.
    fn take(self: &Arc<Self>, inner: &mut Inner) -> Option<Arc<Heard>> {
        loop {
            let kept = inner.queue.pop_front()?;
            let events = inner.track.taken(kept.raw().len(), self.dialogues.now());
            match events.is_empty() {
                true => self.count(inner),
                false => self.apply(inner, events),
            }
            if in_runtime() {
                // While there was no room, nobody looked whether what came early has waited long enough.
                self.watch(inner);
            }
            let Some(heard) = kept.read().map(Arc::new) else { continue };
            match heard.in_time(self.dialogues.now()) {
                Ok(()) => return Some(heard),
                Err(error) => self.tell_later(inner, &heard, *error),
            }
        }
    }

    /// Waits for the next message that nobody else waits for.
    pub(crate) async fn next(self: &Arc<Self>) -> Result<Arc<Heard>, Error> {
        callbacks::refuse()?;
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            {
                let mut inner = lock(&self.inner);
                if let Some(heard) = self.take(&mut inner) {
                    return Ok(heard);
                }
                if let Some(over) = &inner.over {
                    return Err(over.clone());
                }
            }
            changed.await;
        }
    }

    /// From now on the handler takes what arrives. Where there is none, the dialogue ends.
    pub(crate) fn hand_over(self: &Arc<Self>) {
        if callbacks::is_inside() && in_runtime() {
            let live = self.clone();
            return self.peer.rpc().spawn(async move { live.hand_over() });
        }
        let mut inner = lock(&self.inner);
        inner.handled = true;
        if inner.track.is_blank() {
            drop(inner);
            return self.leave();
        }
        let events = self.discard(&mut inner);
        self.apply(&mut inner, events);
        if self.dialogues.handler.is_none() && inner.over.is_none() && in_runtime() {
            let live = self.clone();
            let goodbye =
                Draft::new(MessageType::Termination, DialogueContent::from("Nobody listens any more."));
            self.peer.rpc().spawn(async move {
                let _ = live.say(goodbye).await;
                live.end(&Error::Ended);
            });
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        let inner = self.inner.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.peer.link.line.waiting.fetch_sub(inner.counted, Relaxed);
        // One after the other: a long chain of nested dialogues would exhaust the stack if each dropped its parent.
        let mut above = self.above.take().and_then(|above| above.live);
        while let Some(mut live) = above.and_then(Arc::into_inner) {
            above = live.above.take().and_then(|above| above.live);
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
        let mut last: Option<Arc<Live>> = None;
        for number in 0..80_000 {
            let above = last.map(|live| Above { session: live.id.clone(), live: Some(live), message: None });
            let (id, other) = (number.to_string().as_str().into(), AgentUri::from("agent://them"));
            last = Some(Live::new(us.clone(), peer.clone(), id, other, above, String::new(), false));
        }
        let thread = std::thread::Builder::new().stack_size(64 * 1024);
        thread.spawn(move || drop(last)).unwrap().join().unwrap();
    }

    #[tokio::test]
    async fn nobody_enters_a_connection_that_ends() {
        let us = Arc::new(Dialogues::new("agent://us").unwrap());
        let them = Exchange::new().dialogue(Dialogues::new("agent://them").unwrap());
        let (peer, _) = Exchange::new().dialogue(us.clone()).in_memory(them);
        let rooms = lock(&us.rooms);
        let ended = peer.link.line.ended.clone();
        let opener = std::thread::spawn(move || peer.dialogue("agent://them").map(drop));
        // It is on its way in when the connection ends.
        std::thread::sleep(std::time::Duration::from_millis(50));
        ended.cancel();
        drop(rooms);
        assert!(matches!(opener.join().unwrap(), Err(Error::Ended)));
    }
}
