//! Outgoing delegations: the builder, and the handle on an accepted task.

use std::fmt;
use std::future::IntoFuture;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use duologue_rpc::CancellationToken;
use duologue_schema::envelope::{
    Ack, Cancel, Delegate, DelegationOutcome, EnvelopeError, EnvelopeErrorCode, EnvelopeId, EnvelopeKind,
    EnvelopeResult, Priority, TaskStatus,
};
use duologue_schema::{Members, Meta};
use futures::future::BoxFuture;

use super::inbox::{self, HandlerNotification};
use super::outgoing::{MessageOptions, message_options, with_attachments};
use super::output::OutputOrder;
use super::request::millis;
use super::subscription::SubscriptionQueue;
use super::{OutputStream, Received, Subscription};
use crate::error::{AnswerError, Error, Result};
use crate::hops::Hops;
use crate::peer_agent::PeerAgent;

/// Default timeout for the `ack` of a delegation or a cancellation.
pub(super) const ACK: Duration = Duration::from_secs(30);

impl PeerAgent {
    /// Creates a delegation, which is sent when it is awaited. It resolves to a handle when the
    /// other agent has accepted the task; the result comes later.
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
    ///             // Until the task is cancelled.
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
    /// assert_eq!(refused.to_string(), "the other agent rejected the task: no tiles (not_authorized)");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// After a late `ack`, the same task with the same [`id`](DelegateBuilder::id) may be sent again on
    /// this connection. The other agent runs it once: it answers as before, and sends the end again if
    /// the task has ended. Another task with that id is refused with the code `conflict`. Another
    /// connection does not remember the task, so it runs there again.
    ///
    /// # Errors
    ///
    /// [`Error::Declined`] if the other agent rejects the task, [`Error::Response`] with the code
    /// `overloaded` if it has no free slot, [`Error::Timeout`] if the `ack` is late, [`Error::IdInUse`] while there is
    /// another [`Delegation`] with the id, and the errors of [`query`](Self::query).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future withdraws the task unless the other agent has already accepted it.
    pub fn delegate(&self, task: impl Into<String>) -> DelegateBuilder {
        let delegate = Delegate::new(task).report_back(true);
        DelegateBuilder { peer: self.clone(), delegate, ack_timeout: ACK, options: MessageOptions::here() }
    }

    /// Creates a request to cancel a task of this connection by its id, which is sent when it is awaited.
    /// It needs no handle on the task. If the task does not stop, the ack is not `accepted` and gives a reason such
    /// as `already_finished` or `not_found`.
    ///
    /// # Errors
    ///
    /// The errors of [`query`](Self::query), with a timeout of 30 seconds.
    ///
    /// # Cancel safety
    ///
    /// That of [`Delegation::cancel`].
    pub fn cancel(&self, task: impl Into<EnvelopeId>) -> CancelBuilder {
        let options = MessageOptions::about(task.into());
        CancelBuilder { peer: self.clone(), cancel: Cancel::new(), options }
    }
}

/// A delegation before it is sent; see [`PeerAgent::delegate`].
#[must_use = "the delegation is sent when it is awaited"]
#[derive(Debug)]
pub struct DelegateBuilder {
    peer: PeerAgent,
    delegate: Delegate,
    ack_timeout: Duration,
    options: MessageOptions,
}

message_options!([] DelegateBuilder);
with_attachments!([] DelegateBuilder, delegate);

impl DelegateBuilder {
    /// Sets additional data for the task.
    pub fn context(mut self, context: impl Into<Members>) -> Self {
        self.delegate = self.delegate.context(context);
        self
    }

    /// Sets the priority; [`Priority::Normal`] by default.
    pub fn priority(mut self, priority: Priority) -> Self {
        self.delegate = self.delegate.priority(priority);
        self
    }

    /// Sets the priority [`Priority::Urgent`]: the task may use the one slot that is reserved for
    /// urgent tasks, and other work may be interrupted for it.
    pub fn urgent(self) -> Self {
        self.priority(Priority::Urgent)
    }

    /// Sets if a result is sent; `true` by default.
    pub fn report_back(mut self, report_back: bool) -> Self {
        self.delegate = self.delegate.report_back(report_back);
        self
    }

