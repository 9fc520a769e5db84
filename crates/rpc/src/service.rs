//! What a side of the connection does with what arrives.

use std::future::Future;
use std::sync::Arc;

use duologue_schema::{Error, Notification, RequestId};
use serde::Serialize;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::connection::ConnectionState;
use crate::error::Closed;
use crate::frame::Frame;
use crate::peer::Peer;
use crate::sync::{Lock, spawn};
use crate::tap::InsideTapPolicy;

/// A request or notification, borrowed from its line.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Incoming<'a> {
    /// The method's name.
    pub method: &'a str,
    /// Its params; `null` counts as absent.
    pub params: Option<&'a RawValue>,
    /// The length of the line: what a queue that keeps the message should charge.
    pub wire_bytes: usize,
}

/// Takes what the peer sends, in the order of the wire.
///
/// All methods are called by the reader and must return at once: decode, queue, or hand a request
/// to [`Responder::spawn`]. They must not wait for whoever takes what they queue, who is woken when the reader is
/// through with what it has read. Whatever awaits belongs into the spawned future, where it may await
/// anything, requests to the same peer included.
pub trait Service: Send + Sync + 'static {
    /// A request. Answer through `responder` now or later; dropping it answers `-32603`.
    fn request(&self, request: Incoming<'_>, responder: Responder);

    /// A notification. It has no answer, whatever is wrong with it.
    fn notification(&self, notification: Incoming<'_>);

    /// The method of the notification that comes most, which [`notification_fast_path`](Self::notification_fast_path) takes. Asked once.
    fn fast_path_method(&self) -> Option<&'static str> {
        None
    }

    /// Takes that notification in one pass, where its line is written as most peers write it. `params` begins an
    /// object, and nobody has looked at the rest: `false`, with nothing done, when it is not one object that fits,
    /// and the line is read as any other. Not asked while somebody [taps](crate::Tap) the line. A panic costs the
    /// line.
    fn notification_fast_path(&self, params: &str, wire_bytes: usize) -> bool {
        let _ = (params, wire_bytes);
        false
    }

    /// The connection has ended; nothing arrives after this.
    fn closed(&self, reason: &Closed) {
        let _ = reason;
    }
}

