//! Delegating: a task for the other agent, and the handle on it.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use duologue_schema::Members;
use duologue_schema::envelope::{
    Ack, Cancel, Delegate, DelegationOutcome, EnvelopeError, EnvelopeErrorCode, EnvelopeId, EnvelopeKind,
    Priority,
};

use super::inbox::{self, HandlerNotification};
use super::request::millis;
use super::state::{DelegationEnd, DelegationState};
use super::{Received, Subscription};
use crate::error::{Error, Result};
use crate::hops::Hops;
use crate::lock::lock;
use crate::peer_agent::PeerAgent;

/// How long the other agent may take to say whether it takes a task on.
pub(super) const ACK: Duration = Duration::from_secs(30);

impl PeerAgent {
    /// A task for the other agent, sent when it is awaited. The handle comes when the other agent has taken
    /// the task on; the result comes later.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/doc/pair.in"));
    /// # use duologue_exchange::envelope::*;
    /// struct Painter;
    ///
    /// impl EnvelopeHandler for Painter {
    ///     fn capabilities(&self) -> Capabilities {
    ///         Capabilities::new("painter").max_concurrent_tasks(1)
    ///     }
    ///
    ///     async fn accept(&self, task: &ReceivedTask) -> Result<Ack, EnvelopeError> {
    ///         match task.task.contains("tiles") {
    ///             true => Err(EnvelopeError::not_authorized("no tiles")),
    ///             false => Ok(Ack::new(true).estimated_ms(60_000)),
    ///         }
    ///     }
    ///
    ///     async fn delegate(&self, task: ReceivedTask) -> Result<DelegationOutcome, EnvelopeError> {
    ///         if task.is_urgent() {
    ///             // Until it is asked to stop.
    ///             task.cancelled().await;
    ///             return Ok(DelegationOutcome::new(OutcomeStatus::Partial).outcome("half of it"));
    ///         }
    ///         Ok(DelegationOutcome::new(OutcomeStatus::Completed).outcome("it is blue"))
    ///     }
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> duologue_exchange::Result<()> {
    /// # let peer = agent_that_answers_with(Painter);
    /// let task = peer.delegate("Paint the kitchen").await?;
    /// assert_eq!(task.result().await?.outcome, "it is blue");
    ///
    /// let task = peer.delegate("Paint the hall").urgent().await?;
    /// assert!(task.cancel("we move out").await?.accepted);
    /// assert_eq!(task.result().await?.status, OutcomeStatus::Partial);
    ///
    /// let refused = peer.delegate("Lay the tiles").await.unwrap_err();
    /// assert_eq!(refused.to_string(), "the other agent refused: no tiles (not_authorized)");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Declined`] when the other agent does not take it on, [`Error::Response`] with the code
    /// `overloaded` when it has no room, [`Error::Timeout`] when it does not say in time, and as
    /// [`query`](Self::query).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future withdraws the task, if the other agent has not taken it on yet.
    pub fn delegate(&self, task: impl Into<String>) -> DelegateBuilder {
        let delegate = Delegate::new(task).report_back(true);
        DelegateBuilder { peer: self.clone(), delegate, ack_timeout: ACK, hops: Hops::current() }
    }
}

/// A task before it is sent, see [`PeerAgent::delegate`].
#[must_use = "a task is sent when it is awaited"]
#[derive(Debug)]
pub struct DelegateBuilder {
    peer: PeerAgent,
    delegate: Delegate,
    ack_timeout: Duration,
    hops: Hops,
}

impl DelegateBuilder {
    /// What is needed to do it.
    pub fn context(mut self, context: impl Into<Members>) -> Self {
        self.delegate = self.delegate.context(context);
        self
    }

    /// It may use the slot that the other agent keeps free for urgent tasks.
    pub fn urgent(mut self) -> Self {
        self.delegate = self.delegate.priority(Priority::Urgent);
        self
    }

    /// Whether to be told how it ends; `true` by default.
    pub fn report_back(mut self, report_back: bool) -> Self {
        self.delegate = self.delegate.report_back(report_back);
        self
    }

    /// How long the other agent may work on it, once it has taken it on; by default there is no limit.
    /// Nothing ends on our side: [`Delegation::result`] waits until the other agent says something.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.delegate = self.delegate.deadline_ms(millis(deadline));
        self
    }

    /// How long the other agent may take to say whether it takes the task on; 30 seconds by default.
    pub fn ack_timeout(mut self, ack_timeout: Duration) -> Self {
        self.ack_timeout = ack_timeout;
        self
    }

