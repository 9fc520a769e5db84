//! Sending of messages: building, signing, retries and the fallback.

use std::sync::Arc;

use duologue_schema::dialogue::{
    DialogueAct, DialogueContent, DialogueErrorCode as Code, DialogueMessage, DialogueMessageId,
    DialogueMetadata, DialogueRequest, DialogueResponse, ErrorContent, MessageType, Receipt,
};
use duologue_schema::{Json, Meta};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use super::callbacks;
use super::error::Error;
use super::handler::UndeliveredMessage;
use super::inner::{DialogueInner, InnerState, new_id, timestamp};
use super::message::VerifiedMessage;
use super::replies::{ReplyWaiter, is_answer};
use super::retry::{self, RetryDecision};
use super::signature::ParsedSignature;
use crate::envelope::id_cache::Fingerprints;
use duologue_rpc::Lock as _;

/// A message before its step and parent are chosen.
#[derive(Clone)]
pub(crate) struct MessageDraft {
    pub(crate) kind: MessageType,
    /// The messages that it may answer: the first legal one becomes its parent.
    pub(crate) parents: Vec<DialogueMessageId>,
    /// True if the caller chose the message that this one answers, or none.
    pub(crate) parent_set: bool,
    pub(crate) act: Option<DialogueAct>,
    pub(crate) content: DialogueContent,
    pub(crate) metadata: DialogueMetadata,
    /// The id that the caller chose.
    pub(crate) id: Option<DialogueMessageId>,
    /// The `_meta` beside the message.
    pub(crate) meta: Option<Meta>,
    /// True if a call waits for an answer.
    pub(crate) asks: bool,
}

impl MessageDraft {
    pub(crate) fn new(kind: MessageType, content: DialogueContent) -> Self {
        let act = act_of(&kind);
        MessageDraft {
            kind,
            parents: Vec::new(),
            parent_set: false,
            act,
            content,
            metadata: DialogueMetadata::new(),
            id: None,
            meta: None,
            asks: false,
        }
    }

    /// Returns true if a message that was sent has the properties of this draft. Values are compared as
    /// in the canonical form that is signed.
    fn repeats(&self, sent: &DialogueMessage) -> bool {
        let mut content = self.content.clone();
        if content.domain.is_none() && content.task.is_none() {
            // They were copied from the parent.
            content.domain.clone_from(&sent.content.domain);
            content.task.clone_from(&sent.content.task);
        }
        let DialogueMetadata { priority, ttl, ref routing_key, ref correlation_id, .. } = self.metadata;
        let metadata = &sent.metadata;
        // By default both depend on the dialogue, so they are compared if the caller set them.
        let is_parent = !self.parent_set || sent.parent_message_id.as_ref() == self.parents.first();
        let is_correlated = correlation_id.is_none() || *correlation_id == metadata.correlation_id;
        is_parent
            && is_correlated
            && self.kind == sent.message_type
            && self.act == sent.dialogue_act
            && is_same_json(&content, &sent.content)
            && is_same_json(&self.metadata.extra, &metadata.extra)
            && (priority, ttl, routing_key) == (metadata.priority, metadata.ttl, &metadata.routing_key)
    }

    /// Creates an error about a message.
    pub(crate) fn about(message: &DialogueMessage, error: ErrorContent) -> Self {
        let parents = vec![message.message_id.clone()];
        MessageDraft { parents, ..MessageDraft::new(MessageType::Error, error.into()) }
    }
}

/// Returns true if two values have the same JSON form, but for the order of members and the spelling of
/// numbers.
fn is_same_json<T: Serialize>(one: &T, other: &T) -> bool {
    let prints = Fingerprints::default();
    prints.of_json(one) == prints.of_json(other)
}

/// Returns the usual dialogue act of a message type.
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

