//! The handlers of incoming messages.

use std::future::Future;
use std::sync::Arc;

use duologue_schema::{Error, Meta, Notification, RequestId, TraceContext};
use serde::Serialize;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::blocked::logged_if_blocked;
use crate::connection::ConnectionState;
use crate::error::Closed;
use crate::frame::Frame;
use crate::message_meta::MessageMeta;
use crate::peer::Peer;
use crate::sync::{Lock, spawn};
use crate::tap::InsideTapPolicy;

/// A request or notification, borrowed from its line.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Incoming<'a> {
    /// The name of the method.
    pub method: &'a str,
    /// The params; `null` counts as absent.
    pub params: Option<&'a RawValue>,
    /// The length of the line. A queue that keeps the message should count it as its size.
    pub wire_bytes: usize,
}

impl Incoming<'_> {
    /// Parses the `_meta` of the params. Types of params have it already, so this is for methods of an unknown type.
    #[must_use]
    pub fn meta(&self) -> Option<Meta> {
        meta_of(self.params)
    }
}

/// Returns the `_meta` of the params of an extension method, which its type may not have.
pub(crate) fn meta_of(params: Option<&RawValue>) -> Option<Meta> {
    #[derive(serde::Deserialize)]
    struct WithMeta {
        #[serde(rename = "_meta")]
        meta: Meta,
    }
    let params = params?.get();
    // Most params have none, and the search is cheaper than a second pass of the parser.
    let params = params.contains("\"_meta\"").then(|| serde_json::from_str::<WithMeta>(params))?;
    params.ok().map(|params| params.meta)
}

/// Handles the messages of the peer in the order of the wire.
///
/// The reader calls all methods, so they must return at once: decode, queue, or pass a request to
/// [`Responder::spawn`]. They must not wait for the consumer of a queue, which is woken only when the
/// reader has processed everything from one read. A spawned future may await anything, including a
/// request to the same peer.
pub trait Service: Send + Sync + 'static {
    /// Handles a request. Respond through `responder` now or later. Dropping it responds with `-32603`.
    fn request(&self, request: Incoming<'_>, responder: Responder);

    /// Handles a notification. It has no response, even if it is invalid.
    fn notification(&self, notification: Incoming<'_>);

    /// Returns the most frequent notification, which [`notification_fast_path`](Self::notification_fast_path)
    /// handles. Called once.
    fn fast_path_method(&self) -> Option<&'static str> {
        None
    }

    /// Decodes and handles that notification in one pass, if the members of its line are in the usual order.
    ///
    /// `params` begins an object but is not validated. If it is not exactly one valid object, do nothing and return
    /// false: the line takes the general path then. Otherwise call `valid` before the notification has any effect, since
    /// a [`Tap`](crate::Tap) sees the line in that call. A panic costs the line.
    fn notification_fast_path(&self, params: &str, wire_bytes: usize, valid: &dyn Fn()) -> bool {
        let _ = (params, wire_bytes, valid);
        false
    }

    /// Called at the end of the connection. No messages arrive after it.
    fn closed(&self, reason: &Closed) {
        let _ = reason;
    }
}

/// The request that a handler works on: its id, its `_meta` and its cancellation. Cheap to clone.
#[derive(Clone)]
pub struct RequestContext {
    peer: Peer,
    id: RequestId,
    method: &'static str,
    meta: MessageMeta,
    cancellation: CancellationToken,
}

impl std::fmt::Debug for RequestContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut fields = f.debug_struct("RequestContext");
        fields.field("id", &self.id).field("method", &self.method).finish_non_exhaustive()
    }
}

impl RequestContext {
    /// Returns the peer that sent the request.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Returns the JSON-RPC id of the request.
    #[must_use]
    pub fn id(&self) -> &RequestId {
        &self.id
    }

    /// Returns the name of the method.
    #[must_use]
    pub fn method(&self) -> &'static str {
        self.method
    }

    /// Returns the `_meta` of the params.
    #[must_use]
    pub fn meta(&self) -> Option<&Meta> {
        self.meta.received()
    }

    /// Returns the trace context in the `_meta`, to pass it on in the `_meta` of another message.
    #[must_use]
    pub fn trace_context(&self) -> Option<TraceContext> {
        self.meta.trace_context()
    }

    /// Returns the place for the `_meta` of the response, which a service of your own sends. The SDKs send that of a
    /// handler; [`Extensions`](crate::Extensions) do not.
    #[must_use]
    pub fn message_meta(&self) -> &MessageMeta {
        &self.meta
    }

    /// Returns true if the peer withdrew the request or the connection ends.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.cancellation.is_cancelled()
    }

    /// Waits until the peer withdraws the request or the connection ends. The handler has
    /// [`Limits::cancel_grace`](crate::Limits::cancel_grace) to return then.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    pub async fn cancelled(&self) {
        self.cancellation.cancelled().await;
    }

    /// Returns a token that is cancelled with the request.
    #[must_use]
    pub fn cancellation(&self) -> CancellationToken {
        self.cancellation.child_token()
    }

    /// Replaces the token, for work that continues after the response.
    #[must_use]
    pub fn with_cancellation(mut self, cancellation: CancellationToken) -> Self {
        self.cancellation = cancellation;
        self
    }
}

