//! The handle on one dialogue, and the builder of its messages.

use std::collections::VecDeque;
use std::fmt;
use std::future::IntoFuture;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use duologue_rpc::CancellationToken;
use duologue_schema::dialogue::{
    AgentUri, DialogueAct, DialogueContent, DialogueId, DialogueMessage, DialogueMessageId, MessageType,
};
use duologue_schema::{Json, Meta, TraceContext};
use futures::future::BoxFuture;

use super::beliefs::Beliefs;
use super::error::Error;
use super::handler;
use super::inner::{DialogueInner, ParentDialogue, new_id};
use super::message::VerifiedMessage;
use super::send::{MessageDraft, SentMessage};
use crate::PeerAgent;
use duologue_rpc::Lock as _;

/// A dialogue with another agent. Cheap to clone.
///
/// [`PeerAgent::dialogue`] opens a dialogue. A [`DialogueHandler`](super::DialogueHandler) receives
/// a handle with every message. Ids, steps, sender, recipient, time and signature are set
/// automatically. A message answers the last message that this handle returned and that it can
/// answer, or else the one that is being handled. [`SendMessage::answering`] selects another one.
/// Domain and task are copied from the answered message if neither is set.
///
/// In a dialogue that we opened, [`next`](Self::next) returns the messages that no call waits for.
/// They go to the handler of our [`Dialogues`](super::Dialogues) once the last clone of the handle is
/// dropped. Without a handler, the dialogue is terminated.
///
/// The messages of a dialogue are sent one at a time: each waits for the receipt of the one before
/// it.
pub struct Dialogue {
    inner: Arc<DialogueInner>,
    /// The messages that this handle returned, newest first.
    about: Mutex<VecDeque<DialogueMessageId>>,
    reader: Option<Arc<Reader>>,
    /// The trace context of the message that is being handled, or the one of the options.
    trace: Option<TraceContext>,
}

/// Number of messages that a handle can answer.
const LATELY: usize = 16;

/// Shared by the handles on a dialogue that we opened.
struct Reader(Arc<DialogueInner>);

impl Drop for Reader {
    fn drop(&mut self) {
        self.0.hand_over();
    }
}

impl Clone for Dialogue {
    fn clone(&self) -> Self {
        let about = Mutex::new(self.about.lock_unpoisoned().clone());
        let trace = self.trace.clone();
        Dialogue { inner: self.inner.clone(), about, reader: self.reader.clone(), trace }
    }
}

impl fmt::Debug for Dialogue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dialogue")
            .field("id", &self.inner.id)
            .field("other", &self.inner.other)
            .finish_non_exhaustive()
    }
}

impl PeerAgent {
    /// Opens a dialogue with the agent `recipient`, such as `agent://cars.example/seller`, over
    /// this connection. The first message opens it for the other side. It has to be a `request`, a
    /// `query`, a `propose` or an `inform`.
    ///
    /// # Errors
    ///
    /// Returns an error if one of the sides does not support dialogues, there is no session, or
    /// `recipient` is not a valid name. Nothing is sent here.
    pub fn dialogue(&self, recipient: &str) -> Result<Dialogue, Error> {
        Dialogue::open(self, recipient, None, DialogueOptions::new())
    }

    /// Opens a dialogue as [`dialogue`](Self::dialogue) does, with an id of the caller or other
    /// options.
    ///
    /// # Errors
    ///
    /// The errors of [`dialogue`](Self::dialogue), [`Error::IdTaken`] for an id that is in use on this
    /// connection, and [`Error::Field`] for an invalid id.
    pub fn dialogue_with(&self, recipient: &str, options: DialogueOptions) -> Result<Dialogue, Error> {
        Dialogue::open(self, recipient, None, options)
    }
}

/// Options of a dialogue that is opened; see [`PeerAgent::dialogue_with`].
///
/// ```
/// use duologue_exchange::dialogue::DialogueOptions;
///
/// let options = DialogueOptions::new().id("s1").correlation_id("purchase-7");
/// # let _ = options;
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "pass it to `dialogue_with` or `nested_with`"]
pub struct DialogueOptions {
    id: Option<DialogueId>,
    correlation_id: Option<String>,
    trace: Option<TraceContext>,
}

