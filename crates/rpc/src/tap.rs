//! Taps, which receive a copy of every line of a connection. Recorders and debuggers use them.

use std::collections::VecDeque;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;

use futures_util::FutureExt as _;
use tokio::time::Instant;

use crate::error::Error;
use crate::frame::Frame;
use crate::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use crate::sync::{Lock, Mutex};

/// The direction of a frame, seen from this side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From the peer.
    Incoming,
    /// To the peer.
    Outgoing,
}

/// A line of a connection, as a [`Tap`] sees it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct TappedFrame<'a> {
    /// The direction of the line.
    pub direction: Direction,
    /// The time at which it was read or passed to the writer.
    pub at: Instant,
    /// The unchanged line without its line end. It may not be UTF-8.
    pub bytes: &'a [u8],
    /// True for a message, false for noise.
    pub is_message: bool,
}

/// Receives every line of a connection, in the order of the wire.
///
/// The methods run on the reader and under the lock of the output, so copy the bytes and return. During the call for an
/// outgoing frame nothing else can be sent on the connection, so that frames keep their order. Inside this call:
///
/// - A request, [`Peer::notify`](crate::Peer::notify), [`Peer::try_notify`](crate::Peer::try_notify) and
///   [`Peer::flush`](crate::Peer::flush) fail with [`Error::InsideTap`]. Spawn a task for them.
/// - A response, and the cancellation of a request, are sent behind the frame.
/// - [`Peer::notify_now`](crate::Peer::notify_now) is sent behind the frame too. In the call for a frame that was sent
///   this way it fails with [`Error::InsideTap`], because the tap could send without end.
/// - Closing the connection takes effect at once. Finishing it takes effect behind the deferred frames.
///
/// The sender of the frame may hold a lock of its own during the call. Therefore do not use sessions, dialogues or other
/// types that are built on this crate, and do not send on another connection whose tap sends on this one.
///
/// ```
/// use std::sync::Mutex;
/// use duologue_rpc::{Tap, TappedFrame};
///
/// #[derive(Default)]
/// struct Log(Mutex<Vec<String>>);
///
/// impl Tap for Log {
///     fn frame(&self, frame: TappedFrame<'_>) {
///         let line = String::from_utf8_lossy(frame.bytes).into_owned();
///         self.0.lock().unwrap().push(format!("{:?} {line}", frame.direction));
///     }
/// }
/// ```
pub trait Tap: Send + Sync + 'static {
    /// Called for each line.
    fn frame(&self, frame: TappedFrame<'_>);

    /// Returns a future to delay the connection: nothing is read or written before it is ready. A
    /// recorder on a slow disk uses this.
    ///
    /// It is called once per buffer, so the lines of the current read still arrive. A connection that is
    /// delayed too long ends like one whose peer does not read.
    fn wait(&self) -> Option<Pin<Box<dyn Future<Output = ()> + Send + '_>>> {
        None
    }
}

/// The treatment of a frame that the tap sends inside its call for an outgoing frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InsideTapPolicy {
    /// The frame is rejected, because its sender can send it later.
    Refuse,
    /// The frame is sent behind the outgoing frame, unless that was deferred itself.
    DeferOnce,
    /// The frame is sent behind the outgoing frame, because nothing would send it again.
    Defer,
}

/// The kind of the outgoing frame in the current call of the tap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TapDepth {
    First,
    /// A frame that was deferred inside another call.
    Deferred,
}

/// The tap of a connection with the frames that it defers.
pub(crate) struct ConnectionTap {
    tap: Arc<dyn Tap>,
    /// The thread inside the tap's call for an outgoing frame, see [`this_thread`]. It is odd if the frame was
    /// deferred, and 0 outside such calls. There is only one such thread, because it holds the lock of the outbox.
    showing: AtomicUsize,
    /// The deferred actions, each with the thread that performs it.
    deferred: Mutex<VecDeque<(usize, Deferred)>>,
    /// The number of deferred actions. A thread always sees its own.
    deferrals: AtomicUsize,
}

