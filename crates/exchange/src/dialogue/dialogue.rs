//! The handle on one dialogue, and the builder of its messages.

use std::collections::VecDeque;
use std::fmt;
use std::future::IntoFuture;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use duologue_schema::dialogue::{
    AgentUri, DialogueAct, DialogueContent, DialogueId, DialogueMessage, DialogueMessageId, MessageType,
};
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
        Dialogue { inner: self.inner.clone(), about, reader: self.reader.clone() }
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
        Dialogue::open(self, recipient, None)
    }
}

impl Dialogue {
    fn open(peer: &PeerAgent, recipient: &str, parent: Option<&Dialogue>) -> Result<Self, Error> {
        let other = AgentUri::parse(recipient)?;
        let dialogues = peer.link.dialogue_connection.dialogues.clone().ok_or(Error::NotSetUp)?;
        if !peer.offers().dialogue {
            return Err(Error::NotSupported);
        }
        if peer.session().is_none() {
            return Err(Error::NoSession);
        }
        let id = new_id();
        let correlation = parent.map_or_else(|| id.clone(), |parent| parent.inner.correlation.clone());
        let parent = parent.map(|parent| ParentDialogue {
            inner: Some(parent.inner.clone()),
            session: parent.inner.id.clone(),
            message: parent.about.lock_unpoisoned().front().cloned(),
        });
        let inner = DialogueInner::new(
            dialogues,
            peer.clone(),
            id.as_str().into(),
            other,
            parent,
            correlation,
            false,
        );
        inner.enter()?;
        let reader = Some(Arc::new(Reader(inner.clone())));
        Ok(Dialogue { inner, about: Mutex::default(), reader })
    }

    /// Creates the handle for the handler of a message.
    pub(crate) fn about(inner: Arc<DialogueInner>, message: &DialogueMessage) -> Self {
        Dialogue { inner, about: Mutex::new([message.message_id.clone()].into()), reader: None }
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
        Dialogue::open(peer, recipient, Some(self))
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
        SendMessage { dialogue: self, draft, within: None, returns: PhantomData }
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
        self
    }

    /// Sends the message without a parent.
    pub fn unprompted(mut self) -> Self {
        self.draft.parents.clear();
        self
    }

    /// Sets the priority, from 0 to 9.
    pub fn priority(mut self, priority: i64) -> Self {
        self.draft.metadata.priority = Some(priority);
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

    /// Waits for the message that settles this one, not only for the receipt.
    pub fn answer(self) -> SendMessage<'a, VerifiedMessage> {
        self.asks(true)
    }

    /// Waits only for the receipt. The answer is delivered like any other message.
    pub fn receipt(self) -> SendMessage<'a, SentMessage> {
        self.asks(false)
    }

    fn asks<U>(self, asks: bool) -> SendMessage<'a, U> {
        let SendMessage { dialogue, draft, within, .. } = self;
        SendMessage { dialogue, draft: MessageDraft { asks, ..draft }, within, returns: PhantomData }
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
        Box::pin(async move { Ok(self.dialogue.inner.send(self.draft).await?.0) })
    }
}

impl<'a> IntoFuture for SendMessage<'a, VerifiedMessage> {
    type Output = Result<VerifiedMessage, Error>;
    type IntoFuture = BoxFuture<'a, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let (sent, waiter) = self.dialogue.inner.send(self.draft).await?;
            if let Some(answer) = sent.fallback {
                return Ok(handler::local_reply(answer));
            }
            let Some(waiter) = waiter else { return Err(Error::Ended) };
            let answer = match self.within {
                None => waiter.answer().await?,
                Some(after) => {
                    let timeout = tokio::time::timeout(after, waiter.answer());
                    timeout.await.map_err(|_| Error::NoAnswer { after })??
                }
            };
            Ok(self.dialogue.record(answer))
        })
    }
}
