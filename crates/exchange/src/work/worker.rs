//! The trait for handlers of work orders, and the routing of orders.

use std::future::{Future, IntoFuture};
use std::sync::Arc;

use duologue_rpc::{Error as RpcError, Incoming, Responder};
use duologue_schema::envelope::{EnvelopeError, EnvelopeErrorCode};
use duologue_schema::params_fault;
use duologue_schema::work::{ORDER_ID_CHARS, WorkInput, WorkOutput, WorkParams, WorkResult};
use duologue_schema::{DuologueCapabilities, Error as WireError, Meta, Request, TraceContext};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde_json::value::RawValue;

use super::order::WorkOrder;
use super::order_cache::WorkOutcome;
use crate::error::{AnswerError, Error, Result, answer_of, meta_of};
use crate::hops::Hops;
use crate::peer_agent::PeerAgent;
use crate::service::{ExchangeService, SessionLookup};

/// Performs work orders. The order is the only input.
///
/// Each order runs in its own task. It is dropped at its await point one second after the other
/// side has withdrawn the order or the connection has ended. Keep no state between orders: the next
/// one may go to another worker.
///
/// Check the files in the order's paths to decide if an artifact is created or updated. The
/// iteration is not an indication: a first iteration may have written nothing.
///
/// Functions and closures are workers, and a worker in an [`Arc`] is one. A [`PeerAgent`] is a worker
/// that forwards the order: a local one with its `_meta` and its id, a received one with its trace
/// context alone. The id and the other metadata of a received order are for this agent only. A repeated
/// order is performed once here, so it is forwarded once.
///
/// ```
/// use duologue_exchange::Exchange;
/// use duologue_exchange::envelope::EnvelopeError;
/// use duologue_exchange::work::{Artifact, WorkOrder, WorkOutput, Recommendation, Worker};
///
/// struct Specifier;
///
/// impl Worker for Specifier {
///     async fn work(&self, order: WorkOrder) -> Result<WorkOutput, EnvelopeError> {
///         let text = format!("# {}\n", order.context.feature_id);
///         // It may have been here before: a validator sends a workflow back.
///         let is_there = std::fs::exists("features/login/spec.md").unwrap_or(false);
///         let spec = if is_there { Artifact::update("spec.md", text) } else { Artifact::create("spec.md", text) };
///         Ok(WorkOutput::new(true, "Wrote the specification.", [spec], Recommendation::Proceed))
///     }
/// }
///
/// let exchange = Exchange::new().work(Specifier);
/// # let _ = exchange;
/// ```
pub trait Worker: Send + Sync + 'static {
    /// Performs one order.
    ///
    /// # Errors
    ///
    /// Only for an order that could not be attempted, because of an unknown action or a missing
    /// tool. A step that was attempted and failed is a [`WorkOutput`] whose `success` is false.
    fn work(&self, order: WorkOrder) -> impl Future<Output = Result<WorkOutput, EnvelopeError>> + Send;
}

impl<F, Working> Worker for F
where
    F: Fn(WorkOrder) -> Working + Send + Sync + 'static,
    Working: Future<Output = Result<WorkOutput, EnvelopeError>> + Send,
{
    fn work(&self, order: WorkOrder) -> impl Future<Output = Result<WorkOutput, EnvelopeError>> + Send {
        self(order)
    }
}

impl<W: Worker> Worker for Arc<W> {
    fn work(&self, order: WorkOrder) -> impl Future<Output = Result<WorkOutput, EnvelopeError>> + Send {
        (**self).work(order)
    }
}

impl Worker for PeerAgent {
    async fn work(&self, order: WorkOrder) -> Result<WorkOutput, EnvelopeError> {
        let mut call = PeerAgent::work(self, order.input.clone());
        if order.peer.is_none() {
            call.params.meta = order.meta().cloned();
            call.params.order_id.clone_from(&order.id);
        }
        let result =
            call.trace_context(order.trace_context()).result().await.map_err(|error| error.fault())?;
        if let Some(meta) = result.meta {
            order.set_answer_meta(meta);
        }
        Ok(result.output)
    }
}