/// The notification that a handler works on: its peer and its `_meta`.
#[derive(Clone)]
pub struct NotificationContext {
    peer: Peer,
    method: &'static str,
    meta: Option<Meta>,
}

impl std::fmt::Debug for NotificationContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NotificationContext").field("method", &self.method).finish_non_exhaustive()
    }
}

impl NotificationContext {
    pub(crate) fn new(peer: Peer, method: &'static str, meta: Option<Meta>) -> Self {
        NotificationContext { peer, method, meta }
    }

    /// Returns the peer that sent the notification.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Returns the name of the method.
    #[must_use]
    pub fn method(&self) -> &'static str {
        self.method
    }

    /// Returns the `_meta` of the params.
    #[must_use]
    pub fn meta(&self) -> Option<&Meta> {
        self.meta.as_ref()
    }

    /// Returns the trace context in the `_meta`, to pass it on in the `_meta` of another message.
    #[must_use]
    pub fn trace_context(&self) -> Option<TraceContext> {
        self.meta.as_ref()?.trace_context()
    }
}

/// Sends the response to one request. Exactly one response is sent, even if the responder is dropped.
pub struct Responder {
    shared: Arc<ConnectionState>,
    id: RequestId,
    cancellation: CancellationToken,
    answered: bool,
}

