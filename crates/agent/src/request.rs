//! Requests to the client that are sent when they are awaited.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;

use duologue_rpc::{Closed, Error as RpcError, RequestHandle};
#[cfg(feature = "protocol-v2")]
use duologue_schema::Error as WireError;
use duologue_schema::{
    CompleteElicitationNotification, KillTerminalRequest, Meta, ReadTextFileRequest, ReleaseTerminalRequest,
    Request, RequestPermissionOutcome, RequestPermissionRequest, TerminalExitStatus, Versioned,
    WaitForTerminalExitRequest, WriteTextFileRequest,
};
use tokio::sync::oneshot;

use crate::calls::{RemoteTerminal, permission};
use crate::error::{Error, Result};
use crate::session::Session;

/// Makes the output of a request from its response. The reader calls it.
type Output<R, T> = fn(&Session, Result<<R as Request>::Result>) -> Result<T>;

/// Changes a response. The reader calls it.
type Restriction<R> = Box<dyn FnOnce(&mut <R as Request>::Result) + Send + Sync>;

/// A request of the agent to the client, which is sent when it is awaited. `T` is its output.
///
/// `.await` uses [`IntoFuture`]. To store the future or to pass it to a function that takes a future, call `into_future()`.
///
/// ```no_run
/// use std::future::IntoFuture as _;
///
/// # async fn run(turn: &duologue_agent::Turn) -> duologue_agent::Result<()> {
/// let text = turn.read_text_file("/project/a.rs").await?;
/// // With the trace context of the prompt, and with the `_meta` of the response.
/// let mut request = turn.read_text_file("/project/a.rs");
/// if let Some(trace) = turn.trace_context() {
///     request = request.meta(trace);
/// }
/// let response = request.response().await?;
/// println!("{} {:?}", response.content, response.meta);
/// // Two requests at once.
/// let (a, b) = (turn.read_text_file("/project/a.rs"), turn.read_text_file("/project/b.rs"));
/// let (a, b) = tokio::join!(a.into_future(), b.into_future());
/// # drop((text, a?, b?));
/// # Ok(())
/// # }
/// ```
///
/// # Cancel safety
///
/// Dropping the future cancels the request, but the client may have acted on it already.
#[must_use = "a request is not sent until it is awaited"]
pub struct AgentRequestBuilder<R: Request, T> {
    session: Session,
    request: R,
    set_meta: fn(&mut R, Meta),
    /// The result of the checks of the request.
    check: Result<()>,
    output: Output<R, T>,
    restrict: Option<Restriction<R>>,
    /// The terminal that the request releases. If the builder is dropped, so is the terminal, which releases it too.
    released: Option<RemoteTerminal>,
}

impl<R: Request, T> fmt::Debug for AgentRequestBuilder<R, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentRequestBuilder").field("method", &R::METHOD).finish_non_exhaustive()
    }
}

impl<R: Request, T> AgentRequestBuilder<R, T> {
    /// Creates a request that is sent if `check` has succeeded.
    pub(crate) fn new(
        session: &Session,
        request: R,
        set_meta: fn(&mut R, Meta),
        check: Result<()>,
        output: Output<R, T>,
    ) -> Self {
        let session = session.clone();
        AgentRequestBuilder { session, request, set_meta, check, output, restrict: None, released: None }
    }

    /// Changes the response before the output is made of it.
    pub(crate) fn restricted(
        mut self,
        restrict: impl FnOnce(&mut R::Result) + Send + Sync + 'static,
    ) -> Self {
        self.restrict = Some(Box::new(restrict));
        self
    }

    /// Makes this the request that releases a terminal. Dropping its future does not cancel it.
    pub(crate) fn releasing(mut self, terminal: RemoteTerminal) -> Self {
        self.released = Some(terminal);
        self
    }

    /// Sets the `_meta` of the request, or its trace context.
    pub fn meta(mut self, meta: impl Into<Meta>) -> Self {
        (self.set_meta)(&mut self.request, meta.into());
        self
    }