/// An action that is deferred behind an outgoing frame.
enum Deferred {
    /// Frames that are sent in one step.
    Send(Vec<Frame>),
    Finish,
}

/// Returns an even number that no other running thread has.
fn this_thread() -> usize {
    thread_local! {
        static MARK: u64 = const { 0 };
    }
    MARK.with(|mark| std::ptr::from_ref(mark).addr())
}

impl ConnectionTap {
    pub(crate) fn new(tap: Arc<dyn Tap>) -> Self {
        ConnectionTap {
            tap,
            showing: AtomicUsize::new(0),
            deferred: Mutex::default(),
            deferrals: AtomicUsize::new(0),
        }
    }

    /// Returns the kind of the outgoing frame if this thread is inside the tap.
    fn shown(&self) -> Option<TapDepth> {
        match self.showing.load(Relaxed) {
            thread if thread == this_thread() => Some(TapDepth::First),
            thread if thread == this_thread() | 1 => Some(TapDepth::Deferred),
            _ => None,
        }
    }

    /// Fails if this thread is inside the tap, where waiting for the output would never end.
    pub(crate) fn check_outside(&self) -> Result<(), Error> {
        self.shown().map_or(Ok(()), |_| Err(Error::InsideTap))
    }

    /// Sends frames in one step, then performs the actions that the tap deferred. `append` adds frames to the output and
    /// shows them under its lock. `finish` ends the output.
    pub(crate) fn push(
        &self,
        frames: &mut [Frame],
        policy: InsideTapPolicy,
        append: impl Fn(&mut [Frame], TapDepth) -> Result<bool, Error>,
        finish: impl Fn(),
    ) -> Result<bool, Error> {
        match (self.shown(), policy) {
            (None, _) => {}
            (Some(TapDepth::First), InsideTapPolicy::DeferOnce) | (Some(_), InsideTapPolicy::Defer) => {
                self.defer(Deferred::Send(frames.iter_mut().map(Frame::take).collect()));
                return Ok(true);
            }
            (Some(_), _) => return Err(Error::InsideTap),
        }
        let pushed = append(frames, TapDepth::First);
        while let Some(behind) = self.next_deferred() {
            match behind {
                // An error means that the connection has ended.
                Deferred::Send(mut frames) => drop(append(&mut frames, TapDepth::Deferred)),
                Deferred::Finish => finish(),
            }
        }
        pushed
    }

    /// Defers the end of the output and returns true if this thread is inside the tap.
    pub(crate) fn defers_finish(&self) -> bool {
        let inside = self.shown().is_some();
        if inside {
            self.defer(Deferred::Finish);
        }
        inside
    }

    fn defer(&self, behind: Deferred) {
        self.deferrals.fetch_add(1, Relaxed);
        self.deferred.lock_unpoisoned().push_back((this_thread(), behind));
    }

    /// Returns the next action that this thread deferred. Other threads perform their own actions, in their order.
    fn next_deferred(&self) -> Option<Deferred> {
        if self.deferrals.load(Relaxed) == 0 {
            return None;
        }
        let mut deferred = self.deferred.lock_unpoisoned();
        let own = deferred.iter().position(|(thread, _)| *thread == this_thread())?;
        let (_, behind) = deferred.remove(own)?;
        self.deferrals.fetch_sub(1, Relaxed);
        Some(behind)
    }

    /// Shows an outgoing frame. Called under the lock of the outbox.
    pub(crate) fn outgoing(&self, frame: &Frame, shown: TapDepth) {
        let deferred = usize::from(shown == TapDepth::Deferred);
        self.showing.store(this_thread() | deferred, Relaxed);
        self.show(Direction::Outgoing, Instant::now(), frame.line(), true);
        self.showing.store(0, Relaxed);
    }

