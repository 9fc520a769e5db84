//! Requests to the agent that are sent when they are awaited.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;

use duologue_schema::{Meta, Request, VersionedRequest};

use crate::connection::ConnectionInner;
use crate::error::Result;

type Response<R> = Pin<Box<dyn Future<Output = Result<<R as Request>::Result>> + Send>>;
type SendRequest<R> = Box<dyn FnOnce(Arc<ConnectionInner>, R, Option<CheckRequest>) -> Response<R> + Send>;
type CheckRequest = Box<dyn FnOnce() -> Result<()> + Send>;

/// A request to the agent, which is sent when it is awaited. Its output is the whole response, with its `_meta`.
///
/// `.await` works because the builder is [`IntoFuture`]; it is no future itself. `into_future()` returns the future, which is
/// boxed, `Send` and without borrows: to store it, to spawn it, or to pass it to a function such as `tokio::time::timeout`
/// or to the macro `join!`. Nothing is checked or sent before it is polled.
///
/// ```no_run
/// use std::future::IntoFuture as _;
///
/// use duologue_client::schema::TraceContext;
///
/// # async fn run(session: duologue_client::Session, trace: TraceContext) -> duologue_client::Result<()> {
/// session.set_mode("code").await?;
/// session.set_mode("code").meta(trace).await?;
/// // As a future, for example to send two requests at once.
/// let (mode, model) = (session.set_mode("code"), session.set_config_option("model", "large"));
/// let (mode, model) = tokio::join!(mode.into_future(), model.into_future());
/// # drop((mode?, model?));
/// # Ok(())
/// # }
/// ```
///
/// # Cancel safety
///
/// Dropping the future cancels the request, but the agent may have acted on it already.
#[must_use = "a request is not sent until it is awaited"]
pub struct RequestBuilder<R: Request> {
    connection: Arc<ConnectionInner>,
    request: R,
    set_meta: fn(&mut R, Meta),
    /// The checks immediately before the request is sent. `None` if it is sent without them.
    check: Option<CheckRequest>,
    send: SendRequest<R>,
}

impl<R: Request> std::fmt::Debug for RequestBuilder<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RequestBuilder").field("method", &R::METHOD).finish_non_exhaustive()
    }
}

impl<R: VersionedRequest + Sync> RequestBuilder<R> {
    /// Creates a request that is sent if `check` has succeeded. `then` runs on the reader, see
    /// [`ConnectionInner::call_then`].
    pub(crate) fn new(
        connection: &Arc<ConnectionInner>,
        request: R,
        set_meta: fn(&mut R, Meta),
        check: impl FnOnce() -> Result<()> + Send + 'static,
        then: impl FnOnce(Option<&R::Result>) + Send + 'static,
    ) -> Self {
        RequestBuilder::begun_by(connection, request, set_meta, check, move |_| then)
    }

    /// Creates a request as [`new`](Self::new). `begin` is called immediately before the request is sent, and returns `then`.
    pub(crate) fn begun_by<T: FnOnce(Option<&R::Result>) + Send + 'static>(
        connection: &Arc<ConnectionInner>,
        request: R,
        set_meta: fn(&mut R, Meta),
        check: impl FnOnce() -> Result<()> + Send + 'static,
        begin: impl FnOnce(&Arc<ConnectionInner>) -> T + Send + 'static,
    ) -> Self {
        RequestBuilder::sent_by(connection, request, set_meta, check, |connection, request| async move {
            let then = begin(&connection);
            connection.call_then(&request, then).await
        })
    }
}

impl<R: Request> RequestBuilder<R> {
    /// Creates a request that `send` sends if `check` has succeeded.
    pub(crate) fn sent_by<F: Future<Output = Result<R::Result>> + Send>(
        connection: &Arc<ConnectionInner>,
        request: R,
        set_meta: fn(&mut R, Meta),
        check: impl FnOnce() -> Result<()> + Send + 'static,
        send: impl FnOnce(Arc<ConnectionInner>, R) -> F + Send + 'static,
    ) -> Self {
        let send: SendRequest<R> = Box::new(move |connection, request, check| {
            Box::pin(async move {
                check.map_or(Ok(()), |check| check())?;
                send(connection, request).await
            })
        });
        let check: Option<CheckRequest> = Some(Box::new(check));
        RequestBuilder { connection: connection.clone(), request, set_meta, check, send }
    }

    /// Sets the `_meta` of the request, or its trace context.
    pub fn meta(mut self, meta: impl Into<Meta>) -> Self {
        (self.set_meta)(&mut self.request, meta.into());
        self
    }

    /// Sends the request even if the agent did not offer it. This is for agents that accept more than they advertise.
    pub fn unchecked(mut self) -> Self {
        self.check = None;
        self
    }
}

impl<R: Request> IntoFuture for RequestBuilder<R> {
    type Output = Result<R::Result>;
    type IntoFuture = Response<R>;

    fn into_future(self) -> Self::IntoFuture {
        (self.send)(self.connection, self.request, self.check)
    }
}