impl DialogueOptions {
    /// Creates the default options: a random id, which is also the correlation id.
    pub fn new() -> Self {
        DialogueOptions::default()
    }

    /// Sets the id of the dialogue, the `session_id` of its messages. 1 to 128 characters. It must
    /// never be used again with the same agent.
    pub fn id(mut self, id: impl Into<DialogueId>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// Sets the id that related dialogues share, 1 to 128 characters. A nested dialogue has that of
    /// its parent by default.
    pub fn correlation_id(mut self, id: impl Into<String>) -> Self {
        self.correlation_id = Some(id.into());
        self
    }

    /// Sets the trace context of the messages that are sent with the handle.
    pub fn trace_context(mut self, context: impl Into<Option<TraceContext>>) -> Self {
        self.trace = context.into();
        self
    }
}

impl Dialogue {
    fn open(
        peer: &PeerAgent,
        recipient: &str,
        parent: Option<&Dialogue>,
        options: DialogueOptions,
    ) -> Result<Self, Error> {
        let other = AgentUri::parse(recipient)?;
        let dialogues = peer.link.dialogue_connection.dialogues.clone().ok_or(Error::NotSetUp)?;
        if !peer.offers().dialogue {
            return Err(Error::NotSupported);
        }
        if peer.session().is_none() {
            return Err(Error::NoSession);
        }
        let DialogueOptions { id, correlation_id, trace } = options;
        let id = id.unwrap_or_else(|| new_id().as_str().into());
        id.check("session_id")?;
        let inherited = || parent.map_or_else(|| id.to_string(), |parent| parent.inner.correlation.clone());
        let correlation = correlation_id.unwrap_or_else(inherited);
        let trace = trace.or_else(|| parent?.trace.clone()).or_else(|| peer.trace_context());
        let parent = parent.map(|parent| ParentDialogue {
            inner: Some(parent.inner.clone()),
            session: parent.inner.id.clone(),
            message: parent.about.lock_unpoisoned().front().cloned(),
        });
        let inner = DialogueInner::new(dialogues, peer.clone(), id, other, parent, correlation, false);
        inner.enter()?;
        let reader = Some(Arc::new(Reader(inner.clone())));
        Ok(Dialogue { inner, about: Mutex::default(), reader, trace })
    }

    /// Creates the handle for the handler of a message.
    pub(crate) fn about(inner: Arc<DialogueInner>, message: &VerifiedMessage) -> Self {
        let about = Mutex::new([message.message_id.clone()].into());
        Dialogue { inner, about, reader: None, trace: message.trace_context() }
    }

    fn record(&self, received: Arc<VerifiedMessage>) -> VerifiedMessage {
        let mut about = self.about.lock_unpoisoned();
        about.truncate(LATELY - 1);
        about.push_front(received.message_id.clone());
        Arc::unwrap_or_clone(received)
    }

    /// Opens a dialogue with another agent as part of this one, possibly over another connection.
    /// For example, a seller queries the agent with the details.
    ///
    /// It has its own steps and shares the `correlation_id`. Its messages name this dialogue and
    /// the last message that this handle returned. It does not end with this one.
    ///
    /// # Errors
    ///
    /// The errors of [`PeerAgent::dialogue`].
    pub fn nested(&self, peer: &PeerAgent, recipient: &str) -> Result<Dialogue, Error> {
        Dialogue::open(peer, recipient, Some(self), DialogueOptions::new())
    }

    /// Opens a nested dialogue as [`nested`](Self::nested) does, with an id of the caller or other
    /// options.
    ///
    /// # Errors
    ///
    /// The errors of [`PeerAgent::dialogue_with`].
    pub fn nested_with(
        &self,
        peer: &PeerAgent,
        recipient: &str,
        options: DialogueOptions,
    ) -> Result<Dialogue, Error> {
        Dialogue::open(peer, recipient, Some(self), options)
    }

    // --- messages to send ---

    /// Sends a request and waits for the message that settles it: a `response`, `propose` or
    /// `clarify`. An `error` message becomes an error.
    ///
    /// Messages before that, such as `confirm` or `update`, are returned by [`next`](Self::next) or
    /// go to the handler.
    pub fn request(&self, content: impl Into<DialogueContent>) -> SendMessage<'_, VerifiedMessage> {
        self.send(MessageType::Request, content).answer()
    }

