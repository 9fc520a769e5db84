//! Saying something: a message is made, signed, sent until it is taken, and helped if it is not.

use std::sync::Arc;

use duologue_schema::Json;
use duologue_schema::dialogue::{
    DialogueAct, DialogueContent, DialogueErrorCode as Code, DialogueMessage, DialogueMessageId,
    DialogueMetadata, DialogueRequest, DialogueResponse, ErrorContent, MessageType, Receipt,
};
use tokio::sync::oneshot;

use super::callbacks;
use super::error::Error;
use super::handler::UndeliveredMessage;
use super::inner::{DialogueInner, new_id, timestamp};
use super::replies::ReplyWaiter;
use super::retry::{self, RetryDecision};
use crate::lock::lock;

/// What is to be said, before it has its place in the dialogue.
#[derive(Clone)]
pub(crate) struct MessageDraft {
    pub(crate) kind: MessageType,
    /// The messages it may be an answer to: it answers the first that it can.
    pub(crate) parents: Vec<DialogueMessageId>,
    pub(crate) act: Option<DialogueAct>,
    pub(crate) content: DialogueContent,
    pub(crate) metadata: DialogueMetadata,
    /// Whether somebody waits for an answer.
    pub(crate) asks: bool,
}

impl MessageDraft {
    pub(crate) fn new(kind: MessageType, content: DialogueContent) -> Self {
        let act = act_of(&kind);
        MessageDraft {
            kind,
            parents: Vec::new(),
            act,
            content,
            metadata: DialogueMetadata::new(),
            asks: false,
        }
    }

    /// An error about a message.
    pub(crate) fn about(message: &DialogueMessage, error: ErrorContent) -> Self {
        let parents = vec![message.message_id.clone()];
        MessageDraft { parents, ..MessageDraft::new(MessageType::Error, error.into()) }
    }
}

/// What is usually meant by a message of a type.
fn act_of(kind: &MessageType) -> Option<DialogueAct> {
    use MessageType as M;
    Some(match kind {
        M::Request => DialogueAct::RequestAction,
        M::Query | M::Clarify => DialogueAct::QuestionRef,
        M::Response | M::Inform | M::Update => DialogueAct::InformRef,
        M::Propose => DialogueAct::Propose,
        M::Accept => DialogueAct::Accept,
        M::Reject => DialogueAct::Reject,
        M::Termination => DialogueAct::Closing,
        _ => return None,
    })
}

/// A message that was said.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SentMessage {
    /// The message.
    pub message: Arc<DialogueMessage>,
    /// The other side's receipt, or one made here because it has answered before it gave any. Without one the
    /// message did not get through, and the fallback has helped; or both sides have ended the dialogue at the same
    /// time.
    pub receipt: Option<Receipt>,
    /// What the fallback answered.
    pub fallback: Option<DialogueMessage>,
}

/// A message that is to leave.
struct OutgoingMessage {
    message: Arc<DialogueMessage>,
    json: Json,
    /// For who waits for the answer.
    waiter: Option<ReplyWaiter>,
    /// Resolves when the other side answers.
    answered: oneshot::Receiver<()>,
}

impl DialogueInner {
    /// Says something and waits for the receipt; the waiter for the answer comes with it if one was asked for.
    pub(crate) async fn say(
        self: &Arc<Self>,
        draft: MessageDraft,
    ) -> Result<(SentMessage, Option<ReplyWaiter>), Error> {
        if !self.peer.offers().dialogue {
            return Err(Error::NotSupported);
        }
        callbacks::refuse()?;
        let turn = self.sending.clone().lock_owned().await;
        let OutgoingMessage { message, json, waiter, answered } = self.write(draft)?;
        // It has its step, so it is seen through even if nobody waits for it any more.
        let (done, outcome) = oneshot::channel();
        self.peer.rpc().spawn({
            let (inner, message) = (self.clone(), message.clone());
            async move {
                let outcome = inner.deliver(&message, json, answered).await;
                drop(turn);
                let _ = done.send(outcome);
            }
        });
        let error = match outcome.await.unwrap_or(Err(Error::Ended)) {
            Ok(receipt) => return Ok((SentMessage { message, receipt, fallback: None }, waiter)),
            Err(error) => error,
        };
        let helper =
            self.dialogues.fallback.as_ref().filter(|_| retry::decide(&error) != RetryDecision::Fail);
        let Some(helper) = helper else { return Err(error) };
        let undelivered = UndeliveredMessage { message: (*message).clone(), error: error.clone() };
        let fallback = helper(undelivered).await.ok_or(error)?;
        Ok((SentMessage { message, receipt: None, fallback: Some(fallback) }, waiter))
    }

    /// Sends a message and keeps the state in step with what becomes of it.
    async fn deliver(
        self: &Arc<Self>,
        message: &DialogueMessage,
        json: Json,
        answered: oneshot::Receiver<()>,
    ) -> Result<Option<Receipt>, Error> {
        let outcome = tokio::select! {
            biased;
            outcome = self.send(message, json) => outcome,
            // Who answers a message has it.
            Ok(()) = answered => Ok(Receipt::new(message.message_id.clone(), message.session_id.clone())),
        };
        let error = match outcome {
            Ok(receipt) => {
                self.taken(message);
                return Ok(Some(receipt));
            }
            Err(error) => error,
        };
        if self.undone(message, &error) && message.message_type == MessageType::Termination {
            return Ok(None);
        }
        tracing::warn!(dialogue = %self.id, message = %message.message_id, %error, "a message did not get through");
        Err(error)
    }

