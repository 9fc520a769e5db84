//! The trait for handlers of work orders, and the routing of orders.

use std::future::Future;
use std::sync::Arc;

use duologue_rpc::{Error as RpcError, Incoming, Responder};
use duologue_schema::envelope::{EnvelopeError, EnvelopeErrorCode};
use duologue_schema::params_fault;
use duologue_schema::work::{WorkInput, WorkOutput, WorkParams, WorkResult};
use duologue_schema::{DuologueCapabilities, Error as WireError, Request};
use futures::future::BoxFuture;
use serde_json::value::RawValue;

use crate::error::{Error, Result, fault_of};
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
/// Functions and closures are workers. A [`PeerAgent`] is a worker that forwards the order.
///
/// ```
/// use duologue_exchange::Exchange;
/// use duologue_exchange::envelope::EnvelopeError;
/// use duologue_exchange::work::{Artifact, WorkInput, WorkOutput, Recommendation, Worker};
///
/// struct Specifier;
///
/// impl Worker for Specifier {
///     async fn work(&self, input: WorkInput) -> Result<WorkOutput, EnvelopeError> {
///         let text = format!("# {}\n", input.context.feature_id);
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
    fn work(&self, input: WorkInput) -> impl Future<Output = Result<WorkOutput, EnvelopeError>> + Send;
}

impl<F, Working> Worker for F
where
    F: Fn(WorkInput) -> Working + Send + Sync + 'static,
    Working: Future<Output = Result<WorkOutput, EnvelopeError>> + Send,
{
    fn work(&self, input: WorkInput) -> impl Future<Output = Result<WorkOutput, EnvelopeError>> + Send {
        self(input)
    }
}

impl Worker for PeerAgent {
    async fn work(&self, input: WorkInput) -> Result<WorkOutput, EnvelopeError> {
        PeerAgent::work(self, input).await.map_err(|error| error.fault())
    }
}

impl PeerAgent {
    /// Sends a work order and waits for its output, without a timeout. An order needs no session; a
    /// handle with a session sends its id along.
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
    pub fn work(&self, input: WorkInput) -> impl Future<Output = Result<WorkOutput>> + Send {
        // Taken here as well, because the future may run in a task without the hops.
        let hops = Hops::current();
        self.work_with(input, hops)
    }

    async fn work_with(&self, input: WorkInput, hops: Hops) -> Result<WorkOutput> {
        if !self.offers().work {
            return Err(Error::NotSupported { scheme: DuologueCapabilities::WORK, versions: Vec::new() });
        }
        let mut params = WorkParams::new(input);
        params.session_id = self.session().cloned();
        self.write_hops(hops, &mut params.meta)?;
        match self.rpc().request(&params).await {
            Ok(WorkResult { output, .. }) => Ok(output),
            Err(RpcError::Response(error)) => Err(Error::Response(from_wire(&error))),
            Err(error) => Err(Error::Connection(error)),
        }
    }
}

/// Handles a request that is a work order, if there is a worker.
pub(crate) fn request(
    service: &ExchangeService,
    request: Incoming<'_>,
    responder: Responder,
) -> Result<(), Responder> {
    let Some(worker) = &service.worker else { return Err(responder) };
    match read(&service.peer, &service.knows, request.params) {
        Ok((input, hops)) => {
            let work = hops.next().scope(worker.clone().work(input));
            responder.spawn(async move { work.await.map(WorkResult::new).map_err(|fault| to_wire(&fault)) });
        }
        Err(fault) => responder.respond::<()>(Err(to_wire(&fault))),
    }
    Ok(())
}

fn read(
    peer: &PeerAgent,
    knows: &SessionLookup,
    params: Option<&RawValue>,
) -> Result<(WorkInput, Hops), EnvelopeError> {
    let WorkParams { session_id, input, meta, .. } = serde_json::from_str(params.map_or("{}", RawValue::get))
        .map_err(|error| {
            EnvelopeError::of(EnvelopeErrorCode::InvalidParameter, params_fault(WorkParams::METHOD, &error))
        })?;
    match session_id {
        Some(session) if !knows(&session) => {
            Err(EnvelopeError::of(EnvelopeErrorCode::NotFound, "unknown session"))
        }
        _ => {
            let hops = Hops::of(meta.as_ref());
            hops.check(peer.link.max_hops).map(|()| (input, hops))
        }
    }
}

/// Returns the JSON-RPC error for an error. Several codes share a number, so the code is also in
/// `data`.
fn to_wire(fault: &EnvelopeError) -> WireError {
    let data = serde_json::json!({ "code": fault.code, "retryable": fault.retryable });
    WireError::new(fault.code.rpc_code(), fault.message.clone()).data(data)
}

fn from_wire(error: &WireError) -> EnvelopeError {
    match error.data.as_ref().and_then(|data| data.parse::<EnvelopeError>().ok()) {
        Some(fault) => fault.message(error.message.clone()),
        None => fault_of(error),
    }
}

/// An object-safe [`Worker`].
pub(crate) trait ErasedWorker: Send + Sync {
    fn work(self: Arc<Self>, input: WorkInput) -> BoxFuture<'static, Result<WorkOutput, EnvelopeError>>;
}

impl<W: Worker> ErasedWorker for W {
    fn work(self: Arc<Self>, input: WorkInput) -> BoxFuture<'static, Result<WorkOutput, EnvelopeError>> {
        Box::pin(async move { Worker::work(&*self, input).await })
    }
}