/// A sent message.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SentMessage {
    /// The message as it was sent, with its signature.
    pub message: Arc<DialogueMessage>,
    /// The receipt of the other side, or one created here if the answer arrived before the receipt.
    /// It is `None` if the message was not delivered and the fallback answered, or if both sides
    /// ended the dialogue at the same time.
    pub receipt: Option<Receipt>,
    /// The `_meta` beside the receipt.
    pub receipt_meta: Option<Meta>,
    /// The answer of the fallback.
    pub fallback: Option<DialogueMessage>,
}

/// The signature of a message's text.
#[derive(Deserialize)]
struct Signed {
    signature: Option<String>,
}

/// A message that is ready to be sent.
struct OutgoingMessage {
    message: Arc<DialogueMessage>,
    json: Json,
    /// The `_meta` beside the message.
    meta: Option<Meta>,
    /// The waiter for the answer, if one was requested.
    waiter: Option<ReplyWaiter>,
    /// Resolves when the other side answers.
    answered: oneshot::Receiver<()>,
}

impl DialogueInner {
    /// Sends a message and waits for the receipt. Returns a waiter for the answer if one was
    /// requested.
    pub(crate) async fn send(
        self: &Arc<Self>,
        draft: MessageDraft,
    ) -> Result<(SentMessage, Option<ReplyWaiter>), Error> {
        if !self.peer.offers().dialogue {
            return Err(Error::NotSupported);
        }
        callbacks::refuse()?;
        let turn = self.sending.clone().lock_owned().await;
        let OutgoingMessage { message, json, meta, waiter, answered } = self.write(draft)?;
        // The message has its step, so it is sent even if the caller is dropped.
        let (done, outcome) = oneshot::channel();
        self.peer.rpc().spawn({
            let (inner, message) = (self.clone(), message.clone());
            async move {
                let outcome = inner.deliver(&message, json, meta, answered).await;
                drop(turn);
                let _ = done.send(outcome);
            }
        });
        let error = match outcome.await.unwrap_or(Err(Error::Ended)) {
            Ok((receipt, receipt_meta)) => {
                return Ok((SentMessage { message, receipt, receipt_meta, fallback: None }, waiter));
            }
            Err(error) => error,
        };
        let helper =
            self.dialogues.fallback.as_ref().filter(|_| retry::decide(&error) != RetryDecision::Fail);
        let Some(helper) = helper else { return Err(error) };
        let undelivered = UndeliveredMessage { message: (*message).clone(), error: error.clone() };
        let fallback = helper(undelivered).await.ok_or(error)?;
        let fallback = Some(fallback);
        Ok((SentMessage { message, receipt: None, receipt_meta: None, fallback }, waiter))
    }

    /// Sends a message and updates the state with the outcome.
    async fn deliver(
        self: &Arc<Self>,
        message: &DialogueMessage,
        json: Json,
        meta: Option<Meta>,
        answered: oneshot::Receiver<()>,
    ) -> Result<(Option<Receipt>, Option<Meta>), Error> {
        let outcome = tokio::select! {
            biased;
            outcome = self.send_until_accepted(message, json, meta) => outcome,
            // An answer implies that the message was delivered.
            Ok(()) = answered => {
                Ok((Receipt::new(message.message_id.clone(), message.session_id.clone()), None))
            }
        };
        let error = match outcome {
            Ok((receipt, meta)) => {
                self.accepted(message);
                return Ok((Some(receipt), meta));
            }
            Err(error) => error,
        };
        if self.is_over(message, &error) {
            let receipt = Receipt::new(message.message_id.clone(), message.session_id.clone());
            return Ok((Some(receipt.duplicate(true)), None));
        }
        if self.not_accepted(message, &error) && message.message_type == MessageType::Termination {
            return Ok((None, None));
        }
        tracing::warn!(dialogue = %self.id, message = %message.message_id, %error, "a message was not delivered");
        Err(error)
    }