    /// Requests information and waits for the answer, as [`request`](Self::request) does.
    pub fn query(&self, content: impl Into<DialogueContent>) -> SendMessage<'_, VerifiedMessage> {
        self.send(MessageType::Query, content).answer()
    }

    /// Answers a request or a query.
    pub fn respond(&self, content: impl Into<DialogueContent>) -> SendMessage<'_> {
        self.send(MessageType::Response, content)
    }

    /// Sends information that was not requested.
    pub fn inform(&self, content: impl Into<DialogueContent>) -> SendMessage<'_> {
        self.send(MessageType::Inform, content)
    }

    /// Confirms that a message was understood.
    pub fn confirm(&self, content: impl Into<DialogueContent>) -> SendMessage<'_> {
        self.send(MessageType::Confirm, content)
    }

    /// Makes an offer. With [`answer`](SendMessage::answer) it waits for `accept`, `reject` or
    /// another `propose`.
    pub fn propose(&self, content: impl Into<DialogueContent>) -> SendMessage<'_> {
        self.send(MessageType::Propose, content)
    }

    /// Accepts an offer or a counter-offer.
    pub fn accept(&self, content: impl Into<DialogueContent>) -> SendMessage<'_> {
        self.send(MessageType::Accept, content)
    }

    /// Rejects an offer. With the parameter [`COUNTER_OFFER`](super::COUNTER_OFFER) it is a
    /// counter-offer.
    pub fn reject(&self, content: impl Into<DialogueContent>) -> SendMessage<'_> {
        self.send(MessageType::Reject, content)
    }

    /// Requests a clarification.
    pub fn clarify(&self, content: impl Into<DialogueContent>) -> SendMessage<'_> {
        self.send(MessageType::Clarify, content)
    }

    /// Reports progress.
    pub fn update(&self, content: impl Into<DialogueContent>) -> SendMessage<'_> {
        self.send(MessageType::Update, content)
    }

    /// Ends the dialogue. If both sides do so at the same time, both succeed.
    pub fn terminate(&self, content: impl Into<DialogueContent>) -> SendMessage<'_> {
        self.send(MessageType::Termination, content)
    }

    /// Sends a message of any type.
    pub fn send(&self, message_type: MessageType, content: impl Into<DialogueContent>) -> SendMessage<'_> {
        let mut draft = MessageDraft::new(message_type, content.into());
        draft.parents = self.about.lock_unpoisoned().iter().cloned().collect();
        SendMessage { dialogue: self, draft, trace: None, within: None, returns: PhantomData }
    }

    // --- messages received ---

    /// Waits for the next message that no other call waits for. In a handler, such a message would
    /// otherwise be passed to the handler.
    ///
    /// # Errors
    ///
    /// [`Error::Ended`] after the `termination` of either side, and [`Error::Connection`] after the
    /// end of the connection.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub async fn next(&self) -> Result<VerifiedMessage, Error> {
        Ok(self.record(self.inner.next().await?))
    }

    /// Returns a message of this dialogue if it is still in the log; see
    /// [`DialogueLimits`](super::DialogueLimits). After the dialogue has ended, the log stays
    /// available to the handles of the opener. In a handler, it stays until the last message has
    /// been handled.
    #[must_use]
    pub fn message(&self, id: &DialogueMessageId) -> Option<DialogueMessage> {
        self.inner.state.lock_unpoisoned().dialogue.log.message(id)
    }

    /// Returns the message that `message` answers.
    #[must_use]
    pub fn parent_of(&self, message: &DialogueMessage) -> Option<DialogueMessage> {
        self.message(message.parent_message_id.as_ref()?)
    }

    /// Returns the messages in the `previous_context` of `message` that are still in the log of
    /// this dialogue or of its parents.
    #[must_use]
    pub fn context_of(&self, message: &DialogueMessage) -> Vec<DialogueMessage> {
        let chain =
            || std::iter::successors(Some(&self.inner), |inner| inner.parent.as_ref()?.inner.as_ref());
        let find = |id| chain().find_map(|inner| inner.state.lock_unpoisoned().dialogue.log.message(id));
        message.content.previous_context.iter().filter_map(find).collect()
    }

    /// Returns the messages of both sides that are still in the log, ordered by step, time and id.
    #[must_use]
    pub fn messages(&self) -> Vec<DialogueMessage> {
        self.inner.state.lock_unpoisoned().dialogue.log.messages().collect()
    }

    /// Returns the current beliefs of both sides.
    #[must_use]
    pub fn beliefs(&self) -> Beliefs {
        self.inner.state.lock_unpoisoned().dialogue.beliefs.clone()
    }

    /// Returns true if the dialogue has ended, by a `termination` or with its connection.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.inner.state.lock_unpoisoned().end_reason.is_some()
    }

    /// Returns the dialogue's id, the `session_id` of its messages.
    #[must_use]
    pub fn id(&self) -> &DialogueId {
        &self.inner.id
    }

    /// Returns our name in the dialogue.
    #[must_use]
    pub fn own(&self) -> &AgentUri {
        self.inner.dialogues.own()
    }

    /// Returns the other agent's name.
    #[must_use]
    pub fn other(&self) -> &AgentUri {
        &self.inner.other
    }

    /// Returns the id that this dialogue shares with its nested dialogues.
    #[must_use]
    pub fn correlation_id(&self) -> &str {
        &self.inner.correlation
    }

    /// Returns the parent dialogue and the message there that led to this one. The agent that did
    /// not open this dialogue knows only their ids.
    #[must_use]
    pub fn opened_within(&self) -> Option<(&DialogueId, Option<&DialogueMessageId>)> {
        let parent = self.inner.parent.as_ref()?;
        Some((&parent.session, parent.message.as_ref()))
    }

    /// Returns a token that is cancelled when the connection ends. A handler then has a grace period.
    #[must_use]
    pub fn cancellation(&self) -> CancellationToken {
        self.inner.peer.link.dialogue_connection.ended.child_token()
    }

    /// Returns the handle on the other agent, with the connection of the dialogue.
    #[must_use]
    pub fn peer(&self) -> &PeerAgent {
        &self.inner.peer
    }
}