impl PeerAgent {
    /// Creates a work order, which is sent when it is awaited. It resolves to its output, without a
    /// timeout. An order needs no session; a handle with a session sends its id along.
    ///
    /// ```no_run
    /// # async fn run(peer: duologue_exchange::PeerAgent) -> Result<(), Box<dyn std::error::Error>> {
    /// use duologue_exchange::work::{WorkContext, WorkInput, WorkTask, apply_artifacts};
    /// use duologue_schema::Members;
    ///
    /// let context = WorkContext::new("login", "feature", 1);
    /// let task = WorkTask::new("specify", Members::new());
    /// let input = WorkInput::new(context, [("feature_root", "features/login")], task);
    /// let output = peer.work(input.clone()).await?;
    /// println!("{}", output.summary);
    /// apply_artifacts("/home/me/project", &input, &output)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::NotSupported`] if the other side does not support work orders; nothing was sent
    /// then. [`Error::Response`] if the order could not be attempted, [`Error::TooManyHops`] in a
    /// handler, and [`Error::Connection`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future withdraws the order.
    pub fn work(&self, input: WorkInput) -> WorkBuilder {
        let mut params = WorkParams::new(input);
        params.session_id = self.session().cloned();
        // Taken here as well, because the future may run in a task without the hops.
        WorkBuilder { peer: self.clone(), params, trace: None, hops: Hops::current() }
    }
}

/// A work order before it is sent; see [`PeerAgent::work`].
#[derive(Clone, Debug)]
#[must_use = "the order is sent when it is awaited"]
pub struct WorkBuilder {
    peer: PeerAgent,
    params: WorkParams,
    trace: Option<TraceContext>,
    hops: Hops,
}

impl WorkBuilder {
    /// Sets an id, so that the order can be sent again, for example after a timeout. The other side
    /// performs it once on this connection: a repetition waits for the same run, or has its output
    /// with `duplicate` in the [`WorkResult`]. Another order with the same id is a `conflict`; neither the
    /// order of members nor the spelling of numbers makes another one. An order that could not be
    /// attempted frees its id. 1 to 128 characters. By default an order has no id.
    ///
    /// The other side remembers the last [`WORK_RESULTS`](crate::limits::WORK_RESULTS) orders and outputs of
    /// [`WORK_RESULT_BYTES`](crate::limits::WORK_RESULT_BYTES). A repetition whose output it does not
    /// keep is answered with `not_found`, and does not run.
    ///
    /// A side that does not know ids performs a repeated order again.
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.params.order_id = Some(id.into());
        self
    }

    /// Sets the `_meta` beside the order.
    pub fn meta(mut self, meta: impl Into<Meta>) -> Self {
        self.params.meta = Some(meta.into());
        self
    }

    /// Sets the trace context in the `_meta`; `None` is ignored. It replaces the one in
    /// [`meta`](Self::meta). By default it is that of the message that the handle came with.
    pub fn trace_context(mut self, context: impl Into<Option<TraceContext>>) -> Self {
        self.trace = context.into().or(self.trace);
        self
    }

    /// Sends the order and waits for its output, with the `_meta` beside it.
    ///
    /// # Errors
    ///
    /// The errors of [`PeerAgent::work`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future withdraws the order.
    pub async fn result(self) -> Result<WorkResult> {
        let WorkBuilder { peer, mut params, trace, hops } = self;
        if !peer.offers().work {
            return Err(Error::NotSupported { scheme: DuologueCapabilities::WORK, versions: Vec::new() });
        }
        if let Some(trace) = trace {
            params.meta = Some(params.meta.unwrap_or_default().with_trace_context(&trace));
        }
        peer.write_trace(&mut params.meta);
        peer.write_hops(hops, &mut params.meta)?;
        match peer.rpc().request(&params).await {
            Ok(result) => Ok(result),
            Err(RpcError::Response(error)) => Err(Error::Response(from_wire(&error))),
            Err(error) => Err(Error::Connection(error)),
        }
    }
}

