//! The trait for handlers of envelopes.

use std::future::{Future, ready};
use std::sync::Arc;

use duologue_schema::envelope::{
    Ack, Cancel, Capabilities, Delegate, DelegationOutcome, EnvelopeError, EnvelopeErrorCode, Notify,
    Payload, Query, QueryResponse,
};
use futures::future::BoxFuture;

use super::inbox::HandlerNotification;
use super::{Received, ReceivedTask};

/// Handles the other agent's envelopes: one method for each kind that can arrive.
///
/// `ping` has no method because it is answered even while every handler is busy. `pong`,
/// `response`, `ack` and `capabilities` have none because they go to the caller that waits for
/// them.
///
/// [`query`](Self::query), [`accept`](Self::accept), [`delegate`](Self::delegate) and
/// [`cancel`](Self::cancel) run in one task for each message. They may await anything, including
/// calls to the same agent. A cancelled one is dropped after
/// [`Limits::cancel_grace`](duologue_rpc::Limits::cancel_grace). [`notify`](Self::notify),
/// [`result`](Self::result) and [`error`](Self::error) run one after the other in the order of
/// arrival, so a slow one delays the next.
///
/// ```
/// use duologue_exchange::envelope::{
///     ReceivedTask, Capabilities, EnvelopeHandler, DelegationOutcome, EnvelopeError, OutcomeStatus, Query, QueryResponse, Received,
/// };
///
/// struct Painter;
///
/// impl EnvelopeHandler for Painter {
///     fn capabilities(&self) -> Capabilities {
///         Capabilities::new("painter").domains(["work.paint".to_owned()]).max_concurrent_tasks(2)
///     }
///
///     async fn query(&self, query: Received<Query>) -> Result<QueryResponse, EnvelopeError> {
///         match query.domain.as_deref() {
///             Some("work.paint") => Ok(QueryResponse::new("Blue is out of stock")),
///             other => Err(EnvelopeError::unknown_domain(other.unwrap_or("anything"))),
///         }
///     }
///
///     async fn delegate(&self, task: ReceivedTask) -> Result<DelegationOutcome, EnvelopeError> {
///         task.progress(serde_json::json!("the first coat is on")).await?;
///         Ok(DelegationOutcome::new(OutcomeStatus::Completed).outcome(format!("done: {}", task.task)))
///     }
/// }
///
/// # use duologue_exchange::Exchange;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> duologue_exchange::Result<()> {
/// // A test needs no process: messages are only made by a connection, and one in memory will do.
/// let (painter, _) = Exchange::new().in_memory(Exchange::new().envelope_handler(Painter));
/// let task = painter.delegate("the kitchen").await?;
/// assert_eq!(task.result().await?.outcome, "done: the kitchen");
/// # Ok(())
/// # }
/// ```
pub trait EnvelopeHandler: Send + Sync + 'static {
    /// Returns the response to `discover`: our name, our domains, and the number of concurrent
    /// delegations besides one urgent task. With `max_concurrent_tasks` 0, the default, every
    /// delegation is rejected.
    ///
    /// It is called when the connection starts and for each `discover` and `delegate`, by the
    /// connection's reader, so it must return at once. A `ping` is answered from the last returned
    /// value.
    fn capabilities(&self) -> Capabilities {
        Capabilities::new("")
    }

    /// Answers a query. The query may be about a domain that was not declared.
    ///
    /// # Errors
    ///
    /// The error is sent as the response.
    fn query(
        &self,
        query: Received<Query>,
    ) -> impl Future<Output = Result<QueryResponse, EnvelopeError>> + Send {
        let _ = query;
        ready(Err(not_handled::<Query>()))
    }

    /// Accepts or rejects a task; accepts by default. It should return quickly, because the other
    /// agent waits and the task already occupies its slot. The ack may carry an estimated duration.
    ///
    /// # Errors
    ///
    /// The error is the reason for the rejection.
    fn accept(&self, task: &ReceivedTask) -> impl Future<Output = Result<Ack, EnvelopeError>> + Send {
        let _ = task;
        ready(Ok(Ack::new(true)))
    }

    /// Performs an accepted task. The result is sent to the other agent unless it requested no
    /// report.
    ///
    /// # Errors
    ///
    /// The error ends the task. It is sent as `cancelled` after a cancellation and as `timeout`
    /// after the deadline.
    fn delegate(
        &self,
        task: ReceivedTask,
    ) -> impl Future<Output = Result<DelegationOutcome, EnvelopeError>> + Send {
        let _ = task;
        ready(Err(not_handled::<Delegate>()))
    }

    /// Accepts or rejects a cancellation; it should return quickly. With `Ok`, the default, the
    /// cancellation is acknowledged and [`ReceivedTask::cancelled`] returns.
    ///
    /// # Errors
    ///
    /// The error is the reason for the rejection; the task continues.
    fn cancel(
        &self,
        cancel: Received<Cancel>,
        task: &ReceivedTask,
    ) -> impl Future<Output = Result<(), EnvelopeError>> + Send {
        let _ = (cancel, task);
        ready(Ok(()))
    }

    /// Receives a notification. A repeated message is delivered only once.
    fn notify(&self, notification: Received<Notify>) -> impl Future<Output = ()> + Send {
        let _ = notification;
        ready(())
    }

    /// Receives the end of a task whose [`Delegation`](super::Delegation) was dropped, or that was
    /// delegated on an earlier connection.
    fn result(&self, result: Received<DelegationOutcome>) -> impl Future<Output = ()> + Send {
        tracing::debug!(of = ?result.envelope.reference, "a result without a receiver");
        ready(())
    }

    /// Receives an error that belongs to no pending request, for example about a notification.
    /// Errors are never answered.
    fn error(&self, error: Received<EnvelopeError>) -> impl Future<Output = ()> + Send {
        tracing::debug!(of = ?error.envelope.reference, fault = %*error, "an error without a receiver");
        ready(())
    }
}