    /// Turns a draft into a message with its step and parent.
    fn write(self: &Arc<Self>, draft: MessageDraft) -> Result<OutgoingMessage, Error> {
        if let Some(again) = self.write_again(&draft)? {
            return Ok(again);
        }
        let MessageDraft { kind, parents, parent_set: _, act, mut content, mut metadata, id, meta, asks } =
            draft;
        let id = id.unwrap_or_else(|| new_id().as_str().into());
        let (parent, step) = {
            let state = self.state.lock_unpoisoned();
            let fits = |id: &&DialogueMessageId| state.dialogue.check_move(&kind, Some(id)).is_ok();
            let parent = parents.iter().find(fits).or(parents.first()).cloned();
            state.dialogue.check_move(&kind, parent.as_ref())?;
            // An answer has the domain and task of its parent, unless they are set.
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
            DialogueMessage::new(id, self.id.clone(), own, self.other.clone(), timestamp(), step, kind)
                .content(content)
                .metadata(metadata);
        message.parent_message_id = parent;
        message.dialogue_act = act;
        // Parameter types and key stores are user code that may read this dialogue, so no lock is
        // taken.
        message.check()?;
        self.dialogues.parameters.check(&message)?;
        super::beliefs::check(&message)?;
        let json = self.dialogues.write(&message)?;
        message.signature = json.parse::<Signed>().ok().and_then(|signed| signed.signature);
        let message = Arc::new(message);
        let mut state = self.state.lock_unpoisoned();
        // A message that arrived meanwhile may have the same step: the two have crossed. It may
        // also have ended the dialogue.
        state.dialogue.check_move(&message.message_type, message.parent_message_id.as_ref())?;
        let waiter = asks.then(|| self.wait(&mut state, &message));
        state.dialogue.record_sent(&message, &json);
        let (sender, answered) = oneshot::channel();
        state.in_flight = Some((message.message_id.clone(), sender));
        Ok(OutgoingMessage { message, json, meta, waiter, answered })
    }

    /// Returns the message that the draft repeats, in the text that was sent: the caller chose the same
    /// id and the same content. It keeps its step and its time.
    fn write_again(self: &Arc<Self>, draft: &MessageDraft) -> Result<Option<OutgoingMessage>, Error> {
        let Some(id) = &draft.id else { return Ok(None) };
        let mut guard = self.state.lock_unpoisoned();
        let state = &mut *guard;
        let Some(is_own) = state.dialogue.log.summary(id).map(|summary| summary.own) else { return Ok(None) };
        let taken = || Error::IdTaken(id.to_string());
        let json = state.dialogue.log.text(id).filter(|_| is_own).cloned().ok_or_else(taken)?;
        let message =
            json.parse::<DialogueMessage>().ok().filter(|sent| draft.repeats(sent)).ok_or_else(taken)?;
        let message = Arc::new(message);
        let answers = |other: &DialogueMessage| {
            other.parent_message_id.as_ref() == Some(id)
                && is_answer(&message.message_type, &other.message_type)
        };
        let is_queued =
            || state.queue.iter().any(|queued| queued.peek().is_some_and(|other| answers(&other)));
        let known = if draft.asks && !is_queued() { self.earlier_answer(state, &message) } else { None };
        let waiter = match known {
            Some(known) => Some(self.answered(id, known)),
            None => draft.asks.then(|| self.wait(state, &message)),
        };
        // The answer may have been delivered after the first attempt was given up.
        let is_answer = |message: &DialogueMessage| state.awaits(message);
        let place =
            state.queue.iter().position(|queued| queued.peek().is_some_and(|message| is_answer(&message)));
        if let Some(received) = place.and_then(|place| state.queue.remove(place)) {
            let actions = state.dialogue.taken(received.bytes(), self.dialogues.now());
            if let Some(received) = received.read().map(Arc::new) {
                state.give_answer(&received);
            }
            self.apply(state, actions);
        }
        let (sender, answered) = oneshot::channel();
        state.in_flight = Some((message.message_id.clone(), sender));
        Ok(Some(OutgoingMessage { message, json, meta: draft.meta.clone(), waiter, answered }))
    }

    /// Returns the answer to a message of ours that was read before and is still in the log.
    fn earlier_answer(&self, state: &InnerState, sent: &DialogueMessage) -> Option<VerifiedMessage> {
        let is_answer = |kind: &MessageType| is_answer(&sent.message_type, kind);
        let (message, text) = state.dialogue.log.answer(&sent.message_id, is_answer)?;
        // Only a signature that was verified is in the log.
        let signature = message.signature.as_deref().and_then(ParsedSignature::read);
        let key_id = signature.map(|signature| signature.kid.into());
        Some(VerifiedMessage { key_id, ..VerifiedMessage::new(message, text.clone()) })
    }

    /// Sends a message until it is accepted or the attempts are exhausted.
    async fn send_until_accepted(
        &self,
        message: &DialogueMessage,
        json: Json,
        meta: Option<Meta>,
    ) -> Result<(Receipt, Option<Meta>), Error> {
        let session = self.peer.session().cloned().ok_or(Error::NoSession)?;
        let mut request = DialogueRequest::new(session, json);
        request.meta = meta;
        let mut failures = 0;
        loop {
            // Detached: an answer that arrives before the receipt must not withdraw the message.
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
                "retrying a message"
            );
            let ended = self.peer.link.dialogue_connection.ended.cancelled();
            // The end of the connection ends the pause.
            let _ = tokio::time::timeout(pause, ended).await;
        }
    }