impl std::fmt::Debug for Responder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Responder").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Responder {
    pub(crate) fn new(shared: Arc<ConnectionState>, id: RequestId, cancellation: CancellationToken) -> Self {
        Responder { shared, id, cancellation, answered: false }
    }

    /// Returns the peer that sent the request.
    #[must_use]
    pub fn peer(&self) -> Peer {
        Peer { shared: self.shared.clone() }
    }

    /// Returns the id of the request.
    #[must_use]
    pub fn id(&self) -> &RequestId {
        &self.id
    }

    /// Returns the token that is cancelled when the peer withdraws the request or the connection ends.
    #[must_use]
    pub fn cancellation(&self) -> &CancellationToken {
        &self.cancellation
    }

    /// Returns the context of the request for its handler. `method` and `meta` are those of the request.
    #[must_use]
    pub fn context(&self, method: &'static str, meta: Option<Meta>) -> RequestContext {
        let (id, cancellation) = (self.id.clone(), self.cancellation.clone());
        RequestContext { peer: self.peer(), id, method, meta: meta.into(), cancellation }
    }

    /// Counts bytes that the service adds to the request from earlier messages, until the response is sent.
    ///
    /// # Errors
    ///
    /// The error to respond with, if the requests in flight would exceed
    /// [`Limits::in_flight_bytes`](crate::Limits::in_flight_bytes) and this request is not the only one.
    pub fn count_more(&self, bytes: usize) -> Result<(), Error> {
        self.shared.in_flight.lock_unpoisoned().add(&self.id, bytes, &self.shared.limits)
    }

    /// Sends the response.
    pub fn respond<R: Serialize>(self, answer: Result<R, Error>) {
        self.respond_or(answer, Error::internal);
    }

    /// Sends the response. If it cannot be sent, for example because it exceeds
    /// [`Limits::frame_bytes`](crate::Limits::frame_bytes), sends the error that `instead` makes of the reason.
    pub fn respond_or<R: Serialize>(
        mut self,
        answer: Result<R, Error>,
        instead: impl FnOnce(String) -> Error,
    ) {
        self.answer(answer, instead, Vec::new());
    }

    /// Sends the response and notifications behind it in one step. No other message comes between them,
    /// and the peer cannot react to the response before all of them are in the output.
    pub fn respond_followed_by<R: Serialize>(
        mut self,
        answer: Result<R, Error>,
        notifications: NotificationBuffer,
    ) {
        self.answer(answer, Error::internal, notifications.frames);
    }

    /// Sends the response when at most half of [`Limits::output_bytes_hard`](crate::Limits::output_bytes_hard) is
    /// unwritten.
    ///
    /// Responses that wait are sent in the order of the calls. Only the first of them is encoded. Thus a slow peer
    /// delays responses but does not lose its connection. At the end of the connection they are sent without waiting.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future while it waits responds with `-32603`.
    pub async fn respond_when_ready<R: Serialize>(self, answer: Result<R, Error>) {
        let shared = self.shared.clone();
        let ready = async {
            let turn = match shared.answer_turn.try_lock() {
                Ok(turn) => turn,
                Err(_) => shared.answer_turn.lock().await,
            };
            if !shared.outbox.has_answer_room() {
                // After the end of the connection, `respond` only frees the request.
                let _ = shared.outbox.answer_room().await;
            }
            turn
        };
        // At the end of the connection there is little time, so the response is sent without waiting.
        let _turn = tokio::select! {
            biased;
            turn = ready => Some(turn),
            () = shared.closing.cancelled() => None,
        };
        self.respond(answer);
    }

    /// Responds with `-32601`: the method is unknown.
    pub fn method_not_found(self, method: &str) {
        self.respond::<()>(Err(Error::method_not_found(method)));
    }

    /// Runs a handler in a task of its own and responds with its output: [`answer_with`](Self::answer_with) in
    /// [`spawn_with`](Self::spawn_with).
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime with time enabled.
    pub fn spawn<R, F>(self, handler: F)
    where
        R: Serialize + Send + 'static,
        F: Future<Output = Result<R, Error>> + Send + 'static,
    {
        // Boxed, because a future that is moved into a task is copied for each layer around it.
        let handler = Box::pin(handler);
        self.spawn_with(move |responder| responder.answer_with(handler));
    }

    /// Runs a handler and [responds](Self::respond_when_ready) with its output.
    ///
    /// After a cancellation the handler has [`Limits::cancel_grace`](crate::Limits::cancel_grace) to finish.
    /// Then it is dropped and the response is `-32800`. If the handler panics, the response is `-32603`.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the handler and responds with `-32603`.
    pub async fn answer_with<R, F>(self, handler: F)
    where
        R: Serialize,
        F: Future<Output = Result<R, Error>>,
    {
        let grace = self.shared.limits.cancel_grace;
        let out = with_cancel_grace(&self.cancellation, grace, handler).await;
        self.respond_when_ready(out.unwrap_or_else(|| Err(Error::request_cancelled()))).await;
    }

    /// Runs `work` in a task of the connection. `work` has to respond and to handle a cancellation. The
    /// end of the connection waits a short time for such tasks. A `work` that blocks its thread for a second is logged.
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime.
    pub fn spawn_with<F>(self, work: impl FnOnce(Responder) -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let span = tracing::debug_span!("request", id = %self.id);
        let tasks = self.shared.tasks.clone();
        spawn(tasks.track_future(logged_if_blocked(work(self)).instrument(span)));
    }

    fn answer<R: Serialize>(
        &mut self,
        answer: Result<R, Error>,
        instead: impl FnOnce(String) -> Error,
        mut following: Vec<Frame>,
    ) {
        if self.answered {
            return;
        }
        // Encoded first: if `Serialize` panics, the drop of this responder answers.
        let frame = self.frame(&answer).or_else(|why| {
            tracing::error!(id = %self.id, "{why}");
            let frame = self.frame::<()>(&Err(instead(why)));
            frame.or_else(|why| Frame::error(&self.id, &Error::internal(why)))
        });
        self.answered = true;
        // Free the id before the peer can see the response, because it may reuse the id at once.
        let is_last = self.shared.in_flight.lock_unpoisoned().remove(&self.id);
        let Ok(frame) = frame else { return };
        let _ = if following.is_empty() {
            self.shared.send_response(frame, is_last)
        } else {
            following.insert(0, frame);
            self.shared.send_all(&mut following, InsideTapPolicy::Defer)
        };
    }

    /// Encodes a response. The error is the reason why it cannot be sent.
    fn frame<R: Serialize>(&self, answer: &Result<R, Error>) -> Result<Frame, String> {
        let frame = match answer {
            Ok(result) => Frame::result(&self.id, result),
            Err(error) => Frame::error(&self.id, error),
        };
        let frame = frame.map_err(|error| format!("cannot encode the response as JSON: {error}"))?;
        let (bytes, limit) = (frame.line().len(), self.shared.limits.frame_bytes);
        if bytes <= limit {
            Ok(frame)
        } else {
            Err(format!("response too long ({bytes} bytes, Limits::frame_bytes is {limit})"))
        }
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        if self.answered {
            return;
        }
        let message = if std::thread::panicking() {
            "the handler panicked"
        } else {
            "the handler ended without a response"
        };
        self.answer::<()>(Err(Error::internal(message)), Error::internal, Vec::new());
    }
}

/// Notifications to be sent directly behind a response, see [`Responder::respond_followed_by`].
pub struct NotificationBuffer {
    peer: Peer,
    frames: Vec<Frame>,
}

