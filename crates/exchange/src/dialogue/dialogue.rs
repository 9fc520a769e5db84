//! The handle on one dialogue: what to say, what was said.

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
use crate::lock::lock;

/// One dialogue with another agent. Cheap to clone.
///
/// [`PeerAgent::dialogue`] opens one; an [`DialogueHandler`](super::DialogueHandler) is handed one with every
/// message. Ids, steps, sender, recipient, time and signature are filled in. What is said answers the last message
/// that came out of this handle and can be answered so: out of [`next`](Self::next) and [`request`](Self::request), and
/// before them the one that is being handled. (So `respond` answers the request, even after something else was
/// clarified.) [`SendMessage::answering`] names another one. Domain and task come from the message that is answered, if it
/// can be looked up and unless one of them is given.
///
/// In a dialogue that we opened, messages that nobody waits for come out of [`next`](Self::next). When the
/// last clone of its handle is dropped they go to the handler of our [`Dialogues`](super::Dialogues); where there is
/// none, the dialogue is terminated.
///
/// Messages of one dialogue leave one at a time: the next one when the one before it has its receipt.
pub struct Dialogue {
    inner: Arc<DialogueInner>,
    /// What came out of this handle, the last first.
    about: Mutex<VecDeque<DialogueMessageId>>,
    reader: Option<Arc<Reader>>,
}

/// How many messages a handle remembers, to answer them.
const LATELY: usize = 16;

/// Held by the handles on a dialogue that we opened.
struct Reader(Arc<DialogueInner>);

impl Drop for Reader {
    fn drop(&mut self) {
        self.0.hand_over();
    }
}

impl Clone for Dialogue {
    fn clone(&self) -> Self {
        let about = Mutex::new(lock(&self.about).clone());
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
    /// Opens a dialogue with the agent `recipient`, such as `agent://cars.example/seller`, which is reached over this
    /// connection. The first message is what opens it for the other side; it has to be a `request`, a
    /// `query`, a `propose` or an `inform`.
    ///
    /// # Errors
    ///
    /// When this side is not set up for dialogues or the other one does not take any, there is no session, or
    /// `recipient` is no agent's name. Nothing is sent here.
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
            message: lock(&parent.about).front().cloned(),
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

    /// The handle for the handler of a message.
    pub(crate) fn about(inner: Arc<DialogueInner>, message: &DialogueMessage) -> Self {
        Dialogue { inner, about: Mutex::new([message.message_id.clone()].into()), reader: None }
    }

    fn record(&self, received: Arc<VerifiedMessage>) -> VerifiedMessage {
        let mut about = lock(&self.about);
        about.truncate(LATELY - 1);
        about.push_front(received.message_id.clone());
        Arc::unwrap_or_clone(received)
    }

    /// Opens a dialogue with another agent because of this one, maybe over another connection: the seller asks
    /// the agent that has the details.
    ///
    /// It has steps of its own, knows this dialogue and the last message that came out of this handle, and shares
    /// the `correlation_id`. It does not end with this one.
    ///
    /// # Errors
    ///
    /// As [`PeerAgent::dialogue`].
    pub fn nested(&self, peer: &PeerAgent, recipient: &str) -> Result<Dialogue, Error> {
        Dialogue::open(peer, recipient, Some(self))
    }

    // --- what to say ---

    /// Asks for something to be done and waits for what settles it: a `response`, or a `propose` or `clarify`
    /// instead. An `error` is an error.
    ///
    /// What comes before that, `confirm` or `update` say, comes out of [`next`](Self::next) or goes to the handler.
    pub fn request(&self, content: impl Into<DialogueContent>) -> SendMessage<'_, VerifiedMessage> {
        self.say(MessageType::Request, content).answer()
    }