    /// Records that the other side has accepted our message.
    fn accepted(self: &Arc<Self>, message: &DialogueMessage) {
        let mut state = self.state.lock_unpoisoned();
        let actions = state.dialogue.record_receipt(message, self.dialogues.now());
        self.apply(&mut state, actions);
        drop(state);
        if message.message_type == MessageType::Termination {
            self.end(&Error::Ended);
        }
    }

    /// Returns true if only the repetition of a message came too late: the message has its receipt, and
    /// no error message followed it.
    fn is_over(&self, message: &DialogueMessage, error: &Error) -> bool {
        let Error::Response(content) = error else { return false };
        let state = self.state.lock_unpoisoned();
        let log = &state.dialogue.log;
        content.error_code == Code::Expired
            && log.summary(&message.message_id).is_some_and(|summary| summary.accepted)
            && log.answer(&message.message_id, |kind| *kind == MessageType::Error).is_none()
    }

    /// Records that our message was rejected or that its fate is unknown; returns true if the
    /// dialogue has ended.
    fn not_accepted(&self, message: &DialogueMessage, error: &Error) -> bool {
        let mut state = self.state.lock_unpoisoned();
        let unknown = matches!(
            error,
            Error::Connection(duologue_rpc::Error::Timeout { .. } | duologue_rpc::Error::Closed(_))
        );
        if !unknown {
            state.dialogue.refused(message);
        }
        matches!(state.end_reason, Some(Error::Ended))
    }
}

/// Returns the receipt in a response, or the error.
fn receipt(response: DialogueResponse, message: &DialogueMessage) -> Result<(Receipt, Option<Meta>), Error> {
    let names = |receipt: &Receipt| {
        receipt.message_id == message.message_id && receipt.session_id == message.session_id
    };
    let content = match (response.receipt, response.error) {
        (Some(receipt), None) if names(&receipt) => return Ok((receipt, response.meta)),
        (None, Some(error)) => {
            error.parse::<DialogueMessage>().ok().and_then(|message| message.content.error())
        }
        _ => None,
    };
    let unnamed = || {
        let text = "the response is neither a receipt for the message nor an error";
        ErrorContent::of(Code::ServerError, text).retryable(false)
    };
    Err(Error::Response(Box::new(content.unwrap_or_else(unnamed))))
}