    /// Shows a frame. A panic of the tap is logged.
    pub(crate) fn show(&self, direction: Direction, at: Instant, bytes: &[u8], is_message: bool) {
        let frame = TappedFrame { direction, at, bytes, is_message };
        if catch_unwind(AssertUnwindSafe(|| self.tap.frame(frame))).is_err() {
            tracing::error!("a tap panicked at a frame");
        }
    }

    /// Waits if the tap wants to delay the connection.
    pub(crate) async fn room(&self) {
        let wait = async {
            if let Some(wait) = self.tap.wait() {
                wait.await;
            }
        };
        if AssertUnwindSafe(wait).catch_unwind().await.is_err() {
            tracing::error!("a tap panicked while it delayed the connection");
        }
    }
}

#[cfg(all(test, not(duologue_loom)))]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use futures_util::FutureExt;
    use serde_json::{Value, json};
    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

    use super::*;
    use crate::{Closed, Incoming, Peer, PeerBuilder, Responder, ResponseFuture, Service, Transport};

    struct Note;

    impl serde::Serialize for Note {
        fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            json!({}).serialize(serializer)
        }
    }

    impl<'de> serde::Deserialize<'de> for Note {
        fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            serde::de::IgnoredAny::deserialize(deserializer).map(|_| Note)
        }
    }

    impl duologue_schema::Notification for Note {
        const METHOD: &'static str = "_note";
    }

    /// The handles that the tap uses at the frame `_use`.
    #[derive(Default)]
    struct Handles {
        peer: Option<Peer>,
        cancelled: Option<ResponseFuture<Value>>,
        dropped: Option<ResponseFuture<Value>>,
        responder: Option<Responder>,
        finishes: bool,
    }

    #[derive(Default)]
    struct Busy {
        handles: Mutex<Handles>,
        outgoing: Mutex<Vec<Value>>,
        /// The outcome of each attempt to send inside the call for an outgoing frame.
        attempts: Mutex<Vec<(&'static str, Result<(), Error>)>>,
    }

    impl Tap for Busy {
        fn frame(&self, frame: TappedFrame<'_>) {
            if frame.direction == Direction::Incoming {
                return;
            }
            let line: Value = serde_json::from_slice(frame.bytes).unwrap();
            self.outgoing.lock_unpoisoned().push(line.clone());
            let attempt = |name, outcome| self.attempts.lock_unpoisoned().push((name, outcome));
            match line["method"].as_str() {
                Some("_use") => {
                    let Handles { peer, cancelled, dropped, responder, finishes } =
                        std::mem::take(&mut *self.handles.lock_unpoisoned());
                    let peer = peer.unwrap();
                    let at_once = |future| FutureExt::now_or_never(future).expect("the future must not wait");
                    attempt(
                        "request",
                        at_once(peer.call::<_, Value>("_ask", &[0]).map(|end| end.map(drop)).boxed()),
                    );
                    attempt("notify", at_once(peer.notify_raw("_tell", &[0]).boxed()));
                    attempt("try_notify", peer.try_notify(&Note).map(drop));
                    attempt("flush", at_once(peer.flush().boxed()));
                    attempt("notify_now", peer.notify_now(&Note));
                    cancelled.inspect(ResponseFuture::cancel).map(ResponseFuture::detach);
                    drop(dropped);
                    if let Some(responder) = responder {
                        responder.respond(Ok("late"));
                    }
                    if finishes {
                        peer.finish();
                    }
                    self.handles.lock_unpoisoned().peer = Some(peer);
                }
                // A frame that was deferred inside another call.
                Some("_note") => {
                    let peer = self.handles.lock_unpoisoned().peer.take().unwrap();
                    attempt("notify_now again", peer.notify_now(&Note));
                    // This is the last handle.
                    drop(peer);
                }
                _ => {}
            }
        }
    }

    impl Busy {
        fn check_attempts(&self, many: usize) {
            let attempts = self.attempts.lock_unpoisoned();
            for (name, outcome) in &*attempts {
                match *name {
                    "notify_now" => assert!(outcome.is_ok(), "{outcome:?}"),
                    name => assert!(matches!(outcome, Err(Error::InsideTap)), "{name}: {outcome:?}"),
                }
            }
            assert_eq!(attempts.len(), many);
        }
    }

    /// Keeps the responder for the tap.
    struct Keeps(Arc<Busy>);

    impl Service for Keeps {
        fn request(&self, _: Incoming<'_>, responder: Responder) {
            self.0.handles.lock_unpoisoned().responder = Some(responder);
        }

        fn notification(&self, _: Incoming<'_>) {}
    }

    /// Runs a test in a thread of its own, so that a deadlock fails it.
    fn finishes(test: impl Future<Output = ()> + Send + 'static) {
        let (done, finished) = mpsc::channel();
        std::thread::spawn(move || {
            tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test);
            let _ = done.send(());
        });
        finished.recv_timeout(Duration::from_secs(30)).expect("the test panicked or the tap deadlocked");
    }

    #[test]
    fn a_tap_that_uses_its_connection_does_not_block_or_reorder() {
        finishes(async {
            let (ours, theirs) = Transport::memory();
            let busy = Arc::new(Busy::default());
            let peer = PeerBuilder::new(ours).tap(busy.clone()).start(|_| Keeps(busy.clone()));
            let (reader, mut writer) = theirs.into_split();
            let mut lines = BufReader::new(reader).lines();
            let (cancelled, dropped) = (peer.call("_first", &[0]), peer.call("_second", &[0]));
            writer.write_all(b"{\"jsonrpc\":\"2.0\",\"id\":\"x\",\"method\":\"_kept\"}\n").await.unwrap();
            while busy.handles.lock_unpoisoned().responder.is_none() {
                tokio::task::yield_now().await;
            }
            {
                let mut handles = busy.handles.lock_unpoisoned();
                handles.peer = Some(peer.clone());
                (handles.cancelled, handles.dropped) = (Some(cancelled), Some(dropped));
            }
            peer.notify_raw("_use", &json!({})).await.unwrap();
            peer.notify_raw("_after", &json!({})).await.unwrap();
            drop(peer);

            let mut written: Vec<Value> = Vec::new();
            while written.last().is_none_or(|line| line["method"] != "_after") {
                let line = lines.next_line().await.unwrap().unwrap();
                written.push(serde_json::from_str(&line).unwrap());
            }
            let shown: Vec<_> = written
                .iter()
                .map(|line| {
                    (line["method"].as_str().unwrap_or("answer"), line["params"]["requestId"].as_u64())
                })
                .collect();
            let cancel = "$/cancel_request";
            let expected = [
                ("_first", None),
                ("_second", None),
                ("_use", None),
                ("_note", None),
                (cancel, Some(1)),
                (cancel, Some(2)),
                ("answer", None),
                ("_after", None),
            ];
            assert_eq!(shown, expected);
            assert_eq!(*busy.outgoing.lock_unpoisoned(), written, "the tap saw the written lines in order");
            busy.check_attempts(6);
        });
    }

    #[test]
    fn a_tap_cannot_wait_for_space_and_can_finish() {
        finishes(async {
            let (ours, theirs) = Transport::memory();
            let busy = Arc::new(Busy::default());
            // Every notification waits for the one before it.
            let limits = crate::Limits { output_bytes: 1, ..crate::Limits::default() };
            let connection = PeerBuilder::new(ours).limits(limits).tap(busy.clone());
            let peer = connection.start(|_| Keeps(busy.clone()));
            busy.handles.lock_unpoisoned().peer = Some(peer.clone());
            busy.handles.lock_unpoisoned().finishes = true;
            peer.notify_raw("_first", &json!({})).await.unwrap();
            let call = peer.call::<_, Value>("_use", &[0]).detach();
            let error = peer.call::<_, Value>("_after", &[0]).await.unwrap_err();
            assert!(matches!(error, Error::Closed(Closed::Local)), "{error}");
            drop((call, peer));
            let mut lines = BufReader::new(theirs.into_split().0).lines();
            let mut written = Vec::new();
            while let Some(line) = lines.next_line().await.unwrap() {
                written.push(line);
            }
            let methods = ["_first", "_use", "_note"];
            assert!(written.iter().zip(methods).all(|(line, method)| line.contains(method)), "{written:?}");
            assert_eq!(written.len(), methods.len());
            busy.check_attempts(6);
        });
    }

    /// Frames of the tap are sent even if the notification before them took the last space.
    #[test]
    fn frames_behind_a_notification_need_no_space() {
        finishes(async {
            let (ours, theirs) = Transport::memory();
            let busy = Arc::new(Busy::default());
            let limits = crate::Limits { output_bytes: 1, ..crate::Limits::default() };
            let connection = PeerBuilder::new(ours).limits(limits).tap(busy.clone());
            let peer = connection.start(|_| Keeps(busy.clone()));
            busy.handles.lock_unpoisoned().peer = Some(peer.clone());
            peer.notify_raw("_use", &json!({})).await.unwrap();
            peer.notify_raw("_after", &json!({})).await.unwrap();
            drop(peer);
            let mut lines = BufReader::new(theirs.into_split().0).lines();
            for method in ["_use", "_note", "_after"] {
                let line = lines.next_line().await.unwrap().unwrap();
                assert!(line.contains(method), "{line} instead of {method}");
            }
            busy.check_attempts(6);
        });
    }

    /// Logs the lines that a tap sees and the notifications that the service handles, in their order.
    #[derive(Clone, Default)]
    struct Order(Arc<Mutex<Vec<String>>>);

    impl Order {
        fn log(&self, event: &str, text: &str) {
            self.0.lock_unpoisoned().push(format!("{event} {text}"));
        }
    }

    impl Tap for Order {
        fn frame(&self, frame: TappedFrame<'_>) {
            let kind = if frame.is_message { "message" } else { "noise" };
            self.log(kind, &String::from_utf8_lossy(frame.bytes));
        }
    }

    impl Service for Order {
        fn request(&self, _: Incoming<'_>, _: Responder) {}

        fn notification(&self, notification: Incoming<'_>) {
            self.log("general", notification.params.map_or("", |params| params.get()));
        }

        fn fast_path_method(&self) -> Option<&'static str> {
            Some("_fast")
        }

        fn notification_fast_path(&self, params: &str, _: usize, valid: &dyn Fn()) -> bool {
            let is_valid = serde_json::from_str::<serde::de::IgnoredAny>(params).is_ok();
            if is_valid {
                valid();
                self.log("fast", params);
            }
            is_valid
        }
    }

    #[tokio::test]
    async fn a_tap_sees_each_line_once_before_it_has_an_effect() {
        let (ours, theirs) = Transport::memory();
        let order = Order::default();
        let peer = PeerBuilder::new(ours).tap(Arc::new(order.clone())).start(|_| order.clone());
        let (_input, mut output) = theirs.into_split();
        let fast = r#"{"jsonrpc":"2.0","method":"_fast","params":{"a":1}}"#;
        let other = r#"{"method":"_fast","jsonrpc":"2.0","params":{"b":2}}"#;
        let broken = r#"{"jsonrpc":"2.0","method":"_fast","params":{"c":}}"#;
        output.write_all([fast, other, broken, fast, ""].join("\n").as_bytes()).await.unwrap();
        drop((output, _input));
        peer.closed().await;
        let expected = [
            &format!("message {fast}"),
            r#"fast {"a":1}"#,
            &format!("message {other}"),
            r#"general {"b":2}"#,
            &format!("noise {broken}"),
            &format!("message {fast}"),
            r#"fast {"a":1}"#,
        ];
        assert_eq!(*order.0.lock_unpoisoned(), expected);
    }
}