    /// Makes the message that a draft becomes at this point of the dialogue.
    fn write(self: &Arc<Self>, draft: MessageDraft) -> Result<OutgoingMessage, Error> {
        let MessageDraft { kind, parents, act, mut content, mut metadata, asks } = draft;
        let (parent, step) = {
            let state = lock(&self.state);
            let fits = |id: &&DialogueMessageId| state.dialogue.may_say(&kind, Some(id)).is_ok();
            let parent = parents.iter().find(fits).or(parents.first()).cloned();
            state.dialogue.may_say(&kind, parent.as_ref())?;
            // An answer is about what it answers, unless it says otherwise.
            if content.domain.is_none()
                && content.task.is_none()
                && let Some(parent) = parent.as_ref().and_then(|id| state.dialogue.log.message(id))
            {
                content.domain.clone_from(&parent.content.domain);
                content.task.clone_from(&parent.content.task);
            }
            (parent, state.dialogue.next_step())
        };
        metadata.correlation_id.get_or_insert_with(|| self.correlation.clone());
        if let Some(parent) = &self.parent {
            metadata.parent_session_id = Some(parent.session.clone());
            metadata.parent_message_id.clone_from(&parent.message);
        }
        let own = self.dialogues.own().clone();
        let mut message =
            DialogueMessage::new(new_id(), self.id.clone(), own, self.other.clone(), timestamp(), step, kind)
                .content(content)
                .metadata(metadata);
        message.parent_message_id = parent;
        message.dialogue_act = act;
        // Forms and keys are the user's code, which may look at this dialogue: no lock is held.
        self.dialogues.parameters.check(&message)?;
        super::beliefs::check(&message)?;
        let json = self.dialogues.write(&message)?;
        let message = Arc::new(message);
        let mut state = lock(&self.state);
        // A message that has arrived meanwhile may have the same step: the two have crossed. It may also have ended
        // the dialogue.
        state.dialogue.may_say(&message.message_type, message.parent_message_id.as_ref())?;
        let waiter = asks.then(|| self.wait(&mut state, &message));
        state.dialogue.say(&message, &json);
        let (sender, answered) = oneshot::channel();
        state.leaving = Some((message.message_id.clone(), sender));
        Ok(OutgoingMessage { message, json, waiter, answered })
    }

    /// Sends a message until it is taken or has been sent often enough.
    async fn send(&self, message: &DialogueMessage, json: Json) -> Result<Receipt, Error> {
        let session = self.peer.session().cloned().ok_or(Error::NoSession)?;
        let request = DialogueRequest::new(session, json);
        let mut failures = 0;
        loop {
            // Detached: an answer that comes before the receipt must not withdraw what it answers.
            let call = self.peer.rpc().request(&request).detach().timeout(self.dialogues.limits.receipt);
            let error =
                match call.await.map_err(Error::Connection).and_then(|response| receipt(response, message)) {
                    Ok(receipt) => return Ok(receipt),
                    Err(error) => error,
                };
            failures += 1;
            let pause = match retry::decide(&error) {
                RetryDecision::Retry => self.dialogues.backoff.pause(failures, fastrand::f64()),
                RetryDecision::Fallback | RetryDecision::Fail => None,
            };
            let Some(pause) = pause else { return Err(error) };
            tracing::info!(
                dialogue = %self.id, message = %message.message_id, %error, ?pause, failures,
                "a message is sent again"
            );
            let ended = self.peer.link.dialogue_connection.ended.cancelled();
            // Whoever closes the connection does not wait for us.
            let _ = tokio::time::timeout(pause, ended).await;
        }
    }

    /// The other side has taken a message of ours.
    fn taken(self: &Arc<Self>, message: &DialogueMessage) {
        let mut state = lock(&self.state);
        let events = state.dialogue.receipted(message, self.dialogues.now());
        self.apply(&mut state, events);
        drop(state);
        if message.message_type == MessageType::Termination {
            self.end(&Error::Ended);
        }
    }

    /// A message of ours was not taken, or nobody knows; says whether the dialogue has ended meanwhile.
    fn undone(&self, message: &DialogueMessage, error: &Error) -> bool {
        let mut state = lock(&self.state);
        let unknown = matches!(
            error,
            Error::Connection(duologue_rpc::Error::Timeout { .. } | duologue_rpc::Error::Closed(_))
        );
        if !unknown {
            state.dialogue.refused(message);
        }
        matches!(state.over, Some(Error::Ended))
    }
}

/// The receipt in the answer to a message, or why there is none.
fn receipt(response: DialogueResponse, message: &DialogueMessage) -> Result<Receipt, Error> {
    let names = |receipt: &Receipt| {
        receipt.message_id == message.message_id && receipt.session_id == message.session_id
    };
    let content = match (response.receipt, response.error) {
        (Some(receipt), None) if names(&receipt) => return Ok(receipt),
        (None, Some(error)) => {
            error.parse::<DialogueMessage>().ok().and_then(|message| message.content.error())
        }
        _ => None,
    };
    let unnamed = || {
        let text = "the answer is neither a receipt for the message nor an error";
        ErrorContent::of(Code::ServerError, text).retryable(false)
    };
    Err(Error::Response(Box::new(content.unwrap_or_else(unnamed))))
}