    /// Sets how long the other agent may work on the accepted task; there is no limit by default.
    /// This side does not enforce it: [`Delegation::result`] waits until the other agent reports
    /// the end.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.delegate = self.delegate.deadline_ms(millis(deadline));
        self
    }

    /// Sets the timeout for the `ack`; 30 seconds by default.
    pub fn ack_timeout(mut self, ack_timeout: Duration) -> Self {
        self.ack_timeout = ack_timeout;
        self
    }

    async fn send(self) -> Result<Delegation> {
        let DelegateBuilder { peer, delegate, ack_timeout, options } = self;
        peer.require(EnvelopeKind::Delegate)?;
        let reports = delegate.wants_report();
        let message = peer.prepare(delegate, options)?;
        let id = message.envelope.id.clone();
        let signal = reports.then(|| DelegationSignal::new(id.clone()));
        // Registered before the request is sent: the result may arrive before the `ack`.
        if !peer.link.envelopes.with(|machine| machine.add_delegation(&id, signal.clone())) {
            return Err(Error::IdInUse { id });
        }
        let mut delegation = Delegation { peer, id, estimated: None, ack_meta: None, signal };
        match delegation.peer.post(message)?.answer::<Delegate>(ack_timeout).await {
            Ok(EnvelopeResult { envelope: ack, meta, .. }) if ack.payload.accepted => {
                delegation.estimated = ack.payload.estimated_ms.map(Duration::from_millis);
                delegation.ack_meta = meta;
                Ok(delegation)
            }
            Ok(ack) => Err(Error::Declined(AnswerError::new(refusal(ack.envelope.payload), ack.meta))),
            Err(error @ Error::Response(_)) => Err(error),
            Err(error) => {
                let envelopes = &delegation.peer.link.envelopes;
                match envelopes.with(|machine| machine.end_of(&delegation.id).cloned()) {
                    // A result implies that the task was accepted, even if the `ack` is lost.
                    Some(DelegationEnd::Result(..)) => Ok(delegation),
                    Some(DelegationEnd::Lost(why)) => Err(why),
                    _ => Err(error),
                }
            }
        }
    }
}

impl IntoFuture for DelegateBuilder {
    type Output = Result<Delegation>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

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

/// The part of a delegation that is woken: the waiters for its end, its progress and its output.
#[derive(Clone)]
pub(crate) struct DelegationSignal {
    pub(crate) id: EnvelopeId,
    /// Cancelled when the end of the task has been stored.
    pub(crate) over: CancellationToken,
    pub(crate) progress: Arc<SubscriptionQueue>,
    pub(crate) output: Arc<SubscriptionQueue>,
    /// The chunks of the output that wait for their turn.
    pub(crate) order: Arc<Mutex<OutputOrder>>,
}

impl DelegationSignal {
    pub(crate) fn new(id: EnvelopeId) -> Self {
        DelegationSignal {
            id,
            over: CancellationToken::new(),
            progress: SubscriptionQueue::new(),
            output: SubscriptionQueue::for_output(),
            order: Arc::default(),
        }
    }
}

/// The end of a delegation. The number is the size of its message on the wire.
#[derive(Clone)]
pub(crate) enum DelegationEnd {
    Result(EnvelopeResult<DelegationOutcome>, usize),
    Error(EnvelopeResult<EnvelopeError>, usize),
    Lost(Error),
}

/// A task that the other agent has accepted.
///
/// Dropping the handle does not stop the task. Its result then goes to
/// [`EnvelopeHandler::result`](super::EnvelopeHandler::result), as does one that has arrived but
/// was not read. A result that arrived before the connection ended is delivered too if the handle
/// is dropped inside a runtime.
pub struct Delegation {
    peer: PeerAgent,
    id: EnvelopeId,
    estimated: Option<Duration>,
    ack_meta: Option<Meta>,
    /// `None` if no report was requested.
    signal: Option<DelegationSignal>,
}

impl Delegation {
    /// Returns the id of the delegation. All messages about it carry this id as `ref`.
    #[must_use]
    pub fn id(&self) -> &EnvelopeId {
        &self.id
    }

    /// Returns the other agent's estimate of the duration, if it gave one.
    #[must_use]
    pub fn estimated(&self) -> Option<Duration> {
        self.estimated
    }

    /// Returns the `_meta` beside the ack.
    #[must_use]
    pub fn ack_meta(&self) -> Option<&Meta> {
        self.ack_meta.as_ref()
    }

    /// Returns true if the task has ended, so that [`result`](Self::result) returns at once. It is false
    /// if no report was requested.
    #[must_use]
    pub fn is_over(&self) -> bool {
        let id = self.signal.as_ref().map(|signal| &signal.id);
        id.is_some_and(|id| self.peer.link.envelopes.with(|machine| machine.end_of(id).is_some()))
    }

    /// Waits for the end of the task. Later calls return the same result.
    ///
    /// A [`DelegationOutcome`] may report a failure: see its status. The message is the first one of this connection about
    /// the task. Its `from` is not compared with the agent that has the task, because the other end may forward messages:
    /// see [`received`](Self::received) for it, and a dialogue for a proof of the sender.
    ///
    /// # Errors
    ///
    /// [`Error::Response`] if the other agent ends the task with an error: `cancelled` after
    /// [`cancel`](Self::cancel), `timeout` after the deadline. [`Error::NoReport`] at once if the
    /// task was delegated with `report_back(false)`. [`Error::Answer`] if the message that ends the
    /// task is invalid. [`Error::Connection`] if the connection ends.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub async fn result(&self) -> Result<DelegationOutcome> {
        self.received().await.map(|result| result.envelope.payload)
    }