    /// Asks for information and waits for the answer, as [`request`](Self::request) does.
    pub fn query(&self, content: impl Into<DialogueContent>) -> SendMessage<'_, VerifiedMessage> {
        self.say(MessageType::Query, content).answer()
    }

    /// Answers a request or a query.
    pub fn respond(&self, content: impl Into<DialogueContent>) -> SendMessage<'_> {
        self.say(MessageType::Response, content)
    }

    /// Says something nobody asked for.
    pub fn inform(&self, content: impl Into<DialogueContent>) -> SendMessage<'_> {
        self.say(MessageType::Inform, content)
    }

    /// Says that a message was understood.
    pub fn confirm(&self, content: impl Into<DialogueContent>) -> SendMessage<'_> {
        self.say(MessageType::Confirm, content)
    }

    /// Offers something. With [`answer`](SendMessage::answer) it waits for `accept`, `reject` or another `propose`.
    pub fn propose(&self, content: impl Into<DialogueContent>) -> SendMessage<'_> {
        self.say(MessageType::Propose, content)
    }

    /// Takes an offer, or a counter-offer.
    pub fn accept(&self, content: impl Into<DialogueContent>) -> SendMessage<'_> {
        self.say(MessageType::Accept, content)
    }

    /// Refuses an offer. With the parameter [`COUNTER_OFFER`](super::COUNTER_OFFER) it is an offer itself.
    pub fn reject(&self, content: impl Into<DialogueContent>) -> SendMessage<'_> {
        self.say(MessageType::Reject, content)
    }

    /// Asks what was meant.
    pub fn clarify(&self, content: impl Into<DialogueContent>) -> SendMessage<'_> {
        self.say(MessageType::Clarify, content)
    }

    /// Says how far something is.
    pub fn update(&self, content: impl Into<DialogueContent>) -> SendMessage<'_> {
        self.say(MessageType::Update, content)
    }

    /// Ends the dialogue. When both sides do so at once, both succeed.
    pub fn terminate(&self, content: impl Into<DialogueContent>) -> SendMessage<'_> {
        self.say(MessageType::Termination, content)
    }

    /// Says anything.
    pub fn say(&self, message_type: MessageType, content: impl Into<DialogueContent>) -> SendMessage<'_> {
        let mut draft = MessageDraft::new(message_type, content.into());
        draft.parents = lock(&self.about).iter().cloned().collect();
        SendMessage { dialogue: self, draft, within: None, returns: PhantomData }
    }

    // --- what was said ---

    /// The next message of the other side that nobody waits for. In a handler it is one that the handler would
    /// else have been called with.
    ///
    /// # Errors
    ///
    /// [`Error::Ended`] after the `termination` of either side, and [`Error::Connection`] when the connection
    /// has ended.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub async fn next(&self) -> Result<VerifiedMessage, Error> {
        Ok(self.record(self.inner.next().await?))
    }

    /// A message of this dialogue, if it is still remembered; see [`DialogueLimits`](super::DialogueLimits). When a
    /// dialogue has ended, the handles of who opened it remember what was said, and those of a handler no longer than
    /// it takes to handle the last message.
    #[must_use]
    pub fn message(&self, id: &DialogueMessageId) -> Option<DialogueMessage> {
        lock(&self.inner.state).dialogue.log.message(id)
    }

    /// The message that another one answers.
    #[must_use]
    pub fn parent_of(&self, message: &DialogueMessage) -> Option<DialogueMessage> {
        self.message(message.parent_message_id.as_ref()?)
    }

    /// The messages that the `previous_context` of another one names, those that are still remembered, of this
    /// dialogue and of those it is nested in.
    #[must_use]
    pub fn context_of(&self, message: &DialogueMessage) -> Vec<DialogueMessage> {
        let chain =
            || std::iter::successors(Some(&self.inner), |inner| inner.parent.as_ref()?.inner.as_ref());
        let find = |id| chain().find_map(|inner| lock(&inner.state).dialogue.log.message(id));
        message.content.previous_context.iter().filter_map(find).collect()
    }

    /// What both sides have said and is still remembered, in order: by step, time and id.
    #[must_use]
    pub fn messages(&self) -> Vec<DialogueMessage> {
        lock(&self.inner.state).dialogue.log.messages().collect()
    }

    /// What both sides have said to believe, as it stands.
    #[must_use]
    pub fn beliefs(&self) -> Beliefs {
        lock(&self.inner.state).dialogue.beliefs.clone()
    }

    /// Whether it has ended, by a `termination` or with its connection.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        lock(&self.inner.state).over.is_some()
    }

    /// The dialogue's id, the `session_id` of its messages.
    #[must_use]
    pub fn id(&self) -> &DialogueId {
        &self.inner.id
    }

    /// Our own name in it.
    #[must_use]
    pub fn own(&self) -> &AgentUri {
        self.inner.dialogues.own()
    }

    /// The other agent's name.
    #[must_use]
    pub fn other(&self) -> &AgentUri {
        &self.inner.other
    }

    /// What this dialogue and those nested in it have in common.
    #[must_use]
    pub fn correlation_id(&self) -> &str {
        &self.inner.correlation
    }

    /// The dialogue within which this one was opened, and the message there because of which it was. The agent
    /// that did not open it knows them by name only.
    #[must_use]
    pub fn opened_within(&self) -> Option<(&DialogueId, Option<&DialogueMessageId>)> {
        let parent = self.inner.parent.as_ref()?;
        Some((&parent.session, parent.message.as_ref()))
    }

    /// The connection it is held over.
    #[must_use]
    pub fn peer(&self) -> &PeerAgent {
        &self.inner.peer
    }
}

