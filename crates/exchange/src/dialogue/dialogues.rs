//! The configuration of an agent's dialogues, and the open ones.

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
use duologue_rpc::Lock as _;

/// An agent's side of all its dialogues: its name, its keys, its authorization rules and its
/// handler.
///
/// Pass it to an [`Exchange`](crate::Exchange). An agent with several connections shares one, in an
/// [`Arc`], among them: a signed message that arrived on one is then rejected on the others.
/// [`Key::with`](super::Key::with) binds a key to a recipient. A dialogue belongs to the connection
/// on which it was opened, and ends with it.
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
#[must_use = "pass it to an `Exchange`"]
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
    /// Creates the dialogues of the agent `own`, such as `agent://cars.example/seller`. By default
    /// it can open dialogues but accepts none, and messages are unsigned.
    ///
    /// # Errors
    ///
    /// Returns an error if `own` is not a valid name.
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

    /// Sets the keys. Outgoing messages are signed, and incoming ones must be. An [`Arc`] shares
    /// them.
    pub fn keys(mut self, keys: impl KeyStore) -> Self {
        self.verifier = self.verifier.keys(Arc::new(keys));
        self
    }

    /// Accepts unsigned messages from agents that never had a key, even if there are keys. Off by
    /// default.
    pub fn accept_unsigned(mut self, yes: bool) -> Self {
        self.verifier = self.verifier.accept_unsigned(yes);
        self
    }

    /// Sets the authorization rules. By default everything is allowed.
    pub fn allow(mut self, list: AllowList) -> Self {
        self.verifier = self.verifier.allow(list);
        self
    }

    /// Rejects messages sent at this time or earlier, because the replay cache does not cover them.
    /// The default is one minute before this value was created, the tolerance for clocks. A later
    /// time excludes messages that an earlier process may have accepted. An earlier time admits
    /// messages that waited for this agent.
    pub fn since(mut self, time: SystemTime) -> Self {
        self.verifier = self.verifier.since(time);
        self
    }

    /// Sets the handler of dialogues that other agents open. Without one, such dialogues are
    /// rejected.
    pub fn handler(mut self, handler: impl DialogueHandler) -> Self {
        self.handler = Some(Arc::new(handler));
        self
    }

    /// Sets the limits on time and memory.
    pub fn limits(mut self, limits: DialogueLimits) -> Self {
        self.registry = Mutex::new(DialogueRegistry::new(limits.dialogues));
        self.limits = Arc::new(limits);
        self
    }

    /// Sets the schedule of retries.
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.backoff = backoff;
        self
    }

    /// Sets a fallback for messages that are not delivered after all retries of
    /// [`backoff`](Self::backoff), or because the connection has ended. Its answer may come from
    /// another agent, from the user, or be generated ([`UndeliveredMessage::answer`]). It is
    /// returned to the caller that waits for one. With `None` the caller receives the error.
    pub fn fallback<F>(mut self, fallback: impl Fn(UndeliveredMessage) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Option<DialogueMessage>> + Send + 'static,
    {
        self.fallback = Some(Arc::new(move |undelivered| Box::pin(fallback(undelivered))));
        self
    }

    /// Sets the types of the parameters of tasks.
    pub fn parameters(mut self, parameters: Parameters) -> Self {
        self.parameters = parameters;
        self
    }

    /// Returns the agent's name.
    #[must_use]
    pub fn own(&self) -> &AgentUri {
        self.verifier.own()
    }

    /// Returns the time on the clock of the dialogue state.
    pub(crate) fn now(&self) -> Duration {
        self.epoch.elapsed()
    }

    /// Returns the instant at which [`now`](Self::now) is `time`.
    pub(crate) fn moment(&self, time: Duration) -> Instant {
        // Times beyond the range of the clock are replaced by one that timers can represent.
        let far = || Instant::now() + Duration::from_secs(30 * 365 * 86_400);
        self.epoch.checked_add(time).unwrap_or_else(far)
    }

    /// Serializes a message, and signs it if there are keys.
    pub(crate) fn write(&self, message: &DialogueMessage) -> Result<Json, Error> {
        Ok(self.verifier.sign(message, SystemTime::now())?)
    }
}

impl fmt::Debug for Dialogues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dialogues").field("own", self.own()).finish_non_exhaustive()
    }
}

/// The state of one connection for dialogues.
pub(crate) struct DialogueConnection {
    /// Distinguishes connections.
    pub(crate) id: u64,
    pub(crate) dialogues: Option<Arc<Dialogues>>,
    /// The size of the messages that are queued or being handled, in all dialogues of the
    /// connection.
    pub(crate) waiting: AtomicUsize,
    /// Cancelled when the connection has ended: handlers then have a grace period.
    pub(crate) ended: CancellationToken,
}

impl DialogueConnection {
    pub(crate) fn new(dialogues: Option<Arc<Dialogues>>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        DialogueConnection { id, dialogues, waiting: AtomicUsize::new(0), ended: CancellationToken::new() }
    }

    /// Ends the dialogues of the connection.
    pub(crate) fn closed(&self, reason: &Closed) {
        self.ended.cancel();
        let Some(dialogues) = &self.dialogues else { return };
        dialogues.verifier.leave(self.id);
        let left = dialogues.registry.lock_unpoisoned().leave(self.id);
        for inner in left {
            inner.end(&Error::Connection(duologue_rpc::Error::Closed(reason.clone())));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unbounded_time_is_in_the_future() {
        let dialogues = Dialogues::new("agent://a").unwrap();
        assert!(dialogues.moment(Duration::MAX) > Instant::now() + Duration::from_secs(86_400));
    }
}