    async fn send(self) -> Result<Delegation> {
        let DelegateBuilder { peer, delegate, ack_timeout, hops } = self;
        peer.require_envelopes()?;
        peer.require_session(EnvelopeKind::Delegate)?;
        let ending = delegate.wants_report().then(|| Arc::new(DelegationState::new()));
        let message = peer.counted(peer.envelope(delegate), hops)?;
        let id = message.envelope.id.clone();
        // Before it is sent: its result may come before its ack.
        if let Some(ending) = &ending {
            lock(&peer.link.envelopes.table).delegate(id.clone(), ending.clone());
        }
        let mut delegation = Delegation { peer, id, estimated: None, ending };
        match delegation.peer.post(message)?.answer::<Delegate>(ack_timeout).await {
            Ok(ack) if ack.payload.accepted => {
                delegation.estimated = ack.payload.estimated_ms.map(Duration::from_millis);
                Ok(delegation)
            }
            Ok(ack) => Err(Error::Declined(refusal(ack.payload))),
            Err(error @ Error::Response(_)) => Err(error),
            Err(error) => match delegation.ending.as_ref().and_then(|ending| ending.now()) {
                // Who has done it has taken it on, whatever became of the ack.
                Some(DelegationEnd::Result(..)) => Ok(delegation),
                Some(DelegationEnd::Lost(why)) => Err(why),
                _ => Err(error),
            },
        }
    }
}

impl IntoFuture for DelegateBuilder {
    type Output = Result<Delegation>;
    type IntoFuture = Pin<Box<dyn Future<Output = Result<Delegation>> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.send())
    }
}

fn refusal(ack: Ack) -> EnvelopeError {
    let Ack { reason, error, .. } = ack;
    error.unwrap_or_else(|| {
        EnvelopeError::of(
            EnvelopeErrorCode::Refused,
            reason.unwrap_or_else(|| "it gives no reason".to_owned()),
        )
    })
}

/// A task that the other agent has taken on.
///
/// Dropping the handle lets the task run. Its result then goes to
/// [`EnvelopeHandler::result`](super::EnvelopeHandler::result), also if it has come and nobody looked at it. What has
/// come before the connection ended is not lost with it, if the handle is dropped within a runtime.
pub struct Delegation {
    peer: PeerAgent,
    id: EnvelopeId,
    estimated: Option<Duration>,
    /// `None` when no report was asked for.
    ending: Option<Arc<DelegationState>>,
}

impl Delegation {
    /// The id of the message that delegated it, which everything about it refers to.
    #[must_use]
    pub fn id(&self) -> &EnvelopeId {
        &self.id
    }

    /// How long the other agent thinks it takes, if it said so.
    #[must_use]
    pub fn estimated(&self) -> Option<Duration> {
        self.estimated
    }

    /// Whether it has ended, so that [`result`](Self::result) returns at once.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.ending.as_ref().is_some_and(|ending| ending.is_over())
    }

    /// Waits for the end. Asked again, it says the same again.
    ///
    /// A [`DelegationOutcome`] may be a failure: see its status.
    ///
    /// # Errors
    ///
    /// [`Error::Response`] when the other agent ends it with an error: `cancelled` after
    /// [`cancel`](Self::cancel), `timeout` when the deadline has passed. [`Error::NoReport`] at once
    /// when it was delegated with `report_back(false)`. [`Error::Answer`] when what ends it does not fit.
    /// [`Error::Connection`] when the connection ends.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub async fn result(&self) -> Result<DelegationOutcome> {
        let Some(ending) = &self.ending else { return Err(Error::NoReport) };
        match ending.wait().await {
            DelegationEnd::Result(envelope, _) => Ok(envelope.payload),
            DelegationEnd::Error(envelope, _) => Err(Error::Response(envelope.payload)),
            DelegationEnd::Lost(error) => Err(error),
        }
    }

    /// Asks the other agent to stop. It says whether it will try; the task ends as it ends, mostly with the
    /// error `cancelled`.
    ///
    /// When it does not stop, the ack is not `accepted` and tells why, with the reason `already_finished`
    /// for instance.
    ///
    /// # Errors
    ///
    /// As [`PeerAgent::query`], with a timeout of 30 seconds.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future withdraws the request, but the other agent may have heard it: the task may stop.
    pub async fn cancel(&self, reason: impl Into<String>) -> Result<Ack> {
        let envelope = self.peer.envelope(Cancel::new().reason(reason)).reference(&self.id);
        self.peer.ask(envelope, ACK).await.map(|ack| ack.payload)
    }

    /// What the other agent says about it while it works, since the beginning. It ends when the task ends;
    /// without a report there is none. Each message goes to one of the streams, if there are several.
    pub fn progress(&self) -> Subscription {
        self.ending.as_ref().map_or_else(Subscription::ended, |ending| ending.progress())
    }
}

impl fmt::Debug for Delegation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delegation")
            .field("id", &self.id)
            .field("over", &self.is_over())
            .finish_non_exhaustive()
    }
}

impl Drop for Delegation {
    fn drop(&mut self) {
        let Some(ending) = &self.ending else { return };
        let link = &self.peer.link;
        lock(&link.envelopes.table).lets_run(&self.id);
        // Nothing can end it after this, so what nobody has seen by now is to be handed on.
        match ending.unclaimed() {
            Some(DelegationEnd::Result(envelope, bytes)) => {
                inbox::hand_on(
                    link,
                    HandlerNotification::Result(Received::new(envelope, self.peer.clone(), Hops::default())),
                    bytes,
                );
            }
            Some(DelegationEnd::Error(envelope, bytes)) => {
                inbox::hand_on(
                    link,
                    HandlerNotification::Error(Received::new(envelope, self.peer.clone(), Hops::default())),
                    bytes,
                );
            }
            Some(DelegationEnd::Lost(_)) | None => {}
        }
    }
}
