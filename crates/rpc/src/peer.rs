//! The handle of the peer: requests, notifications, flush and close.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use duologue_schema::{CancelRequestNotification, Notification, Request, RequestId};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tokio::sync::oneshot;
use tokio::time::{Instant, Sleep};
use tokio_util::sync::CancellationToken;

use crate::connection::ConnectionState;
use crate::error::{Closed, Error};
use crate::frame::Frame;
use crate::limits::Limits;
use crate::pending::{Deliver, RawResponse};
use crate::queue::{Queue, QueueId, QueueSender, queue};
use crate::stats::Stats;
use crate::sync::spawn;
use crate::tap::InsideTapPolicy;

/// The notification that withdraws a request, from JSON-RPC's `$/` namespace.
pub(crate) const CANCEL_REQUEST: &str = CancelRequestNotification::METHOD;

#[derive(serde::Serialize, serde::Deserialize)]
pub(crate) struct CancelRequest {
    #[serde(rename = "requestId")]
    pub(crate) request_id: RequestId,
}

/// A handle of the peer on the other side of a connection. Cheap to clone.
///
/// Messages that one task sends through a handle or its clones leave in the order of the calls.
#[derive(Clone)]
pub struct Peer {
    pub(crate) shared: Arc<ConnectionState>,
}

impl std::fmt::Debug for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Peer").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

impl Peer {
    /// Sends a request at once. The returned future waits for the response.
    ///
    /// All notifications that the peer sent before the response have been passed to the service by the
    /// time the future is ready.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future before the response sends `$/cancel_request` once. Use
    /// [`ResponseFuture::detach`] to let the request continue.
    pub fn request<R: Request>(&self, params: &R) -> ResponseFuture<R::Result> {
        self.call(R::METHOD, params)
    }

    /// [`request`](Self::request) for a method without a type, for example in a proxy. Many peers never respond to a
    /// method that they do not know, so give it a [`timeout`](ResponseFuture::timeout).
    pub fn request_raw(&self, method: &str, params: Option<&RawValue>) -> ResponseFuture<Box<RawValue>> {
        match params {
            Some(params) => self.call(method, params),
            // All peers accept `{}`, but some reject absent params.
            None => self.call(method, &serde_json::Map::new()),
        }
    }

