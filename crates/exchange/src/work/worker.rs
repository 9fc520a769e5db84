//! Who does work orders, and how an order gets there.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use duologue_rpc::{Error as RpcError, Incoming, Responder};
use duologue_schema::envelope::{EnvelopeError, EnvelopeErrorCode, fault_in};
use duologue_schema::work::{WorkInput, WorkOutput, WorkParams, WorkResult};
use duologue_schema::{DuologueCapabilities, Error as WireError, Request};
use serde_json::value::RawValue;

use crate::error::{Error, Result, fault_of};
use crate::hops::Hops;
use crate::peer_agent::PeerAgent;
use crate::service::SessionLookup;

/// Does work orders: one method, and all there is to know in its argument.
///
/// Each order runs in a task of its own. It is dropped where it awaits, a second after the other side
/// withdrew the order or the connection ended. Keep nothing between two orders: the next may be given to
/// somebody else.
///
/// Whether an artifact is to be created or updated depends on what is there by now, and the order says where
/// that is. Nothing else tells: an order of a second iteration may follow a first one that wrote nothing.
///
/// Functions and closures are workers, and so is a [`PeerAgent`], who passes the order on.
///
/// ```
/// use duologue_exchange::Exchange;
/// use duologue_exchange::envelope::EnvelopeError;
/// use duologue_exchange::work::{Artifact, WorkInput, WorkOutput, Recommendation, Worker};
///
/// struct Specifier;
///
/// impl Worker for Specifier {
///     async fn work(&self, input: Input) -> Result<WorkOutput, EnvelopeError> {
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
    /// Does one order.
    ///
    /// # Errors
    ///
    /// Only for an order that could not be tried: an action nobody here knows, a tool that is not there. A
    /// step that was tried and failed is an [`WorkOutput`] whose `success` is false.
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
    /// Gives it a work order and waits for what comes of it, without end: put a `timeout` around it. An
    /// order needs no session; one that is given in a session names it.
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
    /// [`Error::NotSupported`] if it did not say that it does work orders; nothing was sent then.
    /// [`Error::Response`] if the order could not be tried, [`Error::TooManyHops`] in a handler, and
    /// [`Error::Connection`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future withdraws the order.
    pub fn work(&self, input: WorkInput) -> impl Future<Output = Result<WorkOutput>> + Send {
        // Taken now too, because the future may run in a task that was not given the number.
        let hops = Hops::current();
        self.work_with(input, hops)
    }

    async fn work_with(&self, input: WorkInput, hops: Hops) -> Result<WorkOutput> {
        if !self.offers().work {
            return Err(Error::NotSupported { scheme: DuologueCapabilities::WORK, versions: Vec::new() });
        }
        let mut params = WorkParams::new(input);
        params.session_id = self.session().cloned();
        hops.max(Hops::current()).write_to(&mut params.meta, self.link.max_hops)?;
        match self.rpc().request(&params).await {
            Ok(WorkResult { output, .. }) => Ok(output),
            Err(RpcError::Response(error)) => Err(Error::Response(from_wire(&error))),
            Err(error) => Err(Error::Connection(error)),
        }
    }
}

/// Answers a request if it is a work order and somebody does those.
pub(crate) fn request(
    peer: &PeerAgent,
    worker: Option<&Arc<dyn ErasedWorker>>,
    knows: &SessionLookup,
    request: Incoming<'_>,
    responder: Responder,
) -> Result<(), Responder> {
    let Some(worker) = worker.filter(|_| request.method == WorkParams::METHOD) else { return Err(responder) };
    match read(peer, knows, request.params) {
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
            EnvelopeError::of(EnvelopeErrorCode::InvalidParameter, fault_in(WorkParams::METHOD, &error))
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

/// A fault as a JSON-RPC error: its code is kept in `data`, since several share a number.
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

type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A [`Worker`] without its type.
pub(crate) trait ErasedWorker: Send + Sync {
    fn work(self: Arc<Self>, input: WorkInput) -> Boxed<Result<WorkOutput, EnvelopeError>>;
}

impl<W: Worker> ErasedWorker for W {
    fn work(self: Arc<Self>, input: WorkInput) -> Boxed<Result<WorkOutput, EnvelopeError>> {
        Box::pin(async move { Worker::work(&*self, input).await })
    }
}