/// A message before it is sent: set its properties, then await it.
///
/// It is sent, repeatedly if necessary, and resolves to its receipt ([`SentMessage`]). After
/// [`request`](Dialogue::request), [`query`](Dialogue::query) or [`answer`](Self::answer) it
/// resolves to the message that answers it ([`VerifiedMessage`]).
///
/// # Errors
///
/// [`Error::Illegal`] if the rules do not allow the message; nothing is sent then.
/// [`Error::Response`] if the other side rejects it. When waiting for the answer also
/// [`Error::Failed`] with the other side's `error` message, and [`Error::Ended`].
///
/// # Cancel safety
///
/// Dropping the future before the message has its step sends nothing. After that the message is
/// sent, repeatedly if necessary, and its answer is delivered like any other message.
#[must_use = "the message is sent when it is awaited"]
pub struct SendMessage<'a, T = SentMessage> {
    dialogue: &'a Dialogue,
    draft: MessageDraft,
    trace: Option<TraceContext>,
    within: Option<Duration>,
    returns: PhantomData<fn() -> T>,
}

impl<'a, T> SendMessage<'a, T> {
    /// Sets the dialogue act. The default is the usual act of the message type.
    pub fn act(mut self, act: DialogueAct) -> Self {
        self.draft.act = Some(act);
        self
    }

    /// Sets the message that this one answers. The default is the last one that it can answer.
    pub fn answering(mut self, message: &DialogueMessage) -> Self {
        self.draft.parents = vec![message.message_id.clone()];
        self.draft.parent_set = true;
        self
    }

    /// Sends the message without a parent.
    pub fn unprompted(mut self) -> Self {
        self.draft.parents.clear();
        self.draft.parent_set = true;
        self
    }

    /// Sets the priority, from 0 to 9. Other values become the nearest of these.
    pub fn priority(mut self, priority: i64) -> Self {
        self.draft.metadata.priority = Some(priority.clamp(0, 9));
        self
    }

    /// Sets the lifetime of the message in seconds. By default it does not expire.
    pub fn ttl(mut self, seconds: u64) -> Self {
        self.draft.metadata.ttl = Some(seconds);
        self
    }

