//! Who waits for the answer to a message of ours, and what they get.

use std::sync::Arc;

use duologue_schema::dialogue::{
    DialogueErrorCode as Code, DialogueMessage, DialogueMessageId, ErrorContent, MessageType,
};
use tokio::sync::oneshot;

use super::callbacks;
use super::error::Error;
use super::heard::{Heard, Kept};
use super::live::{Inner, Live, in_runtime};
use super::moves::settles;
use crate::lock::lock;

pub(crate) type Answer = Result<Arc<Heard>, Error>;

impl Live {
    /// Waits for what settles a message of ours. It is registered before the message leaves.
    pub(crate) fn wait(self: &Arc<Self>, inner: &mut Inner, message: &DialogueMessage) -> Waiter {
        let (sender, receiver) = oneshot::channel();
        inner.waiters.insert(message.message_id.clone(), (message.message_type.clone(), sender));
        Waiter { live: self.clone(), id: message.message_id.clone(), receiver }
    }

    /// Nobody waits for the answer to a message of ours any more. One that has come is a message like any other.
    fn stop_waiting(self: &Arc<Self>, id: &DialogueMessageId, mut receiver: oneshot::Receiver<Answer>) {
        let mut inner = lock(&self.inner);
        inner.waiters.remove(id);
        if let Ok(Ok(heard)) = receiver.try_recv() {
            let kept = Kept::from(Arc::unwrap_or_clone(heard));
            inner.track.returned(kept.raw().len());
            let at = inner.queue.partition_point(|other| other.step < kept.step);
            inner.queue.insert(at, kept);
            self.apply(&mut inner, Vec::new());
        }
    }
}

/// What somebody who waits for `heard` gets.
pub(crate) fn answer(heard: &Arc<Heard>) -> Answer {
    if heard.message_type != MessageType::Error {
        return Ok(heard.clone());
    }
    let unnamed = || ErrorContent::of(Code::ServerError, "the other side names no reason");
    Err(Error::Failed(Box::new(heard.content.error().unwrap_or_else(unnamed))))
}

impl Inner {
    /// Whether somebody waits for this message.
    pub(crate) fn awaits(&self, message: &DialogueMessage) -> bool {
        let asked = message.parent_message_id.as_ref().and_then(|parent| self.waiters.get(parent));
        let kind = &message.message_type;
        asked.is_some_and(|(asked, _)| *kind == MessageType::Error || settles(asked, kind))
    }

    /// Who waits for this message.
    pub(crate) fn waiter(&mut self, message: &DialogueMessage) -> Option<oneshot::Sender<Answer>> {
        let parent = message.parent_message_id.as_ref().filter(|_| self.awaits(message))?;
        self.waiters.remove(parent).map(|(_, waiter)| waiter)
    }
}

/// Waits for the answer to one message. What comes for a waiter that is dropped is a message like any other.
pub(crate) struct Waiter {
    live: Arc<Live>,
    id: DialogueMessageId,
    receiver: oneshot::Receiver<Answer>,
}

impl Waiter {
    pub(crate) async fn answer(mut self) -> Answer {
        (&mut self.receiver).await.unwrap_or(Err(Error::Ended))
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let (live, id) = (self.live.clone(), self.id.clone());
        let receiver = std::mem::replace(&mut self.receiver, oneshot::channel().1);
        if callbacks::is_inside() && in_runtime() {
            self.live.peer.rpc().spawn(async move { live.stop_waiting(&id, receiver) });
        } else {
            live.stop_waiting(&id, receiver);
        }
    }
}