/// Something to say: set what is special about it, then await it.
///
/// Awaited, it is sent, sent again if it has to be, and returns with the receipt ([`SentMessage`]); or, of
/// [`request`](Dialogue::request), [`query`](Dialogue::query) and after [`answer`](Self::answer), with the message that
/// answers it ([`VerifiedMessage`]).
///
/// # Errors
///
/// [`Error::Illegal`] when the rules do not allow it; nothing is sent then. [`Error::Response`] when the other
/// side does not take it. For those who wait for the answer also [`Error::Failed`] with the other side's `error`
/// message, and [`Error::Ended`].
///
/// # Cancel safety
///
/// A message whose turn has come is sent, and sent again, even if this is dropped: it has its step. What the other
/// side says to it is then a message like any other. Dropped before that, nothing is sent.
#[must_use = "nothing is said until it is awaited"]
pub struct SendMessage<'a, T = SentMessage> {
    dialogue: &'a Dialogue,
    draft: MessageDraft,
    within: Option<Duration>,
    returns: PhantomData<fn() -> T>,
}

impl<'a, T> SendMessage<'a, T> {
    /// What is meant by it. By default what is usually meant by its type.
    pub fn act(mut self, act: DialogueAct) -> Self {
        self.draft.act = Some(act);
        self
    }

    /// Which message it answers, in place of the last one that it can.
    pub fn answering(mut self, message: &DialogueMessage) -> Self {
        self.draft.parents = vec![message.message_id.clone()];
        self
    }

    /// It answers no message.
    pub fn unprompted(mut self) -> Self {
        self.draft.parents.clear();
        self
    }

    /// How much it hurries, from 0 to 9.
    pub fn priority(mut self, priority: i64) -> Self {
        self.draft.metadata.priority = Some(priority);
        self
    }

    /// How many seconds it may be acted upon. For ever by default.
    pub fn ttl(mut self, seconds: u64) -> Self {
        self.draft.metadata.ttl = Some(seconds);
        self
    }

    /// Where it goes, for those who pass it on.
    pub fn routing_key(mut self, key: impl Into<String>) -> Self {
        self.draft.metadata.routing_key = Some(key.into());
        self
    }

    /// Waits for the message that settles it, and not only for the receipt.
    pub fn answer(self) -> SendMessage<'a, VerifiedMessage> {
        let SendMessage { dialogue, mut draft, within, .. } = self;
        draft.asks = true;
        SendMessage { dialogue, draft, within, returns: PhantomData }
    }

    /// Waits only for the receipt. The answer is then a message like any other.
    pub fn receipt(self) -> SendMessage<'a, SentMessage> {
        let SendMessage { dialogue, mut draft, within, .. } = self;
        draft.asks = false;
        SendMessage { dialogue, draft, within, returns: PhantomData }
    }
}

impl SendMessage<'_, VerifiedMessage> {
    /// How long to wait for the answer once the message is taken: [`Error::NoAnswer`] after that. For ever by
    /// default, or rather until the dialogue or its connection ends.
    pub fn within(mut self, time: Duration) -> Self {
        self.within = Some(time);
        self
    }
}

impl<'a> IntoFuture for SendMessage<'a, SentMessage> {
    type Output = Result<SentMessage, Error>;
    type IntoFuture = BoxFuture<'a, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { Ok(self.dialogue.inner.say(self.draft).await?.0) })
    }
}

impl<'a> IntoFuture for SendMessage<'a, VerifiedMessage> {
    type Output = Result<VerifiedMessage, Error>;
    type IntoFuture = BoxFuture<'a, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let (sent, waiter) = self.dialogue.inner.say(self.draft).await?;
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
