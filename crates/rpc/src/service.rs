//! What a side of the connection does with what arrives.

use std::future::Future;
use std::sync::Arc;

use duologue_schema::{Error, RequestId};
use serde::Serialize;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::connection::Shared;
use crate::error::Closed;
use crate::frame::Frame;
use crate::peer::Peer;
use crate::sync::{Lock, spawn};
use crate::tap::FromTap;

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

    /// The method of the notification that comes most, which [`streamed`](Self::streamed) takes. Asked once.
    fn streamed_method(&self) -> Option<&'static str> {
        None
    }

    /// Takes that notification in one pass, where its line is written as most peers write it. `params` begins an
    /// object, and nobody has looked at the rest: `false`, with nothing done, when it is not one object that fits,
    /// and the line is read as any other. Not asked while somebody [taps](crate::Tap) the line. A panic costs the
    /// line.
    fn streamed(&self, params: &str, wire_bytes: usize) -> bool {
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
    shared: Arc<Shared>,
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
    pub(crate) fn new(shared: Arc<Shared>, id: RequestId, cancellation: CancellationToken) -> Self {
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
        self.answer(answer, instead);
    }

    /// Answers `-32601`: nobody here handles the method.
    pub fn method_not_found(self, method: &str) {
        self.respond::<()>(Err(Error::method_not_found(method)));
    }

    /// Runs a handler in a task of its own and answers with its output.
    ///
    /// When the request is cancelled the handler may still answer, for as long as
    /// [`Limits::cancel_grace`](crate::Limits::cancel_grace) allows; then it is dropped and
    /// `-32800` is the answer. A handler that panics is answered for with `-32603`.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with time enabled.
    pub fn spawn<R, F>(self, handler: F)
    where
        R: Serialize + Send + 'static,
        F: Future<Output = Result<R, Error>> + Send + 'static,
    {
        let grace = self.shared.limits.cancel_grace;
        // What is moved into a task is copied once for each layer around it.
        let handler = Box::pin(handler);
        self.spawn_with(move |responder| async move {
            let out = until_dropped(&responder.cancellation, grace, handler).await;
            responder.respond(out.unwrap_or_else(|| Err(Error::request_cancelled())));
        });
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

    fn answer<R: Serialize>(&mut self, answer: Result<R, Error>, instead: impl FnOnce(String) -> Error) {
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
        if let Ok(frame) = frame {
            let _ = self.shared.send_even_from_tap(frame, FromTap::Defer);
        }
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
            Err(format!("the answer has {bytes} bytes, more than {limit}"))
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
        self.answer::<()>(Err(Error::internal(message)), Error::internal);
    }
}

/// Runs `future` until it is done or `grace` has passed since the cancellation (then `None`).
///
/// # Cancel safety
///
/// Dropping it drops `future`.
pub async fn until_dropped<F: Future>(
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
