//! The waiters for answers to our messages.

use std::sync::Arc;

use duologue_schema::dialogue::{
    DialogueErrorCode as Code, DialogueMessage, DialogueMessageId, ErrorContent, MessageType,
};
use tokio::sync::oneshot;

use super::callbacks;
use super::error::Error;
use super::inner::{DialogueInner, InnerState, in_runtime};
use super::message::{QueuedMessage, VerifiedMessage};
use super::moves::settles;
use duologue_rpc::Lock as _;

pub(crate) type DialogueReply = Result<Arc<VerifiedMessage>, Error>;

/// The calls that wait for the answer to one message. A repetition waits beside the first call.
pub(crate) struct ReplyWaiters {
    /// The type of the message.
    sent: MessageType,
    senders: Vec<oneshot::Sender<DialogueReply>>,
}

impl ReplyWaiters {
    /// Sends a reply to all calls. Returns false if none of them waits any longer.
    pub(crate) fn send(self, reply: &DialogueReply) -> bool {
        let sent = self.senders.into_iter().filter_map(|sender| sender.send(reply.clone()).ok());
        sent.count() > 0
    }
}

impl DialogueInner {
    /// Registers a waiter for the answer to a message, before the message is sent.
    pub(crate) fn wait(self: &Arc<Self>, state: &mut InnerState, message: &DialogueMessage) -> ReplyWaiter {
        let (sender, receiver) = oneshot::channel();
        if let Some(waiters) = state.waiters.get_mut(&message.message_id) {
            waiters.senders.push(sender);
        } else {
            let waiters = ReplyWaiters { sent: message.message_type.clone(), senders: vec![sender] };
            // After the end of the dialogue the sender is dropped, and the caller receives `Error::Ended`.
            let _ = state.waiters.insert(message.message_id.clone(), waiters);
        }
        ReplyWaiter { inner: self.clone(), id: message.message_id.clone(), receiver, known: None }
    }

    /// Creates a waiter that has the answer, which was read before.
    pub(crate) fn answered(self: &Arc<Self>, id: &DialogueMessageId, known: VerifiedMessage) -> ReplyWaiter {
        let (_, receiver) = oneshot::channel();
        ReplyWaiter { inner: self.clone(), id: id.clone(), receiver, known: Some(Arc::new(known)) }
    }

    /// Removes a waiter. An answer that it has received is queued like any other message.
    fn stop_waiting(
        self: &Arc<Self>,
        id: &DialogueMessageId,
        mut receiver: oneshot::Receiver<DialogueReply>,
    ) {
        let mut state = self.state.lock_unpoisoned();
        let reply = receiver.try_recv();
        drop(receiver);
        if let Some(waiters) = state.waiters.get_mut(id) {
            waiters.senders.retain(|sender| !sender.is_closed());
        }
        state.waiters.remove_if(id, |waiters| waiters.senders.is_empty());
        if let Ok(Ok(received)) = reply {
            let queued = QueuedMessage::from(Arc::unwrap_or_clone(received));
            state.dialogue.returned(queued.bytes());
            let at = state.queue.partition_point(|other| other.step < queued.step);
            state.queue.insert(at, queued);
            self.apply(&mut state, Vec::new());
        }
    }
}

/// Returns true if a message of the type `kind` ends the wait for an answer to one of the type `sent`.
pub(crate) fn is_answer(sent: &MessageType, kind: &MessageType) -> bool {
    *kind == MessageType::Error || settles(sent, kind)
}

/// Returns the result that a waiter receives for a message.
pub(crate) fn answer(received: &Arc<VerifiedMessage>) -> DialogueReply {
    if received.message_type != MessageType::Error {
        return Ok(received.clone());
    }
    let unnamed = || ErrorContent::of(Code::ServerError, "the other side gave no reason");
    Err(Error::Failed(Box::new(received.content.error().unwrap_or_else(unnamed))))
}

impl InnerState {
    /// Returns true if a call waits for this message.
    pub(crate) fn awaits(&self, message: &DialogueMessage) -> bool {
        let waiter = message.parent_message_id.as_ref().and_then(|parent| self.waiters.get(parent));
        waiter.is_some_and(|waiters| is_answer(&waiters.sent, &message.message_type))
    }

    /// Gives a message to the calls that wait for it. Returns false if there are none.
    pub(crate) fn give_answer(&mut self, message: &Arc<VerifiedMessage>) -> bool {
        let parent = message.parent_message_id.as_ref().filter(|_| self.awaits(message));
        let waiters = parent.and_then(|parent| self.waiters.remove(parent));
        waiters.is_some_and(|waiters| waiters.send(&answer(message)))
    }
}

/// A waiter for the answer to one message. If it is dropped, the answer is delivered like any other
/// message.
pub(crate) struct ReplyWaiter {
    inner: Arc<DialogueInner>,
    id: DialogueMessageId,
    receiver: oneshot::Receiver<DialogueReply>,
    known: Option<Arc<VerifiedMessage>>,
}

impl ReplyWaiter {
    pub(crate) async fn answer(mut self) -> DialogueReply {
        if let Some(known) = self.known.take() {
            return answer(&known);
        }
        (&mut self.receiver).await.unwrap_or(Err(Error::Ended))
    }
}

impl Drop for ReplyWaiter {
    fn drop(&mut self) {
        let (inner, id) = (self.inner.clone(), self.id.clone());
        let receiver = std::mem::replace(&mut self.receiver, oneshot::channel().1);
        if callbacks::is_inside() && in_runtime() {
            self.inner.peer.rpc().spawn(async move { inner.stop_waiting(&id, receiver) });
        } else {
            inner.stop_waiting(&id, receiver);
        }
    }
}