    /// Waits for the end of the task as [`result`](Self::result) does, and returns the whole message
    /// with its `_meta`.
    ///
    /// # Errors
    ///
    /// Those of [`result`](Self::result).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub async fn received(&self) -> Result<Received<DelegationOutcome>> {
        let Some(signal) = &self.signal else { return Err(Error::NoReport) };
        signal.over.cancelled().await;
        match self.peer.link.envelopes.with(|machine| machine.claim(&self.id)) {
            Some(DelegationEnd::Result(end, _)) => Ok(self.message(end)),
            Some(DelegationEnd::Error(end, _)) => {
                Err(Error::Response(AnswerError::new(end.envelope.payload, end.meta)))
            }
            Some(DelegationEnd::Lost(error)) => Err(error),
            // The end is kept as long as the handle, so it is always there.
            None => Err(Error::Cancelled),
        }
    }

    /// Creates a request to stop the task, which is sent when it is awaited. The task usually ends with the error
    /// `cancelled`.
    ///
    /// If the task does not stop, the ack is not `accepted` and gives a reason such as
    /// `already_finished`.
    ///
    /// # Errors
    ///
    /// The errors of [`PeerAgent::query`], with a timeout of 30 seconds.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future withdraws the request. The task may still stop, because the other agent
    /// may have received it.
    pub fn cancel(&self, reason: impl Into<String>) -> CancelBuilder {
        self.peer.cancel(&self.id).reason(reason)
    }

    /// Returns the state of the task; see [`PeerAgent::task_status`].
    ///
    /// # Errors
    ///
    /// Those of [`PeerAgent::task_status`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future withdraws the request.
    pub async fn status(&self) -> Result<TaskStatus> {
        self.peer.task_status(&self.id).await
    }

    /// Returns the progress notifications of the task, from its start to its end. Without a report
    /// there are none. With several streams, each notification goes to one of them.
    pub fn progress(&self) -> Subscription {
        match &self.signal {
            Some(signal) => Subscription::new(signal.progress.clone(), None),
            None => Subscription::ended(),
        }
    }
}

impl Delegation {
    /// Returns the streamed output of the task, from its start to its last chunk or to its end. Without
    /// a report there is none. With several streams, each chunk goes to one of them, and a later stream
    /// continues where the others are.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/doc/pair.in"));
    /// # use duologue_exchange::envelope::*;
    /// struct Writer;
    ///
    /// impl EnvelopeHandler for Writer {
    ///     fn capabilities(&self) -> Capabilities {
    ///         Capabilities::new("writer").max_concurrent_tasks(1)
    ///     }
    ///
    ///     async fn delegate(&self, task: ReceivedTask) -> Result<DelegationOutcome, EnvelopeError> {
    ///         task.output("Once ").await?;
    ///         task.output("upon a time").last().await?;
    ///         Ok(DelegationOutcome::new(OutcomeStatus::Completed))
    ///     }
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let peer = agent_that_answers_with(Writer);
    /// let task = peer.delegate("Write a story").await?;
    /// let (mut output, mut story) = (task.output(), String::new());
    /// while let Some(chunk) = output.next().await {
    ///     story += &chunk?.text().unwrap_or_default();
    /// }
    /// assert_eq!(story, "Once upon a time");
    /// assert!(output.is_complete());
    /// # Ok(())
    /// # }
    /// ```
    pub fn output(&self) -> OutputStream {
        match &self.signal {
            Some(signal) => {
                OutputStream::new(Subscription::new(signal.output.clone(), None), signal.order.clone())
            }
            None => OutputStream::new(Subscription::ended(), Arc::default()),
        }
    }

    fn message<P>(&self, end: EnvelopeResult<P>) -> Received<P> {
        Received::new(end.envelope, self.peer.clone(), Hops::default(), end.meta)
    }
}

/// A request to cancel a task before it is sent; see [`PeerAgent::cancel`] and [`Delegation::cancel`].
#[must_use = "the request is sent when it is awaited"]
#[derive(Clone, Debug)]
pub struct CancelBuilder {
    peer: PeerAgent,
    cancel: Cancel,
    options: MessageOptions,
}

message_options!([] CancelBuilder);

impl CancelBuilder {
    /// Sets the reason in natural language.
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.cancel = self.cancel.reason(reason);
        self
    }
}

impl IntoFuture for CancelBuilder {
    type Output = Result<Ack>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        let CancelBuilder { peer, cancel, options } = self;
        Box::pin(async move {
            let message = peer.prepare(cancel, options)?;
            peer.ask(message, ACK).await.map(|ack| ack.envelope.payload)
        })
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
        // Without a report there is no end. The entry of this id is that of another delegation.
        if self.signal.is_none() {
            return;
        }
        let link = &self.peer.link;
        let (message, bytes) = match link.envelopes.with(|machine| machine.drop_delegation(&self.id)) {
            Some(DelegationEnd::Result(envelope, bytes)) => {
                (HandlerNotification::Result(self.message(envelope)), bytes)
            }
            Some(DelegationEnd::Error(envelope, bytes)) => {
                (HandlerNotification::Error(self.message(envelope)), bytes)
            }
            Some(DelegationEnd::Lost(_)) | None => return,
        };
        inbox::deliver_unclaimed(link, message, bytes);
    }
}
