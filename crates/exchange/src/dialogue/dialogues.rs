//! The settings of one agent for all its dialogues, and those that go on.

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use duologue_rpc::{CancellationToken, Closed};
use duologue_schema::Json;
use duologue_schema::dialogue::{AgentUri, AgentUriError, DialogueMessage};
use tokio::time::Instant;

use super::allow::AllowList;
use super::dialogue_registry::DialogueRegistry;
use super::error::Error;
use super::handler::{DialogueHandler, ErasedDialogueHandler, Fallback, UndeliveredMessage};
use super::inner::DialogueInner;
use super::keys::KeyStore;
use super::limits::DialogueLimits;
use super::parameters::Parameters;
use super::retry::Backoff;
use super::verify::Verifier;
use crate::lock::lock;

/// An agent's side of all its dialogues: its name, its keys, who it listens to and who speaks for it.
///
/// Give it to an [`Exchange`](crate::Exchange). An agent with several connections gives the same one, in an
/// [`Arc`], to all of them: what was signed and came over one of them is then known, and refused, on the others.
/// Which of its keys is for whom is said with [`Key::with`](super::Key::with). A dialogue stays on the connection
/// it was opened on; nobody can speak in it from another one, and it ends with it.
///
/// ```
/// use std::sync::Arc;
/// use duologue_exchange::Exchange;
/// use duologue_exchange::dialogue::{AllowList, AllowRule, Dialogues, Key, Keys};
///
/// let keys = Arc::new(Keys::new());
/// # let secret = [7; 32];
/// let (seller, buyer) = ("agent://cars.example/seller", "agent://cars.example/buyer");
/// keys.insert(Key::new("seller-1", seller, secret)?.with(buyer)?)?;
/// keys.insert(Key::new("buyer-1", buyer, secret)?.with(seller)?)?;
/// let dialogues = Arc::new(
///     Dialogues::new(seller)?
///         .keys(keys)
///         .allow(AllowList::new().rule(AllowRule::anyone().task("getCarDetails").task("negotiatePrice"))),
/// );
/// let to_buyers = Exchange::new().dialogue(dialogues.clone());
/// let to_the_database = Exchange::new().dialogue(dialogues);
/// # let _ = (to_buyers, to_the_database);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "give it to an Exchange"]
pub struct Dialogues {
    pub(crate) verifier: Verifier,
    pub(crate) handler: Option<Arc<dyn ErasedDialogueHandler>>,
    pub(crate) limits: Arc<DialogueLimits>,
    pub(crate) backoff: Backoff,
    pub(crate) fallback: Option<Fallback>,
    pub(crate) parameters: Parameters,
    pub(crate) registry: Mutex<DialogueRegistry<Arc<DialogueInner>>>,
    epoch: Instant,
}

impl Dialogues {
    /// The dialogues of the agent `own`, such as `agent://cars.example/seller`. Without anything more it opens
    /// dialogues and takes none, and messages are not signed.
    ///
    /// # Errors
    ///
    /// When `own` is no agent's name.
    pub fn new(own: &str) -> Result<Self, AgentUriError> {
        let limits = DialogueLimits::default();
        Ok(Dialogues {
            verifier: Verifier::new(AgentUri::parse(own)?),
            handler: None,
            registry: Mutex::new(DialogueRegistry::new(limits.dialogues)),
            limits: Arc::new(limits),
            backoff: Backoff::default(),
            fallback: None,
            parameters: Parameters::default(),
            epoch: Instant::now(),
        })
    }

    /// Signs what we say, and requires that all that is said to us is signed: with these keys.
    pub fn keys(mut self, keys: Arc<impl KeyStore>) -> Self {
        self.verifier = self.verifier.keys(keys);
        self
    }

    /// Takes unsigned messages, although there are keys, from agents that never had one. Off by default.
    pub fn accept_unsigned(mut self, yes: bool) -> Self {
        self.verifier = self.verifier.accept_unsigned(yes);
        self
    }