    /// [`request_raw`](Self::request_raw) with your own types of params and result.
    pub fn call<P: Serialize + ?Sized, T: DeserializeOwned + Send + 'static>(
        &self,
        method: &str,
        params: &P,
    ) -> ResponseFuture<T> {
        let (sender, receiver) = oneshot::channel();
        let name = Arc::<str>::from(method);
        let deliver: Deliver = Box::new({
            let name = name.clone();
            move |reply| {
                let _ = sender.send(typed(|| name, reply));
            }
        });
        let sent = self.send_request(method, params, None, deliver);
        ResponseFuture {
            peer: self.clone(),
            name,
            state: sent.map(|id| (id, receiver)).map_err(Some),
            timeout: None,
            detached: false,
        }
    }

    /// Sends a request whose response the reader passes to `deliver`, after everything that arrived
    /// before it. `stream` names the queue that the request feeds, see [`Limits::queue_bytes`].
    ///
    /// A turn uses this to put its result behind its updates. Dropping the handle does not cancel the
    /// request, see [`RequestHandle::cancel`].
    ///
    /// # Errors
    ///
    /// Fails if the params cannot be sent. `deliver` is not called then.
    pub fn request_into<R: Request>(
        &self,
        params: &R,
        stream: Option<QueueId>,
        deliver: impl FnOnce(Result<R::Result, Error>) + Send + 'static,
    ) -> Result<RequestHandle, Error> {
        self.call_into(R::METHOD, params, stream, deliver)
    }

    /// [`request_into`](Self::request_into) with your own types of params and result.
    ///
    /// # Errors
    ///
    /// As [`request_into`](Self::request_into).
    pub fn call_into<P: Serialize + ?Sized, T: DeserializeOwned>(
        &self,
        method: &'static str,
        params: &P,
        stream: Option<QueueId>,
        deliver: impl FnOnce(Result<T, Error>) + Send + 'static,
    ) -> Result<RequestHandle, Error> {
        let deliver: Deliver = Box::new(move |reply| deliver(typed(|| method.into(), reply)));
        self.ask_into(method, params, stream, deliver)
    }

    pub(crate) fn ask_into<P: Serialize + ?Sized>(
        &self,
        method: &str,
        params: &P,
        stream: Option<QueueId>,
        deliver: Deliver,
    ) -> Result<RequestHandle, Error> {
        let id = self.send_request(method, params, stream, deliver)?;
        Ok(RequestHandle { peer: self.clone(), id })
    }

    fn send_request<P: Serialize + ?Sized>(
        &self,
        method: &str,
        params: &P,
        stream: Option<QueueId>,
        deliver: Deliver,
    ) -> Result<u64, Error> {
        // The request is registered before its frame is sent, because a peer in the same process may
        // respond during the push.
        let (id, is_only) = self.shared.pending.register(stream, deliver)?;
        let registered = self.shared.pending.forget_on_drop(id);
        let frame = Frame::request(id, method, params);
        std::mem::forget(registered);
        let sent = frame
            .map_err(|error| Error::Encode { method: method.into(), error: Arc::new(error) })
            .and_then(|frame| self.shared.send_request(frame, is_only));
        match sent {
            Ok(()) => {
                self.shared.budget.relief.notify_one();
                Ok(id)
            }
            // If the entry is gone, the end of the connection has called `deliver` already.
            Err(error) if self.shared.pending.forget(id) => Err(error),
            Err(_) => Ok(id),
        }
    }

    /// Sends a notification. Waits while more than [`Limits::output_bytes`] are unwritten.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`] after the end, [`Error::FrameTooLarge`] and [`Error::Encode`] for a
    /// message that cannot be sent, and [`Error::InsideTap`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future while it waits sends nothing.
    pub async fn notify<N: Notification>(&self, params: &N) -> Result<(), Error> {
        self.notify_raw(N::METHOD, params).await
    }

    /// [`notify`](Self::notify) for a method without a type.
    ///
    /// # Errors
    ///
    /// As [`notify`](Self::notify).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future while it waits sends nothing.
    pub async fn notify_raw<P: Serialize + ?Sized>(&self, method: &str, params: &P) -> Result<(), Error> {
        let mut frame = self.encode(method, params)?;
        loop {
            self.ready().await?;
            if self.shared.send_if_room(&mut frame)? {
                return Ok(());
            }
        }
    }

    /// Waits for space for another notification, as [`notify`](Self::notify) does before it sends.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`] if the connection ends first.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    pub async fn ready(&self) -> Result<(), Error> {
        if self.shared.outbox.has_room() {
            // Otherwise a task that always has something to send would starve the writer, and the
            // cancellation that could stop the task.
            tokio::task::coop::consume_budget().await;
            return Ok(());
        }
        self.shared.check_outside_tap()?;
        self.shared.outbox.room().await.map_err(Error::Closed)
    }

    /// Sends a notification if there is space. Returns false if there is none; wait with
    /// [`ready`](Self::ready) then.
    ///
    /// # Errors
    ///
    /// As [`notify`](Self::notify).
    pub fn try_notify<N: Notification>(&self, params: &N) -> Result<bool, Error> {
        self.try_notify_raw(N::METHOD, params)
    }

    /// [`try_notify`](Self::try_notify) for a method without a type.
    ///
    /// # Errors
    ///
    /// As [`notify`](Self::notify).
    pub fn try_notify_raw<P: Serialize + ?Sized>(&self, method: &str, params: &P) -> Result<bool, Error> {
        self.shared.send_if_room(&mut self.encode(method, params)?)
    }

    /// Encodes a notification that [`try_notify_encoded`](Self::try_notify_encoded) sends later.
    ///
    /// # Errors
    ///
    /// [`Error::FrameTooLarge`] and [`Error::Encode`] for a message that cannot be sent.
    pub fn encode_notification<N: Notification>(&self, params: &N) -> Result<EncodedNotification, Error> {
        let frame = self.encode(N::METHOD, params)?;
        self.shared.fits(&frame)?;
        Ok(EncodedNotification(frame))
    }

    /// Sends an encoded notification if there is space. Otherwise it returns the notification; wait with
    /// [`ready`](Self::ready) then.
    ///
    /// # Errors
    ///
    /// As [`notify`](Self::notify).
    pub fn try_notify_encoded(
        &self,
        mut notification: EncodedNotification,
    ) -> Result<Option<EncodedNotification>, Error> {
        Ok((!self.shared.send_if_room(&mut notification.0)?).then_some(notification))
    }

    /// Sends a notification without waiting for space. Use it only for messages that must not wait,
    /// such as a cancellation.
    ///
    /// # Errors
    ///
    /// As [`notify`](Self::notify).
    pub fn notify_now<N: Notification>(&self, params: &N) -> Result<(), Error> {
        self.notify_now_raw(N::METHOD, params)
    }

    /// [`notify_now`](Self::notify_now) for a method without a type.
    ///
    /// # Errors
    ///
    /// As [`notify`](Self::notify).
    pub fn notify_now_raw<P: Serialize + ?Sized>(&self, method: &str, params: &P) -> Result<(), Error> {
        self.shared.send_all(&mut [self.encode(method, params)?], InsideTapPolicy::DeferOnce)
    }

    pub(crate) fn encode<P: Serialize + ?Sized>(&self, method: &str, params: &P) -> Result<Frame, Error> {
        Frame::notification(method, params)
            .map_err(|error| Error::Encode { method: method.into(), error: Arc::new(error) })
    }

    /// Waits until everything that was sent before this call has been written to the pipe.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`] if the connection ends first.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect on the output.
    pub async fn flush(&self) -> Result<(), Error> {
        self.shared.check_outside_tap()?;
        self.shared.outbox.flush().await.map_err(Error::Closed)
    }

    /// Creates a queue that counts against the memory budget of this connection. It ends with the connection, or at
    /// [`QueueSender::finish`]. Dropping the sender does not end it.
    #[must_use]
    pub fn queue<T: Send + 'static>(&self) -> (QueueSender<T>, Queue<T>) {
        queue(&self.shared.budget)
    }

    /// Spawns a task that belongs to the connection. The end of the connection waits a short time for it.
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        spawn(self.shared.tasks.track_future(task));
    }

    /// Ends our half of the connection: everything sent before is written, then the peer sees the end
    /// of its input. Reading continues until the peer ends its half.
    pub fn finish(&self) {
        self.shared.finish();
    }

    /// Ends the connection. Handlers have [`Limits::cancel_grace`] to respond. Unwritten output is written
    /// for a quarter of that time.
    pub fn close(&self) {
        self.close_because(Closed::Local);
    }

    /// [`close`](Self::close) with a reason for waiting callers.
    pub fn close_because(&self, reason: Closed) {
        self.shared.close(reason);
    }

    /// Waits until the connection has ended. Returns the reason.
    ///
    /// Its handlers have finished then, unless they took more than 1.25 times [`Limits::cancel_grace`] after the
    /// end of the input.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    pub async fn closed(&self) -> Closed {
        self.shared.done.wait().await
    }

    /// Returns true if the connection is ending or has ended.
    #[must_use]
    pub fn is_closing(&self) -> bool {
        self.shared.closing.is_cancelled()
    }

    /// Returns a token that is cancelled when the connection begins to end. Cancelling it has no effect on the
    /// connection.
    #[must_use]
    pub fn closing(&self) -> CancellationToken {
        self.shared.closing.child_token()
    }

    /// Returns true while the reader waits for a consumer to take updates, see [`Limits::queue_bytes`].
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.shared.paused.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Returns the counters of the connection.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.shared.counters.snapshot()
    }

    /// Returns the last lines that were not messages, oldest first, escaped and shortened. Show them if
    /// an agent does not start.
    #[must_use]
    pub fn recent_noise(&self) -> Vec<String> {
        self.shared.noise.recent()
    }

    /// Returns the number of our requests that wait for their response.
    #[must_use]
    pub fn pending_requests(&self) -> usize {
        self.shared.pending.len()
    }

    /// Returns the limits of the connection.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.shared.limits
    }

    /// Sends `$/cancel_request` once, unless the response has arrived. `wanted` is true if the caller
    /// still waits for the response.
    fn withdraw(&self, id: u64, wanted: bool) {
        if !self.shared.pending.withdraw(id, wanted) {
            return;
        }
        let params = CancelRequest { request_id: RequestId::from(id) };
        if let Ok(frame) = self.encode(CANCEL_REQUEST, &params) {
            let _ = self.shared.send_all(&mut [frame], InsideTapPolicy::Defer);
        }
    }
}