    pub(crate) fn with_output<U>(self, output: Output<R, U>) -> AgentRequestBuilder<R, U> {
        let AgentRequestBuilder { session, request, set_meta, check, restrict, released, .. } = self;
        AgentRequestBuilder { session, request, set_meta, check, output, restrict, released }
    }
}

/// Adds the method that returns the whole response, for requests whose output is a part of it.
macro_rules! whole_response {
    ($($request:ty => $output:ty, $whole:expr;)*) => {$(
        impl AgentRequestBuilder<$request, $output> {
            /// Makes the whole response, with its `_meta`, the output of the request.
            pub fn response(self) -> AgentRequestBuilder<$request, <$request as Request>::Result> {
                self.with_output($whole)
            }
        }
    )*};
}

whole_response! {
    RequestPermissionRequest => RequestPermissionOutcome, |_, response| permission(response);
    ReadTextFileRequest => String, |_, response| response;
    WriteTextFileRequest => (), |_, response| response;
    WaitForTerminalExitRequest => TerminalExitStatus, |_, response| response;
    KillTerminalRequest => (), |_, response| response;
    ReleaseTerminalRequest => (), |_, response| response;
}

impl<R: Request + Versioned, T: Send + 'static> IntoFuture for AgentRequestBuilder<R, T> {
    type Output = Result<T>;
    type IntoFuture = Pin<Box<dyn Future<Output = Result<T>> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        let AgentRequestBuilder { session, request, check, output, restrict, released, .. } = self;
        Box::pin(async move {
            check?;
            let is_release = released.is_some();
            released.into_iter().for_each(RemoteTerminal::mark_released);
            let (sender, receiver) = oneshot::channel();
            #[cfg(feature = "protocol-v2")]
            let waiting = crate::v2::wait_for_user(&session, &request);
            let message = session.client().in_version(request);
            let deliver = {
                let session = session.clone();
                move |response: Result<R::Result, _>| {
                    let response = response.map(|mut response| {
                        if let Some(restrict) = restrict {
                            restrict(&mut response);
                        }
                        response
                    });
                    // If the caller has gone, the output is dropped with the message. A terminal is released then.
                    let _ = sender.send(output(&session, response.map_err(Error::of_request::<R>)));
                }
            };
            let sent = session.if_open(|| session.peer().call_into(R::METHOD, &message, None, deliver))?;
            drop(message);
            let handle = sent.map_err(Error::of_request::<R>)?;
            let _cancel = (!is_release).then(|| CancelOnDrop(handle));
            #[cfg(feature = "protocol-v2")]
            let received = match crate::v2::unless_cancelled(waiting.as_ref(), receiver).await {
                Some(received) => received,
                None => {
                    let cancelled = RpcError::Response(WireError::request_cancelled());
                    return output(&session, Err(Error::of_request::<R>(cancelled)));
                }
            };
            #[cfg(not(feature = "protocol-v2"))]
            let received = receiver.await;
            received.map_err(|_| RpcError::Closed(Closed::Local))?
        })
    }
}

/// Cancels a request when it is dropped, unless the response has arrived.
struct CancelOnDrop(RequestHandle);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// The notification that the user has finished at the link of an elicitation, which is sent when it is awaited.
///
/// # Cancel safety
///
/// Dropping the future while it waits for space sends nothing.
#[must_use = "a notification is not sent until it is awaited"]
#[derive(Debug)]
pub struct ElicitationCompleteBuilder {
    pub(crate) session: Session,
    pub(crate) notification: CompleteElicitationNotification,
}

impl ElicitationCompleteBuilder {
    /// Sets the `_meta` of the notification, or its trace context.
    pub fn meta(mut self, meta: impl Into<Meta>) -> Self {
        self.notification.meta = Some(meta.into());
        self
    }
}

impl IntoFuture for ElicitationCompleteBuilder {
    type Output = Result<()>;
    type IntoFuture = Pin<Box<dyn Future<Output = Result<()>> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { Ok(self.session.peer().notify(&self.notification).await?) })
    }
}
