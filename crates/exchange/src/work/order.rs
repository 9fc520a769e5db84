//! A received work order with its context.

use std::ops::Deref;

use duologue_rpc::{CancellationToken, MessageMeta};
use duologue_schema::work::WorkInput;
use duologue_schema::{Meta, SessionId, TraceContext};

use crate::PeerAgent;

/// A work order for a [`Worker`](super::Worker). It derefs to its [`WorkInput`].
///
/// ```
/// use duologue_exchange::envelope::EnvelopeError;
/// use duologue_exchange::work::{Recommendation, WorkOrder, WorkOutput};
///
/// async fn work(order: WorkOrder) -> Result<WorkOutput, EnvelopeError> {
///     if let (Some(peer), Some(_)) = (&order.peer, order.session_id()) {
///         peer.notify("task.progress", order.task.action.as_str()).await?;
///     }
///     // The output belongs to the trace of the order.
///     if let Some(trace) = order.trace_context() {
///         order.set_answer_meta(trace);
///     }
///     Ok(WorkOutput::new(true, "Done.", [], Recommendation::Proceed))
/// }
/// # let _ = work;
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WorkOrder {
    /// The order.
    pub input: WorkInput,
    /// The id that its sender chose; see [`WorkBuilder::id`](super::WorkBuilder::id).
    pub id: Option<String>,
    /// A handle on the sender, in the session of the order. `None` for an order of a local
    /// [`Workflow`](super::Workflow).
    pub peer: Option<PeerAgent>,
    meta: MessageMeta,
    withdrawn: Option<CancellationToken>,
}

impl WorkOrder {
    pub(crate) fn received(
        input: WorkInput,
        id: Option<String>,
        peer: PeerAgent,
        meta: Option<Meta>,
        withdrawn: CancellationToken,
    ) -> Self {
        WorkOrder {
            id,
            peer: Some(peer),
            meta: meta.into(),
            withdrawn: Some(withdrawn),
            ..WorkOrder::from(input)
        }
    }

    /// Sets the `_meta` of a local order.
    #[must_use]
    pub fn with_meta(mut self, meta: impl Into<Option<Meta>>) -> Self {
        self.meta = meta.into().into();
        self
    }

    /// Returns the `_meta` beside the order.
    #[must_use]
    pub fn meta(&self) -> Option<&Meta> {
        self.meta.received()
    }

    /// Returns the trace context in the `_meta`, to pass it on.
    #[must_use]
    pub fn trace_context(&self) -> Option<TraceContext> {
        self.meta.trace_context()
    }

    /// Returns the session of the order, if it has one.
    #[must_use]
    pub fn session_id(&self) -> Option<&SessionId> {
        self.peer.as_ref()?.session()
    }

    /// Returns true if the sender withdrew the order or the connection has ended. A local order is
    /// withdrawn by dropping its future. An order with an id is withdrawn when every call that waits for
    /// it is.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.withdrawn.as_ref().is_some_and(CancellationToken::is_cancelled)
    }

    /// Waits until the sender withdraws the order or the connection ends. The worker has a second to
    /// return then. For a local order it waits for ever.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    pub async fn cancelled(&self) {
        match &self.withdrawn {
            Some(withdrawn) => withdrawn.cancelled().await,
            None => std::future::pending().await,
        }
    }

    /// Sets the `_meta` beside the output.
    pub fn set_answer_meta(&self, meta: impl Into<Meta>) {
        self.meta.set_answer(meta);
    }

    /// Returns the place of the `_meta` beside the output.
    pub(crate) fn answer_meta(&self) -> MessageMeta {
        self.meta.without_received()
    }
}

/// Creates a local order.
impl From<WorkInput> for WorkOrder {
    fn from(input: WorkInput) -> Self {
        WorkOrder { input, id: None, peer: None, meta: MessageMeta::default(), withdrawn: None }
    }
}

impl Deref for WorkOrder {
    type Target = WorkInput;

    fn deref(&self) -> &WorkInput {
        &self.input
    }
}