/// A notification that is encoded and not sent yet, see [`Peer::encode_notification`].
pub struct EncodedNotification(Frame);

impl std::fmt::Debug for EncodedNotification {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EncodedNotification").field("bytes", &self.0.bytes().len()).finish()
    }
}

/// A request whose response is passed to a closure, see [`Peer::request_into`].
#[derive(Debug)]
pub struct RequestHandle {
    peer: Peer,
    pub(crate) id: u64,
}

impl RequestHandle {
    /// Asks the peer to cancel the request, unless the response has arrived. The peer responds all the
    /// same, with an error or a result.
    pub fn cancel(&self) {
        self.peer.withdraw(self.id, false);
    }

    /// Stops waiting. A response that arrives after this is dropped and counted as stray.
    pub fn forget(&self) {
        self.peer.shared.pending.forget(self.id);
    }
}

/// Decodes a response. Calls `method` for an error alone.
fn typed<T: DeserializeOwned>(
    method: impl FnOnce() -> Arc<str>,
    response: RawResponse<'_>,
) -> Result<T, Error> {
    let decode = |error| Error::Decode { method: method(), error: Arc::new(error) };
    match response {
        RawResponse::Result(raw) => serde_json::from_str(raw.get())
            .or_else(|error| {
                // Some peers respond with `null` instead of `{}`.
                if raw.get() == "null" { serde_json::from_str("{}").map_err(|_| error) } else { Err(error) }
            })
            .map_err(decode),
        RawResponse::Error(error) => Err(Error::Response(error)),
        RawResponse::Unreadable(error) => Err(decode(error)),
        RawResponse::Closed(reason) => Err(Error::Closed(reason)),
    }
}