impl IntoFuture for WorkBuilder {
    type Output = Result<WorkOutput>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { Ok(self.result().await?.output) })
    }
}

/// Handles a request that is a work order, if there is a worker.
pub(crate) fn request(
    service: &ExchangeService,
    request: Incoming<'_>,
    responder: Responder,
) -> Result<(), Responder> {
    let Some(worker) = &service.worker else { return Err(responder) };
    let work = read(&service.peer, &service.knows, request.params).and_then(|(params, hops)| {
        let WorkParams { session_id, order_id, input, meta, .. } = params;
        let peer =
            session_id.map_or_else(|| service.peer.clone(), |session| service.peer.in_session(session));
        let (worker, id, call) = (worker.clone(), order_id.clone(), responder.cancellation().clone());
        let perform = move |input, withdrawn| {
            let peer = peer.for_handler(hops).in_trace(meta.as_ref().and_then(Meta::trace_context));
            let order = WorkOrder::received(input, id, peer, meta, withdrawn);
            hops.next().scope(run(worker, order)).boxed()
        };
        match order_id {
            Some(id) => service.orders.perform(&id, input, call, perform),
            None => Ok(perform(input, call)),
        }
    });
    match work {
        Ok(work) => responder.spawn(async move { work.await.map_err(|fault| to_wire(&fault)) }),
        Err(fault) => responder.respond::<()>(Err(to_wire(&fault))),
    }
    Ok(())
}

/// Performs an order, and adds the `_meta` that the worker set.
pub(super) async fn run(worker: Arc<dyn ErasedWorker>, order: WorkOrder) -> WorkOutcome {
    let answer_meta = order.answer_meta();
    let mut result = WorkResult::new(worker.work(order).await?);
    result.meta = answer_meta.take_answer();
    Ok(result)
}

fn read(
    peer: &PeerAgent,
    knows: &SessionLookup,
    params: Option<&RawValue>,
) -> Result<(WorkParams, Hops), EnvelopeError> {
    let invalid = |text: String| EnvelopeError::of(EnvelopeErrorCode::InvalidParameter, text);
    let params: WorkParams = serde_json::from_str(params.map_or("{}", RawValue::get))
        .map_err(|error| invalid(params_fault(WorkParams::METHOD, &error)))?;
    let is_id = |id: &String| !id.is_empty() && id.chars().nth(ORDER_ID_CHARS).is_none();
    if !params.order_id.as_ref().is_none_or(is_id) {
        let method = WorkParams::METHOD;
        return Err(invalid(format!("{method}: orderId must have 1 to {ORDER_ID_CHARS} characters")));
    }
    match &params.session_id {
        Some(session) if !knows(session) => {
            Err(EnvelopeError::of(EnvelopeErrorCode::NotFound, "unknown session"))
        }
        _ => {
            let hops = Hops::of(params.meta.as_ref())?;
            hops.check(peer.link.max_hops).map(|()| (params, hops))
        }
    }
}

/// Returns the JSON-RPC error for an error. Several codes share a number, so the code is also in
/// `data`.
fn to_wire(fault: &EnvelopeError) -> WireError {
    WireError::new(fault.code.rpc_code(), fault.message.clone()).coded(fault.code.as_str(), fault.retryable)
}

fn from_wire(error: &WireError) -> AnswerError {
    match error.data.as_ref().and_then(|data| data.parse::<EnvelopeError>().ok()) {
        Some(fault) => AnswerError::new(fault.message(error.message.clone()), meta_of(error)),
        None => answer_of(error),
    }
}

/// An object-safe [`Worker`].
pub(crate) trait ErasedWorker: Send + Sync {
    fn work(self: Arc<Self>, order: WorkOrder) -> BoxFuture<'static, Result<WorkOutput, EnvelopeError>>;
}

impl<W: Worker> ErasedWorker for W {
    fn work(self: Arc<Self>, order: WorkOrder) -> BoxFuture<'static, Result<WorkOutput, EnvelopeError>> {
        Box::pin(async move { Worker::work(&*self, order).await })
    }
}