/// Owes the answer to one request. Exactly one answer is sent, whatever happens to it.
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

    /// The peer that asked.
    #[must_use]
    pub fn peer(&self) -> Peer {
        Peer { shared: self.shared.clone() }
    }

    /// The request's id.
    #[must_use]
    pub fn id(&self) -> &RequestId {
        &self.id
    }

    /// Set when the peer withdraws the request or the connection ends.
    #[must_use]
    pub fn cancellation(&self) -> &CancellationToken {
        &self.cancellation
    }

    /// Counts bytes that the service adds to the request, from what the peer sent before, until it is answered.
    ///
    /// # Errors
    ///
    /// The error to answer with when the requests in flight would exceed
    /// [`Limits::in_flight_bytes`](crate::Limits::in_flight_bytes) by it, unless the request is alone.
    pub fn count_more(&self, bytes: usize) -> Result<(), Error> {
        if bytes == 0 {
            return Ok(());
        }
        self.shared.in_flight.lock_unpoisoned().add(&self.id, bytes, &self.shared.limits)
    }

    /// Answers.
    pub fn respond<R: Serialize>(self, answer: Result<R, Error>) {
        self.respond_or(answer, Error::internal);
    }

    /// Answers, and with what `instead` makes of the reason if the answer cannot be sent: it is larger
    /// than [`Limits::frame_bytes`](crate::Limits::frame_bytes), say.
    pub fn respond_or<R: Serialize>(
        mut self,
        answer: Result<R, Error>,
        instead: impl FnOnce(String) -> Error,
    ) {
        self.answer(answer, instead, Vec::new());
    }

    /// Answers, and sends notifications behind the answer as one step. No other message comes between
    /// them, and the peer reacts to the answer only when all of them are in the output.
    pub fn respond_followed_by<R: Serialize>(
        mut self,
        answer: Result<R, Error>,
        notifications: NotificationBuffer,
    ) {
        self.answer(answer, Error::internal, notifications.frames);
    }

    /// Answers as soon as at most half of [`Limits::output_bytes_hard`](crate::Limits::output_bytes_hard) is unwritten.
    ///
    /// Answers that wait leave in the order of their calls. Only the first of them is encoded. A peer that reads
    /// slowly thus delays answers and never loses its connection over them. When the connection ends they wait no longer.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future while it waits answers `-32603`.
    pub async fn respond_when_ready<R: Serialize>(self, answer: Result<R, Error>) {
        let shared = self.shared.clone();
        let ready = async {
            let turn = match shared.answer_turn.try_lock() {
                Ok(turn) => turn,
                Err(_) => shared.answer_turn.lock().await,
            };
            if !shared.outbox.has_answer_room() {
                // At the end of the connection `respond` frees the request all the same.
                let _ = shared.outbox.answer_room().await;
            }
            turn
        };
        // Once the connection ends, what was answered leaves without waiting: there is little time.
        let _turn = tokio::select! {
            biased;
            turn = ready => Some(turn),
            () = shared.closing.cancelled() => None,
        };
        self.respond(answer);
    }

    /// Answers `-32601`: nobody here handles the method.
    pub fn method_not_found(self, method: &str) {
        self.respond::<()>(Err(Error::method_not_found(method)));
    }

    /// Runs a handler in a task of its own and answers with its output: [`answer_with`](Self::answer_with) in
    /// [`spawn_with`](Self::spawn_with).
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with time enabled.
    pub fn spawn<R, F>(self, handler: F)
    where
        R: Serialize + Send + 'static,
        F: Future<Output = Result<R, Error>> + Send + 'static,
    {
        // A future that is moved into a task is copied once for each layer around it.
        let handler = Box::pin(handler);
        self.spawn_with(move |responder| responder.answer_with(handler));
    }

    /// Runs a handler and [answers](Self::respond_when_ready) with its output.
    ///
    /// The handler of a cancelled request may still answer, for as long as
    /// [`Limits::cancel_grace`](crate::Limits::cancel_grace) allows; then it is dropped and
    /// `-32800` is the answer. A handler that panics is answered for with `-32603`.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the handler and answers `-32603`.
    pub async fn answer_with<R, F>(self, handler: F)
    where
        R: Serialize,
        F: Future<Output = Result<R, Error>>,
    {
        let grace = self.shared.limits.cancel_grace;
        let out = with_cancel_grace(&self.cancellation, grace, handler).await;
        self.respond_when_ready(out.unwrap_or_else(|| Err(Error::request_cancelled()))).await;
    }

    /// Runs `work` in a task of the connection and leaves the answer, and what is to be done about
    /// a cancellation, to it. The end of the connection waits a moment for such tasks.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub fn spawn_with<F>(self, work: impl FnOnce(Responder) -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let span = tracing::debug_span!("request", id = %self.id);
        let tasks = self.shared.tasks.clone();
        spawn(tasks.track_future(work(self).instrument(span)));
    }

    fn answer<R: Serialize>(
        &mut self,
        answer: Result<R, Error>,
        instead: impl FnOnce(String) -> Error,
        mut following: Vec<Frame>,
    ) {
        if std::mem::replace(&mut self.answered, true) {
            return;
        }
        let frame = self.frame(&answer).or_else(|why| {
            tracing::error!(id = %self.id, "{why}");
            let frame = self.frame::<()>(&Err(instead(why)));
            frame.or_else(|why| Frame::error(&self.id, &Error::internal(why)))
        });
        // Free the id before the answer can be seen: the peer may use it again at once.
        self.shared.in_flight.lock_unpoisoned().remove(&self.id);
        let Ok(frame) = frame else { return };
        let _ = if following.is_empty() {
            self.shared.send_all(&mut [frame], InsideTapPolicy::Defer)
        } else {
            following.insert(0, frame);
            self.shared.send_all(&mut following, InsideTapPolicy::Defer)
        };
    }

    /// The line of an answer, or why it cannot be sent.
    fn frame<R: Serialize>(&self, answer: &Result<R, Error>) -> Result<Frame, String> {
        let frame = match answer {
            Ok(result) => Frame::result(&self.id, result),
            Err(error) => Frame::error(&self.id, error),
        };
        let frame = frame.map_err(|error| format!("the answer cannot be written as JSON: {error}"))?;
        let (bytes, limit) = (frame.line().len(), self.shared.limits.frame_bytes);
        if bytes <= limit {
            Ok(frame)
        } else {
            Err(format!("the answer has {bytes} bytes, at most {limit} are sent (Limits::frame_bytes)"))
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
            "the handler ended without an answer"
        };
        self.answer::<()>(Err(Error::internal(message)), Error::internal, Vec::new());
    }
}

/// Notifications that are to be sent directly behind an answer; see [`Responder::respond_followed_by`].
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
    /// An empty buffer for notifications to `peer`.
    #[must_use]
    pub fn new(peer: &Peer) -> Self {
        NotificationBuffer { peer: peer.clone(), frames: Vec::new() }
    }

    /// Appends a notification.
    ///
    /// # Errors
    ///
    /// [`FrameTooLarge`](crate::Error::FrameTooLarge) and [`Encode`](crate::Error::Encode) for a message
    /// that cannot be sent. The buffer stays as it was.
    pub fn push<N: Notification>(&mut self, params: &N) -> Result<(), crate::Error> {
        let frame = self.peer.encode(N::METHOD, params)?;
        self.peer.shared.fits(&frame)?;
        self.frames.push(frame);
        Ok(())
    }
}

/// Runs `future` until it is done or `grace` has passed since the cancellation (then `None`).
///
/// # Cancel safety
///
/// Dropping it drops `future`.
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

#[cfg(all(test, not(any(duologue_loom, duologue_shuttle))))]
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

    /// Answers with notifications behind the answer, one of which is larger than a line may be.
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

    /// Notes the bytes that wait to be written when a frame is sent.
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

    /// Bytes of one push count only when all of its frames are in the output.
    #[tokio::test]
    async fn an_answer_and_what_follows_it_are_one_push() {
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