impl std::fmt::Debug for NotificationBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NotificationBuffer").field("len", &self.frames.len()).finish_non_exhaustive()
    }
}

impl NotificationBuffer {
    /// Creates an empty buffer for notifications to `peer`.
    #[must_use]
    pub fn new(peer: &Peer) -> Self {
        NotificationBuffer { peer: peer.clone(), frames: Vec::new() }
    }

    /// Appends a notification.
    ///
    /// # Errors
    ///
    /// [`FrameTooLarge`](crate::Error::FrameTooLarge) and [`Encode`](crate::Error::Encode) for a message
    /// that cannot be sent. The buffer is unchanged then.
    pub fn push<N: Notification>(&mut self, params: &N) -> Result<(), crate::Error> {
        self.push_raw(N::METHOD, params)
    }

    /// [`push`](Self::push) for a method without a type.
    ///
    /// # Errors
    ///
    /// As [`push`](Self::push).
    pub fn push_raw<P: Serialize + ?Sized>(&mut self, method: &str, params: &P) -> Result<(), crate::Error> {
        let frame = self.peer.encode(method, params)?;
        self.peer.shared.fits(&frame)?;
        self.frames.push(frame);
        Ok(())
    }
}

/// Runs `future` to its end, but drops it when `grace` has passed since the cancellation. Returns `None` then.
///
/// # Cancel safety
///
/// Dropping the future drops `future`.
pub async fn with_cancel_grace<F: Future>(
    cancellation: &CancellationToken,
    grace: std::time::Duration,
    future: F,
) -> Option<F::Output> {
    let given_up = async {
        cancellation.cancelled().await;
        tokio::time::sleep(grace).await;
    };
    tokio::select! {
        biased;
        out = future => Some(out),
        () = given_up => None,
    }
}

#[cfg(all(test, not(duologue_loom)))]
mod tests {
    use std::sync::{Mutex, OnceLock};

    use serde_json::Value;
    use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};

    use super::*;
    use crate::connection::PeerBuilder;
    use crate::limits::Limits;
    use crate::tap::{Direction, Tap, TappedFrame};
    use crate::transport::Transport;

    #[derive(Serialize, serde::Deserialize)]
    struct Numbered(String);

    impl Notification for Numbered {
        const METHOD: &'static str = "_numbered";
    }

    /// Responds with notifications behind the response. One of them exceeds the limit of a line.
    struct FollowedAnswer;

    impl Service for FollowedAnswer {
        fn request(&self, _: Incoming<'_>, responder: Responder) {
            let peer = responder.peer();
            let mut notifications = NotificationBuffer::new(&peer);
            notifications.push(&Numbered("1".into())).unwrap();
            let error = notifications.push(&Numbered("x".repeat(peer.limits().frame_bytes))).unwrap_err();
            assert!(matches!(error, crate::Error::FrameTooLarge { .. }), "{error}");
            notifications.push(&Numbered("2".into())).unwrap();
            responder.respond_followed_by(Ok("done"), notifications);
        }

        fn notification(&self, _: Incoming<'_>) {}
    }

    /// Records the unwritten bytes at each outgoing frame.
    #[derive(Default)]
    struct Unwritten {
        peer: OnceLock<Peer>,
        bytes: Mutex<Vec<usize>>,
    }

    impl Tap for Unwritten {
        fn frame(&self, frame: TappedFrame<'_>) {
            if let (Some(peer), Direction::Outgoing) = (self.peer.get(), frame.direction) {
                self.bytes.lock_unpoisoned().push(peer.shared.outbox.unwritten());
            }
        }
    }

    /// The bytes of a push count only after all of its frames are in the output.
    #[tokio::test]
    async fn a_response_and_its_notifications_are_one_push() {
        let (ours, theirs) = Transport::memory();
        let unwritten = Arc::new(Unwritten::default());
        let limits = Limits { frame_bytes: 1000, ..Limits::default() };
        let connection = PeerBuilder::new(theirs).limits(limits).tap(unwritten.clone());
        connection.start(|peer| {
            let _ = unwritten.peer.set(peer.clone());
            FollowedAnswer
        });
        let (input, mut output) = ours.into_split();
        output.write_all(b"{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"_ask\"}\n").await.unwrap();
        output.flush().await.unwrap();
        let mut lines = BufReader::new(input).lines();
        let mut read =
            async || -> Value { serde_json::from_str(&lines.next_line().await.unwrap().unwrap()).unwrap() };
        assert_eq!(read().await["result"], "done");
        assert_eq!(read().await["params"], "1");
        assert_eq!(read().await["params"], "2");
        assert_eq!(*unwritten.bytes.lock_unpoisoned(), [0; 3]);
    }
}