    /// Sets a routing key for intermediaries.
    pub fn routing_key(mut self, key: impl Into<String>) -> Self {
        self.draft.metadata.routing_key = Some(key.into());
        self
    }

    /// Sets the correlation id of this message. The default is that of the dialogue.
    pub fn correlation_id(mut self, id: impl Into<String>) -> Self {
        self.draft.metadata.correlation_id = Some(id.into());
        self
    }

    /// Sets a member of the metadata that has no method here. The signature covers it.
    pub fn metadata(mut self, name: &str, value: impl Into<Json>) -> Self {
        self.draft.metadata.extra.insert(name, value);
        self
    }

    /// Sets the id of the message, 1 to 128 characters. The default is a random one.
    ///
    /// A message with the id and the content of an earlier one repeats it: the earlier text is sent
    /// again, and the other side answers it as before, with `duplicate` in the receipt. So a caller
    /// can try again after any error. The same id with other content is [`Error::IdTaken`]. A rejected
    /// message frees its id.
    pub fn id(mut self, id: impl Into<DialogueMessageId>) -> Self {
        self.draft.id = Some(id.into());
        self
    }

    /// Sets the `_meta` beside the message, which the signature does not cover.
    pub fn meta(mut self, meta: impl Into<Meta>) -> Self {
        self.draft.meta = Some(meta.into());
        self
    }

    /// Sets the trace context in the `_meta`; `None` is ignored. It replaces the one in
    /// [`meta`](Self::meta). By default it is that of the message that is being handled, or that of the
    /// options.
    pub fn trace_context(mut self, context: impl Into<Option<TraceContext>>) -> Self {
        self.trace = context.into().or(self.trace);
        self
    }

    /// Returns the draft with its trace context.
    fn finish(self) -> MessageDraft {
        let SendMessage { dialogue, mut draft, trace, .. } = self;
        let has_one = draft.meta.as_ref().is_some_and(|meta| meta.trace_context().is_some());
        if let Some(trace) = trace.as_ref().or(dialogue.trace.as_ref().filter(|_| !has_one)) {
            draft.meta = Some(draft.meta.unwrap_or_default().with_trace_context(trace));
        }
        draft
    }

    /// Waits for the message that settles this one, not only for the receipt.
    pub fn answer(self) -> SendMessage<'a, VerifiedMessage> {
        self.asks(true)
    }

    /// Waits only for the receipt. The answer is delivered like any other message.
    pub fn receipt(self) -> SendMessage<'a, SentMessage> {
        self.asks(false)
    }

    fn asks<U>(self, asks: bool) -> SendMessage<'a, U> {
        let SendMessage { dialogue, draft, trace, within, .. } = self;
        let draft = MessageDraft { asks, ..draft };
        SendMessage { dialogue, draft, trace, within, returns: PhantomData }
    }
}

impl SendMessage<'_, VerifiedMessage> {
    /// Sets the timeout for the answer, from the receipt on; [`Error::NoAnswer`] after that. By
    /// default the call waits until the dialogue or its connection ends.
    pub fn within(mut self, time: Duration) -> Self {
        self.within = Some(time);
        self
    }
}

impl<'a> IntoFuture for SendMessage<'a, SentMessage> {
    type Output = Result<SentMessage, Error>;
    type IntoFuture = BoxFuture<'a, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { Ok(self.dialogue.inner.send(self.finish()).await?.0) })
    }
}

impl<'a> IntoFuture for SendMessage<'a, VerifiedMessage> {
    type Output = Result<VerifiedMessage, Error>;
    type IntoFuture = BoxFuture<'a, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let (dialogue, within) = (self.dialogue, self.within);
            let (sent, waiter) = dialogue.inner.send(self.finish()).await?;
            if let Some(answer) = sent.fallback {
                return Ok(handler::local_reply(answer));
            }
            let Some(waiter) = waiter else { return Err(Error::Ended) };
            let answer = match within {
                None => waiter.answer().await?,
                Some(after) => {
                    let timeout = tokio::time::timeout(after, waiter.answer());
                    timeout.await.map_err(|_| Error::NoAnswer { after })??
                }
            };
            Ok(dialogue.record(answer))
        })
    }
}