/// Answers `ping` and `discover`, and rejects everything else.
impl EnvelopeHandler for () {}

impl<H: EnvelopeHandler> EnvelopeHandler for Arc<H> {
    fn capabilities(&self) -> Capabilities {
        H::capabilities(self)
    }

    fn query(
        &self,
        query: Received<Query>,
    ) -> impl Future<Output = Result<QueryResponse, EnvelopeError>> + Send {
        H::query(self, query)
    }

    fn accept(&self, task: &ReceivedTask) -> impl Future<Output = Result<Ack, EnvelopeError>> + Send {
        H::accept(self, task)
    }

    fn delegate(
        &self,
        task: ReceivedTask,
    ) -> impl Future<Output = Result<DelegationOutcome, EnvelopeError>> + Send {
        H::delegate(self, task)
    }

    fn cancel(
        &self,
        cancel: Received<Cancel>,
        task: &ReceivedTask,
    ) -> impl Future<Output = Result<(), EnvelopeError>> + Send {
        H::cancel(self, cancel, task)
    }

    fn notify(&self, notification: Received<Notify>) -> impl Future<Output = ()> + Send {
        H::notify(self, notification)
    }

    fn result(&self, result: Received<DelegationOutcome>) -> impl Future<Output = ()> + Send {
        H::result(self, result)
    }

    fn error(&self, error: Received<EnvelopeError>) -> impl Future<Output = ()> + Send {
        H::error(self, error)
    }
}

fn not_handled<P: Payload>() -> EnvelopeError {
    EnvelopeError::of(EnvelopeErrorCode::UnknownKind, format!("{} is not handled here", P::KIND))
}

/// Returns the error for a delegation if this side accepts none.
pub(crate) fn no_slots() -> EnvelopeError {
    let EnvelopeError { message, .. } = not_handled::<Delegate>();
    EnvelopeError::of(EnvelopeErrorCode::UnknownKind, format!("{message}: max_concurrent_tasks is 0"))
}

/// An object-safe [`EnvelopeHandler`].
pub(crate) trait ErasedEnvelopeHandler: Send + Sync {
    fn capabilities(&self) -> Capabilities;
    fn query(
        self: Arc<Self>,
        query: Received<Query>,
    ) -> BoxFuture<'static, Result<QueryResponse, EnvelopeError>>;
    fn accept(self: Arc<Self>, task: ReceivedTask) -> BoxFuture<'static, Result<Ack, EnvelopeError>>;
    fn delegate(
        self: Arc<Self>,
        task: ReceivedTask,
    ) -> BoxFuture<'static, Result<DelegationOutcome, EnvelopeError>>;
    fn cancel(
        self: Arc<Self>,
        cancel: Received<Cancel>,
        task: ReceivedTask,
    ) -> BoxFuture<'static, Result<(), EnvelopeError>>;
    fn receive(self: Arc<Self>, notification: HandlerNotification) -> BoxFuture<'static, ()>;
}

impl<C: EnvelopeHandler> ErasedEnvelopeHandler for C {
    fn capabilities(&self) -> Capabilities {
        EnvelopeHandler::capabilities(self)
    }

    fn query(
        self: Arc<Self>,
        query: Received<Query>,
    ) -> BoxFuture<'static, Result<QueryResponse, EnvelopeError>> {
        Box::pin(async move { EnvelopeHandler::query(&*self, query).await })
    }

    fn accept(self: Arc<Self>, task: ReceivedTask) -> BoxFuture<'static, Result<Ack, EnvelopeError>> {
        Box::pin(async move { EnvelopeHandler::accept(&*self, &task).await })
    }

    fn delegate(
        self: Arc<Self>,
        task: ReceivedTask,
    ) -> BoxFuture<'static, Result<DelegationOutcome, EnvelopeError>> {
        Box::pin(async move { EnvelopeHandler::delegate(&*self, task).await })
    }

    fn cancel(
        self: Arc<Self>,
        cancel: Received<Cancel>,
        task: ReceivedTask,
    ) -> BoxFuture<'static, Result<(), EnvelopeError>> {
        Box::pin(async move { EnvelopeHandler::cancel(&*self, cancel, &task).await })
    }

    fn receive(self: Arc<Self>, notification: HandlerNotification) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            match notification {
                HandlerNotification::Notify(notification) => {
                    EnvelopeHandler::notify(&*self, notification).await
                }
                HandlerNotification::Result(result) => EnvelopeHandler::result(&*self, result).await,
                HandlerNotification::Error(error) => EnvelopeHandler::error(&*self, error).await,
            }
        })
    }
}