/// The id of a request and the receiver of its response.
type PendingResponse<T> = (u64, oneshot::Receiver<Result<T, Error>>);

/// A future that waits for the response to a request.
#[must_use = "dropping the future cancels the request"]
pub struct ResponseFuture<T> {
    peer: Peer,
    name: Arc<str>,
    state: Result<PendingResponse<T>, Option<Error>>,
    timeout: Option<(Duration, Pin<Box<Sleep>>)>,
    detached: bool,
}

impl<T> ResponseFuture<T> {
    /// Sets a timeout. After it the future fails with [`Error::Timeout`] and the request is cancelled.
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime with time enabled.
    pub fn timeout(mut self, after: Duration) -> Self {
        // A deadline that cannot be represented is no deadline.
        self.timeout = Instant::now()
            .checked_add(after)
            .map(|deadline| (after, Box::pin(tokio::time::sleep_until(deadline))));
        self
    }

    /// Lets the request continue if the future is dropped.
    pub fn detach(mut self) -> Self {
        self.detached = true;
        self
    }

    #[cfg(test)]
    pub(crate) fn id(&self) -> Option<u64> {
        self.state.as_ref().ok().map(|(id, _)| *id)
    }

    /// Asks the peer to cancel the request, once. The future still waits for the response, which may be
    /// a result.
    pub fn cancel(&self) {
        if let Ok((id, _)) = &self.state {
            self.peer.withdraw(*id, true);
        }
    }
}

impl<T> Future for ResponseFuture<T> {
    type Output = Result<T, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let (id, receiver) = match &mut this.state {
            Ok(state) => state,
            Err(error) => return Poll::Ready(Err(error.take().unwrap_or(Error::Closed(Closed::Local)))),
        };
        if let Poll::Ready(reply) = Pin::new(receiver).poll(cx) {
            let reply = reply.unwrap_or(Err(Error::Closed(Closed::Local)));
            this.state = Err(None);
            return Poll::Ready(reply);
        }
        let Some((after, sleep)) = &mut this.timeout else { return Poll::Pending };
        ready!(sleep.as_mut().poll(cx));
        this.peer.withdraw(*id, false);
        this.peer.shared.pending.forget(*id);
        let error = Error::Timeout { method: this.name.clone(), after: *after };
        this.state = Err(None);
        Poll::Ready(Err(error))
    }
}

impl<T> Drop for ResponseFuture<T> {
    fn drop(&mut self) {
        let Ok((id, _)) = &self.state else { return };
        if !self.detached {
            self.peer.withdraw(*id, false);
        }
        // A late response is dropped and counted as stray.
        self.peer.shared.pending.forget(*id);
    }
}