    /// Who may ask for what. Everybody for everything by default.
    pub fn allow(mut self, list: AllowList) -> Self {
        self.verifier = self.verifier.allow(list);
        self
    }

    /// Refuses what was sent at this time or earlier, since nobody here remembers whether it was taken before. By
    /// default that is a minute, as much as clocks may differ, before this was made. A later time lets in nothing that
    /// an earlier process has taken; an earlier one lets in what waited for us.
    pub fn since(mut self, time: SystemTime) -> Self {
        self.verifier = self.verifier.since(time);
        self
    }

    /// Who speaks for us in the dialogues that others open. Without one they are refused.
    pub fn handler(mut self, handler: impl DialogueHandler) -> Self {
        self.handler = Some(Arc::new(handler));
        self
    }

    /// Bounds on time and memory.
    pub fn limits(mut self, limits: DialogueLimits) -> Self {
        self.registry = Mutex::new(DialogueRegistry::new(limits.dialogues));
        self.limits = Arc::new(limits);
        self
    }

    /// How often a message is sent again.
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.backoff = backoff;
        self
    }

    /// Who helps when a message does not get through: it was sent as often as [`backoff`](Self::backoff) says,
    /// or the connection has ended. The answer, another agent's, a person's or one made up for the occasion
    /// ([`UndeliveredMessage::answer`]), goes to whoever waits for one; `None` is no help, and the error stands.
    pub fn fallback<F>(mut self, fallback: impl Fn(UndeliveredMessage) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Option<DialogueMessage>> + Send + 'static,
    {
        self.fallback = Some(Arc::new(move |undelivered| Box::pin(fallback(undelivered))));
        self
    }

    /// What the parameters of tasks look like.
    pub fn parameters(mut self, parameters: Parameters) -> Self {
        self.parameters = parameters;
        self
    }

    /// The agent's name.
    #[must_use]
    pub fn own(&self) -> &AgentUri {
        self.verifier.own()
    }

    /// The time as the state of dialogues counts it.
    pub(crate) fn now(&self) -> Duration {
        self.epoch.elapsed()
    }

    /// The moment at which [`now`](Self::now) is `time`.
    pub(crate) fn moment(&self, time: Duration) -> Instant {
        // So late that no clock knows it: in a time that timers know.
        let far = || Instant::now() + Duration::from_secs(30 * 365 * 86_400);
        self.epoch.checked_add(time).unwrap_or_else(far)
    }

    /// A message as text, signed if we sign.
    pub(crate) fn write(&self, message: &DialogueMessage) -> Result<Json, Error> {
        Ok(self.verifier.sign(message, SystemTime::now())?)
    }
}

impl fmt::Debug for Dialogues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dialogues").field("own", self.own()).finish_non_exhaustive()
    }
}

/// What one connection has to do with dialogues.
pub(crate) struct DialogueConnection {
    /// Tells connections apart.
    pub(crate) id: u64,
    pub(crate) dialogues: Option<Arc<Dialogues>>,
    /// How many bytes of messages wait or are handled, in all dialogues of the connection.
    pub(crate) waiting: AtomicUsize,
    /// Cancelled when the connection has ended: handlers then have a moment.
    pub(crate) ended: CancellationToken,
}

impl DialogueConnection {
    pub(crate) fn new(dialogues: Option<Arc<Dialogues>>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        DialogueConnection { id, dialogues, waiting: AtomicUsize::new(0), ended: CancellationToken::new() }
    }

    /// The connection has ended, and with it its dialogues.
    pub(crate) fn closed(&self, reason: &Closed) {
        self.ended.cancel();
        let Some(dialogues) = &self.dialogues else { return };
        dialogues.verifier.leave(self.id);
        let left = lock(&dialogues.registry).leave(self.id);
        for inner in left {
            inner.end(&Error::Connection(duologue_rpc::Error::Closed(reason.clone())));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_without_end_is_a_time_in_the_future() {
        let dialogues = Dialogues::new("agent://a").unwrap();
        assert!(dialogues.moment(Duration::MAX) > Instant::now() + Duration::from_secs(86_400));
    }
}
