//! Who answers the envelopes of the other agent.

use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::Arc;

use duologue_schema::envelope::{
    Ack, Cancel, Capabilities, Delegate, DelegationOutcome, EnvelopeError, EnvelopeErrorCode, Notify,
    Payload, Query, QueryResponse,
};

use super::inbox::HandlerNotification;
use super::{Received, ReceivedTask};

/// Answers the other agent's envelopes: one method for each kind that can arrive.
///
/// `ping` has none, since it is answered even while every handler is busy, and neither have `pong`,
/// `response`, `ack` and `capabilities`: they are answers, and go to whoever asked.
///
/// [`query`](Self::query), [`accept`](Self::accept), [`delegate`](Self::delegate) and
/// [`cancel`](Self::cancel) run in a task of their own for each message and may await anything, questions to
/// the same agent included. One that is cancelled is dropped after
/// [`Limits::cancel_grace`](duologue_rpc::Limits::cancel_grace). [`notify`](Self::notify),
/// [`result`](Self::result) and [`error`](Self::error) are called one after the other, in the order of the
/// wire: what takes long there keeps the others waiting.
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
///         task.progress(serde_json::json!("the first coat is on")).await.map_err(|error| error.fault())?;
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
    /// The answer to `discover`: who we are, what we know about, and how many delegations we work on at
    /// once, an urgent one above that aside. With `max_concurrent_tasks` 0, the default, none is taken.
    ///
    /// It is called when the connection begins, and by its reader for each `discover` and `delegate`: it must
    /// return at once. A `ping` is answered from what it said last.
    fn capabilities(&self) -> Capabilities {
        Capabilities::new("")
    }

    /// Answers a question. It may be about a domain that was not declared.
    ///
    /// # Errors
    ///
    /// The fault is the answer.
    fn query(
        &self,
        query: Received<Query>,
    ) -> impl Future<Output = Result<QueryResponse, EnvelopeError>> + Send {
        let _ = query;
        ready(Err(not_handled::<Query>()))
    }

    /// Decides quickly whether to take a task on: the other agent waits for it, and the task has its slot
    /// already. Accepts by default. The ack may estimate how long the task takes.
    ///
    /// # Errors
    ///
    /// The fault is why not.
    fn accept(&self, task: &ReceivedTask) -> impl Future<Output = Result<Ack, EnvelopeError>> + Send {
        let _ = task;
        ready(Ok(Ack::new(true)))
    }

    /// Does a task that was taken on. Its end is sent to the other agent, unless it wants no report.
    ///
    /// # Errors
    ///
    /// The fault is the end of the task. After a cancellation it is sent as `cancelled`, after the
    /// deadline as `timeout`.
    fn delegate(
        &self,
        task: ReceivedTask,
    ) -> impl Future<Output = Result<DelegationOutcome, EnvelopeError>> + Send {
        let _ = task;
        ready(Err(not_handled::<Delegate>()))
    }

    /// Decides quickly whether a task is to stop. With `Ok`, the default, the other agent is told so and
    /// [`ReceivedTask::cancelled`] returns.
    ///
    /// # Errors
    ///
    /// The fault is why not; the task goes on.
    fn cancel(
        &self,
        cancel: Received<Cancel>,
        task: &ReceivedTask,
    ) -> impl Future<Output = Result<(), EnvelopeError>> + Send {
        let _ = (cancel, task);
        ready(Ok(()))
    }

    /// Hears news. The same message is heard once, however often it comes.
    fn notify(&self, news: Received<Notify>) -> impl Future<Output = ()> + Send {
        let _ = news;
        ready(())
    }

    /// Hears of the end of a task whose [`Delegation`](super::Delegation) has been dropped, or that
    /// was delegated before the connection was there.
    fn result(&self, result: Received<DelegationOutcome>) -> impl Future<Output = ()> + Send {
        tracing::debug!(of = ?result.envelope.reference, "nobody waits for a result");
        ready(())
    }

    /// Hears of an error that belongs to nothing that waits: to a notification, for instance. It is not
    /// answered.
    fn error(&self, error: Received<EnvelopeError>) -> impl Future<Output = ()> + Send {
        tracing::debug!(of = ?error.envelope.reference, fault = %*error, "the other agent complains");
        ready(())
    }
}

/// Answers `ping` and `discover`, and refuses the rest.
impl EnvelopeHandler for () {}

fn not_handled<P: Payload>() -> EnvelopeError {
    EnvelopeError::of(EnvelopeErrorCode::UnknownKind, format!("{} is not handled here", P::KIND))
}

/// Why a delegation is refused by those who take none.
pub(crate) fn takes_none() -> EnvelopeError {
    let EnvelopeError { message, .. } = not_handled::<Delegate>();
    EnvelopeError::of(EnvelopeErrorCode::UnknownKind, format!("{message}: max_concurrent_tasks is 0"))
}

type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A [`EnvelopeHandler`] without its type.
pub(crate) trait ErasedEnvelopeHandler: Send + Sync {
    fn capabilities(&self) -> Capabilities;
    fn query(self: Arc<Self>, query: Received<Query>) -> Boxed<Result<QueryResponse, EnvelopeError>>;
    fn accept(self: Arc<Self>, task: ReceivedTask) -> Boxed<Result<Ack, EnvelopeError>>;
    fn delegate(self: Arc<Self>, task: ReceivedTask) -> Boxed<Result<DelegationOutcome, EnvelopeError>>;
    fn cancel(
        self: Arc<Self>,
        cancel: Received<Cancel>,
        task: ReceivedTask,
    ) -> Boxed<Result<(), EnvelopeError>>;
    fn hear(self: Arc<Self>, news: HandlerNotification) -> Boxed<()>;
}

impl<C: EnvelopeHandler> ErasedEnvelopeHandler for C {
    fn capabilities(&self) -> Capabilities {
        EnvelopeHandler::capabilities(self)
    }

    fn query(self: Arc<Self>, query: Received<Query>) -> Boxed<Result<QueryResponse, EnvelopeError>> {
        Box::pin(async move { EnvelopeHandler::query(&*self, query).await })
    }

    fn accept(self: Arc<Self>, task: ReceivedTask) -> Boxed<Result<Ack, EnvelopeError>> {
        Box::pin(async move { EnvelopeHandler::accept(&*self, &task).await })
    }

    fn delegate(self: Arc<Self>, task: ReceivedTask) -> Boxed<Result<DelegationOutcome, EnvelopeError>> {
        Box::pin(async move { EnvelopeHandler::delegate(&*self, task).await })
    }

    fn cancel(
        self: Arc<Self>,
        cancel: Received<Cancel>,
        task: ReceivedTask,
    ) -> Boxed<Result<(), EnvelopeError>> {
        Box::pin(async move { EnvelopeHandler::cancel(&*self, cancel, &task).await })
    }

    fn hear(self: Arc<Self>, news: HandlerNotification) -> Boxed<()> {
        Box::pin(async move {
            match news {
                HandlerNotification::Notify(news) => EnvelopeHandler::notify(&*self, news).await,
                HandlerNotification::Result(result) => EnvelopeHandler::result(&*self, result).await,
                HandlerNotification::Error(error) => EnvelopeHandler::error(&*self, error).await,
            }
        })
    }
}
